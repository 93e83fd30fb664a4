/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of linear layers: laid out once for the kernels that will read them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "linear.h"
#include "nn/linear_params.cl.h"

enum { SIDE_MOST = 1 << 24, PACK_GROUP = 64 };

void clattn_nn_fill_args_init(clattn_nn_fill_args *args) {
  if (args == NULL)
    return;
  memset(args, 0, sizeof(*args));
  args->struct_size = sizeof(*args);
}

int64_t nn_weight_rows(const clattn_nn_weight *weight) {
  return weight->tile == 0 ? weight->out : (weight->out + weight->tile - 1) / weight->tile * weight->tile;
}

clattn_status clattn_nn_weight_create(clattn_nn *nn, int64_t in, int64_t out, clattn_dtype dtype, int with_bias,
                                      clattn_nn_weight **weight, clattn_error *error) {
  cl_int code = CL_SUCCESS;
  nn_clear(error);
  if (weight != NULL)
    *weight = NULL;
  if (nn == NULL || weight == NULL)
    return nn_fail(error, CLATTN_ERROR_NULL_POINTER, "nn and weight must not be NULL");
  if (in < 1 || in > SIDE_MOST || out < 1 || out > SIDE_MOST)
    return nn_fail(error, CLATTN_ERROR_SHAPE, "a weight of %lld inputs and %lld outputs: both are 1 to %d",
                   (long long)in, (long long)out, SIDE_MOST);
  if (nn_dtype_bytes(dtype) == 0)
    return nn_fail(error, CLATTN_ERROR_ENUM, "dtype is %d; f32, f16 and bf16 are possible", dtype);
  clattn_nn_weight *fresh = calloc(1, sizeof(*fresh));
  if (fresh == NULL)
    return nn_fail(error, CLATTN_ERROR_OUT_OF_MEMORY, "no host memory for a weight");
  fresh->nn = nn;
  fresh->in = in;
  fresh->out = out;
  fresh->dtype = dtype;
  fresh->with_bias = with_bias != 0;
  fresh->tile = nn_linear_tile(nn);
  const size_t rows = (size_t)nn_weight_rows(fresh);
  fresh->values = clCreateBuffer(nn->cl, CL_MEM_READ_WRITE, rows * (size_t)in * nn_dtype_bytes(dtype), NULL, &code);
  if (code != CL_SUCCESS)
    fresh->values = NULL;
  if (code == CL_SUCCESS && fresh->tile > 0 && dtype == CLATTN_F32 && nn->provider >= CLATTN_NN_PROVIDER_CLBLAST) {
    fresh->plain = clCreateBuffer(nn->cl, CL_MEM_READ_WRITE, (size_t)out * (size_t)in * sizeof(float), NULL, &code);
    if (code != CL_SUCCESS)
      fresh->plain = NULL;
  }
  if (code == CL_SUCCESS && fresh->with_bias) {
    fresh->bias = clCreateBuffer(nn->cl, CL_MEM_READ_WRITE, rows * sizeof(float), NULL, &code);
    if (code != CL_SUCCESS)
      fresh->bias = NULL;
  }
  if (code != CL_SUCCESS) {
    clattn_nn_weight_release(fresh);
    return nn_fail(error, code, "no buffer for a weight of %lld x %lld: %s", (long long)out, (long long)in,
                   clattn_status_text(code));
  }
  *weight = fresh;
  return CLATTN_SUCCESS;
}

void clattn_nn_weight_release(clattn_nn_weight *weight) {
  if (weight == NULL)
    return;
  if (weight->values != NULL)
    clReleaseMemObject(weight->values);
  if (weight->plain != NULL)
    clReleaseMemObject(weight->plain);
  if (weight->bias != NULL)
    clReleaseMemObject(weight->bias);
  free(weight);
}

/* What an upload comes from: a buffer of the caller's, or one made for the copy. */
typedef struct source {
  clattn_mem mem;
  cl_mem made;
  int64_t stride;
} source;

static clattn_status from_host(const clattn_nn *nn, const char *name, const void *values, uint64_t bytes, source *out,
                               clattn_error *error) {
  cl_int code = CL_SUCCESS;
  /* the driver copies while it makes the buffer; it takes a pointer that it does not write to */
  union {
    const void *given;
    void *taken;
  } pointer = {values};
  out->made = clCreateBuffer(nn->cl, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, (size_t)bytes, pointer.taken, &code);
  if (code != CL_SUCCESS) {
    out->made = NULL;
    return nn_fail(error, code, "no buffer for %llu bytes of %s: %s", (unsigned long long)bytes, name,
                   clattn_status_text(code));
  }
  out->mem = clattn_buffer(out->made, 0);
  return CLATTN_SUCCESS;
}

static clattn_status check_fill(const clattn_nn_fill_args *args, int64_t *count) {
  const clattn_nn_weight *weight = args->weight;
  const int device = nn_present(&args->matrix.mem), bias = nn_present(&args->bias);
  clattn_error *error = args->error;
  if (weight == NULL)
    return nn_fail(error, CLATTN_ERROR_NULL_POINTER, "args.weight must not be NULL");
  if (args->first < 0 || args->first >= weight->out || args->count < 0 || args->count > weight->out - args->first)
    return nn_fail(error, CLATTN_ERROR_SHAPE, "outputs from %lld on, %lld of them: the weight has %lld",
                   (long long)args->first, (long long)args->count, (long long)weight->out);
  *count = args->count != 0 ? args->count : weight->out - args->first;
  if (args->dtype != CLATTN_F32 && args->dtype != weight->dtype)
    return nn_fail(error, CLATTN_ERROR_ENUM, "args.dtype is %d; f32 or the weight's own type %d are possible",
                   args->dtype, weight->dtype);
  if (args->transposed > 1)
    return nn_fail(error, CLATTN_ERROR_ENUM, "args.transposed is %u, not 0 or 1", args->transposed);
  if ((args->host != NULL) == device)
    return nn_fail(error, device ? CLATTN_ERROR_TENSOR_UNUSED : CLATTN_ERROR_TENSOR_MISSING,
                   "one of args.host and args.matrix is needed%s", device ? ", not both" : "");
  if (!device && args->matrix.stride != 0)
    return nn_fail(error, CLATTN_ERROR_TENSOR_UNUSED, "args.matrix.stride is %lld, but args.host is contiguous",
                   (long long)args->matrix.stride);
  if (args->matrix.reserved != 0)
    return nn_fail(error, CLATTN_ERROR_RESERVED, "args.matrix.reserved is %u, not 0", args->matrix.reserved);
  if (args->matrix.dtype != 0)
    return nn_fail(error, CLATTN_ERROR_ENUM, "args.matrix.dtype must stay 0: args.dtype counts");
  if (!weight->with_bias && (args->host_bias != NULL || bias))
    return nn_fail(error, CLATTN_ERROR_TENSOR_UNUSED, "a bias is given, but the weight has none");
  if (weight->with_bias && (args->host_bias != NULL) == bias)
    return nn_fail(error, bias ? CLATTN_ERROR_TENSOR_UNUSED : CLATTN_ERROR_TENSOR_MISSING,
                   "one of args.host_bias and args.bias is needed%s", bias ? ", not both" : "");
  return CLATTN_SUCCESS;
}

/* The matrix and bias as buffers, made where they come from the host. */
static clattn_status open_sources(const clattn_nn_fill_args *args, int64_t count, source *matrix, source *bias) {
  const clattn_nn_weight *weight = args->weight;
  const clattn_nn *nn = weight->nn;
  const int64_t rows = args->transposed ? weight->in : count, columns = args->transposed ? count : weight->in;
  clattn_status status = CLATTN_SUCCESS;
  if (args->host != NULL) {
    const uint64_t bytes = (uint64_t)rows * (uint64_t)columns * nn_dtype_bytes(args->dtype);
    matrix->stride = columns;
    status = from_host(nn, "args.host", args->host, bytes, matrix, args->error);
  } else {
    clattn_nn_matrix given = args->matrix;
    given.dtype = args->dtype;
    matrix->mem = given.mem;
    status = nn_check_matrix(nn, "args.matrix", &given, rows, columns, 0, &matrix->stride, NULL, args->error);
  }
  if (status != CLATTN_SUCCESS || !weight->with_bias)
    return status;
  const uint64_t bytes = (uint64_t)count * sizeof(float);
  if (args->host_bias != NULL)
    return from_host(nn, "args.host_bias", args->host_bias, bytes, bias, args->error);
  bias->mem = args->bias;
  return nn_check_mem(nn, "args.bias", &args->bias, bytes, sizeof(float), 0, NULL, args->error);
}

static clattn_status launch_pack(nn_stream *stream, const char *options, const nn_pack *pack, const source *matrix,
                                 cl_mem to, clattn_error *error) {
  const nn_arg values[] = {NN_ARG(*pack), NN_ARG(matrix->mem.buffer), NN_ARG(to)};
  const size_t in = (size_t)pack->in, group = stream->nn->info.max_work_group >= PACK_GROUP ? PACK_GROUP : 1;
  nn_launch launch = {"nn/pack", options, "pack", values, 3, 2, {0}, {group, 1, 1}};
  launch.global[0] = (in + group - 1) / group * group;
  launch.global[1] = (size_t)(pack->count + pack->padding);
  return nn_enqueue(stream, &launch, error);
}

static clattn_status launch_packs(nn_stream *stream, const clattn_nn_fill_args *args, int64_t count,
                                  const source *matrix, const source *bias) {
  const clattn_nn_weight *weight = args->weight;
  char options[64];
  nn_pack pack = {.in = weight->in, .first = args->first, .count = count, .tile = weight->tile};
  pack.from.stride = matrix->stride;
  pack.from.first = (cl_long)(matrix->mem.offset / nn_dtype_bytes(args->dtype));
  pack.transposed = (cl_int)args->transposed;
  pack.padding = args->first + count == weight->out ? nn_weight_rows(weight) - weight->out : 0;
  (void)snprintf(options, sizeof(options), "-DCLATTN_Q=%s -DCLATTN_O=%s", nn_dtype_word(args->dtype),
                 nn_dtype_word(weight->dtype));
  clattn_status status = launch_pack(stream, options, &pack, matrix, weight->values, args->error);
  if (status == CLATTN_SUCCESS && weight->plain != NULL) {
    nn_pack plain = pack;
    plain.tile = 0;
    plain.padding = 0;
    status = launch_pack(stream, options, &plain, matrix, weight->plain, args->error);
  }
  if (status != CLATTN_SUCCESS || !weight->with_bias)
    return status;
  nn_pack pack_bias = pack;
  pack_bias.from.first = (cl_long)(bias->mem.offset / sizeof(float));
  const nn_arg biases[] = {NN_ARG(pack_bias), NN_ARG(bias->mem.buffer), NN_ARG(weight->bias)};
  const nn_launch second = {"nn/pack", options, "pack_bias", biases, 3, 1, {(size_t)(count + pack.padding), 1, 1},
                            {1, 1, 1}};
  return nn_enqueue(stream, &second, args->error);
}

clattn_status clattn_nn_weight_fill(cl_command_queue queue, const clattn_nn_fill_args *args, cl_uint num_events,
                                    const cl_event *wait_list, cl_event *event) {
  nn_stream stream;
  int64_t count = 0;
  source matrix = {.stride = 0}, bias = {.stride = 0};
  if (event != NULL)
    *event = NULL;
  clattn_status status = NN_CHECK_ARGS(args);
  if (status == CLATTN_SUCCESS)
    status = check_fill(args, &count);
  if (status == CLATTN_SUCCESS)
    status = nn_stream_open(&stream, args->weight->nn, queue, num_events, wait_list, args->error);
  if (status != CLATTN_SUCCESS)
    return status;
  status = open_sources(args, count, &matrix, &bias);
  if (status == CLATTN_SUCCESS)
    status = launch_packs(&stream, args, count, &matrix, &bias);
  status = nn_stream_close(&stream, status, event, args->error);
  if (matrix.made != NULL)
    clReleaseMemObject(matrix.made);
  if (bias.made != NULL)
    clReleaseMemObject(bias.made);
  return status;
}
