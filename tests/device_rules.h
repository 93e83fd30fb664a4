/* SPDX-License-Identifier: Apache-2.0 */
/* The rules, types and similarities that a run can have: what must be met by cases, and what drawn problems pair. */
#ifndef CLATTN_TEST_DEVICE_RULES_H
#define CLATTN_TEST_DEVICE_RULES_H

#include "device_cases.h"

/* What a run is asked about. */
typedef struct executed {
  const device_job *job;
  const clattn_problem *p; /* resolved */
  uint32_t outputs;
  clattn_stage stage;
} executed;

/* What a rule is counted for, beside cases of its own. */
typedef enum rule_kind {
  RULE_ALONE,
  RULE_TYPE,   /* types and similarities: cases of their own part */
  RULE_PAIRED, /* drawn problems pair it with every other one */
  RULE_TYPE_PAIRED
} rule_kind;

typedef struct coverage_rule {
  const char *name;
  int (*has)(const executed *x);
  rule_kind kind;
  int group; /* rules of the same group, not 0, exclude each other */
} coverage_rule;

extern const coverage_rule coverage_rules[];
#define COVERAGE_RULES_MOST 80
extern const size_t coverage_rule_count;

#endif
