/* SPDX-License-Identifier: Apache-2.0 */
/* A client of clattn: one training step, forward with lse and dropout, then backward to dq, dk, dv and dbias.  The
 * gradients are checked against differences of the forward pass itself, along random directions: the same seed and
 * offset give the same dropout, so the loss is a smooth function of the inputs.
 * Exit status: 0 good, 1 bad, 77 no OpenCL device, or this release can't do it yet. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "clattn.h"

enum { BATCH = 2, HEADS = 4, ROWS = 32, DIM = 32, SKIP = 77 };
enum { X = BATCH * HEADS * ROWS * DIM, SCORES = BATCH * HEADS * ROWS * ROWS, LSE = BATCH * HEADS * ROWS };
enum { Q, K, V, BIAS, INPUTS };                                 /* the tensors that have a gradient */
enum { GRAD_DQ = 1, GRAD_DK = 2, GRAD_DV = 4, GRAD_DBIAS = 8 }; /* the bits of problem.gradients have no names yet */

static const char *const input_name[INPUTS] = {"q", "k", "v", "bias"};
static const size_t input_size[INPUTS] = {X, X, X, SCORES};

typedef struct runner {
  cl_context context;
  cl_command_queue queue;
  clattn_plan *forward, *backward;
  cl_mem forward_workspace, backward_workspace;
  cl_mem input[INPUTS], gradient[INPUTS], o, lse, d_o;
  clattn_error error;
} runner;

static void must(int32_t status, const char *what, const clattn_error *error) {
  if (status == 0)
    return;
  fprintf(stderr, "training_step: %s: %s %s\n", what, clattn_status_name(status), error != NULL ? error->message : "");
  if (status == CLATTN_ERROR_NOT_SUPPORTED) {
    printf("training_step: skipped: this clattn (%s) can't train yet\n", clattn_version());
    exit(SKIP);
  }
  exit(1);
}

static float next_random(uint32_t *state) {
  *state = *state * 1664525u + 1013904223u;
  return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

/* The first platform's first device will do here. */
static int find_device(cl_device_id *device) {
  cl_platform_id platform = NULL;
  return clGetPlatformIDs(1, &platform, NULL) == CL_SUCCESS &&
         clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, device, NULL) == CL_SUCCESS;
}

static cl_mem make_buffer(cl_context context, size_t bytes) {
  cl_int rc = CL_SUCCESS;
  cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, NULL, &rc);
  must(rc, "clCreateBuffer", NULL);
  return buffer;
}

static void write_floats(const runner *r, cl_mem to, const float *from, size_t count) {
  must(clEnqueueWriteBuffer(r->queue, to, CL_TRUE, 0, count * sizeof(float), from, 0, NULL, NULL), "write", NULL);
}

static void read_floats(const runner *r, cl_mem from, float *to, size_t count) {
  must(clEnqueueReadBuffer(r->queue, from, CL_TRUE, 0, count * sizeof(float), to, 0, NULL, NULL), "read", NULL);
}

/* The bias is one per (batch, head) here, so that its gradient has the same shape and needs no sum. */
static void describe(clattn_problem *forward, clattn_problem *backward) {
  clattn_problem_init(forward);
  forward->batch = BATCH;
  forward->q_heads = HEADS;
  forward->q_len = forward->k_len = ROWS;
  forward->qk_dim = DIM;
  forward->causal = 1;
  forward->use_bias = 1;
  forward->dropout = 0.1f;
  forward->outputs = CLATTN_OUT_O | CLATTN_OUT_LSE;
  *backward = *forward; /* q, k, v, bias, o and lse are what they were; the last two are inputs now */
  backward->pass = CLATTN_BACKWARD;
  backward->gradients = GRAD_DQ | GRAD_DK | GRAD_DV | GRAD_DBIAS;
}

static cl_mem make_plan(runner *r, clattn_context *attn, const clattn_problem *problem, clattn_plan **plan) {
  must(clattn_plan_create(attn, problem, NULL, plan, &r->error), "clattn_plan_create", &r->error);
  clattn_plan_info info;
  clattn_plan_info_init(&info);
  must(clattn_plan_get_info(*plan, &info), "clattn_plan_get_info", NULL);
  printf("training_step: %s: %s\n", info.line, info.variant);
  return info.workspace_bytes > 0 ? make_buffer(r->context, (size_t)info.workspace_bytes) : NULL;
}

/* What both passes are given.  Seed and offset must be the same in both, or dropout drops other weights. */
static clattn_args common_args(runner *r, cl_mem workspace) {
  clattn_args args;
  clattn_args_init(&args);
  args.error = &r->error;
  args.q = clattn_buffer(r->input[Q], 0);
  args.k = clattn_buffer(r->input[K], 0);
  args.v = clattn_buffer(r->input[V], 0);
  args.bias = clattn_buffer(r->input[BIAS], 0);
  args.o = clattn_buffer(r->o, 0);
  args.lse = clattn_buffer(r->lse, 0);
  args.dropout_seed = 2024;
  args.dropout_offset = 17;
  if (workspace != NULL)
    args.workspace = clattn_buffer(workspace, 0);
  return args;
}

/* The loss is sum(o * d_o). */
static double run_forward(runner *r, const float *d_o) {
  static float o[X];
  double loss = 0.0;
  clattn_args args = common_args(r, r->forward_workspace);
  must(clattn_enqueue(r->forward, r->queue, &args, 0, NULL, NULL), "forward", &r->error);
  read_floats(r, r->o, o, X);
  for (size_t i = 0; i < X; i++)
    loss += (double)o[i] * (double)d_o[i];
  return loss;
}

static void run_backward(runner *r) {
  clattn_args args = common_args(r, r->backward_workspace);
  args.d_o = clattn_buffer(r->d_o, 0); /* no d_lse: the loss does not use lse */
  args.d_q = clattn_buffer(r->gradient[Q], 0);
  args.d_k = clattn_buffer(r->gradient[K], 0);
  args.d_v = clattn_buffer(r->gradient[V], 0);
  args.d_bias = clattn_buffer(r->gradient[BIAS], 0);
  must(clattn_enqueue(r->backward, r->queue, &args, 0, NULL, NULL), "backward", &r->error);
}

/* Compares the gradient along a random direction with the loss's difference along it.  1: wrong. */
static int check_gradient(runner *r, int which, const float *values, const float *d_o, uint32_t *rng) {
  static float gradient[SCORES > X ? SCORES : X], direction[SCORES > X ? SCORES : X], moved[SCORES > X ? SCORES : X];
  const size_t count = input_size[which];
  const float step = 1e-2f;
  double along = 0.0, norm = 0.0, loss[2];
  read_floats(r, r->gradient[which], gradient, count);
  for (size_t i = 0; i < count; i++) {
    direction[i] = next_random(rng);
    along += (double)gradient[i] * (double)direction[i];
    norm += (double)gradient[i] * (double)gradient[i];
  }
  for (int side = 0; side < 2; side++) {
    for (size_t i = 0; i < count; i++)
      moved[i] = values[i] + (side == 0 ? -step : step) * direction[i];
    write_floats(r, r->input[which], moved, count);
    loss[side] = run_forward(r, d_o);
  }
  write_floats(r, r->input[which], values, count);
  double difference = (loss[1] - loss[0]) / (2.0 * (double)step), tolerance = 1e-2 * sqrt(norm);
  int good = norm > 0.0 && fabs(difference - along) <= tolerance; /* false for NaN */
  printf("training_step: d%s: %g by backward, %g by differences, %s\n", input_name[which], along, difference,
         good ? "good" : "WRONG");
  return !good;
}

int main(void) {
  static float values[INPUTS][SCORES > X ? SCORES : X], d_o[X];
  static runner r;
  clattn_problem forward, backward;
  clattn_error_init(&r.error);
  describe(&forward, &backward);
  /* Before anything is made: does this release know training?  No device is needed for the answer. */
  must(clattn_problem_check(&forward, &r.error), "forward", &r.error);
  must(clattn_problem_check(&backward, &r.error), "backward", &r.error);

  cl_device_id device = NULL;
  if (!find_device(&device))
    return SKIP;
  cl_int rc = CL_SUCCESS;
  r.context = clCreateContext(NULL, 1, &device, NULL, NULL, &rc);
  must(rc, "clCreateContext", NULL);
  r.queue = clCreateCommandQueue(r.context, device, 0, &rc);
  must(rc, "clCreateCommandQueue", NULL);
  clattn_context *attn = NULL;
  must(clattn_context_create(r.context, device, NULL, &attn, &r.error), "clattn_context_create", &r.error);
  r.forward_workspace = make_plan(&r, attn, &forward, &r.forward);
  r.backward_workspace = make_plan(&r, attn, &backward, &r.backward);

  uint32_t rng = 3;
  for (int t = 0; t < INPUTS; t++) {
    for (size_t i = 0; i < input_size[t]; i++)
      values[t][i] = next_random(&rng);
    r.input[t] = make_buffer(r.context, input_size[t] * sizeof(float));
    r.gradient[t] = make_buffer(r.context, input_size[t] * sizeof(float));
    write_floats(&r, r.input[t], values[t], input_size[t]);
  }
  r.o = make_buffer(r.context, X * sizeof(float));
  r.lse = make_buffer(r.context, LSE * sizeof(float));
  r.d_o = make_buffer(r.context, X * sizeof(float));
  for (size_t i = 0; i < X; i++)
    d_o[i] = next_random(&rng);
  write_floats(&r, r.d_o, d_o, X);

  printf("training_step: loss %g\n", run_forward(&r, d_o));
  run_backward(&r);
  int bad = 0;
  for (int t = 0; t < INPUTS; t++)
    bad += check_gradient(&r, t, values[t], d_o, &rng);
  for (int t = 0; t < INPUTS; t++) {
    clReleaseMemObject(r.input[t]);
    clReleaseMemObject(r.gradient[t]);
  }

  clattn_plan_release(r.backward);
  clattn_plan_release(r.forward);
  clattn_context_release(attn);
  cl_mem rest[] = {r.o, r.lse, r.d_o, r.forward_workspace, r.backward_workspace};
  for (size_t i = 0; i < sizeof rest / sizeof rest[0]; i++)
    if (rest[i] != NULL)
      clReleaseMemObject(rest[i]);
  clReleaseCommandQueue(r.queue);
  clReleaseContext(r.context);
  return bad != 0;
}
