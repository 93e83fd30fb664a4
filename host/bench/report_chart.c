/* SPDX-License-Identifier: Apache-2.0 */
/* Bars of a suite: a group for each shape, a bar for each row; columns of numbers beside them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "picture_unicode.h"
#include "report_page.h"

enum { WIDTH = 740, HEAD = 26, GROUP = 24, ROW = 19, BAR = 12, FOOT = 46, BARS_AT = 172, BARS_WIDTH = 280 };

static const double text_size = 11.5, rate_end = 524, time_end = 600, percent_end = 711, sign_end = 738;

static int has_percent(const bench_row *row) {
  return isfinite(row->percent_of_bound) && row->percent_of_bound > 0;
}

static double value_of(const report_chart *chart, const bench_row *row) {
  const double value = chart->by_percent ? row->percent_of_bound : row->flops_per_second / 1e9;
  return isfinite(value) && value > 0 ? value : 0;
}

static int is_shown(const bench_row *row) {
  return report_timed(row) || row->status == BENCH_WRONG;
}

/* Round steps, at most six of them. */
static void make_scale(report_chart *chart, double most) {
  static const double digits[] = {1, 2, 2.5, 5};
  chart->most = chart->by_percent ? fmax(most, 100) : most > 0 ? most : 1;
  const double power = pow(10, floor(log10(chart->most / 6)));
  chart->step = 10 * power;
  for (int i = 3; i >= 0; i--) {
    if (digits[i] * power * 6 >= chart->most * 0.999999)
      chart->step = digits[i] * power;
  }
  chart->most = ceil(chart->most / chart->step * 0.999999) * chart->step;
}

static void say(report_chart *chart, const char *text, double x, double y, cli_anchor anchor, const char *look,
                double most) {
  const report_label label = {NULL, x, y, text_size, 0, anchor, look, 0};
  if (text[0] != 0)
    report_labels_add(&chart->labels, &label, text, most);
}

static void add_numbers(report_chart *chart, const bench_row *row, double base) {
  char text[2 * REPORT_NUMBER_BYTES], number[REPORT_NUMBER_BYTES];
  say(chart, report_number(row->flops_per_second / 1e9, number), rate_end, base, CLI_ANCHOR_END, "t", 0);
  say(chart, report_time(row->median_ns, number), time_end, base, CLI_ANCHOR_END, "t", 0);
  if (has_percent(row)) {
    if (row->percent_of_bound < 999)
      snprintf(number, sizeof number, "%.1f", row->percent_of_bound);
    else
      report_number(row->percent_of_bound, number);
    snprintf(text, sizeof text, "%s %% %s", number, report_bound_name(row->bound));
    say(chart, text, percent_end, base, CLI_ANCHOR_END, "t", percent_end - time_end - 6);
  }
  if (report_doubtful(row))
    say(chart,
        row->throttled && row->clock_suspect ? "\xe2\x80\xa0\xe2\x80\xa1"
        : row->throttled                     ? "\xe2\x80\xa0"
                                             : "\xe2\x80\xa1",
        sign_end, base, CLI_ANCHOR_END, "t", 0);
}

static void add_bar(const report_runs *runs, report_chart *chart, const report_row *entry, double y) {
  enum { WRONG_WIDTH = 64 };
  const bench_row *row = entry->row;
  const double base = y + 13, gap = (ROW - BAR) / 2.0;
  const int named = row->pass[0] != 0 && strcmp(row->pass, "forward") != 0;
  char name[BENCH_NAME_BYTES + 32], letter[4] = "";
  if (runs->count > 1)
    snprintf(letter, sizeof letter, "%c  ", report_letter(entry->run));
  snprintf(name, sizeof name, "%s%s%s%s", letter, row->variant, named ? ", " : "", named ? row->pass : "");
  say(chart, name, BARS_AT - 8, base, CLI_ANCHOR_END, "m", BARS_AT - 20);
  report_bar *bar = &chart->bar[chart->bar_count++];
  bar->row = entry;
  bar->wrong = row->status == BENCH_WRONG;
  const double share = value_of(chart, row) / chart->most;
  bar->box = (cli_box){BARS_AT, y + gap, bar->wrong ? WRONG_WIDTH : fmax(1, BARS_WIDTH * fmin(share, 1)), BAR};
  if (bar->wrong)
    say(chart, "WRONG, not ranked", BARS_AT + WRONG_WIDTH + 8, base, CLI_ANCHOR_BEGIN, "bad halo", 0);
  else
    add_numbers(chart, row, base);
}

static void add_axis(report_chart *chart) {
  char number[REPORT_NUMBER_BYTES];
  const double bottom = chart->area.y + chart->area.height;
  const int steps = (int)(chart->most / chart->step + 0.5);
  for (int i = 0; i <= steps; i++) {
    const double x = chart->area.x + chart->area.width * i / steps;
    say(chart, report_tick(i * chart->step, number), x, bottom + 15, CLI_ANCHOR_MIDDLE, "m", 0);
  }
  say(chart, chart->by_percent ? "percent of the bound that applies (%)" : "GFLOP/s",
      chart->area.x + chart->area.width / 2, bottom + 33, CLI_ANCHOR_MIDDLE, "t", 0);
  say(chart, "GFLOP/s", rate_end, 15, CLI_ANCHOR_END, "m", 0);
  say(chart, "median", time_end, 15, CLI_ANCHOR_END, "m", 0);
  say(chart, "of the bound", percent_end, 15, CLI_ANCHOR_END, "m", 0);
}

int report_chart_make(const report_runs *runs, size_t suite, report_chart *out) {
  double most = 0, y = HEAD;
  size_t shape = SIZE_MAX;
  memset(out, 0, sizeof *out);
  out->bar = calloc(runs->row_count + 1, sizeof *out->bar);
  if (out->bar == NULL)
    return cli_fail_memory();
  out->by_percent = 1;
  for (size_t i = 0; i < runs->row_count; i++) {
    if (runs->row[i].suite == suite && report_timed(runs->row[i].row))
      out->by_percent &= has_percent(runs->row[i].row);
  }
  for (size_t i = 0; i < runs->row_count; i++) {
    if (runs->row[i].suite == suite && report_timed(runs->row[i].row))
      most = fmax(most, value_of(out, runs->row[i].row));
  }
  make_scale(out, most);
  for (size_t i = 0; i < runs->row_count; i++) {
    const report_row *row = &runs->row[i];
    if (row->suite != suite || !is_shown(row->row))
      continue;
    if (row->shape != shape)
      say(out, row->row->shape.name, 2, y + 17, CLI_ANCHOR_BEGIN, "t strong halo", WIDTH - 4);
    y += row->shape != shape ? GROUP : 0;
    shape = row->shape;
    add_bar(runs, out, row, y);
    y += ROW;
  }
  out->width = WIDTH;
  out->height = y + FOOT;
  out->area = (cli_box){BARS_AT, HEAD, BARS_WIDTH, y + 4 - HEAD};
  if (out->bar_count > 0)
    add_axis(out);
  if (!out->labels.failed)
    return CLI_OK;
  report_chart_release(out);
  return cli_fail_memory();
}

void report_chart_release(report_chart *chart) {
  if (chart == NULL)
    return;
  free(chart->bar);
  report_labels_release(&chart->labels);
  memset(chart, 0, sizeof *chart);
}

void report_chart_write(const report_runs *runs, const report_chart *chart, const char *title, cli_bytes *out) {
  const cli_box *area = &chart->area;
  const int steps = (int)(chart->most / chart->step + 0.5);
  cli_bytes_format(out, "<div class=\"scroll\">\n<svg class=\"chart\" viewBox=\"0 0 %g %g\" role=\"img\" aria-label=\"",
                   chart->width, chart->height);
  cli_bytes_text(out, chart->by_percent ? "Percent of the bound" : "GFLOP/s");
  cli_bytes_text(out, " of each row of ");
  cli_bytes_xml(out, title);
  cli_bytes_text(out, "; the table has the numbers\">\n<path class=\"grid\" d=\"");
  for (int i = 0; i <= steps; i++)
    cli_bytes_format(out, "M%.1f %.1fv%.1f", area->x + area->width * i / steps, area->y, area->height);
  cli_bytes_text(out, "\"/>\n");
  for (size_t i = 0; i < chart->bar_count; i++) {
    const report_bar *bar = &chart->bar[i];
    if (bar->wrong)
      cli_bytes_text(out, "<rect class=\"bar wrong\" fill=\"url(#wrong)\"");
    else
      cli_bytes_format(out, "<rect class=\"bar b%d\"", report_colour(runs, bar->row));
    cli_bytes_format(out, " x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"><title>", bar->box.x, bar->box.y,
                     bar->box.width, bar->box.height);
    report_tip_write(runs, bar->row, out);
    cli_bytes_text(out, "</title></rect>\n");
  }
  report_labels_write(&chart->labels, out);
  cli_bytes_text(out, "</svg>\n</div>\n");
}
