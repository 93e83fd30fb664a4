/* SPDX-License-Identifier: Apache-2.0 */
/* The exponentials of kernels/softmax.cl.h over their whole range, on the default device, against double precision. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clattn.h"

/* Arguments: so many of each power of two from 2^-30 to 2^7, the edges of what is not 0, what is special. */
enum { EACH = 1 << 14, POWERS = 38, SPECIAL = 16, COUNT = EACH * POWERS + SPECIAL };

static const char source[] = "#include \"softmax.cl.h\"\n"
                             "__kernel void exponentials(__global const float *x, __global float *y,\n"
                             "                           __global float *numerators) {\n"
                             "  const size_t at = get_global_id(0) * CLATTN_LANES;\n"
                             "  CLATTN_VSTORE(clattn_exp(CLATTN_VLOAD(x + at)), y + at);\n"
                             "  CLATTN_VSTORE(clattn_exp_numerator(CLATTN_VLOAD(x + at)), numerators + at);\n"
                             "}\n";

static clattn_context *context;
static cl_context cl;
static cl_device_id device;
static cl_command_queue queue;

static void fill(float *x) {
  static const float special[SPECIAL] = {0.0f,    -0.0f, -INFINITY, NAN,    -87.33654f, -87.336538f, -87.5f, -88.0f,
                                         -104.0f, -1e4f, -3e9f,     -3e38f, -1e-45f,    -1e-38f,     -1.0f,  -0x1p-24f};
  for (int power = 0; power < POWERS; ++power)
    for (int i = 0; i < EACH; ++i)
      x[power * EACH + i] = -ldexpf(1.0f + (float)i / EACH, power - 30);
  memcpy(x + EACH * POWERS, special, sizeof special);
}

/* How far off y is from e^x: in units of the last place of a number of that size. */
static double units_off(double x, double y) {
  const double exact = exp(x);
  return fabs(y - exact) / ldexp(1.0, ilogb(exact) - 23);
}

static void check(const float *x, const float *y, const char *name, double at_0, double each) {
  double most = 0.0;
  for (int i = 0; i < COUNT; ++i) {
    if (isnan(x[i])) {
      assert_true(isnan(y[i]));
      continue;
    }
    if (x[i] == 0.0f)
      assert_true(y[i] == 1.0f);
    if (x[i] < -87.33654f) {
      assert_true(y[i] == 0.0f && !signbit(y[i]));
      continue;
    }
    const double off = units_off(x[i], y[i]), allowed = at_0 - each * (double)x[i];
    if (!(off <= allowed))
      fail_msg("%s of %.9g is %.9g: %.3f units of the last place off, %.3f allowed", name, (double)x[i], (double)y[i],
               off, allowed);
    most = fmax(most, off / allowed);
  }
  print_message("%s: at most %.2f of what is allowed\n", name, most);
}

/* each: what a numerator may be off more for each unit of x. */
static void sweep(int lanes, double each) {
  const char *text = source;
  char options[4096];
  cl_int error = CL_SUCCESS;
  float *x = malloc(COUNT * sizeof *x), *y = malloc(COUNT * sizeof *y);
  assert_non_null(x);
  assert_non_null(y);
  fill(x);
  assert_true(snprintf(options, sizeof options, "-DCLATTN_LANES=%d -I %s/kernels", lanes, CLATTN_SOURCE_DIR) <
              (int)sizeof options);
  const cl_program program = clCreateProgramWithSource(cl, 1, &text, NULL, &error);
  assert_int_equal(error, CL_SUCCESS);
  assert_int_equal(clBuildProgram(program, 1, &device, options, NULL, NULL), CL_SUCCESS);
  const cl_kernel kernel = clCreateKernel(program, "exponentials", &error);
  assert_int_equal(error, CL_SUCCESS);
  cl_mem buffers[3];
  for (cl_uint i = 0; i < 3; ++i) {
    buffers[i] = clCreateBuffer(cl, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, COUNT * sizeof *x, x, &error);
    assert_int_equal(error, CL_SUCCESS);
    assert_int_equal(clSetKernelArg(kernel, i, sizeof buffers[i], &buffers[i]), CL_SUCCESS);
  }
  const size_t items = COUNT / (size_t)lanes;
  assert_int_equal(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, NULL, 0, NULL, NULL), CL_SUCCESS);
  static const char *const names[] = {NULL, "exponential", "numerator"};
  for (int i = 1; i < 3; ++i) {
    assert_int_equal(clEnqueueReadBuffer(queue, buffers[i], CL_TRUE, 0, COUNT * sizeof *y, y, 0, NULL, NULL),
                     CL_SUCCESS);
    check(x, y, names[i], i == 2 ? 3.0 : 2.0, i == 2 ? each : 0.0);
  }
  for (int i = 0; i < 3; ++i)
    clReleaseMemObject(buffers[i]);
  clReleaseKernel(kernel);
  clReleaseProgram(program);
  free(x);
  free(y);
}

static void by_4_lanes(void **state) {
  (void)state;
  sweep(4, 0.23);
}

static void by_8_lanes(void **state) {
  (void)state;
  sweep(8, 0.23);
}

/* AVX-512 may have instructions of its own here. */
static void by_16_lanes(void **state) {
  (void)state;
  sweep(16, 1.3);
}

static int set_up(void **state) {
  (void)state;
  cl_int error = CL_SUCCESS;
  if (clattn_context_create_default(NULL, &context, NULL) != CLATTN_SUCCESS)
    return -1;
  clattn_context_handles(context, &cl, &device);
  queue = clCreateCommandQueue(cl, device, 0, &error);
  return error == CL_SUCCESS ? 0 : -1;
}

static int tear_down(void **state) {
  (void)state;
  clReleaseCommandQueue(queue);
  clattn_context_release(context);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(by_4_lanes),
      cmocka_unit_test(by_8_lanes),
      cmocka_unit_test(by_16_lanes),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
