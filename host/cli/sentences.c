/* SPDX-License-Identifier: Apache-2.0 */
#include "sentences.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "model_file.h"
#include "wordpiece.h"

/* A sentence of the model's reader; what the device refused is no fault of the input. */
static int fail_model(clattn_status status, const model_error *error) {
  return cli_fail(status == CLATTN_SUCCESS ? CLI_USAGE : CLI_FAILED, "%s", error->message);
}

int cli_model_open(const char *folder, const char *device, cli_model *out) {
  model_error error;
  clattn_status status = CLATTN_SUCCESS;
  memset(out, 0, sizeof *out);
  if (folder == NULL)
    return cli_fail(CLI_USAGE, "--model is needed: a folder with config.json, vocab.txt and model.safetensors");
  const int code = cli_session_open(device, &out->session);
  if (code != CLI_OK) {
    memset(out, 0, sizeof *out);
    return code;
  }
  cli_progress_begin("loading the model", NULL, 0);
  const int bad = model_bert_open(out->session.context, out->session.queue, folder, NULL, &out->bert, &status, &error);
  cli_progress_end();
  return bad != 0 ? fail_model(status, &error) : CLI_OK;
}

void cli_model_close(cli_model *model) {
  model_bert_close(model->bert);
  if (model->session.context != NULL)
    cli_session_close(&model->session);
  memset(model, 0, sizeof *model);
}

int cli_model_begin(const char *folder, cli_files *files) {
  static const char *const names[] = {"config.json",           "vocab.txt",    "model.safetensors",
                                      "tokenizer_config.json", "modules.json", "sentence_bert_config.json",
                                      "1_Pooling/config.json"};
  enum { COUNT = sizeof names / sizeof names[0] };
  const char *inputs[COUNT];
  char *paths[COUNT];
  int code = CLI_OK;
  for (int i = 0; i < COUNT; i++) {
    inputs[i] = paths[i] = model_path(folder, names[i], NULL);
    if (paths[i] == NULL)
      code = cli_fail_memory();
  }
  if (code == CLI_OK)
    code = cli_files_begin(files, inputs, COUNT);
  for (int i = 0; i < COUNT; i++)
    free(paths[i]);
  return code;
}

static int tokenize(const cli_model *model, int number, const char *text, int truncate, model_tokens *out) {
  const model_config *config = model_bert_config(model->bert);
  const model_wordpiece settings = {config->do_lower_case, config->strip_accents, config->tokenize_chinese_chars,
                                    config->max_tokens, truncate};
  model_error error;
  if (model_tokenize(&settings, model_bert_vocab(model->bert), text, strlen(text), out, &error) != 0)
    return cli_fail(CLI_USAGE, "sentence %d: %s", number, error.message);
  if (out->count <= 2)
    return cli_fail(CLI_USAGE, "sentence %d is empty: it has no token of its own", number);
  return CLI_OK;
}

/* Tokens of sentences as rows of one length. */
static int pad_tokens(const model_tokens *tokens, int count, size_t length, int32_t pad, cli_sentences *out) {
  out->ids = malloc((size_t)count * length * sizeof *out->ids);
  out->lengths = malloc((size_t)count * sizeof *out->lengths);
  if (out->ids == NULL || out->lengths == NULL)
    return cli_fail_memory();
  for (int i = 0; i < count; i++) {
    out->lengths[i] = (int32_t)tokens[i].count;
    for (size_t n = 0; n < length; n++)
      out->ids[(size_t)i * length + n] = n < tokens[i].count ? tokens[i].ids[n] : pad;
  }
  out->batch.batch = count;
  out->batch.length = (int64_t)length;
  out->batch.ids = out->ids;
  out->batch.lengths = out->lengths;
  return CLI_OK;
}

int cli_sentences_read(const cli_model *model, char *const *texts, int count, int truncate, cli_sentences *out) {
  const int32_t pad = model_vocab_special(model_bert_vocab(model->bert), MODEL_PAD);
  model_tokens *tokens = calloc((size_t)count, sizeof *tokens);
  size_t longest = 2; /* [CLS] and [SEP] */
  int code = CLI_OK;
  memset(out, 0, sizeof *out);
  if (tokens == NULL)
    return cli_fail_memory();
  for (int i = 0; i < count && code == CLI_OK; i++) {
    code = tokenize(model, i + 1, texts[i], truncate, &tokens[i]);
    longest = tokens[i].count > longest ? tokens[i].count : longest;
  }
  if (code == CLI_OK)
    code = pad_tokens(tokens, count, longest, pad, out);
  for (int i = 0; i < count; i++)
    model_tokens_free(&tokens[i]);
  free(tokens);
  return code;
}

void cli_sentences_free(cli_sentences *sentences) {
  free(sentences->ids);
  free(sentences->lengths);
  memset(sentences, 0, sizeof *sentences);
}

int cli_model_run(const cli_model *model, const cli_sentences *sentences, const model_results *results) {
  model_error error;
  clattn_status status = CLATTN_SUCCESS;
  cli_progress_begin("computing", NULL, 0);
  const int bad = model_bert_run(model->bert, &sentences->batch, results, &status, &error);
  cli_progress_end();
  return bad != 0 ? fail_model(status, &error) : CLI_OK;
}
