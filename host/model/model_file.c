/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "model_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int fail(const char *path, const char *rule, model_error *error) {
  return model_fail(error, "%s: %s", model_show_path(path).text, rule);
}

static int fail_by_number(const char *path, const char *what, int number, model_error *error) {
  return model_fail(error, "%s: can't be %s: %s", model_show_path(path).text, what, strerror(number));
}

int model_file_map(const char *path, int optional, model_file *out, model_error *error) {
  struct stat info;
  int result = -1;
  memset(out, 0, sizeof *out);
  /* O_NONBLOCK: a FIFO is refused below and must not block here. */
  const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) {
    if (optional && (errno == ENOENT || errno == ENOTDIR))
      return 0;
    return fail_by_number(path, "opened", errno, error);
  }
  if (fstat(fd, &info) != 0) {
    fail_by_number(path, "read", errno, error);
    goto done;
  }
  if (!S_ISREG(info.st_mode)) {
    fail(path, "is not a regular file", error);
    goto done;
  }
  if (info.st_size < 0 || (uintmax_t)info.st_size > SIZE_MAX / 2) {
    fail(path, "is too large to be mapped", error);
    goto done;
  }
  if (info.st_size == 0) { /* mmap refuses it */
    out->bytes = (const unsigned char *)"";
    result = 0;
    goto done;
  }
  void *mapping = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (mapping == MAP_FAILED) {
    fail_by_number(path, "mapped", errno, error);
    goto done;
  }
  out->bytes = out->mapping = mapping;
  out->count = (size_t)info.st_size;
  result = 0;
done:
  close(fd);
  return result;
}

void model_file_unmap(model_file *file) {
  if (file == NULL)
    return;
  if (file->mapping != NULL)
    munmap(file->mapping, file->count);
  memset(file, 0, sizeof *file);
}

char *model_path(const char *folder, const char *name, model_error *error) {
  const size_t length = strlen(folder), bytes = length + strlen(name) + 2;
  const int ends = length > 0 && folder[length - 1] == '/';
  char *path = malloc(bytes);
  if (path == NULL)
    model_fail(error, "%s: no memory for a path of %zu bytes", model_show_path(folder).text, bytes);
  else
    snprintf(path, bytes, "%s%s%s", folder, ends || length == 0 ? "" : "/", name);
  return path;
}
