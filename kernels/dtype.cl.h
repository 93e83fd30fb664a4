/* SPDX-License-Identifier: Apache-2.0 */
/* Storage types.  Every tensor's type is a word given to the compiler (CLATTN_Q=f16); numbers are widened exactly
 * when they are read and rounded to nearest even when they are written.  No extension is needed: f16 goes through
 * vload_half and vstore_half_rte, bf16 through shifts.
 *
 * i8: x = scale * byte, a scale per row.  i4: two numbers a byte, the low one first, x = scale * (nibble - 8), a
 * scale per row and group of 32. */
#ifndef CLATTN_DTYPE_CL_H
#define CLATTN_DTYPE_CL_H

#include "lanes.cl.h"

#ifndef CLATTN_Q
#define CLATTN_Q f32
#endif
#ifndef CLATTN_K
#define CLATTN_K f32
#endif
#ifndef CLATTN_V
#define CLATTN_V f32
#endif
#ifndef CLATTN_O
#define CLATTN_O f32
#endif
#ifndef CLATTN_BIAS
#define CLATTN_BIAS f32
#endif
#ifndef CLATTN_SCORES
#define CLATTN_SCORES f32
#endif
#ifndef CLATTN_K_SCALE /* of i8 and i4 */
#define CLATTN_K_SCALE f32
#endif
#ifndef CLATTN_V_SCALE
#define CLATTN_V_SCALE f32
#endif

/* How elements of a type lie in memory. */
typedef float clattn_f32;
typedef ushort clattn_f16;
typedef ushort clattn_bf16;
typedef char clattn_i8;
typedef uchar clattn_i4;
#define CLATTN_TYPE(type) CLATTN_PASTE(clattn_, type)

/* Numbers for the words, for #if. */
#define CLATTN_IS_f32 0
#define CLATTN_IS_f16 1
#define CLATTN_IS_bf16 2
#define CLATTN_IS_i8 3
#define CLATTN_IS_i4 4
#define CLATTN_NUMBER(type) CLATTN_PASTE(CLATTN_IS_, type)
#define CLATTN_IS_QUANTISED(type) (CLATTN_NUMBER(type) >= CLATTN_IS_i8)
#define CLATTN_GROUP 32 /* numbers of i4 that share a scale */

/* Element `at` of an array; of i8 and i4 without its scale. */
static inline float clattn_load_f32(__global const clattn_f32 *from, long at) {
  return from[at];
}

static inline float clattn_load_f16(__global const clattn_f16 *from, long at) {
  return vload_half(at, (__global const half *)from);
}

static inline float clattn_load_bf16(__global const clattn_bf16 *from, long at) {
  return as_float((uint)from[at] << 16);
}

static inline float clattn_load_i8(__global const clattn_i8 *from, long at) {
  return (float)from[at];
}

static inline float clattn_load_i4(__global const clattn_i4 *from, long at) {
  return (float)((from[at >> 1] >> (at & 1) * 4 & 15) - 8);
}
#define CLATTN_LOAD(type) CLATTN_PASTE(clattn_load_, type)

/* The same of 4, 8 or 16 neighbours; of i4 `at` is even. */
#define CLATTN_LOADERS(n, half_n)                                                                                      \
  static inline float##n clattn_load##n##_f32(__global const clattn_f32 *from, long at) {                              \
    return vload##n(0, from + at);                                                                                     \
  }                                                                                                                    \
  static inline float##n clattn_load##n##_f16(__global const clattn_f16 *from, long at) {                              \
    return vload_half##n(0, (__global const half *)from + at);                                                         \
  }                                                                                                                    \
  static inline float##n clattn_load##n##_bf16(__global const clattn_bf16 *from, long at) {                            \
    return as_float##n(convert_uint##n(vload##n(0, from + at)) << 16);                                                 \
  }                                                                                                                    \
  static inline float##n clattn_load##n##_i8(__global const clattn_i8 *from, long at) {                                \
    return convert_float##n(vload##n(0, from + at));                                                                   \
  }                                                                                                                    \
  static inline float##n clattn_load##n##_i4(__global const clattn_i4 *from, long at) {                                \
    const uchar##half_n pairs = vload##half_n(0, from + (at >> 1));                                                    \
    float##n x;                                                                                                        \
    x.even = convert_float##half_n(convert_char##half_n(pairs & (uchar##half_n)(15)) - (char##half_n)(8));             \
    x.odd = convert_float##half_n(convert_char##half_n(pairs >> 4) - (char##half_n)(8));                               \
    return x;                                                                                                          \
  }
CLATTN_LOADERS(4, 2)
CLATTN_LOADERS(8, 4)
CLATTN_LOADERS(16, 8)
#define CLATTN_LOADN(n, type) CLATTN_PASTE(CLATTN_PASTE(CLATTN_PASTE(clattn_load, n), _), type)

static inline void clattn_store_f32(__global clattn_f32 *to, long at, float x) {
  to[at] = x;
}

static inline void clattn_store_f16(__global clattn_f16 *to, long at, float x) {
  vstore_half_rte(x, at, (__global half *)to);
}

static inline void clattn_store_bf16(__global clattn_bf16 *to, long at, float x) {
  const uint bits = as_uint(x);
  /* adding just below half of the last kept place, and its parity; NaN keeps its upper half and stays quiet */
  const uint rounded = bits + 0x7fff + (bits >> 16 & 1);
  to[at] = (ushort)(x != x ? bits >> 16 | 0x40 : rounded >> 16);
}
#define CLATTN_STORE(type) CLATTN_PASTE(clattn_store_, type)

/* As many neighbours as there are lanes. */
static inline void clattn_lanes_f32(clattn_v x, __global clattn_f32 *to, long at) {
  CLATTN_VSTORE(x, to + at);
}

#if CLATTN_LANES == 1
static inline void clattn_lanes_f16(clattn_v x, __global clattn_f16 *to, long at) {
  clattn_store_f16(to, at, x);
}

static inline void clattn_lanes_bf16(clattn_v x, __global clattn_bf16 *to, long at) {
  clattn_store_bf16(to, at, x);
}
#else
static inline void clattn_lanes_f16(clattn_v x, __global clattn_f16 *to, long at) {
  CLATTN_PASTE(CLATTN_PASTE(vstore_half, CLATTN_LANES), _rte)(x, 0, (__global half *)to + at);
}

static inline void clattn_lanes_bf16(clattn_v x, __global clattn_bf16 *to, long at) {
  const clattn_vi bits = CLATTN_AS_VI(x), upper = bits >> 16;
  const clattn_vi rounded = (bits + 0x7fff + (upper & 1)) >> 16;
  const clattn_vi chosen = x != x ? upper | 0x40 : rounded;
  CLATTN_PASTE(vstore, CLATTN_LANES)(CLATTN_PASTE(convert_ushort, CLATTN_LANES)(chosen & 0xffff), 0, to + at);
}
#endif
#define CLATTN_STORE_LANES(type) CLATTN_PASTE(clattn_lanes_, type)

#endif
