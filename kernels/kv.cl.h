/* SPDX-License-Identifier: Apache-2.0 */
/* Where the rows of tensors lie.  Kernels find keys and values only through this header. */
#ifndef CLATTN_KV_CL_H
#define CLATTN_KV_CL_H

#include "params.cl.h"

/* Whose keys and values. */
typedef struct clattn_kv {
  int b, h;                  /* batch entry, key head */
  int start;                 /* first row of a packed sequence */
  __global const int *table; /* of pages: the batch entry's line */
} clattn_kv;

/* Index of element 0 of row j of k or v.  Page numbers are clamped to the pages there are. */
static inline long clattn_kv_row(const clattn_params *p, const clattn_view *t, clattn_kv kv, int j) {
  if (p->page_size > 0) {
    const long page = clamp(kv.table[j / p->page_size], 0, p->num_pages - 1);
    return t->first + page * t->batch + kv.h * t->head + j % p->page_size * t->row;
  }
  return t->first + kv.b * t->batch + kv.h * t->head + ((long)kv.start + j) * t->row;
}

/* Index of element (b, h, i, 0) of any other tensor. */
static inline long clattn_row(const clattn_view *t, int b, int h, long i) {
  return t->first + b * t->batch + h * t->head + i * t->row;
}

/* Index of the number of row i. */
static inline long clattn_row_of(const clattn_row_view *t, int b, int h, long i) {
  return t->first + b * t->batch + h * t->head + i * t->row;
}

/* Index of the number of head h. */
static inline long clattn_of_head(const clattn_head_view *t, int b, int h) {
  return t->first + b * t->batch + h * t->head;
}

/* Where the largest raw score of every row stands in the workspace: those of one row's heads side by side. */
static inline clattn_row_view clattn_maxima(const clattn_params *p) {
  clattn_row_view v;
  v.batch = p->rules & CLATTN_RULE_PACKED_Q ? 0 : (long)p->q_heads * p->q_len;
  v.head = 1;
  v.row = p->q_heads;
  v.first = CLATTN_REGION(p, p->maxima_at);
  return v;
}

#endif
