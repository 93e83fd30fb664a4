/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "picture_back.h"
#include "picture_unicode.h"

void cli_bytes_add(cli_bytes *bytes, const void *data, size_t count) {
  if (bytes->failed)
    return;
  if (count > bytes->room - bytes->count) {
    size_t room = bytes->room == 0 ? 4096 : bytes->room;
    while (room - bytes->count < count && room <= SIZE_MAX / 4)
      room *= 2;
    char *grown = room - bytes->count < count ? NULL : realloc(bytes->data, room);
    if (grown == NULL) {
      bytes->failed = 1;
      return;
    }
    bytes->data = grown;
    bytes->room = room;
  }
  memcpy(bytes->data + bytes->count, data, count);
  bytes->count += count;
}

void cli_bytes_text(cli_bytes *bytes, const char *text) {
  cli_bytes_add(bytes, text, strlen(text));
}

void cli_bytes_format(cli_bytes *bytes, const char *format, ...) {
  char text[512];
  va_list list;
  va_start(list, format);
  const int length = vsnprintf(text, sizeof text, format, list);
  va_end(list);
  if (length < 0 || (size_t)length >= sizeof text)
    bytes->failed = 1;
  else
    cli_bytes_add(bytes, text, (size_t)length);
}

/* Control characters and non-characters are legal in neither format. */
static int is_printable(uint32_t code) {
  return code >= ' ' && !(code >= 127 && code < 160) && (code & 0xfffe) != 0xfffe && code != CLI_NO_CHARACTER;
}

static void add_character(cli_bytes *bytes, uint32_t code, const char *text, size_t length) {
  if (is_printable(code))
    cli_bytes_add(bytes, text, length);
  else
    cli_bytes_text(bytes, code == '\t' || code == '\n' || code == '\r' ? " " : "\xef\xbf\xbd");
}

void cli_bytes_xml(cli_bytes *bytes, const char *text) {
  while (*text != 0) {
    const char *const at = text;
    const uint32_t code = cli_utf8_next(&text);
    if (code == '<' || code == '>' || code == '&' || code == '"' || code == '\'')
      cli_bytes_format(bytes, "&#%d;", (int)code);
    else
      add_character(bytes, code, at, (size_t)(text - at));
  }
}

void cli_bytes_json(cli_bytes *bytes, const char *text) {
  cli_bytes_text(bytes, "\"");
  while (*text != 0) {
    const char *const at = text;
    const uint32_t code = cli_utf8_next(&text);
    if (code == '<' || code == '>' || code == '&' || code == '"' || code == '\\')
      cli_bytes_format(bytes, "\\u%04x", (unsigned)code);
    else
      add_character(bytes, code, at, (size_t)(text - at));
  }
  cli_bytes_text(bytes, "\"");
}

void cli_bytes_base64(cli_bytes *bytes, const unsigned char *data, size_t count) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < count; i += 3) {
    const size_t left = count - i;
    const unsigned b = left > 1 ? data[i + 1] : 0, c = left > 2 ? data[i + 2] : 0;
    const unsigned group = (unsigned)data[i] << 16 | b << 8 | c;
    const char text[4] = {digits[group >> 18], digits[group >> 12 & 63], left > 1 ? digits[group >> 6 & 63] : '=',
                          left > 2 ? digits[group & 63] : '='};
    cli_bytes_add(bytes, text, sizeof text);
  }
}

void cli_bytes_release(cli_bytes *bytes) {
  free(bytes->data);
  memset(bytes, 0, sizeof *bytes);
}
