/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of test_device share: the device, the variants, running and comparing one job, snapshots of its results. */
#ifndef CLATTN_TEST_DEVICE_JUDGE_H
#define CLATTN_TEST_DEVICE_JUDGE_H

#include "device_expect.h"
#include "device_run.h"
#include "select.h"

#define ALL_OUTPUTS 15u

typedef struct device_variant {
  const char *name;
  int fused;
  size_t passed; /* comparisons */
} device_variant;

extern device_rig rig;
extern device_variant variants[16];
extern uint32_t variant_count;
void list_variants(void);

/* Runs and compares.  1: passed, 0: not claimed, -1: failed. */
int judge(const device_job *job, job_memory *memory, const expectation *expect, const run_options *options);

/* The job of one problem line. */
void parse_job(const char *line, unsigned data, device_job *job);

/* The bytes of all outputs. */
typedef struct snapshot {
  unsigned char *bytes[CLATTNI_SLOTS];
} snapshot;
void take(const job_memory *memory, snapshot *copy);
void drop(snapshot *copy);
int same_bits(const job_memory *memory, const snapshot *copy);

/* The smallest cap with which a plan can be made, by bisection: for plans that need a workspace at all. */
uint64_t smallest_cap(const device_job *job, run_options *options);

/* Tests of other files. */
void repeated_runs_give_the_same_bits(void **state);
void workspace_caps(void **state);
void max_logit_in_the_smallest_workspace(void **state);
void one_plan_for_many_sizes(void **state);
void events_order_an_out_of_order_queue(void **state);
void two_queues_at_once(void **state);
void launch_events(void **state);
void outputs_leave_o_alone(void **state);
void fused_plans_keep_no_scores(void **state);
void windows_skip_keys(void **state);

#endif
