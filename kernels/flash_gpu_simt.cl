/* SPDX-License-Identifier: Apache-2.0 */
/* Fused attention for GPUs, and any other device: scores, online softmax and weighted sum of a tile of query rows in one pass
 * over the keys, with no score matrix in memory.  OpenCL C 1.2, no extension, work-groups of tiles (group_tile.cl.h).
 *
 * Method: online softmax (M. Milakov, N. Gimelshein, 2018) over key tiles (T. Dao et al., FlashAttention, 2022). */
#include "group_tile.cl.h"

/* Value elements of one work-group: GX * CLATTN_VC.  Wider values are split over work-groups, which compute the scores anew. */
#ifndef CLATTN_VC
#define CLATTN_VC 4
#endif
#define CLATTN_VALUES (CLATTN_GX * CLATTN_VC)
#define CLATTN_PARTS (CLATTN_ITEMS / CLATTN_ROWS) /* items that share a row in the softmax */
#define CLATTN_PART_KEYS (CLATTN_COLUMNS / CLATTN_PARTS)

typedef __local float clattn_value_step[CLATTN_VALUES + CLATTN_PAD];

/* acc[r][c] += numerators . values over one step. */
static inline void clattn_weigh_step(const clattn_row_step *numerators, const clattn_value_step *values, int gx, int gy,
                                     float acc[8][CLATTN_VC]) {
#pragma unroll 2
  for (int x = 0; x < CLATTN_STEP; ++x) {
    float left[8], right[CLATTN_VC];
#pragma unroll
    for (int r = 0; r < 8; ++r)
      left[r] = numerators[x][gy * 8 + r];
#pragma unroll
    for (int c = 0; c < CLATTN_VC; ++c)
      right[c] = values[x][c * CLATTN_GX + gx];
#pragma unroll
    for (int r = 0; r < 8; ++r)
#pragma unroll
      for (int c = 0; c < CLATTN_VC; ++c)
        acc[r][c] = fma(left[r], right[c], acc[r][c]);
  }
}

/* Every row of acc moves up by one, the first one to the end. */
static inline void clattn_turn_rows(float acc[8][CLATTN_VC]) {
#pragma unroll
  for (int c = 0; c < CLATTN_VC; ++c) {
    const float first = acc[0][c];
#pragma unroll
    for (int r = 0; r < 7; ++r)
      acc[r][c] = acc[r + 1][c];
    acc[7][c] = first;
  }
}

/* clattn_weigh_step without the values of excluded keys: 0 * NaN is NaN.  Rarely needed, so short rather than fast: the rows of acc
 * take turns in its first one. */
static inline void clattn_weigh_kept(const clattn_row_step *numerators, const clattn_value_step *values, int gx, int gy,
                                     float acc[8][CLATTN_VC]) {
  CLATTN_ROLLED
  for (int r = 0; r < 8; ++r) {
    CLATTN_ROLLED
    for (int x = 0; x < CLATTN_STEP; ++x) {
      const float left = numerators[x][gy * 8 + r];
      const int kept = as_int(left) != CLATTN_EXCLUDED_BITS;
#pragma unroll
      for (int c = 0; c < CLATTN_VC; ++c) {
        const float more = fma(left, values[x][c * CLATTN_GX + gx], acc[0][c]);
        acc[0][c] = kept ? more : acc[0][c];
      }
    }
    clattn_turn_rows(acc);
  }
}

/* Grid: (value chunk * GX, tile * GY). */
CLATTN_TILE_KERNEL void flash(const clattn_params p, const clattn_round round, __global const float *restrict q,
                              __global const float *restrict k, __global const float *restrict v,
                              __global const float *restrict bias, __global const uchar *restrict mask,
                              __global const uint *restrict blocks, __global const float *restrict slopes,
                              __global const float *restrict sinks, __global const float *restrict scale,
                              __global const float *restrict softcap, __global const int *restrict table,
                              __global const int *restrict entries, __global float *restrict work,
                              __global float *restrict o, __global float *restrict lse) {
  __local float queries[CLATTN_STEP][CLATTN_ROWS + CLATTN_PAD];
  __local float values[CLATTN_STEP][CLATTN_VALUES + CLATTN_PAD];
  __local float weights[CLATTN_COLUMNS][CLATTN_ROWS + CLATTN_PAD]; /* products, scores, numerators: [key][row] */
  __local float part[CLATTN_PARTS][CLATTN_ROWS];
  __local float part_best[CLATTN_PARTS][CLATTN_ROWS];
  __local float of_row[CLATTN_ROWS]; /* what the old sums of a row are scaled by; in the end its sum */
  __local int odd;                   /* 1: there is NaN or infinity among the values of the tile */
  clattn_column_step *keys = (clattn_column_step *)values; /* never both at a time, and CLATTN_VC >= 4 */
  const int gx = get_local_id(0), gy = get_local_id(1), item = gy * CLATTN_GX + gx;
  const int d0 = get_group_id(0) * CLATTN_VALUES, id = round.first_tile + (int)get_group_id(1);
  const clattn_unit u = clattn_unit_of(&p, entries, table, id);
  const clattn_score_tensors in = {bias, mask, blocks, clattn_scale_of(&p, scale), clattn_softcap_of(&p, softcap)};
  /* in the softmax, every item has part of the keys of one row */
  const int my_row = item % CLATTN_ROWS, my_part = item / CLATTN_ROWS;
  const clattn_row_rules row = clattn_rules_of(&p, slopes, &u, my_row);
  const int first_key = my_part * CLATTN_PART_KEYS, end_key = first_key + CLATTN_PART_KEYS;
  const int with_values = p.rules & CLATTN_RULE_OUT;
  /* loops that hold barriers run at least once: see group_tile.cl.h */
  const int v_dim = with_values ? p.v_dim : 0, value_keys = with_values ? CLATTN_COLUMNS : CLATTN_STEP;
  float acc[8][CLATTN_VC];
  float top = -INFINITY, sum = 0.0f, best = -INFINITY;
#pragma unroll
  for (int r = 0; r < 8; ++r)
#pragma unroll
    for (int c = 0; c < CLATTN_VC; ++c)
      acc[r][c] = 0.0f;

  /* the same for the whole work-group */
  clattn_interval j = clattn_next_keys(&p, blocks, &u, u.keys.lo, u.keys.hi, CLATTN_COLUMNS);
  do {
    float product[8][4];
    clattn_products(&p, q, k, &u, j, p.qk_dim, gx, gy, queries, keys, product);
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
      clattn_score s = clattn_finish_score(&p, &in, row, j.lo + x, weights[x][my_row]);
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
    sum = fma(sum, shrink, more);
    if (my_part == 0)
      of_row[my_row] = shrink;
    barrier(CLK_LOCAL_MEM_FENCE);

#pragma unroll
    for (int r = 0; r < 8; ++r) {
      const float by = of_row[gy * 8 + r];
#pragma unroll
      for (int c = 0; c < CLATTN_VC; ++c)
        acc[r][c] *= by;
    }
    int x0 = 0;
    do {
      for (int x = item; x < CLATTN_VALUES * CLATTN_STEP; x += CLATTN_ITEMS) {
        const int key = j.lo + x0 + x / CLATTN_VALUES, d = d0 + x % CLATTN_VALUES;
        const float y = key < j.hi && d < v_dim ? v[clattn_kv_row(&p, &p.v, u.kv, key) + d * p.v.element] : 0.0f;
        values[x / CLATTN_VALUES][x % CLATTN_VALUES] = y;
        if (!isfinite(y))
          (void)atomic_or(&odd, 1);
      }
      barrier(CLK_LOCAL_MEM_FENCE);
      if (odd)
        clattn_weigh_kept(weights + x0, values, gx, gy, acc);
      else
        clattn_weigh_step(weights + x0, values, gx, gy, acc);
      barrier(CLK_LOCAL_MEM_FENCE);
      x0 += CLATTN_STEP;
    } while (x0 < value_keys);
    j = clattn_next_keys(&p, blocks, &u, j.hi, u.keys.hi, CLATTN_COLUMNS);
  } while (j.lo < j.hi);

  part[my_part][my_row] = sum;
  part_best[my_part][my_row] = best;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (my_part == 0) {
#pragma unroll
    for (int x = 1; x < CLATTN_PARTS; ++x) {
      sum += part[x][my_row];
      best = clattn_maximum_nan(best, part_best[x][my_row]);
    }
    float largest = top, by = 1.0f;
    if (p.rules & CLATTN_RULE_SINK)
      by = clattn_join_sink(&largest, &sum, sinks[clattn_of_head(&p.sink, u.b, row.h)]);
    /* What is the same for every value chunk, the first one writes. */
    if (get_group_id(0) == 0 && row.i < u.entry.q_rows) {
      const long at = (long)u.entry.q_start + row.i;
      if (p.rules & CLATTN_RULE_LSE)
        lse[clattn_row(&p.lse, u.b, row.h, at)] = sum == 0.0f ? -INFINITY : largest + log(sum);
      if (p.rules & CLATTN_RULE_MAX_LOGIT)
        work[clattn_row(&p.maxima, u.b, row.h, at)] = best;
    }
    sum = sum / by; /* what numerators are divided by */
    of_row[my_row] = sum;
    if (get_group_id(0) == 0 && p.stage == CLATTN_SCORES_WEIGHTS) {
      work[p.stats_first + ((long)id * CLATTN_ROWS + my_row) * 2] = top;
      work[p.stats_first + ((long)id * CLATTN_ROWS + my_row) * 2 + 1] = sum;
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
        o[to + d * p.o.element] = s == 0.0f ? 0.0f : acc[0][c] / s;
    }
    clattn_turn_rows(acc);
  }
}

/* Scores for the caller, by a kernel of their own: what is asked for beside o never changes a bit of o.  Weights take the
 * maxima and sums of rows that `flash` left in the statistics.  Grid: (key chunk * GX, tile * GY). */
CLATTN_TILE_KERNEL void flash_scores(const clattn_params p, const clattn_round round, __global const float *restrict q,
                                     __global const float *restrict k, __global const float *restrict bias,
                                     __global const uchar *restrict mask, __global const uint *restrict blocks,
                                     __global const float *restrict slopes, __global const float *restrict scale,
                                     __global const float *restrict softcap, __global const int *restrict table,
                                     __global const int *restrict entries, __global const float *restrict work,
                                     __global float *restrict out) {
  __local float queries[CLATTN_STEP][CLATTN_ROWS + CLATTN_PAD];
  __local float keys[CLATTN_STEP][CLATTN_COLUMNS + CLATTN_PAD];
  const int gx = get_local_id(0), gy = get_local_id(1);
  const int j0 = get_group_id(0) * CLATTN_COLUMNS, id = round.first_tile + (int)get_group_id(1);
  const clattn_unit u = clattn_unit_of(&p, entries, table, id);
  const clattn_score_tensors in = {bias, mask, blocks, clattn_scale_of(&p, scale), clattn_softcap_of(&p, softcap)};
  const int weights = p.stage == CLATTN_SCORES_WEIGHTS;
  const clattn_interval j = clattn_chunk_keys(&p, blocks, &u, j0);
  float product[8][4]; /* where none is computed, none shows in a result */
  clattn_products(&p, q, k, &u, j, j.lo < j.hi ? p.qk_dim : 0, gx, gy, queries, keys, product);

  CLATTN_ROLLED
  for (int r = 0; r < 8; ++r) {
    const clattn_row_rules row = clattn_rules_of(&p, slopes, &u, gy * 8 + r);
    if (row.i < p.q_len) {
      __global const float *stats = work + p.stats_first + ((long)id * CLATTN_ROWS + gy * 8 + r) * 2;
      const float top = weights ? stats[0] : 0.0f, sum = weights ? stats[1] : 1.0f;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int key = j0 + c * CLATTN_GX + gx;
        if (key < p.k_len) {
          const clattn_score s = clattn_finish_score(&p, &in, row, key, product[0][c]);
          const float e = clattn_numerator(s.final, top);
          const float weight = as_int(e) == CLATTN_EXCLUDED_BITS ? 0.0f : e / sum;
          out[clattn_row(&p.scores, u.b, row.h, row.i) + key * p.scores.element] =
              weights ? weight : clattn_shown_score(s, p.stage, u.entry, row.i, key);
        }
      }
    }
    clattn_next_row(product);
  }
}

#include "common.cl.h"
