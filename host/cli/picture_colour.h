/* SPDX-License-Identifier: Apache-2.0 */
/* The colours of heat maps: a ramp whose lightness falls evenly, so that it can be read without colours, in print, and
 * with every kind of colour blindness. */
#ifndef CLATTN_CLI_PICTURE_COLOUR_H
#define CLATTN_CLI_PICTURE_COLOUR_H

#include <stdint.h>

enum { CLI_LEVELS = 256 };

/* On light paper the largest weight is darkest; on a dark ground it is brightest. */
void cli_colour(int level, int dark, uint8_t rgb[3]);

/* Ground, text, secondary text and lines of both. */
typedef struct cli_theme {
  uint8_t ground[3], text[3], muted[3], line[3];
} cli_theme;
extern const cli_theme cli_themes[2]; /* light, dark */

#endif
