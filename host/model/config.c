/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "model_file.h"
#include "model_json.h"

/* Far above every model of this family, so that products of two of them fit in 64 bits. */
#define SIZE_MOST (INT64_C(1) << 24)

/* ---- one JSON file ---- */

typedef struct document {
  char *path;
  cJSON *root; /* NULL: an optional file that is not there */
  model_error *error;
} document;

static void close_document(document *d) {
  cJSON_Delete(d->root);
  free(d->path);
  memset(d, 0, sizeof *d);
}

static int fail(const document *d, const char *key, const cJSON *item, const char *rule) {
  return model_fail(d->error, "%s: %s is %s; %s", model_show_path(d->path).text, key, model_json_show(item).text, rule);
}

/* On failure the document is closed; an optional file that is not there has no root. */
static int open_document(const char *folder, const char *name, int optional, document *d, model_error *error) {
  model_file file;
  int result = -1;
  memset(&file, 0, sizeof file);
  memset(d, 0, sizeof *d);
  d->error = error;
  d->path = model_path(folder, name, error);
  if (d->path == NULL || model_file_map(d->path, optional, &file, error) != 0)
    goto done;
  if (file.bytes != NULL) {
    d->root = model_json_parse(d->path, file.bytes, file.count, error);
    if (d->root == NULL)
      goto done;
  }
  result = 0;
done:
  model_file_unmap(&file);
  if (result != 0)
    close_document(d);
  return result;
}

static int open_object(const char *folder, const char *name, int optional, document *d, model_error *error) {
  if (open_document(folder, name, optional, d, error) != 0)
    return -1;
  if (d->root == NULL || cJSON_IsObject(d->root))
    return 0;
  fail(d, "the document", d->root, "an object is needed");
  close_document(d);
  return -1;
}

/* NULL for a key that is absent or null. */
static const cJSON *get(const document *d, const char *key) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(d->root, key);
  return cJSON_IsNull(item) ? NULL : item;
}

static int missing(const document *d, const char *key) {
  return model_fail(d->error, "%s: %s is missing", model_show_path(d->path).text, key);
}

/* A whole number from `least` to `most`; what is absent keeps its default when it has one (optional). */
static int read_whole(const document *d, const char *key, int optional, int64_t least, int64_t most, int64_t *out) {
  const cJSON *item = get(d, key);
  int64_t value = 0;
  if (item == NULL)
    return optional ? 0 : missing(d, key);
  if (!model_json_whole(item, &value) || value < least || value > most)
    return model_fail(d->error, "%s: %s is %s; a whole number from %" PRId64 " to %" PRId64 " is needed",
                      model_show_path(d->path).text, key, model_json_show(item).text, least, most);
  *out = value;
  return 0;
}

static int read_bool(const document *d, const char *key, int *out) {
  const cJSON *item = get(d, key);
  if (item == NULL)
    return 0;
  if (!cJSON_IsBool(item))
    return fail(d, key, item, "true or false is needed");
  *out = cJSON_IsTrue(item);
  return 0;
}

/* A switch of which only one position is supported. */
static int need_bool(const document *d, const char *key, int wanted) {
  int value = wanted;
  if (read_bool(d, key, &value) != 0)
    return -1;
  return value == wanted ? 0 : fail(d, key, get(d, key), "this is not supported");
}

/* Which of `count` texts it is: *out, which keeps its value when the key is absent. */
static int read_choice(const document *d, const char *key, const char *const *texts, int count, const char *rule,
                       int *out) {
  const cJSON *item = get(d, key);
  if (item == NULL)
    return 0;
  for (int n = 0; n < count && cJSON_IsString(item); n++) {
    if (strcmp(item->valuestring, texts[n]) == 0) {
      *out = n;
      return 0;
    }
  }
  return fail(d, key, item, rule);
}

/* ---- config.json ---- */

static int read_sizes(const document *d, model_config *out) {
  static const struct {
    const char *key;
    size_t at;
    int64_t least, most;
    int optional;
  } sizes[] = {
      {"hidden_size", offsetof(model_config, hidden_size), 1, SIZE_MOST, 0},
      {"num_hidden_layers", offsetof(model_config, num_hidden_layers), 1, 4096, 0},
      {"num_attention_heads", offsetof(model_config, num_attention_heads), 1, SIZE_MOST, 0},
      {"intermediate_size", offsetof(model_config, intermediate_size), 1, SIZE_MOST, 0},
      {"max_position_embeddings", offsetof(model_config, max_position_embeddings), 2, SIZE_MOST, 0},
      {"vocab_size", offsetof(model_config, vocab_size), 1, SIZE_MOST, 0},
      {"type_vocab_size", offsetof(model_config, type_vocab_size), 1, SIZE_MOST, 1},
  };
  for (size_t n = 0; n < sizeof sizes / sizeof sizes[0]; n++) {
    int64_t value = 0;
    memcpy(&value, (const char *)out + sizes[n].at, sizeof value);
    if (read_whole(d, sizes[n].key, sizes[n].optional, sizes[n].least, sizes[n].most, &value) != 0)
      return -1;
    memcpy((char *)out + sizes[n].at, &value, sizeof value);
  }
  if (out->hidden_size % out->num_attention_heads != 0)
    return model_fail(d->error, "%s: num_attention_heads %" PRId64 " does not divide hidden_size %" PRId64,
                      model_show_path(d->path).text, out->num_attention_heads, out->hidden_size);
  out->head_dim = out->hidden_size / out->num_attention_heads;
  return read_whole(d, "pad_token_id", 1, 0, out->vocab_size - 1, &out->pad_token_id);
}

static int read_activation(const document *d, model_config *out) {
  static const char *const names[] = {"gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "swish"};
  static const model_activation values[] = {MODEL_GELU, MODEL_GELU_TANH, MODEL_GELU_TANH,
                                            MODEL_RELU, MODEL_SILU,      MODEL_SILU};
  int n = 0;
  if (read_choice(d, "hidden_act", names, sizeof names / sizeof names[0],
                  "gelu, gelu_new, gelu_pytorch_tanh, relu, silu and swish are supported", &n) != 0)
    return -1;
  out->hidden_act = values[n];
  return 0;
}

static int read_epsilon(const document *d, model_config *out) {
  const cJSON *item = get(d, "layer_norm_eps");
  if (item == NULL)
    return 0;
  if (!cJSON_IsNumber(item) || !(item->valuedouble > 0 && item->valuedouble < 1))
    return fail(d, "layer_norm_eps", item, "a number above 0 and below 1 is needed");
  out->layer_norm_eps = item->valuedouble;
  return 0;
}

static int read_transformer(const char *folder, model_config *out, model_error *error) {
  static const char *const types[] = {"bert"}, *const positions[] = {"absolute"};
  document d;
  int n = 0, result = -1;
  if (open_object(folder, "config.json", 0, &d, error) != 0)
    return -1;
  if (get(&d, "model_type") == NULL) {
    missing(&d, "model_type");
    goto done;
  }
  if (read_choice(&d, "model_type", types, 1, "only bert is supported", &n) != 0 ||
      read_choice(&d, "position_embedding_type", positions, 1, "only absolute is supported", &n) != 0 ||
      need_bool(&d, "is_decoder", 0) != 0 || need_bool(&d, "add_cross_attention", 0) != 0)
    goto done;
  if (read_sizes(&d, out) != 0 || read_activation(&d, out) != 0 || read_epsilon(&d, out) != 0)
    goto done;
  result = 0;
done:
  close_document(&d);
  return result;
}

/* ---- tokenizer_config.json, sentence_bert_config.json ---- */

/* A text, or an object that holds it as "content". */
static int read_token(const document *d, const char *key, char out[MODEL_TOKEN_MOST + 1]) {
  const cJSON *item = get(d, key), *text = item;
  if (item == NULL)
    return 0;
  if (cJSON_IsObject(item))
    text = cJSON_GetObjectItemCaseSensitive(item, "content");
  if (!cJSON_IsString(text) || text->valuestring[0] == 0)
    return fail(d, key, item, "a text is needed");
  const size_t bytes = strlen(text->valuestring) + 1;
  if (bytes > MODEL_TOKEN_MOST + 1)
    return model_fail(d->error, "%s: %s has %zu bytes; at most %d are supported", model_show_path(d->path).text, key,
                      bytes - 1, MODEL_TOKEN_MOST);
  memcpy(out, text->valuestring, bytes);
  return 0;
}

static int read_tokens(const document *d, model_config *out) {
  return read_token(d, "unk_token", out->unk_token) != 0 || read_token(d, "sep_token", out->sep_token) != 0 ||
                 read_token(d, "pad_token", out->pad_token) != 0 || read_token(d, "cls_token", out->cls_token) != 0 ||
                 read_token(d, "mask_token", out->mask_token) != 0
             ? -1
             : 0;
}

/* A token beyond the special ones would be cut out of texts before all else. */
static int check_added(const document *d, const char *key, const model_config *out) {
  const cJSON *list = get(d, key);
  for (const cJSON *item = list != NULL ? list->child : NULL; item != NULL; item = item->next) {
    const cJSON *text = cJSON_IsObject(item) ? cJSON_GetObjectItemCaseSensitive(item, "content") : item;
    if (!cJSON_IsString(text))
      return fail(d, key, item, "a text is needed");
    if (strcmp(text->valuestring, out->unk_token) != 0 && strcmp(text->valuestring, out->sep_token) != 0 &&
        strcmp(text->valuestring, out->pad_token) != 0 && strcmp(text->valuestring, out->cls_token) != 0 &&
        strcmp(text->valuestring, out->mask_token) != 0)
      return fail(d, key, text, "tokens beyond the five special ones are not supported");
  }
  return 0;
}

/* Some writers put 1e30 for "no limit", which is no exact whole number. */
static int read_model_max_length(const document *d, model_config *out) {
  static const char key[] = "model_max_length";
  const cJSON *item = get(d, key);
  if (item == NULL || (cJSON_IsNumber(item) && item->valuedouble > (double)out->max_position_embeddings))
    return 0;
  return read_whole(d, key, 1, 2, out->max_position_embeddings, &out->max_tokens);
}

static int read_tokenizer(const char *folder, model_config *out, model_error *error) {
  static const char *const classes[] = {"BertTokenizer", "BertTokenizerFast"};
  document d;
  int n = 0, result = -1;
  if (open_object(folder, "tokenizer_config.json", 1, &d, error) != 0)
    return -1;
  if (read_choice(&d, "tokenizer_class", classes, 2, "BertTokenizer and BertTokenizerFast are supported", &n) != 0 ||
      need_bool(&d, "do_basic_tokenize", 1) != 0 || read_bool(&d, "do_lower_case", &out->do_lower_case) != 0)
    goto done;
  out->strip_accents = out->do_lower_case;
  if (read_bool(&d, "strip_accents", &out->strip_accents) != 0 ||
      read_bool(&d, "tokenize_chinese_chars", &out->tokenize_chinese_chars) != 0)
    goto done;
  if (read_tokens(&d, out) != 0 || check_added(&d, "added_tokens_decoder", out) != 0 ||
      check_added(&d, "additional_special_tokens", out) != 0 || check_added(&d, "never_split", out) != 0 ||
      read_model_max_length(&d, out) != 0)
    goto done;
  result = 0;
done:
  close_document(&d);
  return result;
}

static int read_sentences(const char *folder, model_config *out, model_error *error) {
  document d;
  int lower = 0, result = -1;
  if (open_object(folder, "sentence_bert_config.json", 1, &d, error) != 0)
    return -1;
  if (read_whole(&d, "max_seq_length", 1, 2, out->max_position_embeddings, &out->max_tokens) != 0 ||
      read_bool(&d, "do_lower_case", &lower) != 0)
    goto done;
  out->do_lower_case |= lower;
  result = 0;
done:
  close_document(&d);
  return result;
}

/* ---- modules.json, pooling ---- */

/* One switch for each mode, of which one is on; a text "pooling_mode" stands above them. */
static int read_pooling_mode(const document *d, model_pooling *out) {
  static const char *const unsupported[] = {"pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens",
                                            "pooling_mode_weightedmean_tokens", "pooling_mode_lasttoken"};
  static const char *const modes[] = {"mean", "cls"};
  int mode = -1, mean = 1, cls = 0;
  if (read_choice(d, "pooling_mode", modes, 2, "mean and cls are supported", &mode) != 0)
    return -1;
  for (size_t n = 0; n < sizeof unsupported / sizeof unsupported[0] && mode < 0; n++) {
    if (need_bool(d, unsupported[n], 0) != 0)
      return -1;
  }
  if (read_bool(d, "pooling_mode_mean_tokens", &mean) != 0 || read_bool(d, "pooling_mode_cls_token", &cls) != 0)
    return -1;
  if (mode < 0 && mean == cls)
    return model_fail(d->error,
                      "%s: pooling_mode_mean_tokens and pooling_mode_cls_token are both %s; exactly one must be true",
                      model_show_path(d->path).text, mean ? "true" : "false");
  *out = mode == 1 || (mode < 0 && cls) ? MODEL_POOLING_CLS : MODEL_POOLING_MEAN;
  return 0;
}

static int read_pooling(const char *folder, const char *name, int optional, model_config *out, model_error *error) {
  document d;
  int result = -1;
  int64_t dimension = out->hidden_size;
  if (open_object(folder, name, optional, &d, error) != 0)
    return -1;
  if (read_pooling_mode(&d, &out->pooling) != 0 ||
      read_whole(&d, "word_embedding_dimension", 1, 1, SIZE_MOST, &dimension) != 0)
    goto done;
  if (dimension != out->hidden_size) {
    model_fail(error, "%s: word_embedding_dimension %" PRId64 " is not hidden_size %" PRId64 " of config.json",
               model_show_path(d.path).text, dimension, out->hidden_size);
    goto done;
  }
  result = 0;
done:
  close_document(&d);
  return result;
}

/* The last part of "sentence_transformers.models.Pooling"; NULL for what is no text. */
static const char *module_type(const cJSON *module) {
  const cJSON *type = cJSON_GetObjectItemCaseSensitive(module, "type");
  if (!cJSON_IsString(type))
    return NULL;
  const char *dot = strrchr(type->valuestring, '.');
  return dot != NULL ? dot + 1 : type->valuestring;
}

/* A folder inside the model's. */
static const char *module_path(const cJSON *module) {
  const cJSON *path = cJSON_GetObjectItemCaseSensitive(module, "path");
  if (!cJSON_IsString(path) || path->valuestring[0] == '/' || strstr(path->valuestring, "..") != NULL)
    return NULL;
  return path->valuestring;
}

static int read_module(const char *folder, const document *d, const cJSON *module, int n, model_config *out) {
  static const char *const order[] = {"Transformer", "Pooling", "Normalize"};
  const char *type = module_type(module), *path = module_path(module);
  if (type == NULL || path == NULL)
    return model_fail(d->error, "%s: module %d has no text 'type' or no 'path' inside the folder",
                      model_show_path(d->path).text, n);
  if (n > 2 || strcmp(type, order[n]) != 0)
    return model_fail(d->error, "%s: module %d is '%s'; Transformer, Pooling and then Normalize or none are supported",
                      model_show_path(d->path).text, n, model_show(type).text);
  if (n == 0 && path[0] != 0)
    return model_fail(d->error, "%s: the transformer lies in '%s'; only the model's folder itself is supported",
                      model_show_path(d->path).text, model_show(path).text);
  if (n == 2)
    out->normalize = 1;
  if (n != 1)
    return 0;
  char *name = model_path(path, "config.json", d->error);
  const int result = name != NULL ? read_pooling(folder, name, 0, out, d->error) : -1;
  free(name);
  return result;
}

static int read_modules(const char *folder, model_config *out, model_error *error) {
  document d;
  int count = 0, result = -1;
  if (open_document(folder, "modules.json", 1, &d, error) != 0)
    return -1;
  if (d.root == NULL) {
    result = read_pooling(folder, "1_Pooling/config.json", 1, out, error);
    goto done;
  }
  if (!cJSON_IsArray(d.root)) {
    fail(&d, "the document", d.root, "an array is needed");
    goto done;
  }
  out->normalize = 0;
  for (const cJSON *module = d.root->child; module != NULL; module = module->next) {
    if (read_module(folder, &d, module, count++, out) != 0)
      goto done;
  }
  if (count < 2) {
    model_fail(error, "%s: %d modules; Transformer and Pooling are needed", model_show_path(d.path).text, count);
    goto done;
  }
  result = 0;
done:
  close_document(&d);
  return result;
}

/* ---- the folder ---- */

static void set_defaults(model_config *out) {
  memset(out, 0, sizeof *out);
  out->type_vocab_size = 2;
  out->layer_norm_eps = 1e-12;
  out->do_lower_case = out->strip_accents = out->tokenize_chinese_chars = 1;
  memcpy(out->unk_token, "[UNK]", sizeof "[UNK]");
  memcpy(out->sep_token, "[SEP]", sizeof "[SEP]");
  memcpy(out->pad_token, "[PAD]", sizeof "[PAD]");
  memcpy(out->cls_token, "[CLS]", sizeof "[CLS]");
  memcpy(out->mask_token, "[MASK]", sizeof "[MASK]");
  out->normalize = 1;
}

int model_config_read(const char *folder, model_config *out, model_error *error) {
  set_defaults(out);
  if (read_transformer(folder, out, error) != 0)
    return -1;
  out->max_tokens = out->max_position_embeddings;
  return read_tokenizer(folder, out, error) != 0 || read_sentences(folder, out, error) != 0 ||
                 read_modules(folder, out, error) != 0
             ? -1
             : 0;
}
