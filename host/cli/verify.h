/* SPDX-License-Identifier: Apache-2.0 */
/* --verify: a pass against the double-precision reference, or against the three-step pipeline on the same device. */
#ifndef CLATTN_CLI_VERIFY_H
#define CLATTN_CLI_VERIFY_H

#include "pass.h"

typedef struct cli_verification {
  const char *against;            /* the variant on the other side; NULL: the reference */
  int64_t rows, of;               /* compared, in all */
  int compared[CLI_OUTPUTS];      /* which results the pass has */
  double difference[CLI_OUTPUTS]; /* largest absolute one; NaN where one side alone is NaN */
  double tolerance[CLI_OUTPUTS];  /* absolute part */
  double relative[CLI_OUTPUTS];   /* times |want|, added to it */
  double limit[CLI_OUTPUTS];      /* from there on the type rounds to infinity */
  int64_t beyond[CLI_OUTPUTS];    /* numbers that differ by more */
  int64_t overflown[CLI_OUTPUTS]; /* of these: NaN or infinite where the reference has a finite number */
} cli_verification;

/* Large problems are compared in sampled rows, so that this takes a second or two.  Differences are in the report, not
 * in the exit code. */
int cli_verify(const cli_request *request, const cli_pass *pass, cli_verification *out);
/* The same against another variant, in all rows; refused (exit code 2) where there is none. */
int cli_verify_device(const cli_session *session, const cli_request *request, const cli_buffers *buffers,
                      const cli_pass *pass, uint64_t workspace_cap, cli_verification *out);
/* 1 when nothing differs. */
int cli_verified(const cli_verification *report);
/* "o", "lse", "scores" or "weights", "max_logit". */
const char *cli_result_name(const cli_pass *pass, int output);
/* Says what differs; returns the exit code. */
int cli_verify_fail(const cli_pass *pass, const cli_verification *report);

#endif
