/* SPDX-License-Identifier: Apache-2.0 */
#include "test_nn_rows.h"

enum { GUARD = 29, MOST_AT = 6, MOST_GAP = 7 };

fixture f;

int start(void **state) {
  (void)state;
  cl_int code = CL_SUCCESS;
  cl_command_queue_properties properties = 0;
  clattn_nn_options options;
  clattn_nn_options_init(&options);
  options.kernels = CLATTN_NN_KERNELS_TILES;
  if (clattn_context_create_default(NULL, &f.context, NULL) != CLATTN_SUCCESS ||
      clattn_context_handles(f.context, &f.cl, &f.device) != CLATTN_SUCCESS ||
      clattn_nn_create(f.context, NULL, &f.nn, NULL) != CLATTN_SUCCESS ||
      clattn_nn_create(f.context, &options, &f.tiles, NULL) != CLATTN_SUCCESS)
    return -1;
  f.queue = clCreateCommandQueue(f.cl, f.device, 0, &code);
  if (code == CL_SUCCESS)
    code = clGetDeviceInfo(f.device, CL_DEVICE_QUEUE_PROPERTIES, sizeof properties, &properties, NULL);
  if (code == CL_SUCCESS && (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) != 0)
    f.out_of_order = clCreateCommandQueue(f.cl, f.device, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &code);
  return code == CL_SUCCESS ? 0 : -1;
}

int finish(void **state) {
  (void)state;
  clattn_nn_release(f.nn);
  clattn_nn_release(f.tiles);
  if (f.queue != NULL)
    clReleaseCommandQueue(f.queue);
  if (f.out_of_order != NULL)
    clReleaseCommandQueue(f.out_of_order);
  clattn_context_release(f.context);
  return 0;
}

static uint64_t state_of_draw = 88172645463325252u;

double uniform(double low, double high) {
  state_of_draw ^= state_of_draw << 13;
  state_of_draw ^= state_of_draw >> 7;
  state_of_draw ^= state_of_draw << 17;
  return low + (high - low) * (double)(state_of_draw >> 11) / 9007199254740992.0;
}

int64_t between(int64_t low, int64_t high) {
  return low + (int64_t)uniform(0, (double)(high - low + 1));
}

int one_in(int64_t n) {
  return between(1, n) == 1;
}

static int64_t element_of(const grid *g, int64_t row, int64_t column) {
  return g->at + row * g->stride + column;
}

static void open_at(grid *g, double mid, double spread) {
  const int64_t elements = g->at + g->rows * g->stride + GUARD;
  g->bytes = (size_t)elements * nn_ref_bytes(g->dtype);
  g->image = malloc(g->bytes);
  assert_non_null(g->image);
  memset(g->image, 0xff, g->bytes); /* NaN in every type */
  g->buffer = NULL;
  for (int64_t r = 0; r < g->rows; r++)
    for (int64_t c = 0; c < g->columns; c++)
      grid_set(g, r, c, uniform(mid - spread, mid + spread));
}

void grid_open(grid *g, clattn_dtype dtype, int64_t rows, int64_t columns, double mid, double spread) {
  g->dtype = dtype;
  g->rows = rows;
  g->columns = columns;
  g->stride = columns + (one_in(2) ? between(1, MOST_GAP) : 0);
  g->at = one_in(2) ? between(1, MOST_AT) : 0;
  open_at(g, mid, spread);
}

void grid_open_line(grid *g, int64_t count, double mid, double spread) {
  grid_open(g, CLATTN_F32, 1, count, mid, spread);
}

void grid_close(grid *g) {
  free(g->image);
  if (g->buffer != NULL)
    assert_int_equal(clReleaseMemObject(g->buffer), CL_SUCCESS);
  memset(g, 0, sizeof *g);
}

void grid_set(grid *g, int64_t row, int64_t column, double x) {
  nn_ref_store(g->dtype, g->image, element_of(g, row, column), x);
}

clattn_mem grid_mem(grid *g) {
  cl_int code = CL_SUCCESS;
  if (g->buffer == NULL)
    g->buffer = clCreateBuffer(f.cl, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, g->bytes, g->image, &code);
  assert_int_equal(code, CL_SUCCESS);
  return clattn_buffer(g->buffer, (uint64_t)g->at * nn_ref_bytes(g->dtype));
}

clattn_nn_matrix grid_matrix(grid *g) {
  clattn_nn_matrix matrix;
  memset(&matrix, 0, sizeof matrix);
  matrix.mem = grid_mem(g);
  matrix.dtype = g->dtype;
  matrix.stride = g->stride == g->columns ? 0 : g->stride;
  return matrix;
}

double *grid_values(const grid *g) {
  return nn_ref_widen(g->dtype, g->image + (size_t)g->at * nn_ref_bytes(g->dtype), g->rows, g->columns, g->stride);
}

static unsigned char *fetch(const grid *g) {
  unsigned char *now = malloc(g->bytes);
  assert_non_null(now);
  assert_int_equal(clEnqueueReadBuffer(f.queue, g->buffer, CL_TRUE, 0, g->bytes, now, 0, NULL, NULL), CL_SUCCESS);
  return now;
}

double *grid_take(const grid *g) {
  const size_t size = nn_ref_bytes(g->dtype);
  unsigned char *now = fetch(g);
  for (int64_t e = 0; e < (int64_t)(g->bytes / size); e++) {
    const int64_t from = e - g->at;
    const int inside = from >= 0 && from < g->rows * g->stride && from % g->stride < g->columns;
    if (!inside && memcmp(now + (size_t)e * size, g->image + (size_t)e * size, size) != 0)
      fail_msg("element %d of a buffer, beside the matrix, was written", (int)e);
  }
  double *values = nn_ref_widen(g->dtype, now + (size_t)g->at * size, g->rows, g->columns, g->stride);
  free(now);
  return values;
}

void grid_check_unchanged(const grid *g) {
  if (g->buffer == NULL)
    return;
  unsigned char *now = fetch(g);
  assert_memory_equal(now, g->image, g->bytes);
  free(now);
}

cl_mem ints_buffer(const int32_t *ints, int64_t count) {
  cl_int code = CL_SUCCESS;
  int32_t *copy = malloc((size_t)count * sizeof *copy);
  assert_non_null(copy);
  memcpy(copy, ints, (size_t)count * sizeof *copy);
  const cl_mem buffer =
      clCreateBuffer(f.cl, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, (size_t)count * sizeof *copy, copy, &code);
  assert_int_equal(code, CL_SUCCESS);
  free(copy);
  return buffer;
}

void check_near(const char *what, int64_t row, int64_t column, double got, double want, double allowed) {
  if (!nn_ref_near(got, want, allowed))
    fail_msg("%s: row %d, column %d: %.9g, not %.9g: off by %.3g, allowed %.3g", what, (int)row, (int)column, got, want,
             fabs(got - want), allowed);
}

void succeeded(clattn_status status, const clattn_error *error) {
  if (status != CLATTN_SUCCESS)
    fail_msg("%s: %s", clattn_status_name(status), error->message);
  assert_int_equal(error->status, CLATTN_SUCCESS);
  assert_int_equal(clFinish(f.queue), CL_SUCCESS);
}
