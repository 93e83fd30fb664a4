/* SPDX-License-Identifier: Apache-2.0 */
/* Queues, events and the order in which the stub driver lets commands "run". */
#include "stub_state.h"
#include <stdlib.h>
#include <string.h>

static stub_event *pending; /* in the order of enqueueing */
static cl_ulong now = 1000; /* simulated nanoseconds */

/* ---- queues ---- */

static cl_int make_queue(cl_context handle, cl_device_id device, cl_command_queue_properties properties,
                         stub_queue **out) {
  stub_context *const context = stub_find(handle, STUB_CONTEXT, "clCreateCommandQueue");
  if (!context)
    return CL_INVALID_CONTEXT;
  int found = 0;
  for (cl_uint i = 0; i < context->num_devices; ++i)
    found |= context->devices[i] == device;
  if (!found)
    return CL_INVALID_DEVICE;
  const cl_command_queue_properties known = CL_QUEUE_PROFILING_ENABLE | CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;
  if (properties & ~known)
    return CL_INVALID_VALUE;
  if ((properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) && !stub_set.out_of_order)
    return CL_INVALID_QUEUE_PROPERTIES;
  stub_queue *const queue = stub_new(STUB_QUEUE, sizeof *queue);
  if (!queue)
    return CL_OUT_OF_HOST_MEMORY;
  stub_hold(&context->base);
  queue->context = context;
  queue->device = device;
  queue->properties = properties;
  *out = queue;
  return CL_SUCCESS;
}

cl_command_queue STUB_API stub_clCreateCommandQueue(cl_context context, cl_device_id device,
                                                    cl_command_queue_properties properties, cl_int *code_out) {
  stub_queue *queue = NULL;
  cl_int code = stub_enter("clCreateCommandQueue");
  if (code == CL_SUCCESS)
    code = make_queue(context, device, properties, &queue);
  return stub_leave_object(queue, code, code_out);
}

cl_int STUB_API stub_clRetainCommandQueue(cl_command_queue queue) {
  cl_int code = stub_enter("clRetainCommandQueue");
  if (code == CL_SUCCESS)
    code = stub_retain(queue, STUB_QUEUE, CL_INVALID_COMMAND_QUEUE);
  return stub_leave(code);
}

cl_int STUB_API stub_clReleaseCommandQueue(cl_command_queue queue) {
  const cl_int code = stub_enter("clReleaseCommandQueue");
  const cl_int result = stub_release(queue, STUB_QUEUE, CL_INVALID_COMMAND_QUEUE);
  return stub_leave(code != CL_SUCCESS ? code : result);
}

static cl_int queue_info(cl_command_queue handle, cl_command_queue_info name, size_t capacity, void *out,
                         size_t *bytes) {
  const stub_queue *const queue = stub_find(handle, STUB_QUEUE, "clGetCommandQueueInfo");
  if (!queue)
    return CL_INVALID_COMMAND_QUEUE;
  const stub_context *const context = queue->context;
  const cl_uint refs = (cl_uint)queue->base.refs;
  switch (name) {
  case CL_QUEUE_CONTEXT:
    return stub_answer(&context, sizeof context, capacity, out, bytes);
  case CL_QUEUE_DEVICE:
    return stub_answer(&queue->device, sizeof queue->device, capacity, out, bytes);
  case CL_QUEUE_REFERENCE_COUNT:
    return stub_answer(&refs, sizeof refs, capacity, out, bytes);
  case CL_QUEUE_PROPERTIES:
    return stub_answer(&queue->properties, sizeof queue->properties, capacity, out, bytes);
  default:
    return CL_INVALID_VALUE;
  }
}

cl_int STUB_API stub_clGetCommandQueueInfo(cl_command_queue queue, cl_command_queue_info name, size_t capacity,
                                           void *out, size_t *bytes) {
  cl_int code = stub_enter("clGetCommandQueueInfo");
  if (code == CL_SUCCESS)
    code = queue_info(queue, name, capacity, out, bytes);
  return stub_leave(code);
}

/* ---- running ---- */

static void move_data(const stub_event *event) {
  unsigned char *const to = event->to_mem ? stub_mem_data(event->to_mem) : event->to_pointer;
  const unsigned char *const from = event->from_mem ? stub_mem_data(event->from_mem) : event->data;
  if (!to || !from)
    return;
  if (event->type == CL_COMMAND_FILL_BUFFER) {
    for (size_t i = 0; i < event->bytes; ++i)
      to[event->to_offset + i] = from[i % event->data_bytes];
  } else {
    memmove(to + event->to_offset, from + event->from_offset, event->bytes);
  }
}

static void call_back(stub_event *event) {
  while (event->callbacks) {
    stub_callback *const callback = event->callbacks;
    event->callbacks = callback->next;
    callback->status = event->status < 0 ? event->status : callback->type;
    stub_call_later(callback);
  }
}

static void let_go(stub_event *event) {
  for (size_t i = 0; i < event->num_kept; ++i)
    stub_drop(event->kept[i]);
  for (size_t i = 0; i < event->num_waits; ++i)
    stub_drop(&event->waits[i]->base);
  free(event->kept);
  free(event->waits);
  free(event->data);
  event->kept = NULL;
  event->waits = NULL;
  event->data = NULL;
  event->num_kept = event->num_waits = 0;
}

static void finish_event(stub_event *event) {
  event->status = CL_COMPLETE;
  for (size_t i = 0; i < event->num_waits; ++i)
    if (event->waits[i]->status < 0)
      event->status = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
  event->submitted = ++now;
  event->started = ++now;
  if (event->status == CL_COMPLETE) {
    if (event->type == CL_COMMAND_NDRANGE_KERNEL)
      now += stub_set.ndrange_ns;
    else
      move_data(event);
  }
  event->ended = ++now;
  let_go(event);
  call_back(event);
}

static int is_ready(const stub_event *event) {
  for (size_t i = 0; i < event->num_waits; ++i)
    if (event->waits[i]->status > CL_COMPLETE)
      return 0;
  const int in_order = (event->queue->properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) == 0;
  for (const stub_event *other = pending; other != event; other = other->next_pending)
    if (other->queue == event->queue && (in_order || event->after_all || other->base.id == event->barrier))
      return 0;
  return 1;
}

void stub_progress(void) {
  for (int more = 1; more;) {
    more = 0;
    for (stub_event **at = &pending; *at;) {
      stub_event *const event = *at;
      if (!is_ready(event)) {
        at = &event->next_pending;
        continue;
      }
      finish_event(event);
      *at = event->next_pending;
      stub_drop(&event->base);
      more = 1;
    }
  }
}

int stub_queue_idle(const stub_queue *queue) {
  for (const stub_event *event = pending; event; event = event->next_pending)
    if (!queue || event->queue == queue)
      return 0;
  return 1;
}

static void note_blocking(const char *what) {
  if (stub_set.forbid_blocking)
    stub_violation("%s: a call that blocks or flushes", what);
}

cl_int STUB_API stub_clFlush(cl_command_queue queue) {
  cl_int code = stub_enter("clFlush");
  note_blocking("clFlush");
  if (code == CL_SUCCESS && !stub_find(queue, STUB_QUEUE, "clFlush"))
    code = CL_INVALID_COMMAND_QUEUE;
  if (code == CL_SUCCESS)
    stub_progress();
  return stub_leave(code);
}

cl_int STUB_API stub_clFinish(cl_command_queue handle) {
  cl_int code = stub_enter("clFinish");
  note_blocking("clFinish");
  if (code == CL_SUCCESS) {
    const stub_queue *const queue = stub_find(handle, STUB_QUEUE, "clFinish");
    if (queue) {
      stub_progress();
      if (!stub_queue_idle(queue)) {
        stub_violation("clFinish: would wait for ever");
        code = CL_OUT_OF_RESOURCES;
      }
    } else {
      code = CL_INVALID_COMMAND_QUEUE;
    }
  }
  return stub_leave(code);
}

/* ---- events ---- */

void stub_destroy_event(stub_event *event) {
  let_go(event);
  while (event->callbacks) {
    stub_callback *const callback = event->callbacks;
    event->callbacks = callback->next;
    free(callback);
  }
  if (event->queue)
    stub_drop(&event->queue->base);
  stub_drop(&event->context->base);
}

cl_int stub_check_queue(const char *what, cl_command_queue handle, cl_uint num, const cl_event *list,
                        stub_queue **queue) {
  *queue = stub_find(handle, STUB_QUEUE, what);
  if (!*queue)
    return CL_INVALID_COMMAND_QUEUE;
  if ((num == 0) != (list == NULL)) {
    stub_violation("%s: %u events in a wait list that is %s", what, num, list ? "not NULL" : "NULL");
    return CL_INVALID_EVENT_WAIT_LIST;
  }
  if (num > STUB_MAX_WAITS) {
    stub_violation("%s: %u events are more than the stub takes", what, num);
    return CL_OUT_OF_RESOURCES;
  }
  for (cl_uint i = 0; i < num; ++i) {
    const stub_event *const event = stub_find(list[i], STUB_EVENT, what);
    if (!event)
      return CL_INVALID_EVENT_WAIT_LIST;
    if (event->context != (*queue)->context) {
      stub_violation("%s: event %u of the wait list is of another context", what, i);
      return CL_INVALID_CONTEXT;
    }
  }
  return CL_SUCCESS;
}

int stub_keep(stub_event *event, stub_object *object) {
  stub_object **const kept = realloc(event->kept, (event->num_kept + 1) * sizeof *kept);
  if (!kept)
    return 0;
  event->kept = kept;
  event->kept[event->num_kept++] = object;
  stub_hold(object);
  return 1;
}

cl_int stub_make_command(stub_queue *queue, cl_command_type type, cl_uint num, const cl_event *list, int after_all,
                         stub_event **event, stub_command **record) {
  stub_command *const command = stub_new_command();
  if (!command)
    return CL_OUT_OF_HOST_MEMORY;
  stub_event *const made = stub_new(STUB_EVENT, sizeof *made);
  if (!made) {
    stub_forget_command();
    return CL_OUT_OF_HOST_MEMORY;
  }
  stub_hold(&queue->base);
  stub_hold(&queue->context->base);
  made->base.id = stub_next_id();
  made->context = queue->context;
  made->queue = queue;
  made->type = type;
  made->status = CL_QUEUED;
  made->queued = ++now;
  made->after_all = after_all;
  made->barrier = queue->barrier;
  made->waits = num ? calloc(num, sizeof *made->waits) : NULL;
  if (num && !made->waits) {
    stub_abandon(made);
    return CL_OUT_OF_HOST_MEMORY;
  }
  for (cl_uint i = 0; i < num; ++i) {
    made->waits[made->num_waits++] = (stub_event *)(void *)list[i];
    stub_hold(&made->waits[i]->base);
    command->waits[i] = made->waits[i]->base.id;
  }
  command->id = made->base.id;
  command->type = type;
  command->queue = (cl_command_queue)(void *)queue;
  command->in_order = (queue->properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) == 0;
  command->barrier = queue->barrier;
  command->after_all = after_all;
  command->num_waits = num;
  *event = made;
  *record = command;
  return CL_SUCCESS;
}

void stub_abandon(stub_event *event) {
  stub_release(event, STUB_EVENT, CL_INVALID_EVENT);
  stub_forget_command();
}

cl_int stub_submit(stub_event *event, stub_command *record, cl_bool blocking, const char *what, cl_event *out) {
  record->has_event = out != NULL;
  if (event->type == CL_COMMAND_BARRIER)
    event->queue->barrier = event->base.id;
  event->next_pending = NULL;
  stub_event **end = &pending;
  while (*end)
    end = &(*end)->next_pending;
  *end = event;
  stub_hold(&event->base); /* pending */
  if (blocking) {
    stub_hold(&event->base);
    note_blocking(what);
  }
  if (out)
    *out = (cl_event)(void *)event;
  else
    stub_release(event, STUB_EVENT, CL_INVALID_EVENT);
  if (!stub_set.deferred || blocking)
    stub_progress();
  cl_int code = CL_SUCCESS;
  if (blocking) {
    if (event->status > CL_COMPLETE) {
      stub_violation("%s: would wait for ever", what);
      code = CL_OUT_OF_RESOURCES;
    } else if (event->status < 0) {
      code = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
    }
    stub_drop(&event->base);
  }
  return code;
}

cl_int STUB_API stub_clWaitForEvents(cl_uint num, const cl_event *list) {
  cl_int code = stub_enter("clWaitForEvents");
  note_blocking("clWaitForEvents");
  if (code == CL_SUCCESS && (num == 0 || !list))
    code = CL_INVALID_VALUE;
  for (cl_uint i = 0; code == CL_SUCCESS && i < num; ++i)
    if (!stub_find(list[i], STUB_EVENT, "clWaitForEvents"))
      code = CL_INVALID_EVENT;
  if (code == CL_SUCCESS)
    stub_progress();
  const int checked = code == CL_SUCCESS;
  for (cl_uint i = 0; checked && i < num; ++i) {
    const stub_event *const event = (const stub_event *)(const void *)list[i];
    if (event->status > CL_COMPLETE) {
      stub_violation("clWaitForEvents: would wait for ever");
      code = CL_OUT_OF_RESOURCES;
    } else if (event->status < 0 && code == CL_SUCCESS) {
      code = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
    }
  }
  return stub_leave(code);
}

static cl_int event_info(cl_event handle, cl_event_info name, size_t capacity, void *out, size_t *bytes) {
  const stub_event *const event = stub_find(handle, STUB_EVENT, "clGetEventInfo");
  if (!event)
    return CL_INVALID_EVENT;
  const stub_queue *const queue = event->queue;
  const stub_context *const context = event->context;
  const cl_uint refs = (cl_uint)event->base.refs;
  switch (name) {
  case CL_EVENT_COMMAND_QUEUE:
    return stub_answer(&queue, sizeof queue, capacity, out, bytes);
  case CL_EVENT_CONTEXT:
    return stub_answer(&context, sizeof context, capacity, out, bytes);
  case CL_EVENT_COMMAND_TYPE:
    return stub_answer(&event->type, sizeof event->type, capacity, out, bytes);
  case CL_EVENT_COMMAND_EXECUTION_STATUS:
    return stub_answer(&event->status, sizeof event->status, capacity, out, bytes);
  case CL_EVENT_REFERENCE_COUNT:
    return stub_answer(&refs, sizeof refs, capacity, out, bytes);
  default:
    return CL_INVALID_VALUE;
  }
}

cl_int STUB_API stub_clGetEventInfo(cl_event event, cl_event_info name, size_t capacity, void *out, size_t *bytes) {
  cl_int code = stub_enter("clGetEventInfo");
  if (code == CL_SUCCESS)
    code = event_info(event, name, capacity, out, bytes);
  return stub_leave(code);
}

static cl_int make_user_event(cl_context handle, stub_event **out) {
  stub_context *const context = stub_find(handle, STUB_CONTEXT, "clCreateUserEvent");
  if (!context)
    return CL_INVALID_CONTEXT;
  stub_event *const event = stub_new(STUB_EVENT, sizeof *event);
  if (!event)
    return CL_OUT_OF_HOST_MEMORY;
  stub_hold(&context->base);
  event->base.id = stub_next_id();
  event->context = context;
  event->type = CL_COMMAND_USER;
  event->status = CL_SUBMITTED;
  *out = event;
  return CL_SUCCESS;
}

cl_event STUB_API stub_clCreateUserEvent(cl_context context, cl_int *code_out) {
  stub_event *event = NULL;
  cl_int code = stub_enter("clCreateUserEvent");
  if (code == CL_SUCCESS)
    code = make_user_event(context, &event);
  return stub_leave_object(event, code, code_out);
}

static cl_int set_user_status(cl_event handle, cl_int status) {
  stub_event *const event = stub_find(handle, STUB_EVENT, "clSetUserEventStatus");
  if (!event || event->queue)
    return CL_INVALID_EVENT;
  if (status > CL_COMPLETE)
    return CL_INVALID_VALUE;
  if (event->status <= CL_COMPLETE) {
    stub_violation("clSetUserEventStatus: set twice");
    return CL_INVALID_OPERATION;
  }
  event->status = status;
  call_back(event);
  if (!stub_set.deferred)
    stub_progress();
  return CL_SUCCESS;
}

cl_int STUB_API stub_clSetUserEventStatus(cl_event event, cl_int status) {
  cl_int code = stub_enter("clSetUserEventStatus");
  if (code == CL_SUCCESS)
    code = set_user_status(event, status);
  return stub_leave(code);
}

cl_int STUB_API stub_clRetainEvent(cl_event event) {
  cl_int code = stub_enter("clRetainEvent");
  if (code == CL_SUCCESS)
    code = stub_retain(event, STUB_EVENT, CL_INVALID_EVENT);
  return stub_leave(code);
}

cl_int STUB_API stub_clReleaseEvent(cl_event event) {
  const cl_int code = stub_enter("clReleaseEvent");
  const cl_int result = stub_release(event, STUB_EVENT, CL_INVALID_EVENT);
  return stub_leave(code != CL_SUCCESS ? code : result);
}

static cl_int set_callback(cl_event handle, cl_int type, void(CL_CALLBACK *function)(cl_event, cl_int, void *),
                           void *user) {
  stub_event *const event = stub_find(handle, STUB_EVENT, "clSetEventCallback");
  if (!event)
    return CL_INVALID_EVENT;
  if (!function || type < CL_COMPLETE || type > CL_SUBMITTED)
    return CL_INVALID_VALUE;
  stub_callback *const callback = calloc(1, sizeof *callback);
  if (!callback)
    return CL_OUT_OF_HOST_MEMORY;
  callback->event_function = function;
  callback->handle = event;
  callback->user = user;
  callback->type = type;
  callback->next = event->callbacks;
  event->callbacks = callback;
  if (event->status <= CL_COMPLETE)
    call_back(event);
  return CL_SUCCESS;
}

cl_int STUB_API stub_clSetEventCallback(cl_event event, cl_int type,
                                        void(CL_CALLBACK *function)(cl_event, cl_int, void *), void *user) {
  cl_int code = stub_enter("clSetEventCallback");
  if (code == CL_SUCCESS)
    code = set_callback(event, type, function, user);
  return stub_leave(code);
}

static cl_int profiling_info(cl_event handle, cl_profiling_info name, size_t capacity, void *out, size_t *bytes) {
  const stub_event *const event = stub_find(handle, STUB_EVENT, "clGetEventProfilingInfo");
  if (!event)
    return CL_INVALID_EVENT;
  if (!event->queue || event->status != CL_COMPLETE || !(event->queue->properties & CL_QUEUE_PROFILING_ENABLE))
    return CL_PROFILING_INFO_NOT_AVAILABLE;
  switch (name) {
  case CL_PROFILING_COMMAND_QUEUED:
    return stub_answer(&event->queued, sizeof event->queued, capacity, out, bytes);
  case CL_PROFILING_COMMAND_SUBMIT:
    return stub_answer(&event->submitted, sizeof event->submitted, capacity, out, bytes);
  case CL_PROFILING_COMMAND_START:
    return stub_answer(&event->started, sizeof event->started, capacity, out, bytes);
  case CL_PROFILING_COMMAND_END:
    return stub_answer(&event->ended, sizeof event->ended, capacity, out, bytes);
  default:
    return CL_INVALID_VALUE;
  }
}

cl_int STUB_API stub_clGetEventProfilingInfo(cl_event event, cl_profiling_info name, size_t capacity, void *out,
                                             size_t *bytes) {
  cl_int code = stub_enter("clGetEventProfilingInfo");
  if (code == CL_SUCCESS)
    code = profiling_info(event, name, capacity, out, bytes);
  return stub_leave(code);
}
