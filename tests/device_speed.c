/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds of memory and time, run alone on the machine: the workspace of long input, the fused variant against the
 * pipeline, and what skipped keys save.  Runs are interleaved, medians compared. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "device_judge.h"

enum { RUNS_MOST = 15, SIDES = 2 };

/* ---- timing ---------------------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double seconds_of(const clattn_plan *plan, const clattn_args *args) {
  struct timespec start, end;
  assert_int_equal(clFinish(rig.queue), CL_SUCCESS);
  assert_int_equal(timespec_get(&start, TIME_UTC), TIME_UTC);
  if (clattn_enqueue(plan, rig.queue, args, 0, NULL, NULL) != CLATTN_SUCCESS)
    fail_msg("%s", args->error->message);
  assert_int_equal(clFinish(rig.queue), CL_SUCCESS);
  assert_int_equal(timespec_get(&end, TIME_UTC), TIME_UTC);
  return (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
}

/* One side of a comparison. */
typedef struct side {
  const char *line, *variant;
  const clattn_args *args;
} side;

/* Medians of both sides, run in turns after one run each that builds and warms up. */
static void compare(const side sides[SIDES], size_t runs, double median[SIDES]) {
  double seconds[SIDES][RUNS_MOST];
  clattn_plan *plan[SIDES] = {NULL, NULL};
  for (size_t n = 0; n < SIDES; ++n) {
    clattn_problem problem;
    clattn_plan_options options;
    clattn_error error;
    clattn_plan_options_init(&options);
    clattn_error_init(&error);
    options.variant = sides[n].variant;
    if (clattn_problem_parse(sides[n].line, &problem, &error) != CLATTN_SUCCESS ||
        clattn_plan_create(rig.context, &problem, &options, &plan[n], &error) != CLATTN_SUCCESS)
      fail_msg("%s: %s", sides[n].line, error.message);
    (void)seconds_of(plan[n], sides[n].args);
  }
  for (size_t run = 0; run < runs; ++run)
    for (size_t n = 0; n < SIDES; ++n)
      seconds[n][run] = seconds_of(plan[n], sides[n].args);
  for (size_t n = 0; n < SIDES; ++n) {
    qsort(seconds[n], runs, sizeof seconds[n][0], by_value);
    median[n] = seconds[n][runs / 2];
    clattn_plan_release(plan[n]);
  }
}

/* ---- inputs ---------------------------------------------------------------------------------------------------- */

typedef struct inputs {
  image tensor[4]; /* q, k, v, o */
  clattn_error error;
  clattn_args args;
} inputs;

/* Heads of `rows` rows each.  Rows of keys r with r / 64 % of != kept hold NaN, where `of` is above 1. */
static void inputs_open(size_t heads, size_t rows, size_t dim, size_t of, size_t kept, inputs *in) {
  clattn_args_init(&in->args);
  clattn_error_init(&in->error);
  in->args.error = &in->error;
  clattn_mem *const mem[4] = {&in->args.q, &in->args.k, &in->args.v, &in->args.o};
  for (size_t n = 0; n < 4; ++n) {
    image *const list[1] = {&in->tensor[n]};
    const size_t count = heads * rows * dim;
    assert_true(image_open(&rig, count * sizeof(float), 0, &in->tensor[n]));
    float *values = malloc(count * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < count; ++i) {
      const int skipped = (n == 1 || n == 2) && of > 1 && i / dim % rows / 64 % of != kept;
      values[i] = skipped ? NAN : (float)(2 * device_random(1, n, i) - 1);
    }
    assert_true(images_fill(rig.queue, list, 1));
    assert_int_equal(clEnqueueWriteBuffer(rig.queue, in->tensor[n].buffer, CL_TRUE, 0, count * sizeof *values, values,
                                          0, NULL, NULL),
                     CL_SUCCESS);
    free(values);
    *mem[n] = clattn_buffer(in->tensor[n].buffer, 0);
  }
}

static void inputs_close(inputs *in) {
  for (size_t n = 0; n < 4; ++n)
    image_close(&in->tensor[n]);
}

/* ---- bounds ---------------------------------------------------------------------------------------------------- */

static void workspace_of_long_input(void **state) {
  (void)state;
  size_t passed = 0;
  for (uint32_t v = 0; v < variant_count; ++v) {
    clattn_problem problem;
    clattn_plan_options options;
    clattn_plan *plan = NULL;
    clattn_plan_info info;
    if (!variants[v].fused || !variants[v].usable)
      continue;
    clattn_plan_options_init(&options);
    clattn_plan_info_init(&info);
    options.variant = variants[v].name;
    for (int all = 0; all < 2; ++all) {
      const char *line = all ? "hq=8 sq=16384 sk=16384 d=64 klen=per_batch out=o,lse,max_logit"
                             : "hq=8 sq=16384 sk=16384 d=64 out=o,lse";
      assert_int_equal(clattn_problem_parse(line, &problem, NULL), CLATTN_SUCCESS);
      assert_int_equal(clattn_plan_create(rig.context, &problem, &options, &plan, NULL), CLATTN_SUCCESS);
      assert_int_equal(clattn_plan_get_info(plan, &info), CLATTN_SUCCESS);
      print_message("%s: %" PRIu64 " bytes of workspace for %s\n", variants[v].name, info.workspace_bytes, line);
      assert_true(info.workspace_bytes < 16u << 20);
      clattn_plan_release(plan);
      ++passed;
    }
  }
  assert_true(passed > 0);
}

/* On CPU devices alone: the variants of lanes are theirs. */
static int lanes_suit(void) {
  clattn_device_info info;
  clattn_device_info_init(&info);
  assert_int_equal(clattn_context_device_info(rig.context, &info), CLATTN_SUCCESS);
  return (info.type & CL_DEVICE_TYPE_CPU) != 0;
}

/* No slower than the pipeline; a tenth is left to noise. */
static void fused_against_pipeline(void **state) {
  (void)state;
  static const int dims[] = {64, 128};
  if (!lanes_suit())
    skip();
  for (size_t n = 0; n < sizeof dims / sizeof dims[0]; ++n) {
    static inputs in;
    char line[64];
    double median[SIDES];
    (void)snprintf(line, sizeof line, "hq=8 sq=1152 sk=1152 d=%d", dims[n]);
    inputs_open(8, 1152, (size_t)dims[n], 1, 0, &in);
    const side sides[SIDES] = {{line, "flash-cpu-vector", &in.args}, {line, "three-step-cpu", &in.args}};
    compare(sides, RUNS_MOST, median);
    print_message("%s: flash-cpu-vector %.4f s, three-step-cpu %.4f s, ratio %.2f\n", line, median[0], median[1],
                  median[0] / median[1]);
    assert_true(median[0] <= 1.1 * median[1]);
    inputs_close(&in);
  }
}

static void windows_skip_keys(void **state) {
  (void)state;
  static inputs in;
  double median[SIDES];
  if (!lanes_suit())
    skip();
  inputs_open(1, 16384, 64, 1, 0, &in);
  const side sides[SIDES] = {{"sq=16384 sk=16384 d=64", "flash-cpu-vector", &in.args},
                             {"sq=16384 sk=16384 d=64 window=127,0", "flash-cpu-vector", &in.args}};
  compare(sides, 3, median);
  print_message("a window of 128 of 16384 keys: %.4f s of %.4f s, 1/%.1f\n", median[1], median[0],
                median[0] / median[1]);
  assert_true(20.0 * median[1] <= median[0]);
  inputs_close(&in);
}

/* Blocks of 64 x 64 of which every tenth of a row is kept; the others' keys and values are NaN. */
static void block_masks_skip_keys(void **state) {
  (void)state;
  enum { LENGTH = 16384, BLOCKS = LENGTH / 64, WORDS = BLOCKS / 32, OF = 10, KEPT = 3, DIM = 64 };
  static inputs whole, poisoned;
  static uint32_t words[BLOCKS * WORDS];
  double median[SIDES];
  image mask;
  if (!lanes_suit())
    skip();
  for (size_t i = 0; i < BLOCKS; ++i)
    for (size_t j = 0; j < BLOCKS; ++j)
      words[i * WORDS + j / 32] |= (uint32_t)(j % OF == KEPT) << j % 32;
  inputs_open(1, LENGTH, DIM, 1, 0, &whole);
  inputs_open(1, LENGTH, DIM, OF, KEPT, &poisoned);
  assert_true(image_open(&rig, sizeof words, 0, &mask));
  assert_int_equal(clEnqueueWriteBuffer(rig.queue, mask.buffer, CL_TRUE, 0, sizeof words, words, 0, NULL, NULL),
                   CL_SUCCESS);
  poisoned.args.block_mask = clattn_buffer(mask.buffer, 0);
  const side sides[SIDES] = {
      {"sq=16384 sk=16384 d=64", "flash-cpu-vector", &whole.args},
      {"sq=16384 sk=16384 d=64 block_mask=bits block_q=64 block_k=64", "flash-cpu-vector", &poisoned.args}};
  compare(sides, 3, median);
  print_message("a block mask that is 90 %% empty: %.4f s of %.4f s, 1/%.1f\n", median[1], median[0],
                median[0] / median[1]);
  image *const o[1] = {&poisoned.tensor[3]};
  assert_true(images_sync(rig.queue, o, 1));
  for (size_t n = 0; n < LENGTH * DIM; ++n) {
    float x;
    memcpy(&x, o[0]->memory + n * sizeof x, sizeof x);
    assert_true(isfinite(x) && fabsf(x) < 1.0f);
  }
  assert_true(5.0 * median[1] <= median[0]);
  image_close(&mask);
  inputs_close(&whole);
  inputs_close(&poisoned);
}

int speed_tests(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(workspace_of_long_input),
      cmocka_unit_test(fused_against_pipeline),
      cmocka_unit_test(windows_skip_keys),
      cmocka_unit_test(block_masks_skip_keys),
  };
  return cmocka_run_group_tests_name("bounds of memory and time", tests, NULL, NULL);
}
