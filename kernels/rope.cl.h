/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary embedding: pairs of elements of q and k turn by an angle that depends on the row's position, whose cosine and
 * sine stand in the caller's tables.  Pairs are (d, d + dim/2) with CLATTN_ROPE 1, (2d, 2d + 1) with 2. */
#ifndef CLATTN_ROPE_CL_H
#define CLATTN_ROPE_CL_H

#include "inputs.cl.h"
#include "kv.cl.h"
#include "mask.cl.h"

#if CLATTN_ROPE

/* Where the line of a position starts in the tables, behind their first elements.  Positions are clamped to those that
 * there are. */
static inline long clattn_line_of(const clattn_inputs *in, int b, long position) {
  return b * in->rope.batch + clamp(position, 0L, (long)in->rope.rows - 1) * in->rope.row;
}

/* Element d of a row, turned; x: as it lies, other: the other one of its pair. */
static inline float clattn_turned(const clattn_inputs *in, long line, int d, float x, float other) {
  const int second = CLATTN_ROPE == 1 ? d >= in->rope.dim / 2 : d & 1;
  const int pair = CLATTN_ROPE == 1 ? d - (second ? in->rope.dim / 2 : 0) : d / 2;
  const float c = in->rope_cos[in->rope.cos_first + line + pair * in->rope.element];
  const float s = in->rope_sin[in->rope.sin_first + line + pair * in->rope.element];
  return fma(x, c, second ? other * s : -(other * s));
}

/* The other element of d's pair. */
static inline int clattn_other_of(const clattn_inputs *in, int d) {
  const int middle = in->rope.dim / 2;
  return CLATTN_ROPE == 1 ? (d < middle ? d + middle : d - middle) : d ^ 1;
}

#endif

/* The line of query row i, which must exist, and of key j; 0 in programs without rotary embedding. */
static inline long clattn_line_of_query(const clattn_params *p, const clattn_inputs *in, int b, clattn_entry entry,
                                        int i) {
#if CLATTN_ROPE
  long position = i + entry.offset;
  if (p->rules & CLATTN_RULE_POSITIONS)
    position = in->positions_q[in->rope.positions_q_first + i +
                               (p->rules & CLATTN_RULE_PACKED_Q ? (long)entry.q_start : b * (long)p->q_len)];
  return clattn_line_of(in, b, position);
#else
  (void)p, (void)in, (void)b, (void)entry, (void)i;
  return 0;
#endif
}

static inline long clattn_line_of_key(const clattn_params *p, const clattn_inputs *in, clattn_kv kv, int j) {
#if CLATTN_ROPE
  long position = j;
  if (p->rules & CLATTN_RULE_POSITIONS)
    position = in->positions_k[in->rope.positions_k_first + j +
                               (p->rules & CLATTN_RULE_PACKED_K ? (long)kv.start : kv.b * (long)p->k_len)];
  return clattn_line_of(in, kv.b, position);
#else
  (void)p, (void)in, (void)kv, (void)j;
  return 0;
#endif
}

#endif
