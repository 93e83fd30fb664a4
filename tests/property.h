/* SPDX-License-Identifier: Apache-2.0 */
/* Random problems against the double-precision reference, and relations that must hold whatever the problem is. */
#ifndef CLATTN_TEST_PROPERTY_H
#define CLATTN_TEST_PROPERTY_H

#include "device_expect.h"
#include "device_run.h"

/* What is compared beside the reference. */
typedef enum relation {
  RELATION_NONE,
  RELATION_REPEATED, /* the same run gives the same bits */
  RELATION_PERMUTED, /* the order of the keys changes nothing beyond rounding */
  RELATION_SPLIT,    /* keys in parts, merged, are the whole */
  RELATION_SHIFTED,  /* a constant added to all scores changes the lse by it, o not beyond rounding */
  RELATION_OTHERS,   /* other numbers in other batch entries change no bit */
  RELATION_PACKED,   /* packed sequences are padded ones with lengths */
  RELATION_PAGED,    /* keys in pages are keys side by side */
  RELATIONS
} relation;
extern const char *const relation_names[RELATIONS];

typedef struct property_case {
  device_job job;
  char variant[32];
  uint32_t outputs;
  clattn_stage stage;
  relation relation;
  int plant; /* to test this suite, a fault in what the device computed: 1 in the run, 2 in those that it is related to */
} property_case;

typedef enum verdict {
  VERDICT_PASSED,
  VERDICT_UNFIT,     /* the plain evaluation is no measure: a fault of the suite */
  VERDICT_RUN,       /* no plan, an error, memory touched that no element lies in */
  VERDICT_REFERENCE, /* another result than the reference's */
  VERDICT_RELATION
} verdict;
extern const char *const verdict_names[];

/* Runs and compares.  *related: 1 if the relation applies to the problem and was looked at.  *bits: of all outputs of
 * the plain run, as one number. */
verdict property_check(const device_rig *rig, const property_case *c, int *related, uint64_t *bits);
/* The fault: one element of o is off wherever a softcap, six keys and three value elements come together. */
int property_may_plant(const device_job *job);
void property_plant(const device_job *job, const job_memory *memory);
/* Whether a relation can be asked of a problem. */
int property_applies(const device_job *job, relation which);
/* The relation alone (property_relations.c), after a run whose results are in memory. */
verdict property_relate(const device_rig *rig, const property_case *c, const expectation *expect, job_memory *memory,
                        int *related);

/* Programs of a run: types, similarity, class of head dimensions, variant. */
typedef struct property_program {
  draw_mix mix;
  char words[64];
  const char *variant;
} property_program;
#define PROPERTY_PROGRAMS_MOST 64
int property_programs(const device_rig *rig, uint64_t seed, size_t count, property_program *programs);
/* Draws problem number `index`. */
int property_draw(const property_program *program, uint64_t seed, size_t index, property_case *c);
/* Whether some batch entry has two tiles of rows and three of keys. */
int property_crosses(const property_program *program, const device_job *job);

/* A case as text, and back: the problem line, then what it does not say, "@key=value". */
void property_write(const property_case *c, char *text, size_t capacity);
int property_read(const char *text, property_case *c);
/* Makes a failing case as small as it gets with the same verdict; the number of steps that helped. */
size_t property_shrink(const device_rig *rig, property_case *c, verdict kind);

#endif
