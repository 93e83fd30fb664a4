/* SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "affinity.h"

/* Independent chains of fused multiply-adds: enough of them to cover the latency of two units, few enough for
 * registers. `raw` has arguments like those of a clattn kernel and does nothing. */
static const char probe_source[] = "#define VECTOR_(n) float##n\n"
                                   "#define VECTOR(n) VECTOR_(n)\n"
                                   "typedef VECTOR(WIDTH) vec;\n"
                                   "#if defined(__clang__) && WIDTH == 16\n"
                                   "__attribute__((min_vector_width(512)))\n"
                                   "#endif\n"
                                   "__kernel void fma_peak(__global float *out, int n, float x, float y) {\n"
                                   "  vec a[10];\n"
                                   "  const vec vx = (vec)(x), vy = (vec)(y);\n"
                                   "  for (int i = 0; i < 10; ++i) a[i] = (vec)(x * (float)i);\n"
                                   "  for (int r = 0; r < n; ++r) {\n"
                                   "#pragma unroll\n"
                                   "    for (int i = 0; i < 10; ++i) a[i] = fma(a[i], vx, vy);\n"
                                   "  }\n"
                                   "  vec s = a[0];\n"
                                   "  for (int i = 1; i < 10; ++i) s += a[i];\n"
                                   "  out[get_global_id(0)] = s.s0 + s.s1 + s.s2 + s.s3;\n"
                                   "}\n"
                                   "typedef struct { long words[64]; } block;\n"
                                   "__kernel void raw(block p, int r, __global float *a, __global float *b, __global "
                                   "float *c, __global float *d, __global float *e, __global float *f, __global float "
                                   "*g, __global float *h, __global float *i, __global float *j) {}\n";

double now(void) {
  struct timespec t;
  timespec_get(&t, TIME_UTC);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void must(clattn_status status, const char *what) {
  if (status == CLATTN_SUCCESS)
    return;
  fprintf(stderr, "%s: %s: %s\n", what, clattn_status_name(status), clattn_status_text(status));
  exit(status == CLATTN_ERROR_NO_DEVICE ? 3 : 1);
}

void *memory(size_t bytes) {
  void *block = malloc(bytes);
  must(block == NULL ? CLATTN_ERROR_OUT_OF_MEMORY : CLATTN_SUCCESS, "malloc");
  return block;
}

cl_mem buffer_of(const bench *b, size_t bytes, void *host) {
  cl_int code = CL_SUCCESS;
  cl_mem buffer =
      clCreateBuffer(b->cl, CL_MEM_READ_WRITE | (host != NULL ? CL_MEM_COPY_HOST_PTR : 0), bytes, host, &code);
  must(code, "clCreateBuffer");
  return buffer;
}

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double median(double *values, int count) {
  qsort(values, (size_t)count, sizeof(*values), by_value);
  return values[count / 2];
}

void open_bench(bench *b) {
  cl_int code = CL_SUCCESS;
  char options[64];
  const char *source = probe_source;
  memset(b, 0, sizeof(*b));
  cli_affinity_set();
  clattn_device_info_init(&b->info);
  must(clattn_context_create_default(NULL, &b->context, NULL), "clattn_context_create_default");
  must(clattn_context_handles(b->context, &b->cl, &b->device), "clattn_context_handles");
  must(clattn_context_device_info(b->context, &b->info), "clattn_context_device_info");
  b->width = b->info.native_float_width >= 16 ? 16 : b->info.native_float_width >= 8 ? 8 : 4;
  b->queue = clCreateCommandQueue(b->cl, b->device, 0, &code);
  must(code, "clCreateCommandQueue");
  b->program = clCreateProgramWithSource(b->cl, 1, &source, NULL, &code);
  must(code, "clCreateProgramWithSource");
  snprintf(options, sizeof(options), "-DWIDTH=%d", b->width);
  must(clBuildProgram(b->program, 1, &b->device, options, NULL, NULL), "building the probes");
  b->peak = clCreateKernel(b->program, "fma_peak", &code);
  must(code, "clCreateKernel");
  for (int i = 0; i < 3; ++i) {
    b->raw[i] = clCreateKernel(b->program, "raw", &code);
    must(code, "clCreateKernel");
  }
  b->scratch = buffer_of(b, 1 << 20, NULL);
  for (int i = 0; i < 3; ++i)
    for (cl_uint x = 2; x < RAW_ARGUMENTS; ++x)
      must(clSetKernelArg(b->raw[i], x, sizeof(cl_mem), &b->scratch), "clSetKernelArg");
}

void close_bench(bench *b) {
  clReleaseMemObject(b->scratch);
  for (int i = 0; i < 3; ++i)
    clReleaseKernel(b->raw[i]);
  clReleaseKernel(b->peak);
  clReleaseProgram(b->program);
  clReleaseCommandQueue(b->queue);
  clattn_context_release(b->context);
}

/* Floating-point operations a second of one probe run. */
double probe_peak(const bench *b) {
  const cl_int n = 100000;
  const float x = 0.999f, y = 1e-3f;
  const size_t global = (size_t)b->info.compute_units * 8, local = 1;
  must(clSetKernelArg(b->peak, 0, sizeof(cl_mem), &b->scratch), "clSetKernelArg");
  must(clSetKernelArg(b->peak, 1, sizeof(n), &n), "clSetKernelArg");
  must(clSetKernelArg(b->peak, 2, sizeof(x), &x), "clSetKernelArg");
  must(clSetKernelArg(b->peak, 3, sizeof(y), &y), "clSetKernelArg");
  const double start = now();
  must(clEnqueueNDRangeKernel(b->queue, b->peak, 1, NULL, &global, &local, 0, NULL, NULL), "the FMA probe");
  must(clFinish(b->queue), "clFinish");
  return 2.0 * 10 * b->width * n * (double)global / (now() - start);
}

void fill(float *values, size_t count, unsigned *seed) {
  for (size_t i = 0; i < count; ++i) {
    *seed = *seed * 1664525u + 1013904223u;
    values[i] = (float)(*seed >> 8) / (float)(1 << 23) - 1.0f;
  }
}
