/* SPDX-License-Identifier: Apache-2.0 */
/* Words of the command line that are no options. */
#ifndef CLATTN_CLI_WORDS_H
#define CLATTN_CLI_WORDS_H

#include <getopt.h>

/* Parts argv (argv[0] is the command) into options with their values, which keep their order, and words, which follow
 * the last option in a new array: *words (malloc'ed, to be freed; its first part is an argv for cli_next_option,
 * NULL-ended, of *option_count entries), *first the first of *word_count words.  "--" ends the options: what follows
 * are words, whatever they look like. */
int cli_take_words(int argc, char **argv, const struct option *longs, char ***words, int *option_count, char ***first,
                   int *word_count);

#endif
