/* SPDX-License-Identifier: Apache-2.0 */
#ifdef CLATTN_WITH_PNG
#include "picture_font.h"

#include <cairo-ft.h>
#include <fontconfig/fontconfig.h>
#include <stdlib.h>
#include <string.h>

#include "picture_unicode.h"

/* The fonts of one weight, best first, each opened when it is needed. */
typedef struct weight {
  FcFontSet *set;
  cairo_font_face_t **faces;
} weight;

struct cli_fonts {
  weight weights[2]; /* regular, bold */
};

static int open_weight(weight *w, int bold) {
  FcResult result = FcResultMatch;
  FcPattern *wanted = FcPatternCreate();
  if (wanted == NULL)
    return 0;
  if (FcPatternAddString(wanted, FC_FAMILY, (const FcChar8 *)"sans-serif") &&
      FcPatternAddInteger(wanted, FC_WEIGHT, bold ? FC_WEIGHT_BOLD : FC_WEIGHT_REGULAR) &&
      FcConfigSubstitute(NULL, wanted, FcMatchPattern)) {
    FcDefaultSubstitute(wanted);
    w->set = FcFontSort(NULL, wanted, FcTrue, NULL, &result);
  }
  FcPatternDestroy(wanted);
  if (w->set == NULL)
    return 0;
  w->faces = calloc((size_t)w->set->nfont + 1, sizeof(cairo_font_face_t *));
  return w->faces != NULL;
}

cli_fonts *cli_fonts_open(void) {
  cli_fonts *fonts = calloc(1, sizeof *fonts);
  if (fonts == NULL)
    return NULL;
  if (!FcInit() || !open_weight(&fonts->weights[0], 0) || !open_weight(&fonts->weights[1], 1)) {
    cli_fonts_close(fonts);
    return NULL;
  }
  return fonts;
}

void cli_fonts_close(cli_fonts *fonts) {
  if (fonts == NULL)
    return;
  for (int bold = 0; bold < 2; bold++) {
    weight *w = &fonts->weights[bold];
    for (int i = 0; w->faces != NULL && i < w->set->nfont; i++)
      cairo_font_face_destroy(w->faces[i]);
    free(w->faces);
    if (w->set != NULL)
      FcFontSetDestroy(w->set);
  }
  free(fonts);
  /* Both keep caches, which tools that look for lost memory would name. */
  cairo_debug_reset_static_data();
  FcFini();
}

int cli_needs_shaping(uint32_t code) {
  static const struct {
    uint32_t first, last;
  } ranges[] = {{0x590, 0xdff},   {0xf00, 0x109f},  {0x1780, 0x18af},   {0x1900, 0x1aaf},
                {0x1b00, 0x1c4f}, {0xa800, 0xa8ff}, {0xa980, 0xaaff},   {0xabc0, 0xabff},
                {0xfb1d, 0xfdff}, {0xfe70, 0xfefe}, {0x10800, 0x11fff}, {0x1e800, 0x1eeff}};
  for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
    if (code >= ranges[i].first && code <= ranges[i].last)
      return 1;
  }
  return 0;
}

/* Joiners, variation selectors and the like choose glyphs and have none. */
static int is_invisible(uint32_t code) {
  return (code >= 0x200b && code <= 0x200f) || code == 0x2060 || code == 0xfeff || (code >= 0xfe00 && code <= 0xfe0f) ||
         (code >= 0xe0000 && code <= 0xe0fff);
}

static int has_all(FcPattern *font, const char *text, const char *end) {
  FcCharSet *has = NULL;
  int all = FcPatternGetCharSet(font, FC_CHARSET, 0, &has) == FcResultMatch;
  while (text < end && all) {
    const uint32_t code = cli_utf8_next(&text);
    all = is_invisible(code) || FcCharSetHasChar(has, code);
  }
  return all;
}

static int has_colour(FcPattern *font) {
  FcBool colour = FcFalse;
  return FcPatternGetBool(font, FC_COLOR, 0, &colour) == FcResultMatch && colour;
}

/* The first font that has all characters in [text, end), for emoji one with colours if there is one; or -1. */
static int find_font(const weight *w, const char *text, const char *end) {
  const char *at = text;
  const int emoji = cli_utf8_next(&at) >= 0x1f000 && cli_character_columns(text) == 2;
  int first = -1;
  for (int i = 0; i < w->set->nfont; i++) {
    if (first >= 0 && !has_colour(w->set->fonts[i]))
      continue;
    if (!has_all(w->set->fonts[i], text, end))
      continue;
    if (!emoji || has_colour(w->set->fonts[i]))
      return i;
    first = i;
  }
  return first;
}

uint32_t cli_fonts_missing(const cli_fonts *fonts, const char *text, int bold) {
  while (*text != 0) {
    const char *const at = text;
    const uint32_t code = cli_utf8_next(&text);
    if (find_font(&fonts->weights[bold], at, text) < 0 || cli_needs_shaping(code))
      return code;
  }
  return 0;
}

static cairo_font_face_t *open_face(weight *w, int font) {
  if (w->faces[font] == NULL) {
    FcPattern *request = FcPatternCreate();
    FcPattern *pattern = request != NULL ? FcFontRenderPrepare(NULL, request, w->set->fonts[font]) : NULL;
    if (pattern != NULL) {
      w->faces[font] = cairo_ft_font_face_create_for_pattern(pattern);
      FcPatternDestroy(pattern);
    }
    if (request != NULL)
      FcPatternDestroy(request);
  }
  return w->faces[font];
}

/* What lies in [text, end) without characters that have no glyph, in one font. */
static double show(weight *w, int font, cairo_t *cairo, const char *text, const char *end, int draw) {
  char run[256];
  size_t length = 0;
  cairo_text_extents_t extents;
  while (text < end) {
    const char *const at = text;
    const uint32_t code = cli_utf8_next(&text);
    const size_t bytes = (size_t)(text - at);
    if (is_invisible(code) || length + bytes >= sizeof run)
      continue;
    memcpy(run + length, at, bytes);
    length += bytes;
  }
  run[length] = 0;
  cairo_font_face_t *face = open_face(w, font);
  if (face == NULL || length == 0)
    return 0;
  cairo_set_font_face(cairo, face);
  cairo_text_extents(cairo, run, &extents);
  if (draw)
    cairo_show_text(cairo, run);
  return extents.x_advance;
}

double cli_fonts_text(cli_fonts *fonts, cairo_t *cairo, const char *text, double size, int bold, int draw) {
  weight *w = &fonts->weights[bold];
  double width = 0;
  cairo_set_font_size(cairo, size);
  while (*text != 0) {
    const char *end = cli_character_end(text);
    int font = find_font(w, text, end);
    if (font < 0) { /* an accent of another font, then */
      end = text;
      (void)cli_utf8_next(&end);
      font = find_font(w, text, end);
    }
    if (font >= 0)
      width += show(w, font, cairo, text, end, draw);
    text = end;
  }
  return width;
}
#else
typedef int cli_no_fonts; /* C wants a declaration in every file */
#endif
