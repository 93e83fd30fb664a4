/* SPDX-License-Identifier: Apache-2.0 */
/* Key intervals, offsets and pair counts against the rules' definitions, pair by pair; the standard slopes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include <cmocka.h>

#include "clattn.h"
#include "problem.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static clattn_problem base(void) {
  clattn_problem p;
  clattn_problem_init(&p);
  p.batch = 2;
  p.q_heads = 8;
  p.kv_heads = 2;
  p.qk_dim = 8;
  return p;
}

static uint64_t random_state = 1;
static uint64_t random64(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state * UINT64_C(2685821657736338717);
}
static int64_t pick(int64_t low, int64_t high) {
  return low + (int64_t)((random64() >> 16) % (uint64_t)(high - low + 1));
}

/* ---- intervals ------------------------------------------------------------------------------------------------- */

static int64_t floor_divide(int64_t a, int64_t b) {
  return a / b - (a % b < 0);
}

/* The rules as their definitions say, for numbers that can't overflow. */
static int rule_keeps(const clattn_problem *p, const clattni_row_rules *rules, int64_t i, int64_t j) {
  const int64_t at = i + rules->offset;
  if (i >= rules->q_len || j >= rules->k_len)
    return 0;
  if (p->causal && !(j < rules->prefix || j <= at))
    return 0;
  if ((p->window & CLATTN_WINDOW_LEFT) && j < at - p->window_left)
    return 0;
  if ((p->window & CLATTN_WINDOW_RIGHT) && j > at + p->window_right)
    return 0;
  return p->chunk == 0 || floor_divide(at, p->chunk) == floor_divide(j, p->chunk);
}

static void random_rules(clattn_problem *p) {
  p->causal = (uint32_t)pick(0, 1);
  p->window = (uint32_t)pick(0, 3);
  p->window_left = pick(0, 6);
  p->window_right = pick(0, 6);
  p->chunk = pick(0, 1) * pick(1, 8);
  p->prefix_mode = (uint32_t)pick(0, 2);
  p->prefix = pick(0, 12);
  p->offset_mode = (clattn_offset_mode)pick(0, 3);
  p->offset = pick(-12, 12);
}

static void intervals_are_the_rules(void **state) {
  (void)state;
  int64_t kept = 0;
  for (int round = 0; round < 10000; round++) {
    clattn_problem p = base();
    random_rules(&p);
    const clattni_row_rules rules = {pick(0, 9), pick(0, 9), pick(-12, 12), pick(0, 1) * pick(0, 11)};
    for (int64_t i = 0; i < 10; i++) {
      int64_t lo, hi;
      clattni_row_interval(&p, &rules, i, &lo, &hi);
      assert_true(lo >= 0 && lo <= hi && hi <= rules.k_len);
      for (int64_t j = 0; j < 10; j++) {
        assert_int_equal(j >= lo && j < hi, rule_keeps(&p, &rules, i, j));
        kept += j >= lo && j < hi;
      }
    }
  }
  assert_true(kept > 20000);
}

/* Row 7 of 100, 10 keys. */
static void intervals_far_out(void **state) {
  static const struct {
    uint32_t causal, window;
    int64_t left, right, chunk, prefix, offset, lo, hi;
  } rows[] = {
      {1, 0, 0, 0, 0, 0, INT64_MAX, 0, 10},
      {1, 0, 0, 0, 0, 0, INT64_MIN, 0, 0},
      {0, 3, INT64_MAX, INT64_MAX, 0, 0, 0, 0, 10},
      {0, 3, INT64_MAX, INT64_MAX, 0, 0, INT64_MIN, 0, 7},  /* at most p + 2^63 - 1 = 6 */
      {0, 3, INT64_MAX, INT64_MAX, 0, 0, INT64_MAX, 7, 10}, /* at least p - (2^63 - 1) = 7 */
      {0, 3, INT64_MAX - 1, 0, 0, 0, INT64_MAX, 8, 10},
      {0, 1, 0, 0, 0, 0, INT64_MAX, 0, 0},
      {0, 2, 0, 0, 0, 0, INT64_MIN, 0, 0},
      {1, 3, INT64_MAX, INT64_MAX, 0, 0, INT64_MIN + 1, 0, 0},
      {0, 2, 0, INT64_MAX, 0, 0, INT64_MIN + 1, 0, 8},
      /* the prefix widens causal, and neither the window nor the length */
      {1, 0, 0, 0, 0, 4, INT64_MIN, 0, 4},
      {1, 0, 0, 0, 0, INT64_MAX, INT64_MIN, 0, 10},
      {1, 0, 0, 0, 0, INT64_MAX, 0, 0, 10},
      {1, 2, 0, 0, 0, 4, INT64_MIN, 0, 0},
      {1, 1, 3, 0, 0, 9, 0, 4, 9},
      {0, 0, 0, 0, 0, 4, 0, 0, 10},
      /* chunks: positions below 0 share theirs with no key */
      {0, 0, 0, 0, INT64_MAX, 0, 0, 0, 10},
      {0, 0, 0, 0, INT64_MAX, 0, -7, 0, 10},
      {0, 0, 0, 0, INT64_MAX, 0, -8, 0, 0},
      {0, 0, 0, 0, INT64_MAX, 0, INT64_MIN, 0, 0},
      {0, 0, 0, 0, INT64_MAX, 0, INT64_MAX - 8, 0, 10}, /* p = 2^63 - 2 */
      {0, 0, 0, 0, INT64_MAX, 0, INT64_MAX - 7, 0, 0},
      {0, 0, 0, 0, INT64_MAX, 0, INT64_MAX, 0, 0},
      {0, 0, 0, 0, 1, 0, INT64_MAX, 0, 0},
      {0, 0, 0, 0, 1, 0, 2, 9, 10},
      {0, 0, 0, 0, 3, 0, 2, 9, 10},
      {1, 0, 0, 0, 4, 10, -1, 4, 8},
      {1, 0, 0, 0, 4, 3, -1, 4, 7},
  };
  (void)state;
  for (size_t i = 0; i < LENGTH(rows); i++) {
    clattn_problem p = base();
    const clattni_row_rules rules = {100, 10, rows[i].offset, rows[i].prefix};
    int64_t lo, hi;
    p.causal = rows[i].causal;
    p.window = rows[i].window;
    p.window_left = rows[i].left;
    p.window_right = rows[i].right;
    p.chunk = rows[i].chunk;
    clattni_row_interval(&p, &rules, 7, &lo, &hi);
    if (lo != rows[i].lo || hi != rows[i].hi)
      fail_msg("row %zu: %" PRId64 " to %" PRId64, i, lo, hi);
  }
}

static void offsets(void **state) {
  clattn_problem p = base();
  (void)state;
  assert_int_equal(clattni_offset(&p, 3, 10, 0, 99), 0);
  p.offset_mode = CLATTN_OFFSET_BOTTOM_RIGHT;
  assert_int_equal(clattni_offset(&p, 3, 10, 0, 99), 7);
  assert_int_equal(clattni_offset(&p, 10, 3, 0, 99), -7);
  p.offset_mode = CLATTN_OFFSET_VALUE;
  p.offset = -4;
  assert_int_equal(clattni_offset(&p, 3, 10, 0, 99), -4);
  assert_int_equal(clattni_offset(&p, 3, 10, 1, 99), 99);
  p.offset_mode = CLATTN_OFFSET_PER_BATCH;
  assert_int_equal(clattni_offset(&p, 3, 10, 1, 99), 99);
}

/* ---- counts ---------------------------------------------------------------------------------------------------- */

/* Pairs of one sequence and head. */
static uint64_t pairs_by_definition(const clattn_problem *p, int64_t q_len, int64_t k_len) {
  const clattni_row_rules rules = {q_len, k_len, clattni_offset(p, q_len, k_len, 0, 0),
                                   p->prefix_mode == CLATTN_PREFIX_VALUE ? p->prefix : 0};
  uint64_t pairs = 0;
  for (int64_t i = 0; i < q_len; i++) {
    for (int64_t j = 0; j < k_len; j++)
      pairs += (uint64_t)rule_keeps(p, &rules, i, j);
  }
  return pairs;
}

static void pairs_are_counted_exactly(void **state) {
  (void)state;
  for (int round = 0; round < 20000; round++) {
    clattn_problem p = base();
    random_rules(&p);
    const clattni_sizes sizes = {pick(0, 3), pick(0, 24), pick(0, 24), 0, 0};
    const uint64_t pairs = pairs_by_definition(&p, sizes.q_len, sizes.k_len);
    assert_true(clattni_count_pairs(&p, &sizes) == pairs * 8 * (uint64_t)sizes.batch);
  }
}

/* Many chunks, a prefix that ends among them, rows before and behind the keys. */
static void pairs_of_long_sequences(void **state) {
  (void)state;
  for (int round = 0; round < 400; round++) {
    clattn_problem p = base();
    random_rules(&p);
    p.window_left = pick(0, 400);
    p.window_right = pick(0, 400);
    p.chunk = pick(0, 3) == 0 ? 0 : pick(1, 200);
    p.prefix = pick(0, 2500);
    p.offset = pick(-2500, 2500);
    const clattni_sizes sizes = {1, pick(0, 2000), pick(0, 2000), 0, 0};
    const clattni_row_rules rules = {sizes.q_len, sizes.k_len, clattni_offset(&p, sizes.q_len, sizes.k_len, 0, 0),
                                     p.prefix_mode == CLATTN_PREFIX_VALUE ? p.prefix : 0};
    uint64_t pairs = 0;
    for (int64_t i = 0; i < sizes.q_len; i++) {
      int64_t lo, hi;
      clattni_row_interval(&p, &rules, i, &lo, &hi);
      pairs += (uint64_t)(hi - lo);
    }
    assert_true(clattni_count_pairs(&p, &sizes) == pairs * 8);
  }
}

/* As if the rows were sequences of q_len, the last one shorter; more than `batch` of them there can't be. */
static void pairs_of_packed_queries(void **state) {
  (void)state;
  for (int round = 0; round < 3000; round++) {
    clattn_problem p = base();
    random_rules(&p);
    p.q.layout = CLATTN_LAYOUT_PACKED;
    const clattni_sizes sizes = {pick(0, 4), pick(0, 9), pick(0, 9), pick(0, 40), 0};
    uint64_t pairs = 0;
    int64_t rows = sizes.total_q;
    for (int64_t b = 0; b < sizes.batch && rows > 0; b++) {
      const int64_t q_len = rows < sizes.q_len ? rows : sizes.q_len;
      pairs += pairs_by_definition(&p, q_len, sizes.k_len);
      rows -= q_len;
    }
    assert_true(clattni_count_pairs(&p, &sizes) == pairs * 8);
  }
}

static void pairs_of_the_longest_sequences(void **state) {
  clattn_problem p = base();
  const clattni_sizes large = {1, 1000000, 1000000, 0, 0}, longest = {1, 2147483647, 2147483647, 0, 0},
                      largest = {2147483647, 2147483647, 2147483647, 0, 0};
  (void)state;
  p.q_heads = 1;
  assert_true(clattni_count_pairs(&p, &large) == UINT64_C(1000000000000));
  p.causal = 1;
  assert_true(clattni_count_pairs(&p, &large) == UINT64_C(500000500000));
  p.window = CLATTN_WINDOW_LEFT;
  p.window_left = 9;
  assert_true(clattni_count_pairs(&p, &large) == UINT64_C(10000000) - 45);
  assert_true(clattni_count_pairs(&p, &longest) == UINT64_C(21474836470) - 45);
  p.window = 0;
  assert_true(clattni_count_pairs(&p, &longest) == UINT64_C(2147483647) * UINT64_C(1073741824));
  assert_true(clattni_count_pairs(&p, &largest) == UINT64_MAX); /* saturates */

  /* 524287 chunks of 4096 and one of 4095; a walk over chunks of 1 would be seen here */
  p.chunk = 4096;
  assert_true(clattni_count_pairs(&p, &longest) == UINT64_C(524287) * (4096 * 4097 / 2) + 4095 * 4096 / 2);
  p.chunk = 1;
  assert_true(clattni_count_pairs(&p, &longest) == UINT64_C(2147483647));
  p.chunk = INT64_MAX;
  assert_true(clattni_count_pairs(&p, &longest) == UINT64_C(2147483647) * UINT64_C(1073741824));
  p.chunk = 0;
  p.prefix_mode = CLATTN_PREFIX_VALUE;
  p.prefix = INT64_C(2147483647);
  assert_true(clattni_count_pairs(&p, &longest) == UINT64_C(2147483647) * UINT64_C(2147483647));
  p.prefix = 1000; /* 1000 rows see 1000 keys, not 1 to 1000 */
  assert_true(clattni_count_pairs(&p, &longest) == UINT64_C(2147483647) * UINT64_C(1073741824) + 1000 * 999 / 2);
  p.prefix_mode = CLATTN_PREFIX_PER_BATCH; /* counts as none */
  assert_true(clattni_count_pairs(&p, &longest) == UINT64_C(2147483647) * UINT64_C(1073741824));

  p.offset_mode = CLATTN_OFFSET_VALUE;
  p.offset = INT64_MIN;
  assert_true(clattni_count_pairs(&p, &largest) == 0);
  p.prefix_mode = CLATTN_PREFIX_VALUE;
  assert_true(clattni_count_pairs(&p, &longest) == UINT64_C(2147483647) * 1000);
  p.chunk = 8;
  assert_true(clattni_count_pairs(&p, &longest) == 0);
  p.offset = INT64_MAX;
  assert_true(clattni_count_pairs(&p, &longest) == 0);
  p.chunk = 0;
  assert_true(clattni_count_pairs(&p, &longest) == UINT64_C(2147483647) * UINT64_C(2147483647));
}

/* ---- slopes ---------------------------------------------------------------------------------------------------- */

static void slopes_are_the_standard_ones(void **state) {
  /* 12 heads: those of 8, then every second one of 16; 3: those of 2, then the first of 4 */
  static const double one[] = {8}, two[] = {4, 8}, three[] = {4, 8, 2}, eight[] = {1, 2, 3, 4, 5, 6, 7, 8},
                      twelve[] = {1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5}, six[] = {2, 4, 6, 8, 1, 3};
  static const struct {
    int64_t heads;
    const double *powers; /* the slope is 2 to minus this */
  } rows[] = {{1, one}, {2, two}, {3, three}, {6, six}, {8, eight}, {12, twelve}};
  float slopes[101];
  (void)state;
  for (size_t i = 0; i < LENGTH(rows); i++) {
    slopes[rows[i].heads] = 77.0f;
    assert_int_equal(clattn_alibi_slopes(rows[i].heads, slopes), CLATTN_SUCCESS);
    for (int64_t h = 0; h < rows[i].heads; h++)
      assert_true(slopes[h] == (float)pow(2.0, -rows[i].powers[h]));
    assert_true(slopes[rows[i].heads] == 77.0f);
  }
  assert_int_equal(clattn_alibi_slopes(100, slopes), CLATTN_SUCCESS);
  assert_true(slopes[63] == 1.0f / 256 && slopes[7] == 0.5f && slopes[64] == (float)pow(2.0, -0.0625));
  assert_true(slopes[99] == (float)pow(2.0, -(2 * 35 + 1) / 16.0)); /* the 71st of 128 */
  assert_int_equal(clattn_alibi_slopes(4, NULL), CLATTN_ERROR_NULL_POINTER);
  assert_int_equal(clattn_alibi_slopes(0, slopes), CLATTN_ERROR_SHAPE);
  assert_int_equal(clattn_alibi_slopes(-1, slopes), CLATTN_ERROR_SHAPE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(intervals_are_the_rules),
      cmocka_unit_test(intervals_far_out),
      cmocka_unit_test(offsets),
      cmocka_unit_test(pairs_are_counted_exactly),
      cmocka_unit_test(pairs_of_long_sequences),
      cmocka_unit_test(pairs_of_packed_queries),
      cmocka_unit_test(pairs_of_the_longest_sequences),
      cmocka_unit_test(slopes_are_the_standard_ones),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
