/* SPDX-License-Identifier: Apache-2.0 */
/* The three-step pipeline for GPUs, and for any other device: scores, softmax, weighted sum, each a kernel of tiles
 * (group_tile.cl.h).  In the workspace a tile of scores is [row][key]. */
#include "group_tile.cl.h"

#define CLATTN_SUM_BLOCK 64 /* terms of the weighted sum added up before they join the total */

/* Step 1.  Scores of a tile of rows and a chunk of keys: s = the final score, -inf = excluded.
 * Grid: (key chunk * GX, tile * GY), a chunk is one tile wide. */
CLATTN_TILE_KERNEL void scores(const clattn_params p, const clattn_round round,
                               __global const CLATTN_TYPE(CLATTN_Q) *restrict q, __global const int *restrict table,
                               __global const int *restrict entries, __global float *restrict work,
                               __global CLATTN_TYPE(CLATTN_SCORES) *restrict out, CLATTN_SCORE_ARGS) {
  __local clattn_scratch scratch;
  __local float keys[CLATTN_STEP][CLATTN_COLUMNS + CLATTN_PAD];
  __local float best_of[CLATTN_GX][CLATTN_ROWS];
  const int gx = get_local_id(0), gy = get_local_id(1), item = gy * CLATTN_GX + gx;
  const int chunk = get_group_id(0), in_round = get_group_id(1);
  const clattn_unit u = clattn_unit_of(&p, entries, table, round.first_tile + in_round);
  CLATTN_COLLECT(in, p, work);
  const int j0 = chunk * CLATTN_COLUMNS;
  const int to_user = p.stage >= CLATTN_SCORES_RAW && p.stage <= CLATTN_SCORES_MASKED;
  const clattn_interval j = clattn_chunk_keys(&p, blocks, &u, j0); /* the same for the whole work-group */

  float acc[8][4];
  clattn_products(&p, &in, q, &u, j, j.lo < j.hi ? p.qk_dim : 0, gx, gy, &scratch, keys, acc);
  __global float *tile = work + CLATTN_REGION(&p, p.scores_at) + (long)in_round * p.k_stored * CLATTN_ROWS;
  CLATTN_ROLLED
  for (int r = 0; r < 8; ++r) {
    const clattn_row_rules row = clattn_rules_of(&p, &in, &u, gy * 8 + r);
    float best = -INFINITY;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int key = j0 + c * CLATTN_GX + gx;
      if (key < p.k_len) {
        const clattn_pair_score s = clattn_finish_score(&p, &in, &u, row, key, acc[0][c]);
        tile[(long)(gy * 8 + r) * p.k_stored + key] = s.final;
        best = clattn_best_of(best, s);
        if (to_user && row.i < p.q_len)
          CLATTN_STORE(CLATTN_SCORES)
        (out, clattn_row(&p.scores, u.b, row.h, row.i) + key * p.scores.element,
         clattn_shown_score(s, p.stage, u.entry, row.i, key));
      }
    }
    best_of[gx][gy * 8 + r] = best;
    clattn_turn_rows(acc);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int r = item; r < CLATTN_ROWS && (p.rules & CLATTN_RULE_MAX_LOGIT); r += CLATTN_ITEMS) {
    float best = best_of[0][r];
    for (int x = 1; x < CLATTN_GX; ++x)
      best = clattn_maximum_nan(best, best_of[x][r]);
    work[CLATTN_REGION(&p, p.partial_at) + ((long)in_round * p.key_chunks + chunk) * CLATTN_ROWS + r] = best;
  }
}

/* Step 2.  Row-wise softmax, a work-group per row: scores become numerators exp(s - m); what they are divided by to
 * be weights goes to the statistics, lse to the caller.  Grid: (items, row of the round). */
CLATTN_ROW_KERNEL void softmax(const clattn_params p, const clattn_round round, __global const float *restrict sinks,
                               __global const int *restrict table, __global const int *restrict entries,
                               __global float *restrict work, __global float *restrict lse,
                               __global CLATTN_TYPE(CLATTN_SCORES) *restrict out) {
  __local float partial[CLATTN_ITEMS];
  const int item = get_local_id(0), in_round = get_group_id(1), r = in_round % CLATTN_ROWS;
  const clattn_unit u = clattn_unit_of(&p, entries, table, round.first_tile + in_round / CLATTN_ROWS);
  const int i = clattn_unit_row(&p, &u, r), h = clattn_unit_head(&p, &u, r);
  /* Neighbouring rows of the tile are summed over the tile's keys, so those this row does not see are marked too. */
  __global float *row = work + CLATTN_REGION(&p, p.scores_at) + (long)in_round * p.k_stored;

  /* These loops run as often for every item: of others, that start at `item`, one compiler was seen to lose the entry
   * test. */
  float top = -INFINITY;
  for (int j0 = u.keys.lo; j0 < u.keys.hi; j0 += CLATTN_ITEMS)
    if (j0 + item < u.keys.hi)
      top = clattn_maximum(top, row[j0 + item]);
  partial[item] = top;
  barrier(CLK_LOCAL_MEM_FENCE);
  int width = CLATTN_ITEMS / 2;
  do {
    if (item < width)
      partial[item] = clattn_maximum(partial[item], partial[item + width]);
    barrier(CLK_LOCAL_MEM_FENCE);
    width /= 2;
  } while (width > 0);
  top = partial[0];
  barrier(CLK_LOCAL_MEM_FENCE);

  float sum = 0.0f;
  for (int j0 = u.keys.lo; j0 < u.keys.hi; j0 += CLATTN_ITEMS)
    if (j0 + item < u.keys.hi) {
      const float e = clattn_numerator(row[j0 + item], top);
      row[j0 + item] = e;
      sum += e;
    }
  partial[item] = sum;
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE); /* the weights below read numerators that others wrote */
  width = CLATTN_ITEMS / 2;
  do {
    if (item < width)
      partial[item] += partial[item + width];
    barrier(CLK_LOCAL_MEM_FENCE);
    width /= 2;
  } while (width > 0);
  sum = partial[0];

  float by = 1.0f;
  if (p.rules & CLATTN_RULE_SINK)
    by = clattn_join_sink(&top, &sum, sinks[p.sink_first + h * p.sink_head]);
  if (item == 0 && i < u.entry.q_rows && (p.rules & CLATTN_RULE_LSE))
    lse[clattn_row_of(&p.lse, u.b, h, (long)u.entry.q_start + i)] = sum == 0.0f ? -INFINITY : top + log(sum);
  sum = sum / by;
  if (item == 0)
    work[CLATTN_REGION(&p, p.stats_at) + in_round] = sum;
  if (p.stage == CLATTN_SCORES_WEIGHTS && i < p.q_len) {
    const long at = clattn_row(&p.scores, u.b, h, i);
    for (int j0 = 0; j0 < p.k_len; j0 += CLATTN_ITEMS) {
      const int j = j0 + item;
      float w = 0.0f;
      if (j >= u.keys.lo && j < u.keys.hi) {
        const float e = row[j];
        w = as_int(e) == CLATTN_EXCLUDED_BITS ? 0.0f : e / sum;
      }
      if (j < p.k_len)
        CLATTN_STORE(CLATTN_SCORES)(out, at + j * p.scores.element, w);
    }
  }
}

/* One element of o that came out as NaN, once more without touching the values of excluded keys (0 * NaN is NaN). */
static inline float clattn_sum_kept(const clattn_params *p, const clattn_unit *u,
                                    __global const CLATTN_TYPE(CLATTN_V) * v, __global const float *numerators,
                                    int d CLATTN_V_SCALE_ARG) {
  float total = 0.0f;
  for (int j0 = u->keys.lo; j0 < u->keys.hi; j0 += CLATTN_SUM_BLOCK) {
    float part = 0.0f;
    for (int j = j0; j < min(j0 + CLATTN_SUM_BLOCK, u->keys.hi); ++j)
      if (as_int(numerators[j]) != CLATTN_EXCLUDED_BITS)
        part = CLATTN_MAD(numerators[j], clattn_value(p, v, u, j, d CLATTN_GIVE_V_SCALE), part);
    total += part;
  }
  return total;
}

/* Step 3.  o = numerators . v / sum, for a tile of rows and of the value dimension.
 * Grid: (dim tile * GX, tile * GY). */
CLATTN_TILE_KERNEL void weighted_sum(const clattn_params p, const clattn_round round,
                                     __global const CLATTN_TYPE(CLATTN_V) *restrict v,
                                     __global const int *restrict table, __global const int *restrict entries,
                                     __global const float *restrict work,
                                     __global CLATTN_TYPE(CLATTN_O) *restrict o CLATTN_V_SCALE_ARG) {
  __local float numerators[CLATTN_STEP][CLATTN_ROWS + CLATTN_PAD];
  __local float values[CLATTN_STEP][CLATTN_COLUMNS + CLATTN_PAD];
  const int gx = get_local_id(0), gy = get_local_id(1), item = gy * CLATTN_GX + gx;
  const int d0 = get_group_id(0) * CLATTN_COLUMNS, in_round = get_group_id(1);
  const clattn_unit u = clattn_unit_of(&p, entries, table, round.first_tile + in_round);
  __global const float *tile = work + CLATTN_REGION(&p, p.scores_at) + (long)in_round * p.k_stored * CLATTN_ROWS;

  float total[8][4], acc[8][4];
#pragma unroll
  for (int r = 0; r < 8; ++r)
#pragma unroll
    for (int c = 0; c < 4; ++c)
      total[r][c] = acc[r][c] = 0.0f;

  int j0 = u.keys.lo;
  do {
    for (int x = item; x < CLATTN_ROWS * CLATTN_STEP; x += CLATTN_ITEMS) {
      const int j = j0 + x % CLATTN_STEP, r = x / CLATTN_STEP;
      numerators[x % CLATTN_STEP][r] = j < u.keys.hi ? tile[(long)r * p.k_stored + j] : 0.0f;
    }
    for (int x = item; x < CLATTN_COLUMNS * CLATTN_STEP; x += CLATTN_ITEMS) {
      const int j = j0 + x / CLATTN_COLUMNS, d = d0 + x % CLATTN_COLUMNS;
      const int inside = j < u.keys.hi && d < p.v_dim;
      values[x / CLATTN_COLUMNS][x % CLATTN_COLUMNS] =
          inside ? clattn_value(&p, v, &u, j, d CLATTN_GIVE_V_SCALE) : 0.0f;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    clattn_multiply_step(numerators, values, gx, gy, acc);
    barrier(CLK_LOCAL_MEM_FENCE);
    /* Sums of sums: the rounding error of a long row grows with the number of blocks, not of keys. */
    if ((j0 - u.keys.lo) % CLATTN_SUM_BLOCK == CLATTN_SUM_BLOCK - CLATTN_STEP) {
#pragma unroll
      for (int r = 0; r < 8; ++r)
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          total[r][c] += acc[r][c];
          acc[r][c] = 0.0f;
        }
    }
    j0 += CLATTN_STEP;
  } while (j0 < u.keys.hi);

#pragma unroll
  for (int r = 0; r < 8; ++r)
#pragma unroll
    for (int c = 0; c < 4; ++c)
      total[r][c] += acc[r][c];
  CLATTN_ROLLED
  for (int r = 0; r < 8; ++r) {
    if (clattn_unit_row(&p, &u, gy * 8 + r) < u.entry.q_rows) {
      const float sum = work[CLATTN_REGION(&p, p.stats_at) + (long)in_round * CLATTN_ROWS + gy * 8 + r];
      const long to = clattn_query_row(&p, &p.o, &u, gy * 8 + r);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int d = d0 + c * CLATTN_GX + gx;
        if (d < p.v_dim) {
          float x = total[0][c];
          if (x != x && sum == sum && sum != 0.0f)
            x = clattn_sum_kept(&p, &u, v, tile + (long)(gy * 8 + r) * p.k_stored, d CLATTN_GIVE_V_SCALE);
          CLATTN_STORE(CLATTN_O)(o, to + d * p.o.element, clattn_result(sum, x));
        }
      }
    }
    clattn_turn_rows(total);
  }
}

#include "common.cl.h"
