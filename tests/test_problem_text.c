/* SPDX-License-Identifier: Apache-2.0 */
/* The problem line, both ways. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "clattn.h"

#include "dtype.h"
#include "problem_internal.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))
enum { LINE = 4096 };

static uint64_t random_state = 7;
static uint64_t random64(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state * UINT64_C(2685821657736338717);
}
static uint32_t below(uint32_t n) {
  return (uint32_t)((random64() >> 32) % n);
}

static void parsed(const char *line, clattn_problem *p) {
  clattn_error error;
  clattn_error_init(&error);
  if (clattn_problem_parse(line, p, &error) != CLATTN_SUCCESS)
    fail_msg("%s: %s", line, error.message);
  assert_string_equal(error.message, "");
}

/* By bytes: -0.0 and 0.0 are two values. */
static int same_bytes(const void *a, const void *b, size_t size) {
  return memcmp(a, b, size) == 0;
}

/* Formats, parses, and expects the same bytes. */
static void round_trip(const clattn_problem *p) {
  char line[LINE];
  size_t length;
  clattn_problem back;
  assert_int_equal(clattn_problem_format(p, line, sizeof line, &length), CLATTN_SUCCESS);
  assert_int_equal(strlen(line), length);
  parsed(line, &back);
  if (!same_bytes(p, &back, sizeof back))
    fail_msg("%s", line);
}

/* ---- lines that mean a known problem --------------------------------------------------------------------------- */

static void line_is(const char *line, const clattn_problem *p) {
  char text[LINE];
  clattn_problem back;
  assert_int_equal(clattn_problem_format(p, text, sizeof text, NULL), CLATTN_SUCCESS);
  assert_string_equal(text, line);
  parsed(line, &back);
  assert_memory_equal(&back, p, sizeof back);
}

#define LINE_IS(line, ...)                                                                                             \
  do {                                                                                                                 \
    clattn_problem p;                                                                                                  \
    clattn_problem_init(&p);                                                                                           \
    __VA_ARGS__;                                                                                                       \
    line_is(line, &p);                                                                                                 \
  } while (0)

static void known_lines(void **state) {
  (void)state;
  LINE_IS("", (void)p);
  LINE_IS("b=1 hq=8 sq=128 sk=128 d=64 causal=1", p.batch = 1, p.q_heads = 8, p.q_len = 128, p.k_len = 128,
          p.qk_dim = 64, p.causal = 1);
  LINE_IS("hkv=2 d=64 dv=32", p.kv_heads = 2, p.qk_dim = 64, p.v_dim = 32);
  LINE_IS("q=f16:bshd", p.q.dtype = CLATTN_F16, p.q.layout = CLATTN_LAYOUT_BSHD);
  LINE_IS("k=f32:strided:0,64,8,1", p.k = clattn_strided(CLATTN_F32, 0, 64, 8, 1));
  LINE_IS("v=bf16:strided:0,0,0,0", p.v = clattn_strided(CLATTN_BF16, 0, 0, 0, 0));
  LINE_IS("o=f32:bhsd:0,0,0,-5", p.o.stride[3] = -5);
  LINE_IS("scale=0", p.scale_mode = CLATTN_SCALE_VALUE);
  LINE_IS("scale=-0", p.scale_mode = CLATTN_SCALE_VALUE, p.scale = -0.0f);
  LINE_IS("scale=0.125 softcap=30", p.scale_mode = CLATTN_SCALE_VALUE, p.scale = 0.125f, p.softcap = 30.0f);
  LINE_IS("scale=default:2", p.scale = 2.0f);
  LINE_IS("off=bottom_right", p.offset_mode = CLATTN_OFFSET_BOTTOM_RIGHT);
  LINE_IS("off=-3", p.offset_mode = CLATTN_OFFSET_VALUE, p.offset = -3);
  LINE_IS("off=0", p.offset_mode = CLATTN_OFFSET_VALUE);
  LINE_IS("off=per_batch", p.offset_mode = CLATTN_OFFSET_PER_BATCH);
  LINE_IS("off=top_left:4", p.offset = 4);
  LINE_IS("window=2,inf", p.window = CLATTN_WINDOW_LEFT, p.window_left = 2);
  LINE_IS("window=inf,0", p.window = CLATTN_WINDOW_RIGHT);
  LINE_IS("window=0,7", p.window = CLATTN_WINDOW_BOTH, p.window_right = 7);
  LINE_IS("window=inf:7,1", p.window = CLATTN_WINDOW_RIGHT, p.window_left = 7, p.window_right = 1);
  LINE_IS("bias=f32:bhsd", p.use_bias = 1);
  LINE_IS("bias=f32:strided:0,0,5,1", p.use_bias = 1, p.bias = clattn_strided(CLATTN_F32, 0, 0, 5, 1));
  LINE_IS("bias=off:f16:bhsd", p.bias.dtype = CLATTN_F16);
  LINE_IS("mask=u8", p.keep_mask_kind = CLATTN_MASK_U8);
  LINE_IS("mask=bits:strided:0,0,1,0", p.keep_mask_kind = CLATTN_MASK_BITS,
          p.keep_mask = clattn_strided(CLATTN_F32, 0, 0, 1, 0));
  LINE_IS("qlen=per_batch klen=per_batch", p.q_length_mode = 1, p.k_length_mode = 1);
  LINE_IS("out=o,lse,scores,max_logit stage=weights", p.outputs = 15, p.stage = CLATTN_STAGE_WEIGHTS);
  LINE_IS("align=16", p.alignment = 16);
  LINE_IS("flags=batch_invariant", p.flags = CLATTN_BATCH_INVARIANT);
  LINE_IS("sink=f32:bhsd", p.use_sink = 1);
  LINE_IS("sink=f32:strided:0,2,0,0", p.use_sink = 1, p.sink = clattn_strided(CLATTN_F32, 0, 2, 0, 0));
  LINE_IS("alibi=signed", p.alibi = CLATTN_ALIBI_SIGNED);
  LINE_IS("alibi=symmetric:f32:strided:8,1,0,0", p.alibi = CLATTN_ALIBI_SYMMETRIC,
          p.alibi_slopes = clattn_strided(CLATTN_F32, 8, 1, 0, 0));
  LINE_IS("prefix=12 chunk=3", p.prefix_mode = CLATTN_PREFIX_VALUE, p.prefix = 12, p.chunk = 3);
  LINE_IS("prefix=0", p.prefix_mode = CLATTN_PREFIX_VALUE);
  LINE_IS("prefix=per_batch", p.prefix_mode = CLATTN_PREFIX_PER_BATCH);
  LINE_IS("prefix=none:7", p.prefix = 7);
  LINE_IS("block_mask=bits block_q=64 block_k=128", p.block_mask_kind = CLATTN_MASK_BITS, p.block_q = 64,
          p.block_k = 128);
  LINE_IS("block_mask=bits:strided:0,0,4,1 block_q=1 block_k=1", p.block_mask_kind = CLATTN_MASK_BITS,
          p.block_q = p.block_k = 1, p.block_mask = clattn_strided(CLATTN_F32, 0, 0, 4, 1));
  LINE_IS("q=f32:packed k=f32:packed v=f32:packed:0,8,16,1 o=f32:packed total_q=100 total_k=200 out=o,lse "
          "lse=f32:packed:0,1,8,0",
          p.q.layout = p.k.layout = p.v.layout = p.o.layout = p.lse.layout = CLATTN_LAYOUT_PACKED, p.total_q = 100,
          p.total_k = 200, p.outputs = CLATTN_OUT_O | CLATTN_OUT_LSE, p.v.stride[1] = 8, p.v.stride[2] = 16,
          p.v.stride[3] = 1, p.lse.stride[1] = 1, p.lse.stride[2] = 8);
  LINE_IS("k=f32:paged v=f32:paged:512,128,8,1 klen=per_batch pages=32 max_pages=8 page_size=16",
          p.k.layout = p.v.layout = CLATTN_LAYOUT_PAGED, p.k_length_mode = CLATTN_LENGTH_PER_BATCH, p.num_pages = 32,
          p.max_pages = 8, p.page_size = 16, p.v.stride[0] = 512, p.v.stride[1] = 128, p.v.stride[2] = 8,
          p.v.stride[3] = 1);
  LINE_IS("rope=half", p.rope = CLATTN_ROPE_HALF);
  LINE_IS("rope=interleaved positions=1 rope_dim=32 rope_positions=4096 rope_cos=f32:strided:0,0,64,1 "
          "rope_sin=f32:strided:0,0,64,1",
          p.rope = CLATTN_ROPE_INTERLEAVED, p.use_positions = 1, p.rope_dim = 32, p.rope_positions = 4096,
          p.rope_cos = p.rope_sin = clattn_strided(CLATTN_F32, 0, 0, 64, 1));
  LINE_IS("sim=cosine math=half head_scale=f32:bhsd", p.similarity = CLATTN_COSINE, p.math = CLATTN_MATH_HALF,
          p.use_head_scale = 1);
  LINE_IS("sim=additive math=tf32 head_scale=f32:strided:0,2,0,0 add_w=f32:strided:0,64,0,1",
          p.similarity = CLATTN_ADDITIVE, p.math = CLATTN_MATH_TF32, p.use_head_scale = 1,
          p.head_scale = clattn_strided(CLATTN_F32, 0, 2, 0, 0), p.add_w = clattn_strided(CLATTN_F32, 0, 64, 0, 1));
  LINE_IS("q=bf16:bhsd k=i4:paged v=i8:paged o=f16:bhsd k_scale=f16:paged v_scale=f32:paged:8,1,2,1",
          p.q.dtype = CLATTN_BF16, p.k.dtype = CLATTN_I4, p.v.dtype = CLATTN_I8, p.o.dtype = CLATTN_F16,
          p.k.layout = p.v.layout = p.k_scale.layout = CLATTN_LAYOUT_PAGED, p.k_scale.dtype = CLATTN_F16,
          p.v_scale.layout = CLATTN_LAYOUT_PAGED, p.v_scale.stride[0] = 8, p.v_scale.stride[1] = 1,
          p.v_scale.stride[2] = 2, p.v_scale.stride[3] = 1);
  LINE_IS("pass=backward grad=dq,dbias,from_lse accumulate=1", p.pass = CLATTN_BACKWARD,
          p.gradients = CLATTN_GRAD_Q | CLATTN_GRAD_BIAS | CLATTN_GRAD_FROM_LSE, p.accumulate = 1);
}

static void shorter_spellings_are_read(void **state) {
  static const char *const pairs[][2] = {
      {"dqk=64", "d=64"},
      {"  b=2\t hq=4\r\n", "b=2 hq=4"},
      {"hq=4 b=2", "b=2 hq=4"},
      {"q=bshd", "q=f32:bshd"},
      {"q=f16", "q=f16:bhsd"},
      {"q=strided:1,2,3,4", "q=f32:strided:1,2,3,4"},
      {"bias=bshd", "bias=f32:bshd"},
      {"mask=bits:bhsd", "mask=bits"},
      {"causal=0 b=0 stage=raw bias=off window=inf,inf off=top_left scale=default", ""},
      {"scale=1e-1", "scale=0.1"},
      {"scale=000.5", "scale=0.5"},
  };
  (void)state;
  for (size_t i = 0; i < LENGTH(pairs); i++) {
    clattn_problem a, b;
    parsed(pairs[i][0], &a);
    parsed(pairs[i][1], &b);
    assert_memory_equal(&a, &b, sizeof a);
  }
}

static void hooks_are_named_but_not_carried(void **state) {
  char line[LINE];
  clattn_problem p;
  (void)state;
  clattn_problem_init(&p);
  p.qk_dim = 4;
  p.hook = (const clattn_hook *)(const void *)&p;
  assert_int_equal(clattn_problem_format(&p, line, sizeof line, NULL), CLATTN_SUCCESS);
  assert_string_equal(line, "d=4 hook=yes");
  clattn_error error;
  clattn_error_init(&error);
  assert_int_equal(clattn_problem_parse(line, &p, &error), CLATTN_ERROR_NOT_SUPPORTED);
  assert_non_null(strstr(error.message, "hook"));
}

/* ---- lines that can't be read ---------------------------------------------------------------------------------- */

static void broken_lines(void **state) {
  static const char *const rows[][2] = {
      /* line, what the message quotes */
      {"frobnicate=3", "\"frobnicate=3\" has an unknown key"},
      {"b=1 =3", "\"=3\" has an unknown key"},
      {"B=1", "\"B=1\""},
      {"b", "\"b\" is not key=value"},
      {"sq=4 b=1 sq=5", "\"sq=5\" gives sq a second time"},
      {"d=4 dqk=4", "\"dqk=4\" gives d a second time"},
      {"b=", "the value of \"b=\""},
      {"b=1x", "\"b=1x\""},
      {"b=1;hq=2", "\"b=1;hq=2\""},
      {"b=+1", "\"b=+1\""},
      {"b=-", "\"b=-\""},
      {"b=0x10", "\"b=0x10\""},
      {"b=1.5", "\"b=1.5\""},
      {"b=9223372036854775808", "\"b=9223372036854775808\""},
      {"b=-9223372036854775809", "\"b=-9223372036854775809\""},
      {"b=99999999999999999999999", "\"b=99999999999999999999999\""},
      {"align=-1", "\"align=-1\""},
      {"align=4294967296", "\"align=4294967296\""},
      {"causal=2", "\"causal=2\""},
      {"causal=yes", "\"causal=yes\""},
      {"stage=rawer", "\"stage=rawer\""},
      {"stage=0", "\"stage=0\""},
      {"stage=", "\"stage=\""},
      {"out=o,o", "\"out=o,o\""},
      {"out=o,", "\"out=o,\""},
      {"out=", "\"out=\""},
      {"out=o,x", "\"out=o,x\""},
      {"q=", "\"q=\""},
      {"q=f64:bhsd", "\"q=f64:bhsd\""},
      {"q=f32:", "\"q=f32:\""},
      {"q=bhsd:f32", "\"q=bhsd:f32\""},
      {"q=f32:f32:bhsd", "\"q=f32:f32:bhsd\""},
      {"q=f32:strided:1,2,3", "\"q=f32:strided:1,2,3\""},
      {"q=f32:strided:1,2,3,4,5", "\"q=f32:strided:1,2,3,4,5\""},
      {"q=f32:strided:1,2,3,4:5", "\"q=f32:strided:1,2,3,4:5\""},
      {"q=f32:strided:1,2,,4", "\"q=f32:strided:1,2,,4\""},
      {"scale=", "\"scale=\""},
      {"scale=1e", "\"scale=1e\""},
      {"scale=1e99", "\"scale=1e99\""},
      {"scale=1e99999", "\"scale=1e99999\""},
      {"scale=0,5", "\"scale=0,5\""},
      {"scale=1.", "\"scale=1.\""},
      {"scale=.", "\"scale=.\""},
      {"scale=1.2.3", "\"scale=1.2.3\""},
      {"scale=0x1p3", "\"scale=0x1p3\""},
      {"scale=infinity", "\"scale=infinity\""},
      {"scale=--1", "\"scale=--1\""},
      {"scale=default:", "\"scale=default:\""},
      {"scale=11111111111111111111111111111111111111111111111111111111111111111", "\"scale=1111"},
      {"off=value", "\"off=value\""},
      {"off=bottom_right:x", "\"off=bottom_right:x\""},
      {"window=3", "\"window=3\""},
      {"window=3,4,5", "\"window=3,4,5\""},
      {"window=,", "\"window=,\""},
      {"window=3:4,5", "\"window=3:4,5\""},
      {"window=infx,5", "\"window=infx,5\""},
      {"bias=on", "\"bias=on\""},
      {"bias=f32:bhsd:off", "\"bias=f32:bhsd:off\""},
      {"mask=f32", "\"mask=f32\""},
      {"mask=u8:", "\"mask=u8:\""},
      {"hook=0", "\"hook=0\""},
  };
  (void)state;
  for (size_t i = 0; i < LENGTH(rows); i++) {
    clattn_problem p, init;
    clattn_error error;
    clattn_error_init(&error);
    clattn_problem_init(&init);
    memset(&p, 0x5a, sizeof p);
    const clattn_status status = clattn_problem_parse(rows[i][0], &p, &error);
    if (status != CLATTN_ERROR_TEXT || error.status != status || strstr(error.message, rows[i][1]) == NULL)
      fail_msg("%s: %s \"%s\"", rows[i][0], clattn_status_name(status), error.message);
    assert_memory_equal(&p, &init, sizeof p); /* no half of a line */
    assert_int_equal(clattn_problem_parse(rows[i][0], &p, NULL), CLATTN_ERROR_TEXT);
  }
}

static void long_words_are_cut_in_messages(void **state) {
  char word[5000];
  clattn_problem p;
  clattn_error error;
  (void)state;
  memset(word, 'z', sizeof word);
  word[sizeof word - 1] = '\0';
  clattn_error_init(&error);
  assert_int_equal(clattn_problem_parse(word, &p, &error), CLATTN_ERROR_TEXT);
  assert_true(strlen(error.message) < 200);
  assert_non_null(strstr(error.message, "is not key=value"));
}

static void null_arguments(void **state) {
  char text[8];
  clattn_problem p;
  (void)state;
  clattn_problem_init(&p);
  assert_int_equal(clattn_problem_parse(NULL, &p, NULL), CLATTN_ERROR_NULL_POINTER);
  assert_int_equal(clattn_problem_parse("b=1", NULL, NULL), CLATTN_ERROR_NULL_POINTER);
  assert_int_equal(clattn_problem_format(NULL, text, sizeof text, NULL), CLATTN_ERROR_NULL_POINTER);
  assert_int_equal(clattn_problem_format(&p, NULL, 8, NULL), CLATTN_ERROR_NULL_POINTER);
}

/* ---- writing --------------------------------------------------------------------------------------------------- */

static void short_memory_cuts_the_line(void **state) {
  char text[16];
  size_t length;
  clattn_problem p;
  (void)state;
  parsed("b=1 sq=128", &p);
  assert_int_equal(clattn_problem_format(&p, NULL, 0, &length), CLATTN_ERROR_BUFFER_TOO_SMALL);
  assert_int_equal(length, 10);
  for (size_t capacity = 1; capacity <= 12; capacity++) {
    char want[16] = "b=1 sq=128";
    memset(text, '#', sizeof text);
    assert_int_equal(clattn_problem_format(&p, text, capacity, &length),
                     capacity > 10 ? CLATTN_SUCCESS : CLATTN_ERROR_BUFFER_TOO_SMALL);
    assert_int_equal(length, 10);
    if (capacity <= 10)
      want[capacity - 1] = '\0';
    assert_string_equal(text, want);
    assert_int_equal(text[capacity], '#');
  }
}

static void what_a_line_cannot_carry_is_refused(void **state) {
  char text[64] = "before";
  clattn_problem p;
  (void)state;
  clattn_problem_init(&p);
  p.stage = 17;
  assert_int_equal(clattn_problem_format(&p, text, sizeof text, NULL), CLATTN_ERROR_ENUM);
  assert_string_equal(text, "");
  clattn_problem_init(&p);
  p.reserved[3] = 1;
  assert_int_equal(clattn_problem_format(&p, text, sizeof text, NULL), CLATTN_ERROR_RESERVED);
  p.struct_size = 3;
  assert_int_equal(clattn_problem_format(&p, text, sizeof text, NULL), CLATTN_ERROR_STRUCT_SIZE);
}

/* ---- round trips ----------------------------------------------------------------------------------------------- */

/* Knows nothing of the fields: a field that the table forgets is a word that does not come back. */
static void every_word_of_the_struct_is_carried(void **state) {
  size_t carried = 0, reserved = 0;
  (void)state;
  for (size_t at = sizeof(size_t); at < sizeof(clattn_problem); at += sizeof(uint32_t)) {
    const uint32_t one = 1;
    char line[LINE];
    clattn_problem p;
    clattn_problem_init(&p);
    if (at >= offsetof(clattn_problem, hook) && at < offsetof(clattn_problem, hook) + sizeof p.hook)
      continue;
    memcpy((char *)&p + at, &one, sizeof one);
    const clattn_status status = clattn_problem_format(&p, line, sizeof line, NULL);
    if (status == CLATTN_ERROR_RESERVED) {
      reserved++;
    } else {
      if (status != CLATTN_SUCCESS || line[0] == '\0')
        fail_msg("byte %zu: %s", at, clattn_status_name(status));
      round_trip(&p);
      carried++;
    }
  }
  assert_int_equal(reserved, 2 * 25 + 15); /* of 25 tensors, and the struct's own */
  assert_int_equal(sizeof(size_t) + sizeof(void *) + 4 * (carried + reserved), sizeof(clattn_problem));
}

static float random_float(void) {
  float value;
  do {
    const uint32_t bits = (uint32_t)(random64() >> 32);
    memcpy(&value, &bits, sizeof value);
  } while (!isfinite(value));
  return value;
}

static int64_t random_size(void) {
  const uint64_t bits = random64();
  int64_t value;
  if (below(2))
    return (int64_t)below(5000);
  memcpy(&value, &bits, sizeof value);
  return value;
}

static clattn_tensor random_tensor(void) {
  clattn_tensor t = {0, 0, {0, 0, 0, 0}, {0, 0}};
  if (below(3) == 0)
    return t;
  t.dtype = (clattn_dtype)below(5);
  t.layout = (clattn_layout)below(7);
  for (int i = 0; i < 4 && below(2); i++)
    t.stride[i] = random_size();
  return t;
}

static clattn_problem random_problem(void) {
  clattn_problem p;
  clattn_problem_init(&p);
  int64_t *const sizes[] = {&p.batch,     &p.q_heads,   &p.kv_heads,      &p.q_len,        &p.k_len,     &p.qk_dim,
                            &p.v_dim,     &p.offset,    &p.window_left,   &p.prefix,       &p.chunk,     &p.block_q,
                            &p.block_k,   &p.total_q,   &p.total_k,       &p.window_right, &p.page_size, &p.rope_dim,
                            &p.num_pages, &p.max_pages, &p.rope_positions};
  clattn_tensor *const tensors[] = {&p.q,          &p.k,          &p.v,         &p.o,         &p.bias,
                                    &p.head_scale, &p.sink,       &p.add_w,     &p.keep_mask, &p.k_scale,
                                    &p.v_scale,    &p.block_mask, &p.lse,       &p.scores,    &p.d_o,
                                    &p.d_q,        &p.d_k,        &p.max_logit, &p.d_v,       &p.d_lse,
                                    &p.d_bias,     &p.d_sink,     &p.rope_cos,  &p.rope_sin,  &p.alibi_slopes};
  float *const floats[] = {&p.scale, &p.softcap, &p.dropout};
  for (size_t i = 0; i < LENGTH(sizes); i++)
    *sizes[i] = below(2) ? random_size() : 0;
  for (size_t i = 0; i < LENGTH(tensors); i++)
    *tensors[i] = random_tensor();
  for (size_t i = 0; i < LENGTH(floats); i++)
    *floats[i] = below(2) ? random_float() : 0.0f;
  p.pass = (clattn_pass)below(2);
  p.similarity = (clattn_similarity)below(3);
  p.math = (clattn_math)below(3);
  p.flags = below(2);
  p.alignment = below(2) * (uint32_t)random64();
  p.scale_mode = (clattn_scale_mode)below(2);
  p.use_bias = below(2);
  p.use_head_scale = below(2);
  p.use_sink = below(2);
  p.alibi = (clattn_alibi)below(3);
  p.causal = below(2);
  p.offset_mode = (clattn_offset_mode)below(4);
  p.window = below(4);
  p.prefix_mode = below(3);
  p.q_length_mode = (clattn_length_mode)below(2);
  p.k_length_mode = (clattn_length_mode)below(2);
  p.keep_mask_kind = (clattn_mask_kind)below(3);
  p.block_mask_kind = (clattn_mask_kind)below(3);
  p.rope = (clattn_rope)below(3);
  p.use_positions = below(2);
  p.outputs = below(16);
  p.stage = (clattn_stage)below(4);
  p.gradients = below(64);
  p.accumulate = below(2);
  return p;
}

static void random_problems_come_back(void **state) {
  (void)state;
  for (int i = 0; i < 5000; i++) {
    const clattn_problem p = random_problem();
    round_trip(&p);
  }
}

/* ---- numbers --------------------------------------------------------------------------------------------------- */

static void floats_come_back(void **state) {
  (void)state;
  for (int i = 0; i < 20000; i++) {
    char text[32];
    float value = random_float(), back;
    clattni_float_format(value, text);
    assert_true(clattni_float_parse(text, strlen(text), &back));
    assert_memory_equal(&value, &back, sizeof value);
  }
  static const char *const special[] = {"inf",        "-inf",           "nan", "3.4028235e+38",
                                        "1.4013e-45", "1.50000005e-05", "-0",  "0.1"};
  for (size_t i = 0; i < LENGTH(special); i++) {
    char text[32];
    float value;
    assert_true(clattni_float_parse(special[i], strlen(special[i]), &value));
    clattni_float_format(value, text);
    assert_string_equal(text, special[i]);
  }
}

static void the_locale_does_not_matter(void **state) {
  static const char *const commas[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "es_ES.UTF-8", "ru_RU.UTF-8"};
  static const char *const points[][2] = {{"1,5e-05", "1.5e-05"},
                                          {"-3\xd9\xab"
                                           "25",
                                           "-3.25"},
                                          {"12", "12"},
                                          {"0.5", "0.5"}};
  (void)state;
  for (size_t i = 0; i < LENGTH(points); i++) {
    char text[32];
    (void)snprintf(text, sizeof text, "%s", points[i][0]);
    clattni_point(text);
    assert_string_equal(text, points[i][1]);
  }
  /* Whole, where the machine has such a locale. */
  for (size_t i = 0; i < LENGTH(commas); i++) {
    if (setlocale(LC_ALL, commas[i]) == NULL)
      continue;
    print_message("locale %s, decimal point \"%s\"\n", commas[i], localeconv()->decimal_point);
    LINE_IS("scale=0.125 softcap=1.50000005e-05", p.scale_mode = CLATTN_SCALE_VALUE, p.scale = 0.125f,
            p.softcap = 1.50000005e-05f);
  }
  (void)setlocale(LC_ALL, "C");
}

static void stored_numbers_widen_exactly(void **state) {
  static const struct {
    clattn_dtype dtype;
    uint16_t bits;
    double value;
  } rows[] = {
      {CLATTN_F16, 0x0000, 0.0},       {CLATTN_F16, 0x0001, 0x1p-24},     {CLATTN_F16, 0x83ff, -0x3ffp-24},
      {CLATTN_F16, 0x0400, 0x1p-14},   {CLATTN_F16, 0x3c00, 1.0},         {CLATTN_F16, 0xc100, -2.5},
      {CLATTN_F16, 0x7bff, 65504.0},   {CLATTN_F16, 0x7c00, INFINITY},    {CLATTN_F16, 0xfc00, -INFINITY},
      {CLATTN_BF16, 0x3f80, 1.0},      {CLATTN_BF16, 0xc020, -2.5},       {CLATTN_BF16, 0x7f80, INFINITY},
      {CLATTN_BF16, 0x0001, 0x1p-133}, {CLATTN_BF16, 0x7f7f, 0x1.fep127},
  };
  (void)state;
  for (size_t i = 0; i < LENGTH(rows); i++) {
    const uint16_t stored[2] = {0x1234, rows[i].bits};
    if (clattni_dtype_load(rows[i].dtype, stored, 1) != rows[i].value)
      fail_msg("row %zu", i);
  }
  const uint16_t nan_half = 0x7e00, nan_bfloat = 0xffc0;
  assert_true(isnan(clattni_dtype_load(CLATTN_F16, &nan_half, 0)));
  assert_true(isnan(clattni_dtype_load(CLATTN_BF16, &nan_bfloat, 0)));
  const float single[2] = {0.0f, 0.1f};
  assert_true(clattni_dtype_load(CLATTN_F32, single, 1) == (double)0.1f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(known_lines),
      cmocka_unit_test(shorter_spellings_are_read),
      cmocka_unit_test(hooks_are_named_but_not_carried),
      cmocka_unit_test(broken_lines),
      cmocka_unit_test(long_words_are_cut_in_messages),
      cmocka_unit_test(null_arguments),
      cmocka_unit_test(short_memory_cuts_the_line),
      cmocka_unit_test(what_a_line_cannot_carry_is_refused),
      cmocka_unit_test(every_word_of_the_struct_is_carried),
      cmocka_unit_test(random_problems_come_back),
      cmocka_unit_test(floats_come_back),
      cmocka_unit_test(the_locale_does_not_matter),
      cmocka_unit_test(stored_numbers_widen_exactly),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
