/* SPDX-License-Identifier: Apache-2.0 */
/* Bad luck on the first GPU: every kind of it, planted in a device that calls itself a GPU, leads to the next variant with
 * the reason kept, and to right results.
 *   test_trial           on the default device
 *   test_trial stub      on the stub driver: every call and every allocation fails once
 *   test_trial die|hold FOLDER   for itself: a process that ends, or waits, while it builds with that cache */
#define _POSIX_C_SOURCE 200809L
#include "stub/use.h"
#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "clattn_ref.h"
#include "next_call.h"
#include "select.h"
#include "trial.h"

static const char *own_path;
static const char line[] = "hq=4 hkv=2 sq=9 sk=70 d=8 causal=1 off=bottom_right";
enum { SIMT = 1, THREE_STEP = 2 };

/* ---- a driver with faults ---- */

/* Everything 0: the driver as it is. */
typedef struct fault {
  int gpu;      /* it calls itself one */
  int programs; /* SIMT, THREE_STEP: which programs the rest is about */
  cl_ulong local_bytes;
  size_t work_group;                 /* of the device */
  cl_int build, launch;              /* what these calls return */
  size_t kernel_group, kernel_local; /* of built kernels */
  const char *from, *to;             /* a miscompiled kernel */
  double seconds;                    /* that a build takes longer, by the clock */
  int die, hold;                     /* while it builds */
  const float *answers;              /* what reads of results get, for a driver that computes nothing */
  size_t num_answers;
} fault;
static fault bad;
static size_t answered;
static double late;
static atomic_int builds, launches, queues;
enum { MOST_PROGRAMS = 400 };
static struct {
  cl_program handle;
  int kind;
} known[MOST_PROGRAMS];
static int num_known;
static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;

static int is_bad(cl_program handle) {
  int kind = 0;
  pthread_mutex_lock(&known_lock);
  for (int i = 0; i < num_known; ++i)
    if (known[i].handle == handle)
      kind = known[i].kind; /* the last one: handles come again */
  pthread_mutex_unlock(&known_lock);
  return (kind & bad.programs) != 0;
}

static int is_bad_kernel(cl_kernel kernel) {
  cl_program handle = NULL;
  return clGetKernelInfo(kernel, CL_KERNEL_PROGRAM, sizeof handle, &handle, NULL) == CL_SUCCESS && is_bad(handle);
}

// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): the system's are reserved
int clock_gettime(clockid_t id, struct timespec *now) {
  if (!timespec_get(now, TIME_UTC)) /* not monotonic, but for a test of seconds good enough */
    return -1;
  if (id == CLOCK_MONOTONIC)
    now->tv_sec += (time_t)late;
  return 0;
}

CL_API_ENTRY cl_int CL_API_CALL clGetDeviceInfo(cl_device_id device, cl_device_info param_name, size_t param_value_size,
                                                void *param_value, size_t *param_value_size_ret) {
  cl_int(CL_API_CALL * next)(cl_device_id, cl_device_info, size_t, void *, size_t *) = NULL;
  find_next("clGetDeviceInfo", &next);
  const cl_int code = next(device, param_name, param_value_size, param_value, param_value_size_ret);
  if (code != CL_SUCCESS || param_value == NULL)
    return code;
  if (param_name == CL_DEVICE_TYPE && bad.gpu)
    *(cl_device_type *)param_value = CL_DEVICE_TYPE_GPU;
  if (param_name == CL_DEVICE_LOCAL_MEM_SIZE && bad.local_bytes)
    *(cl_ulong *)param_value = bad.local_bytes;
  if (param_name == CL_DEVICE_MAX_WORK_GROUP_SIZE && bad.work_group)
    *(size_t *)param_value = bad.work_group;
  return code;
}

/* All pieces in one, with the fault in it. */
static char *spoilt(cl_uint count, const char **strings, const size_t *lengths, int *kind) {
  size_t total = 0, length = 0;
  for (cl_uint i = 0; i < count; ++i)
    total += lengths[i];
  char *text = calloc(total + 200, 1);
  assert_non_null(text);
  for (cl_uint i = 0; i < count; ++i) {
    memcpy(text + length, strings[i], lengths[i]);
    length += lengths[i];
  }
  *kind = strstr(text, "void flash_scores(") ? SIMT : strstr(text, "void weighted_sum(") ? THREE_STEP : 0;
  if (bad.from && (*kind & bad.programs)) {
    char *const at = strstr(text, bad.from);
    assert_non_null(at);
    const size_t old = strlen(bad.from), new = strlen(bad.to);
    assert_true(new < old + 200);
    memmove(at + new, at + old, strlen(at + old) + 1);
    memcpy(at, bad.to, new);
  }
  return text;
}

CL_API_ENTRY cl_program CL_API_CALL clCreateProgramWithSource(cl_context context, cl_uint count, const char **strings,
                                                              const size_t *lengths, cl_int *errcode_ret) {
  cl_program(CL_API_CALL * next)(cl_context, cl_uint, const char **, const size_t *, cl_int *) = NULL;
  int kind = 0;
  find_next("clCreateProgramWithSource", &next);
  char *const text = spoilt(count, strings, lengths, &kind);
  const char *const texts[1] = {text};
  const size_t length = strlen(text);
  const cl_program handle = next(context, 1, (const char **)(void *)texts, &length, errcode_ret);
  free(text);
  pthread_mutex_lock(&known_lock);
  assert_true(num_known < MOST_PROGRAMS);
  known[num_known].handle = handle;
  known[num_known++].kind = kind;
  pthread_mutex_unlock(&known_lock);
  return handle;
}

CL_API_ENTRY cl_int CL_API_CALL clBuildProgram(cl_program program, cl_uint num_devices, const cl_device_id *device_list,
                                               const char *options, void(CL_CALLBACK *pfn_notify)(cl_program, void *),
                                               void *user_data) {
  cl_int(CL_API_CALL * next)(cl_program, cl_uint, const cl_device_id *, const char *,
                             void(CL_CALLBACK *)(cl_program, void *), void *) = NULL;
  find_next("clBuildProgram", &next);
  ++builds;
  if (is_bad(program) && bad.die)
    _exit(0);
  if (is_bad(program) && bad.hold)
    (void)getchar(); /* until the other process closes the pipe */
  if (is_bad(program) && bad.build != CL_SUCCESS)
    return bad.build;
  if (is_bad(program))
    late += bad.seconds;
  return next(program, num_devices, device_list, options, pfn_notify, user_data);
}

CL_API_ENTRY cl_int CL_API_CALL clGetKernelWorkGroupInfo(cl_kernel kernel, cl_device_id device,
                                                         cl_kernel_work_group_info param_name, size_t param_value_size,
                                                         void *param_value, size_t *param_value_size_ret) {
  cl_int(CL_API_CALL * next)(cl_kernel, cl_device_id, cl_kernel_work_group_info, size_t, void *, size_t *) = NULL;
  find_next("clGetKernelWorkGroupInfo", &next);
  const cl_int code = next(kernel, device, param_name, param_value_size, param_value, param_value_size_ret);
  if (code == CL_SUCCESS && param_name == CL_KERNEL_WORK_GROUP_SIZE && bad.kernel_group && is_bad_kernel(kernel))
    *(size_t *)param_value = bad.kernel_group;
  if (code == CL_SUCCESS && param_name == CL_KERNEL_LOCAL_MEM_SIZE && bad.kernel_local && is_bad_kernel(kernel))
    *(cl_ulong *)param_value = bad.kernel_local;
  return code;
}

CL_API_ENTRY cl_command_queue CL_API_CALL clCreateCommandQueue(cl_context context, cl_device_id device,
                                                               cl_command_queue_properties properties,
                                                               cl_int *errcode_ret) {
  cl_command_queue(CL_API_CALL * next)(cl_context, cl_device_id, cl_command_queue_properties, cl_int *) = NULL;
  find_next("clCreateCommandQueue", &next);
  ++queues;
  return next(context, device, properties, errcode_ret);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueNDRangeKernel(cl_command_queue command_queue, cl_kernel kernel,
                                                       cl_uint work_dim, const size_t *global_work_offset,
                                                       const size_t *global_work_size, const size_t *local_work_size,
                                                       cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
                                                       cl_event *event) {
  cl_int(CL_API_CALL * next)(cl_command_queue, cl_kernel, cl_uint, const size_t *, const size_t *, const size_t *,
                             cl_uint, const cl_event *, cl_event *) = NULL;
  find_next("clEnqueueNDRangeKernel", &next);
  ++launches;
  if (bad.launch != CL_SUCCESS && is_bad_kernel(kernel))
    return bad.launch;
  return next(command_queue, kernel, work_dim, global_work_offset, global_work_size, local_work_size,
              num_events_in_wait_list, event_wait_list, event);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueReadBuffer(cl_command_queue command_queue, cl_mem buffer,
                                                    cl_bool blocking_read, size_t offset, size_t size, void *ptr,
                                                    cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
                                                    cl_event *event) {
  cl_int(CL_API_CALL * next)(cl_command_queue, cl_mem, cl_bool, size_t, size_t, void *, cl_uint, const cl_event *,
                             cl_event *) = NULL;
  find_next("clEnqueueReadBuffer", &next);
  const cl_int code =
      next(command_queue, buffer, blocking_read, offset, size, ptr, num_events_in_wait_list, event_wait_list, event);
  if (code == CL_SUCCESS && answered + size / 4 <= bad.num_answers) {
    memcpy(ptr, bad.answers + answered, size);
    answered += size / 4;
  }
  return code;
}

/* ---- contexts and plans ---- */

static char folder[64], logged[16384];

static void take_log(void *user, int level, const char *text) {
  (void)user;
  pthread_mutex_lock(&known_lock);
  const size_t length = strlen(logged);
  snprintf(logged + length, sizeof logged - length, "%d %s\n", level, text);
  pthread_mutex_unlock(&known_lock);
}

static clattn_context *open_with(const char *config, const char *cache) {
  clattn_context_options options;
  clattn_context *context = NULL;
  clattn_error error;
  clattn_error_init(&error);
  clattn_context_options_init(&options);
  options.config_text = config;
  options.cache_folder = cache;
  options.log_fn = take_log;
  logged[0] = 0;
  if (clattn_context_create_default(&options, &context, &error) != CLATTN_SUCCESS)
    fail_msg("no context: %s", error.message);
  return context;
}

static clattn_problem problem_of(const char *text) {
  clattn_problem problem;
  assert_int_equal(clattn_problem_parse(text, &problem, NULL), CLATTN_SUCCESS);
  return problem;
}

/* What a plan's enqueue computes is what the reference does. */
static void check_results(clattn_context *context, const clattn_plan *plan) {
  enum { Q = 4 * 9 * 8, K = 2 * 70 * 8 };
  static float q[Q], k[K], v[K], o[Q];
  static double want[Q];
  const clattn_problem problem = problem_of(line);
  clattn_ref_args ref;
  clattn_args args;
  cl_context cl = NULL;
  cl_device_id device = NULL;
  for (int i = 0; i < Q; ++i)
    q[i] = (float)(i * 7 % 23) / 8 - 1;
  for (int i = 0; i < K; ++i) {
    k[i] = (float)(i * 5 % 19) / 8 - 1;
    v[i] = (float)(i * 3 % 17) / 8 - 1;
  }
  clattn_ref_args_init(&ref);
  ref.q = q;
  ref.k = k;
  ref.v = v;
  ref.o = want;
  assert_int_equal(clattn_ref_attention(&problem, &ref), CLATTN_SUCCESS);
  assert_int_equal(clattn_context_handles(context, &cl, &device), CLATTN_SUCCESS);
  const cl_command_queue queue = clCreateCommandQueue(cl, device, 0, NULL);
  clattn_args_init(&args);
  args.q = clattn_buffer(clCreateBuffer(cl, CL_MEM_COPY_HOST_PTR, sizeof q, q, NULL), 0);
  args.k = clattn_buffer(clCreateBuffer(cl, CL_MEM_COPY_HOST_PTR, sizeof k, k, NULL), 0);
  args.v = clattn_buffer(clCreateBuffer(cl, CL_MEM_COPY_HOST_PTR, sizeof v, v, NULL), 0);
  args.o = clattn_buffer(clCreateBuffer(cl, 0, sizeof o, NULL, NULL), 0);
  assert_int_equal(clattn_enqueue(plan, queue, &args, 0, NULL, NULL), CLATTN_SUCCESS);
  assert_int_equal(clEnqueueReadBuffer(queue, args.o.buffer, CL_TRUE, 0, sizeof o, o, 0, NULL, NULL), CL_SUCCESS);
  for (int i = 0; i < Q; ++i)
    assert_true(fabs((double)o[i] - want[i]) < 1e-5);
  clReleaseMemObject(args.q.buffer);
  clReleaseMemObject(args.k.buffer);
  clReleaseMemObject(args.v.buffer);
  clReleaseMemObject(args.o.buffer);
  clReleaseCommandQueue(queue);
}

/* The plan and the support query pick it, with the reason; results are right; a second plan asks the driver nothing. */
static void picks(clattn_context *context, const char *variant, const char *why) {
  const clattn_problem problem = problem_of(line);
  clattn_plan *plan = NULL, *again = NULL;
  clattn_plan_info info;
  clattn_support support;
  clattn_error error;
  clattn_error_init(&error);
  clattn_support_init(&support);
  clattn_plan_info_init(&info);
  if (clattn_plan_create(context, &problem, NULL, &plan, &error) != CLATTN_SUCCESS)
    fail_msg("no plan: %s", error.message);
  assert_int_equal(clattn_plan_get_info(plan, &info), CLATTN_SUCCESS);
  if (strcmp(info.variant, variant) != 0 || strstr(info.why, why) == NULL)
    fail_msg("%s, not %s; why: %s, not %s", info.variant, variant, info.why, why);
  assert_int_equal(clattn_supported(context, &problem, NULL, &support), CLATTN_SUCCESS);
  assert_string_equal(support.variant, variant);
  assert_string_equal(support.reason, info.why);
  check_results(context, plan);
  const int before[] = {builds, launches, queues};
  assert_int_equal(clattn_plan_create(context, &problem, NULL, &again, NULL), CLATTN_SUCCESS);
  assert_int_equal(clattn_plan_get_info(again, &info), CLATTN_SUCCESS);
  assert_string_equal(info.variant, variant);
  const int after[] = {builds, launches, queues};
  assert_memory_equal(before, after, sizeof before);
  clattn_plan_release(again);
  clattn_plan_release(plan);
}

static void refuses(clattn_context *context, const char *variant, clattn_status status, const char *first,
                    const char *second) {
  const clattn_problem problem = problem_of(line);
  clattn_plan_options options;
  clattn_plan_options_init(&options);
  options.variant = variant;
  for (int again = 0; again < 2; ++again) {
    clattn_plan *plan = NULL;
    clattn_error error;
    char log[256] = "";
    clattn_error_init(&error);
    error.build_log = log;
    error.build_log_capacity = sizeof log;
    const clattn_status got = clattn_plan_create(context, &problem, &options, &plan, &error);
    if (got != status || error.status != status || !strstr(error.message, first) || !strstr(error.message, second))
      fail_msg("%s: %s, not %s: '%s'", variant ? variant : "selection", clattn_status_name(got),
               clattn_status_name(status), error.message);
    assert_null(plan);
  }
}

static void logs(const char *text) {
  if (strstr(logged, text) == NULL)
    fail_msg("the log does not say '%s':\n%s", text, logged);
}

/* ---- bad luck ---- */

static const char simt[] = "flash-gpu-simt", three_step[] = "three-step";

static void one_kind(const fault *luck, const char *variant, const char *why) {
  bad = *luck;
  bad.gpu = 1;
  clattn_context *const context = open_with(NULL, NULL);
  picks(context, variant, why);
  if (strcmp(variant, three_step) == 0 && luck->programs)
    logs("1 trial: variant flash-gpu-simt failed: ");
  clattn_context_release(context);
  memset(&bad, 0, sizeof bad);
}

static const char guard[] = "as_float4((int4)(CLATTN_EXCLUDED_BITS))", broken_guard[] = "(float4)(NAN)",
                  result[] = "clattn_result(s, acc[0][c])", nan_result[] = "NAN * acc[0][c]",
                  far[] = "x < (clattn_v)(-87.33654f) ? (clattn_v)(0.0f) : e; /*", near[] = "e; /*";

static void every_kind(void **state) {
  (void)state;
  static const struct {
    fault luck;
    const char *variant, *why;
  } kinds[] = {
      {{0}, simt, "; tested here"},
      {{.local_bytes = 16384}, simt, "; tested here"},
      {{.local_bytes = 8192},
       three_step,
       "flash-gpu-simt needs work-groups of 32 items and 10604 bytes of local memory"},
      {{.work_group = 64}, simt, "; tested here"},
      {{.programs = SIMT, .build = CL_BUILD_PROGRAM_FAILURE},
       three_step,
       "flash-gpu-simt is passed over: its kernels don't build: CL_BUILD_PROGRAM_FAILURE; tested here"},
      {{.programs = SIMT, .build = CL_OUT_OF_RESOURCES}, three_step, "don't build: CL_OUT_OF_RESOURCES"},
      {{.programs = SIMT, .kernel_group = 32}, three_step, "runs in work-groups of 32 items, not of 64"},
      {{.programs = SIMT, .kernel_local = 1 << 24}, three_step, "takes 16777216 bytes of local memory; the device has"},
      {{.programs = SIMT, .from = result, .to = nan_result},
       three_step,
       "it computes wrong numbers: case \"plain\", o["},
      {{.programs = SIMT, .from = guard, .to = broken_guard}, three_step, "it computes wrong numbers: case \""},
      {{.programs = SIMT, .from = "if (odd)", .to = "if (0)"}, three_step, "it computes wrong numbers: case \"rules\""},
      {{.programs = SIMT, .from = "s > m ? s : m", .to = "s > -1e29f && s > m ? s : m"},
       three_step,
       "it computes wrong numbers: case \"rows without keys and of 1e30\""},
      {{.programs = SIMT, .from = far, .to = near},
       three_step,
       "it computes wrong numbers: case \"plain\", o[0,0,0,0] is nan, not "},
      {{.programs = SIMT, .launch = CL_OUT_OF_RESOURCES},
       three_step,
       "its test launch failed, case \"plain\": CL_OUT_OF_RESOURCES"},
  };
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; ++i)
    one_kind(&kinds[i].luck, kinds[i].variant, kinds[i].why);
}

/* The plain fallback is tested, too; and what is named is not replaced. */
static void nothing_left(void **state) {
  (void)state;
  bad = (fault){.gpu = 1, .programs = SIMT | THREE_STEP, .launch = CL_OUT_OF_RESOURCES};
  clattn_context *context = open_with(NULL, NULL);
  refuses(context, NULL, CL_OUT_OF_RESOURCES, "variant flash-gpu-simt is passed over: its test launch failed",
          "variant three-step is passed over: its test launch failed");
  clattn_context_release(context);
  bad = (fault){.gpu = 1, .programs = SIMT, .from = result, .to = nan_result};
  context = open_with(NULL, NULL);
  refuses(context, simt, CLATTN_ERROR_SELF_TEST, "variant flash-gpu-simt can't be used: it computes wrong numbers",
          "nan");
  picks(context, three_step, "flash-gpu-simt is passed over");
  clattn_context_release(context);
  context = open_with("variant=flash-gpu-simt", NULL);
  refuses(context, NULL, CLATTN_ERROR_SELF_TEST, "can't be used", "wrong numbers");
  clattn_context_release(context);
  bad = (fault){.gpu = 1, .programs = SIMT, .build = CL_BUILD_PROGRAM_FAILURE};
  context = open_with(NULL, NULL);
  refuses(context, simt, CL_BUILD_PROGRAM_FAILURE, "building kernels/flash_gpu_simt.cl", "");
  clattn_context_release(context);
  memset(&bad, 0, sizeof bad);
}

/* Cases of every kind of problem on every variant: each has rows without keys, where rules say so, and numbers. */
static void cases(void **state) {
  (void)state;
  static const char *const lines[] = {"sq=9 sk=20 d=8",
                                      "hq=8 hkv=2 sq=1 sk=700 d=64 out=o,max_logit",
                                      "sq=9 sk=20 d=2000 dv=70 bias=f16 out=scores",
                                      "sq=9 sk=20 d=8 rope=half",
                                      "hq=2 sq=300 sk=20 d=36 k=i8 v=i4 sim=additive",
                                      "sq=9 sk=20 d=9 q=f16 o=bf16 sim=cosine"};
  const clattni_allocator plain = {NULL, NULL, NULL};
  clattn_device_info device;
  clattn_context *const context = open_with(NULL, NULL);
  clattn_device_info_init(&device);
  assert_int_equal(clattn_context_device_info(context, &device), CLATTN_SUCCESS);
  clattn_context_release(context);
  for (size_t n = 0; n < sizeof lines / sizeof *lines; ++n)
    for (uint32_t v = 0; clattni_variant_at(v) != NULL; ++v)
      for (uint32_t i = 0; i < CLATTNI_TRIAL_CASES; ++i) {
        clattn_problem problem = problem_of(lines[n]), resolved;
        clattni_request request;
        clattni_choice choice;
        clattni_trial_case made;
        int finite = 0, empty = 0;
        clattni_problem_resolve(&problem, &resolved);
        memset(&request, 0, sizeof request);
        request.problem = &resolved;
        request.device = &device;
        request.variant = clattni_variant_at(v)->name;
        if (clattni_select(&request, &choice, NULL) != CLATTN_SUCCESS)
          continue;
        assert_int_equal(clattni_trial_case_make(i, &resolved, &choice, &plain, &made, NULL), CLATTN_SUCCESS);
        for (int64_t row = 0; row < clattni_self_test_elements(&made.of, CLATTNI_LSE); ++row) {
          finite += isfinite(made.expected[CLATTNI_LSE][row]) != 0;
          empty += isinf(made.expected[CLATTNI_LSE][row]) != 0;
        }
        assert_true(finite > 0);
        assert_int_equal(empty > 0, i > 0);
        clattni_trial_case_free(&plain, &made);
      }
}

/* Who is tested: GPUs, and who asks for it. */
static void trust(void **state) {
  (void)state;
  const clattn_problem problem = problem_of(line);
  clattn_support support;
  clattn_plan *plan = NULL;
  static const struct {
    int gpu;
    const char *config;
    int tested;
  } rows[] = {{0, "trust=tested", 1}, {0, NULL, 0}, {0, "trust=all", 0}, {1, "trust=all", 0}, {1, "trust=tested", 1}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    bad.gpu = rows[i].gpu;
    clattn_context *const context = open_with(rows[i].config, NULL);
    clattn_support_init(&support);
    assert_int_equal(clattn_supported(context, &problem, NULL, &support), CLATTN_SUCCESS);
    assert_int_equal(strstr(support.reason, "its first use will test it") != NULL, rows[i].tested);
    const int before = queues;
    assert_int_equal(clattn_plan_create(context, &problem, NULL, &plan, NULL), CLATTN_SUCCESS);
    assert_int_equal(queues - before, rows[i].tested); /* one of its own */
    clattn_plan_release(plan);
    clattn_context_release(context);
  }
  memset(&bad, 0, sizeof bad);
}

/* A hook's mistakes are its own; its kernels are tested without it. */
static void hooks(void **state) {
  (void)state;
  clattn_hook *good = NULL, *wrong = NULL;
  clattn_problem problem = problem_of(line);
  clattn_plan *plan = NULL;
  clattn_error error;
  clattn_error_init(&error);
  assert_int_equal(
      clattn_hook_create("float clattn_score(float s, const clattn_at *at) { return s + at->j; }", &good, NULL),
      CLATTN_SUCCESS);
  assert_int_equal(
      clattn_hook_create("float clattn_score(float s, const clattn_at *at) { return oops; }", &wrong, NULL),
      CLATTN_SUCCESS);
  bad.gpu = 1;
  clattn_context *const context = open_with(NULL, NULL);
  problem.hook = wrong;
  assert_int_equal(clattn_plan_create(context, &problem, NULL, &plan, &error), CL_BUILD_PROGRAM_FAILURE);
  assert_non_null(strstr(error.message, "flash_gpu_simt"));
  problem.hook = good;
  assert_int_equal(clattn_plan_create(context, &problem, NULL, &plan, &error), CLATTN_SUCCESS);
  clattn_plan_release(plan);
  clattn_context_release(context);
  clattn_hook_release(wrong);
  clattn_hook_release(good);
  memset(&bad, 0, sizeof bad);
}

static void *make_plan(void *of) {
  const clattn_problem problem = problem_of(line);
  clattn_plan *plan = NULL;
  const clattn_status status = clattn_plan_create(of, &problem, NULL, &plan, NULL);
  clattn_plan_info info;
  clattn_plan_info_init(&info);
  const int fine = status == CLATTN_SUCCESS && clattn_plan_get_info(plan, &info) == CLATTN_SUCCESS &&
                   strcmp(info.variant, three_step) == 0;
  clattn_plan_release(plan);
  return fine ? of : NULL;
}

static void threads(void **state) {
  (void)state;
  enum { THREADS = 4 };
  pthread_t thread[THREADS];
  bad = (fault){.gpu = 1, .programs = SIMT, .from = result, .to = nan_result};
  clattn_context *const context = open_with(NULL, NULL);
  for (int i = 0; i < THREADS; ++i)
    assert_int_equal(pthread_create(&thread[i], NULL, make_plan, context), 0);
  for (int i = 0; i < THREADS; ++i) {
    void *fine = NULL;
    assert_int_equal(pthread_join(thread[i], &fine), 0);
    assert_ptr_equal(fine, context);
  }
  clattn_context_release(context);
  memset(&bad, 0, sizeof bad);
}

/* ---- the disk cache ---- */

static int marks(void) {
  int count = 0;
  DIR *const opened = opendir(folder);
  const struct dirent *entry;
  while (opened && (entry = readdir(opened)) != NULL)
    count += strstr(entry->d_name, ".building") != NULL && strstr(entry->d_name, ".tmp") == NULL;
  if (opened)
    closedir(opened);
  return count;
}

static void run(const char *command) {
  if (system(command) != 0) // NOLINT(cert-env33-c): a test's own command
    fail_msg("%s", command);
}

static void clean(void) {
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  run(command);
}

static void kept_verdicts(void **state) {
  (void)state;
  clean();
  bad.gpu = 1;
  clattn_context *context = open_with(NULL, folder);
  picks(context, simt, "; tested here");
  assert_int_equal(marks(), 0);
  clattn_context_release(context);
  context = open_with(NULL, folder);
  const int before = queues;
  picks(context, simt, "; tested here");
  assert_int_equal(queues, before + 1); /* check_results' own: it passed before */
  clattn_context_release(context);
  clean();
  bad = (fault){.gpu = 1, .programs = SIMT, .from = result, .to = nan_result};
  context = open_with(NULL, folder);
  picks(context, three_step, "passed over: it computes wrong numbers");
  clattn_context_release(context);
  memset(&bad, 0, sizeof bad);
  bad.gpu = 1;
  context = open_with(NULL, folder);
  picks(context, three_step, "passed over: in an earlier start, which the disk cache kept, it computes wrong numbers");
  clattn_context_release(context);
  clean(); /* and without it all is new */
  context = open_with(NULL, folder);
  picks(context, simt, "; tested here");
  clattn_context_release(context);
  clean();
  bad = (fault){.gpu = 1, .programs = SIMT, .launch = CL_OUT_OF_RESOURCES}; /* may be the moment's, so it is not kept */
  context = open_with(NULL, folder);
  picks(context, three_step, "CL_OUT_OF_RESOURCES");
  clattn_context_release(context);
  memset(&bad, 0, sizeof bad);
  bad.gpu = 1;
  context = open_with(NULL, folder);
  picks(context, simt, "; tested here");
  clattn_context_release(context);
  memset(&bad, 0, sizeof bad);
}

static void slow_builds(void **state) {
  (void)state;
  clean();
  bad = (fault){.gpu = 1, .programs = SIMT, .seconds = 61};
  clattn_context *context = open_with(NULL, folder);
  picks(context, simt, "; tested here"); /* it is there now */
  logs("1 trial: variant flash-gpu-simt: it took 6");
  logs("which is more than 60; the next start passes it over");
  clattn_context_release(context);
  memset(&bad, 0, sizeof bad);
  bad.gpu = 1;
  context = open_with(NULL, folder);
  picks(context, three_step, "which the disk cache kept, it took 6");
  clattn_context_release(context);
  memset(&bad, 0, sizeof bad);
}

/* A process that ended while it built leaves a mark; one that still builds does not count. */
static void ended_while_building(void **state) {
  (void)state;
  char command[512];
  const struct timespec pause = {0, 10000000};
  clean();
  bad.gpu = 1;
  snprintf(command, sizeof command, "%s hold %s", own_path, folder);
  FILE *const other = popen(command, "w"); // NOLINT(cert-env33-c): this very test
  assert_non_null(other);
  for (int i = 0; i < 6000 && marks() == 0; ++i)
    nanosleep(&pause, NULL);
  assert_int_equal(marks(), 1);
  clattn_context *context = open_with(NULL, folder);
  picks(context, simt, "; tested here");
  clattn_context_release(context);
  assert_int_equal(marks(), 1);
  assert_int_equal(pclose(other), 0);
  assert_int_equal(marks(), 0);
  clean();
  snprintf(command, sizeof command, "%s die %s", own_path, folder);
  run(command);
  assert_int_equal(marks(), 1);
  for (int again = 0; again < 2; ++again) {
    context = open_with(NULL, folder);
    picks(context, three_step, "passed over: a process ended while it was built or tested; delete ");
    logs("1 trial: variant flash-gpu-simt failed: a process ended while it was built");
    refuses(context, simt, CLATTN_ERROR_VARIANT_UNFIT, "a process ended", ".building in the disk cache to try again");
    clattn_context_release(context);
  }
  clean();
  context = open_with(NULL, folder);
  picks(context, simt, "; tested here");
  clattn_context_release(context);
  clean();
  memset(&bad, 0, sizeof bad);
}

static int other_process(const char *what, const char *where) {
  bad = (fault){.gpu = 1, .programs = SIMT, .die = strcmp(what, "die") == 0, .hold = strcmp(what, "hold") == 0};
  clattn_context *const context = open_with(NULL, where);
  const clattn_problem problem = problem_of(line);
  clattn_plan *plan = NULL;
  const clattn_status status = clattn_plan_create(context, &problem, NULL, &plan, NULL);
  clattn_plan_release(plan);
  clattn_context_release(context);
  return bad.hold && status == CLATTN_SUCCESS ? 0 : 3;
}

/* ---- the stub driver ---- */

enum { MOST_CALLS = 3000, MOST_ANSWERS = 100000 };
static float answers[MOST_ANSWERS];

/* What a right GPU would give for the trial of the plan that the line gets. */
static void find_answers(const clattn_context *context) {
  const clattni_allocator plain = {NULL, NULL, NULL};
  clattn_problem problem = problem_of(line), resolved;
  clattn_device_info device;
  clattni_request request;
  clattni_choice choice;
  size_t count = 0;
  clattn_device_info_init(&device);
  assert_int_equal(clattn_context_device_info(context, &device), CLATTN_SUCCESS);
  clattni_problem_resolve(&problem, &resolved);
  memset(&request, 0, sizeof request);
  request.problem = &resolved;
  request.device = &device;
  assert_int_equal(clattni_select(&request, &choice, NULL), CLATTN_SUCCESS);
  assert_string_equal(choice.variant->name, simt);
  for (uint32_t i = 0; i < CLATTNI_TRIAL_CASES; ++i) {
    clattni_trial_case made;
    assert_int_equal(clattni_trial_case_make(i, &resolved, &choice, &plain, &made, NULL), CLATTN_SUCCESS);
    for (clattni_slot slot = 0; slot < CLATTNI_SLOTS; ++slot)
      for (int64_t n = 0; made.expected[slot] && n < clattni_self_test_elements(&made.of, slot); ++n) {
        assert_true(count < MOST_ANSWERS);
        answers[count++] = (float)made.expected[slot][n];
      }
    clattni_trial_case_free(&plain, &made);
  }
  bad.answers = answers;
  bad.num_answers = count;
}

static int stub_setup(void **state) {
  stub_settings settings;
  const int code = rig_setup(state);
  stub->settings(&settings);
  settings.forbid_blocking = 0; /* a trial blocks, as documented */
  settings.max_work_group = 32; /* small tiles: the reference's time counts, many times over */
  stub->set_settings(&settings);
  memset(&bad, 0, sizeof bad);
  return code;
}

static clattn_context *stub_context(const rig *r, heap *h) {
  clattn_context_options options;
  clattn_context *context = NULL;
  heap_options(h, &options);
  options.config_text = NULL;
  assert_int_equal(clattn_context_create(r->cl, r->device[0], &options, &context, NULL), CLATTN_SUCCESS);
  return context;
}

/* With right answers the GPU's variant, without them none. */
static void calls_and_allocations(void **state) {
  for (int kind = 0; kind < 4; ++kind) { /* calls, allocations; with answers, without */
    const int right = kind < 2, calls = kind % 2 == 0;
    int failed = 1;
    uint64_t n = 1;
    memset(&bad, 0, sizeof bad);
    for (; failed; ++n) {
      heap h;
      clattn_error error;
      clattn_plan *plan = NULL;
      const uint64_t objects = live_objects(), references = live_references();
      const clattn_problem problem = problem_of(line);
      clattn_context *const context = stub_context(*state, &h);
      clattn_error_init(&error);
      answered = 0;
      num_known = 0;
      if (right && bad.answers == NULL)
        find_answers(context);
      if (calls)
        stub->set_fail(NULL, n, CL_OUT_OF_RESOURCES);
      else
        atomic_store(&h.fail_at, atomic_load(&h.calls) + (long)n);
      const clattn_status status = clattn_plan_create(context, &problem, NULL, &plan, &error);
      failed = calls ? stub->failed() != 0 : atomic_load(&h.failed) != 0;
      const int release = calls && failed && strncmp(stub->failed_name(), "clRelease", 9) == 0;
      const clattn_status usual = right ? CLATTN_SUCCESS : CLATTN_ERROR_SELF_TEST;
      const clattn_status wanted = !failed || release ? usual
                                   : calls            ? CL_OUT_OF_RESOURCES
                                                      : CLATTN_ERROR_OUT_OF_MEMORY;
      stub->set_fail(NULL, 0, 0);
      /* once a variant has failed, the first failure is the plan's */
      if (status != wanted && !(status == usual && calls && !right))
        fail_msg("kind %d, number %llu: %d '%s', not %d", kind, (unsigned long long)n, (int)status, error.message,
                 (int)wanted);
      assert_int_equal(error.status, status);
      assert_true((status == CLATTN_SUCCESS) == (plan != NULL));
      clattn_plan_release(plan);
      clattn_context_release(context);
      assert_int_equal(live_objects(), objects);
      assert_int_equal(live_references(), references);
      assert_int_equal(atomic_load(&h.live), 0);
      assert_true(n < MOST_CALLS);
    }
    print_message("%s, %s: %llu\n", calls ? "calls failed" : "allocations failed",
                  right ? "right numbers" : "wrong numbers", (unsigned long long)n - 2);
    assert_true(n > 10);
  }
}

int main(int argc, char **argv) {
  const struct CMUnitTest device[] = {
      cmocka_unit_test(every_kind),    cmocka_unit_test(nothing_left), cmocka_unit_test(trust),
      cmocka_unit_test(cases),         cmocka_unit_test(hooks),        cmocka_unit_test(threads),
      cmocka_unit_test(kept_verdicts), cmocka_unit_test(slow_builds),  cmocka_unit_test(ended_while_building),
  };
  const struct CMUnitTest stubbed[] = {
      cmocka_unit_test_setup_teardown(calls_and_allocations, stub_setup, rig_teardown),
  };
  own_path = argv[0];
  if (argc == 3)
    return other_process(argv[1], argv[2]);
  snprintf(folder, sizeof folder, "trial-cache-%ld", (long)getpid());
  if (argc == 1)
    return cmocka_run_group_tests_name("trial", device, NULL, NULL);
  if (argc != 2 || strcmp(argv[1], "stub") != 0 || !use_open(1))
    return 2;
  return cmocka_run_group_tests_name("trial on the stub driver", stubbed, NULL, NULL);
}
