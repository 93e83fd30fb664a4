/* SPDX-License-Identifier: Apache-2.0 */
/* clattn explain: every step of attention on small matrices, computed through OpenCL. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "heatmap.h"
#include "pass.h"
#include "request.h"

enum { MOST = 8, CELL = 10, FORMULA_WIDTH = 40 };

static const char help[] =
    "usage: clattn explain --q M --k M --v M [options]\n"
    "\n"
    "Shows the steps of attention on matrices up to 8 x 8: scores, scaled scores, softmax with its row sums, output.\n"
    "Every number is computed through OpenCL.\n"
    "\n"
    "  --q, --k, --v M     a matrix as text (\"1 0; 0 1\"), a .csv, .txt or .npy file\n"
    "  --causal [A]        key j <= position of the query; A is top-left or bottom-right\n"
    "  --query-offset N    position of query 0 on the key axis\n"
    "  --window L,R        keys from L before to R behind the position; inf = unlimited\n"
    "  --scale X           default 1/sqrt(dim)\n"
    "  --softcap X         scores become X tanh(score / X)\n"
    "  --q-labels, --k-labels A,B,...|@FILE   names of queries and keys\n"
    "  --device ID         an id or number of 'clattn devices'\n"
    "  --variant NAME      kernels to use, instead of the best that fits\n"
    "  --help              this text\n"
    "\n"
    "examples:\n"
    "  clattn explain --q '1 0; 0 1' --k '1 0; 0 1' --v '1 2; 3 4'\n"
    "  clattn explain --q q.csv --k k.csv --v v.csv --causal --q-labels the,cat,sat --k-labels the,cat,sat\n";

/* A table of one step: `formula` lines stand on its left. */
typedef struct table {
  const char *title;
  const char *formula[4];
  const cli_labels *rows, *columns;
  char row_prefix, column_prefix;
  int row_sums;
} table;

/* A text in a fixed number of columns; longer ones are cut. */
static void print_cell(const char *text, int width) {
  int shown = 0;
  const char *end = text;
  while (*end != 0) {
    const int starts = ((unsigned char)*end & 0xc0) != 0x80;
    if (starts && shown == width)
      break;
    shown += starts;
    end++;
  }
  printf("%*s%.*s", width - shown, "", (int)(end - text), text);
}

static void print_formula(const table *t, int line) {
  const char *text = line < 4 && t->formula[line] != NULL ? t->formula[line] : "";
  const int width = cli_width(text);
  printf("  %s%*s", text, width < FORMULA_WIDTH ? FORMULA_WIDTH - width : 1, "");
}

static void print_number(double value) {
  char text[32];
  const double size = fabs(value);
  snprintf(text, sizeof text, size != 0 && isfinite(value) && (size >= 1e3 || size < 1e-3) ? "%.2e" : "%.4f",
           cli_unsigned_nan(value));
  printf(" ");
  print_cell(text, CELL - 1);
}

static void print_table(const table *t, const cli_result *result) {
  char scratch[32];
  const int64_t rows = result->shape[2], columns = result->shape[3];
  printf("\n%s\n", t->title);
  print_formula(t, 0);
  print_cell("", CELL);
  for (int64_t j = 0; j < columns; j++) {
    printf(" ");
    print_cell(cli_label(t->columns, j, t->column_prefix, scratch), CELL - 1);
  }
  printf("%s\n", t->row_sums ? "       sum" : "");
  for (int64_t i = 0; i < rows || (i < 3 && t->formula[i + 1] != NULL); i++) {
    print_formula(t, i < 3 ? (int)i + 1 : 4);
    if (i < rows) {
      double sum = 0;
      print_cell(cli_label(t->rows, i, t->row_prefix, scratch), CELL);
      for (int64_t j = 0; j < columns; j++) {
        const double value = (double)result->data[i * result->stride[2] + j * result->stride[3]];
        sum += value;
        print_number(value);
      }
      if (t->row_sums)
        print_number(sum);
    }
    printf("\n");
  }
}

typedef struct explain_options {
  cli_request_options request;
  const char *device, *variant, *q_labels, *k_labels;
} explain_options;

static int check_sizes(const cli_request *request) {
  const clattn_problem *p = &request->problem;
  if (p->batch != 1 || p->q_heads != 1)
    return cli_fail(CLI_USAGE,
                    "explain takes one matrix each: here are %" PRId64 " batch entries of %" PRId64
                    " heads; 'clattn run' takes them",
                    p->batch, p->q_heads);
  if (p->q_len < 1 || p->k_len < 1 || p->q_len > MOST || p->k_len > MOST || p->qk_dim > MOST || p->v_dim > MOST)
    return cli_fail(CLI_USAGE,
                    "explain takes matrices from 1 x 1 to %d x %d: here q is %" PRId64 " x %" PRId64 ", k %" PRId64
                    " x %" PRId64 ", v %" PRId64 " x %" PRId64 "; 'clattn run' takes larger ones",
                    MOST, MOST, p->q_len, p->qk_dim, p->k_len, p->qk_dim, p->k_len, p->v_dim);
  return CLI_OK;
}

/* An input as a result, so that one function prints both. */
static cli_result input_view(const cli_request *request, int input) {
  const clattn_problem *p = &request->problem;
  const clattn_tensor *const tensors[] = {&p->q, &p->k, &p->v};
  cli_result view;
  memset(&view, 0, sizeof view);
  cli_input_shape(p, input, view.shape);
  cli_strides(tensors[input], view.shape, view.stride);
  view.data = request->input[input].data;
  return view;
}

static void print_steps(const cli_request *request, const cli_pass passes[4], const cli_labels *q_labels,
                        const cli_labels *k_labels) {
  static const char *const input_titles[] = {"Q: queries", "K: keys", "V: values"};
  const clattn_problem *p = &request->problem;
  char scaled[64], capped[64];
  for (int i = CLI_Q; i <= CLI_V; i++) {
    const table t = {input_titles[i],
                     {i == CLI_Q ? "one row per query" : "one row per key"},
                     i == CLI_Q ? q_labels : k_labels,
                     NULL,
                     (char)(i == CLI_Q ? 'q' : 'k'),
                     'd',
                     0};
    const cli_result view = input_view(request, i);
    print_table(&t, &view);
  }
  if (p->scale_mode == CLATTN_SCALE_VALUE)
    snprintf(scaled, sizeof scaled, "z[i,j] = %.6g * s[i,j]", (double)p->scale);
  else
    snprintf(scaled, sizeof scaled, "z[i,j] = s[i,j] / sqrt(%" PRId64 ")", p->qk_dim);
  snprintf(capped, sizeof capped, "z[i,j] = %.6g * tanh(z[i,j] / %.6g)", (double)p->softcap, (double)p->softcap);
  const int rules = p->causal || p->window != 0;
  const table steps[4] = {
      {"scores: S = Q K^T", {"s[i,j] = sum over d of q[i,d] k[j,d]"}, q_labels, k_labels, 'q', 'k', 0},
      {"scaled scores", {scaled}, q_labels, k_labels, 'q', 'k', 0},
      {p->softcap > 0 && rules ? "capped, then masked"
       : rules                 ? "masked"
                               : "capped",
       {rules ? "excluded keys: z[i,j] = -inf" : capped, rules && p->softcap > 0 ? capped : NULL},
       q_labels,
       k_labels,
       'q',
       'k',
       0},
      {"softmax: weights W",
       {"m = max over j of z[i,j]", "l = sum over j of exp(z[i,j] - m)", "w[i,j] = exp(z[i,j] - m) / l"},
       q_labels,
       k_labels,
       'q',
       'k',
       1}};
  for (int i = 0; i < 4; i++) {
    if (passes[i].result[CLI_SCORES].data != NULL)
      print_table(&steps[i], &passes[i].result[CLI_SCORES]);
  }
  const table output = {"output: O = W V", {"o[i,d] = sum over j of w[i,j] v[j,d]"}, q_labels, NULL, 'q', 'd', 0};
  print_table(&output, &passes[3].result[CLI_O]);
}

static int explain(const explain_options *o) {
  cli_request request;
  cli_session session;
  cli_buffers buffers;
  cli_pass passes[4];
  cli_labels q_labels = {NULL, 0}, k_labels = {NULL, 0};
  memset(&session, 0, sizeof session);
  memset(&buffers, 0, sizeof buffers);
  memset(passes, 0, sizeof passes);
  int code = cli_request_make(&o->request, &request);
  const clattn_problem *problem = &request.problem;
  if (code == CLI_OK)
    code = check_sizes(&request);
  if (code == CLI_OK && o->q_labels != NULL)
    code = cli_labels_load("q-labels", o->q_labels, problem->q_len, &q_labels);
  if (code == CLI_OK && o->k_labels != NULL)
    code = cli_labels_load("k-labels", o->k_labels, problem->k_len, &k_labels);
  if (code == CLI_OK)
    code = cli_session_open(o->device, &session);
  if (code == CLI_OK)
    code = cli_buffers_make(&session, &request, &buffers);
  /* Raw scores at scale 1 are the plain products. */
  clattn_problem plain = *problem;
  plain.scale_mode = CLATTN_SCALE_VALUE;
  plain.scale = 1;
  const struct {
    const clattn_problem *problem;
    uint32_t outputs;
    clattn_stage stage;
    int wanted;
  } steps[4] = {{&plain, CLATTN_OUT_SCORES, CLATTN_STAGE_RAW, 1},
                {problem, CLATTN_OUT_SCORES, CLATTN_STAGE_RAW, 1},
                {problem, CLATTN_OUT_SCORES, CLATTN_STAGE_MASKED,
                 problem->causal || problem->window != 0 || problem->softcap > 0},
                {problem, CLATTN_OUT_O | CLATTN_OUT_SCORES, CLATTN_STAGE_WEIGHTS, 1}};
  for (int i = 0; i < 4 && code == CLI_OK; i++) {
    if (steps[i].wanted)
      code = cli_pass_plan(&session, steps[i].problem, steps[i].outputs, steps[i].stage, o->variant, 0, &passes[i]);
    if (code == CLI_OK && steps[i].wanted)
      code = cli_pass_run(&session, &request, &buffers, &passes[i]);
  }
  if (code == CLI_OK) {
    printf("Attention on %s (%s), variant %s\n", session.device.id, session.info.name, passes[3].info.variant);
    print_steps(&request, passes, &q_labels, &k_labels);
  }
  for (int i = 0; i < 4; i++)
    cli_pass_close(&session, &passes[i]);
  cli_buffers_release(&buffers);
  cli_session_close(&session);
  cli_labels_free(&q_labels);
  cli_labels_free(&k_labels);
  cli_request_close(&request);
  return code;
}

int cli_explain(int argc, char **argv) {
  static const struct option longs[] = {{"q", required_argument, NULL, 'q'},
                                        {"k", required_argument, NULL, 'k'},
                                        {"v", required_argument, NULL, 'v'},
                                        {"causal", optional_argument, NULL, 'c'},
                                        {"query-offset", required_argument, NULL, 'o'},
                                        {"window", required_argument, NULL, 'w'},
                                        {"scale", required_argument, NULL, 's'},
                                        {"softcap", required_argument, NULL, 't'},
                                        {"q-labels", required_argument, NULL, 'Q'},
                                        {"k-labels", required_argument, NULL, 'K'},
                                        {"device", required_argument, NULL, 'd'},
                                        {"variant", required_argument, NULL, 'V'},
                                        {"help", no_argument, NULL, 'h'},
                                        {NULL, 0, NULL, 0}};
  explain_options o;
  char *storage = NULL;
  int option, code = CLI_OK;
  memset(&o, 0, sizeof o);
  /* What is printed is read as floats. */
  for (int i = CLI_Q; i <= CLI_V; i++)
    o.request.dtype[i] = "f32";
  char **joined = cli_join_causal(&argc, argv, &storage);
  if (joined == NULL)
    return cli_fail_memory();
  while ((option = cli_next_option(argc, joined, longs)) != -1 && code == CLI_OK) {
    cli_rules *rules = &o.request.rules;
    switch (option) {
    case 'q':
      o.request.input[CLI_Q] = optarg;
      break;
    case 'k':
      o.request.input[CLI_K] = optarg;
      break;
    case 'v':
      o.request.input[CLI_V] = optarg;
      break;
    case 'c':
      rules->causal = 1;
      rules->alignment = optarg;
      break;
    case 'o':
      rules->offset = optarg;
      break;
    case 'w':
      rules->window = optarg;
      break;
    case 's':
      rules->scale = optarg;
      break;
    case 't':
      rules->softcap = optarg;
      break;
    case 'Q':
      o.q_labels = optarg;
      break;
    case 'K':
      o.k_labels = optarg;
      break;
    case 'd':
      o.device = optarg;
      break;
    case 'V':
      o.variant = optarg;
      break;
    case 'h':
      code = cli_print_help(help);
      goto done;
    default:
      code = CLI_USAGE;
      goto done;
    }
  }
  code = explain(&o);
done:
  free(joined);
  free(storage);
  return code;
}
