/* SPDX-License-Identifier: Apache-2.0 */
#include "enqueue.h"

#include "clattn_launches.h"

#include <string.h>

#include "place.h"
#include "status.h"

void clattn_args_init(clattn_args *args) {
  if (args == NULL)
    return;
  memset(args, 0, sizeof(*args));
  args->struct_size = sizeof(*args);
}

clattn_mem clattn_buffer(cl_mem buffer, uint64_t offset) {
  clattn_mem mem;
  memset(&mem, 0, sizeof(mem));
  mem.buffer = buffer;
  mem.offset = offset;
  return mem;
}

/* The buffer that an argument of this kind is; NULL where the enqueue has none. */
static cl_mem buffer_of(int kind, const clattni_checked *checked, cl_mem workspace) {
  switch (kind) {
  case CLATTNI_ARG_WORKSPACE:
    return workspace;
  case CLATTNI_ARG_SCALE:
    return checked->scale;
  case CLATTNI_ARG_SOFTCAP:
    return checked->softcap;
  default:
    break;
  }
  if (kind >= CLATTNI_ARG_SLOT)
    return checked->buffer[kind - CLATTNI_ARG_SLOT];
  if (kind >= CLATTNI_ARG_HOOK_SCALAR)
    return checked->hook_scalar[kind - CLATTNI_ARG_HOOK_SCALAR];
  if (kind >= CLATTNI_ARG_HOOK_BUFFER)
    return checked->hook_buffer[kind - CLATTNI_ARG_HOOK_BUFFER];
  return checked->array[kind - CLATTNI_ARG_ARRAY];
}

enum { RECORD_BYTES = 8192 /* of one kernel's values; OpenCL promises 1024 */ };

/* Arguments that are told instead of set. */
typedef struct record {
  clattn_launch_arg args[CLATTN_LAUNCH_MOST_ARGS];
  cl_uint count;
  size_t used;
  unsigned char bytes[RECORD_BYTES];
} record;

_Static_assert((int)CLATTNI_MAX_KERNEL_ARGS <= (int)CLATTN_LAUNCH_MOST_ARGS,
               "a kernel has more arguments than are told");

static const char *argument_name(int kind) {
  static const char *const values[CLATTNI_ARG_ARRAY] = {
      [CLATTNI_ARG_PARAMS] = "params",           [CLATTNI_ARG_ROUND] = "round",         [CLATTNI_ARG_CHUNK] = "chunk",
      [CLATTNI_ARG_GATHER] = "gather",           [CLATTNI_ARG_WORKSPACE] = "workspace", [CLATTNI_ARG_SCALE] = "scale",
      [CLATTNI_ARG_SOFTCAP] = "softcap",         [CLATTNI_ARG_HOOK] = "hook",           [CLATTNI_ARG_ROPE] = "rope",
      [CLATTNI_ARG_HOOK_GATHER] = "hook_gather", [CLATTNI_ARG_TO_LOGITS] = "to_logits"};
  static const char *const hook_buffers[4] = {"hook_buffer_0", "hook_buffer_1", "hook_buffer_2", "hook_buffer_3"};
  static const char *const hook_scalars[4] = {"hook_scalar_0", "hook_scalar_1", "hook_scalar_2", "hook_scalar_3"};
  if (kind >= CLATTNI_ARG_SLOT)
    return clattni_slot_name((clattni_slot)(kind - CLATTNI_ARG_SLOT));
  if (kind >= CLATTNI_ARG_HOOK_SCALAR)
    return hook_scalars[kind - CLATTNI_ARG_HOOK_SCALAR];
  if (kind >= CLATTNI_ARG_HOOK_BUFFER)
    return hook_buffers[kind - CLATTNI_ARG_HOOK_BUFFER];
  return kind >= CLATTNI_ARG_ARRAY ? clattni_array_name(kind - CLATTNI_ARG_ARRAY) : values[kind];
}

static int is_output(int kind) {
  return kind == CLATTNI_ARG_SLOT + CLATTNI_O || kind == CLATTNI_ARG_SLOT + CLATTNI_LSE ||
         kind == CLATTNI_ARG_SLOT + CLATTNI_SCORES || kind == CLATTNI_ARG_SLOT + CLATTNI_MAX_LOGIT;
}

/* Where arguments go: into a kernel, or into a record. */
typedef struct target {
  cl_kernel kernel;
  record *told; /* NULL: into the kernel */
} target;

static cl_int set(const target *to, cl_uint at, int kind, size_t bytes, const void *value) {
  if (to->told == NULL)
    return clSetKernelArg(to->kernel, at, bytes, value);
  record *told = to->told;
  if (at >= CLATTN_LAUNCH_MOST_ARGS || bytes > sizeof(told->bytes) - told->used)
    return CLATTN_ERROR_INTERNAL;
  clattn_launch_arg *arg = &told->args[at];
  memset(arg, 0, sizeof(*arg));
  arg->name = argument_name(kind);
  arg->bytes = bytes;
  arg->value = memcpy(told->bytes + told->used, value, bytes);
  told->used += (bytes + 15) / 16 * 16;
  told->used = told->used < sizeof(told->bytes) ? told->used : sizeof(told->bytes);
  told->count = told->count > at ? told->count : at + 1;
  return CL_SUCCESS;
}

static cl_int set_buffer(const target *to, cl_uint at, int kind, cl_mem buffer) {
  const cl_int code = set(to, at, kind, sizeof(cl_mem), &buffer);
  if (code == CL_SUCCESS && to->told != NULL) {
    to->told->args[at].kind = CLATTN_LAUNCH_BUFFER;
    to->told->args[at].output = is_output(kind);
    to->told->args[at].buffer = buffer;
  }
  return code;
}

/* Sets every argument of a kernel that stays the same over an enqueue's launches. */
static cl_int set_arguments(const clattni_kernel *description, const target *to, const clattni_checked *checked,
                            const clattn_params *params, cl_mem workspace) {
  clattn_rotation rope;
  clattn_head_view to_logits;
  cl_uint at = 0;
  clattni_launch_rope(&checked->list, &checked->bases, &rope);
  clattni_launch_max_logit(&checked->list, &checked->bases, &to_logits);
  for (int i = 0; i < CLATTNI_MAX_KERNEL_ARGS && description->args[i] != CLATTNI_ARG_END; ++i) {
    const int kind = description->args[i];
    cl_int code = CL_SUCCESS;
    if (!clattni_arg_present(checked->list.problem, kind))
      continue;
    if (kind == CLATTNI_ARG_PARAMS)
      code = set(to, at, kind, sizeof(*params), params);
    else if (kind == CLATTNI_ARG_HOOK)
      code = set(to, at, kind, sizeof(checked->hook), &checked->hook);
    else if (kind == CLATTNI_ARG_HOOK_GATHER)
      code = set(to, at, kind, sizeof(checked->hook_gather), &checked->hook_gather);
    else if (kind == CLATTNI_ARG_ROPE)
      code = set(to, at, kind, sizeof(rope), &rope);
    else if (kind == CLATTNI_ARG_TO_LOGITS)
      code = set(to, at, kind, sizeof(to_logits), &to_logits);
    else if (kind >= CLATTNI_ARG_WORKSPACE) {
      code = set_buffer(to, at, kind, buffer_of(kind, checked, workspace));
    }
    if (code != CL_SUCCESS)
      return code;
    ++at;
  }
  return CL_SUCCESS;
}

/* Of the arguments that differ between launches, which come before any that a program may lack. */
static cl_int set_argument_of_kind(const clattni_kernel *description, const target *to, int kind, size_t bytes,
                                   const void *value) {
  for (cl_uint i = 0; i < CLATTNI_MAX_KERNEL_ARGS; ++i)
    if (description->args[i] == kind)
      return set(to, i, kind, bytes, value);
  return CL_SUCCESS;
}

/* The arguments that differ between launches. */
static cl_int set_launch_arguments(const clattn_plan *plan, const clattni_checked *checked,
                                   const clattni_launch *launch, const target *to) {
  const clattni_kernel *description = &plan->choice.variant->kernels[launch->entry];
  if (launch->entry == CLATTNI_GATHER_ENTRIES) {
    clattn_gather gather;
    clattni_gather_of(plan, checked, &gather);
    return set_argument_of_kind(description, to, CLATTNI_ARG_GATHER, sizeof(gather), &gather);
  }
  if (launch->entry != CLATTNI_STAGE_ENTRIES)
    return set_argument_of_kind(description, to, CLATTNI_ARG_ROUND, sizeof(launch->round), &launch->round);
  clattn_entries chunk;
  memset(&chunk, 0, sizeof(chunk));
  chunk.to = checked->bases.workspace + checked->layout.entries + CLATTN_ENTRY_WORDS * launch->first_entry;
  chunk.count = launch->count;
  for (int32_t i = 0; i < launch->count; ++i)
    clattni_entry_of(plan, checked, launch->first_entry + i, &chunk.word[CLATTN_ENTRY_WORDS * i]);
  return set_argument_of_kind(description, to, CLATTNI_ARG_CHUNK, sizeof(chunk), &chunk);
}

/* Emits the launch list.  *event and the launch events are set only on success. */
static clattn_status emit(const clattn_plan *plan, cl_command_queue queue, const clattni_checked *checked,
                          clattni_kernel_set *set, cl_mem workspace, cl_uint num_events, const cl_event *wait_list,
                          cl_event *event) {
  const clattn_args *args = checked->args;
  const clattni_launch_list *list = &checked->list;
  clattn_params params;
  cl_event previous = NULL;
  int ready[CLATTNI_ENTRIES] = {0};
  uint32_t recorded = 0;
  cl_int code = CL_SUCCESS;
  clattni_launch_params(list, &checked->bases, &params);

  for (int64_t i = 0; i < list->count && code == CL_SUCCESS; ++i) {
    clattni_launch launch;
    cl_event done = NULL;
    clattni_launch_at(list, i, &launch);
    const int last = i + 1 == list->count;
    const int chained = previous != NULL && launch.depends_on >= 0; /* an in-order queue needs no event for it */
    const int wanted = (last && event != NULL) || (!last && checked->out_of_order) || args->launch_events != NULL;
    const target to = {set->kernel[launch.entry], NULL};
    if (!ready[launch.entry]) {
      code = set_arguments(&plan->choice.variant->kernels[launch.entry], &to, checked, &params, workspace);
      ready[launch.entry] = 1;
    }
    if (code == CL_SUCCESS)
      code = set_launch_arguments(plan, checked, &launch, &to);
    if (code == CL_SUCCESS)
      code = clEnqueueNDRangeKernel(queue, to.kernel, launch.dims, NULL, launch.global, launch.local,
                                    i == 0 ? num_events : (chained ? 1 : 0),
                                    i == 0 ? wait_list : (chained ? &previous : NULL), wanted ? &done : NULL);
    if (previous != NULL)
      clReleaseEvent(previous);
    previous = NULL;
    if (code != CL_SUCCESS)
      break;
    if (args->launch_events != NULL) {
      args->launch_events[recorded] = done;
      if ((last && event != NULL) || (!last && checked->out_of_order))
        code = clRetainEvent(done);
      if (code != CL_SUCCESS) { /* the one reference is the list's, released below */
        ++recorded;
        break;
      }
      ++recorded;
    }
    if (last && event != NULL)
      *event = done;
    else if (!last && checked->out_of_order)
      previous = done;
  }
  if (code != CL_SUCCESS) {
    for (uint32_t i = 0; i < recorded; ++i) {
      clReleaseEvent(args->launch_events[i]);
      args->launch_events[i] = NULL;
    }
    return clattni_fail(args->error, code, "enqueuing %s failed: %s", plan->choice.variant->name,
                        clattn_status_text(code));
  }
  if (args->launch_events != NULL)
    *args->num_launch_events = recorded;
  return CLATTN_SUCCESS;
}

/* What comes before anything else that is checked. */
static clattn_status begin(const clattn_plan *plan, cl_command_queue queue, const clattn_args *args) {
  if (args == NULL)
    return CLATTN_ERROR_NULL_POINTER;
  if (args->struct_size != sizeof(*args))
    return CLATTN_ERROR_STRUCT_SIZE; /* error may lie elsewhere in another release's struct */
  clattni_clear(args->error);
  if (args->num_launch_events != NULL)
    *args->num_launch_events = 0;
  if (plan == NULL || queue == NULL)
    return clattni_fail(args->error, CLATTN_ERROR_NULL_POINTER, "%s is NULL", plan == NULL ? "plan" : "queue");
  return CLATTN_SUCCESS;
}

clattn_status clattn_enqueue_check(const clattn_plan *plan, cl_command_queue queue, const clattn_args *args) {
  clattni_checked checked;
  const clattn_status status = begin(plan, queue, args);
  return status == CLATTN_SUCCESS ? clattni_enqueue_check(plan, queue, args, &checked) : status;
}

clattn_status clattn_enqueue(const clattn_plan *plan, cl_command_queue queue, const clattn_args *args,
                             cl_uint num_events, const cl_event *wait_list, cl_event *event) {
  clattni_checked checked;
  clattni_kernel_set *set = NULL;
  cl_mem own_workspace = NULL, workspace = NULL;
  if (event != NULL)
    *event = NULL;
  clattn_status status = begin(plan, queue, args);
  if (status != CLATTN_SUCCESS)
    return status;
  status = clattni_check_wait_list(plan->context, num_events, wait_list, args->error);
  if (status == CLATTN_SUCCESS)
    status = clattni_enqueue_check(plan, queue, args, &checked);
  if (status == CLATTN_SUCCESS && plan->check_contents)
    status = clattni_check_contents(plan, queue, &checked, num_events, wait_list);
  if (status != CLATTN_SUCCESS)
    return status;
  if (checked.list.count == 0) {
    if (event != NULL)
      status = clEnqueueMarkerWithWaitList(queue, num_events, wait_list, event);
    return status == CLATTN_SUCCESS ? status
                                    : clattni_fail(args->error, status, "clEnqueueMarkerWithWaitList failed: %s",
                                                   clattn_status_text(status));
  }

  workspace = args->workspace.buffer;
  if (workspace == NULL && checked.layout.bytes > 0) {
    cl_int code = CL_SUCCESS;
    own_workspace = clCreateBuffer(plan->context->cl, CL_MEM_READ_WRITE, (size_t)checked.layout.bytes, NULL, &code);
    if (code != CL_SUCCESS) {
      own_workspace = NULL;
      status = clattni_fail(args->error, code, "making a workspace of %llu bytes failed: %s",
                            (unsigned long long)checked.layout.bytes, clattn_status_text(code));
      goto done;
    }
    workspace = own_workspace;
  }
  set = clattni_program_lend(&plan->context->programs, plan->program, &status);
  if (set == NULL) {
    clattni_fail(args->error, status, "making kernels failed: %s", clattn_status_text(status));
    goto done;
  }
  status = emit(plan, queue, &checked, set, workspace, num_events, wait_list, event);
  if (status == CLATTN_SUCCESS)
    clattni_program_launched(plan->program);

done:
  clattni_program_return(plan->program, set);
  if (own_workspace != NULL)
    clReleaseMemObject(own_workspace); /* the launches hold it until they are done */
  return status;
}

clattn_status clattn_launches(const clattn_plan *plan, cl_command_queue queue, const clattn_args *args,
                              clattn_status (*visit)(void *user, const clattn_launch *launch), void *user) {
  clattni_checked checked;
  clattni_program_text text;
  clattn_params params;
  clattn_status status = begin(plan, queue, args);
  if (status != CLATTN_SUCCESS)
    return status;
  if (visit == NULL)
    return clattni_fail(args->error, CLATTN_ERROR_NULL_POINTER, "visit is NULL");
  status = clattni_enqueue_check(plan, queue, args, &checked);
  if (status != CLATTN_SUCCESS)
    return status;
  if (args->workspace.buffer == NULL && checked.layout.bytes > 0)
    return clattni_fail(args->error, CLATTN_ERROR_NULL_POINTER,
                        "the launches need a workspace of %llu bytes, and none is given",
                        (unsigned long long)checked.layout.bytes);
  const clattni_variant *variant = plan->choice.variant;
  if (!clattni_program_text_of(variant->file, plan->choice.options, plan->problem.hook, &text))
    return clattni_fail(args->error, CLATTN_ERROR_INTERNAL, "kernel file '%s' is not there", variant->file);
  clattni_launch_params(&checked.list, &checked.bases, &params);
  for (int64_t i = 0; i < checked.list.count; ++i) {
    record told = {.count = 0};
    const target to = {NULL, &told};
    clattni_launch step;
    clattni_launch_at(&checked.list, i, &step);
    const clattni_kernel *description = &variant->kernels[step.entry];
    status = set_arguments(description, &to, &checked, &params, args->workspace.buffer);
    if (status == CLATTN_SUCCESS)
      status = set_launch_arguments(plan, &checked, &step, &to);
    if (status != CLATTN_SUCCESS)
      return clattni_fail(args->error, status, "the arguments of %s are more than can be told", description->name);
    clattn_launch launch = {.struct_size = sizeof(launch),
                            .index = (uint32_t)i,
                            .count = (uint32_t)checked.list.count,
                            .variant = variant->name,
                            .file = variant->file,
                            .options = text.options,
                            .source_count = text.count,
                            .dims = step.dims,
                            .sources = text.text,
                            .source_bytes = text.size,
                            .program = clattni_program_built(plan->program),
                            .kernel_name = description->name,
                            .arg_count = told.count,
                            .args = told.args};
    for (uint32_t axis = 0; axis < step.dims; ++axis) {
      launch.global[axis] = step.global[axis];
      launch.local[axis] = step.local[axis];
    }
    status = visit(user, &launch);
    if (status != CLATTN_SUCCESS)
      return status;
  }
  return CLATTN_SUCCESS;
}

clattn_status clattn_attention(clattn_context *context, cl_command_queue queue, const clattn_problem *problem,
                               const clattn_args *args, cl_uint num_events, const cl_event *wait_list,
                               cl_event *event) {
  clattn_plan *plan = NULL;
  if (event != NULL)
    *event = NULL;
  if (args == NULL)
    return CLATTN_ERROR_NULL_POINTER;
  if (args->struct_size != sizeof(*args))
    return CLATTN_ERROR_STRUCT_SIZE;
  if (args->num_launch_events != NULL)
    *args->num_launch_events = 0;
  clattn_status status = clattn_plan_create(context, problem, NULL, &plan, args->error);
  if (status == CLATTN_SUCCESS)
    status = clattn_enqueue(plan, queue, args, num_events, wait_list, event);
  clattn_plan_release(plan);
  return status;
}
