/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of libclattn_nn's layers share: drawn matrices and weights with their numbers in double precision,
 * and running a layer in every way that must give the same. */
#ifndef CLATTN_TESTS_NN_LAYER_JOB_H
#define CLATTN_TESTS_NN_LAYER_JOB_H

#include "clattn_nn.h"
#include "nn_ref.h"

extern clattn_context *context;
extern cl_context cl;
extern cl_device_id device;
extern cl_command_queue queue, out_of_order; /* the second is NULL if the device has none */
extern clattn_nn *nn;

int start(void **state);
int finish(void **state);
/* Frees what a test has made with the functions below. */
int forget(void **state);

double uniform(double low, double high);
void *memory(size_t bytes); /* zeroed */
/* A buffer with these bytes, or (NULL) with all bits set: NaN in every type. */
cl_mem buffer_of(size_t bytes, const void *data);

/* Rows with columns of NaN between them, and more before the first. */
typedef struct matrix {
  clattn_dtype dtype;
  int64_t rows, columns, stride, first;
  cl_mem buffer;
  size_t bytes;
  double *numbers; /* (rows, columns) of an input */
} matrix;
matrix blank(clattn_dtype dtype, int64_t rows, int64_t columns);
matrix drawn(clattn_dtype dtype, int64_t rows, int64_t columns);
matrix given(clattn_dtype dtype, int64_t rows, int64_t columns, const double *numbers);
/* As f32 without gaps: what clattn_args have. */
matrix dense(int64_t rows, int64_t columns);
clattn_nn_matrix of(const matrix *m);
clattn_mem mem_of(const matrix *m);
/* What it holds now; nothing was written between its rows. */
double *fetched(const matrix *m);
/* Against what is wanted, relative to the largest number wanted.  loss: the coarsest type on the way. */
void check(const char *name, const char *what, const matrix *got, const double *want, clattn_dtype loss);

typedef struct weight {
  clattn_nn_weight *device;
  nn_ref_weight ref;
} weight;
weight drawn_weight(int64_t in, int64_t out, clattn_dtype dtype, int with_bias);
/* Their outputs in one weight, side by side. */
weight joined(const weight *parts, int count, clattn_dtype dtype);

/* n floats on the device, between low and high; *numbers: the same. */
clattn_mem drawn_floats(int64_t n, double low, double high, double **numbers);

typedef enum layer_kind { ATTENTION, ENCDEC, FFN, ENCODER, DECODER } layer_kind;
typedef struct layer {
  layer_kind kind;
  union {
    clattn_nn_attention_args attention;
    clattn_nn_encdec_args encdec;
    clattn_nn_ffn_args ffn;
    clattn_nn_block_args block;
  };
} layer;
layer layer_of(layer_kind kind);
clattn_mem *workspace_of(layer *l);
clattn_error **error_of(layer *l);
clattn_status ask_workspace(const layer *l, uint64_t *bytes);
clattn_status run(const layer *l, cl_command_queue on, cl_uint num_events, const cl_event *wait_list, cl_event *event);
/* Runs it; then behind an event, with a workspace of its own, on a queue in order and on one out of order: the same
 * bits, and no byte round the workspace is touched; a byte less is refused. */
void run_all_ways(const char *name, const layer *l, const matrix *outputs, int count);
/* That it is refused, with these words in the message. */
void refused(const layer *l, clattn_status want, const char *words);

/* ---- nn_layers_refused.c ---- */

void attention_refuses(void **state);
void attention_memory(void **state);
void found_by_clattn(void **state);
void encoder_decoder_refuses(void **state);
void feed_forward_refuses(void **state);
void blocks_refuse(void **state);
void other_contexts(void **state);

#endif
