/* SPDX-License-Identifier: Apache-2.0 */
/* What clattn_enqueue asks of a queue, and in which order. */
#include "use.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CAP = 70000 /* bytes of workspace: three rounds of a three-step variant for a job */ };

typedef struct setting {
  const rig *rig;
  clattn_context *context;
  clattn_plan *plan;
  clattn_plan_info info;
  int fused;
  job job;
} setting;

static void begin(setting *s, const rig *r, unsigned flags, const char *variant) {
  memset(s, 0, sizeof *s);
  s->rig = r;
  assert_int_equal(clattn_context_create(r->cl, r->device[0], trusting(), &s->context, NULL), CLATTN_SUCCESS);
  job_init(&s->job, flags);
  clattn_plan_options options;
  job_options(&s->job, &options);
  options.workspace_cap = CAP;
  options.variant = variant;
  if (clattn_plan_create(s->context, &s->job.problem, &options, &s->plan, &s->job.error) != CLATTN_SUCCESS)
    fail_msg("no plan: %s", s->job.error.message);
  clattn_plan_info_init(&s->info);
  assert_int_equal(clattn_plan_get_info(s->plan, &s->info), CLATTN_SUCCESS);
  job_buffers(&s->job, r->cl);
  /* one pass over the keys needs room for entries and maxima, and for nothing else */
  s->fused = strncmp(s->info.variant, "flash-", 6) == 0;
  assert_int_equal(s->info.workspace_bytes > 0,
                   !s->fused || job_has_entries(&s->job) || (flags & (JOB_OUTPUTS | JOB_HOOK)));
  if (s->info.workspace_bytes > 0)
    job_workspace(&s->job, r->cl, s->plan);
}

static void end(setting *s) {
  job_free(&s->job);
  clattn_plan_release(s->plan);
  clattn_context_release(s->context);
}

static void enqueue(setting *s, cl_command_queue queue, cl_uint num, const cl_event *list, cl_event *event) {
  const clattn_status status = clattn_enqueue(s->plan, queue, &s->job.args, num, list, event);
  if (status != CLATTN_SUCCESS)
    fail_msg("enqueue: %d '%s'", (int)status, s->job.error.message);
}

static cl_int status_of(cl_event event) {
  cl_int status = 99;
  assert_int_equal(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL), CL_SUCCESS);
  return status;
}

/* With a workspace on an in-order queue: questions, arguments and launches, nothing else. */
static void check_makes_nothing(const rig *r, const char *variant) {
  static const char *const allowed[] = {"clGetCommandQueueInfo", "clGetMemObjectInfo", "clSetKernelArg",
                                        "clEnqueueNDRangeKernel"};
  for (size_t kind = 0; kind < num_job_kinds; ++kind) {
    setting s;
    begin(&s, r, job_kinds[kind], variant);
    enqueue(&s, s.rig->in_order, 0, NULL, NULL);
    const uint64_t objects = live_objects(), references = live_references(), calls = stub->calls(NULL);
    enqueue(&s, s.rig->in_order, 0, NULL, NULL);
    assert_int_equal(live_objects(), objects);
    assert_int_equal(live_references(), references);
    assert_true(stub->calls(NULL) > calls);
    for (uint64_t i = calls; i < stub->calls(NULL); ++i) {
      const char *const name = stub->call_name(i);
      int ok = 0;
      for (size_t k = 0; k < sizeof allowed / sizeof *allowed; ++k)
        ok |= strcmp(name, allowed[k]) == 0;
      if (!ok)
        fail_msg("an enqueue with a workspace on an in-order queue calls %s", name);
    }
    end(&s);
  }
}

static void test_makes_nothing(void **state) {
  for (uint32_t v = 0; general_variant(v); ++v)
    check_makes_nothing(*state, general_variant(v));
}

static void test_never_blocks(void **state) {
  static const char *const blocking[] = {
      "clFinish", "clFlush", "clWaitForEvents", "clEnqueueMapBuffer", "clEnqueueReadBuffer", "clEnqueueWriteBuffer"};
  const rig *const r = *state;
  for (size_t kind = 0; kind < num_job_kinds; ++kind) {
    setting s;
    begin(&s, r, job_kinds[kind], NULL);
    enqueue(&s, r->in_order, 0, NULL, NULL);
    enqueue(&s, r->out_of_order, 0, NULL, NULL);
    const clattn_mem workspace = s.job.args.workspace;
    s.job.args.workspace = (clattn_mem){0}; /* without a cap the plan wants more than this one */
    assert_int_equal(clattn_attention(s.context, r->out_of_order, &s.job.problem, &s.job.args, 0, NULL, NULL),
                     CLATTN_SUCCESS);
    s.job.args.workspace = workspace;
    end(&s);
  }
  for (size_t i = 0; i < sizeof blocking / sizeof *blocking; ++i)
    assert_int_equal(stub->calls(blocking[i]), 0);
}

/* Two gates before, an event behind; nothing runs early, everything runs in an order that its data allow. */
static void check_chain(const rig *r, unsigned flags, const char *variant, cl_command_queue queue, int launch_events,
                        int own_workspace) {
  setting s;
  begin(&s, r, flags, variant);
  if (own_workspace && s.job.args.workspace.buffer) {
    clReleaseMemObject(s.job.args.workspace.buffer);
    s.job.args.workspace = (clattn_mem){0};
  }
  if (launch_events)
    job_ask_launch_events(&s.job);
  const int apart = strcmp(s.info.variant, "flash-gpu-simt") == 0 && (flags & JOB_OUTPUTS) != 0; /* scores */
  const int entries = job_has_entries(&s.job), on_device = entries && (flags & JOB_DEVICE) != 0;
  const int hook = (flags & JOB_HOOK) != 0, hooked = hook && (flags & JOB_DEVICE) != 0;
  if (s.fused) /* one launch beside entries from the host and from the device, a hook's scalars, scores and maximum */
    assert_int_equal(s.info.launches, 1 + apart + 2 * entries + hook + ((flags & JOB_OUTPUTS) != 0));
  assert_true(s.fused ? s.info.row_blocks == 1 : s.info.row_blocks > 1);
  stub->reset();
  const cl_event gates[2] = {make_user_event(r->cl), make_user_event(r->cl)};
  const uint64_t gate_ids[2] = {stub->event_id(gates[0]), stub->event_id(gates[1])};
  cl_event event = NULL;
  enqueue(&s, queue, 2, gates, &event);
  assert_non_null(event);
  history h;
  history_take(&h);
  const uint64_t launches = history_launches(&h);
  if ((flags & JOB_PACKED) && !on_device && !s.fused) /* fewer rows than there may be can take fewer rounds */
    assert_true(launches > 0 && launches <= s.info.launches - 1);
  else
    assert_int_equal(launches, s.info.launches - (entries && !on_device) - (hook && !hooked));
  assert_ordered(&h);
  const uint64_t last = stub->event_id(event);
  assert_true(last != 0);
  uint32_t launch = 0;
  for (uint64_t i = 0; i < h.count; ++i) {
    const stub_command *const c = &h.commands[i];
    if (c->type == CL_COMMAND_BARRIER)
      fail_msg("a barrier holds up the caller's other work on the queue");
    for (int g = 0; g < 2; ++g)
      if (!history_waits(&h, c->id, gate_ids[g]))
        fail_msg("command %llu (%s) does not wait for the caller's event %d", (unsigned long long)i, c->kernel, g);
    if (c->id != last && !history_waits(&h, last, c->id))
      fail_msg("the returned event does not wait for command %llu (%s)", (unsigned long long)i, c->kernel);
    for (cl_uint a = 0; a < c->num_args; ++a) /* or else assert_ordered saw nothing */
      assert_true(c->args[a].declared_pointer >= 0);
    if (launch_events && c->type == CL_COMMAND_NDRANGE_KERNEL)
      assert_int_equal(stub->event_id(s.job.launch_events[launch++]), c->id);
  }
  assert_int_equal(s.job.num_launch_events, launch_events ? launches : 0);
  history_free(&h);

  assert_int_equal(status_of(event), CL_QUEUED);
  run_user_event(gates[0]);
  assert_int_equal(status_of(event), CL_QUEUED);
  run_user_event(gates[1]);
  assert_int_equal(status_of(event), CL_COMPLETE);
  for (uint32_t i = 0; i < s.job.num_launch_events; ++i) {
    cl_ulong start = 0, finish = 0;
    assert_int_equal(
        clGetEventProfilingInfo(s.job.launch_events[i], CL_PROFILING_COMMAND_START, sizeof start, &start, NULL),
        CL_SUCCESS);
    assert_int_equal(
        clGetEventProfilingInfo(s.job.launch_events[i], CL_PROFILING_COMMAND_END, sizeof finish, &finish, NULL),
        CL_SUCCESS);
    assert_true(finish - start >= 1000); /* a kernel's simulated time: it was one */
  }
  assert_int_equal(clReleaseEvent(event), CL_SUCCESS);
  end(&s);
}

static void test_chains(void **state) {
  const rig *const r = *state;
  for (size_t kind = 0; kind < num_job_kinds; ++kind)
    for (int out_of_order = 0; out_of_order < 2; ++out_of_order)
      for (int options = 0; options < 4; ++options)
        for (uint32_t v = 0; general_variant(v); ++v)
          check_chain(r, job_kinds[kind], general_variant(v), out_of_order ? r->out_of_order : r->in_order, options & 1,
                      (options & 2) != 0);
}

/* Without an event and without gates, launches are still ordered among themselves. */
static void test_without_events(void **state) {
  const rig *const r = *state;
  setting s;
  begin(&s, r, JOB_ALL | JOB_DEVICE, NULL);
  const uint64_t objects = live_objects();
  stub->reset();
  enqueue(&s, r->out_of_order, 0, NULL, NULL);
  history h;
  history_take(&h);
  assert_int_equal(history_launches(&h), s.info.launches);
  assert_ordered(&h);
  history_free(&h);
  assert_int_equal(live_objects(), objects);
  end(&s);
}

/* Entries of a batch larger than one staging launch takes. */
static void test_large_batch(void **state) {
  enum { BATCH = 100 };
  const rig *const r = *state;
  setting s;
  memset(&s, 0, sizeof s);
  s.rig = r;
  static int32_t lengths[BATCH];
  for (int32_t b = 0; b < BATCH; ++b)
    lengths[b] = b % 9;
  assert_int_equal(clattn_context_create(r->cl, r->device[0], trusting(), &s.context, NULL), CLATTN_SUCCESS);
  job_init(&s.job, JOB_PLAIN);
  s.job.problem.batch = BATCH;
  s.job.problem.q_heads = s.job.problem.kv_heads = s.job.problem.q_len = 1;
  s.job.problem.k_len = 8;
  s.job.problem.qk_dim = s.job.problem.v_dim = 4;
  s.job.problem.k_length_mode = CLATTN_LENGTH_PER_BATCH;
  assert_int_equal(clattn_plan_create(s.context, &s.job.problem, NULL, &s.plan, NULL), CLATTN_SUCCESS);
  clattn_plan_info_init(&s.info);
  assert_int_equal(clattn_plan_get_info(s.plan, &s.info), CLATTN_SUCCESS);
  job_buffers(&s.job, r->cl); /* larger than this problem's */
  job_workspace(&s.job, r->cl, s.plan);
  s.job.args.k_lengths = (clattn_ints){.kind = CLATTN_ARRAY_HOST, .count = BATCH, .host = lengths};
  stub->reset();
  cl_event event = NULL;
  enqueue(&s, r->out_of_order, 0, NULL, &event);
  history h;
  history_take(&h);
  assert_int_equal(history_launches(&h), s.info.launches - 1); /* nothing to gather */
  int64_t staged = 0;
  for (uint64_t i = 0; i < h.count && strcmp(h.commands[i].kernel, "stage_entries") == 0; ++i) {
    struct {
      int64_t to;
      int32_t count, reserved, word[24][8];
    } chunk; /* kernels/params.cl.h: clattn_entries */
    assert_int_equal(h.commands[i].args[0].size, sizeof chunk);
    memcpy(&chunk, h.commands[i].args[0].value, sizeof chunk);
    assert_int_equal(chunk.to, 8 * staged);
    assert_true(chunk.count > 0 && chunk.count <= 24);
    for (int32_t n = 0; n < chunk.count; ++n, ++staged)
      assert_int_equal(chunk.word[n][1], lengths[staged]);
  }
  assert_int_equal(staged, BATCH);
  for (uint64_t i = 0; i < h.count; ++i)
    assert_true(h.commands[i].id == stub->event_id(event) ||
                history_waits(&h, stub->event_id(event), h.commands[i].id));
  assert_ordered(&h);
  history_free(&h);
  clReleaseEvent(event);
  end(&s);
}

/* Nothing to write: no launch, and the event still completes after the wait list. */
static void test_empty(void **state) {
  const rig *const r = *state;
  for (int out_of_order = 0; out_of_order < 2; ++out_of_order)
    for (int what = 0; what < 2; ++what) {
      setting s;
      begin(&s, r, JOB_PLAIN, NULL);
      job_ask_launch_events(&s.job);
      const cl_command_queue queue = out_of_order ? r->out_of_order : r->in_order;
      s.job.args.sizes = what ? CLATTN_SIZES_BATCH : CLATTN_SIZES_Q_LEN; /* the size given is 0 */
      stub->reset();
      enqueue(&s, queue, 0, NULL, NULL);
      const cl_event gate = make_user_event(r->cl);
      cl_event event = NULL;
      enqueue(&s, queue, 1, &gate, &event);
      assert_non_null(event);
      assert_int_equal(s.job.num_launch_events, 0);
      assert_int_equal(status_of(event), CL_QUEUED);
      run_user_event(gate);
      assert_int_equal(status_of(event), CL_COMPLETE);
      history h;
      history_take(&h);
      assert_int_equal(history_launches(&h), 0);
      history_free(&h);
      clReleaseEvent(event);
      end(&s);
    }
}

/* Smaller sizes fit into the same workspace and make no more launches than announced; k_len 0 still writes rows. */
static void test_smaller_sizes(void **state) {
  const rig *const r = *state;
  for (unsigned flags = JOB_PLAIN; flags <= JOB_ALL; flags += JOB_OUTPUTS)
    for (int64_t k_len = 0; k_len <= JOB_KEYS; k_len += 7)
      for (int64_t q_len = 1; q_len <= JOB_ROWS; q_len += 13) {
        setting s;
        begin(&s, r, flags & JOB_OUTPUTS, NULL);
        s.job.args.sizes = CLATTN_SIZES_Q_LEN | CLATTN_SIZES_K_LEN;
        s.job.args.q_len = q_len;
        s.job.args.k_len = k_len;
        stub->reset();
        enqueue(&s, r->in_order, 0, NULL, NULL);
        const uint64_t launches = stub->calls("clEnqueueNDRangeKernel");
        assert_true(launches > 0 && launches <= s.info.launches);
        end(&s);
      }
}

/* Everything that an enqueue was given may be released before it runs. */
static void test_released_while_pending(void **state) {
  const rig *const r = *state;
  for (int out_of_order = 0; out_of_order < 2; ++out_of_order) {
    setting s;
    begin(&s, r, JOB_ALL, NULL);
    const cl_event gate = make_user_event(r->cl);
    cl_event event = NULL;
    enqueue(&s, out_of_order ? r->out_of_order : r->in_order, 1, &gate, &event);
    memset(s.job.k_lengths, 0xff, sizeof s.job.k_lengths);
    end(&s);
    assert_true(stub->kept() > 0);
    assert_int_equal(status_of(event), CL_QUEUED);
    run_user_event(gate);
    assert_int_equal(status_of(event), CL_COMPLETE);
    assert_int_equal(stub->kept(), 0);
    clReleaseEvent(event);
  }
}

/* A plan may be enqueued again before the first time has run, each time with its own workspace. */
static void test_enqueued_twice(void **state) {
  const rig *const r = *state;
  setting s;
  begin(&s, r, JOB_ALL, NULL);
  const clattn_mem first = s.job.args.workspace, o = s.job.args.o;
  const cl_event gate = make_user_event(r->cl);
  cl_event events[2] = {NULL, NULL};
  stub->reset();
  enqueue(&s, r->out_of_order, 1, &gate, &events[0]);
  const uint64_t half = stub->commands();
  s.job.args.workspace = (clattn_mem){0};
  s.job.args.o = clattn_buffer(make_buffer(r->cl, JOB_BATCH * JOB_HEADS * JOB_ROWS * JOB_V_DIM * 4), 0);
  enqueue(&s, r->out_of_order, 1, &gate, &events[1]);
  history h;
  history_take(&h);
  assert_int_equal(h.count, 2 * half);
  assert_true(history_waits(&h, stub->event_id(events[0]), stub->event_id(gate)));
  assert_true(history_waits(&h, stub->event_id(events[1]), stub->event_id(gate)));
  for (uint64_t i = half; i < h.count; ++i) /* the two are independent */
    for (uint64_t k = 0; k < half; ++k)
      assert_false(history_waits(&h, h.commands[i].id, h.commands[k].id));
  history_free(&h);
  run_user_event(gate);
  clReleaseEvent(events[0]);
  clReleaseEvent(events[1]);
  clReleaseMemObject(s.job.args.o.buffer);
  s.job.args.o = o;
  s.job.args.workspace = first;
  end(&s);
}

int run_order_tests(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_makes_nothing, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_never_blocks, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_chains, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_without_events, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_large_batch, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_empty, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_smaller_sizes, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_released_while_pending, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_enqueued_twice, rig_setup, rig_teardown),
  };
  return cmocka_run_group_tests_name("order of launches", tests, NULL, NULL);
}
