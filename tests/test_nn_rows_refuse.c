/* SPDX-License-Identifier: Apache-2.0 */
/* What the row-wise operations refuse, with the values in the message, and that nothing runs then. */
#include "test_nn_rows.h"

/* One buffer of NaN for everything that is not said otherwise: places in it, in f32 elements. */
enum { ELEMENTS = 4096, AT_X = 0, AT_Y = 512, AT_RESIDUAL = 1024, AT_SUM = 1536, AT_SMALL = 2048, SMALL = 64 };

static grid all;
static clattn_error error;

static void open_all(void) {
  grid_open_line(&all, ELEMENTS, 0, 1);
  (void)grid_mem(&all);
  clattn_error_init(&error);
}

static void close_all(void) {
  grid_check_unchanged(&all);
  grid_close(&all);
}

static clattn_mem at(int64_t element) {
  return clattn_buffer(all.buffer, (uint64_t)element * sizeof(float));
}

/* rows * columns numbers from an element on, and no more. */
static clattn_nn_matrix matrix_at(int64_t element) {
  return clattn_nn_matrix_f32(all.buffer, (uint64_t)element * sizeof(float), 0);
}

static void is_refused(const char *call, clattn_status status, clattn_status want, const char *part, cl_event event) {
  if (status != want || error.status != want || strstr(error.message, part) == NULL)
    fail_msg("%s: %s, not %s with '%s': %s", call, clattn_status_name(status), clattn_status_name(want), part,
             error.message);
  assert_null(event);
  memset(error.message, 0, sizeof error.message);
  error.status = CLATTN_SUCCESS;
}

/* Tries `function` with `sound` changed. */
#define REFUSED_BY(function, type, sound, change, want, part)                                                          \
  do {                                                                                                                 \
    type args = sound;                                                                                                 \
    cl_event event = NULL;                                                                                             \
    change;                                                                                                            \
    is_refused(#change, function(f.nn, f.queue, &args, 0, NULL, &event), want, part, event);                           \
  } while (0)

/* A pointer, a size, a reserved word: the same for all. */
#define REFUSED_STRUCTS(function, type, sound)                                                                         \
  do {                                                                                                                 \
    type args = sound;                                                                                                 \
    assert_int_equal(function(f.nn, f.queue, NULL, 0, NULL, NULL), CLATTN_ERROR_NULL_POINTER);                         \
    is_refused("nn NULL", function(NULL, f.queue, &args, 0, NULL, NULL), CLATTN_ERROR_NULL_POINTER, "nn must not",     \
               NULL);                                                                                                  \
    is_refused("queue NULL", function(f.nn, NULL, &args, 0, NULL, NULL), CLATTN_ERROR_NULL_POINTER, "queue must not",  \
               NULL);                                                                                                  \
    args.struct_size--;                                                                                                \
    assert_int_equal(function(f.nn, f.queue, &args, 0, NULL, NULL), CLATTN_ERROR_STRUCT_SIZE);                         \
    args = sound;                                                                                                      \
    args.reserved[2] = 9;                                                                                              \
    is_refused("reserved", function(f.nn, f.queue, &args, 0, NULL, NULL), CLATTN_ERROR_RESERVED, "reserved[2] is 9",   \
               NULL);                                                                                                  \
    args = sound;                                                                                                      \
    args.error = NULL; /* without an error too */                                                                      \
    args.reserved[2] = 9;                                                                                              \
    assert_int_equal(function(f.nn, f.queue, &args, 0, NULL, NULL), CLATTN_ERROR_RESERVED);                            \
  } while (0)

#define REFUSED(change, want, part) REFUSED_BY(clattn_nn_norm, clattn_nn_norm_args, sound, change, want, part)
void refused_norms(void **state) {
  (void)state;
  open_all();
  clattn_nn_norm_args sound;
  clattn_nn_norm_args_init(NULL);
  clattn_nn_norm_args_init(&sound);
  sound.error = &error;
  sound.epsilon = 1e-5f;
  sound.rows = 4;
  sound.columns = 10;
  sound.x = matrix_at(AT_X);
  sound.y = matrix_at(AT_Y);
  sound.residual = matrix_at(AT_RESIDUAL);
  sound.sum = matrix_at(AT_SUM);
  sound.gamma = at(AT_SMALL);
  sound.beta = at(AT_SMALL + SMALL);
  sound.mean = at(AT_SMALL + 2 * SMALL);
  sound.inv_std = at(AT_SMALL + 3 * SMALL);
  REFUSED_STRUCTS(clattn_nn_norm, clattn_nn_norm_args, sound);
  REFUSED(args.kind = 2, CLATTN_ERROR_ENUM, "args.kind is 2");
  REFUSED(args.kind = -1, CLATTN_ERROR_ENUM, "args.kind is -1");
  REFUSED(args.epsilon = -1, CLATTN_ERROR_VALUE, "args.epsilon is -1");
  REFUSED(args.epsilon = NAN, CLATTN_ERROR_VALUE, "args.epsilon is");
  REFUSED(args.epsilon = INFINITY, CLATTN_ERROR_VALUE, "args.epsilon is inf");
  REFUSED(args.kind = CLATTN_NN_RMS_NORM, CLATTN_ERROR_TENSOR_UNUSED, "mean is given");
  REFUSED(args.rows = -3, CLATTN_ERROR_SHAPE, "args.rows is -3: it must be >= 0");
  REFUSED(args.columns = 0, CLATTN_ERROR_SHAPE, "args.columns is 0: it must be >= 1");
  REFUSED(args.heads = -2, CLATTN_ERROR_SHAPE, "args.heads is -2: it must be >= 1");
  REFUSED((args.heads = INT64_MAX / 20), CLATTN_ERROR_OVERFLOW, "args.heads and args.columns");
  REFUSED((args.rows = INT64_MAX / 4, args.heads = 2), CLATTN_ERROR_OVERFLOW, "args.rows and args.heads");
  REFUSED(args.rows = INT64_MAX / 32, CLATTN_ERROR_OVERFLOW, "x: ");
  REFUSED(args.x.stride = 9, CLATTN_ERROR_STRIDE, "x.stride 9 is below its 10 columns");
  REFUSED((args.heads = 3, args.x.stride = 10), CLATTN_ERROR_STRIDE, "x.stride 10 is below its 30 columns");
  REFUSED(args.y.dtype = CLATTN_I8, CLATTN_ERROR_ENUM, "y.dtype is 3");
  REFUSED(args.sum.reserved = 1, CLATTN_ERROR_RESERVED, "sum.reserved is 1");
  REFUSED(memset(&args.x, 0, sizeof args.x), CLATTN_ERROR_TENSOR_MISSING, "x is needed");
  REFUSED(memset(&args.y, 0, sizeof args.y), CLATTN_ERROR_TENSOR_MISSING, "y is needed");
  REFUSED((memset(&args.residual.mem, 0, sizeof args.residual.mem), args.residual.stride = 10),
          CLATTN_ERROR_TENSOR_MISSING, "residual has a type or stride");
  REFUSED(args.residual.mem.bytes = 159, CLATTN_ERROR_BUFFER_TOO_SMALL, "residual: 4 rows of 10 columns");
  REFUSED(args.gamma.bytes = 39, CLATTN_ERROR_BUFFER_TOO_SMALL, "gamma needs 40 bytes, its memory has 39");
  REFUSED(args.beta.offset = 2, CLATTN_ERROR_ALIGNMENT, "beta: offset 2");
  REFUSED(args.mean.bytes = 15, CLATTN_ERROR_BUFFER_TOO_SMALL, "mean needs 16 bytes");
  REFUSED((args.heads = 2, args.inv_std.bytes = 31), CLATTN_ERROR_BUFFER_TOO_SMALL, "inv_std needs 32 bytes");
  REFUSED(args.x.mem.kind = CLATTN_MEM_SVM, CLATTN_ERROR_NOT_SUPPORTED, "x: SVM");
  /* y may be x or residual, nothing else may be anything */
  REFUSED(args.y = matrix_at(AT_X + 1), CLATTN_ERROR_OVERLAP, "output y overlaps x");
  REFUSED(args.y = args.sum, CLATTN_ERROR_OVERLAP, "overlaps");
  REFUSED(args.sum = args.x, CLATTN_ERROR_OVERLAP, "output sum overlaps x");
  REFUSED(args.mean = args.gamma, CLATTN_ERROR_OVERLAP, "output mean overlaps gamma");
  REFUSED((args.y = args.x, args.y.dtype = CLATTN_F16), CLATTN_ERROR_OVERLAP, "output y overlaps x");
  close_all();
}
#undef REFUSED

#define REFUSED(change, want, part) REFUSED_BY(clattn_nn_embed, clattn_nn_embed_args, sound, change, want, part)
void refused_embeds(void **state) {
  (void)state;
  open_all();
  clattn_nn_embed_args sound;
  clattn_nn_embed_args_init(NULL);
  clattn_nn_embed_args_init(&sound);
  sound.error = &error;
  sound.rows = 6;
  sound.columns = 10;
  sound.y = matrix_at(AT_Y);
  for (int t = 0; t < 2; t++) {
    sound.table[t].values = matrix_at(t == 0 ? AT_X : AT_RESIDUAL);
    sound.table[t].rows = 7;
  }
  sound.table[0].ids = at(AT_SMALL);
  sound.table[1].period = 6;
  sound.table[1].first = 1;
  REFUSED_STRUCTS(clattn_nn_embed, clattn_nn_embed_args, sound);
  REFUSED(args.scale = NAN, CLATTN_ERROR_VALUE, "args.scale is");
  REFUSED(args.rows = -1, CLATTN_ERROR_SHAPE, "args.rows is -1");
  REFUSED(args.columns = 0, CLATTN_ERROR_SHAPE, "args.columns is 0");
  REFUSED(args.columns = INT64_MAX, CLATTN_ERROR_OVERFLOW, "args.columns");
  REFUSED(args.table[0].rows = 0, CLATTN_ERROR_SHAPE, "table[0].rows is 0: it must be >= 1");
  REFUSED(args.table[1].rows = -4, CLATTN_ERROR_SHAPE, "table[1].rows is -4");
  REFUSED(args.table[0].period = 2, CLATTN_ERROR_TENSOR_UNUSED, "table[0] has ids, and period 2");
  REFUSED(args.table[0].first = 3, CLATTN_ERROR_TENSOR_UNUSED, "first 3 beside them");
  REFUSED(args.table[1].period = -1, CLATTN_ERROR_SHAPE, "table[1].period is -1");
  REFUSED(args.table[1].first = -1, CLATTN_ERROR_SHAPE, "table[1].first is -1");
  REFUSED(args.table[1].first = 2, CLATTN_ERROR_SHAPE, "table[1].first is 2: 6 rows from there on are not among its 7");
  REFUSED((args.table[1].period = 0, args.table[1].first = 7), CLATTN_ERROR_SHAPE, "table[1].first is 7: 1 rows");
  REFUSED(args.table[0].ids.bytes = 23, CLATTN_ERROR_BUFFER_TOO_SMALL, "table[0].ids needs 24 bytes");
  REFUSED(args.table[0].values.mem.bytes = 279, CLATTN_ERROR_BUFFER_TOO_SMALL, "table[0]: 7 rows of 10 columns");
  REFUSED(args.table[1].values.stride = 4, CLATTN_ERROR_STRIDE, "table[1].stride 4");
  REFUSED(args.table[2].rows = 3, CLATTN_ERROR_TENSOR_MISSING,
          "table[2] has rows, ids, period or first, but no values");
  REFUSED(args.table[2].ids = at(AT_SMALL), CLATTN_ERROR_TENSOR_MISSING, "table[2] has rows, ids");
  REFUSED(args.table[2].values.stride = 10, CLATTN_ERROR_TENSOR_MISSING, "table[2] has a type or stride");
  REFUSED(memset(&args.table[0], 0, sizeof args.table[0]), CLATTN_ERROR_SHAPE, "table[0].rows is 0");
  REFUSED(memset(&args.table[0].values, 0, sizeof args.table[0].values), CLATTN_ERROR_TENSOR_MISSING, "table[0] is");
  REFUSED(memset(&args.y, 0, sizeof args.y), CLATTN_ERROR_TENSOR_MISSING, "y is needed");
  REFUSED(args.y = args.table[1].values, CLATTN_ERROR_OVERLAP, "output y overlaps table[1]");
  REFUSED(args.table[0].ids = at(AT_Y + 59), CLATTN_ERROR_OVERLAP, "output y overlaps table[0].ids");
  close_all();
}
#undef REFUSED

#define REFUSED(change, want, part) REFUSED_BY(clattn_nn_pool, clattn_nn_pool_args, sound, change, want, part)
void refused_pools(void **state) {
  (void)state;
  open_all();
  clattn_nn_pool_args sound;
  clattn_nn_pool_args_init(NULL);
  clattn_nn_pool_args_init(&sound);
  sound.error = &error;
  sound.batch = 3;
  sound.length = 5;
  sound.columns = 10;
  sound.x = matrix_at(AT_X);
  sound.y = matrix_at(AT_Y);
  sound.lengths = at(AT_SMALL);
  REFUSED_STRUCTS(clattn_nn_pool, clattn_nn_pool_args, sound);
  REFUSED(args.pooling = 2, CLATTN_ERROR_ENUM, "args.pooling is 2");
  REFUSED(args.normalise = 2, CLATTN_ERROR_VALUE, "args.normalise is 2");
  REFUSED(args.batch = -1, CLATTN_ERROR_SHAPE, "args.batch is -1");
  REFUSED(args.length = -1, CLATTN_ERROR_SHAPE, "args.length is -1");
  REFUSED(args.columns = 0, CLATTN_ERROR_SHAPE, "args.columns is 0");
  REFUSED(args.length = INT64_MAX / 8, CLATTN_ERROR_OVERFLOW, "args.batch and args.length, 3 * ");
  REFUSED(args.x.mem.bytes = 599, CLATTN_ERROR_BUFFER_TOO_SMALL, "x: 15 rows of 10 columns");
  REFUSED(args.y.mem.bytes = 119, CLATTN_ERROR_BUFFER_TOO_SMALL, "y: 3 rows of 10 columns");
  REFUSED(args.lengths.bytes = 11, CLATTN_ERROR_BUFFER_TOO_SMALL, "lengths needs 12 bytes");
  REFUSED(memset(&args.x, 0, sizeof args.x), CLATTN_ERROR_TENSOR_MISSING, "x is needed");
  REFUSED(args.y = args.x, CLATTN_ERROR_OVERLAP, "output y overlaps x");
  REFUSED(args.lengths = at(AT_Y), CLATTN_ERROR_OVERLAP, "output y overlaps lengths");
  close_all();
}
#undef REFUSED

#define REFUSED(change, want, part) REFUSED_BY(clattn_nn_rope, clattn_nn_rope_args, sound, change, want, part)
void refused_ropes(void **state) {
  (void)state;
  open_all();
  clattn_nn_rope_args sound;
  clattn_nn_rope_args_init(NULL);
  clattn_nn_rope_args_init(&sound);
  sound.error = &error;
  sound.rope = CLATTN_ROPE_HALF;
  sound.batch = 2;
  sound.heads = 3;
  sound.length = 4;
  sound.dim = 8;
  sound.x = at(AT_X);
  sound.y = at(AT_Y);
  sound.cos = at(AT_RESIDUAL);
  sound.sin = at(AT_SUM);
  sound.positions = at(AT_SMALL);
  sound.table_positions = 5;
  REFUSED_STRUCTS(clattn_nn_rope, clattn_nn_rope_args, sound);
  REFUSED(args.rope = CLATTN_ROPE_NONE, CLATTN_ERROR_ENUM, "args.rope is 0");
  REFUSED(args.rope = 3, CLATTN_ERROR_ENUM, "args.rope is 3");
  REFUSED(args.reserved0 = 1, CLATTN_ERROR_RESERVED, "args.reserved0 is 1");
  REFUSED(args.batch = -1, CLATTN_ERROR_SHAPE, "args.batch is -1");
  REFUSED(args.heads = 0, CLATTN_ERROR_SHAPE, "args.heads is 0");
  REFUSED(args.length = -1, CLATTN_ERROR_SHAPE, "args.length is -1");
  REFUSED(args.dim = 0, CLATTN_ERROR_SHAPE, "args.dim is 0");
  REFUSED(args.dim = 7, CLATTN_ERROR_SHAPE, "args.rope_dim is 7: it must be even, 2 to args.dim 7");
  REFUSED(args.rope_dim = 10, CLATTN_ERROR_SHAPE, "args.rope_dim is 10");
  REFUSED(args.rope_dim = -2, CLATTN_ERROR_SHAPE, "args.rope_dim is -2");
  REFUSED(args.table_positions = 0, CLATTN_ERROR_SHAPE, "args.table_positions is 0: it must be >= 1");
  REFUSED((args.table_positions = 3, memset(&args.positions, 0, sizeof args.positions)), CLATTN_ERROR_SHAPE,
          "args.length 4 is above args.table_positions 3");
  REFUSED(args.table_batch_stride = -1, CLATTN_ERROR_STRIDE, "args.table_batch_stride is -1");
  REFUSED(args.length = INT64_MAX / 8, CLATTN_ERROR_OVERFLOW, "args.batch and args.length");
  REFUSED(args.x_view.dtype = CLATTN_I8, CLATTN_ERROR_ENUM, "x_view.dtype is 3");
  REFUSED(args.y_view.layout = CLATTN_LAYOUT_PACKED, CLATTN_ERROR_ENUM, "y_view.layout is 5");
  REFUSED(args.x_view.reserved[1] = 1, CLATTN_ERROR_RESERVED, "x_view.reserved");
  REFUSED(args.x_view.stride[2] = 8, CLATTN_ERROR_STRIDE, "x_view.stride[2] is 8, but its layout is not STRIDED");
  REFUSED(args.x_view = clattn_strided(CLATTN_F32, 96, -32, 8, 1), CLATTN_ERROR_STRIDE, "x_view.stride[1] is -32");
  REFUSED(args.y_view = clattn_strided(CLATTN_F32, 0, 32, 8, 1), CLATTN_ERROR_STRIDE, "y_view.stride[0] is 0");
  REFUSED(args.x_view = clattn_strided(CLATTN_F32, INT64_MAX, 32, 8, 1), CLATTN_ERROR_OVERFLOW, "x: ");
  REFUSED(args.x_view = clattn_strided(CLATTN_F32, 5000, 32, 8, 1), CLATTN_ERROR_BUFFER_TOO_SMALL, "x needs");
  REFUSED(args.y.bytes = 767, CLATTN_ERROR_BUFFER_TOO_SMALL, "y needs 768 bytes, its memory has 767");
  REFUSED(args.cos.bytes = 79, CLATTN_ERROR_BUFFER_TOO_SMALL, "cos needs 80 bytes");
  REFUSED((args.sin.bytes = 80, args.table_batch_stride = 1), CLATTN_ERROR_BUFFER_TOO_SMALL, "sin needs 84 bytes");
  REFUSED(args.positions.bytes = 31, CLATTN_ERROR_BUFFER_TOO_SMALL, "positions needs 32 bytes");
  REFUSED(memset(&args.cos, 0, sizeof args.cos), CLATTN_ERROR_TENSOR_MISSING, "cos is needed");
  REFUSED(memset(&args.y, 0, sizeof args.y), CLATTN_ERROR_TENSOR_MISSING, "y is needed");
  REFUSED(args.y = args.cos, CLATTN_ERROR_OVERLAP, "output y overlaps cos");
  REFUSED(args.y = at(AT_X + 8), CLATTN_ERROR_OVERLAP, "output y overlaps x");
  /* in place, but not element by element */
  REFUSED((args.y = args.x, args.y_view.layout = CLATTN_LAYOUT_BSHD), CLATTN_ERROR_OVERLAP, "output y overlaps x");
  close_all();
}
#undef REFUSED

void refused_queues(void **state) {
  (void)state;
  open_all();
  cl_int code = CL_SUCCESS;
  const cl_context strange = clCreateContext(NULL, 1, &f.device, NULL, NULL, &code);
  assert_int_equal(code, CL_SUCCESS);
  const cl_command_queue strange_queue = clCreateCommandQueue(strange, f.device, 0, &code);
  assert_int_equal(code, CL_SUCCESS);
  const cl_mem strange_buffer = clCreateBuffer(strange, CL_MEM_READ_WRITE, 4096, NULL, &code);
  assert_int_equal(code, CL_SUCCESS);
  clattn_nn_norm_args args;
  clattn_nn_norm_args_init(&args);
  args.error = &error;
  args.rows = 4;
  args.columns = 10;
  args.x = matrix_at(AT_X);
  args.y = matrix_at(AT_Y);
  is_refused("queue", clattn_nn_norm(f.nn, strange_queue, &args, 0, NULL, NULL), CLATTN_ERROR_WRONG_CONTEXT,
             "the queue is of another cl_context", NULL);
  is_refused("events", clattn_nn_norm(f.nn, f.queue, &args, 1, NULL, NULL), CL_INVALID_EVENT_WAIT_LIST,
             "num_events is 1", NULL);
  args.gamma = clattn_buffer(strange_buffer, 0);
  is_refused("gamma", clattn_nn_norm(f.nn, f.queue, &args, 0, NULL, NULL), CLATTN_ERROR_WRONG_CONTEXT, "gamma", NULL);
  assert_int_equal(clReleaseMemObject(strange_buffer) | clReleaseCommandQueue(strange_queue) |
                       clReleaseContext(strange),
                   CL_SUCCESS);
  close_all();
}
