/* SPDX-License-Identifier: Apache-2.0 */
#include "picture_unicode.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

uint32_t cli_utf8_next(const char **text) {
  utf8proc_int32_t code = -1;
  if (**text == 0)
    return 0;
  const utf8proc_ssize_t length = utf8proc_iterate((const utf8proc_uint8_t *)*text, -1, &code);
  *text += length > 0 ? length : 1;
  return length > 0 && code >= 0 ? (uint32_t)code : CLI_NO_CHARACTER;
}

const char *cli_character_end(const char *text) {
  const char *end = text;
  utf8proc_int32_t state = 0;
  uint32_t code = cli_utf8_next(&end);
  while (code != 0) {
    const char *next = end;
    const uint32_t following = cli_utf8_next(&next);
    if (following == 0 || utf8proc_grapheme_break_stateful((utf8proc_int32_t)code, (utf8proc_int32_t)following, &state))
      break;
    code = following;
    end = next;
  }
  return end;
}

/* The two letters of a flag are one picture of two columns. */
static int columns_of(uint32_t code) {
  return code >= 0x1f1e6 && code <= 0x1f1ff ? 2 : utf8proc_charwidth((utf8proc_int32_t)code);
}

int cli_character_columns(const char *text) {
  return columns_of(cli_utf8_next(&text));
}

/* Control characters, and what XML has no place for. */
static uint32_t shown(uint32_t code) {
  if (code == '\t' || code == '\n' || code == '\r')
    return ' ';
  return code < ' ' || (code >= 127 && code < 160) || (code & 0xfffe) == 0xfffe ? CLI_NO_CHARACTER : code;
}

/* Hundredths of the font's size, the wider of DejaVu Sans and Liberation Sans (which is as wide as Arial). */
double cli_code_width(uint32_t code) {
  static const unsigned char ascii[] = {32, 41, 46, 84, 64, 96, 78, 28, 40, 40, 50, 84, 32, 37,  32, 34, 64, 64, 64,
                                        64, 64, 64, 64, 64, 64, 64, 34, 34, 84, 84, 84, 56, 102, 69, 69, 73, 78, 67,
                                        62, 78, 76, 30, 50, 67, 56, 87, 75, 79, 67, 79, 73, 67,  62, 74, 69, 99, 69,
                                        67, 69, 40, 34, 40, 84, 56, 50, 62, 64, 55, 64, 62, 36,  64, 64, 28, 28, 58,
                                        28, 98, 64, 62, 64, 64, 42, 53, 40, 64, 60, 82, 60, 60,  53, 64, 34, 64, 84};
  code = shown(code);
  if (code >= ' ' && code < 127)
    return ascii[code - ' '] / 100.0;
  const int columns = columns_of(code);
  if (columns != 1)
    return columns == 0 ? 0 : code < 0x1f000 ? 1.02 : 1.4;
  return code < 0x370 ? 0.8 : code < 0x600 ? 0.95 : 1.1;
}

double cli_text_width(const char *text) {
  double width = 0;
  for (uint32_t code = cli_utf8_next(&text); code != 0; code = cli_utf8_next(&text))
    width += cli_code_width(code);
  return width;
}

char *cli_text_shorten(const char *text, double width) {
  static const char ellipsis[] = "\xe2\x80\xa6";
  /* A byte that is no UTF-8 becomes three. */
  char *out = malloc(3 * strlen(text) + sizeof ellipsis);
  char *end = out, *cut = out;
  double used = 0;
  if (out == NULL)
    return NULL;
  const double room = width - cli_code_width(0x2026);
  while (*text != 0) {
    const char *const stop = cli_character_end(text);
    while (text < stop) {
      const uint32_t code = shown(cli_utf8_next(&text));
      used += cli_code_width(code);
      end += utf8proc_encode_char((utf8proc_int32_t)code, (utf8proc_uint8_t *)end);
    }
    if (used <= room)
      cut = end;
    if (used > width) {
      memcpy(cut, ellipsis, sizeof ellipsis);
      return out;
    }
  }
  *end = 0;
  return out;
}
