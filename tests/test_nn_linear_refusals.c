/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that clattn_nn_create, weights and linear layers must refuse, and that nothing ran then. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test_nn_linear.h"

static void check_refusal(clattn_status status, clattn_status want, const clattn_error *error, const char *part) {
  if (status != want || error->status != want || strstr(error->message, part) == NULL)
    fail_msg("%s, not %s with '%s': %s", clattn_status_name(status), clattn_status_name(want), part, error->message);
}

/* ---- libraries --------------------------------------------------------------------------------------------------- */

static void create_refused(const clattn_nn_options *options, clattn_status want, const char *part) {
  clattn_nn *nn = (clattn_nn *)(void *)&nn;
  clattn_error error;
  clattn_error_init(&error);
  check_refusal(clattn_nn_create(rig.context, options, &nn, &error), want, &error, part);
  assert_null(nn);
}

void refused_libraries(void **state) {
  (void)state;
  clattn_nn *nn = (clattn_nn *)(void *)&nn;
  clattn_nn_options options;
  clattn_error error;
  clattn_error_init(&error);
  check_refusal(clattn_nn_create(NULL, NULL, &nn, &error), CLATTN_ERROR_NULL_POINTER, &error, "context and out");
  assert_null(nn);
  check_refusal(clattn_nn_create(rig.context, NULL, NULL, &error), CLATTN_ERROR_NULL_POINTER, &error,
                "context and out");
  clattn_nn_options_init(NULL);
  clattn_nn_options_init(&options);
  options.struct_size += 4;
  create_refused(&options, CLATTN_ERROR_STRUCT_SIZE, "options.struct_size is ");
  clattn_nn_options_init(&options);
  options.reserved[7] = 12;
  create_refused(&options, CLATTN_ERROR_RESERVED, "options.reserved[7] is 12, not 0");
  clattn_nn_options_init(&options);
  options.provider = 4;
  create_refused(&options, CLATTN_ERROR_ENUM, "options.provider is 4");
  options.provider = -1;
  create_refused(&options, CLATTN_ERROR_ENUM, "options.provider is -1");
  clattn_nn_options_init(&options);
  options.kernels = 3;
  create_refused(&options, CLATTN_ERROR_ENUM, "options.kernels is 3");
#ifndef CLATTN_WITH_CLBLAST
  for (options.kernels = 0, options.provider = CLATTN_NN_PROVIDER_CLBLAST;
       options.provider <= CLATTN_NN_PROVIDER_MEASURE; options.provider++)
    create_refused(&options, CLATTN_ERROR_NOT_SUPPORTED, "options.provider: this library was built without CLBlast");
#endif
  clattn_nn_release(NULL);
  /* without options or an error */
  assert_int_equal(clattn_nn_create(rig.context, NULL, &nn, NULL), CLATTN_SUCCESS);
  clattn_nn_release(nn);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

static void weight_refused(int64_t in, int64_t out, clattn_dtype dtype, clattn_status want, const char *part) {
  clattn_nn_weight *weight = (clattn_nn_weight *)(void *)&weight;
  clattn_error error;
  clattn_error_init(&error);
  check_refusal(clattn_nn_weight_create(rig.nn[0], in, out, dtype, 0, &weight, &error), want, &error, part);
  assert_null(weight);
}

void refused_weights(void **state) {
  (void)state;
  clattn_nn_weight *weight = (clattn_nn_weight *)(void *)&weight;
  clattn_error error;
  clattn_error_init(&error);
  check_refusal(clattn_nn_weight_create(NULL, 1, 1, CLATTN_F32, 0, &weight, &error), CLATTN_ERROR_NULL_POINTER, &error,
                "nn and weight");
  assert_null(weight);
  check_refusal(clattn_nn_weight_create(rig.nn[0], 1, 1, CLATTN_F32, 0, NULL, &error), CLATTN_ERROR_NULL_POINTER,
                &error, "nn and weight");
  weight_refused(0, 3, CLATTN_F32, CLATTN_ERROR_SHAPE, "0 inputs and 3 outputs");
  weight_refused(3, -1, CLATTN_F32, CLATTN_ERROR_SHAPE, "3 inputs and -1 outputs");
  weight_refused(16777217, 1, CLATTN_F16, CLATTN_ERROR_SHAPE, "16777217 inputs and 1 outputs: both are 1 to 16777216");
  weight_refused(1, INT64_MAX, CLATTN_F16, CLATTN_ERROR_SHAPE, "9223372036854775807 outputs");
  weight_refused(4, 4, CLATTN_I8, CLATTN_ERROR_ENUM, "dtype is 3");
  weight_refused(4, 4, -1, CLATTN_ERROR_ENUM, "dtype is -1");
  /* 2^50 bytes: the driver's answer, whichever it is */
  const clattn_status status = clattn_nn_weight_create(rig.nn[0], 16777216, 16777216, CLATTN_F32, 1, &weight, &error);
  assert_true(status < 0 && status > -100);
  check_refusal(status, status, &error, "a weight of 16777216 x 16777216");
  assert_null(weight);
  clattn_nn_weight_release(NULL);
}

/* ---- fills ------------------------------------------------------------------------------------------------------- */

/* A sound fill of 6 outputs of 8 inputs from memory on the device, and one from the host. */
static struct {
  clattn_nn_weight *weight, *plain; /* f16 with a bias, f32 without */
  matrix w, b;
  float host[48], host_bias[6];
  clattn_error error;
  clattn_nn_fill_args device, from_host;
} fill;

static void open_fill(void) {
  memset(&fill, 0, sizeof fill);
  assert_int_equal(clattn_nn_weight_create(rig.nn[0], 8, 6, CLATTN_F16, 1, &fill.weight, NULL), CLATTN_SUCCESS);
  assert_int_equal(clattn_nn_weight_create(rig.nn[0], 8, 6, CLATTN_F32, 0, &fill.plain, NULL), CLATTN_SUCCESS);
  matrix_make(&fill.w, CLATTN_F32, 6, 8, 10, 0, 0);
  matrix_make(&fill.b, CLATTN_F32, 1, 6, 0, 0, 0);
  matrix_give(&fill.w, CL_MEM_READ_ONLY);
  matrix_give(&fill.b, CL_MEM_READ_ONLY);
  clattn_nn_fill_args_init(NULL);
  clattn_nn_fill_args_init(&fill.device);
  fill.device.error = &fill.error;
  fill.device.weight = fill.weight;
  fill.device.matrix = matrix_view(&fill.w);
  fill.device.bias = matrix_view(&fill.b).mem;
  clattn_nn_fill_args_init(&fill.from_host);
  fill.from_host.error = &fill.error;
  fill.from_host.weight = fill.weight;
  fill.from_host.host = fill.host;
  fill.from_host.host_bias = fill.host_bias;
}

static void close_fill(void) {
  /* as they were they are fine */
  assert_int_equal(clattn_nn_weight_fill(rig.queue, &fill.device, 0, NULL, NULL), CLATTN_SUCCESS);
  assert_int_equal(clattn_nn_weight_fill(rig.queue, &fill.from_host, 0, NULL, NULL), CLATTN_SUCCESS);
  assert_int_equal(clFinish(rig.queue), CL_SUCCESS);
  clattn_nn_weight_release(fill.weight);
  clattn_nn_weight_release(fill.plain);
  matrix_free(&fill.w);
  matrix_free(&fill.b);
}

static void fill_refused(cl_command_queue queue, const clattn_nn_fill_args *args, cl_uint num_events,
                         const cl_event *wait_list, clattn_status want, const char *part) {
  cl_event event = (cl_event)(void *)&event;
  clattn_error_init(args->error);
  check_refusal(clattn_nn_weight_fill(queue, args, num_events, wait_list, &event), want, args->error, part);
  assert_null(event);
}

#define FILL_REFUSED(sound, change, want, part)                                                                        \
  do {                                                                                                                 \
    clattn_nn_fill_args args = fill.sound;                                                                             \
    change;                                                                                                            \
    fill_refused(rig.queue, &args, 0, NULL, want, part);                                                               \
  } while (0)

static void refused_fill_arguments(void) {
  cl_event event = (cl_event)(void *)&event;
  assert_int_equal(clattn_nn_weight_fill(rig.queue, NULL, 0, NULL, &event), CLATTN_ERROR_NULL_POINTER);
  assert_null(event);
  clattn_nn_fill_args sized = fill.device;
  sized.struct_size--;
  event = (cl_event)(void *)&event;
  assert_int_equal(clattn_nn_weight_fill(rig.queue, &sized, 0, NULL, &event), CLATTN_ERROR_STRUCT_SIZE);
  assert_null(event);
  clattn_nn_fill_args silent = fill.device;
  silent.error = NULL;
  silent.first = 6;
  assert_int_equal(clattn_nn_weight_fill(rig.queue, &silent, 0, NULL, NULL), CLATTN_ERROR_SHAPE);
  fill_refused(NULL, &fill.device, 0, NULL, CLATTN_ERROR_NULL_POINTER, "queue must not be NULL");
  fill_refused(rig.queue, &fill.device, 1, NULL, CL_INVALID_EVENT_WAIT_LIST, "num_events is 1, wait_list is NULL");
  FILL_REFUSED(device, args.weight = NULL, CLATTN_ERROR_NULL_POINTER, "args.weight must not be NULL");
  FILL_REFUSED(device, args.reserved[2] = 5, CLATTN_ERROR_RESERVED, "args.reserved[2] is 5, not 0");
  FILL_REFUSED(device, args.first = -1, CLATTN_ERROR_SHAPE, "outputs from -1 on, 0 of them: the weight has 6");
  FILL_REFUSED(device, args.first = 6, CLATTN_ERROR_SHAPE, "outputs from 6 on");
  FILL_REFUSED(device, args.count = -1, CLATTN_ERROR_SHAPE, "-1 of them");
  FILL_REFUSED(device, args.count = 7, CLATTN_ERROR_SHAPE, "outputs from 0 on, 7 of them: the weight has 6");
  FILL_REFUSED(device, (args.first = 4, args.count = INT64_MAX), CLATTN_ERROR_SHAPE, "9223372036854775807 of them");
  FILL_REFUSED(device, args.transposed = 2, CLATTN_ERROR_ENUM, "args.transposed is 2");
  FILL_REFUSED(device, args.dtype = CLATTN_BF16, CLATTN_ERROR_ENUM, "args.dtype is 2");
  FILL_REFUSED(device, args.dtype = 9, CLATTN_ERROR_ENUM, "args.dtype is 9");
  FILL_REFUSED(device, args.matrix.dtype = CLATTN_F16, CLATTN_ERROR_ENUM, "args.matrix.dtype must stay 0");
}

static void refused_fill_tensors(void) {
  FILL_REFUSED(device, args.host = fill.host, CLATTN_ERROR_TENSOR_UNUSED, "args.host and args.matrix");
  FILL_REFUSED(from_host, args.host = NULL, CLATTN_ERROR_TENSOR_MISSING, "args.host and args.matrix");
  FILL_REFUSED(from_host, args.matrix.stride = 8, CLATTN_ERROR_TENSOR_UNUSED, "args.matrix.stride is 8");
  FILL_REFUSED(from_host, args.matrix.reserved = 3, CLATTN_ERROR_RESERVED, "args.matrix.reserved is 3");
  FILL_REFUSED(device, args.matrix.mem.buffer = NULL, CLATTN_ERROR_TENSOR_MISSING, "args.");
  FILL_REFUSED(device, args.host_bias = fill.host_bias, CLATTN_ERROR_TENSOR_UNUSED, "args.host_bias and args.bias");
  FILL_REFUSED(from_host, args.host_bias = NULL, CLATTN_ERROR_TENSOR_MISSING, "args.host_bias and args.bias");
  FILL_REFUSED(device, args.weight = fill.plain, CLATTN_ERROR_TENSOR_UNUSED, "the weight has none");
  FILL_REFUSED(from_host, args.weight = fill.plain, CLATTN_ERROR_TENSOR_UNUSED, "the weight has none");
}

static void refused_fill_memory(void) {
  FILL_REFUSED(device, args.matrix.stride = 7, CLATTN_ERROR_STRIDE, "args.matrix.stride 7 is below its 8 columns");
  FILL_REFUSED(device, args.matrix.stride = -10, CLATTN_ERROR_STRIDE, "args.matrix.stride -10");
  FILL_REFUSED(device, args.matrix.stride = INT64_MAX / 8, CLATTN_ERROR_OVERFLOW, "stride 1152921504606846975");
  FILL_REFUSED(device, args.matrix.stride = 100, CLATTN_ERROR_BUFFER_TOO_SMALL,
               "args.matrix: 6 rows of 8 columns, stride 100, need 2032 bytes");
  FILL_REFUSED(device, (args.transposed = 1, args.matrix.stride = 20), CLATTN_ERROR_BUFFER_TOO_SMALL,
               "args.matrix: 8 rows of 6 columns, stride 20, need 584 bytes");
  FILL_REFUSED(device, args.matrix.mem.bytes = 231, CLATTN_ERROR_BUFFER_TOO_SMALL,
               "need 232 bytes, its memory has 231");
  FILL_REFUSED(device, args.matrix.mem.offset = 2, CLATTN_ERROR_ALIGNMENT, "args.matrix: offset 2");
  FILL_REFUSED(device, args.matrix.mem.offset = 4000, CLATTN_ERROR_BUFFER_TOO_SMALL, "args.matrix: offset 4000");
  FILL_REFUSED(device, args.matrix.mem.kind = CLATTN_MEM_SVM, CLATTN_ERROR_NOT_SUPPORTED, "args.matrix: SVM");
  FILL_REFUSED(device, args.matrix.mem.kind = 9, CLATTN_ERROR_ENUM, "args.matrix.kind is 9");
  FILL_REFUSED(device, args.matrix.mem.reserved = 1, CLATTN_ERROR_RESERVED, "args.matrix.reserved is 1");
  FILL_REFUSED(device, args.matrix.reserved = 4, CLATTN_ERROR_RESERVED, "args.matrix.reserved is 4");
  FILL_REFUSED(device, args.bias.bytes = 23, CLATTN_ERROR_BUFFER_TOO_SMALL, "args.bias needs 24 bytes");
  FILL_REFUSED(device, args.bias.offset = 2, CLATTN_ERROR_ALIGNMENT, "args.bias: offset 2");
  FILL_REFUSED(device, args.bias.kind = CLATTN_MEM_USM, CLATTN_ERROR_NOT_SUPPORTED, "args.bias");
  matrix hidden;
  matrix_make(&hidden, CLATTN_F32, 6, 10, 0, 0, 0);
  matrix_give(&hidden, CL_MEM_WRITE_ONLY);
  FILL_REFUSED(device, args.matrix.mem.buffer = hidden.buffer, CL_INVALID_MEM_OBJECT, "args.matrix");
  FILL_REFUSED(device, args.bias.buffer = hidden.buffer, CL_INVALID_MEM_OBJECT, "args.bias");
  matrix_free(&hidden);
}

void refused_fills(void **state) {
  (void)state;
  open_fill();
  refused_fill_arguments();
  refused_fill_tensors();
  refused_fill_memory();
  close_fill();
}

/* ---- layers ------------------------------------------------------------------------------------------------------ */

/* A sound layer of 5 rows, 8 inputs and 6 outputs. */
static struct {
  clattn_nn_weight *weight, *foreign; /* the second is the other library's */
  matrix x, y, factor, residual;
  clattn_error error;
  clattn_nn_linear_args args;
} sound;

static void open_sound(void) {
  float w[48];
  memset(&sound, 0, sizeof sound);
  for (int i = 0; i < 48; i++)
    w[i] = (float)uniform(-1, 1);
  sound.weight = weight_of(rig.nn[0], 8, 6, CLATTN_F32, w, NULL);
  sound.foreign = weight_of(rig.nn[1], 8, 6, CLATTN_F32, w, NULL);
  matrix_make(&sound.x, CLATTN_F32, 5, 8, 0, 0, 0);
  matrix_make(&sound.y, CLATTN_F32, 0, 6, 0, 0, PATTERN); /* of no rows: all of it is guard */
  matrix_make(&sound.factor, CLATTN_F32, 5, 6, 0, 0, 0);
  matrix_make(&sound.residual, CLATTN_F32, 5, 6, 0, 0, 0);
  matrix_give(&sound.x, CL_MEM_READ_ONLY);
  matrix_give(&sound.y, CL_MEM_WRITE_ONLY);
  matrix_give(&sound.factor, CL_MEM_READ_ONLY);
  matrix_give(&sound.residual, CL_MEM_READ_ONLY);
  clattn_nn_linear_args_init(NULL);
  clattn_nn_linear_args_init(&sound.args);
  sound.args.error = &sound.error;
  sound.args.weight = sound.weight;
  sound.args.rows = 5;
  sound.args.x = matrix_view(&sound.x);
  sound.args.y = matrix_view(&sound.y);
  sound.args.factor = matrix_view(&sound.factor);
  sound.args.residual = matrix_view(&sound.residual);
}

static void close_sound(void) {
  matrix_fetch(&sound.y); /* nothing ran */
  linear(rig.nn[0], rig.queue, &sound.args, 0, NULL, NULL);
  assert_int_equal(clFinish(rig.queue), CL_SUCCESS);
  clattn_nn_weight_release(sound.weight);
  clattn_nn_weight_release(sound.foreign);
  matrix_free(&sound.x);
  matrix_free(&sound.y);
  matrix_free(&sound.factor);
  matrix_free(&sound.residual);
}

static void refused_with(clattn_nn *nn, cl_command_queue queue, const clattn_nn_linear_args *args, cl_uint num_events,
                         const cl_event *wait_list, clattn_status want, const char *part) {
  cl_event event = (cl_event)(void *)&event;
  clattn_error_init(args->error);
  check_refusal(clattn_nn_linear(nn, queue, args, num_events, wait_list, &event), want, args->error, part);
  assert_null(event);
}

static void refused(const clattn_nn_linear_args *args, clattn_status want, const char *part) {
  refused_with(rig.nn[0], rig.queue, args, 0, NULL, want, part);
}

#define REFUSED(change, want, part)                                                                                    \
  do {                                                                                                                 \
    clattn_nn_linear_args args = sound.args;                                                                           \
    change;                                                                                                            \
    refused(&args, want, part);                                                                                        \
  } while (0)

void refused_arguments(void **state) {
  (void)state;
  cl_event event = (cl_event)(void *)&event;
  open_sound();
  assert_int_equal(clattn_nn_linear(rig.nn[0], rig.queue, NULL, 0, NULL, &event), CLATTN_ERROR_NULL_POINTER);
  assert_null(event);
  clattn_nn_linear_args sized = sound.args;
  sized.struct_size = 0;
  event = (cl_event)(void *)&event;
  assert_int_equal(clattn_nn_linear(rig.nn[0], rig.queue, &sized, 0, NULL, &event), CLATTN_ERROR_STRUCT_SIZE);
  assert_null(event);
  clattn_nn_linear_args silent = sound.args;
  silent.error = NULL;
  silent.rows = -1;
  assert_int_equal(clattn_nn_linear(rig.nn[0], rig.queue, &silent, 0, NULL, NULL), CLATTN_ERROR_SHAPE);
  refused_with(NULL, rig.queue, &sound.args, 0, NULL, CLATTN_ERROR_NULL_POINTER, "nn must not be NULL");
  refused_with(rig.nn[0], NULL, &sound.args, 0, NULL, CLATTN_ERROR_NULL_POINTER, "queue must not be NULL");
  refused_with(rig.nn[0], rig.queue, &sound.args, 2, NULL, CL_INVALID_EVENT_WAIT_LIST, "num_events is 2");
  refused_with(rig.nn[0], rig.queue, &sound.args, 0, &event, CL_INVALID_EVENT_WAIT_LIST, "num_events is 0");
  event = NULL;
  refused_with(rig.nn[0], rig.queue, &sound.args, 1, &event, CL_INVALID_EVENT, "event 0 of wait_list");
  REFUSED(args.weight = NULL, CLATTN_ERROR_NULL_POINTER, "args.weight must not be NULL");
  REFUSED(args.weight = sound.foreign, CLATTN_ERROR_WRONG_CONTEXT, "args.weight was made for another clattn_nn");
  REFUSED(args.reserved[6] = 1, CLATTN_ERROR_RESERVED, "args.reserved[6] is 1, not 0");
  REFUSED(args.rows = -3, CLATTN_ERROR_SHAPE, "args.rows is -3");
  REFUSED(args.rows = INT64_C(2147483648), CLATTN_ERROR_SHAPE, "args.rows is 2147483648, not 0 to 2^31 - 1");
  REFUSED(args.activation = 5, CLATTN_ERROR_ENUM, "args.activation is 5");
  REFUSED(args.activation = -1, CLATTN_ERROR_ENUM, "args.activation is -1");
  close_sound();
}

static const char *const names[] = {"x", "y", "factor", "residual"};

static clattn_nn_matrix *matrix_of(clattn_nn_linear_args *args, int n) {
  clattn_nn_matrix *const all[] = {&args->x, &args->y, &args->factor, &args->residual};
  return all[n];
}

#define MATRIX_REFUSED(change, want, part)                                                                             \
  do {                                                                                                                 \
    clattn_nn_linear_args args = sound.args;                                                                           \
    clattn_nn_matrix *const m = matrix_of(&args, n);                                                                   \
    (void)snprintf(text, sizeof text, "%s%s", names[n], part);                                                         \
    change;                                                                                                            \
    refused(&args, want, text);                                                                                        \
  } while (0)

/* Each matrix alike. */
void refused_memory(void **state) {
  (void)state;
  char text[80];
  open_sound();
  for (int n = 0; n < 4; n++) {
    const uint64_t needed = n == 0 ? 160 : 120;
    const cl_mem wrong = n == 1 ? sound.residual.buffer : sound.y.buffer; /* that can't be written, or not be read */
    MATRIX_REFUSED(m->dtype = CLATTN_I8, CLATTN_ERROR_ENUM, ".dtype is 3");
    MATRIX_REFUSED(m->dtype = -7, CLATTN_ERROR_ENUM, ".dtype is -7");
    MATRIX_REFUSED(m->reserved = 6, CLATTN_ERROR_RESERVED, ".reserved is 6");
    MATRIX_REFUSED(m->stride = 5, CLATTN_ERROR_STRIDE, ".stride 5 is below its");
    MATRIX_REFUSED(m->stride = -8, CLATTN_ERROR_STRIDE, ".stride -8");
    MATRIX_REFUSED(m->stride = INT64_MAX / 8, CLATTN_ERROR_OVERFLOW, ": 5 rows of stride 1152921504606846975");
    MATRIX_REFUSED(m->stride = 1000, CLATTN_ERROR_BUFFER_TOO_SMALL, ": 5 rows of");
    MATRIX_REFUSED(m->mem.bytes = needed - 1, CLATTN_ERROR_BUFFER_TOO_SMALL, ": 5 rows of");
    MATRIX_REFUSED(m->mem.bytes = 100000, CLATTN_ERROR_BUFFER_TOO_SMALL, ": offset 0 and bytes 100000");
    MATRIX_REFUSED(m->mem.offset = 2, CLATTN_ERROR_ALIGNMENT, ": offset 2");
    MATRIX_REFUSED((m->dtype = CLATTN_BF16, m->mem.offset = 1), CLATTN_ERROR_ALIGNMENT, ": offset 1");
    MATRIX_REFUSED(m->mem.kind = CLATTN_MEM_USM, CLATTN_ERROR_NOT_SUPPORTED, ": SVM and USM");
    MATRIX_REFUSED(m->mem.kind = 7, CLATTN_ERROR_ENUM, ".kind is 7");
    MATRIX_REFUSED(m->mem.reserved = 2, CLATTN_ERROR_RESERVED, ".reserved is 2");
    MATRIX_REFUSED(m->mem.buffer = wrong, CL_INVALID_MEM_OBJECT, " is in a buffer that kernels may not");
    if (n < 2)
      MATRIX_REFUSED(memset(m, 0, sizeof *m), CLATTN_ERROR_TENSOR_MISSING, " is needed and absent");
    else
      MATRIX_REFUSED(m->mem.buffer = NULL, CLATTN_ERROR_TENSOR_MISSING, " has a type or stride, but no memory");
  }
  close_sound();
}

void overlaps(void **state) {
  (void)state;
  matrix all;
  cl_int code = CL_SUCCESS;
  open_sound();
  matrix_make(&all, CLATTN_F32, 1, 2000, 0, 0, 0);
  matrix_give(&all, CL_MEM_READ_WRITE);
  const cl_buffer_region region = {512, 2048};
  const cl_mem piece = clCreateSubBuffer(all.buffer, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
  assert_int_equal(code, CL_SUCCESS);
#define AT(number, stride) clattn_nn_matrix_f32(all.buffer, (number) * sizeof(float), stride)
  REFUSED((args.x = AT(0, 0), args.y = AT(0, 0)), CLATTN_ERROR_OVERLAP, "output y overlaps x");
  REFUSED((args.x = AT(0, 0), args.y = AT(39, 0)), CLATTN_ERROR_OVERLAP, "output y overlaps x");
  REFUSED((args.x = AT(29, 0), args.y = AT(0, 0)), CLATTN_ERROR_OVERLAP, "output y overlaps x");
  REFUSED((args.x = AT(128, 0), args.y = clattn_nn_matrix_f32(piece, 0, 0)), CLATTN_ERROR_OVERLAP,
          "output y overlaps x");
  /* The very place alone will do, not one row or one number on, nor another stride. */
  REFUSED((args.factor = AT(6, 0), args.y = AT(0, 0)), CLATTN_ERROR_OVERLAP, "output y overlaps factor");
  REFUSED((args.residual = AT(1, 0), args.y = AT(0, 0)), CLATTN_ERROR_OVERLAP, "output y overlaps residual");
  REFUSED((args.residual = AT(0, 7), args.y = AT(0, 0)), CLATTN_ERROR_OVERLAP, "output y overlaps residual");
  /* Columns of one pitch, one too far to the left. */
  REFUSED((args.x = AT(0, 20), args.y = AT(7, 20)), CLATTN_ERROR_OVERLAP, "output y overlaps x");
  REFUSED((args.x = AT(15, 20), args.y = AT(0, 20)), CLATTN_ERROR_OVERLAP, "output y overlaps x");
  /* y here would be written as f16. */
  REFUSED((args.residual = AT(0, 0), args.y = AT(0, 0), args.y.dtype = CLATTN_F16), CLATTN_ERROR_OVERLAP,
          "output y overlaps residual");
  /* What shares a buffer and no number is fine; so are inputs that share theirs, and y as factor and residual both. */
  clattn_nn_linear_args args = sound.args;
  args.x = AT(0, 20);
  args.y = args.factor = args.residual = AT(8, 20);
  linear(rig.nn[0], rig.queue, &args, 0, NULL, NULL);
  args.x = AT(12, 20);
  args.y = AT(20, 20); /* from the next row on: the pitch tells them apart */
  args.factor = AT(6, 20);
  args.residual = AT(12, 20);
  linear(rig.nn[0], rig.queue, &args, 0, NULL, NULL);
#undef AT
  assert_int_equal(clFinish(rig.queue), CL_SUCCESS);
  assert_int_equal(clReleaseMemObject(piece), CL_SUCCESS);
  matrix_free(&all);
  close_sound();
}

void other_contexts(void **state) {
  (void)state;
  cl_int code = CL_SUCCESS;
  open_sound();
  open_fill();
  const cl_context strange = clCreateContext(NULL, 1, &rig.device, NULL, NULL, &code);
  assert_int_equal(code, CL_SUCCESS);
  const cl_command_queue queue = clCreateCommandQueue(strange, rig.device, 0, &code);
  assert_int_equal(code, CL_SUCCESS);
  const cl_event event = clCreateUserEvent(strange, &code);
  assert_int_equal(code, CL_SUCCESS);
  const cl_mem buffer = clCreateBuffer(strange, CL_MEM_READ_WRITE, 4096, NULL, &code);
  assert_int_equal(code, CL_SUCCESS);
  refused_with(rig.nn[0], queue, &sound.args, 0, NULL, CLATTN_ERROR_WRONG_CONTEXT, "the queue is of another");
  refused_with(rig.nn[0], rig.queue, &sound.args, 1, &event, CLATTN_ERROR_WRONG_CONTEXT, "event 0 of wait_list");
  for (int n = 0; n < 4; n++) {
    char text[80];
    MATRIX_REFUSED(m->mem.buffer = buffer, CLATTN_ERROR_WRONG_CONTEXT, " is of another cl_context");
  }
  fill_refused(queue, &fill.device, 0, NULL, CLATTN_ERROR_WRONG_CONTEXT, "the queue is of another");
  fill_refused(rig.queue, &fill.device, 1, &event, CLATTN_ERROR_WRONG_CONTEXT, "event 0 of wait_list");
  FILL_REFUSED(device, args.matrix.mem.buffer = buffer, CLATTN_ERROR_WRONG_CONTEXT, "args.matrix is of another");
  FILL_REFUSED(device, args.bias.buffer = buffer, CLATTN_ERROR_WRONG_CONTEXT, "args.bias is of another");
  close_fill();
  close_sound();
  assert_int_equal(clSetUserEventStatus(event, CL_COMPLETE), CL_SUCCESS);
  assert_int_equal(clReleaseMemObject(buffer) | clReleaseEvent(event) | clReleaseCommandQueue(queue) |
                       clReleaseContext(strange),
                   CL_SUCCESS);
}

/* A context of the device and a part of it, the library on one, the queue on the other. */
void other_devices(void **state) {
  (void)state;
  const cl_device_partition_property one_unit[] = {CL_DEVICE_PARTITION_BY_COUNTS, 1,
                                                   CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0};
  const float w[48] = {0};
  cl_device_id both[2] = {rig.device, NULL};
  clattn_context *whole = NULL;
  clattn_nn *nn = NULL;
  cl_int code = CL_SUCCESS;
  if (clCreateSubDevices(rig.device, one_unit, 1, &both[1], NULL) != CL_SUCCESS)
    skip(); /* the device can't be split */
  const cl_context two = clCreateContext(NULL, 2, both, NULL, NULL, &code);
  assert_int_equal(code, CL_SUCCESS);
  const cl_command_queue queue = clCreateCommandQueue(two, both[1], 0, &code);
  assert_int_equal(code, CL_SUCCESS);
  assert_int_equal(clattn_context_create(two, rig.device, NULL, &whole, NULL), CLATTN_SUCCESS);
  assert_int_equal(clattn_nn_create(whole, NULL, &nn, NULL), CLATTN_SUCCESS);
  open_fill();
  open_sound();
  clattn_nn_weight *weight = NULL;
  assert_int_equal(clattn_nn_weight_create(nn, 8, 6, CLATTN_F32, 0, &weight, NULL), CLATTN_SUCCESS);
  clattn_nn_fill_args args = fill.from_host;
  args.weight = weight;
  args.host = w;
  args.host_bias = NULL;
  fill_refused(queue, &args, 0, NULL, CLATTN_ERROR_WRONG_DEVICE, "the queue is on another device");
  refused_with(nn, queue, &sound.args, 0, NULL, CLATTN_ERROR_WRONG_DEVICE, "the queue is on another device");
  close_sound();
  close_fill();
  clattn_nn_weight_release(weight);
  clattn_nn_release(nn);
  clattn_context_release(whole);
  assert_int_equal(clReleaseCommandQueue(queue) | clReleaseContext(two) | clReleaseDevice(both[1]), CL_SUCCESS);
}

void who_computes(void **state) {
  (void)state;
  static const char *const expected[KERNEL_SETS] = {"clattn lanes", "clattn tiles"};
  clattn_nn_linear_args args;
  const float w[1] = {1};
  clattn_nn_linear_args_init(&args);
  assert_string_equal(clattn_nn_linear_provider(NULL, &args), "none");
  assert_string_equal(clattn_nn_linear_provider(rig.nn[0], NULL), "none");
  assert_string_equal(clattn_nn_linear_provider(rig.nn[0], &args), "none");
  for (int set = 0; set < KERNEL_SETS; set++) {
    clattn_nn_weight *const weight = weight_of(rig.nn[set], 1, 1, CLATTN_F32, w, NULL);
    args.weight = weight;
    args.rows = 1;
    assert_string_equal(clattn_nn_linear_provider(rig.nn[set], &args), expected[set]);
    clattn_nn_weight_release(weight);
  }
}
