/* SPDX-License-Identifier: Apache-2.0 */
/* The cases of the self-test and their inputs, for self_test.c and for tests/make_self_test.c, which computes what they
 * should give. */
#ifndef CLATTN_SELF_TEST_CASES_H
#define CLATTN_SELF_TEST_CASES_H

#include "clattn.h"
#include "memory.h"
#include "problem.h"

enum { CLATTNI_SELF_TEST_BATCH = 4, CLATTNI_SELF_TEST_PAGES = 18 };

typedef struct clattni_self_test_row {
  const char *name, *problem;
  int64_t step; /* of o and scores every so manieth element is held; has no divisor in common with a row's width */
  int32_t q_lengths[CLATTNI_SELF_TEST_BATCH], k_lengths[CLATTNI_SELF_TEST_BATCH], prefix[CLATTNI_SELF_TEST_BATCH];
  int32_t cu_seqlens_q[CLATTNI_SELF_TEST_BATCH + 1], cu_seqlens_k[CLATTNI_SELF_TEST_BATCH + 1];
  int32_t page_table[CLATTNI_SELF_TEST_PAGES];
} clattni_self_test_row;

typedef struct clattni_self_test_case {
  const clattni_self_test_row *row;
  clattn_problem problem; /* resolved */
  clattni_sizes sizes;
  int64_t shape[CLATTNI_SLOTS][4], stride[CLATTNI_SLOTS][4];
  size_t bytes[CLATTNI_SLOTS]; /* 0: not used */
  void *input[CLATTNI_SLOTS];  /* NULL for outputs */
  void *memory;                /* that the inputs lie in */
} clattni_self_test_case;

uint32_t clattni_self_test_count(void);
/* Numbers of integer arithmetic alone, the same on every machine.  Everything that no rule lets through (rows behind a
 * length, unused pages, dropped keys) is NaN.  INTERNAL if the table is wrong. */
clattn_status clattni_self_test_make(uint32_t index, const clattni_allocator *allocator, clattni_self_test_case *made,
                                     clattn_error *error);
/* The same for a row of the caller's and a problem: q, k and v, and without layouts what else it uses.  The row must live
 * as long as what is made. */
clattn_status clattni_self_test_fill(const clattni_self_test_row *row, const clattn_problem *problem, uint32_t seed,
                                     const clattni_allocator *allocator, clattni_self_test_case *made,
                                     clattn_error *error);
void clattni_self_test_free(const clattni_allocator *allocator, clattni_self_test_case *made);

/* Elements of a tensor, and the coordinates of element n in the order of its axes, all of them. */
int64_t clattni_self_test_elements(const clattni_self_test_case *of, clattni_slot slot);
void clattni_self_test_place(const clattni_self_test_case *of, clattni_slot slot, int64_t n, int64_t at[4]);
/* 1 if the library holds the value of element n of this output. */
int clattni_self_test_held(const clattni_self_test_case *of, clattni_slot slot, int64_t n);

/* 1 unless got is what a right kernel may give that stores this type: near want, and the very same where want is -inf
 * or 0, the marks of rows and pairs that nothing lets through. */
int clattni_self_test_wrong(clattn_dtype dtype, float got, float want);

/* An enqueue's arguments for a case, with a buffer for every tensor that it has. */
void clattni_self_test_args(const clattni_self_test_case *of, const cl_mem buffer[CLATTNI_SLOTS], clattn_args *args,
                            clattn_error *error);

#endif
