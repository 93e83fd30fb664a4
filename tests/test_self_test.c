/* SPDX-License-Identifier: Apache-2.0 */
/* clattn_self_test: that it passes where kernels are right, and finds what is wrong where they are not.
 *   test_self_test         on the default device
 *   test_self_test stub    on the stub driver, whose kernels compute nothing */
#include "stub/use.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "self_test_cases.h"

enum { MOST_CALLS = 5000, MOST_READS = 1000 };

static const clattni_allocator plain_malloc;

/* ---- a driver that reads wrong numbers ---- */

/* In place of OpenCL's own, which the library calls to see its results: read number spoiled_read (from 1; 0: none)
 * comes back with one wrong float. */
static long reads, spoiled_read;
static int spoil_last; /* 1: the last number becomes NaN; 0: the first one some other, in every type */

CL_API_ENTRY cl_int CL_API_CALL clEnqueueReadBuffer(cl_command_queue command_queue, cl_mem buffer,
                                                    cl_bool blocking_read, size_t offset, size_t size, void *ptr,
                                                    cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
                                                    cl_event *event) {
  cl_int code = CL_SUCCESS;
  assert_true(blocking_read && event == NULL);
  void *const from = clEnqueueMapBuffer(command_queue, buffer, CL_TRUE, CL_MAP_READ, offset, size,
                                        num_events_in_wait_list, event_wait_list, NULL, &code);
  if (code != CL_SUCCESS)
    return code;
  memcpy(ptr, from, size);
  code = clEnqueueUnmapMemObject(command_queue, buffer, from, 0, NULL, NULL);
  if (++reads == spoiled_read) {
    unsigned char *const bytes = ptr;
    memset(spoil_last ? bytes + size - 4 : bytes, spoil_last ? 0xff : 0x42, 4); /* 0x4242: 48.5 of bf16, 3.13 of f16 */
  }
  return code;
}

/* ---- with no device ---- */

static void comparison(void **state) {
  (void)state;
  static const struct {
    float got, want;
    int wrong;
    clattn_dtype dtype;
  } pairs[] = {
      {1, 1, 0, CLATTN_F32},
      {0.5f, 0.50001f, 0, CLATTN_F32},
      {0.5f, 0.50003f, 1, CLATTN_F32},
      {1000.01f, 1000, 0, CLATTN_F32},
      {1000.1f, 1000, 1, CLATTN_F32},
      {-1, 1, 1, CLATTN_F32},
      {NAN, 1, 1, CLATTN_F32},
      {NAN, 0, 1, CLATTN_F32},
      {NAN, -INFINITY, 1, CLATTN_F32},
      {INFINITY, 1, 1, CLATTN_F32},
      {0, 0, 0, CLATTN_F32},
      {-0.0f, 0, 0, CLATTN_F32},
      {FLT_MIN, 0, 1, CLATTN_F32}, /* 0 is exact */
      {0, FLT_MIN, 0, CLATTN_F32},
      {-INFINITY, -INFINITY, 0, CLATTN_F32},
      {-FLT_MAX, -INFINITY, 1, CLATTN_F32},
      {INFINITY, -INFINITY, 1, CLATTN_F32},
      {-INFINITY, -FLT_MAX, 1, CLATTN_F32},
      {-FLT_MAX, -FLT_MAX, 0, CLATTN_F32},
      {FLT_MAX, -FLT_MAX, 1, CLATTN_F32},
      {1e30f, 1e30f, 0, CLATTN_F32},
      {0.99e30f, 1e30f, 1, CLATTN_F32},
      {0.5f, 0.5004f, 0, CLATTN_F16},
      {0.5f, 0.5006f, 1, CLATTN_F16},
      {1000.6f, 1000, 1, CLATTN_F16},
      {0.5f, 0.503f, 0, CLATTN_BF16},
      {0.5f, 0.505f, 1, CLATTN_BF16},
      {NAN, 1, 1, CLATTN_F16},
      {0x1p-24f, 0, 1, CLATTN_F16},
  };
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; ++i)
    if (clattni_self_test_wrong(pairs[i].dtype, pairs[i].got, pairs[i].want) != pairs[i].wrong)
      fail_msg("%g for %g should be %s", (double)pairs[i].got, (double)pairs[i].want,
               pairs[i].wrong ? "wrong" : "right");
}

static int count_nans(const clattni_self_test_case *of, clattni_slot slot) {
  const float *const values = of->input[slot];
  int nans = 0;
  for (size_t i = 0; i < of->bytes[slot] / sizeof *values; ++i)
    nans += isnan(values[i]) != 0;
  return nans;
}

/* Every rule that kernels know is in some case, and every case is small. */
static void cases(void **state) {
  (void)state;
  struct {
    const char *name;
    int seen;
  } rules[] = {{"causal", 0},
               {"window", 0},
               {"bottom right", 0},
               {"prefix", 0},
               {"chunk", 0},
               {"q lengths", 0},
               {"k lengths", 0},
               {"mask of bytes", 0},
               {"mask of bits", 0},
               {"block mask", 0},
               {"bias", 0},
               {"sink", 0},
               {"softcap", 0},
               {"signed ALiBi", 0},
               {"symmetric ALiBi", 0},
               {"packed", 0},
               {"paged", 0},
               {"lse", 0},
               {"weights", 0},
               {"max logit", 0},
               {"shared heads", 0},
               {"64 keys or less", 0},
               {"more than 64 keys", 0},
               {"wide", 0},
               {"v_dim", 0},
               {"NaN in q", 0},
               {"NaN in k", 0},
               {"f16", 0},
               {"bf16", 0},
               {"i8", 0},
               {"i4", 0},
               {"f16 scales", 0},
               {"cosine", 0},
               {"additive", 0},
               {"a factor per head", 0}};
  for (uint32_t i = 0; i < clattni_self_test_count(); ++i) {
    clattni_self_test_case c;
    clattn_error error;
    size_t inputs = 0;
    clattn_error_init(&error);
    if (clattni_self_test_make(i, &plain_malloc, &c, &error) != CLATTN_SUCCESS)
      fail_msg("%s", error.message);
    const clattn_problem *const p = &c.problem;
    const int seen[] = {
        p->causal != 0,
        p->window != 0,
        p->offset_mode == CLATTN_OFFSET_BOTTOM_RIGHT,
        p->prefix_mode != CLATTN_PREFIX_NONE,
        p->chunk != 0,
        p->q_length_mode == CLATTN_LENGTH_PER_BATCH,
        p->k_length_mode == CLATTN_LENGTH_PER_BATCH,
        p->keep_mask_kind == CLATTN_MASK_U8,
        p->keep_mask_kind == CLATTN_MASK_BITS,
        p->block_mask_kind != CLATTN_MASK_NONE,
        p->use_bias != 0,
        p->use_sink != 0,
        p->softcap > 0,
        p->alibi == CLATTN_ALIBI_SIGNED,
        p->alibi == CLATTN_ALIBI_SYMMETRIC,
        clattni_packed_q(p) && clattni_packed_k(p),
        clattni_paged(p),
        (p->outputs & CLATTN_OUT_LSE) != 0,
        (p->outputs & CLATTN_OUT_SCORES) != 0 && p->stage == CLATTN_STAGE_WEIGHTS,
        (p->outputs & CLATTN_OUT_MAX_LOGIT) != 0,
        p->q_heads / p->kv_heads == 3,
        p->k_len <= 64,
        p->k_len > 64,
        p->qk_dim > 64,
        p->v_dim != p->qk_dim,
        p->q.dtype == CLATTN_F32 && count_nans(&c, CLATTNI_Q) > 0,
        p->k.dtype == CLATTN_F32 && count_nans(&c, CLATTNI_K) > 0,
        p->q.dtype == CLATTN_F16 && p->k.dtype == CLATTN_F16 && p->v.dtype == CLATTN_F16 && p->o.dtype == CLATTN_F16,
        p->q.dtype == CLATTN_BF16 && p->k.dtype == CLATTN_BF16 && p->v.dtype == CLATTN_BF16 &&
            p->o.dtype == CLATTN_BF16,
        p->k.dtype == CLATTN_I8 && p->v.dtype == CLATTN_I8,
        p->k.dtype == CLATTN_I4 && p->v.dtype == CLATTN_I4 && p->qk_dim > 32 && p->v_dim > 32,
        p->k_scale.dtype == CLATTN_F16 || p->v_scale.dtype == CLATTN_F16,
        p->similarity == CLATTN_COSINE,
        p->similarity == CLATTN_ADDITIVE,
        p->use_head_scale != 0,
    };
    assert_int_equal(sizeof seen / sizeof *seen, sizeof rules / sizeof *rules);
    for (size_t r = 0; r < sizeof rules / sizeof *rules; ++r)
      rules[r].seen |= seen[r];
    for (int slot = 0; slot < CLATTNI_SLOTS; ++slot)
      inputs += c.input[slot] ? c.bytes[slot] : 0;
    assert_true(inputs > 0 && inputs < 16384);
    /* Samples move over all elements of a row. */
    assert_true(c.row->step == 1 || (p->v_dim % c.row->step != 0 && p->k_len % c.row->step != 0));
    assert_int_equal(count_nans(&c, CLATTNI_BIAS), 0);
    clattni_self_test_free(&plain_malloc, &c);
  }
  for (size_t r = 0; r < sizeof rules / sizeof *rules; ++r)
    if (!rules[r].seen)
      fail_msg("no case of the self-test has: %s", rules[r].name);
}

static void null_context(void **state) {
  (void)state;
  clattn_error error;
  clattn_error_init(&error);
  assert_int_equal(clattn_self_test(NULL, &error), CLATTN_ERROR_NULL_POINTER);
  assert_int_equal(error.status, CLATTN_ERROR_NULL_POINTER);
  assert_string_equal(error.message, "context is NULL");
  assert_int_equal(clattn_self_test(NULL, NULL), CLATTN_ERROR_NULL_POINTER);
}

/* ---- with a device ---- */

static clattn_context *context_with(const char *config) {
  clattn_context *context = NULL;
  clattn_context_options options;
  clattn_error error;
  clattn_error_init(&error);
  clattn_context_options_init(&options);
  options.config_text = config;
  if (clattn_context_create_default(&options, &context, &error) != CLATTN_SUCCESS)
    fail_msg("no context: %s", error.message);
  return context;
}

static void expect_failure(clattn_context *context, clattn_status wanted, const char *part) {
  clattn_error error;
  clattn_error_init(&error);
  const clattn_status status = clattn_self_test(context, &error);
  if (status != wanted || error.status != wanted || strstr(error.message, part) == NULL)
    fail_msg("%d '%s', wanted %d '...%s...'", (int)status, error.message, (int)wanted, part);
}

static void passes(void **state) {
  (void)state;
  clattn_context *const context = context_with(NULL);
  clattn_error error;
  clattn_error_init(&error);
  strcpy(error.message, "left from before");
  error.status = CLATTN_ERROR_TEXT;
  if (clattn_self_test(context, &error) != CLATTN_SUCCESS)
    fail_msg("%s", error.message);
  assert_int_equal(error.status, CLATTN_SUCCESS);
  assert_string_equal(error.message, "");
  assert_int_equal(clattn_self_test(context, NULL), CLATTN_SUCCESS);
  clattn_context_release(context);
}

static void config_is_respected(void **state) {
  (void)state;
  clattn_context *context = context_with("forbid=fused");
  assert_int_equal(clattn_self_test(context, NULL), CLATTN_SUCCESS);
  clattn_context_release(context);
  context = context_with("forbid=fused;forbid=three-step");
  expect_failure(context, CLATTN_ERROR_SELF_TEST, "no variant ran");
  expect_failure(context, CLATTN_ERROR_SELF_TEST, "forbidden by the context's config_text");
  clattn_context_release(context);
  context = context_with("forbid=no-such-family");
  expect_failure(context, CLATTN_ERROR_TEXT, "no-such-family");
  clattn_context_release(context);
}

/* One wrong number in any output of any case on any variant. */
static void wrong_numbers_are_found(void **state) {
  (void)state;
  clattn_context *const context = context_with(NULL);
  reads = spoiled_read = 0;
  assert_int_equal(clattn_self_test(context, NULL), CLATTN_SUCCESS);
  const long total = reads;
  assert_true(total >= 2 * (long)clattni_self_test_count() && total < MOST_READS);
  for (spoil_last = 0; spoil_last < 2; ++spoil_last)
    for (long n = 1; n <= total; ++n) {
      reads = 0;
      spoiled_read = n;
      expect_failure(context, CLATTN_ERROR_SELF_TEST, spoil_last ? "is nan, not " : ",0] is ");
      assert_int_equal(reads, n);
    }
  spoil_last = 0;
  spoiled_read = 0;
  assert_int_equal(clattn_self_test(context, NULL), CLATTN_SUCCESS);
  clattn_context_release(context);
}

/* ---- with the stub driver ---- */

static int stub_setup(void **state) {
  stub_settings settings;
  const int code = rig_setup(state);
  stub->settings(&settings);
  settings.forbid_blocking = 0; /* the self-test blocks, as documented */
  stub->set_settings(&settings);
  return code;
}

static clattn_context *stub_context(const rig *r, heap *h, const char *config) {
  clattn_context_options options;
  clattn_context *context = NULL;
  heap_options(h, &options);
  options.config_text = config;
  assert_int_equal(clattn_context_create(r->cl, r->device[0], &options, &context, NULL), CLATTN_SUCCESS);
  return context;
}

/* The message is about the first variant; when that one is forbidden, about the next, and so on. */
static void nothing_is_computed(void **state) {
  heap h;
  clattn_context *context = stub_context(*state, &h, NULL);
  char part[128], config[512] = "variant=three-step";
  int named = 0;
  for (uint32_t i = 0; clattn_variant_name(i) != NULL; ++i) {
    const size_t length = strlen(config);
    clattn_error error;
    clattn_error_init(&error);
    snprintf(part, sizeof part, "variant %s, case \"plain\": o[0,0,0,0] is nan, not ", clattn_variant_name(i));
    assert_int_equal(clattn_self_test(context, &error), CLATTN_ERROR_SELF_TEST);
    assert_int_equal(error.status, CLATTN_ERROR_SELF_TEST);
    named += strstr(error.message, part) != NULL;
    snprintf(config + length, sizeof config - length, ";forbid=%s", clattn_variant_name(i));
    clattn_context_release(context);
    assert_int_equal(atomic_load(&h.live), 0);
    context = stub_context(*state, &h, config);
  }
  assert_true(named >= 2);
  expect_failure(context, CLATTN_ERROR_SELF_TEST, "no variant ran");
  clattn_context_release(context);
  assert_int_equal(atomic_load(&h.live), 0);
}

static void calls_fail(void **state) {
  uint64_t n = 1;
  for (int failed = 1; failed; ++n) {
    heap h;
    clattn_error error;
    const uint64_t objects = live_objects(), references = live_references();
    clattn_context *const context = stub_context(*state, &h, NULL);
    clattn_error_init(&error);
    stub->set_fail(NULL, n, CL_OUT_OF_RESOURCES);
    const clattn_status status = clattn_self_test(context, &error);
    failed = stub->failed() != 0;
    const char *const name = failed ? stub->failed_name() : "nothing";
    stub->set_fail(NULL, 0, 0);
    /* Nobody could do anything about a release. */
    const int expected = failed && strncmp(name, "clRelease", 9) != 0 ? CL_OUT_OF_RESOURCES : CLATTN_ERROR_SELF_TEST;
    if (status != expected || error.status != status || error.message[0] == 0)
      fail_msg("call %llu (%s) failed: %d '%s'", (unsigned long long)n, name, (int)status, error.message);
    clattn_context_release(context);
    assert_int_equal(live_objects(), objects);
    assert_int_equal(live_references(), references);
    assert_int_equal(atomic_load(&h.live), 0);
    assert_true(n < MOST_CALLS);
  }
  assert_true(n > 10);
}

static void allocations_fail(void **state) {
  long n = 1;
  for (int failed = 1; failed; ++n) {
    heap h;
    const uint64_t objects = live_objects();
    clattn_context *const context = stub_context(*state, &h, NULL);
    atomic_store(&h.fail_at, atomic_load(&h.calls) + n);
    const clattn_status status = clattn_self_test(context, NULL);
    failed = atomic_load(&h.failed) != 0;
    assert_int_equal(status, failed ? CLATTN_ERROR_OUT_OF_MEMORY : CLATTN_ERROR_SELF_TEST);
    clattn_context_release(context);
    assert_int_equal(live_objects(), objects);
    assert_int_equal(atomic_load(&h.live), 0);
    assert_true(n < MOST_CALLS);
  }
  assert_true(n > 3);
}

int main(int argc, char **argv) {
  const struct CMUnitTest device[] = {
      cmocka_unit_test(comparison),          cmocka_unit_test(cases),
      cmocka_unit_test(null_context),        cmocka_unit_test(passes),
      cmocka_unit_test(config_is_respected), cmocka_unit_test(wrong_numbers_are_found),
  };
  const struct CMUnitTest stubbed[] = {
      cmocka_unit_test_setup_teardown(nothing_is_computed, stub_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(calls_fail, stub_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(allocations_fail, stub_setup, rig_teardown),
  };
  if (argc == 1)
    return cmocka_run_group_tests_name("self-test", device, NULL, NULL);
  if (argc != 2 || strcmp(argv[1], "stub") != 0 || !use_open(1))
    return 2;
  return cmocka_run_group_tests_name("self-test on the stub driver", stubbed, NULL, NULL);
}
