/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers: y = activation(x W^T + b) * factor + residual. */
#include "linear.h"

#include <stdio.h>
#include <string.h>

#include "nn/linear_params.cl.h"

/* Register blocks that fill the registers of a vector width: 32 registers with 512 bits, 16 below.  CHUNK rows share what is
 * read of a weight; PANEL_BYTES of a tile's weights are summed at a time, so that 384 inputs of 24 outputs need no second
 * round.  Measured with AVX2, 128 rows of MiniLM's sizes: 67 to 82 % of the FMA peak, with half of both 51 to 66 %. */
enum { VECTORS = 3, CHUNK = 128, PANEL_BYTES = 40960, GROUP_X = 16, GROUP_Y = 8, TILE_ROWS = 64, TILE_OUTS = 64 };

void clattn_nn_linear_args_init(clattn_nn_linear_args *args) {
  if (args == NULL)
    return;
  memset(args, 0, sizeof(*args));
  args->struct_size = sizeof(*args);
}

int nn_linear_tile(const clattn_nn *nn) {
  return nn->lanes * VECTORS;
}

int nn_linear_flags(const clattn_nn_linear_args *args) {
  return (args->weight->with_bias ? NN_LINEAR_BIAS : 0) | (nn_present(&args->factor.mem) ? NN_LINEAR_FACTOR : 0) |
         (nn_present(&args->residual.mem) ? NN_LINEAR_RESIDUAL : 0);
}

static clattn_status check(const clattn_nn *nn, const clattn_nn_linear_args *args, nn_linear *params,
                           clattn_error *error) {
  const clattn_nn_weight *weight = args->weight;
  const int64_t out = weight != NULL ? weight->out : 0;
  const int needed = args->rows > 0 ? 0 : NN_OPTIONAL; /* OpenCL has no empty buffers */
  nn_ranges ranges = {.count = 0};
  if (weight == NULL)
    return nn_fail(error, CLATTN_ERROR_NULL_POINTER, "args.weight must not be NULL");
  if (weight->nn != nn)
    return nn_fail(error, CLATTN_ERROR_WRONG_CONTEXT, "args.weight was made for another clattn_nn");
  if (args->rows < 0 || args->rows > INT32_MAX)
    return nn_fail(error, CLATTN_ERROR_SHAPE, "args.rows is %lld, not 0 to 2^31 - 1", (long long)args->rows);
  if (args->activation < CLATTN_NN_NONE || args->activation > CLATTN_NN_SILU)
    return nn_fail(error, CLATTN_ERROR_ENUM, "args.activation is %d, no activation", args->activation);
  const struct {
    const char *name;
    const clattn_nn_matrix *matrix;
    int64_t columns;
    int flags;
    nn_view *view;
  } list[] = {{"x", &args->x, weight->in, needed, &params->x},
              {"y", &args->y, out, needed | NN_WRITTEN, &params->y},
              {"factor", &args->factor, out, NN_OPTIONAL, &params->factor},
              {"residual", &args->residual, out, NN_OPTIONAL, &params->residual}};
  for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); ++i) {
    int64_t stride = 0;
    const clattn_status status = nn_check_matrix(nn, list[i].name, list[i].matrix, args->rows, list[i].columns,
                                                 list[i].flags, &stride, &ranges, error);
    if (status != CLATTN_SUCCESS)
      return status;
    list[i].view->stride = stride;
    list[i].view->first = nn_first(list[i].matrix);
  }
  params->rows = args->rows;
  params->in = (cl_int)weight->in;
  params->out = (cl_int)out;
  params->activation = args->activation;
  params->flags = nn_linear_flags(args);
  return nn_check_overlaps(&ranges, "residual factor", error);
}

static int add_word(char *options, size_t capacity, int length, const char *tensor, clattn_dtype dtype) {
  if (dtype == CLATTN_F32)
    return length;
  return length +
         snprintf(options + length, capacity - (size_t)length, " -DCLATTN_%s=%s", tensor, nn_dtype_word(dtype));
}

/* The kernel that computes it, its options and grid. */
static void describe(const clattn_nn *nn, const clattn_nn_linear_args *args, nn_linear *params, char *options,
                     size_t capacity, nn_launch *launch) {
  int length = 0;
  if (nn->lanes > 0) {
    const int tile = nn_linear_tile(nn), panel = PANEL_BYTES / (int)sizeof(float) / tile;
    const int parts = (params->in + panel - 1) / panel;
    params->panel = (params->in + parts - 1) / parts;
    length = snprintf(options, capacity,
                      "-DCLATTN_LANES=%d -DCLATTN_MQ=%d -DCLATTN_NK=%d -DCLATTN_CHUNK=%d "
                      "-DCLATTN_PANEL=%d",
                      nn->lanes, VECTORS, nn->lanes == 16 ? 8 : 4, CHUNK, panel);
    launch->file = "nn/linear_lanes";
    launch->global[0] = (size_t)((params->out + tile - 1) / tile);
    launch->global[1] = (size_t)((params->rows + CHUNK - 1) / CHUNK);
    launch->local[0] = launch->local[1] = 1;
  } else {
    length = snprintf(options, capacity, "-DCLATTN_GX=%d -DCLATTN_GY=%d", GROUP_X, GROUP_Y);
    launch->file = "nn/linear_tiles";
    launch->global[0] = (size_t)((params->out + TILE_OUTS - 1) / TILE_OUTS) * GROUP_X;
    launch->global[1] = (size_t)((params->rows + TILE_ROWS - 1) / TILE_ROWS) * GROUP_Y;
    launch->local[0] = GROUP_X;
    launch->local[1] = GROUP_Y;
  }
  length = add_word(options, capacity, length, "Q", args->x.dtype);
  length = add_word(options, capacity, length, "K", args->weight->dtype);
  length = add_word(options, capacity, length, "O", args->y.dtype);
  length = add_word(options, capacity, length, "V", args->factor.dtype);
  (void)add_word(options, capacity, length, "BIAS", args->residual.dtype);
  launch->options = options;
  launch->kernel = "linear";
  launch->dims = 2;
}

clattn_status nn_linear_own(nn_stream *stream, const clattn_nn_linear_args *args, clattn_error *error) {
  nn_linear params = {.rows = 0};
  char options[256];
  nn_launch launch = {.file = NULL};
  const clattn_status status = check(stream->nn, args, &params, error);
  if (status != CLATTN_SUCCESS || args->rows == 0)
    return status;
  describe(stream->nn, args, &params, options, sizeof(options), &launch);
  const nn_arg values[] = {NN_ARG(params),
                           NN_ARG(args->weight->values),
                           NN_ARG(args->weight->bias),
                           NN_ARG(args->x.mem.buffer),
                           NN_ARG(args->factor.mem.buffer),
                           NN_ARG(args->residual.mem.buffer),
                           NN_ARG(args->y.mem.buffer)};
  launch.args = values;
  launch.num_args = sizeof(values) / sizeof(values[0]);
  return nn_enqueue(stream, &launch, error);
}

clattn_status nn_run_linear(nn_stream *stream, const clattn_nn_linear_args *args, clattn_error *error) {
  nn_linear params = {.rows = 0};
  int clblast = 0;
  clattn_status status = CLATTN_SUCCESS;
  if (stream->nn->provider < CLATTN_NN_PROVIDER_CLBLAST)
    return nn_linear_own(stream, args, error);
  status = check(stream->nn, args, &params, error);
  if (status == CLATTN_SUCCESS && args->rows > 0)
    status = nn_clblast_wanted(stream->nn, args, &clblast, error);
  if (status != CLATTN_SUCCESS || args->rows == 0)
    return status;
  return clblast ? nn_clblast_run(stream, args, error) : nn_linear_own(stream, args, error);
}

clattn_status clattn_nn_linear(clattn_nn *nn, cl_command_queue queue, const clattn_nn_linear_args *args,
                               cl_uint num_events, const cl_event *wait_list, cl_event *event) {
  nn_stream stream;
  clattn_status status = nn_call_open(&stream, NN_CHECK_ARGS(args), nn, queue, num_events, wait_list, event,
                                      args != NULL ? args->error : NULL);
  if (status == CLATTN_SUCCESS)
    status = nn_stream_close(&stream, nn_run_linear(&stream, args, args->error), event, args->error);
  return status;
}

const char *clattn_nn_linear_provider(clattn_nn *nn, const clattn_nn_linear_args *args) {
  if (nn == NULL || args == NULL || args->weight == NULL)
    return "none";
  if (nn->provider >= CLATTN_NN_PROVIDER_CLBLAST && nn_clblast_chosen(nn, args))
    return "clblast";
  return nn->lanes > 0 ? "clattn lanes" : "clattn tiles";
}
