/* SPDX-License-Identifier: Apache-2.0 */
/* Probes of a device: what it can do at most, measured beside what the benchmark measures. */
#ifndef CLATTN_BENCH_PROBE_H
#define CLATTN_BENCH_PROBE_H

#include "device.h"
#include "row.h"

/* A device with a queue whose events tell times. */
typedef struct bench_device {
  cli_session session;
  cl_command_queue queue;  /* in order, with profiling; `session.queue` itself */
  int events;              /* 1: profiling works */
  int clock_suspect;       /* 1: events and wall clock contradict each other about the FMA probe */
  double cache_bytes_most; /* the last cache, bytes: what the device says, at least 4 MiB of a CPU, 256 MiB of others */
  cl_program program;
  cl_kernel fma, half, exp2, read, empty; /* half NULL: no fp16 */
  cl_mem scratch;
} bench_device;

/* wanted as for cli_session_open. */
int bench_device_open(const char *wanted, bench_device *out);
void bench_device_close(bench_device *device); /* an all-zero one is accepted */

/* One run of the FMA probe, some milliseconds: floating-point operations a second; 0 after a failure that was printed. */
double bench_probe_fma(const bench_device *device);
/* One run of the bandwidth probe over this footprint: bytes a second read; 0 after a failure that was printed. */
double bench_probe_read(const bench_device *device, int64_t bytes);
/* All probes: the best FMA rate of some runs, and medians of a few runs each; below three seconds in all. */
int bench_probe_all(const bench_device *device, bench_peaks *out);

/* Seconds from the first start to the last end of profiled events; < 0: they can't say. */
double bench_event_seconds(const cl_event *events, uint32_t count);
/* Events of a call must lie within the wall clock's time and fill it but for `launching` seconds: a driver that says
 * otherwise counts in other units, or something else. */
int bench_events_believable(double events, double wall, double launching);

#endif
