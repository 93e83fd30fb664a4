/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps README.md true: its example is examples/first.c, the fields of its migration table are the interface's, its
 * problem lines are legal, and the files that it names exist.  test_rules.c has the table of rules. */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "clattn.h"
#include "readme_text.h"

static void test_example(void **state) {
  (void)state;
  char *readme = read_text("README.md"), *example = read_text("examples/first.c");
  const char *shown = between(readme, "<!-- examples/first.c -->\n```c\n", "```");
  /* The file's licence line is left out. */
  const char *body = strchr(example, '\n');
  assert_non_null(body);
  assert_string_equal(shown, body + 1);
  free(readme);
  free(example);
}

static int is_word(char c) {
  return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Whether `word`, of `length` bytes, stands in `text` as a word of its own. */
static int has_word(const char *text, const char *word, size_t length) {
  for (const char *at = text; (at = strchr(at, word[0])) != NULL; at++) {
    if (strncmp(at, word, length) == 0 && (at == text || !is_word(at[-1])) && !is_word(at[length])) {
      return 1;
    }
  }
  return 0;
}

/* Adds `code` to the row's problem line if it is part of one, else looks its name up in the interface. */
static void take_code(const char *code, const char *what, const char *header, char *line, size_t capacity) {
  if (strchr(code, '=') != NULL) {
    const size_t length = strlen(line);
    assert_true((size_t)snprintf(line + length, capacity - length, " %s", code) < capacity - length);
    return;
  }
  const char *name = strncmp(code, "args.", 5) == 0 ? code + 5 : code;
  size_t length = 0;
  while (is_word(name[length])) {
    length++;
  }
  if (length == 0 || !has_word(header, name, length)) {
    fail_msg("%s: clattn.h has no `%s`", what, code);
  }
}

/* Rows are `| from | argument | clattn | mind |`.  What stands in backquotes in the third cell is words of a problem
 * line, all of one row together a legal problem, or a name of clattn.h. */
static void check_migration(char *row, const char *header) {
  char *cells[5], line[512] = "hq=8 sq=8 sk=8 d=64", what[512];
  if (split_row(row, cells, 5) != 4) {
    fail_msg("not a row of four cells: %s", row);
  }
  snprintf(what, sizeof what, "%s %s", cells[0], cells[1]);
  const size_t base = strlen(line);
  int found = 0;
  for (char *open = strchr(cells[2], '`'); open != NULL; found++) {
    char *close = strchr(open + 1, '`');
    assert_non_null(close);
    *close = 0;
    take_code(open + 1, what, header, line, sizeof line);
    open = strchr(close + 1, '`');
  }
  if (found == 0) {
    fail_msg("%s: names no field", what);
  }
  clattn_problem problem;
  clattn_error error;
  clattn_error_init(&error);
  if (clattn_problem_parse(line, &problem, &error) != CLATTN_SUCCESS) {
    fail_msg("%s: %s: %s", what, line, error.message);
  }
  const clattn_status status = clattn_problem_check(&problem, &error);
  const int later = strlen(line) > base && strstr(cells[3], "not supported yet") != NULL;
  if (status != (later ? CLATTN_ERROR_NOT_SUPPORTED : CLATTN_SUCCESS)) {
    fail_msg("%s: %s: %s %s", what, line, clattn_status_name(status), error.message);
  }
}

static void test_migration(void **state) {
  (void)state;
  char *readme = read_text("README.md"), *header = read_text("host/include/clattn.h");
  char *next = between(readme, "<!-- migration -->\n", "<!-- end of migration -->"), *row;
  int rows = 0;
  while ((row = next_line(&next)) != NULL) {
    if (rows++ >= 2) { /* below the head and its rule */
      check_migration(row, header);
    }
  }
  assert_true(rows > 30);
  free(readme);
  free(header);
}

/* What follows every --problem in quotes, with the end of a line or a backslash between them or not. */
static void test_problem_lines(void **state) {
  (void)state;
  static const char option[] = "--problem";
  char *readme = read_text("README.md");
  int found = 0;
  for (char *p = readme; (p = strstr(p, option)) != NULL;) {
    p += sizeof option - 1;
    p += strspn(p, " \\\n");
    if (*p != '"') { /* named in a sentence */
      continue;
    }
    char *line = p + 1, *end = strchr(line, '"');
    assert_non_null(end);
    *end = 0;
    clattn_problem problem;
    clattn_error error;
    clattn_error_init(&error);
    if (clattn_problem_parse(line, &problem, &error) != CLATTN_SUCCESS ||
        clattn_problem_check(&problem, &error) != CLATTN_SUCCESS) {
      fail_msg("%s: %s", line, error.message);
    }
    p = end + 1;
    found++;
  }
  assert_true(found > 3);
  free(readme);
}

/* Words in backquotes that begin with one of the tree's folders. */
static void test_files(void **state) {
  (void)state;
  static const char *const folders[] = {"scripts/", "examples/", "host/",  "kernels/",
                                        "tests/",   "bench/",    "cmake/", "docs/"};
  char *readme = read_text("README.md");
  int found = 0;
  for (char *p = readme; (p = strchr(p, '`')) != NULL; p++) {
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
      if (strncmp(p + 1, folders[i], strlen(folders[i])) == 0) {
        char name[256], path[1024];
        size_t length = strcspn(p + 1, "` \n");
        assert_true(length < sizeof name);
        memcpy(name, p + 1, length);
        name[length] = 0;
        if (strstr(name, "NAME") != NULL) { /* stands for the reader's own */
          continue;
        }
        snprintf(path, sizeof path, "%s/%s", CLATTN_SOURCE_DIR, name);
        FILE *file = fopen(path, "rb");
        if (file == NULL) {
          fail_msg("README names %s, which is not there", name);
        }
        fclose(file);
        found++;
      }
    }
  }
  assert_true(found > 5);
  free(readme);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_example),
      cmocka_unit_test(test_migration),
      cmocka_unit_test(test_problem_lines),
      cmocka_unit_test(test_files),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
