/* SPDX-License-Identifier: Apache-2.0 */
#include "clattn.h"

#include <stdio.h>
#include <string.h>

#include "device.h"
#include "place.h"
#include "status.h"

enum { PART_O, PART_LSE, O, LSE, TENSORS, LOCAL = 64, MOST_GROUPS = 1 << 14, RANGES_PER_CORE = 64 };

/* Arguments that are good. */
typedef struct checked {
  const clattn_merge_args *args;
  int with_o, with_lse;
  int64_t v_dim;          /* 1 without o */
  int64_t stride[2];      /* of PART_O and PART_LSE, in elements */
  cl_mem buffer[TENSORS]; /* NULL: not used */
  cl_long first[TENSORS]; /* element index of the tensor's start in its buffer */
} checked;

void clattn_merge_args_init(clattn_merge_args *args) {
  if (args == NULL)
    return;
  memset(args, 0, sizeof(*args));
  args->struct_size = sizeof(*args);
}

static clattn_status check_sizes(checked *c) {
  const clattn_merge_args *args = c->args;
  clattn_error *error = args->error;
  for (size_t i = 0; i < sizeof(args->reserved) / sizeof(args->reserved[0]); ++i)
    if (args->reserved[i] != 0)
      return clattni_fail(error, CLATTN_ERROR_RESERVED, "clattn_merge_args.reserved[%zu] is %u, not 0", i,
                          args->reserved[i]);
  if (args->parts < 1)
    return clattni_fail(error, CLATTN_ERROR_SHAPE, "args.parts is %lld: it must be >= 1", (long long)args->parts);
  if (args->rows < 0)
    return clattni_fail(error, CLATTN_ERROR_SHAPE, "args.rows is %lld: it must be >= 0", (long long)args->rows);
  if (args->v_dim < c->with_o)
    return clattni_fail(error, CLATTN_ERROR_SHAPE, "args.v_dim is %lld: it must be >= %d", (long long)args->v_dim,
                        c->with_o);
  c->v_dim = c->with_o ? args->v_dim : 1;
  if (args->rows > INT64_MAX / (int64_t)sizeof(float) / c->v_dim)
    return clattni_fail(error, CLATTN_ERROR_OVERFLOW, "rows %lld of v_dim %lld: their bytes do not fit in 63 bits",
                        (long long)args->rows, (long long)c->v_dim);
  return CLATTN_SUCCESS;
}

static clattn_status check_stride(const char *name, int64_t given, int64_t contiguous, int64_t parts, int64_t *stride,
                                  clattn_error *error) {
  *stride = given != 0 ? given : contiguous;
  if (*stride < contiguous)
    return clattni_fail(error, CLATTN_ERROR_STRIDE, "args.%s is %lld: it must be 0 or at least a part's %lld elements",
                        name, (long long)given, (long long)contiguous);
  if (parts > 1 && *stride > (INT64_MAX / (int64_t)sizeof(float) - contiguous) / (parts - 1))
    return clattni_fail(error, CLATTN_ERROR_OVERFLOW, "args.%s %lld: the bytes of %lld parts do not fit in 63 bits",
                        name, (long long)*stride, (long long)parts);
  return CLATTN_SUCCESS;
}

/* One tensor of `parts` runs of `run` elements.  *count grows when it takes part in the overlap check. */
static clattn_status check_tensor(const clattn_context *context, int which, const clattn_mem *mem, int64_t parts,
                                  int64_t run, int64_t stride, checked *c, clattni_placed *list, int *count) {
  static const char *const names[TENSORS] = {"part_o", "part_lse", "o", "lse"};
  clattn_error *error = c->args->error;
  clattni_placed *at = &list[*count];
  uint64_t usable = 0;
  if (run == 0 && clattni_is_absent(mem)) /* OpenCL has no empty buffers to give */
    return CLATTN_SUCCESS;
  memset(at, 0, sizeof(*at));
  const clattn_status status = clattni_check_mem(context, mem, names[which],
                                                 which >= O ? CL_MEM_READ_ONLY : CL_MEM_WRITE_ONLY, at, &usable, error);
  if (status != CLATTN_SUCCESS)
    return status;
  at->element = sizeof(float);
  if (mem->offset % at->element != 0)
    return clattni_fail(error, CLATTN_ERROR_ALIGNMENT,
                        "args.%s.offset %llu is not a multiple of the element's %llu bytes", at->name,
                        (unsigned long long)mem->offset, (unsigned long long)at->element);
  const uint64_t bytes = run > 0 ? (uint64_t)((parts - 1) * stride + run) * at->element : 0;
  if (bytes > usable)
    return clattni_fail(error, CLATTN_ERROR_BUFFER_TOO_SMALL,
                        "args.%s has %llu bytes from its offset on; its shape and stride reach %llu", at->name,
                        (unsigned long long)usable, (unsigned long long)bytes);
  at->shape[0] = at->shape[1] = 1;
  at->shape[2] = parts;
  at->shape[3] = run;
  if (parts > 1) /* a stride that leads nowhere may be too large to count in bytes */
    at->stride[2] = stride * (int64_t)at->element;
  at->stride[3] = (int64_t)at->element;
  at->end = at->begin + bytes;
  at->output = which >= O;
  c->buffer[which] = mem->buffer;
  c->first[which] = (cl_long)(mem->offset / at->element);
  if (bytes > 0)
    ++*count;
  return CLATTN_SUCCESS;
}

static clattn_status check(const clattn_context *context, cl_command_queue queue, const clattn_merge_args *args,
                           checked *c) {
  clattn_error *error = args->error;
  clattni_placed list[TENSORS];
  int count = 0, out_of_order = 0;
  memset(c, 0, sizeof(*c));
  c->args = args;
  c->with_o = !clattni_is_absent(&args->o);
  c->with_lse = !clattni_is_absent(&args->lse);
  clattn_status status = check_sizes(c);
  if (status != CLATTN_SUCCESS)
    return status;
  const int64_t run = args->rows * c->v_dim;
  if (!c->with_o && !c->with_lse && args->rows > 0)
    return clattni_fail(error, CLATTN_ERROR_TENSOR_MISSING, "neither args.o nor args.lse is given");
  if (c->with_o)
    status = check_stride("part_stride_o", args->part_stride_o, run, args->parts, &c->stride[PART_O], error);
  if (status == CLATTN_SUCCESS)
    status =
        check_stride("part_stride_lse", args->part_stride_lse, args->rows, args->parts, &c->stride[PART_LSE], error);
  if (status == CLATTN_SUCCESS)
    status = clattni_check_queue(context, queue, &out_of_order, error); /* one launch is right on either kind */
  if (status == CLATTN_SUCCESS && c->with_o)
    status = check_tensor(context, PART_O, &args->part_o, args->parts, run, c->stride[PART_O], c, list, &count);
  if (status == CLATTN_SUCCESS)
    status =
        check_tensor(context, PART_LSE, &args->part_lse, args->parts, args->rows, c->stride[PART_LSE], c, list, &count);
  if (status == CLATTN_SUCCESS && c->with_o)
    status = check_tensor(context, O, &args->o, 1, run, 0, c, list, &count);
  if (status == CLATTN_SUCCESS && c->with_lse)
    status = check_tensor(context, LSE, &args->lse, 1, args->rows, 0, c, list, &count);
  return status == CLATTN_SUCCESS ? clattni_check_overlap(list, count, error) : status;
}

/* How the units of work (see kernels/merge.cl) are dealt out.  A CPU's cores take ranges of neighbours, on other
 * devices neighbours are computed side by side. */
typedef struct range {
  cl_long units_per_row, units, first, step, count;
  size_t global, local;
} range;

static int wants_lanes(const clattn_device_info *device) {
  return (device->type & CL_DEVICE_TYPE_CPU) != 0 || device->max_work_group < LOCAL;
}

static int lanes_of(const clattn_context *context) {
  return wants_lanes(&context->info) ? clattni_lanes(&context->info, context->width) : 1;
}

static void deal(const clattn_context *context, const checked *c, range *out) {
  const clattn_device_info *device = &context->info;
  out->units_per_row = (c->v_dim - 1) / lanes_of(context) + 1;
  out->units = c->args->rows * out->units_per_row;
  if (wants_lanes(device)) {
    const cl_long cores = device->compute_units > 0 ? device->compute_units : 1, ranges = cores * RANGES_PER_CORE;
    out->count = (out->units - 1) / ranges + 1;
    out->first = out->count;
    out->step = 1;
    out->local = 1;
    out->global = (size_t)((out->units - 1) / out->count + 1);
  } else {
    const cl_long groups = (out->units - 1) / LOCAL + 1;
    out->local = LOCAL;
    out->global = (size_t)(groups < MOST_GROUPS ? groups : MOST_GROUPS) * LOCAL;
    out->first = 1;
    out->step = (cl_long)out->global;
    out->count = (out->units - 1) / out->step + 1;
  }
}

static cl_int set_arguments(cl_kernel kernel, const checked *c, const range *dealt) {
  const cl_long numbers[] = {c->first[PART_O],  c->first[PART_LSE],  c->first[O], c->first[LSE],        c->args->parts,
                             c->stride[PART_O], c->stride[PART_LSE], c->v_dim,    dealt->units_per_row, dealt->units,
                             dealt->first,      dealt->step,         dealt->count};
  cl_int code = CL_SUCCESS;
  for (cl_uint i = 0; i < TENSORS && code == CL_SUCCESS; ++i)
    code = clSetKernelArg(kernel, i, sizeof(cl_mem), &c->buffer[i]);
  for (cl_uint i = 0; i < sizeof(numbers) / sizeof(numbers[0]) && code == CL_SUCCESS; ++i)
    code = clSetKernelArg(kernel, TENSORS + i, sizeof(cl_long), &numbers[i]);
  return code;
}

clattn_status clattn_merge(clattn_context *context, cl_command_queue queue, const clattn_merge_args *args,
                           cl_uint num_events, const cl_event *wait_list, cl_event *event) {
  static const char *const names[] = {"clattn_merge"};
  clattni_program *program = NULL;
  clattni_kernel_set *set = NULL;
  checked c;
  range dealt;
  char options[32];
  double seconds = 0;
  cl_int code = CL_SUCCESS;
  if (event != NULL)
    *event = NULL;
  if (args == NULL)
    return CLATTN_ERROR_NULL_POINTER;
  if (args->struct_size != sizeof(*args))
    return CLATTN_ERROR_STRUCT_SIZE; /* error may lie elsewhere in another release's struct */
  clattni_clear(args->error);
  if (context == NULL || queue == NULL)
    return clattni_fail(args->error, CLATTN_ERROR_NULL_POINTER, "%s is NULL", context == NULL ? "context" : "queue");
  clattn_status status = clattni_check_wait_list(context, num_events, wait_list, args->error);
  if (status == CLATTN_SUCCESS)
    status = check(context, queue, args, &c);
  if (status != CLATTN_SUCCESS)
    return status;
  if (args->rows == 0) {
    if (event != NULL)
      code = clEnqueueMarkerWithWaitList(queue, num_events, wait_list, event);
    return code == CL_SUCCESS
               ? CLATTN_SUCCESS
               : clattni_fail(args->error, code, "clEnqueueMarkerWithWaitList failed: %s", clattn_status_text(code));
  }

  snprintf(options, sizeof(options), "-DCLATTN_LANES=%d", lanes_of(context));
  status = clattni_program_get(&context->programs, "merge", options, NULL, names, 1, &program, &seconds, args->error);
  if (status != CLATTN_SUCCESS)
    return status;
  set = clattni_program_lend(&context->programs, program, &status);
  if (set == NULL)
    return clattni_fail(args->error, status, "making kernels failed: %s", clattn_status_text(status));
  deal(context, &c, &dealt);
  code = set_arguments(set->kernel[0], &c, &dealt);
  if (code == CL_SUCCESS)
    code = clEnqueueNDRangeKernel(queue, set->kernel[0], 1, NULL, &dealt.global, &dealt.local, num_events, wait_list,
                                  event);
  if (code == CL_SUCCESS)
    clattni_program_launched(program);
  clattni_program_return(program, set);
  return code == CL_SUCCESS
             ? CLATTN_SUCCESS
             : clattni_fail(args->error, code, "enqueuing the merge failed: %s", clattn_status_text(code));
}
