/* SPDX-License-Identifier: Apache-2.0 */
#include "nn.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void clattn_nn_options_init(clattn_nn_options *options) {
  if (options == NULL)
    return;
  memset(options, 0, sizeof(*options));
  options->struct_size = sizeof(*options);
}

clattn_status nn_fail(clattn_error *error, clattn_status status, const char *format, ...) {
  if (error != NULL && error->struct_size == sizeof(*error)) {
    va_list list;
    va_start(list, format);
    error->status = status;
    (void)vsnprintf(error->message, sizeof(error->message), format, list);
    va_end(list);
  }
  return status;
}

void nn_clear(clattn_error *error) {
  if (error == NULL || error->struct_size != sizeof(*error))
    return;
  error->status = CLATTN_SUCCESS;
  error->message[0] = 0;
  error->build_log_length = 0;
  if (error->build_log != NULL && error->build_log_capacity > 0)
    error->build_log[0] = 0;
}

clattn_status nn_check_struct(const char *what, size_t given, size_t expected, const uint32_t *reserved, size_t words,
                              clattn_error *error) {
  if (given != expected)
    return nn_fail(error, CLATTN_ERROR_STRUCT_SIZE, "%s.struct_size is %zu, not %zu: call its _init function", what,
                   given, expected);
  for (size_t i = 0; i < words; ++i)
    if (reserved[i] != 0)
      return nn_fail(error, CLATTN_ERROR_RESERVED, "%s.reserved[%zu] is %u, not 0", what, i, reserved[i]);
  return CLATTN_SUCCESS;
}

static clattn_status check_options(const clattn_nn_options *options, clattn_error *error) {
  const clattn_status status = nn_check_struct("options", options->struct_size, sizeof(*options), options->reserved,
                                               sizeof(options->reserved) / sizeof(options->reserved[0]), error);
  if (status != CLATTN_SUCCESS)
    return status;
  if (options->provider < CLATTN_NN_PROVIDER_DEFAULT || options->provider > CLATTN_NN_PROVIDER_MEASURE)
    return nn_fail(error, CLATTN_ERROR_ENUM, "options.provider is %d, no CLATTN_NN_PROVIDER_ value", options->provider);
  if (options->kernels < CLATTN_NN_KERNELS_DEFAULT || options->kernels > CLATTN_NN_KERNELS_TILES)
    return nn_fail(error, CLATTN_ERROR_ENUM, "options.kernels is %d, no CLATTN_NN_KERNELS_ value", options->kernels);
  if (options->provider >= CLATTN_NN_PROVIDER_CLBLAST && !nn_has_clblast())
    return nn_fail(error, CLATTN_ERROR_NOT_SUPPORTED, "options.provider: this library was built without CLBlast");
  return CLATTN_SUCCESS;
}

/* Vectors of 1 make no kernel for CPUs: 4 at least, as the attention kernels do. */
static int lanes_of(const clattn_device_info *info, clattn_nn_kernels kernels) {
  const int cpu = (info->type & CL_DEVICE_TYPE_CPU) != 0;
  if (kernels == CLATTN_NN_KERNELS_TILES || (kernels == CLATTN_NN_KERNELS_DEFAULT && !cpu))
    return 0;
  return info->native_float_width >= 16 ? 16 : info->native_float_width >= 8 ? 8 : 4;
}

clattn_status clattn_nn_create(clattn_context *context, const clattn_nn_options *options, clattn_nn **out,
                               clattn_error *error) {
  clattn_nn *nn = NULL;
  clattn_status status = CLATTN_SUCCESS;
  clattn_nn_options defaults;
  nn_clear(error);
  if (out != NULL)
    *out = NULL;
  if (context == NULL || out == NULL)
    return nn_fail(error, CLATTN_ERROR_NULL_POINTER, "context and out must not be NULL");
  clattn_nn_options_init(&defaults);
  if (options == NULL)
    options = &defaults;
  status = check_options(options, error);
  if (status != CLATTN_SUCCESS)
    return status;
  nn = calloc(1, sizeof(*nn));
  if (nn == NULL || !clattni_mutex_init(&nn->lock)) {
    free(nn);
    return nn_fail(error, CLATTN_ERROR_OUT_OF_MEMORY, "no host memory for a clattn_nn");
  }
  nn->context = context;
  nn->provider = options->provider;
  clattn_device_info_init(&nn->info);
  status = clattn_context_handles(context, &nn->cl, &nn->device);
  if (status == CLATTN_SUCCESS)
    status = clattn_context_device_info(context, &nn->info);
  if (status != CLATTN_SUCCESS) {
    clattn_nn_release(nn);
    return nn_fail(error, status, "asking the context for its device failed: %s", clattn_status_text(status));
  }
  nn->lanes = lanes_of(&nn->info, options->kernels);
  if (nn->lanes == 0 && (nn->info.max_work_group < 128 || nn->info.local_bytes < 16384)) {
    const unsigned items = nn->info.max_work_group;
    const unsigned long long bytes = nn->info.local_bytes;
    clattn_nn_release(nn);
    return nn_fail(error, CLATTN_ERROR_VARIANT_UNFIT,
                   "tile kernels need work-groups of 128 items and 16384 bytes of local memory; the device has %u and "
                   "%llu: take CLATTN_NN_KERNELS_LANES",
                   items, bytes);
  }
  *out = nn;
  return CLATTN_SUCCESS;
}

void clattn_nn_release(clattn_nn *nn) {
  if (nn == NULL)
    return;
  nn_programs_release(nn);
  nn_measured_release(nn);
  clattni_mutex_destroy(&nn->lock);
  free(nn);
}
