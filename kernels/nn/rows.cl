/* SPDX-License-Identifier: Apache-2.0 */
/* Norms, embedding lookup, pooling and rotary embedding: what works on rows.  One file, since to a compiler at run time
 * a program more costs more than a kernel more.  Optional tensors are NULL. */
#include "nn/rows.cl.h"

/* ---- norms -------------------------------------------------------------------------------------------------------
 *
 * t = x + residual, y = (t - mean) * inv_std * gamma + beta; mean is 0 in RMSNorm.  A row is read once for the mean, once
 * for the squares of deviations and once for the result, t added up anew each time: so y may be x or the residual, and
 * rows may be of any length. */

/* A row of t. */
typedef struct nn_t {
  __global const CLATTN_TYPE(CLATTN_X) * x;
  __global const CLATTN_TYPE(CLATTN_X1) * residual; /* NULL: none */
  long at_x, at_residual;
} nn_t;

static inline clattn_v nn_t_load(const nn_t *t, long column, long there) {
  const clattn_v x = NN_ROW_LOAD(CLATTN_X)(t->x, t->at_x + column, there);
  return t->residual ? x + NN_ROW_LOAD(CLATTN_X1)(t->residual, t->at_residual + column, there) : x;
}

/* mean's rest matters: it is as large as the deviations where those are small beside the mean. */
static inline clattn_v nn_deviation(clattn_v t, nn_pair mean) {
  return (t - (clattn_v)(mean.sum)) - (clattn_v)(mean.rest);
}

/* A unit is a head of a row. */
NN_ROW_KERNEL void norm(const nn_norm p, __global const CLATTN_TYPE(CLATTN_X) * x,
                        __global const CLATTN_TYPE(CLATTN_X1) * residual, __global const float *gamma,
                        __global const float *beta, __global CLATTN_TYPE(CLATTN_Y) * y,
                        __global CLATTN_TYPE(CLATTN_SUM) * sum, __global float *means, __global float *inv_stds) {
  NN_SHARED float shared[2 * NN_STRIDE];
  const long columns = p.columns, averaged = p.rms ? 0 : columns, lane = (long)get_local_id(0) * CLATTN_LANES;
  const long end = min((long)(get_group_id(0) + 1) * p.work.count, p.work.units);
  long unit = (long)get_group_id(0) * p.work.count;
  do {
    const long row = unit / p.heads, of_head = (unit - row * p.heads) * columns;
    const long at_y = p.y.first + row * p.y.stride + of_head, at_sum = p.sum.first + row * p.sum.stride + of_head;
    const nn_t t = {x, residual, p.x.first + row * p.x.stride + of_head,
                    p.residual.first + row * p.residual.stride + of_head};
    const nn_sums nothing = {(clattn_v)(0.0f), (clattn_v)(0.0f)};
    nn_sums sums = nothing;
    for (long block = 0; block < averaged; block += NN_BLOCK) {
      nn_sums part = nothing;
      for (long base = block; base < min(block + NN_BLOCK, averaged); base += NN_STRIDE) {
        const long c = base + lane, there = columns - c;
        if (there > 0)
          part = nn_sums_add(part, nn_t_load(&t, c, there));
      }
      sums = nn_sums_join(sums, part);
    }
    const nn_pair mean = nn_pair_divide(nn_total(sums, shared), columns);
    sums = nothing;
    for (long base = 0; base < columns; base += NN_STRIDE) {
      const long c = base + lane, there = columns - c;
      if (there > 0) {
        const clattn_v value = nn_t_load(&t, c, there);
        const clattn_v from_mean = nn_only(nn_deviation(value, mean), there);
        sums = nn_sums_add(sums, from_mean * from_mean);
        if (sum)
          NN_ROW_STORE(CLATTN_SUM)(sum, at_sum + c, there, value);
      }
    }
    const float variance = nn_pair_value(nn_pair_divide(nn_total(sums, shared), columns));
    const float inv_std = 1.0f / sqrt(variance + p.epsilon);
    for (long base = 0; base < columns; base += NN_STRIDE) {
      const long c = base + lane, there = columns - c;
      if (there > 0) {
        clattn_v value = nn_deviation(nn_t_load(&t, c, there), mean) * (clattn_v)(inv_std);
        if (gamma)
          value *= NN_ROW_LOAD(f32)(gamma, p.gamma_first + c, there);
        if (beta)
          value += NN_ROW_LOAD(f32)(beta, p.beta_first + c, there);
        NN_ROW_STORE(CLATTN_Y)(y, at_y + c, there, value);
      }
    }
    if (lane == 0) {
      if (means)
        means[p.mean_first + unit] = nn_pair_value(mean);
      if (inv_stds)
        inv_stds[p.inv_std_first + unit] = inv_std;
    }
  } while (++unit < end);
}

/* ---- embedding lookup: y[r] = scale * table0[id] + table1[id] + table2[id] --------------------------------------- */

/* Where the table's row for row `row` of y starts. */
static inline long nn_table_at(const nn_table *table, __global const int *ids, long row) {
  long id = table->first;
  if (ids)
    id = clamp((long)ids[table->ids_first + row], 0L, table->rows - 1);
  else if (table->period > 0)
    id += row % table->period;
  return table->values.first + id * table->values.stride;
}

/* A unit is a row of y. */
NN_ROW_KERNEL void embed(const nn_embed p, __global const CLATTN_TYPE(CLATTN_X) * table0,
                         __global const CLATTN_TYPE(CLATTN_X1) * table1, __global const CLATTN_TYPE(CLATTN_X2) * table2,
                         __global const int *ids0, __global const int *ids1, __global const int *ids2,
                         __global CLATTN_TYPE(CLATTN_Y) * y) {
  const long columns = p.columns, lane = (long)get_local_id(0) * CLATTN_LANES;
  const long end = min((long)(get_group_id(0) + 1) * p.work.count, p.work.units);
  for (long row = (long)get_group_id(0) * p.work.count; row < end; ++row) {
    const long at0 = nn_table_at(&p.table[0], ids0, row), at_y = p.y.first + row * p.y.stride;
    const long at1 = p.table[1].rows > 0 ? nn_table_at(&p.table[1], ids1, row) : 0;
    const long at2 = p.table[2].rows > 0 ? nn_table_at(&p.table[2], ids2, row) : 0;
    for (long base = 0; base < columns; base += NN_STRIDE) {
      const long c = base + lane, there = columns - c;
      if (there > 0) {
        clattn_v value = NN_ROW_LOAD(CLATTN_X)(table0, at0 + c, there) * (clattn_v)(p.scale);
        if (p.table[1].rows > 0)
          value += NN_ROW_LOAD(CLATTN_X1)(table1, at1 + c, there);
        if (p.table[2].rows > 0)
          value += NN_ROW_LOAD(CLATTN_X2)(table2, at2 + c, there);
        NN_ROW_STORE(CLATTN_Y)(y, at_y + c, there, value);
      }
    }
  }
}

/* ---- pooling: the mean of the first rows of a sequence, with p.normalise divided by its Euclidean norm ------------- */

/* The mean of `rows` rows, in the columns from `at` on. */
static inline clattn_v nn_mean_of_rows(__global const CLATTN_TYPE(CLATTN_X) * x, long at, long stride, long rows,
                                       long there) {
  nn_sums s = {(clattn_v)(0.0f), (clattn_v)(0.0f)};
  for (long row = 0; row < rows; ++row)
    s = nn_sums_add(s, NN_ROW_LOAD(CLATTN_X)(x, at + row * stride, there));
  const clattn_v sum = isinf(s.sum) ? s.sum : s.sum + s.rest;
  return rows > 1 ? sum / (clattn_v)((float)rows) : sum;
}

/* A unit is a batch entry.  Means are computed twice where they are normalised: there is no memory to keep them unrounded
 * in. */
NN_ROW_KERNEL void pool(const nn_pool p, __global const CLATTN_TYPE(CLATTN_X) * x, __global const int *lengths,
                        __global CLATTN_TYPE(CLATTN_Y) * y) {
  NN_SHARED float shared[2 * NN_STRIDE];
  const long columns = p.columns, lane = (long)get_local_id(0) * CLATTN_LANES;
  const long end = min((long)(get_group_id(0) + 1) * p.work.count, p.work.units);
  long b = (long)get_group_id(0) * p.work.count;
  do {
    const long length = lengths ? clamp((long)lengths[p.lengths_first + b], 0L, p.length) : p.length;
    const long rows = min(length, p.most), at_x = p.x.first + b * p.length * p.x.stride;
    const long squared = p.normalise ? columns : 0;
    nn_sums sums = {(clattn_v)(0.0f), (clattn_v)(0.0f)};
    for (long base = 0; base < squared; base += NN_STRIDE) {
      const long c = base + lane, there = columns - c;
      if (there > 0) {
        const clattn_v mean = nn_mean_of_rows(x, at_x + c, p.x.stride, rows, there);
        sums = nn_sums_add(sums, mean * mean);
      }
    }
    const float size = sqrt(nn_pair_value(nn_total(sums, shared)));
    const float divisor = p.normalise ? (size < 1e-12f ? 1e-12f : size) : 1.0f; /* NaN stays */
    for (long base = 0; base < columns; base += NN_STRIDE) {
      const long c = base + lane, there = columns - c;
      if (there > 0) {
        const clattn_v mean = nn_mean_of_rows(x, at_x + c, p.x.stride, rows, there);
        NN_ROW_STORE(CLATTN_Y)(y, p.y.first + b * p.y.stride + c, there, mean / (clattn_v)(divisor));
      }
    }
  } while (++b < end);
}

/* ---- rotary embedding --------------------------------------------------------------------------------------------
 *
 * Pairs (u, v) of a row become (u cos - v sin, v cos + u sin), what lies behind the last pair is copied.  An item reads
 * both numbers of a pair before it writes them, so y may be x. */

/* A unit is a row: (batch, position, head), so that neighbours share a line of the tables. */
NN_ROW_KERNEL void rope(const nn_rope p, __global const CLATTN_TYPE(CLATTN_X) * x, __global CLATTN_TYPE(CLATTN_Y) * y,
                        __global const float *cosines, __global const float *sines, __global const int *positions) {
  const int item = get_local_id(0);
  const long end = min((long)(get_group_id(0) + 1) * p.work.count, p.work.units);
  for (long unit = (long)get_group_id(0) * p.work.count; unit < end; ++unit) {
    const long token = unit / p.heads, h = unit - token * p.heads, b = token / p.length, i = token - b * p.length;
    const long wanted = positions ? (long)positions[p.positions_first + token] : i;
    const long line = b * p.table_batch_stride + clamp(wanted, 0L, p.table_positions - 1) * p.half_dim;
    __global const CLATTN_TYPE(CLATTN_X) *from = x + p.x.first + b * p.x.batch + h * p.x.head + i * p.x.row;
    __global CLATTN_TYPE(CLATTN_Y) *to = y + p.y.first + b * p.y.batch + h * p.y.head + i * p.y.row;
    for (long base = 0; base < p.half_dim; base += CLATTN_ITEMS) {
      const long n = base + item, first = n * p.pair_step, second = first + p.pair_apart;
      if (n < p.half_dim) {
        const float c = cosines[p.cos_first + line + n], s = sines[p.sin_first + line + n];
        const float u = CLATTN_LOAD(CLATTN_X)(from, first * p.x.element);
        const float v = CLATTN_LOAD(CLATTN_X)(from, second * p.x.element);
        CLATTN_STORE(CLATTN_Y)(to, first * p.y.element, u * c - v * s);
        CLATTN_STORE(CLATTN_Y)(to, second * p.y.element, v * c + u * s);
      }
    }
    for (long base = 2 * p.half_dim; base < p.dim; base += CLATTN_ITEMS) {
      const long n = base + item;
      if (n < p.dim)
        CLATTN_STORE(CLATTN_Y)(to, n * p.y.element, CLATTN_LOAD(CLATTN_X)(from, n * p.x.element));
    }
  }
}
