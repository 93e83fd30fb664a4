/* SPDX-License-Identifier: Apache-2.0 */
/* What the benchmark's parts share: a device, its FMA peak, times. */
#ifndef CLATTN_BENCH_H
#define CLATTN_BENCH_H

#include <stddef.h>

#include <clattn.h>

#define REPEATS 9
#define RAW_ARGUMENTS 12

typedef struct bench {
  clattn_context *context;
  cl_context cl;
  cl_device_id device;
  cl_command_queue queue;
  clattn_device_info info;
  int width;
  cl_program program;
  cl_kernel peak, raw[3];
  cl_mem scratch;
} bench;

double now(void); /* seconds */
/* Ends the program on failure. */
void must(clattn_status status, const char *what);
void *memory(size_t bytes);
cl_mem buffer_of(const bench *b, size_t bytes, void *host); /* host NULL: not filled */
double median(double *values, int count);                   /* sorts them */
void open_bench(bench *b);
void close_bench(bench *b);
/* Floating-point operations a second of one probe run. */
double probe_peak(const bench *b);
/* Numbers from -1 to 1. */
void fill(float *values, size_t count, unsigned *seed);

/* Linear layers of known models.  Returns 1 if a number is wrong. */
int bench_linear(const bench *b, int all);
/* Passes of a real model, with the words behind `minilm`.  Returns an exit code. */
int bench_minilm(int count, char **words);

#endif
