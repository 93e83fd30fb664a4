/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device_judge.h"

#include "select.h"

device_rig rig;
device_variant variants[16];
uint32_t variant_count;

void list_variants(void) {
  while (variant_count < sizeof variants / sizeof variants[0] && clattn_variant_name(variant_count) != NULL) {
    variants[variant_count].name = clattn_variant_name(variant_count);
    variants[variant_count].fused = clattni_variant_at(variant_count)->fused;
    ++variant_count;
  }
}

static void describe(const device_job *job, const run_options *options) {
  print_error("%s\n  (seed %" PRIu64 ", data 0x%x, batch %" PRId64 ", q_len %" PRId64 ", k_len %" PRId64
              ") %s, outputs %u, stage %d, workspace cap %" PRIu64 "\n",
              job->line, job->seed, job->data, job->sizes.batch, job->sizes.q_len, job->sizes.k_len, options->variant,
              options->outputs, options->stage, options->workspace_cap);
}

int judge(const device_job *job, job_memory *memory, const expectation *expect, const run_options *options) {
  int claimed;
  if (!device_run(&rig, job, memory, options, &claimed)) {
    describe(job, options);
    return -1;
  }
  if (!claimed)
    return 0;
  const size_t differ = expectation_compare(expect, memory, options->outputs, options->stage);
  if (differ > 0) {
    print_error("%zu elements differ:\n", differ);
    describe(job, options);
    return -1;
  }
  return 1;
}

void parse_job(const char *line, unsigned data, device_job *job) {
  device_case row;
  memset(&row, 0, sizeof row);
  row.name = "whole runs";
  row.line = line;
  row.data = data;
  row.q_lengths = strstr(line, "qlen=per_batch") != NULL ? "-1,3,0,20" : NULL;
  row.k_lengths = strstr(line, "klen=per_batch") != NULL ? "-1,0,20,3" : NULL;
  assert_true(device_case_job(&row, 0, job));
}

void take(const job_memory *memory, snapshot *copy) {
  memset(copy, 0, sizeof *copy);
  for (int slot = 0; slot < CLATTNI_SLOTS; ++slot) {
    const image *tensor = &memory->slot[slot];
    if (!clattni_slot_is_output((clattni_slot)slot) || tensor->memory == NULL)
      continue;
    copy->bytes[slot] = malloc(tensor->bytes);
    assert_non_null(copy->bytes[slot]);
    memcpy(copy->bytes[slot], tensor->memory, tensor->bytes);
  }
}

void drop(snapshot *copy) {
  for (int slot = 0; slot < CLATTNI_SLOTS; ++slot)
    free(copy->bytes[slot]);
}

int same_bits(const job_memory *memory, const snapshot *copy) {
  for (int slot = 0; slot < CLATTNI_SLOTS; ++slot)
    if (copy->bytes[slot] != NULL &&
        memcmp(copy->bytes[slot], memory->slot[slot].memory, memory->slot[slot].bytes) != 0) {
      print_error("%s has other bits\n", clattni_slot_name((clattni_slot)slot));
      return 0;
    }
  return 1;
}

uint64_t smallest_cap(const device_job *job, run_options *options) {
  uint64_t low = 1, high = UINT64_C(1) << 32; /* low is refused, high is not */
  while (high - low > 1) {
    clattn_plan *plan = NULL;
    clattn_error error;
    clattn_error_init(&error);
    options->workspace_cap = low + (high - low) / 2;
    const clattn_status status = device_plan(&rig, job, options, &plan, &error);
    assert_true(status == CLATTN_SUCCESS || status == CLATTN_ERROR_WORKSPACE_TOO_SMALL);
    assert_int_equal(error.status, status);
    assert_true((plan == NULL) == (status != CLATTN_SUCCESS));
    *(status == CLATTN_SUCCESS ? &high : &low) = options->workspace_cap;
    clattn_plan_release(plan);
  }
  return high;
}
