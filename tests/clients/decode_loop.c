/* SPDX-License-Identifier: Apache-2.0 */
/* A client of clattn: the decode loop of an inference engine.  One plan serves the whole generation: two sequences of
 * different lengths, a key/value cache that grows in place, one query row per sequence and step.  The second sequence
 * ends early, from then on the batch is one.  Exit status: 0 good, 1 bad, 77 no OpenCL device. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "clattn.h"

enum { BATCH = 2, Q_HEADS = 8, KV_HEADS = 2, DIM = 64, MAX_KEYS = 256, SECOND_ENDS = 100 };
enum { KV_ROW = KV_HEADS * DIM, CACHE = BATCH * MAX_KEYS * KV_ROW, Q_ALL = BATCH * Q_HEADS * DIM };

static void must(int32_t status, const char *what, const clattn_error *error) {
  if (status == 0)
    return;
  fprintf(stderr, "decode_loop: %s: %s (%s) %s\n", what, clattn_status_name(status), clattn_status_text(status),
          error != NULL ? error->message : "");
  exit(1);
}

static float next_random(uint32_t *state) {
  *state = *state * 1664525u + 1013904223u;
  return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

static int find_device(cl_device_id *device) {
  cl_platform_id platforms[16];
  cl_uint count = 0;
  if (clGetPlatformIDs(16, platforms, &count) != CL_SUCCESS)
    return 0;
  for (cl_uint i = 0; i < count && i < 16; i++)
    if (clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 1, device, NULL) == CL_SUCCESS)
      return 1;
  return 0;
}

static cl_mem make_buffer(cl_context context, cl_mem_flags flags, size_t bytes, void *from) {
  cl_int rc = CL_SUCCESS;
  cl_mem buffer = clCreateBuffer(context, flags | (from != NULL ? CL_MEM_COPY_HOST_PTR : 0u), bytes, from, &rc);
  must(rc, "clCreateBuffer", NULL);
  return buffer;
}

/* Makes row `row` of sequence b in a host cache and copies it to the device; the host cache outlives the copy. */
static void append_row(cl_command_queue queue, cl_mem buffer, float *cache, size_t b, size_t row, uint32_t *rng) {
  size_t at = (b * MAX_KEYS + row) * KV_ROW;
  for (size_t x = 0; x < KV_ROW; x++)
    cache[at + x] = next_random(rng);
  must(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, at * sizeof(float), KV_ROW * sizeof(float), cache + at, 0, NULL,
                            NULL),
       "clEnqueueWriteBuffer", NULL);
}

static int differs(float got, double want) {
  return !(fabs((double)got - want) <= 1e-5 * fmax(1.0, fabs(want)));
}

/* One query row of one head over keys 0 .. keys - 1; a single bottom-right row sees all of them.  Counts errors. */
static int check_row(const float *q, const float *k, const float *v, size_t keys, const float *o, float lse) {
  double score[MAX_KEYS], max = -HUGE_VAL, sum = 0.0;
  int bad = 0;
  for (size_t j = 0; j < keys; j++) {
    score[j] = 0.0;
    for (size_t d = 0; d < DIM; d++)
      score[j] += (double)q[d] * (double)k[j * KV_ROW + d];
    score[j] /= sqrt((double)DIM);
    max = fmax(max, score[j]);
  }
  for (size_t j = 0; j < keys; j++)
    sum += exp(score[j] - max);
  for (size_t d = 0; d < DIM; d++) {
    double want = 0.0;
    for (size_t j = 0; j < keys; j++)
      want += exp(score[j] - max) / sum * (double)v[j * KV_ROW + d];
    bad += differs(o[d], want);
  }
  return bad + differs(lse, max + log(sum));
}

int main(void) {
  cl_device_id device = NULL;
  if (!find_device(&device)) {
    fprintf(stderr, "decode_loop: no OpenCL device\n");
    return 77;
  }
  cl_int rc = CL_SUCCESS;
  cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &rc);
  must(rc, "clCreateContext", NULL);
  cl_command_queue queue = clCreateCommandQueue(context, device, 0, &rc);
  must(rc, "clCreateCommandQueue", NULL);

  clattn_error error;
  clattn_error_init(&error);
  clattn_context *attn = NULL;
  must(clattn_context_create(context, device, NULL, &attn, &error), "clattn_context_create", &error);

  clattn_problem problem;
  clattn_problem_init(&problem);
  problem.batch = BATCH;
  problem.q_heads = Q_HEADS;
  problem.kv_heads = KV_HEADS;
  problem.q_len = 1;
  problem.k_len = MAX_KEYS;
  problem.qk_dim = DIM;
  problem.q.layout = CLATTN_LAYOUT_BSHD;
  problem.k.layout = CLATTN_LAYOUT_BSHD; /* strides of the upper bound: the cache never moves */
  problem.v.layout = CLATTN_LAYOUT_BSHD;
  problem.o.layout = CLATTN_LAYOUT_BSHD;
  problem.causal = 1;
  problem.offset_mode = CLATTN_OFFSET_BOTTOM_RIGHT;
  problem.k_length_mode = CLATTN_LENGTH_PER_BATCH;
  problem.outputs = CLATTN_OUT_O | CLATTN_OUT_LSE;

  clattn_plan *plan = NULL;
  must(clattn_plan_create(attn, &problem, NULL, &plan, &error), "clattn_plan_create", &error);
  clattn_plan_info info;
  clattn_plan_info_init(&info);
  must(clattn_plan_get_info(plan, &info), "clattn_plan_get_info", NULL);
  printf("decode_loop: %s: variant %s, workspace %llu bytes, at most %u launches\n", info.line, info.variant,
         (unsigned long long)info.workspace_bytes, (unsigned)info.launches);

  /* The part of the cache that is not in use yet is NaN: a single read beyond k_lengths that counts shows. */
  static float k[CACHE], v[CACHE];
  for (size_t x = 0; x < CACHE; x++)
    k[x] = v[x] = NAN;
  float q[Q_ALL], o[Q_ALL], lse[BATCH * Q_HEADS];
  cl_mem q_mem = make_buffer(context, CL_MEM_READ_ONLY, sizeof q, NULL);
  cl_mem k_mem = make_buffer(context, CL_MEM_READ_ONLY, CACHE * sizeof(float), k);
  cl_mem v_mem = make_buffer(context, CL_MEM_READ_ONLY, CACHE * sizeof(float), v);
  cl_mem o_mem = make_buffer(context, CL_MEM_WRITE_ONLY, sizeof o, NULL);
  cl_mem lse_mem = make_buffer(context, CL_MEM_WRITE_ONLY, sizeof lse, NULL);
  cl_mem workspace = NULL;
  if (info.workspace_bytes > 0)
    workspace = make_buffer(context, CL_MEM_READ_WRITE, (size_t)info.workspace_bytes, NULL);

  /* The prompts.  Their own attention (prefill) would be another plan; only their keys and values matter here. */
  uint32_t rng = 1;
  int32_t lengths[BATCH] = {7, 19};
  for (size_t b = 0; b < BATCH; b++)
    for (size_t row = 0; row < (size_t)lengths[b]; row++) {
      append_row(queue, k_mem, k, b, row, &rng);
      append_row(queue, v_mem, v, b, row, &rng);
    }

  clattn_args args;
  clattn_args_init(&args);
  args.error = &error;
  args.sizes = CLATTN_SIZES_GIVEN;
  args.q_len = 1;
  args.q = clattn_buffer(q_mem, 0);
  args.k = clattn_buffer(k_mem, 0);
  args.v = clattn_buffer(v_mem, 0);
  args.o = clattn_buffer(o_mem, 0);
  args.lse = clattn_buffer(lse_mem, 0);
  args.k_lengths.kind = CLATTN_ARRAY_HOST;
  args.k_lengths.host = lengths;
  if (workspace != NULL)
    args.workspace = clattn_buffer(workspace, 0);

  int bad = 0;
  size_t batch = BATCH;
  for (int step = 0; bad == 0 && lengths[0] < MAX_KEYS; step++) {
    if (step == SECOND_ENDS)
      batch = 1;
    int32_t longest = 0;
    for (size_t b = 0; b < batch; b++) {
      append_row(queue, k_mem, k, b, (size_t)lengths[b], &rng);
      append_row(queue, v_mem, v, b, (size_t)lengths[b], &rng);
      lengths[b]++;
      longest = lengths[b] > longest ? lengths[b] : longest;
    }
    for (size_t x = 0; x < Q_ALL; x++)
      q[x] = next_random(&rng);
    must(clEnqueueWriteBuffer(queue, q_mem, CL_FALSE, 0, sizeof q, q, 0, NULL, NULL), "clEnqueueWriteBuffer", NULL);

    args.batch = (int64_t)batch;
    args.k_len = longest;
    args.k_lengths.count = (uint32_t)batch;
    must(clattn_enqueue(plan, queue, &args, 0, NULL, NULL), "clattn_enqueue", &error);

    /* In order: the blocking read of the last result also says that q may be written again. */
    must(clEnqueueReadBuffer(queue, o_mem, CL_FALSE, 0, sizeof o, o, 0, NULL, NULL), "clEnqueueReadBuffer", NULL);
    must(clEnqueueReadBuffer(queue, lse_mem, CL_TRUE, 0, sizeof lse, lse, 0, NULL, NULL), "clEnqueueReadBuffer", NULL);
    for (size_t b = 0; b < batch; b++)
      for (size_t h = 0; h < Q_HEADS; h++) {
        size_t row = b * Q_HEADS + h, kv = b * MAX_KEYS * KV_ROW + h / (Q_HEADS / KV_HEADS) * DIM;
        bad += check_row(q + row * DIM, k + kv, v + kv, (size_t)lengths[b], o + row * DIM, lse[row]);
      }
    if (bad != 0)
      fprintf(stderr, "decode_loop: step %d, lengths %d %d: %d wrong values\n", step, lengths[0], lengths[1], bad);
  }

  clattn_plan_release(plan);
  clattn_context_release(attn);
  cl_mem buffers[] = {q_mem, k_mem, v_mem, o_mem, lse_mem, workspace};
  for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++)
    if (buffers[i] != NULL)
      clReleaseMemObject(buffers[i]);
  clReleaseCommandQueue(queue);
  clReleaseContext(context);
  printf("decode_loop: %s\n", bad == 0 ? "good" : "FAILED");
  return bad != 0;
}
