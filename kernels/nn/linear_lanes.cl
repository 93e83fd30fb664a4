/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers on CPU devices: y = activation(x W^T + b) * factor + residual.
 *
 * QK^T and x W^T are the same product, so this is the product of the attention kernels (lanes_product.cl.h) with the
 * sides changed: lanes are outputs, laid out once when the weight is filled, and the rows of x are read as they lie, a
 * scalar at a time.  So results come out side by side, and the epilogue is made of whole vectors.
 *
 * Types: Q is x, K the weight, O is y, V the factor, BIAS the residual.  A weight's outputs lie in tiles of
 * CLATTN_OUTS: value (n, d) is the number ((n / CLATTN_OUTS) * in + d) * CLATTN_OUTS + n % CLATTN_OUTS. */
#include "lanes.cl.h"
#include "dtype.cl.h"
#include "lanes_product.cl.h"
#include "nn/linear_params.cl.h"
#include "nn/activation.cl.h"

#ifndef CLATTN_MQ
#define CLATTN_MQ 3
#endif
#ifndef CLATTN_NK
#define CLATTN_NK 4
#endif
#define CLATTN_OUTS (CLATTN_MQ * CLATTN_LANES)
#ifndef CLATTN_CHUNK /* rows of x that a work-item takes */
#define CLATTN_CHUNK 64
#endif
#ifndef CLATTN_PANEL /* inputs that are summed at a time, so that a tile's part of the weight stays in the first cache */
#define CLATTN_PANEL 256
#endif

#if defined(__clang__) && CLATTN_LANES == 16
#define CLATTN_CPU_KERNEL __attribute__((min_vector_width(512))) __attribute__((reqd_work_group_size(1, 1, 1))) __kernel
#else
#define CLATTN_CPU_KERNEL __attribute__((reqd_work_group_size(1, 1, 1))) __kernel
#endif

#define CLATTN_X_WIDENED (CLATTN_NUMBER(CLATTN_Q) != CLATTN_IS_f32)
#define CLATTN_W_WIDENED (CLATTN_NUMBER(CLATTN_K) != CLATTN_IS_f32)

/* `count` numbers become floats; count is a multiple of 4 for weights. */
#define CLATTN_WIDEN(type, from, at, count, to)                                                                        \
  do {                                                                                                                 \
    int i = 0;                                                                                                         \
    for (; i + 16 <= (count); i += 16)                                                                                 \
      vstore16(CLATTN_LOADN(16, type)(from, (at) + i), 0, (to) + i);                                                   \
    for (; i < (count); ++i)                                                                                           \
      (to)[i] = CLATTN_LOAD(type)(from, (at) + i);                                                                     \
  } while (0)

/* One vector of results of row r, outputs n .. n + CLATTN_LANES - 1, those from `out` on left out. */
static inline void nn_finish(const nn_linear *p, __global const float *bias,
                             __global const CLATTN_TYPE(CLATTN_V) * factor,
                             __global const CLATTN_TYPE(CLATTN_BIAS) * residual, __global CLATTN_TYPE(CLATTN_O) * y,
                             long r, int n, clattn_v s) {
  float t[CLATTN_LANES];
  const int lanes = min(p->out - n, CLATTN_LANES);
  const long to = p->y.first + r * p->y.stride + n;
  if (p->flags & NN_LINEAR_BIAS)
    s += CLATTN_VLOAD(bias + n); /* padded as the weight is */
  s = nn_activate(p->activation, s);
  if (p->flags & NN_LINEAR_FACTOR) {
    for (int l = 0; l < CLATTN_LANES; ++l)
      t[l] = CLATTN_LOAD(CLATTN_V)(factor, p->factor.first + r * p->factor.stride + n + min(l, lanes - 1));
    s *= CLATTN_VLOAD(t);
  }
  if (p->flags & NN_LINEAR_RESIDUAL) {
    for (int l = 0; l < CLATTN_LANES; ++l)
      t[l] = CLATTN_LOAD(CLATTN_BIAS)(residual, p->residual.first + r * p->residual.stride + n + min(l, lanes - 1));
    s += CLATTN_VLOAD(t);
  }
#if CLATTN_NUMBER(CLATTN_O) == CLATTN_IS_f32
  if (lanes == CLATTN_LANES) {
    CLATTN_VSTORE(s, y + to);
    return;
  }
#endif
  CLATTN_VSTORE(s, t);
  for (int l = 0; l < lanes; ++l)
    CLATTN_STORE(CLATTN_O)(y, to + l, t[l]);
}

/* Grid: (tile of outputs, chunk of rows).  y may be the residual or the factor, so nothing is restrict but x and the
 * weight. */
CLATTN_CPU_KERNEL void linear(const nn_linear p, __global const CLATTN_TYPE(CLATTN_K) *restrict w,
                              __global const float *bias, __global const CLATTN_TYPE(CLATTN_Q) *restrict x,
                              __global const CLATTN_TYPE(CLATTN_V) * factor,
                              __global const CLATTN_TYPE(CLATTN_BIAS) * residual, __global CLATTN_TYPE(CLATTN_O) * y) {
  const int tile = (int)get_group_id(0);
  const long first = (long)get_group_id(1) * CLATTN_CHUNK;
  const int rows = (int)min((long)CLATTN_CHUNK, p.rows - first);
  float block[(CLATTN_CHUNK + CLATTN_NK) * CLATTN_OUTS];
#if CLATTN_W_WIDENED
  float panel[CLATTN_PANEL * CLATTN_OUTS];
#endif
#if CLATTN_X_WIDENED
  float wide[CLATTN_NK][CLATTN_PANEL];
#endif
  for (int d0 = 0; d0 < p.in; d0 += p.panel) {
    const int dims = min(p.panel, p.in - d0);
    const long at = ((long)tile * p.in + d0) * CLATTN_OUTS;
#if CLATTN_W_WIDENED
    CLATTN_WIDEN(CLATTN_K, w, at, dims * CLATTN_OUTS, panel);
#else
    __global const float *panel = w + at;
#endif
    for (int r = 0; r < rows; r += CLATTN_NK) {
      clattn_v acc[CLATTN_NK][CLATTN_MQ];
#if CLATTN_X_WIDENED
      const float *row[CLATTN_NK];
#else
      __global const float *row[CLATTN_NK];
#endif
#pragma unroll
      for (int a = 0; a < CLATTN_NK; ++a) {
        const long from = p.x.first + (first + min(r + a, rows - 1)) * p.x.stride + d0;
#if CLATTN_X_WIDENED
        CLATTN_WIDEN(CLATTN_Q, x, from, dims, wide[a]);
        row[a] = wide[a];
#else
        row[a] = x + from;
#endif
      }
#pragma unroll
      for (int a = 0; a < CLATTN_NK; ++a)
#pragma unroll
        for (int m = 0; m < CLATTN_MQ; ++m)
          acc[a][m] = (clattn_v)(0.0f);
      CLATTN_LANES_PRODUCT(acc, panel, row, 1, dims)
#pragma unroll
      for (int a = 0; a < CLATTN_NK; ++a)
#pragma unroll
        for (int m = 0; m < CLATTN_MQ; ++m) {
          float *to = block + (r + a) * CLATTN_OUTS + m * CLATTN_LANES;
          CLATTN_VSTORE(d0 ? CLATTN_VLOAD(to) + acc[a][m] : acc[a][m], to);
        }
    }
  }
  for (int r = 0; r < rows; ++r)
    for (int m = 0; m < CLATTN_MQ; ++m) {
      const int n = tile * CLATTN_OUTS + m * CLATTN_LANES;
      if (n < p.out)
        nn_finish(&p, bias, factor, residual, y, first + r, n,
                  CLATTN_VLOAD(block + r * CLATTN_OUTS + m * CLATTN_LANES));
    }
}
