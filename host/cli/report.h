/* SPDX-License-Identifier: Apache-2.0 */
/* What `clattn run` says about a run, for people and for programs. */
#ifndef CLATTN_CLI_REPORT_H
#define CLATTN_CLI_REPORT_H

#include "outputs.h"
#include "pass.h"
#include "verify.h"

typedef struct cli_report {
  const cli_request *request;
  const cli_session *session;
  const cli_pass *passes;
  const cli_verification *checks; /* one per pass, or NULL */
  const cli_files *files;         /* NULL: nothing is written */
  int count;                      /* passes */
  const char *dump;               /* folder of --dump, or NULL */
  uint32_t dump_launches;
} cli_report;

void cli_report_text(const cli_report *report, int explain);
int cli_report_json(const cli_report *report);

#endif
