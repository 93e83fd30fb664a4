/* SPDX-License-Identifier: Apache-2.0 */
/* One shape on one variant: verified, then timed. */
#ifndef CLATTN_BENCH_MEASURE_H
#define CLATTN_BENCH_MEASURE_H

#include "folder.h"
#include "probe.h"

/* --dump: a folder for each row in this one. */
typedef struct bench_dump {
  cli_folder folder;
  int rows; /* so far */
} bench_dump;

typedef struct bench_settings {
  double row_seconds;    /* timing of a row, at least three calls whatever they take */
  double launch_seconds; /* no launch predicted above it: calls are split by query rows; 0: never split */
  int cold;              /* inputs rotate over copies beyond the last cache */
  int verify;
  int probe_beside; /* the FMA probe before and behind each row */
  bench_dump *dump; /* NULL: rows are not dumped */
} bench_settings;

/* Seconds that a call of this shape is expected to take, by peaks and rules of thumb about clattn's kernels: for choosing
 * what a default run takes, never for results. */
double bench_predict(const bench_shape *shape, const bench_peaks *peaks);

/* Fills the row; what can't be run or computes wrong numbers is told by its status and reason.  variant NULL: what
 * selection picks.  Returns CLI_OK, or an exit code when nothing more can be measured at all. */
int bench_measure(const bench_device *device, const bench_shape *shape, const char *variant, const bench_peaks *peaks,
                  const bench_settings *settings, bench_row *row);

/* Ends a measurement early, from a signal handler: the row at work is left out. */
extern volatile int bench_stop;

#endif
