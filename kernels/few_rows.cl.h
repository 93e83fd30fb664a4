/* SPDX-License-Identifier: Apache-2.0 */
/* Products and weighted sums where a tile has few rows, as when decoding: vectors along the head dimension, so that keys
 * and values stream through the caches row by row, each read once, as fast as memory gives them.  Scores, softmax and
 * rules stay as in lanes_tile.cl.h: a vector of rows a key.  Elements of k and v lie side by side. */
#ifndef CLATTN_FEW_ROWS_CL_H
#define CLATTN_FEW_ROWS_CL_H

#if CLATTN_FEW

#if CLATTN_MQ != 1
#error "few rows are one vector of them"
#endif
#define CLATTN_FEW_SUMS 4 /* of a product, so that they do not wait for each other */

/* Rows of the tile that exist. */
static inline int clattn_few_rows(const clattn_tile *t) {
  int rows = 0;
  while (rows < CLATTN_ROWS && clattn_lane_exists(t, rows))
    ++rows;
  return rows;
}

/* block[key][row] (+)= q . k over `dims` elements from d0 on, for `keys` keys; rows that are missing get 0.  Key after
 * key, since hardware follows one stream of memory better than several. */
static inline void clattn_dot_block(const clattn_params *p, const clattn_inputs *in, const clattn_tile *t,
                                    const long *rows, const long *scales, int j0, const float *queries, int d0,
                                    int dims, int keys, float *block, clattn_v largest[CLATTN_MQ]) {
  const int count = clattn_few_rows(t);
  (void)p, (void)scales, (void)j0; /* some programs don't need them */
#if CLATTN_K_WIDENED
  float row[CLATTN_DIM];
#endif
  clattn_v most = (clattn_v)(-INFINITY);
  for (int j = 0; j < keys; ++j) {
    float *const to = block + j * CLATTN_ROWS;
#if CLATTN_K_WIDENED
    clattn_widen_key(p, in, rows[j], scales[j], clattn_line_of_key(p, in, t->u.kv, j0 + j), d0, dims, row);
#else
    __global const float *const row = in->k + rows[j] + d0;
#endif
    if (d0 == 0)
      CLATTN_VSTORE((clattn_v)(0.0f), to);
    for (int r = 0; r < count; ++r) {
      const float *q = queries + r * CLATTN_DIM;
      float16 acc[CLATTN_FEW_SUMS];
      int d = 0;
#pragma unroll
      for (int a = 0; a < CLATTN_FEW_SUMS; ++a)
        acc[a] = (float16)(0.0f);
      for (; d + 16 * CLATTN_FEW_SUMS <= dims; d += 16 * CLATTN_FEW_SUMS)
#pragma unroll
        for (int a = 0; a < CLATTN_FEW_SUMS; ++a)
          acc[a] = fma(vload16(0, q + d + 16 * a), vload16(0, row + d + 16 * a), acc[a]);
      for (; d + 16 <= dims; d += 16)
        acc[0] = fma(vload16(0, q + d), vload16(0, row + d), acc[0]);
      float sum = clattn_sum_of(acc[0] + acc[1] + (acc[2] + acc[3]));
      for (; d < dims; ++d)
        sum = fma(q[d], row[d], sum);
      to[r] += sum;
    }
    most = clattn_maximum(most, CLATTN_VLOAD(to));
  }
  largest[0] = most;
}

/* Elements d0 + d on of one row: acc of `vectors` * 16 of them over all keys of the block, then d moves on. */
#define CLATTN_FEW_PASS(vectors)                                                                                       \
  for (; d + 16 * (vectors) <= dims; d += 16 * (vectors)) {                                                            \
    float16 acc[vectors];                                                                                              \
    _Pragma("unroll") for (int n = 0; n < (vectors); ++n) acc[n] = (float16)(0.0f);                                    \
    for (int x = 0; x < keys; ++x) {                                                                                   \
      const float16 w = (float16)(numerators[x * CLATTN_ROWS + r]);                                                    \
      const long at = rows[x] + d0 + d;                                                                                \
      _Pragma("unroll") for (int n = 0; n < (vectors); ++n) {                                                          \
        const float16 y =                                                                                              \
            CLATTN_LOADN(16, CLATTN_V)(v, at + 16 * n) * CLATTN_SCALE_OF_VALUE(p, scales[x], d0 + d + 16 * n);         \
        acc[n] = fma(w, y, acc[n]);                                                                                    \
      }                                                                                                                \
    }                                                                                                                  \
    _Pragma("unroll") for (int n = 0; n < (vectors); ++n) {                                                            \
      float *const at = out + CLATTN_AT(d + 16 * n, r);                                                                \
      vstore16(fma(vload16(0, at), (float16)(by[r]), acc[n]), 0, at);                                                  \
    }                                                                                                                  \
  }

/* out = out * shrink + numerators . v over one block of keys, whose rows start at v + rows[key]: `dims` value elements
 * from d0 on, for `count` rows.  Keys are added in the order of the lanes' version, so that the bits are the same.
 * careful: without touching the values of excluded keys, one element at a time: 0 * NaN is NaN. */
static inline void clattn_weigh_few(const clattn_params *p, __global const CLATTN_TYPE(CLATTN_V) * v,
                                    const long *rows CLATTN_VALUE_SCALES, int d0, int dims, int keys, int count,
                                    int careful, const float *numerators, const clattn_v shrink[CLATTN_MQ],
                                    float *out) {
  float by[CLATTN_ROWS];
  (void)p; /* values without scales don't need it */
  CLATTN_VSTORE(shrink[0], by);
  for (int r = 0; r < count; ++r) {
    int d = 0;
    if (!careful) {
#if CLATTN_LANES == 16
      CLATTN_FEW_PASS(8)
#endif
      CLATTN_FEW_PASS(4)
      CLATTN_FEW_PASS(1)
    }
    for (; d < dims; ++d) {
      float acc = 0.0f;
      for (int x = 0; x < keys; ++x) {
        const float w = numerators[x * CLATTN_ROWS + r];
        const float y = CLATTN_LOAD(CLATTN_V)(v, rows[x] + d0 + d) * CLATTN_SCALE_OF_VALUE(p, scales[x], d0 + d);
        acc = careful && as_int(w) == CLATTN_EXCLUDED_BITS ? acc : fma(w, y, acc);
      }
      out[CLATTN_AT(d, r)] = fma(out[CLATTN_AT(d, r)], by[r], acc);
    }
  }
}

#endif
#endif
