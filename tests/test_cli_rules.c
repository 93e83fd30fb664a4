/* SPDX-License-Identifier: Apache-2.0 */
/* The options of `clattn run` for the rules: each against another way to the same numbers, with both kinds of
 * --verify, and with every bad input. */
#define _XOPEN_SOURCE 700 /* mkdtemp, realpath */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli_program.h"

enum { B = 2, HQ = 4, HKV = 2, SQ = 5, SK = 7, D = 4, DV = 6 };

static float q[B][HQ][SQ][D], k[B][HKV][SK][D], v[B][HKV][SK][DV];

#define QKV "--q q.npy --k k.npy --v v.npy "

static int start(void **state) {
  (void)state;
  if (enter_folder() != 0)
    return -1;
  fill(&q[0][0][0][0], B * HQ * SQ * D);
  fill(&k[0][0][0][0], B * HKV * SK * D);
  fill(&v[0][0][0][0], B * HKV * SK * DV);
  write_npy("q.npy", "f4", 4, (const int64_t[]){B, HQ, SQ, D}, q);
  write_npy("k.npy", "f4", 4, (const int64_t[]){B, HKV, SK, D}, k);
  write_npy("v.npy", "f4", 4, (const int64_t[]){B, HKV, SK, DV}, v);
  return 0;
}

/* Runs with these options, writes NAME_o.npy, NAME_l.npy and NAME_w.npy, and compares with the reference and with
 * another variant on the device. */
static void compute(const char *name, const char *options) {
  char command[1024];
  snprintf(command, sizeof command, "run %s --verify=device", options);
  good(command);
  says("rows against three-step");
  snprintf(command, sizeof command, "run %s --out %s_o.npy --lse %s_l.npy --weights %s_w.npy --verify", options, name,
           name, name);
  good(command);
  says("rows against the double-precision reference");
}

static void open_npy(const char *name, const char *ending, clattn_npy *npy) {
  char path[64];
  snprintf(path, sizeof path, "%s_%s.npy", name, ending);
  if (clattn_npy_open(path, npy, message, sizeof message) != 0)
    fail_msg("%s", message);
}

/* Equal, which two infinities of a sign are, or near; NaN is neither. */
static int near_number(double a, double b) {
  return a == b || fabs(a - b) <= 1e-5;
}

/* The results of two runs.  Weights of runs whose keys have other places are not compared. */
static void same(const char *name, const char *other, int weights) {
  static const char *const endings[] = {"o", "l", "w"};
  for (int i = 0; i < 2 + weights; i++) {
    clattn_npy a, b;
    open_npy(name, endings[i], &a);
    open_npy(other, endings[i], &b);
    assert_int_equal(a.rank, b.rank);
    assert_memory_equal(a.shape, b.shape, sizeof a.shape);
    assert_true(a.bytes > 0);
    for (size_t e = 0; e < a.bytes / sizeof(float); e++) {
      const double got = (double)((const float *)a.data)[e], want = (double)((const float *)b.data)[e];
      if (!near_number(got, want))
        fail_msg("%s of %s and %s: number %zu is %g and %g", endings[i], name, other, e, got, want);
    }
    clattn_npy_close(&a);
    clattn_npy_close(&b);
  }
}

/* The same as `same`, but these runs must differ, so that what is compared with them has an effect. */
static void unlike(const char *name, const char *other) {
  clattn_npy a, b;
  size_t different = 0;
  open_npy(name, "o", &a);
  open_npy(other, "o", &b);
  assert_int_equal(a.bytes, b.bytes);
  for (size_t e = 0; e < a.bytes / sizeof(float); e++)
    different += !near_number((double)((const float *)a.data)[e], (double)((const float *)b.data)[e]);
  if (different == 0)
    fail_msg("%s and %s do not differ", name, other);
  clattn_npy_close(&a);
  clattn_npy_close(&b);
}

/* Numbers of a run's file. */
static void load(const char *name, const char *ending, float *numbers, size_t count) {
  clattn_npy npy;
  open_npy(name, ending, &npy);
  assert_int_equal(npy.bytes, count * sizeof(float));
  memcpy(numbers, npy.data, npy.bytes);
  clattn_npy_close(&npy);
}

static int64_t floor_div(int64_t a, int64_t b) {
  return a / b - (a % b < 0);
}

/* ---- rules of position ---- */

static void chunks(void **state) {
  (void)state;
  static const int offsets[] = {1, -1}; /* the second puts row 0 into a chunk without keys */
  compute("plain", QKV);
  for (int n = 0; n < 2; n++) {
    uint8_t keep[SQ][SK];
    char options[128];
    for (int i = 0; i < SQ; i++)
      for (int j = 0; j < SK; j++)
        keep[i][j] = floor_div(i + offsets[n], 3) == j / 3;
    write_npy("keep.npy", "u1", 2, (const int64_t[]){SQ, SK}, keep);
    compute("mask", QKV "--keep-mask keep.npy");
    snprintf(options, sizeof options, QKV "--chunk 3 --query-offset %d", offsets[n]);
    compute("chunk", options);
    same("chunk", "mask", 1);
    unlike("chunk", "plain");
  }
}

static void prefixes(void **state) {
  (void)state;
  uint8_t keep[B][1][SQ][SK];
  static const int64_t prefix[B] = {3, 6};
  for (int each = 0; each < 2; each++) {
    for (int b = 0; b < B; b++)
      for (int i = 0; i < SQ; i++)
        for (int j = 0; j < SK; j++)
          keep[b][0][i][j] = j <= i || j < prefix[each ? b : 0];
    write_npy("keep.npy", "b1", 4, (const int64_t[]){B, 1, SQ, SK}, keep);
    compute("mask", QKV "--keep-mask keep.npy");
    if (!each) {
      compute("prefix", QKV "--causal top-left --prefix 3");
    } else {
      write_npy("prefix.npy", "i8", 1, (const int64_t[]){B}, prefix);
      compute("prefix", QKV "--causal top-left --prefix prefix.npy");
      compute("text", QKV "--causal top-left --prefix '3 6'");
      same("text", "prefix", 1);
    }
    same("prefix", "mask", 1);
  }
  compute("causal", QKV "--causal top-left");
  unlike("prefix", "causal");
}

static void lengths(void **state) {
  (void)state;
  static float o[B][HQ][SQ][DV], l[B][HQ][SQ], w[B][HQ][SQ][SK];
  uint8_t keep[B][1][SQ][SK];
  static const int32_t q_lengths[B] = {5, 2}, k_lengths[B] = {0, 4};
  for (int b = 0; b < B; b++)
    for (int i = 0; i < SQ; i++)
      for (int j = 0; j < SK; j++)
        keep[b][0][i][j] = i < q_lengths[b] && j < k_lengths[b] && j <= i + k_lengths[b] - q_lengths[b];
  write_npy("keep.npy", "b1", 4, (const int64_t[]){B, 1, SQ, SK}, keep);
  write_npy("ql.npy", "i4", 1, (const int64_t[]){B}, q_lengths);
  compute("mask", QKV "--keep-mask keep.npy");
  compute("lengths", QKV "--q-lengths ql.npy --k-lengths '0 4' --causal bottom-right");
  same("lengths", "mask", 1);
  load("lengths", "o", &o[0][0][0][0], B * HQ * SQ * DV);
  load("lengths", "l", &l[0][0][0], B * HQ * SQ);
  load("lengths", "w", &w[0][0][0][0], B * HQ * SQ * SK);
  for (int b = 0; b < B; b++)
    for (int i = 0; i < SQ; i++)
      if (b == 0 || i >= 2) {
        assert_true(l[b][3][i] == -INFINITY);
        assert_true(o[b][3][i][0] == 0 && w[b][3][i][0] == 0);
      }
  assert_true(isfinite(l[1][3][1]));
}

/* ---- scores ---- */

static void alibi(void **state) {
  (void)state;
  static const float standard[HQ] = {0.25f, 0.0625f, 0.015625f, 0.00390625f}; /* 2^-2, 2^-4, 2^-6, 2^-8 */
  static const float slopes[B][HQ] = {{1, 0.5f, 0.125f, 0}, {0.75f, 2, -0.5f, 0.375f}};
  static float bias[B][HQ][SQ][SK], turned[HQ][B];
  for (int b = 0; b < B; b++)
    for (int h = 0; h < HQ; h++) {
      turned[h][b] = slopes[b][h];
      for (int i = 0; i < SQ; i++)
        for (int j = 0; j < SK; j++)
          bias[b][h][i][j] = standard[h] * (float)(j - i);
    }
  write_npy("bias.npy", "f4", 3, (const int64_t[]){HQ, SQ, SK}, bias);
  compute("bias", QKV "--bias bias.npy --causal top-left");
  compute("alibi", QKV "--alibi signed --causal top-left");
  same("alibi", "bias", 1);
  /* Slopes per batch entry, positions from 2 on. */
  for (int b = 0; b < B; b++)
    for (int h = 0; h < HQ; h++)
      for (int i = 0; i < SQ; i++)
        for (int j = 0; j < SK; j++)
          bias[b][h][i][j] = -slopes[b][h] * fabsf((float)(j - (i + 2)));
  write_npy("bias.npy", "f4", 4, (const int64_t[]){B, HQ, SQ, SK}, bias);
  write_npy("slopes.npy", "f4", 2, (const int64_t[]){B, HQ}, slopes);
  compute("bias", QKV "--bias bias.npy --query-offset 2 --softcap 2");
  compute("alibi", QKV "--alibi symmetric --alibi-slopes slopes.npy --query-offset 2 --softcap 2");
  same("alibi", "bias", 1);
  write_raw_npy("slopes.npy", "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 4)}  \n", turned, sizeof turned);
  compute("turned", QKV "--alibi symmetric --alibi-slopes slopes.npy --query-offset 2 --softcap 2");
  same("turned", "bias", 1);
  compute("shared", QKV "--alibi symmetric --alibi-slopes '1 0.5 0.125 0' --query-offset 2 --softcap 2");
  unlike("shared", "bias");
  compute("standard", QKV "--alibi symmetric");
  compute("text", QKV "--alibi symmetric --alibi-slopes '0.25 0.0625 0.015625 0.00390625'");
  same("standard", "text", 1);
}

/* From the plain run by hand: lse' = ln(exp(lse) + exp(sink)), and everything else shrinks by exp(lse - lse'). */
static void sinks(void **state) {
  (void)state;
  static const float sink[HQ] = {0.5f, -3, 4, -INFINITY};
  static float o[B][HQ][SQ][DV], l[B][HQ][SQ], w[B][HQ][SQ][SK];
  static double want_o[B][HQ][SQ][DV], want_l[B][HQ][SQ], want_w[B][HQ][SQ][SK];
  compute("plain", QKV "--k-lengths '7 0'");
  load("plain", "o", &o[0][0][0][0], B * HQ * SQ * DV);
  load("plain", "l", &l[0][0][0], B * HQ * SQ);
  load("plain", "w", &w[0][0][0][0], B * HQ * SQ * SK);
  for (int b = 0; b < B; b++)
    for (int h = 0; h < HQ; h++)
      for (int i = 0; i < SQ; i++) {
        const double sum = exp((double)l[b][h][i]) + exp((double)sink[h]);
        const double share = sum > 0 ? exp((double)l[b][h][i]) / sum : 0;
        want_l[b][h][i] = log(sum);
        for (int d = 0; d < DV; d++)
          want_o[b][h][i][d] = share * (double)o[b][h][i][d];
        for (int j = 0; j < SK; j++)
          want_w[b][h][i][j] = share * (double)w[b][h][i][j];
      }
  write_npy("sink.npy", "f4", 1, (const int64_t[]){HQ}, sink);
  compute("sink", QKV "--k-lengths '7 0' --sink sink.npy");
  expect("sink_o.npy", 4, (const int64_t[]){B, HQ, SQ, DV}, &want_o[0][0][0][0]);
  expect("sink_l.npy", 3, (const int64_t[]){B, HQ, SQ}, &want_l[0][0][0]);
  expect("sink_w.npy", 4, (const int64_t[]){B, HQ, SQ, SK}, &want_w[0][0][0][0]);
  compute("text", QKV "--k-lengths '7 0' --sink '0.5 -3 4 -inf'");
  same("text", "sink", 1);
}

static void max_logits(void **state) {
  (void)state;
  static float raw[B][HQ][SQ][SK];
  static double want[B][HQ];
  uint8_t keep[B][1][SQ][SK];
  for (int b = 0; b < B; b++)
    for (int i = 0; i < SQ; i++)
      for (int j = 0; j < SK; j++)
        keep[b][0][i][j] = b == 0 && (i + j) % 3 == 0;
  write_npy("keep.npy", "u1", 4, (const int64_t[]){B, 1, SQ, SK}, keep);
  good("run " QKV "--scores raw_s.npy --scores-stage raw");
  load("raw", "s", &raw[0][0][0][0], B * HQ * SQ * SK);
  for (int b = 0; b < B; b++)
    for (int h = 0; h < HQ; h++) {
      want[b][h] = -INFINITY;
      for (int i = 0; i < SQ; i++)
        for (int j = 0; j < SK; j++)
          if (keep[b][0][i][j])
            want[b][h] = fmax(want[b][h], (double)raw[b][h][i][j]);
    }
  good("run " QKV "--keep-mask keep.npy --softcap 1 --max-logit m.npy --verify");
  expect("m.npy", 2, (const int64_t[]){B, HQ}, &want[0][0]);
  says("max_logit   (2, 4)");
  good("run " QKV "--keep-mask keep.npy --softcap 1 --max-logit m.npy --verify=device --json");
  expect("m.npy", 2, (const int64_t[]){B, HQ}, &want[0][0]);
  says("\"option\":\t\"max-logit\"");
}

/* ---- masks ---- */

static void drop_masks(void **state) {
  (void)state;
  uint8_t keep[B][1][SQ][SK], drop[B][1][SQ][SK], turned[SK][SQ];
  for (int b = 0; b < B; b++)
    for (int i = 0; i < SQ; i++)
      for (int j = 0; j < SK; j++) {
        keep[b][0][i][j] = (b + 2 * i + j) % 4 != 0;
        drop[b][0][i][j] = keep[b][0][i][j] ? 0 : (uint8_t)(1 + 100 * b);
        turned[j][i] = drop[0][0][i][j];
      }
  write_npy("keep.npy", "b1", 4, (const int64_t[]){B, 1, SQ, SK}, keep);
  write_npy("drop.npy", "u1", 4, (const int64_t[]){B, 1, SQ, SK}, drop);
  compute("keep", QKV "--keep-mask keep.npy");
  compute("drop", QKV "--drop-mask drop.npy");
  same("drop", "keep", 1);
  write_npy("keep.npy", "b1", 2, (const int64_t[]){SQ, SK}, keep[0]);
  write_raw_npy("drop.npy", "{'descr': '|b1', 'fortran_order': True, 'shape': (5, 7)}\n", turned, sizeof turned);
  compute("keep", QKV "--keep-mask keep.npy");
  compute("drop", QKV "--drop-mask drop.npy");
  same("drop", "keep", 1);
  compute("keep", QKV "--keep-mask '1 0 1 1 0 1 1'");
  compute("drop", QKV "--drop-mask '0 1 0 0 1 0 0'");
  same("drop", "keep", 1);
}

static void block_masks(void **state) {
  (void)state;
  enum { QB = 3, KB = 3, LONG = 70 }; /* blocks of 2 queries and 3 keys; 70 keys are three words of bits */
  static float long_k[HKV][LONG][D], long_v[HKV][LONG][DV];
  uint8_t blocks[B][HQ][QB][KB], keep[B][HQ][SQ][SK], long_blocks[3][LONG], long_keep[SQ][LONG];
  for (int b = 0; b < B; b++)
    for (int h = 0; h < HQ; h++) {
      for (int r = 0; r < QB; r++)
        for (int c = 0; c < KB; c++)
          blocks[b][h][r][c] = (b + h + r + 2 * c) % 3 != 1;
      for (int i = 0; i < SQ; i++)
        for (int j = 0; j < SK; j++)
          keep[b][h][i][j] = blocks[b][h][i / 2][j / 3];
    }
  write_npy("blocks.npy", "b1", 4, (const int64_t[]){B, HQ, QB, KB}, blocks);
  write_npy("keep.npy", "b1", 4, (const int64_t[]){B, HQ, SQ, SK}, keep);
  compute("mask", QKV "--keep-mask keep.npy");
  compute("block", QKV "--block-mask blocks.npy --block-size 2,3");
  same("block", "mask", 1);
  /* One head's for all, of lower rank and as text; then one column for all keys. */
  write_npy("keep.npy", "b1", 2, (const int64_t[]){SQ, SK}, keep[0][0]);
  write_npy("blocks.npy", "u1", 2, (const int64_t[]){QB, KB}, blocks[0][0]);
  compute("mask", QKV "--keep-mask keep.npy");
  compute("block", QKV "--block-mask blocks.npy --block-size 2,3");
  same("block", "mask", 1);
  compute("mask", QKV "--keep-mask '1; 1; 0; 0; 1'");
  compute("block", QKV "--block-mask '1; 0; 1' --block-size 2,3");
  same("block", "mask", 1);
  fill(&long_k[0][0][0], HKV * LONG * D);
  fill(&long_v[0][0][0], HKV * LONG * DV);
  for (int r = 0; r < 3; r++)
    for (int j = 0; j < LONG; j++)
      long_blocks[r][j] = (r + 3 * j + j / 32) % 5 < 2;
  for (int i = 0; i < SQ; i++)
    memcpy(long_keep[i], long_blocks[i / 2], LONG);
  write_npy("long_q.npy", "f4", 3, (const int64_t[]){HQ, SQ, D}, q[0]);
  write_npy("long_k.npy", "f4", 3, (const int64_t[]){HKV, LONG, D}, long_k);
  write_npy("long_v.npy", "f4", 3, (const int64_t[]){HKV, LONG, DV}, long_v);
  write_npy("blocks.npy", "b1", 2, (const int64_t[]){3, LONG}, long_blocks);
  write_npy("keep.npy", "b1", 2, (const int64_t[]){SQ, LONG}, long_keep);
#define LONG_QKV "--q long_q.npy --k long_k.npy --v long_v.npy "
  compute("mask", LONG_QKV "--keep-mask keep.npy");
  compute("block", LONG_QKV "--block-mask blocks.npy --block-size 2,1");
  same("block", "mask", 1);
}

/* ---- keys and values elsewhere ---- */

enum { PACKS = 3, QS = 5, KS = 7 };
static const int32_t starts_q[PACKS + 1] = {0, 3, 3, 5}, starts_k[PACKS + 1] = {0, 4, 6, 7};
static float packed_q[QS][HQ][D], packed_k[KS][HKV][D], packed_v[KS][HKV][DV];
static float packed_o[QS][HQ][DV], packed_l[HQ][QS], packed_w[PACKS][HQ][3][4];

/* Some rows of a packed array as an array of its own. */
static void write_rows(const char *path, const float *rows, int from, int to, int heads, int dim) {
  static float one[KS * HQ * DV];
  for (int h = 0; h < heads; h++)
    for (int r = from; r < to; r++)
      memcpy(one + (h * (to - from) + r - from) * dim, rows + (r * heads + h) * dim, (size_t)dim * sizeof(float));
  write_npy(path, "f4", 3, (const int64_t[]){heads, to - from, dim}, one);
}

/* The packed run "pack" against one run per sequence.  Lengths (NULL: whole sequences) shorten them. */
static void compare_sequences(const char *options, const int32_t *q_lengths, const int32_t *k_lengths) {
  load("pack", "o", &packed_o[0][0][0], QS * HQ * DV);
  load("pack", "l", &packed_l[0][0], HQ * QS);
  load("pack", "w", &packed_w[0][0][0][0], PACKS * HQ * 3 * 4);
  for (int b = 0; b < PACKS; b++) {
    float o[HQ * 3 * DV], l[HQ * 3], w[HQ * 3 * 4];
    const int first = starts_q[b], rows = q_lengths != NULL ? q_lengths[b] : starts_q[b + 1] - first;
    const int keys = k_lengths != NULL ? k_lengths[b] : starts_k[b + 1] - starts_k[b];
    for (int i = rows; i < starts_q[b + 1] - first; i++) {
      assert_true(packed_l[1][first + i] == -INFINITY);
      assert_true(packed_o[first + i][1][0] == 0);
    }
    if (rows == 0)
      continue;
    write_rows("q1.npy", &packed_q[0][0][0], first, first + rows, HQ, D);
    write_rows("k1.npy", &packed_k[0][0][0], starts_k[b], starts_k[b] + keys, HKV, D);
    write_rows("v1.npy", &packed_v[0][0][0], starts_k[b], starts_k[b] + keys, HKV, DV);
    char command[256];
    snprintf(command, sizeof command, "--q q1.npy --k k1.npy --v v1.npy %s", options);
    compute("one", command);
    load("one", "o", o, (size_t)HQ * (size_t)rows * DV);
    load("one", "l", l, (size_t)HQ * (size_t)rows);
    load("one", "w", w, (size_t)HQ * (size_t)rows * (size_t)keys);
    for (int h = 0; h < HQ; h++)
      for (int i = 0; i < rows; i++) {
        if (!near_number((double)packed_l[h][first + i], (double)l[h * rows + i]))
          fail_msg("lse of sequence %d, head %d, row %d is %g, alone %g", b, h, i, (double)packed_l[h][first + i],
                   (double)l[h * rows + i]);
        for (int d = 0; d < DV; d++)
          assert_true(near_number((double)packed_o[first + i][h][d], (double)o[(h * rows + i) * DV + d]));
        for (int j = 0; j < 4; j++)
          assert_true(near_number((double)packed_w[b][h][i][j], j < keys ? (double)w[(h * rows + i) * keys + j] : 0));
      }
  }
}

static void packed(void **state) {
  (void)state;
  fill(&packed_q[0][0][0], QS * HQ * D);
  fill(&packed_k[0][0][0], KS * HKV * D);
  fill(&packed_v[0][0][0], KS * HKV * DV);
  write_npy("pq.npy", "f4", 3, (const int64_t[]){QS, HQ, D}, packed_q);
  write_npy("pk.npy", "f4", 3, (const int64_t[]){KS, HKV, D}, packed_k);
  write_npy("pv.npy", "f4", 3, (const int64_t[]){KS, HKV, DV}, packed_v);
  write_npy("sq.npy", "i4", 1, (const int64_t[]){PACKS + 1}, starts_q);
#define PACKED "--q pq.npy --k pk.npy --v pv.npy --cu-seqlens-q sq.npy --cu-seqlens-k '0 4 6 7' "
  compute("pack", PACKED "--causal bottom-right --window 2,inf");
  says("shapes      q (5, 4, 4)   k (7, 2, 4)   v (7, 2, 6)   (batch, heads, rows, dim), packed (rows, heads, dim)");
  compare_sequences("--causal bottom-right --window 2,inf", NULL, NULL);
  /* Rows that do not lie one after the other. */
  static float turned[D][HQ][QS];
  for (int i = 0; i < QS; i++)
    for (int h = 0; h < HQ; h++)
      for (int d = 0; d < D; d++)
        turned[d][h][i] = packed_q[i][h][d];
  write_raw_npy("tq.npy", "{'descr': '<f4', 'fortran_order': True, 'shape': (5, 4, 4)}  \n", turned, sizeof turned);
  compute("turned", "--q tq.npy --k pk.npy --v pv.npy --cu-seqlens-q sq.npy --cu-seqlens-k '0 4 6 7' "
                    "--causal bottom-right --window 2,inf");
  same("turned", "pack", 1);
  static const int32_t q_lengths[PACKS] = {3, 0, 1}, k_lengths[PACKS] = {2, 2, 1};
  compute("pack", PACKED "--q-lengths '3 0 1' --k-lengths '2 2 1' --alibi signed --causal bottom-right");
  compare_sequences("--alibi signed --causal bottom-right", q_lengths, k_lengths);
  /* Packed queries with keys that have a batch axis, and the other way round. */
  static float dense_k[PACKS][HKV][4][D], dense_v[PACKS][HKV][4][DV], dense_q[PACKS][HQ][3][D];
  for (int b = 0; b < PACKS; b++) {
    for (int h = 0; h < HKV; h++)
      for (int j = 0; j < starts_k[b + 1] - starts_k[b]; j++) {
        memcpy(dense_k[b][h][j], packed_k[starts_k[b] + j][h], sizeof dense_k[b][h][j]);
        memcpy(dense_v[b][h][j], packed_v[starts_k[b] + j][h], sizeof dense_v[b][h][j]);
      }
    for (int h = 0; h < HQ; h++)
      for (int i = 0; i < starts_q[b + 1] - starts_q[b]; i++)
        memcpy(dense_q[b][h][i], packed_q[starts_q[b] + i][h], sizeof dense_q[b][h][i]);
  }
  write_npy("dq.npy", "f4", 4, (const int64_t[]){PACKS, HQ, 3, D}, dense_q);
  write_npy("dk.npy", "f4", 4, (const int64_t[]){PACKS, HKV, 4, D}, dense_k);
  write_npy("dv.npy", "f4", 4, (const int64_t[]){PACKS, HKV, 4, DV}, dense_v);
  compute("pack", "--q pq.npy --k dk.npy --v dv.npy --cu-seqlens-q sq.npy --k-lengths '4 2 1'");
  compare_sequences("", NULL, NULL);
  compute("a", "--q dq.npy --k dk.npy --v dv.npy --q-lengths '3 0 2' --k-lengths '4 2 1'");
  compute("b", "--q dq.npy --k pk.npy --v pv.npy --q-lengths '3 0 2' --cu-seqlens-k '0 4 6 7'");
  same("a", "b", 1);
}

static void pages(void **state) {
  (void)state;
  enum { PAGES = 3, ROWS = 4 };
  static const int32_t used[B] = {7, 4};
  static const int64_t table[B][2] = {{2, 0}, {1, 99}}; /* the last entry lies behind every key */
  static float page_k[PAGES][ROWS][HKV][D], page_v[PAGES][ROWS][HKV][DV], rows_q[B * SQ][HQ][D];
  static float o[B][HQ][SQ][DV];
  static double want[B * SQ][HQ][DV];
  for (size_t i = 0; i < sizeof page_k / sizeof(float); i++)
    (&page_k[0][0][0][0])[i] = NAN; /* rows that no key is in */
  for (size_t i = 0; i < sizeof page_v / sizeof(float); i++)
    (&page_v[0][0][0][0])[i] = NAN;
  for (int b = 0; b < B; b++)
    for (int j = 0; j < used[b]; j++)
      for (int h = 0; h < HKV; h++) {
        memcpy(page_k[table[b][j / ROWS]][j % ROWS][h], k[b][h][j], sizeof k[b][h][j]);
        memcpy(page_v[table[b][j / ROWS]][j % ROWS][h], v[b][h][j], sizeof v[b][h][j]);
      }
  write_npy("page_k.npy", "f4", 4, (const int64_t[]){PAGES, ROWS, HKV, D}, page_k);
  write_npy("page_v.npy", "f4", 4, (const int64_t[]){PAGES, ROWS, HKV, DV}, page_v);
  write_npy("table.npy", "i8", 2, (const int64_t[]){B, 2}, table);
#define PAGED "--k page_k.npy --v page_v.npy --page-table table.npy --page-size 4 --k-lengths '7 4' "
  compute("dense", QKV "--k-lengths '7 4' --causal bottom-right");
  compute("paged", "--q q.npy " PAGED "--causal bottom-right");
  same("paged", "dense", 1);
  static float turned[D][HKV][ROWS][PAGES];
  for (int n = 0; n < PAGES; n++)
    for (int r = 0; r < ROWS; r++)
      for (int h = 0; h < HKV; h++)
        for (int d = 0; d < D; d++)
          turned[d][h][r][n] = page_k[n][r][h][d];
  write_raw_npy("turned_k.npy", "{'descr': '<f4', 'fortran_order': True, 'shape': (3, 4, 2, 4)}  \n", turned,
                sizeof turned);
  good("run --q q.npy --k turned_k.npy --v page_v.npy --page-table '2 0; 1 0' --page-size 4 --k-lengths '7 4' "
       "--causal bottom-right --out text_o.npy --lse text_l.npy");
  same("text", "dense", 0);
  /* Packed queries over the same pages. */
  for (int b = 0; b < B; b++)
    for (int h = 0; h < HQ; h++)
      for (int i = 0; i < SQ; i++)
        memcpy(rows_q[b * SQ + i][h], q[b][h][i], sizeof q[b][h][i]);
  write_npy("rows_q.npy", "f4", 3, (const int64_t[]){B * SQ, HQ, D}, rows_q);
  compute("packed", "--q rows_q.npy " PAGED "--cu-seqlens-q '0 5 10' --causal bottom-right");
  load("dense", "o", &o[0][0][0][0], B * HQ * SQ * DV);
  for (int b = 0; b < B; b++)
    for (int h = 0; h < HQ; h++)
      for (int i = 0; i < SQ; i++)
        for (int d = 0; d < DV; d++)
          want[b * SQ + i][h][d] = (double)o[b][h][i][d];
  expect("packed_o.npy", 3, (const int64_t[]){B * SQ, HQ, DV}, &want[0][0][0]);
}

/* ---- everything else ---- */

/* A row's bits alone and in a batch. */
static void batch_invariance(void **state) {
  (void)state;
  static float all[B][HQ][SQ][DV], one[HQ][SQ][DV];
  write_npy("q1.npy", "f4", 3, (const int64_t[]){HQ, SQ, D}, q[1]);
  write_npy("k1.npy", "f4", 3, (const int64_t[]){HKV, SK, D}, k[1]);
  write_npy("v1.npy", "f4", 3, (const int64_t[]){HKV, SK, DV}, v[1]);
  compute("all", QKV "--batch-invariant --causal bottom-right");
  compute("one", "--q q1.npy --k k1.npy --v v1.npy --batch-invariant --causal bottom-right");
  load("all", "o", &all[0][0][0][0], B * HQ * SQ * DV);
  load("one", "o", &one[0][0][0], HQ * SQ * DV);
  assert_memory_equal(all[1], one, sizeof one);
  good("run " QKV "--batch-invariant --explain");
  says("flags=batch_invariant");
}

/* Every rule in one call, and what --explain prints of it again, with drawn numbers. */
static void everything(void **state) {
  (void)state;
  static const char *const options[] = {
      QKV "--alibi signed --sink '1 2 3 4' --chunk 4 --causal top-left --prefix '2 5' --q-lengths '5 3' "
          "--k-lengths '6 7' --block-mask '1 0 1; 1 1 0; 1 1 1' --block-size 2,3 --drop-mask '0 0 0 1 0 0 0' "
          "--window 4,1 --softcap 3 --scale -0.5 --batch-invariant --max-logit m.npy ",
      "--q pq.npy --k pk.npy --v pv.npy --cu-seqlens-q sq.npy --cu-seqlens-k '0 4 6 7' --sink '1 2 3 4' --chunk 3 ",
      "--q rows_q.npy " PAGED "--cu-seqlens-q '0 5 10' --alibi symmetric --causal bottom-right --prefix 2 "};
  for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
    char command[1024], line[768];
    compute("every", options[i]);
    snprintf(command, sizeof command, "run %s --explain", options[i]);
    good(command);
    const char *at = strstr(out, "problem     ");
    assert_non_null(at);
    assert_int_equal(sscanf(at, "problem %767[^\n]", line), 1);
    snprintf(command, sizeof command, "run --problem '%s' --seed 3 --verify", line);
    good(command);
    snprintf(command, sizeof command, "run --problem '%s' --seed 3 --verify=device --json", line);
    good(command);
    says("\"ok\":\ttrue");
    says("\"against\":\t\"three-step");
  }
}

/* Arrays that are given to a problem line. */
static void given_to_a_line(void **state) {
  (void)state;
#define SIZES "run --problem 'b=2 hq=4 hkv=2 sq=5 sk=7 d=4 dv=6"
  static const struct {
    const char *files, *line;
  } cases[] = {
      {QKV "--sink '1 2 3 4' --alibi signed --alibi-slopes '1 0 1 0'",
       SIZES " sink=f32:bhsd alibi=signed' " QKV "--sink '1 2 3 4' --alibi-slopes '1 0 1 0'"},
      {QKV "--alibi symmetric", SIZES " alibi=symmetric' " QKV},
      {QKV "--causal top-left --prefix '1 6' --q-lengths '3 5' --k-lengths '7 2'",
       SIZES " causal=1 prefix=per_batch qlen=per_batch klen=per_batch' " QKV
             "--prefix '1 6' --q-lengths '3 5' --k-lengths '7 2'"},
      {QKV "--block-mask '1 0 1; 0 1 1; 1 1 1' --block-size 2,3 --drop-mask '1 0 0 0 0 0 0'",
       SIZES " mask=u8 block_mask=bits block_q=2 block_k=3' " QKV
             "--block-mask '1 0 1; 0 1 1; 1 1 1' --drop-mask '1 0 0 0 0 0 0'"},
      {"--q q.npy " PAGED,
       "run --problem 'b=2 hq=4 hkv=2 sq=5 sk=7 d=4 dv=6 k=paged v=paged klen=per_batch pages=3 max_pages=2 "
       "page_size=4' --q q.npy --k page_k.npy --v page_v.npy --page-table table.npy --k-lengths '7 4'"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char command[1024];
    compute("files", cases[i].files);
    snprintf(command, sizeof command, "%s --out line_o.npy --lse line_l.npy --weights line_w.npy", cases[i].line);
    good(command);
    same("line", "files", 1);
  }
  /* Packed results have the packed shape, and rows that no sequence has are 0. */
  good("run --problem 'b=3 hq=4 hkv=2 d=4 dv=6 q=packed k=packed v=packed o=packed total_q=5 total_k=7' "
       "--q pq.npy --k pk.npy --v pv.npy --cu-seqlens-q '0 3 3 4' --cu-seqlens-k '0 4 6 7' --out line_o.npy "
       "--lse line_l.npy --verify");
  static float o[QS][HQ][DV];
  load("line", "o", &o[0][0][0], QS * HQ * DV);
  assert_true(o[3][3][0] != 0 && o[4][3][0] == 0);
}

static void kinds_of_verify(void **state) {
  (void)state;
  good("run " QKV "--verify=reference");
  says("verify      40 of 40 rows against the double-precision reference");
  good("run " QKV "--variant three-step-cpu --verify=device");
  says("verify      40 of 40 rows against three-step: max |difference|  o ");
  good("run " QKV "--variant three-step --verify=device --json");
  says("\"against\":\t\"three-step-cpu\"");
  good("run " QKV "--verify --json");
  says("\"against\":\t\"reference\"");
}

static void help_names_every_option(void **state) {
  (void)state;
  static const char *const names[] = {
      "--alibi ",      "--alibi-slopes ", "--sink ",         "--chunk ",          "--prefix ",      "--q-lengths ",
      "--k-lengths ",  "--cu-seqlens-q ", "--cu-seqlens-k ", "--page-table ",     "--page-size ",   "--block-mask ",
      "--block-size ", "--drop-mask ",    "--max-logit ",    "--batch-invariant", "--verify=device"};
  static char text[1 << 16];
  good("run --help");
  memcpy(text, out, sizeof text);
  char *examples = strstr(text, "examples:");
  assert_non_null(examples);
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    const char *at = strstr(text, names[i]);
    if (at == NULL || at > examples || strstr(examples, names[i]) == NULL)
      fail_msg("'%s' is not in --help or has no example", names[i]);
  }
}

/* ---- bad input ---- */

static void wrong_options(void **state) {
  (void)state;
  static const struct {
    const char *options, *part;
  } cases[] = {
      {QKV "--keep-mask '1' --drop-mask '1'", "--keep-mask and --drop-mask are opposites"},
      {QKV "--alibi-slopes '1 1 1 1'", "--alibi-slopes needs --alibi signed or symmetric"},
      {QKV "--alibi both", "--alibi takes signed or symmetric, not 'both'"},
      {QKV "--block-mask '1'", "--block-mask needs --block-size Q,K"},
      {QKV "--block-size 2,2", "--block-size needs --block-mask F"},
      {QKV "--block-mask '1' --block-size 2", "--block-size takes two counts >= 1"},
      {QKV "--block-mask '1' --block-size 0,2", "as in 64,128; not '0,2'"},
      {QKV "--block-mask '1' --block-size 2,-1", "not '2,-1'"},
      {QKV "--chunk 0", "--chunk takes a number of keys >= 1, not '0'"},
      {QKV "--chunk x", "not 'x'"},
      {QKV "--prefix 3", "--prefix needs --causal"},
      {QKV "--causal top-left --prefix -1", "--prefix is -1; it must be from 0 to 2147483647"},
      {QKV "--causal top-left --prefix 99999999999", "--prefix is 99999999999"},
      {QKV "--causal top-left --prefix '1 -2'", "--prefix: entry 1 is -2; it must be from 0 to 2147483647"},
      {QKV "--causal top-left --prefix '1 2 3'", "--prefix has 3 entries, the batch is 2"},
      {QKV "--q-lengths '5 6'", "--q-lengths: entry 1 is 6; it must be from 0 to 5, the number of queries"},
      {QKV "--q-lengths '-1 5'", "--q-lengths: entry 0 is -1"},
      {QKV "--q-lengths 5", "--q-lengths has 1 entries, the batch is 2"},
      {QKV "--sink '1 2 3'", "--sink has shape (3,); it must be (heads,), here 4 heads"},
      {QKV "--alibi signed --alibi-slopes '1 2 3'", "--alibi-slopes has shape (1, 3); it must be (heads,) or (batch, "
                                                    "heads), here 4 heads and a batch of 2"},
      {QKV "--alibi signed --alibi-slopes '1 2 3 4;1 2 3 4;1 2 3 4'", "--alibi-slopes has shape (3, 4)"},
      {QKV "--page-table '0' --page-size 7", "--page-table needs --k-lengths F"},
      {QKV "--page-table '0' --k-lengths '7 7'", "--page-table needs --page-size N"},
      {QKV "--page-size 4", "--page-size needs --page-table F"},
      {"--q q.npy " PAGED "--cu-seqlens-k '0 1 2'", "--page-table and --cu-seqlens-k both say where the keys lie"},
      {PACKED "--layout bshd", "--layout is for arrays with a batch axis"},
      {PACKED "--causal", "--causal is ambiguous for 3 queries and 4 keys"},
      {PACKED "--k-lengths '4 3 1'", "--k-lengths: entry 1 is 3; it must be from 0 to 2, the number of keys of its "
                                     "sequence"},
      {PACKED "--q-lengths '3 1 2'", "--q-lengths: entry 1 is 1; it must be from 0 to 0"},
      {QKV "--verify=gpu", "--verify takes =device or =reference (the default), not 'gpu'"},
      {QKV "--batch-invariant=1", "--batch-invariant takes no value"},
      {QKV "--chunk 2 --chunk 3", "--chunk is given twice"},
      {QKV "--max-logit ./kept.npy", "--out and --max-logit name the same file"},
      {QKV "--sink q.npy", "--sink: q.npy: 4 axes; it must have 1"},
      {QKV "--block-mask '1 1 1 1; 1 1 1 1' --block-size 2,3",
       "--block-mask has shape (2, 4), which does not broadcast to the blocks' (batch, heads, query blocks, key "
       "blocks) "
       "(2, 4, 3, 3)"},
      {QKV "--drop-mask '1 0'", "--drop-mask has shape (1, 2), which does not broadcast to the scores'"},
      {QKV "--drop-mask '1 2'", "--drop-mask: 2 is not 0 or 1"},
      {QKV "--drop-mask q.npy", "--drop-mask: q.npy: type f4 is not accepted here; it must be b1 or u1"},
      {QKV "--block-mask q.npy --block-size 2,3", "--block-mask: q.npy: type f4"},
      {QKV "--q-lengths q.npy", "--q-lengths: q.npy: type f4 is not accepted here; it must be i4 or i8"},
      {QKV "--causal top-left --prefix q.npy", "--prefix: q.npy: type f4"},
      {QKV "--sink ints.npy", "--sink: ints.npy: type i4 is not accepted here; it must be f4"},
      {QKV "--alibi signed --alibi-slopes ints.npy", "--alibi-slopes: ints.npy: type i4"},
      {QKV "--sink nowhere.npy", "--sink: nowhere.npy: can't be opened"},
      {QKV "--rope quarter", "--rope takes half or interleaved, not 'quarter'"},
      {QKV "--rope half --rope-dim 3", "--rope-dim takes an even number of elements >= 2, not '3'"},
      {QKV "--rope-base 5", "--rope-base: only with --rope half or interleaved"},
      {QKV "--rope half --rope-cos '1 1'", "--rope-cos needs --rope-sin F"},
      {QKV "--rope half --positions-q '0 1 2 3 -4' --positions-k 0", "entry (0, 4) is -4; it must be from 0 to"},
      /* With a problem line. */
      {"--problem 'sq=2 sk=2 d=4' --alibi signed", "--alibi can't be given with --problem"},
      {"--problem 'sq=2 sk=2 d=4' --chunk 2", "--chunk can't be given with --problem"},
      {"--problem 'sq=2 sk=2 d=4' --batch-invariant", "--batch-invariant can't be given with --problem"},
      {"--problem 'sq=2 sk=2 d=4' --block-size 2,2", "--block-size can't be given with --problem"},
      {"--problem 'sq=2 sk=2 d=4' --page-size 2", "--page-size can't be given with --problem"},
      {"--problem 'sq=2 sk=2 d=4 rope=half' --rope half", "--rope can't be given with --problem"},
      {"--problem 'sq=2 sk=2 d=4' --sink 1", "--sink is given, but the problem line does not use it"},
      {"--problem 'sq=2 sk=2 d=4' --drop-mask 1", "--drop-mask is given, but the problem line does not use a mask"},
      {"--problem 'sq=2 sk=2 d=4 causal=1 prefix=1' --prefix 1",
       "--prefix is given, but the problem line does not use"},
      {"--problem 'sq=2 sk=2 d=4' --cu-seqlens-q '0 1'",
       "--cu-seqlens-q is given, but the problem line does not use it"},
      {"--problem 'd=4 q=packed o=packed total_q=6 sq=3 sk=2' --cu-seqlens-q '0 4'",
       "--cu-seqlens-q: entries 0 and 1 make a sequence of 4 rows; the problem line allows 3"},
      {"--problem 'b=2 d=4 q=packed o=packed total_q=6 sk=2' --cu-seqlens-q '0 4'",
       "--cu-seqlens-q has 2 entries, the batch of 2 needs 3"},
      {"--problem 'sq=2 sk=4 d=4 k=paged v=paged klen=per_batch pages=3 max_pages=2 page_size=2' --page-table '0 1'",
       "--page-table needs --k-lengths F"},
  };
  const int32_t ints[HQ] = {1, 2, 3, 4};
  write_npy("ints.npy", "i4", 1, (const int64_t[]){HQ}, ints);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char command[512];
    snprintf(command, sizeof command, "run %s --out kept.npy", cases[i].options);
    bad(command, 2, cases[i].part);
  }
}

static void wrong_sequences(void **state) {
  (void)state;
#define ROWS_QKV "run --q pq.npy --k pk.npy --v pv.npy --out kept.npy "
  static const struct {
    const char *arguments, *part;
  } cases[] = {
      {ROWS_QKV "--cu-seqlens-q '1 5' --cu-seqlens-k '0 7'", "--cu-seqlens-q: entry 0 is 1; it must be 0"},
      {ROWS_QKV "--cu-seqlens-q '0 3 2 5' --cu-seqlens-k '0 3 4 7'",
       "--cu-seqlens-q: entry 2 is 2, below the entry before it, 3"},
      {ROWS_QKV "--cu-seqlens-q '0 -1 5' --cu-seqlens-k '0 3 7'", "--cu-seqlens-q: entry 1 is -1, below"},
      {ROWS_QKV "--cu-seqlens-q '0 6' --cu-seqlens-k '0 7'",
       "--cu-seqlens-q: entry 1 is 6; it must be up to 5, the number of rows"},
      {ROWS_QKV "--cu-seqlens-q '0 4' --cu-seqlens-k '0 7'",
       "--cu-seqlens-q: entry 1, the last one, is 4; it must be 5, the number of rows of --q"},
      {ROWS_QKV "--cu-seqlens-q '0 5' --cu-seqlens-k '0 6'", "must be 7, the number of rows of --k"},
      {ROWS_QKV "--cu-seqlens-q '0' --cu-seqlens-k '0 7'",
       "--cu-seqlens-q has 1 entries; it must have one more than there are sequences"},
      {ROWS_QKV "--cu-seqlens-q '0 2 5' --cu-seqlens-k '0 7'", "--cu-seqlens-k has 2 entries, the batch of 2 needs 3"},
      {ROWS_QKV "--cu-seqlens-q pq.npy --cu-seqlens-k '0 7'", "--cu-seqlens-q: pq.npy: type f4"},
      {"run --q q.npy --k pk.npy --v pv.npy --cu-seqlens-q '0 5' --cu-seqlens-k '0 7' --out kept.npy",
       "--q: q.npy: 4 axes; it must have 3"},
      {"run --q '1 2; 3 4' --k pk.npy --v pv.npy --cu-seqlens-q '0 2' --cu-seqlens-k '0 7' --out kept.npy",
       "--q: text has 2 axes; here there must be 3"},
      {"run --q pq.npy --k dk.npy --v dv.npy --cu-seqlens-q '0 5' --out kept.npy",
       "--cu-seqlens-q has 2 entries, the batch of 3 needs 4"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    bad(cases[i].arguments, 2, cases[i].part);
}

static void wrong_pages(void **state) {
  (void)state;
#define PAGES_QKV "run --q q.npy --k page_k.npy --v page_v.npy --out kept.npy "
  static const struct {
    const char *arguments, *part;
  } cases[] = {
      {PAGES_QKV "--page-table '0 1;2 3' --page-size 4 --k-lengths '7 7'",
       "--page-table: entry (1, 1) is 3; it must be from 0 to 2, since --k has 3 pages"},
      {PAGES_QKV "--page-table '0 -1;2 1' --page-size 4 --k-lengths '7 7'", "--page-table: entry (0, 1) is -1"},
      {PAGES_QKV "--page-table '0 1;2 1' --page-size 8 --k-lengths '7 7'", "--page-size is 8, but --k"},
      {PAGES_QKV "--page-table '0 1;2 1' --page-size x --k-lengths '7 7'", "--page-size takes a number of keys"},
      {PAGES_QKV "--page-table '0 1;2 1' --page-size 4 --k-lengths '7 9'",
       "--k-lengths: entry 1 is 9; it must be from 0 to 8, the number of keys"},
      {PAGES_QKV "--page-table '0 1' --page-size 4 --k-lengths '7 7'",
       "--page-table has shape (1, 2); it must be (batch, pages), here 2 rows of at least one page"},
      {PAGES_QKV "--page-table q.npy --page-size 4 --k-lengths '7 7'", "--page-table: q.npy: type f4"},
      {"run --q q.npy --k pk.npy --v page_v.npy --page-table '0 1;2 1' --page-size 4 --k-lengths '7 7' --out kept.npy",
       "--k: pk.npy: 3 axes; it must have 4"},
      {"run --q q.npy --k page_k.npy --v dv.npy --page-table '0 1;2 1' --page-size 4 --k-lengths '7 7' --out kept.npy",
       "do not fit"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    bad(cases[i].arguments, 2, cases[i].part);
  bad("run --q q.npy " PAGED "--out table.npy --lse kept.npy", 2, "--out table.npy would overwrite an input");
  bad("run " PACKED "--out sq.npy --lse kept.npy", 2, "--out sq.npy would overwrite an input");
}

int main(void) {
  /* Later tests use files of earlier ones. */
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(help_names_every_option),
      cmocka_unit_test(chunks),
      cmocka_unit_test(prefixes),
      cmocka_unit_test(lengths),
      cmocka_unit_test(alibi),
      cmocka_unit_test(sinks),
      cmocka_unit_test(max_logits),
      cmocka_unit_test(drop_masks),
      cmocka_unit_test(block_masks),
      cmocka_unit_test(packed),
      cmocka_unit_test(pages),
      cmocka_unit_test(batch_invariance),
      cmocka_unit_test(everything),
      cmocka_unit_test(given_to_a_line),
      cmocka_unit_test(kinds_of_verify),
      cmocka_unit_test(wrong_options),
      cmocka_unit_test(wrong_sequences),
      cmocka_unit_test(wrong_pages),
  };
  return cmocka_run_group_tests(tests, start, leave_group);
}
