/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks on the default device: the shipped examples and hooks of the test's own, against the reference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hook_job.h"

#define SCORE "float clattn_score(float s, const clattn_at *at)"
#define KEEP "bool clattn_keep(const clattn_at *at)"

/* ---- reading a hook ---------------------------------------------------------------------------------------------- */

static void definitions_are_found(void **state) {
  static const struct {
    int good;
    const char *source;
  } cases[] = {
      {1, SCORE "{return s;}"},
      {1, KEEP "{return true;}"},
      {1, SCORE "\n/* a */ // b\n{"},
      {1, SCORE ";\n" SCORE " { return s; }"},
      {1, "int x; '\"' ; " SCORE " { '\"'"},
      {1, "x #\n" SCORE "{"},
      {1, "#define Q \"/*\"\n" SCORE "{"},
      {1, "#define Q '\n" SCORE "{"},
      {1, "//\r\n" SCORE "\r\n{"},
      {1, "a / b; \xff" SCORE "{"},
      {1, "float clattn_sc\\\nore (float s) {"},
      {1, "#if 0\n" SCORE "{ }\n#endif"}, /* conditions are the compiler's business */
      {1, "float clattn_score(float (*f)(int), int x) {"},
      {0, ""},
      {0, "int x;"},
      {0, SCORE ";"},
      {0, "float f(float s) { if (clattn_score(s)) { } }"},
      {0, "float xclattn_score(float s) {"},
      {0, "float clattn_score2(float s) {"},
      {0, "// " SCORE "{"},
      {0, "// a \\\n" SCORE "{"},
      {0, "/* " SCORE "{ */"},
      {0, "/*/ " SCORE "{ */"},
      {0, "\"" SCORE "{\""},
      {0, "\" \\\" " SCORE "{\""},
      {0, "#define A " SCORE "{"},
      {0, "#define A \\\n " SCORE "{"},
      {0, "#define A \\\r\n " SCORE "{"},
      {0, " # /* \n */ define A " SCORE "{"},
      {0, "/* c */ #define A " SCORE "{"},
      {0, "clattn_score"},
      {0, "clattn_keep("},
      {0, "clattn_keep(()"},
      {0, "clattn_keep()"},
      {0, "/*"},
      {0, "\""},
      {0, "'\\"},
      {0, "\\"},
      {0, "/"},
      {0, "#"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    clattn_hook *hook = NULL;
    clattn_error error;
    clattn_error_init(&error);
    const clattn_status status = clattn_hook_create(cases[i].source, &hook, &error);
    if (status != (cases[i].good ? CLATTN_SUCCESS : CLATTN_ERROR_TEXT) || (hook != NULL) != cases[i].good)
      fail_msg("case %zu, \"%s\": %s", i, cases[i].source, error.message);
    if (!cases[i].good &&
        (strstr(error.message, "clattn_score") == NULL || strstr(error.message, "clattn_keep") == NULL))
      fail_msg("case %zu: \"%s\" does not say what is missing", i, error.message);
    clattn_hook_release(hook);
  }
}

static void pointers_are_checked(void **state) {
  clattn_hook *hook = (clattn_hook *)(void *)&hook;
  clattn_error error;
  (void)state;
  clattn_error_init(&error);
  assert_int_equal(clattn_hook_create(NULL, &hook, &error), CLATTN_ERROR_NULL_POINTER);
  assert_null(hook);
  assert_non_null(strstr(error.message, "source"));
  assert_int_equal(clattn_hook_create(SCORE "{return s;}", NULL, &error), CLATTN_ERROR_NULL_POINTER);
  assert_non_null(strstr(error.message, "out"));
  assert_int_equal(clattn_hook_create(SCORE "{return s;}", &hook, NULL), CLATTN_SUCCESS);
  clattn_hook_release(hook);
  clattn_hook_release(NULL);
}

/* ---- the examples ------------------------------------------------------------------------------------------------ */

static void same_bits(const char *line, const char *variant, const char *what, const float *a, const float *b,
                      size_t count) {
  for (size_t i = 0; a != NULL && i < count; i++) {
    uint32_t x, y;
    memcpy(&x, &a[i], sizeof x);
    memcpy(&y, &b[i], sizeof y);
    if (x != y)
      fail_msg("%s, %s: %s[%zu] is %.9g with the hook, %.9g with the rule", line, variant, what, i, (double)a[i],
               (double)b[i]);
  }
}

static void causal_by_hand_equals_the_rule_bit_by_bit(void **state) {
  static const int32_t q_lengths[] = {50, 0, 17}, k_lengths[] = {70, 33, 1}, q_offsets[] = {20, -5, 3};
  static const struct {
    const char *line;
    int lengths, offsets;
  } cases[] = {
      {"b=2 hq=4 hkv=2 sq=70 sk=133 d=8 dv=5", 0, 0},  {"hq=2 sq=26 sk=70 d=4 off=bottom_right", 0, 0},
      {"hq=2 sq=70 sk=26 d=4 off=-5", 0, 0},           {"hq=6 hkv=1 sq=1 sk=300 d=4 off=bottom_right", 0, 0},
      {"sq=40 sk=40 d=4 window=9,inf chunk=16", 0, 0}, {"b=3 hq=2 sq=50 sk=70 d=4 qlen=per_batch klen=per_batch", 1, 0},
      {"b=3 sq=50 sk=70 d=4 off=per_batch", 0, 1},
  };
  clattn_hook *hook = example("causal.cl");
  const char *variant;
  int ran = 0;
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char ruled[200];
    const shape s = shape_of(cases[i].line);
    job by_hook = {.line = cases[i].line, .hook = hook};
    if (cases[i].lengths) {
      by_hook.q_lengths = q_lengths;
      by_hook.k_lengths = k_lengths;
    }
    if (cases[i].offsets)
      by_hook.q_offsets = q_offsets;
    job by_rule = by_hook;
    (void)snprintf(ruled, sizeof ruled, "%s causal=1", cases[i].line);
    by_rule.line = ruled;
    by_rule.hook = NULL;
    for (uint32_t n = 0; (variant = clattn_variant_name(n)) != NULL; n++)
      for (int set = 0; set < 4; set++) {
        static const uint32_t outputs[] = {CLATTN_OUT_O | CLATTN_OUT_LSE, ALL_OUTPUTS, ALL_OUTPUTS, CLATTN_OUT_O};
        const clattn_stage stage = set == 1 ? CLATTN_STAGE_MASKED : CLATTN_STAGE_WEIGHTS;
        results a, b;
        if (!run_on_device(&by_hook, variant, outputs[set], stage, &a))
          continue;
        assert_true(run_on_device(&by_rule, variant, outputs[set], stage, &b));
        same_bits(ruled, variant, "o", a.o, b.o, s.o);
        same_bits(ruled, variant, "lse", a.lse, b.lse, s.rows);
        same_bits(ruled, variant, "scores", a.scores, b.scores, s.pairs);
        same_bits(ruled, variant, "max_logit", a.max_logit, b.max_logit, s.heads);
        results_free(&a);
        results_free(&b);
        ran++;
      }
  }
  assert_true(ran > 0);
  clattn_hook_release(hook);
}

/* The bucket of a distance, by the powers that bound the buckets and no logarithm. */
static int t5_bucket(int64_t distance, int buckets, double max_distance, int both_ways) {
  const int half = both_ways ? buckets / 2 : buckets, exact = half / 2;
  const int first = both_ways && distance > 0 ? half : 0;
  const int64_t size = distance < 0 ? -distance : both_ways ? distance : 0;
  int bucket = exact;
  if (size < exact)
    return first + (int)size;
  while (bucket < half - 1 &&
         (double)size >=
             (double)exact * pow(max_distance / exact, (double)(bucket + 1 - exact) / (half - exact)) - 1e-6)
    bucket++;
  return first + bucket;
}

static void t5_bias(void **state) {
  enum { KEYS = 300, ROWS = 24, HEADS = 4, OFF = 140, TABLE_BUCKETS = 32 };
  clattn_hook *hook = example("t5_bias.cl");
  (void)state;
  for (int both_ways = 0; both_ways < 2; both_ways++) {
    const int buckets = both_ways ? TABLE_BUCKETS : 16;
    const float far = both_ways ? 128.0f : 50.0f;
    float *table = numbers((size_t)buckets * HEADS, 7), *bias = memory(sizeof(float) * HEADS * ROWS * KEYS);
    for (int h = 0; h < HEADS; h++)
      for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < KEYS; k++)
          bias[(h * ROWS + i) * KEYS + k] =
              table[t5_bucket(k - (i + OFF), buckets, (double)far, both_ways) * HEADS + h];
    job j = {.line = "hq=4 hkv=2 sq=24 sk=300 d=8 scale=1 off=140", .hook = hook, .bias = bias};
    j.buffer[0] = placed(table, sizeof(float) * (size_t)buckets * HEADS, 0);
    j.scalar[0] = on_host((float)buckets);
    j.scalar[1] = on_host(far);
    j.scalar[2] = on_host(HEADS);
    j.scalar[3] = on_host((float)both_ways);
    check_job(&j, CLATTN_STAGE_MASKED);
    job_close(&j);
    free(table);
    free(bias);
  }
  clattn_hook_release(hook);
}

/* An image of 6 x 9 pixels, windows of 3 x 3, shifted by 1. */
static void swin_windows(void **state) {
  enum { W = 3, SHIFT = 1, ACROSS = 3, DOWN = 2, WINDOWS = ACROSS * DOWN, IMAGES = 2, TOKENS = W * W, HEADS = 2 };
  enum { PLACES = 2 * W - 1 };
  clattn_hook *hook = example("swin.cl");
  float *table = numbers(PLACES * PLACES * HEADS, 8);
  int32_t region[WINDOWS][TOKENS];
  float *bias = memory(sizeof(float) * IMAGES * WINDOWS * HEADS * TOKENS * TOKENS);
  unsigned char *mask = memory((size_t)IMAGES * WINDOWS * HEADS * TOKENS * TOKENS);
  (void)state;
  for (int n = 0; n < WINDOWS; n++)
    for (int t = 0; t < TOKENS; t++) { /* the last SHIFT rows and columns came from the other side of the image */
      const int y = n / ACROSS * W + t / W, x = n % ACROSS * W + t % W;
      region[n][t] = 2 * (y >= DOWN * W - SHIFT) + (x >= ACROSS * W - SHIFT);
    }
  size_t at = 0, excluded = 0;
  for (int b = 0; b < IMAGES * WINDOWS; b++)
    for (int h = 0; h < HEADS; h++)
      for (int i = 0; i < TOKENS; i++)
        for (int k = 0; k < TOKENS; k++, at++) {
          const int y = i / W - k / W + W - 1, x = i % W - k % W + W - 1;
          bias[at] = table[(y * PLACES + x) * HEADS + h];
          mask[at] = region[b % WINDOWS][i] == region[b % WINDOWS][k];
          excluded += !mask[at];
        }
  assert_true(excluded > 0 && excluded < at / 2);
  job j = {.line = "b=12 hq=2 sq=9 sk=9 d=8", .hook = hook, .bias = bias, .mask = mask};
  j.buffer[0] = placed(table, sizeof(float) * PLACES * PLACES * HEADS, 0);
  j.buffer[1] = placed(region, sizeof region, 0);
  j.scalar[0] = on_host(W);
  j.scalar[1] = on_host(HEADS);
  j.scalar[2] = on_host(WINDOWS);
  check_job(&j, CLATTN_STAGE_MASKED);
  job_close(&j);
  free(table);
  free(bias);
  free(mask);
  clattn_hook_release(hook);
}

/* Causal beside it; a row of three documents and padding behind k_lengths, a decode step whose rows stand behind an
 * offset. */
static void documents_see_themselves(void **state) {
  enum { KEYS = 90, BATCH = 2, OFF = 60, ROWS = 40 };
  static const int32_t k_lengths[BATCH] = {90, 77};
  clattn_hook *hook = example("documents.cl");
  int32_t document[BATCH][KEYS];
  unsigned char *mask = memory(BATCH * ROWS * KEYS);
  (void)state;
  for (int b = 0; b < BATCH; b++)
    for (int t = 0; t < KEYS; t++)
      document[b][t] = b == 0 ? (t >= 11) + (t >= 64) : t / 35;
  for (int b = 0; b < BATCH; b++)
    for (int i = 0; i < ROWS; i++)
      for (int k = 0; k < KEYS; k++)
        mask[(b * ROWS + i) * KEYS + k] = i + OFF < k_lengths[b] && document[b][i + OFF] == document[b][k];
  job j = {.line = "b=2 sq=40 sk=90 d=8 off=60 klen=per_batch causal=1", .hook = hook, .mask = mask};
  j.k_lengths = k_lengths;
  j.buffer[0] = placed(document, sizeof document, 0);
  j.scalar[0] = on_host(KEYS);
  check_job(&j, CLATTN_STAGE_MASKED);
  job_close(&j);
  free(mask);
  clattn_hook_release(hook);
}

static double cap_of(void *user, double s, const clattn_ref_at *at) {
  const double cap = *(const double *)user;
  (void)at;
  return cap * tanh(s / cap);
}

static void tanh_cap_comes_after_the_bias(void **state) {
  clattn_hook *hook = example("tanh_cap.cl");
  double cap = 0.75;
  (void)state;
  float *bias = numbers(2 * 20 * 150, 9);
  for (size_t i = 0; i < 2 * 20 * 150; i++)
    bias[i] *= 3.0f;
  job j = {.line = "hq=2 sq=20 sk=150 d=8", .hook = hook, .given_bias = bias, .score = cap_of, .user = &cap};
  j.scalar[0] = on_host(0.75f);
  check_job(&j, CLATTN_STAGE_MASKED);
  check_job(&j, CLATTN_STAGE_WEIGHTS);
  free(bias);
  clattn_hook_release(hook);
}

/* ---- what a hook is given ---------------------------------------------------------------------------------------- */

static double score_by_fields(void *user, double s, const clattn_ref_at *at) {
  (void)user;
  return s + 0.5 * (double)at->b + 0.25 * (double)at->h - 0.75 * (double)at->kv_h + 0.125 * (double)(at->i % 7) -
         0.0625 * (double)(at->j % 11) + 0.03125 * (double)(at->p % 13) + 0.015625 * (double)at->q_len -
         0.0078125 * (double)at->k_len;
}

static int keep_by_fields(void *user, const clattn_ref_at *at) {
  (void)user;
  return (at->i + 2 * at->j + at->b + at->h + at->kv_h) % 3 != 0 && at->p % 5 != 4 && at->j + 2 < at->k_len &&
         at->i + 1 < at->q_len;
}

#define SCORE_BY_FIELDS                                                                                                \
  SCORE "{ return s + 0.5f * at->b + 0.25f * at->h - 0.75f * at->kv_h + 0.125f * (at->i % 7)"                          \
        " - 0.0625f * (at->j % 11) + 0.03125f * (float)(at->p % 13) + 0.015625f * at->q_len"                           \
        " - 0.0078125f * at->k_len; }\n"
#define KEEP_BY_FIELDS                                                                                                 \
  KEEP "{ return (at->i + 2 * at->j + at->b + at->h + at->kv_h) % 3 != 0 && at->p % 5 != 4"                            \
       " && at->j + 2 < at->k_len && at->i + 1 < at->q_len; }\n"

/* Score alone, keep alone, both. */
static void fields_say_which_pair(void **state) {
  static const int32_t q_lengths[] = {50, 0, 17}, k_lengths[] = {140, 0, 33}, q_offsets[] = {20, -5, 2000000000};
  static const char *const sources[] = {SCORE_BY_FIELDS, KEEP_BY_FIELDS, SCORE_BY_FIELDS KEEP_BY_FIELDS};
  (void)state;
  for (int i = 0; i < 3; i++) {
    clattn_hook *hook = hook_of(sources[i]);
    job j = {.line = "b=3 hq=4 hkv=2 sq=50 sk=140 d=4 qlen=per_batch klen=per_batch off=per_batch", .hook = hook};
    j.q_lengths = q_lengths;
    j.k_lengths = k_lengths;
    j.q_offsets = q_offsets;
    j.score = i != 1 ? score_by_fields : NULL;
    j.keep = i != 0 ? keep_by_fields : NULL;
    if (i == 2)
      check_job_everywhere(&j, CLATTN_STAGE_MASKED);
    else
      check_job(&j, CLATTN_STAGE_MASKED);
    clattn_hook_release(hook);
  }
}

/* Four buffers with offsets, four scalars on the host, on the device, and some of each. */
static void buffers_and_scalars_arrive(void **state) {
  enum { HEADS = 2, ROWS = 20, KEYS = 70 };
  static const char source[] = SCORE "{ __global const float *by_head = (__global const float *)at->buffer[0];\n"
                                     "  __global const int *by_row = (__global const int *)at->buffer[1];\n"
                                     "  __global const uchar *by_key = (__global const uchar *)at->buffer[2];\n"
                                     "  __global const float *one = (__global const float *)at->buffer[3];\n"
                                     "  return s + at->scalar[0] * by_head[at->h] + at->scalar[1] * by_row[at->i]\n"
                                     "         + at->scalar[2] * by_key[at->j] + at->scalar[3] * one[0]; }\n";
  const float scalar[BUFFERS] = {0.5f, -0.25f, 0.125f, 3.0f}, one = 0.375f;
  int32_t by_row[ROWS];
  unsigned char by_key[KEYS];
  float *by_head = numbers(HEADS, 5), *bias = memory(sizeof(float) * HEADS * ROWS * KEYS);
  clattn_hook *hook = hook_of(source);
  (void)state;
  for (int i = 0; i < ROWS; i++)
    by_row[i] = (i * 7) % 5 - 2;
  for (int k = 0; k < KEYS; k++)
    by_key[k] = (unsigned char)((k * 11) % 9);
  for (int h = 0; h < HEADS; h++)
    for (int i = 0; i < ROWS; i++)
      for (int k = 0; k < KEYS; k++)
        bias[(h * ROWS + i) * KEYS + k] =
            scalar[0] * by_head[h] + scalar[1] * (float)by_row[i] + scalar[2] * (float)by_key[k] + scalar[3] * one;
  for (unsigned on = 0; on < 16; on += 5) { /* bit n: scalar n is on the device: none, 0 and 2, 1 and 3, all */
    job j = {.line = "hq=2 sq=20 sk=70 d=8", .hook = hook, .bias = bias};
    const size_t before = on;
    j.buffer[0] = placed(by_head, sizeof(float) * HEADS, before);
    j.buffer[1] = placed(by_row, sizeof by_row, 3 * before);
    j.buffer[2] = placed(by_key, sizeof by_key, before / 5);
    j.buffer[3] = placed(&one, sizeof one, 2 * before);
    for (unsigned n = 0; n < BUFFERS; n++)
      j.scalar[n] = (on >> n & 1u) != 0 ? on_device(scalar[n], 1 + n) : on_host(scalar[n]);
    check_job(&j, CLATTN_STAGE_MASKED);
    job_close(&j);
  }
  free(by_head);
  free(bias);
  clattn_hook_release(hook);
}

/* What an enqueue does not give is 0; other lengths on the device go with scalars there. */
static void absent_scalars_are_zero(void **state) {
  float *bias = memory(sizeof(float) * 20 * 70);
  clattn_hook *hook = hook_of(SCORE "{ return s + at->scalar[0] + 2 * at->scalar[1] + 4 * at->scalar[3]; }");
  (void)state;
  for (int on = 0; on < 2; on++) {
    job j = {.line = "sq=20 sk=70 d=8", .hook = hook, .bias = bias};
    j.scalar[1] = on ? on_device(0.25f, 0) : on_host(0.25f);
    for (size_t i = 0; i < 20 * 70; i++)
      bias[i] = 0.5f;
    check_job(&j, CLATTN_STAGE_MASKED);
    job_close(&j);
  }
  free(bias);
  clattn_hook_release(hook);
}

/* ---- special scores ---------------------------------------------------------------------------------------------- */

enum { SPECIAL_ROWS = 9, SPECIAL_KEYS = 70 };

/* What takes the place of a score, 0: nothing; bytes that keep, per row and per key; what is added per row. */
typedef struct special {
  float instead[SPECIAL_ROWS][SPECIAL_KEYS], added[SPECIAL_ROWS];
  unsigned char row_kept[SPECIAL_ROWS], key_kept[SPECIAL_KEYS];
} special;

static double special_score(void *user, double s, const clattn_ref_at *at) {
  const special *t = user;
  const float instead = t->instead[at->i][at->j];
  return instead == 0.0f ? s + 0.5 * (double)t->added[at->i] : (double)instead;
}

static int special_keep(void *user, const clattn_ref_at *at) {
  const special *t = user;
  return t->row_kept[at->i] && t->key_kept[at->j];
}

/* -inf excludes, NaN and +inf spoil the row that keeps them, and only that row. */
static void special_scores_follow_the_rules(void **state) {
  static const char source[] =
      SCORE "{\n"
            "  const float instead = ((__global const float *)at->buffer[0])[at->i * (int)at->scalar[0] + at->j];\n"
            "  const float added = at->scalar[1] * ((__global const float *)at->buffer[1])[at->i];\n"
            "  return instead == 0.0f ? s + added : instead;\n"
            "}\n" KEEP "{\n"
            "  __global const uchar *row_kept = at->buffer[2], *key_kept = at->buffer[3];\n"
            "  return row_kept[at->i] && key_kept[at->j];\n"
            "}\n";
  clattn_hook *hook = hook_of(source);
  special t;
  (void)state;
  memset(&t, 0, sizeof t);
  memset(t.row_kept, 1, sizeof t.row_kept);
  memset(t.key_kept, 1, sizeof t.key_kept);
  for (int k = 0; k < SPECIAL_KEYS; k++) {
    t.instead[1][k] = k % 2 != 0 ? -INFINITY : 0;
    t.instead[2][k] = -INFINITY;
    t.instead[5][k] = k >= 60 ? NAN : 0;
    t.key_kept[k] = k < 60;
  }
  t.instead[3][37] = NAN;
  t.instead[4][5] = INFINITY;
  t.row_kept[6] = 0;
  t.instead[6][1] = NAN;
  t.added[8] = 2;
  job j = {.line = "hq=2 sq=9 sk=70 d=8", .hook = hook, .score = special_score, .keep = special_keep, .user = &t};
  j.buffer[0] = placed(t.instead, sizeof t.instead, 1);
  j.buffer[1] = placed(t.added, sizeof t.added, 2);
  j.buffer[2] = placed(t.row_kept, sizeof t.row_kept, 3);
  j.buffer[3] = placed(t.key_kept, sizeof t.key_kept, 4);
  j.scalar[0] = on_host(SPECIAL_KEYS);
  j.scalar[1] = on_device(0.5f, 1);
  check_job_everywhere(&j, CLATTN_STAGE_MASKED);
  job_close(&j);
  clattn_hook_release(hook);
}

/* ---- several hooks, and wrong ones ------------------------------------------------------------------------------- */

static void check_constant(const char *variant, const clattn_hook *hook, float added) {
  enum { PAIRS = 5 * 7 };
  float bias[PAIRS];
  expected e;
  results r;
  for (int i = 0; i < PAIRS; i++)
    bias[i] = added;
  const job j = {.line = "sq=5 sk=7 d=4", .hook = hook, .bias = bias};
  run_reference(&j, CLATTN_STAGE_MASKED, &e);
  assert_true(run_on_device(&j, variant, ALL_OUTPUTS, CLATTN_STAGE_MASKED, &r));
  check_close(&j, variant == NULL ? "selected" : variant, "scores", r.scores, e.scores, PAIRS);
  expected_free(&e);
  results_free(&r);
}

/* Each keeps its own kernels, also when a new hook takes the memory of a released one. */
static void hooks_in_turn(void **state) {
  clattn_hook *one = hook_of(SCORE "{ return s + 1; }"), *two = hook_of(SCORE "{ return s + 2; }");
  (void)state;
  for (int i = 0; i < 2; i++) {
    check_constant(NULL, one, 1);
    check_constant(NULL, two, 2);
    check_constant(NULL, NULL, 0);
  }
  clattn_hook_release(one);
  one = hook_of(SCORE "{ return s + 3; }");
  check_constant(NULL, one, 3);
  check_constant(NULL, two, 2);
  clattn_hook_release(one);
  clattn_hook_release(two);
  check_constant(NULL, NULL, 0);
}

/* Text that could leak into the kernels: what a hook leaves open at its end. */
static void ends_of_a_text(void **state) {
  static const char *const sources[] = {SCORE "{ return s + 1; } // end", SCORE "{ return s + 1; } // end \\",
                                        SCORE "{ return s + 1; } \\", SCORE "{ return s + 1; }\n/* end",
                                        "#define ADDED 1\r\n" SCORE "{ return s + ADDED; }\r\n"};
  (void)state;
  for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
    clattn_hook *hook = hook_of(sources[i]);
    check_constant(NULL, hook, 1);
    clattn_hook_release(hook);
  }
}

static void expect_refusal(const clattn_hook *hook, const char *place) {
  const job j = {.line = "sq=5 sk=7 d=4", .hook = hook};
  const clattn_problem problem = device_problem(&j, ALL_OUTPUTS, CLATTN_STAGE_MASKED);
  clattn_plan *plan = NULL;
  clattn_error error;
  char log[8192] = "";
  clattn_error_init(&error);
  error.build_log = log;
  error.build_log_capacity = sizeof log;
  assert_int_equal(clattn_plan_create(context, &problem, NULL, &plan, &error), CL_BUILD_PROGRAM_FAILURE);
  assert_null(plan);
  if (strstr(log, place) == NULL)
    fail_msg("'%s' is not in the log:\n%s", place, log);
  assert_non_null(strstr(error.message, "hook"));
}

static void expect_support(const clattn_hook *hook, clattn_status status) {
  const job j = {.line = "sq=5 sk=7 d=4", .hook = hook};
  const clattn_problem problem = device_problem(&j, ALL_OUTPUTS, CLATTN_STAGE_MASKED);
  clattn_support support;
  clattn_support_init(&support);
  assert_int_equal(clattn_supported(context, &problem, NULL, &support), status);
  assert_int_equal(support.status, status);
}

static void mistakes_are_told_with_their_lines(void **state) {
  static const struct {
    const char *source, *place;
  } cases[] = {
      {SCORE "{\n  return s +;\n}\n", "hook:2:"},
      {"\n\n" SCORE "{ return none; }", "hook:3:"},
      {"// a\n" KEEP "{\n  return at->nothing;\n}\n" SCORE "{ return s; }", "hook:3:"},
      {SCORE "{\n  return s;\n", "hook:5:"}, /* the line behind it */
      {"#if 1\n" SCORE "{ return s; }\n", "hook:1:"},
  };
  clattn_hook *good = hook_of(SCORE "{ return s; }");
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    clattn_hook *bad = hook_of(cases[i].source), *same = hook_of(cases[i].source);
    expect_support(bad, CLATTN_SUCCESS); /* nothing is known yet */
    expect_refusal(bad, cases[i].place);
    expect_refusal(bad, cases[i].place); /* remembered, with its log */
    expect_support(bad, CL_BUILD_PROGRAM_FAILURE);
    expect_support(same, CLATTN_SUCCESS);
    expect_support(good, CLATTN_SUCCESS);
    expect_support(NULL, CLATTN_SUCCESS);
    clattn_hook_release(bad);
    clattn_hook_release(same);
  }
  check_constant(NULL, good, 0);
  clattn_hook_release(good);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(definitions_are_found),
      cmocka_unit_test(pointers_are_checked),
      cmocka_unit_test(causal_by_hand_equals_the_rule_bit_by_bit),
      cmocka_unit_test(t5_bias),
      cmocka_unit_test(swin_windows),
      cmocka_unit_test(documents_see_themselves),
      cmocka_unit_test(tanh_cap_comes_after_the_bias),
      cmocka_unit_test(fields_say_which_pair),
      cmocka_unit_test(buffers_and_scalars_arrive),
      cmocka_unit_test(absent_scalars_are_zero),
      cmocka_unit_test(special_scores_follow_the_rules),
      cmocka_unit_test(hooks_in_turn),
      cmocka_unit_test(ends_of_a_text),
      cmocka_unit_test(mistakes_are_told_with_their_lines),
  };
  return cmocka_run_group_tests(tests, hook_device_open, hook_device_close);
}
