/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "suite.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "options.h"
#include "suites_embedded.h"
#include "text.h"

enum { KEYS_MOST = 24, VALUES_MOST = 64, SHAPES_MOST = 4096, NESTED_MOST = 4, SUITES_MOST = 32, SWEEP_MOST = 65536 };

/* A text being read, for messages: where it comes from, and its lines. */
typedef struct text {
  const char *from; /* "--suite FILE", "--shape" */
  const char *begin, *end;
  int numbered; /* 1: lines count */
} text;

/* A part of it. */
typedef struct span {
  const char *begin, *end;
} span;

static int wrong(const text *t, const char *at, const char *what, span part) {
  int line = 1;
  const char *start = t->begin;
  for (const char *c = t->begin; c < at; c++)
    if (*c == '\n') {
      line++;
      start = c + 1;
    }
  const int length = (int)(part.end - part.begin < 60 ? part.end - part.begin : 60);
  if (t->numbered)
    return cli_fail(CLI_USAGE, "%s: line %d, column %d: %s: '%.*s'", t->from, line, (int)(at - start) + 1, what, length,
                    part.begin);
  return cli_fail(CLI_USAGE, "%s: column %d: %s: '%.*s'", t->from, (int)(at - start) + 1, what, length, part.begin);
}

static span trim(span s) {
  while (s.begin < s.end && (*s.begin == ' ' || *s.begin == '\t'))
    s.begin++;
  while (s.end > s.begin && (s.end[-1] == ' ' || s.end[-1] == '\t' || s.end[-1] == '\r'))
    s.end--;
  return s;
}

static int is(span s, const char *word) {
  const size_t n = strlen(word);
  return (size_t)(s.end - s.begin) == n && memcmp(s.begin, word, n) == 0;
}

static void copy(span s, char *to, size_t capacity) {
  const size_t n = (size_t)(s.end - s.begin) < capacity - 1 ? (size_t)(s.end - s.begin) : capacity - 1;
  memcpy(to, s.begin, n);
  to[n] = 0;
}

/* ---- a shape and its sweep ---- */

/* A key with its alternatives, each a text: a number, a word, "sq" (another key's value), "16384/b". */
typedef struct key {
  span name;
  int swept; /* has several values, which then stand in the shape's name */
  int count;
  char value[VALUES_MOST][32];
} key;

typedef struct sweep {
  int count;
  key keys[KEYS_MOST];
} sweep;

static int grow(bench_shapes *out) {
  if (out->count < out->capacity)
    return CLI_OK;
  const size_t capacity = out->capacity > 0 ? 2 * out->capacity : 32;
  bench_shape *grown = realloc(out->shape, capacity * sizeof *grown);
  if (grown == NULL)
    return cli_fail_memory();
  out->shape = grown;
  out->capacity = capacity;
  return CLI_OK;
}

void bench_shapes_free(bench_shapes *shapes) {
  free(shapes->shape);
  memset(shapes, 0, sizeof *shapes);
}

/* `at` is the value's place in the text, which a number of a range does not have itself. */
static int add_value(const text *t, const char *at, key *k, span value) {
  if (value.begin == value.end)
    return wrong(t, at, "a value is missing", (span){k->name.begin, value.end});
  if (k->count == VALUES_MOST)
    return wrong(t, at, "more than 64 values of one key", value);
  if ((size_t)(value.end - value.begin) >= sizeof k->value[0])
    return wrong(t, at, "a value is too long", value);
  copy(value, k->value[k->count++], sizeof k->value[0]);
  return CLI_OK;
}

/* "512..65536:x2", "0..64:+16". */
static int add_range(const text *t, key *k, span value, const char *dots) {
  int64_t first = 0, last = 0, step = 0;
  char from[32], to[32], by[32];
  const char *colon = memchr(dots, ':', (size_t)(value.end - dots));
  if (colon == NULL)
    return wrong(t, value.begin, "a range needs its step, as in 512..4096:x2 or 16..64:+16", value);
  copy((span){value.begin, dots}, from, sizeof from);
  copy((span){dots + 2, colon}, to, sizeof to);
  copy((span){colon + 1, value.end}, by, sizeof by);
  if (!cli_parse_int64(from, &first) || !cli_parse_int64(to, &last) || (by[0] != 'x' && by[0] != '+') ||
      !cli_parse_int64(by + 1, &step) || first < 1 || last < first || step < (by[0] == 'x' ? 2 : 1))
    return wrong(t, value.begin, "no range: it is FIRST..LAST:xFACTOR or FIRST..LAST:+STEP, from 1 on", value);
  k->swept = 1;
  for (int64_t n = first; n <= last;) {
    char number[32];
    const int length = snprintf(number, sizeof number, "%" PRId64, n);
    const int code = add_value(t, value.begin, k, (span){number, number + length});
    if (code != CLI_OK)
      return code;
    if (by[0] == 'x' ? n > INT64_MAX / step : n > INT64_MAX - step)
      break;
    n = by[0] == 'x' ? n * step : n + step;
  }
  return CLI_OK;
}

static int take_value(const text *t, key *k, span value) {
  for (const char *c = value.begin; c + 1 < value.end; c++)
    if (c[0] == '.' && c[1] == '.')
      return add_range(t, k, value, c);
  return add_value(t, value.begin, k, value);
}

/* Keys whose value is itself a list. */
static int takes_list(span name) {
  return is(name, "window") || is(name, "out");
}

static int read_sweep(const text *t, span all, sweep *s) {
  s->count = 0;
  for (const char *at = all.begin; at <= all.end;) {
    const char *comma = memchr(at, ',', (size_t)(all.end - at));
    const span word = trim((span){at, comma != NULL ? comma : all.end});
    const char *equals = memchr(word.begin, '=', (size_t)(word.end - word.begin));
    key *last = s->count > 0 ? &s->keys[s->count - 1] : NULL;
    int code = CLI_OK;
    if (equals == NULL && last == NULL)
      return wrong(t, word.begin, "KEY=VALUE is needed", word);
    if (equals == NULL && takes_list(last->name)) {
      char joined[sizeof last->value[0]], more[sizeof last->value[0]];
      copy(word, more, sizeof more);
      const int length = snprintf(joined, sizeof joined, "%s,%s", last->value[0], more);
      if (length < 0 || (size_t)length >= sizeof joined)
        return wrong(t, word.begin, "a value is too long", word);
      memcpy(last->value[0], joined, sizeof joined);
    } else if (equals == NULL) {
      last->swept = 1;
      code = take_value(t, last, word);
    } else {
      if (s->count == KEYS_MOST)
        return wrong(t, word.begin, "more than 24 keys", word);
      key *k = &s->keys[s->count++];
      memset(k, 0, sizeof *k);
      k->name = trim((span){word.begin, equals});
      for (int i = 0; i + 1 < s->count; i++)
        if ((size_t)(s->keys[i].name.end - s->keys[i].name.begin) == (size_t)(k->name.end - k->name.begin) &&
            memcmp(s->keys[i].name.begin, k->name.begin, (size_t)(k->name.end - k->name.begin)) == 0)
          return wrong(t, word.begin, "a key is given twice", word);
      code = take_value(t, k, trim((span){equals + 1, word.end}));
    }
    if (code != CLI_OK)
      return code;
    if (comma == NULL)
      break;
    at = comma + 1;
  }
  return CLI_OK;
}

/* The value of a key in one member of the sweep; texts that name another key are followed, but no cycle: that ends as a
 * text that no problem line takes. */
static const char *value_of(const sweep *s, const int *choice, int index, int depth, char scratch[32]) {
  const char *value = s->keys[index].value[choice[index]];
  const char *slash = strchr(value, '/');
  int64_t number = 0, by = 0;
  for (int i = 0; i < s->count; i++) {
    if (i == index)
      continue;
    if (slash == NULL && depth < KEYS_MOST && is(s->keys[i].name, value))
      return value_of(s, choice, i, depth + 1, scratch);
    if (slash != NULL && is(s->keys[i].name, slash + 1)) {
      char head[32];
      copy((span){value, slash}, head, sizeof head);
      if (cli_parse_int64(head, &number) && cli_parse_int64(s->keys[i].value[choice[i]], &by) && by > 0) {
        snprintf(scratch, 32, "%" PRId64, number / by);
        return scratch;
      }
    }
  }
  return value;
}

/* Keys that a filter names must have its values. */
static int passes(const sweep *s, const int *choice, const sweep *filter) {
  for (int f = 0; filter != NULL && f < filter->count; f++) {
    int found = 0;
    for (int i = 0; i < s->count; i++) {
      char scratch[32], name[32];
      copy(s->keys[i].name, name, sizeof name);
      if (!is(filter->keys[f].name, name))
        continue;
      for (int v = 0; v < filter->keys[f].count; v++)
        found |= strcmp(value_of(s, choice, i, 0, scratch), filter->keys[f].value[v]) == 0;
    }
    if (!found)
      return 0;
  }
  return 1;
}

/* What a shape gets beside its keys. */
typedef struct labels {
  span suite, name, source;
} labels;

static int add_member(const text *t, const char *at, const sweep *s, const int *choice, const labels *l,
                      bench_shapes *out) {
  char line[BENCH_LINE_BYTES], name[BENCH_NAME_BYTES];
  size_t used = 0;
  clattn_error error;
  const int code = grow(out);
  if (code != CLI_OK)
    return code;
  bench_shape *shape = &out->shape[out->count];
  memset(shape, 0, sizeof *shape);
  copy(l->suite, shape->suite, sizeof shape->suite);
  copy(l->source, shape->source, sizeof shape->source);
  copy(l->name, name, sizeof name);
  snprintf(shape->name, sizeof shape->name, "%s", name);
  for (int i = 0; i < s->count; i++) {
    char scratch[32], word[32];
    copy(s->keys[i].name, word, sizeof word);
    const char *value = value_of(s, choice, i, 0, scratch);
    const int length = snprintf(line + used, sizeof line - used, "%s%s=%s", i > 0 ? " " : "", word, value);
    if (length < 0 || used + (size_t)length >= sizeof line)
      return wrong(t, at, "a shape is too long", l->name);
    used += (size_t)length;
    if (s->keys[i].swept) {
      const size_t n = strlen(shape->name);
      snprintf(shape->name + n, sizeof shape->name - n, "%s%s=%s", n > 0 ? " " : "", word, value);
    }
  }
  clattn_error_init(&error);
  if (clattn_problem_parse(line, &shape->problem, &error) != CLATTN_SUCCESS ||
      clattn_problem_check(&shape->problem, &error) != CLATTN_SUCCESS)
    return wrong(t, at, error.message, (span){line, line + strlen(line)});
  if (clattn_problem_format(&shape->problem, shape->line, sizeof shape->line, NULL) != CLATTN_SUCCESS)
    return wrong(t, at, "a shape's line is too long", l->name);
  if (shape->name[0] == 0)
    snprintf(shape->name, sizeof shape->name, "shape %zu", out->count + 1);
  out->count++;
  return CLI_OK;
}

static int add_members(const text *t, const char *at, const sweep *s, const sweep *filter, const labels *l,
                       bench_shapes *out) {
  int choice[KEYS_MOST] = {0};
  int64_t members = 1;
  for (int i = 0; i < s->count; i++) {
    members *= s->keys[i].count;
    if (members > SWEEP_MOST) /* also where a filter leaves few of them */
      return wrong(t, at, "a sweep of more than 65536 shapes", l->name);
  }
  for (;;) {
    if (passes(s, choice, filter)) {
      if (out->count >= SHAPES_MOST)
        return wrong(t, at, "more than 4096 shapes", l->name);
      const int code = add_member(t, at, s, choice, l, out);
      if (code != CLI_OK)
        return code;
    }
    int i = 0;
    while (i < s->count && ++choice[i] == s->keys[i].count)
      choice[i++] = 0;
    if (i == s->count)
      return CLI_OK;
  }
}

int bench_sweep_add(const char *given, bench_shapes *out) {
  static sweep s; /* large */
  const text t = {"--shape", given, given + strlen(given), 0};
  const span all = {t.begin, t.end}, none = {t.end, t.end};
  const labels l = {none, none, none};
  const int code = read_sweep(&t, all, &s);
  return code == CLI_OK ? add_members(&t, t.begin, &s, NULL, &l, out) : code;
}

int bench_problem_add(const char *line, bench_shapes *out) {
  clattn_error error;
  const int code = grow(out);
  if (code != CLI_OK)
    return code;
  bench_shape *shape = &out->shape[out->count];
  memset(shape, 0, sizeof *shape);
  clattn_error_init(&error);
  if (clattn_problem_parse(line, &shape->problem, &error) != CLATTN_SUCCESS ||
      clattn_problem_check(&shape->problem, &error) != CLATTN_SUCCESS)
    return cli_fail(CLI_USAGE, "--problem: %s", error.message);
  if (clattn_problem_format(&shape->problem, shape->line, sizeof shape->line, NULL) != CLATTN_SUCCESS)
    return cli_fail(CLI_USAGE, "--problem: the line is too long");
  snprintf(shape->name, sizeof shape->name, "problem %zu", out->count + 1);
  out->count++;
  return CLI_OK;
}

/* ---- a table ---- */

/* The next line of a text without its comment; 0 at the end. */
static int next_line(const text *t, const char **at, span *line) {
  if (*at >= t->end)
    return 0;
  const char *stop = memchr(*at, '\n', (size_t)(t->end - *at));
  stop = stop != NULL ? stop : t->end;
  const char *hash = memchr(*at, '#', (size_t)(stop - *at));
  *line = trim((span){*at, hash != NULL ? hash : stop});
  *at = stop < t->end ? stop + 1 : t->end;
  return 1;
}

static int is_heading(const text *t, span line, span *name, int *code) {
  *code = CLI_OK;
  if (line.begin == line.end || *line.begin != '[')
    return 0;
  if (line.end[-1] != ']' || line.end - line.begin < 3)
    *code = wrong(t, line.begin, "no [suite]", line);
  *name = trim((span){line.begin + 1, line.end - 1});
  return 1;
}

static int same(span a, span b) {
  return a.end - a.begin == b.end - b.begin && memcmp(a.begin, b.begin, (size_t)(a.end - a.begin)) == 0;
}

static int add_matching(const text *t, span wanted, const sweep *filter, int depth, int *found, bench_shapes *out);

/* "@name [KEY=VALUE ...]": shapes that stand elsewhere in the table. */
static int add_reference(const text *t, span line, int depth, bench_shapes *out) {
  sweep *filter = NULL;
  int found = 0, code = CLI_OK;
  const char *blank = memchr(line.begin, ' ', (size_t)(line.end - line.begin));
  const span name = {line.begin + 1, blank != NULL ? blank : line.end};
  if (depth == NESTED_MOST)
    return wrong(t, line.begin, "suites name each other more than four deep", line);
  if (blank != NULL) {
    char *words = malloc((size_t)(line.end - blank) + 1);
    filter = malloc(sizeof *filter);
    if (words == NULL || filter == NULL) {
      free(words);
      free(filter);
      return cli_fail_memory();
    }
    const span rest = trim((span){blank, line.end});
    copy(rest, words, (size_t)(line.end - blank) + 1);
    for (char *c = words; *c != 0; c++)
      *c = (char)(*c == ' ' ? ',' : *c);
    const text inner = {t->from, words, words + strlen(words), 0};
    code = read_sweep(&inner, (span){inner.begin, inner.end}, filter);
    if (code == CLI_OK)
      code = add_matching(t, name, filter, depth + 1, &found, out);
    free(words);
  } else {
    code = add_matching(t, name, NULL, depth + 1, &found, out);
  }
  free(filter);
  if (code == CLI_OK && !found)
    return wrong(t, line.begin, "no suite or shape of this name, or none with these values", line);
  return code;
}

/* Where all of a file is taken, references add nothing, and still must lead somewhere. */
static int check_reference(const text *t, span line) {
  bench_shapes aside;
  memset(&aside, 0, sizeof aside);
  const int code = add_reference(t, line, 0, &aside);
  bench_shapes_free(&aside);
  return code;
}

static int add_line(const text *t, span line, span suite, const sweep *filter, bench_shapes *out) {
  const char *first = memchr(line.begin, '|', (size_t)(line.end - line.begin));
  const char *second = first != NULL ? memchr(first + 1, '|', (size_t)(line.end - first - 1)) : NULL;
  if (first == NULL || second == NULL)
    return wrong(t, line.begin, "no 'name | keys | source'", line);
  const labels l = {suite, trim((span){line.begin, first}), trim((span){second + 1, line.end})};
  const span keys = trim((span){first + 1, second});
  if (l.name.begin == l.name.end || l.source.begin == l.source.end)
    return wrong(t, line.begin, "a shape needs a name and a source", line);
  sweep *s = malloc(sizeof *s);
  if (s == NULL)
    return cli_fail_memory();
  int code = read_sweep(t, keys, s);
  if (code == CLI_OK)
    code = add_members(t, keys.begin, s, filter, &l, out);
  free(s);
  return code;
}

/* Shapes whose suite or own name is `wanted`; an empty one takes all lines that are no references. */
static int add_matching(const text *t, span wanted, const sweep *filter, int depth, int *found, bench_shapes *out) {
  const char *at = t->begin;
  span line, suite = {t->begin, t->begin};
  int code = CLI_OK;
  const int everything = wanted.begin == wanted.end;
  const size_t before = out->count;
  while (code == CLI_OK && next_line(t, &at, &line)) {
    if (line.begin == line.end || is_heading(t, line, &suite, &code))
      continue;
    const char *bar = memchr(line.begin, '|', (size_t)(line.end - line.begin));
    const int of_suite = same(suite, wanted);
    if (*line.begin == '@') {
      if (of_suite)
        code = add_reference(t, line, depth, out);
      else if (everything && depth == 0)
        code = check_reference(t, line);
    } else if (of_suite || everything || (bar != NULL && same(trim((span){line.begin, bar}), wanted))) {
      code = add_line(t, line, suite, filter, out);
    }
  }
  *found |= out->count > before;
  return code;
}

static const text *built_in(void) {
  static text t;
  t.from = "bench/suites.txt";
  t.begin = (const char *)bench_suites_text;
  t.end = t.begin + bench_suites_size;
  t.numbered = 1;
  return &t;
}

const char *bench_suite_name(size_t n) {
  static char names[SUITES_MOST][BENCH_NAME_BYTES];
  const text *t = built_in();
  const char *at = t->begin;
  span line, suite = {t->begin, t->begin};
  size_t count = 0;
  int code = CLI_OK;
  while (count < SUITES_MOST && next_line(t, &at, &line))
    if (is_heading(t, line, &suite, &code))
      copy(suite, names[count++], sizeof names[0]);
  return n < count ? names[n] : NULL;
}

static int add_from_file(const char *path, const char *name, bench_shapes *out) {
  char *content = NULL, from[300];
  size_t length = 0;
  int found = 0;
  int code = cli_read_file("suite", path, &content, &length);
  if (code != CLI_OK)
    return code;
  snprintf(from, sizeof from, "--suite: %s", path);
  const text t = {from, content, content + length, 1};
  if (name != NULL) {
    code = add_matching(&t, (span){name, name + strlen(name)}, NULL, 0, &found, out);
  } else {
    static const char usual[] = "default";
    code = add_matching(&t, (span){usual, usual + sizeof usual - 1}, NULL, 0, &found, out);
    if (code == CLI_OK && !found)
      code = add_matching(&t, (span){usual, usual}, NULL, 0, &found, out);
  }
  if (code == CLI_OK && !found)
    code = cli_fail(CLI_USAGE, "--suite: %s: %s%s", path, name != NULL ? "there is no suite or shape " : "no shapes",
                    name != NULL ? name : "");
  free(content);
  return code;
}

int bench_suite_add(const char *which, bench_shapes *out) {
  const char *name = which != NULL ? which : "default";
  int found = 0;
  if (strchr(name, '/') != NULL || strchr(name, '.') != NULL) {
    const char *colon = strrchr(name, ':');
    if (colon == NULL)
      return add_from_file(name, NULL, out);
    char *path = strdup(name);
    if (path == NULL)
      return cli_fail_memory();
    path[colon - name] = 0;
    const int code = add_from_file(path, colon + 1, out);
    free(path);
    return code;
  }
  const int code = add_matching(built_in(), (span){name, name + strlen(name)}, NULL, 0, &found, out);
  if (code != CLI_OK || found)
    return code;
  const char *names[SUITES_MOST];
  size_t count = 0;
  while (count < SUITES_MOST && bench_suite_name(count) != NULL) {
    names[count] = bench_suite_name(count);
    count++;
  }
  const char *near = cli_nearest(name, names, count);
  return cli_fail(CLI_USAGE, "--suite: there is no suite '%s'%s%s%s; 'clattn bench --list' shows them", name,
                  near != NULL ? "; did you mean '" : "", near != NULL ? near : "", near != NULL ? "'?" : "");
}
