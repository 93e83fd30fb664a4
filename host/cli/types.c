/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "types.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "convert.h"

int cli_take_dtype(const char *option, const char *text, int keys, clattn_dtype *out) {
  clattn_dtype dtype = CLATTN_F32;
  if (text == NULL)
    return CLI_OK;
  if (!cli_dtype_parse(text, &dtype) || (cli_dtype_is_quantised(dtype) && !keys))
    return cli_fail(CLI_USAGE, "--%s takes f32, f16%s, not '%s'", option, keys ? ", bf16, i8 or i4" : " or bf16", text);
  *out = dtype;
  return CLI_OK;
}

/* What the file holds.  u2 and u1 are numbers of their own kind, so that someone must say that they are codes. */
static int own_dtype(const cli_tensor *tensor, const cli_storage *storage, clattn_dtype *own) {
  static const clattn_dtype plain[] = {CLATTN_F32, CLATTN_F16, CLATTN_I8};
  for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
    if (strcmp(tensor->type, cli_dtype_npy(plain[i])) == 0) {
      *own = plain[i];
      return CLI_OK;
    }
  }
  *own = tensor->type[0] == 'u' && tensor->type[1] == '2' ? CLATTN_BF16 : CLATTN_I4;
  if (storage->given && storage->dtype == *own)
    return CLI_OK;
  return cli_fail(CLI_USAGE, "--%s: %s: %s is taken as %s only where --%s-dtype %s or the problem line says so",
                  tensor->name, tensor->path, tensor->type, cli_dtype_name(*own), tensor->name, cli_dtype_name(*own));
}

static int convert(cli_tensor *tensor, clattn_dtype to) {
  const size_t count = tensor->bytes / cli_dtype_bytes(tensor->dtype, 1), bytes = cli_dtype_bytes(to, count);
  void *data = malloc(bytes > 0 ? bytes : 1);
  if (data == NULL)
    return cli_fail_memory();
  cli_dtype_convert(tensor->dtype, tensor->data, to, data, count);
  cli_tensor_replace(tensor, data, bytes);
  tensor->dtype = to;
  memcpy(tensor->type, cli_dtype_npy(to), sizeof tensor->type);
  return CLI_OK;
}

/* Where the rows of the last axis start, one after the other in C order; *at counts them for the leading axes. */
static int64_t next_row(const cli_tensor *tensor, int64_t at[CLATTN_NPY_MAX_RANK]) {
  int64_t start = 0;
  for (int axis = 0; axis < tensor->rank - 1; axis++)
    start += at[axis] * tensor->stride[axis];
  for (int axis = tensor->rank - 2; axis >= 0 && ++at[axis] == tensor->shape[axis]; axis--)
    at[axis] = 0;
  return start;
}

static int64_t count_rows(const cli_tensor *tensor) {
  int64_t rows = 1;
  for (int axis = 0; axis < tensor->rank - 1; axis++)
    rows *= tensor->shape[axis];
  return rows;
}

/* C order with so many elements from a row to the next. */
static void order_rows(cli_tensor *tensor, int64_t row) {
  const int last = tensor->rank - 1;
  tensor->stride[last] = 1;
  for (int axis = last - 1; axis >= 0; axis--) {
    tensor->stride[axis] = row;
    row *= tensor->shape[axis];
  }
}

static int quantise(cli_tensor *tensor, clattn_dtype to, int scale_input, cli_tensor *scale) {
  const int last = tensor->rank - 1;
  const int64_t rows = count_rows(tensor), dim = tensor->shape[last], groups = cli_dtype_groups(to, dim);
  const size_t row_bytes = cli_dtype_bytes(to, (size_t)dim), bytes = (size_t)rows * row_bytes;
  const size_t scales = (size_t)rows * (size_t)groups;
  int64_t at[CLATTN_NPY_MAX_RANK] = {0};
  uint8_t *codes = calloc(bytes > 0 ? bytes : 1, 1);
  float *factors = calloc(scales > 0 ? scales : 1, sizeof *factors);
  int code = codes == NULL || factors == NULL ? cli_fail_memory() : CLI_OK;
  for (int64_t r = 0; r < rows && code == CLI_OK; r++) {
    if (!cli_quantise_row(tensor->dtype, tensor->data, next_row(tensor, at), tensor->stride[last], dim, to,
                          codes + (size_t)r * row_bytes, factors + r * groups))
      code = cli_fail(CLI_USAGE, "--%s: row %" PRId64 " of %" PRId64 " holds NaN or infinity, which %s can't hold",
                      tensor->name, r, rows, cli_dtype_name(to));
  }
  if (code == CLI_OK) {
    memset(scale, 0, sizeof *scale);
    scale->name = cli_input_name(scale_input);
    memcpy(scale->type, "f4", sizeof scale->type);
    scale->rank = tensor->rank;
    memcpy(scale->shape, tensor->shape, sizeof scale->shape);
    scale->shape[last] = groups;
    order_rows(scale, groups);
    cli_tensor_replace(scale, factors, scales * sizeof *factors);
    cli_tensor_replace(tensor, codes, bytes);
    tensor->dtype = to;
    memcpy(tensor->type, cli_dtype_npy(to), sizeof tensor->type);
    order_rows(tensor, dim + (to == CLATTN_I4 ? dim % 2 : 0));
    factors = NULL;
    codes = NULL;
  }
  free(factors);
  free(codes);
  return code;
}

/* Bytes of i4 as elements: rows in C order, since an element may not lie apart from its neighbour. */
static int take_i4(cli_tensor *tensor, int64_t dim) {
  const int last = tensor->rank - 1;
  const int64_t row = tensor->shape[last], rows = count_rows(tensor);
  int64_t at[CLATTN_NPY_MAX_RANK] = {0};
  if (dim == 0)
    dim = 2 * row;
  if (row != dim / 2 + dim % 2)
    return cli_fail(CLI_USAGE, "--%s: %s: rows of %" PRId64 " bytes; %" PRId64 " elements of i4 take %" PRId64,
                    tensor->name, tensor->path, row, dim, dim / 2 + dim % 2);
  uint8_t *bytes = malloc(tensor->bytes > 0 ? tensor->bytes : 1);
  if (bytes == NULL)
    return cli_fail_memory();
  for (int64_t r = 0; r < rows && tensor->bytes > 0; r++) {
    const uint8_t *from = (const uint8_t *)tensor->data + next_row(tensor, at);
    for (int64_t n = 0; n < row; n++)
      bytes[r * row + n] = from[n * tensor->stride[last]];
  }
  cli_tensor_replace(tensor, bytes, tensor->bytes);
  tensor->shape[last] = dim;
  order_rows(tensor, 2 * row);
  return CLI_OK;
}

int cli_take_stored(cli_request *request, int input, const char *source, int low_rank, int high_rank) {
  const cli_storage *storage = &request->storage[input];
  const int of_keys = input == CLI_K || input == CLI_V, scale = input == CLI_K ? CLI_K_SCALE : CLI_V_SCALE;
  cli_tensor *tensor = &request->input[input];
  int code = cli_tensor_load(tensor, cli_input_name(input), source, of_keys ? "f4 f2 u2 i1 u1" : "f4 f2 u2", low_rank,
                             high_rank);
  if (code == CLI_OK)
    code = own_dtype(tensor, storage, &tensor->dtype);
  if (code != CLI_OK)
    return code;
  const clattn_dtype own = tensor->dtype, to = storage->given ? storage->dtype : own;
  if (cli_dtype_is_quantised(own) && to != own)
    return cli_fail(CLI_USAGE, "--%s: %s holds codes of %s, which are not made into %s", tensor->name, tensor->path,
                    cli_dtype_name(own), cli_dtype_name(to));
  if (cli_dtype_is_quantised(own) && storage->scales == CLI_SCALES_NONE)
    return cli_fail(CLI_USAGE, "--%s: %s holds codes of %s, which need --%s F", tensor->name, tensor->path,
                    cli_dtype_name(own), cli_input_name(scale));
  if (!cli_dtype_is_quantised(own) && storage->scales == CLI_SCALES_GIVEN)
    return cli_fail(CLI_USAGE, "--%s is for codes of i8 (a file of i1) or i4 (u1); --%s holds %s%s",
                    cli_input_name(scale), tensor->name, tensor->type,
                    cli_dtype_is_quantised(to) ? ", whose scales this program makes" : "");
  if (storage->dim > 0 && input == CLI_V && !request->from_line && own != CLATTN_I4)
    return cli_fail(CLI_USAGE, "--v-dim is for a file of i4; the rows of --v say it themselves");
  if (own == CLATTN_I4)
    return take_i4(tensor, storage->dim);
  if (own == to)
    return CLI_OK;
  return cli_dtype_is_quantised(to) ? quantise(tensor, to, scale, &request->input[scale]) : convert(tensor, to);
}

int cli_take_scale(cli_request *request, int input, const char *source) {
  clattn_problem *problem = &request->problem;
  cli_tensor *tensor = &request->input[input];
  const clattn_layout layout = (input == CLI_K_SCALE ? &problem->k : &problem->v)->layout;
  const int special = layout == CLATTN_LAYOUT_PACKED || layout == CLATTN_LAYOUT_PAGED;
  const int swap = special || request->bshd;
  int64_t want[4], shape[4], stride[4];
  char got_text[128], want_text[128];
  if (source != NULL) {
    const int code = cli_tensor_load(tensor, cli_input_name(input), source, "f4 f2", 2, 4);
    if (code != CLI_OK)
      return code;
    tensor->dtype = tensor->type[1] == '2' ? CLATTN_F16 : CLATTN_F32;
  }
  cli_input_shape(problem, input, want);
  cli_tensor_axes(tensor, swap, shape, stride);
  if (memcmp(shape, want, sizeof shape) != 0) {
    if (swap) { /* as a file has it */
      const int64_t rows = want[2];
      want[2] = want[1];
      want[1] = rows;
    }
    return cli_fail(CLI_USAGE, "--%s has shape %s; it must be %s: a scale for every row%s", tensor->name,
                    cli_shape_text(tensor->rank, tensor->shape, got_text, sizeof got_text),
                    cli_shape_text(4, want, want_text, sizeof want_text),
                    (input == CLI_K_SCALE ? &problem->k : &problem->v)->dtype == CLATTN_I4 ? " and 32 elements of it"
                                                                                           : "");
  }
  *cli_input_tensor(problem, input) =
      special ? cli_describe_as(layout, tensor->dtype, want, stride) : cli_describe(tensor->dtype, want, stride);
  return CLI_OK;
}
