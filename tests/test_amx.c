/* SPDX-License-Identifier: Apache-2.0 */
/* The variant on AMX, the CPU's matrix unit: when it is chosen, with devices that do not exist; and where this machine
 * lets it run, every case of the table that it takes, with bf16 for q, k and v. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "asked.h"
#include "device_expect.h"
#include "device_run.h"

#define AMX "flash-cpu-amx"
#define TYPES " q=bf16 k=bf16 v=bf16"
#define OUTPUTS (CLATTN_OUT_O | CLATTN_OUT_LSE | CLATTN_OUT_MAX_LOGIT)

static device_rig rig;
static int usable; /* 1: this machine's first device runs it */

/* ---- selection ------------------------------------------------------------------------------------------------- */

static void begin_amx(asked *a, const char *line) {
  begin(a, line, CL_DEVICE_TYPE_CPU);
  a->device.amx = CLATTN_AMX_USABLE;
}

static void chosen_only_with_permission(void **state) {
  (void)state;
  asked a;
  begin_amx(&a, "hq=2 sq=100 sk=100 d=64" TYPES);
  picks(&a, AMX, "a CPU device");
  a.device.amx = CLATTN_AMX_NOT_ALLOWED;
  picks(&a, "flash-cpu-vector", "a CPU device");
  a.request.variant = AMX;
  refuses(&a, CLATTN_ERROR_VARIANT_UNFIT, "allow_amx is 0");
  a.device.amx = CLATTN_AMX_REFUSED;
  refuses(&a, CLATTN_ERROR_VARIANT_UNFIT, "the operating system refuses");
  a.device.amx = CLATTN_AMX_NONE;
  refuses(&a, CLATTN_ERROR_VARIANT_UNFIT, "no CPU with AMX");
  a.device.amx = 4;
  refuses(&a, CLATTN_ERROR_VARIANT_UNFIT, "no value of its enum");
  a.device.amx = -1;
  refuses(&a, CLATTN_ERROR_VARIANT_UNFIT, "no value of its enum");
  a.request.variant = NULL;
  picks(&a, "flash-cpu-vector", "a CPU device");
}

static void forbidden_by_family(void **state) {
  (void)state;
  asked a;
  begin_amx(&a, "hq=2 sq=100 sk=100 d=64" TYPES);
  a.request.forbidden[0] = "fused"; /* another family */
  a.request.forbidden_count = 1;
  picks(&a, AMX, "a CPU device");
  a.request.forbidden[0] = "matrix";
  picks(&a, "flash-cpu-vector", "variant " AMX " is forbidden by the context's config_text (matrix)");
  a.request.variant = AMX;
  refuses(&a, CLATTN_ERROR_VARIANT_UNFIT, "forbidden");
}

static void what_it_does_not_take(void **state) {
  (void)state;
  static const struct {
    const char *line, *why;
  } refused[] = {
      {"sq=100 sk=100 d=64", "must be bf16"},
      {"sq=100 sk=100 d=64 q=bf16 k=bf16", "must be bf16"},
      {"sq=100 sk=100 d=64 q=bf16 v=bf16 k=i8", "must be bf16"},
      {"sq=100 sk=100 d=64 q=f16 k=f16 v=f16", "must be bf16"},
      {"sq=100 sk=100 d=257 dv=8" TYPES, "at most 256"},
      {"sq=100 sk=100 d=8 dv=257" TYPES, "at most 256"},
      {"sq=100 sk=100 d=64 sim=cosine" TYPES, "dot product"},
      {"sq=100 sk=100 d=64 out=o,scores" TYPES, "scores"},
      {"sq=100 sk=100 d=64 flags=batch_invariant" TYPES, "batch invariant"},
      {"sq=100 sk=100 d=64 rope=half" TYPES, "rotary"},
  };
  asked a;
  for (size_t n = 0; n < sizeof refused / sizeof refused[0]; ++n) {
    begin_amx(&a, refused[n].line);
    a.request.variant = AMX;
    refuses(&a, CLATTN_ERROR_VARIANT_UNFIT, refused[n].why);
    a.request.variant = NULL; /* selection goes on */
    picks(&a, "flash-cpu-vector", "a CPU device");
  }
  begin_amx(&a, "sq=100 sk=100 d=256 dv=256" TYPES);
  picks(&a, AMX, "a CPU device");
}

/* A few rows wait for memory: they are not worth tiles of many. */
static void few_rows_go_elsewhere(void **state) {
  (void)state;
  asked a;
  begin_amx(&a, "hq=8 hkv=8 sq=8 sk=4096 d=64" TYPES);
  picks(&a, "flash-cpu-vector", "a CPU device");
  begin_amx(&a, "hq=8 hkv=8 sq=9 sk=4096 d=64" TYPES);
  picks(&a, AMX, "a CPU device");
  begin_amx(&a, "hq=32 hkv=2 sq=1 sk=4096 d=64" TYPES); /* the heads of a group are its rows */
  picks(&a, AMX, "a CPU device");
}

/* Work-items have as many tiles as rows fill, where that leaves enough of them. */
static void tiles_of_a_work_item(void **state) {
  (void)state;
  static const struct {
    const char *line;
    int rows;
  } wanted[] = {{"hq=64 sq=2048 sk=100 d=64" TYPES, 256},        {"hq=64 sq=2048 sk=100 d=129" TYPES, 128},
                {"hq=64 sq=96 sk=100 d=64" TYPES, 128},          {"hq=64 sq=33 sk=100 d=64" TYPES, 64},
                {"hq=64 sq=32 sk=100 d=64" TYPES, 32},           {"hq=1 sq=100 sk=100 d=64" TYPES, 64},
                {"b=2147483647 hq=1024 sq=1 sk=1 d=1" TYPES, 32}};
  asked a;
  for (size_t n = 0; n < sizeof wanted / sizeof wanted[0]; ++n) {
    begin_amx(&a, wanted[n].line);
    a.device.compute_units = 4;
    a.request.variant = AMX;
    if (ask(&a) == CLATTN_SUCCESS)
      assert_int_equal(a.choice.rows, wanted[n].rows);
    else /* too many to count, found out without overflow */
      assert_non_null(strstr(a.error.message, "more row tiles than a grid can count"));
  }
}

/* ---- contexts -------------------------------------------------------------------------------------------------- */

static void the_context_asks(void **state) {
  (void)state;
  clattn_context_options options;
  clattn_context *context = NULL;
  clattn_device_info info, allowed;
  clattn_problem problem;
  clattn_support support;
  clattn_error error;
  clattn_error_init(&error);
  clattn_context_options_init(&options);
  clattn_device_info_init(&info);
  clattn_device_info_init(&allowed);
  options.allow_amx = 2;
  assert_int_equal(clattn_context_create(rig.cl, rig.device, &options, &context, &error), CLATTN_ERROR_VALUE);
  options.allow_amx = 0;
  assert_int_equal(clattn_context_create(rig.cl, rig.device, &options, &context, &error), CLATTN_SUCCESS);
  assert_int_equal(clattn_context_device_info(context, &info), CLATTN_SUCCESS);
  assert_int_equal(clattn_context_device_info(rig.context, &allowed), CLATTN_SUCCESS);
  if (info.amx == CLATTN_AMX_NONE)
    assert_int_equal(allowed.amx, CLATTN_AMX_NONE);
  else {
    assert_int_equal(info.amx, CLATTN_AMX_NOT_ALLOWED); /* though another context of the process was */
    assert_true(allowed.amx == CLATTN_AMX_USABLE || allowed.amx == CLATTN_AMX_REFUSED);
  }
  assert_int_equal(clattn_problem_parse("sq=100 sk=100 d=64" TYPES, &problem, NULL), CLATTN_SUCCESS);
  clattn_support_init(&support);
  assert_int_equal(clattn_supported(context, &problem, AMX, &support), CLATTN_ERROR_VARIANT_UNFIT);
  assert_int_equal(clattn_supported(context, &problem, NULL, &support), CLATTN_SUCCESS);
  assert_string_not_equal(support.variant, AMX);
  clattn_context_release(context);
}

/* ---- numbers --------------------------------------------------------------------------------------------------- */

/* 1: passed, 0: not taken, -1: wrong. */
static int judge_job(const device_job *job, uint32_t outputs) {
  job_memory memory;
  expectation expect;
  run_options options;
  int claimed = 0, result = -1;
  memset(&options, 0, sizeof options);
  options.variant = AMX;
  options.outputs = outputs;
  if (!job_memory_open(&rig, job, &memory))
    return -1;
  if (expectation_make(job, &memory, 0, &expect)) {
    expect.rounded_weights = 1;
    if (device_run(&rig, job, &memory, &options, &claimed))
      result = !claimed ? 0 : expectation_compare(&expect, &memory, outputs, CLATTN_STAGE_RAW) == 0 ? 1 : -1;
    expectation_free(&expect);
  }
  job_memory_close(&memory);
  if (result < 0)
    print_error("%s\n  (seed %" PRIu64 ", data 0x%x, outputs %u)\n", job->line, job->seed, job->data, outputs);
  return result;
}

/* The line with these types for q, k, v and o, whose layouts stay; 0 if it names types itself. */
static int with_types(const char *line, const char *o, char *to, size_t capacity) {
  static const char letters[] = "qkvo";
  int given[4] = {0};
  size_t length = 0;
  char word[512];
  int read = 0;
  for (const char *at = line; sscanf(at, "%511s%n", word, &read) == 1; at += read) {
    const char *letter = word[1] == '=' ? strchr(letters, word[0]) : NULL;
    if (letter != NULL && (strncmp(word + 2, "f32", 3) == 0 || strncmp(word + 2, "f16", 3) == 0 ||
                           strncmp(word + 2, "bf16", 4) == 0 || word[2] == 'i'))
      return 0;
    if (letter != NULL)
      given[letter - letters] = 1;
    length += (size_t)(letter != NULL ? snprintf(to + length, capacity - length, "%c=%s:%s ", *letter,
                                                 *letter == 'o' ? o : "bf16", word + 2)
                                      : snprintf(to + length, capacity - length, "%s ", word));
    assert_true(length < capacity);
  }
  for (int n = 0; n < 4; ++n)
    if (!given[n])
      length += (size_t)snprintf(to + length, capacity - length, "%c=%s ", letters[n], n == 3 ? o : "bf16");
  assert_true(length > 0 && length < capacity);
  to[length - 1] = 0;
  return 1;
}

/* All jobs of a row of the table with these types; how many were taken, at most three wrong. */
static void judge_row(const device_case *row, const char *o, size_t *taken, size_t *wrong) {
  char line[2048];
  device_job *job = malloc(sizeof *job);
  assert_non_null(job);
  const size_t count = device_case_jobs(row);
  for (size_t index = 0; index < count && *wrong < 3; ++index) {
    assert_true(device_case_job(row, index, job));
    if (!with_types(job->line, o, line, sizeof line))
      continue;
    device_case typed = *row;
    typed.line = line;
    typed.vary[0] = typed.vary[1] = NULL;
    assert_true(device_case_job(&typed, 0, job));
    const uint32_t some[] = {OUTPUTS, CLATTN_OUT_O, CLATTN_OUT_LSE, CLATTN_OUT_O | CLATTN_OUT_LSE};
    for (size_t n = 0; n < 2; ++n) {
      const int result = judge_job(job, some[n == 0 ? 0 : 1 + index % 3]);
      *taken += result > 0;
      *wrong += result < 0;
    }
  }
  free(job);
}

static void table_of_cases(const char *o, int full) {
  size_t taken = 0, wrong = 0;
  if (!usable)
    skip();
  for (size_t n = 0; n < device_case_count && wrong < 3; ++n)
    if (device_cases[n].random == 0 && !device_cases[n].full == !full)
      judge_row(&device_cases[n], o, &taken, &wrong);
  print_message("%zu comparisons passed\n", taken);
  assert_int_equal(wrong, 0);
  assert_true(taken > 100);
}

static void every_rule(void **state) {
  (void)state;
  table_of_cases("bf16", 0);
}

static void every_rule_to_f32(void **state) {
  (void)state;
  table_of_cases("f32", 0);
}

static void every_rule_at_length(void **state) {
  (void)state;
  table_of_cases("f32", 1);
}

/* What the table lacks: whole tiles and those that are cut, of several blocks of keys; head dimensions of every class;
 * what is not a number, in every tensor; scores far apart and far from 0. */
static void tiles_and_tails(void **state) {
  (void)state;
  static const device_case rows[] = {
      {.line = "hq=2 sq=130 sk=200", .vary = {"d=1|8|32|33|40|64|80|96|100|128|160|256", "causal=0|1"}},
      {.line = "hq=2 d=64", .vary = {"sq=31|32|33|64|65|128|129", "sk=1|31|32|63|64|65|96|129"}},
      {.line = "hq=4 hkv=1 sk=150 d=64", .vary = {"sq=3|32|33|70", "causal=0|1"}},
      {.line = "hq=2 sq=140 sk=256 d=64 dv=32", .data = DATA_FAR, .vary = {"causal=0|1"}},
      {.line = "hq=2 sq=140 sk=256 d=64 scale=1e30", .vary = {"causal=0|1"}},
      {.line = "hq=2 sq=140 sk=256 d=64 scale=-3", .vary = {"causal=0|1"}},
      {.line = "hq=2 sq=140 sk=256 d=64 scale=0", .vary = {"causal=0|1"}},
      {.line = "hq=2 sq=140 sk=256 d=64 scale=40", .vary = {"causal=0|1"}},
      {.line = "b=2 hq=2 sq=140 sk=256 d=64", .data = DATA_NAN_Q, .vary = {"causal=0|1"}},
      {.line = "b=2 hq=2 sq=140 sk=256 d=64", .data = DATA_INF_Q, .vary = {"causal=0|1"}},
      {.line = "b=2 hq=2 sq=140 sk=256 d=64", .data = DATA_NAN_K, .vary = {"causal=0|1"}},
      {.line = "b=2 hq=2 sq=140 sk=256 d=64", .data = DATA_INF_K, .vary = {"causal=0|1"}},
      {.line = "b=2 hq=2 sq=140 sk=256 d=64", .data = DATA_NAN_V, .vary = {"causal=0|1"}},
      {.line = "b=2 hq=2 sq=140 sk=256 d=64", .data = DATA_INF_V, .vary = {"causal=0|1"}},
      {.line = "b=2 hq=2 sq=140 sk=256 d=64", .data = DATA_ZERO_ROWS, .vary = {"causal=0|1"}},
      {.line = "b=2 hq=2 sq=140 sk=256 d=64 window=70,20", .data = DATA_FAR},
      {.line = "hq=2 sq=600 sk=1000 d=128", .vary = {"causal=0|1"}},
  };
  static const char *const types[] = {"f32", "bf16", "f16"};
  size_t taken = 0, wrong = 0;
  if (!usable)
    skip();
  for (size_t n = 0; n < sizeof rows / sizeof rows[0]; ++n) {
    device_case row = rows[n];
    row.name = "tiles and tails";
    judge_row(&row, types[n % 3], &taken, &wrong);
  }
  assert_int_equal(wrong, 0);
  assert_true(taken > 100);
}

/* Problems drawn at random. */
static void drawn_problems(void **state) {
  (void)state;
  static const draw_mix mix = {.q = "bf16",
                               .k = "bf16",
                               .v = "bf16",
                               .o = "bf16",
                               .bias = "f32",
                               .words = "",
                               .least = 1,
                               .most = 128,
                               .rows = 64,
                               .keys = 64};
  enum { PROBLEMS = 150 };
  size_t taken = 0, wrong = 0;
  if (!usable)
    skip();
  device_job *job = malloc(sizeof *job);
  assert_non_null(job);
  for (uint64_t seed = 1; seed <= PROBLEMS && wrong < 3; ++seed) {
    assert_true(device_job_draw(seed, &mix, seed % 4 == 0, job));
    const int result = judge_job(job, OUTPUTS);
    taken += result > 0;
    wrong += result < 0;
  }
  free(job);
  assert_int_equal(wrong, 0);
  assert_true(taken > PROBLEMS / 4);
}

static int set_up(void **state) {
  clattn_device_info info;
  (void)state;
  clattn_device_info_init(&info);
  if (!device_rig_open(&rig) || clattn_context_device_info(rig.context, &info) != CLATTN_SUCCESS)
    return -1;
  usable = info.amx == CLATTN_AMX_USABLE;
  if (!usable)
    print_message("the variant does not run here (clattn_device_info.amx is %d)\n", (int)info.amx);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  device_rig_close(&rig);
  return 0;
}

int main(int argc, char **argv) {
  const struct CMUnitTest fast[] = {cmocka_unit_test(chosen_only_with_permission),
                                    cmocka_unit_test(forbidden_by_family),
                                    cmocka_unit_test(what_it_does_not_take),
                                    cmocka_unit_test(few_rows_go_elsewhere),
                                    cmocka_unit_test(tiles_of_a_work_item),
                                    cmocka_unit_test(the_context_asks),
                                    cmocka_unit_test(tiles_and_tails),
                                    cmocka_unit_test(every_rule)};
  const struct CMUnitTest full[] = {cmocka_unit_test(drawn_problems), cmocka_unit_test(every_rule_to_f32),
                                    cmocka_unit_test(every_rule_at_length)};
  if (argc > 2)
    cmocka_set_test_filter(argv[2]);
  return argc > 1 && strcmp(argv[1], "full") == 0 ? cmocka_run_group_tests(full, set_up, tear_down)
                                                  : cmocka_run_group_tests(fast, set_up, tear_down);
}
