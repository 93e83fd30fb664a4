/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of an enqueue's arguments (enqueue_check.c) and their emission as launches (enqueue.c). */
#ifndef CLATTN_ENQUEUE_H
#define CLATTN_ENQUEUE_H

#include "clattn.h"
#include "launch.h"
#include "place.h"
#include "plan.h"

/* The arrays per batch entry, in the order of the bits of clattn_gather.arrays. */
enum {
  CLATTNI_Q_LENGTHS,
  CLATTNI_K_LENGTHS,
  CLATTNI_Q_OFFSETS,
  CLATTNI_PREFIX,
  CLATTNI_CU_Q,
  CLATTNI_CU_K,
  CLATTNI_ARRAYS
};

/* An enqueue's arguments, found right and worked out. */
typedef struct clattni_checked {
  const clattn_args *args;
  clattni_sizes sizes;
  clattni_layout layout;
  clattni_launch_list list;
  clattni_bases bases;
  cl_mem buffer[CLATTNI_SLOTS]; /* NULL: not used, or empty */
  cl_mem array[CLATTNI_ARRAYS]; /* those on the device */
  int64_t array_first[CLATTNI_ARRAYS];
  cl_mem scale, softcap; /* on the device, or NULL */
  cl_mem hook_buffer[4], hook_scalar[4];
  clattn_hook_values hook;
  clattn_hook_gather hook_gather;
  int hook_on_device; /* 1: some scalar of the hook is */
  int out_of_order;   /* of the queue */
} clattni_checked;

/* Asks OpenCL about the queue and the buffers, changes nothing.  args has the size that this release knows. */
clattn_status clattni_enqueue_check(const clattn_plan *plan, cl_command_queue queue, const clattn_args *args,
                                    clattni_checked *checked);

/* Where the arguments name a tensor's memory; as const as they are themselves. */
const clattn_mem *clattni_slot_mem(const clattn_args *args, clattni_slot slot);
const char *clattni_array_name(int array);
const clattn_ints *clattni_array_of(const clattn_args *args, int array);
/* All of them: given where the problem needs them, host contents in range.  Sets the totals of *sizes. */
clattn_status clattni_check_arrays(const clattn_problem *problem, const clattn_args *args, clattni_sizes *sizes);
/* Contents alone; NULL: not known. */
clattn_status clattni_check_values(const clattn_problem *problem, const clattni_sizes *sizes,
                                   const int32_t *const values[CLATTNI_ARRAYS], clattn_error *error);
/* Reads what stands on the device back and checks it too; blocks. */
clattn_status clattni_check_contents(const clattn_plan *plan, cl_command_queue queue, const clattni_checked *checked,
                                     cl_uint num_events, const cl_event *wait_list);

/* Whether something differs between batch entries, or is not known to the host, so that kernels must look it up. */
int clattni_needs_entries(const clattn_problem *problem, const clattn_args *args);
/* What the host knows of batch entry b. */
void clattni_entry_of(const clattn_plan *plan, const clattni_checked *checked, int64_t b,
                      cl_int word[CLATTN_ENTRY_WORDS]);
void clattni_gather_of(const clattn_plan *plan, const clattni_checked *checked, clattn_gather *gather);

#endif
