/* SPDX-License-Identifier: Apache-2.0 */
/* Writes local memory and counts the words that read back wrong by others. */
__kernel void use_local(__local uint *memory, uint words, __global uint *wrong) {
  const uint lane = (uint)get_local_id(0), lanes = (uint)get_local_size(0);
  uint bad = 0;
  for (uint i = lane; i < words; i += lanes)
    memory[i] = i * 2654435761u + (uint)get_group_id(0);
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint i = lane; i < words; i += lanes) {
    const uint other = words - 1u - i;
    bad += memory[other] != other * 2654435761u + (uint)get_group_id(0);
  }
  wrong[get_global_id(0)] = bad;
}
