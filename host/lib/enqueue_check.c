/* SPDX-License-Identifier: Apache-2.0 */
#include "enqueue.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "status.h"

/* A tensor, or the workspace, as bytes of the buffer that owns them. */
typedef struct placed {
  const char *name;
  cl_mem root; /* the parent of a sub-buffer, else the buffer */
  uint64_t begin, end;
  int64_t shape[4], stride[4]; /* strides in bytes */
  uint64_t element;
  int output;
} placed;

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

static int is_absent(const clattn_mem *mem) {
  return mem->kind == 0 && mem->reserved == 0 && mem->buffer == NULL && mem->offset == 0 && mem->bytes == 0;
}

/* Nothing but perhaps a kind is filled in. */
static int is_blank(const clattn_ints *ints) {
  return ints->count == 0 && ints->host == NULL && is_absent(&ints->device);
}

/* Tensors of features that this release refuses in the problem, so a plan never uses them. */
static clattn_status check_unused(const clattn_args *args) {
#define UNUSED_TENSOR(field)                                                                                           \
  { #field, offsetof(clattn_args, field) }
  static const struct {
    const char *name;
    size_t offset;
  } tensors[] = {
      UNUSED_TENSOR(block_mask), UNUSED_TENSOR(alibi_slopes), UNUSED_TENSOR(sink),        UNUSED_TENSOR(head_scale),
      UNUSED_TENSOR(add_w),      UNUSED_TENSOR(k_scale),      UNUSED_TENSOR(v_scale),     UNUSED_TENSOR(page_table),
      UNUSED_TENSOR(rope_cos),   UNUSED_TENSOR(rope_sin),     UNUSED_TENSOR(positions_q), UNUSED_TENSOR(positions_k),
      UNUSED_TENSOR(d_o),        UNUSED_TENSOR(d_lse),        UNUSED_TENSOR(d_q),         UNUSED_TENSOR(d_k),
      UNUSED_TENSOR(d_v),        UNUSED_TENSOR(d_bias),       UNUSED_TENSOR(d_sink)};
#undef UNUSED_TENSOR
  for (size_t i = 0; i < sizeof(tensors) / sizeof(tensors[0]); ++i) {
    const clattn_mem *mem = (const clattn_mem *)(const void *)((const char *)args + tensors[i].offset);
    if (!is_absent(mem))
      return clattni_fail(args->error, CLATTN_ERROR_TENSOR_UNUSED, "args.%s is given, but the problem does not use it",
                          tensors[i].name);
  }
  for (int i = 0; i < 4; ++i)
    if (!is_absent(&args->hook_buffer[i]) || args->hook_scalar[i].kind != CLATTN_SCALAR_PLAN ||
        args->hook_scalar[i].value != 0 || !is_absent(&args->hook_scalar[i].device))
      return clattni_fail(args->error, CLATTN_ERROR_TENSOR_UNUSED,
                          "args.hook_buffer[%d] or hook_scalar[%d] is given, but the problem has no hook", i, i);
  const struct {
    const char *name;
    const clattn_ints *ints;
  } arrays[] = {
      {"prefix", &args->prefix}, {"cu_seqlens_q", &args->cu_seqlens_q}, {"cu_seqlens_k", &args->cu_seqlens_k}};
  for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); ++i)
    if (arrays[i].ints->kind != CLATTN_ARRAY_NONE || !is_blank(arrays[i].ints))
      return clattni_fail(args->error, CLATTN_ERROR_TENSOR_UNUSED, "args.%s is given, but the problem does not use it",
                          arrays[i].name);
  if (args->dropout_seed != 0 || args->dropout_offset != 0)
    return clattni_fail(args->error, CLATTN_ERROR_TENSOR_UNUSED,
                        "args.dropout_seed or dropout_offset is given, but the problem has no dropout");
  return CLATTN_SUCCESS;
}

/* wanted: 0 not allowed, 1 required, 2 optional; a single entry serves all when `one` is set. */
static clattn_status check_ints(const char *name, const clattn_ints *ints, int wanted, int one, int64_t batch,
                                clattn_error *error) {
  if (ints->kind > CLATTN_ARRAY_DEVICE)
    return clattni_fail(error, CLATTN_ERROR_ENUM, "args.%s.kind is %u, no CLATTN_ARRAY_ value", name, ints->kind);
  if (ints->kind == CLATTN_ARRAY_NONE && !is_blank(ints))
    return clattni_fail(error, CLATTN_ERROR_TENSOR_UNUSED, "args.%s is filled in, but its kind is CLATTN_ARRAY_NONE",
                        name);
  if (ints->kind == CLATTN_ARRAY_NONE)
    return wanted == 1 ? clattni_fail(error, CLATTN_ERROR_TENSOR_MISSING, "the problem needs args.%s", name)
                       : CLATTN_SUCCESS;
  if (wanted == 0)
    return clattni_fail(error, CLATTN_ERROR_TENSOR_UNUSED, "args.%s is given, but the problem does not use it", name);
  if (ints->kind == CLATTN_ARRAY_DEVICE)
    return clattni_fail(error, CLATTN_ERROR_NOT_SUPPORTED, "args.%s on the device is not supported yet", name);
  if (ints->count != batch && !(one && ints->count == 1))
    return clattni_fail(error, CLATTN_ERROR_LENGTH, "args.%s has %u entries, the batch is %lld", name, ints->count,
                        (long long)batch);
  if (!is_absent(&ints->device))
    return clattni_fail(error, CLATTN_ERROR_TENSOR_UNUSED, "args.%s.device is given, but its kind is CLATTN_ARRAY_HOST",
                        name);
  if (ints->host == NULL && ints->count > 0)
    return clattni_fail(error, CLATTN_ERROR_NULL_POINTER, "args.%s.host is NULL", name);
  return CLATTN_SUCCESS;
}

static clattn_status check_range(const char *name, const clattn_ints *ints, int64_t most, clattn_error *error) {
  for (uint32_t i = 0; ints->kind == CLATTN_ARRAY_HOST && i < ints->count; ++i)
    if (ints->host[i] < 0 || ints->host[i] > most)
      return clattni_fail(error, CLATTN_ERROR_LENGTH, "args.%s[%u] is %d: it must be from 0 to %lld", name, i,
                          ints->host[i], (long long)most);
  return CLATTN_SUCCESS;
}

static clattn_status check_lengths(const clattn_problem *problem, const clattn_args *args, const clattni_sizes *sizes) {
  clattn_error *error = args->error;
  const int offsets = problem->offset_mode == CLATTN_OFFSET_PER_BATCH ? 1
                      : problem->offset_mode == CLATTN_OFFSET_VALUE   ? 2
                                                                      : 0;
  clattn_status status = check_ints("q_lengths", &args->q_lengths, problem->q_length_mode == CLATTN_LENGTH_PER_BATCH, 0,
                                    sizes->batch, error);
  if (status == CLATTN_SUCCESS)
    status = check_ints("k_lengths", &args->k_lengths, problem->k_length_mode == CLATTN_LENGTH_PER_BATCH, 0,
                        sizes->batch, error);
  if (status == CLATTN_SUCCESS)
    status = check_ints("q_offsets", &args->q_offsets, offsets, offsets == 2, sizes->batch, error);
  if (status == CLATTN_SUCCESS)
    status = check_range("q_lengths", &args->q_lengths, sizes->q_len, error);
  if (status == CLATTN_SUCCESS)
    status = check_range("k_lengths", &args->k_lengths, sizes->k_len, error);
  return status;
}

static clattn_status one_scalar(const char *name, const clattn_scalar *scalar, float plan_value, float *out,
                                clattn_error *error) {
  *out = plan_value;
  if (scalar->kind > CLATTN_SCALAR_DEVICE)
    return clattni_fail(error, CLATTN_ERROR_ENUM, "args.%s.kind is %u, no CLATTN_SCALAR_ value", name, scalar->kind);
  if (scalar->kind == CLATTN_SCALAR_DEVICE)
    return clattni_fail(error, CLATTN_ERROR_NOT_SUPPORTED, "args.%s on the device is not supported yet", name);
  if (scalar->kind == CLATTN_SCALAR_PLAN && scalar->value != 0)
    return clattni_fail(error, CLATTN_ERROR_VALUE, "args.%s.value is %g, but its kind is CLATTN_SCALAR_PLAN", name,
                        (double)scalar->value);
  if (!is_absent(&scalar->device))
    return clattni_fail(error, CLATTN_ERROR_TENSOR_UNUSED,
                        "args.%s.device is given, but its kind is not "
                        "CLATTN_SCALAR_DEVICE",
                        name);
  if (scalar->kind == CLATTN_SCALAR_HOST) {
    *out = scalar->value;
    if (!isfinite(*out))
      return clattni_fail(error, CLATTN_ERROR_VALUE, "args.%s is %g: it must be finite", name, (double)*out);
  }
  return CLATTN_SUCCESS;
}

static clattn_status check_scalars(const clattn_problem *problem, const clattn_args *args, clattni_bases *bases) {
  clattn_status status = one_scalar("scale", &args->scale, problem->scale, &bases->scale, args->error);
  if (status == CLATTN_SUCCESS)
    status = one_scalar("softcap", &args->softcap, problem->softcap, &bases->softcap, args->error);
  if (status == CLATTN_SUCCESS && args->softcap.kind == CLATTN_SCALAR_HOST &&
      (!(problem->softcap > 0) || !(bases->softcap > 0)))
    status = clattni_fail(args->error, CLATTN_ERROR_VALUE,
                          "args.softcap %g: it must be > 0, and the problem must have a softcap (it has %g)",
                          (double)bases->softcap, (double)problem->softcap);
  return status;
}

static clattn_status check_queue(const clattn_plan *plan, cl_command_queue queue, int *out_of_order,
                                 clattn_error *error) {
  cl_context context = NULL;
  cl_device_id device = NULL;
  cl_command_queue_properties properties = 0;
  cl_int code = clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof(context), &context, NULL);
  if (code == CL_SUCCESS)
    code = clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof(device), &device, NULL);
  if (code == CL_SUCCESS)
    code = clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, sizeof(properties), &properties, NULL);
  if (code != CL_SUCCESS)
    return clattni_fail(error, code, "asking the queue for its context, device and properties failed: %s",
                        clattn_status_text(code));
  if (context != plan->context->cl)
    return clattni_fail(error, CLATTN_ERROR_WRONG_CONTEXT, "the queue is of another cl_context than the plan");
  if (device != plan->context->device)
    return clattni_fail(error, CLATTN_ERROR_WRONG_DEVICE, "the queue is on another device than the plan");
  *out_of_order = (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) != 0;
  return CLATTN_SUCCESS;
}

/* Finds a clattn_mem's buffer and its owner; `usable` becomes the bytes from its offset on.  forbidden: the access flag
 * that would keep kernels from using it. */
static clattn_status check_mem(const clattn_plan *plan, const clattn_mem *mem, const char *name, cl_mem_flags forbidden,
                               placed *at, uint64_t *usable, clattn_error *error) {
  size_t size = 0, sub_offset = 0;
  cl_context context = NULL;
  cl_mem parent = NULL;
  cl_mem_object_type type = 0;
  cl_mem_flags flags = 0;
  if (mem->kind == CLATTN_MEM_SVM || mem->kind == CLATTN_MEM_USM)
    return clattni_fail(error, CLATTN_ERROR_NOT_SUPPORTED, "args.%s: SVM and USM memory are not supported yet", name);
  if (mem->kind != CLATTN_MEM_BUFFER)
    return clattni_fail(error, CLATTN_ERROR_ENUM, "args.%s.kind is %u, no CLATTN_MEM_ value", name, mem->kind);
  if (mem->reserved != 0)
    return clattni_fail(error, CLATTN_ERROR_RESERVED, "args.%s.reserved is %u, not 0", name, mem->reserved);
  if (mem->buffer == NULL)
    return clattni_fail(error, CLATTN_ERROR_TENSOR_MISSING, "the problem needs args.%s", name);
  const struct {
    cl_mem_info what;
    size_t size;
    void *value;
  } facts[] = {{CL_MEM_TYPE, sizeof(type), &type},
               {CL_MEM_SIZE, sizeof(size), &size},
               {CL_MEM_CONTEXT, sizeof(context), &context},
               {CL_MEM_FLAGS, sizeof(flags), &flags},
               {CL_MEM_ASSOCIATED_MEMOBJECT, sizeof(parent), &parent}};
  for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); ++i) {
    const cl_int code = clGetMemObjectInfo(mem->buffer, facts[i].what, facts[i].size, facts[i].value, NULL);
    if (code != CL_SUCCESS)
      return clattni_fail(error, code, "asking the buffer of args.%s about itself failed: %s", name,
                          clattn_status_text(code));
    if (type != CL_MEM_OBJECT_BUFFER)
      return clattni_fail(error, CL_INVALID_MEM_OBJECT, "args.%s is an image or a pipe, not a buffer", name);
  }
  if (parent != NULL) {
    const cl_int code = clGetMemObjectInfo(mem->buffer, CL_MEM_OFFSET, sizeof(sub_offset), &sub_offset, NULL);
    if (code != CL_SUCCESS)
      return clattni_fail(error, code, "asking the buffer of args.%s for its offset failed: %s", name,
                          clattn_status_text(code));
  }
  if (context != plan->context->cl)
    return clattni_fail(error, CLATTN_ERROR_WRONG_CONTEXT, "args.%s is of another cl_context than the plan", name);
  if (flags & forbidden)
    return clattni_fail(error, CL_INVALID_MEM_OBJECT, "args.%s is in a buffer that kernels may not %s (%s)", name,
                        (flags & forbidden) & CL_MEM_READ_ONLY ? "write" : "read",
                        (flags & forbidden) & CL_MEM_READ_ONLY ? "CL_MEM_READ_ONLY" : "CL_MEM_WRITE_ONLY");
  if (mem->offset > size || mem->bytes > size - mem->offset)
    return clattni_fail(error, CLATTN_ERROR_BUFFER_TOO_SMALL,
                        "args.%s: offset %llu and bytes %llu reach beyond the buffer's %zu", name,
                        (unsigned long long)mem->offset, (unsigned long long)mem->bytes, size);
  *usable = mem->bytes != 0 ? mem->bytes : size - mem->offset;
  at->name = name;
  at->root = parent != NULL ? parent : mem->buffer;
  at->begin = sub_offset + mem->offset;
  return CLATTN_SUCCESS;
}

static const clattn_mem *slot_mem(const clattn_args *args, clattni_slot slot) {
  switch (slot) {
  case CLATTNI_Q:
    return &args->q;
  case CLATTNI_K:
    return &args->k;
  case CLATTNI_V:
    return &args->v;
  case CLATTNI_O:
    return &args->o;
  case CLATTNI_LSE:
    return &args->lse;
  case CLATTNI_SCORES:
    return &args->scores;
  case CLATTNI_MAX_LOGIT:
    return &args->max_logit;
  case CLATTNI_BIAS:
    return &args->bias;
  default:
    return &args->keep_mask;
  }
}

static clattn_status check_alignment(const clattn_problem *problem, clattni_slot slot, const placed *at,
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
static clattn_status check_slot(const clattn_plan *plan, clattni_slot slot, clattni_checked *checked, placed *list,
                                int *count) {
  const clattn_problem *problem = &plan->problem;
  const clattn_mem *mem = slot_mem(checked->args, slot);
  clattn_error *error = checked->args->error;
  placed *at = &list[*count];
  int64_t elements = 0;
  uint64_t usable = 0;
  if (!clattni_slot_used(problem, slot))
    return is_absent(mem) ? CLATTN_SUCCESS
                          : clattni_fail(error, CLATTN_ERROR_TENSOR_UNUSED,
                                         "args.%s is given, but the problem does not use it", clattni_slot_name(slot));
  memset(at, 0, sizeof(*at));
  at->element = clattni_slot_element_bytes(problem, slot);
  clattni_slot_shape(problem, &checked->sizes, slot, at->shape);
  clattni_slot_strides(problem, &checked->sizes, slot, at->stride);
  if (!clattni_extent(at->shape, at->stride, &elements) || elements > INT64_MAX / (int64_t)at->element)
    return clattni_fail(error, CLATTN_ERROR_OVERFLOW, "the extent of %s does not fit in 63 bits",
                        clattni_slot_name(slot));
  if (elements == 0 && is_absent(mem)) /* OpenCL has no empty buffers to give */
    return CLATTN_SUCCESS;
  const clattn_status status =
      check_mem(plan, mem, clattni_slot_name(slot), clattni_slot_is_output(slot) ? CL_MEM_READ_ONLY : CL_MEM_WRITE_ONLY,
                at, &usable, error);
  if (status != CLATTN_SUCCESS)
    return status;
  const uint64_t bytes = (uint64_t)elements * at->element;
  if (bytes > usable)
    return clattni_fail(error, CLATTN_ERROR_BUFFER_TOO_SMALL,
                        "args.%s has %llu bytes from its offset on; its shape and strides reach %llu", at->name,
                        (unsigned long long)usable, (unsigned long long)bytes);
  for (int axis = 0; axis < 4; ++axis) /* strides that lead nowhere may be too large to count in bytes */
    at->stride[axis] = elements > 0 && at->shape[axis] > 1 ? at->stride[axis] * (int64_t)at->element : 0;
  at->end = at->begin + bytes;
  at->output = clattni_slot_is_output(slot);
  checked->buffer[slot] = mem->buffer;
  checked->bases.first[slot] = (int64_t)(mem->offset / at->element);
  if (bytes > 0)
    ++*count;
  return check_alignment(problem, slot, at, mem->offset, error);
}

static clattn_status check_workspace(const clattn_plan *plan, clattni_checked *checked, placed *list, int *count) {
  const clattn_mem *mem = &checked->args->workspace;
  clattn_error *error = checked->args->error;
  const uint64_t needed = plan->choice.workspace_bytes;
  placed *at = &list[*count];
  uint64_t usable = 0;
  if (is_absent(mem))
    return CLATTN_SUCCESS;
  memset(at, 0, sizeof(*at));
  const clattn_status status =
      check_mem(plan, mem, "workspace", CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY, at, &usable, error);
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

static uint64_t greatest_divisor(uint64_t a, uint64_t b) {
  while (b != 0) {
    const uint64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/* Splits the axes, shortest stride first: `inner` of them make a run of bytes, the strides of the others fold into
 * *pitch.  Every element then lies in a run that starts a multiple of the pitch after the first one. */
static uint64_t run_of(const placed *at, int inner, uint64_t *pitch) {
  int taken[4] = {0};
  uint64_t run = at->element;
  for (int n = 0; n < 4; ++n) {
    int next = -1;
    for (int axis = 0; axis < 4; ++axis)
      if (!taken[axis] && at->shape[axis] > 1 && at->stride[axis] > 0 &&
          (next < 0 || at->stride[axis] < at->stride[next]))
        next = axis;
    if (next < 0)
      break;
    taken[next] = 1;
    if (n < inner)
      run += (uint64_t)((at->shape[next] - 1) * at->stride[next]);
    else
      *pitch = greatest_divisor(*pitch, (uint64_t)at->stride[next]);
  }
  return run;
}

/* 1 unless the two provably share no byte: ranges apart, or runs apart within a pitch that all other strides keep. */
static int may_overlap(const placed *a, const placed *b) {
  if (a->root != b->root || a->begin >= b->end || b->begin >= a->end)
    return 0;
  for (int inner_a = 0; inner_a < 4; ++inner_a)
    for (int inner_b = 0; inner_b < 4; ++inner_b) {
      uint64_t pitch = 0;
      const uint64_t run_a = run_of(a, inner_a, &pitch), run_b = run_of(b, inner_b, &pitch);
      if (pitch == 0 || run_a > pitch || run_b > pitch - run_a)
        continue;
      /* On a circle of `pitch` bytes: b starts this far behind a's start. */
      const uint64_t gap = (b->begin % pitch + pitch - a->begin % pitch) % pitch;
      if (gap >= run_a && gap + run_b <= pitch)
        return 0;
    }
  return 1;
}

static clattn_status check_overlap(const placed *list, int count, clattn_error *error) {
  for (int a = 0; a < count; ++a)
    for (int b = 0; b < count; ++b)
      if (a != b && list[a].output && may_overlap(&list[a], &list[b]))
        return clattni_fail(error, CLATTN_ERROR_OVERLAP,
                            "args.%s (bytes %llu to %llu) overlaps args.%s (bytes %llu to %llu) in one buffer",
                            list[a].name, (unsigned long long)list[a].begin, (unsigned long long)list[a].end - 1,
                            list[b].name, (unsigned long long)list[b].begin, (unsigned long long)list[b].end - 1);
  return CLATTN_SUCCESS;
}

/* Whether lengths and offset differ between batch entries, so that kernels must look them up. */
static int needs_staging(const clattn_problem *problem, const clattn_args *args) {
  return problem->q_length_mode == CLATTN_LENGTH_PER_BATCH || problem->k_length_mode == CLATTN_LENGTH_PER_BATCH ||
         (args->q_offsets.kind == CLATTN_ARRAY_HOST && args->q_offsets.count > 1);
}

void clattni_entry_of(const clattn_plan *plan, const clattni_checked *checked, int64_t b, cl_int entry[3]) {
  const clattn_args *args = checked->args;
  const clattn_ints *offsets = &args->q_offsets;
  const int64_t q_len = args->q_lengths.kind == CLATTN_ARRAY_HOST ? args->q_lengths.host[b] : checked->sizes.q_len;
  const int64_t k_len = args->k_lengths.kind == CLATTN_ARRAY_HOST ? args->k_lengths.host[b] : checked->sizes.k_len;
  const int given = offsets->kind == CLATTN_ARRAY_HOST && offsets->count > 0;
  entry[0] = (cl_int)q_len;
  entry[1] = (cl_int)k_len;
  entry[2] = (cl_int)clattni_offset(&plan->problem, q_len, k_len, given,
                                    given ? offsets->host[offsets->count > 1 ? b : 0] : 0);
}

clattn_status clattni_enqueue_check(const clattn_plan *plan, cl_command_queue queue, const clattn_args *args,
                                    clattni_checked *checked) {
  placed list[CLATTNI_SLOTS + 1];
  int count = 0;
  memset(checked, 0, sizeof(*checked));
  checked->args = args;
  clattn_status status = check_header(args);
  if (status != CLATTN_SUCCESS)
    return status;
  status = check_sizes(&plan->problem, args, &checked->sizes);
  if (status == CLATTN_SUCCESS)
    status = check_unused(args);
  if (status == CLATTN_SUCCESS)
    status = check_lengths(&plan->problem, args, &checked->sizes);
  if (status == CLATTN_SUCCESS)
    status = check_scalars(&plan->problem, args, &checked->bases);
  if (status == CLATTN_SUCCESS)
    status = check_queue(plan, queue, &checked->out_of_order, args->error);
  for (int slot = 0; status == CLATTN_SUCCESS && slot < CLATTNI_SLOTS; ++slot)
    status = check_slot(plan, (clattni_slot)slot, checked, list, &count);
  if (status == CLATTN_SUCCESS)
    status = check_workspace(plan, checked, list, &count);
  if (status == CLATTN_SUCCESS)
    status = check_overlap(list, count, args->error);
  if (status != CLATTN_SUCCESS)
    return status;

  if (!clattni_layout_make(&plan->choice, &plan->problem, &checked->sizes, plan->choice.workspace_bytes,
                           &checked->layout))
    return clattni_fail(args->error, CLATTN_ERROR_INTERNAL,
                        "the plan's workspace of %llu bytes does not serve these sizes",
                        (unsigned long long)plan->choice.workspace_bytes);
  clattni_launch_list_make(&plan->choice, &plan->problem, &checked->sizes, &checked->layout,
                           needs_staging(&plan->problem, args), &checked->list);
  if (!checked->list.staged && checked->sizes.batch > 0) {
    cl_int entry[3];
    clattni_entry_of(plan, checked, 0, entry);
    checked->bases.offset = entry[2];
  }
  if (args->launch_events != NULL && args->num_launch_events == NULL)
    return clattni_fail(args->error, CLATTN_ERROR_NULL_POINTER, "args.launch_events needs args.num_launch_events");
  if (args->launch_events != NULL && args->launch_events_capacity < checked->list.count)
    return clattni_fail(args->error, CLATTN_ERROR_VALUE,
                        "args.launch_events_capacity is %u; there will be %lld launches", args->launch_events_capacity,
                        (long long)checked->list.count);
  return CLATTN_SUCCESS;
}
