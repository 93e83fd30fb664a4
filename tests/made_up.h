/* SPDX-License-Identifier: Apache-2.0 */
/* Devices that do not exist and problems drawn at random, for tests of selection and of launch lists. */
#ifndef CLATTN_TEST_MADE_UP_H
#define CLATTN_TEST_MADE_UP_H

#include <string.h>

#include "clattn.h"
#include "hook.h"
#include "select.h"

static inline clattn_device_info made_up_device(cl_device_type type) {
  clattn_device_info device;
  clattn_device_info_init(&device);
  device.type = type;
  device.global_bytes = UINT64_C(16) << 30;
  device.max_alloc_bytes = UINT64_C(4) << 30;
  device.local_bytes = 32768;
  device.compute_units = 8;
  device.max_work_group = 256;
  device.native_float_width = 8;
  device.base_align_bytes = 128;
  device.little_endian = 1;
  device.address_bits = 64;
  device.max_parameter_bytes = 1024;
  return device;
}

static uint64_t made_up_state = 88172645463325252u;

static inline int64_t made_up_number(int64_t low, int64_t high) {
  made_up_state ^= made_up_state << 13;
  made_up_state ^= made_up_state >> 7;
  made_up_state ^= made_up_state << 17;
  return low + (int64_t)((made_up_state >> 11) % (uint64_t)(high - low + 1));
}

/* Small numbers often, large ones sometimes. */
static inline int64_t made_up_size(int64_t low, int64_t high) {
  const int64_t most = made_up_number(0, 3) == 0 ? high : low + 3 + (high - low) / 20;
  return made_up_number(low, most < high ? most : high);
}

/* For problems that are never built. */
static const clattn_hook made_up_hook = {1, NULL, 0, 1, 1};

/* Any type, similarity and math; one problem in four has a hook, one in three rotary embedding. */
static inline void made_up_types(clattn_problem *problem) {
  problem->q.dtype = (clattn_dtype)made_up_number(0, 2);
  problem->k.dtype = (clattn_dtype)made_up_number(0, 4);
  problem->v.dtype = (clattn_dtype)made_up_number(0, 4);
  problem->o.dtype = (clattn_dtype)made_up_number(0, 2);
  problem->similarity = (clattn_similarity)made_up_number(0, 2);
  problem->math = (clattn_math)made_up_number(0, 2);
  problem->use_head_scale = (uint32_t)made_up_number(0, 1);
  problem->hook = made_up_number(0, 3) == 0 ? &made_up_hook : NULL;
  problem->rope = made_up_number(0, 1) == 0 ? (clattn_rope)made_up_number(0, 2) : CLATTN_ROPE_NONE;
  problem->use_positions = (uint32_t)made_up_number(0, 1);
}

/* A resolved problem with any types, outputs, stage, lengths, offsets and prefixes, one in four packed; sizes may be
 * 0 but for the batch. */
static inline clattn_problem made_up_problem(int64_t longest) {
  clattn_problem problem;
  clattn_problem_init(&problem);
  problem.batch = made_up_size(1, 100);
  problem.kv_heads = made_up_number(1, 4);
  problem.q_heads = problem.kv_heads * made_up_number(1, 8);
  problem.q_len = made_up_size(0, longest);
  problem.k_len = made_up_size(0, longest);
  problem.qk_dim = made_up_size(1, 600);
  problem.v_dim = made_up_size(1, 600);
  problem.outputs = (uint32_t)made_up_number(1, 15);
  problem.stage = (clattn_stage)made_up_number(0, 3);
  problem.q_length_mode = (clattn_length_mode)made_up_number(0, 1);
  problem.k_length_mode = (clattn_length_mode)made_up_number(0, 1);
  problem.offset_mode = (clattn_offset_mode)made_up_number(0, 3);
  problem.prefix_mode = (uint32_t)made_up_number(0, 2);
  problem.flags = made_up_number(0, 3) == 0 ? CLATTN_BATCH_INVARIANT : 0;
  if (made_up_number(0, 3) == 0) {
    problem.q.layout = problem.o.layout = problem.lse.layout = CLATTN_LAYOUT_PACKED;
    problem.total_q = made_up_size(problem.q_len > 0, problem.batch * problem.q_len + 3);
  }
  if (made_up_number(0, 3) == 0) {
    problem.k.layout = problem.v.layout = problem.k_scale.layout = problem.v_scale.layout = CLATTN_LAYOUT_PACKED;
    problem.total_k = made_up_size(problem.k_len > 0, problem.batch * problem.k_len + 3);
  }
  made_up_types(&problem);
  clattni_problem_resolve(&problem, &problem);
  return problem;
}

/* Sizes of an enqueue within the problem's bounds; packed rows are no more than so many sequences can have. */
static inline clattni_sizes made_up_sizes(const clattn_problem *problem) {
  const clattni_sizes bounds = clattni_bounds(problem);
  clattni_sizes sizes = {made_up_number(0, bounds.batch), made_up_number(0, bounds.q_len),
                         made_up_number(0, bounds.k_len), 0, 0};
  if (clattni_packed_q(problem))
    sizes.total_q =
        made_up_number(0, sizes.batch * sizes.q_len < bounds.total_q ? sizes.batch * sizes.q_len : bounds.total_q);
  if (clattni_packed_k(problem))
    sizes.total_k =
        made_up_number(0, sizes.batch * sizes.k_len < bounds.total_k ? sizes.batch * sizes.k_len : bounds.total_k);
  return sizes;
}

/* Row n of those that take every problem: a matrix unit's wants its types, and has tests of its own.  NULL past the
 * last. */
static inline const clattni_variant *made_up_general(uint32_t n) {
  for (uint32_t v = 0; clattni_variant_at(v) != NULL; ++v)
    if (strcmp(clattni_variant_at(v)->family, "matrix") != 0 && n-- == 0)
      return clattni_variant_at(v);
  return NULL;
}

/* Those rows in turns. */
static inline const clattni_variant *made_up_variant(uint32_t n) {
  uint32_t count = 1;
  while (made_up_general(count) != NULL)
    ++count;
  return made_up_general(n % count);
}

/* The choice of a row, on one of a few devices. */
static inline int made_up_choice(const clattn_problem *problem, const clattni_variant *variant, uint64_t cap,
                                 clattni_choice *choice) {
  static const uint32_t widths[] = {1, 4, 8, 16};
  clattn_device_info device =
      made_up_device(variant->shape == CLATTNI_SHAPE_LANES ? CL_DEVICE_TYPE_CPU : CL_DEVICE_TYPE_GPU);
  clattni_request request;
  device.native_float_width = widths[made_up_number(0, 3)];
  device.max_work_group = made_up_number(0, 1) ? 256 : 64;
  device.max_alloc_bytes = UINT64_C(1) << 50;
  memset(&request, 0, sizeof request);
  request.problem = problem;
  request.device = &device;
  request.variant = variant->name;
  request.workspace_cap = cap;
  return clattni_select(&request, choice, NULL) == CLATTN_SUCCESS && choice->variant == variant;
}

#endif
