/* SPDX-License-Identifier: Apache-2.0 */
/* Products of matrix tiles of bf16 by AMX: sums of f32, 16 rows and 16 columns a tile, 32 elements a step.  With
 * CLATTN_AMX, which the host defines where the CPU and the operating system allow it, by instructions; else the same
 * layout goes through plain loops, so that the kernel compiles for other targets of clang, too.
 *
 * AMX takes subnormal elements for 0, rounds sums to nearest even and writes subnormal ones as 0. */
#ifndef CLATTN_AMX_TILES_CL_H
#define CLATTN_AMX_TILES_CL_H

#include "lanes.cl.h"
#include "softmax.cl.h"

#ifndef CLATTN_AMX
#define CLATTN_AMX 0
#endif

#define CLATTN_TILE_WORDS 256 /* of 4 bytes: a tile of 16 rows of 64 bytes that lies side by side */
#define CLATTN_STEP 32        /* elements of a row of a tile: what one instruction sums over */

/* Two tiles above each other or side by side: bytes from row to row, from tile to tile, and from step to step. */
typedef struct clattn_operand {
  ulong at; /* an address: OpenCL C 1.2 has no pointer that takes global and private memory alike */
  long row, next, step;
} clattn_operand;

static inline clattn_operand clattn_operand_of(ulong at, long row, long next, long step) {
  clattn_operand o;
  o.at = at;
  o.row = row;
  o.next = next;
  o.step = step;
  return o;
}

#if CLATTN_AMX
/* The sums are in registers: four of the eight, of 16 rows of 64 bytes each. */
typedef struct clattn_tile_sums {
  int none;
} clattn_tile_sums;

static inline void clattn_tiles_open(void) {
  __private uchar shape[64] __attribute__((aligned(64)));
  for (int x = 0; x < 64; ++x)
    shape[x] = 0;
  shape[0] = 1;
  for (int x = 0; x < 8; ++x) {
    shape[16 + 2 * x] = 64;
    shape[48 + x] = 16;
  }
  __asm__ volatile("ldtilecfg (%0)" ::"r"(shape) : "memory");
}

static inline void clattn_tiles_close(void) {
  __asm__ volatile("tilerelease" ::: "memory");
}

/* Sums of 32 rows and 32 columns: 0, or what c holds. */
static inline void clattn_tiles_zero(clattn_tile_sums *sums) {
  (void)sums;
  __asm__ volatile("tilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3" ::: "memory");
}

static inline void clattn_tiles_load(clattn_tile_sums *sums, clattn_operand c) {
  (void)sums;
  __asm__ volatile("tileloadd (%0,%2,1), %%tmm0\n\ttileloadd (%1,%2,1), %%tmm1\n\t"
                   "tileloadd (%3,%2,1), %%tmm2\n\ttileloadd (%4,%2,1), %%tmm3" ::"r"(c.at),
                   "r"(c.at + c.step), "r"(c.row), "r"(c.at + c.next), "r"(c.at + c.next + c.step)
                   : "memory");
}

static inline void clattn_tiles_store(const clattn_tile_sums *sums, clattn_operand c) {
  (void)sums;
  __asm__ volatile("tilestored %%tmm0, (%0,%2,1)\n\ttilestored %%tmm1, (%1,%2,1)\n\t"
                   "tilestored %%tmm2, (%3,%2,1)\n\ttilestored %%tmm3, (%4,%2,1)" ::"r"(c.at),
                   "r"(c.at + c.step), "r"(c.row), "r"(c.at + c.next), "r"(c.at + c.next + c.step)
                   : "memory");
}

/* Step x of the product of 32 rows of a and 32 columns of b. */
static inline void clattn_tiles_step(clattn_tile_sums *sums, clattn_operand a, clattn_operand b, int x) {
  const ulong left = a.at + x * a.step, right = b.at + x * b.step;
  (void)sums;
  __asm__ volatile("tileloadd (%0,%4,1), %%tmm4\n\ttileloadd (%2,%5,1), %%tmm6\n\ttdpbf16ps %%tmm6, %%tmm4, %%tmm0\n\t"
                   "tileloadd (%3,%5,1), %%tmm7\n\ttdpbf16ps %%tmm7, %%tmm4, %%tmm1\n\t"
                   "tileloadd (%1,%4,1), %%tmm5\n\ttdpbf16ps %%tmm6, %%tmm5, %%tmm2\n\t"
                   "tdpbf16ps %%tmm7, %%tmm5, %%tmm3" ::"r"(left),
                   "r"(left + a.next), "r"(right), "r"(right + b.next), "r"(a.row), "r"(b.row)
                   : "memory");
}
#else
typedef struct clattn_tile_sums {
  float x[32][32];
} clattn_tile_sums;

static inline void clattn_tiles_open(void) {}

static inline void clattn_tiles_close(void) {}

static inline void clattn_tiles_zero(clattn_tile_sums *sums) {
  for (int i = 0; i < 32; ++i)
    for (int j = 0; j < 32; ++j)
      sums->x[i][j] = 0.0f;
}

/* Where row i and column j of sums stand. */
static inline float *clattn_sum_at(clattn_operand c, int i, int j) {
  return (float *)(c.at + (i >> 4) * c.next + (i & 15) * c.row + (j >> 4) * c.step) + (j & 15);
}

static inline void clattn_tiles_load(clattn_tile_sums *sums, clattn_operand c) {
  for (int i = 0; i < 32; ++i)
    for (int j = 0; j < 32; ++j)
      sums->x[i][j] = *clattn_sum_at(c, i, j);
}

static inline void clattn_tiles_store(const clattn_tile_sums *sums, clattn_operand c) {
  for (int i = 0; i < 32; ++i)
    for (int j = 0; j < 32; ++j)
      *clattn_sum_at(c, i, j) = sums->x[i][j];
}

static inline float clattn_low_of(uint pair) {
  return as_float(pair << 16);
}

static inline float clattn_high_of(uint pair) {
  return as_float(pair & 0xffff0000u);
}

static inline void clattn_tiles_step(clattn_tile_sums *sums, clattn_operand a, clattn_operand b, int x) {
  for (int i = 0; i < 32; ++i)
    for (int j = 0; j < 32; ++j) {
      const uint *left = (const uint *)(a.at + x * a.step + (i >> 4) * a.next + (i & 15) * a.row);
      const ulong right = b.at + x * b.step + (j >> 4) * b.next;
      for (int y = 0; y < 16; ++y) {
        const uint pair = ((const uint *)(right + y * b.row))[j & 15];
        sums->x[i][j] = fma(clattn_low_of(left[y]), clattn_low_of(pair), sums->x[i][j]);
        sums->x[i][j] = fma(clattn_high_of(left[y]), clattn_high_of(pair), sums->x[i][j]);
      }
    }
}
#endif

/* 16 x 16 words change rows and columns: four times the first half of the rows is dealt out between the second. */
static inline void clattn_transpose_words(uint16 r[16]) {
#pragma unroll
  for (int round = 0; round < 4; ++round) {
    uint16 s[16];
#pragma unroll
    for (int x = 0; x < 8; ++x) {
      s[2 * x] = __builtin_shufflevector(r[x], r[x + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      s[2 * x + 1] =
          __builtin_shufflevector(r[x], r[x + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
#pragma unroll
    for (int x = 0; x < 16; ++x)
      r[x] = s[x];
  }
}

/* Halves of every 16 bytes of two vectors, dealt out in turns: elements of 2, 4 or 8 bytes. */
typedef ushort clattn_v32 __attribute__((ext_vector_type(32)));
static inline void clattn_deal_2(clattn_v32 a, clattn_v32 b, clattn_v32 *first, clattn_v32 *second) {
  const clattn_v32 x = __builtin_astype(a, clattn_v32), y = __builtin_astype(b, clattn_v32);
  *first = __builtin_astype(__builtin_shufflevector(x, y, 0, 32, 1, 33, 2, 34, 3, 35, 8, 40, 9, 41, 10, 42, 11, 43, 16,
                                                    48, 17, 49, 18, 50, 19, 51, 24, 56, 25, 57, 26, 58, 27, 59),
                            clattn_v32);
  *second = __builtin_astype(__builtin_shufflevector(x, y, 4, 36, 5, 37, 6, 38, 7, 39, 12, 44, 13, 45, 14, 46, 15, 47,
                                                     20, 52, 21, 53, 22, 54, 23, 55, 28, 60, 29, 61, 30, 62, 31, 63),
                             clattn_v32);
}

static inline void clattn_deal_4(clattn_v32 a, clattn_v32 b, clattn_v32 *first, clattn_v32 *second) {
  const uint16 x = __builtin_astype(a, uint16), y = __builtin_astype(b, uint16);
  *first = __builtin_astype(__builtin_shufflevector(x, y, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29),
                            clattn_v32);
  *second = __builtin_astype(__builtin_shufflevector(x, y, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31),
                             clattn_v32);
}

static inline void clattn_deal_8(clattn_v32 a, clattn_v32 b, clattn_v32 *first, clattn_v32 *second) {
  const ulong8 x = __builtin_astype(a, ulong8), y = __builtin_astype(b, ulong8);
  *first = __builtin_astype(__builtin_shufflevector(x, y, 0, 8, 2, 10, 4, 12, 6, 14), clattn_v32);
  *second = __builtin_astype(__builtin_shufflevector(x, y, 1, 9, 3, 11, 5, 13, 7, 15), clattn_v32);
}

/* 32 rows of 8 elements, `row` bytes apart, become 8 rows of 32 elements, side by side. */
static inline void clattn_transpose_rows(ulong at, long row, uint *to) {
  clattn_v32 r[8], s[8];
#pragma unroll
  for (int x = 0; x < 8; ++x) {
    const ushort8 a = vload8(0, (const ushort *)(at + x * row)), b = vload8(0, (const ushort *)(at + (8 + x) * row));
    const ushort8 c = vload8(0, (const ushort *)(at + (16 + x) * row));
    const ushort8 d = vload8(0, (const ushort *)(at + (24 + x) * row));
    const ushort16 low = (ushort16)(a, b), high = (ushort16)(c, d);
    r[x] = __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20,
                                   21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31);
  }
#pragma unroll
  for (int x = 0; x < 8; x += 2)
    clattn_deal_2(r[x], r[x + 1], &s[x], &s[x + 1]);
#pragma unroll
  for (int x = 0; x < 8; x += 4) {
    clattn_deal_4(s[x], s[x + 2], &r[x], &r[x + 1]);
    clattn_deal_4(s[x + 1], s[x + 3], &r[x + 2], &r[x + 3]);
  }
#pragma unroll
  for (int x = 0; x < 4; ++x)
    clattn_deal_8(r[x], r[x + 4], &s[2 * x], &s[2 * x + 1]);
#pragma unroll
  for (int x = 0; x < 8; ++x)
    *(clattn_v32 *)(to + 16 * x) = s[x];
}

/* Pairs of bf16 a word, the low half first; rounded half up, which differs from half to even in one of 65536 cases. */
static inline uint16 clattn_pairs_of(float16 low, float16 high) {
  const uint16 a = as_uint16(low) + 0x8000u, b = as_uint16(high) + 0x8000u;
  return (a >> 16) | (b & 0xffff0000u);
}

#if CLATTN_LANES == 16
/* 2^x for x <= 16; NaN stays; below 2^-150 exactly 0.  Two instructions of AVX-512 give x - floor(x), and 2^floor(x) times
 * a number; the polynomial between them is off by less than 2^-23, since its results are summed as they are, for lse, and
 * by nothing where x is 0.  Compilers that do not know yet which CPU they work for have no such registers to name. */
static inline float16 clattn_exp2_bf16(float16 x) {
#if CLATTN_AMX && defined(__AVX512DQ__)
  float16 f;
  __asm__("vreduceps $9, %1, %0" : "=v"(f) : "v"(x));
  float16 p = (float16)(0.001867130515165627f);
  p = fma(p, f, (float16)(0.009017029777169228f));
  p = fma(p, f, (float16)(0.05579991266131401f));
  p = fma(p, f, (float16)(0.24016444385051727f));
  p = fma(p, f, (float16)(0.6931512951850891f));
  p = fma(p, f, (float16)(1.0f));
  __asm__("vscalefps %1, %0, %0" : "+v"(p) : "v"(x));
  return p;
#else
  const float16 rounded = x + (float16)(0x1.8p23f);
  const float16 e = clattn_exp2(rounded, x - (rounded - (float16)(0x1.8p23f)));
  const float16 near = x < (float16)(-126.0f) ? (float16)(0.0f) : e;
  return x != x ? x : near;
#endif
}

#endif

#endif
