/* SPDX-License-Identifier: Apache-2.0 */
/* clattn explain from outside: its numbers against a plain computation in double precision, its formats, its refusals.
 * The program is CLATTN_PROGRAM of the environment, else of the build. */
#define _XOPEN_SOURCE 700 /* mkdtemp, realpath */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli_program.h"

enum { MOST = 8, WORDS = 4, MODEL = 6, HEADS = 2, HIDDEN = 8 };
enum { DOT, COSINE, ADDITIVE, SIMILARITIES };
static const char *const names[SIMILARITIES] = {"dot", "cosine", "additive"};

typedef struct matrix {
  int rows, columns;
  double at[MOST][MOST];
} matrix;

static matrix x, wq, wk, wv, wo, w1, w2, add_w;

/* ---- the plain computation ---- */

static matrix draw(const char *path, int rows, int columns) {
  matrix m = {rows, columns, {{0}}};
  float numbers[MOST * MOST];
  for (int i = 0; i < rows; i++) {
    for (int j = 0; j < columns; j++) {
      numbers[i * columns + j] = next_number();
      m.at[i][j] = (double)numbers[i * columns + j];
    }
  }
  write_npy(path, "f4", 2, (const int64_t[]){rows, columns}, numbers);
  return m;
}

static matrix product(const matrix *a, const matrix *b) {
  matrix m = {a->rows, b->columns, {{0}}};
  for (int i = 0; i < m.rows; i++) {
    for (int j = 0; j < m.columns; j++) {
      for (int n = 0; n < a->columns; n++)
        m.at[i][j] += a->at[i][n] * b->at[n][j];
    }
  }
  return m;
}

static double similarity(int which, const double *a, const double *b, int n) {
  double sum = 0, aa = 0, bb = 0;
  for (int d = 0; d < n; d++) {
    sum += which == ADDITIVE ? add_w.at[0][d] * tanh(a[d] + b[d]) : a[d] * b[d];
    aa += a[d] * a[d];
    bb += b[d] * b[d];
  }
  return which == COSINE ? sum / sqrt(aa * bb) : sum;
}

/* Attention of columns `first` to `first + n - 1`, written into the same columns of o. */
static void attend(int which, int causal, const matrix *q, const matrix *k, const matrix *v, int first, int n,
                   matrix *o) {
  for (int i = 0; i < q->rows; i++) {
    double weight[MOST], sum = 0;
    for (int j = 0; j < k->rows; j++) {
      const double s = similarity(which, q->at[i] + first, k->at[j] + first, n);
      weight[j] = causal && j > i ? 0 : exp(which == DOT ? s / sqrt(n) : s);
      sum += weight[j];
    }
    for (int d = first; d < first + n; d++) {
      o->at[i][d] = 0;
      for (int j = 0; j < k->rows; j++)
        o->at[i][d] += weight[j] / sum * v->at[j][d];
    }
  }
}

static matrix add_norm(const matrix *a, const matrix *b) {
  matrix m = *a;
  for (int i = 0; i < m.rows; i++) {
    double mean = 0, variance = 0;
    for (int d = 0; d < m.columns; d++) {
      m.at[i][d] += b->at[i][d];
      mean += m.at[i][d] / m.columns;
    }
    for (int d = 0; d < m.columns; d++)
      variance += (m.at[i][d] - mean) * (m.at[i][d] - mean) / m.columns;
    for (int d = 0; d < m.columns; d++)
      m.at[i][d] = (m.at[i][d] - mean) / sqrt(variance + 1e-5);
  }
  return m;
}

/* ---- what the program printed ---- */

/* The table of this title, and its rows' last numbers. */
static void shows(const char *title, const matrix *want) {
  char mark[128];
  snprintf(mark, sizeof mark, "\n%s\n", title);
  const char *at = strstr(out, mark);
  if (at == NULL) {
    fail_msg("no table '%s' in: %s", title, out);
    return;
  }
  at = strchr(at + strlen(mark), '\n') + 1; /* behind the columns' names */
  for (int i = 0; i < want->rows; i++) {
    const char *end = strchr(at, '\n');
    assert_non_null(end);
    for (int j = 0; j < want->columns; j++) {
      const double got = strtod(end - 10 * (want->columns - j), NULL); /* cells are ten wide */
      if (!(fabs(got - want->at[i][j]) <= 5.2e-5 + 1e-5 * fabs(want->at[i][j])))
        fail_msg("%s: row %d, column %d is %g, wanted %g: %s", title, i, j, got, want->at[i][j], out);
    }
    at = end + 1;
  }
}

/* ---- words through a layer ---- */

#define LAYER "explain --x x.npy --wq wq.npy --wk wk.npy --wv wv.npy "

static void heads_and_block(void **state) {
  (void)state;
  const matrix q = product(&x, &wq), k = product(&x, &wk), v = product(&x, &wv);
  for (int which = 0; which < SIMILARITIES; which++) {
    char command[512];
    matrix concat = v;
    for (int h = 0; h < HEADS; h++)
      attend(which, which == DOT, &q, &k, &v, h * MODEL / HEADS, MODEL / HEADS, &concat);
    const matrix y = product(&concat, &wo), n = add_norm(&x, &y);
    matrix hidden = product(&n, &w1);
    for (int i = 0; i < WORDS; i++) {
      for (int j = 0; j < HIDDEN; j++)
        hidden.at[i][j] = fmax(0, hidden.at[i][j]);
    }
    const matrix f = product(&hidden, &w2), block = add_norm(&n, &f);
    snprintf(command, sizeof command,
             LAYER "--heads 2 --wo wo.npy --add-norm --w1 w1.npy --w2 w2.npy --similarity %s%s%s", names[which],
             which == ADDITIVE ? " --add-w add_w.npy" : "", which == DOT ? " --causal" : "");
    good(command);
    shows("X: words", &x);
    shows("W^Q", &wq);
    shows("queries: Q = X W^Q", &q);
    shows("keys: K = X W^K", &k);
    shows("values: V = X W^V", &v);
    says("---- head 0: d0 to d2 of Q and K, d0 to d2 of V ----");
    says("---- head 1: d3 to d5 of Q and K, d3 to d5 of V ----");
    shows("concat: C", &concat);
    shows("output: Y = C W^O", &y);
    shows("LayerNorm: N", &n);
    shows("hidden: H = max(0, N W1)", &hidden);
    shows("LayerNorm: N', the block's output", &block);
  }
}

static void one_head(void **state) {
  (void)state;
  const matrix q = product(&x, &wq), k = product(&x, &wk), v = product(&x, &wv);
  matrix o = v;
  attend(DOT, 0, &q, &k, &v, 0, MODEL, &o);
  good(LAYER);
  shows("output: O = W V", &o);
  assert_null(strstr(out, "head"));
  const matrix n = add_norm(&x, &o);
  good(LAYER "--add-norm --k-labels a,b,c,d");
  says("\nresidual: R = X + O\n");
  shows("LayerNorm: N", &n);
  /* The same words are queries, keys and rows of X. */
  says("one row per word                                          d0");
  says("                                                   a ");
  assert_null(strstr(out, "q0"));
  assert_null(strstr(out, "x0"));
}

/* ---- similarities beside each other ---- */

static void all_similarities(void **state) {
  (void)state;
  matrix o[SIMILARITIES];
  char line[256];
  for (int s = 0; s < SIMILARITIES; s++) {
    o[s] = wv;
    attend(s, 0, &wq, &wk, &wv, 0, MODEL, &o[s]);
  }
  good("explain --q wq.npy --k wk.npy --v wv.npy --similarity all --add-w long_w.npy --format markdown");
  const char *outputs = strstr(out, "## output O = W V");
  assert_non_null(outputs);
  for (int s = 0; s < SIMILARITIES; s++) {
    snprintf(line, sizeof line, "\n### %s\n", names[s]);
    const char *at = strstr(outputs, line);
    assert_non_null(at);
    for (int i = 0; i < MODEL; i++) {
      snprintf(line, sizeof line, "\n| q%d |", i);
      at = strstr(at, line);
      assert_non_null(at);
      for (int d = 0; d < MODEL; d++) {
        at = strchr(at + 1, '|');
        at = d == 0 ? strchr(at + 1, '|') : at;
        assert_true(fabs(strtod(at + 1, NULL) - o[s].at[i][d]) <= 5.2e-5);
      }
    }
  }
  /* Few keys: in one line; the scale that is given is everybody's. */
  good("explain --q '1 0' --k '1 0; 0 2' --v '1; 2' --similarity all --add-w '1 1'");
  says("                           dot                 cosine               additive\n");
  says("        q0    0.6698    0.3302       0.7311    0.2689       0.3183    0.6817\n");
  says("z[i,j] = s[i,j] / sqrt(2) for dot, z[i,j] = s[i,j] for the others");
  good("explain --q '1 0' --k '1 0; 0 2' --v '1; 2' --similarity all --add-w '1 1' --scale 0");
  says("        q0    0.5000    0.5000       0.5000    0.5000       0.5000    0.5000\n");
  says("z[i,j] = 0 * s[i,j] in all three");
  /* Many keys: under each other. */
  good("explain --q '1 0' --k '1 0; 0 2;1 1;1 1;1 1' --v '1; 2;3;4;5' --similarity all --add-w '1 1'");
  says("\n\ncosine\n");
}

/* ---- given weights ---- */

static void given_weights(void **state) {
  (void)state;
  /* The textbook's sentence: one context vector for each word of the translation. */
  const matrix weights = {3, 3, {{0.6, 0.2, 0.2}, {0.2, 0.7, 0.1}, {0.3, 0.2, 0.5}}};
  const matrix encoded = {3, 4, {{4, 0, 1, -2}, {0, 4, 3, 0.5}, {2, 2, -1, 1}}};
  const matrix contexts = product(&weights, &encoded);
  good("explain --given-weights '0.6 0.2 0.2; 0.2 0.7 0.1; 0.3 0.2 0.5' --v '4 0 1 -2; 0 4 3 0.5; 2 2 -1 1' "
       "--q-labels 汤姆,追逐,杰瑞 --k-labels Tom,chase,Jerry");
  shows("context vectors: C = W V", &contexts);
  says("                                                汤姆    0.6000    0.2000    0.2000    1.0000\n");
  says("                                                 Tom    4.0000");
  /* A weight of 0 excludes its value, whatever that is. */
  good("explain --given-weights '0 1; 1 0' --v 'nan inf; 2 3'");
  says("q0    2.0000    3.0000");
  says("q1       nan       inf");
  good("explain --given-weights '0.3333333 0.3333333 0.3333334' --v '1;2;3'");
  says("q0    2.0000\n");
}

/* ---- formats ---- */

#define LABELS "--q-labels '<i>&\"x\"|' --k-labels 'a|b,*c*_' "

static void formats(void **state) {
  (void)state;
  good("explain --q '1 0' --k '4 0; 0 4' --v '1 2; 3 4' " LABELS "--format html");
  assert_memory_equal(out, "<!DOCTYPE html>\n", 16);
  says("<th scope=\"row\">&lt;i&gt;&amp;&quot;x&quot;|</th>");
  says("<th scope=\"col\">a|b</th><th scope=\"col\">*c*_</th>");
  assert_null(strstr(out, "<i>"));
  says("@media (prefers-color-scheme: dark)");
  assert_null(strstr(out, "http")); /* needs nothing else */
  assert_null(strstr(out, "src="));
  assert_null(strstr(out, "@import"));
  says("<td style=\"--w:0.944\">0.9442</td><td style=\"--w:0.056\">0.0558</td><td class=\"sum\">1.0000</td>");
  says("</body>\n</html>\n");
  good("explain --q 1 --k 1 --v 1 --q-labels \"$(printf 'a\\377b')\" --format html");
  says("<th scope=\"row\">a\xef\xbf\xbd"
       "b</th>"); /* a byte that is no UTF-8 */
  good("explain --q '1 0' --k '4 0; 0 4' --v '1 2; 3 4' " LABELS "--format=markdown");
  assert_memory_equal(out, "# Attention, step by step\n", 26);
  says("\n### softmax: weights W\n\n    m = max over j of z[i,j]\n");
  says("\n| | a\\|b | \\*c\\*\\_ | sum |\n| ---: | ---: | ---: | ---: |\n| \\<i\\>\\&\"x\"\\| | 0.9442 | 0.0558 | "
       "1.0000 |\n");
  good("explain --q 1 --k 1 --v 1 --format text");
  assert_memory_equal(out, "Attention on ", 13);
}

/* ---- bad input ---- */

static void refusals(void **state) {
  (void)state;
  static const struct {
    const char *arguments, *part;
  } cases[] = {
      {"explain --given-weights '0.5 0.5; 0.5 0.25' --v '1; 2'", "row 2 sums to 0.75; every row must sum to 1"},
      {"explain --given-weights '0.333 0.333 0.333' --v '1;2;3'", "row 1 sums to 0.999;"},
      {"explain --given-weights '1.5 -0.5' --v '1; 2'", "row 1, value 2 is -0.5; weights are >= 0"},
      {"explain --given-weights 'nan 1' --v '1; 2'", "row 1, value 1 is nan; weights are >= 0"},
      {"explain --given-weights 'inf 1' --v '1; 2'", "row 1 sums to inf"},
      {"explain --given-weights '1' --v '1; 2'", "--given-weights has 1 columns and --v 2 rows"},
      {"explain --given-weights '1'", "--v is missing"},
      {"explain --given-weights '1' --v 1 --causal", "--causal can't be given with --given-weights"},
      {"explain --given-weights '1' --v 1 --scale 2", "--scale can't be given with --given-weights"},
      {"explain --given-weights '1' --v 1 --q 2", "--q can't be given with --given-weights"},
      {"explain --given-weights '1' --v 1 --heads 2", "--heads needs --x"},
      {"explain --x 1 --given-weights 1 --v 1", "--x can't be given with --given-weights"},
      {"explain --x 1 --wq 1 --wk 1 --wv 1 --v 1", "--v can't be given with --x"},
      {"explain --x 1 --wq 1 --wv 1", "--wk is missing"},
      {"explain --wq 1 --q 1 --k 1 --v 1", "--wq needs --x"},
      {"explain --add-norm --q 1 --k 1 --v 1", "--add-norm needs --x"},
      {LAYER "--heads 4", "--heads 4 does not divide the 6 columns of --wq"},
      {LAYER "--heads 0", "--heads takes a number of heads >= 1, not '0'"},
      {LAYER "--heads two", "--heads takes a number of heads >= 1, not 'two'"},
      {LAYER "--wo '1 0; 0 1'", "--wo: the number of rows is 2; it must be that of the columns of --wv, 6"},
      {LAYER "--wo '1;1;1;1;1;1' --add-norm", "--wo: the number of columns is 1; it must be that of --x, for the"},
      {LAYER "--w1 w1.npy --add-norm", "--w1 and --w2 are the two layers of the feed-forward part: give both"},
      {LAYER "--w1 w1.npy --w2 w2.npy", "--w1 and --w2 need --add-norm"},
      {LAYER "--w1 w2.npy --w2 w1.npy --add-norm", "--w1: the number of rows is 8; it must be that of the columns of"},
      {"explain --x x.npy --wq '1 2' --wk wk.npy --wv wv.npy",
       "--wq: the number of rows is 1; it must be that of the columns of --x, 6"},
      {"explain --x x.npy --wq wq.npy --wk '1;1;1;1;1;1' --wv wv.npy",
       "--wk: the number of columns is 1; it must be that of --wq, 6"},
      {"explain --x '1 2 3 4 5 6 7 8 9' --wq 1 --wk 1 --wv 1", "--x has shape (1, 9): explain takes matrices from 1 x"},
      {"explain --x no.npy --wq 1 --wk 1 --wv 1", "--x: no.npy"},
      {"explain --q 1 --k 1 --v 1 --similarity euclid", "--similarity takes dot, cosine or additive, not 'euclid'"},
      {"explain --q 1 --k 1 --v 1 --similarity all", "--similarity all needs --add-w"},
      {"explain --q 1 --k 1 --v 1 --add-w 1", "--add-w needs --similarity additive or all"},
      {"explain --q 1 --k 1 --v 1 --similarity all --add-w '1 2'", "add-w"},
      {LAYER "--similarity additive --add-w add_w.npy",
       "--add-w: the number of columns is 3; it must be the dimension of a head, 6"},
      {LAYER "--similarity all --add-w long_w.npy --heads 2", "--heads goes on with one: choose a similarity"},
      {"explain --q 1 --k 1 --v 1 --format pdf", "--format takes text, markdown or html, not 'pdf'"},
      {LAYER "--q-labels a,b", "--q-labels has 2 labels, there are 4 queries"},
      {LAYER "--scale nan", "CLATTN_ERROR_VALUE"},
      {LAYER "--haeds 2", "did you mean --heads?"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    bad(cases[i].arguments, 2, cases[i].part);
}

static int start(void **state) {
  (void)state;
  if (enter_folder() != 0)
    return -1;
  x = draw("x.npy", WORDS, MODEL);
  wq = draw("wq.npy", MODEL, MODEL);
  wk = draw("wk.npy", MODEL, MODEL);
  wv = draw("wv.npy", MODEL, MODEL);
  wo = draw("wo.npy", MODEL, MODEL);
  w1 = draw("w1.npy", MODEL, HIDDEN);
  w2 = draw("w2.npy", HIDDEN, MODEL);
  add_w = draw("long_w.npy", 1, MODEL);
  float part[MODEL / HEADS];
  for (int d = 0; d < MODEL / HEADS; d++)
    part[d] = (float)add_w.at[0][d];
  write_npy("add_w.npy", "f4", 2, (const int64_t[]){1, MODEL / HEADS}, part);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(heads_and_block), cmocka_unit_test(one_head), cmocka_unit_test(all_similarities),
      cmocka_unit_test(given_weights),   cmocka_unit_test(formats),  cmocka_unit_test(refusals),
  };
  return cmocka_run_group_tests(tests, start, leave_group);
}
