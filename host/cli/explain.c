/* SPDX-License-Identifier: Apache-2.0 */
/* clattn explain: every step of attention on small matrices, computed through OpenCL. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "explain_page.h"
#include "explain_small.h"
#include "explain_steps.h"
#include "heatmap.h"
#include "options.h"
#include "request.h"

static const char help[] =
    "usage: clattn explain --q M --k M --v M [options]\n"
    "       clattn explain --x M --wq M --wk M --wv M [options]\n"
    "       clattn explain --given-weights M --v M [options]\n"
    "\n"
    "Shows the steps of attention on matrices up to 8 x 8: projections, scores, scaled scores, softmax with its row\n"
    "sums, output.  Products and attention are computed through OpenCL; what is none of both, the sums, norms and\n"
    "maxima of --add-norm, --w1 and --w2, on the host.\n"
    "\n"
    "  --q, --k, --v M     a matrix as text (\"1 0; 0 1\"), a .csv, .txt or .npy file\n"
    "\n"
    "Attention as a layer of a model has it.  A word is a row, so Q = X W with the matrix as it is written:\n"
    "  --x M               the words, one row each\n"
    "  --wq, --wk, --wv M  projections: Q = X W^Q, K = X W^K, V = X W^V\n"
    "  --heads N           heads, each with its own columns of Q, K and V; default 1\n"
    "  --wo M              output projection: Y = C W^O, where C are the outputs of all heads, side by side\n"
    "  --add-norm          then LayerNorm(X + Y), with epsilon 0.00001, gain 1 and bias 0\n"
    "  --w1, --w2 M        then N + max(0, N W1) W2 and its LayerNorm: the whole encoder block\n"
    "\n"
    "Weights that are final, as in a textbook:\n"
    "  --given-weights M   one row per query, which sums to 1; shows the weighted sums of the rows of --v\n"
    "\n"
    "  --similarity NAME   dot (default), cosine, additive, or all: the three beside each other\n"
    "  --add-w V           the vector w of additive: w . tanh(q + k)\n"
    "  --causal [A]        key j <= position of the query; A is top-left or bottom-right\n"
    "  --query-offset N    position of query 0 on the key axis\n"
    "  --window L,R        keys from L before to R behind the position; inf = unlimited\n"
    "  --scale X           default 1/sqrt(dim) for dot, 1 for the others\n"
    "  --softcap X         scores become X tanh(score / X)\n"
    "  --q-labels, --k-labels A,B,...|@FILE   names of queries and keys; with --x one of them names both\n"
    "  --format NAME       text (default), markdown, or html: a page that needs nothing else\n"
    "  --device ID         an id or number of 'clattn devices'\n"
    "  --variant NAME      kernels to use, instead of the best that fits\n"
    "  --help              this text\n"
    "\n"
    "examples:\n"
    "  clattn explain --q '1 0; 0 1' --k '1 0; 0 1' --v '1 2; 3 4'\n"
    "  clattn explain --q q.csv --k k.csv --v v.csv --causal --q-labels the,cat,sat --k-labels the,cat,sat\n"
    "  clattn explain --q '1 2' --k '1 0; 2 4' --v '1; 2' --similarity all --add-w '1 1'\n"
    "  clattn explain --x '1 0; 0 1' --wq '1 2; 0 1' --wk '1 0; 1 1' --wv '1 0; 0 2' --heads 2 --wo '1 0; 0 1'\n"
    "  clattn explain --given-weights '0.6 0.4; 0.1 0.9' --v '1 2; 3 4' --format html >page.html\n";

/* Matrices that explain alone knows. */
enum { X, WQ, WK, WV, WO, W1, W2, GIVEN, MATRICES };
static const char *const matrix_names[MATRICES] = {"x", "wq", "wk", "wv", "wo", "w1", "w2", "given-weights"};

typedef struct explain_options {
  cli_request_options request;
  const char *matrix[MATRICES];
  const char *heads, *format, *device, *variant, *q_labels, *k_labels;
  int add_norm;
} explain_options;

/* What is shown, once all options are read. */
typedef struct lesson_data {
  clattn_problem rules;
  cli_small q, k, v, add_w, weights;
  cli_layer layer;
  int64_t queries, keys;
} lesson_data;

static int check_sizes(const clattn_problem *p) {
  if (p->batch != 1 || p->q_heads != 1)
    return cli_fail(CLI_USAGE,
                    "explain takes one matrix each: here are %" PRId64 " batch entries of %" PRId64
                    " heads; 'clattn run' takes them",
                    p->batch, p->q_heads);
  if (p->q_len < 1 || p->k_len < 1 || p->q_len > CLI_SMALL_MOST || p->k_len > CLI_SMALL_MOST ||
      p->qk_dim > CLI_SMALL_MOST || p->v_dim > CLI_SMALL_MOST)
    return cli_fail(CLI_USAGE,
                    "explain takes matrices from 1 x 1 to %d x %d: here q is %" PRId64 " x %" PRId64 ", k %" PRId64
                    " x %" PRId64 ", v %" PRId64 " x %" PRId64 "; 'clattn run' takes larger ones",
                    CLI_SMALL_MOST, CLI_SMALL_MOST, p->q_len, p->qk_dim, p->k_len, p->qk_dim, p->k_len, p->v_dim);
  return CLI_OK;
}

static cli_small input_of(const cli_request *request, int input) {
  int64_t shape[4], stride[4];
  cli_small out;
  memset(&out, 0, sizeof out);
  if (request->input[input].data == NULL)
    return out;
  cli_input_shape(&request->problem, input, shape);
  cli_input_strides(&request->problem, input, shape, stride);
  out.rows = shape[2];
  out.columns = shape[3];
  for (int64_t i = 0; i < out.rows; i++) {
    for (int64_t j = 0; j < out.columns; j++)
      out.at[i][j] = ((const float *)request->input[input].data)[i * stride[2] + j * stride[3]];
  }
  return out;
}

static int take_qkv(const explain_options *o, lesson_data *data) {
  cli_request request;
  int code = cli_request_make(&o->request, &request);
  if (code == CLI_OK)
    code = check_sizes(&request.problem);
  if (code == CLI_OK) {
    data->rules = request.problem;
    data->q = input_of(&request, CLI_Q);
    data->k = input_of(&request, CLI_K);
    data->v = input_of(&request, CLI_V);
    data->add_w = input_of(&request, CLI_ADD_W);
    data->queries = data->q.rows;
    data->keys = data->k.rows;
  }
  cli_request_close(&request);
  return code;
}

static int check_rules(const clattn_problem *rules, int64_t queries, int64_t keys, int64_t dim) {
  clattn_problem problem = *rules;
  clattn_error error;
  clattn_error_init(&error);
  problem.q_len = queries;
  problem.k_len = keys;
  problem.qk_dim = dim;
  const clattn_status status = clattn_problem_check(&problem, &error);
  return status == CLATTN_SUCCESS ? CLI_OK : cli_fail_status(status, &error, "the problem");
}

static int take_layer(const explain_options *o, lesson_data *data) {
  cli_layer *layer = &data->layer;
  cli_small *const matrices[] = {&layer->x, &layer->wq, &layer->wk, &layer->wv, &layer->wo, &layer->w1, &layer->w2};
  const char *add_w = o->request.input[CLI_ADD_W];
  int code = CLI_OK;
  layer->heads = 1;
  layer->add_norm = o->add_norm;
  if (o->heads != NULL && (!cli_parse_int64(o->heads, &layer->heads) || layer->heads < 1))
    return cli_fail(CLI_USAGE, "--heads takes a number of heads >= 1, not '%s'", o->heads);
  for (int i = X; i <= W2 && code == CLI_OK; i++) {
    if (o->matrix[i] != NULL)
      code = cli_small_load(matrix_names[i], o->matrix[i], matrices[i]);
    else if (i <= WV)
      code = cli_fail(CLI_USAGE, "--%s is missing: words need --x, --wq, --wk and --wv", matrix_names[i]);
  }
  if (code == CLI_OK && add_w != NULL)
    code = cli_small_load("add-w", add_w, &layer->add_w);
  if (code == CLI_OK)
    code = cli_layer_check(layer);
  data->queries = data->keys = layer->x.rows;
  clattn_problem_init(&data->rules);
  if (code == CLI_OK)
    code = cli_rules_apply(&o->request.rules, data->queries, data->keys, &data->rules);
  return code == CLI_OK ? check_rules(&data->rules, data->queries, data->keys, layer->wq.columns / layer->heads) : code;
}

static int take_weights(const explain_options *o, lesson_data *data) {
  if (o->request.input[CLI_V] == NULL)
    return cli_fail(CLI_USAGE, "--v is missing: --given-weights are those of its rows");
  int code = cli_small_load("given-weights", o->matrix[GIVEN], &data->weights);
  if (code == CLI_OK)
    code = cli_small_load("v", o->request.input[CLI_V], &data->v);
  clattn_problem_init(&data->rules);
  data->queries = data->weights.rows;
  data->keys = data->v.rows;
  return code == CLI_OK ? cli_weights_check(&data->weights, &data->v) : code;
}

/* Options that need or exclude each other. */
static int check_together(const explain_options *o) {
  const cli_rules *r = &o->request.rules;
  const char *const *input = o->request.input;
  const int layer = o->matrix[X] != NULL, weights = o->matrix[GIVEN] != NULL;
  const int all = r->similarity != NULL && strcmp(r->similarity, "all") == 0;
  const int additive = all || (r->similarity != NULL && strcmp(r->similarity, "additive") == 0);
  const struct {
    int given;
    const char *name;
  } rules[] = {{r->causal, "causal"},
               {r->offset != NULL, "query-offset"},
               {r->window != NULL, "window"},
               {r->scale != NULL, "scale"},
               {r->softcap != NULL, "softcap"},
               {r->similarity != NULL, "similarity"},
               {input[CLI_ADD_W] != NULL, "add-w"},
               {input[CLI_Q] != NULL, "q"},
               {input[CLI_K] != NULL, "k"},
               {layer, "x"}};
  for (size_t i = 0; i < sizeof rules / sizeof rules[0] && weights; i++) {
    if (rules[i].given)
      return cli_fail(CLI_USAGE, "--%s can't be given with --given-weights, which are final", rules[i].name);
  }
  for (int i = CLI_Q; i <= CLI_V && layer; i++) {
    if (input[i] != NULL)
      return cli_fail(CLI_USAGE, "--%s can't be given with --x, from which it is made", cli_input_name(i));
  }
  for (int i = WQ; i <= W2 && !layer; i++) {
    if (o->matrix[i] != NULL)
      return cli_fail(CLI_USAGE, "--%s needs --x, the words", matrix_names[i]);
  }
  if (!layer && (o->heads != NULL || o->add_norm))
    return cli_fail(CLI_USAGE, "--%s needs --x, the words", o->heads != NULL ? "heads" : "add-norm");
  if (additive && input[CLI_ADD_W] == NULL)
    return cli_fail(CLI_USAGE, "--similarity %s needs --add-w V", r->similarity);
  if (!additive && input[CLI_ADD_W] != NULL)
    return cli_fail(CLI_USAGE, "--add-w needs --similarity additive or all");
  if (all && (o->heads != NULL || o->matrix[WO] != NULL || o->add_norm))
    return cli_fail(CLI_USAGE, "--similarity all compares three outputs; --%s goes on with one: choose a similarity",
                    o->heads != NULL        ? "heads"
                    : o->matrix[WO] != NULL ? "wo"
                                            : "add-norm");
  return CLI_OK;
}

static int take_format(const char *text, cli_page_format *out) {
  static const char *const names[] = {"text", "markdown", "html"};
  for (int i = 0; i < 3 && text != NULL; i++) {
    if (strcmp(text, names[i]) == 0) {
      *out = (cli_page_format)i;
      return CLI_OK;
    }
  }
  return text == NULL ? CLI_OK : cli_fail(CLI_USAGE, "--format takes text, markdown or html, not '%s'", text);
}

static int show_qkv(cli_lesson *lesson, const lesson_data *data) {
  const struct {
    const char *title, *formula;
    cli_page_axis rows;
    const cli_small *numbers;
  } inputs[] = {{"Q: queries", "one row per query", lesson->queries, &data->q},
                {"K: keys", "one row per key", lesson->keys, &data->k},
                {"V: values", "one row per key", lesson->keys, &data->v}};
  cli_small o;
  for (int i = 0; i < 3; i++)
    cli_page_formula(cli_page_table(lesson->page, inputs[i].title, inputs[i].rows, cli_steps_dims(), inputs[i].numbers),
                     "%s", inputs[i].formula);
  return cli_steps_of_attention(lesson, &data->q, &data->k, &data->v, &data->add_w, &o);
}

/* The device that computed it stands first, though it is known last. */
static void name_device(const cli_lab *lab, cli_page *page) {
  snprintf(page->item[0].title, sizeof page->item[0].title, "Attention on %s (%s), variant %s", lab->session.device.id,
           lab->session.info.name, lab->used);
}

static int explain(explain_options *o) {
  lesson_data data;
  cli_lab lab;
  cli_page page;
  cli_labels q_labels = {NULL, 0}, k_labels = {NULL, 0};
  cli_page_format format = CLI_PAGE_PLAIN;
  cli_rules *rules = &o->request.rules;
  memset(&data, 0, sizeof data);
  memset(&lab, 0, sizeof lab);
  memset(&page, 0, sizeof page);
  int code = take_format(o->format, &format);
  if (code == CLI_OK)
    code = check_together(o);
  const int compare = rules->similarity != NULL && strcmp(rules->similarity, "all") == 0;
  if (compare)
    rules->similarity = "additive"; /* with all that the others need */
  const int layer = o->matrix[X] != NULL, weights = o->matrix[GIVEN] != NULL;
  if (code == CLI_OK)
    code = weights ? take_weights(o, &data) : layer ? take_layer(o, &data) : take_qkv(o, &data);
  if (code == CLI_OK && o->q_labels != NULL)
    code = cli_labels_load("q-labels", o->q_labels, data.queries, &q_labels);
  if (code == CLI_OK && o->k_labels != NULL)
    code = cli_labels_load("k-labels", o->k_labels, data.keys, &k_labels);
  if (code == CLI_OK)
    code = cli_lab_open(o->device, o->variant, &lab);
  if (code == CLI_OK) {
    const cli_labels *of_queries = layer && o->q_labels == NULL ? &k_labels : &q_labels;
    const cli_labels *of_keys = layer && o->k_labels == NULL ? &q_labels : &k_labels;
    cli_lesson lesson = {&lab, &page, data.rules, compare, {of_queries, 'q'}, {of_keys, 'k'}};
    cli_page_sentence(&page, "");
    code = weights ? cli_steps_of_weights(&lesson, &data.weights, &data.v)
           : layer ? cli_steps_of_layer(&lesson, &data.layer)
                   : show_qkv(&lesson, &data);
  }
  if (code == CLI_OK && !page.failed)
    name_device(&lab, &page);
  if (code == CLI_OK)
    code = cli_page_print(&page, format);
  cli_page_free(&page);
  cli_lab_close(&lab);
  cli_labels_free(&q_labels);
  cli_labels_free(&k_labels);
  return code;
}

/* Options whose value is a text, and where it goes. */
typedef struct text_option {
  const char *name;
  const char **to;
} text_option;

int cli_explain(int argc, char **argv) {
  explain_options o;
  char *storage = NULL;
  int option = -1, code = CLI_OK;
  memset(&o, 0, sizeof o);
  /* What is printed is read as floats. */
  for (int i = CLI_Q; i <= CLI_V; i++)
    o.request.dtype[i] = "f32";
  cli_rules *rules = &o.request.rules;
  const text_option texts[] = {{"q", &o.request.input[CLI_Q]},
                               {"k", &o.request.input[CLI_K]},
                               {"v", &o.request.input[CLI_V]},
                               {"add-w", &o.request.input[CLI_ADD_W]},
                               {"x", &o.matrix[X]},
                               {"wq", &o.matrix[WQ]},
                               {"wk", &o.matrix[WK]},
                               {"wv", &o.matrix[WV]},
                               {"wo", &o.matrix[WO]},
                               {"w1", &o.matrix[W1]},
                               {"w2", &o.matrix[W2]},
                               {"given-weights", &o.matrix[GIVEN]},
                               {"heads", &o.heads},
                               {"similarity", &rules->similarity},
                               {"query-offset", &rules->offset},
                               {"window", &rules->window},
                               {"scale", &rules->scale},
                               {"softcap", &rules->softcap},
                               {"q-labels", &o.q_labels},
                               {"k-labels", &o.k_labels},
                               {"format", &o.format},
                               {"device", &o.device},
                               {"variant", &o.variant}};
  enum { TEXTS = sizeof texts / sizeof texts[0], CAUSAL = TEXTS, ADD_NORM, HELP };
  struct option longs[TEXTS + 4];
  memset(longs, 0, sizeof longs);
  for (int i = 0; i < TEXTS; i++)
    longs[i] = (struct option){texts[i].name, required_argument, NULL, i};
  longs[TEXTS] = (struct option){"causal", optional_argument, NULL, CAUSAL};
  longs[TEXTS + 1] = (struct option){"add-norm", no_argument, NULL, ADD_NORM};
  longs[TEXTS + 2] = (struct option){"help", no_argument, NULL, HELP};
  char **joined = cli_join_causal(&argc, argv, &storage);
  if (joined == NULL)
    return cli_fail_memory();
  while ((option = cli_next_option(argc, joined, longs)) != -1) {
    if (option == HELP || option == '?') {
      code = option == HELP ? cli_print_help(help) : CLI_USAGE;
      goto done;
    }
    if (option == CAUSAL) {
      rules->causal = 1;
      rules->alignment = optarg;
    } else if (option == ADD_NORM) {
      o.add_norm = 1;
    } else {
      *texts[option].to = optarg;
    }
  }
  code = explain(&o);
done:
  free(joined);
  free(storage);
  return code;
}
