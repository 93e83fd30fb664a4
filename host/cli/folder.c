/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

int cli_folder_plain_name(const char *name) {
  const size_t length = strlen(name);
  if (length == 0 || length >= CLI_FOLDER_NAME_BYTES || name[0] == '.' || name[0] == '-')
    return 0;
  for (const char *c = name; *c != 0; c++)
    if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') || *c == '-' || *c == '_' ||
          *c == '.'))
      return 0;
  return 1;
}

void cli_folder_hash(const void *data, size_t bytes, char hash[CLI_FOLDER_HASH_TEXT]) {
  const unsigned char *at = data;
  uint64_t value = UINT64_C(0xcbf29ce484222325);
  for (size_t i = 0; i < bytes; i++)
    value = (value ^ at[i]) * UINT64_C(0x100000001b3);
  snprintf(hash, CLI_FOLDER_HASH_TEXT, "%016" PRIx64, value);
}

/* ---- folders ---- */

static int is_empty(int handle, int *empty) {
  const int copy = dup(handle);
  DIR *all = copy >= 0 ? fdopendir(copy) : NULL;
  if (all == NULL) {
    if (copy >= 0)
      close(copy);
    return 0;
  }
  *empty = 1;
  errno = 0;
  for (const struct dirent *entry; (entry = readdir(all)) != NULL;)
    *empty &= strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
  const int fine = errno == 0;
  closedir(all);
  return fine;
}

/* Takes the handle, also on failure. */
static int take_folder(const char *path, int handle, int made, cli_folder *out) {
  memset(out, 0, sizeof *out);
  out->path = strdup(path);
  out->handle = handle;
  out->made = made;
  if (out->path != NULL)
    return CLI_OK;
  close(handle);
  return cli_fail_memory();
}

static int make(const char *option, const char *path, cli_folder *out) {
  int empty = 0;
  memset(out, 0, sizeof *out);
  const int made = mkdir(path, 0777) == 0;
  if (!made && errno != EEXIST)
    return cli_fail(CLI_USAGE, "--%s: %s: the folder can't be made: %s", option, path, strerror(errno));
  const int handle = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (handle < 0)
    return cli_fail(CLI_USAGE, "--%s: %s: it is no folder that can be used: %s", option, path, strerror(errno));
  const int code = take_folder(path, handle, made, out);
  if (code != CLI_OK)
    return code;
  if (!is_empty(handle, &empty) || !empty) {
    cli_folder_close(out);
    return cli_fail(CLI_USAGE, "--%s: %s: the folder is not empty; it must be new, or empty", option, path);
  }
  return CLI_OK;
}

int cli_folder_make(const char *option, const char *path, cli_folder *out) {
  cli_signals_hold();
  const int code = make(option, path, out);
  if (code == CLI_OK)
    cli_signals_remember_folder(out);
  cli_signals_release();
  return code;
}

static int make_in(const cli_folder *parent, const char *name, cli_folder *out) {
  const size_t room = strlen(parent->path) + strlen(name) + 2;
  memset(out, 0, sizeof *out);
  char *path = malloc(room);
  if (path == NULL)
    return cli_fail_memory();
  snprintf(path, room, "%s/%s", parent->path, name);
  int code = CLI_OK, handle = -1;
  if (mkdirat(parent->handle, name, 0777) != 0)
    code = cli_fail(CLI_FAILED, "%s: the folder can't be made: %s", path, strerror(errno));
  if (code == CLI_OK)
    handle = openat(parent->handle, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (code == CLI_OK && handle < 0)
    code = cli_fail(CLI_FAILED, "%s: the folder can't be opened: %s", path, strerror(errno));
  if (code == CLI_OK)
    code = take_folder(path, handle, 1, out);
  free(path);
  return code;
}

int cli_folder_make_in(const cli_folder *parent, const char *name, cli_folder *out) {
  cli_signals_hold();
  const int code = make_in(parent, name, out);
  if (code == CLI_OK)
    cli_signals_remember_folder(out);
  cli_signals_release();
  return code;
}

void cli_folder_keep(const cli_folder *folder) {
  cli_signals_forget_folder(folder);
}

int cli_folder_open(const char *path, cli_folder *out) {
  memset(out, 0, sizeof *out);
  const int handle = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (handle < 0)
    return cli_fail(CLI_USAGE, "%s: the folder can't be opened: %s", path, strerror(errno));
  return take_folder(path, handle, 0, out);
}

void cli_folder_close(cli_folder *folder) {
  cli_signals_forget_folder(folder);
  if (folder->path != NULL)
    close(folder->handle);
  for (size_t i = 0; i < folder->count; i++)
    free(folder->name[i]);
  free(folder->name);
  free(folder->path);
  memset(folder, 0, sizeof *folder);
}

void cli_folder_remove(cli_folder *folder) {
  for (size_t i = 0; i < folder->count; i++)
    unlinkat(folder->handle, folder->name[i], 0);
  if (folder->path != NULL && folder->made)
    rmdir(folder->path); /* fails where others put something into it, and should */
  cli_folder_close(folder);
}

/* ---- files ---- */

static int add_name(cli_folder *folder, const char *name) {
  if (folder->count == folder->capacity) {
    const size_t capacity = folder->capacity > 0 ? 2 * folder->capacity : 32;
    char **grown = realloc(folder->name, capacity * sizeof *grown);
    if (grown == NULL)
      return 0;
    folder->name = grown;
    folder->capacity = capacity;
  }
  folder->name[folder->count] = strdup(name);
  if (folder->name[folder->count] == NULL)
    return 0;
  folder->count++;
  return 1;
}

/* A signal's handler reads the names. */
static int remember(cli_folder *folder, const char *name) {
  cli_signals_hold();
  const int added = add_name(folder, name);
  cli_signals_release();
  return added;
}

static int write_all(int file, const char *data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t done = write(file, data, bytes < ((size_t)1 << 30) ? bytes : (size_t)1 << 30);
    if (done < 0 && errno != EINTR)
      return 0;
    if (done > 0) {
      data += done;
      bytes -= (size_t)done;
    }
  }
  return 1;
}

int cli_folder_write(cli_folder *folder, const char *name, const void *data, size_t bytes,
                     char hash[CLI_FOLDER_HASH_TEXT]) {
  if (!remember(folder, name))
    return cli_fail_memory();
  const int file = openat(folder->handle, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (file < 0)
    return cli_fail(CLI_FAILED, "%s/%s can't be made: %s", folder->path, name, strerror(errno));
  const int written = write_all(file, data, bytes);
  const int why = errno;
  const int closed = close(file) == 0;
  if (!written || !closed)
    return cli_fail(CLI_FAILED, "%s/%s can't be written: %s", folder->path, name, strerror(written ? errno : why));
  if (hash != NULL)
    cli_folder_hash(data, bytes, hash);
  return CLI_OK;
}

int cli_folder_replace(cli_folder *folder, const char *name, const char *by) {
  if (!remember(folder, name))
    return cli_fail_memory();
  if (renameat(folder->handle, by, folder->handle, name) == 0)
    return CLI_OK;
  return cli_fail(CLI_FAILED, "%s/%s can't be replaced: %s", folder->path, name, strerror(errno));
}

int cli_folder_has(const cli_folder *folder, const char *name) {
  struct stat facts;
  return fstatat(folder->handle, name, &facts, AT_SYMLINK_NOFOLLOW) == 0;
}

static int read_all(int file, char *data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t done = read(file, data, bytes < ((size_t)1 << 30) ? bytes : (size_t)1 << 30);
    if (done == 0)
      errno = EIO; /* it was cut after its size was asked for */
    if (done == 0 || (done < 0 && errno != EINTR))
      return 0;
    if (done > 0) {
      data += done;
      bytes -= (size_t)done;
    }
  }
  return 1;
}

int cli_folder_read(const cli_folder *folder, const char *name, uint64_t least, uint64_t most, char **data,
                    size_t *bytes) {
  struct stat facts;
  int code = CLI_OK;
  char *text = NULL;
  *data = NULL;
  *bytes = 0;
  if (!cli_folder_plain_name(name))
    return cli_fail(CLI_USAGE, "%s: '%.100s' is no plain file name", folder->path, name);
  /* A pipe must not make this wait. */
  const int file = openat(folder->handle, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0)
    return cli_fail(CLI_USAGE, "%s/%s can't be opened%s: %s", folder->path, name,
                    errno == ELOOP ? ", links are not followed" : "", strerror(errno));
  if (fstat(file, &facts) != 0 || !S_ISREG(facts.st_mode))
    code = cli_fail(CLI_USAGE, "%s/%s is no regular file", folder->path, name);
  else if ((uint64_t)facts.st_size < least || (uint64_t)facts.st_size > most)
    code = least == most ? cli_fail(CLI_USAGE, "%s/%s has %" PRIu64 " bytes, the manifest says %" PRIu64, folder->path,
                                    name, (uint64_t)facts.st_size, least)
                         : cli_fail(CLI_USAGE, "%s/%s has %" PRIu64 " bytes; %" PRIu64 " to %" PRIu64 " are read",
                                    folder->path, name, (uint64_t)facts.st_size, least, most);
  else
    text = malloc((size_t)facts.st_size + 1);
  if (code == CLI_OK && text == NULL)
    code = cli_fail_memory();
  if (text != NULL && !read_all(file, text, (size_t)facts.st_size)) {
    code = cli_fail(CLI_FAILED, "%s/%s can't be read: %s", folder->path, name, strerror(errno));
    free(text);
    text = NULL;
  }
  close(file);
  if (text == NULL)
    return code;
  text[facts.st_size] = 0;
  *data = text;
  *bytes = (size_t)facts.st_size;
  return CLI_OK;
}
