/* SPDX-License-Identifier: Apache-2.0 */
/* PNG: the layout drawn by cairo, two pixels for one of the layout, light on paper. */
#include "picture_back.h"

#include "cli.h"

#ifdef CLATTN_WITH_PNG
#include <inttypes.h>
#include <math.h>

#include "picture_colour.h"
#include "picture_font.h"
#include "picture_layout.h"

int cli_picture_has_png(void) {
  return 1;
}

static void set_colour(cairo_t *cairo, const uint8_t rgb[3]) {
  cairo_set_source_rgb(cairo, rgb[0] / 255.0, rgb[1] / 255.0, rgb[2] / 255.0);
}

static void add_box(cairo_t *cairo, const cli_box *box) {
  cairo_rectangle(cairo, box->x, box->y, box->width, box->height);
}

/* Fills what was added to the path. */
static void fill_level(cairo_t *cairo, int level) {
  uint8_t rgb[3];
  cli_colour(level, 0, rgb);
  set_colour(cairo, rgb);
  cairo_set_antialias(cairo, CAIRO_ANTIALIAS_NONE);
  cairo_fill(cairo);
  cairo_set_antialias(cairo, CAIRO_ANTIALIAS_DEFAULT);
}

/* Hatches what was added to the path, which lies in `area`. */
static void hatch(cairo_t *cairo, const cli_box *area) {
  const double left = floor(area->x), right = area->x + area->width, bottom = area->y + area->height;
  cairo_save(cairo);
  cairo_clip(cairo);
  set_colour(cairo, cli_themes[0].line);
  cairo_set_line_width(cairo, 1);
  for (int line = 0; area->y + 4 * line < bottom + area->width; line++) {
    const double y = area->y + 4 * line;
    cairo_move_to(cairo, left, y);
    cairo_line_to(cairo, right, y - (right - left));
  }
  cairo_stroke(cairo);
  cairo_restore(cairo);
}

static void frame(cairo_t *cairo, const cli_box *box) {
  set_colour(cairo, cli_themes[0].line);
  cairo_set_line_width(cairo, 1);
  cairo_rectangle(cairo, box->x - 0.5, box->y - 0.5, box->width + 1, box->height + 1);
  cairo_stroke(cairo);
}

static void draw_panel(cairo_t *cairo, const cli_layout *layout, int64_t head) {
  const cli_cells *cells = &layout->cells;
  const int gap = cells->heads == 1 && layout->cell_width >= 12 && layout->cell_height >= 12;
  const int64_t count = cells->rows * cells->columns;
  const float *data = cells->data + head * count;
  const cli_box *panel = &layout->panels[head];
  for (int pass = 0; pass < 2; pass++) {
    for (int64_t i = 0; i < count; i++) {
      const int level = cli_cell_level(cells, data[i]);
      cli_box box = cli_cell_box(layout, head, i);
      box.width -= gap;
      box.height -= gap;
      if (pass == 0 ? level < 0 : level != CLI_CELL_HATCHED)
        continue;
      add_box(cairo, &box);
      if (pass == 0)
        fill_level(cairo, level);
    }
  }
  hatch(cairo, panel);
  frame(cairo, panel);
}

static void draw_words(cairo_t *cairo, cli_fonts *fonts, const cli_words *words) {
  const uint8_t *const inks[] = {cli_themes[0].text, cli_themes[0].muted, cli_themes[0].text, cli_themes[0].text,
                                 cli_themes[1].text};
  const double room = words->turned ? words->box.height : words->box.width;
  const double width = cli_fonts_text(fonts, cairo, words->text, words->size, words->bold, 0);
  const double squeeze = width > room && width > 0 ? room / width : 1;
  const double before = words->anchor == CLI_ANCHOR_BEGIN ? 0 : words->anchor == CLI_ANCHOR_END ? width : width / 2;
  cairo_save(cairo);
  set_colour(cairo, inks[words->ink]);
  cairo_translate(cairo, words->x, words->y);
  if (words->turned)
    cairo_rotate(cairo, -acos(0));
  cairo_scale(cairo, squeeze, 1);
  cairo_move_to(cairo, -before, 0);
  cli_fonts_text(fonts, cairo, words->text, words->size, words->bold, 1);
  cairo_restore(cairo);
}

static void draw(cairo_t *cairo, cli_fonts *fonts, const cli_layout *layout) {
  cairo_font_options_t *options = cairo_font_options_create();
  cairo_font_options_set_hint_style(options, CAIRO_HINT_STYLE_NONE);
  cairo_font_options_set_hint_metrics(options, CAIRO_HINT_METRICS_OFF);
  cairo_font_options_set_antialias(options, CAIRO_ANTIALIAS_GRAY);
  cairo_set_font_options(cairo, options);
  cairo_font_options_destroy(options);
  set_colour(cairo, cli_themes[0].ground);
  cairo_paint(cairo);
  for (int64_t head = 0; head < layout->cells.heads; head++)
    draw_panel(cairo, layout, head);
  for (size_t i = 0; i < layout->swatch_count; i++) {
    const cli_swatch *swatch = &layout->swatches[i];
    add_box(cairo, &swatch->box);
    if (swatch->level >= 0)
      fill_level(cairo, swatch->level);
    else if (swatch->level == CLI_CELL_HATCHED)
      hatch(cairo, &swatch->box);
    cairo_new_path(cairo);
    if (swatch->level < 0)
      frame(cairo, &swatch->box);
  }
  for (size_t i = 0; i < layout->word_count; i++)
    draw_words(cairo, fonts, &layout->words[i]);
}

static int check_words(const cli_fonts *fonts, const cli_layout *layout, const cli_file *file) {
  for (size_t i = 0; i < layout->word_count; i++) {
    const cli_words *words = &layout->words[i];
    const uint32_t code = cli_fonts_missing(fonts, words->text, words->bold);
    if (code != 0 && cli_needs_shaping(code))
      return cli_fail(CLI_USAGE,
                      "--%s: %s: '%s' has U+%04" PRIX32 ", of a script that .png can't set (right to left, or with "
                      "letters that join); .svg and .html can",
                      file->option, file->path, words->text, code);
    if (code != 0)
      return cli_fail(CLI_FAILED,
                      "--%s: %s: '%s' has U+%04" PRIX32 ", which no installed font has: install one (Chinese, Japanese "
                      "and Korean: apt-get install fonts-noto-cjk), or take .svg or .html",
                      file->option, file->path, words->text, code);
  }
  return CLI_OK;
}

static cairo_status_t take_bytes(void *out, const unsigned char *data, unsigned length) {
  cli_bytes_add(out, data, length);
  return ((cli_bytes *)out)->failed ? CAIRO_STATUS_NO_MEMORY : CAIRO_STATUS_SUCCESS;
}

static int render(const cli_layout *layout, cli_fonts *fonts, const cli_file *file, cli_bytes *out) {
  enum { MOST_PIXELS = 32767 }; /* cairo's */
  const double larger = layout->width > layout->height ? layout->width : layout->height;
  const double scale = larger * 2 > MOST_PIXELS ? 1 : 2;
  if (larger > MOST_PIXELS)
    return cli_fail(CLI_USAGE,
                    "--%s: %s: %.0f x %.0f pixels are needed, and .png takes up to %d; .svg and .html "
                    "take more, fewer heads need less",
                    file->option, file->path, layout->width, layout->height, MOST_PIXELS);
  cairo_surface_t *surface =
      cairo_image_surface_create(CAIRO_FORMAT_RGB24, (int)(layout->width * scale), (int)(layout->height * scale));
  cairo_t *cairo = cairo_create(surface);
  cairo_scale(cairo, scale, scale);
  draw(cairo, fonts, layout);
  cairo_status_t status = cairo_status(cairo);
  if (status == CAIRO_STATUS_SUCCESS)
    status = cairo_surface_write_to_png_stream(surface, take_bytes, out);
  cairo_destroy(cairo);
  cairo_surface_destroy(surface);
  return status == CAIRO_STATUS_SUCCESS
             ? CLI_OK
             : cli_fail(CLI_FAILED, "--%s: %s: %s", file->option, file->path, cairo_status_to_string(status));
}

int cli_picture_png(const cli_picture *picture, const cli_file *file, cli_bytes *out) {
  cli_layout layout;
  int code = cli_layout_make(picture, &layout);
  if (code != CLI_OK)
    return code;
  cli_fonts *fonts = cli_fonts_open();
  if (fonts == NULL)
    code = cli_fail(CLI_FAILED,
                    "--%s: %s: no font can be opened: install one (apt-get install fonts-dejavu-core), or "
                    "take .svg or .html",
                    file->option, file->path);
  if (code == CLI_OK)
    code = check_words(fonts, &layout, file);
  if (code == CLI_OK)
    code = render(&layout, fonts, file, out);
  cli_fonts_close(fonts);
  cli_layout_release(&layout);
  return code;
}
#else
int cli_picture_has_png(void) {
  return 0;
}

/* cli_picture_check says why before anything gets here. */
int cli_picture_png(const cli_picture *picture, const cli_file *file, cli_bytes *out) {
  (void)picture;
  (void)out;
  return cli_fail(CLI_USAGE, "--%s: %s: this clattn can't write .png", file->option, file->path);
}
#endif
