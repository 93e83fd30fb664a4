/* SPDX-License-Identifier: Apache-2.0 */
/* The clattn program from outside: results against a plain double-precision loop, and every bad input with its exit
 * code and message, and no file touched.  test_cli_rules.c has the rules' own options. */
#define _XOPEN_SOURCE 700 /* mkdtemp, realpath */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli_program.h"

/* ---- a plain reference ---- */

enum { B = 2, HQ = 4, HKV = 2, SQ = 5, SK = 7, D = 4, DV = 6 };

static float q[B][HQ][SQ][D], k[B][HKV][SK][D], v[B][HKV][SK][DV], bias[HQ][SQ][SK];
static uint8_t mask[B][1][1][SK];
static const int32_t lengths[B] = {7, 3};

typedef struct rules {
  int causal, use_bias, use_mask, use_lengths;
  int64_t offset;
  int64_t left, right; /* -1: unlimited */
  double scale, softcap;
} rules;
static const rules plain = {0, 0, 0, 0, 0, -1, -1, 0.5, 0};

static double want_o[B][HQ][SQ][DV], want_lse[B][HQ][SQ], want_raw[B][HQ][SQ][SK], want_masked[B][HQ][SQ][SK],
    want_weights[B][HQ][SQ][SK];

static int keeps(const rules *r, int b, int i, int j) {
  const int64_t p = i + r->offset;
  return !(r->causal && j > p) && !(r->left >= 0 && j < p - r->left) && !(r->right >= 0 && j > p + r->right) &&
         !(r->use_mask && mask[b][0][0][j] == 0) && !(r->use_lengths && j >= lengths[b]);
}

static void reference_row(const rules *r, int b, int h, int i) {
  double most = -INFINITY, sum = 0;
  const int kv = h / (HQ / HKV);
  for (int j = 0; j < SK; j++) {
    double s = 0;
    for (int d = 0; d < D; d++)
      s += (double)q[b][h][i][d] * (double)k[b][kv][j][d];
    s *= r->scale;
    want_raw[b][h][i][j] = r->use_lengths && j >= lengths[b] ? -INFINITY : s;
    if (r->softcap > 0)
      s = r->softcap * tanh(s / r->softcap);
    if (r->use_bias)
      s += (double)bias[h][i][j];
    want_masked[b][h][i][j] = keeps(r, b, i, j) ? s : -INFINITY;
    most = fmax(most, want_masked[b][h][i][j]);
  }
  for (int j = 0; j < SK; j++) {
    const double s = want_masked[b][h][i][j];
    want_weights[b][h][i][j] = s == -INFINITY ? 0 : exp(s - most);
    sum += want_weights[b][h][i][j];
  }
  want_lse[b][h][i] = most == -INFINITY ? -INFINITY : most + log(sum);
  for (int d = 0; d < DV; d++)
    want_o[b][h][i][d] = 0;
  for (int j = 0; j < SK; j++) {
    want_weights[b][h][i][j] = sum > 0 ? want_weights[b][h][i][j] / sum : 0;
    for (int d = 0; d < DV; d++)
      want_o[b][h][i][d] += want_weights[b][h][i][j] * (double)v[b][kv][j][d];
  }
}

static void reference(const rules *r) {
  for (int b = 0; b < B; b++)
    for (int h = 0; h < HQ; h++)
      for (int i = 0; i < SQ; i++)
        reference_row(r, b, h, i);
}

static const int64_t o_shape[4] = {B, HQ, SQ, DV}, pair_shape[4] = {B, HQ, SQ, SK};

static int start(void **state) {
  (void)state;
  if (enter_folder() != 0)
    return -1;
  fill(&q[0][0][0][0], B * HQ * SQ * D);
  fill(&k[0][0][0][0], B * HKV * SK * D);
  fill(&v[0][0][0][0], B * HKV * SK * DV);
  fill(&bias[0][0][0], HQ * SQ * SK);
  bias[1][2][3] = -INFINITY;
  for (int b = 0; b < B; b++)
    for (int j = 0; j < SK; j++)
      mask[b][0][0][j] = b == 0 || j % 3 != 1;
  write_npy("q.npy", "f4", 4, (const int64_t[]){B, HQ, SQ, D}, q);
  write_npy("k.npy", "f4", 4, (const int64_t[]){B, HKV, SK, D}, k);
  write_npy("v.npy", "f4", 4, (const int64_t[]){B, HKV, SK, DV}, v);
  write_npy("bias.npy", "f4", 3, (const int64_t[]){HQ, SQ, SK}, bias);
  write_npy("mask.npy", "b1", 4, (const int64_t[]){B, 1, 1, SK}, mask);
  write_npy("lengths.npy", "i4", 1, (const int64_t[]){B}, lengths);
  return 0;
}

/* ---- good paths ---- */

#define QKV "--q q.npy --k k.npy --v v.npy "

static void help_and_version(void **state) {
  (void)state;
  good("--help");
  says("usage: clattn COMMAND");
  says("examples:");
  assert_string_equal(err, "");
  good("--version");
  assert_memory_equal(out, "clattn ", 7);
  static const char *const commands[] = {"devices --help", "run --help", "explain --help"};
  for (size_t i = 0; i < 3; i++) {
    good(commands[i]);
    says("examples:");
    says("usage: clattn ");
  }
}

static void devices(void **state) {
  (void)state;
  good("devices");
  says("variants    ");
  says("flash-cpu-vector");
  says("three-step-cpu");
  says("three-step");
  says("  memory  ");
  good("devices --json");
  says("\"variants\":");
  says("\"id\":");
  char id[64] = "", command[128];
  const char *at = strstr(out, "\"id\":");
  assert_int_equal(sscanf(at, "\"id\": \"%63[^\"]", id), 1);
  assert_non_null(strchr(id, ':'));
  snprintf(command, sizeof command, "devices --require %s", id);
  good(command);
  /* Ids and numbers are both names of a device. */
  snprintf(command, sizeof command, "run " QKV "--device %s", id);
  good(command);
  good("run " QKV "--device 0");
  bad("devices --require no-such-vendor", 3, "no usable device matches 'no-such-vendor'");
  bad("run " QKV "--out kept.npy --device no:7", 3, "there is no such device");
}

static void every_rule(void **state) {
  (void)state;
  rules r[] = {plain, plain, plain, plain, plain, plain, plain, plain};
  static const char everything[] = "--causal top-left --window 1,inf --bias bias.npy --keep-mask mask.npy "
                                   "--k-lengths lengths.npy --softcap 2 --scale 0.7";
  static const char *const options[] = {"",
                                        "--causal top-left",
                                        "--causal=bottom-right --scale -0.25",
                                        "--causal --query-offset -1 --softcap 1.5",
                                        "--window 2,0 --query-offset 3",
                                        "--window inf,1 --bias bias.npy",
                                        "--keep-mask mask.npy --k-lengths lengths.npy --scale 0",
                                        everything};
  r[1].causal = 1;
  r[2].causal = 1;
  r[2].offset = SK - SQ;
  r[2].scale = -0.25;
  r[3].causal = 1;
  r[3].offset = -1; /* row 0 sees nothing */
  r[3].softcap = 1.5;
  r[4].left = 2;
  r[4].right = 0;
  r[4].offset = 3;
  r[5].right = 1;
  r[5].use_bias = 1;
  r[6].use_mask = r[6].use_lengths = 1;
  r[6].scale = 0;
  r[7] = (rules){1, 1, 1, 1, 0, 1, -1, 0.7, 2};
  for (size_t i = 0; i < sizeof r / sizeof r[0]; i++) {
    char command[512];
    snprintf(command, sizeof command, "run " QKV "%s --out o.npy --weights w.npy --scores s.npy --lse l.npy --verify",
             options[i]);
    good(command);
    says("verify      40 of 40 rows");
    reference(&r[i]);
    expect("o.npy", 4, o_shape, &want_o[0][0][0][0]);
    expect("l.npy", 3, pair_shape, &want_lse[0][0][0]);
    expect("w.npy", 4, pair_shape, &want_weights[0][0][0][0]);
    expect("s.npy", 4, pair_shape, &want_masked[0][0][0][0]);
    snprintf(command, sizeof command, "run " QKV "%s --out o.npy --scores s.npy --scores-stage raw", options[i]);
    good(command);
    expect("s.npy", 4, pair_shape, &want_raw[0][0][0][0]);
    expect("o.npy", 4, o_shape, &want_o[0][0][0][0]);
  }
}

/* The variant that is picked, by its name.  The others are only planned, with a cap that none can meet: --variant is
 * heard, and nothing is built (test_device.c runs them all). */
static void variants_and_caps(void **state) {
  (void)state;
  char command[256], names[512];
  reference(&plain);
  good("devices");
  const char *line = strstr(out, "variants    ");
  assert_non_null(line);
  assert_int_equal(sscanf(line, "variants %511[^\n]", names), 1);
  char *name = strtok(names, ", ");
  snprintf(command, sizeof command, "run " QKV "--out o.npy --variant %s --explain --workspace-cap 64K", name);
  good(command);
  expect("o.npy", 4, o_shape, &want_o[0][0][0][0]);
  snprintf(command, sizeof command, "variant     %s: ", name);
  says(command);
  static const char *const lines[] = {"problem     ", "workspace   ", "peak memory ", "why         "};
  for (size_t i = 0; i < 4; i++)
    says(lines[i]);
  for (; name != NULL; name = strtok(NULL, ", ")) {
    char part[256];
    snprintf(command, sizeof command,
             "run " QKV "--k-lengths lengths.npy --out kept.npy --variant %s --workspace-cap 32", name);
    snprintf(part, sizeof part, "variant %s needs at least", name);
    bad(command, 2, part);
  }
}

/* The same numbers in other orders: Fortran, (batch, row, head, dim), and fewer axes. */
static void orders_and_ranks(void **state) {
  (void)state;
  static float fortran[D][SQ][HQ][B], bshd_q[B][SQ][HQ][D], bshd_k[B][SK][HKV][D], bshd_v[B][SK][HKV][DV];
  static double bshd_o[B][SQ][HQ][DV];
  rules r = plain;
  r.causal = 1;
  reference(&r);
  for (int b = 0; b < B; b++)
    for (int h = 0; h < HQ; h++)
      for (int i = 0; i < SQ; i++) {
        for (int d = 0; d < D; d++)
          fortran[d][i][h][b] = bshd_q[b][i][h][d] = q[b][h][i][d];
        for (int d = 0; d < DV; d++)
          bshd_o[b][i][h][d] = want_o[b][h][i][d];
      }
  for (int b = 0; b < B; b++)
    for (int h = 0; h < HKV; h++)
      for (int j = 0; j < SK; j++) {
        memcpy(bshd_k[b][j][h], k[b][h][j], sizeof k[b][h][j]);
        memcpy(bshd_v[b][j][h], v[b][h][j], sizeof v[b][h][j]);
      }
  write_raw_npy("fortran.npy", "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 4, 5, 4)}  \n", fortran,
                sizeof fortran);
  good("run --q fortran.npy --k k.npy --v v.npy --causal top-left --out o.npy");
  expect("o.npy", 4, o_shape, &want_o[0][0][0][0]);
  write_npy("q2.npy", "f4", 4, (const int64_t[]){B, SQ, HQ, D}, bshd_q);
  write_npy("k2.npy", "f4", 4, (const int64_t[]){B, SK, HKV, D}, bshd_k);
  write_npy("v2.npy", "f4", 4, (const int64_t[]){B, SK, HKV, DV}, bshd_v);
  good("run --q q2.npy --k k2.npy --v v2.npy --layout bshd --causal top-left --out o.npy --weights w.npy --lse l.npy");
  expect("o.npy", 4, (const int64_t[]){B, SQ, HQ, DV}, &bshd_o[0][0][0][0]);
  expect("w.npy", 4, pair_shape, &want_weights[0][0][0][0]);
  expect("l.npy", 3, pair_shape, &want_lse[0][0][0]);
  /* One batch entry of rank 3, one head of rank 2. */
  write_npy("q2.npy", "f4", 3, (const int64_t[]){HQ, SQ, D}, q);
  write_npy("k2.npy", "f4", 3, (const int64_t[]){HKV, SK, D}, k);
  write_npy("v2.npy", "f4", 3, (const int64_t[]){HKV, SK, DV}, v);
  good("run --q q2.npy --k k2.npy --v v2.npy --causal top-left --out o.npy --weights w.npy --lse l.npy");
  expect("o.npy", 3, o_shape + 1, &want_o[0][0][0][0]);
  expect("w.npy", 3, pair_shape + 1, &want_weights[0][0][0][0]);
  expect("l.npy", 2, pair_shape + 1, &want_lse[0][0][0]);
  write_npy("q2.npy", "f4", 2, (const int64_t[]){SQ, D}, q);
  write_npy("k2.npy", "f4", 2, (const int64_t[]){SK, D}, k);
  write_npy("v2.npy", "f4", 2, (const int64_t[]){SK, DV}, v);
  good("run --q q2.npy --k k2.npy --v v2.npy --causal top-left --out o.npy --weights w.npy --lse l.npy");
  expect("o.npy", 2, o_shape + 2, &want_o[0][0][0][0]);
  expect("w.npy", 2, pair_shape + 2, &want_weights[0][0][0][0]);
  expect("l.npy", 1, pair_shape + 2, &want_lse[0][0][0]);
}

static void masks_of_every_rank(void **state) {
  (void)state;
  /* Batch entry 0 keeps all, so one row of batch entry 1 serves both ranks here. */
  rules r = plain;
  r.use_mask = 1;
  uint8_t saved[SK];
  memcpy(saved, mask[0][0][0], sizeof saved);
  memcpy(mask[0][0][0], mask[1][0][0], sizeof saved);
  reference(&r);
  memcpy(mask[0][0][0], saved, sizeof saved);
  write_npy("m.npy", "u1", 1, (const int64_t[]){SK}, mask[1]);
  good("run " QKV "--keep-mask m.npy --out o.npy");
  expect("o.npy", 4, o_shape, &want_o[0][0][0][0]);
  write_npy("m.npy", "b1", 2, (const int64_t[]){1, SK}, mask[1]);
  good("run " QKV "--keep-mask m.npy --out o.npy");
  expect("o.npy", 4, o_shape, &want_o[0][0][0][0]);
  good("run " QKV "--keep-mask '1 0 1 1 0 1 1' --out o.npy");
  expect("o.npy", 4, o_shape, &want_o[0][0][0][0]);
  reference(&(const rules){0, 0, 0, 1, 0, -1, -1, 0.5, 0});
  const int64_t wide[B] = {7, 3};
  write_npy("m.npy", "i8", 1, (const int64_t[]){B}, wide);
  good("run " QKV "--k-lengths m.npy --out o.npy");
  expect("o.npy", 4, o_shape, &want_o[0][0][0][0]);
  good("run " QKV "--k-lengths '7 3' --out o.npy");
  expect("o.npy", 4, o_shape, &want_o[0][0][0][0]);
}

static void text_matrices(void **state) {
  (void)state;
  /* q picks the first key: weights e/(e+1) and 1/(e+1). */
  const double big = exp(1) / (exp(1) + 1), small = 1 - big;
  const double want[2] = {big * 1 + small * 3, big * 2 + small * 4};
  write_text("k.csv", "\xef\xbb\xbf# two keys\n1, 0\r\n0, 1\r\n\n");
  write_text("v.txt", "1 2\n3\t4");
  good("run --q '1 0' --k k.csv --v v.txt --scale 1 --out o.npy");
  expect("o.npy", 2, (const int64_t[]){1, 2}, want);
  good("run --q '1,0' --k '1 0;0 1;' --v '1e0 2; +3 .4e1' --scale 1 --out o.npy");
  expect("o.npy", 2, (const int64_t[]){1, 2}, want);
  /* -inf is a number: an infinite key is excluded from nothing here, but a bias of -inf excludes. */
  good("run --q '1 0' --k '1 0;0 1' --v '1 2;3 4' --bias '0 -inf' --out o.npy");
  expect("o.npy", 2, (const int64_t[]){1, 2}, (const double[]){1, 2});
}

static void empty_axes(void **state) {
  (void)state;
  const double zero[8] = {0};
  const double none[2] = {-INFINITY, -INFINITY};
  write_npy("z.npy", "f4", 3, (const int64_t[]){1, 0, 4}, NULL);
  write_npy("two.npy", "f4", 3, (const int64_t[]){1, 2, 4}, q);
  good("run --q two.npy --k z.npy --v z.npy --out o.npy --lse l.npy --weights w.npy --verify");
  expect("o.npy", 3, (const int64_t[]){1, 2, 4}, zero);
  expect("l.npy", 2, (const int64_t[]){1, 2}, none);
  expect("w.npy", 3, (const int64_t[]){1, 2, 0}, zero);
  good("run --q z.npy --k two.npy --v two.npy --out o.npy --lse l.npy");
  expect("o.npy", 3, (const int64_t[]){1, 0, 4}, zero);
  good("run --q z.npy --k two.npy --v two.npy");
}

static void problem_lines(void **state) {
  (void)state;
  char first[4096], second[4096];
  good("run --problem 'b=2 hq=4 hkv=2 sq=9 sk=13 d=8 dv=5 causal=1' --seed 5 --out a.npy --verify");
  good("run --problem 'b=2 hq=4 hkv=2 sq=9 sk=13 d=8 dv=5 causal=1' --seed 5 --out b.npy");
  good("run --problem 'b=2 hq=4 hkv=2 sq=9 sk=13 d=8 dv=5 causal=1' --seed 6 --out c.npy");
  const size_t bytes = read_text("a.npy", first, sizeof first);
  assert_int_equal(read_text("b.npy", second, sizeof second), bytes);
  assert_memory_equal(first, second, bytes);
  read_text("c.npy", second, sizeof second);
  assert_memory_not_equal(first, second, bytes);
  /* Tensors that are given take part. */
  reference(&plain);
  good("run --problem 'b=2 hq=4 hkv=2 sq=5 sk=7 d=4 dv=6' " QKV "--out o.npy");
  expect("o.npy", 4, o_shape, &want_o[0][0][0][0]);
  /* A line that --explain printed runs again; large ones are verified in samples. */
  good("run " QKV
       "--causal top-left --keep-mask mask.npy --bias bias.npy --k-lengths lengths.npy --softcap 3 --explain");
  char line[512], command[1024];
  const char *at = strstr(out, "problem     ");
  assert_non_null(at);
  assert_int_equal(sscanf(at, "problem %511[^\n]", line), 1);
  snprintf(command, sizeof command, "run --problem '%s' --verify --json", line);
  good(command);
  says("\"ok\":\ttrue");
  says("\"weights\"");
  good("run --problem 'hq=2 sq=1500 sk=1500 d=64' --verify");
  assert_null(strstr(out, "3000 of 3000"));
  says(" of 3000 rows");
}

static void shows(void **state) {
  (void)state;
  good("run --q '1 0;0 1' --k '9 0;0 9' --v '1 2;3 4' --q-labels one,two --k-labels drei,vier");
  says("one \xe2\x96\x88\xe2\x96\x88 1.00");
  says("drei");
  says("o           (1, 1, 2, 2)  min ");
  assert_null(strchr(out, '\033')); /* not a terminal: no colour */
  write_text("labels.txt", "red\nb\033[31mlue\n");
  good("run --q '1 0;0 1' --k '9 0;0 9' --v '1 2;3 4' --k-labels @labels.txt");
  says("red");
  assert_null(strchr(out, '\033')); /* labels can't send commands to the terminal */
  good("run " QKV "--heat 1,3 --out o.npy");
  says("weights of batch entry 1, head 3");
  says("wrote       o.npy  f4 (2, 4, 5, 6)");
  good("run --problem 'sq=32 sk=32 d=4'");
  says("full shade");
  good("run --problem 'sq=33 sk=2 d=4'");
  assert_null(strstr(out, "full shade"));
  good("run " QKV "--json --out \"$(printf 'r\\351sum\\303\\251.npy')\"");
  assert_int_equal(out[0], '{');
  says("\"r\xef\xbf\xbdsum\xc3\xa9.npy\""); /* Latin-1 is not UTF-8, and JSON is */
  says("\"peak_memory_mb\":");
  good("explain --q '1 0;0 1' --k '1 0;0 1;1 1' --v '1 2;3 4;5 6' --causal top-left --k-labels a,b,c");
  says("s[i,j] = sum over d of q[i,d] k[j,d]");
  says("z[i,j] = s[i,j] / sqrt(2)");
  says("q1    0.0000    0.7071      -inf");
  says("q1    0.3302    0.6698    0.0000    1.0000");
  says("q1    2.3395    3.3395");
}

static void not_finite(void **state) {
  (void)state;
  good("run --q 'NaN' --k INF --v 1");
  says("min nan  max nan  mean nan");
  says("q0    nan");
  assert_null(strstr(out, "-nan"));
  good("run --q 'nan' --k -Infinity --v 1 --json");
  says("\"min\":\tnull");
  good("explain --q nan --k 1 --v 1");
  assert_null(strstr(out, "-nan"));
  /* A score of 1e60 is finite in the reference. */
  bad("run --q 1e30 --k 1e30 --v 1 --verify --out kept.npy", 1,
      "--verify: o has NaN or infinity in 1 places where the reference has finite numbers");
  assert_null(strstr(err, "rounding"));
}

/* ---- bad input ---- */

#define SMALL "run --q '1 0;0 1' --k '1 0;0 1' --v '1 2;3 4' --out kept.npy "

static void wrong_usage(void **state) {
  (void)state;
  static const struct {
    const char *arguments;
    const char *part;
  } cases[] = {
      {"", "usage:"},
      {"rnu", "did you mean 'run'?"},
      {"--verison", "unknown option"},
      {"run --qq x", "unknown option '--qq'; did you mean --q?"},
      {"run --wieghts x", "did you mean --weights?"},
      {"run --frobnicate", "see 'clattn run --help'"},
      {"devices --josn", "did you mean --json?"},
      {"explain extra", "'extra' is not an option"},
      {"run --q", "--q needs a value"},
      {"run --json=1", "--json takes no value"},
      {"run", "--q is missing"},
      {"run --q '1' --v '1'", "--k is missing"},
      {SMALL "--causal middle", "--causal takes top-left or bottom-right, not 'middle'"},
      {SMALL "--causal top-left --query-offset 1", "both say where the queries stand"},
      {SMALL "--query-offset 1.5", "not an integer"},
      {"run --q '1 0' --k '1 0;0 1' --v '1 2;3 4' --out kept.npy --causal", "--causal top-left"},
      {"run --q '1 0' --k '1 0;0 1' --v '1 2;3 4' --out kept.npy --causal", "--causal bottom-right"},
      {SMALL "--window 3", "--window takes two counts"},
      {SMALL "--window 3,-1", "--window takes two counts"},
      {SMALL "--window 3,x", "--window takes two counts"},
      {SMALL "--scale abc", "--scale: 'abc' is not a number"},
      {SMALL "--scale 1e99", "--scale: '1e99' is too large for a float"},
      {SMALL "--softcap 1e-50", "--softcap: '1e-50' is too small for a float"},
      {SMALL "--scale nan", "CLATTN_ERROR_VALUE"},
      {SMALL "--scale inf", "CLATTN_ERROR_VALUE"},
      {SMALL "--softcap -1", "CLATTN_ERROR_VALUE"},
      {SMALL "--softcap inf", "CLATTN_ERROR_VALUE"},
      {SMALL "--softcap nan", "CLATTN_ERROR_VALUE"},
      {SMALL "--layout shbd", "--layout takes bhsd or bshd"},
      {SMALL "--scores-stage raw", "--scores-stage needs --scores"},
      {SMALL "--scores s.npy --scores-stage weights", "weights are --weights"},
      {SMALL "--workspace-cap 0", "--workspace-cap: '0'"},
      {SMALL "--workspace-cap 5x", "--workspace-cap: '5x'"},
      {SMALL "--variant four-step", "CLATTN_ERROR_UNKNOWN_VARIANT"},
      {SMALL "--seed 1", "--seed is for --problem"},
      {SMALL "--q-labels a,b,c", "--q-labels has 3 labels, there are 2 queries"},
      {SMALL "--k-labels @nowhere.txt", "--k-labels: nowhere.txt: can't be opened"},
      {SMALL "--q-labels @", "--q-labels: the name of a file is missing behind '@'"},
      {SMALL "--causal top-left --causal bottom-right", "--causal is given twice"},
      {SMALL "--k-lengths 2 --k-lengths=2", "--k-lengths is given twice"},
      {SMALL "--heat 0,1", "there are 1 batch entries of 1 heads"},
      {SMALL "--heat 0", "--heat takes a batch entry and a head"},
      {"run --problem 'sq=40 sk=2 d=4' --heat 0,0 --out kept.npy", "1 to 32 queries and keys"},
      {"run --problem 'sq=2 sk=2 d=4 bogus=1' --out kept.npy", "bogus"},
      {"run --problem 'sq=2 sk=2 d=4 hook=yes' --out kept.npy", "which --hook FILE.cl must give"},
      /* Refused before 2^31 keys are drawn. */
      {"run --problem 'sq=1 sk=2147479551 d=1' --variant three-step --workspace-cap 1G --out kept.npy",
       "CLATTN_ERROR_WORKSPACE_TOO_SMALL"},
      {"run --problem 'sq=2 sk=2 d=4' --seed x --out kept.npy", "--seed: 'x'"},
      {"run --problem 'sq=2 sk=2 d=4' --scale 1 --out kept.npy", "--scale can't be given with --problem"},
      {"run --problem 'sq=2 sk=2 d=4' --bias bias.npy --out kept.npy", "the problem line does not use it"},
      {"run --problem 'sq=2 sk=2 d=4' --q q.npy --out kept.npy", "--q has shape (2, 4, 5, 4), the problem line says "
                                                                 "(1, 1, 2, 4)"},
      {"run --problem 'hq=8 hkv=3 sq=2 sk=2 d=4' --out kept.npy", "CLATTN_ERROR_SHAPE"},
      {"run --problem 'sq=2 sk=2 d=4611686018427387904' --out kept.npy", "CLATTN_ERROR_"},
      {"explain --q q.npy --k k.npy --v v.npy", "one matrix each"},
      {"explain --q '1 2 3 4 5 6 7 8 9' --k '1 2 3 4 5 6 7 8 9' --v '1'", "matrices from 1 x 1 to 8 x 8"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    bad(cases[i].arguments, 2, cases[i].part);
}

static void wrong_shapes(void **state) {
  (void)state;
  static const struct {
    const char *option;
    int rank;
    int64_t shape[5];
    const char *part;
  } cases[] = {
      {"k", 4, {2, 2, 7, 3}, "--q (2, 4, 5, 4) and --k (2, 2, 7, 3) do not fit: the head dimensions"},
      {"k", 4, {3, 2, 7, 4}, "--q (2, 4, 5, 4) and --k (3, 2, 7, 4) do not fit: the batch sizes"},
      {"k", 4, {2, 2, 6, 4}, "--k (2, 2, 6, 4) and --v (2, 2, 7, 6) do not fit: the numbers of keys"},
      {"k", 4, {2, 1, 7, 4}, "--k (2, 1, 7, 4) and --v (2, 2, 7, 6) do not fit: the numbers of heads"},
      {"q", 4, {2, 3, 5, 4}, "2 key heads do not divide 3 query heads"},
      {"q", 4, {2, 4, 5, 0}, "only the axis of queries may have length 0"},
      {"v", 4, {2, 0, 7, 6}, "only the axis of keys may have length 0"},
      {"q", 1, {4}, "1 axes; it must have 2 to 4"},
      {"q", 5, {1, 1, 1, 1, 1}, "5 axes"},
      {"bias", 4, {2, 4, 5, 6}, "--bias has shape (2, 4, 5, 6)"},
      {"bias", 2, {4, 7}, "(batch, heads, queries, keys) (2, 4, 5, 7)"},
      {"bias", 5, {1, 1, 1, 1, 1}, "5 axes; it must have 1 to 4"},
  };
  float zeros[512] = {0};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char command[256];
    write_npy("x.npy", "f4", cases[i].rank, cases[i].shape, zeros);
    const char *option = cases[i].option;
    snprintf(command, sizeof command, "run --q %s --k %s --v %s %s --out kept.npy",
             option[0] == 'q' ? "x.npy" : "q.npy", option[0] == 'k' ? "x.npy" : "k.npy",
             option[0] == 'v' ? "x.npy" : "v.npy", option[0] == 'b' ? "--bias x.npy" : "");
    bad(command, 2, cases[i].part);
  }
  write_npy("x.npy", "u1", 2, (const int64_t[]){2, 7}, zeros);
  bad("run " QKV "--keep-mask x.npy --out kept.npy", 2, "--keep-mask has shape (2, 7)");
  write_npy("x.npy", "i4", 1, (const int64_t[]){3}, zeros);
  bad("run " QKV "--k-lengths x.npy --out kept.npy", 2, "3 entries, the batch is 2");
  write_npy("x.npy", "i4", 2, (const int64_t[]){1, 2}, zeros);
  bad("run " QKV "--k-lengths x.npy --out kept.npy", 2, "2 axes; it must have 1");
  bad("run " QKV "--k-lengths '7 8' --out kept.npy", 2, "entry 1 is 8; it must be from 0 to 7");
  bad("run " QKV "--k-lengths '-1 8' --out kept.npy", 2, "entry 0 is -1");
  const int64_t far_off[2] = {1, INT64_C(1) << 40};
  write_npy("x.npy", "i8", 1, (const int64_t[]){2}, far_off);
  bad("run " QKV "--k-lengths x.npy --out kept.npy", 2, "entry 1 is 1099511627776");
}

static void wrong_files(void **state) {
  (void)state;
  static const struct {
    const char *type, *part;
  } types[] = {{"f8", "type f8 is not accepted here; it must be f4"}, {"b1", "type b1"}, {"i4", "type i4"}};
  const double zeros[64] = {0};
  for (size_t i = 0; i < 3; i++) {
    write_npy("x.npy", types[i].type, 2, (const int64_t[]){2, 4}, zeros);
    bad("run --q x.npy --k k.npy --v v.npy --out kept.npy", 2, types[i].part);
  }
  bad("run " QKV "--keep-mask bias.npy --out kept.npy", 2, "must be b1 or u1");
  bad("run " QKV "--bias mask.npy --out kept.npy", 2, "must be f4");
  bad("run " QKV "--k-lengths mask.npy --out kept.npy", 2, "must be i4 or i8");
  static const struct {
    const char *header, *part;
    size_t bytes;
  } headers[] = {
      {"{'descr': '>f4', 'fortran_order': False, 'shape': (2, 4)}\n", "big-endian", 32},
      {"{'descr': '|O', 'fortran_order': False, 'shape': (2, 4)}\n", "object arrays", 32},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4)}\n", "truncated", 31},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}\n", "overflows", 32},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999, 4)}\n", "truncated", 32},
  };
  for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
    write_raw_npy("x.npy", headers[i].header, zeros, headers[i].bytes);
    bad("run --q x.npy --k k.npy --v v.npy --out kept.npy", 2, headers[i].part);
  }
  write_text("x.npy", "");
  bad("run --q x.npy --k k.npy --v v.npy --out kept.npy", 2, "is empty (0 bytes)");
  write_text("x.npy", "hello\n");
  bad("run --q x.npy --k k.npy --v v.npy --out kept.npy", 2, "is not an .npy file");
  bad("run --q nowhere.npy --k k.npy --v v.npy --out kept.npy", 2, "nowhere.npy: can't be opened");
  bad("run --q . --k k.npy --v v.npy --out kept.npy", 2, "not a regular file");
  static const struct {
    const char *text, *part;
  } texts[] = {{"1 2\n3\n", "--q: x.csv: ragged matrix: row 2 has 1 values, row 1 has 2"},
               {"1,,2\n", "row 1, value 2 is missing"},
               {"1,2,\n", "row 1 ends with a comma"},
               {"a,b\n1,2\n", "row 1, value 1: 'a' is not a number"},
               {"1;2\n", "';' separates rows in inline text only"},
               {"1e99\n", "does not fit in a float"},
               {"\n# nothing\n", "no numbers in it"},
               {"", "is empty (0 bytes)"}};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    write_text("x.csv", texts[i].text);
    bad("run --q x.csv --k '1 0' --v '1' --out kept.npy", 2, texts[i].part);
  }
  bad("run --q '1 0;1' --k '1 0' --v '1' --out kept.npy", 2, "clattn: --q: ragged matrix: row 2 has 1 values");
  bad(SMALL "--keep-mask '1 2'", 2, "2 is not 0 or 1");
  bad(SMALL "--keep-mask '1 1e-50'", 2, "--keep-mask: row 1, value 2: '1e-50' is not an integer");
  bad(SMALL "--k-lengths '1.5'", 2, "--k-lengths: row 1, value 1: '1.5' is not an integer");
  bad(SMALL "--k-lengths 2147483648", 2, "2147483648 is not a 32-bit integer");
  bad("run --q '; ;' --k 1 --v 1 --out kept.npy", 2, "--q: '; ;' is neither a file nor numbers");
  bad("run --q '1 # c' --k 1 --v 1 --out kept.npy", 2, "--q: '1 # c' is neither a file nor numbers");
}

static void wrong_outputs(void **state) {
  (void)state;
  bad("run " QKV "--out nowhere/o.npy --lse kept.npy", 1, "--out: nowhere/o.npy: can't be written");
  bad("run " QKV "--out kept.npy/o.npy", 1, "can't be written");
  bad("run " QKV "--lse kept.npy --out .", 1, "not a regular file");
  bad("run " QKV "--out kept.npy --lse /dev/null", 1, "not a regular file");
  bad("run " QKV "--out kept.npy --lse ./kept.npy", 2, "--out and --lse name the same file");
  bad("run " QKV "--out new.npy --lse ./new.npy --scores kept.npy", 2, "name the same file");
  assert_int_equal(link("kept.npy", "kept2.npy"), 0);
  bad("run " QKV "--out kept.npy --weights kept2.npy", 2, "name the same file");
  bad("run " QKV "--out q.npy --lse kept.npy", 2, "--out q.npy would overwrite an input");
  bad("run " QKV "--k-lengths lengths.npy --lse ./lengths.npy", 2, "would overwrite an input");
  assert_int_equal(count_files("new.npy"), 0);
  reference(&plain); /* q.npy is whole */
  good("run " QKV "--out o.npy");
  expect("o.npy", 4, o_shape, &want_o[0][0][0][0]);
}

static void no_platform(void **state) {
  (void)state;
  assert_int_equal(mkdir("vendors", 0777), 0);
  static const char *const environment = "OCL_ICD_VENDORS=\"$PWD/vendors\" OCL_ICD_FILENAMES= ";
  bad_with(environment, SMALL, 3, "apt-get install pocl-opencl-icd");
  bad_with(environment, "devices", 3, "apt-get install pocl-opencl-icd");
  bad_with(environment, "devices --json", 3, "apt-get install pocl-opencl-icd");
  says("\"devices\":\t[]");
  bad_with(environment, "devices --require pocl", 3, "pocl-opencl-icd");
  bad_with(environment, "explain --q 1 --k 1 --v 1", 3, "pocl-opencl-icd");
}

/* A cache of its own, so that nobody else gets such a kernel. */
#define BROKEN "POCL_CACHE_DIR=\"${POCL_CACHE_DIR:-$PWD}/broken\" POCL_EXTRA_BUILD_FLAGS=-Dget_group_id="

/* PoCL adds options of its environment to every build: with them kernels fail to build, or compute something else. */
static void kernels_that_fail(void **state) {
  (void)state;
  good("devices");
  if (strstr(out, "Portable Computing Language") == NULL)
    skip();
  bad_with(BROKEN "no_such_function", "run --problem 'hq=2 sq=100 sk=50 d=8' --out kept.npy", 1,
           "CL_BUILD_PROGRAM_FAILURE");
  assert_non_null(strstr(err, "---- build log ----"));
  assert_non_null(strstr(err, "no_such_function"));
  /* Only the first tile of rows is computed. */
  bad_with(BROKEN "get_local_id", "run --problem 'hq=2 sq=100 sk=50 d=8' --out kept.npy --verify", 1,
           "more than rounding explains");
  says("TOO LARGE");
  bad_with(BROKEN "get_local_id", "run --problem 'hq=2 sq=100 sk=50 d=8' --out kept.npy --verify --json", 1,
           "--verify: o differs from the reference");
  says("\"ok\":\tfalse");
  /* One tile here, whose values the three-step pipeline computes in two parts: it alone leaves some out, and they are
   * 0, as all that is not written to a packed output is. */
  static const char apart[] = "run --problem 'd=8 dv=300 sk=8 total_q=8 q=packed o=packed' --out kept.npy ";
  char command[256];
  snprintf(command, sizeof command, "%s --verify=device", apart);
  bad_with(BROKEN "get_local_id", command, 1, "--verify: o differs from three-step-cpu");
  says("TOO LARGE");
}

/* Starts a run and waits until its temporary file is there. */
static pid_t start_until(const char *arguments, const char *partial) {
  const struct timespec pause = {0, 1000000};
  char command[512];
  snprintf(command, sizeof command, "exec \"$CLATTN_PROGRAM\" %s", arguments);
  const pid_t pid = start_program(command);
  for (int i = 0; i < 20000 && count_files(partial) == 0; i++)
    nanosleep(&pause, NULL);
  return pid;
}

static void ended_by_signals(void **state) {
  (void)state;
  static const struct {
    int signal, code;
    const char *part;
  } cases[] = {{SIGINT, 130, ""},  {SIGTERM, 143, ""},      {SIGHUP, 129, ""},
               {SIGUSR1, 138, ""}, {SIGQUIT, 1, "SIGQUIT"}, {SIGXCPU, 1, "processor time"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    signal(cases[i].signal, SIG_DFL); /* whatever this test was started with */
    const pid_t pid = start_until("run --problem 'hq=16 sq=16384 sk=16384 d=128' --out kept.npy", "kept.npy.partial-");
    assert_int_equal(kill(pid, cases[i].signal), 0);
    assert_int_equal(wait_for(pid), cases[i].code);
    if (strstr(err, cases[i].part) == NULL)
      fail_msg("no '%s' in: %s", cases[i].part, err);
    check_kept("run, ended");
  }
}

/* What happens to files in the middle of a run: it is stopped after it opened them.  A run that was quicker than the
 * stop is tried again. */
static void files_change_meanwhile(void **state) {
  (void)state;
  for (int what = 0; what < 2; what++) {
    int code = 0;
    for (int i = 0; i < 50 && code == 0; i++) {
      write_npy("cut.npy", "f4", 4, (const int64_t[]){B, HQ, SQ, D}, q);
      write_npy("o.npy", "f4", 1, (const int64_t[]){3}, (const float[]){1, 2, 3});
      const pid_t pid =
          start_until("run --q cut.npy --k k.npy --v v.npy --out o.npy --lse late.npy", "late.npy.partial-");
      assert_int_equal(kill(pid, SIGSTOP), 0);
      if (what == 0)
        assert_int_equal(truncate("cut.npy", 0), 0);
      else
        (void)mkdir("late.npy", 0777); /* fails when the run is over */
      assert_int_equal(kill(pid, SIGCONT), 0);
      code = wait_for(pid);
      (void)remove("late.npy");
    }
    assert_int_equal(code, 1);
    assert_non_null(strstr(err, what == 0 ? "SIGBUS" : "late.npy: is not a regular file any more"));
    assert_true(what == 0 || strstr(err, "no output was written") != NULL);
    expect("o.npy", 1, (const int64_t[]){3}, (const double[]){1, 2, 3});
  }
}

/* Streams that nobody reads, full disks, limits of a file's size. */
static void unwritable_streams(void **state) {
  (void)state;
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  assert_int_equal(close(ends[0]), 0);
  assert_int_equal(dup2(ends[1], 9), 9);
  static const struct {
    const char *command, *part;
    int code;
  } cases[] = {
      {"{ \"$CLATTN_PROGRAM\" " SMALL "--k-lengths 1 --workspace-cap 32 2>&9; }", "", 2},
      {"{ \"$CLATTN_PROGRAM\" " SMALL ">&9; }", "standard output can't be written", 1},
      {"{ \"$CLATTN_PROGRAM\" " SMALL "--json >/dev/full; }", "standard output can't be written", 1},
      {"ulimit -f 2048; exec \"$CLATTN_PROGRAM\" run --problem 'sq=65536 sk=2 d=8' --out kept.npy",
       "kept.npy: can't be written: File too large", 1},
      /* Less than PoCL's compiler needs, which then calls exit. */
      {"ulimit -f 64; exec \"$CLATTN_PROGRAM\" run --problem 'sq=3000 sk=2 d=8' --out kept.npy", "", 1},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const int code = wait_for(start_program(cases[i].command));
    if (code != cases[i].code || strstr(err, cases[i].part) == NULL)
      fail_msg("%s: exit %d: %s", cases[i].command, code, err);
    check_kept(cases[i].command);
  }
  close(ends[1]);
  close(9);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(help_and_version),   cmocka_unit_test(devices),
      cmocka_unit_test(every_rule),         cmocka_unit_test(variants_and_caps),
      cmocka_unit_test(orders_and_ranks),   cmocka_unit_test(masks_of_every_rank),
      cmocka_unit_test(text_matrices),      cmocka_unit_test(empty_axes),
      cmocka_unit_test(problem_lines),      cmocka_unit_test(shows),
      cmocka_unit_test(not_finite),         cmocka_unit_test(wrong_usage),
      cmocka_unit_test(wrong_shapes),       cmocka_unit_test(wrong_files),
      cmocka_unit_test(wrong_outputs),      cmocka_unit_test(no_platform),
      cmocka_unit_test(kernels_that_fail),  cmocka_unit_test(ended_by_signals),
      cmocka_unit_test(unwritable_streams), cmocka_unit_test(files_change_meanwhile),
  };
  return cmocka_run_group_tests(tests, start, leave_group);
}
