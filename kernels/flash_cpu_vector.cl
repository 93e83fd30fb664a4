/* SPDX-License-Identifier: Apache-2.0 */
/* Fused attention for CPU devices: scores, online softmax and weighted sum of a tile of query rows in one pass over the
 * keys, with no score matrix in memory.  Queries are in vector lanes (lanes_tile.cl.h), work-group size 1, no local memory,
 * no barrier.
 *
 * Method: online softmax (M. Milakov, N. Gimelshein, 2018) over key blocks (T. Dao et al., FlashAttention, 2022). */
#include "lanes_tile.cl.h"

/* What a tile has accumulated so far. */
typedef struct clattn_running {
  clattn_v top[CLATTN_MQ];   /* largest score */
  clattn_v sum[CLATTN_MQ];   /* of exp(s - top) */
  clattn_v logit[CLATTN_MQ]; /* largest raw score over kept pairs */
} clattn_running;

/* Scores become numerators relative to the new maximum; what was there before is to be scaled by shrink[]. */
static inline void clattn_online_softmax(int keys, float *block, const clattn_v top[CLATTN_MQ], clattn_running *run,
                                         clattn_v shrink[CLATTN_MQ]) {
  for (int m = 0; m < CLATTN_MQ; ++m) {
    const clattn_v old = run->top[m];
    /* equal maxima, -inf and +inf among them, scale by 1: a difference of infinities would be NaN */
    shrink[m] = old == top[m] ? (clattn_v)(1.0f) : clattn_exp(old - top[m]);
    run->top[m] = top[m];
    clattn_v part = (clattn_v)(0.0f);
    for (int x = 0; x < keys; ++x) {
      float *at = block + x * CLATTN_ROWS + m * CLATTN_LANES;
      const clattn_v e = clattn_numerator(CLATTN_VLOAD(at), top[m]);
      part += e;
      CLATTN_VSTORE(e, at);
    }
    run->sum[m] = fma(run->sum[m], shrink[m], part);
  }
}

/* out[d][lane] = out[d][lane] * shrink + numerators . v over one block of keys. */
static inline void clattn_weigh_block(const clattn_params *p, __global const float *values, int keys,
                                      const float *numerators, const clattn_v shrink[CLATTN_MQ], float *out) {
  int d = 0;
  for (; d + CLATTN_ND <= p->v_dim; d += CLATTN_ND) {
    clattn_v acc[CLATTN_ND][CLATTN_MQ];
    __global const float *from = values + d * p->v.element;
#pragma unroll
    for (int a = 0; a < CLATTN_ND; ++a)
#pragma unroll
      for (int m = 0; m < CLATTN_MQ; ++m)
        acc[a][m] = (clattn_v)(0.0f);
    for (int x = 0; x < keys; ++x) {
      clattn_v w[CLATTN_MQ];
#pragma unroll
      for (int m = 0; m < CLATTN_MQ; ++m)
        w[m] = CLATTN_VLOAD(numerators + x * CLATTN_ROWS + m * CLATTN_LANES);
#pragma unroll
      for (int a = 0; a < CLATTN_ND; ++a) {
        const clattn_v y = (clattn_v)(from[x * p->v.row + a * p->v.element]);
#pragma unroll
        for (int m = 0; m < CLATTN_MQ; ++m)
          acc[a][m] = fma(w[m], y, acc[a][m]);
      }
    }
#pragma unroll
    for (int a = 0; a < CLATTN_ND; ++a)
#pragma unroll
      for (int m = 0; m < CLATTN_MQ; ++m) {
        float *at = out + (d + a) * CLATTN_ROWS + m * CLATTN_LANES;
        CLATTN_VSTORE(fma(CLATTN_VLOAD(at), shrink[m], acc[a][m]), at);
      }
  }
  for (; d < p->v_dim; ++d)
    for (int m = 0; m < CLATTN_MQ; ++m) {
      clattn_v acc = (clattn_v)(0.0f);
      for (int x = 0; x < keys; ++x)
        acc = fma(CLATTN_VLOAD(numerators + x * CLATTN_ROWS + m * CLATTN_LANES),
                  (clattn_v)(values[x * p->v.row + d * p->v.element]), acc);
      float *at = out + d * CLATTN_ROWS + m * CLATTN_LANES;
      CLATTN_VSTORE(fma(CLATTN_VLOAD(at), shrink[m], acc), at);
    }
}

/* The same without touching the values of excluded keys: 0 * NaN is NaN. */
static inline void clattn_weigh_kept(const clattn_params *p, __global const float *values, int keys,
                                     const float *numerators, const clattn_v shrink[CLATTN_MQ], float *out) {
  for (int d = 0; d < p->v_dim; ++d)
    for (int m = 0; m < CLATTN_MQ; ++m) {
      clattn_v acc = (clattn_v)(0.0f);
      for (int x = 0; x < keys; ++x) {
        const clattn_v w = CLATTN_VLOAD(numerators + x * CLATTN_ROWS + m * CLATTN_LANES);
        const clattn_v more = fma(w, (clattn_v)(values[x * p->v.row + d * p->v.element]), acc);
        acc = CLATTN_AS_VI(w) == (clattn_vi)(CLATTN_EXCLUDED_BITS) ? acc : more;
      }
      float *at = out + d * CLATTN_ROWS + m * CLATTN_LANES;
      CLATTN_VSTORE(fma(CLATTN_VLOAD(at), shrink[m], acc), at);
    }
}

/* Grid: (tile). */
CLATTN_CPU_KERNEL void flash(const clattn_params p, const clattn_round round, __global const float *restrict q,
                             __global const float *restrict k, __global const float *restrict v,
                             __global const float *restrict bias, __global const uchar *restrict mask,
                             __global const int *restrict lengths, __global float *restrict work,
                             __global float *restrict o, __global float *restrict lse,
                             __global float *restrict scores) {
  clattn_tile t;
  clattn_tile_open(&p, lengths, round.first_tile + (int)get_group_id(0), &t);
  const clattn_score_tensors in = {k, bias, mask, scores, CLATTN_SCORES_NONE};
  float queries[CLATTN_DIM * CLATTN_ROWS];
  float out[CLATTN_DIM * CLATTN_ROWS];
  float block[CLATTN_KEY_BLOCK * CLATTN_ROWS];
  clattn_running run;
  if (p.qk_dim <= CLATTN_DIM)
    clattn_load_queries(&p, q, &t, 0, p.qk_dim, queries);

  /* The second round, with selects, only if some result is NaN without cause in its weights. */
  const int dims = p.rules & CLATTN_RULE_OUT ? p.v_dim : 0;
  for (int careful = 0; careful < 2; ++careful) {
    for (int m = 0; m < CLATTN_MQ; ++m) {
      run.top[m] = run.logit[m] = (clattn_v)(-INFINITY);
      run.sum[m] = (clattn_v)(0.0f);
    }
    for (int x = 0; x < dims * CLATTN_MQ; ++x)
      CLATTN_VSTORE((clattn_v)(0.0f), out + x * CLATTN_LANES);

    for (int j = t.keys.lo; j < t.keys.hi; j += CLATTN_KEY_BLOCK) {
      const int keys = min(t.keys.hi - j, CLATTN_KEY_BLOCK);
      clattn_v top[CLATTN_MQ], shrink[CLATTN_MQ];
      for (int m = 0; m < CLATTN_MQ; ++m)
        top[m] = run.top[m];
      clattn_products(&p, q, k, &t, j, keys, queries, block);
      clattn_finish_scores(&p, &in, &t, j, keys, block, top, run.logit);
      clattn_online_softmax(keys, block, top, &run, shrink);
      __global const float *values = v + clattn_kv_row(&p.v, t.b, t.h / p.group, j);
      if (dims == 0)
        continue;
      if (careful)
        clattn_weigh_kept(&p, values, keys, block, shrink, out);
      else
        clattn_weigh_block(&p, values, keys, block, shrink, out);
    }

    int odd = 0;
    for (int m = 0; m < CLATTN_MQ; ++m) {
      const clattn_vi sound = run.sum[m] == run.sum[m] && run.sum[m] != (clattn_v)(0.0f);
      for (int d = 0; d < dims; ++d) {
        const clattn_v x = CLATTN_VLOAD(out + d * CLATTN_ROWS + m * CLATTN_LANES);
        odd |= any(sound && x != x);
      }
    }
    if (!odd)
      break;
  }

  float sums[CLATTN_ROWS], tops[CLATTN_ROWS];
  for (int m = 0; m < CLATTN_MQ; ++m) {
    CLATTN_VSTORE(run.sum[m], sums + m * CLATTN_LANES);
    CLATTN_VSTORE(run.top[m], tops + m * CLATTN_LANES);
  }
  for (int lane = 0; lane < CLATTN_ROWS && t.first_row + lane < p.q_len; ++lane) {
    const int i = t.first_row + lane;
    const float sum = sums[lane];
    if (dims > 0) {
      __global float *to = o + clattn_row(&p.o, t.b, t.h, i);
      for (int d = 0; d < dims; ++d)
        to[d * p.o.element] = sum == 0.0f ? 0.0f : out[d * CLATTN_ROWS + lane] / sum;
    }
    if (p.rules & CLATTN_RULE_LSE)
      lse[clattn_row(&p.lse, t.b, t.h, i)] = sum == 0.0f ? -INFINITY : tops[lane] + log(sum);
  }
  if (p.rules & CLATTN_RULE_MAX_LOGIT)
    work[p.maxima_first + round.first_tile + (int)get_group_id(0)] = clattn_lanes_maximum_nan(run.logit);

  /* Scores for the caller are a pass of their own: what was asked for beside o never changes a bit of o. */
  if (p.stage != CLATTN_SCORES_NONE) {
    clattn_score_tensors shown = in;
    shown.stage = p.stage == CLATTN_SCORES_WEIGHTS ? CLATTN_SCORES_NONE : p.stage;
    const int all_pairs = p.stage == CLATTN_SCORES_RAW || p.stage == CLATTN_SCORES_SOFTCAP;
    const int first = all_pairs ? 0 : t.keys.lo, end = all_pairs ? t.entry.k_len : t.keys.hi;
    const float missing = p.stage == CLATTN_SCORES_WEIGHTS ? 0.0f : -INFINITY;
    clattn_v top[CLATTN_MQ], logit[CLATTN_MQ];
    for (int m = 0; m < CLATTN_MQ; ++m) {
      top[m] = logit[m] = (clattn_v)(-INFINITY);
      for (int j = 0; j < p.k_len; ++j)
        if (j < first || j >= end)
          clattn_store_scores(&p, scores, &t, m, j, (clattn_v)(missing), missing);
    }
    for (int j = first; j < end; j += CLATTN_KEY_BLOCK) {
      const int keys = min(end - j, CLATTN_KEY_BLOCK);
      clattn_products(&p, q, k, &t, j, keys, queries, block);
      clattn_finish_scores(&p, &shown, &t, j, keys, block, top, logit);
      for (int x = 0; x < keys && p.stage == CLATTN_SCORES_WEIGHTS; ++x)
        for (int m = 0; m < CLATTN_MQ; ++m) {
          const clattn_v e = clattn_numerator(CLATTN_VLOAD(block + x * CLATTN_ROWS + m * CLATTN_LANES), run.top[m]);
          const clattn_v w = CLATTN_AS_VI(e) == (clattn_vi)(CLATTN_EXCLUDED_BITS) ? (clattn_v)(0.0f) : e / run.sum[m];
          clattn_store_scores(&p, scores, &t, m, j + x, w, 0.0f);
        }
    }
  }
}

#include "three_step_common.cl.h"
