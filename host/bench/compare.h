/* SPDX-License-Identifier: Apache-2.0 */
/* Saved runs side by side. */
#ifndef CLATTN_BENCH_COMPARE_H
#define CLATTN_BENCH_COMPARE_H

#include <stdio.h>

#include "row.h"

enum { BENCH_COMPARE_MOST = 8 };

/* Rows joined by problem and pass, times and how fast each run is against the first, the geometric mean over what all
 * have, and marks on rows that were not measured alike.  A run's fastest variant stands for it; by_variant: every
 * variant of a problem has a row of its own.  Returns CLI_OK, or CLI_USAGE when no row is in more than one run. */
int bench_compare_print(FILE *out, const bench_run *const *runs, int count, const char *const *names, int by_variant);

#endif
