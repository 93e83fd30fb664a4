/* SPDX-License-Identifier: Apache-2.0 */
/* How work-items fall into sub-groups. */
#ifdef PROBE_INTEL
#pragma OPENCL EXTENSION cl_intel_subgroups : enable
#else
#pragma OPENCL EXTENSION cl_khr_subgroups : enable
#endif

#ifdef PROBE_SIZE
__attribute__((intel_reqd_sub_group_size(PROBE_SIZE)))
#endif
__kernel void
sub_groups(__global uint *out) {
  const size_t i = 3 * get_global_id(0);
  out[i] = get_max_sub_group_size();
  out[i + 1] = get_sub_group_id();
  out[i + 2] = get_sub_group_local_id();
}
