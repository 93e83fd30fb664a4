/* SPDX-License-Identifier: Apache-2.0 */
#include "model_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char dots[] = "...";

static int inside_character(char c) {
  return ((unsigned char)c & 0xc0) == 0x80;
}

int model_fail(model_error *error, const char *format, ...) {
  if (error == NULL)
    return -1;
  va_list list;
  va_start(list, format);
  const int length = vsnprintf(error->message, sizeof error->message, format, list);
  va_end(list);
  if (length < 0)
    error->message[0] = 0;
  if (length > MODEL_ERROR_MOST) {
    char *end = error->message + MODEL_ERROR_MOST + 1 - sizeof dots;
    while (end > error->message && inside_character(*end))
      end--;
    memcpy(end, dots, sizeof dots);
  }
  return -1;
}

static void hide_control(char *text) {
  for (; *text != 0; text++) {
    if ((unsigned char)*text < ' ' || *text == 0x7f)
      *text = '?';
  }
}

model_shown model_show(const char *name) {
  model_shown shown;
  const size_t length = strlen(name), room = sizeof shown.text - sizeof dots;
  size_t kept = length;
  if (length >= sizeof shown.text) {
    kept = room;
    while (kept > 0 && inside_character(name[kept]))
      kept--;
  }
  memcpy(shown.text, name, kept);
  memcpy(shown.text + kept, kept < length ? dots : "", kept < length ? sizeof dots : 1);
  hide_control(shown.text);
  return shown;
}

model_shown model_show_path(const char *path) {
  model_shown shown;
  const size_t length = strlen(path), room = sizeof shown.text - sizeof dots;
  const char *from = path;
  size_t before = 0;
  if (length >= sizeof shown.text) {
    from = path + length - room;
    while (inside_character(*from))
      from++;
    before = sizeof dots - 1;
    memcpy(shown.text, dots, before);
  }
  memcpy(shown.text + before, from, strlen(from) + 1);
  hide_control(shown.text);
  return shown;
}
