/* SPDX-License-Identifier: Apache-2.0 */
/* The benchmark's probes against loops in C, in turns: FMA within 10 %, reading from memory within 15 %.  For machines
 * with nothing else to do, on x86 with AVX2. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "probe.h"
#include "probe_loops.h"

enum { RUNS = 9, THREADS_MOST = 256, SKIPPED = 77 };

static bench_device device;
static bench_peaks peaks;
static int threads;
static probe_fma_loop *fma_loop;
static probe_read_loop *read_loop;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A thread's part. */
typedef struct part {
  pthread_barrier_t *start;
  const float *from; /* NULL: the FMA loop */
  size_t count;
  long steps;
  double flops, seconds;
  volatile float result;
} part;

static void *work(void *given) {
  part *p = given;
  pthread_barrier_wait(p->start);
  const double begin = now();
  p->result = p->from != NULL ? read_loop(p->from, p->count) : fma_loop(p->steps, &p->flops);
  p->seconds = now() - begin;
  return NULL;
}

/* Operations or bytes a second of all threads together, by the slowest. */
static double run_parts(part *parts, double each) {
  pthread_t handles[THREADS_MOST];
  pthread_barrier_t start;
  double slowest = 0, sum = 0;
  assert_int_equal(pthread_barrier_init(&start, NULL, (unsigned)threads), 0);
  for (int i = 0; i < threads; i++) {
    parts[i].start = &start;
    assert_int_equal(pthread_create(&handles[i], NULL, work, &parts[i]), 0);
  }
  for (int i = 0; i < threads; i++) {
    pthread_join(handles[i], NULL);
    slowest = parts[i].seconds > slowest ? parts[i].seconds : slowest;
    sum += each > 0 ? each : parts[i].flops;
  }
  pthread_barrier_destroy(&start);
  return sum / slowest;
}

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *values) {
  qsort(values, RUNS, sizeof values[0], by_value);
  return values[RUNS / 2];
}

/* Medians of interleaved runs; a second and third try where something else was at work. */
static void probe_is_near(double (*probe)(void), double (*loop)(void), const char *what, double most) {
  double ratio = 0;
  for (int attempt = 0; attempt < 3; attempt++) {
    double ours[RUNS], theirs[RUNS];
    for (int i = 0; i < RUNS; i++) {
      ours[i] = probe();
      theirs[i] = loop();
    }
    const double a = median(ours), b = median(theirs);
    ratio = a / b;
    print_message("%s: probe %.2fe9/s, loop in C %.2fe9/s, ratio %.3f\n", what, a * 1e-9, b * 1e-9, ratio);
    if (ratio >= 1 - most && ratio <= 1 + most)
      return;
  }
  fail_msg("%s: the ratio %.3f is beyond %.2f", what, ratio, most);
}

static double fma_probe(void) {
  return bench_probe_fma(&device);
}

static double fma_in_c(void) {
  static part parts[THREADS_MOST];
  for (int i = 0; i < threads; i++)
    parts[i].steps = 400000;
  return run_parts(parts, 0);
}

static float *memory;

static double read_probe(void) {
  return bench_probe_read(&device, peaks.memory_footprint);
}

static double read_in_c(void) {
  static part parts[THREADS_MOST];
  const size_t count = (size_t)peaks.memory_footprint / sizeof(float) / (size_t)threads / 64 * 64;
  for (int i = 0; i < threads; i++) {
    parts[i].from = memory + (size_t)i * count;
    parts[i].count = count;
  }
  return run_parts(parts, (double)(count * sizeof(float)));
}

static void fma_is_the_machines(void **state) {
  (void)state;
  probe_is_near(fma_probe, fma_in_c, "FMA", 0.10);
}

static void bandwidth_is_the_machines(void **state) {
  (void)state;
  memory = malloc((size_t)peaks.memory_footprint);
  assert_non_null(memory);
  for (size_t i = 0; i < (size_t)peaks.memory_footprint / sizeof(float); i++)
    memory[i] = 1.0f;
  probe_is_near(read_probe, read_in_c, "read", 0.15);
  free(memory);
}

static int has_flag(const char *flag) {
  char line[8192];
  int found = 0;
  FILE *file = fopen("/proc/cpuinfo", "r");
  while (file != NULL && !found && fgets(line, sizeof line, file) != NULL)
    found = strncmp(line, "flags", 5) == 0 && strstr(line, flag) != NULL;
  if (file != NULL)
    fclose(file);
  return found;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(fma_is_the_machines),
                                     cmocka_unit_test(bandwidth_is_the_machines)};
  if (!has_flag(" avx2 ") || bench_device_open(NULL, &device) != 0)
    return SKIPPED;
  if ((device.session.info.type & CL_DEVICE_TYPE_CPU) == 0) {
    bench_device_close(&device);
    return SKIPPED;
  }
  threads = (int)device.session.info.compute_units;
  threads = threads > THREADS_MOST ? THREADS_MOST : threads;
  const int wide = device.session.info.native_float_width >= 16 && has_flag(" avx512f ");
  fma_loop = wide ? probe_fma_avx512 : probe_fma_avx2;
  read_loop = wide ? probe_read_avx512 : probe_read_avx2;
  if (bench_probe_all(&device, &peaks) != 0)
    return 1;
  const int failed = cmocka_run_group_tests_name("the probes are the machine's", tests, NULL, NULL);
  bench_device_close(&device);
  return failed;
}
