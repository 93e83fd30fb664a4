/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps README.md true: its examples are those of examples/ and the lines below, the fields of its migration table are
 * the interface's, its problem lines are legal, and the files that it names exist.  test_rules.c has the table of
 * rules. */
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

static void test_hook_example(void **state) {
  (void)state;
  char *readme = read_text("README.md"), *hook = read_text("examples/hooks/tanh_cap.cl");
  const char *shown = between(readme, "<!-- examples/hooks/tanh_cap.cl -->\n```c\n", "```");
  const char *body = hook;
  for (const char *at; (at = strstr(body, "*/\n")) != NULL;)
    body = at + 3;
  assert_string_equal(shown, body);
  free(readme);
  free(hook);
}

/* What README shows of a hook in C, between the two marks: it compiles, and gives a problem that the library takes. */
static int attach_hook(const char *source) {
  clattn_problem problem;
  clattn_error error;
  clattn_args args;
  clattn_error_init(&error);
  clattn_args_init(&args);
  if (clattn_problem_parse("sq=8 sk=8 d=64", &problem, &error) != CLATTN_SUCCESS)
    return 2;
  /* shown from here */
  clattn_hook *hook = NULL;
  if (clattn_hook_create(source, &hook, &error) != CLATTN_SUCCESS)
    return puts(error.message), 1;
  problem.hook = hook; /* until the last plan with it is released */
  args.hook_scalar[0].kind = CLATTN_SCALAR_HOST;
  args.hook_scalar[0].value = 30.0f;
  /* shown to here */
  char line[256] = "";
  const int good = clattn_problem_check(&problem, &error) == CLATTN_SUCCESS &&
                   clattn_problem_format(&problem, line, sizeof line, NULL) == CLATTN_SUCCESS &&
                   strstr(line, "hook=yes") != NULL;
  clattn_hook_release(hook);
  return good ? 0 : 3;
}

static void test_hook_in_c(void **state) {
  (void)state;
  char *readme = read_text("README.md"), *here = read_text("tests/test_readme.c");
  char *hook = read_text("examples/hooks/tanh_cap.cl"), *own = calloc(1, 4096);
  assert_non_null(own);
  assert_int_equal(attach_hook(hook), 0);
  assert_int_equal(attach_hook("float no_hook(float s) { return s; }"), 1);
  const char *shown = between(readme, "<!-- a hook in C -->\n```c\n", "```");
  char *next = between(here, "\n  /* shown from here */\n", "  /* shown to here */"), *line;
  for (size_t length = 0; (line = next_line(&next)) != NULL;) {
    assert_memory_equal(line, "  ", 2); /* the function's indentation, which README leaves out */
    length += (size_t)snprintf(own + length, 4096 - length, "%s\n", line + 2);
    assert_true(length < 4096);
  }
  assert_string_equal(shown, own);
  free(readme);
  free(here);
  free(hook);
  free(own);
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
  char *cells[5] = {NULL}, line[512] = "hq=8 sq=8 sk=8 d=64", what[512];
  if (split_row(row, cells, 5) != 4 || cells[0] == NULL || cells[1] == NULL || cells[2] == NULL) {
    fail_msg("not a row of four cells: %s", row);
    return;
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

static void assert_is_there(const char *name) {
  char path[1024];
  snprintf(path, sizeof path, "%s/%s", CLATTN_SOURCE_DIR, name);
  FILE *file = fopen(path, "rb");
  if (file == NULL)
    fail_msg("README names %s, which is not there", name);
  fclose(file);
}

/* What follows every --hook of a command line. */
static void test_hooks(void **state) {
  (void)state;
  static const char option[] = "--hook ";
  char *readme = read_text("README.md");
  int found = 0;
  for (char *p = readme; (p = strstr(p, option)) != NULL;) {
    char name[256];
    p += sizeof option - 1;
    const size_t length = strcspn(p, " `\n");
    snprintf(name, sizeof name, "%.*s", (int)length, p);
    if (strchr(name, '/') == NULL) /* a word for the reader's own file */
      continue;
    assert_is_there(name);
    found++;
  }
  assert_true(found > 0);
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
        char name[256];
        size_t length = strcspn(p + 1, "` \n");
        assert_true(length < sizeof name);
        memcpy(name, p + 1, length);
        name[length] = 0;
        if (strstr(name, "NAME") != NULL) { /* stands for the reader's own */
          continue;
        }
        assert_is_there(name);
        found++;
      }
    }
  }
  assert_true(found > 5);
  free(readme);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_example),   cmocka_unit_test(test_hook_example),  cmocka_unit_test(test_hook_in_c),
      cmocka_unit_test(test_migration), cmocka_unit_test(test_problem_lines), cmocka_unit_test(test_hooks),
      cmocka_unit_test(test_files),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
