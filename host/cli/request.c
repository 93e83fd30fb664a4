/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "request.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "arrays.h"
#include "cli.h"
#include "convert.h"
#include "rope.h"
#include "types.h"

static const struct input_row {
  const char *name;
  size_t descriptor; /* in clattn_problem */
} inputs[CLI_INPUTS] = {
    [CLI_Q] = {"q", offsetof(clattn_problem, q)},
    [CLI_K] = {"k", offsetof(clattn_problem, k)},
    [CLI_V] = {"v", offsetof(clattn_problem, v)},
    [CLI_BIAS] = {"bias", offsetof(clattn_problem, bias)},
    [CLI_KEEP_MASK] = {"keep-mask", offsetof(clattn_problem, keep_mask)},
    [CLI_BLOCK_MASK] = {"block-mask", offsetof(clattn_problem, block_mask)},
    [CLI_ALIBI_SLOPES] = {"alibi-slopes", offsetof(clattn_problem, alibi_slopes)},
    [CLI_SINK] = {"sink", offsetof(clattn_problem, sink)},
    [CLI_PAGE_TABLE] = {"page-table", 0},
    [CLI_HEAD_SCALE] = {"head-scale", offsetof(clattn_problem, head_scale)},
    [CLI_ADD_W] = {"add-w", offsetof(clattn_problem, add_w)},
    [CLI_K_SCALE] = {"k-scale", offsetof(clattn_problem, k_scale)},
    [CLI_V_SCALE] = {"v-scale", offsetof(clattn_problem, v_scale)},
    [CLI_ROPE_COS] = {"rope-cos", offsetof(clattn_problem, rope_cos)},
    [CLI_ROPE_SIN] = {"rope-sin", offsetof(clattn_problem, rope_sin)},
    [CLI_POSITIONS_Q] = {"positions-q", 0},
    [CLI_POSITIONS_K] = {"positions-k", 0},
};

static const char *const ints_names[CLI_INTS] = {
    [CLI_Q_LENGTHS] = "q-lengths",       [CLI_K_LENGTHS] = "k-lengths",       [CLI_PREFIX] = "prefix",
    [CLI_CU_SEQLENS_Q] = "cu-seqlens-q", [CLI_CU_SEQLENS_K] = "cu-seqlens-k", [CLI_Q_OFFSETS] = "q-offsets"};

const char *cli_input_name(int input) {
  return inputs[input].name;
}

const char *cli_ints_name(int which) {
  return ints_names[which];
}

int cli_packed_q(const clattn_problem *problem) {
  return problem->q.layout == CLATTN_LAYOUT_PACKED;
}

int cli_packed_k(const clattn_problem *problem) {
  return problem->k.layout == CLATTN_LAYOUT_PACKED;
}

int cli_paged(const clattn_problem *problem) {
  return problem->k.layout == CLATTN_LAYOUT_PAGED;
}

clattn_tensor *cli_input_tensor(clattn_problem *problem, int input) {
  if (input == CLI_PAGE_TABLE || input == CLI_POSITIONS_Q || input == CLI_POSITIONS_K)
    return NULL;
  return (clattn_tensor *)(void *)((char *)problem + inputs[input].descriptor);
}

int cli_input_used(const clattn_problem *problem, int input) {
  switch (input) {
  case CLI_BIAS:
    return problem->use_bias != 0;
  case CLI_KEEP_MASK:
    return problem->keep_mask_kind != CLATTN_MASK_NONE;
  case CLI_BLOCK_MASK:
    return problem->block_mask_kind != CLATTN_MASK_NONE;
  case CLI_ALIBI_SLOPES:
    return problem->alibi != CLATTN_ALIBI_NONE;
  case CLI_SINK:
    return problem->use_sink != 0;
  case CLI_PAGE_TABLE:
    return cli_paged(problem);
  case CLI_HEAD_SCALE:
    return problem->use_head_scale != 0;
  case CLI_ADD_W:
    return problem->similarity == CLATTN_ADDITIVE;
  case CLI_K_SCALE:
    return cli_dtype_is_quantised(problem->k.dtype);
  case CLI_V_SCALE:
    return cli_dtype_is_quantised(problem->v.dtype);
  case CLI_ROPE_COS:
  case CLI_ROPE_SIN:
    return problem->rope != CLATTN_ROPE_NONE;
  case CLI_POSITIONS_Q:
  case CLI_POSITIONS_K:
    return problem->rope != CLATTN_ROPE_NONE && problem->use_positions;
  default:
    return 1;
  }
}

static int64_t ceil_div(int64_t a, int64_t b) {
  return a / b + (a % b != 0);
}

void cli_input_shape(const clattn_problem *problem, int input, int64_t shape[4]) {
  const int of_keys = input == CLI_K || input == CLI_V || input == CLI_K_SCALE || input == CLI_V_SCALE;
  const int packed_q = (input == CLI_Q || input == CLI_POSITIONS_Q) && cli_packed_q(problem);
  const int packed_k = (of_keys || input == CLI_POSITIONS_K) && cli_packed_k(problem);
  shape[0] = problem->batch;
  shape[1] = of_keys ? problem->kv_heads : problem->q_heads;
  shape[2] = of_keys ? problem->k_len : problem->q_len;
  shape[3] = problem->k_len;
  switch (input) {
  case CLI_Q:
  case CLI_K:
    shape[3] = problem->qk_dim;
    break;
  case CLI_V:
    shape[3] = problem->v_dim;
    break;
  case CLI_KEEP_MASK:
    shape[3] = problem->keep_mask_kind == CLATTN_MASK_BITS ? ceil_div(problem->k_len, 32) : problem->k_len;
    break;
  case CLI_BLOCK_MASK:
    shape[2] = ceil_div(problem->q_len, problem->block_q);
    shape[3] = ceil_div(ceil_div(problem->k_len, problem->block_k), 32);
    break;
  case CLI_SINK:
  case CLI_HEAD_SCALE:
    shape[0] = shape[2] = shape[3] = 1;
    break;
  case CLI_ADD_W:
    shape[0] = shape[2] = 1;
    shape[3] = problem->qk_dim;
    break;
  case CLI_K_SCALE:
    shape[3] = cli_dtype_groups(problem->k.dtype, problem->qk_dim);
    break;
  case CLI_V_SCALE:
    shape[3] = cli_dtype_groups(problem->v.dtype, problem->v_dim);
    break;
  case CLI_ALIBI_SLOPES:
    shape[2] = shape[3] = 1;
    break;
  case CLI_PAGE_TABLE:
    shape[1] = shape[2] = 1;
    shape[3] = problem->max_pages;
    break;
  case CLI_ROPE_COS:
  case CLI_ROPE_SIN:
    shape[1] = 1;
    shape[2] = problem->rope_positions;
    shape[3] = problem->rope_dim / 2;
    break;
  case CLI_POSITIONS_Q:
  case CLI_POSITIONS_K:
    shape[2] = input == CLI_POSITIONS_Q ? problem->q_len : problem->k_len;
    shape[1] = shape[3] = 1;
    break;
  default:
    break;
  }
  if (of_keys && cli_paged(problem)) {
    shape[0] = problem->num_pages;
    shape[2] = problem->page_size;
  } else if (packed_k) {
    shape[0] = 1;
    shape[2] = problem->total_k;
  } else if (packed_q) {
    shape[0] = 1;
    shape[2] = problem->total_q;
  }
}

int cli_input_strides(const clattn_problem *problem, int input, const int64_t shape[4], int64_t stride[4]) {
  if (input == CLI_PAGE_TABLE) {
    const int64_t rows[4] = {shape[3], 0, 0, 1};
    memcpy(stride, rows, sizeof rows);
    return 1;
  }
  if (input == CLI_POSITIONS_Q || input == CLI_POSITIONS_K) {
    const int64_t rows[4] = {shape[2], 0, 1, 0};
    memcpy(stride, rows, sizeof rows);
    return 1;
  }
  const clattn_tensor *tensor = (const clattn_tensor *)(const void *)((const char *)problem + inputs[input].descriptor);
  if ((input == CLI_ALIBI_SLOPES || input == CLI_SINK || input == CLI_HEAD_SCALE) &&
      tensor->layout != CLATTN_LAYOUT_STRIDED) {
    const int64_t heads[4] = {0, 1, 0, 0};
    memcpy(stride, heads, sizeof heads);
    return 1;
  }
  if ((input == CLI_ROPE_COS || input == CLI_ROPE_SIN) && tensor->layout != CLATTN_LAYOUT_STRIDED) {
    const int64_t lines[4] = {0, 0, shape[3], 1}; /* shared by the batch */
    memcpy(stride, lines, sizeof lines);
    return 1;
  }
  return cli_strides(tensor, shape, stride);
}

int64_t cli_queries_of(const cli_request *request, int64_t b) {
  const int32_t *starts = request->ints[CLI_CU_SEQLENS_Q];
  return starts != NULL ? starts[b + 1] - starts[b] : request->problem.q_len;
}

int64_t cli_keys_of(const cli_request *request, int64_t b) {
  const int32_t *starts = request->ints[CLI_CU_SEQLENS_K];
  return starts != NULL ? starts[b + 1] - starts[b] : request->problem.k_len;
}

static int check_problem(const clattn_problem *problem, const char *what) {
  clattn_error error;
  clattn_error_init(&error);
  const clattn_status status = clattn_problem_check(problem, &error);
  return status == CLATTN_SUCCESS ? CLI_OK : cli_fail_status(status, &error, what);
}

/* ---- from files ---- */

static int mismatch(const cli_tensor *a, const cli_tensor *b, const char *rule, int64_t of_a, int64_t of_b) {
  char first[128], second[128];
  return cli_fail(CLI_USAGE, "--%s %s and --%s %s do not fit: %s must be equal, here %" PRId64 " and %" PRId64, a->name,
                  cli_shape_text(a->rank, a->shape, first, sizeof first), b->name,
                  cli_shape_text(b->rank, b->shape, second, sizeof second), rule, of_a, of_b);
}

/* Where batch entries are counted: by the sequences, the page table, or an axis. */
static int fit_batch(const cli_request_options *options, cli_request *request, int64_t shape[3][4]) {
  clattn_problem *problem = &request->problem;
  const cli_tensor *q = &request->input[CLI_Q], *k = &request->input[CLI_K];
  const int packed_q = cli_packed_q(problem), packed_k = cli_packed_k(problem);
  int code = CLI_OK;
  if (!packed_q && !packed_k && !cli_paged(problem) && shape[CLI_Q][0] != shape[CLI_K][0])
    return mismatch(q, k, "the batch sizes", shape[CLI_Q][0], shape[CLI_K][0]);
  if (shape[CLI_K][0] != shape[CLI_V][0])
    return mismatch(k, &request->input[CLI_V], cli_paged(problem) ? "the numbers of pages" : "the batch sizes",
                    shape[CLI_K][0], shape[CLI_V][0]);
  problem->batch = !packed_q ? shape[CLI_Q][0] : !packed_k && !cli_paged(problem) ? shape[CLI_K][0] : 0;
  problem->q_len = packed_q ? 0 : shape[CLI_Q][2];
  problem->k_len = packed_k ? 0 : shape[CLI_K][2];
  if (packed_q) {
    problem->total_q = shape[CLI_Q][2];
    code = cli_take_cu_seqlens(request, CLI_CU_SEQLENS_Q, options->ints[CLI_CU_SEQLENS_Q], problem->total_q, 1);
  }
  if (packed_k && code == CLI_OK) {
    problem->total_k = shape[CLI_K][2];
    code = cli_take_cu_seqlens(request, CLI_CU_SEQLENS_K, options->ints[CLI_CU_SEQLENS_K], problem->total_k, 1);
  }
  if (cli_paged(problem) && code == CLI_OK) {
    problem->num_pages = shape[CLI_K][0];
    problem->page_size = shape[CLI_K][2];
    code = cli_take_page_table(request, options->input[CLI_PAGE_TABLE]);
    /* What the table reaches bounds the lengths, until they are read. */
    problem->k_len =
        problem->max_pages > INT32_MAX / problem->page_size ? INT32_MAX : problem->max_pages * problem->page_size;
  }
  return code;
}

/* Sizes and descriptors of q, k and v. */
static int fit_shapes(const cli_request_options *options, cli_request *request) {
  clattn_problem *problem = &request->problem;
  const cli_tensor *q = &request->input[CLI_Q], *k = &request->input[CLI_K], *v = &request->input[CLI_V];
  const int paged = options->input[CLI_PAGE_TABLE] != NULL;
  const clattn_layout of_q = options->ints[CLI_CU_SEQLENS_Q] != NULL ? CLATTN_LAYOUT_PACKED : CLATTN_LAYOUT_BHSD;
  const clattn_layout of_k = paged                                     ? CLATTN_LAYOUT_PAGED
                             : options->ints[CLI_CU_SEQLENS_K] != NULL ? CLATTN_LAYOUT_PACKED
                                                                       : CLATTN_LAYOUT_BHSD;
  int64_t shape[3][4], stride[3][4];
  for (int i = CLI_Q; i <= CLI_V; i++) {
    char text[128];
    const cli_tensor *tensor = &request->input[i];
    const clattn_layout layout = i == CLI_Q ? of_q : of_k;
    cli_tensor_axes(tensor, request->bshd || layout != CLATTN_LAYOUT_BHSD, shape[i], stride[i]);
    if (layout == CLATTN_LAYOUT_PAGED && (shape[i][0] == 0 || shape[i][2] == 0))
      return cli_fail(CLI_USAGE, "--%s has shape %s: pages and their rows may not be 0", tensor->name,
                      cli_shape_text(tensor->rank, tensor->shape, text, sizeof text));
    if (shape[i][0] == 0 || shape[i][1] == 0 || shape[i][3] == 0)
      return cli_fail(CLI_USAGE, "--%s has shape %s: only the axis of %s may have length 0", tensor->name,
                      cli_shape_text(tensor->rank, tensor->shape, text, sizeof text), i == CLI_Q ? "queries" : "keys");
    *cli_input_tensor(problem, i) = layout == CLATTN_LAYOUT_BHSD
                                        ? cli_describe(tensor->dtype, shape[i], stride[i])
                                        : cli_describe_as(layout, tensor->dtype, shape[i], stride[i]);
  }
  if (shape[CLI_Q][3] != shape[CLI_K][3])
    return mismatch(q, k, "the head dimensions", shape[CLI_Q][3], shape[CLI_K][3]);
  if (shape[CLI_K][2] != shape[CLI_V][2])
    return mismatch(k, v, paged ? "the rows of a page" : "the numbers of keys and of values", shape[CLI_K][2],
                    shape[CLI_V][2]);
  if (shape[CLI_K][1] != shape[CLI_V][1])
    return mismatch(k, v, "the numbers of heads", shape[CLI_K][1], shape[CLI_V][1]);
  if (shape[CLI_Q][1] % shape[CLI_K][1] != 0) {
    char first[128], second[128];
    return cli_fail(CLI_USAGE,
                    "--q %s and --k %s do not fit: %" PRId64 " key heads do not divide %" PRId64 " query heads",
                    cli_shape_text(q->rank, q->shape, first, sizeof first),
                    cli_shape_text(k->rank, k->shape, second, sizeof second), shape[CLI_K][1], shape[CLI_Q][1]);
  }
  problem->q_heads = shape[CLI_Q][1];
  problem->kv_heads = shape[CLI_K][1];
  problem->qk_dim = shape[CLI_Q][3];
  problem->v_dim = shape[CLI_V][3];
  request->rank = q->rank;
  problem->o.layout = request->bshd && q->rank >= 3 ? CLATTN_LAYOUT_BSHD : CLATTN_LAYOUT_BHSD;
  if (cli_packed_q(problem))
    problem->o.layout = problem->lse.layout = CLATTN_LAYOUT_PACKED;
  problem->o.dtype = problem->q.dtype;
  const int code = cli_take_dtype("out-dtype", options->out_dtype, 0, &problem->o.dtype);
  return code == CLI_OK ? fit_batch(options, request, shape) : code;
}

/* Lengths, with which the scores have their size, and what goes with them. */
static int fit_lengths(const cli_request_options *options, cli_request *request) {
  clattn_problem *problem = &request->problem;
  int code = CLI_OK;
  if (options->ints[CLI_Q_LENGTHS] != NULL)
    code = cli_take_lengths(request, CLI_Q_LENGTHS, options->ints[CLI_Q_LENGTHS]);
  if (options->ints[CLI_K_LENGTHS] != NULL && code == CLI_OK)
    code = cli_take_lengths(request, CLI_K_LENGTHS, options->ints[CLI_K_LENGTHS]);
  if (code != CLI_OK || !cli_paged(problem))
    return code;
  problem->k_len = 0;
  for (int64_t b = 0; b < problem->batch; b++) {
    const int64_t length = request->ints[CLI_K_LENGTHS][b];
    problem->k_len = length > problem->k_len ? length : problem->k_len;
  }
  return cli_check_page_table(request);
}

/* Options that need or exclude each other, where the problem comes from files. */
static int check_together(const cli_request_options *o) {
  const int paged = o->input[CLI_PAGE_TABLE] != NULL;
  const int packed_q = o->ints[CLI_CU_SEQLENS_Q] != NULL, packed_k = o->ints[CLI_CU_SEQLENS_K] != NULL;
  const int additive = o->rules.similarity != NULL && strcmp(o->rules.similarity, "additive") == 0;
  const struct {
    int given, needed;
    const char *option, *needs;
  } pairs[] = {
      {o->input[CLI_BLOCK_MASK] != NULL, o->block_size != NULL, "block-mask", "block-size Q,K"},
      {o->block_size != NULL, o->input[CLI_BLOCK_MASK] != NULL, "block-size", "block-mask F"},
      {paged, o->page_size != NULL, "page-table", "page-size N"},
      {o->page_size != NULL, paged, "page-size", "page-table F"},
      {paged, o->ints[CLI_K_LENGTHS] != NULL, "page-table", "k-lengths F, the number of keys of every batch entry"},
      {o->input[CLI_ALIBI_SLOPES] != NULL, o->rules.alibi != NULL, "alibi-slopes", "alibi signed or symmetric"},
      {o->input[CLI_ADD_W] != NULL, additive, "add-w", "similarity additive"},
      {additive, o->input[CLI_ADD_W] != NULL, "similarity additive", "add-w F"},
      {o->dtype[CLI_BIAS] != NULL, o->input[CLI_BIAS] != NULL, "bias-dtype", "bias F"},
      {o->ints[CLI_PREFIX] != NULL, o->rules.causal, "prefix",
       "causal: without it every key before the prefix is seen"},
  };
  for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
    if (pairs[i].given && !pairs[i].needed)
      return cli_fail(CLI_USAGE, "--%s needs --%s", pairs[i].option, pairs[i].needs);
  }
  if (paged && packed_k)
    return cli_fail(CLI_USAGE, "--page-table and --cu-seqlens-k both say where the keys lie: give one of them");
  if (o->layout != NULL && packed_q && (packed_k || paged))
    return cli_fail(CLI_USAGE, "--layout is for arrays with a batch axis: packed and paged ones have their own");
  return CLI_OK;
}

/* q, k and v, whose rank packed sequences and pages fix. */
static int load_main(const cli_request_options *options, cli_request *request, int input) {
  const int of_q = input == CLI_Q;
  int low = 2, high = 4;
  if (!of_q && options->input[CLI_PAGE_TABLE] != NULL)
    low = 4;
  else if (options->ints[of_q ? CLI_CU_SEQLENS_Q : CLI_CU_SEQLENS_K] != NULL)
    low = high = 3;
  cli_tensor *tensor = &request->input[input];
  if (input == CLI_K && request->input[CLI_Q].rank > 0)
    request->storage[CLI_K].dim = request->input[CLI_Q].shape[request->input[CLI_Q].rank - 1];
  const int code = cli_take_stored(request, input, options->input[input], low, high);
  if (code == CLI_OK && tensor->rank < low) /* text */
    return cli_fail(CLI_USAGE, "--%s: text has 2 axes; here there must be %d", tensor->name, low);
  return code;
}

static int check_page_size(const char *text, const clattn_problem *problem) {
  int64_t size = 0;
  if (!cli_parse_int64(text, &size) || size < 1)
    return cli_fail(CLI_USAGE, "--page-size takes a number of keys >= 1, not '%s'", text);
  if (size != problem->page_size)
    return cli_fail(CLI_USAGE,
                    "--page-size is %" PRId64 ", but --k, (pages, page size, heads, dim), has pages of %" PRId64, size,
                    problem->page_size);
  return CLI_OK;
}

static int apply_rules(const cli_request_options *options, cli_request *request) {
  const clattn_problem *problem = &request->problem;
  int64_t queries = problem->q_len, keys = problem->k_len;
  for (int64_t b = 0; b < problem->batch; b++) {
    queries = cli_queries_of(request, b);
    keys = cli_paged(problem) ? request->ints[CLI_K_LENGTHS][b] : cli_keys_of(request, b);
    if (queries != keys)
      break;
  }
  return cli_rules_apply(&options->rules, queries, keys, &request->problem);
}

/* How the options want q, k, v and bias stored. */
static int choose_storage(const cli_request_options *options, cli_request *request) {
  static const char *const names[CLI_STORED] = {"q-dtype", "k-dtype", "v-dtype", "bias-dtype"};
  cli_storage *storage = request->storage;
  int code = CLI_OK;
  for (int i = 0; i < CLI_STORED && code == CLI_OK; i++) {
    storage[i].given = options->dtype[i] != NULL;
    code = cli_take_dtype(names[i], options->dtype[i], i == CLI_K || i == CLI_V, &storage[i].dtype);
  }
  storage[CLI_K].scales = options->input[CLI_K_SCALE] != NULL ? CLI_SCALES_GIVEN : CLI_SCALES_NONE;
  storage[CLI_V].scales = options->input[CLI_V_SCALE] != NULL ? CLI_SCALES_GIVEN : CLI_SCALES_NONE;
  if (code == CLI_OK && options->v_dim != NULL &&
      (!cli_parse_int64(options->v_dim, &storage[CLI_V].dim) || storage[CLI_V].dim < 1))
    code = cli_fail(CLI_USAGE, "--v-dim takes a number of elements >= 1, not '%s'", options->v_dim);
  return code;
}

static int from_files(const cli_request_options *options, cli_request *request) {
  int code = check_together(options);
  if (code == CLI_OK)
    code = choose_storage(options, request);
  for (int i = CLI_Q; i <= CLI_V && code == CLI_OK; i++) {
    if (options->input[i] == NULL)
      return cli_fail(CLI_USAGE, "--%s is missing: queries, keys and values are needed", inputs[i].name);
    code = load_main(options, request, i);
  }
  if (code == CLI_OK)
    code = fit_shapes(options, request);
  if (code == CLI_OK && options->page_size != NULL)
    code = check_page_size(options->page_size, &request->problem);
  if (code == CLI_OK)
    code = fit_lengths(options, request);
  if (code == CLI_OK && options->ints[CLI_PREFIX] != NULL)
    code = cli_take_prefix(request, options->ints[CLI_PREFIX]);
  if (code == CLI_OK && options->input[CLI_BIAS] != NULL)
    code = cli_take_pairs(request, CLI_BIAS, 0, options->input[CLI_BIAS]);
  if (code == CLI_OK && options->input[CLI_KEEP_MASK] != NULL)
    code = cli_take_pairs(request, CLI_KEEP_MASK, 0, options->input[CLI_KEEP_MASK]);
  if (code == CLI_OK && options->drop_mask != NULL)
    code = cli_take_pairs(request, CLI_KEEP_MASK, 1, options->drop_mask);
  if (code == CLI_OK && options->block_size != NULL)
    code = cli_take_block_size(request, options->block_size);
  if (code == CLI_OK && options->input[CLI_BLOCK_MASK] != NULL)
    code = cli_take_block_mask(request, options->input[CLI_BLOCK_MASK]);
  for (int i = CLI_ALIBI_SLOPES; i < CLI_INPUTS && code == CLI_OK; i++) {
    const int of_heads = i == CLI_ALIBI_SLOPES || i == CLI_SINK || i == CLI_HEAD_SCALE;
    if (of_heads && options->input[i] != NULL)
      code = cli_take_heads(request, i, options->input[i]);
    if ((i == CLI_K_SCALE || i == CLI_V_SCALE) && cli_input_used(&request->problem, i))
      code = cli_take_scale(request, i, options->input[i]);
  }
  if (code == CLI_OK && options->input[CLI_ADD_W] != NULL)
    code = cli_take_add_w(request, options->input[CLI_ADD_W]);
  request->problem.use_sink = options->input[CLI_SINK] != NULL;
  request->problem.use_head_scale = options->input[CLI_HEAD_SCALE] != NULL;
  if (code == CLI_OK)
    code = apply_rules(options, request);
  if (code == CLI_OK)
    code = cli_rope_from_files(options, request);
  return code == CLI_OK ? check_problem(&request->problem, "the problem") : code;
}

/* ---- from a problem line ---- */

static int refuse_rules(const cli_request_options *options) {
  const cli_rules *r = &options->rules;
  const struct {
    const char *name;
    int given;
  } rules[] = {{"causal", r->causal},
               {"query-offset", r->offset != NULL},
               {"window", r->window != NULL},
               {"scale", r->scale != NULL},
               {"softcap", r->softcap != NULL},
               {"alibi", r->alibi != NULL},
               {"chunk", r->chunk != NULL},
               {"batch-invariant", r->batch_invariant},
               {"similarity", r->similarity != NULL},
               {"math", r->math != NULL},
               {"q-dtype", options->dtype[CLI_Q] != NULL},
               {"k-dtype", options->dtype[CLI_K] != NULL},
               {"v-dtype", options->dtype[CLI_V] != NULL},
               {"bias-dtype", options->dtype[CLI_BIAS] != NULL},
               {"out-dtype", options->out_dtype != NULL},
               {"v-dim", options->v_dim != NULL},
               {"rope", options->rope != NULL},
               {"rope-dim", options->rope_dim != NULL},
               {"block-size", options->block_size != NULL},
               {"page-size", options->page_size != NULL},
               {"layout", options->layout != NULL}};
  for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
    if (rules[i].given)
      return cli_fail(CLI_USAGE, "--%s can't be given with --problem: the line says it", rules[i].name);
  }
  return CLI_OK;
}

/* q, k or v in the line's shape. */
static int take_main(const char *source, cli_request *request, int input) {
  clattn_problem *problem = &request->problem;
  cli_tensor *tensor = &request->input[input];
  const clattn_layout layout = cli_input_tensor(problem, input)->layout;
  const int special = layout == CLATTN_LAYOUT_PACKED || layout == CLATTN_LAYOUT_PAGED;
  int64_t want[4], shape[4], stride[4];
  char got_text[128], want_text[128];
  const int code = cli_take_stored(request, input, source, 2, 4);
  if (code != CLI_OK)
    return code;
  cli_input_shape(problem, input, want);
  cli_tensor_axes(tensor, special, shape, stride);
  if (memcmp(shape, want, sizeof shape) != 0) {
    if (special) { /* as a file has it */
      const int64_t rows = want[2];
      want[2] = want[1];
      want[1] = rows;
    }
    return cli_fail(CLI_USAGE, "--%s has shape %s, the problem line says %s", tensor->name,
                    cli_shape_text(tensor->rank, tensor->shape, got_text, sizeof got_text),
                    cli_shape_text(4, want, want_text, sizeof want_text));
  }
  *cli_input_tensor(problem, input) =
      special ? cli_describe_as(layout, tensor->dtype, want, stride) : cli_describe(tensor->dtype, want, stride);
  return CLI_OK;
}

static int take_given(const char *source, cli_request *request, int input) {
  const clattn_problem *problem = &request->problem;
  if (!cli_input_used(problem, input))
    return cli_fail(CLI_USAGE, "--%s is given, but the problem line does not use it", inputs[input].name);
  if (input == CLI_KEEP_MASK && problem->keep_mask_kind == CLATTN_MASK_BITS)
    return cli_fail(CLI_USAGE, "--keep-mask holds bytes, but the problem line asks for a mask of bits");
  switch (input) {
  case CLI_BIAS:
  case CLI_KEEP_MASK:
    return cli_take_pairs(request, input, 0, source);
  case CLI_BLOCK_MASK:
    return cli_take_block_mask(request, source);
  case CLI_ALIBI_SLOPES:
  case CLI_SINK:
  case CLI_HEAD_SCALE:
    return cli_take_heads(request, input, source);
  case CLI_ADD_W:
    return cli_take_add_w(request, source);
  case CLI_K_SCALE:
  case CLI_V_SCALE:
    return cli_take_scale(request, input, source);
  case CLI_PAGE_TABLE:
    return cli_take_page_table(request, source);
  default:
    return take_main(source, request, input);
  }
}

static int take_given_ints(const char *source, cli_request *request, int which) {
  const clattn_problem *problem = &request->problem;
  const int used[CLI_INTS] = {[CLI_Q_LENGTHS] = problem->q_length_mode == CLATTN_LENGTH_PER_BATCH,
                              [CLI_K_LENGTHS] = problem->k_length_mode == CLATTN_LENGTH_PER_BATCH,
                              [CLI_PREFIX] = problem->prefix_mode == CLATTN_PREFIX_PER_BATCH,
                              [CLI_CU_SEQLENS_Q] = cli_packed_q(problem),
                              [CLI_CU_SEQLENS_K] = cli_packed_k(problem)};
  if (!used[which])
    return cli_fail(CLI_USAGE, "--%s is given, but the problem line does not use it", ints_names[which]);
  if (which == CLI_PREFIX)
    return cli_take_prefix(request, source);
  if (which == CLI_Q_LENGTHS || which == CLI_K_LENGTHS)
    return cli_take_lengths(request, which, source);
  return cli_take_cu_seqlens(request, which, source, which == CLI_CU_SEQLENS_Q ? problem->total_q : problem->total_k,
                             0);
}

/* What a line leaves to its defaults. */
static void fill_sizes(clattn_problem *problem) {
  problem->batch = problem->batch == 0 ? 1 : problem->batch;
  problem->q_heads = problem->q_heads == 0 ? 1 : problem->q_heads;
  problem->kv_heads = problem->kv_heads == 0 ? problem->q_heads : problem->kv_heads;
  problem->v_dim = problem->v_dim == 0 ? problem->qk_dim : problem->v_dim;
  if (cli_packed_q(problem) && problem->q_len == 0)
    problem->q_len = problem->total_q;
  if (cli_packed_k(problem) && problem->k_len == 0)
    problem->k_len = problem->total_k;
  if (problem->rope != CLATTN_ROPE_NONE && problem->rope_dim == 0)
    problem->rope_dim = problem->qk_dim;
  if (problem->rope != CLATTN_ROPE_NONE && problem->rope_positions == 0)
    problem->rope_positions = problem->k_len > 0 ? problem->k_len : 1;
  /* Options may ask for results that the line does not have. */
  if (cli_packed_q(problem) && problem->outputs != 0 && !(problem->outputs & CLATTN_OUT_O))
    problem->o.layout = CLATTN_LAYOUT_PACKED;
  if (cli_packed_q(problem) && !(problem->outputs & CLATTN_OUT_LSE))
    problem->lse.layout = CLATTN_LAYOUT_PACKED;
}

/* Lengths that are not given are drawn only now and then: a table that is given must hold for all of them. */
static int check_given_table(const cli_request *request) {
  if (request->input[CLI_PAGE_TABLE].name == NULL)
    return CLI_OK;
  if (request->ints[CLI_K_LENGTHS] == NULL)
    return cli_fail(CLI_USAGE, "--page-table needs --k-lengths F, the number of keys of every batch entry");
  return cli_check_page_table(request);
}

/* A line names a hook and can't carry it: blanks the word.  Returns whether it was there. */
static int take_hook_word(char *line) {
  static const char word[] = "hook=yes";
  static const char spaces[] = " \t\r\n";
  int found = 0;
  for (char *at = line + strspn(line, spaces); *at != 0; at += strspn(at, spaces)) {
    const size_t length = strcspn(at, spaces);
    if (length == sizeof word - 1 && memcmp(at, word, length) == 0) {
      memset(at, ' ', length);
      found = 1;
    }
    at += length;
  }
  return found;
}

/* The problem that the line says. */
static int parse_line(const char *text, cli_request *request) {
  clattn_error error;
  const size_t bytes = strlen(text) + 1;
  char *line = malloc(bytes);
  if (line == NULL)
    return cli_fail_memory();
  memcpy(line, text, bytes);
  const int hooked = take_hook_word(line), hook_given = request->hook.handle != NULL;
  clattn_error_init(&error);
  int code = CLI_OK;
  const clattn_status status = clattn_problem_parse(line, &request->problem, &error);
  if (status != CLATTN_SUCCESS)
    code = cli_fail_status(status, &error, "--problem");
  else if (hooked && !hook_given)
    code = cli_fail(CLI_USAGE, "--problem: the line uses a hook (hook=yes), which --hook FILE.cl must give");
  else if (hook_given && !hooked)
    code = cli_fail(CLI_USAGE, "--hook is given, but the problem line does not use it (hook=yes)");
  request->problem.hook = request->hook.handle;
  free(line);
  return code;
}

/* The types of what is given are the line's. */
static void storage_of_line(const cli_request_options *options, cli_request *request) {
  const clattn_problem *problem = &request->problem;
  const clattn_dtype dtypes[CLI_STORED] = {problem->q.dtype, problem->k.dtype, problem->v.dtype, problem->bias.dtype};
  for (int i = 0; i < CLI_STORED; i++) {
    const int scale = i == CLI_K ? CLI_K_SCALE : CLI_V_SCALE;
    request->storage[i].given = 1;
    request->storage[i].dtype = dtypes[i];
    request->storage[i].dim = i == CLI_V ? problem->v_dim : problem->qk_dim;
    request->storage[i].scales = options->input[scale] != NULL ? CLI_SCALES_GIVEN : CLI_SCALES_DRAWN;
  }
}

static int from_line(const cli_request_options *options, cli_request *request) {
  /* Sequences come before the lengths that they bound. */
  static const int order[] = {CLI_CU_SEQLENS_Q, CLI_CU_SEQLENS_K, CLI_Q_LENGTHS, CLI_K_LENGTHS, CLI_PREFIX};
  clattn_problem *problem = &request->problem;
  int code = refuse_rules(options);
  if (code == CLI_OK)
    code = parse_line(options->line, request);
  if (code == CLI_OK)
    code = check_problem(problem, "--problem");
  if (code != CLI_OK)
    return code;
  fill_sizes(problem);
  storage_of_line(options, request);
  for (int i = 0; i < CLI_INPUTS && code == CLI_OK; i++) {
    if (options->input[i] != NULL && (i < CLI_ROPE_COS || i > CLI_POSITIONS_K))
      code = take_given(options->input[i], request, i);
    else if ((i == CLI_K_SCALE || i == CLI_V_SCALE) && request->input[i].name != NULL)
      code = cli_take_scale(request, i, NULL);
  }
  if (code == CLI_OK && options->drop_mask != NULL) {
    if (problem->keep_mask_kind != CLATTN_MASK_U8)
      return cli_fail(CLI_USAGE, "--drop-mask is given, but the problem line does not use a mask of bytes");
    code = cli_take_pairs(request, CLI_KEEP_MASK, 1, options->drop_mask);
  }
  for (size_t i = 0; i < sizeof order / sizeof order[0] && code == CLI_OK; i++) {
    if (options->ints[order[i]] != NULL)
      code = take_given_ints(options->ints[order[i]], request, order[i]);
  }
  if (code == CLI_OK)
    code = cli_rope_from_line(options, request);
  if (code == CLI_OK)
    code = check_given_table(request);
  if (code == CLI_OK && options->seed != NULL) {
    int64_t seed = 0;
    if (!cli_parse_int64(options->seed, &seed))
      code = cli_fail(CLI_USAGE, "--seed: '%s' is not an integer", options->seed);
    request->seed = (uint64_t)seed;
  }
  return code == CLI_OK ? check_problem(problem, "--problem") : code;
}

int cli_request_make(const cli_request_options *options, cli_request *out) {
  memset(out, 0, sizeof *out);
  clattn_problem_init(&out->problem);
  if (options->input[CLI_KEEP_MASK] != NULL && options->drop_mask != NULL)
    return cli_fail(CLI_USAGE, "--keep-mask and --drop-mask are opposites of each other: give one of them");
  if (options->hook_args > 0 && options->hook == NULL)
    return cli_fail(CLI_USAGE, "--hook-arg needs --hook FILE.cl");
  if (options->hook != NULL) {
    const int code = cli_hook_load(options->hook, options->hook_arg, options->hook_args, &out->hook);
    if (code != CLI_OK)
      return code;
    out->problem.hook = out->hook.handle;
  }
  if (options->line != NULL) {
    out->rank = 4;
    out->from_line = 1;
    return from_line(options, out);
  }
  if (options->seed != NULL)
    return cli_fail(CLI_USAGE, "--seed is for --problem, where tensors are drawn");
  if (options->layout != NULL && strcmp(options->layout, "bhsd") != 0 && strcmp(options->layout, "bshd") != 0)
    return cli_fail(CLI_USAGE, "--layout takes bhsd or bshd, not '%s'", options->layout);
  out->bshd = options->layout != NULL && strcmp(options->layout, "bshd") == 0;
  return from_files(options, out);
}

void cli_request_close(cli_request *request) {
  for (int i = 0; i < CLI_INPUTS; i++)
    cli_tensor_close(&request->input[i]);
  for (int i = 0; i < CLI_INTS; i++) {
    free(request->ints[i]);
    request->ints[i] = NULL;
  }
  cli_hook_close(&request->hook);
}
