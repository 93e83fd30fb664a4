/* SPDX-License-Identifier: Apache-2.0 */
/* The roofline plot as SVG, with its legend. */
#include <stdio.h>

#include "report_page.h"

void report_mark_write(int mark, cli_bytes *out) {
  static const char *const paths[REPORT_MARKS] = {
      "M-4.8 0A4.8 4.8 0 1 1 4.8 0A4.8 4.8 0 1 1 -4.8 0Z",
      "M-4.3 -4.3H4.3V4.3H-4.3Z",
      "M0 -5.8L5.4 4H-5.4Z",
      "M0 -6L6 0L0 6L-6 0Z",
      "M0 5.8L5.4 -4H-5.4Z",
      "M-5.6 -3L-3 -5.6L0 -2.6L3 -5.6L5.6 -3L2.6 0L5.6 3L3 5.6L0 2.6L-3 5.6L-5.6 3L-2.6 0Z",
      "M-1.9 -5.8H1.9V-1.9H5.8V1.9H1.9V5.8H-1.9V1.9H-5.8V-1.9H-1.9Z",
      "M0 -5.8L5.5 -1.8L3.4 4.7H-3.4L-5.5 -1.8Z",
  };
  cli_bytes_text(out, paths[mark]);
}

static void add_grid(const report_roofline *plot, cli_bytes *out) {
  const cli_box *area = &plot->area;
  for (int major = 0; major < 2; major++) {
    cli_bytes_format(out, "<path class=\"%s\" d=\"", major ? "grid" : "grid minor");
    for (int i = 0; i < plot->vertical_count; i++) {
      if (plot->vertical[i].major == major)
        cli_bytes_format(out, "M%.1f %.1fv%.1f", plot->vertical[i].at, area->y, area->height);
    }
    for (int i = 0; i < plot->horizontal_count; i++) {
      if (plot->horizontal[i].major == major)
        cli_bytes_format(out, "M%.1f %.1fh%.1f", area->x, plot->horizontal[i].at, area->width);
    }
    cli_bytes_format(out, "M%.1f %.1f\"/>\n", area->x, area->y);
  }
  cli_bytes_format(out, "<path class=\"axis\" d=\"M%.1f %.1fv%.1fh%.1f\"/>\n", area->x, area->y, area->height,
                   area->width);
}

static const char *const roof_looks[REPORT_ROOF_KINDS] = {"fma", "fp16", "matrix", "memory", "cache"};

static void add_legend_mark(const char *colour, int mark, cli_bytes *out) {
  cli_bytes_format(out,
                   "<li><svg class=\"sign\" width=\"14\" height=\"14\" viewBox=\"-7 -7 14 14\" "
                   "aria-hidden=\"true\"><path class=\"%s\" d=\"",
                   colour);
  report_mark_write(mark, out);
  cli_bytes_text(out, "\"/></svg>");
}

static void add_legend(const report_runs *runs, const report_roofline *plot, cli_bytes *out) {
  static const char *const names[REPORT_ROOF_KINDS] = {"FMA peak (fp32)", "fp16 peak", "matrix unit's peak",
                                                       "memory read", "cache read"};
  int seen[REPORT_ROOF_KINDS] = {0}, doubtful = 0;
  char look[32];
  cli_bytes_text(out, "<ul class=\"key\">\n");
  for (int run = 0; run < runs->count && runs->count > 1; run++) {
    cli_bytes_format(out, "<li><i class=\"swatch b%d\"></i><b>%c</b> ", run, report_letter(run));
    cli_bytes_xml(out, runs->name[run]);
    cli_bytes_text(out, "</li>\n");
  }
  for (size_t variant = 0; variant < runs->variant_count; variant++) {
    const report_row *found = NULL;
    for (size_t i = 0; i < plot->point_count; i++) {
      if (plot->point[i].row->variant == variant && found == NULL)
        found = plot->point[i].row;
    }
    if (found == NULL)
      continue;
    snprintf(look, sizeof look, "s%d", report_colour(runs, found));
    add_legend_mark(runs->count > 1 ? "plain" : look, report_mark(found), out);
    cli_bytes_xml(out, found->row->variant);
    cli_bytes_text(out, "</li>\n");
  }
  for (size_t i = 0; i < plot->point_count; i++)
    doubtful |= report_doubtful(plot->point[i].row->row);
  if (doubtful) {
    add_legend_mark("plain hollow", 0, out);
    cli_bytes_text(out, "hollow: throttled, or a doubtful clock</li>\n");
  }
  for (int i = 0; i < plot->roof_count; i++) {
    const report_roof_kind kind = plot->roof[i].kind;
    if (!seen[kind])
      cli_bytes_format(out,
                       "<li><svg class=\"sign\" width=\"26\" height=\"14\" viewBox=\"0 0 26 14\" "
                       "aria-hidden=\"true\"><path class=\"roof %s\" d=\"M0 7H26\"/></svg>%s</li>\n",
                       roof_looks[kind], names[kind]);
    seen[kind] = 1;
  }
  cli_bytes_text(out, "</ul>\n");
}

static void add_points(const report_runs *runs, const report_roofline *plot, cli_bytes *out) {
  for (size_t i = 0; i < plot->point_count; i++) {
    const report_point *point = &plot->point[i];
    cli_bytes_format(out, "<path class=\"point s%d%s\" transform=\"translate(%.1f %.1f)\" d=\"",
                     report_colour(runs, point->row), report_doubtful(point->row->row) ? " hollow" : "", point->x,
                     point->y);
    report_mark_write(report_mark(point->row), out);
    cli_bytes_text(out, "\"><title>");
    report_tip_write(runs, point->row, out);
    cli_bytes_text(out, "</title></path>\n");
  }
}

static void add_plot(const report_runs *runs, const report_roofline *plot, cli_bytes *out) {
  cli_bytes_format(out,
                   "<div class=\"scroll\">\n<svg class=\"chart\" viewBox=\"0 0 %g %g\" role=\"img\" "
                   "aria-label=\"Roofline plot: GFLOP/s over floating-point operations a byte, both axes "
                   "logarithmic; the table has the numbers\">\n",
                   plot->width, plot->height);
  add_grid(plot, out);
  for (int i = 0; i < plot->roof_count; i++) {
    const report_roof *roof = &plot->roof[i];
    char colour[8] = "";
    if (runs->count > 1)
      snprintf(colour, sizeof colour, " l%d", roof->run);
    cli_bytes_format(out, "<path class=\"roof %s%s\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n", roof_looks[roof->kind], colour,
                     roof->x1, roof->y1, roof->x2, roof->y2);
  }
  add_points(runs, plot, out);
  report_labels_write(&plot->labels, out);
  cli_bytes_text(out, "</svg>\n</div>\n");
  add_legend(runs, plot, out);
}

void report_roofline_write(const report_runs *runs, const report_roofline *plot, cli_bytes *out) {
  cli_bytes_text(out, "<figure>\n<h2>Roofline</h2>\n");
  if (plot->point_count > 0 || plot->roof_count > 0)
    add_plot(runs, plot, out);
  if (plot->point_count == 0)
    cli_bytes_text(out, "<p>No row was timed: there is no point to show.</p>\n");
  if (plot->roof_count == 0)
    cli_bytes_text(out, "<p>No peak was measured: there is no roof to show.</p>\n");
  cli_bytes_text(out, "</figure>\n");
}
