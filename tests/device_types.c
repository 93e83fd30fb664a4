/* SPDX-License-Identifier: Apache-2.0 */
/* Storage types at all their edges: every pattern of f16 and bf16 through the kernels' loads and stores, rounding of
 * what is stored, and quantised numbers beside the same numbers in f32. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <inttypes.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device_flat.h"
#include "device_judge.h"
#include "dtype.h"

static const struct {
  clattn_dtype dtype;
  const char *name;
} halves[2] = {{CLATTN_F16, "f16"}, {CLATTN_BF16, "bf16"}};

enum { PATTERNS = 65536 };

static int is_nan_pattern(clattn_dtype dtype, uint16_t bits) {
  return (bits & 0x7fff) > (dtype == CLATTN_F16 ? 0x7c00 : 0x7f80);
}

/* One number in, the same one out; a zero's sign may go, since sums start at +0. */
static int same_number(clattn_dtype dtype, uint16_t want, uint16_t got) {
  if (is_nan_pattern(dtype, want))
    return is_nan_pattern(dtype, got);
  return got == want || ((want | got) & 0x7fff) == 0;
}

/* With q = 1 and one element the raw score is k, with k = 1 it is q; with both 0 the final score is the bias; with
 * one key every weight is 1 and o is v.  The same program for all four. */
static const struct {
  clattni_slot slot;
  size_t heads, rows, keys, dim;
  const char *line; /* what is not the pattern is one number */
} passages[] = {
    {CLATTNI_Q, 64, 1024, 1, 1, "k=%s:strided:0,0,0,0 v=%s:strided:0,0,0,0 bias=%s:strided:0,0,0,0 q=%s stage=raw"},
    {CLATTNI_K, 16, 1, 4096, 1, "q=%s:strided:0,0,0,0 v=%s:strided:0,0,0,0 bias=%s:strided:0,0,0,0 k=%s stage=raw"},
    {CLATTNI_BIAS, 16, 64, 64, 1,
     "q=%s:strided:0,0,0,0 k=%s:strided:0,0,0,0 v=%s:strided:0,0,0,0 bias=%s stage=masked"},
    {CLATTNI_V, 2115, 1, 1, 31, "q=%s:strided:0,0,0,0 k=%s:strided:0,0,0,0 bias=%s:strided:0,0,0,0 v=%s stage=masked"},
};

static void pattern_through(const char *variant, clattn_dtype dtype, const char *type, size_t passage) {
  enum { MOST = 2115 * 31 };
  static uint16_t pattern[MOST], o[MOST], scores[MOST];
  static const uint16_t zero = 0;
  const uint16_t one = dtype == CLATTN_F16 ? 0x3c00 : 0x3f80;
  const clattni_slot slot = passages[passage].slot;
  const size_t heads = passages[passage].heads, rows = passages[passage].rows, keys = passages[passage].keys,
               dim = passages[passage].dim;
  char line[512], tensors[256];
  for (size_t n = 0; n < MOST; ++n)
    pattern[n] = (uint16_t)n;
  (void)snprintf(tensors, sizeof tensors, passages[passage].line, type, type, type, type);
  (void)snprintf(line, sizeof line, "hq=%zu sq=%zu sk=%zu d=1 dv=%zu o=%s scores=%s out=o,scores scale=1 %s", heads,
                 rows, keys, dim, type, type, tensors);
  flat_run run = {.line = line,
                  .variant = variant,
                  .o_count = heads * rows * dim,
                  .scores_count = heads * rows * keys,
                  .half = 1,
                  .slot = {[CLATTNI_Q] = {slot == CLATTNI_K ? &one : &zero, sizeof zero},
                           [CLATTNI_K] = {slot == CLATTNI_Q ? &one : &zero, sizeof zero},
                           [CLATTNI_BIAS] = {&zero, sizeof zero},
                           [CLATTNI_V] = {&one, sizeof one}}};
  run.slot[slot].values = pattern;
  run.slot[slot].bytes = 2 * (slot == CLATTNI_V ? (size_t)MOST : PATTERNS);
  flat_scores(&run, o, scores);
  const uint16_t *got = slot == CLATTNI_V ? o : scores;
  for (size_t n = 0; n < PATTERNS; ++n)
    if (!same_number(dtype, pattern[n], got[n]))
      fail_msg("%s, %s: pattern 0x%04x of %s came out as 0x%04x", variant, type, (unsigned)pattern[n],
               clattni_slot_name(slot), (unsigned)got[n]);
}

void every_half_pattern(void **state) {
  (void)state;
  size_t passed = 0;
  for (uint32_t v = 0; v < variant_count; ++v)
    for (size_t n = 0; variants[v].usable && n < 2; ++n)
      for (size_t passage = 0; passage < sizeof passages / sizeof passages[0]; ++passage, ++passed)
        pattern_through(variants[v].name, halves[n].dtype, halves[n].name, passage);
  assert_true(passed > 0);
}

/* ---- rounding -------------------------------------------------------------------------------------------------- */

static float from_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static uint32_t to_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

/* Between every two neighbours of the type the middle and the floats next to it; past the largest number too. */
static size_t middles(clattn_dtype dtype, float *to, size_t most) {
  const uint16_t infinite = dtype == CLATTN_F16 ? 0x7c00 : 0x7f80;
  size_t count = 0;
  for (uint16_t n = 0; n < infinite; ++n) {
    const uint16_t pair[2] = {n, (uint16_t)(n + 1)};
    const double low = clattni_dtype_load(dtype, pair, 0);
    /* the next number, as if the type had one, where it has none */
    const double below = n > 0 ? low - clattni_dtype_load(dtype, (const uint16_t[]){(uint16_t)(n - 1)}, 0) : 0.0;
    const double high = pair[1] < infinite ? clattni_dtype_load(dtype, pair, 1) : low + below;
    const uint32_t middle = to_bits((float)((low + high) / 2));
    for (uint32_t k = 0; k < 3 && count + 2 <= most; ++k) {
      if (middle + k < 1)
        continue;
      to[count++] = from_bits(middle + k - 1);
      to[count++] = -from_bits(middle + k - 1);
    }
  }
  static const float far[] = {FLT_MAX, -FLT_MAX, 1e30f, 65536.0f, 1e-30f, FLT_MIN, 1e-42f};
  for (size_t n = 0; n < sizeof far / sizeof far[0] && count < most; ++n)
    to[count++] = far[n];
  return count;
}

void stores_round_to_nearest_even(void **state) {
  (void)state;
  enum { MOST = 6 * PATTERNS / 2 + 16, DIM = 32 };
  float *values = calloc(MOST + DIM, sizeof *values), *o = calloc(MOST + DIM, sizeof *o);
  size_t passed = 0;
  assert_non_null(values);
  assert_non_null(o);
  for (size_t n = 0; n < 2; ++n) {
    const size_t heads = (middles(halves[n].dtype, values, MOST) + DIM - 1) / DIM;
    for (uint32_t v = 0; v < variant_count; ++v) {
      static const float zero = 0.0f;
      char line[256];
      (void)snprintf(line, sizeof line, "hq=%zu sq=1 sk=1 d=1 dv=%d q=f32:strided:0,0,0,0 k=f32:strided:0,0,0,0 o=%s",
                     heads, (int)DIM, halves[n].name);
      const flat_run run = {.line = line,
                            .variant = variants[v].name,
                            .o_count = heads * DIM,
                            .half = 1,
                            .slot = {[CLATTNI_Q] = {&zero, sizeof zero},
                                     [CLATTNI_K] = {&zero, sizeof zero},
                                     [CLATTNI_V] = {values, heads * DIM * sizeof *values}}};
      if (!variants[v].usable)
        continue;
      flat_compute(&run, o, NULL);
      const uint16_t *const got = (const uint16_t *)(const void *)o;
      for (size_t i = 0; i < heads * DIM; ++i, ++passed) {
        const uint16_t want = encode_half(halves[n].dtype, (double)values[i]);
        if (!same_number(halves[n].dtype, want, got[i]))
          fail_msg("%s: %a (%.9g) is stored in %s as 0x%04x, not 0x%04x", variants[v].name, (double)values[i],
                   (double)values[i], halves[n].name, (unsigned)got[i], (unsigned)want);
      }
    }
  }
  free(values);
  free(o);
  assert_true(passed > 0);
}

/* ---- quantised ------------------------------------------------------------------------------------------------- */

enum { ROWS = 30, KEYS = 140, HEADS = 4, KV_HEADS = 2, DIM = 37, GROUPS = 2, PITCH = DIM + 1 };

typedef struct quantised {
  float q[HEADS * ROWS * DIM], plain[2][KV_HEADS * KEYS * DIM]; /* k and v as numbers */
  unsigned char codes[2][KV_HEADS * KEYS * PITCH];
  float scales[2][KV_HEADS * KEYS * GROUPS];
  uint16_t half_scales[2][KV_HEADS * KEYS * GROUPS];
  float o[HEADS * ROWS * DIM], lse[HEADS * ROWS], want_o[HEADS * ROWS * DIM], want_lse[HEADS * ROWS];
} quantised;

/* Codes of all values, and what they stand for. */
static void make_codes(quantised *x, int n, clattn_dtype dtype, clattn_dtype scale) {
  const int groups = dtype == CLATTN_I4 ? GROUPS : 1;
  for (size_t row = 0; row < KV_HEADS * KEYS; ++row) {
    for (int g = 0; g < groups; ++g) {
      const size_t at = row * (size_t)groups + (size_t)g;
      const float size = (0.5f + (float)device_random(7, (uint64_t)n, at)) * (dtype == CLATTN_I8 ? 0.01f : 0.2f);
      x->half_scales[n][at] = encode_half(CLATTN_F16, (double)size);
      x->scales[n][at] =
          scale == CLATTN_F32 ? size : (float)clattni_dtype_load(CLATTN_F16, x->half_scales[n], (int64_t)at);
    }
    for (int d = 0; d < DIM; ++d) {
      const unsigned code = (unsigned)(256.0 * device_random(8 + (uint64_t)n, row, (uint64_t)d));
      const float s = x->scales[n][row * (size_t)groups + (size_t)(groups > 1 ? d / 32 : 0)];
      unsigned char *const byte =
          &x->codes[n][dtype == CLATTN_I4 ? row * (PITCH / 2) + (size_t)d / 2 : row * DIM + (size_t)d];
      if (dtype == CLATTN_I8)
        *byte = (unsigned char)code;
      else
        *byte = (unsigned char)(d % 2 == 0 ? code & 15 : (unsigned)(*byte & 15) | (code & 15) << 4);
      const int number = dtype == CLATTN_I4 ? (int)(code & 15) - 8 : code < 128 ? (int)code : (int)code - 256;
      x->plain[n][row * DIM + (size_t)d] = s * (float)number;
    }
  }
}

static flat_input scales_of(const quantised *x, int n, clattn_dtype scale, size_t groups) {
  const size_t count = KV_HEADS * KEYS * groups;
  const flat_input f32 = {x->scales[n], count * sizeof(float)}, f16 = {x->half_scales[n], 2 * count};
  return scale == CLATTN_F32 ? f32 : f16;
}

void quantised_as_dequantised(void **state) {
  (void)state;
  static const struct {
    clattn_dtype k, v, k_scale, v_scale;
  } kinds[] = {{CLATTN_I8, CLATTN_I4, CLATTN_F16, CLATTN_F32}, {CLATTN_I4, CLATTN_I8, CLATTN_F32, CLATTN_F16}};
  static const char rules[] = "hq=4 hkv=2 sq=30 sk=140 d=37 causal=1 off=bottom_right out=o,lse";
  quantised *x = calloc(1, sizeof *x);
  size_t passed = 0;
  assert_non_null(x);
  flat_fill(x->q, HEADS * ROWS * DIM, 51);
  for (size_t n = 0; n < sizeof kinds / sizeof kinds[0]; ++n) {
    char line[256];
    (void)snprintf(line, sizeof line, "%s k=%s v=%s k_scale=%s v_scale=%s", rules, clattni_dtype_name(kinds[n].k),
                   clattni_dtype_name(kinds[n].v), clattni_dtype_name(kinds[n].k_scale),
                   clattni_dtype_name(kinds[n].v_scale));
    make_codes(x, 0, kinds[n].k, kinds[n].k_scale);
    make_codes(x, 1, kinds[n].v, kinds[n].v_scale);
    const size_t k_bytes = KV_HEADS * KEYS * (size_t)(kinds[n].k == CLATTN_I4 ? PITCH / 2 : DIM),
                 v_bytes = KV_HEADS * KEYS * (size_t)(kinds[n].v == CLATTN_I4 ? PITCH / 2 : DIM);
    for (uint32_t v = 0; v < variant_count; ++v) {
      if (!variants[v].usable)
        continue;
      const flat_run plain = {.line = rules,
                              .variant = variants[v].name,
                              .o_count = HEADS * ROWS * DIM,
                              .lse_count = HEADS * ROWS,
                              .slot = {[CLATTNI_Q] = {x->q, sizeof x->q},
                                       [CLATTNI_K] = {x->plain[0], sizeof x->plain[0]},
                                       [CLATTNI_V] = {x->plain[1], sizeof x->plain[1]}}};
      flat_run run = plain;
      run.line = line;
      run.slot[CLATTNI_K] = (flat_input){x->codes[0], k_bytes};
      run.slot[CLATTNI_V] = (flat_input){x->codes[1], v_bytes};
      run.slot[CLATTNI_K_SCALE] = scales_of(x, 0, kinds[n].k_scale, kinds[n].k == CLATTN_I4 ? GROUPS : 1);
      run.slot[CLATTNI_V_SCALE] = scales_of(x, 1, kinds[n].v_scale, kinds[n].v == CLATTN_I4 ? GROUPS : 1);
      flat_compute(&plain, x->want_o, x->want_lse);
      flat_compute(&run, x->o, x->lse);
      for (size_t i = 0; i < HEADS * ROWS * DIM; ++i, ++passed)
        if (!(fabsf(x->o[i] - x->want_o[i]) <= 1e-5f) || !(fabsf(x->lse[i / DIM] - x->want_lse[i / DIM]) <= 1e-5f))
          fail_msg("%s, %s: o %zu is %.9g, dequantised %.9g; lse %.9g, %.9g", line, variants[v].name, i,
                   (double)x->o[i], (double)x->want_o[i], (double)x->lse[i / DIM], (double)x->want_lse[i / DIM]);
    }
  }
  free(x);
  assert_true(passed > 0);
}
