/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "request.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static const char *const input_names[CLI_INPUTS] = {"q", "k", "v", "bias", "keep-mask"};
static const char *const input_types[CLI_INPUTS] = {"f4", "f4", "f4", "f4", "b1 u1"};

void cli_input_shape(const clattn_problem *problem, int input, int64_t shape[4]) {
  const int of_keys = input == CLI_K || input == CLI_V;
  shape[0] = problem->batch;
  shape[1] = of_keys ? problem->kv_heads : problem->q_heads;
  shape[2] = of_keys ? problem->k_len : problem->q_len;
  shape[3] = input == CLI_V ? problem->v_dim : problem->qk_dim;
  if (input == CLI_BIAS || input == CLI_KEEP_MASK)
    shape[3] = problem->k_len;
  if (input == CLI_KEEP_MASK && problem->keep_mask_kind == CLATTN_MASK_BITS)
    shape[3] = (problem->k_len + 31) / 32;
}

static clattn_tensor *descriptor(clattn_problem *problem, int input) {
  clattn_tensor *const all[CLI_INPUTS] = {&problem->q, &problem->k, &problem->v, &problem->bias, &problem->keep_mask};
  return all[input];
}

static int uses(const clattn_problem *problem, int input) {
  if (input == CLI_BIAS)
    return problem->use_bias != 0;
  if (input == CLI_KEEP_MASK)
    return problem->keep_mask_kind != CLATTN_MASK_NONE;
  return 1;
}

static int check_problem(const clattn_problem *problem, const char *what) {
  clattn_error error;
  clattn_error_init(&error);
  const clattn_status status = clattn_problem_check(problem, &error);
  return status == CLATTN_SUCCESS ? CLI_OK : cli_fail_status(status, &error, what);
}

/* ---- from files ---- */

static int mismatch(const cli_tensor *a, const cli_tensor *b, const char *rule, int64_t of_a, int64_t of_b) {
  char first[128], second[128];
  return cli_fail(CLI_USAGE, "--%s %s and --%s %s do not fit: %s must be equal, here %" PRId64 " and %" PRId64, a->name,
                  cli_shape_text(a->rank, a->shape, first, sizeof first), b->name,
                  cli_shape_text(b->rank, b->shape, second, sizeof second), rule, of_a, of_b);
}

/* Sizes and descriptors of q, k and v. */
static int fit_shapes(cli_request *request) {
  clattn_problem *problem = &request->problem;
  const cli_tensor *q = &request->input[CLI_Q], *k = &request->input[CLI_K], *v = &request->input[CLI_V];
  int64_t shape[3][4], stride[3][4];
  for (int i = CLI_Q; i <= CLI_V; i++) {
    char text[128];
    const cli_tensor *tensor = &request->input[i];
    cli_tensor_axes(tensor, request->bshd, shape[i], stride[i]);
    if (shape[i][0] == 0 || shape[i][1] == 0 || shape[i][3] == 0)
      return cli_fail(CLI_USAGE, "--%s has shape %s: only the axis of %s may have length 0", tensor->name,
                      cli_shape_text(tensor->rank, tensor->shape, text, sizeof text), i == CLI_Q ? "queries" : "keys");
    *descriptor(problem, i) = cli_describe(shape[i], stride[i]);
  }
  if (shape[CLI_Q][3] != shape[CLI_K][3])
    return mismatch(q, k, "the head dimensions", shape[CLI_Q][3], shape[CLI_K][3]);
  if (shape[CLI_K][2] != shape[CLI_V][2])
    return mismatch(k, v, "the numbers of keys and of values", shape[CLI_K][2], shape[CLI_V][2]);
  if (shape[CLI_K][1] != shape[CLI_V][1])
    return mismatch(k, v, "the numbers of heads", shape[CLI_K][1], shape[CLI_V][1]);
  if (shape[CLI_Q][0] != shape[CLI_K][0])
    return mismatch(q, k, "the batch sizes", shape[CLI_Q][0], shape[CLI_K][0]);
  if (shape[CLI_K][0] != shape[CLI_V][0])
    return mismatch(k, v, "the batch sizes", shape[CLI_K][0], shape[CLI_V][0]);
  if (shape[CLI_Q][1] % shape[CLI_K][1] != 0) {
    char first[128], second[128];
    return cli_fail(CLI_USAGE,
                    "--q %s and --k %s do not fit: %" PRId64 " key heads do not divide %" PRId64 " query heads",
                    cli_shape_text(q->rank, q->shape, first, sizeof first),
                    cli_shape_text(k->rank, k->shape, second, sizeof second), shape[CLI_K][1], shape[CLI_Q][1]);
  }
  problem->batch = shape[CLI_Q][0];
  problem->q_heads = shape[CLI_Q][1];
  problem->kv_heads = shape[CLI_K][1];
  problem->q_len = shape[CLI_Q][2];
  problem->k_len = shape[CLI_K][2];
  problem->qk_dim = shape[CLI_Q][3];
  problem->v_dim = shape[CLI_V][3];
  request->rank = q->rank;
  problem->o.layout = request->bshd && q->rank >= 3 ? CLATTN_LAYOUT_BSHD : CLATTN_LAYOUT_BHSD;
  return CLI_OK;
}

/* Bias or mask, stretched to the scores' shape. */
static int fit_pairs(cli_request *request, int input) {
  clattn_problem *problem = &request->problem;
  int64_t target[4], stride[4];
  if (input == CLI_BIAS)
    problem->use_bias = 1;
  else
    problem->keep_mask_kind = CLATTN_MASK_U8;
  cli_input_shape(problem, input, target);
  const int code = cli_tensor_broadcast(&request->input[input], target, stride);
  if (code == CLI_OK)
    *descriptor(problem, input) = cli_describe(target, stride);
  return code;
}

static int take_lengths(cli_request *request, const char *source) {
  cli_tensor tensor;
  const int64_t batch = request->problem.batch;
  int code = cli_tensor_load(&tensor, "k-lengths", source, "i4 i8", 1, 1);
  if (code != CLI_OK)
    goto done;
  if (tensor.shape[0] != batch) {
    code = cli_fail(CLI_USAGE, "--k-lengths has %" PRId64 " entries, the batch is %" PRId64, tensor.shape[0], batch);
    goto done;
  }
  request->k_lengths = calloc((size_t)batch, sizeof *request->k_lengths);
  if (request->k_lengths == NULL) {
    code = cli_fail_memory();
    goto done;
  }
  for (int64_t b = 0; b < batch; b++) {
    const int64_t at = b * tensor.stride[0];
    const int64_t length =
        tensor.type[1] == '8' ? ((const int64_t *)tensor.data)[at] : ((const int32_t *)tensor.data)[at];
    if (length < 0 || length > request->problem.k_len) {
      code = cli_fail(CLI_USAGE,
                      "--k-lengths: entry %" PRId64 " is %" PRId64 "; it must be from 0 to %" PRId64
                      ", the number of keys",
                      b, length, request->problem.k_len);
      goto done;
    }
    request->k_lengths[b] = (int32_t)length;
  }
  request->problem.k_length_mode = CLATTN_LENGTH_PER_BATCH;
done:
  cli_tensor_close(&tensor);
  return code;
}

static int from_files(const cli_request_options *options, cli_request *request) {
  for (int i = 0; i < CLI_INPUTS; i++) {
    if (options->input[i] == NULL && i <= CLI_V)
      return cli_fail(CLI_USAGE, "--%s is missing: queries, keys and values are needed", input_names[i]);
    if (options->input[i] == NULL)
      continue;
    const int code =
        cli_tensor_load(&request->input[i], input_names[i], options->input[i], input_types[i], i <= CLI_V ? 2 : 1, 4);
    if (code != CLI_OK)
      return code;
  }
  int code = fit_shapes(request);
  for (int i = CLI_BIAS; i < CLI_INPUTS && code == CLI_OK; i++) {
    if (options->input[i] != NULL)
      code = fit_pairs(request, i);
  }
  if (code == CLI_OK && options->k_lengths != NULL)
    code = take_lengths(request, options->k_lengths);
  if (code == CLI_OK)
    code = cli_rules_apply(&options->rules, &request->problem);
  return code == CLI_OK ? check_problem(&request->problem, "the problem") : code;
}

/* ---- from a problem line ---- */

static int refuse_rules(const cli_request_options *options) {
  const struct {
    const char *name;
    int given;
  } rules[] = {{"causal", options->rules.causal},           {"query-offset", options->rules.offset != NULL},
               {"window", options->rules.window != NULL},   {"scale", options->rules.scale != NULL},
               {"softcap", options->rules.softcap != NULL}, {"layout", options->layout != NULL}};
  for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
    if (rules[i].given)
      return cli_fail(CLI_USAGE, "--%s can't be given with --problem: the line says it", rules[i].name);
  }
  return CLI_OK;
}

static int take_given(const char *source, cli_request *request, int input) {
  clattn_problem *problem = &request->problem;
  cli_tensor *tensor = &request->input[input];
  int64_t want[4], shape[4], stride[4];
  char got_text[128], want_text[128];
  if (!uses(problem, input))
    return cli_fail(CLI_USAGE, "--%s is given, but the problem line does not use it", input_names[input]);
  if (input == CLI_KEEP_MASK && problem->keep_mask_kind == CLATTN_MASK_BITS)
    return cli_fail(CLI_USAGE, "--keep-mask holds bytes, but the problem line asks for a mask of bits");
  int code = cli_tensor_load(tensor, input_names[input], source, input_types[input], input <= CLI_V ? 2 : 1, 4);
  if (code != CLI_OK)
    return code;
  cli_input_shape(problem, input, want);
  if (input > CLI_V) {
    code = cli_tensor_broadcast(tensor, want, stride);
  } else {
    cli_tensor_axes(tensor, 0, shape, stride);
    if (memcmp(shape, want, sizeof shape) != 0)
      code = cli_fail(CLI_USAGE, "--%s has shape %s, the problem line says %s", tensor->name,
                      cli_shape_text(tensor->rank, tensor->shape, got_text, sizeof got_text),
                      cli_shape_text(4, want, want_text, sizeof want_text));
  }
  if (code == CLI_OK)
    *descriptor(problem, input) = cli_describe(want, stride);
  return code;
}

static int from_line(const cli_request_options *options, cli_request *request) {
  clattn_problem *problem = &request->problem;
  clattn_error error;
  clattn_error_init(&error);
  int code = refuse_rules(options);
  if (code != CLI_OK)
    return code;
  const clattn_status status = clattn_problem_parse(options->line, problem, &error);
  if (status != CLATTN_SUCCESS)
    return cli_fail_status(status, &error, "--problem");
  code = check_problem(problem, "--problem");
  if (code != CLI_OK)
    return code;
  problem->batch = problem->batch == 0 ? 1 : problem->batch;
  problem->q_heads = problem->q_heads == 0 ? 1 : problem->q_heads;
  problem->kv_heads = problem->kv_heads == 0 ? problem->q_heads : problem->kv_heads;
  problem->v_dim = problem->v_dim == 0 ? problem->qk_dim : problem->v_dim;
  const clattn_tensor *used[] = {&problem->q,   &problem->k,      &problem->v,   &problem->o,
                                 &problem->lse, &problem->scores, &problem->bias};
  for (size_t i = 0; i < sizeof used / sizeof used[0]; i++) {
    if (used[i]->dtype != CLATTN_F32)
      return cli_fail(CLI_USAGE, "--problem: this program fills and reads float tensors only; other storage types are "
                                 "not supported yet");
  }
  for (int i = 0; i < CLI_INPUTS && code == CLI_OK; i++) {
    if (options->input[i] != NULL)
      code = take_given(options->input[i], request, i);
  }
  if (code == CLI_OK && options->k_lengths != NULL) {
    if (problem->k_length_mode != CLATTN_LENGTH_PER_BATCH)
      return cli_fail(CLI_USAGE, "--k-lengths is given, but the problem line does not use it");
    code = take_lengths(request, options->k_lengths);
  }
  if (code == CLI_OK && options->seed != NULL) {
    int64_t seed = 0;
    if (!cli_parse_int64(options->seed, &seed))
      code = cli_fail(CLI_USAGE, "--seed: '%s' is not an integer", options->seed);
    request->seed = (uint64_t)seed;
  }
  return code == CLI_OK ? check_problem(problem, "--problem") : code;
}

int cli_request_make(const cli_request_options *options, cli_request *out) {
  memset(out, 0, sizeof *out);
  clattn_problem_init(&out->problem);
  if (options->line != NULL) {
    out->rank = 4;
    return from_line(options, out);
  }
  if (options->seed != NULL)
    return cli_fail(CLI_USAGE, "--seed is for --problem, where tensors are drawn");
  if (options->layout != NULL && strcmp(options->layout, "bhsd") != 0 && strcmp(options->layout, "bshd") != 0)
    return cli_fail(CLI_USAGE, "--layout takes bhsd or bshd, not '%s'", options->layout);
  out->bshd = options->layout != NULL && strcmp(options->layout, "bshd") == 0;
  return from_files(options, out);
}

/* ---- drawing ---- */

/* SplitMix64: one 64-bit state per array, the same on every machine. */
static uint64_t draw(uint64_t *state) {
  uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

static uint64_t stream(uint64_t seed, uint64_t which) {
  uint64_t state = seed ^ (which << 56);
  return draw(&state);
}

/* Nearly normal, variance 1: the sum of four 16-bit parts, so that only integer arithmetic decides the bits. */
static float draw_normal(uint64_t *state) {
  const uint64_t bits = draw(state);
  const int64_t sum = (int64_t)(bits & 0xffff) + (int64_t)(bits >> 16 & 0xffff) + (int64_t)(bits >> 32 & 0xffff) +
                      (int64_t)(bits >> 48) - 2 * 65535;
  return (float)sum * (1.0f / 37837.0f); /* 65536 * sqrt(4 / 12) */
}

static int draw_input(cli_request *request, int input, uint64_t max_bytes) {
  clattn_problem *problem = &request->problem;
  cli_tensor *tensor = &request->input[input];
  int64_t shape[4], stride[4];
  const int is_mask = input == CLI_KEEP_MASK;
  const size_t element = is_mask && problem->keep_mask_kind == CLATTN_MASK_U8 ? 1 : 4;
  uint64_t state = stream(request->seed, (uint64_t)input + 1);
  cli_input_shape(problem, input, shape);
  if (!cli_strides(descriptor(problem, input), shape, stride))
    return cli_fail(CLI_USAGE, "--problem: the layout of %s is not supported yet", input_names[input]);
  const int64_t count = cli_extent(shape, stride);
  if (count < 0 || (uint64_t)count > max_bytes / element)
    return cli_fail(CLI_FAILED, "%s is larger than the device's largest allocation of %" PRIu64 " bytes",
                    input_names[input], max_bytes);
  void *data = malloc(count > 0 ? (size_t)count * element : 1);
  if (data == NULL)
    return cli_fail_memory();
  for (int64_t i = 0; i < count; i++) {
    if (!is_mask) {
      ((float *)data)[i] = draw_normal(&state);
    } else {
      const uint64_t bits = draw(&state);
      if (element == 1)
        ((uint8_t *)data)[i] = bits % 4 != 0;
      else
        ((uint32_t *)data)[i] = (uint32_t)(bits | bits >> 32); /* a bit is set in three of four cases */
    }
  }
  tensor->name = input_names[input];
  tensor->rank = 4;
  memcpy(tensor->shape, shape, sizeof shape);
  memcpy(tensor->stride, stride, sizeof stride);
  tensor->owned = data;
  tensor->data = data;
  tensor->bytes = (size_t)count * element;
  return CLI_OK;
}

/* `batch` numbers from 0 to `most`. */
static int draw_ints(const cli_request *request, uint64_t which, int64_t most, int32_t **out) {
  uint64_t state = stream(request->seed, which);
  const size_t batch = (size_t)request->problem.batch;
  *out = calloc(batch, sizeof **out);
  if (*out == NULL)
    return cli_fail_memory();
  for (size_t b = 0; b < batch; b++)
    (*out)[b] = (int32_t)(draw(&state) % ((uint64_t)most + 1));
  return CLI_OK;
}

int cli_request_draw(cli_request *request, uint64_t max_bytes) {
  const clattn_problem *problem = &request->problem;
  int code = CLI_OK;
  cli_progress_begin("drawing inputs", NULL, 0);
  for (int i = 0; i < CLI_INPUTS && code == CLI_OK; i++) {
    if (uses(problem, i) && request->input[i].name == NULL)
      code = draw_input(request, i, max_bytes);
  }
  cli_progress_end();
  if (code == CLI_OK && problem->k_length_mode == CLATTN_LENGTH_PER_BATCH && request->k_lengths == NULL)
    code = draw_ints(request, 11, problem->k_len, &request->k_lengths);
  if (code == CLI_OK && problem->q_length_mode == CLATTN_LENGTH_PER_BATCH)
    code = draw_ints(request, 12, problem->q_len, &request->q_lengths);
  if (code == CLI_OK && problem->offset_mode == CLATTN_OFFSET_PER_BATCH)
    code = draw_ints(request, 13, problem->k_len, &request->q_offsets);
  return code;
}

void cli_request_close(cli_request *request) {
  for (int i = 0; i < CLI_INPUTS; i++)
    cli_tensor_close(&request->input[i]);
  free(request->k_lengths);
  free(request->q_lengths);
  free(request->q_offsets);
  request->k_lengths = request->q_lengths = request->q_offsets = NULL;
}
