/* SPDX-License-Identifier: Apache-2.0 */
/* The files that a run writes: all or none. */
#ifndef CLATTN_CLI_OUTPUTS_H
#define CLATTN_CLI_OUTPUTS_H

#include "npy.h"

enum { CLI_MAX_FILES = 6 };

typedef struct cli_file {
  const char *option, *path; /* path NULL: not asked for */
  const char *type;          /* of what was put, as in npy.h, or the name of a picture's format */
  int rank;                  /* of what was put */
  int64_t shape[4];
  clattn_npy_writer writer;
  int begun;
} cli_file;

typedef struct cli_files {
  cli_file file[CLI_MAX_FILES];
} cli_files;

/* Opens a temporary file beside every path, so that a place that can't be written is known before the work.  Two
 * outputs in one file, and an output over one of the inputs (NULL entries are skipped), are refused. */
int cli_files_begin(cli_files *files, const char *const *inputs, size_t input_count);
/* Writes numbers of a type of npy.h, whose axes have these strides (elements); compact data is written from where it
 * lies. */
int cli_files_put(cli_file *file, const char *type, int rank, const int64_t *shape, const int64_t *stride,
                  const void *data);
/* The same of contents that are no array; type is the kind of file, for reports ("json"). */
int cli_files_put_bytes(cli_file *file, const char *type, const void *data, size_t bytes);
/* Puts all in their places; if one can't be, what the others replaced is put back. */
int cli_files_commit(cli_files *files);
/* Removes what was not committed. */
void cli_files_discard(cli_files *files);

#endif
