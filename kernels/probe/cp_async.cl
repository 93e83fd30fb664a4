/* SPDX-License-Identifier: Apache-2.0 */
/* NVIDIA's asynchronous copies, in groups of one: after wait_group n all but the last n are there.  Sources are far apart,
 * so that one that was not waited for shows. */
#include "probe/shared.cl.h"

enum { LANES = 128, GROUPS = 4 };

static inline void copy_group(__local uint4 *to, __global const uint4 *from, uint bytes) {
  PROBE_ASM volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :
                     : "r"(probe_shared(to)), "l"(from), "r"(bytes)
                     : "memory");
  PROBE_ASM volatile("cp.async.commit_group;" : : : "memory");
}

/* apart: 16-byte elements between the groups' sources. */
__kernel void cp_async(__global const uint4 *in, __global uint4 *out, uint apart) {
  __local uint4 tile[GROUPS][LANES];
  const uint lane = (uint)get_local_id(0), at = (uint)get_global_id(0);
  __global uint4 *mine = out + GROUPS * at;
  for (int g = 0; g < GROUPS; ++g)
    tile[g][lane] = (uint4)(0xdeadbeefu);
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint g = 0; g < GROUPS; ++g)
    copy_group(&tile[g][lane], in + g * apart + at, g == 2u && (lane & 1u) ? 0u : 16u);
  PROBE_ASM volatile("cp.async.wait_group 3;" : : : "memory");
  mine[0] = tile[0][lane];
  PROBE_ASM volatile("cp.async.wait_group 2;" : : : "memory");
  mine[1] = tile[1][lane];
  PROBE_ASM volatile("cp.async.wait_group 1;" : : : "memory");
  mine[2] = tile[2][lane]; /* odd lanes: nothing copied, so zeros */
  PROBE_ASM volatile("cp.async.wait_all;" : : : "memory");
  barrier(CLK_LOCAL_MEM_FENCE);
  mine[3] = tile[3][LANES - 1u - lane]; /* a neighbour's, behind a barrier */
}
