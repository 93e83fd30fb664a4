/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers on GPUs: y = activation(x W^T + b) * factor + residual, with the register blocks of the attention
 * kernels (group_tile.cl.h): QK^T and x W^T are the same product.  A weight lies as it was given, (out, in).
 *
 * Types: Q is x, K the weight, O is y, V the factor, BIAS the residual. */
#define CLATTN_LANES 1
#include "group_tile.cl.h"
#include "nn/linear_params.cl.h"
#include "nn/activation.cl.h"

/* Grid: work-groups of CLATTN_GX x CLATTN_GY items, (tile of outputs, tile of rows).  y may be the residual or the
 * factor. */
CLATTN_TILE_KERNEL void linear(const nn_linear p, __global const CLATTN_TYPE(CLATTN_K) *restrict w,
                               __global const float *bias, __global const CLATTN_TYPE(CLATTN_Q) *restrict x,
                               __global const CLATTN_TYPE(CLATTN_V) * factor,
                               __global const CLATTN_TYPE(CLATTN_BIAS) * residual, __global CLATTN_TYPE(CLATTN_O) * y) {
  clattn_row_step left[CLATTN_STEP];
  clattn_column_step right[CLATTN_STEP];
  const int gx = (int)get_local_id(0), gy = (int)get_local_id(1), item = gy * CLATTN_GX + gx;
  const long row0 = (long)get_group_id(1) * CLATTN_ROWS;
  const int out0 = (int)get_group_id(0) * CLATTN_COLUMNS;
  float acc[8][4];
#pragma unroll
  for (int r = 0; r < 8; ++r)
#pragma unroll
    for (int c = 0; c < 4; ++c)
      acc[r][c] = 0.0f;
  int d0 = 0;
  do {
    /* neighbouring items read neighbouring inputs of a row; what lies beyond an edge counts as 0 */
    for (int i = item; i < CLATTN_ROWS * CLATTN_STEP; i += CLATTN_ITEMS) {
      const int d = d0 + i % CLATTN_STEP;
      const long r = row0 + i / CLATTN_STEP;
      left[i % CLATTN_STEP][i / CLATTN_STEP] =
          d < p.in && r < p.rows ? CLATTN_LOAD(CLATTN_Q)(x, p.x.first + r * p.x.stride + d) : 0.0f;
    }
    for (int i = item; i < CLATTN_COLUMNS * CLATTN_STEP; i += CLATTN_ITEMS) {
      const int d = d0 + i % CLATTN_STEP, n = out0 + i / CLATTN_STEP;
      right[i % CLATTN_STEP][i / CLATTN_STEP] =
          d < p.in && n < p.out ? CLATTN_LOAD(CLATTN_K)(w, (long)n * p.in + d) : 0.0f;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    clattn_multiply_step(left, right, gx, gy, acc);
    barrier(CLK_LOCAL_MEM_FENCE);
    d0 += CLATTN_STEP;
  } while (d0 < p.in);
  CLATTN_ROLLED
  for (int a = 0; a < 8; ++a) {
    const long r = row0 + gy * 8 + a;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int n = out0 + c * CLATTN_GX + gx;
      if (r < p.rows && n < p.out) {
        float s = acc[0][c];
        if (p.flags & NN_LINEAR_BIAS)
          s += bias[n];
        s = nn_activate(p.activation, s);
        if (p.flags & NN_LINEAR_FACTOR)
          s *= CLATTN_LOAD(CLATTN_V)(factor, p.factor.first + r * p.factor.stride + n);
        if (p.flags & NN_LINEAR_RESIDUAL)
          s += CLATTN_LOAD(CLATTN_BIAS)(residual, p.residual.first + r * p.residual.stride + n);
        CLATTN_STORE(CLATTN_O)(y, p.y.first + r * p.y.stride + n, s);
      }
    }
    clattn_turn_rows(acc);
  }
}
