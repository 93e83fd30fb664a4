/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the reference share: one small problem with room for all its tensors, and what compares results. */
#ifndef CLATTN_TESTS_TEST_REF_H
#define CLATTN_TESTS_TEST_REF_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "clattn.h"
#include "clattn_ref.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))
static const double none = -(double)INFINITY;

/* Room for every tensor of the small problems here; all results hold UNTOUCHED before a run. */
enum { ROOM = 4096, UNTOUCHED = -12345 };
typedef struct fixture {
  clattn_problem p;
  clattn_ref_args a;
  clattn_error error;
  float q[ROOM], k[ROOM], v[ROOM], bias[ROOM], slopes[64], sink[64];
  unsigned char mask[ROOM];
  uint32_t bits[ROOM], block_mask[ROOM];
  int32_t q_lengths[8], k_lengths[8], q_offsets[8], prefix[8], cu_seqlens_q[8], cu_seqlens_k[8], page_table[64];
  double o[ROOM], lse[ROOM], scores[ROOM], max_logit[ROOM];
} fixture;
extern fixture f;

/* One batch entry and head, scale 1 and d = 1 unless said otherwise; all results wanted. */
void start(int64_t q_len, int64_t k_len);
void run(void);
/* Makes all results UNTOUCHED again. */
void clear_results(void);

uint32_t below(uint32_t n);
float random_float(void);
/* Fills q, k, v and bias. */
void random_inputs(void);

#define SET(to, ...)                                                                                                   \
  do {                                                                                                                 \
    const float from[] = {__VA_ARGS__};                                                                                \
    memcpy(to, from, sizeof from);                                                                                     \
  } while (0)

void is_close(const char *file, int line, double got, double want);
void are_close(const char *file, int line, const double *got, const double *want, size_t count);
#define CLOSE(got, want) is_close(__FILE__, __LINE__, got, want)
#define ALL_CLOSE(got, ...)                                                                                            \
  do {                                                                                                                 \
    const double all[] = {__VA_ARGS__};                                                                                \
    are_close(__FILE__, __LINE__, got, all, LENGTH(all));                                                              \
  } while (0)

/* Which keys each row keeps as lines of 0 and 1, by the weights. */
void kept_is(const char *file, int line, int64_t rows, int64_t keys, const char *want);
#define KEPT(rows, keys, want) kept_is(__FILE__, __LINE__, rows, keys, want)

/* Two batch entries of four heads over two key heads, random inputs. */
void start_random(int64_t q_len, int64_t k_len);

/* Runs and keeps all in `before`, to be compared with the same problem said in another way. */
void remember(void);
extern fixture before;
/* The first `rows` rows (of all batch entries and heads) have the same results. */
void same_rows(const char *file, int line, int64_t rows);
#define SAME_ROWS(rows) same_rows(__FILE__, __LINE__, rows)

/* A problem of 3 rows and 5 keys, after some statements on f, is refused, and nothing is written. */
void refused(const char *file, int line, clattn_status status, const char *text);
#define REFUSED(status, text, ...)                                                                                     \
  do {                                                                                                                 \
    start(3, 5);                                                                                                       \
    __VA_ARGS__;                                                                                                       \
    refused(__FILE__, __LINE__, CLATTN_ERROR_##status, text);                                                          \
  } while (0)

/* The other files of this program. */
int test_ref_rules(void);
int test_ref_types(void);

#endif
