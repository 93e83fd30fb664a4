/* SPDX-License-Identifier: Apache-2.0 */
/* Commands of the stub driver: data moves, kernels only leave a record. */
#include "stub_state.h"
#include <stdlib.h>
#include <string.h>

static stub_mem *find_region(const char *what, const stub_queue *queue, cl_mem handle, size_t offset, size_t bytes,
                             cl_int *code) {
  stub_mem *const mem = stub_find(handle, STUB_MEM, what);
  *code = CL_INVALID_MEM_OBJECT;
  if (!mem)
    return NULL;
  if (mem->context != queue->context) {
    stub_violation("%s: the buffer is of another context than the queue", what);
    *code = CL_INVALID_CONTEXT;
    return NULL;
  }
  if (bytes == 0 || offset > mem->bytes || bytes > mem->bytes - offset) {
    stub_violation("%s: %zu bytes at %zu in a buffer of %zu", what, bytes, offset, mem->bytes);
    *code = CL_INVALID_VALUE;
    return NULL;
  }
  *code = CL_SUCCESS;
  return mem;
}

typedef struct movement {
  const char *what;
  cl_command_type type;
  cl_command_queue queue;
  cl_bool blocking;
  cl_mem from, to;
  size_t from_offset, to_offset, bytes;
  const void *data; /* copied: bytes to write, or a pattern */
  size_t data_bytes;
  void *pointer;
} movement;

static cl_int move(const movement *m, cl_uint num, const cl_event *list, cl_event *out) {
  stub_queue *queue;
  stub_event *event;
  stub_command *record;
  stub_mem *from = NULL, *to = NULL;
  cl_int code = stub_check_queue(m->what, m->queue, num, list, &queue);
  if (code == CL_SUCCESS && m->from)
    from = find_region(m->what, queue, m->from, m->from_offset, m->bytes, &code);
  if (code == CL_SUCCESS && m->to)
    to = find_region(m->what, queue, m->to, m->to_offset, m->bytes, &code);
  if (code == CL_SUCCESS && ((!m->from && !m->data) || (!m->to && !m->pointer)))
    code = CL_INVALID_VALUE;
  if (code == CL_SUCCESS)
    code = stub_make_command(queue, m->type, num, list, 0, &event, &record);
  if (code != CL_SUCCESS)
    return code;
  event->from_mem = from;
  event->to_mem = to;
  event->from_offset = m->from_offset;
  event->to_offset = m->to_offset;
  event->bytes = m->bytes;
  event->to_pointer = m->pointer;
  event->data_bytes = m->data_bytes;
  event->data = m->data ? malloc(m->data_bytes) : NULL;
  if ((m->data && !event->data) || (from && !stub_keep(event, &from->base)) || (to && !stub_keep(event, &to->base))) {
    stub_abandon(event);
    return CL_OUT_OF_HOST_MEMORY;
  }
  if (m->data)
    memcpy(event->data, m->data, m->data_bytes);
  return stub_submit(event, record, m->blocking, m->what, out);
}

cl_int STUB_API stub_clEnqueueReadBuffer(cl_command_queue queue, cl_mem mem, cl_bool blocking, size_t offset,
                                         size_t bytes, void *pointer, cl_uint num, const cl_event *list,
                                         cl_event *event) {
  const movement m = {.what = "clEnqueueReadBuffer",
                      .type = CL_COMMAND_READ_BUFFER,
                      .queue = queue,
                      .blocking = blocking,
                      .from = mem,
                      .from_offset = offset,
                      .bytes = bytes,
                      .pointer = pointer};
  cl_int code = stub_enter(m.what);
  if (code == CL_SUCCESS)
    code = mem ? move(&m, num, list, event) : CL_INVALID_MEM_OBJECT;
  return stub_leave(code);
}

cl_int STUB_API stub_clEnqueueWriteBuffer(cl_command_queue queue, cl_mem mem, cl_bool blocking, size_t offset,
                                          size_t bytes, const void *pointer, cl_uint num, const cl_event *list,
                                          cl_event *event) {
  const movement m = {.what = "clEnqueueWriteBuffer",
                      .type = CL_COMMAND_WRITE_BUFFER,
                      .queue = queue,
                      .blocking = blocking,
                      .to = mem,
                      .to_offset = offset,
                      .bytes = bytes,
                      .data = pointer,
                      .data_bytes = bytes};
  cl_int code = stub_enter(m.what);
  if (code == CL_SUCCESS)
    code = mem ? move(&m, num, list, event) : CL_INVALID_MEM_OBJECT;
  return stub_leave(code);
}

cl_int STUB_API stub_clEnqueueFillBuffer(cl_command_queue queue, cl_mem mem, const void *pattern, size_t pattern_bytes,
                                         size_t offset, size_t bytes, cl_uint num, const cl_event *list,
                                         cl_event *event) {
  const movement m = {.what = "clEnqueueFillBuffer",
                      .type = CL_COMMAND_FILL_BUFFER,
                      .queue = queue,
                      .to = mem,
                      .to_offset = offset,
                      .bytes = bytes,
                      .data = pattern,
                      .data_bytes = pattern_bytes};
  cl_int code = stub_enter(m.what);
  const int power = pattern_bytes != 0 && pattern_bytes <= 128 && (pattern_bytes & (pattern_bytes - 1)) == 0;
  if (code == CL_SUCCESS && (!power || offset % pattern_bytes || bytes % pattern_bytes)) {
    stub_violation("clEnqueueFillBuffer: a pattern of %zu bytes for %zu bytes at %zu", pattern_bytes, bytes, offset);
    code = CL_INVALID_VALUE;
  }
  if (code == CL_SUCCESS)
    code = mem ? move(&m, num, list, event) : CL_INVALID_MEM_OBJECT;
  return stub_leave(code);
}

cl_int STUB_API stub_clEnqueueCopyBuffer(cl_command_queue queue, cl_mem from, cl_mem to, size_t from_offset,
                                         size_t to_offset, size_t bytes, cl_uint num, const cl_event *list,
                                         cl_event *event) {
  const movement m = {.what = "clEnqueueCopyBuffer",
                      .type = CL_COMMAND_COPY_BUFFER,
                      .queue = queue,
                      .from = from,
                      .to = to,
                      .from_offset = from_offset,
                      .to_offset = to_offset,
                      .bytes = bytes};
  cl_int code = stub_enter(m.what);
  if (code == CL_SUCCESS)
    code = from && to ? move(&m, num, list, event) : CL_INVALID_MEM_OBJECT;
  return stub_leave(code);
}

static cl_int plain(const char *what, cl_command_queue handle, cl_command_type type, cl_uint count, const cl_mem *mems,
                    int after_all, cl_bool blocking, cl_uint num, const cl_event *list, cl_event *out) {
  stub_queue *queue;
  stub_event *event;
  stub_command *record;
  cl_int code = stub_check_queue(what, handle, num, list, &queue);
  for (cl_uint i = 0; code == CL_SUCCESS && i < count; ++i)
    if (!find_region(what, queue, mems[i], 0, 1, &code))
      return code;
  if (code == CL_SUCCESS)
    code = stub_make_command(queue, type, num, list, after_all, &event, &record);
  if (code != CL_SUCCESS)
    return code;
  for (cl_uint i = 0; i < count; ++i)
    if (!stub_keep(event, (stub_object *)(void *)mems[i])) {
      stub_abandon(event);
      return CL_OUT_OF_HOST_MEMORY;
    }
  return stub_submit(event, record, blocking, what, out);
}

void *STUB_API stub_clEnqueueMapBuffer(cl_command_queue handle, cl_mem mem, cl_bool blocking, cl_map_flags flags,
                                       size_t offset, size_t bytes, cl_uint num, const cl_event *list, cl_event *event,
                                       cl_int *code_out) {
  const char *const what = "clEnqueueMapBuffer";
  unsigned char *data = NULL;
  (void)flags;
  cl_int code = stub_enter(what);
  if (code == CL_SUCCESS) {
    stub_queue *queue;
    code = stub_check_queue(what, handle, num, list, &queue);
    stub_mem *const found = code == CL_SUCCESS ? find_region(what, queue, mem, offset, bytes, &code) : NULL;
    data = found ? stub_mem_data(found) : NULL;
    if (found && !data)
      code = CL_MAP_FAILURE;
    if (code == CL_SUCCESS)
      code = plain(what, handle, CL_COMMAND_MAP_BUFFER, 1, &mem, 0, blocking, num, list, event);
    if (code == CL_SUCCESS) {
      data += offset;
      ++found->maps;
    }
  }
  return stub_leave_object(data, code, code_out);
}

cl_int STUB_API stub_clEnqueueUnmapMemObject(cl_command_queue queue, cl_mem mem, void *pointer, cl_uint num,
                                             const cl_event *list, cl_event *event) {
  const char *const what = "clEnqueueUnmapMemObject";
  cl_int code = stub_enter(what);
  if (code == CL_SUCCESS) {
    stub_mem *const found = stub_find(mem, STUB_MEM, what);
    if (!found)
      code = CL_INVALID_MEM_OBJECT;
    else if (!pointer || found->maps == 0)
      code = CL_INVALID_VALUE;
    else
      code = plain(what, queue, CL_COMMAND_UNMAP_MEM_OBJECT, 1, &mem, 0, CL_FALSE, num, list, event);
    if (code == CL_SUCCESS)
      --found->maps;
  }
  return stub_leave(code);
}

cl_int STUB_API stub_clEnqueueMigrateMemObjects(cl_command_queue queue, cl_uint count, const cl_mem *mems,
                                                cl_mem_migration_flags flags, cl_uint num, const cl_event *list,
                                                cl_event *event) {
  const char *const what = "clEnqueueMigrateMemObjects";
  (void)flags;
  cl_int code = stub_enter(what);
  if (code == CL_SUCCESS && (count == 0 || !mems))
    code = CL_INVALID_VALUE;
  if (code == CL_SUCCESS)
    code = plain(what, queue, CL_COMMAND_MIGRATE_MEM_OBJECTS, count, mems, 0, CL_FALSE, num, list, event);
  return stub_leave(code);
}

cl_int STUB_API stub_clEnqueueMarkerWithWaitList(cl_command_queue queue, cl_uint num, const cl_event *list,
                                                 cl_event *event) {
  cl_int code = stub_enter("clEnqueueMarkerWithWaitList");
  if (code == CL_SUCCESS)
    code =
        plain("clEnqueueMarkerWithWaitList", queue, CL_COMMAND_MARKER, 0, NULL, num == 0, CL_FALSE, num, list, event);
  return stub_leave(code);
}

cl_int STUB_API stub_clEnqueueBarrierWithWaitList(cl_command_queue queue, cl_uint num, const cl_event *list,
                                                  cl_event *event) {
  cl_int code = stub_enter("clEnqueueBarrierWithWaitList");
  if (code == CL_SUCCESS)
    code =
        plain("clEnqueueBarrierWithWaitList", queue, CL_COMMAND_BARRIER, 0, NULL, num == 0, CL_FALSE, num, list, event);
  return stub_leave(code);
}

/* ---- kernels ---- */

static cl_int check_range(const stub_kernel *kernel, cl_uint dims, const size_t *global, const size_t *local) {
  const char *const name = kernel->signature.name;
  if (dims < 1 || dims > 3) {
    stub_violation("clEnqueueNDRangeKernel: %s in %u dimensions", name, dims);
    return CL_INVALID_WORK_DIMENSION;
  }
  if (!global) {
    stub_violation("clEnqueueNDRangeKernel: %s without a global size", name);
    return CL_INVALID_GLOBAL_WORK_SIZE;
  }
  size_t group = 1;
  const size_t most = stub_set.kernel_work_group ? stub_set.kernel_work_group : stub_set.max_work_group;
  for (cl_uint d = 0; d < dims; ++d) {
    if (global[d] == 0) {
      stub_violation("clEnqueueNDRangeKernel: %s has a global size of 0 in dimension %u", name, d);
      return CL_INVALID_GLOBAL_WORK_SIZE;
    }
    if (!local)
      continue;
    if (local[d] == 0 || local[d] > stub_set.max_work_item[d]) {
      stub_violation("clEnqueueNDRangeKernel: %s has a local size of %zu in dimension %u, the device allows %zu", name,
                     local[d], d, stub_set.max_work_item[d]);
      return CL_INVALID_WORK_ITEM_SIZE;
    }
    if (global[d] % local[d]) {
      stub_violation("clEnqueueNDRangeKernel: %s: %zu work-items are no multiple of %zu", name, global[d], local[d]);
      return CL_INVALID_WORK_GROUP_SIZE;
    }
    group *= local[d];
  }
  for (cl_uint d = 0; d < 3 && kernel->signature.has_group; ++d)
    if (!local || kernel->signature.group[d] != (d < dims ? local[d] : 1)) {
      stub_violation("clEnqueueNDRangeKernel: %s requires groups of %zu x %zu x %zu", name, kernel->signature.group[0],
                     kernel->signature.group[1], kernel->signature.group[2]);
      return CL_INVALID_WORK_GROUP_SIZE;
    }
  if (group > most) {
    stub_violation("clEnqueueNDRangeKernel: %s has %zu work-items in a group, the device allows %zu", name, group,
                   most);
    return CL_INVALID_WORK_GROUP_SIZE;
  }
  return CL_SUCCESS;
}

static cl_int check_args(const stub_kernel *kernel) {
  const char *const name = kernel->signature.name;
  const cl_uint count = kernel->signature.known ? kernel->signature.num_params : kernel->num_args;
  size_t bytes = 0;
  cl_ulong local_bytes = kernel->signature.local_bytes + stub_set.kernel_local_bytes;
  for (cl_uint i = 0; i < count; ++i) {
    const stub_arg *const arg = &kernel->args[i];
    if (!arg->set) {
      stub_violation("clEnqueueNDRangeKernel: argument %u of %s was never set", i, name);
      return CL_INVALID_KERNEL_ARGS;
    }
    if (arg->mem && !stub_find(arg->mem, STUB_MEM, "clEnqueueNDRangeKernel"))
      return CL_INVALID_KERNEL_ARGS;
    local_bytes += arg->is_local ? arg->size : 0;
    bytes += arg->is_local ? sizeof(void *) : arg->size;
  }
  if (local_bytes > stub_set.local_bytes) {
    stub_violation("clEnqueueNDRangeKernel: %s needs %llu bytes of local memory, the device has %llu", name,
                   (unsigned long long)local_bytes, (unsigned long long)stub_set.local_bytes);
    return CL_OUT_OF_RESOURCES;
  }
  if (bytes > stub_set.max_parameter_bytes) {
    stub_violation("clEnqueueNDRangeKernel: %s has %zu bytes of arguments, the device allows %zu", name, bytes,
                   stub_set.max_parameter_bytes);
    return CL_OUT_OF_RESOURCES;
  }
  return CL_SUCCESS;
}

static cl_int launch(cl_command_queue queue_handle, cl_kernel kernel_handle, cl_uint dims, const size_t *offset,
                     const size_t *global, const size_t *local, cl_uint num, const cl_event *list, cl_event *out) {
  const char *const what = "clEnqueueNDRangeKernel";
  stub_queue *queue;
  stub_event *event;
  stub_command *record;
  cl_int code = stub_check_queue(what, queue_handle, num, list, &queue);
  if (code != CL_SUCCESS)
    return code;
  stub_kernel *const kernel = stub_find(kernel_handle, STUB_KERNEL, what);
  if (!kernel)
    return CL_INVALID_KERNEL;
  if (kernel->program->context != queue->context) {
    stub_violation("%s: %s is of another context than the queue", what, kernel->signature.name);
    return CL_INVALID_CONTEXT;
  }
  code = check_range(kernel, dims, global, local);
  if (code == CL_SUCCESS)
    code = check_args(kernel);
  if (code == CL_SUCCESS)
    code = stub_make_command(queue, CL_COMMAND_NDRANGE_KERNEL, num, list, 0, &event, &record);
  if (code != CL_SUCCESS)
    return code;
  int kept = stub_keep(event, &kernel->base);
  for (cl_uint i = 0; kept && i < kernel->num_args; ++i)
    if (kernel->args[i].mem)
      kept = stub_keep(event, (stub_object *)(void *)kernel->args[i].mem);
  if (!kept) {
    stub_abandon(event);
    return CL_OUT_OF_HOST_MEMORY;
  }
  memcpy(record->kernel, kernel->signature.name, sizeof record->kernel);
  record->dims = dims;
  record->has_local = local != NULL;
  record->has_offset = offset != NULL;
  for (cl_uint d = 0; d < dims; ++d) {
    record->global[d] = global[d];
    record->local[d] = local ? local[d] : 0;
  }
  record->num_args = kernel->num_args;
  memcpy(record->args, kernel->args, sizeof record->args);
  kernel->has_setter = 0;
  return stub_submit(event, record, CL_FALSE, what, out);
}

cl_int STUB_API stub_clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dims,
                                            const size_t *offset, const size_t *global, const size_t *local,
                                            cl_uint num, const cl_event *list, cl_event *event) {
  cl_int code = stub_enter("clEnqueueNDRangeKernel");
  stub_meet();
  if (code == CL_SUCCESS)
    code = launch(queue, kernel, dims, offset, global, local, num, list, event);
  return stub_leave(code);
}
