/* SPDX-License-Identifier: Apache-2.0 */
/* CLBlast as a provider of linear layers, alone and measured against clattn's kernels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test_nn_linear.h"

static clattn_nn *library(clattn_nn_provider provider, clattn_nn_kernels kernels) {
  clattn_nn *nn = NULL;
  clattn_nn_options options;
  clattn_error error;
  clattn_error_init(&error);
  clattn_nn_options_init(&options);
  options.provider = provider;
  options.kernels = kernels;
  if (clattn_nn_create(rig.context, &options, &nn, &error) != CLATTN_SUCCESS)
    fail_msg("%s", error.message);
  return nn;
}

static void check(clattn_nn *nn, const layer *l) {
  numbers n = {NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL};
  call c;
  draw_weight(l, &n);
  call_make(&c, l);
  c.m[Y].byte = l->y_is ? PATTERN : POISON; /* what y holds before must not matter, NaN neither */
  expect(l, &c, &n);
  check_with("clblast", nn, l, &c, &n);
  call_free(&c);
  numbers_free(&n);
}

/* Who computes `rows` rows of a layer in the types of x, weight and y. */
static const char *provider_of(clattn_nn *nn, int64_t rows, int64_t in, int64_t out, clattn_dtype x, clattn_dtype w,
                               clattn_dtype y) {
  clattn_nn_weight *weight = NULL;
  clattn_nn_linear_args args;
  clattn_nn_linear_args_init(&args);
  assert_int_equal(clattn_nn_weight_create(nn, in, out, w, 0, &weight, NULL), CLATTN_SUCCESS);
  args.weight = weight;
  args.rows = rows;
  args.x.dtype = x;
  args.y.dtype = y;
  const char *const name = clattn_nn_linear_provider(nn, &args);
  clattn_nn_weight_release(weight);
  return name;
}

/* With a weight in tiles and a plain copy, and with one that is plain itself. */
static void layers(void **state) {
  (void)state;
  for (clattn_nn_kernels kernels = CLATTN_NN_KERNELS_LANES; kernels <= CLATTN_NN_KERNELS_TILES; kernels++) {
    clattn_nn *const nn = library(CLATTN_NN_PROVIDER_CLBLAST, kernels);
    assert_string_equal(provider_of(nn, 10, 20, 30, CLATTN_F32, CLATTN_F32, CLATTN_F32), "clblast");
    for (int i = 0; i < 40; i++) {
      layer l;
      draw_layer(&l, 0, 400000);
      check(nn, &l);
    }
    if (rig.out_of_order != NULL)
      check_order(nn, rig.out_of_order);
    const cl_command_queue in_order = clCreateCommandQueue(rig.cl, rig.device, 0, NULL);
    assert_non_null(in_order);
    check_order(nn, in_order);
    assert_int_equal(clReleaseCommandQueue(in_order), CL_SUCCESS);
    clattn_nn_release(nn);
  }
}

static void special_numbers(void **state) {
  (void)state;
  clattn_nn *const nn = library(CLATTN_NN_PROVIDER_CLBLAST, CLATTN_NN_KERNELS_DEFAULT);
  const layer l = {.types = 0, .rows = 70, .in = 5, .out = 50, .with_bias = 1, .parts = 1, .more = {3, 1, 0, 0}};
  numbers n = {NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL};
  call c;
  draw_weight(&l, &n);
  n.given[48 * l.in + 1] = n.w[48 * l.in + 1] = (double)NAN;
  n.given[7 * l.in + 3] = n.w[7 * l.in + 3] = (double)INFINITY;
  call_make(&c, &l);
  matrix_set(&c.m[X], 3, 2, (double)NAN);
  matrix_set(&c.m[X], 66, 0, (double)-INFINITY);
  expect(&l, &c, &n);
  check_with("clblast", nn, &l, &c, &n);
  call_free(&c);
  numbers_free(&n);
  clattn_nn_release(nn);
}

/* What it can't compute clattn's kernels do, and say so. */
static void others(void **state) {
  (void)state;
  clattn_nn *const nn = library(CLATTN_NN_PROVIDER_CLBLAST, CLATTN_NN_KERNELS_LANES);
  assert_string_equal(provider_of(nn, 9, 9, 9, CLATTN_BF16, CLATTN_F32, CLATTN_F32), "clattn lanes");
  assert_string_equal(provider_of(nn, 9, 9, 9, CLATTN_F32, CLATTN_F16, CLATTN_F32), "clattn lanes");
  assert_string_equal(provider_of(nn, 9, 9, 9, CLATTN_F32, CLATTN_F32, CLATTN_BF16), "clattn lanes");
  assert_string_equal(provider_of(nn, 1 << 29, 1, 1, CLATTN_F32, CLATTN_F32, CLATTN_F32), "clattn lanes");
  assert_string_equal(provider_of(nn, INT64_MAX, 1, 1, CLATTN_F32, CLATTN_F32, CLATTN_F32), "clattn lanes");
  assert_string_equal(provider_of(nn, -1, 1, 1, CLATTN_F32, CLATTN_F32, CLATTN_F32), "clattn lanes");
  for (int i = 0; i < 12; i++) {
    layer l;
    draw_layer(&l, i % 2 ? 3 : 5, 100000); /* with an f32 weight, too */
    check(nn, &l);
  }
  clattn_nn_release(nn);
}

static void measured(void **state) {
  (void)state;
  clattn_nn *const nn = library(CLATTN_NN_PROVIDER_MEASURE, CLATTN_NN_KERNELS_LANES);
  static const layer first = {
      .types = 0, .rows = 33, .in = 40, .out = 50, .with_bias = 1, .with_residual = 1, .y_is = 'r', .parts = 2};
  layer l = first;
  const char *name = provider_of(nn, 33, 40, 50, CLATTN_F32, CLATTN_F32, CLATTN_F32);
  assert_string_equal(name, "clattn lanes"); /* not known yet */
  l.rows = 0;
  check(nn, &l); /* nothing to measure with */
  l.rows = 33;
  check(nn, &l);
  name = provider_of(nn, 33, 40, 50, CLATTN_F32, CLATTN_F32, CLATTN_F32);
  assert_true(strcmp(name, "clattn lanes") == 0 || strcmp(name, "clblast") == 0);
  /* of one class */
  assert_ptr_equal(name, provider_of(nn, 64, 40, 50, CLATTN_F32, CLATTN_F32, CLATTN_F32));
  for (int i = 0; i < 6; i++) {
    draw_layer(&l, 0, 100000);
    check(nn, &l);
    check(nn, &l);
  }
  /* behind a closed gate, too: only what it measures with is waited for */
  check_order(nn, rig.out_of_order != NULL ? rig.out_of_order : rig.queue);
  clattn_nn_release(nn);
}

int clblast_tests(CMFixtureFunction start, CMFixtureFunction finish) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(layers),
      cmocka_unit_test(special_numbers),
      cmocka_unit_test(others),
      cmocka_unit_test(measured),
  };
  return cmocka_run_group_tests(tests, start, finish);
}
