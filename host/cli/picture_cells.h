/* SPDX-License-Identifier: Apache-2.0 */
/* The weights of a picture, binned to as many cells as can be told apart. */
#ifndef CLATTN_CLI_PICTURE_CELLS_H
#define CLATTN_CLI_PICTURE_CELLS_H

#include "picture.h"

enum { CLI_CELL_BLANK = -1, CLI_CELL_HATCHED = -2 };

typedef struct cli_cells {
  int64_t heads;               /* of all layers */
  int64_t rows, columns;       /* cells of a head */
  int64_t row_bin, column_bin; /* weights in a cell; the last one of a row or column may have fewer */
  float *data;                 /* head after head, row after row */
  double low, high;            /* what the first and the last colour stand for; low is 0 or below */
  int blank, hatched;          /* whether there are such cells */
} cli_cells;

/* At most `side` rows and columns a head, and `total` cells. */
int cli_cells_make(const cli_picture *picture, int64_t side, int64_t total, cli_cells *out);
void cli_cells_release(cli_cells *cells);
/* 0 to CLI_LEVELS - 1, or one of the above. */
int cli_cell_level(const cli_cells *cells, float value);

#endif
