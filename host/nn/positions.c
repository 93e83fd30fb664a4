/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of position embeddings, on the host. */
#include <math.h>
#include <string.h>

#include "nn.h"

#define TWO_PI 6.283185307179586476925

static const double default_base = 10000, default_fast = 32, default_slow = 1;

static double or_default(double value, double by_default) {
  return value != 0 ? value : by_default;
}

clattn_status clattn_nn_sinusoid(int64_t positions, int64_t columns, double base, int32_t order, float *table) {
  const int64_t sines = columns - columns / 2;
  if (positions < 0 || columns < 1)
    return CLATTN_ERROR_SHAPE;
  if (order != CLATTN_NN_SINUSOID_INTERLEAVED && order != CLATTN_NN_SINUSOID_HALVES)
    return CLATTN_ERROR_ENUM;
  base = or_default(base, default_base);
  if (!(base > 0) || isinf(base))
    return CLATTN_ERROR_VALUE;
  if (table == NULL)
    return CLATTN_ERROR_NULL_POINTER;
  for (int64_t i = 0; i < sines; ++i) {
    const double frequency = pow(base, -2.0 * (double)i / (double)columns);
    const int64_t sine = order == CLATTN_NN_SINUSOID_HALVES ? i : 2 * i;
    const int64_t cosine = order == CLATTN_NN_SINUSOID_HALVES ? sines + i : 2 * i + 1;
    for (int64_t p = 0; p < positions; ++p) {
      const double angle = (double)p * frequency;
      table[p * columns + sine] = (float)sin(angle);
      if (cosine < columns)
        table[p * columns + cosine] = (float)cos(angle);
    }
  }
  return CLATTN_SUCCESS;
}

void clattn_nn_rope_config_init(clattn_nn_rope_config *config) {
  if (config == NULL)
    return;
  memset(config, 0, sizeof(*config));
  config->struct_size = sizeof(*config);
}

/* A config with its defaults filled in, and YaRN's ramp: dimensions up to low are kept, those from high on divided by
 * factor. */
typedef struct rope {
  clattn_nn_rope_config config;
  double low, high;
} rope;

/* YaRN, 3.2: the (fractional) dimension that turns `turns` times over the training's positions,
 *     d(turns) = dim * ln(original_positions / (2 pi turns)) / (2 ln base). */
static double turning(const clattn_nn_rope_config *c, double turns) {
  return (double)c->dim * log((double)c->original_positions / (turns * TWO_PI)) / (2 * log(c->base));
}

/* The ramp runs from floor(d(beta_fast)) to ceil(d(beta_slow)), both kept in 0 to dim - 1, and is never flat, as in the
 * authors' program. */
static void find_ramp(rope *r) {
  const double last = (double)(r->config.dim - 1);
  r->low = fmax(floor(turning(&r->config, r->config.beta_fast)), 0);
  r->high = fmin(ceil(turning(&r->config, r->config.beta_slow)), last);
  if (r->low == r->high)
    r->high += 0.001;
}

static clattn_status check_yarn(const clattn_nn_rope_config *c) {
  if (c->original_positions < 1)
    return CLATTN_ERROR_SHAPE;
  /* ln base is divided by; fast dimensions lie before slow ones */
  if (!(c->base > 1) || !(c->beta_slow > 0) || !(c->beta_fast > c->beta_slow) || isinf(c->beta_fast))
    return CLATTN_ERROR_VALUE;
  return c->attention_factor > 0 && isfinite(c->attention_factor) ? CLATTN_SUCCESS : CLATTN_ERROR_VALUE;
}

static clattn_status check_config(const clattn_nn_rope_config *given, rope *r) {
  clattn_nn_rope_config *c = &r->config;
  if (given == NULL)
    return CLATTN_ERROR_NULL_POINTER;
  if (given->struct_size != sizeof(*given))
    return CLATTN_ERROR_STRUCT_SIZE;
  const clattn_status status = nn_check_struct("config", given->struct_size, sizeof(*given), given->reserved,
                                               sizeof(given->reserved) / sizeof(given->reserved[0]), NULL);
  if (status != CLATTN_SUCCESS || given->reserved0 != 0)
    return CLATTN_ERROR_RESERVED;
  *c = *given;
  if (c->scaling < CLATTN_NN_ROPE_PLAIN || c->scaling > CLATTN_NN_ROPE_YARN)
    return CLATTN_ERROR_ENUM;
  if (c->positions < 0 || c->dim < 2 || c->dim % 2 != 0)
    return CLATTN_ERROR_SHAPE;
  if (c->scaling == CLATTN_NN_ROPE_NTK && c->dim == 2) /* dim / (dim - 2) */
    return CLATTN_ERROR_SHAPE;
  c->base = or_default(c->base, default_base);
  c->factor = or_default(c->factor, 1);
  c->beta_fast = or_default(c->beta_fast, default_fast);
  c->beta_slow = or_default(c->beta_slow, default_slow);
  if (!(c->base > 0) || isinf(c->base) || !(c->factor >= 1) || isinf(c->factor))
    return CLATTN_ERROR_VALUE;
  c->attention_factor = or_default(c->attention_factor, 0.1 * log(c->factor) + 1);
  return c->scaling == CLATTN_NN_ROPE_YARN ? check_yarn(c) : CLATTN_SUCCESS;
}

/* f_i = base^(-2i / dim), scaled. */
static double frequency_of(const rope *r, int64_t i) {
  const clattn_nn_rope_config *c = &r->config;
  const double dim = (double)c->dim, exponent = -2.0 * (double)i / dim;
  const double plain = pow(c->base, exponent);
  if (c->scaling == CLATTN_NN_ROPE_LINEAR)
    return plain / c->factor;
  if (c->scaling == CLATTN_NN_ROPE_NTK)
    return pow(c->base * pow(c->factor, dim / (dim - 2)), exponent);
  if (c->scaling == CLATTN_NN_ROPE_PLAIN)
    return plain;
  const double ramp = fmin(fmax(((double)i - r->low) / (r->high - r->low), 0), 1);
  return plain / c->factor * ramp + plain * (1 - ramp);
}

clattn_status clattn_nn_rope_tables(const clattn_nn_rope_config *config, float *cosines, float *sines) {
  rope r;
  const clattn_status status = check_config(config, &r);
  if (status != CLATTN_SUCCESS)
    return status;
  if (cosines == NULL || sines == NULL)
    return CLATTN_ERROR_NULL_POINTER;
  const int64_t pairs = r.config.dim / 2;
  const double size = r.config.scaling == CLATTN_NN_ROPE_YARN ? r.config.attention_factor : 1;
  r.low = r.high = 0;
  if (r.config.scaling == CLATTN_NN_ROPE_YARN)
    find_ramp(&r);
  for (int64_t i = 0; i < pairs; ++i) {
    const double frequency = frequency_of(&r, i);
    for (int64_t row = 0; row < r.config.positions; ++row) {
      const double angle = ((double)r.config.first + (double)row) * frequency;
      cosines[row * pairs + i] = (float)(cos(angle) * size);
      sines[row * pairs + i] = (float)(sin(angle) * size);
    }
  }
  return CLATTN_SUCCESS;
}
