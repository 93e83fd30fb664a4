/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers below 2^-126 (subnormals) as inputs and as results of a product, a sum and a fused product. */
__kernel void denormals(__global const float *in, __global float *out) {
  const float least = in[0], half_of_one = in[1], subnormal = in[2], two = in[3];
  out[0] = least * half_of_one;
  out[1] = subnormal + subnormal;
  out[2] = subnormal * two * two;
  out[3] = fma(least, half_of_one, subnormal);
}
