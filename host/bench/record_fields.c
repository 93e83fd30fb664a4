/* SPDX-License-Identifier: Apache-2.0 */
#include "record_fields.h"

#include <string.h>

#include "record.h"

#define FIELD(type, member, name, kind, when)                                                                          \
  { name, kind, when, offsetof(type, member), sizeof(((const type *)NULL)->member) }
#define ROW(member, name, kind, when) FIELD(bench_row, member, name, kind, when)
#define CONTEXT(member, name, kind, when) FIELD(bench_context, member, name, kind, when)
#define PEAK(member, name, kind) FIELD(bench_peaks, member, name, kind, BENCH_KNOWN)

const bench_field bench_row_fields[] = {
    ROW(shape.name, "shape", BENCH_TEXT, BENCH_ALWAYS),
    ROW(shape.suite, "suite", BENCH_TEXT, BENCH_ALWAYS),
    ROW(shape.source, "source", BENCH_TEXT, BENCH_ALWAYS),
    ROW(shape.line, "problem", BENCH_TEXT, BENCH_ALWAYS),
    ROW(pass, "pass", BENCH_TEXT, BENCH_ALWAYS),
    ROW(variant, "variant", BENCH_TEXT, BENCH_ALWAYS),
    ROW(status, "status", BENCH_WORD_STATUS, BENCH_ALWAYS),
    ROW(reason, "reason", BENCH_TEXT, BENCH_ALWAYS),
    ROW(samples, "samples", BENCH_INT32, BENCH_ALWAYS),
    ROW(launches, "launches", BENCH_INT32, BENCH_TIMED),
    ROW(by_events, "timing", BENCH_WORD_TIMING, BENCH_TIMED),
    ROW(cold, "inputs", BENCH_WORD_INPUTS, BENCH_TIMED),
    ROW(median_ns, "median_ns", BENCH_INT64, BENCH_TIMED),
    ROW(minimum_ns, "minimum_ns", BENCH_INT64, BENCH_TIMED),
    ROW(first_quartile_ns, "first_quartile_ns", BENCH_INT64, BENCH_TIMED),
    ROW(third_quartile_ns, "third_quartile_ns", BENCH_INT64, BENCH_TIMED),
    ROW(spread, "spread", BENCH_REAL, BENCH_TIMED),
    ROW(throttled, "throttled", BENCH_FLAG, BENCH_ALWAYS),
    ROW(clock_suspect, "clock_suspect", BENCH_FLAG, BENCH_ALWAYS),
    ROW(fma_beside, "fma_beside_flops_per_second", BENCH_REAL, BENCH_KNOWN),
    ROW(build_ns, "build_ns", BENCH_INT64, BENCH_CALLED),
    ROW(first_call_ns, "first_call_ns", BENCH_INT64, BENCH_CALLED),
    ROW(plan_ns, "plan_ns", BENCH_INT64, BENCH_KNOWN),
    ROW(enqueue_ns, "enqueue_ns", BENCH_INT64, BENCH_TIMED),
    ROW(workspace_bytes, "workspace_bytes", BENCH_COUNT, BENCH_ALWAYS),
    ROW(pairs, "pairs", BENCH_COUNT, BENCH_COUNTED),
    ROW(flops, "flops", BENCH_COUNT, BENCH_COUNTED),
    ROW(flash_flops, "flash_attention_flops", BENCH_COUNT, BENCH_COUNTED),
    ROW(bytes, "bytes", BENCH_COUNT, BENCH_COUNTED),
    ROW(predicted_seconds, "predicted_seconds", BENCH_REAL, BENCH_KNOWN),
    ROW(flops_per_second, "flops_per_second", BENCH_REAL, BENCH_TIMED),
    ROW(bytes_per_second, "bytes_per_second", BENCH_REAL, BENCH_TIMED),
    ROW(bound, "bound", BENCH_WORD_BOUND, BENCH_RATED),
    ROW(percent_of_bound, "percent_of_bound", BENCH_REAL, BENCH_RATED),
    ROW(verified_rows, "verified_rows", BENCH_INT64, BENCH_ALWAYS),
    ROW(error, "error", BENCH_REAL, BENCH_VERIFIED),
    {NULL, BENCH_TEXT, BENCH_ALWAYS, 0, 0},
};

const bench_field bench_context_fields[] = {
    CONTEXT(clattn, "clattn", BENCH_TEXT, BENCH_ALWAYS),
    CONTEXT(command, "command", BENCH_TEXT, BENCH_ALWAYS),
    CONTEXT(date, "date", BENCH_TEXT, BENCH_ALWAYS),
    CONTEXT(os, "os", BENCH_TEXT, BENCH_ALWAYS),
    CONTEXT(cpu, "cpu", BENCH_TEXT, BENCH_ALWAYS),
    CONTEXT(device_id, "device_id", BENCH_TEXT, BENCH_ALWAYS),
    CONTEXT(device, "device", BENCH_TEXT, BENCH_ALWAYS),
    CONTEXT(vendor, "vendor", BENCH_TEXT, BENCH_ALWAYS),
    CONTEXT(driver, "driver", BENCH_TEXT, BENCH_ALWAYS),
    CONTEXT(platform, "platform", BENCH_TEXT, BENCH_ALWAYS),
    CONTEXT(version, "device_version", BENCH_TEXT, BENCH_ALWAYS),
    CONTEXT(device_type, "device_type", BENCH_WORD_DEVICE, BENCH_ALWAYS),
    CONTEXT(global_bytes, "global_bytes", BENCH_COUNT, BENCH_ALWAYS),
    CONTEXT(local_bytes, "local_bytes", BENCH_COUNT, BENCH_ALWAYS),
    CONTEXT(compute_units, "compute_units", BENCH_UINT32, BENCH_ALWAYS),
    CONTEXT(native_float_width, "native_float_width", BENCH_UINT32, BENCH_ALWAYS),
    CONTEXT(pocl_affinity, "pocl_affinity", BENCH_FLAG, BENCH_ALWAYS),
    CONTEXT(simulated, "simulated", BENCH_FLAG, BENCH_ALWAYS),
    CONTEXT(noisy, "noisy", BENCH_FLAG, BENCH_ALWAYS),
    {NULL, BENCH_TEXT, BENCH_ALWAYS, 0, 0},
};

const bench_field bench_peak_fields[] = {
    PEAK(fma_flops, "fma_flops_per_second", BENCH_REAL),
    PEAK(half_flops, "half_flops_per_second", BENCH_REAL),
    PEAK(matrix_flops, "matrix_flops_per_second", BENCH_REAL),
    PEAK(memory_bytes, "memory_bytes_per_second", BENCH_REAL),
    PEAK(cache_bytes, "cache_bytes_per_second", BENCH_REAL),
    PEAK(exp2_per_second, "exp2_per_second", BENCH_REAL),
    PEAK(launch_ns, "launch_ns", BENCH_INT64),
    PEAK(memory_footprint, "memory_footprint_bytes", BENCH_INT64),
    PEAK(cache_footprint, "cache_footprint_bytes", BENCH_INT64),
    {NULL, BENCH_TEXT, BENCH_ALWAYS, 0, 0},
};

int bench_field_has_value(const bench_field *field, const void *base, const bench_row *row) {
  static const char zero[sizeof(double)];
  switch (field->when) {
  case BENCH_ALWAYS:
    break;
  case BENCH_KNOWN:
    return memcmp((const char *)base + field->offset, zero, field->size) != 0;
  case BENCH_TIMED:
    return row->samples > 0;
  case BENCH_CALLED:
    return row->first_call_ns > 0;
  case BENCH_COUNTED:
    return row->bytes > 0;
  case BENCH_RATED:
    return row->samples > 0 && row->percent_of_bound > 0;
  case BENCH_VERIFIED:
    return row->verified_rows > 0;
  }
  return 1;
}

/* ---- words ---- */

static const char *const statuses[] = {"ok", "wrong", "skipped", "failed", NULL};
static const char *const bounds[] = {"fma", "half", "matrix", "memory", NULL};
static const char *const timings[] = {"wall clock", "device events", NULL};
static const char *const inputs[] = {"hot", "cold", NULL};
static const char *const devices[] = {"unknown", "cpu", "gpu", "accelerator", "custom", NULL};
static const uint64_t device_types[] = {0, CL_DEVICE_TYPE_CPU, CL_DEVICE_TYPE_GPU, CL_DEVICE_TYPE_ACCELERATOR,
                                        CL_DEVICE_TYPE_CUSTOM};

const char *bench_status_word(bench_status status) {
  return statuses[status];
}

const char *bench_bound_word(bench_bound bound) {
  return bounds[bound];
}

const char *bench_timing_word(int by_events) {
  return timings[by_events != 0];
}

const char *bench_inputs_word(int cold) {
  return inputs[cold != 0];
}

/* Types are bits, and some drivers set CL_DEVICE_TYPE_DEFAULT too. */
static int device_place(uint64_t type) {
  for (int i = 1; devices[i] != NULL; i++)
    if ((type & device_types[i]) != 0)
      return i;
  return 0;
}

const char *bench_device_type_word(uint64_t type) {
  return devices[device_place(type)];
}

const char *const *bench_kind_words(bench_kind kind) {
  switch (kind) {
  case BENCH_WORD_STATUS:
    return statuses;
  case BENCH_WORD_BOUND:
    return bounds;
  case BENCH_WORD_TIMING:
    return timings;
  case BENCH_WORD_INPUTS:
    return inputs;
  case BENCH_WORD_DEVICE:
    return devices;
  default:
    return NULL;
  }
}

int bench_word_get(const bench_field *field, const void *base) {
  const char *at = (const char *)base + field->offset;
  bench_status status;
  bench_bound bound;
  uint64_t type;
  int flag;
  switch (field->kind) {
  case BENCH_WORD_STATUS:
    memcpy(&status, at, sizeof status);
    return (int)status;
  case BENCH_WORD_BOUND:
    memcpy(&bound, at, sizeof bound);
    return (int)bound;
  case BENCH_WORD_DEVICE:
    memcpy(&type, at, sizeof type);
    return device_place(type);
  default:
    memcpy(&flag, at, sizeof flag);
    return flag != 0;
  }
}

void bench_word_set(const bench_field *field, void *base, int value) {
  char *at = (char *)base + field->offset;
  const bench_status status = (bench_status)value;
  const bench_bound bound = (bench_bound)value;
  switch (field->kind) {
  case BENCH_WORD_STATUS:
    memcpy(at, &status, sizeof status);
    break;
  case BENCH_WORD_BOUND:
    memcpy(at, &bound, sizeof bound);
    break;
  case BENCH_WORD_DEVICE:
    memcpy(at, &device_types[value], sizeof device_types[value]);
    break;
  default:
    memcpy(at, &value, sizeof value);
  }
}
