/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of the program: a folder of the test's own and files in it, and the program run there with its exit code
 * and texts.  Needs _XOPEN_SOURCE 700. */
#ifndef CLATTN_CLI_PROGRAM_H
#define CLATTN_CLI_PROGRAM_H

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "npy.h"

extern char **environ;

static char folder[] = "/tmp/clattn-cli-XXXXXX";
static char message[512];
static char out[1 << 16], err[1 << 16]; /* of the last command */
static unsigned char kept[512];         /* what kept.npy must hold after every failure */
static size_t kept_bytes;

/* ---- files ---- */

static inline size_t read_text(const char *path, char *text, size_t capacity) {
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  const size_t bytes = fread(text, 1, capacity - 1, file);
  text[bytes] = 0;
  fclose(file);
  return bytes;
}

static inline void write_text(const char *path, const char *text) {
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  fputs(text, file);
  assert_int_equal(fclose(file), 0);
}

static inline void write_npy(const char *path, const char *type, int rank, const int64_t *shape, const void *data) {
  if (clattn_npy_write(path, type, rank, shape, data, message, sizeof message) != 0)
    fail_msg("%s", message);
}

/* A file as other writers make it: this header, then data. */
static inline void write_raw_npy(const char *path, const char *header, const void *data, size_t bytes) {
  unsigned char start[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0};
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  start[8] = (unsigned char)strlen(header);
  fwrite(start, 1, sizeof start, file);
  fputs(header, file);
  fwrite(data, 1, bytes, file);
  assert_int_equal(fclose(file), 0);
}

/* Names in the folder that begin with, or contain, a text. */
static inline int count_files(const char *part) {
  DIR *all = opendir(".");
  struct dirent *entry;
  int count = 0;
  assert_non_null(all);
  while ((entry = readdir(all)) != NULL)
    count += strstr(entry->d_name, part) != NULL;
  closedir(all);
  return count;
}

/* The file's shape and its numbers within 1e-5. */
static inline void expect(const char *path, int rank, const int64_t *shape, const double *want) {
  clattn_npy npy;
  int64_t count = 1;
  if (clattn_npy_open(path, &npy, message, sizeof message) != 0)
    fail_msg("%s", message);
  assert_string_equal(npy.type, "f4");
  assert_int_equal(npy.rank, rank);
  for (int axis = 0; axis < rank; axis++) {
    assert_int_equal(npy.shape[axis], shape[axis]);
    count *= shape[axis];
  }
  for (int64_t i = 0; i < count; i++) {
    const double got = (double)((const float *)npy.data)[i];
    if (got != want[i] && !(fabs(got - want[i]) <= 1e-5))
      fail_msg("%s: number %d is %g, wanted %g", path, (int)i, got, want[i]);
  }
  clattn_npy_close(&npy);
}

/* Small numbers that every run of the test has. */
static inline float next_number(void) {
  static uint32_t state = 1;
  state = state * 1664525u + 1013904223u;
  return (float)((int)(state >> 8 & 0xfff) - 2048) / 1024.0f;
}

static inline void fill(float *data, size_t count) {
  for (size_t i = 0; i < count; i++)
    data[i] = next_number();
}

/* ---- the folder ---- */

/* The program is CLATTN_PROGRAM of the environment, else of the build. */
static inline int enter_folder(void) {
  static char resolved[4096];
  const char *program = getenv("CLATTN_PROGRAM");
#ifdef CLATTN_PROGRAM
  if (program == NULL)
    program = CLATTN_PROGRAM;
#endif
  if (program == NULL || realpath(program, resolved) == NULL || setenv("CLATTN_PROGRAM", resolved, 1) != 0)
    return -1;
  if (mkdtemp(folder) == NULL || chdir(folder) != 0)
    return -1;
  write_npy("kept.npy", "f4", 1, (const int64_t[]){3}, (const float[]){1, 2, 3});
  kept_bytes = read_text("kept.npy", (char *)kept, sizeof kept);
  return 0;
}

static inline int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *where) {
  (void)info;
  (void)kind;
  (void)where;
  return remove(path);
}

static inline int leave_folder(void) {
  return chdir("/") == 0 ? nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS) : -1;
}

/* For cmocka's groups: all tests run in the folder. */
static inline int enter_group(void **state) {
  (void)state;
  return enter_folder();
}

static inline int leave_group(void **state) {
  (void)state;
  return leave_folder();
}

/* ---- running the program ---- */

/* A shell command, whose last word may be the program; its output goes to out.txt and err.txt. */
static inline pid_t start_program(const char *arguments) {
  char command[4096 + 32];
  char *const argv[] = {"sh", "-c", command, NULL};
  pid_t pid = 0;
  snprintf(command, sizeof command, "%s >out.txt 2>err.txt", arguments);
  assert_int_equal(posix_spawn(&pid, "/bin/sh", NULL, NULL, argv, environ), 0);
  return pid;
}

static inline int wait_for(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0)
    assert_int_equal(errno, EINTR);
  read_text("out.txt", out, sizeof out);
  read_text("err.txt", err, sizeof err);
  if (!WIFEXITED(status))
    fail_msg("killed by signal %d: %s", WTERMSIG(status), err);
  if (strstr(err, "Sanitizer") != NULL || strstr(err, "runtime error") != NULL)
    fail_msg("%s", err);
  assert_int_equal(count_files(".partial-"), 0);
  return WEXITSTATUS(status);
}

/* `environment` is put before the program: "NO_COLOR=1 ". */
static inline int run_with(const char *environment, const char *arguments) {
  char command[4096];
  snprintf(command, sizeof command, "%s exec \"$CLATTN_PROGRAM\" %s", environment, arguments);
  return wait_for(start_program(command));
}

static inline void good(const char *arguments) {
  const int code = run_with("", arguments);
  if (code != 0)
    fail_msg("clattn %s: exit %d: %s", arguments, code, err);
}

static inline void check_kept(const char *arguments) {
  char now[512];
  if (read_text("kept.npy", now, sizeof now) != kept_bytes || memcmp(now, kept, kept_bytes) != 0)
    fail_msg("clattn %s touched its output", arguments);
}

static inline void bad_with(const char *environment, const char *arguments, int want, const char *part) {
  const int code = run_with(environment, arguments);
  if (code != want || strstr(err, part) == NULL)
    fail_msg("clattn %s: exit %d, wanted %d with '%s': %s", arguments, code, want, part, err);
  check_kept(arguments);
}

static inline void bad(const char *arguments, int want, const char *part) {
  bad_with("", arguments, want, part);
}

static inline void says(const char *part) {
  if (strstr(out, part) == NULL)
    fail_msg("no '%s' in: %s", part, out);
}

#endif
