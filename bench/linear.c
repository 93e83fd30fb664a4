/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers of known models, as a percent of the FMA peak measured beside them. */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <clattn_nn.h>

/* The largest difference of sampled results from double precision, relative to the size of the sums. */
static double check(const float *x, const float *w, const float *y, int64_t rows, int64_t in, int64_t out) {
  double worst = 0;
  for (int64_t n = 0; n < 512; ++n) {
    const int64_t r = n * 7919 % rows, c = n * 104729 % out;
    double want = 0, size = 0;
    for (int64_t d = 0; d < in; ++d) {
      const double product = (double)x[r * in + d] * (double)w[c * in + d];
      want += product;
      size += fabs(product);
    }
    const double difference = fabs(y[r * out + c] - want) / size;
    if (!(difference <= worst)) /* NaN counts */
      worst = difference;
  }
  return worst;
}

static int run(const bench *b, clattn_nn *nn, const char *name, int64_t rows, int64_t in, int64_t out,
               clattn_nn_activation activation) {
  clattn_nn_weight *weight = NULL;
  clattn_nn_fill_args load;
  clattn_nn_linear_args args;
  clattn_error error;
  const size_t x_count = (size_t)(rows * in), w_count = (size_t)(in * out), y_count = (size_t)(rows * out);
  float *x = memory(x_count * sizeof(*x)), *w = memory(w_count * sizeof(*w)), *y = memory(y_count * sizeof(*y));
  unsigned seed = 1;
  double seconds[REPEATS], peaks[REPEATS], shares[REPEATS];
  clattn_error_init(&error);
  fill(x, x_count, &seed);
  fill(w, w_count, &seed);
  cl_mem from = buffer_of(b, x_count * sizeof(*x), x), to = buffer_of(b, y_count * sizeof(*y), NULL);
  must(clattn_nn_weight_create(nn, in, out, CLATTN_F32, 0, &weight, NULL), "clattn_nn_weight_create");
  clattn_nn_fill_args_init(&load);
  load.weight = weight;
  load.host = w;
  must(clattn_nn_weight_fill(b->queue, &load, 0, NULL, NULL), "clattn_nn_weight_fill");
  clattn_nn_linear_args_init(&args);
  args.error = &error;
  args.weight = weight;
  args.rows = rows;
  args.x = clattn_nn_matrix_f32(from, 0, 0);
  args.y = clattn_nn_matrix_f32(to, 0, 0);
  args.activation = activation;
  const double flops = 2.0 * (double)rows * (double)in * (double)out;
  for (int r = -1; r < REPEATS; ++r) { /* the first run compiles and warms up */
    const double peak = probe_peak(b), start = now();
    const clattn_status status = clattn_nn_linear(nn, b->queue, &args, 0, NULL, NULL);
    if (status != CLATTN_SUCCESS)
      fprintf(stderr, "%s\n", error.message);
    must(status, "clattn_nn_linear");
    must(clFinish(b->queue), "clFinish");
    if (r >= 0) {
      seconds[r] = now() - start;
      peaks[r] = peak;
      shares[r] = flops / seconds[r] / peak;
    }
  }
  must(clEnqueueReadBuffer(b->queue, to, CL_TRUE, 0, y_count * sizeof(*y), y, 0, NULL, NULL), "reading y");
  const double worst = activation == CLATTN_NN_NONE ? check(x, w, y, rows, in, out) : 0;
  const double took = median(seconds, REPEATS);
  printf("linear %-24s rows %-5lld in %-5lld out %-5lld %9.3f ms %7.1f GFLOP/s = %4.1f %% of FMA peak %.1f", name,
         (long long)rows, (long long)in, (long long)out, took * 1e3, flops / took * 1e-9, 100 * median(shares, REPEATS),
         median(peaks, REPEATS) * 1e-9);
  if (activation == CLATTN_NN_NONE)
    printf("; max error %.1e of the sum of sizes", worst);
  printf("\n");
  fflush(stdout);
  clattn_nn_weight_release(weight);
  clReleaseMemObject(from);
  clReleaseMemObject(to);
  free(x);
  free(w);
  free(y);
  return !(worst < 1e-6);
}

int bench_linear(const bench *b, int all) {
  clattn_nn *nn = NULL;
  int bad = 0;
  must(clattn_nn_create(b->context, NULL, &nn, NULL), "clattn_nn_create");
  bad |= run(b, nn, "MiniLM q, k, v", 128, 384, 1152, CLATTN_NN_NONE);
  bad |= run(b, nn, "MiniLM o", 128, 384, 384, CLATTN_NN_NONE);
  bad |= run(b, nn, "MiniLM up, GELU", 128, 384, 1536, CLATTN_NN_GELU);
  bad |= run(b, nn, "MiniLM down", 128, 1536, 384, CLATTN_NN_NONE);
  bad |= run(b, nn, "MiniLM q, k, v, batch 32", 4096, 384, 1152, CLATTN_NN_NONE);
  bad |= run(b, nn, "BERT base q, k, v", 128, 768, 2304, CLATTN_NN_NONE);
  bad |= run(b, nn, "BERT base up", 128, 768, 3072, CLATTN_NN_NONE);
  bad |= run(b, nn, "BERT base down", 512, 3072, 768, CLATTN_NN_NONE);
  if (all) {
    bad |= run(b, nn, "MiniLM up, batch 32, GELU", 4096, 384, 1536, CLATTN_NN_GELU);
    bad |= run(b, nn, "MiniLM down, batch 32", 4096, 1536, 384, CLATTN_NN_NONE);
    bad |= run(b, nn, "Llama 7B q", 128, 4096, 4096, CLATTN_NN_NONE);
    bad |= run(b, nn, "Llama 7B up", 512, 4096, 11008, CLATTN_NN_NONE);
    bad |= run(b, nn, "one token", 1, 4096, 4096, CLATTN_NN_NONE);
    bad |= run(b, nn, "16 tokens", 16, 384, 1536, CLATTN_NN_NONE);
  }
  clattn_nn_release(nn);
  return bad;
}
