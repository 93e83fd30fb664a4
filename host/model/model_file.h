/* SPDX-License-Identifier: Apache-2.0 */
/* Files of a model folder in memory.  model_file.c is the one file of this folder with operating-system calls. */
#ifndef CLATTN_MODEL_FILE_H
#define CLATTN_MODEL_FILE_H

#include <stddef.h>

#include "model_error.h"

typedef struct model_file {
  const unsigned char *bytes; /* read only; NULL: there is no such file */
  size_t count;
  void *mapping; /* private */
} model_file;

/* Maps a regular file.  A file that is not there is an error, but with `optional` set it is a success with bytes NULL.
 * On failure *out is all zero.  The file must not be made shorter while it is mapped. */
int model_file_map(const char *path, int optional, model_file *out, model_error *error);
/* Clears *file; NULL and an all-zero struct are accepted. */
void model_file_unmap(model_file *file);

/* folder/name, malloc'ed; NULL when there is no memory. */
char *model_path(const char *folder, const char *name, model_error *error);

#endif
