/* SPDX-License-Identifier: Apache-2.0 */
#include "table.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "baseline.h"
#include "picture_unicode.h"
#include "record.h"

enum { CELL_BYTES = 32 };

/* ---- text in columns ---- */

/* What must not reach a terminal, or is no character. */
static int is_shown(uint32_t code) {
  return code >= ' ' && !(code >= 127 && code < 160) && code != CLI_NO_CHARACTER;
}

/* One character as a reader counts, printed when out is not NULL; returns its columns. */
static int take_character(const char **text, FILE *out) {
  const char *const at = *text, *end = at;
  if (!is_shown(cli_utf8_next(&end))) {
    if (out != NULL)
      fputc('?', out);
    *text = end;
    return 1;
  }
  *text = cli_character_end(at);
  if (out != NULL)
    fwrite(at, 1, (size_t)(*text - at), out);
  return cli_character_columns(at);
}

static int take_text(const char *text, FILE *out) {
  int columns = 0;
  while (*text != 0)
    columns += take_character(&text, out);
  return columns;
}

int bench_columns(const char *text) {
  return take_text(text, NULL);
}

void bench_pad(FILE *out, const char *text, int columns) {
  for (int used = take_text(text, out); used < columns; used++)
    fputc(' ', out);
}

/* Four digits, as many of them behind the point as fit. */
static void digits(double value, char text[CELL_BYTES]) {
  snprintf(text, CELL_BYTES, "%.*f", value < 9.9995 ? 3 : value < 99.995 ? 2 : value < 999.95 ? 1 : 0, value);
}

static const char *time_parts(int64_t ns, char number[CELL_BYTES]) {
  static const char *const units[] = {"us", "ms", "s"};
  double value = (double)ns / 1000;
  int unit = 0;
  if (ns < 1000) {
    snprintf(number, CELL_BYTES, "%" PRId64, ns);
    return "ns";
  }
  for (; unit < 2 && value >= 999.95; unit++)
    value /= 1000;
  digits(value, number);
  return units[unit];
}

char *bench_time_text(int64_t ns, char *text, size_t capacity) {
  char number[CELL_BYTES];
  const char *unit = time_parts(ns, number);
  snprintf(text, capacity, "%s %s", number, unit);
  return text;
}

static int has_time(const bench_row *row) {
  return row->status == BENCH_OK && row->samples > 0;
}

/* ---- rows ---- */

static int wider(int columns, const char *text) {
  const int own = bench_columns(text);
  return own > columns ? own : columns;
}

static void begin(bench_table *table, FILE *out) {
  memset(table, 0, sizeof *table);
  table->out = out;
  table->shape_columns = 5;
  table->variant_columns = 7;
}

static void print_header(const bench_table *table) {
  bench_pad(table->out, "shape", table->shape_columns + 4);
  bench_pad(table->out, "variant", table->variant_columns);
  fprintf(table->out, " %9s %9s %8s %15s  %-14s  notes\n", "median", "minimum", "spread", "rate  ", "% of bound");
}

void bench_table_begin(bench_table *table, FILE *out, const bench_shape *shapes, size_t count) {
  begin(table, out);
  for (uint32_t i = 0; clattn_variant_name(i) != NULL; i++)
    table->variant_columns = wider(table->variant_columns, clattn_variant_name(i));
  for (size_t i = 0; i < count; i++)
    table->shape_columns = wider(table->shape_columns, shapes[i].name);
  print_header(table);
}

static void print_times(FILE *out, const bench_row *row) {
  char number[CELL_BYTES];
  const int memory = row->percent_of_bound > 0 && row->bound == BENCH_BOUND_MEMORY;
  const char *unit = time_parts(row->median_ns, number);
  fprintf(out, " %6s %-2s", number, unit);
  unit = time_parts(row->minimum_ns, number);
  fprintf(out, " %6s %-2s %6.1f %%", number, unit, 100 * row->spread);
  digits((memory ? row->bytes_per_second : row->flops_per_second) * 1e-9, number);
  fprintf(out, " %7s %-7s", number, memory ? "GB/s" : "GFLOP/s");
}

static void bound_text(const bench_row *row, char text[CELL_BYTES]) {
  if (has_time(row) && row->percent_of_bound > 0)
    snprintf(text, CELL_BYTES, "%5.1f %% %s", row->percent_of_bound, bench_bound_word(row->bound));
  else
    snprintf(text, CELL_BYTES, "%5s", "-");
}

static void add_note(char *notes, size_t capacity, const char *note) {
  const size_t n = strlen(notes);
  snprintf(notes + n, capacity - n, "%s%s", n > 0 ? ", " : "", note);
}

static void notes_text(bench_table *table, const bench_row *row, char *notes, size_t capacity) {
  notes[0] = 0;
  if (!has_time(row)) {
    add_note(notes, capacity, row->reason);
    return;
  }
  if (!table->timed) {
    table->timed = 1;
    table->by_events = row->by_events;
    table->cold = row->cold;
  }
  if (row->launches > 1) {
    char text[32];
    snprintf(text, sizeof text, "%d launches", row->launches);
    add_note(notes, capacity, text);
  }
  if (row->throttled)
    add_note(notes, capacity, "throttled");
  if (row->clock_suspect)
    add_note(notes, capacity, "clock?");
  if (row->by_events != table->by_events)
    add_note(notes, capacity, bench_timing_word(row->by_events));
  if (row->cold != table->cold)
    add_note(notes, capacity, bench_inputs_word(row->cold));
}

/* No spaces at a line's end. */
static void print_bound_and_notes(bench_table *table, const bench_row *row) {
  char bound[CELL_BYTES], notes[2 * BENCH_TEXT_BYTES];
  bound_text(row, bound);
  notes_text(table, row, notes, sizeof notes);
  fprintf(table->out, notes[0] != 0 ? "  %-14s  " : "  %s", bound);
  bench_pad(table->out, notes, 0);
  fputc('\n', table->out);
}

static void shape_text(const bench_row *row, char *text, size_t capacity) {
  if (strcmp(row->pass, "forward") == 0)
    snprintf(text, capacity, "%s", row->shape.name);
  else
    snprintf(text, capacity, "%s (%s)", row->shape.name, row->pass);
}

void bench_table_row(bench_table *table, const bench_row *row) {
  char shape[BENCH_NAME_BYTES + sizeof row->pass + 4];
  if (row->status == BENCH_SKIPPED)
    return;
  if (table->rows++ == 0 || strcmp(table->suite, row->shape.suite) != 0) {
    snprintf(table->suite, sizeof table->suite, "%s", row->shape.suite);
    bench_pad(table->out, row->shape.suite[0] != 0 ? row->shape.suite : "command line", 0);
    fputc('\n', table->out);
  }
  shape_text(row, shape, sizeof shape);
  fputs("  ", table->out);
  bench_pad(table->out, shape, table->shape_columns);
  fputs("  ", table->out);
  bench_pad(table->out, row->variant, table->variant_columns);
  if (has_time(row))
    print_times(table->out, row);
  else
    fprintf(table->out, " %9s %9s %8s %15s", row->status == BENCH_WRONG ? "WRONG" : bench_status_word(row->status), "-",
            "-", "-");
  print_bound_and_notes(table, row);
  fflush(table->out); /* who waits sees it, through a pipe too */
}

/* ---- what comes behind the rows ---- */

/* With the reason, which names the option that runs it where there is one. */
static void print_skipped(FILE *out, const bench_table *table, const bench_run *run) {
  char shape[BENCH_NAME_BYTES + sizeof run->rows[0].pass + 4];
  int told = 0;
  for (size_t i = 0; i < run->count; i++) {
    const bench_row *row = &run->rows[i];
    if (row->status != BENCH_SKIPPED)
      continue;
    if (told++ == 0)
      fprintf(out, run->context.simulated ? "\nsimulated\n" : "\nnot run\n");
    shape_text(row, shape, sizeof shape);
    fputs("  ", out);
    bench_pad(out, shape, table->shape_columns);
    fputs("  ", out);
    bench_pad(out, row->variant, row->variant[0] != 0 ? table->variant_columns + 2 : 0);
    bench_pad(out, row->reason, 0);
    fputc('\n', out);
  }
}

/* The next best of the same problem; NULL: the only one. */
static const bench_row *second(const bench_run *run, const bench_row *best) {
  const bench_row *found = NULL;
  for (size_t i = 0; i < run->count; i++) {
    const bench_row *row = &run->rows[i];
    if (has_time(row) && strcmp(row->variant, best->variant) != 0 && strcmp(row->pass, best->pass) == 0 &&
        strcmp(row->shape.line, best->shape.line) == 0 && (found == NULL || row->median_ns < found->median_ns))
      found = row;
  }
  return found;
}

static void print_fastest(FILE *out, const bench_table *table, const bench_run *run) {
  int told = 0;
  for (size_t i = 0; i < run->count; i++) {
    const bench_row *row = &run->rows[i];
    const bench_row *next =
        has_time(row) && bench_fastest(run, row->shape.line, row->pass) == row ? second(run, row) : NULL;
    char shape[BENCH_NAME_BYTES + sizeof row->pass + 4];
    if (next == NULL)
      continue;
    if (told++ == 0)
      fprintf(out, "\nfastest\n");
    shape_text(row, shape, sizeof shape);
    fputs("  ", out);
    bench_pad(out, shape, table->shape_columns);
    fputs("  ", out);
    bench_pad(out, row->variant, table->variant_columns);
    fprintf(out, "  %.2f times as fast as ", (double)next->median_ns / (double)row->median_ns);
    bench_pad(out, next->variant, 0);
    fputc('\n', out);
  }
}

static void print_legend(FILE *out, const bench_table *table, const bench_run *run) {
  int throttled = 0, suspect = 0, rated = 0;
  for (size_t i = 0; i < run->count; i++) {
    throttled |= has_time(&run->rows[i]) && run->rows[i].throttled;
    suspect |= has_time(&run->rows[i]) && run->rows[i].clock_suspect;
    rated |= has_time(&run->rows[i]) && run->rows[i].percent_of_bound > 0;
  }
  if (table->timed)
    fprintf(out,
            "\ntime of one call by %s, %s inputs, where a row says nothing else; spread: between the quartiles, of "
            "the median\n",
            bench_timing_word(table->by_events), bench_inputs_word(table->cold));
  if (rated)
    fprintf(out,
            "%% of bound: how near the row comes to the peak named beside it, which was measured in the same run\n");
  if (throttled)
    fprintf(
        out,
        "throttled: the FMA probe beside the row was more than 5 %% below the run's, or calls became 10 %% slower\n");
  if (suspect)
    fprintf(out, "clock?: events and wall clock contradict each other; the time is the wall clock's\n");
}

void bench_table_end(bench_table *table, const bench_run *run) {
  size_t count[BENCH_FAILED + 1] = {0};
  FILE *out = table->out;
  for (size_t i = 0; i < run->count; i++)
    count[run->rows[i].status]++;
  print_fastest(out, table, run);
  print_skipped(out, table, run);
  print_legend(out, table, run);
  fprintf(out, "\n%zu row%s: %zu ok", run->count, run->count == 1 ? "" : "s", count[BENCH_OK]);
  if (count[BENCH_WRONG] > 0)
    fprintf(out, ", %zu WRONG", count[BENCH_WRONG]);
  if (count[BENCH_FAILED] > 0)
    fprintf(out, ", %zu failed", count[BENCH_FAILED]);
  if (count[BENCH_SKIPPED] > 0)
    fprintf(out, ", %zu not run", count[BENCH_SKIPPED]);
  fputc('\n', out);
  if (run->context.noisy)
    fprintf(out, "NOISY: more than a fifth of the rows spread over 5 %%: something else ran, or the clock moved\n");
}

void bench_table_print(FILE *out, const bench_run *run) {
  bench_table table;
  begin(&table, out);
  for (size_t i = 0; i < run->count; i++) {
    table.shape_columns = wider(table.shape_columns, run->rows[i].shape.name);
    table.variant_columns = wider(table.variant_columns, run->rows[i].variant);
  }
  print_header(&table);
  for (size_t i = 0; i < run->count; i++)
    bench_table_row(&table, &run->rows[i]);
  bench_table_end(&table, run);
}
