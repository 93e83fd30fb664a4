/* SPDX-License-Identifier: Apache-2.0 */
/* A tile of query rows in a work-group: what the GPU families share.
 *
 * Work-groups of CLATTN_GX x CLATTN_GY items compute tiles of 8 GY rows and 4 GX columns through local memory, an
 * item 8 rows x 4 columns of it in registers (columns GX apart, so that neighbours touch neighbouring addresses).
 * Products step CLATTN_STEP along the axis they sum over.
 *
 * No barrier stands under a condition, and a loop that holds one runs at least once (do ... while): around a barrier
 * that may be skipped, CPU implementations that split kernels at barriers copy all the code that follows. */
#ifndef CLATTN_GROUP_TILE_CL_H
#define CLATTN_GROUP_TILE_CL_H

#include "params.cl.h"
#include "lanes.cl.h"
#include "dtype.cl.h"
#include "inputs.cl.h"
#include "softmax.cl.h"
#include "mask.cl.h"
#include "kv.cl.h"
#include "tile.cl.h"
#include "hook.cl.h"
#include "similarity.cl.h"

#ifndef CLATTN_GX
#define CLATTN_GX 16
#endif
#ifndef CLATTN_GY
#define CLATTN_GY 8
#endif
#define CLATTN_ITEMS (CLATTN_GX * CLATTN_GY)
#define CLATTN_ROWS (8 * CLATTN_GY)
#define CLATTN_COLUMNS (4 * CLATTN_GX)
#define CLATTN_STEP 16
#define CLATTN_PAD 1 /* odd pitch: the transposing stores of one column fall into different banks */

/* For loops with long bodies, which compilers unroll for no gain. */
#define CLATTN_ROLLED _Pragma("unroll 1")

#define CLATTN_TILE_KERNEL __attribute__((reqd_work_group_size(CLATTN_GX, CLATTN_GY, 1))) __kernel
#define CLATTN_ROW_KERNEL __attribute__((reqd_work_group_size(CLATTN_ITEMS, 1, 1))) __kernel

/* A product.  With CLATTN_HALF_PRODUCTS (the problem allows it, the device has fp16, q, k and v are f16) it is
 * rounded to half before it joins the sum, which stays fp32; so are the softmax numerators that meet v. */
#ifdef CLATTN_HALF_PRODUCTS
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define CLATTN_MAD(a, b, c) ((c) + (float)((half)(a) * (half)(b)))
#else
#define CLATTN_MAD(a, b, c) fma(a, b, c)
#endif

/* The register block of one item: acc[r][c] += sum of a[x][row r] * b[x][column c] over one step. */
static inline void clattn_multiply_step(__local const float (*a)[CLATTN_ROWS + CLATTN_PAD],
                                        __local const float (*b)[CLATTN_COLUMNS + CLATTN_PAD], int gx, int gy,
                                        float acc[8][4]) {
#pragma unroll 4
  for (int x = 0; x < CLATTN_STEP; ++x) {
    float left[8], right[4];
#pragma unroll
    for (int r = 0; r < 8; ++r)
      left[r] = a[x][gy * 8 + r];
#pragma unroll
    for (int c = 0; c < 4; ++c)
      right[c] = b[x][c * CLATTN_GX + gx];
#pragma unroll
    for (int r = 0; r < 8; ++r)
#pragma unroll
      for (int c = 0; c < 4; ++c)
        acc[r][c] = CLATTN_MAD(left[r], right[c], acc[r][c]);
  }
}

/* Every row of a register block moves up by one, the first one to the end.  A loop that works on row 0 and turns need
 * not be unrolled, which with all the rules in its body would be a lot of code, and the block still stays in
 * registers. */
static inline void clattn_turn_rows(float acc[8][4]) {
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const float first = acc[0][c];
#pragma unroll
    for (int r = 0; r < 7; ++r)
      acc[r][c] = acc[r + 1][c];
    acc[7][c] = first;
  }
}

/* What only programs with rotary embedding have. */
#if CLATTN_ROPE
#define CLATTN_LINE(line) (line)
#else
#define CLATTN_LINE(line) 0
#endif

typedef __local float clattn_row_step[CLATTN_ROWS + CLATTN_PAD];
typedef __local float clattn_column_step[CLATTN_COLUMNS + CLATTN_PAD];

/* What products need of local memory, so that their kernels declare one thing. */
typedef struct clattn_scratch {
  float queries[CLATTN_STEP][CLATTN_ROWS + CLATTN_PAD];
#if CLATTN_COSINE
  clattn_norm q_norm[CLATTN_ROWS], k_norm[CLATTN_COLUMNS];
#endif
#if CLATTN_ROPE
  long q_line[CLATTN_ROWS], k_line[CLATTN_COLUMNS]; /* in the tables */
#endif
#if CLATTN_ADDITIVE
  float factors[CLATTN_STEP][CLATTN_ROWS + CLATTN_PAD]; /* w of each row's head */
#endif
} clattn_scratch;

/* Where row r of the tile starts in a tensor of query rows; a row past the end is the last one again. */
static inline long clattn_query_row(const clattn_params *p, const clattn_view *v, const clattn_unit *u, int r) {
  return clattn_row(v, u->b, clattn_unit_head(p, u, r),
                    (long)u->entry.q_start + clattn_real_row(u, clattn_unit_row(p, u, r)));
}

#if CLATTN_ADDITIVE
/* acc[r][c] += sum of w . tanh(q + k) over one step.  Rolled: tanh 32 times over is a lot of code. */
static inline void clattn_add_step(__local const clattn_scratch *s, const clattn_column_step *keys, int gx, int gy,
                                   float acc[8][4]) {
  CLATTN_ROLLED
  for (int r = 0; r < 8; ++r) {
    CLATTN_ROLLED
    for (int x = 0; x < CLATTN_STEP; ++x) {
      const float left = s->queries[x][gy * 8 + r], w = s->factors[x][gy * 8 + r];
#pragma unroll
      for (int c = 0; c < 4; ++c)
        acc[0][c] = fma(w, clattn_tanh(left + keys[x][c * CLATTN_GX + gx]), acc[0][c]);
    }
    clattn_turn_rows(acc);
  }
}
#endif

/* acc = similarity of q and k for the tile's rows and the keys of an interval of at most CLATTN_COLUMNS keys, over
 * the first `dims` elements; all items call it.  Keys past the last one are 0: whatever comes out is never used. */
static inline void clattn_products(const clattn_params *p, const clattn_inputs *in,
                                   __global const CLATTN_TYPE(CLATTN_Q) * q, const clattn_unit *u, clattn_interval j,
                                   int dims, int gx, int gy, __local clattn_scratch *s, clattn_column_step *keys,
                                   float acc[8][4]) {
  const int item = gy * CLATTN_GX + gx;
#pragma unroll
  for (int r = 0; r < 8; ++r)
#pragma unroll
    for (int c = 0; c < 4; ++c)
      acc[r][c] = 0.0f;
#if CLATTN_ROPE
  for (int r = item; r < CLATTN_ROWS; r += CLATTN_ITEMS)
    s->q_line[r] = clattn_line_of_query(p, in, u->b, u->entry, clattn_real_row(u, clattn_unit_row(p, u, r)));
  for (int c = item; c < CLATTN_COLUMNS && j.lo + c < j.hi; c += CLATTN_ITEMS)
    s->k_line[c] = clattn_line_of_key(p, in, u->kv, j.lo + c);
#endif
#if CLATTN_COSINE
  for (int r = item; r < CLATTN_ROWS; r += CLATTN_ITEMS)
    s->q_norm[r] = clattn_norm_of_q(p, in, q, clattn_query_row(p, &p->q, u, r), CLATTN_LINE(s->q_line[r]));
  for (int c = item; c < CLATTN_COLUMNS && j.lo + c < j.hi; c += CLATTN_ITEMS)
    s->k_norm[c] = clattn_norm_of_k(p, in, clattn_kv_row(p, &p->k, u->kv, j.lo + c),
                                    clattn_scales_of_key(p, u->kv, j.lo + c), CLATTN_LINE(s->k_line[c]));
#endif
#if CLATTN_COSINE || CLATTN_ROPE
  barrier(CLK_LOCAL_MEM_FENCE);
#endif
  int d0 = 0;
  do {
    /* neighbouring items read neighbouring elements of a row */
    for (int x = item; x < CLATTN_ROWS * CLATTN_STEP; x += CLATTN_ITEMS) {
      const int d = d0 + x % CLATTN_STEP, r = x / CLATTN_STEP;
      float y =
          d < dims ? clattn_q_element(p, in, q, clattn_query_row(p, &p->q, u, r), CLATTN_LINE(s->q_line[r]), d) : 0.0f;
#if CLATTN_COSINE
      y = clattn_normed(s->q_norm[r], y);
#endif
      s->queries[x % CLATTN_STEP][r] = y;
#if CLATTN_ADDITIVE
      s->factors[x % CLATTN_STEP][r] =
          d < dims ? in->add_w[p->add_w_first + clattn_unit_head(p, u, r) * p->add_w_head + d * p->add_w_element]
                   : 0.0f;
#endif
    }
    for (int x = item; x < CLATTN_COLUMNS * CLATTN_STEP; x += CLATTN_ITEMS) {
      const int d = d0 + x % CLATTN_STEP, c = x / CLATTN_STEP;
      float y = 0.0f;
      if (d < dims && j.lo + c < j.hi) {
        y = clattn_k_element(p, in, clattn_kv_row(p, &p->k, u->kv, j.lo + c), clattn_scales_of_key(p, u->kv, j.lo + c),
                             CLATTN_LINE(s->k_line[c]), d);
#if CLATTN_COSINE
        y = clattn_normed(s->k_norm[c], y);
#endif
      }
      keys[x % CLATTN_STEP][c] = y;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#if CLATTN_ADDITIVE
    clattn_add_step(s, keys, gx, gy, acc);
#else
    clattn_multiply_step(s->queries, keys, gx, gy, acc);
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
    d0 += CLATTN_STEP;
  } while (d0 < dims);
}

/* An element of v. */
static inline float clattn_value(const clattn_params *p, __global const CLATTN_TYPE(CLATTN_V) * v, const clattn_unit *u,
                                 int j, int d CLATTN_V_SCALE_ARG) {
  const float x = CLATTN_LOAD(CLATTN_V)(v, clattn_kv_row(p, &p->v, u->kv, j) + d * p->v.element);
#if CLATTN_IS_QUANTISED(CLATTN_V)
  return x * clattn_v_scale(p, v_scale, clattn_kv_row(p, &p->v_scale, u->kv, j), d);
#else
  return x;
#endif
}

/* What the scores of one row depend on.  Rows past the last one keep no key. */
typedef struct clattn_row_rules {
  int i, h, lo, hi;
  long at;                 /* position */
  long bias, mask, blocks; /* where its lines start */
  float factor, slope;     /* of the head */
} clattn_row_rules;

/* Of row r of the tile. */
static inline clattn_row_rules clattn_rules_of(const clattn_params *p, const clattn_inputs *in, const clattn_unit *u,
                                               int r) {
  clattn_row_rules row;
  row.i = clattn_unit_row(p, u, r);
  row.h = clattn_unit_head(p, u, r);
  row.lo = clattn_row_lo(p, u->entry, row.i);
  row.hi = clattn_row_hi(p, u->entry, row.i);
  row.at = row.i + u->entry.offset;
  row.bias = clattn_row(&p->bias, u->b, row.h, row.i);
  row.mask = clattn_row(&p->mask, u->b, row.h, row.i);
  row.blocks = p->rules & CLATTN_RULE_BLOCK_MASK ? clattn_row(&p->blocks, u->b, row.h, row.i / p->block_q) : 0;
  row.slope = p->rules & CLATTN_RULE_ALIBI ? in->slopes[clattn_of_head(&p->slopes, u->b, row.h)] : 0.0f;
  row.factor =
      p->rules & CLATTN_RULE_HEAD_SCALE ? in->head_scale[p->head_scale_first + row.h * p->head_scale_head] : 1.0f;
  return row;
}

/* A score on its way; final = -inf: excluded. */
typedef struct clattn_pair_score {
  float raw, capped, final;
} clattn_pair_score;

/* The score of a row and key j from their product.  j may be past the last key: it is excluded then. */
static inline clattn_pair_score clattn_finish_score(const clattn_params *p, const clattn_inputs *in,
                                                    const clattn_unit *u, clattn_row_rules row, int j, float product) {
  clattn_pair_score s;
  (void)u; /* for hooks */
  s.raw = product * in->scale;
  if (p->rules & CLATTN_RULE_HEAD_SCALE)
    s.raw *= row.factor;
  s.capped = clattn_softcap(s.raw, in->softcap);
  s.final = -INFINITY;
  if (j >= row.lo && j < row.hi && clattn_mask_keeps(p, in->mask, row.mask, j) &&
      clattn_block_keeps(p, in->blocks, row.blocks, j)) {
    s.final = p->rules & CLATTN_RULE_BIAS
                  ? s.capped + CLATTN_LOAD(CLATTN_BIAS)(in->bias, row.bias + j * p->bias.element)
                  : s.capped;
    if (p->rules & CLATTN_RULE_ALIBI)
      s.final = clattn_alibi(s.final, row.slope, (float)(j - row.at), p->rules & CLATTN_RULE_SYMMETRIC);
#if CLATTN_HOOKED
    s.final = clattn_hooked_score(in, u, row.h, row.i, j, s.final);
#endif
  }
  return s;
}

/* Running maximum of raw scores over kept pairs. */
static inline float clattn_best_of(float best, clattn_pair_score s) {
  return s.final != -INFINITY ? clattn_maximum_nan(best, s.raw) : best;
}

/* What the caller gets to see of a score at a stage before the softmax. */
static inline float clattn_shown_score(clattn_pair_score s, int stage, clattn_entry entry, int i, int j) {
  const float shown = stage == CLATTN_SCORES_RAW ? s.raw : stage == CLATTN_SCORES_SOFTCAP ? s.capped : s.final;
  return i < entry.q_len && j < entry.k_len ? shown : -INFINITY;
}

/* The keys j0 .. j0 + CLATTN_COLUMNS - 1, those whose scores must be computed: none if no row sees any, all real ones
 * where the caller gets scores of excluded keys too. */
static inline clattn_interval clattn_chunk_keys(const clattn_params *p, __global const uint *blocks,
                                                const clattn_unit *u, int j0) {
  const int all_pairs = p->stage == CLATTN_SCORES_RAW || p->stage == CLATTN_SCORES_SOFTCAP;
  clattn_interval keys = {max(j0, all_pairs ? 0 : u->keys.lo),
                          min(j0 + CLATTN_COLUMNS, all_pairs ? u->entry.k_len : u->keys.hi)};
  if (!all_pairs && keys.lo < keys.hi)
    keys = clattn_next_keys(p, blocks, u, keys.lo, keys.hi, CLATTN_COLUMNS);
  if (keys.lo < keys.hi) { /* columns stand for j0 + column */
    keys.lo = j0;
    keys.hi = min(j0 + CLATTN_COLUMNS, u->entry.k_len);
  }
  return keys;
}

#endif
