/* SPDX-License-Identifier: Apache-2.0 */
/* One plan and one run of it: inputs on the device, outputs mapped for reading. */
#ifndef CLATTN_CLI_PASS_H
#define CLATTN_CLI_PASS_H

#include "device.h"
#include "request.h"

typedef struct cli_buffers {
  cl_mem input[CLI_INPUTS];
  cl_mem hook[CLI_HOOK_SLOTS];
} cli_buffers;

/* The one copy that an input sees: from the mapped file into the buffer. */
int cli_buffers_make(const cli_session *session, const cli_request *request, cli_buffers *out);
void cli_buffers_release(cli_buffers *buffers);

enum { CLI_O, CLI_LSE, CLI_SCORES, CLI_MAX_LOGIT, CLI_OUTPUTS };

typedef struct cli_result {
  /* (batch, head, row, element); missing axes are 1.  Packed o and lse are (1, head, row of all, element). */
  int64_t shape[4], stride[4];
  clattn_dtype dtype;
  const void *stored; /* mapped, of this type; NULL when this pass did not compute it */
  const float *data;  /* the same numbers as floats */
  cl_mem buffer;      /* private */
  float *widened;     /* private: `data` where the type is not f32 */
} cli_result;

typedef struct cli_pass {
  clattn_problem problem; /* with this pass's outputs and stage */
  clattn_plan *plan;
  clattn_plan_info info; /* its texts live as long as the plan */
  double seconds;        /* from enqueue to the end of the last kernel */
  cli_result result[CLI_OUTPUTS];
} cli_pass;

/* The plan and the memory of its outputs (CLATTN_OUT_ bits): what can't be computed is refused here, before there are
 * inputs. */
int cli_pass_plan(const cli_session *session, const clattn_problem *problem, uint32_t outputs, clattn_stage stage,
                  const char *variant, uint64_t workspace_cap, cli_pass *out);
/* The arguments of an enqueue of this pass. */
void cli_pass_args(const cli_request *request, const cli_buffers *buffers, const cli_pass *pass, clattn_args *args);
int cli_pass_run(const cli_session *session, const cli_request *request, const cli_buffers *buffers, cli_pass *pass);
/* An all-zero pass is accepted. */
void cli_pass_close(const cli_session *session, cli_pass *pass);

/* Its rank, and its shape as files have it: packed ones are (row, head, element) and (head, row). */
int cli_result_shape(const cli_pass *pass, int output, int64_t shape[4]);

typedef struct cli_statistics {
  double least, most, mean; /* over the numbers that are neither NaN nor infinite; NaN when there are none */
  uint64_t count, not_finite;
} cli_statistics;
void cli_result_statistics(const cli_result *result, cli_statistics *out);

#endif
