/* SPDX-License-Identifier: Apache-2.0 */
/* The disk cache, on the stub driver, whose binaries are the sources: that it is used, that nothing wrong with it is an
 * error or changes a result, and that nothing is lost when calls and allocations fail.
 *   test_cache                 all
 *   test_cache child FOLDER    contexts and plans with that folder: one of several processes at once */
#define _XOPEN_SOURCE 700
#include "stub/use.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "hash.h"
#include "launch.h"

enum { HEAD = 24, SUM = CLATTNI_HASH_BYTES, MOST_ENTRIES = 8, MOST_CALLS = 200, CHILDREN = 4, ROUNDS = 40 };

/* ---- processes that are all number 1, as in containers, with a clock that stands ---- */

static int ends_half_way; /* 1: the process ends where a whole file would get its name */

pid_t getpid(void) {
  return 1;
}

int timespec_get(struct timespec *ts, int base) {
  ts->tv_sec = ts->tv_nsec = 0;
  return base;
}

int rename(const char *old, const char *new) {
  if (ends_half_way)
    _exit(0);
  return renameat(AT_FDCWD, old, AT_FDCWD, new);
}

/* ---- entries in memory, for the two functions ---- */

typedef struct entry {
  char key[80];
  unsigned char *data;
  size_t bytes;
} entry;

typedef struct shelf {
  entry entries[MOST_ENTRIES];
  size_t count, puts, gets;
  size_t lie; /* get's answer for sizes, instead of the truth; 0: none */
  int shrinks, full;
  clattn_context *again; /* a plan is made inside put, too */
} shelf;

static entry *find(shelf *s, const char *key) {
  for (size_t i = 0; i < s->count; ++i)
    if (strcmp(s->entries[i].key, key) == 0)
      return &s->entries[i];
  return NULL;
}

static size_t shelf_get(void *user, const char *key, void *data, size_t capacity) {
  shelf *const s = user;
  const entry *const e = find(s, key);
  s->gets++;
  if (e == NULL)
    return 0;
  memcpy(data, e->data, e->bytes < capacity ? e->bytes : capacity);
  if (s->lie != 0)
    return s->lie;
  return e->bytes - (s->shrinks && capacity > HEAD);
}

static void set_entry(entry *e, const void *data, size_t bytes) {
  unsigned char *const copy = malloc(bytes + 1);
  assert_non_null(copy);
  memcpy(copy, data, bytes);
  free(e->data);
  e->data = copy;
  e->bytes = bytes;
}

static void shelf_put(void *user, const char *key, const void *data, size_t bytes) {
  shelf *const s = user;
  entry *e = find(s, key);
  s->puts++;
  if (s->full)
    return;
  if (e == NULL) {
    assert_true(s->count < MOST_ENTRIES && strlen(key) == 64);
    e = &s->entries[s->count++];
    memcpy(e->key, key, 65);
  }
  set_entry(e, data, bytes);
  if (s->again != NULL) {
    clattn_context *const context = s->again;
    clattn_plan *plan = NULL;
    job j;
    s->again = NULL;
    job_init(&j, JOB_PLAIN);
    assert_int_equal(clattn_plan_create(context, &j.problem, NULL, &plan, NULL), CLATTN_SUCCESS);
    clattn_plan_release(plan);
  }
}

static void shelf_free(shelf *s) {
  for (size_t i = 0; i < s->count; ++i)
    free(s->entries[i].data);
  memset(s, 0, sizeof(*s));
}

/* ---- contexts and plans ---- */

static int warnings;
static void count_warnings(void *user, int level, const char *line) {
  (void)user;
  warnings += level == CLATTN_LOG_WARNING;
  assert_true(line[0] != 0);
}

static void cache_options(clattn_context_options *options, const char *folder, shelf *s) {
  clattn_context_options_init(options);
  options->config_text = TRUSTED_JOBS;
  options->log_fn = count_warnings;
  options->cache_folder = folder;
  if (s != NULL) {
    options->cache_get = shelf_get;
    options->cache_put = shelf_put;
    options->cache_user = s;
  }
}

static clattn_context *open_context(const rig *r, const char *folder, shelf *s) {
  clattn_context_options options;
  clattn_context *context = NULL;
  cache_options(&options, folder, s);
  assert_int_equal(clattn_context_create(r->cl, r->device[0], &options, &context, NULL), CLATTN_SUCCESS);
  return context;
}

/* A plan of a job in a context: 1 if its kernels came from the cache. */
static int plan_from_cache(clattn_context *context, unsigned flags) {
  const uint64_t sources = stub->calls("clCreateProgramWithSource");
  clattn_plan *plan = NULL;
  clattn_plan_info info;
  job j;
  job_init(&j, flags);
  assert_int_equal(clattn_plan_create(context, &j.problem, NULL, &plan, &j.error), CLATTN_SUCCESS);
  clattn_plan_info_init(&info);
  assert_int_equal(clattn_plan_get_info(plan, &info), CLATTN_SUCCESS);
  clattn_plan_release(plan);
  assert_int_equal(stub->calls("clCreateProgramWithSource") - sources, !info.from_cache);
  return (int)info.from_cache;
}

/* The same in a context of its own, as in another process. */
static int from_cache(const rig *r, const char *folder, shelf *s, unsigned flags) {
  clattn_context *const context = open_context(r, folder, s);
  const int found = plan_from_cache(context, flags);
  clattn_context_release(context);
  return found;
}

/* ---- a folder ---- */

static char root[] = "/tmp/clattn-cache-XXXXXX";
static char folder[64];

static void remove_all(const char *path) {
  DIR *const open = opendir(path);
  const struct dirent *at;
  char inner[512];
  while (open != NULL && (at = readdir(open)) != NULL)
    if (strcmp(at->d_name, ".") != 0 && strcmp(at->d_name, "..") != 0) {
      snprintf(inner, sizeof(inner), "%.200s/%.250s", path, at->d_name);
      if (unlink(inner) != 0)
        (void)rmdir(inner);
    }
  if (open != NULL)
    closedir(open);
  (void)rmdir(path);
}

/* Its files, and the name of the last one (may be NULL). */
static int files_in(const char *path, char *name) {
  DIR *const open = opendir(path);
  const struct dirent *at;
  int count = 0;
  while (open != NULL && (at = readdir(open)) != NULL)
    if (at->d_name[0] != '.') {
      ++count;
      if (name != NULL)
        snprintf(name, 512, "%.200s/%.250s", path, at->d_name);
    }
  if (open != NULL)
    closedir(open);
  return count;
}

static int cache_setup(void **state) {
  warnings = 0;
  snprintf(folder, sizeof(folder), "%s/kernels", root);
  remove_all(folder);
  return rig_setup(state);
}

static unsigned char *read_file(const char *path, size_t *bytes) {
  FILE *const file = fopen(path, "rb");
  assert_non_null(file);
  unsigned char *const data = malloc(1 << 20);
  assert_non_null(data);
  *bytes = fread(data, 1, 1 << 20, file);
  fclose(file);
  return data;
}

static void write_file(const char *path, const void *data, size_t bytes) {
  FILE *const file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(data, 1, bytes, file), bytes);
  assert_int_equal(fclose(file), 0);
}

static size_t key_bytes(const unsigned char *data) {
  return data[8] + 256u * data[9];
}

/* ---- tests ---- */

static void hit_and_miss(void **state) {
  const rig *const r = *state;
  struct stat about;
  char file[512];
  assert_false(from_cache(r, folder, NULL, JOB_PLAIN));
  assert_int_equal(files_in(folder, file), 1);
  assert_int_equal(stat(folder, &about), 0);
  assert_int_equal(about.st_mode & 0777, 0700);
  assert_int_equal(stat(file, &about), 0);
  assert_int_equal(about.st_mode & 0777, 0600);
  assert_true(from_cache(r, folder, NULL, JOB_PLAIN));
  assert_true(from_cache(r, folder, NULL, JOB_LENGTHS)); /* the same program */
  assert_false(from_cache(r, folder, NULL, JOB_TYPES));
  assert_true(from_cache(r, folder, NULL, JOB_TYPES));
  assert_true(from_cache(r, folder, NULL, JOB_PLAIN));
  assert_false(from_cache(r, folder, NULL, JOB_HOOK));
  assert_true(from_cache(r, folder, NULL, JOB_HOOK));
  assert_int_equal(files_in(folder, NULL), 3);
  assert_int_equal(warnings, 0);
}

/* Hooks of the same text are one program, others are others; the number of a hook does not count. */
static void hooks(void **state) {
  const rig *const r = *state;
  static const char *const texts[] = {"float clattn_score(float s, const clattn_at *at) { return s; }",
                                      "float clattn_score(float s, const clattn_at *at) { return 2 * s; }",
                                      "float clattn_score(float s, const clattn_at *at) { return s; }"};
  static const int known[] = {0, 0, 1};
  for (int i = 0; i < 3; ++i) {
    clattn_context *const context = open_context(r, folder, NULL);
    clattn_plan *plan = NULL;
    clattn_plan_info info;
    clattn_hook *hook = NULL;
    job j;
    job_init(&j, JOB_PLAIN);
    assert_int_equal(clattn_hook_create(texts[i], &hook, NULL), CLATTN_SUCCESS);
    j.problem.hook = hook;
    assert_int_equal(clattn_plan_create(context, &j.problem, NULL, &plan, NULL), CLATTN_SUCCESS);
    clattn_plan_info_init(&info);
    assert_int_equal(clattn_plan_get_info(plan, &info), CLATTN_SUCCESS);
    assert_int_equal(info.from_cache, known[i]);
    clattn_plan_release(plan);
    clattn_context_release(context);
    clattn_hook_release(hook);
  }
}

/* The key has all that is compiled in front of the kernel file, not the hook alone. */
static void hook_key(void **state) {
  const rig *const r = *state;
  shelf s;
  clattni_hash hash;
  unsigned char digest[CLATTNI_HASH_BYTES];
  char text[CLATTNI_HASH_TEXT];
  memset(&s, 0, sizeof(s));
  assert_false(from_cache(r, NULL, &s, JOB_PLAIN));
  assert_false(from_cache(r, NULL, &s, JOB_HOOK));
  assert_int_equal(s.count, 2);
  const entry *const plain = &s.entries[0], *const hooked = &s.entries[1];
  const unsigned char *const file = plain->data + HEAD + key_bytes(plain->data);
  const unsigned char *const front = hooked->data + HEAD + key_bytes(hooked->data);
  const size_t file_bytes = (size_t)(plain->data + plain->bytes - SUM - file);
  const size_t all_bytes = (size_t)(hooked->data + hooked->bytes - SUM - front);
  assert_true(file_bytes > 0 && file_bytes < all_bytes);
  assert_memory_equal(front + all_bytes - file_bytes, file, file_bytes);
  clattni_hash_begin(&hash);
  clattni_hash_add(&hash, front, all_bytes - file_bytes);
  clattni_hash_end(&hash, digest);
  clattni_hash_text(digest, text);
  char *const key = calloc(key_bytes(hooked->data) + 1, 1);
  assert_non_null(key);
  memcpy(key, hooked->data + HEAD, key_bytes(hooked->data));
  const char *const at = strstr(key, "\nhook: ");
  assert_non_null(at);
  assert_memory_equal(at + 7, text, sizeof(text) - 1);
  free(key);
  shelf_free(&s);
}

/* Another driver is another key. */
static void other_driver(void **state) {
  const rig *const r = *state;
  stub_settings settings;
  assert_false(from_cache(r, folder, NULL, JOB_PLAIN));
  stub->settings(&settings);
  snprintf(settings.driver, sizeof(settings.driver), "another");
  stub->set_settings(&settings);
  assert_false(from_cache(r, folder, NULL, JOB_PLAIN));
  assert_true(from_cache(r, folder, NULL, JOB_PLAIN));
  assert_int_equal(files_in(folder, NULL), 2);
}

/* What must happen with a damaged entry: a build from source, a warning, and the entry is as it was. */
static void check_rebuilt(const rig *r, shelf *s, const unsigned char *whole, size_t bytes) {
  warnings = 0;
  assert_false(from_cache(r, NULL, s, JOB_PLAIN));
  assert_int_equal(warnings, 1);
  assert_int_equal(s->entries[0].bytes, bytes);
  assert_memory_equal(s->entries[0].data, whole, bytes);
}

/* Of the head, the key and the checksum each byte, of the payload some. */
static void damaged(void **state) {
  const rig *const r = *state;
  shelf s;
  size_t bytes = 0, tried = 0;
  memset(&s, 0, sizeof(s));
  assert_false(from_cache(r, NULL, &s, JOB_PLAIN));
  assert_int_equal(s.count, 1);
  bytes = s.entries[0].bytes;
  unsigned char *const whole = malloc(bytes);
  assert_non_null(whole);
  memcpy(whole, s.entries[0].data, bytes);
  const size_t payload = HEAD + key_bytes(whole), sum = bytes - SUM;
  assert_true(payload > HEAD + 200 && payload + 10000 < sum);
  for (size_t at = 0, step; at < bytes; at += step) {
    step = at >= payload && at + 4999 < sum ? 4999 : at > HEAD && at < payload ? 7 : 1;
    s.entries[0].data[at] ^= (unsigned char)(1u << at % 8);
    check_rebuilt(r, &s, whole, bytes);
    ++tried;
  }
  assert_true(tried > HEAD + SUM + 40);
  const size_t lengths[] = {1,           7,           8,       HEAD - 1, HEAD,    HEAD + 1,  HEAD + SUM - 1, HEAD + SUM,
                            payload - 1, payload + 1, payload, sum - 1,  sum + 1, bytes - 1, bytes / 2};
  for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); ++i) {
    s.entries[0].bytes = lengths[i];
    check_rebuilt(r, &s, whole, bytes);
  }
  unsigned char *const longer = malloc(bytes + 1);
  assert_non_null(longer);
  memcpy(longer, whole, bytes);
  longer[bytes] = 0;
  set_entry(&s.entries[0], longer, bytes + 1);
  check_rebuilt(r, &s, whole, bytes);
  free(longer);
  free(whole);
  shelf_free(&s);
}

/* An entry with another key text and a checksum that is right. */
static void other_release(void **state) {
  const rig *const r = *state;
  shelf s;
  memset(&s, 0, sizeof(s));
  assert_false(from_cache(r, NULL, &s, JOB_PLAIN));
  const size_t bytes = s.entries[0].bytes;
  unsigned char *const whole = malloc(bytes), *const data = s.entries[0].data;
  assert_non_null(whole);
  memcpy(whole, data, bytes);
  assert_memory_equal(data + HEAD, "clattn: ", 8);
  data[HEAD + 8] = '7';
  clattni_hash hash;
  clattni_hash_begin(&hash);
  clattni_hash_add(&hash, data, bytes - SUM);
  clattni_hash_end(&hash, data + bytes - SUM);
  check_rebuilt(r, &s, whole, bytes);
  free(whole);
  shelf_free(&s);
}

static void swapped(void **state) {
  const rig *const r = *state;
  static const unsigned jobs[2] = {JOB_PLAIN, JOB_TYPES};
  char file[2][512];
  unsigned char *data[2];
  size_t bytes[2];
  assert_false(from_cache(r, folder, NULL, jobs[0]));
  files_in(folder, file[0]);
  data[0] = read_file(file[0], &bytes[0]);
  (void)unlink(file[0]);
  assert_false(from_cache(r, folder, NULL, jobs[1]));
  files_in(folder, file[1]);
  data[1] = read_file(file[1], &bytes[1]);
  write_file(file[0], data[1], bytes[1]);
  write_file(file[1], data[0], bytes[0]);
  assert_int_equal(chmod(file[0], 0600), 0);
  for (int i = 0; i < 2; ++i) {
    assert_false(from_cache(r, folder, NULL, jobs[i]));
    assert_true(from_cache(r, folder, NULL, jobs[i]));
  }
  assert_int_equal(warnings, 2);
  free(data[0]);
  free(data[1]);
}

/* Folders and files that are not used; plans are made all the same. */
static void bad_places(void **state) {
  const rig *const r = *state;
  char file[512], other[600];
  size_t bytes = 0;
  write_file(folder, "text", 4); /* a file */
  assert_false(from_cache(r, folder, NULL, JOB_PLAIN));
  assert_false(from_cache(r, folder, NULL, JOB_PLAIN));
  assert_int_equal(warnings, 2);
  (void)unlink(folder);
  snprintf(other, sizeof(other), "%s/not/there", root);
  assert_false(from_cache(r, other, NULL, JOB_PLAIN));
  assert_false(from_cache(r, "", NULL, JOB_PLAIN));
  assert_int_equal(warnings, 4);
  for (int mode = 0770; mode <= 0777; mode += 7) { /* others may write */
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_int_equal(chmod(folder, (mode_t)mode), 0);
    assert_false(from_cache(r, folder, NULL, JOB_PLAIN));
    assert_int_equal(files_in(folder, NULL), 0);
    remove_all(folder);
  }
  assert_int_equal(warnings, 6);

  assert_false(from_cache(r, folder, NULL, JOB_PLAIN));
  assert_int_equal(files_in(folder, file), 1);
  assert_int_equal(chmod(file, 0620), 0); /* a file that others may write */
  warnings = 0;
  assert_false(from_cache(r, folder, NULL, JOB_PLAIN));
  assert_int_equal(warnings, 1);
  assert_true(from_cache(r, folder, NULL, JOB_PLAIN)); /* it was replaced */
  assert_int_equal(warnings, 1);
  assert_int_equal(truncate(file, 0), 0);
  assert_false(from_cache(r, folder, NULL, JOB_PLAIN));
  assert_int_equal(warnings, 2);
  assert_true(from_cache(r, folder, NULL, JOB_PLAIN));
  unsigned char *const data = read_file(file, &bytes);
  snprintf(other, sizeof(other), "%s/elsewhere", root);
  write_file(other, data, bytes);
  free(data);
  (void)unlink(file);
  assert_int_equal(symlink(other, file), 0);
  assert_false(from_cache(r, folder, NULL, JOB_PLAIN));
  assert_int_equal(warnings, 3);
  assert_true(from_cache(r, folder, NULL, JOB_PLAIN));
  (void)unlink(other);
  (void)unlink(file);
  assert_int_equal(mkdir(file, 0700), 0); /* a folder in an entry's place: it can't be replaced */
  warnings = 0;
  assert_false(from_cache(r, folder, NULL, JOB_PLAIN));
  assert_int_equal(warnings, 2);
  assert_int_equal(files_in(folder, NULL), 1); /* nothing is left of the attempt */
  if (geteuid() != 0) {                        /* the administrator may read anything */
    (void)rmdir(file);
    assert_int_equal(chmod(folder, 0), 0);
    assert_false(from_cache(r, folder, NULL, JOB_PLAIN));
    assert_int_equal(chmod(folder, 0500), 0);
    assert_false(from_cache(r, folder, NULL, JOB_PLAIN));
    assert_int_equal(chmod(folder, 0700), 0);
    assert_int_equal(files_in(folder, NULL), 0);
  }
}

/* A process of the same number, time and count writes the same entry: its file stays, and both writers succeed. */
static void same_names(void **state) {
  const rig *const r = *state;
  struct stat about;
  char file[512];
  int status = 0;
  const pid_t other = fork();
  assert_true(other >= 0);
  if (other == 0) {
    ends_half_way = 1;
    (void)from_cache(r, folder, NULL, JOB_PLAIN);
    _exit(1);
  }
  assert_int_equal(waitpid(other, &status, 0), other);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  assert_int_equal(files_in(folder, file), 1);
  assert_non_null(strstr(file, ".tmp"));
  assert_int_equal(truncate(file, 100), 0);
  assert_false(from_cache(r, folder, NULL, JOB_PLAIN));
  assert_true(from_cache(r, folder, NULL, JOB_PLAIN));
  assert_int_equal(files_in(folder, NULL), 2);
  assert_int_equal(stat(file, &about), 0);
  assert_int_equal(about.st_size, 100);
  assert_int_equal(warnings, 0);
}

/* A disk that takes half an entry. */
static void full_disk(void **state) {
  const rig *const r = *state;
  struct rlimit before, limit;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  limit = before;
  limit.rlim_cur = 10000;
  void (*const handler)(int) = signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const int found = from_cache(r, folder, NULL, JOB_PLAIN);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  (void)signal(SIGXFSZ, handler);
  assert_false(found);
  assert_int_equal(files_in(folder, NULL), 0);
  assert_int_equal(warnings, 1);
  assert_false(from_cache(r, folder, NULL, JOB_PLAIN));
  assert_true(from_cache(r, folder, NULL, JOB_PLAIN));
}

/* Functions that forget, lie about sizes, or call the library. */
static void functions(void **state) {
  const rig *const r = *state;
  shelf s;
  memset(&s, 0, sizeof(s));
  s.full = 1;
  assert_false(from_cache(r, NULL, &s, JOB_PLAIN));
  assert_false(from_cache(r, NULL, &s, JOB_PLAIN));
  assert_int_equal(s.puts, 2);
  s.full = 0;
  assert_false(from_cache(r, NULL, &s, JOB_PLAIN));
  assert_true(from_cache(r, NULL, &s, JOB_PLAIN));
  assert_int_equal(s.puts, 3);
  const size_t lies[] = {1, HEAD, HEAD + SUM, (size_t)1 << 28, ((size_t)1 << 28) + 1, SIZE_MAX};
  for (size_t i = 0; i < sizeof(lies) / sizeof(*lies); ++i) {
    s.lie = lies[i];
    assert_false(from_cache(r, NULL, &s, JOB_PLAIN));
  }
  s.lie = 0;
  s.shrinks = 1;
  assert_false(from_cache(r, NULL, &s, JOB_PLAIN));
  s.shrinks = 0;
  assert_true(from_cache(r, NULL, &s, JOB_PLAIN));

  clattn_context *const context = open_context(r, NULL, &s);
  s.again = context;
  assert_false(plan_from_cache(context, JOB_TYPES)); /* put makes another plan: no lock is held */
  assert_null(s.again);
  s.entries[1].bytes = 3;
  clattn_context_release(context);
  shelf_free(&s);
}

static void refused_options(void **state) {
  const rig *const r = *state;
  clattn_context_options options;
  clattn_context *context = NULL;
  clattn_error error;
  shelf s;
  memset(&s, 0, sizeof(s));
  clattn_error_init(&error);
  cache_options(&options, NULL, &s);
  options.cache_get = NULL;
  assert_int_equal(clattn_context_create(r->cl, r->device[0], &options, &context, &error), CLATTN_ERROR_NULL_POINTER);
  cache_options(&options, NULL, &s);
  options.cache_put = NULL;
  assert_int_equal(clattn_context_create(r->cl, r->device[0], &options, &context, &error), CLATTN_ERROR_NULL_POINTER);
  cache_options(&options, folder, &s);
  assert_int_equal(clattn_context_create(r->cl, r->device[0], &options, &context, &error), CLATTN_ERROR_VALUE);
  assert_non_null(strstr(error.message, "cache_folder"));
  assert_null(context);
  assert_int_equal(access(folder, F_OK), -1);
}

/* The driver takes back what it gave: every call of loading fails once. */
static void refused_binary(void **state) {
  const rig *const r = *state;
  static const char *const calls[] = {"clCreateProgramWithBinary", "clBuildProgram", "clCreateKernel"};
  assert_false(from_cache(r, folder, NULL, JOB_PLAIN));
  for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); ++i) {
    warnings = 0;
    stub->set_fail(calls[i], 1, CL_INVALID_BINARY);
    assert_false(from_cache(r, folder, NULL, JOB_PLAIN));
    assert_int_equal(stub->failed(), 1);
    assert_int_equal(warnings, 1);
    assert_true(from_cache(r, folder, NULL, JOB_PLAIN));
  }
  /* and it gives none */
  remove_all(folder);
  for (uint64_t n = 1; n <= 4; ++n) {
    warnings = 0;
    stub->set_fail("clGetProgramInfo", n, CL_OUT_OF_RESOURCES);
    assert_false(from_cache(r, folder, NULL, JOB_PLAIN));
    assert_int_equal(stub->failed(), 1);
    assert_int_equal(warnings, 1);
    stub->set_fail(NULL, 0, 0);
  }
  assert_int_equal(files_in(folder, NULL), 0);
}

/* Context, plan and release, with any call failing, or any allocation: nothing is lost, and a status is the call's own
 * or success. */
static void all_failures(void **state) {
  const rig *const r = *state;
  heap memory;
  for (int kind = 0; kind < 4; ++kind) { /* calls, allocations; the entry is not there, is there */
    uint64_t failures = 0, fine = 0;
    for (uint64_t n = 1; n <= MOST_CALLS; ++n) {
      clattn_context_options options;
      clattn_context *context = NULL;
      clattn_plan *plan = NULL;
      job j;
      job_init(&j, JOB_PLAIN);
      remove_all(folder);
      if (kind >= 2)
        assert_false(from_cache(r, folder, NULL, JOB_PLAIN));
      heap_options(&memory, &options);
      options.cache_folder = folder;
      if (kind % 2 == 0)
        stub->set_fail(NULL, n, CL_OUT_OF_RESOURCES);
      else
        atomic_store(&memory.fail_at, (long)n);
      clattn_status status = clattn_context_create(r->cl, r->device[0], &options, &context, NULL);
      if (status == CLATTN_SUCCESS)
        status = clattn_plan_create(context, &j.problem, NULL, &plan, NULL);
      clattn_plan_release(plan);
      clattn_context_release(context);
      const uint64_t failed = kind % 2 == 0 ? stub->failed() : (uint64_t)atomic_load(&memory.failed);
      stub->set_fail(NULL, 0, 0);
      assert_int_equal(atomic_load(&memory.live), 0);
      if (status != CLATTN_SUCCESS)
        assert_int_equal(status, kind % 2 == 0 ? CL_OUT_OF_RESOURCES : CLATTN_ERROR_OUT_OF_MEMORY);
      failures += failed;
      fine += failed && status == CLATTN_SUCCESS;
      if (!failed)
        break;
    }
    print_message("kind %d: %d failures, %d of them without an error\n", kind, (int)failures, (int)fine);
    assert_true(failures > 10 && failures < MOST_CALLS);
    assert_true(fine > 3); /* those of the cache are no errors */
  }
}

static int count_problems(void *user, size_t done, size_t count) {
  assert_true(done <= count);
  return ++*(int *)user < 2;
}

static void prebuild(void **state) {
  const rig *const r = *state;
  clattn_problem problems[3];
  job j;
  int steps = 0;
  static const unsigned jobs[3] = {JOB_PLAIN, JOB_TYPES, JOB_LENGTHS};
  clattn_context *const context = open_context(r, folder, NULL);
  for (int i = 0; i < 3; ++i) {
    job_init(&j, jobs[i]);
    problems[i] = j.problem;
  }
  assert_int_equal(clattn_prebuild(context, problems, 1, NULL, NULL, &j.error), CLATTN_SUCCESS);
  assert_int_equal(files_in(folder, NULL), 1);
  assert_int_equal(clattn_prebuild(context, problems, 3, count_problems, &steps, &j.error), CLATTN_SUCCESS);
  assert_int_equal(steps, 2);
  assert_int_equal(files_in(folder, NULL), 2);
  assert_int_equal(clattn_prebuild(context, NULL, 0, NULL, NULL, &j.error), CLATTN_SUCCESS);
  assert_int_equal(clattn_prebuild(context, NULL, 1, NULL, NULL, &j.error), CLATTN_ERROR_NULL_POINTER);
  assert_int_equal(clattn_prebuild(NULL, problems, 1, NULL, NULL, &j.error), CLATTN_ERROR_NULL_POINTER);
  clattn_context_release(context);
}

/* The stub computes nothing, so the first variant fails: the second time without running. */
static void verdicts(void **state) {
  const rig *const r = *state;
  clattn_error first, second;
  stub_settings settings;
  stub->settings(&settings);
  settings.forbid_blocking = 0;
  stub->set_settings(&settings);
  clattn_error_init(&first);
  clattn_error_init(&second);
  clattn_context *context = open_context(r, folder, NULL);
  assert_int_equal(clattn_self_test(context, &first), CLATTN_ERROR_SELF_TEST);
  clattn_context_release(context);
  const uint64_t launches = stub->calls("clEnqueueNDRangeKernel"), builds = stub->builds();
  assert_true(launches > 0);
  context = open_context(r, folder, NULL);
  assert_int_equal(clattn_self_test(context, &second), CLATTN_ERROR_SELF_TEST);
  assert_int_equal(clattn_self_test(context, NULL), CLATTN_ERROR_SELF_TEST);
  clattn_context_release(context);
  assert_null(strstr(first.message, "kept verdict"));
  assert_non_null(strstr(second.message, "a kept verdict, delete the disk cache to test again: "));
  assert_non_null(strstr(second.message, first.message));
  assert_int_equal(stub->calls("clEnqueueNDRangeKernel"), launches);
  assert_int_equal(stub->builds(), builds);
  remove_all(folder);
  context = open_context(r, folder, NULL);
  assert_int_equal(clattn_self_test(context, &second), CLATTN_ERROR_SELF_TEST);
  clattn_context_release(context);
  assert_string_equal(first.message, second.message);
  const uint64_t again = stub->calls("clEnqueueNDRangeKernel");
  assert_true(again > launches);
  snprintf(settings.driver, sizeof(settings.driver), "another"); /* which may be right */
  stub->set_settings(&settings);
  context = open_context(r, folder, NULL);
  assert_int_equal(clattn_self_test(context, &second), CLATTN_ERROR_SELF_TEST);
  clattn_context_release(context);
  assert_true(stub->calls("clEnqueueNDRangeKernel") > again);

  /* a verdict counts for one revision of the host code */
  shelf s;
  char revision[32];
  size_t found = 0;
  memset(&s, 0, sizeof(s));
  const int length = snprintf(revision, sizeof(revision), "self-test %d of ", CLATTNI_SELF_TEST_REVISION);
  context = open_context(r, NULL, &s);
  assert_int_equal(clattn_self_test(context, &second), CLATTN_ERROR_SELF_TEST);
  clattn_context_release(context);
  for (size_t i = 0; i < s.count; ++i)
    found += memcmp(s.entries[i].data + HEAD, revision, (size_t)length) == 0;
  assert_true(found > 0);
  shelf_free(&s);
}

/* ---- several processes ---- */

static const char *program;

static int child(const char *path) {
  void *state = NULL;
  if (rig_setup(&state) != 0)
    return 1;
  for (int i = 0; i < ROUNDS; ++i)
    (void)from_cache(state, path, NULL, i % 2 ? JOB_PLAIN : JOB_TYPES);
  return rig_teardown(&state) != 0;
}

static void one_of_many(void **state) {
  (void)state;
  assert_int_equal(child(folder), 0);
}

/* They write and read the same entries, while somebody damages them. */
static void processes(void **state) {
  const rig *const r = *state;
  pid_t children[CHILDREN];
  int running = CHILDREN;
  char file[512];
  for (int i = 0; i < CHILDREN; ++i) {
    children[i] = fork();
    assert_true(children[i] >= 0);
    if (children[i] == 0) {
      execl(program, program, "child", folder, (char *)NULL);
      _exit(127);
    }
  }
  for (unsigned turn = 0; running > 0; ++turn) {
    int status = 0;
    const pid_t ended = waitpid(-1, &status, WNOHANG);
    assert_true(ended >= 0);
    if (ended > 0) {
      assert_true(WIFEXITED(status));
      assert_int_equal(WEXITSTATUS(status), 0);
      --running;
    }
    if (files_in(folder, file) > 0)
      (void)(turn % 3 == 0 ? unlink(file) : truncate(file, 3000 * (turn % 3)));
  }
  for (int i = 0; i < 2; ++i)
    (void)from_cache(r, folder, NULL, i ? JOB_PLAIN : JOB_TYPES);
  assert_true(from_cache(r, folder, NULL, JOB_PLAIN) && from_cache(r, folder, NULL, JOB_TYPES));
  assert_true(files_in(folder, NULL) == 2); /* no temporary file is left */
}

int main(int argc, char **argv) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, cache_setup, rig_teardown)
  const struct CMUnitTest tests[] = {TEST(hit_and_miss),   TEST(hooks),         TEST(hook_key),  TEST(other_driver),
                                     TEST(damaged),        TEST(other_release), TEST(swapped),   TEST(bad_places),
                                     TEST(same_names),     TEST(full_disk),     TEST(functions), TEST(refused_options),
                                     TEST(refused_binary), TEST(all_failures),  TEST(prebuild),  TEST(verdicts),
                                     TEST(processes)};
  const struct CMUnitTest alone[] = {cmocka_unit_test(one_of_many)};
  program = argv[0];
  if (!use_open(1))
    return 2;
  if (argc == 3 && strcmp(argv[1], "child") == 0) {
    snprintf(folder, sizeof(folder), "%s", argv[2]);
    return cmocka_run_group_tests_name("one of many processes", alone, NULL, NULL) != 0;
  }
  if (argc != 1 || mkdtemp(root) == NULL)
    return 2;
  const int failed = cmocka_run_group_tests_name("disk cache", tests, NULL, NULL);
  remove_all(folder);
  remove_all(root);
  return failed != 0;
}
