/* SPDX-License-Identifier: Apache-2.0 */
/* The preprocessor of stub_text.h: macros with and without arguments, ##, and conditions. */
#include "stub_state.h"
#include "stub_text.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PARAMS = 8, DEEPEST = 32 };

typedef struct macro {
  char name[STUB_WORD];
  int num_params; /* -1: takes no arguments */
  char params[MOST_PARAMS][STUB_WORD];
  char *text;
  int busy; /* being replaced: it does not stand for itself again */
} macro;

typedef struct output {
  char *text;
  size_t length, capacity;
  int failed;
} output;

typedef struct preprocessor {
  size_t count;
  macro *macros;
  int depth; /* of conditions */
  struct {
    int outer, on, taken; /* whether what is around is read, this branch is, some branch was */
  } conditions[DEEPEST];
  output out;
} preprocessor;

static void put(output *out, const char *text, size_t length) {
  if (out->failed)
    return;
  if (out->length + length + 1 > out->capacity) {
    const size_t capacity = 2 * (out->length + length) + 256;
    char *const more = realloc(out->text, capacity);
    if (!more) {
      out->failed = 1;
      return;
    }
    out->text = more;
    out->capacity = capacity;
  }
  if (!out->text) {
    out->failed = 1;
    return;
  }
  memcpy(out->text + out->length, text, length);
  out->length += length;
  out->text[out->length] = 0;
}

/* Without comments, and with lines joined that end with a backslash. */
static char *plain_text(const char *source) {
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
    } else if (c[0] == '\\' && c[1] == '\n') {
      c[0] = c[1] = ' ';
    } else {
      ++c;
    }
  }
  return text;
}

/* ---- macros ---- */

static macro *find(const preprocessor *p, const char *name) {
  for (size_t i = p->count; i-- > 0;)
    if (p->macros[i].name[0] == name[0] && strcmp(p->macros[i].name, name) == 0)
      return &p->macros[i];
  return NULL;
}

static void undefine(preprocessor *p, const char *name) {
  macro *const m = find(p, name);
  if (!m || p->count == 0)
    return;
  free(m->text);
  *m = p->macros[--p->count]; /* NOLINT(clang-analyzer-core.NullDereference): find() found one */
}

/* Reads "NAME text" or "NAME(PARAMETERS) text". */
static void define(preprocessor *p, const char *from, const char *to) {
  macro m = {.num_params = -1};
  const char *c = stub_read_word(from, m.name);
  if (*c == '(') {
    m.num_params = 0;
    for (++c; c < to && *c != ')';) {
      char param[STUB_WORD];
      const char *const after = stub_read_word(c, param);
      if (param[0] && m.num_params < MOST_PARAMS)
        memcpy(m.params[m.num_params++], param, sizeof param);
      c = after == c || !param[0] ? c + 1 : after;
    }
    c += *c == ')';
  }
  undefine(p, m.name);
  /* NOLINTNEXTLINE(clang-analyzer-optin.portability.UnixAPI): the count does not wrap */
  macro *const more = realloc(p->macros, (p->count + 1) * sizeof *more);
  if (!more) {
    p->out.failed = 1;
    return;
  }
  p->macros = more;
  m.text = stub_copy(c, (size_t)(to - c));
  if (!m.text)
    p->out.failed = 1;
  else
    p->macros[p->count++] = m;
}

static void define_options(preprocessor *p, const char *options) {
  for (const char *c = strstr(options, "-D"); c; c = strstr(c, "-D")) {
    char name[STUB_WORD], line[4 * STUB_WORD];
    c = stub_read_word(c + 2, name);
    const int given = *c == '=';
    snprintf(line, sizeof line, "%s %.*s", name, given ? (int)strcspn(c + 1, " ") : 1, given ? c + 1 : "1");
    define(p, line, line + strlen(line));
  }
}

static void expand(preprocessor *p, const char *from, const char *to, output *out);

/* Where the arguments start of which `at` may be the bracket; splits them at commas.  Past the closing bracket. */
static const char *read_args(const char *at, const char *to, const char *args[MOST_PARAMS], size_t sizes[MOST_PARAMS],
                             int *count) {
  int depth = 0;
  const char *from = at + 1;
  *count = 0;
  for (; at < to; ++at) {
    depth += *at == '(';
    depth -= *at == ')';
    if (depth == 0 || (depth == 1 && *at == ',')) {
      if (*count < MOST_PARAMS) {
        args[*count] = from;
        sizes[(*count)++] = (size_t)(at - from);
      }
      from = at + 1;
      if (depth == 0)
        return at + 1;
    }
  }
  return at;
}

static int has_paste(const char *c) {
  c = stub_skip_space(c);
  return c[0] == '#' && c[1] == '#';
}

/* The macro's text with its arguments, replaced themselves unless ## joins them to something. */
static void substitute(preprocessor *p, const macro *m, const char *const args[MOST_PARAMS],
                       const size_t sizes[MOST_PARAMS], int count, output *out) {
  int pasted = 0; /* what comes is joined to what is there */
  for (const char *c = m->text; *c;) {
    char word[STUB_WORD];
    if (has_paste(c)) {
      while (out->length > 0 && isspace((unsigned char)out->text[out->length - 1]))
        out->text[--out->length] = 0;
      c = stub_skip_space(stub_skip_space(c) + 2);
      pasted = 1;
      continue;
    }
    if (!stub_is_word(*c)) {
      put(out, c++, 1);
      pasted = 0;
      continue;
    }
    const char *const start = c;
    c = stub_read_word(c, word);
    int n = 0;
    while (n < m->num_params && strcmp(m->params[n], word) != 0)
      ++n;
    if (n >= m->num_params)
      put(out, start, (size_t)(c - start));
    else if (n < count && (pasted || has_paste(c))) {
      const char *const bare = stub_skip_space(args[n]);
      const size_t skipped = (size_t)(bare - args[n]);
      put(out, bare, sizes[n] > skipped ? sizes[n] - skipped : 0);
    } else if (n < count)
      expand(p, args[n], args[n] + sizes[n], out);
    pasted = 0;
  }
}

/* Writes what stands between from and to, macros replaced. */
static void expand(preprocessor *p, const char *from, const char *to, output *out) {
  for (const char *c = from; c < to && !out->failed;) {
    char word[STUB_WORD];
    if (!stub_is_word(*c)) {
      put(out, c++, 1);
      continue;
    }
    const char *const start = c;
    c = stub_read_word(c, word);
    macro *const m = find(p, word);
    const char *const bracket = stub_skip_space(c);
    if (!m || m->busy || (m->num_params >= 0 && (bracket >= to || *bracket != '('))) {
      put(out, start, (size_t)(c - start));
      continue;
    }
    const char *args[MOST_PARAMS] = {NULL};
    size_t sizes[MOST_PARAMS] = {0};
    int count = 0;
    output once = {NULL, 0, 0, 0};
    if (m->num_params >= 0)
      c = read_args(bracket, to, args, sizes, &count);
    substitute(p, m, args, sizes, count, &once);
    m->busy = 1;
    if (once.text)
      expand(p, once.text, once.text + once.length, out);
    m->busy = 0;
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the macro keeps it */
    out->failed |= once.failed;
    free(once.text);
  }
}

/* ---- directives ---- */

static int condition(preprocessor *p, const char *from, const char *to) {
  output asked = {NULL, 0, 0, 0}, replaced = {NULL, 0, 0, 0};
  long long value = 0;
  for (const char *c = from; c < to;) { /* defined X, defined(X) */
    char word[STUB_WORD];
    if (!stub_is_word(*c)) {
      put(&asked, c++, 1);
      continue;
    }
    const char *const start = c;
    c = stub_read_word(c, word);
    if (strcmp(word, "defined") != 0) {
      put(&asked, start, (size_t)(c - start));
      continue;
    }
    const char *const name = stub_skip_space(c);
    c = stub_read_word(name + (*name == '('), word);
    if (*name == '(')
      c = stub_skip_space(c) + 1;
    put(&asked, find(p, word) ? "1" : "0", 1);
  }
  put(&replaced, "", 0);
  if (asked.text)
    expand(p, asked.text, asked.text + asked.length, &replaced);
  p->out.failed |= asked.failed | replaced.failed;
  if (replaced.text)
    (void)stub_evaluate(replaced.text, NULL, 1, &value);
  free(asked.text);
  free(replaced.text);
  return value != 0;
}

static int is_read(const preprocessor *p) {
  return p->depth == 0 || p->conditions[p->depth - 1].on;
}

/* A line from behind its '#'. */
static void directive(preprocessor *p, const char *from, const char *to) {
  char word[STUB_WORD], name[STUB_WORD];
  const char *const rest = stub_read_word(from, word);
  const int on = is_read(p);
  (void)stub_read_word(rest, name);
  if (strncmp(word, "if", 2) == 0 && p->depth < DEEPEST) {
    const int holds = !on                           ? 0
                      : strcmp(word, "ifdef") == 0  ? find(p, name) != NULL
                      : strcmp(word, "ifndef") == 0 ? find(p, name) == NULL
                                                    : condition(p, rest, to);
    p->conditions[p->depth].outer = on;
    p->conditions[p->depth].on = p->conditions[p->depth].taken = holds;
    ++p->depth;
  } else if (strncmp(word, "el", 2) == 0 && p->depth > 0) {
    const int d = p->depth - 1;
    p->conditions[d].on =
        p->conditions[d].outer && !p->conditions[d].taken && (strcmp(word, "else") == 0 || condition(p, rest, to));
    p->conditions[d].taken |= p->conditions[d].on;
  } else if (strcmp(word, "endif") == 0 && p->depth > 0) {
    --p->depth;
  } else if (on && strcmp(word, "define") == 0) {
    define(p, rest, to);
  } else if (on && strcmp(word, "undef") == 0) {
    undefine(p, name);
  }
}

char *stub_preprocess(const char *source, const char *options) {
  static const char versions[] = "-D__OPENCL_VERSION__=120 -D__OPENCL_C_VERSION__=120";
  preprocessor p;
  memset(&p, 0, sizeof p);
  char *const text = plain_text(source);
  if (!text)
    return NULL;
  put(&p.out, "", 0);
  define_options(&p, versions);
  define_options(&p, options);
  const char *chunk = text; /* lines without a directive, which an argument may go over */
  for (const char *c = text; *c;) {
    const char *const first = c + strspn(c, " \t"), *const end = c + strcspn(c, "\n");
    const char *const next = *end ? end + 1 : end;
    if (*first == '#') {
      if (is_read(&p))
        expand(&p, chunk, c, &p.out);
      directive(&p, first + 1, end);
      chunk = next;
    }
    c = next;
  }
  if (is_read(&p))
    expand(&p, chunk, chunk + strlen(chunk), &p.out);
  for (size_t i = 0; i < p.count; ++i)
    free(p.macros[i].text);
  free(p.macros);
  free(text);
  if (p.out.failed) {
    free(p.out.text);
    return NULL;
  }
  return p.out.text;
}
