/* SPDX-License-Identifier: Apache-2.0 */
#include "plan.h"

#include <stdio.h>
#include <string.h>

#include "problem.h"
#include "status.h"

#define MAX_LINE 4096 /* of a problem */

void clattn_support_init(clattn_support *support) {
  if (support == NULL)
    return;
  memset(support, 0, sizeof(*support));
  support->struct_size = sizeof(*support);
}

void clattn_plan_options_init(clattn_plan_options *options) {
  if (options == NULL)
    return;
  memset(options, 0, sizeof(*options));
  options->struct_size = sizeof(*options);
}

_Static_assert((int)CLATTNI_ENTRIES <= CLATTNI_MAX_KERNELS, "a kernel set has too little room for a variant's kernels");

void clattn_plan_info_init(clattn_plan_info *info) {
  if (info == NULL)
    return;
  memset(info, 0, sizeof(*info));
  info->struct_size = sizeof(*info);
}

/* Checks, resolves and selects, by the rest of a request: what the support queries and plan creation share. */
static clattn_status choose_by(clattni_request *request, const clattn_problem *problem, clattn_problem *resolved,
                               clattni_choice *choice, clattn_error *error) {
  const clattn_status status = clattn_problem_check(problem, error);
  if (status != CLATTN_SUCCESS)
    return status;
  clattni_problem_resolve(problem, resolved);
  request->problem = resolved;
  return clattni_select(request, choice, error);
}

static void start_request(const clattn_context *context, const char *variant, uint64_t workspace_cap,
                          const clattni_tuning *tuning, clattni_request *request) {
  memset(request, 0, sizeof(*request));
  request->device = &context->info;
  request->variant = variant != NULL ? variant : context->variant;
  request->forbidden_count = context->forbidden_count;
  request->width = context->width;
  request->emulated = context->emulated;
  request->tuning = tuning;
  request->workspace_cap = workspace_cap;
  for (uint32_t i = 0; i < context->forbidden_count; ++i)
    request->forbidden[i] = context->forbidden[i];
}

/* With the context's tuning, or another one (NULL: none). */
static clattn_status choose_tuned(const clattn_context *context, const clattn_problem *problem, const char *variant,
                                  uint64_t workspace_cap, const clattni_tuning *tuning, clattn_problem *resolved,
                                  clattni_choice *choice, clattn_error *error) {
  clattni_request request;
  start_request(context, variant, workspace_cap, tuning, &request);
  return choose_by(&request, problem, resolved, choice, error);
}

static const clattni_tuning *tuning_of(const clattn_context *context) {
  return context->tuned != NULL ? &context->tuning : NULL;
}

clattn_status clattni_plan_choose(const clattn_context *context, const clattn_problem *problem, const char *variant,
                                  uint64_t workspace_cap, clattn_problem *resolved, clattni_choice *choice,
                                  clattn_error *error) {
  return choose_tuned(context, problem, variant, workspace_cap, tuning_of(context), resolved, choice, error);
}

/* Rules, sizes and strides are arguments, so the verdict on a program holds for all of them; what has kernels of its own,
 * or grids of its own, counts. */
void clattni_plan_verdict_key(const clattni_choice *choice, const clattn_problem *resolved, const clattn_hook *hook,
                              char key[CLATTNI_VERDICT_KEY]) {
  const uint32_t outputs = resolved->outputs & ~(uint32_t)CLATTN_OUT_LSE;
  snprintf(key, CLATTNI_VERDICT_KEY, "%s %x %d %d %llu %s", choice->variant->name, (unsigned)outputs,
           outputs & CLATTN_OUT_SCORES ? (int)resolved->stage : -1, choice->pack > 1,
           hook != NULL ? (unsigned long long)hook->id : 0ULL, choice->options);
}

/* Words behind the reason, if there is room for all of them. */
static void add_words(clattni_choice *choice, const char *words) {
  const size_t length = strlen(choice->why);
  if (length + strlen(words) < sizeof(choice->why))
    memcpy(choice->why + length, words, strlen(words) + 1);
}

static uint32_t index_of(const clattni_variant *variant) {
  uint32_t index = 0;
  while (clattni_variant_at(index) != variant)
    ++index;
  return index;
}

/* What is known of a choice: a failure, the hook's program counted, or *untested set. */
static const clattni_verdict *failure_of(clattn_context *context, const clattni_choice *choice,
                                         const clattn_problem *resolved, int *untested) {
  char key[CLATTNI_VERDICT_KEY];
  clattni_plan_verdict_key(choice, resolved, NULL, key);
  const clattni_verdict *verdict = clattni_verdict_find(&context->verdicts, key);
  if (verdict != NULL && verdict->status == CLATTN_SUCCESS && resolved->hook != NULL) {
    clattni_plan_verdict_key(choice, resolved, resolved->hook, key);
    verdict = clattni_verdict_find(&context->verdicts, key);
  }
  *untested = verdict == NULL;
  return verdict != NULL && verdict->status != CLATTN_SUCCESS ? verdict : NULL;
}

clattn_status clattni_plan_choose_tested(clattn_context *context, const clattn_problem *problem, const char *variant,
                                         uint64_t workspace_cap, clattn_problem *resolved, clattni_choice *choice,
                                         int *untested, clattn_error *error) {
  clattni_request request;
  *untested = 0;
  start_request(context, variant, workspace_cap, tuning_of(context), &request);
  clattn_status status = choose_by(&request, problem, resolved, choice, error);
  if (!context->tested)
    return status;
  while (status == CLATTN_SUCCESS) {
    const clattni_verdict *failure = failure_of(context, choice, resolved, untested);
    if (failure == NULL && !*untested)
      add_words(choice, "; tested here");
    if (failure == NULL)
      return status;
    if (request.variant != NULL && failure->status == CL_BUILD_PROGRAM_FAILURE)
      return status; /* who builds it gets the compiler's log */
    if (request.variant != NULL)
      return clattni_fail(error, failure->status, "variant %s can't be used: %s", choice->variant->name,
                          failure->reason);
    const uint32_t index = index_of(choice->variant);
    request.passed_over[index] = failure->reason;
    request.passed_status[index] = failure->status;
    status = clattni_select(&request, choice, error);
  }
  return status;
}

static clattn_status tell(const clattni_choice *choice, const clattn_error *error, clattn_support *support) {
  if (support->status == CLATTN_SUCCESS) {
    support->variant = choice->variant->name;
    memcpy(support->reason, choice->why, sizeof(choice->why));
  } else {
    memcpy(support->reason, error->message, sizeof(support->reason));
  }
  return support->status;
}

clattn_status clattn_supported(clattn_context *context, const clattn_problem *problem, const char *variant,
                               clattn_support *support) {
  clattn_problem resolved;
  clattni_choice choice;
  clattn_error error;
  int untested = 0;
  if (context == NULL || support == NULL)
    return CLATTN_ERROR_NULL_POINTER;
  if (support->struct_size != sizeof(*support))
    return CLATTN_ERROR_STRUCT_SIZE;
  clattn_support_init(support);
  clattn_error_init(&error);
  support->status = clattni_plan_choose_tested(context, problem, variant, 0, &resolved, &choice, &untested, &error);
  if (support->status == CLATTN_SUCCESS &&
      clattni_program_refused(&context->programs, choice.variant->file, choice.options, problem->hook))
    support->status =
        clattni_fail(&error, CL_BUILD_PROGRAM_FAILURE, "variant %s: the device's compiler refused its kernels before",
                     choice.variant->name);
  if (support->status == CLATTN_SUCCESS && untested)
    add_words(&choice, "; its first use will test it");
  return tell(&choice, &error, support);
}

clattn_status clattn_supported_on(const clattn_device_info *device, const clattn_problem *problem, const char *variant,
                                  clattn_support *support) {
  clattn_problem resolved;
  clattni_choice choice;
  clattn_error error;
  if (device == NULL || support == NULL)
    return CLATTN_ERROR_NULL_POINTER;
  if (device->struct_size != sizeof(*device) || support->struct_size != sizeof(*support))
    return CLATTN_ERROR_STRUCT_SIZE;
  clattn_support_init(support);
  clattn_error_init(&error);
  clattni_request request = {.device = device, .variant = variant};
  support->status = choose_by(&request, problem, &resolved, &choice, &error);
  if (support->status == CLATTN_SUCCESS && (device->type & CL_DEVICE_TYPE_CPU) == 0)
    add_words(&choice, "; its first use will test it");
  return tell(&choice, &error, support);
}

static clattn_status start_text(const clattn_context *context, char *text, size_t capacity, size_t *length) {
  if (length != NULL)
    *length = 0;
  if (text != NULL && capacity > 0)
    text[0] = 0;
  return context == NULL || (text == NULL && capacity > 0) ? CLATTN_ERROR_NULL_POINTER : CLATTN_SUCCESS;
}

clattn_status clattn_tuning_head(const clattn_context *context, char *text, size_t capacity, size_t *length) {
  const clattn_status status = start_text(context, text, capacity, length);
  if (status != CLATTN_SUCCESS)
    return status;
  const size_t whole = clattni_tuning_head(&context->info, text, capacity);
  if (length != NULL)
    *length = whole;
  return whole < capacity ? CLATTN_SUCCESS : CLATTN_ERROR_BUFFER_TOO_SMALL;
}

clattn_status clattn_tuning_candidate(const clattn_context *context, const clattn_problem *problem, const char *variant,
                                      uint32_t index, char *text, size_t capacity, size_t *length,
                                      clattn_error *error) {
  clattn_problem resolved;
  clattni_choice usual, tried;
  uint32_t fitting = 0;
  clattni_clear(error);
  clattn_status status = start_text(context, text, capacity, length);
  if (status != CLATTN_SUCCESS || problem == NULL)
    return clattni_fail(error, CLATTN_ERROR_NULL_POINTER, "context, problem or text is NULL");
  status = choose_tuned(context, problem, variant, 0, NULL, &resolved, &usual, error);
  if (status != CLATTN_SUCCESS)
    return status;
  if (usual.tile.of.variant[0] == 0)
    return clattni_fail(error, CLATTN_ERROR_NOT_SUPPORTED, "variant %s has no tiles to tune for this problem",
                        usual.variant->name);
  clattni_tuned tuned = usual.tile;
  const clattni_tuning tuning = {.entries = &tuned, .count = 1};
  for (uint32_t i = 0; clattni_tile_candidate(&usual.tile.of, &usual.tile.tile, i, &tuned.tile); ++i) {
    if (choose_tuned(context, problem, variant, 0, &tuning, &resolved, &tried, NULL) != CLATTN_SUCCESS ||
        !tried.tuned || fitting++ != index)
      continue; /* not one that the device takes, or not the one */
    const size_t whole = clattni_tuning_line(&tuned, text, capacity);
    if (length != NULL)
      *length = whole;
    return whole < capacity ? CLATTN_SUCCESS
                            : clattni_fail(error, CLATTN_ERROR_BUFFER_TOO_SMALL, "the line takes %zu bytes", whole + 1);
  }
  return CLATTN_SUCCESS;
}

clattn_status clattni_plan_check(const clattn_context *context, const clattn_plan_options *options, clattn_plan **out,
                                 clattn_error *error) {
  clattni_clear(error);
  if (out == NULL)
    return clattni_fail(error, CLATTN_ERROR_NULL_POINTER, "out is NULL");
  *out = NULL;
  if (context == NULL)
    return clattni_fail(error, CLATTN_ERROR_NULL_POINTER, "context is NULL");
  if (options == NULL)
    return CLATTN_SUCCESS;
  if (options->struct_size != sizeof(*options))
    return clattni_fail(error, CLATTN_ERROR_STRUCT_SIZE,
                        "clattn_plan_options.struct_size is %zu, not %zu: call clattn_plan_options_init",
                        options->struct_size, sizeof(*options));
  for (size_t i = 0; i < sizeof(options->reserved) / sizeof(options->reserved[0]); ++i)
    if (options->reserved[i] != 0)
      return clattni_fail(error, CLATTN_ERROR_RESERVED, "clattn_plan_options.reserved[%zu] is %u, not 0", i,
                          options->reserved[i]);
  if (options->check_contents > 1)
    return clattni_fail(error, CLATTN_ERROR_VALUE, "check_contents is %u: must be 0 or 1", options->check_contents);
  return CLATTN_SUCCESS;
}

clattn_status clattni_plan_program(clattn_context *context, const clattni_choice *choice, const clattn_hook *hook,
                                   clattni_program **program, double *seconds, clattn_error *error) {
  const char *names[CLATTNI_ENTRIES];
  for (int i = 0; i < CLATTNI_ENTRIES; ++i)
    names[i] = choice->variant->kernels[i].name;
  return clattni_program_get(&context->programs, choice->variant->file, choice->options, hook, names, CLATTNI_ENTRIES,
                             program, seconds, error);
}

clattn_status clattni_plan_make(clattn_context *context, const clattn_problem *problem,
                                const clattn_plan_options *options, const clattn_problem *resolved,
                                const clattni_choice *choice, double seconds, clattn_plan **out, clattn_error *error) {
  clattn_plan *plan = NULL;
  clattni_program *program = NULL;
  double more = 0;
  char line[MAX_LINE];
  const clattn_status status = clattni_plan_program(context, choice, resolved->hook, &program, &more, error);
  if (status != CLATTN_SUCCESS)
    return status;
  plan = clattni_alloc(&context->allocator, sizeof(*plan));
  if (plan == NULL)
    return clattni_fail(error, CLATTN_ERROR_OUT_OF_MEMORY, "no host memory for a plan");
  clattni_context_retain(context);
  plan->context = context;
  plan->asked = *problem;
  plan->problem = *resolved;
  plan->choice = *choice;
  plan->program = program;
  plan->build_seconds = seconds + more;
  plan->check_contents = options != NULL && options->check_contents != 0;
  atomic_init(&plan->line, NULL);
  clattni_clear(error);
  if (context->log != NULL && clattn_problem_format(problem, line, sizeof(line), NULL) == CLATTN_SUCCESS)
    clattni_context_log(context, CLATTN_LOG_INFO, "plan: %s: %s", choice->variant->name, line);
  *out = plan;
  return CLATTN_SUCCESS;
}

void clattn_plan_release(clattn_plan *plan) {
  if (plan == NULL)
    return;
  clattn_context *context = plan->context;
  clattni_free(&context->allocator, atomic_load(&plan->line));
  clattni_free(&context->allocator, plan);
  clattn_context_release(context);
}

/* Bytes of a tensor's elements, each counted once however often strides of 0 repeat it. */
static uint64_t tensor_bytes(const clattn_problem *problem, const clattni_sizes *sizes, clattni_slot slot) {
  int64_t shape[4], stride[4];
  uint64_t elements = 1;
  clattni_slot_shape(problem, sizes, slot, shape);
  clattni_slot_strides(problem, sizes, slot, stride);
  for (int axis = 0; axis < 4; ++axis)
    elements *= shape[axis] > 1 && stride[axis] == 0 ? 1 : (uint64_t)shape[axis];
  return (uint64_t)clattni_slot_bytes(problem, slot, (int64_t)elements);
}

/* The plan's problem line.  Threads that ask at once may each write it; the first one's stays. */
static clattn_status line_of(const clattn_plan *plan, const char **out) {
  clattn_plan *mutable_plan = (clattn_plan *)plan; /* only the line, only once */
  const clattni_allocator *allocator = &plan->context->allocator;
  char text[MAX_LINE], *first = NULL, *line = NULL;
  size_t length = 0;
  *out = atomic_load(&mutable_plan->line);
  if (*out != NULL)
    return CLATTN_SUCCESS;
  const clattn_status status = clattn_problem_format(&plan->asked, text, sizeof(text), &length);
  if (status != CLATTN_SUCCESS)
    return status;
  line = clattni_copy_text(allocator, text, length);
  if (line == NULL)
    return CLATTN_ERROR_OUT_OF_MEMORY;
  if (!atomic_compare_exchange_strong(&mutable_plan->line, &first, line)) {
    clattni_free(allocator, line);
    line = first;
  }
  *out = line;
  return CLATTN_SUCCESS;
}

clattn_status clattn_plan_get_info(const clattn_plan *plan, clattn_plan_info *info) {
  clattni_layout layout;
  if (plan == NULL || info == NULL)
    return CLATTN_ERROR_NULL_POINTER;
  if (info->struct_size != sizeof(*info))
    return CLATTN_ERROR_STRUCT_SIZE;
  const clattn_problem *problem = &plan->problem;
  const clattni_sizes bounds = clattni_bounds(problem);
  if (!clattni_layout_make(&plan->choice, problem, &bounds, plan->choice.workspace_bytes, &layout))
    return CLATTN_ERROR_INTERNAL;
  clattn_plan_info_init(info);
  info->variant = plan->choice.variant->name;
  info->why = plan->choice.why;
  const clattn_status status = line_of(plan, &info->line);
  if (status != CLATTN_SUCCESS)
    return status;
  info->workspace_bytes = plan->choice.workspace_bytes;
  info->launches = layout.launches > UINT32_MAX ? UINT32_MAX : (uint32_t)layout.launches;
  info->tile_q = (uint32_t)plan->choice.rows;
  info->tile_k = (uint32_t)plan->choice.keys_per_chunk;
  info->splits = 1;
  info->row_blocks = layout.rounds > UINT32_MAX ? UINT32_MAX : (uint32_t)layout.rounds;
  info->pairs = clattni_count_pairs(problem, &bounds);
  const uint64_t per_pair = 2 * (uint64_t)(problem->qk_dim + problem->v_dim);
  info->flops = info->pairs > UINT64_MAX / per_pair ? UINT64_MAX : info->pairs * per_pair;
  for (int slot = 0; slot < CLATTNI_SLOTS; ++slot)
    if (clattni_slot_used(problem, (clattni_slot)slot))
      info->bytes += tensor_bytes(problem, &bounds, (clattni_slot)slot);
  info->build_seconds = plan->build_seconds;
  info->from_cache = (uint32_t)clattni_program_from_cache(plan->program);
  return CLATTN_SUCCESS;
}
