/* SPDX-License-Identifier: Apache-2.0 */
#include "nn_layer_job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

clattn_context *context;
cl_context cl;
cl_device_id device;
cl_command_queue queue, out_of_order;
clattn_nn *nn;

/* ---- what a test makes ------------------------------------------------------------------------------------------- */

enum { KEPT_MOST = 5000 };

static struct {
  void *memory[KEPT_MOST];
  cl_mem buffer[KEPT_MOST];
  clattn_nn_weight *weight[KEPT_MOST];
  size_t memories, buffers, weights;
} kept;

int forget(void **state) {
  (void)state;
  for (size_t i = 0; i < kept.memories; i++)
    free(kept.memory[i]);
  for (size_t i = 0; i < kept.buffers; i++)
    clReleaseMemObject(kept.buffer[i]);
  for (size_t i = 0; i < kept.weights; i++)
    clattn_nn_weight_release(kept.weight[i]);
  memset(&kept, 0, sizeof kept);
  return 0;
}

static void *keep_memory(void *memory) {
  assert_non_null(memory);
  assert_true(kept.memories < KEPT_MOST);
  kept.memory[kept.memories++] = memory;
  return memory;
}

void *memory(size_t bytes) {
  return keep_memory(calloc(bytes + 1, 1));
}

cl_mem buffer_of(size_t bytes, const void *data) {
  cl_int code = CL_SUCCESS;
  void *copy = memory(bytes);
  if (data != NULL)
    memcpy(copy, data, bytes);
  else
    memset(copy, 0xff, bytes);
  cl_mem buffer = clCreateBuffer(cl, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, bytes, copy, &code);
  assert_int_equal(code, CL_SUCCESS);
  assert_true(kept.buffers < KEPT_MOST);
  kept.buffer[kept.buffers++] = buffer;
  return buffer;
}

static uint64_t state_of_draw = 88172645463325252u;

double uniform(double low, double high) {
  state_of_draw ^= state_of_draw << 13;
  state_of_draw ^= state_of_draw >> 7;
  state_of_draw ^= state_of_draw << 17;
  return low + (high - low) * (double)(state_of_draw >> 11) / 9007199254740992.0;
}

int start(void **state) {
  (void)state;
  cl_int code = CL_SUCCESS;
  cl_command_queue_properties properties = 0;
  if (clattn_context_create_default(NULL, &context, NULL) != CLATTN_SUCCESS ||
      clattn_context_handles(context, &cl, &device) != CLATTN_SUCCESS ||
      clattn_nn_create(context, NULL, &nn, NULL) != CLATTN_SUCCESS)
    return -1;
  queue = clCreateCommandQueue(cl, device, 0, &code);
  if (code == CL_SUCCESS)
    code = clGetDeviceInfo(device, CL_DEVICE_QUEUE_PROPERTIES, sizeof properties, &properties, NULL);
  if (code == CL_SUCCESS && (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) != 0)
    out_of_order = clCreateCommandQueue(cl, device, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &code);
  return code == CL_SUCCESS ? 0 : -1;
}

int finish(void **state) {
  (void)state;
  if (queue != NULL)
    clReleaseCommandQueue(queue);
  if (out_of_order != NULL)
    clReleaseCommandQueue(out_of_order);
  clattn_nn_release(nn);
  clattn_context_release(context);
  return 0;
}

/* ---- matrices ---------------------------------------------------------------------------------------------------- */

enum { GAP = 3, BEFORE = 5 };

static matrix shaped(clattn_dtype dtype, int64_t rows, int64_t columns, int64_t gap, int64_t before) {
  matrix m = {.dtype = dtype, .rows = rows, .columns = columns, .stride = columns + gap, .first = before};
  m.bytes = (size_t)(before + rows * m.stride + 1) * nn_ref_bytes(dtype);
  return m;
}

matrix blank(clattn_dtype dtype, int64_t rows, int64_t columns) {
  matrix m = shaped(dtype, rows, columns, GAP, BEFORE);
  m.buffer = buffer_of(m.bytes, NULL);
  return m;
}

matrix dense(int64_t rows, int64_t columns) {
  matrix m = shaped(CLATTN_F32, rows, columns, 0, 0);
  m.buffer = buffer_of(m.bytes, NULL);
  return m;
}

matrix given(clattn_dtype dtype, int64_t rows, int64_t columns, const double *numbers) {
  matrix m = shaped(dtype, rows, columns, GAP, BEFORE);
  void *bytes = memory(m.bytes);
  memset(bytes, 0xff, m.bytes);
  m.numbers = memory((size_t)(rows * columns) * sizeof(double));
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < columns; c++) {
      m.numbers[r * columns + c] = nn_ref_round(dtype, numbers[r * columns + c]);
      nn_ref_store(dtype, bytes, m.first + r * m.stride + c, numbers[r * columns + c]);
    }
  m.buffer = buffer_of(m.bytes, bytes);
  return m;
}

static double *draw(int64_t count, double low, double high) {
  double *numbers = memory((size_t)count * sizeof *numbers);
  for (int64_t i = 0; i < count; i++)
    numbers[i] = uniform(low, high);
  return numbers;
}

matrix drawn(clattn_dtype dtype, int64_t rows, int64_t columns) {
  return given(dtype, rows, columns, draw(rows * columns, -1, 1));
}

clattn_mem mem_of(const matrix *m) {
  return clattn_buffer(m->buffer, (uint64_t)m->first * nn_ref_bytes(m->dtype));
}

clattn_nn_matrix of(const matrix *m) {
  clattn_nn_matrix view = clattn_nn_matrix_f32(m->buffer, 0, m->stride);
  view.mem = mem_of(m);
  view.dtype = m->dtype;
  return view;
}

static unsigned char *bytes_of(cl_mem buffer, size_t bytes) {
  unsigned char *data = memory(bytes);
  assert_int_equal(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, bytes, data, 0, NULL, NULL), CL_SUCCESS);
  return data;
}

double *fetched(const matrix *m) {
  const size_t element = nn_ref_bytes(m->dtype), count = m->bytes / element;
  const unsigned char *bytes = bytes_of(m->buffer, m->bytes), ones[4] = {0xff, 0xff, 0xff, 0xff};
  double *numbers = memory((size_t)(m->rows * m->columns) * sizeof *numbers);
  for (size_t i = 0; i < count; i++) {
    const int64_t at = (int64_t)i - m->first, r = at / m->stride, c = at % m->stride;
    if (at >= 0 && r < m->rows && c < m->columns)
      numbers[r * m->columns + c] = nn_ref_load(m->dtype, bytes, (int64_t)i);
    else
      assert_memory_equal(bytes + i * element, ones, element);
  }
  return numbers;
}

/* Numbers on the way that are rounded the other way, since they lie between two of their type, are rare. */
static double tolerance(clattn_dtype dtype) {
  return dtype == CLATTN_F32 ? 4e-6 : dtype == CLATTN_F16 ? 2e-3 : 1.6e-2;
}

void check(const char *name, const char *what, const matrix *got, const double *want, clattn_dtype loss) {
  const int64_t count = got->rows * got->columns;
  const double *numbers = fetched(got);
  double largest = 0;
  for (int64_t i = 0; i < count; i++)
    largest = isfinite(want[i]) ? fmax(largest, fabs(want[i])) : largest;
  for (int64_t i = 0; i < count; i++)
    if (!nn_ref_near(numbers[i], want[i], tolerance(loss) * largest))
      fail_msg("%s: %s: row %d, column %d: %.9g, not %.9g", name, what, (int)(i / got->columns),
               (int)(i % got->columns), numbers[i], want[i]);
}

clattn_mem drawn_floats(int64_t n, double low, double high, double **numbers) {
  float *values = memory((size_t)n * sizeof *values);
  *numbers = draw(n, low, high);
  for (int64_t i = 0; i < n; i++) {
    values[i] = (float)(*numbers)[i];
    (*numbers)[i] = (double)values[i];
  }
  return clattn_buffer(buffer_of((size_t)n * sizeof *values, values), 0);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

static clattn_nn_weight *make_weight(int64_t in, int64_t out, clattn_dtype dtype, int with_bias) {
  clattn_nn_weight *made = NULL;
  assert_int_equal(clattn_nn_weight_create(nn, in, out, dtype, with_bias, &made, NULL), CLATTN_SUCCESS);
  assert_true(kept.weights < KEPT_MOST);
  kept.weight[kept.weights++] = made;
  return made;
}

static float *as_floats(const double *numbers, int64_t count) {
  float *values = memory((size_t)count * sizeof *values);
  for (int64_t i = 0; i < count; i++)
    values[i] = (float)numbers[i];
  return values;
}

static void fill(clattn_nn_weight *to, int64_t first, const nn_ref_weight *from) {
  clattn_nn_fill_args args;
  clattn_error error;
  clattn_error_init(&error);
  clattn_nn_fill_args_init(&args);
  args.error = &error;
  args.weight = to;
  args.first = first;
  args.count = from->out;
  args.host = as_floats(from->w, from->in * from->out);
  args.host_bias = from->b != NULL ? as_floats(from->b, from->out) : NULL;
  if (clattn_nn_weight_fill(queue, &args, 0, NULL, NULL) != CLATTN_SUCCESS)
    fail_msg("filling a weight: %s", error.message);
}

weight drawn_weight(int64_t in, int64_t out, clattn_dtype dtype, int with_bias) {
  const double size = sqrt(3.0 / (double)in);
  weight w = {.device = make_weight(in, out, dtype, with_bias), .ref = {.in = in, .out = out}};
  double *values = draw(in * out, -size, size), *biases = draw(out, -0.5, 0.5);
  for (int64_t i = 0; i < in * out; i++)
    values[i] = nn_ref_round(dtype, values[i]);
  for (int64_t i = 0; i < out; i++)
    biases[i] = nn_ref_round(CLATTN_F32, biases[i]);
  w.ref.w = values;
  w.ref.b = with_bias ? biases : NULL;
  fill(w.device, 0, &w.ref);
  return w;
}

weight joined(const weight *parts, int count, clattn_dtype dtype) {
  const int64_t in = parts[0].ref.in;
  const int with_bias = parts[0].ref.b != NULL;
  int64_t out = 0, at = 0;
  for (int i = 0; i < count; i++)
    out += parts[i].ref.out;
  double *values = memory((size_t)(in * out) * sizeof *values), *biases = memory((size_t)out * sizeof *biases);
  weight w = {.device = make_weight(in, out, dtype, with_bias), .ref = {.in = in, .out = out, .w = values}};
  w.ref.b = with_bias ? biases : NULL;
  for (int i = 0; i < count; i++) {
    const nn_ref_weight *part = &parts[i].ref;
    memcpy(values + at * in, part->w, (size_t)(in * part->out) * sizeof *values);
    if (with_bias)
      memcpy(biases + at, part->b, (size_t)part->out * sizeof *biases);
    fill(w.device, at, part);
    at += part->out;
  }
  return w;
}

/* ---- layers ------------------------------------------------------------------------------------------------------ */

layer layer_of(layer_kind kind) {
  layer l;
  memset(&l, 0, sizeof l);
  l.kind = kind;
  if (kind == ATTENTION)
    clattn_nn_attention_args_init(&l.attention);
  else if (kind == ENCDEC)
    clattn_nn_encdec_args_init(&l.encdec);
  else if (kind == FFN)
    clattn_nn_ffn_args_init(&l.ffn);
  else
    clattn_nn_block_args_init(&l.block);
  return l;
}

clattn_mem *workspace_of(layer *l) {
  return l->kind == ATTENTION ? &l->attention.workspace
         : l->kind == ENCDEC  ? &l->encdec.workspace
         : l->kind == FFN     ? &l->ffn.workspace
                              : &l->block.workspace;
}

clattn_error **error_of(layer *l) {
  return l->kind == ATTENTION ? &l->attention.error
         : l->kind == ENCDEC  ? &l->encdec.error
         : l->kind == FFN     ? &l->ffn.error
                              : &l->block.error;
}

clattn_status ask_workspace(const layer *l, uint64_t *bytes) {
  switch (l->kind) {
  case ATTENTION:
    return clattn_nn_attention_workspace(nn, &l->attention, bytes);
  case ENCDEC:
    return clattn_nn_encdec_workspace(nn, &l->encdec, bytes);
  case FFN:
    return clattn_nn_ffn_workspace(nn, &l->ffn, bytes);
  case ENCODER:
  case DECODER:
    break;
  }
  return clattn_nn_block_workspace(nn, &l->block, bytes);
}

clattn_status run(const layer *l, cl_command_queue on, cl_uint num_events, const cl_event *wait_list, cl_event *event) {
  switch (l->kind) {
  case ATTENTION:
    return clattn_nn_attention(nn, on, &l->attention, num_events, wait_list, event);
  case ENCDEC:
    return clattn_nn_encdec_attention(nn, on, &l->encdec, num_events, wait_list, event);
  case FFN:
    return clattn_nn_ffn(nn, on, &l->ffn, num_events, wait_list, event);
  case ENCODER:
    return clattn_nn_encoder_block(nn, on, &l->block, num_events, wait_list, event);
  case DECODER:
    break;
  }
  return clattn_nn_decoder_block(nn, on, &l->block, num_events, wait_list, event);
}

enum { OUTPUTS_MOST = 8, WORKSPACE_OFFSET = 192, GUARD = 256 };

/* Finished too: Intel's runtime for CPUs comes back from blocking writes that are not done yet, and a kernel on another
 * queue may then run before them. */
static void write_back(const matrix *m, const unsigned char *bytes) {
  assert_int_equal(clEnqueueWriteBuffer(queue, m->buffer, CL_TRUE, 0, m->bytes, bytes, 0, NULL, NULL), CL_SUCCESS);
  assert_int_equal(clFinish(queue), CL_SUCCESS);
}

/* With the workspace at an offset in a buffer of 0xff; behind a user's event, so that nothing may run before it. */
static void run_late(const char *name, layer *l, cl_command_queue on, uint64_t bytes) {
  cl_int code = CL_SUCCESS, progress = CL_COMPLETE;
  cl_event gate = clCreateUserEvent(cl, &code), done = NULL;
  assert_int_equal(code, CL_SUCCESS);
  const size_t whole = WORKSPACE_OFFSET + (size_t)bytes + GUARD;
  const cl_mem scratch = buffer_of(whole, NULL);
  if (bytes > 0) {
    *workspace_of(l) = clattn_buffer(scratch, WORKSPACE_OFFSET);
    workspace_of(l)->bytes = bytes;
  }
  if (run(l, on, 1, &gate, &done) != CLATTN_SUCCESS)
    fail_msg("%s, with a workspace: %s", name, (*error_of(l))->message);
  assert_non_null(done);
  assert_int_equal(clFlush(on), CL_SUCCESS);
  assert_int_equal(clGetEventInfo(done, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof progress, &progress, NULL),
                   CL_SUCCESS);
  assert_int_not_equal(progress, CL_COMPLETE);
  assert_int_equal(clSetUserEventStatus(gate, CL_COMPLETE), CL_SUCCESS);
  assert_int_equal(clWaitForEvents(1, &done), CL_SUCCESS);
  assert_int_equal(clReleaseEvent(gate) | clReleaseEvent(done), CL_SUCCESS);
  const unsigned char *after = bytes_of(scratch, whole);
  for (size_t i = 0; i < whole; i++)
    if (i < WORKSPACE_OFFSET || i >= WORKSPACE_OFFSET + bytes)
      if (after[i] != 0xff)
        fail_msg("%s: byte %d of a workspace of %d was written", name, (int)i - WORKSPACE_OFFSET, (int)bytes);
}

static void run_with_too_little(const layer *l, uint64_t bytes) {
  layer little = *l;
  *workspace_of(&little) = clattn_buffer(buffer_of((size_t)bytes, NULL), 0);
  workspace_of(&little)->bytes = bytes - 1;
  refused(&little, CLATTN_ERROR_WORKSPACE_TOO_SMALL, "workspace needs");
}

void run_all_ways(const char *name, const layer *l, const matrix *outputs, int count) {
  unsigned char *before[OUTPUTS_MOST], *first[OUTPUTS_MOST];
  const cl_command_queue queues[] = {queue, out_of_order};
  clattn_error error;
  uint64_t bytes = 0;
  layer again = *l;
  clattn_error_init(&error);
  *error_of(&again) = &error;
  assert_true(count <= OUTPUTS_MOST);
  for (int i = 0; i < count; i++)
    before[i] = bytes_of(outputs[i].buffer, outputs[i].bytes);
  if (run(&again, queue, 0, NULL, NULL) != CLATTN_SUCCESS)
    fail_msg("%s: %s", name, error.message);
  for (int i = 0; i < count; i++)
    first[i] = bytes_of(outputs[i].buffer, outputs[i].bytes);
  if (ask_workspace(&again, &bytes) != CLATTN_SUCCESS)
    fail_msg("%s: workspace: %s", name, error.message);
  if (bytes > 0)
    run_with_too_little(l, bytes);
  for (int n = 0; n < 2 && queues[n] != NULL; n++) {
    for (int i = 0; i < count; i++)
      write_back(&outputs[i], before[i]);
    run_late(name, &again, queues[n], bytes);
    for (int i = 0; i < count; i++)
      if (memcmp(first[i], bytes_of(outputs[i].buffer, outputs[i].bytes), outputs[i].bytes) != 0)
        fail_msg("%s: output %d has other bits with a workspace, queue %d", name, i, n);
  }
}

void refused(const layer *l, clattn_status want, const char *words) {
  cl_event event = (cl_event)(void *)&event;
  clattn_error error;
  layer wrong = *l;
  clattn_error_init(&error);
  *error_of(&wrong) = &error;
  const clattn_status status = run(&wrong, queue, 0, NULL, &event);
  if (status != want || error.status != want || strstr(error.message, words) == NULL)
    fail_msg("%s, not %s with '%s': %s", clattn_status_name(status), clattn_status_name(want), words, error.message);
  assert_null(event);
}
