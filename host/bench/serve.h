/* SPDX-License-Identifier: Apache-2.0 */
/* clattn as one side of a comparison: a script says what to run and when, so that calls of others can stand between. */
#ifndef CLATTN_BENCH_SERVE_H
#define CLATTN_BENCH_SERVE_H

/* Reads commands from stdin, one a line, and answers each with one line of JSON on stdout, until "quit" or the end:
 *
 *   context             the device and its measured peaks, as a saved run without rows
 *   suite NAME|FILE     shapes of a table; shape KEY=VALUE,... a shape or a sweep
 *   problem LINE        what comes next belongs to this problem; closes what was open
 *   input NAME PATH     a file for an input, by the name of its option: "input k-lengths lengths.npy"; what the problem
 *                       needs and nobody gives is drawn
 *   open [VARIANT]      plans, and makes a first call
 *   run N               N calls, and the seconds of each, from enqueue to finish, and until it was enqueued
 *   save PATH           the output of the last call as .npy
 *   probe               floating-point operations a second, now
 *   close, quit
 *
 * What goes wrong is answered {"error": "..."} and ends nothing.  device as for cli_session_open.  Returns the exit
 * code. */
int bench_serve(const char *device);

#endif
