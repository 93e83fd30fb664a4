/* SPDX-License-Identifier: Apache-2.0 */
#include "picture_colour.h"

#include <math.h>

const cli_theme cli_themes[2] = {{{255, 255, 255}, {28, 33, 40}, {87, 96, 106}, {140, 149, 159}},
                                 {{22, 24, 29}, {230, 233, 237}, {160, 168, 178}, {95, 103, 114}}};

static double encode_srgb(double linear) {
  return linear <= 0.0031308 ? 12.92 * linear : 1.055 * pow(linear, 1 / 2.4) - 0.055;
}

/* OKLab to linear sRGB; the matrices are those of Björn Ottosson's definition of 2020. */
static void from_oklab(double lightness, double a, double b, double rgb[3]) {
  const double l = lightness + 0.3963377774 * a + 0.2158037573 * b;
  const double m = lightness - 0.1055613458 * a - 0.0638541728 * b;
  const double s = lightness - 0.0894841775 * a - 1.2914855480 * b;
  const double l3 = l * l * l, m3 = m * m * m, s3 = s * s * s;
  rgb[0] = 4.0767416621 * l3 - 3.3077115913 * m3 + 0.2309699292 * s3;
  rgb[1] = -1.2684380046 * l3 + 2.6097574011 * m3 - 0.3413193965 * s3;
  rgb[2] = -0.0041960863 * l3 - 0.7034186147 * m3 + 1.7076147010 * s3;
}

/* From a pale yellow through teal to a deep blue: lightness and hue are linear in the level, and sRGB has all of it. */
void cli_colour(int level, int dark, uint8_t rgb[3]) {
  static const double pi = 3.14159265358979323846;
  const double share = level / (double)(CLI_LEVELS - 1), at = dark ? 1 - share : share;
  const double lightness = 0.965 - (dark ? 0.605 : 0.685) * at;
  const double hue = (105 + 160 * at) * pi / 180;
  const double chroma = 0.03 + 0.062 * sin(pi * at * 0.93);
  double linear[3];
  from_oklab(lightness, chroma * cos(hue), chroma * sin(hue), linear);
  for (int i = 0; i < 3; i++)
    rgb[i] = (uint8_t)(255 * encode_srgb(linear[i]) + 0.5);
}
