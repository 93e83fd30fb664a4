/* SPDX-License-Identifier: Apache-2.0 */
/* Where the rows of keys and values lie.  Kernels find them only through this header. */
#ifndef CLATTN_KV_CL_H
#define CLATTN_KV_CL_H

#include "params.cl.h"

/* Index of element 0 of row j of key head h. */
static inline long clattn_kv_row(const clattn_view *t, int b, int h, int j) {
  return t->first + b * t->batch + h * t->head + j * t->row;
}

/* Index of element (b, h, i, 0) of any other tensor. */
static inline long clattn_row(const clattn_view *t, int b, int h, int i) {
  return t->first + b * t->batch + h * t->head + i * t->row;
}

#endif
