/* SPDX-License-Identifier: Apache-2.0 */
/* The benchmark's report: what stands where, what the page says, and what no text of a file can do to it. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "cli_program.h"
#include "report_page.h"

/* ---- made-up runs ---- */

enum { MOST_RUNS = BENCH_REPORT_MOST_RUNS, MOST_ROWS = 64 };

static bench_row row_memory[MOST_RUNS][MOST_ROWS];
static bench_run run_memory[MOST_RUNS];
static const bench_run *const all_runs[MOST_RUNS] = {&run_memory[0], &run_memory[1], &run_memory[2], &run_memory[3],
                                                     &run_memory[4], &run_memory[5], &run_memory[6], &run_memory[7]};
static const char *names[MOST_RUNS] = {"a.json", "b.json", "c.json", "d.json", "e.json", "f.json", "g.json", "h.json"};
static uint32_t random_state;

static double next_random(void) {
  random_state = random_state * 1664525u + 1013904223u;
  return (double)(random_state >> 8) / 16777216.0;
}

/* A device of 100 GFLOP/s and 10 GB/s without rows. */
static bench_run *make_run(int number) {
  bench_run *run = &run_memory[number];
  memset(run, 0, sizeof *run);
  memset(row_memory[number], 0, sizeof row_memory[number]);
  run->rows = row_memory[number];
  run->capacity = MOST_ROWS;
  bench_context *context = &run->context;
  snprintf(context->device, sizeof context->device, "a device");
  snprintf(context->driver, sizeof context->driver, "1.2");
  snprintf(context->clattn, sizeof context->clattn, "0.9.0");
  snprintf(context->command, sizeof context->command, "clattn bench");
  context->peaks.fma_flops = 100e9;
  context->peaks.memory_bytes = 10e9;
  context->peaks.launch_ns = 8200;
  return run;
}

/* Operations a byte, GFLOP/s. */
static bench_row *add_row(bench_run *run, const char *suite, const char *name, const char *variant, double intensity,
                          double rate) {
  assert_true(run->count < MOST_ROWS);
  bench_row *row = &run->rows[run->count++];
  snprintf(row->shape.suite, sizeof row->shape.suite, "%s", suite);
  snprintf(row->shape.name, sizeof row->shape.name, "%s", name);
  snprintf(row->shape.line, sizeof row->shape.line, "b=1 hq=1 sq=2 sk=3 d=4");
  snprintf(row->pass, sizeof row->pass, "forward");
  snprintf(row->variant, sizeof row->variant, "%s", variant);
  row->bytes = 1000000000;
  row->flops = row->flash_flops = (uint64_t)(intensity * 1e9);
  row->median_ns = (int64_t)fmax(1, (double)row->flops / rate);
  row->minimum_ns = row->first_quartile_ns = row->third_quartile_ns = row->median_ns;
  row->samples = 20;
  row->launches = 1;
  row->by_events = 1;
  row->flops_per_second = rate * 1e9;
  row->bytes_per_second = rate * 1e9 / intensity;
  const double roof = fmin(run->context.peaks.fma_flops, run->context.peaks.memory_bytes * intensity);
  row->bound = roof < run->context.peaks.fma_flops ? BENCH_BOUND_MEMORY : BENCH_BOUND_FMA;
  row->percent_of_bound = roof > 0 ? 100 * rate * 1e9 / roof : 0;
  return row;
}

static void set_status(bench_row *row, bench_status status, const char *reason) {
  row->status = status;
  row->median_ns = 0;
  snprintf(row->reason, sizeof row->reason, "%s", reason);
}

/* Rows of several suites and variants all over the plot, every status among them. */
static void fill_at_random(bench_run *run, int rows) {
  static const char *const variants[] = {"flash-cpu-vector", "three-step", "decode-cpu", "flash-gpu-simt",
                                         "w\xe6\xb3\xa8\xe6\x84\x8f WWWWWWWWWWWWWWWWWWWWWWWWWWWWWW"};
  for (int i = 0; i < rows; i++) {
    char name[BENCH_NAME_BYTES], suite[BENCH_NAME_BYTES];
    snprintf(name, sizeof name, i % 7 == 3 ? "a shape with a name as long as it may be, or nearly so %d" : "shape %d",
             i / 2);
    snprintf(suite, sizeof suite, "suite %d", i / 24);
    const double intensity = pow(10, 4 * next_random() - 1), rate = 200 * next_random() + 1e-3;
    bench_row *row = add_row(run, suite, name, variants[i % 5], intensity, rate);
    row->throttled = next_random() < 0.2;
    row->clock_suspect = next_random() < 0.2;
    const double choice = next_random();
    if (choice < 0.05)
      set_status(row, BENCH_WRONG, "differs");
    else if (choice < 0.1)
      set_status(row, BENCH_SKIPPED, "too slow");
    else if (choice < 0.15)
      set_status(row, BENCH_FAILED, "no memory");
  }
}

/* ---- the page ---- */

static char *page; /* of the last call, 0-terminated */
static size_t page_bytes;

static void make_page(int count) {
  cli_bytes bytes;
  assert_int_equal(bench_report_text(all_runs, count, names, "report", &bytes), 0);
  free(page);
  page = malloc(bytes.count + 1);
  assert_non_null(page);
  memcpy(page, bytes.data, bytes.count);
  page[bytes.count] = 0;
  page_bytes = bytes.count;
  assert_int_equal(strlen(page), page_bytes);
  cli_bytes_release(&bytes);
}

static int count_of(const char *text, const char *part) {
  int count = 0;
  for (; (text = strstr(text, part)) != NULL; text += strlen(part))
    count++;
  return count;
}

static void has(const char *part) {
  if (strstr(page, part) == NULL)
    fail_msg("the page lacks '%s'", part);
}

static void lacks(const char *part) {
  const char *at = strstr(page, part);
  if (at != NULL)
    fail_msg("the page has '%.100s'", at);
}

/* `at` is behind '<': checks names and quotes up to '>', which it returns. */
static const char *check_tag(const char *at) {
  at += strcspn(at, " />");
  while (*at == ' ') {
    at++;
    const size_t name = strspn(at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-0123456789");
    assert_true(name > 0);
    at += name;
    assert_memory_equal(at, "=\"", 2);
    at += 2 + strcspn(at + 2, "\"<");
    assert_int_equal(*at, '"');
    at++;
  }
  at += *at == '/';
  assert_int_equal(*at, '>');
  return at;
}

/* From the body's tag to the script: elements nest, quotes close, references are numbers. */
static void check_body(void) {
  char open[64][32];
  int depth = 0;
  const char *const end = strstr(page, "<div id=\"tip\" hidden>"), *at = strstr(page, "<body>");
  assert_non_null(end);
  assert_non_null(at);
  for (; at < end; at++) {
    if (*at == '&') {
      assert_int_equal(at[1], '#');
      at += 2 + strspn(at + 2, "0123456789");
      assert_int_equal(*at, ';');
    }
    if (*at != '<')
      continue;
    const int closing = at[1] == '/';
    const char *name = at + 1 + closing;
    const size_t length = strcspn(name, " />");
    const char *stop = closing ? name + length : check_tag(name);
    assert_int_equal(*stop, '>');
    assert_true(length > 0 && length < sizeof open[0]);
    if (closing) {
      assert_true(depth > 0);
      depth--;
      if (strlen(open[depth]) != length || memcmp(open[depth], name, length) != 0)
        fail_msg("<%s> is closed by '%.80s'", open[depth], at);
    } else if (stop[-1] != '/') {
      assert_true(depth < 64);
      memcpy(open[depth], name, length);
      open[depth++][length] = 0;
    }
    at = stop;
  }
  assert_int_equal(depth, 1); /* the body itself */
}

static void counts(void **state) {
  (void)state;
  random_state = 1;
  for (int runs = 1; runs <= MOST_RUNS; runs += 7) {
    int timed = 0, wrong = 0, left_out = 0, rows = 0;
    for (int i = 0; i < runs; i++) {
      fill_at_random(make_run(i), 60);
      for (size_t j = 0; j < run_memory[i].count; j++) {
        const bench_status status = run_memory[i].rows[j].status;
        timed += status == BENCH_OK;
        wrong += status == BENCH_WRONG;
        left_out += status != BENCH_OK;
        rows++;
      }
    }
    assert_true(wrong > 0 && left_out > wrong);
    make_page(runs);
    check_body();
    assert_int_equal(count_of(page, "<path class=\"point "), timed);
    assert_int_equal(count_of(page, "<rect class=\"bar b"), timed);
    assert_int_equal(count_of(page, ">WRONG, not ranked</text>"), wrong);
    assert_int_equal(count_of(page, "<rect class=\"bar wrong\""), wrong + 1); /* and the legend */
    assert_int_equal(count_of(page, "</title>"), 1 + 2 * timed + wrong);
    const char *table = strstr(page, "<h2>All rows</h2>"), *lists = page;
    assert_non_null(table);
    assert_int_equal(count_of(table, "<tr>"), rows + 1);
    int listed = 0;
    while ((lists = strstr(lists, "<ul class=\"left-out\">")) != NULL) {
      for (lists = strstr(lists, "<li>"); strncmp(lists, "<li>", 4) == 0; lists = strchr(lists, '\n') + 1)
        listed++;
    }
    assert_int_equal(listed, left_out);
    assert_int_equal(count_of(page, "<svg class=\"chart\""), 1 + 3);
    assert_int_equal(count_of(page, "<h2>Medians side by side</h2>"), runs > 1);
  }
}

/* Nothing from elsewhere, and the same bytes each time. */
static void stands_alone(void **state) {
  (void)state;
  static const char *const elsewhere[] = {"http:", "https:", "src=", "@import", "import(", "fetch(", "url(\"", "//"};
  random_state = 2;
  fill_at_random(make_run(0), 40);
  make_page(1);
  for (size_t i = 0; i < sizeof elsewhere / sizeof elsewhere[0]; i++)
    lacks(elsewhere[i]);
  has("default-src 'none'");
  has("@media screen and (prefers-color-scheme: dark)");
  assert_memory_equal(page, "<!DOCTYPE html>", 15);
  assert_string_equal(page + page_bytes - 8, "</html>\n");
  char *before = page;
  page = NULL;
  make_page(1);
  assert_string_equal(page, before);
  free(before);
}

static void escapes(void **state) {
  (void)state;
  bench_run *run = make_run(0);
  static const char evil[] = "</title></svg></script><script>alert(1)</script>\"'&amp;\x01\xff";
  bench_row *row = add_row(run, evil, evil, evil, 20, 50);
  snprintf(row->reason, sizeof row->reason, "%s", evil);
  snprintf(row->shape.source, sizeof row->shape.source, "%s", evil);
  snprintf(row->shape.line, sizeof row->shape.line, "b=1 $(touch x) `y` 'z' <b>");
  row = add_row(run, evil, "wrong", evil, 20, 50);
  set_status(row, BENCH_WRONG, evil);
  bench_context *context = &run->context;
  char *const texts[] = {context->device,  context->vendor, context->driver, context->platform,
                         context->version, context->os,     context->cpu};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
    snprintf(texts[i], BENCH_TEXT_BYTES, "%s", evil);
  *run_memory[1].context.device = 0;
  run_memory[1] = run_memory[0];
  names[0] = evil;
  for (int runs = 1; runs <= 2; runs++) {
    make_page(runs);
    check_body();
    assert_int_equal(count_of(page, "<script"), 1);
    assert_int_equal(count_of(page, "</script"), 1);
    assert_int_equal(count_of(page, "<svg class=\"chart\""), 2);
    lacks("\x01");
    lacks("\xff");
    lacks("&amp;");
    has("&#60;script&#62;alert(1)&#60;/script&#62;&#34;&#39;&#38;amp;");
    /* The shell must not run what a file says. */
    has("--problem &#39;b=1 $(touch x) `y` &#39;\\&#39;&#39;z&#39;\\&#39;&#39; &#60;b&#62;&#39;</code>");
    has("--problem &#34;b=1 hq=1 sq=2 sk=3 d=4&#34;</code>");
  }
  names[0] = "a.json";
}

/* ---- layout ---- */

static void check_labels(const report_labels *labels, double width, double height) {
  for (size_t i = 0; i < labels->count; i++) {
    const report_label *a = &labels->label[i];
    for (size_t j = 0; j < i; j++) {
      if (report_labels_touch(a, &labels->label[j]))
        fail_msg("'%s' and '%s' overlap", a->text, labels->label[j].text);
    }
    const double left = a->anchor == CLI_ANCHOR_BEGIN ? 0 : a->anchor == CLI_ANCHOR_END ? a->width : a->width / 2;
    if (a->angle == 0 &&
        (a->x - left < 0 || a->x - left + a->width > width || a->y < a->size * 0.8 || a->y > height - 2))
      fail_msg("'%s' leaves the chart", a->text);
  }
}

static void check_plot(const report_runs *runs) {
  report_roofline plot;
  assert_int_equal(report_roofline_make(runs, &plot), 0);
  check_labels(&plot.labels, plot.width, plot.height);
  for (size_t i = 0; i < plot.labels.count; i++) {
    const report_label *label = &plot.labels.label[i];
    for (size_t j = 0; j < plot.point_count; j++)
      assert_false(report_label_covers(label, plot.point[j].x, plot.point[j].y, 5));
    for (int j = 0; j < plot.roof_count; j++) {
      const report_roof *roof = &plot.roof[j];
      if (report_label_crossed(label, roof->x1, roof->y1, roof->x2, roof->y2))
        fail_msg("a roof goes through '%s'", label->text);
    }
  }
  for (size_t j = 0; j < plot.point_count; j++) {
    assert_true(plot.point[j].x >= plot.area.x && plot.point[j].x <= plot.area.x + plot.area.width);
    assert_true(plot.point[j].y >= plot.area.y && plot.point[j].y <= plot.area.y + plot.area.height);
  }
  report_roofline_release(&plot);
}

static void check_charts(const report_runs *runs) {
  for (size_t suite = 0; suite < runs->suite_count; suite++) {
    report_chart chart;
    assert_int_equal(report_chart_make(runs, suite, &chart), 0);
    check_labels(&chart.labels, chart.width, chart.height);
    for (size_t i = 0; i < chart.bar_count; i++) {
      const cli_box *box = &chart.bar[i].box;
      assert_true(box->x >= chart.area.x && box->x + box->width <= chart.area.x + chart.area.width + 1e-9);
      for (size_t j = 0; j < chart.labels.count; j++) {
        const report_label *label = &chart.labels.label[j];
        const double middle = box->y + box->height / 2;
        if (report_label_crossed(label, box->x, middle, box->x + box->width, middle))
          fail_msg("'%s' stands on a bar", label->text);
      }
    }
    report_chart_release(&chart);
  }
}

static void nothing_overlaps(void **state) {
  (void)state;
  report_runs runs;
  for (int round = 0; round < 40; round++) {
    random_state = (uint32_t)round;
    const int count = 1 + round % MOST_RUNS;
    for (int i = 0; i < count; i++) {
      bench_run *run = make_run(i);
      run->context.peaks.fma_flops *= round % 3 == 0 ? pow(10, 6 * next_random() - 3) : 1 + 0.01 * i;
      run->context.peaks.memory_bytes *= round % 5 == 0 ? 0 : pow(10, next_random());
      run->context.peaks.half_flops = round % 2 ? 2.02 * run->context.peaks.fma_flops : 0;
      run->context.peaks.matrix_flops = round % 4 == 1 ? 2.5 * run->context.peaks.fma_flops : 0;
      run->context.peaks.cache_bytes = round % 3 ? 4 * run->context.peaks.memory_bytes : 0;
      fill_at_random(run, round % 10 == 9 ? 0 : 1 + (int)(next_random() * (MOST_ROWS - 1)));
    }
    assert_int_equal(report_runs_make(all_runs, count, names, &runs), 0);
    check_plot(&runs);
    check_charts(&runs);
    report_runs_release(&runs);
  }
}

static const report_label *find_label(const report_labels *labels, const char *text) {
  for (size_t i = 0; i < labels->count; i++) {
    if (strcmp(labels->label[i].text, text) == 0)
      return &labels->label[i];
  }
  fail_msg("no label '%s'", text);
  return NULL;
}

/* A point stands over its number of the axis, and a row at its roof on that roof's line. */
static void plot_is_true(void **state) {
  (void)state;
  report_runs runs;
  report_roofline plot;
  bench_run *run = make_run(0);
  add_row(run, "", "at the FMA roof", "v", 100, 100);
  add_row(run, "", "at the memory roof", "v", 1, 10);
  add_row(run, "", "half of it", "w", 1, 5);
  set_status(add_row(run, "", "wrong", "w", 10, 7), BENCH_WRONG, "");
  assert_int_equal(report_runs_make(all_runs, 1, names, &runs), 0);
  assert_int_equal(report_roofline_make(&runs, &plot), 0);
  assert_int_equal(plot.point_count, 3);
  assert_int_equal(plot.roof_count, 2);
  const report_point *fma = &plot.point[0], *memory = &plot.point[1], *under = &plot.point[2];
  assert_true(fabs(fma->x - find_label(&plot.labels, "100")->x) < 1e-6);
  assert_true(fabs(memory->x - find_label(&plot.labels, "1")->x) < 1e-6);
  const report_roof *slope = plot.roof[0].kind == REPORT_ROOF_MEMORY ? &plot.roof[0] : &plot.roof[1];
  const report_roof *flat = slope == &plot.roof[0] ? &plot.roof[1] : &plot.roof[0];
  assert_int_equal(flat->kind, REPORT_ROOF_FMA);
  assert_true(fabs(flat->y1 - fma->y) < 1e-6 && fabs(flat->y2 - fma->y) < 1e-6);
  assert_true(fma->x > flat->x1 && fma->x < flat->x2);
  /* The ridge is at 10 operations a byte, in the middle of 1 and 100. */
  assert_true(fabs(flat->x1 - (fma->x + memory->x) / 2) < 1e-6 && fabs(slope->x2 - flat->x1) < 1e-6);
  const double share = (memory->x - slope->x1) / (slope->x2 - slope->x1);
  assert_true(fabs(slope->y1 + share * (slope->y2 - slope->y1) - memory->y) < 1e-6);
  /* Half as fast is log10 2 of a decade lower. */
  assert_true(fabs((under->y - memory->y) / (memory->y - fma->y) - log10(2)) < 1e-6);
  find_label(&plot.labels, "at the FMA roof");
  find_label(&plot.labels, "FMA 100 GFLOP/s");
  find_label(&plot.labels, "memory 10.0 GB/s");
  report_roofline_release(&plot);
  report_runs_release(&runs);
}

static void bars_are_true(void **state) {
  (void)state;
  report_runs runs;
  report_chart chart;
  bench_run *run = make_run(0);
  add_row(run, "s", "x", "full", 100, 100);
  add_row(run, "s", "x", "half", 100, 50);
  set_status(add_row(run, "s", "x", "wrong", 100, 90), BENCH_WRONG, "");
  set_status(add_row(run, "s", "x", "skipped", 100, 90), BENCH_SKIPPED, "");
  add_row(run, "t", "x", "half", 100, 50);
  assert_int_equal(report_runs_make(all_runs, 1, names, &runs), 0);
  assert_int_equal(runs.suite_count, 2);
  assert_int_equal(report_chart_make(&runs, 0, &chart), 0);
  assert_int_equal(chart.bar_count, 3);
  assert_true(chart.by_percent);
  assert_true(fabs(chart.bar[0].box.width - chart.area.width) < 1e-9);
  assert_true(fabs(chart.bar[1].box.width - chart.area.width / 2) < 1e-9);
  assert_true(chart.bar[2].wrong && !chart.bar[0].wrong && !chart.bar[1].wrong);
  assert_true(fabs(find_label(&chart.labels, "40")->x - chart.area.x - 0.4 * chart.area.width) < 1e-9);
  find_label(&chart.labels, "50.0 % FMA");
  report_chart_release(&chart);
  report_runs_release(&runs);

  /* Without peaks there is no bound: bars are GFLOP/s. */
  for (size_t i = 0; i < run->count; i++)
    run->rows[i].percent_of_bound = 0;
  assert_int_equal(report_runs_make(all_runs, 1, names, &runs), 0);
  assert_int_equal(report_chart_make(&runs, 1, &chart), 0);
  assert_false(chart.by_percent);
  assert_true(fabs(chart.bar[0].box.width - chart.area.width) < 1e-9);
  assert_true(fabs(find_label(&chart.labels, "20")->x - chart.area.x - 0.4 * chart.area.width) < 1e-9);
  report_chart_release(&chart);
  report_runs_release(&runs);
}

/* ---- numbers, colours ---- */

static void numbers(void **state) {
  (void)state;
  const struct {
    double value;
    const char *number, *tick;
  } cases[] = {{0, "0", "0"},
               {0.001, "0.00100", "0.001"},
               {0.0456, "0.0456", "0.0456"},
               {0.9999, "1.00", "1"},
               {9.994, "9.99", "9.99"},
               {9.996, "10.0", "10"},
               {99.96, "100", "100"},
               {999.6, "1,000", "1k"},
               {12345, "12,345", "12.3k"},
               {1234567, "1,234,567", "1.23M"},
               {1e9, "1,000,000,000", "1G"},
               {1e18, "1e+18", "1e+18"},
               {1e-7, "1e-07", "1e-07"}};
  char text[REPORT_NUMBER_BYTES];
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    assert_string_equal(report_number(cases[i].value, text), cases[i].number);
    assert_string_equal(report_tick(cases[i].value, text), cases[i].tick);
  }
  assert_string_equal(report_number(NAN, text), "\xe2\x80\x93");
  assert_string_equal(report_time(0, text), "\xe2\x80\x93");
  assert_string_equal(report_time(812, text), "812 ns");
  assert_string_equal(report_time(12345, text), "12.3 \xc2\xb5s");
  assert_string_equal(report_time(999960, text), "1.00 ms");
  assert_string_equal(report_time(4560000000, text), "4.56 s");
  assert_string_equal(report_time(INT64_MAX, text), "9,223,372,037 s");
  assert_string_equal(report_size(0, text), "0 B");
  assert_string_equal(report_size(268435456, text), "268 MB");
}

static double luminance(const char *colour) {
  double sum = 0;
  const double weights[3] = {0.2126, 0.7152, 0.0722};
  for (int i = 0; i < 3; i++) {
    const char digits[3] = {colour[1 + 2 * i], colour[2 + 2 * i], 0};
    const double value = (double)strtol(digits, NULL, 16) / 255;
    sum += weights[i] * (value <= 0.03928 ? value / 12.92 : pow((value + 0.055) / 1.055, 2.4));
  }
  return sum;
}

static double contrast(const char *a, const char *b) {
  const double x = luminance(a) + 0.05, y = luminance(b) + 0.05;
  return x > y ? x / y : y / x;
}

static void colours(void **state) {
  (void)state;
  for (int dark = 0; dark < 2; dark++) {
    const report_theme *theme = &report_themes[dark];
    const char *const texts[] = {theme->text, theme->muted, theme->accent, theme->bad};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
      assert_true(contrast(texts[i], theme->ground) >= 4.5);
      assert_true(contrast(texts[i], theme->soft) >= 4.5);
    }
    for (int i = 0; i < REPORT_COLOURS; i++) {
      if (contrast(theme->colour[i], theme->ground) < 3)
        fail_msg("%s hardly stands out", theme->colour[i]);
    }
  }
}

/* ---- several runs ---- */

static void compares(void **state) {
  (void)state;
  for (int i = 0; i < 3; i++) {
    bench_run *run = make_run(i);
    add_row(run, "s", "x", "v", 10, i == 1 ? 20 : 10);
    add_row(run, "s", "y", "v", 10, i == 1 ? 80 : 10);
    snprintf(run->rows[1].shape.line, sizeof run->rows[1].shape.line, "b=2");
    bench_row *row = add_row(run, "s", "z", i == 2 ? "w" : "v", 10, i == 1 ? 1e-3 : 10);
    snprintf(row->shape.line, sizeof row->shape.line, "b=3");
    if (i == 1)
      set_status(row, BENCH_WRONG, "differs");
  }
  run_memory[2].rows[0].by_events = 0;
  run_memory[2].rows[1].third_quartile_ns *= 2;
  snprintf(run_memory[1].context.driver, sizeof run_memory[1].context.driver, "1.3");
  run_memory[2].context.noisy = 1;
  make_page(3);
  check_body();
  /* 2 and 8 times as fast: 4 in the mean, from which the wrong row stays away. */
  has("geometric mean over 2 rows that all have</th><td></td><td></td><td>4.00</td><td></td><td>1.00</td></tr>");
  has("<h3>variant by variant</h3>");
  has("class=\"faster\" data-v=\"2\">\xe2\x96\xb2 2.00</td>");
  has("<td class=\"quiet\" data-v=\"1\">~ 1.00</td>");
  has("<td class=\"bad\">WRONG</td>");
  has("~ 1.00<br/><span class=\"differs\">\xe2\x89\xa0 timing</span>");
  has("<td class=\"word\">A, B: v<br/>C: w</td>");
  has("<td class=\"differs\">\xe2\x89\xa0 1.3</td>");
  has("These runs differ in: driver, timing method. ");
  has("C: <b>NOISY</b>");
  lacks("A: <b>NOISY</b>");
  lacks("SIMULATED");
}

static void says_when_there_is_nothing(void **state) {
  (void)state;
  bench_run *run = make_run(0);
  make_page(1);
  check_body();
  has("No row was timed");
  has("There are no rows.");
  memset(&run->context.peaks, 0, sizeof run->context.peaks);
  run->context.simulated = 1;
  for (int i = 0; i < 3; i++)
    set_status(add_row(run, "s", "x", "v", 10, 10), BENCH_SKIPPED, "simulated: predicted 7 ms");
  make_page(1);
  check_body();
  has("No peak was measured");
  has("<b>SIMULATED</b>");
  has("<td>3 skipped</td>");
  assert_int_equal(count_of(page, "simulated: predicted 7 ms</li>"), 3);
  lacks("class=\"chart\" ");
  report_runs_release(NULL);
  report_roofline_release(NULL);
  report_chart_release(NULL);
}

/* Files are not trusted: numbers that no run can have. */
static void takes_any_number(void **state) {
  (void)state;
  bench_run *run = make_run(0);
  static const double values[] = {0, -1, 1e300, 1e-300, NAN, INFINITY};
  enum { VALUES = sizeof values / sizeof values[0] };
  for (int i = 0; i < VALUES; i++) {
    bench_row *row = add_row(run, "s", "x", "v", 10, 10);
    row->flops_per_second = row->bytes_per_second = row->percent_of_bound = row->spread = row->error = values[i];
    row->bytes = i % 2 ? 1 : UINT64_MAX;
    row->flops = i % 2 ? UINT64_MAX : 0;
    row->median_ns = row->minimum_ns = i % 2 ? INT64_MAX : 1;
    row->verified_rows = 1;
  }
  for (int i = 0; i < VALUES; i++) {
    bench_peaks *peaks = &run->context.peaks;
    peaks->fma_flops = peaks->exp2_per_second = values[i];
    peaks->memory_bytes = values[(i + 1) % VALUES];
    peaks->matrix_flops = values[(i + 2) % VALUES];
    make_page(1);
    check_body();
    assert_null(strstr(strstr(page, "<body>"), "\"nan"));
    assert_null(strstr(strstr(page, "<body>"), "inf\""));
  }
}

/* ---- files ---- */

static char errors[1024];

/* What stands in old.html after a failure is what stood there. */
static void refused(int count, const char *path, int code, const char *part) {
  write_text("old.html", "old");
  const int saved = dup(2), to = open("err.txt", O_WRONLY | O_CREAT | O_TRUNC, 0600);
  assert_true(saved >= 0 && to >= 0 && dup2(to, 2) == 2);
  const int got = bench_report_write(all_runs, count, names, "--report", path);
  assert_true(dup2(saved, 2) == 2);
  close(saved);
  close(to);
  read_text("err.txt", errors, sizeof errors);
  if (got != code || strstr(errors, part) == NULL)
    fail_msg("exit %d, wanted %d with '%s': %s", got, code, part, errors);
  read_text("old.html", errors, sizeof errors);
  assert_string_equal(errors, "old");
  assert_int_equal(count_files(".partial-"), 0);
}

static void writes(void **state) {
  (void)state;
  random_state = 3;
  fill_at_random(make_run(0), 50);
  make_page(1);
  write_text("new.html", "old");
  assert_int_equal(bench_report_write(all_runs, 1, names, "--report", "new.html"), 0);
  char *text = malloc(page_bytes + 2);
  assert_non_null(text);
  assert_int_equal(read_text("new.html", text, page_bytes + 2), page_bytes);
  assert_memory_equal(text, page, page_bytes);
  free(text);
  assert_int_equal(count_files(".partial-"), 0);

  refused(0, "old.html", 2, "--report: a report shows 1 to 8 runs, not 0");
  refused(9, "old.html", 2, "--report: a report shows 1 to 8 runs, not 9");
  refused(1, "nowhere/new.html", 1, "--report: nowhere/new.html");
  /* In the middle: the disk, or its quota, is full. */
  struct rlimit before, small;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  small = before;
  small.rlim_cur = page_bytes / 2;
  assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  refused(1, "old.html", 1, "old.html: can't be written");
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
}

static int start(void **state) {
  (void)state;
  return mkdtemp(folder) != NULL && chdir(folder) == 0 ? 0 : -1;
}

static int finish(void **state) {
  (void)state;
  free(page);
  page = NULL;
  return leave_folder();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(numbers),          cmocka_unit_test(colours),
      cmocka_unit_test(plot_is_true),     cmocka_unit_test(bars_are_true),
      cmocka_unit_test(nothing_overlaps), cmocka_unit_test(counts),
      cmocka_unit_test(stands_alone),     cmocka_unit_test(escapes),
      cmocka_unit_test(compares),         cmocka_unit_test(says_when_there_is_nothing),
      cmocka_unit_test(takes_any_number), cmocka_unit_test(writes),
  };
  return cmocka_run_group_tests(tests, start, finish);
}
