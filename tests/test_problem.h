/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of problems share: three legal problems to spoil, and what is expected of the check. */
#ifndef CLATTN_TESTS_TEST_PROBLEM_H
#define CLATTN_TESTS_TEST_PROBLEM_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "clattn.h"
#include "problem.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* 2 batch entries of 8 heads over 2 key heads, 3 rows and 5 keys of 8 elements, values of 4. */
clattn_problem base(void);
/* q, o, lse, k and v packed: up to 2 sequences of up to 3 rows and 5 keys. */
clattn_problem packed(void);
/* k and v in 7 pages of 4 keys. */
clattn_problem paged(void);
/* The slot's descriptor, to be changed. */
clattn_tensor *tensor_of(clattn_problem *p, clattni_slot slot);

void refused(const char *file, int line, const clattn_problem *p, clattn_status status, const char *text);
void accepted(const char *file, int line, const clattn_problem *p);

/* The base problem after some statements on p. */
#define REFUSED(status, text, ...)                                                                                     \
  do {                                                                                                                 \
    clattn_problem p = base();                                                                                         \
    __VA_ARGS__;                                                                                                       \
    refused(__FILE__, __LINE__, &p, CLATTN_ERROR_##status, text);                                                      \
  } while (0)
#define ACCEPTED(...)                                                                                                  \
  do {                                                                                                                 \
    clattn_problem p = base();                                                                                         \
    __VA_ARGS__;                                                                                                       \
    accepted(__FILE__, __LINE__, &p);                                                                                  \
  } while (0)
#define SET_STRIDES(tensor, batch, head, row, element)                                                                 \
  (tensor).stride[0] = (batch), (tensor).stride[1] = (head), (tensor).stride[2] = (row), (tensor).stride[3] = (element)

/* The other file of this program. */
int test_problem_types(void);

#endif
