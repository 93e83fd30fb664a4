/* SPDX-License-Identifier: Apache-2.0 */
#define CL_TARGET_OPENCL_VERSION 120
#include <clattn.h>
#include <stdio.h>

int main(void) {
  float q[2 * 4] = {1, 0, 0, 0, 0, 1, 0, 0}, k[3 * 4] = {4, 0, 0, 0, 0, 4, 0, 0, 0, 0, 4, 0}; /* 2 queries, 3 keys */
  float v[3 * 2] = {10, 0, 0, 10, 5, 5}, o[2 * 2];
  clattn_context *attention = NULL;
  cl_context cl;
  cl_device_id device;
  if (clattn_context_create_default(NULL, &attention, NULL) != CLATTN_SUCCESS)
    return puts("no OpenCL device"), 1;
  clattn_context_handles(attention, &cl, &device);
  cl_command_queue queue = clCreateCommandQueue(cl, device, 0, NULL);

  clattn_problem problem;
  clattn_problem_parse("sq=2 sk=3 d=4 dv=2", &problem, NULL);
  clattn_args args;
  clattn_args_init(&args);
  args.q = clattn_buffer(clCreateBuffer(cl, CL_MEM_COPY_HOST_PTR, sizeof q, q, NULL), 0);
  args.k = clattn_buffer(clCreateBuffer(cl, CL_MEM_COPY_HOST_PTR, sizeof k, k, NULL), 0);
  args.v = clattn_buffer(clCreateBuffer(cl, CL_MEM_COPY_HOST_PTR, sizeof v, v, NULL), 0);
  args.o = clattn_buffer(clCreateBuffer(cl, CL_MEM_WRITE_ONLY, sizeof o, NULL, NULL), 0);

  clattn_status status = clattn_attention(attention, queue, &problem, &args, 0, NULL, NULL);
  if (status != CLATTN_SUCCESS)
    return puts(clattn_status_text(status)), 1;
  clEnqueueReadBuffer(queue, args.o.buffer, CL_TRUE, 0, sizeof o, o, 0, NULL, NULL);
  printf("%.3f %.3f\n%.3f %.3f\n", o[0], o[1], o[2], o[3]);
  clattn_context_release(attention);
  return 0;
}
