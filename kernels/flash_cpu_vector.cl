/* SPDX-License-Identifier: Apache-2.0 */
/* Fused attention for CPU devices: scores, online softmax and weighted sum of a tile of query rows in one pass over
 * the keys, with no score matrix in memory.  Queries are in vector lanes (lanes_tile.cl.h), work-group size 1, no
 * local memory, no barrier.
 *
 * Method: online softmax (M. Milakov, N. Gimelshein, 2018) over key blocks (T. Dao et al., FlashAttention, 2022). */
#include "lanes_tile.cl.h"

/* What a tile has accumulated so far. */
typedef struct clattn_running {
  clattn_v top[CLATTN_MQ];   /* largest score */
  clattn_v sum[CLATTN_MQ];   /* of exp(s - top) */
  clattn_v lost[CLATTN_MQ];  /* what the sum has lost to rounding: its error would be that of the whole row */
  clattn_v logit[CLATTN_MQ]; /* largest raw score over kept pairs */
} clattn_running;

#if !CLATTN_FEW
/* Scores times scale[] become numerators relative to the new maximum; what was there before is to be scaled by shrink[].
 * marked: with the marks of excluded keys. */
static inline void clattn_online_softmax(int keys, const clattn_v scale[CLATTN_MQ], int marked, float *block,
                                         const clattn_v top[CLATTN_MQ], clattn_running *run,
                                         clattn_v shrink[CLATTN_MQ]) {
  clattn_v from[CLATTN_MQ], part[CLATTN_MQ];
#pragma unroll
  for (int m = 0; m < CLATTN_MQ; ++m) {
    const clattn_v old = run->top[m];
    /* equal maxima, -inf and +inf among them, scale by 1: a difference of infinities would be NaN */
    shrink[m] = old == top[m] ? (clattn_v)(1.0f) : clattn_exp(old - top[m]);
    run->top[m] = top[m];
    from[m] = top[m] == (clattn_v)(-INFINITY) ? (clattn_v)(0.0f) : -top[m];
    part[m] = (clattn_v)(0.0f);
  }
  for (int x = 0; x < keys; ++x)
#pragma unroll
    for (int m = 0; m < CLATTN_MQ; ++m) {
      float *at = block + x * CLATTN_ROWS + m * CLATTN_LANES;
      const clattn_v s = CLATTN_VLOAD(at);
      clattn_v e = clattn_exp_numerator(fma(s, scale[m], from[m]));
      part[m] += e;
      if (marked)
        e = s * scale[m] == (clattn_v)(-INFINITY) ? CLATTN_AS_V((clattn_vi)(CLATTN_EXCLUDED_BITS)) : e;
      CLATTN_VSTORE(e, at);
    }
#pragma unroll
  for (int m = 0; m < CLATTN_MQ; ++m) {
    const clattn_v before = run->sum[m] * shrink[m], after = before + part[m];
    run->lost[m] = fma(run->lost[m], shrink[m], part[m] - (after - before));
    run->sum[m] = after;
  }
}

/* Rows of large scores get theirs scaled and rounded, as their maximum was: the exact product minus a rounded one is no
 * longer near 0 for the largest, and what overflows must be infinite.  It depends on nothing but the row. */
static inline void clattn_scale_large(int keys, const clattn_v top[CLATTN_MQ], clattn_v factor[CLATTN_MQ],
                                      float *block) {
  for (int m = 0; m < CLATTN_MQ; ++m) {
    const clattn_vi large = fabs(top[m]) >= (clattn_v)(64.0f) && top[m] != (clattn_v)(-INFINITY);
    if (!any(large))
      continue;
    for (int x = 0; x < keys; ++x) {
      float *at = block + x * CLATTN_ROWS + m * CLATTN_LANES;
      const clattn_v s = CLATTN_VLOAD(at);
      CLATTN_VSTORE(large ? s * factor[m] : s, at);
    }
    factor[m] = large ? (clattn_v)(1.0f) : factor[m];
  }
}

/* out[d][lane] = out[d][lane] * shrink + numerators . v over one block of keys, CLATTN_ND value elements at a time from d
 * on, as long as there are so many; `row`: those of key x.  A macro, since rows are in global or private memory. */
#define CLATTN_WEIGH(prepare, row)                                                                                     \
  for (; d + CLATTN_ND <= dims; d += CLATTN_ND) {                                                                      \
    clattn_v acc[CLATTN_ND][CLATTN_MQ];                                                                                \
    prepare;                                                                                                           \
    _Pragma("unroll") for (int a = 0; a < CLATTN_ND; ++a) _Pragma("unroll") for (int m = 0; m < CLATTN_MQ; ++m)        \
        acc[a][m] = (clattn_v)(0.0f);                                                                                  \
    for (int x = 0; x < keys; ++x) {                                                                                   \
      clattn_v w[CLATTN_MQ];                                                                                           \
      _Pragma("unroll") for (int m = 0; m < CLATTN_MQ; ++m) w[m] =                                                     \
          CLATTN_VLOAD(numerators + x * CLATTN_ROWS + m * CLATTN_LANES);                                               \
      _Pragma("unroll") for (int a = 0; a < CLATTN_ND; ++a) {                                                          \
        const clattn_v y = (clattn_v)((row)[a]);                                                                       \
        _Pragma("unroll") for (int m = 0; m < CLATTN_MQ; ++m) acc[a][m] = fma(w[m], y, acc[a][m]);                     \
      }                                                                                                                \
    }                                                                                                                  \
    _Pragma("unroll") for (int a = 0; a < CLATTN_ND; ++a) _Pragma("unroll") for (int m = 0; m < CLATTN_MQ; ++m) {      \
      float *at = out + (d + a) * CLATTN_ROWS + m * CLATTN_LANES;                                                      \
      CLATTN_VSTORE(fma(CLATTN_VLOAD(at), shrink[m], acc[a][m]), at);                                                  \
    }                                                                                                                  \
  }

/* Values that can't be read as they lie: of other types, or with elements apart, whose addresses would not fit in
 * registers. Returns how many elements are done. */
static int clattn_weigh_widened(const clattn_params *p, __global const CLATTN_TYPE(CLATTN_V) * v,
                                const long *rows CLATTN_VALUE_SCALES, int d0, int dims, int keys,
                                const float *numerators, const clattn_v shrink[CLATTN_MQ], float *out) {
  float wide[CLATTN_KEY_BLOCK * CLATTN_ND];
  int d = 0;
  CLATTN_WEIGH(clattn_widen_values(p, v, rows CLATTN_GIVE_VALUE_SCALES, d0 + d, keys, wide), wide + x * CLATTN_ND)
  return d;
}

/* out = out * shrink + numerators . v over one block of keys, whose rows start at v + rows[key]: `dims` value elements
 * from d0 on. */
static inline void clattn_weigh_block(const clattn_params *p, __global const CLATTN_TYPE(CLATTN_V) * v,
                                      const long *rows CLATTN_VALUE_SCALES, int d0, int dims, int keys,
                                      const float *numerators, const clattn_v shrink[CLATTN_MQ], float *out) {
  int d = 0;
#if !CLATTN_V_WIDENED
  if (p->v.element == 1)
    CLATTN_WEIGH((void)0, v + d0 + d + rows[x])
  else
#endif
    d = clattn_weigh_widened(p, v, rows CLATTN_GIVE_VALUE_SCALES, d0, dims, keys, numerators, shrink, out);
  for (; d < dims; ++d)
    for (int m = 0; m < CLATTN_MQ; ++m) {
      clattn_v acc = (clattn_v)(0.0f);
      for (int x = 0; x < keys; ++x)
        acc = fma(CLATTN_VLOAD(numerators + x * CLATTN_ROWS + m * CLATTN_LANES),
                  (clattn_v)(CLATTN_LOAD(CLATTN_V)(v, rows[x] + (d0 + d) * p->v.element) *
                             CLATTN_SCALE_OF_VALUE(p, scales[x], d0 + d)),
                  acc);
      float *at = out + d * CLATTN_ROWS + m * CLATTN_LANES;
      CLATTN_VSTORE(fma(CLATTN_VLOAD(at), shrink[m], acc), at);
    }
}

/* The same without touching the values of excluded keys: 0 * NaN is NaN. */
static inline void clattn_weigh_kept(const clattn_params *p, __global const CLATTN_TYPE(CLATTN_V) * v,
                                     const long *rows CLATTN_VALUE_SCALES, int d0, int dims, int keys,
                                     const float *numerators, const clattn_v shrink[CLATTN_MQ], float *out) {
  for (int d = 0; d < dims; ++d)
    for (int m = 0; m < CLATTN_MQ; ++m) {
      clattn_v acc = (clattn_v)(0.0f);
      for (int x = 0; x < keys; ++x) {
        const clattn_v w = CLATTN_VLOAD(numerators + x * CLATTN_ROWS + m * CLATTN_LANES);
        const float y =
            CLATTN_LOAD(CLATTN_V)(v, rows[x] + (d0 + d) * p->v.element) * CLATTN_SCALE_OF_VALUE(p, scales[x], d0 + d);
        const clattn_v more = fma(w, (clattn_v)(y), acc);
        acc = CLATTN_AS_VI(w) == (clattn_vi)(CLATTN_EXCLUDED_BITS) ? acc : more;
      }
      float *at = out + d * CLATTN_ROWS + m * CLATTN_LANES;
      CLATTN_VSTORE(fma(CLATTN_VLOAD(at), shrink[m], acc), at);
    }
}

/* x / y, y >= 1, with inverse = 1 / y: a quotient of vectors takes as long as 30 products.  What the rounded product lacks
 * is added; where that is not finite, nothing is. */
static inline clattn_v clattn_divide(clattn_v x, clattn_v y, clattn_v inverse) {
  const clattn_v rough = x * inverse, lacking = fma(-rough, y, x);
  return lacking == lacking ? fma(lacking, inverse, rough) : rough;
}

/* The results of a vector of rows to where the rows lie: whole vectors of elements, the last of which may repeat some. */
static inline void clattn_store_results(const clattn_params *p, const clattn_tile *t, int m, int d0, int dims,
                                        clattn_v sum, clattn_v kept, clattn_v by, const float *out,
                                        __global CLATTN_TYPE(CLATTN_O) * o) {
  const clattn_vi empty = kept == (clattn_v)(0.0f), none = sum == (clattn_v)(0.0f);
  const clattn_v inverse = (clattn_v)(1.0f) / sum;
  for (int e = 0; e < dims; e += CLATTN_LANES) {
    const int d = min(e, dims - CLATTN_LANES);
    clattn_v r[CLATTN_LANES];
#pragma unroll
    for (int a = 0; a < CLATTN_LANES; ++a) {
      const clattn_v x = CLATTN_VLOAD(out + (d + a) * CLATTN_ROWS + m * CLATTN_LANES) * by;
      const clattn_v values = empty ? (clattn_v)(0.0f) : x; /* as clattn_result does it: a sink may be NaN */
      r[a] = none ? (clattn_v)(0.0f) : clattn_divide(values, sum, inverse) + (clattn_v)(0.0f);
    }
    clattn_transpose(r);
#pragma unroll
    for (int l = 0; l < CLATTN_LANES; ++l) {
      const int lane = m * CLATTN_LANES + l;
      if (clattn_lane_exists(t, lane)) {
        const long to = clattn_row(&p->o, t->u.b, t->h[lane], clattn_lane_at(t, lane)) + d0 + d;
        CLATTN_STORE_LANES(CLATTN_O)(r[l], o, to);
      }
    }
  }
}

#endif

#if CLATTN_FEW
/* As clattn_products, and values are fetched. */
static inline void clattn_few_products(const clattn_params *p, const clattn_inputs *in,
                                       __global const CLATTN_TYPE(CLATTN_Q) * q, const clattn_tile *t, int j0, int keys,
                                       float *queries, __global const CLATTN_TYPE(CLATTN_V) * v, const long *v_rows,
                                       int bytes, float *block) {
  clattn_key_rows rows, scales;
  clattn_find_keys(p, t, j0, keys, rows, scales);
  for (int d0 = 0; d0 < p->qk_dim; d0 += CLATTN_DIM) {
    const int dims = min(p->qk_dim - d0, CLATTN_DIM);
    if (p->qk_dim > CLATTN_DIM)
      clattn_load_queries(p, in, q, t, d0, dims, queries);
    clattn_few_dot(p, in, t, rows, scales, j0, queries, d0, dims, keys, v, v_rows, d0 == 0 ? bytes : 0, block);
  }
}
#endif

/* Scores for the caller are a pass of their own: what was asked for beside o never changes a bit of o, but where a
 * plan without scores has its keys in parts.  top and sum are
 * those of the first pass, sums divided by what numerators are multiplied by. */
static inline void clattn_show_scores(const clattn_params *p, const clattn_inputs *in, const clattn_tile *t,
                                      __global const CLATTN_TYPE(CLATTN_Q) * q,
                                      __global CLATTN_TYPE(CLATTN_SCORES) * scores, float *queries, float *block,
                                      const clattn_v top[CLATTN_MQ], const clattn_v sum[CLATTN_MQ]) {
  const int weights = p->stage == CLATTN_SCORES_WEIGHTS;
  const int all_pairs = p->stage == CLATTN_SCORES_RAW || p->stage == CLATTN_SCORES_SOFTCAP;
  const int end = all_pairs ? t->u.entry.k_len : t->u.keys.hi;
  const float missing = weights ? 0.0f : -INFINITY;
  const clattn_shown shown = {scores, weights ? CLATTN_SCORES_NONE : p->stage};
  clattn_v ignored[CLATTN_MQ], logit[CLATTN_MQ];
  for (int m = 0; m < CLATTN_MQ; ++m)
    ignored[m] = logit[m] = (clattn_v)(-INFINITY);
  int next = 0; /* the first key that is not written yet */
  for (int j = all_pairs ? 0 : t->u.keys.lo; next < p->k_len;) {
    clattn_interval keys;
    if (all_pairs) {
      keys.lo = min(j, end);
      keys.hi = min(keys.lo + CLATTN_KEY_BLOCK, end);
    } else
      keys = clattn_next_keys(p, in->blocks, &t->u, j, end, CLATTN_KEY_BLOCK);
    const int to = keys.lo < keys.hi ? keys.lo : p->k_len;
    for (; next < to; ++next) /* what is not computed is excluded */
      for (int m = 0; m < CLATTN_MQ; ++m)
        clattn_store_scores(p, scores, t, m, next, (clattn_v)(missing), missing);
    if (keys.lo == keys.hi)
      break;
    const int count = keys.hi - keys.lo;
    clattn_v raw[CLATTN_MQ];
#if CLATTN_FEW
    float lines[CLATTN_KEY_BLOCK * CLATTN_ROWS];
    clattn_products(p, in, q, t, keys.lo, count, queries, lines, raw);
    clattn_few_to_keys(clattn_few_rows(t), count, lines, block);
#else
    clattn_products(p, in, q, t, keys.lo, count, queries, block, raw);
#endif
    clattn_finish_scores(p, in, &shown, t, keys.lo, count, block, ignored, logit);
    for (int x = 0; weights && x < count; ++x)
      for (int m = 0; m < CLATTN_MQ; ++m) {
        const clattn_v e = clattn_numerator(CLATTN_VLOAD(block + x * CLATTN_ROWS + m * CLATTN_LANES), top[m]);
        const clattn_v w = CLATTN_AS_VI(e) == (clattn_vi)(CLATTN_EXCLUDED_BITS) ? (clattn_v)(0.0f) : e / sum[m];
        clattn_store_scores(p, scores, t, m, keys.lo + x, w, 0.0f);
      }
    next = j = keys.hi;
  }
}

/* The end of a tile: sinks join, results and what belongs to rows are written.  top, sum: those of rows, for the weights;
 * sums divided by what numerators are multiplied by. */
static inline void clattn_finish_tile(const clattn_params *p, const clattn_tile *t, clattn_running *run, int first_dim,
                                      int dims, const float *out, __global const float *sinks, __global float *work,
                                      __global CLATTN_TYPE(CLATTN_O) * o, __global float *lse, clattn_v top[CLATTN_MQ],
                                      clattn_v sum[CLATTN_MQ]) {
  float sums[CLATTN_ROWS], kept[CLATTN_ROWS], scales_of[CLATTN_ROWS];
  for (int m = 0; m < CLATTN_MQ; ++m) {
    clattn_v by = (clattn_v)(1.0f);
    top[m] = run->top[m];
    CLATTN_VSTORE(run->sum[m], kept + m * CLATTN_LANES);
    if (p->rules & CLATTN_RULE_SINK)
      by = clattn_join_sink(&run->top[m], &run->sum[m], clattn_sink_lanes(p, sinks, t, m));
    sum[m] = run->sum[m] / by;
    CLATTN_VSTORE(run->sum[m], sums + m * CLATTN_LANES);
    CLATTN_VSTORE(by, scales_of + m * CLATTN_LANES);
  }
#if CLATTN_FEW
  const int vectors = 0;
#else
  const int vectors = p->o.element == 1 && dims >= CLATTN_LANES;
  for (int m = 0; m < CLATTN_MQ && vectors; ++m)
    clattn_store_results(p, t, m, first_dim, dims, run->sum[m], CLATTN_VLOAD(kept + m * CLATTN_LANES),
                         CLATTN_VLOAD(scales_of + m * CLATTN_LANES), out, o);
#endif
  /* A row without a kept key has what excluded values left in `out`; beside a sink its sum is not 0. */
  for (int lane = 0; !vectors && lane < CLATTN_ROWS; ++lane) {
    if (clattn_lane_exists(t, lane)) {
      const long to = clattn_row(&p->o, t->u.b, t->h[lane], clattn_lane_at(t, lane));
      for (int d = 0; d < dims; ++d)
        CLATTN_STORE(CLATTN_O)
      (o, to + (first_dim + d) * p->o.element,
       clattn_result(sums[lane], kept[lane] == 0.0f ? 0.0f : out[CLATTN_AT(d, lane)] * scales_of[lane]));
    }
  }
  if (first_dim > 0) /* what is the same for every part of the values, the first one writes */
    return;
  const clattn_row_view maxima = clattn_maxima(p);
  for (int m = 0; m < CLATTN_MQ; ++m) {
    if (p->rules & CLATTN_RULE_LSE)
      clattn_store_rows(&p->lse, t, lse, m,
                        run->sum[m] == (clattn_v)(0.0f) ? (clattn_v)(-INFINITY) : run->top[m] + log(run->sum[m]));
    if (p->rules & CLATTN_RULE_MAX_LOGIT)
      clattn_store_rows(&maxima, t, work, m, run->logit[m]);
  }
}

/* Where fewer tiles than threads have many keys, each tile's keys go in p->key_chunks parts, and flash_parts puts them
 * together.  A part leaves top, sum and logit of its rows, then its results, unnormalised, in the workspace. */
#define CLATTN_PART_WORDS ((3 + CLATTN_DIM) * CLATTN_ROWS)

static inline __global float *clattn_part(const clattn_params *p, __global float *work, int tile, int part) {
  return work + CLATTN_REGION(p, p->scores_at) + ((long)tile * p->key_chunks + part) * CLATTN_PART_WORDS;
}

/* The keys of part number `part`: whole blocks. */
static inline clattn_interval clattn_keys_of_part(clattn_interval keys, int parts, int part) {
  const int blocks = (keys.hi - keys.lo + CLATTN_KEY_BLOCK - 1) / CLATTN_KEY_BLOCK;
  const int each = (blocks + parts - 1) / parts * CLATTN_KEY_BLOCK; /* no overflow: k_len leaves room for two blocks */
  clattn_interval t;
  t.lo = (int)min((long)keys.lo + (long)part * each, (long)keys.hi);
  t.hi = (int)min((long)t.lo + each, (long)keys.hi);
  return t;
}

static inline void clattn_leave_part(const clattn_running *run, int rows, int dims, const float *out,
                                     __global float *to) {
  for (int m = 0; m < CLATTN_MQ; ++m) {
    CLATTN_VSTORE(run->top[m], to + m * CLATTN_LANES);
    CLATTN_VSTORE(run->sum[m], to + CLATTN_ROWS + m * CLATTN_LANES);
    CLATTN_VSTORE(run->logit[m], to + 2 * CLATTN_ROWS + m * CLATTN_LANES);
  }
#if CLATTN_FEW
  for (int r = 0; r < rows; ++r)
    for (int d = 0; d < dims; ++d)
      to[3 * CLATTN_ROWS + CLATTN_AT(d, r)] = out[CLATTN_AT(d, r)];
#else
  (void)rows;
  for (int x = 0; x < dims * CLATTN_MQ; ++x)
    CLATTN_VSTORE(CLATTN_VLOAD(out + x * CLATTN_LANES), to + 3 * CLATTN_ROWS + x * CLATTN_LANES);
#endif
}

/* Joins a part to what is there, by rows: run->top is already the largest of all parts. */
static inline void clattn_take_part(clattn_running *run, int rows, int dims, float *out, __global const float *from) {
  clattn_v by[CLATTN_MQ];
  clattn_vi seen[CLATTN_MQ];
  for (int m = 0; m < CLATTN_MQ; ++m) {
    const clattn_v top = CLATTN_VLOAD(from + m * CLATTN_LANES);
    const clattn_v sum = CLATTN_VLOAD(from + CLATTN_ROWS + m * CLATTN_LANES);
    /* without a kept key its results are what excluded values left; equal maxima as in clattn_online_softmax */
    seen[m] = sum != (clattn_v)(0.0f);
    by[m] = top == run->top[m] ? (clattn_v)(1.0f) : clattn_exp(top - run->top[m]);
    run->sum[m] += seen[m] ? sum * by[m] : (clattn_v)(0.0f);
    run->logit[m] = clattn_maximum_nan(run->logit[m], CLATTN_VLOAD(from + 2 * CLATTN_ROWS + m * CLATTN_LANES));
  }
#if CLATTN_FEW
  float factor[CLATTN_ROWS];
  int counts[CLATTN_ROWS];
  CLATTN_VSTORE(by[0], factor);
  CLATTN_PASTE(vstore, CLATTN_LANES)(seen[0], 0, counts);
  for (int r = 0; r < rows; ++r)
    for (int d = 0; d < dims; ++d)
      if (counts[r])
        out[CLATTN_AT(d, r)] = fma(from[3 * CLATTN_ROWS + CLATTN_AT(d, r)], factor[r], out[CLATTN_AT(d, r)]);
#else
  (void)rows;
  for (int d = 0; d < dims; ++d)
    for (int m = 0; m < CLATTN_MQ; ++m) {
      float *at = out + d * CLATTN_ROWS + m * CLATTN_LANES;
      const clattn_v there = CLATTN_VLOAD(at), more = CLATTN_VLOAD(from + (3 + d) * CLATTN_ROWS + m * CLATTN_LANES);
      CLATTN_VSTORE(seen[m] ? fma(more, by[m], there) : there, at);
    }
#endif
}

/* Nothing accumulated yet. */
static inline void clattn_start(clattn_running *run, int few, int dims, float *out) {
  for (int m = 0; m < CLATTN_MQ; ++m) {
    run->top[m] = run->logit[m] = (clattn_v)(-INFINITY);
    run->sum[m] = run->lost[m] = (clattn_v)(0.0f);
  }
#if CLATTN_FEW
  for (int r = 0; r < few; ++r)
    for (int d = 0; d < dims; ++d)
      out[CLATTN_AT(d, r)] = 0.0f;
#else
  (void)few;
  for (int x = 0; x < dims * CLATTN_MQ; ++x)
    CLATTN_VSTORE((clattn_v)(0.0f), out + x * CLATTN_LANES);
#endif
}

#if CLATTN_FEW
#define CLATTN_FEW_ROWS(t) clattn_few_rows(t)
#else
#define CLATTN_FEW_ROWS(t) 0
#endif

/* Grid: (tile, part of the value dimension, or part of the keys). */
CLATTN_CPU_KERNEL void flash(const clattn_params p, const clattn_round round,
                             __global const CLATTN_TYPE(CLATTN_Q) *restrict q,
                             __global const CLATTN_TYPE(CLATTN_V) *restrict v, __global const float *restrict sinks,
                             __global const int *restrict table, __global const int *restrict entries,
                             __global float *restrict work, __global CLATTN_TYPE(CLATTN_O) *restrict o,
                             __global float *restrict lse, __global CLATTN_TYPE(CLATTN_SCORES) *restrict scores,
                             CLATTN_SCORE_ARGS CLATTN_V_SCALE_ARG) {
  CLATTN_COLLECT(in, p, work);
  const clattn_shown none = {scores, CLATTN_SCORES_NONE};
  clattn_tile t;
  clattn_tile_open(&p, entries, table, round.first_tile + (int)get_group_id(0), &t);
  clattn_tile_prepare(&p, &in, &t);
  float queries[CLATTN_DIM * CLATTN_ROWS] CLATTN_ALIGNED;
  float out[CLATTN_DIM * CLATTN_ROWS] CLATTN_ALIGNED;
  float block[CLATTN_KEY_BLOCK * CLATTN_ROWS] CLATTN_ALIGNED;
  const int plain = clattn_scores_plain(&p, &in);
  const float lacking =
      plain && !(p.rules & CLATTN_RULE_BIAS) ? in.scale : 1.0f; /* the factor of scores in the block */
  clattn_key_rows rows;
#if CLATTN_FEW
  clattn_key_rows next_rows;
  float lines[CLATTN_KEY_BLOCK * CLATTN_ROWS] CLATTN_ALIGNED; /* the block by rows */
#endif
#if CLATTN_IS_QUANTISED(CLATTN_V)
  clattn_key_rows scales;
#endif
  clattn_running run;
  if (p.qk_dim <= CLATTN_DIM)
    clattn_load_queries(&p, &in, q, &t, 0, p.qk_dim, queries);

  const int few = CLATTN_FEW_ROWS(&t);
  const int parts = p.key_chunks, part = parts > 1 ? (int)get_group_id(1) : 0;
  const int first_dim = parts > 1 ? 0 : (int)get_group_id(1) * CLATTN_DIM;
  const int dims = p.rules & CLATTN_RULE_OUT ? min(p.v_dim - first_dim, CLATTN_DIM) : 0;
  if (parts > 1)
    t.u.keys = clattn_keys_of_part(t.u.keys, parts, part);

  /* The second round, with selects, only if some result is not finite without cause in its weights. */
  for (int careful = 0; careful < 2; ++careful) {
    clattn_start(&run, few, dims, out);

    clattn_interval keys = clattn_next_keys(&p, blocks, &t.u, t.u.keys.lo, t.u.keys.hi, CLATTN_KEY_BLOCK);
    while (keys.lo < keys.hi) {
      const int count = keys.hi - keys.lo;
      clattn_v top[CLATTN_MQ], largest[CLATTN_MQ], shrink[CLATTN_MQ];
      for (int m = 0; m < CLATTN_MQ; ++m)
        top[m] = run.top[m];
      const clattn_interval next = clattn_next_keys(&p, blocks, &t.u, keys.hi, t.u.keys.hi, CLATTN_KEY_BLOCK);
#if CLATTN_FEW
      clattn_find_rows(&p, &p.v, &t, keys.lo, count, rows);
      if (next.lo < next.hi)
        clattn_find_rows(&p, &p.k, &t, next.lo, next.hi - next.lo, next_rows);
      clattn_few_products(&p, &in, q, &t, keys.lo, count, queries, v, rows, CLATTN_FEW_BYTES(CLATTN_V, dims), lines);
      if (CLATTN_HOOKED || !plain || (p.rules & CLATTN_FEW_RULES) || keys.lo < t.all_lo || keys.hi > t.all_hi) {
        clattn_few_to_keys(few, count, lines, block);
        if (plain) {
          if (p.rules & CLATTN_RULE_BIAS)
            clattn_add_bias(&p, &in, &t, keys.lo, count, block, largest);
          clattn_exclude(&p, &in, &t, keys.lo, count, block, largest);
          if (p.rules & CLATTN_RULE_MAX_LOGIT)
            clattn_note_logits(count, in.scale, block, run.logit);
        } else
          clattn_finish_scores(&p, &in, &none, &t, keys.lo, count, block, top, run.logit);
        clattn_few_to_rows(few, count, block, lines);
      }
      clattn_few_softmax(few, count, lacking, careful, lines, run.top, run.sum, run.lost, shrink);
#else
      clattn_v factor[CLATTN_MQ];
      for (int m = 0; m < CLATTN_MQ; ++m)
        factor[m] = (clattn_v)(lacking);
      clattn_products(&p, &in, q, &t, keys.lo, count, queries, block, largest);
      if (plain) {
        if (p.rules & CLATTN_RULE_BIAS)
          clattn_add_bias(&p, &in, &t, keys.lo, count, block, largest);
        clattn_exclude(&p, &in, &t, keys.lo, count, block, largest);
        if (p.rules & CLATTN_RULE_MAX_LOGIT)
          clattn_note_logits(count, in.scale, block, run.logit);
        for (int m = 0; m < CLATTN_MQ; ++m)
          top[m] = clattn_maximum(top[m], largest[m] * factor[m]);
        clattn_scale_large(count, top, factor, block);
      } else
        clattn_finish_scores(&p, &in, &none, &t, keys.lo, count, block, top, run.logit);
      clattn_online_softmax(count, factor, careful, block, top, &run, shrink);
#endif
      if (dims > 0) {
#if !CLATTN_FEW
        clattn_find_rows(&p, &p.v, &t, keys.lo, count, rows);
#endif
#if CLATTN_IS_QUANTISED(CLATTN_V)
        clattn_find_rows(&p, &p.v_scale, &t, keys.lo, count, scales);
#endif
#if CLATTN_FEW
        clattn_weigh_few(&p, v, rows CLATTN_GIVE_VALUE_SCALES, first_dim, dims, count, few, careful, lines, shrink, out,
                         in.k, next.lo < next.hi ? next_rows : 0, next.hi - next.lo);
#else
        if (careful)
          clattn_weigh_kept(&p, v, rows CLATTN_GIVE_VALUE_SCALES, first_dim, dims, count, block, shrink, out);
        else
          clattn_weigh_block(&p, v, rows CLATTN_GIVE_VALUE_SCALES, first_dim, dims, count, block, shrink, out);
#endif
      }
      keys = next;
    }

    int odd = 0;
    for (int m = 0; m < CLATTN_MQ; ++m)
      run.sum[m] += run.lost[m];
#if CLATTN_FEW
    float checked[CLATTN_ROWS];
    CLATTN_VSTORE(run.sum[0], checked);
    for (int r = 0; r < few; ++r) {
      int nans = 0;
      for (int d = 0; d < dims; ++d) {
        const float x = out[CLATTN_AT(d, r)];
        nans |= x != x;
      }
      odd |= nans && checked[r] == checked[r] && checked[r] != 0.0f;
    }
#else
    clattn_v strange[CLATTN_MQ]; /* NaN once an element is NaN or infinite */
#pragma unroll
    for (int m = 0; m < CLATTN_MQ; ++m)
      strange[m] = (clattn_v)(0.0f);
    for (int d = 0; d < dims; ++d)
#pragma unroll
      for (int m = 0; m < CLATTN_MQ; ++m)
        strange[m] = fma(CLATTN_VLOAD(out + d * CLATTN_ROWS + m * CLATTN_LANES), (clattn_v)(0.0f), strange[m]);
    for (int m = 0; m < CLATTN_MQ; ++m) {
      const clattn_vi sound = run.sum[m] == run.sum[m] && run.sum[m] != (clattn_v)(0.0f);
      odd |= any(sound && strange[m] != strange[m]);
    }
#endif
    if (!odd)
      break;
  }

  if (parts > 1) {
    clattn_leave_part(&run, few, dims, out, clattn_part(&p, work, round.first_tile + (int)get_group_id(0), part));
    return;
  }
  clattn_v top[CLATTN_MQ], sum[CLATTN_MQ]; /* of the first pass, for the second */
  clattn_finish_tile(&p, &t, &run, first_dim, dims, out, sinks, work, o, lse, top, sum);
  if (first_dim == 0 && p.stage != CLATTN_SCORES_NONE)
    clattn_show_scores(&p, &in, &t, q, scores, queries, block, top, sum);
}

/* Puts the parts of a tile together, in their order.  Grid: (tile). */
CLATTN_CPU_KERNEL void flash_parts(const clattn_params p, const clattn_round round,
                                   __global const float *restrict sinks, __global const int *restrict table,
                                   __global const int *restrict entries, __global float *restrict work,
                                   __global CLATTN_TYPE(CLATTN_O) *restrict o, __global float *restrict lse) {
  const int tile = round.first_tile + (int)get_group_id(0);
  const int dims = p.rules & CLATTN_RULE_OUT ? p.v_dim : 0;
  clattn_tile t;
  clattn_running run;
  clattn_v top[CLATTN_MQ], sum[CLATTN_MQ]; /* nobody asks for weights here */
  float out[CLATTN_DIM * CLATTN_ROWS] CLATTN_ALIGNED;
  clattn_tile_open(&p, entries, table, tile, &t);
  const int few = CLATTN_FEW_ROWS(&t);
  clattn_start(&run, few, dims, out);
  for (int part = 0; part < p.key_chunks; ++part)
    for (int m = 0; m < CLATTN_MQ; ++m)
      run.top[m] = clattn_maximum(run.top[m], CLATTN_VLOAD(clattn_part(&p, work, tile, part) + m * CLATTN_LANES));
  for (int part = 0; part < p.key_chunks; ++part)
    clattn_take_part(&run, few, dims, out, clattn_part(&p, work, tile, part));
  clattn_finish_tile(&p, &t, &run, 0, dims, out, sinks, work, o, lse, top, sum);
}

#include "common.cl.h"
