/* SPDX-License-Identifier: Apache-2.0
 *
 * clattn_nn: what stands round attention in a transformer, on top of clattn.h: projections, multi-head attention,
 * position embeddings, norms, feed-forward, encoder and decoder blocks, embedding lookup and pooling.  The manual of
 * libclattn_nn; clattn.h comes first.
 *
 * Tensors are matrices of rows: a sequence batch (batch, length, columns) is batch * length rows.  Heads are split and
 * joined by strides: the projections write (row, head, element), attention reads and writes it as it lies, nothing is
 * copied.
 *
 * Everything here follows clattn.h: structs begin with struct_size and are filled by their _init functions, zero means
 * the default, calls are asynchronous and check everything before anything runs, the last three arguments are those of
 * clEnqueueNDRangeKernel, on failure of a check nothing was enqueued.  Queues may be in order or out of order.  Outputs
 * must not overlap inputs unless a comment allows it; outputs at the very place of an input (`y` = `residual`) are
 * allowed where it says so.  Numbers are f32, f16 or bf16 in memory, every sum is fp32.
 *
 * Threads: a clattn_nn and a weight may be used by any number of threads at once; filling a weight is not using it.
 *
 * Links: libclattn_nn and libclattn.
 */
#ifndef CLATTN_NN_H
#define CLATTN_NN_H

#include "clattn.h"

#if defined(CLATTN_NN_BUILDING) && defined(_WIN32)
#define CLATTN_NN_API __declspec(dllexport)
#else
#define CLATTN_NN_API CLATTN_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------------------------------
 * 1. Set-up
 * ------------------------------------------------------------------------------------------------------------------ */

/* Who computes linear layers.  CLBlast (its SGEMM, and one kernel more for all but the product) takes layers whose
 * tensors are all f32 and have less than 2^30 elements; clattn's kernels compute the others: see
 * clattn_nn_linear_provider.  Beside clattn's LANES kernels CLBlast needs each f32 weight a second time, as it is given.
 * Its first call on a device compiles for seconds; a factor or residual costs it a buffer of y's size in each call.
 *
 * MEASURE: a new shape (in, out, rows up to the next power of two, all above 4096 as one) is first run with both, on a
 * queue and matrices of its own; that call blocks until then, after that the faster one is taken. */
typedef int32_t clattn_nn_provider;
enum {
  CLATTN_NN_PROVIDER_DEFAULT = 0, /* clattn's kernels */
  CLATTN_NN_PROVIDER_CLATTN = 1,
  CLATTN_NN_PROVIDER_CLBLAST = 2, /* this and the next: NOT_SUPPORTED where the library was built without CLBlast */
  CLATTN_NN_PROVIDER_MEASURE = 3
};

/* Kernels of clattn's linear layers. */
typedef int32_t clattn_nn_kernels;
enum {
  CLATTN_NN_KERNELS_DEFAULT = 0, /* LANES on CPU devices, TILES on others */
  CLATTN_NN_KERNELS_LANES = 1,   /* outputs in vector lanes, no local memory: for CPUs */
  CLATTN_NN_KERNELS_TILES = 2    /* tiles in local memory: for GPUs */
};

typedef struct clattn_nn clattn_nn;

typedef struct clattn_nn_options {
  size_t struct_size;
  clattn_nn_provider provider;
  clattn_nn_kernels kernels;
  uint32_t reserved[8];
} clattn_nn_options;
CLATTN_NN_API void clattn_nn_options_init(clattn_nn_options *options);

/* The kernels of this library for a context, which must outlive it.  Kernels are built at first use, which can take
 * seconds.  options and error may be NULL.  Errors: NULL_POINTER, STRUCT_SIZE, RESERVED, ENUM, NOT_SUPPORTED,
 * VARIANT_UNFIT (TILES on a device with too small work-groups or local memory), OUT_OF_MEMORY, OpenCL's. */
CLATTN_NN_API clattn_status clattn_nn_create(clattn_context *context, const clattn_nn_options *options, clattn_nn **out,
                                             clattn_error *error);
CLATTN_NN_API void clattn_nn_release(clattn_nn *nn); /* NULL is accepted */

/* rows x columns numbers: element (r, c) is the number r * stride + c behind mem's offset.  All zero = absent. */
typedef struct clattn_nn_matrix {
  clattn_mem mem;
  clattn_dtype dtype; /* F32, F16, BF16 */
  uint32_t reserved;
  int64_t stride; /* elements from row to row; 0 = the columns */
} clattn_nn_matrix;
/* Shorthand: f32, from `offset` bytes on. */
CLATTN_NN_API clattn_nn_matrix clattn_nn_matrix_f32(cl_mem buffer, uint64_t offset, int64_t stride);

/* ------------------------------------------------------------------------------------------------------------------
 * 2. Linear layers
 * ------------------------------------------------------------------------------------------------------------------ */

typedef int32_t clattn_nn_activation;
enum {
  CLATTN_NN_NONE = 0,
  CLATTN_NN_RELU = 1,
  CLATTN_NN_GELU = 2,      /* x/2 (1 + erf(x / sqrt 2)) */
  CLATTN_NN_GELU_TANH = 3, /* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
  CLATTN_NN_SILU = 4       /* x / (1 + exp(-x)) */
};

/* The matrix and bias of a linear layer, on the device in the order that the kernels like (so it is laid out once, not
 * at every call).  Parts of the outputs may be filled apart: W^Q, W^K and W^V into one weight give q, k and v of a row
 * side by side. */
typedef struct clattn_nn_weight clattn_nn_weight;

/* in, out: 1 to 2^24.  dtype: of the matrix; the bias is f32.  What is never filled is undefined.
 * Errors: NULL_POINTER, SHAPE, ENUM, OUT_OF_MEMORY, OpenCL's. */
CLATTN_NN_API clattn_status clattn_nn_weight_create(clattn_nn *nn, int64_t in, int64_t out, clattn_dtype dtype,
                                                    int with_bias, clattn_nn_weight **weight, clattn_error *error);
/* NULL is accepted.  Work already enqueued is not affected. */
CLATTN_NN_API void clattn_nn_weight_release(clattn_nn_weight *weight);

/* Fills outputs first .. first + count - 1.  The matrix W is (out, in), as PyTorch's Linear and safetensors have it:
 * row n holds what output n multiplies its inputs with; TRANSPOSED: (in, out), as in x W of textbooks.  Its type is the
 * weight's own or f32 (rounded to nearest even).  Host values are copied before the call returns. */
typedef struct clattn_nn_fill_args {
  size_t struct_size;
  clattn_error *error; /* optional */
  clattn_nn_weight *weight;
  int64_t first, count; /* count 0 = all from first on */
  uint32_t transposed;
  clattn_dtype dtype;      /* of host or matrix.dtype; F32 or the weight's */
  const void *host;        /* contiguous; or */
  clattn_nn_matrix matrix; /* on the device; `dtype` above counts, its own stays 0 */
  const float *host_bias;  /* count numbers; with a bias one of the two is needed, without none is allowed */
  clattn_mem bias;
  uint32_t reserved[8];
} clattn_nn_fill_args;
CLATTN_NN_API void clattn_nn_fill_args_init(clattn_nn_fill_args *args);
/* Errors: NULL_POINTER, STRUCT_SIZE, RESERVED, ENUM, SHAPE, STRIDE, OVERFLOW, TENSOR_MISSING, TENSOR_UNUSED,
 * BUFFER_TOO_SMALL, ALIGNMENT, WRONG_CONTEXT, WRONG_DEVICE, NOT_SUPPORTED (SVM, USM), OUT_OF_MEMORY, OpenCL's. */
CLATTN_NN_API clattn_status clattn_nn_weight_fill(cl_command_queue queue, const clattn_nn_fill_args *args,
                                                  cl_uint num_events, const cl_event *wait_list, cl_event *event);

/* y = activation(x W^T + b) * factor + residual.  x (rows, in); y, factor and residual (rows, out), the last two
 * optional; y may be residual or factor itself, with the same stride and type. */
typedef struct clattn_nn_linear_args {
  size_t struct_size;
  clattn_error *error; /* optional */
  const clattn_nn_weight *weight;
  int64_t rows; /* >= 0, below 2^31; with 0 x and y may be absent */
  clattn_nn_matrix x, y, factor, residual;
  clattn_nn_activation activation;
  uint32_t reserved[7];
} clattn_nn_linear_args;
CLATTN_NN_API void clattn_nn_linear_args_init(clattn_nn_linear_args *args);
/* Errors: those of clattn_nn_weight_fill, OVERLAP, CL_BUILD_PROGRAM_FAILURE. */
CLATTN_NN_API clattn_status clattn_nn_linear(clattn_nn *nn, cl_command_queue queue, const clattn_nn_linear_args *args,
                                             cl_uint num_events, const cl_event *wait_list, cl_event *event);
/* Who would compute it, and by which kernels: "clattn lanes", "clattn tiles", "clblast"; what is to be measured yet is
 * clattn's.  "none" without nn, args or a weight.  Static storage. */
CLATTN_NN_API const char *clattn_nn_linear_provider(clattn_nn *nn, const clattn_nn_linear_args *args);

/* ------------------------------------------------------------------------------------------------------------------
 * 3. Norms
 * ------------------------------------------------------------------------------------------------------------------ */

typedef int32_t clattn_nn_norm_kind;
enum {
  CLATTN_NN_LAYER_NORM = 0, /* (t - mean) / sqrt(variance + epsilon) * gamma + beta, variance over n (J. Ba, 2016) */
  CLATTN_NN_RMS_NORM = 1    /* t / sqrt(mean of t^2 + epsilon) * gamma + beta (B. Zhang, R. Sennrich, 2019) */
};

/* y = norm(t), t = x + residual.  A LayerNorm over any trailing axes: rows is the product of the axes before, columns of
 * those from the axis on.  With heads > 1 a row of x, y, residual and sum is heads * columns numbers, and each head's
 * columns are a row of their own with the same gamma and beta: QK-norm on projections as they lie.
 * y may be x or residual itself.  Means and variances are summed in more than fp32: long rows, and rows whose mean is
 * large beside their deviations, are right to rounding. */
typedef struct clattn_nn_norm_args {
  size_t struct_size;
  clattn_error *error; /* optional */
  clattn_nn_norm_kind kind;
  float epsilon; /* >= 0; as it is: 0 means 0 */
  int64_t rows, columns;
  int64_t heads; /* 0 = 1 */
  clattn_nn_matrix x, y;
  clattn_nn_matrix residual; /* optional */
  clattn_nn_matrix sum;      /* optional output: t */
  clattn_mem gamma, beta;    /* f32, columns each, optional */
  clattn_mem mean, inv_std;  /* f32, rows * heads each, optional outputs; RMS: mean must be absent */
  uint32_t reserved[8];
} clattn_nn_norm_args;
CLATTN_NN_API void clattn_nn_norm_args_init(clattn_nn_norm_args *args);
CLATTN_NN_API clattn_status clattn_nn_norm(clattn_nn *nn, cl_command_queue queue, const clattn_nn_norm_args *args,
                                           cl_uint num_events, const cl_event *wait_list, cl_event *event);

/* ------------------------------------------------------------------------------------------------------------------
 * 4. Positions
 * ------------------------------------------------------------------------------------------------------------------ */

/* The sinusoids of A. Vaswani et al. (2017): angle(p, i) = p / base^(2i / columns); table (positions, columns) on the
 * host, f32.  INTERLEAVED (the paper): sin at 2i, cos at 2i + 1; HALVES: sines first, then cosines.  base 0 = 10000.
 * Odd columns end with a sine.  Errors: NULL_POINTER, SHAPE, VALUE, ENUM. */
enum { CLATTN_NN_SINUSOID_INTERLEAVED = 0, CLATTN_NN_SINUSOID_HALVES = 1 };
CLATTN_NN_API clattn_status clattn_nn_sinusoid(int64_t positions, int64_t columns, double base, int32_t order,
                                               float *table);

/* Rotary embedding (J. Su et al., 2021): angle(p, i) = p * f_i, f_i = base^(-2i / dim).  LINEAR divides positions by
 * factor; NTK raises the base by factor^(dim / (dim - 2)); YARN (B. Peng et al., 2023) keeps fast frequencies, divides
 * slow ones by factor, ramps between the dimensions that turn beta_fast and beta_slow times over original_positions, and
 * multiplies both tables by the attention factor. */
enum { CLATTN_NN_ROPE_PLAIN = 0, CLATTN_NN_ROPE_LINEAR = 1, CLATTN_NN_ROPE_NTK = 2, CLATTN_NN_ROPE_YARN = 3 };
typedef struct clattn_nn_rope_config {
  size_t struct_size;
  int32_t scaling;
  uint32_t reserved0;
  int64_t positions, dim;      /* dim even: the rotated dimensions */
  int64_t first;               /* position of the first row, default 0 */
  double base;                 /* 0 = 10000 */
  double factor;               /* >= 1; 0 = 1 */
  int64_t original_positions;  /* YARN: of the training; > 0 */
  double beta_fast, beta_slow; /* YARN: 0 = 32 and 1 */
  double attention_factor;     /* YARN: 0 = 0.1 ln(factor) + 1 */
  uint32_t reserved[8];
} clattn_nn_rope_config;
CLATTN_NN_API void clattn_nn_rope_config_init(clattn_nn_rope_config *config);
/* cos and sin: (positions, dim / 2) f32 on the host: what args.rope_cos and rope_sin of clattn.h and clattn_nn_rope read.
 * Errors: NULL_POINTER, STRUCT_SIZE, RESERVED, ENUM, SHAPE, VALUE. */
CLATTN_NN_API clattn_status clattn_nn_rope_tables(const clattn_nn_rope_config *config, float *cos, float *sin);

/* y = x rotated: the step of its own, for caches of rotated keys and for other people's models; attention itself can
 * rotate while it loads (clattn_problem.rope).  x, y (batch, heads, length, dim); the first rope_dim dimensions are
 * rotated, the others copied.  y may be x itself.  Tables (batch or shared, position, rope_dim / 2), f32; the position
 * of (b, i) is positions[b * length + i], clamped to the tables, or without positions i itself: then table_positions
 * is at least the length. */
typedef struct clattn_nn_rope_args {
  size_t struct_size;
  clattn_error *error; /* optional */
  clattn_rope rope;    /* CLATTN_ROPE_HALF or _INTERLEAVED */
  uint32_t reserved0;
  int64_t batch, heads, length, dim;
  int64_t rope_dim;             /* 0 = dim; even */
  clattn_tensor x_view, y_view; /* layout BHSD, BSHD or STRIDED; dtype F32, F16 or BF16 */
  clattn_mem x, y;
  clattn_mem cos, sin;
  int64_t table_positions;    /* rows of the tables */
  int64_t table_batch_stride; /* elements from batch entry to batch entry, 0 = shared */
  clattn_mem positions;       /* int32 (batch, length), optional */
  uint32_t reserved[8];
} clattn_nn_rope_args;
CLATTN_NN_API void clattn_nn_rope_args_init(clattn_nn_rope_args *args);
CLATTN_NN_API clattn_status clattn_nn_rope(clattn_nn *nn, cl_command_queue queue, const clattn_nn_rope_args *args,
                                           cl_uint num_events, const cl_event *wait_list, cl_event *event);

/* ------------------------------------------------------------------------------------------------------------------
 * 5. Embedding lookup and pooling
 * ------------------------------------------------------------------------------------------------------------------ */

/* y[r] = scale * table[0][id] + table[1][id] + table[2][id]; up to three tables (words, positions, segments), the first
 * one always. */
typedef struct clattn_nn_table {
  clattn_nn_matrix values; /* (rows, columns) */
  int64_t rows;
  clattn_mem ids; /* int32, one for each row of y, clamped to the table; absent: see period */
  /* Without ids: the id is first + row mod period; period 0: it is first for all.  Every id must be in the table; with
   * ids both stay 0. */
  int64_t period, first;
} clattn_nn_table;
typedef struct clattn_nn_embed_args {
  size_t struct_size;
  clattn_error *error; /* optional */
  int64_t rows, columns;
  clattn_nn_table table[3];
  clattn_nn_matrix y;
  float scale; /* of the first table; 0 = 1 */
  uint32_t reserved[7];
} clattn_nn_embed_args;
CLATTN_NN_API void clattn_nn_embed_args_init(clattn_nn_embed_args *args);
CLATTN_NN_API clattn_status clattn_nn_embed(clattn_nn *nn, cl_command_queue queue, const clattn_nn_embed_args *args,
                                            cl_uint num_events, const cl_event *wait_list, cl_event *event);

typedef int32_t clattn_nn_pooling;
enum { CLATTN_NN_POOL_MEAN = 0, CLATTN_NN_POOL_FIRST = 1 /* of the [CLS] token */ };
/* y (batch, columns) = mean of the first lengths[b] rows of x (batch, length, columns), or its first row; with
 * `normalise` divided by its Euclidean norm (at least 1e-12).  Of no rows (a length of 0) both are 0. */
typedef struct clattn_nn_pool_args {
  size_t struct_size;
  clattn_error *error; /* optional */
  clattn_nn_pooling pooling;
  uint32_t normalise;
  int64_t batch, length, columns;
  clattn_nn_matrix x, y;
  clattn_mem lengths; /* int32 (batch), clamped to 0 to length; absent: all are full */
  uint32_t reserved[8];
} clattn_nn_pool_args;
CLATTN_NN_API void clattn_nn_pool_args_init(clattn_nn_pool_args *args);
CLATTN_NN_API clattn_status clattn_nn_pool(clattn_nn *nn, cl_command_queue queue, const clattn_nn_pool_args *args,
                                           cl_uint num_events, const cl_event *wait_list, cl_event *event);

/* ------------------------------------------------------------------------------------------------------------------
 * 6. Attention layers
 * ------------------------------------------------------------------------------------------------------------------ */

/* A multi-head attention layer.
 *
 * problem: sizes (batch, q_len, k_len, q_heads, kv_heads, qk_dim, v_dim), rules, similarity, types and results, as in
 * clattn.h; of q, k, v and o only the types are set by the caller: their layouts must stay 0, the layer sets them.
 * Projections are written in the types of q, k and v, attention's result in that of o (f32, f16 or bf16).  q_len and
 * k_len are this call's sizes.  args: everything but q, k, v, o, sizes, workspace and error (errors are the layer's):
 * masks, bias, lengths, slopes, rotary tables, lse, scores, ...
 *
 * Weights: qkv (in -> (q_heads + kv_heads) * qk_dim + kv_heads * v_dim: q, k, v side by side, for self-attention), or
 * q with kv (k and v side by side), or q, k and v; o (q_heads * v_dim -> out).  What one weight makes has one type.
 *
 * y is written by the last launch of a layer or block. */
typedef struct clattn_nn_heads {
  const clattn_nn_weight *qkv, *q, *kv, *k, *v, *o;
  clattn_mem q_gamma, k_gamma; /* QK-norm: RMSNorm over qk_dim of every head of q, of k; f32 (qk_dim), each optional */
  float qk_epsilon;
  uint32_t reserved;
} clattn_nn_heads;

/* y = o(attention(q(x), k(context), v(context))) + residual.  x (batch * q_len, in), context (batch * k_len, in of k and
 * v), y and residual (batch * q_len, out). */
typedef struct clattn_nn_attention_args {
  size_t struct_size;
  clattn_error *error; /* optional */
  const clattn_problem *problem;
  const clattn_args *args; /* NULL: nothing beside */
  clattn_nn_heads heads;
  clattn_nn_matrix x, context, y; /* context absent: self-attention, k_len = q_len; y may be x */
  clattn_nn_matrix residual;      /* optional; y may be it */
  /* Scratch of at least clattn_nn_attention_workspace bytes, offset a multiple of 64.  Absent: made and released
   * inside. */
  clattn_mem workspace;
  uint32_t reserved[8];
} clattn_nn_attention_args;
CLATTN_NN_API void clattn_nn_attention_args_init(clattn_nn_attention_args *args);
/* Of args only what makes shapes and types counts: x, context, y, residual and what args and heads have in buffers may
 * be absent.  Makes a plan, so it can build kernels.  The other _workspace functions likewise; they need x.dtype. */
CLATTN_NN_API clattn_status clattn_nn_attention_workspace(clattn_nn *nn, const clattn_nn_attention_args *args,
                                                          uint64_t *bytes);
/* Errors: those of clattn_plan_create, clattn_enqueue and clattn_nn_linear. */
CLATTN_NN_API clattn_status clattn_nn_attention(clattn_nn *nn, cl_command_queue queue,
                                                const clattn_nn_attention_args *args, cl_uint num_events,
                                                const cl_event *wait_list, cl_event *event);

/* Encoder-decoder attention as it was first taught (D. Bahdanau et al., 2014; M. Luong et al., 2015): one context
 * vector for each step of the target, the weighted sum of the source's states.
 * target (batch * target_len, target_dim), source (batch * source_len, source_dim); contexts (batch * target_len,
 * source_dim); weights (batch, target_len, source_len), f32, contiguous, optional.  With q and k (projections to the
 * same number of outputs, written in the types of target and source) similarity is between q(target) and k(source),
 * without them target_dim = source_dim and states are compared as they are.  Values are the source states themselves.
 * The workspace query wants the matrices' types and strides, and weights where the call has them. */
typedef struct clattn_nn_encdec_args {
  size_t struct_size;
  clattn_error *error; /* optional */
  clattn_similarity similarity;
  clattn_scale_mode scale_mode; /* default: 1 for every similarity, as first taught */
  float scale;
  uint32_t reserved0;
  int64_t batch, target_len, source_len, target_dim, source_dim; /* batch 0 = 1; source_dim 0 = target_dim */
  const clattn_nn_weight *q, *k;                                 /* both or none */
  clattn_mem add_w; /* CLATTN_ADDITIVE: f32, one for each compared dimension */
  clattn_nn_matrix target, source, contexts;
  clattn_mem weights;
  clattn_ints source_lengths; /* one for each batch entry, optional: k_lengths of clattn.h */
  clattn_mem workspace;       /* as above */
  uint32_t reserved[8];
} clattn_nn_encdec_args;
CLATTN_NN_API void clattn_nn_encdec_args_init(clattn_nn_encdec_args *args);
CLATTN_NN_API clattn_status clattn_nn_encdec_workspace(clattn_nn *nn, const clattn_nn_encdec_args *args,
                                                       uint64_t *bytes);
CLATTN_NN_API clattn_status clattn_nn_encdec_attention(clattn_nn *nn, cl_command_queue queue,
                                                       const clattn_nn_encdec_args *args, cl_uint num_events,
                                                       const cl_event *wait_list, cl_event *event);

/* ------------------------------------------------------------------------------------------------------------------
 * 7. Blocks
 * ------------------------------------------------------------------------------------------------------------------ */

/* y = down(activation(up(x)) * gate(x)) + residual; gate optional.  The hidden numbers, and gate(x), have x's type. */
typedef struct clattn_nn_ffn_args {
  size_t struct_size;
  clattn_error *error; /* optional */
  int64_t rows;
  const clattn_nn_weight *up, *gate, *down;
  clattn_nn_activation activation;
  uint32_t reserved0;
  clattn_nn_matrix x, y, residual; /* residual optional; y may be it, or x */
  clattn_mem workspace;            /* as above */
  uint32_t reserved[8];
} clattn_nn_ffn_args;
CLATTN_NN_API void clattn_nn_ffn_args_init(clattn_nn_ffn_args *args);
CLATTN_NN_API clattn_status clattn_nn_ffn_workspace(clattn_nn *nn, const clattn_nn_ffn_args *args, uint64_t *bytes);
CLATTN_NN_API clattn_status clattn_nn_ffn(clattn_nn *nn, cl_command_queue queue, const clattn_nn_ffn_args *args,
                                          cl_uint num_events, const cl_event *wait_list, cl_event *event);

typedef int32_t clattn_nn_norm_order;
enum {
  CLATTN_NN_POST_NORM = 0, /* x = norm(x + f(x)), as in BERT */
  CLATTN_NN_PRE_NORM = 1   /* x = x + f(norm(x)), as in GPT-2 and Llama */
};

/* A transformer block: self-attention, in a decoder block cross-attention, feed-forward, each with its residual and
 * norm.  Columns of x, y and every weight's outer side agree.  What stands between the steps has x's type. */
typedef struct clattn_nn_block_args {
  size_t struct_size;
  clattn_error *error; /* optional */
  clattn_nn_norm_order order;
  clattn_nn_norm_kind norm;
  float epsilon;
  clattn_nn_activation activation;
  const clattn_problem *self_problem; /* as in clattn_nn_attention_args; causal for decoders that generate */
  const clattn_args *self_args;
  clattn_nn_heads self_heads;
  const clattn_problem *cross_problem; /* decoder blocks alone */
  const clattn_args *cross_args;
  clattn_nn_heads cross_heads;
  clattn_nn_matrix context; /* (batch * k_len of cross_problem, in) */
  const clattn_nn_weight *up, *gate, *down;
  /* gamma and beta of the norms at self-attention, cross-attention and feed-forward, in this order; f32, optional */
  clattn_mem gamma[3], beta[3];
  clattn_nn_matrix x, y; /* y may be x */
  clattn_mem workspace;  /* as above */
  uint32_t reserved[8];
} clattn_nn_block_args;
CLATTN_NN_API void clattn_nn_block_args_init(clattn_nn_block_args *args);
CLATTN_NN_API clattn_status clattn_nn_block_workspace(clattn_nn *nn, const clattn_nn_block_args *args, uint64_t *bytes);
/* cross_problem must be NULL for an encoder block and is needed for a decoder block. */
CLATTN_NN_API clattn_status clattn_nn_encoder_block(clattn_nn *nn, cl_command_queue queue,
                                                    const clattn_nn_block_args *args, cl_uint num_events,
                                                    const cl_event *wait_list, cl_event *event);
CLATTN_NN_API clattn_status clattn_nn_decoder_block(clattn_nn *nn, cl_command_queue queue,
                                                    const clattn_nn_block_args *args, cl_uint num_events,
                                                    const cl_event *wait_list, cl_event *event);

#ifdef __cplusplus
}
#endif
#endif
