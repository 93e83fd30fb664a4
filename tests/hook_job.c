/* SPDX-License-Identifier: Apache-2.0 */
#include "hook_job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

clattn_context *context;
static cl_context cl;
static cl_command_queue queue;

/* ---- memory ------------------------------------------------------------------------------------------------------ */

void *memory(size_t bytes) {
  void *fresh = calloc(bytes + 1, 1);
  assert_non_null(fresh);
  return fresh;
}

float *numbers(size_t count, uint32_t seed) {
  float *list = memory(count * sizeof *list);
  uint32_t state = seed * 2654435761u + 12345u;
  for (size_t i = 0; i < count; i++) {
    state = state * 1664525u + 1013904223u;
    list[i] = (float)(int32_t)(state >> 8) / 8388608.0f - 1.0f;
  }
  return list;
}

static cl_mem buffer_of(cl_mem_flags flags, const void *data, size_t bytes) {
  cl_int code = CL_SUCCESS;
  void *copy = memory(bytes);
  memcpy(copy, data, bytes);
  const cl_mem buffer = clCreateBuffer(cl, flags | CL_MEM_COPY_HOST_PTR, bytes, copy, &code);
  assert_int_equal(code, CL_SUCCESS);
  free(copy);
  return buffer;
}

clattn_mem placed(const void *data, size_t bytes, size_t before) {
  unsigned char *all = memory(4 * before + bytes);
  memset(all, 0xff, 4 * before);
  memcpy(all + 4 * before, data, bytes);
  const clattn_mem mem = clattn_buffer(buffer_of(CL_MEM_READ_ONLY, all, 4 * before + bytes), 4 * before);
  free(all);
  return mem;
}

clattn_scalar on_host(float value) {
  clattn_scalar scalar;
  memset(&scalar, 0, sizeof scalar);
  scalar.kind = CLATTN_SCALAR_HOST;
  scalar.value = value;
  return scalar;
}

clattn_scalar on_device(float value, size_t before) {
  clattn_scalar scalar;
  memset(&scalar, 0, sizeof scalar);
  scalar.kind = CLATTN_SCALAR_DEVICE;
  scalar.device = placed(&value, sizeof value, before);
  return scalar;
}

/* ---- jobs -------------------------------------------------------------------------------------------------------- */

shape shape_of(const char *line) {
  shape s;
  clattn_error error;
  clattn_error_init(&error);
  if (clattn_problem_parse(line, &s.problem, &error) != CLATTN_SUCCESS)
    fail_msg("%s: %s", line, error.message);
  clattn_problem *p = &s.problem;
  p->batch = p->batch != 0 ? p->batch : 1;
  p->q_heads = p->q_heads != 0 ? p->q_heads : 1;
  p->kv_heads = p->kv_heads != 0 ? p->kv_heads : p->q_heads;
  p->v_dim = p->v_dim != 0 ? p->v_dim : p->qk_dim;
  s.heads = (size_t)(p->batch * p->q_heads);
  s.rows = s.heads * (size_t)p->q_len;
  s.pairs = s.rows * (size_t)p->k_len;
  s.q = s.rows * (size_t)p->qk_dim;
  s.o = s.rows * (size_t)p->v_dim;
  s.k = (size_t)(p->batch * p->kv_heads * p->k_len * p->qk_dim);
  s.v = (size_t)(p->batch * p->kv_heads * p->k_len * p->v_dim);
  return s;
}

void results_free(results *r) {
  free(r->o);
  free(r->lse);
  free(r->scores);
  free(r->max_logit);
}

static clattn_mem output(size_t count, int wanted) {
  float *pattern = memory(count * sizeof *pattern);
  memset(pattern, 0x7e, count * sizeof *pattern);
  const clattn_mem mem =
      clattn_buffer(wanted ? buffer_of(CL_MEM_READ_WRITE, pattern, count * sizeof *pattern) : NULL, 0);
  free(pattern);
  return mem;
}

static float *fetch(clattn_mem *mem, size_t count) {
  float *data = NULL;
  if (mem->buffer == NULL)
    return NULL;
  data = memory(count * sizeof *data);
  assert_int_equal(clEnqueueReadBuffer(queue, mem->buffer, CL_TRUE, 0, count * sizeof *data, data, 0, NULL, NULL),
                   CL_SUCCESS);
  assert_int_equal(clReleaseMemObject(mem->buffer), CL_SUCCESS);
  return data;
}

static clattn_mem input(size_t count, uint32_t seed) {
  float *data = numbers(count, seed);
  const clattn_mem mem = clattn_buffer(buffer_of(CL_MEM_READ_ONLY, data, count * sizeof *data), 0);
  free(data);
  return mem;
}

static void set_ints(clattn_ints *ints, const int32_t *list, int64_t count) {
  ints->kind = list != NULL ? CLATTN_ARRAY_HOST : CLATTN_ARRAY_NONE;
  ints->count = list != NULL ? (uint32_t)count : 0;
  ints->host = list;
}

clattn_problem device_problem(const job *j, uint32_t outputs, clattn_stage stage) {
  clattn_problem problem = shape_of(j->line).problem;
  problem.hook = j->hook;
  problem.use_bias = j->given_bias != NULL;
  problem.outputs = outputs;
  problem.stage = stage;
  return problem;
}

int run_on_device(const job *j, const char *variant, uint32_t outputs, clattn_stage stage, results *r) {
  const shape s = shape_of(j->line);
  const clattn_problem problem = device_problem(j, outputs, stage);
  clattn_support support;
  clattn_plan_options options;
  clattn_plan *plan = NULL;
  clattn_error error;
  clattn_args args;
  char log[4096] = "";
  memset(r, 0, sizeof *r);
  clattn_support_init(&support);
  const clattn_status supported = clattn_supported(context, &problem, variant, &support);
  if (supported == CLATTN_ERROR_VARIANT_UNFIT)
    return 0;
  if (supported != CLATTN_SUCCESS)
    fail_msg("%s, %s: %s", j->line, variant, support.reason);
  clattn_plan_options_init(&options);
  options.variant = variant;
  clattn_error_init(&error);
  error.build_log = log;
  error.build_log_capacity = sizeof log;
  if (clattn_plan_create(context, &problem, &options, &plan, &error) != CLATTN_SUCCESS)
    fail_msg("%s, %s: %s\n%s", j->line, variant, error.message, log);
  clattn_args_init(&args);
  args.error = &error;
  args.q = input(s.q, 1);
  args.k = input(s.k, 2);
  if ((outputs & CLATTN_OUT_O) != 0)
    args.v = input(s.v, 3);
  args.o = output(s.o, (outputs & CLATTN_OUT_O) != 0);
  args.lse = output(s.rows, (outputs & CLATTN_OUT_LSE) != 0);
  args.scores = output(s.pairs, (outputs & CLATTN_OUT_SCORES) != 0);
  args.max_logit = output(s.heads, (outputs & CLATTN_OUT_MAX_LOGIT) != 0);
  if (j->given_bias != NULL)
    args.bias = clattn_buffer(buffer_of(CL_MEM_READ_ONLY, j->given_bias, s.pairs * sizeof(float)), 0);
  set_ints(&args.q_lengths, j->q_lengths, problem.batch);
  set_ints(&args.k_lengths, j->k_lengths, problem.batch);
  set_ints(&args.q_offsets, j->q_offsets, problem.batch);
  for (int i = 0; i < BUFFERS; i++) {
    args.hook_buffer[i] = j->buffer[i];
    args.hook_scalar[i] = j->scalar[i];
  }
  if (clattn_enqueue(plan, queue, &args, 0, NULL, NULL) != CLATTN_SUCCESS)
    fail_msg("%s, %s: %s", j->line, variant, error.message);
  r->o = fetch(&args.o, s.o);
  r->lse = fetch(&args.lse, s.rows);
  r->scores = fetch(&args.scores, s.pairs);
  r->max_logit = fetch(&args.max_logit, s.heads);
  const cl_mem inputs[] = {args.q.buffer, args.k.buffer, args.v.buffer, args.bias.buffer};
  for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++)
    if (inputs[i] != NULL)
      assert_int_equal(clReleaseMemObject(inputs[i]), CL_SUCCESS);
  clattn_plan_release(plan);
  return 1;
}

void run_reference(const job *j, clattn_stage stage, expected *e) {
  const shape s = shape_of(j->line);
  clattn_problem problem = device_problem(j, ALL_OUTPUTS, stage);
  clattn_ref_args args;
  clattn_error error;
  if (j->score == NULL && j->keep == NULL)
    problem.hook = NULL;
  problem.use_bias = j->bias != NULL || j->given_bias != NULL;
  problem.keep_mask_kind = j->mask != NULL ? CLATTN_MASK_U8 : CLATTN_MASK_NONE;
  float *q = numbers(s.q, 1), *k = numbers(s.k, 2), *v = numbers(s.v, 3);
  e->o = memory(s.o * sizeof(double));
  e->lse = memory(s.rows * sizeof(double));
  e->scores = memory(s.pairs * sizeof(double));
  e->max_logit = memory(s.heads * sizeof(double));
  clattn_error_init(&error);
  clattn_ref_args_init(&args);
  args.error = &error;
  args.q = q;
  args.k = k;
  args.v = v;
  args.bias = j->bias != NULL ? j->bias : j->given_bias;
  args.keep_mask = j->mask;
  args.score_hook = j->score;
  args.keep_hook = j->keep;
  args.hook_user = j->user;
  args.q_lengths = j->q_lengths;
  args.k_lengths = j->k_lengths;
  args.q_offsets = j->q_offsets;
  args.o = e->o;
  args.lse = e->lse;
  args.scores = e->scores;
  args.max_logit = e->max_logit;
  if (clattn_ref_attention(&problem, &args) != CLATTN_SUCCESS)
    fail_msg("%s: %s", j->line, error.message);
  free(q);
  free(k);
  free(v);
}

void expected_free(expected *e) {
  free(e->o);
  free(e->lse);
  free(e->scores);
  free(e->max_logit);
}

void check_close(const job *j, const char *variant, const char *what, const float *got, const double *want,
                 size_t count) {
  for (size_t i = 0; got != NULL && i < count; i++) {
    const double g = (double)got[i], w = want[i];
    if (isnan(w) ? !isnan(g) : !(g == w || fabs(g - w) <= 2e-5 * (1 + fabs(w))))
      fail_msg("%s, %s: %s[%zu] is %.9g, not %.9g", j->line, variant, what, i, g, w);
  }
}

/* 0: the variant does not take the problem. */
static int check_on(const job *j, const char *variant, clattn_stage stage, const expected *e) {
  const shape s = shape_of(j->line);
  const char *name = variant != NULL ? variant : "selected";
  for (int alone = 0; alone < 2; alone++) {
    results r;
    if (!run_on_device(j, variant, alone ? CLATTN_OUT_O : ALL_OUTPUTS, stage, &r))
      return 0;
    check_close(j, name, "scores", r.scores, e->scores, s.pairs);
    check_close(j, name, "max_logit", r.max_logit, e->max_logit, s.heads);
    check_close(j, name, "lse", r.lse, e->lse, s.rows);
    check_close(j, name, "o", r.o, e->o, s.o);
    results_free(&r);
  }
  return 1;
}

void check_job(const job *j, clattn_stage stage) {
  expected e;
  run_reference(j, stage, &e);
  assert_true(check_on(j, NULL, stage, &e));
  expected_free(&e);
}

void check_job_everywhere(const job *j, clattn_stage stage) {
  const char *variant;
  int ran = 0;
  expected e;
  run_reference(j, stage, &e);
  for (uint32_t n = 0; (variant = clattn_variant_name(n)) != NULL; n++)
    ran += check_on(j, variant, stage, &e);
  assert_true(ran > 0);
  expected_free(&e);
}

void job_close(job *j) {
  for (int i = 0; i < BUFFERS; i++) {
    const cl_mem owned[] = {j->buffer[i].buffer, j->scalar[i].device.buffer};
    for (int n = 0; n < 2; n++)
      if (owned[n] != NULL)
        assert_int_equal(clReleaseMemObject(owned[n]), CL_SUCCESS);
  }
}

clattn_hook *hook_of(const char *source) {
  clattn_hook *hook = NULL;
  clattn_error error;
  clattn_error_init(&error);
  if (clattn_hook_create(source, &hook, &error) != CLATTN_SUCCESS)
    fail_msg("%s", error.message);
  assert_non_null(hook);
  return hook;
}

clattn_hook *example(const char *name) {
  char path[1024], text[8192];
  (void)snprintf(path, sizeof path, CLATTN_HOOKS "/%s", name);
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  const size_t length = fread(text, 1, sizeof text - 1, file);
  assert_true(length > 0 && length < sizeof text - 1);
  assert_int_equal(fclose(file), 0);
  text[length] = 0;
  clattn_hook *hook = hook_of(text);
  memset(text, '#', sizeof text); /* a hook keeps a copy */
  return hook;
}

/* ---- the device -------------------------------------------------------------------------------------------------- */

int hook_device_open(void **state) {
  clattn_error error;
  cl_device_id device;
  cl_int code = CL_SUCCESS;
  (void)state;
  clattn_error_init(&error);
  if (clattn_context_create_default(NULL, &context, &error) != CLATTN_SUCCESS) {
    (void)fprintf(stderr, "%s\n", error.message);
    return -1;
  }
  if (clattn_context_handles(context, &cl, &device) != CLATTN_SUCCESS)
    return -1;
  queue = clCreateCommandQueue(cl, device, 0, &code);
  return code == CL_SUCCESS ? 0 : -1;
}

int hook_device_close(void **state) {
  (void)state;
  const cl_int code = clReleaseCommandQueue(queue);
  clattn_context_release(context);
  return code == CL_SUCCESS ? 0 : -1;
}
