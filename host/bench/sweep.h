/* SPDX-License-Identifier: Apache-2.0 */
/* A whole benchmark: every shape with every variant on a device, and what comes of it. */
#ifndef CLATTN_BENCH_SWEEP_H
#define CLATTN_BENCH_SWEEP_H

#include "measure.h"
#include "suite.h"

enum { BENCH_VARIANTS_MOST = 32, BENCH_DTYPES_MOST = 8 };

typedef struct bench_request {
  bench_shapes shapes;
  int all_variants;                         /* every one that takes the shape */
  const char *variant[BENCH_VARIANTS_MOST]; /* else these; "best" is what selection picks */
  int variants;
  const char *command; /* the whole command line */
  bench_settings settings;
  double slowest;                        /* seconds of a call, predicted, that a row may take; 0: any */
  double largest;                        /* bytes of a row's tensors that it may take; 0: any */
  double budget;                         /* seconds in all; 0: any */
  const char *baseline, *fail_if_slower; /* NULL: none */
  double threshold;                      /* percent */
} bench_request;

/* Runs it, prints context to stderr and the table to stdout.  *run is filled as far as it got, also when a signal ended
 * it; to be released in any case.  Returns the exit code of the work. */
int bench_sweep(const bench_request *request, const char *device_name, bench_run *run);

/* The same on a device that is not there: what selection picks by facts from a file, and predicted times.  Every row is
 * skipped, and the run says that it is simulated. */
int bench_simulate(const bench_request *request, const char *facts, bench_run *run);

/* What a run's context says of this machine and command, and of a device. */
void bench_describe_host(const bench_request *request, bench_context *context);
void bench_describe_device(const clattn_device_info *info, bench_context *context);

/* Ctrl-C and its kin end the run behind the call at work; what is finished is written, and the exit code is 128 + the
 * signal's number.  0: none came. */
int bench_signal(void);
void bench_signals_install(void);

#endif
