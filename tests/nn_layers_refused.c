/* SPDX-License-Identifier: Apache-2.0 */
/* What layers and blocks must refuse, and that nothing ran then. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "nn_layer_job.h"

#define REFUSED(change, want, words)                                                                                   \
  do {                                                                                                                 \
    sound s = good;                                                                                                    \
    change;                                                                                                            \
    refused_sound(&s, want, words);                                                                                    \
  } while (0)

enum { MODEL = 24, CONTEXT = 20, BATCH = 2, Q_LEN = 5, K_LEN = 7, ROWS = BATCH * Q_LEN, KEYS = BATCH * K_LEN };

/* A layer that runs, with the problems and arguments that it points to. */
typedef struct sound {
  layer l;
  clattn_problem problem, cross;
  clattn_args args;
  matrix x, context, y, residual, lse;
} sound;

static void refused_sound(sound *s, clattn_status want, const char *words) {
  if (s->l.kind == ATTENTION) {
    if (s->l.attention.problem != NULL)
      s->l.attention.problem = &s->problem;
    s->l.attention.args = &s->args;
  }
  if (s->l.kind == ENCODER || s->l.kind == DECODER) {
    if (s->l.block.self_problem != NULL)
      s->l.block.self_problem = &s->problem;
    if (s->l.block.cross_problem != NULL)
      s->l.block.cross_problem = &s->cross;
  }
  refused(&s->l, want, words);
}

static void check_untouched(const sound *s) {
  const double *numbers = fetched(&s->y);
  for (int i = 0; i < ROWS * MODEL; i++)
    assert_true(isnan(numbers[i]));
}

static void runs(sound *s) {
  clattn_error error;
  clattn_error_init(&error);
  *error_of(&s->l) = &error;
  if (run(&s->l, queue, 0, NULL, NULL) != CLATTN_SUCCESS)
    fail_msg("%s", error.message);
  assert_int_equal(clFinish(queue), CL_SUCCESS);
}

static clattn_problem parsed(const char *line) {
  clattn_problem problem;
  assert_int_equal(clattn_problem_parse(line, &problem, NULL), CLATTN_SUCCESS);
  return problem;
}

static clattn_nn_weight *weight_of(int64_t in, int64_t out) {
  return drawn_weight(in, out, CLATTN_F32, 1).device;
}

static void add_matrices(sound *s) {
  s->x = drawn(CLATTN_F32, ROWS, MODEL);
  s->context = drawn(CLATTN_F32, KEYS, CONTEXT);
  s->residual = drawn(CLATTN_F32, ROWS, MODEL);
  s->y = blank(CLATTN_F32, ROWS, MODEL);
  s->lse = dense(BATCH * 4 * Q_LEN, 1);
}

/* 4 heads over 2 of 8 dimensions, values of 6, a context of 20 columns. */
static sound sound_attention(void) {
  sound s;
  memset(&s, 0, sizeof s);
  add_matrices(&s);
  s.l = layer_of(ATTENTION);
  s.problem = parsed("b=2 hq=4 hkv=2 sq=5 sk=7 d=8 dv=6 out=o,lse");
  clattn_args_init(&s.args);
  s.args.lse = mem_of(&s.lse);
  s.l.attention.problem = &s.problem;
  s.l.attention.heads.q = weight_of(MODEL, 32);
  s.l.attention.heads.k = weight_of(CONTEXT, 16);
  s.l.attention.heads.v = weight_of(CONTEXT, 12);
  s.l.attention.heads.o = weight_of(24, MODEL);
  s.l.attention.x = of(&s.x);
  s.l.attention.context = of(&s.context);
  s.l.attention.y = of(&s.y);
  s.l.attention.residual = of(&s.residual);
  return s;
}

void attention_refuses(void **state) {
  (void)state;
  const sound good = sound_attention();
  const clattn_nn_weight *qkv = weight_of(MODEL, 60), *kv = weight_of(CONTEXT, 28), *wrong = weight_of(21, 17);
  cl_event event = (cl_event)(void *)&event;
  uint64_t bytes = 0;
  sound open = good;
  assert_int_equal(clattn_nn_attention(nn, queue, NULL, 0, NULL, &event), CLATTN_ERROR_NULL_POINTER);
  assert_null(event);
  assert_int_equal(clattn_nn_attention_workspace(nn, NULL, &bytes), CLATTN_ERROR_NULL_POINTER);
  open.l.attention.problem = &open.problem;
  open.l.attention.args = &open.args;
  assert_int_equal(clattn_nn_attention(NULL, queue, &open.l.attention, 0, NULL, NULL), CLATTN_ERROR_NULL_POINTER);
  assert_int_equal(clattn_nn_attention(nn, NULL, &open.l.attention, 0, NULL, NULL), CLATTN_ERROR_NULL_POINTER);
  assert_int_equal(clattn_nn_attention(nn, queue, &open.l.attention, 1, NULL, NULL), CL_INVALID_EVENT_WAIT_LIST);
  assert_int_equal(clattn_nn_attention_workspace(nn, &open.l.attention, NULL), CLATTN_ERROR_NULL_POINTER);
  open.l.attention.struct_size--;
  assert_int_equal(clattn_nn_attention(nn, queue, &open.l.attention, 0, NULL, NULL), CLATTN_ERROR_STRUCT_SIZE);
  clattn_nn_attention_args_init(NULL);
  REFUSED(s.l.attention.reserved[2] = 3, CLATTN_ERROR_RESERVED, "reserved[2] is 3");
  REFUSED(s.l.attention.heads.reserved = 3, CLATTN_ERROR_RESERVED, "heads.reserved is 3");

  REFUSED(s.l.attention.problem = NULL, CLATTN_ERROR_NULL_POINTER, "problem must not be NULL");
  REFUSED(s.problem.kv_heads = 3, CLATTN_ERROR_SHAPE, "kv_heads 3 does not divide q_heads 4");
  REFUSED(s.problem.k.layout = CLATTN_LAYOUT_BSHD, CLATTN_ERROR_STRIDE, "problem.k.layout is 1: must stay 0");
  REFUSED(s.problem.outputs = CLATTN_OUT_LSE, CLATTN_ERROR_VALUE, "problem.outputs is 2");
  REFUSED(s.problem.q_len = 1 << 30, CLATTN_ERROR_SHAPE, "batch * q_len is 2147483648");
  REFUSED(s.problem.pass = CLATTN_BACKWARD, CLATTN_ERROR_NOT_SUPPORTED, "backward");
  REFUSED((s.problem.v = clattn_strided(CLATTN_I8, 0, 0, 0, 0), s.problem.v.layout = 0), CLATTN_ERROR_NOT_SUPPORTED,
          "problem.v.dtype is 3");

  REFUSED(s.args.struct_size = 8, CLATTN_ERROR_STRUCT_SIZE, "args.struct_size is 8");
  REFUSED(s.args.k = mem_of(&s.x), CLATTN_ERROR_TENSOR_UNUSED, "args.k is given");
  REFUSED(s.args.workspace = mem_of(&s.x), CLATTN_ERROR_TENSOR_UNUSED, "args.workspace is given");
  REFUSED((s.args.sizes = CLATTN_SIZES_K_LEN, s.args.k_len = 3), CLATTN_ERROR_SHAPE, "args.sizes is 4");

  REFUSED(s.l.attention.heads.q = NULL, CLATTN_ERROR_NULL_POINTER, "heads.q must not be NULL");
  REFUSED(s.l.attention.heads.v = NULL, CLATTN_ERROR_NULL_POINTER, "heads.v must not be NULL");
  REFUSED(s.l.attention.heads.o = NULL, CLATTN_ERROR_NULL_POINTER, "heads.o must not be NULL");
  REFUSED(s.l.attention.heads.qkv = qkv, CLATTN_ERROR_TENSOR_UNUSED, "heads.q is given beside others");
  REFUSED(s.l.attention.heads.kv = kv, CLATTN_ERROR_TENSOR_UNUSED, "heads.k is given beside others");
  REFUSED(s.l.attention.heads.q = wrong, CLATTN_ERROR_SHAPE, "heads.q makes 17 outputs of 21 inputs, not 32 of 21");
  REFUSED(s.l.attention.heads.k = wrong, CLATTN_ERROR_SHAPE, "heads.k makes 17 outputs of 21 inputs, not 16 of 21");
  REFUSED(s.l.attention.heads.v = weight_of(21, 12), CLATTN_ERROR_SHAPE,
          "heads.v makes 12 outputs of 21 inputs, not 12 of 20");
  REFUSED(s.l.attention.heads.o = wrong, CLATTN_ERROR_SHAPE, "heads.o makes 17 outputs of 21 inputs, not 17 of 24");
  REFUSED(s.l.attention.heads.qk_epsilon = -1, CLATTN_ERROR_VALUE, "heads.qk_epsilon is -1");
  REFUSED(s.l.attention.heads.qk_epsilon = (float)NAN, CLATTN_ERROR_VALUE, "heads.qk_epsilon is");

  const clattn_nn_heads packed = {.qkv = qkv, .o = good.l.attention.heads.o},
                        pair = {.q = good.l.attention.heads.q, .kv = kv, .o = good.l.attention.heads.o};
  REFUSED(s.l.attention.heads = packed, CLATTN_ERROR_SHAPE, "q_len 5 and k_len 7: with heads.qkv they are the same");
  REFUSED((s.l.attention.heads = packed, s.problem.k_len = 5, s.problem.v.dtype = CLATTN_F16), CLATTN_ERROR_ENUM,
          "types 0, 0 and 1; what heads.qkv makes is of one type");
  REFUSED((s.l.attention.heads = pair, s.problem.k.dtype = CLATTN_F16), CLATTN_ERROR_ENUM, "what heads.kv makes");
  REFUSED((s.l.attention.heads = packed, s.problem.k_len = 5), CLATTN_ERROR_TENSOR_UNUSED,
          "context is given, but heads.qkv is for self-attention");
  REFUSED(memset(&s.l.attention.context, 0, sizeof s.l.attention.context), CLATTN_ERROR_SHAPE,
          "q_len 5 and k_len 7: without a context");
  REFUSED((memset(&s.l.attention.context, 0, sizeof s.l.attention.context), s.problem.k_len = 5), CLATTN_ERROR_SHAPE,
          "heads.q takes 24 inputs, heads.k 20");
  check_untouched(&good);
}

void attention_memory(void **state) {
  (void)state;
  const sound good = sound_attention();
  const clattn_mem none = clattn_buffer(NULL, 0), small = clattn_buffer(buffer_of(28, NULL), 0);
  uint64_t bytes = 0;
  sound open = good;
  REFUSED(s.l.attention.x.mem = none, CLATTN_ERROR_TENSOR_MISSING, "x is needed");
  REFUSED(s.l.attention.y.mem = none, CLATTN_ERROR_TENSOR_MISSING, "y is needed");
  REFUSED(s.l.attention.residual.mem = none, CLATTN_ERROR_TENSOR_MISSING, "residual has a type or stride");
  REFUSED(s.l.attention.x.mem.bytes = 1000, CLATTN_ERROR_BUFFER_TOO_SMALL, "x: 10 rows of 24 columns");
  REFUSED(s.l.attention.context.mem = small, CLATTN_ERROR_BUFFER_TOO_SMALL, "context: 14 rows of 20 columns");
  REFUSED(s.l.attention.y.stride = 23, CLATTN_ERROR_STRIDE, "y.stride 23");
  REFUSED(s.l.attention.y.dtype = 7, CLATTN_ERROR_ENUM, "y.dtype is 7");
  REFUSED(s.l.attention.heads.q_gamma = small, CLATTN_ERROR_BUFFER_TOO_SMALL, "heads.q_gamma needs 32 bytes");
  REFUSED(s.l.attention.heads.k_gamma = small, CLATTN_ERROR_BUFFER_TOO_SMALL, "heads.k_gamma needs 32 bytes");
  REFUSED(s.args.lse = none, CLATTN_ERROR_TENSOR_MISSING, "args.lse is needed");
  REFUSED(s.args.lse.bytes = 159, CLATTN_ERROR_BUFFER_TOO_SMALL, "args.lse needs 160 bytes");
  REFUSED((s.problem.lse = clattn_strided(CLATTN_F32, 4 * 41, 41, 8, 0), s.args.lse.bytes = 160),
          CLATTN_ERROR_BUFFER_TOO_SMALL, "args.lse needs 1280 bytes");
  REFUSED((s.problem.outputs |= CLATTN_OUT_SCORES, s.args.scores = small), CLATTN_ERROR_BUFFER_TOO_SMALL,
          "args.scores needs 1120 bytes");
  REFUSED((s.problem.outputs |= CLATTN_OUT_MAX_LOGIT, s.args.max_logit = small), CLATTN_ERROR_BUFFER_TOO_SMALL,
          "args.max_logit needs 32 bytes");

  REFUSED(s.l.attention.y.mem = mem_of(&s.context), CLATTN_ERROR_OVERLAP, "output y overlaps context");
  REFUSED((s.l.attention.y = of(&s.x), s.l.attention.y.mem.offset += 8), CLATTN_ERROR_OVERLAP, "output y overlaps x");
  REFUSED((s.l.attention.y = of(&s.residual), s.l.attention.y.stride = 24), CLATTN_ERROR_OVERLAP,
          "output y overlaps residual");
  REFUSED(s.args.lse = mem_of(&s.x), CLATTN_ERROR_OVERLAP, "output args.lse overlaps x");
  REFUSED((s.args.lse = mem_of(&s.y), s.args.lse.offset += 160), CLATTN_ERROR_OVERLAP, "overlaps");
  REFUSED((s.l.attention.heads.q_gamma = mem_of(&s.y)), CLATTN_ERROR_OVERLAP, "output y overlaps heads.q_gamma");

  open.l.attention.problem = &open.problem;
  assert_int_equal(ask_workspace(&open.l, &bytes), CLATTN_SUCCESS);
  assert_true(bytes >= 4u * (ROWS * 32 + KEYS * 28 + ROWS * 24));
  /* Before there is any memory it is the same. */
  const clattn_nn_matrix absent = clattn_nn_matrix_f32(NULL, 0, 0);
  uint64_t before = 0;
  open.l.attention.x = open.l.attention.context = open.l.attention.y = open.l.attention.residual = absent;
  assert_int_equal(ask_workspace(&open.l, &before), CLATTN_SUCCESS);
  assert_true(before == bytes);
  const cl_mem large = buffer_of((size_t)bytes + 64, NULL);
  REFUSED(s.l.attention.workspace = clattn_buffer(large, 32), CLATTN_ERROR_ALIGNMENT, "workspace: offset 32");
  REFUSED(s.l.attention.workspace = clattn_buffer(large, 128), CLATTN_ERROR_WORKSPACE_TOO_SMALL, "workspace needs");
  REFUSED((s.l.attention.workspace = clattn_buffer(large, 64), s.args.lse = clattn_buffer(large, 64)),
          CLATTN_ERROR_OVERLAP, "overlaps");
  REFUSED((s.l.attention.workspace = clattn_buffer(large, 0), s.l.attention.heads.k_gamma = s.l.attention.workspace),
          CLATTN_ERROR_OVERLAP, "output workspace overlaps heads.k_gamma");
  const struct {
    cl_mem_flags flags;
    const char *words;
  } one_way[] = {{CL_MEM_READ_ONLY, "may not write"}, {CL_MEM_WRITE_ONLY, "may not read"}};
  for (int i = 0; i < 2; i++) {
    cl_int code = CL_SUCCESS;
    const cl_mem half = clCreateBuffer(cl, one_way[i].flags, (size_t)bytes, NULL, &code);
    assert_int_equal(code, CL_SUCCESS);
    REFUSED(s.l.attention.workspace = clattn_buffer(half, 0), CL_INVALID_MEM_OBJECT, one_way[i].words);
    assert_int_equal(clReleaseMemObject(half), CL_SUCCESS);
  }
  check_untouched(&good);
  open = good;
  open.l.attention.problem = &open.problem;
  open.l.attention.args = &open.args;
  runs(&open);
}

/* What libclattn alone finds wrong is found before the projections too. */
void found_by_clattn(void **state) {
  (void)state;
  static const int32_t lengths[] = {7, 8};
  sound good = sound_attention();
  const matrix scratch = blank(CLATTN_F32, 1, 4096);
  good.l.attention.workspace = clattn_buffer(scratch.buffer, 64);
  REFUSED(s.problem.use_bias = 1, CLATTN_ERROR_TENSOR_MISSING, "args.bias");
  REFUSED(s.args.sink = mem_of(&s.x), CLATTN_ERROR_TENSOR_UNUSED, "args.sink");
  REFUSED((s.problem.k_length_mode = CLATTN_LENGTH_PER_BATCH,
           s.args.k_lengths = (clattn_ints){.kind = CLATTN_ARRAY_HOST, .count = 2, .host = lengths}),
          CLATTN_ERROR_LENGTH, "args.k_lengths");
  assert_int_equal(clFinish(queue), CL_SUCCESS);
  check_untouched(&good);
  const double *untouched = fetched(&scratch);
  for (int i = 0; i < 4096; i++)
    assert_true(isnan(untouched[i]));
}

static sound sound_encdec(void) {
  sound s;
  memset(&s, 0, sizeof s);
  add_matrices(&s);
  s.l = layer_of(ENCDEC);
  s.y = blank(CLATTN_F32, ROWS, CONTEXT);
  s.lse = dense(ROWS, K_LEN);
  s.l.encdec.batch = BATCH;
  s.l.encdec.target_len = Q_LEN;
  s.l.encdec.source_len = K_LEN;
  s.l.encdec.target_dim = MODEL;
  s.l.encdec.source_dim = CONTEXT;
  s.l.encdec.q = weight_of(MODEL, 8);
  s.l.encdec.k = weight_of(CONTEXT, 8);
  s.l.encdec.target = of(&s.x);
  s.l.encdec.source = of(&s.context);
  s.l.encdec.contexts = of(&s.y);
  s.l.encdec.weights = mem_of(&s.lse);
  return s;
}

void encoder_decoder_refuses(void **state) {
  (void)state;
  static const int32_t lengths[] = {7, 3, 1};
  const sound good = sound_encdec();
  sound open = good;
  uint64_t bytes = 0;
  clattn_nn_encdec_args_init(NULL);
  assert_int_equal(clattn_nn_encdec_attention(nn, queue, NULL, 0, NULL, NULL), CLATTN_ERROR_NULL_POINTER);
  assert_int_equal(clattn_nn_encdec_workspace(nn, NULL, &bytes), CLATTN_ERROR_NULL_POINTER);
  assert_int_equal(clattn_nn_encdec_workspace(nn, &open.l.encdec, NULL), CLATTN_ERROR_NULL_POINTER);
  assert_int_equal(clattn_nn_encdec_attention(NULL, queue, &open.l.encdec, 0, NULL, NULL), CLATTN_ERROR_NULL_POINTER);
  open.l.encdec.struct_size++;
  assert_int_equal(clattn_nn_encdec_attention(nn, queue, &open.l.encdec, 0, NULL, NULL), CLATTN_ERROR_STRUCT_SIZE);
  REFUSED(s.l.encdec.reserved[0] = 1, CLATTN_ERROR_RESERVED, "reserved[0] is 1");
  REFUSED(s.l.encdec.reserved0 = 1, CLATTN_ERROR_RESERVED, "reserved0 is 1");
  REFUSED(s.l.encdec.similarity = 9, CLATTN_ERROR_ENUM, "similarity");
  REFUSED(s.l.encdec.scale_mode = 9, CLATTN_ERROR_ENUM, "scale_mode");
  REFUSED((s.l.encdec.scale_mode = CLATTN_SCALE_VALUE, s.l.encdec.scale = INFINITY), CLATTN_ERROR_VALUE, "scale");
  REFUSED(s.l.encdec.batch = -1, CLATTN_ERROR_SHAPE, "args.batch is -1");
  REFUSED(s.l.encdec.target_len = -1, CLATTN_ERROR_SHAPE, "args.target_len is -1");
  REFUSED(s.l.encdec.source_len = (int64_t)1 << 40, CLATTN_ERROR_SHAPE, "args.source_len is 1099511627776");
  REFUSED(s.l.encdec.target_len = 1 << 30, CLATTN_ERROR_SHAPE, "batch * target_len is 2147483648");
  REFUSED(s.l.encdec.target_dim = 0, CLATTN_ERROR_SHAPE, "args.target_dim is 0");
  REFUSED(s.l.encdec.source_dim = -2, CLATTN_ERROR_SHAPE, "args.source_dim -2");
  REFUSED(s.l.encdec.k = NULL, CLATTN_ERROR_NULL_POINTER, "args.k is NULL");
  REFUSED(s.l.encdec.q = NULL, CLATTN_ERROR_NULL_POINTER, "args.q is NULL");
  REFUSED((s.l.encdec.q = NULL, s.l.encdec.k = NULL), CLATTN_ERROR_SHAPE, "args.target_dim is 24, args.source_dim 20");
  REFUSED(s.l.encdec.q = weight_of(CONTEXT, 8), CLATTN_ERROR_SHAPE, "args.q makes 8 outputs of 20 inputs, not 8 of 24");
  REFUSED(s.l.encdec.k = weight_of(CONTEXT, 9), CLATTN_ERROR_SHAPE, "args.k makes 9 outputs of 20 inputs, not 8 of 20");
  REFUSED(s.l.encdec.target.dtype = 9, CLATTN_ERROR_ENUM, "target.dtype is 9");
  REFUSED(s.l.encdec.source.stride = 19, CLATTN_ERROR_STRIDE, "source.stride 19");
  REFUSED(s.l.encdec.contexts.stride = INT64_MAX, CLATTN_ERROR_OVERFLOW, "contexts: 5 rows");
  REFUSED(s.l.encdec.target.mem.bytes = 100, CLATTN_ERROR_BUFFER_TOO_SMALL, "target: 10 rows");
  REFUSED(s.l.encdec.weights.bytes = 279, CLATTN_ERROR_BUFFER_TOO_SMALL, "weights needs 280 bytes");
  REFUSED(s.l.encdec.add_w = mem_of(&s.x), CLATTN_ERROR_TENSOR_UNUSED, "add_w is given");
  REFUSED(s.l.encdec.similarity = CLATTN_ADDITIVE, CLATTN_ERROR_TENSOR_MISSING, "add_w is needed");
  REFUSED((s.l.encdec.source_lengths = (clattn_ints){.kind = CLATTN_ARRAY_HOST, .count = 3, .host = lengths}),
          CLATTN_ERROR_LENGTH, "k_lengths");
  REFUSED(s.l.encdec.contexts = of(&s.context), CLATTN_ERROR_OVERLAP, "output contexts overlaps source");
  REFUSED(s.l.encdec.weights = mem_of(&s.x), CLATTN_ERROR_OVERLAP, "output weights overlaps target");
  runs((open = good, &open));
}

static void sound_forward(sound *s, const clattn_nn_weight **up, const clattn_nn_weight **gate,
                          const clattn_nn_weight **down) {
  add_matrices(s);
  *up = weight_of(MODEL, 16);
  *gate = weight_of(MODEL, 16);
  *down = weight_of(16, MODEL);
}

void feed_forward_refuses(void **state) {
  (void)state;
  sound good, open;
  uint64_t bytes = 0;
  memset(&good, 0, sizeof good);
  good.l = layer_of(FFN);
  sound_forward(&good, &good.l.ffn.up, &good.l.ffn.gate, &good.l.ffn.down);
  good.l.ffn.rows = ROWS;
  good.l.ffn.x = of(&good.x);
  good.l.ffn.y = of(&good.y);
  good.l.ffn.residual = of(&good.residual);
  open = good;
  clattn_nn_ffn_args_init(NULL);
  assert_int_equal(clattn_nn_ffn(nn, queue, NULL, 0, NULL, NULL), CLATTN_ERROR_NULL_POINTER);
  assert_int_equal(clattn_nn_ffn_workspace(nn, NULL, &bytes), CLATTN_ERROR_NULL_POINTER);
  assert_int_equal(clattn_nn_ffn_workspace(nn, &open.l.ffn, NULL), CLATTN_ERROR_NULL_POINTER);
  assert_int_equal(clattn_nn_ffn(NULL, queue, &open.l.ffn, 0, NULL, NULL), CLATTN_ERROR_NULL_POINTER);
  open.l.ffn.struct_size = 0;
  assert_int_equal(clattn_nn_ffn(nn, queue, &open.l.ffn, 0, NULL, NULL), CLATTN_ERROR_STRUCT_SIZE);
  REFUSED(s.l.ffn.reserved[7] = 1, CLATTN_ERROR_RESERVED, "reserved[7] is 1");
  REFUSED(s.l.ffn.reserved0 = 1, CLATTN_ERROR_RESERVED, "reserved0 is 1");
  REFUSED(s.l.ffn.rows = -1, CLATTN_ERROR_SHAPE, "args.rows is -1");
  REFUSED(s.l.ffn.rows = (int64_t)1 << 31, CLATTN_ERROR_SHAPE, "args.rows is 2147483648");
  REFUSED(s.l.ffn.activation = 5, CLATTN_ERROR_ENUM, "args.activation is 5");
  REFUSED(s.l.ffn.up = NULL, CLATTN_ERROR_NULL_POINTER, "args.up must not be NULL");
  REFUSED(s.l.ffn.down = NULL, CLATTN_ERROR_NULL_POINTER, "args.down must not be NULL");
  REFUSED(s.l.ffn.gate = s.l.ffn.down, CLATTN_ERROR_SHAPE, "args.gate makes 24 outputs of 16 inputs, not 16 of 24");
  REFUSED(s.l.ffn.down = s.l.ffn.up, CLATTN_ERROR_SHAPE, "args.down makes 16 outputs of 24 inputs, not 16 of 16");
  REFUSED(s.l.ffn.x.dtype = CLATTN_I8, CLATTN_ERROR_ENUM, "x.dtype is 3");
  REFUSED(s.l.ffn.x.mem.bytes = 100, CLATTN_ERROR_BUFFER_TOO_SMALL, "x: 10 rows of 24 columns");
  REFUSED(s.l.ffn.y.mem.bytes = 100, CLATTN_ERROR_BUFFER_TOO_SMALL, "y: 10 rows of 24 columns");
  REFUSED(s.l.ffn.residual.mem.bytes = 100, CLATTN_ERROR_BUFFER_TOO_SMALL, "residual: 10 rows of 24 columns");
  REFUSED((s.l.ffn.y = of(&s.x), s.l.ffn.y.mem.offset += 4), CLATTN_ERROR_OVERLAP, "output y overlaps x");
  check_untouched(&good);
  runs((open = good, &open));
}

static sound sound_block(int decoder) {
  sound s;
  memset(&s, 0, sizeof s);
  s.l = layer_of(decoder ? DECODER : ENCODER);
  clattn_nn_block_args *args = &s.l.block;
  sound_forward(&s, &args->up, &args->gate, &args->down);
  s.problem = parsed("b=2 hq=4 sq=5 sk=5 d=6");
  s.cross = parsed("b=2 hq=4 hkv=2 sq=5 sk=7 d=8");
  args->self_problem = &s.problem;
  args->self_heads.qkv = weight_of(MODEL, 72);
  args->self_heads.o = weight_of(24, MODEL);
  args->x = of(&s.x);
  args->y = of(&s.y);
  if (decoder) {
    args->cross_problem = &s.cross;
    args->cross_heads.q = weight_of(MODEL, 32);
    args->cross_heads.kv = weight_of(CONTEXT, 32);
    args->cross_heads.o = weight_of(32, MODEL);
    args->context = of(&s.context);
  }
  return s;
}

static void encoder_blocks_refuse(void) {
  const sound good = sound_block(0);
  const clattn_args args = {0};
  const clattn_mem small = clattn_buffer(buffer_of(28, NULL), 0);
  sound open = good;
  uint64_t bytes = 0;
  clattn_nn_block_args_init(NULL);
  open.l.block.self_problem = &open.problem;
  assert_int_equal(clattn_nn_encoder_block(nn, queue, NULL, 0, NULL, NULL), CLATTN_ERROR_NULL_POINTER);
  assert_int_equal(clattn_nn_block_workspace(nn, NULL, &bytes), CLATTN_ERROR_NULL_POINTER);
  assert_int_equal(clattn_nn_block_workspace(nn, &open.l.block, NULL), CLATTN_ERROR_NULL_POINTER);
  assert_int_equal(clattn_nn_encoder_block(NULL, queue, &open.l.block, 0, NULL, NULL), CLATTN_ERROR_NULL_POINTER);
  open.l.block.struct_size = 0;
  assert_int_equal(clattn_nn_encoder_block(nn, queue, &open.l.block, 0, NULL, NULL), CLATTN_ERROR_STRUCT_SIZE);
  REFUSED(s.l.block.reserved[1] = 1, CLATTN_ERROR_RESERVED, "reserved[1] is 1");
  REFUSED(s.l.block.order = 2, CLATTN_ERROR_ENUM, "args.order is 2");
  REFUSED(s.l.block.norm = 2, CLATTN_ERROR_ENUM, "args.norm is 2");
  REFUSED(s.l.block.epsilon = -1, CLATTN_ERROR_VALUE, "args.epsilon is -1");
  REFUSED(s.l.block.activation = -1, CLATTN_ERROR_ENUM, "args.activation is -1");
  REFUSED(s.l.block.cross_problem = &s.cross, CLATTN_ERROR_TENSOR_UNUSED, "args.cross_problem is given");
  REFUSED(s.l.block.cross_args = &args, CLATTN_ERROR_TENSOR_UNUSED, "args.cross_args is given");
  REFUSED(s.l.block.cross_heads.o = s.l.block.up, CLATTN_ERROR_TENSOR_UNUSED, "args.cross_heads is given");
  REFUSED(s.l.block.context = of(&s.context), CLATTN_ERROR_TENSOR_UNUSED, "args.context is given");
  REFUSED(s.l.block.gamma[1] = mem_of(&s.x), CLATTN_ERROR_TENSOR_UNUSED, "args.gamma[1] is given");
  REFUSED(s.l.block.beta[1] = mem_of(&s.x), CLATTN_ERROR_TENSOR_UNUSED, "args.beta[1] is given");
  REFUSED(s.l.block.self_problem = NULL, CLATTN_ERROR_NULL_POINTER, "self_problem must not be NULL");
  REFUSED(s.l.block.self_heads.qkv = NULL, CLATTN_ERROR_NULL_POINTER, "self_heads.q must not be NULL");
  REFUSED(s.l.block.self_heads.o = weight_of(24, 23), CLATTN_ERROR_SHAPE,
          "the output of self_heads.o has 23 columns, x has 24");
  REFUSED((s.l.block.up = weight_of(23, 16), s.l.block.gate = NULL), CLATTN_ERROR_SHAPE,
          "the input of args.up has 23 columns, x has 24");
  REFUSED(s.l.block.down = weight_of(16, 25), CLATTN_ERROR_SHAPE, "the output of args.down has 25 columns, x has 24");
  REFUSED(s.l.block.x.dtype = 3, CLATTN_ERROR_ENUM, "x.dtype is 3");
  REFUSED(s.l.block.x.mem.bytes = 8, CLATTN_ERROR_BUFFER_TOO_SMALL, "x: 10 rows");
  REFUSED(s.l.block.gamma[0] = small, CLATTN_ERROR_BUFFER_TOO_SMALL, "gamma[0] needs 96 bytes");
  REFUSED(s.l.block.beta[2] = small, CLATTN_ERROR_BUFFER_TOO_SMALL, "beta[2] needs 96 bytes");
  REFUSED((s.l.block.y = of(&s.x), s.l.block.y.mem.offset += 4), CLATTN_ERROR_OVERLAP, "output y overlaps x");
  REFUSED((s.l.block.gamma[2] = mem_of(&s.y)), CLATTN_ERROR_OVERLAP, "output y overlaps gamma[2]");
  check_untouched(&good);
  open = good;
  open.l.block.self_problem = &open.problem;
  runs(&open);
}

static void decoder_blocks_refuse(void) {
  const sound good = sound_block(1);
  sound open = good;
  REFUSED(s.l.block.cross_problem = NULL, CLATTN_ERROR_NULL_POINTER, "cross_problem must not be NULL");
  REFUSED(s.cross.batch = 1, CLATTN_ERROR_SHAPE,
          "cross_problem: batch 1 and q_len 5; those of self_problem are 2 and 5");
  REFUSED(s.cross.q_len = 4, CLATTN_ERROR_SHAPE, "cross_problem: batch 2 and q_len 4");
  REFUSED(s.cross.outputs = CLATTN_OUT_LSE, CLATTN_ERROR_VALUE, "cross_problem.outputs is 2");
  REFUSED(s.l.block.cross_heads.q = weight_of(25, 32), CLATTN_ERROR_SHAPE,
          "the input of cross_heads' queries has 25 columns, x has 24");
  REFUSED(s.l.block.cross_heads.o = weight_of(32, 25), CLATTN_ERROR_SHAPE,
          "the output of cross_heads.o has 25 columns, x has 24");
  REFUSED(s.l.block.cross_heads.kv = NULL, CLATTN_ERROR_NULL_POINTER, "cross_heads.k must not be NULL");
  REFUSED(memset(&s.l.block.context, 0, sizeof s.l.block.context), CLATTN_ERROR_TENSOR_MISSING, "context is needed");
  REFUSED(s.l.block.context.mem.bytes = 8, CLATTN_ERROR_BUFFER_TOO_SMALL, "context: 14 rows of 20 columns");
  REFUSED(s.l.block.y.mem = mem_of(&s.context), CLATTN_ERROR_OVERLAP, "output y overlaps context");
  check_untouched(&good);
  open = good;
  open.l.block.self_problem = &open.problem;
  open.l.block.cross_problem = &open.cross;
  runs(&open);
}

void blocks_refuse(void **state) {
  (void)state;
  encoder_blocks_refuse();
  decoder_blocks_refuse();
}

void other_contexts(void **state) {
  (void)state;
  cl_int code = CL_SUCCESS;
  clattn_nn *other_nn = NULL;
  clattn_nn_weight *strange_weight = NULL;
  const sound good = sound_attention();
  sound open = good;
  const cl_context strange = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
  assert_int_equal(code, CL_SUCCESS);
  const cl_command_queue strange_queue = clCreateCommandQueue(strange, device, 0, &code);
  assert_int_equal(code, CL_SUCCESS);
  const cl_mem strange_buffer = clCreateBuffer(strange, CL_MEM_READ_WRITE, 1 << 20, NULL, &code);
  assert_int_equal(code, CL_SUCCESS);
  assert_int_equal(clattn_nn_create(context, NULL, &other_nn, NULL), CLATTN_SUCCESS);
  assert_int_equal(clattn_nn_weight_create(other_nn, MODEL, 32, CLATTN_F32, 0, &strange_weight, NULL), CLATTN_SUCCESS);
  open.l.attention.problem = &open.problem;
  open.l.attention.args = &open.args;
  assert_int_equal(clattn_nn_attention(nn, strange_queue, &open.l.attention, 0, NULL, NULL),
                   CLATTN_ERROR_WRONG_CONTEXT);
  REFUSED(s.l.attention.context.mem.buffer = strange_buffer, CLATTN_ERROR_WRONG_CONTEXT, "context");
  REFUSED(s.l.attention.workspace = clattn_buffer(strange_buffer, 0), CLATTN_ERROR_WRONG_CONTEXT, "workspace");
  REFUSED(s.l.attention.heads.q = strange_weight, CLATTN_ERROR_WRONG_CONTEXT, "heads.q was made for another clattn_nn");
  check_untouched(&good);
  clattn_nn_weight_release(strange_weight);
  clattn_nn_release(other_nn);
  assert_int_equal(clReleaseMemObject(strange_buffer) | clReleaseCommandQueue(strange_queue) |
                       clReleaseContext(strange),
                   CL_SUCCESS);
}
