/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_kernels_embedded.h"
#include "cli.h"

enum { RUNS = 7, CHAINS = 10, HALF_LANES = 8, VECTOR_BYTES = 64, PER_ITEM_LEAST = 16, CACHE_FOOTPRINT_MOST = 16 << 20 };

static const double PATIENCE = 0.8; /* seconds */

static int fail(cl_int status, const char *what) {
  return cli_fail_status(status, NULL, what);
}

static int lanes_of(const clattn_device_info *info) {
  return info->native_float_width >= 16  ? 16
         : info->native_float_width >= 8 ? 8
         : info->native_float_width >= 4 ? 4
                                         : 1;
}

static int is_cpu(const bench_device *device) {
  return (device->session.info.type & CL_DEVICE_TYPE_CPU) != 0;
}

/* Work-items and work-group of a probe that keeps the whole device busy. */
static void grid_of(const bench_device *device, size_t *global, size_t *local) {
  const clattn_device_info *info = &device->session.info;
  *local = is_cpu(device) ? 1 : info->max_work_group < 256 ? info->max_work_group : 256;
  *global = (size_t)info->compute_units * (is_cpu(device) ? 8 : 16 * *local);
}

static int build(bench_device *device) {
  const clattni_kernel_file *file = &clattni_kernel_files[0];
  const char *source = (const char *)file->source;
  const size_t size = file->size;
  char options[96];
  cl_int code = CL_SUCCESS;
  const struct {
    cl_kernel *kernel;
    const char *name;
  } list[] = {{&device->fma, "fma_peak"},
              {&device->exp2, "exp_rate"},
              {&device->read, "read_bytes"},
              {&device->empty, "empty"},
              {&device->half, "half_peak"}};
  const int fp16 = device->session.info.has_fp16 != 0;
  device->program = clCreateProgramWithSource(device->session.cl, 1, &source, &size, &code);
  if (code != CL_SUCCESS)
    return fail(code, "making the probes");
  (void)snprintf(options, sizeof options, "-cl-std=CL1.2 -DCLATTN_LANES=%d%s", lanes_of(&device->session.info),
                 fp16 ? " -DPROBE_HALF" : "");
  code = clBuildProgram(device->program, 1, &device->session.device.device, options, NULL, NULL);
  if (code != CL_SUCCESS)
    return fail(code, "building the probes");
  for (size_t i = 0; i < sizeof list / sizeof list[0] - (fp16 ? 0 : 1); i++) {
    *list[i].kernel = clCreateKernel(device->program, list[i].name, &code);
    if (code != CL_SUCCESS)
      return fail(code, "making a probe's kernel");
  }
  return CLI_OK;
}

void bench_device_close(bench_device *device) {
  cl_kernel const kernels[] = {device->fma, device->half, device->exp2, device->read, device->empty};
  for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++)
    if (kernels[i] != NULL)
      clReleaseKernel(kernels[i]);
  if (device->program != NULL)
    clReleaseProgram(device->program);
  if (device->scratch != NULL)
    clReleaseMemObject(device->scratch);
  if (device->session.context != NULL)
    cli_session_close(&device->session);
  memset(device, 0, sizeof *device);
}

double bench_event_seconds(const cl_event *events, uint32_t count) {
  cl_ulong first = 0, last = 0;
  for (uint32_t i = 0; i < count; i++) {
    cl_ulong start = 0, end = 0;
    if (clGetEventProfilingInfo(events[i], CL_PROFILING_COMMAND_START, sizeof start, &start, NULL) != CL_SUCCESS ||
        clGetEventProfilingInfo(events[i], CL_PROFILING_COMMAND_END, sizeof end, &end, NULL) != CL_SUCCESS ||
        end < start)
      return -1;
    first = i == 0 || start < first ? start : first;
    last = end > last ? end : last;
  }
  return count > 0 && last > first ? (double)(last - first) * 1e-9 : -1;
}

int bench_events_believable(double events, double wall, double launching) {
  const double beside = wall - events; /* a tenth, for waiters that wake late */
  return events > 0 && beside >= -0.02 * wall - 2e-6 && beside <= 0.1 * wall + 4 * launching + 2e-5;
}

/* Wall-clock seconds of a kernel's launches; < 0 after a failure that was printed.  Wall clock even where there are
 * events: the probes are long enough, and their figures are what events are checked against. */
static double run(const bench_device *device, cl_kernel kernel, size_t global, size_t local, int launches,
                  const char *what) {
  const double start = cli_seconds();
  cl_int code = CL_SUCCESS;
  for (int i = 0; i < launches && code == CL_SUCCESS; i++)
    code = clEnqueueNDRangeKernel(device->queue, kernel, 1, NULL, &global, &local, 0, NULL, NULL);
  if (code == CL_SUCCESS)
    code = clFinish(device->queue);
  if (code != CL_SUCCESS) {
    (void)fail(code, what);
    return -1;
  }
  return cli_seconds() - start;
}

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static cl_int set_arguments(const bench_device *device, cl_kernel kernel, cl_int steps, int two) {
  const float x = 0.999f, y = 1e-3f;
  cl_int code = clSetKernelArg(kernel, 0, sizeof device->scratch, &device->scratch);
  code |= clSetKernelArg(kernel, 1, sizeof steps, &steps);
  code |= clSetKernelArg(kernel, 2, sizeof x, &x);
  if (two)
    code |= clSetKernelArg(kernel, 3, sizeof y, &y);
  return code == CL_SUCCESS ? CL_SUCCESS : fail(CL_INVALID_KERNEL_ARGS, "a probe's arguments");
}

/* Arithmetic probes: `each` operations a step and work-item. */
static double rate(const bench_device *device, cl_kernel kernel, cl_int steps, double each, int two) {
  size_t global = 0, local = 0;
  grid_of(device, &global, &local);
  if (set_arguments(device, kernel, steps, two) != CL_SUCCESS)
    return 0;
  const double seconds = run(device, kernel, global, local, 1, "a probe");
  return seconds > 0 ? each * (double)steps * (double)global / seconds : 0;
}

/* For some milliseconds, so that launches don't count. */
static cl_int fma_steps(const bench_device *device) {
  return is_cpu(device) ? 600000 : 40000;
}

static double fma_once(const bench_device *device) {
  return rate(device, device->fma, fma_steps(device), 2.0 * CHAINS * lanes_of(&device->session.info), 1);
}

double bench_probe_fma(const bench_device *device) {
  return fma_once(device);
}

/* What most runs of the FMA probe say: one alone may be disturbed. */
static int check_clock(bench_device *device) {
  enum { TIMES = 5 };
  size_t global = 0, local = 0;
  int doubted = 0;
  grid_of(device, &global, &local);
  if (!device->events)
    return CLI_OK;
  if (set_arguments(device, device->fma, fma_steps(device), 1) != CL_SUCCESS ||
      run(device, device->fma, global, local, 1, "a probe") < 0)
    return CLI_FAILED;
  for (int i = 0; i < TIMES; i++) {
    cl_event event = NULL;
    const double start = cli_seconds();
    cl_int code = clEnqueueNDRangeKernel(device->queue, device->fma, 1, NULL, &global, &local, 0, NULL, &event);
    if (code == CL_SUCCESS)
      code = clFinish(device->queue);
    const double wall = cli_seconds() - start, events = event != NULL ? bench_event_seconds(&event, 1) : -1;
    if (event != NULL)
      clReleaseEvent(event);
    if (code != CL_SUCCESS)
      return fail(code, "a probe");
    doubted += events >= 0 && !bench_events_believable(events, wall, 0);
  }
  device->clock_suspect = 2 * doubted > TIMES;
  return CLI_OK;
}

static double half_once(const bench_device *device) {
  return rate(device, device->half, is_cpu(device) ? 200000 : 40000, 2.0 * CHAINS * HALF_LANES, 1);
}

static double exp_once(const bench_device *device) {
  return rate(device, device->exp2, is_cpu(device) ? 100000 : 20000, 4.0 * lanes_of(&device->session.info), 0);
}

/* The median of a few runs behind one that warms up. */
static double median_of(const bench_device *device, double (*once)(const bench_device *)) {
  double values[RUNS];
  if (once(device) <= 0)
    return 0;
  for (int i = 0; i < RUNS; i++)
    values[i] = once(device);
  qsort(values, RUNS, sizeof values[0], by_value);
  return values[RUNS / 2];
}

/* The best once a few runs agree on it, or most of a second is over: a peak is what the machine can do, and what else
 * runs there, or a clock that is still rising, only takes from it. */
static double best_of(const bench_device *device, double (*once)(const bench_device *)) {
  double best = 0;
  int agree = 0;
  const double begin = cli_seconds();
  for (int i = 0; agree < RUNS && (i < RUNS || cli_seconds() - begin < PATIENCE); i++) {
    const double now = once(device);
    if (now <= 0)
      return 0;
    if (now > best) {
      agree = best >= 0.98 * now ? agree : 0;
      best = now;
    }
    agree += now >= 0.98 * best;
  }
  return best;
}

/* Bytes a second read from a footprint. */
static int read_rate(const bench_device *device, int64_t bytes, int runs, double *out) {
  size_t global = 0, local = 0;
  double values[RUNS];
  cl_int code = CL_SUCCESS;
  grid_of(device, &global, &local);
  /* a few vectors an item at least, or a small footprint would be rounded down to nothing */
  while (global > local && bytes / VECTOR_BYTES / (int64_t)global < PER_ITEM_LEAST)
    global = (global / 2 + local - 1) / local * local;
  const cl_long per_item = bytes / VECTOR_BYTES / (int64_t)global / 4 * 4; /* four streams */
  const cl_long stride = is_cpu(device) ? 1 : (cl_long)global;
  const double whole = (double)per_item * (double)global * VECTOR_BYTES;
  /* some milliseconds at 10 GB/s for each unit of a CPU, and for GPUs at a hundred times that */
  const double wanted = is_cpu(device) ? 1e8 * device->session.info.compute_units : 4e9;
  const int times = whole >= wanted ? 1 : (int)(wanted / whole) + 1;
  /* Each item reads its part again and again, which the last cache would hold in part even if it doesn't hold all: of
   * memory that is beyond it, all is read once a launch. */
  const int cached = bytes <= CACHE_FOOTPRINT_MOST;
  const cl_int rounds = cached ? times : 1;
  const int launches = cached ? 1 : times;
  *out = 0;
  cl_mem from = clCreateBuffer(device->session.cl, CL_MEM_READ_ONLY, (size_t)bytes, NULL, &code);
  if (code != CL_SUCCESS)
    return fail(code, "making the bandwidth probe's buffer");
  const cl_float zero = 0;
  code = clEnqueueFillBuffer(device->queue, from, &zero, sizeof zero, 0, (size_t)bytes, 0, NULL, NULL);
  code |= clSetKernelArg(device->read, 0, sizeof from, &from);
  code |= clSetKernelArg(device->read, 1, sizeof device->scratch, &device->scratch);
  code |= clSetKernelArg(device->read, 2, sizeof per_item, &per_item);
  code |= clSetKernelArg(device->read, 3, sizeof stride, &stride);
  code |= clSetKernelArg(device->read, 4, sizeof rounds, &rounds);
  double seconds = code == CL_SUCCESS ? run(device, device->read, global, local, launches, "the bandwidth probe") : -1;
  for (int i = 0; i < runs && seconds > 0; i++) {
    seconds = run(device, device->read, global, local, launches, "the bandwidth probe");
    values[i] = whole * times / seconds;
  }
  clReleaseMemObject(from);
  if (!(seconds > 0))
    return code == CL_SUCCESS ? CLI_FAILED : fail(CL_INVALID_KERNEL_ARGS, "the bandwidth probe");
  qsort(values, (size_t)runs, sizeof values[0], by_value);
  *out = values[runs / 2];
  return CLI_OK;
}

double bench_probe_read(const bench_device *device, int64_t bytes) {
  double rate_read = 0;
  return read_rate(device, bytes, 1, &rate_read) == CLI_OK ? rate_read : 0;
}

int bench_device_open(const char *wanted, bench_device *out) {
  cl_int code = CL_SUCCESS;
  cl_ulong cache = 0;
  memset(out, 0, sizeof *out);
  int result = cli_session_open(wanted, &out->session);
  if (result != CLI_OK) {
    memset(out, 0, sizeof *out);
    return result;
  }
  cl_command_queue profiled =
      clCreateCommandQueue(out->session.cl, out->session.device.device, CL_QUEUE_PROFILING_ENABLE, &code);
  if (code == CL_SUCCESS) {
    clReleaseCommandQueue(out->session.queue);
    out->session.queue = profiled;
    out->events = 1;
  }
  out->queue = out->session.queue;
  if (clGetDeviceInfo(out->session.device.device, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE, sizeof cache, &cache, NULL) ==
      CL_SUCCESS)
    out->cache_bytes_most = (double)cache;
  /* what drivers call the cache of global memory is often not the last one: GPUs have up to 256 MiB of it */
  const double least = is_cpu(out) ? 4.0 * (1 << 20) : 256.0 * (1 << 20);
  if (out->cache_bytes_most < least)
    out->cache_bytes_most = least;
  size_t items = 0, group = 0; /* each writes a number */
  grid_of(out, &items, &group);
  out->scratch = clCreateBuffer(out->session.cl, CL_MEM_READ_WRITE, items * sizeof(cl_float), NULL, &code);
  if (code != CL_SUCCESS) {
    out->scratch = NULL;
    result = fail(code, "making a buffer for the probes");
  } else {
    result = build(out);
  }
  if (result == CLI_OK)
    result = check_clock(out);
  if (result != CLI_OK)
    bench_device_close(out);
  return result;
}

static int64_t launch_latency(const bench_device *device) {
  enum { LAUNCHES = 101 };
  double values[LAUNCHES];
  if (clSetKernelArg(device->empty, 0, sizeof device->scratch, &device->scratch) != CL_SUCCESS)
    return 0;
  for (int i = 0; i < LAUNCHES; i++) {
    values[i] = run(device, device->empty, 1, 1, 1, "an empty kernel");
    if (values[i] < 0)
      return 0;
  }
  qsort(values, LAUNCHES, sizeof values[0], by_value);
  return (int64_t)(values[LAUNCHES / 2] * 1e9);
}

/* Footprints: one that any second-level cache holds, and four times the last one, between 64 MiB and 1 GiB and within an
 * allocation. */
static void footprints(const bench_device *device, bench_peaks *out) {
  const double last = device->cache_bytes_most;
  double most = 4 * last;
  most = most < 64.0 * (1 << 20) ? 64.0 * (1 << 20) : most;
  most = most > 1024.0 * (1 << 20) ? 1024.0 * (1 << 20) : most;
  if (most > (double)device->session.info.max_alloc_bytes)
    most = (double)device->session.info.max_alloc_bytes;
  const double least = is_cpu(device) ? 1 << 20 : CACHE_FOOTPRINT_MOST;
  out->memory_footprint = (int64_t)most / 65536 * 65536;
  out->cache_footprint = (int64_t)least / 65536 * 65536;
}

int bench_probe_all(const bench_device *device, bench_peaks *out) {
  memset(out, 0, sizeof *out);
  out->fma_flops = best_of(device, fma_once);
  if (out->fma_flops <= 0)
    return CLI_FAILED;
  if (device->half != NULL)
    out->half_flops = median_of(device, half_once);
  out->exp2_per_second = median_of(device, exp_once);
  out->launch_ns = launch_latency(device);
  footprints(device, out);
  int code = read_rate(device, out->memory_footprint, RUNS, &out->memory_bytes);
  if (code == CLI_OK)
    code = read_rate(device, out->cache_footprint, RUNS, &out->cache_bytes);
  return code;
}
