/* SPDX-License-Identifier: Apache-2.0 */
/* What a kernel needs to know of one enqueue: a struct passed by value, so that no buffer has to be made for it.
 * Included by the host's C and by OpenCL C; 64-bit members first, so that both lay it out alike without padding. */
#ifndef CLATTN_PARAMS_CL_H
#define CLATTN_PARAMS_CL_H

#if defined(__OPENCL_C_VERSION__) || defined(__OPENCL_VERSION__)
typedef long clattn_long;
typedef int clattn_int;
#else
typedef cl_long clattn_long;
typedef cl_int clattn_int;
#endif

/* Bits of clattn_params.rules */
#define CLATTN_RULE_CAUSAL 1
#define CLATTN_RULE_BIAS 2
#define CLATTN_RULE_MASK_U8 4
#define CLATTN_RULE_MASK_BITS 8
#define CLATTN_RULE_LENGTHS 16 /* q_len, k_len and offset per batch entry, in the workspace */
#define CLATTN_RULE_LSE 32
#define CLATTN_RULE_MAX_LOGIT 64
#define CLATTN_RULE_OUT 128

/* clattn_params.stage: as clattn_stage, or none */
#define CLATTN_SCORES_NONE (-1)
#define CLATTN_SCORES_RAW 0
#define CLATTN_SCORES_SOFTCAP 1
#define CLATTN_SCORES_MASKED 2
#define CLATTN_SCORES_WEIGHTS 3

/* Where a tensor lies: element strides (batch, head, row, element) and the first element's index in its buffer. */
typedef struct clattn_view {
  clattn_long batch, head, row, element, first;
} clattn_view;

typedef struct clattn_params {
  clattn_view q, k, v, o, lse, scores, max_logit, bias, mask;
  clattn_long offset;                    /* position of query row 0 without CLATTN_RULE_LENGTHS */
  clattn_long window_left, window_right; /* unlimited: CLATTN_UNLIMITED */
  /* regions of the workspace, in 4-byte words from the start of its buffer */
  clattn_long lengths_first, maxima_first, stats_first, partial_first, scores_first;
  clattn_int batch, q_heads, group; /* group: query heads per key head */
  clattn_int q_len, k_len, qk_dim, v_dim;
  clattn_int rules, stage;
  clattn_int tiles_per_head; /* row tiles of one (batch, head) */
  clattn_int key_chunks;     /* parts of the key axis in the grid of `scores` */
  clattn_int keys_per_chunk;
  clattn_int k_stored;  /* rows (three-step-cpu) or columns (three-step) of a score tile in the workspace */
  float scale, softcap; /* softcap 0: none */
  clattn_int reserved;
} clattn_params;
#define CLATTN_UNLIMITED ((clattn_long)1 << 40) /* beyond every position, and far from overflow when added */

/* Keys of a block of the lane kernels: its scores stay in first-level cache. */
#define CLATTN_KEY_BLOCK 64

/* The tiles that one round of launches works on, numbered over batch, head, row tile. */
typedef struct clattn_round {
  clattn_int first_tile, tiles;
} clattn_round;

/* Host arrays on their way to the workspace: (q_len, k_len, offset) per batch entry. */
#define CLATTN_LENGTHS_PER_LAUNCH 32
typedef struct clattn_lengths {
  clattn_long to; /* index of the first entry's first word in the workspace's buffer */
  clattn_int count, reserved;
  clattn_int entry[CLATTN_LENGTHS_PER_LAUNCH * 3];
} clattn_lengths;

#endif
