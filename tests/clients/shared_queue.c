/* SPDX-License-Identifier: Apache-2.0 */
/* A client of clattn: an application with an out-of-order queue (where the device has one) and one big buffer that
 * holds packed q, k, v as (batch, row, 3, head, element) and the outputs of two plans.  Everything is ordered by
 * events, in both directions: writes -> attention -> reads, and the next round's writes and outputs wait for the
 * round before. Nothing blocks before the very end.  Exit status: 0 good, 1 bad, 77 no OpenCL device. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "clattn.h"

enum { BATCH = 2, HEADS = 4, ROWS = 48, DIM = 32, ROUNDS = 2, PLANS = 2 };
enum { ROW = 3 * HEADS * DIM, QKV = BATCH * ROWS * ROW, OUT = BATCH * ROWS * HEADS * DIM, MASK = BATCH * ROWS };
/* Bytes of the shared buffer. */
enum { QKV_AT = 256, OUT_AT = QKV_AT + QKV * 4 };
enum { OUT_BYTES = OUT * 4, SHARED_BYTES = OUT_AT + PLANS * OUT_BYTES };

static const int valid_rows[BATCH] = {ROWS, 31};

static void must(int32_t status, const char *what, const clattn_error *error) {
  if (status == 0)
    return;
  fprintf(stderr, "shared_queue: %s: %s %s\n", what, clattn_status_name(status), error != NULL ? error->message : "");
  exit(1);
}

static float next_random(uint32_t *state) {
  *state = *state * 1664525u + 1013904223u;
  return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

static cl_mem make_buffer(cl_context context, cl_mem_flags flags, size_t bytes, void *from) {
  cl_int rc = CL_SUCCESS;
  cl_mem buffer = clCreateBuffer(context, flags, bytes, from, &rc);
  must(rc, "clCreateBuffer", NULL);
  return buffer;
}

static clattn_tensor strided(int64_t batch, int64_t head, int64_t row, int64_t element) {
  return (clattn_tensor){.layout = CLATTN_LAYOUT_STRIDED, .stride = {batch, head, row, element}};
}

/* Plan 0 is causal; plan 1 has a window of 8 keys to each side and a softcap. */
static void describe(clattn_problem *problem, int which) {
  clattn_problem_init(problem);
  problem->batch = BATCH;
  problem->q_heads = HEADS;
  problem->q_len = problem->k_len = ROWS;
  problem->qk_dim = DIM;
  problem->q = strided(ROWS * ROW, DIM, ROW, 1);
  problem->v = problem->k = problem->q; /* they differ by the offset only */
  problem->o.layout = CLATTN_LAYOUT_BSHD;
  problem->alignment = 16;
  problem->use_bias = 1;
  problem->bias = strided(0, 0, ROWS, 1);
  problem->keep_mask_kind = CLATTN_MASK_U8;
  problem->keep_mask = strided(ROWS, 0, 0, 1);
  problem->causal = which == 0;
  if (which == 0)
    return;
  problem->window = CLATTN_WINDOW_BOTH;
  problem->window_left = problem->window_right = 8;
  problem->softcap = 5.0f;
}

static int check(int which, const float *qkv, const float *bias, const float *o) {
  int bad = 0;
  for (size_t n = 0; n < BATCH * HEADS * ROWS; n++) {
    size_t b = n / (HEADS * ROWS), h = n / ROWS % HEADS, i = n % ROWS;
    const float *base = qkv + b * ROWS * ROW + h * DIM, *q = base + i * ROW;
    double weight[ROWS], max = -HUGE_VAL, sum = 0.0;
    for (size_t j = 0; j < ROWS; j++) {
      int kept = j < (size_t)valid_rows[b] && (which == 0 ? j <= i : j + 8 >= i && j <= i + 8);
      double s = 0.0;
      for (size_t d = 0; d < DIM; d++)
        s += (double)q[d] * (double)base[j * ROW + HEADS * DIM + d];
      s /= sqrt((double)DIM);
      s = (which == 0 ? s : 5.0 * tanh(s / 5.0)) + (double)bias[i * ROWS + j];
      weight[j] = kept ? s : -HUGE_VAL;
      max = fmax(max, weight[j]);
    }
    for (size_t j = 0; j < ROWS; j++) {
      weight[j] = isinf(weight[j]) ? 0.0 : exp(weight[j] - max);
      sum += weight[j];
    }
    for (size_t d = 0; d < DIM; d++) {
      double want = 0.0; /* stays 0 in a row without any kept key */
      for (size_t j = 0; j < ROWS; j++)
        if (weight[j] > 0.0)
          want += weight[j] / sum * (double)base[j * ROW + 2 * HEADS * DIM + d];
      bad += !(fabs((double)o[((b * ROWS + i) * HEADS + h) * DIM + d] - want) <= 1e-5);
    }
  }
  return bad;
}

/* Releases the events; returns the time that they took together, in microseconds. */
static double take_times(const cl_event *events, uint32_t count) {
  double microseconds = 0.0;
  for (uint32_t i = 0; i < count; i++) {
    cl_ulong start = 0, end = 0;
    must(clGetEventProfilingInfo(events[i], CL_PROFILING_COMMAND_START, sizeof start, &start, NULL), "start", NULL);
    must(clGetEventProfilingInfo(events[i], CL_PROFILING_COMMAND_END, sizeof end, &end, NULL), "end", NULL);
    microseconds += (double)(end - start) * 1e-3;
    clReleaseEvent(events[i]);
  }
  return microseconds;
}

int main(void) {
  static float qkv[ROUNDS][QKV], bias[ROWS * ROWS], out[ROUNDS][PLANS][OUT];
  static uint8_t mask[MASK];
  cl_platform_id platform = NULL; /* the first platform's first device will do here */
  cl_device_id device = NULL;
  if (clGetPlatformIDs(1, &platform, NULL) != 0 || clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL) != 0)
    return 77;
  cl_int rc = CL_SUCCESS;
  cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &rc);
  must(rc, "clCreateContext", NULL);
  cl_command_queue_properties can = 0;
  must(clGetDeviceInfo(device, CL_DEVICE_QUEUE_PROPERTIES, sizeof can, &can, NULL), "clGetDeviceInfo", NULL);
  can = (can & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) | CL_QUEUE_PROFILING_ENABLE;
  cl_command_queue queue = clCreateCommandQueue(context, device, can, &rc);
  must(rc, "clCreateCommandQueue", NULL);

  uint32_t rng = 7;
  for (size_t x = 0; x < ROWS * ROWS; x++)
    bias[x] = next_random(&rng);
  for (size_t x = 0; x < MASK; x++)
    mask[x] = x % ROWS < (size_t)valid_rows[x / ROWS];
  for (size_t r = 0; r < ROUNDS; r++)
    for (size_t x = 0; x < QKV; x++) /* padding keys and values hold NaN: they must not matter */
      qkv[r][x] = mask[x / ROW] == 0 && x % ROW >= HEADS * DIM ? NAN : next_random(&rng);

  clattn_error error;
  clattn_error_init(&error);
  clattn_context *attn = NULL;
  must(clattn_context_create(context, device, NULL, &attn, &error), "clattn_context_create", &error);
  cl_mem shared = make_buffer(context, CL_MEM_READ_WRITE, SHARED_BYTES, NULL);
  cl_mem mask_mem = make_buffer(context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, sizeof mask, mask);
  cl_mem bias_mem = make_buffer(context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, sizeof bias, bias);

  clattn_plan *plan[PLANS] = {NULL};
  cl_mem workspace[PLANS] = {NULL};
  cl_event *launch[PLANS] = {NULL}, *launch_at[PLANS]; /* of all rounds, and where the next round's go */
  clattn_args args[PLANS];
  uint32_t launched = 0;
  for (int p = 0; p < PLANS; p++) {
    clattn_problem problem;
    describe(&problem, p);
    must(clattn_plan_create(attn, &problem, NULL, &plan[p], &error), "clattn_plan_create", &error);
    clattn_plan_info info;
    clattn_plan_info_init(&info);
    must(clattn_plan_get_info(plan[p], &info), "clattn_plan_get_info", NULL);
    launch[p] = launch_at[p] = calloc((size_t)info.launches * ROUNDS + 1, sizeof(cl_event));
    if (launch[p] == NULL)
      return 1;
    clattn_args_init(&args[p]); /* sizes: the upper bounds, which is the default */
    args[p].error = &error;
    args[p].q = clattn_buffer(shared, QKV_AT);
    args[p].k = clattn_buffer(shared, QKV_AT + HEADS * DIM * 4);
    args[p].v = clattn_buffer(shared, QKV_AT + 2 * HEADS * DIM * 4);
    args[p].o = clattn_buffer(shared, OUT_AT + (uint64_t)p * OUT_BYTES);
    args[p].bias = clattn_buffer(bias_mem, 0);
    args[p].keep_mask = clattn_buffer(mask_mem, 0);
    args[p].launch_events_capacity = info.launches;
    args[p].num_launch_events = &launched;
    if (info.workspace_bytes > 0) /* the two plans may run at once: a workspace for each */
      workspace[p] = make_buffer(context, CL_MEM_READ_WRITE, (size_t)info.workspace_bytes, NULL);
    args[p].workspace = clattn_buffer(workspace[p], 0); /* all zero without one: absent */
  }

  /* A write waits for the last round's attentions; an attention for its input and for the last round's reads of o. */
  cl_event waits[ROUNDS][1 + PLANS], attended[ROUNDS][PLANS], got[ROUNDS][PLANS];
  for (size_t r = 0; r < ROUNDS; r++) {
    const cl_uint n = r > 0 ? PLANS : 0;
    rc = clEnqueueWriteBuffer(queue, shared, CL_FALSE, QKV_AT, sizeof qkv[r], qkv[r], n, r > 0 ? attended[r - 1] : NULL,
                              &waits[r][0]);
    must(rc, "clEnqueueWriteBuffer", NULL);
    for (size_t p = 0; p < n; p++)
      waits[r][1 + p] = got[r - 1][p];
    for (size_t p = 0; p < PLANS; p++) {
      args[p].launch_events = launch_at[p];
      must(clattn_enqueue(plan[p], queue, &args[p], 1 + n, waits[r], &attended[r][p]), "clattn_enqueue", &error);
      launch_at[p] += launched;
      rc = clEnqueueReadBuffer(queue, shared, CL_FALSE, OUT_AT + p * OUT_BYTES, OUT_BYTES, out[r][p], 1,
                               &attended[r][p], &got[r][p]);
      must(rc, "clEnqueueReadBuffer", NULL);
    }
  }
  must(clFinish(queue), "clFinish", NULL);
  int bad = 0;
  for (int p = 0; p < PLANS; p++) {
    for (size_t r = 0; r < ROUNDS; r++) {
      bad += check(p, qkv[r], bias, out[r][p]);
      clReleaseEvent(attended[r][p]);
      clReleaseEvent(got[r][p]);
    }
    uint32_t count = (uint32_t)(launch_at[p] - launch[p]);
    printf("shared_queue: plan %d: %u launches, %.1f us, %d wrong so far\n", p, (unsigned)count,
           take_times(launch[p], count), bad);
    free(launch[p]);
    clattn_plan_release(plan[p]);
    if (workspace[p] != NULL)
      clReleaseMemObject(workspace[p]);
  }
  for (size_t r = 0; r < ROUNDS; r++)
    clReleaseEvent(waits[r][0]);
  clattn_context_release(attn);
  clReleaseMemObject(shared);
  clReleaseMemObject(mask_mem);
  clReleaseMemObject(bias_mem);
  clReleaseCommandQueue(queue);
  clReleaseContext(context);
  return bad != 0;
}
