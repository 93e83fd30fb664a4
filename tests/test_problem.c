/* SPDX-License-Identifier: Apache-2.0 */
/* Problems without a device: every refusal and its message, defaults, shapes, strides and extents. */
#include "test_problem.h"

clattn_problem base(void) {
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

clattn_problem packed(void) {
  clattn_problem p = base();
  p.q.layout = p.o.layout = p.lse.layout = p.k.layout = p.v.layout = CLATTN_LAYOUT_PACKED;
  p.total_q = 6;
  p.total_k = 10;
  return p;
}

clattn_problem paged(void) {
  clattn_problem p = base();
  p.k.layout = p.v.layout = CLATTN_LAYOUT_PAGED;
  p.k_length_mode = CLATTN_LENGTH_PER_BATCH;
  p.num_pages = 7;
  p.max_pages = 2;
  p.page_size = 4;
  return p;
}

clattn_tensor *tensor_of(clattn_problem *p, clattni_slot slot) {
  return (clattn_tensor *)(uintptr_t)clattni_slot_tensor(p, slot);
}

/* ---- refusals -------------------------------------------------------------------------------------------------- */

void refused(const char *file, int line, const clattn_problem *p, clattn_status status, const char *text) {
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

void accepted(const char *file, int line, const clattn_problem *p) {
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
  REFUSED(RESERVED, "reserved[13] is 2", p.reserved[13] = 2);
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
  REFUSED(ENUM, "sink dtype is f16: not a type that sink can have", p.use_sink = 1, p.sink.dtype = CLATTN_F16);
  REFUSED(ENUM, "alibi_slopes dtype is bf16", p.alibi = CLATTN_ALIBI_SIGNED, p.alibi_slopes.dtype = CLATTN_BF16);
  REFUSED(ENUM, "block_mask dtype is f16", p.block_mask_kind = CLATTN_MASK_BITS, p.block_mask.dtype = CLATTN_F16);
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
  ACCEPTED(p.q_len = 2147483647, p.k_len = 2147479551);
  REFUSED(SHAPE, "k_len is 2147479552: must be 0 to 2147479551", p.k_len = 2147479552);
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
  REFUSED(STRIDE, "lse stride[3] is 1: must be 0, lse has no element axis", p.outputs = CLATTN_OUT_LSE,
          p.lse = clattn_strided(CLATTN_F32, 24, 3, 1, 1));
  REFUSED(STRIDE, "max_logit stride[2] is 1: must be 0, max_logit has no row axis", p.outputs = CLATTN_OUT_MAX_LOGIT,
          p.max_logit = clattn_strided(CLATTN_F32, 8, 1, 1, 0));
  REFUSED(STRIDE, "sink stride[0] is 1: must be 0, sink has no batch axis", p.use_sink = 1,
          p.sink = clattn_strided(CLATTN_F32, 1, 1, 0, 0));
  REFUSED(STRIDE, "alibi_slopes stride[3] is 1: must be 0, alibi_slopes has no element axis",
          p.alibi = CLATTN_ALIBI_SYMMETRIC, p.alibi_slopes = clattn_strided(CLATTN_F32, 8, 1, 0, 1));
  REFUSED(STRIDE, "block_mask stride[3] is 2: must be 0 or 1", p.block_mask_kind = CLATTN_MASK_BITS,
          p.block_q = p.block_k = 2, p.block_mask = clattn_strided(CLATTN_F32, 0, 0, 1, 2));
  ACCEPTED(p.use_sink = 1, p.sink = clattn_strided(CLATTN_F32, 0, 0, 0, 0));
  ACCEPTED(p.use_sink = 1, p.sink = clattn_strided(CLATTN_F32, 0, 3, 0, 0));
  ACCEPTED(p.alibi = CLATTN_ALIBI_SIGNED, p.alibi_slopes = clattn_strided(CLATTN_F32, 9, 1, 0, 0));
  ACCEPTED(p.block_mask_kind = CLATTN_MASK_BITS, p.block_q = p.block_k = 2,
           p.block_mask = clattn_strided(CLATTN_F32, 0, 0, 1, 0));
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
  REFUSED(OVERFLOW, "scores of shape (1, 8, 2147483647, 2147479551)", p.batch = 1, p.q_len = large,
          p.k_len = large - 4096, p.outputs = CLATTN_OUT_SCORES);
  ACCEPTED(p.batch = 1, p.q_len = large, p.k_len = large - 4096, p.outputs = CLATTN_OUT_O | CLATTN_OUT_LSE);
  ACCEPTED(p.batch = 1, p.k = clattn_strided(CLATTN_F32, 0, INT64_MAX / 4 - 64, 8, 1));
  ACCEPTED(p.batch = 1, p.k = clattn_strided(CLATTN_F32, INT64_MAX, 40, 8, 1)); /* an axis of one element */
  REFUSED(OVERFLOW, "k of shape", p.k = clattn_strided(CLATTN_F32, INT64_MAX, 40, 8, 1), p.softcap = -1); /* scalars */
  REFUSED(OVERFLOW, "sink of shape (1, 8, 1, 1)", p.use_sink = 1,
          p.sink = clattn_strided(CLATTN_F32, 0, large << 31, 0, 0));
  REFUSED(OVERFLOW, "alibi_slopes of shape (2, 8, 1, 1)", p.alibi = CLATTN_ALIBI_SIGNED,
          p.alibi_slopes = clattn_strided(CLATTN_F32, large << 31, 1, 0, 0));
  REFUSED(OVERFLOW, "block_mask of shape (2, 8, 2, 1)", p.block_mask_kind = CLATTN_MASK_BITS, p.block_q = 2,
          p.block_k = 1, p.block_mask = clattn_strided(CLATTN_F32, 0, 0, large << 31, 1));
  REFUSED(OVERFLOW, "q of shape (1, 8, 6, 8)", p = packed(), p.q.stride[2] = large << 31, p.q.stride[3] = 1);
  REFUSED(OVERFLOW, "k of shape (1, 2147483647, 2147483647, 8)", p = packed(), p.total_k = large, p.q_heads = large,
          p.kv_heads = 0);
  REFUSED(OVERFLOW, "k of shape (2147483647, 2, 2147483647, 8)", p = paged(), p.num_pages = p.page_size = large);
  REFUSED(OVERFLOW, "v of shape (7, 2, 4, 4)", p = paged(), p.v.stride[0] = large << 31, p.v.stride[3] = 1);
  REFUSED(OVERFLOW, "page_table of shape (2147483647, 1, 1, 2147483647)", p = paged(), p.batch = p.max_pages = large);
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
  REFUSED(ALIGNMENT, "v stride[1] is 4 elements", p = packed(), p.alignment = 32);
  REFUSED(ALIGNMENT, "q stride[2] is 66", p = packed(), p.alignment = 16, p.q.stride[1] = 8, p.q.stride[2] = 66);
  REFUSED(ALIGNMENT, "k stride[0] is 66", p = paged(), p.alignment = 16, p.k.stride[0] = 66, p.k.stride[3] = 1);
  ACCEPTED(p = packed(), p.alignment = 16);
  ACCEPTED(p = paged(), p.alignment = 16);
  ACCEPTED(p.alignment = 16, p.use_sink = 1, p.sink = clattn_strided(CLATTN_F32, 0, 3, 0, 0));   /* q, k, v, o alone */
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
  ACCEPTED(p.chunk = INT64_MAX);
  REFUSED(VALUE, "prefix is -1: must be 0 to 2147483647", p.prefix_mode = CLATTN_PREFIX_VALUE, p.prefix = -1);
  REFUSED(VALUE, "prefix is 2147483648", p.prefix_mode = CLATTN_PREFIX_VALUE, p.prefix = INT64_C(2147483648));
  ACCEPTED(p.prefix_mode = CLATTN_PREFIX_VALUE, p.prefix = INT32_MAX);
  ACCEPTED(p.prefix_mode = CLATTN_PREFIX_VALUE);
  ACCEPTED(p.prefix_mode = CLATTN_PREFIX_PER_BATCH, p.prefix = -1); /* not read */
  ACCEPTED(p.prefix = -1);                                          /* not read */
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
  REFUSED(VALUE, "softcap", p.softcap = -1.0f, p.accumulate = 1); /* wrong before what comes later */
}

static void what_is_not_supported_yet(void **state) {
  (void)state;
  REFUSED(NOT_SUPPORTED, "pass backward is not supported yet", p.pass = CLATTN_BACKWARD);
  REFUSED(NOT_SUPPORTED, "gradients is", p.gradients = CLATTN_GRAD_FROM_LSE);
  REFUSED(NOT_SUPPORTED, "accumulate is", p.accumulate = 1);
  REFUSED(NOT_SUPPORTED, "dropout is", p.dropout = 0.5f);
}

/* Fields of what comes later count as wishes even where nothing asks for them: ignoring them would be silent. */
static void fields_that_nothing_reads_yet(void **state) {
  (void)state;
  const struct {
    const char *name;
    size_t offset;
  } tensors[] = {
#define TENSOR(field) {"tensor " #field " is not supported yet", offsetof(clattn_problem, field)}
      TENSOR(d_o), TENSOR(d_lse),  TENSOR(d_q),   TENSOR(d_k),
      TENSOR(d_v), TENSOR(d_bias), TENSOR(d_sink)
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

/* What an enum or a bit switches off does not count, whatever it holds. */
static void fields_that_are_switched_off(void **state) {
  (void)state;
  ACCEPTED(p.sink = clattn_strided(CLATTN_F16, -1, -1, -1, -1), p.alibi_slopes = p.sink, p.block_mask = p.sink);
  ACCEPTED(p.bias.dtype = CLATTN_I4, p.head_scale = p.add_w = clattn_strided(CLATTN_I8, -1, -1, -1, -1));
  ACCEPTED(p.k_scale = p.v_scale = clattn_strided(CLATTN_I8, -1, -1, -1, -1));
  ACCEPTED(p.v.dtype = CLATTN_I4, p.v_scale.dtype = p.o.dtype = CLATTN_I8, p.outputs = CLATTN_OUT_LSE);
  ACCEPTED(p.block_q = -4, p.block_k = INT64_MIN);
  ACCEPTED(p.sink.layout = CLATTN_LAYOUT_PAGED, p.bias.layout = CLATTN_LAYOUT_PACKED);
  ACCEPTED(p.lse.layout = CLATTN_LAYOUT_PACKED);
  ACCEPTED(p.rope_dim = p.rope_positions = -3, p.use_positions = 1,
           p.rope_cos = clattn_strided(CLATTN_I8, -1, 0, 0, 0));
  ACCEPTED(p.v.layout = CLATTN_LAYOUT_PAGED, p.o.layout = CLATTN_LAYOUT_PACKED, p.outputs = CLATTN_OUT_LSE);
}

static void everything_of_this_release_at_once(void **state) {
  (void)state;
#define EVERY_RULE                                                                                                     \
  p.flags = CLATTN_BATCH_INVARIANT, p.scale_mode = CLATTN_SCALE_VALUE, p.scale = -0.5f, p.softcap = 30.0f,             \
  p.use_bias = 1, p.use_sink = 1, p.alibi = CLATTN_ALIBI_SYMMETRIC, p.causal = 1,                                      \
  p.offset_mode = CLATTN_OFFSET_BOTTOM_RIGHT, p.window = CLATTN_WINDOW_BOTH, p.window_left = 2,                        \
  p.prefix_mode = CLATTN_PREFIX_VALUE, p.prefix = 2, p.chunk = 4, p.q_length_mode = CLATTN_LENGTH_PER_BATCH,           \
  p.k_length_mode = CLATTN_LENGTH_PER_BATCH, p.keep_mask_kind = CLATTN_MASK_BITS,                                      \
  p.block_mask_kind = CLATTN_MASK_BITS, p.block_q = 2, p.block_k = 3, p.outputs = 15, p.stage = CLATTN_STAGE_WEIGHTS,  \
  p.similarity = CLATTN_ADDITIVE, p.use_head_scale = 1, p.math = CLATTN_MATH_HALF, p.q.dtype = CLATTN_BF16,            \
  p.k.dtype = CLATTN_I4, p.v.dtype = CLATTN_I8, p.o.dtype = p.bias.dtype = p.scores.dtype = CLATTN_F16,                \
  p.k_scale.layout = p.k.layout, p.v_scale.layout = p.v.layout, p.v_scale.dtype = CLATTN_F16,                          \
  p.rope = CLATTN_ROPE_INTERLEAVED, p.use_positions = 1, p.rope_dim = 6,                                               \
  p.hook = (const clattn_hook *)(const void *)&p
  ACCEPTED(EVERY_RULE, p.q.layout = CLATTN_LAYOUT_BSHD, p.k.layout = CLATTN_LAYOUT_BHSD_EXACT,
           p.o.layout = CLATTN_LAYOUT_BSHD_EXACT, p.lse.layout = CLATTN_LAYOUT_BSHD);
  ACCEPTED(p = packed(), EVERY_RULE);
  ACCEPTED(p = paged(), EVERY_RULE);
  ACCEPTED(EVERY_RULE, p.q_len = p.k_len = 0);
#undef EVERY_RULE
}

/* ---- packed, paged, block masks ---------------------------------------------------------------------------------- */

static void layouts_that_a_tensor_can_have(void **state) {
  static const struct {
    clattni_slot slot;
    const char *text[2]; /* refused as packed, as paged */
  } rows[] = {
      {CLATTNI_Q, {NULL, "q layout is paged: only k, v and their scales can be paged"}},
      {CLATTNI_O, {NULL, "o layout is paged: only k, v and"}},
      {CLATTNI_LSE, {NULL, "lse layout is paged: only k, v and"}},
      {CLATTNI_SCORES,
       {"scores layout is packed: only q, k, v, o, lse and the scales of k and v can be packed",
        "scores layout is paged"}},
      {CLATTNI_MAX_LOGIT, {"max_logit layout is packed", "max_logit layout is paged"}},
      {CLATTNI_BIAS, {"bias layout is packed", "bias layout is paged"}},
      {CLATTNI_KEEP_MASK, {"keep_mask layout is packed", "keep_mask layout is paged"}},
      {CLATTNI_BLOCK_MASK, {"block_mask layout is packed", "block_mask layout is paged"}},
      {CLATTNI_ALIBI_SLOPES, {"alibi_slopes layout is packed", "alibi_slopes layout is paged"}},
      {CLATTNI_SINK, {"sink layout is packed", "sink layout is paged"}},
      {CLATTNI_HEAD_SCALE, {"head_scale layout is packed", "head_scale layout is paged"}},
      {CLATTNI_ADD_W, {"add_w layout is packed", "add_w layout is paged"}},
      {CLATTNI_ROPE_COS, {"rope_cos layout is packed", "rope_cos layout is paged"}},
      {CLATTNI_ROPE_SIN, {"rope_sin layout is packed", "rope_sin layout is paged"}},
  };
  (void)state;
  for (size_t i = 0; i < 2 * LENGTH(rows); i++) {
    clattn_problem p = base();
    if (rows[i / 2].text[i % 2] == NULL)
      continue;
    p.outputs = 15;
    p.use_bias = p.use_sink = p.use_head_scale = 1;
    p.similarity = CLATTN_ADDITIVE;
    p.alibi = CLATTN_ALIBI_SIGNED;
    p.keep_mask_kind = p.block_mask_kind = CLATTN_MASK_BITS;
    p.block_q = p.block_k = 2;
    p.rope = CLATTN_ROPE_HALF;
    accepted(__FILE__, __LINE__, &p);
    tensor_of(&p, rows[i / 2].slot)->layout = i % 2 == 0 ? CLATTN_LAYOUT_PACKED : CLATTN_LAYOUT_PAGED;
    refused(__FILE__, __LINE__, &p, CLATTN_ERROR_ENUM, rows[i / 2].text[i % 2]);
  }
}

static void packed_and_paged_together(void **state) {
  (void)state;
  ACCEPTED(p = packed());
  ACCEPTED(p = packed(), p.outputs = 15);
  REFUSED(SHAPE, "o layout is bhsd, q layout is packed: q, o and lse are packed together or not at all", p = packed(),
          p.o.layout = CLATTN_LAYOUT_BHSD);
  REFUSED(SHAPE, "lse layout is bhsd, q layout is packed", p = packed(), p.outputs = 3,
          p.lse.layout = CLATTN_LAYOUT_BHSD);
  REFUSED(SHAPE, "o layout is packed, q layout is bshd", p.q.layout = CLATTN_LAYOUT_BSHD,
          p.o.layout = CLATTN_LAYOUT_PACKED);
  REFUSED(SHAPE, "lse layout is packed, q layout is bhsd", p.outputs = CLATTN_OUT_LSE,
          p.lse.layout = CLATTN_LAYOUT_PACKED);
  ACCEPTED(p = packed(), p.outputs = CLATTN_OUT_LSE, p.o.layout = p.v.layout = CLATTN_LAYOUT_BHSD);

  REFUSED(SHAPE, "v layout is bhsd, k layout is packed: k and v are packed or paged together or not at all",
          p = packed(), p.v.layout = CLATTN_LAYOUT_BHSD);
  REFUSED(SHAPE, "v layout is paged, k layout is packed", p = packed(), p.v.layout = CLATTN_LAYOUT_PAGED);
  REFUSED(SHAPE, "v layout is packed, k layout is paged", p = paged(), p.v.layout = CLATTN_LAYOUT_PACKED);
  REFUSED(SHAPE, "v layout is paged, k layout is bhsd", p.v.layout = CLATTN_LAYOUT_PAGED);
  REFUSED(SHAPE, "v layout is bshd, k layout is paged", p = paged(), p.v.layout = CLATTN_LAYOUT_BSHD);

  ACCEPTED(p = packed(), p.k.layout = p.v.layout = CLATTN_LAYOUT_BHSD, p.total_k = 0);
  ACCEPTED(p = packed(), p.q.layout = p.o.layout = CLATTN_LAYOUT_BHSD, p.total_q = 0);
  ACCEPTED(p = paged(), p.q.layout = p.o.layout = CLATTN_LAYOUT_PACKED, p.total_q = 6);
  ACCEPTED(p = packed(), p.q_len = p.k_len = 0);
  ACCEPTED(p = packed(), p.q_len = 7, p.k_len = 11); /* bounds above the totals are bounds all the same */
  ACCEPTED(p = packed(), p.total_q = p.total_k = p.q_len = p.k_len = 0);
  ACCEPTED(p = packed(), p.q_length_mode = p.k_length_mode = CLATTN_LENGTH_PER_BATCH);
}

static void sizes_of_packed_and_paged(void **state) {
  (void)state;
  REFUSED(SHAPE, "total_q is -1: must be 0 to 2147483647", p = packed(), p.total_q = -1);
  REFUSED(SHAPE, "total_k is 2147483648: must be 0 to 2147483647", p = packed(), p.total_k = INT64_C(2147483648));
  REFUSED(SHAPE, "total_q is 0: a packed q of q_len 3 needs its bound", p = packed(), p.total_q = 0);
  REFUSED(SHAPE, "total_k is 0: a packed k of k_len 5 needs its bound", p = packed(), p.total_k = 0);
  REFUSED(SHAPE, "num_pages is -1", p = paged(), p.num_pages = -1);
  REFUSED(SHAPE, "max_pages is 2147483648", p = paged(), p.max_pages = INT64_C(2147483648));
  REFUSED(SHAPE, "page_size is -4", p = paged(), p.page_size = -4);
  REFUSED(SHAPE, "page_size is 2147483648", p = paged(), p.page_size = INT64_C(2147483648));
  REFUSED(VALUE, "total_q is 5: must be 0, q is not packed", p.total_q = 5);
  REFUSED(VALUE, "total_k is 5: must be 0, k is not packed", p.total_k = 5);
  REFUSED(VALUE, "total_k is 5: must be 0, k is not packed", p = paged(), p.total_k = 5);
  REFUSED(VALUE, "num_pages is 5: must be 0, k is not paged", p.num_pages = 5);
  REFUSED(VALUE, "max_pages is 5: must be 0, k is not paged", p.max_pages = 5);
  REFUSED(VALUE, "page_size is 5: must be 0, k is not paged", p = packed(), p.page_size = 5);

  ACCEPTED(p = paged());
  REFUSED(VALUE, "k_length_mode is 0 (full): paged k and v need per_batch", p = paged(), p.k_length_mode = 0);
  REFUSED(SHAPE, "page_size is 0: must be >= 1", p = paged(), p.page_size = 0);
  REFUSED(SHAPE, "num_pages is 0: must be >= 1 for k_len 5", p = paged(), p.num_pages = 0);
  REFUSED(SHAPE, "max_pages 1 of page_size 4 hold 4 keys: must be at least k_len 5", p = paged(), p.max_pages = 1);
  ACCEPTED(p = paged(), p.k_len = 8);
  REFUSED(SHAPE, "max_pages 2 of page_size 4 hold 8 keys: must be at least k_len 9", p = paged(), p.k_len = 9);
  ACCEPTED(p = paged(), p.k_len = p.num_pages = p.max_pages = 0);
  ACCEPTED(p = paged(), p.num_pages = 1); /* pages may be shared */
  ACCEPTED(p = paged(), p.max_pages = p.page_size = INT32_MAX, p.num_pages = 1, p.batch = 1, p.k_len = 2147479551);

  REFUSED(SHAPE, "block_q is 0, block_k is 4: must be >= 1", p.block_mask_kind = CLATTN_MASK_BITS, p.block_k = 4);
  REFUSED(SHAPE, "block_q is 4, block_k is -1", p.block_mask_kind = CLATTN_MASK_BITS, p.block_q = 4, p.block_k = -1);
  ACCEPTED(p.block_mask_kind = CLATTN_MASK_BITS, p.block_q = p.block_k = INT64_MAX);
}

static void strides_of_packed_and_paged(void **state) {
  (void)state;
#define STRIDES(tensor, batch, head, row, element) SET_STRIDES(p.tensor, batch, head, row, element)
  REFUSED(STRIDE, "q stride[0] is 1: must be 0, a packed tensor has no batch axis", p = packed(),
          STRIDES(q, 1, 8, 64, 1));
  REFUSED(STRIDE, "q stride[2] is -64: strides must be >= 0", p = packed(), STRIDES(q, 0, 8, -64, 1));
  REFUSED(STRIDE, "k stride[0] is -1: strides must be >= 0", p = paged(), STRIDES(k, -1, 8, 16, 1));
  REFUSED(STRIDE, "lse stride[3] is 1: must be 0, lse has no element axis", p = packed(), p.outputs = 3,
          STRIDES(lse, 0, 6, 1, 1));
  REFUSED(STRIDE, "o stride[2] is 31: must be above 31", p = packed(), STRIDES(o, 0, 4, 31, 1));
  REFUSED(STRIDE, "o stride[1] is 0 on an axis of size 8", p = packed(), STRIDES(o, 0, 0, 32, 1));
  REFUSED(STRIDE, "lse stride[1] is 5: must be above 5", p = packed(), p.outputs = 3, STRIDES(lse, 0, 5, 1, 0));
  ACCEPTED(p = packed(), STRIDES(q, 0, 48, 8, 1), STRIDES(o, 0, 24, 4, 1), STRIDES(k, 0, 0, 8, 1));
  ACCEPTED(p = packed(), p.outputs = 3, STRIDES(lse, 0, 6, 1, 0));
  ACCEPTED(p = packed(), p.outputs = 3, STRIDES(lse, 0, 1, 8, 0));
  ACCEPTED(p = paged(), STRIDES(k, 64, 32, 8, 1), STRIDES(v, 0, 0, 4, 1));
#undef STRIDES
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

static void defaults_of_packed(void **state) {
  clattn_problem p = packed(), r;
  (void)state;
  clattni_problem_resolve(&p, &r);
  assert_int_equal(r.q_len, 3);
  assert_int_equal(r.k_len, 5);
  p.q_len = p.k_len = 0;
  clattni_problem_resolve(&p, &r);
  assert_int_equal(r.q_len, 6);
  assert_int_equal(r.k_len, 10);
  const clattni_sizes both = clattni_bounds(&r);
  assert_true(both.batch == 2 && both.q_len == 6 && both.k_len == 10 && both.total_q == 6 && both.total_k == 10);
  assert_true(clattni_packed_q(&r) && clattni_packed_k(&r) && !clattni_paged(&r));
  p = paged();
  p.k_len = 0;
  clattni_problem_resolve(&p, &r);
  assert_int_equal(r.k_len, 0);
  const clattni_sizes none = clattni_bounds(&r);
  assert_true(none.batch == 2 && none.q_len == 3 && none.k_len == 0 && none.total_q == 0 && none.total_k == 0);
  assert_true(!clattni_packed_q(&r) && !clattni_packed_k(&r) && clattni_paged(&r));
}

static void a_strided_tensor_in_one_call(void **state) {
  (void)state;
  const clattn_tensor t = clattn_strided(CLATTN_BF16, 1, 2, 3, 4);
  const clattn_tensor want = {CLATTN_BF16, CLATTN_LAYOUT_STRIDED, {1, 2, 3, 4}, {0, 0}};
  assert_memory_equal(&t, &want, sizeof t);
}

/* At bounds (2, 3, 5), totals 6 and 10; sizes (1, 2, 4), totals 2 and 4. */
static void shapes_and_strides(void **state) {
  enum { PLAIN, PACKED, PAGED };
  static const struct {
    int of;
    clattni_slot slot;
    clattn_layout layout;
    int64_t given[4], shape[4], stride[4];
  } rows[] = {
      {PLAIN, CLATTNI_Q, CLATTN_LAYOUT_BHSD, {0}, {1, 8, 2, 8}, {192, 24, 8, 1}},
      {PLAIN, CLATTNI_Q, CLATTN_LAYOUT_BSHD, {0}, {1, 8, 2, 8}, {192, 8, 64, 1}},
      {PLAIN, CLATTNI_Q, CLATTN_LAYOUT_BHSD_EXACT, {0}, {1, 8, 2, 8}, {128, 16, 8, 1}},
      {PLAIN, CLATTNI_Q, CLATTN_LAYOUT_BSHD_EXACT, {0}, {1, 8, 2, 8}, {128, 8, 64, 1}},
      {PLAIN, CLATTNI_Q, CLATTN_LAYOUT_STRIDED, {7, 9, 0, 11}, {1, 8, 2, 8}, {7, 9, 0, 11}},
      {PLAIN, CLATTNI_K, CLATTN_LAYOUT_BHSD, {0}, {1, 2, 4, 8}, {80, 40, 8, 1}},
      {PLAIN, CLATTNI_V, CLATTN_LAYOUT_BSHD_EXACT, {0}, {1, 2, 4, 4}, {32, 4, 8, 1}},
      {PLAIN, CLATTNI_O, CLATTN_LAYOUT_BHSD, {0}, {1, 8, 2, 4}, {96, 12, 4, 1}},
      {PLAIN, CLATTNI_LSE, CLATTN_LAYOUT_BHSD, {0}, {1, 8, 2, 1}, {24, 3, 1, 0}},
      {PLAIN, CLATTNI_LSE, CLATTN_LAYOUT_BSHD, {0}, {1, 8, 2, 1}, {24, 1, 8, 0}},
      {PLAIN, CLATTNI_LSE, CLATTN_LAYOUT_BHSD_EXACT, {0}, {1, 8, 2, 1}, {16, 2, 1, 0}},
      {PLAIN, CLATTNI_SCORES, CLATTN_LAYOUT_BHSD, {0}, {1, 8, 2, 4}, {120, 15, 5, 1}},
      {PLAIN, CLATTNI_BIAS, CLATTN_LAYOUT_BSHD_EXACT, {0}, {1, 8, 2, 4}, {64, 4, 32, 1}},
      {PLAIN, CLATTNI_MAX_LOGIT, CLATTN_LAYOUT_BHSD, {0}, {1, 8, 1, 1}, {8, 1, 0, 0}},
      {PLAIN, CLATTNI_MAX_LOGIT, CLATTN_LAYOUT_BHSD_EXACT, {0}, {1, 8, 1, 1}, {8, 1, 0, 0}},
      {PLAIN, CLATTNI_KEEP_MASK, CLATTN_LAYOUT_BHSD, {0}, {1, 8, 2, 4}, {120, 15, 5, 1}},
      /* slopes: shared by the batch, unless strides say otherwise; sinks: always */
      {PLAIN, CLATTNI_ALIBI_SLOPES, CLATTN_LAYOUT_BHSD, {0}, {1, 8, 1, 1}, {0, 1, 0, 0}},
      {PLAIN, CLATTNI_ALIBI_SLOPES, CLATTN_LAYOUT_BHSD_EXACT, {0}, {1, 8, 1, 1}, {0, 1, 0, 0}},
      {PLAIN, CLATTNI_ALIBI_SLOPES, CLATTN_LAYOUT_BSHD_EXACT, {0}, {1, 8, 1, 1}, {0, 1, 0, 0}},
      {PLAIN, CLATTNI_ALIBI_SLOPES, CLATTN_LAYOUT_STRIDED, {9, 2, 0, 0}, {1, 8, 1, 1}, {9, 2, 0, 0}},
      {PLAIN, CLATTNI_SINK, CLATTN_LAYOUT_BHSD, {0}, {1, 8, 1, 1}, {0, 1, 0, 0}},
      {PLAIN, CLATTNI_SINK, CLATTN_LAYOUT_STRIDED, {0, 3, 0, 0}, {1, 8, 1, 1}, {0, 3, 0, 0}},
      {PACKED, CLATTNI_Q, CLATTN_LAYOUT_PACKED, {0}, {1, 8, 2, 8}, {0, 8, 64, 1}},
      {PACKED, CLATTNI_Q, CLATTN_LAYOUT_PACKED, {0, 1, 2, 0}, {1, 8, 2, 8}, {0, 1, 2, 0}},
      {PACKED, CLATTNI_K, CLATTN_LAYOUT_PACKED, {0}, {1, 2, 4, 8}, {0, 8, 16, 1}},
      {PACKED, CLATTNI_V, CLATTN_LAYOUT_PACKED, {0}, {1, 2, 4, 4}, {0, 4, 8, 1}},
      {PACKED, CLATTNI_O, CLATTN_LAYOUT_PACKED, {0}, {1, 8, 2, 4}, {0, 4, 32, 1}},
      /* over the bound: not every enqueue knows its total */
      {PACKED, CLATTNI_LSE, CLATTN_LAYOUT_PACKED, {0}, {1, 8, 2, 1}, {0, 6, 1, 0}},
      {PACKED, CLATTNI_LSE, CLATTN_LAYOUT_PACKED, {0, 1, 8, 0}, {1, 8, 2, 1}, {0, 1, 8, 0}},
      {PACKED, CLATTNI_SCORES, CLATTN_LAYOUT_BHSD, {0}, {1, 8, 2, 4}, {120, 15, 5, 1}}, /* per sequence */
      {PAGED, CLATTNI_K, CLATTN_LAYOUT_PAGED, {0}, {7, 2, 4, 8}, {64, 8, 16, 1}},
      {PAGED, CLATTNI_V, CLATTN_LAYOUT_PAGED, {0}, {7, 2, 4, 4}, {32, 4, 8, 1}},
      {PAGED, CLATTNI_V, CLATTN_LAYOUT_PAGED, {99, 16, 4, 1}, {7, 2, 4, 4}, {99, 16, 4, 1}},
      {PAGED, CLATTNI_Q, CLATTN_LAYOUT_BHSD, {0}, {1, 8, 2, 8}, {192, 24, 8, 1}},
      {PAGED, CLATTNI_PAGE_TABLE, CLATTN_LAYOUT_BHSD, {0}, {1, 1, 1, 2}, {2, 0, 0, 1}},
      {PLAIN, CLATTNI_HEAD_SCALE, CLATTN_LAYOUT_BHSD, {0}, {1, 8, 1, 1}, {0, 1, 0, 0}},
      {PLAIN, CLATTNI_HEAD_SCALE, CLATTN_LAYOUT_STRIDED, {0, 3, 0, 0}, {1, 8, 1, 1}, {0, 3, 0, 0}},
      {PLAIN, CLATTNI_ADD_W, CLATTN_LAYOUT_BHSD, {0}, {1, 8, 1, 8}, {0, 8, 0, 1}},
      {PLAIN, CLATTNI_ADD_W, CLATTN_LAYOUT_BSHD_EXACT, {0}, {1, 8, 1, 8}, {0, 8, 0, 1}},
      {PLAIN, CLATTNI_ADD_W, CLATTN_LAYOUT_STRIDED, {0, 1, 0, 8}, {1, 8, 1, 8}, {0, 1, 0, 8}},
  };
  (void)state;
  for (size_t i = 0; i < LENGTH(rows); i++) {
    clattn_problem p = rows[i].of == PACKED ? packed() : rows[i].of == PAGED ? paged() : base();
    const clattni_sizes sizes = {1, 2, 4, rows[i].of == PACKED ? 2 : 0, rows[i].of == PACKED ? 4 : 0};
    int64_t shape[4], stride[4];
    p.keep_mask_kind = CLATTN_MASK_U8;
    if (rows[i].slot != CLATTNI_PAGE_TABLE) { /* which no field describes */
      clattn_tensor *tensor = tensor_of(&p, rows[i].slot);
      tensor->layout = rows[i].layout;
      memcpy(tensor->stride, rows[i].given, sizeof stride);
    }
    clattni_slot_shape(&p, &sizes, rows[i].slot, shape);
    clattni_slot_strides(&p, &sizes, rows[i].slot, stride);
    if (memcmp(shape, rows[i].shape, sizeof shape) != 0 || memcmp(stride, rows[i].stride, sizeof stride) != 0)
      fail_msg("row %zu", i);
  }
}

static void block_masks_count_words_of_blocks(void **state) {
  static const struct {
    int64_t q_len, k_len, block_q, block_k, shape[4];
  } rows[] = {
      {3, 5, 2, 2, {2, 8, 2, 1}},
      {4, 64, 2, 2, {2, 8, 2, 1}},
      {5, 65, 2, 2, {2, 8, 3, 2}},
      {100, 1000, 1, 1, {2, 8, 100, 32}},
      {100, 1024, 7, 32, {2, 8, 15, 1}},
      {100, 1025, 100, 32, {2, 8, 1, 2}},
      {0, 5, 3, 3, {2, 8, 0, 1}},
      {3, 0, 3, 3, {2, 8, 1, 0}},
      {3, 5, INT64_MAX, 1, {2, 8, 1, 1}},
      {3, 5, 1, INT64_MAX, {2, 8, 3, 1}},
      {INT32_MAX, INT32_MAX, 2, 2, {2, 8, 1 << 30, 1 << 25}},
      {3, 5, 0, 0, {2, 8, 0, 0}}, /* no blocks: nothing uses the mask */
  };
  (void)state;
  for (size_t i = 0; i < LENGTH(rows); i++) {
    clattn_problem p = base();
    int64_t shape[4], stride[4];
    p.q_len = rows[i].q_len;
    p.k_len = rows[i].k_len;
    p.block_q = rows[i].block_q;
    p.block_k = rows[i].block_k;
    p.block_mask_kind = CLATTN_MASK_BITS;
    const clattni_sizes sizes = clattni_bounds(&p);
    clattni_slot_shape(&p, &sizes, CLATTNI_BLOCK_MASK, shape);
    clattni_slot_strides(&p, &sizes, CLATTNI_BLOCK_MASK, stride);
    const int64_t row = shape[3], head = row * shape[2];
    if (memcmp(shape, rows[i].shape, sizeof shape) != 0 || stride[0] != 8 * head || stride[1] != head ||
        stride[2] != row || stride[3] != 1)
      fail_msg("row %zu", i);
    assert_int_equal(clattni_slot_element_bytes(&p, CLATTNI_BLOCK_MASK), 4);
  }
}

static void masks_of_bits_count_words(void **state) {
  clattn_problem p = base();
  int64_t shape[4], stride[4];
  (void)state;
  p.k_len = 65;
  p.keep_mask_kind = CLATTN_MASK_BITS;
  const clattni_sizes sizes = {2, 3, 64, 0, 0};
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
  static const char *const names[] = {
      "q",          "k",           "v",          "o",          "lse",          "scores",
      "max_logit",  "bias",        "keep_mask",  "block_mask", "alibi_slopes", "sink",
      "page_table", "head_scale",  "add_w",      "k_scale",    "v_scale",      "rope_cos",
      "rope_sin",   "positions_q", "positions_k"};
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
  p.block_mask_kind = CLATTN_MASK_BITS;
  p.use_sink = 1;
  assert_true(clattni_slot_used(&p, CLATTNI_BLOCK_MASK) && clattni_slot_used(&p, CLATTNI_SINK));
  assert_false(clattni_slot_used(&p, CLATTNI_ALIBI_SLOPES) || clattni_slot_used(&p, CLATTNI_PAGE_TABLE));
  p.alibi = CLATTN_ALIBI_SYMMETRIC;
  p.k.layout = CLATTN_LAYOUT_PAGED;
  assert_true(clattni_slot_used(&p, CLATTNI_ALIBI_SLOPES) && clattni_slot_used(&p, CLATTNI_PAGE_TABLE));
  assert_false(clattni_slot_used(&p, CLATTNI_HEAD_SCALE) || clattni_slot_used(&p, CLATTNI_ADD_W));
  p.use_head_scale = 1;
  p.similarity = CLATTN_ADDITIVE;
  assert_true(clattni_slot_used(&p, CLATTNI_HEAD_SCALE) && clattni_slot_used(&p, CLATTNI_ADD_W));
  assert_int_equal(clattni_slot_element_bytes(&p, CLATTNI_PAGE_TABLE), 4);
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
      cmocka_unit_test(fields_that_are_switched_off),
      cmocka_unit_test(everything_of_this_release_at_once),
      cmocka_unit_test(layouts_that_a_tensor_can_have),
      cmocka_unit_test(packed_and_paged_together),
      cmocka_unit_test(sizes_of_packed_and_paged),
      cmocka_unit_test(strides_of_packed_and_paged),
      cmocka_unit_test(defaults),
      cmocka_unit_test(defaults_of_packed),
      cmocka_unit_test(a_strided_tensor_in_one_call),
      cmocka_unit_test(shapes_and_strides),
      cmocka_unit_test(block_masks_count_words_of_blocks),
      cmocka_unit_test(masks_of_bits_count_words),
      cmocka_unit_test(slots),
      cmocka_unit_test(extent_counts_to_one_past_the_last),
  };
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  return failed + test_problem_types();
}
