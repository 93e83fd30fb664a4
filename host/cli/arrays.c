/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "arrays.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "types.h"

/* ---- integers -------------------------------------------------------------------------------------------------- */

/* Entry (row, column) of an array of i4 or i8 and of rank 1 (one row) or 2. */
static int64_t integer_at(const cli_tensor *tensor, int64_t row, int64_t column) {
  const int last = tensor->rank - 1;
  const int64_t at = (last > 0 ? row * tensor->stride[0] : 0) + column * tensor->stride[last];
  return tensor->type[1] == '8' ? ((const int64_t *)tensor->data)[at] : ((const int32_t *)tensor->data)[at];
}

/* Loads `which` as one row of `want` entries (0: any number from 1 on, which *count gets) and makes room for them. */
static int load_ints(cli_request *request, int which, const char *source, int64_t want, const char *rule,
                     cli_tensor *tensor, int64_t *count) {
  const char *name = cli_ints_name(which);
  const int code = cli_tensor_load(tensor, name, source, "i4 i8", 1, 1);
  if (code != CLI_OK)
    return code;
  *count = tensor->shape[0];
  if (want > 0 && *count != want)
    return cli_fail(CLI_USAGE, "--%s has %" PRId64 " entries, %s", name, *count, rule);
  request->ints[which] = calloc(*count > 0 ? (size_t)*count : 1, sizeof *request->ints[which]);
  return request->ints[which] != NULL ? CLI_OK : cli_fail_memory();
}

/* An entry for every batch entry. */
static int load_per_batch(cli_request *request, int which, const char *source, cli_tensor *tensor) {
  char rule[64];
  int64_t count = 0;
  snprintf(rule, sizeof rule, "the batch is %" PRId64, request->problem.batch);
  return load_ints(request, which, source, request->problem.batch, rule, tensor, &count);
}

int cli_take_cu_seqlens(cli_request *request, int which, const char *source, int64_t rows, int whole) {
  clattn_problem *problem = &request->problem;
  const char *name = cli_ints_name(which);
  const int of_q = which == CLI_CU_SEQLENS_Q;
  const int64_t bound = of_q ? problem->q_len : problem->k_len; /* 0: none yet */
  cli_tensor tensor;
  char rule[96];
  int64_t count = 0, longest = 0;
  snprintf(rule, sizeof rule, "the batch of %" PRId64 " needs %" PRId64, problem->batch, problem->batch + 1);
  int code = load_ints(request, which, source, problem->batch > 0 ? problem->batch + 1 : 0, rule, &tensor, &count);
  if (code != CLI_OK)
    goto done;
  if (count < 2) {
    code = cli_fail(CLI_USAGE, "--%s has %" PRId64 " entries; it must have one more than there are sequences", name,
                    count);
    goto done;
  }
  for (int64_t b = 0; b < count && code == CLI_OK; b++) {
    const int64_t entry = integer_at(&tensor, 0, b), before = b > 0 ? request->ints[which][b - 1] : 0;
    if (b == 0 && entry != 0)
      code = cli_fail(CLI_USAGE, "--%s: entry 0 is %" PRId64 "; it must be 0", name, entry);
    else if (entry < before)
      code = cli_fail(CLI_USAGE, "--%s: entry %" PRId64 " is %" PRId64 ", below the entry before it, %" PRId64, name, b,
                      entry, before);
    else if (entry > rows || entry > INT32_MAX)
      code = cli_fail(CLI_USAGE,
                      "--%s: entry %" PRId64 " is %" PRId64 "; it must be up to %" PRId64 ", the number of rows", name,
                      b, entry, rows);
    else if (bound > 0 && entry - before > bound)
      code = cli_fail(CLI_USAGE,
                      "--%s: entries %" PRId64 " and %" PRId64 " make a sequence of %" PRId64
                      " rows; the problem line allows %" PRId64,
                      name, b - 1, b, entry - before, bound);
    else if (whole && b == count - 1 && entry != rows)
      code = cli_fail(CLI_USAGE,
                      "--%s: entry %" PRId64 ", the last one, is %" PRId64 "; it must be %" PRId64
                      ", the number of rows of --%s",
                      name, b, entry, rows, of_q ? "q" : "k");
    else
      request->ints[which][b] = (int32_t)entry;
    longest = entry - before > longest ? entry - before : longest;
  }
  problem->batch = count - 1;
  if (whole) {
    problem->q_len = of_q ? longest : problem->q_len;
    problem->k_len = of_q ? problem->k_len : longest;
  }
done:
  cli_tensor_close(&tensor);
  return code;
}

int cli_take_page_table(cli_request *request, const char *source) {
  clattn_problem *problem = &request->problem;
  cli_tensor *tensor = &request->input[CLI_PAGE_TABLE];
  char text[128];
  int code = cli_tensor_load(tensor, cli_input_name(CLI_PAGE_TABLE), source, "i4 i8", 1, 2);
  if (code != CLI_OK)
    return code;
  const int64_t rows = tensor->rank == 2 ? tensor->shape[0] : 1, columns = tensor->shape[tensor->rank - 1];
  if (rows < 1 || columns < 1 || (problem->batch > 0 && rows != problem->batch) ||
      (problem->max_pages > 0 && columns != problem->max_pages)) {
    char want[64] = "at least one page";
    if (problem->max_pages > 0)
      snprintf(want, sizeof want, "%" PRId64 " pages", problem->max_pages);
    if (problem->batch > 0)
      return cli_fail(CLI_USAGE, "--page-table has shape %s; it must be (batch, pages), here %" PRId64 " rows of %s",
                      cli_shape_text(tensor->rank, tensor->shape, text, sizeof text), problem->batch, want);
    return cli_fail(CLI_USAGE, "--page-table has shape %s; it must be (batch, pages) with no axis of length 0",
                    cli_shape_text(tensor->rank, tensor->shape, text, sizeof text));
  }
  /* What is mapped or read from text is far below SIZE_MAX. */
  int32_t *table = malloc((size_t)rows * (size_t)columns * sizeof *table);
  if (table == NULL)
    return cli_fail_memory();
  for (int64_t b = 0; b < rows; b++) {
    for (int64_t n = 0; n < columns; n++) {
      const int64_t entry = integer_at(tensor, b, n);
      /* What is out of range is an error only where it is used; there it must stay out of range. */
      table[b * columns + n] = entry < INT32_MIN || entry > INT32_MAX ? -1 : (int32_t)entry;
    }
  }
  cli_tensor_replace(tensor, table, (size_t)rows * (size_t)columns * sizeof *table);
  problem->batch = rows;
  problem->max_pages = columns;
  return CLI_OK;
}

int cli_check_page_table(const cli_request *request) {
  const clattn_problem *problem = &request->problem;
  const int32_t *table = request->input[CLI_PAGE_TABLE].data;
  for (int64_t b = 0; b < problem->batch; b++) {
    const int64_t length = request->ints[CLI_K_LENGTHS][b];
    for (int64_t n = 0; n * problem->page_size < length; n++) {
      const int32_t page = table[b * problem->max_pages + n];
      if (page < 0 || page >= problem->num_pages)
        return cli_fail(CLI_USAGE,
                        "--page-table: entry (%" PRId64 ", %" PRId64 ") is %" PRId32 "; it must be from 0 to %" PRId64
                        ", since --k has %" PRId64 " pages",
                        b, n, page, problem->num_pages - 1, problem->num_pages);
    }
  }
  return CLI_OK;
}

int cli_take_lengths(cli_request *request, int which, const char *source) {
  clattn_problem *problem = &request->problem;
  const char *name = cli_ints_name(which);
  const int of_q = which == CLI_Q_LENGTHS;
  cli_tensor tensor;
  int code = load_per_batch(request, which, source, &tensor);
  for (int64_t b = 0; b < problem->batch && code == CLI_OK; b++) {
    const int packed = of_q ? cli_packed_q(problem) : cli_packed_k(problem);
    const int64_t length = integer_at(&tensor, 0, b);
    const int64_t most = of_q ? cli_queries_of(request, b) : cli_keys_of(request, b);
    if (length < 0 || length > most)
      code = cli_fail(CLI_USAGE,
                      "--%s: entry %" PRId64 " is %" PRId64 "; it must be from 0 to %" PRId64 ", the number of %s%s",
                      name, b, length, most, of_q ? "queries" : "keys", packed ? " of its sequence" : "");
    else
      request->ints[which][b] = (int32_t)length;
  }
  if (of_q)
    problem->q_length_mode = CLATTN_LENGTH_PER_BATCH;
  else
    problem->k_length_mode = CLATTN_LENGTH_PER_BATCH;
  cli_tensor_close(&tensor);
  return code;
}

int cli_take_prefix(cli_request *request, const char *source) {
  clattn_problem *problem = &request->problem;
  cli_tensor tensor;
  if (problem->prefix_mode != CLATTN_PREFIX_PER_BATCH && cli_parse_int64(source, &problem->prefix)) {
    problem->prefix_mode = CLATTN_PREFIX_VALUE;
    if (problem->prefix < 0 || problem->prefix > INT32_MAX)
      return cli_fail(CLI_USAGE, "--prefix is %s; it must be from 0 to %" PRId32, source, INT32_MAX);
    return CLI_OK;
  }
  int code = load_per_batch(request, CLI_PREFIX, source, &tensor);
  for (int64_t b = 0; b < problem->batch && code == CLI_OK; b++) {
    const int64_t entry = integer_at(&tensor, 0, b);
    if (entry < 0 || entry > INT32_MAX)
      code = cli_fail(CLI_USAGE, "--prefix: entry %" PRId64 " is %" PRId64 "; it must be from 0 to %" PRId32, b, entry,
                      INT32_MAX);
    else
      request->ints[CLI_PREFIX][b] = (int32_t)entry;
  }
  problem->prefix_mode = CLATTN_PREFIX_PER_BATCH;
  cli_tensor_close(&tensor);
  return code;
}

/* ---- masks and bias -------------------------------------------------------------------------------------------- */

static const char scores_axes[] = "the scores' (batch, heads, queries, keys)";

/* The array may be a file that nobody may write, so its opposite is a copy. */
static int invert(cli_tensor *tensor) {
  const uint8_t *from = tensor->data;
  uint8_t *to = malloc(tensor->bytes > 0 ? tensor->bytes : 1);
  if (to == NULL)
    return cli_fail_memory();
  for (size_t i = 0; i < tensor->bytes; i++)
    to[i] = from[i] == 0;
  cli_tensor_replace(tensor, to, tensor->bytes);
  return CLI_OK;
}

int cli_take_pairs(cli_request *request, int input, int drop, const char *source) {
  clattn_problem *problem = &request->problem;
  cli_tensor *tensor = &request->input[input];
  int64_t target[4], stride[4];
  int code = input == CLI_BIAS
                 ? cli_take_stored(request, input, source, 1, 4)
                 : cli_tensor_load(tensor, drop ? "drop-mask" : cli_input_name(input), source, "b1 u1", 1, 4);
  if (code != CLI_OK)
    return code;
  if (input == CLI_BIAS)
    problem->use_bias = 1;
  else
    problem->keep_mask_kind = CLATTN_MASK_U8;
  cli_input_shape(problem, input, target);
  code = cli_tensor_broadcast(tensor, scores_axes, target, stride);
  if (code == CLI_OK)
    *cli_input_tensor(problem, input) = cli_describe(tensor->dtype, target, stride);
  return code == CLI_OK && drop ? invert(tensor) : code;
}

int cli_take_block_size(cli_request *request, const char *text) {
  char first[24] = "";
  const char *comma = strchr(text, ',');
  clattn_problem *problem = &request->problem;
  if (comma != NULL && comma - text < (ptrdiff_t)sizeof first)
    memcpy(first, text, (size_t)(comma - text));
  if (comma == NULL || !cli_parse_int64(first, &problem->block_q) || !cli_parse_int64(comma + 1, &problem->block_k) ||
      problem->block_q < 1 || problem->block_k < 1)
    return cli_fail(CLI_USAGE,
                    "--block-size takes two counts >= 1, queries and keys of a block, as in 64,128; not '%s'", text);
  return CLI_OK;
}

/* One bit per block of the file's own axes; what is broadcast over keys is written out. */
static uint32_t *pack_bits(const cli_tensor *tensor, const int64_t shape[4], const int64_t stride[4], int64_t blocks) {
  const uint8_t *from = tensor->data;
  const int64_t words = (blocks + 31) / 32;
  const size_t rows = (size_t)shape[0] * (size_t)shape[1] * (size_t)shape[2];
  uint32_t *bits = calloc(rows > 0 && words > 0 ? rows * (size_t)words : 1, sizeof *bits), *row = bits;
  if (bits == NULL)
    return NULL;
  for (int64_t b = 0; b < shape[0]; b++) {
    for (int64_t h = 0; h < shape[1]; h++) {
      for (int64_t r = 0; r < shape[2]; r++, row += words) {
        for (int64_t j = 0; j < blocks; j++) {
          if (from[b * stride[0] + h * stride[1] + r * stride[2] + j * stride[3]] != 0)
            row[j / 32] |= UINT32_C(1) << (j % 32);
        }
      }
    }
  }
  return bits;
}

int cli_take_block_mask(cli_request *request, const char *source) {
  clattn_problem *problem = &request->problem;
  cli_tensor *tensor = &request->input[CLI_BLOCK_MASK];
  int64_t target[4], shape[4], stride[4];
  int code = cli_tensor_load(tensor, cli_input_name(CLI_BLOCK_MASK), source, "b1 u1", 1, 4);
  if (code != CLI_OK)
    return code;
  problem->block_mask_kind = CLATTN_MASK_BITS;
  cli_input_shape(problem, CLI_BLOCK_MASK, target);
  const int64_t words = target[3];
  target[3] = problem->k_len / problem->block_k + (problem->k_len % problem->block_k != 0);
  code = cli_tensor_broadcast(tensor, "the blocks' (batch, heads, query blocks, key blocks)", target, stride);
  if (code != CLI_OK)
    return code;
  cli_tensor_axes(tensor, 0, shape, stride);
  uint32_t *bits = pack_bits(tensor, shape, stride, target[3]);
  if (bits == NULL)
    return cli_fail_memory();
  int64_t step = words;
  for (int axis = 2; axis >= 0; axis--) {
    stride[axis] = shape[axis] == 1 ? 0 : step;
    step *= shape[axis];
  }
  stride[3] = 1;
  target[3] = words;
  cli_tensor_replace(tensor, bits, (size_t)step * sizeof *bits);
  problem->block_mask = cli_describe(CLATTN_F32, target, stride);
  return CLI_OK;
}

/* ---- per head -------------------------------------------------------------------------------------------------- */

int cli_take_heads(cli_request *request, int input, const char *source) {
  clattn_problem *problem = &request->problem;
  cli_tensor *tensor = &request->input[input];
  const int slopes = input == CLI_ALIBI_SLOPES;
  char text[128];
  const int code = cli_tensor_load(tensor, cli_input_name(input), source, "f4", 1, slopes ? 2 : 1);
  if (code != CLI_OK)
    return code;
  const int64_t rows = tensor->rank == 2 ? tensor->shape[0] : 1, heads = tensor->shape[tensor->rank - 1];
  if (heads != problem->q_heads || (rows != 1 && rows != problem->batch)) {
    cli_shape_text(tensor->rank, tensor->shape, text, sizeof text);
    if (slopes)
      return cli_fail(CLI_USAGE,
                      "--%s has shape %s; it must be (heads,) or (batch, heads), here %" PRId64
                      " heads and a batch of %" PRId64,
                      tensor->name, text, problem->q_heads, problem->batch);
    return cli_fail(CLI_USAGE, "--%s has shape %s; it must be (heads,), here %" PRId64 " heads", tensor->name, text,
                    problem->q_heads);
  }
  clattn_tensor *descriptor = cli_input_tensor(problem, input);
  memset(descriptor, 0, sizeof *descriptor);
  const int64_t step = heads > 1 ? tensor->stride[tensor->rank - 1] : 1;
  if (rows > 1 || step != 1) {
    descriptor->layout = CLATTN_LAYOUT_STRIDED;
    descriptor->stride[0] = rows > 1 ? tensor->stride[0] : 0;
    descriptor->stride[1] = step;
  }
  return CLI_OK;
}

int cli_take_add_w(cli_request *request, const char *source) {
  clattn_problem *problem = &request->problem;
  cli_tensor *tensor = &request->input[CLI_ADD_W];
  char text[128];
  const int code = cli_tensor_load(tensor, cli_input_name(CLI_ADD_W), source, "f4", 1, 2);
  if (code != CLI_OK)
    return code;
  const int last = tensor->rank - 1;
  const int64_t heads = tensor->rank == 2 ? tensor->shape[0] : 1;
  if (tensor->shape[last] != problem->qk_dim || (heads != 1 && heads != problem->q_heads))
    return cli_fail(CLI_USAGE,
                    "--add-w has shape %s; it must be (dim,) or (heads, dim), here %" PRId64 " heads of %" PRId64,
                    cli_shape_text(tensor->rank, tensor->shape, text, sizeof text), problem->q_heads, problem->qk_dim);
  problem->add_w = clattn_strided(CLATTN_F32, 0, heads > 1 ? tensor->stride[0] : 0, 0,
                                  tensor->shape[last] > 1 ? tensor->stride[last] : 1);
  return CLI_OK;
}
