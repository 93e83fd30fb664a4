/* SPDX-License-Identifier: Apache-2.0
 *
 * clattn_launches: what an enqueue launches, one kernel after the other, with its source, options, range and arguments.
 * For bug reports (`clattn run --dump` is made with it), recorders, and other people's command buffers; not needed to
 * use clattn.
 */
#ifndef CLATTN_LAUNCHES_H
#define CLATTN_LAUNCHES_H

#include "clattn.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CLATTN_LAUNCH_MOST_ARGS = 40, CLATTN_LAUNCH_MOST_SOURCES = 4 };

typedef enum clattn_launch_kind {
  CLATTN_LAUNCH_BYTES, /* `value` points to them */
  CLATTN_LAUNCH_BUFFER /* `buffer`, the whole of it; NULL: the kernel is passed no buffer */
} clattn_launch_kind;

/* An argument as clSetKernelArg takes it. */
typedef struct clattn_launch_arg {
  const char *name; /* "params", "workspace", a tensor's or an array's */
  int32_t kind;     /* CLATTN_LAUNCH_ */
  int32_t output;   /* 1: a buffer of the caller's that enqueues write */
  size_t bytes;     /* of the value; of a buffer sizeof(cl_mem) */
  const void *value;
  cl_mem buffer;
} clattn_launch_arg;

/* Everything that it points to lives as long as the call that it is given to; program and kernel_name as long as the
 * plan.  New fields come at the end. */
typedef struct clattn_launch {
  size_t struct_size;
  uint32_t index, count; /* of this launch, counted from 0; of all, each of which needs the ones before it complete */
  const char *variant;
  const char *file;    /* of kernels/, without its ending */
  const char *options; /* compiler options, all of them */
  uint32_t source_count;
  uint32_t dims;
  const char *const *sources; /* as clCreateProgramWithSource takes them; together they need no other file */
  const size_t *source_bytes;
  cl_program program; /* built, of the plan's context */
  const char *kernel_name;
  size_t global[3], local[3]; /* dims of them; the offset is NULL */
  uint32_t arg_count;
  uint32_t reserved0;
  const clattn_launch_arg *args;
} clattn_launch;

/* What clattn_enqueue(plan, queue, args, ...) would launch: the same checks, the same launches and arguments, and
 * `visit` is called for each of them in order instead.  Nothing is launched.  A workspace is needed where the plan has
 * one (clattn_plan_info.workspace_bytes), since its buffer is an argument.  Stops at the first result that is not
 * CLATTN_SUCCESS, and returns it. */
CLATTN_API clattn_status clattn_launches(const clattn_plan *plan, cl_command_queue queue, const clattn_args *args,
                                         clattn_status (*visit)(void *user, const clattn_launch *launch), void *user);

#ifdef __cplusplus
}
#endif

#endif
