/* SPDX-License-Identifier: Apache-2.0 */
#define _XOPEN_SOURCE 700
#include "os_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PATH_ROOM = 4096, MOST_NAMES = 100 /* tried for a temporary file */ };
static const char not_private[] = "others than its owner may write to it, or its owner is another user";

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
  *why = not_private;
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

size_t clattni_file_read(const char *folder, const char *name, void *data, size_t capacity, const char **why) {
  char path[PATH_ROOM];
  struct stat about;
  size_t size = 0;
  *why = "its path is too long";
  if (!join(path, folder, name))
    return 0;
  const int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) {
    *why = errno == ENOENT ? NULL : errno == ELOOP ? "it is a link" : "it can't be opened";
    return 0;
  }
  if (fstat(file, &about) != 0) {
    *why = "it can't be read";
  } else if (!S_ISREG(about.st_mode)) {
    *why = "it is not a plain file";
  } else if (!is_private(&about)) {
    *why = not_private;
  } else if (about.st_size <= 0) {
    *why = "it is empty";
  } else {
    const size_t whole = (size_t)about.st_size, wanted = whole < capacity ? whole : capacity;
    size = read_all(file, data, wanted) == wanted ? whole : 0;
    *why = size > 0 ? NULL : "it can't be read";
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

/* A new file beside the one that is to be written, and its path in `temporary`; -1 if none can be made.  Only O_EXCL
 * makes the name this writer's own: in another container that shares the folder another process may have the same
 * number.  What is there under a name is some writer's, so the next name is tried; the time makes that rare. */
static int make_temporary(const char *folder, const char *name, char temporary[PATH_ROOM]) {
  static atomic_uint files_made;
  char temporary_name[160];
  int file = -1;
  for (int tries = 0; tries < MOST_NAMES && file < 0; ++tries) {
    struct timespec now = {0, 0};
    (void)timespec_get(&now, TIME_UTC);
    const int length = snprintf(temporary_name, sizeof(temporary_name), "%.70s.%lu-%ld-%u.tmp", name,
                                (unsigned long)getpid(), now.tv_nsec, atomic_fetch_add(&files_made, 1));
    if (length <= 0 || !join(temporary, folder, temporary_name))
      return -1;
    file = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
    if (file < 0 && errno != EEXIST)
      return -1;
  }
  return file;
}

int clattni_file_write(const char *folder, const char *name, const void *data, size_t bytes) {
  char path[PATH_ROOM], temporary[PATH_ROOM];
  if (!join(path, folder, name))
    return 0;
  const int file = make_temporary(folder, name, temporary);
  if (file < 0)
    return 0;
  int done = write_all(file, data, bytes);
  done = close(file) == 0 && done;
  done = done && rename(temporary, path) == 0;
  if (!done)
    (void)unlink(temporary);
  return done;
}

/* What a mark that is there means; *gone: it was cleared while this looked. */
static clattni_mark_state look_at_mark(int file, int *gone) {
  struct stat about;
  *gone = 0;
  /* Shared: others who look don't keep each other from seeing that nobody has it. */
  if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode) || !is_private(&about) || flock(file, LOCK_SH | LOCK_NB) != 0)
    return CLATTNI_MARK_NONE;
  *gone = fstat(file, &about) != 0 || about.st_nlink == 0; /* it is cleared before it is unlocked */
  return *gone ? CLATTNI_MARK_NONE : CLATTNI_MARK_LEFT;
}

clattni_mark_state clattni_mark_set(const char *folder, const char *name, int *file) {
  char path[PATH_ROOM], temporary[PATH_ROOM];
  *file = -1;
  if (!join(path, folder, name))
    return CLATTNI_MARK_NONE;
  for (int tries = 0; tries < MOST_NAMES; ++tries) {
    const int there = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (there >= 0) {
      int gone = 0;
      const clattni_mark_state state = look_at_mark(there, &gone);
      (void)close(there);
      if (!gone)
        return state;
    } else if (errno != ENOENT) {
      return CLATTNI_MARK_NONE;
    }
    /* It is locked before it has its name: nobody finds it without a lock. */
    const int own = make_temporary(folder, name, temporary);
    if (own < 0)
      return CLATTNI_MARK_NONE;
    const int locked = flock(own, LOCK_EX | LOCK_NB) == 0;
    const int named = locked && link(temporary, path) == 0, again = locked && !named && errno == EEXIST;
    (void)unlink(temporary);
    if (named) {
      *file = own;
      return CLATTNI_MARK_SET;
    }
    (void)close(own);
    if (!again)
      return CLATTNI_MARK_NONE;
  }
  return CLATTNI_MARK_NONE;
}

void clattni_mark_clear(const char *folder, const char *name, int file) {
  char path[PATH_ROOM];
  if (file < 0)
    return;
  if (join(path, folder, name))
    (void)unlink(path);
  (void)close(file);
}
