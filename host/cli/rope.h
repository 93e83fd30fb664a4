/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary embedding: its options, tables and positions, from files or made here. */
#ifndef CLATTN_CLI_ROPE_H
#define CLATTN_CLI_ROPE_H

#include "request.h"

/* After all sizes and rules are known.  Sets the problem's fields, and what tables that are made here need. */
int cli_rope_from_files(const cli_request_options *options, cli_request *request);
int cli_rope_from_line(const cli_request_options *options, cli_request *request);
/* Cosines, or sines, of position * base^(-pair / pairs): a table of shape (batch, -, position, pair). */
void cli_rope_fill(double base, int sine, const int64_t shape[4], const int64_t stride[4], float *table);

#endif
