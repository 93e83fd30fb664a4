/* SPDX-License-Identifier: Apache-2.0 */
/* Which rows a tile holds and which keys it goes through: the same for every family.
 *
 * A tile is p->rows rows of a unit: one batch entry and p->pack query heads of one key head, rows of the heads
 * interleaved (row r is query row r / pack of head r % pack), so that a few query rows of many heads read keys and
 * values once. Packed batch entries have tiles of their own: entry b's start at tile q_start * pack / rows + b, which
 * leaves each entry enough of them and at most one too many, and needs no sums over the batch; the entry of a tile is
 * found by bisection. */
#ifndef CLATTN_TILE_CL_H
#define CLATTN_TILE_CL_H

#include "kv.cl.h"
#include "mask.cl.h"
#include "params.cl.h"

typedef struct clattn_unit {
  int b, head; /* the first of its heads */
  int first;   /* row of the unit that is row 0 of the tile */
  clattn_entry entry;
  clattn_interval keys; /* seen by some row */
  clattn_kv kv;
} clattn_unit;

static inline int clattn_first_tile_of(const clattn_params *p, __global const int *entries, int b) {
  const long start = entries[p->work_first + CLATTN_ENTRY_WORDS * (long)b + CLATTN_ENTRY_Q_START];
  return (int)(start * p->pack / p->rows) + b;
}

/* Query row and head of row r of the tile.  A query row from entry.q_rows on does not exist. */
static inline int clattn_unit_row(const clattn_params *p, const clattn_unit *u, int r) {
  return p->pack == 1 ? u->first + r : (u->first + r) / p->pack;
}

static inline int clattn_unit_head(const clattn_params *p, const clattn_unit *u, int r) {
  return p->pack == 1 ? u->head : u->head + (u->first + r) % p->pack;
}

/* A row that exists, for loads: those past the end repeat the last one. */
static inline int clattn_real_row(const clattn_unit *u, int i) {
  return clamp(i, 0, max(u->entry.q_rows - 1, 0));
}

static inline clattn_unit clattn_unit_of(const clattn_params *p, __global const int *entries, __global const int *table,
                                         int id) {
  clattn_unit u;
  const int unit = id / p->tiles_per_unit, tile = id % p->tiles_per_unit;
  int first_tile = 0;
  if (p->rules & CLATTN_RULE_SEARCH) {
    int lo = 0, hi = p->batch;
    while (hi - lo > 1) {
      const int middle = (lo + hi) / 2;
      if (clattn_first_tile_of(p, entries, middle) <= tile)
        lo = middle;
      else
        hi = middle;
    }
    u.b = lo;
    u.head = unit * p->pack;
    first_tile = clattn_first_tile_of(p, entries, lo);
  } else {
    const int units = p->q_heads / p->pack;
    u.b = unit / units;
    u.head = unit % units * p->pack;
  }
  u.first = max(tile - first_tile, 0) * p->rows;
  u.entry = clattn_entry_of(p, entries, u.b);
  if (tile < first_tile) /* starts on the device that do not begin at 0 */
    u.entry.q_len = u.entry.q_rows = 0;
  if (u.entry.q_rows == 0) /* nothing is written, and row 0 of the tensor is there to be read */
    u.entry.q_start = 0;
  const int first_row = clattn_unit_row(p, &u, 0), last_row = clattn_unit_row(p, &u, p->rows - 1);
  u.keys = clattn_rows_interval(p, u.entry, first_row, last_row);
  u.kv.b = u.b;
  u.kv.h = u.head / p->group;
  u.kv.start = u.entry.k_start;
  u.kv.table = table + p->table_first + u.b * (long)p->max_pages;
  return u;
}

/* Whether the block mask lets any row of the tile see a key block. */
static inline int clattn_unit_sees_block(const clattn_params *p, __global const uint *blocks, const clattn_unit *u,
                                         int block) {
  const int first = clattn_unit_row(p, u, 0) / p->block_q;
  const int last = min(clattn_unit_row(p, u, p->rows - 1), max(u->entry.q_len - 1, 0)) / p->block_q;
  int seen = 0;
  for (int line = first; !seen && line <= last; ++line)
    for (int h = u->head; !seen && h < u->head + p->pack; ++h)
      seen = clattn_block_bit(p, blocks, clattn_row(&p->blocks, u->b, h, line), block);
  return seen;
}

/* Whether it lets every row of the tile that sees anything see all keys j0 <= j < j1. */
static inline int clattn_unit_sees_all(const clattn_params *p, __global const uint *blocks, const clattn_unit *u,
                                       int j0, int j1) {
  const int first = clattn_unit_row(p, u, 0) / p->block_q;
  const int last = min(clattn_unit_row(p, u, p->rows - 1), max(u->entry.q_len - 1, 0)) / p->block_q;
  int seen = 1;
  for (int line = first; seen && line <= last; ++line)
    for (int h = u->head; seen && h < u->head + p->pack; ++h)
      for (int block = j0 / p->block_k; seen && block <= (j1 - 1) / p->block_k; ++block)
        seen = clattn_block_bit(p, blocks, clattn_row(&p->blocks, u->b, h, line), block);
  return seen;
}

/* The next keys to go through, at most `most` of j <= key < end; an empty interval (end, end) after the last.  Blocks
 * that the block mask hides from every row of the tile are left out; with CLATTN_RULE_INVARIANT only whole steps, so
 * that what is added to what does not depend on the tile. */
static inline clattn_interval clattn_next_keys(const clattn_params *p, __global const uint *blocks,
                                               const clattn_unit *u, int j, int end, int most) {
  clattn_interval keys;
  keys.lo = min(j, end);
  keys.hi = min(keys.lo + most, end);
  if (!(p->rules & CLATTN_RULE_BLOCK_MASK) || keys.lo == end)
    return keys;
  const int aligned = p->rules & CLATTN_RULE_INVARIANT;
  int block = keys.lo / p->block_k;
  while ((long)block * p->block_k < end && !clattn_unit_sees_block(p, blocks, u, block))
    ++block;
  const long seen = max((long)block * p->block_k, (long)keys.lo);
  if (seen >= end) {
    keys.lo = keys.hi = end;
    return keys;
  }
  keys.lo = aligned ? (int)seen - ((int)seen - keys.lo) % most : (int)seen;
  keys.hi = min(keys.lo + most, end);
  if (!aligned) {
    long stop = ((long)block + 1) * p->block_k;
    while (stop < keys.hi && clattn_unit_sees_block(p, blocks, u, ++block))
      stop += p->block_k;
    keys.hi = (int)min(stop, (long)keys.hi);
  }
  return keys;
}

#endif
