/* SPDX-License-Identifier: Apache-2.0 */
/* Causal attention in an application that owns its OpenCL context, queue and buffers: one plan, one enqueue, checked
 * against the library's double-precision reference. */
#include <clattn.h>
#include <clattn_ref.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { HEADS = 4, ROWS = 128, DIM = 64, COUNT = HEADS * ROWS * DIM };
static float q[COUNT], k[COUNT], v[COUNT], o[COUNT];
static double want[COUNT];
static clattn_error error;

static void check(int32_t status, const char *what) {
  if (status != CLATTN_SUCCESS)
    fprintf(stderr, "%s: %s: %s\n", what, clattn_status_name(status), error.message), exit(1);
}

int main(void) {
  cl_platform_id platform;
  cl_device_id device;
  cl_int rc;
  check(clGetPlatformIDs(1, &platform, NULL), "platform");
  check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "device");
  cl_context cl = clCreateContext(NULL, 1, &device, NULL, NULL, &rc);
  check(rc, "context");
  cl_command_queue queue = clCreateCommandQueue(cl, device, 0, &rc);
  check(rc, "queue");
  for (int i = 0; i < COUNT; i++)
    q[i] = 3 * sinf((float)i), k[i] = 2 * cosf(0.7f * (float)i), v[i] = sinf(1.3f * (float)i);
  float *host[4] = {q, k, v, o};
  cl_mem buffer[4];
  for (int i = 0; i < 4; i++)
    buffer[i] = clCreateBuffer(cl, CL_MEM_COPY_HOST_PTR, sizeof q, host[i], &rc), check(rc, "buffer");

  clattn_error_init(&error);
  clattn_context *attention;
  check(clattn_context_create(cl, device, NULL, &attention, &error), "clattn_context_create");
  clattn_problem problem;
  clattn_problem_init(&problem);
  problem.q_heads = HEADS, problem.q_len = problem.k_len = ROWS, problem.qk_dim = DIM, problem.causal = 1;
  clattn_plan *plan; /* kernels are built here: do it once */
  check(clattn_plan_create(attention, &problem, NULL, &plan, &error), "clattn_plan_create");
  clattn_args args;
  clattn_args_init(&args);
  args.error = &error;
  args.q = clattn_buffer(buffer[0], 0), args.k = clattn_buffer(buffer[1], 0);
  args.v = clattn_buffer(buffer[2], 0), args.o = clattn_buffer(buffer[3], 0);
  check(clattn_enqueue(plan, queue, &args, 0, NULL, NULL), "clattn_enqueue"); /* does not wait */
  check(clEnqueueReadBuffer(queue, buffer[3], CL_TRUE, 0, sizeof o, o, 0, NULL, NULL), "read");

  clattn_ref_args ref;
  clattn_ref_args_init(&ref);
  ref.error = &error, ref.q = q, ref.k = k, ref.v = v, ref.o = want;
  check(clattn_ref_attention(&problem, &ref), "clattn_ref_attention");
  double worst = 0;
  for (int i = 0; i < COUNT; i++)
    worst = fmax(worst, isnan(o[i]) ? INFINITY : fabs(o[i] - want[i]));
  printf("%d heads x %d rows, largest difference from double precision: %.1e\n", HEADS, ROWS, worst);

  for (int i = 0; i < 4; i++)
    clReleaseMemObject(buffer[i]);
  clattn_plan_release(plan);
  clattn_context_release(attention);
  clReleaseCommandQueue(queue);
  clReleaseContext(cl);
  return worst < 1e-5 ? 0 : 1;
}
