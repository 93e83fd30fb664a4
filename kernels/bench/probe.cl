/* SPDX-License-Identifier: Apache-2.0 */
/* What a device can do at most: probes that the benchmark measures beside attention.  Each writes a number that depends
 * on all of its work, so that no compiler leaves it out. */
#include "lanes.cl.h"
#include "softmax.cl.h"

#if defined(__clang__) && CLATTN_LANES == 16
#define PROBE_KERNEL __attribute__((min_vector_width(512))) __kernel
#else
#define PROBE_KERNEL __kernel
#endif

/* Independent chains: enough to cover the latency of two units, few enough for registers. */
#define CHAINS 10

static inline float probe_sum(clattn_v x) {
  float t[CLATTN_LANES], sum = 0.0f;
  CLATTN_VSTORE(x, t);
  for (int l = 0; l < CLATTN_LANES; ++l)
    sum += t[l];
  return sum;
}

/* steps * CHAINS * CLATTN_LANES fused multiply-adds a work-item. */
PROBE_KERNEL void fma_peak(__global float *out, int steps, float x, float y) {
  clattn_v a[CHAINS];
  const clattn_v vx = (clattn_v)(x), vy = (clattn_v)(y);
#pragma unroll
  for (int i = 0; i < CHAINS; ++i)
    a[i] = (clattn_v)(x * (float)i);
  for (int s = 0; s < steps; ++s) {
#pragma unroll
    for (int i = 0; i < CHAINS; ++i)
      a[i] = fma(a[i], vx, vy);
  }
  clattn_v sum = a[0];
#pragma unroll
  for (int i = 1; i < CHAINS; ++i)
    sum += a[i];
  out[get_global_id(0)] = probe_sum(sum);
}

/* The exponential of the attention kernels: steps * 4 * CLATTN_LANES of them a work-item. */
PROBE_KERNEL void exp_rate(__global float *out, int steps, float x) {
  clattn_v a[4], sum = (clattn_v)(0.0f);
#pragma unroll
  for (int i = 0; i < 4; ++i)
    a[i] = (clattn_v)(x - (float)i);
  for (int s = 0; s < steps; ++s) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      a[i] = -clattn_exp(a[i]) - (clattn_v)(0.5f); /* stays between -1.5 and -0.5 */
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
    sum += a[i];
  out[get_global_id(0)] = probe_sum(sum);
}

/* Reads `rounds` times its part of n * per_item vectors of 64 bytes, as four streams: work-item w of n reads those that
 * lie side by side with its neighbours' on GPUs (stride n), or a part of its own (stride 1).  per_item: a multiple of
 * 4.  One stream a thread leaves a tenth of a CPU's bandwidth unused, since a prefetcher stops at the end of a page. */
PROBE_KERNEL void read_bytes(__global const float16 *from, __global float *out, long per_item, long stride,
                             int rounds) {
  const long item = get_global_id(0), part = per_item / 4;
  __global const float16 *const first = from + (stride == 1 ? item * per_item : item);
  __global const float16 *const second = first + part * stride;
  __global const float16 *const third = second + part * stride;
  __global const float16 *const fourth = third + part * stride;
  float16 a = (float16)(0.0f), b = a, c = a, d = a;
  for (int r = 0; r < rounds; ++r)
    for (long i = 0; i < part; ++i) {
      a += first[i * stride];
      b += second[i * stride];
      c += third[i * stride];
      d += fourth[i * stride];
    }
  a += b + (c + d);
  const float8 e = a.lo + a.hi;
  const float4 f = e.lo + e.hi;
  out[item] = f.x + f.y + f.z + f.w;
}

/* Nothing, to see what a launch costs. */
__kernel void empty(__global float *out) {
  if (get_global_id(0) == 1)
    out[0] = 0.0f;
}

#ifdef PROBE_HALF
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
/* The same in half: steps * CHAINS * 8 fused multiply-adds a work-item. */
__kernel void half_peak(__global float *out, int steps, float x, float y) {
  half8 a[CHAINS];
  const half8 vx = (half8)((half)x), vy = (half8)((half)y);
#pragma unroll
  for (int i = 0; i < CHAINS; ++i)
    a[i] = (half8)((half)(x * (float)i));
  for (int s = 0; s < steps; ++s) {
#pragma unroll
    for (int i = 0; i < CHAINS; ++i)
      a[i] = fma(a[i], vx, vy);
  }
  half8 sum = a[0];
#pragma unroll
  for (int i = 1; i < CHAINS; ++i)
    sum += a[i];
  out[get_global_id(0)] = (float)(sum.s0 + sum.s1 + sum.s2 + sum.s3 + sum.s4 + sum.s5 + sum.s6 + sum.s7);
}
#endif
