/* SPDX-License-Identifier: Apache-2.0 */
/* Layers and blocks of libclattn_nn on the default device, against references in double precision. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn_layer_job.h"

/* ---- attention: a problem with everything that it asks for --------------------------------------------------------- */

enum { MODEL = 24, CONTEXT = 20 }; /* columns of x and y, of a context */

typedef enum weights_form { APART, PAIR, PACKED } weights_form;
typedef enum residual_form { NO_RESIDUAL, RESIDUAL, IN_PLACE, X_IN_PLACE } residual_form;

/* What a problem asks for beside q, k and v, on the device and in the reference. */
typedef struct extras {
  clattn_problem problem;
  clattn_args args;
  clattn_ref_args ref;
  matrix lse, scores, max_logit;
} extras;

static const int32_t key_lengths[] = {9, 4, 0};

/* Results as matrices of one row for each (batch, head, row). */
static void want_results(extras *e, int64_t batch, int64_t heads) {
  const clattn_problem *p = &e->problem;
  const int64_t rows = batch * heads * p->q_len;
  if (p->outputs & CLATTN_OUT_LSE) {
    e->lse = dense(rows, 1);
    e->args.lse = mem_of(&e->lse);
    e->ref.lse = memory((size_t)rows * sizeof(double));
  }
  if (p->outputs & CLATTN_OUT_SCORES) {
    e->scores = dense(rows, p->k_len);
    e->args.scores = mem_of(&e->scores);
    e->ref.scores = memory((size_t)(rows * p->k_len) * sizeof(double));
  }
  if (p->outputs & CLATTN_OUT_MAX_LOGIT) {
    e->max_logit = dense(batch * heads, 1);
    e->args.max_logit = mem_of(&e->max_logit);
    e->ref.max_logit = memory((size_t)(batch * heads) * sizeof(double));
  }
}

static float *narrow(const double *numbers, int64_t count) {
  float *values = memory((size_t)count * sizeof *values);
  for (int64_t i = 0; i < count; i++)
    values[i] = (float)numbers[i];
  return values;
}

/* The tables of a rotary embedding, and positions that are not those of the rows. */
static void add_rope(extras *e, int64_t batch) {
  const clattn_problem *p = &e->problem;
  const int64_t dim = p->rope_dim != 0 ? p->rope_dim : p->qk_dim;
  const int64_t positions = p->rope_positions != 0 ? p->rope_positions : p->k_len;
  const size_t bytes = (size_t)(positions * dim / 2) * sizeof(float);
  float *cosines = memory(bytes), *sines = memory(bytes);
  clattn_nn_rope_config config;
  clattn_nn_rope_config_init(&config);
  config.positions = positions;
  config.dim = dim;
  assert_int_equal(clattn_nn_rope_tables(&config, cosines, sines), CLATTN_SUCCESS);
  e->args.rope_cos = clattn_buffer(buffer_of(bytes, cosines), 0);
  e->args.rope_sin = clattn_buffer(buffer_of(bytes, sines), 0);
  e->ref.rope_cos = cosines;
  e->ref.rope_sin = sines;
  if (!p->use_positions)
    return;
  int32_t *rows = memory((size_t)(batch * p->q_len) * sizeof *rows),
          *keys = memory((size_t)(batch * p->k_len) * sizeof *keys);
  for (int64_t i = 0; i < batch * p->q_len; i++)
    rows[i] = (int32_t)uniform(0, (double)positions);
  for (int64_t i = 0; i < batch * p->k_len; i++)
    keys[i] = (int32_t)uniform(0, (double)positions);
  e->args.positions_q = clattn_buffer(buffer_of((size_t)(batch * p->q_len) * sizeof *rows, rows), 0);
  e->args.positions_k = clattn_buffer(buffer_of((size_t)(batch * p->k_len) * sizeof *keys, keys), 0);
  e->ref.positions_q = rows;
  e->ref.positions_k = keys;
}

static extras extras_of(const char *line) {
  extras e;
  clattn_error error;
  double *numbers = NULL;
  memset(&e, 0, sizeof e);
  clattn_error_init(&error);
  clattn_args_init(&e.args);
  clattn_ref_args_init(&e.ref);
  if (clattn_problem_parse(line, &e.problem, &error) != CLATTN_SUCCESS)
    fail_msg("%s: %s", line, error.message);
  const clattn_problem *p = &e.problem;
  const int64_t batch = p->batch != 0 ? p->batch : 1, heads = p->q_heads != 0 ? p->q_heads : 1;
  const int64_t pairs = batch * heads * p->q_len * p->k_len;
  if (p->k_length_mode == CLATTN_LENGTH_PER_BATCH) {
    assert_true(batch <= 3 && p->k_len >= key_lengths[0]);
    e.args.k_lengths.kind = CLATTN_ARRAY_DEVICE;
    e.args.k_lengths.count = (uint32_t)batch;
    e.args.k_lengths.device = clattn_buffer(buffer_of(sizeof key_lengths, key_lengths), 0);
    e.ref.k_lengths = key_lengths;
  }
  if (p->use_bias) {
    e.args.bias = drawn_floats(pairs, -1, 1, &numbers);
    e.ref.bias = narrow(numbers, pairs);
  }
  if (p->keep_mask_kind == CLATTN_MASK_U8) {
    unsigned char *mask = memory((size_t)pairs);
    for (int64_t i = 0; i < pairs; i++)
      mask[i] = uniform(0, 1) < 0.7;
    e.args.keep_mask = clattn_buffer(buffer_of((size_t)pairs, mask), 0);
    e.ref.keep_mask = mask;
  }
  if (p->use_sink) {
    e.args.sink = drawn_floats(heads, -1, 1, &numbers);
    e.ref.sink = narrow(numbers, heads);
  }
  if (p->similarity == CLATTN_ADDITIVE) {
    e.args.add_w = drawn_floats(heads * p->qk_dim, -1, 1, &numbers);
    e.ref.add_w = narrow(numbers, heads * p->qk_dim);
  }
  if (p->rope != CLATTN_ROPE_NONE)
    add_rope(&e, batch);
  want_results(&e, batch, heads);
  return e;
}

typedef struct head_weights {
  clattn_nn_heads heads;
  nn_ref_heads ref;
} head_weights;

static head_weights heads_of(const clattn_problem *p, weights_form form, clattn_dtype dtype, int64_t context_in,
                             int qk_norm) {
  const int64_t heads = p->q_heads != 0 ? p->q_heads : 1, kv_heads = p->kv_heads != 0 ? p->kv_heads : heads;
  const int64_t v_dim = p->v_dim != 0 ? p->v_dim : p->qk_dim;
  const weight parts[] = {drawn_weight(MODEL, heads * p->qk_dim, dtype, 1),
                          drawn_weight(context_in, kv_heads * p->qk_dim, dtype, 1),
                          drawn_weight(context_in, kv_heads * v_dim, dtype, 1)};
  const weight o = drawn_weight(heads * v_dim, MODEL, dtype, 1);
  head_weights w;
  double *gamma = NULL;
  memset(&w, 0, sizeof w);
  if (form == PACKED) {
    const weight all = joined(parts, 3, dtype);
    w.heads.qkv = all.device;
    w.ref.qkv = all.ref;
  } else {
    w.heads.q = parts[0].device;
    w.ref.q = parts[0].ref;
  }
  if (form == PAIR) {
    const weight pair = joined(parts + 1, 2, dtype);
    w.heads.kv = pair.device;
    w.ref.kv = pair.ref;
  }
  if (form == APART) {
    w.heads.k = parts[1].device;
    w.ref.k = parts[1].ref;
    w.heads.v = parts[2].device;
    w.ref.v = parts[2].ref;
  }
  w.heads.o = o.device;
  w.ref.o = o.ref;
  if (qk_norm) {
    w.heads.q_gamma = drawn_floats(p->qk_dim, 0.5, 1.5, &gamma);
    w.ref.q_gamma = gamma;
    w.heads.k_gamma = drawn_floats(p->qk_dim, 0.5, 1.5, &gamma);
    w.ref.k_gamma = gamma;
    w.heads.qk_epsilon = 1e-5f;
    w.ref.qk_epsilon = (double)w.heads.qk_epsilon;
  }
  return w;
}

/* The results beside y. */
static int add_results(const extras *e, matrix *outputs, int count) {
  const matrix *results[] = {&e->lse, &e->scores, &e->max_logit};
  for (int i = 0; i < 3; i++)
    if (results[i]->buffer != NULL)
      outputs[count++] = *results[i];
  return count;
}

static void check_results(const char *name, const extras *e, clattn_dtype loss) {
  if (e->lse.buffer != NULL)
    check(name, "lse", &e->lse, e->ref.lse, loss);
  if (e->scores.buffer != NULL)
    check(name, "scores", &e->scores, e->ref.scores, loss);
  if (e->max_logit.buffer != NULL)
    check(name, "max_logit", &e->max_logit, e->ref.max_logit, loss);
}

typedef struct attention_case {
  const char *name, *line;
  weights_form form;
  int cross, qk_norm;
  residual_form residual;
  clattn_dtype dtype; /* of x, context, y, residual and the weights */
} attention_case;

static clattn_dtype coarser(clattn_dtype a, clattn_dtype b) {
  return a == CLATTN_BF16 || b == CLATTN_BF16 ? CLATTN_BF16 : a == CLATTN_F16 || b == CLATTN_F16 ? CLATTN_F16 : a;
}

static void check_attention(const attention_case *c) {
  extras e = extras_of(c->line);
  const clattn_problem *p = &e.problem;
  const int64_t batch = p->batch != 0 ? p->batch : 1, rows = batch * p->q_len;
  const head_weights w = heads_of(p, c->form, c->dtype, c->cross ? CONTEXT : MODEL, c->qk_norm);
  const matrix x = drawn(c->dtype, rows, MODEL);
  const matrix residual = c->residual == X_IN_PLACE ? x : drawn(c->dtype, rows, MODEL);
  const matrix y = c->residual == IN_PLACE || c->residual == X_IN_PLACE ? residual : blank(c->dtype, rows, MODEL);
  matrix context_rows = {.buffer = NULL}, outputs[4] = {y};
  double *want = memory((size_t)(rows * MODEL) * sizeof *want);
  layer l = layer_of(ATTENTION);
  l.attention.problem = p;
  l.attention.args = &e.args;
  l.attention.heads = w.heads;
  l.attention.x = of(&x);
  l.attention.y = of(&y);
  if (c->residual != NO_RESIDUAL)
    l.attention.residual = of(&residual);
  if (c->cross) {
    context_rows = drawn(c->dtype, batch * p->k_len, CONTEXT);
    l.attention.context = of(&context_rows);
  }
  run_all_ways(c->name, &l, outputs, add_results(&e, outputs, 1));
  assert_int_equal(nn_ref_attention(p, &e.ref, &w.ref, x.numbers, context_rows.numbers,
                                    c->residual != NO_RESIDUAL ? residual.numbers : NULL, want),
                   CLATTN_SUCCESS);
  const clattn_dtype loss =
      coarser(c->dtype, coarser(coarser(p->q.dtype, p->k.dtype), coarser(p->v.dtype, p->o.dtype)));
  check(c->name, "y", &y, want, loss);
  check_results(c->name, &e, loss);
}

static const attention_case attention_cases[] = {
    {"one head", "sq=9 sk=9 d=8", APART, 0, 0, NO_RESIDUAL, CLATTN_F32},
    {"weights apart", "b=2 hq=4 sq=9 sk=9 d=8", APART, 0, 0, NO_RESIDUAL, CLATTN_F32},
    {"keys and values together", "b=2 hq=4 sq=9 sk=9 d=8 dv=6", PAIR, 0, 0, RESIDUAL, CLATTN_F32},
    {"all together, grouped", "b=2 hq=4 hkv=2 sq=9 sk=9 d=8 dv=5 causal=1", PACKED, 0, 0, RESIDUAL, CLATTN_F32},
    {"one key head", "b=2 hq=3 hkv=1 sq=9 sk=9 d=7 window=2,1", PACKED, 0, 0, IN_PLACE, CLATTN_F32},
    {"lengths", "b=3 hq=4 sq=9 sk=9 d=8 klen=per_batch", PACKED, 0, 0, X_IN_PLACE, CLATTN_F32},
    {"more than a tile", "b=2 hq=2 sq=130 sk=130 d=16 dv=24 causal=1", PACKED, 0, 0, RESIDUAL, CLATTN_F32},
    {"context", "b=3 hq=4 hkv=2 sq=5 sk=11 d=8 dv=6 klen=per_batch", APART, 1, 0, RESIDUAL, CLATTN_F32},
    {"context, kv together", "b=3 hq=4 sq=14 sk=9 d=8 klen=per_batch", PAIR, 1, 0, NO_RESIDUAL, CLATTN_F32},
    {"context of the same length", "b=2 hq=2 sq=9 sk=9 d=8 causal=1", PAIR, 1, 0, IN_PLACE, CLATTN_F32},
    {"bias, mask, sink and lse", "b=2 hq=4 hkv=2 sq=9 sk=9 d=8 bias=f32 mask=u8 sink=f32 out=o,lse", PACKED, 0, 0,
     RESIDUAL, CLATTN_F32},
    {"weights out", "b=3 hq=2 sq=9 sk=9 d=8 klen=per_batch mask=u8 out=o,scores stage=weights", PACKED, 0, 0,
     NO_RESIDUAL, CLATTN_F32},
    {"all results", "b=2 hq=4 hkv=2 sq=5 sk=11 d=8 softcap=2 out=o,lse,scores,max_logit stage=masked", PAIR, 1, 0,
     IN_PLACE, CLATTN_F32},
    {"norms of q and k", "b=2 hq=4 hkv=2 sq=9 sk=9 d=8 dv=6 scale=1 causal=1", PACKED, 0, 1, RESIDUAL, CLATTN_F32},
    {"norms, weights apart", "b=3 hq=4 hkv=1 sq=5 sk=11 d=8 klen=per_batch", APART, 1, 1, NO_RESIDUAL, CLATTN_F32},
    {"rotated", "b=2 hq=4 hkv=2 sq=9 sk=9 d=8 dv=6 causal=1 rope=half", PACKED, 0, 1, RESIDUAL, CLATTN_F32},
    {"rotated in part, by positions",
     "b=3 hq=4 sq=5 sk=11 d=8 klen=per_batch rope=interleaved rope_dim=6 positions=1 "
     "rope_positions=20",
     PAIR, 1, 0, NO_RESIDUAL, CLATTN_F32},
    {"cosine", "b=2 hq=4 hkv=2 sq=9 sk=9 d=8 sim=cosine scale=5 out=o,scores stage=weights", PAIR, 0, 0, RESIDUAL,
     CLATTN_F32},
    {"bf16", "b=3 hq=4 hkv=2 sq=9 sk=9 d=8 klen=per_batch q=bf16 k=bf16 v=bf16 o=bf16", PACKED, 0, 1, RESIDUAL,
     CLATTN_BF16},
    {"f16", "b=3 hq=4 hkv=2 sq=5 sk=11 d=8 causal=1 off=bottom_right q=f16 k=f16 v=f16 o=f16", PAIR, 1, 0, IN_PLACE,
     CLATTN_F16},
    {"types apart", "b=2 hq=4 hkv=2 sq=9 sk=9 d=8 q=f32 k=bf16 v=f32 o=f32", APART, 0, 0, RESIDUAL, CLATTN_F32},
    {"no keys", "b=2 hq=2 sq=5 sk=0 d=8", PAIR, 1, 0, RESIDUAL, CLATTN_F32},
};
enum { ATTENTION_CASES = sizeof attention_cases / sizeof attention_cases[0] };

static void attention_layers(void **state) {
  (void)state;
  for (size_t i = 0; i < ATTENTION_CASES; i++) {
    check_attention(&attention_cases[i]);
    forget(NULL);
  }
}

/* Weights apart, two together and all together: the same layer. */
static void forms_of_weights(void **state) {
  (void)state;
  const extras e = extras_of("b=2 hq=4 hkv=2 sq=9 sk=9 d=8 dv=5 causal=1");
  const matrix x = drawn(CLATTN_F32, 2 * 9, MODEL);
  const weight parts[] = {drawn_weight(MODEL, 32, CLATTN_F32, 1), drawn_weight(MODEL, 16, CLATTN_F32, 1),
                          drawn_weight(MODEL, 10, CLATTN_F32, 1)};
  const weight kv = joined(parts + 1, 2, CLATTN_F32), qkv = joined(parts, 3, CLATTN_F32);
  const weight o = drawn_weight(20, MODEL, CLATTN_F32, 0);
  const clattn_nn_heads forms[] = {{.q = parts[0].device, .k = parts[1].device, .v = parts[2].device, .o = o.device},
                                   {.q = parts[0].device, .kv = kv.device, .o = o.device},
                                   {.qkv = qkv.device, .o = o.device}};
  double *first = NULL;
  for (int i = 0; i < 3; i++) {
    const matrix y = blank(CLATTN_F32, 2 * 9, MODEL);
    layer l = layer_of(ATTENTION);
    l.attention.problem = &e.problem;
    l.attention.heads = forms[i];
    l.attention.x = of(&x);
    l.attention.y = of(&y);
    assert_int_equal(run(&l, queue, 0, NULL, NULL), CLATTN_SUCCESS);
    first = first != NULL ? first : fetched(&y);
    check("forms", "y", &y, first, CLATTN_F32);
  }
}

/* Sequences in a padded batch, whose padding is NaN in x too, are what they are alone. */
static void padded_batch(void **state) {
  (void)state;
  static const int32_t lengths[] = {7, 4, 9};
  enum { BATCH = 3, LENGTH = 9 };
  extras e = extras_of("b=3 hq=4 hkv=2 sq=9 sk=9 d=8 causal=1 qlen=per_batch klen=per_batch");
  const head_weights w = heads_of(&e.problem, PACKED, CLATTN_F32, MODEL, 0);
  double *numbers = memory(BATCH * LENGTH * MODEL * sizeof *numbers);
  for (int i = 0; i < BATCH * LENGTH * MODEL; i++)
    numbers[i] = i / MODEL % LENGTH < lengths[i / MODEL / LENGTH] ? uniform(-1, 1) : (double)NAN;
  const matrix x = given(CLATTN_F32, BATCH * LENGTH, MODEL, numbers), y = blank(CLATTN_F32, BATCH * LENGTH, MODEL);
  layer l = layer_of(ATTENTION);
  l.attention.problem = &e.problem;
  l.attention.args = &e.args;
  l.attention.heads = w.heads;
  l.attention.x = of(&x);
  l.attention.y = of(&y);
  e.args.k_lengths = (clattn_ints){.kind = CLATTN_ARRAY_HOST, .count = BATCH, .host = lengths};
  e.args.q_lengths = e.args.k_lengths;
  run_all_ways("padded", &l, &y, 1);
  const double *padded = fetched(&y);
  for (int b = 0; b < BATCH; b++) {
    char line[64];
    (void)snprintf(line, sizeof line, "hq=4 hkv=2 sq=%d sk=%d d=8 causal=1", (int)lengths[b], (int)lengths[b]);
    const extras alone = extras_of(line);
    const matrix x1 = given(CLATTN_F32, lengths[b], MODEL, numbers + b * LENGTH * MODEL);
    const matrix y1 = blank(CLATTN_F32, lengths[b], MODEL);
    l.attention.problem = &alone.problem;
    l.attention.args = NULL;
    l.attention.x = of(&x1);
    l.attention.y = of(&y1);
    assert_int_equal(run(&l, queue, 0, NULL, NULL), CLATTN_SUCCESS);
    check("padded", "a sequence alone", &y1, padded + b * LENGTH * MODEL, CLATTN_F32);
  }
}

/* ---- encoder and decoder, as first taught -------------------------------------------------------------------------- */

static void tom_chases_jerry(void **state) {
  (void)state;
  static const double wanted[3][3] = {{0.6, 0.2, 0.2}, {0.2, 0.7, 0.1}, {0.3, 0.2, 0.5}};
  static const double states[3][5] = {{1, 0, 0, 10, 1}, {0, 1, 0, 20, -1}, {0, 0, 1, 30, 2}};
  double queries[3][5] = {{0}};
  for (int step = 0; step < 3; step++)
    for (int word = 0; word < 3; word++)
      queries[step][word] = log(wanted[step][word]);
  const matrix target = given(CLATTN_F32, 3, 5, queries[0]), source = given(CLATTN_F32, 3, 5, states[0]);
  const matrix contexts = blank(CLATTN_F32, 3, 5), weights = dense(3, 3);
  layer l = layer_of(ENCDEC);
  l.encdec.target_len = l.encdec.source_len = 3;
  l.encdec.target_dim = 5;
  l.encdec.target = of(&target);
  l.encdec.source = of(&source);
  l.encdec.contexts = of(&contexts);
  l.encdec.weights = mem_of(&weights);
  const matrix outputs[] = {contexts, weights};
  run_all_ways("Tom chase Jerry", &l, outputs, 2);
  const double *got = fetched(&weights), *sums = fetched(&contexts);
  for (int step = 0; step < 3; step++) {
    for (int word = 0; word < 3; word++)
      assert_true(fabs(got[3 * step + word] - wanted[step][word]) < 1e-6);
    for (int d = 0; d < 5; d++) {
      double sum = 0;
      for (int word = 0; word < 3; word++)
        sum += wanted[step][word] * states[word][d];
      assert_true(fabs(sums[5 * step + d] - sum) < 1e-6 * 30);
    }
  }
}

typedef struct encdec_case {
  const char *name;
  clattn_similarity similarity;
  int projected, with_lengths, with_weights;
  float scale; /* 0: the default */
  clattn_dtype dtype;
} encdec_case;

static void check_encdec(const encdec_case *c) {
  static const int32_t lengths[] = {9, 0};
  const int64_t target_dim = c->projected ? 14 : 10, source_dim = 10, compared = c->projected ? 8 : 10;
  const matrix target = drawn(c->dtype, 2 * 5, target_dim), source = drawn(c->dtype, 2 * 9, source_dim);
  const matrix contexts = blank(c->dtype, 2 * 5, source_dim), weights = dense(2 * 5, 9);
  const matrix outputs[] = {contexts, weights};
  nn_ref_encdec ref = {.similarity = c->similarity,
                       .scale = c->scale != 0 ? (double)c->scale : 1,
                       .batch = 2,
                       .target_len = 5,
                       .source_len = 9,
                       .target_dim = target_dim,
                       .source_dim = source_dim,
                       .target = target.numbers,
                       .source = source.numbers};
  double *want = memory(2 * 5 * 10 * sizeof *want), *want_weights = memory(2 * 5 * 9 * sizeof *want), *add_w = NULL;
  layer l = layer_of(ENCDEC);
  l.encdec.similarity = c->similarity;
  l.encdec.scale_mode = c->scale != 0 ? CLATTN_SCALE_VALUE : CLATTN_SCALE_DEFAULT;
  l.encdec.scale = c->scale;
  l.encdec.batch = 2;
  l.encdec.target_len = 5;
  l.encdec.source_len = 9;
  l.encdec.target_dim = target_dim;
  l.encdec.source_dim = c->projected ? source_dim : 0;
  l.encdec.target = of(&target);
  l.encdec.source = of(&source);
  l.encdec.contexts = of(&contexts);
  if (c->projected) {
    const weight q = drawn_weight(target_dim, compared, c->dtype, 0),
                 k = drawn_weight(source_dim, compared, c->dtype, 1);
    l.encdec.q = q.device;
    l.encdec.k = k.device;
    ref.q = q.ref;
    ref.k = k.ref;
  }
  if (c->similarity == CLATTN_ADDITIVE) {
    l.encdec.add_w = drawn_floats(compared, -1, 1, &add_w);
    ref.add_w = add_w;
  }
  if (c->with_lengths) {
    l.encdec.source_lengths = (clattn_ints){.kind = CLATTN_ARRAY_HOST, .count = 2, .host = lengths};
    ref.source_lengths = lengths;
  }
  if (c->with_weights)
    l.encdec.weights = mem_of(&weights);
  run_all_ways(c->name, &l, outputs, 2);
  assert_int_equal(nn_ref_encdec_attention(&ref, want, want_weights), CLATTN_SUCCESS);
  check(c->name, "contexts", &contexts, want, c->dtype);
  if (c->with_weights)
    check(c->name, "weights", &weights, want_weights, c->dtype);
}

static const encdec_case encdec_cases[] = {
    {"dot", CLATTN_DOT, 0, 0, 1, 0, CLATTN_F32},
    {"dot without weights", CLATTN_DOT, 0, 1, 0, 0, CLATTN_F32},
    {"dot of projections", CLATTN_DOT, 1, 1, 1, 0.25f, CLATTN_F32},
    {"cosine", CLATTN_COSINE, 0, 1, 1, 4, CLATTN_F32},
    {"additive", CLATTN_ADDITIVE, 1, 1, 1, 0, CLATTN_F32},
    {"additive without projections", CLATTN_ADDITIVE, 0, 0, 1, -2, CLATTN_F32},
    {"bf16", CLATTN_DOT, 1, 0, 0, 0, CLATTN_BF16},
};
enum { ENCDEC_CASES = sizeof encdec_cases / sizeof encdec_cases[0] };

static void encoder_decoder_attention(void **state) {
  (void)state;
  for (size_t i = 0; i < ENCDEC_CASES; i++) {
    check_encdec(&encdec_cases[i]);
    forget(NULL);
  }
}

/* ---- feed-forward -------------------------------------------------------------------------------------------------- */

static void check_ffn(clattn_nn_activation activation, int gated, residual_form form, clattn_dtype dtype) {
  enum { ROWS = 13, HIDDEN = 40 };
  char name[64];
  (void)snprintf(name, sizeof name, "activation %d%s, residual form %d, type %d", (int)activation,
                 gated ? ", gate" : "", (int)form, (int)dtype);
  const weight up = drawn_weight(MODEL, HIDDEN, dtype, 1), down = drawn_weight(HIDDEN, MODEL, dtype, 1);
  weight gate = {.device = NULL};
  const matrix x = drawn(dtype, ROWS, MODEL), residual = form == X_IN_PLACE ? x : drawn(dtype, ROWS, MODEL);
  const matrix y = form == IN_PLACE || form == X_IN_PLACE ? residual : blank(dtype, ROWS, MODEL);
  double *want = memory(ROWS * MODEL * sizeof *want);
  layer l = layer_of(FFN);
  if (gated)
    gate = drawn_weight(MODEL, HIDDEN, dtype, 0);
  l.ffn.rows = ROWS;
  l.ffn.up = up.device;
  l.ffn.gate = gate.device;
  l.ffn.down = down.device;
  l.ffn.activation = activation;
  l.ffn.x = of(&x);
  l.ffn.y = of(&y);
  if (form != NO_RESIDUAL)
    l.ffn.residual = of(&residual);
  run_all_ways(name, &l, &y, 1);
  nn_ref_ffn(&up.ref, &gate.ref, &down.ref, activation, dtype, ROWS, x.numbers,
             form != NO_RESIDUAL ? residual.numbers : NULL, want);
  check(name, "y", &y, want, dtype);
  forget(NULL);
}

static void feed_forward(void **state) {
  (void)state;
  for (clattn_nn_activation activation = CLATTN_NN_NONE; activation <= CLATTN_NN_SILU; activation++)
    for (int gated = 0; gated < 2; gated++)
      check_ffn(activation, gated, (residual_form)((activation + gated) % 4), CLATTN_F32);
  check_ffn(CLATTN_NN_SILU, 1, X_IN_PLACE, CLATTN_F32);
  check_ffn(CLATTN_NN_GELU, 1, RESIDUAL, CLATTN_BF16);
}

/* ---- blocks -------------------------------------------------------------------------------------------------------- */

typedef struct block_case {
  const char *name, *self, *cross; /* problems; cross NULL: an encoder block */
  clattn_nn_norm_order order;
  clattn_nn_norm_kind norm;
  weights_form form;
  int gated, with_gamma, in_place;
  clattn_dtype dtype;
} block_case;

enum { BLOCK_HIDDEN = 40 };

/* Attention of a block, for the layer and for the reference. */
static void add_attentions(const block_case *c, const extras *self, const extras *cross, const matrix *context_rows,
                           clattn_nn_block_args *args, nn_ref_block *ref) {
  const head_weights self_heads = heads_of(&self->problem, c->form, c->dtype, MODEL, 0);
  args->self_problem = ref->self_problem = &self->problem;
  args->self_args = &self->args;
  args->self_heads = self_heads.heads;
  ref->self_args = &self->ref;
  ref->self_heads = self_heads.ref;
  if (c->cross == NULL)
    return;
  const head_weights cross_heads = heads_of(&cross->problem, PAIR, c->dtype, CONTEXT, 0);
  args->cross_problem = ref->cross_problem = &cross->problem;
  args->cross_args = &cross->args;
  args->cross_heads = cross_heads.heads;
  args->context = of(context_rows);
  ref->cross_args = &cross->ref;
  ref->cross_heads = cross_heads.ref;
  ref->context = context_rows->numbers;
}

/* Its feed-forward and norms. */
static void add_forward(const block_case *c, clattn_nn_block_args *args, nn_ref_block *ref) {
  const weight up = drawn_weight(MODEL, BLOCK_HIDDEN, c->dtype, 1),
               down = drawn_weight(BLOCK_HIDDEN, MODEL, c->dtype, 1);
  double *numbers = NULL;
  args->order = ref->order = c->order;
  args->norm = ref->norm = c->norm;
  args->epsilon = 1e-5f;
  ref->epsilon = (double)args->epsilon;
  args->activation = ref->activation = CLATTN_NN_GELU;
  args->up = up.device;
  args->down = down.device;
  ref->up = up.ref;
  ref->down = down.ref;
  if (c->gated) {
    const weight gate = drawn_weight(MODEL, BLOCK_HIDDEN, c->dtype, 1);
    args->gate = gate.device;
    ref->gate = gate.ref;
  }
  for (int i = 0; i < 3 && c->with_gamma; i++)
    if (i != 1 || c->cross != NULL) {
      args->gamma[i] = drawn_floats(MODEL, 0.5, 1.5, &numbers);
      ref->gamma[i] = numbers;
      args->beta[i] = drawn_floats(MODEL, -0.5, 0.5, &numbers);
      ref->beta[i] = numbers;
    }
}

static void check_block(const block_case *c) {
  const extras self = extras_of(c->self), cross = extras_of(c->cross != NULL ? c->cross : c->self);
  const int64_t batch = self.problem.batch != 0 ? self.problem.batch : 1, rows = batch * self.problem.q_len;
  const matrix x = drawn(c->dtype, rows, MODEL), y = c->in_place ? x : blank(c->dtype, rows, MODEL);
  const matrix context_rows = drawn(c->dtype, batch * cross.problem.k_len, CONTEXT);
  matrix outputs[8] = {y};
  double *want = memory((size_t)(rows * MODEL) * sizeof *want);
  layer l = layer_of(c->cross != NULL ? DECODER : ENCODER);
  nn_ref_block ref;
  memset(&ref, 0, sizeof ref);
  add_attentions(c, &self, &cross, &context_rows, &l.block, &ref);
  add_forward(c, &l.block, &ref);
  l.block.x = of(&x);
  l.block.y = of(&y);
  ref.x = x.numbers;
  ref.hidden = c->dtype;
  int count = add_results(&self, outputs, 1);
  if (c->cross != NULL)
    count = add_results(&cross, outputs, count);
  run_all_ways(c->name, &l, outputs, count);
  assert_int_equal(nn_ref_block_run(&ref, want), CLATTN_SUCCESS);
  check(c->name, "y", &y, want, c->dtype);
  check_results(c->name, &self, c->dtype);
  if (c->cross != NULL)
    check_results(c->name, &cross, c->dtype);
}

static const block_case block_cases[] = {
    {"BERT's", "b=3 hq=4 sq=9 sk=9 d=8 klen=per_batch", NULL, CLATTN_NN_POST_NORM, CLATTN_NN_LAYER_NORM, PACKED, 0, 1,
     0, CLATTN_F32},
    {"BERT's in place", "b=3 hq=4 sq=9 sk=9 d=8 klen=per_batch out=o,lse", NULL, CLATTN_NN_POST_NORM,
     CLATTN_NN_LAYER_NORM, APART, 0, 1, 1, CLATTN_F32},
    {"GPT-2's", "b=2 hq=4 sq=9 sk=9 d=8 causal=1", NULL, CLATTN_NN_PRE_NORM, CLATTN_NN_LAYER_NORM, PACKED, 0, 1, 0,
     CLATTN_F32},
    {"Llama's in place", "b=2 hq=4 hkv=2 sq=9 sk=9 d=8 causal=1 rope=half", NULL, CLATTN_NN_PRE_NORM,
     CLATTN_NN_RMS_NORM, PAIR, 1, 1, 1, CLATTN_F32},
    {"no gamma", "b=2 hq=4 sq=9 sk=9 d=8", NULL, CLATTN_NN_POST_NORM, CLATTN_NN_RMS_NORM, PACKED, 1, 0, 0, CLATTN_F32},
    {"a decoder's", "b=3 hq=4 sq=5 sk=5 d=8 causal=1", "b=3 hq=4 hkv=2 sq=5 sk=11 d=8 dv=6 klen=per_batch",
     CLATTN_NN_POST_NORM, CLATTN_NN_LAYER_NORM, PACKED, 0, 1, 0, CLATTN_F32},
    {"a decoder's in place", "b=3 hq=2 sq=5 sk=5 d=8 causal=1 out=o,lse",
     "b=3 hq=4 sq=5 sk=9 d=8 klen=per_batch out=o,scores stage=weights", CLATTN_NN_POST_NORM, CLATTN_NN_LAYER_NORM,
     PAIR, 1, 1, 1, CLATTN_F32},
    {"a pre-norm decoder's", "b=2 hq=4 sq=9 sk=9 d=8 causal=1", "b=2 hq=4 sq=9 sk=3 d=8", CLATTN_NN_PRE_NORM,
     CLATTN_NN_RMS_NORM, PACKED, 1, 1, 0, CLATTN_F32},
    {"a pre-norm decoder's in place", "b=2 hq=4 sq=9 sk=9 d=8 causal=1", "b=2 hq=2 sq=9 sk=14 d=8", CLATTN_NN_PRE_NORM,
     CLATTN_NN_LAYER_NORM, APART, 0, 0, 1, CLATTN_F32},
    {"bf16", "b=3 hq=4 hkv=2 sq=9 sk=9 d=8 klen=per_batch q=bf16 k=bf16 v=bf16 o=bf16", NULL, CLATTN_NN_PRE_NORM,
     CLATTN_NN_RMS_NORM, PACKED, 1, 1, 1, CLATTN_BF16},
};
enum { BLOCK_CASES = sizeof block_cases / sizeof block_cases[0] };

static void blocks(void **state) {
  (void)state;
  for (size_t i = 0; i < BLOCK_CASES; i++) {
    check_block(&block_cases[i]);
    forget(NULL);
  }
}

/* With nothing to write no memory is needed, and the event still waits. */
static void no_rows(void **state) {
  (void)state;
  const extras e = extras_of("b=2 hq=2 sq=0 sk=0 d=8");
  const head_weights w = heads_of(&e.problem, PACKED, CLATTN_F32, MODEL, 1);
  const weight up = drawn_weight(MODEL, 16, CLATTN_F32, 0), down = drawn_weight(16, MODEL, CLATTN_F32, 0);
  layer layers[] = {layer_of(ATTENTION), layer_of(FFN), layer_of(ENCODER), layer_of(ENCDEC)};
  layers[0].attention.problem = &e.problem;
  layers[0].attention.heads = w.heads;
  layers[1].ffn.up = up.device;
  layers[1].ffn.down = down.device;
  layers[2].block.self_problem = &e.problem;
  layers[2].block.self_heads = w.heads;
  layers[2].block.up = up.device;
  layers[2].block.down = down.device;
  layers[3].encdec.target_dim = 7;
  for (int i = 0; i < 4; i++)
    run_all_ways("no rows", &layers[i], NULL, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(attention_layers, forget),
      cmocka_unit_test_teardown(forms_of_weights, forget),
      cmocka_unit_test_teardown(padded_batch, forget),
      cmocka_unit_test_teardown(tom_chases_jerry, forget),
      cmocka_unit_test_teardown(encoder_decoder_attention, forget),
      cmocka_unit_test_teardown(feed_forward, forget),
      cmocka_unit_test_teardown(blocks, forget),
      cmocka_unit_test_teardown(no_rows, forget),
      cmocka_unit_test_teardown(attention_refuses, forget),
      cmocka_unit_test_teardown(attention_memory, forget),
      cmocka_unit_test_teardown(found_by_clattn, forget),
      cmocka_unit_test_teardown(encoder_decoder_refuses, forget),
      cmocka_unit_test_teardown(feed_forward_refuses, forget),
      cmocka_unit_test_teardown(blocks_refuse, forget),
      cmocka_unit_test_teardown(other_contexts, forget),
  };
  return cmocka_run_group_tests(tests, start, finish);
}
