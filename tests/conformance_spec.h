/* SPDX-License-Identifier: Apache-2.0 */
/* What the two formats of cases have in common: one form that says what to compute, and what turns it into jobs. */
#ifndef CLATTN_TESTS_CONFORMANCE_SPEC_H
#define CLATTN_TESTS_CONFORMANCE_SPEC_H

#include "conformance_job.h"

/* What both formats say, in one form. */
typedef struct cf_spec {
  const cf_array *q, *k, *v;
  cf_view q_view, k_view, v_view;
  const cf_array *mask;
  int pad_mask; /* 1: a mask with fewer keys is padded, as ONNX has it; a last axis of 1 is short, too */
  const cf_array *slopes;
  clattn_alibi alibi;
  const cf_array *k_lengths;
  clattn_scale_mode scale_mode;
  float scale, softcap;
  int causal;
  clattn_offset_mode offset_mode;
  int64_t offset;
  int64_t window_left, window_right; /* < 0: unlimited */
  const cf_tensor *o, *lse, *scores;
  int o_heads; /* of a rank-3 output; 0: rank 4 */
  clattn_stage stage;
} cf_spec;

/* Zeroed memory, at least one element; NULL when there is none. */
void *cf_allocate(int64_t count, size_t element);
/* Rank 4 as it lies, or rank 3 (batch, row, heads * element) split by strides. */
int cf_view_of(const cf_array *array, const char *name, int64_t heads, cf_view *view, cf_reason *reason);
/* A wanted output must have the shape that the inputs give it. */
int cf_want_shape(const cf_tensor *want, int rank, int64_t a, int64_t b, int64_t c, int64_t d, cf_reason *reason);
/* Q, K and V must fit each other. */
int cf_check_sizes(const cf_spec *spec, cf_reason *reason);
/* Fills the work but for what the caller judged itself.  cf_work_free is needed in both cases. */
int cf_build(const cf_spec *spec, cf_work *work, cf_reason *reason);

#endif
