/* SPDX-License-Identifier: Apache-2.0 */
/* What the row-wise kernels need to know of one call: structs passed by value, laid out alike by the host's C and by
 * OpenCL C, see params.cl.h. */
#ifndef CLATTN_NN_ROWS_PARAMS_CL_H
#define CLATTN_NN_ROWS_PARAMS_CL_H

#include "params.cl.h"

/* Work-items that share a row on devices other than CPUs. */
#define NN_ROW_ITEMS 128

/* A matrix: its first element's index in its buffer, and elements from row to row. */
typedef struct nn_rows {
  clattn_long first, stride;
} nn_rows;

/* Units of work (rows, or heads of rows); a work-group takes `count` neighbours. */
typedef struct nn_units {
  clattn_long units, count;
} nn_units;

typedef struct nn_norm {
  nn_units work;
  clattn_long columns, heads;
  nn_rows x, y, residual, sum;
  clattn_long gamma_first, beta_first, mean_first, inv_std_first;
  float epsilon;
  clattn_int rms;
} nn_norm;

typedef struct nn_table {
  nn_rows values;
  clattn_long rows; /* 0: no such table */
  clattn_long ids_first, period, first;
} nn_table;

#define NN_TABLES 3
typedef struct nn_embed {
  nn_units work;
  clattn_long columns;
  nn_table table[NN_TABLES];
  nn_rows y;
  float scale;
  clattn_int reserved;
} nn_embed;

typedef struct nn_pool {
  nn_units work;
  clattn_long length, columns;
  clattn_long most; /* rows that are pooled at most */
  nn_rows x, y;
  clattn_long lengths_first;
  clattn_int normalise, reserved;
} nn_pool;

typedef struct nn_rope {
  nn_units work;
  clattn_view x, y;
  clattn_long heads, length, dim, half_dim;
  clattn_long pair_step, pair_apart; /* elements from pair to pair, and from the first of a pair to the second */
  clattn_long cos_first, sin_first, table_positions, table_batch_stride, positions_first;
} nn_rope;

#endif
