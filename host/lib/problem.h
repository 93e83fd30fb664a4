/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that is known about a problem with no device: defaults, checks, strides, extents, intervals, counts,
 * text. */
#ifndef CLATTN_PROBLEM_H
#define CLATTN_PROBLEM_H

#include "clattn.h"

/* The tensors of a problem that this release can use, in a fixed order; they index tables here and in enqueue. */
typedef enum clattni_slot {
  CLATTNI_Q,
  CLATTNI_K,
  CLATTNI_V,
  CLATTNI_O,
  CLATTNI_LSE,
  CLATTNI_SCORES,
  CLATTNI_MAX_LOGIT,
  CLATTNI_BIAS,
  CLATTNI_KEEP_MASK,
  CLATTNI_BLOCK_MASK,
  CLATTNI_ALIBI_SLOPES,
  CLATTNI_SINK,
  CLATTNI_PAGE_TABLE, /* int32; no field of the problem describes it: (batch, -, -, page), contiguous */
  CLATTNI_HEAD_SCALE,
  CLATTNI_ADD_W,   /* (-, head, -, element) */
  CLATTNI_K_SCALE, /* of I8 and I4: (batch, kv_head, key, group), packed or paged where the keys are */
  CLATTNI_V_SCALE,
  CLATTNI_ROPE_COS, /* (batch, -, position, pair) */
  CLATTNI_ROPE_SIN,
  CLATTNI_POSITIONS_Q, /* int32 like PAGE_TABLE: (batch, -, row, -) of the enqueue, packed where the rows are */
  CLATTNI_POSITIONS_K,
  CLATTNI_SLOTS
} clattni_slot;

/* Name for messages, as clattn_args has it: "q", "keep_mask". */
const char *clattni_slot_name(clattni_slot slot);
int clattni_slot_is_output(clattni_slot slot);
/* 1 if the (resolved) problem uses the tensor. */
int clattni_slot_used(const clattn_problem *problem, clattni_slot slot);
/* The tensor's descriptor in the problem; of PAGE_TABLE and positions a constant of 4-byte elements. */
const clattn_tensor *clattni_slot_tensor(const clattn_problem *problem, clattni_slot slot);
/* Bytes of what one address holds: an element, or two of I4 (KEEP_MASK: 1 for U8, 4 for BITS and BLOCK_MASK).  Memory
 * offsets are multiples of it.  How far elements reach is clattni_slot_bytes' to say. */
size_t clattni_slot_element_bytes(const clattn_problem *problem, clattni_slot slot);
/* Bytes that so many elements take, from a byte on: two of I4 share one.  -1 where they don't fit in 63 bits. */
int64_t clattni_slot_bytes(const clattn_problem *problem, clattni_slot slot, int64_t elements);
/* Element index of what lies so many bytes behind the start; the other way for offsets that are multiples of
 * clattni_slot_element_bytes. */
int64_t clattni_slot_index(const clattn_problem *problem, clattni_slot slot, uint64_t bytes);

/* The sizes of one enqueue; with the problem's own bounds it is the largest one. */
typedef struct clattni_sizes {
  int64_t batch, q_len, k_len;
  int64_t total_q, total_k; /* rows of packed tensors; 0 where they are not packed */
} clattni_sizes;
clattni_sizes clattni_bounds(const clattn_problem *resolved);

/* Whether q, o and lse, or k and v, are packed; whether k and v are paged. */
int clattni_packed_q(const clattn_problem *problem);
int clattni_packed_k(const clattn_problem *problem);
int clattni_paged(const clattn_problem *problem);
/* Whether the type needs scales. */
int clattni_quantised(clattn_dtype dtype);

/* Fills defaults into a checked problem: batch, q_heads, kv_heads, q_len and k_len of packed tensors, v_dim, outputs,
 * with rope its rope_dim and rope_positions; scale becomes the value that counts and scale_mode VALUE. */
void clattni_problem_resolve(const clattn_problem *problem, clattn_problem *resolved);

/* Shape in elements of a slot at the given sizes, 4 axes (batch, head, row, element); missing axes are 1.  BITS masks
 * count words on the last axis: (k_len + 31) / 32, scales groups: 1 for I8, one per 32 elements for I4.  Packed tensors
 * are (1, head, total rows, element), paged ones (page, head, row in page, element), the block mask (batch, head, query
 * block, word of key blocks). */
void clattni_slot_shape(const clattn_problem *resolved, const clattni_sizes *sizes, clattni_slot slot,
                        int64_t shape[4]);
/* Strides in elements of a slot at the given sizes: from the bounds, the sizes, or the given ones, as the layout says.
 * A BITS mask with element stride 0 keeps 0.  Rows of I4 without given strides start on a byte: an odd row is followed
 * by one element that nothing reads. */
void clattni_slot_strides(const clattn_problem *resolved, const clattni_sizes *sizes, clattni_slot slot,
                          int64_t stride[4]);
/* Elements from the first to one past the last: 0 for an empty shape, else 1 + sum of (shape - 1) * stride.
 * Returns 0 on overflow of int64, else 1. */
int clattni_extent(const int64_t shape[4], const int64_t stride[4], int64_t *elements);

/* The keys that the structural rules (lengths, causal with its prefix, window, chunk) let row i see: lo <= j < hi,
 * empty when lo >= hi.  Values that kernels take are the same. */
typedef struct clattni_row_rules {
  int64_t q_len, k_len, offset, prefix; /* of this batch entry; prefix 0 = none */
} clattni_row_rules;
void clattni_row_interval(const clattn_problem *resolved, const clattni_row_rules *rules, int64_t row, int64_t *lo,
                          int64_t *hi);
/* off[b] for a batch entry of lengths q_len and k_len; explicit_offset is the PER_BATCH (or overriding) entry. */
int64_t clattni_offset(const clattn_problem *resolved, int64_t q_len, int64_t k_len, int has_explicit,
                       int64_t explicit_offset);
/* Kept pairs of the whole problem at these sizes with full lengths; mask contents and bias count as keeping.  Packed
 * queries: as if total_q rows were sequences of q_len rows. */
uint64_t clattni_count_pairs(const clattn_problem *resolved, const clattni_sizes *sizes);

#endif
