/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of position embeddings, made on the host: against the formulas, evaluated in other ways. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clattn_nn.h"

#define PI 3.14159265358979323846264338327950288L
enum { MOST = 40000 };
static float cosines[MOST], sines[MOST], table[MOST];

/* base^(-2i / n) as the i-th power of a root, and the sine and cosine of p times an angle by p rotations. */
static long double frequency(double base, int64_t n, int64_t i) {
  const long double root = expl(-2 * logl(base) / (long double)n);
  long double f = 1;
  for (int64_t k = 0; k < i; k++)
    f *= root;
  return f;
}

static void turn(long double angle, int64_t times, long double *c, long double *s) {
  const long double step_c = cosl(angle), step_s = sinl(angle);
  *c = 1;
  *s = 0;
  for (int64_t k = 0; k < times; k++) {
    const long double next = *c * step_c - *s * step_s;
    *s = *s * step_c + *c * step_s;
    *c = next;
  }
}

/* A table's number: a rounding to f32 of a value of at most `size`, and what the double arithmetic loses. */
static void is_near(float got, long double want, long double size) {
  if (!(fabsl((long double)got - want) <= 0x1p-24L * size))
    fail_msg("%.9g, not %.9g", (double)got, (double)want);
}

/* ---- sinusoids --------------------------------------------------------------------------------------------------- */

static void sinusoids(void **state) {
  (void)state;
  static const int64_t columns[] = {1, 2, 3, 8, 31, 64};
  for (size_t n = 0; n < sizeof columns / sizeof columns[0]; n++)
    for (int32_t order = CLATTN_NN_SINUSOID_INTERLEAVED; order <= CLATTN_NN_SINUSOID_HALVES; order++)
      for (int bases = 0; bases < 2; bases++) {
        const int64_t d = columns[n], all_sines = (d + 1) / 2, positions = 50;
        memset(table, 0xff, sizeof table);
        assert_int_equal(clattn_nn_sinusoid(positions, d, bases == 0 ? 0 : 500, order, table), CLATTN_SUCCESS);
        for (int64_t p = 0; p < positions; p++)
          for (int64_t column = 0; column < d; column++) {
            const int halves = order == CLATTN_NN_SINUSOID_HALVES;
            const int is_sine = halves ? column < all_sines : column % 2 == 0;
            const int64_t i = !halves ? column / 2 : is_sine ? column : column - all_sines;
            long double c = 0, s = 0;
            turn(frequency(bases == 0 ? 10000 : 500, d, i), p, &c, &s);
            is_near(table[p * d + column], is_sine ? s : c, 1);
          }
        assert_true(isnan(table[positions * d]));
      }
}

static void known_sinusoids(void **state) {
  (void)state;
  static const float want[] = {0, 1, 0, 1, 0.841470985f, 0.540302306f, 0.00999983333f, 0.99995f};
  assert_int_equal(clattn_nn_sinusoid(2, 4, 0, CLATTN_NN_SINUSOID_INTERLEAVED, table), CLATTN_SUCCESS);
  for (int n = 0; n < 8; n++)
    is_near(table[n], (long double)want[n], 2);
}

static void refused_sinusoids(void **state) {
  (void)state;
  assert_int_equal(clattn_nn_sinusoid(2, 4, 0, 0, NULL), CLATTN_ERROR_NULL_POINTER);
  assert_int_equal(clattn_nn_sinusoid(-1, 4, 0, 0, table), CLATTN_ERROR_SHAPE);
  assert_int_equal(clattn_nn_sinusoid(2, 0, 0, 0, table), CLATTN_ERROR_SHAPE);
  assert_int_equal(clattn_nn_sinusoid(2, 4, 0, 2, table), CLATTN_ERROR_ENUM);
  assert_int_equal(clattn_nn_sinusoid(2, 4, 0, -1, table), CLATTN_ERROR_ENUM);
  assert_int_equal(clattn_nn_sinusoid(2, 4, -1, 0, table), CLATTN_ERROR_VALUE);
  assert_int_equal(clattn_nn_sinusoid(2, 4, (double)NAN, 0, table), CLATTN_ERROR_VALUE);
  assert_int_equal(clattn_nn_sinusoid(2, 4, (double)INFINITY, 0, table), CLATTN_ERROR_VALUE);
  assert_int_equal(clattn_nn_sinusoid(0, 4, 0, 0, table), CLATTN_SUCCESS);
}

/* ---- rotary embedding -------------------------------------------------------------------------------------------- */

static clattn_nn_rope_config config_of(int32_t scaling, int64_t positions, int64_t dim) {
  clattn_nn_rope_config config;
  clattn_nn_rope_config_init(&config);
  config.scaling = scaling;
  config.positions = positions;
  config.dim = dim;
  return config;
}

static void make(const clattn_nn_rope_config *config) {
  memset(cosines, 0xff, sizeof cosines);
  memset(sines, 0xff, sizeof sines);
  assert_int_equal(clattn_nn_rope_tables(config, cosines, sines), CLATTN_SUCCESS);
  assert_true(isnan(cosines[config->positions * config->dim / 2]));
  assert_true(isnan(sines[config->positions * config->dim / 2]));
}

/* Whether the tables turn by these frequencies, multiplied by `size`. */
static void check_tables(const clattn_nn_rope_config *config, const long double *frequencies, long double size) {
  const int64_t pairs = config->dim / 2;
  for (int64_t row = 0; row < config->positions; row++)
    for (int64_t i = 0; i < pairs; i++) {
      long double c = 0, s = 0;
      turn(frequencies[i], config->first + row, &c, &s);
      is_near(cosines[row * pairs + i], c * size, size);
      is_near(sines[row * pairs + i], s * size, size);
    }
}

static void plain_and_linear(void **state) {
  (void)state;
  static const int64_t dims[] = {2, 6, 64, 128};
  for (size_t n = 0; n < sizeof dims / sizeof dims[0]; n++)
    for (int linear = 0; linear < 2; linear++) {
      long double frequencies[64];
      clattn_nn_rope_config config = config_of(linear ? CLATTN_NN_ROPE_LINEAR : CLATTN_NN_ROPE_PLAIN, 40, dims[n]);
      config.base = n % 2 == 0 ? 0 : 500000;
      config.first = n == 1 ? 1000 : 0;
      config.factor = linear ? 2.5 : 0;
      for (int64_t i = 0; i < dims[n] / 2; i++)
        frequencies[i] = frequency(n % 2 == 0 ? 10000 : 500000, dims[n], i) / (linear ? 2.5L : 1);
      make(&config);
      check_tables(&config, frequencies, 1);
    }
}

/* The base is chosen so that the fastest pair turns as before and the slowest 1 / factor as fast, the others in
 * geometric sequence between. */
static void ntk(void **state) {
  (void)state;
  enum { DIM = 32, PAIRS = DIM / 2 };
  long double frequencies[PAIRS];
  clattn_nn_rope_config config = config_of(CLATTN_NN_ROPE_NTK, 60, DIM);
  config.factor = 8;
  const long double slowest = frequency(10000, DIM, PAIRS - 1) / 8;
  for (int i = 0; i < PAIRS; i++)
    frequencies[i] = powl(slowest, (long double)i / (PAIRS - 1));
  make(&config);
  check_tables(&config, frequencies, 1);
}

/* By what a pair does instead of logarithms: it turns `f * original / 2 pi` times over the training's positions. */
static long double turns_of(double base, int64_t dim, int64_t original, long double i) {
  return powl(base, -2 * i / (long double)dim) * (long double)original / (2 * PI);
}

/* The last pair that turns at least `turns` times (0 if none does), and the first that turns at most as often. */
static int64_t last_fast(double base, int64_t dim, int64_t original, double turns) {
  int64_t i = 0;
  while (turns_of(base, dim, original, (long double)(i + 1)) >= (long double)turns)
    i++;
  return i;
}
static int64_t first_slow(double base, int64_t dim, int64_t original, double turns) {
  int64_t i = 0;
  while (turns_of(base, dim, original, (long double)i) > (long double)turns)
    i++;
  return i < dim - 1 ? i : dim - 1;
}

static void check_yarn(const clattn_nn_rope_config *config, double base, double fast, double slow, long double size) {
  long double frequencies[64];
  const int64_t low = last_fast(base, config->dim, config->original_positions, fast);
  const int64_t high = first_slow(base, config->dim, config->original_positions, slow);
  const long double width = high > low ? (long double)(high - low) : 0.001L;
  for (int64_t i = 0; i < config->dim / 2; i++) {
    const long double plain = frequency(base, config->dim, i), along = (long double)(i - low) / width;
    const long double slowed = along < 0 ? 0 : along > 1 ? 1 : along;
    frequencies[i] = plain + (plain / (long double)config->factor - plain) * slowed;
  }
  make(config);
  check_tables(config, frequencies, size);
}

static void yarn(void **state) {
  (void)state;
  /* Llama 2 stretched from 4096 positions 16 times: the ramp runs from pair 20 to pair 46. */
  clattn_nn_rope_config config = config_of(CLATTN_NN_ROPE_YARN, 100, 128);
  config.factor = 16;
  config.original_positions = 4096;
  assert_int_equal(last_fast(10000, 128, 4096, 32), 20);
  assert_int_equal(first_slow(10000, 128, 4096, 1), 46);
  check_yarn(&config, 10000, 32, 1, 1.2772588722239781L); /* 0.1 ln 16 + 1 */
  /* Pair 33 is half way: at position 1 it turns by its frequency times (1 + 1 / 16) / 2. */
  is_near(sines[64 + 33], 1.2772588722239781L * sinl(expl(-66.0L / 128 * logl(10000)) * 0.53125L), 1.3L);
  config.attention_factor = 0.75;
  config.beta_fast = 20;
  config.beta_slow = 2;
  config.base = 500000;
  config.first = 7;
  check_yarn(&config, 500000, 20, 2, 0.75L);
  /* A ramp that begins before the first pair, one that ends behind the last one, and one without a width. */
  config = config_of(CLATTN_NN_ROPE_YARN, 50, 16);
  config.factor = 4;
  config.attention_factor = 1;
  config.original_positions = 64;
  check_yarn(&config, 10000, 32, 1, 1);
  config.original_positions = 1000000;
  check_yarn(&config, 10000, 32, 1, 1);
  config.original_positions = 8; /* every pair, but the first, turns less than once */
  config.beta_fast = 1.2;
  config.beta_slow = 1.1;
  check_yarn(&config, 10000, 1.2, 1.1, 1);
}

#define REFUSED(change, want)                                                                                          \
  do {                                                                                                                 \
    clattn_nn_rope_config config = config_of(CLATTN_NN_ROPE_YARN, 4, 8);                                               \
    config.original_positions = 100;                                                                                   \
    assert_int_equal(clattn_nn_rope_tables(&config, cosines, sines), CLATTN_SUCCESS);                                  \
    change;                                                                                                            \
    assert_int_equal(clattn_nn_rope_tables(&config, cosines, sines), want);                                            \
  } while (0)

static void refused_tables(void **state) {
  (void)state;
  const clattn_nn_rope_config sound = config_of(CLATTN_NN_ROPE_PLAIN, 4, 8);
  clattn_nn_rope_config_init(NULL);
  assert_int_equal(clattn_nn_rope_tables(NULL, cosines, sines), CLATTN_ERROR_NULL_POINTER);
  assert_int_equal(clattn_nn_rope_tables(&sound, NULL, sines), CLATTN_ERROR_NULL_POINTER);
  assert_int_equal(clattn_nn_rope_tables(&sound, cosines, NULL), CLATTN_ERROR_NULL_POINTER);
  REFUSED(config.struct_size--, CLATTN_ERROR_STRUCT_SIZE);
  REFUSED(config.reserved0 = 1, CLATTN_ERROR_RESERVED);
  REFUSED(config.reserved[7] = 1, CLATTN_ERROR_RESERVED);
  REFUSED(config.scaling = 4, CLATTN_ERROR_ENUM);
  REFUSED(config.scaling = -1, CLATTN_ERROR_ENUM);
  REFUSED(config.positions = -1, CLATTN_ERROR_SHAPE);
  REFUSED(config.dim = 7, CLATTN_ERROR_SHAPE);
  REFUSED(config.dim = 0, CLATTN_ERROR_SHAPE);
  REFUSED((config.dim = 2, config.scaling = CLATTN_NN_ROPE_NTK), CLATTN_ERROR_SHAPE);
  REFUSED(config.original_positions = 0, CLATTN_ERROR_SHAPE);
  REFUSED(config.base = -5, CLATTN_ERROR_VALUE);
  REFUSED(config.base = (double)NAN, CLATTN_ERROR_VALUE);
  REFUSED(config.base = 1, CLATTN_ERROR_VALUE);
  REFUSED(config.factor = 0.5, CLATTN_ERROR_VALUE);
  REFUSED(config.factor = (double)NAN, CLATTN_ERROR_VALUE);
  REFUSED(config.factor = (double)INFINITY, CLATTN_ERROR_VALUE);
  REFUSED(config.beta_slow = -1, CLATTN_ERROR_VALUE);
  REFUSED(config.beta_fast = 0.5, CLATTN_ERROR_VALUE);
  REFUSED(config.attention_factor = -1, CLATTN_ERROR_VALUE);
  REFUSED(config.attention_factor = (double)NAN, CLATTN_ERROR_VALUE);
  /* what another scaling does not use does not count */
  REFUSED((config.scaling = CLATTN_NN_ROPE_PLAIN, config.original_positions = 0, config.beta_slow = -1),
          CLATTN_SUCCESS);
  REFUSED(config.positions = 0, CLATTN_SUCCESS);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sinusoids),
      cmocka_unit_test(known_sinusoids),
      cmocka_unit_test(refused_sinusoids),
      cmocka_unit_test(plain_and_linear),
      cmocka_unit_test(ntk),
      cmocka_unit_test(yarn),
      cmocka_unit_test(refused_tables),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
