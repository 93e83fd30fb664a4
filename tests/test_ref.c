/* SPDX-License-Identifier: Apache-2.0 */
/* The double-precision reference: cases small enough to do by hand.  The rest is in test_ref_rules.c and
 * test_ref_types.c. */
#include "test_ref.h"

fixture f, before;

static uint64_t random_state = 3;
uint32_t below(uint32_t n) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return (uint32_t)((random_state * UINT64_C(2685821657736338717)) >> 32) % n;
}

float random_float(void) {
  return (float)below(2001) / 500.0f - 2.0f;
}

void random_inputs(void) {
  for (int i = 0; i < ROOM; i++) {
    f.q[i] = random_float();
    f.k[i] = random_float();
    f.v[i] = random_float();
    f.bias[i] = random_float();
  }
}

void clear_results(void) {
  for (int i = 0; i < ROOM; i++)
    f.o[i] = f.lse[i] = f.scores[i] = f.max_logit[i] = UNTOUCHED;
}

void start(int64_t q_len, int64_t k_len) {
  memset(&f, 0, sizeof f);
  clattn_problem_init(&f.p);
  clattn_ref_args_init(&f.a);
  clattn_error_init(&f.error);
  f.p.q_len = q_len;
  f.p.k_len = k_len;
  f.p.qk_dim = 1;
  f.p.scale_mode = CLATTN_SCALE_VALUE;
  f.p.scale = 1.0f;
  f.p.stage = CLATTN_STAGE_WEIGHTS;
  f.a.error = &f.error;
  f.a.q = f.q;
  f.a.k = f.k;
  f.a.v = f.v;
  f.a.o = f.o;
  f.a.lse = f.lse;
  f.a.scores = f.scores;
  f.a.max_logit = f.max_logit;
  clear_results();
}

void run(void) {
  if (clattn_ref_attention(&f.p, &f.a) != CLATTN_SUCCESS)
    fail_msg("%s", f.error.message);
}

void is_close(const char *file, int line, double got, double want) {
  const int same = isnan(want)   ? isnan(got)
                   : isinf(want) ? got == want
                                 : fabs(got - want) <= 1e-14 * (1.0 + fabs(want));
  if (!same) {
    print_error("got %.17g, expected %.17g\n", got, want);
    _fail(file, line);
  }
}

void are_close(const char *file, int line, const double *got, const double *want, size_t count) {
  for (size_t i = 0; i < count; i++)
    is_close(file, line, got[i], want[i]);
}

void kept_is(const char *file, int line, int64_t rows, int64_t keys, const char *want) {
  for (int64_t i = 0; i < rows; i++, want += *want == ' ') {
    for (int64_t j = 0; j < keys; j++, want++) {
      if ((f.scores[i * keys + j] > 0) != (*want == '1')) {
        print_error("row %d key %d\n", (int)i, (int)j);
        _fail(file, line);
      }
    }
  }
}

void remember(void) {
  run();
  before = f;
  clear_results();
}

void same_rows(const char *file, int line, int64_t rows) {
  are_close(file, line, f.o, before.o, (size_t)(rows * (f.p.v_dim > 0 ? f.p.v_dim : f.p.qk_dim)));
  are_close(file, line, f.lse, before.lse, (size_t)rows);
  are_close(file, line, f.scores, before.scores, (size_t)(rows * f.p.k_len));
}
void start_random(int64_t q_len, int64_t k_len) {
  start(q_len, k_len);
  f.p.batch = 2;
  f.p.q_heads = 4;
  f.p.kv_heads = 2;
  f.p.qk_dim = 3;
  f.p.v_dim = 2;
  random_inputs();
}

void refused(const char *file, int line, clattn_status status, const char *text) {
  const clattn_status got = clattn_ref_attention(&f.p, &f.a);
  if (got != status || f.error.status != status || strstr(f.error.message, text) == NULL) {
    print_error("expected %s \"%s\"\ngot      %s \"%s\"\n", clattn_status_name(status), text, clattn_status_name(got),
                f.error.message);
    _fail(file, line);
  }
  for (int i = 0; i < ROOM; i++) /* nothing is written */
    assert_true(f.o[i] == UNTOUCHED && f.lse[i] == UNTOUCHED && f.max_logit[i] == UNTOUCHED);
}

/* ---- by hand --------------------------------------------------------------------------------------------------- */

static void equal_keys_give_the_mean(void **state) {
  (void)state;
  start(1, 4);
  f.p.qk_dim = 2;
  f.p.v_dim = 1;
  SET(f.q, 3, -2);
  SET(f.k, 1, 1, 1, 1, 1, 1, 1, 1);
  SET(f.v, 1, 2, 3, 10);
  run();
  ALL_CLOSE(f.o, 4);
  ALL_CLOSE(f.scores, 0.25, 0.25, 0.25, 0.25);
  ALL_CLOSE(f.lse, 1 + log(4));
  ALL_CLOSE(f.max_logit, 1);
}

/* Q = K = V = the unit matrix: each token looks at itself with e / (e + 2), at the others with 1 / (e + 2). */
static void three_by_three(void **state) {
  const double e = exp(1), self = e / (e + 2), other = 1 / (e + 2);
  (void)state;
  start(3, 3);
  f.p.qk_dim = 3;
  SET(f.q, 1, 0, 0, 0, 1, 0, 0, 0, 1);
  memcpy(f.k, f.q, sizeof f.k);
  memcpy(f.v, f.q, sizeof f.v);
  run();
  ALL_CLOSE(f.scores, self, other, other, other, self, other, other, other, self);
  ALL_CLOSE(f.o, self, other, other, other, self, other, other, other, self);
  ALL_CLOSE(f.lse, log(e + 2), log(e + 2), log(e + 2));

  f.p.causal = 1;
  run();
  ALL_CLOSE(f.scores, 1, 0, 0, 1 / (1 + e), e / (1 + e), 0, other, other, self);
  ALL_CLOSE(f.lse, 1, log(1 + e), log(e + 2));
}

static void default_scale_is_one_over_root_d(void **state) {
  (void)state;
  start(1, 2);
  f.p.qk_dim = 4;
  f.p.scale_mode = CLATTN_SCALE_DEFAULT;
  f.p.stage = CLATTN_STAGE_RAW;
  SET(f.q, 1, 1, 1, 1);
  SET(f.k, 1, 2, 3, 4, 0, 0, 0, -6);
  run();
  ALL_CLOSE(f.scores, 5, -3);
  ALL_CLOSE(f.max_logit, 5);
}

static void negative_and_zero_scales(void **state) {
  (void)state;
  start(1, 2);
  SET(f.q, 2);
  SET(f.k, 1, 5);
  SET(f.v, 1, 3);
  f.p.scale = -1;
  f.p.stage = CLATTN_STAGE_MASKED;
  run();
  ALL_CLOSE(f.scores, -2, -10);
  CLOSE(f.o[0], (1 + 3 * exp(-8)) / (1 + exp(-8)));
  f.p.scale = 0;
  run();
  ALL_CLOSE(f.o, 2);
}

/* Keys 10, 20, 30, 40; key 3 masked, key 1 excluded by a bias of -inf, key 2 shifted by 0.5, cap 16. */
static void the_four_stages(void **state) {
  static const float keys[] = {10, 20, 30, 40};
  double capped[4];
  (void)state;
  for (int stage = 0; stage < 4; stage++) {
    start(1, 4);
    SET(f.q, 1);
    memcpy(f.k, keys, sizeof keys);
    f.p.stage = stage;
    f.p.softcap = 16;
    f.p.use_bias = 1;
    f.a.bias = f.bias;
    SET(f.bias, 0, -INFINITY, 0.5f, 7);
    f.p.keep_mask_kind = CLATTN_MASK_U8;
    f.a.keep_mask = f.mask;
    memcpy(f.mask, "\1\2\377\0", 4);
    for (int j = 0; j < 4; j++)
      capped[j] = 16 * tanh(keys[j] / 16.0);
    const double w = exp(capped[0] - (capped[2] + 0.5));
    run();
    if (stage == CLATTN_STAGE_RAW)
      ALL_CLOSE(f.scores, 10, 20, 30, 40);
    if (stage == CLATTN_STAGE_SOFTCAP)
      ALL_CLOSE(f.scores, capped[0], capped[1], capped[2], capped[3]);
    if (stage == CLATTN_STAGE_MASKED)
      ALL_CLOSE(f.scores, capped[0], none, capped[2] + 0.5, none);
    if (stage == CLATTN_STAGE_WEIGHTS)
      ALL_CLOSE(f.scores, w / (1 + w), 0, 1 / (1 + w), 0);
    ALL_CLOSE(f.max_logit, 30); /* raw, over kept pairs */
  }
}

static void alibi_by_hand(void **state) {
  (void)state;
  start(2, 3); /* q = 0: the scores are what ALiBi adds */
  f.p.stage = CLATTN_STAGE_MASKED;
  f.p.offset_mode = CLATTN_OFFSET_VALUE;
  f.p.offset = 1;
  f.p.alibi = CLATTN_ALIBI_SIGNED;
  f.a.alibi_slopes = f.slopes;
  SET(f.slopes, 2);
  run();
  ALL_CLOSE(f.scores, -2, 0, 2, -4, -2, 0);
  ALL_CLOSE(f.lse, log(exp(-2) + 1 + exp(2)), log(exp(-4) + exp(-2) + 1));
  ALL_CLOSE(f.max_logit, 0); /* a raw score */
  f.p.alibi = CLATTN_ALIBI_SYMMETRIC;
  run();
  ALL_CLOSE(f.scores, -2, 0, -2, -4, -2, 0);
  f.p.softcap = 1; /* comes before ALiBi */
  SET(f.q, 5, 5);
  SET(f.k, 1, 1, 1);
  run();
  ALL_CLOSE(f.scores, tanh(5) - 2, tanh(5), tanh(5) - 2, tanh(5) - 4, tanh(5) - 2, tanh(5));
  ALL_CLOSE(f.max_logit, 5);
  f.p.softcap = 0;
  f.p.stage = CLATTN_STAGE_RAW; /* nor is it among the raw scores */
  run();
  ALL_CLOSE(f.scores, 5, 5, 5, 5, 5, 5);
}

static void lengths_cut_every_stage(void **state) {
  (void)state;
  for (int stage = 0; stage < 4; stage++) {
    const double gone = stage == CLATTN_STAGE_WEIGHTS ? 0 : none;
    start(2, 3);
    f.p.stage = stage;
    f.p.q_length_mode = f.p.k_length_mode = CLATTN_LENGTH_PER_BATCH;
    f.a.q_lengths = f.q_lengths;
    f.a.k_lengths = f.k_lengths;
    f.q_lengths[0] = 1;
    f.k_lengths[0] = 2;
    SET(f.q, 1, NAN);    /* row 1 is padding, */
    SET(f.k, 3, 3, NAN); /* so is key 2 */
    SET(f.v, 4, 6, INFINITY);
    run();
    const double kept = stage == CLATTN_STAGE_WEIGHTS ? 0.5 : 3;
    ALL_CLOSE(f.scores, kept, kept, gone, gone, gone, gone);
    ALL_CLOSE(f.o, 5, 0);
    ALL_CLOSE(f.lse, 3 + log(2), none);
    ALL_CLOSE(f.max_logit, 3);
  }
}

/* ---- masking, empty rows, NaN ---------------------------------------------------------------------------------- */

static void finite_scores_never_mean_excluded(void **state) {
  static const float lows[] = {-FLT_MAX, -1e30f, -1e4f};
  (void)state;
  for (size_t i = 0; i < LENGTH(lows); i++) {
    start(1, 3);
    f.p.use_bias = 1;
    f.a.bias = f.bias;
    SET(f.bias, lows[i], lows[i], lows[i]);
    SET(f.v, 1, 2, 6);
    run();
    ALL_CLOSE(f.o, 3);
    ALL_CLOSE(f.lse, (double)lows[i] + log(3));
  }
}

static void rows_without_a_key(void **state) {
  (void)state;
  start(2, 0); /* no keys at all */
  f.a.k = f.a.v = NULL;
  run();
  ALL_CLOSE(f.o, 0, 0, UNTOUCHED);
  ALL_CLOSE(f.lse, none, none, UNTOUCHED);
  ALL_CLOSE(f.max_logit, none, UNTOUCHED);
  ALL_CLOSE(f.scores, UNTOUCHED);

  start(2, 2); /* all masked; values that would show */
  f.p.keep_mask_kind = CLATTN_MASK_U8;
  f.a.keep_mask = f.mask;
  SET(f.k, NAN, INFINITY);
  SET(f.v, NAN, INFINITY);
  SET(f.q, 1, 1);
  run();
  ALL_CLOSE(f.o, 0, 0);
  ALL_CLOSE(f.lse, none, none);
  ALL_CLOSE(f.scores, 0, 0, 0, 0);
  ALL_CLOSE(f.max_logit, none);

  start(1, 2); /* all scores -inf */
  f.p.use_bias = 1;
  f.a.bias = f.bias;
  SET(f.bias, -INFINITY, -INFINITY);
  run();
  ALL_CLOSE(f.o, 0);
  ALL_CLOSE(f.lse, none);

  start(3, 2); /* causal, offset -2: only row 2 sees key 0 */
  f.p.causal = 1;
  f.p.offset_mode = CLATTN_OFFSET_VALUE;
  f.p.offset = -2;
  SET(f.v, 5, 7);
  run();
  ALL_CLOSE(f.o, 0, 0, 5);
  ALL_CLOSE(f.lse, none, none, 0);
}

static void no_rows(void **state) {
  (void)state;
  start(0, 3);
  f.a.q = NULL;
  run();
  ALL_CLOSE(f.o, UNTOUCHED);
  ALL_CLOSE(f.lse, UNTOUCHED);
  ALL_CLOSE(f.max_logit, none);
  start(2, 3);
  f.a.sizes = CLATTN_SIZES_GIVEN; /* batch 0 */
  run();
  ALL_CLOSE(f.max_logit, UNTOUCHED);
}

static void an_excluded_key_never_contributes(void **state) {
  static const float bad[] = {NAN, INFINITY, -INFINITY};
  (void)state;
  for (size_t i = 0; i < LENGTH(bad); i++) {
    start(1, 3);
    f.p.keep_mask_kind = CLATTN_MASK_U8;
    f.a.keep_mask = f.mask;
    memcpy(f.mask, "\1\0\1", 3);
    SET(f.q, 1);
    SET(f.k, 0, bad[i], 0);
    SET(f.v, 2, bad[i], 4);
    run();
    ALL_CLOSE(f.o, 3);
    ALL_CLOSE(f.lse, log(2));
    ALL_CLOSE(f.scores, 0.5, 0, 0.5);
    ALL_CLOSE(f.max_logit, 0);
  }
}

static void nan_goes_where_it_belongs(void **state) {
  (void)state;
  start(2, 2); /* in q: its row */
  f.p.v_dim = 2;
  SET(f.q, NAN, 0);
  SET(f.v, 1, 2, 3, 4);
  run();
  ALL_CLOSE(f.o, NAN, NAN, 2, 3);
  ALL_CLOSE(f.lse, NAN, log(2));
  ALL_CLOSE(f.max_logit, NAN);

  start(2, 2); /* in k: the rows that keep the key */
  f.p.causal = 1;
  SET(f.k, 0, NAN);
  SET(f.v, 1, 3);
  run();
  ALL_CLOSE(f.o, 1, NAN);
  ALL_CLOSE(f.lse, 0, NAN);
  ALL_CLOSE(f.scores, 1, 0, NAN, NAN);

  start(2, 2); /* in v: one element of the rows that keep the key, not lse */
  f.p.v_dim = 2;
  f.p.causal = 1;
  SET(f.v, 1, 2, 3, NAN);
  run();
  ALL_CLOSE(f.o, 1, 2, 2, NAN);
  ALL_CLOSE(f.lse, 0, log(2));

  start(1, 3); /* a NaN before a larger score is not lost */
  SET(f.q, 1);
  SET(f.k, 1, NAN, 5);
  run();
  ALL_CLOSE(f.lse, NAN);
  ALL_CLOSE(f.max_logit, NAN);
}

static void plus_infinity_makes_the_row_nan(void **state) {
  (void)state;
  start(1, 3);
  SET(f.q, 1);
  SET(f.k, 1, INFINITY, 2);
  SET(f.v, 1, 2, 3);
  run();
  ALL_CLOSE(f.o, NAN);
  ALL_CLOSE(f.lse, NAN);
  ALL_CLOSE(f.max_logit, INFINITY);
  SET(f.k, 1, -INFINITY, 1); /* minus infinity excludes */
  run();
  ALL_CLOSE(f.o, 2);
  ALL_CLOSE(f.lse, 1 + log(2));
  ALL_CLOSE(f.max_logit, 1);
  f.p.softcap = 2; /* the cap makes it a score like others */
  SET(f.k, 0, -INFINITY, 0);
  run();
  CLOSE(f.lse[0], log(2 + exp(-2)));
}

/* ---- rules ----------------------------------------------------------------------------------------------------- */

static void causal_and_offsets(void **state) {
  (void)state;
  start(2, 4);
  f.p.causal = 1;
  run();
  KEPT(2, 4, "1000 1100");
  f.p.offset_mode = CLATTN_OFFSET_BOTTOM_RIGHT;
  run();
  KEPT(2, 4, "1110 1111");
  f.p.offset_mode = CLATTN_OFFSET_VALUE;
  f.p.offset = 1;
  run();
  KEPT(2, 4, "1100 1110");
  f.a.q_offsets = f.q_offsets; /* overrides the field */
  f.q_offsets[0] = -1;
  run();
  KEPT(2, 4, "0000 1000");
  f.p.offset_mode = CLATTN_OFFSET_PER_BATCH;
  f.q_offsets[0] = 2;
  run();
  KEPT(2, 4, "1110 1111");
  f.p.causal = 0; /* an offset alone keeps everything */
  run();
  KEPT(2, 4, "1111 1111");
}

static void bottom_right_follows_the_lengths(void **state) {
  (void)state;
  start(3, 5);
  f.p.batch = 2;
  f.p.causal = 1;
  f.p.offset_mode = CLATTN_OFFSET_BOTTOM_RIGHT;
  f.p.q_length_mode = f.p.k_length_mode = CLATTN_LENGTH_PER_BATCH;
  f.a.q_lengths = f.q_lengths;
  f.a.k_lengths = f.k_lengths;
  f.q_lengths[0] = 2;
  f.k_lengths[0] = 4;
  f.q_lengths[1] = 3;
  f.k_lengths[1] = 1;
  run();
  KEPT(6, 5, "11100 11110 00000 00000 00000 10000");
}

static void windows(void **state) {
  (void)state;
  start(3, 5);
  f.p.window = CLATTN_WINDOW_BOTH;
  f.p.window_left = 1;
  run();
  KEPT(3, 5, "10000 11000 01100");
  f.p.window_right = 2;
  run();
  KEPT(3, 5, "11100 11110 01111");
  f.p.window = CLATTN_WINDOW_LEFT;
  run();
  KEPT(3, 5, "11111 11111 01111");
  f.p.window = CLATTN_WINDOW_RIGHT;
  run();
  KEPT(3, 5, "11100 11110 11111");
  f.p.window = CLATTN_WINDOW_BOTH;
  f.p.causal = 1;
  f.p.offset_mode = CLATTN_OFFSET_BOTTOM_RIGHT;
  run();
  KEPT(3, 5, "01100 00110 00011");
}

static void chunks(void **state) {
  (void)state;
  start(4, 7);
  f.p.chunk = 3;
  run();
  KEPT(4, 7, "1110000 1110000 1110000 0001110");
  f.p.offset_mode = CLATTN_OFFSET_VALUE;
  f.p.offset = -1; /* position -1 is in chunk -1 */
  run();
  KEPT(4, 7, "0000000 1110000 1110000 1110000");
  f.p.offset = 5;
  run();
  KEPT(4, 7, "0001110 0000001 0000001 0000001");
  f.p.causal = 1;
  f.p.offset = 2;
  run();
  KEPT(4, 7, "1110000 0001000 0001100 0001110");
  f.p.causal = 0;
  f.p.chunk = INT64_MAX;
  run();
  KEPT(4, 7, "1111111 1111111 1111111 1111111");
}

static void prefixes(void **state) {
  (void)state;
  start(3, 5);
  f.p.causal = 1;
  f.p.prefix_mode = CLATTN_PREFIX_VALUE;
  run();
  KEPT(3, 5, "10000 11000 11100");
  f.p.prefix = 2;
  run();
  KEPT(3, 5, "11000 11000 11100");
  f.p.prefix = 9; /* beyond the keys */
  run();
  KEPT(3, 5, "11111 11111 11111");
  f.p.prefix = 4;
  f.p.offset_mode = CLATTN_OFFSET_VALUE; /* rows that causal alone leaves empty see the prefix */
  f.p.offset = -9;
  run();
  KEPT(3, 5, "11110 11110 11110");
  f.p.offset = 0;
  f.p.window = CLATTN_WINDOW_BOTH; /* it widens causal only */
  f.p.window_left = 0;
  f.p.window_right = 2;
  run();
  KEPT(3, 5, "11100 01110 00110");
  f.p.causal = 0;
  f.p.window_right = 3;
  run();
  KEPT(3, 5, "11110 01111 00111");

  start(2, 4);
  f.p.batch = 2;
  f.p.causal = 1;
  f.p.prefix_mode = CLATTN_PREFIX_PER_BATCH;
  f.a.prefix = f.prefix;
  f.prefix[0] = 3;
  f.prefix[1] = 0;
  run();
  KEPT(4, 4, "1110 1110 1000 1100");
  f.prefix[1] = INT32_MAX;
  run();
  KEPT(4, 4, "1110 1110 1111 1111");
}

static void masks(void **state) {
  (void)state;
  start(2, 34);
  f.p.keep_mask_kind = CLATTN_MASK_BITS; /* two words a row */
  f.a.keep_mask = f.bits;
  f.bits[0] = UINT32_C(0x80000001);
  f.bits[1] = 2;
  f.bits[2] = 0;
  f.bits[3] = UINT32_C(0xfffffffd); /* bits beyond the last key mean nothing */
  run();
  KEPT(2, 34, "1000000000000000000000000000000101 0000000000000000000000000000000010");

  start(2, 3);
  f.p.keep_mask_kind = CLATTN_MASK_BITS; /* element stride 0: bit 0 of a word per row, for all keys */
  f.p.keep_mask = clattn_strided(CLATTN_F32, 0, 0, 2, 0);
  f.a.keep_mask = f.bits;
  f.bits[0] = UINT32_C(0xfffffffe);
  f.bits[1] = UINT32_C(0xffffffff);
  f.bits[2] = 1;
  run();
  KEPT(2, 3, "000 111");

  start(2, 3);
  f.p.keep_mask_kind = CLATTN_MASK_U8; /* one line for all rows */
  f.p.keep_mask = clattn_strided(CLATTN_F32, 0, 0, 0, 2);
  f.a.keep_mask = f.mask;
  memcpy(f.mask, "\1\0\0\1\200", 5);
  run();
  KEPT(2, 3, "101 101");
}

/* ---- layouts --------------------------------------------------------------------------------------------------- */

static void query_heads_share_key_heads(void **state) {
  (void)state;
  start(1, 1);
  f.p.batch = 2;
  f.p.q_heads = 6;
  f.p.kv_heads = 2;
  SET(f.v, 1, 2, 3, 4);
  run();
  ALL_CLOSE(f.o, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4);
}

static void broadcast_and_swapped_axes(void **state) {
  (void)state;
  start(2, 2);
  f.p.q_heads = 2;
  f.p.v_dim = 2;
  f.p.v.layout = CLATTN_LAYOUT_BSHD; /* (row, head, element) */
  f.p.q = clattn_strided(CLATTN_F32, 0, 0, 0, 0);
  f.p.k = clattn_strided(CLATTN_F32, 0, 0, 0, 0);
  SET(f.q, 1, NAN);
  SET(f.k, 3, NAN);
  SET(f.v, 1, 2, 10, 20, 3, 4, 30, 40);
  run();
  ALL_CLOSE(f.o, 2, 3, 2, 3, 20, 30, 20, 30);

  start(1, 2);
  f.p.v_dim = 2;
  f.p.v = clattn_strided(CLATTN_F32, 0, 0, 1, 3); /* columns apart */
  SET(f.v, 1, 3, NAN, 5, 9);
  run();
  ALL_CLOSE(f.o, 2, 7);
}

static void bound_layouts_keep_their_strides_and_exact_ones_follow(void **state) {
  (void)state;
  for (int exact = 0; exact < 2; exact++) {
    start(2, 3);
    f.p.q_heads = 2;
    f.p.v.layout = exact ? CLATTN_LAYOUT_BHSD_EXACT : CLATTN_LAYOUT_BHSD;
    f.a.sizes = CLATTN_SIZES_GIVEN;
    f.a.batch = 1;
    f.a.q_len = 1;
    f.a.k_len = 2;
    SET(f.v, 1, 3, 5, 7, 11);
    run();
    if (exact)
      ALL_CLOSE(f.o, 2, 6, UNTOUCHED);
    else
      ALL_CLOSE(f.o, 2, 9, UNTOUCHED);
    ALL_CLOSE(f.lse, log(2), log(2), UNTOUCHED); /* results lie contiguous over the sizes given */
    ALL_CLOSE(f.scores, 0.5, 0.5, 0.5, 0.5, UNTOUCHED);
  }
}

static void sampled_rows_are_those_of_the_whole(void **state) {
  double o[24], lse[24];
  (void)state;
  start(4, 5);
  f.p.batch = 2;
  f.p.q_heads = 3;
  random_inputs();
  run();
  memcpy(o, f.o, sizeof o);
  memcpy(lse, f.lse, sizeof lse);
  for (int64_t first = 0; first < 7; first++) {
    clear_results();
    f.a.max_logit = NULL;
    f.a.row_step = 7;
    f.a.row_first = first;
    run();
    for (int64_t r = 0; r < 24; r++) {
      CLOSE(f.o[r], r % 7 == first ? o[r] : UNTOUCHED);
      CLOSE(f.lse[r], r % 7 == first ? lse[r] : UNTOUCHED);
      assert_int_equal(f.scores[5 * r] == UNTOUCHED, r % 7 != first);
    }
  }
  f.a.row_step = INT64_MAX;
  f.a.row_first = 23;
  run();
  CLOSE(f.lse[23], lse[23]);
}

static void only_what_is_wanted_is_needed(void **state) {
  (void)state;
  start(1, 2);
  f.a.o = f.a.lse = f.a.scores = f.a.max_logit = NULL;
  f.a.v = NULL;
  f.a.lse = f.lse;
  run();
  ALL_CLOSE(f.lse, log(2));
  start(1, 2); /* whatever the problem's own outputs are */
  f.p.outputs = CLATTN_OUT_LSE;
  f.p.o.dtype = CLATTN_F16;
  SET(f.v, 1, 3);
  run();
  ALL_CLOSE(f.o, 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(equal_keys_give_the_mean),
      cmocka_unit_test(three_by_three),
      cmocka_unit_test(default_scale_is_one_over_root_d),
      cmocka_unit_test(negative_and_zero_scales),
      cmocka_unit_test(the_four_stages),
      cmocka_unit_test(alibi_by_hand),
      cmocka_unit_test(lengths_cut_every_stage),
      cmocka_unit_test(finite_scores_never_mean_excluded),
      cmocka_unit_test(rows_without_a_key),
      cmocka_unit_test(no_rows),
      cmocka_unit_test(an_excluded_key_never_contributes),
      cmocka_unit_test(nan_goes_where_it_belongs),
      cmocka_unit_test(plus_infinity_makes_the_row_nan),
      cmocka_unit_test(causal_and_offsets),
      cmocka_unit_test(bottom_right_follows_the_lengths),
      cmocka_unit_test(windows),
      cmocka_unit_test(chunks),
      cmocka_unit_test(prefixes),
      cmocka_unit_test(masks),
      cmocka_unit_test(query_heads_share_key_heads),
      cmocka_unit_test(broadcast_and_swapped_axes),
      cmocka_unit_test(bound_layouts_keep_their_strides_and_exact_ones_follow),
      cmocka_unit_test(sampled_rows_are_those_of_the_whole),
      cmocka_unit_test(only_what_is_wanted_is_needed),
  };
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  return failed + test_ref_rules() + test_ref_types();
}
