/* SPDX-License-Identifier: Apache-2.0 */
/* Fused attention for GPUs, and any other device: scores, online softmax and weighted sum of a tile of query rows in
 * one pass over the keys, with no score matrix in memory.  OpenCL C 1.2, no extension, work-groups of tiles
 * (group_tile.cl.h).
 *
 * Method: online softmax (M. Milakov, N. Gimelshein, 2018) over key tiles (T. Dao et al., FlashAttention, 2022). */
#include "group_tile.cl.h"

/* Value elements of one work-group: GX * CLATTN_VC, 4 GX at a time.  Wider values are split over work-groups, which
 * compute the scores anew. */
#ifndef CLATTN_VC /* 4 or 8 */
#define CLATTN_VC 4
#endif
#define CLATTN_VALUES (CLATTN_GX * CLATTN_VC)
#define CLATTN_PARTS (CLATTN_ITEMS / CLATTN_ROWS) /* items that share a row in the softmax */
#define CLATTN_PART_KEYS (CLATTN_COLUMNS / CLATTN_PARTS)

/* clattn_turn_rows for all columns of the results. */
static inline void clattn_turn_results(float acc[8][CLATTN_VC]) {
#pragma unroll
  for (int c = 0; c < CLATTN_VC; ++c) {
    const float first = acc[0][c];
#pragma unroll
    for (int r = 0; r < 7; ++r)
      acc[r][c] = acc[r + 1][c];
    acc[7][c] = first;
  }
}

/* acc = acc * shrink + tile for the first four columns of acc, which then change places with the others. */
static inline void clattn_join_tile(__local const float *shrink, int gy, float tile[8][4], float acc[8][CLATTN_VC]) {
#pragma unroll
  for (int r = 0; r < 8; ++r) {
    const float by = shrink[gy * 8 + r];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float sum = fma(acc[r][c], by, tile[r][c]);
      acc[r][c] = acc[r][c + CLATTN_VC - 4];
      acc[r][c + CLATTN_VC - 4] = sum;
    }
  }
}

/* clattn_multiply_step of numerators and values, without the values of excluded keys: 0 * NaN is NaN.  Rarely needed,
 * so short rather than fast: the rows of the block take turns in its first one. */
static inline void clattn_weigh_kept(const clattn_row_step *numerators, const clattn_column_step *values, int gx,
                                     int gy, float acc[8][4]) {
  CLATTN_ROLLED
  for (int r = 0; r < 8; ++r) {
    CLATTN_ROLLED
    for (int x = 0; x < CLATTN_STEP; ++x) {
      const float left = numerators[x][gy * 8 + r];
      const int kept = as_int(left) != CLATTN_EXCLUDED_BITS;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const float more = CLATTN_MAD(left, values[x][c * CLATTN_GX + gx], acc[0][c]);
        acc[0][c] = kept ? more : acc[0][c];
      }
    }
    clattn_turn_rows(acc);
  }
}

/* Grid: (value chunk * GX, tile * GY). */
CLATTN_TILE_KERNEL void flash(const clattn_params p, const clattn_round round,
                              __global const CLATTN_TYPE(CLATTN_Q) *restrict q,
                              __global const CLATTN_TYPE(CLATTN_V) *restrict v, __global const float *restrict sinks,
                              __global const int *restrict table, __global const int *restrict entries,
                              __global float *restrict work, __global CLATTN_TYPE(CLATTN_O) *restrict o,
                              __global float *restrict lse, CLATTN_SCORE_ARGS CLATTN_V_SCALE_ARG) {
  __local clattn_scratch scratch;
  __local float keys[CLATTN_STEP][CLATTN_COLUMNS + CLATTN_PAD];    /* and values, never both at a time */
  __local float weights[CLATTN_COLUMNS][CLATTN_ROWS + CLATTN_PAD]; /* products, scores, numerators: [key][row] */
  __local float part[CLATTN_PARTS][CLATTN_ROWS];
  __local float part_best[CLATTN_PARTS][CLATTN_ROWS];
  __local float of_row[CLATTN_ROWS]; /* what the old sums of a row are scaled by; in the end its sum */
  __local int odd;                   /* 1: there is NaN or infinity among the values of the tile */
  clattn_column_step *values = keys;
  const int gx = get_local_id(0), gy = get_local_id(1), item = gy * CLATTN_GX + gx;
  const int d0 = get_group_id(0) * CLATTN_VALUES, id = round.first_tile + (int)get_group_id(1);
  const clattn_unit u = clattn_unit_of(&p, entries, table, id);
  CLATTN_COLLECT(in, p, work);
  /* in the softmax, every item has part of the keys of one row */
  const int my_row = item % CLATTN_ROWS, my_part = item / CLATTN_ROWS;
  const clattn_row_rules row = clattn_rules_of(&p, &in, &u, my_row);
  const int first_key = my_part * CLATTN_PART_KEYS, end_key = first_key + CLATTN_PART_KEYS;
  const int with_values = p.rules & CLATTN_RULE_OUT;
  /* loops that hold barriers run at least once: see group_tile.cl.h */
  const int v_dim = with_values ? p.v_dim : 0, value_keys = with_values ? CLATTN_COLUMNS : CLATTN_STEP;
  float acc[8][CLATTN_VC];
  float top = -INFINITY, best = -INFINITY;
  float sum = 0.0f, lost = 0.0f; /* to rounding: its error would be that of the whole row */
#pragma unroll
  for (int r = 0; r < 8; ++r)
#pragma unroll
    for (int c = 0; c < CLATTN_VC; ++c)
      acc[r][c] = 0.0f;

  /* the same for the whole work-group */
  clattn_interval j = clattn_next_keys(&p, blocks, &u, u.keys.lo, u.keys.hi, CLATTN_COLUMNS);
  do {
    float product[8][4];
    clattn_products(&p, &in, q, &u, j, p.qk_dim, gx, gy, &scratch, keys, product);
#pragma unroll
    for (int r = 0; r < 8; ++r)
#pragma unroll
      for (int c = 0; c < 4; ++c)
        weights[c * CLATTN_GX + gx][gy * 8 + r] = product[r][c];
    barrier(CLK_LOCAL_MEM_FENCE);

    if (item == 0)
      odd = 0; /* two barriers before the next values */
    float largest = top;
    CLATTN_ROLLED
    for (int x = first_key; x < end_key; ++x) {
      clattn_pair_score s = clattn_finish_score(&p, &in, &u, row, j.lo + x, weights[x][my_row]);
      if (j.lo + x >= j.hi) /* the next interval's, or nobody's */
        s.final = -INFINITY;
      weights[x][my_row] = s.final;
      largest = clattn_maximum(largest, s.final);
      best = clattn_best_of(best, s);
    }
    part[my_part][my_row] = largest;
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (int x = 0; x < CLATTN_PARTS; ++x)
      largest = clattn_maximum(largest, part[x][my_row]);
    /* equal maxima, -inf and +inf among them, scale by 1: a difference of infinities would be NaN */
    const float shrink = top == largest ? 1.0f : clattn_exp(top - largest);
    top = largest;
    float more = 0.0f;
    CLATTN_ROLLED
    for (int x = first_key; x < end_key; ++x) {
      const float e = clattn_numerator(weights[x][my_row], top);
      weights[x][my_row] = e;
      more += e;
    }
    const float before = sum * shrink;
    sum = before + more;
    lost = fma(lost, shrink, more - (sum - before));
    if (my_part == 0)
      of_row[my_row] = shrink;
    barrier(CLK_LOCAL_MEM_FENCE);

    /* Sums of sums: the rounding error of a long row grows with the number of tiles, not of keys. */
    int part_of = 0;
    do {
      float tile[8][4];
#pragma unroll
      for (int r = 0; r < 8; ++r)
#pragma unroll
        for (int c = 0; c < 4; ++c)
          tile[r][c] = 0.0f;
      int x0 = 0;
      do {
        for (int x = item; x < CLATTN_COLUMNS * CLATTN_STEP; x += CLATTN_ITEMS) {
          const int key = j.lo + x0 + x / CLATTN_COLUMNS;
          const int d = d0 + part_of * CLATTN_COLUMNS + x % CLATTN_COLUMNS;
          const float y = key < j.hi && d < v_dim ? clattn_value(&p, v, &u, key, d CLATTN_GIVE_V_SCALE) : 0.0f;
          values[x / CLATTN_COLUMNS][x % CLATTN_COLUMNS] = y;
          if (!isfinite(y))
            (void)atomic_or(&odd, 1);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (odd)
          clattn_weigh_kept(weights + x0, values, gx, gy, tile);
        else
          clattn_multiply_step(weights + x0, values, gx, gy, tile);
        barrier(CLK_LOCAL_MEM_FENCE);
        x0 += CLATTN_STEP;
      } while (x0 < value_keys);
      clattn_join_tile(of_row, gy, tile, acc);
      ++part_of;
    } while (part_of < CLATTN_VC / 4);
    j = clattn_next_keys(&p, blocks, &u, j.hi, u.keys.hi, CLATTN_COLUMNS);
  } while (j.lo < j.hi);

  part[my_part][my_row] = sum + lost;
  part_best[my_part][my_row] = best;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (my_part == 0) {
    sum += lost;
#pragma unroll
    for (int x = 1; x < CLATTN_PARTS; ++x) {
      sum += part[x][my_row];
      best = clattn_maximum_nan(best, part_best[x][my_row]);
    }
    float largest = top, by = 1.0f;
    if (p.rules & CLATTN_RULE_SINK)
      by = clattn_join_sink(&largest, &sum, sinks[p.sink_first + row.h * p.sink_head]);
    /* What is the same for every value chunk, the first one writes. */
    if (get_group_id(0) == 0 && row.i < u.entry.q_rows) {
      const long at = (long)u.entry.q_start + row.i;
      if (p.rules & CLATTN_RULE_LSE)
        lse[clattn_row_of(&p.lse, u.b, row.h, at)] = sum == 0.0f ? -INFINITY : largest + log(sum);
      const clattn_row_view maxima = clattn_maxima(&p);
      if (p.rules & CLATTN_RULE_MAX_LOGIT)
        work[clattn_row_of(&maxima, u.b, row.h, at)] = best;
    }
    sum = sum / by; /* what numerators are divided by */
    of_row[my_row] = sum;
    if (get_group_id(0) == 0 && p.stage == CLATTN_SCORES_WEIGHTS) {
      work[CLATTN_REGION(&p, p.stats_at) + ((long)id * CLATTN_ROWS + my_row) * 2] = top;
      work[CLATTN_REGION(&p, p.stats_at) + ((long)id * CLATTN_ROWS + my_row) * 2 + 1] = sum;
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  CLATTN_ROLLED
  for (int r = 0; r < 8; ++r) {
    const float s = of_row[gy * 8 + r];
    const int exists = clattn_unit_row(&p, &u, gy * 8 + r) < u.entry.q_rows;
    const long to = clattn_query_row(&p, &p.o, &u, gy * 8 + r);
#pragma unroll
    for (int c = 0; c < CLATTN_VC; ++c) {
      const int d = d0 + c * CLATTN_GX + gx;
      if (exists && d < v_dim)
        CLATTN_STORE(CLATTN_O)(o, to + d * p.o.element, clattn_result(s, acc[0][c]));
    }
    clattn_turn_results(acc);
  }
}

/* Scores for the caller, by a kernel of their own: what is asked for beside o never changes a bit of o.  Weights take
 * the maxima and sums of rows that `flash` left in the statistics.  Grid: (key chunk * GX, tile * GY). */
CLATTN_TILE_KERNEL void flash_scores(const clattn_params p, const clattn_round round,
                                     __global const CLATTN_TYPE(CLATTN_Q) *restrict q,
                                     __global const int *restrict table, __global const int *restrict entries,
                                     __global const float *restrict work,
                                     __global CLATTN_TYPE(CLATTN_SCORES) *restrict out, CLATTN_SCORE_ARGS) {
  __local clattn_scratch scratch;
  __local float keys[CLATTN_STEP][CLATTN_COLUMNS + CLATTN_PAD];
  const int gx = get_local_id(0), gy = get_local_id(1);
  const int j0 = get_group_id(0) * CLATTN_COLUMNS, id = round.first_tile + (int)get_group_id(1);
  const clattn_unit u = clattn_unit_of(&p, entries, table, id);
  CLATTN_COLLECT(in, p, work);
  const int weights = p.stage == CLATTN_SCORES_WEIGHTS;
  const clattn_interval j = clattn_chunk_keys(&p, blocks, &u, j0);
  float product[8][4]; /* where none is computed, none shows in a result */
  clattn_products(&p, &in, q, &u, j, j.lo < j.hi ? p.qk_dim : 0, gx, gy, &scratch, keys, product);

  CLATTN_ROLLED
  for (int r = 0; r < 8; ++r) {
    const clattn_row_rules row = clattn_rules_of(&p, &in, &u, gy * 8 + r);
    if (row.i < p.q_len) {
      __global const float *stats = work + CLATTN_REGION(&p, p.stats_at) + ((long)id * CLATTN_ROWS + gy * 8 + r) * 2;
      const float top = weights ? stats[0] : 0.0f, sum = weights ? stats[1] : 1.0f;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int key = j0 + c * CLATTN_GX + gx;
        if (key < p.k_len) {
          const clattn_pair_score s = clattn_finish_score(&p, &in, &u, row, key, product[0][c]);
          const float e = clattn_numerator(s.final, top);
          const float weight = as_int(e) == CLATTN_EXCLUDED_BITS ? 0.0f : e / sum;
          CLATTN_STORE(CLATTN_SCORES)
          (out, clattn_row(&p.scores, u.b, row.h, row.i) + key * p.scores.element,
           weights ? weight : clattn_shown_score(s, p.stage, u.entry, row.i, key));
        }
      }
    }
    clattn_turn_rows(product);
  }
}

#include "common.cl.h"
