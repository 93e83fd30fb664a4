/* SPDX-License-Identifier: Apache-2.0 */
__kernel void number(__global uint *out) {
  out[get_global_id(0)] = (uint)get_local_id(0);
}

__kernel void nothing(void) {}
