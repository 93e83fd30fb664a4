/* SPDX-License-Identifier: Apache-2.0 */
/* One enqueue that is refused: a job made wrong in one place, and what must come back. */
#ifndef CLATTN_STUB_TRIAL_H
#define CLATTN_STUB_TRIAL_H

#include "use.h"

enum { MOST_EXTRAS = 8 };

typedef struct trial {
  const rig *rig;
  clattn_context *context;
  clattn_plan *plan;
  job job;
  cl_command_queue queue;
  cl_uint num_events;
  const cl_event *wait_list;
  cl_event own_events[1];
  cl_mem extras[MOST_EXTRAS]; /* buffers that one case needs, newest last */
  int num_extras;
} trial;

void trial_begin(trial *t, const rig *r, unsigned flags, void (*problem)(clattn_problem *));
/* Puts the arguments back as they were made, and releases all. */
void trial_end(trial *t, const clattn_args *original);

/* Buffers that live as long as the trial. */
cl_mem extra(trial *t, cl_context cl, size_t bytes);
cl_mem limited(trial *t, cl_mem_flags access, size_t bytes); /* kernels may only read, or only write */
cl_mem image(trial *t);
cl_mem sub_buffer(trial *t, cl_mem parent, size_t origin, size_t bytes);
size_t size_of(const clattn_mem *mem);

typedef struct refusal {
  const char *name;
  unsigned flags;
  clattn_status want;
  const char *text; /* in the message */
  void (*spoil)(trial *);
  void (*problem)(clattn_problem *);
} refusal;

void check_refusal(const rig *r, const refusal *c);
void check_accepted(trial *t, const char *name);

#define SPOIL(name, ...)                                                                                               \
  static void name(trial *t) {                                                                                         \
    clattn_args *const a = &t->job.args;                                                                               \
    (void)a;                                                                                                           \
    __VA_ARGS__;                                                                                                       \
  }

#endif
