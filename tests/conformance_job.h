/* SPDX-License-Identifier: Apache-2.0 */
/* A case in the words of clattn.h: one problem with its inputs, run in one or several ways (jobs), and what is
 * wanted. */
#ifndef CLATTN_TESTS_CONFORMANCE_JOB_H
#define CLATTN_TESTS_CONFORMANCE_JOB_H

#include "clattn.h"
#include "conformance_case.h"

typedef enum cf_slot { CF_Q, CF_K, CF_V, CF_BIAS, CF_KEEP, CF_BITS, CF_SLOPES, CF_SLOTS } cf_slot;
typedef enum cf_result { CF_O, CF_LSE, CF_SCORES, CF_RESULTS } cf_result;

/* What goes into a buffer. */
typedef struct cf_bytes {
  void *data; /* NULL: not an input of the case */
  size_t bytes;
} cf_bytes;

/* A tensor seen as (batch, head, row, element). */
typedef struct cf_view {
  int64_t shape[4], stride[4];
} cf_view;

typedef struct cf_job {
  const char *what; /* how this job differs from the plain one; "" for that */
  clattn_problem problem;
  int use_k_lengths, use_q_offsets;
  cf_slot keep; /* CF_KEEP or CF_BITS, where the problem has a keep mask */
} cf_job;

/* A wanted output; want is NULL when the case has none of this kind.  The view gives where element (b, h, i, d) lies,
 * in the case's file and in the buffer alike. */
typedef struct cf_want {
  const cf_tensor *want;
  cf_view view;
} cf_want;

enum { CF_MAX_JOBS = 3 };

typedef struct cf_work {
  int64_t batch; /* may be 0, unlike the problem's bound */
  cf_bytes input[CF_SLOTS];
  int32_t *k_lengths, *q_offsets; /* batch entries, or NULL */
  cf_want result[CF_RESULTS];
  int jobs;
  cf_job job[CF_MAX_JOBS];
} cf_work;

/* Translates a loaded case and judges what the host alone computes (the joined caches).  0 with the reason when the
 * case is malformed, not understood, or an output is wrong.  cf_work_free is needed in both cases. */
int cf_translate_onnx(const cf_case *c, cf_work *work, cf_reason *reason);
int cf_translate_torch(const cf_case *c, cf_work *work, cf_reason *reason);
void cf_work_free(cf_work *work);

/* Number of (b, h, i, d), and whether got (contiguous in that order) is what the case wants. */
int64_t cf_view_count(const cf_view *view);
int cf_compare(const cf_tensor *want, const cf_view *view, const double *got, cf_reason *reason);

#endif
