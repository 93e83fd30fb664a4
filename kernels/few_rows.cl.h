/* SPDX-License-Identifier: Apache-2.0 */
/* Products and weighted sums where a tile has few rows, as when decoding: vectors along the head dimension, so that keys
 * and values stream through the caches row by row, each read once, as fast as memory gives them.  Four rows at a time
 * share what is loaded.  Scores, softmax and rules stay as in lanes_tile.cl.h: a vector of rows a key.  Elements of k and
 * v lie side by side. */
#ifndef CLATTN_FEW_ROWS_CL_H
#define CLATTN_FEW_ROWS_CL_H

#if CLATTN_FEW

#if CLATTN_MQ != 1 || CLATTN_LANES < 4
#error "few rows are one vector of them"
#endif
#define CLATTN_FEW_TOGETHER 4 /* rows */
#if CLATTN_LANES == 16        /* 32 registers */
#define CLATTN_FEW_VECTORS 4  /* of a row's values, for each row */
#else
#define CLATTN_FEW_VECTORS 2
#endif

/* Rows of the tile to compute: those that exist, more than one rounded up to whole fours.  What stands behind the last
 * one repeats it. */
static inline int clattn_few_rows(const clattn_tile *t) {
  int rows = 0;
  while (rows < CLATTN_ROWS && clattn_lane_exists(t, rows))
    ++rows;
  return rows > 1 ? (rows + CLATTN_FEW_TOGETHER - 1) / CLATTN_FEW_TOGETHER * CLATTN_FEW_TOGETHER : rows;
}

/* Element l: the sum of the elements of r[l].  Halves as in transpose.cl.h are added as they are interleaved, so that
 * each step leaves half as many vectors. */
static inline clattn_v clattn_sums_of(clattn_v r[CLATTN_LANES]) {
#pragma unroll
  for (int apart = CLATTN_LANES / 2; apart > 0; apart /= 2)
#pragma unroll
    for (int i = 0; i < apart; ++i)
      r[i] = CLATTN_LOWER_IN_TURN(r[i], r[i + apart]) + CLATTN_UPPER_IN_TURN(r[i], r[i + apart]);
  return r[0];
}

/* A vector and an element of key j, as it lies or widened. */
#if CLATTN_COSINE || CLATTN_ROPE
#define CLATTN_FEW_KEY(d) CLATTN_VLOAD(wide + (d))
#define CLATTN_FEW_KEY_ELEMENT(d) wide[d]
#elif CLATTN_IS_QUANTISED(CLATTN_K)
#define CLATTN_FEW_KEY(d)                                                                                              \
  (CLATTN_LOAD_LANES(CLATTN_K)(in->k, at + (d)) * (clattn_v)(clattn_k_scale(p, in, scales[j], d0 + (d))))
#define CLATTN_FEW_KEY_ELEMENT(d) (CLATTN_LOAD(CLATTN_K)(in->k, at + (d)) * clattn_k_scale(p, in, scales[j], d0 + (d)))
#else
#define CLATTN_FEW_KEY(d) CLATTN_LOAD_LANES(CLATTN_K)(in->k, at + (d))
#define CLATTN_FEW_KEY_ELEMENT(d) CLATTN_LOAD(CLATTN_K)(in->k, at + (d))
#endif

/* Products of `count` rows from `first` on: `apart` sums each, so that they do not wait for each other.  Key after key,
 * since hardware follows one stream of memory better than several. */
#define CLATTN_FEW_DOT(count, apart)                                                                                   \
  {                                                                                                                    \
    clattn_v acc[count][apart];                                                                                        \
    int d = 0;                                                                                                         \
    _Pragma("unroll") for (int r = 0; r < (count); ++r) _Pragma("unroll") for (int a = 0; a < (apart); ++a)            \
        acc[r][a] = (clattn_v)(0.0f);                                                                                  \
    for (; d + CLATTN_LANES * (apart) <= dims; d += CLATTN_LANES * (apart))                                            \
      _Pragma("unroll") for (int a = 0; a < (apart); ++a) {                                                            \
        const clattn_v y = CLATTN_FEW_KEY(d + CLATTN_LANES * a);                                                       \
        _Pragma("unroll") for (int r = 0; r < (count); ++r) acc[r][a] =                                                \
            fma(CLATTN_VLOAD(from + r * CLATTN_DIM + d + CLATTN_LANES * a), y, acc[r][a]);                             \
      }                                                                                                                \
    for (; d + CLATTN_LANES <= dims; d += CLATTN_LANES) {                                                              \
      const clattn_v y = CLATTN_FEW_KEY(d);                                                                            \
      _Pragma("unroll") for (int r = 0; r < (count); ++r) acc[r][0] =                                                  \
          fma(CLATTN_VLOAD(from + r * CLATTN_DIM + d), y, acc[r][0]);                                                  \
    }                                                                                                                  \
    _Pragma("unroll") for (int r = 0; r < (count); ++r) {                                                              \
      _Pragma("unroll") for (int a = 1; a < (apart); ++a) acc[r][0] += acc[r][a];                                      \
      sums[r][j % CLATTN_LANES] = acc[r][0];                                                                           \
    }                                                                                                                  \
    for (int r = 0; d < dims && r < (count); ++r) {                                                                    \
      float rest = 0.0f, x[CLATTN_LANES];                                                                              \
      for (int e = d; e < dims; ++e)                                                                                   \
        rest = fma(from[r * CLATTN_DIM + e], CLATTN_FEW_KEY_ELEMENT(e), rest);                                         \
      CLATTN_VSTORE(sums[r][j % CLATTN_LANES], x);                                                                     \
      x[0] += rest;                                                                                                    \
      sums[r][j % CLATTN_LANES] = CLATTN_VLOAD(x);                                                                     \
    }                                                                                                                  \
  }

/* block[key][row] (+)= q . k over `dims` elements from d0 on, for `keys` keys; rows that are missing get 0. */
static inline void clattn_dot_block(const clattn_params *p, const clattn_inputs *in, const clattn_tile *t,
                                    const long *rows, const long *scales, int j0, const float *queries, int d0,
                                    int dims, int keys, float *block, clattn_v largest[CLATTN_MQ]) {
  const int count = clattn_few_rows(t);
  clattn_v most = (clattn_v)(-INFINITY);
  (void)p, (void)scales, (void)j0; /* some programs don't need them */
#if CLATTN_COSINE || CLATTN_ROPE
  float wide[CLATTN_DIM];
#endif
  for (int first = 0; first < count; first += CLATTN_FEW_TOGETHER) {
    const int together = min(count - first, CLATTN_FEW_TOGETHER);
    const float *const from = queries + first * CLATTN_DIM;
    clattn_v sums[CLATTN_FEW_TOGETHER][CLATTN_LANES];
    for (int j = 0; j < keys; ++j) {
#if CLATTN_COSINE || CLATTN_ROPE
      clattn_widen_key(p, in, rows[j], scales[j], clattn_line_of_key(p, in, t->u.kv, j0 + j), d0, dims, wide);
#else
      const long at = rows[j] + d0;
#endif
      if (together == 1)
        CLATTN_FEW_DOT(1, 4)
      else
        CLATTN_FEW_DOT(CLATTN_FEW_TOGETHER, 2)
      const int done = j % CLATTN_LANES + 1;
      if (done < CLATTN_LANES && j + 1 < keys)
        continue;
      clattn_v line[CLATTN_LANES];
#pragma unroll
      for (int r = 0; r < CLATTN_LANES; ++r)
        line[r] = (clattn_v)(0.0f);
#pragma unroll
      for (int r = 0; r < CLATTN_FEW_TOGETHER; ++r)
        if (r < together)
          line[r] = clattn_sums_of(sums[r]);
      clattn_transpose(line); /* of rows to a vector of rows a key, that of row `first` in front */
      for (int x = 0; x < done; ++x) {
        float *const to = block + (j + 1 - done + x) * CLATTN_ROWS;
        if (d0 == 0 && first == 0)
          CLATTN_VSTORE(line[x], to);
        else
          for (int r = 0; r < together; ++r) {
            float add[CLATTN_LANES];
            CLATTN_VSTORE(line[x], add);
            to[first + r] = d0 == 0 ? add[r] : to[first + r] + add[r];
          }
      }
    }
  }
  for (int j = 0; j < keys; ++j)
    most = clattn_maximum(most, CLATTN_VLOAD(block + j * CLATTN_ROWS));
  largest[0] = most;
}

/* Elements d0 + d on of `count` rows: `vectors` of them over all keys of the block, then d moves on. */
#define CLATTN_FEW_PASS(count, vectors)                                                                                \
  for (; d + CLATTN_LANES * (vectors) <= dims; d += CLATTN_LANES * (vectors)) {                                        \
    clattn_v acc[count][vectors];                                                                                      \
    _Pragma("unroll") for (int r = 0; r < (count); ++r) _Pragma("unroll") for (int n = 0; n < (vectors); ++n)          \
        acc[r][n] = (clattn_v)(0.0f);                                                                                  \
    for (int x = 0; x < keys; ++x) {                                                                                   \
      const long at = rows[x] + d0 + d;                                                                                \
      _Pragma("unroll") for (int n = 0; n < (vectors); ++n) {                                                          \
        const clattn_v y = CLATTN_LOAD_LANES(CLATTN_V)(v, at + CLATTN_LANES * n) *                                     \
                           CLATTN_SCALE_OF_VALUE(p, scales[x], d0 + d + CLATTN_LANES * n);                             \
        _Pragma("unroll") for (int r = 0; r < (count); ++r) acc[r][n] =                                                \
            fma((clattn_v)(numerators[x * CLATTN_ROWS + first + r]), y, acc[r][n]);                                    \
      }                                                                                                                \
    }                                                                                                                  \
    _Pragma("unroll") for (int r = 0; r < (count); ++r) _Pragma("unroll") for (int n = 0; n < (vectors); ++n) {        \
      float *const at = out + CLATTN_AT(d + CLATTN_LANES * n, first + r);                                              \
      CLATTN_VSTORE(fma(CLATTN_VLOAD(at), (clattn_v)(by[first + r]), acc[r][n]), at);                                  \
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
  for (int first = 0; first < count; first += CLATTN_FEW_TOGETHER) {
    int d = 0;
    if (!careful) {
      if (count == 1) {
        CLATTN_FEW_PASS(1, 2 * CLATTN_FEW_VECTORS)
        CLATTN_FEW_PASS(1, 1)
      } else {
        CLATTN_FEW_PASS(CLATTN_FEW_TOGETHER, CLATTN_FEW_VECTORS)
        CLATTN_FEW_PASS(CLATTN_FEW_TOGETHER, 1)
      }
    }
    for (int r = first; r < min(first + CLATTN_FEW_TOGETHER, count); ++r)
      for (int e = d; e < dims; ++e) {
        float acc = 0.0f;
        for (int x = 0; x < keys; ++x) {
          const float w = numerators[x * CLATTN_ROWS + r];
          const float y = CLATTN_LOAD(CLATTN_V)(v, rows[x] + d0 + e) * CLATTN_SCALE_OF_VALUE(p, scales[x], d0 + e);
          acc = careful && as_int(w) == CLATTN_EXCLUDED_BITS ? acc : fma(w, y, acc);
        }
        out[CLATTN_AT(e, r)] = fma(out[CLATTN_AT(e, r)], by[r], acc);
      }
  }
}

#endif
#endif
