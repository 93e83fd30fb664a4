/* SPDX-License-Identifier: Apache-2.0 */
#include "layer.h"

#include <math.h>
#include <string.h>

enum { WORKSPACE_ALIGNMENT = 64 };

static uint64_t layer_bytes(const nn_layer *layer) {
  nn_scratch count;
  memset(&count, 0, sizeof(count));
  layer->lay(layer->job, &count);
  return count.used;
}

clattn_status nn_layer_workspace(const nn_layer *layer, uint64_t *bytes, clattn_error *error) {
  if (bytes == NULL)
    return nn_fail(error, CLATTN_ERROR_NULL_POINTER, "bytes must not be NULL");
  *bytes = layer_bytes(layer);
  return CLATTN_SUCCESS;
}

/* Notes a workspace of the caller's; its size is known to be right. */
static clattn_status note_workspace(const clattn_nn *nn, const clattn_mem *workspace, uint64_t bytes, nn_ranges *ranges,
                                    clattn_error *error) {
  if (bytes == 0 || !nn_present(workspace))
    return CLATTN_SUCCESS;
  const clattn_status status =
      nn_check_mem(nn, "workspace", workspace, bytes, WORKSPACE_ALIGNMENT, 0, NULL, error); /* kernels read it too */
  if (status != CLATTN_SUCCESS)
    return status;
  return nn_check_mem(nn, "workspace", workspace, bytes, WORKSPACE_ALIGNMENT, NN_WRITTEN, ranges, error);
}

clattn_status nn_layer_run(clattn_nn *nn, cl_command_queue queue, const nn_layer *layer, const clattn_mem *workspace,
                           cl_uint num_events, const cl_event *wait_list, cl_event *event, clattn_error *error) {
  const uint64_t bytes = layer_bytes(layer);
  nn_stream stream;
  nn_scratch scratch;
  nn_ranges ranges;
  cl_mem made = NULL;
  ranges.count = 0;
  clattn_status status = nn_stream_open(&stream, nn, queue, num_events, wait_list, error);
  if (status != CLATTN_SUCCESS)
    return status;
  status = layer->memory(nn, layer->job, &ranges, error);
  if (status == CLATTN_SUCCESS)
    status = nn_scratch_open(nn, workspace, bytes, &scratch, &made, error);
  if (status == CLATTN_SUCCESS)
    status = note_workspace(nn, workspace, bytes, &ranges, error);
  if (status == CLATTN_SUCCESS)
    status = nn_check_overlaps(&ranges, layer->same, error);
  if (status == CLATTN_SUCCESS) {
    layer->lay(layer->job, &scratch);
    status = layer->check != NULL ? layer->check(queue, layer->job) : CLATTN_SUCCESS;
  }
  if (status == CLATTN_SUCCESS)
    status = layer->run(&stream, layer->job, error);
  status = nn_stream_close(&stream, status, event, error);
  if (made != NULL)
    clReleaseMemObject(made); /* launches hold it until they are done */
  return status;
}

clattn_nn_matrix nn_scratch_matrix(nn_scratch *scratch, int64_t rows, int64_t columns, clattn_dtype dtype) {
  clattn_nn_matrix matrix;
  memset(&matrix, 0, sizeof(matrix));
  matrix.mem = nn_scratch_take(scratch, (uint64_t)(rows * columns) * nn_dtype_bytes(dtype));
  matrix.dtype = dtype;
  matrix.stride = columns;
  return matrix;
}

clattn_nn_matrix nn_columns(const clattn_nn_matrix *matrix, int64_t first) {
  const uint64_t bytes = (uint64_t)first * nn_dtype_bytes(matrix->dtype);
  clattn_nn_matrix part = *matrix;
  if (part.mem.bytes > 0) { /* else there are no rows */
    part.mem.offset += bytes;
    part.mem.bytes -= bytes;
  }
  return part;
}

clattn_status nn_check_weight(const clattn_nn *nn, const char *name, const clattn_nn_weight *weight, int64_t in,
                              int64_t out, clattn_error *error) {
  if (weight == NULL)
    return nn_fail(error, CLATTN_ERROR_NULL_POINTER, "%s must not be NULL", name);
  if (weight->nn != nn)
    return nn_fail(error, CLATTN_ERROR_WRONG_CONTEXT, "%s was made for another clattn_nn", name);
  if ((in != 0 && weight->in != in) || (out != 0 && weight->out != out))
    return nn_fail(error, CLATTN_ERROR_SHAPE, "%s makes %lld outputs of %lld inputs, not %lld of %lld", name,
                   (long long)weight->out, (long long)weight->in, (long long)(out != 0 ? out : weight->out),
                   (long long)(in != 0 ? in : weight->in));
  return CLATTN_SUCCESS;
}

clattn_status nn_check_rows(const char *name, int64_t rows, clattn_error *error) {
  if (rows >= 0 && rows <= INT32_MAX)
    return CLATTN_SUCCESS;
  return nn_fail(error, CLATTN_ERROR_SHAPE, "%s is %lld, not 0 to 2^31 - 1", name, (long long)rows);
}

clattn_status nn_check_epsilon(const char *name, float epsilon, clattn_error *error) {
  if (epsilon >= 0 && isfinite(epsilon))
    return CLATTN_SUCCESS;
  return nn_fail(error, CLATTN_ERROR_VALUE, "%s is %g: must be finite and >= 0", name, (double)epsilon);
}

clattn_status nn_project(nn_stream *stream, const clattn_nn_weight *weight, int64_t rows, const clattn_nn_matrix *x,
                         const clattn_nn_matrix *y, const clattn_nn_matrix *residual, clattn_error *error) {
  clattn_nn_linear_args args;
  if (rows == 0)
    return CLATTN_SUCCESS;
  clattn_nn_linear_args_init(&args);
  args.weight = weight;
  args.rows = rows;
  args.x = *x;
  args.y = *y;
  if (residual != NULL)
    args.residual = *residual;
  return nn_run_linear(stream, &args, error);
}
