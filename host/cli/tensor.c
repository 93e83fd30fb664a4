/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "tensor.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "text.h"

static int has_suffix(const char *text, const char *suffix) {
  const size_t n = strlen(text), m = strlen(suffix);
  return n >= m && strcmp(text + n - m, suffix) == 0;
}

static int accepts(const char *types, const char *type) {
  const char *found = strstr(types, type);
  return found != NULL && (found == types || found[-1] == ' ');
}

/* Integers of a text as bytes (0 or 1) or 32-bit integers. */
static int convert(cli_tensor *tensor, const cli_matrix *matrix) {
  const size_t count = (size_t)matrix->rows * (size_t)matrix->columns;
  const int as_bytes = tensor->type[1] == '1';
  const int64_t *values = matrix->data;
  void *data = malloc(count * (as_bytes ? 1 : sizeof(int32_t)));
  if (data == NULL)
    return cli_fail_memory();
  for (size_t i = 0; i < count; i++) {
    const int64_t value = values[i];
    if (as_bytes ? value != 0 && value != 1 : value < INT32_MIN || value > INT32_MAX) {
      free(data);
      return cli_fail(CLI_USAGE, "--%s: %" PRId64 " is not %s", tensor->name, value,
                      as_bytes ? "0 or 1" : "a 32-bit integer");
    }
    if (as_bytes)
      ((uint8_t *)data)[i] = (uint8_t)value;
    else
      ((int32_t *)data)[i] = (int32_t)value;
  }
  tensor->owned = data;
  return CLI_OK;
}

static int load_text(cli_tensor *tensor, const char *source, int is_inline, const char *types, int high_rank) {
  cli_matrix matrix = {0, 0, NULL};
  const cli_numbers numbers = types[0] == 'f' ? CLI_FLOATS : CLI_INTEGERS;
  int code = is_inline ? cli_text_inline(tensor->name, source, numbers, &matrix)
                       : cli_text_file(tensor->name, source, numbers, &matrix);
  if (code != CLI_OK)
    return code;
  memcpy(tensor->type, types, 2);
  if (high_rank == 1 && matrix.rows != 1 && matrix.columns != 1) {
    code = cli_fail(CLI_USAGE, "--%s: %" PRId64 " rows of %" PRId64 " numbers; one row is needed", tensor->name,
                    matrix.rows, matrix.columns);
  } else if (numbers == CLI_FLOATS) {
    tensor->owned = matrix.data;
    matrix.data = NULL;
  } else {
    code = convert(tensor, &matrix);
  }
  free(matrix.data);
  tensor->data = tensor->owned;
  tensor->bytes = (size_t)matrix.rows * (size_t)matrix.columns * clattn_npy_type_bytes(tensor->type);
  if (high_rank == 1) {
    tensor->rank = 1;
    tensor->shape[0] = matrix.rows * matrix.columns;
    tensor->stride[0] = 1;
  } else {
    tensor->rank = 2;
    tensor->shape[0] = matrix.rows;
    tensor->shape[1] = matrix.columns;
    tensor->stride[0] = matrix.columns;
    tensor->stride[1] = 1;
  }
  return code;
}

int cli_tensor_load(cli_tensor *tensor, const char *name, const char *source, const char *types, int low_rank,
                    int high_rank) {
  char message[512];
  memset(tensor, 0, sizeof *tensor);
  tensor->name = name;
  const int is_text_file = has_suffix(source, ".csv") || has_suffix(source, ".txt");
  if (is_text_file) {
    tensor->path = source;
    return load_text(tensor, source, 0, types, high_rank);
  }
  /* A folder that may not be searched is npy_open's to tell. */
  if (!has_suffix(source, ".npy") && access(source, F_OK) != 0 && errno != EACCES) {
    if (cli_text_is_inline(source))
      return load_text(tensor, source, 1, types, high_rank);
    return cli_fail(CLI_USAGE, "--%s: '%.200s' is neither a file nor numbers", name, source);
  }
  if (clattn_npy_open(source, &tensor->npy, message, sizeof message) != 0)
    return cli_fail(CLI_USAGE, "--%s: %s", name, message);
  const clattn_npy *npy = &tensor->npy;
  if (!accepts(types, npy->type)) {
    size_t used = 0;
    for (const char *at = types; *at != 0; at += *at == ' ') {
      used += (size_t)snprintf(message + used, sizeof message - used, "%s%.2s", used > 0 ? " or " : "", at);
      at += 2;
    }
    return cli_fail(CLI_USAGE, "--%s: %s: type %s is not accepted here; it must be %s", name, source, npy->type,
                    message);
  }
  if (npy->rank < low_rank || npy->rank > high_rank) {
    if (low_rank == high_rank)
      return cli_fail(CLI_USAGE, "--%s: %s: %d axes; it must have %d", name, source, npy->rank, low_rank);
    return cli_fail(CLI_USAGE, "--%s: %s: %d axes; it must have %d to %d", name, source, npy->rank, low_rank,
                    high_rank);
  }
  tensor->path = source;
  memcpy(tensor->type, npy->type, sizeof tensor->type);
  tensor->rank = npy->rank;
  memcpy(tensor->shape, npy->shape, sizeof tensor->shape);
  memcpy(tensor->stride, npy->stride, sizeof tensor->stride);
  tensor->data = npy->data;
  tensor->bytes = npy->bytes;
  return CLI_OK;
}

void cli_tensor_close(cli_tensor *tensor) {
  if (tensor == NULL)
    return;
  clattn_npy_close(&tensor->npy);
  free(tensor->owned);
  memset(tensor, 0, sizeof *tensor);
}

void cli_tensor_axes(const cli_tensor *tensor, int bshd, int64_t shape[4], int64_t stride[4]) {
  const int missing = 4 - tensor->rank;
  for (int axis = 0; axis < 4; axis++) {
    shape[axis] = axis < missing ? 1 : tensor->shape[axis - missing];
    stride[axis] = axis < missing ? 0 : tensor->stride[axis - missing];
  }
  if (bshd && tensor->rank >= 3) {
    const int64_t length = shape[1], step = stride[1];
    shape[1] = shape[2];
    stride[1] = stride[2];
    shape[2] = length;
    stride[2] = step;
  }
  for (int axis = 0; axis < 4; axis++) {
    if (shape[axis] == 1)
      stride[axis] = 0;
  }
}

int cli_tensor_broadcast(const cli_tensor *tensor, const char *what, const int64_t target[4], int64_t stride[4]) {
  int64_t shape[4];
  char got[128], want[128];
  cli_tensor_axes(tensor, 0, shape, stride);
  for (int axis = 0; axis < 4; axis++) {
    if (shape[axis] != target[axis] && shape[axis] != 1)
      return cli_fail(CLI_USAGE, "--%s has shape %s, which does not broadcast to %s %s", tensor->name,
                      cli_shape_text(tensor->rank, tensor->shape, got, sizeof got), what,
                      cli_shape_text(4, target, want, sizeof want));
  }
  return CLI_OK;
}

void cli_tensor_replace(cli_tensor *tensor, void *data, size_t bytes) {
  free(tensor->owned);
  tensor->owned = data;
  tensor->data = data;
  tensor->bytes = bytes;
}

static void contiguous(clattn_dtype dtype, const int64_t shape[4], int bshd, int64_t stride[4]) {
  const int64_t row = dtype == CLATTN_I4 ? shape[3] + shape[3] % 2 : shape[3];
  stride[3] = 1;
  stride[bshd ? 1 : 2] = row;
  stride[bshd ? 2 : 1] = row * shape[bshd ? 1 : 2];
  stride[0] = row * shape[1] * shape[2];
}

int cli_strides(const clattn_tensor *tensor, const int64_t shape[4], int64_t stride[4]) {
  const int given = (tensor->stride[0] | tensor->stride[1] | tensor->stride[2] | tensor->stride[3]) != 0;
  switch (tensor->layout) {
  case CLATTN_LAYOUT_PACKED:
  case CLATTN_LAYOUT_PAGED:
    if (given)
      memcpy(stride, tensor->stride, 4 * sizeof stride[0]);
    else
      contiguous(tensor->dtype, shape, 1, stride);
    return 1;
  case CLATTN_LAYOUT_BHSD:
  case CLATTN_LAYOUT_BHSD_EXACT:
    contiguous(tensor->dtype, shape, 0, stride);
    return 1;
  case CLATTN_LAYOUT_BSHD:
  case CLATTN_LAYOUT_BSHD_EXACT:
    contiguous(tensor->dtype, shape, 1, stride);
    return 1;
  case CLATTN_LAYOUT_STRIDED:
    memcpy(stride, tensor->stride, 4 * sizeof stride[0]);
    return 1;
  default:
    return 0;
  }
}

int64_t cli_extent(const int64_t shape[4], const int64_t stride[4]) {
  int64_t extent = 1;
  for (int axis = 0; axis < 4; axis++) {
    if (shape[axis] == 0)
      return 0;
    if (stride[axis] > 0 && shape[axis] - 1 > (INT64_MAX - extent) / stride[axis])
      return -1;
    extent += (shape[axis] - 1) * stride[axis];
  }
  return extent;
}

clattn_tensor cli_describe(clattn_dtype dtype, const int64_t shape[4], const int64_t stride[4]) {
  clattn_tensor tensor;
  int empty = 0;
  memset(&tensor, 0, sizeof tensor);
  tensor.dtype = dtype;
  for (int axis = 0; axis < 4; axis++)
    empty |= shape[axis] == 0;
  for (int bshd = 0; bshd < 2; bshd++) {
    int64_t plain[4];
    int same = 1;
    contiguous(dtype, shape, bshd, plain);
    for (int axis = 0; axis < 4; axis++)
      same &= shape[axis] == 1 || plain[axis] == stride[axis];
    if (same || empty) {
      tensor.layout = bshd ? CLATTN_LAYOUT_BSHD : CLATTN_LAYOUT_BHSD;
      return tensor;
    }
  }
  tensor.layout = CLATTN_LAYOUT_STRIDED;
  memcpy(tensor.stride, stride, sizeof tensor.stride);
  return tensor;
}

clattn_tensor cli_describe_as(clattn_layout layout, clattn_dtype dtype, const int64_t shape[4],
                              const int64_t stride[4]) {
  clattn_tensor tensor;
  int64_t plain[4];
  int same = 1;
  memset(&tensor, 0, sizeof tensor);
  tensor.dtype = dtype;
  tensor.layout = layout;
  contiguous(dtype, shape, 1, plain);
  for (int axis = 0; axis < 4; axis++)
    same &= shape[axis] == 1 || plain[axis] == stride[axis];
  if (!same && cli_extent(shape, stride) > 0)
    memcpy(tensor.stride, stride, sizeof tensor.stride);
  return tensor;
}
