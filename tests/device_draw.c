/* SPDX-License-Identifier: Apache-2.0 */
/* Drawn problems: every rule, layout and array, combined as chance has it. */
#include "device_cases.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

typedef struct draw {
  uint64_t seed, count;
} draw;

static int64_t below(draw *d, int64_t count) {
  return (int64_t)(device_random(d->seed, 77, d->count++) * (double)count);
}

static int once_in(draw *d, int64_t count) {
  return below(d, count) == 0;
}

static int64_t one_of(draw *d, const int64_t *list, size_t count) {
  return list[below(d, (int64_t)count)];
}

/* Sizes of the problem that is being drawn. */
typedef struct sizes {
  int64_t b, hq, hkv, sq, sk, dqk, dv;
  int64_t total_q, total_k;            /* 0: not packed */
  int64_t page_size, pages, max_pages; /* 0: not paged */
} sizes;

/* Drawn problems without a mix are f32. */
static const draw_mix plain = {.q = "f32", .k = "f32", .v = "f32", .o = "f32", .bias = "f32", .words = ""};

/* Strides of a tensor in any order of axes, with gaps, and broadcast on some where that is allowed.  Axes of one
 * element at the start can be left out.  Of halves of bytes elements are side by side, and rows start on bytes. */
static void put_strides(line_text *t, draw *d, const char *layout, const int64_t shape[4], int first, int axes,
                        int may_broadcast, int halves) {
  int order[4] = {0, 1, 2, 3};
  int64_t stride[4] = {0, 0, 0, 0}, next = 1;
  for (int i = axes - 1; i > 0; --i) {
    const int other = (int)below(d, i + 1), kept = order[i];
    order[i] = order[other];
    order[other] = kept;
  }
  for (int i = 0; halves && i < axes; ++i)
    if (order[i] == 3) {
      order[i] = order[0];
      order[0] = 3;
    }
  for (int i = 0; i < axes; ++i) {
    const int axis = order[i];
    const int dense = halves && axis == 3;
    if (axis < first || (may_broadcast && !dense && once_in(d, 6)))
      continue;
    next += !dense && once_in(d, 3) ? below(d, 5) : 0;
    next += halves && !dense ? next % 2 : 0;
    stride[axis] = next;
    next *= shape[axis] > 0 ? shape[axis] : 1;
  }
  put_text(t, ":%s:%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64, layout, stride[0], stride[1], stride[2], stride[3]);
}

static void put_layout(line_text *t, draw *d, const char *key, const char *type, const int64_t shape[4], int axes,
                       int may_broadcast) {
  static const char *const names[] = {"bhsd", "bshd", "bhsd_exact", "bshd_exact"};
  const int64_t kind = below(d, 7);
  if (kind == 0 && strcmp(key, "mask") != 0 && strcmp(key, "bias") != 0 && strcmp(type, "f32") == 0)
    return;
  put_text(t, " %s=%s", key, type);
  if (kind < 5)
    put_text(t, ":%s", names[kind > 0 ? kind - 1 : 0]);
  else
    put_strides(t, d, "strided", shape, 0, axes, may_broadcast, strcmp(type, "i4") == 0);
}

/* "packed" or "paged", half of them with strides. */
static void put_far_layout(line_text *t, draw *d, const char *key, const char *type, const char *layout,
                           const int64_t shape[4], int axes, int may_broadcast) {
  const int first = strcmp(layout, "packed") == 0;
  put_text(t, " %s=%s", key, type);
  if (once_in(d, 2))
    put_strides(t, d, layout, shape, first, axes, may_broadcast, strcmp(type, "i4") == 0);
  else
    put_text(t, ":%s", layout);
}

/* Masks of bits need an element stride of 1, or 0.  rows and words: of one head. */
static void put_bit_strides(line_text *t, draw *d, int64_t hq, int64_t rows, int64_t words) {
  const int64_t row = once_in(d, 4) ? 0 : words, head = once_in(d, 4) ? 0 : words * rows + below(d, 3);
  const int64_t batch = once_in(d, 4) ? 0 : (words * rows + 3) * hq;
  put_text(t, ":strided:%" PRId64 ",%" PRId64 ",%" PRId64 ",%d", batch, head, row, below(d, 6) != 0);
}

static void put_mask(line_text *t, draw *d, const sizes *n) {
  if (once_in(d, 2)) {
    const int64_t shape[4] = {n->b, n->hq, n->sq, n->sk};
    put_layout(t, d, "mask", "u8", shape, 4, 1);
  } else {
    put_text(t, " mask=bits");
    if (once_in(d, 2))
      put_bit_strides(t, d, n->hq, n->sq, (n->sk + 31) / 32 + below(d, 2));
  }
}

static void put_block_mask(line_text *t, draw *d, const sizes *n) {
  static const char *const layouts[] = {"", ":bshd", ":bhsd_exact", ":bshd_exact"};
  static const int64_t blocks[] = {1, 2, 3, 16, 24, 64, 128, 1000};
  const int64_t block_q = one_of(d, blocks, LENGTH(blocks)), block_k = one_of(d, blocks, LENGTH(blocks));
  put_text(t, " block_q=%" PRId64 " block_k=%" PRId64 " block_mask=bits", block_q, block_k);
  if (once_in(d, 2))
    put_text(t, "%s", layouts[below(d, LENGTH(layouts))]);
  else
    put_bit_strides(t, d, n->hq, (n->sq + block_q - 1) / block_q,
                    ((n->sk + block_k - 1) / block_k + 31) / 32 + below(d, 2));
}

static unsigned draw_data(draw *d, int masked, int biased, int blocked, int sink) {
  static const unsigned masks[] = {
      0, 0, DATA_MASK_ROWS, DATA_MASK_FIRST, DATA_MASK_LAST, DATA_MASK_ALL, DATA_MASK_NONE};
  static const unsigned biases[] = {0, 0, DATA_BIAS_INF, DATA_BIAS_INF, DATA_BIAS_HUGE, DATA_BIAS_PLUS_INF};
  static const unsigned blocks[] = {0, 0, DATA_BLOCKS_FEW, DATA_BLOCKS_FIRST};
  static const unsigned sinks[] = {0, 0, DATA_SINK_NONE, DATA_SINK_MIXED, DATA_SINK_BAD};
  static const unsigned specials[] = {DATA_NAN_Q, DATA_INF_Q, DATA_NAN_K, DATA_INF_K, DATA_NAN_V, DATA_INF_V};
  unsigned data = 0;
  if (masked)
    data |= masks[below(d, LENGTH(masks))];
  if (biased)
    data |= biases[below(d, LENGTH(biases))];
  if (blocked)
    data |= blocks[below(d, LENGTH(blocks))];
  if (sink)
    data |= sinks[below(d, LENGTH(sinks))];
  while (once_in(d, 4))
    data |= specials[below(d, LENGTH(specials))];
  return data;
}

static void draw_sizes(draw *d, int size, sizes *n) {
  static const int64_t rows[] = {1, 2, 3, 5, 8, 23, 24, 25, 26, 33, 48, 49, 64, 65, 66};
  static const int64_t keys[] = {1, 2, 3, 4, 5, 7, 16, 31, 32, 33, 63, 64, 65, 70, 100, 129};
  static const int64_t dims[] = {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 40, 64};
  static const int64_t more[] = {96, 127, 128, 130, 200, 255, 257, 300};
  static const int64_t ratios[] = {1, 1, 2, 3, 5, 8};
  static const int64_t page_sizes[] = {1, 3, 16, 64, 256};
  const int64_t most = size == 0 ? 30000 : size == 1 ? 250000 : 12000000;
  memset(n, 0, sizeof *n);
  do {
    n->b = 1 + below(d, 4);
    n->hkv = 1 + below(d, 3);
    n->hq = n->hkv * one_of(d, ratios, LENGTH(ratios));
    n->sq = size == 2 ? 1 + below(d, 200) : one_of(d, rows, LENGTH(rows));
    n->sk = size == 2 ? 1 + below(d, 1500) : one_of(d, keys, LENGTH(keys));
    n->dqk = size > 0 && once_in(d, 3) ? one_of(d, more, LENGTH(more)) : one_of(d, dims, LENGTH(dims));
    n->dv = once_in(d, 2)               ? n->dqk
            : size > 0 && once_in(d, 3) ? one_of(d, more, LENGTH(more))
                                        : one_of(d, dims, LENGTH(dims));
  } while (n->b * n->hq * n->sq * n->sk * (n->dqk + n->dv) > most * 8 || n->b * n->hq * n->sq * n->sk > most);
  if (once_in(d, 4))
    n->total_q = 1 + below(d, n->b * n->sq + 2);
  if (once_in(d, 4)) {
    n->total_k = 1 + below(d, n->b * n->sk + 2);
  } else if (once_in(d, 3)) {
    n->page_size = one_of(d, page_sizes, LENGTH(page_sizes));
    n->max_pages = (n->sk + n->page_size - 1) / n->page_size + below(d, 3);
    n->pages = 1 + below(d, n->b * n->max_pages < 40 ? 2 * n->b * n->max_pages : 80);
  }
}

/* Sizes of a problem of a mix. */
static void draw_mix_sizes(draw *d, const draw_mix *mix, int crossing, sizes *n) {
  static const int64_t ratios[] = {1, 1, 2, 3, 5, 8};
  static const int64_t page_sizes[] = {1, 3, 16, 64, 256};
  /* pairs, and products: few, but what crosses tiles of long rows has to be possible */
  const int64_t most = crossing ? 200000 : 20000, tiles = 4 * mix->rows * mix->keys * (mix->least + 8);
  const int64_t products = !crossing ? 1000000 : tiles > 3000000 ? tiles : 3000000;
  memset(n, 0, sizeof *n);
  do {
    const int64_t span = mix->most - mix->least + 1, first = mix->least + below(d, once_in(d, 4) ? span : span / 4 + 1);
    const int64_t second = once_in(d, 3) ? first : 1 + below(d, once_in(d, 2) ? first : first / 8 + 1);
    const int swap = once_in(d, 2);
    n->dqk = swap ? second : first;
    n->dv = swap ? first : second;
    n->b = 1 + below(d, crossing ? 2 : 4);
    n->hkv = 1 + below(d, crossing ? 2 : 3);
    n->hq = n->hkv * (crossing ? 1 + below(d, 2) : one_of(d, ratios, LENGTH(ratios)));
    n->sq = crossing ? mix->rows + 1 + below(d, mix->rows) : 1 + below(d, once_in(d, 2) ? 8 : 2 * mix->rows);
    n->sk = crossing ? 2 * mix->keys + 1 + below(d, mix->keys / 2) : 1 + below(d, once_in(d, 2) ? 40 : 200);
    if (strstr(mix->words, "rope") != NULL && n->dqk < 2)
      n->dqk = 2;
  } while (n->b * n->hq * n->sq * n->sk * (n->dqk + n->dv) > products || n->b * n->hq * n->sq * n->sk > most);
  if (once_in(d, 4))
    n->total_q = (crossing ? n->sq : 1) + below(d, n->b * n->sq + 2);
  if (once_in(d, 4)) {
    n->total_k = (crossing ? n->sk : 1) + below(d, n->b * n->sk + 2);
  } else if (once_in(d, 3)) {
    n->page_size = one_of(d, page_sizes, LENGTH(page_sizes));
    n->max_pages = (n->sk + n->page_size - 1) / n->page_size + below(d, 3);
    n->pages = 1 + below(d, n->b * n->max_pages < 40 ? 2 * n->b * n->max_pages : 80);
  }
}

static int64_t groups(const char *type, int64_t dim) {
  return strcmp(type, "i4") == 0 ? (dim + 31) / 32 : 1;
}

/* k or v and its scales. */
static void put_keys(line_text *t, draw *d, const sizes *n, const char *key, const char *type, const char *scale,
                     int64_t dim) {
  const int packed = n->total_k > 0, paged = !packed && n->page_size > 0;
  const int64_t first = packed ? 1 : paged ? n->pages : n->b, rows = packed ? n->total_k : paged ? n->page_size : n->sk;
  const int64_t shape[4] = {first, n->hkv, rows, dim}, scales[4] = {first, n->hkv, rows, groups(type, dim)};
  char name[16] = "";
  line_text text = {name, sizeof name};
  put_text(&text, "%s_scale", key);
  if (packed || paged)
    put_far_layout(t, d, key, type, packed ? "packed" : "paged", shape, 4, 1);
  else
    put_layout(t, d, key, type, shape, 4, 1);
  if (scale != NULL && (packed || paged))
    put_far_layout(t, d, name, scale, packed ? "packed" : "paged", scales, 4, 1);
  else if (scale != NULL)
    put_layout(t, d, name, scale, scales, 4, 1);
}

static void put_tensors(line_text *t, draw *d, const draw_mix *mix, const sizes *n) {
  const int64_t q[4] = {n->b, n->hq, n->sq, n->dqk}, o[4] = {n->b, n->hq, n->sq, n->dv};
  const int64_t scores[4] = {n->b, n->hq, n->sq, n->sk};
  if (n->total_q > 0) {
    const int64_t q_rows[4] = {1, n->hq, n->total_q, n->dqk}, o_rows[4] = {1, n->hq, n->total_q, n->dv};
    put_text(t, " total_q=%" PRId64, n->total_q);
    put_far_layout(t, d, "q", mix->q, "packed", q_rows, 4, 1);
    put_far_layout(t, d, "o", mix->o, "packed", o_rows, 4, 0);
    put_far_layout(t, d, "lse", "f32", "packed", q_rows, 3, 0);
  } else {
    put_layout(t, d, "q", mix->q, q, 4, 1);
    put_layout(t, d, "o", mix->o, o, 4, 0);
    put_layout(t, d, "lse", "f32", q, 3, 0);
  }
  if (n->total_k > 0)
    put_text(t, " total_k=%" PRId64, n->total_k);
  else if (n->page_size > 0)
    put_text(t, " page_size=%" PRId64 " pages=%" PRId64 " max_pages=%" PRId64, n->page_size, n->pages, n->max_pages);
  put_keys(t, d, n, "k", mix->k, mix->k_scale, n->dqk);
  put_keys(t, d, n, "v", mix->v, mix->v_scale, n->dv);
  put_layout(t, d, "scores", "f32", scores, 4, 0);
}

static void put_position_rules(line_text *t, draw *d, const draw_mix *mix, const sizes *n) {
  static const int64_t chunks[] = {1, 3, 16, 50, 64, 1000};
  const int64_t left = below(d, n->sk + 3), right = below(d, n->sk + 3);
  if (once_in(d, 3))
    put_text(t, " causal=1");
  switch (below(d, 8)) {
  case 0:
    put_text(t, " window=%" PRId64 ",%" PRId64, left, right);
    break;
  case 1:
    put_text(t, " window=%" PRId64 ",inf", left);
    break;
  case 2:
    put_text(t, " window=inf,%" PRId64, right);
    break;
  default:
    break;
  }
  switch (below(d, 5)) {
  case 0:
    put_text(t, " off=bottom_right");
    break;
  case 1:
    if (mix != NULL && strstr(mix->words, "rope") != NULL) /* the tables start at position 0 */
      put_text(t, " off=%" PRId64, below(d, n->sk + 2));
    else
      put_text(t, " off=%" PRId64, below(d, 2 * n->sk + 2) - n->sk - 1);
    break;
  case 2:
    put_text(t, " off=per_batch");
    break;
  default:
    break;
  }
  if (once_in(d, 5))
    put_text(t, " chunk=%" PRId64, one_of(d, chunks, LENGTH(chunks)));
  switch (below(d, 8)) {
  case 0:
    put_text(t, " prefix=%" PRId64, below(d, n->sk + 3));
    break;
  case 1:
    put_text(t, " prefix=per_batch");
    break;
  default:
    break;
  }
  if (once_in(d, 4))
    put_text(t, " qlen=per_batch");
  if (n->page_size > 0 || once_in(d, 3))
    put_text(t, " klen=per_batch");
}

/* What changes scores but for the bias. */
static void put_score_rules(line_text *t, draw *d, const sizes *n, int sink) {
  static const char *const alibis[] = {"signed", "symmetric"};
  if (once_in(d, 3))
    put_text(t, " scale=%g", (4.0 * device_random(d->seed, 1, 2) - 2.0) / sqrt((double)n->dqk));
  if (once_in(d, 4))
    put_text(t, " softcap=%g", 0.5 + 9.0 * device_random(d->seed, 1, 3));
  if (once_in(d, 4)) {
    const int64_t head = 1 + below(d, 3);
    put_text(t, " alibi=%s", alibis[below(d, 2)]);
    if (once_in(d, 2))
      put_text(t, ":f32:strided:%" PRId64 ",%" PRId64 ",0,0", n->hq * head, head);
  }
  if (sink && once_in(d, 2))
    put_text(t, " sink=f32:strided:0,%" PRId64 ",0,0", 1 + below(d, 3));
  else if (sink)
    put_text(t, " sink=f32");
}

/* Rotary embedding: tables with gaps, or one for each batch entry; positions of their own, or tables that reach as far
 * as rows and keys stand. */
static void put_rope(line_text *t, draw *d, const sizes *n) {
  const int64_t dim = once_in(d, 2) ? n->dqk / 2 * 2 : 2 + 2 * below(d, n->dqk / 2);
  const int positions = once_in(d, 2);
  const int64_t lines = positions ? 1 + below(d, 2 * n->sk) : n->sq + 2 * n->sk + 2;
  put_text(t, " rope_dim=%" PRId64 " rope_positions=%" PRId64 " positions=%d", dim, lines, positions);
  if (once_in(d, 2)) {
    const int64_t element = 1 + below(d, 3), row = element * dim / 2 + below(d, 3);
    const int64_t batch = once_in(d, 2) ? row * lines + below(d, 3) : 0;
    for (int table = 0; table < 2; ++table)
      put_text(t, " rope_%s=f32:strided:%" PRId64 ",0,%" PRId64 ",%" PRId64, table ? "sin" : "cos", batch, row,
               element);
  }
}

/* Offsets beyond the tables only where they are clamped: on the device, and not checked. */
static void keep_in_tables(device_job *job) {
  const int checked = !(job->on_device >> ARRAY_Q_OFFSETS & 1) || job->check_contents;
  job_ints *offsets = &job->array[ARRAY_Q_OFFSETS];
  if (job->problem.rope == CLATTN_ROPE_NONE || job->problem.use_positions || !checked)
    return;
  for (size_t b = 0; b < offsets->count; ++b)
    offsets->entry[b] = offsets->entry[b] < 0 ? -offsets->entry[b] : offsets->entry[b];
}

/* size: 0 small, 1 some larger, 2 large. */
void draw_line(uint64_t seed, int size, const draw_mix *mix, int crossing, device_job *job) {
  draw d = {seed, 0};
  line_text t = {job->line, sizeof job->line};
  sizes n;
  if (mix != NULL)
    draw_mix_sizes(&d, mix, crossing, &n);
  else
    draw_sizes(&d, size, &n);
  put_text(&t, "b=%" PRId64 " hq=%" PRId64 " hkv=%" PRId64 " sq=%" PRId64 " sk=%" PRId64 " d=%" PRId64 " dv=%" PRId64,
           n.b, n.hq, n.hkv, n.sq, n.sk, n.dqk, n.dv);
  const int masked = once_in(&d, 2), biased = (mix != NULL && mix->biased) | once_in(&d, 2), blocked = once_in(&d, 4),
            sink = once_in(&d, 4);
  put_tensors(&t, &d, mix != NULL ? mix : &plain, &n);
  put_position_rules(&t, &d, mix, &n);
  put_score_rules(&t, &d, &n, sink);
  if (masked)
    put_mask(&t, &d, &n);
  if (blocked)
    put_block_mask(&t, &d, &n);
  if (biased) {
    const int64_t pairs[4] = {n.b, n.hq, n.sq, n.sk};
    put_layout(&t, &d, "bias", mix != NULL ? mix->bias : plain.bias, pairs, 4, 1);
  }
  if (once_in(&d, 6))
    put_text(&t, " flags=batch_invariant");
  if (mix != NULL) {
    put_text(&t, "%s", mix->words);
    if (strstr(job->line, " prefix=") != NULL && strstr(job->line, " causal=1") == NULL)
      put_text(&t, " causal=1");
    if (once_in(&d, 3))
      put_text(&t, " head_scale=f32:strided:0,%" PRId64 ",0,0", below(&d, 3));
    if (strstr(mix->words, "rope") != NULL)
      put_rope(&t, &d, &n);
    if (strstr(mix->words, "additive") != NULL && once_in(&d, 2))
      put_text(&t, " add_w=f32:strided:0,%" PRId64 ",0,%" PRId64, once_in(&d, 2) ? 2 * n.dqk + below(&d, 5) : 0,
               below(&d, 3));
  }
  job->data = draw_data(&d, masked, biased, blocked, sink);
  if (mix != NULL && once_in(&d, 8))
    job->data |= DATA_ZERO_ROWS;
  job->stages = size == 0 ? 2 : 1;
}

/* ---- arrays ---------------------------------------------------------------------------------------------------- */

static int32_t draw_length(draw *d, int64_t most) {
  const int64_t kind = below(d, 5);
  return (int32_t)(kind == 0 ? 0 : kind == 1 ? most : below(d, most + 1));
}

static void draw_starts(draw *d, int64_t batch, int64_t most, int64_t total, int first_full, job_ints *array) {
  array->given = 1;
  array->count = (size_t)batch + 1;
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t left = total - array->entry[b];
    const int32_t rows = draw_length(d, left < most ? left : most);
    array->entry[b + 1] = array->entry[b] + (b == 0 && first_full ? (int32_t)(left < most ? left : most) : rows);
  }
}

void draw_arrays(uint64_t seed, int crossing, device_job *job) {
  draw d = {seed, 100000};
  const clattn_problem *p = &job->problem;
  job_ints *array = job->array;
  clattni_sizes *n = &job->sizes;
  job->sizes_given = once_in(&d, 3);
  if (job->sizes_given) {
    n->batch = 1 + below(&d, n->batch);
    const int64_t rows = 1 + below(&d, n->q_len), keys = below(&d, n->k_len + 1);
    n->q_len = crossing ? n->q_len : rows;
    n->k_len = crossing ? n->k_len : keys;
  }
  if (clattni_packed_q(p))
    draw_starts(&d, n->batch, n->q_len, n->total_q, crossing, &array[ARRAY_CU_Q]);
  if (clattni_packed_k(p))
    draw_starts(&d, n->batch, n->k_len, n->total_k, crossing, &array[ARRAY_CU_K]);
  array[ARRAY_Q_LENGTHS].given = p->q_length_mode == CLATTN_LENGTH_PER_BATCH;
  array[ARRAY_K_LENGTHS].given = p->k_length_mode == CLATTN_LENGTH_PER_BATCH;
  array[ARRAY_Q_OFFSETS].given = p->offset_mode == CLATTN_OFFSET_PER_BATCH;
  array[ARRAY_PREFIX].given = p->prefix_mode == CLATTN_PREFIX_PER_BATCH;
  for (int a = ARRAY_Q_LENGTHS; a <= ARRAY_PREFIX; ++a)
    array[a].count = array[a].given ? (size_t)n->batch : 0;
  for (int64_t b = 0; b < n->batch; ++b) {
    array[ARRAY_Q_LENGTHS].entry[b] = draw_length(&d, job_q_rows(job, b));
    array[ARRAY_K_LENGTHS].entry[b] = draw_length(&d, job_k_rows(job, b));
    array[ARRAY_Q_OFFSETS].entry[b] = (int32_t)(below(&d, 2 * job->resolved.k_len + 2) - job->resolved.k_len - 1);
    array[ARRAY_PREFIX].entry[b] = draw_length(&d, job->resolved.k_len + 2);
  }
  if (crossing) {
    array[ARRAY_Q_LENGTHS].entry[0] = (int32_t)job_q_rows(job, 0);
    array[ARRAY_K_LENGTHS].entry[0] = (int32_t)job_k_rows(job, 0);
  }
  switch (below(&d, 4)) {
  case 0:
    job->on_device = ON_DEVICE_ALL;
    break;
  case 1: /* some here, some there */
    job->on_device = (unsigned)below(&d, ON_DEVICE_ALL + 1);
    break;
  default:
    break;
  }
  if (once_in(&d, 2))
    job->on_device |= ON_DEVICE_WILD;
  else
    job->check_contents = once_in(&d, 2);
  keep_in_tables(job);
}
