/* SPDX-License-Identifier: Apache-2.0 */
/* What all parts of the clattn program share.  Functions that can fail return the program's exit code, 0 on success,
 * after they have said on stderr what is wrong. */
#ifndef CLATTN_CLI_H
#define CLATTN_CLI_H

#include <stddef.h>
#include <stdint.h>

#include "clattn.h"

struct cli_folder;

enum {
  CLI_OK = 0,
  CLI_FAILED = 1,   /* OpenCL, memory, kernel build, output not writable, --verify difference */
  CLI_USAGE = 2,    /* options, files, shapes, values, unfit variant */
  CLI_NO_DEVICE = 3 /* no OpenCL platform or device, or none that was asked for */
};

/* "clattn: ..." on stderr; returns code. */
int cli_fail(int code, const char *format, ...);
/* The same for a call of the library or of OpenCL: `what` says what was tried; error (may be NULL) adds its message
 * and, after a failed kernel build, the compiler's log. */
int cli_fail_status(clattn_status status, const clattn_error *error, const char *what);
int cli_fail_memory(void);
/* From now on sentences are written into text (cut to fit, the last one stays) instead of to stderr; NULL: to stderr
 * again.  For one failure of many that does not end the work. */
void cli_fail_catch(char *text, size_t capacity);

/* An error that keeps the compiler's log: init before the call, release after. */
int cli_error_init(clattn_error *error);
void cli_error_release(clattn_error *error);

/* ---- commands: argv[0] is the command's name ---- */
int cli_devices(int argc, char **argv);
int cli_run(int argc, char **argv);
int cli_explain(int argc, char **argv);
int cli_merge(int argc, char **argv);
int cli_embed(int argc, char **argv);
int cli_view(int argc, char **argv);
int cli_bench(int argc, char **argv);
int cli_tune(int argc, char **argv);
int cli_compare(int argc, char **argv);
int cli_warm(int argc, char **argv);
int cli_replay(int argc, char **argv);

/* ---- process ---- */

/* Signals that end the program, and exit, remove the files below first.  SIGINT, SIGTERM, SIGHUP and the like exit with
 * 128 + signal; SIGQUIT, SIGXCPU and SIGBUS (a mapped file was cut) with 1.  SIGPIPE and SIGXFSZ are ignored. */
void cli_signals_install(void);
/* Signals wait between hold and release: a temporary file is made and registered in one step.  Calls nest. */
void cli_signals_hold(void);
void cli_signals_release(void);
/* Up to 8 files; the text must stay valid until it is forgotten. */
void cli_signals_remember(const char *temporary);
void cli_signals_forget(const char *temporary);
/* The same for folders that are not whole yet: their files, and they themselves if they are new. */
void cli_signals_remember_folder(const struct cli_folder *folder);
void cli_signals_forget_folder(const struct cli_folder *folder);

/* A line on stderr when it is a terminal and the work lasts over two seconds: "clattn: computing, 3 s, 12 of 40".
 * Calls must not nest.  events (may be NULL) are counted as they complete; they must live until end. */
void cli_progress_begin(const char *label, const cl_event *events, uint32_t count);
void cli_progress_end(void);
/* 1 when begin would show something. */
int cli_progress_wanted(void);

double cli_seconds(void);              /* monotonic */
double cli_unsigned_nan(double value); /* printf writes "-nan" for some NaNs */
double cli_peak_megabytes(void);       /* peak resident memory of this process, in 10^6 bytes */

/* "(6, 12, 5, 32)" into text; returns text. */
char *cli_shape_text(int rank, const int64_t *shape, char *text, size_t capacity);

#endif
