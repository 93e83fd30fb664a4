/* SPDX-License-Identifier: Apache-2.0 */
/* Feed-forward.  The gate is computed first, into the place of the hidden numbers, and the activated ones multiply it
 * where it stands. */
#include <string.h>

#include "layer.h"

void clattn_nn_ffn_args_init(clattn_nn_ffn_args *args) {
  if (args == NULL)
    return;
  memset(args, 0, sizeof(*args));
  args->struct_size = sizeof(*args);
}

clattn_status nn_ffn_check(const nn_ffn *ffn, const clattn_nn *nn, clattn_error *error) {
  clattn_status status = nn_check_rows("args.rows", ffn->rows, error);
  if (status != CLATTN_SUCCESS)
    return status;
  if (ffn->activation < CLATTN_NN_NONE || ffn->activation > CLATTN_NN_SILU)
    return nn_fail(error, CLATTN_ERROR_ENUM, "args.activation is %d, no value of clattn_nn_activation",
                   ffn->activation);
  if (nn_dtype_bytes(ffn->x.dtype) == 0)
    return nn_fail(error, CLATTN_ERROR_ENUM, "x.dtype is %d; f32, f16 and bf16 are possible", ffn->x.dtype);
  status = nn_check_weight(nn, "args.up", ffn->up, 0, 0, error);
  if (status == CLATTN_SUCCESS && ffn->gate != NULL)
    status = nn_check_weight(nn, "args.gate", ffn->gate, ffn->up->in, ffn->up->out, error);
  if (status == CLATTN_SUCCESS)
    status = nn_check_weight(nn, "args.down", ffn->down, ffn->up->out, 0, error);
  return status;
}

void nn_ffn_lay(nn_ffn *ffn, nn_scratch *scratch) {
  ffn->hidden = nn_scratch_matrix(scratch, ffn->rows, ffn->up->out, ffn->x.dtype);
}

clattn_status nn_ffn_run(nn_stream *stream, const nn_ffn *ffn, clattn_error *error) {
  clattn_nn_linear_args up;
  clattn_status status = CLATTN_SUCCESS;
  if (ffn->rows == 0)
    return CLATTN_SUCCESS;
  clattn_nn_linear_args_init(&up);
  up.weight = ffn->up;
  up.rows = ffn->rows;
  up.x = ffn->x;
  up.y = ffn->hidden;
  up.activation = ffn->activation;
  if (ffn->gate != NULL) {
    up.factor = ffn->hidden;
    status = nn_project(stream, ffn->gate, ffn->rows, &ffn->x, &ffn->hidden, NULL, error);
  }
  if (status == CLATTN_SUCCESS)
    status = nn_run_linear(stream, &up, error);
  if (status == CLATTN_SUCCESS)
    status = nn_project(stream, ffn->down, ffn->rows, &ffn->hidden, &ffn->y, &ffn->residual, error);
  return status;
}

static void lay(void *job, nn_scratch *scratch) {
  nn_ffn_lay(job, scratch);
}

static clattn_status run(nn_stream *stream, const void *job, clattn_error *error) {
  return nn_ffn_run(stream, job, error);
}

static clattn_status memory(const clattn_nn *nn, const void *job, nn_ranges *ranges, clattn_error *error) {
  const nn_ffn *ffn = job;
  const int64_t rows = ffn->rows, out = ffn->down->out;
  int64_t stride = 0;
  clattn_status status = nn_check_matrix(nn, "x", &ffn->x, rows, ffn->up->in, nn_needed(rows), &stride, ranges, error);
  if (status == CLATTN_SUCCESS)
    status = nn_check_matrix(nn, "y", &ffn->y, rows, out, nn_needed(rows) | NN_WRITTEN, &stride, ranges, error);
  if (status == CLATTN_SUCCESS)
    status = nn_check_matrix(nn, "residual", &ffn->residual, rows, out, NN_OPTIONAL, &stride, ranges, error);
  return status;
}

/* *layer: of *ffn. */
static clattn_status open_layer(nn_ffn *ffn, nn_layer *layer, const clattn_nn *nn, const clattn_nn_ffn_args *args) {
  static const nn_layer ways = {NULL, lay, memory, NULL, run, "residual x"};
  const clattn_status status = NN_CHECK_ARGS(args);
  if (status != CLATTN_SUCCESS)
    return status;
  if (nn == NULL)
    return nn_fail(args->error, CLATTN_ERROR_NULL_POINTER, "nn must not be NULL");
  if (args->reserved0 != 0)
    return nn_fail(args->error, CLATTN_ERROR_RESERVED, "args.reserved0 is %u, not 0", args->reserved0);
  memset(ffn, 0, sizeof(*ffn));
  ffn->rows = args->rows;
  ffn->up = args->up;
  ffn->gate = args->gate;
  ffn->down = args->down;
  ffn->activation = args->activation;
  ffn->x = args->x;
  ffn->y = args->y;
  ffn->residual = args->residual;
  *layer = ways;
  layer->job = ffn;
  return nn_ffn_check(ffn, nn, args->error);
}

clattn_status clattn_nn_ffn_workspace(clattn_nn *nn, const clattn_nn_ffn_args *args, uint64_t *bytes) {
  nn_ffn ffn;
  nn_layer layer;
  const clattn_status status = open_layer(&ffn, &layer, nn, args);
  return status == CLATTN_SUCCESS ? nn_layer_workspace(&layer, bytes, args->error) : status;
}

clattn_status clattn_nn_ffn(clattn_nn *nn, cl_command_queue queue, const clattn_nn_ffn_args *args, cl_uint num_events,
                            const cl_event *wait_list, cl_event *event) {
  nn_ffn ffn;
  nn_layer layer;
  if (event != NULL)
    *event = NULL;
  const clattn_status status = open_layer(&ffn, &layer, nn, args);
  if (status != CLATTN_SUCCESS)
    return status;
  return nn_layer_run(nn, queue, &layer, &args->workspace, num_events, wait_list, event, args->error);
}
