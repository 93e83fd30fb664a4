/* SPDX-License-Identifier: Apache-2.0 */
#include "model_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- bytes and words, within [0, count) of text; what they form is left to cJSON ---- */

typedef struct scan {
  const char *path;
  const unsigned char *text;
  size_t count, at;
  model_error *error;
} scan;

static int bad(const scan *s, const char *rule) {
  return model_fail(s->error, "%s: not valid JSON at byte %zu: %s", model_show_path(s->path).text, s->at, rule);
}

static int peek(const scan *s) {
  return s->at < s->count ? s->text[s->at] : -1;
}

/* Bytes of the UTF-8 character at s->at; 0 when there is none: cut, overlong, a surrogate or above U+10FFFF. */
static size_t character(const scan *s) {
  const unsigned char *c = s->text + s->at;
  const size_t left = s->count - s->at;
  size_t length = 1;
  uint32_t code = c[0];
  if (c[0] < 0x80)
    return 1;
  if (c[0] >= 0xc2 && c[0] <= 0xdf) {
    length = 2;
    code &= 0x1f;
  } else if ((c[0] & 0xf0) == 0xe0) {
    length = 3;
    code &= 0x0f;
  } else if (c[0] >= 0xf0 && c[0] <= 0xf4) {
    length = 4;
    code &= 0x07;
  } else {
    return 0;
  }
  if (left < length)
    return 0;
  for (size_t i = 1; i < length; i++) {
    if ((c[i] & 0xc0) != 0x80)
      return 0;
    code = code << 6 | (c[i] & 0x3fu);
  }
  if (length == 3 && (code < 0x800 || (code >= 0xd800 && code <= 0xdfff)))
    return 0;
  return length == 4 && (code < 0x10000 || code > 0x10ffff) ? 0 : length;
}

static int is_digit(int c) {
  return c >= '0' && c <= '9';
}

static int is_hex(int c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* Behind the backslash. */
static int scan_escape(scan *s) {
  const int c = peek(s);
  if (c <= 0 || strchr("\"\\/bfnrtu", c) == NULL)
    return bad(s, "an escape that JSON does not know");
  s->at++;
  if (c != 'u')
    return 0;
  int zero = 1;
  for (int i = 0; i < 4; i++, s->at++) {
    if (!is_hex(peek(s)))
      return bad(s, "\\u needs four hexadecimal digits");
    zero &= peek(s) == '0';
  }
  return zero ? bad(s, "\\u0000 in a string is not supported") : 0;
}

static int scan_string(scan *s) {
  for (s->at++; peek(s) != '"';) {
    const int c = peek(s);
    if (c < 0)
      return bad(s, "a string that does not end");
    if (c < ' ')
      return bad(s, "a control character in a string");
    if (c == '\\') {
      s->at++;
      if (scan_escape(s) != 0)
        return -1;
      continue;
    }
    const size_t length = character(s);
    if (length == 0)
      return bad(s, "not UTF-8");
    s->at += length;
  }
  s->at++;
  return 0;
}

static int scan_digits(scan *s) {
  const size_t start = s->at;
  while (is_digit(peek(s)))
    s->at++;
  return s->at > start;
}

static int scan_number(scan *s) {
  if (peek(s) == '-')
    s->at++;
  const int leading_zero = peek(s) == '0';
  const size_t start = s->at;
  int right = scan_digits(s) && !(leading_zero && s->at > start + 1);
  if (right && peek(s) == '.') {
    s->at++;
    right = scan_digits(s);
  }
  if (right && (peek(s) == 'e' || peek(s) == 'E')) {
    s->at++;
    if (peek(s) == '+' || peek(s) == '-')
      s->at++;
    right = scan_digits(s);
  }
  return right ? 0 : bad(s, "a number that is not written as JSON asks");
}

static int scan_word(scan *s) {
  static const char *const words[] = {"true", "false", "null"};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
    const size_t length = strlen(words[i]);
    if (s->count - s->at >= length && memcmp(s->text + s->at, words[i], length) == 0) {
      s->at += length;
      return 0;
    }
  }
  return bad(s, "neither a value nor punctuation");
}

static int scan_text(scan *s) {
  size_t depth = 0;
  while (s->at < s->count) {
    const int c = peek(s);
    if (c == '"') {
      if (scan_string(s) != 0)
        return -1;
    } else if (c == '-' || is_digit(c)) {
      if (scan_number(s) != 0)
        return -1;
    } else if (c >= 'a' && c <= 'z') {
      if (scan_word(s) != 0)
        return -1;
    } else if (c != 0 && strchr(" \t\n\r,:[]{}", c) != NULL) {
      if (c == '[' || c == '{')
        depth++;
      if ((c == ']' || c == '}') && depth-- == 0)
        return bad(s, "a bracket that closes nothing");
      if (depth > MODEL_JSON_DEPTH)
        return model_fail(s->error, "%s: JSON nested deeper than %d levels at byte %zu", model_show_path(s->path).text,
                          MODEL_JSON_DEPTH, s->at);
      s->at++;
    } else {
      return bad(s, "neither a value nor punctuation");
    }
  }
  return 0;
}

/* ---- keys ---- */

static int compare_keys(const void *a, const void *b) {
  const cJSON *const *left = a, *const *right = b;
  return strcmp((*left)->string, (*right)->string);
}

/* No object may have a key twice.  Sorted, since an object may have a million keys; the depth is bounded. */
static int check_keys(const char *path, const cJSON *item, model_error *error) {
  size_t count = 0, n = 0;
  int result = 0;
  for (const cJSON *child = item->child; child != NULL; child = child->next, count++) {
    if (child->child != NULL && check_keys(path, child, error) != 0)
      return -1;
  }
  if (!cJSON_IsObject(item) || count < 2)
    return 0;
  const cJSON **sorted = malloc(count * sizeof *sorted);
  if (sorted == NULL)
    return model_fail(error, "%s: no memory for %zu keys", model_show_path(path).text, count);
  for (const cJSON *child = item->child; child != NULL; child = child->next)
    sorted[n++] = child;
  qsort(sorted, count, sizeof *sorted, compare_keys);
  for (n = 1; n < count && result == 0; n++) {
    if (strcmp(sorted[n - 1]->string, sorted[n]->string) == 0)
      result = model_fail(error, "%s: the key '%s' stands twice in one object", model_show_path(path).text,
                          model_show(sorted[n]->string).text);
  }
  free((void *)sorted);
  return result;
}

/* ---- documents ---- */

cJSON *model_json_parse(const char *path, const unsigned char *text, size_t count, model_error *error) {
  cJSON *root = NULL;
  const char *end = NULL;
  /* A copy with a 0 behind it: a mapped file may change between the check and the parse, and cJSON's own bounds need
   * not be relied on. */
  char *copy = malloc(count + 1);
  if (copy == NULL) {
    model_fail(error, "%s: no memory for %zu bytes of JSON", model_show_path(path).text, count);
    return NULL;
  }
  memcpy(copy, text, count);
  copy[count] = 0;
  scan s = {path, (const unsigned char *)copy, count, 0, error};
  if (scan_text(&s) != 0)
    goto done;
  root = cJSON_ParseWithLengthOpts(copy, count + 1, &end, 1);
  if (root == NULL) {
    s.at = end != NULL ? (size_t)(end - copy) : 0;
    bad(&s, "values and punctuation do not fit together, or no memory");
  } else if (check_keys(path, root, error) != 0) {
    cJSON_Delete(root);
    root = NULL;
  }
done:
  free(copy);
  return root;
}

int model_json_whole(const cJSON *item, int64_t *out) {
  if (!cJSON_IsNumber(item))
    return 0;
  const double value = item->valuedouble;
  if (!(value >= 0 && value <= (double)MODEL_JSON_WHOLE_MOST) || floor(value) != value)
    return 0;
  *out = (int64_t)value;
  return 1;
}

static const char *kind_of(const cJSON *item) {
  if (cJSON_IsBool(item))
    return cJSON_IsTrue(item) ? "true" : "false";
  if (cJSON_IsArray(item))
    return "an array";
  return cJSON_IsObject(item) ? "an object" : "null";
}

model_shown model_json_show(const cJSON *item) {
  char text[sizeof(model_shown) + 2] = "nothing";
  if (cJSON_IsNumber(item))
    snprintf(text, sizeof text, "%.17g", item->valuedouble);
  else if (cJSON_IsString(item))
    snprintf(text, sizeof text, "'%s'", model_show(item->valuestring).text);
  else if (item != NULL)
    snprintf(text, sizeof text, "%s", kind_of(item));
  return model_show(text);
}
