/* SPDX-License-Identifier: Apache-2.0 */
/* Programs and kernels of the stub driver: any source builds, unless the settings say otherwise. */
#define _POSIX_C_SOURCE 200809L
#include "stub_state.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- programs ---- */

void stub_destroy_program(stub_program *program) {
  free(program->source);
  free(program->options);
  free(program->log);
  free(program->signatures);
  program->source = program->options = program->log = NULL;
  program->signatures = NULL;
  stub_drop(&program->context->base);
}

static cl_int make_program(cl_context handle, cl_uint count, const char **texts, const size_t *lengths,
                           const char *what, stub_program **out) {
  stub_context *const context = stub_find(handle, STUB_CONTEXT, what);
  if (!context)
    return CL_INVALID_CONTEXT;
  if (count == 0 || !texts)
    return CL_INVALID_VALUE;
  size_t total = 0;
  for (cl_uint i = 0; i < count; ++i) {
    if (!texts[i])
      return CL_INVALID_VALUE;
    total += lengths && lengths[i] ? lengths[i] : strlen(texts[i]);
  }
  stub_program *const program = stub_new(STUB_PROGRAM, sizeof *program);
  if (!program)
    return CL_OUT_OF_HOST_MEMORY;
  stub_hold(&context->base);
  program->context = context;
  program->status = CL_BUILD_NONE;
  program->source = calloc(1, total + 1);
  if (!program->source) {
    stub_release(program, STUB_PROGRAM, CL_INVALID_PROGRAM);
    return CL_OUT_OF_HOST_MEMORY;
  }
  for (cl_uint i = 0; i < count; ++i) {
    const size_t length = lengths && lengths[i] ? lengths[i] : strlen(texts[i]);
    memcpy(program->source + program->source_length, texts[i], length);
    program->source_length += length;
  }
  if (strlen(program->source) != program->source_length)
    stub_violation("%s: the text has a 0 byte in it", what);
  *out = program;
  return CL_SUCCESS;
}

cl_program STUB_API stub_clCreateProgramWithSource(cl_context context, cl_uint count, const char **texts,
                                                   const size_t *lengths, cl_int *code_out) {
  stub_program *program = NULL;
  cl_int code = stub_enter("clCreateProgramWithSource");
  if (code == CL_SUCCESS)
    code = make_program(context, count, texts, lengths, "clCreateProgramWithSource", &program);
  return stub_leave_object(program, code, code_out);
}

cl_program STUB_API stub_clCreateProgramWithBinary(cl_context context, cl_uint count, const cl_device_id *devices,
                                                   const size_t *lengths, const unsigned char **binaries,
                                                   cl_int *status, cl_int *code_out) {
  stub_program *program = NULL;
  cl_int code = stub_enter("clCreateProgramWithBinary");
  if (code == CL_SUCCESS) {
    if (count == 0 || !devices || !lengths || !binaries || !binaries[0] || lengths[0] == 0) {
      code = CL_INVALID_VALUE;
    } else { /* the stub's binary is the source */
      const char *text = (const char *)binaries[0];
      code = make_program(context, 1, &text, lengths, "clCreateProgramWithBinary", &program);
      for (cl_uint i = 0; status && i < count; ++i)
        status[i] = code;
    }
  }
  return stub_leave_object(program, code, code_out);
}

cl_int STUB_API stub_clRetainProgram(cl_program program) {
  cl_int code = stub_enter("clRetainProgram");
  if (code == CL_SUCCESS)
    code = stub_retain(program, STUB_PROGRAM, CL_INVALID_PROGRAM);
  return stub_leave(code);
}

cl_int STUB_API stub_clReleaseProgram(cl_program program) {
  const cl_int code = stub_enter("clReleaseProgram");
  const cl_int result = stub_release(program, STUB_PROGRAM, CL_INVALID_PROGRAM);
  return stub_leave(code != CL_SUCCESS ? code : result);
}

static int context_has(const stub_context *context, cl_device_id device) {
  for (cl_uint i = 0; i < context->num_devices; ++i)
    if (context->devices[i] == device)
      return 1;
  return 0;
}

/* stub_scan, remembering the last result: tests build the same program thousands of times. */
static stub_signature *scan(const char *source, const char *options, cl_uint *count) {
  static char *last_source, *last_options;
  static stub_signature *last;
  static cl_uint last_count;
  if (!last_source || !last_options || strcmp(source, last_source) != 0 || strcmp(options, last_options) != 0) {
    free(last_source);
    free(last_options);
    free(last);
    last = stub_scan(source, options, &last_count);
    last_source = stub_copy(source, strlen(source));
    last_options = stub_copy(options, strlen(options));
  }
  stub_signature *const copy = last_count ? malloc(last_count * sizeof *copy) : NULL;
  *count = copy ? last_count : 0;
  if (copy)
    memcpy(copy, last, last_count * sizeof *copy);
  return copy;
}

static cl_int build(cl_program handle, cl_uint count, const cl_device_id *devices, const char *options,
                    void(CL_CALLBACK *notify)(cl_program, void *), void *user) {
  stub_program *const program = stub_find(handle, STUB_PROGRAM, "clBuildProgram");
  if (!program)
    return CL_INVALID_PROGRAM;
  if ((count == 0) != (devices == NULL))
    return CL_INVALID_VALUE;
  for (cl_uint i = 0; i < count; ++i)
    if (!context_has(program->context, devices[i])) {
      stub_violation("clBuildProgram: device %u is not in the program's context", i);
      return CL_INVALID_DEVICE;
    }
  options = options ? options : "";
  stub_note_build(options);
  free(program->options);
  free(program->log);
  free(program->signatures);
  program->signatures = scan(program->source, options, &program->num_signatures);
  program->options = stub_copy(options, strlen(options));
  program->log = stub_copy(stub_set.build_log, strlen(stub_set.build_log));
  program->status = stub_set.build_code == CL_SUCCESS ? CL_BUILD_SUCCESS : CL_BUILD_ERROR;
  if (!program->options || !program->log)
    return CL_OUT_OF_HOST_MEMORY;
  if (notify) {
    stub_callback *const callback = calloc(1, sizeof *callback);
    if (!callback)
      return CL_OUT_OF_HOST_MEMORY;
    callback->program_function = notify;
    callback->handle = program;
    callback->user = user;
    stub_call_later(callback);
  }
  return stub_set.build_code;
}

cl_int STUB_API stub_clBuildProgram(cl_program program, cl_uint count, const cl_device_id *devices, const char *options,
                                    void(CL_CALLBACK *notify)(cl_program, void *), void *user) {
  cl_int code = stub_enter("clBuildProgram");
  if (code == CL_SUCCESS)
    code = build(program, count, devices, options, notify, user);
  return stub_leave(code);
}

cl_int STUB_API stub_clUnloadPlatformCompiler(cl_platform_id platform) {
  cl_int code = stub_enter("clUnloadPlatformCompiler");
  if (code == CL_SUCCESS && !stub_find(platform, STUB_PLATFORM, "clUnloadPlatformCompiler"))
    code = CL_INVALID_PLATFORM;
  return stub_leave(code);
}

static cl_int kernel_names(const stub_program *program, size_t capacity, void *out, size_t *bytes) {
  char names[4096] = "";
  size_t length = 0;
  for (cl_uint i = 0; i < program->num_signatures; ++i) {
    const size_t more = strlen(program->signatures[i].name);
    if (length + more + 2 > sizeof names)
      return CL_OUT_OF_HOST_MEMORY;
    if (length)
      names[length++] = ';';
    memcpy(names + length, program->signatures[i].name, more + 1);
    length += more;
  }
  return stub_answer_text(names, capacity, out, bytes);
}

static cl_int program_info(cl_program handle, cl_program_info name, size_t capacity, void *out, size_t *bytes) {
  const stub_program *const program = stub_find(handle, STUB_PROGRAM, "clGetProgramInfo");
  if (!program)
    return CL_INVALID_PROGRAM;
  const stub_context *const context = program->context;
  switch (name) {
  case CL_PROGRAM_REFERENCE_COUNT: {
    const cl_uint refs = (cl_uint)program->base.refs;
    return stub_answer(&refs, sizeof refs, capacity, out, bytes);
  }
  case CL_PROGRAM_CONTEXT:
    return stub_answer(&context, sizeof context, capacity, out, bytes);
  case CL_PROGRAM_NUM_DEVICES:
    return stub_answer(&context->num_devices, sizeof context->num_devices, capacity, out, bytes);
  case CL_PROGRAM_DEVICES:
    return stub_answer(context->devices, context->num_devices * sizeof *context->devices, capacity, out, bytes);
  case CL_PROGRAM_SOURCE:
    return stub_answer(program->source, program->source_length + 1, capacity, out, bytes);
  case CL_PROGRAM_BINARY_SIZES: {
    size_t sizes[STUB_MAX_DEVICES];
    for (cl_uint i = 0; i < context->num_devices; ++i)
      sizes[i] = program->status == CL_BUILD_SUCCESS ? program->source_length : 0;
    return stub_answer(sizes, context->num_devices * sizeof *sizes, capacity, out, bytes);
  }
  case CL_PROGRAM_BINARIES: {
    if (out && capacity < context->num_devices * sizeof(unsigned char *))
      return CL_INVALID_VALUE;
    unsigned char **const pointers = out;
    for (cl_uint i = 0; pointers && i < context->num_devices; ++i)
      if (pointers[i])
        memcpy(pointers[i], program->source, program->source_length);
    if (bytes)
      *bytes = context->num_devices * sizeof(unsigned char *);
    return CL_SUCCESS;
  }
  case CL_PROGRAM_NUM_KERNELS: {
    if (program->status != CL_BUILD_SUCCESS)
      return CL_INVALID_PROGRAM_EXECUTABLE;
    const size_t count = program->num_signatures;
    return stub_answer(&count, sizeof count, capacity, out, bytes);
  }
  case CL_PROGRAM_KERNEL_NAMES:
    if (program->status != CL_BUILD_SUCCESS)
      return CL_INVALID_PROGRAM_EXECUTABLE;
    return kernel_names(program, capacity, out, bytes);
  default:
    return CL_INVALID_VALUE;
  }
}

cl_int STUB_API stub_clGetProgramInfo(cl_program program, cl_program_info name, size_t capacity, void *out,
                                      size_t *bytes) {
  cl_int code = stub_enter("clGetProgramInfo");
  if (code == CL_SUCCESS)
    code = program_info(program, name, capacity, out, bytes);
  return stub_leave(code);
}

static cl_int build_info(cl_program handle, cl_device_id device, cl_program_build_info name, size_t capacity, void *out,
                         size_t *bytes) {
  const stub_program *const program = stub_find(handle, STUB_PROGRAM, "clGetProgramBuildInfo");
  if (!program)
    return CL_INVALID_PROGRAM;
  if (!context_has(program->context, device)) {
    stub_violation("clGetProgramBuildInfo: the device is not in the program's context");
    return CL_INVALID_DEVICE;
  }
  switch (name) {
  case CL_PROGRAM_BUILD_STATUS:
    return stub_answer(&program->status, sizeof program->status, capacity, out, bytes);
  case CL_PROGRAM_BUILD_OPTIONS:
    return stub_answer_text(program->options ? program->options : "", capacity, out, bytes);
  case CL_PROGRAM_BUILD_LOG:
    return stub_answer_text(program->log ? program->log : "", capacity, out, bytes);
  default:
    return CL_INVALID_VALUE;
  }
}

cl_int STUB_API stub_clGetProgramBuildInfo(cl_program program, cl_device_id device, cl_program_build_info name,
                                           size_t capacity, void *out, size_t *bytes) {
  cl_int code = stub_enter("clGetProgramBuildInfo");
  if (code == CL_SUCCESS)
    code = build_info(program, device, name, capacity, out, bytes);
  return stub_leave(code);
}

/* ---- kernels ---- */

void stub_destroy_kernel(stub_kernel *kernel) {
  stub_drop(&kernel->program->base);
}

static cl_int make_kernel(stub_program *program, const char *name, stub_kernel **out) {
  if (program->status != CL_BUILD_SUCCESS) {
    stub_violation("clCreateKernel: the program is not built");
    return CL_INVALID_PROGRAM_EXECUTABLE;
  }
  if (!name)
    return CL_INVALID_VALUE;
  const stub_signature *signature = NULL;
  for (cl_uint i = 0; i < program->num_signatures; ++i)
    if (strcmp(program->signatures[i].name, name) == 0)
      signature = &program->signatures[i];
  /* A name that macros put together cannot be found in the text. */
  if (!signature && !stub_has_word(program->source, name) && !strstr(program->source, "##")) {
    stub_violation("clCreateKernel: no kernel %s in the source", name);
    return CL_INVALID_KERNEL_NAME;
  }
  stub_kernel *const kernel = stub_new(STUB_KERNEL, sizeof *kernel);
  if (!kernel)
    return CL_OUT_OF_HOST_MEMORY;
  stub_hold(&program->base);
  kernel->program = program;
  if (signature)
    kernel->signature = *signature;
  else
    strncpy(kernel->signature.name, name, sizeof kernel->signature.name - 1);
  *out = kernel;
  return CL_SUCCESS;
}

cl_kernel STUB_API stub_clCreateKernel(cl_program handle, const char *name, cl_int *code_out) {
  stub_kernel *kernel = NULL;
  cl_int code = stub_enter("clCreateKernel");
  if (code == CL_SUCCESS) {
    stub_program *const program = stub_find(handle, STUB_PROGRAM, "clCreateKernel");
    code = program ? make_kernel(program, name, &kernel) : CL_INVALID_PROGRAM;
  }
  return stub_leave_object(kernel, code, code_out);
}

cl_int STUB_API stub_clCreateKernelsInProgram(cl_program handle, cl_uint capacity, cl_kernel *kernels, cl_uint *count) {
  cl_int code = stub_enter("clCreateKernelsInProgram");
  stub_program *const program = stub_find(handle, STUB_PROGRAM, "clCreateKernelsInProgram");
  if (code == CL_SUCCESS && !program)
    code = CL_INVALID_PROGRAM;
  if (code == CL_SUCCESS && kernels && capacity < program->num_signatures)
    code = CL_INVALID_VALUE;
  for (cl_uint i = 0; code == CL_SUCCESS && kernels && i < program->num_signatures; ++i) {
    stub_kernel *kernel = NULL;
    code = make_kernel(program, program->signatures[i].name, &kernel);
    kernels[i] = (cl_kernel)(void *)kernel;
  }
  if (code == CL_SUCCESS && count)
    *count = program->num_signatures;
  return stub_leave(code);
}

cl_int STUB_API stub_clRetainKernel(cl_kernel kernel) {
  cl_int code = stub_enter("clRetainKernel");
  if (code == CL_SUCCESS)
    code = stub_retain(kernel, STUB_KERNEL, CL_INVALID_KERNEL);
  return stub_leave(code);
}

cl_int STUB_API stub_clReleaseKernel(cl_kernel kernel) {
  const cl_int code = stub_enter("clReleaseKernel");
  const cl_int result = stub_release(kernel, STUB_KERNEL, CL_INVALID_KERNEL);
  return stub_leave(code != CL_SUCCESS ? code : result);
}

static cl_int set_buffer_arg(const stub_kernel *kernel, cl_uint index, const void *value, stub_arg *arg) {
  void *handle = NULL;
  memcpy(&handle, value, sizeof handle);
  if (!handle)
    return CL_SUCCESS;
  stub_mem *const mem = stub_find(handle, STUB_MEM, "clSetKernelArg");
  if (!mem)
    return CL_INVALID_MEM_OBJECT;
  if (mem->context != kernel->program->context) {
    stub_violation("clSetKernelArg: argument %u of %s is a buffer of another context", index, kernel->signature.name);
    return CL_INVALID_MEM_OBJECT;
  }
  arg->mem = (cl_mem)handle;
  arg->root = (cl_mem)(void *)stub_mem_root(mem);
  arg->mem_bytes = mem->bytes;
  return CL_SUCCESS;
}

static cl_int set_arg(cl_kernel handle, cl_uint index, size_t bytes, const void *value) {
  stub_kernel *const kernel = stub_find(handle, STUB_KERNEL, "clSetKernelArg");
  if (!kernel)
    return CL_INVALID_KERNEL;
  const stub_signature *const signature = &kernel->signature;
  if (index >= STUB_MAX_ARGS || (signature->known && index >= signature->num_params)) {
    stub_violation("clSetKernelArg: %s has no argument %u", signature->name, index);
    return CL_INVALID_ARG_INDEX;
  }
  if (bytes == 0) {
    stub_violation("clSetKernelArg: argument %u of %s has 0 bytes", index, signature->name);
    return CL_INVALID_ARG_SIZE;
  }
  const stub_param *const param = signature->known ? &signature->params[index] : NULL;
  stub_arg arg = {.set = 1, .size = bytes, .is_local = !value, .declared_pointer = -1};
  if (param) {
    arg.declared_pointer = param->pointer == 1;
    arg.declared_const = param->constant;
    const int wrong = param->pointer == 1   ? bytes != sizeof(cl_mem) || !value
                      : param->pointer == 2 ? value != NULL
                                            : !value || (param->value_bytes && bytes != param->value_bytes);
    if (wrong) {
      stub_violation("clSetKernelArg: %zu bytes%s do not fit argument %u (%s) of %s", bytes,
                     value ? "" : " of local memory", index, param->name, signature->name);
      return param->pointer == 2 || !value ? CL_INVALID_ARG_VALUE : CL_INVALID_ARG_SIZE;
    }
  }
  if (value) {
    memcpy(arg.value, value, bytes < STUB_VALUE_BYTES ? bytes : STUB_VALUE_BYTES);
    /* Without a readable signature, what looks like one of our buffers is one. */
    void *handle_value = NULL;
    if (bytes == sizeof handle_value)
      memcpy(&handle_value, value, bytes);
    if (param ? param->pointer == 1 : stub_peek(handle_value, STUB_MEM) != NULL) {
      const cl_int code = set_buffer_arg(kernel, index, value, &arg);
      if (code != CL_SUCCESS)
        return code;
    }
  }
  const unsigned long self = (unsigned long)pthread_self();
  if (kernel->has_setter && kernel->setter != self)
    stub_violation("clSetKernelArg: two threads set arguments of the same %s", signature->name);
  kernel->has_setter = 1;
  kernel->setter = self;
  kernel->args[index] = arg;
  if (index >= kernel->num_args)
    kernel->num_args = index + 1;
  return CL_SUCCESS;
}

cl_int STUB_API stub_clSetKernelArg(cl_kernel kernel, cl_uint index, size_t bytes, const void *value) {
  cl_int code = stub_enter("clSetKernelArg");
  if (code == CL_SUCCESS)
    code = set_arg(kernel, index, bytes, value);
  return stub_leave(code);
}

static cl_int kernel_info(cl_kernel handle, cl_kernel_info name, size_t capacity, void *out, size_t *bytes) {
  const stub_kernel *const kernel = stub_find(handle, STUB_KERNEL, "clGetKernelInfo");
  if (!kernel)
    return CL_INVALID_KERNEL;
  const stub_program *const program = kernel->program;
  const stub_context *const context = program->context;
  cl_uint number = 0;
  switch (name) {
  case CL_KERNEL_FUNCTION_NAME:
    return stub_answer_text(kernel->signature.name, capacity, out, bytes);
  case CL_KERNEL_NUM_ARGS:
    number = kernel->signature.known ? kernel->signature.num_params : kernel->num_args;
    return stub_answer(&number, sizeof number, capacity, out, bytes);
  case CL_KERNEL_REFERENCE_COUNT:
    number = (cl_uint)kernel->base.refs;
    return stub_answer(&number, sizeof number, capacity, out, bytes);
  case CL_KERNEL_CONTEXT:
    return stub_answer(&context, sizeof context, capacity, out, bytes);
  case CL_KERNEL_PROGRAM:
    return stub_answer(&program, sizeof program, capacity, out, bytes);
  case CL_KERNEL_ATTRIBUTES:
    return stub_answer_text("", capacity, out, bytes);
  default:
    return CL_INVALID_VALUE;
  }
}

cl_int STUB_API stub_clGetKernelInfo(cl_kernel kernel, cl_kernel_info name, size_t capacity, void *out, size_t *bytes) {
  cl_int code = stub_enter("clGetKernelInfo");
  if (code == CL_SUCCESS)
    code = kernel_info(kernel, name, capacity, out, bytes);
  return stub_leave(code);
}

cl_int STUB_API stub_clGetKernelArgInfo(cl_kernel handle, cl_uint index, cl_kernel_arg_info name, size_t capacity,
                                        void *out, size_t *bytes) {
  cl_int code = stub_enter("clGetKernelArgInfo");
  if (code == CL_SUCCESS) {
    const stub_kernel *const kernel = stub_find(handle, STUB_KERNEL, "clGetKernelArgInfo");
    if (!kernel)
      code = CL_INVALID_KERNEL;
    else if (kernel->signature.known && index >= kernel->signature.num_params)
      code = CL_INVALID_ARG_INDEX;
    else if (kernel->signature.known && name == CL_KERNEL_ARG_NAME)
      code = stub_answer_text(kernel->signature.params[index].name, capacity, out, bytes);
    else
      code = CL_KERNEL_ARG_INFO_NOT_AVAILABLE;
  }
  return stub_leave(code);
}

static cl_int work_group_info(cl_kernel handle, cl_device_id device, cl_kernel_work_group_info name, size_t capacity,
                              void *out, size_t *bytes) {
  const stub_kernel *const kernel = stub_find(handle, STUB_KERNEL, "clGetKernelWorkGroupInfo");
  if (!kernel)
    return CL_INVALID_KERNEL;
  if (device ? !context_has(kernel->program->context, device) : kernel->program->context->num_devices != 1) {
    stub_violation("clGetKernelWorkGroupInfo: which device?");
    return CL_INVALID_DEVICE;
  }
  const size_t group = stub_set.kernel_work_group ? stub_set.kernel_work_group : stub_set.max_work_group;
  const size_t multiple = stub_set.native_float_width;
  const cl_ulong local_bytes = kernel->signature.local_bytes + stub_set.kernel_local_bytes;
  const cl_ulong zero = 0;
  switch (name) {
  case CL_KERNEL_WORK_GROUP_SIZE:
    return stub_answer(&group, sizeof group, capacity, out, bytes);
  case CL_KERNEL_COMPILE_WORK_GROUP_SIZE:
    return stub_answer(kernel->signature.group, sizeof kernel->signature.group, capacity, out, bytes);
  case CL_KERNEL_LOCAL_MEM_SIZE:
    return stub_answer(&local_bytes, sizeof local_bytes, capacity, out, bytes);
  case CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE:
    return stub_answer(&multiple, sizeof multiple, capacity, out, bytes);
  case CL_KERNEL_PRIVATE_MEM_SIZE:
    return stub_answer(&zero, sizeof zero, capacity, out, bytes);
  default:
    return CL_INVALID_VALUE;
  }
}

cl_int STUB_API stub_clGetKernelWorkGroupInfo(cl_kernel kernel, cl_device_id device, cl_kernel_work_group_info name,
                                              size_t capacity, void *out, size_t *bytes) {
  cl_int code = stub_enter("clGetKernelWorkGroupInfo");
  if (code == CL_SUCCESS)
    code = work_group_info(kernel, device, name, capacity, out, bytes);
  return stub_leave(code);
}
