/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the row-wise operations share: devices, random numbers, and matrices in buffers with guard bands. */
#ifndef CLATTN_TESTS_TEST_NN_ROWS_H
#define CLATTN_TESTS_TEST_NN_ROWS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clattn_nn.h"
#include "nn_ref.h"

typedef struct fixture {
  clattn_context *context;
  cl_context cl;
  cl_device_id device;
  cl_command_queue queue, out_of_order; /* the second is NULL if the device has none */
  clattn_nn *nn, *tiles;                /* default kernels; CLATTN_NN_KERNELS_TILES */
} fixture;
extern fixture f;

int start(void **state);
int finish(void **state);

double uniform(double low, double high);
int64_t between(int64_t low, int64_t high);
int one_in(int64_t n);

/* rows x columns numbers in a buffer, some elements before them, between rows and behind them.  The image is what the
 * buffer held at first; what is no element holds NaN. */
typedef struct grid {
  clattn_dtype dtype;
  int64_t rows, columns, stride, at;
  size_t bytes;
  unsigned char *image;
  cl_mem buffer;
} grid;

/* Numbers drawn from mid - spread to mid + spread. */
void grid_open(grid *g, clattn_dtype dtype, int64_t rows, int64_t columns, double mid, double spread);
/* The same without a gap, of f32: gamma, tables, ... */
void grid_open_line(grid *g, int64_t count, double mid, double spread);
void grid_close(grid *g);
void grid_set(grid *g, int64_t row, int64_t column, double x); /* before it is used */
clattn_nn_matrix grid_matrix(grid *g);                         /* makes the buffer */
clattn_mem grid_mem(grid *g);                                  /* likewise */
double *grid_values(const grid *g);                            /* of the image; malloc'ed */
/* What the buffer holds now; malloc'ed.  Fails unless what lies beside the elements is as it was. */
double *grid_take(const grid *g);
void grid_check_unchanged(const grid *g);

cl_mem ints_buffer(const int32_t *ints, int64_t count);

/* Fails with the number's place unless it is near. */
void check_near(const char *what, int64_t row, int64_t column, double got, double want, double allowed);
void succeeded(clattn_status status, const clattn_error *error);

/* test_nn_rows_refuse.c */
void refused_norms(void **state);
void refused_embeds(void **state);
void refused_pools(void **state);
void refused_ropes(void **state);
void refused_queues(void **state);

#endif
