/* SPDX-License-Identifier: Apache-2.0 */
#include "counted_calls.h"

#ifdef __APPLE__
#include <OpenCL/cl.h>
#else
#include <CL/cl.h>
#endif

#include "next_call.h"

counted_calls counted;

CL_API_ENTRY cl_int CL_API_CALL clFinish(cl_command_queue command_queue) {
  cl_int(CL_API_CALL * next)(cl_command_queue) = NULL;
  find_next("clFinish", &next);
  counted.waits++;
  return next(command_queue);
}

CL_API_ENTRY cl_int CL_API_CALL clWaitForEvents(cl_uint num_events, const cl_event *event_list) {
  cl_int(CL_API_CALL * next)(cl_uint, const cl_event *) = NULL;
  find_next("clWaitForEvents", &next);
  counted.waits++;
  return next(num_events, event_list);
}

CL_API_ENTRY cl_mem CL_API_CALL clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size, void *host_ptr,
                                               cl_int *errcode_ret) {
  cl_mem(CL_API_CALL * next)(cl_context, cl_mem_flags, size_t, void *, cl_int *) = NULL;
  find_next("clCreateBuffer", &next);
  counted.buffers++;
  counted.copied += host_ptr != NULL ? size : 0;
  return next(context, flags, size, host_ptr, errcode_ret);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueReadBuffer(cl_command_queue command_queue, cl_mem buffer,
                                                    cl_bool blocking_read, size_t offset, size_t size, void *ptr,
                                                    cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
                                                    cl_event *event) {
  cl_int(CL_API_CALL * next)(cl_command_queue, cl_mem, cl_bool, size_t, size_t, void *, cl_uint, const cl_event *,
                             cl_event *) = NULL;
  find_next("clEnqueueReadBuffer", &next);
  counted.waits += blocking_read != CL_FALSE;
  return next(command_queue, buffer, blocking_read, offset, size, ptr, num_events_in_wait_list, event_wait_list, event);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueWriteBuffer(cl_command_queue command_queue, cl_mem buffer,
                                                     cl_bool blocking_write, size_t offset, size_t size,
                                                     const void *ptr, cl_uint num_events_in_wait_list,
                                                     const cl_event *event_wait_list, cl_event *event) {
  cl_int(CL_API_CALL * next)(cl_command_queue, cl_mem, cl_bool, size_t, size_t, const void *, cl_uint, const cl_event *,
                             cl_event *) = NULL;
  find_next("clEnqueueWriteBuffer", &next);
  counted.waits += blocking_write != CL_FALSE;
  counted.copied += size;
  return next(command_queue, buffer, blocking_write, offset, size, ptr, num_events_in_wait_list, event_wait_list,
              event);
}

CL_API_ENTRY void *CL_API_CALL clEnqueueMapBuffer(cl_command_queue command_queue, cl_mem buffer, cl_bool blocking_map,
                                                  cl_map_flags map_flags, size_t offset, size_t size,
                                                  cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
                                                  cl_event *event, cl_int *errcode_ret) {
  void *(CL_API_CALL * next)(cl_command_queue, cl_mem, cl_bool, cl_map_flags, size_t, size_t, cl_uint, const cl_event *,
                             cl_event *, cl_int *) = NULL;
  find_next("clEnqueueMapBuffer", &next);
  counted.waits += blocking_map != CL_FALSE;
  counted.copied += map_flags != CL_MAP_READ ? size : 0;
  return next(command_queue, buffer, blocking_map, map_flags, offset, size, num_events_in_wait_list, event_wait_list,
              event, errcode_ret);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueNDRangeKernel(cl_command_queue command_queue, cl_kernel kernel,
                                                       cl_uint work_dim, const size_t *global_work_offset,
                                                       const size_t *global_work_size, const size_t *local_work_size,
                                                       cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
                                                       cl_event *event) {
  cl_int(CL_API_CALL * next)(cl_command_queue, cl_kernel, cl_uint, const size_t *, const size_t *, const size_t *,
                             cl_uint, const cl_event *, cl_event *) = NULL;
  find_next("clEnqueueNDRangeKernel", &next);
  counted.launches++;
  return next(command_queue, kernel, work_dim, global_work_offset, global_work_size, local_work_size,
              num_events_in_wait_list, event_wait_list, event);
}
