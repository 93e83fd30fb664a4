/* SPDX-License-Identifier: Apache-2.0 */
/* What attention layers, feed-forward and blocks share.  A layer is opened (arguments checked, plans made, nothing
 * enqueued), laid out in its scratch, run on a stream, and closed; a block does so with the layers that it is made of. */
#ifndef CLATTN_NN_LAYER_H
#define CLATTN_NN_LAYER_H

#include "nn.h"

/* ---- any layer ---- */

typedef struct nn_layer {
  void *job;
  /* Takes the places of what stands between launches; done twice, first to count alone. */
  void (*lay)(void *job, nn_scratch *scratch);
  /* Checks the caller's memory, and notes it. */
  clattn_status (*memory)(const clattn_nn *nn, const void *job, nn_ranges *ranges, clattn_error *error);
  /* clattn_enqueue_check with what was laid out; NULL: there is no attention in it. */
  clattn_status (*check)(cl_command_queue queue, const void *job);
  clattn_status (*run)(nn_stream *stream, const void *job, clattn_error *error);
  const char *same; /* inputs at whose very place y may be */
} nn_layer;

/* What `lay` takes: the answer of a workspace query. */
clattn_status nn_layer_workspace(const nn_layer *layer, uint64_t *bytes, clattn_error *error);
clattn_status nn_layer_run(clattn_nn *nn, cl_command_queue queue, const nn_layer *layer, const clattn_mem *workspace,
                           cl_uint num_events, const cl_event *wait_list, cl_event *event, clattn_error *error);

/* One matrix after the other in a scratch; columns from `first` on of one of them. */
clattn_nn_matrix nn_scratch_matrix(nn_scratch *scratch, int64_t rows, int64_t columns, clattn_dtype dtype);
clattn_nn_matrix nn_columns(const clattn_nn_matrix *matrix, int64_t first);

/* A weight that is there and is `nn`'s; in and out where they are not 0. */
clattn_status nn_check_weight(const clattn_nn *nn, const char *name, const clattn_nn_weight *weight, int64_t in,
                              int64_t out, clattn_error *error);
/* OpenCL has no empty buffers, so for no rows none need be given. */
static inline int nn_needed(int64_t rows) {
  return rows > 0 ? 0 : NN_OPTIONAL;
}
clattn_status nn_check_rows(const char *name, int64_t rows, clattn_error *error);
clattn_status nn_check_epsilon(const char *name, float epsilon, clattn_error *error);
/* y = x W^T + b + residual; residual may be NULL, no rows are no launch. */
clattn_status nn_project(nn_stream *stream, const clattn_nn_weight *weight, int64_t rows, const clattn_nn_matrix *x,
                         const clattn_nn_matrix *y, const clattn_nn_matrix *residual, clattn_error *error);

/* ---- attention.c ---- */

/* Names for messages: "heads.q", or in a block "self_heads.q" and "cross_heads.q". */
typedef struct nn_attention_names {
  const char *problem, *args, *heads, *qkv, *q, *kv, *k, *v, *o, *q_gamma, *k_gamma, *qk_epsilon, *lse, *scores,
      *max_logit;
} nn_attention_names;
#define NN_ATTENTION_NAMES(p)                                                                                          \
  {                                                                                                                    \
    p "problem", p "args", p "heads", p "heads.qkv", p "heads.q", p "heads.kv", p "heads.k", p "heads.v", p "heads.o", \
        p "heads.q_gamma", p "heads.k_gamma", p "heads.qk_epsilon", p "args.lse", p "args.scores", p "args.max_logit"  \
  }

typedef struct nn_attention {
  const nn_attention_names *names;
  clattn_nn_heads heads;
  clattn_nn_matrix x, context, y, residual; /* context absent: x */
  clattn_problem problem;                   /* with sizes and the layouts of q, k, v and o */
  clattn_args call;
  clattn_plan *plan;
  uint64_t plan_bytes; /* workspace of the plan */
  int64_t q_rows, k_rows;
  int64_t q_columns, k_columns, v_columns, o_columns; /* heads * dim */
  clattn_nn_matrix q, k, v, o;                        /* in the scratch */
} nn_attention;

/* problem, args (may be NULL) and heads as in clattn_nn_attention_args.  Always to be closed. */
clattn_status nn_attention_open(nn_attention *attention, clattn_nn *nn, const clattn_problem *problem,
                                const clattn_args *args, const clattn_nn_heads *heads, const nn_attention_names *names,
                                clattn_error *error);
void nn_attention_close(nn_attention *attention);
int64_t nn_attention_in(const nn_attention *attention); /* columns of x */
/* That x and context go with problem and weights.  context_in: columns of context, 0: there is none. */
clattn_status nn_attention_check_inputs(const nn_attention *attention, int64_t *context_in, clattn_error *error);
void nn_attention_lay(nn_attention *attention, nn_scratch *scratch);
/* The memory of args' results and of QK-norm. */
clattn_status nn_attention_memory(const clattn_nn *nn, const nn_attention *attention, nn_ranges *ranges,
                                  clattn_error *error);
clattn_status nn_attention_run(nn_stream *stream, const nn_attention *attention, clattn_error *error);
/* clattn_enqueue on a stream; errors are args' own. */
clattn_status nn_attend(nn_stream *stream, const clattn_plan *plan, const clattn_args *args);

/* ---- ffn.c ---- */

typedef struct nn_ffn {
  int64_t rows;
  const clattn_nn_weight *up, *gate, *down;
  clattn_nn_activation activation;
  clattn_nn_matrix x, y, residual;
  clattn_nn_matrix hidden; /* in the scratch, of x's type */
} nn_ffn;

/* Checks what is set in it, x's type among it: weights, rows and activation. */
clattn_status nn_ffn_check(const nn_ffn *ffn, const clattn_nn *nn, clattn_error *error);
void nn_ffn_lay(nn_ffn *ffn, nn_scratch *scratch);
clattn_status nn_ffn_run(nn_stream *stream, const nn_ffn *ffn, clattn_error *error);

#endif
