/* SPDX-License-Identifier: Apache-2.0 */
/* A tile of query rows in vector lanes: what the CPU families share.
 *
 * The lanes of a vector are query rows.  A tile of CLATTN_MQ vectors of queries is transposed once; keys and values
 * are then read as they lie, one scalar at a time, and broadcast.  So a softmax over keys has no horizontal step, and
 * no stride of k and v needs a copy.  Scores and numerators of a block of keys are [key][lane].  Keys and values of
 * other types than f32 are widened on their way, once for all rows of the tile.
 *
 * Register blocks are CLATTN_NK keys (or CLATTN_ND value elements) times CLATTN_MQ vectors, chosen by the host to
 * fill the registers of the device's vector width. */
#ifndef CLATTN_LANES_TILE_CL_H
#define CLATTN_LANES_TILE_CL_H

#include "params.cl.h"
#include "lanes.cl.h"
#include "lanes_product.cl.h"
#include "transpose.cl.h"
#include "dtype.cl.h"
#include "inputs.cl.h"
#include "softmax.cl.h"
#include "mask.cl.h"
#include "kv.cl.h"
#include "tile.cl.h"
#include "hook.cl.h"
#include "similarity.cl.h"

#ifndef CLATTN_MQ
#define CLATTN_MQ 3
#endif
#ifndef CLATTN_NK
#define CLATTN_NK 4
#endif
#ifndef CLATTN_ND /* 4 or 8 */
#define CLATTN_ND 4
#endif
#ifndef CLATTN_DIM /* head dimensions (of q and k, and of v) whose tile is in private memory at a time */
#define CLATTN_DIM 1024
#endif
#define CLATTN_ROWS (CLATTN_MQ * CLATTN_LANES)
#ifndef CLATTN_FEW /* 1: a tile's rows are in private memory as they lie: few_rows.cl.h */
#define CLATTN_FEW 0
#endif
/* Where element d of a row of a tile is, of queries and of results. */
#if CLATTN_FEW
#define CLATTN_AT(d, lane) ((lane)*CLATTN_DIM + (d))
#else
#define CLATTN_AT(d, lane) ((d)*CLATTN_ROWS + (lane))
#endif

#if defined(__clang__) && CLATTN_LANES == 16
#define CLATTN_CPU_KERNEL __attribute__((min_vector_width(512))) __attribute__((reqd_work_group_size(1, 1, 1))) __kernel
#else
#define CLATTN_CPU_KERNEL __attribute__((reqd_work_group_size(1, 1, 1))) __kernel
#endif

/* Vectors that straddle cache lines cost two loads each. */
#if defined(__clang__)
#define CLATTN_ALIGNED __attribute__((aligned(64)))
#else
#define CLATTN_ALIGNED
#endif

/* Which scores the caller gets to see while they are computed. */
typedef struct clattn_shown {
  __global CLATTN_TYPE(CLATTN_SCORES) * out;
  int stage; /* CLATTN_SCORES_NONE: none */
} clattn_shown;

/* Which rows a work-item computes, and which keys they see. */
typedef struct clattn_tile {
  clattn_unit u;
  int all_lo, all_hi;                        /* seen by every row, masks apart; empty if rows are missing */
  int i[CLATTN_ROWS], h[CLATTN_ROWS];        /* query row and head of each lane */
  int lo[CLATTN_ROWS], hi[CLATTN_ROWS];      /* keys that it sees */
  long bias[CLATTN_ROWS], mask[CLATTN_ROWS]; /* where its bias, mask and line of the block mask start */
  long blocks[CLATTN_ROWS];
  float factor[CLATTN_ROWS], slope[CLATTN_ROWS]; /* of its head */
} clattn_tile;

/* The rows from t->u.first on. */
static inline void clattn_tile_rows(const clattn_params *p, clattn_tile *t) {
  t->all_lo = 0;
  t->all_hi = t->u.entry.k_len;
  for (int lane = 0; lane < CLATTN_ROWS; ++lane) {
    t->i[lane] = clattn_unit_row(p, &t->u, lane);
    t->h[lane] = clattn_unit_head(p, &t->u, lane);
    t->lo[lane] = clattn_row_lo(p, t->u.entry, t->i[lane]);
    t->hi[lane] = clattn_row_hi(p, t->u.entry, t->i[lane]);
    if (t->i[lane] < t->u.entry.q_rows) {
      t->all_lo = max(t->all_lo, t->lo[lane]);
      t->all_hi = min(t->all_hi, t->hi[lane]);
    }
  }
}

static inline void clattn_tile_open(const clattn_params *p, __global const int *entries, __global const int *table,
                                    int id, clattn_tile *t) {
  t->u = clattn_unit_of(p, entries, table, id);
  clattn_tile_rows(p, t);
}

/* What finishing scores needs of each row beside. */
static inline void clattn_tile_prepare(const clattn_params *p, const clattn_inputs *in, clattn_tile *t) {
  for (int lane = 0; lane < CLATTN_ROWS; ++lane) {
    const int h = t->h[lane], b = t->u.b;
    const int i = clattn_real_row(&t->u, t->i[lane]); /* rows past the end are computed, never written */
    t->bias[lane] = p->rules & CLATTN_RULE_BIAS ? clattn_row(&p->bias, b, h, i) : 0;
    t->mask[lane] = p->rules & (CLATTN_RULE_MASK_U8 | CLATTN_RULE_MASK_BITS) ? clattn_row(&p->mask, b, h, i) : 0;
    t->blocks[lane] = p->rules & CLATTN_RULE_BLOCK_MASK ? clattn_row(&p->blocks, b, h, i / p->block_q) : 0;
    t->slope[lane] = p->rules & CLATTN_RULE_ALIBI ? in->slopes[clattn_of_head(&p->slopes, b, h)] : 0.0f;
    t->factor[lane] =
        p->rules & CLATTN_RULE_HEAD_SCALE ? in->head_scale[p->head_scale_first + h * p->head_scale_head] : 1.0f;
  }
}

/* Whether a lane's row exists, and where it starts in a tensor of query rows. */
static inline int clattn_lane_exists(const clattn_tile *t, int lane) {
  return t->i[lane] < t->u.entry.q_rows;
}

static inline long clattn_lane_at(const clattn_tile *t, int lane) {
  return (long)t->u.entry.q_start + clattn_real_row(&t->u, t->i[lane]);
}

/* Elements of a type side by side, as many as there are lanes. */
#if CLATTN_LANES == 1
#define CLATTN_LOAD_LANES(type) CLATTN_LOAD(type)
#else
#define CLATTN_LOAD_LANES(type) CLATTN_LOADN(CLATTN_LANES, type)
#endif

#define CLATTN_Q_IN_LANES (!CLATTN_FEW && !CLATTN_COSINE && !CLATTN_ROPE) /* as they lie, but for the transposition */

/* The tile's rows of q, `dims` elements from d0 on, at CLATTN_AT. */
static inline void clattn_load_queries(const clattn_params *p, const clattn_inputs *in,
                                       __global const CLATTN_TYPE(CLATTN_Q) * q, const clattn_tile *t, int d0, int dims,
                                       float *queries) {
#if CLATTN_Q_IN_LANES
  const int vectors = p->q.element == 1 && dims >= CLATTN_LANES;
  for (int m = 0; m < CLATTN_MQ && vectors; ++m) {
    long at[CLATTN_LANES];
    for (int l = 0; l < CLATTN_LANES; ++l) {
      const int lane = m * CLATTN_LANES + l;
      at[l] = clattn_row(&p->q, t->u.b, t->h[lane], clattn_lane_at(t, lane)) + d0;
    }
    for (int x = 0; x < dims; x += CLATTN_LANES) {
      const int first = min(x, dims - CLATTN_LANES); /* the last vector may repeat some elements */
      clattn_v r[CLATTN_LANES];
#pragma unroll
      for (int l = 0; l < CLATTN_LANES; ++l)
        r[l] = CLATTN_LOAD_LANES(CLATTN_Q)(q, at[l] + first);
      clattn_transpose(r);
#pragma unroll
      for (int l = 0; l < CLATTN_LANES; ++l)
        CLATTN_VSTORE(r[l], queries + (first + l) * CLATTN_ROWS + m * CLATTN_LANES);
    }
  }
  if (vectors)
    return;
#endif
  for (int lane = 0; lane < CLATTN_ROWS; ++lane) {
    const long at = clattn_row(&p->q, t->u.b, t->h[lane], clattn_lane_at(t, lane));
    const long line = clattn_line_of_query(p, in, t->u.b, t->u.entry, clattn_real_row(&t->u, t->i[lane]));
#if CLATTN_COSINE
    const clattn_norm norm = clattn_norm_of_q(p, in, q, at, line);
    for (int d = 0; d < dims; ++d)
      queries[CLATTN_AT(d, lane)] = clattn_normed(norm, clattn_q_element(p, in, q, at, line, d0 + d));
#else
    for (int d = 0; d < dims; ++d)
      queries[CLATTN_AT(d, lane)] = clattn_q_element(p, in, q, at, line, d0 + d);
#endif
  }
}

/* Writes a vector of rows of key j to the caller's score tensor; rows past the batch entry's last one hold `beyond`. */
static inline void clattn_store_scores(const clattn_params *p, __global CLATTN_TYPE(CLATTN_SCORES) * scores,
                                       const clattn_tile *t, int m, int j, clattn_v s, float beyond) {
  float x[CLATTN_LANES];
  CLATTN_VSTORE(s, x);
  for (int l = 0; l < CLATTN_LANES; ++l) {
    const int lane = m * CLATTN_LANES + l, i = t->i[lane];
    if (i < p->q_len)
      CLATTN_STORE(CLATTN_SCORES)
    (scores, clattn_row(&p->scores, t->u.b, t->h[lane], i) + j * p->scores.element,
     i < t->u.entry.q_len ? x[l] : beyond);
  }
}

/* Writes a number of each row: lse, or its maximum in the workspace. */
static inline void clattn_store_rows(const clattn_row_view *v, const clattn_tile *t, __global float *to, int m,
                                     clattn_v s) {
  float x[CLATTN_LANES];
  CLATTN_VSTORE(s, x);
  for (int l = 0; l < CLATTN_LANES; ++l) {
    const int lane = m * CLATTN_LANES + l;
    if (clattn_lane_exists(t, lane))
      to[clattn_row_of(v, t->u.b, t->h[lane], clattn_lane_at(t, lane))] = x[l];
  }
}

static inline clattn_v clattn_sink_lanes(const clattn_params *p, __global const float *sinks, const clattn_tile *t,
                                         int m) {
  float x[CLATTN_LANES];
  for (int l = 0; l < CLATTN_LANES; ++l)
    x[l] = sinks[p->sink_first + t->h[m * CLATTN_LANES + l] * p->sink_head];
  return CLATTN_VLOAD(x);
}

/* Where rows j0 .. j0 + keys - 1 of k or v (or of their scales) start, and up to the next multiple of CLATTN_NK the
 * last one again: whatever is computed of the repeated ones is excluded. */
typedef long clattn_key_rows[CLATTN_KEY_BLOCK + CLATTN_NK + 8];

static inline void clattn_find_rows(const clattn_params *p, const clattn_view *v, const clattn_tile *t, int j0,
                                    int keys, long *rows) {
  if (p->page_size > 0)
    for (int x = 0; x < keys + CLATTN_NK - 1; ++x)
      rows[x] = clattn_kv_row(p, v, t->u.kv, j0 + min(x, keys - 1));
  else {
    const long first = clattn_kv_row(p, v, t->u.kv, j0), last = first + (keys - 1) * v->row;
    long8 row = (long8)(first) + (long8)(0, 1, 2, 3, 4, 5, 6, 7) * (long8)(v->row);
    const long8 step = (long8)(8 * v->row);
    for (int x = 0; x < keys; x += 8) {
      vstore8(row, 0, rows + x);
      row += step;
    }
    for (int x = keys; x < keys + CLATTN_NK - 1; ++x)
      rows[x] = last;
  }
}

/* Keys that the products can't read as they lie go through private memory. */
#define CLATTN_K_WIDENED (CLATTN_NUMBER(CLATTN_K) != CLATTN_IS_f32 || CLATTN_COSINE || CLATTN_ROPE)
#define CLATTN_V_WIDENED (CLATTN_NUMBER(CLATTN_V) != CLATTN_IS_f32)

#if CLATTN_ROPE
/* Turns the first elements of a key in place, all that are rotated. */
static inline void clattn_turn_key(const clattn_inputs *in, long line, float *key) {
  const int pairs = in->rope.dim / 2;
  __global const float *cosines = in->rope_cos + in->rope.cos_first + line;
  __global const float *sines = in->rope_sin + in->rope.sin_first + line;
  int x = 0;
  if (in->rope.element == 1)
    for (; x + 8 <= pairs; x += 8) {
      const float8 c = vload8(0, cosines + x), s = vload8(0, sines + x);
#if CLATTN_ROPE == 1
      const float8 a = vload8(0, key + x), b = vload8(0, key + pairs + x);
      vstore8(fma(a, c, -(b * s)), 0, key + x);
      vstore8(fma(b, c, a * s), 0, key + pairs + x);
#else
      float16 both = vload16(0, key + 2 * x);
      const float8 a = both.even, b = both.odd;
      both.even = fma(a, c, -(b * s));
      both.odd = fma(b, c, a * s);
      vstore16(both, 0, key + 2 * x);
#endif
    }
  for (; x < pairs; ++x) {
    const int first = CLATTN_ROPE == 1 ? x : 2 * x, second = CLATTN_ROPE == 1 ? pairs + x : 2 * x + 1;
    const float c = cosines[x * in->rope.element], s = sines[x * in->rope.element], a = key[first], b = key[second];
    key[first] = fma(a, c, -(b * s));
    key[second] = fma(b, c, a * s);
  }
}
#endif

#if CLATTN_K_WIDENED
/* `dims` elements from d0 on of the row of k at `at` (its scales at scale_at, its line in the tables). */
static inline void clattn_widen_key(const clattn_params *p, const clattn_inputs *in, long at, long scale_at, long line,
                                    int d0, int dims, float *to) {
  int d = 0;
#if CLATTN_ROPE
  const int apart = in->rope.dim > CLATTN_DIM; /* the two of a pair are not here together */
  for (; apart && d < dims; ++d)
    to[d] = clattn_k_element(p, in, at, scale_at, line, d0 + d);
#endif
  if (p->k.element == 1)
    for (; d + 16 <= dims; d += 16)
      vstore16(CLATTN_LOADN(16, CLATTN_K)(in->k, at + d0 + d) * (float16)(clattn_k_scale(p, in, scale_at, d0 + d)), 0,
               to + d);
  for (; d < dims; ++d)
    to[d] = CLATTN_LOAD(CLATTN_K)(in->k, at + (d0 + d) * p->k.element) * clattn_k_scale(p, in, scale_at, d0 + d);
#if CLATTN_ROPE
  if (!apart && d0 == 0)
    clattn_turn_key(in, line, to);
#else
  (void)line;
#endif
#if CLATTN_COSINE
  const clattn_norm norm = clattn_norm_of_k(p, in, at, scale_at, line);
  for (d = 0; d < dims; ++d)
    to[d] = clattn_normed(norm, to[d]);
#endif
}
#endif

/* Scales of quantised values travel beside their rows. */
#if CLATTN_IS_QUANTISED(CLATTN_V)
#define CLATTN_VALUE_SCALES , const long *scales CLATTN_V_SCALE_ARG
#define CLATTN_GIVE_VALUE_SCALES , scales, v_scale
#define CLATTN_SCALE_OF_VALUE(p, row, d) clattn_v_scale(p, v_scale, row, d)
#else
#define CLATTN_VALUE_SCALES
#define CLATTN_GIVE_VALUE_SCALES
#define CLATTN_SCALE_OF_VALUE(p, row, d) 1.0f
#endif

#include "few_rows.cl.h"

#if !CLATTN_FEW
/* block[key][lane] (+)= similarity of q and k over `dims` elements from d0 on, for `keys` keys, rounded up to
 * CLATTN_NK; largest[]: of each row. */
static inline void clattn_dot_block(const clattn_params *p, const clattn_inputs *in, const clattn_tile *t,
                                    const long *rows, const long *scales, int j0, const float *queries, int d0,
                                    int dims, int keys, float *block, clattn_v largest[CLATTN_MQ]) {
  (void)t, (void)scales, (void)j0; /* some programs don't need them */
#if CLATTN_K_WIDENED
  float wide[CLATTN_NK][CLATTN_DIM];
#endif
#if CLATTN_ADDITIVE
  float factors[CLATTN_DIM * CLATTN_ROWS]; /* w of each row's head */
  for (int lane = 0; lane < CLATTN_ROWS; ++lane)
    for (int d = 0; d < dims; ++d)
      factors[d * CLATTN_ROWS + lane] =
          in->add_w[p->add_w_first + t->h[lane] * p->add_w_head + (d0 + d) * p->add_w_element];
#endif
  clattn_v most[CLATTN_MQ];
  for (int m = 0; m < CLATTN_MQ; ++m)
    most[m] = (clattn_v)(-INFINITY);
  for (int j = 0; j < keys; j += CLATTN_NK) {
    clattn_v acc[CLATTN_NK][CLATTN_MQ];
#if CLATTN_K_WIDENED
    const float *row[CLATTN_NK];
    const long step = 1;
#pragma unroll
    for (int a = 0; a < CLATTN_NK; ++a) {
      const long line = clattn_line_of_key(p, in, t->u.kv, j0 + min(j + a, keys - 1));
      clattn_widen_key(p, in, rows[j + a], scales[j + a], line, d0, dims, wide[a]);
      row[a] = wide[a];
    }
#else
    __global const float *row[CLATTN_NK];
    const long step = p->k.element;
#pragma unroll
    for (int a = 0; a < CLATTN_NK; ++a)
      row[a] = in->k + rows[j + a] + d0 * p->k.element;
#endif
#pragma unroll
    for (int a = 0; a < CLATTN_NK; ++a)
#pragma unroll
      for (int m = 0; m < CLATTN_MQ; ++m)
        acc[a][m] = (clattn_v)(0.0f);
#if CLATTN_ADDITIVE
    for (int d = 0; d < dims; ++d) {
      clattn_v x[CLATTN_MQ];
#pragma unroll
      for (int m = 0; m < CLATTN_MQ; ++m)
        x[m] = CLATTN_VLOAD(queries + d * CLATTN_ROWS + m * CLATTN_LANES);
      for (int a = 0; a < CLATTN_NK; ++a)
        for (int m = 0; m < CLATTN_MQ; ++m)
          acc[a][m] = fma(CLATTN_VLOAD(factors + d * CLATTN_ROWS + m * CLATTN_LANES),
                          clattn_tanh(x[m] + (clattn_v)(row[a][d * step])), acc[a][m]);
    }
#else
    CLATTN_LANES_PRODUCT(acc, queries, row, step, dims)
#endif
#pragma unroll
    for (int a = 0; a < CLATTN_NK; ++a)
#pragma unroll
      for (int m = 0; m < CLATTN_MQ; ++m) {
        float *at = block + (j + a) * CLATTN_ROWS + m * CLATTN_LANES;
        const clattn_v s = d0 ? CLATTN_VLOAD(at) + acc[a][m] : acc[a][m];
        CLATTN_VSTORE(s, at);
        most[m] = clattn_maximum(most[m], s); /* the last key stands in for those beyond it */
      }
  }
  for (int m = 0; m < CLATTN_MQ; ++m)
    largest[m] = most[m];
}

#endif

/* clattn_find_rows of k and of its scales, which are not looked at where k has none. */
static inline void clattn_find_keys(const clattn_params *p, const clattn_tile *t, int j0, int keys, long *rows,
                                    long *scales) {
  clattn_find_rows(p, &p->k, t, j0, keys, rows);
#if CLATTN_IS_QUANTISED(CLATTN_K)
  clattn_find_rows(p, &p->k_scale, t, j0, keys, scales);
#else
  for (int x = 0; CLATTN_K_WIDENED && x < keys + CLATTN_NK - 1; ++x)
    scales[x] = 0;
#endif
}

/* Raw products of a block, over the whole head dimension, and the largest of each row. */
static inline void clattn_products(const clattn_params *p, const clattn_inputs *in,
                                   __global const CLATTN_TYPE(CLATTN_Q) * q, const clattn_tile *t, int j0, int keys,
                                   float *queries, float *block, clattn_v largest[CLATTN_MQ]) {
  clattn_key_rows rows, scales;
  clattn_find_keys(p, t, j0, keys, rows, scales);
  for (int d0 = 0; d0 < p->qk_dim; d0 += CLATTN_DIM) {
    const int dims = min(p->qk_dim - d0, CLATTN_DIM);
    if (p->qk_dim > CLATTN_DIM) /* else they were loaded once for all blocks */
      clattn_load_queries(p, in, q, t, d0, dims, queries);
    clattn_dot_block(p, in, t, rows, scales, j0, queries, d0, dims, keys, block, largest);
  }
}

/* What is added to, or forbidden for, a vector of rows at key j. */
static inline clattn_v clattn_bias_lanes(const clattn_params *p, const clattn_inputs *in, const long *rows, int j) {
  float x[CLATTN_LANES];
  for (int l = 0; l < CLATTN_LANES; ++l)
    x[l] = CLATTN_LOAD(CLATTN_BIAS)(in->bias, rows[l] + j * p->bias.element);
  return CLATTN_VLOAD(x);
}

static inline clattn_vi clattn_mask_lanes(const clattn_params *p, const clattn_inputs *in, const clattn_tile *t,
                                          int first, int j) {
  int x[CLATTN_LANES];
  for (int l = 0; l < CLATTN_LANES; ++l)
    x[l] = clattn_mask_keeps(p, in->mask, t->mask[first + l], j) &&
           clattn_block_keeps(p, in->blocks, t->blocks[first + l], j);
  return CLATTN_VLOAD(x) != (clattn_vi)(0);
}

/* Positions of key j relative to the rows', each rounded once. */
static inline clattn_v clattn_distance_lanes(const clattn_tile *t, int first, int j) {
  float x[CLATTN_LANES];
  for (int l = 0; l < CLATTN_LANES; ++l)
    x[l] = (float)(j - (t->i[first + l] + t->u.entry.offset));
  return CLATTN_VLOAD(x);
}

#if CLATTN_HOOKED
static inline clattn_v clattn_hook_lanes(const clattn_inputs *in, const clattn_tile *t, int first, int j, clattn_v s) {
  float x[CLATTN_LANES];
  CLATTN_VSTORE(s, x);
  for (int l = 0; l < CLATTN_LANES; ++l)
    if (t->i[first + l] < t->u.entry.q_len)
      x[l] = clattn_hooked_score(in, &t->u, t->h[first + l], t->i[first + l], j, x[l]);
  return CLATTN_VLOAD(x);
}
#endif

/* A hook that only excludes leaves scores as they are. */
#ifdef CLATTN_HOOK_SCORE
#define CLATTN_HOOK_SCORES 1
#else
#define CLATTN_HOOK_SCORES 0
#endif

/* Whether raw products, the rules that exclude keys and a bias are all there is to a score, and a larger product is a
 * larger score: the same for every tile of a call, whatever is asked for beside o. */
static inline int clattn_scores_plain(const clattn_params *p, const clattn_inputs *in) {
  return !CLATTN_HOOK_SCORES && in->softcap == 0.0f && in->scale > 0.0f && in->scale < INFINITY &&
         !(p->rules & (CLATTN_RULE_HEAD_SCALE | CLATTN_RULE_ALIBI)) &&
         !((p->rules & CLATTN_RULE_BIAS) && (p->rules & CLATTN_RULE_MAX_LOGIT));
}

/* Of plain scores, raw products as they are: those of excluded keys become -inf, largest[] follows. */
static inline void clattn_exclude(const clattn_params *p, const clattn_inputs *in, const clattn_tile *t, int j0,
                                  int keys, float *block, clattn_v largest[CLATTN_MQ]) {
  const int masks = (p->rules & (CLATTN_RULE_MASK_U8 | CLATTN_RULE_MASK_BITS)) ||
                    ((p->rules & CLATTN_RULE_BLOCK_MASK) && !clattn_unit_sees_all(p, in->blocks, &t->u, j0, j0 + keys));
  if (!CLATTN_HOOKED && !masks && j0 >= t->all_lo && j0 + keys <= t->all_hi)
    return;
  for (int m = 0; m < CLATTN_MQ; ++m) {
    const clattn_vi lo = CLATTN_VLOAD(t->lo + m * CLATTN_LANES), hi = CLATTN_VLOAD(t->hi + m * CLATTN_LANES);
    clattn_v most = (clattn_v)(-INFINITY);
    for (int x = 0; x < keys; ++x) {
      float *at = block + x * CLATTN_ROWS + m * CLATTN_LANES;
      clattn_vi keep = (clattn_vi)(j0 + x) >= lo && (clattn_vi)(j0 + x) < hi;
      if (masks)
        keep = keep && clattn_mask_lanes(p, in, t, m * CLATTN_LANES, j0 + x);
      clattn_v s = CLATTN_VLOAD(at);
#if CLATTN_HOOKED
      s = clattn_hook_lanes(in, t, m * CLATTN_LANES, j0 + x, s);
#endif
      s = keep ? s : (clattn_v)(-INFINITY);
      most = clattn_maximum(most, s);
      CLATTN_VSTORE(s, at);
    }
    largest[m] = most;
  }
}

/* The largest of plain scores that are kept, NaN if one is. */
static inline void clattn_note_logits(int keys, float scale, const float *block, clattn_v logit[CLATTN_MQ]) {
  for (int m = 0; m < CLATTN_MQ; ++m)
    for (int x = 0; x < keys; ++x)
      logit[m] =
          clattn_maximum_nan(logit[m], CLATTN_VLOAD(block + x * CLATTN_ROWS + m * CLATTN_LANES) * (clattn_v)(scale));
}

/* Raw products become scores with a bias, in the two roundings of clattn_finish_scores; largest[] follows.  Bias rows are
 * transposed, as many keys at a time as there are lanes. */
static inline void clattn_add_bias(const clattn_params *p, const clattn_inputs *in, const clattn_tile *t, int j0,
                                   int keys, float *block, clattn_v largest[CLATTN_MQ]) {
  for (int m = 0; m < CLATTN_MQ; ++m) {
    const long *rows = t->bias + m * CLATTN_LANES;
    clattn_v most = (clattn_v)(-INFINITY), bias[CLATTN_LANES];
    for (int x0 = 0; x0 < keys; x0 += CLATTN_LANES) {
      const int some = min(keys - x0, CLATTN_LANES);
      if (some == CLATTN_LANES && p->bias.element == 1) {
#pragma unroll
        for (int l = 0; l < CLATTN_LANES; ++l)
          bias[l] = CLATTN_LOAD_LANES(CLATTN_BIAS)(in->bias, rows[l] + j0 + x0);
        clattn_transpose(bias);
      } else
        for (int x = 0; x < some; ++x)
          bias[x] = clattn_bias_lanes(p, in, rows, j0 + x0 + x);
      for (int x = 0; x < some; ++x) {
        float *at = block + (x0 + x) * CLATTN_ROWS + m * CLATTN_LANES;
        const clattn_v raw = CLATTN_VLOAD(at) * (clattn_v)(in->scale);
        clattn_v s = raw;
        s += bias[x];
        most = clattn_maximum(most, s);
        CLATTN_VSTORE(s, at);
      }
    }
    largest[m] = most;
  }
}

/* Final scores of keys j0 .. j0 + keys - 1 (-inf = excluded), from the raw products in block.  top: running maximum
 * per row; logit: running maximum of raw scores over kept pairs. */
static inline void clattn_finish_scores(const clattn_params *p, const clattn_inputs *in, const clattn_shown *shown,
                                        const clattn_tile *t, int j0, int keys, float *block, clattn_v top[CLATTN_MQ],
                                        clattn_v logit[CLATTN_MQ]) {
  const int masks = (p->rules & (CLATTN_RULE_MASK_U8 | CLATTN_RULE_MASK_BITS)) ||
                    ((p->rules & CLATTN_RULE_BLOCK_MASK) && !clattn_unit_sees_all(p, in->blocks, &t->u, j0, j0 + keys));
  const int edge = masks || j0 < t->all_lo || j0 + keys > t->all_hi;
  /* positions of key j0 relative to the rows'; far off, adding to them would round twice */
  clattn_v from[CLATTN_MQ];
  for (int m = 0; m < CLATTN_MQ; ++m)
    from[m] = clattn_distance_lanes(t, m * CLATTN_LANES, j0);
  const int far = abs_diff((long)j0, t->i[0] + t->u.entry.offset) > (1 << 23);
  for (int x = 0; x < keys; ++x) {
    const int j = j0 + x;
    for (int m = 0; m < CLATTN_MQ; ++m) {
      float *at = block + x * CLATTN_ROWS + m * CLATTN_LANES;
      clattn_v raw = CLATTN_VLOAD(at) * (clattn_v)(in->scale);
      if (p->rules & CLATTN_RULE_HEAD_SCALE)
        raw *= CLATTN_VLOAD(t->factor + m * CLATTN_LANES);
      clattn_v s = raw;
      if (in->softcap > 0.0f)
        s = clattn_softcap(raw, in->softcap);
      const clattn_v capped = s;
      if (p->rules & CLATTN_RULE_BIAS)
        s += clattn_bias_lanes(p, in, t->bias + m * CLATTN_LANES, j);
      if (p->rules & CLATTN_RULE_ALIBI)
        s = clattn_alibi(s, CLATTN_VLOAD(t->slope + m * CLATTN_LANES),
                         far ? clattn_distance_lanes(t, m * CLATTN_LANES, j) : from[m] + (clattn_v)((float)x),
                         p->rules & CLATTN_RULE_SYMMETRIC);
#if CLATTN_HOOKED
      s = clattn_hook_lanes(in, t, m * CLATTN_LANES, j, s);
#endif
      if (edge) {
        const clattn_vi lo = CLATTN_VLOAD(t->lo + m * CLATTN_LANES);
        const clattn_vi hi = CLATTN_VLOAD(t->hi + m * CLATTN_LANES);
        clattn_vi keep = (clattn_vi)(j) >= lo && (clattn_vi)(j) < hi;
        if (masks)
          keep = keep && clattn_mask_lanes(p, in, t, m * CLATTN_LANES, j);
        s = keep ? s : (clattn_v)(-INFINITY);
      }
      if (p->rules & CLATTN_RULE_MAX_LOGIT)
        logit[m] = clattn_maximum_nan(logit[m], s == (clattn_v)(-INFINITY) ? s : raw);
      if (shown->stage != CLATTN_SCORES_NONE) {
        const clattn_v seen = shown->stage == CLATTN_SCORES_RAW       ? raw
                              : shown->stage == CLATTN_SCORES_SOFTCAP ? capped
                                                                      : s;
        clattn_store_scores(p, shown->out, t, m, j, seen, -INFINITY);
      }
      top[m] = clattn_maximum(top[m], s);
      CLATTN_VSTORE(s, at);
    }
  }
}

#if !CLATTN_FEW
/* Value elements d .. d + CLATTN_ND - 1 of `keys` rows: wide[key][element]. */
static inline void clattn_widen_values(const clattn_params *p, __global const CLATTN_TYPE(CLATTN_V) * v,
                                       const long *rows CLATTN_VALUE_SCALES, int d, int keys, float *wide) {
  for (int x = 0; x < keys; ++x) {
    if (p->v.element == 1) {
      const CLATTN_PASTE(float, CLATTN_ND) y =
          CLATTN_LOADN(CLATTN_ND, CLATTN_V)(v, rows[x] + d) * CLATTN_SCALE_OF_VALUE(p, scales[x], d);
      CLATTN_PASTE(vstore, CLATTN_ND)(y, 0, wide + x * CLATTN_ND);
    } else
      for (int a = 0; a < CLATTN_ND; ++a)
        wide[x * CLATTN_ND + a] =
            CLATTN_LOAD(CLATTN_V)(v, rows[x] + (d + a) * p->v.element) * CLATTN_SCALE_OF_VALUE(p, scales[x], d + a);
  }
}
#endif

#endif
