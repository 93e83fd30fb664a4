/* SPDX-License-Identifier: Apache-2.0 */
/* Merges attention over disjoint key sets: outputs weighted by exp(lse - m), m the largest lse of the row.
 *
 * A unit of work is CLATTN_LANES neighbouring elements of a row's output; it computes the row's weights itself, so
 * that units need nothing of each other.  A work-item takes `count` units: from get_global_id(0) * first on, `step`
 * apart. */
#include "softmax.cl.h"

/* Elements of o that there are; lanes beyond them get 0. */
static inline clattn_v clattn_merge_load(__global const float *from, long there) {
  if (there < CLATTN_LANES) {
    float x[CLATTN_LANES];
    for (int l = 0; l < CLATTN_LANES; ++l)
      x[l] = l < there ? from[l] : 0.0f;
    return CLATTN_VLOAD(x);
  }
  return CLATTN_VLOAD(from);
}

static inline void clattn_merge_store(clattn_v value, __global float *to, long there) {
  if (there < CLATTN_LANES) {
    float x[CLATTN_LANES];
    CLATTN_VSTORE(value, x);
    for (int l = 0; l < there; ++l)
      to[l] = x[l];
    return;
  }
  CLATTN_VSTORE(value, to);
}

static inline float clattn_merge_any_lane(clattn_v value) {
#if CLATTN_LANES > 1
  return value.s0;
#else
  return value;
#endif
}

/* part_o and o, or lse, are NULL when they are not wanted; without o there is one unit per row.  The at_ are the places
 * of the first elements in their buffers. */
__kernel void clattn_merge(__global const float *part_o, __global const float *part_lse, __global float *o,
                           __global float *lse, long at_part_o, long at_part_lse, long at_o, long at_lse, long parts,
                           long part_stride_o, long part_stride_lse, long v_dim, long units_per_row, long units,
                           long first, long step, long count) {
  for (long n = 0; n < count; ++n) {
    const long unit = (long)get_global_id(0) * first + n * step;
    if (unit >= units)
      break;
    /* Devices divide 64-bit numbers slowly. */
    const long row = units <= INT_MAX ? (long)((uint)unit / (uint)units_per_row) : unit / units_per_row;
    const long element = (unit - row * units_per_row) * CLATTN_LANES;
    const long there = v_dim - element, at_row = row * v_dim + element;
    __global const float *row_lse = part_lse + at_part_lse + row;

    clattn_v m = (clattn_v)(-INFINITY);
    for (long part = 0; part < parts; ++part)
      m = clattn_maximum(m, (clattn_v)(row_lse[part * part_stride_lse]));

    /* -0 + x is x for every x, -0 too. */
    clattn_v sum = (clattn_v)(-0.0f), l = (clattn_v)(0.0f);
    for (long part = 0; part < parts; ++part) {
      const float part_row_lse = row_lse[part * part_stride_lse];
      if (part_row_lse == -INFINITY) /* no keys: its o does not count, whatever it is */
        continue;
      /* 1 for the largest; NaN for +inf (inf - inf) and NaN. */
      const clattn_v weight = clattn_exp((clattn_v)(part_row_lse)-m);
      l += weight;
      if (o)
        sum = fma(weight, clattn_merge_load(part_o + at_part_o + part * part_stride_o + at_row, there), sum);
    }

    /* Division is not exact on every device; by 1 it must be. */
    const float total = clattn_merge_any_lane(l), largest = clattn_merge_any_lane(m);
    if (o) {
      const clattn_v mean = total == 1.0f ? sum : sum / l;
      clattn_merge_store(total == 0.0f ? (clattn_v)(0.0f) : mean, o + at_o + at_row, there);
    }
    if (lse && element == 0)
      lse[at_lse + row] = total == 0.0f ? -INFINITY : total == 1.0f ? largest : largest + log(total);
  }
}
