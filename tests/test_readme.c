/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps README.md true: its example is examples/first.c, its table of what is supported is what the library says, and
 * the files that it names exist. */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "clattn.h"

static char *read_text(const char *name) {
  char path[1024];
  snprintf(path, sizeof path, "%s/%s", CLATTN_SOURCE_DIR, name);
  FILE *file = fopen(path, "rb");
  if (file == NULL) {
    fail_msg("%s can't be opened", path);
  }
  char *text = calloc(1, 1 << 20);
  assert_non_null(text);
  assert_true(fread(text, 1, (1 << 20) - 1, file) > 0);
  fclose(file);
  return text;
}

/* The text of README.md between two marks, each of which must be there once; changes `text`. */
static char *between(char *text, const char *begin, const char *end) {
  char *from = strstr(text, begin);
  assert_non_null(from);
  from += strlen(begin);
  assert_null(strstr(from, begin));
  char *to = strstr(from, end);
  assert_non_null(to);
  *to = 0;
  return from;
}

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

/* Rows are `| what | problem line in backquotes | yes or not yet |`. */
static void check_row(char *row) {
  char *what = strtok(row, "|"), *line = strtok(NULL, "|"), *answer = strtok(NULL, "|");
  assert_non_null(what);
  assert_non_null(line);
  assert_non_null(answer);
  char *open = strchr(line, '`');
  assert_non_null(open);
  char *close = strchr(open + 1, '`');
  assert_non_null(close);
  *close = 0;
  clattn_problem problem;
  clattn_error error;
  clattn_error_init(&error);
  if (clattn_problem_parse(open + 1, &problem, &error) != CLATTN_SUCCESS) {
    fail_msg("%s: %s: %s", what, open + 1, error.message);
  }
  clattn_status status = clattn_problem_check(&problem, &error);
  clattn_status wanted = CLATTN_ERROR_NOT_SUPPORTED;
  if (strcmp(answer, " yes ") == 0) {
    wanted = CLATTN_SUCCESS;
  } else if (strcmp(answer, " not yet ") != 0) {
    fail_msg("%s: the answer is \"%s\", not \"yes\" or \"not yet\"", what, answer);
  }
  if (status != wanted) {
    fail_msg("README says \"%s\" for%s(%s), the library %s: %s", answer, what, open + 1, clattn_status_name(status),
             error.message);
  }
}

static void test_table(void **state) {
  (void)state;
  char *readme = read_text("README.md");
  char *table = between(readme, "<!-- supported -->\n", "<!-- end -->");
  int rows = 0;
  for (char *next = table; *next != 0; rows++) {
    char *row = next;
    next += strcspn(next, "\n");
    if (*next != 0) {
      *next++ = 0;
    }
    if (rows >= 2) { /* below the head and its rule */
      check_row(row);
    }
  }
  assert_true(rows > 20);
  free(readme);
}

/* Words in backquotes that begin with one of the tree's folders. */
static void test_files(void **state) {
  (void)state;
  static const char *const folders[] = {"scripts/", "examples/", "host/", "kernels/", "tests/", "bench/", "cmake/"};
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
      cmocka_unit_test(test_table),
      cmocka_unit_test(test_files),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
