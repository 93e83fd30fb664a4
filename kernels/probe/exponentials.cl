/* SPDX-License-Identifier: Apache-2.0 */
/* The exponentials that a softmax might use. */
__kernel void exponentials(__global const float *in, __global float *out, uint count) {
  const uint i = (uint)get_global_id(0);
  const float x = in[i];
  out[i] = exp2(x);
  out[count + i] = exp(x);
#ifdef PROBE_NATIVE
  out[2u * count + i] = native_exp2(x);
  out[3u * count + i] = native_exp(x);
#endif
}
