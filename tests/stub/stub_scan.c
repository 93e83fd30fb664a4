/* SPDX-License-Identifier: Apache-2.0 */
/* Reads kernel signatures out of OpenCL C text without a compiler: enough to count parameters, to tell pointers from
 * values and reads from writes, and to weigh values and local variables.  What it can't read stays "unknown", and is
 * then not checked. */
#include "stub_state.h"
#include "stub_text.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TYPES = 64 };

/* Types that the text defines: other names of known ones, and structs of them. */
typedef struct known_type {
  char name[STUB_WORD];
  size_t bytes, align;
} known_type;

typedef struct known_types {
  size_t count;
  known_type items[MOST_TYPES];
} known_types;

static size_t scalar_bytes(const char *type) {
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

static known_type type_of(const known_types *types, const char *name) {
  known_type type = {"", scalar_bytes(name), 0};
  type.align = type.bytes;
  for (size_t i = 0; i < types->count; ++i)
    if (strcmp(types->items[i].name, name) == 0)
      type = types->items[i];
  return type;
}

static int is_kernel_word(const char *word) {
  return strcmp(word, "kernel") == 0 || strcmp(word, "__kernel") == 0;
}

/* The product of "[A][B]"; *c moves past them.  0: not to be worked out. */
static size_t read_dims(const char **c) {
  size_t product = 1;
  for (*c = stub_skip_space(*c); **c == '['; *c = stub_skip_space(*c)) {
    const char *const close = stub_skip_brackets(*c, '[', ']');
    long long value = 0;
    const int fine = stub_evaluate(*c + 1, close - 1, 0, &value) && value > 0;
    product = fine ? product * (size_t)value : 0;
    *c = close;
  }
  return product;
}

/* "TYPE a, b[2]; ..." between the braces of a struct; 0 bytes if a member's size is unknown. */
static known_type read_members(const known_types *types, const char *from, const char *to) {
  known_type whole = {"", 0, 1};
  for (const char *c = stub_skip_space(from); c < to; c = stub_skip_space(c)) {
    char word[STUB_WORD];
    c = stub_read_word(c, word);
    if (strcmp(word, "__global") == 0) { /* a pointer */
      c += strcspn(c, ";") + 1;
      whole.align = 8;
      whole.bytes = (whole.bytes + 7) / 8 * 8 + 8;
      continue;
    }
    if (strcmp(word, "const") == 0)
      c = stub_read_word(c, word);
    const known_type type = type_of(types, word);
    do {
      c = stub_read_word(c + (*c == ','), word);
      const size_t bytes = type.bytes * read_dims(&c);
      if (!word[0] || bytes == 0 || (*c != ',' && *c != ';')) {
        whole.bytes = 0;
        return whole;
      }
      whole.align = type.align > whole.align ? type.align : whole.align;
      whole.bytes = (whole.bytes + type.align - 1) / type.align * type.align + bytes;
    } while (*c == ',');
    ++c;
  }
  whole.bytes = (whole.bytes + whole.align - 1) / whole.align * whole.align;
  return whole;
}

/* Behind the word typedef. */
static void read_typedef(known_types *types, const char *c) {
  char word[STUB_WORD];
  known_type type;
  c = stub_read_word(c, word);
  if (strcmp(word, "struct") == 0) {
    c = stub_skip_space(stub_read_word(c, word));
    if (*c != '{')
      return;
    const char *const end = stub_skip_brackets(c, '{', '}');
    type = read_members(types, c + 1, end - 1);
    c = end;
  } else {
    type = type_of(types, word);
  }
  c = stub_skip_space(stub_read_word(c, word));
  if (*c != ';' || !type.bytes || types->count == MOST_TYPES)
    return;
  memcpy(type.name, word, sizeof word);
  types->items[types->count++] = type;
}

static int read_param(const known_types *types, const char *from, const char *to, stub_param *param) {
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
      if (!type[0] && type_of(types, word).bytes)
        snprintf(type, sizeof type, "%s", word);
      snprintf(param->name, sizeof param->name, "%s", word);
    } else if (isspace((unsigned char)*c)) {
      ++c;
    } else {
      return 0; /* brackets */
    }
  }
  if (pointers && !space)
    return 0;
  param->pointer = pointers ? space : 0;
  param->value_bytes = pointers ? 0 : type_of(types, type).bytes;
  return param->name[0] != 0;
}

static void read_params(const known_types *types, const char *open, stub_signature *signature) {
  const char *const end = stub_skip_brackets(open, '(', ')') - 1;
  const char *from = open + 1;
  signature->known = 0;
  for (const char *c = from;; ++c) {
    if (c < end && *c != ',')
      continue;
    if (signature->num_params == STUB_MAX_ARGS ||
        !read_param(types, from, c, &signature->params[signature->num_params]))
      return;
    ++signature->num_params;
    if (c >= end)
      break;
    from = c + 1;
  }
  signature->known = 1;
}

/* reqd_work_group_size(x, y, z) in an attribute. */
static void read_group(const char *from, const char *to, stub_signature *signature) {
  static const char word[] = "reqd_work_group_size";
  const char *c = strstr(from, word);
  if (!c || c >= to)
    return;
  c = stub_skip_space(c + sizeof word - 1);
  if (*c != '(')
    return;
  const char *const end = stub_skip_brackets(c, '(', ')') - 1;
  ++c;
  for (int d = 0; d < 3; ++d) {
    long long value = 0;
    const size_t length = d < 2 ? strcspn(c, ",") : (size_t)(end - c);
    if (!stub_evaluate(c, c + length, 0, &value) || value < 1)
      return;
    signature->group[d] = (size_t)value;
    c += length + 1;
  }
  signature->has_group = 1;
}

/* Adds up "local TYPE NAME[N]..." between the braces of a kernel.  What cannot be worked out counts as nothing. */
static void read_local(const known_types *types, const char *from, const char *to, stub_signature *signature) {
  char word[STUB_WORD];
  for (const char *c = from; c < to;) {
    if (!stub_is_word(*c)) {
      ++c;
      continue;
    }
    c = stub_read_word(c, word);
    if (strcmp(word, "local") != 0 && strcmp(word, "__local") != 0)
      continue;
    c = stub_read_word(c, word);
    const size_t bytes = type_of(types, word).bytes;
    c = stub_read_word(c, word);
    if (!word[0])
      continue;
    const size_t count = read_dims(&c);
    if (*c == ';')
      signature->local_bytes += bytes * count;
  }
}

/* Reads "void NAME (params) { ... }" after the word kernel; attributes may stand between, or before it from `start`
 * on. */
static int read_signature(const known_types *types, const char *start, const char *c, stub_signature *signature) {
  char word[STUB_WORD];
  memset(signature, 0, sizeof *signature);
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
  read_group(start, c, signature);
  read_params(types, c, signature);
  c = stub_skip_space(stub_skip_brackets(c, '(', ')'));
  if (*c == '{')
    read_local(types, c, stub_skip_brackets(c, '{', '}'), signature);
  return 1;
}

stub_signature *stub_scan(const char *source, const char *options, cl_uint *count) {
  stub_signature *found = NULL;
  known_types types = {0};
  *count = 0;
  char *const text = stub_preprocess(source, options);
  if (!text)
    return NULL;
  const char *start = text; /* of the declaration */
  for (const char *c = text; *c;) {
    char word[STUB_WORD];
    if (!stub_is_word(*c)) {
      start = *c == ';' || *c == '}' ? c : start;
      ++c;
      continue;
    }
    c = stub_read_word(c, word);
    if (strcmp(word, "typedef") == 0)
      read_typedef(&types, c);
    stub_signature signature;
    if (!is_kernel_word(word) || !read_signature(&types, start, c, &signature))
      continue;
    stub_signature *const more = realloc(found, (*count + 1u) * sizeof *found);
    if (!more)
      break;
    found = more;
    found[(*count)++] = signature;
  }
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
