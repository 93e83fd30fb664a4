/* SPDX-License-Identifier: Apache-2.0 */
/* Every OpenCL call, and every allocation, of every operation fails once: the code comes back unchanged, nothing leaks,
 * nothing is misused, and the same operation works right after. */
#include "use.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CAP = 70000 /* bytes of workspace: three rounds of launches for a job */, MOST_CALLS = 2000 };

typedef struct attempt {
  const rig *rig;
  heap heap;
  clattn_context_options options;
  clattn_context *context, *made;
  clattn_plan *plan, *made_plan;
  clattn_error error;
  clattn_merge_args merge;
  job job;
  cl_command_queue queue;
  cl_event gate, event;
} attempt;

typedef struct operation {
  const char *name;
  void (*prepare)(attempt *); /* before all */
  void (*arm)(attempt *);     /* before each act */
  clattn_status (*act)(attempt *);
  void (*disarm)(attempt *); /* releases what act and arm made */
  void (*finish)(attempt *);
  unsigned flags;
  int workspace, out_of_order;
  const char *variant; /* NULL: selection's */
  int tested;          /* 1: kernels are tested, and found wrong: the driver computes nothing */
} operation;

static const operation *current;

/* ---- the operations ---- */

static void nothing(attempt *a) {
  (void)a;
}

static void prepare_context(attempt *a) {
  assert_int_equal(clattn_context_create(a->rig->cl, a->rig->device[0], &a->options, &a->context, NULL),
                   CLATTN_SUCCESS);
}

static void finish_context(attempt *a) {
  clattn_context_release(a->context);
  a->context = NULL;
}

static clattn_status act_context(attempt *a) {
  a->made = (clattn_context *)(void *)a;
  const clattn_status status = clattn_context_create(a->rig->cl, a->rig->device[0], &a->options, &a->made, &a->error);
  assert_true((status == CLATTN_SUCCESS) == (a->made != NULL));
  return status;
}

static clattn_status act_default_context(attempt *a) {
  a->made = (clattn_context *)(void *)a;
  const clattn_status status = clattn_context_create_default(&a->options, &a->made, &a->error);
  assert_true((status == CLATTN_SUCCESS) == (a->made != NULL));
  return status;
}

static char tuning[2048];

static void prepare_tuning(attempt *a) {
  static const char line[] = "tile flash-cpu-vector width=8 dim=64 rows=many causal=0 k=f32 v=f32 : vectors=2 keys=8 "
                             "dims=8 block=128\n";
  size_t length = 0;
  prepare_context(a);
  assert_int_equal(clattn_tuning_head(a->context, tuning, sizeof tuning - sizeof line, &length), CLATTN_SUCCESS);
  memcpy(tuning + length, line, sizeof line);
  clattn_context_release(a->context);
  a->context = NULL;
}

static clattn_status act_tuned_context(attempt *a) {
  clattn_context_options options = a->options;
  options.config_text = "width=8;forbid=matrix;trust=tested";
  options.tuning_text = tuning;
  a->made = (clattn_context *)(void *)a;
  const clattn_status status = clattn_context_create(a->rig->cl, a->rig->device[0], &options, &a->made, &a->error);
  assert_true((status == CLATTN_SUCCESS) == (a->made != NULL));
  return status;
}

static void disarm_context(attempt *a) {
  clattn_context_release(a->made);
  a->made = NULL;
}

static clattn_status make_plan(attempt *a, clattn_plan **plan) {
  clattn_plan_options options;
  job_options(&a->job, &options);
  options.workspace_cap = CAP;
  options.variant = current->variant;
  return clattn_plan_create(a->context, &a->job.problem, &options, plan, &a->error);
}

static void prepare_plan_create(attempt *a) {
  prepare_context(a);
  job_init(&a->job, current->flags);
}

/* What this ends with where no call fails. */
static clattn_status usual_status(void) {
  return current->tested ? CLATTN_ERROR_SELF_TEST : CLATTN_SUCCESS;
}

static void prepare_tested_plan(attempt *a) {
  stub_settings settings;
  stub->settings(&settings);
  settings.forbid_blocking = 0; /* the test waits, as documented */
  settings.max_work_group = 32; /* small tiles: the reference's time counts, many times over */
  stub->set_settings(&settings);
  a->options.config_text = "trust=tested";
  prepare_plan_create(a);
}

static clattn_status act_plan_create(attempt *a) {
  a->made_plan = (clattn_plan *)(void *)a;
  const clattn_status status = make_plan(a, &a->made_plan);
  assert_true((status == CLATTN_SUCCESS) == (a->made_plan != NULL));
  return status;
}

static void disarm_plan_create(attempt *a) {
  clattn_plan_release(a->made_plan);
  a->made_plan = NULL;
}

static void prepare_enqueue(attempt *a) {
  prepare_plan_create(a);
  assert_int_equal(make_plan(a, &a->plan), CLATTN_SUCCESS);
  clattn_plan_info info;
  clattn_plan_info_init(&info);
  assert_int_equal(clattn_plan_get_info(a->plan, &info), CLATTN_SUCCESS);
  assert_true(current->variant ? info.row_blocks == 1 && info.launches <= 5 : info.row_blocks > 1);
  a->queue = current->out_of_order ? a->rig->out_of_order : a->rig->in_order;
  job_buffers(&a->job, a->rig->cl);
  if (current->workspace)
    job_workspace(&a->job, a->rig->cl, a->plan);
  job_ask_launch_events(&a->job);
}

static void arm_enqueue(attempt *a) {
  a->gate = make_user_event(a->rig->cl);
  a->event = NULL;
}

/* Where contents are checked the call blocks for what it waits for. */
static void arm_checked(attempt *a) {
  clattn_plan_options options;
  job_options(&a->job, &options);
  arm_enqueue(a);
  assert_int_equal(clSetUserEventStatus(a->gate, CL_COMPLETE), CL_SUCCESS);
}

static clattn_status check_enqueue(attempt *a, clattn_status status) {
  a->error = a->job.error;
  if (status != CLATTN_SUCCESS) {
    assert_null(a->event);
    assert_int_equal(a->job.num_launch_events, 0);
  }
  return status;
}

static clattn_status act_enqueue(attempt *a) {
  return check_enqueue(a, clattn_enqueue(a->plan, a->queue, &a->job.args, 1, &a->gate, &a->event));
}

static clattn_status act_attention(attempt *a) {
  return check_enqueue(a,
                       clattn_attention(a->context, a->queue, &a->job.problem, &a->job.args, 1, &a->gate, &a->event));
}

static void prepare_merge(attempt *a) {
  enum { PARTS = 3, ROWS = 5, DIM = 4 };
  prepare_context(a);
  a->queue = current->out_of_order ? a->rig->out_of_order : a->rig->in_order;
  clattn_merge_args_init(&a->merge);
  a->merge.error = &a->error;
  a->merge.parts = PARTS;
  a->merge.rows = ROWS;
  a->merge.v_dim = DIM;
  a->merge.part_o = clattn_buffer(make_buffer(a->rig->cl, (size_t)PARTS * ROWS * DIM * 4), 0);
  a->merge.part_lse = clattn_buffer(make_buffer(a->rig->cl, (size_t)PARTS * ROWS * 4), 0);
  a->merge.o = clattn_buffer(make_buffer(a->rig->cl, (size_t)ROWS * DIM * 4), 0);
  a->merge.lse = clattn_buffer(make_buffer(a->rig->cl, (size_t)ROWS * 4), 0);
}

static clattn_status act_merge(attempt *a) {
  const clattn_status status = clattn_merge(a->context, a->queue, &a->merge, 1, &a->gate, &a->event);
  assert_true((status == CLATTN_SUCCESS) == (a->event != NULL));
  return status;
}

static void finish_merge(attempt *a) {
  const cl_mem all[] = {a->merge.part_o.buffer, a->merge.part_lse.buffer, a->merge.o.buffer, a->merge.lse.buffer};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i)
    assert_int_equal(clReleaseMemObject(all[i]), CL_SUCCESS);
  finish_context(a);
}

static void disarm_enqueue(attempt *a) {
  run_user_event(a->gate);
  if (a->event)
    assert_int_equal(clReleaseEvent(a->event), CL_SUCCESS);
  a->event = NULL;
  job_release_launch_events(&a->job);
}

static void disarm_checked(attempt *a) {
  assert_int_equal(clReleaseEvent(a->gate), CL_SUCCESS);
  if (a->event)
    assert_int_equal(clReleaseEvent(a->event), CL_SUCCESS);
  a->event = NULL;
  job_release_launch_events(&a->job);
}

static void finish_enqueue(attempt *a) {
  job_free(&a->job);
  clattn_plan_release(a->plan);
  a->plan = NULL;
  finish_context(a);
}

static void arm_release(attempt *a) {
  prepare_context(a);
  job_init(&a->job, current->flags);
  assert_int_equal(make_plan(a, &a->plan), CLATTN_SUCCESS);
}

static clattn_status act_release(attempt *a) {
  clattn_context_release(a->context);
  clattn_plan_release(a->plan);
  a->context = NULL;
  a->plan = NULL;
  return CLATTN_SUCCESS;
}

#define CONTEXT_OPERATION(name, act)                                                                                   \
  { name, nothing, nothing, act, disarm_context, nothing, 0, 0, 0, NULL, 0 }
#define PLAN_OPERATION(name, flags)                                                                                    \
  { name, prepare_plan_create, nothing, act_plan_create, disarm_plan_create, finish_context, flags, 0, 0, NULL, 0 }
#define ENQUEUE_OPERATION(name, act, flags, workspace, out_of_order)                                                   \
  { name, prepare_enqueue, arm_enqueue, act, disarm_enqueue, finish_enqueue, flags, workspace, out_of_order, NULL, 0 }
#define FUSED_OPERATION(name, flags, workspace, out_of_order)                                                          \
  {                                                                                                                    \
    name, prepare_enqueue, arm_enqueue, act_enqueue, disarm_enqueue, finish_enqueue, flags, workspace, out_of_order,   \
        "flash-cpu-vector", 0                                                                                          \
  }
#define CHECKED_OPERATION(name, flags)                                                                                 \
  {                                                                                                                    \
    name, prepare_enqueue, arm_checked, act_enqueue, disarm_checked, finish_enqueue,                                   \
        (flags) | JOB_DEVICE | JOB_CHECKED, 1, 0, NULL, 0                                                              \
  }
static const operation operations[] = {
    CONTEXT_OPERATION("context_create", act_context),
    CONTEXT_OPERATION("context_create_default", act_default_context),
    {"context_create, config and tuning", prepare_tuning, nothing, act_tuned_context, disarm_context, nothing, 0, 0, 0,
     NULL, 0},
    PLAN_OPERATION("plan_create", JOB_PLAIN),
    PLAN_OPERATION("plan_create, all fields", JOB_ALL),
    PLAN_OPERATION("plan_create, packed and paged", JOB_ALL | JOB_PACKED | JOB_PAGED),
    ENQUEUE_OPERATION("enqueue", act_enqueue, JOB_PLAIN, 1, 0),
    ENQUEUE_OPERATION("enqueue, no workspace", act_enqueue, JOB_PLAIN, 0, 0),
    ENQUEUE_OPERATION("enqueue, lengths", act_enqueue, JOB_LENGTHS, 1, 0),
    ENQUEUE_OPERATION("enqueue, all", act_enqueue, JOB_ALL, 1, 0),
    ENQUEUE_OPERATION("enqueue out of order", act_enqueue, JOB_PLAIN, 1, 1),
    ENQUEUE_OPERATION("enqueue out of order, no workspace", act_enqueue, JOB_PLAIN, 0, 1),
    ENQUEUE_OPERATION("enqueue out of order, lengths", act_enqueue, JOB_LENGTHS, 1, 1),
    ENQUEUE_OPERATION("enqueue out of order, all", act_enqueue, JOB_ALL, 0, 1),
    ENQUEUE_OPERATION("enqueue, packed", act_enqueue, JOB_PACKED, 1, 0),
    ENQUEUE_OPERATION("enqueue, on the device", act_enqueue, JOB_ALL | JOB_DEVICE, 1, 0),
    ENQUEUE_OPERATION("enqueue out of order, all on the device", act_enqueue,
                      JOB_ALL | JOB_DEVICE | JOB_PACKED | JOB_PAGED, 0, 1),
    PLAN_OPERATION("plan_create, types and a hook", JOB_TYPES | JOB_HOOK),
    ENQUEUE_OPERATION("enqueue, types", act_enqueue, JOB_TYPES, 1, 0),
    ENQUEUE_OPERATION("enqueue, a hook", act_enqueue, JOB_HOOK, 0, 0),
    ENQUEUE_OPERATION("enqueue out of order, types and a hook, device", act_enqueue,
                      JOB_TYPES | JOB_HOOK | JOB_ALL | JOB_DEVICE, 0, 1),
    FUSED_OPERATION("fused enqueue, types and a hook, device", JOB_TYPES | JOB_HOOK | JOB_ALL | JOB_DEVICE, 0, 1),
    CHECKED_OPERATION("checked enqueue, packed", JOB_ALL | JOB_PACKED),
    CHECKED_OPERATION("checked enqueue, paged", JOB_PAGED),
    FUSED_OPERATION("fused enqueue", JOB_PLAIN, 0, 0),
    FUSED_OPERATION("fused enqueue, all", JOB_ALL, 1, 0),
    FUSED_OPERATION("fused enqueue out of order, no workspace", JOB_ALL, 0, 1),
    ENQUEUE_OPERATION("attention", act_attention, JOB_ALL, 0, 0),
    {"plan_create, tested", prepare_tested_plan, nothing, act_plan_create, disarm_plan_create, finish_context,
     JOB_PLAIN, 0, 0, NULL, 1},
    {"merge", prepare_merge, arm_enqueue, act_merge, disarm_enqueue, finish_merge, 0, 0, 0, NULL, 0},
    {"merge out of order", prepare_merge, arm_enqueue, act_merge, disarm_enqueue, finish_merge, 0, 0, 1, NULL, 0},
    {"plan_release, context_release", nothing, arm_release, act_release, nothing, nothing, JOB_ALL, 0, 0, NULL, 0},
};
enum { NUM_OPERATIONS = sizeof operations / sizeof *operations };

/* ---- the table ---- */

static struct { uint64_t calls, allocations, leaks; } table[NUM_OPERATIONS];

void print_failure_table(void) {
  int any = 0;
  for (int i = 0; i < NUM_OPERATIONS; ++i)
    any |= table[i].calls != 0;
  if (!any)
    return;
  /* A crash would have ended the program, so every row that is printed had none. */
  printf("%-48s %13s %18s %8s %6s\n", "operation", "calls failed", "allocations failed", "crashes", "leaks");
  for (int i = 0; i < NUM_OPERATIONS; ++i)
    printf("%-48s %13llu %18llu %8d %6llu\n", operations[i].name, (unsigned long long)table[i].calls,
           (unsigned long long)table[i].allocations, 0, (unsigned long long)table[i].leaks);
}

/* ---- one failure ---- */

/* What no cache of the library may keep: everything but programs and kernels. */
static uint64_t outside_caches(void) {
  return live_objects() - stub->live(STUB_PROGRAM) - stub->live(STUB_KERNEL) - stub->kept();
}

static int acceptable(clattn_status status, const char *failed, cl_int code) {
  if (status == code)
    return 1;
  /* Nobody could do anything about a release; the first variant's failure is a tested plan's. */
  if (strncmp(failed, "clRelease", 9) == 0 || current->tested)
    return status == usual_status();
  /* The first usable device: one that does not answer is passed over. */
  return current->act == act_default_context && strncmp(failed, "clGetDevice", 11) == 0 &&
         (status == CLATTN_SUCCESS || status == CLATTN_ERROR_NO_DEVICE);
}

static void check_error(const attempt *a, clattn_status status, const char *failed) {
  if (status == CLATTN_SUCCESS || current->act == act_release)
    return;
  if (a->error.status != status || !a->error.message[0])
    fail_msg("%s: after %s failed the error holds %d '%s', but the call returned %d", current->name, failed,
             (int)a->error.status, a->error.message, (int)status);
}

static void begin(attempt *a, const rig *r) {
  memset(a, 0, sizeof *a);
  a->rig = r;
  heap_options(&a->heap, &a->options);
  clattn_error_init(&a->error);
  current->prepare(a);
}

static void count_leaks(uint64_t *leaks, const char *when, const char *failed, uint64_t n, uint64_t before,
                        uint64_t after) {
  if (before == after)
    return;
  print_error("%s, call %llu (%s): %s there were %llu objects, now %llu\n", current->name, (unsigned long long)n,
              failed ? failed : "host memory", when, (unsigned long long)before, (unsigned long long)after);
  ++*leaks;
}

/* Once without a failure, to show that the job works, and to release.  What failed in a variant's test stays failed. */
static void again_and_finish(attempt *a, const char *failed, cl_int code) {
  current->arm(a);
  const clattn_status status = current->act(a);
  if (status != usual_status() && !(current->tested && status == code))
    fail_msg("%s: the call after a failure of %s gives %d '%s'", current->name, failed, (int)status, a->error.message);
  current->disarm(a);
  current->finish(a);
}

/* Fails call n; 0 when the operation makes fewer calls. */
static int fail_call(const rig *r, uint64_t n, cl_int code, uint64_t *leaks) {
  attempt *const a = calloc(1, sizeof *a);
  assert_non_null(a);
  const uint64_t objects = live_objects(), references = live_references();
  begin(a, r);
  const uint64_t outside = outside_caches();
  current->arm(a);
  stub->set_fail(NULL, n, code);
  const clattn_status status = current->act(a);
  const int failed = stub->failed() != 0;
  const char *const name = failed ? stub->failed_name() : "nothing";
  stub->set_fail(NULL, 0, 0);
  if (!failed ? status != usual_status() : !acceptable(status, name, code))
    fail_msg("%s: call %llu (%s) failed with %d, but the operation returned %d '%s'", current->name,
             (unsigned long long)n, name, (int)code, (int)status, a->error.message);
  check_error(a, status, name);
  current->disarm(a);
  count_leaks(leaks, "before", name, n, outside, outside_caches());
  again_and_finish(a, name, code);
  count_leaks(leaks, "at the start", name, n, objects, live_objects());
  count_leaks(leaks, "at the start, by references,", name, n, references, live_references());
  count_leaks(leaks, "by allocations,", name, n, 0, (uint64_t)atomic_load(&a->heap.live));
  if (print_violations())
    fail_msg("%s: misuse of OpenCL after call %llu (%s) failed", current->name, (unsigned long long)n, name);
  stub->reset();
  free(a);
  return failed;
}

static void fail_every_call(const rig *r, int index) {
  static const cl_int codes[] = {CL_OUT_OF_RESOURCES, -4321 /* of some vendor */};
  current = &operations[index];
  for (size_t c = 0; c < (current->tested ? 1 : sizeof codes / sizeof *codes); ++c) {
    uint64_t n = 1;
    while (fail_call(r, n, codes[c], &table[index].leaks)) {
      assert_true(n < MOST_CALLS);
      ++n;
    }
    table[index].calls += n - 1;
  }
  assert_true(table[index].calls > 0);
  assert_int_equal(table[index].leaks, 0);
}

/* Fails allocation n of the library; 0 when there are fewer. */
static int fail_allocation(const rig *r, long n, uint64_t *leaks) {
  attempt *const a = calloc(1, sizeof *a);
  assert_non_null(a);
  const uint64_t objects = live_objects();
  begin(a, r);
  const uint64_t outside = outside_caches();
  current->arm(a);
  atomic_store(&a->heap.fail_at, atomic_load(&a->heap.calls) + n);
  const clattn_status status = current->act(a);
  const int failed = atomic_load(&a->heap.failed) != 0;
  atomic_store(&a->heap.fail_at, 0);
  if (status != (failed ? CLATTN_ERROR_OUT_OF_MEMORY : usual_status()))
    fail_msg("%s: without memory for allocation %ld it returned %d '%s'", current->name, n, (int)status,
             a->error.message);
  check_error(a, status, "an allocation");
  current->disarm(a);
  count_leaks(leaks, "before", NULL, (uint64_t)n, outside, outside_caches());
  again_and_finish(a, "an allocation", CLATTN_SUCCESS);
  count_leaks(leaks, "at the start", NULL, (uint64_t)n, objects, live_objects());
  count_leaks(leaks, "by allocations,", NULL, (uint64_t)n, 0, (uint64_t)atomic_load(&a->heap.live));
  if (print_violations())
    fail_msg("%s: misuse of OpenCL without memory for allocation %ld", current->name, n);
  stub->reset();
  free(a);
  return failed;
}

static void fail_every_allocation(const rig *r, int index) {
  current = &operations[index];
  long n = 1;
  while (fail_allocation(r, n, &table[index].leaks)) {
    assert_true(n < MOST_CALLS);
    ++n;
  }
  table[index].allocations += (uint64_t)(n - 1);
  assert_int_equal(table[index].leaks, 0);
}

static void test_calls_of_contexts(void **state) {
  for (int i = 0; i < NUM_OPERATIONS; ++i)
    if (operations[i].disarm == disarm_context)
      fail_every_call(*state, i);
}

static void test_calls_of_plans(void **state) {
  for (int i = 0; i < NUM_OPERATIONS; ++i)
    if (operations[i].disarm == disarm_plan_create)
      fail_every_call(*state, i);
}

static void test_calls_of_enqueues(void **state) {
  for (int i = 0; i < NUM_OPERATIONS; ++i)
    if (operations[i].finish == finish_enqueue || operations[i].finish == finish_merge)
      fail_every_call(*state, i);
}

static void test_calls_of_releases(void **state) {
  for (int i = 0; i < NUM_OPERATIONS; ++i)
    if (operations[i].act == act_release)
      fail_every_call(*state, i);
}

static void test_allocations(void **state) {
  for (int i = 0; i < NUM_OPERATIONS; ++i)
    fail_every_allocation(*state, i);
  /* Contexts and plans live in the caller's memory; that they do is part of what this shows. */
  assert_true(table[0].allocations > 0 && table[2].allocations > 0);
  for (int i = 0; i < NUM_OPERATIONS; ++i) /* six arrays, or lengths and the page table */
    if (operations[i].arm == arm_checked)
      assert_true(table[i].allocations >= (operations[i].flags & JOB_PACKED ? 6 : 2));
}

int run_failure_tests(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_calls_of_contexts, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_calls_of_plans, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_calls_of_enqueues, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_calls_of_releases, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_allocations, rig_setup, rig_teardown),
  };
  return cmocka_run_group_tests_name("fail the n-th call", tests, NULL, NULL);
}
