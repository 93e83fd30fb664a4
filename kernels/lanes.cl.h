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
#define CLATTN_VLOAD(p) (*(p))
#define CLATTN_VSTORE(x, p) (*(p) = (x))
#else
typedef CLATTN_PASTE(float, CLATTN_LANES) clattn_v;
typedef CLATTN_PASTE(int, CLATTN_LANES) clattn_vi;
#define CLATTN_AS_V CLATTN_PASTE(as_float, CLATTN_LANES)
#define CLATTN_AS_VI CLATTN_PASTE(as_int, CLATTN_LANES)
#define CLATTN_VLOAD(p) CLATTN_PASTE(vload, CLATTN_LANES)(0, p)
#if defined(__clang__)
/* PoCL's vstore16 is four stores of a quarter each, which is felt where every score is stored. */
typedef clattn_v clattn_packed_v __attribute__((aligned(4)));
#define CLATTN_STORER(space)                                                                                           \
  static inline void __attribute__((overloadable)) clattn_vstore(clattn_v x, space float *p) {                         \
    *(space clattn_packed_v *)p = x;                                                                                   \
  }
CLATTN_STORER(__private)
CLATTN_STORER(__local)
CLATTN_STORER(__global)
#define CLATTN_VSTORE clattn_vstore
#else
#define CLATTN_VSTORE(x, p) CLATTN_PASTE(vstore, CLATTN_LANES)(x, 0, p)
#endif
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
