/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of the row-wise kernels. */
#include "rows.h"

#include <stdio.h>
#include <string.h>

/* Work-groups a compute unit of a CPU gets, so that all end at about the same time, and numbers that make one worth
 * its start; on other devices, groups of a launch at most. */
enum { GROUPS_PER_UNIT = 8, NUMBERS_PER_GROUP = 8192, MOST_GROUPS = 1 << 22 };

nn_rows_types nn_rows_types_of(clattn_dtype x, clattn_dtype y) {
  const nn_rows_types types = {x, x, x, y, x};
  return types;
}

/* f32 is the default and stays unnamed. */
static void write_options(const clattn_nn *nn, const nn_rows_types *types, char *text, size_t capacity) {
  const struct {
    const char *word;
    clattn_dtype dtype;
  } words[] = {{"X", types->x}, {"X1", types->x1}, {"X2", types->x2}, {"Y", types->y}, {"SUM", types->sum}};
  int length = nn->lanes > 0 ? snprintf(text, capacity, "-DCLATTN_LANES=%d", nn->lanes)
                             : snprintf(text, capacity, "-DCLATTN_ITEMS=%d", NN_ROW_ITEMS);
  for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); ++i)
    if (words[i].dtype != CLATTN_F32)
      length += snprintf(text + length, capacity - (size_t)length, " -DCLATTN_%s=%s", words[i].word,
                         nn_dtype_word(words[i].dtype));
}

static int64_t quotient_up(int64_t a, int64_t b) {
  return a / b + (a % b != 0);
}

nn_units nn_rows_share(const clattn_nn *nn, int64_t units, int64_t numbers) {
  nn_units work = {units, 1};
  if (nn->lanes > 0) {
    const int64_t few = quotient_up(units, (int64_t)nn->info.compute_units * GROUPS_PER_UNIT);
    const int64_t worth = quotient_up(NUMBERS_PER_GROUP, numbers);
    work.count = few > worth ? few : worth;
  } else {
    work.count = quotient_up(units, MOST_GROUPS);
  }
  return work;
}

clattn_status nn_rows_enqueue(nn_stream *stream, const char *kernel, const nn_rows_types *types, nn_units work,
                              const nn_arg *args, cl_uint num_args, clattn_error *error) {
  char options[192];
  const size_t items = stream->nn->lanes > 0 ? 1 : NN_ROW_ITEMS;
  write_options(stream->nn, types, options, sizeof(options));
  const nn_launch launch = {.file = "nn/rows",
                            .options = options,
                            .kernel = kernel,
                            .args = args,
                            .num_args = num_args,
                            .dims = 1,
                            .global = {(size_t)quotient_up(work.units, work.count) * items},
                            .local = {items}};
  return nn_enqueue(stream, &launch, error);
}

clattn_status nn_rows_check(const clattn_nn *nn, const char *name, const clattn_nn_matrix *matrix, int64_t rows,
                            int64_t columns, int flags, nn_rows *view, nn_ranges *ranges, clattn_error *error) {
  int64_t stride = 0;
  const clattn_status status = nn_check_matrix(nn, name, matrix, rows, columns, flags, &stride, ranges, error);
  view->first = nn_first(matrix);
  view->stride = stride;
  return status;
}

clattn_status nn_check_size(const char *name, int64_t size, int64_t least, clattn_error *error) {
  if (size >= least)
    return CLATTN_SUCCESS;
  return nn_fail(error, CLATTN_ERROR_SHAPE, "%s is %lld: it must be >= %lld", name, (long long)size, (long long)least);
}

clattn_status nn_check_product(const char *what, int64_t a, int64_t b, clattn_error *error) {
  if (a == 0 || b <= INT64_MAX / 8 / a)
    return CLATTN_SUCCESS;
  return nn_fail(error, CLATTN_ERROR_OVERFLOW, "%s, %lld * %lld: their bytes do not fit in 63 bits", what, (long long)a,
                 (long long)b);
}
