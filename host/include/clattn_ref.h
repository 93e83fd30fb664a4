/* SPDX-License-Identifier: Apache-2.0
 *
 * clattn_ref: attention in double precision on the host, for tests, yours too.  Same problem struct as clattn.h; needs
 * no OpenCL device and calls nothing of OpenCL.  Written to be read (host/lib/ref.c), not to be fast:
 * O(rows * k_len * dim), one thread.
 */
#ifndef CLATTN_REF_H
#define CLATTN_REF_H

#include "clattn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A pair that a hook is asked about; the words of clattn_at in clattn.h. */
typedef struct clattn_ref_at {
  int64_t b, h, kv_h;
  int64_t i, j, p;
  int64_t q_len, k_len;
} clattn_ref_at;

typedef struct clattn_ref_args {
  size_t struct_size;
  clattn_error *error; /* optional */

  uint32_t sizes; /* CLATTN_SIZES_; as in clattn_args */
  uint32_t reserved0;
  int64_t batch, q_len, k_len;

  /* Inputs in the problem's types, layouts and strides, by plain pointers to element (0,0,0,0). */
  const void *q, *k, *v;
  const void *bias, *keep_mask;
  const void *block_mask, *alibi_slopes, *sink, *head_scale, *add_w;
  const void *k_scale, *v_scale;
  const int32_t *page_table; /* (batch, max_pages); entries are clamped to the pages there are */

  /* int32 arrays, `batch` entries (cu_seqlens: one more); given exactly when the problem's modes and layouts ask for
   * them.  q_offsets with CLATTN_OFFSET_VALUE is optional and overrides the field offset; q_lengths and k_lengths of
   * packed tensors shorten sequences. */
  const int32_t *q_lengths, *k_lengths, *q_offsets, *prefix;
  const int32_t *cu_seqlens_q, *cu_seqlens_k;

  /* What the problem's hook does, in C: the reference can't run its source.  At least one where the problem has a hook,
   * none where it has none.  score_hook returns the new score, keep_hook 0 to exclude the pair. */
  double (*score_hook)(void *user, double s, const clattn_ref_at *at);
  int (*keep_hook)(void *user, const clattn_ref_at *at);
  void *hook_user;

  /* Results as double, contiguous over this call's sizes (batch, q_heads, q_len[, v_dim or k_len]); NULL = not wanted.
   * max_logit: (batch, q_heads).  stage is the problem's.  problem.outputs and the output strides are not looked at.
   * Packed queries too: row i of sequence b stands at (b, h, i), rows behind a sequence's end hold what a row without
   * keys gives. */
  double *o, *lse, *scores, *max_logit;

  /* Row sampling for large problems: with row_step > 1 only rows r (r counts batch, head, row in that order) with
   * r % row_step == row_first are computed; the others are left as they were.  max_logit needs row_step <= 1. */
  int64_t row_first, row_step;

  /* Rotary embedding: the tables, and with use_positions int32 positions, laid out as in clattn_args.  Here positions are
   * clamped to the tables wherever they come from. */
  const void *rope_cos, *rope_sin;
  const int32_t *positions_q, *positions_k;

  uint32_t reserved[8];
} clattn_ref_args;
CLATTN_API void clattn_ref_args_init(clattn_ref_args *args);

/* Errors: those of clattn_problem_check, NULL_POINTER (a tensor or array that the problem needs), TENSOR_UNUSED, BOUND,
 * LENGTH, VALUE (row sampling), RESERVED, OUT_OF_MEMORY.  Thread-safe. */
CLATTN_API clattn_status clattn_ref_attention(const clattn_problem *problem, const clattn_ref_args *args);

#ifdef __cplusplus
}
#endif
#endif
