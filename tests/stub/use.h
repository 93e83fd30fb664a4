/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests on the stub driver share: the driver, OpenCL objects on it, a counting allocator, and a job (a problem
 * with buffers and arguments).  Every test ends with no live object and no violation, or fails. */
#ifndef CLATTN_STUB_USE_H
#define CLATTN_STUB_USE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdatomic.h>
#include "clattn.h"
#include "stub.h"

extern const stub_control *stub; /* set by use_open */
/* Points the loader at the driver (or at a folder without one) and opens its control interface. */
int use_open(int with_driver);

/* ---- OpenCL objects ---- */

typedef struct rig {
  cl_platform_id platform;
  cl_device_id device[2];
  cl_context cl, foreign;
  cl_command_queue in_order, out_of_order; /* of cl, device 0, with profiling */
  cl_command_queue other_device, other_context;
  uint64_t live_before[STUB_KINDS], kept_before;
} rig;

int rig_setup(void **state);    /* *state: a rig */
int rig_teardown(void **state); /* fails on leaks and violations */

uint64_t live_objects(void);    /* of all kinds, and what the driver still keeps */
uint64_t live_references(void); /* likewise */
/* Prints the violations and returns how many there are. */
uint64_t print_violations(void);
#define assert_no_violation() assert_int_equal(print_violations(), 0)

/* ---- host memory ---- */

typedef struct heap {
  atomic_long live, calls;
  atomic_long fail_at; /* this call returns NULL; 0: none */
  atomic_long failed;
} heap;
void heap_options(heap *heap, clattn_context_options *options);
/* The driver's devices are GPUs and compute nothing: no variant would pass its first use.  So contexts trust all, and those
 * of jobs take the variant that uses every kind of memory. */
#define TRUSTING "trust=all;"
#define TRUSTED_JOBS TRUSTING "variant=three-step"
const clattn_context_options *trusting(void);

/* ---- jobs ---- */

enum {
  JOB_PLAIN = 0,
  JOB_LENGTHS = 1, /* per batch entry, with offsets */
  JOB_OUTPUTS = 2, /* all */
  JOB_MASKS = 4,   /* bias and keep mask */
  JOB_RULES = 8,   /* the others: prefixes per batch entry, window, chunk, ALiBi, sink, block mask */
  JOB_ALL = 15,
  JOB_DEVICE = 16, /* arrays and scalars stand on the device */
  JOB_PACKED = 32, /* q, o and lse, and k and v too unless those are paged */
  JOB_PAGED = 64,
  JOB_CHECKED = 128, /* plans of it are made with check_contents, and the driver lets calls block */
  JOB_TYPES = 256,   /* f16, i4, i8 and bf16, the additive similarity, a factor per head */
  JOB_HOOK = 512     /* two buffers and two scalars, one of them on the device where the others are */
};
/* Flags worth a test each: all of the first four, and those with the others. */
extern const unsigned job_kinds[];
extern const size_t num_job_kinds;
enum {
  JOB_BATCH = 2,
  JOB_HEADS = 4,
  JOB_KV_HEADS = 2,
  JOB_ROWS = 40,
  JOB_KEYS = 70,
  JOB_DIM = 16,
  JOB_V_DIM = 24,
  JOB_TOTAL_ROWS = 80, /* bounds of packed rows */
  JOB_TOTAL_KEYS = 140,
  JOB_PAGE = 16,
  JOB_PAGES = 9,
  JOB_MAX_PAGES = 5,
  JOB_HOOK_BYTES = 64,
  JOB_LAUNCHES = 512
};
extern clattn_hook *job_hook; /* of all jobs that have one; made by use_open */

typedef struct job {
  unsigned flags;
  clattn_problem problem;
  clattn_args args;
  clattn_error error;
  int32_t q_lengths[JOB_BATCH], k_lengths[JOB_BATCH], q_offsets[JOB_BATCH], prefix[JOB_BATCH];
  int32_t cu_seqlens_q[JOB_BATCH + 1], cu_seqlens_k[JOB_BATCH + 1];
  int32_t page_table[JOB_BATCH * JOB_MAX_PAGES];
  cl_event launch_events[JOB_LAUNCHES];
  uint32_t num_launch_events;
} job;

void job_init(job *job, unsigned flags);
/* 1: entries are staged for it, so that its plan has launches for that. */
int job_has_entries(const job *job);
/* The options that its plans are made with. */
/* Name v of the variants that take every problem; a matrix unit's wants its types.  NULL past the last. */
const char *general_variant(uint32_t v);
void job_options(const job *job, clattn_plan_options *options);
/* Buffers of exactly the size that the problem's tensors take. */
void job_buffers(job *job, cl_context cl);
void job_workspace(job *job, cl_context cl, const clattn_plan *plan);
void job_ask_launch_events(job *job);
void job_release_launch_events(job *job);
void job_free(job *job);

/* The arrays of a job's arguments, in the order in which kernels take them. */
enum { JOB_ARRAYS = 6 };
clattn_ints *job_array(clattn_args *args, int array);
const char *job_array_name(int array);

cl_mem make_buffer(cl_context cl, size_t bytes);
cl_mem make_filled_buffer(cl_context cl, size_t bytes, const void *data);
cl_event make_user_event(cl_context cl);
void run_user_event(cl_event event); /* completes and releases it */

/* ---- dependencies of recorded commands ---- */

typedef struct history {
  uint64_t count;
  stub_command *commands;
} history;
void history_take(history *history); /* all commands recorded since reset */
void history_free(history *history);
uint64_t history_launches(const history *history); /* NDRanges among them */
/* 1: the command with id `later` waits, however indirectly, for `earlier` (a command or a user event). */
int history_waits(const history *history, uint64_t later, uint64_t earlier);
/* Fails unless any two NDRanges that share a buffer, one of them writing, are ordered. */
void assert_ordered(const history *history);

/* ---- the groups of test_stub ---- */

int run_driver_tests(void);
int run_failure_tests(void);
int run_refusal_tests(void);
int run_order_tests(void);
int run_limit_tests(void);
int run_array_tests(void);
int run_type_tests(void);
int run_thread_tests(void);
void print_failure_table(void);

#endif
