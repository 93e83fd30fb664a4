/* SPDX-License-Identifier: Apache-2.0 */
/* clattn_merge on the default device: against a merge in double precision, and everything that it must refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clattn.h"

static clattn_context *context;
static cl_context cl;
static cl_device_id device;
static cl_command_queue queue, out_of_order; /* the second is NULL if the device has none */

/* ---- merging what lies in host memory ---------------------------------------------------------------------------- */

typedef struct job {
  int64_t parts, rows, v_dim, stride_o, stride_lse; /* strides of 0: contiguous */
  size_t at_o, at_lse;                              /* elements before the first, in inputs and outputs */
  int without_o, without_lse;
} job;

enum { GUARD = 37, PATTERN = 0x7e };

static size_t step_o(const job *j) {
  return (size_t)(j->stride_o != 0 ? j->stride_o : j->rows * j->v_dim);
}

static size_t step_lse(const job *j) {
  return (size_t)(j->stride_lse != 0 ? j->stride_lse : j->rows);
}

/* Elements of buffers, with what lies before the first element and a guard band behind the last. */
static size_t input_o_count(const job *j) {
  return j->at_o + (size_t)(j->parts - 1) * step_o(j) + (size_t)(j->rows * j->v_dim) + GUARD;
}
static size_t input_lse_count(const job *j) {
  return j->at_lse + (size_t)(j->parts - 1) * step_lse(j) + (size_t)j->rows + GUARD;
}
static size_t o_count(const job *j) {
  return j->at_o + (size_t)(j->rows * j->v_dim) + GUARD;
}
static size_t lse_count(const job *j) {
  return j->at_lse + (size_t)j->rows + GUARD;
}

static float *input_o(const job *j, float *part_o, int64_t part, int64_t row) {
  return part_o + j->at_o + (size_t)part * step_o(j) + (size_t)(row * j->v_dim);
}

static float *input_lse(const job *j, float *part_lse, int64_t part, int64_t row) {
  return part_lse + j->at_lse + (size_t)part * step_lse(j) + (size_t)row;
}

static float *floats(size_t count, int byte) {
  float *memory = malloc(count * sizeof *memory);
  assert_non_null(memory);
  memset(memory, byte, count * sizeof *memory);
  return memory;
}

/* All NaN: what no element lies in must not matter. */
static float *poisoned(size_t count) {
  return floats(count, 0xff);
}

static cl_mem buffer_of(cl_mem_flags flags, size_t count, float *data) {
  cl_int code = CL_SUCCESS;
  const cl_mem buffer = clCreateBuffer(cl, flags | CL_MEM_COPY_HOST_PTR, count * sizeof *data, data, &code);
  assert_int_equal(code, CL_SUCCESS);
  return buffer;
}

typedef struct device_job {
  cl_mem part_o, part_lse, o, lse;
  clattn_merge_args args;
  clattn_error error;
} device_job;

static void device_job_open(const job *j, float *part_o, float *part_lse, device_job *d) {
  float *o = floats(o_count(j), PATTERN), *lse = floats(lse_count(j), PATTERN);
  d->part_o = buffer_of(CL_MEM_READ_ONLY, input_o_count(j), part_o);
  d->part_lse = buffer_of(CL_MEM_READ_ONLY, input_lse_count(j), part_lse);
  d->o = buffer_of(CL_MEM_WRITE_ONLY, o_count(j), o);
  d->lse = buffer_of(CL_MEM_WRITE_ONLY, lse_count(j), lse);
  free(o);
  free(lse);
  clattn_error_init(&d->error);
  clattn_merge_args_init(&d->args);
  d->args.error = &d->error;
  d->args.parts = j->parts;
  d->args.rows = j->rows;
  d->args.part_stride_lse = j->stride_lse;
  d->args.part_lse = clattn_buffer(d->part_lse, j->at_lse * sizeof(float));
  if (!j->without_o) {
    d->args.v_dim = j->v_dim;
    d->args.part_stride_o = j->stride_o;
    d->args.part_o = clattn_buffer(d->part_o, j->at_o * sizeof(float));
    d->args.o = clattn_buffer(d->o, j->at_o * sizeof(float));
  }
  if (!j->without_lse)
    d->args.lse = clattn_buffer(d->lse, j->at_lse * sizeof(float));
}

static void device_job_close(device_job *d) {
  assert_int_equal(clReleaseMemObject(d->part_o) | clReleaseMemObject(d->part_lse) | clReleaseMemObject(d->o) |
                       clReleaseMemObject(d->lse),
                   CL_SUCCESS);
}

static float *fetch(cl_mem buffer, size_t count) {
  float *data = floats(count, 0);
  assert_int_equal(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, count * sizeof *data, data, 0, NULL, NULL),
                   CL_SUCCESS);
  return data;
}

/* Whether all but `count` elements behind the first `at` still hold the pattern. */
static void check_guards(const float *memory, size_t all, size_t at, size_t count) {
  for (size_t i = 0; i < all; i++) {
    float pattern;
    memset(&pattern, PATTERN, sizeof pattern);
    if (i < at || i >= at + count)
      assert_memory_equal(&memory[i], &pattern, sizeof pattern);
  }
}

/* *o and *lse are malloc'ed whole buffers. */
static void take_results(const job *j, const device_job *d, float **o, float **lse) {
  *o = fetch(d->o, o_count(j));
  *lse = fetch(d->lse, lse_count(j));
  check_guards(*o, o_count(j), j->at_o, j->without_o ? 0 : (size_t)(j->rows * j->v_dim));
  check_guards(*lse, lse_count(j), j->at_lse, j->without_lse ? 0 : (size_t)j->rows);
}

static void merge(const job *j, float *part_o, float *part_lse, float **o, float **lse) {
  device_job d;
  device_job_open(j, part_o, part_lse, &d);
  const clattn_status status = clattn_merge(context, queue, &d.args, 0, NULL, NULL);
  if (status != CLATTN_SUCCESS)
    fail_msg("%s: %s", clattn_status_name(status), d.error.message);
  take_results(j, &d, o, lse);
  device_job_close(&d);
}

/* ---- what it must give ------------------------------------------------------------------------------------------- */

/* One number of o (element >= 0) or lse (element < 0), in double precision; *size: what errors are relative to. */
static double expected(const job *j, float *part_o, float *part_lse, int64_t row, int64_t element, double *size) {
  double m = -INFINITY, l = 0, sum = 0;
  *size = 0;
  for (int64_t part = 0; part < j->parts; part++) {
    const double lse = (double)*input_lse(j, part_lse, part, row);
    if (isnan(lse) || lse == INFINITY)
      return (double)NAN;
    m = fmax(m, lse);
  }
  if (m == -INFINITY)
    return element < 0 ? -INFINITY : 0;
  for (int64_t part = 0; part < j->parts; part++) {
    const double lse = (double)*input_lse(j, part_lse, part, row);
    if (lse == -INFINITY)
      continue;
    const double weight = exp(lse - m);
    l += weight;
    if (element >= 0) {
      const double value = weight * (double)input_o(j, part_o, part, row)[element];
      sum += value;
      *size += fabs(value);
    }
  }
  *size = element < 0 ? fabs(m) + 1 : *size / l;
  return element < 0 ? m + log(l) : sum / l;
}

static void check_number(const char *what, int64_t row, int64_t element, double got, double want, double allowed) {
  if (isnan(want) ? isnan(got) : got == want || fabs(got - want) <= allowed)
    return;
  fail_msg("%s: row %d, element %d: %.9g, not %.9g", what, (int)row, (int)element, got, want);
}

static void check_merge(const char *what, const job *j, float *part_o, float *part_lse) {
  float *o = NULL, *lse = NULL;
  double size = 0;
  merge(j, part_o, part_lse, &o, &lse);
  for (int64_t row = 0; row < j->rows; row++) {
    if (!j->without_lse) {
      const double want = expected(j, part_o, part_lse, row, -1, &size);
      check_number(what, row, -1, (double)lse[j->at_lse + (size_t)row], want, 4e-7 * size);
    }
    for (int64_t e = 0; e < j->v_dim && !j->without_o; e++) {
      const double want = expected(j, part_o, part_lse, row, e, &size);
      /* Roundings of the weights (exp in fp32 of a rounded difference) and of each sum. */
      const double allowed = (4e-7 + 1.2e-7 * (double)j->parts) * size;
      check_number(what, row, e, (double)o[j->at_o + (size_t)(row * j->v_dim + e)], want, allowed);
    }
  }
  free(o);
  free(lse);
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static uint64_t state_of_draw = 88172645463325252u;

static double uniform(double low, double high) {
  state_of_draw ^= state_of_draw << 13;
  state_of_draw ^= state_of_draw >> 7;
  state_of_draw ^= state_of_draw << 17;
  return low + (high - low) * (double)(state_of_draw >> 11) / 9007199254740992.0;
}

/* One part in `empty` is the empty state with NaN for o; 0: none is. */
static void draw(const job *j, int empty, float **part_o, float **part_lse) {
  *part_o = poisoned(input_o_count(j));
  *part_lse = poisoned(input_lse_count(j));
  for (int64_t part = 0; part < j->parts; part++)
    for (int64_t row = 0; row < j->rows; row++) {
      const int is_empty = empty > 0 && uniform(0, empty) < 1;
      *input_lse(j, *part_lse, part, row) = is_empty ? -INFINITY : (float)uniform(-4, 4);
      for (int64_t e = 0; e < j->v_dim && !is_empty; e++)
        input_o(j, *part_o, part, row)[e] = (float)uniform(-2, 2);
    }
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static const job shapes[] = {
    {1, 1, 1, 0, 0, 0, 0, 0, 0},
    {2, 1, 1, 0, 0, 0, 0, 0, 0},
    {3, 5, 7, 0, 0, 0, 0, 0, 0},
    {9, 33, 64, 0, 0, 0, 0, 0, 0},
    {4, 700, 1, 0, 0, 3, 5, 0, 0},
    {5, 3, 700, 0, 0, 1, 0, 0, 0},
    {2, 2, 1100, 0, 0, 0, 0, 0, 0},
    {3, 17, 16, 17 * 16, 17, 0, 0, 0, 0},
    {6, 20, 31, 20 * 31 + 11, 29, 7, 3, 0, 0},
    {64, 10, 128, 2000, 13, 16, 1, 0, 0},
    {3, 200, 15, 0, 0, 2, 2, 1, 0},
    {3, 200, 15, 4000, 333, 2, 2, 0, 1},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static void random_parts(void **state) {
  (void)state;
  for (size_t n = 0; n < SHAPES; n++)
    for (int empty = 0; empty < 3; empty++) {
      float *part_o = NULL, *part_lse = NULL;
      char what[32];
      snprintf(what, sizeof what, "shape %zu", n);
      draw(&shapes[n], empty, &part_o, &part_lse);
      check_merge(what, &shapes[n], part_o, part_lse);
      free(part_o);
      free(part_lse);
    }
}

/* More units of work than there are work-items. */
static void many_rows(void **state) {
  (void)state;
  const job j = {2, 1100003, 1, 0, 0, 0, 0, 0, 0};
  float *part_o = NULL, *part_lse = NULL;
  draw(&j, 3, &part_o, &part_lse);
  check_merge("many rows", &j, part_o, part_lse);
  free(part_o);
  free(part_lse);
}

enum { KEYS = 41, VALUES = 5 };

/* Attention over keys from .. to - 1 in double precision. */
static double attend(const double *scores, double (*values)[VALUES], int from, int to, double *o) {
  double m = -INFINITY, l = 0;
  memset(o, 0, VALUES * sizeof *o);
  for (int key = from; key < to; key++)
    m = fmax(m, scores[key]);
  for (int key = from; key < to; key++) {
    const double weight = exp(scores[key] - m);
    l += weight;
    for (int e = 0; e < VALUES; e++)
      o[e] += weight * values[key][e];
  }
  for (int e = 0; e < VALUES && to > from; e++)
    o[e] /= l;
  return m + log(l);
}

/* A softmax cut at 1 to 9 places, some of them the same, gives the whole one; with a sink as the last part too. */
static void a_softmax_in_pieces(void **state) {
  (void)state;
  for (int round = 0; round < 200; round++) {
    double scores[KEYS + 1], values[KEYS + 1][VALUES], whole[VALUES], piece[VALUES];
    int ends[11] = {0};
    const int with_sink = round % 2, cuts = 1 + round % 9;
    const double spread = round % 3 == 0 ? 60 : 3;
    for (int key = 0; key <= KEYS; key++) {
      scores[key] = uniform(-spread, spread);
      for (int e = 0; e < VALUES; e++)
        values[key][e] = key == KEYS ? 0 : uniform(-1, 1); /* the sink is a key whose value is 0 */
    }
    for (int cut = 1; cut <= cuts; cut++)
      ends[cut] = ends[cut - 1] + (int)uniform(0, 2.5 * KEYS / (cuts + 1)) * (cut % 3 != 0);
    for (int cut = 1; cut <= cuts; cut++)
      ends[cut] = ends[cut] < KEYS ? ends[cut] : KEYS;
    ends[cuts + 1] = KEYS;
    const job j = {cuts + 1 + with_sink, 1, VALUES, 0, 0, 0, 0, 0, 0};
    float *part_o = poisoned(input_o_count(&j)), *part_lse = poisoned(input_lse_count(&j)), *o = NULL, *lse = NULL;
    for (int part = 0; part <= cuts; part++) {
      *input_lse(&j, part_lse, part, 0) = (float)attend(scores, values, ends[part], ends[part + 1], piece);
      for (int e = 0; e < VALUES; e++) /* nothing of an empty part but its lse is looked at */
        input_o(&j, part_o, part, 0)[e] = ends[part] < ends[part + 1] ? (float)piece[e] : NAN;
    }
    if (with_sink) {
      *input_lse(&j, part_lse, cuts + 1, 0) = (float)scores[KEYS];
      memset(input_o(&j, part_o, cuts + 1, 0), 0, VALUES * sizeof *part_o);
    }
    merge(&j, part_o, part_lse, &o, &lse);
    /* An lse rounded to fp32 moves its part's weight by as much. */
    const double want = attend(scores, values, 0, KEYS + with_sink, whole);
    const double allowed = 1e-6 + 1.2e-7 * spread;
    check_number("lse of pieces", round, -1, (double)lse[0], want, allowed);
    for (int e = 0; e < VALUES; e++)
      check_number("o of pieces", round, e, (double)o[e], whole[e], allowed);
    free(part_o);
    free(part_lse);
    free(o);
    free(lse);
  }
}

/* The rows of one part, alone and among empty ones or others too far off to count, bit by bit. */
static void identity(void **state) {
  (void)state;
  static const float lses[] = {0.0f, -0.0f, 1.5f, -87.0f, 1e30f, -1e30f, FLT_MAX, -FLT_MAX, 1e-30f, -INFINITY};
  static const float values[] = {0.0f,    -0.0f,    1.0f,      3.14159f, -1e-30f,  FLT_MIN,
                                 FLT_MAX, -FLT_MAX, -INFINITY, INFINITY, 0.33333f, -7.0f};
  enum { ROWS = sizeof lses / sizeof lses[0], MOST = 4 };
  for (int64_t v_dim = 1; v_dim <= 40; v_dim += 13)
    for (int64_t parts = 1; parts <= MOST; parts++)
      for (int64_t place = 0; place < parts; place++) {
        const job j = {parts, ROWS, v_dim, 0, 0, 1, 1, 0, 0};
        float *part_o = poisoned(input_o_count(&j)), *part_lse = poisoned(input_lse_count(&j)), *o = NULL, *lse = NULL;
        for (int64_t part = 0; part < parts; part++)
          for (int64_t row = 0; row < ROWS; row++) {
            *input_lse(&j, part_lse, part, row) = part == place ? lses[row] : -INFINITY;
            for (int64_t e = 0; e < v_dim && part == place; e++)
              input_o(&j, part_o, part, row)[e] = lses[row] == -INFINITY ? NAN : values[(row + e) % 12];
          }
        merge(&j, part_o, part_lse, &o, &lse);
        assert_memory_equal(lse + j.at_lse, lses, sizeof lses);
        for (int64_t row = 0; row < ROWS; row++)
          for (int64_t e = 0; e < v_dim; e++) {
            const float want = lses[row] == -INFINITY ? 0.0f : values[(row + e) % 12];
            assert_memory_equal(&o[j.at_o + (size_t)(row * v_dim + e)], &want, sizeof want);
          }
        free(part_o);
        free(part_lse);
        free(o);
        free(lse);
      }
}

/* One row of up to three parts and one element. */
typedef struct tiny {
  int parts;
  float lse[3], o[3], want_lse, want_o;
} tiny;

static void special_numbers(void **state) {
  (void)state;
  static const tiny rows[] = {
      /* Far apart: the larger one's bits.  Near -1e30, too, numbers are ordinary. */
      {2, {1e30f, 0}, {3, 5}, 1e30f, 3},
      {2, {-1e30f, 0}, {3, 5}, 0, 5},
      {3, {-1e30f, -2e30f, 7}, {3, 4, 5}, 7, 5},
      {2, {FLT_MAX, -FLT_MAX}, {3, 5}, FLT_MAX, 3},
      {2, {-1e30f, -1e30f}, {3, 5}, -1e30f, 4},
      {3, {-FLT_MAX, -FLT_MAX, -INFINITY}, {2, 4, NAN}, -FLT_MAX, 3},
      {2, {-87, 0.5f}, {1e30f, -2}, 0.5f, 1e30f * 9.9962565e-39f - 2}, /* below 2^-126: no weight */
      {2, {0, 0}, {1, 2}, 0.69314718f, 1.5f},
      /* The empty state, and sinks. */
      {3, {-INFINITY, -INFINITY, -INFINITY}, {NAN, INFINITY, 1}, -INFINITY, 0},
      {2, {-INFINITY, 2}, {NAN, 0}, 2, 0},
      {2, {0, 0}, {1, 0}, 0.69314718f, 0.5f},
      /* +inf and NaN. */
      {2, {INFINITY, 0}, {1, 2}, NAN, NAN},
      {2, {INFINITY, INFINITY}, {1, 2}, NAN, NAN},
      {1, {INFINITY}, {1}, NAN, NAN},
      {3, {-INFINITY, INFINITY, -INFINITY}, {NAN, 1, 2}, NAN, NAN},
      {2, {NAN, 0}, {1, 2}, NAN, NAN},
      {2, {0, NAN}, {1, 2}, NAN, NAN},
      {2, {-INFINITY, NAN}, {1, 2}, NAN, NAN},
      {1, {NAN}, {1}, NAN, NAN},
      {2, {1, 0}, {NAN, 2}, 1.3132616f, NAN},
      {2, {1, 0}, {2, INFINITY}, 1.3132616f, INFINITY},
      {2, {1, 0}, {-INFINITY, INFINITY}, 1.3132616f, NAN},
      {2, {0, -1e30f}, {1, NAN}, 0, NAN}, /* a weight of 0 is not an empty part */
  };
  for (size_t n = 0; n < sizeof rows / sizeof rows[0]; n++) {
    /* Two rows of a width that is no multiple of any vector: what happens to one element happens to all. */
    const job j = {rows[n].parts, 2, 19, 0, 0, 0, 0, 0, 0};
    float *part_o = poisoned(input_o_count(&j)), *part_lse = poisoned(input_lse_count(&j)), *o = NULL, *lse = NULL;
    for (int64_t part = 0; part < j.parts; part++)
      for (int64_t row = 0; row < j.rows; row++) {
        *input_lse(&j, part_lse, part, row) = rows[n].lse[part];
        for (int64_t e = 0; e < j.v_dim; e++)
          input_o(&j, part_o, part, row)[e] = rows[n].o[part];
      }
    merge(&j, part_o, part_lse, &o, &lse);
    const int index = (int)n;
    for (int64_t row = 0; row < j.rows; row++) {
      check_number("special lse", index, -1, (double)lse[row], (double)rows[n].want_lse, 2e-7);
      for (int64_t e = 0; e < j.v_dim; e++)
        check_number("special o", index, e, (double)o[row * j.v_dim + e], (double)rows[n].want_o, 1e-6);
    }
    free(part_o);
    free(part_lse);
    free(o);
    free(lse);
  }
}

/* NaN in one element of o reaches no other; outputs do not depend on what else is asked for; runs repeat. */
static void same_bits(void **state) {
  (void)state;
  for (size_t n = 0; n < SHAPES; n++) {
    job j = shapes[n];
    float *part_o = NULL, *part_lse = NULL, *o[4], *lse[4];
    draw(&j, 4, &part_o, &part_lse);
    for (int run = 0; run < 4; run++) { /* both, both, o alone, lse alone */
      j.without_lse = run == 2;
      j.without_o = run == 3;
      merge(&j, part_o, part_lse, &o[run], &lse[run]);
    }
    const size_t o_bytes = o_count(&j) * sizeof(float), lse_bytes = lse_count(&j) * sizeof(float);
    assert_memory_equal(o[0], o[1], o_bytes);
    assert_memory_equal(o[0], o[2], o_bytes);
    assert_memory_equal(lse[0], lse[1], lse_bytes);
    assert_memory_equal(lse[0], lse[3], lse_bytes);
    for (int run = 1; run < 4; run++) {
      free(o[run]);
      free(lse[run]);
    }
    *input_lse(&j, part_lse, j.parts - 1, j.rows - 1) = 0;
    for (int64_t e = 0; e < j.v_dim; e++)
      input_o(&j, part_o, j.parts - 1, j.rows - 1)[e] = e == j.v_dim / 2 ? NAN : 1;
    j.without_o = j.without_lse = 0;
    check_merge("one NaN", &j, part_o, part_lse);
    free(o[0]);
    free(lse[0]);
    free(part_o);
    free(part_lse);
  }
}

/* The first merge's result is a part of the second one; nothing may start before the gate opens. */
static void queues_and_events(void **state) {
  (void)state;
  const job j = {3, 40, 24, 0, 0, 0, 0, 0, 0};
  float *part_o[2], *part_lse[2], *want_o[2], *want_lse[2], *o = NULL, *lse = NULL;
  cl_int code = CL_SUCCESS, progress = CL_COMPLETE;
  const cl_command_queue other = clCreateCommandQueue(cl, device, 0, &code);
  assert_int_equal(code, CL_SUCCESS);
  for (int n = 0; n < 2; n++)
    draw(&j, 4, &part_o[n], &part_lse[n]);
  merge(&j, part_o[0], part_lse[0], &want_o[0], &want_lse[0]);
  memcpy(input_o(&j, part_o[1], 0, 0), want_o[0], (size_t)(j.rows * j.v_dim) * sizeof(float));
  memcpy(input_lse(&j, part_lse[1], 0, 0), want_lse[0], (size_t)j.rows * sizeof(float));
  merge(&j, part_o[1], part_lse[1], &want_o[1], &want_lse[1]);
  for (int round = 0; round < 6; round++) {
    const cl_command_queue on = round % 2 == 0 || out_of_order == NULL ? queue : out_of_order;
    device_job d[2], meanwhile;
    cl_event done[2] = {NULL, NULL}, none = NULL;
    const cl_event gate = clCreateUserEvent(cl, &code);
    assert_int_equal(code, CL_SUCCESS);
    for (int n = 0; n < 2; n++)
      device_job_open(&j, part_o[n], part_lse[n], &d[n]);
    /* The second one's first part is where the first one writes: one buffer for all of part_o, of which o is a piece. */
    assert_int_equal(clReleaseMemObject(d[0].o) | clReleaseMemObject(d[0].lse), CL_SUCCESS);
    assert_int_equal(clReleaseMemObject(d[1].part_o) | clReleaseMemObject(d[1].part_lse), CL_SUCCESS);
    d[1].part_o = buffer_of(CL_MEM_READ_WRITE, input_o_count(&j), part_o[1]);
    d[1].part_lse = buffer_of(CL_MEM_READ_WRITE, input_lse_count(&j), part_lse[1]);
    assert_int_equal(clRetainMemObject(d[1].part_o) | clRetainMemObject(d[1].part_lse), CL_SUCCESS);
    d[0].o = d[1].part_o;
    d[0].lse = d[1].part_lse;
    d[0].args.o = d[1].args.part_o = clattn_buffer(d[0].o, 0);
    d[0].args.lse = d[1].args.part_lse = clattn_buffer(d[0].lse, 0);
    const float zeros[1] = {0};
    assert_int_equal(clEnqueueFillBuffer(queue, d[0].o, zeros, sizeof zeros, 0,
                                         (size_t)(j.rows * j.v_dim) * sizeof(float), 0, NULL, NULL),
                     CL_SUCCESS);
    assert_int_equal(clFinish(queue), CL_SUCCESS);
    /* With no rows the event still waits; first, so that it has nothing but the gate to wait for. */
    clattn_merge_args empty = d[0].args;
    empty.rows = 0;
    assert_int_equal(clattn_merge(context, on, &empty, 1, &gate, &none), CLATTN_SUCCESS);
    assert_non_null(none);
    assert_int_equal(clattn_merge(context, on, &d[0].args, 1, &gate, &done[0]), CLATTN_SUCCESS);
    assert_int_equal(clattn_merge(context, on, &d[1].args, 1, &done[0], &done[1]), CLATTN_SUCCESS);
    assert_int_equal(clFlush(on), CL_SUCCESS);
    /* Time enough for what does not wait. */
    device_job_open(&j, part_o[0], part_lse[0], &meanwhile);
    for (int n = 0; n < 20; n++) {
      assert_int_equal(clattn_merge(context, other, &meanwhile.args, 0, NULL, NULL), CLATTN_SUCCESS);
      assert_int_equal(clFinish(other), CL_SUCCESS);
    }
    device_job_close(&meanwhile);
    const cl_event pending[] = {done[0], done[1], none};
    for (int n = 0; n < 3; n++) {
      assert_int_equal(clGetEventInfo(pending[n], CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof progress, &progress, NULL),
                       CL_SUCCESS);
      assert_int_not_equal(progress, CL_COMPLETE);
    }
    assert_int_equal(clSetUserEventStatus(gate, CL_COMPLETE), CL_SUCCESS);
    assert_int_equal(clWaitForEvents(3, pending), CL_SUCCESS);
    take_results(&j, &d[1], &o, &lse);
    assert_memory_equal(o, want_o[1], o_count(&j) * sizeof(float));
    assert_memory_equal(lse, want_lse[1], lse_count(&j) * sizeof(float));
    free(o);
    free(lse);
    assert_int_equal(clReleaseEvent(gate) | clReleaseEvent(done[0]) | clReleaseEvent(done[1]) | clReleaseEvent(none),
                     CL_SUCCESS);
    for (int n = 0; n < 2; n++)
      device_job_close(&d[n]);
  }
  assert_int_equal(clReleaseCommandQueue(other), CL_SUCCESS);
  for (int n = 0; n < 2; n++) {
    free(part_o[n]);
    free(part_lse[n]);
    free(want_o[n]);
    free(want_lse[n]);
  }
}

static void no_rows(void **state) {
  (void)state;
  const job j = {3, 0, 8, 0, 0, 4, 2, 0, 0};
  float *part_o = NULL, *part_lse = NULL;
  clattn_merge_args args;
  draw(&j, 0, &part_o, &part_lse);
  check_merge("no rows", &j, part_o, part_lse); /* the guard bands are the whole buffers */
  free(part_o);
  free(part_lse);
  /* OpenCL has no empty buffers, so none need be given. */
  clattn_merge_args_init(&args);
  args.parts = 2;
  assert_int_equal(clattn_merge(context, queue, &args, 0, NULL, NULL), CLATTN_SUCCESS);
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

static device_job sound; /* of 3 parts, 10 rows, v_dim 8 */

static void refused_with(clattn_context *ctx, cl_command_queue on, const clattn_merge_args *args, cl_uint events,
                         const cl_event *list, clattn_status want, const char *part) {
  cl_event event = (cl_event)(void *)&event;
  clattn_error_init(args->error);
  const clattn_status status = clattn_merge(ctx, on, args, events, list, &event);
  if (status != want || args->error->status != want || strstr(args->error->message, part) == NULL)
    fail_msg("%s, not %s with '%s': %s", clattn_status_name(status), clattn_status_name(want), part,
             args->error->message);
  assert_null(event);
}

static void refused(const clattn_merge_args *args, clattn_status want, const char *part) {
  refused_with(context, queue, args, 0, NULL, want, part);
}

#define REFUSED(change, want, part)                                                                                    \
  do {                                                                                                                 \
    clattn_merge_args args = sound.args;                                                                               \
    change;                                                                                                            \
    refused(&args, want, part);                                                                                        \
  } while (0)

static const job sound_job = {3, 10, 8, 0, 0, 0, 0, 0, 0};

static void open_sound(void) {
  float *part_o = NULL, *part_lse = NULL;
  draw(&sound_job, 0, &part_o, &part_lse);
  device_job_open(&sound_job, part_o, part_lse, &sound);
  free(part_o);
  free(part_lse);
}

/* Nothing ran. */
static void close_sound(void) {
  const job nothing = {3, 10, 8, 0, 0, 0, 0, 1, 1};
  float *o = NULL, *lse = NULL;
  take_results(&nothing, &sound, &o, &lse);
  free(o);
  free(lse);
  device_job_close(&sound);
}

static void wrong_arguments(void **state) {
  (void)state;
  open_sound();
  cl_event event = (cl_event)(void *)&event;
  assert_int_equal(clattn_merge(context, queue, NULL, 0, NULL, &event), CLATTN_ERROR_NULL_POINTER);
  assert_null(event);
  clattn_merge_args sized = sound.args;
  sized.struct_size--;
  event = (cl_event)(void *)&event;
  assert_int_equal(clattn_merge(context, queue, &sized, 0, NULL, &event), CLATTN_ERROR_STRUCT_SIZE);
  assert_null(event);
  clattn_merge_args silent = sound.args; /* without an error too */
  silent.error = NULL;
  silent.parts = 0;
  assert_int_equal(clattn_merge(context, queue, &silent, 0, NULL, NULL), CLATTN_ERROR_SHAPE);
  clattn_merge_args_init(NULL);
  refused_with(NULL, queue, &sound.args, 0, NULL, CLATTN_ERROR_NULL_POINTER, "context is NULL");
  refused_with(context, NULL, &sound.args, 0, NULL, CLATTN_ERROR_NULL_POINTER, "queue is NULL");
  refused_with(context, queue, &sound.args, 1, NULL, CL_INVALID_EVENT_WAIT_LIST, "num_events is 1");
  REFUSED(args.reserved[3] = 7, CLATTN_ERROR_RESERVED, "clattn_merge_args.reserved[3] is 7, not 0");

  REFUSED(args.parts = 0, CLATTN_ERROR_SHAPE, "args.parts is 0: it must be >= 1");
  REFUSED(args.rows = -1, CLATTN_ERROR_SHAPE, "args.rows is -1: it must be >= 0");
  REFUSED(args.v_dim = 0, CLATTN_ERROR_SHAPE, "args.v_dim is 0: it must be >= 1");
  REFUSED((args.v_dim = -2, args.o = clattn_buffer(NULL, 0)), CLATTN_ERROR_SHAPE, "args.v_dim is -2: it must be >= 0");
  REFUSED(args.part_stride_o = 79, CLATTN_ERROR_STRIDE,
          "args.part_stride_o is 79: it must be 0 or at least a part's 80");
  REFUSED(args.part_stride_o = -80, CLATTN_ERROR_STRIDE, "args.part_stride_o is -80");
  REFUSED(args.part_stride_lse = 9, CLATTN_ERROR_STRIDE, "args.part_stride_lse is 9");
  REFUSED(args.part_stride_lse = -1, CLATTN_ERROR_STRIDE, "args.part_stride_lse is -1");
  REFUSED(args.rows = INT64_MAX / 8, CLATTN_ERROR_OVERFLOW, "of v_dim 8: their bytes do not fit in 63 bits");
  REFUSED(args.part_stride_o = INT64_MAX / 8, CLATTN_ERROR_OVERFLOW, "args.part_stride_o 1152921504606846975");
  REFUSED(args.parts = INT64_MAX / 40, CLATTN_ERROR_OVERFLOW, "args.part_stride_o 80: the bytes of");

  REFUSED(args.part_o = clattn_buffer(NULL, 0), CLATTN_ERROR_TENSOR_MISSING, "args.part_o");
  REFUSED(args.part_lse = clattn_buffer(NULL, 0), CLATTN_ERROR_TENSOR_MISSING, "args.part_lse");
  REFUSED((args.o = clattn_buffer(NULL, 0), args.lse = args.o), CLATTN_ERROR_TENSOR_MISSING,
          "neither args.o nor args.lse is given");
  close_sound();
}

static void wrong_memory(void **state) {
  (void)state;
  static const char *const names[] = {"part_o", "part_lse", "o", "lse"};
  open_sound();
  for (size_t n = 0; n < 4; n++) {
    clattn_merge_args args = sound.args;
    clattn_mem *const mem[] = {&args.part_o, &args.part_lse, &args.o, &args.lse};
    const uint64_t needed[] = {960, 120, 320, 40};
    const clattn_mem good = *mem[n];
    char text[64];
    snprintf(text, sizeof text, "args.%s", names[n]);
    mem[n]->bytes = needed[n] - 1;
    refused(&args, CLATTN_ERROR_BUFFER_TOO_SMALL, text);
    *mem[n] = good;
    mem[n]->offset = GUARD * sizeof(float) + 4;
    refused(&args, CLATTN_ERROR_BUFFER_TOO_SMALL, text);
    mem[n]->offset = 2;
    refused(&args, CLATTN_ERROR_ALIGNMENT, text);
    *mem[n] = good;
    mem[n]->kind = CLATTN_MEM_SVM;
    refused(&args, CLATTN_ERROR_NOT_SUPPORTED, text);
    mem[n]->kind = 9;
    refused(&args, CLATTN_ERROR_ENUM, text);
    *mem[n] = good;
    mem[n]->reserved = 1;
    refused(&args, CLATTN_ERROR_RESERVED, text);
    *mem[n] = good;
    mem[n]->buffer = n < 2 ? sound.o : sound.part_o; /* write-only for an input, read-only for an output */
    refused(&args, CL_INVALID_MEM_OBJECT, text);
  }
  /* Strides count as much as shapes. */
  REFUSED(args.part_stride_o = 100, CLATTN_ERROR_BUFFER_TOO_SMALL, "args.part_o has 1108 bytes");
  REFUSED(args.parts = 5, CLATTN_ERROR_BUFFER_TOO_SMALL, "args.part_o");
  close_sound();
}

static void overlaps(void **state) {
  (void)state;
  open_sound();
  float *zeros = floats(1000, 0);
  const cl_mem all = buffer_of(CL_MEM_READ_WRITE, 1000, zeros);
  free(zeros);
  const cl_buffer_region region = {512, 2048};
  cl_int code = CL_SUCCESS;
  const cl_mem piece = clCreateSubBuffer(all, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
  assert_int_equal(code, CL_SUCCESS);
  REFUSED((args.part_o = clattn_buffer(all, 0), args.o = clattn_buffer(all, 0)), CLATTN_ERROR_OVERLAP, "args.o");
  REFUSED((args.part_o = clattn_buffer(all, 0), args.o = clattn_buffer(piece, 0)), CLATTN_ERROR_OVERLAP, "args.o");
  REFUSED((args.part_lse = clattn_buffer(all, 0), args.lse = clattn_buffer(all, 116)), CLATTN_ERROR_OVERLAP,
          "args.lse (bytes 116 to 155) overlaps args.part_lse (bytes 0 to 119)");
  REFUSED((args.o = clattn_buffer(all, 0), args.lse = clattn_buffer(all, 316)), CLATTN_ERROR_OVERLAP, "args.o");
  close_sound();
  /* What shares a buffer and no element is fine: lse behind o in rows of (o, lse), parts one pitch apart. */
  clattn_merge_args args = sound.args;
  args.part_stride_o = args.part_stride_lse = 200;
  args.part_o = clattn_buffer(all, 0);
  args.part_lse = clattn_buffer(all, 80 * sizeof(float));
  args.o = clattn_buffer(all, 90 * sizeof(float));
  args.lse = clattn_buffer(all, 170 * sizeof(float));
  if (clattn_merge(context, queue, &args, 0, NULL, NULL) != CLATTN_SUCCESS)
    fail_msg("%s", sound.error.message);
  assert_int_equal(clFinish(queue), CL_SUCCESS);
  assert_int_equal(clReleaseMemObject(piece) | clReleaseMemObject(all), CL_SUCCESS);
}

static void other_contexts(void **state) {
  (void)state;
  cl_int code = CL_SUCCESS;
  open_sound();
  const cl_context strange = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
  assert_int_equal(code, CL_SUCCESS);
  const cl_command_queue strange_queue = clCreateCommandQueue(strange, device, 0, &code);
  assert_int_equal(code, CL_SUCCESS);
  const cl_event strange_event = clCreateUserEvent(strange, &code);
  assert_int_equal(code, CL_SUCCESS);
  const cl_mem strange_buffer = clCreateBuffer(strange, CL_MEM_READ_WRITE, 4096, NULL, &code);
  assert_int_equal(code, CL_SUCCESS);
  refused_with(context, strange_queue, &sound.args, 0, NULL, CLATTN_ERROR_WRONG_CONTEXT, "the queue");
  refused_with(context, queue, &sound.args, 1, &strange_event, CLATTN_ERROR_WRONG_CONTEXT, "event 0");
  REFUSED(args.part_lse = clattn_buffer(strange_buffer, 0), CLATTN_ERROR_WRONG_CONTEXT, "args.part_lse");
  REFUSED(args.o = clattn_buffer(strange_buffer, 0), CLATTN_ERROR_WRONG_CONTEXT, "args.o");
  close_sound();
  assert_int_equal(clSetUserEventStatus(strange_event, CL_COMPLETE), CL_SUCCESS);
  assert_int_equal(clReleaseMemObject(strange_buffer) | clReleaseEvent(strange_event) |
                       clReleaseCommandQueue(strange_queue) | clReleaseContext(strange),
                   CL_SUCCESS);
}

/* A context of the device and a part of it, clattn on one, the queue on the other. */
static void other_devices(void **state) {
  (void)state;
  const cl_device_partition_property one_unit[] = {CL_DEVICE_PARTITION_BY_COUNTS, 1,
                                                   CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0};
  cl_device_id both[2] = {device, NULL};
  clattn_context *whole = NULL;
  cl_int code = CL_SUCCESS;
  if (clCreateSubDevices(device, one_unit, 1, &both[1], NULL) != CL_SUCCESS)
    skip(); /* the device can't be split */
  const cl_context two = clCreateContext(NULL, 2, both, NULL, NULL, &code);
  assert_int_equal(code, CL_SUCCESS);
  const cl_command_queue part_queue = clCreateCommandQueue(two, both[1], 0, &code);
  assert_int_equal(code, CL_SUCCESS);
  assert_int_equal(clattn_context_create(two, device, NULL, &whole, NULL), CLATTN_SUCCESS);
  open_sound();
  refused_with(whole, part_queue, &sound.args, 0, NULL, CLATTN_ERROR_WRONG_DEVICE, "the queue is on another device");
  close_sound();
  clattn_context_release(whole);
  assert_int_equal(clReleaseCommandQueue(part_queue) | clReleaseContext(two) | clReleaseDevice(both[1]), CL_SUCCESS);
}

static int start(void **state) {
  (void)state;
  cl_int code = CL_SUCCESS;
  cl_command_queue_properties properties = 0;
  if (clattn_context_create_default(NULL, &context, NULL) != CLATTN_SUCCESS ||
      clattn_context_handles(context, &cl, &device) != CLATTN_SUCCESS)
    return -1;
  queue = clCreateCommandQueue(cl, device, 0, &code);
  if (code == CL_SUCCESS)
    code = clGetDeviceInfo(device, CL_DEVICE_QUEUE_PROPERTIES, sizeof properties, &properties, NULL);
  if (code == CL_SUCCESS && (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) != 0)
    out_of_order = clCreateCommandQueue(cl, device, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &code);
  return code == CL_SUCCESS ? 0 : -1;
}

static int finish(void **state) {
  (void)state;
  if (queue != NULL)
    clReleaseCommandQueue(queue);
  if (out_of_order != NULL)
    clReleaseCommandQueue(out_of_order);
  clattn_context_release(context);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_parts),  cmocka_unit_test(many_rows),         cmocka_unit_test(a_softmax_in_pieces),
      cmocka_unit_test(identity),      cmocka_unit_test(special_numbers),   cmocka_unit_test(same_bits),
      cmocka_unit_test(no_rows),       cmocka_unit_test(queues_and_events), cmocka_unit_test(wrong_arguments),
      cmocka_unit_test(wrong_memory),  cmocka_unit_test(overlaps),          cmocka_unit_test(other_contexts),
      cmocka_unit_test(other_devices),
  };
  return cmocka_run_group_tests(tests, start, finish);
}
