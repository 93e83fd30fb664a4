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

/* What clattn_plan_create would take; no OpenCL call. */
clattn_status clattni_plan_choose(const clattn_context *context, const clattn_problem *problem, const char *variant,
                                  uint64_t workspace_cap, clattn_problem *resolved, clattni_choice *choice,
                                  clattn_error *error);

#endif
