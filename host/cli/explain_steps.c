/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "explain_steps.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"

enum { SIMILARITIES = 3 };

static const char *const similarity_names[SIMILARITIES] = {"dot", "cosine", "additive"};
static const char *const similarity_titles[SIMILARITIES] = {"scores: S = Q K^T", "scores: S = cosine of Q and K",
                                                            "scores: S = w . tanh(Q + K)"};
static const char *const similarity_formulas[SIMILARITIES] = {
    "s[i,j] = sum over d of q[i,d] k[j,d]", "s[i,j] = q[i] . k[j] / (|q[i]| |k[j]|)", "s[i,j] = w . tanh(q[i] + k[j])"};

cli_page_axis cli_steps_dims(void) {
  const cli_page_axis axis = {NULL, 'd'};
  return axis;
}

static int scale_is_one(const clattn_problem *rules) {
  return rules->scale_mode == CLATTN_SCALE_DEFAULT && rules->similarity != CLATTN_DOT;
}

/* The scores' own scale. */
static clattn_problem unscaled(const clattn_problem *rules) {
  clattn_problem plain = *rules;
  plain.scale_mode = CLATTN_SCALE_VALUE;
  plain.scale = 1;
  return plain;
}

static void weight_formulas(cli_page_item *item) {
  cli_page_formula(item, "m = max over j of z[i,j]");
  cli_page_formula(item, "l = sum over j of exp(z[i,j] - m)");
  cli_page_formula(item, "w[i,j] = exp(z[i,j] - m) / l");
}

static int show_scaled(cli_lesson *lesson, const cli_small_inputs *in) {
  const clattn_problem *rules = &lesson->rules;
  cli_small scores;
  const int code = cli_small_attend(lesson->lab, rules, in, CLATTN_STAGE_RAW, &scores, NULL);
  if (code != CLI_OK)
    return code;
  cli_page_item *item = cli_page_table(lesson->page, "scaled scores", lesson->queries, lesson->keys, &scores);
  if (rules->scale_mode == CLATTN_SCALE_VALUE)
    cli_page_formula(item, "z[i,j] = %.6g * s[i,j]", (double)rules->scale);
  else
    cli_page_formula(item, "z[i,j] = s[i,j] / sqrt(%" PRId64 ")", in->q->columns);
  return CLI_OK;
}

/* Softcap and masks, where there are any. */
static int show_masked(cli_lesson *lesson, const cli_small_inputs *in) {
  const clattn_problem *rules = &lesson->rules;
  const int masks = rules->causal || rules->window != 0;
  cli_small scores;
  if (!masks && !(rules->softcap > 0))
    return CLI_OK;
  const int code = cli_small_attend(lesson->lab, rules, in, CLATTN_STAGE_MASKED, &scores, NULL);
  if (code != CLI_OK)
    return code;
  const char *title = !masks ? "capped" : rules->softcap > 0 ? "capped, then masked" : "masked";
  cli_page_item *item = cli_page_table(lesson->page, title, lesson->queries, lesson->keys, &scores);
  if (masks)
    cli_page_formula(item, "excluded keys: z[i,j] = -inf");
  if (rules->softcap > 0)
    cli_page_formula(item, "z[i,j] = %.6g * tanh(z[i,j] / %.6g)", (double)rules->softcap, (double)rules->softcap);
  return CLI_OK;
}

static int one_similarity(cli_lesson *lesson, const cli_small_inputs *in, cli_small *o) {
  const clattn_similarity similarity = lesson->rules.similarity;
  const clattn_problem plain = unscaled(&lesson->rules);
  cli_small scores;
  int code = cli_small_attend(lesson->lab, &plain, in, CLATTN_STAGE_RAW, &scores, NULL);
  if (code != CLI_OK)
    return code;
  cli_page_item *item =
      cli_page_table(lesson->page, similarity_titles[similarity], lesson->queries, lesson->keys, &scores);
  cli_page_formula(item, "%s", similarity_formulas[similarity]);
  if (!scale_is_one(&lesson->rules))
    code = show_scaled(lesson, in);
  if (code == CLI_OK)
    code = show_masked(lesson, in);
  if (code == CLI_OK)
    code = cli_small_attend(lesson->lab, &lesson->rules, in, CLATTN_STAGE_WEIGHTS, &scores, o);
  if (code != CLI_OK)
    return code;
  item = cli_page_table(lesson->page, "softmax: weights W", lesson->queries, lesson->keys, &scores);
  weight_formulas(item);
  item->weights = item->row_sums = 1;
  item = cli_page_table(lesson->page, "output: O = W V", lesson->queries, cli_steps_dims(), o);
  cli_page_formula(item, "o[i,d] = sum over j of w[i,j] v[j,d]");
  return CLI_OK;
}

static void show_group(cli_lesson *lesson, const cli_small numbers[SIMILARITIES], cli_page_axis columns, int weights) {
  for (int s = 0; s < SIMILARITIES; s++) {
    cli_page_item *item = cli_page_table(lesson->page, similarity_names[s], lesson->queries, columns, &numbers[s]);
    item->weights = weights;
    item->beside = s > 0;
  }
}

static int all_similarities(cli_lesson *lesson, const cli_small_inputs *in) {
  cli_small scores[SIMILARITIES], weights[SIMILARITIES], outputs[SIMILARITIES];
  for (int s = 0; s < SIMILARITIES; s++) {
    lesson->rules.similarity = s;
    const clattn_problem plain = unscaled(&lesson->rules);
    int code = cli_small_attend(lesson->lab, &plain, in, CLATTN_STAGE_RAW, &scores[s], NULL);
    if (code == CLI_OK)
      code = cli_small_attend(lesson->lab, &lesson->rules, in, CLATTN_STAGE_WEIGHTS, &weights[s], &outputs[s]);
    if (code != CLI_OK)
      return code;
  }
  cli_page_item *item = cli_page_heading(lesson->page, "scores S");
  for (int s = 0; s < SIMILARITIES; s++)
    cli_page_formula(item, "%s: %s", similarity_names[s], similarity_formulas[s]);
  show_group(lesson, scores, lesson->keys, 0);
  item = cli_page_heading(lesson->page, "weights W: softmax of each row");
  if (lesson->rules.scale_mode == CLATTN_SCALE_VALUE)
    cli_page_formula(item, "z[i,j] = %.6g * s[i,j] in all three", (double)lesson->rules.scale);
  else
    cli_page_formula(item, "z[i,j] = s[i,j] / sqrt(%" PRId64 ") for dot, z[i,j] = s[i,j] for the others",
                     in->q->columns);
  if (lesson->rules.softcap > 0)
    cli_page_formula(item, "then z[i,j] = %.6g * tanh(z[i,j] / %.6g)", (double)lesson->rules.softcap,
                     (double)lesson->rules.softcap);
  if (lesson->rules.causal || lesson->rules.window != 0)
    cli_page_formula(item, "excluded keys: z[i,j] = -inf");
  show_group(lesson, weights, lesson->keys, 1);
  cli_page_heading(lesson->page, "output O = W V");
  show_group(lesson, outputs, cli_steps_dims(), 0);
  return CLI_OK;
}

int cli_steps_of_attention(cli_lesson *lesson, const cli_small *q, const cli_small *k, const cli_small *v,
                           const cli_small *add_w, cli_small *o) {
  const cli_small_inputs in = {q, k, v, NULL, add_w};
  return lesson->compare ? all_similarities(lesson, &in) : one_similarity(lesson, &in, o);
}

/* ---- given weights ---- */

/* Sums may be off by what the rounding of the numbers to float makes of them. */
int cli_weights_check(const cli_small *weights, const cli_small *v) {
  if (weights->columns != v->rows)
    return cli_fail(CLI_USAGE,
                    "--given-weights has %" PRId64 " columns and --v %" PRId64
                    " rows: there must be a weight for every row of --v",
                    weights->columns, v->rows);
  for (int64_t i = 0; i < weights->rows; i++) {
    double sum = 0;
    for (int64_t j = 0; j < weights->columns; j++) {
      const double weight = (double)weights->at[i][j];
      if (!(weight >= 0))
        return cli_fail(CLI_USAGE, "--given-weights: row %" PRId64 ", value %" PRId64 " is %g; weights are >= 0", i + 1,
                        j + 1, cli_unsigned_nan(weight));
      sum += weight;
    }
    if (!(fabs(sum - 1) <= 1e-5))
      return cli_fail(CLI_USAGE, "--given-weights: row %" PRId64 " sums to %.7g; every row must sum to 1", i + 1, sum);
  }
  return CLI_OK;
}

int cli_steps_of_weights(cli_lesson *lesson, const cli_small *weights, const cli_small *v) {
  cli_small zero_q, zero_k, logs, computed, o;
  /* Scores of 0, to which log(w) is added: their softmax is w, and a weight of 0 excludes its key. */
  memset(&zero_q, 0, sizeof zero_q);
  zero_q.rows = weights->rows;
  zero_q.columns = 1;
  zero_k = zero_q;
  zero_k.rows = weights->columns;
  logs = *weights;
  for (int64_t i = 0; i < logs.rows; i++) {
    for (int64_t j = 0; j < logs.columns; j++)
      logs.at[i][j] = weights->at[i][j] > 0 ? logf(weights->at[i][j]) : -INFINITY;
  }
  lesson->rules.scale_mode = CLATTN_SCALE_VALUE;
  lesson->rules.scale = 0;
  const cli_small_inputs in = {&zero_q, &zero_k, v, &logs, NULL};
  const int code = cli_small_attend(lesson->lab, &lesson->rules, &in, CLATTN_STAGE_WEIGHTS, &computed, &o);
  if (code != CLI_OK)
    return code;
  cli_page_item *item = cli_page_table(lesson->page, "V: values", lesson->keys, cli_steps_dims(), v);
  cli_page_formula(item, "one row per key");
  item = cli_page_table(lesson->page, "weights W, as given", lesson->queries, lesson->keys, &computed);
  cli_page_formula(item, "softmax of log(W), which is W");
  item->weights = item->row_sums = 1;
  item = cli_page_table(lesson->page, "context vectors: C = W V", lesson->queries, cli_steps_dims(), &o);
  cli_page_formula(item, "c[i,d] = sum over j of w[i,j] v[j,d]");
  return CLI_OK;
}
