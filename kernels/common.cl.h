/* SPDX-License-Identifier: Apache-2.0 */
/* The small steps that all families share. */
#ifndef CLATTN_COMMON_CL_H
#define CLATTN_COMMON_CL_H

#include "params.cl.h"
#include "softmax.cl.h"
#include "tile.cl.h"

/* Step 0.  Host arrays travel as an argument: no buffer to make, no host memory to keep alive, nothing to wait for. */
__kernel void stage_entries(const clattn_entries chunk, __global int *restrict entries) {
  const int i = get_global_id(0);
  if (i < CLATTN_ENTRY_WORDS * chunk.count)
    entries[chunk.to + i] = chunk.word[i];
}

/* Step 0 of arrays on the device: they join what the host staged, clamped to their ranges.  Grid: (batch). */
__kernel void gather_entries(const clattn_gather g, __global const int *q_lengths, __global const int *k_lengths,
                             __global const int *q_offsets, __global const int *prefix, __global const int *cu_q,
                             __global const int *cu_k, __global int *entries) {
  const int b = get_global_id(0);
  __global int *at = entries + g.entries_first + CLATTN_ENTRY_WORDS * (long)b;
  int q_rows = at[CLATTN_ENTRY_Q_ROWS], q_len = at[CLATTN_ENTRY_Q_LEN], k_len = at[CLATTN_ENTRY_K_LEN];
  int k_rows = g.k_len;
  if (g.arrays & CLATTN_GATHER_CU_Q) {
    const int start = clamp(cu_q[g.first[4] + b], 0, g.total_q);
    q_rows = clamp(cu_q[g.first[4] + b + 1], start, g.total_q) - start;
    q_rows = min(q_rows, g.q_len);
    at[CLATTN_ENTRY_Q_START] = start;
    at[CLATTN_ENTRY_Q_ROWS] = q_rows;
    q_len = g.arrays & CLATTN_GATHER_STAGED_Q ? min(q_len, q_rows) : q_rows;
  }
  if (g.arrays & CLATTN_GATHER_Q_LENGTHS)
    q_len = clamp(q_lengths[g.first[0] + b], 0, q_rows);
  if (g.arrays & CLATTN_GATHER_CU_K) {
    const int start = clamp(cu_k[g.first[5] + b], 0, g.total_k);
    k_rows = min(clamp(cu_k[g.first[5] + b + 1], start, g.total_k) - start, g.k_len);
    at[CLATTN_ENTRY_K_START] = start;
    k_len = g.arrays & CLATTN_GATHER_STAGED_K ? min(k_len, k_rows) : k_rows;
  } else if (g.arrays & CLATTN_GATHER_STAGED_K_ROWS)
    k_rows = k_len; /* of a packed sequence that the host knows */
  if (g.arrays & CLATTN_GATHER_K_LENGTHS)
    k_len = clamp(k_lengths[g.first[1] + b], 0, k_rows);
  at[CLATTN_ENTRY_Q_LEN] = q_len;
  at[CLATTN_ENTRY_K_LEN] = k_len;
  if (g.arrays & CLATTN_GATHER_Q_OFFSETS)
    at[CLATTN_ENTRY_OFFSET] = q_offsets[g.first[2] + (g.arrays & CLATTN_GATHER_ONE_OFFSET ? 0 : b)];
  else if (g.arrays & CLATTN_GATHER_BOTTOM_RIGHT)
    at[CLATTN_ENTRY_OFFSET] = k_len - q_len;
  if (g.arrays & CLATTN_GATHER_PREFIX)
    at[CLATTN_ENTRY_PREFIX] = max(prefix[g.first[3] + b], 0);
}

/* The same for a hook's scalars.  Grid: (4). */
__kernel void gather_hook(const clattn_hook_gather g, __global const float *scalar0, __global const float *scalar1,
                          __global const float *scalar2, __global const float *scalar3, __global float *work) {
  const int x = get_global_id(0);
  __global const float *from = x == 0 ? scalar0 : x == 1 ? scalar1 : x == 2 ? scalar2 : scalar3;
  if (x < 4)
    work[g.to + x] = g.first[x] < 0 ? g.scalar[x] : from[g.first[x]];
}

/* The largest raw score over kept pairs of every row of a round, from the parts that `scores` found.  Fixed order, no
 * atomics.  Grid: (row of the round). */
__kernel void row_maximum(const clattn_params p, const clattn_round round, __global const int *restrict entries,
                          __global const int *restrict table, __global float *restrict work) {
  const int in_round = get_global_id(0) / p.rows, r = get_global_id(0) % p.rows;
  const clattn_unit u = clattn_unit_of(&p, entries, table, round.first_tile + in_round);
  const int i = clattn_unit_row(&p, &u, r);
  __global const float *parts = work + CLATTN_REGION(&p, p.partial_at) + (long)in_round * p.key_chunks * p.rows + r;
  float best = -INFINITY;
  for (int x = 0; x < p.key_chunks; ++x)
    best = clattn_larger_nan(best, parts[(long)x * p.rows]);
  const clattn_row_view maxima = clattn_maxima(&p);
  if (i < u.entry.q_rows)
    work[clattn_row_of(&maxima, u.b, clattn_unit_head(&p, &u, r), (long)u.entry.q_start + i)] = best;
}

/* Last step.  The same of each (batch, head), from its rows.  Grid: (batch * head). */
__kernel void max_logit(const clattn_params p, const clattn_head_view to, __global const int *restrict entries,
                        __global const float *restrict work, __global float *restrict out) {
  const int b = get_global_id(0) / p.q_heads, h = get_global_id(0) % p.q_heads;
  const clattn_entry e = clattn_entry_of(&p, entries, b);
  const clattn_row_view maxima = clattn_maxima(&p);
  __global const float *rows = work + clattn_row_of(&maxima, b, h, e.q_start);
  float best = -INFINITY;
  for (int i = 0; i < e.q_rows; ++i)
    best = clattn_larger_nan(best, rows[i * maxima.row]);
  out[clattn_of_head(&to, b, h)] = best;
}

#endif
