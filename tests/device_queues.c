/* SPDX-License-Identifier: Apache-2.0 */
/* Queues of both kinds, events, and two jobs at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device_judge.h"

/* Enqueues a job behind the events given. */
static void start(const device_job *job, const job_memory *memory, const clattn_plan *plan, cl_command_queue queue,
                  const clattn_mem *q, cl_uint count, const cl_event *wait, cl_event *event) {
  clattn_args args;
  clattn_error error;
  clattn_error_init(&error);
  device_args(job, memory, ALL_OUTPUTS, &args);
  args.error = &error;
  if (q != NULL)
    args.q = *q;
  const clattn_status status = clattn_enqueue(plan, queue, &args, count, wait, event);
  if (status != CLATTN_SUCCESS)
    print_error("%s: %s\n", clattn_status_name(status), error.message);
  assert_int_equal(status, CLATTN_SUCCESS);
  assert_non_null(*event);
}

static void fill_outputs(job_memory *memory) {
  image *list[IMAGES_MOST];
  assert_true(images_fill(rig.queue, list, job_outputs(memory, list)));
}

static void sync_outputs(job_memory *memory) {
  image *list[IMAGES_MOST];
  assert_true(images_sync(rig.queue, list, job_outputs(memory, list)));
}

static const char chain_line[] = "b=2 hq=2 sq=60 sk=70 d=8 dv=8 klen=per_batch causal=1 off=bottom_right";

/* The second job's queries are the first one's output; nothing may start before the gate opens.  With a workspace for
 * few tiles both are long chains of launches. */
void events_order_an_out_of_order_queue(void **state) {
  (void)state;
  size_t passed = 0;
  if (rig.out_of_order == NULL)
    skip(); /* the device has no such queue */
  for (uint32_t v = 0; v < variant_count; ++v) {
    if (!variants[v].usable)
      continue;
    run_options options = {.variant = variants[v].name, .outputs = ALL_OUTPUTS, .stage = CLATTN_STAGE_RAW};
    device_job job;
    job_memory first, second;
    snapshot want[2];
    clattn_plan *plan = NULL;
    cl_event event[2];
    if (!variants[v].usable)
      continue;
    parse_job(chain_line, 0, &job);
    options.workspace_cap = smallest_cap(&job, &options);
    const clattn_status status = device_plan(&rig, &job, &options, &plan, NULL);
    assert_int_equal(status, CLATTN_SUCCESS);
    assert_true(job_memory_open(&rig, &job, &first) && job_memory_open(&rig, &job, &second));
    const clattn_mem between = clattn_buffer(first.slot[CLATTNI_O].buffer, first.slot[CLATTNI_O].offset);
    for (int round = 0; round < 6; ++round) {
      const int in_order = round == 0;
      const cl_command_queue queue = in_order ? rig.queue : rig.out_of_order;
      cl_int code;
      cl_event gate = clCreateUserEvent(rig.cl, &code);
      assert_int_equal(code, CL_SUCCESS);
      fill_outputs(&first);
      fill_outputs(&second);
      start(&job, &first, plan, queue, NULL, 1, &gate, &event[0]);
      start(&job, &second, plan, queue, &between, 1, &event[0], &event[1]);
      assert_int_equal(clFlush(queue), CL_SUCCESS);
      cl_int progress;
      assert_int_equal(clGetEventInfo(event[1], CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof progress, &progress, NULL),
                       CL_SUCCESS);
      assert_int_not_equal(progress, CL_COMPLETE);
      assert_int_equal(clSetUserEventStatus(gate, CL_COMPLETE), CL_SUCCESS);
      assert_int_equal(clWaitForEvents(1, &event[1]), CL_SUCCESS);
      sync_outputs(&first);
      sync_outputs(&second);
      if (in_order) {
        take(&first, &want[0]);
        take(&second, &want[1]);
      } else {
        assert_true(same_bits(&first, &want[0]) && same_bits(&second, &want[1]));
        ++passed;
      }
      assert_int_equal(clReleaseEvent(gate) | clReleaseEvent(event[0]) | clReleaseEvent(event[1]), CL_SUCCESS);
    }
    drop(&want[0]);
    drop(&want[1]);
    job_memory_close(&first);
    job_memory_close(&second);
    clattn_plan_release(plan);
  }
  assert_true(passed > 0);
}

/* Two jobs at once, each on a queue of its own: two plans, then one plan for both. */
void two_queues_at_once(void **state) {
  (void)state;
  static const char *const lines[2] = {"b=2 hq=4 sq=60 sk=70 d=8 causal=1 qlen=per_batch", chain_line};
  size_t passed = 0;
  cl_int code;
  const cl_command_queue other = clCreateCommandQueue(rig.cl, rig.device, 0, &code);
  assert_int_equal(code, CL_SUCCESS);
  for (int shared = 0; shared < 2; ++shared)
    for (uint32_t v = 0; v < variant_count; ++v) {
      device_job job[2];
      job_memory memory[2];
      snapshot want[2];
      clattn_plan *plan[2] = {NULL, NULL};
      int claimed = 1;
      for (int n = 0; n < 2 && claimed; ++n) {
        const run_options options = {.variant = variants[v].name, .outputs = ALL_OUTPUTS, .stage = CLATTN_STAGE_MASKED};
        parse_job(lines[shared ? 1 : n], 0, &job[n]);
        job[n].seed += (uint64_t)n;
        assert_true(job_memory_open(&rig, &job[n], &memory[n]));
        assert_true(device_run(&rig, &job[n], &memory[n], &options, &claimed));
        if (!claimed) {
          job_memory_close(&memory[n]);
          break;
        }
        take(&memory[n], &want[n]);
        if (n == 0 || !shared)
          assert_int_equal(device_plan(&rig, &job[n], &options, &plan[n], NULL), CLATTN_SUCCESS);
        fill_outputs(&memory[n]);
      }
      if (!claimed)
        continue;
      for (int round = 0; round < 3; ++round) {
        cl_event event[2];
        start(&job[0], &memory[0], plan[0], rig.queue, NULL, 0, NULL, &event[0]);
        start(&job[1], &memory[1], plan[shared ? 0 : 1], other, NULL, 0, NULL, &event[1]);
        assert_int_equal(clFlush(rig.queue) | clFlush(other), CL_SUCCESS);
        assert_int_equal(clWaitForEvents(2, event), CL_SUCCESS);
        assert_int_equal(clReleaseEvent(event[0]) | clReleaseEvent(event[1]), CL_SUCCESS);
        for (int n = 0; n < 2; ++n) {
          sync_outputs(&memory[n]);
          assert_true(same_bits(&memory[n], &want[n]));
          fill_outputs(&memory[n]);
          ++passed;
        }
      }
      for (int n = 0; n < 2; ++n) {
        drop(&want[n]);
        job_memory_close(&memory[n]);
        clattn_plan_release(plan[n]);
      }
    }
  assert_int_equal(clReleaseCommandQueue(other), CL_SUCCESS);
  assert_true(passed > 0);
}

/* One event per launch, all complete when the last one is. */
void launch_events(void **state) {
  (void)state;
  size_t passed = 0;
  for (uint32_t v = 0; v < variant_count; ++v)
    for (int out_of_order = 0; variants[v].usable && out_of_order < (rig.out_of_order != NULL ? 2 : 1);
         ++out_of_order) {
      run_options options = {.variant = variants[v].name, .outputs = ALL_OUTPUTS, .stage = CLATTN_STAGE_RAW};
      device_job job;
      job_memory memory;
      clattn_plan *plan = NULL;
      clattn_plan_info info;
      clattn_args args;
      cl_event events[64], event;
      uint32_t count = 0;
      if (!variants[v].usable)
        continue;
      parse_job(chain_line, 0, &job);
      options.workspace_cap = smallest_cap(&job, &options);
      clattn_plan_info_init(&info);
      const clattn_status status = device_plan(&rig, &job, &options, &plan, NULL);
      assert_int_equal(status, CLATTN_SUCCESS);
      assert_int_equal(clattn_plan_get_info(plan, &info), CLATTN_SUCCESS);
      /* fused: lengths of the host, lengths of the device, one launch, the maximum */
      const uint32_t apart = clattni_variant_at(v)->kernels[CLATTNI_FLASH_SCORES].name != NULL; /* scores */
      assert_true(variants[v].fused ? info.launches == 4 + apart : info.launches > 5 && info.launches <= 64);
      assert_true(job_memory_open(&rig, &job, &memory));
      device_args(&job, &memory, ALL_OUTPUTS, &args);
      args.launch_events = events;
      args.launch_events_capacity = info.launches;
      args.num_launch_events = &count;
      assert_int_equal(clattn_enqueue(plan, out_of_order ? rig.out_of_order : rig.queue, &args, 0, NULL, &event),
                       CLATTN_SUCCESS);
      assert_int_equal(count, info.launches - 1); /* nothing is on the device */
      assert_int_equal(clWaitForEvents(1, &event), CL_SUCCESS);
      for (uint32_t n = 0; n < count; ++n) {
        cl_int progress;
        assert_int_equal(clGetEventInfo(events[n], CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof progress, &progress, NULL),
                         CL_SUCCESS);
        assert_int_equal(progress, CL_COMPLETE);
        assert_int_equal(clReleaseEvent(events[n]), CL_SUCCESS);
        ++passed;
      }
      assert_int_equal(clReleaseEvent(event), CL_SUCCESS);
      job_memory_close(&memory);
      clattn_plan_release(plan);
    }
  assert_true(passed > 0);
}
