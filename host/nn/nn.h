/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of libclattn_nn share: failing, checks of memory, built kernels, and streams of launches. */
#ifndef CLATTN_NN_INTERNAL_H
#define CLATTN_NN_INTERNAL_H

#include "clattn_nn.h"
#include "os.h"

struct nn_program;

struct clattn_nn {
  clattn_context *context; /* the caller's */
  cl_context cl;
  cl_device_id device;
  clattn_device_info info;
  clattn_nn_provider provider;
  int lanes;          /* vector width of the lane kernels; 0: tile kernels */
  clattni_mutex lock; /* of everything below */
  struct nn_program *programs;
  struct nn_measured *measured; /* clblast.c */
};

struct clattn_nn_weight {
  clattn_nn *nn;
  int64_t in, out;
  clattn_dtype dtype;
  int with_bias;
  int tile;      /* outputs that lie together, see kernels/nn/linear_lanes.cl; 0: rows of `in` numbers */
  cl_mem values; /* padded to whole tiles */
  cl_mem plain;  /* f32 in rows of `in` numbers, for CLBlast; NULL where values are so, or it is not wanted */
  cl_mem bias;   /* f32, likewise; NULL without */
};

/* ---- failing ---- */

/* As clattn's own: sets *error (NULL is tolerated) and returns status. */
clattn_status nn_fail(clattn_error *error, clattn_status status, const char *format, ...);
void nn_clear(clattn_error *error);
/* NULL_POINTER or STRUCT_SIZE of an arguments struct: `given` is its first member. */
clattn_status nn_check_struct(const char *what, size_t given, size_t expected, const uint32_t *reserved, size_t words,
                              clattn_error *error);
/* How every call that takes an arguments struct begins: its pointer, size and reserved words; sets args->error. */
#define NN_CHECK_ARGS(args)                                                                                            \
  ((args) == NULL ? CLATTN_ERROR_NULL_POINTER                                                                          \
   : (args)->struct_size != sizeof(*(args))                                                                            \
       ? CLATTN_ERROR_STRUCT_SIZE                                                                                      \
       : (nn_clear((args)->error),                                                                                     \
          nn_check_struct("args", (args)->struct_size, sizeof(*(args)), (args)->reserved,                              \
                          sizeof((args)->reserved) / sizeof((args)->reserved[0]), (args)->error)))

/* ---- memory ---- */

size_t nn_dtype_bytes(clattn_dtype dtype);     /* 0: not one of f32, f16, bf16 */
const char *nn_dtype_word(clattn_dtype dtype); /* of kernels/dtype.cl.h */
int nn_present(const clattn_mem *mem);

/* What an operation touches, for the check of overlaps: bytes from begin to end of the buffer root, of which each
 * `pitch` bytes only the first `run` are touched (pitch 0: all). */
typedef struct nn_range {
  const char *name;
  cl_mem root;
  uint64_t begin, end, pitch, run;
  int written;
} nn_range;
#define NN_MAX_RANGES 24
typedef struct nn_ranges {
  nn_range at[NN_MAX_RANGES];
  int count;
} nn_ranges;

enum { NN_OPTIONAL = 1, NN_WRITTEN = 2 };

/* Checks that `bytes` bytes lie in mem and notes the range.  flags: NN_OPTIONAL (absent is fine), NN_WRITTEN. */
clattn_status nn_check_mem(const clattn_nn *nn, const char *name, const clattn_mem *mem, uint64_t bytes, size_t element,
                           int flags, nn_ranges *ranges, clattn_error *error);
/* The same of a matrix; *stride gets its stride in elements. */
clattn_status nn_check_matrix(const clattn_nn *nn, const char *name, const clattn_nn_matrix *matrix, int64_t rows,
                              int64_t columns, int flags, int64_t *stride, nn_ranges *ranges, clattn_error *error);
/* OVERLAP if an output shares a byte with another range, unless both are the very same range and `same` names the other
 * one ("residual factor"), for output y alone. */
clattn_status nn_check_overlaps(const nn_ranges *ranges, const char *same, clattn_error *error);

/* First element of a matrix in its buffer, and the buffer. */
static inline int64_t nn_first(const clattn_nn_matrix *matrix) {
  const size_t bytes = nn_dtype_bytes(matrix->dtype);
  return bytes > 0 ? (int64_t)(matrix->mem.offset / bytes) : 0;
}

/* ---- streams: launches one after the other on a queue of either kind ---- */

typedef struct nn_stream {
  clattn_nn *nn;
  cl_command_queue queue;
  int in_order;
  cl_uint num_wait; /* what the next launch waits for */
  const cl_event *wait;
  cl_event last; /* of the last launch on an out-of-order queue, owned */
} nn_stream;

/* Checks the queue.  nothing is enqueued yet. */
clattn_status nn_stream_open(nn_stream *stream, clattn_nn *nn, cl_command_queue queue, cl_uint num_events,
                             const cl_event *wait_list, clattn_error *error);
/* How a public call begins: `checked` is what NN_CHECK_ARGS said, *event (may be NULL) is cleared. */
clattn_status nn_call_open(nn_stream *stream, clattn_status checked, clattn_nn *nn, cl_command_queue queue,
                           cl_uint num_events, const cl_event *wait_list, cl_event *event, clattn_error *error);
/* Ends a stream: on success *event (may be NULL) gets an event of everything in it. */
clattn_status nn_stream_close(nn_stream *stream, clattn_status status, cl_event *event, clattn_error *error);
/* For calls that take a wait list and give an event, such as clattn_enqueue: what to give them, and what they gave. */
cl_event *nn_stream_event(nn_stream *stream, cl_event *storage);
void nn_stream_after(nn_stream *stream, cl_event event);

/* ---- kernels ---- */

typedef struct nn_arg {
  size_t size;
  const void *value;
} nn_arg;
#define NN_ARG(x)                                                                                                      \
  { sizeof(x), &(x) }

typedef struct nn_launch {
  const char *file;    /* of kernels/, without .cl: "nn/rows" */
  const char *options; /* for the compiler; its text is the program's key */
  const char *kernel;
  const nn_arg *args;
  cl_uint num_args;
  cl_uint dims;
  size_t global[3], local[3];
} nn_launch;

/* Builds what is not built yet. */
clattn_status nn_prepare(clattn_nn *nn, const char *file, const char *options, clattn_error *error);
clattn_status nn_enqueue(nn_stream *stream, const nn_launch *launch, clattn_error *error);
void nn_programs_release(clattn_nn *nn);

/* ---- operations on a stream, for layers made of several: arguments are checked as in the public call ---- */

clattn_status nn_run_linear(nn_stream *stream, const clattn_nn_linear_args *args, clattn_error *error);
clattn_status nn_run_norm(nn_stream *stream, const clattn_nn_norm_args *args, clattn_error *error);

/* ---- CLBlast ---- */

int nn_has_clblast(void);
void nn_measured_release(clattn_nn *nn);

/* ---- scratch ---- */

/* Places of a workspace, each on a 64-byte boundary.  Without memory (mem all zero) it only counts. */
typedef struct nn_scratch {
  clattn_mem mem;
  uint64_t used;
} nn_scratch;
clattn_mem nn_scratch_take(nn_scratch *scratch, uint64_t bytes);
/* The caller's workspace, checked against `bytes`, or one made here (*made, to be released after the stream's last
 * launch was enqueued). */
clattn_status nn_scratch_open(const clattn_nn *nn, const clattn_mem *given, uint64_t bytes, nn_scratch *scratch,
                              cl_mem *made, clattn_error *error);

#endif
