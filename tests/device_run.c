/* SPDX-License-Identifier: Apache-2.0 */
#include "device_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORKSPACE_FRONT 128u
#define WORKSPACE_GUARD 64u

static int complain(const char *what, clattn_status status) {
  (void)fprintf(stderr, "%s: %s\n", what, clattn_status_name(status));
  return 0;
}

/* ---- device ---------------------------------------------------------------------------------------------------- */

int device_rig_open(device_rig *rig) {
  clattn_error error;
  cl_command_queue_properties properties = 0;
  cl_int code;
  clattn_context_options options;
  memset(rig, 0, sizeof *rig);
  clattn_error_init(&error);
  clattn_context_options_init(&options);
  options.allow_amx = 1;
  options.config_text = getenv("CLATTN_TEST_CONFIG");
  clattn_status status = clattn_context_create_default(&options, &rig->context, &error);
  if (status != CLATTN_SUCCESS)
    return complain(error.message, status);
  status = clattn_context_handles(rig->context, &rig->cl, &rig->device);
  if (status != CLATTN_SUCCESS)
    return complain("clattn_context_handles", status);
  rig->queue = clCreateCommandQueue(rig->cl, rig->device, CL_QUEUE_PROFILING_ENABLE, &code);
  if (code != CL_SUCCESS)
    return complain("clCreateCommandQueue", code);
  code = clGetDeviceInfo(rig->device, CL_DEVICE_QUEUE_PROPERTIES, sizeof properties, &properties, NULL);
  if (code == CL_SUCCESS && (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) != 0)
    rig->out_of_order = clCreateCommandQueue(rig->cl, rig->device, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &code);
  return code == CL_SUCCESS ? 1 : complain("clCreateCommandQueue", code);
}

void device_rig_close(device_rig *rig) {
  if (rig->queue != NULL)
    (void)clReleaseCommandQueue(rig->queue);
  if (rig->out_of_order != NULL)
    (void)clReleaseCommandQueue(rig->out_of_order);
  clattn_context_release(rig->context);
  memset(rig, 0, sizeof *rig);
}

static clattn_problem with_outputs(const device_job *job, uint32_t outputs, clattn_stage stage) {
  clattn_problem problem = job->problem;
  problem.outputs = outputs;
  problem.stage = stage;
  return problem;
}

/* 1 if nothing but the elements of an output (when it was written at all) differs from the pattern. */
static int untouched(const image *tensor, int written, const char *name) {
  int same = 1;
  unsigned char *copy = malloc(tensor->bytes);
  if (copy == NULL)
    return complain("no memory", CLATTN_ERROR_OUT_OF_MEMORY);
  memcpy(copy, tensor->memory, tensor->bytes);
  for (int64_t b = 0; written && b < tensor->shape[0]; ++b)
    for (int64_t h = 0; h < tensor->shape[1]; ++h)
      for (int64_t r = 0; r < tensor->shape[2]; ++r)
        for (int64_t e = 0; image_has_row(tensor, b, r) && e < tensor->shape[3]; ++e)
          memset(copy + image_at(tensor, b, h, r, e), OUTPUT_PATTERN, tensor->element);
  for (size_t i = 0; same && i < tensor->bytes; ++i) {
    same = copy[i] == OUTPUT_PATTERN;
    if (!same)
      (void)fprintf(stderr, "%s: byte %zu of the buffer (%zu from the first element) is no element and was written\n",
                    name, i, i - tensor->offset);
  }
  free(copy);
  return same;
}

/* ---- runs ------------------------------------------------------------------------------------------------------ */

clattn_status device_plan(const device_rig *rig, const device_job *job, const run_options *options, clattn_plan **plan,
                          clattn_error *error) {
  clattn_plan_options plan_options;
  const clattn_problem problem = with_outputs(job, options->outputs, options->stage);
  clattn_plan_options_init(&plan_options);
  plan_options.variant = options->variant;
  plan_options.workspace_cap = options->workspace_cap;
  plan_options.check_contents = (uint32_t)job->check_contents;
  return clattn_plan_create(rig->context, &problem, &plan_options, plan, error);
}

static void set_mem(clattn_mem *mem, const image *tensor, int used) {
  if (used && tensor->buffer != NULL)
    *mem = clattn_buffer(tensor->buffer, tensor->offset);
}

static void set_ints(clattn_ints *ints, const job_ints *from, const image *on_device) {
  if (!from->given)
    return;
  ints->kind = on_device->buffer != NULL ? CLATTN_ARRAY_DEVICE : CLATTN_ARRAY_HOST;
  ints->count = (uint32_t)from->count;
  if (on_device->buffer != NULL)
    ints->device = clattn_buffer(on_device->buffer, on_device->offset);
  else
    ints->host = from->brought;
}

static void set_scalar(clattn_scalar *scalar, int given, float value, const image *on_device) {
  if (on_device->buffer != NULL) {
    scalar->kind = CLATTN_SCALAR_DEVICE;
    scalar->device = clattn_buffer(on_device->buffer, on_device->offset);
  } else if (given) {
    scalar->kind = CLATTN_SCALAR_HOST;
    scalar->value = value;
  }
}

void device_args(const device_job *job, const job_memory *memory, uint32_t outputs, clattn_args *args) {
  const image *slot = memory->slot;
  clattn_args_init(args);
  if (job->sizes_given) {
    args->sizes = CLATTN_SIZES_GIVEN;
    args->batch = job->sizes.batch;
    args->q_len = job->sizes.q_len;
    args->k_len = job->sizes.k_len;
  }
  set_mem(&args->q, &slot[CLATTNI_Q], 1);
  set_mem(&args->k, &slot[CLATTNI_K], 1);
  set_mem(&args->v, &slot[CLATTNI_V], (outputs & CLATTN_OUT_O) != 0);
  set_mem(&args->o, &slot[CLATTNI_O], (outputs & CLATTN_OUT_O) != 0);
  set_mem(&args->lse, &slot[CLATTNI_LSE], (outputs & CLATTN_OUT_LSE) != 0);
  set_mem(&args->scores, &slot[CLATTNI_SCORES], (outputs & CLATTN_OUT_SCORES) != 0);
  set_mem(&args->max_logit, &slot[CLATTNI_MAX_LOGIT], (outputs & CLATTN_OUT_MAX_LOGIT) != 0);
  set_mem(&args->bias, &slot[CLATTNI_BIAS], 1);
  set_mem(&args->keep_mask, &slot[CLATTNI_KEEP_MASK], 1);
  set_mem(&args->block_mask, &slot[CLATTNI_BLOCK_MASK], 1);
  set_mem(&args->alibi_slopes, &slot[CLATTNI_ALIBI_SLOPES], 1);
  set_mem(&args->sink, &slot[CLATTNI_SINK], 1);
  set_mem(&args->head_scale, &slot[CLATTNI_HEAD_SCALE], 1);
  set_mem(&args->add_w, &slot[CLATTNI_ADD_W], 1);
  set_mem(&args->k_scale, &slot[CLATTNI_K_SCALE], 1);
  set_mem(&args->v_scale, &slot[CLATTNI_V_SCALE], (outputs & CLATTN_OUT_O) != 0);
  set_mem(&args->page_table, &slot[CLATTNI_PAGE_TABLE], 1);
  set_mem(&args->rope_cos, &slot[CLATTNI_ROPE_COS], 1);
  set_mem(&args->rope_sin, &slot[CLATTNI_ROPE_SIN], 1);
  set_mem(&args->positions_q, &slot[CLATTNI_POSITIONS_Q], 1);
  set_mem(&args->positions_k, &slot[CLATTNI_POSITIONS_K], 1);
  clattn_ints *const arrays[JOB_ARRAYS] = {&args->q_lengths, &args->k_lengths,    &args->q_offsets,
                                           &args->prefix,    &args->cu_seqlens_q, &args->cu_seqlens_k};
  for (int n = 0; n < JOB_ARRAYS; ++n)
    set_ints(arrays[n], &job->array[n], &memory->array[n]);
  set_scalar(&args->scale, job->scale_given, job->scale, &memory->scale);
  set_scalar(&args->softcap, job->softcap_given, job->softcap, &memory->softcap);
}

/* A workspace full of NaN, its end guarded. */
static int open_workspace(const device_rig *rig, const clattn_plan *plan, image *workspace, uint64_t *needed) {
  clattn_plan_info info;
  clattn_plan_info_init(&info);
  const clattn_status status = clattn_plan_get_info(plan, &info);
  if (status != CLATTN_SUCCESS)
    return complain("clattn_plan_get_info", status);
  *needed = info.workspace_bytes;
  return image_open(rig, (size_t)*needed + WORKSPACE_FRONT + WORKSPACE_GUARD, 0xff, workspace);
}

static int workspace_guarded(const image *workspace, uint64_t needed) {
  for (size_t i = 0; i < workspace->bytes; ++i) {
    if (i == WORKSPACE_FRONT)
      i += (size_t)needed;
    if (workspace->memory[i] != 0xff) {
      (void)fprintf(stderr, "byte %zu was written outside the workspace of %llu bytes at %u\n", i,
                    (unsigned long long)needed, WORKSPACE_FRONT);
      return 0;
    }
  }
  return 1;
}

static int all_untouched(const device_job *job, const job_memory *memory, uint32_t outputs) {
  int good = 1;
  const clattn_problem asked = with_outputs(job, outputs, CLATTN_STAGE_RAW);
  for (clattni_slot slot = 0; slot < CLATTNI_SLOTS; ++slot)
    if (clattni_slot_is_output(slot) && memory->slot[slot].memory != NULL)
      good &= untouched(&memory->slot[slot], clattni_slot_used(&asked, slot), clattni_slot_name(slot));
  return good;
}

int device_run(const device_rig *rig, const device_job *job, job_memory *memory, const run_options *options,
               int *claimed) {
  const clattn_plan *plan = options->plan;
  clattn_plan *own = NULL;
  clattn_args args;
  clattn_error error;
  image workspace, *touched[IMAGES_MOST];
  uint64_t needed = 0;
  int good = 0;
  memset(&workspace, 0, sizeof workspace);
  clattn_error_init(&error);
  *claimed = 1;
  if (plan == NULL) {
    clattn_support support;
    const clattn_problem problem = with_outputs(job, options->outputs, options->stage);
    clattn_support_init(&support);
    const clattn_status supported = clattn_supported(rig->context, &problem, options->variant, &support);
    if (supported == CLATTN_ERROR_VARIANT_UNFIT) {
      *claimed = 0;
      return 1;
    }
    if (supported != CLATTN_SUCCESS || device_plan(rig, job, options, &own, &error) != CLATTN_SUCCESS) {
      (void)fprintf(stderr, "no plan: %s%s\n", supported != CLATTN_SUCCESS ? support.reason : "", error.message);
      return 0;
    }
    plan = own;
  }
  size_t count = job_outputs(memory, touched);
  device_args(job, memory, options->outputs, &args);
  args.error = &error;
  if (!options->inner_workspace) {
    if (!open_workspace(rig, plan, &workspace, &needed))
      goto done;
    touched[count++] = &workspace;
    if (needed > 0) {
      args.workspace = clattn_buffer(workspace.buffer, WORKSPACE_FRONT);
      args.workspace.bytes = needed;
    }
  }
  if (!images_fill(rig->queue, touched, count))
    goto done;
  cl_event event = NULL;
  clattn_status status = clattn_enqueue(plan, rig->queue, &args, 0, NULL, &event);
  if (status != CLATTN_SUCCESS) {
    (void)fprintf(stderr, "clattn_enqueue: %s: %s\n", clattn_status_name(status), error.message);
    goto done;
  }
  status = clWaitForEvents(1, &event);
  (void)clReleaseEvent(event);
  if (status != CL_SUCCESS) {
    complain("clWaitForEvents", status);
    goto done;
  }
  good = images_sync(rig->queue, touched, count) && all_untouched(job, memory, options->outputs) &&
         (workspace.memory == NULL || workspace_guarded(&workspace, needed));

done:
  image_close(&workspace);
  clattn_plan_release(own);
  return good;
}
