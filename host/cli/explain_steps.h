/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of attention, computed and written on a page. */
#ifndef CLATTN_CLI_EXPLAIN_STEPS_H
#define CLATTN_CLI_EXPLAIN_STEPS_H

#include "explain_page.h"
#include "explain_small.h"

typedef struct cli_lesson {
  cli_lab *lab;
  cli_page *page;
  clattn_problem rules; /* sizes and tensors do not count */
  int compare;          /* all similarities beside each other, instead of that of the rules */
  cli_page_axis queries, keys;
} cli_lesson;

/* From q, k and v to the output, which *o gets where only one similarity is computed.  add_w may be NULL where no
 * similarity is additive. */
int cli_steps_of_attention(cli_lesson *lesson, const cli_small *q, const cli_small *k, const cli_small *v,
                           const cli_small *add_w, cli_small *o);

/* Weights that are final: each row sums to 1, which check makes sure of. */
int cli_weights_check(const cli_small *weights, const cli_small *v);
int cli_steps_of_weights(cli_lesson *lesson, const cli_small *weights, const cli_small *v);

/* From words to the output of a layer; what has 0 rows is not given. */
typedef struct cli_layer {
  cli_small x, wq, wk, wv, wo, w1, w2, add_w;
  int64_t heads;
  int add_norm;
} cli_layer;
int cli_layer_check(const cli_layer *layer);
int cli_steps_of_layer(cli_lesson *lesson, const cli_layer *layer);

/* The dimension's axis. */
cli_page_axis cli_steps_dims(void);

#endif
