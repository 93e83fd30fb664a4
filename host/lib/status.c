/* SPDX-License-Identifier: Apache-2.0 */
#include "status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* OpenCL's codes are written as numbers: the headers hide those above the targeted version, but a newer driver may
 * return them all the same. */
static const struct {
  clattn_status status;
  const char *name;
  const char *text;
} table[] = {
    {CLATTN_SUCCESS, "CLATTN_SUCCESS", "The call succeeded."},

    {CLATTN_ERROR_NULL_POINTER, "CLATTN_ERROR_NULL_POINTER", "A required pointer is NULL."},
    {CLATTN_ERROR_STRUCT_SIZE, "CLATTN_ERROR_STRUCT_SIZE",
     "A struct_size is not one that this library knows; the struct's _init function sets it."},
    {CLATTN_ERROR_RESERVED, "CLATTN_ERROR_RESERVED", "A reserved word or an unknown flag bit is not zero."},
    {CLATTN_ERROR_ENUM, "CLATTN_ERROR_ENUM", "An enum field holds a value that is not allowed there."},
    {CLATTN_ERROR_SHAPE, "CLATTN_ERROR_SHAPE", "Sizes are out of range or do not fit each other."},
    {CLATTN_ERROR_STRIDE, "CLATTN_ERROR_STRIDE", "A stride is negative or not usable."},
    {CLATTN_ERROR_OVERFLOW, "CLATTN_ERROR_OVERFLOW", "The extent of a tensor does not fit in 63 bits."},
    {CLATTN_ERROR_VALUE, "CLATTN_ERROR_VALUE", "A scalar is out of its range."},
    {CLATTN_ERROR_LENGTH, "CLATTN_ERROR_LENGTH", "An entry of a length, offset or prefix array is out of range."},
    {CLATTN_ERROR_TENSOR_MISSING, "CLATTN_ERROR_TENSOR_MISSING",
     "The problem uses a tensor or array that the arguments do not give."},
    {CLATTN_ERROR_TENSOR_UNUSED, "CLATTN_ERROR_TENSOR_UNUSED",
     "The arguments give a tensor or array that the problem does not use."},
    {CLATTN_ERROR_BUFFER_TOO_SMALL, "CLATTN_ERROR_BUFFER_TOO_SMALL", "Memory is too small for what it has to hold."},
    {CLATTN_ERROR_ALIGNMENT, "CLATTN_ERROR_ALIGNMENT", "A base or stride breaks the promised alignment."},
    {CLATTN_ERROR_OVERLAP, "CLATTN_ERROR_OVERLAP", "An output overlaps an input, another output or the workspace."},
    {CLATTN_ERROR_WRONG_CONTEXT, "CLATTN_ERROR_WRONG_CONTEXT",
     "A queue, buffer or event belongs to another OpenCL context."},
    {CLATTN_ERROR_WRONG_DEVICE, "CLATTN_ERROR_WRONG_DEVICE", "The device is not the one that was expected."},
    {CLATTN_ERROR_WORKSPACE_TOO_SMALL, "CLATTN_ERROR_WORKSPACE_TOO_SMALL",
     "The workspace, or the cap on it, is below what the plan needs."},
    {CLATTN_ERROR_BOUND, "CLATTN_ERROR_BOUND", "A size is outside the bounds that the problem sets."},
    {CLATTN_ERROR_UNKNOWN_VARIANT, "CLATTN_ERROR_UNKNOWN_VARIANT", "No variant has this name."},
    {CLATTN_ERROR_VARIANT_UNFIT, "CLATTN_ERROR_VARIANT_UNFIT",
     "The named variant can not take this problem on this device."},
    {CLATTN_ERROR_NOT_SUPPORTED, "CLATTN_ERROR_NOT_SUPPORTED",
     "The request is legal, but this release does not support it yet."},
    {CLATTN_ERROR_NO_DEVICE, "CLATTN_ERROR_NO_DEVICE", "There is no OpenCL platform, or no usable device."},
    {CLATTN_ERROR_OUT_OF_MEMORY, "CLATTN_ERROR_OUT_OF_MEMORY", "Host memory could not be allocated."},
    {CLATTN_ERROR_TEXT, "CLATTN_ERROR_TEXT", "A problem line or config text can not be read."},
    {CLATTN_ERROR_SELF_TEST, "CLATTN_ERROR_SELF_TEST",
     "The kernels build and run on this device but compute wrong numbers."},
    {CLATTN_ERROR_INTERNAL, "CLATTN_ERROR_INTERNAL", "This is a fault of clattn itself; please report it."},

    {-1, "CL_DEVICE_NOT_FOUND", "No OpenCL device of the requested type was found."},
    {-2, "CL_DEVICE_NOT_AVAILABLE", "The OpenCL device exists but is not available."},
    {-3, "CL_COMPILER_NOT_AVAILABLE", "The OpenCL device has no compiler."},
    {-4, "CL_MEM_OBJECT_ALLOCATION_FAILURE", "The device could not allocate memory for a buffer."},
    {-5, "CL_OUT_OF_RESOURCES", "The device ran out of resources."},
    {-6, "CL_OUT_OF_HOST_MEMORY", "The OpenCL implementation ran out of host memory."},
    {-7, "CL_PROFILING_INFO_NOT_AVAILABLE", "The event has no profiling information."},
    {-8, "CL_MEM_COPY_OVERLAP", "Source and destination of a copy overlap."},
    {-9, "CL_IMAGE_FORMAT_MISMATCH", "Two images have different formats."},
    {-10, "CL_IMAGE_FORMAT_NOT_SUPPORTED", "The image format is not supported."},
    {-11, "CL_BUILD_PROGRAM_FAILURE", "The OpenCL compiler refused a program; the build log says why."},
    {-12, "CL_MAP_FAILURE", "Memory could not be mapped into the host's address space."},
    {-13, "CL_MISALIGNED_SUB_BUFFER_OFFSET", "A sub-buffer's offset is not aligned as the device requires."},
    {-14, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST", "A command that was waited for has failed."},
    {-15, "CL_COMPILE_PROGRAM_FAILURE", "A program could not be compiled."},
    {-16, "CL_LINKER_NOT_AVAILABLE", "The OpenCL device has no linker."},
    {-17, "CL_LINK_PROGRAM_FAILURE", "Programs could not be linked."},
    {-18, "CL_DEVICE_PARTITION_FAILED", "The device could not be partitioned."},
    {-19, "CL_KERNEL_ARG_INFO_NOT_AVAILABLE", "Information about a kernel's arguments is not available."},
    {-30, "CL_INVALID_VALUE", "A value passed to OpenCL is not valid."},
    {-31, "CL_INVALID_DEVICE_TYPE", "The device type is not valid."},
    {-32, "CL_INVALID_PLATFORM", "The platform is not valid."},
    {-33, "CL_INVALID_DEVICE", "The device is not valid."},
    {-34, "CL_INVALID_CONTEXT", "The context is not valid, or two objects are of different contexts."},
    {-35, "CL_INVALID_QUEUE_PROPERTIES", "The queue properties are not supported by the device."},
    {-36, "CL_INVALID_COMMAND_QUEUE", "The command queue is not valid."},
    {-37, "CL_INVALID_HOST_PTR", "The host pointer does not go with the memory flags."},
    {-38, "CL_INVALID_MEM_OBJECT", "The memory object is not valid."},
    {-39, "CL_INVALID_IMAGE_FORMAT_DESCRIPTOR", "The image format is not valid."},
    {-40, "CL_INVALID_IMAGE_SIZE", "The image size is not valid or too large."},
    {-41, "CL_INVALID_SAMPLER", "The sampler is not valid."},
    {-42, "CL_INVALID_BINARY", "The program binary is not valid for the device."},
    {-43, "CL_INVALID_BUILD_OPTIONS", "The build options are not valid."},
    {-44, "CL_INVALID_PROGRAM", "The program is not valid."},
    {-45, "CL_INVALID_PROGRAM_EXECUTABLE", "The program has not been built for the device."},
    {-46, "CL_INVALID_KERNEL_NAME", "The program has no kernel of this name."},
    {-47, "CL_INVALID_KERNEL_DEFINITION", "The kernel is declared differently for different devices."},
    {-48, "CL_INVALID_KERNEL", "The kernel is not valid."},
    {-49, "CL_INVALID_ARG_INDEX", "The kernel has no argument of this index."},
    {-50, "CL_INVALID_ARG_VALUE", "The value of a kernel argument is not valid."},
    {-51, "CL_INVALID_ARG_SIZE", "The size of a kernel argument does not match its type."},
    {-52, "CL_INVALID_KERNEL_ARGS", "Not all arguments of the kernel have been set."},
    {-53, "CL_INVALID_WORK_DIMENSION", "The number of work dimensions is not valid."},
    {-54, "CL_INVALID_WORK_GROUP_SIZE", "The work-group size is not valid for the kernel or device."},
    {-55, "CL_INVALID_WORK_ITEM_SIZE", "A work-group is larger than the device allows on an axis."},
    {-56, "CL_INVALID_GLOBAL_OFFSET", "The global offset is not valid."},
    {-57, "CL_INVALID_EVENT_WAIT_LIST", "The event wait list is not valid."},
    {-58, "CL_INVALID_EVENT", "The event is not valid."},
    {-59, "CL_INVALID_OPERATION", "The operation is not valid here."},
    {-60, "CL_INVALID_GL_OBJECT", "The OpenGL object is not valid."},
    {-61, "CL_INVALID_BUFFER_SIZE", "The buffer size is zero or above the device's limit."},
    {-62, "CL_INVALID_MIP_LEVEL", "The mip level is not valid."},
    {-63, "CL_INVALID_GLOBAL_WORK_SIZE", "The global work size is zero or too large."},
    {-64, "CL_INVALID_PROPERTY", "A property is not valid."},
    {-65, "CL_INVALID_IMAGE_DESCRIPTOR", "The image descriptor is not valid."},
    {-66, "CL_INVALID_COMPILER_OPTIONS", "The compiler options are not valid."},
    {-67, "CL_INVALID_LINKER_OPTIONS", "The linker options are not valid."},
    {-68, "CL_INVALID_DEVICE_PARTITION_COUNT", "The number of sub-devices is not valid."},
    {-69, "CL_INVALID_PIPE_SIZE", "The pipe size is not valid."},
    {-70, "CL_INVALID_DEVICE_QUEUE", "The device-side queue is not valid."},
    {-71, "CL_INVALID_SPEC_ID", "The program has no specialisation constant of this id."},
    {-72, "CL_MAX_SIZE_RESTRICTION_EXCEEDED", "A size is above the limit that the kernel declares."},
    {-1000, "CL_INVALID_GL_SHAREGROUP_REFERENCE_KHR", "The OpenGL context to share with is not valid."},
    {-1001, "CL_PLATFORM_NOT_FOUND_KHR", "No OpenCL platform is installed: the loader found no driver."},
    {-1057, "CL_DEVICE_PARTITION_FAILED_EXT", "The device could not be partitioned."},
    {-1058, "CL_INVALID_PARTITION_COUNT_EXT", "The number of sub-devices is not valid."},
    {-1059, "CL_INVALID_PARTITION_NAME_EXT", "The kind of partition is not valid."},
    {-1092, "CL_EGL_RESOURCE_NOT_ACQUIRED_KHR", "An EGL object was used before it was acquired."},
    {-1093, "CL_INVALID_EGL_OBJECT_KHR", "The EGL object is not valid."},
    {-1094, "CL_INVALID_ACCELERATOR_INTEL", "The accelerator object is not valid."},
};

static const char unknown_name[] = "UNKNOWN_STATUS";
static const char unknown_text[] = "The status code is not known to this version of clattn.";

const char *clattn_status_name(clattn_status status) {
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
    if (table[i].status == status)
      return table[i].name;
  }
  return unknown_name;
}

const char *clattn_status_text(clattn_status status) {
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
    if (table[i].status == status)
      return table[i].text;
  }
  return unknown_text;
}

void clattn_error_init(clattn_error *error) {
  if (error == NULL)
    return;
  memset(error, 0, sizeof *error);
  error->struct_size = sizeof *error;
}

/* A struct of another size is left alone: an error about an error has nowhere to go. */
static int usable(const clattn_error *error) {
  return error != NULL && error->struct_size == sizeof *error;
}

clattn_status clattni_fail(clattn_error *error, clattn_status status, const char *format, ...) {
  if (usable(error)) {
    va_list values;
    va_start(values, format);
    if (vsnprintf(error->message, sizeof error->message, format, values) < 0)
      error->message[0] = '\0';
    va_end(values);
    error->status = status;
  }
  return status;
}

void clattni_clear(clattn_error *error) {
  if (!usable(error))
    return;
  error->status = CLATTN_SUCCESS;
  error->message[0] = '\0';
  clattni_set_log(error, "", 0);
}

void clattni_set_log(clattn_error *error, const char *log, size_t length) {
  if (!usable(error))
    return;
  error->build_log_length = length;
  if (error->build_log == NULL || error->build_log_capacity == 0)
    return;
  const size_t kept = length < error->build_log_capacity ? length : error->build_log_capacity - 1;
  if (kept > 0)
    memcpy(error->build_log, log, kept);
  error->build_log[kept] = '\0';
}
