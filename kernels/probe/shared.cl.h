/* SPDX-License-Identifier: Apache-2.0 */
/* The address of local memory for NVIDIA's shared-memory instructions: the pointer as a number, or what cvta makes of it. */
#ifndef PROBE_SHARED_CL_H
#define PROBE_SHARED_CL_H

#ifndef PROBE_ASM
#define PROBE_ASM __asm__ /* or asm, where the compiler takes no other spelling */
#endif

static inline uint probe_shared(const __local void *at) {
#ifdef PROBE_CVTA
  ulong shared;
  PROBE_ASM volatile("cvta.to.shared.u64 %0, %1;" : "=l"(shared) : "l"((ulong)(size_t)at));
  return (uint)shared;
#else
  return (uint)(size_t)at;
#endif
}

#endif
