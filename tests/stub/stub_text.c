/* SPDX-License-Identifier: Apache-2.0 */
#include "stub_text.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- expressions ---- */

typedef struct reader {
  const char *at, *end; /* end: NULL, the end of the text */
  int words_are_zero, failed;
} reader;

static const char *peek(reader *r) {
  while ((!r->end || r->at < r->end) && isspace((unsigned char)*r->at))
    ++r->at;
  return !r->end || r->at < r->end ? r->at : "";
}

static long long read_binary(reader *r, int least);

static long long read_atom(reader *r) {
  char word[STUB_WORD];
  const char c = *peek(r);
  long long value = 0;
  if (c == '(') {
    ++r->at;
    value = read_binary(r, 0);
    if (*peek(r) != ')')
      r->failed = 1;
    else
      ++r->at;
  } else if (c == '!' || c == '-' || c == '+') {
    ++r->at;
    value = read_atom(r);
    value = c == '!' ? !value : c == '-' ? -value : value;
  } else if (isdigit((unsigned char)c)) {
    char *after = NULL;
    value = strtoll(r->at, &after, 0);
    r->at = after;
    while (*r->at == 'u' || *r->at == 'U' || *r->at == 'l' || *r->at == 'L')
      ++r->at;
  } else if (stub_is_word(c)) {
    r->at = stub_read_word(r->at, word);
    r->failed |= !r->words_are_zero;
  } else {
    r->failed = 1;
  }
  return value;
}

static const struct {
  const char *sign;
  int rank;
} binaries[] = {{"||", 1}, {"&&", 2}, {"==", 3}, {"!=", 3}, {"<=", 4}, {">=", 4}, {"<", 4},
                {">", 4},  {"+", 5},  {"-", 5},  {"*", 6},  {"/", 6},  {"%", 6}};
enum { NUM_BINARIES = sizeof binaries / sizeof *binaries };

static long long apply(const char *sign, long long a, long long b) {
  switch (sign[0]) {
  case '|':
    return a || b;
  case '&':
    return a && b;
  case '=':
    return a == b;
  case '!':
    return a != b;
  case '<':
    return sign[1] ? a <= b : a < b;
  case '>':
    return sign[1] ? a >= b : a > b;
  case '+':
    return a + b;
  case '-':
    return a - b;
  case '*':
    return a * b;
  default:
    return b == 0 ? 0 : sign[0] == '/' ? a / b : a % b;
  }
}

/* Everything that binds no looser than `least`. */
static long long read_binary(reader *r, int least) {
  long long value = read_atom(r);
  while (!r->failed) {
    const char *const at = peek(r);
    size_t n = 0;
    while (n < NUM_BINARIES && strncmp(at, binaries[n].sign, strlen(binaries[n].sign)) != 0)
      ++n;
    if (n == NUM_BINARIES || binaries[n].rank < least)
      break;
    r->at += strlen(binaries[n].sign);
    const long long other = read_binary(r, binaries[n].rank + 1);
    if (other == 0 && (binaries[n].sign[0] == '/' || binaries[n].sign[0] == '%'))
      r->failed = 1;
    value = apply(binaries[n].sign, value, other);
  }
  return value;
}

int stub_evaluate(const char *text, const char *end, int words_are_zero, long long *value) {
  reader r = {text, end, words_are_zero, 0};
  *value = read_binary(&r, 0);
  return !r.failed && *peek(&r) == 0;
}
