/* SPDX-License-Identifier: Apache-2.0 */
/* Where everything of a still picture stands, in pixels of a screen from the upper left corner.  SVG and PNG draw it. */
#ifndef CLATTN_CLI_PICTURE_LAYOUT_H
#define CLATTN_CLI_PICTURE_LAYOUT_H

#include <stddef.h>

#include "picture_cells.h"

typedef struct cli_box {
  double x, y, width, height;
} cli_box;

/* The last three stand on cells, and are dark or light as their ground wants it. */
typedef enum cli_ink { CLI_INK_TEXT, CLI_INK_MUTED, CLI_INK_ON_LOW, CLI_INK_ON_MIDDLE, CLI_INK_ON_HIGH } cli_ink;
typedef enum cli_anchor { CLI_ANCHOR_BEGIN, CLI_ANCHOR_MIDDLE, CLI_ANCHOR_END } cli_anchor;

/* One line of text.  No two boxes of a layout overlap. */
typedef struct cli_words {
  char *text;
  double x, y, size; /* the anchor, on the base line */
  cli_anchor anchor;
  cli_ink ink;
  int turned; /* reads upwards */
  int bold;
  cli_box box; /* its room */
} cli_words;

/* A shaded rectangle of the legend. */
typedef struct cli_swatch {
  cli_box box;
  int level; /* as cli_cell_level has it */
} cli_swatch;

typedef struct cli_layout {
  double width, height;
  cli_cells cells;
  double cell_width, cell_height;
  cli_box *panels; /* one per head, in the order of cells.data */
  cli_words *words;
  size_t word_count;
  cli_swatch *swatches;
  size_t swatch_count;
} cli_layout;

int cli_layout_make(const cli_picture *picture, cli_layout *out);
void cli_layout_release(cli_layout *layout);

/* Where a cell of a head stands, counted row after row. */
cli_box cli_cell_box(const cli_layout *layout, int64_t head, int64_t cell);
/* The label of a cell, that of its first row or column: what was given, or "q7", "k7" in scratch. */
const char *cli_picture_label(const cli_labels *labels, int64_t cell, int64_t bin, char prefix, char scratch[32]);

#endif
