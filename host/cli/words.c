/* SPDX-License-Identifier: Apache-2.0 */
#include "words.h"

#include <stdlib.h>
#include <string.h>

#include "cli.h"

/* Whether an option's value is the next word. */
static int takes_next(const char *word, const struct option *longs) {
  if (strncmp(word, "--", 2) != 0 || strchr(word, '=') != NULL)
    return 0;
  for (; longs->name != NULL; longs++)
    if (longs->has_arg == required_argument && strcmp(word + 2, longs->name) == 0)
      return 1;
  return 0;
}

int cli_take_words(int argc, char **argv, const struct option *longs, char ***words, int *option_count, char ***first,
                   int *word_count) {
  char **all = calloc((size_t)argc + 2, sizeof *all), **plain = calloc((size_t)argc + 1, sizeof *plain);
  int options = 0, count = 0, ended = 0;
  if (all == NULL || plain == NULL) {
    free(all);
    free(plain);
    return cli_fail_memory();
  }
  all[options++] = argv[0];
  for (int i = 1; i < argc; i++) {
    if (ended || argv[i][0] != '-') {
      plain[count++] = argv[i];
    } else if (strcmp(argv[i], "--") == 0) {
      ended = 1;
    } else {
      all[options++] = argv[i];
      if (takes_next(argv[i], longs) && i + 1 < argc)
        all[options++] = argv[++i];
    }
  }
  memcpy(all + options + 1, plain, (size_t)count * sizeof *plain); /* behind the NULL that ends the options */
  free(plain);
  *words = all;
  *option_count = options;
  *first = all + options + 1;
  *word_count = count;
  return CLI_OK;
}
