/* SPDX-License-Identifier: Apache-2.0 */
#include "enqueue.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "place.h"
#include "status.h"

static clattn_status check_header(const clattn_args *args) {
  clattn_error *error = args->error;
  if (args->reserved0 != 0 || args->reserved1 != 0)
    return clattni_fail(error, CLATTN_ERROR_RESERVED, "clattn_args has a reserved word that is not 0");
  for (size_t i = 0; i < sizeof(args->reserved) / sizeof(args->reserved[0]); ++i)
    if (args->reserved[i] != 0)
      return clattni_fail(error, CLATTN_ERROR_RESERVED, "clattn_args.reserved[%zu] is %u, not 0", i, args->reserved[i]);
  if (args->sizes > CLATTN_SIZES_GIVEN)
    return clattni_fail(error, CLATTN_ERROR_RESERVED, "args.sizes is %u: it holds CLATTN_SIZES_ bits", args->sizes);
  return CLATTN_SUCCESS;
}

static clattn_status one_size(const char *name, int given, int64_t value, int64_t bound, int64_t *out,
                              clattn_error *error) {
  *out = given ? value : bound;
  if (*out < 0)
    return clattni_fail(error, CLATTN_ERROR_SHAPE, "args.%s is %lld: it must be >= 0", name, (long long)*out);
  if (*out > bound)
    return clattni_fail(error, CLATTN_ERROR_BOUND, "args.%s %lld is above the plan's bound %lld", name, (long long)*out,
                        (long long)bound);
  return CLATTN_SUCCESS;
}

static clattn_status check_sizes(const clattn_problem *problem, const clattn_args *args, clattni_sizes *sizes) {
  clattn_status status = one_size("batch", (args->sizes & CLATTN_SIZES_BATCH) != 0, args->batch, problem->batch,
                                  &sizes->batch, args->error);
  if (status == CLATTN_SUCCESS)
    status = one_size("q_len", (args->sizes & CLATTN_SIZES_Q_LEN) != 0, args->q_len, problem->q_len, &sizes->q_len,
                      args->error);
  if (status == CLATTN_SUCCESS)
    status = one_size("k_len", (args->sizes & CLATTN_SIZES_K_LEN) != 0, args->k_len, problem->k_len, &sizes->k_len,
                      args->error);
  return status;
}

/* Tensors of features that this release refuses in the problem, so a plan never uses them. */
static clattn_status check_unused(const clattn_problem *problem, const clattn_args *args) {
#define UNUSED_TENSOR(field)                                                                                           \
  { #field, offsetof(clattn_args, field) }
  static const struct {
    const char *name;
    size_t offset;
  } tensors[] = {UNUSED_TENSOR(d_o), UNUSED_TENSOR(d_lse),  UNUSED_TENSOR(d_q),   UNUSED_TENSOR(d_k),
                 UNUSED_TENSOR(d_v), UNUSED_TENSOR(d_bias), UNUSED_TENSOR(d_sink)};
#undef UNUSED_TENSOR
  for (size_t i = 0; i < sizeof(tensors) / sizeof(tensors[0]); ++i) {
    const clattn_mem *mem = (const clattn_mem *)(const void *)((const char *)args + tensors[i].offset);
    if (!clattni_is_absent(mem))
      return clattni_fail(args->error, CLATTN_ERROR_TENSOR_UNUSED, "args.%s is given, but the problem does not use it",
                          tensors[i].name);
  }
  for (int i = 0; i < 4 && problem->hook == NULL; ++i)
    if (!clattni_is_absent(&args->hook_buffer[i]) || args->hook_scalar[i].kind != CLATTN_SCALAR_PLAN ||
        args->hook_scalar[i].value != 0 || !clattni_is_absent(&args->hook_scalar[i].device))
      return clattni_fail(args->error, CLATTN_ERROR_TENSOR_UNUSED,
                          "args.hook_buffer[%d] or hook_scalar[%d] is given, but the problem has no hook", i, i);
  if (args->dropout_seed != 0 || args->dropout_offset != 0)
    return clattni_fail(args->error, CLATTN_ERROR_TENSOR_UNUSED,
                        "args.dropout_seed or dropout_offset is given, but the problem has no dropout");
  return CLATTN_SUCCESS;
}

/* Numbers of 4 bytes in a row that a kernel reads. */
static clattn_status place_numbers(const clattn_plan *plan, const clattn_mem *mem, const char *name, int64_t count,
                                   cl_mem *buffer, int64_t *first, clattni_placed *at, clattn_error *error) {
  uint64_t usable = 0;
  memset(at, 0, sizeof(*at));
  const clattn_status status = clattni_check_mem(plan->context, mem, name, CL_MEM_WRITE_ONLY, at, &usable, error);
  if (status != CLATTN_SUCCESS)
    return status;
  if (mem->offset % 4 != 0)
    return clattni_fail(error, CLATTN_ERROR_ALIGNMENT, "args.%s.offset %llu is not a multiple of the element's 4 bytes",
                        name, (unsigned long long)mem->offset);
  if (usable / 4 < (uint64_t)count)
    return clattni_fail(error, CLATTN_ERROR_BUFFER_TOO_SMALL,
                        "args.%s has %llu bytes from its offset on; its %lld entries reach %llu", name,
                        (unsigned long long)usable, (long long)count, (unsigned long long)count * 4);
  at->end = at->begin + (uint64_t)count * 4;
  at->element = (uint64_t)count * 4;
  for (int axis = 0; axis < 4; ++axis)
    at->shape[axis] = 1;
  *buffer = mem->buffer;
  *first = (int64_t)(mem->offset / 4);
  return CLATTN_SUCCESS;
}

/* A scalar: its value, or the buffer that holds it. */
typedef struct scalar {
  const char *name;
  const clattn_scalar *given;
  float plan_value;
  float *value;
  cl_mem *buffer;
  int *in_buffer;
  int64_t *first;
  int finite; /* 1: a value that is not is refused */
} scalar;

static clattn_status check_scalar(const clattn_plan *plan, const scalar *s, clattni_placed *list, int *count,
                                  clattn_error *error) {
  const clattn_scalar *given = s->given;
  *s->value = s->plan_value;
  if (given->kind > CLATTN_SCALAR_DEVICE)
    return clattni_fail(error, CLATTN_ERROR_ENUM, "args.%s.kind is %u, no CLATTN_SCALAR_ value", s->name, given->kind);
  if (given->kind != CLATTN_SCALAR_HOST && given->value != 0)
    return clattni_fail(error, CLATTN_ERROR_VALUE, "args.%s.value is %g, but its kind is not CLATTN_SCALAR_HOST",
                        s->name, (double)given->value);
  if (given->kind != CLATTN_SCALAR_DEVICE)
    if (!clattni_is_absent(&given->device))
      return clattni_fail(error, CLATTN_ERROR_TENSOR_UNUSED,
                          "args.%s.device is given, but its kind is not CLATTN_SCALAR_DEVICE", s->name);
  if (given->kind == CLATTN_SCALAR_HOST) {
    *s->value = given->value;
    if (s->finite && !isfinite(given->value))
      return clattni_fail(error, CLATTN_ERROR_VALUE, "args.%s is %g: it must be finite", s->name, (double)given->value);
  }
  if (given->kind != CLATTN_SCALAR_DEVICE)
    return CLATTN_SUCCESS;
  const clattn_status status =
      place_numbers(plan, &given->device, s->name, 1, s->buffer, s->first, &list[*count], error);
  if (status == CLATTN_SUCCESS) {
    *s->in_buffer = 1;
    ++*count;
  }
  return status;
}

static clattn_status check_scalars(const clattn_plan *plan, clattni_checked *checked, clattni_placed *list,
                                   int *count) {
  const clattn_problem *problem = &plan->problem;
  const clattn_args *args = checked->args;
  clattni_bases *bases = &checked->bases;
  const scalar scale = {"scale",         &args->scale,         problem->scale,      &bases->scale,
                        &checked->scale, &bases->scale_buffer, &bases->scale_first, 1};
  const scalar softcap = {"softcap",         &args->softcap,         problem->softcap,      &bases->softcap,
                          &checked->softcap, &bases->softcap_buffer, &bases->softcap_first, 1};
  clattn_status status = check_scalar(plan, &scale, list, count, args->error);
  if (status == CLATTN_SUCCESS)
    status = check_scalar(plan, &softcap, list, count, args->error);
  if (status == CLATTN_SUCCESS && args->softcap.kind != CLATTN_SCALAR_PLAN &&
      (!(problem->softcap > 0) || !(bases->softcap > 0)))
    status = clattni_fail(args->error, CLATTN_ERROR_VALUE,
                          "args.softcap %g: it must be > 0, and the problem must have a softcap (it has %g)",
                          (double)bases->softcap, (double)problem->softcap);
  return status;
}

static clattn_status check_hook(const clattn_plan *plan, clattni_checked *checked, clattni_placed *list, int *count) {
  static const char *const buffers[4] = {"hook_buffer[0]", "hook_buffer[1]", "hook_buffer[2]", "hook_buffer[3]"};
  static const char *const scalars[4] = {"hook_scalar[0]", "hook_scalar[1]", "hook_scalar[2]", "hook_scalar[3]"};
  const clattn_args *args = checked->args;
  for (int i = 0; i < 4 && plan->problem.hook != NULL; ++i) {
    const clattn_mem *mem = &args->hook_buffer[i];
    clattni_placed *at = &list[*count];
    uint64_t usable = 0;
    if (!clattni_is_absent(mem)) { /* how much of it the hook reads, only the caller knows */
      memset(at, 0, sizeof(*at));
      const clattn_status status =
          clattni_check_mem(plan->context, mem, buffers[i], CL_MEM_WRITE_ONLY, at, &usable, args->error);
      if (status != CLATTN_SUCCESS)
        return status;
      at->end = at->begin + usable;
      at->element = usable;
      for (int axis = 0; axis < 4; ++axis)
        at->shape[axis] = 1;
      checked->hook_buffer[i] = mem->buffer;
      checked->hook.first[i] = (int64_t)mem->offset;
      if (usable > 0)
        ++*count;
    }
    int in_buffer = 0;
    const scalar one = {
        scalars[i], &args->hook_scalar[i],          0.0f, &checked->hook.scalar[i], &checked->hook_scalar[i],
        &in_buffer, &checked->hook_gather.first[i], 0};
    const clattn_status status = check_scalar(plan, &one, list, count, args->error);
    if (status != CLATTN_SUCCESS)
      return status;
    if (!in_buffer)
      checked->hook_gather.first[i] = -1;
    checked->hook_gather.scalar[i] = checked->hook.scalar[i];
    checked->hook_on_device |= in_buffer;
  }
  return CLATTN_SUCCESS;
}

static clattn_status check_device_arrays(const clattn_plan *plan, clattni_checked *checked, clattni_placed *list,
                                         int *count) {
  for (int array = 0; array < CLATTNI_ARRAYS; ++array) {
    const clattn_ints *ints = clattni_array_of(checked->args, array);
    if (ints->kind != CLATTN_ARRAY_DEVICE || (ints->count == 0 && clattni_is_absent(&ints->device)))
      continue;
    const clattn_status status =
        place_numbers(plan, &ints->device, clattni_array_name(array), ints->count, &checked->array[array],
                      &checked->array_first[array], &list[*count], checked->args->error);
    if (status != CLATTN_SUCCESS)
      return status;
    if (ints->count > 0)
      ++*count;
  }
  return CLATTN_SUCCESS;
}

const clattn_mem *clattni_slot_mem(const clattn_args *args, clattni_slot slot) {
  const clattn_mem *const mems[CLATTNI_SLOTS] = {
      [CLATTNI_Q] = &args->q,
      [CLATTNI_K] = &args->k,
      [CLATTNI_V] = &args->v,
      [CLATTNI_O] = &args->o,
      [CLATTNI_LSE] = &args->lse,
      [CLATTNI_SCORES] = &args->scores,
      [CLATTNI_MAX_LOGIT] = &args->max_logit,
      [CLATTNI_BIAS] = &args->bias,
      [CLATTNI_KEEP_MASK] = &args->keep_mask,
      [CLATTNI_BLOCK_MASK] = &args->block_mask,
      [CLATTNI_ALIBI_SLOPES] = &args->alibi_slopes,
      [CLATTNI_SINK] = &args->sink,
      [CLATTNI_PAGE_TABLE] = &args->page_table,
      [CLATTNI_HEAD_SCALE] = &args->head_scale,
      [CLATTNI_ADD_W] = &args->add_w,
      [CLATTNI_K_SCALE] = &args->k_scale,
      [CLATTNI_V_SCALE] = &args->v_scale,
      [CLATTNI_ROPE_COS] = &args->rope_cos,
      [CLATTNI_ROPE_SIN] = &args->rope_sin,
      [CLATTNI_POSITIONS_Q] = &args->positions_q,
      [CLATTNI_POSITIONS_K] = &args->positions_k,
  };
  return mems[slot];
}

static clattn_status check_alignment(const clattn_problem *problem, clattni_slot slot, const clattni_placed *at,
                                     uint64_t offset, clattn_error *error) {
  const uint64_t promise = slot <= CLATTNI_O ? problem->alignment : 0;
  if (offset % at->element != 0)
    return clattni_fail(error, CLATTN_ERROR_ALIGNMENT,
                        "args.%s.offset %llu is not a multiple of the element's %llu bytes", at->name,
                        (unsigned long long)offset, (unsigned long long)at->element);
  if (promise == 0)
    return CLATTN_SUCCESS;
  if (at->begin % promise != 0)
    return clattni_fail(error, CLATTN_ERROR_ALIGNMENT,
                        "args.%s starts at byte %llu, which breaks the promised alignment of %llu", at->name,
                        (unsigned long long)at->begin, (unsigned long long)promise);
  for (int axis = 0; axis < 3; ++axis)
    if (at->shape[axis] > 1 && (uint64_t)at->stride[axis] % promise != 0)
      return clattni_fail(error, CLATTN_ERROR_ALIGNMENT,
                          "args.%s: stride[%d] of %lld bytes breaks the promised alignment of %llu", at->name, axis,
                          (long long)at->stride[axis], (unsigned long long)promise);
  return CLATTN_SUCCESS;
}

/* One tensor.  *count grows when it takes part in the overlap check. */
static clattn_status check_slot(const clattn_plan *plan, clattni_slot slot, clattni_checked *checked,
                                clattni_placed *list, int *count) {
  const clattn_problem *problem = &plan->problem;
  const clattn_mem *mem = clattni_slot_mem(checked->args, slot);
  clattn_error *error = checked->args->error;
  clattni_placed *at = &list[*count];
  int64_t elements = 0;
  uint64_t usable = 0;
  if (!clattni_slot_used(problem, slot))
    return clattni_is_absent(mem)
               ? CLATTN_SUCCESS
               : clattni_fail(error, CLATTN_ERROR_TENSOR_UNUSED, "args.%s is given, but the problem does not use it",
                              clattni_slot_name(slot));
  memset(at, 0, sizeof(*at));
  at->element = clattni_slot_element_bytes(problem, slot);
  clattni_slot_shape(problem, &checked->sizes, slot, at->shape);
  clattni_slot_strides(problem, &checked->sizes, slot, at->stride);
  if (!clattni_extent(at->shape, at->stride, &elements) || clattni_slot_bytes(problem, slot, elements) < 0)
    return clattni_fail(error, CLATTN_ERROR_OVERFLOW, "the extent of %s does not fit in 63 bits",
                        clattni_slot_name(slot));
  if (elements == 0 && clattni_is_absent(mem)) /* OpenCL has no empty buffers to give */
    return CLATTN_SUCCESS;
  const clattn_status status =
      clattni_check_mem(plan->context, mem, clattni_slot_name(slot),
                        clattni_slot_is_output(slot) ? CL_MEM_READ_ONLY : CL_MEM_WRITE_ONLY, at, &usable, error);
  if (status != CLATTN_SUCCESS)
    return status;
  const uint64_t bytes = (uint64_t)clattni_slot_bytes(problem, slot, elements);
  if (bytes > usable)
    return clattni_fail(error, CLATTN_ERROR_BUFFER_TOO_SMALL,
                        "args.%s has %llu bytes from its offset on; its shape and strides reach %llu", at->name,
                        (unsigned long long)usable, (unsigned long long)bytes);
  for (int axis = 0; axis < 4; ++axis) /* strides that lead nowhere may be too large to count in bytes */
    at->stride[axis] = elements > 0 && at->shape[axis] > 1 ? clattni_slot_bytes(problem, slot, at->stride[axis]) : 0;
  if (clattni_slot_tensor(problem, slot)->dtype == CLATTN_I4) /* bytes of a row, 1 apart, not its elements */
    at->shape[3] = clattni_slot_bytes(problem, slot, at->shape[3]);
  at->end = at->begin + bytes;
  at->output = clattni_slot_is_output(slot);
  checked->buffer[slot] = mem->buffer;
  checked->bases.first[slot] = clattni_slot_index(problem, slot, mem->offset);
  if (bytes > 0)
    ++*count;
  return check_alignment(problem, slot, at, mem->offset, error);
}

static clattn_status check_workspace(const clattn_plan *plan, clattni_checked *checked, clattni_placed *list,
                                     int *count) {
  const clattn_mem *mem = &checked->args->workspace;
  clattn_error *error = checked->args->error;
  const uint64_t needed = plan->choice.workspace_bytes;
  clattni_placed *at = &list[*count];
  uint64_t usable = 0;
  if (clattni_is_absent(mem))
    return CLATTN_SUCCESS;
  memset(at, 0, sizeof(*at));
  const clattn_status status =
      clattni_check_mem(plan->context, mem, "workspace", CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY, at, &usable, error);
  if (status != CLATTN_SUCCESS)
    return status;
  if (usable < needed)
    return clattni_fail(error, CLATTN_ERROR_WORKSPACE_TOO_SMALL,
                        "args.workspace has %llu bytes from its offset on; the plan needs %llu",
                        (unsigned long long)usable, (unsigned long long)needed);
  if (mem->offset % 64 != 0)
    return clattni_fail(error, CLATTN_ERROR_ALIGNMENT, "args.workspace.offset %llu is not a multiple of 64",
                        (unsigned long long)mem->offset);
  at->end = at->begin + needed;
  at->element = needed;
  at->output = 1;
  for (int axis = 0; axis < 4; ++axis)
    at->shape[axis] = 1;
  checked->bases.workspace = (int64_t)(mem->offset / 4);
  if (needed > 0)
    ++*count;
  return CLATTN_SUCCESS;
}

clattn_status clattni_enqueue_check(const clattn_plan *plan, cl_command_queue queue, const clattn_args *args,
                                    clattni_checked *checked) {
  clattni_placed list[CLATTNI_SLOTS + CLATTNI_ARRAYS + 11]; /* hook, scalars, workspace */
  int count = 0;
  memset(checked, 0, sizeof(*checked));
  checked->args = args;
  clattn_status status = check_header(args);
  if (status != CLATTN_SUCCESS)
    return status;
  status = check_sizes(&plan->problem, args, &checked->sizes);
  if (status == CLATTN_SUCCESS)
    status = check_unused(&plan->problem, args);
  if (status == CLATTN_SUCCESS)
    status = clattni_check_arrays(&plan->problem, args, &checked->sizes);
  if (status == CLATTN_SUCCESS)
    status = check_scalars(plan, checked, list, &count);
  if (status == CLATTN_SUCCESS)
    status = clattni_check_queue(plan->context, queue, &checked->out_of_order, args->error);
  if (status == CLATTN_SUCCESS)
    status = check_device_arrays(plan, checked, list, &count);
  if (status == CLATTN_SUCCESS)
    status = check_hook(plan, checked, list, &count);
  for (int slot = 0; status == CLATTN_SUCCESS && slot < CLATTNI_SLOTS; ++slot)
    status = check_slot(plan, (clattni_slot)slot, checked, list, &count);
  if (status == CLATTN_SUCCESS)
    status = check_workspace(plan, checked, list, &count);
  if (status == CLATTN_SUCCESS)
    status = clattni_check_overlap(list, count, args->error);
  if (status != CLATTN_SUCCESS)
    return status;

  if (!clattni_layout_make(&plan->choice, &plan->problem, &checked->sizes, plan->choice.workspace_bytes,
                           &checked->layout))
    return clattni_fail(args->error, CLATTN_ERROR_INTERNAL,
                        "the plan's workspace of %llu bytes does not serve these sizes",
                        (unsigned long long)plan->choice.workspace_bytes);
  int on_device = 0;
  for (int array = 0; array < CLATTNI_ARRAYS; ++array)
    on_device |= clattni_array_of(args, array)->kind == CLATTN_ARRAY_DEVICE;
  clattni_launch_list_make(&plan->choice, &plan->problem, &checked->sizes, &checked->layout,
                           clattni_needs_entries(&plan->problem, args), on_device, checked->hook_on_device,
                           &checked->list);
  checked->hook_gather.to = checked->bases.workspace + checked->layout.hook;
  if (!checked->list.staged && checked->sizes.batch > 0) {
    cl_int word[CLATTN_ENTRY_WORDS];
    clattni_entry_of(plan, checked, 0, word);
    checked->bases.offset = word[CLATTN_ENTRY_OFFSET];
    checked->bases.prefix = word[CLATTN_ENTRY_PREFIX];
  }
  if (args->launch_events != NULL && args->num_launch_events == NULL)
    return clattni_fail(args->error, CLATTN_ERROR_NULL_POINTER, "args.launch_events needs args.num_launch_events");
  if (args->launch_events != NULL && args->launch_events_capacity < checked->list.count)
    return clattni_fail(args->error, CLATTN_ERROR_VALUE,
                        "args.launch_events_capacity is %u; there will be %lld launches", args->launch_events_capacity,
                        (long long)checked->list.count);
  return CLATTN_SUCCESS;
}
