/* SPDX-License-Identifier: Apache-2.0 */
/* Reads kernel signatures out of OpenCL C text without a compiler: enough to count parameters, to tell pointers from
 * values and reads from writes.  What macros or conditionals hide stays "unknown", and is then not checked. */
#include "stub_state.h"
#include "stub_text.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A copy with comments blanked out. */
static char *without_comments(const char *source) {
  char *const text = stub_copy(source, strlen(source));
  if (!text)
    return NULL;
  for (char *c = text; *c;) {
    if (c[0] == '/' && c[1] == '*') {
      while (*c && !(c[0] == '*' && c[1] == '/'))
        *c++ = ' ';
      if (*c)
        c[0] = c[1] = ' ';
    } else if (c[0] == '/' && c[1] == '/') {
      while (*c && *c != '\n')
        *c++ = ' ';
    } else {
      ++c;
    }
  }
  return text;
}

static size_t type_bytes(const char *type) {
  static const struct {
    const char *name;
    size_t bytes;
  } types[] = {{"char", 1},  {"uchar", 1}, {"short", 2}, {"ushort", 2}, {"half", 2},   {"int", 4},   {"uint", 4},
               {"float", 4}, {"long", 8},  {"ulong", 8}, {"bool", 0},   {"double", 8}, {"size_t", 0}};
  for (size_t i = 0; i < sizeof types / sizeof *types; ++i) {
    const size_t length = strlen(types[i].name);
    if (strncmp(type, types[i].name, length) == 0) {
      const char *const rest = type + length;
      if (!*rest)
        return types[i].bytes;
      const unsigned long lanes = isdigit((unsigned char)*rest) ? strtoul(rest, NULL, 10) : 0;
      if (lanes == 2 || lanes == 4 || lanes == 8 || lanes == 16)
        return types[i].bytes * lanes;
      if (lanes == 3)
        return types[i].bytes * 4;
    }
  }
  return 0;
}

static int read_param(const char *from, const char *to, stub_param *param) {
  int pointers = 0, space = 0; /* 1 global or constant, 2 local */
  char type[STUB_WORD] = "";
  memset(param, 0, sizeof *param);
  for (const char *c = from; c < to;) {
    char word[STUB_WORD];
    if (*c == '*') {
      ++pointers;
      ++c;
    } else if (stub_is_word(*c)) {
      c = stub_read_word(c, word);
      const char *const bare = word[0] == '_' && word[1] == '_' ? word + 2 : word;
      if (strcmp(bare, "global") == 0 || strcmp(bare, "constant") == 0)
        space = 1;
      else if (strcmp(bare, "local") == 0)
        space = 2;
      if (strcmp(bare, "constant") == 0 || (strcmp(bare, "const") == 0 && !pointers))
        param->constant = 1;
      if (!type[0] && type_bytes(word))
        snprintf(type, sizeof type, "%s", word);
      snprintf(param->name, sizeof param->name, "%s", word);
    } else if (isspace((unsigned char)*c)) {
      ++c;
    } else {
      return 0; /* brackets, macros with arguments, conditionals */
    }
  }
  if (pointers && !space)
    return 0;
  param->pointer = pointers ? space : 0;
  param->value_bytes = pointers ? 0 : type_bytes(type);
  return param->name[0] != 0;
}

static void read_params(const char *open, stub_signature *signature) {
  const char *const end = stub_skip_brackets(open, '(', ')') - 1;
  const char *from = open + 1;
  signature->known = 0;
  for (const char *c = from;; ++c) {
    if (c < end && *c == '#')
      return;
    if (c < end && *c != ',')
      continue;
    if (signature->num_params == STUB_MAX_ARGS || !read_param(from, c, &signature->params[signature->num_params]))
      return;
    ++signature->num_params;
    if (c >= end)
      break;
    from = c + 1;
  }
  signature->known = 1;
}

/* reqd_work_group_size(x, y, z) in an attribute or in the text of a macro. */
static void read_group(const stub_macros *macros, const char *from, const char *to, stub_signature *signature) {
  static const char word[] = "reqd_work_group_size";
  const char *c = strstr(from, word);
  if (!c || (to && c >= to))
    return;
  c = stub_skip_space(c + sizeof word - 1);
  if (*c != '(')
    return;
  const char *const end = stub_skip_brackets(c, '(', ')') - 1;
  ++c;
  for (int d = 0; d < 3; ++d) {
    long long value = 0;
    const size_t length = d < 2 ? strcspn(c, ",") : (size_t)(end - c);
    if (!stub_evaluate(macros, c, c + length, &value) || value < 1)
      return;
    signature->group[d] = (size_t)value;
    c += length + 1;
  }
  signature->has_group = 1;
}

/* Adds up "local TYPE NAME[N]..." between the braces of a kernel.  What cannot be worked out, or may not be there at all,
 * counts as nothing. */
static void read_local(const stub_macros *macros, const char *from, const char *to, stub_signature *signature) {
  char word[STUB_WORD];
  for (const char *c = from; c < to;) {
    if (*c == '#' && strncmp(stub_skip_space(c + 1), "if", 2) == 0)
      return;
    if (!stub_is_word(*c)) {
      ++c;
      continue;
    }
    c = stub_read_word(c, word);
    if (strcmp(word, "local") != 0 && strcmp(word, "__local") != 0)
      continue;
    const char *const end = c + strcspn(c, ";={");
    c = stub_read_word(c, word);
    size_t bytes = type_bytes(word);
    c = stub_read_word(c, word);
    for (c = stub_skip_space(c); bytes && *c == '['; c = stub_skip_space(c)) {
      const char *const close = stub_skip_brackets(c, '[', ']');
      long long value = 0;
      bytes = stub_evaluate(macros, c + 1, close - 1, &value) && value > 0 ? bytes * (size_t)value : 0;
      c = close;
    }
    if (c == end && *end == ';')
      signature->local_bytes += bytes;
  }
}

/* Reads "void NAME (params) { ... }" after the word kernel; attributes may stand between. */
static int read_signature(const stub_macros *macros, const char *c, stub_signature *signature) {
  char word[STUB_WORD];
  memset(signature, 0, sizeof *signature);
  const char *const start = c;
  for (;;) {
    const char *const after = stub_read_word(c, word);
    if (strcmp(word, "__attribute__") != 0)
      break;
    c = stub_skip_brackets(stub_skip_space(after), '(', ')');
  }
  c = stub_read_word(c, word);
  if (strcmp(word, "void") != 0)
    return 0;
  c = stub_skip_space(stub_read_word(c, signature->name));
  while (strcmp(signature->name, "__attribute__") == 0) {
    c = stub_skip_brackets(c, '(', ')');
    c = stub_skip_space(stub_read_word(c, signature->name));
  }
  if (!signature->name[0] || *c != '(')
    return 0;
  read_group(macros, start, c, signature);
  read_params(c, signature);
  c = stub_skip_space(stub_skip_brackets(c, '(', ')'));
  if (*c == '{')
    read_local(macros, c, stub_skip_brackets(c, '{', '}'), signature);
  return 1;
}

stub_signature *stub_scan(const char *source, const char *options, cl_uint *count) {
  stub_signature *found = NULL;
  stub_macros macros = {0, NULL};
  *count = 0;
  char *const text = without_comments(source);
  if (!text)
    return NULL;
  stub_macros_read_options(&macros, options);
  for (const char *c = text; *c;) {
    char word[STUB_WORD];
    const int directive = *c == '#';
    if (!stub_is_word(*c) && !directive) {
      ++c;
      continue;
    }
    c = stub_read_word(c + directive, word);
    if (directive && strcmp(word, "define") == 0)
      c = stub_macros_read_define(&macros, c);
    const stub_macro *const macro = stub_macros_find(&macros, word);
    if (directive || !(stub_is_kernel_word(word) || (macro && macro->is_kernel)))
      continue;
    stub_signature signature;
    if (!read_signature(&macros, c, &signature))
      continue;
    if (macro)
      read_group(&macros, macro->text, NULL, &signature);
    stub_signature *const more = realloc(found, (*count + 1u) * sizeof *found);
    if (!more)
      break;
    found = more;
    found[(*count)++] = signature;
  }
  stub_macros_free(&macros);
  free(text);
  return found;
}

int stub_has_word(const char *source, const char *word) {
  const size_t length = strlen(word);
  for (const char *c = strstr(source, word); c; c = strstr(c + 1, word))
    if ((c == source || !stub_is_word(c[-1])) && !stub_is_word(c[length]))
      return 1;
  return 0;
}
