/* SPDX-License-Identifier: Apache-2.0 */
/* Reading README.md and its tables, for the tests that keep it true.  Include after cmocka.h; CLATTN_SOURCE_DIR is the
 * root of the tree. */
#ifndef CLATTN_TEST_README_TEXT_H
#define CLATTN_TEST_README_TEXT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clattn.h"

/* Reads a problem line.  A line can name a hook, "hook=yes", but not carry it: `hook` stands for the reader's own. */
static inline clattn_status read_line(const char *line, const clattn_hook *hook, clattn_problem *problem,
                                      clattn_error *error) {
  static const char word[] = " hook=yes";
  const char *named = strstr(line, word);
  char bare[1024];
  snprintf(bare, sizeof bare, "%.*s%s", named != NULL ? (int)(named - line) : (int)strlen(line), line,
           named != NULL ? named + strlen(word) : "");
  const clattn_status status = clattn_problem_parse(bare, problem, error);
  if (status == CLATTN_SUCCESS && named != NULL)
    problem->hook = hook;
  return status;
}

static inline char *read_text(const char *name) {
  char path[1024];
  snprintf(path, sizeof path, "%s/%s", CLATTN_SOURCE_DIR, name);
  FILE *file = fopen(path, "rb");
  if (file == NULL)
    fail_msg("%s can't be opened", path);
  char *text = calloc(1, 1 << 20);
  assert_non_null(text);
  assert_true(fread(text, 1, (1 << 20) - 1, file) > 0);
  fclose(file);
  return text;
}

/* The text between two marks, each of which must be there once; changes `text`. */
static inline char *between(char *text, const char *begin, const char *end) {
  char *from = strstr(text, begin);
  if (from == NULL) {
    fail_msg("there is no mark %s", begin);
    return text;
  }
  from += strlen(begin);
  assert_null(strstr(from, begin));
  char *to = strstr(from, end);
  if (to != NULL)
    *to = 0;
  else
    fail_msg("there is no mark %s", end);
  return from;
}

/* The next line without its end, NULL behind the last one; changes the text and moves *next. */
static inline char *next_line(char **next) {
  char *line = *next;
  if (*line == 0)
    return NULL;
  *next += strcspn(*next, "\n");
  if (**next != 0)
    *(*next)++ = 0;
  return line;
}

/* The cells of "| a | b |" without the blanks round them: how many there are, at most `capacity`; changes the row. */
static inline size_t split_row(char *row, char **cells, size_t capacity) {
  size_t count = 0;
  if (*row != '|')
    return 0;
  for (char *at = row + 1; count < capacity && strchr(at, '|') != NULL; count++) {
    char *end = strchr(at, '|');
    char *last = end;
    at += strspn(at, " ");
    while (last > at && last[-1] == ' ')
      last--;
    *last = 0;
    cells[count] = at;
    at = end + 1;
  }
  return count;
}

#endif
