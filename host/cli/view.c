/* SPDX-License-Identifier: Apache-2.0 */
/* clattn view: what a model's heads look at in a sentence. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "heatmap.h"
#include "options.h"
#include "outputs.h"
#include "picture.h"
#include "sentences.h"
#include "words.h"

static const char help[] =
    "usage: clattn view --model DIR SENTENCE [options]\n"
    "\n"
    "Shows the attention weights of a model of the BERT family: rows are the tokens that look, columns the tokens "
    "that\n"
    "they look at, and each row sums to 1.  Without --heatmap the heat map of one head goes to the terminal.\n"
    "\n"
    "  --model DIR     a BERT-family model: config.json, vocab.txt, model.safetensors (F32, F16 or BF16)\n"
    "  --layer N       only this layer, from 0; default: all in a file, the first in the terminal\n"
    "  --head N        only this head, from 0; likewise\n"
    "  --heatmap F     a picture (.svg, .png) or a page with selectors of layer and head (.html)\n"
    "  --hide-special  leave out [CLS] and [SEP], which many heads rest on; rows then sum to less than 1\n"
    "  --save W        the weights shown (.npy), (layers, heads, tokens, tokens), f4\n"
    "  --truncate      cut a sentence that is longer than the model takes, instead of refusing it\n"
    "  --device ID     an id or number of 'clattn devices'; default: GPUs before accelerators before CPUs\n"
    "  --help          this text\n"
    "\n"
    "Exit codes: 0 done; 1 the work failed; 2 wrong usage or input; 3 no device; 130, 143 and 129 ended by SIGINT,\n"
    "SIGTERM and SIGHUP.\n"
    "\n"
    "examples:\n"
    "  clattn view --model all-MiniLM-L6-v2 'Tom chases Jerry' --layer 2 --head 5\n"
    "  clattn view --model all-MiniLM-L6-v2 'The animal did not cross the street because it was tired' --heatmap "
    "h.html\n"
    "  clattn view --model all-MiniLM-L6-v2 'Tom chases Jerry' --layer 0 --hide-special --heatmap layer0.svg\n";

static const struct option longs[] = {
    {"model", required_argument, NULL, 'm'},  {"layer", required_argument, NULL, 'l'},
    {"head", required_argument, NULL, 'n'},   {"heatmap", required_argument, NULL, 'f'},
    {"hide-special", no_argument, NULL, 's'}, {"save", required_argument, NULL, 'w'},
    {"truncate", no_argument, NULL, 't'},     {"device", required_argument, NULL, 'd'},
    {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0}};

typedef struct view_options {
  const char *folder, *device, *heatmap, *save, *layer, *head;
  int truncate, hide_special;
} view_options;

/* What is shown of the weights. */
typedef struct shown {
  int64_t layer, layers, head, heads, token, tokens;
} shown;

static int take_index(const char *name, const char *text, int64_t count, int64_t *first, int64_t *shown_count) {
  int64_t value = 0;
  *first = 0;
  *shown_count = count;
  if (text == NULL)
    return CLI_OK;
  if (!cli_parse_int64(text, &value) || value < 0 || value >= count)
    return cli_fail(CLI_USAGE, "--%s: '%s' is not one of 0 to %" PRId64, name, text, count - 1);
  *first = value;
  *shown_count = 1;
  return CLI_OK;
}

static int choose(const view_options *o, const model_config *config, int64_t length, shown *s) {
  int code = take_index("layer", o->layer, config->num_hidden_layers, &s->layer, &s->layers);
  if (code == CLI_OK)
    code = take_index("head", o->head, config->num_attention_heads, &s->head, &s->heads);
  s->token = o->hide_special ? 1 : 0;
  s->tokens = o->hide_special ? length - 2 : length;
  return code;
}

static int label_tokens(const cli_model *model, const cli_sentences *sentences, const shown *s, cli_labels *labels) {
  int code = CLI_OK;
  for (int64_t i = 0; i < s->tokens && code == CLI_OK; i++) {
    const char *text = model_vocab_text(model_bert_vocab(model->bert), sentences->ids[s->token + i]);
    code = cli_labels_add(labels, text, strlen(text));
  }
  return code;
}

static int show(const view_options *o, const shown *s, const model_config *config, int64_t length, const char *title,
                const float *weights, const cli_labels *labels, cli_files *files) {
  const int64_t heads = config->num_attention_heads, area = length * length;
  const float *first = weights + ((s->layer * heads + s->head) * length + s->token) * length + s->token;
  const int64_t shape[4] = {s->layers, s->heads, s->tokens, s->tokens}, stride[4] = {heads * area, area, length, 1};
  cli_picture picture;
  int code = CLI_OK;
  cli_picture_init(&picture);
  picture.title = title;
  picture.weights = first;
  memcpy(picture.shape, shape, sizeof shape);
  memcpy(picture.stride, stride, sizeof stride);
  picture.rows = picture.columns = labels;
  picture.first_layer = s->layer;
  picture.first_head = s->head;
  if (o->save != NULL)
    code = cli_files_put(&files->file[0], "f4", 4, shape, stride, first);
  if (code == CLI_OK && o->heatmap != NULL)
    code = cli_picture_put(&picture, &files->file[1]);
  if (code == CLI_OK)
    code = cli_files_commit(files);
  if (code == CLI_OK && o->heatmap == NULL) {
    printf("layer %" PRId64 ", head %" PRId64 "\n", s->layer, s->head);
    cli_heatmap(first, s->tokens, s->tokens, length, 1, labels, labels);
  }
  return code;
}

static int view(const view_options *o, char *const *texts, int count) {
  cli_model model;
  cli_sentences sentences;
  cli_files files;
  cli_labels labels = {NULL, 0};
  shown s = {0, 0, 0, 0, 0, 0};
  float *weights = NULL;
  memset(&sentences, 0, sizeof sentences);
  memset(&files, 0, sizeof files);
  files.file[0].option = "save";
  files.file[0].path = o->save;
  files.file[1].option = "heatmap";
  files.file[1].path = o->heatmap;
  memset(&model, 0, sizeof model);
  int code =
      count == 1
          ? cli_model_open(o->folder, o->device, &model)
          : cli_fail(CLI_USAGE, count < 1 ? "a sentence is needed, in quotes" : "one sentence, in quotes; there are %d",
                     count);
  if (code == CLI_OK)
    code = cli_sentences_read(&model, texts, count, o->truncate, &sentences);
  if (code != CLI_OK)
    goto done;
  const model_config *config = model_bert_config(model.bert);
  const int64_t length = sentences.batch.length;
  code = choose(o, config, length, &s);
  const int64_t shape[4] = {s.layers, s.heads, s.tokens, s.tokens};
  if (code == CLI_OK && o->heatmap != NULL)
    code = cli_picture_check("heatmap", o->heatmap, shape);
  if (code == CLI_OK && o->heatmap == NULL && s.tokens > CLI_HEAT_MOST)
    code = cli_fail(CLI_USAGE, "%" PRId64 " tokens are too many for the terminal's %d; --heatmap F draws them",
                    s.tokens, CLI_HEAT_MOST);
  if (code == CLI_OK)
    code = label_tokens(&model, &sentences, &s, &labels);
  if (code == CLI_OK)
    code = cli_model_begin(o->folder, &files);
  if (code != CLI_OK)
    goto done;
  weights =
      malloc((size_t)(config->num_hidden_layers * config->num_attention_heads * length * length) * sizeof *weights);
  if (weights == NULL) {
    code = cli_fail_memory();
    goto done;
  }
  const model_results results = {.weights = weights};
  code = cli_model_run(&model, &sentences, &results);
  if (code == CLI_OK)
    code = show(o, &s, config, length, texts[0], weights, &labels, &files);

done:
  cli_files_discard(&files);
  cli_labels_free(&labels);
  cli_sentences_free(&sentences);
  cli_model_close(&model);
  free(weights);
  return code;
}

int cli_view(int argc, char **argv) {
  view_options o;
  char **words = NULL, **texts = NULL;
  int count = 0, option;
  memset(&o, 0, sizeof o);
  int code = cli_take_words(argc, argv, longs, &words, &argc, &texts, &count);
  if (code != CLI_OK)
    return code;
  while ((option = cli_next_option(argc, words, longs)) != -1) {
    const struct {
      int option;
      const char **text;
      int *flag;
    } list[] = {{'m', &o.folder, NULL}, {'l', &o.layer, NULL},  {'n', &o.head, NULL},     {'f', &o.heatmap, NULL},
                {'w', &o.save, NULL},   {'d', &o.device, NULL}, {'t', NULL, &o.truncate}, {'s', NULL, &o.hide_special}};
    int known = 0;
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
      if (list[i].option != option)
        continue;
      known = 1;
      if (list[i].text != NULL)
        *list[i].text = optarg;
      else
        *list[i].flag = 1;
    }
    if (!known) {
      free(words);
      return option == 'h' ? cli_print_help(help) : CLI_USAGE;
    }
  }
  code = view(&o, texts, count);
  free(words);
  return code;
}
