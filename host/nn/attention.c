/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-head attention: projections into a scratch, libclattn on views of them, and the output projection.
 *
 * A row of the projections is (head, element); with one weight for several of them a row holds them side by side, so
 * that heads, rows and batch entries are strides and q, k and v start at columns of their own. */
#include <string.h>

#include "layer.h"

enum { SIDE_MOST = 1 << 24 };

void clattn_nn_attention_args_init(clattn_nn_attention_args *args) {
  if (args == NULL)
    return;
  memset(args, 0, sizeof(*args));
  args->struct_size = sizeof(*args);
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

/* Of q, k, v and o the types alone are the caller's, and projections must be able to write them. */
static clattn_status check_tensor(const nn_attention *attention, const char *name, const clattn_tensor *tensor,
                                  clattn_error *error) {
  const char *problem = attention->names->problem;
  if (tensor->layout != CLATTN_LAYOUT_BHSD)
    return nn_fail(error, CLATTN_ERROR_STRIDE, "%s.%s.layout is %d: must stay 0, the layer sets it", problem, name,
                   tensor->layout);
  if (nn_dtype_bytes(tensor->dtype) == 0)
    return nn_fail(error, CLATTN_ERROR_NOT_SUPPORTED, "%s.%s.dtype is %d: projections write f32, f16 and bf16", problem,
                   name, tensor->dtype);
  return CLATTN_SUCCESS;
}

/* Fills in the sizes that are 0 by default. */
static clattn_status check_problem(nn_attention *attention, const clattn_problem *problem, clattn_error *error) {
  const char *name = attention->names->problem;
  if (problem == NULL)
    return nn_fail(error, CLATTN_ERROR_NULL_POINTER, "%s must not be NULL", name);
  clattn_status status = clattn_problem_check(problem, error);
  if (status != CLATTN_SUCCESS)
    return status;
  clattn_problem *p = &attention->problem;
  *p = *problem;
  p->batch = p->batch != 0 ? p->batch : 1;
  p->q_heads = p->q_heads != 0 ? p->q_heads : 1;
  p->kv_heads = p->kv_heads != 0 ? p->kv_heads : p->q_heads;
  p->v_dim = p->v_dim != 0 ? p->v_dim : p->qk_dim;
  if (p->outputs != 0 && !(p->outputs & CLATTN_OUT_O))
    return nn_fail(error, CLATTN_ERROR_VALUE, "%s.outputs is %u: a layer needs CLATTN_OUT_O among them", name,
                   p->outputs);
  const struct {
    const char *name;
    const clattn_tensor *tensor;
  } tensors[] = {{"q", &p->q}, {"k", &p->k}, {"v", &p->v}, {"o", &p->o}};
  for (size_t i = 0; i < sizeof(tensors) / sizeof(tensors[0]) && status == CLATTN_SUCCESS; ++i)
    status = check_tensor(attention, tensors[i].name, tensors[i].tensor, error);
  if (status == CLATTN_SUCCESS && (p->q_heads > SIDE_MOST || p->qk_dim > SIDE_MOST || p->v_dim > SIDE_MOST))
    status = nn_fail(error, CLATTN_ERROR_SHAPE, "%s: q_heads %lld, qk_dim %lld, v_dim %lld: a weight has %d outputs",
                     name, (long long)p->q_heads, (long long)p->qk_dim, (long long)p->v_dim, SIDE_MOST);
  return status;
}

static clattn_status check_args(nn_attention *attention, const clattn_args *args, clattn_error *error) {
  const char *name = attention->names->args;
  clattn_args_init(&attention->call);
  if (args != NULL) {
    if (args->struct_size != sizeof(*args))
      return nn_fail(error, CLATTN_ERROR_STRUCT_SIZE, "%s.struct_size is %zu, not %zu: call clattn_args_init", name,
                     args->struct_size, sizeof(*args));
    const struct {
      const char *name;
      const clattn_mem *mem;
    } taken[] = {{"q", &args->q}, {"k", &args->k}, {"v", &args->v}, {"o", &args->o}, {"workspace", &args->workspace}};
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); ++i)
      if (nn_present(taken[i].mem))
        return nn_fail(error, CLATTN_ERROR_TENSOR_UNUSED, "%s.%s is given: the layer sets it", name, taken[i].name);
    if (args->sizes != CLATTN_SIZES_BOUNDS)
      return nn_fail(error, CLATTN_ERROR_SHAPE, "%s.sizes is %u: must stay 0, the sizes are those of %s", name,
                     args->sizes, attention->names->problem);
    attention->call = *args;
  }
  attention->call.error = error;
  return CLATTN_SUCCESS;
}

/* A weight that is needed, or must be absent because of another. */
static clattn_status check_use(const clattn_nn *nn, const nn_attention *attention, const char *name,
                               const clattn_nn_weight *weight, int used, int64_t out, clattn_error *error) {
  if (used)
    return nn_check_weight(nn, name, weight, 0, out, error);
  if (weight != NULL)
    return nn_fail(error, CLATTN_ERROR_TENSOR_UNUSED,
                   "%s is given beside others that make the same: %s holds qkv, or q and kv, or q, k and v", name,
                   attention->names->heads);
  return CLATTN_SUCCESS;
}

static clattn_status check_heads(const clattn_nn *nn, nn_attention *attention, clattn_error *error) {
  const nn_attention_names *names = attention->names;
  const clattn_nn_heads *heads = &attention->heads;
  const clattn_problem *p = &attention->problem;
  const int packed = heads->qkv != NULL, pair = !packed && heads->kv != NULL, apart = !packed && !pair;
  const int64_t q = p->q_heads * p->qk_dim, k = p->kv_heads * p->qk_dim, v = p->kv_heads * p->v_dim;
  attention->q_columns = q;
  attention->k_columns = k;
  attention->v_columns = v;
  attention->o_columns = p->q_heads * p->v_dim;
  if (heads->reserved != 0)
    return nn_fail(error, CLATTN_ERROR_RESERVED, "%s.reserved is %u, not 0", names->heads, heads->reserved);
  const struct {
    const char *name;
    const clattn_nn_weight *weight;
    int used;
    int64_t out;
  } weights[] = {{names->qkv, heads->qkv, packed, q + k + v},
                 {names->kv, heads->kv, pair, k + v},
                 {names->q, heads->q, !packed, q},
                 {names->k, heads->k, apart, k},
                 {names->v, heads->v, apart, v}};
  clattn_status status = CLATTN_SUCCESS;
  for (size_t i = 0; i < sizeof(weights) / sizeof(weights[0]) && status == CLATTN_SUCCESS; ++i)
    status = check_use(nn, attention, weights[i].name, weights[i].weight, weights[i].used, weights[i].out, error);
  if (status == CLATTN_SUCCESS && apart)
    status = nn_check_weight(nn, names->v, heads->v, heads->k->in, 0, error);
  if (status == CLATTN_SUCCESS)
    status = nn_check_weight(nn, names->o, heads->o, attention->o_columns, 0, error);
  if (status == CLATTN_SUCCESS)
    status = nn_check_epsilon(names->qk_epsilon, heads->qk_epsilon, error);
  return status;
}

/* What one weight writes has one type. */
static clattn_status check_types(const nn_attention *attention, clattn_error *error) {
  const clattn_nn_heads *heads = &attention->heads;
  const clattn_problem *p = &attention->problem;
  const int side_by_side = heads->qkv != NULL || heads->kv != NULL;
  if (side_by_side && (p->k.dtype != p->v.dtype || (heads->qkv != NULL && p->q.dtype != p->k.dtype)))
    return nn_fail(error, CLATTN_ERROR_ENUM, "%s: q, k and v are of types %d, %d and %d; what %s makes is of one type",
                   attention->names->problem, p->q.dtype, p->k.dtype, p->v.dtype,
                   heads->qkv != NULL ? attention->names->qkv : attention->names->kv);
  if (heads->qkv != NULL && p->q_len != p->k_len)
    return nn_fail(error, CLATTN_ERROR_SHAPE, "%s: q_len %lld and k_len %lld: with %s they are the same rows",
                   attention->names->problem, (long long)p->q_len, (long long)p->k_len, attention->names->qkv);
  return CLATTN_SUCCESS;
}

static clattn_tensor view(const clattn_tensor *tensor, int64_t length, int64_t dim, int64_t pitch) {
  return clattn_strided(tensor->dtype, length * pitch, dim, pitch, 1);
}

static void set_layouts(nn_attention *attention) {
  clattn_problem *p = &attention->problem;
  const clattn_nn_heads *heads = &attention->heads;
  const int64_t q = attention->q_columns, k = attention->k_columns, v = attention->v_columns;
  const int packed = heads->qkv != NULL, pair = heads->kv != NULL;
  p->q = view(&p->q, p->q_len, p->qk_dim, packed ? q + k + v : q);
  p->k = view(&p->k, p->k_len, p->qk_dim, packed ? q + k + v : pair ? k + v : k);
  p->v = view(&p->v, p->k_len, p->v_dim, packed ? q + k + v : pair ? k + v : v);
  p->o = view(&p->o, p->q_len, p->v_dim, attention->o_columns);
  attention->q_rows = p->batch * p->q_len;
  attention->k_rows = p->batch * p->k_len;
}

/* ---- the layer on a stream --------------------------------------------------------------------------------------- */

clattn_status nn_attention_open(nn_attention *attention, clattn_nn *nn, const clattn_problem *problem,
                                const clattn_args *args, const clattn_nn_heads *heads, const nn_attention_names *names,
                                clattn_error *error) {
  clattn_plan_info info;
  memset(attention, 0, sizeof(*attention));
  attention->names = names;
  attention->heads = *heads;
  clattn_status status = check_problem(attention, problem, error);
  if (status == CLATTN_SUCCESS)
    status = check_args(attention, args, error);
  if (status == CLATTN_SUCCESS)
    status = check_heads(nn, attention, error);
  if (status == CLATTN_SUCCESS)
    status = check_types(attention, error);
  if (status != CLATTN_SUCCESS)
    return status;
  set_layouts(attention);
  status = nn_check_rows("batch * q_len", attention->q_rows, error);
  if (status == CLATTN_SUCCESS)
    status = nn_check_rows("batch * k_len", attention->k_rows, error);
  if (status == CLATTN_SUCCESS)
    status = clattn_plan_create(nn->context, &attention->problem, NULL, &attention->plan, error);
  if (status != CLATTN_SUCCESS)
    return status;
  clattn_plan_info_init(&info);
  status = clattn_plan_get_info(attention->plan, &info);
  attention->plan_bytes = info.workspace_bytes;
  return status == CLATTN_SUCCESS ? status
                                  : nn_fail(error, status, "asking a plan failed: %s", clattn_status_text(status));
}

void nn_attention_close(nn_attention *attention) {
  clattn_plan_release(attention->plan);
  attention->plan = NULL;
}

int64_t nn_attention_in(const nn_attention *attention) {
  return attention->heads.qkv != NULL ? attention->heads.qkv->in : attention->heads.q->in;
}

clattn_status nn_attention_check_inputs(const nn_attention *attention, int64_t *context_in, clattn_error *error) {
  const nn_attention_names *names = attention->names;
  const clattn_nn_heads *heads = &attention->heads;
  const clattn_problem *p = &attention->problem;
  const clattn_nn_weight *keys = heads->kv != NULL ? heads->kv : heads->k;
  *context_in = 0;
  if (nn_present(&attention->context.mem)) {
    if (heads->qkv != NULL)
      return nn_fail(error, CLATTN_ERROR_TENSOR_UNUSED, "context is given, but %s is for self-attention", names->qkv);
    *context_in = keys->in;
    return CLATTN_SUCCESS;
  }
  if (p->q_len != p->k_len)
    return nn_fail(error, CLATTN_ERROR_SHAPE,
                   "%s: q_len %lld and k_len %lld: without a context (self-attention) they are the same",
                   names->problem, (long long)p->q_len, (long long)p->k_len);
  if (heads->qkv == NULL && keys->in != heads->q->in)
    return nn_fail(error, CLATTN_ERROR_SHAPE, "%s takes %lld inputs, %s %lld: without a context they are the same",
                   names->q, (long long)heads->q->in, heads->kv != NULL ? names->kv : names->k, (long long)keys->in);
  return CLATTN_SUCCESS;
}

void nn_attention_lay(nn_attention *attention, nn_scratch *scratch) {
  const clattn_problem *p = &attention->problem;
  const clattn_nn_heads *heads = &attention->heads;
  const int64_t q = attention->q_columns, k = attention->k_columns, v = attention->v_columns;
  attention->q = nn_scratch_matrix(scratch, attention->q_rows, heads->qkv != NULL ? q + k + v : q, p->q.dtype);
  if (heads->qkv != NULL) {
    attention->k = nn_columns(&attention->q, q);
    attention->v = nn_columns(&attention->q, q + k);
  } else if (heads->kv != NULL) {
    attention->k = nn_scratch_matrix(scratch, attention->k_rows, k + v, p->k.dtype);
    attention->v = nn_columns(&attention->k, k);
  } else {
    attention->k = nn_scratch_matrix(scratch, attention->k_rows, k, p->k.dtype);
    attention->v = nn_scratch_matrix(scratch, attention->k_rows, v, p->v.dtype);
  }
  attention->o = nn_scratch_matrix(scratch, attention->q_rows, attention->o_columns, p->o.dtype);
  attention->call.q = attention->q.mem;
  attention->call.o = attention->o.mem;
  if (attention->k_rows > 0) {
    attention->call.k = attention->k.mem;
    attention->call.v = attention->v.mem;
  }
  if (attention->plan_bytes > 0)
    attention->call.workspace = nn_scratch_take(scratch, attention->plan_bytes);
}

/* Bytes from the first element to the last of one of args' results; shape (batch, head, row, key).  The plan knows that
 * they can be counted. */
static uint64_t bytes_of(const clattn_tensor *tensor, const int64_t shape[4], size_t element) {
  uint64_t last = 0, count = 1;
  for (int axis = 0; axis < 4; ++axis) {
    if (shape[axis] == 0)
      return 0;
    last += (uint64_t)(shape[axis] - 1) * (uint64_t)tensor->stride[axis];
    count *= (uint64_t)shape[axis];
  }
  return (tensor->layout == CLATTN_LAYOUT_STRIDED ? last + 1 : count) * element;
}

clattn_status nn_attention_memory(const clattn_nn *nn, const nn_attention *attention, nn_ranges *ranges,
                                  clattn_error *error) {
  const nn_attention_names *names = attention->names;
  const clattn_problem *p = &attention->problem;
  const clattn_args *call = &attention->call;
  const uint64_t gamma_bytes = (uint64_t)p->qk_dim * sizeof(float);
  const struct {
    uint32_t bit;
    const char *name;
    const clattn_mem *mem;
    const clattn_tensor *tensor;
    int64_t shape[4];
    size_t element;
  } results[] = {
      {CLATTN_OUT_LSE, names->lse, &call->lse, &p->lse, {p->batch, p->q_heads, p->q_len, 1}, sizeof(float)},
      {CLATTN_OUT_SCORES,
       names->scores,
       &call->scores,
       &p->scores,
       {p->batch, p->q_heads, p->q_len, p->k_len},
       nn_dtype_bytes(p->scores.dtype)},
      {CLATTN_OUT_MAX_LOGIT, names->max_logit, &call->max_logit, &p->max_logit, {p->batch, p->q_heads, 1, 1}, 4}};
  clattn_status status = nn_check_mem(nn, names->q_gamma, &attention->heads.q_gamma, gamma_bytes, sizeof(float),
                                      NN_OPTIONAL, ranges, error);
  if (status == CLATTN_SUCCESS)
    status = nn_check_mem(nn, names->k_gamma, &attention->heads.k_gamma, gamma_bytes, sizeof(float), NN_OPTIONAL,
                          ranges, error);
  for (size_t i = 0; i < sizeof(results) / sizeof(results[0]) && status == CLATTN_SUCCESS; ++i) {
    const uint64_t bytes = bytes_of(results[i].tensor, results[i].shape, results[i].element);
    if ((p->outputs & results[i].bit) && bytes > 0)
      status = nn_check_mem(nn, results[i].name, results[i].mem, bytes, results[i].element, NN_WRITTEN, ranges, error);
  }
  return status;
}

clattn_status nn_attend(nn_stream *stream, const clattn_plan *plan, const clattn_args *args) {
  cl_event storage = NULL;
  const clattn_status status =
      clattn_enqueue(plan, stream->queue, args, stream->num_wait, stream->wait, nn_stream_event(stream, &storage));
  if (status == CLATTN_SUCCESS)
    nn_stream_after(stream, storage);
  return status;
}

static clattn_status norm_heads(nn_stream *stream, const clattn_mem *gamma, float epsilon, int64_t rows, int64_t heads,
                                int64_t dim, const clattn_nn_matrix *matrix, clattn_error *error) {
  clattn_nn_norm_args args;
  if (!nn_present(gamma) || rows == 0)
    return CLATTN_SUCCESS;
  clattn_nn_norm_args_init(&args);
  args.kind = CLATTN_NN_RMS_NORM;
  args.epsilon = epsilon;
  args.rows = rows;
  args.columns = dim;
  args.heads = heads;
  args.x = *matrix;
  args.y = *matrix;
  args.gamma = *gamma;
  return nn_run_norm(stream, &args, error);
}

/* q, k and v, with the norms of q and k. */
static clattn_status project_inputs(nn_stream *stream, const nn_attention *attention, clattn_error *error) {
  const clattn_nn_heads *heads = &attention->heads;
  const clattn_problem *p = &attention->problem;
  const clattn_nn_matrix *from = nn_present(&attention->context.mem) ? &attention->context : &attention->x;
  const int64_t q_rows = attention->q_rows, k_rows = attention->k_rows;
  clattn_status status =
      nn_project(stream, heads->qkv != NULL ? heads->qkv : heads->q, q_rows, &attention->x, &attention->q, NULL, error);
  if (status == CLATTN_SUCCESS && heads->qkv == NULL)
    status = nn_project(stream, heads->kv != NULL ? heads->kv : heads->k, k_rows, from, &attention->k, NULL, error);
  if (status == CLATTN_SUCCESS && heads->v != NULL)
    status = nn_project(stream, heads->v, k_rows, from, &attention->v, NULL, error);
  if (status == CLATTN_SUCCESS)
    status =
        norm_heads(stream, &heads->q_gamma, heads->qk_epsilon, q_rows, p->q_heads, p->qk_dim, &attention->q, error);
  if (status == CLATTN_SUCCESS)
    status =
        norm_heads(stream, &heads->k_gamma, heads->qk_epsilon, k_rows, p->kv_heads, p->qk_dim, &attention->k, error);
  return status;
}

clattn_status nn_attention_run(nn_stream *stream, const nn_attention *attention, clattn_error *error) {
  if (attention->q_rows == 0)
    return CLATTN_SUCCESS;
  clattn_status status = project_inputs(stream, attention, error);
  if (status == CLATTN_SUCCESS)
    status = nn_attend(stream, attention->plan, &attention->call);
  if (status == CLATTN_SUCCESS)
    status = nn_project(stream, attention->heads.o, attention->q_rows, &attention->o, &attention->y,
                        &attention->residual, error);
  else
    return status;
  if (status != CLATTN_SUCCESS && attention->call.num_launch_events != NULL) { /* on failure none is set */
    for (uint32_t i = 0; i < *attention->call.num_launch_events; ++i)
      clReleaseEvent(attention->call.launch_events[i]);
    *attention->call.num_launch_events = 0;
  }
  return status;
}

/* ---- the layer alone --------------------------------------------------------------------------------------------- */

static void lay(void *job, nn_scratch *scratch) {
  nn_attention_lay(job, scratch);
}

static clattn_status check(cl_command_queue queue, const void *job) {
  const nn_attention *attention = job;
  return clattn_enqueue_check(attention->plan, queue, &attention->call);
}

static clattn_status run(nn_stream *stream, const void *job, clattn_error *error) {
  return nn_attention_run(stream, job, error);
}

static clattn_status memory(const clattn_nn *nn, const void *job, nn_ranges *ranges, clattn_error *error) {
  const nn_attention *attention = job;
  const int64_t rows = attention->q_rows, out = attention->heads.o->out;
  int64_t context_in = 0, stride = 0;
  clattn_status status = nn_attention_check_inputs(attention, &context_in, error);
  if (status == CLATTN_SUCCESS)
    status = nn_check_matrix(nn, "x", &attention->x, rows, nn_attention_in(attention), nn_needed(rows), &stride, ranges,
                             error);
  if (status == CLATTN_SUCCESS)
    status = nn_check_matrix(nn, "context", &attention->context, attention->k_rows, context_in, NN_OPTIONAL, &stride,
                             ranges, error);
  if (status == CLATTN_SUCCESS)
    status = nn_check_matrix(nn, "y", &attention->y, rows, out, nn_needed(rows) | NN_WRITTEN, &stride, ranges, error);
  if (status == CLATTN_SUCCESS)
    status = nn_check_matrix(nn, "residual", &attention->residual, rows, out, NN_OPTIONAL, &stride, ranges, error);
  if (status == CLATTN_SUCCESS)
    status = nn_attention_memory(nn, attention, ranges, error);
  return status;
}

/* *layer: of *attention, which is always to be closed. */
static clattn_status open_layer(nn_attention *attention, nn_layer *layer, clattn_nn *nn,
                                const clattn_nn_attention_args *args) {
  static const nn_layer ways = {NULL, lay, memory, check, run, "residual x"};
  static const nn_attention_names names = NN_ATTENTION_NAMES("");
  memset(attention, 0, sizeof(*attention));
  clattn_status status = NN_CHECK_ARGS(args);
  if (status != CLATTN_SUCCESS)
    return status;
  if (nn == NULL)
    return nn_fail(args->error, CLATTN_ERROR_NULL_POINTER, "nn must not be NULL");
  *layer = ways;
  layer->job = attention;
  status = nn_attention_open(attention, nn, args->problem, args->args, &args->heads, &names, args->error);
  attention->x = args->x;
  attention->context = args->context;
  attention->y = args->y;
  attention->residual = args->residual;
  return status;
}

clattn_status clattn_nn_attention_workspace(clattn_nn *nn, const clattn_nn_attention_args *args, uint64_t *bytes) {
  nn_attention attention;
  nn_layer layer;
  clattn_status status = open_layer(&attention, &layer, nn, args);
  if (status == CLATTN_SUCCESS)
    status = nn_layer_workspace(&layer, bytes, args->error);
  nn_attention_close(&attention);
  return status;
}

clattn_status clattn_nn_attention(clattn_nn *nn, cl_command_queue queue, const clattn_nn_attention_args *args,
                                  cl_uint num_events, const cl_event *wait_list, cl_event *event) {
  nn_attention attention;
  nn_layer layer;
  if (event != NULL)
    *event = NULL;
  clattn_status status = open_layer(&attention, &layer, nn, args);
  if (status == CLATTN_SUCCESS)
    status = nn_layer_run(nn, queue, &layer, &args->workspace, num_events, wait_list, event, args->error);
  nn_attention_close(&attention);
  return status;
}
