/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLATTN_PLAN_H
#define CLATTN_PLAN_H

#include <stdatomic.h>

#include "clattn.h"
#include "context.h"
#include "program.h"
#include "select.h"

struct clattn_plan {
  clattn_context *context;
  clattn_problem asked;   /* as the caller gave it */
  clattn_problem problem; /* resolved */
  clattni_choice choice;
  clattni_program *program; /* of the context */
  double build_seconds;
  int check_contents;   /* 1: arrays on the device are read back and checked */
  _Atomic(char *) line; /* the problem line, written when somebody first asks: it takes as long as all the rest */
};

/* What selection picks, whatever is known about kernels of this context; no OpenCL call. */
clattn_status clattni_plan_choose(const clattn_context *context, const clattn_problem *problem, const char *variant,
                                  uint64_t workspace_cap, clattn_problem *resolved, clattni_choice *choice,
                                  clattn_error *error);
/* What clattn_plan_create would take: where the context tests kernels, those that failed are passed over, or refused where
 * the caller named them.  *untested: 1 if the choice was not tested yet.  No OpenCL call. */
clattn_status clattni_plan_choose_tested(clattn_context *context, const clattn_problem *problem, const char *variant,
                                         uint64_t workspace_cap, clattn_problem *resolved, clattni_choice *choice,
                                         int *untested, clattn_error *error);
/* What the verdict on a choice is known by: on its program alone, or (hook) with the hook in it. */
void clattni_plan_verdict_key(const clattni_choice *choice, const clattn_problem *resolved, const clattn_hook *hook,
                              char key[CLATTNI_VERDICT_KEY]);

/* The steps of clattn_plan_create: checks; the choice's program, with the hook or (NULL) without one; the plan of a choice,
 * `seconds` being spent on its kernels before. */
clattn_status clattni_plan_check(const clattn_context *context, const clattn_plan_options *options, clattn_plan **out,
                                 clattn_error *error);
clattn_status clattni_plan_program(clattn_context *context, const clattni_choice *choice, const clattn_hook *hook,
                                   clattni_program **program, double *seconds, clattn_error *error);
clattn_status clattni_plan_make(clattn_context *context, const clattn_problem *problem,
                                const clattn_plan_options *options, const clattn_problem *resolved,
                                const clattni_choice *choice, double seconds, clattn_plan **out, clattn_error *error);

#endif
