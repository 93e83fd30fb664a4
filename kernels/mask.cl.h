/* SPDX-License-Identifier: Apache-2.0 */
/* The rules: which keys a query row may see.  Lengths, causal and window are an interval of keys per row; masks are asked
 * per pair.  Everything that decides about a pair stands here and nowhere else. */
#ifndef CLATTN_MASK_CL_H
#define CLATTN_MASK_CL_H

#include "params.cl.h"

/* One batch entry's lengths and the position of its query row 0. */
typedef struct clattn_entry {
  int q_len, k_len;
  long offset;
} clattn_entry;

static inline clattn_entry clattn_entry_of(const clattn_params *p, __global const int *lengths, int b) {
  clattn_entry e;
  if (p->rules & CLATTN_RULE_LENGTHS) {
    __global const int *at = lengths + p->lengths_first + 3 * (long)b;
    e.q_len = at[0];
    e.k_len = at[1];
    e.offset = at[2];
  } else {
    e.q_len = p->q_len;
    e.k_len = p->k_len;
    e.offset = p->offset;
  }
  return e;
}

/* Keys lo <= j < hi that lengths, causal and window leave to row i; both grow with i. */
static inline int clattn_row_lo(const clattn_params *p, clattn_entry e, int i) {
  const long lo = (long)i + e.offset - p->window_left;
  return (int)clamp(lo, 0L, (long)e.k_len);
}

static inline int clattn_row_hi(const clattn_params *p, clattn_entry e, int i) {
  const long at = (long)i + e.offset;
  long hi = at + p->window_right + 1;
  if ((p->rules & CLATTN_RULE_CAUSAL) && at + 1 < hi)
    hi = at + 1;
  return i < e.q_len ? (int)clamp(hi, 0L, (long)e.k_len) : 0;
}

/* Keys that rows i0 to i0 + rows - 1 need together. */
typedef struct clattn_interval {
  int lo, hi;
} clattn_interval;

static inline clattn_interval clattn_tile_interval(const clattn_params *p, clattn_entry e, int i0, int rows) {
  clattn_interval t;
  const int last = min(i0 + rows, e.q_len) - 1;
  t.lo = clattn_row_lo(p, e, i0);
  t.hi = last >= i0 ? clattn_row_hi(p, e, last) : 0;
  if (t.hi < t.lo)
    t.hi = t.lo;
  return t;
}

/* The keep mask at a pair; `at` is the index of (b, h, i, key 0), in bytes or words. */
static inline int clattn_mask_keeps(const clattn_params *p, __global const uchar *mask, long at, int j) {
  if (p->rules & CLATTN_RULE_MASK_U8)
    return mask[at + j * p->mask.element] != 0;
  if (p->rules & CLATTN_RULE_MASK_BITS) {
    __global const uint *words = (__global const uint *)mask;
    const int bit = p->mask.element ? j : 0;
    return (words[at + (bit >> 5) * p->mask.element] >> (bit & 31)) & 1;
  }
  return 1;
}

#endif
