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

static cl_mem make_result(size_t count) {
  float *pattern = malloc(count * sizeof *pattern);
  assert_non_null(pattern);
  memset(pattern, OUTPUT_PATTERN, count * sizeof *pattern);
  cl_mem buffer = make_buffer(pattern, count * sizeof *pattern);
  free(pattern);
  return buffer;
}

static void read_result(cl_mem buffer, float *to, size_t count) {
  if (buffer == NULL)
    return;
  assert_int_equal(clEnqueueReadBuffer(rig.queue, buffer, CL_TRUE, 0, count * sizeof *to, to, 0, NULL, NULL),
                   CL_SUCCESS);
  assert_int_equal(clReleaseMemObject(buffer), CL_SUCCESS);
}

void flat_compute(const flat_run *run, float *o, float *lse) {
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
                                          [CLATTNI_PAGE_TABLE] = &args.page_table};
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
  cl_mem o_buffer = o != NULL ? make_result(run->o_count) : NULL;
  cl_mem lse_buffer = lse != NULL ? make_result(run->lse_count) : NULL;
  if (o != NULL)
    args.o = clattn_buffer(o_buffer, 0);
  if (lse != NULL)
    args.lse = clattn_buffer(lse_buffer, 0);
  if (clattn_enqueue(plan, rig.queue, &args, 0, NULL, NULL) != CLATTN_SUCCESS)
    fail_msg("%s, %s: %s", run->line, run->variant, error.message);
  read_result(o_buffer, o, run->o_count);
  read_result(lse_buffer, lse, run->lse_count);
  assert_int_equal(clFinish(rig.queue), CL_SUCCESS);
  for (int slot = 0; slot < CLATTNI_SLOTS; ++slot)
    if (inputs[slot] != NULL)
      assert_int_equal(clReleaseMemObject(inputs[slot]), CL_SUCCESS);
  clattn_plan_release(plan);
}
