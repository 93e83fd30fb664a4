/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "hook.h"

#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "options.h"
#include "text.h"

static const char option[] = "hook-arg";

/* The hook sees a pointer and no strides. */
static int is_c_order(const cli_tensor *tensor) {
  int64_t step = 1;
  for (int axis = tensor->rank - 1; axis >= 0; axis--) {
    if (tensor->shape[axis] != 1 && tensor->stride[axis] != step)
      return 0;
    step *= tensor->shape[axis];
  }
  return 1;
}

static int take_buffer(const char *source, cli_hook *hook) {
  if (hook->buffers == CLI_HOOK_SLOTS)
    return cli_fail(CLI_USAGE, "--%s buffer=%s is one too many: a hook has %d buffers", option, source, CLI_HOOK_SLOTS);
  cli_tensor *tensor = &hook->buffer[hook->buffers++];
  const int code = cli_tensor_load(tensor, option, source, "f4 f8 f2 u1 b1 i1 i4 i8 u2", 0, CLATTN_NPY_MAX_RANK);
  if (code != CLI_OK)
    return code;
  if (tensor->bytes == 0)
    return cli_fail(CLI_USAGE, "--%s buffer=%s holds no element", option, source);
  if (!is_c_order(tensor))
    return cli_fail(CLI_USAGE, "--%s buffer=%s is in Fortran order; a hook reads C order", option, source);
  return CLI_OK;
}

static int take_scalar(const char *text, cli_hook *hook) {
  if (hook->scalars == CLI_HOOK_SLOTS)
    return cli_fail(CLI_USAGE, "--%s scalar=%s is one too many: a hook has %d scalars", option, text, CLI_HOOK_SLOTS);
  return cli_take_float(option, text, &hook->scalar[hook->scalars++]);
}

int cli_hook_load(const char *path, const char *const *args, int count, cli_hook *out) {
  char *source = NULL;
  size_t length = 0;
  clattn_error error;
  memset(out, 0, sizeof *out);
  clattn_error_init(&error);
  int code = cli_read_file("hook", path, &source, &length);
  if (code == CLI_OK && strlen(source) != length)
    code = cli_fail(CLI_USAGE, "--hook: %s: byte %zu is 0; it must be OpenCL C", path, strlen(source));
  if (code == CLI_OK) {
    const clattn_status status = clattn_hook_create(source, &out->handle, &error);
    code = status == CLATTN_SUCCESS ? CLI_OK : cli_fail_status(status, &error, "--hook");
  }
  for (int i = 0; i < count && code == CLI_OK; i++) {
    if (strncmp(args[i], "buffer=", 7) == 0)
      code = take_buffer(args[i] + 7, out);
    else if (strncmp(args[i], "scalar=", 7) == 0)
      code = take_scalar(args[i] + 7, out);
    else
      code = cli_fail(CLI_USAGE, "--%s takes buffer=F or scalar=X, not '%s'", option, args[i]);
  }
  free(source);
  return code;
}

void cli_hook_close(cli_hook *hook) {
  for (int i = 0; i < CLI_HOOK_SLOTS; i++)
    cli_tensor_close(&hook->buffer[i]);
  clattn_hook_release(hook->handle);
  hook->handle = NULL;
}
