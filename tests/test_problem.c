/* SPDX-License-Identifier: Apache-2.0 */
/* Problems without a device: every refusal and its message, defaults, strides, extents, key intervals and pair counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "clattn.h"
#include "problem.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static clattn_problem base(void) {
  clattn_problem p;
  clattn_problem_init(&p);
  p.batch = 2;
  p.q_heads = 8;
  p.kv_heads = 2;
  p.q_len = 3;
  p.k_len = 5;
  p.qk_dim = 8;
  p.v_dim = 4;
  return p;
}

static uint64_t random_state = 1;
static uint64_t random64(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state * UINT64_C(2685821657736338717);
}
static int64_t pick(int64_t low, int64_t high) {
  return low + (int64_t)((random64() >> 16) % (uint64_t)(high - low + 1));
}

/* ---- refusals -------------------------------------------------------------------------------------------------- */

static void refused(const char *file, int line, const clattn_problem *p, clattn_status status, const char *text) {
  clattn_error error;
  clattn_error_init(&error);
  const clattn_status got = clattn_problem_check(p, &error);
  if (got != status || error.status != status || strstr(error.message, text) == NULL) {
    print_error("expected %s \"%s\"\ngot      %s \"%s\"\n", clattn_status_name(status), text, clattn_status_name(got),
                error.message);
    _fail(file, line);
  }
  assert_int_equal(clattn_problem_check(p, NULL), status);
}

static void accepted(const char *file, int line, const clattn_problem *p) {
  clattn_error error;
  clattn_error_init(&error);
  (void)snprintf(error.message, sizeof error.message, "left over");
  if (clattn_problem_check(p, &error) != CLATTN_SUCCESS) {
    print_error("refused: %s\n", error.message);
    _fail(file, line);
  }
  assert_int_equal(error.status, CLATTN_SUCCESS);
  assert_string_equal(error.message, "");
}

/* The base problem after some statements on p. */
#define REFUSED(status, text, ...)                                                                                     \
  do {                                                                                                                 \
    clattn_problem p = base();                                                                                         \
    __VA_ARGS__;                                                                                                       \
    refused(__FILE__, __LINE__, &p, CLATTN_ERROR_##status, text);                                                      \
  } while (0)
#define ACCEPTED(...)                                                                                                  \
  do {                                                                                                                 \
    clattn_problem p = base();                                                                                         \
    __VA_ARGS__;                                                                                                       \
    accepted(__FILE__, __LINE__, &p);                                                                                  \
  } while (0)

static void the_struct_itself(void **state) {
  (void)state;
  clattn_error error;
  clattn_error_init(&error);
  assert_int_equal(clattn_problem_check(NULL, &error), CLATTN_ERROR_NULL_POINTER);
  assert_string_equal(error.message, "problem is NULL");
  REFUSED(STRUCT_SIZE, "struct_size is 7", p.struct_size = 7);
  REFUSED(STRUCT_SIZE, "struct_size is 0", p.struct_size = 0);
  REFUSED(STRUCT_SIZE, "struct_size", p.struct_size++);
  ACCEPTED((void)p);
  error.struct_size = 1; /* tolerated: only the code is told */
  assert_int_equal(clattn_problem_check(NULL, &error), CLATTN_ERROR_NULL_POINTER);
}

static void reserved_words(void **state) {
  (void)state;
  REFUSED(RESERVED, "reserved0 is 3", p.reserved0 = 3);
  REFUSED(RESERVED, "reserved[0] is 1", p.reserved[0] = 1);
  REFUSED(RESERVED, "reserved[15] is 2", p.reserved[15] = 2);
  REFUSED(RESERVED, "q reserved[1] is 5", p.q.reserved[1] = 5);
  REFUSED(RESERVED, "bias reserved[0] is 5", p.bias.reserved[0] = 5); /* also where the tensor is unused */
  REFUSED(RESERVED, "d_sink reserved[0] is 9", p.d_sink.reserved[0] = 9);
  REFUSED(RESERVED, "flags is 0x3: the bits 0x2", p.flags = 3);
  REFUSED(RESERVED, "window is 0x4", p.window = 4);
  REFUSED(RESERVED, "outputs is 0x11: the bits 0x10", p.outputs = 17);
  REFUSED(RESERVED, "gradients is 0x80000000", p.gradients = UINT32_C(1) << 31);
  REFUSED(RESERVED, "reserved0", p.reserved0 = 1, p.stage = 99); /* before enums */
}

static void enums(void **state) {
  (void)state;
  REFUSED(ENUM, "pass is 2", p.pass = 2);
  REFUSED(ENUM, "pass is -1: must be 0 to 1", p.pass = -1);
  REFUSED(ENUM, "similarity is 3", p.similarity = 3);
  REFUSED(ENUM, "math is 3", p.math = 3);
  REFUSED(ENUM, "scale_mode is 2", p.scale_mode = 2);
  REFUSED(ENUM, "use_bias is 2", p.use_bias = 2);
  REFUSED(ENUM, "use_head_scale is 2", p.use_head_scale = 2);
  REFUSED(ENUM, "use_sink is 2", p.use_sink = 2);
  REFUSED(ENUM, "alibi is 3", p.alibi = 3);
  REFUSED(ENUM, "causal is 2", p.causal = 2);
  REFUSED(ENUM, "offset_mode is 4", p.offset_mode = 4);
  REFUSED(ENUM, "prefix_mode is 3", p.prefix_mode = 3);
  REFUSED(ENUM, "q_length_mode is 2", p.q_length_mode = 2);
  REFUSED(ENUM, "k_length_mode is -7", p.k_length_mode = -7);
  REFUSED(ENUM, "keep_mask_kind is 3", p.keep_mask_kind = 3);
  REFUSED(ENUM, "block_mask_kind is 3", p.block_mask_kind = 3);
  REFUSED(ENUM, "block_mask_kind is 1", p.block_mask_kind = CLATTN_MASK_U8);
  REFUSED(ENUM, "rope is 3", p.rope = 3);
  REFUSED(ENUM, "use_positions is 2", p.use_positions = 2);
  REFUSED(ENUM, "stage is 4: must be 0 to 3", p.stage = 4);
  REFUSED(ENUM, "accumulate is 2", p.accumulate = 2);
  REFUSED(ENUM, "q dtype is 5", p.q.dtype = 5);
  REFUSED(ENUM, "o layout is 7", p.o.layout = 7);
  REFUSED(ENUM, "lse dtype is -1", p.lse.dtype = -1); /* also where the tensor is unused */
  REFUSED(ENUM, "rope_cos layout is 8", p.rope_cos.layout = 8);
  /* values of the enum that the tensor can't have */
  REFUSED(ENUM, "q dtype is i8", p.q.dtype = CLATTN_I8);
  REFUSED(ENUM, "o dtype is i4", p.o.dtype = CLATTN_I4);
  REFUSED(ENUM, "bias dtype is i8", p.use_bias = 1, p.bias.dtype = CLATTN_I8);
  REFUSED(ENUM, "lse dtype is f16", p.outputs = CLATTN_OUT_LSE, p.lse.dtype = CLATTN_F16);
  REFUSED(ENUM, "max_logit dtype is bf16", p.outputs = CLATTN_OUT_MAX_LOGIT, p.max_logit.dtype = CLATTN_BF16);
  REFUSED(ENUM, "scores dtype is f16", p.outputs = CLATTN_OUT_SCORES, p.scores.dtype = CLATTN_F16);
  REFUSED(ENUM, "keep_mask dtype is f16", p.keep_mask_kind = CLATTN_MASK_U8, p.keep_mask.dtype = CLATTN_F16);
  REFUSED(ENUM, "o layout is paged", p.o.layout = CLATTN_LAYOUT_PAGED);
  ACCEPTED(p.lse.dtype = CLATTN_F16);                     /* not used */
  REFUSED(ENUM, "stage is 9", p.stage = 9, p.q_len = -1); /* before sizes */
}

static void sizes_and_heads(void **state) {
  (void)state;
  REFUSED(SHAPE, "batch is -1", p.batch = -1);
  REFUSED(SHAPE, "q_heads is -2", p.q_heads = -2);
  REFUSED(SHAPE, "kv_heads is -3", p.kv_heads = -3);
  REFUSED(SHAPE, "q_len is -4", p.q_len = -4);
  REFUSED(SHAPE, "k_len is -5", p.k_len = -5);
  REFUSED(SHAPE, "qk_dim is 0: must be 1 to 2147483647", p.qk_dim = 0);
  REFUSED(SHAPE, "v_dim is -6", p.v_dim = -6);
  REFUSED(SHAPE, "k_len is 2147483648: must be 0 to 2147483647", p.k_len = INT64_C(2147483648));
  REFUSED(SHAPE, "batch is 9223372036854775807", p.batch = INT64_MAX);
  REFUSED(SHAPE, "kv_heads 3 does not divide q_heads 8", p.kv_heads = 3);
  REFUSED(SHAPE, "kv_heads 16 does not divide q_heads 8", p.kv_heads = 16);
  REFUSED(SHAPE, "kv_heads 2 does not divide q_heads 1", p.q_heads = 0);
  REFUSED(SHAPE, "kv_heads 3", p.kv_heads = 3, p.q.stride[0] = -1); /* before strides */
  ACCEPTED(p.kv_heads = 8);
  ACCEPTED(p.kv_heads = 1);
  ACCEPTED(p.batch = 0, p.q_heads = 0, p.kv_heads = 0, p.v_dim = 0);
  ACCEPTED(p.q_len = 0);
  ACCEPTED(p.k_len = 0, p.outputs = 15, p.use_bias = 1, p.keep_mask_kind = CLATTN_MASK_BITS);
  ACCEPTED(p.q_len = 2147483647, p.k_len = 2147483647);
}

static void strides(void **state) {
  (void)state;
  REFUSED(STRIDE, "q stride[2] is -4: strides must be >= 0", p.q = clattn_strided(CLATTN_F32, 192, 24, -4, 1));
  REFUSED(STRIDE, "k stride[0] is 1: must be 0 in layout bhsd", p.k.stride[0] = 1);
  REFUSED(STRIDE, "v stride[3] is -1: must be 0 in layout bshd_exact", p.v.layout = CLATTN_LAYOUT_BSHD_EXACT,
          p.v.stride[3] = -1);
  REFUSED(STRIDE, "bias stride[1] is -9", p.use_bias = 1, p.bias = clattn_strided(CLATTN_F32, 0, -9, 0, 1));
  REFUSED(STRIDE, "keep_mask stride[3] is 2: must be 0 or 1", p.keep_mask_kind = CLATTN_MASK_BITS,
          p.keep_mask = clattn_strided(CLATTN_F32, 0, 0, 9, 2));
  REFUSED(STRIDE, "lse stride[3] is 1: must be 0, lse has 3 axes", p.outputs = CLATTN_OUT_LSE,
          p.lse = clattn_strided(CLATTN_F32, 24, 3, 1, 1));
  REFUSED(STRIDE, "max_logit stride[2] is 1: must be 0", p.outputs = CLATTN_OUT_MAX_LOGIT,
          p.max_logit = clattn_strided(CLATTN_F32, 8, 1, 1, 0));
  ACCEPTED(p.q = clattn_strided(CLATTN_F32, 0, 0, 0, 0), p.k = p.q, p.v = p.q);
  ACCEPTED(p.q = clattn_strided(CLATTN_F32, 7, 1, 100, 9000));
  ACCEPTED(p.bias.stride[0] = -3); /* not used */
  ACCEPTED(p.keep_mask_kind = CLATTN_MASK_U8, p.keep_mask = clattn_strided(CLATTN_F32, 0, 0, 9, 2));
  ACCEPTED(p.keep_mask_kind = CLATTN_MASK_BITS, p.keep_mask = clattn_strided(CLATTN_F32, 0, 0, 9, 0));
}

static void outputs_may_not_overlap_themselves(void **state) {
  (void)state;
  REFUSED(STRIDE, "o stride[0] is 0 on an axis of size 2", p.o = clattn_strided(CLATTN_F32, 0, 12, 4, 1));
  REFUSED(STRIDE, "o stride[3] is 0 on an axis of size 4", p.o = clattn_strided(CLATTN_F32, 96, 12, 4, 0));
  REFUSED(STRIDE, "lse stride[1] is 0 on an axis of size 8", p.outputs = CLATTN_OUT_LSE,
          p.lse = clattn_strided(CLATTN_F32, 3, 0, 1, 0));
  REFUSED(STRIDE, "scores stride[2] is 0 on an axis of size 3", p.outputs = CLATTN_OUT_SCORES,
          p.scores = clattn_strided(CLATTN_F32, 120, 15, 0, 1));
  REFUSED(STRIDE, "max_logit stride[1] is 0 on an axis of size 8", p.outputs = CLATTN_OUT_MAX_LOGIT,
          p.max_logit = clattn_strided(CLATTN_F32, 1, 0, 0, 0));
  REFUSED(STRIDE, "o stride[2] is 3: must be above 3", p.o = clattn_strided(CLATTN_F32, 96, 12, 3, 1));
  REFUSED(STRIDE, "o stride[1] is 11: must be above 11", p.o = clattn_strided(CLATTN_F32, 96, 11, 4, 1));
  REFUSED(STRIDE, "o stride[0] is 95: must be above 95", p.o = clattn_strided(CLATTN_F32, 95, 12, 4, 1));
  REFUSED(STRIDE, "max_logit stride[0] is 7: must be above 7", p.outputs = CLATTN_OUT_MAX_LOGIT,
          p.max_logit = clattn_strided(CLATTN_F32, 7, 1, 0, 0));
  ACCEPTED(p.o = clattn_strided(CLATTN_F32, 96, 12, 4, 1));
  ACCEPTED(p.o = clattn_strided(CLATTN_F32, 1, 2, 16, 48));             /* any order of axes */
  ACCEPTED(p.o = clattn_strided(CLATTN_F32, 0, 12, 4, 1), p.batch = 1); /* nothing to collide with */
  ACCEPTED(p.o = clattn_strided(CLATTN_F32, 0, 0, 0, 0), p.q_len = 0);
  ACCEPTED(p.o = clattn_strided(CLATTN_F32, 0, 0, 0, 0), p.outputs = CLATTN_OUT_LSE); /* not used */
}

static void extents(void **state) {
  (void)state;
  const int64_t large = INT64_C(2147483647);
  REFUSED(OVERFLOW, "q of shape (2147483647, 2147483647, 3, 8)", p.batch = large, p.q_heads = large, p.kv_heads = 0);
  REFUSED(OVERFLOW, "k of shape (1, 2, 5, 8)", p.batch = 1,
          p.k = clattn_strided(CLATTN_F32, 0, INT64_MAX / 4, 8, 1)); /* 2^63 is passed in bytes only */
  REFUSED(OVERFLOW, "v of shape", p.v = clattn_strided(CLATTN_F32, 1, 1, INT64_MAX, 1));
  REFUSED(OVERFLOW, "scores of shape (1, 8, 2147483647, 2147483647)", p.batch = 1, p.q_len = large, p.k_len = large,
          p.outputs = CLATTN_OUT_SCORES);
  ACCEPTED(p.batch = 1, p.q_len = large, p.k_len = large, p.outputs = CLATTN_OUT_O | CLATTN_OUT_LSE);
  ACCEPTED(p.batch = 1, p.k = clattn_strided(CLATTN_F32, 0, INT64_MAX / 4 - 64, 8, 1));
  ACCEPTED(p.batch = 1, p.k = clattn_strided(CLATTN_F32, INT64_MAX, 40, 8, 1)); /* an axis of one element */
  REFUSED(OVERFLOW, "k of shape", p.k = clattn_strided(CLATTN_F32, INT64_MAX, 40, 8, 1), p.softcap = -1); /* scalars */
}

static void alignment(void **state) {
  (void)state;
  REFUSED(ALIGNMENT, "alignment is 3", p.alignment = 3);
  REFUSED(ALIGNMENT, "alignment is 8192", p.alignment = 8192);
  REFUSED(ALIGNMENT, "alignment is 4294967295", p.alignment = UINT32_MAX);
  ACCEPTED(p.alignment = 16);
  ACCEPTED(p.alignment = 1);
  REFUSED(ALIGNMENT, "v stride[1] is 20 elements of 4 bytes: not a multiple of the promised alignment 32",
          p.alignment = 32);
  REFUSED(ALIGNMENT, "q stride[1] is 26", p.alignment = 16, p.q = clattn_strided(CLATTN_F32, 208, 26, 8, 1));
  ACCEPTED(p.alignment = 16, p.q = clattn_strided(CLATTN_F32, 208, 28, 8, 1));
  ACCEPTED(p.alignment = 16, p.q = clattn_strided(CLATTN_F32, 13, 28, 8, 1), p.batch = 1); /* never stepped */
  ACCEPTED(p.alignment = 16, p.q = clattn_strided(CLATTN_F32, 208, 28, 8, 3));             /* the element's stride */
  ACCEPTED(p.alignment = 16, p.outputs = 15, p.use_bias = 1, p.keep_mask_kind = CLATTN_MASK_U8); /* q, k, v, o alone */
}

static void scalars(void **state) {
  (void)state;
  REFUSED(VALUE, "scale is nan", p.scale_mode = CLATTN_SCALE_VALUE, p.scale = NAN);
  REFUSED(VALUE, "scale is inf: must be finite", p.scale_mode = CLATTN_SCALE_VALUE, p.scale = INFINITY);
  REFUSED(VALUE, "scale is -inf", p.scale_mode = CLATTN_SCALE_VALUE, p.scale = -INFINITY);
  REFUSED(VALUE, "softcap is -1: must be finite and > 0", p.softcap = -1.0f);
  REFUSED(VALUE, "softcap is inf", p.softcap = INFINITY);
  REFUSED(VALUE, "softcap is nan", p.softcap = NAN);
  REFUSED(VALUE, "window_left is -1: must be >= 0", p.window = CLATTN_WINDOW_LEFT, p.window_left = -1);
  REFUSED(VALUE, "window_right is -2: must be >= 0", p.window = CLATTN_WINDOW_BOTH, p.window_right = -2);
  REFUSED(VALUE, "chunk is -3", p.chunk = -3);
  REFUSED(VALUE, "dropout is 1: must be >= 0 and < 1", p.dropout = 1.0f);
  REFUSED(VALUE, "dropout is -0.5", p.dropout = -0.5f);
  REFUSED(VALUE, "dropout is nan", p.dropout = NAN);
  ACCEPTED(p.scale_mode = CLATTN_SCALE_VALUE, p.scale = 0.0f);
  ACCEPTED(p.scale_mode = CLATTN_SCALE_VALUE, p.scale = -3.5f);
  ACCEPTED(p.scale = NAN); /* not read */
  ACCEPTED(p.softcap = FLT_MIN);
  ACCEPTED(p.window = CLATTN_WINDOW_LEFT, p.window_left = INT64_MAX, p.window_right = -1);
  ACCEPTED(p.window_left = -5);
  REFUSED(VALUE, "offset is -2147483648: must be within", p.offset_mode = CLATTN_OFFSET_VALUE, p.offset = INT32_MIN);
  ACCEPTED(p.offset_mode = CLATTN_OFFSET_VALUE, p.offset = -INT32_MAX, p.causal = 1);
  ACCEPTED(p.offset = INT64_MIN); /* not read */
  ACCEPTED(p.offset_mode = CLATTN_OFFSET_PER_BATCH, p.q_length_mode = 1, p.k_length_mode = 1);
  REFUSED(VALUE, "softcap", p.softcap = -1.0f, p.alibi = CLATTN_ALIBI_SIGNED); /* wrong before what comes later */
}

static void what_is_not_supported_yet(void **state) {
  (void)state;
  REFUSED(NOT_SUPPORTED, "pass backward is not supported yet", p.pass = CLATTN_BACKWARD);
  REFUSED(NOT_SUPPORTED, "gradients is", p.gradients = CLATTN_GRAD_FROM_LSE);
  REFUSED(NOT_SUPPORTED, "accumulate is", p.accumulate = 1);
  REFUSED(NOT_SUPPORTED, "similarity cosine is", p.similarity = CLATTN_COSINE);
  REFUSED(NOT_SUPPORTED, "similarity additive is", p.similarity = CLATTN_ADDITIVE);
  REFUSED(NOT_SUPPORTED, "math half is", p.math = CLATTN_MATH_HALF);
  REFUSED(NOT_SUPPORTED, "math tf32 is", p.math = CLATTN_MATH_TF32);
  REFUSED(NOT_SUPPORTED, "flags batch_invariant is", p.flags = CLATTN_BATCH_INVARIANT);
  REFUSED(NOT_SUPPORTED, "use_head_scale is", p.use_head_scale = 1);
  REFUSED(NOT_SUPPORTED, "use_sink is", p.use_sink = 1);
  REFUSED(NOT_SUPPORTED, "alibi is not supported yet", p.alibi = CLATTN_ALIBI_SYMMETRIC);
  REFUSED(NOT_SUPPORTED, "prefix is", p.prefix_mode = CLATTN_PREFIX_VALUE);
  REFUSED(NOT_SUPPORTED, "chunk is", p.chunk = 4);
  REFUSED(NOT_SUPPORTED, "block_mask is", p.block_mask_kind = CLATTN_MASK_BITS);
  REFUSED(NOT_SUPPORTED, "rope is", p.rope = CLATTN_ROPE_HALF);
  REFUSED(NOT_SUPPORTED, "use_positions is", p.use_positions = 1);
  REFUSED(NOT_SUPPORTED, "hook is", p.hook = (const clattn_hook *)(const void *)&p);
  REFUSED(NOT_SUPPORTED, "dropout is", p.dropout = 0.5f);
  REFUSED(NOT_SUPPORTED, "q layout packed is", p.q.layout = CLATTN_LAYOUT_PACKED);
  REFUSED(NOT_SUPPORTED, "k layout paged is", p.k.layout = CLATTN_LAYOUT_PAGED, p.alignment = 16);
  REFUSED(NOT_SUPPORTED, "q dtype f16 is not supported yet", p.q.dtype = CLATTN_F16);
  REFUSED(NOT_SUPPORTED, "k dtype i4 is", p.k.dtype = CLATTN_I4, p.alignment = 16);
  REFUSED(NOT_SUPPORTED, "v dtype i8 is", p.v.dtype = CLATTN_I8);
  REFUSED(NOT_SUPPORTED, "o dtype bf16 is", p.o.dtype = CLATTN_BF16);
  REFUSED(NOT_SUPPORTED, "bias dtype f16 is", p.use_bias = 1, p.bias.dtype = CLATTN_F16);
  ACCEPTED(p.bias.dtype = CLATTN_F16);
  ACCEPTED(p.v.dtype = p.o.dtype = CLATTN_F16, p.outputs = CLATTN_OUT_LSE); /* neither is used */
}

/* Fields of what comes later count as wishes even where nothing asks for them: ignoring them would be silent. */
static void fields_that_nothing_reads_yet(void **state) {
  (void)state;
  REFUSED(NOT_SUPPORTED, "total_q or total_k is", p.total_q = 1);
  REFUSED(NOT_SUPPORTED, "total_q or total_k is", p.total_k = -1);
  REFUSED(NOT_SUPPORTED, "page_size is", p.num_pages = 9);
  REFUSED(NOT_SUPPORTED, "page_size is", p.max_pages = 9);
  REFUSED(NOT_SUPPORTED, "page_size is", p.page_size = 16);
  REFUSED(NOT_SUPPORTED, "block_q or block_k is", p.block_q = 1);
  REFUSED(NOT_SUPPORTED, "block_q or block_k is", p.block_k = 64);
  REFUSED(NOT_SUPPORTED, "prefix is", p.prefix = 4);
  REFUSED(NOT_SUPPORTED, "rope_dim is", p.rope_dim = 8);
  const struct {
    const char *name;
    size_t offset;
  } tensors[] = {
#define TENSOR(field) {"tensor " #field " is not supported yet", offsetof(clattn_problem, field)}
      TENSOR(head_scale), TENSOR(sink),     TENSOR(alibi_slopes), TENSOR(add_w), TENSOR(block_mask), TENSOR(k_scale),
      TENSOR(v_scale),    TENSOR(rope_cos), TENSOR(rope_sin),     TENSOR(d_o),   TENSOR(d_lse),      TENSOR(d_q),
      TENSOR(d_k),        TENSOR(d_v),      TENSOR(d_bias),       TENSOR(d_sink)
#undef TENSOR
  };
  for (size_t i = 0; i < LENGTH(tensors); i++) {
    clattn_problem p = base();
    clattn_tensor *const tensor = (clattn_tensor *)(void *)((char *)&p + tensors[i].offset);
    tensor->dtype = CLATTN_F16;
    refused(__FILE__, __LINE__, &p, CLATTN_ERROR_NOT_SUPPORTED, tensors[i].name);
    *tensor = clattn_strided(CLATTN_F32, 0, 0, 0, 0);
    refused(__FILE__, __LINE__, &p, CLATTN_ERROR_NOT_SUPPORTED, tensors[i].name);
    memset(tensor, 0, sizeof *tensor);
    tensor->stride[3] = 1;
    refused(__FILE__, __LINE__, &p, CLATTN_ERROR_NOT_SUPPORTED, tensors[i].name);
  }
}

static void everything_of_this_release_at_once(void **state) {
  (void)state;
  ACCEPTED(p.scale_mode = CLATTN_SCALE_VALUE, p.scale = -0.5f, p.softcap = 30.0f, p.use_bias = 1, p.causal = 1,
           p.offset_mode = CLATTN_OFFSET_BOTTOM_RIGHT, p.window = CLATTN_WINDOW_BOTH, p.window_left = 2,
           p.q_length_mode = CLATTN_LENGTH_PER_BATCH, p.k_length_mode = CLATTN_LENGTH_PER_BATCH,
           p.keep_mask_kind = CLATTN_MASK_BITS, p.outputs = 15, p.stage = CLATTN_STAGE_WEIGHTS,
           p.q.layout = CLATTN_LAYOUT_BSHD, p.k.layout = CLATTN_LAYOUT_BHSD_EXACT,
           p.o.layout = CLATTN_LAYOUT_BSHD_EXACT, p.lse.layout = CLATTN_LAYOUT_BSHD);
}

/* ---- defaults, shapes, strides, extents ------------------------------------------------------------------------ */

static void defaults(void **state) {
  clattn_problem p, r;
  (void)state;
  memset(&p, 0xa5, sizeof p);
  clattn_problem_init(&p);
  assert_int_equal(p.struct_size, sizeof p);
  for (size_t i = sizeof p.struct_size; i < sizeof p; i++)
    assert_int_equal(((unsigned char *)&p)[i], 0);
  clattn_problem_init(NULL);

  p.qk_dim = 64;
  clattni_problem_resolve(&p, &r);
  assert_int_equal(r.batch, 1);
  assert_int_equal(r.q_heads, 1);
  assert_int_equal(r.kv_heads, 1);
  assert_int_equal(r.v_dim, 64);
  assert_int_equal(r.outputs, CLATTN_OUT_O);
  assert_int_equal(r.scale_mode, CLATTN_SCALE_VALUE);
  assert_true(r.scale == 0.125f);

  p.q_heads = 6;
  p.qk_dim = 3;
  p.v_dim = 5;
  p.outputs = CLATTN_OUT_LSE;
  clattni_problem_resolve(&p, &r);
  assert_int_equal(r.kv_heads, 6);
  assert_int_equal(r.v_dim, 5);
  assert_int_equal(r.outputs, CLATTN_OUT_LSE);
  assert_true(r.scale == (float)0.57735026918962576451);
  p.scale_mode = CLATTN_SCALE_VALUE; /* zero is a scale of its own */
  clattni_problem_resolve(&p, &r);
  assert_true(r.scale == 0.0f);
  p.scale_mode = CLATTN_SCALE_DEFAULT;
  p.similarity = CLATTN_COSINE;
  clattni_problem_resolve(&p, &p); /* in place */
  assert_true(p.scale == 1.0f);
}

static void a_strided_tensor_in_one_call(void **state) {
  (void)state;
  const clattn_tensor t = clattn_strided(CLATTN_BF16, 1, 2, 3, 4);
  const clattn_tensor want = {CLATTN_BF16, CLATTN_LAYOUT_STRIDED, {1, 2, 3, 4}, {0, 0}};
  assert_memory_equal(&t, &want, sizeof t);
}

static void shapes_and_strides(void **state) {
  static const struct {
    clattni_slot slot;
    clattn_layout layout;
    int64_t shape[4], stride[4];
  } rows[] = {
      /* bounds (2, 3, 5), sizes (1, 2, 4) */
      {CLATTNI_Q, CLATTN_LAYOUT_BHSD, {1, 8, 2, 8}, {192, 24, 8, 1}},
      {CLATTNI_Q, CLATTN_LAYOUT_BSHD, {1, 8, 2, 8}, {192, 8, 64, 1}},
      {CLATTNI_Q, CLATTN_LAYOUT_BHSD_EXACT, {1, 8, 2, 8}, {128, 16, 8, 1}},
      {CLATTNI_Q, CLATTN_LAYOUT_BSHD_EXACT, {1, 8, 2, 8}, {128, 8, 64, 1}},
      {CLATTNI_Q, CLATTN_LAYOUT_STRIDED, {1, 8, 2, 8}, {7, 9, 0, 11}},
      {CLATTNI_K, CLATTN_LAYOUT_BHSD, {1, 2, 4, 8}, {80, 40, 8, 1}},
      {CLATTNI_V, CLATTN_LAYOUT_BSHD_EXACT, {1, 2, 4, 4}, {32, 4, 8, 1}},
      {CLATTNI_O, CLATTN_LAYOUT_BHSD, {1, 8, 2, 4}, {96, 12, 4, 1}},
      {CLATTNI_LSE, CLATTN_LAYOUT_BHSD, {1, 8, 2, 1}, {24, 3, 1, 0}},
      {CLATTNI_LSE, CLATTN_LAYOUT_BSHD, {1, 8, 2, 1}, {24, 1, 8, 0}},
      {CLATTNI_LSE, CLATTN_LAYOUT_BHSD_EXACT, {1, 8, 2, 1}, {16, 2, 1, 0}},
      {CLATTNI_SCORES, CLATTN_LAYOUT_BHSD, {1, 8, 2, 4}, {120, 15, 5, 1}},
      {CLATTNI_BIAS, CLATTN_LAYOUT_BSHD_EXACT, {1, 8, 2, 4}, {64, 4, 32, 1}},
      {CLATTNI_MAX_LOGIT, CLATTN_LAYOUT_BHSD, {1, 8, 1, 1}, {8, 1, 0, 0}},
      {CLATTNI_MAX_LOGIT, CLATTN_LAYOUT_BSHD_EXACT, {1, 8, 1, 1}, {8, 1, 0, 0}},
      {CLATTNI_KEEP_MASK, CLATTN_LAYOUT_BHSD, {1, 8, 2, 4}, {120, 15, 5, 1}},
  };
  const clattni_sizes sizes = {1, 2, 4};
  (void)state;
  for (size_t i = 0; i < LENGTH(rows); i++) {
    clattn_problem p = base();
    int64_t shape[4], stride[4];
    clattn_tensor *tensor = (clattn_tensor *)(uintptr_t)clattni_slot_tensor(&p, rows[i].slot);
    p.keep_mask_kind = CLATTN_MASK_U8;
    tensor->layout = rows[i].layout;
    if (rows[i].layout == CLATTN_LAYOUT_STRIDED)
      memcpy(tensor->stride, rows[i].stride, sizeof tensor->stride);
    clattni_slot_shape(&p, &sizes, rows[i].slot, shape);
    clattni_slot_strides(&p, &sizes, rows[i].slot, stride);
    if (memcmp(shape, rows[i].shape, sizeof shape) != 0 || memcmp(stride, rows[i].stride, sizeof stride) != 0)
      fail_msg("row %zu", i);
  }
}

static void masks_of_bits_count_words(void **state) {
  clattn_problem p = base();
  int64_t shape[4], stride[4];
  (void)state;
  p.k_len = 65;
  p.keep_mask_kind = CLATTN_MASK_BITS;
  const clattni_sizes sizes = {2, 3, 64};
  clattni_slot_shape(&p, &sizes, CLATTNI_KEEP_MASK, shape);
  clattni_slot_strides(&p, &sizes, CLATTNI_KEEP_MASK, stride);
  assert_int_equal(shape[3], 2);
  assert_int_equal(stride[2], 3); /* of the bound */
  assert_int_equal(clattni_slot_element_bytes(&p, CLATTNI_KEEP_MASK), 4);
  p.keep_mask_kind = CLATTN_MASK_U8;
  assert_int_equal(clattni_slot_element_bytes(&p, CLATTNI_KEEP_MASK), 1);
  p.keep_mask_kind = CLATTN_MASK_BITS;
  p.keep_mask = clattn_strided(CLATTN_F32, 0, 0, 1, 0);
  clattni_slot_strides(&p, &sizes, CLATTNI_KEEP_MASK, stride);
  assert_int_equal(stride[3], 0);
}

static void slots(void **state) {
  static const char *const names[] = {"q", "k", "v", "o", "lse", "scores", "max_logit", "bias", "keep_mask"};
  static const uint32_t used[][2] = {/* outputs -> bits of the slots used */
                                     {0, 0x0f},
                                     {CLATTN_OUT_O, 0x0f},
                                     {CLATTN_OUT_LSE, 0x13},
                                     {CLATTN_OUT_SCORES, 0x23},
                                     {CLATTN_OUT_MAX_LOGIT, 0x43}};
  clattn_problem p = base();
  (void)state;
  for (clattni_slot slot = 0; slot < CLATTNI_SLOTS; slot++) {
    assert_string_equal(clattni_slot_name(slot), names[slot]);
    assert_int_equal(clattni_slot_is_output(slot), slot >= CLATTNI_O && slot <= CLATTNI_MAX_LOGIT);
    for (size_t i = 0; i < LENGTH(used); i++) {
      p.outputs = used[i][0];
      assert_int_equal(clattni_slot_used(&p, slot), (used[i][1] >> slot) & 1);
    }
  }
  p.use_bias = 1;
  p.keep_mask_kind = CLATTN_MASK_U8;
  assert_true(clattni_slot_used(&p, CLATTNI_BIAS) && clattni_slot_used(&p, CLATTNI_KEEP_MASK));
  assert_int_equal(clattni_slot_element_bytes(&p, CLATTNI_Q), 4);
  p.q.dtype = CLATTN_BF16;
  assert_int_equal(clattni_slot_element_bytes(&p, CLATTNI_Q), 2);
}

static void extent_counts_to_one_past_the_last(void **state) {
  static const struct {
    int64_t shape[4], stride[4], elements;
    int fits;
  } rows[] = {
      {{2, 3, 4, 5}, {60, 20, 5, 1}, 120, 1},
      {{2, 3, 4, 5}, {0, 0, 0, 0}, 1, 1},
      {{2, 3, 0, 5}, {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX}, 0, 1},
      {{1, 1, 1, 1}, {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX}, 1, 1},
      {{2, 1, 1, 1}, {INT64_MAX - 1, 0, 0, 0}, INT64_MAX, 1},
      {{2, 1, 1, 1}, {INT64_MAX, 0, 0, 0}, 0, 0},
      {{2, 2, 1, 1}, {INT64_MAX / 2, INT64_MAX / 2 + 1, 0, 0}, 0, 0},
      {{3, 1, 1, 1}, {INT64_MAX / 2 + 1, 0, 0, 0}, 0, 0},
  };
  (void)state;
  for (size_t i = 0; i < LENGTH(rows); i++) {
    int64_t elements;
    assert_int_equal(clattni_extent(rows[i].shape, rows[i].stride, &elements), rows[i].fits);
    if (rows[i].fits)
      assert_true(elements == rows[i].elements);
  }
}

/* ---- rules ----------------------------------------------------------------------------------------------------- */

/* The rules as their definitions say, for numbers that can't overflow. */
static int rule_keeps(const clattn_problem *p, const clattni_row_rules *rules, int64_t i, int64_t j) {
  const int64_t at = i + rules->offset;
  if (i >= rules->q_len || j >= rules->k_len)
    return 0;
  if (p->causal && j > at)
    return 0;
  if ((p->window & CLATTN_WINDOW_LEFT) && j < at - p->window_left)
    return 0;
  return !((p->window & CLATTN_WINDOW_RIGHT) && j > at + p->window_right);
}

static void random_rules(clattn_problem *p) {
  p->causal = (uint32_t)pick(0, 1);
  p->window = (uint32_t)pick(0, 3);
  p->window_left = pick(0, 6);
  p->window_right = pick(0, 6);
  p->offset_mode = (clattn_offset_mode)pick(0, 3);
  p->offset = pick(-12, 12);
}

static void intervals_are_the_rules(void **state) {
  (void)state;
  int64_t kept = 0;
  for (int round = 0; round < 3000; round++) {
    clattn_problem p = base();
    random_rules(&p);
    const clattni_row_rules rules = {pick(0, 9), pick(0, 9), pick(-12, 12)};
    for (int64_t i = 0; i < 10; i++) {
      int64_t lo, hi;
      clattni_row_interval(&p, &rules, i, &lo, &hi);
      assert_true(lo >= 0 && lo <= hi && hi <= rules.k_len);
      for (int64_t j = 0; j < 10; j++) {
        assert_int_equal(j >= lo && j < hi, rule_keeps(&p, &rules, i, j));
        kept += j >= lo && j < hi;
      }
    }
  }
  assert_true(kept > 10000);
}

static void intervals_far_out(void **state) {
  static const struct {
    uint32_t causal, window;
    int64_t left, right, offset, row, lo, hi;
  } rows[] = {
      {1, 0, 0, 0, INT64_MAX, 7, 0, 10},
      {1, 0, 0, 0, INT64_MIN, 7, 0, 0},
      {0, 3, INT64_MAX, INT64_MAX, 0, 7, 0, 10},
      {0, 3, INT64_MAX, INT64_MAX, INT64_MIN, 7, 0, 7},  /* at most p + 2^63 - 1 = 6 */
      {0, 3, INT64_MAX, INT64_MAX, INT64_MAX, 7, 7, 10}, /* at least p - (2^63 - 1) = 7 */
      {0, 3, INT64_MAX - 1, 0, INT64_MAX, 7, 8, 10},
      {0, 1, 0, 0, INT64_MAX, 7, 0, 0},
      {0, 2, 0, 0, INT64_MIN, 7, 0, 0},
      {1, 3, INT64_MAX, INT64_MAX, INT64_MIN + 1, 7, 0, 0},
      {0, 2, 0, INT64_MAX, INT64_MIN + 1, 7, 0, 8},
  };
  (void)state;
  for (size_t i = 0; i < LENGTH(rows); i++) {
    clattn_problem p = base();
    const clattni_row_rules rules = {100, 10, rows[i].offset};
    int64_t lo, hi;
    p.causal = rows[i].causal;
    p.window = rows[i].window;
    p.window_left = rows[i].left;
    p.window_right = rows[i].right;
    clattni_row_interval(&p, &rules, rows[i].row, &lo, &hi);
    if (lo != rows[i].lo || hi != rows[i].hi)
      fail_msg("row %zu: %" PRId64 " to %" PRId64, i, lo, hi);
  }
}

static void offsets(void **state) {
  clattn_problem p = base();
  (void)state;
  assert_int_equal(clattni_offset(&p, 3, 10, 0, 99), 0);
  p.offset_mode = CLATTN_OFFSET_BOTTOM_RIGHT;
  assert_int_equal(clattni_offset(&p, 3, 10, 0, 99), 7);
  assert_int_equal(clattni_offset(&p, 10, 3, 0, 99), -7);
  p.offset_mode = CLATTN_OFFSET_VALUE;
  p.offset = -4;
  assert_int_equal(clattni_offset(&p, 3, 10, 0, 99), -4);
  assert_int_equal(clattni_offset(&p, 3, 10, 1, 99), 99);
  p.offset_mode = CLATTN_OFFSET_PER_BATCH;
  assert_int_equal(clattni_offset(&p, 3, 10, 1, 99), 99);
}

static void pairs_are_counted_exactly(void **state) {
  (void)state;
  for (int round = 0; round < 3000; round++) {
    clattn_problem p = base();
    random_rules(&p);
    const clattni_sizes sizes = {pick(0, 3), pick(0, 20), pick(0, 20)};
    const clattni_row_rules rules = {sizes.q_len, sizes.k_len, clattni_offset(&p, sizes.q_len, sizes.k_len, 0, 0)};
    uint64_t pairs = 0;
    for (int64_t i = 0; i < sizes.q_len; i++) {
      for (int64_t j = 0; j < sizes.k_len; j++)
        pairs += (uint64_t)rule_keeps(&p, &rules, i, j);
    }
    assert_true(clattni_count_pairs(&p, &sizes) == pairs * 8 * (uint64_t)sizes.batch);
  }
  clattn_problem p = base();
  const clattni_sizes large = {1, 1000000, 1000000}, longest = {1, 2147483647, 2147483647},
                      largest = {2147483647, 2147483647, 2147483647};
  p.q_heads = 1;
  assert_true(clattni_count_pairs(&p, &large) == UINT64_C(1000000000000));
  p.causal = 1;
  assert_true(clattni_count_pairs(&p, &large) == UINT64_C(500000500000));
  p.window = CLATTN_WINDOW_LEFT;
  p.window_left = 9;
  assert_true(clattni_count_pairs(&p, &large) == UINT64_C(10000000) - 45);
  assert_true(clattni_count_pairs(&p, &longest) == UINT64_C(21474836470) - 45);
  p.window = 0;
  assert_true(clattni_count_pairs(&p, &longest) == UINT64_C(2147483647) * UINT64_C(1073741824));
  assert_true(clattni_count_pairs(&p, &largest) == UINT64_MAX); /* saturates */
  p.offset_mode = CLATTN_OFFSET_VALUE;
  p.offset = INT64_MIN;
  assert_true(clattni_count_pairs(&p, &largest) == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_struct_itself),
      cmocka_unit_test(reserved_words),
      cmocka_unit_test(enums),
      cmocka_unit_test(sizes_and_heads),
      cmocka_unit_test(strides),
      cmocka_unit_test(outputs_may_not_overlap_themselves),
      cmocka_unit_test(extents),
      cmocka_unit_test(alignment),
      cmocka_unit_test(scalars),
      cmocka_unit_test(what_is_not_supported_yet),
      cmocka_unit_test(fields_that_nothing_reads_yet),
      cmocka_unit_test(everything_of_this_release_at_once),
      cmocka_unit_test(defaults),
      cmocka_unit_test(a_strided_tensor_in_one_call),
      cmocka_unit_test(shapes_and_strides),
      cmocka_unit_test(masks_of_bits_count_words),
      cmocka_unit_test(slots),
      cmocka_unit_test(extent_counts_to_one_past_the_last),
      cmocka_unit_test(intervals_are_the_rules),
      cmocka_unit_test(intervals_far_out),
      cmocka_unit_test(offsets),
      cmocka_unit_test(pairs_are_counted_exactly),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
