/* SPDX-License-Identifier: Apache-2.0 */
/* Drivers whose clocks lie, and devices that become slower, meet the benchmark: calls of OpenCL go through this file. */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "measure.h"
#include "next_call.h"
#include "suite.h"

/* What the driver does wrong. */
static struct {
  double scale;         /* of the times that events tell */
  int refuses;          /* events tell nothing */
  double slow;          /* times that a launch takes, once it is slow */
  long slow_launch;     /* launches before the clock of slow_seconds begins */
  double slow_seconds;  /* until it is slow */
  long launches;        /* so far */
  double begin, queued; /* of slow_seconds, and of the first launch since the queue was empty; < 0: none */
} driver;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int is_slow(void) {
  return driver.slow > 1 && driver.begin >= 0 && now() - driver.begin >= driver.slow_seconds;
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueNDRangeKernel(cl_command_queue command_queue, cl_kernel kernel,
                                                       cl_uint work_dim, const size_t *global_work_offset,
                                                       const size_t *global_work_size, const size_t *local_work_size,
                                                       cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
                                                       cl_event *event) {
  cl_int(CL_API_CALL * next)(cl_command_queue, cl_kernel, cl_uint, const size_t *, const size_t *, const size_t *,
                             cl_uint, const cl_event *, cl_event *) = NULL;
  find_next("clEnqueueNDRangeKernel", &next);
  if (driver.launches++ == driver.slow_launch)
    driver.begin = now();
  if (driver.queued < 0)
    driver.queued = now();
  return next(command_queue, kernel, work_dim, global_work_offset, global_work_size, local_work_size,
              num_events_in_wait_list, event_wait_list, event);
}

CL_API_ENTRY cl_int CL_API_CALL clFinish(cl_command_queue command_queue) {
  cl_int(CL_API_CALL * next)(cl_command_queue) = NULL;
  find_next("clFinish", &next);
  const cl_int code = next(command_queue);
  if (driver.queued >= 0 && is_slow()) {
    const double end = driver.queued + driver.slow * (now() - driver.queued);
    while (now() < end)
      ;
  }
  driver.queued = -1;
  return code;
}

CL_API_ENTRY cl_int CL_API_CALL clGetEventProfilingInfo(cl_event event, cl_profiling_info param_name,
                                                        size_t param_value_size, void *param_value,
                                                        size_t *param_value_size_ret) {
  cl_int(CL_API_CALL * next)(cl_event, cl_profiling_info, size_t, void *, size_t *) = NULL;
  cl_ulong start = 0, end = 0;
  find_next("clGetEventProfilingInfo", &next);
  if (driver.refuses)
    return CL_PROFILING_INFO_NOT_AVAILABLE;
  if (param_name != CL_PROFILING_COMMAND_END || param_value_size < sizeof end)
    return next(event, param_name, param_value_size, param_value, param_value_size_ret);
  cl_int code = next(event, CL_PROFILING_COMMAND_START, sizeof start, &start, NULL);
  if (code == CL_SUCCESS)
    code = next(event, CL_PROFILING_COMMAND_END, sizeof end, &end, param_value_size_ret);
  end = start + (cl_ulong)((double)(end - start) * driver.scale * (is_slow() ? driver.slow : 1));
  memcpy(param_value, &end, sizeof end);
  return code;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static const bench_settings usual = {.row_seconds = 0.1, .verify = 1};

static void honest(void) {
  memset(&driver, 0, sizeof driver);
  driver.scale = 1;
  driver.slow_launch = -1;
  driver.begin = driver.queued = -1;
}

/* A row of a device that is opened for it, as the benchmark does; `from`: launches of the row before slow_seconds begin. */
static void measure(const char *shape, const bench_settings *settings, long from, bench_row *row) {
  bench_shapes shapes;
  bench_device device;
  bench_peaks peaks;
  memset(&shapes, 0, sizeof shapes);
  assert_int_equal(bench_sweep_add(shape, &shapes), 0);
  assert_int_equal(bench_device_open(NULL, &device), 0);
  assert_int_equal(bench_probe_all(&device, &peaks), 0);
  if (from >= 0)
    driver.slow_launch = driver.launches + from;
  assert_int_equal(bench_measure(&device, &shapes.shape[0], NULL, &peaks, settings, row), 0);
  if (row->status != BENCH_OK)
    fail_msg("%s: %s", shape, row->reason);
  print_message("%s: %.3f ms by %s%s%s\n", shape, 1e-6 * (double)row->median_ns,
                row->by_events ? "events" : "wall clock", row->throttled ? ", throttled" : "",
                row->clock_suspect ? ", clock?" : "");
  bench_device_close(&device);
  bench_shapes_free(&shapes);
}

static const char *const shapes[] = {"b=1,hq=8,sq=512,sk=512,d=64", "b=1,hq=1,sq=64,sk=64,d=64"}; /* milliseconds, and
                                                                                                    microseconds */

static void honest_clocks_are_believed(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
    bench_row row;
    memset(&row, 0, sizeof row);
    for (int attempt = 0; attempt < 5 && !row.by_events; attempt++) { /* on a busy machine waiters wake late */
      honest();
      measure(shapes[i], &usual, -1, &row);
    }
    assert_true(row.by_events && !row.clock_suspect);
  }
}

static void lying_clocks_are_not(void **state) {
  (void)state;
  static const double scale[] = {0.001, 0.1, 0.75, 1.3, 80, 1000};
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
    for (size_t n = 0; n < sizeof scale / sizeof scale[0]; n++) {
      bench_row row;
      honest();
      driver.scale = scale[n];
      measure(shapes[i], &usual, -1, &row);
      assert_true(row.clock_suspect && !row.by_events);
      assert_true(row.median_ns > 1000); /* as no call is */
    }
}

static void silent_clocks_are_no_lie(void **state) {
  (void)state;
  for (int zero = 0; zero < 2; zero++) {
    bench_row row;
    honest();
    driver.refuses = !zero;
    driver.scale = zero ? 0 : 1;
    measure(shapes[0], &usual, -1, &row);
    assert_true(!row.by_events && !row.clock_suspect && row.median_ns > 1000);
  }
}

/* A device that is `slow` times slower from slow_seconds behind the row's launch `from` on. */
static void expect_throttled(const bench_settings *settings, double slow, double slow_seconds, long from) {
  bench_row row;
  memset(&row, 0, sizeof row);
  for (int attempt = 0; attempt < 3 && !row.throttled; attempt++) { /* a busy machine is slow before, too */
    honest();
    driver.slow = slow;
    driver.slow_seconds = slow_seconds;
    measure(shapes[0], settings, from, &row);
  }
  assert_true(row.throttled);
}

/* Calls of the row are: one that is verified, one that warms up, and those that are timed. */
static void becoming_slow_is_marked(void **state) {
  (void)state;
  const bench_settings longer = {.row_seconds = 0.4, .verify = 1}, probed = {.row_seconds = 0.3, .probe_beside = 1};
  expect_throttled(&longer, 3, 0.15, 2); /* in the middle of the timed calls, and the row's own times tell */
  expect_throttled(&probed, 4, 0, 0);    /* before the row: all its calls are alike, and the FMA probe tells */
  expect_throttled(&probed, 4, 0.15, 0); /* between the probes */
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(honest_clocks_are_believed),
                                     cmocka_unit_test(lying_clocks_are_not), cmocka_unit_test(silent_clocks_are_no_lie),
                                     cmocka_unit_test(becoming_slow_is_marked)};
  return cmocka_run_group_tests_name("drivers that lie", tests, NULL, NULL);
}
