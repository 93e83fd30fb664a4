/* SPDX-License-Identifier: Apache-2.0 */
/* Built kernels, and launches one after the other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn.h"
#include "nn_kernels_embedded.h"

enum { NAME_BYTES = 48, KERNELS_MOST = 8, OPTIONS_BYTES = 320 };

/* A built file with its options.  Setting arguments is not thread-safe, so they are set and enqueued under a lock: some
 * microseconds. */
typedef struct nn_program {
  struct nn_program *next;
  const char *file;
  char options[OPTIONS_BYTES];
  cl_program built;
  char names[KERNELS_MOST][NAME_BYTES];
  cl_kernel kernels[KERNELS_MOST];
  int count;
} nn_program;

static void release_program(nn_program *program) {
  if (program == NULL)
    return;
  for (int i = 0; i < program->count; ++i)
    clReleaseKernel(program->kernels[i]);
  if (program->built != NULL)
    clReleaseProgram(program->built);
  free(program);
}

void nn_programs_release(clattn_nn *nn) {
  while (nn->programs != NULL) {
    nn_program *program = nn->programs;
    nn->programs = program->next;
    release_program(program);
  }
}

static void give_log(const clattn_nn *nn, cl_program program, clattn_error *error) {
  size_t length = 0;
  if (error == NULL || error->struct_size != sizeof(*error) ||
      clGetProgramBuildInfo(program, nn->device, CL_PROGRAM_BUILD_LOG, 0, NULL, &length) != CL_SUCCESS || length == 0)
    return;
  char *log = malloc(length + 1);
  if (log != NULL &&
      clGetProgramBuildInfo(program, nn->device, CL_PROGRAM_BUILD_LOG, length, log, NULL) == CL_SUCCESS) {
    log[length] = 0;
    error->build_log_length = strlen(log);
    if (error->build_log != NULL && error->build_log_capacity > 0)
      (void)snprintf(error->build_log, error->build_log_capacity, "%s", log);
  }
  free(log);
}

static clattn_status build(const clattn_nn *nn, nn_program *program, clattn_error *error) {
  const clattni_kernel_file *file = NULL;
  char options[OPTIONS_BYTES + 32];
  cl_int code = CL_SUCCESS;
  for (size_t i = 0; i < clattni_kernel_file_count; ++i)
    if (strcmp(clattni_kernel_files[i].name, program->file) == 0)
      file = &clattni_kernel_files[i];
  if (file == NULL)
    return nn_fail(error, CLATTN_ERROR_INTERNAL, "there is no kernel file '%s'", program->file);
  const char *source = (const char *)file->source;
  const size_t size = file->size;
  program->built = clCreateProgramWithSource(nn->cl, 1, &source, &size, &code);
  if (code != CL_SUCCESS) {
    program->built = NULL;
    return nn_fail(error, code, "clCreateProgramWithSource for kernels/%s.cl failed: %s", program->file,
                   clattn_status_text(code));
  }
  (void)snprintf(options, sizeof(options), "-cl-std=CL1.2 %s", program->options);
  code = clBuildProgram(program->built, 1, &nn->device, options, NULL, NULL);
  if (code != CL_SUCCESS) {
    give_log(nn, program->built, error);
    return nn_fail(error, code, "building kernels/%s.cl with '%s' failed: %s", program->file, options,
                   clattn_status_text(code));
  }
  return CLATTN_SUCCESS;
}

/* Under nn->lock.  NULL with *status on failure. */
static nn_program *find_program(clattn_nn *nn, const char *file, const char *options, clattn_status *status,
                                clattn_error *error) {
  nn_program *program = NULL;
  *status = CLATTN_SUCCESS;
  for (program = nn->programs; program != NULL; program = program->next)
    if (strcmp(program->file, file) == 0 && strcmp(program->options, options) == 0)
      return program;
  if (strlen(options) >= OPTIONS_BYTES) {
    *status = nn_fail(error, CLATTN_ERROR_INTERNAL, "options '%s' are too long", options);
    return NULL;
  }
  program = calloc(1, sizeof(*program));
  if (program == NULL) {
    *status = nn_fail(error, CLATTN_ERROR_OUT_OF_MEMORY, "no host memory for a program");
    return NULL;
  }
  program->file = file;
  memcpy(program->options, options, strlen(options) + 1);
  *status = build(nn, program, error);
  if (*status != CLATTN_SUCCESS) {
    release_program(program);
    return NULL;
  }
  program->next = nn->programs;
  nn->programs = program;
  return program;
}

static clattn_status find_kernel(nn_program *program, const char *name, cl_kernel *out, clattn_error *error) {
  cl_int code = CL_SUCCESS;
  for (int i = 0; i < program->count; ++i)
    if (strcmp(program->names[i], name) == 0) {
      *out = program->kernels[i];
      return CLATTN_SUCCESS;
    }
  if (program->count == KERNELS_MOST || strlen(name) >= NAME_BYTES)
    return nn_fail(error, CLATTN_ERROR_INTERNAL, "no room for kernel '%s'", name);
  cl_kernel kernel = clCreateKernel(program->built, name, &code);
  if (code != CL_SUCCESS)
    return nn_fail(error, code, "making kernel %s of kernels/%s.cl failed: %s", name, program->file,
                   clattn_status_text(code));
  memcpy(program->names[program->count], name, strlen(name) + 1);
  program->kernels[program->count++] = kernel;
  *out = kernel;
  return CLATTN_SUCCESS;
}

clattn_status nn_prepare(clattn_nn *nn, const char *file, const char *options, clattn_error *error) {
  clattn_status status = CLATTN_SUCCESS;
  clattni_mutex_lock(&nn->lock);
  (void)find_program(nn, file, options, &status, error);
  clattni_mutex_unlock(&nn->lock);
  return status;
}

clattn_status nn_enqueue(nn_stream *stream, const nn_launch *launch, clattn_error *error) {
  clattn_status status = CLATTN_SUCCESS;
  cl_kernel kernel = NULL;
  cl_event storage = NULL;
  cl_int code = CL_SUCCESS;
  clattn_nn *nn = stream->nn;
  clattni_mutex_lock(&nn->lock);
  nn_program *const program = find_program(nn, launch->file, launch->options, &status, error);
  if (program != NULL)
    status = find_kernel(program, launch->kernel, &kernel, error);
  if (status != CLATTN_SUCCESS)
    goto done;
  for (cl_uint i = 0; i < launch->num_args && code == CL_SUCCESS; ++i)
    code = clSetKernelArg(kernel, i, launch->args[i].size, launch->args[i].value);
  if (code == CL_SUCCESS)
    code = clEnqueueNDRangeKernel(stream->queue, kernel, launch->dims, NULL, launch->global, launch->local,
                                  stream->num_wait, stream->wait, nn_stream_event(stream, &storage));
  if (code != CL_SUCCESS)
    status = nn_fail(error, code, "enqueueing kernel %s of kernels/%s.cl failed: %s", launch->kernel, launch->file,
                     clattn_status_text(code));
  else
    nn_stream_after(stream, storage);

done:
  clattni_mutex_unlock(&nn->lock);
  return status;
}

clattn_status nn_stream_open(nn_stream *stream, clattn_nn *nn, cl_command_queue queue, cl_uint num_events,
                             const cl_event *wait_list, clattn_error *error) {
  cl_context context = NULL;
  cl_device_id device = NULL;
  cl_command_queue_properties properties = 0;
  memset(stream, 0, sizeof(*stream));
  if (queue == NULL)
    return nn_fail(error, CLATTN_ERROR_NULL_POINTER, "queue must not be NULL");
  if ((num_events > 0) != (wait_list != NULL))
    return nn_fail(error, CL_INVALID_EVENT_WAIT_LIST, "num_events is %u, wait_list is %sNULL", num_events,
                   wait_list != NULL ? "not " : "");
  cl_int code = clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof(context), &context, NULL);
  if (code == CL_SUCCESS)
    code = clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof(device), &device, NULL);
  if (code == CL_SUCCESS)
    code = clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, sizeof(properties), &properties, NULL);
  if (code != CL_SUCCESS)
    return nn_fail(error, code, "asking the queue about itself failed: %s", clattn_status_text(code));
  if (context != nn->cl)
    return nn_fail(error, CLATTN_ERROR_WRONG_CONTEXT, "the queue is of another cl_context than clattn's");
  if (device != nn->device)
    return nn_fail(error, CLATTN_ERROR_WRONG_DEVICE, "the queue is on another device than clattn's");
  for (cl_uint i = 0; i < num_events; ++i) {
    code = clGetEventInfo(wait_list[i], CL_EVENT_CONTEXT, sizeof(context), &context, NULL);
    if (code != CL_SUCCESS)
      return nn_fail(error, code, "asking event %u of wait_list for its context failed: %s", i,
                     clattn_status_text(code));
    if (context != nn->cl)
      return nn_fail(error, CLATTN_ERROR_WRONG_CONTEXT, "event %u of wait_list is of another cl_context than clattn's",
                     i);
  }
  stream->nn = nn;
  stream->queue = queue;
  stream->in_order = (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) == 0;
  stream->num_wait = num_events;
  stream->wait = wait_list;
  return CLATTN_SUCCESS;
}

clattn_status nn_call_open(nn_stream *stream, clattn_status checked, clattn_nn *nn, cl_command_queue queue,
                           cl_uint num_events, const cl_event *wait_list, cl_event *event, clattn_error *error) {
  if (event != NULL)
    *event = NULL;
  if (checked != CLATTN_SUCCESS)
    return checked;
  if (nn == NULL)
    return nn_fail(error, CLATTN_ERROR_NULL_POINTER, "nn must not be NULL");
  return nn_stream_open(stream, nn, queue, num_events, wait_list, error);
}

cl_event *nn_stream_event(nn_stream *stream, cl_event *storage) {
  *storage = NULL;
  return stream->in_order ? NULL : storage;
}

void nn_stream_after(nn_stream *stream, cl_event event) {
  if (stream->last != NULL)
    clReleaseEvent(stream->last);
  stream->last = event;
  stream->num_wait = event != NULL;
  stream->wait = event != NULL ? &stream->last : NULL;
}

clattn_status nn_stream_close(nn_stream *stream, clattn_status status, cl_event *event, clattn_error *error) {
  if (status == CLATTN_SUCCESS && event != NULL) {
    /* a marker completes with what is before it: on an in-order queue everything, else what it waits for */
    const cl_int code = clEnqueueMarkerWithWaitList(stream->queue, stream->num_wait, stream->wait, event);
    if (code != CL_SUCCESS)
      status = nn_fail(error, code, "enqueueing a marker failed: %s", clattn_status_text(code));
  }
  if (stream->last != NULL)
    clReleaseEvent(stream->last);
  stream->last = NULL;
  return status;
}
