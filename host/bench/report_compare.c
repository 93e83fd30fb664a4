/* SPDX-License-Identifier: Apache-2.0 */
/* Several runs: medians of the same shape side by side, and how they compare with the first run's. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "report_page.h"

/* What is compared: a row of each run, NULL where there is none; `key` is the first that was found. */
typedef struct line {
  const report_row *key, *row[BENCH_REPORT_MOST_RUNS];
} line;

/* ---- what stands in a line ---- */

/* Whether two rows are of the same problem and pass; by_variant: and of the same variant. */
static int same_key(const report_row *a, const report_row *b, int by_variant) {
  return a->problem == b->problem && strcmp(a->row->pass, b->row->pass) == 0 &&
         (!by_variant || a->variant == b->variant);
}

static int is_faster(const report_row *a, const report_row *b) {
  return report_timed(a->row) && (!report_timed(b->row) || a->row->median_ns < b->row->median_ns);
}

/* The lines in the order of their first rows; each run's fastest row stands for it. */
static size_t match(const report_runs *runs, int by_variant, line *lines) {
  size_t count = 0;
  for (size_t i = 0; i < runs->row_count; i++) {
    const report_row *row = &runs->row[i];
    size_t at = 0;
    while (at < count && !same_key(lines[at].key, row, by_variant))
      at++;
    if (at == count)
      lines[count++].key = row;
    if (lines[at].row[row->run] == NULL || is_faster(row, lines[at].row[row->run]))
      lines[at].row[row->run] = row;
  }
  return count;
}

/* ---- cells ---- */

static void add_median(const report_row *entry, cli_bytes *out) {
  char number[REPORT_NUMBER_BYTES];
  if (entry == NULL)
    cli_bytes_text(out, "<td>\xe2\x80\x93</td>");
  else if (!report_timed(entry->row))
    cli_bytes_format(out, "<td class=\"%s\">%s</td>", entry->row->status == BENCH_WRONG ? "bad" : "quiet",
                     report_status_name(entry->row->status));
  else
    cli_bytes_format(out, "<td data-v=\"%.9g\">%s%s</td>", (double)entry->row->median_ns,
                     report_time(entry->row->median_ns, number), report_doubtful(entry->row) ? " ?" : "");
}

/* What differs between two rows whose times are divided. */
static void add_marks(const report_row *first, const report_row *other, cli_bytes *out) {
  const struct {
    int differs;
    const char *name;
  } marks[] = {{first->row->by_events != other->row->by_events, "timing"},
               {first->row->cold != other->row->cold, "inputs"}};
  for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
    if (marks[i].differs)
      cli_bytes_format(out, "<br/><span class=\"differs\">\xe2\x89\xa0 %s</span>", marks[i].name);
  }
}

static int overlap(const bench_row *a, const bench_row *b) {
  return a->first_quartile_ns <= b->third_quartile_ns && b->first_quartile_ns <= a->third_quartile_ns;
}

static void add_speed(const report_row *first, const report_row *other, cli_bytes *out) {
  char number[REPORT_NUMBER_BYTES];
  if (first == NULL || other == NULL || !report_timed(first->row) || !report_timed(other->row)) {
    cli_bytes_text(out, "<td>\xe2\x80\x93</td>");
    return;
  }
  const double speed = (double)first->row->median_ns / (double)other->row->median_ns;
  const char *look = speed > 1 ? "faster" : "slower", *sign = speed > 1 ? "\xe2\x96\xb2" : "\xe2\x96\xbc";
  if (overlap(first->row, other->row)) {
    look = "quiet";
    sign = "~";
  }
  cli_bytes_format(out, "<td class=\"%s\" data-v=\"%.9g\">%s %s", look, speed, sign, report_number(speed, number));
  add_marks(first, other, out);
  cli_bytes_text(out, "</td>");
}

static const report_row *any_of(const report_runs *runs, const line *item) {
  int run = 0;
  while (run + 1 < runs->count && item->row[run] == NULL)
    run++;
  return item->row[run] != NULL ? item->row[run] : item->key;
}

/* "A, B: one", then "C: another"; the name alone where all runs have the same. */
static void add_variants(const report_runs *runs, const line *item, cli_bytes *out) {
  int said[BENCH_REPORT_MOST_RUNS] = {0}, names = 0, of_all = 1;
  for (int run = 0; run < runs->count; run++)
    of_all = of_all && (item->row[run] == NULL || item->row[run]->variant == any_of(runs, item)->variant);
  for (int run = 0; run < runs->count; run++) {
    const report_row *row = item->row[run];
    int here = 0;
    if (row == NULL || said[run])
      continue;
    cli_bytes_text(out, names++ > 0 ? "<br/>" : "");
    for (int other = run; other < runs->count; other++) {
      if (item->row[other] == NULL || item->row[other]->variant != row->variant)
        continue;
      said[other] = 1;
      if (!of_all)
        cli_bytes_format(out, "%s%c", here++ > 0 ? ", " : "", report_letter(other));
    }
    cli_bytes_text(out, of_all ? "" : ": ");
    cli_bytes_xml(out, row->row->variant);
  }
}

static void add_line(const report_runs *runs, const line *item, cli_bytes *out) {
  cli_bytes_format(out, "<tr><th scope=\"row\"><a href=\"#p%zu\">", item->key->shape + 1);
  cli_bytes_xml(out, item->key->row->shape.name);
  cli_bytes_text(out, "</a></th><td class=\"word\">");
  add_variants(runs, item, out);
  cli_bytes_text(out, "</td>");
  for (int run = 0; run < runs->count; run++) {
    add_median(item->row[run], out);
    if (run > 0)
      add_speed(item->row[0], item->row[run], out);
  }
  cli_bytes_text(out, "</tr>\n");
}

/* ---- tables ---- */

static int all_timed(const report_runs *runs, const line *item) {
  for (int run = 0; run < runs->count; run++) {
    if (item->row[run] == NULL || !report_timed(item->row[run]->row))
      return 0;
  }
  return 1;
}

static void add_means(const report_runs *runs, const line *lines, size_t count, cli_bytes *out) {
  double logarithms[BENCH_REPORT_MOST_RUNS] = {0};
  char number[REPORT_NUMBER_BYTES];
  size_t common = 0;
  for (size_t i = 0; i < count; i++) {
    if (!all_timed(runs, &lines[i]))
      continue;
    common++;
    for (int run = 1; run < runs->count; run++)
      logarithms[run] += log((double)lines[i].row[0]->row->median_ns / (double)lines[i].row[run]->row->median_ns);
  }
  cli_bytes_format(out, "<tfoot><tr><th scope=\"row\" colspan=\"2\">geometric mean over %zu row%s that all have</th>",
                   common, common == 1 ? "" : "s");
  for (int run = 0; run < runs->count; run++) {
    cli_bytes_text(out, "<td></td>");
    if (run > 0)
      cli_bytes_format(out, "<td>%s</td>",
                       common > 0 ? report_number(exp(logarithms[run] / (double)common), number) : "\xe2\x80\x93");
  }
  cli_bytes_text(out, "</tr></tfoot>\n");
}

static void add_table(const report_runs *runs, const line *lines, size_t count, cli_bytes *out) {
  cli_bytes_text(out, "<div class=\"scroll\">\n<table class=\"numbers sortable\">\n<thead><tr>"
                      "<th scope=\"col\">shape</th><th scope=\"col\" class=\"word\">variant</th>");
  for (int run = 0; run < runs->count; run++) {
    cli_bytes_format(out, "<th scope=\"col\"><i class=\"swatch b%d\"></i>%c median</th>", run, report_letter(run));
    if (run > 0)
      cli_bytes_format(out, "<th scope=\"col\">%c / A</th>", report_letter(run));
  }
  cli_bytes_text(out, "</tr></thead>\n<tbody>\n");
  for (size_t i = 0; i < count; i++)
    add_line(runs, &lines[i], out);
  cli_bytes_text(out, "</tbody>\n");
  add_means(runs, lines, count, out);
  cli_bytes_text(out, "</table>\n</div>\n");
}

int report_compare_write(const report_runs *runs, cli_bytes *out) {
  line *fastest = calloc(runs->row_count + 1, sizeof *fastest), *lines = calloc(runs->row_count + 1, sizeof *lines);
  if (fastest == NULL || lines == NULL) {
    free(fastest);
    free(lines);
    return cli_fail_memory();
  }
  const size_t fastest_count = match(runs, 0, fastest), count = match(runs, 1, lines);
  cli_bytes_text(
      out, "<section>\n<h2>Medians side by side</h2>\n<p>A run's fastest variant stands for it. B / A is the speed "
           "of B: 2.00 is twice as fast as A, run A's median divided by B's. <span class=\"faster\">"
           "\xe2\x96\xb2 faster</span>, <span class=\"slower\">\xe2\x96\xbc slower</span>, ~ their quartiles "
           "overlap. A ? follows times that were throttled or of a doubtful clock.</p>\n");
  add_table(runs, fastest, fastest_count, out);
  if (count > fastest_count) {
    cli_bytes_text(out, "<h3>variant by variant</h3>\n");
    add_table(runs, lines, count, out);
  }
  cli_bytes_text(out, "</section>\n");
  free(fastest);
  free(lines);
  return CLI_OK;
}
