/* SPDX-License-Identifier: Apache-2.0 */
/* Devices with tight or odd limits, compilers that refuse, and what a context keeps. */
#include "use.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static clattn_context *make_context(const rig *r) {
  clattn_context *context = NULL;
  assert_int_equal(clattn_context_create(r->cl, r->device[0], trusting(), &context, NULL), CLATTN_SUCCESS);
  return context;
}

static void get_info(const clattn_plan *plan, clattn_plan_info *info) {
  clattn_plan_info_init(info);
  assert_int_equal(clattn_plan_get_info(plan, info), CLATTN_SUCCESS);
}

/* Enqueues a plan's job on both kinds of queue, with a workspace and without. */
static void run_everywhere(const rig *r, const clattn_plan *plan, job *j) {
  job_buffers(j, r->cl);
  for (int i = 0; i < 4; ++i) {
    if (i & 1)
      job_workspace(j, r->cl, plan);
    const clattn_status status = clattn_enqueue(plan, i & 2 ? r->out_of_order : r->in_order, &j->args, 0, NULL, NULL);
    if (status != CLATTN_SUCCESS)
      fail_msg("enqueue: %d '%s'", (int)status, j->error.message);
    if (i & 1) {
      clReleaseMemObject(j->args.workspace.buffer);
      j->args.workspace = (clattn_mem){0};
    }
  }
  job_free(j);
}

/* ---- memory ---- */

/* The largest buffer shrinks: more rounds, never a buffer above the limit, and at the end a refusal that says why. */
static void test_small_buffers(void **state) {
  const rig *const r = *state;
  uint32_t rounds = 0;
  int served = 0, refused = 0;
  for (cl_ulong limit = (cl_ulong)1 << 20; limit >= 1024; limit /= 2) {
    stub_settings settings;
    stub->settings(&settings);
    settings.max_alloc_bytes = limit;
    stub->set_settings(&settings);
    clattn_context *const context = make_context(r);
    clattn_plan *plan = NULL;
    job j;
    job_init(&j, JOB_PLAIN);
    const clattn_status status = clattn_plan_create(context, &j.problem, NULL, &plan, &j.error);
    if (status == CLATTN_SUCCESS) {
      clattn_plan_info info;
      get_info(plan, &info);
      assert_true(info.workspace_bytes <= limit);
      assert_true(info.row_blocks >= rounds);
      rounds = info.row_blocks;
      settings.max_alloc_bytes = (cl_ulong)1 << 20; /* room for the test's own tensors */
      stub->set_settings(&settings);
      run_everywhere(r, plan, &j);
      ++served;
    } else {
      assert_int_equal(status, CLATTN_ERROR_WORKSPACE_TOO_SMALL);
      assert_true(strlen(j.error.message) > 0);
      assert_null(plan);
      ++refused;
    }
    clattn_plan_release(plan);
    clattn_context_release(context);
  }
  assert_true(served > 2 && refused > 0 && rounds > 2);
}

/* A workspace made inside keeps to the limit of the device and to the cap of the plan. */
static void test_workspace_inside(void **state) {
  const rig *const r = *state;
  for (int capped = 0; capped < 2; ++capped) {
    stub_settings settings;
    stub->settings(&settings);
    settings.max_alloc_bytes = 128 << 10;
    stub->set_settings(&settings);
    clattn_context *const context = make_context(r);
    clattn_plan_options options;
    clattn_plan_options_init(&options);
    options.workspace_cap = capped ? 64 << 10 : 0;
    clattn_plan *plan = NULL;
    clattn_plan_info info;
    job j;
    job_init(&j, JOB_ALL);
    assert_int_equal(clattn_plan_create(context, &j.problem, &options, &plan, NULL), CLATTN_SUCCESS);
    get_info(plan, &info);
    assert_true(info.workspace_bytes <= (capped ? 64u << 10 : 128u << 10));
    assert_true(info.row_blocks > 1);
    job_buffers(&j, r->cl);
    const uint64_t before = stub->bytes();
    const cl_event gate = make_user_event(r->cl);
    assert_int_equal(clattn_enqueue(plan, r->in_order, &j.args, 1, &gate, NULL), CLATTN_SUCCESS);
    assert_true(stub->bytes() > before && stub->bytes() - before <= info.workspace_bytes);
    run_user_event(gate);
    assert_int_equal(stub->bytes(), before);
    job_free(&j);
    clattn_plan_release(plan);
    clattn_context_release(context);
  }
}

/* ---- work-groups ---- */

static void check_tight(const rig *r, const char *variant, cl_device_type type, cl_ulong local, size_t group,
                        size_t parameters, int counts[2]) {
  stub_settings settings;
  stub->settings(&settings);
  settings.type[0] = type;
  settings.local_bytes = local;
  settings.max_work_group = group;
  settings.max_parameter_bytes = parameters;
  for (int d = 0; d < 3; ++d)
    settings.max_work_item[d] = group;
  stub->set_settings(&settings);
  clattn_context *context = NULL;
  clattn_context_options context_options;
  clattn_context_options_init(&context_options);
  context_options.config_text = TRUSTING;
  assert_int_equal(clattn_context_create(r->cl, r->device[0], &context_options, &context, NULL), CLATTN_SUCCESS);
  clattn_plan_options options;
  clattn_plan_options_init(&options);
  options.variant = variant;
  clattn_plan *plan = NULL;
  clattn_support support;
  clattn_support_init(&support);
  job j;
  job_init(&j, JOB_ALL);
  const clattn_status status = clattn_plan_create(context, &j.problem, &options, &plan, &j.error);
  assert_int_equal(clattn_supported(context, &j.problem, variant, &support), status);
  assert_true(strlen(support.reason) > 0);
  if (status == CLATTN_SUCCESS) {
    clattn_plan_info info;
    get_info(plan, &info);
    assert_string_equal(support.variant, info.variant);
    run_everywhere(r, plan, &j);
  } else {
    assert_int_equal(status, CLATTN_ERROR_VARIANT_UNFIT);
    assert_true(strlen(j.error.message) > 0);
    assert_null(support.variant);
  }
  ++counts[status == CLATTN_SUCCESS];
  clattn_plan_release(plan);
  clattn_context_release(context);
}

static void test_tight_devices(void **state) {
  static const cl_ulong locals[] = {0, 1 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 48 << 10};
  static const size_t groups[] = {1, 2, 16, 31, 32, 64, 127, 128, 256, 1024};
  static const cl_device_type types[] = {CL_DEVICE_TYPE_CPU, CL_DEVICE_TYPE_GPU, CL_DEVICE_TYPE_ACCELERATOR};
  int counts[2] = {0, 0};
  for (uint32_t v = 0;; ++v) {
    const char *const variant = clattn_variant_name(v); /* and at the end NULL: selection */
    for (size_t l = 0; l < sizeof locals / sizeof *locals; ++l)
      for (size_t g = 0; g < sizeof groups / sizeof *groups; ++g)
        for (size_t t = 0; t < sizeof types / sizeof *types; ++t)
          check_tight(*state, variant, types[t], locals[l], groups[g], 1024, counts);
    if (!variant)
      break;
  }
  assert_true(counts[0] > 0 && counts[1] > 0);
}

/* A plan's status on a device with so much local memory and such groups; *rows of a tile. */
static clattn_status try_local(const rig *r, const char *variant, int64_t v_dim, clattn_similarity similarity,
                               size_t group, cl_ulong local, uint32_t *rows) {
  stub_settings settings;
  stub->settings(&settings);
  settings.local_bytes = local;
  settings.max_work_group = group;
  stub->set_settings(&settings);
  clattn_context *const context = make_context(r);
  clattn_plan_options options;
  clattn_plan_options_init(&options);
  options.variant = variant;
  clattn_plan *plan = NULL;
  clattn_plan_info info;
  job j;
  job_init(&j, JOB_ALL);
  j.problem.v_dim = v_dim;
  j.problem.similarity = similarity;
  const clattn_status status = clattn_plan_create(context, &j.problem, &options, &plan, &j.error);
  *rows = 0;
  if (status == CLATTN_SUCCESS) {
    get_info(plan, &info);
    *rows = info.tile_q;
  }
  clattn_plan_release(plan);
  clattn_context_release(context);
  return status;
}

/* What selection thinks that the kernels declare is just what they do: the least local memory that a tile is taken
 * with is enough for all of them, and a byte less would not be. */
static void check_local(const rig *r, const char *variant, int64_t v_dim, clattn_similarity similarity, size_t group,
                        uint32_t wanted) {
  cl_ulong too_few = 0, enough = 48 << 10;
  uint32_t rows = 0;
  assert_int_equal(try_local(r, variant, v_dim, similarity, group, enough, &rows), CLATTN_SUCCESS);
  assert_int_equal(rows, wanted);
  while (enough - too_few > 1) {
    const cl_ulong middle = (too_few + enough) / 2;
    const clattn_status status = try_local(r, variant, v_dim, similarity, group, middle, &rows);
    *(status == CLATTN_SUCCESS && rows == wanted ? &enough : &too_few) = middle;
  }
  for (int more = 0; more < 2; ++more) {
    stub_settings settings;
    stub->settings(&settings);
    settings.local_bytes = enough;
    settings.kernel_local_bytes = (cl_ulong)more; /* as if the source declared so much more */
    stub->set_settings(&settings);
    clattn_context *const context = make_context(r);
    clattn_plan_options options;
    clattn_plan_options_init(&options);
    options.variant = variant;
    clattn_plan *plan = NULL;
    job j;
    job_init(&j, JOB_ALL);
    j.problem.v_dim = v_dim;
    j.problem.similarity = similarity;
    assert_int_equal(clattn_plan_create(context, &j.problem, &options, &plan, &j.error), CLATTN_SUCCESS);
    job_buffers(&j, r->cl);
    if (similarity == CLATTN_ADDITIVE)
      j.args.add_w = clattn_buffer(make_buffer(r->cl, JOB_HEADS * JOB_DIM * 4), 0);
    for (int i = 0; i < 2; ++i) { /* v and o of this v_dim */
      clattn_mem *const mem = i ? &j.args.o : &j.args.v;
      clReleaseMemObject(mem->buffer);
      *mem = clattn_buffer(make_buffer(r->cl, (size_t)v_dim * JOB_BATCH * JOB_HEADS * JOB_KEYS * 4), 0);
    }
    const clattn_status status = clattn_enqueue(plan, r->in_order, &j.args, 0, NULL, NULL);
    if (status != (more ? CL_OUT_OF_RESOURCES : CLATTN_SUCCESS))
      fail_msg("%s, v_dim %d, similarity %d, %llu bytes of local memory and %d more declared: %d '%s'", variant,
               (int)v_dim, (int)similarity, (unsigned long long)enough, more, (int)status, j.error.message);
    if (more)
      assert_non_null(strstr(stub->violation(0), "local memory"));
    job_free(&j);
    clattn_plan_release(plan);
    clattn_context_release(context);
    stub->reset();
  }
}

static void test_local_memory(void **state) {
  static const int64_t dims[] = {1, 24, 33, 65, 300};
  for (size_t n = 0; n < sizeof dims / sizeof *dims; ++n)
    for (int small = 0; small < 2; ++small)
      for (int fused = 0; fused < 2; ++fused)
        for (clattn_similarity similarity = CLATTN_DOT; similarity <= CLATTN_ADDITIVE; ++similarity)
          check_local(*state, fused ? "flash-gpu-simt" : "three-step", dims[n], similarity, small ? 32 : 128,
                      small ? 32 : 64);
}

static void test_few_parameters(void **state) {
  int counts[2] = {0, 0};
  for (size_t bytes = 64; bytes <= 4096; bytes += 32)
    check_tight(*state, NULL, CL_DEVICE_TYPE_GPU, 48 << 10, 256, bytes, counts);
  assert_true(counts[0] > 0 && counts[1] > 0);
}

/* ---- devices ---- */

static void test_selection(void **state) {
  const rig *const r = *state;
  static const struct {
    cl_device_type type;
    const char *config, *variant;
  } kinds[] = {{CL_DEVICE_TYPE_CPU, NULL, "flash-cpu-vector"},
               {CL_DEVICE_TYPE_CPU, "trust=all", "flash-cpu-vector"},
               {CL_DEVICE_TYPE_CPU, "forbid=fused", "three-step-cpu"},
               {CL_DEVICE_TYPE_CPU, "forbid=fused;forbid=three-step-cpu", "three-step"},
               {CL_DEVICE_TYPE_CPU, "forbid=three-step", "flash-cpu-vector"},
               {CL_DEVICE_TYPE_GPU, "trust=all", "flash-gpu-simt"},
               {CL_DEVICE_TYPE_ACCELERATOR, "trust=all", "flash-gpu-simt"},
               {CL_DEVICE_TYPE_GPU, "trust=all;forbid=fused", "three-step"}};
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; ++k) {
    stub_settings settings;
    stub->settings(&settings);
    settings.type[0] = kinds[k].type;
    stub->set_settings(&settings);
    clattn_context_options options;
    clattn_context_options_init(&options);
    options.config_text = kinds[k].config;
    clattn_context *context = NULL;
    assert_int_equal(clattn_context_create(r->cl, r->device[0], &options, &context, NULL), CLATTN_SUCCESS);
    clattn_plan *plan = NULL;
    clattn_plan_info info;
    job j;
    job_init(&j, JOB_PLAIN);
    assert_int_equal(clattn_plan_create(context, &j.problem, NULL, &plan, NULL), CLATTN_SUCCESS);
    get_info(plan, &info);
    assert_string_equal(info.variant, kinds[k].variant);
    if (strcmp(info.variant, "flash-cpu-vector") == 0) { /* a plan with nothing to keep: one launch, no workspace */
      assert_int_equal(info.workspace_bytes, 0);
      assert_int_equal(info.launches, 1);
      assert_int_equal(info.tile_k, 128);
      job_buffers(&j, r->cl);
      const uint64_t objects = live_objects(), made = stub->calls("clCreateBuffer");
      assert_int_equal(clattn_enqueue(plan, r->in_order, &j.args, 0, NULL, NULL), CLATTN_SUCCESS);
      assert_int_equal(stub->calls("clCreateBuffer"), made); /* none of 0 bytes either */
      assert_true(live_objects() - stub->live(STUB_KERNEL) <= objects);
      j.args.workspace = clattn_buffer(make_buffer(r->cl, 64), 0); /* given all the same, it is no harm */
      assert_int_equal(clattn_enqueue(plan, r->in_order, &j.args, 0, NULL, NULL), CLATTN_SUCCESS);
      job_free(&j);
    }
    clattn_plan_release(plan);
    clattn_context_release(context);
  }
}

static void test_default_device(void **state) {
  const rig *const r = *state;
  stub_settings settings;
  stub->settings(&settings);
  settings.type[0] = CL_DEVICE_TYPE_CPU; /* the GPU comes second, and is taken */
  stub->set_settings(&settings);
  clattn_context *context = NULL;
  cl_device_id device = NULL;
  assert_int_equal(clattn_context_create_default(NULL, &context, NULL), CLATTN_SUCCESS);
  assert_int_equal(clattn_context_handles(context, NULL, &device), CLATTN_SUCCESS);
  assert_ptr_equal(device, r->device[1]);
  clattn_context_release(context);

  clattn_error error;
  clattn_error_init(&error);
  settings.num_devices = 0;
  stub->set_settings(&settings);
  assert_int_equal(clattn_context_create_default(NULL, &context, &error), CLATTN_ERROR_NO_DEVICE);
  assert_null(context);
  settings.num_devices = 2;
  settings.compiler = CL_FALSE;
  stub->set_settings(&settings);
  assert_int_equal(clattn_context_create_default(NULL, &context, &error), CLATTN_ERROR_NO_DEVICE);
  assert_int_equal(clattn_context_create(r->cl, r->device[0], NULL, &context, &error), CL_COMPILER_NOT_AVAILABLE);
  settings.compiler = CL_TRUE;
  settings.available = CL_FALSE;
  stub->set_settings(&settings);
  assert_int_equal(clattn_context_create(r->cl, r->device[0], NULL, &context, &error), CL_DEVICE_NOT_AVAILABLE);
  assert_null(context);
}

static void test_wrong_context(void **state) {
  const rig *const r = *state;
  cl_int code;
  const cl_context one = clCreateContext(NULL, 1, &r->device[0], NULL, NULL, &code);
  assert_int_equal(code, CL_SUCCESS);
  clattn_error error;
  clattn_error_init(&error);
  clattn_context *context = (clattn_context *)(void *)&error;
  assert_int_equal(clattn_context_create(one, r->device[1], NULL, &context, &error), CLATTN_ERROR_WRONG_DEVICE);
  assert_null(context);
  assert_true(strlen(error.message) > 0);
  assert_int_equal(clattn_context_create(NULL, r->device[0], NULL, &context, &error), CLATTN_ERROR_NULL_POINTER);
  assert_int_equal(clattn_context_create(one, NULL, NULL, &context, &error), CLATTN_ERROR_NULL_POINTER);
  assert_int_equal(clattn_context_create(one, r->device[0], NULL, NULL, &error), CLATTN_ERROR_NULL_POINTER);
  assert_int_equal(clReleaseContext(one), CL_SUCCESS);
}

/* ---- builds ---- */

static void test_refused_build(void **state) {
  const rig *const r = *state;
  stub_settings settings;
  stub->settings(&settings);
  settings.build_code = CL_BUILD_PROGRAM_FAILURE;
  memset(settings.build_log, 'x', 3000);
  memcpy(settings.build_log, "kernel.cl:7: error: no such thing", 33);
  const size_t whole = strlen(settings.build_log);
  assert_int_equal(whole, 3000);
  stub->set_settings(&settings);
  clattn_context *const context = make_context(r);
  clattn_plan *plan = NULL;
  char log[64];
  job j;
  job_init(&j, JOB_PLAIN);
  for (int again = 0; again < 2; ++again) {
    memset(log, '#', sizeof log);
    clattn_error_init(&j.error);
    j.error.build_log = log;
    j.error.build_log_capacity = 34 + (size_t)again;
    assert_int_equal(clattn_plan_create(context, &j.problem, NULL, &plan, &j.error), CL_BUILD_PROGRAM_FAILURE);
    assert_null(plan);
    assert_int_equal(j.error.status, CL_BUILD_PROGRAM_FAILURE);
    assert_true(strlen(j.error.message) > 0);
    assert_int_equal(j.error.build_log_length, whole);
    assert_memory_equal(log, settings.build_log, 33 + (size_t)again);
    assert_int_equal(log[33 + again], 0);
    assert_int_equal(log[34 + again], '#');
    assert_int_equal(stub->builds(), 1); /* a refusal is not tried again */
  }
  clattn_error_init(&j.error); /* without a place for the log */
  assert_int_equal(clattn_plan_create(context, &j.problem, NULL, &plan, &j.error), CL_BUILD_PROGRAM_FAILURE);
  assert_int_equal(j.error.build_log_length, whole);
  assert_int_equal(clattn_plan_create(context, &j.problem, NULL, &plan, NULL), CL_BUILD_PROGRAM_FAILURE);

  clattn_support support;
  clattn_support_init(&support);
  assert_int_equal(clattn_supported(context, &j.problem, NULL, &support), CL_BUILD_PROGRAM_FAILURE);
  assert_int_equal(support.status, CL_BUILD_PROGRAM_FAILURE);
  assert_null(support.variant);
  assert_true(strlen(support.reason) > 0);
  clattn_context_release(context);

  settings.build_code = CL_SUCCESS; /* a new context starts afresh */
  stub->set_settings(&settings);
  clattn_context *const fresh = make_context(r);
  assert_int_equal(clattn_supported(fresh, &j.problem, NULL, &support), CLATTN_SUCCESS);
  assert_int_equal(clattn_plan_create(fresh, &j.problem, NULL, &plan, &j.error), CLATTN_SUCCESS);
  assert_int_equal(j.error.status, CLATTN_SUCCESS);
  assert_int_equal(j.error.build_log_length, 0);
  clattn_plan_release(plan);
  clattn_context_release(fresh);
}

/* Out of memory while building is no refusal: the next attempt builds. */
static void test_failed_build(void **state) {
  const rig *const r = *state;
  stub_settings settings;
  stub->settings(&settings);
  settings.build_code = CL_OUT_OF_HOST_MEMORY;
  stub->set_settings(&settings);
  clattn_context *const context = make_context(r);
  clattn_plan *plan = NULL;
  clattn_support support;
  clattn_support_init(&support);
  job j;
  job_init(&j, JOB_PLAIN);
  assert_int_equal(clattn_plan_create(context, &j.problem, NULL, &plan, &j.error), CL_OUT_OF_HOST_MEMORY);
  assert_int_equal(clattn_supported(context, &j.problem, NULL, &support), CLATTN_SUCCESS);
  settings.build_code = CL_SUCCESS;
  stub->set_settings(&settings);
  assert_int_equal(clattn_plan_create(context, &j.problem, NULL, &plan, &j.error), CLATTN_SUCCESS);
  run_everywhere(r, plan, &j);
  clattn_plan_release(plan);
  clattn_context_release(context);
}

static void test_warm_plans(void **state) {
  const rig *const r = *state;
  clattn_context *const context = make_context(r);
  clattn_plan *plan = NULL;
  clattn_plan_info info;
  job j;
  job_init(&j, JOB_PLAIN);
  assert_int_equal(clattn_plan_create(context, &j.problem, NULL, &plan, &j.error), CLATTN_SUCCESS);
  assert_true(stub->builds() > 0);
  for (uint64_t i = 0; i < stub->builds(); ++i) { /* rule 1 of the manual forbids what these allow */
    assert_null(strstr(stub->build_options(i), "fast"));
    assert_null(strstr(stub->build_options(i), "finite"));
    assert_null(strstr(stub->build_options(i), "unsafe"));
  }
  const uint64_t builds = stub->builds(), calls = stub->calls(NULL);
  for (int64_t keys = 1; keys < 3000; keys *= 3) {
    clattn_plan *warm = NULL;
    job other;
    job_init(&other, (unsigned)keys % (JOB_ALL + 1));
    other.problem.k_len = keys;
    assert_int_equal(clattn_plan_create(context, &other.problem, NULL, &warm, &other.error), CLATTN_SUCCESS);
    get_info(warm, &info);
    assert_true(info.build_seconds <= 0);
    clattn_plan_release(warm);
  }
  assert_int_equal(stub->builds(), builds);
  assert_int_equal(stub->calls(NULL), calls); /* nor any other call of OpenCL */
  clattn_plan_release(plan);
  clattn_context_release(context);
}

static int count_progress(void *user, size_t done, size_t count) {
  assert_true(done <= count);
  return ++*(int *)user < 2;
}

static void test_prebuild(void **state) {
  const rig *const r = *state;
  clattn_context *const context = make_context(r);
  clattn_problem problems[3];
  job j;
  int steps = 0;
  for (unsigned i = 0; i < 3; ++i) {
    job_init(&j, i);
    problems[i] = j.problem;
  }
  assert_int_equal(clattn_prebuild(context, problems, 3, count_progress, &steps, &j.error), CLATTN_SUCCESS);
  assert_int_equal(steps, 2); /* stopped when asked to */
  const uint64_t builds = stub->builds();
  assert_true(builds > 0);
  clattn_plan *plan = NULL;
  assert_int_equal(clattn_plan_create(context, &problems[0], NULL, &plan, &j.error), CLATTN_SUCCESS);
  assert_int_equal(stub->builds(), builds);
  clattn_plan_release(plan);
  clattn_context_release(context);
}

/* ---- lifetimes ---- */

static void test_plan_outlives_context(void **state) {
  const rig *const r = *state;
  cl_int code;
  const cl_context cl = clCreateContext(NULL, 1, &r->device[0], NULL, NULL, &code);
  assert_int_equal(code, CL_SUCCESS);
  const cl_command_queue queue = clCreateCommandQueue(cl, r->device[0], 0, &code);
  assert_int_equal(code, CL_SUCCESS);
  clattn_context *context = NULL;
  clattn_plan *plan = NULL;
  job j;
  job_init(&j, JOB_ALL);
  assert_int_equal(clattn_context_create(cl, r->device[0], trusting(), &context, NULL), CLATTN_SUCCESS);
  assert_int_equal(clattn_plan_create(context, &j.problem, NULL, &plan, NULL), CLATTN_SUCCESS);
  clattn_context_release(context);
  job_buffers(&j, cl);
  assert_int_equal(clReleaseContext(cl), CL_SUCCESS); /* the library holds one of its own */
  assert_int_equal(clattn_enqueue(plan, queue, &j.args, 0, NULL, NULL), CLATTN_SUCCESS);
  job_free(&j);
  clattn_plan_release(plan);
  assert_int_equal(clReleaseCommandQueue(queue), CL_SUCCESS);
  clattn_plan_release(NULL);
  clattn_context_release(NULL);
}

/* ---- logging ---- */

typedef struct logging {
  clattn_context *context;
  int lines, depth;
  char last[512];
} logging;

static void log_line(void *user, int level, const char *line) {
  logging *const l = user;
  assert_true(level >= CLATTN_LOG_ERROR && level <= CLATTN_LOG_INFO);
  assert_null(strchr(line, '\n'));
  ++l->lines;
  snprintf(l->last, sizeof l->last, "%s", line);
  if (l->context && l->depth++ == 0) { /* no lock is held: the library may be called again */
    clattn_plan *plan = NULL;
    clattn_support support;
    clattn_support_init(&support);
    job j;
    job_init(&j, JOB_MASKS);
    clattn_supported(l->context, &j.problem, NULL, &support);
    clattn_plan_create(l->context, &j.problem, NULL, &plan, NULL);
    clattn_plan_release(plan);
    --l->depth;
  }
}

static void test_logging(void **state) {
  const rig *const r = *state;
  logging l;
  memset(&l, 0, sizeof l);
  clattn_context_options options;
  clattn_context_options_init(&options);
  options.config_text = TRUSTED_JOBS;
  options.log_fn = log_line;
  options.log_user = &l;
  clattn_context *context = NULL;
  assert_int_equal(clattn_context_create(r->cl, r->device[0], &options, &context, NULL), CLATTN_SUCCESS);
  clattn_plan *plan = NULL;
  clattn_plan_info info;
  job j;
  job_init(&j, JOB_PLAIN);
  assert_int_equal(clattn_plan_create(context, &j.problem, NULL, &plan, NULL), CLATTN_SUCCESS);
  get_info(plan, &info);
  assert_non_null(strstr(l.last, info.line)); /* every plan is logged with its problem line */
  clattn_plan_release(plan);
  l.context = context;
  const int lines = l.lines;
  assert_int_equal(clattn_plan_create(context, &j.problem, NULL, &plan, NULL), CLATTN_SUCCESS);
  assert_true(l.lines >= lines + 2);
  clattn_plan_release(plan);
  l.context = NULL;
  clattn_context_release(context);
}

/* A clattn_error that was never initialised is left alone, but the log tells what went wrong all the same; likewise
 * with no error at all. */
static void test_logged_refusal(void **state) {
  const rig *const r = *state;
  logging l;
  memset(&l, 0, sizeof l);
  clattn_context_options options;
  clattn_context_options_init(&options);
  options.config_text = TRUSTED_JOBS;
  options.log_fn = log_line;
  options.log_user = &l;
  clattn_context *context = NULL;
  assert_int_equal(clattn_context_create(r->cl, r->device[0], &options, &context, NULL), CLATTN_SUCCESS);
  size_t *const stale = malloc(sizeof *stale); /* no byte of a struct_size lies behind it */
  assert_non_null(stale);
  *stale = sizeof *stale;
  clattn_error *const errors[] = {NULL, (clattn_error *)(void *)stale};
  for (size_t i = 0; i < sizeof errors / sizeof *errors; ++i) {
    clattn_plan *plan = (clattn_plan *)(void *)&l;
    job j;
    job_init(&j, JOB_PLAIN);
    j.problem.kv_heads = 3;
    l.last[0] = 0;
    assert_int_equal(clattn_plan_create(context, &j.problem, NULL, &plan, errors[i]), CLATTN_ERROR_SHAPE);
    assert_null(plan);
    assert_non_null(strstr(l.last, "CLATTN_ERROR_SHAPE: kv_heads 3 does not divide q_heads 4"));
    j.problem.kv_heads = JOB_KV_HEADS;
    clattn_plan_options plan_options; /* a refusal that selection finds */
    clattn_plan_options_init(&plan_options);
    plan_options.variant = "no such variant";
    assert_int_equal(clattn_plan_create(context, &j.problem, &plan_options, &plan, errors[i]),
                     CLATTN_ERROR_UNKNOWN_VARIANT);
    assert_non_null(strstr(l.last, "no variant is called 'no such variant'"));
    assert_int_equal(clattn_plan_create(context, &j.problem, NULL, &plan, errors[i]), CLATTN_SUCCESS);
    clattn_plan_release(plan);
    assert_int_equal(*stale, sizeof *stale);
  }
  free(stale);
  clattn_context_release(context);
}

/* ---- config_text ---- */

static void check_config(const rig *r, const char *text, const char *variant, clattn_status want, const char *message) {
  clattn_context_options options;
  clattn_context_options_init(&options);
  char config[256];
  snprintf(config, sizeof config, TRUSTING "%s", text);
  options.config_text = config;
  clattn_context *context = NULL;
  assert_int_equal(clattn_context_create(r->cl, r->device[0], &options, &context, NULL), CLATTN_SUCCESS);
  clattn_plan_options plan_options;
  clattn_plan_options_init(&plan_options);
  plan_options.variant = variant;
  clattn_plan *plan = NULL;
  clattn_support support;
  clattn_support_init(&support);
  job j;
  job_init(&j, JOB_PLAIN);
  const clattn_status status = clattn_plan_create(context, &j.problem, &plan_options, &plan, &j.error);
  const clattn_status supported = clattn_supported(context, &j.problem, variant, &support);
  clattn_plan_release(plan);
  clattn_context_release(context);
  if (status != want || supported != want || support.status != want || !strstr(j.error.message, message) ||
      !strstr(support.reason, message))
    fail_msg("%s: wanted %s with '%s', got %s '%s' and %s '%s'", text, clattn_status_name(want), message,
             clattn_status_name(status), j.error.message, clattn_status_name(supported), support.reason);
}

/* A kill switch that is misspelt must not seem to work. */
static void test_forbidden_names(void **state) {
  static const char *const wrong[] = {"forbid=three_step",          "forbid=three-step-gpu", "forbid=Fused",
                                      "forbid=matrix;forbid=metal", "forbid=fused ",         "forbid=three"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i)
    for (int named = 0; named < 2; ++named)
      check_config(*state, wrong[i], named ? "three-step" : NULL, CLATTN_ERROR_TEXT, strrchr(wrong[i], '=') + 1);
  check_config(*state, "forbid=matrix;forbid=fused", NULL, CLATTN_SUCCESS, "");
  check_config(*state, "forbid=fused", "flash-cpu-vector", CLATTN_ERROR_VARIANT_UNFIT, "forbidden");
  check_config(*state, "forbid=flash-cpu-vector", "flash-cpu-vector", CLATTN_ERROR_VARIANT_UNFIT, "forbidden");
  check_config(*state, "forbid=flash-cpu", NULL, CLATTN_ERROR_TEXT, "flash-cpu");
  check_config(*state, "forbid=three-step-cpu", "three-step", CLATTN_SUCCESS, "");
  check_config(*state, "forbid=three-step-cpu", "three-step-cpu", CLATTN_ERROR_VARIANT_UNFIT, "forbidden");
  check_config(*state, "forbid=three-step", NULL, CLATTN_SUCCESS, "");
  check_config(*state, "forbid=three-step;forbid=fused", NULL, CLATTN_ERROR_VARIANT_UNFIT, "forbidden");
}

/* What is no config at all is refused with the context; widths, which variants refuse them. */
static void test_config_text(void **state) {
  static const struct {
    const char *text, *message;
  } wrong[] = {{"width=5", "config_text: width=5 must be 4, 8 or 16"},
               {"width=32", "width=32 must be"},
               {"width=0", "width=0 must be"},
               {"width=04", "width=04 must be"},
               {"width=8 ", "width=8  must be"},
               {"width=4;width=", "'width=' is not key=value"},
               {"width", "'width' is not key=value"},
               {"Width=8", "unknown key 'Width'; there are variant, forbid, width, trust and matrix"},
               {"width=8;;", "'' is not key=value"},
               {"trust=none", "config_text: trust=none must be tested or all"},
               {"trust=All", "trust=All must be tested or all"}};
  const rig *r = *state;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
    clattn_context_options options;
    clattn_context *context = NULL;
    clattn_error error;
    clattn_error_init(&error);
    clattn_context_options_init(&options);
    options.config_text = wrong[i].text;
    assert_int_equal(clattn_context_create(r->cl, r->device[0], &options, &context, &error), CLATTN_ERROR_TEXT);
    assert_null(context);
    if (strstr(error.message, wrong[i].message) == NULL)
      fail_msg("%s: '%s'", wrong[i].text, error.message);
  }
  check_config(*state, "width=16;variant=flash-cpu-vector", NULL, CLATTN_SUCCESS, "");
  check_config(*state, "width=4", "three-step-cpu", CLATTN_SUCCESS, "");
  check_config(*state, "width=8", "three-step", CLATTN_ERROR_VARIANT_UNFIT, "width=8 of the context's config_text");
  check_config(*state, "width=8", "flash-gpu-simt", CLATTN_ERROR_VARIANT_UNFIT, "has no vector lanes");
  check_config(*state, "variant=three-step;width=4", NULL, CLATTN_ERROR_VARIANT_UNFIT, "width=4");
}

int run_limit_tests(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_small_buffers, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_workspace_inside, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_tight_devices, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_local_memory, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_few_parameters, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_selection, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_default_device, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_wrong_context, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_refused_build, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_failed_build, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_warm_plans, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_prebuild, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_plan_outlives_context, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_logging, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_logged_refusal, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_forbidden_names, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_config_text, rig_setup, rig_teardown),
  };
  return cmocka_run_group_tests_name("limits, builds, lifetimes", tests, NULL, NULL);
}
