/* SPDX-License-Identifier: Apache-2.0 */
/* AMD's WMMA: D = A B + C of 16 x 16 by a wave of 32.  gfx11: a lane holds a whole row of A or column of B, and of D rows
 * 2e + lane / 16; gfx12: half a row or column, and of D rows 8 (lane / 16) + e. */
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
typedef float probe_f8 __attribute__((ext_vector_type(8)));
typedef half probe_h8 __attribute__((ext_vector_type(8)));
typedef half probe_h16 __attribute__((ext_vector_type(16)));

__attribute__((reqd_work_group_size(32, 1, 1))) __kernel void matrix(__global const half *a, __global const half *b,
                                                                     __global const float *c, __global float *d) {
  const uint lane = (uint)get_local_id(0), column = lane & 15u, upper = lane >> 4;
  probe_f8 sum;
#if PROBE_GFX == 12
  probe_h8 x, y;
  for (uint i = 0; i < 8u; ++i) {
    x[i] = a[column * 16u + 8u * upper + i];
    y[i] = b[(8u * upper + i) * 16u + column];
    sum[i] = c[(8u * upper + i) * 16u + column];
  }
  sum = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(x, y, sum);
  for (uint i = 0; i < 8u; ++i)
    d[(8u * upper + i) * 16u + column] = sum[i];
#else
  probe_h16 x, y;
  for (uint i = 0; i < 16u; ++i) {
    x[i] = a[column * 16u + i];
    y[i] = b[i * 16u + column];
  }
  for (uint i = 0; i < 8u; ++i)
    sum[i] = c[(2u * i + upper) * 16u + column];
  sum = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(x, y, sum);
  for (uint i = 0; i < 8u; ++i)
    d[(2u * i + upper) * 16u + column] = sum[i];
#endif
}
