/* SPDX-License-Identifier: Apache-2.0 */
/* The three-step pipeline for GPUs, and for any other device: scores, softmax, weighted sum, each a kernel of tiles
 * (group_tile.cl.h).  In the workspace a tile of scores is [row][key]. */
#include "group_tile.cl.h"

#define CLATTN_SUM_BLOCK 64 /* terms of the weighted sum added up before they join the total */

/* Step 1.  Scores of a tile of rows and a chunk of keys: s = the final score, -inf = excluded.
 * Grid: (key chunk * GX, tile * GY), a chunk is one tile wide. */
CLATTN_TILE_KERNEL void scores(const clattn_params p, const clattn_round round, __global const float *restrict q,
                               __global const float *restrict k, __global const float *restrict bias,
                               __global const uchar *restrict mask, __global const int *restrict lengths,
                               __global float *restrict work, __global float *restrict out) {
  __local float queries[CLATTN_STEP][CLATTN_ROWS + CLATTN_PAD];
  __local float keys[CLATTN_STEP][CLATTN_COLUMNS + CLATTN_PAD];
  __local float best_of[CLATTN_ITEMS];
  const int gx = get_local_id(0), gy = get_local_id(1), item = gy * CLATTN_GX + gx;
  const int chunk = get_group_id(0), in_round = get_group_id(1);
  const clattn_tile t = clattn_tile_of(&p, lengths, round.first_tile + in_round);
  const int j0 = chunk * CLATTN_COLUMNS;
  const int to_user = p.stage >= CLATTN_SCORES_RAW && p.stage <= CLATTN_SCORES_MASKED;
  const int all_pairs = p.stage == CLATTN_SCORES_RAW || p.stage == CLATTN_SCORES_SOFTCAP;
  const int first = all_pairs ? 0 : t.keys.lo;
  const int end = all_pairs ? t.entry.k_len : t.keys.hi;
  const int needed = j0 < end && j0 + CLATTN_COLUMNS > first; /* the same for the whole work-group */
  float best = -INFINITY;

  if (needed) {
    float acc[8][4];
    clattn_products(&p, q, k, t, j0, gx, gy, queries, keys, acc);
    __global float *tile = work + p.scores_first + (long)in_round * p.k_stored * CLATTN_ROWS;
    CLATTN_ROLLED
    for (int r = 0; r < 8; ++r) {
      const clattn_row_rules row = clattn_rules_of(&p, t, t.first_row + gy * 8 + r);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int j = j0 + c * CLATTN_GX + gx;
        if (j < p.k_len) {
          const clattn_score s = clattn_finish_score(&p, bias, mask, row, j, acc[0][c]);
          tile[(long)(gy * 8 + r) * p.k_stored + j] = s.final;
          best = clattn_best_of(best, s);
          if (to_user && row.i < p.q_len)
            out[row.out + j * p.scores.element] = clattn_shown_score(s, p.stage, t.entry, row.i, j);
        }
      }
      clattn_next_row(acc);
    }
  } else if (to_user) { /* what was not computed is excluded */
    for (int x = item; x < CLATTN_ROWS * CLATTN_COLUMNS; x += CLATTN_ITEMS) {
      const int i = t.first_row + x / CLATTN_COLUMNS, j = j0 + x % CLATTN_COLUMNS;
      if (i < p.q_len && j < p.k_len)
        out[clattn_row(&p.scores, t.b, t.h, i) + j * p.scores.element] = -INFINITY;
    }
  }

  if (p.rules & CLATTN_RULE_MAX_LOGIT) {
    best = clattn_group_maximum_nan(best, item, best_of);
    if (item == 0) {
      work[p.partial_first + (long)in_round * p.key_chunks + chunk] = best;
    }
  }
}

/* Step 2.  Row-wise softmax, a work-group per row: scores become numerators exp(s - m), their sum goes to the statistics,
 * lse to the caller.  Weights for the caller are numerator / sum.  Grid: (items, row of the round). */
CLATTN_ROW_KERNEL void softmax(const clattn_params p, const clattn_round round, __global const int *restrict lengths,
                               __global float *restrict work, __global float *restrict lse,
                               __global float *restrict out) {
  __local float partial[CLATTN_ITEMS];
  const int item = get_local_id(0), in_round = get_group_id(1);
  const clattn_tile t = clattn_tile_of(&p, lengths, round.first_tile + in_round / CLATTN_ROWS);
  const int i = t.first_row + in_round % CLATTN_ROWS;

  if (i < p.q_len) { /* the same for the whole work-group */
    const int first = clattn_row_lo(&p, t.entry, i), end = clattn_row_hi(&p, t.entry, i);
    /* Neighbouring rows of the tile are summed over the tile's keys, so those this row does not see are marked too. */
    __global float *row = work + p.scores_first + (long)in_round * p.k_stored;

    float top = -INFINITY;
    for (int j = first + item; j < end; j += CLATTN_ITEMS)
      top = clattn_maximum(top, row[j]);
    partial[item] = top;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int width = CLATTN_ITEMS / 2; width > 0; width /= 2) {
      if (item < width)
        partial[item] = clattn_maximum(partial[item], partial[item + width]);
      barrier(CLK_LOCAL_MEM_FENCE);
    }
    top = partial[0];
    barrier(CLK_LOCAL_MEM_FENCE);

    float sum = 0.0f;
    for (int j = t.keys.lo + item; j < t.keys.hi; j += CLATTN_ITEMS) {
      const float e = clattn_numerator(row[j], top);
      row[j] = e;
      sum += e;
    }
    partial[item] = sum;
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE); /* the weights below read numerators that others wrote */
    for (int width = CLATTN_ITEMS / 2; width > 0; width /= 2) {
      if (item < width)
        partial[item] += partial[item + width];
      barrier(CLK_LOCAL_MEM_FENCE);
    }
    sum = partial[0];

    if (item == 0) {
      work[p.stats_first + in_round] = sum;
      if (p.rules & CLATTN_RULE_LSE)
        lse[clattn_row(&p.lse, t.b, t.h, i)] = sum == 0.0f ? -INFINITY : top + log(sum);
    }
    if (p.stage == CLATTN_SCORES_WEIGHTS) {
      const long at = clattn_row(&p.scores, t.b, t.h, i);
      for (int j = item; j < p.k_len; j += CLATTN_ITEMS) {
        float w = 0.0f;
        if (j >= first && j < end) {
          const float s = row[j];
          w = as_int(s) == CLATTN_EXCLUDED_BITS ? 0.0f : s / sum;
        }
        out[at + j * p.scores.element] = w;
      }
    }
  }
}

/* Step 3.  o = numerators . v / sum, for a tile of rows and of the value dimension.
 * Grid: (dim tile * GX, tile * GY). */
CLATTN_TILE_KERNEL void weighted_sum(const clattn_params p, const clattn_round round, __global const float *restrict v,
                                     __global const int *restrict lengths, __global const float *restrict work,
                                     __global float *restrict o) {
  __local float numerators[CLATTN_STEP][CLATTN_ROWS + CLATTN_PAD];
  __local float values[CLATTN_STEP][CLATTN_COLUMNS + CLATTN_PAD];
  const int gx = get_local_id(0), gy = get_local_id(1), item = gy * CLATTN_GX + gx;
  const int d0 = get_group_id(0) * CLATTN_COLUMNS, in_round = get_group_id(1);
  const clattn_tile t = clattn_tile_of(&p, lengths, round.first_tile + in_round);
  __global const float *tile = work + p.scores_first + (long)in_round * p.k_stored * CLATTN_ROWS;

  float total[8][4], acc[8][4];
#pragma unroll
  for (int r = 0; r < 8; ++r)
#pragma unroll
    for (int c = 0; c < 4; ++c)
      total[r][c] = acc[r][c] = 0.0f;

  for (int j0 = t.keys.lo; j0 < t.keys.hi; j0 += CLATTN_STEP) {
    for (int x = item; x < CLATTN_ROWS * CLATTN_STEP; x += CLATTN_ITEMS) {
      const int j = j0 + x % CLATTN_STEP, r = x / CLATTN_STEP;
      const int inside = j < t.keys.hi && t.first_row + r < p.q_len;
      numerators[x % CLATTN_STEP][r] = inside ? tile[(long)r * p.k_stored + j] : 0.0f;
    }
    for (int x = item; x < CLATTN_COLUMNS * CLATTN_STEP; x += CLATTN_ITEMS) {
      const int j = j0 + x / CLATTN_COLUMNS, d = d0 + x % CLATTN_COLUMNS;
      const int inside = j < t.keys.hi && d < p.v_dim;
      values[x / CLATTN_COLUMNS][x % CLATTN_COLUMNS] =
          inside ? v[clattn_kv_row(&p.v, t.b, t.h / p.group, j) + d * p.v.element] : 0.0f;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    clattn_multiply_step(numerators, values, gx, gy, acc);
    barrier(CLK_LOCAL_MEM_FENCE);
    /* Sums of sums: the rounding error of a long row grows with the number of blocks, not of keys. */
    if ((j0 - t.keys.lo) % CLATTN_SUM_BLOCK == CLATTN_SUM_BLOCK - CLATTN_STEP) {
#pragma unroll
      for (int r = 0; r < 8; ++r)
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          total[r][c] += acc[r][c];
          acc[r][c] = 0.0f;
        }
    }
  }

#pragma unroll
  for (int r = 0; r < 8; ++r) {
    const int i = t.first_row + gy * 8 + r;
    if (i < p.q_len) {
      const float sum = work[p.stats_first + (long)in_round * CLATTN_ROWS + gy * 8 + r];
      const long to = clattn_row(&p.o, t.b, t.h, i);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int d = d0 + c * CLATTN_GX + gx;
        if (d < p.v_dim) {
          float x = total[r][c] + acc[r][c];
          if (x != x && sum == sum && sum != 0.0f) {
            /* Once more without touching the values of excluded keys (0 * NaN is NaN). */
            x = 0.0f;
            for (int j = t.keys.lo; j < t.keys.hi; ++j) {
              const float w = tile[(long)(gy * 8 + r) * p.k_stored + j];
              if (as_int(w) != CLATTN_EXCLUDED_BITS)
                x = fma(w, v[clattn_kv_row(&p.v, t.b, t.h / p.group, j) + d * p.v.element], x);
            }
          }
          o[to + d * p.o.element] = sum == 0.0f ? 0.0f : x / sum;
        }
      }
    }
  }
}

#include "three_step_common.cl.h"
