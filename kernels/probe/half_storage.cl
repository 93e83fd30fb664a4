/* SPDX-License-Identifier: Apache-2.0 */
/* f16 in memory alone, which needs no extension. */
__kernel void load_halves(__global const half *in, __global float *out) {
  const size_t i = get_global_id(0);
  out[i] = vload_half(i, in);
}

__kernel void store_halves(__global const float *in, __global half *out) {
  const size_t i = get_global_id(0);
  vstore_half_rte(in[i], i, out);
}
