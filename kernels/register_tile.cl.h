/* SPDX-License-Identifier: Apache-2.0 */
/* Products of a fused tile: what an item reads of local memory is four numbers at a time, and enough of them meet in its
 * registers that multiplying takes longer than reading.
 *
 * An item has 8 rows x CLATTN_KC keys of the scores and 8 rows x CLATTN_VC elements of the results.  Everything in local
 * memory lies in rows along the axis that products sum over, padded by four numbers so that items side by side read
 * different banks.  Row r of an item is 8 gy + r; its keys and elements come in fours, GX fours apart. */
#ifndef CLATTN_REGISTER_TILE_CL_H
#define CLATTN_REGISTER_TILE_CL_H

#include "group_tile.cl.h"

#ifndef CLATTN_KC /* 4 or 8 */
#define CLATTN_KC 4
#endif
#ifndef CLATTN_VC /* 4 or 8 */
#define CLATTN_VC 4
#endif
#define CLATTN_KEYS (CLATTN_GX * CLATTN_KC)   /* of a tile */
#define CLATTN_VALUES (CLATTN_GX * CLATTN_VC) /* elements of one work-group */
#define CLATTN_FOURS (CLATTN_STEP / 4)
#define CLATTN_LINE_FOURS (CLATTN_FOURS + 1)
#define CLATTN_WEIGHT_FOURS (CLATTN_KEYS / 4 + 1)
#define CLATTN_STRIDE (CLATTN_ITEMS / CLATTN_FOURS) /* rows that all items read a step of at a time */
#define CLATTN_KEY_FOURS (CLATTN_KEYS * CLATTN_LINE_FOURS)
#define CLATTN_VALUE_FOURS (CLATTN_STEP * CLATTN_VALUES / 4)
#if CLATTN_KEY_FOURS > CLATTN_VALUE_FOURS
#define CLATTN_SHARED_FOURS CLATTN_KEY_FOURS
#else
#define CLATTN_SHARED_FOURS CLATTN_VALUE_FOURS
#endif

/* What the products need of local memory, so that their kernel declares one thing. */
typedef struct clattn_register_scratch {
  float4 queries[CLATTN_ROWS][CLATTN_LINE_FOURS];
  float4 keys[CLATTN_SHARED_FOURS]; /* or values, never both at a time */
  float4 weights[CLATTN_ROWS][CLATTN_WEIGHT_FOURS];
  long q_row[CLATTN_ROWS], kv_row[CLATTN_KEYS]; /* where rows start; of k, then of v */
#if CLATTN_IS_QUANTISED(CLATTN_K) || CLATTN_IS_QUANTISED(CLATTN_V)
  long scale_row[CLATTN_KEYS];
#endif
#if CLATTN_COSINE
  clattn_norm q_norm[CLATTN_ROWS], k_norm[CLATTN_KEYS];
#endif
#if CLATTN_ROPE
  long q_line[CLATTN_ROWS], k_line[CLATTN_KEYS]; /* in the tables */
#endif
#if CLATTN_ADDITIVE
  float factors[CLATTN_STEP][CLATTN_ROWS + CLATTN_PAD]; /* w of each row's head */
  long w_row[CLATTN_ROWS];                              /* where it starts */
#endif
  int zero; /* CLATTN_ANEW */
} clattn_register_scratch;

/* x, which compilers cannot know: what rarely used code makes of it they make there, rather than keep it in registers
 * through the loops, of which there are too few. */
#define CLATTN_ANEW(s, x) ((x) + (s)->zero)

#if CLATTN_IS_QUANTISED(CLATTN_K) || CLATTN_IS_QUANTISED(CLATTN_V)
#define CLATTN_SCALE_ROW(s, x) ((s)->scale_row[x])
#else
#define CLATTN_SCALE_ROW(s, x) 0
#endif

/* Every row of a block of n columns moves up by one, the first one to the end: clattn_turn_rows says why. */
#define CLATTN_TURN(acc, n)                                                                                            \
  _Pragma("unroll") for (int c = 0; c < (n); ++c) {                                                                    \
    const float first_row = (acc)[0][c];                                                                               \
    _Pragma("unroll") for (int y = 0; y < 7; ++y)(acc)[y][c] = (acc)[y + 1][c];                                        \
    (acc)[7][c] = first_row;                                                                                           \
  }                                                                                                                    \
  (void)0

/* Four sums, one factor. */
#define CLATTN_MAD4(left, right, sums)                                                                                 \
  (sums)[0] = CLATTN_MAD(left, (right).x, (sums)[0]);                                                                  \
  (sums)[1] = CLATTN_MAD(left, (right).y, (sums)[1]);                                                                  \
  (sums)[2] = CLATTN_MAD(left, (right).z, (sums)[2]);                                                                  \
  (sums)[3] = CLATTN_MAD(left, (right).w, (sums)[3])

/* Where the keys of an item lie among the lines of a step: its c-th key is line c GX + gx, next to its neighbours'. */
static inline int clattn_place_of(int key) {
  return (key / (4 * CLATTN_GX) * 4 + key % 4) * CLATTN_GX + key % (4 * CLATTN_GX) / 4;
}

/* The tile's query rows, once. */
static inline void clattn_find_queries(const clattn_params *p, const clattn_inputs *in,
                                       __global const CLATTN_TYPE(CLATTN_Q) * q, __local const clattn_unit *unit,
                                       int item, __local clattn_register_scratch *s) {
  const clattn_unit u = *unit;
  for (int r = item; r < CLATTN_ROWS; r += CLATTN_ITEMS) {
    s->q_row[r] = clattn_query_row(p, &p->q, &u, r);
#if CLATTN_ADDITIVE
    s->w_row[r] = p->add_w_first + clattn_unit_head(p, &u, r) * p->add_w_head;
#endif
#if CLATTN_ROPE
    s->q_line[r] = clattn_line_of_query(p, in, u.b, u.entry, clattn_real_row(&u, clattn_unit_row(p, &u, r)));
#endif
#if CLATTN_COSINE
    s->q_norm[r] = clattn_norm_of_q(p, in, q, s->q_row[r], CLATTN_LINE(s->q_line[r]));
#endif
  }
  (void)in, (void)q;
}

/* The rows of the keys of a non-empty interval.  Past its end stands its last key again: what comes of it is excluded. */
static inline void clattn_find_keys(const clattn_params *p, const clattn_inputs *in, __local const clattn_unit *unit,
                                    clattn_interval j, int item, __local clattn_register_scratch *s) {
  const clattn_unit u = *unit;
  for (int c = CLATTN_ANEW(s, item); c < CLATTN_KEYS && j.lo < j.hi; c += CLATTN_ITEMS) {
    const int key = min(j.lo + c, j.hi - 1);
    s->kv_row[c] = clattn_kv_row(p, &p->k, u.kv, key);
#if CLATTN_IS_QUANTISED(CLATTN_K)
    s->scale_row[c] = clattn_scales_of_key(p, u.kv, key);
#endif
#if CLATTN_ROPE
    s->k_line[c] = clattn_line_of_key(p, in, u.kv, key);
#endif
#if CLATTN_COSINE
    s->k_norm[c] = clattn_norm_of_k(p, in, s->kv_row[c], CLATTN_SCALE_ROW(s, c), CLATTN_LINE(s->k_line[c]));
#endif
  }
  (void)in;
}

/* The same of their values. */
static inline void clattn_find_values(const clattn_params *p, __local const clattn_unit *unit, clattn_interval j,
                                      int item, __local clattn_register_scratch *s) {
  const clattn_unit u = *unit;
  for (int c = CLATTN_ANEW(s, item); c < CLATTN_KEYS && j.lo < j.hi; c += CLATTN_ITEMS) {
    const int key = min(j.lo + c, j.hi - 1);
    s->kv_row[c] = clattn_kv_row(p, &p->v, u.kv, key);
#if CLATTN_IS_QUANTISED(CLATTN_V)
    s->scale_row[c] = clattn_kv_row(p, &p->v_scale, u.kv, key);
#endif
  }
}

/* Element d of a row of q, of k, of v. */
static inline float clattn_tile_query(const clattn_params *p, const clattn_inputs *in,
                                      __global const CLATTN_TYPE(CLATTN_Q) * q,
                                      __local const clattn_register_scratch *s, int r, int d) {
  const float y = clattn_q_element(p, in, q, s->q_row[r], CLATTN_LINE(s->q_line[r]), d);
#if CLATTN_COSINE
  return clattn_normed(s->q_norm[r], y);
#else
  return y;
#endif
}

static inline float clattn_tile_key(const clattn_params *p, const clattn_inputs *in,
                                    __local const clattn_register_scratch *s, int c, int d) {
  const float y = clattn_k_element(p, in, s->kv_row[c], CLATTN_SCALE_ROW(s, c), CLATTN_LINE(s->k_line[c]), d);
#if CLATTN_COSINE
  return clattn_normed(s->k_norm[c], y);
#else
  return y;
#endif
}

static inline float clattn_tile_value(const clattn_params *p, __global const CLATTN_TYPE(CLATTN_V) * v,
                                      __local const clattn_register_scratch *s, int c, int d CLATTN_V_SCALE_ARG) {
  const float y = CLATTN_LOAD(CLATTN_V)(v, s->kv_row[c] + d * p->v.element);
#if CLATTN_IS_QUANTISED(CLATTN_V)
  return y * clattn_v_scale(p, v_scale, s->scale_row[c], d);
#else
  return y;
#endif
}

/* Whether elements of k and q are used as they are stored. */
#define CLATTN_AS_STORED (!CLATTN_ROPE && !CLATTN_COSINE && !CLATTN_ADDITIVE)

/* One step of q and k into local memory; elements from `dims` on are 0.  Neighbouring items read neighbouring
 * elements. */
static inline void clattn_load_step(const clattn_params *p, const clattn_inputs *in,
                                    __global const CLATTN_TYPE(CLATTN_Q) * q, int d0, int dims, int item,
                                    __local clattn_register_scratch *s) {
#if CLATTN_AS_STORED && !CLATTN_IS_QUANTISED(CLATTN_K)
  if (d0 + CLATTN_STEP <= dims && p->q.element == 1 && p->k.element == 1) {
    const int r = item / CLATTN_FOURS, f = item % CLATTN_FOURS;
#pragma unroll
    for (int y = 0; y < CLATTN_ROWS * CLATTN_FOURS / CLATTN_ITEMS; ++y)
      s->queries[r + y * CLATTN_STRIDE][f] = CLATTN_LOADN(4, CLATTN_Q)(q, s->q_row[r + y * CLATTN_STRIDE] + d0 + f * 4);
#pragma unroll
    for (int y = 0; y < CLATTN_KEYS * CLATTN_FOURS / CLATTN_ITEMS; ++y)
      s->keys[clattn_place_of(r + y * CLATTN_STRIDE) * CLATTN_LINE_FOURS + f] =
          CLATTN_LOADN(4, CLATTN_K)(in->k, s->kv_row[r + y * CLATTN_STRIDE] + d0 + f * 4);
    return;
  }
#endif
  CLATTN_ROLLED
  for (int x = CLATTN_ANEW(s, item); x < CLATTN_ROWS * CLATTN_STEP; x += CLATTN_ITEMS) {
    const int e = x % CLATTN_STEP, r = x / CLATTN_STEP;
    ((__local float *)s->queries[r])[e] = d0 + e < dims ? clattn_tile_query(p, in, q, s, r, d0 + e) : 0.0f;
#if CLATTN_ADDITIVE
    s->factors[e][r] = d0 + e < dims ? in->add_w[s->w_row[r] + (d0 + e) * p->add_w_element] : 0.0f;
#endif
  }
  CLATTN_ROLLED
  for (int x = CLATTN_ANEW(s, item); x < CLATTN_KEYS * CLATTN_STEP; x += CLATTN_ITEMS) {
    const int e = x % CLATTN_STEP, c = x / CLATTN_STEP;
    ((__local float *)(s->keys + clattn_place_of(c) * CLATTN_LINE_FOURS))[e] =
        d0 + e < dims ? clattn_tile_key(p, in, s, c, d0 + e) : 0.0f;
  }
}

/* acc[r][c] += similarity of one step. */
static inline void clattn_score_step(__local const clattn_register_scratch *s, int gx, int gy,
                                     float acc[8][CLATTN_KC]) {
#if CLATTN_ADDITIVE /* rolled: tanh so many times over is a lot of code */
  CLATTN_ROLLED
  for (int r = 0; r < 8; ++r) {
    CLATTN_ROLLED
    for (int x = 0; x < CLATTN_STEP; ++x) {
      const float left = ((__local const float *)s->queries[gy * 8 + r])[x], w = s->factors[x][gy * 8 + r];
#pragma unroll
      for (int c = 0; c < CLATTN_KC; ++c) {
        __local const float *line = (__local const float *)(s->keys + (c * CLATTN_GX + gx) * CLATTN_LINE_FOURS);
        acc[0][c] = fma(w, clattn_tanh(left + line[x]), acc[0][c]);
      }
    }
    CLATTN_TURN(acc, CLATTN_KC);
  }
#else
  CLATTN_ROLLED
  for (int f = 0; f < CLATTN_FOURS; ++f) {
    float4 right[CLATTN_KC];
#pragma unroll
    for (int c = 0; c < CLATTN_KC; ++c)
      right[c] = s->keys[(c * CLATTN_GX + gx) * CLATTN_LINE_FOURS + f];
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      const float4 left = s->queries[gy * 8 + r][f];
#pragma unroll
      for (int c = 0; c < CLATTN_KC; ++c) { /* in the order of flash_scores, whose products must be the same */
        acc[r][c] = CLATTN_MAD(left.x, right[c].x, acc[r][c]);
        acc[r][c] = CLATTN_MAD(left.y, right[c].y, acc[r][c]);
        acc[r][c] = CLATTN_MAD(left.z, right[c].z, acc[r][c]);
        acc[r][c] = CLATTN_MAD(left.w, right[c].w, acc[r][c]);
      }
    }
  }
#endif
}

/* acc = similarity of q and k over the first `dims` elements, for the tile's rows and the keys that clattn_find_keys
 * found; all items call it. */
static inline void clattn_score_tile(const clattn_params *p, const clattn_inputs *in,
                                     __global const CLATTN_TYPE(CLATTN_Q) * q, int dims, int gx, int gy,
                                     __local clattn_register_scratch *s, float acc[8][CLATTN_KC]) {
#pragma unroll
  for (int r = 0; r < 8; ++r)
#pragma unroll
    for (int c = 0; c < CLATTN_KC; ++c)
      acc[r][c] = 0.0f;
  int d0 = 0;
  do {
    clattn_load_step(p, in, q, d0, dims, gy * CLATTN_GX + gx, s);
    barrier(CLK_LOCAL_MEM_FENCE);
    clattn_score_step(s, gx, gy, acc);
    barrier(CLK_LOCAL_MEM_FENCE);
    d0 += CLATTN_STEP;
  } while (d0 < dims);
}

/* Values of CLATTN_STEP keys from x0 on into local memory, CLATTN_VALUES elements from d0 on; those from `dims` on, and
 * of keys from `end` on, are 0.  Returns 0, or NaN if there is NaN or infinity among them. */
static inline float clattn_load_values(const clattn_params *p, __global const CLATTN_TYPE(CLATTN_V) * v, int x0,
                                       int end, int d0, int dims, int item,
                                       __local clattn_register_scratch *s CLATTN_V_SCALE_ARG) {
  float odd = 0.0f;
#if !CLATTN_IS_QUANTISED(CLATTN_V)
  if (d0 + CLATTN_VALUES <= dims && end > 0 && p->v.element == 1) {
    const int fours = CLATTN_VALUES / 4;
    float4 many = (float4)(0.0f);
#pragma unroll
    for (int i = 0; i < CLATTN_STEP * fours / CLATTN_ITEMS; ++i) {
      const float4 y = CLATTN_LOADN(4, CLATTN_V)(v, s->kv_row[x0 + item / fours + i * (CLATTN_ITEMS / fours)] + d0 +
                                                        item % fours * 4);
      s->keys[item + i * CLATTN_ITEMS] = y;
      many = fma(y, (float4)(0.0f), many);
    }
    return many.x + many.y + many.z + many.w;
  }
#endif
  CLATTN_ROLLED
  for (int x = CLATTN_ANEW(s, item); x < CLATTN_STEP * CLATTN_VALUES; x += CLATTN_ITEMS) {
    const int c = x0 + x / CLATTN_VALUES, d = d0 + x % CLATTN_VALUES;
    const float y = c < end && d < dims ? clattn_tile_value(p, v, s, c, d CLATTN_GIVE_V_SCALE) : 0.0f;
    ((__local float *)s->keys)[x] = y;
    odd = fma(y, 0.0f, odd);
  }
  return odd;
}

/* acc[r][c] += numerators of CLATTN_STEP keys from x0 on * their values. */
static inline void clattn_weigh_step(__local const clattn_register_scratch *s, int x0, int gx, int gy,
                                     float acc[8][CLATTN_VC]) {
  CLATTN_ROLLED
  for (int f = 0; f < 2 * CLATTN_FOURS; ++f) { /* two keys at a time: registers are scarce here */
    float4 right[2][CLATTN_VC / 4];
#pragma unroll
    for (int x = 0; x < 2; ++x)
#pragma unroll
      for (int c = 0; c < CLATTN_VC / 4; ++c)
        right[x][c] = s->keys[(f * 2 + x) * (CLATTN_VALUES / 4) + c * CLATTN_GX + gx];
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      const float2 left = ((__local const float2 *)s->weights[gy * 8 + r])[x0 / 2 + f];
#pragma unroll
      for (int c = 0; c < CLATTN_VC / 4; ++c) {
        CLATTN_MAD4(left.x, right[0][c], acc[r] + 4 * c);
        CLATTN_MAD4(left.y, right[1][c], acc[r] + 4 * c);
      }
    }
  }
}

/* The same without the values of excluded keys: 0 * NaN is NaN.  Rarely needed, so short rather than fast: the rows of
 * the block take turns in its first one. */
static inline void clattn_weigh_kept(__local const clattn_register_scratch *s, int x0, int gx, int gy,
                                     float acc[8][CLATTN_VC]) {
  gx = CLATTN_ANEW(s, gx);
  gy = CLATTN_ANEW(s, gy);
  CLATTN_ROLLED
  for (int r = 0; r < 8; ++r) {
    CLATTN_ROLLED
    for (int x = 0; x < CLATTN_STEP; ++x) {
      const float left = ((__local const float *)s->weights[gy * 8 + r])[x0 + x];
      const int kept = as_int(left) != CLATTN_EXCLUDED_BITS;
#pragma unroll
      for (int c = 0; c < CLATTN_VC; ++c) {
        const int at = (x * (CLATTN_VALUES / 4) + c / 4 * CLATTN_GX + gx) * 4 + c % 4;
        const float more = CLATTN_MAD(left, ((__local const float *)s->keys)[at], acc[0][c]);
        acc[0][c] = kept ? more : acc[0][c];
      }
    }
    CLATTN_TURN(acc, CLATTN_VC);
  }
}

#endif
