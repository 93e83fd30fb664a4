/* SPDX-License-Identifier: Apache-2.0 */
/* Fused attention for GPUs, and any other device: scores, online softmax and weighted sum of a tile of query rows in
 * one pass over the keys, with no score matrix in memory.  OpenCL C 1.2, no extension, work-groups of tiles
 * (register_tile.cl.h; the kernel of scores: group_tile.cl.h).
 *
 * Method: online softmax (M. Milakov, N. Gimelshein, 2018) over key tiles (T. Dao et al., FlashAttention, 2022). */
#include "register_tile.cl.h"

/* A program for problems whose rules leave each row an interval of keys, and scores are products times the scale: no bias,
 * mask, ALiBi, softcap, head scale or hook, and no largest score asked for. */
#ifndef CLATTN_PLAIN
#define CLATTN_PLAIN 0
#endif
#define CLATTN_PARTS (CLATTN_ITEMS / CLATTN_ROWS) /* items that share a row in the softmax */
#define CLATTN_PART_KEYS (CLATTN_KEYS / CLATTN_PARTS)
#define CLATTN_PART_FOURS (CLATTN_PART_KEYS / 4)

/* Scores of a row from its products: CLATTN_PART_KEYS of them, of keys from j.lo + x0 on. */
static inline void clattn_finish_scores(const clattn_params *p, const clattn_inputs *in,
                                        __local const clattn_unit *unit, clattn_interval j, int my_row, int x0,
                                        __local float *scores, float *best) {
  const clattn_unit u = *unit;
#if CLATTN_PLAIN
  const int i = clattn_unit_row(p, &u, my_row);
  const int lo = clattn_row_lo(p, u.entry, i), hi = min(clattn_row_hi(p, u.entry, i), j.hi);
  /* keys that every row keeps need no look: ends of intervals grow with the row */
  const int all_lo = clattn_row_lo(p, u.entry, clattn_unit_row(p, &u, CLATTN_ROWS - 1));
  const int all_hi = min(clattn_row_hi(p, u.entry, clattn_unit_row(p, &u, 0)), j.hi);
  (void)in, (void)best;
  if (clattn_unit_row(p, &u, CLATTN_ROWS - 1) < u.entry.q_len && all_lo <= j.lo && j.lo + CLATTN_KEYS <= all_hi)
    return;
  CLATTN_ROLLED
  for (int x = 0; x < CLATTN_PART_KEYS; ++x)
    if (j.lo + x0 + x < lo || j.lo + x0 + x >= hi)
      scores[x] = -INFINITY;
#else
  const clattn_row_rules row = clattn_rules_of(p, in, &u, my_row);
  CLATTN_ROLLED
  for (int x = 0; x < CLATTN_PART_KEYS; ++x) {
    clattn_pair_score s = clattn_finish_score(p, in, &u, row, j.lo + x0 + x, scores[x]);
    if (j.lo + x0 + x >= j.hi) /* the next interval's, or nobody's */
      s.final = -INFINITY;
    scores[x] = s.final;
    *best = clattn_best_of(*best, s);
  }
#endif
}

/* The next keys to go through from j on. */
static inline clattn_interval clattn_following_keys(const clattn_params *p, __global const uint *blocks,
                                                    __local const clattn_unit *unit, int j) {
  const clattn_unit u = *unit;
  return clattn_next_keys(p, blocks, &u, j, u.keys.hi, CLATTN_KEYS);
}

/* Numerators of four scores, without a branch. */
static inline float4 clattn_numerators(float4 s, float top) {
  const float4 x = s - (float4)(top);
  const float4 e = (float4)(clattn_exp_numerator(x.x), clattn_exp_numerator(x.y), clattn_exp_numerator(x.z),
                            clattn_exp_numerator(x.w));
  return select(e, as_float4((int4)(CLATTN_EXCLUDED_BITS)), s == (float4)(-INFINITY));
}

/* Grid: (value chunk * GX, tile * GY).  Values wider than CLATTN_VALUES are split over work-groups, which compute the
 * scores anew. */
CLATTN_TILE_KERNEL void flash(const clattn_params p, const clattn_round round,
                              __global const CLATTN_TYPE(CLATTN_Q) *restrict q,
                              __global const CLATTN_TYPE(CLATTN_V) *restrict v, __global const float *restrict sinks,
                              __global const int *restrict table, __global const int *restrict entries,
                              __global float *restrict work, __global CLATTN_TYPE(CLATTN_O) *restrict o,
                              __global float *restrict lse, CLATTN_SCORE_ARGS CLATTN_V_SCALE_ARG) {
  __local clattn_register_scratch scratch;
  __local float part[CLATTN_PARTS][CLATTN_ROWS];
  __local float of_row[CLATTN_ROWS]; /* what the old sums of a row are scaled by; in the end its sum */
  __local clattn_unit unit;          /* here, and not in every item's registers */
  __local int odd;                   /* 1: there is NaN or infinity among the values of the tile */
  const int gx = get_local_id(0), gy = get_local_id(1), item = gy * CLATTN_GX + gx;
  const int d0 = get_group_id(0) * CLATTN_VALUES, id = round.first_tile + (int)get_group_id(1);
  CLATTN_COLLECT(in, p, work);
  if (item == 0) {
    unit = clattn_unit_of(&p, entries, table, id);
    scratch.zero = 0;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  /* in the softmax, every item has part of the keys of one row */
  const int my_row = item % CLATTN_ROWS, my_part = item / CLATTN_ROWS;
  __local float4 *const mine = scratch.weights[my_row] + my_part * CLATTN_PART_FOURS;
  const int with_values = p.rules & CLATTN_RULE_OUT;
  /* loops that hold barriers run at least once: see group_tile.cl.h */
  const int v_dim = with_values ? p.v_dim : 0, value_keys = with_values ? CLATTN_KEYS : CLATTN_STEP;
  float acc[8][CLATTN_VC];
  float top = -INFINITY, best = -INFINITY;
  float sum = 0.0f, lost = 0.0f; /* to rounding: its error would be that of the whole row */
#pragma unroll
  for (int r = 0; r < 8; ++r)
#pragma unroll
    for (int c = 0; c < CLATTN_VC; ++c)
      acc[r][c] = 0.0f;
  clattn_find_queries(&p, &in, q, &unit, item, &scratch);

  /* the same for the whole work-group */
  clattn_interval j = clattn_following_keys(&p, blocks, &unit, unit.keys.lo);
  do {
    float product[8][CLATTN_KC];
    clattn_find_keys(&p, &in, &unit, j, item, &scratch);
    barrier(CLK_LOCAL_MEM_FENCE);
    clattn_score_tile(&p, &in, q, j.lo < j.hi ? p.qk_dim : 0, gx, gy, &scratch, product);
    const float scale = CLATTN_PLAIN ? in.scale : 1.0f;
#pragma unroll
    for (int r = 0; r < 8; ++r)
#pragma unroll
      for (int c = 0; c < CLATTN_KC / 4; ++c)
        scratch.weights[gy * 8 + r][c * CLATTN_GX + gx] =
            (float4)(product[r][4 * c], product[r][4 * c + 1], product[r][4 * c + 2], product[r][4 * c + 3]) * scale;
    clattn_find_values(&p, &unit, j, item, &scratch);
    if (item == 0)
      odd = 0; /* two barriers before the next values */
    barrier(CLK_LOCAL_MEM_FENCE);

    float largest = top;
    clattn_finish_scores(&p, &in, &unit, j, CLATTN_ANEW(&scratch, my_row), my_part * CLATTN_PART_KEYS,
                         (__local float *)mine, &best);
#pragma unroll 4
    for (int x = 0; x < CLATTN_PART_FOURS; ++x) {
      const float4 s = mine[x];
      largest = clattn_maximum(clattn_maximum(largest, s.x), s.y);
      largest = clattn_maximum(clattn_maximum(largest, s.z), s.w);
    }
#if CLATTN_PARTS > 1
    part[my_part][my_row] = largest;
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (int x = 0; x < CLATTN_PARTS; ++x)
      largest = clattn_maximum(largest, part[x][my_row]);
#endif
    /* equal maxima, -inf and +inf among them, scale by 1: a difference of infinities would be NaN */
    const float shrink = top == largest ? 1.0f : clattn_exp(top - largest);
    top = largest;
    float more = 0.0f;
#pragma unroll 4
    for (int x = 0; x < CLATTN_PART_FOURS; ++x) {
      const float4 e = clattn_numerators(mine[x], top);
      mine[x] = e;
      more += (e.x + e.y) + (e.z + e.w);
    }
    const float before = sum * shrink;
    sum = before + more;
    lost = fma(lost, shrink, more - (sum - before));
    if (my_part == 0)
      of_row[my_row] = shrink;
    barrier(CLK_LOCAL_MEM_FENCE);

    /* Sums of sums: the rounding error of a long row grows with the number of tiles, not of keys. */
    float tile[8][CLATTN_VC];
#pragma unroll
    for (int r = 0; r < 8; ++r)
#pragma unroll
      for (int c = 0; c < CLATTN_VC; ++c)
        tile[r][c] = 0.0f;
    int x0 = 0;
    do {
      const float strange = clattn_load_values(&p, v, x0, j.hi - j.lo, d0, v_dim, item, &scratch CLATTN_GIVE_V_SCALE);
      if (strange != 0.0f)
        (void)atomic_or(&odd, 1);
      barrier(CLK_LOCAL_MEM_FENCE);
      if (odd)
        clattn_weigh_kept(&scratch, x0, gx, gy, tile);
      else
        clattn_weigh_step(&scratch, x0, gx, gy, tile);
      barrier(CLK_LOCAL_MEM_FENCE);
      x0 += CLATTN_STEP;
    } while (x0 < value_keys);
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      const float by = of_row[gy * 8 + r];
#pragma unroll
      for (int c = 0; c < CLATTN_VC; ++c)
        acc[r][c] = fma(acc[r][c], by, tile[r][c]);
    }
    j = clattn_following_keys(&p, blocks, &unit, j.hi);
  } while (j.lo < j.hi);

  /* keys and values are done with */
  const clattn_unit u = unit;
  const int i = clattn_unit_row(&p, &u, my_row), h = clattn_unit_head(&p, &u, my_row);
  __local float *const part_best = (__local float *)scratch.keys;
  part[my_part][my_row] = sum + lost;
  part_best[item] = best;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (my_part == 0) {
    sum += lost;
#pragma unroll
    for (int x = 1; x < CLATTN_PARTS; ++x) {
      sum += part[x][my_row];
      best = clattn_maximum_nan(best, part_best[x * CLATTN_ROWS + my_row]);
    }
    float largest = top, by = 1.0f;
    if (p.rules & CLATTN_RULE_SINK)
      by = clattn_join_sink(&largest, &sum, sinks[p.sink_first + h * p.sink_head]);
    /* What is the same for every value chunk, the first one writes. */
    if (get_group_id(0) == 0 && i < u.entry.q_rows) {
      const long at = (long)u.entry.q_start + i;
      if (p.rules & CLATTN_RULE_LSE)
        lse[clattn_row_of(&p.lse, u.b, h, at)] = sum == 0.0f ? -INFINITY : largest + log(sum);
      const clattn_row_view maxima = clattn_maxima(&p);
      if (p.rules & CLATTN_RULE_MAX_LOGIT)
        work[clattn_row_of(&maxima, u.b, h, at)] = best;
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
      const int d = d0 + (c / 4 * CLATTN_GX + gx) * 4 + c % 4;
      if (exists && d < v_dim)
        CLATTN_STORE(CLATTN_O)(o, to + d * p.o.element, clattn_result(s, acc[0][c]));
    }
    CLATTN_TURN(acc, CLATTN_VC);
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
