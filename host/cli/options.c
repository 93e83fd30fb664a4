/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "options.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

enum { OPTIONS_MOST = 128 };

/* Edit distance, for words up to 31 characters. */
static size_t distance(const char *a, const char *b) {
  const size_t n = strlen(a), m = strlen(b);
  size_t row[32];
  if (n > 31 || m > 31)
    return 99;
  for (size_t j = 0; j <= m; j++)
    row[j] = j;
  for (size_t i = 1; i <= n; i++) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= m; j++) {
      const size_t change = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = row[j] + 1 < row[j - 1] + 1 ? row[j] + 1 : row[j - 1] + 1;
      if (change < row[j])
        row[j] = change;
    }
  }
  return row[m];
}

const char *cli_nearest(const char *word, const char *const *words, size_t count) {
  const char *best = NULL;
  size_t best_distance = strlen(word) / 3 + 2;
  for (size_t i = 0; i < count; i++) {
    const size_t d = distance(word, words[i]);
    if (d < best_distance) {
      best_distance = d;
      best = words[i];
    }
  }
  return best;
}

static int unknown_option(const char *command, const char *word, const struct option *longs) {
  const char *names[OPTIONS_MOST];
  char name[64];
  size_t count = 0;
  while (count < OPTIONS_MOST && longs[count].name != NULL) {
    names[count] = longs[count].name;
    count++;
  }
  snprintf(name, sizeof name, "%s", word + strspn(word, "-"));
  name[strcspn(name, "=")] = 0;
  const char *near = cli_nearest(name, names, count);
  if (near != NULL)
    cli_fail(CLI_USAGE, "%s: unknown option '%s'; did you mean --%s? See 'clattn %s --help'", command, word, near,
             command);
  else
    cli_fail(CLI_USAGE, "%s: unknown option '%s'; see 'clattn %s --help'", command, word, command);
  return '?';
}

int cli_next_option(int argc, char **argv, const struct option *longs) {
  static unsigned char given[OPTIONS_MOST]; /* of longs */
  int which = -1;
  opterr = 0;
  const int at = optind;
  const int option = getopt_long(argc, argv, "+:", longs, &which);
  if (option == -1) {
    if (optind >= argc)
      return -1;
    cli_fail(CLI_USAGE, "%s: '%s' is not an option; see 'clattn %s --help'", argv[0], argv[optind], argv[0]);
    return '?';
  }
  if (option == ':') {
    cli_fail(CLI_USAGE, "%s: %s needs a value; see 'clattn %s --help'", argv[0], argv[at], argv[0]);
    return '?';
  }
  if (option == '?') {
    /* getopt says the same for an unknown name, an ambiguous one, and a value that is not wanted. */
    const char *equals = strchr(argv[at], '=');
    for (size_t i = 0; equals != NULL && longs[i].name != NULL; i++) {
      const size_t n = (size_t)(equals - argv[at]);
      if (n > 2 && strncmp(argv[at] + 2, longs[i].name, n - 2) == 0 && longs[i].name[n - 2] == 0) {
        cli_fail(CLI_USAGE, "%s: --%s takes no value", argv[0], longs[i].name);
        return '?';
      }
    }
    return unknown_option(argv[0], argv[at], longs);
  }
  if (which >= 0 && which < OPTIONS_MOST && option < CLI_REPEATABLE) {
    if (given[which]) {
      cli_fail(CLI_USAGE, "%s: --%s is given twice", argv[0], longs[which].name);
      return '?';
    }
    given[which] = 1;
  }
  return option;
}

char **cli_join_causal(int *argc, char **argv, char **storage) {
  static const char *const names[] = {"--causal", "--heatmap"};
  size_t bytes = 1;
  for (int i = 0; i < *argc; i++)
    bytes += strlen(argv[i]) + 2;
  char **joined = calloc((size_t)*argc + 1, sizeof *joined);
  char *at = malloc(bytes);
  *storage = at;
  if (joined == NULL || at == NULL) {
    free(joined);
    free(at);
    *storage = NULL;
    return NULL;
  }
  int count = 0;
  for (int i = 0; i < *argc; i++) {
    joined[count] = argv[i];
    for (size_t n = 0; n < sizeof names / sizeof names[0] && i + 1 < *argc; n++) {
      if (strcmp(argv[i], names[n]) == 0 && argv[i + 1][0] != '-') {
        joined[count] = at;
        at += snprintf(at, strlen(names[n]) + strlen(argv[i + 1]) + 2, "%s=%s", names[n], argv[i + 1]) + 1;
        i++;
        break;
      }
    }
    count++;
  }
  *argc = count;
  return joined;
}

int cli_parse_int64(const char *text, int64_t *value) {
  char *end = NULL;
  errno = 0;
  const long long parsed = strtoll(text, &end, 10);
  if (end == text || *end != 0 || errno != 0 || strchr(" \t\n", text[0]) != NULL)
    return 0;
  *value = parsed;
  return 1;
}

int cli_parse_bytes(const char *text, uint64_t *value) {
  char *end = NULL;
  unsigned shift = 0;
  if (text[0] < '0' || text[0] > '9')
    return 0;
  errno = 0;
  const unsigned long long parsed = strtoull(text, &end, 10);
  if (*end != 0 && end[1] == 0) {
    shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    end += shift != 0;
  }
  if (*end != 0 || errno != 0 || parsed > (UINT64_MAX >> shift))
    return 0;
  *value = (uint64_t)parsed << shift;
  return 1;
}

static int apply_causal(const cli_rules *rules, int64_t queries, int64_t keys, clattn_problem *problem) {
  if (rules->alignment != NULL && strcmp(rules->alignment, "top-left") != 0 &&
      strcmp(rules->alignment, "bottom-right") != 0)
    return cli_fail(CLI_USAGE, "--causal takes top-left or bottom-right, not '%s'", rules->alignment);
  if (rules->alignment != NULL && rules->offset != NULL)
    return cli_fail(CLI_USAGE, "--query-offset and --causal %s both say where the queries stand: give one of them",
                    rules->alignment);
  if (rules->offset != NULL) {
    if (!cli_parse_int64(rules->offset, &problem->offset))
      return cli_fail(CLI_USAGE, "--query-offset: '%s' is not an integer", rules->offset);
    problem->offset_mode = CLATTN_OFFSET_VALUE;
  }
  if (!rules->causal)
    return CLI_OK;
  if (rules->alignment == NULL && rules->offset == NULL && queries != keys)
    return cli_fail(CLI_USAGE,
                    "--causal is ambiguous for %" PRId64 " queries and %" PRId64
                    " keys: say --causal top-left (query 0 sees key 0) or --causal bottom-right (the last query sees "
                    "the last key), or give --query-offset N",
                    queries, keys);
  problem->causal = 1;
  if (rules->alignment != NULL && rules->alignment[0] == 'b')
    problem->offset_mode = CLATTN_OFFSET_BOTTOM_RIGHT;
  return CLI_OK;
}

/* One side of "L,R": a count or inf. */
static int window_side(const char *text, uint32_t bit, clattn_problem *problem, int64_t *side) {
  if (strcmp(text, "inf") == 0)
    return 1;
  if (!cli_parse_int64(text, side) || *side < 0)
    return 0;
  problem->window |= bit;
  return 1;
}

static int apply_window(const char *text, clattn_problem *problem) {
  char left[32];
  const char *comma = strchr(text, ',');
  const size_t n = comma != NULL ? (size_t)(comma - text) : 0;
  if (comma != NULL && n < sizeof left) {
    memcpy(left, text, n);
    left[n] = 0;
    if (window_side(left, CLATTN_WINDOW_LEFT, problem, &problem->window_left) &&
        window_side(comma + 1, CLATTN_WINDOW_RIGHT, problem, &problem->window_right))
      return CLI_OK;
  }
  return cli_fail(CLI_USAGE, "--window takes two counts >= 0 or inf, as in 128,0 or inf,0; not '%s'", text);
}

int cli_take_float(const char *option, const char *text, float *value) {
  char *end = NULL;
  errno = 0;
  const float parsed = strtof(text, &end);
  if (end == text || *end != 0 || strchr(" \t\n", text[0]) != NULL)
    return cli_fail(CLI_USAGE, "--%s: '%s' is not a number", option, text);
  /* 0 and infinity have meanings of their own. */
  if (errno == ERANGE && (parsed == 0 || isinf(parsed)))
    return cli_fail(CLI_USAGE, "--%s: '%s' is too %s for a float", option, text, parsed == 0 ? "small" : "large");
  *value = parsed;
  return CLI_OK;
}

static int apply_alibi(const char *text, clattn_problem *problem) {
  if (strcmp(text, "signed") == 0)
    problem->alibi = CLATTN_ALIBI_SIGNED;
  else if (strcmp(text, "symmetric") == 0)
    problem->alibi = CLATTN_ALIBI_SYMMETRIC;
  else
    return cli_fail(CLI_USAGE, "--alibi takes signed or symmetric, not '%s'", text);
  return CLI_OK;
}

/* The place of a text among words, as the enums count them. */
static int take_word(const char *option, const char *text, const char *const words[3], int32_t *value) {
  for (int32_t i = 0; i < 3; i++) {
    if (strcmp(text, words[i]) == 0) {
      *value = i;
      return CLI_OK;
    }
  }
  return cli_fail(CLI_USAGE, "--%s takes %s, %s or %s, not '%s'", option, words[0], words[1], words[2], text);
}

int cli_rules_apply(const cli_rules *rules, int64_t queries, int64_t keys, clattn_problem *problem) {
  int code = apply_causal(rules, queries, keys, problem);
  if (code == CLI_OK && rules->window != NULL)
    code = apply_window(rules->window, problem);
  if (code == CLI_OK && rules->scale != NULL) {
    problem->scale_mode = CLATTN_SCALE_VALUE;
    code = cli_take_float("scale", rules->scale, &problem->scale);
  }
  if (code == CLI_OK && rules->softcap != NULL)
    code = cli_take_float("softcap", rules->softcap, &problem->softcap);
  if (code == CLI_OK && rules->alibi != NULL)
    code = apply_alibi(rules->alibi, problem);
  if (code == CLI_OK && rules->chunk != NULL && (!cli_parse_int64(rules->chunk, &problem->chunk) || problem->chunk < 1))
    code = cli_fail(CLI_USAGE, "--chunk takes a number of keys >= 1, not '%s'", rules->chunk);
  static const char *const similarities[3] = {"dot", "cosine", "additive"};
  static const char *const maths[3] = {"exact", "half", "tf32"};
  if (code == CLI_OK && rules->similarity != NULL)
    code = take_word("similarity", rules->similarity, similarities, &problem->similarity);
  if (code == CLI_OK && rules->math != NULL)
    code = take_word("math", rules->math, maths, &problem->math);
  if (rules->batch_invariant)
    problem->flags |= CLATTN_BATCH_INVARIANT;
  return code;
}

int cli_print_help(const char *text) {
  fputs(text, stdout);
  return CLI_OK;
}

/* Bytes of the UTF-8 character at text; 0 when there is none. */
static size_t character(const unsigned char *text) {
  const unsigned char c = text[0];
  const size_t length = c < 0x80                ? 1
                        : c >= 0xc2 && c < 0xe0 ? 2
                        : c >= 0xe0 && c < 0xf0 ? 3
                        : c >= 0xf0 && c < 0xf5 ? 4
                                                : 0;
  for (size_t i = 1; i < length; i++) {
    if ((text[i] & 0xc0) != 0x80)
      return 0;
  }
  /* Longer than needed, a surrogate, or above U+10FFFF. */
  if ((c == 0xe0 && text[1] < 0xa0) || (c == 0xed && text[1] > 0x9f) || (c == 0xf0 && text[1] < 0x90) ||
      (c == 0xf4 && text[1] > 0x8f))
    return 0;
  return length;
}

/* JSON is UTF-8; paths are bytes.  Every byte that is no part of a character becomes U+FFFD. */
static void print_utf8(const char *text) {
  while (*text != 0) {
    const size_t length = character((const unsigned char *)text);
    if (length > 0)
      fwrite(text, 1, length, stdout);
    else
      fputs("\xef\xbf\xbd", stdout);
    text += length > 0 ? length : 1;
  }
}

int cli_print_json(const struct cJSON *root) {
  char *text = cJSON_Print(root);
  if (text == NULL)
    return cli_fail_memory();
  print_utf8(text);
  putchar('\n');
  cJSON_free(text);
  return CLI_OK;
}

int cli_flush(int code) {
  if (fflush(stdout) != 0 || ferror(stdout))
    return code != CLI_OK ? code : cli_fail(CLI_FAILED, "standard output can't be written");
  return code;
}
