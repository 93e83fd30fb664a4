/* SPDX-License-Identifier: Apache-2.0 */
/* Matrices as text: "1 0; 0 1" on the command line, .csv and .txt files. */
#ifndef CLATTN_CLI_TEXT_H
#define CLATTN_CLI_TEXT_H

#include <stddef.h>
#include <stdint.h>

typedef enum cli_numbers { CLI_FLOATS, CLI_INTEGERS } cli_numbers;

typedef struct cli_matrix {
  int64_t rows, columns;
  void *data; /* malloc'ed, row after row: float, or int64_t for CLI_INTEGERS */
} cli_matrix;

/* Values are separated by spaces, tabs or single commas; rows by line ends, inline also by ';'.  Empty rows and, in
 * files, what follows a '#' are skipped.  All rows must have the same number of values.  Floats are rounded, small ones
 * to 0 too; integers are digits with a sign at most.  `option` is for messages (printed).  Returns the exit code. */
int cli_text_inline(const char *option, const char *text, cli_numbers numbers, cli_matrix *out);
int cli_text_file(const char *option, const char *path, cli_numbers numbers, cli_matrix *out);
/* 1 when the text can only be meant as numbers, not as a file name. */
int cli_text_is_inline(const char *text);

/* The whole file, with a 0 behind it; malloc'ed.  Regular files only. */
int cli_read_file(const char *option, const char *path, char **text, size_t *length);

#endif
