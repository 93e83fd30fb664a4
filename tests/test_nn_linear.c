/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers of libclattn_nn on the default device, with the kernels for CPUs and those for GPUs, against a product
 * in double precision.  test_nn_linear [clblast] [seed] */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn_ref.h"
#include "test_nn_linear.h"

static const char *const set_names[KERNEL_SETS] = {"lanes", "tiles"};

/* ---- layers ------------------------------------------------------------------------------------------------------ */

enum { RANDOM_LAYERS = 360, MOST_PRODUCTS = 3000000 };

static void check_layer(const layer *l) {
  numbers n = {NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL};
  call c;
  draw_weight(l, &n);
  call_make(&c, l);
  expect(l, &c, &n);
  for (int set = 0; set < KERNEL_SETS; set++)
    check_with(set_names[set], rig.nn[set], l, &c, &n);
  call_free(&c);
  numbers_free(&n);
}

static void random_layers(void **state) {
  (void)state;
  for (int i = 0; i < RANDOM_LAYERS; i++) {
    layer l;
    draw_layer(&l, -1, MOST_PRODUCTS);
    check_layer(&l);
  }
}

/* Many tiles in each direction. */
static void large_layers(void **state) {
  (void)state;
  const layer tall = {.types = 0,
                      .rows = 4096,
                      .in = 64,
                      .out = 49,
                      .activation = CLATTN_NN_GELU,
                      .with_bias = 1,
                      .with_residual = 1,
                      .y_is = 'r',
                      .parts = 1};
  const layer wide = {.types = 4,
                      .rows = 131,
                      .in = 1536,
                      .out = 1152,
                      .with_bias = 1,
                      .from_f32 = 1,
                      .parts = 3,
                      .more = {8, 0, 0, 0}};
  check_layer(&tall);
  check_layer(&wide);
}

/* ---- special numbers --------------------------------------------------------------------------------------------- */

static void all_positive(double *all, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    all[i] = fabs(all[i]);
}

/* NaN and infinity reach what they are multiplied with, and nothing else.  Sums of -inf only where the formula has a
 * value there; the limits of the others are looked at below. */
static void special_numbers(void **state) {
  (void)state;
  for (int activation = CLATTN_NN_NONE; activation <= CLATTN_NN_SILU; activation++) {
    const double infinity = activation <= CLATTN_NN_RELU ? (double)-INFINITY : (double)INFINITY;
    const layer l = {.types = 0,
                     .rows = 70,
                     .in = 5,
                     .out = 50,
                     .activation = activation,
                     .with_bias = 1,
                     .with_factor = 1,
                     .with_residual = 1,
                     .parts = 2,
                     .more = {3, 0, 1, 2},
                     .before = {1, 2, 3, 4}};
    numbers n = {NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL};
    call c;
    draw_weight(&l, &n);
    if (infinity > 0) {
      all_positive(n.given, l.in * l.out);
      all_positive(n.w, l.in * l.out);
    }
    n.given[48 * l.in + 1] = n.w[48 * l.in + 1] = (double)NAN;
    n.given[7 * l.in + 3] = n.w[7 * l.in + 3] = (double)INFINITY;
    n.b[30] = (double)NAN;
    n.b[31] = infinity;
    call_make(&c, &l);
    matrix_draw(&c.m[X], 0.1, 2);
    matrix_set(&c.m[X], 3, 2, (double)NAN);
    matrix_set(&c.m[X], 10, 4, (double)INFINITY);
    matrix_set(&c.m[X], 66, 0, infinity);
    matrix_set(&c.m[FACTOR], 20, 13, (double)NAN);
    matrix_set(&c.m[FACTOR], 21, 13, (double)INFINITY);
    matrix_set(&c.m[RESIDUAL], 22, 49, (double)NAN);
    matrix_set(&c.m[RESIDUAL], 69, 0, (double)-INFINITY);
    expect(&l, &c, &n);
    for (int set = 0; set < KERNEL_SETS; set++)
      check_with(set_names[set], rig.nn[set], &l, &c, &n);
    call_free(&c);
    numbers_free(&n);
  }
}

/* y of one row x = 1 with the weight (out, 1): activation(w). */
static float *activate(clattn_nn *nn, clattn_dtype dtype, clattn_nn_activation activation, int64_t out,
                       const float *w) {
  matrix x, y;
  clattn_nn_linear_args args;
  clattn_error error;
  clattn_nn_weight *const weight = weight_of(nn, 1, out, dtype, w, NULL);
  float *const result = malloc((size_t)out * sizeof *result);
  assert_non_null(result);
  matrix_make(&x, CLATTN_F32, 1, 1, 0, 0, POISON);
  matrix_make(&y, CLATTN_F32, 1, out, 0, 0, PATTERN);
  matrix_set(&x, 0, 0, 1);
  matrix_give(&x, CL_MEM_READ_ONLY);
  matrix_give(&y, CL_MEM_WRITE_ONLY);
  clattn_error_init(&error);
  clattn_nn_linear_args_init(&args);
  args.error = &error;
  args.weight = weight;
  args.rows = 1;
  args.activation = activation;
  args.x = matrix_view(&x);
  args.y = matrix_view(&y);
  linear(nn, rig.queue, &args, 0, NULL, NULL);
  clattn_nn_weight_release(weight);
  matrix_fetch(&y);
  memcpy(result, matrix_first(&y), (size_t)out * sizeof *result);
  matrix_free(&x);
  matrix_free(&y);
  return result;
}

/* What activations may be off: so much times max(1, |x|).  At -inf all but the first have their limit, 0. */
static const struct {
  const char *name;
  clattn_nn_activation activation;
  double bound;
} accuracy[] = {
    {"none", CLATTN_NN_NONE, 0},      {"ReLU", CLATTN_NN_RELU, 0},
    {"GELU", CLATTN_NN_GELU, 1.5e-7}, {"GELU (tanh)", CLATTN_NN_GELU_TANH, 2.5e-7},
    {"SiLU", CLATTN_NN_SILU, 4e-7},
};

enum { DENSE = 150000, SIZES = 60000, EXTREMES = 16, POINTS = DENSE + SIZES + EXTREMES };

/* A dense sweep of where they bend, all sizes from the smallest on, and extremes. */
static void sweep(float *points) {
  static const float extremes[EXTREMES] = {
      0.0f,     -0.0f,     1e-45f, -1e-45f, FLT_MIN, -FLT_MIN, FLT_MAX, -FLT_MAX,
      INFINITY, -INFINITY, NAN,    1e19f,   -1e19f,  1e30f,    -1e30f,  -87.5f,
  };
  for (int i = 0; i < DENSE; i++)
    points[i] = (float)(-15 + 30.0 * i / (DENSE - 1));
  for (int i = 0; i < SIZES; i++)
    points[DENSE + i] = (float)((i % 2 ? -1 : 1) * pow(10, -40 + 78.0 * i / SIZES));
  memcpy(points + DENSE + SIZES, extremes, sizeof extremes);
}

static void activations(void **state) {
  (void)state;
  float *const points = malloc(POINTS * sizeof *points);
  assert_non_null(points);
  sweep(points);
  for (int set = 0; set < KERNEL_SETS; set++)
    for (size_t a = 0; a < sizeof accuracy / sizeof accuracy[0]; a++) {
      float *const got = activate(rig.nn[set], CLATTN_F32, accuracy[a].activation, POINTS, points);
      for (int i = 0; i < POINTS; i++) {
        const int limit = points[i] == -INFINITY && accuracy[a].activation != CLATTN_NN_NONE;
        const double x = (double)points[i], want = limit ? 0 : nn_ref_activate(accuracy[a].activation, x);
        if (!nn_ref_near((double)got[i], want, accuracy[a].bound * (limit ? 1 : fmax(1, fabs(x)))))
          fail_msg("%s, %s: of %.9g it is %.9g, not %.9g", set_names[set], accuracy[a].name, x, (double)got[i], want);
      }
      free(got);
    }
  free(points);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* f32 numbers become f16 and bf16 ones: every number of the type, what lies half way to the next, and its neighbours. */
static void weights_are_rounded(void **state) {
  (void)state;
  enum { NUMBERS = 65536 };
  static const clattn_dtype kinds[] = {CLATTN_F16, CLATTN_BF16};
  float *const given = malloc(4 * NUMBERS * sizeof *given);
  assert_non_null(given);
  for (int kind = 0; kind < 2; kind++) {
    for (int i = 0; i < NUMBERS; i++) {
      const uint16_t bits[2] = {(uint16_t)i, (uint16_t)(i ^ 1)};
      const double middle = (nn_ref_load(kinds[kind], bits, 0) + nn_ref_load(kinds[kind], bits, 1)) / 2;
      /* i and i ^ 1 give a half way once, i and i ^ 3 (1 and 2, 5 and 6) the others */
      const uint16_t far = (uint16_t)(i ^ 3);
      const double other = (nn_ref_load(kinds[kind], bits, 0) + nn_ref_load(kinds[kind], &far, 0)) / 2;
      given[4 * i] = (float)(i % 4 == 1 || i % 4 == 2 ? other : middle);
      given[4 * i + 1] = nextafterf(given[4 * i], INFINITY);
      given[4 * i + 2] = nextafterf(given[4 * i], -INFINITY);
      given[4 * i + 3] = (float)nn_ref_load(kinds[kind], bits, 0);
    }
    for (int set = 0; set < KERNEL_SETS; set++) {
      float *const got = activate(rig.nn[set], kinds[kind], CLATTN_NN_NONE, 4 * NUMBERS, given);
      for (int i = 0; i < 4 * NUMBERS; i++)
        if (!nn_ref_near((double)got[i], nn_ref_round(kinds[kind], (double)given[i]), 0))
          fail_msg("%s, type %d: %.9g became %.9g, not %.9g", set_names[set], (int)kinds[kind], (double)given[i],
                   (double)got[i], nn_ref_round(kinds[kind], (double)given[i]));
      free(got);
    }
  }
  free(given);
}

/* Nothing is left of what a weight held before, and its last tile's padding holds nothing that shows. */
static void refilled(void **state) {
  (void)state;
  static const int64_t outs[] = {1, 23, 24, 25, 47, 48, 49, 65};
  for (size_t k = 0; k < sizeof outs / sizeof outs[0]; k++)
    for (int set = 0; set < KERNEL_SETS; set++) {
      const layer all = {.types = 0,
                         .rows = 6,
                         .in = 19,
                         .out = outs[k],
                         .with_bias = 1,
                         .on_device = set == 0,
                         .from_f32 = 1,
                         .parts = 1};
      layer parts = all;
      numbers n = {NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL}, nan = n;
      call c;
      parts.parts = outs[k] > 2 ? 3 : 1;
      draw_weight(&all, &nan);
      for (int64_t i = 0; i < all.in * all.out; i++)
        nan.given[i] = (double)NAN;
      for (int64_t i = 0; i < all.out; i++)
        nan.b[i] = (double)NAN;
      draw_weight(&all, &n);
      call_make(&c, &parts);
      expect(&parts, &c, &n);
      clattn_nn_weight *const weight = fill_weight(rig.nn[set], &all, &nan);
      for (int part = 0; part < parts.parts; part++) {
        const int64_t first = all.out * part / parts.parts;
        fill_part(weight, &parts, &n, first, all.out * (part + 1) / parts.parts - first);
      }
      run(rig.nn[set], weight, &parts, &c);
      compare(set_names[set], &parts, &c, &n);
      clattn_nn_weight_release(weight);
      call_free(&c);
      numbers_free(&n);
      numbers_free(&nan);
    }
}

/* W^Q, W^K and W^V in one weight give q, k and v side by side, each as if it were alone. */
static void side_by_side(void **state) {
  (void)state;
  enum { IN = 40, EACH = 30, ROWS = 9 };
  float w[3][EACH * IN], b[3][EACH], one[ROWS * EACH];
  matrix x, together, alone;
  clattn_nn_linear_args args;
  clattn_nn_fill_args part;
  clattn_error error;
  for (int p = 0; p < 3; p++) {
    for (int i = 0; i < EACH * IN; i++)
      w[p][i] = (float)uniform(-1, 1);
    for (int i = 0; i < EACH; i++)
      b[p][i] = (float)uniform(-1, 1);
  }
  clattn_error_init(&error);
  clattn_nn_linear_args_init(&args);
  clattn_nn_fill_args_init(&part);
  args.error = part.error = &error;
  args.rows = ROWS;
  for (int set = 0; set < KERNEL_SETS; set++) {
    clattn_nn_weight *joint = NULL;
    matrix_make(&x, CLATTN_F32, ROWS, IN, 0, 0, POISON);
    matrix_make(&together, CLATTN_F32, ROWS, 3 * EACH, 0, 0, PATTERN);
    matrix_draw(&x, -1, 1);
    matrix_give(&x, CL_MEM_READ_ONLY);
    matrix_give(&together, CL_MEM_WRITE_ONLY);
    assert_int_equal(clattn_nn_weight_create(rig.nn[set], IN, 3 * EACH, CLATTN_F32, 7, &joint, NULL), CLATTN_SUCCESS);
    for (int p = 0; p < 3; p++) {
      part.weight = joint;
      part.first = p * EACH;
      part.count = EACH;
      part.host = w[p];
      part.host_bias = b[p];
      must_fill(&part);
    }
    args.weight = joint;
    args.x = matrix_view(&x);
    args.y = matrix_view(&together);
    linear(rig.nn[set], rig.queue, &args, 0, NULL, NULL);
    matrix_fetch(&together);
    clattn_nn_weight_release(joint);
    for (int p = 0; p < 3; p++) {
      clattn_nn_weight *const own = weight_of(rig.nn[set], IN, EACH, CLATTN_F32, w[p], b[p]);
      matrix_make(&alone, CLATTN_F32, ROWS, EACH, 0, 0, PATTERN);
      matrix_give(&alone, CL_MEM_WRITE_ONLY);
      args.weight = own;
      args.y = matrix_view(&alone);
      linear(rig.nn[set], rig.queue, &args, 0, NULL, NULL);
      matrix_fetch(&alone);
      clattn_nn_weight_release(own);
      for (int i = 0; i < ROWS * EACH; i++)
        one[i] = (float)matrix_get(&together, i / EACH, p * EACH + i % EACH);
      assert_memory_equal(one, matrix_first(&alone), sizeof one);
      matrix_free(&alone);
    }
    matrix_free(&x);
    matrix_free(&together);
  }
}

/* The same call gives the same bits, and a row's bits depend on no other row. */
static void same_bits(void **state) {
  (void)state;
  for (int set = 0; set < KERNEL_SETS; set++) {
    layer l = {.types = 0, .rows = 67, .in = 300, .out = 53, .activation = CLATTN_NN_GELU, .with_bias = 1, .parts = 1};
    numbers n = {NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL};
    call c;
    draw_weight(&l, &n);
    call_make(&c, &l);
    clattn_nn_weight *const weight = fill_weight(rig.nn[set], &l, &n);
    run(rig.nn[set], weight, &l, &c);
    unsigned char *const first = malloc(c.m[Y].bytes);
    assert_non_null(first);
    memcpy(first, c.m[Y].host, c.m[Y].bytes);
    run(rig.nn[set], weight, &l, &c);
    assert_memory_equal(c.m[Y].host, first, c.m[Y].bytes);
    for (int64_t rows = 1; rows < 67; rows += 13) {
      l.rows = c.m[X].rows = c.m[Y].rows = rows;
      run(rig.nn[set], weight, &l, &c);
      assert_memory_equal(c.m[Y].host, first, (size_t)(rows * l.out) * sizeof(float));
    }
    free(first);
    clattn_nn_weight_release(weight);
    call_free(&c);
    numbers_free(&n);
  }
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static int start(void **state) {
  (void)state;
  cl_int code = CL_SUCCESS;
  cl_command_queue_properties properties = 0;
  clattn_error error;
  clattn_nn_options options;
  clattn_error_init(&error);
  if (clattn_context_create_default(NULL, &rig.context, NULL) != CLATTN_SUCCESS ||
      clattn_context_handles(rig.context, &rig.cl, &rig.device) != CLATTN_SUCCESS)
    return -1;
  for (int set = 0; set < KERNEL_SETS; set++) {
    clattn_nn_options_init(&options);
    options.kernels = set == LANES ? CLATTN_NN_KERNELS_LANES : CLATTN_NN_KERNELS_TILES;
    if (clattn_nn_create(rig.context, &options, &rig.nn[set], &error) != CLATTN_SUCCESS) {
      print_error("%s\n", error.message);
      return -1;
    }
  }
  rig.queue = clCreateCommandQueue(rig.cl, rig.device, 0, &code);
  if (code == CL_SUCCESS)
    code = clGetDeviceInfo(rig.device, CL_DEVICE_QUEUE_PROPERTIES, sizeof properties, &properties, NULL);
  if (code == CL_SUCCESS && (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) != 0)
    rig.out_of_order = clCreateCommandQueue(rig.cl, rig.device, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &code);
  return code == CL_SUCCESS ? 0 : -1;
}

static int finish(void **state) {
  (void)state;
  if (rig.queue != NULL)
    clReleaseCommandQueue(rig.queue);
  if (rig.out_of_order != NULL)
    clReleaseCommandQueue(rig.out_of_order);
  for (int set = 0; set < KERNEL_SETS; set++)
    clattn_nn_release(rig.nn[set]);
  clattn_context_release(rig.context);
  return 0;
}

int main(int argc, char **argv) {
  const char *const last = argc > 1 ? argv[argc - 1] : "";
  const uint64_t given = strtoull(last, NULL, 10), seed = given != 0 ? given : 88172645463325252u;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_layers),
      cmocka_unit_test(large_layers),
      cmocka_unit_test(special_numbers),
      cmocka_unit_test(activations),
      cmocka_unit_test(weights_are_rounded),
      cmocka_unit_test(refilled),
      cmocka_unit_test(side_by_side),
      cmocka_unit_test(same_bits),
      cmocka_unit_test(events_order_everything),
      cmocka_unit_test(work_outlives_its_weight),
      cmocka_unit_test(two_threads),
      cmocka_unit_test(refused_libraries),
      cmocka_unit_test(refused_weights),
      cmocka_unit_test(refused_fills),
      cmocka_unit_test(refused_arguments),
      cmocka_unit_test(refused_memory),
      cmocka_unit_test(overlaps),
      cmocka_unit_test(other_contexts),
      cmocka_unit_test(other_devices),
      cmocka_unit_test(who_computes),
  };
  draw_from(seed);
  print_message("seed %" PRIu64 "\n", seed);
#ifdef CLATTN_WITH_CLBLAST
  if (argc > 1 && strcmp(argv[1], "clblast") == 0)
    return clblast_tests(start, finish);
#endif
  return cmocka_run_group_tests(tests, start, finish);
}
