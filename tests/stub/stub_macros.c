/* SPDX-License-Identifier: Apache-2.0 */
#include "stub_text.h"
#include "stub_state.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 32 };

int stub_is_word(int c) {
  return isalnum((unsigned char)c) || c == '_';
}

const char *stub_skip_space(const char *c) {
  while (isspace((unsigned char)*c))
    ++c;
  return c;
}

const char *stub_read_word(const char *c, char word[STUB_WORD]) {
  size_t length = 0;
  c = stub_skip_space(c);
  for (; stub_is_word(*c); ++c)
    if (length + 1 < STUB_WORD)
      word[length++] = *c;
  word[length] = 0;
  return c;
}

const char *stub_skip_brackets(const char *c, char open, char close) {
  int depth = 0;
  for (; *c; ++c) {
    depth += *c == open;
    if (*c == close && --depth == 0)
      return c + 1;
  }
  return c;
}

int stub_is_kernel_word(const char *word) {
  return strcmp(word, "kernel") == 0 || strcmp(word, "__kernel") == 0;
}

/* ---- macros ---- */

const stub_macro *stub_macros_find(const stub_macros *macros, const char *name) {
  for (size_t i = 0; i < macros->count; ++i)
    if (strcmp(macros->items[i].name, name) == 0)
      return &macros->items[i];
  return NULL;
}

static int holds_kernel_word(const char *text) {
  for (const char *c = text; *c;) {
    char word[STUB_WORD];
    if (!stub_is_word(*c)) {
      ++c;
      continue;
    }
    c = stub_read_word(c, word);
    if (stub_is_kernel_word(word))
      return 1;
  }
  return 0;
}

static void add(stub_macros *macros, const char *name, const char *text, size_t length) {
  if (stub_macros_find(macros, name))
    return;
  stub_macro *const items = realloc(macros->items, (macros->count + 1) * sizeof *items);
  if (!items)
    return;
  macros->items = items;
  stub_macro *const macro = &items[macros->count];
  snprintf(macro->name, sizeof macro->name, "%s", name);
  macro->text = stub_copy(text, length);
  if (!macro->text)
    return;
  macro->is_kernel = holds_kernel_word(macro->text);
  ++macros->count;
}

void stub_macros_read_options(stub_macros *macros, const char *options) {
  for (const char *c = strstr(options, "-D"); c; c = strstr(c, "-D")) {
    char name[STUB_WORD];
    c = stub_read_word(c + 2, name);
    const char *const text = *c == '=' ? c + 1 : "1";
    add(macros, name, text, *c == '=' ? strcspn(text, " ") : 1);
  }
}

const char *stub_macros_read_define(stub_macros *macros, const char *c) {
  char name[STUB_WORD];
  const char *const text = stub_read_word(c, name);
  c = text;
  while (*c && *c != '\n')
    c += c[0] == '\\' && c[1] == '\n' ? 2 : 1;
  if (*text != '(')
    add(macros, name, text, (size_t)(c - text));
  return c;
}

void stub_macros_free(stub_macros *macros) {
  for (size_t i = 0; i < macros->count; ++i)
    free(macros->items[i].text);
  free(macros->items);
  macros->items = NULL;
  macros->count = 0;
}

/* ---- expressions ---- */

typedef struct reader {
  const stub_macros *macros;
  const char *at, *end; /* end: NULL, the end of the text */
  int depth, failed;
} reader;

static char peek(reader *r) {
  while ((!r->end || r->at < r->end) && (isspace((unsigned char)*r->at) || *r->at == '\\'))
    ++r->at;
  return (char)(!r->end || r->at < r->end ? *r->at : 0);
}

static long long read_sum(reader *r);

static long long read_atom(reader *r) {
  char word[STUB_WORD];
  const char c = peek(r);
  long long value = 0;
  if (c == '(') {
    ++r->at;
    value = read_sum(r);
    if (peek(r) != ')')
      r->failed = 1;
    else
      ++r->at;
  } else if (isdigit((unsigned char)c)) {
    char *after = NULL;
    value = strtoll(r->at, &after, 0);
    r->at = after;
    while (*r->at == 'u' || *r->at == 'U' || *r->at == 'l' || *r->at == 'L')
      ++r->at;
  } else if (stub_is_word(c)) {
    r->at = stub_read_word(r->at, word);
    const stub_macro *const macro = stub_macros_find(r->macros, word);
    reader inner = {r->macros, macro ? macro->text : "", NULL, r->depth + 1, 0};
    if (!macro || inner.depth > DEEPEST) {
      r->failed = 1;
    } else {
      value = read_sum(&inner);
      r->failed |= inner.failed || peek(&inner) != 0;
    }
  } else {
    r->failed = 1;
  }
  return value;
}

static long long read_product(reader *r) {
  long long value = read_atom(r);
  for (char c = peek(r); !r->failed && (c == '*' || c == '/' || c == '%'); c = peek(r)) {
    ++r->at;
    const long long other = read_atom(r);
    if (c != '*' && other == 0)
      r->failed = 1;
    else
      value = c == '*' ? value * other : c == '/' ? value / other : value % other;
  }
  return value;
}

static long long read_sum(reader *r) {
  long long value = read_product(r);
  for (char c = peek(r); !r->failed && (c == '+' || c == '-'); c = peek(r)) {
    ++r->at;
    const long long other = read_product(r);
    value = c == '+' ? value + other : value - other;
  }
  return value;
}

int stub_evaluate(const stub_macros *macros, const char *text, const char *end, long long *value) {
  reader r = {macros, text, end, 0, 0};
  *value = read_sum(&r);
  return !r.failed && peek(&r) == 0;
}
