/* SPDX-License-Identifier: Apache-2.0 */
/* Platform, devices and contexts of the stub driver, its dispatch table and what the loader looks up by name. */
#include "stub_state.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

stub_object stub_the_platform = {.dispatch = &stub_dispatch, .kind = STUB_PLATFORM, .refs = 1};
stub_object stub_the_devices[STUB_MAX_DEVICES] = {
    {.dispatch = &stub_dispatch, .kind = STUB_DEVICE, .refs = 1},
    {.dispatch = &stub_dispatch, .kind = STUB_DEVICE, .refs = 1},
};

static cl_platform_id the_platform(void) {
  return (cl_platform_id)(void *)&stub_the_platform;
}

static cl_device_id device_handle(cl_uint i) {
  return (cl_device_id)(void *)&stub_the_devices[i];
}

static cl_int platform_ids(cl_uint capacity, cl_platform_id *platforms, cl_uint *count) {
  if ((platforms && capacity == 0) || (!platforms && !count))
    return CL_INVALID_VALUE;
  if (platforms)
    platforms[0] = the_platform();
  if (count)
    *count = 1;
  return CL_SUCCESS;
}

cl_int STUB_API stub_clGetPlatformIDs(cl_uint capacity, cl_platform_id *platforms, cl_uint *count) {
  cl_int code = stub_enter("clGetPlatformIDs");
  if (code == CL_SUCCESS)
    code = platform_ids(capacity, platforms, count);
  return stub_leave(code);
}

static cl_int platform_info(cl_platform_id platform, cl_platform_info name, size_t capacity, void *out, size_t *bytes) {
  if (!stub_find(platform, STUB_PLATFORM, "clGetPlatformInfo"))
    return CL_INVALID_PLATFORM;
  switch (name) {
  case CL_PLATFORM_PROFILE:
    return stub_answer_text("FULL_PROFILE", capacity, out, bytes);
  case CL_PLATFORM_VERSION:
    return stub_answer_text("OpenCL 1.2 stub", capacity, out, bytes);
  case CL_PLATFORM_NAME:
    return stub_answer_text("clattn stub", capacity, out, bytes);
  case CL_PLATFORM_VENDOR:
    return stub_answer_text("clattn tests", capacity, out, bytes);
  case CL_PLATFORM_EXTENSIONS:
    return stub_answer_text("cl_khr_icd", capacity, out, bytes);
  case CL_PLATFORM_ICD_SUFFIX_KHR:
    return stub_answer_text("STUB", capacity, out, bytes);
  default:
    return CL_INVALID_VALUE;
  }
}

cl_int STUB_API stub_clGetPlatformInfo(cl_platform_id platform, cl_platform_info name, size_t capacity, void *out,
                                       size_t *bytes) {
  cl_int code = stub_enter("clGetPlatformInfo");
  if (code == CL_SUCCESS)
    code = platform_info(platform, name, capacity, out, bytes);
  return stub_leave(code);
}

static cl_int device_ids(cl_platform_id platform, cl_device_type type, cl_uint capacity, cl_device_id *devices,
                         cl_uint *count) {
  if (platform && !stub_find(platform, STUB_PLATFORM, "clGetDeviceIDs"))
    return CL_INVALID_PLATFORM;
  if ((devices && capacity == 0) || (!devices && !count))
    return CL_INVALID_VALUE;
  cl_uint found = 0;
  for (cl_uint i = 0; i < stub_set.num_devices; ++i) {
    const int wanted = type == CL_DEVICE_TYPE_ALL || (type & stub_set.type[i]) != 0 ||
                       ((type & CL_DEVICE_TYPE_DEFAULT) != 0 && i == 0);
    if (wanted && devices && found < capacity)
      devices[found] = device_handle(i);
    found += (cl_uint)wanted;
  }
  if (found == 0)
    return CL_DEVICE_NOT_FOUND;
  if (count)
    *count = found;
  return CL_SUCCESS;
}

cl_int STUB_API stub_clGetDeviceIDs(cl_platform_id platform, cl_device_type type, cl_uint capacity,
                                    cl_device_id *devices, cl_uint *count) {
  cl_int code = stub_enter("clGetDeviceIDs");
  if (code == CL_SUCCESS)
    code = device_ids(platform, type, capacity, devices, count);
  return stub_leave(code);
}

static cl_int answer_uint(cl_uint value, size_t capacity, void *out, size_t *bytes) {
  return stub_answer(&value, sizeof value, capacity, out, bytes);
}

static cl_int answer_ulong(cl_ulong value, size_t capacity, void *out, size_t *bytes) {
  return stub_answer(&value, sizeof value, capacity, out, bytes);
}

static cl_int answer_size(size_t value, size_t capacity, void *out, size_t *bytes) {
  return stub_answer(&value, sizeof value, capacity, out, bytes);
}

static cl_int device_info(cl_device_id device, cl_device_info name, size_t capacity, void *out, size_t *bytes) {
  const stub_object *const object = stub_find(device, STUB_DEVICE, "clGetDeviceInfo");
  if (!object)
    return CL_INVALID_DEVICE;
  const stub_settings *const s = &stub_set;
  switch (name) {
  case CL_DEVICE_TYPE:
    return answer_ulong(s->type[object - stub_the_devices], capacity, out, bytes);
  case CL_DEVICE_VENDOR_ID:
    return answer_uint(0x5701u, capacity, out, bytes);
  case CL_DEVICE_MAX_COMPUTE_UNITS:
    return answer_uint(s->compute_units, capacity, out, bytes);
  case CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS:
    return answer_uint(3, capacity, out, bytes);
  case CL_DEVICE_MAX_WORK_ITEM_SIZES:
    return stub_answer(s->max_work_item, sizeof s->max_work_item, capacity, out, bytes);
  case CL_DEVICE_MAX_WORK_GROUP_SIZE:
    return answer_size(s->max_work_group, capacity, out, bytes);
  case CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT:
  case CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT:
    return answer_uint(s->native_float_width, capacity, out, bytes);
  case CL_DEVICE_NATIVE_VECTOR_WIDTH_HALF:
  case CL_DEVICE_PREFERRED_VECTOR_WIDTH_HALF:
    return answer_uint(0, capacity, out, bytes);
  case CL_DEVICE_MAX_CLOCK_FREQUENCY:
    return answer_uint(1000, capacity, out, bytes);
  case CL_DEVICE_ADDRESS_BITS:
    return answer_uint(s->address_bits, capacity, out, bytes);
  case CL_DEVICE_MAX_MEM_ALLOC_SIZE:
    return answer_ulong(s->max_alloc_bytes, capacity, out, bytes);
  case CL_DEVICE_GLOBAL_MEM_SIZE:
    return answer_ulong(s->global_bytes, capacity, out, bytes);
  case CL_DEVICE_LOCAL_MEM_SIZE:
    return answer_ulong(s->local_bytes, capacity, out, bytes);
  case CL_DEVICE_LOCAL_MEM_TYPE:
    return answer_uint(s->local_type, capacity, out, bytes);
  case CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE:
    return answer_ulong(64 << 10, capacity, out, bytes);
  case CL_DEVICE_GLOBAL_MEM_CACHE_SIZE:
    return answer_ulong(1 << 20, capacity, out, bytes);
  case CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE:
    return answer_uint(64, capacity, out, bytes);
  case CL_DEVICE_MAX_PARAMETER_SIZE:
    return answer_size(s->max_parameter_bytes, capacity, out, bytes);
  case CL_DEVICE_MEM_BASE_ADDR_ALIGN:
    return answer_uint(s->base_align_bits, capacity, out, bytes);
  case CL_DEVICE_MIN_DATA_TYPE_ALIGN_SIZE:
    return answer_uint(128, capacity, out, bytes);
  case CL_DEVICE_PROFILING_TIMER_RESOLUTION:
    return answer_size(1, capacity, out, bytes);
  case CL_DEVICE_ENDIAN_LITTLE:
    return answer_uint(CL_TRUE, capacity, out, bytes);
  case CL_DEVICE_AVAILABLE:
    return answer_uint(s->available, capacity, out, bytes);
  case CL_DEVICE_COMPILER_AVAILABLE:
  case CL_DEVICE_LINKER_AVAILABLE:
    return answer_uint(s->compiler, capacity, out, bytes);
  case CL_DEVICE_HOST_UNIFIED_MEMORY:
  case CL_DEVICE_IMAGE_SUPPORT:
  case CL_DEVICE_ERROR_CORRECTION_SUPPORT:
    return answer_uint(CL_FALSE, capacity, out, bytes);
  case CL_DEVICE_EXECUTION_CAPABILITIES:
    return answer_ulong(CL_EXEC_KERNEL, capacity, out, bytes);
  case CL_DEVICE_SINGLE_FP_CONFIG:
    return answer_ulong(CL_FP_DENORM | CL_FP_INF_NAN | CL_FP_ROUND_TO_NEAREST | CL_FP_FMA, capacity, out, bytes);
  case CL_DEVICE_DOUBLE_FP_CONFIG:
    return answer_ulong(0, capacity, out, bytes);
  case CL_DEVICE_QUEUE_PROPERTIES:
    return answer_ulong(CL_QUEUE_PROFILING_ENABLE | (s->out_of_order ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0u),
                        capacity, out, bytes);
  case CL_DEVICE_PLATFORM: {
    const cl_platform_id platform = the_platform();
    return stub_answer(&platform, sizeof platform, capacity, out, bytes);
  }
  case CL_DEVICE_PARENT_DEVICE: {
    const cl_device_id none = NULL;
    return stub_answer(&none, sizeof none, capacity, out, bytes);
  }
  case CL_DEVICE_PARTITION_MAX_SUB_DEVICES:
  case CL_DEVICE_REFERENCE_COUNT:
    return answer_uint(1, capacity, out, bytes);
  case CL_DEVICE_NAME:
    return stub_answer_text(s->name, capacity, out, bytes);
  case CL_DEVICE_VENDOR:
    return stub_answer_text(s->vendor, capacity, out, bytes);
  case CL_DRIVER_VERSION:
    return stub_answer_text(s->driver, capacity, out, bytes);
  case CL_DEVICE_PROFILE:
    return stub_answer_text("FULL_PROFILE", capacity, out, bytes);
  case CL_DEVICE_VERSION:
    return stub_answer_text(s->version, capacity, out, bytes);
  case CL_DEVICE_OPENCL_C_VERSION:
    return stub_answer_text("OpenCL C 1.2 stub", capacity, out, bytes);
  case CL_DEVICE_EXTENSIONS:
    return stub_answer_text(s->extensions, capacity, out, bytes);
  case CL_DEVICE_BUILT_IN_KERNELS:
    return stub_answer_text("", capacity, out, bytes);
  default:
    return CL_INVALID_VALUE;
  }
}

cl_int STUB_API stub_clGetDeviceInfo(cl_device_id device, cl_device_info name, size_t capacity, void *out,
                                     size_t *bytes) {
  cl_int code = stub_enter("clGetDeviceInfo");
  if (code == CL_SUCCESS)
    code = device_info(device, name, capacity, out, bytes);
  return stub_leave(code);
}

cl_int STUB_API stub_clCreateSubDevices(cl_device_id device, const cl_device_partition_property *properties,
                                        cl_uint capacity, cl_device_id *devices, cl_uint *count) {
  (void)device, (void)properties, (void)capacity, (void)devices, (void)count;
  const cl_int code = stub_enter("clCreateSubDevices");
  return stub_leave(code == CL_SUCCESS ? CL_DEVICE_PARTITION_FAILED : code);
}

cl_int STUB_API stub_clRetainDevice(cl_device_id device) {
  cl_int code = stub_enter("clRetainDevice");
  if (code == CL_SUCCESS)
    code = stub_retain(device, STUB_DEVICE, CL_INVALID_DEVICE);
  return stub_leave(code);
}

cl_int STUB_API stub_clReleaseDevice(cl_device_id device) {
  const cl_int code = stub_enter("clReleaseDevice");
  const cl_int result = stub_release(device, STUB_DEVICE, CL_INVALID_DEVICE);
  return stub_leave(code != CL_SUCCESS ? code : result);
}

/* ---- contexts ---- */

static cl_int make_context(const cl_context_properties *properties, cl_uint count, const cl_device_id *devices,
                           stub_context **out) {
  if (count == 0 || !devices)
    return CL_INVALID_VALUE;
  size_t words = 0;
  if (properties) {
    while (properties[words]) {
      if (properties[words] != CL_CONTEXT_PLATFORM)
        return CL_INVALID_PROPERTY;
      if (!stub_find((const void *)properties[words + 1], STUB_PLATFORM, "clCreateContext"))
        return CL_INVALID_PLATFORM;
      words += 2;
      if (words > 14)
        return CL_INVALID_PROPERTY;
    }
    ++words;
  }
  if (count > STUB_MAX_DEVICES)
    return CL_INVALID_VALUE;
  for (cl_uint i = 0; i < count; ++i)
    if (!stub_find(devices[i], STUB_DEVICE, "clCreateContext"))
      return CL_INVALID_DEVICE;
  if (!stub_set.available)
    return CL_DEVICE_NOT_AVAILABLE;
  stub_context *const context = stub_new(STUB_CONTEXT, sizeof *context);
  if (!context)
    return CL_OUT_OF_HOST_MEMORY;
  context->num_devices = count;
  for (cl_uint i = 0; i < count; ++i)
    context->devices[i] = devices[i];
  context->num_properties = words;
  if (words)
    memcpy(context->properties, properties, words * sizeof *properties);
  *out = context;
  return CL_SUCCESS;
}

cl_context STUB_API stub_clCreateContext(const cl_context_properties *properties, cl_uint count,
                                         const cl_device_id *devices,
                                         void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *),
                                         void *user, cl_int *code_out) {
  (void)notify, (void)user;
  stub_context *context = NULL;
  cl_int code = stub_enter("clCreateContext");
  if (code == CL_SUCCESS)
    code = make_context(properties, count, devices, &context);
  return stub_leave_object(context, code, code_out);
}

cl_context STUB_API stub_clCreateContextFromType(const cl_context_properties *properties, cl_device_type type,
                                                 void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *),
                                                 void *user, cl_int *code_out) {
  (void)notify, (void)user;
  stub_context *context = NULL;
  cl_int code = stub_enter("clCreateContextFromType");
  if (code == CL_SUCCESS) {
    cl_device_id devices[STUB_MAX_DEVICES];
    cl_uint count = 0;
    code = device_ids(the_platform(), type, STUB_MAX_DEVICES, devices, &count);
    if (code == CL_SUCCESS)
      code = make_context(properties, count, devices, &context);
  }
  return stub_leave_object(context, code, code_out);
}

cl_int STUB_API stub_clRetainContext(cl_context context) {
  cl_int code = stub_enter("clRetainContext");
  if (code == CL_SUCCESS)
    code = stub_retain(context, STUB_CONTEXT, CL_INVALID_CONTEXT);
  return stub_leave(code);
}

cl_int STUB_API stub_clReleaseContext(cl_context context) {
  const cl_int code = stub_enter("clReleaseContext");
  const cl_int result = stub_release(context, STUB_CONTEXT, CL_INVALID_CONTEXT);
  return stub_leave(code != CL_SUCCESS ? code : result);
}

static cl_int context_info(cl_context handle, cl_context_info name, size_t capacity, void *out, size_t *bytes) {
  const stub_context *const context = stub_find(handle, STUB_CONTEXT, "clGetContextInfo");
  if (!context)
    return CL_INVALID_CONTEXT;
  switch (name) {
  case CL_CONTEXT_REFERENCE_COUNT:
    return answer_uint((cl_uint)context->base.refs, capacity, out, bytes);
  case CL_CONTEXT_NUM_DEVICES:
    return answer_uint(context->num_devices, capacity, out, bytes);
  case CL_CONTEXT_DEVICES:
    return stub_answer(context->devices, context->num_devices * sizeof *context->devices, capacity, out, bytes);
  case CL_CONTEXT_PROPERTIES:
    return stub_answer(context->properties, context->num_properties * sizeof *context->properties, capacity, out,
                       bytes);
  default:
    return CL_INVALID_VALUE;
  }
}

cl_int STUB_API stub_clGetContextInfo(cl_context context, cl_context_info name, size_t capacity, void *out,
                                      size_t *bytes) {
  cl_int code = stub_enter("clGetContextInfo");
  if (code == CL_SUCCESS)
    code = context_info(context, name, capacity, out, bytes);
  return stub_leave(code);
}

/* ---- the loader's entry points ---- */

/* Functions that clattn and its tests do not use stay NULL. */
const cl_icd_dispatch stub_dispatch = {
    .clGetPlatformIDs = stub_clGetPlatformIDs,
    .clGetPlatformInfo = stub_clGetPlatformInfo,
    .clGetDeviceIDs = stub_clGetDeviceIDs,
    .clGetDeviceInfo = stub_clGetDeviceInfo,
    .clCreateSubDevices = stub_clCreateSubDevices,
    .clRetainDevice = stub_clRetainDevice,
    .clReleaseDevice = stub_clReleaseDevice,
    .clCreateContext = stub_clCreateContext,
    .clCreateContextFromType = stub_clCreateContextFromType,
    .clRetainContext = stub_clRetainContext,
    .clReleaseContext = stub_clReleaseContext,
    .clGetContextInfo = stub_clGetContextInfo,
    .clCreateCommandQueue = stub_clCreateCommandQueue,
    .clRetainCommandQueue = stub_clRetainCommandQueue,
    .clReleaseCommandQueue = stub_clReleaseCommandQueue,
    .clGetCommandQueueInfo = stub_clGetCommandQueueInfo,
    .clCreateBuffer = stub_clCreateBuffer,
    .clCreateSubBuffer = stub_clCreateSubBuffer,
    .clCreateImage = stub_clCreateImage,
    .clRetainMemObject = stub_clRetainMemObject,
    .clReleaseMemObject = stub_clReleaseMemObject,
    .clGetMemObjectInfo = stub_clGetMemObjectInfo,
    .clSetMemObjectDestructorCallback = stub_clSetMemObjectDestructorCallback,
    .clCreateProgramWithSource = stub_clCreateProgramWithSource,
    .clCreateProgramWithBinary = stub_clCreateProgramWithBinary,
    .clRetainProgram = stub_clRetainProgram,
    .clReleaseProgram = stub_clReleaseProgram,
    .clBuildProgram = stub_clBuildProgram,
    .clUnloadPlatformCompiler = stub_clUnloadPlatformCompiler,
    .clGetProgramInfo = stub_clGetProgramInfo,
    .clGetProgramBuildInfo = stub_clGetProgramBuildInfo,
    .clCreateKernel = stub_clCreateKernel,
    .clCreateKernelsInProgram = stub_clCreateKernelsInProgram,
    .clRetainKernel = stub_clRetainKernel,
    .clReleaseKernel = stub_clReleaseKernel,
    .clSetKernelArg = stub_clSetKernelArg,
    .clGetKernelInfo = stub_clGetKernelInfo,
    .clGetKernelArgInfo = stub_clGetKernelArgInfo,
    .clGetKernelWorkGroupInfo = stub_clGetKernelWorkGroupInfo,
    .clWaitForEvents = stub_clWaitForEvents,
    .clGetEventInfo = stub_clGetEventInfo,
    .clCreateUserEvent = stub_clCreateUserEvent,
    .clSetUserEventStatus = stub_clSetUserEventStatus,
    .clRetainEvent = stub_clRetainEvent,
    .clReleaseEvent = stub_clReleaseEvent,
    .clSetEventCallback = stub_clSetEventCallback,
    .clGetEventProfilingInfo = stub_clGetEventProfilingInfo,
    .clFlush = stub_clFlush,
    .clFinish = stub_clFinish,
    .clEnqueueReadBuffer = stub_clEnqueueReadBuffer,
    .clEnqueueWriteBuffer = stub_clEnqueueWriteBuffer,
    .clEnqueueFillBuffer = stub_clEnqueueFillBuffer,
    .clEnqueueCopyBuffer = stub_clEnqueueCopyBuffer,
    .clEnqueueMapBuffer = stub_clEnqueueMapBuffer,
    .clEnqueueUnmapMemObject = stub_clEnqueueUnmapMemObject,
    .clEnqueueMigrateMemObjects = stub_clEnqueueMigrateMemObjects,
    .clEnqueueNDRangeKernel = stub_clEnqueueNDRangeKernel,
    .clEnqueueMarkerWithWaitList = stub_clEnqueueMarkerWithWaitList,
    .clEnqueueBarrierWithWaitList = stub_clEnqueueBarrierWithWaitList,
};

#define STUB_EXPORT __attribute__((visibility("default")))
/* Declared in cl_ext.h. */
STUB_EXPORT cl_int CL_API_CALL clIcdGetPlatformIDsKHR(cl_uint num_entries, cl_platform_id *platforms,
                                                      cl_uint *num_platforms) {
  return platform_ids(num_entries, platforms, num_platforms);
}

/* A function pointer as the void pointer that OpenCL asks for; POSIX promises that they have one representation. */
static void *as_pointer(void (*function)(void)) {
  void *pointer;
  memcpy(&pointer, &function, sizeof pointer);
  return pointer;
}

STUB_EXPORT void *CL_API_CALL clGetExtensionFunctionAddress(const char *name) {
  if (strcmp(name, "clIcdGetPlatformIDsKHR") == 0)
    return as_pointer((void (*)(void))clIcdGetPlatformIDsKHR);
  if (strcmp(name, "clGetPlatformInfo") == 0)
    return as_pointer((void (*)(void))stub_clGetPlatformInfo);
  return NULL;
}
