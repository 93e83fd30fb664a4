/* SPDX-License-Identifier: Apache-2.0 */
/* Heat maps of attention weights as files: .svg, .png (through cairo, where it was there at build time) and .html (one
 * page with selectors of layer and head).
 *
 * Rows are queries, columns are keys.  Cells are shaded from 0 (or the smallest number, if that is below 0) to the
 * largest number of the whole picture; exactly 0 stays blank, what is not finite is hatched.  Long sequences are
 * binned: a cell is then the mean of a block of weights, and the picture says so. */
#ifndef CLATTN_CLI_PICTURE_H
#define CLATTN_CLI_PICTURE_H

#include <stdint.h>

#include "heatmap.h"
#include "outputs.h"

enum { CLI_PICTURE_MOST_HEADS = 1024 }; /* layers * heads */

typedef struct cli_picture {
  const char *title;                  /* UTF-8, or NULL */
  const float *weights;               /* (layer, head, row, column) */
  int64_t shape[4], stride[4];        /* strides in elements */
  const cli_labels *rows, *columns;   /* any UTF-8; NULL or fewer than rows and columns: the rest is numbered */
  const char *layer_name, *head_name; /* what a layer and a head are called: "batch entry" */
  int64_t first_layer, first_head;    /* number of the first one */
} cli_picture;

/* All zero, but for the names "layer" and "head". */
void cli_picture_init(cli_picture *picture);

/* Before the work: whether the path's extension is one that can be written, and these numbers of layers, heads, rows
 * and columns can be drawn.  `option` is for messages. */
int cli_picture_check(const char *option, const char *path, const int64_t shape[4]);
/* The picture as the contents of an output that was begun: see outputs.h. */
int cli_picture_put(const cli_picture *picture, cli_file *file);
/* The picture as a file of its own: the old file or the whole new one, never a part. */
int cli_picture_write(const char *option, const char *path, const cli_picture *picture);

#endif
