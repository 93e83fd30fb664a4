/* SPDX-License-Identifier: Apache-2.0 */
/* clattn_nn's norms, embedding lookup, pooling and rotary embedding on the default device, against references in double
 * precision.  A program of kernels is dear, so types come in few sets. */
#include "test_nn_rows.h"

static int64_t problems_passed;

typedef struct type_set {
  clattn_dtype x, x1, x2, y, sum; /* x1: residual or second table */
  int mixed;                      /* for operations with all of these tensors */
} type_set;

static const type_set sets[] = {
    {CLATTN_F32, CLATTN_F32, CLATTN_F32, CLATTN_F32, CLATTN_F32, 0},
    {CLATTN_F16, CLATTN_F16, CLATTN_F16, CLATTN_F16, CLATTN_F16, 0},
    {CLATTN_BF16, CLATTN_BF16, CLATTN_BF16, CLATTN_F32, CLATTN_BF16, 0},
    {CLATTN_F16, CLATTN_F32, CLATTN_BF16, CLATTN_BF16, CLATTN_F32, 1},
};
enum { SETS = sizeof sets / sizeof sets[0], PLAIN_SETS = SETS - 1 };

/* Tiles are what GPUs take: on a CPU they need to be right too, in fewer types. */
static clattn_nn *nn_for(size_t set, int round) {
  return (set == 0 || sets[set].mixed) && round % 2 == 1 ? f.tiles : f.nn;
}

/* Around vector widths and work-group sizes, and any. */
static int64_t draw_columns(void) {
  static const int64_t sizes[] = {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 64, 127, 128, 129, 384, 1000};
  return one_in(4) ? between(1, 700) : sizes[between(0, sizeof sizes / sizeof sizes[0] - 1)];
}

/* ---- norms ------------------------------------------------------------------------------------------------------- */

enum { IN_PLACE_NONE, IN_PLACE_X, IN_PLACE_RESIDUAL };

typedef struct norm_job {
  clattn_nn_norm_kind kind;
  float epsilon;
  int64_t rows, columns, heads;
  int residual, sum, gamma, beta, mean, inv_std, in_place;
  double mid, spread; /* of x */
} norm_job;

typedef struct norm_grids {
  grid x, y, residual, sum, gamma, beta, mean, inv_std;
} norm_grids;

static void norm_open(const norm_job *j, const type_set *types, norm_grids *g, clattn_nn_norm_args *args) {
  const int64_t width = j->heads * j->columns, units = j->rows * j->heads;
  memset(g, 0, sizeof *g);
  clattn_nn_norm_args_init(args);
  args->kind = j->kind;
  args->epsilon = j->epsilon;
  args->rows = j->rows;
  args->columns = j->columns;
  args->heads = j->heads == 1 && one_in(2) ? 0 : j->heads;
  grid_open(&g->x, types->x, j->rows, width, j->mid, j->spread);
  args->x = grid_matrix(&g->x);
  if (j->residual) {
    grid_open(&g->residual, types->x1, j->rows, width, 0, j->spread);
    args->residual = grid_matrix(&g->residual);
  }
  if (j->sum) {
    grid_open(&g->sum, types->sum, j->rows, width, 0, 1);
    args->sum = grid_matrix(&g->sum);
  }
  grid_open(&g->y, types->y, j->rows, width, 0, 1);
  args->y = j->in_place == IN_PLACE_X          ? args->x
            : j->in_place == IN_PLACE_RESIDUAL ? args->residual
                                               : grid_matrix(&g->y);
  const struct {
    int wanted;
    grid *g;
    clattn_mem *mem;
    int64_t count;
  } lines[] = {{j->gamma, &g->gamma, &args->gamma, j->columns},
               {j->beta, &g->beta, &args->beta, j->columns},
               {j->mean, &g->mean, &args->mean, units},
               {j->inv_std, &g->inv_std, &args->inv_std, units}};
  for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
    if (lines[i].wanted) {
      grid_open_line(lines[i].g, lines[i].count, 0.5, 1);
      *lines[i].mem = grid_mem(lines[i].g);
    }
}

static void norm_close(norm_grids *g) {
  grid *const all[] = {&g->x, &g->y, &g->residual, &g->sum, &g->gamma, &g->beta, &g->mean, &g->inv_std};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
    grid_close(all[i]);
}

/* Results, got or wanted; those not asked for are NULL. */
typedef struct norm_results {
  double *y, *sum, *mean, *inv_std;
} norm_results;

static void norm_results_free(norm_results *r) {
  free(r->y);
  free(r->sum);
  free(r->mean);
  free(r->inv_std);
}

static norm_results norm_want(const norm_job *j, const norm_grids *g) {
  const int64_t units = j->rows * j->heads, count = units * j->columns;
  norm_results want = {nn_ref_numbers(count), nn_ref_numbers(count), nn_ref_numbers(units), nn_ref_numbers(units)};
  double *x = grid_values(&g->x), *residual = j->residual ? grid_values(&g->residual) : NULL;
  double *gamma = j->gamma ? grid_values(&g->gamma) : NULL, *beta = j->beta ? grid_values(&g->beta) : NULL;
  nn_ref_norm(j->kind, (double)j->epsilon, units, j->columns, x, residual, gamma, beta, want.y, want.sum, want.mean,
              want.inv_std);
  free(x);
  free(residual);
  free(gamma);
  free(beta);
  return want;
}

static norm_results norm_got(const norm_job *j, const norm_grids *g) {
  const grid *y = j->in_place == IN_PLACE_X ? &g->x : j->in_place == IN_PLACE_RESIDUAL ? &g->residual : &g->y;
  const norm_results got = {grid_take(y), j->sum ? grid_take(&g->sum) : NULL, j->mean ? grid_take(&g->mean) : NULL,
                            j->inv_std ? grid_take(&g->inv_std) : NULL};
  if (j->in_place != IN_PLACE_X)
    grid_check_unchanged(&g->x);
  if (j->in_place != IN_PLACE_RESIDUAL)
    grid_check_unchanged(&g->residual);
  grid_check_unchanged(&g->gamma);
  grid_check_unchanged(&g->beta);
  return got;
}

/* y of unit u: roundings of the deviation, of 1 / sqrt (some devices: 5.5 units), of gamma and beta.  The mean is known
 * to twice the precision of t. */
static void norm_compare_unit(const norm_job *j, const norm_grids *g, int64_t u, const norm_results *got,
                              const norm_results *want, clattn_dtype y_type) {
  const int64_t first = u * j->columns;
  double largest = 0;
  for (int64_t c = 0; c < j->columns; c++)
    largest = fmax(largest, fabs(want->sum[first + c]));
  const double of_mean = 0x1p-44 * largest;
  for (int64_t c = 0; c < j->columns; c++) {
    const double w = want->y[first + c];
    const double gamma = j->gamma ? nn_ref_load(CLATTN_F32, g->gamma.image, g->gamma.at + c) : 1;
    const double beta = j->beta ? nn_ref_load(CLATTN_F32, g->beta.image, g->beta.at + c) : 0;
    const double allowed =
        nn_ref_allowed(y_type, w, fabs(w - beta) + fabs(beta), 10) + of_mean * want->inv_std[u] * fabs(gamma);
    check_near("norm y", u, c, got->y[first + c], w, allowed);
    if (got->sum != NULL) /* one rounding, the same on both sides */
      check_near("norm sum", u, c, got->sum[first + c], nn_ref_round(g->sum.dtype, want->sum[first + c]), 0);
  }
  if (got->mean != NULL)
    check_near("norm mean", u, 0, got->mean[u], want->mean[u],
               nn_ref_allowed(CLATTN_F32, want->mean[u], fabs(want->mean[u]), 1) + of_mean);
  if (got->inv_std != NULL)
    check_near("norm inv_std", u, 0, got->inv_std[u], want->inv_std[u],
               nn_ref_allowed(CLATTN_F32, want->inv_std[u], want->inv_std[u], 8));
}

static void norm_compare(const norm_job *j, const norm_grids *g, clattn_dtype y_type) {
  norm_results want = norm_want(j, g), got = norm_got(j, g);
  for (int64_t u = 0; u < j->rows * j->heads; u++)
    norm_compare_unit(j, g, u, &got, &want, y_type);
  norm_results_free(&want);
  norm_results_free(&got);
  problems_passed++;
}

static void norm_run(clattn_nn *nn, const clattn_nn_norm_args *args) {
  clattn_nn_norm_args call = *args;
  clattn_error error;
  clattn_error_init(&error);
  call.error = &error;
  succeeded(clattn_nn_norm(nn, f.queue, &call, 0, NULL, NULL), &error);
}

static void norm_check(clattn_nn *nn, const norm_job *j, const type_set *types) {
  norm_grids g;
  clattn_nn_norm_args args;
  norm_open(j, types, &g, &args);
  norm_run(nn, &args);
  norm_compare(j, &g, args.y.dtype);
  norm_close(&g);
}

static norm_job draw_norm(const type_set *types) {
  const int rms = one_in(3);
  const norm_job j = {.kind = rms ? CLATTN_NN_RMS_NORM : CLATTN_NN_LAYER_NORM,
                      .epsilon = one_in(2) ? 1e-5f : 1e-12f,
                      .rows = between(1, 20),
                      .columns = draw_columns(),
                      .heads = one_in(3) ? between(2, 5) : 1,
                      .residual = types->mixed || one_in(2),
                      .sum = types->mixed || one_in(3),
                      .gamma = !one_in(4),
                      .beta = one_in(2),
                      .mean = !rms && one_in(2),
                      .inv_std = one_in(2),
                      .mid = types->x == CLATTN_F32 && one_in(3) ? 1e4 : 0,
                      .spread = one_in(2) ? 1 : 4};
  return j;
}

static void random_norms(void **state) {
  (void)state;
  for (size_t set = 0; set < SETS; set++)
    for (int round = 0; round < 32; round++) {
      norm_job j = draw_norm(&sets[set]);
      if (j.columns == 1 && j.kind == CLATTN_NN_LAYER_NORM)
        j.epsilon = 1e-5f; /* what is divided by nearly 0 has no size */
      j.in_place = sets[set].mixed || sets[set].x != sets[set].y ? IN_PLACE_NONE
                   : j.residual && one_in(3)                     ? IN_PLACE_RESIDUAL
                   : one_in(3)                                   ? IN_PLACE_X
                                                                 : IN_PLACE_NONE;
      norm_check(nn_for(set, round), &j, &sets[set]);
    }
}

/* A mean that is large beside the deviations, and sums of a million numbers: exact to rounding all the same. */
static void hard_norms(void **state) {
  (void)state;
  const norm_job jobs[] = {
      {CLATTN_NN_LAYER_NORM, 1e-5f, 2, 1000003, 1, 0, 0, 1, 1, 1, 1, 0, 0, 1},
      {CLATTN_NN_LAYER_NORM, 1e-12f, 1, 1000000, 1, 1, 1, 1, 1, 1, 1, 0, 1e4, 0.01},
      {CLATTN_NN_RMS_NORM, 1e-6f, 1, 1000001, 1, 0, 0, 1, 0, 0, 1, 0, 3, 1},
      {CLATTN_NN_LAYER_NORM, 1e-12f, 7, 384, 1, 0, 0, 0, 0, 1, 1, 0, 1e4, 0.01},
      {CLATTN_NN_LAYER_NORM, 0, 7, 768, 1, 0, 0, 0, 0, 1, 1, 0, -1e6, 1},
      {CLATTN_NN_LAYER_NORM, 1e-5f, 3, 1, 2, 0, 0, 1, 1, 1, 1, 0, 5, 1},
      {CLATTN_NN_RMS_NORM, 1e-5f, 3, 1, 1, 0, 0, 1, 1, 0, 1, 0, 0, 1e-3},
      {CLATTN_NN_RMS_NORM, 0, 50, 64, 12, 0, 0, 1, 0, 0, 1, 1, 0, 1e-3},
      {CLATTN_NN_LAYER_NORM, 1e-5f, 5000, 3, 1, 0, 0, 1, 1, 1, 1, 0, 0, 1},
  };
  for (size_t n = 0; n < sizeof jobs / sizeof jobs[0]; n++) {
    norm_check(f.nn, &jobs[n], &sets[0]);
    norm_check(f.tiles, &jobs[n], &sets[0]);
  }
}

/* NaN and infinities stay in their rows, and reach all of them. */
static void strange_norms(void **state) {
  (void)state;
  const double strange[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
  for (int kind = CLATTN_NN_LAYER_NORM; kind <= CLATTN_NN_RMS_NORM; kind++)
    for (int n = 0; n < 6; n++) {
      const norm_job j = {(clattn_nn_norm_kind)kind,    1e-5f, 5, 37, 1, n % 2, 0, 1, 1,
                          kind == CLATTN_NN_LAYER_NORM, 1,     0, 0,  1};
      norm_grids g;
      clattn_nn_norm_args args;
      norm_open(&j, &sets[0], &g, &args);
      assert_int_equal(clReleaseMemObject(g.x.buffer), CL_SUCCESS);
      g.x.buffer = NULL;
      grid_set(&g.x, 1, n * 6, strange[n % 3]);
      grid_set(&g.x, 3, 36, strange[n % 3]);
      args.x = grid_matrix(&g.x);
      norm_run(n % 4 == 3 ? f.tiles : f.nn, &args);
      norm_compare(&j, &g, args.y.dtype);
      norm_close(&g);
    }
}

/* ---- embedding lookup -------------------------------------------------------------------------------------------- */

enum { MOST_ROWS = 40 };

typedef struct embed_job {
  int64_t rows, columns;
  nn_ref_table table[3]; /* values: those of the grids */
  grid values[3], y;
  int32_t ids[3][MOST_ROWS];
  cl_mem ids_buffer[3];
  clattn_nn_embed_args args;
} embed_job;

static void draw_table(embed_job *j, int index, clattn_dtype dtype) {
  nn_ref_table *table = &j->table[index];
  clattn_nn_table *given = &j->args.table[index];
  table->rows = between(1, 30);
  grid_open(&j->values[index], dtype, table->rows, j->columns, 0, 3);
  table->values = grid_values(&j->values[index]);
  given->values = grid_matrix(&j->values[index]);
  given->rows = table->rows;
  if (one_in(2)) {
    for (int64_t r = 0; r < j->rows; r++) /* some outside the table: clamped */
      j->ids[index][r] = one_in(10) ? (one_in(2) ? INT32_MIN : INT32_MAX) : (int32_t)between(-2, table->rows + 1);
    const int64_t before = between(0, 3); /* ids before the first */
    int32_t all[MOST_ROWS + 3] = {0};
    memcpy(all + before, j->ids[index], (size_t)j->rows * sizeof all[0]);
    j->ids_buffer[index] = ints_buffer(all, before + j->rows);
    given->ids = clattn_buffer(j->ids_buffer[index], (uint64_t)before * sizeof all[0]);
    table->ids = j->ids[index];
    return;
  }
  table->first = given->first = between(0, table->rows - 1);
  table->period = given->period = between(0, table->rows - table->first);
}

static void embed_close(embed_job *j) {
  for (int t = 0; t < 3; t++) {
    free((void *)(uintptr_t)j->table[t].values);
    grid_close(&j->values[t]);
    if (j->ids_buffer[t] != NULL)
      assert_int_equal(clReleaseMemObject(j->ids_buffer[t]), CL_SUCCESS);
  }
  grid_close(&j->y);
}

static void embed_compare(const embed_job *j) {
  const double scale = j->args.scale != 0 ? (double)j->args.scale : 1;
  double *want = nn_ref_numbers(j->rows * j->columns), *got = grid_take(&j->y);
  nn_ref_embed(j->rows, j->columns, scale, j->table, want);
  for (int64_t n = 0; n < j->rows * j->columns; n++) {
    const double size = 3 * (fabs(scale) + 2); /* of the three terms at most */
    check_near("embed", n / j->columns, n % j->columns, got[n], want[n], nn_ref_allowed(j->y.dtype, want[n], size, 2));
  }
  for (int t = 0; t < 3; t++)
    grid_check_unchanged(&j->values[t]);
  free(want);
  free(got);
  problems_passed++;
}

static void random_embeds(void **state) {
  (void)state;
  for (size_t set = 0; set < SETS; set++)
    for (int round = 0; round < 16; round++) {
      const type_set *types = &sets[set];
      const clattn_dtype dtypes[] = {types->x, types->x1, types->x2};
      embed_job j;
      clattn_error error;
      memset(&j, 0, sizeof j);
      clattn_error_init(&error);
      clattn_nn_embed_args_init(&j.args);
      j.args.error = &error;
      j.args.rows = j.rows = between(1, MOST_ROWS);
      j.args.columns = j.columns = draw_columns();
      j.args.scale = one_in(2) ? 0 : (float)uniform(-8, 8);
      for (int t = 0; t < 3; t++)
        if (t == 0 || types->mixed || !one_in(3))
          draw_table(&j, t, dtypes[t]);
      grid_open(&j.y, types->y, j.rows, j.columns, 0, 1);
      j.args.y = grid_matrix(&j.y);
      succeeded(clattn_nn_embed(nn_for(set, round), f.queue, &j.args, 0, NULL, NULL), &error);
      embed_compare(&j);
      embed_close(&j);
    }
}

/* ---- pooling ----------------------------------------------------------------------------------------------------- */

enum { MOST_BATCH = 7 };

typedef struct pool_job {
  clattn_nn_pooling pooling;
  int normalise;
  int64_t batch, length, columns;
  int with_lengths;
  double mid, spread;
} pool_job;

static void pool_compare(const pool_job *j, const grid *x, const int32_t *lengths, const grid *y) {
  double *from = grid_values(x), *want = nn_ref_numbers(j->batch * j->columns), *got = grid_take(y);
  double *means = nn_ref_numbers(j->batch * j->columns);
  nn_ref_pool(j->pooling, j->normalise, j->batch, j->length, j->columns, from, lengths, want);
  nn_ref_pool(j->pooling, 0, j->batch, j->length, j->columns, from, lengths, means);
  for (int64_t n = 0; n < j->batch * j->columns; n++) {
    /* sums are known to twice the precision of what is added; roundings of mean, square root and quotient */
    const double of_sum = 0x1p-46 * (fabs(j->mid) + j->spread);
    const double by = means[n] != 0 && isfinite(want[n]) ? fabs(want[n] / means[n]) : 1;
    check_near("pool", n / j->columns, n % j->columns, got[n], want[n],
               nn_ref_allowed(y->dtype, want[n], fabs(want[n]), 10) + of_sum * by);
  }
  grid_check_unchanged(x);
  free(from);
  free(want);
  free(got);
  free(means);
  problems_passed++;
}

static void pool_check(clattn_nn *nn, const pool_job *j, const type_set *types, double strange) {
  grid x, y;
  int32_t lengths[MOST_BATCH] = {0};
  clattn_error error;
  clattn_nn_pool_args args;
  clattn_error_init(&error);
  clattn_nn_pool_args_init(&args);
  args.error = &error;
  args.pooling = j->pooling;
  args.normalise = (uint32_t)j->normalise;
  args.batch = j->batch;
  args.length = j->length;
  args.columns = j->columns;
  grid_open(&x, types->x, j->batch * j->length, j->columns, j->mid, j->spread);
  grid_open(&y, types->y, j->batch, j->columns, 0, 1);
  if (strange != 0)
    grid_set(&x, 0, j->columns / 2, strange);
  args.x = grid_matrix(&x);
  args.y = grid_matrix(&y);
  for (int64_t b = 0; b < j->batch; b++) /* some outside: clamped */
    lengths[b] = one_in(6) ? (one_in(2) ? -3 : INT32_MAX) : (int32_t)between(0, j->length);
  const cl_mem buffer = ints_buffer(lengths, j->batch);
  if (j->with_lengths)
    args.lengths = clattn_buffer(buffer, 0);
  succeeded(clattn_nn_pool(nn, f.queue, &args, 0, NULL, NULL), &error);
  pool_compare(j, &x, j->with_lengths ? lengths : NULL, &y);
  assert_int_equal(clReleaseMemObject(buffer), CL_SUCCESS);
  grid_close(&x);
  grid_close(&y);
}

static void random_pools(void **state) {
  (void)state;
  for (size_t set = 0; set < PLAIN_SETS; set++)
    for (int round = 0; round < 16; round++) {
      const pool_job j = {.pooling = one_in(3) ? CLATTN_NN_POOL_FIRST : CLATTN_NN_POOL_MEAN,
                          .normalise = one_in(2) ? 1 : 0,
                          .batch = between(1, MOST_BATCH),
                          .length = between(1, 40),
                          .columns = draw_columns(),
                          .with_lengths = one_in(2),
                          .mid = sets[set].x == CLATTN_F32 && one_in(3) ? 1e4 : 0,
                          .spread = one_in(4) ? 1e-3 : 2};
      pool_check(nn_for(set, round), &j, &sets[set], 0);
    }
}

static void strange_pools(void **state) {
  (void)state;
  const double strange[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
  for (int n = 0; n < 12; n++) {
    const pool_job j = {CLATTN_NN_POOL_MEAN, n % 2, 2, n < 6 ? 1 : 9, 19, 0, 0, 1};
    pool_check(n % 4 < 2 ? f.nn : f.tiles, &j, &sets[0], strange[n % 3]);
  }
  /* a norm of 0 is taken as 1e-12, and a long sum is exact to rounding */
  const pool_job zeros = {CLATTN_NN_POOL_MEAN, 1, 2, 3, 19, 0, 0, 0},
                 tiny = {CLATTN_NN_POOL_MEAN, 1, 2, 3, 19, 0, 1e-14, 0};
  const pool_job empty = {CLATTN_NN_POOL_MEAN, 0, 2, 0, 19, 0, 0, 1},
                 lengthy = {CLATTN_NN_POOL_MEAN, 0, 1, 200000, 3, 0, 1e4, 1};
  pool_check(f.nn, &zeros, &sets[0], 0);
  pool_check(f.nn, &tiny, &sets[0], 0);
  pool_check(f.nn, &empty, &sets[0], 0);
  pool_check(f.nn, &lengthy, &sets[0], 0);
}

/* ---- rotary embedding -------------------------------------------------------------------------------------------- */

typedef struct rope_job {
  clattn_rope rope;
  int64_t batch, heads, length, dim, rope_dim, table_positions, table_batch_stride;
  clattn_layout layout; /* of x and y; STRIDED: rows within rows of a grid, heads a gap apart */
  int in_place, with_positions;
} rope_job;

/* x and y as grids whose rows are (batch, row) for BSHD and STRIDED, (batch, head, row) for BHSD.  STRIDED: element
 * (h, e) of a row is the number h * (2 dim + 3) + 2 e. */
static int64_t place_of(const rope_job *j, int64_t b, int64_t h, int64_t i, int64_t e, int64_t *row) {
  if (j->layout == CLATTN_LAYOUT_BHSD) {
    *row = (b * j->heads + h) * j->length + i;
    return e;
  }
  *row = b * j->length + i;
  return j->layout == CLATTN_LAYOUT_BSHD ? h * j->dim + e : h * (2 * j->dim + 3) + 2 * e;
}

static void rope_grid(const rope_job *j, grid *g, clattn_dtype dtype, clattn_tensor *view) {
  const int64_t rows = j->batch * j->length;
  memset(view, 0, sizeof *view);
  if (j->layout == CLATTN_LAYOUT_BHSD)
    grid_open(g, dtype, rows * j->heads, j->dim, 0, 2);
  else if (j->layout == CLATTN_LAYOUT_BSHD)
    grid_open(g, dtype, rows, j->heads * j->dim, 0, 2);
  else
    grid_open(g, dtype, rows, j->heads * (2 * j->dim + 3), 0, 2);
  if (j->layout == CLATTN_LAYOUT_STRIDED)
    *view = clattn_strided(dtype, j->length * g->stride, 2 * j->dim + 3, g->stride, 2);
  else if (j->layout == CLATTN_LAYOUT_BSHD && g->stride != g->columns)
    *view = clattn_strided(dtype, j->length * g->stride, j->dim, g->stride, 1);
  else if (g->stride != g->columns)
    *view = clattn_strided(dtype, j->heads * j->length * g->stride, j->length * g->stride, g->stride, 1);
  else
    view->layout = j->layout;
  view->dtype = dtype;
}

/* All of a grid's numbers from, or to, (batch, heads, length, dim). */
static void rope_copy(const rope_job *j, double *all, int64_t columns, double *values, int back) {
  int64_t n = 0, row = 0;
  for (int64_t b = 0; b < j->batch; b++)
    for (int64_t h = 0; h < j->heads; h++)
      for (int64_t i = 0; i < j->length; i++)
        for (int64_t e = 0; e < j->dim; e++) {
          const int64_t column = place_of(j, b, h, i, e, &row);
          if (back)
            all[row * columns + column] = values[n++];
          else
            values[n++] = all[row * columns + column];
        }
}

static double *rope_values(const rope_job *j, double *all, int64_t columns) {
  double *values = nn_ref_numbers(j->batch * j->heads * j->length * j->dim);
  rope_copy(j, all, columns, values, 0);
  return values;
}

static void rope_compare(const rope_job *j, const grid *x, const grid *y, const grid *tables,
                         const int32_t *positions) {
  const int64_t count = j->batch * j->heads * j->length * j->dim;
  const int64_t rope_dim = j->rope_dim != 0 ? j->rope_dim : j->dim;
  double *all_x = grid_values(x), *all_y = grid_take(y), *cosines = grid_values(&tables[0]);
  double *sines = grid_values(&tables[1]), *from = rope_values(j, all_x, x->columns);
  double *got = rope_values(j, all_y, y->columns), *want = nn_ref_numbers(count);
  nn_ref_rope(j->rope, j->batch, j->heads, j->length, j->dim, rope_dim, from, cosines, sines, j->table_positions,
              j->table_batch_stride, positions, want);
  /* what lies between the heads' elements is as it was */
  double *image = grid_values(y), *seen = rope_values(j, image, y->columns);
  rope_copy(j, all_y, y->columns, seen, 1);
  assert_memory_equal(all_y, image, (size_t)(y->rows * y->columns) * sizeof *image);
  free(image);
  free(seen);
  for (int64_t n = 0; n < count; n++) /* tables up to 1, x up to 2: the terms of a pair; the others are copied */
    check_near("rope", n / j->dim, n % j->dim, got[n], want[n],
               n % j->dim < rope_dim ? nn_ref_allowed(y->dtype, want[n], 4, 2) : nn_ref_rounding(y->dtype, want[n]));
  for (int t = 0; t < 2; t++)
    grid_check_unchanged(&tables[t]);
  free(all_x);
  free(all_y);
  free(cosines);
  free(sines);
  free(from);
  free(got);
  free(want);
  problems_passed++;
}

static void rope_check(clattn_nn *nn, const rope_job *j, const type_set *types) {
  enum { MOST_TOKENS = 64 };
  const int64_t rope_dim = j->rope_dim != 0 ? j->rope_dim : j->dim;
  const int64_t entries = (j->batch - 1) * j->table_batch_stride + j->table_positions * rope_dim / 2;
  grid x, y, tables[2];
  int32_t positions[MOST_TOKENS];
  clattn_error error;
  clattn_nn_rope_args args;
  clattn_error_init(&error);
  clattn_nn_rope_args_init(&args);
  args.error = &error;
  args.rope = j->rope;
  args.batch = j->batch;
  args.heads = j->heads;
  args.length = j->length;
  args.dim = j->dim;
  args.rope_dim = j->rope_dim;
  args.table_positions = j->table_positions;
  args.table_batch_stride = j->table_batch_stride;
  rope_grid(j, &x, types->x, &args.x_view);
  rope_grid(j, &y, types->y, &args.y_view);
  args.x = grid_mem(&x);
  args.y = j->in_place ? args.x : grid_mem(&y);
  if (j->in_place)
    args.y_view = args.x_view;
  for (int t = 0; t < 2; t++)
    grid_open_line(&tables[t], entries, 0, 1);
  args.cos = grid_mem(&tables[0]);
  args.sin = grid_mem(&tables[1]);
  for (int64_t n = 0; n < j->batch * j->length; n++)
    positions[n] = (int32_t)between(-2, j->table_positions + 2);
  const cl_mem buffer = ints_buffer(positions, j->batch * j->length);
  if (j->with_positions)
    args.positions = clattn_buffer(buffer, 0);
  succeeded(clattn_nn_rope(nn, f.queue, &args, 0, NULL, NULL), &error);
  rope_compare(j, &x, j->in_place ? &x : &y, tables, j->with_positions ? positions : NULL);
  if (!j->in_place)
    grid_check_unchanged(&x);
  assert_int_equal(clReleaseMemObject(buffer), CL_SUCCESS);
  grid_close(&x);
  grid_close(&y);
  for (int t = 0; t < 2; t++)
    grid_close(&tables[t]);
}

static void random_ropes(void **state) {
  (void)state;
  for (size_t set = 0; set < PLAIN_SETS; set++)
    for (int round = 0; round < 20; round++) {
      const int64_t dim = between(2, 80), rope_dim = one_in(2) ? 0 : 2 * between(1, dim / 2);
      const int64_t length = between(1, 12), pairs = (rope_dim != 0 ? rope_dim : dim) / 2;
      const rope_job j = {.rope = one_in(2) ? CLATTN_ROPE_HALF : CLATTN_ROPE_INTERLEAVED,
                          .batch = between(1, 4),
                          .heads = between(1, 5),
                          .length = length,
                          .dim = rope_dim != 0 || dim % 2 == 0 ? dim : dim + 1,
                          .rope_dim = rope_dim,
                          .table_positions = length + between(0, 9),
                          .table_batch_stride = one_in(2) ? 0 : (length + 9) * (pairs + 1) + between(0, 5),
                          .layout = (clattn_layout)between(0, 2),
                          .in_place = sets[set].x == sets[set].y && one_in(3),
                          .with_positions = one_in(2)};
      rope_check(nn_for(set, round), &j, &sets[set]);
    }
}

/* q rotated into the place of k, in rows that hold q, k and v side by side. */
static void side_by_side(void **state) {
  (void)state;
  enum { BATCH = 2, LENGTH = 5, HEADS = 3, DIM = 8, WIDTH = HEADS * DIM };
  const rope_job j = {CLATTN_ROPE_HALF, BATCH, HEADS, LENGTH, DIM, 0, LENGTH, 0, CLATTN_LAYOUT_BSHD, 0, 0};
  grid rows, tables[2];
  clattn_error error;
  clattn_nn_rope_args args;
  clattn_error_init(&error);
  clattn_nn_rope_args_init(&args);
  grid_open(&rows, CLATTN_F32, BATCH * LENGTH, 3 * WIDTH, 0, 2);
  args.error = &error;
  args.rope = j.rope;
  args.batch = BATCH;
  args.heads = HEADS;
  args.length = args.table_positions = LENGTH;
  args.dim = DIM;
  args.x_view = args.y_view = clattn_strided(CLATTN_F32, LENGTH * rows.stride, DIM, rows.stride, 1);
  args.x = args.y = grid_mem(&rows);
  args.y.offset += WIDTH * sizeof(float);
  for (int t = 0; t < 2; t++)
    grid_open_line(&tables[t], LENGTH * DIM / 2, 0, 1);
  args.cos = grid_mem(&tables[0]);
  args.sin = grid_mem(&tables[1]);
  succeeded(clattn_nn_rope(f.nn, f.queue, &args, 0, NULL, NULL), &error);
  double *before = grid_values(&rows), *after = grid_take(&rows), *cosines = grid_values(&tables[0]);
  double *sines = grid_values(&tables[1]), *q = rope_values(&j, before, 3 * WIDTH);
  nn_ref_rope(j.rope, BATCH, HEADS, LENGTH, DIM, DIM, q, cosines, sines, LENGTH, 0, NULL, q);
  rope_copy(&j, before + WIDTH, 3 * WIDTH, q, 1); /* what the rows are to be */
  for (int64_t n = 0; n < BATCH * LENGTH * 3 * WIDTH; n++)
    check_near("rope beside", n / (3 * WIDTH), n % (3 * WIDTH), after[n], before[n],
               n / WIDTH % 3 == 1 ? nn_ref_allowed(CLATTN_F32, before[n], 4, 2) : 0);
  free(before);
  free(after);
  free(cosines);
  free(sines);
  free(q);
  grid_close(&rows);
  for (int t = 0; t < 2; t++)
    grid_close(&tables[t]);
  problems_passed++;
}

/* ---- queues, nothing to do --------------------------------------------------------------------------------------- */

static void no_rows(void **state) {
  (void)state;
  clattn_error error;
  clattn_nn_norm_args norm;
  clattn_nn_embed_args embed;
  clattn_nn_pool_args pool;
  clattn_nn_rope_args rope;
  grid g;
  cl_event event = NULL;
  clattn_error_init(&error);
  clattn_nn_norm_args_init(&norm);
  clattn_nn_embed_args_init(&embed);
  clattn_nn_pool_args_init(&pool);
  clattn_nn_rope_args_init(&rope);
  norm.error = embed.error = pool.error = rope.error = &error;
  /* OpenCL has no empty buffers, so none need be given. */
  norm.columns = embed.columns = pool.columns = 4;
  rope.rope = CLATTN_ROPE_HALF;
  rope.heads = rope.table_positions = 1;
  rope.dim = 2;
  grid_open(&g, CLATTN_F32, 3, 4, 0, 1);
  embed.table[0].values = grid_matrix(&g);
  embed.table[0].rows = 3;
  succeeded(clattn_nn_norm(f.nn, f.queue, &norm, 0, NULL, NULL), &error);
  succeeded(clattn_nn_embed(f.nn, f.queue, &embed, 0, NULL, NULL), &error);
  succeeded(clattn_nn_pool(f.nn, f.queue, &pool, 0, NULL, NULL), &error);
  succeeded(clattn_nn_rope(f.nn, f.queue, &rope, 0, NULL, NULL), &error);
  /* Nor is given memory touched, and the event completes all the same. */
  norm.x = norm.y = grid_matrix(&g);
  succeeded(clattn_nn_norm(f.nn, f.queue, &norm, 0, NULL, &event), &error);
  assert_non_null(event);
  assert_int_equal(clWaitForEvents(1, &event) | clReleaseEvent(event), CL_SUCCESS);
  grid_check_unchanged(&g);
  grid_close(&g);
  problems_passed++;
}

/* y = norm(x), then y = norm(y) in place; nothing may start before the gate opens, nor the second before the first. */
static void queues_and_events(void **state) {
  (void)state;
  const norm_job j = {CLATTN_NN_LAYER_NORM, 1e-5f, 300, 200, 1, 0, 0, 1, 1, 0, 0, 0, 0, 1};
  for (int round = 0; round < 6; round++) {
    const cl_command_queue on = round % 2 == 0 || f.out_of_order == NULL ? f.queue : f.out_of_order;
    norm_grids g;
    clattn_nn_norm_args args;
    clattn_error error;
    cl_int code = CL_SUCCESS, progress = CL_COMPLETE;
    cl_event done[2] = {NULL, NULL};
    const cl_event gate = clCreateUserEvent(f.cl, &code);
    assert_int_equal(code, CL_SUCCESS);
    norm_open(&j, &sets[0], &g, &args);
    double *x = grid_values(&g.x), *gamma = grid_values(&g.gamma), *beta = grid_values(&g.beta);
    clattn_error_init(&error);
    args.error = &error;
    assert_int_equal(clattn_nn_norm(f.nn, on, &args, 1, &gate, &done[0]), CLATTN_SUCCESS);
    args.x = args.y;
    assert_int_equal(clattn_nn_norm(f.nn, on, &args, 1, &done[0], &done[1]), CLATTN_SUCCESS);
    assert_int_equal(clFlush(on), CL_SUCCESS);
    for (int n = 0; n < 2; n++) {
      assert_int_equal(clGetEventInfo(done[n], CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof progress, &progress, NULL),
                       CL_SUCCESS);
      assert_int_not_equal(progress, CL_COMPLETE);
    }
    assert_int_equal(clSetUserEventStatus(gate, CL_COMPLETE) | clWaitForEvents(1, &done[1]), CL_SUCCESS);
    double *got = grid_take(&g.y);
    for (int twice = 0; twice < 2; twice++)
      nn_ref_norm(j.kind, (double)j.epsilon, j.rows, j.columns, x, NULL, gamma, beta, x, NULL, NULL, NULL);
    for (int64_t n = 0; n < j.rows * j.columns; n++)
      check_near("norm twice", n / j.columns, n % j.columns, got[n], x[n], 1e-5);
    assert_int_equal(clReleaseEvent(gate) | clReleaseEvent(done[0]) | clReleaseEvent(done[1]), CL_SUCCESS);
    free(x);
    free(gamma);
    free(beta);
    free(got);
    norm_close(&g);
    problems_passed++;
  }
}

static void enough_problems(void **state) {
  (void)state;
  assert_true(problems_passed >= 200);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_norms),      cmocka_unit_test(hard_norms),    cmocka_unit_test(strange_norms),
      cmocka_unit_test(random_embeds),     cmocka_unit_test(random_pools),  cmocka_unit_test(strange_pools),
      cmocka_unit_test(random_ropes),      cmocka_unit_test(side_by_side),  cmocka_unit_test(no_rows),
      cmocka_unit_test(queues_and_events), cmocka_unit_test(refused_norms), cmocka_unit_test(refused_embeds),
      cmocka_unit_test(refused_pools),     cmocka_unit_test(refused_ropes), cmocka_unit_test(refused_queues),
      cmocka_unit_test(enough_problems),
  };
  return cmocka_run_group_tests(tests, start, finish);
}
