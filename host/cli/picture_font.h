/* SPDX-License-Identifier: Apache-2.0 */
/* Text with the fonts that are installed: for every character the first sans-serif font that has it. */
#ifndef CLATTN_CLI_PICTURE_FONT_H
#define CLATTN_CLI_PICTURE_FONT_H

#include <cairo.h>
#include <stdint.h>

typedef struct cli_fonts cli_fonts;

/* NULL without memory. */
cli_fonts *cli_fonts_open(void);
void cli_fonts_close(cli_fonts *fonts);
/* The first character that can't be drawn, 0 when all can. */
uint32_t cli_fonts_missing(const cli_fonts *fonts, const char *text, int bold);
/* Scripts that need a shaping engine: written from right to left, or with letters that change their form. */
int cli_needs_shaping(uint32_t code);
/* The text's width in this size, and with `draw` the text itself, from cairo's current point on. */
double cli_fonts_text(cli_fonts *fonts, cairo_t *cairo, const char *text, double size, int bold, int draw);

#endif
