/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels of linear layers need to know, by value; included by the host's C too. */
#ifndef CLATTN_NN_LINEAR_PARAMS_CL_H
#define CLATTN_NN_LINEAR_PARAMS_CL_H

#include "params.cl.h"

/* Where a matrix lies: elements from row to row, and the first element's index in its buffer. */
typedef struct nn_view {
  clattn_long stride, first;
} nn_view;

#define NN_LINEAR_BIAS 1
#define NN_LINEAR_FACTOR 2
#define NN_LINEAR_RESIDUAL 4

/* As clattn_nn_activation. */
#define NN_NONE 0
#define NN_RELU 1
#define NN_GELU 2
#define NN_GELU_TANH 3
#define NN_SILU 4

typedef struct nn_linear {
  nn_view x, y, factor, residual;
  clattn_long rows;
  clattn_int in, out;
  clattn_int panel; /* inputs that are summed at a time */
  clattn_int flags, activation, reserved;
} nn_linear;

/* Laying out a part of a weight. */
typedef struct nn_pack {
  nn_view from;
  clattn_long in, first, count; /* outputs first .. first + count - 1 */
  clattn_long padding;          /* outputs behind them to be 0 */
  clattn_int tile;              /* outputs that lie together; 0: rows of `in` numbers */
  clattn_int transposed;
} nn_pack;

#endif
