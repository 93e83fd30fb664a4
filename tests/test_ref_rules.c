/* SPDX-License-Identifier: Apache-2.0 */
/* The double-precision reference: ALiBi, sinks, chunks, prefixes, block masks, packed and paged tensors; random
 * problems of every rule against a second opinion; arguments. */
#include "test_ref.h"

/* ---- ALiBi ----------------------------------------------------------------------------------------------------- */

/* Slopes are eighths here, so that the bias holds the same numbers. */
static void alibi_is_a_bias(void **state) {
  (void)state;
  for (int kind = CLATTN_ALIBI_SIGNED; kind <= CLATTN_ALIBI_SYMMETRIC; kind++) {
    for (int per_batch = 0; per_batch < 2; per_batch++) {
      start_random(3, 5);
      f.p.offset_mode = CLATTN_OFFSET_BOTTOM_RIGHT;
      f.p.k_length_mode = CLATTN_LENGTH_PER_BATCH;
      f.a.k_lengths = f.k_lengths;
      f.k_lengths[0] = 5;
      f.k_lengths[1] = 4;
      f.p.alibi = kind;
      f.a.alibi_slopes = f.slopes;
      for (int n = 0; n < 24; n++)
        f.slopes[n] = (float)(n + 1) / 8 - 1;
      if (per_batch)
        f.p.alibi_slopes = clattn_strided(CLATTN_F32, 12, 2, 0, 0);
      remember();
      for (int64_t r = 0; r < 24; r++) {
        const int64_t i = r % 3, h = r / 3 % 4, b = r / 12;
        const float slope = f.slopes[per_batch ? b * 12 + h * 2 : h];
        for (int64_t j = 0; j < 5; j++) {
          const float distance = (float)(j - (i + f.k_lengths[b] - 3));
          f.bias[r * 5 + j] = slope * (kind == CLATTN_ALIBI_SIGNED ? distance : -fabsf(distance));
        }
      }
      f.p.alibi = CLATTN_ALIBI_NONE;
      memset(&f.p.alibi_slopes, 0, sizeof f.p.alibi_slopes);
      f.a.alibi_slopes = NULL;
      f.p.use_bias = 1;
      f.a.bias = f.bias;
      run();
      SAME_ROWS(24);
    }
  }
}

/* ---- sinks ----------------------------------------------------------------------------------------------------- */

static void a_sink_takes_weight(void **state) {
  (void)state;
  start(1, 2);
  f.p.use_sink = 1;
  f.a.sink = f.sink;
  SET(f.v, 3, 6);
  run();
  ALL_CLOSE(f.scores, 1. / 3, 1. / 3);
  ALL_CLOSE(f.o, 3);
  ALL_CLOSE(f.lse, log(3));
  SET(f.sink, 100); /* the largest: no weight overflows; max_logit stays that of the keys */
  run();
  ALL_CLOSE(f.lse, 100 + log1p(2 * exp(-100)));
  ALL_CLOSE(f.max_logit, 0);
  CLOSE(f.scores[0] * exp(100), 1);
  SET(f.sink, 1); /* neither scaled nor capped nor biased */
  f.p.scale = 7;
  f.p.softcap = 0.5f;
  f.p.use_bias = 1;
  f.a.bias = f.bias;
  SET(f.bias, 2, 2);
  run();
  ALL_CLOSE(f.lse, log(2 * exp(2) + exp(1)));
  SET(f.sink, -INFINITY); /* none */
  run();
  ALL_CLOSE(f.lse, 2 + log(2));
  ALL_CLOSE(f.o, 4.5);
}

static void rows_with_nothing_but_a_sink(void **state) {
  static const float bad[] = {NAN, INFINITY};
  (void)state;
  for (int kind = 0; kind < 4; kind++) { /* no key by a rule, by a length, behind q_lengths, in the problem */
    start(2, kind == 3 ? 0 : 2);
    f.p.v_dim = 2;
    f.p.use_sink = 1;
    f.a.sink = f.sink;
    SET(f.sink, -3);
    SET(f.v, NAN, 1, 1, 1);
    f.p.causal = kind == 0;
    f.p.offset_mode = CLATTN_OFFSET_VALUE;
    f.p.offset = -2;
    if (kind == 1)
      f.p.k_length_mode = CLATTN_LENGTH_PER_BATCH, f.a.k_lengths = f.k_lengths;
    if (kind == 2)
      f.p.q_length_mode = CLATTN_LENGTH_PER_BATCH, f.a.q_lengths = f.q_lengths;
    run();
    ALL_CLOSE(f.o, 0, 0, 0, 0);
    ALL_CLOSE(f.lse, -3, -3);
    ALL_CLOSE(f.max_logit, none);
    SET(f.sink, -INFINITY);
    run();
    ALL_CLOSE(f.o, 0, 0, 0, 0);
    ALL_CLOSE(f.lse, none, none);
  }
  for (size_t n = 0; n < LENGTH(bad); n++) { /* with keys and without */
    start(2, 2);
    f.p.causal = 1;
    f.p.offset_mode = CLATTN_OFFSET_VALUE;
    f.p.offset = -1;
    f.p.use_sink = 1;
    f.a.sink = f.sink;
    f.sink[0] = bad[n];
    run();
    ALL_CLOSE(f.o, NAN, NAN);
    ALL_CLOSE(f.lse, NAN, NAN);
    ALL_CLOSE(f.scores, 0, 0, NAN, 0); /* an excluded key has weight 0 all the same */
    ALL_CLOSE(f.max_logit, 0);
  }
}

/* One more key whose value is 0, for each head and row the same score as the sink of that head. */
static void a_sink_is_a_key_without_a_value(void **state) {
  (void)state;
  for (int strided = 0; strided < 2; strided++) {
    start(1, 4);
    f.p.q_heads = f.p.kv_heads = 3;
    f.p.v_dim = 2;
    random_inputs();
    for (int n = 0; n < 16; n++) { /* eighths, so that their products are exact */
      f.q[n] = (float)below(17) / 8 - 1;
      f.k[n] = (float)below(17) / 8 - 1;
    }
    for (int h = 0; h < 3; h++)
      f.v[8 * h + 6] = f.v[8 * h + 7] = 0;
    remember();
    f.p.k_len = 3;
    f.p.k = clattn_strided(CLATTN_F32, 0, 4, 1, 1);
    f.p.v = clattn_strided(CLATTN_F32, 0, 8, 2, 1);
    f.p.use_sink = 1;
    if (strided)
      f.p.sink = clattn_strided(CLATTN_F32, 0, 5, 0, 0);
    f.a.sink = f.sink;
    for (int h = 0; h < 3; h++)
      f.sink[strided ? 5 * h : h] = f.q[h] * f.k[4 * h + 3];
    run();
    are_close(__FILE__, __LINE__, f.o, before.o, 6);
    are_close(__FILE__, __LINE__, f.lse, before.lse, 3);
    for (int h = 0; h < 3; h++)
      are_close(__FILE__, __LINE__, f.scores + 3 * h, before.scores + 4 * h, 3);
  }
}

/* ---- block masks ----------------------------------------------------------------------------------------------- */

/* A bit of a line of 32-bit words. */
static int bit(const uint32_t *line, int64_t n) {
  return (int)(line[n / 32] >> n % 32 & 1u);
}

static void block_masks_by_hand(void **state) {
  (void)state;
  start(3, 5);
  f.p.block_mask_kind = CLATTN_MASK_BITS;
  f.p.block_q = f.p.block_k = 2;
  f.a.block_mask = f.block_mask;
  f.block_mask[0] = UINT32_C(0xfffffffa); /* bits beyond the last block mean nothing */
  SET(f.k, NAN, 0, 0, 0, 0);              /* in blocks that no row keeps */
  SET(f.v, NAN, 2, 3, 4, 5);
  f.block_mask[1] = 4;
  run();
  KEPT(3, 5, "00110 00110 00001");
  ALL_CLOSE(f.o, 3.5, 3.5, 5);
  f.block_mask[0] = 0;
  run();
  KEPT(3, 5, "00000 00000 00001");
  ALL_CLOSE(f.lse, none, none, 0);
}

/* Blocks of any size, more than 32 of them in a line, every stride, against a byte per pair. */
static void block_masks_are_keep_masks(void **state) {
  static const int64_t sizes[][2] = {{1, 1}, {2, 3}, {3, 2}, {7, 50}};
  (void)state;
  for (size_t n = 0; n < LENGTH(sizes) * 4; n++) {
    const int64_t block_q = sizes[n / 4][0], block_k = sizes[n / 4][1];
    const int64_t lines = (5 + block_q - 1) / block_q, words = ((37 + block_k - 1) / block_k + 31) / 32;
    const int64_t strides[4][4] = {
        {4 * lines * words, lines * words, words, 1}, {0, 9, 2, 1}, {40, 0, 4, 1}, {0, 0, 0, 1}};
    const int64_t *stride = strides[n % 4];
    start_random(5, 37);
    f.p.block_mask_kind = CLATTN_MASK_BITS;
    f.p.block_q = block_q;
    f.p.block_k = block_k;
    if (n % 4 > 0)
      f.p.block_mask = clattn_strided(CLATTN_F32, stride[0], stride[1], stride[2], stride[3]);
    f.a.block_mask = f.block_mask;
    for (int i = 0; i < ROOM; i++)
      f.block_mask[i] = below(UINT32_MAX);
    remember();
    f.p.block_mask_kind = CLATTN_MASK_NONE;
    memset(&f.p.block_mask, 0, sizeof f.p.block_mask);
    f.p.block_q = f.p.block_k = 0;
    f.a.block_mask = NULL;
    f.p.keep_mask_kind = CLATTN_MASK_U8;
    f.a.keep_mask = f.mask;
    for (int64_t r = 0; r < 40; r++) {
      const int64_t i = r % 5, h = r / 5 % 4, b = r / 20;
      for (int64_t j = 0; j < 37; j++)
        f.mask[r * 37 + j] =
            (unsigned char)bit(f.block_mask + b * stride[0] + h * stride[1] + i / block_q * stride[2], j / block_k);
    }
    run();
    SAME_ROWS(40);
  }
}

/* ---- packed ---------------------------------------------------------------------------------------------------- */

static void pack_q(int64_t total) {
  f.p.q.layout = f.p.o.layout = f.p.lse.layout = CLATTN_LAYOUT_PACKED;
  f.p.total_q = total;
  f.a.cu_seqlens_q = f.cu_seqlens_q;
}

static void pack_k(int64_t total) {
  f.p.k.layout = f.p.v.layout = CLATTN_LAYOUT_PACKED;
  f.p.total_k = total;
  f.a.cu_seqlens_k = f.cu_seqlens_k;
}

/* Five sequences, each against a problem of its own: an empty one at the start, in the middle and at the end. */
static void packed_sequences_are_problems_of_their_own(void **state) {
  static const int32_t q_rows[] = {0, 3, 0, 2, 0}, k_rows[] = {2, 4, 0, 1, 0};
  (void)state;
  for (int kind = 0; kind < 4; kind++) { /* q packed, k packed, both; both, with strides and lengths */
    const int strided = kind == 3, q_packed = kind != 1, k_packed = kind != 0;
    start_random(3, 4);
    f.p.batch = 5;
    f.p.causal = 1;
    f.p.offset_mode = CLATTN_OFFSET_BOTTOM_RIGHT;
    for (int b = 0; b < 5; b++) {
      f.cu_seqlens_q[b + 1] = f.cu_seqlens_q[b] + q_rows[b];
      f.cu_seqlens_k[b + 1] = f.cu_seqlens_k[b] + k_rows[b];
      f.q_lengths[b] = q_rows[b];
      f.k_lengths[b] = k_rows[b];
    }
    if (strided) {
      f.q_lengths[1] = 2;
      f.k_lengths[1] = 3;
      f.k_lengths[3] = 0;
    }
    if (q_packed)
      pack_q(7); /* more than there are */
    if (k_packed)
      pack_k(7);
    if (strided) {
      const int64_t q_stride[4] = {0, 3, 13, 1}, k_stride[4] = {0, 21, 3, 1};
      memcpy(f.p.q.stride, q_stride, sizeof q_stride);
      memcpy(f.p.k.stride, k_stride, sizeof k_stride);
    }
    if (!q_packed || strided)
      f.p.q_length_mode = CLATTN_LENGTH_PER_BATCH, f.a.q_lengths = f.q_lengths;
    if (!k_packed || strided)
      f.p.k_length_mode = CLATTN_LENGTH_PER_BATCH, f.a.k_lengths = f.k_lengths;
    f.p.use_sink = 1;
    f.a.sink = f.sink;
    SET(f.sink, 0.5f, -INFINITY, 1, -2);
    remember();
    for (int b = 0; b < 5; b++) {
      start(before.q_lengths[b], before.k_lengths[b]);
      const clattn_problem *p = &before.p;
      f.p.q_heads = 4;
      f.p.kv_heads = 2;
      f.p.qk_dim = 3;
      f.p.v_dim = 2;
      f.p.causal = 1;
      f.p.offset_mode = CLATTN_OFFSET_BOTTOM_RIGHT;
      f.p.q =
          q_packed ? clattn_strided(CLATTN_F32, 0, 3, strided ? 13 : 12, 1) : clattn_strided(CLATTN_F32, 0, 9, 3, 1);
      f.p.k = strided    ? clattn_strided(CLATTN_F32, 0, 21, 3, 1)
              : k_packed ? clattn_strided(CLATTN_F32, 0, 3, 6, 1)
                         : clattn_strided(CLATTN_F32, 0, 12, 3, 1);
      f.p.v = k_packed ? clattn_strided(CLATTN_F32, 0, 2, 4, 1) : clattn_strided(CLATTN_F32, 0, 8, 2, 1);
      f.a.q = before.q + (q_packed ? before.cu_seqlens_q[b] * f.p.q.stride[2] : b * 36);
      f.a.k = before.k + (k_packed ? before.cu_seqlens_k[b] * f.p.k.stride[2] : b * 24);
      f.a.v = before.v + (k_packed ? before.cu_seqlens_k[b] * f.p.v.stride[2] : b * 16);
      f.p.use_sink = 1;
      f.a.sink = before.sink;
      run();
      const int64_t rows = f.p.q_len, keys = f.p.k_len;
      for (int64_t h = 0; h < 4; h++) {
        CLOSE(before.max_logit[b * 4 + h], f.max_logit[h]);
        for (int64_t i = 0; i < p->q_len; i++) {
          const int64_t in = (b * 4 + h) * p->q_len + i, one = h * rows + i;
          CLOSE(before.lse[in], i < rows ? f.lse[one] : (double)before.sink[h]);
          for (int64_t d = 0; d < 2; d++)
            CLOSE(before.o[in * 2 + d], i < rows ? f.o[one * 2 + d] : 0);
          for (int64_t j = 0; j < p->k_len; j++)
            CLOSE(before.scores[in * p->k_len + j], i < rows && j < keys ? f.scores[one * keys + j] : 0);
        }
      }
    }
  }
}

static void packed_bounds_default_to_all_rows(void **state) {
  (void)state;
  start(0, 0);
  f.p.batch = 2;
  pack_q(3);
  pack_k(4);
  f.cu_seqlens_q[1] = f.cu_seqlens_q[2] = 3; /* one sequence may have them all */
  f.cu_seqlens_k[1] = 1;
  f.cu_seqlens_k[2] = 4;
  SET(f.v, 1, 2, 3, 7);
  run();
  ALL_CLOSE(f.o, 1, 1, 1, 0, 0, 0, UNTOUCHED);
  ALL_CLOSE(f.lse, 0, 0, 0, none, none, none, UNTOUCHED);
  ALL_CLOSE(f.max_logit, 0, none, UNTOUCHED);
  f.a.sizes = CLATTN_SIZES_Q_LEN; /* a smaller bound of this call */
  f.a.q_len = 2;
  f.cu_seqlens_q[1] = 1;
  clear_results();
  run();
  ALL_CLOSE(f.o, 1, 0, 4, 4, UNTOUCHED);
  f.a.sizes = CLATTN_SIZES_BATCH; /* the first sequence alone */
  f.a.batch = 1;
  f.cu_seqlens_q[2] = f.cu_seqlens_k[2] = -1;
  clear_results();
  run();
  ALL_CLOSE(f.o, 1, 0, 0, UNTOUCHED);
}

/* ---- paged ----------------------------------------------------------------------------------------------------- */

static void page_kv(int64_t num_pages, int64_t max_pages, int64_t page_size) {
  f.p.k.layout = f.p.v.layout = CLATTN_LAYOUT_PAGED;
  f.p.num_pages = num_pages;
  f.p.max_pages = max_pages;
  f.p.page_size = page_size;
  f.p.k_length_mode = CLATTN_LENGTH_PER_BATCH;
  f.a.k_lengths = f.k_lengths;
  f.a.page_table = f.page_table;
}

/* Repeated, first and last pages, entries out of range, entries that no key reaches, pages that hold NaN. */
static void pages_are_gathered(void **state) {
  static const int32_t table[] = {4, 1, 4, -7, 0, INT32_MAX, 2, INT32_MIN};
  static const int32_t page_of[] = {4, 1, 4, 0, 0, 4, 2, 0}, lengths[] = {7, 5};
  (void)state;
  for (int strided = 0; strided < 2; strided++) {
    start_random(3, 7);
    f.p.causal = 1;
    f.p.offset_mode = CLATTN_OFFSET_BOTTOM_RIGHT;
    page_kv(5, 4, 2);
    memcpy(f.page_table, table, sizeof table);
    memcpy(f.k_lengths, lengths, sizeof lengths);
    if (strided) {
      const int64_t k_stride[4] = {50, 20, 5, 1}; /* (page, head, row, element) */
      memcpy(f.p.k.stride, k_stride, sizeof k_stride);
    }
    const int64_t stride[4] = {strided ? 50 : 12, strided ? 20 : 3, strided ? 5 : 6, 1};
    for (int64_t n = 0; n < 12; n++) /* page 3 is in no table */
      f.k[3 * stride[0] + n] = f.v[3 * 8 + n % 8] = NAN;
    remember();
    for (int64_t b = 0; b < 2; b++) {
      for (int64_t h = 0; h < 2; h++) {
        for (int64_t j = 0; j < lengths[b]; j++) {
          const int64_t page = page_of[b * 4 + j / 2], row = j % 2, to = (b * 2 + h) * 7 + j;
          memcpy(&f.k[to * 3], &before.k[page * stride[0] + h * stride[1] + row * stride[2]], 3 * sizeof(float));
          memcpy(&f.v[to * 2], &before.v[page * 8 + row * 4 + h * 2], 2 * sizeof(float));
        }
      }
    }
    memset(&f.p.k, 0, sizeof f.p.k);
    memset(&f.p.v, 0, sizeof f.p.v);
    f.p.num_pages = f.p.max_pages = f.p.page_size = 0;
    f.a.page_table = NULL;
    run();
    SAME_ROWS(24);
  }
}

static void packed_queries_over_pages(void **state) {
  (void)state;
  start(2, 3);
  f.p.batch = 2;
  pack_q(3);
  page_kv(2, 2, 2);
  f.cu_seqlens_q[1] = 1;
  f.cu_seqlens_q[2] = 3;
  f.k_lengths[0] = 3;
  f.k_lengths[1] = 1;
  f.page_table[0] = 1;
  f.page_table[3] = -1; /* behind k_lengths[1] */
  SET(f.v, 1, 2, 4, 6);
  run();
  ALL_CLOSE(f.o, 11. / 3, 0, 1, 1, UNTOUCHED);
  ALL_CLOSE(f.lse, log(3), none, 0, 0, UNTOUCHED);
}

static void batch_invariant_changes_nothing(void **state) {
  (void)state;
  start_random(3, 5);
  remember();
  f.p.flags = CLATTN_BATCH_INVARIANT;
  run();
  SAME_ROWS(24);
}

/* ---- a second opinion ------------------------------------------------------------------------------------------ */

/* A random problem of every rule and layout at once, in f. */
static void draw_problem(void) {
  start(1 + below(4), below(7));
  random_inputs();
  clattn_problem *p = &f.p;
  p->batch = 1 + below(2);
  p->kv_heads = 1 + below(2);
  p->q_heads = p->kv_heads * (1 + below(2));
  p->qk_dim = 1 + below(4);
  p->v_dim = 1 + below(4);
  p->scale = random_float();
  p->softcap = below(2) ? 1.5f : 0.0f;
  p->causal = below(2);
  p->window = below(3) ? 0 : below(4);
  p->window_left = below(3);
  p->window_right = below(3);
  p->prefix_mode = below(3);
  p->prefix = below(5);
  p->chunk = below(3) ? 0 : 1 + below(4);
  p->offset_mode = (clattn_offset_mode)below(4);
  p->offset = (int64_t)below(7) - 3;
  p->use_bias = below(2);
  p->alibi = (clattn_alibi)below(3);
  p->use_sink = below(2);
  p->keep_mask_kind = below(3) ? CLATTN_MASK_NONE : CLATTN_MASK_U8;
  p->q_length_mode = (clattn_length_mode)below(2);
  p->k_length_mode = (clattn_length_mode)below(2);
  p->q.layout = below(2) ? CLATTN_LAYOUT_BSHD : CLATTN_LAYOUT_BHSD;
  if (below(3) == 0) {
    p->block_mask_kind = CLATTN_MASK_BITS;
    p->block_q = 1 + below(3);
    p->block_k = 1 + below(3);
    f.a.block_mask = f.block_mask;
  }
  if (below(3) == 0)
    pack_q(9);
  const uint32_t keys = below(4);
  if (keys == 0)
    pack_k(14);
  if (keys == 1) {
    const int64_t size = 1 + below(3);
    page_kv(1 + below(5), p->k_len / size + 1 + below(2), size);
  }
  for (int i = 0; i < ROOM; i++) {
    if (below(8) == 0)
      f.bias[i] = -INFINITY;
    f.mask[i] = (unsigned char)below(4);
    f.block_mask[i] = below(UINT32_MAX);
    f.block_mask[i] |= below(UINT32_MAX);
  }
  for (int i = 0; i < 64; i++) {
    f.slopes[i] = random_float();
    f.sink[i] = below(8) ? random_float() : -INFINITY;
    f.page_table[i] = (int32_t)below(9) - 2;
  }
  for (int b = 0; b < 2; b++) {
    int64_t q_rows = p->q_len, k_rows = p->k_len;
    f.cu_seqlens_q[b + 1] = f.cu_seqlens_q[b] + (int32_t)below((uint32_t)p->q_len + 1);
    f.cu_seqlens_k[b + 1] = f.cu_seqlens_k[b] + (int32_t)below((uint32_t)p->k_len + 1);
    if (f.a.cu_seqlens_q != NULL)
      q_rows = f.cu_seqlens_q[b + 1] - f.cu_seqlens_q[b];
    if (f.a.cu_seqlens_k != NULL)
      k_rows = f.cu_seqlens_k[b + 1] - f.cu_seqlens_k[b];
    f.q_lengths[b] = (int32_t)(p->q_length_mode ? below((uint32_t)q_rows + 1) : q_rows);
    f.k_lengths[b] = (int32_t)(p->k_length_mode ? below((uint32_t)k_rows + 1) : k_rows);
    f.q_offsets[b] = (int32_t)below(7) - 3;
    f.prefix[b] = (int32_t)below(5);
  }
  f.a.bias = p->use_bias ? f.bias : NULL;
  f.a.alibi_slopes = p->alibi ? f.slopes : NULL;
  f.a.sink = p->use_sink ? f.sink : NULL;
  f.a.keep_mask = p->keep_mask_kind ? f.mask : NULL;
  f.a.q_lengths = p->q_length_mode ? f.q_lengths : NULL;
  f.a.k_lengths = p->k_length_mode ? f.k_lengths : NULL;
  f.a.prefix = p->prefix_mode == CLATTN_PREFIX_PER_BATCH ? f.prefix : NULL;
  f.a.q_offsets = p->offset_mode == CLATTN_OFFSET_PER_BATCH ? f.q_offsets : NULL;
}

/* Element d of key j in k or v, wherever the layout of k and v puts it. */
static float key_element(const float *base, int64_t b, int64_t hk, int64_t j, int64_t dim, int64_t d) {
  const clattn_problem *p = &f.p;
  if (p->k.layout == CLATTN_LAYOUT_PACKED)
    return base[((f.cu_seqlens_k[b] + j) * p->kv_heads + hk) * dim + d];
  if (p->k.layout == CLATTN_LAYOUT_BHSD)
    return base[((b * p->kv_heads + hk) * p->k_len + j) * dim + d];
  int64_t page = f.page_table[b * p->max_pages + j / p->page_size];
  if (page < 0)
    page = 0;
  if (page >= p->num_pages)
    page = p->num_pages - 1;
  return base[((page * p->page_size + j % p->page_size) * p->kv_heads + hk) * dim + d];
}

/* Whether every rule keeps key j of row i, by the definition. */
static int rules_keep(int64_t b, int64_t h, int64_t i, int64_t j, int64_t at) {
  const clattn_problem *p = &f.p;
  const int64_t prefix = p->prefix_mode == CLATTN_PREFIX_PER_BATCH ? f.prefix[b]
                         : p->prefix_mode == CLATTN_PREFIX_VALUE   ? p->prefix
                                                                   : 0;
  const int64_t blocks = p->block_q > 0 ? (p->q_len + p->block_q - 1) / p->block_q : 0;
  return i < f.q_lengths[b] && j < f.k_lengths[b] && !(p->causal && j > at && j >= prefix) &&
         !((p->window & CLATTN_WINDOW_LEFT) && j < at - p->window_left) &&
         !((p->window & CLATTN_WINDOW_RIGHT) && j > at + p->window_right) &&
         !(p->chunk && floor((double)at / (double)p->chunk) != floor((double)j / (double)p->chunk)) &&
         !(p->keep_mask_kind && f.mask[((b * p->q_heads + h) * p->q_len + i) * p->k_len + j] == 0) &&
         !(p->block_mask_kind && !bit(f.block_mask + (b * p->q_heads + h) * blocks + i / p->block_q, j / p->block_k));
}

/* Random problems of every rule at once, against sums written straight from the definition: no intervals, no strides
 * but those drawn here, long double. */
static void random_problems(void **state) {
  size_t empty = 0, rows = 0;
  (void)state;
  for (int round = 0; round < 3000; round++) {
    draw_problem();
    const clattn_problem *p = &f.p;
    const int64_t H = p->q_heads, S = p->q_len, K = p->k_len, D = p->qk_dim, E = p->v_dim;
    long double largest = -(long double)INFINITY;
    run();
    for (int64_t r = 0; r < p->batch * H * S; r++) {
      const int64_t i = r % S, h = r / S % H, b = r / S / H, hk = h * p->kv_heads / H;
      const int64_t off = p->offset_mode == CLATTN_OFFSET_TOP_LEFT       ? 0
                          : p->offset_mode == CLATTN_OFFSET_BOTTOM_RIGHT ? f.k_lengths[b] - f.q_lengths[b]
                          : p->offset_mode == CLATTN_OFFSET_VALUE        ? p->offset
                                                                         : f.q_offsets[b];
      const int64_t at = i + off;
      const float *q = f.q + (p->q.layout == CLATTN_LAYOUT_PACKED ? ((f.cu_seqlens_q[b] + i) * H + h) * D
                              : p->q.layout == CLATTN_LAYOUT_BSHD ? ((b * S + i) * H + h) * D
                                                                  : r * D);
      long double l = p->use_sink ? expl(f.sink[h]) : 0, sum[4] = {0, 0, 0, 0}, part[8];
      if (i == 0)
        largest = -(long double)INFINITY;
      for (int64_t j = 0; j < K; j++) {
        long double s = 0;
        for (int64_t d = 0; d < D; d++)
          s += (long double)q[d] * key_element(f.k, b, hk, j, D, d);
        s *= p->scale;
        const long double raw = s;
        if (p->softcap > 0)
          s = p->softcap * tanhl(s / p->softcap);
        if (p->use_bias)
          s += f.bias[r * K + j];
        if (p->alibi == CLATTN_ALIBI_SIGNED)
          s += (long double)f.slopes[h] * (j - at);
        if (p->alibi == CLATTN_ALIBI_SYMMETRIC)
          s -= (long double)f.slopes[h] * (j > at ? j - at : at - j);
        part[j] = rules_keep(b, h, i, j, at) ? expl(s) : 0; /* scores are small here: no maximum is needed */
        if (part[j] > 0 && raw > largest)
          largest = raw;
        l += part[j];
        for (int64_t e = 0; e < E; e++)
          sum[e] += part[j] * key_element(f.v, b, hk, j, E, e);
      }
      rows++;
      empty += l == 0;
      CLOSE(f.lse[r], (double)logl(l));
      for (int64_t e = 0; e < E; e++)
        CLOSE(f.o[r * E + e], l == 0 ? 0 : (double)(sum[e] / l));
      for (int64_t j = 0; j < K; j++)
        CLOSE(f.scores[r * K + j], l == 0 ? 0 : (double)(part[j] / l));
      if (i == S - 1)
        CLOSE(f.max_logit[b * H + h], (double)largest);
    }
  }
  assert_true(empty > 1000 && rows - empty > 5000);
}

/* ---- arguments ------------------------------------------------------------------------------------------------- */

static void bad_arguments(void **state) {
  (void)state;
  REFUSED(SHAPE, "kv_heads 3 does not divide q_heads 4", f.p.q_heads = 4, f.p.kv_heads = 3);
  REFUSED(NOT_SUPPORTED, "dropout", f.p.dropout = 0.5f);
  REFUSED(STRIDE, "v stride[3] is 2", f.p.outputs = CLATTN_OUT_LSE, f.p.v = clattn_strided(CLATTN_I4, 0, 0, 2, 2));
  REFUSED(NULL_POINTER, "q is NULL", f.a.q = NULL);
  REFUSED(NULL_POINTER, "k is NULL", f.a.k = NULL);
  REFUSED(NULL_POINTER, "v is NULL", f.a.v = NULL);
  REFUSED(NULL_POINTER, "bias is NULL", f.p.use_bias = 1);
  REFUSED(NULL_POINTER, "keep_mask is NULL", f.p.keep_mask_kind = CLATTN_MASK_BITS);
  REFUSED(NULL_POINTER, "block_mask is NULL", f.p.block_mask_kind = CLATTN_MASK_BITS, f.p.block_q = f.p.block_k = 2);
  REFUSED(NULL_POINTER, "alibi_slopes is NULL", f.p.alibi = CLATTN_ALIBI_SYMMETRIC);
  REFUSED(NULL_POINTER, "sink is NULL", f.p.use_sink = 1);
  REFUSED(NULL_POINTER, "page_table is NULL", page_kv(2, 3, 2), f.a.page_table = NULL);
  REFUSED(NULL_POINTER, "k_lengths is NULL", page_kv(2, 3, 2), f.a.k_lengths = NULL);
  REFUSED(NULL_POINTER, "prefix is NULL", f.p.prefix_mode = CLATTN_PREFIX_PER_BATCH);
  REFUSED(NULL_POINTER, "cu_seqlens_q is NULL", pack_q(3), f.a.cu_seqlens_q = NULL);
  REFUSED(NULL_POINTER, "cu_seqlens_k is NULL", pack_k(5), f.a.cu_seqlens_k = NULL);
  REFUSED(NULL_POINTER, "q_lengths is NULL", f.p.q_length_mode = CLATTN_LENGTH_PER_BATCH);
  REFUSED(NULL_POINTER, "k_lengths is NULL", f.p.k_length_mode = CLATTN_LENGTH_PER_BATCH);
  REFUSED(NULL_POINTER, "q_offsets is NULL", f.p.offset_mode = CLATTN_OFFSET_PER_BATCH);
  REFUSED(TENSOR_UNUSED, "bias is given", f.a.bias = f.bias);
  REFUSED(TENSOR_UNUSED, "keep_mask is given", f.a.keep_mask = f.mask);
  REFUSED(TENSOR_UNUSED, "block_mask is given", f.a.block_mask = f.block_mask);
  REFUSED(TENSOR_UNUSED, "alibi_slopes is given", f.a.alibi_slopes = f.slopes);
  REFUSED(TENSOR_UNUSED, "sink is given", f.a.sink = f.sink);
  REFUSED(TENSOR_UNUSED, "page_table is given", f.a.page_table = f.page_table);
  REFUSED(TENSOR_UNUSED, "prefix is given", f.a.prefix = f.prefix, f.p.prefix_mode = CLATTN_PREFIX_VALUE);
  REFUSED(TENSOR_UNUSED, "cu_seqlens_q is given", f.a.cu_seqlens_q = f.cu_seqlens_q);
  REFUSED(TENSOR_UNUSED, "cu_seqlens_k is given", pack_q(3), f.a.cu_seqlens_k = f.cu_seqlens_k);
  REFUSED(TENSOR_UNUSED, "q_lengths is given", f.a.q_lengths = f.q_lengths);
  REFUSED(TENSOR_UNUSED, "k_lengths is given", f.a.k_lengths = f.k_lengths);
  REFUSED(TENSOR_UNUSED, "q_offsets is given", f.a.q_offsets = f.q_offsets);
  REFUSED(LENGTH, "q_lengths[0] is 4: must be 0 to 3", f.p.q_length_mode = 1, f.a.q_lengths = f.q_lengths,
          f.q_lengths[0] = 4);
  REFUSED(LENGTH, "k_lengths[1] is -1: must be 0 to 5", f.p.batch = 2, f.p.k_length_mode = 1,
          f.a.k_lengths = f.k_lengths, f.k_lengths[1] = -1);
  REFUSED(LENGTH, "k_lengths[0] is 5: must be 0 to 4", f.p.k_length_mode = 1, f.a.k_lengths = f.k_lengths,
          f.k_lengths[0] = 5, f.a.sizes = CLATTN_SIZES_GIVEN, f.a.batch = 1, f.a.k_len = 4);
  REFUSED(LENGTH, "prefix[1] is -1: must be >= 0", f.p.batch = 2, f.p.prefix_mode = CLATTN_PREFIX_PER_BATCH,
          f.a.prefix = f.prefix, f.prefix[1] = -1);
  REFUSED(VALUE, "prefix is -1", f.p.prefix_mode = CLATTN_PREFIX_VALUE, f.p.prefix = -1);
  REFUSED(LENGTH, "cu_seqlens_q[0] is 1: must be 0", pack_q(3), f.cu_seqlens_q[0] = 1, f.cu_seqlens_q[1] = 2);
  REFUSED(LENGTH, "cu_seqlens_k[0] is -1: must be 0", pack_k(5), f.cu_seqlens_k[0] = -1);
  REFUSED(LENGTH, "cu_seqlens_q[2] is 1: must be 2, the entry before it, to 3, the bound of all rows", f.p.batch = 2,
          pack_q(3), f.cu_seqlens_q[1] = 2, f.cu_seqlens_q[2] = 1);
  REFUSED(LENGTH, "cu_seqlens_k[2] is 6: must be 2, the entry before it, to 5, the bound of all rows", f.p.batch = 2,
          pack_k(5), f.cu_seqlens_k[1] = 2, f.cu_seqlens_k[2] = 6);
  REFUSED(LENGTH, "cu_seqlens_q[1] ends a sequence of 4 rows: must be 0 to 3", pack_q(9), f.cu_seqlens_q[1] = 4);
  REFUSED(LENGTH, "cu_seqlens_k[1] ends a sequence of 4 rows: must be 0 to 3", pack_k(9), f.cu_seqlens_k[1] = 4,
          f.a.sizes = CLATTN_SIZES_K_LEN, f.a.k_len = 3);
  REFUSED(LENGTH, "q_lengths[1] is 2: must be 0 to 1, the rows of its sequence", f.p.batch = 2, pack_q(3),
          f.p.q_length_mode = 1, f.a.q_lengths = f.q_lengths, f.cu_seqlens_q[1] = 2, f.cu_seqlens_q[2] = 3,
          f.q_lengths[1] = 2);
  REFUSED(LENGTH, "k_lengths[0] is 1: must be 0 to 0, the rows of its sequence", pack_k(5), f.p.k_length_mode = 1,
          f.a.k_lengths = f.k_lengths, f.k_lengths[0] = 1);
  REFUSED(LENGTH, "k_lengths[0] is 6: must be 0 to 5", page_kv(2, 4, 2), f.k_lengths[0] = 6);
  REFUSED(RESERVED, "sizes is 8", f.a.sizes = 8);
  REFUSED(BOUND, "batch is 2: must be 0 to 1", f.a.sizes = CLATTN_SIZES_GIVEN, f.a.batch = 2);
  REFUSED(BOUND, "q_len is 4: must be 0 to 3", f.a.sizes = CLATTN_SIZES_GIVEN, f.a.q_len = 4);
  REFUSED(BOUND, "k_len is -1: must be 0 to 5", f.a.sizes = CLATTN_SIZES_GIVEN, f.a.k_len = -1);
  REFUSED(VALUE, "row_step is -1", f.a.row_step = -1);
  REFUSED(VALUE, "row_first is 2: must be 0 to 1", f.a.row_step = 2, f.a.row_first = 2, f.a.max_logit = NULL);
  REFUSED(VALUE, "row_first is 1: must be 0 to 0", f.a.row_first = 1);
  REFUSED(VALUE, "row_first is -1", f.a.row_first = -1);
  REFUSED(VALUE, "max_logit needs all rows, but row_step is 2", f.a.row_step = 2);
  REFUSED(RESERVED, "reserved", f.a.reserved[7] = 1);
  REFUSED(RESERVED, "reserved", f.a.reserved0 = 1);
  REFUSED(OVERFLOW, "lse of shape", f.a.o = f.a.scores = NULL, f.p.batch = f.p.q_heads = 1 << 30, f.p.kv_heads = 1,
          f.p.q_len = INT64_C(2147483647), f.p.q = clattn_strided(CLATTN_F32, 0, 0, 0, 0), f.p.k = f.p.v = f.p.q,
          f.p.outputs = CLATTN_OUT_MAX_LOGIT);
  REFUSED(OVERFLOW, "results of shape (2147483647, 2147483647, 3, 1) reach beyond", f.a.scores = NULL,
          f.p.batch = f.p.q_heads = INT32_MAX, pack_q(3), f.p.k = f.p.v = clattn_strided(CLATTN_F32, 0, 0, 0, 0));

  start(3, 5);
  assert_int_equal(clattn_ref_attention(&f.p, NULL), CLATTN_ERROR_NULL_POINTER);
  assert_int_equal(clattn_ref_attention(NULL, &f.a), CLATTN_ERROR_NULL_POINTER);
  f.a.struct_size = 8;
  assert_int_equal(clattn_ref_attention(&f.p, &f.a), CLATTN_ERROR_STRUCT_SIZE);
  clattn_ref_args_init(NULL);
}

int test_ref_rules(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(alibi_is_a_bias),
      cmocka_unit_test(a_sink_takes_weight),
      cmocka_unit_test(rows_with_nothing_but_a_sink),
      cmocka_unit_test(a_sink_is_a_key_without_a_value),
      cmocka_unit_test(block_masks_by_hand),
      cmocka_unit_test(block_masks_are_keep_masks),
      cmocka_unit_test(packed_sequences_are_problems_of_their_own),
      cmocka_unit_test(packed_bounds_default_to_all_rows),
      cmocka_unit_test(pages_are_gathered),
      cmocka_unit_test(packed_queries_over_pages),
      cmocka_unit_test(batch_invariant_changes_nothing),
      cmocka_unit_test(random_problems),
      cmocka_unit_test(bad_arguments),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
