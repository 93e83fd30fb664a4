/* SPDX-License-Identifier: Apache-2.0 */
/* A run as a table for people.  Rows can be printed as they come. */
#ifndef CLATTN_BENCH_TABLE_H
#define CLATTN_BENCH_TABLE_H

#include <stdio.h>

#include "row.h"

typedef struct bench_table {
  FILE *out;
  int shape_columns, variant_columns;
  char suite[BENCH_NAME_BYTES]; /* of the last row */
  int rows;                     /* printed so far */
  int timed, by_events, cold;   /* how the first timed row was measured: others that differ say so */
} bench_table;

/* Prints the header.  The columns fit these shapes' names (rows of other shapes are printed all the same) and the names
 * of all variants. */
void bench_table_begin(bench_table *table, FILE *out, const bench_shape *shapes, size_t count);
/* A row, with its suite before it where that changes.  Skipped rows wait for the end. */
void bench_table_row(bench_table *table, const bench_row *row);
/* What was skipped and why, what the columns mean, and how much there was of what. */
void bench_table_end(bench_table *table, const bench_run *run);
/* All of it. */
void bench_table_print(FILE *out, const bench_run *run);

/* "1.234 ms": four digits and a unit. */
char *bench_time_text(int64_t ns, char *text, size_t capacity);
/* Terminal columns of a text, and the text padded to them; control characters are shown as '?'. */
int bench_columns(const char *text);
void bench_pad(FILE *out, const char *text, int columns);

#endif
