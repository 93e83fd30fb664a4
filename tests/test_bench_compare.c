/* SPDX-License-Identifier: Apache-2.0 */
/* Runs of the benchmark as people see them: the table, runs side by side, verdicts against a baseline, and the command
 * clattn compare.  The program is CLATTN_PROGRAM of the environment, else of the build. */
#define _XOPEN_SOURCE 700 /* mkdtemp, realpath, open_memstream */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "baseline.h"
#include "cli.h"
#include "cli_program.h"
#include "compare.h"
#include "record.h"
#include "table.h"

#define DATA CLATTN_TEST_DATA "/bench/"

static const char *const names[] = {"monday.json", "tuesday.json", "gpu.json"};
static bench_run saved[3];
static const bench_run *const runs[3] = {&saved[0], &saved[1], &saved[2]};

static int start(void **state) {
  (void)state;
  if (enter_folder() != 0)
    return -1;
  for (size_t i = 0; i < 3; i++) {
    char path[1024];
    snprintf(path, sizeof path, DATA "%s", names[i]);
    if (bench_run_read_json(path, &saved[i]) != CLI_OK)
      return -1;
  }
  return 0;
}

static int finish(void **state) {
  (void)state;
  for (size_t i = 0; i < 3; i++)
    bench_run_release(&saved[i]);
  return leave_folder();
}

/* ---- text ---- */

static FILE *open_text(char **text, size_t *length) {
  FILE *file = open_memstream(text, length);
  assert_non_null(file);
  return file;
}

/* What was printed is the file of this name; frees the text. */
static void is_file(char *text, const char *name) {
  static char want[1 << 14];
  char path[1024];
  snprintf(path, sizeof path, DATA "%s", name);
  read_text(path, want, sizeof want);
  if (strcmp(text, want) != 0)
    fail_msg("not as in %s:\n%s", name, text);
  free(text);
}

static void table(void **state) {
  (void)state;
  char *text = NULL;
  size_t length = 0;
  FILE *file = open_text(&text, &length);
  bench_table_print(file, &saved[0]);
  fclose(file);
  is_file(text, "table.txt");
}

/* Row by row it is the same table but for the columns, which then fit all variants there are. */
static void table_by_rows(void **state) {
  (void)state;
  char *text = NULL;
  size_t length = 0;
  bench_shape shapes[1];
  bench_table printed;
  FILE *file = open_text(&text, &length);
  memset(shapes, 0, sizeof shapes);
  snprintf(shapes[0].name, sizeof shapes[0].name, "bert-base sq=128");
  saved[0].context.noisy = 1;
  bench_table_begin(&printed, file, shapes, 1);
  for (size_t i = 0; i < saved[0].count; i++) {
    bench_table_row(&printed, &saved[0].rows[i]);
    assert_int_equal(text[length - 1], '\n'); /* there already */
  }
  assert_null(strstr(text, "long-causal"));
  bench_table_end(&printed, &saved[0]);
  fclose(file);
  saved[0].context.noisy = 0;
  assert_non_null(strstr(text, "\nnot run\n  long-causal sq=32768  predicted 29.3 s a call; --slow runs it\n"));
  assert_non_null(strstr(text, "\nNOISY: more than a fifth of the rows spread over 5 %"));
  free(text);
}

/* Terminal columns before the part in the line that has `line`. */
static int columns_before(const char *text, const char *line, const char *part) {
  char before[512];
  const char *at = strstr(text, line), *found = at != NULL ? strstr(at, part) : NULL;
  assert_non_null(found);
  while (at > text && at[-1] != '\n')
    at--;
  snprintf(before, sizeof before, "%.*s", (int)(found - at), at);
  assert_null(strchr(before, '\n'));
  return bench_columns(before);
}

static void alignment(void **state) {
  (void)state;
  char *text = NULL;
  size_t length = 0;
  bench_run run;
  static const char *const shapes[] = {
      "plain", "\xe5\xb9\x85\xe5\xba\x83 wide", "e\xcc\x81 accent", "a\tb\x1b[1m", "\xf0\x9f\x98\x80", "bad \xff byte",
      ""};
  static const int64_t times[] = {999, 1000, 99996, 999950, 1234567, 99999000000, 250};
  memset(&run, 0, sizeof run);
  for (size_t i = 0; i < 7; i++) {
    bench_row *row = bench_run_add(&run);
    assert_non_null(row);
    *row = saved[0].rows[i % 2 == 0 ? 0 : 3];
    snprintf(row->shape.name, sizeof row->shape.name, "%s", shapes[i]);
    snprintf(row->variant, sizeof row->variant, "variant-%zu", i);
    row->median_ns = row->minimum_ns = times[i];
  }
  FILE *file = open_text(&text, &length);
  bench_table_print(file, &run);
  fclose(file);
  assert_null(strchr(text, '\x1b'));
  assert_null(strchr(text, '\t'));
  for (size_t i = 1; i < 7; i++) {
    char variant[32];
    snprintf(variant, sizeof variant, "variant-%zu", i);
    assert_int_equal(columns_before(text, variant, variant), columns_before(text, "variant-0", "variant-0"));
    assert_int_equal(columns_before(text, variant, i % 2 == 0 ? "GFLOP/s" : "GB/s"),
                     columns_before(text, "variant-0", "GFLOP/s"));
    assert_int_equal(columns_before(text, variant, " % "), columns_before(text, "variant-0", " % "));
  }
  assert_int_equal(columns_before(text, "shape", "variant"), columns_before(text, "variant-0", "variant-0"));
  free(text);
  bench_run_release(&run);
}

static void times(void **state) {
  (void)state;
  static const struct {
    int64_t ns;
    const char *text;
  } cases[] = {{0, "0 ns"},
               {999, "999 ns"},
               {1000, "1.000 us"},
               {9999, "9.999 us"},
               {99994, "99.99 us"},
               {99995, "100.0 us"},
               {999949, "999.9 us"},
               {999950, "1.000 ms"},
               {12345678, "12.35 ms"},
               {1500000000, "1.500 s"},
               {1234500000000, "1234 s"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    assert_string_equal(bench_time_text(cases[i].ns, message, sizeof message), cases[i].text);
}

/* ---- side by side ---- */

static char *compared(int count, int by_variant, int want) {
  char *text = NULL;
  size_t length = 0;
  FILE *file = open_text(&text, &length);
  assert_int_equal(bench_compare_print(file, runs, count, names, by_variant), want);
  fclose(file);
  return text;
}

static void side_by_side(void **state) {
  (void)state;
  is_file(compared(3, 0, CLI_OK), "compare.txt");
  is_file(compared(3, 1, CLI_OK), "variants.txt");
}

static void nothing_in_common(void **state) {
  (void)state;
  char pass[sizeof saved[1].rows[0].pass];
  for (size_t i = 0; i < saved[1].count; i++) {
    snprintf(pass, sizeof pass, "%s", saved[1].rows[i].pass);
    snprintf(saved[1].rows[i].pass, sizeof pass, "backward");
  }
  cli_fail_catch(message, sizeof message);
  char *text = compared(2, 0, CLI_USAGE);
  cli_fail_catch(NULL, 0);
  for (size_t i = 0; i < saved[1].count; i++)
    snprintf(saved[1].rows[i].pass, sizeof pass, "%s", pass);
  assert_string_equal(text, "");
  assert_string_equal(message, "compare: no problem has a time and is in more than one of these runs");
  free(text);
}

/* ---- against a baseline ---- */

/* A run of one row of monday's with this median, quartiles this much of it away. */
static void one_row(bench_run *run, size_t from, int64_t median, double away) {
  memset(run, 0, sizeof *run);
  run->context = saved[0].context;
  bench_row *row = bench_run_add(run);
  assert_non_null(row);
  *row = saved[0].rows[from];
  row->percent_of_bound *= (double)row->median_ns / (double)median;
  row->median_ns = median;
  row->first_quartile_ns = (int64_t)((double)median * (1 - away));
  row->third_quartile_ns = (int64_t)((double)median * (1 + away));
}

static void expect_verdict(const bench_run *before, const bench_run *now, bench_verdict want, const char *why) {
  bench_judgement got;
  bench_baseline_judge(before, now, 0, 5, &got);
  if (got.verdict != want || strstr(got.why, why) == NULL)
    fail_msg("%s: %s; wanted %s: %s", bench_verdict_word(got.verdict), got.why, bench_verdict_word(want), why);
  assert_int_equal(bench_baseline_suspect(&got), want == BENCH_SLOWER || want == BENCH_TOO_NOISY);
}

static void verdicts(void **state) {
  (void)state;
  static const struct {
    int64_t median;
    double away_before, away;
    bench_verdict verdict;
  } cases[] = {{4000000, 0.01, 0.01, BENCH_SAME},
               {4100000, 0.01, 0.01, BENCH_SAME},
               {5000000, 0.01, 0.01, BENCH_SLOWER},
               {3000000, 0.01, 0.01, BENCH_FASTER},
               {4200000, 0.01, 0.01, BENCH_TOO_NOISY},
               {4000000, 0.01, 0.06, BENCH_TOO_NOISY},
               {4000000, 0.06, 0.01, BENCH_TOO_NOISY},
               {4300000, 0.05, 0.05, BENCH_TOO_NOISY},
               {5000000, 0.05, 0.05, BENCH_SLOWER},
               {4300000, 0, 0, BENCH_SLOWER},
               {4000000, 0, 0, BENCH_SAME},
               {3720000, 0.04, 0, BENCH_TOO_NOISY},
               {4300000, 0.04, 0, BENCH_TOO_NOISY},
               {3720000, 0, 0, BENCH_FASTER}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    bench_run before, now;
    one_row(&before, 0, 4000000, cases[i].away_before);
    one_row(&now, 0, cases[i].median, cases[i].away);
    expect_verdict(&before, &now, cases[i].verdict, "");
    bench_run_release(&before);
    bench_run_release(&now);
  }
}

/* Half the clock, half the peak: the same. */
static void clock_cancels(void **state) {
  (void)state;
  bench_run before, now;
  one_row(&before, 0, 4000000, 0.01);
  one_row(&now, 0, 8000000, 0.01);
  expect_verdict(&before, &now, BENCH_SLOWER, "");
  now.rows[0].percent_of_bound *= 2;
  expect_verdict(&before, &now, BENCH_SAME, "");
  /* Beside this row the FMA peak was measured; the memory's was not. */
  now.rows[0].throttled = 1;
  expect_verdict(&before, &now, BENCH_SAME, "");
  now.rows[0].bound = BENCH_BOUND_MEMORY;
  expect_verdict(&before, &now, BENCH_TOO_NOISY, "throttled now");
  now.rows[0].throttled = 0;
  before.rows[0].throttled = 1;
  before.rows[0].bound = BENCH_BOUND_MEMORY;
  expect_verdict(&before, &now, BENCH_TOO_NOISY, "throttled then");
  bench_run_release(&before);
  bench_run_release(&now);
}

static void not_alike(void **state) {
  (void)state;
  bench_run before, now;
  one_row(&before, 0, 4000000, 0.01);
  one_row(&now, 0, 5000000, 0.01);
  const bench_run good_run = now;
  const bench_row good_row = now.rows[0];
  snprintf(now.context.clattn, sizeof now.context.clattn, "9.9.9"); /* what a baseline is for */
  expect_verdict(&before, &now, BENCH_SLOWER, "");
  snprintf(now.context.driver, sizeof now.context.driver, "4.0");
  expect_verdict(&before, &now, BENCH_NOT_COMPARABLE, "another driver");
  now.context = good_run.context;
  snprintf(now.context.version, sizeof now.context.version, "OpenCL 1.2");
  expect_verdict(&before, &now, BENCH_NOT_COMPARABLE, "another driver");
  now.context = good_run.context;
  snprintf(now.context.platform, sizeof now.context.platform, "Other");
  expect_verdict(&before, &now, BENCH_NOT_COMPARABLE, "another platform");
  now.context = good_run.context;
  snprintf(now.context.device, sizeof now.context.device, "Other");
  expect_verdict(&before, &now, BENCH_NOT_COMPARABLE, "another device");
  now.context = good_run.context;
  now.rows[0].by_events = 0;
  expect_verdict(&before, &now, BENCH_NOT_COMPARABLE, "timed in another way");
  now.rows[0] = good_row;
  now.rows[0].cold = 0;
  expect_verdict(&before, &now, BENCH_NOT_COMPARABLE, "cold inputs against hot ones");
  now.rows[0] = good_row;
  now.rows[0].percent_of_bound = 0;
  expect_verdict(&before, &now, BENCH_NOT_COMPARABLE, "no peak was measured");
  now.rows[0] = good_row;
  now.rows[0].status = BENCH_WRONG;
  expect_verdict(&before, &now, BENCH_MISSING, "now wrong");
  now.rows[0] = good_row;
  before.rows[0].status = BENCH_WRONG;
  expect_verdict(&before, &now, BENCH_MISSING, "no time in the baseline");
  bench_run_release(&before);
  bench_run_release(&now);
}

/* A variant that the baseline does not have is compared with its fastest, if it is the fastest itself. */
static void other_variant(void **state) {
  (void)state;
  bench_run now;
  one_row(&now, 0, 4000000, 0.01);
  bench_row *other = bench_run_add(&now);
  assert_non_null(other);
  *other = now.rows[0];
  snprintf(now.rows[0].variant, sizeof now.rows[0].variant, "new");
  other->median_ns = 4100000;
  expect_verdict(&saved[0], &now, BENCH_SAME, "then by flash-cpu-vector");
  other->median_ns = 3900000;
  expect_verdict(&saved[0], &now, BENCH_MISSING, "no time in the baseline");
  bench_run_release(&now);
}

static void repetitions(void **state) {
  (void)state;
  bench_run run;
  one_row(&run, 0, 4000000, 0.01);
  bench_row *row = &run.rows[0], again = *row;
  again.percent_of_bound = row->percent_of_bound + 1;
  again.median_ns = 3900000;
  bench_baseline_keep(row, &again);
  assert_int_equal(row->median_ns, 3900000);
  again.percent_of_bound -= 5;
  again.median_ns = 5000000;
  bench_baseline_keep(row, &again);
  assert_int_equal(row->median_ns, 3900000);
  row->throttled = 1;
  row->bound = BENCH_BOUND_MEMORY;
  bench_baseline_keep(row, &again);
  assert_int_equal(row->median_ns, 5000000);
  again.status = BENCH_SKIPPED;
  again.median_ns = 0;
  bench_baseline_keep(row, &again);
  assert_int_equal(row->median_ns, 5000000);
  again.status = BENCH_WRONG;
  bench_baseline_keep(row, &again);
  assert_int_equal(row->status, BENCH_WRONG);
  bench_run_release(&run);
}

static void baseline_table(void **state) {
  (void)state;
  char *text = NULL;
  size_t length = 0;
  FILE *file = open_text(&text, &length);
  assert_int_equal(bench_baseline_print(file, &saved[0], names[0], &saved[1], 5), 1);
  fclose(file);
  is_file(text, "baseline.txt");
}

/* ---- the command ---- */

#define RUN(name) " " DATA name ".json"

static void command(void **state) {
  (void)state;
  good("compare --help");
  says("usage: clattn compare A.json [B.json ...]");
  good("compare" RUN("monday") RUN("tuesday") RUN("gpu"));
  says("geometric mean over 1 row that all have: B/A 0.806, C/A 36.364");
  good("compare --variants" RUN("monday") RUN("tuesday") RUN("gpu"));
  says("B/A 0.643, C/A 22.500");
  good("compare" RUN("monday"));
  is_file(strdup(out), "table.txt");
  good("compare --report both.html" RUN("monday") RUN("gpu"));
  assert_int_equal(access("both.html", F_OK), 0);
}

static void command_refused(void **state) {
  (void)state;
  static const struct {
    const char *arguments, *part;
    int code;
  } cases[] = {
      {"compare", "compare takes 1 to 8 saved runs, not 0", 2},
      {"compare 1 2 3 4 5 6 7 8 9", "compare takes 1 to 8 saved runs, not 9", 2},
      {"compare --varints" RUN("monday"), "did you mean --variants?", 2},
      {"compare --report kept.npy ./kept.npy" RUN("monday"), "--report kept.npy would overwrite an input", 2},
      {"compare --report no/such/place.html" RUN("monday") RUN("gpu"), "--report: ", 1},
      {"compare no.json" RUN("monday"), "no.json: ", 2},
      {"compare" RUN("monday") " kept.npy", "kept.npy: not valid JSON at byte 0", 2},
      {"compare" RUN("monday") " other.json", "other.json: schema_version: it is 7; this clattn reads 1", 2},
      {"compare" RUN("monday") " other.json --report kept.npy", "other.json: schema_version: it is 7", 2},
      {"compare" RUN("monday") " empty.json", "compare: no problem has a time", 2},
      {"compear", "did you mean 'compare'?", 2},
  };
  bench_run run;
  cli_bytes bytes;
  memset(&run, 0, sizeof run);
  memset(&bytes, 0, sizeof bytes);
  assert_int_equal(bench_run_json(&run, &bytes), CLI_OK);
  cli_bytes_add(&bytes, "", 1);
  write_text("empty.json", bytes.data);
  cli_bytes_release(&bytes);
  write_text("other.json", "{\"schema_version\": 7}");
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    bad(cases[i].arguments, cases[i].code, cases[i].part);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(table),         cmocka_unit_test(table_by_rows),   cmocka_unit_test(alignment),
      cmocka_unit_test(times),         cmocka_unit_test(side_by_side),    cmocka_unit_test(nothing_in_common),
      cmocka_unit_test(verdicts),      cmocka_unit_test(clock_cancels),   cmocka_unit_test(not_alike),
      cmocka_unit_test(other_variant), cmocka_unit_test(repetitions),     cmocka_unit_test(baseline_table),
      cmocka_unit_test(command),       cmocka_unit_test(command_refused),
  };
  return cmocka_run_group_tests(tests, start, finish);
}
