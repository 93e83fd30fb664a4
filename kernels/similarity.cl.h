/* SPDX-License-Identifier: Apache-2.0 */
/* Keys and queries as they meet: multiplied by the scales of quantised ones, turned, divided by the cosine's norms. */
#ifndef CLATTN_SIMILARITY_CL_H
#define CLATTN_SIMILARITY_CL_H

#include "inputs.cl.h"
#include "kv.cl.h"
#include "rope.cl.h"

/* The scale of element d of a quantised row whose scales start at `at`; 1 of other types. */
static inline float clattn_k_scale(const clattn_params *p, const clattn_inputs *in, long at, int d) {
#if CLATTN_NUMBER(CLATTN_K) == CLATTN_IS_i8
  (void)p, (void)d;
  return CLATTN_LOAD(CLATTN_K_SCALE)(in->k_scale, at);
#elif CLATTN_NUMBER(CLATTN_K) == CLATTN_IS_i4
  return CLATTN_LOAD(CLATTN_K_SCALE)(in->k_scale, at + d / CLATTN_GROUP * p->k_scale.element);
#else
  (void)p, (void)in, (void)at, (void)d;
  return 1.0f;
#endif
}

/* Where the scales of key j start. */
static inline long clattn_scales_of_key(const clattn_params *p, clattn_kv kv, int j) {
#if CLATTN_IS_QUANTISED(CLATTN_K)
  return clattn_kv_row(p, &p->k_scale, kv, j);
#else
  (void)p, (void)kv, (void)j;
  return 0;
#endif
}

/* Element d of the row of q at `at`, whose line in the tables is `line`. */
static inline float clattn_q_element(const clattn_params *p, const clattn_inputs *in,
                                     __global const CLATTN_TYPE(CLATTN_Q) * q, long at, long line, int d) {
  const float x = CLATTN_LOAD(CLATTN_Q)(q, at + d * p->q.element);
#if CLATTN_ROPE
  if (d < in->rope.dim)
    return clattn_turned(in, line, d, x, CLATTN_LOAD(CLATTN_Q)(q, at + clattn_other_of(in, d) * p->q.element));
#else
  (void)in, (void)line;
#endif
  return x;
}

/* The same of k; its scales start at scale_at. */
static inline float clattn_k_element(const clattn_params *p, const clattn_inputs *in, long at, long scale_at, long line,
                                     int d) {
  const float x = CLATTN_LOAD(CLATTN_K)(in->k, at + d * p->k.element) * clattn_k_scale(p, in, scale_at, d);
#if CLATTN_ROPE
  if (d < in->rope.dim) {
    const int other = clattn_other_of(in, d);
    return clattn_turned(in, line, d, x,
                         CLATTN_LOAD(CLATTN_K)(in->k, at + other * p->k.element) *
                             clattn_k_scale(p, in, scale_at, other));
  }
#else
  (void)line;
#endif
  return x;
}

#if CLATTN_IS_QUANTISED(CLATTN_V)
static inline float clattn_v_scale(const clattn_params *p, __global const CLATTN_TYPE(CLATTN_V_SCALE) * scales, long at,
                                   int d) {
  const int group = CLATTN_NUMBER(CLATTN_V) == CLATTN_IS_i4 ? d / CLATTN_GROUP : 0;
  return CLATTN_LOAD(CLATTN_V_SCALE)(scales, at + group * p->v_scale.element);
}
#endif

#if CLATTN_COSINE

/* x / max(|x|, 1e-12) is (x * by) / size: `by` is 1, or a power of two that keeps the squares of a huge row from
 * overflowing. */
typedef struct clattn_norm {
  float by, size;
} clattn_norm;
#define CLATTN_SHRINK 0x1p-96f
#define CLATTN_SMALLEST_NORM 1e-12f

static inline float clattn_normed(clattn_norm norm, float x) {
  return x * norm.by / norm.size;
}

/* Whether squares came near overflow, so that they must be summed once more, shrunk. */
static inline int clattn_overflows(float squares) {
  return squares > 1e37f;
}

static inline clattn_norm clattn_norm_from(float squares, float by) {
  clattn_norm norm;
  norm.by = by;
  norm.size = sqrt(squares);
  const float least = CLATTN_SMALLEST_NORM * by;
  norm.size = norm.size < least ? least : norm.size; /* NaN stays */
  return norm;
}

static inline clattn_norm clattn_norm_of_q(const clattn_params *p, const clattn_inputs *in,
                                           __global const CLATTN_TYPE(CLATTN_Q) * q, long at, long line) {
  float by = 1.0f, squares = 0.0f;
  for (int round = 0; round < 2; ++round) {
    squares = 0.0f;
    for (int d = 0; d < p->qk_dim; ++d) {
      const float x = clattn_q_element(p, in, q, at, line, d) * by;
      squares = fma(x, x, squares);
    }
    if (by != 1.0f || !clattn_overflows(squares))
      break;
    by = CLATTN_SHRINK;
  }
  return clattn_norm_from(squares, by);
}

/* Of the row of k at `at`, its scales at scale_at. */
static inline clattn_norm clattn_norm_of_k(const clattn_params *p, const clattn_inputs *in, long at, long scale_at,
                                           long line) {
  float by = 1.0f, squares = 0.0f;
  for (int round = 0; round < 2; ++round) {
    float16 many = (float16)(0.0f); /* the same order for every stride */
    int d = 0;
    for (; d + 16 <= p->qk_dim; d += 16) {
      float16 x;
#if CLATTN_ROPE
      float one[16];
      for (int e = 0; e < 16; ++e)
        one[e] = clattn_k_element(p, in, at, scale_at, line, d + e) * by;
      x = vload16(0, one);
#else
      if (p->k.element == 1)
        x = CLATTN_LOADN(16, CLATTN_K)(in->k, at + d);
      else {
        float one[16];
        for (int e = 0; e < 16; ++e)
          one[e] = CLATTN_LOAD(CLATTN_K)(in->k, at + (d + e) * p->k.element);
        x = vload16(0, one);
      }
      x *= (float16)(clattn_k_scale(p, in, scale_at, d) * by);
#endif
      many = fma(x, x, many);
    }
    squares = clattn_sum_of(many);
    for (; d < p->qk_dim; ++d) {
      const float x = clattn_k_element(p, in, at, scale_at, line, d) * by;
      squares = fma(x, x, squares);
    }
    if (by != 1.0f || !clattn_overflows(squares))
      break;
    by = CLATTN_SHRINK;
  }
  return clattn_norm_from(squares, by);
}

#endif
#endif
