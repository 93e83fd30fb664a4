/* SPDX-License-Identifier: Apache-2.0 */
/* OpenCL devices under stable ids, and a context with a queue on one of them. */
#ifndef CLATTN_CLI_DEVICE_H
#define CLATTN_CLI_DEVICE_H

#include "clattn.h"

typedef struct cli_device {
  cl_platform_id platform;
  cl_device_id device;
  char id[48]; /* "pocl:0": the platform's short name and the index within it */
  char platform_name[128], name[128], vendor[128];
} cli_device;

/* Every device of every platform, in the loader's order.  *out is malloc'ed (NULL when there is none, which is not an
 * error). */
int cli_device_list(cli_device **out, size_t *count);
/* 1 when text occurs in the id, the name or the vendor, whatever the case. */
int cli_device_matches(const cli_device *device, const char *text);

typedef struct cli_session {
  cli_device device;
  clattn_device_info info;
  clattn_context *context;
  cl_context cl;
  cl_command_queue queue; /* in order */
} cli_session;

/* What contexts of sessions are made with from now on; NULL: the library's defaults, and AMX.  tuning names the file of
 * tuning_text in failures, or is NULL.  Both must outlive the sessions. */
void cli_session_use(const clattn_context_options *options, const char *tuning);
/* The folder that sessions opened from now on keep built kernels in; NULL, as at the start: none.  What is wrong with
 * it is told on stderr and costs no more than building again.  The text must stay. */
void cli_cache_use(const char *folder);
/* Since then: 1 if a session could not use the folder; the entries that sessions wrote. */
int cli_cache_refused(void);
size_t cli_cache_written(void);

/* wanted: an id, or a number counting the whole list from 0; NULL: the library's own choice. */
int cli_session_open(const char *wanted, cli_session *out);
/* The same on one device of the list, quietly: for listing what is usable.  The error says why not. */
clattn_status cli_session_try(const cli_device *device, cli_session *out, clattn_error *error);
void cli_session_close(cli_session *session);

#endif
