/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes to run: from the table bench/suites.txt, which the program holds, from a file like it, and from the command line.
 * The table's own head describes the format. */
#ifndef CLATTN_BENCH_SUITE_H
#define CLATTN_BENCH_SUITE_H

#include "row.h"

typedef struct bench_shapes {
  bench_shape *shape;
  size_t count, capacity;
} bench_shapes;

void bench_shapes_free(bench_shapes *shapes);

/* The suite of this name in the built-in table (NULL: "default"), or in a file: "FILE" (its suite "default", else all of
 * it) or "FILE:NAME".  What has a '/' or a '.' in it is a file.  Mistakes are told with line and column. */
int bench_suite_add(const char *which, bench_shapes *out);
/* "b=1,hq=32,sk=512..65536:x2": a sweep of shapes. */
int bench_sweep_add(const char *given, bench_shapes *out);
/* A problem line, as it is logged. */
int bench_problem_add(const char *line, bench_shapes *out);

/* The built-in suites' names, NULL past the end. */
const char *bench_suite_name(size_t n);

#endif
