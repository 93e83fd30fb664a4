/* SPDX-License-Identifier: Apache-2.0 */
/* Attention in double precision, one row at a time, one function per step:
 *
 *   1 raw scores     s_j = similarity(q, k_j) * scale * head_scale, q and k_j rotated first where rope asks for it
 *   2 softcap        s_j = softcap * tanh(s_j / softcap)
 *   3 bias, hook     s_j = score_hook(s_j + bias_j + alibi), alibi = slope * (j - p) or -slope * |j - p|
 *   4 rules          which keys are kept; the others can't influence anything below, whatever they hold
 *   5 softmax        weight_j = exp(s_j - m) / l over the kept keys and the sink, m the largest of their scores, l the
 *                    sum of exp(s_j - m)
 *   6 weighted sum   o = sum of weight_j * v_j over the kept keys
 *
 * Nothing here is clever: this file is what the kernels are compared with. */
#include "clattn_ref.h"

#include "dtype.h"
#include "problem.h"
#include "status.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Everything that is the same for all rows. */
typedef struct work {
  clattn_problem problem; /* with its defaults filled in */
  clattn_ref_args args;
  clattni_sizes sizes;
  int64_t stride[CLATTNI_SLOTS][4];
} work;

/* One query row, and room for one number per key. */
typedef struct query_row {
  int64_t b, h, i;      /* batch entry, query head, query row */
  int64_t h_kv;         /* the key and value head that serves h */
  int64_t position;     /* p: i on the key axis */
  int64_t q_len, k_len; /* of the batch entry */
  int64_t keys;         /* keys that exist for this row: k_len[b], or 0 beyond q_len[b] */
  int64_t first, end;   /* keys first <= j < end pass the length, causal, window and chunk rules */
  double *q;            /* the query, qk_dim numbers; cosine: of length 1 */
  double *key;          /* likewise the key at hand */
  double *raw;          /* step 1 */
  double *score;        /* steps 2 and 3; after step 4 -inf for a key that is not kept */
  double *weight;       /* step 5 */
  unsigned char *kept;  /* step 4 */
  double sink_weight;   /* step 5; 0 without a sink */
  double lse;           /* step 5 */
} query_row;

/* ---- reading tensors ------------------------------------------------------------------------------------------- */

static int64_t place(const work *w, clattni_slot slot, int64_t b, int64_t h, int64_t r, int64_t e) {
  const int64_t *stride = w->stride[slot];
  return b * stride[0] + h * stride[1] + r * stride[2] + e * stride[3];
}

static double load(const work *w, clattni_slot slot, const void *base, int64_t b, int64_t h, int64_t r, int64_t e) {
  return clattni_dtype_load(clattni_slot_tensor(&w->problem, slot)->dtype, base, place(w, slot, b, h, r, e));
}

/* Element d of the query of a row. */
static double load_query(const work *w, const query_row *row, int64_t d) {
  if (clattni_packed_q(&w->problem))
    return load(w, CLATTNI_Q, w->args.q, 0, row->h, w->args.cu_seqlens_q[row->b] + row->i, d);
  return load(w, CLATTNI_Q, w->args.q, row->b, row->h, row->i, d);
}

/* Element d of key j, in k, v or their scales, wherever it lies. */
static double load_of_key(const work *w, clattni_slot slot, const void *base, const query_row *row, int64_t j,
                          int64_t d) {
  if (clattni_packed_k(&w->problem))
    return load(w, slot, base, 0, row->h_kv, w->args.cu_seqlens_k[row->b] + j, d);
  if (clattni_paged(&w->problem)) {
    const int64_t size = w->problem.page_size, last = w->problem.num_pages - 1;
    int64_t page = w->args.page_table[row->b * w->problem.max_pages + j / size];
    page = page < 0 ? 0 : page > last ? last : page;
    return load(w, slot, base, page, row->h_kv, j % size, d);
  }
  return load(w, slot, base, row->b, row->h_kv, j, d);
}

/* The number that quantised elements are multiplied by, exactly; 1 for those that are numbers by themselves. */
static double scale_of_key(const work *w, clattn_dtype dtype, clattni_slot slot, const void *base, const query_row *row,
                           int64_t j, int64_t d) {
  if (!clattni_quantised(dtype))
    return 1.0;
  return load_of_key(w, slot, base, row, j, dtype == CLATTN_I4 ? d / CLATTNI_I4_GROUP : 0);
}

static double load_k(const work *w, const query_row *row, int64_t j, int64_t d) {
  return scale_of_key(w, w->problem.k.dtype, CLATTNI_K_SCALE, w->args.k_scale, row, j, d) *
         load_of_key(w, CLATTNI_K, w->args.k, row, j, d);
}

static double load_v(const work *w, const query_row *row, int64_t j, int64_t d) {
  return scale_of_key(w, w->problem.v.dtype, CLATTNI_V_SCALE, w->args.v_scale, row, j, d) *
         load_of_key(w, CLATTNI_V, w->args.v, row, j, d);
}

/* Bit n of a line of bits, 32 in a word. */
static int bit_is_set(const work *w, clattni_slot slot, const void *base, const query_row *row, int64_t r, int64_t n) {
  uint32_t word;
  const int one_bit_for_all = w->stride[slot][3] == 0;
  const int64_t at = place(w, slot, row->b, row->h, r, n / 32);
  memcpy(&word, (const unsigned char *)base + (size_t)at * sizeof word, sizeof word);
  return ((word >> (one_bit_for_all ? 0 : n % 32)) & 1u) != 0;
}

static int keep_mask_keeps(const work *w, const query_row *row, int64_t j) {
  const unsigned char *mask = w->args.keep_mask;
  if (w->problem.keep_mask_kind == CLATTN_MASK_NONE)
    return 1;
  if (w->problem.keep_mask_kind == CLATTN_MASK_U8)
    return mask[place(w, CLATTNI_KEEP_MASK, row->b, row->h, row->i, j)] != 0;
  return bit_is_set(w, CLATTNI_KEEP_MASK, mask, row, row->i, j);
}

static int block_mask_keeps(const work *w, const query_row *row, int64_t j) {
  if (w->problem.block_mask_kind == CLATTN_MASK_NONE)
    return 1;
  return bit_is_set(w, CLATTNI_BLOCK_MASK, w->args.block_mask, row, row->i / w->problem.block_q,
                    j / w->problem.block_k);
}

/* ---- the steps ------------------------------------------------------------------------------------------------- */

/* The larger one; a NaN `a` makes it NaN, which fmax or a plain comparison would lose. */
static double larger(double a, double b) {
  return isnan(a) || a > b ? a : b;
}

static double dot(const double *a, const double *b, int64_t dim) {
  double sum = 0.0;
  for (int64_t d = 0; d < dim; d++)
    sum += a[d] * b[d];
  return sum;
}

/* Turns the pairs of x by the angles of a position, clamped to those that the tables have. */
static void rotate(const work *w, int64_t b, int64_t position, double *x) {
  const int64_t pairs = w->problem.rope_dim / 2, last = w->problem.rope_positions - 1;
  const int64_t t = position < 0 ? 0 : position > last ? last : position;
  for (int64_t n = 0; n < pairs; n++) {
    const int64_t first = w->problem.rope == CLATTN_ROPE_HALF ? n : 2 * n;
    const int64_t second = w->problem.rope == CLATTN_ROPE_HALF ? n + pairs : 2 * n + 1;
    const double cosine = load(w, CLATTNI_ROPE_COS, w->args.rope_cos, b, 0, t, n);
    const double sine = load(w, CLATTNI_ROPE_SIN, w->args.rope_sin, b, 0, t, n);
    const double a = x[first], c = x[second];
    x[first] = a * cosine - c * sine;
    x[second] = a * sine + c * cosine;
  }
}

static void rotate_query(const work *w, query_row *row) {
  const int64_t start = clattni_packed_q(&w->problem) ? w->args.cu_seqlens_q[row->b] : row->b * w->sizes.q_len;
  rotate(w, row->b, w->problem.use_positions ? w->args.positions_q[start + row->i] : row->position, row->q);
}

static void rotate_key(const work *w, query_row *row, int64_t j) {
  const int64_t start = clattni_packed_k(&w->problem) ? w->args.cu_seqlens_k[row->b] : row->b * w->sizes.k_len;
  rotate(w, row->b, w->problem.use_positions ? w->args.positions_k[start + j] : j, row->key);
}

/* x / max(|x|, 1e-12): a vector of zeros stays one. */
static void normalise(double *x, int64_t dim) {
  const double length = larger(sqrt(dot(x, x, dim)), 1e-12);
  for (int64_t d = 0; d < dim; d++)
    x[d] /= length;
}

/* Of row->q and row->key, which are of length 1 for cosine. */
static double similarity(const work *w, const query_row *row) {
  if (w->problem.similarity != CLATTN_ADDITIVE)
    return dot(row->q, row->key, w->problem.qk_dim);
  double sum = 0.0;
  for (int64_t d = 0; d < w->problem.qk_dim; d++)
    sum += load(w, CLATTNI_ADD_W, w->args.add_w, 0, row->h, 0, d) * tanh(row->q[d] + row->key[d]);
  return sum;
}

static void step1_raw_scores(const work *w, query_row *row) {
  const int64_t dim = w->problem.qk_dim;
  const double head_scale =
      w->problem.use_head_scale ? load(w, CLATTNI_HEAD_SCALE, w->args.head_scale, 0, row->h, 0, 0) : 1.0;
  for (int64_t d = 0; d < dim && row->keys > 0; d++)
    row->q[d] = load_query(w, row, d);
  if (w->problem.rope != CLATTN_ROPE_NONE && row->keys > 0)
    rotate_query(w, row);
  if (w->problem.similarity == CLATTN_COSINE)
    normalise(row->q, dim);
  for (int64_t j = 0; j < row->keys; j++) {
    for (int64_t d = 0; d < dim; d++)
      row->key[d] = load_k(w, row, j, d);
    if (w->problem.rope != CLATTN_ROPE_NONE)
      rotate_key(w, row, j);
    if (w->problem.similarity == CLATTN_COSINE)
      normalise(row->key, dim);
    row->raw[j] = similarity(w, row) * (double)w->problem.scale * head_scale;
  }
}

static void step2_softcap(const work *w, query_row *row) {
  const double cap = (double)w->problem.softcap;
  for (int64_t j = 0; j < row->keys; j++)
    row->score[j] = cap > 0.0 ? cap * tanh(row->raw[j] / cap) : row->raw[j];
}

static void step3_bias(const work *w, query_row *row) {
  for (int64_t j = 0; j < row->keys && w->problem.use_bias; j++)
    row->score[j] += load(w, CLATTNI_BIAS, w->args.bias, row->b, row->h, row->i, j);
  if (w->problem.alibi == CLATTN_ALIBI_NONE)
    return;
  const double slope = load(w, CLATTNI_ALIBI_SLOPES, w->args.alibi_slopes, row->b, row->h, 0, 0);
  for (int64_t j = 0; j < row->keys; j++) {
    const double distance = (double)(j - row->position);
    row->score[j] += slope * (w->problem.alibi == CLATTN_ALIBI_SIGNED ? distance : -fabs(distance));
  }
}

static clattn_ref_at hook_at(const query_row *row, int64_t j) {
  const clattn_ref_at at = {row->b, row->h, row->h_kv, row->i, j, row->position, row->q_len, row->k_len};
  return at;
}

static void step3_hook(const work *w, query_row *row) {
  for (int64_t j = 0; j < row->keys && w->args.score_hook != NULL; j++) {
    const clattn_ref_at at = hook_at(row, j);
    row->score[j] = w->args.score_hook(w->args.hook_user, row->score[j], &at);
  }
}

static int hook_keeps(const work *w, const query_row *row, int64_t j) {
  const clattn_ref_at at = hook_at(row, j);
  return w->args.keep_hook == NULL || w->args.keep_hook(w->args.hook_user, &at) != 0;
}

static void step4_rules(const work *w, query_row *row) {
  for (int64_t j = 0; j < row->keys; j++) {
    row->kept[j] = j >= row->first && j < row->end && keep_mask_keeps(w, row, j) && block_mask_keeps(w, row, j) &&
                   hook_keeps(w, row, j) && row->score[j] != -(double)INFINITY;
    if (!row->kept[j])
      row->score[j] = -(double)INFINITY;
  }
}

/* A largest score of +inf or NaN needs no case of its own: exp(s - m) is then NaN, for that key or for all, and so
 * are l, every weight and lse.  The same holds of the sink. */
static void step5_softmax(const work *w, query_row *row) {
  const double sink = w->problem.use_sink ? load(w, CLATTNI_SINK, w->args.sink, 0, row->h, 0, 0) : -(double)INFINITY;
  double m = sink, l = 0.0;
  for (int64_t j = 0; j < row->keys; j++) {
    if (row->kept[j])
      m = larger(m, row->score[j]);
  }
  for (int64_t j = 0; j < row->keys; j++) {
    row->weight[j] = row->kept[j] ? exp(row->score[j] - m) : 0.0;
    l += row->weight[j];
  }
  row->sink_weight = sink != -(double)INFINITY ? exp(sink - m) : 0.0;
  l += row->sink_weight;
  for (int64_t j = 0; j < row->keys; j++) {
    if (row->kept[j])
      row->weight[j] /= l;
  }
  if (sink != -(double)INFINITY)
    row->sink_weight /= l;
  row->lse = m + log(l); /* with neither a kept key nor a sink -inf + -inf */
}

static void step6_weighted_sum(const work *w, const query_row *row, double *o) {
  for (int64_t d = 0; d < w->problem.v_dim; d++)
    o[d] = row->sink_weight * 0.0; /* the sink has no value, but a NaN of it reaches rows without keys, too */
  for (int64_t j = 0; j < row->keys; j++) {
    if (!row->kept[j])
      continue; /* its v may be NaN, and 0 * NaN is NaN */
    for (int64_t d = 0; d < w->problem.v_dim; d++)
      o[d] += row->weight[j] * load_v(w, row, j, d);
  }
}

/* ---- one row --------------------------------------------------------------------------------------------------- */

/* Rows of a batch entry: its length, or the whole of its packed sequence, or what this call gives all. */
static int64_t rows_of(const int32_t *lengths, const int32_t *cu_seqlens, int64_t b, int64_t size) {
  if (lengths != NULL)
    return lengths[b];
  return cu_seqlens != NULL ? (int64_t)cu_seqlens[b + 1] - cu_seqlens[b] : size;
}

static void start_row(const work *w, query_row *row, int64_t index) {
  const clattn_ref_args *args = &w->args;
  row->i = index % w->sizes.q_len;
  row->h = index / w->sizes.q_len % w->problem.q_heads;
  row->b = index / w->sizes.q_len / w->problem.q_heads;
  row->h_kv = row->h / (w->problem.q_heads / w->problem.kv_heads);

  clattni_row_rules rules;
  rules.q_len = rows_of(args->q_lengths, args->cu_seqlens_q, row->b, w->sizes.q_len);
  rules.k_len = rows_of(args->k_lengths, args->cu_seqlens_k, row->b, w->sizes.k_len);
  rules.prefix = w->problem.prefix_mode == CLATTN_PREFIX_PER_BATCH ? args->prefix[row->b]
                 : w->problem.prefix_mode == CLATTN_PREFIX_VALUE   ? w->problem.prefix
                                                                   : 0;
  rules.offset = clattni_offset(&w->problem, rules.q_len, rules.k_len, args->q_offsets != NULL,
                                args->q_offsets != NULL ? args->q_offsets[row->b] : 0);
  row->q_len = rules.q_len;
  row->k_len = rules.k_len;
  row->position = row->i + rules.offset;
  row->keys = row->i < rules.q_len ? rules.k_len : 0;
  clattni_row_interval(&w->problem, &rules, row->i, &row->first, &row->end);
}

/* One line of `scores`: n numbers, then the filler for keys that do not exist for this row. */
static void write_scores(const work *w, const query_row *row, int64_t index, const double *from, double filler) {
  double *line = w->args.scores + index * w->sizes.k_len;
  for (int64_t j = 0; j < w->sizes.k_len; j++)
    line[j] = j < row->keys ? from[j] : filler;
}

/* The largest raw score over the kept pairs of a head. */
static void update_max_logit(const work *w, const query_row *row) {
  double *largest = &w->args.max_logit[row->b * w->problem.q_heads + row->h];
  for (int64_t j = 0; j < row->keys; j++) {
    if (row->kept[j])
      *largest = larger(*largest, row->raw[j]);
  }
}

static void compute_row(const work *w, query_row *row, int64_t index) {
  const clattn_ref_args *args = &w->args;
  const clattn_stage stage = args->scores != NULL ? w->problem.stage : -1;
  start_row(w, row, index);
  step1_raw_scores(w, row);
  if (stage == CLATTN_STAGE_RAW)
    write_scores(w, row, index, row->raw, -(double)INFINITY);
  step2_softcap(w, row);
  if (stage == CLATTN_STAGE_SOFTCAP)
    write_scores(w, row, index, row->score, -(double)INFINITY);
  step3_bias(w, row);
  step3_hook(w, row);
  step4_rules(w, row);
  if (stage == CLATTN_STAGE_MASKED)
    write_scores(w, row, index, row->score, -(double)INFINITY);
  step5_softmax(w, row);
  if (stage == CLATTN_STAGE_WEIGHTS)
    write_scores(w, row, index, row->weight, 0.0);
  if (args->lse != NULL)
    args->lse[index] = row->lse;
  if (args->o != NULL)
    step6_weighted_sum(w, row, args->o + index * w->problem.v_dim);
  if (args->max_logit != NULL)
    update_max_logit(w, row);
}

/* ---- arguments ------------------------------------------------------------------------------------------------- */

static clattn_status check_sizes(const clattn_ref_args *args, const clattn_problem *problem, clattni_sizes *sizes) {
  const struct {
    const char *name;
    uint32_t bit;
    int64_t value, bound;
    int64_t *out;
  } axes[] = {{"batch", CLATTN_SIZES_BATCH, args->batch, problem->batch, &sizes->batch},
              {"q_len", CLATTN_SIZES_Q_LEN, args->q_len, problem->q_len, &sizes->q_len},
              {"k_len", CLATTN_SIZES_K_LEN, args->k_len, problem->k_len, &sizes->k_len}};
  *sizes = clattni_bounds(problem);
  if (args->sizes > CLATTN_SIZES_GIVEN)
    return clattni_fail(args->error, CLATTN_ERROR_RESERVED, "sizes is %" PRIu32 ": must hold CLATTN_SIZES_ bits",
                        args->sizes);
  for (size_t n = 0; n < sizeof axes / sizeof axes[0]; n++) {
    *axes[n].out = args->sizes & axes[n].bit ? axes[n].value : axes[n].bound;
    if (*axes[n].out < 0 || *axes[n].out > axes[n].bound)
      return clattni_fail(args->error, CLATTN_ERROR_BOUND,
                          "%s is %" PRId64 ": must be 0 to %" PRId64 ", the problem's bound", axes[n].name,
                          *axes[n].out, axes[n].bound);
  }
  return CLATTN_SUCCESS;
}

/* Tensors without elements may be NULL. */
static clattn_status check_inputs(const work *w) {
  const struct {
    clattni_slot slot;
    const void *base;
    int wanted;
  } inputs[] = {
      {CLATTNI_Q, w->args.q, 1},
      {CLATTNI_K, w->args.k, 1},
      {CLATTNI_V, w->args.v, w->args.o != NULL},
      {CLATTNI_BIAS, w->args.bias, w->problem.use_bias != 0},
      {CLATTNI_KEEP_MASK, w->args.keep_mask, w->problem.keep_mask_kind != CLATTN_MASK_NONE},
      {CLATTNI_BLOCK_MASK, w->args.block_mask, w->problem.block_mask_kind != CLATTN_MASK_NONE},
      {CLATTNI_ALIBI_SLOPES, w->args.alibi_slopes, w->problem.alibi != CLATTN_ALIBI_NONE},
      {CLATTNI_SINK, w->args.sink, w->problem.use_sink != 0},
      {CLATTNI_PAGE_TABLE, w->args.page_table, clattni_paged(&w->problem)},
      {CLATTNI_HEAD_SCALE, w->args.head_scale, w->problem.use_head_scale != 0},
      {CLATTNI_ADD_W, w->args.add_w, w->problem.similarity == CLATTN_ADDITIVE},
      {CLATTNI_K_SCALE, w->args.k_scale, clattni_quantised(w->problem.k.dtype)},
      {CLATTNI_V_SCALE, w->args.v_scale, w->args.o != NULL && clattni_quantised(w->problem.v.dtype)},
      {CLATTNI_ROPE_COS, w->args.rope_cos, w->problem.rope != CLATTN_ROPE_NONE},
      {CLATTNI_ROPE_SIN, w->args.rope_sin, w->problem.rope != CLATTN_ROPE_NONE},
      {CLATTNI_POSITIONS_Q, w->args.positions_q, clattni_slot_used(&w->problem, CLATTNI_POSITIONS_Q)},
      {CLATTNI_POSITIONS_K, w->args.positions_k, clattni_slot_used(&w->problem, CLATTNI_POSITIONS_K)},
  };
  for (size_t n = 0; n < sizeof inputs / sizeof inputs[0]; n++) {
    const char *name = clattni_slot_name(inputs[n].slot);
    const int optional = inputs[n].slot == CLATTNI_V || /* not read without o */
                         (inputs[n].slot == CLATTNI_V_SCALE && clattni_quantised(w->problem.v.dtype));
    int64_t shape[4];
    clattni_slot_shape(&w->problem, &w->sizes, inputs[n].slot, shape);
    const int empty = shape[0] == 0 || shape[1] == 0 || shape[2] == 0 || shape[3] == 0;
    if (inputs[n].wanted && inputs[n].base == NULL && !empty)
      return clattni_fail(w->args.error, CLATTN_ERROR_NULL_POINTER, "%s is NULL", name);
    if (!inputs[n].wanted && inputs[n].base != NULL && !optional)
      return clattni_fail(w->args.error, CLATTN_ERROR_TENSOR_UNUSED, "%s is given, but the problem does not use it",
                          name);
  }
  return CLATTN_SUCCESS;
}

static clattn_status check_hooks(const clattn_problem *problem, const clattn_ref_args *args) {
  if (problem->hook != NULL && args->score_hook == NULL && args->keep_hook == NULL)
    return clattni_fail(args->error, CLATTN_ERROR_NULL_POINTER,
                        "score_hook and keep_hook are NULL: the problem has a hook, so one is needed");
  if (problem->hook == NULL && (args->score_hook != NULL || args->keep_hook != NULL))
    return clattni_fail(args->error, CLATTN_ERROR_TENSOR_UNUSED, "%s is given, but the problem has no hook",
                        args->score_hook != NULL ? "score_hook" : "keep_hook");
  return CLATTN_SUCCESS;
}

/* 0 to `most`, or to the rows of the packed sequence. */
static clattn_status check_lengths(const work *w, const char *name, const int32_t *entries, const int32_t *cu_seqlens,
                                   int64_t most) {
  for (int64_t b = 0; entries != NULL && b < w->sizes.batch; b++) {
    const int64_t rows = rows_of(NULL, cu_seqlens, b, most);
    if (entries[b] < 0 || entries[b] > rows)
      return clattni_fail(w->args.error, CLATTN_ERROR_LENGTH,
                          "%s[%" PRId64 "] is %" PRId32 ": must be 0 to %" PRId64 "%s", name, b, entries[b], rows,
                          cu_seqlens != NULL ? ", the rows of its sequence" : "");
  }
  return CLATTN_SUCCESS;
}

static clattn_status check_cu_seqlens(const work *w, const char *name, const int32_t *entries, int64_t most,
                                      int64_t total) {
  if (entries == NULL)
    return CLATTN_SUCCESS;
  if (entries[0] != 0)
    return clattni_fail(w->args.error, CLATTN_ERROR_LENGTH, "%s[0] is %" PRId32 ": must be 0", name, entries[0]);
  for (int64_t b = 0; b < w->sizes.batch; b++) {
    const int64_t start = entries[b], end = entries[b + 1];
    if (end < start || end > total)
      return clattni_fail(w->args.error, CLATTN_ERROR_LENGTH,
                          "%s[%" PRId64 "] is %" PRId64 ": must be %" PRId64 ", the entry before it, to %" PRId64
                          ", the bound of all rows",
                          name, b + 1, end, start, total);
    if (end - start > most)
      return clattni_fail(w->args.error, CLATTN_ERROR_LENGTH,
                          "%s[%" PRId64 "] ends a sequence of %" PRId64 " rows: must be 0 to %" PRId64, name, b + 1,
                          end - start, most);
  }
  return CLATTN_SUCCESS;
}

static clattn_status check_prefix(const work *w) {
  for (int64_t b = 0; w->args.prefix != NULL && b < w->sizes.batch; b++) {
    if (w->args.prefix[b] < 0)
      return clattni_fail(w->args.error, CLATTN_ERROR_LENGTH, "prefix[%" PRId64 "] is %" PRId32 ": must be >= 0", b,
                          w->args.prefix[b]);
  }
  return CLATTN_SUCCESS;
}

static clattn_status check_arrays(const work *w) {
  const clattn_problem *p = &w->problem;
  const struct {
    const char *name;
    const int32_t *entries;
    int needed, allowed;
  } arrays[] = {
      {"q_lengths", w->args.q_lengths, p->q_length_mode == CLATTN_LENGTH_PER_BATCH,
       p->q_length_mode == CLATTN_LENGTH_PER_BATCH},
      {"k_lengths", w->args.k_lengths, p->k_length_mode == CLATTN_LENGTH_PER_BATCH,
       p->k_length_mode == CLATTN_LENGTH_PER_BATCH},
      {"q_offsets", w->args.q_offsets, p->offset_mode == CLATTN_OFFSET_PER_BATCH,
       p->offset_mode == CLATTN_OFFSET_PER_BATCH || p->offset_mode == CLATTN_OFFSET_VALUE},
      {"prefix", w->args.prefix, p->prefix_mode == CLATTN_PREFIX_PER_BATCH, p->prefix_mode == CLATTN_PREFIX_PER_BATCH},
      {"cu_seqlens_q", w->args.cu_seqlens_q, clattni_packed_q(p), clattni_packed_q(p)},
      {"cu_seqlens_k", w->args.cu_seqlens_k, clattni_packed_k(p), clattni_packed_k(p)},
  };
  for (size_t n = 0; n < sizeof arrays / sizeof arrays[0]; n++) {
    if (arrays[n].needed && arrays[n].entries == NULL && w->sizes.batch > 0)
      return clattni_fail(w->args.error, CLATTN_ERROR_NULL_POINTER, "%s is NULL", arrays[n].name);
    if (!arrays[n].allowed && arrays[n].entries != NULL)
      return clattni_fail(w->args.error, CLATTN_ERROR_TENSOR_UNUSED, "%s is given, but the problem does not use it",
                          arrays[n].name);
  }
  const clattn_ref_args *args = &w->args;
  clattn_status status;
  if ((status = check_cu_seqlens(w, "cu_seqlens_q", args->cu_seqlens_q, w->sizes.q_len, p->total_q)) !=
          CLATTN_SUCCESS ||
      (status = check_cu_seqlens(w, "cu_seqlens_k", args->cu_seqlens_k, w->sizes.k_len, p->total_k)) !=
          CLATTN_SUCCESS ||
      (status = check_lengths(w, "q_lengths", args->q_lengths, args->cu_seqlens_q, w->sizes.q_len)) != CLATTN_SUCCESS ||
      (status = check_lengths(w, "k_lengths", args->k_lengths, args->cu_seqlens_k, w->sizes.k_len)) != CLATTN_SUCCESS)
    return status;
  return check_prefix(w);
}

static clattn_status check_sampling(const clattn_ref_args *args) {
  const int64_t step = args->row_step > 1 ? args->row_step : 1;
  if (args->row_step < 0)
    return clattni_fail(args->error, CLATTN_ERROR_VALUE, "row_step is %" PRId64 ": must be >= 0", args->row_step);
  if (args->row_first < 0 || args->row_first >= step)
    return clattni_fail(args->error, CLATTN_ERROR_VALUE,
                        "row_first is %" PRId64 ": must be 0 to %" PRId64 ", below row_step", args->row_first,
                        step - 1);
  if (step > 1 && args->max_logit != NULL)
    return clattni_fail(args->error, CLATTN_ERROR_VALUE, "max_logit needs all rows, but row_step is %" PRId64, step);
  return CLATTN_SUCCESS;
}

static clattn_status check_reserved(const clattn_ref_args *args) {
  uint32_t any = args->reserved0;
  for (size_t n = 0; n < sizeof args->reserved / sizeof args->reserved[0]; n++)
    any |= args->reserved[n];
  return any == 0 ? CLATTN_SUCCESS
                  : clattni_fail(args->error, CLATTN_ERROR_RESERVED, "a reserved word of the arguments is not zero");
}

/* The problem may ask for other results than the caller wants here: what these need is checked too (v for o, and that
 * all rows can be counted). */
static clattn_status check_results(const clattn_problem *problem, const clattn_ref_args *args) {
  static const clattn_tensor contiguous = {CLATTN_F32, CLATTN_LAYOUT_BHSD, {0, 0, 0, 0}, {0, 0}};
  static const clattn_tensor packed = {CLATTN_F32, CLATTN_LAYOUT_PACKED, {0, 0, 0, 0}, {0, 0}};
  clattn_problem wanted = *problem;
  wanted.outputs = CLATTN_OUT_LSE;
  wanted.outputs |= args->o != NULL ? (uint32_t)CLATTN_OUT_O : 0u;
  wanted.outputs |= args->scores != NULL ? (uint32_t)CLATTN_OUT_SCORES : 0u;
  wanted.o = wanted.lse = clattni_packed_q(problem) ? packed : contiguous;
  wanted.scores = contiguous;
  wanted.alignment = 0;
  return clattn_problem_check(&wanted, args->error);
}

/* Results of packed queries are laid out for sequences of q_len rows each, so more than the tensors hold. */
static clattn_status check_result_size(const work *w) {
  const int64_t o = w->args.o != NULL ? w->problem.v_dim : 1, scores = w->args.scores != NULL ? w->sizes.k_len : 1;
  const int64_t axes[] = {w->sizes.batch, w->problem.q_heads, w->sizes.q_len, o > scores ? o : scores};
  int64_t room = INT64_MAX / (int64_t)sizeof(double);
  for (size_t n = 0; n < sizeof axes / sizeof axes[0]; n++)
    room /= axes[n] > 0 ? axes[n] : 1;
  return room > 0 ? CLATTN_SUCCESS
                  : clattni_fail(w->args.error, CLATTN_ERROR_OVERFLOW,
                                 "results of shape (%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
                                 ") reach beyond 2^63 - 1 bytes",
                                 axes[0], axes[1], axes[2], axes[3]);
}

static clattn_status prepare(work *w, const clattn_problem *problem, const clattn_ref_args *args) {
  clattn_status status = clattn_problem_check(problem, args->error);
  if (status != CLATTN_SUCCESS)
    return status;
  w->args = *args;
  clattni_problem_resolve(problem, &w->problem);
  if ((status = check_results(problem, args)) != CLATTN_SUCCESS || (status = check_reserved(args)) != CLATTN_SUCCESS ||
      (status = check_sizes(args, &w->problem, &w->sizes)) != CLATTN_SUCCESS ||
      (status = check_result_size(w)) != CLATTN_SUCCESS || (status = check_inputs(w)) != CLATTN_SUCCESS ||
      (status = check_hooks(problem, args)) != CLATTN_SUCCESS || (status = check_arrays(w)) != CLATTN_SUCCESS ||
      (status = check_sampling(args)) != CLATTN_SUCCESS)
    return status;
  for (clattni_slot slot = 0; slot < CLATTNI_SLOTS; slot++)
    clattni_slot_strides(&w->problem, &w->sizes, slot, w->stride[slot]);
  return CLATTN_SUCCESS;
}

void clattn_ref_args_init(clattn_ref_args *args) {
  if (args == NULL)
    return;
  memset(args, 0, sizeof *args);
  args->struct_size = sizeof *args;
}

clattn_status clattn_ref_attention(const clattn_problem *problem, const clattn_ref_args *args) {
  if (args == NULL)
    return CLATTN_ERROR_NULL_POINTER;
  if (args->struct_size != sizeof *args)
    return CLATTN_ERROR_STRUCT_SIZE; /* so args->error may not be where it seems */

  work w;
  query_row row = {0};
  clattn_status status = prepare(&w, problem, args);
  if (status != CLATTN_SUCCESS)
    return status;

  /* One number per key and array; a spare one, so that k_len = 0 asks for no empty memory. */
  const size_t keys = (size_t)w.sizes.k_len + 1;
  row.q = calloc((size_t)w.problem.qk_dim, sizeof *row.q);
  row.key = calloc((size_t)w.problem.qk_dim, sizeof *row.key);
  row.raw = calloc(keys, sizeof *row.raw);
  row.score = calloc(keys, sizeof *row.score);
  row.weight = calloc(keys, sizeof *row.weight);
  row.kept = calloc(keys, sizeof *row.kept);
  if (row.q == NULL || row.key == NULL || row.raw == NULL || row.score == NULL || row.weight == NULL ||
      row.kept == NULL) {
    status =
        clattni_fail(args->error, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for rows of %" PRId64 " keys", w.sizes.k_len);
    goto done;
  }

  const int64_t heads = w.sizes.batch * w.problem.q_heads;
  for (int64_t n = 0; n < heads && args->max_logit != NULL; n++)
    args->max_logit[n] = -(double)INFINITY;

  const int64_t rows = heads * w.sizes.q_len;
  const int64_t step = args->row_step > 1 ? args->row_step : 1;
  for (int64_t r = args->row_first; r < rows; r += step) {
    compute_row(&w, &row, r);
    if (step >= rows - r)
      break; /* r + step could overflow */
  }

done:
  free(row.q);
  free(row.key);
  free(row.raw);
  free(row.score);
  free(row.weight);
  free(row.kept);
  return status;
}
