/* SPDX-License-Identifier: Apache-2.0 */
/* Matrices up to 8 x 8, and products and attention of them through OpenCL. */
#ifndef CLATTN_CLI_EXPLAIN_SMALL_H
#define CLATTN_CLI_EXPLAIN_SMALL_H

#include <stdint.h>

#include "clattn.h"
#include "device.h"

enum { CLI_SMALL_MOST = 8 };

typedef struct cli_small {
  int64_t rows, columns; /* 0: there is none */
  float at[CLI_SMALL_MOST][CLI_SMALL_MOST];
} cli_small;

/* From an option's value: text or a file.  Prints and returns the exit code. */
int cli_small_load(const char *name, const char *source, cli_small *out);
/* `count` columns from `first` on. */
cli_small cli_small_columns(const cli_small *matrix, int64_t first, int64_t count);

/* A device, and the kernels to use there. */
typedef struct cli_lab {
  cli_session session;
  const char *variant; /* NULL: the best that fits */
  const char *used;    /* by the last attention */
} cli_lab;

int cli_lab_open(const char *device, const char *variant, cli_lab *out);
void cli_lab_close(cli_lab *lab);

/* a b, as raw scores: the rows of a against the columns of b. */
int cli_small_product(cli_lab *lab, const cli_small *a, const cli_small *b, cli_small *out);

typedef struct cli_small_inputs {
  const cli_small *q, *k, *v, *bias, *add_w; /* the last two may be NULL */
} cli_small_inputs;

/* Attention with the rules, scale and similarity of `rules`, whose sizes and tensors do not count.  scores are those of
 * the stage; o may be NULL. */
int cli_small_attend(cli_lab *lab, const clattn_problem *rules, const cli_small_inputs *inputs, clattn_stage stage,
                     cli_small *scores, cli_small *o);

#endif
