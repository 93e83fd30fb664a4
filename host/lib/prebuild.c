/* SPDX-License-Identifier: Apache-2.0 */
/* clattn_prebuild: programs at load time, and the launch at which PoCL compiles their kernels. */
#include <string.h>

#include "enqueue.h"
#include "status.h"

/* A problem's smallest enqueue: one row, one key. */
typedef struct trial_run {
  const clattn_plan *plan;
  cl_command_queue queue;
  cl_mem buffer[CLATTNI_SLOTS];
} trial_run;

static int64_t at_most(int64_t value, int64_t bound) {
  return value < bound ? value : bound;
}

/* 0 .. most for starts, one number for all else. */
static clattn_ints ints_of(int used, uint32_t count, const int32_t *host) {
  clattn_ints ints;
  memset(&ints, 0, sizeof(ints));
  if (used) {
    ints.kind = CLATTN_ARRAY_HOST;
    ints.count = count;
    ints.host = host;
  }
  return ints;
}

/* Buffers as large as the tensors reach at these sizes; what stands in them does not matter. */
static clattn_status make_buffers(trial_run *run, const clattni_sizes *sizes, clattn_args *args) {
  const clattn_problem *problem = &run->plan->problem;
  for (clattni_slot slot = 0; slot < CLATTNI_SLOTS; ++slot) {
    int64_t shape[4], stride[4], elements = 0;
    cl_int code = CL_SUCCESS;
    if (!clattni_slot_used(problem, slot))
      continue;
    clattni_slot_shape(problem, sizes, slot, shape);
    clattni_slot_strides(problem, sizes, slot, stride);
    if (!clattni_extent(shape, stride, &elements))
      return CLATTN_ERROR_OVERFLOW;
    const int64_t bytes = clattni_slot_bytes(problem, slot, elements > 0 ? elements : 1);
    run->buffer[slot] = clCreateBuffer(run->plan->context->cl, CL_MEM_READ_WRITE, (size_t)bytes, NULL, &code);
    if (code != CL_SUCCESS) {
      run->buffer[slot] = NULL;
      return code;
    }
    *(clattn_mem *)clattni_slot_mem(args, slot) = clattn_buffer(run->buffer[slot], 0);
  }
  return CLATTN_SUCCESS;
}

/* Launches the plan's kernels on next to nothing and waits.  A hook is given no key, since it may count on buffers. */
static clattn_status launch_once(const clattn_plan *plan, clattn_error *error) {
  static const int32_t zero[1] = {0};
  const clattn_problem *problem = &plan->problem;
  const clattni_sizes bounds = clattni_bounds(problem);
  clattni_sizes sizes = bounds; /* with the totals of packed rows */
  cl_int code = CL_SUCCESS;
  clattn_args args;
  trial_run run;
  memset(&run, 0, sizeof(run));
  clattn_args_init(&args);
  args.error = error;
  args.sizes = CLATTN_SIZES_GIVEN;
  args.batch = sizes.batch = at_most(1, bounds.batch);
  args.q_len = sizes.q_len = at_most(1, bounds.q_len);
  args.k_len = sizes.k_len = at_most(problem->hook == NULL, bounds.k_len);
  const int32_t q_length[1] = {(int32_t)sizes.q_len}, k_length[1] = {(int32_t)sizes.k_len};
  const int32_t q_starts[2] = {0, q_length[0]}, k_starts[2] = {0, k_length[0]};
  const uint32_t batch = (uint32_t)sizes.batch;
  args.q_lengths = ints_of(problem->q_length_mode == CLATTN_LENGTH_PER_BATCH, batch, q_length);
  args.k_lengths = ints_of(problem->k_length_mode == CLATTN_LENGTH_PER_BATCH, batch, k_length);
  args.q_offsets = ints_of(problem->offset_mode == CLATTN_OFFSET_PER_BATCH, batch, zero);
  args.prefix = ints_of(problem->prefix_mode == CLATTN_PREFIX_PER_BATCH, batch, zero);
  args.cu_seqlens_q = ints_of(clattni_packed_q(problem), batch + 1, q_starts);
  args.cu_seqlens_k = ints_of(clattni_packed_k(problem), batch + 1, k_starts);

  run.plan = plan;
  run.queue = clCreateCommandQueue(plan->context->cl, plan->context->device, 0, &code);
  if (code != CL_SUCCESS)
    return code;
  clattn_status status = make_buffers(&run, &sizes, &args);
  if (status == CLATTN_SUCCESS)
    status = clattn_enqueue(plan, run.queue, &args, 0, NULL, NULL);
  if (status == CLATTN_SUCCESS)
    status = clFinish(run.queue);
  for (int slot = 0; slot < CLATTNI_SLOTS; ++slot)
    if (run.buffer[slot] != NULL)
      clReleaseMemObject(run.buffer[slot]);
  clReleaseCommandQueue(run.queue);
  return status;
}

clattn_status clattn_prebuild(clattn_context *context, const clattn_problem *problems, size_t count,
                              int (*progress)(void *user, size_t done, size_t count), void *user, clattn_error *error) {
  clattn_error why;
  clattni_clear(error);
  if (context == NULL || (problems == NULL && count > 0))
    return clattni_fail(error, CLATTN_ERROR_NULL_POINTER, "%s is NULL", context == NULL ? "context" : "problems");
  const int lazy = clattni_programs_lazy(&context->programs);
  for (size_t i = 0; i < count; ++i) {
    clattn_plan *plan = NULL;
    const clattn_status status = clattn_plan_create(context, &problems[i], NULL, &plan, error);
    if (status != CLATTN_SUCCESS)
      return status;
    clattn_error_init(&why);
    const clattn_status launched = lazy ? launch_once(plan, &why) : CLATTN_SUCCESS;
    clattn_plan_release(plan);
    /* no failure: the kernels are built, and the caller's own launch will compile them */
    if (launched != CLATTN_SUCCESS)
      clattni_context_log(context, CLATTN_LOG_INFO, "prebuild: no trial launch: %s: %s", clattn_status_name(launched),
                          why.message);
    if (progress != NULL && progress(user, i + 1, count) == 0)
      return CLATTN_SUCCESS;
  }
  clattni_programs_store(&context->programs);
  return CLATTN_SUCCESS;
}
