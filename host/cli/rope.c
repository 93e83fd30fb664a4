/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary embedding: its options, tables and positions, from files or made here. */
#define _POSIX_C_SOURCE 200809L
#include "rope.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static const double usual_base = 10000.0;

/* Options that nothing would read. */
static int check_together(const cli_request_options *o) {
  const int tables = o->input[CLI_ROPE_COS] != NULL || o->input[CLI_ROPE_SIN] != NULL;
  const int positions = o->input[CLI_POSITIONS_Q] != NULL || o->input[CLI_POSITIONS_K] != NULL;
  const struct {
    int given, needed;
    const char *option, *needs;
  } pairs[] = {
      {o->rope_dim != NULL, o->rope != NULL, "rope-dim", "rope half or interleaved"},
      {o->rope_base != NULL, o->rope != NULL, "rope-base", "rope half or interleaved"},
      {tables, o->rope != NULL, "rope-cos and --rope-sin", "rope half or interleaved"},
      {positions, o->rope != NULL, "positions-q and --positions-k", "rope half or interleaved"},
  };
  for (size_t i = 0; i < sizeof pairs / sizeof pairs[0] && o->line == NULL; i++) {
    if (pairs[i].given && !pairs[i].needed)
      return cli_fail(CLI_USAGE, "--%s: only with --%s", pairs[i].option, pairs[i].needs);
  }
  for (int i = CLI_ROPE_COS; i <= CLI_POSITIONS_K; i++) {
    const int other = i == CLI_ROPE_COS      ? CLI_ROPE_SIN
                      : i == CLI_ROPE_SIN    ? CLI_ROPE_COS
                      : i == CLI_POSITIONS_Q ? CLI_POSITIONS_K
                                             : CLI_POSITIONS_Q;
    if (o->input[i] != NULL && o->input[other] == NULL)
      return cli_fail(CLI_USAGE, "--%s needs --%s F", cli_input_name(i), cli_input_name(other));
  }
  if (o->rope_base != NULL && tables)
    return cli_fail(CLI_USAGE, "--rope-base is for the tables that this program makes, and --rope-cos gives others");
  return CLI_OK;
}

static int take_base(const char *text, double *base) {
  float value = 0;
  *base = usual_base;
  if (text == NULL)
    return CLI_OK;
  const int code = cli_take_float("rope-base", text, &value);
  *base = (double)value;
  if (code == CLI_OK && (!isfinite(value) || !(value > 0)))
    return cli_fail(CLI_USAGE, "--rope-base takes a number above 0, not '%s'", text);
  return code;
}

/* One of the tables: (positions, pairs) or (batch, positions, pairs). */
static int take_table(cli_request *request, int input, const char *source) {
  clattn_problem *problem = &request->problem;
  cli_tensor *tensor = &request->input[input];
  char text[128];
  const int code = cli_tensor_load(tensor, cli_input_name(input), source, "f4", 2, 3);
  if (code != CLI_OK)
    return code;
  const int last = tensor->rank - 1;
  const int64_t batch = tensor->rank == 3 ? tensor->shape[0] : 1, positions = tensor->shape[last - 1];
  const int64_t pairs = problem->rope_dim / 2;
  if (positions < 1 || tensor->shape[last] != pairs || (batch != 1 && batch != problem->batch) ||
      (problem->rope_positions > 0 && positions != problem->rope_positions)) {
    char want[64] = "positions";
    if (problem->rope_positions > 0)
      snprintf(want, sizeof want, "%" PRId64, problem->rope_positions);
    return cli_fail(CLI_USAGE,
                    "--%s has shape %s; it must be (%s, %" PRId64 ") or (%" PRId64 ", %s, %" PRId64
                    "): a number for every two elements that are rotated",
                    tensor->name, cli_shape_text(tensor->rank, tensor->shape, text, sizeof text), want, pairs,
                    problem->batch, want, pairs);
  }
  problem->rope_positions = positions;
  *cli_input_tensor(problem, input) =
      clattn_strided(CLATTN_F32, batch > 1 ? tensor->stride[0] : 0, 0, positions > 1 ? tensor->stride[last - 1] : pairs,
                     pairs > 1 ? tensor->stride[last] : 1);
  return CLI_OK;
}

/* One set of strides serves both. */
static int check_alike(const clattn_problem *problem) {
  if (memcmp(problem->rope_cos.stride, problem->rope_sin.stride, sizeof problem->rope_cos.stride) != 0)
    return cli_fail(CLI_USAGE, "--rope-cos and --rope-sin must lie alike: of one shape, both in C or in Fortran order");
  return CLI_OK;
}

/* A position for every row, or key: (rows) for all batch entries, or (batch, rows); of packed ones (rows of all). */
static int take_positions(cli_request *request, int input, const char *source, int64_t *largest) {
  const clattn_problem *problem = &request->problem;
  const int packed = input == CLI_POSITIONS_Q ? cli_packed_q(problem) : cli_packed_k(problem);
  cli_tensor *tensor = &request->input[input];
  char got[128], want[128];
  int64_t shape[4];
  const int code = cli_tensor_load(tensor, cli_input_name(input), source, "i4 i8", 1, packed ? 1 : 2);
  if (code != CLI_OK)
    return code;
  cli_input_shape(problem, input, shape);
  const int last = tensor->rank - 1;
  const int64_t rows = last > 0 ? tensor->shape[0] : 1, axes[2] = {shape[0], shape[2]};
  if (tensor->shape[last] != shape[2] || (rows != 1 && rows != shape[0]))
    return cli_fail(CLI_USAGE, "--%s has shape %s; it must be %s%s", tensor->name,
                    cli_shape_text(tensor->rank, tensor->shape, got, sizeof got),
                    cli_shape_text(packed ? 1 : 2, packed ? axes + 1 : axes, want, sizeof want),
                    packed ? ": a position for every row of all sequences" : ", or one row of it for all");
  int32_t *data = malloc(shape[0] * shape[2] > 0 ? (size_t)(shape[0] * shape[2]) * sizeof *data : 1);
  if (data == NULL)
    return cli_fail_memory();
  for (int64_t b = 0; b < shape[0]; b++) {
    for (int64_t r = 0; r < shape[2]; r++) {
      const int64_t at = (rows > 1 ? b * tensor->stride[0] : 0) + r * tensor->stride[last];
      const int64_t position =
          tensor->type[1] == '8' ? ((const int64_t *)tensor->data)[at] : ((const int32_t *)tensor->data)[at];
      const int64_t most = problem->rope_positions > 0 ? problem->rope_positions - 1 : INT32_MAX - 1;
      if (position < 0 || position > most) {
        free(data);
        return cli_fail(CLI_USAGE,
                        "--%s: entry (%" PRId64 ", %" PRId64 ") is %" PRId64 "; it must be from 0 to %" PRId64,
                        tensor->name, b, r, position, most);
      }
      *largest = position > *largest ? position : *largest;
      data[b * shape[2] + r] = (int32_t)position;
    }
  }
  cli_tensor_replace(tensor, data, (size_t)(shape[0] * shape[2]) * sizeof *data);
  return CLI_OK;
}

static int take_tables(const cli_request_options *options, cli_request *request) {
  int code = CLI_OK;
  for (int i = CLI_ROPE_COS; i <= CLI_ROPE_SIN && code == CLI_OK; i++)
    code = take_table(request, i, options->input[i]);
  return code == CLI_OK ? check_alike(&request->problem) : code;
}

int cli_rope_from_files(const cli_request_options *options, cli_request *request) {
  clattn_problem *problem = &request->problem;
  int64_t largest = 0;
  int code = check_together(options);
  if (code != CLI_OK || options->rope == NULL)
    return code;
  if (strcmp(options->rope, "half") != 0 && strcmp(options->rope, "interleaved") != 0)
    return cli_fail(CLI_USAGE, "--rope takes half or interleaved, not '%s'", options->rope);
  problem->rope = options->rope[0] == 'h' ? CLATTN_ROPE_HALF : CLATTN_ROPE_INTERLEAVED;
  problem->rope_dim = problem->qk_dim;
  if (options->rope_dim != NULL &&
      (!cli_parse_int64(options->rope_dim, &problem->rope_dim) || problem->rope_dim < 2 || problem->rope_dim % 2 != 0))
    return cli_fail(CLI_USAGE, "--rope-dim takes an even number of elements >= 2, not '%s'", options->rope_dim);
  code = take_base(options->rope_base, &request->rope_base);
  if (code == CLI_OK && options->input[CLI_ROPE_COS] != NULL)
    code = take_tables(options, request);
  for (int i = CLI_POSITIONS_Q; i <= CLI_POSITIONS_K && code == CLI_OK && options->input[i] != NULL; i++) {
    problem->use_positions = 1;
    code = take_positions(request, i, options->input[i], &largest);
  }
  if (problem->rope_positions == 0) { /* tables of our own reach as far as they must */
    const int ahead = problem->offset_mode == CLATTN_OFFSET_VALUE && problem->offset > 0 && problem->offset < INT32_MAX;
    const int64_t rows = problem->q_len + (ahead ? problem->offset : 0);
    const int64_t lines = problem->use_positions ? largest + 1 : rows > problem->k_len ? rows : problem->k_len;
    problem->rope_positions = lines > 0 ? lines : 1;
  }
  return code;
}

int cli_rope_from_line(const cli_request_options *options, cli_request *request) {
  const clattn_problem *problem = &request->problem;
  int64_t largest = 0;
  int code = check_together(options);
  if (code == CLI_OK && options->rope_base != NULL && problem->rope == CLATTN_ROPE_NONE)
    return cli_fail(CLI_USAGE, "--rope-base is given, but the problem line does not use it");
  for (int i = CLI_ROPE_COS; i <= CLI_POSITIONS_K && code == CLI_OK; i++) {
    if (options->input[i] != NULL && !cli_input_used(problem, i))
      return cli_fail(CLI_USAGE, "--%s is given, but the problem line does not use it", cli_input_name(i));
  }
  if (code == CLI_OK)
    code = take_base(options->rope_base, &request->rope_base);
  if (code == CLI_OK && options->input[CLI_ROPE_COS] != NULL)
    code = take_tables(options, request);
  for (int i = CLI_POSITIONS_Q; i <= CLI_POSITIONS_K && code == CLI_OK && options->input[i] != NULL; i++)
    code = take_positions(request, i, options->input[i], &largest);
  return code;
}

void cli_rope_fill(double base, int sine, const int64_t shape[4], const int64_t stride[4], float *table) {
  for (int64_t b = 0; b < shape[0]; b++) {
    for (int64_t n = 0; n < shape[3]; n++) {
      const double frequency = pow(base, -(double)n / (double)shape[3]);
      for (int64_t t = 0; t < shape[2]; t++) {
        const double angle = (double)t * frequency;
        table[b * stride[0] + t * stride[2] + n * stride[3]] = (float)(sine ? sin(angle) : cos(angle));
      }
    }
  }
}
