/* SPDX-License-Identifier: Apache-2.0 */
/* What weights and linear layers share. */
#ifndef CLATTN_NN_LINEAR_H
#define CLATTN_NN_LINEAR_H

#include "nn.h"

/* Outputs that lie together in a weight for this device's kernels; 0: rows as they are given. */
int nn_linear_tile(const clattn_nn *nn);

/* NN_LINEAR_ bits of a layer. */
int nn_linear_flags(const clattn_nn_linear_args *args);

/* Outputs with the padding of the last tile. */
int64_t nn_weight_rows(const clattn_nn_weight *weight);

/* ---- CLBlast as a provider: clblast.c, or clblast_none.c in a library without it ---- */

/* Whether CLBlast can and should compute this layer; measures it if the library was asked to. */
clattn_status nn_clblast_wanted(clattn_nn *nn, const clattn_nn_linear_args *args, int *wanted, clattn_error *error);
/* The same without measuring: what was found before. */
int nn_clblast_chosen(clattn_nn *nn, const clattn_nn_linear_args *args);
clattn_status nn_clblast_run(nn_stream *stream, const clattn_nn_linear_args *args, clattn_error *error);
/* clattn's own kernels, arguments checked. */
clattn_status nn_linear_own(nn_stream *stream, const clattn_nn_linear_args *args, clattn_error *error);

#endif
