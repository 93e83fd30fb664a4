/* SPDX-License-Identifier: Apache-2.0 */
/* All rows with all that was measured, and the problems as commands. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report_page.h"

static void add_blank(int is_word, cli_bytes *out) {
  cli_bytes_text(out, is_word ? "<td class=\"word\">\xe2\x80\x93</td>" : "<td>\xe2\x80\x93</td>");
}

/* A cell that sorts by its number. */
static void add_cell(double value, const char *text, cli_bytes *out) {
  if (!isfinite(value)) {
    add_blank(0, out);
    return;
  }
  cli_bytes_format(out, "<td data-v=\"%.9g\">", value);
  cli_bytes_text(out, text);
  cli_bytes_text(out, "</td>");
}

static void add_number(double value, cli_bytes *out) {
  char number[REPORT_NUMBER_BYTES];
  add_cell(value, report_number(value, number), out);
}

static void add_time(int64_t nanoseconds, cli_bytes *out) {
  char number[REPORT_NUMBER_BYTES];
  if (nanoseconds > 0)
    add_cell((double)nanoseconds, report_time(nanoseconds, number), out);
  else
    add_blank(0, out);
}

static void add_count(int64_t value, cli_bytes *out) {
  cli_bytes_format(out, "<td data-v=\"%" PRId64 "\">%" PRId64 "</td>", value, value);
}

static const struct column {
  const char *name, *unit;
  int is_word;
} columns[] = {
    {"suite", "", 1},   {"variant", "", 1},        {"status", "", 1},      {"median", "", 0},
    {"minimum", "", 0}, {"spread", "%", 0},        {"samples", "", 0},     {"timed by", "", 1},
    {"inputs", "", 1},  {"rate", "GFLOP/s", 0},    {"traffic", "GB/s", 0}, {"of bound", "%", 0},
    {"bound", "", 1},   {"FA rate", "TFLOP/s", 0}, {"build", "", 0},       {"first call", "", 0},
    {"plan", "", 0},    {"enqueue", "", 0},        {"launches", "", 0},    {"workspace", "", 0},
    {"error", "", 0},
};
enum { COLUMNS = sizeof columns / sizeof columns[0] };

static void add_head(const report_runs *runs, cli_bytes *out) {
  cli_bytes_text(out, "<thead><tr><th scope=\"col\">shape</th>");
  cli_bytes_text(out, runs->count > 1 ? "<th scope=\"col\" class=\"word\">run</th>" : "");
  for (size_t i = 0; i < COLUMNS; i++) {
    cli_bytes_format(out, "<th scope=\"col\"%s>%s", columns[i].is_word ? " class=\"word\"" : "", columns[i].name);
    if (columns[i].unit[0] != 0)
      cli_bytes_format(out, " <small>%s</small>", columns[i].unit);
    cli_bytes_text(out, "</th>");
  }
  cli_bytes_text(out, "</tr></thead>\n");
}

static void add_status(const bench_row *row, cli_bytes *out) {
  cli_bytes_text(out, row->status == BENCH_WRONG ? "<td class=\"word bad\">" : "<td class=\"word\">");
  cli_bytes_text(out, row->status == BENCH_OK && !report_timed(row) ? "not timed" : report_status_name(row->status));
  if (report_timed(row) && row->throttled)
    cli_bytes_text(out, " \xe2\x80\xa0");
  if (report_timed(row) && row->clock_suspect)
    cli_bytes_text(out, " \xe2\x80\xa1");
  cli_bytes_text(out, "</td>");
}

static void add_timing(const bench_row *row, cli_bytes *out) {
  enum { FIRST = 3, LAST = 13 }; /* of the columns */
  if (!report_timed(row)) {
    for (int i = FIRST; i <= LAST; i++)
      add_blank(columns[i].is_word, out);
    return;
  }
  char spread[REPORT_NUMBER_BYTES];
  snprintf(spread, sizeof spread, fabs(row->spread) < 1e6 ? "%.1f" : "%.1e", row->spread * 100);
  add_time(row->median_ns, out);
  add_time(row->minimum_ns, out);
  add_cell(row->spread * 100, spread, out);
  add_count(row->samples, out);
  cli_bytes_format(out, "<td class=\"word\">%s</td><td class=\"word\">%s</td>",
                   row->by_events ? "events" : "wall clock", row->cold ? "cold" : "hot");
  add_number(row->flops_per_second / 1e9, out);
  add_number(row->bytes_per_second / 1e9, out);
  if (row->percent_of_bound > 0)
    add_number(row->percent_of_bound, out);
  else
    add_blank(0, out);
  cli_bytes_format(out, "<td class=\"word\">%s</td>",
                   row->percent_of_bound > 0 ? report_bound_name(row->bound) : "\xe2\x80\x93");
  add_number((double)row->flash_flops / (double)row->median_ns / 1e3, out);
}

static void add_rest(const bench_row *row, cli_bytes *out) {
  char number[REPORT_NUMBER_BYTES];
  add_time(row->build_ns, out);
  add_time(row->first_call_ns, out);
  add_time(row->plan_ns, out);
  add_time(row->enqueue_ns, out);
  if (row->launches > 0)
    add_count(row->launches, out);
  else
    add_blank(0, out);
  if (row->status == BENCH_OK)
    add_cell((double)row->workspace_bytes, report_size((double)row->workspace_bytes, number), out);
  else
    add_blank(0, out);
  if (row->verified_rows > 0) {
    char error[REPORT_NUMBER_BYTES];
    snprintf(error, sizeof error, "%.2g", row->error);
    add_cell(row->error, error, out);
  } else {
    add_blank(0, out);
  }
}

static void add_row(const report_runs *runs, const report_row *entry, cli_bytes *out) {
  const bench_row *row = entry->row;
  cli_bytes_format(out, "<tr><th scope=\"row\"><a href=\"#p%zu\">", entry->shape + 1);
  cli_bytes_xml(out, row->shape.name);
  cli_bytes_text(out, "</a></th>");
  if (runs->count > 1)
    cli_bytes_format(out, "<td class=\"word\"><i class=\"swatch b%d\"></i>%c</td>", entry->run,
                     report_letter(entry->run));
  cli_bytes_text(out, "<td class=\"word\">");
  cli_bytes_xml(out, row->shape.suite[0] != 0 ? row->shape.suite : "\xe2\x80\x93");
  cli_bytes_text(out, "</td><td class=\"word\" title=\"");
  cli_bytes_xml(out, row->reason);
  cli_bytes_text(out, "\">");
  cli_bytes_xml(out, row->variant[0] != 0 ? row->variant : "\xe2\x80\x93");
  if (row->pass[0] != 0 && strcmp(row->pass, "forward") != 0) {
    cli_bytes_text(out, ", ");
    cli_bytes_xml(out, row->pass);
  }
  cli_bytes_text(out, "</td>");
  add_status(row, out);
  add_timing(row, out);
  add_rest(row, out);
  cli_bytes_text(out, "</tr>\n");
}

void report_table_write(const report_runs *runs, cli_bytes *out) {
  cli_bytes_text(out,
                 "<section>\n<h2>All rows</h2>\n<div class=\"scroll\">\n<table class=\"numbers sortable wide\">\n");
  add_head(runs, out);
  cli_bytes_text(out, "<tbody>\n");
  for (size_t i = 0; i < runs->row_count; i++)
    add_row(runs, &runs->row[i], out);
  cli_bytes_text(
      out, "</tbody>\n</table>\n</div>\n<p>Spread: third less first quartile, divided by the median. Cold: inputs "
           "rotate over copies beyond the last cache. Rate: 2 \xc3\x97 pairs that count \xc3\x97 (D of queries + D of "
           "values), exactly counted. Traffic: inputs and outputs once. FA rate: FlashAttention's way to count, "
           "where causal is half. Build, first call and plan happen once and are not in the median. Error: the "
           "largest difference from double precision, verified before timing. \xe2\x80\xa0 throttled, \xe2\x80\xa1 "
           "doubtful clock.</p>\n</section>\n");
}

/* The problem as the shell takes it: a file may hold any text. */
static void add_command(const char *line, cli_bytes *out) {
  static const char harmless[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ,.=_+-/:;()";
  cli_bytes_text(out, "<code class=\"command\">clattn bench --problem ");
  if (line[strspn(line, harmless)] == 0) {
    cli_bytes_text(out, "&#34;");
    cli_bytes_xml(out, line);
    cli_bytes_text(out, "&#34;");
  } else {
    cli_bytes_text(out, "&#39;");
    for (const char *at = line; *at != 0;) {
      char part[BENCH_LINE_BYTES];
      const size_t length = strcspn(at, "'");
      snprintf(part, sizeof part, "%.*s", (int)length, at);
      cli_bytes_xml(out, part);
      at += length;
      if (*at == '\'') {
        cli_bytes_text(out, "&#39;\\&#39;&#39;");
        at++;
      }
    }
    cli_bytes_text(out, "&#39;");
  }
  cli_bytes_text(out, "</code>");
}

void report_problems_write(const report_runs *runs, cli_bytes *out) {
  if (runs->shape_count == 0)
    return;
  cli_bytes_text(out, "<section>\n<h2>Problems</h2>\n<ul class=\"problems\">\n");
  for (size_t i = 0; i < runs->shape_count; i++) {
    const bench_shape *shape = runs->shape[i];
    cli_bytes_format(out, "<li id=\"p%zu\"><b>", i + 1);
    cli_bytes_xml(out, shape->name);
    cli_bytes_text(out, "</b>");
    if (shape->source[0] != 0) {
      cli_bytes_text(out, " <span>");
      cli_bytes_xml(out, shape->source);
      cli_bytes_text(out, "</span>");
    }
    cli_bytes_text(out, "<div>");
    add_command(shape->line, out);
    cli_bytes_text(out, "</div></li>\n");
  }
  cli_bytes_text(out, "</ul>\n</section>\n");
}
