/* SPDX-License-Identifier: Apache-2.0 */
/* CLBlast as a provider of linear layers: its SGEMM for x W^T, and a small kernel behind it for the rest. */
#include "linear.h"

#include <clblast_c.h>
#include <stdlib.h>
#include <string.h>

#include "nn/linear_params.cl.h"

/* CLBlast's kernels count elements in int, also those of its copies, which are padded to its tiles. */
enum { ELEMENTS_MOST = 1 << 30, PADDING_MOST = 256 };
enum { GROUP = 64 };
/* More rows than this are measured as so many. */
enum { MEASURED_ROWS_MOST = 4096, MEASURED_RUNS = 3 };

/* What was found for `rows` (a power of two: up to so many, and more than half) of a layer. */
struct nn_measured {
  struct nn_measured *next;
  int64_t rows, in, out;
  int clblast;
};

int nn_has_clblast(void) {
  return 1;
}

void nn_measured_release(clattn_nn *nn) {
  while (nn->measured != NULL) {
    struct nn_measured *measured = nn->measured;
    nn->measured = measured->next;
    free(measured);
  }
}

/* ---- what it can ------------------------------------------------------------------------------------------------- */

static int64_t stride_of(const clattn_nn_matrix *matrix, int64_t columns) {
  return matrix->stride != 0 ? matrix->stride : columns;
}

static int fits(const clattn_nn_matrix *matrix, int64_t rows, int64_t columns) {
  return matrix->dtype == CLATTN_F32 && nn_first(matrix) <= ELEMENTS_MOST &&
         stride_of(matrix, columns) <= ELEMENTS_MOST / (rows + PADDING_MOST) - PADDING_MOST;
}

/* All f32, and small enough. */
static int possible(const clattn_nn_linear_args *args) {
  const clattn_nn_weight *weight = args->weight;
  return args->rows >= 0 && args->rows <= ELEMENTS_MOST && weight->dtype == CLATTN_F32 &&
         weight->in + PADDING_MOST <= ELEMENTS_MOST / (weight->out + PADDING_MOST) &&
         fits(&args->x, args->rows, weight->in) && fits(&args->y, args->rows, weight->out) &&
         args->factor.dtype == CLATTN_F32 && args->residual.dtype == CLATTN_F32;
}

/* ---- running it -------------------------------------------------------------------------------------------------- */

static nn_view view_of(const clattn_nn_matrix *matrix, int64_t columns) {
  const nn_view view = {stride_of(matrix, columns), nn_first(matrix)};
  return view;
}

static clattn_status multiply(nn_stream *stream, const clattn_nn_linear_args *args, const clattn_nn_matrix *product,
                              clattn_error *error) {
  const clattn_nn_weight *weight = args->weight;
  const size_t rows = (size_t)args->rows, in = (size_t)weight->in, out = (size_t)weight->out;
  cl_event storage = NULL;
  if (stream->num_wait > 0) {
    /* it takes no wait list */
    const cl_int code = clEnqueueBarrierWithWaitList(stream->queue, stream->num_wait, stream->wait, NULL);
    if (code != CL_SUCCESS)
      return nn_fail(error, code, "enqueueing a barrier failed: %s", clattn_status_text(code));
  }
  const CLBlastStatusCode code =
      CLBlastSgemm(CLBlastLayoutRowMajor, CLBlastTransposeNo, CLBlastTransposeYes, rows, out, in, 1.0f,
                   args->x.mem.buffer, (size_t)nn_first(&args->x), (size_t)stride_of(&args->x, weight->in),
                   weight->plain != NULL ? weight->plain : weight->values, 0, in, 0.0f, product->mem.buffer,
                   (size_t)nn_first(product), (size_t)stride_of(product, weight->out), &stream->queue,
                   nn_stream_event(stream, &storage));
  if (code != CLBlastSuccess) /* below -1000 are codes of its own */
    return nn_fail(error, (int)code > -1000 ? (clattn_status)code : CLATTN_ERROR_INTERNAL,
                   "CLBlast's SGEMM of %zu x %zu x %zu failed with %d", rows, out, in, (int)code);
  nn_stream_after(stream, storage);
  return CLATTN_SUCCESS;
}

/* y from the product, which may lie in y. */
static clattn_status finish(nn_stream *stream, const clattn_nn_linear_args *args, const clattn_nn_matrix *product,
                            clattn_error *error) {
  const clattn_nn_weight *weight = args->weight;
  const size_t group = stream->nn->info.max_work_group >= GROUP ? GROUP : 1;
  nn_linear params;
  memset(&params, 0, sizeof(params));
  params.x = view_of(product, weight->out);
  params.y = view_of(&args->y, weight->out);
  params.factor = view_of(&args->factor, weight->out);
  params.residual = view_of(&args->residual, weight->out);
  params.rows = args->rows;
  params.in = (cl_int)weight->in;
  params.out = (cl_int)weight->out;
  params.activation = args->activation;
  params.flags = nn_linear_flags(args);
  const nn_arg values[] = {NN_ARG(params),
                           NN_ARG(product->mem.buffer),
                           NN_ARG(weight->bias),
                           NN_ARG(args->factor.mem.buffer),
                           NN_ARG(args->residual.mem.buffer),
                           NN_ARG(args->y.mem.buffer)};
  const nn_launch launch = {.file = "nn/epilogue",
                            .options = "",
                            .kernel = "epilogue",
                            .args = values,
                            .num_args = sizeof(values) / sizeof(values[0]),
                            .dims = 2,
                            .global = {((size_t)weight->out + group - 1) / group * group, (size_t)args->rows, 1},
                            .local = {group, 1, 1}};
  return nn_enqueue(stream, &launch, error);
}

clattn_status nn_clblast_run(nn_stream *stream, const clattn_nn_linear_args *args, clattn_error *error) {
  const int flags = nn_linear_flags(args);
  clattn_nn_matrix product = args->y;
  cl_mem made = NULL;
  clattn_status status = CLATTN_SUCCESS;
  if (flags & (NN_LINEAR_FACTOR | NN_LINEAR_RESIDUAL)) { /* either may be what y holds */
    const size_t bytes = (size_t)args->rows * (size_t)args->weight->out * sizeof(float);
    cl_int code = CL_SUCCESS;
    made = clCreateBuffer(stream->nn->cl, CL_MEM_READ_WRITE, bytes, NULL, &code);
    if (code != CL_SUCCESS)
      return nn_fail(error, code, "no buffer for a product of %zu bytes: %s", bytes, clattn_status_text(code));
    product = clattn_nn_matrix_f32(made, 0, 0);
  }
  /* the kernel behind it is built before anything is enqueued */
  const int more = flags != 0 || args->activation != CLATTN_NN_NONE;
  if (more)
    status = nn_prepare(stream->nn, "nn/epilogue", "", error);
  if (status == CLATTN_SUCCESS)
    status = multiply(stream, args, &product, error);
  if (status == CLATTN_SUCCESS && more)
    status = finish(stream, args, &product, error);
  if (made != NULL)
    clReleaseMemObject(made);
  return status;
}

/* ---- measuring --------------------------------------------------------------------------------------------------- */

static int64_t measured_rows(int64_t rows) {
  int64_t power = 1;
  while (power < rows && power < MEASURED_ROWS_MOST)
    power *= 2;
  return power;
}

/* 1: CLBlast, 0: clattn, -1: not known. */
static int look_up(clattn_nn *nn, const clattn_nn_linear_args *args) {
  const int64_t rows = measured_rows(args->rows);
  int found = -1;
  clattni_mutex_lock(&nn->lock);
  for (const struct nn_measured *m = nn->measured; m != NULL && found < 0; m = m->next)
    if (m->rows == rows && m->in == args->weight->in && m->out == args->weight->out)
      found = m->clblast;
  clattni_mutex_unlock(&nn->lock);
  return found;
}

/* The first answer stays, so that a shape's bits don't change when two threads measured it at once. */
static clattn_status remember(clattn_nn *nn, const clattn_nn_linear_args *args, int *clblast, clattn_error *error) {
  struct nn_measured *measured = calloc(1, sizeof(*measured));
  if (measured == NULL)
    return nn_fail(error, CLATTN_ERROR_OUT_OF_MEMORY, "no host memory for what was measured");
  measured->rows = measured_rows(args->rows);
  measured->in = args->weight->in;
  measured->out = args->weight->out;
  measured->clblast = *clblast;
  clattni_mutex_lock(&nn->lock);
  struct nn_measured **at = &nn->measured;
  while (*at != NULL && ((*at)->rows != measured->rows || (*at)->in != measured->in || (*at)->out != measured->out))
    at = &(*at)->next;
  if (*at != NULL) {
    *clblast = (*at)->clblast;
    free(measured);
  } else {
    *at = measured;
  }
  clattni_mutex_unlock(&nn->lock);
  return CLATTN_SUCCESS;
}

/* Seconds of one run, the shortest of a few after one that warms up. */
static clattn_status time_it(nn_stream *stream, const clattn_nn_linear_args *args, int clblast, double *seconds,
                             clattn_error *error) {
  clattn_status status = CLATTN_SUCCESS;
  *seconds = 0;
  for (int run = 0; run <= MEASURED_RUNS && status == CLATTN_SUCCESS; ++run) {
    cl_event event = NULL;
    const double start = clattni_seconds();
    status = clblast ? nn_clblast_run(stream, args, error) : nn_linear_own(stream, args, error);
    status = nn_stream_close(stream, status, &event, error);
    if (status != CLATTN_SUCCESS)
      break;
    const cl_int code = clWaitForEvents(1, &event);
    const double took = clattni_seconds() - start;
    clReleaseEvent(event);
    if (code != CL_SUCCESS)
      status = nn_fail(error, code, "a measured run failed: %s", clattn_status_text(code));
    if (run == 1 || (run > 1 && took < *seconds))
      *seconds = took;
  }
  return status;
}

static clattn_status make_ones(nn_stream *stream, int64_t rows, int64_t columns, clattn_nn_matrix *matrix,
                               clattn_error *error) {
  const size_t bytes = (size_t)rows * (size_t)columns * sizeof(float);
  const float one = 1.0f;
  cl_int code = CL_SUCCESS;
  memset(matrix, 0, sizeof(*matrix));
  const cl_mem buffer = clCreateBuffer(stream->nn->cl, CL_MEM_READ_WRITE, bytes, NULL, &code);
  if (code == CL_SUCCESS) {
    *matrix = clattn_nn_matrix_f32(buffer, 0, 0);
    code = clEnqueueFillBuffer(stream->queue, buffer, &one, sizeof(one), 0, bytes, 0, NULL, NULL);
  }
  return code == CL_SUCCESS
             ? CLATTN_SUCCESS
             : nn_fail(error, code, "making %zu bytes to measure with failed: %s", bytes, clattn_status_text(code));
}

/* On a queue and with matrices of its own: nothing of the caller's is waited for or written. */
static clattn_status measure(clattn_nn *nn, const clattn_nn_linear_args *args, int *clblast, clattn_error *error) {
  nn_stream stream;
  clattn_nn_linear_args own = *args;
  double ours = 0, theirs = 0;
  cl_int code = CL_SUCCESS;
  own.rows = measured_rows(args->rows);
  memset(&own.x, 0, sizeof(own.x));
  memset(&own.y, 0, sizeof(own.y));
  const cl_command_queue queue = clCreateCommandQueue(nn->cl, nn->device, 0, &code);
  if (code != CL_SUCCESS)
    return nn_fail(error, code, "making a queue to measure on failed: %s", clattn_status_text(code));
  clattn_status status = nn_stream_open(&stream, nn, queue, 0, NULL, error);
  if (status == CLATTN_SUCCESS)
    status = make_ones(&stream, own.rows, args->weight->in, &own.x, error);
  if (status == CLATTN_SUCCESS)
    status = make_ones(&stream, own.rows, args->weight->out, &own.y, error);
  if (nn_present(&args->factor.mem))
    own.factor = own.y;
  if (nn_present(&args->residual.mem))
    own.residual = own.y;
  if (status == CLATTN_SUCCESS)
    status = time_it(&stream, &own, 0, &ours, error);
  if (status == CLATTN_SUCCESS)
    status = time_it(&stream, &own, 1, &theirs, error);
  *clblast = theirs < ours;
  if (own.x.mem.buffer != NULL)
    clReleaseMemObject(own.x.mem.buffer);
  if (own.y.mem.buffer != NULL)
    clReleaseMemObject(own.y.mem.buffer);
  clReleaseCommandQueue(queue);
  return status;
}

/* ---- who computes it --------------------------------------------------------------------------------------------- */

clattn_status nn_clblast_wanted(clattn_nn *nn, const clattn_nn_linear_args *args, int *wanted, clattn_error *error) {
  *wanted = 0;
  if (!possible(args))
    return CLATTN_SUCCESS;
  *wanted = nn->provider == CLATTN_NN_PROVIDER_CLBLAST ? 1 : look_up(nn, args);
  if (*wanted >= 0)
    return CLATTN_SUCCESS;
  const clattn_status status = measure(nn, args, wanted, error);
  return status == CLATTN_SUCCESS ? remember(nn, args, wanted, error) : status;
}

int nn_clblast_chosen(clattn_nn *nn, const clattn_nn_linear_args *args) {
  if (!possible(args))
    return 0;
  return nn->provider == CLATTN_NN_PROVIDER_CLBLAST || look_up(nn, args) == 1;
}
