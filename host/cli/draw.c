/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays of a problem line that nobody gave. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "convert.h"
#include "request.h"
#include "rope.h"

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

/* 0.5 to 1.5. */
static float draw_factor(uint64_t *state) {
  return 0.5f + (float)(draw(state) & 0xffff) * 0x1p-16f;
}

/* A float, rounded to its type. */
static void put_float(clattn_dtype dtype, void *data, int64_t i, float value) {
  if (dtype == CLATTN_F32)
    ((float *)data)[i] = value;
  else
    ((uint16_t *)data)[i] = dtype == CLATTN_F16 ? cli_to_f16(value) : cli_to_bf16(value);
}

/* Any codes, but i8's -128. */
static void draw_codes(uint64_t *state, clattn_dtype dtype, size_t bytes, uint8_t *data) {
  for (size_t i = 0; i < bytes; i++)
    data[i] = dtype == CLATTN_I4 ? (uint8_t)draw(state) : (uint8_t)(draw(state) % 255 + 129);
}

/* Three of four. */
static uint32_t draw_bits(uint64_t *state) {
  const uint64_t bits = draw(state);
  return (uint32_t)(bits | bits >> 32);
}

/* The standard slopes, wherever the strides put the heads. */
static int standard_slopes(const int64_t shape[4], const int64_t stride[4], float *data) {
  float *slopes = calloc((size_t)shape[1], sizeof *slopes);
  if (slopes == NULL)
    return cli_fail_memory();
  const clattn_status status = clattn_alibi_slopes(shape[1], slopes);
  for (int64_t b = 0; b < shape[0] && status == CLATTN_SUCCESS; b++) {
    for (int64_t h = 0; h < shape[1]; h++)
      data[b * stride[0] + h * stride[1]] = slopes[h];
  }
  free(slopes);
  return status == CLATTN_SUCCESS ? CLI_OK : cli_fail_status(status, NULL, cli_input_name(CLI_ALIBI_SLOPES));
}

static int draw_input(cli_request *request, int input, uint64_t max_bytes) {
  const clattn_problem *problem = &request->problem;
  cli_tensor *tensor = &request->input[input];
  int64_t shape[4], stride[4];
  const int bytes_of_mask = input == CLI_KEEP_MASK && problem->keep_mask_kind == CLATTN_MASK_U8;
  const int bits_of_mask = (input == CLI_KEEP_MASK && !bytes_of_mask) || input == CLI_BLOCK_MASK;
  const clattn_tensor *descriptor = cli_input_tensor(&request->problem, input);
  const int of_positions = input == CLI_POSITIONS_Q || input == CLI_POSITIONS_K;
  const int of_tables = input == CLI_ROPE_COS || input == CLI_ROPE_SIN;
  const int untyped = bytes_of_mask || bits_of_mask || input == CLI_PAGE_TABLE || of_positions;
  const clattn_dtype dtype = untyped ? CLATTN_F32 : descriptor->dtype;
  /* What codes have on average: 73 is the deviation of -127 to 127, 4.6 that of -8 to 7. */
  const float size = input != CLI_K_SCALE && input != CLI_V_SCALE                                ? 1
                     : (input == CLI_K_SCALE ? problem->k.dtype : problem->v.dtype) == CLATTN_I8 ? 73
                                                                                                 : 4.6f;
  /* Streams 11 to 16 are those of the integers. */
  uint64_t state = stream(request->seed, (uint64_t)input + (input <= CLI_PAGE_TABLE ? 1 : 11));
  cli_input_shape(problem, input, shape);
  if (!cli_input_strides(problem, input, shape, stride))
    return cli_fail(CLI_USAGE, "--problem: the layout of %s is not supported yet", cli_input_name(input));
  const int64_t count = cli_extent(shape, stride);
  const size_t bytes = count < 0 || count > INT64_MAX / 8 ? SIZE_MAX
                       : bytes_of_mask                    ? (size_t)count
                                                          : cli_dtype_bytes(dtype, (size_t)count);
  if (bytes > max_bytes)
    return cli_fail(CLI_FAILED, "%s is larger than the device's largest allocation of %" PRIu64 " bytes",
                    cli_input_name(input), max_bytes);
  void *data = calloc(bytes > 0 ? bytes : 1, 1);
  if (data == NULL)
    return cli_fail_memory();
  if (cli_dtype_is_quantised(dtype))
    draw_codes(&state, dtype, bytes, data);
  if (of_tables && count > 0)
    cli_rope_fill(request->rope_base, input == CLI_ROPE_SIN, shape, stride, data);
  for (int64_t i = 0; i < count && input != CLI_ALIBI_SLOPES && !of_tables && !cli_dtype_is_quantised(dtype); i++) {
    if (bytes_of_mask)
      ((uint8_t *)data)[i] = draw(&state) % 4 != 0;
    else if (bits_of_mask)
      ((uint32_t *)data)[i] = draw_bits(&state);
    else if (input == CLI_PAGE_TABLE)
      ((int32_t *)data)[i] = problem->num_pages > 0 ? (int32_t)(draw(&state) % (uint64_t)problem->num_pages) : 0;
    else if (of_positions)
      ((int32_t *)data)[i] = (int32_t)(draw(&state) % (uint64_t)problem->rope_positions);
    else if (input == CLI_HEAD_SCALE || input == CLI_K_SCALE || input == CLI_V_SCALE)
      put_float(dtype, data, i, draw_factor(&state) / size);
    else
      put_float(dtype, data, i, draw_normal(&state));
  }
  tensor->name = cli_input_name(input);
  tensor->dtype = dtype;
  tensor->rank = 4;
  memcpy(tensor->shape, shape, sizeof shape);
  memcpy(tensor->stride, stride, sizeof stride);
  cli_tensor_replace(tensor, data, bytes);
  return input == CLI_ALIBI_SLOPES ? standard_slopes(shape, stride, data) : CLI_OK;
}

/* Sequences of 0 to `longest` rows, together up to `rows`; they have about the same share of them. */
static void draw_sequences(uint64_t *state, int64_t batch, int64_t longest, int64_t rows, int32_t *out) {
  int64_t at = 0;
  for (int64_t b = 0; b < batch; b++) {
    const int64_t left = rows - at, share = batch - b > 1 ? 2 * (left / (batch - b)) : left;
    const int64_t most = share < longest ? share : longest;
    out[b] = (int32_t)at;
    at += b < batch - 1 ? (int64_t)(draw(state) % ((uint64_t)most + 1)) : most;
  }
  out[batch] = (int32_t)at;
}

/* What a mode or layout of the problem asks for and nobody gave. */
static int draw_ints(cli_request *request, int which) {
  static const uint64_t streams[CLI_INTS] = {[CLI_K_LENGTHS] = 11,    [CLI_Q_LENGTHS] = 12,    [CLI_Q_OFFSETS] = 13,
                                             [CLI_CU_SEQLENS_Q] = 14, [CLI_CU_SEQLENS_K] = 15, [CLI_PREFIX] = 16};
  const clattn_problem *problem = &request->problem;
  uint64_t state = stream(request->seed, streams[which]);
  int32_t *data = calloc((size_t)problem->batch + 1, sizeof *data);
  request->ints[which] = data;
  if (data == NULL)
    return cli_fail_memory();
  if (which == CLI_CU_SEQLENS_Q)
    draw_sequences(&state, problem->batch, problem->q_len, problem->total_q, data);
  if (which == CLI_CU_SEQLENS_K)
    draw_sequences(&state, problem->batch, problem->k_len, problem->total_k, data);
  for (int64_t b = 0; b < problem->batch && which != CLI_CU_SEQLENS_Q && which != CLI_CU_SEQLENS_K; b++) {
    const int64_t most = which == CLI_Q_LENGTHS   ? cli_queries_of(request, b)
                         : which == CLI_K_LENGTHS ? cli_keys_of(request, b)
                                                  : problem->k_len;
    data[b] = (int32_t)(draw(&state) % ((uint64_t)most + 1));
  }
  return CLI_OK;
}

int cli_request_draw(cli_request *request, uint64_t max_bytes) {
  const clattn_problem *problem = &request->problem;
  /* Sequences come before the lengths that they bound. */
  const struct {
    int which, used;
  } ints[] = {{CLI_CU_SEQLENS_Q, cli_packed_q(problem)},
              {CLI_CU_SEQLENS_K, cli_packed_k(problem)},
              {CLI_K_LENGTHS, problem->k_length_mode == CLATTN_LENGTH_PER_BATCH},
              {CLI_Q_LENGTHS, problem->q_length_mode == CLATTN_LENGTH_PER_BATCH},
              {CLI_Q_OFFSETS, problem->offset_mode == CLATTN_OFFSET_PER_BATCH},
              {CLI_PREFIX, problem->prefix_mode == CLATTN_PREFIX_PER_BATCH}};
  int code = CLI_OK;
  cli_progress_begin("drawing inputs", NULL, 0);
  for (int i = 0; i < CLI_INPUTS && code == CLI_OK; i++) {
    if (cli_input_used(problem, i) && request->input[i].name == NULL)
      code = draw_input(request, i, max_bytes);
  }
  cli_progress_end();
  for (size_t i = 0; i < sizeof ints / sizeof ints[0] && code == CLI_OK; i++) {
    if (ints[i].used && request->ints[ints[i].which] == NULL)
      code = draw_ints(request, ints[i].which);
  }
  return code;
}
