/* SPDX-License-Identifier: Apache-2.0 */
#define _XOPEN_SOURCE 700
#include "os_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_ROOM = 4096 };

/* Whether nobody but this user and the administrator could have written it. */
static int is_private(const struct stat *about) {
  return (about->st_uid == geteuid() || about->st_uid == 0) && (about->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

char *clattni_folder_open(const char *folder, const char **why) {
  struct stat about;
  char *path = NULL;
  if (mkdir(folder, S_IRWXU) != 0 && errno != EEXIST) {
    *why = "it can't be made";
    return NULL;
  }
  path = realpath(folder, NULL);
  *why = "it can't be found";
  if (path == NULL || stat(path, &about) != 0)
    goto fail;
  *why = "it is not a folder";
  if (!S_ISDIR(about.st_mode))
    goto fail;
  *why = "others than its owner may write to it, or its owner is another user";
  if (!is_private(&about))
    goto fail;
  *why = "it can't be entered";
  if (access(path, X_OK) != 0)
    goto fail;
  *why = "";
  return path;

fail:
  free(path);
  return NULL;
}

void clattni_path_free(char *path) {
  free(path);
}

static int join(char path[PATH_ROOM], const char *folder, const char *name) {
  const int length = snprintf(path, PATH_ROOM, "%s/%s", folder, name);
  return length > 0 && length < PATH_ROOM;
}

/* Reads until the end, or capacity; the bytes read. */
static size_t read_all(int file, char *data, size_t capacity) {
  size_t done = 0;
  while (done < capacity) {
    const ssize_t part = read(file, data + done, capacity - done);
    if (part > 0)
      done += (size_t)part;
    else if (part == 0 || errno != EINTR)
      break;
  }
  return done;
}

size_t clattni_file_read(const char *folder, const char *name, void *data, size_t capacity) {
  char path[PATH_ROOM];
  struct stat about;
  size_t size = 0;
  if (!join(path, folder, name))
    return 0;
  const int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0)
    return 0;
  if (fstat(file, &about) == 0 && S_ISREG(about.st_mode) && is_private(&about) && about.st_size > 0) {
    const size_t whole = (size_t)about.st_size, wanted = whole < capacity ? whole : capacity;
    size = read_all(file, data, wanted) == wanted ? whole : 0;
  }
  (void)close(file);
  return size;
}

static int write_all(int file, const char *data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t part = write(file, data, bytes);
    if (part > 0) {
      data += part;
      bytes -= (size_t)part;
    } else if (part == 0 || errno != EINTR) {
      return 0;
    }
  }
  return 1;
}

int clattni_file_write(const char *folder, const char *name, const void *data, size_t bytes) {
  static atomic_uint files_made; /* with the process's number no two writers share a name */
  char path[PATH_ROOM], temporary[PATH_ROOM], temporary_name[128];
  const int length = snprintf(temporary_name, sizeof(temporary_name), "%.70s.%lu-%u.tmp", name, (unsigned long)getpid(),
                              atomic_fetch_add(&files_made, 1));
  if (length <= 0 || !join(path, folder, name) || !join(temporary, folder, temporary_name))
    return 0;
  /* what is there under this name was left by a process that ended half way */
  (void)unlink(temporary);
  const int file = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
  if (file < 0)
    return 0;
  int done = write_all(file, data, bytes);
  done = close(file) == 0 && done;
  done = done && rename(temporary, path) == 0;
  if (!done)
    (void)unlink(temporary);
  return done;
}
