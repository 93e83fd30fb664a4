/* SPDX-License-Identifier: Apache-2.0 */
/* Selection with devices that do not exist, and the workspace's layout. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "clattn.h"
#include "made_up.h"
#include "select.h"

static clattn_problem problem_of(const char *line) {
  clattn_problem problem;
  clattn_error error;
  clattn_error_init(&error);
  if (clattn_problem_parse(line, &problem, &error) != CLATTN_SUCCESS ||
      clattn_problem_check(&problem, &error) != CLATTN_SUCCESS)
    fail_msg("%s: %s", line, error.message);
  clattni_problem_resolve(&problem, &problem);
  return problem;
}

/* A request that lives as long as the test function's call of it. */
typedef struct asked {
  clattn_problem problem;
  clattn_device_info device;
  clattni_request request;
  clattni_choice choice;
  clattn_error error;
} asked;

static void begin(asked *a, const char *line, cl_device_type type) {
  memset(a, 0, sizeof *a);
  a->problem = problem_of(line);
  a->device = made_up_device(type);
  a->request.problem = &a->problem;
  a->request.device = &a->device;
}

static clattn_status ask(asked *a) {
  clattn_error_init(&a->error);
  memset(&a->choice, 0x55, sizeof a->choice);
  const clattn_status status = clattni_select(&a->request, &a->choice, &a->error);
  clattni_choice again;
  memset(&again, 0xaa, sizeof again);
  assert_int_equal(clattni_select(&a->request, &again, NULL), status); /* pure, and no error is asked for */
  if (status == CLATTN_SUCCESS) {
    assert_ptr_equal(again.variant, a->choice.variant);
    assert_int_equal(again.workspace_bytes, a->choice.workspace_bytes);
    assert_string_equal(again.why, a->choice.why);
    assert_string_equal(again.options, a->choice.options);
    assert_true(a->choice.workspace_bytes <= a->device.max_alloc_bytes);
    assert_true(a->request.workspace_cap == 0 || a->choice.workspace_bytes <= a->request.workspace_cap);
  } else {
    assert_int_equal(a->error.status, status);
  }
  return status;
}

static void picks(asked *a, const char *variant, const char *why) {
  const clattn_status status = ask(a);
  if (status != CLATTN_SUCCESS)
    fail_msg("%s: %s", clattn_status_name(status), a->error.message);
  assert_string_equal(a->choice.variant->name, variant);
  if (strstr(a->choice.why, why) == NULL || strstr(a->choice.why, variant) == NULL)
    fail_msg("why: %s", a->choice.why);
}

static void refuses(asked *a, clattn_status status, const char *text) {
  const clattn_status got = ask(a);
  if (got != status || strstr(a->error.message, text) == NULL)
    fail_msg("expected %s \"%s\", got %s \"%s\"", clattn_status_name(status), text, clattn_status_name(got),
             a->error.message);
}

/* ---- the table ------------------------------------------------------------------------------------------------- */

static void the_table(void **state) {
  (void)state;
  uint32_t count = 0;
  for (; clattni_variant_at(count) != NULL; ++count) {
    const clattni_variant *row = clattni_variant_at(count);
    assert_string_equal(clattn_variant_name(count), row->name);
    assert_string_equal(clattn_variant_summary(count), row->summary);
    assert_true(strlen(row->name) > 0 && strlen(row->family) > 0 && strlen(row->summary) > 0 && strlen(row->file) > 0);
    for (uint32_t other = 0; other < count; ++other)
      assert_string_not_equal(clattni_variant_at(other)->name, row->name);
    for (int entry = 0; entry < CLATTNI_ENTRIES; ++entry) {
      const clattni_kernel *kernel = &row->kernels[entry];
      int workspace = 0, end = 0;
      /* steps that both kinds have, and those of one kind */
      const int both = entry == CLATTNI_STAGE_LENGTHS || entry == CLATTNI_MAX_LOGIT_STEP;
      const int of_fused = entry == CLATTNI_FLASH || entry == CLATTNI_FLASH_SCORES;
      if (entry != CLATTNI_FLASH_SCORES) /* that one a fused variant may have or not */
        assert_int_equal(kernel->name != NULL, both || of_fused == row->fused);
      assert_true(row->fused || !of_fused || kernel->name == NULL);
      assert_int_equal(row->fused, strcmp(row->family, "fused") == 0);
      if (kernel->name == NULL) {
        assert_int_equal(kernel->args[0], CLATTNI_ARG_END);
        continue;
      }
      for (int i = 0; i < CLATTNI_MAX_KERNEL_ARGS; ++i) {
        workspace += !end && kernel->args[i] == CLATTNI_ARG_WORKSPACE;
        end |= kernel->args[i] == CLATTNI_ARG_END;
        assert_true(kernel->args[i] < CLATTNI_ARG_SLOT + CLATTNI_SLOTS);
      }
      assert_true(workspace > 0 && end);
    }
  }
  assert_true(count >= 3);
  assert_null(clattn_variant_name(count));
  assert_null(clattn_variant_summary(count));
  assert_null(clattn_variant_name(UINT32_MAX));
}

/* ---- which variant --------------------------------------------------------------------------------------------- */

static const char small[] = "hq=2 sq=100 sk=100 d=16";

static void by_the_device(void **state) {
  (void)state;
  asked a;
  begin(&a, small, CL_DEVICE_TYPE_CPU);
  picks(&a, "flash-cpu-vector", "a CPU device");
  begin(&a, small, CL_DEVICE_TYPE_CPU | CL_DEVICE_TYPE_DEFAULT);
  picks(&a, "flash-cpu-vector", "a CPU device");
  begin(&a, small, CL_DEVICE_TYPE_GPU);
  picks(&a, "three-step", "this device");
  begin(&a, small, CL_DEVICE_TYPE_ACCELERATOR);
  picks(&a, "three-step", "this device");
  begin(&a, small, CL_DEVICE_TYPE_GPU);
  a.device.max_work_group = 1; /* no tiles here */
  picks(&a, "flash-cpu-vector", "this device");
  a.request.forbidden[0] = "fused";
  a.request.forbidden_count = 1;
  picks(&a, "three-step-cpu", "this device");
}

/* A row that suits the device but not the problem is passed over; the reason says which, and why. */
static void fused_rows_take_dims_up_to_1024(void **state) {
  (void)state;
  static const struct {
    int64_t d, dv;
    int dim; /* class; 0: too large */
  } rows[] = {{1, 1, 32},      {32, 32, 32},  {33, 1, 64},     {1, 33, 64},    {64, 64, 64},    {65, 3, 128},
              {128, 128, 128}, {9, 129, 256}, {256, 256, 256}, {257, 1, 1024}, {1, 1024, 1024}, {1024, 1024, 1024},
              {1025, 8, 0},    {8, 1025, 0},  {1025, 1025, 0}, {5000, 5000, 0}};
  for (size_t n = 0; n < sizeof rows / sizeof rows[0]; ++n) {
    asked a;
    char line[64], text[128];
    (void)snprintf(line, sizeof line, "sq=3 sk=3 d=%" PRId64 " dv=%" PRId64, rows[n].d, rows[n].dv);
    (void)snprintf(text, sizeof text,
                   "variant flash-cpu-vector takes head dimensions up to 1024; qk_dim is %" PRId64 ", v_dim %" PRId64,
                   rows[n].d, rows[n].dv);
    begin(&a, line, CL_DEVICE_TYPE_CPU);
    if (rows[n].dim == 0) {
      picks(&a, "three-step-cpu", "a CPU device and takes the problem");
      assert_non_null(strstr(a.choice.why, text));
      assert_int_equal(a.error.status, CLATTN_SUCCESS); /* a success leaves no error */
      a.request.variant = "flash-cpu-vector";
      refuses(&a, CLATTN_ERROR_VARIANT_UNFIT, text);
      a.request.variant = NULL;
      a.request.forbidden[0] = "three-step"; /* nothing is left: the first reason counts */
      a.request.forbidden_count = 1;
      refuses(&a, CLATTN_ERROR_VARIANT_UNFIT, text);
      continue;
    }
    for (int named = 0; named < 2; ++named) {
      int dim = 0;
      a.request.variant = named ? "flash-cpu-vector" : NULL;
      picks(&a, "flash-cpu-vector", named ? "by name" : "a CPU device");
      const char *option = strstr(a.choice.options, "-DCLATTN_DIM=");
      assert_non_null(option);
      assert_int_equal(sscanf(option, "-DCLATTN_DIM=%d", &dim), 1);
      assert_int_equal(dim, rows[n].dim);
    }
  }
}

static void lanes_follow_the_vector_width(void **state) {
  (void)state;
  static const struct {
    uint32_t width;
    int lanes;
  } rows[] = {{0, 4}, {1, 4}, {2, 4}, {4, 4}, {8, 8}, {16, 16}, {32, 16}};
  for (size_t n = 0; n < sizeof rows / sizeof rows[0]; ++n)
    for (int fused = 0; fused < 2; ++fused) {
      asked a;
      int lanes, mq, nk, nd, dim;
      begin(&a, small, CL_DEVICE_TYPE_CPU);
      a.device.native_float_width = rows[n].width;
      a.request.variant = fused ? "flash-cpu-vector" : "three-step-cpu";
      picks(&a, a.request.variant, "");
      assert_int_equal(sscanf(a.choice.options,
                              "-DCLATTN_LANES=%d -DCLATTN_MQ=%d -DCLATTN_NK=%d -DCLATTN_ND=%d -DCLATTN_DIM=%d", &lanes,
                              &mq, &nk, &nd, &dim),
                       5);
      assert_int_equal(lanes, rows[n].lanes);
      /* what the kernel takes for granted */
      assert_int_equal(a.choice.rows, lanes * mq);
      assert_int_equal(a.choice.key_multiple % nk, 0);
      assert_int_equal(a.choice.keys_per_chunk % nk, 0);
      assert_int_equal(a.choice.keys_per_chunk, fused ? 64 : 1024);
      assert_true(dim >= a.problem.qk_dim && dim >= a.problem.v_dim);
      assert_int_equal(a.choice.dim_chunk, 256);
      assert_int_equal(a.choice.gx * a.choice.gy, 1);
    }
}

/* Local memory that kernels/three_step.cl declares at most. */
static uint64_t declared(uint64_t gx, uint64_t gy) {
  return 4 * (16 * (8 * gy + 1) + 16 * (4 * gx + 1) + gx * gy);
}

static void tiles_follow_the_work_group(void **state) {
  (void)state;
  static const struct {
    uint32_t work_group;
    uint64_t local;
    int gx, gy; /* 0: refused */
  } rows[] = {
      {1024, 65536, 16, 8}, {128, 32768, 16, 8}, {127, 32768, 8, 4}, {32, 32768, 8, 4},
      {1024, 8832, 16, 8},  {1024, 8831, 8, 4},  {1024, 4352, 8, 4}, {1024, 4351, 0, 0},
  };
  for (size_t n = 0; n < sizeof rows / sizeof rows[0]; ++n) {
    asked a;
    int gx, gy;
    begin(&a, small, CL_DEVICE_TYPE_GPU);
    a.device.max_work_group = rows[n].work_group;
    a.device.local_bytes = rows[n].local;
    if (rows[n].gx == 0) {
      refuses(&a, CLATTN_ERROR_VARIANT_UNFIT, "4352 bytes of local memory; the device has 1024 and 4351");
      continue;
    }
    picks(&a, "three-step", "");
    assert_int_equal(sscanf(a.choice.options, "-DCLATTN_GX=%d -DCLATTN_GY=%d", &gx, &gy), 2);
    assert_int_equal(gx, rows[n].gx);
    assert_int_equal(gy, rows[n].gy);
    assert_int_equal(a.choice.gx, gx);
    assert_int_equal(a.choice.gy, gy);
    assert_int_equal(a.choice.rows, 8 * gy);
    assert_int_equal(a.choice.keys_per_chunk, 4 * gx);
    assert_int_equal(a.choice.dim_chunk, 4 * gx);
    assert_true(declared((uint64_t)gx, (uint64_t)gy) <= rows[n].local && (uint32_t)(gx * gy) <= rows[n].work_group);
  }
}

static void by_name(void **state) {
  (void)state;
  asked a;
  begin(&a, small, CL_DEVICE_TYPE_CPU);
  a.request.variant = "three-step";
  picks(&a, "three-step", "by name");
  begin(&a, small, CL_DEVICE_TYPE_GPU);
  a.request.variant = "three-step-cpu";
  picks(&a, "three-step-cpu", "by name");
  a.request.variant = "flash-cpu-vector";
  picks(&a, "flash-cpu-vector", "by name");
  a.request.variant = "three";
  refuses(&a, CLATTN_ERROR_UNKNOWN_VARIANT, "'three'; there are flash-cpu-vector, three-step-cpu, three-step");
  a.request.variant = "";
  refuses(&a, CLATTN_ERROR_UNKNOWN_VARIANT, "''");
  a.request.variant = "Three-Step";
  refuses(&a, CLATTN_ERROR_UNKNOWN_VARIANT, "'Three-Step'");
  char endless[2000];
  memset(endless, 'x', sizeof endless);
  endless[sizeof endless - 1] = '\0';
  a.request.variant = endless;
  refuses(&a, CLATTN_ERROR_UNKNOWN_VARIANT, "flash-cpu-vector, three-step-cpu, three-step");
  begin(&a, small, CL_DEVICE_TYPE_GPU);
  a.request.variant = "three-step"; /* a name does not make it fit */
  a.device.max_work_group = 31;
  refuses(&a, CLATTN_ERROR_VARIANT_UNFIT, "work-groups of 32 items");
}

static void forbidden(void **state) {
  (void)state;
  asked a;
  begin(&a, small, CL_DEVICE_TYPE_CPU);
  a.request.forbidden[0] = "flash-cpu-vector";
  a.request.forbidden_count = 1;
  picks(&a, "three-step-cpu", "a CPU device and takes the problem; variant flash-cpu-vector is forbidden");
  a.request.forbidden[0] = "fused"; /* the family: the same, as long as it has one member */
  picks(&a, "three-step-cpu", "variant flash-cpu-vector is forbidden by the context's config_text (fused)");
  a.request.variant = "flash-cpu-vector";
  refuses(&a, CLATTN_ERROR_VARIANT_UNFIT, "flash-cpu-vector is forbidden by the context's config_text (fused)");
  a.request.variant = NULL;
  a.request.forbidden[1] = "three-step-cpu";
  a.request.forbidden_count = 2;
  picks(&a, "three-step", "the first variant");
  a.request.variant = "three-step-cpu";
  refuses(&a, CLATTN_ERROR_VARIANT_UNFIT, "three-step-cpu is forbidden by the context's config_text (three-step-cpu)");
  a.request.variant = "three-step";
  picks(&a, "three-step", "by name");
  a.request.variant = NULL;
  a.request.forbidden[1] = "three-step"; /* the family, so both */
  refuses(&a, CLATTN_ERROR_VARIANT_UNFIT, "flash-cpu-vector is forbidden by the context's config_text (fused)");
  a.request.variant = "three-step-cpu";
  refuses(&a, CLATTN_ERROR_VARIANT_UNFIT, "three-step-cpu is forbidden by the context's config_text (three-step)");
  a.request.variant = NULL;
  a.request.forbidden[0] = "three-step";
  a.request.forbidden_count = 1;
  picks(&a, "flash-cpu-vector", "a CPU device");
  a.request.forbidden[0] = "matrix";
  picks(&a, "flash-cpu-vector", "a CPU device");
  a.request.forbidden[1] = "fused";
  a.request.forbidden_count = 2;
  picks(&a, "three-step-cpu", "a CPU device");
  a.request.forbidden[2] = "three-step-cpu";
  a.request.forbidden_count = 3;
  picks(&a, "three-step", "");
  a.request.forbidden[1] = "three-step-CPU"; /* a slip of the pen forbids nothing, and says so */
  refuses(&a, CLATTN_ERROR_TEXT, "forbid=three-step-CPU names no variant and no family");
  a.request.variant = "three-step";
  refuses(&a, CLATTN_ERROR_TEXT, "forbid=three-step-CPU");
  begin(&a, small, CL_DEVICE_TYPE_GPU); /* where the reasons of rows that do not suit are no reasons */
  a.request.forbidden[0] = "three-step";
  a.request.forbidden_count = 1;
  refuses(&a, CLATTN_ERROR_VARIANT_UNFIT, "variant three-step is forbidden by the context's config_text (three-step)");
}

static void devices_that_can_not(void **state) {
  (void)state;
  asked a;
  begin(&a, small, CL_DEVICE_TYPE_GPU);
  a.device.little_endian = 0;
  refuses(&a, CLATTN_ERROR_NOT_SUPPORTED, "big-endian");
  for (int cpu = 0; cpu < 2; ++cpu) {
    begin(&a, small, cpu ? CL_DEVICE_TYPE_CPU : CL_DEVICE_TYPE_GPU);
    a.device.max_parameter_bytes = 256; /* what the embedded profile allows */
    refuses(&a, CLATTN_ERROR_VARIANT_UNFIT, "the device allows 256");
    a.device.max_parameter_bytes = 1024; /* what every full profile has */
    picks(&a, cpu ? "flash-cpu-vector" : "three-step", "");
  }
}

/* ---- workspace ------------------------------------------------------------------------------------------------- */

static void the_smallest_workspace(void **state) {
  (void)state;
  static const char *const lines[] = {
      "b=3 hq=4 sq=333 sk=517 d=16",
      "b=70 hq=2 sq=100 sk=100 d=16 klen=per_batch out=o,lse",
      "hq=3 sq=100 sk=5000 d=16 out=o,max_logit",
      "b=2 hq=3 sq=1 sk=1 d=16 out=o,lse,scores,max_logit qlen=per_batch off=per_batch",
      "hq=3 sq=100 sk=0 d=4",
  };
  for (size_t n = 0; n < sizeof lines / sizeof lines[0]; ++n)
    for (int cpu = 0; cpu < 2; ++cpu) {
      asked a;
      unsigned long long least = 0;
      begin(&a, lines[n], cpu ? CL_DEVICE_TYPE_CPU : CL_DEVICE_TYPE_GPU);
      a.request.variant = cpu ? "three-step-cpu" : "three-step";
      a.request.workspace_cap = 1;
      refuses(&a, CLATTN_ERROR_WORKSPACE_TOO_SMALL, "the workspace cap is 1");
      const char *number = strstr(a.error.message, "at least ");
      assert_non_null(number);
      assert_int_equal(sscanf(number, "at least %llu bytes", &least), 1);
      a.request.workspace_cap = least - 1;
      refuses(&a, CLATTN_ERROR_WORKSPACE_TOO_SMALL, "needs at least");
      a.request.workspace_cap = least; /* the message tells the truth */
      picks(&a, cpu ? "three-step-cpu" : "three-step", "");
      assert_int_equal(a.choice.workspace_bytes, least);
      uint64_t before = 0;
      for (uint64_t cap = least; cap < least + 400000; cap += 9973) {
        a.request.workspace_cap = cap;
        picks(&a, cpu ? "three-step-cpu" : "three-step", "");
        assert_true(a.choice.workspace_bytes >= before);
        before = a.choice.workspace_bytes;
      }
      /* the same where the device's largest buffer sets the limit, with any cap above it */
      a.device.max_alloc_bytes = least;
      for (int capped = 0; capped < 2; ++capped) {
        a.request.workspace_cap = capped ? least * 9 : 0;
        picks(&a, cpu ? "three-step-cpu" : "three-step", "");
        assert_int_equal(a.choice.workspace_bytes, least);
      }
      a.device.max_alloc_bytes = least - 1;
      refuses(&a, CLATTN_ERROR_WORKSPACE_TOO_SMALL, "the device's largest buffer");
      a.request.workspace_cap = 0;
      refuses(&a, CLATTN_ERROR_WORKSPACE_TOO_SMALL, "the device's largest buffer");
      a.request.workspace_cap = 1; /* the cap is the narrower one */
      refuses(&a, CLATTN_ERROR_WORKSPACE_TOO_SMALL, "the workspace cap is 1");
    }
}

static void long_sequences_are_bounded(void **state) {
  (void)state;
  static const char *const lines[] = {
      "sq=1000000 sk=1000000 d=64 causal=1",
      "b=4 hq=16 hkv=2 sq=1000000 sk=1000000 d=128 out=o,lse,scores",
      "b=4 hq=16 sq=1 sk=1000000 d=128 klen=per_batch",
      "b=1 hq=1 sq=16384 sk=16384 d=64 out=o,max_logit",
      "hq=64 sq=1000000 sk=1000000 d=64 out=o,max_logit",
  };
  for (size_t n = 0; n < sizeof lines / sizeof lines[0]; ++n)
    for (int cpu = 0; cpu < 2; ++cpu) {
      asked a;
      begin(&a, lines[n], cpu ? CL_DEVICE_TYPE_CPU : CL_DEVICE_TYPE_GPU);
      a.request.variant = cpu ? "three-step-cpu" : "three-step";
      picks(&a, cpu ? "three-step-cpu" : "three-step", "");
      const uint64_t tile = 4 * (uint64_t)a.choice.rows * (uint64_t)(a.problem.k_len + 64);
      /* one tile, or up to four per compute unit below a gibibyte, or the usual room; and a word per tile for maxima */
      const uint64_t usual = (uint64_t)(cpu ? 16 : 256) << 20, most = (uint64_t)1 << 30;
      const uint64_t spread = 4 * a.device.compute_units * tile;
      const uint64_t wanted = spread < most ? spread : most,
                     rows = (uint64_t)(a.problem.batch * a.problem.q_heads * a.problem.q_len);
      const uint64_t bound = (tile > wanted ? tile : wanted) > usual ? (tile > wanted ? tile : wanted) : usual;
      assert_true(a.choice.workspace_bytes <= bound + 8 * rows / (uint64_t)a.choice.rows);
      assert_true(a.choice.workspace_bytes > (uint64_t)a.choice.rows * 4 * (uint64_t)a.problem.k_len);
    }
  asked a;
  begin(&a, "sq=10 sk=2147483647 d=1", CL_DEVICE_TYPE_GPU); /* one tile of rows is beyond the device */
  refuses(&a, CLATTN_ERROR_WORKSPACE_TOO_SMALL, "the device's largest buffer is 4294967296");
  begin(&a, "b=2147483647 hq=2 sq=1 sk=1 d=1", CL_DEVICE_TYPE_CPU);
  refuses(&a, CLATTN_ERROR_VARIANT_UNFIT, "more row tiles than a grid can count");
  begin(&a, "b=100000 hq=100 sq=2147483647 sk=1 d=1", CL_DEVICE_TYPE_GPU);
  refuses(&a, CLATTN_ERROR_VARIANT_UNFIT, "more row tiles than a grid can count");
}

/* Three words per batch entry and one per tile, each region padded to 64 bytes; whatever else is asked for. */
static uint64_t fused_bytes(const asked *a) {
  const int64_t rows = a->choice.rows,
                tiles = a->problem.batch * a->problem.q_heads * ((a->problem.q_len + rows - 1) / rows);
  const int64_t lengths = clattni_uses_lengths(&a->problem) ? (3 * a->problem.batch + 15) / 16 * 16 : 0;
  return 4 * (uint64_t)(lengths + (a->problem.outputs & CLATTN_OUT_MAX_LOGIT ? (tiles + 15) / 16 * 16 : 0));
}

static void fused_rows_keep_no_scores(void **state) {
  (void)state;
  static const char *const shapes[] = {"hq=8 sq=16384 sk=16384 d=64", "hq=8 sq=16384 sk=16384 d=64 causal=1 off=3",
                                       "b=3 hq=8 sq=5 sk=2147483647 d=64 klen=per_batch", "b=3 hq=2 sq=0 sk=9 d=4",
                                       "b=70 hq=2 sq=100 sk=0 d=4 qlen=per_batch"};
  static const uint32_t widths[] = {1, 4, 8, 16};
  static const char stages[4][16] = {"raw", "softcap", "masked", "weights"};
  static const char outs[4][16] = {"o", "lse", "scores", "max_logit"};
  size_t nothing = 0, something = 0, others = 0;
  for (size_t n = 0; n < sizeof shapes / sizeof shapes[0]; ++n)
    for (size_t w = 0; w < sizeof widths / sizeof widths[0]; ++w)
      for (unsigned outputs = 1; outputs < 16; ++outputs)
        for (size_t stage = 0; stage < 4; ++stage) {
          char line[256];
          size_t at = (size_t)snprintf(line, sizeof line, "%s stage=%s out=", shapes[n], stages[stage]);
          for (size_t bit = 0, any = 0; bit < 4; ++bit)
            if (outputs >> bit & 1)
              at += (size_t)snprintf(line + at, sizeof line - at, "%s%s", any++ ? "," : "", outs[bit]);
          asked a;
          begin(&a, line, CL_DEVICE_TYPE_CPU);
          a.device.native_float_width = widths[w];
          picks(&a, "flash-cpu-vector", "a CPU device");
          const uint64_t bytes = a.choice.workspace_bytes;
          assert_int_equal(bytes, fused_bytes(&a));
          assert_true(bytes < (uint64_t)16 << 20);
          ++*(bytes == 0 ? &nothing : &something);
          /* exactly so much is enough; a cap or a device below it is refused, in the words of the first row */
          a.request.workspace_cap = bytes > 0 ? bytes : 1;
          picks(&a, "flash-cpu-vector", "a CPU device");
          assert_int_equal(a.choice.workspace_bytes, bytes);
          if (bytes == 0)
            continue;
          char text[200];
          (void)snprintf(
              text, sizeof text,
              "flash-cpu-vector needs at least %" PRIu64
              " bytes of workspace, for lengths and the maxima of its tiles of %d rows; the workspace cap is %" PRIu64,
              bytes, (int)a.choice.rows, bytes - 1);
          a.request.workspace_cap = bytes - 1;
          a.request.variant = "flash-cpu-vector";
          refuses(&a, CLATTN_ERROR_WORKSPACE_TOO_SMALL, text);
          a.request.variant = NULL;
          if (ask(&a) == CLATTN_SUCCESS) { /* without keys, wider tiles may do with less */
            picks(&a, "three-step", "a CPU device and takes the problem; variant flash-cpu-vector needs at least");
            assert_int_equal(a.problem.k_len, 0);
            ++others;
          } else {
            refuses(&a, CLATTN_ERROR_WORKSPACE_TOO_SMALL, text);
          }
          a.request.workspace_cap = 0;
          a.device.max_alloc_bytes = bytes;
          picks(&a, "flash-cpu-vector", "a CPU device");
          a.request.variant = "flash-cpu-vector";
          a.device.max_alloc_bytes = bytes - 1;
          refuses(&a, CLATTN_ERROR_WORKSPACE_TOO_SMALL, "the device's largest buffer");
        }
  assert_true(nothing > 100 && something > 100 && others > 0);
}

/* Score tiles of long rows fill the usual workspace soon; compute units must not stand idle for that. */
static void every_compute_unit_has_tiles(void **state) {
  (void)state;
  static const uint32_t unit_counts[] = {2, 32, 128, 1000};
  static const int64_t key_counts[] = {16, 4096, 16384, 32768, 100000, 1000000};
  const uint64_t most = (uint64_t)1 << 30;
  size_t by_units = 0, by_bytes = 0;
  for (size_t u = 0; u < sizeof unit_counts / sizeof unit_counts[0]; ++u)
    for (size_t k = 0; k < sizeof key_counts / sizeof key_counts[0]; ++k)
      for (int n = 0; n < 4; ++n) {
        const int cpu = n & 1;
        char line[128];
        asked a;
        clattni_layout layout;
        (void)snprintf(line, sizeof line, "hq=16 sq=20000 sk=%" PRId64 " d=64%s", key_counts[k],
                       n & 2 ? " out=o,max_logit" : "");
        begin(&a, line, cpu ? CL_DEVICE_TYPE_CPU : CL_DEVICE_TYPE_GPU);
        a.device.compute_units = unit_counts[u];
        a.request.variant = cpu ? "three-step-cpu" : "three-step";
        picks(&a, cpu ? "three-step-cpu" : "three-step", "");
        const clattni_sizes bounds = {a.problem.batch, a.problem.q_len, a.problem.k_len};
        assert_true(clattni_layout_make(&a.choice, &a.problem, &bounds, a.choice.workspace_bytes, &layout));
        const uint64_t tile = 4 * (uint64_t)a.choice.rows * (uint64_t)(layout.k_stored + 64);
        const int enough = layout.tiles_per_round >= (int64_t)unit_counts[u];
        const int reached = a.choice.workspace_bytes + tile > most;
        if (!enough && !reached)
          fail_msg("%s: %" PRIu32 " units share %" PRId64 " tiles in %" PRIu64 " bytes", line, unit_counts[u],
                   layout.tiles_per_round, a.choice.workspace_bytes);
        ++*(enough ? &by_units : &by_bytes);
        /* a device that has less in one buffer gets what there is */
        a.device.max_alloc_bytes = (uint64_t)300 << 20;
        picks(&a, cpu ? "three-step-cpu" : "three-step", "");
      }
  assert_true(by_units > 0 && by_bytes > 0);
}

static void lengths_have_room(void **state) {
  (void)state;
  static const struct {
    const char *line;
    int uses;
  } rows[] = {
      {"sq=3 sk=3 d=3", 0},
      {"sq=3 sk=3 d=3 causal=1 off=bottom_right window=3,4", 0},
      {"sq=3 sk=3 d=3 qlen=per_batch", 1},
      {"sq=3 sk=3 d=3 klen=per_batch", 1},
      {"sq=3 sk=3 d=3 off=per_batch", 1},
      {"sq=3 sk=3 d=3 off=4", 1}, /* the enqueue may bring an offset per entry */
  };
  for (size_t n = 0; n < sizeof rows / sizeof rows[0]; ++n) {
    const clattn_problem problem = problem_of(rows[n].line);
    assert_int_equal(clattni_uses_lengths(&problem), rows[n].uses);
  }
}

/* ---- layouts of random sizes ----------------------------------------------------------------------------------- */

static void check_regions(const clattni_choice *choice, const clattn_problem *problem, const clattni_sizes *sizes,
                          const clattni_layout *l) {
  const int64_t tiles_per_head = (sizes->q_len + choice->rows - 1) / choice->rows;
  assert_int_equal(l->tiles_per_head, tiles_per_head);
  assert_int_equal(l->total_tiles, sizes->batch * problem->q_heads * tiles_per_head);
  assert_true(l->k_stored >= sizes->k_len && l->k_stored < sizes->k_len + choice->key_multiple);
  assert_int_equal(l->k_stored % choice->key_multiple, 0);
  assert_true(l->key_chunks >= 1 && l->key_chunks * choice->keys_per_chunk >= sizes->k_len);
  assert_true(l->key_chunks == 1 || (l->key_chunks - 1) * choice->keys_per_chunk < sizes->k_len);
  /* the regions one behind the other, each long enough */
  const int64_t lengths = clattni_uses_lengths(problem) ? 3 * sizes->batch : 0;
  const int with_maxima = (problem->outputs & CLATTN_OUT_MAX_LOGIT) != 0;
  const int64_t maxima = with_maxima ? l->total_tiles : 0;
  const int64_t round = choice->variant->fused ? 0 : l->tiles_per_round; /* tiles that leave rows and scores */
  const int64_t partial = with_maxima ? round * l->key_chunks : 0;
  const int64_t stats = round * choice->rows, scores = stats * l->k_stored;
  assert_int_equal(l->lengths, 0);
  assert_true(l->maxima >= l->lengths + lengths && l->maxima < l->lengths + lengths + 16);
  assert_true(l->stats >= l->maxima + maxima && l->stats < l->maxima + maxima + 16);
  assert_true(l->partial >= l->stats + stats);
  assert_true(l->scores >= l->partial + partial);
  /* a fused variant with a kernel for scores keeps maximum and sum of every row for the weights */
  const int apart = (problem->outputs & CLATTN_OUT_SCORES) && choice->variant->kernels[CLATTNI_FLASH_SCORES].name;
  const int kept = apart && problem->stage == CLATTN_STAGE_WEIGHTS;
  if (kept)
    assert_true(l->scores >= l->stats + 2 * l->total_tiles * choice->rows);
  else if (choice->variant->fused)
    assert_int_equal(l->scores, l->stats);
  assert_int_equal(l->bytes, 4 * (uint64_t)(l->scores + scores));
  assert_int_equal((l->maxima | l->partial | l->stats | l->scores) % 16, 0);
  assert_int_equal(l->bytes % 64, 0);
  const int64_t staging = l->total_tiles > 0 && lengths > 0 ? (sizes->batch + 31) / 32 : 0;
  assert_int_equal(l->staging, staging);
  assert_int_equal(l->launches, staging + l->rounds * l->steps_per_round +
                                    ((problem->outputs & CLATTN_OUT_MAX_LOGIT) && sizes->batch > 0));
  if (l->total_tiles == 0) {
    assert_int_equal(l->rounds, 0);
    return;
  }
  assert_true(l->tiles_per_round >= 1 && l->tiles_per_round <= l->total_tiles);
  const int only_scores = apart && !kept && problem->outputs == CLATTN_OUT_SCORES;
  assert_int_equal(l->steps[0] == (only_scores ? CLATTNI_FLASH_SCORES : CLATTNI_FLASH), choice->variant->fused);
  assert_true(!choice->variant->fused || l->steps_per_round == (apart && !only_scores ? 2 : 1));
  assert_true(!choice->variant->fused || l->rounds == 1);
  assert_true(l->rounds * l->tiles_per_round >= l->total_tiles &&
              (l->rounds - 1) * l->tiles_per_round < l->total_tiles);
}

static void layouts_of_any_size(void **state) {
  (void)state;
  size_t whole = 0, several = 0, refused = 0;
  for (uint32_t n = 0; n < 9000; ++n) {
    const clattn_problem problem = made_up_problem(3000);
    const clattni_sizes bounds = {problem.batch, problem.q_len, problem.k_len};
    clattni_choice choice;
    clattni_layout at_bounds, layout;
    assert_true(made_up_choice(&problem, made_up_variant(n), 0, &choice));
    const uint64_t budget = (uint64_t)made_up_size(0, 40000000);
    const int fits = clattni_layout_make(&choice, &problem, &bounds, budget, &at_bounds);
    check_regions(&choice, &problem, &bounds, &at_bounds);
    assert_int_equal(fits, at_bounds.bytes <= budget);
    /* idempotent; one byte less holds fewer tiles, and no workspace that is refused could have served */
    assert_true(clattni_layout_make(&choice, &problem, &bounds, at_bounds.bytes, &layout));
    assert_memory_equal(&layout, &at_bounds, sizeof layout);
    if (at_bounds.bytes > 0) {
      const int less = clattni_layout_make(&choice, &problem, &bounds, at_bounds.bytes - 1, &layout);
      assert_true(!less || layout.tiles_per_round < at_bounds.tiles_per_round);
      assert_true(!less || fits);
    }
    if (fits && at_bounds.tiles_per_round < at_bounds.total_tiles) { /* another tile would not fit */
      const int64_t tiles = at_bounds.tiles_per_round + 1;
      int64_t stats = (tiles * choice.rows + 15) / 16 * 16;
      if (problem.outputs & CLATTN_OUT_MAX_LOGIT)
        stats += (tiles * at_bounds.key_chunks + 15) / 16 * 16;
      assert_true(4 * (uint64_t)(at_bounds.stats + stats + tiles * choice.rows * at_bounds.k_stored) > budget);
    }
    refused += !fits;
    whole += fits && at_bounds.rounds == 1;
    several += fits && at_bounds.rounds > 1;
    for (int m = 0; m < 5; ++m) {
      const clattni_sizes sizes = {made_up_number(0, bounds.batch), made_up_number(0, bounds.q_len),
                                   made_up_number(0, bounds.k_len)};
      assert_true(clattni_layout_make(&choice, &problem, &sizes, at_bounds.bytes, &layout));
      check_regions(&choice, &problem, &sizes, &layout);
      assert_true(layout.bytes <= at_bounds.bytes && layout.launches <= at_bounds.launches);
    }
  }
  assert_true(whole > 100 && several > 100 && refused > 100); /* the draw met all kinds */
}

/* What select promises a plan: its own choice serves the bounds with exactly the bytes that it reports. */
static void choices_serve_their_bounds(void **state) {
  (void)state;
  size_t made = 0;
  for (uint32_t n = 0; n < 4500; ++n) {
    const clattn_problem problem = made_up_problem(5000);
    const clattni_sizes bounds = {problem.batch, problem.q_len, problem.k_len};
    clattni_choice choice;
    clattni_layout layout;
    const uint64_t cap = made_up_number(0, 2) == 0 ? 0 : (uint64_t)made_up_size(1, 20000000);
    if (!made_up_choice(&problem, made_up_variant(n), cap, &choice))
      continue;
    assert_true(clattni_layout_make(&choice, &problem, &bounds, choice.workspace_bytes, &layout));
    assert_int_equal(layout.bytes, choice.workspace_bytes);
    ++made;
  }
  assert_true(made > 1000);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_table),
      cmocka_unit_test(by_the_device),
      cmocka_unit_test(fused_rows_take_dims_up_to_1024),
      cmocka_unit_test(lanes_follow_the_vector_width),
      cmocka_unit_test(tiles_follow_the_work_group),
      cmocka_unit_test(by_name),
      cmocka_unit_test(forbidden),
      cmocka_unit_test(devices_that_can_not),
      cmocka_unit_test(the_smallest_workspace),
      cmocka_unit_test(long_sequences_are_bounded),
      cmocka_unit_test(fused_rows_keep_no_scores),
      cmocka_unit_test(every_compute_unit_has_tiles),
      cmocka_unit_test(lengths_have_room),
      cmocka_unit_test(layouts_of_any_size),
      cmocka_unit_test(choices_serve_their_bounds),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
