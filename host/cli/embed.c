/* SPDX-License-Identifier: Apache-2.0 */
/* clattn embed: sentences as vectors, by a model of the BERT family. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "heatmap.h"
#include "options.h"
#include "outputs.h"
#include "sentences.h"
#include "words.h"

static const char help[] =
    "usage: clattn embed --model DIR SENTENCE... [options]\n"
    "\n"
    "Computes a vector for each sentence, and how alike the sentences are: the cosine of their vectors, 1 for the "
    "same\n"
    "direction.  The model's layers run on the device, without copies back in between.\n"
    "\n"
    "  --model DIR     a BERT-family model: config.json, vocab.txt, model.safetensors (F32, F16 or BF16)\n"
    "  --out F         the vectors (.npy), (sentences, hidden size), f4\n"
    "  --truncate      cut sentences that are longer than the model takes, instead of refusing them\n"
    "  --device ID     an id or number of 'clattn devices'; default: GPUs before accelerators before CPUs\n"
    "  --help          this text\n"
    "\n"
    "Exit codes: 0 done; 1 the work failed; 2 wrong usage or input; 3 no device; 130, 143 and 129 ended by SIGINT,\n"
    "SIGTERM and SIGHUP.\n"
    "\n"
    "examples:\n"
    "  clattn embed --model all-MiniLM-L6-v2 'A cat sits on the mat.' 'On the mat sits a cat.' 'Stocks fell today.'\n"
    "  clattn embed --model all-MiniLM-L6-v2 --out vectors.npy 'one sentence'\n";

static const struct option longs[] = {{"model", required_argument, NULL, 'm'}, {"out", required_argument, NULL, 'o'},
                                      {"truncate", no_argument, NULL, 't'},    {"device", required_argument, NULL, 'd'},
                                      {"help", no_argument, NULL, 'h'},        {NULL, 0, NULL, 0}};

static double cosine(const float *a, const float *b, int64_t count) {
  double product = 0, aa = 0, bb = 0;
  for (int64_t i = 0; i < count; i++) {
    product += (double)a[i] * (double)b[i];
    aa += (double)a[i] * (double)a[i];
    bb += (double)b[i] * (double)b[i];
  }
  return product / (sqrt(aa) * sqrt(bb));
}

static void print_table(const cli_labels *texts, const float *vectors, int64_t columns) {
  const int count = (int)texts->count;
  for (int i = 0; i < count; i++)
    printf("%3d  %s\n", i + 1, texts->text[i]);
  printf("\nvectors of %" PRId64 " numbers; the first one begins", columns);
  for (int64_t i = 0; i < columns && i < 4; i++)
    printf(" %.4f", cli_unsigned_nan((double)vectors[i]));
  printf("\n");
  if (count < 2)
    return;
  printf("\ncosine similarity\n     ");
  for (int i = 0; i < count; i++)
    printf("%8d", i + 1);
  printf("\n");
  for (int i = 0; i < count; i++) {
    printf("%3d  ", i + 1);
    for (int j = 0; j < count; j++)
      printf("%8.3f", cli_unsigned_nan(cosine(vectors + i * columns, vectors + j * columns, columns)));
    printf("\n");
  }
}

/* The work, with the output's place made sure before it. */
static int embed(const char *folder, const char *device, const char *out, char *const *texts, int count, int truncate) {
  cli_model model;
  cli_sentences sentences;
  cli_files files;
  cli_labels shown = {NULL, 0}; /* the sentences, fit for a terminal */
  float *vectors = NULL;
  memset(&sentences, 0, sizeof sentences);
  memset(&files, 0, sizeof files);
  files.file[0].option = "out";
  files.file[0].path = out;
  memset(&model, 0, sizeof model);
  int code =
      count < 1 ? cli_fail(CLI_USAGE, "a sentence is needed, in quotes") : cli_model_open(folder, device, &model);
  if (code == CLI_OK)
    code = cli_sentences_read(&model, texts, count, truncate, &sentences);
  for (int i = 0; i < count && code == CLI_OK; i++)
    code = cli_labels_add(&shown, texts[i], strlen(texts[i]));
  if (code == CLI_OK)
    code = cli_model_begin(folder, &files);
  if (code != CLI_OK)
    goto done;
  const int64_t shape[2] = {count, model_bert_config(model.bert)->hidden_size}, stride[2] = {shape[1], 1};
  vectors = malloc((size_t)(shape[0] * shape[1]) * sizeof *vectors);
  if (vectors == NULL) {
    code = cli_fail_memory();
    goto done;
  }
  const model_results results = {.embeddings = vectors};
  code = cli_model_run(&model, &sentences, &results);
  if (code == CLI_OK && out != NULL)
    code = cli_files_put(&files.file[0], "f4", 2, shape, stride, vectors);
  if (code == CLI_OK)
    code = cli_files_commit(&files);
  if (code == CLI_OK)
    print_table(&shown, vectors, shape[1]);

done:
  cli_files_discard(&files);
  cli_labels_free(&shown);
  cli_sentences_free(&sentences);
  cli_model_close(&model);
  free(vectors);
  return code;
}

int cli_embed(int argc, char **argv) {
  const char *folder = NULL, *device = NULL, *out = NULL;
  char **words = NULL, **texts = NULL;
  int count = 0, truncate = 0, option;
  int code = cli_take_words(argc, argv, longs, &words, &argc, &texts, &count);
  if (code != CLI_OK)
    return code;
  while ((option = cli_next_option(argc, words, longs)) != -1) {
    switch (option) {
    case 'm':
      folder = optarg;
      break;
    case 'o':
      out = optarg;
      break;
    case 't':
      truncate = 1;
      break;
    case 'd':
      device = optarg;
      break;
    case 'h':
      free(words);
      return cli_print_help(help);
    default:
      free(words);
      return CLI_USAGE;
    }
  }
  code = embed(folder, device, out, texts, count, truncate);
  free(words);
  return code;
}
