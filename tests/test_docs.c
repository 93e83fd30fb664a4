/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps docs/attention.md and its Chinese twin true: every command in them runs and prints what stands below it, both
 * have the same commands and numbers, and the options that they name exist. */
#define _XOPEN_SOURCE 700 /* popen */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "readme_text.h"

enum { MOST_LINES = 400, MOST_TEXT = 1 << 16 };

static const char *const documents[] = {"docs/attention.md", "docs/attention.zh.md"};
enum { DOCUMENTS = sizeof documents / sizeof documents[0] };

/* ---- comparing what is shown with what is printed ---- */

typedef struct number {
  double value, unit; /* of its last digit */
} number;

/* 1 if the text is a number with a point, and nothing else. */
static int read_number(const char *text, size_t length, number *out) {
  char copy[64], *end = NULL;
  const char *point = memchr(text, '.', length);
  if (point == NULL || length >= sizeof copy)
    return 0;
  memcpy(copy, text, length);
  copy[length] = 0;
  out->value = strtod(copy, &end);
  if (end != copy + length || copy[strspn(copy, "+-0123456789.e")] != 0)
    return 0;
  const size_t decimals = strspn(point + 1, "0123456789");
  const char *exponent = strchr(copy, 'e');
  out->unit = pow(10, (exponent != NULL ? strtod(exponent + 1, NULL) : 0) - (double)decimals);
  return 1;
}

/* Words with the blanks before them; numbers may differ by one in the last digit.  Blanks at the end do not count. */
static int same_line(const char *shown, const char *got) {
  for (;;) {
    const size_t blanks = strspn(shown, " "), got_blanks = strspn(got, " ");
    const size_t word = strcspn(shown + blanks, " "), got_word = strcspn(got + got_blanks, " ");
    number a, b;
    if (word == 0 || got_word == 0)
      return word == got_word;
    if (blanks + word != got_blanks + got_word)
      return 0;
    if ((word != got_word || memcmp(shown + blanks, got + got_blanks, word) != 0) &&
        (!read_number(shown + blanks, word, &a) || !read_number(got + got_blanks, got_word, &b) ||
         fabs(a.unit / b.unit - 1) > 0.01 || fabs(a.value - b.value) > 1.01 * a.unit))
      return 0;
    shown += blanks + word;
    got += got_blanks + got_word;
  }
}

static int is_gap(const char *line) {
  return strcmp(line, "...") == 0;
}

/* Lines from shown to the next gap or the end, all of which stand at `got`. */
static int same_run(char *const *shown, int count, char *const *got, int got_count) {
  int n = 0;
  while (n < count && !is_gap(shown[n])) {
    if (n >= got_count || !same_line(shown[n], got[n]))
      return -1;
    n++;
  }
  return n;
}

/* NULL, or the line shown that was looked for in vain. */
static const char *find_difference(char *const *shown, int count, char *const *got, int got_count) {
  int at = 0, gap = 0;
  for (int i = 0; i < count;) {
    if (is_gap(shown[i])) {
      gap = 1;
      i++;
      continue;
    }
    int run = same_run(shown + i, count - i, got + at, got_count - at);
    while (run < 0 && gap && at < got_count) {
      at++;
      run = same_run(shown + i, count - i, got + at, got_count - at);
    }
    if (run < 0)
      return shown[i];
    i += run;
    at += run;
    gap = 0;
  }
  return gap || at == got_count ? NULL : "the end";
}

static int split(char *text, char **lines) {
  int count = 0;
  char *next = text, *line;
  while ((line = next_line(&next)) != NULL) {
    assert_true(count < MOST_LINES);
    lines[count++] = line;
  }
  return count;
}

static void test_comparison(void **state) {
  (void)state;
  assert_true(same_line("  a 1.0000  2.50", "  a 1.0001  2.50  "));
  assert_true(same_line("a -0.9999", "a -1.0000"));
  assert_true(same_line("a 10.000", "a  9.999"));
  assert_true(same_line("1.43e-08", "1.44e-08"));
  assert_false(same_line("a 1.0000", "a 1.0002"));
  assert_false(same_line("a 1.0000", "a 1.000"));
  assert_false(same_line("a 1.0000", "a  1.0000"));
  assert_false(same_line("a 1.0000", "b 1.0000"));
  assert_false(same_line("a 1.0000", "a 1.0000 1.0000"));
  assert_false(same_line("a 10", "a 11")); /* counts are no measurements */
  assert_false(same_line("a 1.43e-08", "a 1.43e-07"));
  char shown[] = "b\n...\nd\ne\n", got[] = "b\nc\nd\nd\ne\n", more[] = "b\nc\nd\nd\ne\nf\n";
  char *lines[MOST_LINES], *printed[MOST_LINES];
  const int count = split(shown, lines);
  assert_null(find_difference(lines, count, printed, split(got, printed)));
  assert_string_equal(find_difference(lines, count, printed, split(more, printed)), "the end");
  assert_string_equal(find_difference(lines + 1, count - 1, printed, 4), "d");
  assert_string_equal(find_difference(lines + 2, count - 2, printed, 5), "d");
}

/* ---- the documents ---- */

typedef struct block {
  char command[1024];
  char *lines[MOST_LINES]; /* below it */
  int count;
} block;

/* The next block of a command and what it prints; changes the text and moves *next. */
static int next_block(char **next, block *out) {
  static const char begin[] = "\n```console\n", end[] = "\n```\n";
  char *from = strstr(*next, begin);
  if (from == NULL)
    return 0;
  from += sizeof begin - 1;
  char *to = strstr(from, end);
  assert_non_null(to);
  to[1] = 0;
  *next = to + sizeof end - 2;
  assert_memory_equal(from, "$ ", 2);
  from += 2;
  size_t used = 0;
  for (int more = 1; more;) {
    char *line = next_line(&from);
    assert_non_null(line);
    const size_t length = strlen(line);
    more = length > 0 && line[length - 1] == '\\';
    used += (size_t)snprintf(out->command + used, sizeof out->command - used, "%.*s", (int)length - more, line);
    assert_true(used < sizeof out->command);
  }
  out->count = split(from, out->lines);
  assert_true(out->count > 0);
  return 1;
}

static char *run(const char *command) {
  char whole[1200];
  char *text = calloc(1, MOST_TEXT);
  assert_non_null(text);
  snprintf(whole, sizeof whole, "{ %s ; }", command);
  FILE *pipe = popen(whole, "r");
  if (pipe == NULL) {
    fail_msg("%s can't be started", command);
    return text;
  }
  const size_t bytes = fread(text, 1, MOST_TEXT - 1, pipe);
  const int status = pclose(pipe);
  assert_true(bytes < MOST_TEXT - 1);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    fail_msg("%s failed: %s", command, text);
  return text;
}

static void test_commands(void **state) {
  (void)state;
  static block b;
  char *document = read_text(documents[0]), *next = document;
  int blocks = 0;
  while (next_block(&next, &b)) {
    char *printed = run(b.command), *lines[MOST_LINES];
    char *copy = strdup(printed); /* whole, for the message */
    assert_non_null(copy);
    const int count = split(printed, lines);
    const char *difference = find_difference(b.lines, b.count, lines, count);
    if (difference != NULL)
      fail_msg("%s\nshows '%s', which the program did not print there:\n%s", b.command, difference, copy);
    free(printed);
    free(copy);
    blocks++;
  }
  assert_true(blocks >= 10);
  free(document);
}

/* The same commands and numbers in every language, and in the same order. */
static void test_languages(void **state) {
  (void)state;
  static block first, other;
  for (int d = 1; d < DOCUMENTS; d++) {
    char *one = read_text(documents[0]), *two = read_text(documents[d]);
    char *next_of_one = one, *next_of_two = two;
    while (next_block(&next_of_one, &first)) {
      assert_true(next_block(&next_of_two, &other));
      assert_string_equal(first.command, other.command);
      assert_int_equal(first.count, other.count);
      for (int i = 0; i < first.count; i++)
        assert_string_equal(first.lines[i], other.lines[i]);
    }
    assert_false(next_block(&next_of_two, &other));
    free(one);
    free(two);
  }
}

static int is_option_char(char c) {
  return c == '-' || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

/* Whether the help has the option, in full. */
static int has_option(const char *help, const char *option) {
  const size_t length = strlen(option);
  for (const char *at = help; (at = strstr(at, option)) != NULL; at += length) {
    if (!is_option_char(at[length]) && (at == help || !is_option_char(at[-1])))
      return 1;
  }
  return 0;
}

/* Options are named short in the help: "--wq, --wk, --wv M". */
static void test_options(void **state) {
  (void)state;
  char *help = run("clattn explain --help; clattn run --help; clattn view --help; clattn embed --help; "
                   "example_why_scale --help 2>&1 || true");
  for (int d = 0; d < DOCUMENTS; d++) {
    char *document = read_text(documents[d]);
    int found = 0;
    for (const char *at = document; (at = strstr(at, "--")) != NULL;) {
      char option[64] = "--";
      size_t length = 2;
      while (length < sizeof option - 1 && is_option_char(at[length])) {
        option[length] = at[length];
        length++;
      }
      option[length] = 0;
      /* Rules between headings, and the marks of comments, have no letter behind them. */
      if (option[2] >= 'a' && option[2] <= 'z') {
        if (!has_option(help, option))
          fail_msg("%s names %s, which no program has", documents[d], option);
        found++;
      }
      at += length;
    }
    assert_true(found > 20);
    free(document);
  }
  free(help);
}

/* Files in backquotes, from the folder that the page works in. */
static void test_files(void **state) {
  (void)state;
  for (int d = 0; d < DOCUMENTS; d++) {
    char *document = read_text(documents[d]);
    int found = 0;
    for (const char *at = document; (at = strstr(at, ".txt`")) != NULL; at++) {
      char name[64];
      const char *start = at;
      while (start > document && start[-1] != '`')
        start--;
      snprintf(name, sizeof name, "%.*s", (int)(at + 4 - start), start);
      if (access(name, R_OK) != 0)
        fail_msg("%s names %s, which is not there", documents[d], name);
      found++;
    }
    assert_true(found > 3);
    free(document);
  }
}

/* ---- the pages and pictures that they name ---- */

/* Every element is closed in the order in which it was opened. */
static void check_elements(const char *text) {
  char open[32][16];
  int depth = 0, elements = 0;
  for (const char *at = text; (at = strchr(at, '<')) != NULL; elements++) {
    const char *end = strchr(at, '>');
    assert_non_null(end);
    const int closes = at[1] == '/';
    const char *name = at + 1 + closes;
    const size_t length = strcspn(name, " />");
    const int empty = end[-1] == '/' || name[0] == '!' || strncmp(name, "meta", length) == 0;
    assert_true(length > 0 && length < sizeof open[0]);
    if (closes) {
      if (depth == 0 || strlen(open[depth - 1]) != length || memcmp(open[depth - 1], name, length) != 0)
        fail_msg("an element is closed that is not open: %.40s", at);
      depth--;
    } else if (!empty) {
      assert_true(depth < 32);
      memcpy(open[depth], name, length);
      open[depth++][length] = 0;
    }
    at = end;
  }
  assert_int_equal(depth, 0);
  assert_true(elements > 40);
}

static int count_of(const char *text, const char *part) {
  int count = 0;
  for (const char *at = text; (at = strstr(at, part)) != NULL; at += strlen(part))
    count++;
  return count;
}

static void test_pictures(void **state) {
  (void)state;
  char *svg = run("example_why_scale --svg /dev/stdout");
  assert_memory_equal(svg, "<svg xmlns=", 11);
  check_elements(svg);
  assert_int_equal(count_of(svg, "<polyline"), 4);
  assert_int_equal(count_of(svg, "<circle"), 8);
  assert_non_null(strstr(svg, "@media (prefers-color-scheme: dark)"));
  assert_non_null(strstr(svg, ">sum over keys of w (1 - w)</text>"));
  assert_null(strstr(svg, "nan"));
  free(svg);
  char *page = run("clattn explain --x x.txt --wq wq2.txt --wk wk2.txt --wv wv.txt --heads 2 --wo wo.txt --add-norm "
                   "--w1 w1.txt --w2 w2.txt --q-labels 'Tom,<chase>,Jerry' --format html");
  check_elements(page);
  assert_int_equal(count_of(page, "<table"), 26);
  free(page);
  page = run("clattn explain --q '1 0' --k '1 0; 0 1' --v '1; 2' --similarity all --add-w '1 1' --format html");
  check_elements(page);
  free(page);
}

static int start(void **state) {
  (void)state;
  static char path[8192];
  const char *old = getenv("PATH");
  snprintf(path, sizeof path, "%s:%s", CLATTN_PROGRAMS, old != NULL ? old : "/usr/bin:/bin");
  return setenv("PATH", path, 1) != 0 || chdir(CLATTN_SOURCE_DIR "/tests/data/docs") != 0 ? -1 : 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_comparison), cmocka_unit_test(test_commands), cmocka_unit_test(test_languages),
      cmocka_unit_test(test_options),    cmocka_unit_test(test_files),    cmocka_unit_test(test_pictures),
  };
  return cmocka_run_group_tests(tests, start, NULL);
}
