/* SPDX-License-Identifier: Apache-2.0 */
/* The rules: which keys a query row may see.  Lengths, causal, prefix, window and chunk leave an interval of keys to
 * each row; masks are asked per pair.  Everything that decides about a pair stands here and nowhere else. */
#ifndef CLATTN_MASK_CL_H
#define CLATTN_MASK_CL_H

#include "params.cl.h"

/* One batch entry: lengths, rows, where its packed rows start, the position of its query row 0, its prefix. */
typedef struct clattn_entry {
  int q_len, k_len, q_rows, q_start, k_start;
  long offset, prefix;
} clattn_entry;

static inline clattn_entry clattn_entry_of(const clattn_params *p, __global const int *entries, int b) {
  clattn_entry e;
  if (p->rules & CLATTN_RULE_ENTRIES) {
    __global const int *at = entries + p->work_first + CLATTN_ENTRY_WORDS * (long)b;
    e.q_len = at[CLATTN_ENTRY_Q_LEN];
    e.k_len = at[CLATTN_ENTRY_K_LEN];
    e.q_rows = at[CLATTN_ENTRY_Q_ROWS];
    e.q_start = at[CLATTN_ENTRY_Q_START];
    e.k_start = at[CLATTN_ENTRY_K_START];
    e.offset = at[CLATTN_ENTRY_OFFSET];
    e.prefix = at[CLATTN_ENTRY_PREFIX];
  } else {
    e.q_len = e.q_rows = p->q_len;
    e.k_len = p->k_len;
    e.q_start = e.k_start = 0;
    e.offset = p->offset;
    e.prefix = p->prefix;
  }
  return e;
}

/* The first key of the chunk that position `at` is in: at - at mod chunk, below zero too. */
static inline long clattn_chunk_start(const clattn_params *p, long at) {
  const long rest = at % p->chunk;
  return at - (rest < 0 ? rest + p->chunk : rest);
}

/* Keys lo <= j < hi that lengths, causal, prefix, window and chunk leave to row i; both grow with i. */
static inline int clattn_row_lo(const clattn_params *p, clattn_entry e, int i) {
  const long at = (long)i + e.offset;
  long lo = at - p->window_left;
  if (p->chunk > 0)
    lo = max(lo, clattn_chunk_start(p, at));
  return (int)clamp(lo, 0L, (long)e.k_len);
}

static inline int clattn_row_hi(const clattn_params *p, clattn_entry e, int i) {
  const long at = (long)i + e.offset;
  long hi = at + p->window_right + 1;
  if (p->rules & CLATTN_RULE_CAUSAL)
    hi = min(hi, max(at + 1, e.prefix));
  if (p->chunk > 0)
    hi = min(hi, clattn_chunk_start(p, at) + p->chunk);
  return i < e.q_len ? (int)clamp(hi, 0L, (long)e.k_len) : 0;
}

/* Keys from lo on and below hi. */
typedef struct clattn_interval {
  int lo, hi;
} clattn_interval;

/* Those that rows i0 to i1 need together. */
static inline clattn_interval clattn_rows_interval(const clattn_params *p, clattn_entry e, int i0, int i1) {
  clattn_interval t;
  const int last = min(i1, e.q_len - 1);
  t.lo = clattn_row_lo(p, e, i0);
  t.hi = last >= i0 ? clattn_row_hi(p, e, last) : 0;
  if (p->rules & CLATTN_RULE_INVARIANT)
    t.lo -= t.lo % CLATTN_INVARIANT_KEYS;
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

/* The block mask's bit of key block `block`; `at` is the index of the first word of the query block's line. */
static inline int clattn_block_bit(const clattn_params *p, __global const uint *blocks, long at, int block) {
  const int bit = p->blocks.element ? block : 0;
  return (blocks[at + (bit >> 5) * p->blocks.element] >> (bit & 31)) & 1;
}

/* The same at a pair; 1 without a block mask. */
static inline int clattn_block_keeps(const clattn_params *p, __global const uint *blocks, long at, int j) {
  return !(p->rules & CLATTN_RULE_BLOCK_MASK) || clattn_block_bit(p, blocks, at, j / p->block_k);
}

#endif
