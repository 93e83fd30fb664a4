/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "outputs.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"

/* What a path will name: the file itself, or the folder and the name of a file to come. */
typedef struct place {
  int exists, known;
  dev_t device;
  ino_t inode;
  const char *name;
} place;

static place find_place(const char *path) {
  place found = {0, 0, 0, 0, NULL};
  struct stat info;
  char folder[4096];
  const char *slash = strrchr(path, '/');
  if (stat(path, &info) == 0) {
    found.exists = found.known = 1;
  } else {
    const size_t n = slash != NULL ? (size_t)(slash - path) + 1 : 0;
    if (n >= sizeof folder)
      return found;
    memcpy(folder, path, n);
    folder[n] = 0;
    found.name = slash != NULL ? slash + 1 : path;
    found.known = stat(n > 0 ? folder : ".", &info) == 0;
  }
  found.device = info.st_dev;
  found.inode = info.st_ino;
  return found;
}

static int same_place(const char *a, const char *b) {
  const place first = find_place(a), second = find_place(b);
  if (!first.known || !second.known || first.exists != second.exists)
    return strcmp(a, b) == 0;
  return first.device == second.device && first.inode == second.inode &&
         (first.exists || strcmp(first.name, second.name) == 0);
}

int cli_files_begin(cli_files *files, const char *const *inputs, size_t input_count) {
  char message[512];
  for (int i = 0; i < CLI_MAX_FILES; i++) {
    const cli_file *file = &files->file[i];
    if (file->path == NULL)
      continue;
    for (int j = 0; j < i; j++) {
      if (files->file[j].path != NULL && same_place(file->path, files->file[j].path))
        return cli_fail(CLI_USAGE, "--%s and --%s name the same file %s", files->file[j].option, file->option,
                        file->path);
    }
    for (size_t j = 0; j < input_count; j++) {
      if (inputs[j] != NULL && same_place(file->path, inputs[j]))
        return cli_fail(CLI_USAGE, "--%s %s would overwrite an input", file->option, file->path);
    }
  }
  for (int i = 0; i < CLI_MAX_FILES; i++) {
    cli_file *file = &files->file[i];
    if (file->path == NULL)
      continue;
    cli_signals_hold();
    file->begun = clattn_npy_begin(file->path, &file->writer, message, sizeof message) == 0;
    if (file->begun)
      cli_signals_remember(file->writer.temporary);
    cli_signals_release();
    if (!file->begun)
      return cli_fail(CLI_FAILED, "--%s: %s", file->option, message);
  }
  return CLI_OK;
}

int cli_files_put(cli_file *file, const char *type, int rank, const int64_t *shape, const int64_t *stride,
                  const void *data) {
  char message[512];
  const size_t element = clattn_npy_type_bytes(type);
  char *packed = NULL;
  int64_t count = 1, compact = 1;
  int is_compact = 1, code = CLI_OK;
  for (int axis = rank - 1; axis >= 0; axis--) {
    is_compact &= shape[axis] == 1 || stride[axis] == compact;
    compact *= shape[axis];
    count *= shape[axis];
  }
  if (!is_compact && count > 0) {
    int64_t at[4] = {0, 0, 0, 0};
    packed = malloc((size_t)count * element);
    if (packed == NULL)
      return cli_fail_memory();
    for (int64_t i = 0; i < count; i++) {
      int64_t offset = 0;
      for (int axis = 0; axis < rank; axis++)
        offset += at[axis] * stride[axis];
      memcpy(packed + (size_t)i * element, (const char *)data + (size_t)offset * element, element);
      for (int axis = rank - 1; axis >= 0 && ++at[axis] == shape[axis]; axis--)
        at[axis] = 0;
    }
  }
  file->type = type;
  file->rank = rank;
  memcpy(file->shape, shape, (size_t)rank * sizeof *shape);
  if (clattn_npy_put(&file->writer, type, rank, shape, packed != NULL ? packed : data, message, sizeof message) != 0)
    code = cli_fail(CLI_FAILED, "--%s: %s", file->option, message);
  free(packed);
  return code;
}

int cli_files_put_bytes(cli_file *file, const char *type, const void *data, size_t bytes) {
  char message[512];
  if (clattn_npy_put_bytes(&file->writer, data, bytes, message, sizeof message) != 0)
    return cli_fail(CLI_FAILED, "--%s: %s", file->option, message);
  file->type = type;
  return CLI_OK;
}

int cli_files_commit(cli_files *files) {
  char message[512];
  int code = CLI_OK;
  /* A signal between two renames would leave one file new and one old. */
  cli_signals_hold();
  for (int i = 0; i < CLI_MAX_FILES && code == CLI_OK; i++) {
    cli_file *file = &files->file[i];
    if (file->begun && clattn_npy_keep_old(&file->writer, message, sizeof message) != 0)
      code = cli_fail(CLI_FAILED, "--%s: %s", file->option, message);
  }
  for (int i = 0; i < CLI_MAX_FILES && code == CLI_OK; i++) {
    cli_file *file = &files->file[i];
    if (!file->begun)
      continue;
    cli_signals_forget(file->writer.temporary);
    if (clattn_npy_commit(&file->writer, message, sizeof message) != 0)
      code = cli_fail(CLI_FAILED, "--%s: %s", file->option, message);
  }
  if (code != CLI_OK) {
    int left = 0;
    for (int i = 0; i < CLI_MAX_FILES; i++) {
      cli_file *file = &files->file[i];
      if (file->writer.committed && clattn_npy_undo(&file->writer, message, sizeof message) != 0) {
        cli_fail(code, "--%s: %s", file->option, message);
        left++;
      }
    }
    if (left == 0) /* the report came first and said otherwise */
      cli_fail(code, "no output was written");
  }
  /* The second names go before a signal can come. */
  cli_files_discard(files);
  cli_signals_release();
  return code;
}

void cli_files_discard(cli_files *files) {
  cli_signals_hold();
  for (int i = 0; i < CLI_MAX_FILES; i++) {
    cli_file *file = &files->file[i];
    if (!file->begun)
      continue;
    if (file->writer.temporary != NULL)
      cli_signals_forget(file->writer.temporary);
    clattn_npy_discard(&file->writer);
    file->begun = 0;
  }
  cli_signals_release();
}
