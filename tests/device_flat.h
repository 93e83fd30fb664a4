/* SPDX-License-Identifier: Apache-2.0 */
/* A run on plain arrays, for tests that look at single numbers: tensors as the problem line says, o and lse out. */
#ifndef CLATTN_TEST_DEVICE_FLAT_H
#define CLATTN_TEST_DEVICE_FLAT_H

#include "device_cases.h"
#include "device_run.h"

typedef struct flat_input {
  const void *values;
  size_t bytes;
} flat_input;

typedef struct flat_ints {
  const int32_t *entries;
  uint32_t count;
} flat_ints;

typedef struct flat_run {
  const char *line, *variant;
  flat_input slot[CLATTNI_SLOTS];
  flat_ints array[JOB_ARRAYS];
  size_t o_count, lse_count, scores_count; /* elements of the results */
  int half;                                /* 1: o and scores in f16 or bf16, two bytes an element */
} flat_run;

/* Fails the test when anything does.  o and lse: filled with a pattern first; NULL where the line does not ask for
 * them. */
void flat_compute(const flat_run *run, void *o, float *lse);
/* The same with o and scores. */
void flat_scores(const flat_run *run, void *o, void *scores);
/* Numbers of order one that depend on the seed and the index alone. */
void flat_fill(float *values, size_t count, uint64_t seed);

#endif
