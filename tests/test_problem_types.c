/* SPDX-License-Identifier: Apache-2.0 */
/* Problems of every storage type and similarity: what is legal together, scales of quantised keys and values, rows of
 * half bytes; and every bit pattern of the types themselves. */
#include "test_problem.h"

#include "dtype.h"

/* ---- types ----------------------------------------------------------------------------------------------------- */

static void every_mix_of_floats(void **state) {
  (void)state;
  for (int n = 0; n < 3 * 3 * 3 * 3 * 3; n++) {
    clattn_problem p = base();
    p.use_bias = 1;
    p.outputs = 15;
    p.q.dtype = n % 3;
    p.k.dtype = n / 3 % 3;
    p.v.dtype = n / 9 % 3;
    p.o.dtype = n / 27 % 3;
    p.bias.dtype = n / 81;
    accepted(__FILE__, __LINE__, &p);
    assert_int_equal(clattni_slot_bytes(&p, CLATTNI_Q, 3), p.q.dtype == CLATTN_F32 ? 12 : 6);
    for (clattn_dtype scores = CLATTN_F32; scores <= CLATTN_I4; scores++) {
      p.scores.dtype = scores;
      if (scores == CLATTN_F32 || scores == p.o.dtype)
        accepted(__FILE__, __LINE__, &p);
      else
        refused(__FILE__, __LINE__, &p, CLATTN_ERROR_ENUM, "not a type that scores can have");
    }
  }
}

/* The only types of k, v and their scales; and those of the tensors that are f32. */
static void types_that_a_tensor_can_have(void **state) {
  static const struct {
    clattni_slot slot;
    unsigned dtypes; /* bits */
  } rows[] = {
      {CLATTNI_Q, 0x07},        {CLATTNI_K, 0x1f},          {CLATTNI_V, 0x1f},          {CLATTNI_O, 0x07},
      {CLATTNI_BIAS, 0x07},     {CLATTNI_K_SCALE, 0x03},    {CLATTNI_V_SCALE, 0x03},    {CLATTNI_LSE, 0x01},
      {CLATTNI_SINK, 0x01},     {CLATTNI_HEAD_SCALE, 0x01}, {CLATTNI_ADD_W, 0x01},      {CLATTNI_MAX_LOGIT, 0x01},
      {CLATTNI_SCORES, 0x01},   {CLATTNI_KEEP_MASK, 0x01},  {CLATTNI_BLOCK_MASK, 0x01}, {CLATTNI_ALIBI_SLOPES, 0x01},
      {CLATTNI_ROPE_COS, 0x01}, {CLATTNI_ROPE_SIN, 0x01},
  };
  (void)state;
  for (size_t i = 0; i < LENGTH(rows); i++) {
    for (clattn_dtype dtype = CLATTN_F32; dtype <= CLATTN_I4; dtype++) {
      clattn_problem p = base();
      char text[64];
      p.k.dtype = CLATTN_I8;
      p.v.dtype = CLATTN_I4;
      p.similarity = CLATTN_ADDITIVE;
      p.use_bias = p.use_sink = p.use_head_scale = 1;
      p.alibi = CLATTN_ALIBI_SIGNED;
      p.keep_mask_kind = p.block_mask_kind = CLATTN_MASK_BITS;
      p.block_q = p.block_k = 2;
      p.outputs = 15;
      p.rope = CLATTN_ROPE_HALF;
      tensor_of(&p, rows[i].slot)->dtype = dtype;
      (void)snprintf(text, sizeof text, "%s dtype is %s: not a type that", clattni_slot_name(rows[i].slot),
                     clattni_dtype_name(dtype));
      if (rows[i].dtypes >> dtype & 1u)
        accepted(__FILE__, __LINE__, &p);
      else
        refused(__FILE__, __LINE__, &p, CLATTN_ERROR_ENUM, text);
    }
  }
}

static void similarities_math_and_hooks(void **state) {
  (void)state;
  for (int n = 0; n < 3 * 3 * 2 * 2; n++)
    ACCEPTED(p.similarity = n % 3, p.math = n / 3 % 3, p.use_head_scale = (uint32_t)n / 9 % 2,
             p.hook = n / 18 ? (const clattn_hook *)(const void *)&p : NULL);
  REFUSED(STRIDE, "head_scale stride[0] is 1: must be 0, head_scale has no batch axis", p.use_head_scale = 1,
          p.head_scale = clattn_strided(CLATTN_F32, 1, 1, 0, 0));
  REFUSED(STRIDE, "head_scale stride[1] is -1: strides must be >= 0", p.use_head_scale = 1,
          p.head_scale = clattn_strided(CLATTN_F32, 0, -1, 0, 0));
  REFUSED(STRIDE, "head_scale stride[1] is 1: must be 0 in layout bhsd", p.use_head_scale = 1,
          p.head_scale.stride[1] = 1);
  REFUSED(STRIDE, "add_w stride[2] is 4: must be 0, add_w has no row axis", p.similarity = CLATTN_ADDITIVE,
          p.add_w = clattn_strided(CLATTN_F32, 0, 8, 4, 1));
  REFUSED(STRIDE, "add_w stride[0] is 4: must be 0, add_w has no batch axis", p.similarity = CLATTN_ADDITIVE,
          p.add_w = clattn_strided(CLATTN_F32, 4, 8, 0, 1));
  REFUSED(OVERFLOW, "head_scale of shape (1, 8, 1, 1) reaches beyond", p.use_head_scale = 1,
          p.head_scale = clattn_strided(CLATTN_F32, 0, INT64_MAX / 8, 0, 0));
  REFUSED(OVERFLOW, "add_w of shape (1, 8, 1, 8) reaches beyond", p.similarity = CLATTN_ADDITIVE,
          p.add_w = clattn_strided(CLATTN_F32, 0, 1, 0, INT64_MAX / 16));
  ACCEPTED(p.use_head_scale = 1, p.head_scale = clattn_strided(CLATTN_F32, 0, 0, 0, 0));
  ACCEPTED(p.similarity = CLATTN_ADDITIVE, p.add_w = clattn_strided(CLATTN_F32, 0, 0, 0, 3));

  clattn_problem p = base();
  for (p.similarity = CLATTN_DOT; p.similarity <= CLATTN_ADDITIVE; p.similarity++) {
    clattn_problem r;
    clattni_problem_resolve(&p, &r);
    assert_true(r.scale == (p.similarity == CLATTN_DOT ? (float)(1.0 / sqrt(8.0)) : 1.0f));
  }
}

/* ---- scales ---------------------------------------------------------------------------------------------------- */

static void scales_are_used_by_quantised_tensors(void **state) {
  (void)state;
  for (clattn_dtype dtype = CLATTN_F32; dtype <= CLATTN_I4; dtype++) {
    clattn_problem p = base();
    p.k.dtype = dtype;
    assert_int_equal(clattni_quantised(dtype), dtype >= CLATTN_I8);
    assert_int_equal(clattni_slot_used(&p, CLATTNI_K_SCALE), dtype >= CLATTN_I8);
    assert_false(clattni_slot_used(&p, CLATTNI_V_SCALE));
    p.v.dtype = dtype;
    assert_int_equal(clattni_slot_used(&p, CLATTNI_V_SCALE), dtype >= CLATTN_I8);
    p.outputs = CLATTN_OUT_LSE; /* the values are not read, and nor are their scales */
    assert_int_equal(clattni_slot_used(&p, CLATTNI_K_SCALE), dtype >= CLATTN_I8);
    assert_false(clattni_slot_used(&p, CLATTNI_V_SCALE));
  }
}

/* At bounds (2, 3, 5), totals 6 and 10; sizes (1, 2, 4), totals 2 and 4; k of 33 elements, v of 70. */
static void shapes_and_strides_of_scales(void **state) {
  enum { PLAIN, PACKED, PAGED };
  static const struct {
    int of;
    clattn_dtype dtype;
    clattn_layout layout;
    int64_t k_shape[4], k_stride[4], v_shape[4], v_stride[4];
  } rows[] = {
      {PLAIN, CLATTN_I8, CLATTN_LAYOUT_BHSD, {1, 2, 4, 1}, {10, 5, 1, 1}, {1, 2, 4, 1}, {10, 5, 1, 1}},
      {PLAIN, CLATTN_I8, CLATTN_LAYOUT_BSHD, {1, 2, 4, 1}, {10, 1, 2, 1}, {1, 2, 4, 1}, {10, 1, 2, 1}},
      {PLAIN, CLATTN_I4, CLATTN_LAYOUT_BHSD, {1, 2, 4, 2}, {20, 10, 2, 1}, {1, 2, 4, 3}, {30, 15, 3, 1}},
      {PLAIN, CLATTN_I4, CLATTN_LAYOUT_BHSD_EXACT, {1, 2, 4, 2}, {16, 8, 2, 1}, {1, 2, 4, 3}, {24, 12, 3, 1}},
      {PLAIN, CLATTN_I4, CLATTN_LAYOUT_BSHD_EXACT, {1, 2, 4, 2}, {16, 2, 4, 1}, {1, 2, 4, 3}, {24, 3, 6, 1}},
      {PACKED, CLATTN_I8, CLATTN_LAYOUT_PACKED, {1, 2, 4, 1}, {0, 1, 2, 1}, {1, 2, 4, 1}, {0, 1, 2, 1}},
      {PACKED, CLATTN_I4, CLATTN_LAYOUT_PACKED, {1, 2, 4, 2}, {0, 2, 4, 1}, {1, 2, 4, 3}, {0, 3, 6, 1}},
      {PAGED, CLATTN_I8, CLATTN_LAYOUT_PAGED, {7, 2, 4, 1}, {8, 1, 2, 1}, {7, 2, 4, 1}, {8, 1, 2, 1}},
      {PAGED, CLATTN_I4, CLATTN_LAYOUT_PAGED, {7, 2, 4, 2}, {16, 2, 4, 1}, {7, 2, 4, 3}, {24, 3, 6, 1}},
  };
  (void)state;
  for (size_t i = 0; i < LENGTH(rows); i++) {
    clattn_problem p = rows[i].of == PACKED ? packed() : rows[i].of == PAGED ? paged() : base();
    const clattni_sizes sizes = {1, 2, 4, rows[i].of == PACKED ? 2 : 0, rows[i].of == PACKED ? 4 : 0};
    int64_t shape[4], stride[4];
    p.qk_dim = 33;
    p.v_dim = 70;
    p.k.dtype = p.v.dtype = rows[i].dtype;
    p.k_scale.layout = p.v_scale.layout = rows[i].layout;
    accepted(__FILE__, __LINE__, &p);
    clattni_slot_shape(&p, &sizes, CLATTNI_K_SCALE, shape);
    clattni_slot_strides(&p, &sizes, CLATTNI_K_SCALE, stride);
    if (memcmp(shape, rows[i].k_shape, sizeof shape) != 0 || memcmp(stride, rows[i].k_stride, sizeof stride) != 0)
      fail_msg("k_scale of row %zu", i);
    clattni_slot_shape(&p, &sizes, CLATTNI_V_SCALE, shape);
    clattni_slot_strides(&p, &sizes, CLATTNI_V_SCALE, stride);
    if (memcmp(shape, rows[i].v_shape, sizeof shape) != 0 || memcmp(stride, rows[i].v_stride, sizeof stride) != 0)
      fail_msg("v_scale of row %zu", i);
    p.k_scale.dtype = CLATTN_F16;
    assert_int_equal(clattni_slot_element_bytes(&p, CLATTNI_K_SCALE), 2);
    assert_int_equal(clattni_slot_bytes(&p, CLATTNI_V_SCALE, 7), 28);
    assert_int_equal(clattni_slot_index(&p, CLATTNI_V_SCALE, 28), 7);
  }
}

static void groups_of_32(void **state) {
  static const int64_t rows[][2] = {{1, 1}, {31, 1}, {32, 1}, {33, 2}, {64, 2}, {65, 3}, {INT32_MAX, 1 << 26}};
  (void)state;
  for (size_t i = 0; i < LENGTH(rows); i++) {
    clattn_problem p = base();
    int64_t shape[4];
    p.qk_dim = rows[i][0];
    p.k.dtype = CLATTN_I4;
    const clattni_sizes sizes = clattni_bounds(&p);
    clattni_slot_shape(&p, &sizes, CLATTNI_K_SCALE, shape);
    assert_int_equal(shape[3], rows[i][1]);
    p.k.dtype = CLATTN_I8;
    clattni_slot_shape(&p, &sizes, CLATTNI_K_SCALE, shape);
    assert_int_equal(shape[3], 1);
  }
}

static void scales_lie_as_their_rows_do(void **state) {
  (void)state;
  REFUSED(SHAPE, "k_scale layout is bhsd, k layout is packed: scales are packed or paged where their rows are",
          p = packed(), p.k.dtype = CLATTN_I8);
  REFUSED(SHAPE, "v_scale layout is bshd, v layout is packed", p = packed(), p.v.dtype = CLATTN_I4,
          p.v_scale.layout = CLATTN_LAYOUT_BSHD);
  REFUSED(SHAPE, "k_scale layout is packed, k layout is bhsd", p.k.dtype = CLATTN_I8,
          p.k_scale.layout = CLATTN_LAYOUT_PACKED);
  REFUSED(SHAPE, "v_scale layout is paged, v layout is bhsd", p.v.dtype = CLATTN_I8,
          p.v_scale.layout = CLATTN_LAYOUT_PAGED);
  REFUSED(SHAPE, "k_scale layout is strided, k layout is paged", p = paged(), p.k.dtype = CLATTN_I4,
          p.k_scale = clattn_strided(CLATTN_F32, 8, 1, 2, 1));
  REFUSED(SHAPE, "v_scale layout is packed, v layout is paged", p = paged(), p.v.dtype = CLATTN_I4,
          p.v_scale.layout = CLATTN_LAYOUT_PACKED);
  ACCEPTED(p = packed(), p.k.dtype = CLATTN_I8, p.k_scale.layout = CLATTN_LAYOUT_PACKED);
  ACCEPTED(p = paged(), p.v.dtype = CLATTN_I4, p.v_scale.layout = CLATTN_LAYOUT_PAGED);
  ACCEPTED(p.k.dtype = CLATTN_I8, p.k.layout = CLATTN_LAYOUT_BSHD, p.k_scale.layout = CLATTN_LAYOUT_BHSD_EXACT);

  REFUSED(STRIDE, "k_scale stride[2] is -1: strides must be >= 0", p.k.dtype = CLATTN_I8,
          p.k_scale = clattn_strided(CLATTN_F32, 0, 0, -1, 0));
  REFUSED(STRIDE, "k_scale stride[0] is 1: must be 0, a packed tensor has no batch axis", p = packed(),
          p.k.dtype = CLATTN_I8, p.k_scale.layout = CLATTN_LAYOUT_PACKED, p.k_scale.stride[0] = 1);
  REFUSED(STRIDE, "v_scale stride[3] is 2: must be 0 in layout bhsd", p.v.dtype = CLATTN_I8, p.v_scale.stride[3] = 2);
  REFUSED(OVERFLOW, "k_scale of shape (2, 2, 5, 1) reaches beyond", p.k.dtype = CLATTN_I8,
          p.k_scale = clattn_strided(CLATTN_F32, 0, 0, INT64_MAX / 8, 0));
  ACCEPTED(p.k.dtype = CLATTN_I8, p.k_scale = clattn_strided(CLATTN_F32, 0, 0, 0, 0)); /* one for all */
  ACCEPTED(p.v.dtype = CLATTN_I8, p.v_scale = clattn_strided(CLATTN_F16, 0, 0, 0, 7));
  ACCEPTED(p = packed(), p.k.dtype = CLATTN_I8, p.k_scale.layout = CLATTN_LAYOUT_PACKED, p.k_scale.stride[1] = 10,
           p.k_scale.stride[2] = 1);
  ACCEPTED(p = paged(), p.k.dtype = CLATTN_I8, p.k_scale.layout = CLATTN_LAYOUT_PAGED, p.k_scale.stride[0] = 3);
  ACCEPTED(p.alignment = 16, p.qk_dim = 16, p.k.dtype = CLATTN_I8); /* promised of q, k, v and o alone */
}

/* ---- half bytes ------------------------------------------------------------------------------------------------ */

static void rows_of_half_bytes_start_on_a_byte(void **state) {
  enum { PLAIN, PACKED, PAGED };
  static const struct {
    int of;
    clattn_layout layout;
    int64_t dim, stride[4];
  } rows[] = {
      {PLAIN, CLATTN_LAYOUT_BHSD, 8, {80, 40, 8, 1}},       {PLAIN, CLATTN_LAYOUT_BHSD, 7, {80, 40, 8, 1}},
      {PLAIN, CLATTN_LAYOUT_BHSD, 1, {20, 10, 2, 1}},       {PLAIN, CLATTN_LAYOUT_BSHD, 7, {80, 8, 16, 1}},
      {PLAIN, CLATTN_LAYOUT_BHSD_EXACT, 7, {64, 32, 8, 1}}, {PLAIN, CLATTN_LAYOUT_BSHD_EXACT, 7, {64, 8, 16, 1}},
      {PACKED, CLATTN_LAYOUT_PACKED, 7, {0, 8, 16, 1}},     {PAGED, CLATTN_LAYOUT_PAGED, 7, {64, 8, 16, 1}},
      {PLAIN, CLATTN_LAYOUT_STRIDED, 7, {0, 1000, 0, 1}},   {PLAIN, CLATTN_LAYOUT_STRIDED, 7, {2, 4, 6, 1}},
  };
  (void)state;
  for (size_t i = 0; i < LENGTH(rows); i++) {
    clattn_problem p = rows[i].of == PACKED ? packed() : rows[i].of == PAGED ? paged() : base();
    const clattni_sizes sizes = {1, 2, 4, rows[i].of == PACKED ? 2 : 0, rows[i].of == PACKED ? 4 : 0};
    int64_t shape[4], stride[4];
    p.qk_dim = p.v_dim = rows[i].dim;
    p.k.dtype = CLATTN_I4;
    p.k.layout = rows[i].layout;
    if (rows[i].of != PLAIN)
      p.k_scale.layout = rows[i].layout;
    if (rows[i].layout == CLATTN_LAYOUT_STRIDED)
      memcpy(p.k.stride, rows[i].stride, sizeof stride);
    accepted(__FILE__, __LINE__, &p);
    clattni_slot_shape(&p, &sizes, CLATTNI_K, shape);
    clattni_slot_strides(&p, &sizes, CLATTNI_K, stride);
    assert_int_equal(shape[3], rows[i].dim);
    if (memcmp(stride, rows[i].stride, sizeof stride) != 0)
      fail_msg("row %zu", i);
  }
  REFUSED(STRIDE, "k stride[3] is 2: must be 1 for i4", p.k = clattn_strided(CLATTN_I4, 80, 40, 8, 2));
  REFUSED(STRIDE, "v stride[3] is 0: must be 1 for i4", p.v = clattn_strided(CLATTN_I4, 0, 0, 0, 0));
  REFUSED(STRIDE, "k stride[2] is 7: must be even for i4, so that rows start on a byte",
          p.k = clattn_strided(CLATTN_I4, 80, 40, 7, 1));
  REFUSED(STRIDE, "v stride[1] is 5: must be even", p.v = clattn_strided(CLATTN_I4, 80, 5, 8, 1));
  REFUSED(STRIDE, "v stride[0] is 1: must be even", p.v = clattn_strided(CLATTN_I4, 1, 4, 8, 1));
  REFUSED(STRIDE, "k stride[2] is 9: must be even", p = packed(), p.k.dtype = CLATTN_I4,
          p.k_scale.layout = CLATTN_LAYOUT_PACKED, SET_STRIDES(p.k, 0, 8, 9, 1));
  REFUSED(STRIDE, "k stride[0] is 63: must be even", p = paged(), p.k.dtype = CLATTN_I4,
          p.k_scale.layout = CLATTN_LAYOUT_PAGED, SET_STRIDES(p.k, 63, 8, 16, 1));
  ACCEPTED(p.k = clattn_strided(CLATTN_I8, 1, 5, 7, 3)); /* whole bytes may lie anyhow */
}

static void bytes_of_half_bytes(void **state) {
  clattn_problem p = base();
  (void)state;
  p.k.dtype = CLATTN_I4;
  p.v.dtype = CLATTN_I8;
  static const int64_t rows[][2] = {{0, 0}, {1, 1}, {2, 1}, {3, 2}, {64, 32}, {INT64_MAX, INT64_MAX / 2 + 1}};
  for (size_t i = 0; i < LENGTH(rows); i++) {
    assert_true(clattni_slot_bytes(&p, CLATTNI_K, rows[i][0]) == rows[i][1]);
    assert_true(clattni_slot_bytes(&p, CLATTNI_V, rows[i][0]) == rows[i][0]);
  }
  assert_int_equal(clattni_slot_element_bytes(&p, CLATTNI_K), 1);
  assert_int_equal(clattni_slot_index(&p, CLATTNI_K, 5), 10);
  assert_int_equal(clattni_slot_index(&p, CLATTNI_V, 5), 5);
  assert_int_equal(clattni_slot_index(&p, CLATTNI_Q, 20), 5);
  assert_true(clattni_slot_bytes(&p, CLATTNI_Q, INT64_MAX / 4) == INT64_MAX - 3);
  assert_true(clattni_slot_bytes(&p, CLATTNI_Q, INT64_MAX / 4 + 1) == -1);
  p.keep_mask_kind = CLATTN_MASK_BITS;
  assert_int_equal(clattni_slot_bytes(&p, CLATTNI_KEEP_MASK, 3), 12);
}

static void extents_of_half_bytes(void **state) {
  (void)state;
  REFUSED(OVERFLOW, "k of shape", p.batch = 1, p.k = clattn_strided(CLATTN_F32, 0, INT64_MAX / 2 - 63, 8, 1));
  ACCEPTED(p.batch = 1, p.k = clattn_strided(CLATTN_I4, 0, INT64_MAX - 63, 8, 1));
  REFUSED(OVERFLOW, "k of shape", p.batch = 1, p.k = clattn_strided(CLATTN_I4, 0, INT64_MAX - 31, 8, 1));
}

static void alignment_counts_bytes(void **state) {
  (void)state;
  REFUSED(ALIGNMENT, "k stride[1] is 40 elements of half a byte: not a multiple of the promised alignment 8",
          p.alignment = 8, p.qk_dim = 8, p.k = clattn_strided(CLATTN_I4, 80, 40, 16, 1));
  ACCEPTED(p.alignment = 8, p.k = clattn_strided(CLATTN_I4, 96, 48, 16, 1));
  ACCEPTED(p.alignment = 4, p.k.dtype = CLATTN_I4);
  REFUSED(ALIGNMENT, "k stride[1] is 40 elements of half a byte", p.alignment = 8, p.k.dtype = CLATTN_I4);
  REFUSED(ALIGNMENT, "v stride[1] is 20 elements of 1 byte:", p.alignment = 8, p.v.dtype = CLATTN_I8);
  REFUSED(ALIGNMENT, "q stride[1] is 24 elements of 2 bytes:", p.alignment = 32, p.q.dtype = CLATTN_F16);
  REFUSED(ALIGNMENT, "o stride[1] is 12 elements of 2 bytes:", p.alignment = 16, p.o.dtype = CLATTN_BF16);
  ACCEPTED(p.alignment = 8, p.o.dtype = CLATTN_BF16);
  ACCEPTED(p.alignment = 1, p.qk_dim = 7, p.k.dtype = CLATTN_I4);
  ACCEPTED(p.alignment = 16, p.q_len = 0, p.q = clattn_strided(CLATTN_F32, (INT64_MAX - 15) / 16 * 16, 16, 16, 1));
}

/* ---- rotary embedding ------------------------------------------------------------------------------------------ */

static void rotary_embedding(void **state) {
  (void)state;
  for (clattn_rope rope = CLATTN_ROPE_HALF; rope <= CLATTN_ROPE_INTERLEAVED; rope++) {
    ACCEPTED(p.rope = rope);
    ACCEPTED(p.rope = rope, p.rope_dim = 2);
    ACCEPTED(p.rope = rope, p.rope_dim = 8, p.use_positions = 1, p.rope_positions = 1);
    ACCEPTED(p = packed(), p.rope = rope);
    ACCEPTED(p = paged(), p.rope = rope, p.use_positions = 1);
    ACCEPTED(p.rope = rope, p.q_len = p.k_len = 0);
    ACCEPTED(p.rope = rope, p.rope_cos = p.rope_sin = clattn_strided(CLATTN_F32, 0, 0, 8, 2));
    ACCEPTED(p.rope = rope, p.rope_cos = p.rope_sin = clattn_strided(CLATTN_F32, 100, 0, 0, 0));
    ACCEPTED(p.rope = rope, p.rope_cos.layout = CLATTN_LAYOUT_BSHD, p.rope_sin.layout = CLATTN_LAYOUT_BHSD_EXACT);
    REFUSED(SHAPE, "rope_dim is 7: must be even, from 2 to qk_dim 8", p.rope = rope, p.rope_dim = 7);
    REFUSED(SHAPE, "rope_dim is 10: must be even", p.rope = rope, p.rope_dim = 10);
    REFUSED(SHAPE, "rope_dim is -2: must be even", p.rope = rope, p.rope_dim = -2);
    REFUSED(SHAPE, "rope_dim is 5: must be even", p.rope = rope, p.qk_dim = 5);
    REFUSED(SHAPE, "rope_positions is -1: must be 1 to 2147483647, or 0", p.rope = rope, p.rope_positions = -1);
    REFUSED(SHAPE, "rope_positions is 2147483648", p.rope = rope, p.rope_positions = INT64_C(2147483648));
  }
  /* rows of the tables: 3 rows and 5 keys need them, unless positions come with the enqueue */
  REFUSED(SHAPE, "rope_positions is 4: must be at least k_len 5", p.rope = 1, p.rope_positions = 4);
  REFUSED(SHAPE, "rope_positions is 5: must be at least offset 0 + q_len 6", p.rope = 1, p.q_len = 6);
  ACCEPTED(p.rope = 1, p.q_len = 6, p.rope_positions = 6);
  ACCEPTED(p.rope = 1, p.q_len = 6, p.use_positions = 1);
  ACCEPTED(p.rope = 1, p.offset_mode = CLATTN_OFFSET_VALUE, p.offset = 2);
  REFUSED(SHAPE, "rope_positions is 5: must be at least offset 3 + q_len 3", p.rope = 1,
          p.offset_mode = CLATTN_OFFSET_VALUE, p.offset = 3);
  REFUSED(VALUE, "offset is -1: must be >= 0 with rope", p.rope = 1, p.offset_mode = CLATTN_OFFSET_VALUE,
          p.offset = -1);
  REFUSED(SHAPE, "must be at least offset 9223372036854775807", p.rope = 1, p.offset_mode = CLATTN_OFFSET_VALUE,
          p.offset = INT64_MAX);
  ACCEPTED(p.rope = 1, p.use_positions = 1, p.offset_mode = CLATTN_OFFSET_VALUE, p.offset = -1);
  ACCEPTED(p.rope = 1, p.offset = -1); /* not read */
  ACCEPTED(p.rope = 1, p.q_len = 6, p.offset_mode = CLATTN_OFFSET_BOTTOM_RIGHT);
  ACCEPTED(p.rope = 1, p.q_len = 6, p.offset_mode = CLATTN_OFFSET_PER_BATCH);
  /* the tables */
  REFUSED(STRIDE, "rope_cos has stride[2] 8, rope_sin 4: both tables must lie alike", p.rope = 1,
          p.rope_cos = clattn_strided(CLATTN_F32, 0, 0, 8, 1));
  REFUSED(STRIDE, "rope_cos has stride[0] 0, rope_sin 20", p.rope = 1,
          p.rope_sin = clattn_strided(CLATTN_F32, 20, 0, 4, 1));
  REFUSED(STRIDE, "rope_cos stride[1] is 1: must be 0, rope_cos has no head axis", p.rope = 1,
          p.rope_cos = p.rope_sin = clattn_strided(CLATTN_F32, 0, 1, 4, 1));
  REFUSED(STRIDE, "rope_sin stride[2] is -4: strides must be >= 0", p.rope = 1,
          p.rope_sin = clattn_strided(CLATTN_F32, 0, 0, -4, 1));
  REFUSED(OVERFLOW, "rope_cos of shape (2, 1, 5, 4) reaches beyond", p.rope = 1,
          p.rope_cos = p.rope_sin = clattn_strided(CLATTN_F32, 0, 0, INT64_MAX / 8, 1));
}

/* At bounds (2, 3, 5), totals 6 and 10; sizes (1, 2, 4), totals 2 and 4. */
static void tables_and_positions(void **state) {
  (void)state;
  for (int packed_rows = 0; packed_rows < 2; packed_rows++) {
    clattn_problem p = packed_rows ? packed() : base();
    const clattni_sizes sizes = {1, 2, 4, packed_rows ? 2 : 0, packed_rows ? 4 : 0};
    int64_t shape[4], stride[4];
    p.rope = CLATTN_ROPE_HALF;
    clattni_problem_resolve(&p, &p);
    assert_int_equal(p.rope_dim, 8);
    assert_int_equal(p.rope_positions, 5);
    for (clattni_slot slot = CLATTNI_ROPE_COS; slot <= CLATTNI_ROPE_SIN; slot++) {
      const int64_t want_shape[4] = {1, 1, 5, 4}, want_stride[4] = {0, 0, 4, 1};
      assert_true(clattni_slot_used(&p, slot));
      clattni_slot_shape(&p, &sizes, slot, shape);
      clattni_slot_strides(&p, &sizes, slot, stride);
      assert_memory_equal(shape, want_shape, sizeof shape);
      assert_memory_equal(stride, want_stride, sizeof stride);
    }
    assert_false(clattni_slot_used(&p, CLATTNI_POSITIONS_Q) || clattni_slot_used(&p, CLATTNI_POSITIONS_K));
    p.use_positions = 1;
    for (clattni_slot slot = CLATTNI_POSITIONS_Q; slot <= CLATTNI_POSITIONS_K; slot++) {
      const int64_t rows = slot == CLATTNI_POSITIONS_Q ? 2 : 4;
      const int64_t want_shape[4] = {1, 1, rows, 1};
      assert_true(clattni_slot_used(&p, slot));
      assert_int_equal(clattni_slot_element_bytes(&p, slot), 4);
      clattni_slot_shape(&p, &sizes, slot, shape);
      clattni_slot_strides(&p, &sizes, slot, stride);
      assert_memory_equal(shape, want_shape, sizeof shape);
      assert_int_equal(stride[2], 1);
      assert_true(packed_rows || stride[0] == rows); /* this enqueue's, not the bounds' */
    }
    p.rope = CLATTN_ROPE_NONE;
    for (clattni_slot slot = CLATTNI_ROPE_COS; slot <= CLATTNI_POSITIONS_K; slot++)
      assert_false(clattni_slot_used(&p, slot));
  }
}

/* ---- stored numbers -------------------------------------------------------------------------------------------- */

static double float_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return (double)value;
}

static int is_negative(double x) {
  return signbit(x) != 0;
}

/* Every pattern: f16 moved into the fields of an f32, bf16 by powers of two. */
static void every_16_bit_pattern_widens_exactly(void **state) {
  (void)state;
  for (uint32_t n = 0; n < 65536; n++) {
    const uint16_t stored = (uint16_t)n;
    const uint32_t sign = n >> 15, exponent = n >> 10 & 31, fraction = n & 1023;
    double want = float_of_bits(sign << 31 | (exponent == 31 ? 255u : exponent + 112) << 23 | fraction << 13);
    if (exponent == 0) /* the implicit one is too much: 2^-14 */
      want = (float_of_bits(113u << 23 | fraction << 13) - float_of_bits(113u << 23)) * (sign ? -1 : 1);
    double got = clattni_dtype_load(CLATTN_F16, &stored, 0);
    if (isnan(want) ? !isnan(got) : got != want || is_negative(got) != (int)sign)
      fail_msg("f16 0x%04x: %g, not %g", (unsigned)n, got, want);

    const int power = (int)(n >> 7 & 255);
    const double whole = (n & 127) + (power > 0 ? 128.0 : 0.0);
    want = ldexp(whole, (power > 0 ? power : 1) - 134) * (sign ? -1 : 1);
    if (power == 255)
      want = (n & 127) != 0 ? (double)NAN : sign ? -(double)INFINITY : (double)INFINITY;
    got = clattni_dtype_load(CLATTN_BF16, &stored, 0);
    if (isnan(want) ? !isnan(got) : got != want || is_negative(got) != (int)sign)
      fail_msg("bf16 0x%04x: %g, not %g", (unsigned)n, got, want);
  }
}

static void every_byte_of_integers(void **state) {
  (void)state;
  for (int n = 0; n < 256; n++) {
    const unsigned char stored[3] = {0x5a, (unsigned char)n, 0xa5};
    assert_true(clattni_dtype_load(CLATTN_I8, stored, 1) == (n < 128 ? n : n - 256));
    assert_true(clattni_dtype_load(CLATTN_I4, stored, 2) == n % 16 - 8);
    const int high = n / 16 - 8;
    assert_true(clattni_dtype_load(CLATTN_I4, stored, 3) == high);
    assert_true(clattni_dtype_load(CLATTN_I4, stored, 1) == -3.0 && clattni_dtype_load(CLATTN_I4, stored, 4) == -3.0);
  }
  assert_true(isnan(clattni_dtype_load(CLATTN_I4 + 1, "", 0)));
}

int test_problem_types(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_mix_of_floats),          cmocka_unit_test(types_that_a_tensor_can_have),
      cmocka_unit_test(similarities_math_and_hooks),  cmocka_unit_test(scales_are_used_by_quantised_tensors),
      cmocka_unit_test(shapes_and_strides_of_scales), cmocka_unit_test(groups_of_32),
      cmocka_unit_test(scales_lie_as_their_rows_do),  cmocka_unit_test(rows_of_half_bytes_start_on_a_byte),
      cmocka_unit_test(bytes_of_half_bytes),          cmocka_unit_test(extents_of_half_bytes),
      cmocka_unit_test(alignment_counts_bytes),       cmocka_unit_test(every_16_bit_pattern_widens_exactly),
      cmocka_unit_test(every_byte_of_integers),       cmocka_unit_test(rotary_embedding),
      cmocka_unit_test(tables_and_positions),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
