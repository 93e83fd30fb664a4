/* SPDX-License-Identifier: Apache-2.0 */
/* Encoder-decoder attention: attention of one head whose values are the source's states as they lie. */
#include <string.h>

#include "layer.h"

void clattn_nn_encdec_args_init(clattn_nn_encdec_args *args) {
  if (args == NULL)
    return;
  memset(args, 0, sizeof(*args));
  args->struct_size = sizeof(*args);
}

typedef struct encdec {
  const clattn_nn_encdec_args *args;
  clattn_problem problem;
  clattn_args call;
  clattn_plan *plan;
  uint64_t plan_bytes;
  int64_t target_rows, source_rows, source_dim, compared; /* compared: dimensions */
  clattn_nn_matrix q, k;                                  /* projections in the scratch, or target and source */
} encdec;

static int64_t pitch_of(const clattn_nn_matrix *matrix, int64_t columns) {
  return matrix->stride != 0 ? matrix->stride : columns;
}

static clattn_status check_sizes(encdec *e, clattn_error *error) {
  const clattn_nn_encdec_args *args = e->args;
  const int64_t batch = args->batch != 0 ? args->batch : 1;
  e->source_dim = args->source_dim != 0 ? args->source_dim : args->target_dim;
  if (args->target_dim < 1 || e->source_dim < 1)
    return nn_fail(error, CLATTN_ERROR_SHAPE, "args.target_dim is %lld, args.source_dim %lld: must be >= 1",
                   (long long)args->target_dim, (long long)args->source_dim);
  clattn_status status = nn_check_rows("args.batch", batch, error);
  if (status == CLATTN_SUCCESS)
    status = nn_check_rows("args.target_len", args->target_len, error);
  if (status == CLATTN_SUCCESS)
    status = nn_check_rows("args.source_len", args->source_len, error);
  if (status != CLATTN_SUCCESS)
    return status;
  e->target_rows = batch * args->target_len;
  e->source_rows = batch * args->source_len;
  status = nn_check_rows("batch * target_len", e->target_rows, error);
  return status == CLATTN_SUCCESS ? nn_check_rows("batch * source_len", e->source_rows, error) : status;
}

static clattn_status check_projections(encdec *e, const clattn_nn *nn, clattn_error *error) {
  const clattn_nn_encdec_args *args = e->args;
  e->compared = args->target_dim;
  if (args->q == NULL && args->k == NULL) {
    if (args->target_dim != e->source_dim)
      return nn_fail(error, CLATTN_ERROR_SHAPE,
                     "args.target_dim is %lld, args.source_dim %lld: without q and k they are the same",
                     (long long)args->target_dim, (long long)e->source_dim);
    return CLATTN_SUCCESS;
  }
  if (args->q == NULL || args->k == NULL)
    return nn_fail(error, CLATTN_ERROR_NULL_POINTER, "args.%s is NULL: q and k are both given, or none",
                   args->q == NULL ? "q" : "k");
  clattn_status status = nn_check_weight(nn, "args.q", args->q, args->target_dim, 0, error);
  if (status == CLATTN_SUCCESS)
    status = nn_check_weight(nn, "args.k", args->k, e->source_dim, args->q->out, error);
  if (status == CLATTN_SUCCESS)
    e->compared = args->q->out;
  return status;
}

/* One head over rows of a matrix. */
static clattn_status view(const char *name, const clattn_nn_matrix *matrix, int64_t length, int64_t columns,
                          clattn_tensor *tensor, clattn_error *error) {
  const int64_t pitch = pitch_of(matrix, columns);
  if (nn_dtype_bytes(matrix->dtype) == 0)
    return nn_fail(error, CLATTN_ERROR_ENUM, "%s.dtype is %d; f32, f16 and bf16 are possible", name, matrix->dtype);
  if (pitch < columns)
    return nn_fail(error, CLATTN_ERROR_STRIDE, "%s.stride %lld is below its %lld columns", name, (long long)pitch,
                   (long long)columns);
  if (length > 0 && pitch > INT64_MAX / length)
    return nn_fail(error, CLATTN_ERROR_OVERFLOW, "%s: %lld rows of stride %lld do not fit in 63 bits", name,
                   (long long)length, (long long)pitch);
  *tensor = clattn_strided(matrix->dtype, length * pitch, pitch, pitch, 1);
  return CLATTN_SUCCESS;
}

static clattn_status set_problem(encdec *e, clattn_error *error) {
  const clattn_nn_encdec_args *args = e->args;
  clattn_problem *p = &e->problem;
  clattn_nn_matrix q = args->target, k = args->source;
  if (args->q != NULL)
    q.stride = k.stride = e->compared;
  clattn_problem_init(p);
  p->similarity = args->similarity;
  p->batch = args->batch;
  p->q_len = args->target_len;
  p->k_len = args->source_len;
  p->qk_dim = e->compared;
  p->v_dim = e->source_dim;
  p->scale_mode = args->scale_mode != CLATTN_SCALE_DEFAULT ? args->scale_mode : CLATTN_SCALE_VALUE;
  p->scale = args->scale_mode != CLATTN_SCALE_DEFAULT ? args->scale : 1.0f;
  if (args->source_lengths.kind != CLATTN_ARRAY_NONE)
    p->k_length_mode = CLATTN_LENGTH_PER_BATCH;
  if (nn_present(&args->weights)) {
    p->outputs = CLATTN_OUT_O | CLATTN_OUT_SCORES;
    p->stage = CLATTN_STAGE_WEIGHTS;
  }
  clattn_status status = view("target", &q, args->target_len, e->compared, &p->q, error);
  if (status == CLATTN_SUCCESS)
    status = view("source", &k, args->source_len, e->compared, &p->k, error);
  if (status == CLATTN_SUCCESS)
    status = view("source", &args->source, args->source_len, e->source_dim, &p->v, error);
  if (status == CLATTN_SUCCESS)
    status = view("contexts", &args->contexts, args->target_len, e->source_dim, &p->o, error);
  return status;
}

static void set_call(encdec *e) {
  const clattn_nn_encdec_args *args = e->args;
  clattn_args_init(&e->call);
  e->call.error = args->error;
  e->call.q = args->target.mem;
  e->call.k = args->source.mem;
  e->call.v = args->source.mem;
  e->call.o = args->contexts.mem;
  e->call.scores = args->weights;
  e->call.add_w = args->add_w;
  e->call.k_lengths = args->source_lengths;
}

/* ---- the layer --------------------------------------------------------------------------------------------------- */

static void lay(void *job, nn_scratch *scratch) {
  encdec *e = job;
  if (e->args->q != NULL) {
    e->q = nn_scratch_matrix(scratch, e->target_rows, e->compared, e->args->target.dtype);
    e->k = nn_scratch_matrix(scratch, e->source_rows, e->compared, e->args->source.dtype);
    e->call.q = e->q.mem;
    e->call.k = e->k.mem;
  }
  if (e->plan_bytes > 0)
    e->call.workspace = nn_scratch_take(scratch, e->plan_bytes);
}

static clattn_status memory(const clattn_nn *nn, const void *job, nn_ranges *ranges, clattn_error *error) {
  const encdec *e = job;
  const clattn_nn_encdec_args *args = e->args;
  const uint64_t weights = (uint64_t)e->target_rows * (uint64_t)args->source_len * sizeof(float);
  const int additive = args->similarity == CLATTN_ADDITIVE;
  int64_t stride = 0;
  clattn_status status = nn_check_matrix(nn, "target", &args->target, e->target_rows, args->target_dim,
                                         nn_needed(e->target_rows), &stride, ranges, error);
  if (status == CLATTN_SUCCESS)
    status = nn_check_matrix(nn, "source", &args->source, e->source_rows, e->source_dim, nn_needed(e->source_rows),
                             &stride, ranges, error);
  if (status == CLATTN_SUCCESS)
    status = nn_check_matrix(nn, "contexts", &args->contexts, e->target_rows, e->source_dim,
                             nn_needed(e->target_rows) | NN_WRITTEN, &stride, ranges, error);
  if (status == CLATTN_SUCCESS)
    status =
        nn_check_mem(nn, "weights", &args->weights, weights, sizeof(float), NN_OPTIONAL | NN_WRITTEN, ranges, error);
  if (status == CLATTN_SUCCESS && !additive && nn_present(&args->add_w))
    status = nn_fail(error, CLATTN_ERROR_TENSOR_UNUSED, "add_w is given: it is for CLATTN_ADDITIVE alone");
  if (status == CLATTN_SUCCESS && additive)
    status =
        nn_check_mem(nn, "add_w", &args->add_w, (uint64_t)e->compared * sizeof(float), sizeof(float), 0, ranges, error);
  return status;
}

static clattn_status check(cl_command_queue queue, const void *job) {
  const encdec *e = job;
  return clattn_enqueue_check(e->plan, queue, &e->call);
}

static clattn_status run(nn_stream *stream, const void *job, clattn_error *error) {
  const encdec *e = job;
  const clattn_nn_encdec_args *args = e->args;
  clattn_status status = CLATTN_SUCCESS;
  if (e->target_rows == 0)
    return status;
  if (args->q != NULL) {
    status = nn_project(stream, args->q, e->target_rows, &args->target, &e->q, NULL, error);
    if (status == CLATTN_SUCCESS)
      status = nn_project(stream, args->k, e->source_rows, &args->source, &e->k, NULL, error);
  }
  return status == CLATTN_SUCCESS ? nn_attend(stream, e->plan, &e->call) : status;
}

static clattn_status make_plan(encdec *e, clattn_nn *nn, clattn_error *error) {
  clattn_plan_info info;
  clattn_status status = clattn_plan_create(nn->context, &e->problem, NULL, &e->plan, error);
  if (status != CLATTN_SUCCESS)
    return status;
  clattn_plan_info_init(&info);
  status = clattn_plan_get_info(e->plan, &info);
  e->plan_bytes = info.workspace_bytes;
  return status == CLATTN_SUCCESS ? status
                                  : nn_fail(error, status, "asking a plan failed: %s", clattn_status_text(status));
}

/* *layer: of *e, whose plan is always to be released. */
static clattn_status open_layer(encdec *e, nn_layer *layer, clattn_nn *nn, const clattn_nn_encdec_args *args) {
  static const nn_layer ways = {NULL, lay, memory, check, run, ""};
  memset(e, 0, sizeof(*e));
  clattn_status status = NN_CHECK_ARGS(args);
  if (status != CLATTN_SUCCESS)
    return status;
  if (nn == NULL)
    return nn_fail(args->error, CLATTN_ERROR_NULL_POINTER, "nn must not be NULL");
  if (args->reserved0 != 0)
    return nn_fail(args->error, CLATTN_ERROR_RESERVED, "args.reserved0 is %u, not 0", args->reserved0);
  *layer = ways;
  layer->job = e;
  e->args = args;
  status = check_sizes(e, args->error);
  if (status == CLATTN_SUCCESS)
    status = check_projections(e, nn, args->error);
  if (status == CLATTN_SUCCESS)
    status = set_problem(e, args->error);
  if (status == CLATTN_SUCCESS)
    status = make_plan(e, nn, args->error);
  if (status == CLATTN_SUCCESS)
    set_call(e);
  return status;
}

clattn_status clattn_nn_encdec_workspace(clattn_nn *nn, const clattn_nn_encdec_args *args, uint64_t *bytes) {
  encdec e;
  nn_layer layer;
  clattn_status status = open_layer(&e, &layer, nn, args);
  if (status == CLATTN_SUCCESS)
    status = nn_layer_workspace(&layer, bytes, args->error);
  clattn_plan_release(e.plan);
  return status;
}

clattn_status clattn_nn_encdec_attention(clattn_nn *nn, cl_command_queue queue, const clattn_nn_encdec_args *args,
                                         cl_uint num_events, const cl_event *wait_list, cl_event *event) {
  encdec e;
  nn_layer layer;
  if (event != NULL)
    *event = NULL;
  clattn_status status = open_layer(&e, &layer, nn, args);
  if (status == CLATTN_SUCCESS)
    status = nn_layer_run(nn, queue, &layer, &args->workspace, num_events, wait_list, event, args->error);
  clattn_plan_release(e.plan);
  return status;
}
