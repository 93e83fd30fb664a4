/* SPDX-License-Identifier: Apache-2.0 */
#include "conformance_run.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clattn_ref.h"
#include "conformance_memory.h"

static const uint32_t out_bits[CF_RESULTS] = {CLATTN_OUT_O, CLATTN_OUT_LSE, CLATTN_OUT_SCORES};
static const char *const out_names[CF_RESULTS] = {"o", "lse", "scores"};

static int wants(const cf_job *job, cf_result kind) {
  return (job->problem.outputs & out_bits[kind]) != 0;
}

/* Compares what the job computed; got[kind] is contiguous in (batch, head, row, element). */
static int judge(const cf_work *work, const cf_job *job, double *const got[CF_RESULTS], cf_reason *reason) {
  for (cf_result kind = 0; kind < CF_RESULTS; kind++) {
    const cf_want *result = &work->result[kind];
    if (wants(job, kind) && result->want != NULL && !cf_compare(result->want, &result->view, got[kind], reason))
      return 0;
  }
  return 1;
}

/* ---- on a device ---- */

/* Places in `buffer`: one for each input, then one for each result, then the workspace. */
enum { PLACE_RESULT = CF_SLOTS, PLACE_WORKSPACE = CF_SLOTS + CF_RESULTS, PLACES };

typedef struct device_run {
  const cli_session *session;
  cf_guarded at[PLACES];
  double *got[CF_RESULTS];
} device_run;

/* data NULL: all poison.  Tensors begin at an odd multiple of 4 bytes, since nothing promises more; the workspace at a
 * multiple of 64. */
static int make_buffer(device_run *run, int place, const void *data, size_t bytes, cl_mem_flags flags,
                       cf_reason *reason) {
  return cf_guarded_make(run->session, data, bytes, place == PLACE_WORKSPACE ? CF_GUARD : CF_GUARD + CF_SHIFT, flags,
                         &run->at[place], reason);
}

static clattn_dtype result_dtype(const cf_job *job, cf_result kind) {
  return kind == CF_O ? job->problem.o.dtype : CLATTN_F32;
}

static int read_result(device_run *run, const cf_work *work, const cf_job *job, cf_result kind, cf_reason *reason) {
  const cf_view *view = &work->result[kind].view;
  const int64_t *stride = view->stride, count = cf_view_count(view);
  const clattn_dtype dtype = result_dtype(job, kind);
  cf_array array;
  memset(&array, 0, sizeof array);
  array.type = dtype == CLATTN_F16 ? CF_F16 : dtype == CLATTN_BF16 ? CF_BF16 : CF_F32;
  array.data = cf_guarded_read(run->session, &run->at[PLACE_RESULT + (int)kind], out_names[kind], reason);
  if (array.data == NULL)
    return 0;
  double *got = malloc((size_t)(count > 0 ? count : 1) * sizeof *got);
  run->got[kind] = got;
  for (int64_t b = 0; b < view->shape[0] && got != NULL; b++) {
    for (int64_t h = 0; h < view->shape[1]; h++) {
      for (int64_t i = 0; i < view->shape[2]; i++) {
        for (int64_t d = 0; d < view->shape[3]; d++)
          *got++ = cf_value(&array, b * stride[0] + h * stride[1] + i * stride[2] + d * stride[3]);
      }
    }
  }
  free(array.data);
  return got != NULL ? 1 : cf_fail(reason, "out of memory");
}

/* A tensor that the problem does not use must not be given. */
static int job_uses(const cf_job *job, int slot) {
  if (slot == CF_V)
    return (job->problem.outputs & CLATTN_OUT_O) != 0;
  if (slot == CF_KEEP || slot == CF_BITS)
    return job->problem.keep_mask_kind != CLATTN_MASK_NONE && slot == (int)job->keep;
  return 1;
}

static int fill_args(device_run *run, const cf_work *work, const cf_job *job, const clattn_plan *plan,
                     clattn_args *args, cf_reason *reason) {
  clattn_mem *const inputs[CF_SLOTS] = {&args->q,         &args->k,         &args->v,           &args->bias,
                                        &args->keep_mask, &args->keep_mask, &args->alibi_slopes};
  clattn_mem *const results[CF_RESULTS] = {&args->o, &args->lse, &args->scores};
  clattn_plan_info info;
  args->sizes = CLATTN_SIZES_GIVEN;
  args->batch = work->batch;
  args->q_len = job->problem.q_len;
  args->k_len = job->problem.k_len;
  for (int slot = 0; slot < CF_SLOTS; slot++) {
    if (!job_uses(job, slot) || work->input[slot].data == NULL)
      continue;
    if (!make_buffer(run, slot, work->input[slot].data, work->input[slot].bytes, CL_MEM_READ_ONLY, reason))
      return 0;
    *inputs[slot] = cf_guarded_mem(&run->at[slot]);
  }
  for (cf_result kind = 0; kind < CF_RESULTS; kind++) {
    const int place = PLACE_RESULT + (int)kind;
    if (!wants(job, kind))
      continue;
    const size_t element = result_dtype(job, kind) == CLATTN_F32 ? 4 : 2;
    const size_t bytes = (size_t)cf_view_count(&work->result[kind].view) * element;
    if (!make_buffer(run, place, NULL, bytes, CL_MEM_READ_WRITE, reason))
      return 0;
    *results[kind] = cf_guarded_mem(&run->at[place]);
  }
  if (job->use_k_lengths) {
    args->k_lengths.kind = CLATTN_ARRAY_HOST;
    args->k_lengths.count = (uint32_t)work->batch;
    args->k_lengths.host = work->k_lengths;
  }
  if (job->use_q_offsets) {
    args->q_offsets.kind = CLATTN_ARRAY_HOST;
    args->q_offsets.count = (uint32_t)work->batch;
    args->q_offsets.host = work->q_offsets;
  }
  clattn_plan_info_init(&info);
  const clattn_status status = clattn_plan_get_info(plan, &info);
  if (status != CLATTN_SUCCESS)
    return cf_failed(reason, "plan information", status, NULL);
  /* The plain job brings its own workspace, of exactly the size that the plan asks for; the others leave it to
   * clattn. */
  if (job->what[0] == 0 && info.workspace_bytes > 0) {
    if (!make_buffer(run, PLACE_WORKSPACE, NULL, (size_t)info.workspace_bytes, CL_MEM_READ_WRITE, reason))
      return 0;
    args->workspace = cf_guarded_mem(&run->at[PLACE_WORKSPACE]);
  }
  return 1;
}

int cf_run_device(const cli_session *session, const char *variant, const cf_work *work, const cf_job *job,
                  cf_reason *reason) {
  device_run run;
  clattn_error error;
  clattn_args args;
  clattn_plan_options options;
  clattn_plan *plan = NULL;
  int result = 0;
  memset(&run, 0, sizeof run);
  run.session = session;
  clattn_error_init(&error);
  clattn_args_init(&args);
  clattn_plan_options_init(&options);
  options.variant = variant;
  args.error = &error;
  clattn_status status = clattn_plan_create(session->context, &job->problem, &options, &plan, &error);
  if (status != CLATTN_SUCCESS) {
    cf_failed(reason, "plan", status, &error);
    goto done;
  }
  if (!fill_args(&run, work, job, plan, &args, reason))
    goto done;
  status = clattn_enqueue(plan, session->queue, &args, 0, NULL, NULL);
  if (status != CLATTN_SUCCESS) {
    cf_failed(reason, "enqueue", status, &error);
    goto done;
  }
  status = clFinish(session->queue);
  if (status != CL_SUCCESS) {
    cf_failed(reason, "clFinish", status, NULL);
    goto done;
  }
  for (cf_result kind = 0; kind < CF_RESULTS; kind++) {
    if (wants(job, kind) && !read_result(&run, work, job, kind, reason))
      goto done;
  }
  if (run.at[PLACE_WORKSPACE].buffer != NULL) {
    void *workspace = cf_guarded_read(session, &run.at[PLACE_WORKSPACE], "the workspace", reason);
    if (workspace == NULL)
      goto done;
    free(workspace);
  }
  result = judge(work, job, run.got, reason);
done:
  for (int place = 0; place < PLACES; place++)
    cf_guarded_release(&run.at[place]);
  for (int kind = 0; kind < CF_RESULTS; kind++)
    free(run.got[kind]);
  clattn_plan_release(plan);
  return result;
}

/* ---- by the reference ---- */

int cf_run_reference(const cf_work *work, const cf_job *job, cf_reason *reason) {
  const cf_bytes *in = work->input;
  double *got[CF_RESULTS] = {NULL, NULL, NULL};
  clattn_ref_args args;
  clattn_error error;
  int result = 0;
  clattn_error_init(&error);
  clattn_ref_args_init(&args);
  args.error = &error;
  args.sizes = CLATTN_SIZES_GIVEN;
  args.batch = work->batch;
  args.q_len = job->problem.q_len;
  args.k_len = job->problem.k_len;
  args.q = in[CF_Q].data;
  args.k = in[CF_K].data;
  args.v = in[CF_V].data;
  args.bias = in[CF_BIAS].data;
  args.alibi_slopes = in[CF_SLOPES].data;
  args.keep_mask = job->problem.keep_mask_kind != CLATTN_MASK_NONE ? in[job->keep].data : NULL;
  args.k_lengths = job->use_k_lengths ? work->k_lengths : NULL;
  args.q_offsets = job->use_q_offsets ? work->q_offsets : NULL;
  for (cf_result kind = 0; kind < CF_RESULTS; kind++) {
    if (!wants(job, kind))
      continue;
    const int64_t count = cf_view_count(&work->result[kind].view);
    got[kind] = malloc((size_t)(count > 0 ? count : 1) * sizeof(double));
    if (got[kind] == NULL) {
      cf_fail(reason, "out of memory");
      goto done;
    }
    for (int64_t i = 0; i < count; i++)
      got[kind][i] = (double)NAN;
  }
  args.o = got[CF_O];
  args.lse = got[CF_LSE];
  args.scores = got[CF_SCORES];
  const clattn_status status = clattn_ref_attention(&job->problem, &args);
  if (status != CLATTN_SUCCESS)
    cf_failed(reason, "reference", status, &error);
  else
    result = judge(work, job, got, reason);
done:
  for (int kind = 0; kind < CF_RESULTS; kind++)
    free(got[kind]);
  return result;
}
