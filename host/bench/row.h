/* SPDX-License-Identifier: Apache-2.0 */
/* What a benchmark knows: the device and its measured peaks, and one row for each shape and variant.  Every part of the
 * benchmark reads or writes these; times are integer nanoseconds, sizes bytes. */
#ifndef CLATTN_BENCH_ROW_H
#define CLATTN_BENCH_ROW_H

#include <stddef.h>
#include <stdint.h>

#include "clattn.h"

enum { BENCH_NAME_BYTES = 64, BENCH_LINE_BYTES = 640, BENCH_TEXT_BYTES = 256 };

/* A shape to run: a problem with a name and where it comes from. */
typedef struct bench_shape {
  char name[BENCH_NAME_BYTES];   /* "bert-base-512"; a sweep's member has its values behind it: "decode sk=4096" */
  char suite[BENCH_NAME_BYTES];  /* section of the suite file; "" for --shape and --problem */
  char source[BENCH_TEXT_BYTES]; /* the model or paper */
  char line[BENCH_LINE_BYTES];   /* the problem line, as clattn_problem_format gives it */
  clattn_problem problem;        /* parsed, its outputs O alone unless the line says otherwise */
} bench_shape;

/* What was measured of the device, in the same run.  0: not measured, or not there. */
typedef struct bench_peaks {
  double fma_flops;    /* fp32 fused multiply-adds, floating-point operations a second */
  double half_flops;   /* fp16 likewise */
  double matrix_flops; /* of a matrix unit that a variant uses */
  double memory_bytes; /* read, bytes a second, beyond the last cache */
  double cache_bytes;  /* read, from a footprint that fits in a cache */
  double exp2_per_second;
  int64_t launch_ns;                         /* an empty kernel, enqueue to end */
  int64_t memory_footprint, cache_footprint; /* bytes that the two bandwidth probes read */
} bench_peaks;

typedef struct bench_context {
  char clattn[BENCH_NAME_BYTES], command[1024], date[BENCH_NAME_BYTES]; /* ISO 8601, UTC */
  char os[BENCH_TEXT_BYTES], cpu[BENCH_TEXT_BYTES];
  char device_id[BENCH_NAME_BYTES], device[BENCH_TEXT_BYTES], vendor[BENCH_TEXT_BYTES], driver[BENCH_TEXT_BYTES];
  char platform[BENCH_TEXT_BYTES], version[BENCH_TEXT_BYTES];
  uint64_t device_type, global_bytes, local_bytes;
  uint32_t compute_units, native_float_width;
  int pocl_affinity; /* POCL_AFFINITY was 1 */
  int simulated;     /* --device-facts: no device was there */
  bench_peaks peaks;
  int noisy; /* the run calls itself NOISY: more than a fifth of its rows spread over 5 % */
} bench_context;

typedef enum bench_status {
  BENCH_OK,
  BENCH_WRONG,   /* verified before timing, and differs: never ranked */
  BENCH_SKIPPED, /* with a reason: too slow by prediction, doesn't fit, not supported */
  BENCH_FAILED   /* with a reason: out of memory in the middle, a build that failed */
} bench_status;

typedef enum bench_bound { BENCH_BOUND_FMA, BENCH_BOUND_HALF, BENCH_BOUND_MATRIX, BENCH_BOUND_MEMORY } bench_bound;

typedef struct bench_row {
  bench_shape shape;
  char pass[16]; /* "forward" */
  char variant[BENCH_NAME_BYTES];
  bench_status status;
  char reason[BENCH_TEXT_BYTES]; /* of skipped, failed and wrong rows; else why this variant */
  /* timing of one call, however many launches it took */
  int64_t median_ns, minimum_ns, first_quartile_ns, third_quartile_ns;
  double spread; /* (third - first quartile) / median */
  int32_t samples;
  int32_t launches;  /* of one call: more than the plan's when it was split for --max-launch-ms */
  int by_events;     /* 1: the device's own events; 0: wall clock */
  int cold;          /* 1: inputs rotate beyond the last cache */
  int throttled;     /* the FMA probe before or behind this row was more than 5 % below the run's, or the second half of
                        the calls took more than 10 % longer than the first */
  int clock_suspect; /* events and wall clock contradict each other; the time is then wall clock's */
  double fma_beside; /* the FMA probe round this row, the better one; 0: not repeated */
  /* apart from it */
  int64_t build_ns, first_call_ns, plan_ns, enqueue_ns;
  uint64_t workspace_bytes;
  /* work */
  uint64_t pairs, flops, flash_flops; /* flash_flops: FlashAttention's convention, causal = half */
  uint64_t bytes;                     /* inputs once, outputs once */
  double predicted_seconds;           /* what selection of the shapes of a default run expected */
  /* rates and the bound that applies */
  double flops_per_second, bytes_per_second;
  bench_bound bound;
  double percent_of_bound;
  /* verification */
  int64_t verified_rows;
  double error; /* largest difference from double precision */
} bench_row;

/* A whole run. */
typedef struct bench_run {
  bench_context context;
  bench_row *rows;
  size_t count, capacity;
} bench_run;

const char *bench_status_word(bench_status status); /* "ok", "wrong", "skipped", "failed" */
const char *bench_bound_word(bench_bound bound);    /* "fma", "half", "matrix", "memory" */

#endif
