/* SPDX-License-Identifier: Apache-2.0 */
/* The double-precision reference: storage types against f32 of the same numbers, similarities and scales per head
 * against sums written from their definition, rotary embedding against rows that were turned before, hooks against the
 * rules that say the same. */
#include "test_ref.h"

/* ---- f16 and bf16 ---------------------------------------------------------------------------------------------- */

/* Of a float that the type holds exactly and that is 0 or a normal f16. */
static uint16_t stored(clattn_dtype dtype, float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if (dtype == CLATTN_BF16 || value == 0.0f)
    return (uint16_t)(bits >> 16);
  return (uint16_t)((bits >> 16 & 0x8000u) | (((bits >> 23 & 255u) - 112u) << 10) | (bits >> 13 & 1023u));
}

/* Turns an array of eighths into the type, in place of its type in the problem. */
static const void *store(clattn_tensor *tensor, clattn_dtype dtype, const float *from, uint16_t *to) {
  tensor->dtype = dtype;
  if (dtype == CLATTN_F32)
    return from;
  for (int i = 0; i < ROOM; i++)
    to[i] = stored(dtype, from[i]);
  return to;
}

static void any_mix_of_floats(void **state) {
  static uint16_t q[ROOM], k[ROOM], v[ROOM], bias[ROOM];
  (void)state;
  for (int n = 0; n < 3 * 3 * 3 * 3; n++) {
    start_random(3, 5);
    for (int i = 0; i < ROOM; i++) {
      f.q[i] = (float)below(33) / 8 - 2;
      f.k[i] = (float)below(33) / 8 - 2;
      f.v[i] = (float)below(33) / 8 - 2;
      f.bias[i] = (float)below(33) / 8 - 2;
    }
    f.p.use_bias = 1;
    f.a.bias = f.bias;
    remember();
    f.a.q = store(&f.p.q, n % 3, f.q, q);
    f.a.k = store(&f.p.k, n / 3 % 3, f.k, k);
    f.a.v = store(&f.p.v, n / 9 % 3, f.v, v);
    f.a.bias = store(&f.p.bias, n / 27, f.bias, bias);
    f.p.o.dtype = f.p.scores.dtype = CLATTN_F16; /* results are not rounded to them */
    f.p.math = CLATTN_MATH_HALF;                 /* a permission that nothing here needs */
    run();
    SAME_ROWS(24);
  }
}

static void infinities_and_nans_of_16_bits(void **state) {
  static const uint16_t nan_key[] = {0x3f80, 0x7fc1}, infinite_bias[] = {0x0000, 0xfc00}, largest[] = {0x7bff, 0x0001};
  (void)state;
  start(1, 2);
  f.p.k.dtype = CLATTN_BF16; /* 1, NaN */
  f.p.v.dtype = CLATTN_F16;
  f.p.use_bias = 1;
  f.p.bias.dtype = CLATTN_F16; /* 0, -inf: excludes what is NaN only where the score is -inf, and NaN - inf is NaN */
  f.a.k = nan_key;
  f.a.v = largest;
  f.a.bias = infinite_bias;
  SET(f.q, 1);
  run();
  ALL_CLOSE(f.o, NAN);
  f.p.k_length_mode = CLATTN_LENGTH_PER_BATCH;
  f.a.k_lengths = f.k_lengths;
  f.k_lengths[0] = 1;
  run();
  ALL_CLOSE(f.o, 65504);
  ALL_CLOSE(f.lse, 1);
}

/* ---- i8 and i4 ------------------------------------------------------------------------------------------------- */

enum { GROUP = 32 };

/* Quantised rows, one behind the other, and their scales; the same numbers as floats. */
typedef struct quantised {
  unsigned char bytes[ROOM];
  float scale[ROOM];
  uint16_t half_scale[ROOM];
} quantised;

/* Fills `from` with bytes and scales, and `floats` with what they stand for: products of few bits, which a float holds
 * exactly. */
static void draw_quantised(quantised *from, clattn_dtype dtype, int64_t rows, int64_t dim, float *floats) {
  const int64_t groups = dtype == CLATTN_I4 ? (dim + GROUP - 1) / GROUP : 1;
  const int64_t row_bytes = dtype == CLATTN_I4 ? (dim + 1) / 2 : dim;
  assert_true(rows * dim <= ROOM);
  for (int i = 0; i < ROOM; i++) {
    from->bytes[i] = (unsigned char)below(256);
    from->scale[i] = (float)(1 + below(100)) / 64 * (below(2) ? 1 : -1) / (dtype == CLATTN_I8 ? 64 : 4);
    from->half_scale[i] = stored(CLATTN_F16, from->scale[i]);
  }
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t d = 0; d < dim; d++) {
      const int byte = from->bytes[r * row_bytes + (dtype == CLATTN_I4 ? d / 2 : d)];
      const int whole = dtype == CLATTN_I8 ? (byte ^ 128) - 128 : (d % 2 != 0 ? byte / 16 : byte % 16) - 8;
      floats[r * dim + d] = (float)whole * from->scale[r * groups + (dtype == CLATTN_I4 ? d / GROUP : 0)];
    }
  }
}

static quantised k_from, v_from;

/* Puts the quantised tensors in the place of the floats. */
static void use_quantised(clattn_dtype k, clattn_dtype v, int half_scales) {
  if (k >= CLATTN_I8) {
    f.p.k.dtype = k;
    f.p.k_scale.layout = f.p.k.layout;
    f.p.k_scale.dtype = half_scales ? CLATTN_F16 : CLATTN_F32;
    f.a.k = k_from.bytes;
    f.a.k_scale = half_scales ? (const void *)k_from.half_scale : k_from.scale;
  }
  if (v >= CLATTN_I8) {
    f.p.v.dtype = v;
    f.p.v_scale.layout = f.p.v.layout;
    f.p.v_scale.dtype = half_scales ? CLATTN_F32 : CLATTN_F16;
    f.a.v = v_from.bytes;
    f.a.v_scale = half_scales ? (const void *)v_from.scale : v_from.half_scale;
  }
}

/* In every layout, where rows of all tensors follow each other in the same order; odd head dimensions, and such whose
 * last group is short. */
static void quantised_keys_and_values_are_floats(void **state) {
  static const clattn_layout layouts[] = {CLATTN_LAYOUT_BHSD, CLATTN_LAYOUT_BSHD, CLATTN_LAYOUT_BSHD_EXACT,
                                          CLATTN_LAYOUT_PACKED, CLATTN_LAYOUT_PAGED};
  static const clattn_dtype types[][2] = {{CLATTN_I8, CLATTN_I8},
                                          {CLATTN_I4, CLATTN_I4},
                                          {CLATTN_I8, CLATTN_I4},
                                          {CLATTN_I4, CLATTN_F32},
                                          {CLATTN_F32, CLATTN_I8}};
  static const int64_t dims[][2] = {{3, 2}, {33, 7}, {64, 65}, {32, 31}, {1, 1}};
  (void)state;
  for (size_t n = 0; n < LENGTH(layouts) * LENGTH(types) * LENGTH(dims); n++) {
    const clattn_layout layout = layouts[n % LENGTH(layouts)];
    const clattn_dtype *const type = types[n / LENGTH(layouts) % LENGTH(types)];
    const int64_t *const dim = dims[n / LENGTH(layouts) / LENGTH(types)];
    start_random(3, 6);
    f.p.qk_dim = dim[0];
    f.p.v_dim = dim[1];
    f.p.scale = 0.125f;
    f.p.k.layout = f.p.v.layout = layout;
    f.p.similarity = (clattn_similarity)(n % 3);
    f.a.add_w = f.p.similarity == CLATTN_ADDITIVE ? f.bias : NULL;
    if (layout == CLATTN_LAYOUT_PACKED) {
      f.p.total_k = 12;
      f.a.cu_seqlens_k = f.cu_seqlens_k;
      f.cu_seqlens_k[1] = 5;
      f.cu_seqlens_k[2] = 11;
    }
    if (layout == CLATTN_LAYOUT_PAGED) {
      f.p.num_pages = 6;
      f.p.max_pages = 3;
      f.p.page_size = 2;
      f.p.k_length_mode = CLATTN_LENGTH_PER_BATCH;
      f.a.k_lengths = f.k_lengths;
      f.a.page_table = f.page_table;
      f.k_lengths[0] = 6;
      f.k_lengths[1] = 3;
      for (int i = 0; i < 6; i++)
        f.page_table[i] = (int32_t)below(6);
    }
    if (type[0] >= CLATTN_I8)
      draw_quantised(&k_from, type[0], 24, dim[0], f.k);
    if (type[1] >= CLATTN_I8)
      draw_quantised(&v_from, type[1], 24, dim[1], f.v);
    remember();
    use_quantised(type[0], type[1], n % 2 != 0);
    run();
    SAME_ROWS(24);
  }
}

/* Keys with space behind them, one scale for two batch entries or for all. */
static void strides_of_quantised(void **state) {
  (void)state;
  for (int one_scale = 0; one_scale < 2; one_scale++) {
    start_random(2, 3);
    f.p.qk_dim = 35;
    f.p.v_dim = 5;
    for (int i = 0; i < ROOM; i++) {
      k_from.bytes[i] = (unsigned char)below(256);
      v_from.bytes[i] = (unsigned char)below(256);
      k_from.scale[i] = (float)(1 + below(16)) / 64;
      v_from.scale[i] = (float)(1 + below(16)) / 64;
    }
    for (int64_t b = 0; b < 2; b++) {
      for (int64_t h = 0; h < 2; h++) {
        for (int64_t j = 0; j < 3; j++) {
          const int64_t row = (b * 2 + h) * 3 + j;
          for (int64_t d = 0; d < 35; d++) {
            const int64_t at = b * 300 + h * 40 + j * 84 + d;
            const int nibble = at % 2 != 0 ? k_from.bytes[at / 2] / 16 : k_from.bytes[at / 2] % 16;
            f.k[row * 35 + d] = (float)(nibble - 8) * k_from.scale[one_scale ? 0 : h * 3 + j * 7 + d / 32 * 2];
          }
          for (int64_t d = 0; d < 5; d++) {
            const int byte = v_from.bytes[b * 7 + h * 200 + j * 31 + d * 3];
            f.v[row * 5 + d] = (float)(byte < 128 ? byte : byte - 256) * v_from.scale[one_scale ? j : b + h * 9];
          }
        }
      }
    }
    remember();
    f.p.k = clattn_strided(CLATTN_I4, 300, 40, 84, 1);
    f.p.v = clattn_strided(CLATTN_I8, 7, 200, 31, 3);
    f.p.k_scale = one_scale ? clattn_strided(CLATTN_F32, 0, 0, 0, 0) : clattn_strided(CLATTN_F32, 0, 3, 7, 2);
    f.p.v_scale = one_scale ? clattn_strided(CLATTN_F32, 0, 0, 1, 0) : clattn_strided(CLATTN_F32, 1, 9, 0, 5);
    f.a.k = k_from.bytes;
    f.a.v = v_from.bytes;
    f.a.k_scale = k_from.scale;
    f.a.v_scale = v_from.scale;
    run();
    SAME_ROWS(16);
  }
}

/* 0.1f times 7 is no float: the product is not rounded to one. */
static void quantised_by_hand(void **state) {
  static const unsigned char values[] = {0x0f, 0xf8}, rows[] = {0x80, 0x7f}; /* 7, -8; 0, 7;  -128; 127 */
  (void)state;
  start(1, 2);
  f.p.v_dim = 2;
  f.p.k.dtype = CLATTN_I8;
  f.p.v.dtype = CLATTN_I4;
  f.a.k = rows;
  f.a.v = values;
  f.a.k_scale = f.slopes;
  f.a.v_scale = f.sink;
  SET(f.slopes, 0.1f, 0.2f);
  SET(f.sink, 0.1f, 0.3f);
  f.p.stage = CLATTN_STAGE_MASKED;
  SET(f.q, 0.25f);
  run();
  const double a = -128 * (double)0.1f / 4, b = 127 * (double)0.2f / 4, l = exp(a) + exp(b);
  ALL_CLOSE(f.scores, a, b);
  ALL_CLOSE(f.o, (exp(a) * 7 * (double)0.1f) / l, (exp(a) * -8 * (double)0.1f + exp(b) * 7 * (double)0.3f) / l);
  SET(f.slopes, NAN, 0.2f); /* a scale's NaN is its key's */
  f.p.k_length_mode = CLATTN_LENGTH_PER_BATCH;
  f.a.k_lengths = f.k_lengths;
  f.k_lengths[0] = 2;
  run();
  ALL_CLOSE(f.o, NAN, NAN);
  SET(f.slopes, 0.1f, NAN); /* and nobody's where the key is excluded */
  SET(f.sink, 0.1f, NAN);
  f.k_lengths[0] = 1;
  run();
  ALL_CLOSE(f.o, 7 * (double)0.1f, -8 * (double)0.1f);
}

/* ---- similarities ---------------------------------------------------------------------------------------------- */

/* q and k are contiguous here, w and the scales per head are not. */
static long double similarity_by_definition(const float *q, const float *k, const float *w, int64_t dim) {
  long double sum = 0, qq = 0, kk = 0;
  for (int64_t d = 0; d < dim; d++) {
    qq += (long double)q[d] * q[d];
    kk += (long double)k[d] * k[d];
  }
  const long double q_length = sqrtl(qq) > 1e-12L ? sqrtl(qq) : 1e-12L;
  const long double k_length = sqrtl(kk) > 1e-12L ? sqrtl(kk) : 1e-12L;
  for (int64_t d = 0; d < dim; d++) {
    if (f.p.similarity == CLATTN_DOT)
      sum += (long double)q[d] * k[d];
    else if (f.p.similarity == CLATTN_COSINE)
      sum += q[d] / q_length * (k[d] / k_length);
    else
      sum += w[d * 5] * tanhl((long double)q[d] + k[d]);
  }
  return sum;
}

static void similarities_are_their_definitions(void **state) {
  (void)state;
  for (int round = 0; round < 600; round++) {
    const int64_t dim = 1 + below(6), S = 1 + below(3), K = 1 + below(6);
    start_random(S, K);
    f.p.similarity = (clattn_similarity)(round % 3);
    f.p.qk_dim = dim;
    f.p.v_dim = 1;
    f.p.scale_mode = below(2) ? CLATTN_SCALE_VALUE : CLATTN_SCALE_DEFAULT;
    f.p.scale = random_float();
    f.p.use_head_scale = below(2);
    f.p.softcap = below(2) ? 1.5f : 0.0f;
    f.p.causal = below(2);
    f.p.stage = CLATTN_STAGE_RAW;
    f.p.add_w = clattn_strided(CLATTN_F32, 0, 31, 0, 5);
    f.p.head_scale = clattn_strided(CLATTN_F32, 0, 3, 0, 0);
    f.a.add_w = f.p.similarity == CLATTN_ADDITIVE ? f.bias : NULL;
    f.a.head_scale = f.p.use_head_scale ? f.slopes : NULL;
    for (int n = 0; n < 64; n++)
      f.slopes[n] = random_float();
    for (int n = 0; n < ROOM; n++) { /* vectors of zeros, and of numbers whose squares are nearly nothing */
      if (below(3) == 0)
        f.q[n] = below(2) ? 0.0f : f.q[n] * 1e-13f;
      if (below(3) == 0)
        f.k[n] = below(2) ? 0.0f : f.k[n] * 1e-13f;
    }
    const long double scale = f.p.scale_mode == CLATTN_SCALE_VALUE ? f.p.scale
                              : f.p.similarity == CLATTN_DOT       ? (float)(1 / sqrt((double)dim))
                                                                   : 1;
    run();
    for (int64_t r = 0; r < 8 * S; r++) {
      const int64_t i = r % S, h = r / S % 4, b = r / S / 4;
      long double l = 0, o = 0;
      for (int64_t j = 0; j < K; j++) {
        const int64_t key = (b * 2 + h / 2) * K + j;
        long double s = similarity_by_definition(f.q + r * dim, f.k + key * dim, f.bias + h * 31, dim) * scale;
        if (f.p.use_head_scale)
          s *= f.slopes[h * 3];
        CLOSE(f.scores[r * K + j], (double)s);
        if (f.p.softcap > 0)
          s = f.p.softcap * tanhl(s / f.p.softcap);
        if (f.p.causal && j > i)
          continue;
        l += expl(s);
        o += expl(s) * f.v[key];
      }
      CLOSE(f.lse[r], (double)logl(l));
      CLOSE(f.o[r], (double)(o / l));
    }
  }
}

static void cosine_by_hand(void **state) {
  (void)state;
  start(3, 3);
  f.p.qk_dim = 2;
  f.p.v_dim = 1;
  f.p.scale = 10;
  f.p.similarity = CLATTN_COSINE;
  f.p.stage = CLATTN_STAGE_RAW;
  SET(f.q, 3, 4, 0, 0, 3e-13f, 4e-13f);
  SET(f.k, 300, 400, 0, 0, -0x1p102f, 0x1.8p101f);
  run();
  /* a vector shorter than 1e-12 is divided by that */
  const double half = ((double)3e-13f * 0.6 + (double)4e-13f * 0.8) / 1e-12;
  ALL_CLOSE(f.scores, 10, 0, 0, 0, 0, 0);
  CLOSE(f.scores[6], 10 * half);
  CLOSE(f.scores[7], 0);
  ALL_CLOSE(f.max_logit, 10);
  SET(f.q, NAN, 0);
  SET(f.k, INFINITY, 1);
  run();
  ALL_CLOSE(f.scores, NAN, NAN, NAN, NAN, 0); /* of length infinity there is no direction */
  ALL_CLOSE(f.lse, NAN);
}

static void additive_by_hand(void **state) {
  (void)state;
  start(1, 2);
  f.p.q_heads = f.p.kv_heads = 2;
  f.p.qk_dim = 2;
  f.p.v_dim = 1;
  f.p.scale_mode = CLATTN_SCALE_DEFAULT; /* 1 */
  f.p.similarity = CLATTN_ADDITIVE;
  f.p.stage = CLATTN_STAGE_MASKED;
  f.p.use_head_scale = 1;
  f.a.head_scale = f.slopes;
  f.a.add_w = f.bias;
  SET(f.slopes, 2, -1);
  SET(f.bias, 1, 2, 3, 4); /* (head, element) */
  SET(f.q, 0, 1, 0, 0);
  SET(f.k, 0, -1, 1, INFINITY, 0, 0, 0.5f, -1);
  run();
  ALL_CLOSE(f.scores, 0, 2 * (tanh(1) + 2), 0, -(3 * tanh(0.5) - 4 * tanh(1)));
  f.p.use_head_scale = 0;
  f.a.head_scale = NULL;
  f.p.head_scale = clattn_strided(CLATTN_F16, -1, -1, -1, -1); /* nothing reads it */
  run();
  ALL_CLOSE(f.scores, 0, tanh(1) + 2);
}

/* ---- hooks ----------------------------------------------------------------------------------------------------- */

static const clattn_hook *const any_hook = (const clattn_hook *)(const void *)&f;

/* What hooks are called with, checked; what they need, from the fixture. */
static void check_at(void *user, const clattn_ref_at *at) {
  const clattn_problem *p = &f.p;
  assert_ptr_equal(user, &f);
  assert_true(at->b >= 0 && at->b < p->batch && at->h >= 0 && at->h < p->q_heads);
  assert_int_equal(at->kv_h, at->h / (p->q_heads / p->kv_heads));
  assert_int_equal(at->q_len, f.q_lengths[at->b]);
  assert_int_equal(at->k_len, f.k_lengths[at->b]);
  assert_true(at->i >= 0 && at->i < at->q_len && at->j >= 0 && at->j < at->k_len);
  assert_int_equal(at->p, at->i + at->k_len - at->q_len);
}

static int64_t pair_of(const clattn_ref_at *at) {
  return ((at->b * f.p.q_heads + at->h) * f.p.q_len + at->i) * f.p.k_len + at->j;
}

static double add_bias(void *user, double s, const clattn_ref_at *at) {
  check_at(user, at);
  return s + (double)f.bias[pair_of(at)];
}

static int keep_by_mask(void *user, const clattn_ref_at *at) {
  check_at(user, at);
  return f.mask[pair_of(at)];
}

static int causal_by_hand(void *user, const clattn_ref_at *at) {
  check_at(user, at);
  return at->j <= at->p;
}

static void start_hooked(int packed) {
  static const int32_t q_rows[] = {3, 2}, k_rows[] = {4, 5};
  start_random(3, 5);
  f.p.offset_mode = CLATTN_OFFSET_BOTTOM_RIGHT;
  for (int b = 0; b < 2; b++) {
    f.q_lengths[b] = q_rows[b];
    f.k_lengths[b] = k_rows[b];
    f.cu_seqlens_q[b + 1] = f.cu_seqlens_q[b] + q_rows[b];
  }
  if (packed) {
    f.p.q.layout = f.p.o.layout = f.p.lse.layout = CLATTN_LAYOUT_PACKED;
    f.p.total_q = 5;
    f.a.cu_seqlens_q = f.cu_seqlens_q;
  } else {
    f.p.q_length_mode = CLATTN_LENGTH_PER_BATCH;
    f.a.q_lengths = f.q_lengths;
  }
  f.p.k_length_mode = CLATTN_LENGTH_PER_BATCH;
  f.a.k_lengths = f.k_lengths;
  for (int i = 0; i < ROOM; i++) {
    f.mask[i] = (unsigned char)below(2);
    if (below(6) == 0)
      f.bias[i] = -INFINITY;
  }
}

static void hooks_are_rules_said_in_another_way(void **state) {
  (void)state;
  for (int n = 0; n < 16; n++) {
    const int bias = n & 1, mask = n & 2, causal = n & 4 && !mask;
    start_hooked(n & 8);
    if (!bias && !mask && !causal)
      continue;
    f.p.use_bias = bias != 0;
    f.a.bias = bias ? f.bias : NULL;
    f.p.keep_mask_kind = mask ? CLATTN_MASK_U8 : CLATTN_MASK_NONE;
    f.a.keep_mask = mask ? f.mask : NULL;
    f.p.causal = causal != 0;
    remember();
    f.p.use_bias = f.p.causal = 0;
    f.p.keep_mask_kind = CLATTN_MASK_NONE;
    f.a.bias = f.a.keep_mask = NULL;
    f.p.hook = any_hook;
    f.a.hook_user = &f;
    f.a.score_hook = bias ? add_bias : NULL;
    f.a.keep_hook = mask ? keep_by_mask : causal ? causal_by_hand : NULL;
    run();
    SAME_ROWS(24);
    are_close(__FILE__, __LINE__, f.max_logit, before.max_logit, 8);
  }
}

static double twice_plus_one(void *user, double s, const clattn_ref_at *at) {
  (void)user;
  (void)at;
  return 2 * s + 1;
}

static double nan_for_key_1(void *user, double s, const clattn_ref_at *at) {
  (void)user;
  return at->j == 1 ? (double)NAN : s;
}

static int all_but_key_1(void *user, const clattn_ref_at *at) {
  (void)user;
  return at->j == 1 ? 0 : 1 << 20;
}

/* After softcap, bias and ALiBi; before the rules; not among the raw scores. */
static void hooks_come_last(void **state) {
  (void)state;
  for (int stage = 0; stage < 4; stage++) {
    start(1, 3);
    f.p.stage = stage;
    f.p.softcap = 2;
    f.p.use_bias = 1;
    f.a.bias = f.bias;
    f.p.alibi = CLATTN_ALIBI_SIGNED;
    f.a.alibi_slopes = f.slopes;
    f.p.hook = any_hook;
    f.a.score_hook = twice_plus_one;
    f.p.window = CLATTN_WINDOW_RIGHT;
    f.p.window_right = 1;
    SET(f.q, 1);
    SET(f.k, 1, -3, 9);
    SET(f.bias, 0.5f, 0, 0);
    SET(f.slopes, 0.25f);
    run();
    const double a = 2 * (2 * tanh(0.5) + 0.5) + 1, b = 2 * (2 * tanh(-1.5) + 0.25) + 1, l = exp(a) + exp(b);
    if (stage == CLATTN_STAGE_RAW)
      ALL_CLOSE(f.scores, 1, -3, 9);
    if (stage == CLATTN_STAGE_SOFTCAP)
      ALL_CLOSE(f.scores, 2 * tanh(0.5), 2 * tanh(-1.5), 2 * tanh(4.5));
    if (stage == CLATTN_STAGE_MASKED)
      ALL_CLOSE(f.scores, a, b, none);
    if (stage == CLATTN_STAGE_WEIGHTS)
      ALL_CLOSE(f.scores, exp(a) / l, exp(b) / l, 0);
    ALL_CLOSE(f.lse, log(l));
    ALL_CLOSE(f.max_logit, 1);
  }
  start(1, 3); /* what a hook makes NaN is a score like others, unless the pair is excluded */
  f.p.hook = any_hook;
  f.a.score_hook = nan_for_key_1;
  SET(f.v, 2, 8, 4);
  run();
  ALL_CLOSE(f.o, NAN);
  f.a.keep_hook = all_but_key_1;
  run();
  ALL_CLOSE(f.o, 3);
  KEPT(1, 3, "101");
  f.p.k_length_mode = CLATTN_LENGTH_PER_BATCH; /* no pair: neither is asked */
  f.a.k_lengths = f.k_lengths;
  run();
  ALL_CLOSE(f.o, 0);
  ALL_CLOSE(f.lse, none);
}

/* ---- rotary embedding ------------------------------------------------------------------------------------------ */

/* Quarter turns: row 1 and key 2 stand a quarter apart, whichever elements make a pair. */
static void rotary_by_hand(void **state) {
  static const float cosines[] = {1, 0, -1, 0}, sines[] = {0, 1, 0, -1};
  static const int32_t of_rows[] = {3, -7}, of_keys[] = {1, 2, 99}; /* clamped to 0 and 3 */
  (void)state;
  start(2, 3);
  f.p.qk_dim = 2;
  f.p.v_dim = 1;
  f.p.stage = CLATTN_STAGE_RAW;
  f.p.rope_positions = 4;
  f.a.rope_cos = cosines;
  f.a.rope_sin = sines;
  SET(f.q, 2, 0, 0, 3);
  SET(f.k, 1, 0, 1, 0, 5, 7);
  for (f.p.rope = CLATTN_ROPE_HALF; f.p.rope <= CLATTN_ROPE_INTERLEAVED; f.p.rope++) {
    f.p.use_positions = 0;
    f.a.positions_q = f.a.positions_k = NULL;
    run(); /* rows (2, 0), (-3, 0); keys (1, 0), (0, 1), (-5, -7) */
    ALL_CLOSE(f.scores, 2, 0, -10, -3, 0, 15);
    f.p.offset_mode = CLATTN_OFFSET_VALUE;
    f.p.offset = 2;
    run(); /* rows (-2, 0), (3, 0) */
    ALL_CLOSE(f.scores, -2, 0, 10, 3, 0, -15);
    f.p.offset_mode = CLATTN_OFFSET_TOP_LEFT;
    f.p.use_positions = 1;
    f.a.positions_q = of_rows;
    f.a.positions_k = of_keys;
    run(); /* rows (0, -2), (0, 3); keys (0, 1), (-1, 0), (7, -5) */
    ALL_CLOSE(f.scores, -2, 0, 10, 3, 0, -15);
  }
  f.p.qk_dim = 5; /* pairs (0, 2) and (1, 3), or (0, 1) and (2, 3); the last one stays */
  f.p.rope_dim = 4;
  f.p.k_len = f.p.q_len = 1;
  f.p.rope_positions = 1;
  static const float c[] = {0, 2}, s[] = {1, 0};
  f.a.rope_cos = c;
  f.a.rope_sin = s;
  SET(f.q, 1, 2, 3, 4, 5);
  SET(f.k, 1, 10, 100, 1000, 10000);
  for (f.p.rope = CLATTN_ROPE_HALF; f.p.rope <= CLATTN_ROPE_INTERLEAVED; f.p.rope++) {
    run();
    if (f.p.rope == CLATTN_ROPE_HALF) /* (-3, 4, 1, 8, 5) and (-100, 20, 1, 2000, 10000) */
      ALL_CLOSE(f.scores, 300 + 80 + 1 + 16000 + 50000);
    else /* (-2, 1, 6, 8, 5) and (-10, 1, 200, 2000, 10000) */
      ALL_CLOSE(f.scores, 20 + 1 + 1200 + 16000 + 50000);
  }
}

/* Turns a row of whole numbers, as complex ones; the table's line and the results are exact. */
static void turn(float *row, int64_t dim, clattn_rope rope, const float *cosines, const float *sines, int64_t step) {
  for (int64_t n = 0; n < dim / 2; n++) {
    float *const re = rope == CLATTN_ROPE_HALF ? row + n : row + 2 * n;
    float *const im = rope == CLATTN_ROPE_HALF ? row + n + dim / 2 : row + 2 * n + 1;
    const float x = *re, y = *im;
    *re = x * cosines[n * step] - y * sines[n * step];
    *im = y * cosines[n * step] + x * sines[n * step];
  }
}

static int64_t limit(int64_t x, int64_t most) {
  return x < 0 ? 0 : x > most ? most : x;
}

/* In every layout, with shared tables and tables per batch entry, with given positions and with those that rows have. */
static void rotary_rows_are_turned_rows(void **state) {
  enum { PLAIN, PACKED, PAGED, Q = 3, K = 6, HQ = 4, HKV = 2 };
  static float cosines[ROOM], sines[ROOM], q[ROOM], k[ROOM];
  static int32_t of_rows[2 * Q], of_keys[2 * K];
  (void)state;
  for (int n = 0; n < 3 * 2 * 2 * 2 * 3 * 4; n++) {
    const int layout = n % 3, given = n / 3 % 2, per_batch = n / 6 % 2;
    const clattn_rope rope = 1 + n / 12 % 2;
    const int64_t dim = 7, rotated = 2 + 2 * below(3), lines = 9, offset = n / 72;
    start_random(Q, K);
    f.p.qk_dim = dim;
    f.p.similarity = (clattn_similarity)(n / 24 % 3);
    f.a.add_w = f.p.similarity == CLATTN_ADDITIVE ? f.bias : NULL;
    f.p.causal = 1;
    f.p.offset_mode = CLATTN_OFFSET_VALUE;
    f.p.offset = offset;
    for (int i = 0; i < ROOM; i++) {
      f.q[i] = (float)below(9) - 4;
      f.k[i] = (float)below(9) - 4;
      cosines[i] = (float)(below(9)) / 4 - 1;
      sines[i] = (float)(below(9)) / 4 - 1;
    }
    for (int i = 0; i < 2 * Q; i++)
      of_rows[i] = (int32_t)below(13) - 2;
    for (int i = 0; i < 2 * K; i++)
      of_keys[i] = (int32_t)below(13) - 2;
    if (layout == PACKED) { /* 2 and 3 rows, 5 and 6 keys */
      f.p.total_q = f.cu_seqlens_q[2] = 5;
      f.p.total_k = f.cu_seqlens_k[2] = 11;
      f.cu_seqlens_q[1] = 2;
      f.cu_seqlens_k[1] = 5;
      f.p.q.layout = f.p.o.layout = f.p.lse.layout = f.p.k.layout = f.p.v.layout = CLATTN_LAYOUT_PACKED;
      f.a.cu_seqlens_q = f.cu_seqlens_q;
      f.a.cu_seqlens_k = f.cu_seqlens_k;
    }
    if (layout == PAGED) { /* a page for each three keys, in falling order */
      f.p.k.layout = f.p.v.layout = CLATTN_LAYOUT_PAGED;
      f.p.num_pages = 4;
      f.p.max_pages = 2;
      f.p.page_size = 3;
      f.p.k_length_mode = CLATTN_LENGTH_PER_BATCH;
      f.a.page_table = f.page_table;
      f.a.k_lengths = f.k_lengths;
      f.k_lengths[0] = 5;
      f.k_lengths[1] = K;
      for (int i = 0; i < 4; i++)
        f.page_table[i] = 3 - i;
    }
    memcpy(q, f.q, sizeof q);
    memcpy(k, f.k, sizeof k);
    const int64_t of_batch = per_batch ? 100 : 0, line = 8, step = 2;
    for (int64_t b = 0; b < 2; b++) {
      const int64_t rows = layout == PACKED ? 2 + b : Q, keys = layout == PLAIN ? K : 5 + b;
      for (int64_t i = 0; i < rows; i++) {
        const int64_t row = layout == PACKED ? 2 * b + i : b * Q + i;
        const int64_t at = b * of_batch + limit(given ? of_rows[row] : i + offset, lines - 1) * line;
        for (int64_t h = 0; h < HQ; h++)
          turn(f.q + (layout == PACKED ? row * HQ + h : (b * HQ + h) * Q + i) * dim, rotated, rope, cosines + at,
               sines + at, step);
      }
      for (int64_t j = 0; j < keys; j++) {
        const int64_t row = layout == PACKED ? 5 * b + j : b * K + j;
        const int64_t at = b * of_batch + limit(given ? of_keys[row] : j, lines - 1) * line;
        const int64_t in_pages = (3 - (2 * b + j / 3)) * 3 + j % 3;
        for (int64_t h = 0; h < HKV; h++)
          turn(f.k + (layout == PLAIN ? (b * HKV + h) * K + j : (layout == PACKED ? row : in_pages) * HKV + h) * dim,
               rotated, rope, cosines + at, sines + at, step);
      }
    }
    remember(); /* the turned rows; then the others, that the reference has to turn */
    memcpy(f.q, q, sizeof q);
    memcpy(f.k, k, sizeof k);
    f.p.rope = rope;
    f.p.rope_dim = rotated;
    f.p.rope_positions = lines;
    f.p.rope_cos = f.p.rope_sin = clattn_strided(CLATTN_F32, of_batch, 0, line, step);
    f.a.rope_cos = cosines;
    f.a.rope_sin = sines;
    f.p.use_positions = (uint32_t)given;
    f.a.positions_q = given ? of_rows : NULL;
    f.a.positions_k = given ? of_keys : NULL;
    run();
    SAME_ROWS(2 * HQ * Q);
  }
}

/* ---- arguments ------------------------------------------------------------------------------------------------- */

static void bad_arguments(void **state) {
  (void)state;
  REFUSED(NULL_POINTER, "head_scale is NULL", f.p.use_head_scale = 1);
  REFUSED(NULL_POINTER, "add_w is NULL", f.p.similarity = CLATTN_ADDITIVE);
  REFUSED(NULL_POINTER, "k_scale is NULL", f.p.k.dtype = CLATTN_I8);
  REFUSED(NULL_POINTER, "rope_cos is NULL", f.p.qk_dim = 2, f.p.rope = 1);
  REFUSED(NULL_POINTER, "rope_sin is NULL", f.p.qk_dim = 2, f.p.rope = 1, f.a.rope_cos = f.slopes);
  REFUSED(NULL_POINTER, "positions_k is NULL", f.p.qk_dim = 2, f.p.rope = 1, f.a.rope_cos = f.a.rope_sin = f.slopes,
          f.p.use_positions = 1, f.a.positions_q = f.q_lengths);
  REFUSED(TENSOR_UNUSED, "rope_cos is given", f.a.rope_cos = f.slopes);
  REFUSED(TENSOR_UNUSED, "positions_q is given", f.p.qk_dim = 2, f.p.rope = 1, f.a.rope_cos = f.a.rope_sin = f.slopes,
          f.a.positions_q = f.q_lengths);
  REFUSED(NULL_POINTER, "v_scale is NULL", f.p.v.dtype = CLATTN_I4);
  REFUSED(TENSOR_UNUSED, "head_scale is given", f.a.head_scale = f.slopes);
  REFUSED(TENSOR_UNUSED, "add_w is given", f.a.add_w = f.bias, f.p.similarity = CLATTN_COSINE);
  REFUSED(TENSOR_UNUSED, "k_scale is given", f.a.k_scale = f.slopes, f.p.v.dtype = CLATTN_I8, f.a.v_scale = f.sink);
  REFUSED(TENSOR_UNUSED, "v_scale is given", f.a.v_scale = f.slopes);
  REFUSED(TENSOR_UNUSED, "v_scale is given", f.a.v_scale = f.slopes, f.a.o = NULL);
  REFUSED(NULL_POINTER, "score_hook and keep_hook are NULL", f.p.hook = any_hook, f.a.hook_user = &f);
  REFUSED(TENSOR_UNUSED, "score_hook is given, but the problem has no hook", f.a.score_hook = twice_plus_one);
  REFUSED(TENSOR_UNUSED, "keep_hook is given, but the problem has no hook", f.a.keep_hook = all_but_key_1);

  start(1, 2); /* without o neither v nor its scales are needed, and may be there all the same */
  f.p.v.dtype = CLATTN_I8;
  f.a.o = NULL;
  f.a.v = NULL;
  run();
  ALL_CLOSE(f.lse, log(2));
  f.a.v_scale = f.slopes;
  run();
  ALL_CLOSE(f.lse, log(2));
  start(2, 0); /* nothing to scale */
  f.p.k.dtype = f.p.v.dtype = CLATTN_I4;
  f.a.k = f.a.v = NULL;
  run();
  ALL_CLOSE(f.lse, none, none);
}

int test_ref_types(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(any_mix_of_floats),
      cmocka_unit_test(infinities_and_nans_of_16_bits),
      cmocka_unit_test(quantised_keys_and_values_are_floats),
      cmocka_unit_test(strides_of_quantised),
      cmocka_unit_test(quantised_by_hand),
      cmocka_unit_test(similarities_are_their_definitions),
      cmocka_unit_test(cosine_by_hand),
      cmocka_unit_test(additive_by_hand),
      cmocka_unit_test(rotary_by_hand),
      cmocka_unit_test(rotary_rows_are_turned_rows),
      cmocka_unit_test(hooks_are_rules_said_in_another_way),
      cmocka_unit_test(hooks_come_last),
      cmocka_unit_test(bad_arguments),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
