/* SPDX-License-Identifier: Apache-2.0 */
/* The sections that show rows by suite, and what a row says when pointed at. */
#include <inttypes.h>
#include <string.h>

#include "cli.h"
#include "report_page.h"

static const char new_line[] = "&#10;";

static const char *suite_title(const char *suite) {
  return suite[0] != 0 ? suite : "shapes of the command line";
}

static void add_rates(const bench_row *row, cli_bytes *out) {
  char number[REPORT_NUMBER_BYTES];
  cli_bytes_format(out, "%s%s", new_line, report_time(row->median_ns, number));
  cli_bytes_format(out, " median, %s GFLOP/s", report_number(row->flops_per_second / 1e9, number));
  cli_bytes_format(out, ", %s GB/s", report_number(row->bytes_per_second / 1e9, number));
  if (row->bytes > 0)
    cli_bytes_format(out, "%s%s FLOP/B", new_line, report_number((double)row->flops / (double)row->bytes, number));
  cli_bytes_format(out, ", %s %% of the bound (%s)", report_number(row->percent_of_bound, number),
                   report_bound_name(row->bound));
  if (row->throttled)
    cli_bytes_format(out, "%sthrottled", new_line);
  if (row->clock_suspect)
    cli_bytes_format(out, "%sdoubtful clock", new_line);
}

void report_tip_write(const report_runs *runs, const report_row *entry, cli_bytes *out) {
  const bench_row *row = entry->row;
  cli_bytes_xml(out, row->shape.name);
  cli_bytes_text(out, new_line);
  cli_bytes_xml(out, row->variant);
  if (runs->count > 1) {
    cli_bytes_format(out, ", run %c: ", report_letter(entry->run));
    cli_bytes_xml(out, runs->name[entry->run]);
  }
  if (report_timed(row))
    add_rates(row, out);
  else
    cli_bytes_format(out, "%s%s", new_line, report_status_name(row->status));
  if (row->reason[0] != 0) {
    cli_bytes_text(out, new_line);
    cli_bytes_xml(out, row->reason);
  }
}

/* Rows without a time, with their reasons. */
static void add_left_out(const report_runs *runs, size_t suite, cli_bytes *out) {
  int begun = 0;
  for (size_t i = 0; i < runs->row_count; i++) {
    const report_row *entry = &runs->row[i];
    if (entry->suite != suite || report_timed(entry->row))
      continue;
    cli_bytes_text(out, begun ? "" : "<ul class=\"left-out\">\n");
    begun = 1;
    cli_bytes_text(out, "<li>");
    cli_bytes_text(out, entry->row->status == BENCH_WRONG ? "<b class=\"bad\">WRONG</b> " : "<b>");
    if (entry->row->status != BENCH_WRONG)
      cli_bytes_format(out, "%s</b> ",
                       entry->row->status == BENCH_OK ? "not timed" : report_status_name(entry->row->status));
    if (runs->count > 1)
      cli_bytes_format(out, "%c: ", report_letter(entry->run));
    cli_bytes_xml(out, entry->row->shape.name);
    if (entry->row->variant[0] != 0) {
      cli_bytes_text(out, ", ");
      cli_bytes_xml(out, entry->row->variant);
    }
    if (entry->row->reason[0] != 0) {
      cli_bytes_text(out, ": ");
      cli_bytes_xml(out, entry->row->reason);
    }
    cli_bytes_text(out, "</li>\n");
  }
  cli_bytes_text(out, begun ? "</ul>\n" : "");
}

static void add_signs(const report_runs *runs, cli_bytes *out) {
  int throttled = 0, suspect = 0, wrong = 0;
  for (size_t i = 0; i < runs->row_count; i++) {
    const bench_row *row = runs->row[i].row;
    throttled |= report_timed(row) && row->throttled;
    suspect |= report_timed(row) && row->clock_suspect;
    wrong |= row->status == BENCH_WRONG;
  }
  if (!throttled && !suspect && !wrong)
    return;
  cli_bytes_text(out, "<ul class=\"key\">\n");
  if (throttled)
    cli_bytes_text(out, "<li><b>\xe2\x80\xa0</b> throttled: the FMA probe beside this row was more than 5 % below "
                        "the run's, or its calls became 10 % slower</li>\n");
  if (suspect)
    cli_bytes_text(out,
                   "<li><b>\xe2\x80\xa1</b> doubtful clock: the device's events and the wall clock contradict each "
                   "other; the time is the wall clock's</li>\n");
  if (wrong)
    cli_bytes_text(out,
                   "<li><svg class=\"sign\" width=\"26\" height=\"14\" viewBox=\"0 0 26 14\" aria-hidden=\"true\">"
                   "<rect class=\"bar wrong\" fill=\"url(#wrong)\" x=\"1\" y=\"1\" width=\"24\" height=\"12\"/></svg>"
                   "WRONG: verified before timing, and its numbers differ</li>\n");
  cli_bytes_text(out, "</ul>\n");
}

int report_bars_write(const report_runs *runs, cli_bytes *out) {
  cli_bytes_text(out, "<section>\n<h2>Shapes and variants</h2>\n");
  if (runs->row_count == 0)
    cli_bytes_text(out, "<p>There are no rows.</p>\n");
  add_signs(runs, out);
  cli_bytes_text(out, "<div class=\"charts\">\n");
  for (size_t suite = 0; suite < runs->suite_count; suite++) {
    report_chart chart;
    const char *title = suite_title(runs->suite[suite]);
    const int code = report_chart_make(runs, suite, &chart);
    if (code != CLI_OK)
      return code;
    cli_bytes_text(out, "<figure>\n<h3>");
    cli_bytes_xml(out, title);
    cli_bytes_text(out, "</h3>\n");
    if (chart.bar_count > 0)
      report_chart_write(runs, &chart, title, out);
    add_left_out(runs, suite, out);
    cli_bytes_text(out, "</figure>\n");
    report_chart_release(&chart);
  }
  cli_bytes_text(out, "</div>\n</section>\n");
  return CLI_OK;
}
