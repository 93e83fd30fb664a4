/* SPDX-License-Identifier: Apache-2.0 */
#include "explain_small.h"

#include <inttypes.h>
#include <string.h>

#include "cli.h"
#include "convert.h"
#include "pass.h"
#include "tensor.h"

int cli_small_load(const char *name, const char *source, cli_small *out) {
  cli_tensor tensor;
  char shape[128];
  memset(out, 0, sizeof *out);
  int code = cli_tensor_load(&tensor, name, source, "f4 f2", 2, 2);
  if (code == CLI_OK && (tensor.shape[0] < 1 || tensor.shape[1] < 1 || tensor.shape[0] > CLI_SMALL_MOST ||
                         tensor.shape[1] > CLI_SMALL_MOST))
    code = cli_fail(CLI_USAGE, "--%s has shape %s: explain takes matrices from 1 x 1 to %d x %d", name,
                    cli_shape_text(2, tensor.shape, shape, sizeof shape), CLI_SMALL_MOST, CLI_SMALL_MOST);
  if (code == CLI_OK) {
    const clattn_dtype dtype = tensor.type[1] == '2' ? CLATTN_F16 : CLATTN_F32;
    out->rows = tensor.shape[0];
    out->columns = tensor.shape[1];
    for (int64_t i = 0; i < out->rows; i++) {
      for (int64_t j = 0; j < out->columns; j++)
        out->at[i][j] = (float)cli_dtype_load(dtype, tensor.data, i * tensor.stride[0] + j * tensor.stride[1]);
    }
  }
  cli_tensor_close(&tensor);
  return code;
}

cli_small cli_small_columns(const cli_small *matrix, int64_t first, int64_t count) {
  cli_small part;
  memset(&part, 0, sizeof part);
  part.rows = matrix->rows;
  part.columns = count;
  for (int64_t i = 0; i < part.rows; i++)
    memcpy(part.at[i], matrix->at[i] + first, (size_t)count * sizeof part.at[i][0]);
  return part;
}

int cli_lab_open(const char *device, const char *variant, cli_lab *out) {
  memset(out, 0, sizeof *out);
  out->variant = variant;
  return cli_session_open(device, &out->session);
}

void cli_lab_close(cli_lab *lab) {
  cli_session_close(&lab->session);
}

static void take_result(const cli_result *result, cli_small *out) {
  memset(out, 0, sizeof *out);
  out->rows = result->shape[2];
  out->columns = result->shape[3];
  for (int64_t i = 0; i < out->rows; i++) {
    for (int64_t j = 0; j < out->columns; j++)
      out->at[i][j] = result->data[i * result->stride[2] + j * result->stride[3]];
  }
}

/* One pass of a problem that is complete but for its outputs. */
static int pass(cli_lab *lab, const clattn_problem *problem, const cli_small *const inputs[CLI_INPUTS],
                clattn_stage stage, cli_small *scores, cli_small *o) {
  cli_request request;
  cli_buffers buffers;
  cli_pass one;
  memset(&request, 0, sizeof request);
  memset(&buffers, 0, sizeof buffers);
  memset(&one, 0, sizeof one);
  request.problem = *problem;
  for (int i = 0; i < CLI_INPUTS; i++) {
    if (inputs[i] == NULL)
      continue;
    request.input[i].name = cli_input_name(i);
    request.input[i].data = inputs[i]->at;
    request.input[i].bytes = sizeof inputs[i]->at;
  }
  const uint32_t outputs = CLATTN_OUT_SCORES | (o != NULL ? (uint32_t)CLATTN_OUT_O : 0);
  int code = cli_pass_plan(&lab->session, problem, outputs, stage, lab->variant, 0, &one);
  if (code == CLI_OK)
    code = cli_buffers_make(&lab->session, &request, &buffers);
  if (code == CLI_OK)
    code = cli_pass_run(&lab->session, &request, &buffers, &one);
  if (code == CLI_OK) {
    lab->used = one.info.variant;
    take_result(&one.result[CLI_SCORES], scores);
    if (o != NULL)
      take_result(&one.result[CLI_O], o);
  }
  cli_pass_close(&lab->session, &one);
  cli_buffers_release(&buffers);
  return code;
}

int cli_small_product(cli_lab *lab, const cli_small *a, const cli_small *b, cli_small *out) {
  clattn_problem problem;
  clattn_problem_init(&problem);
  problem.batch = problem.q_heads = problem.kv_heads = problem.v_dim = 1;
  problem.q_len = a->rows;
  problem.k_len = b->columns;
  problem.qk_dim = a->columns;
  problem.q = clattn_strided(CLATTN_F32, 0, 0, CLI_SMALL_MOST, 1);
  problem.k = clattn_strided(CLATTN_F32, 0, 0, 1, CLI_SMALL_MOST); /* a key is a column */
  problem.scale_mode = CLATTN_SCALE_VALUE;
  problem.scale = 1;
  const cli_small *const inputs[CLI_INPUTS] = {[CLI_Q] = a, [CLI_K] = b};
  return pass(lab, &problem, inputs, CLATTN_STAGE_RAW, out, NULL);
}

int cli_small_attend(cli_lab *lab, const clattn_problem *rules, const cli_small_inputs *inputs, clattn_stage stage,
                     cli_small *scores, cli_small *o) {
  const clattn_tensor rows = clattn_strided(CLATTN_F32, 0, 0, CLI_SMALL_MOST, 1);
  const int additive = rules->similarity == CLATTN_ADDITIVE;
  clattn_problem problem = *rules;
  memset(&problem.o, 0, sizeof problem.o);
  problem.batch = problem.q_heads = problem.kv_heads = 1;
  problem.q_len = inputs->q->rows;
  problem.k_len = inputs->k->rows;
  problem.qk_dim = inputs->q->columns;
  problem.v_dim = inputs->v->columns;
  problem.q = problem.k = problem.v = rows;
  problem.use_bias = inputs->bias != NULL;
  if (problem.use_bias)
    problem.bias = rows;
  if (additive)
    problem.add_w = clattn_strided(CLATTN_F32, 0, 0, 0, 1);
  const cli_small *const all[CLI_INPUTS] = {[CLI_Q] = inputs->q,
                                            [CLI_K] = inputs->k,
                                            [CLI_V] = inputs->v,
                                            [CLI_BIAS] = inputs->bias,
                                            [CLI_ADD_W] = additive ? inputs->add_w : NULL};
  return pass(lab, &problem, all, stage, scores, o);
}
