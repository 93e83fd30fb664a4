/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "verify.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "clattn_ref.h"
#include "convert.h"

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

/* Where an array's numbers lie, and what those of i8 and i4 are multiplied with. */
typedef struct view {
  clattn_dtype dtype;
  const void *data;
  int64_t stride[4];
} view;

static view view_of(const clattn_problem *problem, const cli_request *request, int input) {
  view v = {request->input[input].dtype, request->input[input].data, {0, 0, 0, 0}};
  int64_t shape[4];
  cli_input_shape(problem, input, shape);
  cli_input_strides(problem, input, shape, v.stride);
  return v;
}

static double element(const view *v, int64_t b, int64_t h, int64_t r, int64_t e) {
  return cli_dtype_load(v->dtype, v->data, b * v->stride[0] + h * v->stride[1] + r * v->stride[2] + e * v->stride[3]);
}

/* Largest finite magnitude in an array, and the largest length of its rows over the last axis and sum of magnitudes. */
static void magnitudes(const clattn_problem *problem, const cli_request *request, int input, double *largest,
                       double *length, double *sum) {
  int64_t shape[4];
  *largest = *length = *sum = 0;
  if (request->input[input].name == NULL || request->input[input].bytes == 0)
    return;
  cli_input_shape(problem, input, shape);
  const view values = view_of(problem, request, input);
  const int quantised = cli_dtype_is_quantised(values.dtype);
  const view scales = quantised ? view_of(problem, request, input == CLI_K ? CLI_K_SCALE : CLI_V_SCALE) : values;
  for (int axis = 0; axis < 3; axis++) {
    if (values.stride[axis] == 0 && (!quantised || scales.stride[axis] == 0)) /* the same elements again */
      shape[axis] = shape[axis] > 0 ? 1 : 0;
  }
  for (int64_t b = 0; b < shape[0]; b++) {
    for (int64_t h = 0; h < shape[1]; h++) {
      for (int64_t r = 0; r < shape[2]; r++) {
        double squares = 0, absolutes = 0;
        for (int64_t e = 0; e < shape[3]; e++) {
          double value = fabs(element(&values, b, h, r, e));
          if (quantised)
            value *= fabs(element(&scales, b, h, r, values.dtype == CLATTN_I4 ? e / CLI_I4_GROUP : 0));
          if (!isfinite(value))
            continue;
          squares += value * value;
          absolutes += value;
          *largest = value > *largest ? value : *largest;
        }
        *sum = absolutes > *sum ? absolutes : *sum;
        *length = squares > *length ? squares : *length;
      }
    }
  }
  *length = sqrt(*length);
}

/* The largest distance between a key and the position of a query. */
static double largest_distance(const cli_request *request) {
  const clattn_problem *problem = &request->problem;
  const int32_t *offsets = request->ints[CLI_Q_OFFSETS];
  double offset = problem->offset_mode == CLATTN_OFFSET_VALUE ? fabs((double)problem->offset) : 0;
  for (int64_t b = 0; b < problem->batch && offsets != NULL; b++)
    offset = fmax(offset, fabs((double)offsets[b]));
  return offset + (double)problem->q_len + (double)problem->k_len;
}

/* What rounding to a type changes: at most this part of a number, or this much, and what is larger than any number of
 * the type becomes infinite. */
static void storage_tolerance(clattn_dtype dtype, int output, cli_verification *report) {
  report->limit[output] = (double)INFINITY;
  report->relative[output] = 1e-5;
  if (dtype == CLATTN_F16) {
    report->relative[output] += ldexp(1, -11);
    report->tolerance[output] += ldexp(1, -25);
    report->limit[output] = 65520;
  } else if (dtype == CLATTN_BF16) {
    report->relative[output] += ldexp(1, -8);
    report->limit[output] = ldexp(511, 119);
  }
}

/* By how much of the largest value o changes where weights are rounded to v's type before they meet it: half a unit in the
 * last place each, on the matrix unit. */
static double weight_rounding(const cli_pass *pass) {
  const int matrix =
      strcmp(pass->info.variant, "flash-cpu-amx") == 0 || strcmp(pass->info.variant, "flash-gpu-matrix") == 0;
  return !matrix ? 0 : pass->problem.v.dtype == CLATTN_F16 ? ldexp(1, -12) : ldexp(1, -9);
}

/* What fp32 sums may differ by: 1e-5 for numbers of size 1, plus the rounding of scores, whose size is bounded by the
 * similarity's: |q| |k|, 1, or the sum of |w|.  A difference e of a score changes a weight by the factor exp(e).  A
 * pass whose products may be rounded differs by that, too. */
void cli_verify_tolerances(const cli_request *request, const cli_pass *pass, cli_verification *report) {
  const clattn_problem *problem = &pass->problem;
  static const int measured[] = {CLI_Q,          CLI_K,     CLI_V,        CLI_BIAS,    CLI_ALIBI_SLOPES,
                                 CLI_HEAD_SCALE, CLI_ADD_W, CLI_ROPE_COS, CLI_ROPE_SIN};
  double largest[CLI_INPUTS] = {0}, length[CLI_INPUTS] = {0}, sum[CLI_INPUTS] = {0}, *out = report->tolerance;
  for (size_t n = 0; n < sizeof measured / sizeof measured[0]; n++) {
    const int i = measured[n];
    magnitudes(problem, request, i, &largest[i], &length[i], &sum[i]);
  }
  const double scale = (problem->scale_mode == CLATTN_SCALE_VALUE ? fabs((double)problem->scale)
                        : problem->similarity == CLATTN_DOT       ? 1 / sqrt((double)problem->qk_dim)
                                                                  : 1) *
                       (problem->use_head_scale ? largest[CLI_HEAD_SCALE] : 1);
  /* What tables make of lengths: both of q and k grow by the root of it at most. */
  const double turned =
      problem->rope == CLATTN_ROPE_NONE
          ? 1
          : fmax(1, largest[CLI_ROPE_COS] * largest[CLI_ROPE_COS] + largest[CLI_ROPE_SIN] * largest[CLI_ROPE_SIN]);
  const double turning = problem->rope == CLATTN_ROPE_NONE ? 0 : sqrt(turned) * (largest[CLI_Q] + largest[CLI_K]);
  const double products = problem->similarity == CLATTN_DOT      ? turned * length[CLI_Q] * length[CLI_K]
                          : problem->similarity == CLATTN_COSINE ? 2
                                                                 : 2 * sum[CLI_ADD_W] * (1 + turning);
  /* Both operands and the product of 11 bits, and what half loses below its least number. */
  const double part = problem->math == CLATTN_MATH_EXACT ? 0 : ldexp(3, -11);
  const double least = problem->math == CLATTN_MATH_HALF
                           ? ldexp((double)problem->qk_dim, -24) * (1 + largest[CLI_Q] + largest[CLI_K])
                           : 0;
  const double rounding =
      ldexp(8.0, -24) * (scale * products + (isfinite(problem->softcap) ? (double)problem->softcap : 0) +
                         largest[CLI_BIAS] + largest[CLI_ALIBI_SLOPES] * largest_distance(request)) +
      scale * (part * products + least);
  out[CLI_O] = (1e-5 + 2 * rounding + part + weight_rounding(pass)) * largest[CLI_V];
  out[CLI_LSE] = 1e-5 + rounding;
  out[CLI_SCORES] = problem->stage == CLATTN_STAGE_WEIGHTS ? 1e-5 + 2 * rounding : 1e-5 + rounding;
  out[CLI_MAX_LOGIT] = 1e-5 + rounding;
  for (int i = 0; i < CLI_OUTPUTS; i++)
    storage_tolerance(pass->result[i].dtype, i, report);
}

/* What is beyond the type's numbers counts as the first that is. */
static double bounded(double value, double limit) {
  return value > limit ? limit : value < -limit ? -limit : value;
}

int cli_verify_differs(double got, double want, double tolerance, double relative, double limit, double *difference) {
  *difference = 0;
  if (got == want || (isnan(got) && isnan(want)))
    return 0;
  const double near = bounded(want, limit);
  *difference = fabs(bounded(got, limit) - near);
  /* Written so that NaN counts as a difference. */
  return !(*difference <= tolerance + relative * fabs(near)) || isinf(near);
}

static void judge(double got, double want, int output, cli_verification *report) {
  double difference = 0;
  if (cli_verify_differs(got, want, report->tolerance[output], report->relative[output], report->limit[output],
                         &difference)) {
    report->beyond[output]++;
    report->overflown[output] += !isfinite(got) && isfinite(want);
  }
  if (!(difference <= report->difference[output]) && !isnan(report->difference[output]))
    report->difference[output] = difference;
}

/* Shape of a result as the reference has it: (batch, head, row, element), packed or not. */
static void reference_shape(const cli_pass *pass, int output, int64_t shape[4]) {
  memcpy(shape, pass->result[output].shape, sizeof pass->result[output].shape);
  shape[0] = pass->problem.batch;
  if (output != CLI_MAX_LOGIT)
    shape[2] = pass->problem.q_len;
}

/* Rows that are compared: those of packed sequences only as far as the sequences go. */
static int64_t count_rows(const cli_request *request, int64_t step) {
  const clattn_problem *problem = &request->problem;
  int64_t count = 0;
  for (int64_t head = 0; head < problem->batch * problem->q_heads; head++) {
    const int64_t queries = cli_queries_of(request, head / problem->q_heads);
    /* The first row of the step at or behind row 0 of this head. */
    const int64_t start = head * problem->q_len, first = (step - start % step) % step;
    count += first < queries ? (queries - first - 1) / step + 1 : 0;
  }
  return count;
}

int64_t cli_reference_rows(const cli_pass *pass, int output, int64_t *elements) {
  int64_t shape[4];
  reference_shape(pass, output, shape);
  *elements = shape[3];
  return shape[0] * shape[1] * shape[2];
}

int64_t cli_reference_place(const cli_request *request, const cli_pass *pass, int output, int64_t row) {
  const cli_result *result = &pass->result[output];
  const int packed = cli_packed_q(&pass->problem) && (output == CLI_O || output == CLI_LSE);
  int64_t shape[4];
  reference_shape(pass, output, shape);
  const int64_t r = row % shape[2], h = row / shape[2] % shape[1], b = row / shape[2] / shape[1];
  if (packed && r >= cli_queries_of(request, b))
    return -1;
  if (packed)
    return h * result->stride[1] + (request->ints[CLI_CU_SEQLENS_Q][b] + r) * result->stride[2];
  return b * result->stride[0] + h * result->stride[1] + r * result->stride[2];
}

static void compare(const cli_request *request, const cli_pass *pass, const cli_reference *reference, int output,
                    cli_verification *report) {
  const cli_result *result = &pass->result[output];
  int64_t elements;
  const int64_t rows = cli_reference_rows(pass, output, &elements);
  for (int64_t row = 0; row < rows; row += reference->step) {
    const int64_t at = cli_reference_place(request, pass, output, row);
    if (at < 0)
      continue;
    for (int64_t e = 0; e < elements; e++)
      judge((double)result->data[at + e * result->stride[3]], reference->want[output][row * elements + e], output,
            report);
  }
}

int cli_reference_make(const cli_request *request, const cli_pass *pass, cli_reference *out) {
  const clattn_problem *problem = &pass->problem;
  clattn_ref_args args;
  clattn_error error;
  memset(out, 0, sizeof *out);
  clattn_error_init(&error);
  clattn_ref_args_init(&args);
  out->step = sample_step(problem, problem->batch * problem->q_heads * problem->q_len);
  if (pass->result[CLI_MAX_LOGIT].buffer != NULL)
    out->step = 1; /* a largest score needs every row */
  for (int i = 0; i < CLI_OUTPUTS; i++) {
    int64_t shape[4];
    size_t count = 1;
    if (pass->result[i].buffer == NULL)
      continue;
    reference_shape(pass, i, shape);
    for (int axis = 0; axis < 4; axis++)
      count *= (size_t)shape[axis];
    /* Rows that are not sampled are never touched, and cost no memory. */
    out->want[i] = calloc(count > 0 ? count : 1, sizeof(double));
    if (out->want[i] == NULL)
      return cli_fail_memory();
  }
  args.error = &error;
  args.q = request->input[CLI_Q].data;
  args.k = request->input[CLI_K].data;
  args.v = request->input[CLI_V].data;
  args.bias = request->input[CLI_BIAS].data;
  args.keep_mask = request->input[CLI_KEEP_MASK].data;
  args.block_mask = request->input[CLI_BLOCK_MASK].data;
  args.alibi_slopes = request->input[CLI_ALIBI_SLOPES].data;
  args.sink = request->input[CLI_SINK].data;
  args.head_scale = request->input[CLI_HEAD_SCALE].data;
  args.add_w = request->input[CLI_ADD_W].data;
  args.k_scale = request->input[CLI_K_SCALE].data;
  args.v_scale = request->input[CLI_V_SCALE].data;
  args.page_table = request->input[CLI_PAGE_TABLE].data;
  args.rope_cos = request->input[CLI_ROPE_COS].data;
  args.rope_sin = request->input[CLI_ROPE_SIN].data;
  args.positions_q = request->input[CLI_POSITIONS_Q].data;
  args.positions_k = request->input[CLI_POSITIONS_K].data;
  args.q_lengths = request->ints[CLI_Q_LENGTHS];
  args.k_lengths = request->ints[CLI_K_LENGTHS];
  args.q_offsets = request->ints[CLI_Q_OFFSETS];
  args.prefix = request->ints[CLI_PREFIX];
  args.cu_seqlens_q = request->ints[CLI_CU_SEQLENS_Q];
  args.cu_seqlens_k = request->ints[CLI_CU_SEQLENS_K];
  args.o = out->want[CLI_O];
  args.lse = out->want[CLI_LSE];
  args.scores = out->want[CLI_SCORES];
  args.max_logit = out->want[CLI_MAX_LOGIT];
  args.row_step = out->step;
  cli_progress_begin("verifying", NULL, 0);
  const clattn_status status = clattn_ref_attention(problem, &args);
  cli_progress_end();
  return status == CLATTN_SUCCESS ? CLI_OK : cli_fail_status(status, &error, "verify");
}

void cli_reference_release(cli_reference *reference) {
  for (int i = 0; i < CLI_OUTPUTS; i++) {
    free(reference->want[i]);
    reference->want[i] = NULL;
  }
}

int cli_verify(const cli_request *request, const cli_pass *pass, cli_verification *out) {
  cli_reference reference;
  memset(out, 0, sizeof *out);
  const int code = cli_reference_make(request, pass, &reference);
  if (code == CLI_OK) {
    out->of = count_rows(request, 1);
    out->rows = count_rows(request, reference.step);
    cli_verify_tolerances(request, pass, out);
  }
  for (int i = 0; i < CLI_OUTPUTS && code == CLI_OK; i++) {
    out->compared[i] = reference.want[i] != NULL;
    if (out->compared[i])
      compare(request, pass, &reference, i, out);
  }
  cli_reference_release(&reference);
  return code;
}

/* Both sides are rounded, so the tolerance is twice as large. */
static void compare_passes(const cli_pass *pass, const cli_pass *other, int output, cli_verification *report) {
  const cli_result *a = &pass->result[output], *b = &other->result[output];
  for (int64_t row = 0; row < a->shape[0] * a->shape[1] * a->shape[2]; row++) {
    const int64_t index[3] = {row / a->shape[2] / a->shape[1], row / a->shape[2] % a->shape[1], row % a->shape[2]};
    int64_t at_a = 0, at_b = 0;
    for (int axis = 0; axis < 3; axis++) {
      at_a += index[axis] * a->stride[axis];
      at_b += index[axis] * b->stride[axis];
    }
    for (int64_t e = 0; e < a->shape[3]; e++)
      judge((double)a->data[at_a + e * a->stride[3]], (double)b->data[at_b + e * b->stride[3]], output, report);
  }
}

/* A three-step pipeline that takes the problem and is not what ran; NULL when there is none. */
static const char *other_variant(const cli_session *session, const cli_pass *pass, clattn_support *support) {
  static const char *const names[] = {"three-step-cpu", "three-step"};
  const int first = (session->info.type & CL_DEVICE_TYPE_CPU) == 0;
  for (int i = 0; i < 2; i++) {
    const char *name = names[i ^ first];
    clattn_support_init(support);
    if (strcmp(name, pass->info.variant) != 0 &&
        clattn_supported(session->context, &pass->problem, name, support) == CLATTN_SUCCESS)
      return support->variant;
  }
  return NULL;
}

int cli_verify_device(const cli_session *session, const cli_request *request, const cli_buffers *buffers,
                      const cli_pass *pass, uint64_t workspace_cap, cli_verification *out) {
  cli_pass other;
  clattn_support support;
  memset(out, 0, sizeof *out);
  memset(&other, 0, sizeof other);
  out->against = other_variant(session, pass, &support);
  if (out->against == NULL)
    return cli_fail(CLI_USAGE, "--verify=device: no three-step pipeline but what ran (%s) takes this problem: %s",
                    pass->info.variant, support.reason);
  int code = cli_pass_plan(session, &pass->problem, pass->problem.outputs, pass->problem.stage, out->against,
                           workspace_cap, &other);
  if (code == CLI_OK)
    code = cli_pass_run(session, request, buffers, &other);
  if (code == CLI_OK) {
    out->rows = out->of = count_rows(request, 1);
    cli_verify_tolerances(request, pass, out);
  }
  for (int i = 0; i < CLI_OUTPUTS && code == CLI_OK; i++) {
    out->tolerance[i] *= 2;
    out->relative[i] *= 2;
    out->compared[i] = pass->result[i].data != NULL;
    if (out->compared[i])
      compare_passes(pass, &other, i, out);
  }
  cli_pass_close(session, &other);
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
  const char *against = report->against != NULL ? report->against : "the reference";
  for (int i = 0; i < CLI_OUTPUTS; i++) {
    if (report->overflown[i] > 0)
      cli_fail(CLI_FAILED, "--verify: %s has NaN or infinity in %" PRId64 " places where %s has finite numbers",
               cli_result_name(pass, i), report->overflown[i], against);
    if (report->beyond[i] > report->overflown[i])
      cli_fail(CLI_FAILED, "--verify: %s differs from %s by more than rounding explains in %" PRId64 " places",
               cli_result_name(pass, i), against, report->beyond[i] - report->overflown[i]);
  }
  return CLI_FAILED;
}
