/* SPDX-License-Identifier: Apache-2.0 */
/* Encoder and decoder blocks.  What stands between the steps has x's type:
 *
 *     post-norm:  a = x + self(x), norm in place;  a = a + cross(a), norm in place;  a = a + ffn(a);  y = norm(a)
 *     pre-norm:   n = norm(x), a = x + self(n);  n = norm(a), a = a + cross(n);  n = norm(a), y = a + ffn(n)
 *
 * y is written by the last launch alone, so it may be x. */
#include <string.h>

#include "layer.h"

enum { AT_SELF = 0, AT_CROSS = 1, AT_FFN = 2 };

void clattn_nn_block_args_init(clattn_nn_block_args *args) {
  if (args == NULL)
    return;
  memset(args, 0, sizeof(*args));
  args->struct_size = sizeof(*args);
}

typedef struct block {
  const clattn_nn_block_args *args;
  int decoder;
  int64_t rows, columns;
  nn_attention self, cross;
  nn_ffn ffn;
  clattn_nn_matrix a, n; /* in the scratch; n: pre-norm alone */
} block;

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static clattn_status check_values(const clattn_nn_block_args *args) {
  if (args->order != CLATTN_NN_POST_NORM && args->order != CLATTN_NN_PRE_NORM)
    return nn_fail(args->error, CLATTN_ERROR_ENUM, "args.order is %d, no value of clattn_nn_norm_order", args->order);
  if (args->norm != CLATTN_NN_LAYER_NORM && args->norm != CLATTN_NN_RMS_NORM)
    return nn_fail(args->error, CLATTN_ERROR_ENUM, "args.norm is %d, no value of clattn_nn_norm_kind", args->norm);
  return nn_check_epsilon("args.epsilon", args->epsilon, args->error);
}

static int any_heads(const clattn_nn_heads *heads) {
  return heads->qkv != NULL || heads->q != NULL || heads->kv != NULL || heads->k != NULL || heads->v != NULL ||
         heads->o != NULL || nn_present(&heads->q_gamma) || nn_present(&heads->k_gamma);
}

/* What an encoder block has no use for. */
static clattn_status check_encoder(const clattn_nn_block_args *args) {
  const struct {
    const char *name;
    int given;
  } list[] = {{"cross_problem", args->cross_problem != NULL},   {"cross_args", args->cross_args != NULL},
              {"cross_heads", any_heads(&args->cross_heads)},   {"context", nn_present(&args->context.mem)},
              {"gamma[1]", nn_present(&args->gamma[AT_CROSS])}, {"beta[1]", nn_present(&args->beta[AT_CROSS])}};
  for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); ++i)
    if (list[i].given)
      return nn_fail(args->error, CLATTN_ERROR_TENSOR_UNUSED, "args.%s is given: it is for decoder blocks alone",
                     list[i].name);
  return CLATTN_SUCCESS;
}

static clattn_status check_columns(const block *b, const char *name, int64_t columns) {
  if (columns == b->columns)
    return CLATTN_SUCCESS;
  return nn_fail(b->args->error, CLATTN_ERROR_SHAPE, "%s has %lld columns, x has %lld", name, (long long)columns,
                 (long long)b->columns);
}

static clattn_status open_self(block *b, clattn_nn *nn) {
  static const nn_attention_names names = NN_ATTENTION_NAMES("self_");
  const clattn_nn_block_args *args = b->args;
  int64_t context_in = 0;
  clattn_status status =
      nn_attention_open(&b->self, nn, args->self_problem, args->self_args, &args->self_heads, &names, args->error);
  if (status == CLATTN_SUCCESS)
    status = nn_attention_check_inputs(&b->self, &context_in, args->error);
  if (status != CLATTN_SUCCESS)
    return status;
  b->rows = b->self.q_rows;
  b->columns = nn_attention_in(&b->self);
  return check_columns(b, "the output of self_heads.o", args->self_heads.o->out);
}

static clattn_status open_cross(block *b, clattn_nn *nn) {
  static const nn_attention_names names = NN_ATTENTION_NAMES("cross_");
  const clattn_nn_block_args *args = b->args;
  clattn_status status =
      nn_attention_open(&b->cross, nn, args->cross_problem, args->cross_args, &args->cross_heads, &names, args->error);
  if (status != CLATTN_SUCCESS)
    return status;
  const clattn_problem *self = &b->self.problem, *cross = &b->cross.problem;
  if (cross->batch != self->batch || cross->q_len != self->q_len)
    return nn_fail(args->error, CLATTN_ERROR_SHAPE,
                   "cross_problem: batch %lld and q_len %lld; those of self_problem are %lld and %lld",
                   (long long)cross->batch, (long long)cross->q_len, (long long)self->batch, (long long)self->q_len);
  status = check_columns(b, "the input of cross_heads' queries", nn_attention_in(&b->cross));
  if (status == CLATTN_SUCCESS)
    status = check_columns(b, "the output of cross_heads.o", args->cross_heads.o->out);
  return status;
}

static clattn_status open_ffn(block *b, const clattn_nn *nn) {
  const clattn_nn_block_args *args = b->args;
  nn_ffn *ffn = &b->ffn;
  ffn->rows = b->rows;
  ffn->up = args->up;
  ffn->gate = args->gate;
  ffn->down = args->down;
  ffn->activation = args->activation;
  ffn->x.dtype = args->x.dtype;
  clattn_status status = nn_ffn_check(ffn, nn, args->error);
  if (status == CLATTN_SUCCESS)
    status = check_columns(b, "the input of args.up", args->up->in);
  if (status == CLATTN_SUCCESS)
    status = check_columns(b, "the output of args.down", args->down->out);
  return status;
}

/* ---- the block --------------------------------------------------------------------------------------------------- */

static void set(nn_attention *attention, const clattn_nn_matrix *x, const clattn_nn_matrix *y,
                const clattn_nn_matrix *residual) {
  attention->x = *x;
  attention->y = *y;
  attention->residual = *residual;
}

/* Attention and feed-forward come one after the other, so they have the same scratch. */
static void lay(void *job, nn_scratch *scratch) {
  block *b = job;
  const clattn_nn_block_args *args = b->args;
  const int pre = args->order == CLATTN_NN_PRE_NORM;
  b->a = nn_scratch_matrix(scratch, b->rows, b->columns, args->x.dtype);
  b->n = pre ? nn_scratch_matrix(scratch, b->rows, b->columns, args->x.dtype) : b->a;
  set(&b->self, pre ? &b->n : &args->x, &b->a, &args->x);
  set(&b->cross, &b->n, &b->a, &b->a);
  b->ffn.x = b->n;
  b->ffn.y = pre ? args->y : b->a;
  b->ffn.residual = b->a;
  const uint64_t start = scratch->used;
  nn_attention_lay(&b->self, scratch);
  uint64_t end = scratch->used;
  if (b->decoder) {
    scratch->used = start;
    nn_attention_lay(&b->cross, scratch);
    end = scratch->used > end ? scratch->used : end;
  }
  scratch->used = start;
  nn_ffn_lay(&b->ffn, scratch);
  scratch->used = scratch->used > end ? scratch->used : end;
}

static clattn_status memory_of_context(const clattn_nn *nn, const block *b, nn_ranges *ranges, clattn_error *error) {
  int64_t stride = 0, columns = 0;
  if (!nn_present(&b->args->context.mem))
    return nn_fail(error, CLATTN_ERROR_TENSOR_MISSING, "context is needed and absent");
  const clattn_status status = nn_attention_check_inputs(&b->cross, &columns, error);
  return status == CLATTN_SUCCESS
             ? nn_check_matrix(nn, "context", &b->args->context, b->cross.k_rows, columns, 0, &stride, ranges, error)
             : status;
}

static clattn_status memory(const clattn_nn *nn, const void *job, nn_ranges *ranges, clattn_error *error) {
  static const char *const names[2][3] = {{"gamma[0]", "gamma[1]", "gamma[2]"}, {"beta[0]", "beta[1]", "beta[2]"}};
  const block *b = job;
  const clattn_nn_block_args *args = b->args;
  const uint64_t bytes = (uint64_t)b->columns * sizeof(float);
  const int needed = nn_needed(b->rows);
  int64_t stride = 0;
  clattn_status status = nn_check_matrix(nn, "x", &args->x, b->rows, b->columns, needed, &stride, ranges, error);
  if (status == CLATTN_SUCCESS)
    status = nn_check_matrix(nn, "y", &args->y, b->rows, b->columns, needed | NN_WRITTEN, &stride, ranges, error);
  if (status == CLATTN_SUCCESS && b->decoder)
    status = memory_of_context(nn, b, ranges, error);
  for (int i = 0; i < 3 && status == CLATTN_SUCCESS; ++i) {
    status = nn_check_mem(nn, names[0][i], &args->gamma[i], bytes, sizeof(float), NN_OPTIONAL, ranges, error);
    if (status == CLATTN_SUCCESS)
      status = nn_check_mem(nn, names[1][i], &args->beta[i], bytes, sizeof(float), NN_OPTIONAL, ranges, error);
  }
  if (status == CLATTN_SUCCESS)
    status = nn_attention_memory(nn, &b->self, ranges, error);
  if (status == CLATTN_SUCCESS && b->decoder)
    status = nn_attention_memory(nn, &b->cross, ranges, error);
  return status;
}

static clattn_status norm(nn_stream *stream, const block *b, int at, const clattn_nn_matrix *x,
                          const clattn_nn_matrix *y, clattn_error *error) {
  clattn_nn_norm_args args;
  clattn_nn_norm_args_init(&args);
  args.kind = b->args->norm;
  args.epsilon = b->args->epsilon;
  args.rows = b->rows;
  args.columns = b->columns;
  args.x = *x;
  args.y = *y;
  args.gamma = b->args->gamma[at];
  args.beta = b->args->beta[at];
  return nn_run_norm(stream, &args, error);
}

static clattn_status run_post(nn_stream *stream, const block *b, clattn_error *error) {
  clattn_status status = nn_attention_run(stream, &b->self, error);
  if (status == CLATTN_SUCCESS)
    status = norm(stream, b, AT_SELF, &b->a, &b->a, error);
  if (status == CLATTN_SUCCESS && b->decoder)
    status = nn_attention_run(stream, &b->cross, error);
  if (status == CLATTN_SUCCESS && b->decoder)
    status = norm(stream, b, AT_CROSS, &b->a, &b->a, error);
  if (status == CLATTN_SUCCESS)
    status = nn_ffn_run(stream, &b->ffn, error);
  if (status == CLATTN_SUCCESS)
    status = norm(stream, b, AT_FFN, &b->a, &b->args->y, error);
  return status;
}

static clattn_status run_pre(nn_stream *stream, const block *b, clattn_error *error) {
  clattn_status status = norm(stream, b, AT_SELF, &b->args->x, &b->n, error);
  if (status == CLATTN_SUCCESS)
    status = nn_attention_run(stream, &b->self, error);
  if (status == CLATTN_SUCCESS && b->decoder)
    status = norm(stream, b, AT_CROSS, &b->a, &b->n, error);
  if (status == CLATTN_SUCCESS && b->decoder)
    status = nn_attention_run(stream, &b->cross, error);
  if (status == CLATTN_SUCCESS)
    status = norm(stream, b, AT_FFN, &b->a, &b->n, error);
  if (status == CLATTN_SUCCESS)
    status = nn_ffn_run(stream, &b->ffn, error);
  return status;
}

static clattn_status check(cl_command_queue queue, const void *job) {
  const block *b = job;
  const clattn_status status = clattn_enqueue_check(b->self.plan, queue, &b->self.call);
  return status == CLATTN_SUCCESS && b->decoder ? clattn_enqueue_check(b->cross.plan, queue, &b->cross.call) : status;
}

static clattn_status run(nn_stream *stream, const void *job, clattn_error *error) {
  const block *b = job;
  if (b->rows == 0)
    return CLATTN_SUCCESS;
  return b->args->order == CLATTN_NN_PRE_NORM ? run_pre(stream, b, error) : run_post(stream, b, error);
}

static void close_block(block *b) {
  nn_attention_close(&b->self);
  nn_attention_close(&b->cross);
}

/* *layer: of *b, which is always to be closed.  decoder: 0, 1, or -1: whatever cross_problem says. */
static clattn_status open_layer(block *b, nn_layer *layer, clattn_nn *nn, const clattn_nn_block_args *args,
                                int decoder) {
  static const nn_layer ways = {NULL, lay, memory, check, run, "x"};
  memset(b, 0, sizeof(*b));
  clattn_status status = NN_CHECK_ARGS(args);
  if (status != CLATTN_SUCCESS)
    return status;
  if (nn == NULL)
    return nn_fail(args->error, CLATTN_ERROR_NULL_POINTER, "nn must not be NULL");
  *layer = ways;
  layer->job = b;
  b->args = args;
  b->decoder = decoder >= 0 ? decoder : args->cross_problem != NULL;
  status = check_values(args);
  if (status == CLATTN_SUCCESS && !b->decoder)
    status = check_encoder(args);
  if (status == CLATTN_SUCCESS)
    status = open_self(b, nn);
  if (status == CLATTN_SUCCESS && b->decoder)
    status = open_cross(b, nn);
  if (status == CLATTN_SUCCESS && b->decoder)
    b->cross.context = args->context;
  if (status == CLATTN_SUCCESS)
    status = open_ffn(b, nn);
  return status;
}

clattn_status clattn_nn_block_workspace(clattn_nn *nn, const clattn_nn_block_args *args, uint64_t *bytes) {
  block b;
  nn_layer layer;
  clattn_status status = open_layer(&b, &layer, nn, args, -1);
  if (status == CLATTN_SUCCESS)
    status = nn_layer_workspace(&layer, bytes, args->error);
  close_block(&b);
  return status;
}

static clattn_status run_block(clattn_nn *nn, cl_command_queue queue, const clattn_nn_block_args *args, int decoder,
                               cl_uint num_events, const cl_event *wait_list, cl_event *event) {
  block b;
  nn_layer layer;
  if (event != NULL)
    *event = NULL;
  clattn_status status = open_layer(&b, &layer, nn, args, decoder);
  if (status == CLATTN_SUCCESS)
    status = nn_layer_run(nn, queue, &layer, &args->workspace, num_events, wait_list, event, args->error);
  close_block(&b);
  return status;
}

clattn_status clattn_nn_encoder_block(clattn_nn *nn, cl_command_queue queue, const clattn_nn_block_args *args,
                                      cl_uint num_events, const cl_event *wait_list, cl_event *event) {
  return run_block(nn, queue, args, 0, num_events, wait_list, event);
}

clattn_status clattn_nn_decoder_block(clattn_nn *nn, cl_command_queue queue, const clattn_nn_block_args *args,
                                      cl_uint num_events, const cl_event *wait_list, cl_event *event) {
  return run_block(nn, queue, args, 1, num_events, wait_list, event);
}
