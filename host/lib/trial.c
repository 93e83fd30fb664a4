/* SPDX-License-Identifier: Apache-2.0 */
/* clattn_plan_create, and the trial of a variant at its first use: on devices that are no CPUs, drivers are known that
 * build kernels, run them and compute something else. */
#include "trial.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clattn_ref.h"
#include "dtype.h"
#include "enqueue.h"
#include "status.h"

/* ---- cases ---- */

static clattn_tensor of_type(clattn_dtype dtype) {
  clattn_tensor tensor;
  memset(&tensor, 0, sizeof(tensor));
  tensor.dtype = dtype;
  return tensor;
}

/* Beyond the largest class of head dimensions kernels take values and products in parts, as many as there are. */
static int64_t at_most_wide(int64_t dim) {
  enum { WIDE = 1024 + 16 };
  return dim < WIDE ? dim : WIDE;
}

static int is_fused_tile(const clattni_choice *choice) {
  return choice->variant->fused && choice->variant->shape == CLATTNI_SHAPE_TILES;
}

/* Whether the program has no rules but those that leave each row an interval of keys. */
static int has_intervals_only(const clattni_choice *choice) {
  return strstr(choice->options, "CLATTN_PLAIN=1") != NULL;
}

/* Types, similarity and rotary embedding are compiled in, and so is the width of heads, in part. */
static void start_problem(const clattn_problem *like, const clattni_choice *choice, clattn_problem *problem) {
  const int packs = choice->pack > 1, few = strstr(choice->options, "CLATTN_FEW=1") != NULL;
  clattn_problem_init(problem);
  problem->similarity = like->similarity;
  problem->math = like->math;
  problem->flags = like->flags;
  problem->q_heads = packs ? 2 : 4; /* two heads in one tile, or heads in tiles of their own */
  problem->kv_heads = packs ? 1 : 2;
  /* a tile of all rows is full, another one is not; kernels for a few rows take no more */
  problem->q_len = few ? 8 / (packs ? 2 : 1) : packs ? choice->rows / 2 + 3 : choice->rows + 3;
  /* a fused tile has at most twice the keys of a chunk: one at least is full, and another one is not */
  problem->k_len = (is_fused_tile(choice) ? 2 : 1) * choice->keys_per_chunk + 6;
  problem->qk_dim = at_most_wide(like->qk_dim);
  problem->v_dim = at_most_wide(like->v_dim);
  problem->q = of_type(like->q.dtype);
  problem->k = of_type(like->k.dtype);
  problem->v = of_type(like->v.dtype);
  problem->o = of_type(like->o.dtype);
  problem->k_scale = of_type(like->k_scale.dtype);
  problem->v_scale = of_type(like->v_scale.dtype);
  problem->rope = like->rope;
  problem->rope_dim = at_most_wide(like->rope_dim);
  if (like->rope != CLATTN_ROPE_NONE)
    problem->rope_positions = problem->q_len > problem->k_len ? problem->q_len : problem->k_len;
  problem->outputs = like->outputs | CLATTN_OUT_LSE;
  problem->stage = like->stage;
  problem->scores = of_type(like->scores.dtype);
}

static void add_rules(uint32_t index, const clattn_problem *like, const clattni_choice *choice,
                      clattni_trial_case *made, clattn_problem *problem) {
  static const char *const names[CLATTNI_TRIAL_CASES] = {"plain", "rows of -inf and 1e30", "rules"};
  const int intervals_only = has_intervals_only(choice);
  made->row.name = index == 1 && intervals_only ? "rows without keys and of 1e30" : names[index];
  if (index == 0)
    return;
  if (index == 1)
    problem->use_sink = 1;
  if (index == 1 && !intervals_only) {
    problem->use_bias = 1;
    problem->bias = of_type(like->use_bias ? like->bias.dtype : CLATTN_F32);
    return;
  }
  problem->batch = 2;
  problem->causal = 1;
  problem->k_length_mode = CLATTN_LENGTH_PER_BATCH;
  made->row.k_lengths[0] = (int32_t)problem->k_len;
  made->row.k_lengths[1] = index == 1 ? 0 : 21;
  if (index == 1)
    return;
  problem->offset_mode = CLATTN_OFFSET_BOTTOM_RIGHT;
  problem->window = CLATTN_WINDOW_LEFT;
  problem->window_left = 40;
  if (intervals_only)
    return;
  problem->keep_mask_kind = CLATTN_MASK_U8;
  problem->softcap = 1.5f;
  problem->alibi = CLATTN_ALIBI_SYMMETRIC;
}

/* An element's bytes. */
static unsigned char *element_of(const clattni_trial_case *made, clattni_slot slot, const int64_t at[4],
                                 int64_t *place) {
  *place = 0;
  for (int axis = 0; axis < 4; ++axis)
    *place += at[axis] * made->of.stride[slot][axis];
  return (unsigned char *)made->of.input[slot] + *place * (int64_t)clattni_slot_element_bytes(&made->of.problem, slot);
}

/* Without a bias, queries make scores of some 1e30: every other row times 2^100, where type and similarity let products be
 * exact, so that no rounding decides which key is the nearest. */
static void enlarge_queries(const clattni_trial_case *made) {
  const clattn_problem *problem = &made->of.problem;
  const clattn_dtype q = problem->q.dtype, k = problem->k.dtype;
  if ((q != CLATTN_F32 && q != CLATTN_BF16) || k == CLATTN_I8 || k == CLATTN_I4 || problem->similarity != CLATTN_DOT ||
      problem->rope != CLATTN_ROPE_NONE)
    return;
  for (int64_t n = 0; n < clattni_self_test_elements(&made->of, CLATTNI_Q); ++n) {
    int64_t at[4], place;
    uint32_t bits = 0;
    clattni_self_test_place(&made->of, CLATTNI_Q, n, at);
    if (at[2] % 2 != 0)
      continue;
    unsigned char *element = element_of(made, CLATTNI_Q, at, &place);
    const float value = (float)clattni_dtype_load(q, made->of.input[CLATTNI_Q], place) * 0x1p100f;
    memcpy(&bits, &value, sizeof(bits));
    const uint16_t upper = (uint16_t)(bits >> 16);
    if (q == CLATTN_F32)
      memcpy(element, &bits, sizeof(bits));
    else
      memcpy(element, &upper, sizeof(upper));
  }
}

/* Without a mask, the last key's values are NaN, which the last row alone sees of those that are computed with it. */
static void spoil_last_value(const clattni_trial_case *made) {
  const clattn_problem *problem = &made->of.problem;
  const int quantised = problem->v.dtype == CLATTN_I8 || problem->v.dtype == CLATTN_I4;
  const clattni_slot slot = quantised ? CLATTNI_V_SCALE : CLATTNI_V;
  int64_t at[4] = {0, 0, problem->k_len - 1, 0}, place;
  for (; at[1] < problem->kv_heads; ++at[1])
    for (at[3] = 0; at[3] < made->of.shape[slot][3]; ++at[3])
      memset(element_of(made, slot, at, &place), 0xff, (size_t)clattni_slot_element_bytes(problem, slot));
}

/* What the reference gives. */
static clattn_status expect(clattni_trial_case *made, const clattni_allocator *allocator, clattn_error *error) {
  void *const *input = made->of.input;
  size_t total = 0, start[CLATTNI_SLOTS] = {0};
  clattn_ref_args args;
  for (clattni_slot slot = 0; slot < CLATTNI_SLOTS; ++slot)
    if (clattni_slot_is_output(slot)) {
      start[slot] = total;
      total += (size_t)clattni_self_test_elements(&made->of, slot);
    }
  made->memory = clattni_alloc(allocator, (total + 1) * sizeof(*made->memory));
  if (made->memory == NULL)
    return clattni_fail(error, CLATTN_ERROR_OUT_OF_MEMORY, "no host memory for a variant's test");
  for (clattni_slot slot = 0; slot < CLATTNI_SLOTS; ++slot)
    if (clattni_slot_is_output(slot) && clattni_self_test_elements(&made->of, slot) > 0)
      made->expected[slot] = made->memory + start[slot];
  clattn_ref_args_init(&args);
  args.error = error;
  args.q = input[CLATTNI_Q];
  args.k = input[CLATTNI_K];
  args.v = input[CLATTNI_V];
  args.bias = input[CLATTNI_BIAS];
  args.keep_mask = input[CLATTNI_KEEP_MASK];
  args.alibi_slopes = input[CLATTNI_ALIBI_SLOPES];
  args.sink = input[CLATTNI_SINK];
  args.add_w = input[CLATTNI_ADD_W];
  args.k_scale = input[CLATTNI_K_SCALE];
  args.v_scale = input[CLATTNI_V_SCALE];
  args.rope_cos = input[CLATTNI_ROPE_COS];
  args.rope_sin = input[CLATTNI_ROPE_SIN];
  if (made->of.problem.k_length_mode == CLATTN_LENGTH_PER_BATCH)
    args.k_lengths = made->row.k_lengths;
  args.o = made->expected[CLATTNI_O];
  args.lse = made->expected[CLATTNI_LSE];
  args.scores = made->expected[CLATTNI_SCORES];
  args.max_logit = made->expected[CLATTNI_MAX_LOGIT];
  return clattn_ref_attention(&made->of.problem, &args);
}

clattn_status clattni_trial_case_make(uint32_t index, const clattn_problem *resolved, const clattni_choice *choice,
                                      const clattni_allocator *allocator, clattni_trial_case *made,
                                      clattn_error *error) {
  clattn_problem problem;
  clattni_layout layout;
  memset(made, 0, sizeof(*made));
  made->choice = *choice;
  made->choice.pack = choice->pack > 1 ? 2 : 1;
  made->choice.parts = 1;
  start_problem(resolved, choice, &problem);
  add_rules(index, resolved, choice, made, &problem);
  clattn_status status = clattni_self_test_fill(&made->row, &problem, 100 + index, allocator, &made->of, error);
  if (status == CLATTN_SUCCESS && index == 1 && has_intervals_only(choice))
    enlarge_queries(made);
  if (status == CLATTN_SUCCESS && index == 2 && has_intervals_only(choice))
    spoil_last_value(made);
  if (status == CLATTN_SUCCESS)
    status = expect(made, allocator, error);
  if (status == CLATTN_SUCCESS &&
      !clattni_layout_make(&made->choice, &made->of.problem, &made->of.sizes, UINT64_MAX, &layout))
    status = clattni_fail(error, CLATTN_ERROR_INTERNAL, "a variant's test has no layout");
  if (status == CLATTN_SUCCESS)
    made->choice.workspace_bytes = layout.bytes;
  else
    clattni_trial_case_free(allocator, made);
  return status;
}

void clattni_trial_case_free(const clattni_allocator *allocator, clattni_trial_case *made) {
  clattni_self_test_free(allocator, &made->of);
  clattni_free(allocator, made->memory);
  made->memory = NULL;
}

/* ---- one trial ---- */

/* What a trial finds.  A failure of its own (memory, a queue) is no word on the variant. */
typedef struct finding {
  clattn_status status;
  int keep; /* 1: it would be the same in every start, so the disk cache keeps it */
  char reason[CLATTNI_VERDICT_REASON];
} finding;

#define FAIL_VARIANT(found, code, kept, ...)                                                                           \
  do {                                                                                                                 \
    (found)->status = (code);                                                                                          \
    (found)->keep = (kept);                                                                                            \
    (void)snprintf((found)->reason, sizeof((found)->reason), __VA_ARGS__);                                             \
  } while (0)

/* Room for exp, for rounding once to the type, for weights rounded to v's type; half products are summed as they are.  A
 * wrong rule, tile or register moves results by far more. */
static int is_wrong(const clattn_problem *problem, clattn_dtype dtype, double got, double want) {
  static const double of_type[] = {[CLATTN_F32] = 5e-4, [CLATTN_F16] = 5e-4 + 0x1p-10, [CLATTN_BF16] = 5e-4 + 0x1p-7};
  const double size = fabs(want) > 1 ? fabs(want) : 1;
  double most = of_type[dtype];
  if (problem->v.dtype == CLATTN_F16 || problem->v.dtype == CLATTN_BF16)
    most += of_type[problem->v.dtype];
  if (problem->math != CLATTN_MATH_EXACT)
    most += 0.02;
  if (isnan(want))
    return !isnan(got);
  if (isinf(want) || want == 0) /* the marks of rows and pairs that nothing lets through */
    return !(got == want);
  return !(fabs(got - want) <= most * size);
}

static void compare(const clattni_trial_case *made, clattni_slot slot, const void *got, finding *found) {
  const clattn_dtype dtype = clattni_slot_tensor(&made->of.problem, slot)->dtype;
  for (int64_t n = 0; n < clattni_self_test_elements(&made->of, slot); ++n) {
    const double value = clattni_dtype_load(dtype, got, n), want = made->expected[slot][n];
    char found_text[32] = "nan"; /* printf writes "-nan" for some */
    int64_t at[4];
    if (!is_wrong(&made->of.problem, dtype, value, want))
      continue;
    if (!isnan(value))
      (void)snprintf(found_text, sizeof(found_text), "%.7g", value);
    clattni_self_test_place(&made->of, slot, n, at);
    FAIL_VARIANT(found, CLATTN_ERROR_SELF_TEST, 1,
                 "it computes wrong numbers: case \"%s\", %s[%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64
                 "] is %s, not %.7g",
                 made->row.name, clattni_slot_name(slot), at[0], at[1], at[2], at[3], found_text, want);
    return;
  }
}

typedef struct bench {
  clattn_context *context;
  cl_command_queue queue;
  clattni_program *program;
  cl_mem buffer[CLATTNI_SLOTS], workspace;
} bench;

static clattn_status make_buffer(const bench *on, cl_mem_flags flags, size_t bytes, void *data, cl_mem *buffer,
                                 clattn_error *error) {
  cl_int code = CL_SUCCESS;
  *buffer = clCreateBuffer(on->context->cl, flags | (data != NULL ? CL_MEM_COPY_HOST_PTR : 0), bytes, data, &code);
  if (code == CL_SUCCESS)
    return CLATTN_SUCCESS;
  *buffer = NULL;
  return clattni_fail(error, code, "a buffer of %zu bytes for a variant's test failed: %s", bytes,
                      clattn_status_text(code));
}

/* Outputs start as NaN, so that what a kernel leaves unwritten is found.  `room` is for the largest of them. */
static clattn_status make_buffers(bench *on, const clattni_trial_case *made, void **room, clattn_error *error) {
  clattn_status status = CLATTN_SUCCESS;
  size_t most = 0;
  for (clattni_slot slot = 0; slot < CLATTNI_SLOTS; ++slot)
    if (clattni_slot_is_output(slot) && made->of.bytes[slot] > most)
      most = made->of.bytes[slot];
  *room = clattni_alloc(&on->context->allocator, most);
  if (*room == NULL)
    return clattni_fail(error, CLATTN_ERROR_OUT_OF_MEMORY, "no host memory for a variant's test");
  memset(*room, 0xff, most);
  for (clattni_slot slot = 0; slot < CLATTNI_SLOTS && status == CLATTN_SUCCESS; ++slot)
    if (made->of.bytes[slot] != 0)
      status =
          make_buffer(on, clattni_slot_is_output(slot) ? CL_MEM_READ_WRITE : CL_MEM_READ_ONLY, made->of.bytes[slot],
                      clattni_slot_is_output(slot) ? *room : made->of.input[slot], &on->buffer[slot], error);
  if (status == CLATTN_SUCCESS && made->choice.workspace_bytes > 0)
    status = make_buffer(on, CL_MEM_READ_WRITE, (size_t)made->choice.workspace_bytes, NULL, &on->workspace, error);
  return status;
}

static void free_buffers(bench *on) {
  for (int slot = 0; slot < CLATTNI_SLOTS; ++slot) {
    if (on->buffer[slot] != NULL)
      clReleaseMemObject(on->buffer[slot]);
    on->buffer[slot] = NULL;
  }
  if (on->workspace != NULL)
    clReleaseMemObject(on->workspace);
  on->workspace = NULL;
}

static void launch(bench *on, const clattni_trial_case *made, void *room, finding *found) {
  clattn_plan plan; /* as clattn_plan_create makes it, but of this choice and program, whatever selection would say */
  clattn_args args;
  memset(&plan, 0, sizeof(plan));
  plan.context = on->context;
  plan.asked = plan.problem = made->of.problem;
  plan.choice = made->choice;
  plan.program = on->program;
  atomic_init(&plan.line, NULL);
  clattni_self_test_args(&made->of, on->buffer, &args, NULL);
  args.workspace = clattn_buffer(on->workspace, 0);
  clattn_status status = clattn_enqueue(&plan, on->queue, &args, 0, NULL, NULL);
  if (status == CLATTN_SUCCESS)
    status = clFinish(on->queue);
  for (clattni_slot slot = 0; slot < CLATTNI_SLOTS && status == CLATTN_SUCCESS && found->status == CLATTN_SUCCESS;
       ++slot)
    if (made->expected[slot] != NULL) {
      status = clEnqueueReadBuffer(on->queue, on->buffer[slot], CL_TRUE, 0, made->of.bytes[slot], room, 0, NULL, NULL);
      if (status == CLATTN_SUCCESS)
        compare(made, slot, room, found);
    }
  if (status != CLATTN_SUCCESS)
    FAIL_VARIANT(found, status, 0, "its test launch failed, case \"%s\": %s", made->row.name,
                 clattn_status_name(status));
}

static clattn_status run_case(bench *on, uint32_t index, const clattn_problem *resolved, const clattni_choice *choice,
                              finding *found, clattn_error *error) {
  const clattni_allocator *allocator = &on->context->allocator;
  clattni_trial_case made;
  void *room = NULL;
  clattn_status status = clattni_trial_case_make(index, resolved, choice, allocator, &made, error);
  if (status != CLATTN_SUCCESS)
    return status;
  status = make_buffers(on, &made, &room, error);
  if (status == CLATTN_SUCCESS)
    launch(on, &made, room, found);
  free_buffers(on);
  clattni_free(allocator, room);
  clattni_trial_case_free(allocator, &made);
  return status;
}

/* What the driver made of a kernel may need more than the device has: registers decide how large a work-group may be. */
static void check_kernel(const clattn_context *context, const clattni_choice *choice, int entry, cl_kernel kernel,
                         cl_ulong *private_bytes, finding *found) {
  const int tiled = choice->variant->shape == CLATTNI_SHAPE_TILES && entry >= CLATTNI_SCORE &&
                    entry <= CLATTNI_FLASH_PARTS && entry != CLATTNI_ROW_MAXIMUM;
  const size_t needed = tiled ? (size_t)choice->gx * (size_t)choice->gy : 1;
  const char *name = choice->variant->kernels[entry].name;
  size_t group = 0;
  cl_ulong local = 0, private_memory = 0;
  cl_int code =
      clGetKernelWorkGroupInfo(kernel, context->device, CL_KERNEL_WORK_GROUP_SIZE, sizeof(group), &group, NULL);
  if (code == CL_SUCCESS)
    code = clGetKernelWorkGroupInfo(kernel, context->device, CL_KERNEL_LOCAL_MEM_SIZE, sizeof(local), &local, NULL);
  if (code == CL_SUCCESS)
    code = clGetKernelWorkGroupInfo(kernel, context->device, CL_KERNEL_PRIVATE_MEM_SIZE, sizeof(private_memory),
                                    &private_memory, NULL);
  if (code != CL_SUCCESS)
    FAIL_VARIANT(found, code, 0, "the driver does not say what its kernel %s takes: %s", name,
                 clattn_status_name(code));
  else if (group < needed)
    FAIL_VARIANT(found, CLATTN_ERROR_VARIANT_UNFIT, 1, "its kernel %s runs in work-groups of %zu items, not of %zu",
                 name, group, needed);
  else if (local > context->info.local_bytes)
    FAIL_VARIANT(found, CLATTN_ERROR_VARIANT_UNFIT, 1,
                 "its kernel %s takes %" PRIu64 " bytes of local memory; the device has %" PRIu64, name,
                 (uint64_t)local, context->info.local_bytes);
  if (private_memory > *private_bytes)
    *private_bytes = private_memory;
}

static clattn_status check_kernels(clattn_context *context, const clattni_choice *choice, clattni_program *program,
                                   finding *found, clattn_error *error) {
  cl_ulong private_bytes = 0;
  clattn_status status = CLATTN_SUCCESS;
  clattni_kernel_set *set = clattni_program_lend(&context->programs, program, &status);
  if (set == NULL && status == CLATTN_ERROR_OUT_OF_MEMORY)
    return clattni_fail(error, status, "no host memory for kernels");
  if (set == NULL)
    FAIL_VARIANT(found, status, 0, "its kernels can't be made: %s", clattn_status_name(status));
  for (int i = 0; set != NULL && i < CLATTNI_ENTRIES && found->status == CLATTN_SUCCESS; ++i)
    if (set->kernel[i] != NULL)
      check_kernel(context, choice, i, set->kernel[i], &private_bytes, found);
  clattni_program_return(program, set);
  if (found->status == CLATTN_SUCCESS)
    clattni_context_log(context, CLATTN_LOG_INFO, "trial: variant %s: at most %" PRIu64 " bytes of private memory",
                        choice->variant->name, (uint64_t)private_bytes);
  return CLATTN_SUCCESS;
}

static clattn_status run_cases(clattn_context *context, const clattn_problem *resolved, const clattni_choice *choice,
                               clattni_program *program, finding *found, clattn_error *error) {
  bench on;
  cl_int code = CL_SUCCESS;
  clattn_status status = CLATTN_SUCCESS;
  memset(&on, 0, sizeof(on));
  on.context = context;
  on.program = program;
  on.queue = clCreateCommandQueue(context->cl, context->device, 0, &code);
  if (code != CL_SUCCESS)
    return clattni_fail(error, code, "a queue for a variant's test failed: %s", clattn_status_text(code));
  for (uint32_t i = 0; i < CLATTNI_TRIAL_CASES && status == CLATTN_SUCCESS && found->status == CLATTN_SUCCESS; ++i)
    status = run_case(&on, i, resolved, choice, found, error);
  clReleaseCommandQueue(on.queue);
  return status;
}

/* Builds and tests.  With a hook, what the kernels compute is the caller's: they were tested without it. */
static clattn_status try_choice(clattn_context *context, const clattn_problem *resolved, const clattni_choice *choice,
                                const clattn_hook *hook, double *seconds, finding *found, clattn_error *error) {
  clattni_program *program = NULL;
  clattn_status status = clattni_plan_program(context, choice, hook, &program, seconds, error);
  if (status == CLATTN_ERROR_OUT_OF_MEMORY || status == CLATTN_ERROR_INTERNAL || status == CL_OUT_OF_HOST_MEMORY)
    return status; /* there may be more the next time */
  if (status == CL_BUILD_PROGRAM_FAILURE && hook != NULL)
    return status; /* the hook's fault: the same kernels were built without it */
  if (status != CLATTN_SUCCESS) {
    FAIL_VARIANT(found, status, 0, "its kernels don't build: %s", clattn_status_name(status));
    return CLATTN_SUCCESS;
  }
  const double start = clattni_seconds();
  status = check_kernels(context, choice, program, found, error);
  if (status == CLATTN_SUCCESS && found->status == CLATTN_SUCCESS && hook == NULL)
    status = run_cases(context, resolved, choice, program, found, error);
  *seconds += clattni_seconds() - start;
  return status;
}

/* ---- verdicts ---- */

/* What a verdict is kept under in the disk cache, for clattni_free; NULL if there is none. */
static char *disk_key(const clattn_context *context, const clattni_choice *choice, const clattn_hook *hook,
                      const char *key) {
  static const char format[] = "trial %u: %s\n%s";
  static const unsigned revision = CLATTNI_SELF_TEST_REVISION;
  const clattni_allocator *allocator = &context->allocator;
  /* a hook's number is this process's own; its source is in the program's key */
  const char *what = hook != NULL ? choice->variant->name : key;
  char *whole = NULL;
  char *program = clattni_program_key(&context->programs, choice->variant->file, choice->options, hook);
  if (program == NULL)
    return NULL;
  const size_t room = sizeof(format) + 10 + strlen(what) + strlen(program);
  whole = clattni_alloc(allocator, room);
  if (whole != NULL)
    snprintf(whole, room, format, revision, what, program);
  clattni_free(allocator, program);
  return whole;
}

/* A kept verdict is a status in decimal digits, a space, and the reason. */
static int read_verdict(const clattn_context *context, const char *key, finding *found) {
  const unsigned char *payload = NULL;
  size_t bytes = 0;
  char text[CLATTNI_VERDICT_REASON + 16], *end = NULL;
  void *entry = clattni_cache_load(&context->cache, key, &payload, &bytes);
  if (entry == NULL)
    return 0;
  const size_t length = bytes < sizeof(text) ? bytes : sizeof(text) - 1;
  memcpy(text, payload, length);
  text[length] = 0;
  clattni_free(&context->allocator, entry);
  const long status = strtol(text, &end, 10);
  if (end == text || *end != ' ')
    return 0;
  if (status != CLATTN_SUCCESS)
    FAIL_VARIANT(found, (clattn_status)status, 0, "in an earlier start, which the disk cache kept, %.240s", end + 1);
  return 1;
}

static void keep_verdict(const clattn_context *context, const char *key, clattn_status status, const char *reason) {
  char text[CLATTNI_VERDICT_REASON + 16];
  const int length = snprintf(text, sizeof(text), "%d %s", (int)status, reason);
  clattni_cache_store(&context->cache, key, text, (size_t)length);
}

/* A build that never ends can't be ended from here; one that did end, late, is not begun again. */
static void keep_finding(const clattn_context *context, const clattni_choice *choice, const char *key, double seconds,
                         const finding *found) {
  char reason[96];
  const int slow = found->status == CLATTN_SUCCESS && seconds > CLATTNI_TRIAL_SLOW;
  if (slow) {
    snprintf(reason, sizeof(reason), "it took %.0f s to build and launch, which is more than %d", seconds,
             CLATTNI_TRIAL_SLOW);
    clattni_context_log(context, CLATTN_LOG_WARNING, "trial: variant %s: %s%s", choice->variant->name, reason,
                        key != NULL ? "; the next start passes it over" : "");
  }
  if (key == NULL)
    return;
  if (slow)
    keep_verdict(context, key, CLATTN_ERROR_VARIANT_UNFIT, reason);
  else if (found->status == CLATTN_SUCCESS || found->keep)
    keep_verdict(context, key, found->status, found->reason);
}

/* Finds a verdict on a choice: kept, or made now.  No lock is held, so that two threads may both make one; the first one
 * counts for both. */
static clattn_status judge(clattn_context *context, const clattn_problem *resolved, const clattni_choice *choice,
                           const clattn_hook *hook, double *seconds, clattn_error *error) {
  char key[CLATTNI_VERDICT_KEY];
  clattni_cache_mark mark;
  finding found;
  clattn_status status = CLATTN_SUCCESS;
  double spent = 0;
  int added = 0;
  memset(&found, 0, sizeof(found));
  clattni_plan_verdict_key(choice, resolved, hook, key);
  if (clattni_verdict_find(&context->verdicts, key) != NULL)
    return CLATTN_SUCCESS;
  char *kept = disk_key(context, choice, hook, key);
  if (kept == NULL || !read_verdict(context, kept, &found)) {
    mark.file = -1;
    if (kept != NULL && clattni_cache_begin(&context->cache, kept, &mark)) {
      FAIL_VARIANT(
          &found, CLATTN_ERROR_VARIANT_UNFIT, 0,
          "a process ended while it was built or tested; delete %.16s*.building in the disk cache to try again",
          mark.name);
    } else {
      status = try_choice(context, resolved, choice, hook, &spent, &found, error);
      if (status == CLATTN_SUCCESS)
        keep_finding(context, choice, kept, spent, &found);
      clattni_cache_end(&context->cache, &mark);
    }
  }
  *seconds += spent;
  clattni_free(&context->allocator, kept);
  if (status != CLATTN_SUCCESS)
    return status;
  if (clattni_verdict_add(&context->verdicts, key, found.status, found.reason, &added) == NULL)
    return clattni_fail(error, CLATTN_ERROR_OUT_OF_MEMORY, "no host memory for a verdict");
  if (added && found.status != CLATTN_SUCCESS)
    clattni_context_log(context, CLATTN_LOG_WARNING, "trial: variant %s failed: %s", choice->variant->name,
                        found.reason);
  else if (added)
    clattni_context_log(context, CLATTN_LOG_INFO, "trial: variant %s passed, %.3f s", choice->variant->name, spent);
  return CLATTN_SUCCESS;
}

/* The choice's program without the hook, then with it. */
static clattn_status judge_choice(clattn_context *context, const clattn_problem *resolved, const clattni_choice *choice,
                                  double *seconds, clattn_error *error) {
  char key[CLATTNI_VERDICT_KEY];
  const clattn_status status = judge(context, resolved, choice, NULL, seconds, error);
  if (status != CLATTN_SUCCESS || resolved->hook == NULL)
    return status;
  clattni_plan_verdict_key(choice, resolved, NULL, key);
  const clattni_verdict *verdict = clattni_verdict_find(&context->verdicts, key);
  if (verdict == NULL || verdict->status != CLATTN_SUCCESS)
    return CLATTN_SUCCESS;
  return judge(context, resolved, choice, resolved->hook, seconds, error);
}

/* ---- plans ---- */

clattn_status clattn_plan_create(clattn_context *context, const clattn_problem *problem,
                                 const clattn_plan_options *options, clattn_plan **out, clattn_error *error) {
  clattn_problem resolved;
  clattni_choice choice;
  clattn_error own;
  double seconds = 0;
  int untested = 1;
  clattn_error_init(&own);
  if (error == NULL || error->struct_size != sizeof(*error))
    error = &own; /* the log wants the message too */
  clattn_status status = clattni_plan_check(context, options, out, error);
  if (out == NULL || context == NULL)
    return status;
  while (status == CLATTN_SUCCESS && untested) { /* each turn adds a verdict on one more variant */
    status =
        clattni_plan_choose_tested(context, problem, options != NULL ? options->variant : NULL,
                                   options != NULL ? options->workspace_cap : 0, &resolved, &choice, &untested, error);
    if (status == CLATTN_SUCCESS && untested)
      status = judge_choice(context, &resolved, &choice, &seconds, error);
  }
  if (status == CLATTN_SUCCESS)
    status = clattni_plan_make(context, problem, options, &resolved, &choice, seconds, out, error);
  if (status != CLATTN_SUCCESS)
    clattni_context_log(context, CLATTN_LOG_ERROR, "no plan: %s: %s", clattn_status_name(status), error->message);
  return status;
}
