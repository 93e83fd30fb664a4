/* SPDX-License-Identifier: Apache-2.0 */
/* What a job must give: the double-precision reference, and how far a kernel may be from it, namely twice the error
 * of a plain float evaluation of the same formula in the same row plus twice the rounding noise of its inputs. */
#ifndef CLATTN_TEST_DEVICE_EXPECT_H
#define CLATTN_TEST_DEVICE_EXPECT_H

#include "device_run.h"

typedef struct expected {
  double *value, *tolerance;
  size_t count;
} expected;

typedef struct expectation {
  expected o, lse, max_logit, scores[4];
  unsigned stages;      /* bit per stage that is there */
  unsigned char *empty; /* of each row: 1 if no key is kept */
  double *weighed;      /* of each element of o: the sum of weights times the values' sizes */
  int rounded_weights;  /* 1: weights are rounded to bf16 before they meet the values, which the tolerance covers */
} expectation;

/* stages: bits of the score stages wanted.  0 on failure, with a message. */
int expectation_make(const device_job *job, const job_memory *memory, unsigned stages, expectation *expect);
void expectation_free(expectation *expect);
/* Compares what a run left in memory; the number of elements that differ, the first ones printed. */
size_t expectation_compare(const expectation *expect, const job_memory *memory, uint32_t outputs, clattn_stage stage);

#endif
