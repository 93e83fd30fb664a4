/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device_flat.h"
#include "device_judge.h"

void flat_fill(float *values, size_t count, uint64_t seed) {
  for (size_t n = 0; n < count; ++n)
    values[n] = (float)(4.0 * device_random(seed, 301, n) - 2.0);
}

static cl_mem make_buffer(const void *values, size_t bytes) {
  cl_int code = CL_SUCCESS;
  cl_mem buffer = clCreateBuffer(rig.cl, CL_MEM_READ_WRITE, bytes, NULL, &code);
  assert_int_equal(code, CL_SUCCESS);
  assert_int_equal(clEnqueueWriteBuffer(rig.queue, buffer, CL_TRUE, 0, bytes, values, 0, NULL, NULL), CL_SUCCESS);
  return buffer;
}

typedef struct result {
  clattn_mem *mem;
  void *to; /* NULL: not asked for */
  size_t bytes;
  cl_mem buffer;
} result;

static void make_result(result *r) {
  if (r->to == NULL)
    return;
  unsigned char *pattern = malloc(r->bytes);
  assert_non_null(pattern);
  memset(pattern, OUTPUT_PATTERN, r->bytes);
  r->buffer = make_buffer(pattern, r->bytes);
  *r->mem = clattn_buffer(r->buffer, 0);
  free(pattern);
}

static void read_result(const result *r) {
  if (r->to == NULL)
    return;
  assert_int_equal(clEnqueueReadBuffer(rig.queue, r->buffer, CL_TRUE, 0, r->bytes, r->to, 0, NULL, NULL), CL_SUCCESS);
  assert_int_equal(clReleaseMemObject(r->buffer), CL_SUCCESS);
}

static void compute(const flat_run *run, void *o, void *lse, void *scores) {
  clattn_problem problem;
  clattn_plan_options options;
  clattn_plan *plan = NULL;
  clattn_error error;
  clattn_args args;
  clattn_args_init(&args);
  clattn_error_init(&error);
  clattn_plan_options_init(&options);
  options.variant = run->variant;
  args.error = &error;
  clattn_mem *const mem[CLATTNI_SLOTS] = {[CLATTNI_Q] = &args.q,
                                          [CLATTNI_K] = &args.k,
                                          [CLATTNI_V] = &args.v,
                                          [CLATTNI_BIAS] = &args.bias,
                                          [CLATTNI_KEEP_MASK] = &args.keep_mask,
                                          [CLATTNI_BLOCK_MASK] = &args.block_mask,
                                          [CLATTNI_ALIBI_SLOPES] = &args.alibi_slopes,
                                          [CLATTNI_SINK] = &args.sink,
                                          [CLATTNI_HEAD_SCALE] = &args.head_scale,
                                          [CLATTNI_ADD_W] = &args.add_w,
                                          [CLATTNI_K_SCALE] = &args.k_scale,
                                          [CLATTNI_V_SCALE] = &args.v_scale,
                                          [CLATTNI_PAGE_TABLE] = &args.page_table,
                                          [CLATTNI_ROPE_COS] = &args.rope_cos,
                                          [CLATTNI_ROPE_SIN] = &args.rope_sin,
                                          [CLATTNI_POSITIONS_Q] = &args.positions_q,
                                          [CLATTNI_POSITIONS_K] = &args.positions_k};
  clattn_ints *const ints[JOB_ARRAYS] = {&args.q_lengths, &args.k_lengths,    &args.q_offsets,
                                         &args.prefix,    &args.cu_seqlens_q, &args.cu_seqlens_k};
  cl_mem inputs[CLATTNI_SLOTS] = {NULL};
  if (clattn_problem_parse(run->line, &problem, &error) != CLATTN_SUCCESS ||
      clattn_plan_create(rig.context, &problem, &options, &plan, &error) != CLATTN_SUCCESS)
    fail_msg("%s, %s: %s", run->line, run->variant, error.message);
  for (int slot = 0; slot < CLATTNI_SLOTS; ++slot)
    if (run->slot[slot].values != NULL && mem[slot] != NULL) {
      inputs[slot] = make_buffer(run->slot[slot].values, run->slot[slot].bytes);
      *mem[slot] = clattn_buffer(inputs[slot], 0);
    }
  for (int n = 0; n < JOB_ARRAYS; ++n)
    if (run->array[n].entries != NULL) {
      ints[n]->kind = CLATTN_ARRAY_HOST;
      ints[n]->count = run->array[n].count;
      ints[n]->host = run->array[n].entries;
    }
  const size_t element = run->half ? sizeof(uint16_t) : sizeof(float);
  result results[] = {{&args.o, o, run->o_count * element, NULL},
                      {&args.lse, lse, run->lse_count * sizeof(float), NULL},
                      {&args.scores, scores, run->scores_count * element, NULL}};
  for (size_t n = 0; n < sizeof results / sizeof results[0]; ++n)
    make_result(&results[n]);
  if (clattn_enqueue(plan, rig.queue, &args, 0, NULL, NULL) != CLATTN_SUCCESS)
    fail_msg("%s, %s: %s", run->line, run->variant, error.message);
  for (size_t n = 0; n < sizeof results / sizeof results[0]; ++n)
    read_result(&results[n]);
  assert_int_equal(clFinish(rig.queue), CL_SUCCESS);
  for (int slot = 0; slot < CLATTNI_SLOTS; ++slot)
    if (inputs[slot] != NULL)
      assert_int_equal(clReleaseMemObject(inputs[slot]), CL_SUCCESS);
  clattn_plan_release(plan);
}

void flat_compute(const flat_run *run, void *o, float *lse) {
  compute(run, o, lse, NULL);
}

void flat_scores(const flat_run *run, void *o, void *scores) {
  compute(run, o, NULL, scores);
}
