/* SPDX-License-Identifier: Apache-2.0 */
/* The problem of one command and its input arrays, from files, text, or a problem line and a seed. */
#ifndef CLATTN_CLI_REQUEST_H
#define CLATTN_CLI_REQUEST_H

#include "clattn.h"
#include "options.h"
#include "tensor.h"

enum { CLI_Q, CLI_K, CLI_V, CLI_BIAS, CLI_KEEP_MASK, CLI_INPUTS };

typedef struct cli_request_options {
  const char *input[CLI_INPUTS]; /* sources; NULL = not given */
  const char *k_lengths;
  const char *layout;      /* "bhsd", "bshd" or NULL */
  const char *line, *seed; /* --problem, --seed */
  cli_rules rules;
} cli_request_options;

typedef struct cli_request {
  clattn_problem problem; /* checked, every size explicit; outputs and stage as the line says, else none */
  cli_tensor input[CLI_INPUTS];
  int32_t *k_lengths, *q_lengths, *q_offsets; /* batch entries, or NULL */
  int rank, bshd;                             /* of q's file, for the outputs' shapes; 4 and 0 with a problem line */
  uint64_t seed;
} cli_request;

/* Everything up to the drawing; needs no device. */
int cli_request_make(const cli_request_options *options, cli_request *out);
/* Draws what the problem uses and nobody gave: normal numbers for q, k, v and bias, three of four keys kept by the mask,
 * valid lengths and offsets.  The same seed gives the same numbers everywhere, whichever others are given.  max_bytes
 * bounds one array. */
int cli_request_draw(cli_request *request, uint64_t max_bytes);
void cli_request_close(cli_request *request);

/* Shapes of the problem's tensors over (batch, head, row, element). */
void cli_input_shape(const clattn_problem *problem, int input, int64_t shape[4]);

#endif
