/* SPDX-License-Identifier: Apache-2.0 */
/* A real sentence encoder, all-MiniLM-L6-v2, against its golden data in data/minilm.  The model's folder is CLATTN_MODEL
 * of the environment (scripts/model fetches it); without it the test is skipped, or fails with CLATTN_MODEL_REQUIRED=1. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bert.h"
#include "counted_calls.h"
#include "npy.h"
#include "wordpiece.h"

enum { LAYERS = 6, HEADS = 12, HIDDEN = 384, SENTENCES = 4, SKIPPED = 77 };

/* The largest differences from double precision that are allowed, and between results that differ in the order of
 * sums alone. */
static const double weights_allowed = 5e-6, layers_allowed = 2e-5, pooled_allowed = 5e-6, order_allowed = 1e-6;

static const char *const texts[SENTENCES] = {
    "Tom chase Jerry", "hello world", "This is an example sentence",
    "Attention lets every token look at every other token; with twelve heads and six layers this small encoder (22.7M "
    "weights) turns a sentence of 3 or 100 words into 384 numbers, and the caf\xc3\xa9's menu lands near other menus, "
    "doesn't it?"};

static clattn_nn_kernels kernels; /* of the group that runs */
static clattn_context *context;
static cl_command_queue queue;
static model_bert *model;

/* ---- passes ------------------------------------------------------------------------------------------------------ */

/* Everything that a pass gives. */
typedef struct outcome {
  int64_t batch, length;
  float *embeddings, *pooled, *last_hidden, *hidden, *weights;
} outcome;

static float *floats(int64_t count) {
  float *numbers = malloc((size_t)count * sizeof *numbers);
  assert_non_null(numbers);
  for (int64_t i = 0; i < count; i++)
    numbers[i] = NAN;
  return numbers;
}

static void run_pass(const model_batch *batch, const model_results *results) {
  model_error error = {""};
  clattn_status status = CLATTN_SUCCESS;
  if (model_bert_run(model, batch, results, &status, &error) != 0)
    fail_msg("%s", error.message);
  assert_int_equal(status, CLATTN_SUCCESS);
}

static outcome pass_of(int64_t batch, int64_t length, const int32_t *ids, const int32_t *lengths) {
  const int64_t rows = batch * length;
  outcome o = {batch,
               length,
               floats(batch * HIDDEN),
               floats(batch * HIDDEN),
               floats(rows * HIDDEN),
               floats((LAYERS + 1) * rows * HIDDEN),
               floats(LAYERS * HEADS * rows * length)};
  const model_batch given = {batch, length, ids, lengths};
  const model_results results = {o.embeddings, o.pooled, o.last_hidden, o.hidden, o.weights};
  run_pass(&given, &results);
  assert_memory_equal(o.last_hidden, o.hidden + LAYERS * rows * HIDDEN, (size_t)(rows * HIDDEN) * sizeof(float));
  return o;
}

static void forget(outcome *o) {
  free(o->embeddings);
  free(o->pooled);
  free(o->last_hidden);
  free(o->hidden);
  free(o->weights);
}

/* The hidden states of a token after so many layers, and a row of weights. */
static const float *token_of(const outcome *o, int64_t layers, int64_t sentence, int64_t token) {
  return o->hidden + ((layers * o->batch + sentence) * o->length + token) * HIDDEN;
}

static const float *look_of(const outcome *o, int64_t layer, int64_t sentence, int64_t head, int64_t token) {
  return o->weights + (((layer * o->batch + sentence) * HEADS + head) * o->length + token) * o->length;
}

/* ---- golden data ------------------------------------------------------------------------------------------------- */

static clattn_npy golden(const char *data, const char *name, const char *type, int rank, const int64_t *shape) {
  char path[4096], message[512];
  clattn_npy npy;
  snprintf(path, sizeof path, CLATTN_GOLDEN "/%s/%s.npy", data, name);
  if (clattn_npy_open(path, &npy, message, sizeof message) != 0)
    fail_msg("%s", message);
  assert_string_equal(npy.type, type);
  assert_int_equal(npy.rank, rank);
  for (int axis = 0; axis < rank; axis++)
    assert_int_equal(npy.shape[axis], shape[axis]);
  return npy;
}

static double number_of(const clattn_npy *npy, int64_t i) {
  return npy->type[1] == '8' ? ((const double *)npy->data)[i] : (double)((const float *)npy->data)[i];
}

/* The larger one; NaN stays. */
static double worse(double worst, double difference) {
  return difference <= worst ? worst : difference;
}

static double difference(const float *got, const clattn_npy *want, int64_t first, int64_t count) {
  double worst = 0;
  for (int64_t i = 0; i < count; i++)
    worst = worse(worst, fabs((double)got[i] - number_of(want, first + i)));
  return worst;
}

static double distance(const float *a, const float *b, int64_t count) {
  double worst = 0;
  for (int64_t i = 0; i < count; i++)
    worst = worse(worst, fabs((double)a[i] - (double)b[i]));
  return worst;
}

static void judge(const char *who, const char *what, double worst, double allowed) {
  print_message("  %-22s %-22s at most %.1e off (%.0e allowed)\n", who, what, worst, allowed);
  if (!(worst <= allowed))
    fail_msg("%s: %s: %g off, %g allowed", who, what, worst, allowed);
}

/* ids of the padded batch and their lengths. */
static int64_t batch_ids(int32_t **ids, int32_t lengths[SENTENCES]) {
  const int64_t shape[] = {SENTENCES, 60};
  clattn_npy all = golden("batch", "ids", "i4", 2, shape), mask = golden("batch", "mask", "i4", 2, shape);
  *ids = malloc(all.bytes);
  assert_non_null(*ids);
  memcpy(*ids, all.data, all.bytes);
  for (int64_t b = 0; b < SENTENCES; b++) {
    lengths[b] = 0;
    for (int64_t i = 0; i < shape[1]; i++)
      lengths[b] += ((const int32_t *)mask.data)[b * shape[1] + i];
  }
  clattn_npy_close(&all);
  clattn_npy_close(&mask);
  return shape[1];
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void token_ids(void **state) {
  (void)state;
  const model_config *config = model_bert_config(model);
  const model_wordpiece how = {config->do_lower_case, config->strip_accents, config->tokenize_chinese_chars,
                               config->max_tokens, 0};
  int32_t *ids = NULL, lengths[SENTENCES];
  const int64_t length = batch_ids(&ids, lengths);
  assert_int_equal(config->max_tokens, 256); /* sentence_bert_config.json */
  for (int i = 0; i < SENTENCES; i++) {
    model_tokens tokens;
    model_error error = {""};
    if (model_tokenize(&how, model_bert_vocab(model), texts[i], strlen(texts[i]), &tokens, &error) != 0)
      fail_msg("%s", error.message);
    assert_int_equal(tokens.count, lengths[i]);
    assert_memory_equal(tokens.ids, ids + i * length, tokens.count * sizeof(int32_t));
    model_tokens_free(&tokens);
  }
  free(ids);
}

static void sentence(const char *name, const char *data, int64_t length) {
  const int32_t lengths[] = {(int32_t)length};
  const int64_t layers = LAYERS * length * HIDDEN;
  const int64_t tokens[] = {length}, vector[] = {HIDDEN}, states[] = {length, HIDDEN},
                all_states[] = {LAYERS, length, HIDDEN}, looks[] = {LAYERS, HEADS, length, length};
  clattn_npy ids = golden(data, "ids", "i4", 1, tokens), embedding = golden(data, "embedding", "f4", 2, states),
             attn = golden(data, "attn", "f4", 4, looks), out = golden(data, "out", "f4", 3, all_states),
             pooled = golden(data, "pooled", "f8", 1, vector), normalized = golden(data, "normalized", "f8", 1, vector);
  outcome o = pass_of(1, length, ids.data, lengths);
  judge(name, "embedding", difference(o.hidden, &embedding, 0, length * HIDDEN), layers_allowed);
  judge(name, "weights", difference(o.weights, &attn, 0, LAYERS * HEADS * length * length), weights_allowed);
  judge(name, "layers", difference(o.hidden + length * HIDDEN, &out, 0, layers), layers_allowed);
  judge(name, "pooled", difference(o.pooled, &pooled, 0, HIDDEN), pooled_allowed);
  judge(name, "normalised", difference(o.embeddings, &normalized, 0, HIDDEN), pooled_allowed);
  forget(&o);
  clattn_npy *const all[] = {&ids, &embedding, &attn, &out, &pooled, &normalized};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
    clattn_npy_close(all[i]);
}

static void single_sentences(void **state) {
  (void)state;
  sentence("Tom chase Jerry", ".", 5);
  sentence("an example sentence", "s2", 7);
}

static void batch_is_golden(const outcome *o, const int32_t *lengths) {
  const int64_t vectors[] = {SENTENCES, HIDDEN}, hidden[] = {SENTENCES, o->length, HIDDEN};
  clattn_npy last = golden("batch", "last_hidden", "f4", 3, hidden),
             pooled = golden("batch", "pooled", "f8", 2, vectors),
             normalized = golden("batch", "normalized", "f8", 2, vectors);
  double worst = 0;
  for (int64_t b = 0; b < SENTENCES; b++)
    worst = worse(worst, difference(token_of(o, LAYERS, b, 0), &last, b * o->length * HIDDEN, lengths[b] * HIDDEN));
  judge("padded batch", "last layer", worst, layers_allowed);
  judge("padded batch", "pooled", difference(o->pooled, &pooled, 0, SENTENCES * HIDDEN), pooled_allowed);
  judge("padded batch", "normalised", difference(o->embeddings, &normalized, 0, SENTENCES * HIDDEN), pooled_allowed);
  clattn_npy_close(&last);
  clattn_npy_close(&pooled);
  clattn_npy_close(&normalized);
}

/* Each sentence of the batch and the same alone: states relative to the largest of them; padding gets no weight. */
static void batch_is_singles(const outcome *o, const int32_t *ids, const int32_t *lengths) {
  double states = 0, weights = 0, vectors = 0;
  for (int64_t b = 0; b < SENTENCES; b++) {
    const int64_t length = lengths[b];
    double largest = 0, apart = 0;
    outcome alone = pass_of(1, length, ids + b * o->length, lengths + b);
    for (int64_t n = 0; n <= LAYERS; n++) {
      apart = worse(apart, distance(token_of(o, n, b, 0), token_of(&alone, n, 0, 0), length * HIDDEN));
      for (int64_t i = 0; i < length * HIDDEN; i++)
        largest = fmax(largest, fabs((double)token_of(&alone, n, 0, 0)[i]));
    }
    states = worse(states, apart / largest);
    for (int64_t row = 0; row < LAYERS * HEADS * length; row++) {
      const int64_t layer = row / (HEADS * length), head = row / length % HEADS, token = row % length;
      const float *got = look_of(o, layer, b, head, token);
      weights = worse(weights, distance(got, look_of(&alone, layer, 0, head, token), length));
      for (int64_t j = length; j < o->length; j++)
        assert_true(got[j] == 0.0f);
    }
    vectors = worse(vectors, distance(o->embeddings + b * HIDDEN, alone.embeddings, HIDDEN));
    vectors = worse(vectors, distance(o->pooled + b * HIDDEN, alone.pooled, HIDDEN));
    forget(&alone);
  }
  judge("padded and alone", "layers, of the largest", states, order_allowed);
  judge("padded and alone", "weights", weights, order_allowed);
  judge("padded and alone", "pooled, normalised", vectors, order_allowed);
}

/* Whatever stands in the padding, the sentences' results are the same bits. */
static void padding_is_nothing(const outcome *o, const int32_t *ids, const int32_t *lengths) {
  int32_t *other = malloc((size_t)(SENTENCES * o->length) * sizeof *other);
  assert_non_null(other);
  int changed = 0;
  for (int64_t i = 0; i < SENTENCES * o->length; i++) {
    const int padding = i % o->length >= lengths[i / o->length];
    other[i] = padding ? (int32_t)(1000 + i * 7919 % 20000) : ids[i];
    changed += padding;
  }
  assert_true(changed > 0);
  outcome now = pass_of(SENTENCES, o->length, other, lengths);
  assert_memory_equal(now.embeddings, o->embeddings, SENTENCES * HIDDEN * sizeof(float));
  assert_memory_equal(now.pooled, o->pooled, SENTENCES * HIDDEN * sizeof(float));
  for (int64_t b = 0; b < SENTENCES; b++) {
    for (int64_t n = 0; n <= LAYERS; n++)
      assert_memory_equal(token_of(&now, n, b, 0), token_of(o, n, b, 0), (size_t)(lengths[b] * HIDDEN) * sizeof(float));
    for (int64_t row = 0; row < LAYERS * HEADS; row++)
      assert_memory_equal(look_of(&now, row / HEADS, b, row % HEADS, 0), look_of(o, row / HEADS, b, row % HEADS, 0),
                          (size_t)(lengths[b] * o->length) * sizeof(float));
  }
  forget(&now);
  free(other);
}

static void padded_batch(void **state) {
  (void)state;
  int32_t *ids = NULL, lengths[SENTENCES];
  const int64_t length = batch_ids(&ids, lengths);
  outcome o = pass_of(SENTENCES, length, ids, lengths);
  batch_is_golden(&o, lengths);
  batch_is_singles(&o, ids, lengths);
  padding_is_nothing(&o, ids, lengths);
  forget(&o);
  free(ids);
}

/* A pass waits once, makes no buffer after the first of its size, and sends token ids and lengths, no weights. */
static void waits_and_copies(void **state) {
  (void)state;
  int32_t *ids = NULL, lengths[SENTENCES];
  const int64_t length = batch_ids(&ids, lengths);
  const model_batch batch = {SENTENCES, length, ids, lengths};
  float *first = floats(SENTENCES * HIDDEN), *again = floats(SENTENCES * HIDDEN);
  run_pass(&batch, &(model_results){.embeddings = first});
  memset(&counted, 0, sizeof counted);
  run_pass(&batch, &(model_results){.embeddings = again});
  print_message("  a pass: %d launches, %d wait, %d new buffers, %zu bytes to the device\n", counted.launches,
                counted.waits, counted.buffers, counted.copied);
  assert_true(counted.launches > LAYERS);
  assert_int_equal(counted.waits, 1);
  assert_int_equal(counted.buffers, 0);
  assert_true(counted.copied >= (size_t)(SENTENCES * length) * sizeof(int32_t));
  assert_true(counted.copied <= (size_t)(SENTENCES * (length + 1 + LAYERS)) * sizeof(int32_t));
  assert_memory_equal(again, first, SENTENCES * HIDDEN * sizeof(float));
  /* A smaller pass in between changes nothing, and needs no memory either. */
  const int32_t five[] = {5};
  run_pass(&(model_batch){1, 5, ids, five}, &(model_results){.embeddings = again});
  run_pass(&batch, &(model_results){.embeddings = again});
  assert_int_equal(counted.waits, 3);
  assert_int_equal(counted.buffers, 0);
  assert_memory_equal(again, first, SENTENCES * HIDDEN * sizeof(float));
  free(first);
  free(again);
  free(ids);
}

static void refuse(const model_batch *batch, const char *part) {
  float vector[SENTENCES * HIDDEN] = {0};
  model_error error = {""};
  clattn_status status = CLATTN_SUCCESS;
  assert_int_equal(model_bert_run(model, batch, &(model_results){.embeddings = vector}, &status, &error), -1);
  assert_int_equal(status, CLATTN_SUCCESS);
  if (strstr(error.message, part) == NULL)
    fail_msg("no '%s' in: %s", part, error.message);
}

static void bad_batches(void **state) {
  (void)state;
  static int32_t many[513];
  const int32_t ids[] = {101, 7592, 102}, high[] = {101, 30522, 102}, low[] = {101, -1, 102};
  const int32_t three[] = {3}, none[] = {0}, four[] = {4}, all[] = {513};
  refuse(&(model_batch){0, 3, ids, three}, "is empty");
  refuse(&(model_batch){1, 0, ids, three}, "is empty");
  refuse(&(model_batch){1, 3, ids, none}, "has 0 tokens of 3");
  refuse(&(model_batch){1, 3, ids, four}, "has 4 tokens of 3");
  refuse(&(model_batch){1, 3, high, three}, "30522");
  refuse(&(model_batch){1, 3, low, three}, "-1");
  refuse(&(model_batch){1, 513, many, all}, "512 positions");
  refuse(&(model_batch){INT64_MAX, 512, many, all}, "too many");
}

/* ---- set-up ------------------------------------------------------------------------------------------------------ */

static int start(void **state) {
  (void)state;
  cl_context cl = NULL;
  cl_device_id device = NULL;
  cl_int code = CL_SUCCESS;
  clattn_nn_options options;
  clattn_status status = CLATTN_SUCCESS;
  model_error error = {""};
  clattn_nn_options_init(&options);
  options.kernels = kernels;
  if (clattn_context_create_default(NULL, &context, NULL) != CLATTN_SUCCESS ||
      clattn_context_handles(context, &cl, &device) != CLATTN_SUCCESS)
    return -1;
  queue = clCreateCommandQueue(cl, device, 0, &code);
  if (code != CL_SUCCESS)
    return -1;
  if (model_bert_open(context, queue, getenv("CLATTN_MODEL"), &options, &model, &status, &error) == 0)
    return 0;
  print_error("%s\n", error.message);
  return -1;
}

static int finish(void **state) {
  (void)state;
  model_bert_close(model);
  if (queue != NULL)
    clReleaseCommandQueue(queue);
  clattn_context_release(context);
  model = NULL;
  queue = NULL;
  context = NULL;
  return 0;
}

int main(void) {
  const char *folder = getenv("CLATTN_MODEL"), *required = getenv("CLATTN_MODEL_REQUIRED");
  const struct CMUnitTest tests[] = {cmocka_unit_test(token_ids), cmocka_unit_test(single_sentences),
                                     cmocka_unit_test(padded_batch), cmocka_unit_test(waits_and_copies),
                                     cmocka_unit_test(bad_batches)};
  if (folder == NULL || folder[0] == 0) {
    const int needed = required != NULL && strcmp(required, "1") == 0;
    fprintf(stderr, "%s: CLATTN_MODEL, the folder of all-MiniLM-L6-v2 (scripts/model prints it), is not set\n",
            needed ? "failed" : "skipped");
    return needed ? 1 : SKIPPED;
  }
  kernels = CLATTN_NN_KERNELS_LANES;
  int bad = cmocka_run_group_tests_name("kernels in lanes", tests, start, finish);
  kernels = CLATTN_NN_KERNELS_TILES;
  bad += cmocka_run_group_tests_name("kernels in tiles", tests, start, finish);
  return bad != 0;
}
