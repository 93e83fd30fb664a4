/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "verify.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "clattn_ref.h"

/* Multiplications and additions that the reference does in about a second. */
static const double budget = 2.5e8;

static int64_t common_divisor(int64_t a, int64_t b) {
  while (b != 0) {
    const int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/* A step that shares no factor with q_len, so that the sample meets every part of the rows. */
static int64_t sample_step(const clattn_problem *problem, int64_t rows) {
  const double cost = ((double)problem->k_len + 1) * (double)(problem->qk_dim + problem->v_dim);
  double wanted = budget / cost;
  if (wanted < 16)
    wanted = 16;
  if ((double)rows <= wanted)
    return 1;
  int64_t step = (int64_t)((double)rows / wanted) + 1;
  while (common_divisor(step, problem->q_len) != 1)
    step++;
  return step;
}

/* Largest finite magnitude in an array, and the largest length of its rows over the last axis. */
static void magnitudes(const clattn_problem *problem, const cli_request *request, int input, double *element,
                       double *length) {
  const clattn_tensor *const tensors[] = {&problem->q, &problem->k, &problem->v, &problem->bias};
  int64_t shape[4], stride[4];
  *element = *length = 0;
  if (request->input[input].name == NULL || request->input[input].bytes == 0)
    return;
  cli_input_shape(problem, input, shape);
  cli_strides(tensors[input], shape, stride);
  for (int axis = 0; axis < 3; axis++) {
    if (stride[axis] == 0) /* the same elements again */
      shape[axis] = shape[axis] > 0 ? 1 : 0;
  }
  for (int64_t b = 0; b < shape[0]; b++) {
    for (int64_t h = 0; h < shape[1]; h++) {
      for (int64_t r = 0; r < shape[2]; r++) {
        const float *row = (const float *)request->input[input].data + b * stride[0] + h * stride[1] + r * stride[2];
        double squares = 0;
        for (int64_t e = 0; e < shape[3]; e++) {
          const double value = fabs((double)row[e * stride[3]]);
          if (!isfinite(value))
            continue;
          squares += value * value;
          *element = value > *element ? value : *element;
        }
        *length = squares > *length ? squares : *length;
      }
    }
  }
  *length = sqrt(*length);
}

/* What fp32 sums may differ by: 1e-5 for numbers of size 1, plus the rounding of scores, whose size is bounded by
 * |scale| |q| |k|.  A difference e of a score changes a weight by the factor exp(e). */
static void tolerances(const cli_request *request, const cli_pass *pass, double out[CLI_OUTPUTS]) {
  const clattn_problem *problem = &pass->problem;
  double largest[CLI_BIAS + 1], length[CLI_BIAS + 1];
  for (int i = CLI_Q; i <= CLI_BIAS; i++)
    magnitudes(problem, request, i, &largest[i], &length[i]);
  const double scale =
      problem->scale_mode == CLATTN_SCALE_VALUE ? fabs((double)problem->scale) : 1 / sqrt((double)problem->qk_dim);
  const double rounding =
      ldexp(8.0, -24) * (scale * length[CLI_Q] * length[CLI_K] +
                         (isfinite(problem->softcap) ? (double)problem->softcap : 0) + largest[CLI_BIAS]);
  out[CLI_O] = (1e-5 + 2 * rounding) * largest[CLI_V];
  out[CLI_LSE] = 1e-5 + rounding;
  out[CLI_SCORES] = problem->stage == CLATTN_STAGE_WEIGHTS ? 1e-5 + 2 * rounding : 1e-5 + rounding;
  out[CLI_MAX_LOGIT] = 1e-5 + rounding;
}

static void compare(const cli_result *result, const double *want, int64_t step, int output, cli_verification *report) {
  const int64_t rows = result->shape[0] * result->shape[1] * result->shape[2];
  for (int64_t row = 0; row < rows; row += step) {
    const int64_t r = row % result->shape[2], h = row / result->shape[2] % result->shape[1],
                  b = row / result->shape[2] / result->shape[1];
    const float *got = result->data + b * result->stride[0] + h * result->stride[1] + r * result->stride[2];
    for (int64_t e = 0; e < result->shape[3]; e++) {
      const double a = (double)got[e * result->stride[3]], w = want[row * result->shape[3] + e];
      if (a == w || (isnan(a) && isnan(w)))
        continue;
      const double difference = fabs(a - w);
      /* Written so that NaN counts as a difference. */
      if (!(difference <= report->tolerance[output] + 1e-5 * fabs(w)) || isinf(w))
        report->beyond[output]++;
      if (!isfinite(a) && isfinite(w))
        report->overflown[output]++;
      if (!(difference <= report->difference[output]) && !isnan(report->difference[output]))
        report->difference[output] = difference;
    }
  }
}

int cli_verify(const cli_request *request, const cli_pass *pass, cli_verification *out) {
  const clattn_problem *problem = &pass->problem;
  double *want[CLI_OUTPUTS] = {NULL, NULL, NULL, NULL};
  clattn_ref_args args;
  clattn_error error;
  int code = CLI_OK;
  memset(out, 0, sizeof *out);
  clattn_error_init(&error);
  clattn_ref_args_init(&args);
  out->of = problem->batch * problem->q_heads * problem->q_len;
  int64_t step = sample_step(problem, out->of);
  if (pass->result[CLI_MAX_LOGIT].data != NULL)
    step = 1; /* a largest score needs every row */
  out->rows = step > 1 ? (out->of + step - 1) / step : out->of;
  for (int i = 0; i < CLI_OUTPUTS; i++) {
    const cli_result *result = &pass->result[i];
    if (result->data == NULL)
      continue;
    size_t count = 1;
    for (int axis = 0; axis < 4; axis++)
      count *= (size_t)result->shape[axis];
    /* Rows that are not sampled are never touched, and cost no memory. */
    want[i] = calloc(count > 0 ? count : 1, sizeof(double));
    if (want[i] == NULL) {
      code = cli_fail_memory();
      goto done;
    }
    out->compared[i] = 1;
  }
  args.error = &error;
  args.q = request->input[CLI_Q].data;
  args.k = request->input[CLI_K].data;
  args.v = request->input[CLI_V].data;
  args.bias = request->input[CLI_BIAS].data;
  args.keep_mask = request->input[CLI_KEEP_MASK].data;
  args.q_lengths = request->q_lengths;
  args.k_lengths = request->k_lengths;
  args.q_offsets = request->q_offsets;
  args.o = want[CLI_O];
  args.lse = want[CLI_LSE];
  args.scores = want[CLI_SCORES];
  args.max_logit = want[CLI_MAX_LOGIT];
  args.row_step = step;
  cli_progress_begin("verifying", NULL, 0);
  const clattn_status status = clattn_ref_attention(problem, &args);
  cli_progress_end();
  if (status != CLATTN_SUCCESS) {
    code = cli_fail_status(status, &error, "verify");
    goto done;
  }
  tolerances(request, pass, out->tolerance);
  for (int i = 0; i < CLI_OUTPUTS; i++) {
    if (want[i] != NULL)
      compare(&pass->result[i], want[i], step, i, out);
  }
done:
  for (int i = 0; i < CLI_OUTPUTS; i++)
    free(want[i]);
  return code;
}

int cli_verified(const cli_verification *report) {
  for (int i = 0; i < CLI_OUTPUTS; i++) {
    if (report->beyond[i] > 0)
      return 0;
  }
  return 1;
}

const char *cli_result_name(const cli_pass *pass, int output) {
  static const char *const names[CLI_OUTPUTS] = {"o", "lse", "scores", "max_logit"};
  return output == CLI_SCORES && pass->problem.stage == CLATTN_STAGE_WEIGHTS ? "weights" : names[output];
}

int cli_verify_fail(const cli_pass *pass, const cli_verification *report) {
  for (int i = 0; i < CLI_OUTPUTS; i++) {
    if (report->overflown[i] > 0)
      cli_fail(CLI_FAILED,
               "--verify: %s has NaN or infinity in %" PRId64 " places where the reference has finite numbers",
               cli_result_name(pass, i), report->overflown[i]);
    if (report->beyond[i] > report->overflown[i])
      cli_fail(CLI_FAILED,
               "--verify: %s differs from the reference by more than fp32 rounding explains in %" PRId64 " places",
               cli_result_name(pass, i), report->beyond[i] - report->overflown[i]);
  }
  return CLI_FAILED;
}
