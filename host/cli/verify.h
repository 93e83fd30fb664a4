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

/* What the reference says: of each result of the pass (batch, head, row, element), rows of `step` apart; other rows are
 * not there. */
typedef struct cli_reference {
  double *want[CLI_OUTPUTS]; /* NULL where the pass has no such result */
  int64_t step;
} cli_reference;
/* Needs no run.  To be released, also after a failure. */
int cli_reference_make(const cli_request *request, const cli_pass *pass, cli_reference *out);
void cli_reference_release(cli_reference *reference);
/* Where a result has a row of the reference, and the first of its elements; -1: nowhere. */
int64_t cli_reference_place(const cli_request *request, const cli_pass *pass, int output, int64_t row);
/* Rows of a result as the reference counts them, and elements of one. */
int64_t cli_reference_rows(const cli_pass *pass, int output, int64_t *elements);
/* The tolerance, relative and limit of a report. */
void cli_verify_tolerances(const cli_request *request, const cli_pass *pass, cli_verification *report);
/* 1 if a number differs from what is wanted by more than the tolerances; *difference is how much. */
int cli_verify_differs(double got, double want, double tolerance, double relative, double limit, double *difference);
/* 1 when nothing differs. */
int cli_verified(const cli_verification *report);
/* "o", "lse", "scores" or "weights", "max_logit". */
const char *cli_result_name(const cli_pass *pass, int output);
/* Says what differs; returns the exit code. */
int cli_verify_fail(const cli_pass *pass, const cli_verification *report);

#endif
