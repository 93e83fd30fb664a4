/* SPDX-License-Identifier: Apache-2.0 */
#include "bert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_file.h"
#include "safetensors.h"

enum { NAME_BYTES = 160 };

typedef struct norm {
  cl_mem gamma, beta;
} norm;

typedef struct layer {
  clattn_nn_weight *qkv, *o, *up, *down;
  norm after_attention, after_ffn;
} layer;

/* Memory of a pass, kept for the next one that is not larger. */
typedef struct room {
  cl_mem buffer;
  size_t bytes;
} room;

enum { ROOM_IDS, ROOM_LENGTHS, ROOM_HIDDEN, ROOM_EMBEDDINGS, ROOM_POOLED, ROOM_WEIGHTS, ROOM_SCRATCH, ROOMS };

typedef struct table {
  cl_mem buffer;
  clattn_dtype dtype;
  int64_t rows;
} table;

struct model_bert {
  model_config config;
  model_vocab *vocab;
  cl_context cl;
  cl_command_queue queue;
  clattn_nn *nn;
  table words, positions, segments;
  norm after_embedding;
  layer *layers; /* config.num_hidden_layers */
  room rooms[ROOMS];
};

/* What a function needs to say what went wrong. */
typedef struct trouble {
  const char *folder;
  clattn_status status;
  model_error *error;
} trouble;

static int device_fail(trouble *t, clattn_status status, const clattn_error *error, const char *what) {
  t->status = status;
  if (error != NULL && error->message[0] != 0)
    return model_fail(t->error, "%s: %s: %s", model_show_path(t->folder).text, what, error->message);
  return model_fail(t->error, "%s: %s: %s", model_show_path(t->folder).text, what, clattn_status_text(status));
}

static int memory_fail(trouble *t) {
  return device_fail(t, CLATTN_ERROR_OUT_OF_MEMORY, NULL, "the host");
}

/* ---- weights ---- */

/* A file being read; BERT's names may stand behind a prefix. */
typedef struct reader {
  model_bert *model;
  model_tensors *file;
  const char *prefix;
  trouble *trouble;
} reader;

static int expect(const reader *r, const char *name, int rank, int64_t a, int64_t b, model_tensor *view) {
  char whole[NAME_BYTES];
  const int64_t shape[2] = {a, b};
  (void)snprintf(whole, sizeof(whole), "%s%s", r->prefix, name);
  return model_tensor_expect(r->file, whole, rank, shape, view, r->trouble->error);
}

static clattn_dtype dtype_of(const model_tensor *view) {
  return view->dtype == MODEL_F16 ? CLATTN_F16 : view->dtype == MODEL_BF16 ? CLATTN_BF16 : CLATTN_F32;
}

static int upload(const reader *r, const void *bytes, size_t count, cl_mem *out) {
  cl_int code = CL_SUCCESS;
  union { /* the driver reads only */
    const void *given;
    void *taken;
  } host = {bytes};
  *out = clCreateBuffer(r->model->cl, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, count, host.taken, &code);
  if (code == CL_SUCCESS)
    return 0;
  *out = NULL;
  return device_fail(r->trouble, code, NULL, "making a buffer for a weight");
}

static int load_table(const reader *r, const char *name, int64_t rows, table *out) {
  model_tensor view;
  if (expect(r, name, 2, rows, r->model->config.hidden_size, &view) != 0)
    return -1;
  out->dtype = dtype_of(&view);
  out->rows = rows;
  return upload(r, view.data, view.bytes, &out->buffer);
}

static float *floats(const reader *r, const char *name, int64_t count) {
  model_tensor view;
  if (expect(r, name, 1, count, 1, &view) != 0)
    return NULL;
  float *out = malloc((size_t)count * sizeof(*out));
  if (out == NULL)
    (void)memory_fail(r->trouble);
  else
    model_tensor_read(&view, 0, count, out);
  return out;
}

static int load_vector(const reader *r, const char *name, cl_mem *out) {
  float *values = floats(r, name, r->model->config.hidden_size);
  const int code = values != NULL ? upload(r, values, (size_t)r->model->config.hidden_size * sizeof(*values), out) : -1;
  free(values);
  return code;
}

/* PyTorch's older files call them gamma and beta. */
static int load_norm(const reader *r, const char *name, norm *out) {
  char gamma[NAME_BYTES], beta[NAME_BYTES], whole[NAME_BYTES];
  model_tensor view;
  (void)snprintf(gamma, sizeof(gamma), "%s.gamma", name);
  (void)snprintf(beta, sizeof(beta), "%s.beta", name);
  (void)snprintf(whole, sizeof(whole), "%s%s", r->prefix, gamma);
  if (model_tensor_find(r->file, whole, &view, NULL) != 0) {
    (void)snprintf(gamma, sizeof(gamma), "%s.weight", name);
    (void)snprintf(beta, sizeof(beta), "%s.bias", name);
  }
  return load_vector(r, gamma, &out->gamma) != 0 || load_vector(r, beta, &out->beta) != 0 ? -1 : 0;
}

/* Outputs from `first` on of a weight of this type; the first part makes it.  Parts of another type are widened. */
static int load_part(const reader *r, const char *name, clattn_dtype dtype, int64_t in, int64_t out, int64_t first,
                     int64_t count, clattn_nn_weight **weight) {
  char text[NAME_BYTES];
  model_tensor view;
  float *wide = NULL, *bias = NULL;
  int code = -1;
  clattn_error error;
  clattn_nn_fill_args fill;
  clattn_error_init(&error);
  (void)snprintf(text, sizeof(text), "%s.weight", name);
  if (expect(r, text, 2, count, in, &view) != 0)
    return -1;
  if (*weight == NULL) {
    const clattn_status status = clattn_nn_weight_create(r->model->nn, in, out, dtype, 1, weight, &error);
    if (status != CLATTN_SUCCESS)
      return device_fail(r->trouble, status, &error, name);
  }
  (void)snprintf(text, sizeof(text), "%s.bias", name);
  bias = floats(r, text, count);
  if (bias == NULL)
    goto done;
  clattn_nn_fill_args_init(&fill);
  fill.dtype = dtype_of(&view);
  fill.host = view.data;
  if (fill.dtype != dtype) {
    wide = malloc((size_t)view.count * sizeof(*wide));
    if (wide == NULL) {
      (void)model_fail(r->trouble->error, "%s: out of memory", model_show_path(r->trouble->folder).text);
      goto done;
    }
    model_tensor_read(&view, 0, view.count, wide);
    fill.dtype = CLATTN_F32;
    fill.host = wide;
  }
  fill.error = &error;
  fill.weight = *weight;
  fill.first = first;
  fill.count = count;
  fill.host_bias = bias;
  const clattn_status status = clattn_nn_weight_fill(r->model->queue, &fill, 0, NULL, NULL);
  code = status == CLATTN_SUCCESS ? 0 : device_fail(r->trouble, status, &error, name);

done:
  free(wide);
  free(bias);
  return code;
}

/* The type of a weight made of these parts: theirs if they agree, else f32, which holds them all. */
static int type_of(const reader *r, const char *const *names, int count, clattn_dtype *out) {
  for (int i = 0; i < count; ++i) {
    char whole[NAME_BYTES];
    model_tensor view;
    (void)snprintf(whole, sizeof(whole), "%s%s.weight", r->prefix, names[i]);
    if (model_tensor_find(r->file, whole, &view, r->trouble->error) != 0)
      return -1;
    *out = i == 0 || *out == dtype_of(&view) ? dtype_of(&view) : CLATTN_F32;
    if (i > 0 && *out == CLATTN_F32)
      break;
  }
  return 0;
}

/* A weight of one part. */
static int load_linear(const reader *r, const char *name, int64_t in, int64_t out, clattn_nn_weight **weight) {
  clattn_dtype dtype = CLATTN_F32;
  const char *const names[1] = {name};
  return type_of(r, names, 1, &dtype) != 0 ? -1 : load_part(r, name, dtype, in, out, 0, out, weight);
}

static int load_layer(const reader *r, int64_t index, layer *out) {
  static const char *const parts[3] = {"query", "key", "value"};
  const int64_t hidden = r->model->config.hidden_size, inner = r->model->config.intermediate_size;
  char name[NAME_BYTES];
  char part[3][NAME_BYTES];
  const char *const part_names[3] = {part[0], part[1], part[2]};
  clattn_dtype dtype = CLATTN_F32;
  for (int i = 0; i < 3; ++i)
    (void)snprintf(part[i], sizeof(part[i]), "encoder.layer.%lld.attention.self.%s", (long long)index, parts[i]);
  if (type_of(r, part_names, 3, &dtype) != 0)
    return -1;
  for (int i = 0; i < 3; ++i)
    if (load_part(r, part[i], dtype, hidden, 3 * hidden, i * hidden, hidden, &out->qkv) != 0)
      return -1;
  (void)snprintf(name, sizeof(name), "encoder.layer.%lld.attention.output.dense", (long long)index);
  if (load_linear(r, name, hidden, hidden, &out->o) != 0)
    return -1;
  (void)snprintf(name, sizeof(name), "encoder.layer.%lld.attention.output.LayerNorm", (long long)index);
  if (load_norm(r, name, &out->after_attention) != 0)
    return -1;
  (void)snprintf(name, sizeof(name), "encoder.layer.%lld.intermediate.dense", (long long)index);
  if (load_linear(r, name, hidden, inner, &out->up) != 0)
    return -1;
  (void)snprintf(name, sizeof(name), "encoder.layer.%lld.output.dense", (long long)index);
  if (load_linear(r, name, inner, hidden, &out->down) != 0)
    return -1;
  (void)snprintf(name, sizeof(name), "encoder.layer.%lld.output.LayerNorm", (long long)index);
  return load_norm(r, name, &out->after_ffn);
}

static int load_weights(model_bert *model, model_tensors *file, trouble *t) {
  static const char first[] = "embeddings.word_embeddings.weight";
  const model_config *config = &model->config;
  model_tensor view;
  reader r = {model, file, "", t};
  char prefixed[NAME_BYTES];
  (void)snprintf(prefixed, sizeof(prefixed), "bert.%s", first);
  if (model_tensor_find(file, first, &view, NULL) != 0 && model_tensor_find(file, prefixed, &view, NULL) == 0)
    r.prefix = "bert.";
  if (load_table(&r, first, config->vocab_size, &model->words) != 0 ||
      load_table(&r, "embeddings.position_embeddings.weight", config->max_position_embeddings, &model->positions) !=
          0 ||
      load_table(&r, "embeddings.token_type_embeddings.weight", config->type_vocab_size, &model->segments) != 0 ||
      load_norm(&r, "embeddings.LayerNorm", &model->after_embedding) != 0)
    return -1;
  for (int64_t i = 0; i < config->num_hidden_layers; ++i)
    if (load_layer(&r, i, &model->layers[i]) != 0)
      return -1;
  /* a file of more layers is another model's: its numbers would be wrong without a word */
  char more[NAME_BYTES];
  (void)snprintf(more, sizeof(more), "%sencoder.layer.%lld.output.dense.weight", r.prefix,
                 (long long)config->num_hidden_layers);
  if (model_tensor_find(file, more, &view, NULL) == 0)
    return model_fail(t->error, "%s: config.json says %lld layers, but model.safetensors has more (%s)",
                      model_show_path(t->folder).text, (long long)config->num_hidden_layers, more);
  return 0;
}

/* ---- opening ---- */

static int open_vocab(model_bert *model, const char *folder, model_error *error) {
  const model_config *config = &model->config;
  const model_specials specials = {config->unk_token, config->cls_token, config->sep_token, config->pad_token,
                                   config->mask_token};
  char *path = model_path(folder, "vocab.txt", error);
  const int code = path != NULL ? model_vocab_read(path, &specials, config->vocab_size, &model->vocab, error) : -1;
  free(path);
  return code;
}

int model_bert_open(clattn_context *context, cl_command_queue queue, const char *folder,
                    const clattn_nn_options *options, model_bert **out, clattn_status *status, model_error *error) {
  trouble t = {folder, CLATTN_SUCCESS, error};
  model_tensors *file = NULL;
  clattn_error said;
  char *path = NULL;
  int code = -1;
  *out = NULL;
  clattn_error_init(&said);
  model_bert *model = calloc(1, sizeof(*model));
  if (model == NULL) {
    (void)memory_fail(&t);
    goto done;
  }
  model->queue = queue;
  if (model_config_read(folder, &model->config, error) != 0 || open_vocab(model, folder, error) != 0)
    goto done;
  model->layers = calloc((size_t)model->config.num_hidden_layers, sizeof(*model->layers));
  path = model_path(folder, "model.safetensors", error);
  if (model->layers == NULL || path == NULL) {
    (void)memory_fail(&t);
    goto done;
  }
  if (model_tensors_open(path, &file, error) != 0)
    goto done;
  clattn_status made = clattn_context_handles(context, &model->cl, NULL);
  if (made == CLATTN_SUCCESS)
    made = clattn_nn_create(context, options, &model->nn, &said);
  if (made != CLATTN_SUCCESS) {
    (void)device_fail(&t, made, &said, "making the kernels' library");
    goto done;
  }
  code = load_weights(model, file, &t);
  if (code == 0)
    *out = model;

done:
  if (code != 0)
    model_bert_close(model);
  model_tensors_close(file);
  free(path);
  if (status != NULL)
    *status = t.status;
  return code;
}

static void release(cl_mem buffer) {
  if (buffer != NULL)
    clReleaseMemObject(buffer);
}

void model_bert_close(model_bert *model) {
  if (model == NULL)
    return;
  for (int64_t i = 0; model->layers != NULL && i < model->config.num_hidden_layers; ++i) {
    layer *l = &model->layers[i];
    clattn_nn_weight *const weights[] = {l->qkv, l->o, l->up, l->down};
    for (size_t n = 0; n < sizeof(weights) / sizeof(weights[0]); ++n)
      clattn_nn_weight_release(weights[n]);
    release(l->after_attention.gamma);
    release(l->after_attention.beta);
    release(l->after_ffn.gamma);
    release(l->after_ffn.beta);
  }
  release(model->after_embedding.gamma);
  release(model->after_embedding.beta);
  release(model->words.buffer);
  release(model->positions.buffer);
  release(model->segments.buffer);
  for (int i = 0; i < ROOMS; ++i)
    release(model->rooms[i].buffer);
  clattn_nn_release(model->nn);
  model_vocab_free(model->vocab);
  free(model->layers);
  free(model);
}

const model_config *model_bert_config(const model_bert *model) {
  return &model->config;
}

const model_vocab *model_bert_vocab(const model_bert *model) {
  return model->vocab;
}

/* ---- a pass ---- */

/* A pass and its sizes. */
typedef struct pass {
  model_bert *model;
  const model_batch *batch;
  const model_results *want;
  trouble *trouble;
  int64_t rows, columns;
} pass;

static int make_room(const pass *p, int which, size_t bytes) {
  room *r = &p->model->rooms[which];
  cl_int code = CL_SUCCESS;
  if (r->bytes >= bytes)
    return 0;
  release(r->buffer);
  r->bytes = 0;
  r->buffer = clCreateBuffer(p->model->cl, CL_MEM_READ_WRITE, bytes, NULL, &code);
  if (code != CL_SUCCESS) {
    r->buffer = NULL;
    return device_fail(p->trouble, code, NULL, "making a buffer for a pass");
  }
  r->bytes = bytes;
  return 0;
}

static size_t hidden_bytes(const pass *p) {
  return (size_t)(p->rows * p->columns) * sizeof(float);
}

static size_t weights_bytes(const pass *p) {
  return (size_t)(p->batch->batch * p->model->config.num_attention_heads * p->batch->length * p->batch->length) *
         sizeof(float);
}

/* Where the hidden states after `layers` layers stand: each its own place if all are wanted. */
static clattn_nn_matrix hidden_at(const pass *p, int64_t layers) {
  const uint64_t at = p->want->hidden != NULL ? (uint64_t)layers * hidden_bytes(p) : 0;
  return clattn_nn_matrix_f32(p->model->rooms[ROOM_HIDDEN].buffer, at, 0);
}

static int check_batch(const pass *p) {
  const model_batch *b = p->batch;
  const model_config *config = &p->model->config;
  model_error *error = p->trouble->error;
  if (b->batch < 1 || b->length < 1)
    return model_fail(error, "a batch of %lld sentences of %lld tokens is empty", (long long)b->batch,
                      (long long)b->length);
  if (b->length > config->max_position_embeddings)
    return model_fail(error, "%lld tokens are more than the model's %lld positions", (long long)b->length,
                      (long long)config->max_position_embeddings);
  if (b->batch > INT32_MAX / b->length)
    return model_fail(error, "%lld sentences of %lld tokens are too many", (long long)b->batch, (long long)b->length);
  for (int64_t i = 0; i < b->batch; ++i)
    if (b->lengths[i] < 1 || b->lengths[i] > b->length)
      return model_fail(error, "sentence %lld has %d tokens of %lld", (long long)i, b->lengths[i],
                        (long long)b->length);
  for (int64_t i = 0; i < b->batch * b->length; ++i)
    if (b->ids[i] < 0 || b->ids[i] >= config->vocab_size)
      return model_fail(error, "token id %d is not below the vocabulary's %lld", b->ids[i],
                        (long long)config->vocab_size);
  return 0;
}

static int open_rooms(const pass *p) {
  const int64_t layers = p->model->config.num_hidden_layers;
  const size_t row = (size_t)(p->batch->batch * p->columns) * sizeof(float);
  if (make_room(p, ROOM_IDS, (size_t)p->rows * sizeof(int32_t)) != 0 ||
      make_room(p, ROOM_LENGTHS, (size_t)p->batch->batch * sizeof(int32_t)) != 0 ||
      make_room(p, ROOM_HIDDEN, hidden_bytes(p) * (p->want->hidden != NULL ? (size_t)layers + 1 : 1)) != 0 ||
      make_room(p, ROOM_EMBEDDINGS, row) != 0 || make_room(p, ROOM_POOLED, row) != 0)
    return -1;
  return p->want->weights != NULL ? make_room(p, ROOM_WEIGHTS, weights_bytes(p) * (size_t)layers) : 0;
}

static int write_inputs(const pass *p) {
  const struct {
    int room;
    const int32_t *from;
    int64_t count;
  } list[2] = {{ROOM_IDS, p->batch->ids, p->rows}, {ROOM_LENGTHS, p->batch->lengths, p->batch->batch}};
  for (int i = 0; i < 2; ++i) {
    /* the caller's arrays stay until the pass ends with its one wait */
    const cl_int code = clEnqueueWriteBuffer(p->model->queue, p->model->rooms[list[i].room].buffer, CL_FALSE, 0,
                                             (size_t)list[i].count * sizeof(int32_t), list[i].from, 0, NULL, NULL);
    if (code != CL_SUCCESS)
      return device_fail(p->trouble, code, NULL, "writing token ids");
  }
  return 0;
}

static int embed(const pass *p) {
  model_bert *model = p->model;
  clattn_nn_embed_args args;
  clattn_nn_norm_args norm_args;
  clattn_error error;
  const table *const tables[3] = {&model->words, &model->positions, &model->segments};
  clattn_error_init(&error);
  clattn_nn_embed_args_init(&args);
  args.error = &error;
  args.rows = p->rows;
  args.columns = p->columns;
  for (int i = 0; i < 3; ++i) {
    args.table[i].values.mem = clattn_buffer(tables[i]->buffer, 0);
    args.table[i].values.dtype = tables[i]->dtype;
    args.table[i].rows = tables[i]->rows;
  }
  args.table[0].ids = clattn_buffer(model->rooms[ROOM_IDS].buffer, 0);
  args.table[1].period = p->batch->length;
  args.y = hidden_at(p, 0);
  clattn_status status = clattn_nn_embed(model->nn, model->queue, &args, 0, NULL, NULL);
  if (status != CLATTN_SUCCESS)
    return device_fail(p->trouble, status, &error, "embedding");
  clattn_nn_norm_args_init(&norm_args);
  norm_args.error = &error;
  norm_args.epsilon = (float)model->config.layer_norm_eps;
  norm_args.rows = p->rows;
  norm_args.columns = p->columns;
  norm_args.x = norm_args.y = hidden_at(p, 0);
  norm_args.gamma = clattn_buffer(model->after_embedding.gamma, 0);
  norm_args.beta = clattn_buffer(model->after_embedding.beta, 0);
  status = clattn_nn_norm(model->nn, model->queue, &norm_args, 0, NULL, NULL);
  return status == CLATTN_SUCCESS ? 0 : device_fail(p->trouble, status, &error, "the norm of embeddings");
}

static clattn_nn_activation activation_of(const model_config *config) {
  switch (config->hidden_act) {
  case MODEL_GELU_TANH:
    return CLATTN_NN_GELU_TANH;
  case MODEL_RELU:
    return CLATTN_NN_RELU;
  case MODEL_SILU:
    return CLATTN_NN_SILU;
  default:
    return CLATTN_NN_GELU;
  }
}

/* What all layers of a pass share. */
static void describe(const pass *p, clattn_problem *problem, clattn_args *args) {
  const model_config *config = &p->model->config;
  clattn_problem_init(problem);
  clattn_args_init(args);
  problem->batch = p->batch->batch;
  problem->q_heads = config->num_attention_heads;
  problem->q_len = problem->k_len = p->batch->length;
  problem->qk_dim = config->head_dim;
  for (int64_t i = 0; i < p->batch->batch; ++i)
    if (p->batch->lengths[i] < p->batch->length)
      problem->k_length_mode = CLATTN_LENGTH_PER_BATCH;
  if (problem->k_length_mode == CLATTN_LENGTH_PER_BATCH) {
    args->k_lengths.kind = CLATTN_ARRAY_HOST;
    args->k_lengths.count = (uint32_t)p->batch->batch;
    args->k_lengths.host = p->batch->lengths;
  }
  if (p->want->weights != NULL) {
    problem->outputs = CLATTN_OUT_O | CLATTN_OUT_SCORES;
    problem->stage = CLATTN_STAGE_WEIGHTS;
  }
}

static int run_layers(const pass *p) {
  model_bert *model = p->model;
  clattn_problem problem;
  clattn_args args;
  clattn_error error;
  uint64_t scratch = 0; /* the same for all layers */
  clattn_error_init(&error);
  describe(p, &problem, &args);
  for (int64_t i = 0; i < model->config.num_hidden_layers; ++i) {
    const layer *l = &model->layers[i];
    clattn_nn_block_args block;
    clattn_status status = CLATTN_SUCCESS;
    clattn_nn_block_args_init(&block);
    block.error = &error;
    block.order = CLATTN_NN_POST_NORM;
    block.epsilon = (float)model->config.layer_norm_eps;
    block.activation = activation_of(&model->config);
    block.self_problem = &problem;
    block.self_args = &args;
    block.self_heads.qkv = l->qkv;
    block.self_heads.o = l->o;
    block.up = l->up;
    block.down = l->down;
    block.gamma[0] = clattn_buffer(l->after_attention.gamma, 0);
    block.beta[0] = clattn_buffer(l->after_attention.beta, 0);
    block.gamma[2] = clattn_buffer(l->after_ffn.gamma, 0);
    block.beta[2] = clattn_buffer(l->after_ffn.beta, 0);
    block.x = hidden_at(p, i);
    block.y = hidden_at(p, i + 1);
    if (p->want->weights != NULL)
      args.scores = clattn_buffer(model->rooms[ROOM_WEIGHTS].buffer, (uint64_t)i * weights_bytes(p));
    if (i == 0)
      status = clattn_nn_block_workspace(model->nn, &block, &scratch);
    if (status == CLATTN_SUCCESS && scratch > 0) {
      if (make_room(p, ROOM_SCRATCH, (size_t)scratch) != 0)
        return -1;
      block.workspace = clattn_buffer(model->rooms[ROOM_SCRATCH].buffer, 0);
    }
    if (status == CLATTN_SUCCESS)
      status = clattn_nn_encoder_block(model->nn, model->queue, &block, 0, NULL, NULL);
    if (status != CLATTN_SUCCESS)
      return device_fail(p->trouble, status, &error, "an encoder layer");
  }
  return 0;
}

static int pool(const pass *p, int normalise, int room_to) {
  model_bert *model = p->model;
  clattn_nn_pool_args args;
  clattn_error error;
  clattn_error_init(&error);
  clattn_nn_pool_args_init(&args);
  args.error = &error;
  args.pooling = model->config.pooling == MODEL_POOLING_CLS ? CLATTN_NN_POOL_FIRST : CLATTN_NN_POOL_MEAN;
  args.normalise = (uint32_t)normalise;
  args.batch = p->batch->batch;
  args.length = p->batch->length;
  args.columns = p->columns;
  args.x = hidden_at(p, model->config.num_hidden_layers);
  args.y = clattn_nn_matrix_f32(model->rooms[room_to].buffer, 0, 0);
  args.lengths = clattn_buffer(model->rooms[ROOM_LENGTHS].buffer, 0);
  const clattn_status status = clattn_nn_pool(model->nn, model->queue, &args, 0, NULL, NULL);
  return status == CLATTN_SUCCESS ? 0 : device_fail(p->trouble, status, &error, "pooling");
}

/* Enqueues what brings the results to the host. */
static int read_results(const pass *p) {
  const model_bert *model = p->model;
  const model_results *want = p->want;
  const size_t layers = (size_t)model->config.num_hidden_layers;
  const size_t row = (size_t)(p->batch->batch * p->columns) * sizeof(float);
  const struct {
    float *to;
    int room;
    uint64_t from;
    size_t bytes;
  } list[] = {{want->embeddings, ROOM_EMBEDDINGS, 0, row},
              {want->pooled, ROOM_POOLED, 0, row},
              {want->last_hidden, ROOM_HIDDEN, hidden_at(p, (int64_t)layers).mem.offset, hidden_bytes(p)},
              {want->hidden, ROOM_HIDDEN, 0, hidden_bytes(p) * (layers + 1)},
              {want->weights, ROOM_WEIGHTS, 0, weights_bytes(p) * layers}};
  for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); ++i) {
    if (list[i].to == NULL)
      continue;
    const cl_int code = clEnqueueReadBuffer(model->queue, model->rooms[list[i].room].buffer, CL_FALSE,
                                            (size_t)list[i].from, list[i].bytes, list[i].to, 0, NULL, NULL);
    if (code != CL_SUCCESS)
      return device_fail(p->trouble, code, NULL, "reading results");
  }
  return 0;
}

int model_bert_run(model_bert *model, const model_batch *batch, const model_results *results, clattn_status *status,
                   model_error *error) {
  trouble t = {"the model", CLATTN_SUCCESS, error};
  pass p = {model, batch, results, &t, 0, model->config.hidden_size};
  int code = check_batch(&p);
  if (code == 0) {
    p.rows = batch->batch * batch->length;
    code = open_rooms(&p) != 0 || write_inputs(&p) != 0 || embed(&p) != 0 || run_layers(&p) != 0 ||
                   (results->embeddings != NULL && pool(&p, model->config.normalize, ROOM_EMBEDDINGS) != 0) ||
                   (results->pooled != NULL && pool(&p, 0, ROOM_POOLED) != 0) || read_results(&p) != 0
               ? -1
               : 0;
  }
  /* also after a failure: what was enqueued reads the caller's arrays */
  const cl_int finished = clFinish(model->queue);
  if (code == 0 && finished != CL_SUCCESS)
    code = device_fail(&t, finished, NULL, "waiting for a pass");
  if (status != NULL)
    *status = t.status;
  return code;
}
