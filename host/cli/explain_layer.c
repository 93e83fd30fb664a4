/* SPDX-License-Identifier: Apache-2.0 */
/* Attention as a layer of a model has it: projections, heads, and with them the rest of an encoder block. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "cli.h"
#include "explain_steps.h"

static const double norm_epsilon = 1e-5;

/* ---- sizes ---- */

static int must_be(const char *what, int64_t got, const char *rule, int64_t want) {
  if (got == want)
    return CLI_OK;
  return cli_fail(CLI_USAGE, "%s %" PRId64 "; it must be %s, %" PRId64, what, got, rule, want);
}

static int divides(const char *name, int64_t columns, int64_t heads) {
  if (columns % heads == 0)
    return CLI_OK;
  return cli_fail(CLI_USAGE, "--heads %" PRId64 " does not divide the %" PRId64 " columns of --%s", heads, columns,
                  name);
}

static int check_feed_forward(const cli_layer *l) {
  if (l->w1.rows == 0 && l->w2.rows == 0)
    return CLI_OK;
  if (l->w1.rows == 0 || l->w2.rows == 0)
    return cli_fail(CLI_USAGE, "--w1 and --w2 are the two layers of the feed-forward part: give both");
  if (!l->add_norm)
    return cli_fail(CLI_USAGE, "--w1 and --w2 need --add-norm, whose result they transform");
  int code = must_be("--w1: the number of rows is", l->w1.rows, "that of the columns of --x", l->x.columns);
  if (code == CLI_OK)
    code = must_be("--w2: the number of rows is", l->w2.rows, "that of the columns of --w1", l->w1.columns);
  if (code == CLI_OK)
    code = must_be("--w2: the number of columns is", l->w2.columns, "that of --x, for the residual", l->x.columns);
  return code;
}

int cli_layer_check(const cli_layer *l) {
  const int64_t model = l->x.columns;
  const int64_t out = l->wo.rows > 0 ? l->wo.columns : l->wv.columns;
  int code = must_be("--wq: the number of rows is", l->wq.rows, "that of the columns of --x", model);
  if (code == CLI_OK)
    code = must_be("--wk: the number of rows is", l->wk.rows, "that of the columns of --x", model);
  if (code == CLI_OK)
    code = must_be("--wv: the number of rows is", l->wv.rows, "that of the columns of --x", model);
  if (code == CLI_OK)
    code = must_be("--wk: the number of columns is", l->wk.columns, "that of --wq", l->wq.columns);
  if (code == CLI_OK)
    code = divides("wq", l->wq.columns, l->heads);
  if (code == CLI_OK)
    code = divides("wv", l->wv.columns, l->heads);
  if (code == CLI_OK && l->wo.rows > 0)
    code = must_be("--wo: the number of rows is", l->wo.rows, "that of the columns of --wv", l->wv.columns);
  if (code == CLI_OK && l->add_norm)
    code = must_be(l->wo.rows > 0 ? "--wo: the number of columns is" : "--wv: the number of columns is", out,
                   "that of --x, for the residual", model);
  if (code == CLI_OK && l->add_w.rows > 0)
    code = must_be("--add-w: the number of rows is", l->add_w.rows, "1, for every head", 1);
  if (code == CLI_OK && l->add_w.rows > 0)
    code = must_be("--add-w: the number of columns is", l->add_w.columns, "the dimension of a head",
                   l->wq.columns / l->heads);
  return code == CLI_OK ? check_feed_forward(l) : code;
}

/* ---- projections and heads ---- */

typedef struct projection {
  const char *matrix, *title, *formula;
  const cli_small *w;
  cli_page_axis rows;
  cli_small *out;
} projection;

static int project(cli_lesson *lesson, const cli_small *x, const projection *p) {
  cli_page_table(lesson->page, p->matrix, cli_steps_dims(), cli_steps_dims(), p->w);
  const int code = cli_small_product(lesson->lab, x, p->w, p->out);
  if (code == CLI_OK)
    cli_page_formula(cli_page_table(lesson->page, p->title, p->rows, cli_steps_dims(), p->out), "%s", p->formula);
  return code;
}

static const char *name_columns(int64_t first, int64_t count, char *text, size_t capacity) {
  if (count == 1)
    snprintf(text, capacity, "d%" PRId64, first);
  else
    snprintf(text, capacity, "d%" PRId64 " to d%" PRId64, first, first + count - 1);
  return text;
}

static int heads(cli_lesson *lesson, const cli_layer *l, const cli_small *q, const cli_small *k, const cli_small *v,
                 cli_small *concat) {
  const int64_t qk_dim = q->columns / l->heads, v_dim = v->columns / l->heads;
  int code = CLI_OK;
  *concat = cli_small_columns(v, 0, v->columns); /* its size */
  for (int64_t h = 0; h < l->heads && code == CLI_OK; h++) {
    const cli_small q_part = cli_small_columns(q, h * qk_dim, qk_dim),
                    k_part = cli_small_columns(k, h * qk_dim, qk_dim), v_part = cli_small_columns(v, h * v_dim, v_dim);
    cli_small o;
    char title[CLI_PAGE_TEXT], of_qk[64], of_v[64];
    snprintf(title, sizeof title, "head %" PRId64 ": %s of Q and K, %s of V", h,
             name_columns(h * qk_dim, qk_dim, of_qk, sizeof of_qk), name_columns(h * v_dim, v_dim, of_v, sizeof of_v));
    if (l->heads > 1)
      cli_page_heading(lesson->page, title);
    code = cli_steps_of_attention(lesson, &q_part, &k_part, &v_part, &l->add_w, &o);
    for (int64_t i = 0; i < concat->rows && code == CLI_OK && !lesson->compare; i++) {
      for (int64_t d = 0; d < v_dim; d++)
        concat->at[i][h * v_dim + d] = o.at[i][d];
    }
  }
  if (code == CLI_OK && l->heads > 1) {
    cli_page_heading(lesson->page, "all heads");
    cli_page_formula(cli_page_table(lesson->page, "concat: C", lesson->queries, cli_steps_dims(), concat),
                     "the heads' outputs, side by side");
  }
  return code;
}

/* ---- the rest of the block: sums, norms and the maximum with 0 are no attention, and computed here ---- */

static cli_small sum_of(const cli_small *a, const cli_small *b) {
  cli_small sum = *a;
  for (int64_t i = 0; i < sum.rows; i++) {
    for (int64_t d = 0; d < sum.columns; d++)
      sum.at[i][d] += b->at[i][d];
  }
  return sum;
}

static cli_small normalised(const cli_small *matrix) {
  const int64_t n = matrix->columns;
  cli_small out = *matrix;
  for (int64_t i = 0; i < matrix->rows; i++) {
    double mean = 0, variance = 0;
    for (int64_t d = 0; d < n; d++)
      mean += (double)matrix->at[i][d] / (double)n;
    for (int64_t d = 0; d < n; d++)
      variance += ((double)matrix->at[i][d] - mean) * ((double)matrix->at[i][d] - mean) / (double)n;
    for (int64_t d = 0; d < n; d++)
      out.at[i][d] = (float)(((double)matrix->at[i][d] - mean) / sqrt(variance + norm_epsilon));
  }
  return out;
}

/* LayerNorm(a + b); the letters are those of the matrices in the tables. */
static cli_small add_and_norm(cli_lesson *lesson, const cli_small *a, const cli_small *b, const char *titles[2],
                              const char *formula) {
  const cli_small sum = sum_of(a, b), norm = normalised(&sum);
  cli_page_item *item = cli_page_table(lesson->page, titles[0], lesson->queries, cli_steps_dims(), &sum);
  cli_page_formula(item, "%s", formula);
  item = cli_page_table(lesson->page, titles[1], lesson->queries, cli_steps_dims(), &norm);
  cli_page_formula(item, "m = mean over d of r[i,d]");
  cli_page_formula(item, "v = mean over d of (r[i,d] - m)^2");
  cli_page_formula(item, "n[i,d] = (r[i,d] - m) / sqrt(v + 1e-5)");
  return norm;
}

static int feed_forward(cli_lesson *lesson, const cli_layer *l, const cli_small *n) {
  const cli_page_axis hidden = {NULL, 'h'};
  cli_small h, f;
  cli_page_heading(lesson->page, "feed-forward, add and norm");
  cli_page_table(lesson->page, "W1", cli_steps_dims(), hidden, &l->w1);
  int code = cli_small_product(lesson->lab, n, &l->w1, &h);
  if (code != CLI_OK)
    return code;
  for (int64_t i = 0; i < h.rows; i++) {
    for (int64_t j = 0; j < h.columns; j++)
      h.at[i][j] = h.at[i][j] < 0 ? 0 : h.at[i][j]; /* NaN stays */
  }
  cli_page_formula(cli_page_table(lesson->page, "hidden: H = max(0, N W1)", lesson->queries, hidden, &h),
                   "negative numbers become 0");
  cli_page_table(lesson->page, "W2", hidden, cli_steps_dims(), &l->w2);
  code = cli_small_product(lesson->lab, &h, &l->w2, &f);
  if (code != CLI_OK)
    return code;
  cli_page_formula(cli_page_table(lesson->page, "F = H W2", lesson->queries, cli_steps_dims(), &f),
                   "f[i,d] = sum over e of h[i,e] w2[e,d]");
  const char *titles[2] = {"residual: R' = N + F", "LayerNorm: N', the block's output"};
  add_and_norm(lesson, n, &f, titles, "r[i,d] = n[i,d] + f[i,d]");
  return CLI_OK;
}

int cli_steps_of_layer(cli_lesson *lesson, const cli_layer *l) {
  const cli_page_axis words = {lesson->queries.labels, 'x'};
  cli_small q, k, v, y;
  const projection projections[] = {
      {"W^Q", "queries: Q = X W^Q", "q[i,d] = sum over m of x[i,m] wq[m,d]", &l->wq, lesson->queries, &q},
      {"W^K", "keys: K = X W^K", "k[i,d] = sum over m of x[i,m] wk[m,d]", &l->wk, lesson->keys, &k},
      {"W^V", "values: V = X W^V", "v[i,d] = sum over m of x[i,m] wv[m,d]", &l->wv, lesson->keys, &v}};
  cli_page_sentence(lesson->page, "A word is a row: Q = X W^Q, with W^Q as it is written.");
  cli_page_formula(cli_page_table(lesson->page, "X: words", words, cli_steps_dims(), &l->x), "one row per word");
  int code = CLI_OK;
  for (int i = 0; i < 3 && code == CLI_OK; i++)
    code = project(lesson, &l->x, &projections[i]);
  if (code == CLI_OK)
    code = heads(lesson, l, &q, &k, &v, &y);
  if (code == CLI_OK && l->wo.rows > 0) {
    const cli_small concat = y;
    const projection output = {"W^O",
                               l->heads > 1 ? "output: Y = C W^O" : "output: Y = O W^O",
                               l->heads > 1 ? "y[i,d] = sum over m of c[i,m] wo[m,d]"
                                            : "y[i,d] = sum over m of o[i,m] wo[m,d]",
                               &l->wo,
                               lesson->queries,
                               &y};
    code = project(lesson, &concat, &output);
  }
  if (code != CLI_OK || !l->add_norm)
    return code;
  const char *titles[2] = {l->wo.rows > 0 ? "residual: R = X + Y"
                           : l->heads > 1 ? "residual: R = X + C"
                                          : "residual: R = X + O",
                           "LayerNorm: N"};
  cli_page_heading(lesson->page, "add and norm");
  const cli_small n = add_and_norm(lesson, &l->x, &y, titles,
                                   l->wo.rows > 0 ? "r[i,d] = x[i,d] + y[i,d]"
                                   : l->heads > 1 ? "r[i,d] = x[i,d] + c[i,d]"
                                                  : "r[i,d] = x[i,d] + o[i,d]");
  return l->w1.rows > 0 ? feed_forward(lesson, l, &n) : CLI_OK;
}
