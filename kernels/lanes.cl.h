/* SPDX-License-Identifier: Apache-2.0 */
/* Names for a vector of CLATTN_LANES floats (1, 4, 8 or 16), so that one text serves every width. */
#ifndef CLATTN_LANES_CL_H
#define CLATTN_LANES_CL_H

#ifndef CLATTN_LANES
#define CLATTN_LANES 1
#endif

#define CLATTN_PASTE_(a, b) a##b
#define CLATTN_PASTE(a, b) CLATTN_PASTE_(a, b)

#if CLATTN_LANES == 1
typedef float clattn_v;
typedef int clattn_vi;
#define CLATTN_AS_V as_float
#define CLATTN_AS_VI as_int
#define CLATTN_TO_VI convert_int_rte
#define CLATTN_VLOAD(p) (*(p))
#define CLATTN_VSTORE(x, p) (*(p) = (x))
#else
typedef CLATTN_PASTE(float, CLATTN_LANES) clattn_v;
typedef CLATTN_PASTE(int, CLATTN_LANES) clattn_vi;
#define CLATTN_AS_V CLATTN_PASTE(as_float, CLATTN_LANES)
#define CLATTN_AS_VI CLATTN_PASTE(as_int, CLATTN_LANES)
#define CLATTN_TO_VI CLATTN_PASTE(CLATTN_PASTE(convert_int, CLATTN_LANES), _rte)
#define CLATTN_VLOAD(p) CLATTN_PASTE(vload, CLATTN_LANES)(0, p)
#define CLATTN_VSTORE(x, p) CLATTN_PASTE(vstore, CLATTN_LANES)(x, 0, p)
#endif

/* The sum of a vector's elements. */
static inline float clattn_sum_of(float16 x) {
  float sums[16]; /* halves of a vector look uninitialised to Oclgrind */
  vstore16(x, 0, sums);
#pragma unroll
  for (int e = 0; e < 8; ++e)
    sums[e] += sums[e + 8];
#pragma unroll
  for (int e = 0; e < 4; ++e)
    sums[e] += sums[e + 4];
  return sums[0] + sums[1] + (sums[2] + sums[3]);
}

#endif
