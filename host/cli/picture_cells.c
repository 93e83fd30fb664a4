/* SPDX-License-Identifier: Apache-2.0 */
#include "picture_cells.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "picture_colour.h"

static int64_t blocks(int64_t count, int64_t bin) {
  return (count + bin - 1) / bin;
}

/* The mean of a block; NaN if one of its weights is not finite. */
static float mean(const float *from, int64_t rows, int64_t columns, const int64_t stride[4]) {
  double sum = 0;
  for (int64_t i = 0; i < rows; i++) {
    for (int64_t j = 0; j < columns; j++)
      sum += (double)from[i * stride[2] + j * stride[3]];
  }
  const double value = sum / (double)(rows * columns);
  return isfinite(value) ? (float)value : NAN;
}

static void fill_head(const cli_picture *picture, int64_t head, cli_cells *cells) {
  const int64_t rows = picture->shape[2], columns = picture->shape[3];
  const float *from =
      picture->weights + head / picture->shape[1] * picture->stride[0] + head % picture->shape[1] * picture->stride[1];
  float *to = cells->data + head * cells->rows * cells->columns;
  for (int64_t i = 0; i < rows; i += cells->row_bin) {
    const int64_t high = rows - i < cells->row_bin ? rows - i : cells->row_bin;
    for (int64_t j = 0; j < columns; j += cells->column_bin) {
      const int64_t wide = columns - j < cells->column_bin ? columns - j : cells->column_bin;
      *to++ = mean(from + i * picture->stride[2] + j * picture->stride[3], high, wide, picture->stride);
    }
  }
}

int cli_cells_make(const cli_picture *picture, int64_t side, int64_t total, cli_cells *out) {
  memset(out, 0, sizeof *out);
  out->heads = picture->shape[0] * picture->shape[1];
  out->row_bin = blocks(picture->shape[2], side);
  out->column_bin = blocks(picture->shape[3], side);
  out->rows = blocks(picture->shape[2], out->row_bin);
  out->columns = blocks(picture->shape[3], out->column_bin);
  while (out->rows * out->columns > total / out->heads && out->rows * out->columns > 1) {
    /* The longer side first, so that cells stay about square. */
    if (out->rows >= out->columns)
      out->row_bin++;
    else
      out->column_bin++;
    out->rows = blocks(picture->shape[2], out->row_bin);
    out->columns = blocks(picture->shape[3], out->column_bin);
  }
  const int64_t count = out->heads * out->rows * out->columns;
  out->data = calloc((size_t)count, sizeof *out->data);
  if (out->data == NULL)
    return cli_fail_memory();
  for (int64_t head = 0; head < out->heads; head++)
    fill_head(picture, head, out);
  for (int64_t i = 0; i < count; i++) {
    const double value = (double)out->data[i];
    out->low = value < out->low ? value : out->low;
    out->high = value > out->high ? value : out->high;
  }
  for (int64_t i = 0; i < count; i++) {
    const int level = cli_cell_level(out, out->data[i]);
    out->blank |= level == CLI_CELL_BLANK;
    out->hatched |= level == CLI_CELL_HATCHED;
  }
  return CLI_OK;
}

void cli_cells_release(cli_cells *cells) {
  free(cells->data);
  memset(cells, 0, sizeof *cells);
}

int cli_cell_level(const cli_cells *cells, float value) {
  const double number = (double)value;
  if (!isfinite(number))
    return CLI_CELL_HATCHED;
  if (number == 0 && cells->low >= 0)
    return CLI_CELL_BLANK;
  const double span = cells->high - cells->low;
  const double share = span > 0 ? (number - cells->low) / span : 0;
  return (int)(share * (CLI_LEVELS - 1) + 0.5);
}
