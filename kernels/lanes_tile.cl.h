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
#include "tile.cl.h"

#ifndef CLATTN_MQ
#define CLATTN_MQ 3
#endif
#ifndef CLATTN_NK
#define CLATTN_NK 4
#endif
#ifndef CLATTN_ND
#define CLATTN_ND 4
#endif
#ifndef CLATTN_DIM /* head dimensions (of q and k, and of v) whose tile is in private memory at a time */
#define CLATTN_DIM 1024
#endif
#define CLATTN_ROWS (CLATTN_MQ * CLATTN_LANES)

#if defined(__clang__) && CLATTN_LANES == 16
#define CLATTN_CPU_KERNEL __attribute__((min_vector_width(512))) __attribute__((reqd_work_group_size(1, 1, 1))) __kernel
#else
#define CLATTN_CPU_KERNEL __attribute__((reqd_work_group_size(1, 1, 1))) __kernel
#endif

/* The tensors that scores depend on, and what else their computation feeds. */
typedef struct clattn_score_tensors {
  __global const float *k, *bias;
  __global const uchar *mask;
  __global const uint *blocks;
  __global float *out; /* the caller's scores */
  int stage;           /* written to out; CLATTN_SCORES_NONE: nothing */
  float scale, softcap;
} clattn_score_tensors;

/* Which rows a work-item computes, and which keys they see. */
typedef struct clattn_tile {
  clattn_unit u;
  int all_lo, all_hi;                        /* seen by every row, masks apart; empty if rows are missing */
  int i[CLATTN_ROWS], h[CLATTN_ROWS];        /* query row and head of each lane */
  int lo[CLATTN_ROWS], hi[CLATTN_ROWS];      /* keys that it sees */
  long bias[CLATTN_ROWS], mask[CLATTN_ROWS]; /* where its bias, mask and line of the block mask start */
  long blocks[CLATTN_ROWS];
  float slope[CLATTN_ROWS], sink[CLATTN_ROWS];
} clattn_tile;

static inline void clattn_tile_open(const clattn_params *p, __global const int *entries, __global const int *table,
                                    __global const float *slopes, __global const float *sinks, int id, clattn_tile *t) {
  t->u = clattn_unit_of(p, entries, table, id);
  t->all_lo = 0;
  t->all_hi = t->u.entry.k_len;
  for (int lane = 0; lane < CLATTN_ROWS; ++lane) {
    const int i = clattn_unit_row(p, &t->u, lane), h = clattn_unit_head(p, &t->u, lane), b = t->u.b;
    const int real = clattn_real_row(&t->u, i); /* rows past the end are computed, never written */
    t->i[lane] = i;
    t->h[lane] = h;
    t->lo[lane] = clattn_row_lo(p, t->u.entry, i);
    t->hi[lane] = clattn_row_hi(p, t->u.entry, i);
    t->bias[lane] = clattn_row(&p->bias, b, h, real);
    t->mask[lane] = clattn_row(&p->mask, b, h, real);
    t->blocks[lane] = p->rules & CLATTN_RULE_BLOCK_MASK ? clattn_row(&p->blocks, b, h, real / p->block_q) : 0;
    t->slope[lane] = p->rules & CLATTN_RULE_ALIBI ? slopes[clattn_of_head(&p->slopes, b, h)] : 0.0f;
    t->sink[lane] = p->rules & CLATTN_RULE_SINK ? sinks[clattn_of_head(&p->sink, b, h)] : -INFINITY;
    if (i < t->u.entry.q_rows) {
      t->all_lo = max(t->all_lo, t->lo[lane]);
      t->all_hi = min(t->all_hi, t->hi[lane]);
    }
  }
}

/* Whether a lane's row exists, and where it starts in a tensor of query rows. */
static inline int clattn_lane_exists(const clattn_tile *t, int lane) {
  return t->i[lane] < t->u.entry.q_rows;
}

static inline long clattn_lane_row(const clattn_view *v, const clattn_tile *t, int lane) {
  return clattn_row(v, t->u.b, t->h[lane], (long)t->u.entry.q_start + clattn_real_row(&t->u, t->i[lane]));
}

/* Transposes the tile's rows of q, `dims` elements from d0 on: queries[d][lane]. */
static inline void clattn_load_queries(const clattn_params *p, __global const float *q, const clattn_tile *t, int d0,
                                       int dims, float *queries) {
  for (int lane = 0; lane < CLATTN_ROWS; ++lane) {
    __global const float *from = q + clattn_lane_row(&p->q, t, lane) + d0 * p->q.element;
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
    const int lane = m * CLATTN_LANES + l, i = t->i[lane];
    if (i < p->q_len)
      scores[clattn_row(&p->scores, t->u.b, t->h[lane], i) + j * p->scores.element] =
          i < t->u.entry.q_len ? x[l] : beyond;
  }
}

/* Where rows j0 .. j0 + keys - 1 of k or v start, and up to the next multiple of CLATTN_NK the last one again: whatever is
 * computed of the repeated ones is excluded. */
typedef long clattn_key_rows[CLATTN_KEY_BLOCK + CLATTN_NK];

static inline void clattn_find_rows(const clattn_params *p, const clattn_view *v, const clattn_tile *t, int j0,
                                    int keys, long *rows) {
  if (p->page_size > 0)
    for (int x = 0; x < keys + CLATTN_NK - 1; ++x)
      rows[x] = clattn_kv_row(p, v, t->u.kv, j0 + min(x, keys - 1));
  else {
    const long first = clattn_kv_row(p, v, t->u.kv, j0);
    for (int x = 0; x < keys + CLATTN_NK - 1; ++x)
      rows[x] = first + min(x, keys - 1) * v->row;
  }
}

/* block[key][lane] += q . k over `dims` elements from d0 on, for `keys` keys, rounded up to CLATTN_NK. */
static inline void clattn_dot_block(const clattn_params *p, __global const float *k, const long *rows,
                                    const float *queries, int d0, int dims, int keys, float *block) {
  for (int j = 0; j < keys; j += CLATTN_NK) {
    clattn_v acc[CLATTN_NK][CLATTN_MQ];
    __global const float *row[CLATTN_NK];
#pragma unroll
    for (int a = 0; a < CLATTN_NK; ++a) {
      row[a] = k + rows[j + a] + d0 * p->k.element;
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
  clattn_key_rows rows;
  clattn_find_rows(p, &p->k, t, j0, keys, rows);
  for (int d0 = 0; d0 < p->qk_dim; d0 += CLATTN_DIM) {
    const int dims = min(p->qk_dim - d0, CLATTN_DIM);
    if (p->qk_dim > CLATTN_DIM) /* else they were loaded once for all blocks */
      clattn_load_queries(p, q, t, d0, dims, queries);
    clattn_dot_block(p, k, rows, queries, d0, dims, keys, block);
  }
}

/* What is added to, or forbidden for, a vector of rows at key j. */
static inline clattn_v clattn_bias_lanes(const clattn_params *p, __global const float *bias, const long *rows, int j) {
  float x[CLATTN_LANES];
  for (int l = 0; l < CLATTN_LANES; ++l)
    x[l] = bias[rows[l] + j * p->bias.element];
  return CLATTN_VLOAD(x);
}

static inline clattn_vi clattn_mask_lanes(const clattn_params *p, const clattn_score_tensors *in, const clattn_tile *t,
                                          int first, int j) {
  float x[CLATTN_LANES];
  for (int l = 0; l < CLATTN_LANES; ++l)
    x[l] = clattn_mask_keeps(p, in->mask, t->mask[first + l], j) &&
                   clattn_block_keeps(p, in->blocks, t->blocks[first + l], j)
               ? 1.0f
               : 0.0f;
  return CLATTN_VLOAD(x) != (clattn_v)(0.0f);
}

/* Final scores of keys j0 .. j0 + keys - 1 (-inf = excluded), from the raw products in block.  top: running maximum per row;
 * logit: running maximum of raw scores over kept pairs. */
static inline void clattn_finish_scores(const clattn_params *p, const clattn_score_tensors *in, const clattn_tile *t,
                                        int j0, int keys, float *block, clattn_v top[CLATTN_MQ],
                                        clattn_v logit[CLATTN_MQ]) {
  const int masks = p->rules & (CLATTN_RULE_MASK_U8 | CLATTN_RULE_MASK_BITS | CLATTN_RULE_BLOCK_MASK);
  const int edge = masks || j0 < t->all_lo || j0 + keys > t->all_hi || !clattn_lane_exists(t, CLATTN_ROWS - 1);
  float from[CLATTN_ROWS]; /* position of key j0 relative to each row's */
  for (int lane = 0; lane < CLATTN_ROWS; ++lane)
    from[lane] = (float)(j0 - (t->i[lane] + t->u.entry.offset));
  for (int x = 0; x < keys; ++x) {
    const int j = j0 + x;
    for (int m = 0; m < CLATTN_MQ; ++m) {
      float *at = block + x * CLATTN_ROWS + m * CLATTN_LANES;
      const clattn_v raw = CLATTN_VLOAD(at) * (clattn_v)(in->scale);
      clattn_v s = raw;
      if (in->softcap > 0.0f)
        s = clattn_softcap(raw, in->softcap);
      const clattn_v capped = s;
      if (p->rules & CLATTN_RULE_BIAS)
        s += clattn_bias_lanes(p, in->bias, t->bias + m * CLATTN_LANES, j);
      if (p->rules & CLATTN_RULE_ALIBI)
        s = clattn_alibi(s, CLATTN_VLOAD(t->slope + m * CLATTN_LANES),
                         CLATTN_VLOAD(from + m * CLATTN_LANES) + (clattn_v)((float)x),
                         p->rules & CLATTN_RULE_SYMMETRIC);
      if (edge) {
        const clattn_vi lo = CLATTN_AS_VI(CLATTN_VLOAD((const float *)t->lo + m * CLATTN_LANES));
        const clattn_vi hi = CLATTN_AS_VI(CLATTN_VLOAD((const float *)t->hi + m * CLATTN_LANES));
        clattn_vi keep = (clattn_vi)(j) >= lo && (clattn_vi)(j) < hi;
        if (masks)
          keep = keep && clattn_mask_lanes(p, in, t, m * CLATTN_LANES, j);
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

/* Writes a number of each row: lse, or its maximum in the workspace. */
static inline void clattn_store_rows(const clattn_view *v, const clattn_tile *t, __global float *to, int m,
                                     clattn_v s) {
  float x[CLATTN_LANES];
  CLATTN_VSTORE(s, x);
  for (int l = 0; l < CLATTN_LANES; ++l)
    if (clattn_lane_exists(t, m * CLATTN_LANES + l))
      to[clattn_lane_row(v, t, m * CLATTN_LANES + l)] = x[l];
}

#endif
