/* SPDX-License-Identifier: Apache-2.0 */
/* A tile of query rows in a work-group: what the GPU families share.
 *
 * Work-groups of CLATTN_GX x CLATTN_GY items compute tiles of 8 GY rows and 4 GX columns through local memory, an item 8 rows
 * x 4 columns of it in registers (columns GX apart, so that neighbours touch neighbouring addresses).  Products step
 * CLATTN_STEP along the axis they sum over.  No item leaves a loop that holds a barrier before the others.
 *
 * Such a loop runs at least once where it can be written so (do ... while): around a loop that may be skipped, CPU
 * implementations that split kernels at barriers copy all the code that follows. */
#ifndef CLATTN_GROUP_TILE_CL_H
#define CLATTN_GROUP_TILE_CL_H

#include "params.cl.h"
#include "lanes.cl.h"
#include "softmax.cl.h"
#include "mask.cl.h"
#include "kv.cl.h"

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
#define CLATTN_ROLLED __attribute__((opencl_unroll_hint(1)))

#define CLATTN_TILE_KERNEL __attribute__((reqd_work_group_size(CLATTN_GX, CLATTN_GY, 1))) __kernel
#define CLATTN_ROW_KERNEL __attribute__((reqd_work_group_size(CLATTN_ITEMS, 1, 1))) __kernel

typedef struct clattn_tile {
  int b, h, first_row;
  clattn_entry entry;
  clattn_interval keys;
} clattn_tile;

static inline clattn_tile clattn_tile_of(const clattn_params *p, __global const int *lengths, int id) {
  clattn_tile t;
  const int bh = id / p->tiles_per_head;
  t.b = bh / p->q_heads;
  t.h = bh % p->q_heads;
  t.first_row = id % p->tiles_per_head * CLATTN_ROWS;
  t.entry = clattn_entry_of(p, lengths, t.b);
  t.keys = clattn_tile_interval(p, t.entry, t.first_row, CLATTN_ROWS);
  return t;
}

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
        acc[r][c] = fma(left[r], right[c], acc[r][c]);
  }
}

typedef __local float clattn_row_step[CLATTN_ROWS + CLATTN_PAD];
typedef __local float clattn_column_step[CLATTN_COLUMNS + CLATTN_PAD];

/* acc = q . k for the tile's rows and the keys j0 .. j0 + CLATTN_COLUMNS - 1; all items call it.  Rows past
 * the last one repeat it and keys past the last one are 0: whatever comes out is never used. */
static inline void clattn_products(const clattn_params *p, __global const float *q, __global const float *k,
                                   clattn_tile t, int j0, int gx, int gy, clattn_row_step *queries,
                                   clattn_column_step *keys, float acc[8][4]) {
  const int item = gy * CLATTN_GX + gx;
#pragma unroll
  for (int r = 0; r < 8; ++r)
#pragma unroll
    for (int c = 0; c < 4; ++c)
      acc[r][c] = 0.0f;
  int d0 = 0;
  do {
    /* neighbouring items read neighbouring elements of a row */
    for (int x = item; x < CLATTN_ROWS * CLATTN_STEP; x += CLATTN_ITEMS) {
      const int d = d0 + x % CLATTN_STEP, r = x / CLATTN_STEP;
      const long at = clattn_row(&p->q, t.b, t.h, min(t.first_row + r, p->q_len - 1));
      queries[x % CLATTN_STEP][r] = d < p->qk_dim ? q[at + d * p->q.element] : 0.0f;
    }
    for (int x = item; x < CLATTN_COLUMNS * CLATTN_STEP; x += CLATTN_ITEMS) {
      const int d = d0 + x % CLATTN_STEP, c = x / CLATTN_STEP;
      const long at = clattn_kv_row(&p->k, t.b, t.h / p->group, j0 + c);
      keys[x % CLATTN_STEP][c] = d < p->qk_dim && j0 + c < t.entry.k_len ? k[at + d * p->k.element] : 0.0f;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    clattn_multiply_step(queries, keys, gx, gy, acc);
    barrier(CLK_LOCAL_MEM_FENCE);
    d0 += CLATTN_STEP;
  } while (d0 < p->qk_dim);
}

/* What the scores of one row depend on.  Rows past the last one keep no key. */
typedef struct clattn_row_rules {
  int i, lo, hi;
  long bias, mask, out; /* where the row starts */
} clattn_row_rules;

static inline clattn_row_rules clattn_rules_of(const clattn_params *p, clattn_tile t, int i) {
  clattn_row_rules row;
  row.i = i;
  row.lo = clattn_row_lo(p, t.entry, i);
  row.hi = clattn_row_hi(p, t.entry, i);
  row.bias = clattn_row(&p->bias, t.b, t.h, i);
  row.mask = clattn_row(&p->mask, t.b, t.h, i);
  row.out = clattn_row(&p->scores, t.b, t.h, i);
  return row;
}

/* A score on its way; final = -inf: excluded. */
typedef struct clattn_score {
  float raw, capped, final;
} clattn_score;

/* The score of a row and key j from their product.  j may be past the last key: it is excluded then. */
static inline clattn_score clattn_finish_score(const clattn_params *p, __global const float *bias,
                                               __global const uchar *mask, clattn_row_rules row, int j, float product) {
  clattn_score s;
  s.raw = product * p->scale;
  s.capped = clattn_softcap(s.raw, p->softcap);
  s.final = -INFINITY;
  if (j >= row.lo && j < row.hi && clattn_mask_keeps(p, mask, row.mask, j))
    s.final = p->rules & CLATTN_RULE_BIAS ? s.capped + bias[row.bias + j * p->bias.element] : s.capped;
  return s;
}

/* Running maximum of raw scores over kept pairs. */
static inline float clattn_best_of(float best, clattn_score s) {
  return s.final != -INFINITY ? clattn_maximum_nan(best, s.raw) : best;
}

/* What the caller gets to see of a score at a stage before the softmax. */
static inline float clattn_shown_score(clattn_score s, int stage, clattn_entry entry, int i, int j) {
  const float shown = stage == CLATTN_SCORES_RAW ? s.raw : stage == CLATTN_SCORES_SOFTCAP ? s.capped : s.final;
  return i < entry.q_len && j < entry.k_len ? shown : -INFINITY;
}

/* Moves every row of a register block one up: a loop that finishes row 0 and shifts need not be unrolled, which with all
 * the rules in its body would be a lot of code, and the block still stays in registers. */
static inline void clattn_next_row(float acc[8][4]) {
#pragma unroll
  for (int r = 0; r < 7; ++r)
#pragma unroll
    for (int c = 0; c < 4; ++c)
      acc[r][c] = acc[r + 1][c];
}

/* The largest of all items' values, for item 0; NaN if there is one. */
static inline float clattn_group_maximum_nan(float best, int item, __local float *best_of) {
  best_of[item] = best;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int x = 1; item == 0 && x < CLATTN_ITEMS; ++x)
    best = clattn_maximum_nan(best, best_of[x]);
  return best;
}

#endif
