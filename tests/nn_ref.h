/* SPDX-License-Identifier: Apache-2.0 */
/* References of libclattn_nn's operations in double precision on the host: what its kernels are compared with, written
 * to be read.  Arrays of numbers are contiguous doubles; nn_ref_widen makes them of what lies in memory.  Optional
 * pointers may be NULL.  Without host memory the program ends. */
#ifndef CLATTN_TESTS_NN_REF_H
#define CLATTN_TESTS_NN_REF_H

#include "clattn_nn.h"
#include "clattn_ref.h"

/* ---- storage: f32, f16 and bf16 ---- */

size_t nn_ref_bytes(clattn_dtype dtype);
double nn_ref_load(clattn_dtype dtype, const void *base, int64_t index);
/* Rounds once, to nearest even; what is too large becomes infinite. */
void nn_ref_store(clattn_dtype dtype, void *base, int64_t index, double x);
double nn_ref_round(clattn_dtype dtype, double x);
/* malloc'ed; the caller frees.  _widen: rows x columns, `stride` elements from row to row (0: columns). */
double *nn_ref_numbers(int64_t count);
double *nn_ref_widen(clattn_dtype dtype, const void *base, int64_t rows, int64_t columns, int64_t stride);

/* ---- tolerances ---- */

/* How far rounding x to the type can move it: half a unit in the last place. */
double nn_ref_rounding(clattn_dtype dtype, double x);
/* What a result may be off: `roundings` fp32 roundings of numbers as large as `size`, and storing `want`. */
double nn_ref_allowed(clattn_dtype dtype, double want, double size, double roundings);
/* NaN is near NaN alone, an infinite number only itself. */
int nn_ref_near(double got, double want, double allowed);

/* ---- operations ---- */

double nn_ref_activate(clattn_nn_activation activation, double x);

/* The weight of a linear layer as PyTorch's: w (out, in), b (out) or NULL. */
typedef struct nn_ref_weight {
  int64_t in, out;
  const double *w, *b;
} nn_ref_weight;

/* y = activation(x W^T + b) * factor + residual; x (rows, in), the others (rows, out).  size (optional, rows x out):
 * what rounding errors of y are relative to: |residual| + |factor| (|y| + sum of |x| |w| + |b|). */
void nn_ref_linear(const nn_ref_weight *weight, clattn_nn_activation activation, int64_t rows, const double *x,
                   const double *factor, const double *residual, double *y, double *size);

/* y = norm(t), t = x + residual; rows * heads rows of `columns` numbers each, so a caller with heads multiplies.
 * residual, gamma, beta and the outputs sum, mean and inv_std are optional; y may be x. */
void nn_ref_norm(clattn_nn_norm_kind kind, double epsilon, int64_t rows, int64_t columns, const double *x,
                 const double *residual, const double *gamma, const double *beta, double *y, double *sum, double *mean,
                 double *inv_std);

/* x, y (batch, heads, length, dim), y may be x; cosines and sines (table_positions, rope_dim / 2), table_batch_stride numbers
 * from batch entry to batch entry.  positions (batch, length), clamped to the tables; NULL: i. */
void nn_ref_rope(clattn_rope rope, int64_t batch, int64_t heads, int64_t length, int64_t dim, int64_t rope_dim,
                 const double *x, const double *cosines, const double *sines, int64_t table_positions,
                 int64_t table_batch_stride, const int32_t *positions, double *y);

/* A table of clattn_nn_embed: values (rows, columns); ids (clamped) or period and first. */
typedef struct nn_ref_table {
  const double *values; /* NULL: no table */
  int64_t rows;
  const int32_t *ids;
  int64_t period, first;
} nn_ref_table;
void nn_ref_embed(int64_t rows, int64_t columns, double scale, const nn_ref_table table[3], double *y);

/* x (batch, length, columns), y (batch, columns); lengths clamped, NULL: all are full. */
void nn_ref_pool(clattn_nn_pooling pooling, int normalise, int64_t batch, int64_t length, int64_t columns,
                 const double *x, const int32_t *lengths, double *y);

/* ---- layers ---- */

/* The weights of a multi-head attention layer, by the names of clattn_nn_heads: qkv; q and kv; or q, k and v.  Those
 * not used have w = NULL. */
typedef struct nn_ref_heads {
  nn_ref_weight qkv, q, kv, k, v, o;
  const double *q_gamma, *k_gamma; /* QK-norm, qk_dim each */
  double qk_epsilon;
} nn_ref_heads;

/* y = o(attention(q(x), k(context), v(context))) + residual.  problem as in clattn_nn_attention_args: sizes, rules,
 * types, no layouts; projections are rounded to the types of q, k and v, and attention's result to that of o.  args
 * (optional): everything but q, k, v and sizes; its results are those wanted beside y.  x (batch * q_len, in), context
 * (batch * k_len, in) or NULL: x.  Returns what clattn_ref_attention does. */
clattn_status nn_ref_attention(const clattn_problem *problem, const clattn_ref_args *args, const nn_ref_heads *heads,
                               const double *x, const double *context, const double *residual, double *y);

/* clattn_nn_encdec_attention.  q and k (w = NULL: none) as above, add_w for ADDITIVE, one number for each compared
 * dimension; scale: as it is.  target (batch * target_len, target_dim), source (batch * source_len, source_dim);
 * contexts (batch * target_len, source_dim), weights (optional; batch, target_len, source_len); lengths optional. */
typedef struct nn_ref_encdec {
  clattn_similarity similarity;
  double scale;
  int64_t batch, target_len, source_len, target_dim, source_dim;
  nn_ref_weight q, k;
  const double *add_w;
  const double *target, *source;
  const int32_t *source_lengths;
} nn_ref_encdec;
clattn_status nn_ref_encdec_attention(const nn_ref_encdec *e, double *contexts, double *weights);

/* y = down(activation(up(x)) * gate(x)) + residual; gate (w = NULL: none).  Hidden numbers are rounded to `hidden`. */
void nn_ref_ffn(const nn_ref_weight *up, const nn_ref_weight *gate, const nn_ref_weight *down,
                clattn_nn_activation activation, clattn_dtype hidden, int64_t rows, const double *x,
                const double *residual, double *y);

/* clattn_nn_block_args.  cross_problem NULL: an encoder block.  gamma and beta: norms at self-attention,
 * cross-attention and feed-forward.  What stands between the steps is rounded to `hidden`. */
typedef struct nn_ref_block {
  clattn_nn_norm_order order;
  clattn_nn_norm_kind norm;
  double epsilon;
  clattn_nn_activation activation;
  clattn_dtype hidden;
  const clattn_problem *self_problem, *cross_problem;
  const clattn_ref_args *self_args, *cross_args;
  nn_ref_heads self_heads, cross_heads;
  nn_ref_weight up, gate, down;
  const double *gamma[3], *beta[3];
  const double *x, *context;
} nn_ref_block;
clattn_status nn_ref_block_run(const nn_ref_block *block, double *y);

#endif
