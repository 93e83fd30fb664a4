/* SPDX-License-Identifier: Apache-2.0 */
/* The references of nn_ref.h against numbers worked out by hand, and against one another. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nn_ref.h"

static void is_near(double got, double want) {
  if (!nn_ref_near(got, want, 1e-12 * (1 + fabs(want))))
    fail_msg("%.17g, not %.17g", got, want);
}

static void are_near(const double *got, const double *want, int64_t count) {
  for (int64_t n = 0; n < count; n++)
    is_near(got[n], want[n]);
}

static uint64_t state_of_draw = 88172645463325252u;

static double *drawn(int64_t count) {
  double *numbers = nn_ref_numbers(count);
  for (int64_t n = 0; n < count; n++) {
    state_of_draw ^= state_of_draw << 13;
    state_of_draw ^= state_of_draw >> 7;
    state_of_draw ^= state_of_draw << 17;
    numbers[n] = (double)(float)((double)(state_of_draw >> 11) / 4503599627370496.0 - 1); /* -1 to 1 */
  }
  return numbers;
}

static nn_ref_weight drawn_weight(int64_t in, int64_t out) {
  const nn_ref_weight weight = {in, out, drawn(in * out), drawn(out)};
  return weight;
}

static void drop(const nn_ref_weight *weight) {
  free((void *)(uintptr_t)weight->w);
  free((void *)(uintptr_t)weight->b);
}

static void rounding(void **state) {
  (void)state;
  static const struct {
    clattn_dtype dtype;
    double from, to;
  } rows[] = {
      {CLATTN_F32, 1 + 0x1p-24, 1},
      {CLATTN_F32, 1 + 0x1.8p-23, 1 + 0x1p-22},
      {CLATTN_F32, 0x1p-150, 0},
      {CLATTN_F32, 1e39, (double)INFINITY},
      {CLATTN_F16, 1 + 0x1p-11, 1},
      {CLATTN_F16, 1 + 0x1.8p-10, 1 + 0x1p-9},
      {CLATTN_F16, 65519, 65504},
      {CLATTN_F16, 65520, (double)INFINITY},
      {CLATTN_F16, -0x1.4p-24, -0x1p-24},
      {CLATTN_F16, 0x1p-25, 0},
      {CLATTN_F16, 0x1.ffcp-15, 0x1p-14},
      {CLATTN_BF16, 1 + 0x1p-8, 1},
      {CLATTN_BF16, -1 - 0x1.8p-7, -1 - 0x1p-6},
      {CLATTN_BF16, 3.4e38, (double)INFINITY},
      {CLATTN_BF16, 0x1.8p-133, 0x1p-132},
      {CLATTN_BF16, (double)NAN, (double)NAN},
      {CLATTN_F16, -(double)INFINITY, -(double)INFINITY},
  };
  for (size_t n = 0; n < sizeof rows / sizeof rows[0]; n++) {
    unsigned char memory[8] = {0};
    assert_true(nn_ref_near(nn_ref_round(rows[n].dtype, rows[n].from), rows[n].to, 0));
    nn_ref_store(rows[n].dtype, memory, 1, rows[n].from);
    assert_true(nn_ref_near(nn_ref_load(rows[n].dtype, memory, 1), rows[n].to, 0));
  }
  /* every f16 comes back as it was */
  for (uint32_t bits = 0; bits < 65536; bits++) {
    const uint16_t from = (uint16_t)bits;
    uint16_t back = 0;
    const double x = nn_ref_load(CLATTN_F16, &from, 0);
    nn_ref_store(CLATTN_F16, &back, 0, x);
    assert_true(isnan(x) ? (bits & 0x7fff) > 0x7c00 : back == from);
  }
  assert_true(nn_ref_rounding(CLATTN_F16, 1.5) == 0x1p-11 && nn_ref_rounding(CLATTN_F32, 0) == 0x1p-150);
  assert_false(nn_ref_near((double)NAN, 1, 1e300));
  assert_false(nn_ref_near((double)INFINITY, 1e300, (double)INFINITY));
}

static void linear(void **state) {
  (void)state;
  static const double known[5][2] = {/* at -1 and 2 */ {-1, 2},
                                     {0, 2},
                                     {-0.15865525393145705, 1.9544997361036416},
                                     {-0.15880800939172324, 1.9545976940877752},
                                     {-0.2689414213699951, 1.7615941559557649}};
  for (int a = CLATTN_NN_NONE; a <= CLATTN_NN_SILU; a++) {
    is_near(nn_ref_activate(a, -1), known[a][0]);
    is_near(nn_ref_activate(a, 2), known[a][1]);
  }
  const double w[] = {1, 2, 3, -4, 5, -6}, b[] = {10, -1}, x[] = {1, 1, 1, 2, 0, -1};
  const double factor[] = {2, 3, -1, 1}, residual[] = {0.5, 0, 1, 2};
  const double want[] = {32.5, 0, -8, 2}; /* relu(16, -6; 9, -3) times factor plus residual */
  const double sizes[] = {64.5, 48, 1 + 9 + 15, 2 + 15};
  const nn_ref_weight weight = {3, 2, w, b};
  double y[4], size[4];
  nn_ref_linear(&weight, CLATTN_NN_RELU, 2, x, factor, residual, y, size);
  are_near(y, want, 4);
  are_near(size, sizes, 4);
}

static void norms(void **state) {
  (void)state;
  const double x[] = {1, 2, 3, 6}, gamma[] = {1, 2, 1, 1}, beta[] = {0, 0, 0, 5};
  const double root = sqrt(14.0 / 4 + 0.5), rms = sqrt(50.0 / 4);
  const double layer[] = {-2 / root, -2 / root, 0, 5 + 3 / root};
  const double squares[] = {1 / rms, 4 / rms, 3 / rms, 5 + 6 / rms};
  double y[4], sum[4], mean = 0, inv_std = 0;
  nn_ref_norm(CLATTN_NN_LAYER_NORM, 0.5, 1, 4, x, NULL, gamma, beta, y, sum, &mean, &inv_std);
  are_near(y, layer, 4);
  are_near(sum, x, 4);
  is_near(mean, 3);
  is_near(inv_std, 1 / root);
  nn_ref_norm(CLATTN_NN_RMS_NORM, 0, 1, 4, x, NULL, gamma, beta, y, NULL, NULL, NULL);
  are_near(y, squares, 4);
}

/* Fused, paired and single projections are the same numbers; the layer is projections round clattn_ref_attention. */
static void attention(void **state) {
  (void)state;
  enum { B = 2, S = 5, H = 4, KV = 2, D = 3, V = 2, IN = 6, OUT = 7 };
  clattn_problem p;
  clattn_problem_init(&p);
  p.batch = B;
  p.q_len = p.k_len = S;
  p.q_heads = H;
  p.kv_heads = KV;
  p.qk_dim = D;
  p.v_dim = V;
  p.causal = 1;
  nn_ref_heads fused, paired, single;
  memset(&fused, 0, sizeof fused);
  fused.qkv = drawn_weight(IN, (H + KV) * D + KV * V);
  fused.o = drawn_weight(H * V, OUT);
  memset(&paired, 0, sizeof paired);
  paired.o = fused.o;
  single = paired;
  const double *w = fused.qkv.w, *b = fused.qkv.b;
  paired.q = single.q = (nn_ref_weight){IN, H * D, w, b};
  paired.kv = (nn_ref_weight){IN, KV * (D + V), w + H * D * IN, b + H * D};
  single.k = (nn_ref_weight){IN, KV * D, w + H * D * IN, b + H * D};
  single.v = (nn_ref_weight){IN, KV * V, w + (H + KV) * D * IN, b + (H + KV) * D};
  double *x = drawn(B * S * IN), *residual = drawn(B * S * OUT), *y[4];
  for (int n = 0; n < 4; n++)
    y[n] = nn_ref_numbers(B * S * OUT);
  assert_int_equal(nn_ref_attention(&p, NULL, &fused, x, NULL, residual, y[0]), CLATTN_SUCCESS);
  assert_int_equal(nn_ref_attention(&p, NULL, &paired, x, x, residual, y[1]), CLATTN_SUCCESS);
  assert_int_equal(nn_ref_attention(&p, NULL, &single, x, NULL, residual, y[2]), CLATTN_SUCCESS);
  are_near(y[1], y[0], B * S * OUT);
  are_near(y[2], y[0], B * S * OUT);
  /* Row 0 of a sequence sees itself alone: its values, of each key head for two query heads, projected. */
  double values[KV * V], heads[H * V];
  nn_ref_linear(&single.v, CLATTN_NN_NONE, 1, x + S * IN, NULL, NULL, values, NULL);
  for (int e = 0; e < H * V; e++)
    heads[e] = nn_ref_round(CLATTN_F32, values[e / (2 * V) * V + e % V]);
  nn_ref_linear(&fused.o, CLATTN_NN_NONE, 1, heads, NULL, residual + S * OUT, y[3], NULL);
  are_near(y[0] + S * OUT, y[3], OUT);
  for (int n = 0; n < 4; n++)
    free(y[n]);
  free(x);
  free(residual);
  drop(&fused.qkv);
  drop(&fused.o);
}

static void encdec(void **state) {
  (void)state;
  /* scores 1 and 0: weights e / (e + 1) and the rest; the second target row sees one source row */
  const double target[] = {1, 0, 0, 1}, source[] = {1, 0, 0, 5, 2, 2, 9, 9};
  const int32_t lengths[] = {2, 1};
  const double large = exp(1) / (exp(1) + 1);
  const double want[] = {large, 5 * (1 - large), 2, 2}, want_weights[] = {large, 1 - large, 1, 0};
  const nn_ref_encdec e = {.similarity = CLATTN_DOT,
                           .scale = 1,
                           .batch = 2,
                           .target_len = 1,
                           .source_len = 2,
                           .target_dim = 2,
                           .source_dim = 2,
                           .target = target,
                           .source = source,
                           .source_lengths = lengths};
  double contexts[4], weights[4];
  assert_int_equal(nn_ref_encdec_attention(&e, contexts, weights), CLATTN_SUCCESS);
  are_near(contexts, want, 4);
  are_near(weights, want_weights, 4);
}

/* With every output weight 0 a block is its norms: post-norm normalises again and again, pre-norm passes x on; and a
 * feed-forward alone is what its three linear layers give. */
static void blocks(void **state) {
  (void)state;
  enum { S = 3, D = 4, HIDDEN = 5 };
  static const double zeros[D * HIDDEN];
  clattn_problem p;
  clattn_problem_init(&p);
  p.q_len = p.k_len = S;
  p.qk_dim = D;
  nn_ref_block block;
  memset(&block, 0, sizeof block);
  const nn_ref_weight to_zero = {D, D, zeros, NULL}, down = {HIDDEN, D, zeros, NULL};
  nn_ref_weight qkv = drawn_weight(D, 3 * D), up = drawn_weight(D, HIDDEN), gate = drawn_weight(D, HIDDEN);
  nn_ref_weight back = drawn_weight(HIDDEN, D);
  double *x = drawn(S * D), y[S * D], want[S * D], hidden[S * HIDDEN], factor[S * HIDDEN];
  block.epsilon = 0.25;
  block.self_problem = block.cross_problem = &p;
  block.self_heads.qkv = block.cross_heads.qkv = qkv;
  block.self_heads.o = block.cross_heads.o = to_zero;
  block.up = up;
  block.down = down;
  block.x = block.context = x;
  block.order = CLATTN_NN_PRE_NORM;
  assert_int_equal(nn_ref_block_run(&block, y), CLATTN_SUCCESS);
  are_near(y, x, S * D);
  block.order = CLATTN_NN_POST_NORM;
  assert_int_equal(nn_ref_block_run(&block, y), CLATTN_SUCCESS);
  memcpy(want, x, sizeof want);
  for (int times = 0; times < 3; times++)
    nn_ref_norm(CLATTN_NN_LAYER_NORM, 0.25, S, D, want, NULL, NULL, NULL, want, NULL, NULL, NULL);
  for (int n = 0; n < S * D; n++)
    assert_true(nn_ref_near(y[n], want[n], 1e-6)); /* rounded to f32 on the way */
  nn_ref_ffn(&up, &gate, &back, CLATTN_NN_SILU, CLATTN_F32, S, x, x, y);
  nn_ref_linear(&gate, CLATTN_NN_NONE, S, x, NULL, NULL, factor, NULL);
  nn_ref_linear(&up, CLATTN_NN_SILU, S, x, factor, NULL, hidden, NULL);
  nn_ref_linear(&back, CLATTN_NN_NONE, S, hidden, NULL, x, want, NULL);
  for (int n = 0; n < S * D; n++)
    assert_true(nn_ref_near(y[n], want[n], 1e-6));
  free(x);
  drop(&qkv);
  drop(&up);
  drop(&gate);
  drop(&back);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rounding),  cmocka_unit_test(linear), cmocka_unit_test(norms),
      cmocka_unit_test(attention), cmocka_unit_test(encdec), cmocka_unit_test(blocks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
