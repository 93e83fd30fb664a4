/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix units of GPUs as one: a sub-group multiplies tiles of 16 x 16, f16 or bf16 (CLATTN_Q) with f32 sums.
 *
 * CLATTN_UNIT names a unit (below), CLATTN_SUB the size of the sub-group.  With CLATTN_EMULATED the same registers are
 * filled and read in the same way, but the product is made by shuffles and ordinary arithmetic: what a kernel does with a
 * unit is then tested without it, on any device with sub-groups of that size.
 *
 * Scores are S = Q K^T (queries x keys) and results O += P V (queries x elements).  NVIDIA's units compute just that, and
 * a sum's layout is the next product's left operand.  On the others the transposed products S^T = K Q^T and
 * O^T += V^T P^T have that property, the sum's layout being the right operand's.  Kernels see none of this: only that a
 * work-item has elements e of a tile, in CLATTN_STATES rows; row clattn_row_at(lane, r) for those with
 * clattn_state_of(e) = r, column clattn_column_at(lane, e).
 *
 * Layouts follow the vendors' texts below, as far as these were at hand (MFMA's was not), and no GPU has confirmed them yet:
 * `gpu_probe` asks a driver that has one.  l is a lane, w a register of two elements, the lower index in the lower half:
 *   nvidia    PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type" and "ldmatrix"; sm_75 has the same
 *             registers in two steps of m16n8k8
 *   wmma      AMD, "RDNA3" ISA, section WMMA, and GPUOpen, "How to accelerate AI applications on RDNA 3 using WMMA"
 *   wmma12    AMD, "RDNA4" ISA, and GPUOpen, "Using the Matrix Cores of AMD RDNA 4 architecture GPUs"
 *   mfma      AMD, "CDNA3" ISA, and AMD's matrix instruction calculator, v_mfma_f32_16x16x16_f16 and _bf16
 *   dpas      Khronos, cl_intel_subgroup_matrix_multiply_accumulate, for sub-groups of 8 (M8 N8 K16) and 16 (M8 N16 K16)
 */
#ifndef CLATTN_MATRIX_UNIT_CL_H
#define CLATTN_MATRIX_UNIT_CL_H

#include "lanes.cl.h"
#include "dtype.cl.h"

#define CLATTN_UNIT_IS_nvidia75 1
#define CLATTN_UNIT_IS_nvidia 2
#define CLATTN_UNIT_IS_wmma 3
#define CLATTN_UNIT_IS_wmma12 4
#define CLATTN_UNIT_IS_mfma 5
#define CLATTN_UNIT_IS_dpas 6
#ifdef CLATTN_UNIT
#define CLATTN_UNIT_NUMBER CLATTN_PASTE(CLATTN_UNIT_IS_, CLATTN_UNIT)
#else
#define CLATTN_UNIT_NUMBER 0
#endif

#if CLATTN_UNIT_NUMBER > 0

#ifndef CLATTN_EMULATED
#define CLATTN_EMULATED 0
#endif
#define CLATTN_ON_NVIDIA (CLATTN_UNIT_NUMBER <= 2 && !CLATTN_EMULATED)
#define CLATTN_ON_AMD (CLATTN_UNIT_NUMBER >= 3 && CLATTN_UNIT_NUMBER <= 5 && !CLATTN_EMULATED)
#define CLATTN_IS_BF16 (CLATTN_NUMBER(CLATTN_Q) == CLATTN_IS_bf16)
/* Unrolled loops keep tiles in registers.  Unrolled emulation only takes long to build. */
#if CLATTN_EMULATED
#define CLATTN_UNROLLED _Pragma("unroll 1")
#else
#define CLATTN_UNROLLED _Pragma("unroll")
#endif

#define CLATTN_ELEMENTS (256 / CLATTN_SUB) /* of a tile in a work-item */
typedef struct clattn_sums {
  float x[CLATTN_ELEMENTS];
} clattn_sums;
typedef __local const ushort *clattn_local;

/* ---- sub-groups ------------------------------------------------------------------------------------------------- */

#if CLATTN_ON_NVIDIA || CLATTN_ON_AMD
/* Work-groups have rows of CLATTN_SUB work-items: each is a sub-group. */
#define CLATTN_SUB_GROUPS __attribute__((reqd_work_group_size(CLATTN_SUB, CLATTN_SUBS, 1)))
#define clattn_lane() ((int)get_local_id(0))
#define clattn_sub() ((int)get_local_id(1))
#else
#pragma OPENCL EXTENSION cl_intel_subgroups : enable
#define CLATTN_SUB_GROUPS                                                                                              \
  __attribute__((reqd_work_group_size(CLATTN_SUB, CLATTN_SUBS, 1), intel_reqd_sub_group_size(CLATTN_SUB)))
#define clattn_lane() ((int)get_sub_group_local_id())
#define clattn_sub() ((int)get_sub_group_id())
#endif

/* x of another lane. */
static inline float clattn_from_lane(float x, int lane) {
#if CLATTN_ON_NVIDIA
  float y;
  __asm__ volatile("shfl.sync.idx.b32 %0, %1, %2, 31, 0xffffffff;" : "=f"(y) : "f"(x), "r"(lane));
  return y;
#elif CLATTN_ON_AMD
  return as_float(__builtin_amdgcn_ds_bpermute(lane << 2, as_int(x)));
#else
  return intel_sub_group_shuffle(x, (uint)lane);
#endif
}

/* x of the lane whose number differs in the bits of `mask`. */
static inline float clattn_from_mate(float x, int mask) {
#if CLATTN_ON_NVIDIA
  float y;
  __asm__ volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;" : "=f"(y) : "f"(x), "r"(mask));
  return y;
#else
  return clattn_from_lane(x, clattn_lane() ^ mask);
#endif
}

/* ---- numbers ---------------------------------------------------------------------------------------------------- */

/* The larger one; not NaN, if either is a number.  That is IEEE 754's maximumNumber, one instruction everywhere. */
static inline float clattn_larger(float a, float b) {
#if CLATTN_ON_NVIDIA
  float y;
  __asm__("max.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
#elif CLATTN_ON_AMD
  return __builtin_fmaxf(a, b);
#else
  return fmax(a, b);
#endif
}

/* 2^x by the device's own instruction, to some units in the last place; -inf gives 0, NaN stays. */
static inline float clattn_power_of_2(float x) {
#if CLATTN_ON_NVIDIA
  float y;
  __asm__("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#elif CLATTN_ON_AMD
  return __builtin_amdgcn_exp2f(x);
#elif CLATTN_EMULATED
  return exp2(x);
#else
  return native_exp2(x);
#endif
}

/* Two numbers, rounded to nearest even, in a word. */
static inline uint clattn_pair_of(float low, float high) {
#if CLATTN_ON_NVIDIA && CLATTN_IS_BF16
  uint pair;
  __asm__("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#elif CLATTN_ON_NVIDIA && CLATTN_UNIT_NUMBER == CLATTN_UNIT_IS_nvidia
  uint pair;
  __asm__("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#elif CLATTN_ON_NVIDIA
  uint pair; /* sm_75 converts one at a time */
  __asm__("{.reg .b16 l, h; cvt.rn.f16.f32 l, %1; cvt.rn.f16.f32 h, %2; mov.b32 %0, {l, h};}"
          : "=r"(pair)
          : "f"(low), "f"(high));
  return pair;
#elif CLATTN_IS_BF16
  /* as clattn_store_bf16 */
  const uint l = as_uint(low), h = as_uint(high);
  const uint l_rounded = low != low ? l | 0x400000 : l + 0x7fff + (l >> 16 & 1);
  const uint h_rounded = high != high ? h | 0x400000 : h + 0x7fff + (h >> 16 & 1);
  return l_rounded >> 16 | (h_rounded & 0xffff0000u);
#else
  ushort pair[2];
  vstore_half_rte(low, 0, (half *)&pair[0]);
  vstore_half_rte(high, 0, (half *)&pair[1]);
  return pair[0] | (uint)pair[1] << 16;
#endif
}

/* A number in local memory. */
static inline float clattn_widen(clattn_local from) {
#if CLATTN_IS_BF16
  return as_float((uint)*from << 16);
#elif CLATTN_ON_NVIDIA
  float y;
  __asm__("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(*from));
  return y;
#else
  return vload_half(0, (__local const half *)from);
#endif
}

#if CLATTN_EMULATED
/* Both numbers of a word. */
static inline float2 clattn_both(uint pair) {
#if CLATTN_IS_BF16
  return (float2)(as_float(pair << 16), as_float(pair & 0xffff0000u));
#else
  const ushort low = (ushort)pair, high = (ushort)(pair >> 16);
  return (float2)(vload_half(0, (const half *)&low), vload_half(0, (const half *)&high));
#endif
}

static inline uint clattn_word_from(uint x, int lane) {
  return intel_sub_group_shuffle(x, (uint)lane);
}
#endif

/* ---- copies to local memory ------------------------------------------------------------------------------------- */

/* 16 bytes, or zeros; `from` may be read even then.  They are there after clattn_copies_arrive and a barrier. */
static inline void clattn_copy_16(__local ushort *to, __global const ushort *from, int there) {
#if CLATTN_ON_NVIDIA && CLATTN_UNIT_NUMBER == CLATTN_UNIT_IS_nvidia
  __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                   :
                   : "r"((uint)(size_t)to), "l"(from), "r"(there ? 16 : 0)
                   : "memory");
#else
  *(__local uint4 *)to = there ? *(__global const uint4 *)from : (uint4)(0);
#endif
}

static inline void clattn_copies_arrive(void) {
#if CLATTN_ON_NVIDIA && CLATTN_UNIT_NUMBER == CLATTN_UNIT_IS_nvidia
  __asm__ volatile("cp.async.wait_all;" : : : "memory");
#endif
}

#if CLATTN_UNIT_NUMBER <= 2

/* ---- NVIDIA: m16n8k16 -------------------------------------------------------------------------------------------- */
/* l = 4 g + t.  Left: w0 (row g, 2t), w1 (g + 8, 2t), w2 (g, 2t + 8), w3 (g + 8, 2t + 8).  Right: w0 (2t, column g),
 * w1 (2t + 8, g).  Sums: x0, x1 (g, 2t), x2, x3 (g + 8, 2t).  A tile is two of 8 columns. */
#define CLATTN_STATES 2
#define CLATTN_V_TURNED 0
#define clattn_state_of(e) ((e) >> 1 & 1)
#define clattn_row_at(lane, r) (((lane) >> 2) + 8 * (r))
#define clattn_column_at(lane, e) (((e) >> 2) * 8 + 2 * ((lane)&3) + ((e)&1))
#define clattn_element_at(r, column) (((column) >> 3) * 4 + 2 * (r) + ((column)&1))
#define clattn_lane_at(lane, column) (((lane) & ~3) | ((column)&7) >> 1)
#define CLATTN_MATES(step) step(1) step(2)

typedef struct clattn_four {
  uint w[4];
} clattn_four;
typedef clattn_four clattn_q_tile, clattn_k_tile, clattn_v_tile, clattn_p_tile;

#if CLATTN_EMULATED
static inline void clattn_multiply(float *x, const uint *left, const uint *right) {
  const int l = clattn_lane(), g = l >> 2, t = l & 3;
  CLATTN_UNROLLED
  for (int k = 0; k < 16; k += 2)
    CLATTN_UNROLLED
  for (int e = 0; e < 4; ++e) {
    const float2 a = clattn_both(clattn_word_from(left[(e >> 1) + 2 * (k >> 3)], 4 * g + (k & 7) / 2));
    const float2 b = clattn_both(clattn_word_from(right[k >> 3], 4 * (2 * t + (e & 1)) + (k & 7) / 2));
    x[e] = fma(a.y, b.y, fma(a.x, b.x, x[e]));
  }
}

/* Lane i gives the address of row i % 8 of the matrix i / 8. */
static inline clattn_four clattn_load_four(clattn_local row, int turned) {
  const int l = clattn_lane();
  const uint mine = (uint)(size_t)row;
  clattn_four f;
  CLATTN_UNROLLED
  for (int m = 0; m < 4; ++m) {
    const int across = turned ? 2 * (l & 3) : l >> 2;
    const int first = (int)(clattn_word_from(mine, 8 * m + across) - mine) / 2;
    const int second = (int)(clattn_word_from(mine, 8 * m + (across + 1) % 8) - mine) / 2;
    f.w[m] = turned ? row[first + (l >> 2)] | (uint)row[second + (l >> 2)] << 16
                    : row[first + 2 * (l & 3)] | (uint)row[first + 2 * (l & 3) + 1] << 16;
  }
  return f;
}
#else
static inline void clattn_multiply(float *x, const uint *left, const uint *right) {
#if CLATTN_UNIT_NUMBER == CLATTN_UNIT_IS_nvidia75
  CLATTN_UNROLLED
  for (int k = 0; k < 2; ++k)
    __asm__ volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
                     "{%0, %1, %2, %3};"
                     : "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3])
                     : "r"(left[2 * k]), "r"(left[2 * k + 1]), "r"(right[k]));
#else
#if CLATTN_IS_BF16
#define CLATTN_MMA "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
#else
#define CLATTN_MMA "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
#endif
  __asm__ volatile(CLATTN_MMA " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                   : "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3])
                   : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
#endif
}

static inline clattn_four clattn_load_four(clattn_local row, int turned) {
  clattn_four f;
  if (turned)
    __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(f.w[0]), "=r"(f.w[1]), "=r"(f.w[2]), "=r"(f.w[3])
                     : "r"((uint)(size_t)row)
                     : "memory");
  else
    __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(f.w[0]), "=r"(f.w[1]), "=r"(f.w[2]), "=r"(f.w[3])
                     : "r"((uint)(size_t)row)
                     : "memory");
  return f;
}
#endif

static inline clattn_q_tile clattn_load_q(clattn_local tile, int pitch) {
  const int l = clattn_lane();
  return clattn_load_four(tile + (l & 15) * pitch + (l >> 4) * 8, 0);
}

/* 16 keys are the columns of two products. */
static inline clattn_k_tile clattn_load_k(clattn_local tile, int pitch) {
  const int l = clattn_lane();
  return clattn_load_four(tile + ((l >> 4) * 8 + (l & 7)) * pitch + (l >> 3 & 1) * 8, 0);
}

static inline clattn_v_tile clattn_load_v(clattn_local tile, int pitch) {
  const int l = clattn_lane();
  return clattn_load_four(tile + (l & 15) * pitch + (l >> 4) * 8, 1);
}

static inline void clattn_add_scores(clattn_sums *s, const clattn_q_tile *q, const clattn_k_tile *k) {
  clattn_multiply(s->x, q->w, k->w);
  clattn_multiply(s->x + 4, q->w, k->w + 2);
}

static inline void clattn_add_values(clattn_sums *o, const clattn_p_tile *p, const clattn_v_tile *v) {
  clattn_multiply(o->x, p->w, v->w);
  clattn_multiply(o->x + 4, p->w, v->w + 2);
}

static inline clattn_p_tile clattn_weights_of(const clattn_sums *s) {
  clattn_p_tile p;
  CLATTN_UNROLLED
  for (int m = 0; m < 4; ++m)
    p.w[m] = clattn_pair_of(s->x[2 * m], s->x[2 * m + 1]);
  return p;
}

#elif CLATTN_UNIT_NUMBER <= 5

/* ---- AMD: 16 x 16 x 16 ------------------------------------------------------------------------------------------- */
/* Sums: column l % 16, rows clattn_amd_row; those are keys or elements, and the column is a query.  Operands: row or
 * column l % 16, CLATTN_OPERAND consecutive k from clattn_amd_k on, all 16 with wmma, whose halves of a sub-group hold the
 * same.  So the sums of wmma12 and mfma are right operands as they are; of wmma each lane lacks every second key, which
 * its mate has. */
#define CLATTN_STATES 1
#define CLATTN_V_TURNED 1
#define clattn_state_of(e) ((void)(e), 0)
#define clattn_row_at(lane, r) ((void)(r), (lane)&15)
#if CLATTN_UNIT_NUMBER == CLATTN_UNIT_IS_wmma
#define CLATTN_OPERAND 16
#define clattn_amd_k(lane) ((void)(lane), 0)
#define clattn_column_at(lane, e) (2 * (e) + ((lane) >> 4))
#define clattn_element_at(r, column) ((void)(r), (column) >> 1)
#define clattn_lane_at(lane, column) (((lane)&15) | ((column)&1) << 4)
#define CLATTN_MATES(step) step(16)
#elif CLATTN_UNIT_NUMBER == CLATTN_UNIT_IS_wmma12
#define CLATTN_OPERAND 8
#define clattn_amd_k(lane) (8 * ((lane) >> 4))
#define clattn_column_at(lane, e) (8 * ((lane) >> 4) + (e))
#define clattn_element_at(r, column) ((void)(r), (column)&7)
#define clattn_lane_at(lane, column) (((lane)&15) | (column) >> 3 << 4)
#define CLATTN_MATES(step) step(16)
#else
#define CLATTN_OPERAND 4
#define clattn_amd_k(lane) (4 * ((lane) >> 4))
#define clattn_column_at(lane, e) (4 * ((lane) >> 4) + (e))
#define clattn_element_at(r, column) ((void)(r), (column)&3)
#define clattn_lane_at(lane, column) (((lane)&15) | (column) >> 2 << 4)
#define CLATTN_MATES(step) step(16) step(32)
#endif

typedef struct clattn_operand {
  uint w[CLATTN_OPERAND / 2];
} clattn_operand;
typedef clattn_operand clattn_q_tile, clattn_k_tile, clattn_v_tile, clattn_p_tile;

/* Row l % 16 of a tile in local memory. */
static inline clattn_operand clattn_load_row(clattn_local tile, int pitch) {
  const int l = clattn_lane();
  __local const uint *from = (__local const uint *)(tile + (l & 15) * pitch + clattn_amd_k(l));
  clattn_operand f;
  CLATTN_UNROLLED
  for (int x = 0; x < CLATTN_OPERAND / 2; ++x)
    f.w[x] = from[x];
  return f;
}
#define clattn_load_q clattn_load_row
#define clattn_load_k clattn_load_row
#define clattn_load_v clattn_load_row

/* x += left * right */
static inline void clattn_multiply(float *x, const uint *left, const uint *right) {
#if CLATTN_EMULATED
  const int l = clattn_lane();
  CLATTN_UNROLLED
  for (int e = 0; e < CLATTN_ELEMENTS; ++e)
    CLATTN_UNROLLED
  for (int k = 0; k < 16; k += 2) {
    const int word = k % CLATTN_OPERAND / 2, half_of = k / CLATTN_OPERAND * 16;
    const float2 a = clattn_both(clattn_word_from(left[word], clattn_column_at(l, e) + half_of));
    const float2 b = clattn_both(clattn_word_from(right[word], (l & 15) + half_of));
    x[e] = fma(a.y, b.y, fma(a.x, b.x, x[e]));
  }
#else
  typedef float clattn_vector __attribute__((ext_vector_type(CLATTN_ELEMENTS)));
#if CLATTN_IS_BF16
  typedef short clattn_halves __attribute__((ext_vector_type(CLATTN_OPERAND)));
#else
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
  typedef half clattn_halves __attribute__((ext_vector_type(CLATTN_OPERAND)));
#endif
  union {
    uint w[CLATTN_OPERAND / 2];
    clattn_halves v;
  } a, b;
  clattn_vector sum;
#pragma unroll
  for (int n = 0; n < CLATTN_OPERAND / 2; ++n) {
    a.w[n] = left[n];
    b.w[n] = right[n];
  }
#pragma unroll
  for (int e = 0; e < CLATTN_ELEMENTS; ++e)
    sum[e] = x[e];
#if CLATTN_UNIT_NUMBER == CLATTN_UNIT_IS_wmma && CLATTN_IS_BF16
  sum = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a.v, b.v, sum);
#elif CLATTN_UNIT_NUMBER == CLATTN_UNIT_IS_wmma
  sum = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a.v, b.v, sum);
#elif CLATTN_UNIT_NUMBER == CLATTN_UNIT_IS_wmma12 && CLATTN_IS_BF16
  sum = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a.v, b.v, sum);
#elif CLATTN_UNIT_NUMBER == CLATTN_UNIT_IS_wmma12
  sum = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a.v, b.v, sum);
#elif CLATTN_IS_BF16
  sum = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a.v, b.v, sum, 0, 0, 0);
#else
  sum = __builtin_amdgcn_mfma_f32_16x16x16f16(a.v, b.v, sum, 0, 0, 0);
#endif
#pragma unroll
  for (int e = 0; e < CLATTN_ELEMENTS; ++e)
    x[e] = sum[e];
#endif
}

static inline void clattn_add_scores(clattn_sums *s, const clattn_q_tile *q, const clattn_k_tile *k) {
  clattn_multiply(s->x, k->w, q->w);
}

static inline void clattn_add_values(clattn_sums *o, const clattn_p_tile *p, const clattn_v_tile *v) {
  clattn_multiply(o->x, v->w, p->w);
}

static inline clattn_p_tile clattn_weights_of(const clattn_sums *s) {
  clattn_p_tile p;
#if CLATTN_UNIT_NUMBER == CLATTN_UNIT_IS_wmma
  const int upper = clattn_lane() >> 4;
  CLATTN_UNROLLED
  for (int x = 0; x < 4; ++x) {
    const uint mine = clattn_pair_of(s->x[2 * x], s->x[2 * x + 1]);
    const uint other = as_uint(clattn_from_mate(as_float(mine), 16));
    const uint even = upper ? other : mine, odd = upper ? mine : other; /* keys 4x, 4x + 2 and 4x + 1, 4x + 3 */
    p.w[2 * x] = (even & 0xffffu) | odd << 16;
    p.w[2 * x + 1] = even >> 16 | (odd & 0xffff0000u);
  }
#else
  CLATTN_UNROLLED
  for (int x = 0; x < CLATTN_ELEMENTS / 2; ++x)
    p.w[x] = clattn_pair_of(s->x[2 * x], s->x[2 * x + 1]);
#endif
  return p;
}

#else

/* ---- Intel: M8 N8 K16 and M8 N16 K16 ------------------------------------------------------------------------------ */
/* Columns are queries, one of each 8 or 16 in a lane, so that no row is shared.  Left: register m is row m, of it k = l
 * with 16 lanes, k = 2l, 2l + 1 with 8.  Right: register x is k = 2x, 2x + 1 of column l.  Sums: register m is row m of
 * column l. */
#define CLATTN_STATES (16 / CLATTN_SUB)
#define CLATTN_V_TURNED 0
#define clattn_state_of(e) ((e) >> 4)
#define clattn_row_at(lane, r) ((lane) + CLATTN_SUB * (r))
#define clattn_column_at(lane, e) ((void)(lane), (e)&15)
#define clattn_element_at(r, column) (16 * (r) + (column))
#define clattn_lane_at(lane, column) ((void)(column), (lane))
#define CLATTN_MATES(step)

typedef struct clattn_right {
  uint w[CLATTN_STATES][8];
} clattn_right;
typedef clattn_right clattn_q_tile, clattn_p_tile;
typedef struct clattn_left {
  uint w[2][8]; /* with 16 lanes in lower halves */
} clattn_left;
typedef clattn_left clattn_k_tile, clattn_v_tile;

static inline clattn_q_tile clattn_load_q(clattn_local tile, int pitch) {
  clattn_q_tile q;
  CLATTN_UNROLLED
  for (int r = 0; r < CLATTN_STATES; ++r) {
    __local const uint *from = (__local const uint *)(tile + clattn_row_at(clattn_lane(), r) * pitch);
    CLATTN_UNROLLED
    for (int x = 0; x < 8; ++x)
      q.w[r][x] = from[x];
  }
  return q;
}

/* Rows are keys, k an element. */
static inline clattn_k_tile clattn_load_k(clattn_local tile, int pitch) {
  const int l = clattn_lane();
  clattn_k_tile f;
  CLATTN_UNROLLED
  for (int x = 0; x < 2; ++x)
    CLATTN_UNROLLED
  for (int m = 0; m < 8; ++m) {
    clattn_local row = tile + (8 * x + m) * pitch;
    f.w[x][m] = CLATTN_SUB == 16 ? row[l] : *(__local const uint *)(row + 2 * l);
  }
  return f;
}

/* Rows are elements, k a key. */
static inline clattn_v_tile clattn_load_v(clattn_local tile, int pitch) {
  const int l = clattn_lane();
  clattn_v_tile f;
  CLATTN_UNROLLED
  for (int x = 0; x < 2; ++x)
    CLATTN_UNROLLED
  for (int m = 0; m < 8; ++m) {
    clattn_local at = tile + 8 * x + m;
    f.w[x][m] = CLATTN_SUB == 16 ? at[l * pitch] : at[2 * l * pitch] | (uint)at[(2 * l + 1) * pitch] << 16;
  }
  return f;
}

#if !CLATTN_EMULATED
/* Not all compilers that have the extension declare its functions. */
#if CLATTN_SUB == 16
typedef short8 clattn_left_words;
#else
typedef int8 clattn_left_words;
#endif
float8 __attribute__((overloadable)) intel_sub_group_f16_f16_matrix_mad_k16(clattn_left_words a, int8 b, float8 sum);
float8 __attribute__((overloadable)) intel_sub_group_bf16_bf16_matrix_mad_k16(clattn_left_words a, int8 b, float8 sum);
#endif

/* 8 rows. */
static inline void clattn_multiply(float *x, const uint *left, const uint *right) {
#if CLATTN_EMULATED
  CLATTN_UNROLLED
  for (int m = 0; m < 8; ++m)
    CLATTN_UNROLLED
  for (int k = 0; k < 16; k += 2) {
    const float2 b = clattn_both(right[k / 2]);
    float2 a;
    if (CLATTN_SUB == 16)
      a = (float2)(clattn_both(clattn_word_from(left[m], k)).x, clattn_both(clattn_word_from(left[m], k + 1)).x);
    else
      a = clattn_both(clattn_word_from(left[m], k / 2));
    x[m] = fma(a.y, b.y, fma(a.x, b.x, x[m]));
  }
#else
  const int8 b = (int8)(right[0], right[1], right[2], right[3], right[4], right[5], right[6], right[7]);
  float8 sum = (float8)(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]);
  const clattn_left_words a =
      (clattn_left_words)(left[0], left[1], left[2], left[3], left[4], left[5], left[6], left[7]);
#if CLATTN_IS_BF16
  sum = intel_sub_group_bf16_bf16_matrix_mad_k16(a, b, sum);
#else
  sum = intel_sub_group_f16_f16_matrix_mad_k16(a, b, sum);
#endif
  vstore8(sum, 0, x);
#endif
}

static inline void clattn_add_scores(clattn_sums *s, const clattn_q_tile *q, const clattn_k_tile *k) {
  CLATTN_UNROLLED
  for (int r = 0; r < CLATTN_STATES; ++r) {
    clattn_multiply(s->x + 16 * r, k->w[0], q->w[r]);
    clattn_multiply(s->x + 16 * r + 8, k->w[1], q->w[r]);
  }
}

static inline void clattn_add_values(clattn_sums *o, const clattn_p_tile *p, const clattn_v_tile *v) {
  CLATTN_UNROLLED
  for (int r = 0; r < CLATTN_STATES; ++r) {
    clattn_multiply(o->x + 16 * r, v->w[0], p->w[r]);
    clattn_multiply(o->x + 16 * r + 8, v->w[1], p->w[r]);
  }
}

static inline clattn_p_tile clattn_weights_of(const clattn_sums *s) {
  clattn_p_tile p;
  CLATTN_UNROLLED
  for (int r = 0; r < CLATTN_STATES; ++r)
    CLATTN_UNROLLED
  for (int x = 0; x < 8; ++x)
    p.w[r][x] = clattn_pair_of(s->x[16 * r + 2 * x], s->x[16 * r + 2 * x + 1]);
  return p;
}

#endif

#endif
#endif
