/* SPDX-License-Identifier: Apache-2.0 */
/* What a __local pointer is as a number, and on NVIDIA what cvta makes of it. */
#ifndef PROBE_ASM
#define PROBE_ASM __asm__
#endif

__kernel void local_pointer(__global ulong *out) {
  __local uint first[64], second[64];
  const uint lane = (uint)get_local_id(0);
  first[lane] = 1000u + lane;
  second[lane] = 2000u + lane;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (lane == 0) {
    out[0] = (ulong)(size_t)&first[0];
    out[1] = (ulong)(size_t)&second[0];
    out[2] = (ulong)(size_t)out;
    out[3] = (ulong)sizeof(size_t);
    out[4] = first[63] + second[63]; /* both are real */
#ifdef PROBE_CVTA
    ulong shared;
    PROBE_ASM volatile("cvta.to.shared.u64 %0, %1;" : "=l"(shared) : "l"((ulong)(size_t)&first[0]));
    out[5] = shared;
#endif
  }
}
