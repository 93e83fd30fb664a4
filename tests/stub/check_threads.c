/* SPDX-License-Identifier: Apache-2.0 */
/* One context and its plans under several threads at once.  Worth most under TSan; the driver itself sees two threads
 * at one kernel object. */
#define _POSIX_C_SOURCE 200809L
#include "use.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { THREADS = 4, ROUNDS = 12 };

typedef struct worker {
  pthread_t thread;
  const rig *rig;
  clattn_context *context;
  const clattn_plan *shared; /* NULL: the worker makes its own plans */
  clattn_problem problem;
  job job;
  int number, rounds;
  clattn_status status; /* the first that was not expected */
  char message[256];
} worker;

/* Assertions belong to the main thread; workers only take notes. */
static int note(worker *w, clattn_status status, const char *what) {
  if (status == CLATTN_SUCCESS)
    return 1;
  if (w->status == CLATTN_SUCCESS) {
    w->status = status;
    snprintf(w->message, sizeof w->message, "%s: %.200s", what, w->job.error.message);
  }
  return 0;
}

static void *work(void *argument) {
  worker *const w = argument;
  for (int i = 0; i < w->rounds && w->status == CLATTN_SUCCESS; ++i) {
    const cl_command_queue queue = (i + w->number) % 2 ? w->rig->out_of_order : w->rig->in_order;
    clattn_plan *own = NULL;
    clattn_support support;
    clattn_support_init(&support);
    note(w, clattn_supported(w->context, &w->problem, NULL, &support), "supported");
    if (!w->shared && !note(w, clattn_plan_create(w->context, &w->problem, NULL, &own, &w->job.error), "plan_create"))
      break;
    cl_event event = NULL;
    if (note(w, clattn_enqueue(w->shared ? w->shared : own, queue, &w->job.args, 0, NULL, &event), "enqueue"))
      note(w, clReleaseEvent(event), "clReleaseEvent");
    clattn_plan_release(own);
  }
  return NULL;
}

static void run_workers(const rig *r, clattn_context *context, const clattn_plan *shared, int rounds) {
  static worker workers[THREADS];
  memset(workers, 0, sizeof workers);
  for (int i = 0; i < THREADS; ++i) {
    worker *const w = &workers[i];
    w->rig = r;
    w->context = context;
    w->shared = shared;
    w->number = i;
    w->rounds = rounds;
    job_init(&w->job, shared ? JOB_ALL : (unsigned)i * 3 % (JOB_ALL + 1));
    w->problem = w->job.problem;
    job_buffers(&w->job, r->cl);
  }
  for (int i = 0; i < THREADS; ++i)
    assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
  for (int i = 0; i < THREADS; ++i)
    assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
  for (int i = 0; i < THREADS; ++i) {
    job_free(&workers[i].job);
    if (workers[i].status != CLATTN_SUCCESS)
      fail_msg("thread %d: %d %s", i, (int)workers[i].status, workers[i].message);
  }
}

static clattn_context *make_context(const rig *r, heap *h) {
  clattn_context_options options;
  clattn_context *context = NULL;
  heap_options(h, &options);
  assert_int_equal(clattn_context_create(r->cl, r->device[0], &options, &context, NULL), CLATTN_SUCCESS);
  return context;
}

static void test_own_plans(void **state) {
  const rig *const r = *state;
  heap h;
  clattn_context *const context = make_context(r, &h);
  run_workers(r, context, NULL, ROUNDS);
  assert_int_equal(stub->builds(), 1); /* the threads waited for one build instead of making their own */
  clattn_context_release(context);
  assert_int_equal(atomic_load(&h.live), 0);
}

static void test_shared_plan(void **state) {
  const rig *const r = *state;
  heap h;
  clattn_context *const context = make_context(r, &h);
  clattn_plan *plan = NULL;
  job j;
  job_init(&j, JOB_ALL);
  assert_int_equal(clattn_plan_create(context, &j.problem, NULL, &plan, NULL), CLATTN_SUCCESS);
  run_workers(r, context, plan, ROUNDS);
  clattn_plan_release(plan);
  clattn_context_release(context);
  assert_int_equal(atomic_load(&h.live), 0);
}

/* All threads are inside an enqueue of one plan at the same time: each needs kernel objects of its own. */
static void test_all_at_once(void **state) {
  const rig *const r = *state;
  heap h;
  clattn_context *const context = make_context(r, &h);
  clattn_plan *plan = NULL;
  job j;
  job_init(&j, JOB_ALL);
  assert_int_equal(clattn_plan_create(context, &j.problem, NULL, &plan, NULL), CLATTN_SUCCESS);
  const uint64_t kernels = stub->live(STUB_KERNEL);
  stub_settings settings;
  stub->settings(&settings);
  settings.rendezvous = THREADS;
  stub->set_settings(&settings);
  run_workers(r, context, plan, 1);
  assert_int_equal(stub->live(STUB_KERNEL), kernels * THREADS);
  run_workers(r, context, plan, 2);
  assert_int_equal(stub->live(STUB_KERNEL), kernels * THREADS); /* they were kept for the next time */
  clattn_plan_release(plan);
  clattn_context_release(context);
  assert_int_equal(atomic_load(&h.live), 0);
}

/* Threads that hold the last references let go at the same time. */
static void *let_go(void *argument) {
  clattn_plan_release(argument);
  return NULL;
}

static void test_releases(void **state) {
  const rig *const r = *state;
  for (int round = 0; round < ROUNDS; ++round) {
    heap h;
    clattn_context *const context = make_context(r, &h);
    clattn_plan *plans[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; ++i) {
      job j;
      job_init(&j, (unsigned)i);
      assert_int_equal(clattn_plan_create(context, &j.problem, NULL, &plans[i], NULL), CLATTN_SUCCESS);
    }
    for (int i = 0; i < THREADS; ++i)
      assert_int_equal(pthread_create(&threads[i], NULL, let_go, plans[i]), 0);
    clattn_context_release(context);
    for (int i = 0; i < THREADS; ++i)
      assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(atomic_load(&h.live), 0);
  }
}

/* A build that does not end before it is told to: it stops at the first host memory that it asks for once the compiler
 * was called, with whatever the library has locked by then. */
typedef struct slow_build {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int building, may_end, gave_up;
  clattn_context *context;
  clattn_status status;
} slow_build;

/* Waits for *flag under the lock; 0 when that takes too long. */
static int wait_for(slow_build *b, const int *flag) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 10;
  while (!*flag)
    if (pthread_cond_timedwait(&b->changed, &b->lock, &until) != 0)
      return 0;
  return 1;
}

static void *slow_alloc(void *user, size_t bytes) {
  slow_build *const b = user;
  pthread_mutex_lock(&b->lock);
  if (!b->building && stub->builds() > 0) {
    b->building = 1;
    pthread_cond_broadcast(&b->changed);
    b->gave_up = !wait_for(b, &b->may_end);
  }
  pthread_mutex_unlock(&b->lock);
  return malloc(bytes);
}

static void slow_free(void *user, void *memory) {
  (void)user;
  free(memory);
}

static void *build_slowly(void *argument) {
  slow_build *const b = argument;
  clattn_plan *plan = NULL;
  job j;
  job_init(&j, JOB_PLAIN);
  b->status = clattn_plan_create(b->context, &j.problem, NULL, &plan, NULL);
  clattn_plan_release(plan);
  return NULL;
}

/* clattn_supported builds nothing, so it has nothing to wait for: not even the build of just what it is asked about. */
static void test_supported_during_a_build(void **state) {
  const rig *const r = *state;
  slow_build b;
  memset(&b, 0, sizeof b);
  assert_int_equal(pthread_mutex_init(&b.lock, NULL), 0);
  assert_int_equal(pthread_cond_init(&b.changed, NULL), 0);
  clattn_context_options options;
  clattn_context_options_init(&options);
  options.alloc_fn = slow_alloc;
  options.free_fn = slow_free;
  options.alloc_user = &b;
  options.config_text = TRUSTED_JOBS;
  assert_int_equal(clattn_context_create(r->cl, r->device[0], &options, &b.context, NULL), CLATTN_SUCCESS);
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, build_slowly, &b), 0);
  pthread_mutex_lock(&b.lock);
  const int building = wait_for(&b, &b.building);
  pthread_mutex_unlock(&b.lock);
  clattn_support support;
  clattn_support_init(&support);
  job j;
  job_init(&j, JOB_PLAIN);
  const clattn_status supported = clattn_supported(b.context, &j.problem, NULL, &support);
  pthread_mutex_lock(&b.lock);
  const int waited = b.gave_up;
  b.may_end = 1;
  pthread_cond_broadcast(&b.changed);
  pthread_mutex_unlock(&b.lock);
  assert_int_equal(pthread_join(thread, NULL), 0);
  clattn_context_release(b.context);
  pthread_cond_destroy(&b.changed);
  pthread_mutex_destroy(&b.lock);
  assert_true(building);
  assert_false(waited); /* the answer came while the build still went on */
  assert_int_equal(supported, CLATTN_SUCCESS);
  assert_int_equal(b.status, CLATTN_SUCCESS);
}

int run_thread_tests(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_own_plans, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_shared_plan, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_all_at_once, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_releases, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_supported_during_a_build, rig_setup, rig_teardown),
  };
  return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
