/* SPDX-License-Identifier: Apache-2.0 */
/* Every case of the table on every variant that claims it, and what holds for runs as a whole: the same bits again,
 * workspaces of any size, one plan for many sizes, queues of both kinds.
 *
 * test_device [fast|full]: the short part (default), or the long one. test_device types: types and similarities.
 * test_device faults: the known faults of others alone, which are in the short part too. test_device speed: bounds of
 * memory and time. test_device some: a few rows of the table, unless the environment's
 * CLATTN_TEST_CONFIG forces the width that the device has anyway (exit code 77). test_device only [PART] "PATTERN": tests of the short part, or of another one, by name; * and ?
 * stand for any characters. test_device line "PROBLEM LINE": one problem, for a closer look. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "clattn_ref.h"
#include "device.h"
#include "device_judge.h"

/* ---- the table ------------------------------------------------------------------------------------------------- */

static void run_row(void **state) {
  judge_row(*state);
}

static void every_variant_ran(void **state) {
  (void)state;
  size_t claimed = 0;
  for (uint32_t v = 0; v < variant_count; ++v) {
    print_message("%s: %zu comparisons passed\n", variants[v].name, variants[v].passed);
    claimed += variants[v].passed > 0;
  }
  assert_true(claimed > 0);
}

/* ---- weights at the edge of the normal numbers ------------------------------------------------------------------ */

/* Row i has key 0 at score 0 and key 1, whose value is 1e38, at depths[i].  Weights below 2^-126 count as 0, and
 * where one is not 0 it is right: what lies between, a few bits of a number, is neither. */
void weights_that_vanish(void **state) {
  (void)state;
  static const float depths[] = {-87.0f,  -87.2f,  -87.3f,  -87.32f, -87.33f, -87.34f, -87.35f, -87.4f,
                                 -87.5f,  -87.6f,  -87.67f, -87.7f,  -88.0f,  -88.4f,  -89.0f,  -103.0f,
                                 -104.0f, -149.0f, -151.0f, -500.0f, -1e30f,  -3e38f};
  enum { ROWS = sizeof depths / sizeof depths[0] };
  static const float large = 1e38f, zero = 0.0f;
  static const char line[] = "sq=%d sk=2 d=1 dv=1 bias=f32 out=o,scores stage=weights";
  char text[128];
  clattn_problem problem;
  image tensor[6];
  size_t passed = 0;
  (void)snprintf(text, sizeof text, line, (int)ROWS);
  assert_int_equal(clattn_problem_parse(text, &problem, NULL), CLATTN_SUCCESS);
  static const size_t floats[6] = {ROWS, 2, 2, ROWS, 2 * ROWS, 2 * ROWS}; /* q, k, v, o, scores, bias */
  for (size_t n = 0; n < 6; ++n) {
    assert_true(image_open(&rig, floats[n] * sizeof(float), 0, &tensor[n]));
    memset(tensor[n].memory, 0, tensor[n].bytes);
  }
  memcpy(tensor[2].memory, (const float[]){zero, large}, 2 * sizeof(float));
  for (size_t i = 0; i < ROWS; ++i)
    memcpy(tensor[5].memory + (2 * i + 1) * sizeof(float), &depths[i], sizeof(float));
  for (uint32_t v = 0; v < variant_count; ++v) {
    image *const written[2] = {&tensor[3], &tensor[4]};
    clattn_args args;
    clattn_plan *plan = NULL;
    clattn_plan_options options;
    clattn_error error;
    clattn_plan_options_init(&options);
    clattn_error_init(&error);
    options.variant = variants[v].name;
    const clattn_status status = clattn_plan_create(rig.context, &problem, &options, &plan, &error);
    if (status == CLATTN_ERROR_VARIANT_UNFIT)
      continue;
    assert_int_equal(status, CLATTN_SUCCESS);
    clattn_args_init(&args);
    args.error = &error;
    clattn_mem *const mem[6] = {&args.q, &args.k, &args.v, &args.o, &args.scores, &args.bias};
    for (size_t n = 0; n < 6; ++n)
      *mem[n] = clattn_buffer(tensor[n].buffer, 0);
    if (clattn_enqueue(plan, rig.queue, &args, 0, NULL, NULL) != CLATTN_SUCCESS)
      fail_msg("%s", error.message);
    assert_true(images_sync(rig.queue, written, 2));
    for (size_t i = 0; i < ROWS; ++i) {
      const double e = exp((double)depths[i]), want = e / (1.0 + e);
      float o, weight;
      memcpy(&o, tensor[3].memory + i * sizeof o, sizeof o);
      memcpy(&weight, tensor[4].memory + (2 * i + 1) * sizeof weight, sizeof weight);
      const int may_vanish = want < 1.1754943508222875e-38;
      const int right =
          fabs((double)o - 1e38 * want) <= 1e-5 * 1e38 * want && fabs((double)weight - want) <= 1e-5 * want;
      const int gone = o >= 0.0f && o <= 0.0f && weight >= 0.0f && weight <= 0.0f;
      if (!right && !(may_vanish && gone))
        fail_msg("%s, score %.9g: o is %.9g, not %.9g; the weight is %.9g, not %.9g", variants[v].name,
                 (double)depths[i], (double)o, 1e38 * want, (double)weight, want);
      ++passed;
    }
    clattn_plan_release(plan);
  }
  for (size_t n = 0; n < 6; ++n)
    image_close(&tensor[n]);
  assert_true(passed > 0);
}

/* ---- one buffer for everything --------------------------------------------------------------------------------- */

/* q, k, v and o side by side in one buffer, as a fused projection writes them; o lies between inputs.  `between` is the
 * distance of the four from each other, `head` that of two heads. */
static void packed(size_t between, size_t head) {
  enum {
    BATCH = 2,
    HEADS = 3,
    ROWS = 50,
    DIM = 8,
    PITCH = 4 * HEADS * DIM,
    FRONT = 5,
    ALL = FRONT + BATCH * ROWS * PITCH
  };
  char line[512], strides[64];
  clattn_problem problem;
  image buffer, *const all[1] = {&buffer};
  size_t passed = 0;
  (void)snprintf(strides, sizeof strides, "strided:%d,%zu,%d,1", ROWS * PITCH, head, PITCH);
  (void)snprintf(line, sizeof line, "b=%d hq=%d sq=%d sk=%d d=%d causal=1 q=%s k=%s v=%s o=%s", BATCH, HEADS, ROWS,
                 ROWS, DIM, strides, strides, strides, strides);
  double *want = calloc((size_t)BATCH * HEADS * ROWS * DIM, sizeof *want);
  float *held = malloc(ALL * sizeof *held);
  unsigned char *is_output = calloc(ALL, 1);
  assert_non_null(want);
  assert_non_null(held);
  assert_non_null(is_output);
  assert_int_equal(clattn_problem_parse(line, &problem, NULL), CLATTN_SUCCESS);
  assert_true(image_open(&rig, ALL * sizeof *held, OUTPUT_PATTERN, &buffer));
  memset(held, OUTPUT_PATTERN, ALL * sizeof *held);
  for (size_t row = 0; row < BATCH * ROWS; ++row)
    for (size_t h = 0; h < HEADS; ++h)
      for (size_t part = 0; part < 4; ++part)
        for (size_t d = 0; d < DIM; ++d) {
          const size_t at = FRONT + row * PITCH + h * head + part * between + d;
          is_output[at] = part == 3;
          if (part < 3)
            held[at] = (float)(4.0 * device_random(9, part, at) - 2.0);
        }
  clattn_ref_args ref;
  clattn_ref_args_init(&ref);
  ref.q = held + FRONT;
  ref.k = held + FRONT + between;
  ref.v = held + FRONT + 2 * between;
  ref.o = want;
  assert_int_equal(clattn_ref_attention(&problem, &ref), CLATTN_SUCCESS);

  for (uint32_t v = 0; v < variant_count; ++v) {
    clattn_args args;
    clattn_plan *plan = NULL;
    clattn_plan_options options;
    clattn_error error;
    clattn_plan_options_init(&options);
    clattn_error_init(&error);
    options.variant = variants[v].name;
    const clattn_status status = clattn_plan_create(rig.context, &problem, &options, &plan, &error);
    if (status == CLATTN_ERROR_VARIANT_UNFIT)
      continue;
    assert_int_equal(status, CLATTN_SUCCESS);
    assert_int_equal(clEnqueueWriteBuffer(rig.queue, buffer.buffer, CL_TRUE, 0, buffer.bytes, held, 0, NULL, NULL),
                     CL_SUCCESS);
    clattn_args_init(&args);
    args.error = &error;
    clattn_mem *const parts[4] = {&args.q, &args.k, &args.v, &args.o};
    for (size_t n = 0; n < 4; ++n)
      *parts[n] = clattn_buffer(buffer.buffer, sizeof(float) * (FRONT + n * between));
    if (clattn_enqueue(plan, rig.queue, &args, 0, NULL, NULL) != CLATTN_SUCCESS)
      fail_msg("%s: %s", line, error.message);
    assert_true(images_sync(rig.queue, all, 1));
    for (size_t n = 0; n < ALL; ++n)
      if (!is_output[n])
        assert_memory_equal(buffer.memory + n * sizeof(float), &held[n], sizeof(float));
    for (size_t b = 0, n = 0; b < BATCH; ++b)
      for (size_t h = 0; h < HEADS; ++h)
        for (size_t row = 0; row < ROWS; ++row)
          for (size_t d = 0; d < DIM; ++d, ++n, ++passed) {
            float o;
            const size_t at = FRONT + (b * ROWS + row) * PITCH + h * head + 3 * between + d;
            memcpy(&o, buffer.memory + at * sizeof o, sizeof o);
            assert_true(fabs((double)o - want[n]) < 4e-6);
          }
    clattn_plan_release(plan);
  }
  image_close(&buffer);
  free(want);
  free(held);
  free(is_output);
  assert_true(passed > 0);
}

static void packed_by_heads(void **state) {
  (void)state;
  packed(8, 32); /* (row, head, q k v o, element) */
}

static void packed_by_parts(void **state) {
  (void)state;
  packed(24, 8); /* (row, q k v o, head, element) */
}

#define SKIPPED 77 /* ctest's word for it */

/* ---- main ------------------------------------------------------------------------------------------------------ */

static int one_line(const char *line) {
  device_job job;
  size_t passed = 0;
  int failed = 0;
  for (size_t seed = 0; seed < 8; ++seed) {
    parse_job(line, 0, &job);
    job.seed += seed;
    failed += judge_job(&job, seed, &passed) != 0;
  }
  print_message("%zu comparisons passed, %d jobs failed\n", passed, failed);
  return failed > 0 || passed == 0;
}

static void put_row(const device_case *row, struct CMUnitTest *test) {
  memset(test, 0, sizeof *test);
  test->name = row->name;
  test->test_func = run_row;
  test->initial_state = (void *)(uintptr_t)row;
}

/* A bit of everything that a vector's width may touch: for widths that this device would not take of its own accord. */
static size_t some_tests(struct CMUnitTest *tests) {
  static const char *const names[] = {"rows x keys",
                                      "keys at tile edges",
                                      "key dims at edges",
                                      "value dims at edges",
                                      "windows and causal",
                                      "both lengths, causal",
                                      "keep mask, bits",
                                      "bias of -inf",
                                      "far-off keys, masked",
                                      "NaN in v",
                                      "infinity in k",
                                      "q and o with gaps",
                                      "alibi with other rules",
                                      "sinks",
                                      "block masks",
                                      "packed queries and pages",
                                      "batch invariant",
                                      "few rows, rules"};
  size_t count = 0;
  for (size_t n = 0; n < sizeof names / sizeof names[0]; ++n)
    for (size_t row = 0; row < device_case_count; ++row)
      if (strcmp(device_cases[row].name, names[n]) == 0)
        put_row(&device_cases[row], &tests[count++]);
  if (count != sizeof names / sizeof names[0])
    return 0; /* a row has another name now */
  tests[count++] = (struct CMUnitTest)cmocka_unit_test(every_variant_ran);
  return count;
}

/* Rows of the table: the long ones, or the others. */
static size_t table_tests(int full, struct CMUnitTest *tests) {
  size_t count = 0;
  for (size_t n = 0; n < device_case_count; ++n)
    if ((device_cases[n].full != 0) == full)
      put_row(&device_cases[n], &tests[count++]);
  return count;
}

static size_t type_tests(struct CMUnitTest *tests) {
  for (size_t n = 0; n < device_type_case_count; ++n)
    put_row(&device_type_cases[n], &tests[n]);
  return device_type_case_count;
}

static int run_part(const char *mode) {
  static const struct CMUnitTest whole_runs[] = {
      cmocka_unit_test(workspace_caps),          cmocka_unit_test(max_logit_in_the_smallest_workspace),
      cmocka_unit_test(one_plan_for_many_sizes), cmocka_unit_test(events_order_an_out_of_order_queue),
      cmocka_unit_test(two_queues_at_once),      cmocka_unit_test(launch_events),
      cmocka_unit_test(outputs_leave_o_alone),   cmocka_unit_test(fused_plans_keep_no_scores),
      cmocka_unit_test(packed_by_heads),         cmocka_unit_test(packed_by_parts),
      cmocka_unit_test(others_change_no_bit),    cmocka_unit_test(batch_invariant_rows),
      cmocka_unit_test(contents_are_checked),    cmocka_unit_test(every_cell_has_a_case),
      cmocka_unit_test(every_variant_ran),
  };
  static const struct CMUnitTest type_runs[] = {
      cmocka_unit_test(every_half_pattern),
      cmocka_unit_test(stores_round_to_nearest_even),
      cmocka_unit_test(quantised_as_dequantised),
      cmocka_unit_test(every_type_has_a_case),
  };
  const size_t whole_count = sizeof whole_runs / sizeof whole_runs[0];
  const int full = strcmp(mode, "full") == 0, types = strcmp(mode, "types") == 0, some = strcmp(mode, "some") == 0;
  size_t count = 0;
  struct CMUnitTest *tests =
      calloc(device_case_count + device_type_case_count + whole_count + FAULT_TESTS_MOST + 8, sizeof *tests);
  if (tests == NULL)
    return 1;
  if (some)
    count = some_tests(tests);
  if (!full && !types && !some)
    count += fault_tests(tests);
  if (strcmp(mode, "faults") != 0 && !some)
    count += types ? type_tests(tests) : table_tests(full, tests + count);
  for (size_t n = 0; types && n < sizeof type_runs / sizeof type_runs[0]; ++n)
    tests[count++] = type_runs[n];
  for (size_t n = full || types ? whole_count - 1 : 0; strcmp(mode, "faults") != 0 && !some && n < whole_count; ++n)
    tests[count++] = whole_runs[n];
  const int failed = count > 0 ? _cmocka_run_group_tests(mode, tests, count, NULL, NULL) : 1;
  free(tests);
  return failed;
}

/* Whether vectors would be as wide without CLATTN_TEST_CONFIG. */
static int is_own_width(void) {
  clattn_device_info info;
  char own[16];
  const char *config = getenv("CLATTN_TEST_CONFIG");
  clattn_device_info_init(&info);
  if (config == NULL || clattn_context_device_info(rig.context, &info) != CLATTN_SUCCESS)
    return 0;
  (void)snprintf(own, sizeof own, "width=%d", clattni_lanes(&info, 0));
  return strcmp(config, own) == 0;
}

int main(int argc, char **argv) {
  static const char *const modes[] = {"fast", "full", "types", "faults", "some", "speed"};
  const char *mode = argc > 1 ? argv[1] : "fast";
  int known = (argc == 3 && (strcmp(mode, "line") == 0 || strcmp(mode, "only") == 0)) ||
              (argc == 4 && strcmp(mode, "only") == 0),
      failed;
  for (size_t n = 0; n < sizeof modes / sizeof modes[0]; ++n)
    known |= argc <= 2 && strcmp(mode, modes[n]) == 0;
  if (!known) {
    print_error(
        "usage: test_device [fast|full|types|faults|some|speed|line \"PROBLEM LINE\"|only [PART] \"PATTERN\"]\n");
    return 2;
  }
  if (!device_rig_open(&rig))
    return 1;
  list_variants();
  if (strcmp(mode, "some") == 0 && is_own_width()) {
    print_message("the other runs have this width\n");
    failed = SKIPPED;
  } else if (strcmp(mode, "line") == 0) {
    failed = one_line(argv[2]);
  } else if (strcmp(mode, "speed") == 0) {
    failed = speed_tests();
  } else {
    if (strcmp(mode, "only") == 0)
      cmocka_set_test_filter(argv[argc - 1]);
    failed = run_part(strcmp(mode, "only") != 0 ? mode : argc == 4 ? argv[2] : "fast");
  }
  device_rig_close(&rig);
  return failed == SKIPPED ? SKIPPED : failed != 0;
}
