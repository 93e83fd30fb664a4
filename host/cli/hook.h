/* SPDX-License-Identifier: Apache-2.0 */
/* --hook and --hook-arg: the caller's OpenCL C with its buffers and scalars. */
#ifndef CLATTN_CLI_HOOK_H
#define CLATTN_CLI_HOOK_H

#include "tensor.h"

enum { CLI_HOOK_SLOTS = 4 };

typedef struct cli_hook {
  clattn_hook *handle; /* NULL: there is none */
  int buffers, scalars;
  cli_tensor buffer[CLI_HOOK_SLOTS];
  float scalar[CLI_HOOK_SLOTS];
} cli_hook;

/* args: "buffer=F" and "scalar=X", each kind in the order of its slots. */
int cli_hook_load(const char *path, const char *const *args, int count, cli_hook *out);
/* An all-zero hook is accepted. */
void cli_hook_close(cli_hook *hook);

#endif
