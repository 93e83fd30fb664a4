/* SPDX-License-Identifier: Apache-2.0 */
/* Fused attention for CPUs with AMX, which multiplies tiles of bf16: q, k and v are bf16, sums are f32.  The layout is
 * that of flash_cpu_vector.cl, query rows in vector lanes, so that rules and softmax are the same; only the products
 * S^T = K Q^T and O^T += V^T P^T go through tiles (amx_tiles.cl.h), and numerators are rounded to bf16 for the second.
 *
 * A work-item has CLATTN_TILES tiles of 32 rows, which share what is prepared of a block of keys: V^T, since tiles want
 * pairs of keys side by side.  Tiles and blocks make one stream of items: while the vector unit finds the weights of one, the
 * matrix unit multiplies the scores of the next and the values of the one before, a step of each in turn.
 *
 * Numerators are relative to a score that is at most e^CLATTN_SLACK below the largest one: most blocks leave it, and with
 * it the results so far, alone. */
#define CLATTN_MQ 2
#include "lanes_tile.cl.h"
#include "amx_tiles.cl.h"

#ifndef CLATTN_TILES
#define CLATTN_TILES 4
#endif
#ifndef CLATTN_AMX_KEYS /* of a block, a multiple of 32 */
#define CLATTN_AMX_KEYS 128
#endif

#if CLATTN_LANES == 16 && CLATTN_NUMBER(CLATTN_K) == CLATTN_IS_bf16 /* a tensor that is not used has no type */

#define CLATTN_SLACK 5.5f /* 2^8 */
#define CLATTN_LOG2E 1.44269504f
#define CLATTN_STEPS (CLATTN_AMX_KEYS / CLATTN_STEP)
#define CLATTN_DIM_STEPS (CLATTN_DIM / CLATTN_STEP)
/* A row of scores or results of a tile, in bytes, and the 16 rows of half a tile of 32. */
#define CLATTN_ROW_BYTES (4 * CLATTN_ROWS)
#define CLATTN_HALF_BYTES (16 * CLATTN_ROW_BYTES)
#define CLATTN_TILE_BYTES (4 * CLATTN_TILE_WORDS)

typedef struct clattn_running {
  clattn_v top[CLATTN_MQ]; /* what numerators are relative to */
  clattn_v sum[CLATTN_MQ], lost[CLATTN_MQ];
  clattn_v logit[CLATTN_MQ];
} clattn_running;

/* 32 rows: their places, queries and results. */
typedef struct clattn_part {
  clattn_tile t;
  clattn_running run;
  uint queries[CLATTN_DIM_STEPS * CLATTN_MQ * CLATTN_TILE_WORDS] __attribute__((aligned(64)));
  float out[CLATTN_DIM * CLATTN_ROWS] __attribute__((aligned(64)));
} clattn_part;

/* A block of keys, as the products take it. */
typedef struct clattn_prepared {
  clattn_operand keys; /* the first 32 */
  long more;           /* bytes from 32 keys to the next 32 */
  uint copy[CLATTN_DIM_STEPS * CLATTN_STEPS * 2 * CLATTN_TILE_WORDS] __attribute__((aligned(64)));
  uint values[CLATTN_DIM_STEPS * CLATTN_STEPS * 2 * CLATTN_TILE_WORDS] __attribute__((aligned(64)));
} clattn_prepared;

static inline int clattn_steps_of(int elements) {
  return (elements + CLATTN_STEP - 1) / CLATTN_STEP;
}

/* Elements d0 .. d0 + 31 of a row of bf16, those from `dims` on 0. */
static inline uint16 clattn_row_words(__global const ushort *row, long element, int d0, int dims) {
  if (element == 1 && d0 + CLATTN_STEP <= dims) {
    const ushort16 low = vload16(0, row + d0), high = vload16(0, row + d0 + 16);
    return (uint16)(as_uint8(low), as_uint8(high));
  }
  uint words[16];
  for (int x = 0; x < 16; ++x) {
    const int d = d0 + 2 * x;
    const uint low = d < dims ? row[d * element] : 0, high = d + 1 < dims ? row[(d + 1) * element] : 0;
    words[x] = low | high << 16;
  }
  return vload16(0, words);
}

/* A part's queries, as pairs of elements: what products take from the right. */
static inline void clattn_pair_queries(const clattn_params *p, __global const ushort *q, clattn_part *part) {
  const clattn_tile *t = &part->t;
  for (int m = 0; m < CLATTN_MQ; ++m)
    for (int s = 0; s < clattn_steps_of(p->qk_dim); ++s) {
      uint16 r[16];
#pragma unroll
      for (int l = 0; l < 16; ++l) {
        const int lane = m * 16 + l;
        r[l] = clattn_row_words(q + clattn_row(&p->q, t->u.b, t->h[lane], clattn_lane_at(t, lane)), p->q.element,
                                s * CLATTN_STEP, p->qk_dim);
      }
      clattn_transpose_words(r);
      uint *to = part->queries + (s * CLATTN_MQ + m) * CLATTN_TILE_WORDS;
#pragma unroll
      for (int x = 0; x < 16; ++x)
        *(uint16 *)(to + 16 * x) = r[x];
    }
}

/* Keys as they lie, where whole tiles of them can be read so; else a copy, filled up with 0. */
static inline void clattn_prepare_keys(const clattn_params *p, __global const ushort *k, const clattn_tile *t, int j0,
                                       int count, clattn_prepared *b) {
  const int steps = clattn_steps_of(p->qk_dim);
#if CLATTN_AMX
  /* rows that are far apart share few places in the first-level cache */
  if (count % CLATTN_STEP == 0 && p->qk_dim % CLATTN_STEP == 0 && p->k.element == 1 && p->page_size == 0 &&
      p->k.row > 0 && p->k.row <= CLATTN_DIM) {
    const long row = 2 * p->k.row;
    b->keys = clattn_operand_of((ulong)(k + clattn_kv_row(p, &p->k, t->u.kv, j0)), row, 16 * row, 2 * CLATTN_STEP);
    b->more = 32 * row;
    return;
  }
#endif
  for (int x = 0; x < clattn_steps_of(count) * CLATTN_STEP; ++x) {
    __global const ushort *row = k + clattn_kv_row(p, &p->k, t->u.kv, j0 + min(x, count - 1));
    for (int s = 0; s < steps; ++s)
      *(uint16 *)(b->copy + ((x >> 4) * CLATTN_DIM_STEPS + s) * CLATTN_TILE_WORDS + (x & 15) * 16) =
          x < count ? clattn_row_words(row, p->k.element, s * CLATTN_STEP, p->qk_dim) : (uint16)(0);
  }
  b->keys = clattn_operand_of((ulong)b->copy, 64, CLATTN_DIM_STEPS * CLATTN_TILE_BYTES, CLATTN_TILE_BYTES);
  b->more = 2 * CLATTN_DIM_STEPS * CLATTN_TILE_BYTES;
}

/* V^T in tiles of 16 elements times 32 keys, filled up with 0: the tile of elements 16 e .. and keys 32 s .. is tile
 * e * CLATTN_STEPS + s. */
static inline void clattn_prepare_values(const clattn_params *p, __global const ushort *v, const clattn_tile *t, int j0,
                                         int count, clattn_prepared *b) {
  uint copy[CLATTN_STEP * CLATTN_DIM / 2] __attribute__((aligned(64)));
  const int dims = clattn_steps_of(p->v_dim) * CLATTN_STEP;
  for (int s = 0; s < clattn_steps_of(count); ++s) {
    const int left = count - s * CLATTN_STEP;
    ulong at = (ulong)copy;
    long row = 2 * CLATTN_DIM;
#if CLATTN_AMX
    if (left >= CLATTN_STEP && p->v_dim % CLATTN_STEP == 0 && p->v.element == 1 && p->page_size == 0) {
      at = (ulong)(v + clattn_kv_row(p, &p->v, t->u.kv, j0 + s * CLATTN_STEP));
      row = 2 * p->v.row;
    }
#endif
    if (at == (ulong)copy)
      for (int x = 0; x < CLATTN_STEP; ++x) {
        __global const ushort *from = v + clattn_kv_row(p, &p->v, t->u.kv, j0 + s * CLATTN_STEP + min(x, left - 1));
        for (int d = 0; d < dims; d += CLATTN_STEP)
          *(uint16 *)(copy + (x * CLATTN_DIM + d) / 2) =
              x < left ? clattn_row_words(from, p->v.element, d, p->v_dim) : (uint16)(0);
      }
    for (int d = 0; d < dims; d += 8)
      clattn_transpose_rows(at + 2 * d, row, b->values + (d / 16 * CLATTN_STEPS + s) * CLATTN_TILE_WORDS + d % 16 * 16);
  }
}

/* Operands of the scores of 32 keys of a block for a part's queries, and where these go. */
static inline clattn_operand clattn_keys_at(const clattn_prepared *b, int s) {
  clattn_operand keys = b->keys;
  keys.at += s * b->more;
  return keys;
}

static inline clattn_operand clattn_queries_of(const clattn_part *part) {
  return clattn_operand_of((ulong)part->queries, 64, CLATTN_TILE_BYTES, CLATTN_MQ * CLATTN_TILE_BYTES);
}

static inline clattn_operand clattn_scores_at(float *block, int s) {
  return clattn_operand_of((ulong)(block + s * CLATTN_STEP * CLATTN_ROWS), CLATTN_ROW_BYTES, CLATTN_HALF_BYTES, 64);
}

/* The same of 32 elements of the results, from d on. */
static inline clattn_operand clattn_values_at(const clattn_prepared *b, int d) {
  return clattn_operand_of((ulong)(b->values + d / 16 * CLATTN_STEPS * CLATTN_TILE_WORDS), 64,
                           CLATTN_STEPS * CLATTN_TILE_BYTES, CLATTN_TILE_BYTES);
}

static inline clattn_operand clattn_weights_of(const uint *weights) {
  return clattn_operand_of((ulong)weights, 64, CLATTN_TILE_BYTES, CLATTN_MQ * CLATTN_TILE_BYTES);
}

static inline clattn_operand clattn_results_at(clattn_part *part, int d) {
  return clattn_operand_of((ulong)(part->out + d * CLATTN_ROWS), CLATTN_ROW_BYTES, CLATTN_HALF_BYTES, 64);
}

/* Whether every score of a block is a product times the scale, kept. */
static inline int clattn_is_plain(const clattn_params *p, const clattn_inputs *in, const clattn_tile *t, int j0,
                                  int count) {
#if CLATTN_HOOKED
  (void)p, (void)in, (void)t, (void)j0, (void)count;
  return 0;
#else
  const int other = CLATTN_RULE_BIAS | CLATTN_RULE_ALIBI | CLATTN_RULE_HEAD_SCALE | CLATTN_RULE_MASK_U8 |
                    CLATTN_RULE_MASK_BITS | CLATTN_RULE_MAX_LOGIT;
  return !(p->rules & other) && in->softcap == 0.0f && in->scale > 0x1p-60f && in->scale < 0x1p60f && j0 >= t->all_lo &&
         j0 + count <= t->all_hi &&
         (!(p->rules & CLATTN_RULE_BLOCK_MASK) || clattn_unit_sees_all(p, in->blocks, &t->u, j0, j0 + count));
#endif
}

/* A numerator is 2^(score * by + off). */
typedef struct clattn_exponent {
  clattn_v off[CLATTN_MQ];
  float by;
} clattn_exponent;

/* The largest scores of a block: finished ones, or plain products. */
static inline void clattn_block_top(const float *block, int count, clattn_v top[CLATTN_MQ]) {
  clattn_v more[CLATTN_MQ];
#pragma unroll
  for (int m = 0; m < CLATTN_MQ; ++m)
    top[m] = more[m] = (clattn_v)(-INFINITY);
  for (int x = 0; x + 2 <= count; x += 2)
#pragma unroll
    for (int m = 0; m < CLATTN_MQ; ++m) {
      top[m] = clattn_maximum(top[m], *(const clattn_v *)(block + x * CLATTN_ROWS + m * CLATTN_LANES));
      more[m] = clattn_maximum(more[m], *(const clattn_v *)(block + (x + 1) * CLATTN_ROWS + m * CLATTN_LANES));
    }
#pragma unroll
  for (int m = 0; m < CLATTN_MQ; ++m)
    top[m] = clattn_maximum(top[m], more[m]);
}

/* Finds what the numerators of a block are relative to, and rescales results if that changes.  `block` is filled up to
 * whole steps. */
static inline void clattn_open_block(const clattn_params *p, const clattn_inputs *in, clattn_part *part, int j0,
                                     int count, int dims, int careful, float *block, clattn_exponent *e) {
  const clattn_shown none = {0, CLATTN_SCORES_NONE};
  /* a multiplication is rounded once, the sum with `off` not: of scores beyond that would show */
  const clattn_v small = (clattn_v)(1024.0f);
  clattn_running *run = &part->run;
  clattn_v top[CLATTN_MQ];
  const int whole = clattn_steps_of(count) * CLATTN_STEP;
  for (int x = count * CLATTN_MQ; x < whole * CLATTN_MQ; ++x)
    *(clattn_v *)(block + x * CLATTN_LANES) = (clattn_v)(-INFINITY);
  int plain = !careful && clattn_is_plain(p, in, &part->t, j0, count);
  if (plain) {
    clattn_block_top(block, whole, top);
    for (int m = 0; m < CLATTN_MQ; ++m) {
      top[m] *= (clattn_v)(in->scale);
      plain = plain && all(fabs(clattn_maximum(top[m], run->top[m])) < small);
    }
  }
  if (!plain) {
    for (int m = 0; m < CLATTN_MQ; ++m)
      top[m] = (clattn_v)(-INFINITY);
    clattn_finish_scores(p, in, &none, &part->t, j0, count, block, top, run->logit);
  }
  int near = 1;
  for (int m = 0; m < CLATTN_MQ; ++m) {
    const clattn_vi grown = top[m] > run->top[m] + (clattn_v)(CLATTN_SLACK);
    if (any(grown)) {
      const clattn_v now = clattn_maximum(run->top[m], top[m]);
      /* equal maxima, -inf and +inf among them, scale by 1: a difference of infinities would be NaN */
      const clattn_v shrink = run->top[m] == now ? (clattn_v)(1.0f) : clattn_exp(run->top[m] - now);
      run->top[m] = now;
      run->sum[m] *= shrink;
      run->lost[m] *= shrink;
      for (int d = 0; d < dims; ++d)
        *(clattn_v *)(part->out + d * CLATTN_ROWS + m * CLATTN_LANES) *= shrink;
    }
    /* where all scores so far are -inf: a difference would be NaN, too */
    const clattn_v off = run->top[m] == (clattn_v)(-INFINITY) ? (clattn_v)(0.0f) : run->top[m];
    near = near && all(fabs(off) < small);
    e->off[m] = off * (clattn_v)(-CLATTN_LOG2E);
  }
  e->by = plain ? in->scale * CLATTN_LOG2E : CLATTN_LOG2E;
  for (int m = 0; !near && !careful && m < CLATTN_MQ; ++m) {
    const clattn_v off = run->top[m] == (clattn_v)(-INFINITY) ? (clattn_v)(0.0f) : run->top[m];
    for (int x = 0; x < whole; ++x)
      *(clattn_v *)(block + x * CLATTN_ROWS + m * CLATTN_LANES) -= off;
    e->off[m] = (clattn_v)(0.0f);
  }
}

/* Weights of four keys, pairs of them in a word, from their scores; sums of even and odd keys grow by them. */
#define CLATTN_PIECES (CLATTN_STEP / 4)
static inline void clattn_weigh(const float *scores, const clattn_exponent *e, uint *weights,
                                clattn_v sum[2 * CLATTN_MQ]) {
  const clattn_v by = (clattn_v)(e->by);
#pragma unroll
  for (int m = 0; m < CLATTN_MQ; ++m)
#pragma unroll
    for (int x = 0; x < 4; x += 2) {
      const float *at = scores + x * CLATTN_ROWS + m * CLATTN_LANES;
      const clattn_v even = clattn_exp2_bf16(fma(*(const clattn_v *)at, by, e->off[m]));
      const clattn_v odd = clattn_exp2_bf16(fma(*(const clattn_v *)(at + CLATTN_ROWS), by, e->off[m]));
      sum[2 * m] += even;
      sum[2 * m + 1] += odd;
      *(uint16 *)(weights + m * CLATTN_TILE_WORDS + x / 2 * 16) = clattn_pairs_of(even, odd);
    }
}

/* The same of a whole block in the careful round, by one number after the other: exact marks for excluded keys, whose
 * values are not touched. */
static inline void clattn_weigh_kept(const clattn_params *p, __global const ushort *v, int j0, int count,
                                     const float *block, clattn_part *part, clattn_v sum[CLATTN_MQ]) {
  for (int x = 0; x < count; ++x) {
    const long row = clattn_kv_row(p, &p->v, part->t.u.kv, j0 + x);
    for (int m = 0; m < CLATTN_MQ; ++m) {
      const clattn_v w = clattn_numerator(CLATTN_VLOAD(block + x * CLATTN_ROWS + m * CLATTN_LANES), part->run.top[m]);
      sum[m] += w;
      for (int d = 0; d < p->v_dim; ++d) {
        float *at = part->out + d * CLATTN_ROWS + m * CLATTN_LANES;
        const clattn_v old = CLATTN_VLOAD(at);
        const clattn_v more = fma(w, (clattn_v)(clattn_load_bf16(v, row + d * p->v.element)), old);
        CLATTN_VSTORE(CLATTN_AS_VI(w) == (clattn_vi)(CLATTN_EXCLUDED_BITS) ? old : more, at);
      }
    }
  }
}

/* What the sums of a block add. */
static inline void clattn_add_sums(const clattn_v sum[CLATTN_MQ], clattn_running *run) {
  for (int m = 0; m < CLATTN_MQ; ++m) {
    const clattn_v after = run->sum[m] + sum[m];
    run->lost[m] += sum[m] - (after - run->sum[m]);
    run->sum[m] = after;
  }
}

/* A tile's part of the stream: a block of keys for 32 rows. */
typedef struct clattn_item {
  clattn_part *part; /* NULL past the end */
  clattn_prepared *block;
  int j0, count, steps;
} clattn_item;

/* Blocks that items in work may be of: one is weighed, the next one's scores and the last one's values are multiplied. */
#define CLATTN_BLOCKS 3

typedef struct clattn_stream {
  clattn_interval keys;
  int part, turn; /* the last one that an item had, and of its block in `prepared` */
} clattn_stream;

static inline int clattn_part_sees(const clattn_part *part, clattn_interval keys) {
  return part->t.u.keys.lo < keys.hi && part->t.u.keys.hi > keys.lo;
}

/* The next item; prepares its block if it is the first of it. */
static inline clattn_item clattn_advance(const clattn_params *p, const clattn_inputs *in, __global const ushort *v,
                                         const clattn_unit *u, int values, clattn_part *parts,
                                         clattn_prepared prepared[CLATTN_BLOCKS], clattn_stream *s) {
  clattn_item item;
  item.part = 0;
  item.block = prepared;
  item.j0 = item.count = item.steps = 0;
  while (s->keys.lo < s->keys.hi) {
    while (++s->part < CLATTN_TILES && !clattn_part_sees(&parts[s->part], s->keys))
      ;
    if (s->part < CLATTN_TILES)
      break;
    s->keys = clattn_next_keys(p, in->blocks, u, s->keys.hi, u->keys.hi, CLATTN_AMX_KEYS);
    s->part = -1;
    s->turn = (s->turn + 1) % CLATTN_BLOCKS;
    if (s->keys.lo < s->keys.hi) {
      clattn_prepare_keys(p, in->k, &parts[0].t, s->keys.lo, s->keys.hi - s->keys.lo, &prepared[s->turn]);
      if (values)
        clattn_prepare_values(p, v, &parts[0].t, s->keys.lo, s->keys.hi - s->keys.lo, &prepared[s->turn]);
    }
  }
  if (s->keys.lo < s->keys.hi) {
    item.part = &parts[s->part];
    item.block = &prepared[s->turn];
    item.j0 = s->keys.lo;
    item.count = s->keys.hi - s->keys.lo;
    item.steps = clattn_steps_of(item.count);
  }
  return item;
}

/* Scores of a whole item; results of one. */
static inline void clattn_score_item(const clattn_params *p, const clattn_item *item, float *block) {
  clattn_tile_sums sums;
  for (int s = 0; s < item->steps; ++s) {
    clattn_tiles_zero(&sums);
    for (int x = 0; x < clattn_steps_of(p->qk_dim); ++x)
      clattn_tiles_step(&sums, clattn_keys_at(item->block, s), clattn_queries_of(item->part), x);
    clattn_tiles_store(&sums, clattn_scores_at(block, s));
  }
}

static inline void clattn_value_item(const clattn_item *item, const uint *weights, int dims) {
  clattn_tile_sums sums;
  for (int d = 0; d < dims; d += CLATTN_STEP) {
    clattn_tiles_load(&sums, clattn_results_at(item->part, d));
    for (int x = 0; x < item->steps; ++x)
      clattn_tiles_step(&sums, clattn_values_at(item->block, d), clattn_weights_of(weights), x);
    clattn_tiles_store(&sums, clattn_results_at(item->part, d));
  }
}

/* One pass over the keys. */
static inline void clattn_pass(const clattn_params *p, const clattn_inputs *in, __global const ushort *v,
                               const clattn_unit *u, int dims, clattn_part *parts,
                               clattn_prepared prepared[CLATTN_BLOCKS]) {
  float block[CLATTN_AMX_KEYS * CLATTN_ROWS] __attribute__((aligned(64)));
  uint weights[2][CLATTN_STEPS * CLATTN_MQ * CLATTN_TILE_WORDS] __attribute__((aligned(64)));
  const int dim_steps = clattn_steps_of(p->qk_dim), value_steps = clattn_steps_of(dims);
  clattn_stream stream = {{u->keys.lo, u->keys.lo}, -1, 0};
  clattn_item last, now, next;
  clattn_tile_sums sums;
  int turn = 0;
  stream.keys = clattn_next_keys(p, in->blocks, u, u->keys.lo, u->keys.hi, CLATTN_AMX_KEYS);
  if (stream.keys.lo < stream.keys.hi) {
    clattn_prepare_keys(p, in->k, &parts[0].t, stream.keys.lo, stream.keys.hi - stream.keys.lo, &prepared[0]);
    if (dims > 0)
      clattn_prepare_values(p, v, &parts[0].t, stream.keys.lo, stream.keys.hi - stream.keys.lo, &prepared[0]);
  }
  now = clattn_advance(p, in, v, u, dims > 0, parts, prepared, &stream);
  last = now;
  last.part = 0;
  if (now.part)
    clattn_score_item(p, &now, block);
  while (now.part) {
    clattn_exponent e;
    clattn_v sum[2 * CLATTN_MQ];
    if (last.part == now.part) { /* before what it adds to is rescaled */
      clattn_value_item(&last, weights[!turn], dims);
      last.part = 0;
    }
    clattn_open_block(p, in, now.part, now.j0, now.count, dims, 0, block, &e);
    next = clattn_advance(p, in, v, u, dims > 0, parts, prepared, &stream);
    for (int m = 0; m < 2 * CLATTN_MQ; ++m)
      sum[m] = (clattn_v)(0.0f);
    const int rounds = max(now.steps, next.steps);
    for (int s = 0; s < rounds; ++s) {
      /* in each round some steps of both products, and between them, evenly, the weights of 32 keys */
      const int d0 = last.part ? value_steps * s / rounds : 0, d1 = last.part ? value_steps * (s + 1) / rounds : 0;
      const int products = (d1 - d0) * last.steps + (s < next.steps ? dim_steps : 0);
      const int rate = products > 0 ? ((CLATTN_PIECES << 16) + products - 1) / products : 0;
      const float *scores = block + s * CLATTN_STEP * CLATTN_ROWS;
      uint *to = weights[turn] + s * CLATTN_MQ * CLATTN_TILE_WORDS;
      const int pieces = s < now.steps ? CLATTN_PIECES : 0;
      int piece = 0, due = 0;
      for (int d = d0; d < d1; ++d) {
        const clattn_operand results = clattn_results_at(last.part, d * CLATTN_STEP);
        clattn_tiles_load(&sums, results);
        for (int x = 0; x < last.steps; ++x) {
          clattn_tiles_step(&sums, clattn_values_at(last.block, d * CLATTN_STEP), clattn_weights_of(weights[!turn]), x);
          for (due += rate; piece < min(due >> 16, pieces); ++piece)
            clattn_weigh(scores + 4 * piece * CLATTN_ROWS, &e, to + 2 * piece * 16, sum);
        }
        clattn_tiles_store(&sums, results);
      }
      if (s < next.steps)
        clattn_tiles_zero(&sums);
      for (int x = 0; s < next.steps && x < dim_steps; ++x) {
        clattn_tiles_step(&sums, clattn_keys_at(next.block, s), clattn_queries_of(next.part), x);
        for (due += rate; piece < min(due >> 16, pieces); ++piece)
          clattn_weigh(scores + 4 * piece * CLATTN_ROWS, &e, to + 2 * piece * 16, sum);
      }
      for (; piece < pieces; ++piece)
        clattn_weigh(scores + 4 * piece * CLATTN_ROWS, &e, to + 2 * piece * 16, sum);
      if (s < next.steps) /* where the scores were that have become weights */
        clattn_tiles_store(&sums, clattn_scores_at(block, s));
    }
    for (int m = 0; m < CLATTN_MQ; ++m)
      sum[m] = sum[2 * m] + sum[2 * m + 1];
    clattn_add_sums(sum, &now.part->run);
    last = now;
    if (dims == 0)
      last.part = 0;
    now = next;
    turn = !turn;
  }
  if (last.part)
    clattn_value_item(&last, weights[!turn], dims);
}

/* The same with selects, one item after the other. */
static inline void clattn_careful_pass(const clattn_params *p, const clattn_inputs *in, __global const ushort *v,
                                       const clattn_unit *u, int dims, clattn_part *parts, clattn_prepared *prepared) {
  float block[CLATTN_AMX_KEYS * CLATTN_ROWS] __attribute__((aligned(64)));
  clattn_interval keys = clattn_next_keys(p, in->blocks, u, u->keys.lo, u->keys.hi, CLATTN_AMX_KEYS);
  for (; keys.lo < keys.hi; keys = clattn_next_keys(p, in->blocks, u, keys.hi, u->keys.hi, CLATTN_AMX_KEYS)) {
    const int count = keys.hi - keys.lo;
    clattn_prepare_keys(p, in->k, &parts[0].t, keys.lo, count, prepared);
    for (int g = 0; g < CLATTN_TILES; ++g) {
      const clattn_item item = {&parts[g], prepared, keys.lo, count, clattn_steps_of(count)};
      clattn_exponent e;
      clattn_v sum[CLATTN_MQ];
      for (int m = 0; m < CLATTN_MQ; ++m)
        sum[m] = (clattn_v)(0.0f);
      clattn_score_item(p, &item, block);
      clattn_open_block(p, in, &parts[g], keys.lo, count, dims, 1, block, &e);
      clattn_weigh_kept(p, v, keys.lo, count, block, &parts[g], sum);
      clattn_add_sums(sum, &parts[g].run);
    }
  }
}

/* Results that are NaN although their sums are not, and not 0. */
static inline int clattn_is_odd(const clattn_part *part, int dims) {
  int odd = 0;
  for (int m = 0; m < CLATTN_MQ; ++m) {
    const clattn_v sum = part->run.sum[m];
    const clattn_vi sound = sum == sum && sum != (clattn_v)(0.0f);
    clattn_vi bad = (clattn_vi)(0);
    for (int d = 0; d < dims; ++d) {
      const clattn_v x = *(const clattn_v *)(part->out + d * CLATTN_ROWS + m * CLATTN_LANES);
      bad |= x != x;
    }
    odd |= any(bad && sound);
  }
  return odd;
}

/* Writes 16 rows: 16 elements of each at a time where they lie side by side. */
static inline void clattn_write_rows(const clattn_params *p, const clattn_part *part, int m, clattn_v factor,
                                     clattn_vi empty, int dims, __global CLATTN_TYPE(CLATTN_O) * o) {
  for (int d0 = 0; d0 < dims; d0 += 16) {
    uint16 r[16];
#pragma unroll
    for (int x = 0; x < 16; ++x) {
      const clattn_v y = *(const clattn_v *)(part->out + (d0 + x) * CLATTN_ROWS + m * CLATTN_LANES);
      r[x] = as_uint16((empty ? (clattn_v)(0.0f) : y) * factor + (clattn_v)(0.0f)); /* no -0 */
    }
    clattn_transpose_words(r);
    float rows[16 * 16] __attribute__((aligned(64)));
#pragma unroll
    for (int l = 0; l < 16; ++l)
      *(uint16 *)(rows + 16 * l) = r[l];
    for (int l = 0; l < 16; ++l) {
      const int lane = m * CLATTN_LANES + l;
      if (!clattn_lane_exists(&part->t, lane))
        continue;
      const long to = clattn_row(&p->o, part->t.u.b, part->t.h[lane], clattn_lane_at(&part->t, lane));
      const float *row = rows + 16 * l;
      if (p->o.element == 1 && d0 + 16 <= dims) {
        CLATTN_STORE_LANES(CLATTN_O)(*(const clattn_v *)row, o, to + d0);
      } else
        for (int x = 0; x < 16 && d0 + x < dims; ++x)
          CLATTN_STORE(CLATTN_O)(o, to + (d0 + x) * p->o.element, row[x]);
    }
  }
}

/* Grid: (tiles). */
CLATTN_CPU_KERNEL void flash(const clattn_params p, const clattn_round round, __global const ushort *restrict q,
                             __global const ushort *restrict v, __global const float *restrict sinks,
                             __global const int *restrict table, __global const int *restrict entries,
                             __global float *restrict work, __global CLATTN_TYPE(CLATTN_O) *restrict o,
                             __global float *restrict lse, __global CLATTN_TYPE(CLATTN_SCORES) *restrict scores,
                             CLATTN_SCORE_ARGS) {
  CLATTN_COLLECT(in, p, work);
  clattn_part parts[CLATTN_TILES];
  clattn_prepared prepared[CLATTN_BLOCKS];
  const int dims = p.rules & CLATTN_RULE_OUT ? p.v_dim : 0;
  const int whole = clattn_steps_of(dims) * CLATTN_STEP;
  const clattn_unit u = clattn_unit_of(&p, entries, table, round.first_tile + (int)get_group_id(0));
  (void)scores; /* other variants write them */
  for (int g = 0; g < CLATTN_TILES; ++g) {
    clattn_tile *t = &parts[g].t;
    t->u = u;
    t->u.first += g * CLATTN_ROWS;
    t->u.keys =
        clattn_rows_interval(&p, u.entry, clattn_unit_row(&p, &t->u, 0), clattn_unit_row(&p, &t->u, CLATTN_ROWS - 1));
    clattn_tile_rows(&p, t);
    clattn_tile_prepare(&p, &in, t);
    clattn_pair_queries(&p, q, &parts[g]);
  }

  clattn_tiles_open();
  /* The second round, with selects, only if some result is NaN without cause in its weights. */
  for (int careful = 0; careful < 2; ++careful) {
    int odd = 0;
    for (int g = 0; g < CLATTN_TILES; ++g) {
      clattn_running *run = &parts[g].run;
      for (int m = 0; m < CLATTN_MQ; ++m) {
        run->top[m] = run->logit[m] = (clattn_v)(-INFINITY);
        run->sum[m] = run->lost[m] = (clattn_v)(0.0f);
      }
      for (int x = 0; x < whole * CLATTN_MQ; ++x)
        *(clattn_v *)(parts[g].out + x * CLATTN_LANES) = (clattn_v)(0.0f);
    }
    if (careful)
      clattn_careful_pass(&p, &in, v, &u, dims, parts, prepared);
    else
      clattn_pass(&p, &in, v, &u, dims, parts, prepared);
    for (int g = 0; g < CLATTN_TILES; ++g) {
      for (int m = 0; m < CLATTN_MQ; ++m)
        parts[g].run.sum[m] += parts[g].run.lost[m];
      odd |= clattn_is_odd(&parts[g], dims);
    }
    if (!odd)
      break;
  }
  clattn_tiles_close();

  const clattn_row_view maxima = clattn_maxima(&p);
  for (int g = 0; g < CLATTN_TILES; ++g) {
    clattn_running *run = &parts[g].run;
    const clattn_tile *t = &parts[g].t;
    for (int m = 0; m < CLATTN_MQ; ++m) {
      clattn_v by = (clattn_v)(1.0f);
      /* A row without a kept key has what excluded values left in `out`; beside a sink its sum is not 0. */
      const clattn_vi empty = run->sum[m] == (clattn_v)(0.0f);
      if (p.rules & CLATTN_RULE_SINK)
        by = clattn_join_sink(&run->top[m], &run->sum[m], clattn_sink_lanes(&p, sinks, t, m));
      if (dims > 0) { /* a sink that is NaN or +inf shows in rows without a key, too */
        const clattn_v factor = run->sum[m] == (clattn_v)(0.0f) ? (clattn_v)(0.0f) : by / run->sum[m];
        clattn_write_rows(&p, &parts[g], m, factor, empty, dims, o);
      }
      if (p.rules & CLATTN_RULE_LSE)
        clattn_store_rows(&p.lse, t, lse, m,
                          run->sum[m] == (clattn_v)(0.0f) ? (clattn_v)(-INFINITY) : run->top[m] + log(run->sum[m]));
      if (p.rules & CLATTN_RULE_MAX_LOGIT)
        clattn_store_rows(&maxima, t, work, m, run->logit[m]);
    }
  }
}

#endif

#include "common.cl.h"
