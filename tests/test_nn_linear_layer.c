/* SPDX-License-Identifier: Apache-2.0 */
/* Layers and what they are made of: matrices, weights, the call, and what it must give. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn_ref.h"
#include "test_nn_linear.h"

linear_rig rig;

/* ---- numbers and memory ------------------------------------------------------------------------------------------ */

static uint64_t state_of_draw;

void draw_from(uint64_t seed) {
  state_of_draw = seed;
}

double uniform(double low, double high) {
  state_of_draw ^= state_of_draw << 13;
  state_of_draw ^= state_of_draw >> 7;
  state_of_draw ^= state_of_draw << 17;
  return low + (high - low) * (double)(state_of_draw >> 11) / 9007199254740992.0;
}

int64_t below(int64_t count) {
  return (int64_t)uniform(0, (double)count);
}

void matrix_make(matrix *m, clattn_dtype dtype, int64_t rows, int64_t columns, int64_t stride, size_t before,
                 int byte) {
  memset(m, 0, sizeof *m);
  m->dtype = dtype;
  m->rows = rows;
  m->columns = columns;
  m->stride = stride != 0 ? stride : columns;
  m->before = before;
  m->byte = byte;
  const size_t reach = rows > 0 ? (size_t)((rows - 1) * m->stride + columns) : 0;
  m->bytes = (before + reach + GUARD) * nn_ref_bytes(dtype);
  m->host = malloc(m->bytes);
  assert_non_null(m->host);
  memset(m->host, byte, m->bytes);
}

void matrix_free(matrix *m) {
  if (m->buffer != NULL)
    assert_int_equal(clReleaseMemObject(m->buffer), CL_SUCCESS);
  free(m->host);
  memset(m, 0, sizeof *m);
}

static int64_t index_of(const matrix *m, int64_t row, int64_t column) {
  return (int64_t)m->before + row * m->stride + column;
}

void matrix_set(matrix *m, int64_t row, int64_t column, double x) {
  nn_ref_store(m->dtype, m->host, index_of(m, row, column), x);
}

double matrix_get(const matrix *m, int64_t row, int64_t column) {
  return nn_ref_load(m->dtype, m->host, index_of(m, row, column));
}

void matrix_draw(matrix *m, double low, double high) {
  for (int64_t row = 0; row < m->rows; row++)
    for (int64_t column = 0; column < m->columns; column++)
      matrix_set(m, row, column, uniform(low, high));
}

const void *matrix_first(const matrix *m) {
  return m->host + m->before * nn_ref_bytes(m->dtype);
}

double *matrix_numbers(const matrix *m) {
  return nn_ref_widen(m->dtype, matrix_first(m), m->rows, m->columns, m->stride);
}

void matrix_give(matrix *m, cl_mem_flags flags) {
  cl_int code = CL_SUCCESS;
  m->buffer = clCreateBuffer(rig.cl, flags | CL_MEM_COPY_HOST_PTR, m->bytes, m->host, &code);
  assert_int_equal(code, CL_SUCCESS);
}

void matrix_fetch(matrix *m) {
  const size_t element = nn_ref_bytes(m->dtype);
  const size_t first = m->before * element, pitch = (size_t)m->stride * element, run = (size_t)m->columns * element;
  assert_int_equal(clEnqueueReadBuffer(rig.queue, m->buffer, CL_TRUE, 0, m->bytes, m->host, 0, NULL, NULL), CL_SUCCESS);
  for (size_t i = 0; i < m->bytes; i++) {
    const int inside = i >= first && (i - first) / pitch < (size_t)m->rows && (i - first) % pitch < run;
    if (!inside && m->host[i] != m->byte)
      fail_msg("byte %zu of a matrix of %" PRId64 " x %" PRId64 ", stride %" PRId64
               ", first element at byte %zu, was written",
               i, m->rows, m->columns, m->stride, first);
  }
}

clattn_nn_matrix matrix_view(const matrix *m) {
  clattn_nn_matrix view = clattn_nn_matrix_f32(m->buffer, m->before * nn_ref_bytes(m->dtype), m->stride);
  if (m->buffer == NULL)
    memset(&view, 0, sizeof view);
  else
    view.dtype = m->dtype;
  return view;
}

void must_fill(const clattn_nn_fill_args *args) {
  const clattn_status status = clattn_nn_weight_fill(rig.queue, args, 0, NULL, NULL);
  if (status != CLATTN_SUCCESS)
    fail_msg("%s: %s", clattn_status_name(status), args->error->message);
}

clattn_nn_weight *weight_of(clattn_nn *nn, int64_t in, int64_t out, clattn_dtype dtype, const float *w,
                            const float *bias) {
  clattn_nn_weight *weight = NULL;
  clattn_nn_fill_args args;
  clattn_error error;
  clattn_error_init(&error);
  if (clattn_nn_weight_create(nn, in, out, dtype, bias != NULL, &weight, &error) != CLATTN_SUCCESS)
    fail_msg("%s", error.message);
  clattn_nn_fill_args_init(&args);
  args.error = &error;
  args.weight = weight;
  args.host = w;
  args.host_bias = bias;
  must_fill(&args);
  return weight;
}

void linear(clattn_nn *nn, cl_command_queue queue, const clattn_nn_linear_args *args, cl_uint num_events,
            const cl_event *wait_list, cl_event *event) {
  const clattn_status status = clattn_nn_linear(nn, queue, args, num_events, wait_list, event);
  if (status != CLATTN_SUCCESS)
    fail_msg("%s: %s", clattn_status_name(status), args->error->message);
}

/* ---- layers ------------------------------------------------------------------------------------------------------ */

/* Each set of types is a program of its own, and so is each type of an absent factor, so they are few. */
enum { NEVER = 0, ALWAYS = 1, EITHER = 2 };
static const struct {
  clattn_dtype x, w, y, factor, residual;
  int with_factor, with_residual;
} types[] = {
    {CLATTN_F32, CLATTN_F32, CLATTN_F32, CLATTN_F32, CLATTN_F32, EITHER, EITHER},
    {CLATTN_F16, CLATTN_F16, CLATTN_F16, CLATTN_F32, CLATTN_F16, NEVER, ALWAYS},
    {CLATTN_BF16, CLATTN_BF16, CLATTN_BF16, CLATTN_BF16, CLATTN_F32, ALWAYS, EITHER},
    {CLATTN_F32, CLATTN_F16, CLATTN_F32, CLATTN_F32, CLATTN_F32, EITHER, EITHER},
    {CLATTN_F32, CLATTN_BF16, CLATTN_F32, CLATTN_F32, CLATTN_F32, EITHER, EITHER},
    {CLATTN_BF16, CLATTN_F32, CLATTN_F16, CLATTN_F16, CLATTN_BF16, ALWAYS, ALWAYS},
};
enum { TYPES = sizeof types / sizeof types[0] };

static const char *describe(const layer *l) {
  static char text[400];
  snprintf(text, sizeof text,
           "types %d, rows %" PRId64 ", in %" PRId64 ", out %" PRId64
           ", activation %d, bias %d, factor %d, residual %d, y is %c, transposed %d, on device %d, from f32 %d, "
           "parts %d, strides + %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 ", from %zu %zu %zu %zu",
           l->types, l->rows, l->in, l->out, (int)l->activation, l->with_bias, l->with_factor, l->with_residual,
           l->y_is ? l->y_is : '-', l->transposed, l->on_device, l->from_f32, l->parts, l->more[0], l->more[1],
           l->more[2], l->more[3], l->before[0], l->before[1], l->before[2], l->before[3]);
  return text;
}

static int chosen(int when) {
  return when == EITHER ? below(2) == 1 : when;
}

void draw_layer(layer *l, int type, int64_t most_products) {
  static const int64_t sides[] = {1, 2, 3, 16, 17, 23, 24, 25, 47, 48, 49, 64, 65, 96, 128, 129, 257, 384, 1000, 1536};
  const int64_t count = sizeof sides / sizeof sides[0];
  memset(l, 0, sizeof *l);
  l->types = type >= 0 ? type : (int)below(TYPES);
  l->in = sides[below(count)];
  l->out = sides[below(count)];
  l->rows = below(25) == 0 ? 0 : 1 + below(130);
  if (l->rows * l->in * l->out > most_products)
    l->rows = 1 + most_products / (l->in * l->out);
  l->activation = (clattn_nn_activation)below(5);
  l->with_bias = below(2) == 1;
  l->with_factor = chosen(types[l->types].with_factor);
  l->with_residual = chosen(types[l->types].with_residual);
  const int64_t place = below(3);
  if (place == 1 && l->with_factor && types[l->types].factor == types[l->types].y)
    l->y_is = 'f';
  if (place == 2 && l->with_residual && types[l->types].residual == types[l->types].y)
    l->y_is = 'r';
  l->transposed = below(2) == 1;
  l->on_device = below(2) == 1;
  l->from_f32 = below(2) == 1;
  l->parts = (int)(1 + below(l->out < 3 ? l->out : 3));
  for (int i = 0; i < 4; i++) {
    l->more[i] = below(2) * below(20);
    l->before[i] = (size_t)(below(2) * below(50));
  }
}

void numbers_free(numbers *n) {
  double *const all[] = {n->given, n->w, n->b, n->x, n->factor, n->residual, n->want, n->size};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
    free(all[i]);
}

static clattn_dtype given_type(const layer *l) {
  return l->from_f32 ? CLATTN_F32 : types[l->types].w;
}

void draw_weight(const layer *l, numbers *n) {
  const double reach = 1.5 / sqrt((double)l->in);
  n->given = nn_ref_numbers(l->in * l->out);
  n->w = nn_ref_numbers(l->in * l->out);
  n->b = l->with_bias ? nn_ref_numbers(l->out) : NULL;
  for (int64_t i = 0; i < l->in * l->out; i++) {
    n->given[i] = nn_ref_round(given_type(l), uniform(-reach, reach));
    n->w[i] = nn_ref_round(types[l->types].w, n->given[i]);
  }
  for (int64_t i = 0; i < l->out && l->with_bias; i++)
    n->b[i] = nn_ref_round(CLATTN_F32, uniform(-1, 1));
}

void fill_part(clattn_nn_weight *weight, const layer *l, const numbers *n, int64_t first, int64_t count) {
  clattn_nn_fill_args args;
  clattn_error error;
  matrix w, b;
  const int64_t stride = l->on_device ? (l->transposed ? count : l->in) + below(9) : 0;
  matrix_make(&w, given_type(l), l->transposed ? l->in : count, l->transposed ? count : l->in, stride,
              (size_t)below(GUARD), POISON);
  matrix_make(&b, CLATTN_F32, 1, count, 0, (size_t)below(GUARD), POISON);
  for (int64_t o = 0; o < count; o++) {
    for (int64_t i = 0; i < l->in; i++)
      matrix_set(&w, l->transposed ? i : o, l->transposed ? o : i, n->given[(first + o) * l->in + i]);
    if (l->with_bias)
      matrix_set(&b, 0, o, n->b[first + o]);
  }
  clattn_error_init(&error);
  clattn_nn_fill_args_init(&args);
  args.error = &error;
  args.weight = weight;
  args.first = first;
  args.count = below(2) == 1 && l->parts == 1 ? 0 : count; /* 0: all */
  args.transposed = (uint32_t)l->transposed;
  args.dtype = given_type(l);
  if (l->on_device) {
    matrix_give(&w, CL_MEM_READ_ONLY);
    matrix_give(&b, CL_MEM_READ_ONLY);
    args.matrix = matrix_view(&w);
    args.matrix.dtype = 0;
    if (l->with_bias)
      args.bias = matrix_view(&b).mem;
  } else {
    args.host = matrix_first(&w);
    args.host_bias = l->with_bias ? matrix_first(&b) : NULL;
  }
  must_fill(&args);
  memset(w.host, POISON, w.bytes); /* host values were copied */
  memset(b.host, POISON, b.bytes);
  matrix_free(&w);
  matrix_free(&b);
}

clattn_nn_weight *fill_weight(clattn_nn *nn, const layer *l, const numbers *n) {
  clattn_nn_weight *weight = NULL;
  if (clattn_nn_weight_create(nn, l->in, l->out, types[l->types].w, l->with_bias, &weight, NULL) != CLATTN_SUCCESS)
    fail_msg("%s", describe(l));
  for (int part = l->parts - 1; part >= 0; part--) {
    const int64_t first = l->out * part / l->parts;
    fill_part(weight, l, n, first, l->out * (part + 1) / l->parts - first);
  }
  return weight;
}

void call_make(call *c, const layer *l) {
  const clattn_dtype dtypes[] = {types[l->types].x, types[l->types].y, types[l->types].factor,
                                 types[l->types].residual};
  for (int i = 0; i < MATRICES; i++) {
    const int at = (i == FACTOR && l->y_is == 'f') || (i == RESIDUAL && l->y_is == 'r') ? Y : i;
    const int64_t columns = i == X ? l->in : l->out;
    matrix_make(&c->m[i], dtypes[i], l->rows, columns, columns + l->more[at], l->before[at],
                at == Y ? PATTERN : POISON);
    if (i != Y)
      matrix_draw(&c->m[i], -2, 2);
  }
}

void call_free(call *c) {
  for (int i = 0; i < MATRICES; i++)
    matrix_free(&c->m[i]);
}

void expect(const layer *l, const call *c, numbers *n) {
  const nn_ref_weight weight = {l->in, l->out, n->w, n->b};
  n->x = matrix_numbers(&c->m[X]);
  n->factor = l->with_factor ? matrix_numbers(&c->m[FACTOR]) : NULL;
  n->residual = l->with_residual ? matrix_numbers(&c->m[RESIDUAL]) : NULL;
  n->want = nn_ref_numbers(l->rows * l->out);
  n->size = nn_ref_numbers(l->rows * l->out);
  nn_ref_linear(&weight, l->activation, l->rows, n->x, n->factor, n->residual, n->want, n->size);
}

void run(clattn_nn *nn, const clattn_nn_weight *weight, const layer *l, call *c) {
  matrix *const y = &c->m[Y], *const same = &c->m[l->y_is == 'f' ? FACTOR : RESIDUAL];
  clattn_nn_linear_args args;
  clattn_error error;
  clattn_error_init(&error);
  clattn_nn_linear_args_init(&args);
  args.error = &error;
  args.weight = weight;
  args.rows = l->rows;
  args.activation = l->activation;
  if (l->y_is)
    memcpy(y->host, same->host, y->bytes);
  else
    memset(y->host, y->byte, y->bytes);
  matrix_give(y, l->y_is ? CL_MEM_READ_WRITE : CL_MEM_WRITE_ONLY);
  for (int i = 0; i < MATRICES; i++)
    if (i == X || (i == FACTOR && l->with_factor) || (i == RESIDUAL && l->with_residual))
      if (!l->y_is || &c->m[i] != same)
        matrix_give(&c->m[i], CL_MEM_READ_ONLY);
  args.x = matrix_view(&c->m[X]);
  args.y = matrix_view(y);
  args.factor = matrix_view(l->y_is == 'f' ? y : &c->m[FACTOR]);
  args.residual = matrix_view(l->y_is == 'r' ? y : &c->m[RESIDUAL]);
  linear(nn, rig.queue, &args, 0, NULL, NULL);
  matrix_fetch(y);
  for (int i = 0; i < MATRICES; i++)
    if (c->m[i].buffer != NULL) {
      assert_int_equal(clReleaseMemObject(c->m[i].buffer), CL_SUCCESS);
      c->m[i].buffer = NULL;
    }
}

void compare(const char *name, const layer *l, const call *c, const numbers *n) {
  /* Sums of `in` products, the epilogue, and an activation that is steeper than 1 in places. */
  const double roundings = 10 + 2 * sqrt((double)l->in);
  for (int64_t row = 0; row < l->rows; row++)
    for (int64_t o = 0; o < l->out; o++) {
      const double want = n->want[row * l->out + o], got = matrix_get(&c->m[Y], row, o);
      if (!nn_ref_near(got, want, nn_ref_allowed(c->m[Y].dtype, want, n->size[row * l->out + o], roundings)))
        fail_msg("%s: row %" PRId64 ", output %" PRId64 " is %.9g, not %.9g: %s", name, row, o, got, want, describe(l));
    }
}

void check_with(const char *name, clattn_nn *nn, const layer *l, call *c, const numbers *n) {
  clattn_nn_weight *const weight = fill_weight(nn, l, n);
  run(nn, weight, l, c);
  compare(name, l, c, n);
  clattn_nn_weight_release(weight);
}
