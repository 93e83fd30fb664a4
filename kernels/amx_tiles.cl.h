/* SPDX-License-Identifier: Apache-2.0 */
/* Products of matrix tiles of bf16 by AMX: sums of f32, 16 rows and 16 columns a tile, 32 elements a step.  With
 * CLATTN_AMX, which the host defines where the CPU and the operating system allow it, by instructions; else the same
 * layout goes through plain loops, so that the kernel compiles, and can be run, everywhere.
 *
 * AMX takes subnormal elements for 0, rounds sums to nearest even and writes subnormal ones as 0. */
#ifndef CLATTN_AMX_TILES_CL_H
#define CLATTN_AMX_TILES_CL_H

#include "lanes.cl.h"

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
/* Eight registers of 16 rows of 64 bytes. */
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

/* c (+)= a b over `steps` steps: 32 rows of a, 32 columns of b. */
static inline void clattn_tiles_product(clattn_operand a, clattn_operand b, int steps, clattn_operand c, int add) {
  if (add)
    __asm__ volatile("tileloadd (%0,%2,1), %%tmm0\n\ttileloadd (%1,%2,1), %%tmm1\n\t"
                     "tileloadd (%3,%2,1), %%tmm2\n\ttileloadd (%4,%2,1), %%tmm3" ::"r"(c.at),
                     "r"(c.at + c.step), "r"(c.row), "r"(c.at + c.next), "r"(c.at + c.next + c.step)
                     : "memory");
  else
    __asm__ volatile("tilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3" ::: "memory");
  ulong left = a.at, right = b.at;
  for (int x = 0; x < steps; ++x) {
    __asm__ volatile(
        "tileloadd (%0,%4,1), %%tmm4\n\ttileloadd (%2,%5,1), %%tmm6\n\ttdpbf16ps %%tmm6, %%tmm4, %%tmm0\n\t"
        "tileloadd (%3,%5,1), %%tmm7\n\ttdpbf16ps %%tmm7, %%tmm4, %%tmm1\n\t"
        "tileloadd (%1,%4,1), %%tmm5\n\ttdpbf16ps %%tmm6, %%tmm5, %%tmm2\n\t"
        "tdpbf16ps %%tmm7, %%tmm5, %%tmm3" ::"r"(left),
        "r"(left + a.next), "r"(right), "r"(right + b.next), "r"(a.row), "r"(b.row)
        : "memory");
    left += a.step;
    right += b.step;
  }
  __asm__ volatile("tilestored %%tmm0, (%0,%2,1)\n\ttilestored %%tmm1, (%1,%2,1)\n\t"
                   "tilestored %%tmm2, (%3,%2,1)\n\ttilestored %%tmm3, (%4,%2,1)" ::"r"(c.at),
                   "r"(c.at + c.step), "r"(c.row), "r"(c.at + c.next), "r"(c.at + c.next + c.step)
                   : "memory");
}
#else
static inline void clattn_tiles_open(void) {}

static inline void clattn_tiles_close(void) {}

static inline float clattn_low_of(uint pair) {
  return as_float(pair << 16);
}

static inline float clattn_high_of(uint pair) {
  return as_float(pair & 0xffff0000u);
}

static inline void clattn_tiles_product(clattn_operand a, clattn_operand b, int steps, clattn_operand c, int add) {
  for (int i = 0; i < 32; ++i)
    for (int j = 0; j < 32; ++j) {
      float *to = (float *)(c.at + (i >> 4) * c.next + (i & 15) * c.row + (j >> 4) * c.step) + (j & 15);
      float sum = add ? *to : 0.0f;
      for (int x = 0; x < steps; ++x) {
        const uint *left = (const uint *)(a.at + x * a.step + (i >> 4) * a.next + (i & 15) * a.row);
        const ulong right = b.at + x * b.step + (j >> 4) * b.next;
        for (int y = 0; y < 16; ++y) {
          const uint pair = ((const uint *)(right + y * b.row))[j & 15];
          sum = fma(clattn_low_of(left[y]), clattn_low_of(pair), sum);
          sum = fma(clattn_high_of(left[y]), clattn_high_of(pair), sum);
        }
      }
      *to = sum;
    }
}
#endif

/* 16 x 16 words change rows and columns: four times the first half of the rows is dealt out between the second. */
static inline void clattn_transpose(uint16 r[16]) {
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

/* Pairs of bf16 a word, the low half first; rounded half up, which differs from half to even in one of 65536 cases. */
static inline uint16 clattn_pairs_of(float16 low, float16 high) {
  const uint16 a = as_uint16(low) + 0x8000u, b = as_uint16(high) + 0x8000u;
  return (a >> 16) | (b & 0xffff0000u);
}

/* 2^x for x <= 16, NaN stays; from -150 down exactly 0.  The polynomial's error is below 2^-23, since its
 * results are summed as they are, for lse; where x is 0 there is none. */
static inline float16 clattn_exp2_bf16(float16 x) {
#if CLATTN_AMX
  float16 f; /* x - floor(x), and 2^floor(x) times the rest: an instruction each */
  __asm__("vreduceps $9, %1, %0" : "=v"(f) : "v"(x));
#else
  const float16 whole = floor(x);
  const float16 f = x - whole;
#endif
  float16 p = (float16)(0.001867130515165627f);
  p = fma(p, f, (float16)(0.009017029777169228f));
  p = fma(p, f, (float16)(0.05579991266131401f));
  p = fma(p, f, (float16)(0.24016444385051727f));
  p = fma(p, f, (float16)(0.6931512951850891f));
  p = fma(p, f, (float16)(1.0f));
#if CLATTN_AMX
  __asm__("vscalefps %1, %0, %0" : "+v"(p) : "v"(x));
  return p;
#else
  const int16 up = as_int16(whole + (float16)(0x1.8p23f)) << 23;
  const float16 scaled = as_float16(as_int16(p) + up);
  const float16 near = x < (float16)(-126.0f) ? (float16)(0.0f) : scaled;
  return x != x ? x : near;
#endif
}

#endif
