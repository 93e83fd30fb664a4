/* SPDX-License-Identifier: Apache-2.0 */
/* The problem of one command and its input arrays, from files, text, or a problem line and a seed. */
#ifndef CLATTN_CLI_REQUEST_H
#define CLATTN_CLI_REQUEST_H

#include "clattn.h"
#include "hook.h"
#include "options.h"
#include "tensor.h"

/* Arrays that lie on the device. */
enum {
  CLI_Q,
  CLI_K,
  CLI_V,
  CLI_BIAS,
  CLI_KEEP_MASK,
  CLI_BLOCK_MASK,
  CLI_ALIBI_SLOPES,
  CLI_SINK,
  CLI_PAGE_TABLE,
  CLI_HEAD_SCALE,
  CLI_ADD_W,
  CLI_K_SCALE,
  CLI_V_SCALE,
  CLI_ROPE_COS,
  CLI_ROPE_SIN,
  CLI_POSITIONS_Q,
  CLI_POSITIONS_K,
  CLI_INPUTS
};

/* int32 arrays on the host: one entry per batch entry, cu_seqlens one more. */
enum { CLI_Q_LENGTHS, CLI_K_LENGTHS, CLI_PREFIX, CLI_CU_SEQLENS_Q, CLI_CU_SEQLENS_K, CLI_Q_OFFSETS, CLI_INTS };

/* Inputs that are stored in more than one type: CLI_Q, CLI_K, CLI_V, CLI_BIAS. */
enum { CLI_STORED = CLI_BIAS + 1, CLI_MOST_HOOK_ARGS = 2 * CLI_HOOK_SLOTS + 1 /* one too many is told as such */ };

typedef struct cli_request_options {
  const char *input[CLI_INPUTS]; /* sources; NULL = not given */
  const char *ints[CLI_INTS];    /* likewise; there is no option for CLI_Q_OFFSETS */
  const char *drop_mask, *page_size, *block_size;
  const char *dtype[CLI_STORED], *out_dtype, *v_dim; /* names of storage types; the head dimension of v in i4 */
  const char *hook, *hook_arg[CLI_MOST_HOOK_ARGS];
  int hook_args;
  const char *rope, *rope_dim, *rope_base;
  const char *layout;      /* "bhsd", "bshd" or NULL */
  const char *line, *seed; /* --problem, --seed */
  cli_rules rules;
} cli_request_options;

enum { CLI_SCALES_NONE, CLI_SCALES_GIVEN, CLI_SCALES_DRAWN };

/* How an input is to be stored. */
typedef struct cli_storage {
  int given; /* 0: as its file has it */
  clattn_dtype dtype;
  int64_t dim; /* elements of a row of i4; 0: as many as its bytes hold */
  int scales;  /* where those of i8 and i4 come from, if the file has codes */
} cli_storage;

typedef struct cli_request {
  clattn_problem problem; /* checked, every size explicit; outputs and stage as the line says, else none */
  cli_tensor input[CLI_INPUTS];
  int32_t *ints[CLI_INTS]; /* or NULL */
  cli_storage storage[CLI_STORED];
  cli_hook hook;
  int from_line;
  double rope_base; /* of the tables that are made here */
  int rank, bshd;   /* of q's file, for the outputs' shapes; 4 and 0 with a problem line */
  uint64_t seed;
} cli_request;

/* Everything up to the drawing; needs no device. */
int cli_request_make(const cli_request_options *options, cli_request *out);
/* Draws what the problem uses and nobody gave: normal numbers for q, k, v, bias, sink and add_w, codes of i8 and i4
 * whose scales make them numbers of size 1, head scales from 0.5 to 1.5, three of four keys or blocks kept by the
 * masks, valid lengths, offsets, sequences, pages and positions.  ALiBi gets the standard slopes, rotary embedding the
 * standard tables.  The same seed gives the same numbers everywhere, whichever others are given.  max_bytes bounds one
 * array. */
int cli_request_draw(cli_request *request, uint64_t max_bytes);
void cli_request_close(cli_request *request);

/* The option without its dashes. */
const char *cli_input_name(int input);
const char *cli_ints_name(int which);

int cli_packed_q(const clattn_problem *problem);
int cli_packed_k(const clattn_problem *problem);
int cli_paged(const clattn_problem *problem);
/* 1 if the problem has the array. */
int cli_input_used(const clattn_problem *problem, int input);
/* NULL for the page table and positions, which the problem does not describe. */
clattn_tensor *cli_input_tensor(clattn_problem *problem, int input);
/* Shapes of the problem's tensors over (batch, head, row, element): packed ones are (1, head, row of all, element),
 * paged ones (page, head, row in page, element), masks of bits count words on the last axis, scales count groups. */
void cli_input_shape(const clattn_problem *problem, int input, int64_t shape[4]);
/* Their strides; 0 where the layout is none of this program's. */
int cli_input_strides(const clattn_problem *problem, int input, const int64_t shape[4], int64_t stride[4]);
/* Queries and keys that a batch entry has at most: its packed sequence's, which must be there, else the problem's. */
int64_t cli_queries_of(const cli_request *request, int64_t b);
int64_t cli_keys_of(const cli_request *request, int64_t b);

#endif
