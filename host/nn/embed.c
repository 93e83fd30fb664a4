/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "rows.h"

enum { NAME_BYTES = 32 };

void clattn_nn_embed_args_init(clattn_nn_embed_args *args) {
  if (args == NULL)
    return;
  memset(args, 0, sizeof(*args));
  args->struct_size = sizeof(*args);
}

/* The rows of a table that calls without ids look up: first .. first + period - 1, as far as y reaches. */
static clattn_status check_period(const char *name, const clattn_nn_table *table, int64_t rows, clattn_error *error) {
  const int64_t period = table->period > 0 ? table->period : 1, reached = rows < period ? rows : period;
  if (table->period < 0)
    return nn_fail(error, CLATTN_ERROR_SHAPE, "%s.period is %lld: it must be >= 0", name, (long long)table->period);
  if (table->first < 0 || table->first > table->rows - (reached > 0 ? reached : 1))
    return nn_fail(error, CLATTN_ERROR_SHAPE, "%s.first is %lld: %lld rows from there on are not among its %lld", name,
                   (long long)table->first, (long long)reached, (long long)table->rows);
  return CLATTN_SUCCESS;
}

static clattn_status check_table(const clattn_nn *nn, int index, const clattn_nn_embed_args *args,
                                 char names[2][NAME_BYTES], nn_table *params, nn_ranges *ranges, clattn_error *error) {
  const clattn_nn_table *table = &args->table[index];
  const char *name = names[0];
  (void)snprintf(names[0], NAME_BYTES, "table[%d]", index);
  (void)snprintf(names[1], NAME_BYTES, "table[%d].ids", index);
  if (index > 0 && !nn_present(&table->values.mem)) {
    int64_t stride = 0;
    if (table->rows != 0 || table->period != 0 || table->first != 0 || nn_present(&table->ids))
      return nn_fail(error, CLATTN_ERROR_TENSOR_MISSING, "%s has rows, ids, period or first, but no values", name);
    return nn_check_matrix(nn, name, &table->values, 0, args->columns, NN_OPTIONAL, &stride, NULL, error);
  }
  if (table->rows < 1)
    return nn_fail(error, CLATTN_ERROR_SHAPE, "%s.rows is %lld: it must be >= 1", name, (long long)table->rows);
  if (nn_present(&table->ids) && (table->period != 0 || table->first != 0))
    return nn_fail(error, CLATTN_ERROR_TENSOR_UNUSED, "%s has ids, and period %lld and first %lld beside them", name,
                   (long long)table->period, (long long)table->first);
  clattn_status status = nn_present(&table->ids) ? CLATTN_SUCCESS : check_period(name, table, args->rows, error);
  if (status == CLATTN_SUCCESS)
    status = nn_rows_check(nn, name, &table->values, table->rows, args->columns, 0, &params->values, ranges, error);
  if (status == CLATTN_SUCCESS)
    status = nn_check_mem(nn, names[1], &table->ids, (uint64_t)args->rows * sizeof(cl_int), sizeof(cl_int), NN_OPTIONAL,
                          ranges, error);
  params->rows = table->rows;
  params->ids_first = (clattn_long)(table->ids.offset / sizeof(cl_int));
  params->period = table->period;
  params->first = table->first;
  return status;
}

static clattn_status check(const clattn_nn *nn, const clattn_nn_embed_args *args, nn_embed *params,
                           clattn_error *error) {
  char names[NN_TABLES][2][NAME_BYTES];
  nn_ranges ranges = {.count = 0};
  if (!isfinite(args->scale))
    return nn_fail(error, CLATTN_ERROR_VALUE, "args.scale is %g: it must be finite", (double)args->scale);
  clattn_status status = nn_check_size("args.rows", args->rows, 0, error);
  if (status == CLATTN_SUCCESS)
    status = nn_check_size("args.columns", args->columns, 1, error);
  if (status == CLATTN_SUCCESS)
    status = nn_check_product("args.columns", args->columns, 1, error);
  if (status == CLATTN_SUCCESS)
    status = nn_check_product("args.rows", args->rows, 1, error);
  for (int i = 0; i < NN_TABLES && status == CLATTN_SUCCESS; ++i)
    status = check_table(nn, i, args, names[i], &params->table[i], &ranges, error);
  if (status == CLATTN_SUCCESS)
    status = nn_rows_check(nn, "y", &args->y, args->rows, args->columns,
                           NN_WRITTEN | (args->rows > 0 ? 0 : NN_OPTIONAL), &params->y, &ranges, error);
  return status == CLATTN_SUCCESS ? nn_check_overlaps(&ranges, "", error) : status;
}

static clattn_status run(nn_stream *stream, const clattn_nn_embed_args *args, clattn_error *error) {
  const clattn_nn_table *tables = args->table;
  nn_embed params;
  memset(&params, 0, sizeof(params));
  params.columns = args->columns;
  params.scale = args->scale != 0 ? args->scale : 1;
  const clattn_status status = check(stream->nn, args, &params, error);
  if (status != CLATTN_SUCCESS || args->rows == 0)
    return status;
  params.work = nn_rows_share(stream->nn, args->rows, args->columns);
  nn_rows_types types = nn_rows_types_of(tables[0].values.dtype, args->y.dtype);
  if (params.table[1].rows > 0)
    types.x1 = tables[1].values.dtype;
  if (params.table[2].rows > 0)
    types.x2 = tables[2].values.dtype;
  const nn_arg values[] = {NN_ARG(params),
                           NN_ARG(tables[0].values.mem.buffer),
                           NN_ARG(tables[1].values.mem.buffer),
                           NN_ARG(tables[2].values.mem.buffer),
                           NN_ARG(tables[0].ids.buffer),
                           NN_ARG(tables[1].ids.buffer),
                           NN_ARG(tables[2].ids.buffer),
                           NN_ARG(args->y.mem.buffer)};
  return nn_rows_enqueue(stream, "embed", &types, params.work, values, sizeof(values) / sizeof(values[0]), error);
}

clattn_status clattn_nn_embed(clattn_nn *nn, cl_command_queue queue, const clattn_nn_embed_args *args,
                              cl_uint num_events, const cl_event *wait_list, cl_event *event) {
  nn_stream stream;
  clattn_status status = nn_call_open(&stream, NN_CHECK_ARGS(args), nn, queue, num_events, wait_list, event,
                                      args != NULL ? args->error : NULL);
  if (status == CLATTN_SUCCESS)
    status = nn_stream_close(&stream, run(&stream, args, args->error), event, args->error);
  return status;
}
