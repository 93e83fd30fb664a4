/* SPDX-License-Identifier: Apache-2.0 */
/* A tile of query rows in vector lanes: what the CPU families share.
 *
 * The lanes of a vector are query rows.  A tile of CLATTN_MQ vectors of queries is transposed once; keys and values are
 * then read as they lie, one scalar at a time, and broadcast.  So a softmax over keys has no horizontal step, and no stride
 * of k and v needs a copy.  Scores and numerators of a block of keys are [key][lane].
 *
 * Register blocks are CLATTN_NK keys (or CLATTN_ND value elements) times CLATTN_MQ vectors, chosen by the host to fill the
 * registers of the device's vector width. */
#ifndef CLATTN_LANES_TILE_CL_H
#define CLATTN_LANES_TILE_CL_H

#include "params.cl.h"
#include "lanes.cl.h"
#include "softmax.cl.h"
#include "mask.cl.h"
#include "kv.cl.h"

#ifndef CLATTN_MQ
#define CLATTN_MQ 3
#endif
#ifndef CLATTN_NK
#define CLATTN_NK 4
#endif
#ifndef CLATTN_ND
#define CLATTN_ND 4
#endif
#ifndef CLATTN_DIM /* the largest head dimension (of q and k, and of v) whose tile stays in private memory */
#define CLATTN_DIM 1024
#endif
#define CLATTN_ROWS (CLATTN_MQ * CLATTN_LANES)

#if defined(__clang__) && CLATTN_LANES == 16
#define CLATTN_CPU_KERNEL __attribute__((min_vector_width(512))) __attribute__((reqd_work_group_size(1, 1, 1))) __kernel
#else
#define CLATTN_CPU_KERNEL __attribute__((reqd_work_group_size(1, 1, 1))) __kernel
#endif

/* Which rows a work-item computes, and which keys they see. */
typedef struct clattn_tile {
  int b, h, first_row;
  clattn_entry entry;
  clattn_interval keys;                      /* seen by some row */
  int all_lo, all_hi;                        /* seen by every row, masks apart; empty if rows are missing */
  int lo[CLATTN_ROWS], hi[CLATTN_ROWS];      /* seen by each row */
  long bias[CLATTN_ROWS], mask[CLATTN_ROWS]; /* where its bias and mask start */
} clattn_tile;

static inline void clattn_tile_open(const clattn_params *p, __global const int *lengths, int id, clattn_tile *t) {
  const int bh = id / p->tiles_per_head;
  t->b = bh / p->q_heads;
  t->h = bh % p->q_heads;
  t->first_row = id % p->tiles_per_head * CLATTN_ROWS;
  t->entry = clattn_entry_of(p, lengths, t->b);
  t->keys = clattn_tile_interval(p, t->entry, t->first_row, CLATTN_ROWS);
  t->all_lo = 0;
  t->all_hi = t->entry.k_len;
  for (int lane = 0; lane < CLATTN_ROWS; ++lane) {
    const int i = t->first_row + lane, real = min(i, p->q_len - 1); /* rows past the end are computed, never written */
    t->lo[lane] = clattn_row_lo(p, t->entry, i);
    t->hi[lane] = clattn_row_hi(p, t->entry, i);
    t->bias[lane] = clattn_row(&p->bias, t->b, t->h, real);
    t->mask[lane] = clattn_row(&p->mask, t->b, t->h, real);
    if (i < p->q_len) {
      t->all_lo = max(t->all_lo, t->lo[lane]);
      t->all_hi = min(t->all_hi, t->hi[lane]);
    }
  }
}

/* Transposes the tile's rows of q, `dims` elements from d0 on: queries[d][lane]. */
static inline void clattn_load_queries(const clattn_params *p, __global const float *q, const clattn_tile *t, int d0,
                                       int dims, float *queries) {
  for (int lane = 0; lane < CLATTN_ROWS; ++lane) {
    __global const float *from =
        q + clattn_row(&p->q, t->b, t->h, min(t->first_row + lane, p->q_len - 1)) + d0 * p->q.element;
    for (int d = 0; d < dims; ++d)
      queries[d * CLATTN_ROWS + lane] = from[d * p->q.element];
  }
}

/* Writes a vector of rows of key j to the caller's score tensor; rows past the batch entry's last one hold `beyond`. */
static inline void clattn_store_scores(const clattn_params *p, __global float *scores, const clattn_tile *t, int m,
                                       int j, clattn_v s, float beyond) {
  float x[CLATTN_LANES];
  CLATTN_VSTORE(s, x);
  for (int l = 0; l < CLATTN_LANES; ++l) {
    const int i = t->first_row + m * CLATTN_LANES + l;
    if (i < p->q_len)
      scores[clattn_row(&p->scores, t->b, t->h, i) + j * p->scores.element] = i < t->entry.q_len ? x[l] : beyond;
  }
}

/* block[key][lane] += q . k over `dims` elements from d0 on, for keys j0 .. j0 + keys - 1, rounded up to CLATTN_NK. */
static inline void clattn_dot_block(const clattn_params *p, __global const float *k, const clattn_tile *t,
                                    const float *queries, int d0, int dims, int j0, int keys, float *block) {
  for (int j = 0; j < keys; j += CLATTN_NK) {
    clattn_v acc[CLATTN_NK][CLATTN_MQ];
    __global const float *row[CLATTN_NK];
#pragma unroll
    for (int a = 0; a < CLATTN_NK; ++a) {
      /* keys past the last one repeat it: whatever comes out is excluded */
      row[a] = k + clattn_kv_row(&p->k, t->b, t->h / p->group, min(j0 + j + a, t->entry.k_len - 1)) + d0 * p->k.element;
#pragma unroll
      for (int m = 0; m < CLATTN_MQ; ++m)
        acc[a][m] = (clattn_v)(0.0f);
    }
    for (int d = 0; d < dims; ++d) {
      clattn_v x[CLATTN_MQ];
#pragma unroll
      for (int m = 0; m < CLATTN_MQ; ++m)
        x[m] = CLATTN_VLOAD(queries + d * CLATTN_ROWS + m * CLATTN_LANES);
#pragma unroll
      for (int a = 0; a < CLATTN_NK; ++a) {
        const clattn_v y = (clattn_v)(row[a][d * p->k.element]);
#pragma unroll
        for (int m = 0; m < CLATTN_MQ; ++m)
          acc[a][m] = fma(x[m], y, acc[a][m]);
      }
    }
#pragma unroll
    for (int a = 0; a < CLATTN_NK; ++a)
#pragma unroll
      for (int m = 0; m < CLATTN_MQ; ++m) {
        float *at = block + (j + a) * CLATTN_ROWS + m * CLATTN_LANES;
        CLATTN_VSTORE(d0 ? CLATTN_VLOAD(at) + acc[a][m] : acc[a][m], at);
      }
  }
}

/* Raw products of a block, over the whole head dimension. */
static inline void clattn_products(const clattn_params *p, __global const float *q, __global const float *k,
                                   const clattn_tile *t, int j0, int keys, float *queries, float *block) {
  for (int d0 = 0; d0 < p->qk_dim; d0 += CLATTN_DIM) {
    const int dims = min(p->qk_dim - d0, CLATTN_DIM);
    if (p->qk_dim > CLATTN_DIM) /* else they were loaded once for all blocks */
      clattn_load_queries(p, q, t, d0, dims, queries);
    clattn_dot_block(p, k, t, queries, d0, dims, j0, keys, block);
  }
}

/* What is added to, or forbidden for, a vector of rows at key j. */
static inline clattn_v clattn_bias_lanes(const clattn_params *p, __global const float *bias, const long *rows, int j) {
  float x[CLATTN_LANES];
  for (int l = 0; l < CLATTN_LANES; ++l)
    x[l] = bias[rows[l] + j * p->bias.element];
  return CLATTN_VLOAD(x);
}

static inline clattn_vi clattn_mask_lanes(const clattn_params *p, __global const uchar *mask, const long *rows, int j) {
  float x[CLATTN_LANES];
  for (int l = 0; l < CLATTN_LANES; ++l)
    x[l] = clattn_mask_keeps(p, mask, rows[l], j) ? 1.0f : 0.0f;
  return CLATTN_VLOAD(x) != (clattn_v)(0.0f);
}

/* The tensors that scores depend on, and what else their computation feeds. */
typedef struct clattn_score_tensors {
  __global const float *k, *bias;
  __global const uchar *mask;
  __global float *out; /* the caller's scores */
  int stage;           /* written to out; CLATTN_SCORES_NONE: nothing */
} clattn_score_tensors;

/* Final scores of keys j0 .. j0 + keys - 1 (-inf = excluded), from the raw products in block.  top: running maximum per row;
 * logit: running maximum of raw scores over kept pairs. */
static inline void clattn_finish_scores(const clattn_params *p, const clattn_score_tensors *in, const clattn_tile *t,
                                        int j0, int keys, float *block, clattn_v top[CLATTN_MQ],
                                        clattn_v logit[CLATTN_MQ]) {
  const int edge = j0 < t->all_lo || j0 + keys > t->all_hi || t->first_row + CLATTN_ROWS > t->entry.q_len ||
                   (p->rules & (CLATTN_RULE_MASK_U8 | CLATTN_RULE_MASK_BITS));
  for (int x = 0; x < keys; ++x) {
    const int j = j0 + x;
    for (int m = 0; m < CLATTN_MQ; ++m) {
      float *at = block + x * CLATTN_ROWS + m * CLATTN_LANES;
      const clattn_v raw = CLATTN_VLOAD(at) * (clattn_v)(p->scale);
      clattn_v s = raw;
      if (p->softcap > 0.0f)
        s = clattn_softcap(raw, p->softcap);
      const clattn_v capped = s;
      if (p->rules & CLATTN_RULE_BIAS)
        s += clattn_bias_lanes(p, in->bias, t->bias + m * CLATTN_LANES, j);
      if (edge) {
        const clattn_vi lo = CLATTN_AS_VI(CLATTN_VLOAD((const float *)t->lo + m * CLATTN_LANES));
        const clattn_vi hi = CLATTN_AS_VI(CLATTN_VLOAD((const float *)t->hi + m * CLATTN_LANES));
        clattn_vi keep = (clattn_vi)(j) >= lo && (clattn_vi)(j) < hi;
        if (p->rules & (CLATTN_RULE_MASK_U8 | CLATTN_RULE_MASK_BITS))
          keep = keep && clattn_mask_lanes(p, in->mask, t->mask + m * CLATTN_LANES, j);
        s = keep ? s : (clattn_v)(-INFINITY);
      }
      if (p->rules & CLATTN_RULE_MAX_LOGIT)
        logit[m] = clattn_maximum_nan(logit[m], s == (clattn_v)(-INFINITY) ? s : raw);
      if (in->stage != CLATTN_SCORES_NONE) {
        clattn_v shown = in->stage == CLATTN_SCORES_RAW ? raw : in->stage == CLATTN_SCORES_SOFTCAP ? capped : s;
        clattn_store_scores(p, in->out, t, m, j, shown, -INFINITY);
      }
      top[m] = clattn_maximum(top[m], s);
      CLATTN_VSTORE(s, at);
    }
  }
}

/* The largest of all lanes, NaN if there is one. */
static inline float clattn_lanes_maximum_nan(const clattn_v v[CLATTN_MQ]) {
  float x[CLATTN_LANES], best = -INFINITY;
  for (int m = 0; m < CLATTN_MQ; ++m) {
    CLATTN_VSTORE(v[m], x);
    for (int l = 0; l < CLATTN_LANES; ++l)
      best = clattn_larger_nan(best, x[l]);
  }
  return best;
}

#endif
