/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers on queues of both kinds, behind events, and under two threads at once. */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test_nn_linear.h"

enum { ROWS = 130, SIDE = 60, NUMBERS = ROWS * SIDE };

/* Two layers one after the other, from x over y[0] to y[1], with a weight of their own. */
typedef struct chain {
  matrix x, y[2];
  float w[SIDE * SIDE], bias[SIDE];
  clattn_error error;
  clattn_nn_linear_args args[2];
} chain;

static void chain_open(chain *c) {
  clattn_error_init(&c->error);
  matrix_make(&c->x, CLATTN_F32, ROWS, SIDE, 0, 0, POISON);
  matrix_draw(&c->x, -1, 1);
  matrix_give(&c->x, CL_MEM_READ_ONLY);
  for (int i = 0; i < SIDE * SIDE; i++)
    c->w[i] = (float)uniform(-0.2, 0.2);
  for (int i = 0; i < SIDE; i++)
    c->bias[i] = (float)uniform(-1, 1);
  for (int i = 0; i < 2; i++) {
    matrix_make(&c->y[i], CLATTN_F32, ROWS, SIDE, 0, 0, PATTERN);
    matrix_give(&c->y[i], CL_MEM_READ_WRITE);
    clattn_nn_linear_args_init(&c->args[i]);
    c->args[i].error = &c->error;
    c->args[i].rows = ROWS;
    c->args[i].activation = i == 0 ? CLATTN_NN_GELU : CLATTN_NN_NONE;
    c->args[i].x = matrix_view(i == 0 ? &c->x : &c->y[0]);
    c->args[i].y = matrix_view(&c->y[i]);
  }
}

static void chain_close(chain *c) {
  matrix_free(&c->x);
  for (int i = 0; i < 2; i++)
    matrix_free(&c->y[i]);
}

/* What y[0] and y[1] must be, computed in plain order; y is as before. */
static void chain_expect(chain *c, clattn_nn *nn, float want[2][NUMBERS]) {
  clattn_nn_weight *const weight = weight_of(nn, SIDE, SIDE, CLATTN_F32, c->w, c->bias);
  for (int i = 0; i < 2; i++) {
    c->args[i].weight = weight;
    linear(nn, rig.queue, &c->args[i], 0, NULL, NULL);
  }
  clattn_nn_weight_release(weight);
  for (int i = 0; i < 2; i++) {
    matrix_fetch(&c->y[i]);
    memcpy(want[i], matrix_first(&c->y[i]), sizeof want[i]);
    memset(c->y[i].host, PATTERN, c->y[i].bytes);
    assert_int_equal(
        clEnqueueWriteBuffer(rig.queue, c->y[i].buffer, CL_TRUE, 0, c->y[i].bytes, c->y[i].host, 0, NULL, NULL),
        CL_SUCCESS);
  }
  assert_int_equal(clFinish(rig.queue), CL_SUCCESS); /* blocking is not enough for other queues: see nn_layer_job.c */
}

static void chain_compare(chain *c, float want[2][NUMBERS]) {
  for (int i = 0; i < 2; i++) {
    matrix_fetch(&c->y[i]);
    assert_memory_equal(matrix_first(&c->y[i]), want[i], sizeof want[i]);
  }
}

/* Work on another queue, so that what does not wait has the time to run. */
static void meanwhile(clattn_nn *nn) {
  chain c;
  float want[2][NUMBERS];
  chain_open(&c);
  for (int i = 0; i < 5; i++)
    chain_expect(&c, nn, want);
  chain_close(&c);
}

static void check_pending(const cl_event *events, int count) {
  for (int i = 0; i < count; i++) {
    cl_int progress = CL_COMPLETE;
    assert_int_equal(clGetEventInfo(events[i], CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof progress, &progress, NULL),
                     CL_SUCCESS);
    assert_int_not_equal(progress, CL_COMPLETE);
  }
}

void check_order(clattn_nn *nn, cl_command_queue on) {
  enum { EMPTY, FILLED, FIRST, SECOND, EVENTS };
  chain c;
  float want[2][NUMBERS], host[SIDE * SIDE], host_bias[SIDE];
  cl_int code = CL_SUCCESS;
  cl_event event[EVENTS];
  clattn_nn_weight *weight = NULL;
  clattn_nn_fill_args fill;
  chain_open(&c);
  chain_expect(&c, nn, want);
  const cl_event gate = clCreateUserEvent(rig.cl, &code);
  assert_int_equal(code, CL_SUCCESS);
  assert_int_equal(clattn_nn_weight_create(nn, SIDE, SIDE, CLATTN_F32, 1, &weight, NULL), CLATTN_SUCCESS);
  c.args[0].weight = c.args[1].weight = weight;
  /* With no rows, for which no memory is needed, the event still waits; first, so that it has nothing but the gate to
   * wait for. */
  clattn_nn_linear_args none = c.args[0];
  none.rows = 0;
  memset(&none.x, 0, sizeof none.x);
  memset(&none.y, 0, sizeof none.y);
  linear(nn, on, &none, 1, &gate, &event[EMPTY]);
  clattn_nn_fill_args_init(&fill);
  memcpy(host, c.w, sizeof host);
  memcpy(host_bias, c.bias, sizeof host_bias);
  fill.weight = weight;
  fill.host = host;
  fill.host_bias = host_bias;
  assert_int_equal(clattn_nn_weight_fill(on, &fill, 1, &gate, &event[FILLED]), CLATTN_SUCCESS);
  memset(host, POISON, sizeof host); /* they were copied */
  memset(host_bias, POISON, sizeof host_bias);
  linear(nn, on, &c.args[0], 1, &event[FILLED], &event[FIRST]);
  linear(nn, on, &c.args[1], 1, &event[FIRST], &event[SECOND]);
  assert_int_equal(clFlush(on), CL_SUCCESS);
  meanwhile(nn);
  check_pending(event, EVENTS);
  assert_int_equal(clSetUserEventStatus(gate, CL_COMPLETE), CL_SUCCESS);
  assert_int_equal(clWaitForEvents(EVENTS, event), CL_SUCCESS);
  chain_compare(&c, want);
  clattn_nn_weight_release(weight);
  for (int i = 0; i < EVENTS; i++)
    assert_int_equal(clReleaseEvent(event[i]), CL_SUCCESS);
  assert_int_equal(clReleaseEvent(gate), CL_SUCCESS);
  chain_close(&c);
}

void events_order_everything(void **state) {
  (void)state;
  cl_int code = CL_SUCCESS;
  const cl_command_queue in_order = clCreateCommandQueue(rig.cl, rig.device, 0, &code);
  assert_int_equal(code, CL_SUCCESS);
  for (int set = 0; set < KERNEL_SETS; set++) {
    check_order(rig.nn[set], in_order);
    if (rig.out_of_order != NULL)
      check_order(rig.nn[set], rig.out_of_order);
  }
  assert_int_equal(clReleaseCommandQueue(in_order), CL_SUCCESS);
}

/* A weight may be released while work that uses it still waits. */
void work_outlives_its_weight(void **state) {
  (void)state;
  for (int set = 0; set < KERNEL_SETS; set++) {
    chain c;
    float want[2][NUMBERS];
    cl_int code = CL_SUCCESS;
    cl_event first = NULL, second = NULL;
    chain_open(&c);
    chain_expect(&c, rig.nn[set], want);
    const cl_event gate = clCreateUserEvent(rig.cl, &code);
    assert_int_equal(code, CL_SUCCESS);
    clattn_nn_weight *const weight = weight_of(rig.nn[set], SIDE, SIDE, CLATTN_F32, c.w, c.bias);
    c.args[0].weight = c.args[1].weight = weight;
    linear(rig.nn[set], rig.queue, &c.args[0], 1, &gate, &first);
    linear(rig.nn[set], rig.queue, &c.args[1], 1, &first, &second);
    clattn_nn_weight_release(weight);
    assert_int_equal(clSetUserEventStatus(gate, CL_COMPLETE), CL_SUCCESS);
    assert_int_equal(clWaitForEvents(1, &second), CL_SUCCESS);
    chain_compare(&c, want);
    assert_int_equal(clReleaseEvent(first) | clReleaseEvent(second) | clReleaseEvent(gate), CL_SUCCESS);
    chain_close(&c);
  }
}

/* ---- two threads ------------------------------------------------------------------------------------------------- */

enum { THREADS = 2, ROUNDS = 10 };

/* Assertions belong to the main thread; workers take notes. */
typedef struct worker {
  pthread_t thread;
  clattn_nn *nn;
  const clattn_nn_weight *weight;
  cl_command_queue queue;
  chain chain;
  clattn_status status;
} worker;

static void *work(void *argument) {
  worker *const w = argument;
  for (int round = 0; round < ROUNDS; round++)
    for (int i = 0; i < 2 && w->status == CLATTN_SUCCESS; i++) {
      w->chain.args[i].weight = w->weight;
      w->status = clattn_nn_linear(w->nn, w->queue, &w->chain.args[i], 0, NULL, NULL);
    }
  if (w->status == CLATTN_SUCCESS)
    w->status = clFinish(w->queue);
  return NULL;
}

/* One library and one weight; the kernels are built by whoever comes first. */
void two_threads(void **state) {
  (void)state;
  for (int set = 0; set < KERNEL_SETS; set++) {
    static worker workers[THREADS];
    static float want[THREADS][2][NUMBERS];
    clattn_nn *fresh = NULL;
    clattn_nn_options options;
    cl_int code = CL_SUCCESS;
    clattn_nn_options_init(&options);
    options.kernels = set == LANES ? CLATTN_NN_KERNELS_LANES : CLATTN_NN_KERNELS_TILES;
    assert_int_equal(clattn_nn_create(rig.context, &options, &fresh, NULL), CLATTN_SUCCESS);
    memset(workers, 0, sizeof workers);
    for (int i = 0; i < THREADS; i++) {
      chain_open(&workers[i].chain);
      memcpy(workers[i].chain.w, workers[0].chain.w, sizeof workers[i].chain.w);
      memcpy(workers[i].chain.bias, workers[0].chain.bias, sizeof workers[i].chain.bias);
      chain_expect(&workers[i].chain, rig.nn[set], want[i]);
      workers[i].queue = clCreateCommandQueue(rig.cl, rig.device, 0, &code);
      assert_int_equal(code, CL_SUCCESS);
    }
    clattn_nn_weight *const weight =
        weight_of(fresh, SIDE, SIDE, CLATTN_F32, workers[0].chain.w, workers[0].chain.bias);
    assert_int_equal(clFinish(rig.queue), CL_SUCCESS);
    for (int i = 0; i < THREADS; i++) {
      workers[i].nn = fresh;
      workers[i].weight = weight;
      assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
      assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
    for (int i = 0; i < THREADS; i++) {
      if (workers[i].status != CLATTN_SUCCESS)
        fail_msg("%s: %s", clattn_status_name(workers[i].status), workers[i].chain.error.message);
      chain_compare(&workers[i].chain, want[i]);
      chain_close(&workers[i].chain);
      assert_int_equal(clReleaseCommandQueue(workers[i].queue), CL_SUCCESS);
    }
    clattn_nn_weight_release(weight);
    clattn_nn_release(fresh);
  }
}
