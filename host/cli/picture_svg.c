/* SPDX-License-Identifier: Apache-2.0 */
/* SVG: the layout as elements whose colours are classes, so that a style sheet can follow the reader's theme. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "picture_back.h"
#include "picture_colour.h"
#include "picture_layout.h"

/* Fills of the classes c0 to c255 that occur. */
static void add_levels(cli_bytes *out, const int used[CLI_LEVELS], int dark) {
  for (int level = 0; level < CLI_LEVELS; level++) {
    uint8_t rgb[3];
    if (!used[level])
      continue;
    cli_colour(level, dark, rgb);
    cli_bytes_format(out, ".c%d{fill:#%02x%02x%02x}", level, rgb[0], rgb[1], rgb[2]);
  }
}

static void add_theme(cli_bytes *out, const int used[CLI_LEVELS], int dark) {
  const cli_theme *t = &cli_themes[dark];
  const uint8_t *const on_low = cli_themes[dark].text, *const on_middle = cli_themes[0].text;
  const uint8_t *const on_high = cli_themes[!dark].text;
  cli_bytes_format(out, "svg{background:#%02x%02x%02x}", t->ground[0], t->ground[1], t->ground[2]);
  cli_bytes_format(out, ".g{fill:#%02x%02x%02x}.t{fill:#%02x%02x%02x}.m{fill:#%02x%02x%02x}", t->ground[0],
                   t->ground[1], t->ground[2], t->text[0], t->text[1], t->text[2], t->muted[0], t->muted[1],
                   t->muted[2]);
  cli_bytes_format(out, ".l{fill:#%02x%02x%02x}.i{fill:#%02x%02x%02x}.h{fill:#%02x%02x%02x}", on_low[0], on_low[1],
                   on_low[2], on_middle[0], on_middle[1], on_middle[2], on_high[0], on_high[1], on_high[2]);
  cli_bytes_format(out, ".f,.n{fill:none;stroke:#%02x%02x%02x}", t->line[0], t->line[1], t->line[2]);
  add_levels(out, used, dark);
}

static void add_style(const cli_layout *layout, cli_bytes *out) {
  const cli_cells *cells = &layout->cells;
  const int64_t count = cells->heads * cells->rows * cells->columns;
  int used[CLI_LEVELS] = {0};
  for (int64_t i = 0; i < count; i++) {
    const int level = cli_cell_level(cells, cells->data[i]);
    if (level >= 0)
      used[level] = 1;
  }
  for (size_t i = 0; i < layout->swatch_count; i++) {
    if (layout->swatches[i].level >= 0)
      used[layout->swatches[i].level] = 1;
  }
  cli_bytes_text(out, "<style>\ntext{font-family:sans-serif;white-space:pre}.b{font-weight:bold}"
                      "rect,path{shape-rendering:crispEdges}\n");
  add_theme(out, used, 0);
  cli_bytes_text(out, "\n@media (prefers-color-scheme:dark){");
  add_theme(out, used, 1);
  cli_bytes_text(out, "}\n</style>\n");
}

static void add_rect(cli_bytes *out, const char *paint, const cli_box *box, const char *end) {
  cli_bytes_format(out, "<rect %s x=\"%.7g\" y=\"%.7g\" width=\"%.7g\" height=\"%.7g\"%s", paint, box->x, box->y,
                   box->width, box->height, end);
}

static const char *paint_of(int level, char paint[32]) {
  if (level == CLI_CELL_HATCHED)
    return "fill=\"url(#not-finite)\"";
  snprintf(paint, 32, level == CLI_CELL_BLANK ? "class=\"g\"" : "class=\"c%d\"", level);
  return paint;
}

static void add_label(cli_bytes *out, const cli_labels *labels, int64_t cell, int64_t bin, char prefix) {
  char scratch[32];
  cli_bytes_xml(out, cli_picture_label(labels, cell, bin, prefix, scratch));
}

/* An element of its own for every cell: it says what it is when pointed at. */
static void add_cells_with_titles(const cli_picture *picture, const cli_layout *layout, cli_bytes *out) {
  const cli_cells *cells = &layout->cells;
  const int gap = layout->cell_width >= 12 && layout->cell_height >= 12;
  char paint[32];
  for (int64_t i = 0; i < cells->rows; i++) {
    for (int64_t j = 0; j < cells->columns; j++) {
      const int64_t cell = i * cells->columns + j;
      const float value = cells->data[cell];
      cli_box box = cli_cell_box(layout, 0, cell);
      box.width -= gap;
      box.height -= gap;
      add_rect(out, paint_of(cli_cell_level(cells, value), paint), &box, "><title>");
      add_label(out, picture->rows, i, cells->row_bin, 'q');
      cli_bytes_text(out, " \xe2\x86\x92 ");
      add_label(out, picture->columns, j, cells->column_bin, 'k');
      cli_bytes_format(out, ": %.4g</title></rect>\n", cli_unsigned_nan((double)value));
    }
  }
}

/* Runs of one level in a row, as a path of unit squares that the panel's group scales. */
static void add_level(const cli_layout *layout, const float *data, int level, cli_bytes *out) {
  const cli_cells *cells = &layout->cells;
  char paint[32];
  int begun = 0;
  for (int64_t i = 0; i < cells->rows; i++) {
    for (int64_t j = 0; j < cells->columns; j++) {
      int64_t end = j;
      while (end < cells->columns && cli_cell_level(cells, data[i * cells->columns + end]) == level)
        end++;
      if (end == j)
        continue;
      if (!begun)
        cli_bytes_format(out, "<path %s d=\"", paint_of(level, paint));
      begun = 1;
      cli_bytes_format(out, "M%" PRId64 " %" PRId64 "h%" PRId64 "v1h-%" PRId64 "z", j, i, end - j, end - j);
      j = end;
    }
  }
  if (begun)
    cli_bytes_text(out, "\"/>\n");
}

static void add_panel(const cli_layout *layout, int64_t head, cli_bytes *out) {
  const cli_cells *cells = &layout->cells;
  const int64_t count = cells->rows * cells->columns;
  const float *data = cells->data + head * count;
  int used[CLI_LEVELS] = {0}, hatched = 0;
  for (int64_t i = 0; i < count; i++) {
    const int level = cli_cell_level(cells, data[i]);
    if (level >= 0)
      used[level] = 1;
    hatched |= level == CLI_CELL_HATCHED;
  }
  cli_bytes_format(out, "<g transform=\"translate(%.7g %.7g) scale(%.7g %.7g)\">\n", layout->panels[head].x,
                   layout->panels[head].y, layout->cell_width, layout->cell_height);
  for (int level = 0; level < CLI_LEVELS; level++) {
    if (used[level])
      add_level(layout, data, level, out);
  }
  cli_bytes_text(out, "</g>\n");
  if (!hatched)
    return;
  /* Unscaled, so that the hatching is as everywhere. */
  for (int64_t i = 0; i < count; i++) {
    const cli_box box = cli_cell_box(layout, head, i);
    if (cli_cell_level(cells, data[i]) == CLI_CELL_HATCHED)
      add_rect(out, "fill=\"url(#not-finite)\"", &box, "/>\n");
  }
}

static void add_words(const cli_words *words, cli_bytes *out) {
  static const char *const anchors[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
  static const char *const inks[] = {"t", "m", "l", "i", "h"};
  cli_bytes_format(out, "<text class=\"%s%s\" font-size=\"%.7g\"%s", inks[words->ink], words->bold ? " b" : "",
                   words->size, anchors[words->anchor]);
  cli_bytes_format(out, words->turned ? " transform=\"translate(%.7g %.7g) rotate(-90)\">" : " x=\"%.7g\" y=\"%.7g\">",
                   words->x, words->y);
  cli_bytes_xml(out, words->text);
  cli_bytes_text(out, "</text>\n");
}

static void add_frame(const cli_box *around, cli_bytes *out) {
  const cli_box box = {around->x - 0.5, around->y - 0.5, around->width + 1, around->height + 1};
  add_rect(out, "class=\"f\"", &box, "/>\n");
}

int cli_picture_svg(const cli_picture *picture, const cli_file *file, cli_bytes *out) {
  enum { MOST_TITLES = 2500 };
  cli_layout layout;
  char paint[32];
  (void)file;
  const int code = cli_layout_make(picture, &layout);
  if (code != CLI_OK)
    return code;
  const cli_cells *cells = &layout.cells;
  cli_bytes_format(out,
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.7g\" height=\"%.7g\" "
                   "viewBox=\"0 0 %.7g %.7g\" style=\"max-width:100%%;height:auto\" role=\"img\">\n<title>",
                   layout.width, layout.height, layout.width, layout.height);
  cli_bytes_xml(out, picture->title != NULL && picture->title[0] != 0 ? picture->title : "attention weights");
  cli_bytes_text(out, "</title>\n");
  add_style(&layout, out);
  cli_bytes_text(out, "<defs><pattern id=\"not-finite\" width=\"4\" height=\"4\" patternUnits=\"userSpaceOnUse\">"
                      "<path class=\"n\" style=\"shape-rendering:auto\" d=\"M-1 1L1 -1M0 4L4 0M3 5L5 3\"/>"
                      "</pattern></defs>\n<rect class=\"g\" width=\"100%\" height=\"100%\"/>\n");
  if (cells->heads == 1 && cells->rows * cells->columns <= MOST_TITLES) {
    add_cells_with_titles(picture, &layout, out);
  } else {
    for (int64_t head = 0; head < cells->heads; head++)
      add_panel(&layout, head, out);
  }
  for (int64_t head = 0; head < cells->heads; head++)
    add_frame(&layout.panels[head], out);
  for (size_t i = 0; i < layout.swatch_count; i++) {
    add_rect(out, paint_of(layout.swatches[i].level, paint), &layout.swatches[i].box, "/>\n");
    if (layout.swatches[i].level < 0)
      add_frame(&layout.swatches[i].box, out);
  }
  for (size_t i = 0; i < layout.word_count; i++)
    add_words(&layout.words[i], out);
  cli_bytes_text(out, "</svg>\n");
  cli_layout_release(&layout);
  return CLI_OK;
}
