/* SPDX-License-Identifier: Apache-2.0 */
/* The three-step pipeline for CPU devices: scores, softmax, weighted sum.  Queries are in vector lanes
 * (lanes_tile.cl.h), work-group size 1, no local memory, no barrier: a CPU runtime gains nothing from them. In the
 * workspace a tile of scores is [key][query lane]. */
#include "lanes_tile.cl.h"

#define CLATTN_DIM_CHUNK 256 /* value elements that one work-item of the last step does */

/* Step 1.  Scores of a tile of rows and a chunk of keys: s = the final score, -inf = excluded.  Grid: (tile, key
 * chunk). */
CLATTN_CPU_KERNEL void scores(const clattn_params p, const clattn_round round,
                              __global const CLATTN_TYPE(CLATTN_Q) *restrict q, __global const int *restrict table,
                              __global const int *restrict entries, __global float *restrict work,
                              __global CLATTN_TYPE(CLATTN_SCORES) *restrict out, CLATTN_SCORE_ARGS) {
  const int in_round = get_group_id(0);
  const int chunk = get_group_id(1);
  CLATTN_COLLECT(in, p, work);
  clattn_tile t;
  clattn_tile_open(&p, entries, table, round.first_tile + in_round, &t);
  clattn_tile_prepare(&p, &in, &t);
  const int to_user = p.stage >= CLATTN_SCORES_RAW && p.stage <= CLATTN_SCORES_MASKED;
  const int all_pairs = p.stage == CLATTN_SCORES_RAW || p.stage == CLATTN_SCORES_SOFTCAP;
  const clattn_shown shown = {out, to_user ? p.stage : CLATTN_SCORES_NONE};

  /* Keys to compute: those that some row keeps, or all real ones if excluded ones are asked for. */
  const int chunk_first = chunk * CLATTN_CHUNK_KEYS;
  const int chunk_end = min(chunk_first + CLATTN_CHUNK_KEYS, p.k_len);
  const int first = max(all_pairs ? 0 : t.u.keys.lo, chunk_first);
  const int end = max(first, min(all_pairs ? t.u.entry.k_len : t.u.keys.hi, chunk_end));

  float queries[CLATTN_DIM * CLATTN_ROWS];
  float block[CLATTN_KEY_BLOCK * CLATTN_ROWS];
  clattn_v top[CLATTN_MQ], logit[CLATTN_MQ], ignored[CLATTN_MQ];
  for (int m = 0; m < CLATTN_MQ; ++m)
    top[m] = logit[m] = (clattn_v)(-INFINITY);
  __global float *tile = work + CLATTN_REGION(&p, p.scores_at) + (long)in_round * p.k_stored * CLATTN_ROWS;

  if (first < end && p.qk_dim <= CLATTN_DIM)
    clattn_load_queries(&p, &in, q, &t, 0, p.qk_dim, queries);
  const int last = to_user ? chunk_end : end;
  int next = to_user ? chunk_first : first; /* the first key that is not done yet */
  while (next < last) {
    clattn_interval keys = {max(next, first), min(max(next, first) + CLATTN_KEY_BLOCK, end)};
    if (!all_pairs)
      keys = clattn_next_keys(&p, blocks, &t.u, keys.lo, end, CLATTN_KEY_BLOCK);
    const int computed = keys.lo < keys.hi, to = computed ? keys.lo : last;
    for (; next < to; ++next) /* what is not computed is excluded */
      for (int m = 0; m < CLATTN_MQ; ++m) {
        if (next >= first && next < end)
          CLATTN_VSTORE((clattn_v)(-INFINITY), tile + (long)next * CLATTN_ROWS + m * CLATTN_LANES);
        if (to_user)
          clattn_store_scores(&p, out, &t, m, next, (clattn_v)(-INFINITY), -INFINITY);
      }
    if (computed) {
      clattn_products(&p, &in, q, &t, keys.lo, keys.hi - keys.lo, queries, block, ignored);
      clattn_finish_scores(&p, &in, &shown, &t, keys.lo, keys.hi - keys.lo, block, top, logit);
      for (int x = 0; x < (keys.hi - keys.lo) * CLATTN_MQ; ++x)
        CLATTN_VSTORE(CLATTN_VLOAD(block + x * CLATTN_LANES), tile + (long)next * CLATTN_ROWS + x * CLATTN_LANES);
      next = keys.hi;
    }
  }

  for (int m = 0; m < CLATTN_MQ && (p.rules & CLATTN_RULE_MAX_LOGIT); ++m)
    CLATTN_VSTORE(logit[m], work + CLATTN_REGION(&p, p.partial_at) +
                                ((long)in_round * p.key_chunks + chunk) * CLATTN_ROWS + m * CLATTN_LANES);
}

/* Step 2.  Row-wise softmax: scores become numerators exp(s - m), their sums go to the statistics, lse to the caller.
 * Weights for the caller are numerator / sum.  Grid: (tile). */
CLATTN_CPU_KERNEL void softmax(const clattn_params p, const clattn_round round, __global const float *restrict sinks,
                               __global const int *restrict table, __global const int *restrict entries,
                               __global float *restrict work, __global float *restrict lse,
                               __global CLATTN_TYPE(CLATTN_SCORES) *restrict out) {
  const int in_round = get_group_id(0);
  clattn_tile t;
  clattn_tile_open(&p, entries, table, round.first_tile + in_round, &t);
  __global float *tile = work + CLATTN_REGION(&p, p.scores_at) + (long)in_round * p.k_stored * CLATTN_ROWS;
  __global float *sums = work + CLATTN_REGION(&p, p.stats_at) + (long)in_round * CLATTN_ROWS;

  for (int m = 0; m < CLATTN_MQ; ++m) {
    __global float *column = tile + m * CLATTN_LANES;
    clattn_v top = (clattn_v)(-INFINITY);
    for (int j = t.u.keys.lo; j < t.u.keys.hi; ++j)
      top = clattn_maximum(top, CLATTN_VLOAD(column + (long)j * CLATTN_ROWS));

    /* Sums of sums: the rounding error of a long row grows with the number of blocks, not of keys. */
    clattn_v sum = (clattn_v)(0.0f), lost = (clattn_v)(0.0f); /* to rounding */
    for (int j0 = t.u.keys.lo; j0 < t.u.keys.hi; j0 += CLATTN_KEY_BLOCK) {
      const int j1 = min(j0 + CLATTN_KEY_BLOCK, t.u.keys.hi);
      clattn_v part = (clattn_v)(0.0f);
      for (int j = j0; j < j1; ++j) {
        __global float *at = column + (long)j * CLATTN_ROWS;
        const clattn_v e = clattn_numerator(CLATTN_VLOAD(at), top);
        part += e;
        CLATTN_VSTORE(e, at);
      }
      const clattn_v before = sum;
      sum += part;
      lost += part - (sum - before);
    }
    sum += lost;
    /* What the numerators are divided by stands for the sum from here on. */
    clattn_v by = (clattn_v)(1.0f), largest = top;
    if (p.rules & CLATTN_RULE_SINK)
      by = clattn_join_sink(&largest, &sum, clattn_sink_lanes(&p, sinks, &t, m));
    if (p.rules & CLATTN_RULE_LSE)
      clattn_store_rows(&p.lse, &t, lse, m, sum == (clattn_v)(0.0f) ? (clattn_v)(-INFINITY) : largest + log(sum));
    sum = sum / by;
    CLATTN_VSTORE(sum, sums + m * CLATTN_LANES);
    if (p.stage == CLATTN_SCORES_WEIGHTS) {
      for (int j = 0; j < p.k_len; ++j) {
        clattn_v w = (clattn_v)(0.0f);
        if (j >= t.u.keys.lo && j < t.u.keys.hi) {
          const clattn_v e = CLATTN_VLOAD(column + (long)j * CLATTN_ROWS);
          w = CLATTN_AS_VI(e) == (clattn_vi)(CLATTN_EXCLUDED_BITS) ? w : e / sum;
        }
        clattn_store_scores(&p, out, &t, m, j, w, 0.0f);
      }
    }
  }
}

/* acc[a][m] += sum over keys of numerator[key][m] * v[key][a] */
static inline void clattn_weigh_block(const clattn_params *p, __global const CLATTN_TYPE(CLATTN_V) * v,
                                      const long *rows CLATTN_VALUE_SCALES, int d, int keys,
                                      __global const float *numerators, clattn_v acc[CLATTN_ND][CLATTN_MQ]) {
#if CLATTN_V_WIDENED
  float wide[CLATTN_KEY_BLOCK * CLATTN_ND];
  clattn_widen_values(p, v, rows CLATTN_GIVE_VALUE_SCALES, d, keys, wide);
#else
  __global const float *from = v + d * p->v.element;
#endif
  for (int x = 0; x < keys; ++x) {
    clattn_v w[CLATTN_MQ];
#if CLATTN_V_WIDENED
    const float *row = wide + x * CLATTN_ND;
    const long step = 1;
#else
    __global const float *row = from + rows[x];
    const long step = p->v.element;
#endif
#pragma unroll
    for (int m = 0; m < CLATTN_MQ; ++m)
      w[m] = CLATTN_VLOAD(numerators + (long)x * CLATTN_ROWS + m * CLATTN_LANES);
#pragma unroll
    for (int a = 0; a < CLATTN_ND; ++a) {
      const clattn_v y = (clattn_v)(row[a * step]);
#pragma unroll
      for (int m = 0; m < CLATTN_MQ; ++m)
        acc[a][m] = fma(w[m], y, acc[a][m]);
    }
  }
}

/* The same for one element and one row that came out as NaN, this time without touching the values of excluded keys
 * (0 * NaN is NaN). */
static inline float clattn_weigh_kept(const clattn_params *p, __global const CLATTN_TYPE(CLATTN_V) * v,
                                      const clattn_tile *t, int lane, int d,
                                      __global const float *numerators CLATTN_V_SCALE_ARG) {
  float o = 0.0f;
  for (int j0 = t->u.keys.lo; j0 < t->u.keys.hi; j0 += CLATTN_KEY_BLOCK) {
    const int j1 = min(j0 + CLATTN_KEY_BLOCK, t->u.keys.hi);
    float part = 0.0f;
    for (int j = j0; j < j1; ++j) {
      const float w = numerators[(long)j * CLATTN_ROWS + lane];
      if (as_int(w) != CLATTN_EXCLUDED_BITS)
        part = fma(w,
                   CLATTN_LOAD(CLATTN_V)(v, clattn_kv_row(p, &p->v, t->u.kv, j) + d * p->v.element) *
                       CLATTN_SCALE_OF_VALUE(p, clattn_kv_row(p, &p->v_scale, t->u.kv, j), d),
                   part);
    }
    o += part;
  }
  return o;
}

/* Step 3.  o = numerators . v / sum, for a tile of rows and a chunk of the value dimension.  Grid: (tile, dim chunk). */
CLATTN_CPU_KERNEL void weighted_sum(const clattn_params p, const clattn_round round,
                                    __global const CLATTN_TYPE(CLATTN_V) *restrict v,
                                    __global const int *restrict table, __global const int *restrict entries,
                                    __global const float *restrict work,
                                    __global CLATTN_TYPE(CLATTN_O) *restrict o CLATTN_V_SCALE_ARG) {
  const int in_round = get_group_id(0);
  const int d0 = get_group_id(1) * CLATTN_DIM_CHUNK;
  const int dims = min(p.v_dim - d0, CLATTN_DIM_CHUNK);
  clattn_tile t;
  clattn_tile_open(&p, entries, table, round.first_tile + in_round, &t);
  __global const float *tile = work + CLATTN_REGION(&p, p.scores_at) + (long)in_round * p.k_stored * CLATTN_ROWS;
  __global const float *sums = work + CLATTN_REGION(&p, p.stats_at) + (long)in_round * CLATTN_ROWS;

  clattn_key_rows rows;
#if CLATTN_IS_QUANTISED(CLATTN_V)
  clattn_key_rows scales;
#endif
  float out[CLATTN_DIM_CHUNK * CLATTN_ROWS];
  for (int x = 0; x < dims * CLATTN_MQ; ++x)
    CLATTN_VSTORE((clattn_v)(0.0f), out + x * CLATTN_LANES);

  for (int j = t.u.keys.lo; j < t.u.keys.hi; j += CLATTN_KEY_BLOCK) {
    const int keys = min(t.u.keys.hi - j, CLATTN_KEY_BLOCK);
    __global const float *numerators = tile + (long)j * CLATTN_ROWS;
    clattn_find_rows(&p, &p.v, &t, j, keys, rows);
#if CLATTN_IS_QUANTISED(CLATTN_V)
    clattn_find_rows(&p, &p.v_scale, &t, j, keys, scales);
#endif
    int d = 0;
    for (; d + CLATTN_ND <= dims; d += CLATTN_ND) {
      clattn_v acc[CLATTN_ND][CLATTN_MQ];
#pragma unroll
      for (int a = 0; a < CLATTN_ND; ++a)
#pragma unroll
        for (int m = 0; m < CLATTN_MQ; ++m)
          acc[a][m] = (clattn_v)(0.0f);
      clattn_weigh_block(&p, v, rows CLATTN_GIVE_VALUE_SCALES, d0 + d, keys, numerators, acc);
#pragma unroll
      for (int a = 0; a < CLATTN_ND; ++a)
#pragma unroll
        for (int m = 0; m < CLATTN_MQ; ++m) {
          float *at = out + (d + a) * CLATTN_ROWS + m * CLATTN_LANES;
          CLATTN_VSTORE(CLATTN_VLOAD(at) + acc[a][m], at);
        }
    }
    for (; d < dims; ++d)
      for (int m = 0; m < CLATTN_MQ; ++m) {
        clattn_v acc = (clattn_v)(0.0f);
        for (int x = 0; x < keys; ++x)
          acc = fma(CLATTN_VLOAD(numerators + x * CLATTN_ROWS + m * CLATTN_LANES),
                    (clattn_v)(CLATTN_LOAD(CLATTN_V)(v, rows[x] + (d0 + d) * p.v.element) *
                               CLATTN_SCALE_OF_VALUE(&p, scales[x], d0 + d)),
                    acc);
        float *at = out + d * CLATTN_ROWS + m * CLATTN_LANES;
        CLATTN_VSTORE(CLATTN_VLOAD(at) + acc, at);
      }
  }

  for (int lane = 0; lane < CLATTN_ROWS; ++lane) {
    if (!clattn_lane_exists(&t, lane))
      break;
    const float sum = sums[lane];
    const long to = clattn_row(&p.o, t.u.b, t.h[lane], clattn_lane_at(&t, lane));
    for (int d = 0; d < dims; ++d) {
      float x = out[d * CLATTN_ROWS + lane];
      if (x != x && sum == sum && sum != 0.0f)
        x = clattn_weigh_kept(&p, v, &t, lane, d0 + d, tile CLATTN_GIVE_V_SCALE);
      CLATTN_STORE(CLATTN_O)(o, to + (d0 + d) * p.o.element, clattn_result(sum, x));
    }
  }
}

#include "common.cl.h"
