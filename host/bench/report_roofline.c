/* SPDX-License-Identifier: Apache-2.0 */
/* The roofline plot's layout: what the device can do at most for so many operations a byte, and what the rows did. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "picture_unicode.h"
#include "report_page.h"

enum { WIDTH = 740, HEIGHT = 470, LEFT = 62, RIGHT = 14, TOP = 12, BOTTOM = 50 };

static const double label_size = 11, point_radius = 5;

double report_peak(const bench_peaks *peaks, report_roof_kind kind) {
  const double all[REPORT_ROOF_KINDS] = {peaks->fma_flops, peaks->half_flops, peaks->matrix_flops, peaks->memory_bytes,
                                         peaks->cache_bytes};
  return isfinite(all[kind]) && all[kind] > 0 ? all[kind] : 0;
}

/* GFLOP/s of the highest flat roof. */
static double highest(const bench_peaks *peaks) {
  double most = 0;
  for (int kind = REPORT_ROOF_FMA; kind <= REPORT_ROOF_MATRIX; kind++)
    most = fmax(most, report_peak(peaks, (report_roof_kind)kind) / 1e9);
  return most;
}

/* ---- axes ---- */

/* Grows to hold a positive number. */
static void extend(double *low, double *high, double value) {
  if (!isfinite(value) || value <= 0)
    return;
  *low = fmin(*low, log10(value));
  *high = fmax(*high, log10(value));
}

/* Some room, and at least a decade and a half; without any number 1 to 1000. */
static void settle(double *low, double *high, double below, double above) {
  const double least = 1.5;
  if (*low > *high) {
    *low = 0;
    *high = 3;
  }
  *low -= below;
  *high += above;
  if (*high - *low < least) {
    const double more = (least - (*high - *low)) / 2;
    *low -= more;
    *high += more;
  }
}

static int places_of(const bench_row *row, double *x, double *y) {
  if (!report_timed(row) || row->bytes == 0 || row->flops == 0 || !isfinite(row->flops_per_second) ||
      row->flops_per_second <= 0)
    return 0;
  *x = (double)row->flops / (double)row->bytes;
  *y = row->flops_per_second / 1e9;
  return 1;
}

static void make_axes(const report_runs *runs, report_roofline *out) {
  double x = 0, y = 0;
  out->low_x = out->low_y = HUGE_VAL;
  out->high_x = out->high_y = -HUGE_VAL;
  for (size_t i = 0; i < runs->row_count; i++) {
    if (places_of(runs->row[i].row, &x, &y)) {
      extend(&out->low_x, &out->high_x, x);
      extend(&out->low_y, &out->high_y, y);
    }
  }
  for (int run = 0; run < runs->count; run++) {
    const bench_peaks *peaks = &runs->run[run]->context.peaks;
    const double memory = report_peak(peaks, REPORT_ROOF_MEMORY) / 1e9;
    for (int kind = REPORT_ROOF_FMA; kind <= REPORT_ROOF_MATRIX; kind++) {
      const double peak = report_peak(peaks, (report_roof_kind)kind) / 1e9;
      extend(&out->low_y, &out->high_y, peak);
      if (memory > 0) /* both sides of the ridge, four times as far */
        extend(&out->low_x, &out->high_x, peak / memory / 4);
      if (memory > 0)
        extend(&out->low_x, &out->high_x, peak / memory * 4);
    }
  }
  settle(&out->low_x, &out->high_x, 0.15, 0.15);
  settle(&out->low_y, &out->high_y, 0.35, 0.3);
}

static double place_x(const report_roofline *plot, double value) {
  return plot->area.x + (log10(value) - plot->low_x) / (plot->high_x - plot->low_x) * plot->area.width;
}

static double place_y(const report_roofline *plot, double value) {
  return plot->area.y + (plot->high_y - log10(value)) / (plot->high_y - plot->low_y) * plot->area.height;
}

/* A number beside the axis, where there is room. */
static void add_tick(report_roofline *plot, int vertical, double at, double value) {
  char text[REPORT_NUMBER_BYTES];
  report_label label = {NULL, at, plot->area.y + plot->area.height + 16, label_size, 0, CLI_ANCHOR_MIDDLE, "m", 0};
  if (!vertical) {
    label.x = plot->area.x - 6;
    label.y = at + 4;
    label.anchor = CLI_ANCHOR_END;
  }
  label.width = cli_text_width(report_tick(value, text)) * label_size;
  if (!report_labels_blocked(&plot->labels, &label))
    report_labels_add(&plot->labels, &label, text, 0);
}

/* Lines and numbers of one axis: whole powers of ten, and on short axes 2 and 5 too. */
static int make_grid(report_roofline *plot, int vertical) {
  report_grid_line *lines = vertical ? plot->vertical : plot->horizontal;
  const double low = vertical ? plot->low_x : plot->low_y, high = vertical ? plot->high_x : plot->high_y;
  const double decades = high - low;
  const int step = (int)fmax(1, ceil(decades / 13)), digits = step > 1 || decades > 7 ? 1 : 9;
  const int first = (int)floor(low / step) * step, last = (int)ceil(high);
  int count = 0;
  for (int decade = first; decade <= last; decade += step) {
    for (int digit = 1; digit <= digits; digit++) {
      const double power = decade + log10(digit), value = pow(10, power);
      if (power < low || power > high || count == REPORT_MOST_GRID_LINES)
        continue;
      report_grid_line *line = &lines[count++];
      line->at = vertical ? place_x(plot, value) : place_y(plot, value);
      line->major = digit == 1;
      if (digit == 1 || (decades < 3 && (digit == 2 || digit == 5)))
        add_tick(plot, vertical, line->at, value);
    }
  }
  return count;
}

static void add_titles(report_roofline *plot) {
  const double middle_x = plot->area.x + plot->area.width / 2, middle_y = plot->area.y + plot->area.height / 2;
  const report_label bottom = {NULL, middle_x, plot->height - 9, 12, 0, CLI_ANCHOR_MIDDLE, "t", 0};
  const report_label left = {NULL, 14, middle_y, 12, -90, CLI_ANCHOR_MIDDLE, "t", 0};
  report_labels_add(&plot->labels, &bottom, "arithmetic intensity, floating-point operations a byte (FLOP/B)", 0);
  report_labels_add(&plot->labels, &left, "GFLOP/s", 0);
}

/* ---- roofs ---- */

/* From one point to another in units of the axes, as far as it is in the area; lines rise or are flat. */
static void add_roof(report_roofline *plot, int run, report_roof_kind kind, const double from[2], const double to[2]) {
  const double left = plot->area.x, bottom = plot->area.y + plot->area.height, right = left + plot->area.width;
  report_roof roof = {
      place_x(plot, from[0]), place_y(plot, from[1]), place_x(plot, to[0]), place_y(plot, to[1]), kind, run};
  const double slope = roof.x2 > roof.x1 ? (roof.y2 - roof.y1) / (roof.x2 - roof.x1) : 0;
  if (roof.y1 > bottom && slope < 0) {
    roof.x1 += (bottom - roof.y1) / slope;
    roof.y1 = bottom;
  }
  if (roof.x1 < left) {
    roof.y1 += slope * (left - roof.x1);
    roof.x1 = left;
  }
  if (roof.x2 > right) {
    roof.y2 += slope * (right - roof.x2);
    roof.x2 = right;
  }
  if (roof.x1 < roof.x2 && roof.y1 <= bottom)
    plot->roof[plot->roof_count++] = roof;
}

static void add_roofs(const report_runs *runs, report_roofline *plot, int run) {
  const bench_peaks *peaks = &runs->run[run]->context.peaks;
  const double first = pow(10, plot->low_x), last = pow(10, plot->high_x), top = highest(peaks);
  const double memory = report_peak(peaks, REPORT_ROOF_MEMORY) / 1e9;
  for (int kind = REPORT_ROOF_MEMORY; kind <= REPORT_ROOF_CACHE; kind++) {
    const double peak = report_peak(peaks, (report_roof_kind)kind) / 1e9;
    const double end = peak > 0 && top > 0 ? fmin(last, top / peak) : last;
    /* From far below, so that the clipping finds where it enters the area. */
    const double start = fmin(first, end) / 1e6;
    if (peak > 0)
      add_roof(plot, run, (report_roof_kind)kind, (const double[]){start, peak * start},
               (const double[]){end, peak * end});
  }
  for (int kind = REPORT_ROOF_FMA; kind <= REPORT_ROOF_MATRIX; kind++) {
    const double peak = report_peak(peaks, (report_roof_kind)kind) / 1e9;
    const double start = memory > 0 ? fmax(first, peak / memory) : first;
    if (peak > 0 && start < last)
      add_roof(plot, run, (report_roof_kind)kind, (const double[]){start, peak}, (const double[]){last, peak});
  }
}

/* ---- names ---- */

static int is_free(const report_roofline *plot, const report_label *label) {
  const report_label *l = label;
  const double radians = l->angle * 3.14159265358979323846 / 180, cosine = cos(radians), sine = sin(radians);
  const double left = plot->area.x + 2, right = plot->area.x + plot->area.width - 2;
  const double begin = l->anchor == CLI_ANCHOR_BEGIN ? 0 : l->anchor == CLI_ANCHOR_END ? -l->width : -l->width / 2;
  for (int corner = 0; corner < 4; corner++) {
    const double along = begin + (corner % 2) * l->width, across = corner / 2 ? -0.9 * l->size : 0.25 * l->size;
    const double x = l->x + along * cosine - across * sine, y = l->y + along * sine + across * cosine;
    if (x < left || x > right || y < plot->area.y + 2 || y > plot->area.y + plot->area.height - 2)
      return 0;
  }
  for (size_t i = 0; i < plot->point_count; i++) {
    if (report_label_covers(label, plot->point[i].x, plot->point[i].y, point_radius + 1))
      return 0;
  }
  for (int i = 0; i < plot->roof_count; i++) {
    const report_roof *roof = &plot->roof[i];
    if (report_label_crossed(label, roof->x1, roof->y1, roof->x2, roof->y2))
      return 0;
  }
  return !report_labels_blocked(&plot->labels, label);
}

/* Beside its line, where there is room. */
static void name_roof(const report_runs *runs, report_roofline *plot, const report_roof *roof) {
  static const char *const names[] = {"FMA", "fp16", "matrix", "memory", "cache"};
  enum { TRIES = 12 };
  char text[2 * REPORT_NUMBER_BYTES], number[REPORT_NUMBER_BYTES], letter[4] = "";
  const double peak = report_peak(&runs->run[roof->run]->context.peaks, roof->kind) / 1e9;
  const int flat = roof->kind <= REPORT_ROOF_MATRIX;
  if (runs->count > 1)
    snprintf(letter, sizeof letter, "%c: ", report_letter(roof->run));
  snprintf(text, sizeof text, "%s%s %s %s", letter, names[roof->kind], report_number(peak, number),
           flat ? "GFLOP/s" : "GB/s");
  report_label label = {NULL, 0, 0, label_size, 0, flat ? CLI_ANCHOR_END : CLI_ANCHOR_MIDDLE, "m halo", 0};
  const double dx = roof->x2 - roof->x1, dy = roof->y2 - roof->y1, length = hypot(dx, dy);
  label.angle = atan2(dy, dx) * 180 / 3.14159265358979323846;
  label.width = cli_text_width(text) * label_size;
  for (int below = 0; below < 2; below++) {
    const double off = below ? 13 : -5;
    for (int i = 0; i < TRIES; i++) {
      const double share = flat ? 1 - i / (double)TRIES : 0.4 + (i % 2 ? -0.05 : 0.05) * (i + 1) / 2;
      label.x = roof->x1 + share * dx - off * dy / length - (flat && i == 0 ? 6 : 0);
      label.y = roof->y1 + share * dy + off * dx / length;
      if (is_free(plot, &label)) {
        report_labels_add(&plot->labels, &label, text, 0);
        return;
      }
    }
  }
}

/* Each shape once, at its highest point that has room beside it. */
static void name_points(report_roofline *plot) {
  enum { MOST_NAMES = 48, MOST_TRIES = 1000 };
  static const struct {
    double x, y;
    cli_anchor anchor;
  } places[] = {{9, 4, CLI_ANCHOR_BEGIN},   {-9, 4, CLI_ANCHOR_END},   {0, -9, CLI_ANCHOR_MIDDLE},
                {0, 17, CLI_ANCHOR_MIDDLE}, {7, -6, CLI_ANCHOR_BEGIN}, {7, 13, CLI_ANCHOR_BEGIN},
                {-7, -6, CLI_ANCHOR_END},   {-7, 13, CLI_ANCHOR_END}};
  size_t named = 0;
  for (size_t i = 0, tries = 0; i < plot->point_count && named < MOST_NAMES && tries < MOST_TRIES; i++) {
    const report_point *point = &plot->point[i];
    size_t best = i;
    for (size_t j = 0; j < plot->point_count; j++) {
      if (plot->point[j].row->shape == point->row->shape &&
          (plot->point[j].y < plot->point[best].y || (plot->point[j].y <= plot->point[best].y && j < best)))
        best = j;
    }
    if (best != i)
      continue;
    tries++;
    char *text = cli_text_shorten(point->row->row->shape.name, 15);
    if (text == NULL) {
      plot->labels.failed = 1;
      return;
    }
    report_label label = {NULL, 0, 0, label_size, 0, CLI_ANCHOR_BEGIN, "t halo", cli_text_width(text) * label_size};
    for (size_t k = 0; k < sizeof places / sizeof places[0]; k++) {
      label.x = point->x + places[k].x;
      label.y = point->y + places[k].y;
      label.anchor = places[k].anchor;
      if (text[0] != 0 && is_free(plot, &label)) {
        report_labels_add(&plot->labels, &label, text, 0);
        named++;
        break;
      }
    }
    free(text);
  }
}

int report_roofline_make(const report_runs *runs, report_roofline *out) {
  double x = 0, y = 0;
  memset(out, 0, sizeof *out);
  out->width = WIDTH;
  out->height = HEIGHT;
  out->area = (cli_box){LEFT, TOP, WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM};
  out->point = calloc(runs->row_count + 1, sizeof *out->point);
  if (out->point == NULL)
    return cli_fail_memory();
  make_axes(runs, out);
  out->vertical_count = make_grid(out, 1);
  out->horizontal_count = make_grid(out, 0);
  add_titles(out);
  for (size_t i = 0; i < runs->row_count; i++) {
    if (places_of(runs->row[i].row, &x, &y))
      out->point[out->point_count++] = (report_point){place_x(out, x), place_y(out, y), &runs->row[i]};
  }
  for (int run = 0; run < runs->count; run++)
    add_roofs(runs, out, run);
  for (int i = 0; i < out->roof_count; i++)
    name_roof(runs, out, &out->roof[i]);
  name_points(out);
  if (!out->labels.failed)
    return CLI_OK;
  report_roofline_release(out);
  return cli_fail_memory();
}

void report_roofline_release(report_roofline *roofline) {
  if (roofline == NULL)
    return;
  free(roofline->point);
  report_labels_release(&roofline->labels);
  memset(roofline, 0, sizeof *roofline);
}
