/* SPDX-License-Identifier: Apache-2.0 */
/* Intel's sub-group matrix product, 8 rows and 16 of the inner dimension; as many columns as the sub-group has work-items.
 * PROBE_SIZE 8: a lane holds two neighbours of each row of A; 16: one. */
#pragma OPENCL EXTENSION cl_intel_subgroups : enable

#ifdef PROBE_DECLARE /* for compilers that have it, but not declared in every version of the language */
#if PROBE_SIZE == 8
float8 __attribute__((overloadable)) intel_sub_group_f16_f16_matrix_mad_k16(int8 a, int8 b, float8 sums);
#else
float8 __attribute__((overloadable)) intel_sub_group_f16_f16_matrix_mad_k16(short8 a, int8 b, float8 sums);
#endif
#endif

__attribute__((intel_reqd_sub_group_size(PROBE_SIZE), reqd_work_group_size(PROBE_SIZE, 1, 1))) __kernel void
dpas(__global const ushort *a, __global const ushort *b, __global const float *c, __global float *d) {
  const uint lane = (uint)get_sub_group_local_id();
  uint columns[8];
  float sums[8];
  for (uint i = 0; i < 8u; ++i) {
    columns[i] = (uint)b[2u * i * PROBE_SIZE + lane] | (uint)b[(2u * i + 1u) * PROBE_SIZE + lane] << 16;
    sums[i] = c[i * PROBE_SIZE + lane];
  }
#if PROBE_SIZE == 8
  uint rows[8];
  for (uint i = 0; i < 8u; ++i)
    rows[i] = (uint)a[i * 16u + 2u * lane] | (uint)a[i * 16u + 2u * lane + 1u] << 16;
  const int8 left = as_int8(vload8(0, rows));
#else
  ushort rows[8];
  for (uint i = 0; i < 8u; ++i)
    rows[i] = a[i * 16u + lane];
  const short8 left = as_short8(vload8(0, rows));
#endif
  vstore8(intel_sub_group_f16_f16_matrix_mad_k16(left, as_int8(vload8(0, columns)), vload8(0, sums)), 0, sums);
  for (uint i = 0; i < 8u; ++i)
    d[i * PROBE_SIZE + lane] = sums[i];
}
