/* SPDX-License-Identifier: Apache-2.0 */
#include "picture_layout.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "picture_colour.h"
#include "picture_unicode.h"

enum { MARGIN = 16, GAP = 18, LABEL_GAP = 10, SMALL = 11, LEAST_WIDTH = 320, BAR_WIDTH = 256, BAR_STEP = 4 };

/* In units of a font's size: from line to line, above the base line, from there to the middle of small letters; and how
 * much wider bold ones are. */
static const double line_height = 1.25, ascent = 0.95, middle = 0.36, bold_width = 1.12;

/* One axis of the panels. */
typedef struct axis {
  const cli_labels *labels;
  char prefix;
  int64_t count, bin; /* cells, weights in one */
  double cell;        /* side of a cell */
  int64_t step;       /* every step-th label is shown */
  double most;        /* longer labels are cut */
  double size;        /* of the labels' letters */
  double widest;      /* of what is shown */
  int turned;
} axis;

typedef struct builder {
  const cli_picture *picture;
  cli_layout *layout;
  size_t word_room, swatch_room;
  axis row, column;
  int64_t in_row;     /* panels */
  double slot;        /* width of a panel or its heading */
  double inner_width; /* of the picture without margins */
  double y;           /* so far */
  int failed;
} builder;

const char *cli_picture_label(const cli_labels *labels, int64_t cell, int64_t bin, char prefix, char scratch[32]) {
  const int64_t i = cell * bin;
  if (labels != NULL && i < labels->count && labels->text[i] != NULL)
    return labels->text[i];
  return cli_label(NULL, i, prefix, scratch);
}

cli_box cli_cell_box(const cli_layout *layout, int64_t head, int64_t cell) {
  const int64_t row = cell / layout->cells.columns, column = cell % layout->cells.columns;
  const cli_box *panel = &layout->panels[head];
  return (cli_box){panel->x + (double)column * layout->cell_width, panel->y + (double)row * layout->cell_height,
                   layout->cell_width, layout->cell_height};
}

/* ---- parts ---- */

static void *grow(void *data, size_t count, size_t *room, size_t element) {
  if (count < *room)
    return data;
  const size_t wanted = *room == 0 ? 64 : *room * 2;
  void *grown = realloc(data, wanted * element);
  if (grown != NULL)
    *room = wanted;
  return grown;
}

/* Anchor, size and looks are given; the text is shortened to `most`.  NULL without memory. */
static const cli_words *add_words(builder *b, const char *text, double most, cli_words words) {
  cli_layout *l = b->layout;
  cli_words *grown = grow(l->words, l->word_count, &b->word_room, sizeof *grown);
  if (grown != NULL) {
    l->words = grown;
    words.text = cli_text_shorten(text, most / words.size);
  }
  if (words.text == NULL) {
    b->failed = 1;
    return NULL;
  }
  const double width = cli_text_width(words.text) * words.size * (words.bold ? bold_width : 1);
  const double before = words.anchor == CLI_ANCHOR_BEGIN ? 0 : words.anchor == CLI_ANCHOR_END ? width : width / 2;
  const double up = ascent * words.size, high = line_height * words.size;
  words.box = words.turned ? (cli_box){words.x - up, words.y - width + before, high, width}
                           : (cli_box){words.x - before, words.y - up, width, high};
  l->words[l->word_count] = words;
  return &l->words[l->word_count++];
}

static void add_swatch(builder *b, double x, double y, double width, double height, int level) {
  cli_layout *l = b->layout;
  cli_swatch *swatches = grow(l->swatches, l->swatch_count, &b->swatch_room, sizeof *swatches);
  if (swatches == NULL) {
    b->failed = 1;
    return;
  }
  l->swatches = swatches;
  swatches[l->swatch_count++] = (cli_swatch){{x, y, width, height}, level};
}

/* The blank, or the end, behind the words that fit; behind one word at least. */
static const char *line_end(const char *text, double room) {
  const char *stop = NULL;
  double width = 0;
  for (;;) {
    const char *const at = text;
    const uint32_t code = cli_utf8_next(&text);
    if (code == ' ' || code == 0) {
      if (stop != NULL && width > room)
        return stop;
      stop = at;
      if (code == 0 || width > room)
        return stop;
    }
    width += cli_code_width(code);
  }
}

/* A paragraph over the whole width, `lines` lines at most. */
static void add_paragraph(builder *b, const char *text, double size, cli_ink ink, int bold, int lines) {
  const double room = b->inner_width / size / (bold ? bold_width : 1);
  while (*text != 0) {
    char line[1024]; /* longer ones do not fit */
    const char *stop = lines > 1 ? line_end(text, room) : text + strlen(text);
    snprintf(line, sizeof line, "%.*s", (int)(stop - text < 1023 ? stop - text : 1023), text);
    add_words(b, line, room * size,
              (cli_words){.x = MARGIN, .y = b->y + ascent * size, .size = size, .ink = ink, .bold = bold});
    b->y += line_height * size;
    lines--;
    text = stop + (*stop == ' ');
  }
}

/* ---- sizes ---- */

static double cell_side(int64_t cells, double room, double least, double most) {
  const double side = floor(room / (double)cells);
  return side < least ? least : side > most ? most : side;
}

/* Square cells, unless one side has far more of them. */
static void size_cells(builder *b) {
  cli_layout *l = b->layout;
  const int64_t heads = l->cells.heads;
  const double room = heads == 1 ? 640 : heads <= 4 ? 300 : 140;
  const double least = heads == 1 ? 2 : 1, most = heads == 1 ? 56 : 24;
  double width = cell_side(l->cells.columns, room, least, most), height = cell_side(l->cells.rows, room, least, most);
  const double smaller = width < height ? width : height;
  const double larger = smaller * 2 > 24 ? smaller * 2 : 24;
  const int alike = width <= 2 * height && height <= 2 * width;
  width = alike ? smaller : width < larger ? width : larger;
  height = alike ? smaller : height < larger ? height : larger;
  l->cell_width = b->column.cell = width;
  l->cell_height = b->row.cell = height;
}

static int64_t label_step(double needed, double cell) {
  int64_t step = 1;
  while ((double)step * cell < needed)
    step *= 2;
  return step;
}

static double widest_label(const axis *a) {
  char scratch[32];
  double widest = 0;
  for (int64_t i = 0; i < a->count; i += a->step) {
    const double width = a->size * cli_text_width(cli_picture_label(a->labels, i, a->bin, a->prefix, scratch));
    widest = width > widest ? width : widest;
  }
  return widest < a->most ? widest : a->most;
}

static int named(const axis *a) {
  return a->labels != NULL && a->labels->count > 0;
}

static void size_labels(builder *b) {
  const int single = b->layout->cells.heads == 1;
  axis *row = &b->row, *column = &b->column;
  row->size = column->size = single ? 12 : 10;
  row->most = single ? 180 : 96;
  column->most = single ? 150 : 80;
  /* Numbers need not stand so close that they are read as a text. */
  row->step = label_step((named(row) ? line_height : 2 * line_height) * row->size, row->cell);
  row->widest = widest_label(row);
  column->step = 1;
  column->widest = widest_label(column);
  if (!named(column)) {
    column->step = label_step(column->widest + 8, column->cell);
  } else if (column->widest + 6 > column->cell) {
    column->turned = 1;
    column->step = label_step(line_height * column->size, column->cell);
    column->widest = widest_label(column);
  }
}

/* ---- panels ---- */

static void heading(char *text, size_t capacity, const char *name, int64_t number) {
  snprintf(text, capacity, "%s %" PRId64, name, number);
}

/* The heading of a head's panel; empty when there is but one. */
static void panel_heading(const cli_picture *p, int64_t head, char *text, size_t capacity) {
  const int64_t layers = p->shape[0], heads = p->shape[1];
  text[0] = 0;
  if (heads > 1)
    heading(text, capacity, p->head_name, p->first_head + head % heads);
  else if (layers > 1)
    heading(text, capacity, p->layer_name, p->first_layer + head / heads);
}

static void size_panels(builder *b) {
  enum { MOST_HEADING = 200 };
  const cli_picture *p = b->picture;
  const int64_t heads = b->layout->cells.heads;
  const int64_t series = p->shape[0] > 1 && p->shape[1] > 1 ? p->shape[1] : heads;
  const double labels = ceil(b->row.widest + LABEL_GAP);
  double available = heads > 144 ? 1000 * sqrt((double)heads / 144) : 1000;
  char text[128];
  b->slot = b->layout->cell_width * (double)b->layout->cells.columns;
  for (int64_t head = 0; head < heads; head++) {
    panel_heading(p, head, text, sizeof text);
    const double width = SMALL * cli_text_width(text);
    if (width > b->slot) /* a longer heading is cut */
      b->slot = width < MOST_HEADING ? width : fmax(b->slot, MOST_HEADING);
  }
  b->slot = ceil(b->slot);
  available -= labels;
  int64_t fits = (int64_t)((available + GAP) / (b->slot + GAP));
  fits = fits < 1 ? 1 : fits;
  const int64_t lines = (series + fits - 1) / fits;
  b->in_row = (series + lines - 1) / lines;
  const double width = labels + (double)b->in_row * (b->slot + GAP) - GAP;
  b->inner_width = width > LEAST_WIDTH ? width : LEAST_WIDTH;
  b->layout->width = ceil(b->inner_width + 2 * MARGIN);
}

static void add_row_labels(builder *b, const cli_box *panel) {
  char scratch[32];
  for (int64_t i = 0; i < b->row.count; i += b->row.step) {
    const char *text = cli_picture_label(b->row.labels, i, b->row.bin, b->row.prefix, scratch);
    const double y = panel->y + ((double)i + 0.5) * b->row.cell + middle * b->row.size;
    add_words(b, text, b->row.most,
              (cli_words){.x = panel->x - LABEL_GAP, .y = y, .size = b->row.size, .anchor = CLI_ANCHOR_END});
  }
}

/* Above the panel, and not far beyond its sides. */
static void add_column_labels(builder *b, const cli_box *panel) {
  char scratch[32];
  const double high = panel->x + b->slot + GAP / 2.0, size = b->column.size;
  for (int64_t j = 0; j < b->column.count; j += b->column.step) {
    const char *text = cli_picture_label(b->column.labels, j, b->column.bin, b->column.prefix, scratch);
    const double centre = panel->x + ((double)j + 0.5) * b->column.cell;
    const int beyond = cli_text_width(text) * size / 2 > centre - panel->x + GAP / 2.0;
    cli_words words = {.x = centre, .y = panel->y - 6, .size = size, .anchor = CLI_ANCHOR_MIDDLE};
    if (b->column.turned) {
      words.turned = 1;
      words.x += middle * size;
      words.anchor = CLI_ANCHOR_BEGIN;
    } else if (beyond) {
      words.x = panel->x;
      words.anchor = CLI_ANCHOR_BEGIN;
    }
    const cli_words *added = add_words(b, text, b->column.most, words);
    if (added != NULL && added->box.x + added->box.width > high) {
      free(added->text);
      b->layout->word_count--;
    }
  }
}

/* `count` panels from `first` on, side by side. */
static void add_panel_row(builder *b, int64_t first, int64_t count, int with_columns) {
  cli_layout *l = b->layout;
  const double height = l->cell_height * (double)l->cells.rows, width = l->cell_width * (double)l->cells.columns;
  const double left = ceil(MARGIN + b->row.widest + LABEL_GAP);
  const double labels = !with_columns ? 0 : b->column.turned ? b->column.widest + 6 : line_height * b->column.size + 6;
  char text[128];
  panel_heading(b->picture, first, text, sizeof text);
  const double top = text[0] != 0 ? line_height * SMALL + 4 : 0;
  for (int64_t i = 0; i < count; i++) {
    cli_box *panel = &l->panels[first + i];
    *panel = (cli_box){left + (double)i * (b->slot + GAP), ceil(b->y + top + labels), width, height};
    panel_heading(b->picture, first + i, text, sizeof text);
    if (text[0] != 0)
      add_words(b, text, b->slot,
                (cli_words){.x = panel->x, .y = b->y + ascent * SMALL, .size = SMALL, .ink = CLI_INK_MUTED});
    if (with_columns)
      add_column_labels(b, panel);
  }
  add_row_labels(b, &l->panels[first]);
  b->y = l->panels[first].y + height + GAP - 2;
}

static void add_panels(builder *b) {
  const cli_picture *p = b->picture;
  const int bands = p->shape[0] > 1 && p->shape[1] > 1;
  const int64_t series = bands ? p->shape[1] : b->layout->cells.heads;
  for (int64_t begin = 0; begin < b->layout->cells.heads; begin += series) {
    char text[128];
    if (bands) {
      heading(text, sizeof text, p->layer_name, p->first_layer + begin / series);
      b->y += 6;
      add_paragraph(b, text, 13, CLI_INK_TEXT, 1, 1);
      b->y += 4;
    }
    for (int64_t i = 0; i < series; i += b->in_row) {
      const int64_t count = series - i < b->in_row ? series - i : b->in_row;
      add_panel_row(b, begin + i, count, i == 0);
    }
  }
}

/* Numbers in the cells, where all of them fit. */
static void add_numbers(builder *b) {
  cli_layout *l = b->layout;
  const int64_t count = l->cells.rows * l->cells.columns;
  char text[64];
  if (l->cells.heads > 1 || l->cell_height < 20)
    return;
  for (int64_t i = 0; i < count; i++) {
    snprintf(text, sizeof text, "%.2f", (double)l->cells.data[i]);
    if (cli_text_width(text) * SMALL > l->cell_width - 4)
      return;
  }
  for (int64_t i = 0; i < count; i++) {
    const int level = cli_cell_level(&l->cells, l->cells.data[i]);
    if (level < 0)
      continue;
    snprintf(text, sizeof text, "%.2f", (double)l->cells.data[i]);
    const cli_box box = cli_cell_box(l, 0, i);
    const cli_ink ink = level < CLI_LEVELS * 0.37   ? CLI_INK_ON_LOW
                        : level < CLI_LEVELS * 0.56 ? CLI_INK_ON_MIDDLE
                                                    : CLI_INK_ON_HIGH;
    add_words(b, text, l->cell_width,
              (cli_words){.x = box.x + box.width / 2,
                          .y = box.y + box.height / 2 + middle * SMALL,
                          .size = SMALL,
                          .anchor = CLI_ANCHOR_MIDDLE,
                          .ink = ink});
  }
}

/* ---- legend ---- */

/* The largest of 1, 2, 5 times a power of ten that is not above. */
static double round_down(double value) {
  const double power = pow(10, floor(log10(value)));
  return power * (value / power >= 5 ? 5 : value / power >= 2 ? 2 : 1);
}

static void add_tick(builder *b, double value, double x, cli_anchor anchor) {
  char text[32];
  snprintf(text, sizeof text, "%.3g", value);
  add_words(
      b, text, BAR_WIDTH,
      (cli_words){.x = x, .y = b->y + 12 + ascent * SMALL, .size = SMALL, .anchor = anchor, .ink = CLI_INK_MUTED});
}

/* Both ends exactly, and round numbers where there is room between them. */
static void add_bar(builder *b) {
  const cli_cells *cells = &b->layout->cells;
  const double span = cells->high - cells->low, step = round_down(span / 4);
  for (int i = 0; i < BAR_WIDTH / BAR_STEP; i++)
    add_swatch(b, MARGIN + BAR_STEP * i, b->y, BAR_STEP, 10, i * CLI_LEVELS / (BAR_WIDTH / BAR_STEP));
  add_tick(b, cells->low, MARGIN, CLI_ANCHOR_BEGIN);
  add_tick(b, cells->high, MARGIN + BAR_WIDTH, CLI_ANCHOR_END);
  if (b->failed)
    return;
  const cli_words *ends = b->layout->words + b->layout->word_count - 2;
  double left = ends[0].box.x + ends[0].box.width + 6;
  const double right = ends[1].box.x - 6;
  for (int k = (int)floor(cells->low / step) + 1; k * step < cells->high; k++) {
    char text[32];
    const double value = k * step, x = MARGIN + BAR_WIDTH * (value - cells->low) / span;
    snprintf(text, sizeof text, "%.3g", value);
    const double half = cli_text_width(text) * SMALL / 2;
    if (x - half < left || x + half > right)
      continue;
    add_tick(b, value, x, CLI_ANCHOR_MIDDLE);
    left = x + half + 6;
  }
  b->y += 12 + line_height * SMALL + 4;
}

static void add_key(builder *b, int level, const char *text) {
  add_swatch(b, MARGIN, b->y + 2, 16, 10, level);
  add_words(b, text, b->inner_width - 24,
            (cli_words){.x = MARGIN + 24, .y = b->y + ascent * SMALL, .size = SMALL, .ink = CLI_INK_MUTED});
  b->y += line_height * SMALL + 3;
}

static void add_legend(builder *b) {
  const cli_cells *cells = &b->layout->cells;
  b->y = ceil(b->y + 2);
  if (cells->high > cells->low)
    add_bar(b);
  if (cells->blank)
    add_key(b, CLI_CELL_BLANK, cells->high > cells->low ? "exactly 0" : "exactly 0, as all finite weights are");
  if (cells->hatched)
    add_key(b, CLI_CELL_HATCHED, "not a finite number");
}

static void add_head(builder *b) {
  const cli_picture *p = b->picture;
  const cli_cells *cells = &b->layout->cells;
  char text[256];
  if (p->title != NULL && p->title[0] != 0) {
    add_paragraph(b, p->title, 15, CLI_INK_TEXT, 1, 3);
    b->y += 2;
  }
  add_paragraph(b, "rows: queries, columns: keys", SMALL, CLI_INK_MUTED, 0, 2);
  if (cells->row_bin > 1 || cells->column_bin > 1) {
    snprintf(text, sizeof text,
             "%" PRId64 " x %" PRId64 " weights, binned %" PRId64 " x %" PRId64 ": each cell is the mean of %" PRId64,
             p->shape[2], p->shape[3], cells->row_bin, cells->column_bin, cells->row_bin * cells->column_bin);
    add_paragraph(b, text, SMALL, CLI_INK_MUTED, 0, 4);
  }
  b->y += 12;
}

int cli_layout_make(const cli_picture *picture, cli_layout *out) {
  enum { MOST_SIDE = 256, MOST_CELLS = 300000 };
  builder b;
  memset(&b, 0, sizeof b);
  memset(out, 0, sizeof *out);
  b.picture = picture;
  b.layout = out;
  int code = cli_cells_make(picture, MOST_SIDE, MOST_CELLS, &out->cells);
  if (code != CLI_OK)
    return code;
  out->panels = calloc((size_t)out->cells.heads, sizeof *out->panels);
  if (out->panels == NULL) {
    cli_layout_release(out);
    return cli_fail_memory();
  }
  b.row = (axis){.labels = picture->rows, .prefix = 'q', .count = out->cells.rows, .bin = out->cells.row_bin};
  b.column =
      (axis){.labels = picture->columns, .prefix = 'k', .count = out->cells.columns, .bin = out->cells.column_bin};
  size_cells(&b);
  size_labels(&b);
  size_panels(&b);
  b.y = MARGIN;
  add_head(&b);
  add_panels(&b);
  add_numbers(&b);
  add_legend(&b);
  out->height = ceil(b.y + MARGIN);
  if (b.failed) {
    cli_layout_release(out);
    return cli_fail_memory();
  }
  return CLI_OK;
}

void cli_layout_release(cli_layout *layout) {
  for (size_t i = 0; i < layout->word_count; i++)
    free(layout->words[i].text);
  free(layout->words);
  free(layout->swatches);
  free(layout->panels);
  cli_cells_release(&layout->cells);
  memset(layout, 0, sizeof *layout);
}
