/* SPDX-License-Identifier: Apache-2.0 */
/* What the row-wise operations (kernels/nn/rows.cl) share. */
#ifndef CLATTN_NN_ROWS_H
#define CLATTN_NN_ROWS_H

#include "nn.h"
#include "nn/rows_params.cl.h"

/* Storage types by the kernels' words for them.  A tensor that a call does not have takes x's type, so that calls share
 * programs. */
typedef struct nn_rows_types {
  clattn_dtype x, x1, x2, y, sum;
} nn_rows_types;
nn_rows_types nn_rows_types_of(clattn_dtype x, clattn_dtype y);

/* How units of `numbers` numbers are shared out to work-groups.  units > 0. */
nn_units nn_rows_share(const clattn_nn *nn, int64_t units, int64_t numbers);
clattn_status nn_rows_enqueue(nn_stream *stream, const char *kernel, const nn_rows_types *types, nn_units work,
                              const nn_arg *args, cl_uint num_args, clattn_error *error);

/* nn_check_matrix, and where the matrix lies. */
clattn_status nn_rows_check(const clattn_nn *nn, const char *name, const clattn_nn_matrix *matrix, int64_t rows,
                            int64_t columns, int flags, nn_rows *view, nn_ranges *ranges, clattn_error *error);
/* SHAPE unless size is at least `least`; OVERFLOW if a * b * 8 does not fit in 63 bits (both >= 0). */
clattn_status nn_check_size(const char *name, int64_t size, int64_t least, clattn_error *error);
clattn_status nn_check_product(const char *what, int64_t a, int64_t b, clattn_error *error);

#endif
