/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#define _XOPEN_SOURCE 700 /* getrusage */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "folder.h"

enum { BUILD_LOG_BYTES = 1 << 16 };

/* Where sentences go instead of stderr. */
static char *caught;
static size_t caught_capacity;

void cli_fail_catch(char *text, size_t capacity) {
  caught = text;
  caught_capacity = capacity;
  if (text != NULL && capacity > 0)
    text[0] = 0;
}

int cli_fail(int code, const char *format, ...) {
  va_list list;
  va_start(list, format);
  if (caught != NULL) {
    vsnprintf(caught, caught_capacity, format, list);
    va_end(list);
    return code;
  }
  fflush(stdout);
  fputs("clattn: ", stderr);
  vfprintf(stderr, format, list);
  fputc('\n', stderr);
  va_end(list);
  return code;
}

int cli_fail_memory(void) {
  return cli_fail(CLI_FAILED, "not enough memory on the host");
}

static int exit_code(clattn_status status) {
  switch (status) {
  case CLATTN_SUCCESS:
    return CLI_OK;
  case CLATTN_ERROR_NO_DEVICE:
    return CLI_NO_DEVICE;
  case CLATTN_ERROR_SHAPE:
  case CLATTN_ERROR_STRIDE:
  case CLATTN_ERROR_OVERFLOW:
  case CLATTN_ERROR_VALUE:
  case CLATTN_ERROR_LENGTH:
  case CLATTN_ERROR_TENSOR_MISSING:
  case CLATTN_ERROR_TENSOR_UNUSED:
  case CLATTN_ERROR_ENUM:
  case CLATTN_ERROR_RESERVED:
  case CLATTN_ERROR_ALIGNMENT:
  case CLATTN_ERROR_WORKSPACE_TOO_SMALL:
  case CLATTN_ERROR_BOUND:
  case CLATTN_ERROR_UNKNOWN_VARIANT:
  case CLATTN_ERROR_VARIANT_UNFIT:
  case CLATTN_ERROR_NOT_SUPPORTED:
  case CLATTN_ERROR_TEXT:
    return CLI_USAGE;
  default:
    return CLI_FAILED;
  }
}

int cli_fail_status(clattn_status status, const clattn_error *error, const char *what) {
  const char *message = error != NULL && error->message[0] != 0 ? error->message : clattn_status_text(status);
  const int code = exit_code(status);
  cli_fail(code, "%s: %s (%s)", what, message, clattn_status_name(status));
  if (caught != NULL)
    return code;
  if (error != NULL && error->build_log != NULL && error->build_log_length > 0) {
    fprintf(stderr, "---- build log ----\n%s\n", error->build_log);
    if (error->build_log_length >= error->build_log_capacity)
      fprintf(stderr, "(cut; %zu bytes in all)\n", error->build_log_length);
  }
  if (code == CLI_NO_DEVICE)
    fputs(
        "clattn: for the CPU of this machine: apt-get install pocl-opencl-icd; for a GPU, its vendor's OpenCL driver\n",
        stderr);
  return code;
}

int cli_error_init(clattn_error *error) {
  clattn_error_init(error);
  error->build_log = malloc(BUILD_LOG_BYTES);
  if (error->build_log == NULL)
    return cli_fail_memory();
  error->build_log[0] = 0;
  error->build_log_capacity = BUILD_LOG_BYTES;
  return CLI_OK;
}

void cli_error_release(clattn_error *error) {
  free(error->build_log);
  error->build_log = NULL;
  error->build_log_capacity = 0;
}

/* ---- signals ---- */

enum { MAX_FILES = 8, MAX_FOLDERS = 2 };
static const char *volatile remembered[MAX_FILES];
static const cli_folder *volatile unfinished[MAX_FOLDERS];
static sigset_t held;
static int holds; /* by the main thread alone */

/* Everything that ends a process by default and can be caught, but for PoCL's own SIGFPE. */
static const struct ending {
  int signal, code;    /* code -1: the signal's default action follows, which says what crashed */
  int even_if_ignored; /* nohup and shells ignore some signals on purpose */
  const char *message;
} endings[] = {
    {SIGINT, 128 + SIGINT, 1, NULL},
    {SIGTERM, 128 + SIGTERM, 1, NULL},
    {SIGHUP, 128 + SIGHUP, 0, NULL},
    {SIGALRM, 128 + SIGALRM, 0, NULL},
    {SIGUSR1, 128 + SIGUSR1, 0, NULL},
    {SIGUSR2, 128 + SIGUSR2, 0, NULL},
    {SIGQUIT, CLI_FAILED, 0, "clattn: ended by SIGQUIT\n"},
    {SIGXCPU, CLI_FAILED, 0, "clattn: the limit of processor time is reached (SIGXCPU)\n"},
    {SIGBUS, CLI_FAILED, 1, "clattn: an input file became shorter, or could not be read, during the run (SIGBUS)\n"},
    {SIGABRT, -1, 0, NULL},
    {SIGSEGV, -1, 0, NULL},
    {SIGILL, -1, 0, NULL},
};
enum { ENDINGS = sizeof endings / sizeof endings[0] };

/* The last first: it may lie in the one before. */
static void remove_unfinished(void) {
  for (int i = MAX_FOLDERS - 1; i >= 0; i--) {
    const cli_folder *folder = unfinished[i];
    if (folder == NULL)
      continue;
    for (size_t n = 0; n < folder->count; n++)
      unlinkat(folder->handle, folder->name[n], 0);
    if (folder->made)
      rmdir(folder->path); /* fails where something whole lies in it, and should */
  }
}

static void remove_remembered(void) {
  remove_unfinished();
  for (int i = 0; i < MAX_FILES; i++) {
    if (remembered[i] != NULL)
      unlink(remembered[i]);
  }
}

/* Calls what is safe in a signal handler, nothing else. */
static void on_signal(int number) {
  const int saved = errno;
  remove_remembered();
  for (size_t i = 0; i < ENDINGS; i++) {
    if (endings[i].signal != number || endings[i].code < 0)
      continue;
    const char *message = endings[i].message;
    size_t length = 0;
    while (message != NULL && message[length] != 0)
      length++;
    /* Whether anybody reads the message or not. */
    if (length > 0 && write(STDERR_FILENO, message, length) < 0)
      _exit(endings[i].code);
    _exit(endings[i].code);
  }
  errno = saved;
}

void cli_signals_install(void) {
  struct sigaction action, old;
  memset(&action, 0, sizeof action);
  sigfillset(&action.sa_mask);
  for (size_t i = 0; i < ENDINGS; i++) {
    const struct ending *ending = &endings[i];
    if (sigaction(ending->signal, NULL, &old) != 0 || (old.sa_handler != SIG_DFL && !ending->even_if_ignored))
      continue;
    action.sa_handler = on_signal;
    action.sa_flags = ending->code < 0 ? (int)SA_RESETHAND : 0;
    sigaction(ending->signal, &action, NULL);
  }
  /* A reader that went away and a file above its limit are errors of one write, which takes the ordinary way out. */
  action.sa_handler = SIG_IGN;
  action.sa_flags = 0;
  sigaction(SIGPIPE, &action, NULL);
  sigaction(SIGXFSZ, &action, NULL);
  /* Drivers' compilers call exit in an emergency. */
  atexit(remove_remembered);
}

void cli_signals_hold(void) {
  sigset_t set;
  if (holds++ > 0)
    return;
  sigemptyset(&set);
  /* A fault of the program itself can't wait. */
  for (size_t i = 0; i < ENDINGS; i++) {
    if (endings[i].code >= 0 && endings[i].signal != SIGBUS)
      sigaddset(&set, endings[i].signal);
  }
  pthread_sigmask(SIG_BLOCK, &set, &held);
}

void cli_signals_release(void) {
  if (--holds == 0)
    pthread_sigmask(SIG_SETMASK, &held, NULL);
}

void cli_signals_remember(const char *temporary) {
  for (int i = 0; i < MAX_FILES; i++) {
    if (remembered[i] == NULL) {
      remembered[i] = temporary;
      return;
    }
  }
}

void cli_signals_forget(const char *temporary) {
  for (int i = 0; i < MAX_FILES; i++) {
    if (remembered[i] == temporary)
      remembered[i] = NULL;
  }
}

void cli_signals_remember_folder(const cli_folder *folder) {
  for (int i = 0; i < MAX_FOLDERS; i++) {
    if (unfinished[i] == NULL) {
      unfinished[i] = folder;
      return;
    }
  }
}

void cli_signals_forget_folder(const cli_folder *folder) {
  for (int i = 0; i < MAX_FOLDERS; i++) {
    if (unfinished[i] == folder)
      unfinished[i] = NULL;
  }
}

/* ---- progress ---- */

static struct {
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t wake;
  int running, stop, shown;
  const char *label;
  const cl_event *events;
  uint32_t count;
  double start;
} progress = {.mutex = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

int cli_progress_wanted(void) {
  return isatty(STDERR_FILENO);
}

static void show_progress(void) {
  uint32_t done = 0;
  for (uint32_t i = 0; i < progress.count; i++) {
    cl_int state = CL_QUEUED;
    if (clGetEventInfo(progress.events[i], CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL) ==
            CL_SUCCESS &&
        state <= CL_COMPLETE)
      done++;
  }
  fprintf(stderr, "\rclattn: %s, %.0f s", progress.label, cli_seconds() - progress.start);
  if (progress.count > 0)
    fprintf(stderr, ", %" PRIu32 " of %" PRIu32, done, progress.count);
  fputs("\033[K", stderr);
  progress.shown = 1;
}

static void *progress_main(void *unused) {
  (void)unused;
  pthread_mutex_lock(&progress.mutex);
  while (!progress.stop) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 250000000;
    if (until.tv_nsec >= 1000000000) {
      until.tv_nsec -= 1000000000;
      until.tv_sec++;
    }
    pthread_cond_timedwait(&progress.wake, &progress.mutex, &until);
    if (!progress.stop && cli_seconds() - progress.start > 2)
      show_progress();
  }
  pthread_mutex_unlock(&progress.mutex);
  return NULL;
}

void cli_progress_begin(const char *label, const cl_event *events, uint32_t count) {
  if (!cli_progress_wanted() || progress.running)
    return;
  progress.label = label;
  progress.events = events;
  progress.count = events != NULL ? count : 0;
  progress.start = cli_seconds();
  progress.stop = progress.shown = 0;
  /* Signals are for the main thread. */
  cli_signals_hold();
  progress.running = pthread_create(&progress.thread, NULL, progress_main, NULL) == 0;
  cli_signals_release();
}

void cli_progress_end(void) {
  if (!progress.running)
    return;
  pthread_mutex_lock(&progress.mutex);
  progress.stop = 1;
  pthread_cond_signal(&progress.wake);
  pthread_mutex_unlock(&progress.mutex);
  pthread_join(progress.thread, NULL);
  progress.running = 0;
  if (progress.shown)
    fputs("\r\033[K", stderr);
}

/* ---- small things ---- */

double cli_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double cli_unsigned_nan(double value) {
  return isnan(value) ? (double)NAN : value;
}

double cli_peak_megabytes(void) {
  struct rusage usage;
  if (getrusage(RUSAGE_SELF, &usage) != 0)
    return 0;
#ifdef __APPLE__
  return (double)usage.ru_maxrss / 1e6; /* bytes there, KiB elsewhere */
#else
  return (double)usage.ru_maxrss * 1024 / 1e6;
#endif
}

char *cli_shape_text(int rank, const int64_t *shape, char *text, size_t capacity) {
  size_t used = 0;
  used += (size_t)snprintf(text, capacity, "(");
  for (int i = 0; i < rank && used < capacity; i++)
    used += (size_t)snprintf(text + used, capacity - used, "%s%" PRId64, i > 0 ? ", " : "", shape[i]);
  if (used < capacity)
    snprintf(text + used, capacity - used, rank == 1 ? ",)" : ")");
  return text;
}
