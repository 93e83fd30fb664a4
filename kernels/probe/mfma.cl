/* SPDX-License-Identifier: Apache-2.0 */
/* AMD's MFMA: D = A B + C of 16 x 16 by a wave of 64; a lane holds four elements of a row of A and of a column of B, and
 * of D rows 4 (lane / 16) + e. */
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
typedef float probe_f4 __attribute__((ext_vector_type(4)));
typedef half probe_h4 __attribute__((ext_vector_type(4)));

__attribute__((reqd_work_group_size(64, 1, 1))) __kernel void matrix(__global const half *a, __global const half *b,
                                                                     __global const float *c, __global float *d) {
  const uint lane = (uint)get_local_id(0), column = lane & 15u, quarter = 4u * (lane >> 4);
  probe_h4 x, y;
  probe_f4 sum;
  for (uint i = 0; i < 4u; ++i) {
    x[i] = a[column * 16u + quarter + i];
    y[i] = b[(quarter + i) * 16u + column];
    sum[i] = c[(quarter + i) * 16u + column];
  }
  sum = __builtin_amdgcn_mfma_f32_16x16x16f16(x, y, sum, 0, 0, 0);
  for (uint i = 0; i < 4u; ++i)
    d[(quarter + i) * 16u + column] = sum[i];
}
