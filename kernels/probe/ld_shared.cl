/* SPDX-License-Identifier: Apache-2.0 */
/* Reads local memory by NVIDIA's instruction, at the address that shared.cl.h makes of a pointer. */
#include "probe/shared.cl.h"

__kernel void ld_shared(__global uint *out) {
  __local uint words[64];
  const uint lane = (uint)get_local_id(0);
  uint got;
  words[lane] = 3000u + lane;
  barrier(CLK_LOCAL_MEM_FENCE);
  PROBE_ASM volatile("ld.shared.u32 %0, [%1];" : "=r"(got) : "r"(probe_shared(&words[63u - lane])) : "memory");
  out[lane] = got;
}
