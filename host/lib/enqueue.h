/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of an enqueue's arguments (enqueue_check.c) and their emission as launches (enqueue.c). */
#ifndef CLATTN_ENQUEUE_H
#define CLATTN_ENQUEUE_H

#include "clattn.h"
#include "launch.h"
#include "plan.h"

/* An enqueue's arguments, found right and worked out. */
typedef struct clattni_checked {
  const clattn_args *args;
  clattni_sizes sizes;
  clattni_layout layout;
  clattni_launch_list list;
  clattni_bases bases;
  cl_mem buffer[CLATTNI_SLOTS]; /* NULL: not used, or empty */
  int out_of_order;             /* of the queue */
} clattni_checked;

/* Asks OpenCL about the queue and the buffers, changes nothing.  args has the size that this release knows. */
clattn_status clattni_enqueue_check(const clattn_plan *plan, cl_command_queue queue, const clattn_args *args,
                                    clattni_checked *checked);

/* (q_len, k_len, offset) of batch entry b. */
void clattni_entry_of(const clattn_plan *plan, const clattni_checked *checked, int64_t b, cl_int entry[3]);

#endif
