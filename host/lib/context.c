/* SPDX-License-Identifier: Apache-2.0 */
#include "context.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "device.h"
#include "os.h"
#include "status.h"

#define TEXT_OF_(x) #x
#define TEXT_OF(x) TEXT_OF_(x)

const char *clattn_version(void) {
  return TEXT_OF(CLATTN_VERSION_MAJOR) "." TEXT_OF(CLATTN_VERSION_MINOR) "." TEXT_OF(CLATTN_VERSION_PATCH);
}

uint32_t clattn_version_number(void) {
  return CLATTN_VERSION_MAJOR * 10000 + CLATTN_VERSION_MINOR * 100 + CLATTN_VERSION_PATCH;
}

void clattn_context_options_init(clattn_context_options *options) {
  if (options == NULL)
    return;
  memset(options, 0, sizeof(*options));
  options->struct_size = sizeof(*options);
}

void clattni_context_retain(clattn_context *context) {
  atomic_fetch_add(&context->references, 1);
}

void clattni_context_log(const clattn_context *context, int level, const char *format, ...) {
  char line[2048];
  va_list list;
  if (context->log == NULL)
    return;
  va_start(list, format);
  vsnprintf(line, sizeof(line), format, list);
  va_end(list);
  context->log(context->log_user, level, line);
}

void clattn_context_release(clattn_context *context) {
  if (context == NULL || atomic_fetch_sub(&context->references, 1) != 1)
    return;
  const clattni_allocator allocator = context->allocator;
  clattni_programs_store(&context->programs);
  clattni_programs_destroy(&context->programs);
  clattni_verdicts_destroy(&context->verdicts);
  clattni_cache_destroy(&context->cache);
  clReleaseDevice(context->device);
  clReleaseContext(context->cl);
  clattni_free(&allocator, context->tuned);
  clattni_free(&allocator, context->config);
  clattni_free(&allocator, context);
}

static clattn_status check_options(const clattn_context_options *options, clattn_error *error) {
  if (options->struct_size != sizeof(*options))
    return clattni_fail(error, CLATTN_ERROR_STRUCT_SIZE,
                        "clattn_context_options.struct_size is %zu, not %zu: call clattn_context_options_init",
                        options->struct_size, sizeof(*options));
  for (size_t i = 0; i < sizeof(options->reserved) / sizeof(options->reserved[0]); ++i)
    if (options->reserved[i] != 0)
      return clattni_fail(error, CLATTN_ERROR_RESERVED, "clattn_context_options.reserved[%zu] is %u, not 0", i,
                          options->reserved[i]);
  if ((options->alloc_fn == NULL) != (options->free_fn == NULL))
    return clattni_fail(error, CLATTN_ERROR_NULL_POINTER, "alloc_fn and free_fn: give both or none");
  if ((options->cache_get == NULL) != (options->cache_put == NULL))
    return clattni_fail(error, CLATTN_ERROR_NULL_POINTER, "cache_get and cache_put: give both or none");
  if (options->cache_folder != NULL && options->cache_get != NULL)
    return clattni_fail(error, CLATTN_ERROR_VALUE,
                        "cache_folder and cache_get are both given: the cache is one of them");
  if (options->allow_amx > 1)
    return clattni_fail(error, CLATTN_ERROR_VALUE, "allow_amx is %u: must be 0 or 1", options->allow_amx);
  return CLATTN_SUCCESS;
}

/* Cuts "key=value;key=value" apart in place. */
static clattn_status read_config(clattn_context *context, clattn_error *error) {
  char *at = context->config;
  while (at != NULL && *at != 0) {
    char *end = strchr(at, ';');
    if (end != NULL)
      *end = 0;
    char *value = strchr(at, '=');
    if (value == NULL || value[1] == 0)
      return clattni_fail(error, CLATTN_ERROR_TEXT, "config_text: '%.100s' is not key=value", at);
    *value++ = 0;
    if (strcmp(at, "variant") == 0) {
      context->variant = value;
    } else if (strcmp(at, "forbid") == 0) {
      if (context->forbidden_count == CLATTNI_MAX_CONFIG_FORBIDDEN)
        return clattni_fail(error, CLATTN_ERROR_TEXT, "config_text: more than %d forbid keys",
                            CLATTNI_MAX_CONFIG_FORBIDDEN);
      context->forbidden[context->forbidden_count++] = value;
    } else if (strcmp(at, "width") == 0) {
      context->width = strcmp(value, "4") == 0 ? 4 : strcmp(value, "8") == 0 ? 8 : strcmp(value, "16") == 0 ? 16 : 0;
      if (context->width == 0)
        return clattni_fail(error, CLATTN_ERROR_TEXT, "config_text: width=%.100s must be 4, 8 or 16", value);
    } else if (strcmp(at, "trust") == 0) {
      context->trust = strcmp(value, "tested") == 0 ? CLATTNI_TRUST_TESTED
                       : strcmp(value, "all") == 0  ? CLATTNI_TRUST_ALL
                                                    : CLATTNI_TRUST_BY_DEVICE;
      if (context->trust == CLATTNI_TRUST_BY_DEVICE)
        return clattni_fail(error, CLATTN_ERROR_TEXT, "config_text: trust=%.100s must be tested or all", value);
    } else if (strcmp(at, "matrix") == 0) {
      context->emulated = clattni_matrix_named(value);
      if (context->emulated == CLATTNI_MATRIX_NONE)
        return clattni_fail(
            error, CLATTN_ERROR_TEXT,
            "config_text: matrix=%.100s must be emulate-UNIT; units are nvidia-75, nvidia, wmma, wmma-12, "
            "mfma-90a, mfma, dpas-8 and dpas-16",
            value);
    } else {
      return clattni_fail(error, CLATTN_ERROR_TEXT,
                          "config_text: unknown key '%.100s'; there are variant, forbid, width, trust and matrix", at);
    }
    at = end != NULL ? end + 1 : NULL;
  }
  return CLATTN_SUCCESS;
}

/* What was measured on another device, or with another driver, does no harm and no good: the application goes on without
 * it, as it would after an update of its driver. */
static clattn_status read_tuning(clattn_context *context, const char *text, clattn_error *error) {
  const size_t bytes = clattni_tuning_lines(text) * sizeof(*context->tuned);
  context->tuned = clattni_alloc(&context->allocator, bytes);
  if (context->tuned == NULL)
    return clattni_fail(error, CLATTN_ERROR_OUT_OF_MEMORY, "no host memory for tuning_text");
  const clattn_status status = clattni_tuning_parse(text, &context->info, context->tuned, &context->tuning, error);
  if (status == CLATTN_SUCCESS && context->tuning.foreign[0] != 0)
    clattni_context_log(context, CLATTN_LOG_WARNING, "tuning_text is not used: %s", context->tuning.foreign);
  return status;
}

/* Whether the device is one of the context's: 1, 0, or an OpenCL error below 0. */
static int belongs(cl_context cl, cl_device_id device, const clattni_allocator *allocator, clattn_error *error,
                   clattn_status *status) {
  size_t bytes = 0;
  cl_device_id *devices = NULL;
  int found = 0;
  *status = clGetContextInfo(cl, CL_CONTEXT_DEVICES, 0, NULL, &bytes);
  if (*status == CLATTN_SUCCESS) {
    devices = clattni_alloc(allocator, bytes + sizeof(*devices));
    *status =
        devices == NULL ? CLATTN_ERROR_OUT_OF_MEMORY : clGetContextInfo(cl, CL_CONTEXT_DEVICES, bytes, devices, NULL);
  }
  if (*status != CLATTN_SUCCESS)
    clattni_fail(error, *status, "asking the cl_context for its devices failed: %s", clattn_status_text(*status));
  else
    for (size_t i = 0; i < bytes / sizeof(*devices); ++i)
      found = found || devices[i] == device;
  clattni_free(allocator, devices);
  return found;
}

/* A CPU device is this process's CPU. */
static clattn_amx find_amx(const clattn_device_info *info, const clattn_context_options *options) {
  if (info->type != CL_DEVICE_TYPE_CPU || info->address_bits != 64 || !clattni_amx_present())
    return CLATTN_AMX_NONE;
  if (options == NULL || !options->allow_amx)
    return CLATTN_AMX_NOT_ALLOWED;
  return clattni_amx_permit() ? CLATTN_AMX_USABLE : CLATTN_AMX_REFUSED;
}

clattn_status clattn_context_create(cl_context cl, cl_device_id device, const clattn_context_options *options,
                                    clattn_context **out, clattn_error *error) {
  clattn_context *context = NULL;
  clattni_allocator allocator = {NULL, NULL, NULL};
  clattn_status status = CLATTN_SUCCESS;
  int retained_context = 0, retained_device = 0, has_verdicts = 0;
  clattni_clear(error);
  if (out == NULL)
    return clattni_fail(error, CLATTN_ERROR_NULL_POINTER, "out is NULL");
  *out = NULL;
  if (cl == NULL || device == NULL)
    return clattni_fail(error, CLATTN_ERROR_NULL_POINTER, "%s is NULL", cl == NULL ? "context" : "device");
  if (options != NULL) {
    status = check_options(options, error);
    if (status != CLATTN_SUCCESS)
      return status;
    allocator = (clattni_allocator){options->alloc_fn, options->free_fn, options->alloc_user};
  }
  if (!belongs(cl, device, &allocator, error, &status))
    return status != CLATTN_SUCCESS
               ? status
               : clattni_fail(error, CLATTN_ERROR_WRONG_DEVICE, "the device is not one of the cl_context's devices");

  context = clattni_alloc(&allocator, sizeof(*context));
  if (context == NULL) {
    status = clattni_fail(error, CLATTN_ERROR_OUT_OF_MEMORY, "no host memory for a context");
    goto fail;
  }
  atomic_init(&context->references, 1);
  context->allocator = allocator;
  context->cl = cl;
  context->device = device;
  if (options != NULL) {
    context->log = options->log_fn;
    context->log_user = options->log_user;
    if (options->config_text != NULL) {
      context->config = clattni_copy_text(&allocator, options->config_text, strlen(options->config_text));
      if (context->config == NULL) {
        status = clattni_fail(error, CLATTN_ERROR_OUT_OF_MEMORY, "no host memory for config_text");
        goto fail;
      }
      status = read_config(context, error);
      if (status != CLATTN_SUCCESS)
        goto fail;
    }
  }
  status = clattni_device_query(device, &context->info, error);
  if (status != CLATTN_SUCCESS)
    goto fail;
  context->info.amx = find_amx(&context->info, options);
  context->tested = context->trust == CLATTNI_TRUST_TESTED ||
                    (context->trust == CLATTNI_TRUST_BY_DEVICE && (context->info.type & CL_DEVICE_TYPE_CPU) == 0);
  if (options != NULL && options->tuning_text != NULL) {
    status = read_tuning(context, options->tuning_text, error);
    if (status != CLATTN_SUCCESS)
      goto fail;
  }
  status = clRetainContext(cl);
  if (status != CLATTN_SUCCESS) {
    clattni_fail(error, status, "clRetainContext failed: %s", clattn_status_text(status));
    goto fail;
  }
  retained_context = 1;
  status = clRetainDevice(device);
  if (status != CLATTN_SUCCESS) {
    clattni_fail(error, status, "clRetainDevice failed: %s", clattn_status_text(status));
    goto fail;
  }
  retained_device = 1;
  if (!clattni_verdicts_init(&context->verdicts, &context->allocator)) {
    status = clattni_fail(error, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a mutex");
    goto fail;
  }
  has_verdicts = 1;
  clattni_cache_init(&context->cache, options, &context->allocator);
  status = clattni_programs_init(&context->programs, cl, device, &context->cache, &context->allocator);
  if (status != CLATTN_SUCCESS) {
    clattni_fail(error, status, "no memory for a mutex");
    goto fail;
  }
  *out = context;
  return CLATTN_SUCCESS;

fail:
  if (has_verdicts)
    clattni_verdicts_destroy(&context->verdicts);
  if (retained_device)
    clReleaseDevice(device);
  if (retained_context)
    clReleaseContext(cl);
  if (context != NULL) {
    clattni_free(&allocator, context->tuned);
    clattni_cache_destroy(&context->cache);
    clattni_free(&allocator, context->config);
  }
  clattni_free(&allocator, context);
  return status;
}

/* The first usable device of a type over all platforms; 1 if found. */
static int first_device(const cl_platform_id *platforms, cl_uint count, cl_device_type type, cl_platform_id *platform,
                        cl_device_id *device) {
  for (cl_uint i = 0; i < count; ++i) {
    cl_device_id devices[16];
    cl_uint found = 0;
    if (clGetDeviceIDs(platforms[i], type, 16, devices, &found) != CL_SUCCESS)
      continue;
    for (cl_uint d = 0; d < found && d < 16; ++d) {
      clattn_device_info info;
      if (clattni_device_query(devices[d], &info, NULL) == CLATTN_SUCCESS) {
        *platform = platforms[i];
        *device = devices[d];
        return 1;
      }
    }
  }
  return 0;
}

clattn_status clattn_context_create_default(const clattn_context_options *options, clattn_context **out,
                                            clattn_error *error) {
  cl_platform_id platforms[16], platform = NULL;
  cl_uint count = 0;
  cl_device_id device = NULL;
  cl_int code = CL_SUCCESS;
  clattni_clear(error);
  if (out == NULL)
    return clattni_fail(error, CLATTN_ERROR_NULL_POINTER, "out is NULL");
  *out = NULL;
  code = clGetPlatformIDs(16, platforms, &count);
  if (code != CL_SUCCESS && code != -1001 /* CL_PLATFORM_NOT_FOUND_KHR, from the loader */)
    return clattni_fail(error, code, "clGetPlatformIDs failed: %s", clattn_status_text(code));
  if (code != CL_SUCCESS || count == 0)
    return clattni_fail(error, CLATTN_ERROR_NO_DEVICE,
                        "there is no OpenCL platform: install a driver, or PoCL for the CPU");
  if (count > 16)
    count = 16;
  if (!first_device(platforms, count, CL_DEVICE_TYPE_GPU, &platform, &device) &&
      !first_device(platforms, count, CL_DEVICE_TYPE_ACCELERATOR, &platform, &device) &&
      !first_device(platforms, count, CL_DEVICE_TYPE_CPU, &platform, &device))
    return clattni_fail(error, CLATTN_ERROR_NO_DEVICE, "no OpenCL platform has a usable device");

  const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)platform, 0};
  cl_context cl = clCreateContext(properties, 1, &device, NULL, NULL, &code);
  if (code != CL_SUCCESS)
    return clattni_fail(error, code, "clCreateContext failed: %s", clattn_status_text(code));
  const clattn_status status = clattn_context_create(cl, device, options, out, error);
  clReleaseContext(cl); /* clattn's context holds it now */
  return status;
}

clattn_status clattn_context_handles(const clattn_context *context, cl_context *cl, cl_device_id *device) {
  if (context == NULL)
    return CLATTN_ERROR_NULL_POINTER;
  if (cl != NULL)
    *cl = context->cl;
  if (device != NULL)
    *device = context->device;
  return CLATTN_SUCCESS;
}

void clattn_device_info_init(clattn_device_info *info) {
  if (info == NULL)
    return;
  memset(info, 0, sizeof(*info));
  info->struct_size = sizeof(*info);
}

clattn_status clattn_context_device_info(const clattn_context *context, clattn_device_info *info) {
  if (context == NULL || info == NULL)
    return CLATTN_ERROR_NULL_POINTER;
  if (info->struct_size != sizeof(*info))
    return CLATTN_ERROR_STRUCT_SIZE;
  *info = context->info;
  return CLATTN_SUCCESS;
}
