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

device_rig rig;
device_variant variants[VARIANTS_MOST];
uint32_t variant_count;

static int takes(const char *line, const char *variant) {
  clattn_problem problem;
  clattn_support support;
  clattn_support_init(&support);
  return clattn_problem_parse(line, &problem, NULL) == CLATTN_SUCCESS &&
         clattn_supported(rig.context, &problem, variant, &support) == CLATTN_SUCCESS;
}

static int is_usable(const char *name) {
  for (uint32_t v = 0; v < variant_count; ++v)
    if (strcmp(variants[v].name, name) == 0)
      return variants[v].usable;
  return 0;
}

/* Whether it multiplies on a matrix unit, which takes weights of the values' type. */
static int is_matrix(const char *name) {
  for (uint32_t v = 0; clattni_variant_at(v) != NULL; ++v)
    if (strcmp(clattni_variant_at(v)->name, name) == 0)
      return strcmp(clattni_variant_at(v)->family, "matrix") == 0;
  return 0;
}

void list_variants(void) {
  while (variant_count < sizeof variants / sizeof variants[0] && clattn_variant_name(variant_count) != NULL) {
    variants[variant_count].name = clattn_variant_name(variant_count);
    variants[variant_count].fused = clattni_variant_at(variant_count)->fused;
    variants[variant_count].usable = takes("sq=1 sk=1 d=1", variants[variant_count].name);
    ++variant_count;
  }
}

static void describe_array(const device_job *job, int which) {
  static const char *const names[JOB_ARRAYS] = {"q_lengths", "k_lengths",    "q_offsets",
                                                "prefix",    "cu_seqlens_q", "cu_seqlens_k"};
  const job_ints *array = &job->array[which];
  if (!array->given)
    return;
  print_error("  %s%s", names[which], job->on_device >> which & 1 ? " (on the device)" : "");
  for (size_t n = 0; n < array->count; ++n)
    print_error(" %" PRId32, array->brought[n]);
  print_error("\n");
}

static void describe(const device_job *job, const run_options *options) {
  print_error("%s\n  (seed %" PRIu64 ", data 0x%x, batch %" PRId64 ", q_len %" PRId64 ", k_len %" PRId64
              ") %s, outputs %u, stage %d, workspace cap %" PRIu64 "\n",
              job->line, job->seed, job->data, job->sizes.batch, job->sizes.q_len, job->sizes.k_len, options->variant,
              options->outputs, options->stage, options->workspace_cap);
  for (int n = 0; n < JOB_ARRAYS; ++n)
    describe_array(job, n);
}

int judge(const device_job *job, job_memory *memory, const expectation *expect, const run_options *options) {
  int claimed;
  if (!device_run(&rig, job, memory, options, &claimed)) {
    describe(job, options);
    return -1;
  }
  if (!claimed && is_usable(options->variant)) { /* rules, types and sizes are all or nothing */
    print_error("refused:\n");
    describe(job, options);
    return -1;
  }
  if (!claimed)
    return 0;
  expectation ours = *expect;
  ours.rounded_weights = is_matrix(options->variant);
  const size_t differ = expectation_compare(&ours, memory, options->outputs, options->stage);
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
  row.q_lengths = "-1,3,0,20";
  row.k_lengths = "-1,0,20,3";
  row.q_offsets = strstr(line, "off=per_batch") != NULL ? "0,7,40" : NULL;
  row.prefix = "0,7,40";
  row.rows_q = "9,0,40,-1";
  row.rows_k = "30,50,0,-1";
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

int judge_job(const device_job *job, size_t index, size_t *passed) {
  job_memory memory;
  expectation expect;
  int failed = 0;
  const size_t stages = job->stages > 0 ? (size_t)job->stages : 4;
  unsigned wanted = 0;
  for (size_t n = 0; n < stages; ++n)
    wanted |= 1u << ((index + n) % 4);
  if (!job_memory_open(&rig, job, &memory))
    return -1;
  if (!expectation_make(job, &memory, wanted, &expect)) {
    job_memory_close(&memory);
    return -1;
  }
  for (uint32_t v = 0; v < variant_count; ++v) {
    for (size_t n = 0; n < stages + 2 && failed < 3; ++n) {
      run_options options;
      memset(&options, 0, sizeof options);
      options.variant = variants[v].name;
      options.outputs = n < stages ? ALL_OUTPUTS : n == stages ? (uint32_t)CLATTN_OUT_O : 2 + (uint32_t)(index % 13);
      options.stage = (clattn_stage)((index + (n < stages ? n : 0)) % 4);
      if (job->with_o)
        options.outputs |= CLATTN_OUT_O;
      options.inner_workspace = n == stages && index % 3 == 0;
      const int result = judge(job, &memory, &expect, &options);
      failed += result < 0;
      if (result > 0) {
        ++*passed;
        ++variants[v].passed;
        if (variants[v].fused)
          coverage_add(v, job, options.outputs, options.stage);
      }
    }
  }
  expectation_free(&expect);
  job_memory_close(&memory);
  return failed == 0 ? 0 : -1;
}

void judge_row(const device_case *row) {
  const size_t count = device_case_jobs(row);
  size_t passed = 0, failed = 0;
  device_job *job = malloc(sizeof *job);
  assert_non_null(job);
  for (size_t index = 0; index < count && failed < 3; ++index) {
    const int good = device_case_job(row, index, job);
    failed += !good || judge_job(job, index, &passed) != 0;
  }
  free(job);
  assert_int_equal(failed, 0);
  assert_true(passed > 0); /* a run that passes nothing has failed */
}
