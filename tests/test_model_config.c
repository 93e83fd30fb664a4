/* SPDX-License-Identifier: Apache-2.0 */
/* host/model/config.c: what a model's folder says is read, what it leaves out has its default, and what would change
 * the result and is not supported is refused by name. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config.h"

static char folder[] = "/tmp/clattn-model-XXXXXX";
static const char *const files[] = {"config.json",  "tokenizer_config.json", "sentence_bert_config.json",
                                    "modules.json", "1_Pooling/config.json", "pool/config.json"};
enum { FILES = sizeof files / sizeof files[0] };

static int start(void **state) {
  (void)state;
  if (mkdtemp(folder) == NULL || chdir(folder) != 0)
    return -1;
  return mkdir("1_Pooling", 0777) == 0 ? mkdir("pool", 0777) : -1;
}

static int clear(void **state) {
  (void)state;
  for (int n = 0; n < FILES; n++)
    unlink(files[n]);
  return 0;
}

static int finish(void **state) {
  (void)clear(state);
  if (rmdir("1_Pooling") != 0 || rmdir("pool") != 0 || chdir("/") != 0)
    return -1;
  return rmdir(folder);
}

static void write_text(const char *name, const char *text) {
  FILE *out = fopen(name, "wb");
  assert_non_null(out);
  assert_int_equal(fwrite(text, 1, strlen(text), out), strlen(text));
  assert_int_equal(fclose(out), 0);
}

/* ---- made-up folders ---- */

static const char *const fields[][2] = {
    {"model_type", "\"bert\""},     {"hidden_size", "48"},
    {"num_hidden_layers", "3"},     {"num_attention_heads", "4"},
    {"intermediate_size", "96"},    {"hidden_act", "\"relu\""},
    {"layer_norm_eps", "1e-5"},     {"max_position_embeddings", "100"},
    {"vocab_size", "1000"},         {"type_vocab_size", "1"},
    {"pad_token_id", "7"},          {"position_embedding_type", "\"absolute\""},
    {"hidden_dropout_prob", "0.1"}, {"id2label", "{\"0\":[true]}"},
};
enum { FIELDS = sizeof fields / sizeof fields[0] };

/* A good config.json but for one field, which has another value, is added or, with value NULL, is left out. */
static void write_config(const char *key, const char *value) {
  char text[2048] = "{";
  size_t used = 1;
  int found = 0;
  for (int n = 0; n < FIELDS; n++) {
    const char *is = fields[n][1];
    if (key != NULL && strcmp(fields[n][0], key) == 0) {
      found = 1;
      is = value;
    }
    if (is != NULL)
      used +=
          (size_t)snprintf(text + used, sizeof text - used, "%s\"%s\": %s", used > 1 ? ",\n" : "", fields[n][0], is);
  }
  if (key != NULL && !found)
    used += (size_t)snprintf(text + used, sizeof text - used, ", \"%s\": %s", key, value);
  used += (size_t)snprintf(text + used, sizeof text - used, "}\n");
  assert_true(used < sizeof text);
  write_text("config.json", text);
}

static model_config read_folder(void) {
  model_config config;
  model_error error = {""};
  if (model_config_read(".", &config, &error) != 0)
    fail_msg("%s", error.message);
  return config;
}

static void refuse(const char *name, const char *first, const char *second) {
  model_config config;
  model_error error = {""};
  char begin[64];
  snprintf(begin, sizeof begin, "./%s: ", name);
  if (model_config_read(".", &config, &error) == 0)
    fail_msg("accepted; %s '%s' was expected", begin, first);
  if (strncmp(error.message, begin, strlen(begin)) != 0 || strstr(error.message, first) == NULL ||
      (second != NULL && strstr(error.message, second) == NULL))
    fail_msg("'%s' does not hold '%s', '%s', '%s'", error.message, begin, first, second != NULL ? second : "");
  assert_int_equal(model_config_read(".", &config, NULL), -1);
}

static void refuse_field(const char *key, const char *value, const char *reason) {
  write_config(key, value);
  refuse("config.json", key, reason);
}

/* A good config.json and another file. */
static void refuse_text(const char *name, const char *text, const char *first, const char *second) {
  write_text(name, text);
  refuse(name, first, second);
  unlink(name);
}

static model_config read_with(const char *name, const char *text) {
  write_text(name, text);
  const model_config config = read_folder();
  unlink(name);
  return config;
}

/* ---- config.json ---- */

static void all_of_config(void **state) {
  (void)state;
  write_config(NULL, NULL);
  const model_config config = read_folder();
  assert_int_equal(config.hidden_size, 48);
  assert_int_equal(config.num_hidden_layers, 3);
  assert_int_equal(config.num_attention_heads, 4);
  assert_int_equal(config.head_dim, 12);
  assert_int_equal(config.intermediate_size, 96);
  assert_int_equal(config.max_position_embeddings, 100);
  assert_int_equal(config.vocab_size, 1000);
  assert_int_equal(config.type_vocab_size, 1);
  assert_int_equal(config.pad_token_id, 7);
  assert_true(config.layer_norm_eps == 1e-5);
  assert_int_equal(config.hidden_act, MODEL_RELU);
}

/* Alone in its folder, and without what has a default. */
static void defaults(void **state) {
  (void)state;
  static const char *const absent[] = {"layer_norm_eps", "hidden_act", "type_vocab_size", "pad_token_id",
                                       "position_embedding_type"};
  for (int null = 0; null < 2; null++) {
    for (size_t n = 0; n < sizeof absent / sizeof absent[0]; n++) {
      write_config(absent[n], null ? "null" : NULL);
      const model_config config = read_folder();
      assert_true(config.layer_norm_eps == (n == 0 ? 1e-12 : 1e-5));
      assert_int_equal(config.hidden_act, n == 1 ? MODEL_GELU : MODEL_RELU);
      assert_int_equal(config.type_vocab_size, n == 2 ? 2 : 1);
      assert_int_equal(config.pad_token_id, n == 3 ? 0 : 7);
    }
  }
  const model_config config = read_folder();
  assert_int_equal(config.do_lower_case, 1);
  assert_int_equal(config.strip_accents, 1);
  assert_int_equal(config.tokenize_chinese_chars, 1);
  assert_int_equal(config.max_tokens, 100);
  assert_string_equal(config.unk_token, "[UNK]");
  assert_string_equal(config.sep_token, "[SEP]");
  assert_string_equal(config.pad_token, "[PAD]");
  assert_string_equal(config.cls_token, "[CLS]");
  assert_string_equal(config.mask_token, "[MASK]");
  assert_int_equal(config.pooling, MODEL_POOLING_MEAN);
  assert_int_equal(config.normalize, 1);
}

static void activations(void **state) {
  (void)state;
  static const struct {
    const char *name;
    model_activation value;
  } all[] = {{"gelu", MODEL_GELU}, {"gelu_new", MODEL_GELU_TANH}, {"gelu_pytorch_tanh", MODEL_GELU_TANH},
             {"relu", MODEL_RELU}, {"silu", MODEL_SILU},          {"swish", MODEL_SILU}};
  for (size_t n = 0; n < sizeof all / sizeof all[0]; n++) {
    char value[32];
    snprintf(value, sizeof value, "\"%s\"", all[n].name);
    write_config("hidden_act", value);
    assert_int_equal(read_folder().hidden_act, all[n].value);
  }
  refuse_field("hidden_act", "\"quick_gelu\"", "hidden_act is 'quick_gelu'; gelu, gelu_new");
  refuse_field("hidden_act", "\"GELU\"", "hidden_act is 'GELU'");
  refuse_field("hidden_act", "\"gel\"", "hidden_act is 'gel'");
  refuse_field("hidden_act", "3", "hidden_act is 3");
}

static void other_models(void **state) {
  (void)state;
  refuse_field("model_type", "\"roberta\"", "model_type is 'roberta'; only bert");
  refuse_field("model_type", "\"distilbert\"", "'distilbert'");
  refuse_field("model_type", "[\"bert\"]", "model_type is an array");
  refuse_field("model_type", NULL, "model_type is missing");
  refuse_field("model_type", "null", "model_type is missing");
  refuse_field("position_embedding_type", "\"relative_key\"", "is 'relative_key'; only absolute");
  refuse_field("is_decoder", "true", "is_decoder is true; this is not supported");
  refuse_field("is_decoder", "0", "is_decoder is 0; true or false");
  refuse_field("add_cross_attention", "true", "add_cross_attention is true");
  write_config("is_decoder", "false");
  (void)read_folder();
}

static void sizes(void **state) {
  (void)state;
  static const char *const keys[] = {"hidden_size",       "num_hidden_layers",       "num_attention_heads",
                                     "intermediate_size", "max_position_embeddings", "vocab_size",
                                     "type_vocab_size"};
  static const char *const values[][2] = {
      {"0", "is 0; "},       {"-4", "is -4; "},         {"48.5", "is 48.5; "},    {"\"48\"", "is '48'; "},
      {"true", "is true; "}, {"[48]", "is an array; "}, {"{}", "is an object; "}, {"16777217", "is 16777217; "},
      {"1e300", "is 1"},     {"1e999", "is inf; "}};
  for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
    for (size_t v = 0; v < sizeof values / sizeof values[0]; v++)
      refuse_field(keys[k], values[v][0], values[v][1]);
    if (strcmp(keys[k], "type_vocab_size") != 0) {
      refuse_field(keys[k], NULL, "is missing");
      refuse_field(keys[k], "null", "is missing");
    }
  }
  refuse_field("max_position_embeddings", "1", "from 2 to");
  refuse_field("num_hidden_layers", "4097", "from 1 to 4096");
  refuse_field("num_attention_heads", "5", "num_attention_heads 5 does not divide hidden_size 48");
  refuse_field("hidden_size", "50", "num_attention_heads 4 does not divide hidden_size 50");
  refuse_field("num_attention_heads", "96", "num_attention_heads 96 does not divide hidden_size 48");
  refuse_field("pad_token_id", "1000", "from 0 to 999");
  refuse_field("pad_token_id", "-1", "is -1; ");
  refuse_field("pad_token_id", "0.5", "is 0.5; ");
  refuse_field("layer_norm_eps", "0", "is 0; a number above 0 and below 1");
  refuse_field("layer_norm_eps", "1", "is 1; ");
  refuse_field("layer_norm_eps", "-1e-5", "is -1.");
  refuse_field("layer_norm_eps", "\"1e-5\"", "is '1e-5'; ");
  write_config("hidden_size", "4.8e1");
  assert_int_equal(read_folder().hidden_size, 48);
  write_config("pad_token_id", "999");
  assert_int_equal(read_folder().pad_token_id, 999);
}

static void broken_config(void **state) {
  (void)state;
  model_config config;
  model_error error = {""};
  refuse("config.json", "can't be opened: No such file", NULL);
  write_text("config.json", "");
  refuse("config.json", "not valid JSON", NULL);
  write_text("config.json", "[]");
  refuse("config.json", "the document is an array; an object is needed", NULL);
  write_text("config.json", "{\"hidden_size\":48,}");
  refuse("config.json", "not valid JSON at byte", NULL);
  write_text("config.json", "{} {}");
  refuse("config.json", "not valid JSON at byte", NULL);
  write_text("config.json", "{\"model_type\":\"bert\",\"model_type\":\"roberta\"}");
  refuse("config.json", "the key 'model_type' stands twice", NULL);
  write_text("config.json", "{\"a\":\"\xff\"}");
  refuse("config.json", "byte 6: not UTF-8", NULL);
  write_text("config.json", "{\"a\":\"\xe2\x82");
  refuse("config.json", "byte 6: not UTF-8", NULL);
  unlink("config.json");
  assert_int_equal(mkdir("config.json", 0777), 0);
  refuse("config.json", "is not a regular file", NULL);
  assert_int_equal(rmdir("config.json"), 0);

  assert_int_equal(model_config_read("no/where", &config, &error), -1);
  assert_memory_equal(error.message, "no/where/config.json: can't be opened", 37);
  assert_int_equal(model_config_read("no/", &config, &error), -1);
  assert_memory_equal(error.message, "no/config.json: ", 16);
}

/* ---- the tokenizer ---- */

static const char tokenizer[] = "tokenizer_config.json", sentences[] = "sentence_bert_config.json";

static void tokenizer_settings(void **state) {
  (void)state;
  write_config(NULL, NULL);
  model_config config = read_with(tokenizer, "{}");
  assert_true(config.do_lower_case && config.strip_accents && config.tokenize_chinese_chars);
  config = read_with(tokenizer, "{\"do_lower_case\":false}");
  assert_true(!config.do_lower_case && !config.strip_accents && config.tokenize_chinese_chars);
  config = read_with(tokenizer, "{\"do_lower_case\":false,\"strip_accents\":null,\"tokenize_chinese_chars\":false}");
  assert_true(!config.do_lower_case && !config.strip_accents && !config.tokenize_chinese_chars);
  config = read_with(tokenizer, "{\"do_lower_case\":false,\"strip_accents\":true}");
  assert_true(!config.do_lower_case && config.strip_accents);
  config = read_with(tokenizer, "{\"strip_accents\":false}");
  assert_true(config.do_lower_case && !config.strip_accents);
  config = read_with(tokenizer, "{\"tokenizer_class\":\"BertTokenizerFast\",\"do_basic_tokenize\":true,"
                                "\"never_split\":null,\"additional_special_tokens\":[]}");
  assert_true(config.do_lower_case);
  refuse_text(tokenizer, "[]", "an object is needed", NULL);
  refuse_text(tokenizer, "{\"do_lower_case\":1}", "do_lower_case is 1; true or false", NULL);
  refuse_text(tokenizer, "{\"strip_accents\":\"yes\"}", "strip_accents is 'yes'", NULL);
  refuse_text(tokenizer, "{\"tokenize_chinese_chars\":0}", "tokenize_chinese_chars is 0", NULL);
  refuse_text(tokenizer, "{\"do_basic_tokenize\":false}", "do_basic_tokenize is false; this is not supported", NULL);
  refuse_text(tokenizer, "{\"tokenizer_class\":\"XLMRobertaTokenizer\"}", "tokenizer_class is 'XLMRobertaTokenizer'",
              "BertTokenizer");
  refuse_text(tokenizer, "{\"do_lower_case\"}", "not valid JSON", NULL);
}

/* sentence_bert_config.json lowers the text before the tokenizer, which then keeps its accents. */
static void lower_case_by_sentences(void **state) {
  (void)state;
  write_config(NULL, NULL);
  write_text(tokenizer, "{\"do_lower_case\":false}");
  model_config config = read_with(sentences, "{\"do_lower_case\":true}");
  assert_true(config.do_lower_case && !config.strip_accents);
  config = read_with(sentences, "{\"do_lower_case\":false}");
  assert_true(!config.do_lower_case);
  write_text(tokenizer, "{\"do_lower_case\":true}");
  config = read_with(sentences, "{\"do_lower_case\":false}");
  assert_true(config.do_lower_case && config.strip_accents);
  refuse_text(sentences, "{\"do_lower_case\":0}", "do_lower_case is 0", NULL);
}

static void longest_sequence(void **state) {
  (void)state;
  write_config(NULL, NULL);
  assert_int_equal(read_with(tokenizer, "{\"model_max_length\":64}").max_tokens, 64);
  assert_int_equal(read_with(tokenizer, "{\"model_max_length\":100}").max_tokens, 100);
  assert_int_equal(read_with(tokenizer, "{\"model_max_length\":101}").max_tokens, 100);
  assert_int_equal(read_with(tokenizer, "{\"model_max_length\":1000000000000000019884624838656}").max_tokens, 100);
  assert_int_equal(read_with(tokenizer, "{\"model_max_length\":null}").max_tokens, 100);
  refuse_text(tokenizer, "{\"model_max_length\":1}", "model_max_length is 1; ", "from 2 to 100");
  refuse_text(tokenizer, "{\"model_max_length\":-1}", "model_max_length is -1", NULL);
  refuse_text(tokenizer, "{\"model_max_length\":9.5}", "model_max_length is 9.5", NULL);
  refuse_text(tokenizer, "{\"model_max_length\":\"64\"}", "model_max_length is '64'", NULL);

  assert_int_equal(read_with(sentences, "{\"max_seq_length\":32}").max_tokens, 32);
  assert_int_equal(read_with(sentences, "{\"max_seq_length\":null}").max_tokens, 100);
  assert_int_equal(read_with(sentences, "{}").max_tokens, 100);
  refuse_text(sentences, "{\"max_seq_length\":101}", "max_seq_length is 101", "from 2 to 100");
  refuse_text(sentences, "{\"max_seq_length\":1}", "max_seq_length is 1; ", NULL);
  refuse_text(sentences, "{\"max_seq_length\":2.5}", "max_seq_length is 2.5", NULL);
  write_text(tokenizer, "{\"model_max_length\":64}");
  assert_int_equal(read_with(sentences, "{\"max_seq_length\":32}").max_tokens, 32);
  assert_int_equal(read_with(sentences, "{\"max_seq_length\":80}").max_tokens, 80);
  assert_int_equal(read_with(sentences, "{\"max_seq_length\":null}").max_tokens, 64);
}

static void special_tokens(void **state) {
  (void)state;
  char text[256], name[65];
  write_config(NULL, NULL);
  const model_config config =
      read_with(tokenizer, "{\"unk_token\":\"<u>\",\"sep_token\":{\"content\":\"<s>\",\"lstrip\":false},"
                           "\"pad_token\":null,\"cls_token\":\"<\xc3\xa9>\",\"mask_token\":\"<m>\","
                           "\"added_tokens_decoder\":{\"0\":{\"content\":\"[PAD]\"},\"3\":{\"content\":\"<m>\"}},"
                           "\"additional_special_tokens\":[\"<s>\"]}");
  assert_string_equal(config.unk_token, "<u>");
  assert_string_equal(config.sep_token, "<s>");
  assert_string_equal(config.pad_token, "[PAD]");
  assert_string_equal(config.cls_token, "<\xc3\xa9>");
  assert_string_equal(config.mask_token, "<m>");
  refuse_text(tokenizer, "{\"unk_token\":\"\"}", "unk_token is ''; a text is needed", NULL);
  refuse_text(tokenizer, "{\"sep_token\":5}", "sep_token is 5", NULL);
  refuse_text(tokenizer, "{\"pad_token\":{\"text\":\"x\"}}", "pad_token is an object", NULL);
  refuse_text(tokenizer, "{\"mask_token\":[]}", "mask_token is an array", NULL);
  memset(name, 'x', sizeof name);
  name[64] = 0;
  snprintf(text, sizeof text, "{\"cls_token\":\"%s\"}", name);
  refuse_text(tokenizer, text, "cls_token has 64 bytes; at most 63", NULL);
  snprintf(text, sizeof text, "{\"cls_token\":\"%s\"}", name + 1);
  assert_string_equal(read_with(tokenizer, text).cls_token, name + 1);
  refuse_text(tokenizer, "{\"added_tokens_decoder\":{\"9\":{\"content\":\"<new>\"}}}",
              "added_tokens_decoder is '<new>'", "beyond the five");
  refuse_text(tokenizer, "{\"added_tokens_decoder\":{\"9\":7}}", "added_tokens_decoder is 7", NULL);
  refuse_text(tokenizer, "{\"additional_special_tokens\":[\"<new>\"]}", "additional_special_tokens is '<new>'", NULL);
  refuse_text(tokenizer, "{\"never_split\":[\"<new>\"]}", "never_split is '<new>'", NULL);
}

/* ---- what follows the transformer ---- */

static const char modules[] = "modules.json", pooling[] = "1_Pooling/config.json";

#define MODULE(type, path)                                                                                             \
  "{\"idx\":0,\"name\":\"0\",\"path\":\"" path "\",\"type\":\"sentence_transformers.models." type "\"}"
#define FIRST MODULE("Transformer", "")
#define SECOND MODULE("Pooling", "1_Pooling")
#define THIRD MODULE("Normalize", "2_Normalize")

static void pooling_modes(void **state) {
  (void)state;
  write_config(NULL, NULL);
  assert_int_equal(read_with(pooling, "{}").pooling, MODEL_POOLING_MEAN);
  assert_int_equal(read_with(pooling, "{\"pooling_mode_mean_tokens\":true}").pooling, MODEL_POOLING_MEAN);
  model_config config = read_with(pooling, "{\"word_embedding_dimension\":48,\"pooling_mode_cls_token\":true,"
                                           "\"pooling_mode_mean_tokens\":false,\"pooling_mode_max_tokens\":false}");
  assert_int_equal(config.pooling, MODEL_POOLING_CLS);
  assert_int_equal(config.normalize, 1);
  assert_int_equal(read_with(pooling, "{\"pooling_mode\":\"cls\"}").pooling, MODEL_POOLING_CLS);
  config = read_with(pooling, "{\"pooling_mode\":\"mean\",\"pooling_mode_cls_token\":true}");
  assert_int_equal(config.pooling, MODEL_POOLING_MEAN);
  refuse_text(pooling, "{\"pooling_mode\":\"max\"}", "pooling_mode is 'max'; mean and cls", NULL);
  refuse_text(pooling, "{\"pooling_mode_cls_token\":true}", "are both true", NULL);
  refuse_text(pooling, "{\"pooling_mode_mean_tokens\":false}", "are both false", NULL);
  refuse_text(pooling, "{\"pooling_mode_max_tokens\":true}", "pooling_mode_max_tokens is true; this is not", NULL);
  refuse_text(pooling, "{\"pooling_mode_mean_sqrt_len_tokens\":true}", "pooling_mode_mean_sqrt_len_tokens is true",
              NULL);
  refuse_text(pooling, "{\"pooling_mode_weightedmean_tokens\":true}", "pooling_mode_weightedmean_tokens is true", NULL);
  refuse_text(pooling, "{\"pooling_mode_lasttoken\":true}", "pooling_mode_lasttoken is true", NULL);
  refuse_text(pooling, "{\"pooling_mode_mean_tokens\":1}", "pooling_mode_mean_tokens is 1; true or false", NULL);
  refuse_text(pooling, "{\"word_embedding_dimension\":47}", "word_embedding_dimension 47 is not hidden_size 48", NULL);
  refuse_text(pooling, "{\"word_embedding_dimension\":48.5}", "word_embedding_dimension is 48.5", NULL);
  refuse_text(pooling, "[]", "an object is needed", NULL);
}

static void module_lists(void **state) {
  (void)state;
  write_config(NULL, NULL);
  write_text(pooling, "{\"pooling_mode_cls_token\":true,\"pooling_mode_mean_tokens\":false}");
  model_config config = read_with(modules, "[" FIRST "," SECOND "," THIRD "]");
  assert_int_equal(config.pooling, MODEL_POOLING_CLS);
  assert_int_equal(config.normalize, 1);
  config = read_with(modules, "[" FIRST "," SECOND "]");
  assert_int_equal(config.pooling, MODEL_POOLING_CLS);
  assert_int_equal(config.normalize, 0);
  config = read_with(modules, "[{\"type\":\"Transformer\",\"path\":\"\"}," SECOND "]");
  assert_int_equal(config.normalize, 0);

  /* The pooling that modules.json names, and no other, which then has to be there. */
  write_text("pool/config.json", "{}");
  config = read_with(modules, "[" FIRST "," MODULE("Pooling", "pool") "]");
  assert_int_equal(config.pooling, MODEL_POOLING_MEAN);
  unlink("pool/config.json");
  write_text(modules, "[" FIRST "," MODULE("Pooling", "pool") "]");
  refuse("pool/config.json", "can't be opened: No such file", NULL);
}

static void refused_modules(void **state) {
  (void)state;
  write_config(NULL, NULL);
  write_text(pooling, "{}");
  refuse_text(modules, "{}", "the document is an object; an array is needed", NULL);
  refuse_text(modules, "[]", "0 modules; Transformer and Pooling are needed", NULL);
  refuse_text(modules, "[" FIRST "]", "1 modules; ", NULL);
  refuse_text(modules, "[" FIRST "," THIRD "]", "module 1 is 'Normalize'", NULL);
  refuse_text(modules, "[" SECOND "," FIRST "]", "module 0 is 'Pooling'", NULL);
  refuse_text(modules, "[" FIRST "," SECOND "," MODULE("Dense", "2_Dense") "," THIRD "]", "module 2 is 'Dense'",
              "Transformer, Pooling and then Normalize");
  refuse_text(modules, "[" FIRST "," SECOND "," THIRD "," THIRD "]", "module 3 is 'Normalize'", NULL);
  refuse_text(modules, "[" MODULE("Transformer", "0_Transformer") "," SECOND "]", "lies in '0_Transformer'", NULL);
  refuse_text(modules, "[" FIRST "," MODULE("Pooling", "../1_Pooling") "]", "module 1 has no", "inside the folder");
  refuse_text(modules, "[" FIRST "," MODULE("Pooling", "/etc") "]", "module 1 has no", NULL);
  refuse_text(modules, "[" FIRST ",{\"type\":\"a.Pooling\"}]", "module 1 has no", NULL);
  refuse_text(modules, "[" FIRST ",{\"path\":\"1_Pooling\"}]", "module 1 has no", NULL);
  refuse_text(modules, "[" FIRST ",7]", "module 1 has no", NULL);
}

/* The files of a well-known model of 6 layers, field by field as they are published. */
static void minilm(void **state) {
  (void)state;
  write_text("config.json",
             "{\n  \"_name_or_path\": \"nreimers/MiniLM-L6-H384-uncased\",\n  \"architectures\": [\n    \"BertModel\"\n"
             "  ],\n  \"attention_probs_dropout_prob\": 0.1,\n  \"gradient_checkpointing\": false,\n"
             "  \"hidden_act\": \"gelu\",\n  \"hidden_dropout_prob\": 0.1,\n  \"hidden_size\": 384,\n"
             "  \"initializer_range\": 0.02,\n  \"intermediate_size\": 1536,\n  \"layer_norm_eps\": 1e-12,\n"
             "  \"max_position_embeddings\": 512,\n  \"model_type\": \"bert\",\n  \"num_attention_heads\": 12,\n"
             "  \"num_hidden_layers\": 6,\n  \"pad_token_id\": 0,\n  \"position_embedding_type\": \"absolute\",\n"
             "  \"transformers_version\": \"4.8.2\",\n  \"type_vocab_size\": 2,\n  \"use_cache\": true,\n"
             "  \"vocab_size\": 30522\n}\n");
  write_text(tokenizer, "{\"do_lower_case\": true, \"unk_token\": \"[UNK]\", \"sep_token\": \"[SEP]\", \"pad_token\": "
                        "\"[PAD]\", \"cls_token\": \"[CLS]\", \"mask_token\": \"[MASK]\", "
                        "\"tokenize_chinese_chars\": true, \"strip_accents\": null, \"do_basic_tokenize\": true, "
                        "\"never_split\": null, \"tokenizer_class\": \"BertTokenizer\", \"model_max_length\": 512}");
  write_text(sentences, "{\n  \"max_seq_length\": 256,\n  \"do_lower_case\": false\n}");
  write_text(modules, "[" FIRST "," SECOND "," THIRD "]");
  write_text(pooling, "{\n  \"word_embedding_dimension\": 384,\n  \"pooling_mode_cls_token\": false,\n"
                      "  \"pooling_mode_mean_tokens\": true,\n  \"pooling_mode_max_tokens\": false,\n"
                      "  \"pooling_mode_mean_sqrt_len_tokens\": false\n}");
  const model_config config = read_folder();
  assert_int_equal(config.hidden_size, 384);
  assert_int_equal(config.head_dim, 32);
  assert_int_equal(config.num_hidden_layers, 6);
  assert_int_equal(config.intermediate_size, 1536);
  assert_int_equal(config.vocab_size, 30522);
  assert_int_equal(config.max_position_embeddings, 512);
  assert_int_equal(config.max_tokens, 256);
  assert_int_equal(config.hidden_act, MODEL_GELU);
  assert_true(config.layer_norm_eps == 1e-12);
  assert_true(config.do_lower_case && config.strip_accents && config.tokenize_chinese_chars);
  assert_int_equal(config.pooling, MODEL_POOLING_MEAN);
  assert_int_equal(config.normalize, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(all_of_config, clear),
      cmocka_unit_test_teardown(defaults, clear),
      cmocka_unit_test_teardown(activations, clear),
      cmocka_unit_test_teardown(other_models, clear),
      cmocka_unit_test_teardown(sizes, clear),
      cmocka_unit_test_teardown(broken_config, clear),
      cmocka_unit_test_teardown(tokenizer_settings, clear),
      cmocka_unit_test_teardown(lower_case_by_sentences, clear),
      cmocka_unit_test_teardown(longest_sequence, clear),
      cmocka_unit_test_teardown(special_tokens, clear),
      cmocka_unit_test_teardown(pooling_modes, clear),
      cmocka_unit_test_teardown(module_lists, clear),
      cmocka_unit_test_teardown(refused_modules, clear),
      cmocka_unit_test_teardown(minilm, clear),
  };
  return cmocka_run_group_tests(tests, start, finish);
}
