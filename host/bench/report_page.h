/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the report: what is in it, where it stands, and how it is written. */
#ifndef CLATTN_BENCH_REPORT_PAGE_H
#define CLATTN_BENCH_REPORT_PAGE_H

#include "picture_layout.h"
#include "report.h"

enum { REPORT_COLOURS = 8, REPORT_MARKS = 8 };

/* ---- what is in it: report_rows.c ---- */

typedef struct report_row {
  const bench_row *row;
  int run;
  size_t order;                 /* in its run */
  size_t suite, shape, variant; /* numbers by first appearance */
  size_t problem;               /* likewise; shapes of several suites may share one */
} report_row;

typedef struct report_runs {
  const bench_run *const *run;
  const char *const *name;
  int count;
  report_row *row; /* of all runs: by suite, by shape, then as they ran; of several runs, by variant and run */
  size_t row_count;
  const char **variant;
  const bench_shape **shape; /* same suite, name and problem line */
  const char **suite, **problem;
  size_t variant_count, shape_count, suite_count, problem_count;
} report_runs;

int report_runs_make(const bench_run *const *runs, int count, const char *const *names, report_runs *out);
void report_runs_release(report_runs *runs);
int report_timed(const bench_row *row); /* has a time that counts */
int report_doubtful(const bench_row *row);
/* Colours tell runs apart, of one run its variants; marks tell variants apart. */
int report_colour(const report_runs *runs, const report_row *row);
int report_mark(const report_row *row);
char report_letter(int run); /* 'A' for the first */

/* ---- numbers as text: report_numbers.c ---- */

enum { REPORT_NUMBER_BYTES = 48 };
/* Three digits that count; whole numbers from 100 on, in groups of three.  Each returns text. */
const char *report_number(double value, char text[REPORT_NUMBER_BYTES]);
const char *report_time(int64_t nanoseconds, char text[REPORT_NUMBER_BYTES]);
const char *report_size(double bytes, char text[REPORT_NUMBER_BYTES]);
/* Short enough for an axis: 0.01, 1, 10k, 1M. */
const char *report_tick(double value, char text[REPORT_NUMBER_BYTES]);
const char *report_bound_name(bench_bound bound);
const char *report_status_name(bench_status status);

/* ---- words in a chart: report_labels.c ---- */

typedef struct report_label {
  char *text;
  double x, y, size, angle; /* the anchor, on the base line; degrees, clockwise */
  cli_anchor anchor;
  const char *look; /* class */
  double width;     /* no common font is wider */
} report_label;

typedef struct report_labels {
  report_label *label;
  size_t count, room;
  int failed;
} report_labels;

int report_labels_touch(const report_label *a, const report_label *b);
int report_label_covers(const report_label *label, double x, double y, double radius);
/* Whether the line between two points goes through it. */
int report_label_crossed(const report_label *label, double x1, double y1, double x2, double y2);
/* Whether it would touch one that is there. */
int report_labels_blocked(const report_labels *labels, const report_label *label);
/* Adds a copy with this text, shortened to `most` pixels; 0: as long as it is. */
void report_labels_add(report_labels *labels, const report_label *label, const char *text, double most);
void report_labels_write(const report_labels *labels, cli_bytes *out);
void report_labels_release(report_labels *labels);

/* ---- roofline: report_roofline.c has the layout ---- */

typedef enum report_roof_kind {
  REPORT_ROOF_FMA,
  REPORT_ROOF_HALF,
  REPORT_ROOF_MATRIX,
  REPORT_ROOF_MEMORY,
  REPORT_ROOF_CACHE,
  REPORT_ROOF_KINDS
} report_roof_kind;

typedef struct report_roof {
  double x1, y1, x2, y2;
  report_roof_kind kind;
  int run;
} report_roof;

typedef struct report_point {
  double x, y;
  const report_row *row;
} report_point;

typedef struct report_grid_line {
  double at;
  int major;
} report_grid_line;

enum { REPORT_MOST_GRID_LINES = 128 };

typedef struct report_roofline {
  double width, height;
  cli_box area;
  double low_x, high_x, low_y, high_y; /* powers of ten at the area's edges */
  report_grid_line vertical[REPORT_MOST_GRID_LINES], horizontal[REPORT_MOST_GRID_LINES];
  int vertical_count, horizontal_count;
  report_roof roof[BENCH_REPORT_MOST_RUNS * REPORT_ROOF_KINDS];
  int roof_count;
  report_point *point;
  size_t point_count;
  report_labels labels; /* no two of them overlap, and none covers a point or a roof */
} report_roofline;

int report_roofline_make(const report_runs *runs, report_roofline *out);
void report_roofline_release(report_roofline *roofline);
void report_roofline_write(const report_runs *runs, const report_roofline *plot, cli_bytes *out);
/* What a run's peak of this kind is, operations or bytes a second; 0: unknown. */
double report_peak(const bench_peaks *peaks, report_roof_kind kind);
void report_mark_write(int mark, cli_bytes *out); /* the path's data, round 0 */

/* ---- bars: one chart a suite ---- */

typedef struct report_bar {
  cli_box box;
  const report_row *row;
  int wrong;
} report_bar;

typedef struct report_chart {
  double width, height;
  cli_box area;
  int by_percent; /* else by GFLOP/s */
  double step;    /* between grid lines */
  double most;    /* at the area's right edge */
  report_bar *bar;
  size_t bar_count;
  report_labels labels; /* no two of them overlap */
} report_chart;

int report_chart_make(const report_runs *runs, size_t suite, report_chart *out);
void report_chart_release(report_chart *chart);
void report_chart_write(const report_runs *runs, const report_chart *chart, const char *title, cli_bytes *out);

/* ---- sections of the page ---- */

void report_facts_write(const report_runs *runs, cli_bytes *out);
void report_banners_write(const report_runs *runs, cli_bytes *out);
int report_compare_write(const report_runs *runs, cli_bytes *out);
int report_bars_write(const report_runs *runs, cli_bytes *out);
void report_table_write(const report_runs *runs, cli_bytes *out);
void report_problems_write(const report_runs *runs, cli_bytes *out);
/* What a row says when pointed at: lines, escaped. */
void report_tip_write(const report_runs *runs, const report_row *entry, cli_bytes *out);

/* ---- style and script: report_style.c ---- */

typedef struct report_theme {
  const char *ground, *text, *muted, *line, *soft, *accent, *bad;
  const char *colour[REPORT_COLOURS];
} report_theme;

extern const report_theme report_themes[2]; /* light, dark */
void report_style_write(cli_bytes *out);
void report_script_write(cli_bytes *out);

#endif
