/* SPDX-License-Identifier: Apache-2.0 */
/* Does the compiler take NVIDIA's assembler?  The lane's number from its register. */
#ifndef PROBE_ASM
#define PROBE_ASM __asm__
#endif

__kernel void ptx(__global uint *out) {
  uint lane;
  PROBE_ASM volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  out[get_global_id(0)] = lane;
}
