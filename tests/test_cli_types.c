/* SPDX-License-Identifier: Apache-2.0 */
/* Storage types, similarities, rotary embedding and hooks of `clattn run`: each against another way to the same numbers, with both
 * kinds of --verify, and with every bad input. */
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
#include "convert.h"

/* Rows of keys have an odd length and two groups of i4. */
enum { B = 2, HQ = 4, HKV = 2, SQ = 5, SK = 7, D = 35, DV = 6, GROUPS = 2 };
enum { Q_COUNT = B * HQ * SQ * D, K_ROWS = B * HKV * SK, K_COUNT = K_ROWS * D, V_COUNT = K_ROWS * DV };
enum { BIAS_COUNT = SQ * SK, O_COUNT = B * HQ * SQ * DV };

static float q[Q_COUNT], k[K_COUNT], v[V_COUNT], bias[BIAS_COUNT];
static const int64_t q_shape[] = {B, HQ, SQ, D}, k_shape[] = {B, HKV, SK, D}, v_shape[] = {B, HKV, SK, DV};
static const int64_t bias_shape[] = {SQ, SK};

#define QKV "--q q.npy --k k.npy --v v.npy "

static int start(void **state) {
  (void)state;
  if (enter_folder() != 0)
    return -1;
  fill(q, Q_COUNT);
  fill(k, K_COUNT);
  fill(v, V_COUNT);
  fill(bias, BIAS_COUNT);
  /* Numbers that no type below f32 holds. */
  for (int i = 0; i < Q_COUNT; i++)
    q[i] *= 0.7f;
  for (int i = 0; i < K_COUNT; i++)
    k[i] *= 0.7f;
  for (int i = 0; i < V_COUNT; i++)
    v[i] *= 0.7f;
  for (int i = 0; i < BIAS_COUNT; i++)
    bias[i] *= 0.7f;
  write_npy("q.npy", "f4", 4, q_shape, q);
  write_npy("k.npy", "f4", 4, k_shape, k);
  write_npy("v.npy", "f4", 4, v_shape, v);
  write_npy("bias.npy", "f4", 2, bias_shape, bias);
  return 0;
}

/* Runs with these options, writes NAME_o.npy, and compares with the reference and with another variant on the device. */
static void compute(const char *name, const char *options) {
  char command[1024];
  snprintf(command, sizeof command, "run %s --verify=device", options);
  good(command);
  says("rows against three-step");
  snprintf(command, sizeof command, "run %s --out %s_o.npy --verify", options, name);
  good(command);
  says("rows against the double-precision reference");
}

/* The numbers of NAME_o.npy, whose type is checked. */
static void load(const char *name, const char *type, float *numbers, size_t count) {
  clattn_npy npy;
  char path[64];
  clattn_dtype dtype = CLATTN_F32;
  snprintf(path, sizeof path, "%s_o.npy", name);
  if (clattn_npy_open(path, &npy, message, sizeof message) != 0)
    fail_msg("%s", message);
  assert_string_equal(npy.type, type);
  assert_int_equal(npy.bytes, count * clattn_npy_type_bytes(type));
  while (strcmp(cli_dtype_npy(dtype), type) != 0)
    dtype++;
  for (size_t i = 0; i < count; i++)
    numbers[i] = (float)cli_dtype_load(dtype, npy.data, (int64_t)i);
  clattn_npy_close(&npy);
}

/* Outputs of two runs, at most so far apart: absolutely, and in parts of the number. */
static void near_outputs(const char *name, const char *type, const char *other, double absolute, double relative) {
  static float a[O_COUNT], b[O_COUNT];
  load(name, type, a, O_COUNT);
  load(other, "f4", b, O_COUNT);
  for (size_t i = 0; i < O_COUNT; i++) {
    if (!(fabs((double)a[i] - (double)b[i]) <= absolute + relative * fabs((double)b[i])))
      fail_msg("%s and %s: number %zu is %g and %g", name, other, i, (double)a[i], (double)b[i]);
  }
}

/* How far the last run's o may be from sums with exact weights: flash-cpu-amx rounds weights to bf16, each by at most half
 * a unit in the last place, 2^-9 of it, and the weights of a row sum to 1. */
static double weights_rounded(void) {
  float largest = 0;
  if (strstr(out, "flash-cpu-amx") == NULL)
    return 0;
  for (int i = 0; i < V_COUNT; i++)
    largest = fmaxf(largest, fabsf(v[i]));
  return 0x1p-9 * (double)largest;
}

static void unlike(const char *name, const char *other) {
  static float a[O_COUNT], b[O_COUNT];
  load(name, "f4", a, O_COUNT);
  load(other, "f4", b, O_COUNT);
  for (size_t i = 0; i < O_COUNT; i++) {
    if (fabs((double)a[i] - (double)b[i]) > 2e-5)
      return;
  }
  fail_msg("%s and %s do not differ", name, other);
}

/* The same bytes. */
static void identical(const char *path, const char *other) {
  static char a[1 << 16], b[1 << 16];
  const size_t bytes = read_text(path, a, sizeof a);
  assert_true(bytes > 64 && bytes < sizeof a - 1);
  if (read_text(other, b, sizeof b) != bytes || memcmp(a, b, bytes) != 0)
    fail_msg("%s and %s differ", path, other);
}

/* ---- conversion ------------------------------------------------------------------------------------------------- */

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* The number that a pattern of so many exponent bits stands for. */
static double value_of(uint16_t bits, int exponent_bits) {
  const int fraction_bits = 15 - exponent_bits, most = (1 << exponent_bits) - 1, bias_of = most / 2;
  const int exponent = bits >> fraction_bits & most, fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = bits >> 15 != 0 ? -1 : 1;
  if (exponent == most)
    return fraction != 0 ? (double)NAN : sign * (double)INFINITY;
  if (exponent == 0)
    return sign * ldexp(fraction, 1 - bias_of - fraction_bits);
  return sign * ldexp(fraction + (1 << fraction_bits), exponent - bias_of - fraction_bits);
}

static void every_pattern(void **state) {
  (void)state;
  for (uint32_t n = 0; n < 0x10000; n++) {
    const uint16_t bits = (uint16_t)n;
    const float half = cli_from_f16(bits), brain = cli_from_bf16(bits);
    const double want_half = value_of(bits, 5), want_brain = value_of(bits, 8);
    if (!(isnan(want_half) ? isnan(half) : (double)half == want_half) || (bits_of(half) >> 31) != n >> 15)
      fail_msg("f16 %04x is read as %g", n, (double)half);
    if (!(isnan(want_brain) ? isnan(brain) : (double)brain == want_brain) || (bits_of(brain) >> 31) != n >> 15)
      fail_msg("bf16 %04x is read as %g", n, (double)brain);
    if (cli_to_f16(half) != bits || cli_to_bf16(brain) != bits)
      fail_msg("%04x comes back as %04x and %04x", n, cli_to_f16(half), cli_to_bf16(brain));
  }
}

/* Half way between neighbours the even one, beside it the nearer one; behind the last number there is infinity. */
static void ties(void **state) {
  (void)state;
  for (uint32_t n = 0; n < 0x7f80; n++) {
    for (int type = 0; type < 2; type++) {
      uint16_t (*const round)(float) = type == 0 ? cli_to_f16 : cli_to_bf16;
      if (type == 0 && n >= 0x7c00)
        continue;
      const int exponent_bits = type == 0 ? 5 : 8;
      /* The step to the next number is that of the number's own exponent. */
      const double low = value_of((uint16_t)n, exponent_bits);
      const double step = n == 0
                              ? value_of(1, exponent_bits)
                              : ldexp(1, ((int)(n >> (15 - exponent_bits)) < 1 ? 1 : (int)(n >> (15 - exponent_bits))) -
                                             (type == 0 ? 15 : 127) - (15 - exponent_bits));
      const float middle = (float)(low + step / 2);
      assert_true((double)middle == low + step / 2);
      const uint32_t even = n % 2 == 0 ? n : n + 1;
      const float below = float_of(bits_of(middle) - 1), above = float_of(bits_of(middle) + 1);
      if (round(middle) != even || round(below) != n || round(above) != n + 1 || round(-middle) != (even | 0x8000) ||
          round(-above) != ((n + 1) | 0x8000))
        fail_msg("%s beside %04x: %04x %04x %04x", type == 0 ? "f16" : "bf16", n, round(below), round(middle),
                 round(above));
    }
  }
  assert_int_equal(cli_to_f16(3e38f), 0x7c00);
  assert_int_equal(cli_to_f16(-INFINITY), 0xfc00);
  assert_int_equal(cli_to_f16(1e-30f), 0);
  assert_int_equal(cli_to_f16(-1e-30f), 0x8000);
  assert_int_equal(cli_to_bf16(float_of(0x7f7fffff)), 0x7f80);
  /* Payloads that do not fit must not make a NaN infinite. */
  assert_int_equal(cli_to_f16(float_of(0x7f800001)), 0x7c01);
  assert_int_equal(cli_to_bf16(float_of(0xff800001)), 0xff81);
}

/* One key: its value is the output.  A sum begins with +0, so that -0 alone becomes +0. */
static void patterns_through_files(void **state) {
  (void)state;
  enum { HEADS = 64, WIDE = 1024 };
  static uint16_t all[HEADS * WIDE];
  static float ones[HEADS * 2], widened[HEADS * WIDE];
  const int64_t shape[] = {HEADS, 1, WIDE}, narrow[] = {HEADS, 1, 2};
  for (uint32_t n = 0; n < HEADS * WIDE; n++)
    all[n] = (uint16_t)n;
  for (int i = 0; i < HEADS * 2; i++)
    ones[i] = 1;
  write_npy("ones.npy", "f4", 3, narrow, ones);
  for (int type = 0; type < 2; type++) {
    const char *name = type == 0 ? "f16" : "bf16", *npy_type = type == 0 ? "f2" : "u2";
    char command[256];
    clattn_npy npy;
    write_npy("all.npy", npy_type, 3, shape, all);
    snprintf(command, sizeof command,
             "run --q ones.npy --k ones.npy --v all.npy --v-dtype %s --out-dtype %s --out all_o.npy", name, name);
    good(command);
    assert_int_equal(clattn_npy_open("all_o.npy", &npy, message, sizeof message), 0);
    assert_string_equal(npy.type, npy_type);
    for (uint32_t n = 0; n < HEADS * WIDE; n++) {
      const uint16_t got = ((const uint16_t *)npy.data)[n];
      const double want = value_of((uint16_t)n, type == 0 ? 5 : 8), back = value_of(got, type == 0 ? 5 : 8);
      /* A device may flush numbers that are denormal in fp32, as those of bf16 are. */
      const int may_flush = type == 1 && fabs(want) < 0x1p-126 && got == 0;
      if (!(isnan(want) ? isnan(back) : got == n || (n == 0x8000 && got == 0)) && !may_flush)
        fail_msg("%s: %04x comes out as %04x", name, n, got);
    }
    clattn_npy_close(&npy);
    /* The same numbers read from f4, and rounded by the host. */
    for (uint32_t n = 0; n < HEADS * WIDE; n++)
      widened[n] = type == 0 ? cli_from_f16(all[n]) : cli_from_bf16(all[n]);
    write_npy("wide.npy", "f4", 3, shape, widened);
    snprintf(command, sizeof command,
             "run --q ones.npy --k ones.npy --v wide.npy --v-dtype %s --out-dtype %s --out wide_o.npy", name, name);
    good(command);
    clattn_npy again;
    assert_int_equal(clattn_npy_open("all_o.npy", &npy, message, sizeof message), 0);
    assert_int_equal(clattn_npy_open("wide_o.npy", &again, message, sizeof message), 0);
    assert_memory_equal(again.data, npy.data, npy.bytes);
    clattn_npy_close(&npy);
    clattn_npy_close(&again);
  }
  /* 65519 rounds to the largest f16, 65520 to infinity; the device rounds its output as the host its inputs. */
  good("run --q 1 --k 1 --v '65519 65520 -65520 2049 2051' --out-dtype f16 --out edge_o.npy --verify");
  static const float edges[] = {65504, INFINITY, -INFINITY, 2048, 2052};
  float got[5];
  load("edge", "f2", got, 5);
  assert_memory_equal(got, edges, sizeof edges);
  good("run --q 1 --k 1 --v '65519 65520 -65520 2049 2051' --v-dtype f16 --out edge_o.npy");
  load("edge", "f4", got, 5);
  assert_memory_equal(got, edges, sizeof edges);
}

/* ---- f16 and bf16 ------------------------------------------------------------------------------------------------ */

/* NAME16.npy and NAMEwide.npy: rounded, and what that stands for. */
static void write_rounded(const char *name, clattn_dtype dtype, int rank, const int64_t *shape, const float *data,
                          size_t count) {
  static uint16_t rounded[4096];
  static float widened[4096];
  char path[64];
  assert_true(count <= 4096);
  cli_dtype_convert(CLATTN_F32, data, dtype, rounded, count);
  cli_dtype_convert(dtype, rounded, CLATTN_F32, widened, count);
  snprintf(path, sizeof path, "%s16.npy", name);
  write_npy(path, cli_dtype_npy(dtype), rank, shape, rounded);
  snprintf(path, sizeof path, "%swide.npy", name);
  write_npy(path, "f4", rank, shape, widened);
}

static void rounded_inputs(void **state) {
  (void)state;
  static const clattn_dtype types[] = {CLATTN_F16, CLATTN_BF16};
  compute("plain", QKV "--bias bias.npy");
  for (int n = 0; n < 2; n++) {
    const char *t = cli_dtype_name(types[n]);
    char options[512];
    write_rounded("q", types[n], 4, q_shape, q, Q_COUNT);
    write_rounded("k", types[n], 4, k_shape, k, K_COUNT);
    write_rounded("v", types[n], 4, v_shape, v, V_COUNT);
    write_rounded("bias", types[n], 2, bias_shape, bias, BIAS_COUNT);
    compute("wide", "--q qwide.npy --k kwide.npy --v vwide.npy --bias biaswide.npy");
    unlike("wide", "plain");
    snprintf(options, sizeof options,
             "--q q16.npy --k k16.npy --v v16.npy --bias bias16.npy --q-dtype %s --k-dtype %s --v-dtype %s "
             "--bias-dtype %s",
             t, t, t, t);
    compute("stored", options); /* of q's type */
    near_outputs("stored", cli_dtype_npy(types[n]), "wide", 1e-5 + weights_rounded(), n == 0 ? 0x1p-11 : 0x1p-8);
    says(n == 0 ? "types       q f16   k f16   v f16   o f16" : "types       q bf16   k bf16   v bf16   o bf16");
    const size_t used = strlen(options);
    snprintf(options + used, sizeof options - used, " --out-dtype f32");
    compute("picked", options);
    near_outputs("picked", "f4", "wide", 1e-5 + weights_rounded(), 0);
    snprintf(options + used, sizeof options - used, " --out-dtype f32 --config forbid=matrix");
    compute("exact", options); /* no variant rounds weights but that on a matrix unit */
    near_outputs("exact", "f4", "wide", 1e-5, 0);
    /* Rounded by the host, the same bits arrive. */
    snprintf(options, sizeof options, QKV "--bias bias.npy --q-dtype %s --k-dtype %s --v-dtype %s --bias-dtype %s", t,
             t, t, t);
    compute("rounded", options);
    identical("rounded_o.npy", "stored_o.npy");
    /* One at a time, beside f32. */
    for (int i = 0; i < 4; i++) {
      static const char *const names[] = {"q", "k", "v", "bias"};
      snprintf(options, sizeof options, "run --q %s.npy --k %s.npy --v %s.npy --bias %s.npy --out one_o.npy",
               i == 0 ? "qwide" : "q", i == 1 ? "kwide" : "k", i == 2 ? "vwide" : "v", i == 3 ? "biaswide" : "bias");
      good(options);
      snprintf(options, sizeof options, QKV "--bias bias.npy --%s-dtype %s --out-dtype f32", names[i], t);
      compute("mixed", options);
      near_outputs("mixed", "f4", "one", 1e-5, 0);
    }
  }
  /* f2 needs no option, and becomes bf16 or f32 where one says so. */
  write_rounded("q", CLATTN_F16, 4, q_shape, q, Q_COUNT);
  good("run --q q16.npy --k k.npy --v v.npy --out own_o.npy --json");
  says("\"o\":\t\"f16\"");
  says("\"type\":\t\"f2\"");
  good("run " QKV "--q-dtype f16 --out host_o.npy");
  identical("own_o.npy", "host_o.npy");
  good("run --q q16.npy --k k.npy --v v.npy --q-dtype f32 --out own_o.npy");
  good("run --q qwide.npy --k k.npy --v v.npy --out host_o.npy");
  identical("own_o.npy", "host_o.npy");
  good("run --q q16.npy --k k.npy --v v.npy --q-dtype bf16 --out own_o.npy");
  good("run --q qwide.npy --k k.npy --v v.npy --q-dtype bf16 --out host_o.npy");
  identical("own_o.npy", "host_o.npy");
  /* explain reads numbers, whatever they are stored in. */
  write_npy("small.npy", "f2", 2, (const int64_t[]){1, 2}, (const uint16_t[]){0x3c00, 0xc000});
  good("explain --q small.npy --k small.npy --v small.npy");
  says("-2.0000");
}

/* Every layout that moves elements; an output that does not lie as the file does. */
static void layouts(void **state) {
  (void)state;
  static float turned[K_COUNT];
  compute("bhsd", QKV "--k-dtype f16 --q-dtype f16 --out-dtype f32");
  const int64_t order[] = {B, SQ, HQ, D}, k_order[] = {B, SK, HKV, D}, v_order[] = {B, SK, HKV, DV};
  static float q_rows[Q_COUNT], v_rows[V_COUNT], got[O_COUNT], want[O_COUNT];
  for (int64_t b = 0; b < B; b++)
    for (int64_t h = 0; h < HQ; h++)
      for (int64_t i = 0; i < SQ; i++)
        memcpy(&q_rows[((b * SQ + i) * HQ + h) * D], &q[((b * HQ + h) * SQ + i) * D], D * sizeof *q);
  for (int64_t b = 0; b < B; b++)
    for (int64_t h = 0; h < HKV; h++)
      for (int64_t j = 0; j < SK; j++) {
        memcpy(&turned[((b * SK + j) * HKV + h) * D], &k[((b * HKV + h) * SK + j) * D], D * sizeof *k);
        memcpy(&v_rows[((b * SK + j) * HKV + h) * DV], &v[((b * HKV + h) * SK + j) * DV], DV * sizeof *v);
      }
  write_npy("rq.npy", "f4", 4, order, q_rows);
  write_npy("rk.npy", "f4", 4, k_order, turned);
  write_npy("rv.npy", "f4", 4, v_order, v_rows);
  compute("bshd", "--q rq.npy --k rk.npy --v rv.npy --layout bshd --q-dtype f16 --k-dtype f16");
  load("bshd", "f2", got, O_COUNT);
  load("bhsd", "f4", want, O_COUNT);
  for (int64_t b = 0; b < B; b++)
    for (int64_t h = 0; h < HQ; h++)
      for (int64_t i = 0; i < SQ; i++)
        for (int64_t e = 0; e < DV; e++) {
          const double a = (double)got[((b * SQ + i) * HQ + h) * DV + e];
          const double c = (double)want[((b * HQ + h) * SQ + i) * DV + e];
          assert_true(fabs(a - c) <= 1e-5 + 0x1p-11 * fabs(c));
        }
  /* Quantised here, in rows of another order; packed; packed and rounded. */
  compute("bhsd", QKV "--k-dtype i4 --v-dtype i8");
  compute("bshd", "--q rq.npy --k rk.npy --v rv.npy --layout bshd --k-dtype i4 --v-dtype i8");
  load("bshd", "f4", got, O_COUNT);
  load("bhsd", "f4", want, O_COUNT);
  for (int64_t b = 0; b < B; b++)
    for (int64_t h = 0; h < HQ; h++)
      for (int64_t n = 0; n < SQ * DV; n++)
        assert_true(fabs((double)got[((b * SQ + n / DV) * HQ + h) * DV + n % DV] -
                         (double)want[(b * HQ + h) * SQ * DV + n]) <= 1e-5);
  write_npy("pq.npy", "f4", 3, (const int64_t[]){B * SQ, HQ, D}, q_rows);
  write_npy("pk.npy", "f4", 3, (const int64_t[]){B * SK, HKV, D}, turned);
  write_npy("pv.npy", "f4", 3, (const int64_t[]){B * SK, HKV, DV}, v_rows);
  compute("packed", "--q pq.npy --k pk.npy --v pv.npy --cu-seqlens-q '0 5 10' --cu-seqlens-k '0 7 14' --k-dtype i4 "
                    "--v-dtype i8");
  static float packed_rows[O_COUNT];
  load("packed", "f4", packed_rows, O_COUNT);
  for (size_t i = 0; i < O_COUNT; i++)
    assert_true(fabs((double)packed_rows[i] - (double)got[i]) <= 1e-5);
  /* Pages of one row each, in their order. */
  write_npy("gk.npy", "f4", 4, (const int64_t[]){B * SK, 1, HKV, D}, turned);
  write_npy("gv.npy", "f4", 4, (const int64_t[]){B * SK, 1, HKV, DV}, v_rows);
  compute("paged", "--q q.npy --k gk.npy --v gv.npy --page-table '0 1 2 3 4 5 6; 7 8 9 10 11 12 13' --page-size 1 "
                   "--k-lengths '7 7' --k-dtype i4 --v-dtype i8");
  near_outputs("paged", "f4", "bhsd", 1e-5, 0);
}

/* ---- i8 and i4 --------------------------------------------------------------------------------------------------- */

/* Codes and scales of rows, and the numbers that they stand for. */
static void quantise(const float *data, int rows, int dim, int i4, uint8_t *codes, float *scales, float *dequantised) {
  const int row_bytes = i4 ? (dim + 1) / 2 : dim, group = i4 ? 32 : dim, groups = (dim + group - 1) / group;
  memset(codes, 0, (size_t)rows * (size_t)row_bytes);
  for (int n = 0; n < rows * dim; n++) {
    const int r = n / dim, e = n % dim, g = e / group, end = (g + 1) * group < dim ? (g + 1) * group : dim;
    float most = 0;
    for (int i = g * group; i < end; i++)
      most = fmaxf(most, fabsf(data[r * dim + i]));
    const float scale = most / (i4 ? 7.0f : 127.0f);
    const int code = scale > 0 ? (int)lrintf(data[n] / scale) : 0;
    scales[r * groups + g] = scale;
    dequantised[n] = scale * (float)code;
    if (i4)
      codes[r * row_bytes + e / 2] |= (uint8_t)((code + 8) << (e % 2 * 4));
    else
      codes[r * row_bytes + e] = (uint8_t)code;
  }
}

static void codes(void **state) {
  (void)state;
  static uint8_t k8[K_COUNT], k4[K_COUNT], v8[V_COUNT], v4[V_COUNT];
  static float k_scale[K_ROWS * GROUPS], v_scale[K_ROWS], k_numbers[K_COUNT], v_numbers[V_COUNT];
  static uint16_t half_scale[K_ROWS * GROUPS];
  const int64_t one[] = {B, HKV, SK, 1}, two[] = {B, HKV, SK, GROUPS};
  compute("f32", QKV);
  for (int i4 = 0; i4 < 2; i4++) {
    const char *t = i4 ? "i4" : "i8";
    char options[256];
    quantise(k, K_ROWS, D, i4, i4 ? k4 : k8, k_scale, k_numbers);
    quantise(v, K_ROWS, DV, i4, i4 ? v4 : v8, v_scale, v_numbers);
    write_npy("kc.npy", i4 ? "u1" : "i1", 4, (const int64_t[]){B, HKV, SK, i4 ? (D + 1) / 2 : D}, i4 ? k4 : k8);
    write_npy("vc.npy", i4 ? "u1" : "i1", 4, (const int64_t[]){B, HKV, SK, i4 ? DV / 2 : DV}, i4 ? v4 : v8);
    write_npy("ks.npy", "f4", 4, i4 ? two : one, k_scale);
    write_npy("vs.npy", "f4", 4, one, v_scale);
    write_npy("kd.npy", "f4", 4, k_shape, k_numbers);
    write_npy("vd.npy", "f4", 4, v_shape, v_numbers);
    compute("dequantised", "--q q.npy --k kd.npy --v vd.npy");
    unlike("dequantised", "f32");
    snprintf(options, sizeof options,
             "--q q.npy --k kc.npy --v vc.npy --k-dtype %s --v-dtype %s --k-scale ks.npy "
             "--v-scale vs.npy",
             t, t);
    compute("codes", options);
    near_outputs("codes", "f4", "dequantised", 1e-5, 0);
    /* The program makes the same codes and scales. */
    snprintf(options, sizeof options, QKV "--k-dtype %s --v-dtype %s", t, t);
    compute("made", options);
    identical("made_o.npy", "codes_o.npy");
    snprintf(options, sizeof options, "types       q f32   k %s   v %s   o f32", t, t);
    says(options);
    /* One of the two, and scales in f2. */
    snprintf(options, sizeof options, "--q q.npy --k kc.npy --v vd.npy --k-dtype %s --k-scale ks.npy", t);
    compute("keys", options);
    near_outputs("keys", "f4", "dequantised", 1e-5, 0);
    const size_t scales = i4 ? K_ROWS * GROUPS : K_ROWS;
    cli_dtype_convert(CLATTN_F32, k_scale, CLATTN_F16, half_scale, scales);
    cli_dtype_convert(CLATTN_F16, half_scale, CLATTN_F32, k_scale, scales);
    write_npy("ks.npy", "f2", 4, i4 ? two : one, half_scale);
    write_npy("ks32.npy", "f4", 4, i4 ? two : one, k_scale);
    snprintf(options, sizeof options, "--q q.npy --k kc.npy --v vd.npy --k-dtype %s --k-scale ks.npy", t);
    compute("half", options);
    snprintf(options, sizeof options, "--q q.npy --k kc.npy --v vd.npy --k-dtype %s --k-scale ks32.npy", t);
    compute("whole", options);
    near_outputs("half", "f4", "whole", 1e-6, 0);
  }
  /* Without an option i1 is i8; two files of i4 that differ in order alone. */
  write_npy("kc.npy", "i1", 4, k_shape, k8);
  quantise(k, K_ROWS, D, 0, k8, k_scale, k_numbers);
  write_npy("ks.npy", "f4", 4, one, k_scale);
  good("run --q q.npy --k kc.npy --v v.npy --k-scale ks.npy --out own_o.npy");
  good("run " QKV "--k-dtype i8 --out made_o.npy");
  identical("own_o.npy", "made_o.npy");
  static const uint8_t by_row[3][2] = {{0x19, 0x08}, {0x2f, 0x0b}, {0x80, 0x07}};
  static const uint8_t by_column[2][3] = {{0x19, 0x2f, 0x80}, {0x08, 0x0b, 0x07}};
  write_npy("c.npy", "u1", 2, (const int64_t[]){3, 2}, by_row);
  write_raw_npy("f.npy", "{'descr': '|u1', 'fortran_order': True, 'shape': (3, 2)}  \n", by_column, sizeof by_column);
#define THREE "--q '1 2 3' --k-dtype i4 --v '1; 2; 3' --k-scale '1; 0.5; 0.25' "
  good("run " THREE "--k c.npy --scores c_s.npy --scores-stage raw --scale 1 --verify");
  /* Codes minus 8: (1, -7, 0), (7, -6, 3), (-8, 0, -1). */
  expect("c_s.npy", 2, (const int64_t[]){1, 3}, (const double[]){-13, 0.5 * 4, 0.25 * -11});
  good("run " THREE "--k f.npy --scores f_s.npy --scores-stage raw --scale 1 --verify");
  identical("c_s.npy", "f_s.npy");
  /* A row of v of odd length. */
  write_npy("v.codes.npy", "u1", 2, (const int64_t[]){1, 2}, (const uint8_t[]){0x3f, 0xfa});
  good("run --q 1 --k 1 --v v.codes.npy --v-dtype i4 --v-dim 3 --v-scale 0.5 --out odd.npy --verify");
  expect("odd.npy", 2, (const int64_t[]){1, 3}, (const double[]){3.5, -2.5, 1});
  good("run --q 1 --k 1 --v v.codes.npy --v-dtype i4 --v-scale 0.5 --out odd.npy --verify");
  expect("odd.npy", 2, (const int64_t[]){1, 4}, (const double[]){3.5, -2.5, 1, 3.5});
  /* A row of zeros has scale 0. */
  good("run --q '1 1' --k '0 0; 0 0' --v '0 0; 4 2' --k-dtype i4 --v-dtype i8 --out zero.npy --verify");
  expect("zero.npy", 2, (const int64_t[]){1, 2}, (const double[]){2, 4.0 / 127 * 32});
}

/* ---- similarities ------------------------------------------------------------------------------------------------ */

static void similarities(void **state) {
  (void)state;
  const double root = sqrt(0.5);
  /* A zero has no direction, and stays zero. */
  compute("cosine", "--q '3 4; 0 0' --k '10 0; 5 5; 0 -2' --v '1; 2; 3' --similarity cosine");
  good("run --q '3 4; 0 0' --k '10 0; 5 5; 0 -2' --v '1; 2; 3' --similarity cosine --scores s.npy --scores-stage raw");
  expect("s.npy", 2, (const int64_t[]){2, 3}, (const double[]){0.6, 1.4 * root, -0.8, 0, 0, 0});
  good("run --q '3 4; 0 0' --k '10 0; 5 5; 0 -2' --v '1; 2; 3' --similarity cosine --scale 2 --head-scale 5 --scores "
       "s.npy --scores-stage raw --verify");
  expect("s.npy", 2, (const int64_t[]){2, 3}, (const double[]){6, 14 * root, -8, 0, 0, 0});
  good("run --q '1 -1; 0 2' --k '0.5 0; 1 1' --v '1; 2' --similarity additive --add-w '2 -3' --scores s.npy "
       "--scores-stage raw --verify");
  expect("s.npy", 2, (const int64_t[]){2, 2},
         (const double[]){2 * tanh(1.5) - 3 * tanh(-1), 2 * tanh(2) - 3 * tanh(0), 2 * tanh(0.5) - 3 * tanh(2),
                          2 * tanh(1) - 3 * tanh(3)});
  /* A w, and a scale, per head; dot takes the scale too. */
  float w[HQ][D], factors[HQ] = {0.5f, -1, 2, 0};
  fill(&w[0][0], HQ * D);
  write_npy("w.npy", "f4", 2, (const int64_t[]){HQ, D}, w);
  write_npy("h.npy", "f4", 1, (const int64_t[]){HQ}, factors);
  compute("all", QKV "--similarity additive --add-w w.npy --head-scale h.npy --causal top-left --k-dtype f16");
  compute("first", QKV "--similarity dot");
  compute("second", QKV "--head-scale h.npy");
  unlike("first", "second");
  compute("third", QKV "--similarity cosine --k-dtype i8 --q-dtype bf16 --out-dtype f32");
  unlike("first", "third");
  compute("half", QKV "--math half --q-dtype f16 --k-dtype f16 --v-dtype f16 --out-dtype f32");
  near_outputs("half", "f4", "first", 2e-2, 0);
  compute("tf32", QKV "--math tf32");
  near_outputs("tf32", "f4", "first", 1e-2, 0);
}

/* ---- hooks ------------------------------------------------------------------------------------------------------- */

/* Turns the rows of a tensor before the program sees them; at[row]: their positions. */
static void turn(const float *from, int rows, int length, const int *at, int pairs, int interleaved, double base,
                 float *to) {
  memcpy(to, from, (size_t)rows * D * sizeof *to);
  for (int r = 0; r < rows; r++)
    for (int n = 0; n < pairs; n++) {
      const double angle = at[r % length] * pow(base, -(double)n / pairs);
      const int first = r * D + (interleaved ? 2 * n : n), second = first + (interleaved ? 1 : pairs);
      to[first] = (float)((double)from[first] * cos(angle) - (double)from[second] * sin(angle));
      to[second] = (float)((double)from[first] * sin(angle) + (double)from[second] * cos(angle));
    }
}

static void rotary(void **state) {
  (void)state;
  enum { PAIRS = 8, LINES = 12 };
  static const int plain[SK] = {0, 1, 2, 3, 4, 5, 6}, shifted[SQ] = {2, 3, 4, 5, 6};
  static const int of_q[SQ] = {3, 0, 11, 5, 5}, of_k[SK] = {1, 2, 0, 9, 11, 4, 4};
  static float turned_q[Q_COUNT], turned_k[K_COUNT], cosines[LINES][PAIRS], sines[LINES][PAIRS];
  static const struct {
    const char *options;
    int interleaved, pairs;
    double base;
    const int *q, *k;
  } cases[] = {
      {"--rope half --rope-dim 34", 0, 17, 10000, plain, plain},
      {"--rope interleaved --rope-dim 16 --rope-base 50", 1, 8, 50, plain, plain},
      {"--rope half --rope-dim 16 --query-offset 2 --rope-cos cos.npy --rope-sin sin.npy", 0, 8, 3, shifted, plain},
      {"--rope interleaved --rope-dim 2 --positions-q '3 0 11 5 5' --positions-k '1 2 0 9 11 4 4'", 1, 1, 10000, of_q,
       of_k},
      {"--rope half --rope-dim 16 --positions-q '3 0 11 5 5' --positions-k '1 2 0 9 11 4 4' --rope-cos cos.npy "
       "--rope-sin sin.npy",
       0, 8, 3, of_q, of_k},
  };
  for (int t = 0; t < LINES; t++)
    for (int n = 0; n < PAIRS; n++) {
      cosines[t][n] = (float)cos(t * pow(3, -(double)n / PAIRS));
      sines[t][n] = (float)sin(t * pow(3, -(double)n / PAIRS));
    }
  write_npy("cos.npy", "f4", 2, (const int64_t[]){LINES, PAIRS}, cosines);
  write_npy("sin.npy", "f4", 2, (const int64_t[]){LINES, PAIRS}, sines);
  compute("plain", QKV);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char options[256];
    turn(q, B * HQ * SQ, SQ, cases[i].q, cases[i].pairs, cases[i].interleaved, cases[i].base, turned_q);
    turn(k, B * HKV * SK, SK, cases[i].k, cases[i].pairs, cases[i].interleaved, cases[i].base, turned_k);
    write_npy("turned_q.npy", "f4", 4, q_shape, turned_q);
    write_npy("turned_k.npy", "f4", 4, k_shape, turned_k);
    good("run --q turned_q.npy --k turned_k.npy --v v.npy --out turned_o.npy");
    snprintf(options, sizeof options, QKV "%s", cases[i].options);
    compute("rope", options);
    near_outputs("rope", "f4", "turned", 2e-5, 0);
    unlike("rope", "plain");
  }
  static const struct {
    const char *options, *part;
  } wrong[] = {
      {"--rope half", "rope_dim is 35: must be even, from 2 to qk_dim 35"},
      {"--rope half --rope-dim 36", "rope_dim is 36: must be even"},
      {"--rope half --rope-dim 4 --rope-cos cos.npy --rope-sin sin.npy",
       "--rope-cos has shape (12, 8); it must be (positions, 2) or (2, positions, 2)"},
      {"--rope half --rope-dim 16 --rope-cos cos.npy --rope-sin short.npy", "--rope-sin has shape (3, 8)"},
      {"--rope half --rope-dim 16 --rope-cos short.npy --rope-sin short.npy", "rope_positions is 3: must be at least"},
      {"--rope half --rope-dim 16 --rope-cos cos.npy --rope-sin cos.npy --rope-base 5",
       "--rope-base is for the tables"},
      {"--rope half --rope-dim 16 --positions-q 0 --positions-k 0",
       "--positions-q has shape (1, 1); it must be (2, 5)"},
      {"--rope half --rope-dim 16 --rope-cos cos.npy --rope-sin sin.npy --positions-q '0 1 2 3 12' --positions-k '0 1 "
       "2 "
       "3 4 5 6'",
       "--positions-q: entry (0, 4) is 12; it must be from 0 to 11"},
      {"--rope half --rope-dim 16 --query-offset -1", "offset is -1: must be >= 0 with rope"},
  };
  write_npy("short.npy", "f4", 2, (const int64_t[]){3, PAIRS}, cosines);
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    char command[512];
    snprintf(command, sizeof command, "run " QKV "%s --out kept.npy", wrong[i].options);
    bad(command, 2, wrong[i].part);
  }
}

static void hooks(void **state) {
  (void)state;
  write_text("cap.cl", "float clattn_score(float s, const clattn_at *at) {\n"
                       "  return at->scalar[0] * tanh(s / at->scalar[0]);\n}\n");
  compute("cap", QKV "--softcap 1.5");
  compute("plain", QKV);
  unlike("cap", "plain");
  good("run " QKV "--hook cap.cl --hook-arg scalar=1.5 --out hook_o.npy --verify=device");
  says("rows against three-step");
  near_outputs("hook", "f4", "cap", 1e-5, 0);
  /* Two buffers of different types and two scalars, in the order of their kinds, and a keep hook. */
  write_text("both.cl", "float clattn_score(float s, const clattn_at *at) {\n"
                        "  return s * at->scalar[1] + ((__global const float *)at->buffer[0])[at->i * 7 + at->j] + "
                        "at->scalar[0];\n}\n"
                        "bool clattn_keep(const clattn_at *at) {\n"
                        "  return ((__global const uchar *)at->buffer[1])[at->j] != 0;\n}\n");
  write_npy("keep.npy", "u1", 1, (const int64_t[]){SK}, (const uint8_t[]){1, 0, 1, 1, 0, 1, 1});
  compute("rules", QKV "--bias bias.npy --keep-mask keep.npy");
  good("run " QKV "--hook both.cl --hook-arg scalar=3 --hook-arg buffer=bias.npy --hook-arg buffer=keep.npy "
       "--hook-arg scalar=1 --out hook_o.npy --verify=device");
  near_outputs("hook", "f4", "rules", 1e-5, 0);
  /* Text is a buffer of floats. */
  write_text("row.cl", "float clattn_score(float s, const clattn_at *at) {\n"
                       "  return s + ((__global const float *)at->buffer[0])[at->j];\n}\n");
  compute("rules", QKV "--bias '1 2 3 4 5 6 7'");
  good("run " QKV "--hook row.cl --hook-arg 'buffer=1 2 3 4 5 6 7' --out hook_o.npy");
  near_outputs("hook", "f4", "rules", 1e-5, 0);
  /* Lines. */
  good("run --problem 'hq=2 sq=5 sk=7 d=8 hook=yes' --hook cap.cl --hook-arg scalar=1 --verify=device --explain");
  says("hook=yes");
  bad("run --problem 'hq=2 sq=5 sk=7 d=8 hook=yes' --out kept.npy", 2, "the line uses a hook (hook=yes)");
  bad("run --problem 'hq=2 sq=5 sk=7 d=8' --hook cap.cl --out kept.npy", 2, "the problem line does not use it");
  /* The compiler's words, with the line of the file. */
  write_text("wrong.cl", "float clattn_score(float s, const clattn_at *at) {\n  return s +\n    missing;\n}\n");
  bad("run " QKV "--hook wrong.cl --out kept.npy", 1, "hook:3");
  assert_non_null(strstr(err, "missing"));
  static const struct {
    const char *options, *part;
  } cases[] = {
      {"--hook cap.cl --verify", "--verify: the reference can't run the OpenCL C of --hook; --verify=device"},
      {"--hook cap.cl --verify=reference", "--verify=device compares"},
      {"--hook none.cl", "--hook: none.cl: can't be opened"},
      {"--hook kept.npy", "--hook: kept.npy: byte"},
      {"--hook-arg scalar=1", "--hook-arg needs --hook"},
      {"--hook cap.cl --hook-arg 1", "--hook-arg takes buffer=F or scalar=X, not '1'"},
      {"--hook cap.cl --hook-arg scalar=x", "--hook-arg: 'x' is not a number"},
      {"--hook cap.cl --hook-arg buffer=none.npy", "--hook-arg: none.npy: can't be opened"},
      {"--hook cap.cl --hook-arg buffer=turned.npy", "in Fortran order"},
      {"--hook cap.cl --hook-arg buffer=empty.npy", "holds no element"},
      {"--hook cap.cl --hook-arg scalar=1 --hook-arg scalar=2 --hook-arg scalar=3 --hook-arg scalar=4 --hook-arg "
       "scalar=5",
       "scalar=5 is one too many"},
      {"--hook cap.cl --hook-arg buffer=1 --hook-arg buffer=2 --hook-arg buffer=3 --hook-arg buffer=4 --hook-arg "
       "buffer=5",
       "buffer=5 is one too many"},
      {"--hook cap.cl --hook cap.cl", "--hook is given twice"},
      {"--hook other.cl", "defines neither"},
  };
  write_text("other.cl", "float score(float s) { return s; }\n");
  write_raw_npy("turned.npy", "{'descr': '<f4', 'fortran_order': True, 'shape': (3, 2)}  \n", q, 24);
  write_npy("empty.npy", "f4", 1, (const int64_t[]){0}, q);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char command[512];
    snprintf(command, sizeof command, "run " QKV "%s --out kept.npy", cases[i].options);
    bad(command, 2, cases[i].part);
  }
  bad("run " QKV "--hook cap.cl --hook-arg buffer=kept.npy --out kept.npy", 2, "would overwrite an input");
  bad("run " QKV "--hook cap.cl --out cap.cl", 2, "would overwrite an input");
}

/* ---- problem lines ----------------------------------------------------------------------------------------------- */

static void lines(void **state) {
  (void)state;
  static const char *const drawn[] = {
      "q=f16 k=f16 v=f16 o=f16 bias=f16:bhsd",
      "q=bf16 k=bf16 v=bf16 o=bf16 scores=bf16 out=o,scores,lse",
      "q=bf16 k=bf16 v=bf16 o=bf16 out=o,lse",
      "k=i8 v=i4",
      "q=f16 k=i4 v=i8 k_scale=f16:bhsd v_scale=f16:bhsd o=bf16",
      "b=2 k=i4:packed v=i4:packed k_scale=packed v_scale=packed total_k=60",
      "b=2 k=i8:paged v=i4:paged k_scale=paged v_scale=paged klen=per_batch pages=9 max_pages=5 page_size=8",
      "sim=cosine head_scale=bhsd",
      "sim=additive add_w=strided:0,40,0,1 math=half",
      "rope=half rope_dim=34 causal=1 off=bottom_right",
      "b=2 rope=interleaved rope_dim=8 positions=1 rope_cos=strided:300,0,4,1 rope_sin=strided:300,0,4,1 k=i8",
  };
  char command[512];
  for (size_t i = 0; i < sizeof drawn / sizeof drawn[0]; i++) {
    snprintf(command, sizeof command, "run --problem 'hq=4 hkv=2 sq=9 sk=40 d=35 dv=33 %s' --seed 3 --verify",
             drawn[i]);
    good(command);
    snprintf(command, sizeof command, "run --problem 'hq=4 hkv=2 sq=9 sk=40 d=35 dv=33 %s' --seed 3 --verify=device",
             drawn[i]);
    good(command);
  }
  /* What is given to a line is stored as the line says. */
#define LINE "run --problem 'b=2 hq=4 hkv=2 sq=5 sk=7 d=35 dv=6 "
  good(LINE "q=f16 k=i4 v=bf16 o=f16' " QKV "--out line_o.npy --verify");
  good("run " QKV "--q-dtype f16 --k-dtype i4 --v-dtype bf16 --out files_o.npy");
  identical("line_o.npy", "files_o.npy");
  /* Scales for codes that are drawn, and codes with drawn scales. */
  static float ones[K_ROWS];
  for (int i = 0; i < K_ROWS; i++)
    ones[i] = 0.01f;
  write_npy("small.npy", "f4", 4, (const int64_t[]){B, HKV, SK, 1}, ones);
  good(LINE "k=i8 v=i8' --q q.npy --k-scale small.npy --verify");
  write_npy("i1.npy", "i1", 4, k_shape, k);
  good(LINE "k=i8' --k i1.npy --verify");
}

/* ---- bad input --------------------------------------------------------------------------------------------------- */

static void bad_types(void **state) {
  (void)state;
  static const struct {
    const char *options, *part;
  } cases[] = {
      {QKV "--q-dtype f8", "--q-dtype takes f32, f16 or bf16, not 'f8'"},
      {QKV "--q-dtype i8", "--q-dtype takes f32, f16 or bf16, not 'i8'"},
      {QKV "--k-dtype int8", "--k-dtype takes f32, f16, bf16, i8 or i4, not 'int8'"},
      {QKV "--v-dtype x", "--v-dtype takes"},
      {QKV "--out-dtype i8", "--out-dtype takes f32, f16 or bf16, not 'i8'"},
      {QKV "--bias-dtype f16", "--bias-dtype needs --bias F"},
      {QKV "--bias bias.npy --bias-dtype i4", "--bias-dtype takes f32, f16 or bf16, not 'i4'"},
      {"--q u2.npy --k k.npy --v v.npy", "u2 is taken as bf16 only where --q-dtype bf16"},
      {"--q u2.npy --k k.npy --v v.npy --q-dtype f16", "u2 is taken as bf16 only where --q-dtype bf16"},
      {"--q q.npy --k u1.npy --v v.npy", "u1 is taken as i4 only where --k-dtype i4"},
      {"--q i1.npy --k k.npy --v v.npy", "type i1 is not accepted here; it must be f4 or f2 or u2"},
      {"--q q.npy --k i1.npy --v v.npy", "i1.npy holds codes of i8, which need --k-scale F"},
      {"--q q.npy --k i1.npy --v v.npy --k-dtype f16", "holds codes of i8, which are not made into f16"},
      {"--q q.npy --k u1.npy --v v.npy --k-dtype i4 --k-scale s.npy", "rows of 35 bytes; 35 elements of i4 take 18"},
      {"--q q.npy --k k.npy --v u1.npy --v-dtype i4 --v-dim 8 --v-scale s.npy", "8 elements of i4 take 4"},
      {QKV "--v-dim 6", "--v-dim is for a file of i4"},
      {QKV "--v-dim 0", "--v-dim takes a number of elements >= 1, not '0'"},
      {QKV "--k-scale s.npy", "--k-scale is for codes of i8 (a file of i1) or i4 (u1); --k holds f4"},
      {QKV "--v-dtype i8 --v-scale s.npy", "--v holds f4, whose scales this program makes"},
      {"--q q.npy --k i1.npy --v v.npy --k-scale q.npy",
       "--k-scale has shape (2, 4, 5, 35); it must be (2, 2, 7, 1): a scale for every row"},
      {"--q q.npy --k i1.npy --v v.npy --k-scale ints.npy", "type i4 is not accepted here; it must be f4 or f2"},
      {"--q '1 1' --k '1 nan' --v 1 --k-dtype i8", "--k: row 0 of 1 holds NaN or infinity, which i8 can't hold"},
      {"--q '1 1' --k '1 1; 2 2' --v '1; inf' --v-dtype i4", "--v: row 1 of 2 holds NaN or infinity"},
      {QKV "--similarity dott", "--similarity takes dot, cosine or additive, not 'dott'"},
      {QKV "--similarity additive", "--similarity additive needs --add-w F"},
      {QKV "--add-w '1 2'", "--add-w needs --similarity additive"},
      {QKV "--similarity additive --add-w '1 2'", "--add-w has shape (1, 2); it must be (dim,) or (heads, dim)"},
      {QKV "--head-scale '1 2'", "--head-scale has shape (2,); it must be (heads,), here 4 heads"},
      {QKV "--math fast", "--math takes exact, half or tf32, not 'fast'"},
      {"--problem 'sq=5 sk=7 d=8' --q-dtype f16", "--q-dtype can't be given with --problem"},
      {"--problem 'sq=5 sk=7 d=8' --out-dtype f16", "--out-dtype can't be given with --problem"},
      {"--problem 'sq=5 sk=7 d=8' --similarity cosine", "--similarity can't be given with --problem"},
      {"--problem 'sq=5 sk=7 d=8' --math half", "--math can't be given with --problem"},
      {"--problem 'sq=5 sk=7 d=8' --k-scale s.npy", "--k-scale is given, but the problem line does not use it"},
      {"--problem 'sq=5 sk=7 d=8' --head-scale 1", "--head-scale is given, but the problem line does not use it"},
      {"--problem 'b=2 hq=4 sq=5 sk=7 d=35' --q u2.npy", "u2 is taken as bf16 only where --q-dtype bf16"},
  };
  write_npy("u2.npy", "u2", 4, q_shape, q);
  write_npy("u1.npy", "u1", 4, k_shape, k);
  write_npy("i1.npy", "i1", 4, k_shape, k);
  write_npy("s.npy", "f4", 4, (const int64_t[]){B, HKV, SK, 1}, k);
  write_npy("ints.npy", "i4", 4, (const int64_t[]){B, HKV, SK, 1}, k);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char command[512];
    snprintf(command, sizeof command, "run %s --out kept.npy", cases[i].options);
    bad(command, 2, cases[i].part);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_pattern),  cmocka_unit_test(ties),      cmocka_unit_test(patterns_through_files),
      cmocka_unit_test(rounded_inputs), cmocka_unit_test(layouts),   cmocka_unit_test(codes),
      cmocka_unit_test(similarities),   cmocka_unit_test(rotary),    cmocka_unit_test(hooks),
      cmocka_unit_test(lines),          cmocka_unit_test(bad_types),
  };
  return cmocka_run_group_tests(tests, start, leave_group);
}
