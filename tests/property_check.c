/* SPDX-License-Identifier: Apache-2.0 */
#include "property.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const relation_names[RELATIONS] = {"none",    "repeated", "permuted", "split",
                                               "shifted", "others",   "packed",   "paged"};
const char *const verdict_names[] = {"passed", "no measure", "run", "reference", "relation"};

int property_may_plant(const device_job *job) {
  return job->softcap > 0.0f && job->sizes.k_len >= 6 && job->resolved.v_dim >= 3;
}

void property_plant(const device_job *job, const job_memory *memory) {
  const image *o = &memory->slot[CLATTNI_O];
  if (property_may_plant(job) && o->memory != NULL && image_has_row(o, 0, 0))
    image_set(o, 0, 0, 0, 2, image_float(o, 0, 0, 0, 2) + 0.5f);
}

/* FNV-1a. */
static uint64_t bits_of(const job_memory *memory) {
  uint64_t sum = UINT64_C(0xcbf29ce484222325);
  for (int slot = 0; slot < CLATTNI_SLOTS; ++slot) {
    const image *tensor = &memory->slot[slot];
    for (size_t n = 0; clattni_slot_is_output((clattni_slot)slot) && tensor->memory != NULL && n < tensor->bytes; ++n)
      sum = (sum ^ tensor->memory[n]) * UINT64_C(0x100000001b3);
  }
  return sum;
}

verdict property_check(const device_rig *rig, const property_case *c, int *related, uint64_t *bits) {
  job_memory memory;
  expectation expect;
  int claimed;
  const run_options options = {.variant = c->variant, .outputs = c->outputs, .stage = c->stage};
  verdict result = VERDICT_RUN;
  *related = 0;
  *bits = 0;
  if (!job_memory_open(rig, &c->job, &memory))
    return VERDICT_RUN;
  if (!expectation_make(&c->job, &memory, 1u << c->stage, &expect)) {
    job_memory_close(&memory);
    return VERDICT_UNFIT;
  }
  if (device_run(rig, &c->job, &memory, &options, &claimed) && claimed) {
    if (c->plant == 1)
      property_plant(&c->job, &memory);
    *bits = bits_of(&memory);
    result = expectation_compare(&expect, &memory, c->outputs, c->stage) == 0 ? VERDICT_PASSED : VERDICT_REFERENCE;
    if (result == VERDICT_PASSED && c->relation != RELATION_NONE)
      result = property_relate(rig, c, &expect, &memory, related);
  }
  expectation_free(&expect);
  job_memory_close(&memory);
  return result;
}
