/* SPDX-License-Identifier: Apache-2.0 */
/* What a row's bits may depend on; and what of arrays on the device is checked on request. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device_flat.h"
#include "device_judge.h"

/* ---- other batch entries --------------------------------------------------------------------------------------- */

/* Other numbers, NaN among them, for entries 0 and 2 of a contiguous tensor. */
static void change_others(const image *tensor) {
  const size_t count = (size_t)tensor->stride[0], bytes = count * sizeof(float);
  float *other = malloc(bytes);
  assert_non_null(other);
  for (size_t n = 0; n < count; ++n)
    other[n] = n % 7 == 0 ? NAN : 1e4f;
  for (size_t b = 0; b < 3; b += 2)
    assert_int_equal(clEnqueueWriteBuffer(rig.queue, tensor->buffer, CL_TRUE, tensor->offset + b * bytes, bytes, other,
                                          0, NULL, NULL),
                     CL_SUCCESS);
  free(other);
}

/* Without any flag: entry 1 of three keeps its bits whatever the other two hold, NaN too. */
void others_change_no_bit(void **state) {
  (void)state;
  static const char *const lines[] = {
      "b=3 hq=4 hkv=2 sq=70 sk=190 d=20 dv=9 causal=1 off=bottom_right q=bhsd o=bhsd lse=bhsd scores=bhsd",
      "b=3 hq=6 hkv=2 sq=5 sk=190 d=8 sink=f32 klen=per_batch",
      "b=3 hq=2 sq=60 sk=90 d=8 softcap=3 alibi=signed chunk=40",
  };
  size_t passed = 0;
  for (size_t n = 0; n < sizeof lines / sizeof lines[0]; ++n)
    for (uint32_t v = 0; v < variant_count; ++v) {
      device_job job;
      job_memory memory;
      int claimed = 1;
      if (!variants[v].usable)
        continue;
      parse_job(lines[n], 0, &job);
      assert_true(job_memory_open(&rig, &job, &memory));
      const run_options options = {.variant = variants[v].name, .outputs = ALL_OUTPUTS, .stage = CLATTN_STAGE_WEIGHTS};
      snapshot first;
      assert_true(device_run(&rig, &job, &memory, &options, &claimed) && claimed);
      take(&memory, &first);
      for (int slot = CLATTNI_Q; slot <= CLATTNI_V; ++slot)
        change_others(&memory.slot[slot]);
      assert_true(device_run(&rig, &job, &memory, &options, &claimed) && claimed);
      for (int slot = 0; slot < CLATTNI_SLOTS; ++slot) {
        const image *t = &memory.slot[slot];
        if (!clattni_slot_is_output((clattni_slot)slot))
          continue;
        for (int64_t h = 0; h < t->shape[1]; ++h)
          for (int64_t r = 0; r < t->shape[2]; ++r)
            for (int64_t e = 0; e < t->shape[3]; ++e, ++passed) {
              const size_t at = image_at(t, 1, h, r, e);
              if (memcmp(t->memory + at, first.bytes[slot] + at, t->element) != 0)
                fail_msg("%s, %s: %s[1,%" PRId64 ",%" PRId64 ",%" PRId64 "] changed", lines[n], variants[v].name,
                         clattni_slot_name((clattni_slot)slot), h, r, e);
            }
      }
      drop(&first);
      job_memory_close(&memory);
    }
  assert_true(passed > 0);
}

/* ---- batch_invariant ------------------------------------------------------------------------------------------- */

/* One sequence of 90 rows and 300 keys, alone; then the same rows elsewhere. */
enum { ROWS = 90, KEYS = 300, HEADS = 6, KV_HEADS = 2, DIM = 20, PAGE = 16, PAGES = 19, BATCH = 3 };
enum { Q_ROW = HEADS * DIM, K_ROW = KV_HEADS * DIM };

typedef struct sequence {
  float q[ROWS * Q_ROW], k[KEYS * K_ROW], v[KEYS * K_ROW]; /* (row, head, element) */
  float o[ROWS * Q_ROW], lse[HEADS * ROWS];                /* alone */
} sequence;

typedef struct elsewhere {
  float q[BATCH * ROWS * Q_ROW], k[BATCH * KEYS * K_ROW], v[BATCH * KEYS * K_ROW], o[BATCH * ROWS * Q_ROW],
      lse[BATCH * HEADS * ROWS];
} elsewhere;

static const char rules_of_sequence[] =
    "hq=6 hkv=2 d=20 causal=1 window=250,inf softcap=5 flags=batch_invariant out=o,lse";

/* Bits, not numbers: -0 and NaN count as what they are. */
static int same_bytes(const void *a, const void *b, size_t bytes) {
  return memcmp(a, b, bytes) == 0;
}

/* Rows `from` to `from + count - 1` of the sequence against o and lse whose first row is the `at`-th one. */
static void same_rows(const sequence *alone, const float *o, const float *lse, int at, int lse_rows, int from,
                      int count, const char *what, const char *variant) {
  for (int i = 0; i < count; ++i) {
    if (!same_bytes(alone->o + (from + i) * Q_ROW, o + (at + i) * Q_ROW, Q_ROW * sizeof(float)))
      fail_msg("%s: o of row %d has other bits %s", variant, from + i, what);
    for (int h = 0; h < HEADS; ++h)
      if (!same_bytes(&alone->lse[h * ROWS + from + i], &lse[h * lse_rows + at + i], sizeof(float)))
        fail_msg("%s: lse of row %d, head %d has other bits %s", variant, from + i, h, what);
  }
}

static void compute_alone(const char *variant, sequence *s) {
  char line[256];
  (void)snprintf(line, sizeof line, "sq=%d sk=%d off=%d q=bshd k=bshd v=bshd o=bshd %s", ROWS, KEYS, KEYS - ROWS,
                 rules_of_sequence);
  const flat_run run = {
      .line = line,
      .variant = variant,
      .o_count = ROWS * Q_ROW,
      .lse_count = HEADS * ROWS,
      .slot = {
          [CLATTNI_Q] = {s->q, sizeof s->q}, [CLATTNI_K] = {s->k, sizeof s->k}, [CLATTNI_V] = {s->v, sizeof s->v}}};
  flat_compute(&run, s->o, s->lse);
}

/* A few of its rows, from `from` on, at the same positions. */
static void fewer_rows(const char *variant, const sequence *s, elsewhere *e, int from, int count) {
  char line[256], what[64];
  (void)snprintf(what, sizeof what, "among rows %d to %d", from, from + count - 1);
  (void)snprintf(line, sizeof line, "sq=%d sk=%d off=%d q=bshd k=bshd v=bshd o=bshd %s", count, KEYS,
                 KEYS - ROWS + from, rules_of_sequence);
  const flat_run run = {.line = line,
                        .variant = variant,
                        .o_count = (size_t)count * Q_ROW,
                        .lse_count = (size_t)(HEADS * count),
                        .slot = {[CLATTNI_Q] = {s->q + from * Q_ROW, (size_t)count * Q_ROW * sizeof(float)},
                                 [CLATTNI_K] = {s->k, sizeof s->k},
                                 [CLATTNI_V] = {s->v, sizeof s->v}}};
  flat_compute(&run, e->o, e->lse);
  same_rows(s, e->o, e->lse, 0, count, from, count, what, variant);
}

/* At place b of a batch of three, the others with other numbers and lengths. */
static void in_a_batch(const char *variant, const sequence *s, elsewhere *e, int b) {
  char line[256], what[64];
  const int32_t q_lengths[BATCH] = {b == 0 ? ROWS : 9, b == 1 ? ROWS : 50, b == 2 ? ROWS : 0};
  const int32_t k_lengths[BATCH] = {b == 0 ? KEYS : 31, b == 1 ? KEYS : 0, b == 2 ? KEYS : 200};
  const int32_t offsets[BATCH] = {b == 0 ? KEYS - ROWS : 3, b == 1 ? KEYS - ROWS : 0, b == 2 ? KEYS - ROWS : -5};
  (void)snprintf(what, sizeof what, "at place %d of a batch", b);
  (void)snprintf(line, sizeof line,
                 "b=3 sq=%d sk=%d off=per_batch qlen=per_batch klen=per_batch q=bshd k=bshd v=bshd o=bshd %s", ROWS,
                 KEYS, rules_of_sequence);
  flat_fill(e->q, BATCH * ROWS * Q_ROW, 31);
  flat_fill(e->k, BATCH * KEYS * K_ROW, 32);
  flat_fill(e->v, BATCH * KEYS * K_ROW, 33);
  memcpy(e->q + b * ROWS * Q_ROW, s->q, sizeof s->q);
  memcpy(e->k + b * KEYS * K_ROW, s->k, sizeof s->k);
  memcpy(e->v + b * KEYS * K_ROW, s->v, sizeof s->v);
  const flat_run run = {
      .line = line,
      .variant = variant,
      .o_count = BATCH * ROWS * Q_ROW,
      .lse_count = BATCH * HEADS * ROWS,
      .slot = {[CLATTNI_Q] = {e->q, sizeof e->q}, [CLATTNI_K] = {e->k, sizeof e->k}, [CLATTNI_V] = {e->v, sizeof e->v}},
      .array = {[ARRAY_Q_LENGTHS] = {q_lengths, BATCH},
                [ARRAY_K_LENGTHS] = {k_lengths, BATCH},
                [ARRAY_Q_OFFSETS] = {offsets, BATCH}}};
  flat_compute(&run, e->o, e->lse);
  same_rows(s, e->o + b * ROWS * Q_ROW, e->lse + b * HEADS * ROWS, 0, ROWS, 0, ROWS, what, variant);
}

/* Packed behind a sequence of 7 rows and 5 keys. */
static void in_a_pack(const char *variant, const sequence *s, elsewhere *e) {
  enum { FRONT_ROWS = 7, FRONT_KEYS = 5 };
  char line[256];
  const int32_t starts_q[3] = {0, FRONT_ROWS, FRONT_ROWS + ROWS}, starts_k[3] = {0, FRONT_KEYS, FRONT_KEYS + KEYS};
  const int32_t offsets[2] = {0, KEYS - ROWS};
  (void)snprintf(
      line, sizeof line,
      "b=2 sq=%d sk=%d total_q=%d total_k=%d off=per_batch q=packed k=packed v=packed o=packed lse=packed %s", ROWS,
      KEYS, FRONT_ROWS + ROWS, FRONT_KEYS + KEYS, rules_of_sequence);
  flat_fill(e->q, BATCH * ROWS * Q_ROW, 34);
  flat_fill(e->k, BATCH * KEYS * K_ROW, 35);
  flat_fill(e->v, BATCH * KEYS * K_ROW, 36);
  memcpy(e->q + FRONT_ROWS * Q_ROW, s->q, sizeof s->q);
  memcpy(e->k + FRONT_KEYS * K_ROW, s->k, sizeof s->k);
  memcpy(e->v + FRONT_KEYS * K_ROW, s->v, sizeof s->v);
  const flat_run run = {
      .line = line,
      .variant = variant,
      .o_count = (FRONT_ROWS + ROWS) * Q_ROW,
      .lse_count = HEADS * (FRONT_ROWS + ROWS),
      .slot = {[CLATTNI_Q] = {e->q, sizeof e->q}, [CLATTNI_K] = {e->k, sizeof e->k}, [CLATTNI_V] = {e->v, sizeof e->v}},
      .array = {[ARRAY_CU_Q] = {starts_q, 3}, [ARRAY_CU_K] = {starts_k, 3}, [ARRAY_Q_OFFSETS] = {offsets, 2}}};
  flat_compute(&run, e->o, e->lse);
  same_rows(s, e->o, e->lse, FRONT_ROWS, FRONT_ROWS + ROWS, 0, ROWS, "when packed", variant);
}

/* Keys and values in pages, last page first. */
static void in_pages(const char *variant, const sequence *s, elsewhere *e) {
  char line[256];
  int32_t table[PAGES];
  const int32_t k_length = KEYS;
  (void)snprintf(
      line, sizeof line,
      "sq=%d sk=%d page_size=%d pages=%d max_pages=%d klen=per_batch off=%d q=bshd k=paged v=paged o=bshd %s", ROWS,
      KEYS, PAGE, PAGES, PAGES, KEYS - ROWS, rules_of_sequence);
  for (int n = 0; n < PAGES; ++n)
    table[n] = PAGES - 1 - n;
  for (int j = 0; j < KEYS; ++j) {
    const int at = (table[j / PAGE] * PAGE + j % PAGE) * K_ROW;
    memcpy(e->k + at, s->k + j * K_ROW, K_ROW * sizeof(float));
    memcpy(e->v + at, s->v + j * K_ROW, K_ROW * sizeof(float));
  }
  const flat_run run = {.line = line,
                        .variant = variant,
                        .o_count = ROWS * Q_ROW,
                        .lse_count = HEADS * ROWS,
                        .slot = {[CLATTNI_Q] = {s->q, sizeof s->q},
                                 [CLATTNI_K] = {e->k, sizeof e->k},
                                 [CLATTNI_V] = {e->v, sizeof e->v},
                                 [CLATTNI_PAGE_TABLE] = {table, sizeof table}},
                        .array = {[ARRAY_K_LENGTHS] = {&k_length, 1}}};
  flat_compute(&run, e->o, e->lse);
  same_rows(s, e->o, e->lse, 0, ROWS, 0, ROWS, "with keys in pages", variant);
}

void batch_invariant_rows(void **state) {
  (void)state;
  sequence *s = calloc(1, sizeof *s);
  elsewhere *e = calloc(1, sizeof *e);
  size_t passed = 0;
  assert_non_null(s);
  assert_non_null(e);
  flat_fill(s->q, ROWS * Q_ROW, 41);
  flat_fill(s->k, KEYS * K_ROW, 42);
  flat_fill(s->v, KEYS * K_ROW, 43);
  for (uint32_t n = 0; n < variant_count; ++n) {
    const char *variant = variants[n].name;
    if (!variants[n].usable)
      continue;
    compute_alone(variant, s);
    fewer_rows(variant, s, e, 0, 1);
    fewer_rows(variant, s, e, ROWS - 1, 1);
    fewer_rows(variant, s, e, 3, 30);
    fewer_rows(variant, s, e, 50, 40);
    for (int b = 0; b < BATCH; ++b)
      in_a_batch(variant, s, e, b);
    in_a_pack(variant, s, e);
    in_pages(variant, s, e);
    ++passed;
  }
  free(s);
  free(e);
  assert_true(passed > 0);
}

/* ---- check_contents -------------------------------------------------------------------------------------------- */

/* What kernels clamp is an error where contents are to be checked; without the option the same enqueue runs. */
void contents_are_checked(void **state) {
  (void)state;
  static const struct {
    const char *line;
    job_array array;
    size_t entry;
    int32_t brought;
    clattn_status status;
  } faults[] = {
      {"b=4 hq=2 sq=50 sk=70 d=4 klen=per_batch", ARRAY_K_LENGTHS, 1, 71, CLATTN_ERROR_LENGTH},
      {"b=4 hq=2 sq=50 sk=70 d=4 klen=per_batch", ARRAY_K_LENGTHS, 3, -1, CLATTN_ERROR_LENGTH},
      {"b=4 hq=2 sq=50 sk=70 d=4 qlen=per_batch", ARRAY_Q_LENGTHS, 0, 51, CLATTN_ERROR_LENGTH},
      {"b=4 hq=2 sq=50 sk=70 d=4 causal=1 prefix=per_batch", ARRAY_PREFIX, 2, -7, CLATTN_ERROR_LENGTH},
      {"b=4 hq=2 sq=50 sk=70 d=4 total_q=90 q=packed o=packed lse=packed", ARRAY_CU_Q, 0, -1, CLATTN_ERROR_LENGTH},
      {"b=4 hq=2 sq=50 sk=70 d=4 total_q=90 q=packed o=packed lse=packed", ARRAY_CU_Q, 4, 91, CLATTN_ERROR_BOUND},
      {"b=4 hq=2 sq=50 sk=70 d=4 total_k=120 k=packed v=packed", ARRAY_CU_K, 4, 0, CLATTN_ERROR_LENGTH},
      {"b=4 hq=2 sq=50 sk=70 d=20 dv=7 rope=half off=per_batch rope_positions=130", ARRAY_Q_OFFSETS, 2, -1,
       CLATTN_ERROR_LENGTH},
      {"b=4 hq=2 sq=50 sk=70 d=20 dv=7 rope=half off=per_batch rope_positions=130", ARRAY_Q_OFFSETS, 2, 81,
       CLATTN_ERROR_LENGTH},
      {"b=4 hq=2 sq=50 sk=70 d=4 k=paged v=paged klen=per_batch page_size=16 pages=7 max_pages=5", JOB_ARRAYS, 0, 0,
       CLATTN_ERROR_LENGTH}, /* the page table itself */
  };
  size_t passed = 0;
  for (size_t n = 0; n < sizeof faults / sizeof faults[0]; ++n)
    for (uint32_t v = 0; v < variant_count; ++v)
      for (int checked = 0; variants[v].usable && checked < 2; ++checked) {
        device_job job;
        job_memory memory;
        clattn_plan *plan = NULL;
        clattn_error error;
        clattn_args args;
        const run_options options = {.variant = variants[v].name, .outputs = ALL_OUTPUTS};
        clattn_error_init(&error);
        parse_job(faults[n].line, DATA_PAGES_BEYOND, &job);
        job.on_device = ON_DEVICE_ARRAYS;
        job.check_contents = checked;
        if (faults[n].array < JOB_ARRAYS)
          job.array[faults[n].array].brought[faults[n].entry] = faults[n].brought;
        assert_true(job_memory_open(&rig, &job, &memory));
        assert_int_equal(device_plan(&rig, &job, &options, &plan, &error), CLATTN_SUCCESS);
        device_args(&job, &memory, ALL_OUTPUTS, &args);
        args.error = &error;
        const clattn_status status = clattn_enqueue(plan, rig.queue, &args, 0, NULL, NULL);
        assert_int_equal(status, checked ? faults[n].status : CLATTN_SUCCESS);
        assert_true((strlen(error.message) > 0) == (checked != 0));
        assert_int_equal(clFinish(rig.queue), CL_SUCCESS);
        job_memory_close(&memory);
        clattn_plan_release(plan);
        ++passed;
      }
  assert_true(passed > 0);
}
