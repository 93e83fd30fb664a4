/* SPDX-License-Identifier: Apache-2.0 */
/* Fused attention on the matrix units of GPUs (matrix_unit.cl.h), for q, k and v of f16 or bf16: scores, online softmax
 * and weighted sum in one pass over the keys.  Sums are f32, numerators are rounded to v's type for their product.
 *
 * A work-group has CLATTN_SUBS sub-groups, each with CLATTN_HEIGHT tiles of 16 query rows.  They share blocks of
 * CLATTN_KEYS keys and values in local memory: while scores are multiplied the values arrive, and while those are, the
 * next keys.  Scores, numerators and results stay in registers; queries too, unless CLATTN_Q_STAYS leaves them in local
 * memory.
 *
 * A block that a sub-group's rows see nothing of costs it nothing but barriers.  One that they all see, without any other
 * rule, goes from products to numerators by one multiplication, subtraction and power of 2 each; where rows see part of it,
 * a comparison more.  Everything else (bias, masks, ALiBi, softcap, head scales, hooks) takes one number after the other
 * through the functions that all families share.
 *
 * Numerators are relative to a score that is at most CLATTN_SLACK below the largest one: most blocks leave it, and with
 * it the results so far, alone. */
#include "group_tile.cl.h"
#include "matrix_unit.cl.h"

#if CLATTN_UNIT_NUMBER > 0

/* A sum of two products must not become one rounding: where a maximum is subtracted from itself 0 is due. */
#pragma OPENCL FP_CONTRACT OFF

#ifndef CLATTN_HEIGHT
#define CLATTN_HEIGHT 1
#endif
#ifndef CLATTN_Q_STAYS
#define CLATTN_Q_STAYS 0
#endif
/* A function that is called would have the kernel's arguments copied to its stack. */
#define CLATTN_INLINED static inline __attribute__((always_inline))
#define CLATTN_SUB_ROWS (16 * CLATTN_HEIGHT)
#define CLATTN_GROUP_ROWS (CLATTN_SUB_ROWS * CLATTN_SUBS)
#define CLATTN_GROUP_ITEMS (CLATTN_SUB * CLATTN_SUBS)
#define CLATTN_KEY_TILES (CLATTN_KEYS / 16)
#define CLATTN_DIM_TILES (CLATTN_DIM / 16)
/* Rows in local memory: multiples of 16 bytes, eight of them in different banks. */
#define CLATTN_PITCH (CLATTN_DIM + 8)
#if CLATTN_V_TURNED
#define CLATTN_V_PITCH (CLATTN_KEYS + 8)
#define CLATTN_V_WORDS (CLATTN_DIM * CLATTN_V_PITCH)
#else
#define CLATTN_V_PITCH CLATTN_PITCH
#define CLATTN_V_WORDS (CLATTN_KEYS * CLATTN_PITCH)
#endif
#define CLATTN_K_WORDS (CLATTN_KEYS * CLATTN_PITCH)
#define CLATTN_Q_WORDS (CLATTN_GROUP_ROWS * CLATTN_PITCH)
#if CLATTN_Q_STAYS
#define CLATTN_K_AT CLATTN_Q_WORDS
#define CLATTN_LOCAL_WORDS (CLATTN_Q_WORDS + CLATTN_K_WORDS + CLATTN_V_WORDS)
#else
#define CLATTN_K_AT 0
#define CLATTN_LOCAL_WORDS                                                                                             \
  (CLATTN_Q_WORDS > CLATTN_K_WORDS + CLATTN_V_WORDS ? CLATTN_Q_WORDS : CLATTN_K_WORDS + CLATTN_V_WORDS)
#endif

#define CLATTN_SLACK 5.5f /* 2^8, far below the largest f16 */
#define CLATTN_LOG2E 1.44269504f
/* Beyond it the rounding of a product with log2(e) would show. */
#define CLATTN_NEAR 1024.0f

/* A row of a tensor of halves, in steps of 8 elements. */
typedef struct clattn_rows {
  __global const ushort *from;
  long element;
  int dims, wide; /* wide: steps can be read at once */
} clattn_rows;

CLATTN_INLINED clattn_rows clattn_rows_of(__global const ushort *from, const clattn_view *v, int dims) {
  clattn_rows rows;
  const long steps = v->batch | v->head | v->row | v->first | dims;
  rows.from = from;
  rows.element = v->element;
  rows.dims = dims;
  rows.wide = v->element == 1 && (steps & 7) == 0 && ((size_t)from & 15) == 0;
  return rows;
}

/* Elements d to d + 7 of the row at `at`, one by one; those from `dims` on are 0. */
CLATTN_INLINED uint4 clattn_narrow_step(const clattn_rows *rows, long at, int d) {
  uint w[4];
  CLATTN_UNROLLED
  for (int x = 0; x < 4; ++x) {
    const int e = d + 2 * x;
    const uint low = e < rows->dims ? rows->from[at + e * rows->element] : 0;
    const uint high = e + 1 < rows->dims ? rows->from[at + (e + 1) * rows->element] : 0;
    w[x] = low | high << 16;
  }
  return (uint4)(w[0], w[1], w[2], w[3]);
}

CLATTN_INLINED void clattn_copy_step(const clattn_rows *rows, long at, int d, int there, __local ushort *to) {
  if (rows->wide)
    clattn_copy_16(to, rows->from + at + (d < rows->dims ? d : 0), there && d < rows->dims);
  else
    *(__local uint4 *)to = there ? clattn_narrow_step(rows, at, d) : (uint4)(0);
}

#define CLATTN_ROW_STEPS (CLATTN_DIM / 8)

/* The queries of the work-group's rows; those past the end repeat the last one. */
CLATTN_INLINED void clattn_copy_queries(const clattn_params *p, const clattn_rows *q, const clattn_unit *u, int item,
                                        __local ushort *to) {
  CLATTN_ROLLED
  for (int x = item; x < CLATTN_GROUP_ROWS * CLATTN_ROW_STEPS; x += CLATTN_GROUP_ITEMS) {
    const int r = x / CLATTN_ROW_STEPS, d = x % CLATTN_ROW_STEPS * 8;
    clattn_copy_step(q, clattn_query_row(p, &p->q, u, r), d, 1, to + r * CLATTN_PITCH + d);
  }
}

/* Where the row of key x of a block is; past the block's end it is the last one's. */
CLATTN_INLINED long clattn_block_row(const clattn_params *p, const clattn_view *v, const clattn_unit *u,
                                     clattn_interval j, int x) {
  return clattn_kv_row(p, v, u->kv, max(min(j.lo + x, j.hi - 1), 0));
}

/* Keys or values of a block, row by row; those past its end are 0. */
CLATTN_INLINED void clattn_copy_block(const clattn_params *p, const clattn_view *v, const clattn_rows *rows,
                                      const clattn_unit *u, clattn_interval j, int item, __local ushort *to) {
  if (rows->wide && p->page_size == 0) {
    __global const ushort *const from = rows->from + clattn_kv_row(p, v, u->kv, j.lo);
    const int count = j.hi - j.lo;
    CLATTN_ROLLED /* unrolled, it would have an address for each step */
        for (int x = item; x < CLATTN_KEYS * CLATTN_ROW_STEPS; x += CLATTN_GROUP_ITEMS) {
      const int r = x / CLATTN_ROW_STEPS, d = x % CLATTN_ROW_STEPS * 8, there = r < count && d < rows->dims;
      clattn_copy_16(to + r * CLATTN_PITCH + d, from + (there ? r * v->row + d : 0), there);
    }
    return;
  }
  CLATTN_ROLLED
  for (int x = item; x < CLATTN_KEYS * CLATTN_ROW_STEPS; x += CLATTN_GROUP_ITEMS) {
    const int r = x / CLATTN_ROW_STEPS, d = x % CLATTN_ROW_STEPS * 8;
    clattn_copy_step(rows, clattn_block_row(p, v, u, j, r), d, j.lo + r < j.hi, to + r * CLATTN_PITCH + d);
  }
}

#if CLATTN_V_TURNED
CLATTN_INLINED uint4 clattn_step_of(const clattn_rows *rows, long at, int d, int there) {
  if (!there || d >= rows->dims)
    return (uint4)(0);
  return rows->wide ? *(__global const uint4 *)(rows->from + at + d) : clattn_narrow_step(rows, at, d);
}

/* Values, element by element.  Neighbours have neighbouring pairs of keys: their stores fall into different banks. */
CLATTN_INLINED void clattn_copy_values(const clattn_params *p, const clattn_rows *rows, const clattn_unit *u,
                                       clattn_interval j, int item, __local ushort *to) {
  CLATTN_ROLLED
  for (int x = item; x < CLATTN_KEYS / 2 * CLATTN_ROW_STEPS; x += CLATTN_GROUP_ITEMS) {
    const int r = x % (CLATTN_KEYS / 2) * 2, d = x / (CLATTN_KEYS / 2) * 8;
    const uint4 a = clattn_step_of(rows, clattn_block_row(p, &p->v, u, j, r), d, j.lo + r < j.hi);
    const uint4 b = clattn_step_of(rows, clattn_block_row(p, &p->v, u, j, r + 1), d, j.lo + r + 1 < j.hi);
    const uint4 even = (a & 0xffffu) | b << 16, odd = a >> 16 | (b & 0xffff0000u);
    __local ushort *at = to + d * CLATTN_V_PITCH + r;
    *(__local uint *)at = even.s0;
    *(__local uint *)(at + CLATTN_V_PITCH) = odd.s0;
    *(__local uint *)(at + 2 * CLATTN_V_PITCH) = even.s1;
    *(__local uint *)(at + 3 * CLATTN_V_PITCH) = odd.s1;
    *(__local uint *)(at + 4 * CLATTN_V_PITCH) = even.s2;
    *(__local uint *)(at + 5 * CLATTN_V_PITCH) = odd.s2;
    *(__local uint *)(at + 6 * CLATTN_V_PITCH) = even.s3;
    *(__local uint *)(at + 7 * CLATTN_V_PITCH) = odd.s3;
  }
}
#define CLATTN_V_TILE(n, d) ((d)*16 * CLATTN_V_PITCH + (n)*16)
#define CLATTN_V_ELEMENT(key, d) ((d)*CLATTN_V_PITCH + (key))
#else
CLATTN_INLINED void clattn_copy_values(const clattn_params *p, const clattn_rows *rows, const clattn_unit *u,
                                       clattn_interval j, int item, __local ushort *to) {
  clattn_copy_block(p, &p->v, rows, u, j, item, to);
}
#define CLATTN_V_TILE(n, d) ((n)*16 * CLATTN_V_PITCH + (d)*16)
#define CLATTN_V_ELEMENT(key, d) ((key)*CLATTN_V_PITCH + (d))
#endif

/* ---- a tile of 16 rows -------------------------------------------------------------------------------------------- */

typedef struct clattn_running {
  float top[CLATTN_STATES]; /* what numerators are relative to */
  float sum[CLATTN_STATES]; /* of this work-item's numerators */
} clattn_running;

/* What the rows that a sub-group has need, and what they all see. */
typedef struct clattn_sight {
  int first; /* row of the work-group */
  int seen_lo, seen_hi;
  int all_lo, all_hi;
  int simple; /* scores are scaled products, and rows see intervals of them */
} clattn_sight;

CLATTN_INLINED clattn_sight clattn_sight_of(const clattn_params *p, const clattn_inputs *in, const clattn_unit *u,
                                            int first) {
  clattn_sight s;
  const int top = clattn_unit_row(p, u, first);
  const int last = min(clattn_unit_row(p, u, first + CLATTN_SUB_ROWS - 1), u->entry.q_rows - 1);
  const clattn_interval seen = clattn_rows_interval(p, u->entry, top, last);
  const int other = CLATTN_RULE_BIAS | CLATTN_RULE_ALIBI | CLATTN_RULE_HEAD_SCALE | CLATTN_RULE_MASK_U8 |
                    CLATTN_RULE_MASK_BITS | CLATTN_RULE_MAX_LOGIT;
  s.first = first;
  s.seen_lo = seen.lo;
  s.seen_hi = seen.hi;
  s.all_lo = clattn_row_lo(p, u->entry, last);
  s.all_hi = last < u->entry.q_len ? clattn_row_hi(p, u->entry, top) : 0;
  s.simple =
      !CLATTN_HOOKED && !(p->rules & other) && in->softcap == 0.0f && in->scale > 0x1p-60f && in->scale < 0x1p60f;
  return s;
}

/* Excludes the keys of a block that rows of the tile do not see. */
CLATTN_INLINED void clattn_cut(const clattn_params *p, const clattn_unit *u, int first, clattn_interval j,
                               clattn_sums s[CLATTN_KEY_TILES]) {
  const int lane = clattn_lane();
  int lo[CLATTN_STATES], hi[CLATTN_STATES];
  CLATTN_UNROLLED
  for (int r = 0; r < CLATTN_STATES; ++r) {
    const int i = clattn_unit_row(p, u, first + clattn_row_at(lane, r));
    lo[r] = clattn_row_lo(p, u->entry, i) - j.lo;
    hi[r] = min(clattn_row_hi(p, u->entry, i), j.hi) - j.lo;
  }
  CLATTN_UNROLLED
  for (int n = 0; n < CLATTN_KEY_TILES; ++n)
    CLATTN_UNROLLED
  for (int e = 0; e < CLATTN_ELEMENTS; ++e) {
    const int x = 16 * n + clattn_column_at(lane, e);
    if (x < lo[clattn_state_of(e)] || x >= hi[clattn_state_of(e)])
      s[n].x[e] = -INFINITY;
  }
}

/* Every element moves up by one, the first one to the end: see clattn_turn_rows. */
CLATTN_INLINED void clattn_turn(clattn_sums s[CLATTN_KEY_TILES]) {
  const float first = s[0].x[0];
  CLATTN_UNROLLED
  for (int x = 0; x < CLATTN_KEY_TILES * CLATTN_ELEMENTS - 1; ++x)
    s[x / CLATTN_ELEMENTS].x[x % CLATTN_ELEMENTS] = s[(x + 1) / CLATTN_ELEMENTS].x[(x + 1) % CLATTN_ELEMENTS];
  s[CLATTN_KEY_TILES - 1].x[CLATTN_ELEMENTS - 1] = first;
}

/* Products become final scores by every rule that there is.  `best`: the largest raw score of each row so far. */
CLATTN_INLINED void clattn_finish_tile(const clattn_params *p, const clattn_inputs *in, const clattn_unit *u, int first,
                                       clattn_interval j, clattn_sums s[CLATTN_KEY_TILES], __local float *best) {
  const int lane = clattn_lane();
  CLATTN_ROLLED
  for (int r = 0; r < CLATTN_STATES; ++r) {
    const int of_group = first + clattn_row_at(lane, r);
    const clattn_row_rules row = clattn_rules_of(p, in, u, of_group);
    float largest = -INFINITY;
    CLATTN_ROLLED
    for (int x = 0; x < CLATTN_KEY_TILES * CLATTN_ELEMENTS; ++x) {
      const int e = x % CLATTN_ELEMENTS;
      if (clattn_state_of(e) == r) {
        const int key = j.lo + x / CLATTN_ELEMENTS * 16 + clattn_column_at(lane, e);
        clattn_pair_score pair = clattn_finish_score(p, in, u, row, key, s[0].x[0]);
        if (key >= j.hi) /* the next block's, or nobody's */
          pair.final = -INFINITY;
        largest = clattn_best_of(largest, pair);
        s[0].x[0] = pair.final;
      }
      clattn_turn(s);
    }
    if (p->rules & CLATTN_RULE_MAX_LOGIT) {
#define CLATTN_BEST(mask) largest = clattn_maximum_nan(largest, clattn_from_mate(largest, mask));
      CLATTN_MATES(CLATTN_BEST)
      if (clattn_column_at(lane, 0) == 0)
        best[of_group] = clattn_maximum_nan(best[of_group], largest);
    }
  }
}

/* Finds what the numerators of a block are relative to, and rescales results if that changes.  `scale` is what scores are
 * multiplied by yet. */
CLATTN_INLINED void clattn_open_tile(const clattn_sums s[CLATTN_KEY_TILES], float scale, clattn_running *run,
                                     clattn_sums o[CLATTN_DIM_TILES]) {
  float shrink[CLATTN_STATES];
  int grown = 0;
  CLATTN_UNROLLED
  for (int r = 0; r < CLATTN_STATES; ++r) {
    float top = -INFINITY;
    CLATTN_UNROLLED
    for (int n = 0; n < CLATTN_KEY_TILES; ++n)
      CLATTN_UNROLLED
    for (int e = 0; e < CLATTN_ELEMENTS; ++e)
      if (clattn_state_of(e) == r)
        top = clattn_larger(top, s[n].x[e]);
#define CLATTN_TOP(mask) top = clattn_larger(top, clattn_from_mate(top, mask));
    CLATTN_MATES(CLATTN_TOP)
    top *= scale;
    shrink[r] = 1.0f;
    if (top > run->top[r] + CLATTN_SLACK) {
      shrink[r] = clattn_power_of_2((run->top[r] - top) * CLATTN_LOG2E);
      run->top[r] = top;
      run->sum[r] *= shrink[r];
      grown = 1;
    }
  }
  if (grown)
    CLATTN_UNROLLED
  for (int d = 0; d < CLATTN_DIM_TILES; ++d)
    CLATTN_UNROLLED
  for (int e = 0; e < CLATTN_ELEMENTS; ++e)
    o[d].x[e] *= shrink[clattn_state_of(e)];
}

/* Scores, still to be multiplied by `scale`, become numerators; sums grow by them. */
CLATTN_INLINED void clattn_weigh_tile(float scale, clattn_running *run, clattn_sums s[CLATTN_KEY_TILES]) {
  float off[CLATTN_STATES], more[CLATTN_STATES];
  int near = 1;
  CLATTN_UNROLLED
  for (int r = 0; r < CLATTN_STATES; ++r) {
    /* where all scores so far are -inf a difference would be NaN */
    off[r] = run->top[r] == -INFINITY ? 0.0f : run->top[r];
    near = near && fabs(off[r]) < CLATTN_NEAR;
    more[r] = 0.0f;
  }
  if (near) {
    const float by = scale * CLATTN_LOG2E;
    CLATTN_UNROLLED
    for (int n = 0; n < CLATTN_KEY_TILES; ++n)
      CLATTN_UNROLLED
    for (int e = 0; e < CLATTN_ELEMENTS; ++e)
      s[n].x[e] = clattn_power_of_2(fma(s[n].x[e], by, off[clattn_state_of(e)] * -CLATTN_LOG2E));
  } else
    CLATTN_UNROLLED
  for (int n = 0; n < CLATTN_KEY_TILES; ++n)
    CLATTN_UNROLLED
  for (int e = 0; e < CLATTN_ELEMENTS; ++e) {
    const float scaled = s[n].x[e] * scale; /* rounded as the maximum was */
    s[n].x[e] = clattn_power_of_2((scaled - off[clattn_state_of(e)]) * CLATTN_LOG2E);
  }
  CLATTN_UNROLLED
  for (int n = 0; n < CLATTN_KEY_TILES; ++n)
    CLATTN_UNROLLED
  for (int e = 0; e < CLATTN_ELEMENTS; ++e)
    more[clattn_state_of(e)] += s[n].x[e];
  CLATTN_UNROLLED
  for (int r = 0; r < CLATTN_STATES; ++r)
    run->sum[r] += more[r];
}

/* Weights and weighted sum of a block by one number after the other, without the values of excluded keys: 0 * NaN is NaN.
 * Rarely needed, so short rather than fast. */
CLATTN_INLINED void clattn_weigh_kept(clattn_local values, clattn_running *run, clattn_sums s[CLATTN_KEY_TILES],
                                      clattn_sums o[CLATTN_DIM_TILES]) {
  const int lane = clattn_lane();
  CLATTN_ROLLED
  for (int x = 0; x < CLATTN_KEY_TILES * CLATTN_ELEMENTS; ++x) {
    CLATTN_UNROLLED
    for (int r = 0; r < CLATTN_STATES; ++r)
      if (clattn_state_of(x % CLATTN_ELEMENTS) == r) {
        s[0].x[0] = clattn_numerator(s[0].x[0], run->top[r]);
        run->sum[r] += s[0].x[0];
      }
    clattn_turn(s);
  }
  CLATTN_ROLLED
  for (int key = 0; key < CLATTN_KEYS; ++key) {
    float weight[CLATTN_STATES];
    CLATTN_UNROLLED
    for (int r = 0; r < CLATTN_STATES; ++r) {
      float w = 0.0f;
      CLATTN_UNROLLED
      for (int e = 0; e < CLATTN_ELEMENTS; ++e)
        w = e == clattn_element_at(r, key % 16) ? s[0].x[e] : w;
      weight[r] = clattn_from_lane(w, clattn_lane_at(lane, key % 16));
    }
    CLATTN_UNROLLED
    for (int d = 0; d < CLATTN_DIM_TILES; ++d)
      CLATTN_UNROLLED
    for (int e = 0; e < CLATTN_ELEMENTS; ++e) {
      const float w = weight[clattn_state_of(e)];
      const float more =
          fma(w, clattn_widen(values + CLATTN_V_ELEMENT(key, 16 * d + clattn_column_at(lane, e))), o[d].x[e]);
      o[d].x[e] = as_int(w) == CLATTN_EXCLUDED_BITS ? o[d].x[e] : more;
    }
    if (key % 16 == 15) /* the next 16 keys */
      CLATTN_UNROLLED
    for (int n = 0; n + 1 < CLATTN_KEY_TILES; ++n)
      s[n] = s[n + 1];
  }
}

/* The sum of each row's numerators. */
CLATTN_INLINED void clattn_join_sums(clattn_running *run) {
  CLATTN_UNROLLED
  for (int r = 0; r < CLATTN_STATES; ++r) {
#define CLATTN_SUM(mask) run->sum[r] += clattn_from_mate(run->sum[r], mask);
    CLATTN_MATES(CLATTN_SUM)
  }
}

/* Whether there are results that are NaN although their sums are not, and not 0. */
CLATTN_INLINED int clattn_is_odd(const clattn_running *run, const clattn_sums o[CLATTN_DIM_TILES]) {
  int odd = 0;
  CLATTN_UNROLLED
  for (int d = 0; d < CLATTN_DIM_TILES; ++d)
    CLATTN_UNROLLED
  for (int e = 0; e < CLATTN_ELEMENTS; ++e) {
    const float sum = run->sum[clattn_state_of(e)];
    odd |= o[d].x[e] != o[d].x[e] && sum == sum && sum != 0.0f;
  }
  return odd;
}

/* Writes a tile's rows. */
CLATTN_INLINED void clattn_close_tile(const clattn_params *p, const clattn_unit *u, __global const float *sinks,
                                      int first, int dims, clattn_running *run, const clattn_sums o[CLATTN_DIM_TILES],
                                      __local const float *best, __global CLATTN_TYPE(CLATTN_O) * out,
                                      __global float *lse, __global float *work) {
  const int lane = clattn_lane();
  float factor[CLATTN_STATES];
  long to[CLATTN_STATES];
  int empty[CLATTN_STATES], exists[CLATTN_STATES];
  CLATTN_UNROLLED
  for (int r = 0; r < CLATTN_STATES; ++r) {
    const int of_group = first + clattn_row_at(lane, r);
    const int i = clattn_unit_row(p, u, of_group), h = clattn_unit_head(p, u, of_group);
    const long at = (long)u->entry.q_start + i;
    float by = 1.0f, top = run->top[r], sum = run->sum[r];
    exists[r] = i < u->entry.q_rows;
    to[r] = clattn_row(&p->o, u->b, h, at);
    empty[r] = sum == 0.0f; /* what excluded values left may be NaN; and a sink's sum is not 0 */
    if (p->rules & CLATTN_RULE_SINK)
      by = clattn_join_sink(&top, &sum, sinks[p->sink_first + h * p->sink_head]);
    factor[r] = sum == 0.0f ? 0.0f : by / sum;
    if (exists[r] && clattn_column_at(lane, 0) == 0) {
      if (p->rules & CLATTN_RULE_LSE)
        lse[clattn_row_of(&p->lse, u->b, h, at)] = sum == 0.0f ? -INFINITY : top + log(sum);
      const clattn_row_view maxima = clattn_maxima(p);
      if (p->rules & CLATTN_RULE_MAX_LOGIT)
        work[clattn_row_of(&maxima, u->b, h, at)] = best[of_group];
    }
  }
  CLATTN_UNROLLED
  for (int d = 0; d < CLATTN_DIM_TILES; ++d)
    CLATTN_UNROLLED
  for (int e = 0; e < CLATTN_ELEMENTS; ++e) {
    const int r = clattn_state_of(e), at = 16 * d + clattn_column_at(lane, e);
    const float y = (empty[r] ? 0.0f : o[d].x[e]) * factor[r] + 0.0f; /* no -0 */
    if (exists[r] && at < dims)
      CLATTN_STORE(CLATTN_O)(out, to[r] + at * p->o.element, y);
  }
}

/* ---- the kernel --------------------------------------------------------------------------------------------------- */

/* Grid: (CLATTN_SUB, tile * CLATTN_SUBS). */
CLATTN_SUB_GROUPS __kernel void flash(const clattn_params p, const clattn_round round,
                                      __global const ushort *restrict q, __global const ushort *restrict v,
                                      __global const float *restrict sinks, __global const int *restrict table,
                                      __global const int *restrict entries, __global float *restrict work,
                                      __global CLATTN_TYPE(CLATTN_O) *restrict o, __global float *restrict lse,
                                      __global CLATTN_TYPE(CLATTN_SCORES) *restrict scores, CLATTN_SCORE_ARGS) {
  __local ushort memory[CLATTN_LOCAL_WORDS] __attribute__((aligned(16)));
  __local float best[CLATTN_GROUP_ROWS];
  __local int odd; /* 1: some result is NaN without cause in its weights */
  __local ushort *const keys = memory + CLATTN_K_AT, *const values = keys + CLATTN_K_WORDS;
  const int sub = clattn_sub(), item = sub * CLATTN_SUB + clattn_lane();
  const clattn_unit u = clattn_unit_of(&p, entries, table, round.first_tile + (int)get_group_id(1));
  CLATTN_COLLECT(in, p, work);
  const clattn_sight sight = clattn_sight_of(&p, &in, &u, sub * CLATTN_SUB_ROWS);
  const int dims = p.rules & CLATTN_RULE_OUT ? p.v_dim : 0;
  const clattn_rows q_rows = clattn_rows_of(q, &p.q, p.qk_dim), k_rows = clattn_rows_of(k, &p.k, p.qk_dim);
  const clattn_rows v_rows = clattn_rows_of(v, &p.v, dims);
  (void)scores; /* other variants write them */
  clattn_sums sum[CLATTN_HEIGHT][CLATTN_DIM_TILES];
  clattn_running run[CLATTN_HEIGHT];

  if (item == 0)
    odd = 0;
  for (int r = item; r < CLATTN_GROUP_ROWS; r += CLATTN_GROUP_ITEMS)
    best[r] = -INFINITY;
  clattn_copy_queries(&p, &q_rows, &u, item, memory);
  clattn_copies_arrive();
  barrier(CLK_LOCAL_MEM_FENCE);
#if CLATTN_Q_STAYS
  const clattn_local queries = memory + sight.first * CLATTN_PITCH;
#else
  clattn_q_tile queries[CLATTN_HEIGHT][CLATTN_DIM_TILES];
  CLATTN_UNROLLED
  for (int t = 0; t < CLATTN_HEIGHT; ++t)
    CLATTN_UNROLLED
  for (int d = 0; d < CLATTN_DIM_TILES; ++d)
    queries[t][d] = clattn_load_q(memory + (sight.first + 16 * t) * CLATTN_PITCH + 16 * d, CLATTN_PITCH);
  barrier(CLK_LOCAL_MEM_FENCE);
#endif

  int careful = 0;
  do {
    CLATTN_UNROLLED
    for (int t = 0; t < CLATTN_HEIGHT; ++t) {
      CLATTN_UNROLLED
      for (int r = 0; r < CLATTN_STATES; ++r) {
        run[t].top[r] = -INFINITY;
        run[t].sum[r] = 0.0f;
      }
      CLATTN_UNROLLED
      for (int d = 0; d < CLATTN_DIM_TILES; ++d)
        CLATTN_UNROLLED
      for (int e = 0; e < CLATTN_ELEMENTS; ++e)
        sum[t][d].x[e] = 0.0f;
    }
    clattn_interval j = clattn_next_keys(&p, blocks, &u, u.keys.lo, u.keys.hi, CLATTN_KEYS);
    clattn_copy_block(&p, &p.k, &k_rows, &u, j, item, keys);
    do {
      clattn_sums s[CLATTN_HEIGHT][CLATTN_KEY_TILES];
      const int seen = j.lo < sight.seen_hi && j.hi > sight.seen_lo;
      clattn_copies_arrive();
      barrier(CLK_LOCAL_MEM_FENCE); /* keys are there, and values no longer used */
      clattn_copy_values(&p, &v_rows, &u, j, item, values);
      if (seen) {
        CLATTN_UNROLLED
        for (int t = 0; t < CLATTN_HEIGHT; ++t)
          CLATTN_UNROLLED
        for (int n = 0; n < CLATTN_KEY_TILES; ++n)
          CLATTN_UNROLLED
        for (int e = 0; e < CLATTN_ELEMENTS; ++e)
          s[t][n].x[e] = 0.0f;
        CLATTN_UNROLLED
        for (int d = 0; d < CLATTN_DIM_TILES; ++d) {
#if CLATTN_Q_STAYS
          clattn_q_tile left[CLATTN_HEIGHT];
          CLATTN_UNROLLED
          for (int t = 0; t < CLATTN_HEIGHT; ++t)
            left[t] = clattn_load_q(queries + 16 * t * CLATTN_PITCH + 16 * d, CLATTN_PITCH);
#endif
          CLATTN_UNROLLED
          for (int n = 0; n < CLATTN_KEY_TILES; ++n) {
            const clattn_k_tile right = clattn_load_k(keys + 16 * n * CLATTN_PITCH + 16 * d, CLATTN_PITCH);
            CLATTN_UNROLLED
            for (int t = 0; t < CLATTN_HEIGHT; ++t)
#if CLATTN_Q_STAYS
              clattn_add_scores(&s[t][n], &left[t], &right);
#else
              clattn_add_scores(&s[t][n], &queries[t][d], &right);
#endif
          }
        }
      }
      clattn_copies_arrive();
      barrier(CLK_LOCAL_MEM_FENCE); /* values are there, and keys no longer used */
      const clattn_interval next = clattn_next_keys(&p, blocks, &u, j.hi, u.keys.hi, CLATTN_KEYS);
      if (next.lo < next.hi)
        clattn_copy_block(&p, &p.k, &k_rows, &u, next, item, keys);
      if (seen) {
        const int plain = sight.simple && !careful &&
                          (!(p.rules & CLATTN_RULE_BLOCK_MASK) || clattn_unit_sees_all(&p, blocks, &u, j.lo, j.hi));
        const int whole = j.hi - j.lo == CLATTN_KEYS && j.lo >= sight.all_lo && j.hi <= sight.all_hi;
        const float scale = plain ? in.scale : 1.0f;
        CLATTN_UNROLLED
        for (int t = 0; t < CLATTN_HEIGHT; ++t) {
          if (!plain)
            clattn_finish_tile(&p, &in, &u, sight.first + 16 * t, j, s[t], best);
          else if (!whole)
            clattn_cut(&p, &u, sight.first + 16 * t, j, s[t]);
          clattn_open_tile(s[t], scale, &run[t], sum[t]);
          if (careful)
            clattn_weigh_kept(values, &run[t], s[t], sum[t]);
          else
            clattn_weigh_tile(scale, &run[t], s[t]);
        }
        if (!careful && dims > 0)
          CLATTN_UNROLLED
        for (int n = 0; n < CLATTN_KEY_TILES; ++n) {
          clattn_p_tile left[CLATTN_HEIGHT];
          CLATTN_UNROLLED
          for (int t = 0; t < CLATTN_HEIGHT; ++t)
            left[t] = clattn_weights_of(&s[t][n]);
          CLATTN_UNROLLED
          for (int d = 0; d < CLATTN_DIM_TILES; ++d) {
            const clattn_v_tile right = clattn_load_v(values + CLATTN_V_TILE(n, d), CLATTN_V_PITCH);
            CLATTN_UNROLLED
            for (int t = 0; t < CLATTN_HEIGHT; ++t)
              clattn_add_values(&sum[t][d], &left[t], &right);
          }
        }
      }
      j = next;
    } while (j.lo < j.hi);

    int mine = 0;
    CLATTN_UNROLLED
    for (int t = 0; t < CLATTN_HEIGHT; ++t) {
      clattn_join_sums(&run[t]);
      mine |= clattn_is_odd(&run[t], sum[t]);
    }
    if (mine)
      (void)atomic_or(&odd, 1);
    barrier(CLK_LOCAL_MEM_FENCE);
    ++careful;
  } while (odd && careful < 2); /* the second round, with selects, is rare */

  CLATTN_UNROLLED
  for (int t = 0; t < CLATTN_HEIGHT; ++t)
    clattn_close_tile(&p, &u, sinks, sight.first + 16 * t, dims, &run[t], sum[t], best, o, lse, work);
}

#endif

#include "common.cl.h"
