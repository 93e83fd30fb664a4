/* SPDX-License-Identifier: Apache-2.0 */
/* The test that kernels take at their first use in a context (clattn_context.tested): that they build, fit the device,
 * launch, and compute what the double-precision reference does. */
#ifndef CLATTN_TRIAL_H
#define CLATTN_TRIAL_H

#include "plan.h"
#include "self_test_cases.h"

enum { CLATTNI_TRIAL_CASES = 3, CLATTNI_TRIAL_SLOW = 60 /* seconds: a build that takes longer is not repeated */ };

/* A small problem for the very program of a choice. */
typedef struct clattni_trial_case {
  clattni_choice choice; /* the choice, its workspace measured for this problem */
  clattni_self_test_row row;
  clattni_self_test_case of;
  double *expected[CLATTNI_SLOTS]; /* of its outputs, element for element */
  double *memory;                  /* that these lie in */
} clattni_trial_case;

/* Every case has a full and a cut tile of rows and of keys.  0: no rules; 1: rows of -inf, 1e30, -1e30 and -FLT_MAX, some
 * of them or all, and sinks; 2: causal, window, lengths, mask, softcap and ALiBi, with NaN in what is excluded.  Programs
 * that have no bias, mask, softcap or ALiBi get 1 with rows without keys, and, by large queries, of 1e30 and -1e30; and 2
 * without what they lack, NaN in the last key's values instead. */
clattn_status clattni_trial_case_make(uint32_t index, const clattn_problem *resolved, const clattni_choice *choice,
                                      const clattni_allocator *allocator, clattni_trial_case *made,
                                      clattn_error *error);
void clattni_trial_case_free(const clattni_allocator *allocator, clattni_trial_case *made);

#endif
