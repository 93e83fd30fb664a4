/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of test_device share: the device, the variants, running and comparing one job, snapshots of its
 * results. */
#ifndef CLATTN_TEST_DEVICE_JUDGE_H
#define CLATTN_TEST_DEVICE_JUDGE_H

#include "device_expect.h"
#include "device_run.h"
#include "select.h"

#define ALL_OUTPUTS 15u

typedef struct device_variant {
  const char *name;
  int fused;
  int usable;    /* 1: the device can run it at all; then it takes every problem */
  size_t passed; /* comparisons */
} device_variant;

extern device_rig rig;
#define VARIANTS_MOST 16
extern device_variant variants[VARIANTS_MOST];
extern uint32_t variant_count;
void list_variants(void);

/* Runs and compares.  1: passed, 0: not claimed, -1: failed. */
int judge(const device_job *job, job_memory *memory, const expectation *expect, const run_options *options);

/* A job on every variant: o alone, everything with each stage, and one other set of outputs, since what is computed
 * differs between them.  0, or -1 if a run failed; *passed grows by the runs that passed. */
int judge_job(const device_job *job, size_t index, size_t *passed);
/* A test of all jobs of a row. */
void judge_row(const device_case *row);

/* Counts a run that passed (device_coverage.c). */
void coverage_add(uint32_t variant, const device_job *job, uint32_t outputs, clattn_stage stage);

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

/* Tests of other files; each fault is named for what it would do. */
size_t fault_tests(struct CMUnitTest *tests);
#define FAULT_TESTS_MOST 40
void weights_that_vanish(void **state);
void offsets_are_64_bits_wide(void **state);
void rows_far_apart(void **state);
void every_cell_has_a_case(void **state);
void every_type_has_a_case(void **state);
void others_change_no_bit(void **state);
void batch_invariant_rows(void **state);
void contents_are_checked(void **state);
int speed_tests(void);
void every_half_pattern(void **state);
void stores_round_to_nearest_even(void **state);
void quantised_as_dequantised(void **state);
void repeated_runs_give_the_same_bits(void **state);
void workspace_caps(void **state);
void max_logit_in_the_smallest_workspace(void **state);
void one_plan_for_many_sizes(void **state);
void events_order_an_out_of_order_queue(void **state);
void two_queues_at_once(void **state);
void launch_events(void **state);
void outputs_leave_o_alone(void **state);
void fused_plans_keep_no_scores(void **state);

#endif
