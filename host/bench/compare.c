/* SPDX-License-Identifier: Apache-2.0 */
#include "compare.h"

#include <math.h>
#include <string.h>

#include "baseline.h"
#include "cli.h"
#include "record.h"
#include "table.h"

enum { CELL_COLUMNS = 18, SPEED_COLUMNS = 8 };

typedef struct comparison {
  FILE *out;
  const bench_run *const *runs;
  const char *const *names;
  int count, by_variant;
  int shape_columns, variant_columns;
  char suite[BENCH_NAME_BYTES];
  size_t joined, common, alone[BENCH_COMPARE_MOST];
  double logarithms[BENCH_COMPARE_MOST]; /* of speeds, over the common rows */
} comparison;

/* What the runs have of one problem and pass. */
typedef struct joint {
  const bench_row *any[BENCH_COMPARE_MOST], *timed[BENCH_COMPARE_MOST];
  const bench_row *key;      /* where it appears first: it names a problem that suites have twice */
  int present, times, first; /* the first run with a time */
} joint;

static int same_key(const comparison *c, const bench_row *a, const bench_row *b) {
  return strcmp(a->shape.line, b->shape.line) == 0 && strcmp(a->pass, b->pass) == 0 &&
         (!c->by_variant || strcmp(a->variant, b->variant) == 0);
}

static const bench_row *any_row(const comparison *c, int run, const bench_row *key) {
  for (size_t i = 0; i < c->runs[run]->count; i++)
    if (same_key(c, &c->runs[run]->rows[i], key))
      return &c->runs[run]->rows[i];
  return NULL;
}

static void join(const comparison *c, const bench_row *key, joint *out) {
  memset(out, 0, sizeof *out);
  out->first = -1;
  out->key = key;
  for (int i = 0; i < c->count; i++) {
    const bench_run *run = c->runs[i];
    out->any[i] = any_row(c, i, key);
    out->timed[i] = c->by_variant ? bench_find(run, key->shape.line, key->pass, key->variant)
                                  : bench_fastest(run, key->shape.line, key->pass);
    out->present += out->any[i] != NULL;
    out->times += out->timed[i] != NULL;
    if (out->first < 0 && out->timed[i] != NULL)
      out->first = i;
  }
}

/* ---- a row ---- */

static const bench_row *shown_row(const joint *j) {
  return j->timed[j->first];
}

static void print_cell(const comparison *c, const joint *j, int run) {
  char text[64];
  const bench_row *row = j->timed[run];
  if (row == NULL) {
    const bench_row *other = j->any[run];
    const char *word = other == NULL ? "-" : other->status == BENCH_WRONG ? "WRONG" : bench_status_word(other->status);
    fprintf(c->out, "  %10s%*s", word, CELL_COLUMNS - 10, "");
    return;
  }
  fprintf(c->out, "  %10s", bench_time_text(row->median_ns, text, sizeof text));
  if (row->percent_of_bound > 0)
    fprintf(c->out, " %5.1f %%", row->percent_of_bound);
  else
    fprintf(c->out, " %5s  ", "-");
}

static int overlap(const bench_row *a, const bench_row *b) {
  return a->first_quartile_ns <= b->third_quartile_ns && b->first_quartile_ns <= a->third_quartile_ns;
}

static void print_speed(const comparison *c, const joint *j, int run) {
  char text[32] = "-";
  const bench_row *a = j->timed[0], *b = j->timed[run];
  if (a != NULL && b != NULL)
    snprintf(text, sizeof text, "%s%.2f", overlap(a, b) ? "~" : "", (double)a->median_ns / (double)b->median_ns);
  fprintf(c->out, " %*s", SPEED_COLUMNS - 1, text);
}

static int is_driver_other(const bench_context *a, const bench_context *b) {
  return strcmp(a->driver, b->driver) != 0 || strcmp(a->version, b->version) != 0 ||
         strcmp(a->platform, b->platform) != 0;
}

/* What is not as in the first run with a time, one word each, and what makes a row doubtful. */
static void print_notes(const comparison *c, const joint *j) {
  const bench_row *first = shown_row(j);
  const bench_context *base = &c->runs[j->first]->context;
  const char *between = "  ";
  for (int i = j->first; i < c->count; i++) {
    const bench_row *row = j->timed[i];
    const bench_context *context = &c->runs[i]->context;
    if (row == NULL)
      continue;
    const struct {
      int told;
      const char *word;
    } notes[] = {{strcmp(row->variant, first->variant) != 0, row->variant},
                 {strcmp(context->device, base->device) != 0, "device"},
                 {is_driver_other(context, base), "driver"},
                 {strcmp(context->clattn, base->clattn) != 0, "clattn"},
                 {row->by_events != first->by_events, bench_timing_word(row->by_events)},
                 {row->cold != first->cold, bench_inputs_word(row->cold)},
                 {row->throttled, "throttled"},
                 {row->clock_suspect, "clock?"}};
    int told = 0;
    for (size_t n = 0; n < sizeof notes / sizeof notes[0]; n++) {
      if (!notes[n].told)
        continue;
      if (told++ == 0)
        fprintf(c->out, "%s%c: ", between, 'A' + i);
      else
        fputs(", ", c->out);
      bench_pad(c->out, notes[n].word, 0);
      between = "; ";
    }
  }
}

static void print_joint(comparison *c, const joint *j) {
  const bench_row *row = shown_row(j);
  if (c->joined++ == 0 || strcmp(c->suite, j->key->shape.suite) != 0) {
    snprintf(c->suite, sizeof c->suite, "%s", j->key->shape.suite);
    bench_pad(c->out, c->suite[0] != 0 ? c->suite : "command line", 0);
    fputc('\n', c->out);
  }
  fputs("  ", c->out);
  bench_pad(c->out, j->key->shape.name, c->shape_columns);
  fputc(' ', c->out);
  bench_pad(c->out, row->variant, c->variant_columns);
  for (int i = 0; i < c->count; i++) {
    print_cell(c, j, i);
    if (i > 0)
      print_speed(c, j, i);
  }
  print_notes(c, j);
  fputc('\n', c->out);
}

/* ---- all rows ---- */

/* A key counts where it appears first. */
static int seen_before(const comparison *c, int run, size_t at) {
  const bench_row *row = &c->runs[run]->rows[at];
  for (int i = 0; i < run; i++)
    if (any_row(c, i, row) != NULL)
      return 1;
  return any_row(c, run, row) != row;
}

static void take(comparison *c, int run, const joint *j) {
  if (j->present == 1)
    c->alone[run]++;
  if (j->present == 1 || j->times == 0)
    return;
  print_joint(c, j);
  if (j->times < c->count)
    return;
  c->common++;
  for (int i = 1; i < c->count; i++)
    c->logarithms[i] += log((double)j->timed[0]->median_ns / (double)j->timed[i]->median_ns);
}

static void print_head(const comparison *c) {
  int columns = 0;
  for (int i = 0; i < c->count; i++)
    columns = bench_columns(c->names[i]) > columns ? bench_columns(c->names[i]) : columns;
  for (int i = 0; i < c->count; i++) {
    const bench_context *context = &c->runs[i]->context;
    char text[2 * BENCH_TEXT_BYTES + 2 * BENCH_NAME_BYTES + 32];
    snprintf(text, sizeof text, "%s, driver %s, clattn %s, %s%s", context->device, context->driver, context->clattn,
             context->date, context->noisy ? ", NOISY" : "");
    fprintf(c->out, "%c  ", 'A' + i);
    bench_pad(c->out, c->names[i], columns + 2);
    bench_pad(c->out, text, 0);
    fputc('\n', c->out);
  }
  fputc('\n', c->out);
  bench_pad(c->out, "shape", c->shape_columns + 3);
  bench_pad(c->out, "variant", c->variant_columns);
  for (int i = 0; i < c->count; i++) {
    fprintf(c->out, "  %8s %c %7s", "median", 'A' + i, "% bound");
    if (i > 0)
      fprintf(c->out, " %*s%c/A", SPEED_COLUMNS - 4, "", 'A' + i);
  }
  fprintf(c->out, "  notes\n");
}

static void print_summary(const comparison *c) {
  fputc('\n', c->out);
  if (c->common > 0) {
    fprintf(c->out, "geometric mean over %zu row%s that all have:", c->common, c->common == 1 ? "" : "s");
    for (int i = 1; i < c->count; i++)
      fprintf(c->out, "%s %c/A %.3f", i > 1 ? "," : "", 'A' + i, exp(c->logarithms[i] / (double)c->common));
    fputc('\n', c->out);
  } else {
    fprintf(c->out, "no row has a time in all of the runs\n");
  }
  for (int i = 0; i < c->count; i++)
    if (c->alone[i] > 0)
      fprintf(c->out, "in %c alone: %zu row%s\n", 'A' + i, c->alone[i], c->alone[i] == 1 ? "" : "s");
  fprintf(c->out, "B/A: speed of B, 2.00 is twice as fast as A; ~: their quartiles overlap.%s\n",
          c->by_variant ? "" : "  A run's fastest variant stands for it");
}

int bench_compare_print(FILE *out, const bench_run *const *runs, int count, const char *const *names, int by_variant) {
  comparison c;
  joint j;
  memset(&c, 0, sizeof c);
  c.out = out;
  c.runs = runs;
  c.names = names;
  c.count = count;
  c.by_variant = by_variant;
  c.shape_columns = 5;
  c.variant_columns = 7;
  size_t joint_rows = 0;
  for (int i = 0; i < count; i++) {
    for (size_t at = 0; at < runs[i]->count; at++) {
      const bench_row *row = &runs[i]->rows[at];
      const int shape = bench_columns(row->shape.name), variant = bench_columns(row->variant);
      c.shape_columns = shape > c.shape_columns ? shape : c.shape_columns;
      c.variant_columns = variant > c.variant_columns ? variant : c.variant_columns;
      join(&c, row, &j);
      joint_rows += j.present > 1 && j.times > 0;
    }
  }
  if (joint_rows == 0)
    return cli_fail(CLI_USAGE, "compare: no problem has a time and is in more than one of these runs");
  print_head(&c);
  for (int i = 0; i < count; i++) {
    for (size_t at = 0; at < runs[i]->count; at++) {
      if (seen_before(&c, i, at))
        continue;
      join(&c, &runs[i]->rows[at], &j);
      take(&c, i, &j);
    }
  }
  print_summary(&c);
  return CLI_OK;
}
