/* SPDX-License-Identifier: Apache-2.0 */
/* Measures tiles of kernels: which ones are faster than the usual ones on a device. */
#ifndef CLATTN_BENCH_TUNE_H
#define CLATTN_BENCH_TUNE_H

#include "suite.h"

typedef struct tune_request {
  bench_shapes shapes; /* one of each class of problems is measured: the first */
  const char *variant; /* NULL: what selection picks */
  const char *device;  /* as for cli_session_open; its sessions are without AMX, as cli_session_use has it */
  const char *config;  /* config_text of the contexts, or NULL */
  const char *path;    /* what is measured goes there, and what stands there is not measured again; NULL: a name that
                          tells the device */
  double budget;       /* seconds in all: no new tile after it, but one in each start */
} tune_request;

/* Every tile is verified against double precision before it is timed, in turns with the usual one.  The file has a line
 * of a tile as soon as it has won, and comments on what was done: a tile that ended the process is marked by the one
 * written before it, and not tried again.  A class of problems is decided once all its tiles were tried, in one start or
 * more.  Returns the exit code: FAILED if a usual tile was wrong or failed, USAGE if no shape could be tuned. */
int bench_tune(const tune_request *request);

#endif
