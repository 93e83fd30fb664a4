/* SPDX-License-Identifier: Apache-2.0 */
/* Square transposition in registers: rows as they lie in memory become lanes, and back, without a scalar step. */
#ifndef CLATTN_TRANSPOSE_CL_H
#define CLATTN_TRANSPOSE_CL_H

#include "lanes.cl.h"

/* Both vectors' lower (upper) elements in turn.  Spelled out: built-in shuffles go through memory on CPUs. */
#if CLATTN_LANES == 1
#define CLATTN_LOWER_IN_TURN(a, b) (a)
#define CLATTN_UPPER_IN_TURN(a, b) (b)
#elif CLATTN_LANES == 4
#define CLATTN_LOWER_IN_TURN(a, b) (clattn_v)((a).s0, (b).s0, (a).s1, (b).s1)
#define CLATTN_UPPER_IN_TURN(a, b) (clattn_v)((a).s2, (b).s2, (a).s3, (b).s3)
#elif CLATTN_LANES == 8
#define CLATTN_LOWER_IN_TURN(a, b) (clattn_v)((a).s0, (b).s0, (a).s1, (b).s1, (a).s2, (b).s2, (a).s3, (b).s3)
#define CLATTN_UPPER_IN_TURN(a, b) (clattn_v)((a).s4, (b).s4, (a).s5, (b).s5, (a).s6, (b).s6, (a).s7, (b).s7)
#else
#define CLATTN_LOWER_IN_TURN(a, b)                                                                                     \
  (clattn_v)((a).s0, (b).s0, (a).s1, (b).s1, (a).s2, (b).s2, (a).s3, (b).s3, (a).s4, (b).s4, (a).s5, (b).s5, (a).s6,   \
             (b).s6, (a).s7, (b).s7)
#define CLATTN_UPPER_IN_TURN(a, b)                                                                                     \
  (clattn_v)((a).s8, (b).s8, (a).s9, (b).s9, (a).sa, (b).sa, (a).sb, (b).sb, (a).sc, (b).sc, (a).sd, (b).sd, (a).se,   \
             (b).se, (a).sf, (b).sf)
#endif

/* r[i] element j <-> r[j] element i.  A step that interleaves both halves of the rows moves one bit of the row's number
 * into the element's and one back: as many steps as there are bits. */
static inline void clattn_transpose(clattn_v r[CLATTN_LANES]) {
#pragma unroll
  for (int step = 1; step < CLATTN_LANES; step *= 2) {
    clattn_v t[CLATTN_LANES];
#pragma unroll
    for (int i = 0; i < CLATTN_LANES / 2; ++i) {
      const clattn_v a = r[i], b = r[i + CLATTN_LANES / 2];
      t[2 * i] = CLATTN_LOWER_IN_TURN(a, b);
      t[2 * i + 1] = CLATTN_UPPER_IN_TURN(a, b);
    }
#pragma unroll
    for (int i = 0; i < CLATTN_LANES; ++i)
      r[i] = t[i];
  }
}

#endif
