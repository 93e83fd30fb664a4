/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "rows.h"

void clattn_nn_rope_args_init(clattn_nn_rope_args *args) {
  if (args == NULL)
    return;
  memset(args, 0, sizeof(*args));
  args->struct_size = sizeof(*args);
}

/* A tensor (batch, head, row, element) whose strides are known. */
typedef struct view {
  int64_t size[4], stride[4];
} view;

static clattn_status check_sizes(const clattn_nn_rope_args *args, int64_t rope_dim, clattn_error *error) {
  const struct {
    const char *name;
    int64_t size, least;
  } sizes[] = {{"args.batch", args->batch, 0},
               {"args.heads", args->heads, 1},
               {"args.length", args->length, 0},
               {"args.dim", args->dim, 1},
               {"args.table_positions", args->table_positions, 1}};
  clattn_status status = CLATTN_SUCCESS;
  if (args->rope != CLATTN_ROPE_HALF && args->rope != CLATTN_ROPE_INTERLEAVED)
    return nn_fail(error, CLATTN_ERROR_ENUM, "args.rope is %d, neither HALF nor INTERLEAVED", args->rope);
  if (args->reserved0 != 0)
    return nn_fail(error, CLATTN_ERROR_RESERVED, "args.reserved0 is %u, not 0", args->reserved0);
  for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && status == CLATTN_SUCCESS; ++i)
    status = nn_check_size(sizes[i].name, sizes[i].size, sizes[i].least, error);
  if (status == CLATTN_SUCCESS && (rope_dim < 2 || rope_dim > args->dim || rope_dim % 2 != 0))
    status = nn_fail(error, CLATTN_ERROR_SHAPE, "args.rope_dim is %lld: it must be even, 2 to args.dim %lld",
                     (long long)rope_dim, (long long)args->dim);
  if (status == CLATTN_SUCCESS && args->table_batch_stride < 0)
    status = nn_fail(error, CLATTN_ERROR_STRIDE, "args.table_batch_stride is %lld: it must be >= 0",
                     (long long)args->table_batch_stride);
  if (status == CLATTN_SUCCESS && !nn_present(&args->positions) && args->length > args->table_positions)
    status = nn_fail(error, CLATTN_ERROR_SHAPE, "args.length %lld is above args.table_positions %lld",
                     (long long)args->length, (long long)args->table_positions);
  if (status == CLATTN_SUCCESS)
    status = nn_check_product("args.batch and args.length", args->batch, args->length, error);
  if (status == CLATTN_SUCCESS)
    status = nn_check_product("args.heads and args.dim", args->heads, args->dim, error);
  if (status == CLATTN_SUCCESS)
    status = nn_check_product("rows and their numbers", args->batch * args->length, args->heads * args->dim, error);
  return status;
}

static clattn_status find_strides(const char *name, const clattn_tensor *tensor, int written, view *v,
                                  clattn_error *error) {
  const int64_t heads = v->size[1], length = v->size[2], dim = v->size[3];
  const int64_t bhsd[] = {heads * length * dim, length * dim, dim, 1},
                bshd[] = {length * heads * dim, dim, heads * dim, 1};
  const int64_t *strides = tensor->layout == CLATTN_LAYOUT_STRIDED ? tensor->stride
                           : tensor->layout == CLATTN_LAYOUT_BHSD  ? bhsd
                                                                   : bshd;
  if (nn_dtype_bytes(tensor->dtype) == 0)
    return nn_fail(error, CLATTN_ERROR_ENUM, "%s.dtype is %d; f32, f16 and bf16 are possible", name, tensor->dtype);
  if (tensor->layout < CLATTN_LAYOUT_BHSD || tensor->layout > CLATTN_LAYOUT_STRIDED)
    return nn_fail(error, CLATTN_ERROR_ENUM, "%s.layout is %d; BHSD, BSHD and STRIDED are possible", name,
                   tensor->layout);
  if (tensor->reserved[0] != 0 || tensor->reserved[1] != 0)
    return nn_fail(error, CLATTN_ERROR_RESERVED, "%s.reserved is not 0", name);
  for (int axis = 0; axis < 4; ++axis) {
    const int64_t given = tensor->stride[axis];
    if (tensor->layout != CLATTN_LAYOUT_STRIDED && given != 0)
      return nn_fail(error, CLATTN_ERROR_STRIDE, "%s.stride[%d] is %lld, but its layout is not STRIDED", name, axis,
                     (long long)given);
    const int empty = v->size[0] == 0 || v->size[1] == 0 || v->size[2] == 0; /* then strides of layouts are 0, too */
    if (given < 0 || (written && !empty && strides[axis] == 0 && v->size[axis] > 1))
      return nn_fail(error, CLATTN_ERROR_STRIDE, "%s.stride[%d] is %lld: it must be %s", name, axis, (long long)given,
                     written ? "> 0 where the axis is longer than 1" : ">= 0");
    v->stride[axis] = strides[axis];
  }
  return CLATTN_SUCCESS;
}

/* Elements from the first to the last, and one more.  No axis is empty. */
static clattn_status find_extent(const char *name, const view *v, uint64_t *extent, clattn_error *error) {
  int64_t last = 0;
  for (int axis = 0; axis < 4; ++axis) {
    const int64_t steps = v->size[axis] - 1;
    if (steps > 0 && v->stride[axis] > (INT64_MAX / 8 - last) / steps)
      return nn_fail(error, CLATTN_ERROR_OVERFLOW, "%s: %lld steps of stride[%d] %lld do not fit in 63 bits", name,
                     (long long)steps, axis, (long long)v->stride[axis]);
    last += steps * v->stride[axis];
  }
  *extent = (uint64_t)last + 1;
  return CLATTN_SUCCESS;
}

/* Where rows of all batch entries lie one pitch apart, and a row's heads within it, only those runs are touched: so q
 * and k may lie side by side. */
static void find_runs(const view *v, size_t element, nn_range *range) {
  const int64_t run = (v->size[1] - 1) * v->stride[1] + (v->size[3] - 1) * v->stride[3] + 1, pitch = v->stride[2];
  if (v->size[2] > 1 && pitch > 0 && run <= pitch && (v->size[0] == 1 || v->stride[0] % pitch == 0)) {
    range->pitch = (uint64_t)pitch * element;
    range->run = (uint64_t)run * element;
  }
}

static clattn_status check_tensor(const clattn_nn *nn, const char *name, const clattn_mem *mem,
                                  const clattn_tensor *tensor, const view *v, int flags, clattn_view *place,
                                  nn_ranges *ranges, clattn_error *error) {
  const size_t element = nn_dtype_bytes(tensor->dtype);
  uint64_t extent = 0;
  clattn_status status = find_extent(name, v, &extent, error);
  if (status == CLATTN_SUCCESS)
    status = nn_check_mem(nn, name, mem, extent * element, element, flags, ranges, error);
  if (status != CLATTN_SUCCESS)
    return status;
  find_runs(v, element, &ranges->at[ranges->count - 1]);
  place->batch = v->stride[0];
  place->head = v->stride[1];
  place->row = v->stride[2];
  place->element = v->stride[3];
  place->first = (clattn_long)(mem->offset / element);
  return CLATTN_SUCCESS;
}

static int same_strides(const view *a, const view *b) {
  for (int axis = 0; axis < 4; ++axis)
    if (a->size[axis] > 1 && a->stride[axis] != b->stride[axis])
      return 0;
  return 1;
}

static clattn_status check_tables(const clattn_nn *nn, const clattn_nn_rope_args *args, nn_rope *params,
                                  nn_ranges *ranges, clattn_error *error) {
  const int64_t steps = args->batch - 1, stride = args->table_batch_stride;
  clattn_status status =
      nn_check_product("args.table_positions and args.rope_dim", args->table_positions, params->half_dim, error);
  if (status == CLATTN_SUCCESS)
    status = nn_check_product("args.batch and args.table_batch_stride", steps, stride, error);
  if (status != CLATTN_SUCCESS)
    return status;
  const uint64_t bytes = (uint64_t)(steps * stride + args->table_positions * params->half_dim) * sizeof(float);
  status = nn_check_mem(nn, "cos", &args->cos, bytes, sizeof(float), 0, ranges, error);
  if (status == CLATTN_SUCCESS)
    status = nn_check_mem(nn, "sin", &args->sin, bytes, sizeof(float), 0, ranges, error);
  if (status == CLATTN_SUCCESS)
    status = nn_check_mem(nn, "positions", &args->positions, (uint64_t)(args->batch * args->length) * sizeof(cl_int),
                          sizeof(cl_int), NN_OPTIONAL, ranges, error);
  params->cos_first = (clattn_long)(args->cos.offset / sizeof(float));
  params->sin_first = (clattn_long)(args->sin.offset / sizeof(float));
  params->positions_first = (clattn_long)(args->positions.offset / sizeof(cl_int));
  return status;
}

static clattn_status check(const clattn_nn *nn, const clattn_nn_rope_args *args, nn_rope *params, clattn_error *error) {
  const int64_t rope_dim = args->rope_dim != 0 ? args->rope_dim : args->dim;
  view x = {{args->batch, args->heads, args->length, args->dim}, {0}}, y = x;
  nn_ranges ranges = {.count = 0};
  clattn_status status = check_sizes(args, rope_dim, error);
  if (status == CLATTN_SUCCESS)
    status = find_strides("x_view", &args->x_view, 0, &x, error);
  if (status == CLATTN_SUCCESS)
    status = find_strides("y_view", &args->y_view, 1, &y, error);
  if (status != CLATTN_SUCCESS || args->batch == 0 || args->length == 0)
    return status;
  params->half_dim = rope_dim / 2;
  status = check_tensor(nn, "x", &args->x, &args->x_view, &x, 0, &params->x, &ranges, error);
  if (status == CLATTN_SUCCESS)
    status = check_tensor(nn, "y", &args->y, &args->y_view, &y, NN_WRITTEN, &params->y, &ranges, error);
  if (status == CLATTN_SUCCESS)
    status = check_tables(nn, args, params, &ranges, error);
  if (status != CLATTN_SUCCESS)
    return status;
  return nn_check_overlaps(&ranges, same_strides(&x, &y) ? "x" : "", error);
}

static clattn_status run(nn_stream *stream, const clattn_nn_rope_args *args, clattn_error *error) {
  nn_rope params;
  memset(&params, 0, sizeof(params));
  const clattn_status status = check(stream->nn, args, &params, error);
  if (status != CLATTN_SUCCESS || args->batch == 0 || args->length == 0)
    return status;
  const int halves = args->rope == CLATTN_ROPE_HALF;
  params.heads = args->heads;
  params.length = args->length;
  params.dim = args->dim;
  params.pair_step = halves ? 1 : 2;
  params.pair_apart = halves ? params.half_dim : 1;
  params.table_positions = args->table_positions;
  params.table_batch_stride = args->table_batch_stride;
  params.work = nn_rows_share(stream->nn, args->batch * args->length * args->heads, args->dim);
  const nn_rows_types types = nn_rows_types_of(args->x_view.dtype, args->y_view.dtype);
  const nn_arg values[] = {NN_ARG(params),           NN_ARG(args->x.buffer),   NN_ARG(args->y.buffer),
                           NN_ARG(args->cos.buffer), NN_ARG(args->sin.buffer), NN_ARG(args->positions.buffer)};
  return nn_rows_enqueue(stream, "rope", &types, params.work, values, sizeof(values) / sizeof(values[0]), error);
}

clattn_status clattn_nn_rope(clattn_nn *nn, cl_command_queue queue, const clattn_nn_rope_args *args, cl_uint num_events,
                             const cl_event *wait_list, cl_event *event) {
  nn_stream stream;
  clattn_status status = nn_call_open(&stream, NN_CHECK_ARGS(args), nn, queue, num_events, wait_list, event,
                                      args != NULL ? args->error : NULL);
  if (status == CLATTN_SUCCESS)
    status = nn_stream_close(&stream, run(&stream, args, args->error), event, args->error);
  return status;
}
