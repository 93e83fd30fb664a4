/* SPDX-License-Identifier: Apache-2.0 */
/* Products and weighted sums where a tile has few rows, as when decoding: vectors along the head dimension, so that keys
 * and values stream through the caches row by row, each read once, as fast as memory gives them.  Four rows at a time
 * share what is loaded, and four keys share what is loaded of the queries.  Scores and numerators are [row][key], so that
 * the softmax has vectors of keys; only rules of lanes_tile.cl.h that touch a block turn it to [key][row] and back.
 * While a block of keys is read, its values are fetched, and while these are read, the next keys: memory never waits for
 * arithmetic, and has two streams to follow.  Elements of k and v lie side by side. */
#ifndef CLATTN_FEW_ROWS_CL_H
#define CLATTN_FEW_ROWS_CL_H

#if CLATTN_FEW

#if CLATTN_MQ != 1 || CLATTN_LANES < 4
#error "few rows are one vector of them"
#endif
#define CLATTN_FEW_TOGETHER 4 /* rows */
#define CLATTN_FEW_KEYS 4     /* at a time; rows[] are repeated as far behind the last one */
#if CLATTN_NK < CLATTN_FEW_KEYS
#error "too few keys at a time"
#endif
#if CLATTN_KEY_BLOCK % CLATTN_LANES
#error "rows of a block are whole vectors"
#endif
#if CLATTN_LANES == 16       /* 32 registers */
#define CLATTN_FEW_VECTORS 4 /* of a row's values, for each row */
#else
#define CLATTN_FEW_VECTORS 2
#endif

/* Fetches `bytes` from `from` on into the second cache, which the built-in prefetch can not name. */
#if defined(__clang__) && defined(__x86_64__)
#define CLATTN_FEW_FETCH(from, bytes)                                                                                  \
  {                                                                                                                    \
    const char *const line = (const char *)(ulong)(from);                                                              \
    for (int byte = 0; byte < (bytes); byte += 64)                                                                     \
      __builtin_prefetch(line + byte, 0, 2);                                                                           \
  }
#else
#define CLATTN_FEW_FETCH(from, bytes) (void)0;
#endif
#define CLATTN_FEW_BYTES(type, count)                                                                                  \
  (CLATTN_NUMBER(type) == CLATTN_IS_i4 ? (count) / 2 : (count) * (int)sizeof(CLATTN_TYPE(type)))
#define CLATTN_FEW_FIRST(type, at) (CLATTN_NUMBER(type) == CLATTN_IS_i4 ? (at) / 2 : (at))

/* Rows of the tile to compute: those that exist, more than one rounded up to whole fours.  What stands behind the last
 * one repeats it. */
static inline int clattn_few_rows(const clattn_tile *t) {
  int rows = 0;
  while (rows < CLATTN_ROWS && clattn_lane_exists(t, rows))
    ++rows;
  return rows > 1 ? (rows + CLATTN_FEW_TOGETHER - 1) / CLATTN_FEW_TOGETHER * CLATTN_FEW_TOGETHER : rows;
}

/* Element l: what the elements of r[l] are together, by `join` of two vectors.  Halves as in transpose.cl.h are joined as
 * they are interleaved, so that each step leaves half as many vectors. */
#define CLATTN_FEW_JOINED(name, join)                                                                                  \
  static inline clattn_v name(clattn_v r[CLATTN_LANES]) {                                                              \
    _Pragma("unroll") for (int apart = CLATTN_LANES / 2; apart > 0; apart /= 2)                                        \
        _Pragma("unroll") for (int i = 0; i < apart; ++i) {                                                            \
      const clattn_v x = CLATTN_LOWER_IN_TURN(r[i], r[i + apart]), y = CLATTN_UPPER_IN_TURN(r[i], r[i + apart]);       \
      r[i] = join;                                                                                                     \
    }                                                                                                                  \
    return r[0];                                                                                                       \
  }
CLATTN_FEW_JOINED(clattn_sums_of, x + y)
CLATTN_FEW_JOINED(clattn_largest_of, clattn_maximum(x, y))

/* [row][key] of the first `count` rows to [key][row], where the others get 0, and back.  Keys are rounded up to whole
 * vectors; what stands behind the last one is -inf in rows. */
static inline void clattn_few_to_keys(int count, int keys, const float *rows, float *to) {
  for (int x = 0; x < keys; x += CLATTN_LANES) {
    clattn_v line[CLATTN_LANES];
#pragma unroll
    for (int r = 0; r < CLATTN_LANES; ++r)
      line[r] = r < count ? CLATTN_VLOAD(rows + r * CLATTN_KEY_BLOCK + x) : (clattn_v)(0.0f);
    clattn_transpose(line);
#pragma unroll
    for (int r = 0; r < CLATTN_LANES; ++r)
      CLATTN_VSTORE(line[r], to + (x + r) * CLATTN_ROWS);
  }
}

static inline void clattn_few_to_rows(int count, int keys, const float *from, float *rows) {
  for (int x = 0; x < keys; x += CLATTN_LANES) {
    clattn_v line[CLATTN_LANES];
#pragma unroll
    for (int r = 0; r < CLATTN_LANES; ++r)
      line[r] = x + r < keys ? CLATTN_VLOAD(from + (x + r) * CLATTN_ROWS) : (clattn_v)(-INFINITY);
    clattn_transpose(line);
#pragma unroll
    for (int r = 0; r < CLATTN_LANES; ++r)
      if (r < count)
        CLATTN_VSTORE(line[r], rows + r * CLATTN_KEY_BLOCK + x);
  }
}

/* A vector and an element of key j + a, as they lie or widened.  The scale of an i8 row joins the sums. */
#if CLATTN_COSINE || CLATTN_ROPE
#define CLATTN_FEW_KEY(a, d) CLATTN_VLOAD(wide[a] + (d))
#define CLATTN_FEW_KEY_ELEMENT(a, d) wide[a][d]
#elif CLATTN_NUMBER(CLATTN_K) == CLATTN_IS_i4
#define CLATTN_FEW_KEY(a, d)                                                                                           \
  (CLATTN_LOAD_LANES(CLATTN_K)(key[a], d) * (clattn_v)(clattn_k_scale(p, in, scales[j + (a)], d0 + (d))))
#define CLATTN_FEW_KEY_ELEMENT(a, d)                                                                                   \
  (CLATTN_LOAD(CLATTN_K)(key[a], d) * clattn_k_scale(p, in, scales[j + (a)], d0 + (d)))
#else
#define CLATTN_FEW_KEY(a, d) CLATTN_LOAD_LANES(CLATTN_K)(key[a], d)
#define CLATTN_FEW_KEY_ELEMENT(a, d) CLATTN_LOAD(CLATTN_K)(key[a], d)
#endif
#define CLATTN_FEW_SCALED (CLATTN_NUMBER(CLATTN_K) == CLATTN_IS_i8 && !CLATTN_COSINE && !CLATTN_ROPE)

/* Products of `count` rows from `first` on with the keys from j on, `apart` sums each, so that they do not wait for each
 * other. */
#define CLATTN_FEW_DOT(count, apart)                                                                                   \
  {                                                                                                                    \
    clattn_v acc[count][CLATTN_FEW_KEYS][apart];                                                                       \
    int d = 0;                                                                                                         \
    _Pragma("unroll") for (int r = 0; r < (count); ++r) _Pragma("unroll") for (int a = 0; a < CLATTN_FEW_KEYS; ++a)    \
        _Pragma("unroll") for (int n = 0; n < (apart); ++n) acc[r][a][n] = (clattn_v)(0.0f);                           \
    for (; d + CLATTN_LANES * (apart) <= dims; d += CLATTN_LANES * (apart))                                            \
      _Pragma("unroll") for (int n = 0; n < (apart); ++n) {                                                            \
        clattn_v y[CLATTN_FEW_KEYS];                                                                                   \
        _Pragma("unroll") for (int a = 0; a < CLATTN_FEW_KEYS; ++a) y[a] = CLATTN_FEW_KEY(a, d + CLATTN_LANES * n);    \
        _Pragma("unroll") for (int r = 0; r < (count); ++r) {                                                          \
          const clattn_v x = CLATTN_VLOAD(from + r * CLATTN_DIM + d + CLATTN_LANES * n);                               \
          _Pragma("unroll") for (int a = 0; a < CLATTN_FEW_KEYS; ++a) acc[r][a][n] = fma(x, y[a], acc[r][a][n]);       \
        }                                                                                                              \
      }                                                                                                                \
    for (; d + CLATTN_LANES <= dims; d += CLATTN_LANES)                                                                \
      _Pragma("unroll") for (int a = 0; a < CLATTN_FEW_KEYS; ++a) {                                                    \
        const clattn_v y = CLATTN_FEW_KEY(a, d);                                                                       \
        _Pragma("unroll") for (int r = 0; r < (count); ++r) acc[r][a][0] =                                             \
            fma(CLATTN_VLOAD(from + r * CLATTN_DIM + d), y, acc[r][a][0]);                                             \
      }                                                                                                                \
    _Pragma("unroll") for (int r = 0; r < (count); ++r) _Pragma("unroll") for (int a = 0; a < CLATTN_FEW_KEYS; ++a) {  \
      _Pragma("unroll") for (int n = 1; n < (apart); ++n) acc[r][a][0] += acc[r][a][n];                                \
      sums[r][j % CLATTN_LANES + a] = acc[r][a][0];                                                                    \
    }                                                                                                                  \
    for (int r = 0; d < dims && r < (count); ++r)                                                                      \
      for (int a = 0; a < CLATTN_FEW_KEYS; ++a) {                                                                      \
        float rest = 0.0f, x[CLATTN_LANES];                                                                            \
        for (int e = d; e < dims; ++e)                                                                                 \
          rest = fma(from[r * CLATTN_DIM + e], CLATTN_FEW_KEY_ELEMENT(a, e), rest);                                    \
        CLATTN_VSTORE(sums[r][j % CLATTN_LANES + a], x);                                                               \
        x[0] += rest;                                                                                                  \
        sums[r][j % CLATTN_LANES + a] = CLATTN_VLOAD(x);                                                               \
      }                                                                                                                \
  }

/* block[row][key] (+)= q . k over `dims` elements from d0 on, for `keys` keys, while `bytes` of each of the rows of v
 * at v_rows[key] are fetched. */
static inline void clattn_few_dot(const clattn_params *p, const clattn_inputs *in, const clattn_tile *t,
                                  const long *rows, const long *scales, int j0, const float *queries, int d0, int dims,
                                  int keys, __global const CLATTN_TYPE(CLATTN_V) * v, const long *v_rows, int bytes,
                                  float *block) {
  const int count = clattn_few_rows(t);
  (void)p, (void)scales, (void)j0, (void)v, (void)v_rows; /* some programs don't need them */
#if CLATTN_COSINE || CLATTN_ROPE
  float wide[CLATTN_FEW_KEYS][CLATTN_DIM];
#endif
#if CLATTN_FEW_SCALED
  float by[CLATTN_KEY_BLOCK];
  for (int x = 0; x < keys; ++x)
    by[x] = clattn_k_scale(p, in, scales[x], d0);
  for (int x = keys; x % CLATTN_LANES > 0; ++x)
    by[x] = 1.0f;
#endif
  float number[CLATTN_LANES];
  for (int l = 0; l < CLATTN_LANES; ++l)
    number[l] = (float)l;
  for (int first = 0; first < count; first += CLATTN_FEW_TOGETHER) {
    const int together = min(count - first, CLATTN_FEW_TOGETHER);
    const float *const from = queries + first * CLATTN_DIM;
    clattn_v sums[CLATTN_FEW_TOGETHER][CLATTN_LANES];
    for (int j = 0; j < keys; j += CLATTN_FEW_KEYS) {
      for (int a = 0; first == 0 && bytes > 0 && a < CLATTN_FEW_KEYS; ++a)
        CLATTN_FEW_FETCH(v + CLATTN_FEW_FIRST(CLATTN_V, v_rows[j + a]), bytes)
#if CLATTN_COSINE || CLATTN_ROPE
      for (int a = 0; a < CLATTN_FEW_KEYS; ++a)
        clattn_widen_key(p, in, rows[j + a], scales[j + a],
                         clattn_line_of_key(p, in, t->u.kv, j0 + min(j + a, keys - 1)), d0, dims, wide[a]);
#else
      __global const CLATTN_TYPE(CLATTN_K) * key[CLATTN_FEW_KEYS]; /* d0, and rows of i4, are even */
#pragma unroll
      for (int a = 0; a < CLATTN_FEW_KEYS; ++a)
        key[a] = in->k + CLATTN_FEW_FIRST(CLATTN_K, rows[j + a] + d0);
#endif
      if (together == 1)
        CLATTN_FEW_DOT(1, 2)
      else
        CLATTN_FEW_DOT(CLATTN_FEW_TOGETHER, 1)
      const int done = j % CLATTN_LANES + CLATTN_FEW_KEYS;
      if (done < CLATTN_LANES && j + CLATTN_FEW_KEYS < keys)
        continue;
      for (int r = 0; r < together; ++r)
        for (int x = done; x < CLATTN_LANES; ++x)
          sums[r][x] = (clattn_v)(0.0f);
      const int line = j / CLATTN_LANES * CLATTN_LANES;
#pragma unroll
      for (int r = 0; r < CLATTN_FEW_TOGETHER; ++r)
        if (r < together) {
          float *const to = block + (first + r) * CLATTN_KEY_BLOCK + line;
          clattn_v s = clattn_sums_of(sums[r]);
#if CLATTN_FEW_SCALED
          s *= CLATTN_VLOAD(by + line);
#endif
          if (d0 > 0)
            s += CLATTN_VLOAD(to);
          s = CLATTN_VLOAD(number) < (clattn_v)((float)(keys - line)) ? s : (clattn_v)(-INFINITY);
          CLATTN_VSTORE(s, to);
        }
    }
  }
}

/* The same for the tile's lanes, without values. */
static inline void clattn_dot_block(const clattn_params *p, const clattn_inputs *in, const clattn_tile *t,
                                    const long *rows, const long *scales, int j0, const float *queries, int d0,
                                    int dims, int keys, float *block, clattn_v largest[CLATTN_MQ]) {
  (void)largest; /* [row][key] has its own softmax */
  clattn_few_dot(p, in, t, rows, scales, j0, queries, d0, dims, keys, 0, 0, 0, block);
}

/* Rules that exclude keys by more than their numbers, or need scores of a whole vector of rows. */
#define CLATTN_FEW_RULES                                                                                               \
  (CLATTN_RULE_BIAS | CLATTN_RULE_MAX_LOGIT | CLATTN_RULE_MASK_U8 | CLATTN_RULE_MASK_BITS | CLATTN_RULE_BLOCK_MASK)

/* Online softmax of a block [row][key], as clattn_online_softmax has it for [key][row]: scores times `factor` become
 * numerators relative to the new maximum. */
static inline void clattn_few_softmax(int count, int keys, float factor, int marked, float *block, clattn_v *run_top,
                                      clattn_v *run_sum, clattn_v *run_lost, clattn_v *shrink) {
  clattn_v each[CLATTN_LANES];
#pragma unroll
  for (int r = 0; r < CLATTN_LANES; ++r) {
    each[r] = (clattn_v)(-INFINITY);
    if (r < count)
      for (int x = 0; x < keys; x += CLATTN_LANES)
        each[r] = clattn_maximum(each[r], CLATTN_VLOAD(block + r * CLATTN_KEY_BLOCK + x));
  }
  const clattn_v old = *run_top, top = clattn_maximum(old, clattn_largest_of(each) * (clattn_v)(factor));
  const clattn_v from = top == (clattn_v)(-INFINITY) ? (clattn_v)(0.0f) : -top;
  /* equal maxima, -inf and +inf among them, scale by 1: a difference of infinities would be NaN */
  *shrink = old == top ? (clattn_v)(1.0f) : clattn_exp(old - top);
  *run_top = top;
  float tops[CLATTN_ROWS], starts[CLATTN_ROWS];
  CLATTN_VSTORE(top, tops);
  CLATTN_VSTORE(from, starts);
#pragma unroll
  for (int r = 0; r < CLATTN_LANES; ++r) {
    each[r] = (clattn_v)(0.0f);
    if (r < count) {
      /* large scores are scaled and rounded first, as their maximum was: clattn_scale_large */
      const int large = fabs(tops[r]) >= 64.0f && tops[r] != -INFINITY;
      const clattn_v first = (clattn_v)(large ? factor : 1.0f), second = (clattn_v)(large ? 1.0f : factor);
      for (int x = 0; x < keys; x += CLATTN_LANES) {
        float *const at = block + r * CLATTN_KEY_BLOCK + x;
        const clattn_v s = CLATTN_VLOAD(at) * first;
        clattn_v e = clattn_exp_numerator(fma(s, second, (clattn_v)(starts[r])));
        each[r] += e;
        if (marked)
          e = s * second == (clattn_v)(-INFINITY) ? CLATTN_AS_V((clattn_vi)(CLATTN_EXCLUDED_BITS)) : e;
        CLATTN_VSTORE(e, at);
      }
    }
  }
  const clattn_v part = clattn_sums_of(each), before = *run_sum * *shrink, after = before + part;
  *run_lost = fma(*run_lost, *shrink, part - (after - before));
  *run_sum = after;
}

/* Elements d0 + d on of `count` rows: `vectors` of them over all keys of the block, then d moves on. */
#define CLATTN_FEW_PASS(count, vectors)                                                                                \
  for (; d + CLATTN_LANES * (vectors) <= dims; d += CLATTN_LANES * (vectors)) {                                        \
    clattn_v acc[count][vectors];                                                                                      \
    _Pragma("unroll") for (int r = 0; r < (count); ++r) _Pragma("unroll") for (int n = 0; n < (vectors); ++n)          \
        acc[r][n] = (clattn_v)(0.0f);                                                                                  \
    for (int x = 0; x < keys; ++x) {                                                                                   \
      const long at = rows[x] + d0 + d;                                                                                \
      if (x < fetched)                                                                                                 \
        CLATTN_FEW_FETCH(k + CLATTN_FEW_FIRST(CLATTN_K, next[x] + d),                                                  \
                         CLATTN_FEW_BYTES(CLATTN_K, CLATTN_LANES * (vectors)))                                         \
      _Pragma("unroll") for (int n = 0; n < (vectors); ++n) {                                                          \
        const clattn_v y = CLATTN_LOAD_LANES(CLATTN_V)(v, at + CLATTN_LANES * n) *                                     \
                           CLATTN_SCALE_OF_VALUE(p, scales[x], d0 + d + CLATTN_LANES * n);                             \
        _Pragma("unroll") for (int r = 0; r < (count); ++r) acc[r][n] =                                                \
            fma((clattn_v)(numerators[(first + r) * CLATTN_KEY_BLOCK + x]), y, acc[r][n]);                             \
      }                                                                                                                \
    }                                                                                                                  \
    _Pragma("unroll") for (int r = 0; r < (count); ++r) _Pragma("unroll") for (int n = 0; n < (vectors); ++n) {        \
      float *const at = out + CLATTN_AT(d + CLATTN_LANES * n, first + r);                                              \
      CLATTN_VSTORE(fma(CLATTN_VLOAD(at), (clattn_v)(by[first + r]), acc[r][n]), at);                                  \
    }                                                                                                                  \
  }

/* out = out * shrink + numerators . v over one block of keys, whose rows start at v + rows[key]: `dims` value elements
 * from d0 on, for `count` rows.  Keys are added in their order, in whole vectors as in single elements.
 * numerators: [row][key].  next: rows of the next block's keys, `next_keys` of them, which are fetched meanwhile.
 * careful: without touching the values of excluded keys, one element at a time: 0 * NaN is NaN. */
static inline void clattn_weigh_few(const clattn_params *p, __global const CLATTN_TYPE(CLATTN_V) * v,
                                    const long *rows CLATTN_VALUE_SCALES, int d0, int dims, int keys, int count,
                                    int careful, const float *numerators, const clattn_v shrink[CLATTN_MQ], float *out,
                                    __global const CLATTN_TYPE(CLATTN_K) * k, const long *next, int next_keys) {
  float by[CLATTN_ROWS];
  (void)p, (void)k, (void)next; /* not needed everywhere */
  CLATTN_VSTORE(shrink[0], by);
  for (int first = 0; first < count; first += CLATTN_FEW_TOGETHER) {
    const int fetched = first == 0 ? min(next_keys, keys) : 0;
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
          const float w = numerators[r * CLATTN_KEY_BLOCK + x];
          const float y = CLATTN_LOAD(CLATTN_V)(v, rows[x] + d0 + e) * CLATTN_SCALE_OF_VALUE(p, scales[x], d0 + e);
          acc = careful && as_int(w) == CLATTN_EXCLUDED_BITS ? acc : fma(w, y, acc);
        }
        out[CLATTN_AT(e, r)] = fma(out[CLATTN_AT(e, r)], by[r], acc);
      }
  }
}

#endif
#endif
