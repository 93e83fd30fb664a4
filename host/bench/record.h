/* SPDX-License-Identifier: Apache-2.0 */
/* Saved runs: JSON, which bench/schema.json describes, and CSV with the same names.  A name says its unit; what was not
 * measured is null in JSON and an empty cell in CSV. */
#ifndef CLATTN_BENCH_RECORD_H
#define CLATTN_BENCH_RECORD_H

#include "outputs.h"
#include "picture_back.h"
#include "row.h"

enum { BENCH_SCHEMA_VERSION = 1 };

const char *bench_timing_word(int by_events);      /* "device events", "wall clock" */
const char *bench_inputs_word(int cold);           /* "cold", "hot" */
const char *bench_device_type_word(uint64_t type); /* "cpu", "gpu", "accelerator", "custom", "unknown" */

/* One more row, all zero; NULL without memory, which was printed.  Older rows may move. */
bench_row *bench_run_add(bench_run *run);
/* Gives the rows back and clears *run; an all-zero one is accepted. */
void bench_run_release(bench_run *run);
/* More than a fifth of the timed rows spread over 5 %. */
int bench_run_is_noisy(const bench_run *run);

/* The whole file in memory, the same bytes for the same run.  Text that is no UTF-8 has '?' in its place. */
int bench_run_json(const bench_run *run, cli_bytes *out);
/* A header and a line per row, the run's context repeated in each; quoted as RFC 4180 says, lines end with \n. */
int bench_run_csv(const bench_run *run, cli_bytes *out);
/* The same as the contents of an output that was begun: see outputs.h. */
int bench_run_write_json(const bench_run *run, cli_file *file);
int bench_run_write_csv(const bench_run *run, cli_file *file);
/* Strict: what the schema requires must be there, of its type and in its range, and every problem line must parse.
 * Members that the schema does not name are passed over, since later minor versions may have them; another
 * schema_version is refused.  On failure *out is all zero. */
int bench_run_read_json(const char *path, bench_run *out);

#endif
