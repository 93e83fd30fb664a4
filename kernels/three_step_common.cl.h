/* SPDX-License-Identifier: Apache-2.0 */
/* The small steps that both bodies of the three-step pipeline share. */
#ifndef CLATTN_THREE_STEP_COMMON_CL_H
#define CLATTN_THREE_STEP_COMMON_CL_H

#include "params.cl.h"
#include "kv.cl.h"
#include "softmax.cl.h"

/* Step 0.  Host arrays travel as an argument: no buffer to make, no host memory to keep alive, nothing to wait for. */
__kernel void stage_lengths(const clattn_lengths chunk, __global int *restrict lengths) {
  const int i = get_global_id(0);
  if (i < 3 * chunk.count)
    lengths[chunk.to + i] = chunk.entry[i];
}

/* The largest raw score over kept pairs of a row tile, from the parts that `scores` found.  Fixed order, no atomics.
 * Grid: (tile). */
__kernel void tile_maximum(const clattn_params p, const clattn_round round, __global float *restrict work) {
  const int in_round = get_global_id(0);
  __global const float *parts = work + p.partial_first + (long)in_round * p.key_chunks;
  float best = -INFINITY;
  for (int x = 0; x < p.key_chunks; ++x)
    best = clattn_larger_nan(best, parts[x]);
  work[p.maxima_first + round.first_tile + in_round] = best;
}

/* Last step.  The same of each (batch, head), from its tiles.  Grid: (batch * head). */
__kernel void max_logit(const clattn_params p, __global const float *restrict work, __global float *restrict out) {
  const int bh = get_global_id(0);
  __global const float *tiles = work + p.maxima_first + (long)bh * p.tiles_per_head;
  float best = -INFINITY;
  for (int x = 0; x < p.tiles_per_head; ++x)
    best = clattn_larger_nan(best, tiles[x]);
  out[p.max_logit.first + (bh / p.q_heads) * p.max_logit.batch + (bh % p.q_heads) * p.max_logit.head] = best;
}

#endif
