/* SPDX-License-Identifier: Apache-2.0 */
#include "hook.h"

#include <stdatomic.h>
#include <string.h>

#include "memory.h"
#include "status.h"

static const clattni_allocator plain = {NULL, NULL, NULL}; /* a hook belongs to no context */

/* Copies a text without its line splices (a backslash at the end of a line). */
static void join_lines(const char *from, char *to) {
  while (*from != 0)
    if (from[0] == '\\' && from[1] == '\n')
      from += 2;
    else if (from[0] == '\\' && from[1] == '\r' && from[2] == '\n')
      from += 3;
    else
      *to++ = *from++;
  *to = 0;
}

/* The end of a string or character literal that starts here: behind its closing quote, or at the end of its line. */
static char *end_of_literal(char *at) {
  const char quote = *at++;
  for (; *at != 0 && *at != '\n'; ++at) {
    if (*at == quote)
      return at + 1;
    if (at[0] == '\\' && at[1] != 0 && at[1] != '\n')
      ++at;
  }
  return at;
}

/* Blanks comments, literals and preprocessor directives. */
static void blank(char *at) {
  int line_start = 1, directive = 0;
  while (*at != 0) {
    char *end = at + 1;
    int wipe = directive;
    if (*at == '\n') {
      line_start = 1;
      wipe = directive = 0;
    } else if (at[0] == '/' && (at[1] == '/' || at[1] == '*')) {
      end = strstr(at + 2, at[1] == '/' ? "\n" : "*/");
      if (end == NULL)
        end = at + strlen(at);
      else if (at[1] == '*')
        end += 2;
      wipe = 1;
    } else if (*at == '"' || *at == '\'') {
      end = end_of_literal(at);
      wipe = 1;
      line_start = 0;
    } else if (*at == '#' && line_start) {
      wipe = directive = 1;
    } else if (strchr(" \t\r\v\f", *at) == NULL) {
      line_start = 0;
    }
    if (wipe)
      memset(at, ' ', (size_t)(end - at));
    at = end;
  }
}

static const char *skip_space(const char *at) {
  return at + strspn(at, " \t\r\n\v\f");
}

/* Whether a blanked text defines the function: its name, parameters in parentheses and '{', which follow each other
 * nowhere else.  Conditions of the preprocessor are not evaluated. */
static int defines(const char *text, const char *name) {
  static const char word[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  const size_t length = strlen(name);
  for (const char *at = strpbrk(text, word); at != NULL; at = strpbrk(at, word)) {
    const size_t span = strspn(at, word);
    const int found = span == length && memcmp(at, name, length) == 0;
    at += span;
    const char *end = skip_space(at);
    if (!found || *end != '(')
      continue;
    int depth = 0;
    do
      depth += (*end == '(') - (*end == ')');
    while (*++end != 0 && depth > 0);
    if (*skip_space(end) == '{')
      return 1;
  }
  return 0;
}

clattn_status clattn_hook_create(const char *source, clattn_hook **out, clattn_error *error) {
  static atomic_ullong hooks_made;
  clattn_hook *hook = NULL;
  char *bare = NULL;
  clattn_status status = CLATTN_SUCCESS;
  clattni_clear(error);
  if (out != NULL)
    *out = NULL;
  if (out == NULL || source == NULL)
    return clattni_fail(error, CLATTN_ERROR_NULL_POINTER, "%s is NULL", out == NULL ? "out" : "source");
  const size_t length = strlen(source);
  hook = clattni_alloc(&plain, sizeof(*hook));
  bare = clattni_alloc(&plain, length + 1);
  if (hook != NULL)
    hook->source = clattni_copy_text(&plain, source, length);
  if (bare == NULL || hook == NULL || hook->source == NULL) {
    status = clattni_fail(error, CLATTN_ERROR_OUT_OF_MEMORY, "no host memory for a hook of %zu bytes", length);
    goto done;
  }
  join_lines(source, bare);
  blank(bare);
  hook->length = length;
  hook->has_score = defines(bare, "clattn_score");
  hook->has_keep = defines(bare, "clattn_keep");
  if (!hook->has_score && !hook->has_keep) {
    status = clattni_fail(error, CLATTN_ERROR_TEXT,
                          "the hook of %zu bytes defines neither float clattn_score(float s, const clattn_at *at) nor "
                          "bool clattn_keep(const clattn_at *at)",
                          length);
    goto done;
  }
  hook->id = atomic_fetch_add(&hooks_made, 1) + 1;
  *out = hook;
  hook = NULL;

done:
  clattni_free(&plain, bare);
  clattn_hook_release(hook);
  return status;
}

void clattn_hook_release(clattn_hook *hook) {
  if (hook == NULL)
    return;
  clattni_free(&plain, hook->source);
  clattni_free(&plain, hook);
}
