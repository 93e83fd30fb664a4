/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "rows.h"

void clattn_nn_pool_args_init(clattn_nn_pool_args *args) {
  if (args == NULL)
    return;
  memset(args, 0, sizeof(*args));
  args->struct_size = sizeof(*args);
}

static clattn_status check(const clattn_nn *nn, const clattn_nn_pool_args *args, nn_pool *params, clattn_error *error) {
  nn_ranges ranges = {.count = 0};
  if (args->pooling != CLATTN_NN_POOL_MEAN && args->pooling != CLATTN_NN_POOL_FIRST)
    return nn_fail(error, CLATTN_ERROR_ENUM, "args.pooling is %d, no pooling", args->pooling);
  if (args->normalise > 1)
    return nn_fail(error, CLATTN_ERROR_VALUE, "args.normalise is %u: it must be 0 or 1", args->normalise);
  clattn_status status = nn_check_size("args.batch", args->batch, 0, error);
  if (status == CLATTN_SUCCESS)
    status = nn_check_size("args.length", args->length, 0, error);
  if (status == CLATTN_SUCCESS)
    status = nn_check_size("args.columns", args->columns, 1, error);
  if (status == CLATTN_SUCCESS)
    status = nn_check_product("args.columns", args->columns, 1, error);
  if (status == CLATTN_SUCCESS)
    status = nn_check_product("args.batch and args.length", args->batch, args->length, error);
  if (status != CLATTN_SUCCESS)
    return status;
  const int64_t rows = args->batch * args->length;
  status =
      nn_rows_check(nn, "x", &args->x, rows, args->columns, rows > 0 ? 0 : NN_OPTIONAL, &params->x, &ranges, error);
  if (status == CLATTN_SUCCESS)
    status = nn_rows_check(nn, "y", &args->y, args->batch, args->columns,
                           NN_WRITTEN | (args->batch > 0 ? 0 : NN_OPTIONAL), &params->y, &ranges, error);
  if (status == CLATTN_SUCCESS)
    status = nn_check_mem(nn, "lengths", &args->lengths, (uint64_t)args->batch * sizeof(cl_int), sizeof(cl_int),
                          NN_OPTIONAL, &ranges, error);
  params->lengths_first = (clattn_long)(args->lengths.offset / sizeof(cl_int));
  return status == CLATTN_SUCCESS ? nn_check_overlaps(&ranges, "", error) : status;
}

static clattn_status run(nn_stream *stream, const clattn_nn_pool_args *args, clattn_error *error) {
  nn_pool params;
  memset(&params, 0, sizeof(params));
  params.length = args->length;
  params.columns = args->columns;
  params.most = args->pooling == CLATTN_NN_POOL_FIRST ? 1 : args->length;
  params.normalise = args->normalise != 0;
  const clattn_status status = check(stream->nn, args, &params, error);
  if (status != CLATTN_SUCCESS || args->batch == 0)
    return status;
  params.work = nn_rows_share(stream->nn, args->batch, args->columns * (params.most > 0 ? params.most : 1));
  const nn_rows_types types = nn_rows_types_of(args->x.dtype, args->y.dtype);
  const nn_arg values[] = {NN_ARG(params), NN_ARG(args->x.mem.buffer), NN_ARG(args->lengths.buffer),
                           NN_ARG(args->y.mem.buffer)};
  return nn_rows_enqueue(stream, "pool", &types, params.work, values, sizeof(values) / sizeof(values[0]), error);
}

clattn_status clattn_nn_pool(clattn_nn *nn, cl_command_queue queue, const clattn_nn_pool_args *args, cl_uint num_events,
                             const cl_event *wait_list, cl_event *event) {
  nn_stream stream;
  clattn_status status = nn_call_open(&stream, NN_CHECK_ARGS(args), nn, queue, num_events, wait_list, event,
                                      args != NULL ? args->error : NULL);
  if (status == CLATTN_SUCCESS)
    status = nn_stream_close(&stream, run(&stream, args, args->error), event, args->error);
  return status;
}
