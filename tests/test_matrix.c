/* SPDX-License-Identifier: Apache-2.0 */
/* The variant on matrix units of GPUs: when it is taken, with devices that do not exist ("select"); and its numbers with
 * a unit emulated ("f16", "bf16 full"), on a device that offers sub-groups of the unit's size, as Intel's runtime for CPUs
 * does.  Elsewhere they are skipped, by exit status 77; on Intel's runtime that would be a failure. */
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

#define MATRIX "flash-gpu-matrix"
#define HALVES " q=f16 k=f16 v=f16"
#define OUTPUTS (CLATTN_OUT_O | CLATTN_OUT_LSE | CLATTN_OUT_MAX_LOGIT)

enum { SKIPPED = 77 };

static device_rig rig;
static const char *type = "f16"; /* of q, k and v */

/* ---- selection ------------------------------------------------------------------------------------------------- */

static void begin_gpu(asked *a, const char *line, clattni_matrix unit) {
  begin(a, line, CL_DEVICE_TYPE_GPU);
  a->device.matrix = (uint32_t)unit;
  a->device.local_bytes = 49152;
}

/* By name, and by no other way, until it has met a GPU. */
static void taken_by_name(void **state) {
  (void)state;
  asked a;
  begin_gpu(&a, "hq=2 sq=100 sk=100 d=64" HALVES, CLATTNI_MATRIX_NVIDIA);
  picks(&a, "flash-gpu-simt", "this device");
  a.request.variant = MATRIX;
  picks(&a, MATRIX, "asked for by name");
  assert_non_null(strstr(a.choice.options, "-DCLATTN_UNIT=nvidia "));
  assert_null(strstr(a.choice.options, "EMULATED"));
  assert_int_equal(a.choice.gx, 32);
  assert_int_equal(a.choice.gy * 16, a.choice.rows);
  a.request.forbidden[0] = "matrix";
  a.request.forbidden_count = 1;
  refuses(&a, CLATTN_ERROR_VARIANT_UNFIT, "forbidden");
  begin_gpu(&a, "hq=2 sq=100 sk=100 d=64" HALVES, CLATTNI_MATRIX_NONE);
  a.request.variant = MATRIX;
  refuses(&a, CLATTN_ERROR_VARIANT_UNFIT, "no matrix unit that clattn knows");
  a.device.matrix = 1000;
  refuses(&a, CLATTN_ERROR_VARIANT_UNFIT, "no matrix unit that clattn knows");
  a.device.matrix = UINT32_MAX;
  refuses(&a, CLATTN_ERROR_VARIANT_UNFIT, "no matrix unit that clattn knows");
}

static void what_it_does_not_take(void **state) {
  (void)state;
  static const struct {
    const char *line, *why;
    clattni_matrix unit;
  } refused[] = {
      {"sq=100 sk=100 d=64", "must be f16", CLATTNI_MATRIX_NVIDIA},
      {"sq=100 sk=100 d=64 q=f16 k=f16", "must be f16", CLATTNI_MATRIX_NVIDIA},
      {"sq=100 sk=100 d=64 q=f16 v=f16 k=i8", "must be f16", CLATTNI_MATRIX_NVIDIA},
      {"sq=100 sk=100 d=64 q=f16 v=f16 k=bf16", "must be f16", CLATTNI_MATRIX_NVIDIA},
      {"sq=100 sk=100 d=64 q=bf16 k=bf16 v=bf16", "7.5 have no bf16", CLATTNI_MATRIX_NVIDIA_75},
      {"sq=100 sk=100 d=64" HALVES, "takes subnormal f16 for 0", CLATTNI_MATRIX_MFMA_90A},
      {"sq=100 sk=100 d=257 dv=8" HALVES, "at most 256", CLATTNI_MATRIX_NVIDIA},
      {"sq=100 sk=100 d=8 dv=257" HALVES, "at most 256", CLATTNI_MATRIX_NVIDIA},
      {"sq=100 sk=100 d=64 sim=cosine" HALVES, "dot product", CLATTNI_MATRIX_NVIDIA},
      {"sq=100 sk=100 d=64 out=o,scores" HALVES, "scores", CLATTNI_MATRIX_NVIDIA},
      {"sq=100 sk=100 d=64 flags=batch_invariant" HALVES, "batch invariant", CLATTNI_MATRIX_NVIDIA},
      {"sq=100 sk=100 d=64 rope=half" HALVES, "rotary", CLATTNI_MATRIX_NVIDIA},
  };
  asked a;
  for (size_t n = 0; n < sizeof refused / sizeof refused[0]; ++n) {
    begin_gpu(&a, refused[n].line, refused[n].unit);
    a.request.variant = MATRIX;
    refuses(&a, CLATTN_ERROR_VARIANT_UNFIT, refused[n].why);
  }
  begin_gpu(&a, "sq=100 sk=100 d=64 math=half" HALVES, CLATTNI_MATRIX_MFMA_90A);
  a.request.variant = MATRIX;
  picks(&a, MATRIX, "by name");
  begin_gpu(&a, "sq=100 sk=100 d=256 dv=256" HALVES, CLATTNI_MATRIX_NVIDIA);
  a.request.variant = MATRIX;
  picks(&a, MATRIX, "by name");
  a.device.local_bytes = 16384;
  refuses(&a, CLATTN_ERROR_VARIANT_UNFIT, "bytes of local memory; the device has 256 and 16384");
  a.device.local_bytes = 49152;
  a.device.max_work_group = 32;
  refuses(&a, CLATTN_ERROR_VARIANT_UNFIT, "needs work-groups of");
}

/* Sub-groups of the unit's size are all that emulation takes. */
static void emulated_anywhere(void **state) {
  (void)state;
  asked a;
  begin(&a, "hq=2 sq=100 sk=100 d=64" HALVES, CL_DEVICE_TYPE_CPU);
  a.request.variant = MATRIX;
  a.request.emulated = CLATTNI_MATRIX_NVIDIA;
  a.device.local_bytes = 49152;
  refuses(&a, CLATTN_ERROR_VARIANT_UNFIT, "to emulate the matrix unit nvidia takes sub-groups of 32");
  a.device.sub_group_sizes = 8 | 16 | 64;
  refuses(&a, CLATTN_ERROR_VARIANT_UNFIT, "takes sub-groups of 32");
  a.device.sub_group_sizes = 32;
  picks(&a, MATRIX, "by name");
  assert_non_null(strstr(a.choice.options, "-DCLATTN_EMULATED=1"));
}

/* Every unit's tiles of every head dimension fit 48 KiB, as many GPUs have, and work-groups of 256. */
static void tiles_fit(void **state) {
  (void)state;
  static const int sub_groups[] = {0, 32, 32, 32, 32, 64, 64, 8, 16};
  asked a;
  char line[64];
  for (clattni_matrix unit = CLATTNI_MATRIX_NVIDIA_75; unit <= CLATTNI_MATRIX_DPAS_16; ++unit)
    for (int dim = 1; dim <= 256; dim += 5) {
      snprintf(line, sizeof line, "hq=2 sq=100 sk=100 d=%d math=half" HALVES, dim);
      begin_gpu(&a, line, unit);
      a.request.variant = MATRIX;
      picks(&a, MATRIX, "by name");
      assert_int_equal(a.choice.gx, sub_groups[unit]);
      assert_int_equal(a.choice.gy * 16, a.choice.rows);
    }
}

/* ---- numbers --------------------------------------------------------------------------------------------------- */

/* 1: passed, 0: not taken, -1: wrong. */
static int judge_job(const device_job *job, uint32_t outputs) {
  job_memory memory;
  expectation expect;
  run_options options;
  int claimed = 0, result = -1;
  memset(&options, 0, sizeof options);
  options.variant = MATRIX;
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

/* The line with these types for q, k, v and o, whose layouts stay; 0 if it names types itself, or another bias than f32:
 * each would be a program of its own. */
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
                                                 *letter == 'o' ? o : type, word + 2)
                                      : snprintf(to + length, capacity - length, "%s ", word));
    assert_true(length < capacity);
  }
  for (int n = 0; n < 4; ++n)
    if (!given[n])
      length += (size_t)snprintf(to + length, capacity - length, "%c=%s ", letters[n], n == 3 ? o : type);
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

static void judge_rows(const device_case *rows, size_t count, const char *o, size_t least) {
  size_t taken = 0, wrong = 0;
  for (size_t n = 0; n < count && wrong < 3; ++n) {
    device_case row = rows[n];
    row.name = "matrix units";
    judge_row(&row, o, &taken, &wrong);
  }
  print_message("%zu comparisons passed\n", taken);
  assert_int_equal(wrong, 0);
  assert_true(taken >= least);
}

/* Every rule of the table. */
static void every_rule(void **state) {
  (void)state;
  size_t taken = 0, wrong = 0;
  for (size_t n = 0; n < device_case_count && wrong < 3; ++n)
    if (device_cases[n].random == 0 && !device_cases[n].full)
      judge_row(&device_cases[n], "f32", &taken, &wrong);
  print_message("%zu comparisons passed\n", taken);
  assert_int_equal(wrong, 0);
  assert_true(taken > 100);
}

/* What the table lacks: whole tiles and those that are cut, of several blocks of keys; what is not a number, in every
 * tensor; scores far apart and far from 0. */
static void tiles_and_tails(void **state) {
  (void)state;
  static const device_case rows[] = {
      {.line = "hq=2 d=64", .vary = {"sq=15|16|17|64|65|129", "sk=1|15|16|17|63|64|65|129"}},
      {.line = "hq=4 hkv=1 sk=150 d=64", .vary = {"sq=3|32|33|70", "causal=0|1"}},
      {.line = "hq=2 sq=130 sk=200 dv=64", .vary = {"d=1|8|33|40|64", "causal=0|1"}},
      {.line = "hq=2 sq=130 sk=200 d=64", .vary = {"dv=1|8|33|40|63", "causal=0|1"}},
      {.line = "hq=2 sq=140 sk=256 d=64 dv=32", .data = DATA_FAR, .vary = {"causal=0|1"}},
      {.line = "hq=2 sq=140 sk=256 d=64 scale=1e30", .vary = {"causal=0|1"}},
      {.line = "hq=2 sq=140 sk=256 d=64 scale=-3", .vary = {"causal=0|1"}},
      {.line = "hq=2 sq=140 sk=256 d=64 scale=0", .vary = {"causal=0|1"}},
      {.line = "hq=2 sq=140 sk=256 d=64 scale=40", .vary = {"causal=0|1"}},
      {.line = "hq=2 sq=140 sk=256 d=64 scale=1e5", .vary = {"causal=0|1"}},
      {.line = "b=2 hq=2 sq=140 sk=256 d=64", .data = DATA_NAN_Q, .vary = {"causal=0|1"}},
      {.line = "b=2 hq=2 sq=140 sk=256 d=64", .data = DATA_INF_Q, .vary = {"causal=0|1"}},
      {.line = "b=2 hq=2 sq=140 sk=256 d=64", .data = DATA_NAN_K, .vary = {"causal=0|1"}},
      {.line = "b=2 hq=2 sq=140 sk=256 d=64", .data = DATA_INF_K, .vary = {"causal=0|1"}},
      {.line = "b=2 hq=2 sq=140 sk=256 d=64", .data = DATA_NAN_V, .vary = {"causal=0|1"}},
      {.line = "b=2 hq=2 sq=140 sk=256 d=64", .data = DATA_INF_V, .vary = {"causal=0|1"}},
      {.line = "b=2 hq=2 sq=140 sk=256 d=64", .data = DATA_ZERO_ROWS, .vary = {"causal=0|1"}},
      {.line = "b=2 hq=2 sq=140 sk=256 d=64 window=70,20", .data = DATA_FAR},
  };
  judge_rows(rows, sizeof rows / sizeof rows[0], "f32", 150);
}

/* Head dimensions of every program. */
static void every_dim(void **state) {
  (void)state;
  static const device_case rows[] = {
      {.line = "hq=2 sq=130 sk=200", .vary = {"d=32|64|96|128|192|256", "causal=0|1"}},
      {.line = "hq=2 sq=70 sk=100 dv=32", .vary = {"d=31|80|100|129|250", "causal=0|1"}},
      {.line = "b=2 hq=2 sq=70 sk=100 bias=f32", .data = DATA_NAN_V, .vary = {"d=32|64|96|128|192|256"}},
  };
  judge_rows(rows, sizeof rows / sizeof rows[0], "f32", 30);
}

static void every_output(void **state) {
  (void)state;
  static const device_case row = {.line = "hq=2 sq=70 sk=100 d=64", .vary = {"causal=0|1"}};
  judge_rows(&row, 1, "f16", 2);
  judge_rows(&row, 1, "bf16", 2);
}

/* Problems drawn at random. */
static void drawn_problems(void **state) {
  (void)state;
  const draw_mix mix = {.q = type,
                        .k = type,
                        .v = type,
                        .o = type,
                        .bias = "f32",
                        .words = "",
                        .least = 33,
                        .most = 64,
                        .rows = 64,
                        .keys = 64};
  enum { PROBLEMS = 150 };
  size_t taken = 0, wrong = 0;
  device_job *job = malloc(sizeof *job);
  assert_non_null(job);
  for (uint64_t seed = 1; seed <= PROBLEMS && wrong < 3; ++seed) {
    assert_true(device_job_draw(seed, &mix, seed % 4 == 0, job));
    const int result = judge_job(job, OUTPUTS);
    taken += result > 0;
    wrong += result < 0;
  }
  free(job);
  print_message("%zu comparisons passed\n", taken);
  assert_int_equal(wrong, 0);
  assert_true(taken > PROBLEMS / 4);
}

/* Opens the device, with a unit emulated by the environment's CLATTN_TEST_CONFIG; 0, SKIPPED, or 1. */
static int open_emulated(void) {
  clattn_problem problem;
  clattn_support support;
  char platform_name[128] = "";
  cl_platform_id platform = NULL;
  if (!device_rig_open(&rig))
    return 1;
  clattn_support_init(&support);
  if (clattn_problem_parse("sq=1 sk=1 d=1 q=f16 k=f16 v=f16 math=half", &problem, NULL) != CLATTN_SUCCESS ||
      clGetDeviceInfo(rig.device, CL_DEVICE_PLATFORM, sizeof platform, &platform, NULL) != CL_SUCCESS ||
      clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof platform_name, platform_name, NULL) != CL_SUCCESS)
    return 1;
  if (clattn_supported(rig.context, &problem, MATRIX, &support) == CLATTN_SUCCESS)
    return 0;
  print_message("skipped: %s\n", support.reason);
  return strncmp(platform_name, "Intel", 5) == 0 ? 1 : SKIPPED;
}

int main(int argc, char **argv) {
  const struct CMUnitTest selection[] = {cmocka_unit_test(taken_by_name), cmocka_unit_test(what_it_does_not_take),
                                         cmocka_unit_test(emulated_anywhere), cmocka_unit_test(tiles_fit)};
  const struct CMUnitTest some[] = {cmocka_unit_test(tiles_and_tails)};
  const struct CMUnitTest all[] = {cmocka_unit_test(tiles_and_tails), cmocka_unit_test(every_dim),
                                   cmocka_unit_test(every_output), cmocka_unit_test(every_rule),
                                   cmocka_unit_test(drawn_problems)};
  if (argc < 2)
    return 1;
  if (strcmp(argv[1], "select") == 0)
    return cmocka_run_group_tests(selection, NULL, NULL);
  type = argv[1];
  if (argc > 3)
    cmocka_set_test_filter(argv[3]);
  int result = open_emulated();
  if (result == 0)
    result = argc > 2 && strcmp(argv[2], "full") == 0 ? cmocka_run_group_tests(all, NULL, NULL)
                                                      : cmocka_run_group_tests(some, NULL, NULL);
  device_rig_close(&rig);
  return result;
}
