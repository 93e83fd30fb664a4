/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of all runs in the order of the report. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "report_page.h"

int report_timed(const bench_row *row) {
  return row->status == BENCH_OK && row->median_ns > 0;
}

int report_doubtful(const bench_row *row) {
  return row->throttled || row->clock_suspect;
}

int report_colour(const report_runs *runs, const report_row *row) {
  const size_t number = row->variant + row->variant / REPORT_COLOURS; /* another pair with the mark each time */
  return runs->count > 1 ? row->run : (int)(number % REPORT_COLOURS);
}

int report_mark(const report_row *row) {
  return (int)(row->variant % REPORT_MARKS);
}

char report_letter(int run) {
  return (char)('A' + run);
}

/* The number of a name, which joins the others when it is new. */
static size_t number_of(const char **names, size_t *count, const char *name) {
  size_t i = 0;
  while (i < *count && strcmp(names[i], name) != 0)
    i++;
  if (i == *count)
    names[(*count)++] = name;
  return i;
}

static size_t shape_of(report_runs *runs, const bench_shape *shape) {
  size_t i = 0;
  for (; i < runs->shape_count; i++) {
    const bench_shape *other = runs->shape[i];
    if (strcmp(other->line, shape->line) == 0 && strcmp(other->name, shape->name) == 0 &&
        strcmp(other->suite, shape->suite) == 0)
      return i;
  }
  runs->shape[runs->shape_count++] = shape;
  return i;
}

static int compare_numbers(size_t a, size_t b) {
  return (a > b) - (a < b);
}

static int compare_rows(const void *first, const void *second) {
  const report_row *a = first, *b = second;
  if (a->suite != b->suite)
    return compare_numbers(a->suite, b->suite);
  if (a->shape != b->shape)
    return compare_numbers(a->shape, b->shape);
  return compare_numbers(a->order, b->order);
}

static int compare_rows_of_many(const void *first, const void *second) {
  const report_row *a = first, *b = second;
  if (a->suite != b->suite || a->shape != b->shape)
    return compare_rows(first, second);
  if (a->variant != b->variant)
    return compare_numbers(a->variant, b->variant);
  return a->run != b->run ? (a->run > b->run) - (a->run < b->run) : compare_numbers(a->order, b->order);
}

int report_runs_make(const bench_run *const *runs, int count, const char *const *names, report_runs *out) {
  report_runs all = {.run = runs, .name = names, .count = count};
  size_t rows = 0;
  for (int run = 0; run < count; run++)
    rows += runs[run]->count;
  all.row = calloc(rows + 1, sizeof *all.row);
  all.variant = calloc(rows + 1, sizeof *all.variant);
  all.shape = calloc(rows + 1, sizeof *all.shape);
  all.suite = calloc(rows + 1, sizeof *all.suite);
  all.problem = calloc(rows + 1, sizeof *all.problem);
  if (all.row == NULL || all.variant == NULL || all.shape == NULL || all.suite == NULL || all.problem == NULL) {
    report_runs_release(&all);
    *out = all;
    return cli_fail_memory();
  }
  for (int run = 0; run < count; run++) {
    for (size_t i = 0; i < runs[run]->count; i++) {
      report_row *row = &all.row[all.row_count++];
      row->row = &runs[run]->rows[i];
      row->run = run;
      row->order = i;
      row->suite = number_of(all.suite, &all.suite_count, row->row->shape.suite);
      row->problem = number_of(all.problem, &all.problem_count, row->row->shape.line);
      row->shape = shape_of(&all, &row->row->shape);
      row->variant = number_of(all.variant, &all.variant_count, row->row->variant);
    }
  }
  qsort(all.row, all.row_count, sizeof *all.row, count > 1 ? compare_rows_of_many : compare_rows);
  *out = all;
  return CLI_OK;
}

void report_runs_release(report_runs *runs) {
  if (runs == NULL)
    return;
  free(runs->row);
  free(runs->variant);
  free(runs->shape);
  free(runs->suite);
  free(runs->problem);
  memset(runs, 0, sizeof *runs);
}
