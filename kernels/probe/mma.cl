/* SPDX-License-Identifier: Apache-2.0 */
/* NVIDIA's ldmatrix and mma.sync m16n8k16: D (16 x 8) = A (16 x 16) B + C by one sub-group of 32, with B given by columns
 * (plain ldmatrix) and by rows (.trans).  PROBE_TYPE: f16 or bf16. */
#include "probe/shared.cl.h"

#define PROBE_TEXT(x) #x
#define PROBE_MMA(type)                                                                                                \
  "mma.sync.aligned.m16n8k16.row.col.f32." PROBE_TEXT(type) "." PROBE_TEXT(type) ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, " \
                                                                                 "{%8,%9}, {%0,%1,%2,%3};"

enum { PITCH = 24 }; /* elements; rows start at 16 bytes */

__kernel void mma(__global const ushort *a, __global const ushort *b, __global const float *c, __global float *d,
                  int by_rows) {
  __local ushort left[16 * PITCH] __attribute__((aligned(16)));
  __local ushort right[16 * PITCH] __attribute__((aligned(16)));
  const uint lane = (uint)get_local_id(0), group = lane >> 2, pair = 2u * (lane & 3u);
  for (uint i = lane; i < 256u; i += 32u)
    left[i / 16u * PITCH + i % 16u] = a[i];
  for (uint i = lane; i < 128u; i += 32u) {
    if (by_rows)
      right[i / 8u * PITCH + i % 8u] = b[i];
    else
      right[i % 8u * PITCH + i / 8u] = b[i];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  uint x0, x1, x2, x3, y0, y1;
  PROBE_ASM volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(x0), "=r"(x1), "=r"(x2), "=r"(x3)
                     : "r"(probe_shared(left + (lane & 15u) * PITCH + (lane >> 4) * 8u))
                     : "memory");
  if (by_rows)
    PROBE_ASM volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                       : "=r"(y0), "=r"(y1)
                       : "r"(probe_shared(right + (lane & 15u) * PITCH))
                       : "memory");
  else
    PROBE_ASM volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                       : "=r"(y0), "=r"(y1)
                       : "r"(probe_shared(right + (lane & 7u) * PITCH + (lane >> 3 & 1u) * 8u))
                       : "memory");
  float r0 = c[group * 8u + pair], r1 = c[group * 8u + pair + 1u];
  float r2 = c[(group + 8u) * 8u + pair], r3 = c[(group + 8u) * 8u + pair + 1u];
  PROBE_ASM volatile(PROBE_MMA(PROBE_TYPE)
                     : "+f"(r0), "+f"(r1), "+f"(r2), "+f"(r3)
                     : "r"(x0), "r"(x1), "r"(x2), "r"(x3), "r"(y0), "r"(y1));
  d[group * 8u + pair] = r0;
  d[group * 8u + pair + 1u] = r1;
  d[(group + 8u) * 8u + pair] = r2;
  d[(group + 8u) * 8u + pair + 1u] = r3;
}
