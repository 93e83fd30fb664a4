/* SPDX-License-Identifier: Apache-2.0 */
#include "place.h"

#include "status.h"

int clattni_is_absent(const clattn_mem *mem) {
  return mem->kind == 0 && mem->reserved == 0 && mem->buffer == NULL && mem->offset == 0 && mem->bytes == 0;
}

clattn_status clattni_check_queue(const clattn_context *owner, cl_command_queue queue, int *out_of_order,
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
  if (context != owner->cl)
    return clattni_fail(error, CLATTN_ERROR_WRONG_CONTEXT, "the queue is of another cl_context than clattn's");
  if (device != owner->device)
    return clattni_fail(error, CLATTN_ERROR_WRONG_DEVICE, "the queue is on another device than clattn's");
  *out_of_order = (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) != 0;
  return CLATTN_SUCCESS;
}

clattn_status clattni_check_wait_list(const clattn_context *owner, cl_uint num_events, const cl_event *wait_list,
                                      clattn_error *error) {
  if ((num_events == 0) != (wait_list == NULL))
    return clattni_fail(error, CL_INVALID_EVENT_WAIT_LIST, "num_events is %u, but wait_list is %sNULL", num_events,
                        wait_list == NULL ? "" : "not ");
  for (cl_uint i = 0; i < num_events; ++i) {
    cl_context of = NULL;
    const cl_int code = clGetEventInfo(wait_list[i], CL_EVENT_CONTEXT, sizeof(of), &of, NULL);
    if (code != CL_SUCCESS)
      return clattni_fail(error, code, "asking event %u of wait_list for its context failed: %s", i,
                          clattn_status_text(code));
    if (of != owner->cl)
      return clattni_fail(error, CLATTN_ERROR_WRONG_CONTEXT,
                          "event %u of wait_list is of another cl_context than clattn's", i);
  }
  return CLATTN_SUCCESS;
}

clattn_status clattni_check_mem(const clattn_context *owner, const clattn_mem *mem, const char *name,
                                cl_mem_flags forbidden, clattni_placed *at, uint64_t *usable, clattn_error *error) {
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
  if (context != owner->cl)
    return clattni_fail(error, CLATTN_ERROR_WRONG_CONTEXT, "args.%s is of another cl_context than clattn's", name);
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
static uint64_t run_of(const clattni_placed *at, int inner, uint64_t *pitch) {
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
static int may_overlap(const clattni_placed *a, const clattni_placed *b) {
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

clattn_status clattni_check_overlap(const clattni_placed *list, int count, clattn_error *error) {
  for (int a = 0; a < count; ++a)
    for (int b = 0; b < count; ++b)
      if (a != b && list[a].output && may_overlap(&list[a], &list[b]))
        return clattni_fail(error, CLATTN_ERROR_OVERLAP,
                            "args.%s (bytes %llu to %llu) overlaps args.%s (bytes %llu to %llu) in one buffer",
                            list[a].name, (unsigned long long)list[a].begin, (unsigned long long)list[a].end - 1,
                            list[b].name, (unsigned long long)list[b].begin, (unsigned long long)list[b].end - 1);
  return CLATTN_SUCCESS;
}
