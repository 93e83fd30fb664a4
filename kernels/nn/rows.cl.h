/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of numbers, one after the other: what the row-wise kernels share.
 *
 * A work-group takes the numbers of a row NN_STRIDE at a time.  On CPUs it is one item with vectors of CLATTN_LANES
 * numbers, elsewhere CLATTN_ITEMS items with one number each: the same text, and results differ by the order of sums
 * alone.  The storage type of a tensor is a word given to the compiler, see dtype.cl.h. */
#ifndef CLATTN_NN_ROWS_CL_H
#define CLATTN_NN_ROWS_CL_H

#include "dtype.cl.h"
#include "nn/rows_params.cl.h"

#ifndef CLATTN_X /* what is read: x, or the first table */
#define CLATTN_X f32
#endif
#ifndef CLATTN_X1 /* the residual, or the second table */
#define CLATTN_X1 f32
#endif
#ifndef CLATTN_X2 /* the third table */
#define CLATTN_X2 f32
#endif
#ifndef CLATTN_SUM
#define CLATTN_SUM f32
#endif
#ifndef CLATTN_Y
#define CLATTN_Y f32
#endif
#ifndef CLATTN_ITEMS
#define CLATTN_ITEMS 1
#endif
#define NN_STRIDE (CLATTN_ITEMS * CLATTN_LANES)
#define NN_BLOCK (32 * NN_STRIDE) /* numbers that are summed before they join the whole */

#if defined(__clang__) && CLATTN_LANES == 16
#define NN_ROW_KERNEL                                                                                                  \
  __attribute__((min_vector_width(512))) __attribute__((reqd_work_group_size(CLATTN_ITEMS, 1, 1))) __kernel
#else
#define NN_ROW_KERNEL __attribute__((reqd_work_group_size(CLATTN_ITEMS, 1, 1))) __kernel
#endif

/* Memory through which lanes and items add up. */
#if CLATTN_ITEMS > 1
#define NN_SHARED __local
#else
#define NN_SHARED
#endif

#if CLATTN_LANES == 1
#define NN_LOAD_FULL(type) CLATTN_LOAD(type)
#define NN_LANE_NUMBERS 0
#else
#define NN_LOAD_FULL(type) CLATTN_LOADN(CLATTN_LANES, type)
#if CLATTN_LANES == 4
#define NN_LANE_NUMBERS ((clattn_vi)(0, 1, 2, 3))
#elif CLATTN_LANES == 8
#define NN_LANE_NUMBERS ((clattn_vi)(0, 1, 2, 3, 4, 5, 6, 7))
#else
#define NN_LANE_NUMBERS ((clattn_vi)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))
#endif
#endif

/* A vector of a row's numbers, of which `there` exist (at least one): the others are read as 0 and not written. */
#define NN_ROW_ACCESS(type)                                                                                            \
  static inline clattn_v nn_row_load_##type(__global const CLATTN_TYPE(type) * from, long at, long there) {            \
    float x[CLATTN_LANES];                                                                                             \
    if (there >= CLATTN_LANES)                                                                                         \
      return NN_LOAD_FULL(type)(from, at);                                                                             \
    for (int l = 0; l < CLATTN_LANES; ++l)                                                                             \
      x[l] = l < there ? CLATTN_LOAD(type)(from, at + l) : 0.0f;                                                       \
    return CLATTN_VLOAD(x);                                                                                            \
  }                                                                                                                    \
  static inline void nn_row_store_##type(__global CLATTN_TYPE(type) * to, long at, long there, clattn_v value) {       \
    float x[CLATTN_LANES];                                                                                             \
    CLATTN_VSTORE(value, x);                                                                                           \
    for (int l = 0; l < CLATTN_LANES; ++l)                                                                             \
      if (l < there)                                                                                                   \
        CLATTN_STORE(type)(to, at + l, x[l]);                                                                          \
  }
NN_ROW_ACCESS(f32)
NN_ROW_ACCESS(f16)
NN_ROW_ACCESS(bf16)
#define NN_ROW_LOAD(type) CLATTN_PASTE(nn_row_load_, type)
#define NN_ROW_STORE(type) CLATTN_PASTE(nn_row_store_, type)

/* The lanes that exist, 0 in the others. */
static inline clattn_v nn_only(clattn_v x, long there) {
  return NN_LANE_NUMBERS < (clattn_vi)((int)min(there, (long)CLATTN_LANES)) ? x : (clattn_v)(0.0f);
}

/* Sums in twice the precision (D. Knuth's two-sum): what rounding takes from a sum gathers beside it.  Rows may be long,
 * and a mean that is large beside the deviations from it must not blur them. */
typedef struct nn_sums {
  clattn_v sum, rest;
} nn_sums;
typedef struct nn_pair {
  float sum, rest;
} nn_pair;

static inline nn_sums nn_sums_add(nn_sums s, clattn_v x) {
  nn_sums next;
  next.sum = s.sum + x;
  const clattn_v added = next.sum - s.sum;
  next.rest = s.rest + ((s.sum - (next.sum - added)) + (x - added));
  return next;
}

/* a + b, the rest made small again: it is a float too, and where every addition rounds to the same side it grows.  After
 * an infinity the rest is NaN and stays away from the sum. */
static inline nn_sums nn_sums_join(nn_sums a, nn_sums b) {
  nn_sums s = nn_sums_add(a, b.sum);
  s.rest += b.rest;
  const clattn_v sum = s.rest == s.rest ? s.sum + s.rest : s.sum;
  s.rest -= sum - s.sum;
  s.sum = sum;
  return s;
}

static inline nn_pair nn_pair_add(nn_pair a, float sum, float rest) {
  nn_pair next;
  next.sum = a.sum + sum;
  const float added = next.sum - a.sum;
  next.rest = a.rest + rest + ((a.sum - (next.sum - added)) + (sum - added));
  return next;
}

/* The sum over all lanes and items; every item gets it.  shared: 2 * NN_STRIDE numbers. */
static inline nn_pair nn_total(nn_sums s, NN_SHARED float *shared) {
  nn_pair total;
#if CLATTN_ITEMS > 1
  const int item = get_local_id(0);
  int items = CLATTN_ITEMS;
  shared[2 * item] = s.sum;
  shared[2 * item + 1] = s.rest;
  barrier(CLK_LOCAL_MEM_FENCE);
  do {
    items /= 2;
    if (item < items) {
      total.sum = shared[2 * item];
      total.rest = shared[2 * item + 1];
      total = nn_pair_add(total, shared[2 * (item + items)], shared[2 * (item + items) + 1]);
      shared[2 * item] = total.sum;
      shared[2 * item + 1] = total.rest;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  } while (items > 1);
  total.sum = shared[0];
  total.rest = shared[1];
  barrier(CLK_LOCAL_MEM_FENCE); /* before the memory serves again */
#else
  CLATTN_VSTORE(s.sum, shared);
  CLATTN_VSTORE(s.rest, shared + CLATTN_LANES);
  total.sum = shared[0];
  total.rest = shared[CLATTN_LANES];
  for (int l = 1; l < CLATTN_LANES; ++l)
    total = nn_pair_add(total, shared[l], shared[CLATTN_LANES + l]);
#endif
  return total;
}

/* total / n, its rounding error beside it.  n is not exact in one float. */
static inline nn_pair nn_pair_divide(nn_pair total, long n) {
  const float high = (float)n, low = (float)(n - (long)high);
  nn_pair mean;
  mean.sum = total.sum / high;
  mean.rest = (fma(-mean.sum, high, total.sum) - mean.sum * low + total.rest) / high;
  return mean;
}

/* As one float; of a sum that is infinite the rest is NaN. */
static inline float nn_pair_value(nn_pair p) {
  return isinf(p.sum) ? p.sum : p.sum + p.rest;
}

#endif
