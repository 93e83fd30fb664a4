/* SPDX-License-Identifier: Apache-2.0 */
/* Option parsing shared by the commands. */
#ifndef CLATTN_CLI_OPTIONS_H
#define CLATTN_CLI_OPTIONS_H

#include <getopt.h>
#include <stdint.h>

#include "clattn.h"

/* getopt_long with our own messages: the next option's value, -1 at the end, '?' after an error that was printed (a
 * word that is no option, or an option given twice, is one).  Options are long ones only, at most 128; those whose
 * value is CLI_REPEATABLE or above may be given again. */
enum { CLI_REPEATABLE = 1000 };
int cli_next_option(int argc, char **argv, const struct option *longs);
/* The nearest of the words, NULL when none is near. */
const char *cli_nearest(const char *word, const char *const *words, size_t count);
/* Makes every "--causal top-left" and "--heatmap F" one word, since getopt takes an optional value only behind '='.
 * Returns a new NULL-ended argv (malloc'ed, with *storage, which both must be freed after use), or NULL without
 * memory. */
char **cli_join_causal(int *argc, char **argv, char **storage);

/* Whole-text numbers; 0 unless the text is one.  */
int cli_parse_int64(const char *text, int64_t *value);
/* Prints and returns the exit code; "inf" and "nan" are numbers. */
int cli_take_float(const char *option, const char *text, float *value);
/* Bytes, with an optional K, M or G (powers of 1024). */
int cli_parse_bytes(const char *text, uint64_t *value);

/* Text of a problem's rule options, applied to a problem whose sizes are set. */
typedef struct cli_rules {
  int causal;            /* --causal was given */
  const char *alignment; /* its value: "top-left", "bottom-right" or NULL */
  const char *offset, *window, *scale, *softcap, *alibi, *chunk, *similarity, *math;
  int batch_invariant;
} cli_rules;
/* queries, keys: of a batch entry, one that has not as many of both where there is such a one. */
int cli_rules_apply(const cli_rules *rules, int64_t queries, int64_t keys, clattn_problem *problem);

int cli_print_help(const char *text);
/* Prints and returns the exit code; cJSON. */
struct cJSON;
int cli_print_json(const struct cJSON *root);
/* stdout is flushed; what could not be written makes the exit code 1. */
int cli_flush(int code);

#endif
