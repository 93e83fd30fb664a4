/* SPDX-License-Identifier: Apache-2.0 */
/* What test_hook.c runs: a small problem with a hook on a device, and what the hook comes to in the reference. */
#ifndef CLATTN_TEST_HOOK_JOB_H
#define CLATTN_TEST_HOOK_JOB_H

#include "clattn.h"
#include "clattn_ref.h"

extern clattn_context *context;

enum { BUFFERS = 4, ALL_OUTPUTS = 15 };

typedef struct job {
  const char *line;        /* the problem without its hook; all tensors contiguous and f32 */
  const clattn_hook *hook; /* or NULL */
  clattn_mem buffer[BUFFERS];
  clattn_scalar scalar[BUFFERS];
  const int32_t *q_lengths, *k_lengths, *q_offsets;
  const float *given_bias; /* an input of the device too */
  /* What the hook comes to, for the reference: added to scores, bytes that keep, or functions. */
  const float *bias;
  const unsigned char *mask;
  double (*score)(void *user, double s, const clattn_ref_at *at);
  int (*keep)(void *user, const clattn_ref_at *at);
  void *user;
} job;

typedef struct shape {
  clattn_problem problem;
  size_t q, k, v, o, rows, pairs, heads; /* counts of elements; of lse and of scores; of max_logit */
} shape;
shape shape_of(const char *line);

typedef struct results {
  float *o, *lse, *scores, *max_logit; /* NULL: not asked for */
} results;

typedef struct expected {
  double *o, *lse, *scores, *max_logit;
} expected;

/* Zeroed; numbers between -1 and 1, the same for the same seed. */
void *memory(size_t bytes);
float *numbers(size_t count, uint32_t seed);
/* A buffer whose data lie behind `before` 4-byte words of NaN. */
clattn_mem placed(const void *data, size_t bytes, size_t before);
clattn_scalar on_host(float value);
clattn_scalar on_device(float value, size_t before);

/* The device's problem. */
clattn_problem device_problem(const job *j, uint32_t outputs, clattn_stage stage);
/* 0: the variant does not take the problem. */
int run_on_device(const job *j, const char *variant, uint32_t outputs, clattn_stage stage, results *r);
void results_free(results *r);
void run_reference(const job *j, clattn_stage stage, expected *e);
void expected_free(expected *e);
void check_close(const job *j, const char *variant, const char *what, const float *got, const double *want,
                 size_t count);
/* Against the reference, twice: everything, with the scores of this stage; and o alone, which may be computed another
 * way. On the variant that selection takes, or on every one. */
void check_job(const job *j, clattn_stage stage);
void check_job_everywhere(const job *j, clattn_stage stage);
/* Releases buffers and scalars. */
void job_close(job *j);

clattn_hook *hook_of(const char *source);
/* A file of examples/hooks. */
clattn_hook *example(const char *name);

int hook_device_open(void **state);
int hook_device_close(void **state);

#endif
