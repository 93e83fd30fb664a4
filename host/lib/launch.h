/* SPDX-License-Identifier: Apache-2.0 */
/* What an enqueue will launch, worked out with no OpenCL call: the list of kernel launches and the kernels'
 * parameters. */
#ifndef CLATTN_LAUNCH_H
#define CLATTN_LAUNCH_H

#include "clattn.h"
#include "params.cl.h"
#include "problem.h"
#include "select.h"

/* Kept verdicts of the self-test count for one revision.  Raise it with every change of host code that can change what
 * kernels compute from the same sources: the list of launches, their grids and arguments, the layout of the workspace,
 * what enqueue stages; and with a change of how the self-test judges. */
#define CLATTNI_SELF_TEST_REVISION 1

typedef struct clattni_launch {
  clattni_entry entry;
  uint32_t dims;
  size_t global[2], local[2];
  clattn_round round;  /* of the steps of a round */
  int64_t first_entry; /* STAGE_ENTRIES: batch entries first_entry .. + count - 1 */
  int32_t count;
  int64_t depends_on; /* index of the launch that must be complete before; -1: none */
} clattni_launch;

/* The launches of an enqueue: a value, so that making one allocates nothing. */
typedef struct clattni_launch_list {
  const clattni_choice *choice;
  const clattn_problem *problem; /* resolved */
  clattni_sizes sizes;
  clattni_layout layout;
  int32_t staged; /* 1: kernels read entries from the workspace */
  int64_t
      staging; /* launches of STAGE_ENTRIES, GATHER_ENTRIES and GATHER_HOOK, first; then the rounds, then perhaps MAX_LOGIT_STEP */
  int32_t gathered; /* 1: among them GATHER_ENTRIES, for arrays on the device */
  int32_t hooked;   /* 1: the last of them is GATHER_HOOK, for a hook's scalars on the device */
  int64_t count;
} clattni_launch_list;

void clattni_launch_list_make(const clattni_choice *choice, const clattn_problem *resolved, const clattni_sizes *sizes,
                              const clattni_layout *layout, int staged, int gathered, int hooked,
                              clattni_launch_list *list);
/* Launch number index, 0 <= index < count.  Launches are in an order that an in-order queue may run them in. */
void clattni_launch_at(const clattni_launch_list *list, int64_t index, clattni_launch *launch);

/* What of the parameters does not follow from the problem and the sizes. */
typedef struct clattni_bases {
  int64_t first[CLATTNI_SLOTS]; /* element index of each tensor's start in its buffer */
  int64_t workspace;            /* likewise, in 4-byte words */
  int64_t offset, prefix;       /* where they are the same for all batch entries */
  float scale, softcap;
  int scale_buffer, softcap_buffer; /* 1: stands in a buffer instead, at element */
  int64_t scale_first, softcap_first;
} clattni_bases;
void clattni_launch_params(const clattni_launch_list *list, const clattni_bases *bases, clattn_params *params);
/* What only some kernels are passed beside. */
void clattni_launch_rope(const clattni_launch_list *list, const clattni_bases *bases, clattn_rotation *rope);
void clattni_launch_max_logit(const clattni_launch_list *list, const clattni_bases *bases, clattn_head_view *out);

#endif
