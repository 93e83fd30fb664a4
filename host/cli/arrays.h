/* SPDX-License-Identifier: Apache-2.0 */
/* The rules' arrays: loaded, checked against the problem's sizes, and brought into the form that the library takes.
 * Each sets the fields of the problem that say so. */
#ifndef CLATTN_CLI_ARRAYS_H
#define CLATTN_CLI_ARRAYS_H

#include "request.h"

/* CLI_CU_SEQLENS_Q or _K, where `rows` lie packed; sets the request's batch where it is 0, else the number of sequences
 * must be the batch.  whole: the sequences must take all rows. */
int cli_take_cu_seqlens(cli_request *request, int which, const char *source, int64_t rows, int whole);
/* (batch, pages) of entries as NumPy has them; sets max_pages and, where it is 0, the batch.  The entries are checked
 * by cli_check_page_table, once the lengths are there. */
int cli_take_page_table(cli_request *request, const char *source);
int cli_check_page_table(const cli_request *request);
/* CLI_Q_LENGTHS or CLI_K_LENGTHS. */
int cli_take_lengths(cli_request *request, int which, const char *source);
/* A number for all, or an array. */
int cli_take_prefix(cli_request *request, const char *source);

/* Bias, keep mask, or (drop) the opposite of a keep mask. */
int cli_take_pairs(cli_request *request, int input, int drop, const char *source);
/* Of the problem's block sizes; bytes become bits. */
int cli_take_block_mask(cli_request *request, const char *source);
/* CLI_ALIBI_SLOPES: (heads) or (batch or 1, heads); CLI_SINK and CLI_HEAD_SCALE: (heads). */
int cli_take_heads(cli_request *request, int input, const char *source);

/* (dim), one for all heads, or (heads, dim). */
int cli_take_add_w(cli_request *request, const char *source);

/* "Q,K" into block_q and block_k. */
int cli_take_block_size(cli_request *request, const char *text);

#endif
