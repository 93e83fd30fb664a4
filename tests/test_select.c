/* SPDX-License-Identifier: Apache-2.0 */
/* Selection with devices that do not exist. */
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
#include "params.cl.h"

/* ---- the table ------------------------------------------------------------------------------------------------- */

static int takes(const clattni_kernel *kernel, int kind) {
  for (int i = 0; i < CLATTNI_MAX_KERNEL_ARGS; ++i)
    if (kernel->args[i] == kind)
      return 1;
  return 0;
}

/* Structs that kernels take by value. */
static int is_value(int kind) {
  return (kind > CLATTNI_ARG_END && kind < CLATTNI_ARG_WORKSPACE) || kind == CLATTNI_ARG_HOOK ||
         kind == CLATTNI_ARG_HOOK_GATHER;
}

/* What kernels have only where the problem needs it. */
static int is_optional(int kind) {
  clattn_problem problem;
  clattn_problem_init(&problem);
  clattni_problem_resolve(&problem, &problem);
  return !clattni_arg_present(&problem, kind);
}

/* A kernel that reads keys makes scores, and needs all that they are made of; one that reads keys or values needs
 * pages. */
static void check_score_maker(const clattni_kernel *kernel) {
  static const int needed[] = {CLATTNI_ARG_SCALE,
                               CLATTNI_ARG_SOFTCAP,
                               CLATTNI_ARG_SLOT + CLATTNI_Q,
                               CLATTNI_ARG_SLOT + CLATTNI_BIAS,
                               CLATTNI_ARG_SLOT + CLATTNI_KEEP_MASK,
                               CLATTNI_ARG_SLOT + CLATTNI_BLOCK_MASK,
                               CLATTNI_ARG_SLOT + CLATTNI_ALIBI_SLOPES,
                               CLATTNI_ARG_SLOT + CLATTNI_HEAD_SCALE,
                               CLATTNI_ARG_SLOT + CLATTNI_K_SCALE,
                               CLATTNI_ARG_SLOT + CLATTNI_ADD_W,
                               CLATTNI_ARG_HOOK,
                               CLATTNI_ARG_HOOK_BUFFER,
                               CLATTNI_ARG_HOOK_BUFFER + 1,
                               CLATTNI_ARG_HOOK_BUFFER + 2,
                               CLATTNI_ARG_HOOK_BUFFER + 3};
  const int keys = takes(kernel, CLATTNI_ARG_SLOT + CLATTNI_K), v = takes(kernel, CLATTNI_ARG_SLOT + CLATTNI_V);
  for (size_t n = 0; keys && n < sizeof needed / sizeof needed[0]; ++n)
    assert_true(takes(kernel, needed[n]));
  assert_int_equal(takes(kernel, CLATTNI_ARG_SLOT + CLATTNI_V_SCALE), v);
  assert_true(!(keys || v) || takes(kernel, CLATTNI_ARG_SLOT + CLATTNI_PAGE_TABLE));
}

/* Every tensor that a problem can have, and both scalars, reach some kernel of a row. */
static void check_tensors(const clattni_variant *row) {
  int reached[CLATTNI_ARG_SLOT + CLATTNI_SLOTS] = {0};
  for (int entry = 0; entry < CLATTNI_ENTRIES; ++entry)
    for (int i = 0; i < CLATTNI_MAX_KERNEL_ARGS; ++i)
      ++reached[row->kernels[entry].args[i]];
  for (int kind = CLATTNI_ARG_PARAMS; kind < CLATTNI_ARG_SLOT + CLATTNI_SLOTS; ++kind)
    if (reached[kind] == 0)
      fail_msg("%s: no kernel takes arguments of kind %d", row->name, kind);
}

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
      const int both = entry <= CLATTNI_GATHER_HOOK || entry == CLATTNI_MAX_LOGIT_STEP;
      const int of_some = entry == CLATTNI_FLASH_SCORES || entry == CLATTNI_FLASH_PARTS;
      const int of_fused = entry == CLATTNI_FLASH || of_some;
      if (!of_some) /* those a fused variant may have or not */
        assert_int_equal(kernel->name != NULL, both || of_fused == row->fused);
      assert_true(row->fused || !of_fused || kernel->name == NULL);
      assert_int_equal(row->fused, strcmp(row->family, "fused") == 0 || strcmp(row->family, "matrix") == 0);
      if (kernel->name == NULL) {
        assert_int_equal(kernel->args[0], CLATTNI_ARG_END);
        continue;
      }
      int arrays = 0, buffers = 0, scalars = 0, params = 0;
      int last = CLATTNI_ARG_END; /* of those that a program may lack: they come last, or launches could not be set */
      for (int i = 0; i < CLATTNI_MAX_KERNEL_ARGS; ++i) {
        const int kind = kernel->args[i];
        end |= kind == CLATTNI_ARG_END;
        assert_int_equal(end, kind == CLATTNI_ARG_END); /* nothing behind the end */
        workspace += kind == CLATTNI_ARG_WORKSPACE;
        params += is_value(kind);
        assert_true(kind < CLATTNI_ARG_SLOT + CLATTNI_SLOTS);
        /* the kernel takes them in this order */
        if (kind >= CLATTNI_ARG_ARRAY && kind < CLATTNI_ARG_HOOK_BUFFER)
          assert_int_equal(kind - CLATTNI_ARG_ARRAY, arrays++);
        else if (kind >= CLATTNI_ARG_HOOK_BUFFER && kind < CLATTNI_ARG_HOOK_SCALAR)
          assert_int_equal(kind - CLATTNI_ARG_HOOK_BUFFER, buffers++);
        else if (kind >= CLATTNI_ARG_HOOK_SCALAR && kind < CLATTNI_ARG_SLOT)
          assert_int_equal(kind - CLATTNI_ARG_HOOK_SCALAR, scalars++);
        if (entry != CLATTNI_GATHER_HOOK && kind != CLATTNI_ARG_END) {
          assert_true(last == CLATTNI_ARG_END || is_optional(kind));
          last = is_optional(kind) ? kind : last;
        }
        for (int other = 0; other < i && kind >= CLATTNI_ARG_SCALE; ++other)
          assert_int_not_equal(kind, kernel->args[other]); /* no buffer but the workspace twice */
      }
      assert_true(workspace > 0 && params > 0);
      check_score_maker(kernel);
      assert_int_equal(arrays, entry == CLATTNI_GATHER_ENTRIES ? 6 : 0);
      assert_int_equal(scalars, entry == CLATTNI_GATHER_HOOK ? 4 : 0);
      assert_int_equal(buffers, takes(kernel, CLATTNI_ARG_SLOT + CLATTNI_K) ? 4 : 0);
    }
    check_tensors(row);
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
  picks(&a, "flash-gpu-simt", "this device");
  begin(&a, small, CL_DEVICE_TYPE_ACCELERATOR);
  picks(&a, "flash-gpu-simt", "this device");
  a.request.forbidden[0] = "fused";
  a.request.forbidden_count = 1;
  picks(&a, "three-step", "this device");
  begin(&a, small, CL_DEVICE_TYPE_GPU);
  a.device.max_work_group = 1; /* no tiles here */
  picks(&a, "flash-cpu-vector", "this device");
  a.request.forbidden[0] = "fused";
  a.request.forbidden_count = 1;
  picks(&a, "three-step-cpu", "this device");
}

/* Head dimensions have classes; beyond the largest, values go through a tile in parts. */
static void fused_rows_take_any_dims(void **state) {
  (void)state;
  static const struct {
    int64_t d, dv;
    int dim; /* class */
  } rows[] = {{1, 1, 32},         {32, 32, 32},       {33, 1, 64},     {1, 33, 64},     {64, 64, 64},
              {65, 3, 128},       {128, 128, 128},    {9, 129, 256},   {256, 256, 256}, {257, 1, 1024},
              {1, 1024, 1024},    {1024, 1024, 1024}, {1025, 8, 1024}, {8, 1025, 1024}, {1025, 1025, 1024},
              {5000, 5000, 1024}, {1, 100000, 1024}};
  for (size_t n = 0; n < sizeof rows / sizeof rows[0]; ++n) {
    asked a;
    char line[64];
    (void)snprintf(line, sizeof line, "sq=3 sk=3 d=%" PRId64 " dv=%" PRId64, rows[n].d, rows[n].dv);
    begin(&a, line, CL_DEVICE_TYPE_CPU);
    for (int named = 0; named < 2; ++named) {
      int dim = 0;
      a.request.variant = named ? "flash-cpu-vector" : NULL;
      picks(&a, "flash-cpu-vector", named ? "by name" : "a CPU device");
      const char *option = strstr(a.choice.options, "-DCLATTN_DIM=");
      assert_non_null(option);
      assert_int_equal(sscanf(option, "-DCLATTN_DIM=%d", &dim), 1);
      assert_int_equal(dim, rows[n].dim);
      assert_int_equal(a.choice.dim_chunk, dim); /* what is in private memory at a time */
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
      assert_int_equal(a.choice.keys_per_chunk, fused ? CLATTN_KEY_BLOCK : CLATTN_CHUNK_KEYS);
      assert_true(dim >= a.problem.qk_dim && dim >= a.problem.v_dim);
      assert_int_equal(a.choice.dim_chunk, fused ? dim : 256);
      assert_true(!fused || CLATTN_INVARIANT_KEYS % a.choice.keys_per_chunk == 0);
      assert_int_equal(a.choice.gx * a.choice.gy, 1);
    }
}

/* A forced width gives what a device with such vectors has, and no variant without vectors runs. */
static void forced_widths(void **state) {
  (void)state;
  static const uint32_t widths[] = {4, 8, 16}, natives[] = {0, 1, 4, 8, 16, 32};
  static const char *const lines[] = {
      "sq=1 sk=4096 d=128", "hq=8 hkv=2 sq=1 sk=4096 d=64", "hq=8 hkv=2 sq=5 sk=77 d=40 k=f16 v=bf16",
      "sq=100 sk=100 d=16", "sq=197 sk=197 d=256 causal=1", "sq=5000 sk=64 d=300 flags=batch_invariant"};
  for (size_t n = 0; n < sizeof lines / sizeof lines[0]; ++n)
    for (size_t w = 0; w < sizeof widths / sizeof widths[0]; ++w)
      for (uint32_t v = 0; clattni_variant_at(v) != NULL; ++v) {
        const clattni_variant *row = clattni_variant_at(v);
        asked own;
        int lanes = 0;
        if (strcmp(row->family, "matrix") == 0) /* below */
          continue;
        begin(&own, lines[n], CL_DEVICE_TYPE_CPU);
        own.device.native_float_width = widths[w];
        own.request.variant = row->name;
        picks(&own, row->name, "by name");
        for (size_t d = 0; d < sizeof natives / sizeof natives[0]; ++d) {
          asked forced;
          begin(&forced, lines[n], CL_DEVICE_TYPE_CPU);
          forced.device.native_float_width = natives[d];
          forced.request.width = widths[w];
          picks(&forced, "flash-cpu-vector", "a CPU device");
          forced.request.variant = row->name;
          if (row->shape != CLATTNI_SHAPE_LANES) {
            refuses(&forced, CLATTN_ERROR_VARIANT_UNFIT, "has no vector lanes: width=");
            continue;
          }
          picks(&forced, row->name, "by name");
          assert_int_equal(sscanf(forced.choice.options, "-DCLATTN_LANES=%d", &lanes), 1);
          assert_int_equal(lanes, (int)widths[w]);
          assert_string_equal(forced.choice.options, own.choice.options);
          assert_int_equal(forced.choice.rows, own.choice.rows);
          assert_int_equal(forced.choice.pack, own.choice.pack);
          assert_int_equal(forced.choice.key_multiple, own.choice.key_multiple);
          assert_int_equal(forced.choice.workspace_bytes, own.choice.workspace_bytes);
        }
      }
  for (size_t w = 0; w < sizeof widths / sizeof widths[0]; ++w) { /* the matrix unit has one width */
    asked amx;
    begin(&amx, "hq=2 sq=100 sk=100 d=64 q=bf16 k=bf16 v=bf16", CL_DEVICE_TYPE_CPU);
    amx.device.amx = CLATTN_AMX_USABLE;
    amx.request.variant = "flash-cpu-amx";
    amx.request.width = widths[w];
    if (widths[w] == 16)
      picks(&amx, "flash-cpu-amx", "by name");
    else
      refuses(&amx, CLATTN_ERROR_VARIANT_UNFIT, "the context's config_text forces another width");
  }
  asked gpu; /* which has no variant with lanes of its own accord */
  begin(&gpu, small, CL_DEVICE_TYPE_GPU);
  gpu.request.width = 8;
  refuses(&gpu, CLATTN_ERROR_VARIANT_UNFIT, "flash-gpu-simt has no vector lanes: width=8 of the context's config_text");
  gpu.request.variant = "flash-cpu-vector";
  picks(&gpu, "flash-cpu-vector", "by name");
}

/* Local memory that kernels/three_step.cl declares at most, and kernels/flash_gpu_simt.cl; what the sources really
 * say is weighed on the stub driver. */
static uint64_t declared(uint64_t gx, uint64_t gy, uint64_t values, clattn_similarity similarity, clattn_rope rope) {
  const uint64_t rows = 8 * gy, columns = gx * (values > 0 && gx == gy ? 8 : 4), pad = values > 0 ? 4 : 1;
  const uint64_t keys = columns * (16 + pad), of_values = 16 * gx * values;
  uint64_t queries = 16 * (rows + 1), tables = 0;
  if (similarity == CLATTN_COSINE) /* two numbers make a norm */
    tables += 2 * rows + 2 * columns;
  if (rope != CLATTN_ROPE_NONE) /* where rows and keys find their line of the tables, in 64 bits */
    tables += 2 * rows + 2 * columns;
  if (similarity == CLATTN_ADDITIVE) /* w of the rows' heads */
    tables += queries + (values > 0 ? 2 * rows : 0);
  if (values == 0)
    return 4 * (queries + 16 * (columns + 1) + tables + gx * rows);
  queries = rows * (16 + pad);
  tables += queries + (keys > of_values ? keys : of_values) + rows * (columns + pad) + 2 * (rows + columns);
  return (4 * tables + 4 + 15) / 16 * 16 + 4 * (gx * gy + rows) + 88 + 4;
}

static void tiles_follow_the_work_group(void **state) {
  (void)state;
  static const struct {
    const char *variant;
    int64_t v_dim;
    uint64_t large, small; /* bytes of local memory for groups of 16 x 8 (fused, narrow values: 8 x 8) and of 8 x 4 */
    uint64_t large_per_item, small_per_item;
    clattn_similarity similarity;
    clattn_rope rope;
  } kinds[] = {{"three-step", 16, 12416, 5248, 0, 0, CLATTN_DOT, 0},
               {"three-step", 16, 13440, 5760, 0, 0, CLATTN_COSINE, 0},
               {"three-step", 16, 16576, 7360, 0, 0, CLATTN_ADDITIVE, 0},
               {"flash-gpu-simt", 16, 29292, 10604, 4, 4, CLATTN_DOT, 0},
               {"flash-gpu-simt", 33, 29292, 12140, 8, 8, CLATTN_DOT, 0},
               {"flash-gpu-simt", 64, 29292, 12140, 8, 8, CLATTN_DOT, 0},
               {"flash-gpu-simt", 65, 32620, 12140, 8, 8, CLATTN_DOT, 0},
               {"flash-gpu-simt", 300, 32620, 12140, 8, 8, CLATTN_DOT, 0},
               {"flash-gpu-simt", 300, 33644, 12652, 8, 8, CLATTN_COSINE, 0},
               {"flash-gpu-simt", 16, 33964, 12972, 4, 4, CLATTN_ADDITIVE, 0},
               {"three-step", 16, 13440, 5760, 0, 0, CLATTN_DOT, CLATTN_ROPE_HALF},
               {"flash-gpu-simt", 300, 34668, 13164, 8, 8, CLATTN_COSINE, CLATTN_ROPE_INTERLEAVED},
               {"flash-gpu-simt", 16, 34988, 13484, 4, 4, CLATTN_ADDITIVE, CLATTN_ROPE_HALF}};
  for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; ++k) {
    const int wide = kinds[k].large_per_item > 0 && kinds[k].v_dim <= 64 ? 8 : 16;
    const struct {
      uint32_t work_group;
      uint64_t local;
      int gy; /* 0: refused */
    } rows[] = {{1024, 65536, 8},
                {(uint32_t)wide * 8, 40960, 8},
                {(uint32_t)wide * 8 - 1, 40960, 4},
                {32, 40960, 4},
                {31, 40960, 0},
                {1024, kinds[k].large, 8},
                {1024, kinds[k].large - 1, 4},
                {1024, kinds[k].small, 4},
                {1024, kinds[k].small - 1, 0}};
    assert_int_equal(declared((uint64_t)wide, 8, kinds[k].large_per_item, kinds[k].similarity, kinds[k].rope),
                     kinds[k].large);
    assert_int_equal(declared(8, 4, kinds[k].small_per_item, kinds[k].similarity, kinds[k].rope), kinds[k].small);
    for (size_t n = 0; n < sizeof rows / sizeof rows[0]; ++n) {
      asked a;
      char line[64];
      int gx = 0, gy = 0, per_item = 0;
      (void)snprintf(line, sizeof line, "hq=2 sq=100 sk=100 d=16 dv=%" PRId64, kinds[k].v_dim);
      begin(&a, line, CL_DEVICE_TYPE_GPU);
      a.problem.similarity = kinds[k].similarity;
      a.problem.rope = kinds[k].rope;
      a.request.variant = kinds[k].variant;
      a.device.max_work_group = rows[n].work_group;
      a.device.local_bytes = rows[n].local;
      if (rows[n].gy == 0) {
        char text[160];
        (void)snprintf(text, sizeof text,
                       "%s needs work-groups of 32 items and %" PRIu64 " bytes of local memory; the device has %" PRIu32
                       " and %" PRIu64,
                       kinds[k].variant, kinds[k].small, rows[n].work_group, rows[n].local);
        refuses(&a, CLATTN_ERROR_VARIANT_UNFIT, text);
        continue;
      }
      const int large = rows[n].gy == 8;
      const int values = (int)(large ? kinds[k].large_per_item : kinds[k].small_per_item);
      picks(&a, kinds[k].variant, "");
      assert_int_equal(sscanf(a.choice.options, "-DCLATTN_GX=%d -DCLATTN_GY=%d -DCLATTN_VC=%d", &gx, &gy, &per_item),
                       values > 0 ? 3 : 2);
      assert_int_equal(gx, large ? wide : 8);
      assert_int_equal(gy, rows[n].gy);
      assert_int_equal(per_item, values);
      assert_int_equal(a.choice.gx, gx);
      assert_int_equal(a.choice.gy, gy);
      assert_int_equal(a.choice.rows, 8 * gy);
      assert_int_equal(a.choice.keys_per_chunk, 4 * gx);
      assert_int_equal(CLATTN_INVARIANT_KEYS % a.choice.keys_per_chunk, 0);
      assert_int_equal(a.choice.dim_chunk, gx * (values > 0 ? values : 4));
      assert_true((uint32_t)(gx * gy) <= rows[n].work_group);
    }
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
  refuses(&a, CLATTN_ERROR_UNKNOWN_VARIANT, "'three'; there are flash-cpu-amx, flash-cpu-vector, three-step-cpu");
  a.request.variant = "";
  refuses(&a, CLATTN_ERROR_UNKNOWN_VARIANT, "''");
  a.request.variant = "Three-Step";
  refuses(&a, CLATTN_ERROR_UNKNOWN_VARIANT, "'Three-Step'");
  char endless[2000];
  memset(endless, 'x', sizeof endless);
  endless[sizeof endless - 1] = '\0';
  a.request.variant = endless;
  refuses(&a, CLATTN_ERROR_UNKNOWN_VARIANT,
          "flash-cpu-vector, three-step-cpu, flash-gpu-simt, flash-gpu-matrix, three-step");
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
  picks(&a, "flash-gpu-simt", "");
  a.request.forbidden[1] = "flash-gpu-simt";
  a.request.forbidden_count = 2;
  refuses(&a, CLATTN_ERROR_VARIANT_UNFIT, "flash-gpu-simt is forbidden by the context's config_text (flash-gpu-simt)");
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
    picks(&a, cpu ? "flash-cpu-vector" : "flash-gpu-simt", "");
  }
}

static uint32_t row_of(const char *name) {
  uint32_t index = 0;
  while (strcmp(clattni_variant_at(index)->name, name) != 0)
    ++index;
  return index;
}

/* Rows that failed their test: the next one, and all reasons. */
static void passed_over(void **state) {
  (void)state;
  asked a;
  begin(&a, small, CL_DEVICE_TYPE_GPU);
  a.request.passed_over[row_of("flash-gpu-simt")] = "its kernels don't build";
  a.request.passed_status[row_of("flash-gpu-simt")] = CL_BUILD_PROGRAM_FAILURE;
  picks(&a, "three-step", "takes the problem; variant flash-gpu-simt is passed over: its kernels don't build");
  a.request.passed_over[row_of("three-step")] = "it computes wrong numbers";
  a.request.passed_status[row_of("three-step")] = CLATTN_ERROR_SELF_TEST;
  refuses(
      &a, CL_BUILD_PROGRAM_FAILURE,
      "flash-gpu-simt is passed over: its kernels don't build; variant three-step is passed over: it computes wrong");
  begin(&a, small, CL_DEVICE_TYPE_GPU); /* 16 KiB of local memory; work-groups of 64 */
  a.device.local_bytes = 16384;
  picks(&a, "flash-gpu-simt", "");
  assert_int_equal(a.choice.gx * a.choice.gy, 32);
  a.device.local_bytes = 8192;
  picks(&a, "three-step", "variant flash-gpu-simt needs work-groups of 32 items and 10604 bytes of local memory");
  begin(&a, small, CL_DEVICE_TYPE_GPU);
  a.device.max_work_group = 64;
  picks(&a, "flash-gpu-simt", "");
  assert_int_equal(a.choice.gx * a.choice.gy, 64);
}

/* Heads of a group share tiles where a head's rows don't fill one. */
static void heads_share_tiles(void **state) {
  (void)state;
  static const char *const lines[] = {
      "hq=8 hkv=2 sq=%d sk=9 d=4",
      "b=3 hq=8 hkv=1 sq=%d sk=9 d=4 out=o,scores,max_logit",
      "hq=8 hkv=8 sq=%d sk=9 d=4",
      "b=4 hq=6 hkv=2 sq=%d sk=9 d=4 q=packed o=packed total_q=100000",
      "b=4 hq=6 hkv=2 sq=%d sk=9 d=4 k=paged v=paged klen=per_batch pages=9 max_pages=3 page_size=3",
  };
  static const int groups[] = {4, 8, 1, 3, 3};
  for (size_t n = 0; n < sizeof lines / sizeof lines[0]; ++n)
    for (uint32_t v = 0; made_up_general(v) != NULL; ++v)
      for (int invariant = 0; invariant < 2; ++invariant) {
        const clattni_variant *row = made_up_general(v);
        int tile = 24;
        for (int edge = -3; edge < 3; ++edge) { /* first a look at the tile, then at its edges */
          char line[160];
          asked a;
          int length = snprintf(line, sizeof line, lines[n], edge == -3 ? 10000 : tile + edge);
          (void)snprintf(line + length, sizeof line - (size_t)length, "%s", invariant ? " flags=batch_invariant" : "");
          begin(&a, line, CL_DEVICE_TYPE_CPU);
          a.request.variant = row->name;
          picks(&a, row->name, "");
          tile = edge == -3 ? a.choice.rows : tile;
          assert_int_equal(a.choice.pack, row->fused && !invariant && a.problem.q_len < tile ? groups[n] : 1);
          assert_int_equal(a.problem.q_heads / a.problem.kv_heads % a.choice.pack, 0); /* of one key head */
        }
      }
}

/* Tiles of lanes waste few rows, and those of decoding have them as they lie. */
static void few_rows_have_small_tiles(void **state) {
  (void)state;
  static const struct {
    const char *line;
    int width, rows, few;
  } rows[] = {
      {"sq=1 sk=64 d=64", 16, 16, 1},
      {"sq=8 sk=64 d=64", 16, 16, 1},
      {"sq=9 sk=64 d=64", 16, 16, 0},
      {"sq=1 sk=63 d=64", 16, 16, 0},
      {"hq=8 hkv=2 sq=2 sk=4096 d=128", 16, 16, 1},
      {"hq=8 hkv=2 sq=3 sk=4096 d=128", 16, 16, 0},
      {"hq=8 hkv=2 sq=1 sk=4096 d=128 flags=batch_invariant", 16, 16, 0},
      {"sq=1 sk=64 d=64 sim=additive", 16, 16, 0},
      {"sq=1 sk=64 d=64 sim=cosine", 16, 16, 1},
      {"sq=1 sk=64 d=64 k=f16:strided:8192,8192,128,2", 16, 16, 0},
      {"sq=1 sk=64 d=64 v=f32:strided:8192,8192,128,2", 16, 16, 0},
      {"sq=1 sk=64 d=64 k=f32:paged:8192,4096,128,2 v=f32:paged page_size=16 pages=9 max_pages=9 klen=per_batch", 16,
       16, 0},
      {"sq=1 sk=64 d=64 k=i8:paged v=i4:paged k_scale=f32:paged v_scale=f32:paged page_size=16 pages=9 max_pages=9 "
       "klen=per_batch",
       16, 16, 1},
      {"sq=17 sk=64 d=64", 16, 32, 0},
      {"sq=49 sk=49 d=32", 16, 32, 0},
      {"sq=128 sk=128 d=64", 16, 32, 0},
      {"sq=100000 sk=64 d=64", 16, 48, 0},
      {"sq=1 sk=64 d=64", 8, 8, 1},
      {"sq=9 sk=64 d=64", 8, 16, 0},
      {"sq=100000 sk=64 d=64", 8, 24, 0},
      {"sq=4 sk=64 d=64", 4, 4, 1},
      {"sq=5 sk=64 d=64", 4, 8, 0},
  };
  for (size_t n = 0; n < sizeof rows / sizeof rows[0]; ++n) {
    asked a;
    begin(&a, rows[n].line, CL_DEVICE_TYPE_CPU);
    a.device.native_float_width = (uint32_t)rows[n].width;
    a.request.variant = "flash-cpu-vector";
    picks(&a, a.request.variant, "");
    assert_int_equal(a.choice.rows, rows[n].rows);
    assert_int_equal(strstr(a.choice.options, " -DCLATTN_FEW=1") != NULL, rows[n].few);
    a.request.variant = "three-step-cpu";
    picks(&a, a.request.variant, "");
    assert_int_equal(a.choice.rows, 3 * rows[n].width);
    assert_null(strstr(a.choice.options, "CLATTN_FEW"));
  }
}

/* ---- types ------------------------------------------------------------------------------------------------------ */

/* Compiler options behind those of the tile: every type that the problem uses and that is not f32, and the
 * similarity. */
static void types_are_options(void **state) {
  (void)state;
  static const struct {
    const char *line, *options;
  } rows[] = {
      {"", ""},
      {"q=f16", " -DCLATTN_Q=f16"},
      {"k=bf16", " -DCLATTN_K=bf16"},
      {"v=f16", " -DCLATTN_V=f16"},
      {"v=f16 out=lse", ""}, /* values do not count */
      {"o=bf16", " -DCLATTN_O=bf16"},
      {"bias=bf16", " -DCLATTN_BIAS=bf16"},
      {"o=f16 scores=f16 out=o,scores", " -DCLATTN_O=f16 -DCLATTN_SCORES=f16"},
      {"o=f16 out=o,scores", " -DCLATTN_O=f16"},
      {"k=i8", " -DCLATTN_K=i8"},
      {"k=i4 k_scale=f16", " -DCLATTN_K=i4 -DCLATTN_K_SCALE=f16"},
      {"v=i4 v_scale=f16", " -DCLATTN_V=i4 -DCLATTN_V_SCALE=f16"},
      {"k=i8 v=i8 k_scale=f16", " -DCLATTN_K=i8 -DCLATTN_V=i8 -DCLATTN_K_SCALE=f16"},
      {"sim=cosine", " -DCLATTN_COSINE=1"},
      {"sim=additive k=bf16", " -DCLATTN_K=bf16 -DCLATTN_ADDITIVE=1"},
      {"q=bf16 k=i4 v=i4 o=bf16 bias=bf16 scores=bf16 out=o,scores k_scale=f16 v_scale=f16 sim=additive",
       " -DCLATTN_Q=bf16 -DCLATTN_K=i4 -DCLATTN_V=i4 -DCLATTN_O=bf16 -DCLATTN_BIAS=bf16 -DCLATTN_SCORES=bf16 "
       "-DCLATTN_K_SCALE=f16 -DCLATTN_V_SCALE=f16 -DCLATTN_ADDITIVE=1"},
      {"head_scale=f32 sink=f32 causal=1", ""},
  };
  for (size_t n = 0; n < sizeof rows / sizeof rows[0]; ++n)
    for (uint32_t v = 0; made_up_general(v) != NULL; ++v)
      for (int fp16 = 0; fp16 < 2; ++fp16) { /* types are the same with and without */
        asked a;
        char line[256], before[sizeof a.choice.options];
        begin(&a, "sq=3 sk=3 d=8", CL_DEVICE_TYPE_CPU);
        a.device.local_bytes = 65536;
        a.request.variant = made_up_general(v)->name;
        picks(&a, a.request.variant, "");
        memcpy(before, a.choice.options, sizeof before);
        (void)snprintf(line, sizeof line, "sq=3 sk=3 d=8 %s", rows[n].line);
        begin(&a, line, CL_DEVICE_TYPE_CPU);
        a.device.local_bytes = 65536;
        a.device.has_fp16 = (uint32_t)fp16;
        a.request.variant = made_up_general(v)->name;
        picks(&a, a.request.variant, "");
        char *const plain = strstr(before, " -DCLATTN_PLAIN=1"); /* of no rule but intervals */
        if (plain != NULL && strstr(a.choice.options, " -DCLATTN_PLAIN=1") == NULL)
          memmove(plain, plain + strlen(" -DCLATTN_PLAIN=1"), strlen(plain + strlen(" -DCLATTN_PLAIN=1")) + 1);
        const size_t length = strlen(before);
        assert_memory_equal(a.choice.options, before, length);
        assert_string_equal(a.choice.options + length, rows[n].options);
      }
}

/* A permission that is used where the device has halves, where all three factors are halves, and where it gains
 * anything. */
static void half_products(void **state) {
  (void)state;
  static const struct {
    const char *line;
    int used;
  } rows[] = {
      {"q=f16 k=f16 v=f16 math=half", 1},
      {"q=f16 k=f16 v=f16 o=f16 math=half", 1},
      {"q=f16 k=f16 v=f16 math=half sim=additive", 0}, /* what meets is not what came as halves */
      {"q=f16 k=f16 v=f16 math=half sim=cosine", 0},
      {"q=f16 k=f16 v=f16 math=half rope=half", 0},
      {"q=f16 k=f16 v=f16", 0},
      {"q=f16 k=f16 v=f16 math=tf32", 0},
      {"math=half", 0},
      {"k=f16 v=f16 math=half", 0},
      {"q=f16 v=f16 math=half", 0},
      {"q=f16 k=f16 math=half", 0},
      {"q=bf16 k=f16 v=f16 math=half", 0},
      {"q=f16 k=i8 v=f16 math=half", 0},
  };
  for (size_t n = 0; n < sizeof rows / sizeof rows[0]; ++n)
    for (uint32_t v = 0; made_up_general(v) != NULL; ++v)
      for (int fp16 = 0; fp16 < 2; ++fp16) {
        asked a;
        char line[128];
        (void)snprintf(line, sizeof line, "sq=3 sk=3 d=8 %s", rows[n].line);
        begin(&a, line, CL_DEVICE_TYPE_GPU);
        a.device.has_fp16 = (uint32_t)fp16;
        a.request.variant = made_up_general(v)->name;
        picks(&a, a.request.variant, "");
        const int wanted = fp16 && rows[n].used && made_up_general(v)->shape == CLATTNI_SHAPE_TILES;
        if ((strstr(a.choice.options, " -DCLATTN_HALF_PRODUCTS") != NULL) != wanted)
          fail_msg("%s, %s, fp16 %d: %s", a.request.variant, line, fp16, a.choice.options);
      }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_table),
      cmocka_unit_test(by_the_device),
      cmocka_unit_test(fused_rows_take_any_dims),
      cmocka_unit_test(lanes_follow_the_vector_width),
      cmocka_unit_test(forced_widths),
      cmocka_unit_test(tiles_follow_the_work_group),
      cmocka_unit_test(by_name),
      cmocka_unit_test(forbidden),
      cmocka_unit_test(devices_that_can_not),
      cmocka_unit_test(passed_over),
      cmocka_unit_test(heads_share_tiles),
      cmocka_unit_test(few_rows_have_small_tiles),
      cmocka_unit_test(types_are_options),
      cmocka_unit_test(half_products),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
