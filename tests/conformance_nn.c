/* SPDX-License-Identifier: Apache-2.0 */
/* ONNX node cases of LayerNormalization (opset 17) and RotaryEmbedding (opset 23). */
#include "conformance_nn.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "conformance_memory.h"
#include "conformance_spec.h"

int cf_is_nn(const char *op) {
  return strcmp(op, "LayerNormalization") == 0 || strcmp(op, "RotaryEmbedding") == 0;
}

/* ---- what both share ---- */

static int is_float(cf_type type) {
  return type == CF_F32 || type == CF_F16 || type == CF_BF16;
}

static clattn_dtype dtype_of(cf_type type) {
  return type == CF_F16 ? CLATTN_F16 : type == CF_BF16 ? CLATTN_BF16 : CLATTN_F32;
}

/* Every slot is one that the operator has. */
static int check_slots(const cf_case *c, int64_t inputs, int64_t outputs, cf_reason *reason) {
  for (int i = 0; i < c->inputs; i++) {
    if (c->input[i].slot < 0 || c->input[i].slot >= inputs)
      return cf_fail(reason, "the input %s is in slot %" PRId64 ", which %.64s does not have", c->input[i].name,
                     c->input[i].slot, c->op);
  }
  for (int i = 0; i < c->outputs; i++) {
    if (c->output[i].slot < 0 || c->output[i].slot >= outputs)
      return cf_fail(reason, "the output %s is in slot %" PRId64 ", which %.64s does not have", c->output[i].name,
                     c->output[i].slot, c->op);
  }
  return 1;
}

/* An output against what was computed, both in C order. */
static int judge(const cf_tensor *want, int64_t count, const double *got, cf_reason *reason) {
  cf_view view = {{1, 1, 1, count}, {count, count, count, 1}};
  if (want->array.count != count)
    return cf_fail(reason, "%s has %" PRId64 " elements, the inputs give %" PRId64, want->name, want->array.count,
                   count);
  return cf_compare(want, &view, got, reason);
}

static int judge_device(const cli_session *session, const cf_tensor *want, const cf_guarded *at, clattn_dtype dtype,
                        cf_reason *reason) {
  cf_array array;
  memset(&array, 0, sizeof array);
  array.type = dtype == CLATTN_F16 ? CF_F16 : dtype == CLATTN_BF16 ? CF_BF16 : CF_F32;
  array.count = (int64_t)(at->bytes / cf_type_bytes(array.type));
  array.data = cf_guarded_read(session, at, want->name, reason);
  double *got = array.data != NULL ? cf_allocate(array.count, sizeof *got) : NULL;
  int result = 0;
  for (int64_t i = 0; got != NULL && i < array.count; i++)
    got[i] = cf_value(&array, i);
  if (got != NULL)
    result = judge(want, array.count, got, reason);
  free(got);
  free(array.data);
  return result;
}

/* ---- LayerNormalization ---- */

enum { NORM_X, NORM_SCALE, NORM_B, NORM_INPUTS };
enum { NORM_Y, NORM_MEAN, NORM_INV_STD, NORM_OUTPUTS };

typedef struct norm_case {
  const cf_array *x;
  const cf_tensor *out[NORM_OUTPUTS];
  int64_t rows, columns;
  float epsilon;
  float *gamma, *beta; /* columns each; beta NULL: none */
} norm_case;

/* A scale or bias over the axes from `axis` on of x, broadcast to all of them. */
static float *spread(const cf_array *x, int axis, int64_t columns, const cf_tensor *given, cf_reason *reason) {
  const cf_array *array = &given->array;
  const int rank = x->rank - axis;
  char text[128];
  float *out = cf_allocate(columns, sizeof *out);
  if (out == NULL) {
    cf_fail(reason, "out of memory");
    return NULL;
  }
  for (int64_t n = 0; n < columns; n++) {
    int64_t rest = n, at = 0, stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
      const int64_t size = x->shape[axis + i], index = rest % size;
      const int own = i - (rank - array->rank);
      const int64_t have = own >= 0 ? array->shape[own] : 1;
      if (have != 1 && have != size) {
        cf_fail(reason, "%s %s does not spread over the normalised axes", given->name, cf_shape_text(array, text));
        free(out);
        return NULL;
      }
      at += have == 1 ? 0 : index * stride;
      stride *= have;
      rest /= size;
    }
    out[n] = (float)cf_value(array, at);
  }
  return out;
}

static int norm_open(const cf_case *c, norm_case *n, cf_reason *reason) {
  static const char *const keys[] = {"axis", "epsilon", "stash_type", NULL};
  const cJSON *attributes = cJSON_GetObjectItemCaseSensitive(c->root, "attributes");
  const cf_tensor *x = cf_find_slot(c->input, c->inputs, NORM_X), *b = cf_find_slot(c->input, c->inputs, NORM_B);
  const cf_tensor *scale = cf_find_slot(c->input, c->inputs, NORM_SCALE);
  int64_t axis = -1, stash = 1;
  int absent;
  n->epsilon = 1e-5f;
  if (!check_slots(c, NORM_INPUTS, NORM_OUTPUTS, reason) || !cf_only_keys(c->root, "attributes", keys, reason))
    return 0;
  if (x == NULL || scale == NULL) {
    cf_fail(reason, "X or Scale is missing");
    return 0;
  }
  n->x = &x->array;
  if (!is_float(x->array.type))
    return cf_fail(reason, "X is %s; f32, f16 and bf16 are possible", cf_type_name(x->array.type));
  if (!cf_get_integer(attributes, "axis", -n->x->rank, n->x->rank - 1, &axis, &absent, reason) ||
      !cf_get_integer(attributes, "stash_type", 1, 16, &stash, &absent, reason) ||
      !cf_get_real(attributes, "epsilon", &n->epsilon, &absent, reason))
    return 0;
  if (axis < 0)
    axis += n->x->rank;
  n->rows = n->columns = 1;
  for (int i = 0; i < n->x->rank; i++)
    *(i < axis ? &n->rows : &n->columns) *= n->x->shape[i];
  for (int i = 0; i < NORM_OUTPUTS; i++)
    n->out[i] = cf_find_slot(c->output, c->outputs, i);
  n->gamma = spread(n->x, (int)axis, n->columns, scale, reason);
  if (n->gamma != NULL && b != NULL)
    n->beta = spread(n->x, (int)axis, n->columns, b, reason);
  return n->gamma != NULL && (b == NULL || n->beta != NULL);
}

/* In double precision, by the operator's text. */
static int norm_host(const norm_case *n, cf_reason *reason) {
  double *y = cf_allocate(n->rows * n->columns, sizeof *y);
  double *mean = cf_allocate(n->rows, sizeof *mean), *inv = cf_allocate(n->rows, sizeof *inv);
  int result = 0;
  if (y == NULL || mean == NULL || inv == NULL) {
    cf_fail(reason, "out of memory");
    goto done;
  }
  for (int64_t r = 0; r < n->rows; r++) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n->columns; i++)
      sum += cf_value(n->x, r * n->columns + i);
    mean[r] = sum / (double)n->columns;
    for (int64_t i = 0; i < n->columns; i++) {
      const double from = cf_value(n->x, r * n->columns + i) - mean[r];
      squares += from * from;
    }
    inv[r] = 1 / sqrt(squares / (double)n->columns + (double)n->epsilon);
    for (int64_t i = 0; i < n->columns; i++)
      y[r * n->columns + i] = (cf_value(n->x, r * n->columns + i) - mean[r]) * inv[r] * (double)n->gamma[i] +
                              (n->beta != NULL ? (double)n->beta[i] : 0.0);
  }
  const double *const got[NORM_OUTPUTS] = {y, mean, inv};
  result = 1;
  for (int i = 0; result && i < NORM_OUTPUTS; i++)
    if (n->out[i] != NULL)
      result = judge(n->out[i], i == NORM_Y ? n->rows * n->columns : n->rows, got[i], reason);

done:
  free(y);
  free(mean);
  free(inv);
  return result;
}

static int norm_device(const cli_session *session, clattn_nn *nn, const norm_case *n, cf_reason *reason) {
  enum { X, Y, GAMMA, BETA, MEAN, INV, PLACES };
  const clattn_dtype dtype = dtype_of(n->x->type);
  const size_t element = cf_type_bytes(n->x->type);
  const size_t all = (size_t)(n->rows * n->columns) * element, row = (size_t)n->columns * sizeof(float);
  const size_t column = (size_t)n->rows * sizeof(float);
  const struct {
    const void *data;
    size_t bytes;
  } what[PLACES] = {{n->x->data, all}, {NULL, all}, {n->gamma, row}, {n->beta, row}, {NULL, column}, {NULL, column}};
  cf_guarded at[PLACES] = {{NULL, 0, 0}};
  clattn_nn_norm_args args;
  clattn_error error;
  int result = 0;
  clattn_error_init(&error);
  clattn_nn_norm_args_init(&args);
  for (int i = 0; i < PLACES; i++)
    if (!cf_guarded_make(session, what[i].data, what[i].bytes, CF_GUARD + CF_SHIFT,
                         what[i].data != NULL ? CL_MEM_READ_ONLY : CL_MEM_READ_WRITE, &at[i], reason))
      goto done;
  args.error = &error;
  args.kind = CLATTN_NN_LAYER_NORM;
  args.epsilon = n->epsilon;
  args.rows = n->rows;
  args.columns = n->columns;
  args.x.mem = cf_guarded_mem(&at[X]);
  args.y.mem = cf_guarded_mem(&at[Y]);
  args.x.dtype = args.y.dtype = dtype;
  args.gamma = cf_guarded_mem(&at[GAMMA]);
  if (n->beta != NULL)
    args.beta = cf_guarded_mem(&at[BETA]);
  args.mean = cf_guarded_mem(&at[MEAN]);
  args.inv_std = cf_guarded_mem(&at[INV]);
  clattn_status status = clattn_nn_norm(nn, session->queue, &args, 0, NULL, NULL);
  if (status == CLATTN_SUCCESS)
    status = clFinish(session->queue);
  if (status != CLATTN_SUCCESS) {
    cf_failed(reason, "norm", status, &error);
    goto done;
  }
  result = (n->out[NORM_Y] == NULL || judge_device(session, n->out[NORM_Y], &at[Y], dtype, reason)) &&
           (n->out[NORM_MEAN] == NULL || judge_device(session, n->out[NORM_MEAN], &at[MEAN], CLATTN_F32, reason)) &&
           (n->out[NORM_INV_STD] == NULL || judge_device(session, n->out[NORM_INV_STD], &at[INV], CLATTN_F32, reason));
done:
  for (int i = 0; i < PLACES; i++)
    cf_guarded_release(&at[i]);
  return result;
}

static int run_norm(const cli_session *session, clattn_nn *nn, const cf_case *c, cf_reason *reason) {
  norm_case n;
  memset(&n, 0, sizeof n);
  const int result =
      norm_open(c, &n, reason) && (nn != NULL ? norm_device(session, nn, &n, reason) : norm_host(&n, reason));
  free(n.gamma);
  free(n.beta);
  return result;
}

/* ---- RotaryEmbedding ---- */

enum { ROPE_X, ROPE_COS, ROPE_SIN, ROPE_POSITIONS, ROPE_INPUTS };

typedef struct rope_case {
  const cf_tensor *x, *out;
  cf_view view;
  int64_t dim, table_rows, table_batch_stride;
  int interleaved;
  float *table[2];    /* cos, sin */
  int32_t *positions; /* NULL: none */
} rope_case;

static float *as_floats(const cf_array *array) {
  float *out = cf_allocate(array->count, sizeof *out);
  for (int64_t i = 0; out != NULL && i < array->count; i++)
    out[i] = (float)cf_value(array, i);
  return out;
}

static int rope_tables(const cf_case *c, rope_case *r, int64_t given, cf_reason *reason) {
  const cf_tensor *table[2] = {cf_find_slot(c->input, c->inputs, ROPE_COS),
                               cf_find_slot(c->input, c->inputs, ROPE_SIN)};
  const cf_tensor *ids = cf_find_slot(c->input, c->inputs, ROPE_POSITIONS);
  const int64_t batch = r->view.shape[0], length = r->view.shape[2];
  char text[128];
  for (int i = 0; i < 2; i++) {
    if (table[i] == NULL)
      return cf_fail(reason, "cos_cache or sin_cache is missing");
    const cf_array *a = &table[i]->array;
    const int64_t half = a->rank > 0 ? a->shape[a->rank - 1] : 0;
    if (ids != NULL ? a->rank != 2 : a->rank != 3 || a->shape[0] != batch || a->shape[1] != length)
      return cf_fail(reason, "%s %s fits neither way of giving positions", table[i]->name, cf_shape_text(a, text));
    if (given > 0 ? half * 2 != given : half * 2 > r->view.shape[3] || (i > 0 && half * 2 != r->dim))
      return cf_fail(reason, "%s has %" PRId64 " angles for %" PRId64 " dimensions", table[i]->name, half,
                     given > 0 ? given : r->view.shape[3]);
    r->dim = half * 2;
    r->table_rows = ids != NULL ? a->shape[0] : length;
    r->table_batch_stride = ids != NULL ? 0 : length * half;
    r->table[i] = as_floats(a);
    if (r->table[i] == NULL)
      return cf_fail(reason, "out of memory");
  }
  if (ids == NULL)
    return 1;
  if (ids->array.count != batch * length)
    return cf_fail(reason, "position_ids %s is not (batch, length)", cf_shape_text(&ids->array, text));
  r->positions = cf_allocate(batch * length, sizeof *r->positions);
  for (int64_t i = 0; r->positions != NULL && i < batch * length; i++) {
    const double at = cf_value(&ids->array, i);
    if (!(at >= 0 && at < (double)r->table_rows))
      return cf_fail(reason, "position %.0f is outside the tables of %" PRId64 " rows", at, r->table_rows);
    r->positions[i] = (int32_t)at;
  }
  return r->positions != NULL ? 1 : cf_fail(reason, "out of memory");
}

static int rope_open(const cf_case *c, rope_case *r, cf_reason *reason) {
  static const char *const keys[] = {"interleaved", "num_heads", "rotary_embedding_dim", NULL};
  const cJSON *attributes = cJSON_GetObjectItemCaseSensitive(c->root, "attributes");
  int64_t interleaved = 0, heads = 0, dim = 0;
  int absent;
  if (!check_slots(c, ROPE_INPUTS, 1, reason) || !cf_only_keys(c->root, "attributes", keys, reason) ||
      !cf_get_integer(attributes, "interleaved", 0, 1, &interleaved, &absent, reason) ||
      !cf_get_integer(attributes, "num_heads", 0, INT32_MAX, &heads, &absent, reason) ||
      !cf_get_integer(attributes, "rotary_embedding_dim", 0, INT32_MAX, &dim, &absent, reason))
    return 0;
  r->x = cf_find_slot(c->input, c->inputs, ROPE_X);
  r->out = cf_find_slot(c->output, c->outputs, 0);
  if (r->x == NULL || r->out == NULL) {
    cf_fail(reason, "the input or the output is missing");
    return 0;
  }
  if (!is_float(r->x->array.type))
    return cf_fail(reason, "the input is %s; f32, f16 and bf16 are possible", cf_type_name(r->x->array.type));
  r->interleaved = (int)interleaved;
  return cf_view_of(&r->x->array, r->x->name, r->x->array.rank == 3 ? heads : 0, &r->view, reason) &&
         rope_tables(c, r, dim, reason);
}

static int rope_host(const rope_case *r, cf_reason *reason) {
  const int64_t *shape = r->view.shape, *stride = r->view.stride, half = r->dim / 2, count = r->x->array.count;
  double *y = cf_allocate(count, sizeof *y);
  if (y == NULL)
    return cf_fail(reason, "out of memory");
  for (int64_t i = 0; i < count; i++)
    y[i] = cf_value(&r->x->array, i);
  for (int64_t b = 0; b < shape[0]; b++)
    for (int64_t h = 0; h < shape[1]; h++)
      for (int64_t i = 0; i < shape[2]; i++)
        for (int64_t d = 0; d < half; d++) {
          const int64_t row = b * stride[0] + h * stride[1] + i * stride[2];
          const int64_t one = row + (r->interleaved ? 2 * d : d), two = row + (r->interleaved ? 2 * d + 1 : d + half);
          const int64_t position = r->positions != NULL ? r->positions[b * shape[2] + i] : i;
          const int64_t at = b * r->table_batch_stride + position * half + d;
          const double x = y[one], z = y[two], cosine = (double)r->table[0][at], sine = (double)r->table[1][at];
          y[one] = x * cosine - z * sine;
          y[two] = x * sine + z * cosine;
        }
  const int result = judge(r->out, count, y, reason);
  free(y);
  return result;
}

static int rope_device(const cli_session *session, clattn_nn *nn, const rope_case *r, cf_reason *reason) {
  enum { X, Y, COS, SIN, POSITIONS, PLACES };
  const int64_t *shape = r->view.shape, *stride = r->view.stride;
  const clattn_dtype dtype = dtype_of(r->x->array.type);
  const size_t all = (size_t)r->x->array.count * cf_type_bytes(r->x->array.type);
  const int64_t batches = r->table_batch_stride > 0 ? shape[0] : 1;
  const size_t table = (size_t)(batches * r->table_rows * r->dim / 2) * sizeof(float);
  const struct {
    const void *data;
    size_t bytes;
  } what[PLACES] = {{r->x->array.data, all},
                    {NULL, all},
                    {r->table[0], table},
                    {r->table[1], table},
                    {r->positions, r->positions != NULL ? (size_t)(shape[0] * shape[2]) * sizeof(int32_t) : 0}};
  cf_guarded at[PLACES] = {{NULL, 0, 0}};
  clattn_nn_rope_args args;
  clattn_error error;
  int result = 0;
  clattn_error_init(&error);
  clattn_nn_rope_args_init(&args);
  for (int i = 0; i < PLACES; i++)
    if (!cf_guarded_make(session, what[i].data, what[i].bytes, CF_GUARD + CF_SHIFT,
                         what[i].data != NULL ? CL_MEM_READ_ONLY : CL_MEM_READ_WRITE, &at[i], reason))
      goto done;
  args.error = &error;
  args.rope = r->interleaved ? CLATTN_ROPE_INTERLEAVED : CLATTN_ROPE_HALF;
  args.batch = shape[0];
  args.heads = shape[1];
  args.length = shape[2];
  args.dim = shape[3];
  args.rope_dim = r->dim;
  args.x_view = args.y_view = clattn_strided(dtype, stride[0], stride[1], stride[2], stride[3]);
  args.x = cf_guarded_mem(&at[X]);
  args.y = cf_guarded_mem(&at[Y]);
  args.cos = cf_guarded_mem(&at[COS]);
  args.sin = cf_guarded_mem(&at[SIN]);
  args.table_positions = r->table_rows;
  args.table_batch_stride = r->table_batch_stride;
  if (r->positions != NULL)
    args.positions = cf_guarded_mem(&at[POSITIONS]);
  clattn_status status = clattn_nn_rope(nn, session->queue, &args, 0, NULL, NULL);
  if (status == CLATTN_SUCCESS)
    status = clFinish(session->queue);
  if (status != CLATTN_SUCCESS)
    cf_failed(reason, "rope", status, &error);
  else
    result = judge_device(session, r->out, &at[Y], dtype, reason);
done:
  for (int i = 0; i < PLACES; i++)
    cf_guarded_release(&at[i]);
  return result;
}

static int run_rope(const cli_session *session, clattn_nn *nn, const cf_case *c, cf_reason *reason) {
  rope_case r;
  memset(&r, 0, sizeof r);
  const int result =
      rope_open(c, &r, reason) && (nn != NULL ? rope_device(session, nn, &r, reason) : rope_host(&r, reason));
  free(r.table[0]);
  free(r.table[1]);
  free(r.positions);
  return result;
}

int cf_run_nn(const cli_session *session, clattn_nn *nn, const cf_case *c, cf_reason *reason) {
  return strcmp(c->op, "RotaryEmbedding") == 0 ? run_rope(session, nn, c, reason) : run_norm(session, nn, c, reason);
}
