/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "pass.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "convert.h"

/* Buffers can't be empty. */
enum { LEAST_BYTES = 64 };

static int make_buffer(const cli_session *session, const cli_tensor *tensor, cl_mem *out) {
  cl_int status = CL_SUCCESS;
  if (tensor->name == NULL)
    return CLI_OK;
  /* The host pointer is only read: COPY_HOST_PTR. */
  if (tensor->bytes > 0)
    *out = clCreateBuffer(session->cl, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, tensor->bytes,
                          (void *)(uintptr_t)tensor->data, &status);
  else
    *out = clCreateBuffer(session->cl, CL_MEM_READ_ONLY, LEAST_BYTES, NULL, &status);
  if (status == CL_SUCCESS)
    return CLI_OK;
  *out = NULL;
  return cli_fail(CLI_FAILED, "a buffer of %zu bytes for %s could not be made: %s", tensor->bytes, tensor->name,
                  clattn_status_name(status));
}

int cli_buffers_make(const cli_session *session, const cli_request *request, cli_buffers *out) {
  int code = CLI_OK;
  memset(out, 0, sizeof *out);
  for (int i = 0; i < CLI_INPUTS && code == CLI_OK; i++)
    code = make_buffer(session, &request->input[i], &out->input[i]);
  for (int i = 0; i < request->hook.buffers && code == CLI_OK; i++)
    code = make_buffer(session, &request->hook.buffer[i], &out->hook[i]);
  if (code != CLI_OK)
    cli_buffers_release(out);
  return code;
}

void cli_buffers_release(cli_buffers *buffers) {
  for (int i = 0; i < CLI_INPUTS; i++) {
    if (buffers->input[i] != NULL)
      clReleaseMemObject(buffers->input[i]);
    buffers->input[i] = NULL;
  }
  for (int i = 0; i < CLI_HOOK_SLOTS; i++) {
    if (buffers->hook[i] != NULL)
      clReleaseMemObject(buffers->hook[i]);
    buffers->hook[i] = NULL;
  }
}

static const uint32_t output_bits[CLI_OUTPUTS] = {CLATTN_OUT_O, CLATTN_OUT_LSE, CLATTN_OUT_SCORES,
                                                  CLATTN_OUT_MAX_LOGIT};
static const char *const output_names[CLI_OUTPUTS] = {"the output", "lse", "the scores", "max_logit"};

static int make_result(const cli_session *session, const clattn_problem *problem, int output, cli_result *result) {
  const clattn_tensor *const tensors[CLI_OUTPUTS] = {&problem->o, &problem->lse, &problem->scores, &problem->max_logit};
  const int64_t last[CLI_OUTPUTS] = {problem->v_dim, 1, problem->k_len, 1};
  cl_int status = CL_SUCCESS;
  result->shape[0] = problem->batch;
  result->shape[1] = problem->q_heads;
  result->shape[2] = output == CLI_MAX_LOGIT ? 1 : problem->q_len;
  result->shape[3] = last[output];
  const int packed = cli_packed_q(problem) && (output == CLI_O || output == CLI_LSE);
  if (packed) {
    result->shape[0] = 1;
    result->shape[2] = problem->total_q;
  }
  clattn_tensor tensor = *tensors[output];
  if (packed && output == CLI_LSE && (tensor.stride[1] | tensor.stride[2]) == 0)
    tensor.layout = CLATTN_LAYOUT_BHSD; /* (head, row), unlike all else that is packed */
  if (!cli_strides(&tensor, result->shape, result->stride))
    return cli_fail(CLI_USAGE, "the layout of %s is not supported yet", output_names[output]);
  const int64_t count = cli_extent(result->shape, result->stride);
  const uint64_t most = session->info.max_alloc_bytes;
  result->dtype = tensor.dtype;
  if (count < 0 || (uint64_t)count > most / cli_dtype_bytes(tensor.dtype, 1))
    return cli_fail(CLI_FAILED, "%s is larger than the device's largest allocation of %" PRIu64 " bytes",
                    output_names[output], most);
  const size_t bytes = cli_dtype_bytes(tensor.dtype, (size_t)count);
  result->buffer =
      clCreateBuffer(session->cl, CL_MEM_READ_WRITE, bytes > LEAST_BYTES ? bytes : LEAST_BYTES, NULL, &status);
  if (status != CL_SUCCESS)
    return cli_fail(CLI_FAILED, "a buffer of %zu bytes for %s could not be made: %s", bytes, output_names[output],
                    clattn_status_name(status));
  if (packed && bytes > 0) {
    /* Rows behind the last sequence are nobody's, and are not written. */
    const cl_uchar zero = 0;
    status = clEnqueueFillBuffer(session->queue, result->buffer, &zero, sizeof zero, 0, bytes, 0, NULL, NULL);
    if (status != CL_SUCCESS)
      return cli_fail(CLI_FAILED, "%s could not be filled with 0: %s", output_names[output],
                      clattn_status_name(status));
  }
  return CLI_OK;
}

static int map_result(const cli_session *session, int output, cli_result *result) {
  cl_int status = CL_SUCCESS;
  const int64_t count = cli_extent(result->shape, result->stride);
  const size_t bytes = cli_dtype_bytes(result->dtype, (size_t)count);
  result->stored = clEnqueueMapBuffer(session->queue, result->buffer, CL_TRUE, CL_MAP_READ, 0,
                                      bytes > LEAST_BYTES ? bytes : LEAST_BYTES, 0, NULL, NULL, &status);
  if (status != CL_SUCCESS) {
    result->stored = NULL;
    return cli_fail(CLI_FAILED, "%s could not be read back: %s", output_names[output], clattn_status_name(status));
  }
  result->data = result->stored;
  if (result->dtype != CLATTN_F32) {
    result->widened = malloc(count > 0 ? (size_t)count * sizeof *result->widened : 1);
    result->data = result->widened;
    if (result->widened == NULL)
      return cli_fail_memory();
    cli_dtype_convert(result->dtype, result->stored, CLATTN_F32, result->widened, (size_t)count);
  }
  return CLI_OK;
}

static clattn_ints host_ints(const int32_t *values, int64_t count) {
  clattn_ints ints;
  memset(&ints, 0, sizeof ints);
  if (values != NULL) {
    ints.kind = CLATTN_ARRAY_HOST;
    ints.count = (uint32_t)count;
    ints.host = values;
  }
  return ints;
}

void cli_pass_args(const cli_request *request, const cli_buffers *buffers, const cli_pass *pass, clattn_args *args) {
  clattn_mem *const inputs[CLI_INPUTS] = {&args->q,
                                          &args->k,
                                          &args->v,
                                          &args->bias,
                                          &args->keep_mask,
                                          &args->block_mask,
                                          &args->alibi_slopes,
                                          &args->sink,
                                          &args->page_table,
                                          &args->head_scale,
                                          &args->add_w,
                                          &args->k_scale,
                                          &args->v_scale,
                                          &args->rope_cos,
                                          &args->rope_sin,
                                          &args->positions_q,
                                          &args->positions_k};
  clattn_ints *const ints[CLI_INTS] = {[CLI_Q_LENGTHS] = &args->q_lengths,
                                       [CLI_K_LENGTHS] = &args->k_lengths,
                                       [CLI_PREFIX] = &args->prefix,
                                       [CLI_CU_SEQLENS_Q] = &args->cu_seqlens_q,
                                       [CLI_CU_SEQLENS_K] = &args->cu_seqlens_k,
                                       [CLI_Q_OFFSETS] = &args->q_offsets};
  clattn_mem *const outputs[CLI_OUTPUTS] = {&args->o, &args->lse, &args->scores, &args->max_logit};
  const int64_t batch = request->problem.batch;
  clattn_args_init(args);
  for (int i = 0; i < CLI_INPUTS; i++) {
    /* Values count only where there is an output. */
    if (buffers->input[i] != NULL && ((i != CLI_V && i != CLI_V_SCALE) || pass->result[CLI_O].buffer != NULL))
      *inputs[i] = clattn_buffer(buffers->input[i], 0);
  }
  for (int i = 0; i < CLI_HOOK_SLOTS; i++) {
    if (buffers->hook[i] != NULL)
      args->hook_buffer[i] = clattn_buffer(buffers->hook[i], 0);
  }
  for (int i = 0; i < request->hook.scalars; i++) {
    args->hook_scalar[i].kind = CLATTN_SCALAR_HOST;
    args->hook_scalar[i].value = request->hook.scalar[i];
  }
  for (int i = 0; i < CLI_OUTPUTS; i++) {
    if (pass->result[i].buffer != NULL)
      *outputs[i] = clattn_buffer(pass->result[i].buffer, 0);
  }
  for (int i = 0; i < CLI_INTS; i++) {
    const int one_more = i == CLI_CU_SEQLENS_Q || i == CLI_CU_SEQLENS_K;
    *ints[i] = host_ints(request->ints[i], batch + one_more);
  }
}

/* Enqueues, waits, and says what went wrong. */
static int execute(const cli_session *session, const cli_request *request, const cli_buffers *buffers, cli_pass *pass,
                   clattn_error *error) {
  clattn_args args;
  cl_event done = NULL, *launches = NULL;
  uint32_t launch_count = 0;
  cl_int state = CL_COMPLETE;
  cli_pass_args(request, buffers, pass, &args);
  args.error = error;
  if (cli_progress_wanted() && pass->info.launches > 0) {
    launches = calloc(pass->info.launches, sizeof *launches);
    if (launches != NULL) {
      args.launch_events = launches;
      args.launch_events_capacity = pass->info.launches;
      args.num_launch_events = &launch_count;
    }
  }
  const double start = cli_seconds();
  clattn_status status = clattn_enqueue(pass->plan, session->queue, &args, 0, NULL, &done);
  int code = CLI_OK;
  if (status != CLATTN_SUCCESS) {
    code = cli_fail_status(status, error, "run");
  } else {
    cli_progress_begin("computing", launches, launch_count);
    status = clWaitForEvents(1, &done);
    if (status == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST &&
        clGetEventInfo(done, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL) == CL_SUCCESS && state < 0)
      status = state; /* the command's own code says more */
    cli_progress_end();
    if (status != CL_SUCCESS)
      code = cli_fail_status(status, NULL, "the computation failed on the device");
  }
  pass->seconds = cli_seconds() - start;
  for (uint32_t i = 0; i < launch_count; i++)
    clReleaseEvent(launches[i]);
  if (done != NULL)
    clReleaseEvent(done);
  free(launches);
  return code;
}

int cli_pass_plan(const cli_session *session, const clattn_problem *problem, uint32_t outputs, clattn_stage stage,
                  const char *variant, uint64_t workspace_cap, cli_pass *out) {
  clattn_error error;
  clattn_plan_options options;
  memset(out, 0, sizeof *out);
  out->problem = *problem;
  out->problem.outputs = outputs;
  out->problem.stage = outputs & CLATTN_OUT_SCORES ? stage : CLATTN_STAGE_RAW;
  int code = cli_error_init(&error);
  if (code != CLI_OK)
    return code;
  clattn_plan_options_init(&options);
  options.variant = variant;
  options.workspace_cap = workspace_cap;
  cli_progress_begin("building kernels", NULL, 0);
  clattn_status status = clattn_plan_create(session->context, &out->problem, &options, &out->plan, &error);
  cli_progress_end();
  if (status == CLATTN_SUCCESS) {
    clattn_plan_info_init(&out->info);
    status = clattn_plan_get_info(out->plan, &out->info);
  }
  if (status != CLATTN_SUCCESS)
    code = cli_fail_status(status, &error, "plan");
  for (int i = 0; i < CLI_OUTPUTS && code == CLI_OK; i++) {
    if (outputs & output_bits[i])
      code = make_result(session, &out->problem, i, &out->result[i]);
  }
  cli_error_release(&error);
  return code;
}

int cli_pass_run(const cli_session *session, const cli_request *request, const cli_buffers *buffers, cli_pass *pass) {
  clattn_error error;
  int code = cli_error_init(&error);
  if (code != CLI_OK)
    return code;
  code = execute(session, request, buffers, pass, &error);
  for (int i = 0; i < CLI_OUTPUTS && code == CLI_OK; i++) {
    if (pass->problem.outputs & output_bits[i])
      code = map_result(session, i, &pass->result[i]);
  }
  cli_error_release(&error);
  return code;
}

void cli_pass_close(const cli_session *session, cli_pass *pass) {
  for (int i = 0; i < CLI_OUTPUTS; i++) {
    cli_result *result = &pass->result[i];
    if (result->stored != NULL)
      clEnqueueUnmapMemObject(session->queue, result->buffer, (void *)(uintptr_t)result->stored, 0, NULL, NULL);
    if (result->buffer != NULL)
      clReleaseMemObject(result->buffer);
    free(result->widened);
    result->widened = NULL;
    result->stored = NULL;
    result->data = NULL;
    result->buffer = NULL;
  }
  if (session->queue != NULL)
    clFinish(session->queue);
  clattn_plan_release(pass->plan);
  pass->plan = NULL;
}

void cli_result_statistics(const cli_result *result, cli_statistics *out) {
  double sum = 0;
  memset(out, 0, sizeof *out);
  out->least = INFINITY;
  out->most = -INFINITY;
  for (int64_t b = 0; b < result->shape[0]; b++) {
    for (int64_t h = 0; h < result->shape[1]; h++) {
      for (int64_t r = 0; r < result->shape[2]; r++) {
        const float *row = result->data + b * result->stride[0] + h * result->stride[1] + r * result->stride[2];
        for (int64_t e = 0; e < result->shape[3]; e++) {
          const double value = (double)row[e * result->stride[3]];
          out->count++;
          if (!isfinite(value)) {
            out->not_finite++;
            continue;
          }
          out->least = value < out->least ? value : out->least;
          out->most = value > out->most ? value : out->most;
          sum += value;
        }
      }
    }
  }
  const uint64_t finite = out->count - out->not_finite;
  out->mean = finite > 0 ? sum / (double)finite : (double)NAN;
  if (finite == 0)
    out->least = out->most = (double)NAN;
}

int cli_result_shape(const cli_pass *pass, int output, int64_t shape[4]) {
  const cli_result *result = &pass->result[output];
  const int packed = cli_packed_q(&pass->problem) && (output == CLI_O || output == CLI_LSE);
  const int rank = output == CLI_O || output == CLI_SCORES ? 4 : output == CLI_LSE ? 3 : 2;
  memcpy(shape, result->shape, sizeof result->shape);
  if (!packed)
    return rank;
  shape[0] = result->shape[output == CLI_O ? 2 : 1];
  shape[1] = result->shape[output == CLI_O ? 1 : 2];
  shape[2] = result->shape[3];
  return rank - 1;
}
