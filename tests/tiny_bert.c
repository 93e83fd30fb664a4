/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "tiny_bert.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "nn_ref.h"

enum { TENSORS = 64, MOST = TINY_VOCAB * TINY_HIDDEN, HEAD_DIM = TINY_HIDDEN / TINY_HEADS, SEGMENTS = 2 };

typedef struct tensor {
  char name[128];
  int64_t rows, columns; /* rows 0: a vector */
  clattn_dtype dtype;
  unsigned char bytes[MOST * 4];
  double numbers[MOST]; /* as they are in the file */
} tensor;

static tensor tensors[TENSORS];
static int tensor_count;
static tiny_form written;

static const char *const lines[TINY_VOCAB] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]",  "[MASK]", "tom",   "chase", "##s",
                                              "jerry", "the",   "cat",   "sat",    "on",     "mat",   ".",     ",",
                                              "a",     "dog",   "ran",   "##ning", "to",     "house", "-",     "5",
                                              "is",    "it",    "not",   "we",     "all",    "!"};

/* ---- the weights ------------------------------------------------------------------------------------------------- */

static double drawn(uint32_t *state) {
  *state = *state * 1664525u + 1013904223u;
  return (double)(*state >> 8) / 8388608.0 - 1;
}

/* Numbers round `middle`. */
static void add(const char *name, int64_t rows, int64_t columns, double middle, double spread, uint32_t *state) {
  tensor *t = &tensors[tensor_count++];
  const int64_t count = (rows > 0 ? rows : 1) * columns;
  assert_true(tensor_count <= TENSORS && count <= MOST);
  snprintf(t->name, sizeof t->name, "%s%s", written.prefix != NULL ? written.prefix : "", name);
  t->rows = rows;
  t->columns = columns;
  t->dtype = rows > 0 ? written.dtype : CLATTN_F32;
  for (int64_t i = 0; i < count; i++) {
    nn_ref_store(t->dtype, t->bytes, i, middle + spread * drawn(state));
    t->numbers[i] = nn_ref_load(t->dtype, t->bytes, i);
  }
}

static void add_pair(const char *place, const char *what, int64_t rows, int64_t columns, uint32_t *state) {
  char name[128];
  const int norm = rows == 0;
  snprintf(name, sizeof name, "%s%s.%s", place, what, norm && written.old_names ? "gamma" : "weight");
  add(name, rows, columns, norm ? 1 : 0, 0.5, state);
  snprintf(name, sizeof name, "%s%s.%s", place, what, norm && written.old_names ? "beta" : "bias");
  add(name, 0, norm ? columns : rows, 0, 0.5, state);
}

static void draw_model(void) {
  uint32_t state = 12345;
  tensor_count = 0;
  add("embeddings.word_embeddings.weight", TINY_VOCAB, TINY_HIDDEN, 0, 1, &state);
  add("embeddings.position_embeddings.weight", TINY_POSITIONS, TINY_HIDDEN, 0, 1, &state);
  add("embeddings.token_type_embeddings.weight", SEGMENTS, TINY_HIDDEN, 0, 1, &state);
  add_pair("embeddings.", "LayerNorm", 0, TINY_HIDDEN, &state);
  for (int i = 0; i < TINY_LAYERS; i++) {
    char place[32];
    snprintf(place, sizeof place, "encoder.layer.%d.", i);
    add_pair(place, "attention.self.query", TINY_HIDDEN, TINY_HIDDEN, &state);
    add_pair(place, "attention.self.key", TINY_HIDDEN, TINY_HIDDEN, &state);
    add_pair(place, "attention.self.value", TINY_HIDDEN, TINY_HIDDEN, &state);
    add_pair(place, "attention.output.dense", TINY_HIDDEN, TINY_HIDDEN, &state);
    add_pair(place, "attention.output.LayerNorm", 0, TINY_HIDDEN, &state);
    add_pair(place, "intermediate.dense", TINY_INNER, TINY_HIDDEN, &state);
    add_pair(place, "output.dense", TINY_HIDDEN, TINY_INNER, &state);
    add_pair(place, "output.LayerNorm", 0, TINY_HIDDEN, &state);
  }
}

/* ---- the folder -------------------------------------------------------------------------------------------------- */

static FILE *open_in(const char *folder, const char *name) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  return file;
}

static void make_folder(const char *path) {
  if (mkdir(path, 0777) != 0)
    assert_int_equal(errno, EEXIST);
}

/* 8 bytes with the header's length, the header, the numbers. */
static void write_tensors(const char *folder) {
  static char header[1 << 14];
  static unsigned char body[TENSORS * MOST];
  size_t at = 0, bytes = 0;
  header[at++] = '{';
  for (int i = 0; i < tensor_count; i++) {
    const tensor *t = &tensors[i];
    const int turn = written.turned != NULL && strcmp(t->name, written.turned) == 0;
    const int64_t first = turn ? t->columns : t->rows, second = turn ? t->rows : t->columns;
    const size_t size = (size_t)((t->rows > 0 ? t->rows : 1) * t->columns) * nn_ref_bytes(t->dtype);
    if (written.left_out != NULL && strcmp(t->name, written.left_out) == 0)
      continue;
    at += (size_t)snprintf(header + at, sizeof header - at, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", at > 1 ? "," : "",
                           t->name,
                           t->dtype == CLATTN_F16    ? "F16"
                           : t->dtype == CLATTN_BF16 ? "BF16"
                                                     : "F32");
    if (t->rows > 0)
      at += (size_t)snprintf(header + at, sizeof header - at, "%" PRId64 ",", first);
    at += (size_t)snprintf(header + at, sizeof header - at, "%" PRId64 "],\"data_offsets\":[%zu,%zu]}", second, bytes,
                           bytes + size);
    assert_true(at + 100 < sizeof header && bytes + size <= sizeof body);
    memcpy(body + bytes, t->bytes, size);
    bytes += size;
  }
  header[at++] = '}';
  FILE *file = open_in(folder, "model.safetensors");
  for (int i = 0; i < 8; i++)
    putc((int)((uint64_t)at >> 8 * i & 0xff), file);
  assert_true(written.cut >= 0 && (size_t)written.cut < bytes);
  assert_int_equal(fwrite(header, 1, at, file), at);
  assert_int_equal(fwrite(body, 1, bytes - (size_t)written.cut, file), bytes - (size_t)written.cut);
  assert_int_equal(fclose(file), 0);
}

static void write_config(const char *folder) {
  static const char *const names[] = {"gelu", "relu", "gelu", "gelu_new", "silu"};
  FILE *file = open_in(folder, "config.json");
  if (written.config != NULL)
    fputs(written.config, file);
  else
    fprintf(file,
            "{\"model_type\": \"bert\", \"hidden_size\": %d, \"num_hidden_layers\": %d, \"num_attention_heads\": %d, "
            "\"intermediate_size\": %d, \"max_position_embeddings\": %d, \"vocab_size\": %d, \"hidden_act\": \"%s\"}\n",
            TINY_HIDDEN, TINY_LAYERS, TINY_HEADS, TINY_INNER, TINY_POSITIONS, TINY_VOCAB, names[written.activation]);
  assert_int_equal(fclose(file), 0);
}

static void write_modules(const char *folder) {
  char path[512];
  const int cls = written.first_pooling;
  FILE *file = open_in(folder, "modules.json");
  fprintf(file,
          "[{\"type\": \"a.Transformer\", \"path\": \"\"}, {\"type\": \"a.Pooling\", \"path\": \"1_Pooling\"}%s]\n",
          cls ? "" : ", {\"type\": \"a.Normalize\", \"path\": \"2_Normalize\"}");
  assert_int_equal(fclose(file), 0);
  snprintf(path, sizeof path, "%s/1_Pooling", folder);
  make_folder(path);
  file = open_in(folder, "1_Pooling/config.json");
  fprintf(file, "{\"pooling_mode_cls_token\": %s, \"pooling_mode_mean_tokens\": %s}\n", cls ? "true" : "false",
          cls ? "false" : "true");
  assert_int_equal(fclose(file), 0);
}

void tiny_write(const char *folder, const tiny_form *form) {
  written = *form;
  if (written.activation == CLATTN_NN_NONE)
    written.activation = CLATTN_NN_GELU;
  draw_model();
  make_folder(folder);
  write_config(folder);
  write_modules(folder);
  FILE *file = open_in(folder, "vocab.txt");
  for (int i = 0; i < TINY_VOCAB; i++) {
    const int change = written.line != NULL && strcmp(lines[i], written.line) == 0;
    fprintf(file, "%s\n", change ? written.other_line : lines[i]);
  }
  assert_int_equal(fclose(file), 0);
  write_tensors(folder);
}

/* ---- in double precision ----------------------------------------------------------------------------------------- */

/* The tensors in the order of draw_model. */
static nn_ref_weight weight_at(int *at) {
  const tensor *matrix = &tensors[(*at)++], *bias = &tensors[(*at)++];
  const nn_ref_weight weight = {matrix->columns, matrix->rows, matrix->numbers, bias->numbers};
  return weight;
}

static void norm_at(int *at, const double **gamma, const double **beta) {
  *gamma = tensors[(*at)++].numbers;
  *beta = tensors[(*at)++].numbers;
}

static void run_layer(int *at, int64_t count, double *x, double *weights) {
  clattn_problem problem;
  clattn_ref_args args;
  nn_ref_block block;
  clattn_problem_init(&problem);
  problem.q_heads = problem.kv_heads = TINY_HEADS;
  problem.q_len = problem.k_len = count;
  problem.qk_dim = problem.v_dim = HEAD_DIM;
  problem.stage = CLATTN_STAGE_WEIGHTS;
  clattn_ref_args_init(&args);
  args.scores = weights;
  memset(&block, 0, sizeof block);
  block.epsilon = 1e-12;
  block.activation = written.activation;
  block.self_problem = &problem;
  block.self_args = &args;
  block.self_heads.q = weight_at(at);
  block.self_heads.k = weight_at(at);
  block.self_heads.v = weight_at(at);
  block.self_heads.o = weight_at(at);
  norm_at(at, &block.gamma[0], &block.beta[0]);
  block.up = weight_at(at);
  block.down = weight_at(at);
  norm_at(at, &block.gamma[2], &block.beta[2]);
  double *y = nn_ref_numbers(count * TINY_HIDDEN);
  block.x = x;
  assert_int_equal(nn_ref_block_run(&block, y), CLATTN_SUCCESS);
  memcpy(x, y, (size_t)(count * TINY_HIDDEN) * sizeof *x);
  free(y);
}

void tiny_run(int64_t count, const int32_t *ids, double *embedding, double *weights) {
  const nn_ref_table tables[3] = {{tensors[0].numbers, TINY_VOCAB, ids, 0, 0},
                                  {tensors[1].numbers, TINY_POSITIONS, NULL, count, 0},
                                  {tensors[2].numbers, SEGMENTS, NULL, 0, 0}};
  const double *gamma = NULL, *beta = NULL;
  double *x = nn_ref_numbers(count * TINY_HIDDEN);
  int at = 3;
  nn_ref_embed(count, TINY_HIDDEN, 1, tables, x);
  norm_at(&at, &gamma, &beta);
  nn_ref_norm(CLATTN_NN_LAYER_NORM, 1e-12, count, TINY_HIDDEN, x, NULL, gamma, beta, x, NULL, NULL, NULL);
  for (int i = 0; i < TINY_LAYERS; i++)
    run_layer(&at, count, x, weights != NULL ? weights + i * TINY_HEADS * count * count : NULL);
  nn_ref_pool(written.first_pooling ? CLATTN_NN_POOL_FIRST : CLATTN_NN_POOL_MEAN, !written.first_pooling, 1, count,
              TINY_HIDDEN, x, NULL, embedding);
  free(x);
}
