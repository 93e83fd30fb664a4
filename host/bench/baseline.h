/* SPDX-License-Identifier: Apache-2.0 */
/* A run against a saved one.  Speeds are compared as percent of the bound, whose peaks each run measured itself: a clock
 * that was lower all the time cancels. */
#ifndef CLATTN_BENCH_BASELINE_H
#define CLATTN_BENCH_BASELINE_H

#include <stdio.h>

#include "row.h"

typedef enum bench_verdict {
  BENCH_SAME, /* within the threshold */
  BENCH_FASTER,
  BENCH_SLOWER,
  BENCH_TOO_NOISY,      /* too noisy to judge: the quartiles of the two leave both answers open */
  BENCH_NOT_COMPARABLE, /* another device, driver, way of timing or kind of inputs */
  BENCH_MISSING         /* nothing on one of the two sides */
} bench_verdict;

typedef struct bench_judgement {
  bench_verdict verdict;
  const bench_row *before; /* the baseline's row; NULL: none */
  double speed;            /* of the baseline's, measured by their bounds: 0.93 is 7 % slower; 0: not known */
  double least, most;      /* what the quartiles of both allow */
  char why[BENCH_TEXT_BYTES];
} bench_judgement;

const char *bench_verdict_word(bench_verdict verdict);

/* The fastest row of a problem, pass and variant.  NULL: none that is right and timed. */
const bench_row *bench_find(const bench_run *run, const char *line, const char *pass, const char *variant);
/* The same of whatever variant. */
const bench_row *bench_fastest(const bench_run *run, const char *line, const char *pass);

/* Row `at` of the run against the baseline's of the same problem, pass and variant.  Where the baseline lacks the variant,
 * the fastest row of the run is compared with the baseline's: what selection picks may change.  percent is the
 * threshold. */
void bench_baseline_judge(const bench_run *baseline, const bench_run *run, size_t at, double percent,
                          bench_judgement *out);
/* 1: measure the row again before anything is said of it (slower, or too noisy). */
int bench_baseline_suspect(const bench_judgement *judgement);
/* Puts the better of the two measurements into *row: what disturbs only makes slower.  A repetition that is wrong or
 * failed counts. */
void bench_baseline_keep(bench_row *row, const bench_row *again);

/* The table of verdicts; returns the number of rows that are slower. */
size_t bench_baseline_print(FILE *out, const bench_run *baseline, const char *name, const bench_run *run,
                            double percent);

#endif
