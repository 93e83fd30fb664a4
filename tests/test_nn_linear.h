/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of test_nn_linear share: matrices with something all round them, and weights.  After cmocka.h. */
#ifndef CLATTN_TEST_NN_LINEAR_H
#define CLATTN_TEST_NN_LINEAR_H

#include "clattn_nn.h"

enum { LANES = 0, TILES = 1, KERNEL_SETS = 2 };
enum { GUARD = 37, PATTERN = 0x7e, POISON = 0xff /* NaN in every type */ };

typedef struct linear_rig {
  clattn_context *context;
  cl_context cl;
  cl_device_id device;
  cl_command_queue queue, out_of_order; /* the second is NULL if the device has none */
  clattn_nn *nn[KERNEL_SETS];
} linear_rig;
extern linear_rig rig;

void draw_from(uint64_t seed); /* not 0 */
double uniform(double low, double high);
/* One of 0 .. count - 1. */
int64_t below(int64_t count);

/* rows x columns numbers somewhere in memory; all that is not one of them holds `byte`. */
typedef struct matrix {
  clattn_dtype dtype;
  int64_t rows, columns, stride;
  size_t before, bytes; /* elements before the first one, bytes of it all */
  int byte;
  unsigned char *host;
  cl_mem buffer;
} matrix;

/* stride 0: the columns. */
void matrix_make(matrix *m, clattn_dtype dtype, int64_t rows, int64_t columns, int64_t stride, size_t before, int byte);
void matrix_free(matrix *m);
void matrix_set(matrix *m, int64_t row, int64_t column, double x);
double matrix_get(const matrix *m, int64_t row, int64_t column);
void matrix_draw(matrix *m, double low, double high);
const void *matrix_first(const matrix *m);
double *matrix_numbers(const matrix *m); /* malloc'ed, contiguous */
/* To the device; back from it, with a check of what lies round it. */
void matrix_give(matrix *m, cl_mem_flags flags);
void matrix_fetch(matrix *m);
/* Absent without a buffer. */
clattn_nn_matrix matrix_view(const matrix *m);

/* A weight with its matrix (out, in) and bias (NULL: none) filled from f32 numbers on the host. */
clattn_nn_weight *weight_of(clattn_nn *nn, int64_t in, int64_t out, clattn_dtype dtype, const float *w,
                            const float *bias);
/* Enqueue what must be right. */
void must_fill(const clattn_nn_fill_args *args);
void linear(clattn_nn *nn, cl_command_queue queue, const clattn_nn_linear_args *args, cl_uint num_events,
            const cl_event *wait_list, cl_event *event);

/* ---- layers ---- */

typedef struct layer {
  int types;
  int64_t rows, in, out;
  clattn_nn_activation activation;
  int with_bias, with_factor, with_residual;
  int y_is;                            /* 'f': the factor, 'r': the residual, 0: neither */
  int transposed, on_device, from_f32; /* how the weight is given */
  int parts;                           /* and in how many parts, the last one first */
  int64_t more[4];                     /* strides of x, y, factor and residual beyond their columns */
  size_t before[4];
} layer;

/* A layer's numbers: what the library is given, and the weight as it must be after rounding. */
typedef struct numbers {
  double *given, *w, *b, *x, *factor, *residual, *want, *size;
} numbers;

/* Inputs and outputs of a call; those that a layer does not have stay on the host. */
enum { X, Y, FACTOR, RESIDUAL, MATRICES };
typedef struct call {
  matrix m[MATRICES];
} call;

/* type: a set of types, 0 (all f32) .. or -1 for any.  rows * in * out is at most about most_products. */
void draw_layer(layer *l, int type, int64_t most_products);
/* Sums of about 1, so that activations show. */
void draw_weight(const layer *l, numbers *n);
void call_make(call *c, const layer *l);
void expect(const layer *l, const call *c, numbers *n);
void numbers_free(numbers *n);
void call_free(call *c);
clattn_nn_weight *fill_weight(clattn_nn *nn, const layer *l, const numbers *n);
/* Outputs first .. first + count - 1. */
void fill_part(clattn_nn_weight *weight, const layer *l, const numbers *n, int64_t first, int64_t count);
/* Runs it; y's matrix holds the result. */
void run(clattn_nn *nn, const clattn_nn_weight *weight, const layer *l, call *c);
void compare(const char *name, const layer *l, const call *c, const numbers *n);
/* All of it, with a weight of its own. */
void check_with(const char *name, clattn_nn *nn, const layer *l, call *c, const numbers *n);

/* ---- tests ---- */

/* test_nn_linear_queues.c */
/* A weight is filled behind a gate, the first layer waits for it, the second for the first. */
void check_order(clattn_nn *nn, cl_command_queue on);
void events_order_everything(void **state);
void work_outlives_its_weight(void **state);
void two_threads(void **state);
/* test_nn_linear_refusals.c */
void refused_libraries(void **state);
void refused_weights(void **state);
void refused_fills(void **state);
void refused_arguments(void **state);
void refused_memory(void **state);
void overlaps(void **state);
void other_contexts(void **state);
void other_devices(void **state);
void who_computes(void **state);
/* test_nn_linear_clblast.c */
int clblast_tests(CMFixtureFunction start, CMFixtureFunction finish);

#endif
