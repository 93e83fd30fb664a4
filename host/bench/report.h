/* SPDX-License-Identifier: Apache-2.0 */
/* Runs of the benchmark as one HTML page that needs nothing else: a roofline plot, bars, tables, what is known of the
 * devices; several runs also beside each other. */
#ifndef CLATTN_BENCH_REPORT_H
#define CLATTN_BENCH_REPORT_H

#include "picture_back.h"
#include "row.h"

enum { BENCH_REPORT_MOST_RUNS = 8 };

/* The page as a file: the old one or the whole new one, never a part.  1 to BENCH_REPORT_MOST_RUNS runs; names are for
 * the legend: files, or the device of a fresh run.  `option` is for messages. */
int bench_report_write(const bench_run *const *runs, int count, const char *const *names, const char *option,
                       const char *path);
/* The page in memory; to be released by the caller, also after a failure. */
int bench_report_text(const bench_run *const *runs, int count, const char *const *names, const char *option,
                      cli_bytes *out);

#endif
