/* SPDX-License-Identifier: Apache-2.0 */
#include "nn_ref.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- storage ----------------------------------------------------------------------------------------------------- */

/* Binary digits of a normal number, the exponent of the smallest one, and the largest number. */
typedef struct format {
  int digits, least;
  double largest;
} format;

static format format_of(clattn_dtype dtype) {
  static const format f32 = {24, -126, 3.4028234663852886e38}, f16 = {11, -14, 65504}, bf16 = {8, -126, 0x1.fep127};
  return dtype == CLATTN_F16 ? f16 : dtype == CLATTN_BF16 ? bf16 : f32;
}

/* What numbers near x are multiples of. */
static double quantum(const format *f, double x) {
  const int exponent = x == 0 ? f->least : ilogb(x);
  return ldexp(1, (exponent > f->least ? exponent : f->least) - (f->digits - 1));
}

size_t nn_ref_bytes(clattn_dtype dtype) {
  return dtype == CLATTN_F32 ? 4 : 2;
}

double nn_ref_round(clattn_dtype dtype, double x) {
  const format f = format_of(dtype);
  if (isnan(x) || isinf(x))
    return x;
  const double unit = quantum(&f, x), rounded = nearbyint(x / unit) * unit; /* to even, by default */
  return fabs(rounded) > f.largest ? copysign(INFINITY, x) : copysign(rounded, x);
}

double nn_ref_load(clattn_dtype dtype, const void *base, int64_t index) {
  uint16_t bits = 0;
  float x = 0;
  if (dtype == CLATTN_F32) {
    memcpy(&x, (const char *)base + index * 4, sizeof(x));
    return (double)x;
  }
  memcpy(&bits, (const char *)base + index * 2, sizeof(bits));
  if (dtype == CLATTN_BF16) {
    const uint32_t word = (uint32_t)bits << 16;
    memcpy(&x, &word, sizeof(x));
    return (double)x;
  }
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double sign = bits >> 15 ? -1 : 1;
  if (exponent == 31)
    return fraction != 0 ? (double)NAN : sign * (double)INFINITY;
  return sign * (exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25));
}

/* x is a number of the type. */
static uint16_t f16_bits(double x) {
  const unsigned sign = signbit(x) ? 0x8000u : 0u;
  const double size = fabs(x);
  if (isnan(x))
    return 0x7e00;
  if (isinf(x))
    return (uint16_t)(sign | 0x7c00u);
  if (size < 0x1p-14)
    return (uint16_t)(sign | (unsigned)ldexp(size, 24));
  const int exponent = ilogb(size);
  return (uint16_t)(sign | (unsigned)(exponent + 15) << 10 | ((unsigned)ldexp(size, 10 - exponent) & 1023u));
}

void nn_ref_store(clattn_dtype dtype, void *base, int64_t index, double x) {
  const double rounded = nn_ref_round(dtype, x);
  const float narrow = (float)rounded;
  uint16_t bits = f16_bits(rounded);
  if (dtype == CLATTN_F32) {
    memcpy((char *)base + index * 4, &narrow, sizeof(narrow));
    return;
  }
  if (dtype == CLATTN_BF16) {
    uint32_t word = 0;
    memcpy(&word, &narrow, sizeof(word));
    bits = (uint16_t)(word >> 16);
  }
  memcpy((char *)base + index * 2, &bits, sizeof(bits));
}

/* Memory for `count` things; without, no test can go on. */
static void *memory(int64_t count, size_t size) {
  void *at = calloc(count > 0 ? (size_t)count : 1, size);
  if (at == NULL) {
    fprintf(stderr, "nn_ref: no memory for %lld times %zu bytes\n", (long long)count, size);
    exit(1);
  }
  return at;
}

double *nn_ref_numbers(int64_t count) {
  return memory(count, sizeof(double));
}

double *nn_ref_widen(clattn_dtype dtype, const void *base, int64_t rows, int64_t columns, int64_t stride) {
  double *numbers = nn_ref_numbers(rows * columns);
  const int64_t step = stride != 0 ? stride : columns;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      numbers[r * columns + c] = nn_ref_load(dtype, base, r * step + c);
  return numbers;
}

static void round_all(clattn_dtype dtype, double *numbers, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    numbers[i] = nn_ref_round(dtype, numbers[i]);
}

/* ---- tolerances -------------------------------------------------------------------------------------------------- */

double nn_ref_rounding(clattn_dtype dtype, double x) {
  const format f = format_of(dtype);
  return isnan(x) || isinf(x) ? 0 : quantum(&f, x) / 2;
}

double nn_ref_allowed(clattn_dtype dtype, double want, double size, double roundings) {
  return roundings * 0x1p-24 * size + nn_ref_rounding(dtype, want);
}

int nn_ref_near(double got, double want, double allowed) {
  if (isnan(want) || isnan(got))
    return isnan(want) && isnan(got);
  return got == want || (isfinite(got) && isfinite(want) && fabs(got - want) <= allowed);
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

double nn_ref_activate(clattn_nn_activation activation, double x) {
  const double root_half = 0.70710678118654752440, root_2_over_pi = 0.79788456080286535588;
  if (isinf(x) && x < 0 && activation != CLATTN_NN_NONE) /* the limit, where the formulas say inf * 0 */
    return 0;
  switch (activation) {
  case CLATTN_NN_RELU:
    return x > 0 || isnan(x) ? x : 0;
  case CLATTN_NN_GELU:
    return x / 2 * erfc(-x * root_half);
  case CLATTN_NN_GELU_TANH:
    return x / 2 * (1 + tanh(root_2_over_pi * (x + 0.044715 * x * x * x)));
  case CLATTN_NN_SILU:
    return x / (1 + exp(-x));
  default:
    return x;
  }
}

void nn_ref_linear(const nn_ref_weight *weight, clattn_nn_activation activation, int64_t rows, const double *x,
                   const double *factor, const double *residual, double *y, double *size) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t n = 0; n < weight->out; ++n) {
      const int64_t at = r * weight->out + n;
      const double bias = weight->b != NULL ? weight->b[n] : 0;
      double sum = bias, sizes = fabs(bias);
      for (int64_t i = 0; i < weight->in; ++i) {
        const double product = x[r * weight->in + i] * weight->w[n * weight->in + i];
        sum += product;
        sizes += fabs(product);
      }
      const double by = factor != NULL ? factor[at] : 1, plus = residual != NULL ? residual[at] : 0;
      const double activated = nn_ref_activate(activation, sum);
      y[at] = activated * by + plus;
      if (size != NULL)
        size[at] = fabs(plus) + fabs(by) * (fabs(activated) + sizes);
    }
}

/* One row, t in place of y. */
static void norm_row(clattn_nn_norm_kind kind, double epsilon, int64_t columns, const double *gamma, const double *beta,
                     double *y, double *mean, double *inv_std) {
  double average = 0, squares = 0;
  for (int64_t c = 0; c < columns && kind == CLATTN_NN_LAYER_NORM; ++c)
    average += y[c];
  average /= (double)columns;
  for (int64_t c = 0; c < columns; ++c)
    squares += (y[c] - average) * (y[c] - average);
  const double inverse = 1 / sqrt(squares / (double)columns + epsilon);
  for (int64_t c = 0; c < columns; ++c)
    y[c] = (y[c] - average) * inverse * (gamma != NULL ? gamma[c] : 1) + (beta != NULL ? beta[c] : 0);
  if (mean != NULL)
    *mean = average;
  if (inv_std != NULL)
    *inv_std = inverse;
}

void nn_ref_norm(clattn_nn_norm_kind kind, double epsilon, int64_t rows, int64_t columns, const double *x,
                 const double *residual, const double *gamma, const double *beta, double *y, double *sum, double *mean,
                 double *inv_std) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = r * columns; c < (r + 1) * columns; ++c) {
      y[c] = residual != NULL ? nn_ref_round(CLATTN_F32, x[c] + residual[c]) : x[c];
      if (sum != NULL)
        sum[c] = y[c];
    }
    norm_row(kind, epsilon, columns, gamma, beta, y + r * columns, mean != NULL ? mean + r : NULL,
             inv_std != NULL ? inv_std + r : NULL);
  }
}

static int64_t clamped(int64_t x, int64_t least, int64_t most) {
  return x < least ? least : x > most ? most : x;
}

/* One row of `pairs` pairs. */
static void rotate(clattn_rope rope, int64_t pairs, const double *cosines, const double *sines, double *row) {
  for (int64_t n = 0; n < pairs; ++n) {
    double *u = &row[rope == CLATTN_ROPE_HALF ? n : 2 * n];
    double *v = &row[rope == CLATTN_ROPE_HALF ? pairs + n : 2 * n + 1];
    const double turned = *u * cosines[n] - *v * sines[n];
    *v = *v * cosines[n] + *u * sines[n];
    *u = turned;
  }
}

void nn_ref_rope(clattn_rope rope, int64_t batch, int64_t heads, int64_t length, int64_t dim, int64_t rope_dim,
                 const double *x, const double *cosines, const double *sines, int64_t table_positions,
                 int64_t table_batch_stride, const int32_t *positions, double *y) {
  memmove(y, x, (size_t)(batch * heads * length * dim) * sizeof(*y));
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < length; ++i) {
        const int64_t position = clamped(positions != NULL ? positions[b * length + i] : i, 0, table_positions - 1);
        const int64_t line = b * table_batch_stride + position * (rope_dim / 2);
        rotate(rope, rope_dim / 2, cosines + line, sines + line, y + ((b * heads + h) * length + i) * dim);
      }
}

static int64_t id_of(const nn_ref_table *table, int64_t row) {
  if (table->ids != NULL)
    return clamped(table->ids[row], 0, table->rows - 1);
  return table->first + (table->period > 0 ? row % table->period : 0);
}

void nn_ref_embed(int64_t rows, int64_t columns, double scale, const nn_ref_table table[3], double *y) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      y[r * columns + c] = 0;
      for (int t = 0; t < 3; ++t)
        if (table[t].values != NULL)
          y[r * columns + c] += table[t].values[id_of(&table[t], r) * columns + c] * (t == 0 ? scale : 1);
    }
}

void nn_ref_pool(clattn_nn_pooling pooling, int normalise, int64_t batch, int64_t length, int64_t columns,
                 const double *x, const int32_t *lengths, double *y) {
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t there = lengths != NULL ? clamped(lengths[b], 0, length) : length;
    const int64_t rows = pooling == CLATTN_NN_POOL_FIRST && there > 1 ? 1 : there;
    double squares = 0;
    for (int64_t c = 0; c < columns; ++c) {
      double sum = 0;
      for (int64_t i = 0; i < rows; ++i)
        sum += x[(b * length + i) * columns + c];
      y[b * columns + c] = rows > 0 ? sum / (double)rows : 0;
      squares += y[b * columns + c] * y[b * columns + c];
    }
    const double size = sqrt(squares), divisor = size < 1e-12 ? 1e-12 : size;
    for (int64_t c = 0; c < columns && normalise; ++c)
      y[b * columns + c] /= divisor;
  }
}

/* ---- attention layers -------------------------------------------------------------------------------------------- */

/* Outputs from `first` on as a weight of their own. */
static nn_ref_weight outputs(const nn_ref_weight *weight, int64_t first, int64_t count) {
  const nn_ref_weight part = {weight->in, count, weight->w + first * weight->in,
                              weight->b != NULL ? weight->b + first : NULL};
  return part;
}

/* x projected, with QK-norm where gamma is given, in memory of the type: (rows, heads, dim). */
static void *project(const nn_ref_weight *weight, int64_t rows, int64_t dim, const double *x, const double *gamma,
                     double epsilon, clattn_dtype dtype) {
  const int64_t count = rows * weight->out;
  double *numbers = nn_ref_numbers(count);
  void *stored = memory(count, nn_ref_bytes(dtype));
  nn_ref_linear(weight, CLATTN_NN_NONE, rows, x, NULL, NULL, numbers, NULL);
  round_all(dtype, numbers, count);
  if (gamma != NULL)
    nn_ref_norm(CLATTN_NN_RMS_NORM, epsilon, count / dim, dim, numbers, NULL, gamma, NULL, numbers, NULL, NULL, NULL);
  for (int64_t i = 0; i < count; ++i)
    nn_ref_store(dtype, stored, i, numbers[i]);
  free(numbers);
  return stored;
}

/* Sizes with their defaults, and contiguous (batch, row, head, element) tensors. */
static clattn_problem settle(const clattn_problem *given) {
  clattn_problem p = *given;
  p.batch = p.batch != 0 ? p.batch : 1;
  p.q_heads = p.q_heads != 0 ? p.q_heads : 1;
  p.kv_heads = p.kv_heads != 0 ? p.kv_heads : p.q_heads;
  p.v_dim = p.v_dim != 0 ? p.v_dim : p.qk_dim;
  p.q.layout = p.k.layout = p.v.layout = CLATTN_LAYOUT_BSHD;
  return p;
}

/* (batch, head, row, element) to (batch, row, head, element), rounded. */
static double *by_rows(const clattn_problem *p, const double *o) {
  double *rows = nn_ref_numbers(p->batch * p->q_len * p->q_heads * p->v_dim);
  for (int64_t b = 0; b < p->batch; ++b)
    for (int64_t h = 0; h < p->q_heads; ++h)
      for (int64_t i = 0; i < p->q_len; ++i)
        for (int64_t e = 0; e < p->v_dim; ++e)
          rows[((b * p->q_len + i) * p->q_heads + h) * p->v_dim + e] =
              nn_ref_round(p->o.dtype, o[((b * p->q_heads + h) * p->q_len + i) * p->v_dim + e]);
  return rows;
}

clattn_status nn_ref_attention(const clattn_problem *problem, const clattn_ref_args *args, const nn_ref_heads *heads,
                               const double *x, const double *context, const double *residual, double *y) {
  const clattn_problem p = settle(problem);
  const int64_t q_out = p.q_heads * p.qk_dim, k_out = p.kv_heads * p.qk_dim, v_out = p.kv_heads * p.v_dim;
  const int64_t q_rows = p.batch * p.q_len, k_rows = p.batch * p.k_len;
  const int fused = heads->qkv.w != NULL, pair = heads->kv.w != NULL;
  const nn_ref_weight q = fused ? outputs(&heads->qkv, 0, q_out) : heads->q;
  const nn_ref_weight k = fused ? outputs(&heads->qkv, q_out, k_out) : pair ? outputs(&heads->kv, 0, k_out) : heads->k;
  const nn_ref_weight v = fused  ? outputs(&heads->qkv, q_out + k_out, v_out)
                          : pair ? outputs(&heads->kv, k_out, v_out)
                                 : heads->v;
  const double *keys = context != NULL ? context : x;
  clattn_ref_args call;
  clattn_ref_args_init(&call);
  if (args != NULL)
    call = *args;
  void *at_q = project(&q, q_rows, p.qk_dim, x, heads->q_gamma, heads->qk_epsilon, p.q.dtype);
  void *at_k = project(&k, k_rows, p.qk_dim, keys, heads->k_gamma, heads->qk_epsilon, p.k.dtype);
  void *at_v = project(&v, k_rows, p.v_dim, keys, NULL, 0, p.v.dtype);
  double *o = call.o != NULL ? NULL : nn_ref_numbers(q_rows * p.q_heads * p.v_dim);
  call.q = at_q;
  call.k = at_k;
  call.v = at_v;
  call.o = call.o != NULL ? call.o : o;
  const clattn_status status = clattn_ref_attention(&p, &call);
  if (status == CLATTN_SUCCESS) {
    double *rows = by_rows(&p, call.o);
    nn_ref_linear(&heads->o, CLATTN_NN_NONE, q_rows, rows, NULL, residual, y, NULL);
    free(rows);
  }
  free(at_q);
  free(at_k);
  free(at_v);
  free(o);
  return status;
}

/* States as f32, projected (weight NULL or without w: as they are). */
static float *compared(const nn_ref_weight *weight, int64_t rows, int64_t dim, const double *states) {
  if (weight != NULL && weight->w != NULL)
    return project(weight, rows, weight->out, states, NULL, 0, CLATTN_F32);
  float *copy = memory(rows * dim, sizeof(float));
  for (int64_t i = 0; i < rows * dim; ++i)
    copy[i] = (float)states[i];
  return copy;
}

clattn_status nn_ref_encdec_attention(const nn_ref_encdec *e, double *contexts, double *weights) {
  const int64_t dim = e->q.w != NULL ? e->q.out : e->source_dim;
  clattn_problem p;
  clattn_ref_args args;
  clattn_problem_init(&p);
  p.batch = e->batch;
  p.q_len = e->target_len;
  p.k_len = e->source_len;
  p.qk_dim = dim;
  p.v_dim = e->source_dim;
  p.similarity = e->similarity;
  p.scale_mode = CLATTN_SCALE_VALUE;
  p.scale = (float)e->scale;
  p.k_length_mode = e->source_lengths != NULL ? CLATTN_LENGTH_PER_BATCH : CLATTN_LENGTH_FULL;
  p.stage = weights != NULL ? CLATTN_STAGE_WEIGHTS : CLATTN_STAGE_RAW;
  p.outputs = CLATTN_OUT_O | (weights != NULL ? CLATTN_OUT_SCORES : 0);
  clattn_ref_args_init(&args);
  float *q = compared(&e->q, e->batch * e->target_len, e->target_dim, e->target);
  float *k = compared(&e->k, e->batch * e->source_len, e->source_dim, e->source);
  float *v = compared(NULL, e->batch * e->source_len, e->source_dim, e->source);
  float *add_w = memory(dim, sizeof(*add_w));
  for (int64_t d = 0; d < dim && e->add_w != NULL; ++d)
    add_w[d] = (float)e->add_w[d];
  args.q = q;
  args.k = k;
  args.v = v;
  args.add_w = e->similarity == CLATTN_ADDITIVE ? add_w : NULL;
  args.k_lengths = e->source_lengths;
  args.o = contexts;
  args.scores = weights;
  const clattn_status status = clattn_ref_attention(&p, &args);
  free(q);
  free(k);
  free(v);
  free(add_w);
  return status;
}

/* ---- feed-forward and blocks ------------------------------------------------------------------------------------- */

void nn_ref_ffn(const nn_ref_weight *up, const nn_ref_weight *gate, const nn_ref_weight *down,
                clattn_nn_activation activation, clattn_dtype hidden, int64_t rows, const double *x,
                const double *residual, double *y) {
  const int64_t count = rows * up->out;
  double *inner = nn_ref_numbers(count), *factor = nn_ref_numbers(count);
  const int gated = gate != NULL && gate->w != NULL;
  if (gated)
    nn_ref_linear(gate, CLATTN_NN_NONE, rows, x, NULL, NULL, factor, NULL);
  round_all(hidden, factor, count);
  nn_ref_linear(up, activation, rows, x, gated ? factor : NULL, NULL, inner, NULL);
  round_all(hidden, inner, count);
  nn_ref_linear(down, CLATTN_NN_NONE, rows, inner, NULL, residual, y, NULL);
  free(inner);
  free(factor);
}

enum { SELF, CROSS, FORWARD, STEPS };

/* y = f(x) + residual of one step of the block. */
static clattn_status block_step(const nn_ref_block *b, int step, int64_t rows, const double *x, const double *residual,
                                double *y) {
  if (step == SELF)
    return nn_ref_attention(b->self_problem, b->self_args, &b->self_heads, x, NULL, residual, y);
  if (step == CROSS)
    return nn_ref_attention(b->cross_problem, b->cross_args, &b->cross_heads, x, b->context, residual, y);
  nn_ref_ffn(&b->up, &b->gate, &b->down, b->activation, b->hidden, rows, x, residual, y);
  return CLATTN_SUCCESS;
}

clattn_status nn_ref_block_run(const nn_ref_block *b, double *y) {
  const int64_t batch = b->self_problem->batch != 0 ? b->self_problem->batch : 1;
  const int64_t rows = batch * b->self_problem->q_len, columns = b->down.out, count = rows * columns;
  double *state = nn_ref_numbers(count), *normed = nn_ref_numbers(count);
  clattn_status status = CLATTN_SUCCESS;
  memcpy(state, b->x, (size_t)count * sizeof(*state));
  for (int step = SELF; step < STEPS && status == CLATTN_SUCCESS; ++step) {
    const int pre = b->order == CLATTN_NN_PRE_NORM;
    if (step == CROSS && b->cross_problem == NULL)
      continue;
    if (pre) {
      nn_ref_norm(b->norm, b->epsilon, rows, columns, state, NULL, b->gamma[step], b->beta[step], normed, NULL, NULL,
                  NULL);
      round_all(b->hidden, normed, count);
    }
    status = block_step(b, step, rows, pre ? normed : state, state, y);
    if (!pre) {
      round_all(b->hidden, y, count);
      nn_ref_norm(b->norm, b->epsilon, rows, columns, y, NULL, b->gamma[step], b->beta[step], y, NULL, NULL, NULL);
    }
    memcpy(state, y, (size_t)count * sizeof(*state));
    round_all(b->hidden, state, count);
  }
  free(state);
  free(normed);
  return status;
}
