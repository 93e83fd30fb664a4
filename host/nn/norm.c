/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "rows.h"

void clattn_nn_norm_args_init(clattn_nn_norm_args *args) {
  if (args == NULL)
    return;
  memset(args, 0, sizeof(*args));
  args->struct_size = sizeof(*args);
}

static clattn_status check_values(const clattn_nn_norm_args *args, int64_t heads, clattn_error *error) {
  if (args->kind != CLATTN_NN_LAYER_NORM && args->kind != CLATTN_NN_RMS_NORM)
    return nn_fail(error, CLATTN_ERROR_ENUM, "args.kind is %d, no norm", args->kind);
  if (!(args->epsilon >= 0) || isinf(args->epsilon))
    return nn_fail(error, CLATTN_ERROR_VALUE, "args.epsilon is %g: it must be finite and >= 0", (double)args->epsilon);
  if (args->kind == CLATTN_NN_RMS_NORM && nn_present(&args->mean))
    return nn_fail(error, CLATTN_ERROR_TENSOR_UNUSED, "mean is given, but RMSNorm has none");
  clattn_status status = nn_check_size("args.rows", args->rows, 0, error);
  if (status == CLATTN_SUCCESS)
    status = nn_check_size("args.columns", args->columns, 1, error);
  if (status == CLATTN_SUCCESS)
    status = nn_check_size("args.heads", heads, 1, error);
  if (status == CLATTN_SUCCESS)
    status = nn_check_product("args.heads and args.columns", heads, args->columns, error);
  if (status == CLATTN_SUCCESS)
    status = nn_check_product("args.rows and args.heads", args->rows, heads, error);
  return status;
}

static clattn_status check_memory(const clattn_nn *nn, const clattn_nn_norm_args *args, nn_norm *params,
                                  clattn_error *error) {
  const int64_t width = params->heads * args->columns;
  const int needed = args->rows > 0 ? 0 : NN_OPTIONAL; /* OpenCL has no empty buffers */
  nn_ranges ranges = {.count = 0};
  const struct {
    const char *name;
    const clattn_nn_matrix *matrix;
    int flags;
    nn_rows *view;
  } matrices[] = {{"x", &args->x, needed, &params->x},
                  {"y", &args->y, needed | NN_WRITTEN, &params->y},
                  {"residual", &args->residual, NN_OPTIONAL, &params->residual},
                  {"sum", &args->sum, NN_OPTIONAL | NN_WRITTEN, &params->sum}};
  const struct {
    const char *name;
    const clattn_mem *mem;
    int64_t count;
    int flags;
    clattn_long *first;
  } numbers[] = {
      {"gamma", &args->gamma, args->columns, NN_OPTIONAL, &params->gamma_first},
      {"beta", &args->beta, args->columns, NN_OPTIONAL, &params->beta_first},
      {"mean", &args->mean, args->rows * params->heads, NN_OPTIONAL | NN_WRITTEN, &params->mean_first},
      {"inv_std", &args->inv_std, args->rows * params->heads, NN_OPTIONAL | NN_WRITTEN, &params->inv_std_first}};
  for (size_t i = 0; i < sizeof(matrices) / sizeof(matrices[0]); ++i) {
    const clattn_status status = nn_rows_check(nn, matrices[i].name, matrices[i].matrix, args->rows, width,
                                               matrices[i].flags, matrices[i].view, &ranges, error);
    if (status != CLATTN_SUCCESS)
      return status;
  }
  for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); ++i) {
    const clattn_status status =
        nn_check_mem(nn, numbers[i].name, numbers[i].mem, (uint64_t)numbers[i].count * sizeof(float), sizeof(float),
                     numbers[i].flags, &ranges, error);
    if (status != CLATTN_SUCCESS)
      return status;
    *numbers[i].first = (clattn_long)(numbers[i].mem->offset / sizeof(float));
  }
  return nn_check_overlaps(&ranges, "x residual", error);
}

clattn_status nn_run_norm(nn_stream *stream, const clattn_nn_norm_args *args, clattn_error *error) {
  const clattn_nn *nn = stream->nn;
  const int64_t heads = args->heads != 0 ? args->heads : 1;
  nn_norm params;
  memset(&params, 0, sizeof(params));
  clattn_status status = check_values(args, heads, error);
  if (status != CLATTN_SUCCESS)
    return status;
  params.heads = heads;
  params.columns = args->columns;
  params.epsilon = args->epsilon;
  params.rms = args->kind == CLATTN_NN_RMS_NORM;
  status = check_memory(nn, args, &params, error);
  if (status != CLATTN_SUCCESS || args->rows == 0)
    return status;
  params.work = nn_rows_share(nn, args->rows * heads, args->columns);
  nn_rows_types types = nn_rows_types_of(args->x.dtype, args->y.dtype);
  if (nn_present(&args->residual.mem))
    types.x1 = args->residual.dtype;
  if (nn_present(&args->sum.mem))
    types.sum = args->sum.dtype;
  const nn_arg values[] = {NN_ARG(params),
                           NN_ARG(args->x.mem.buffer),
                           NN_ARG(args->residual.mem.buffer),
                           NN_ARG(args->gamma.buffer),
                           NN_ARG(args->beta.buffer),
                           NN_ARG(args->y.mem.buffer),
                           NN_ARG(args->sum.mem.buffer),
                           NN_ARG(args->mean.buffer),
                           NN_ARG(args->inv_std.buffer)};
  return nn_rows_enqueue(stream, "norm", &types, params.work, values, sizeof(values) / sizeof(values[0]), error);
}

clattn_status clattn_nn_norm(clattn_nn *nn, cl_command_queue queue, const clattn_nn_norm_args *args, cl_uint num_events,
                             const cl_event *wait_list, cl_event *event) {
  nn_stream stream;
  clattn_status status = nn_call_open(&stream, NN_CHECK_ARGS(args), nn, queue, num_events, wait_list, event,
                                      args != NULL ? args->error : NULL);
  if (status == CLATTN_SUCCESS)
    status = nn_stream_close(&stream, nn_run_norm(&stream, args, args->error), event, args->error);
  return status;
}
