/* SPDX-License-Identifier: Apache-2.0 */
/* A small benchmark: the default variant and the three-step baseline against the FMA peak that is measured beside
 * them, the workspace they used, and what plan creation and enqueue cost the host.  Correctness comes first: sampled
 * rows against double precision. */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <clattn_ref.h>

/* Largest difference of sampled rows from double precision. */
static double check(const bench *b, const clattn_problem *problem, float *const in[3], cl_mem out, int64_t rows) {
  const size_t count = (size_t)(rows * problem->v_dim);
  clattn_ref_args args;
  double worst = 0, *want = memory(count * sizeof(*want));
  float *got = memory(count * sizeof(*got));
  must(clEnqueueReadBuffer(b->queue, out, CL_TRUE, 0, count * sizeof(float), got, 0, NULL, NULL), "reading o");
  clattn_ref_args_init(&args);
  args.q = in[0];
  args.k = in[1];
  args.v = in[2];
  args.o = want;
  args.row_step = rows > 64 ? rows / 64 : 1;
  must(clattn_ref_attention(problem, &args), "clattn_ref_attention");
  for (int64_t r = 0; r < rows; r += args.row_step)
    for (int64_t d = 0; d < problem->v_dim; ++d) {
      const double difference = fabs(got[r * problem->v_dim + d] - want[r * problem->v_dim + d]);
      if (!(difference <= worst)) /* NaN counts */
        worst = difference;
    }
  free(want);
  free(got);
  return worst;
}

/* Attention and probe in turns, so that a busy machine slows both.  Returns 1 if the numbers are wrong. */
static int run_shape(const bench *b, const char *variant, int64_t heads, int64_t length, int64_t dim, int causal) {
  clattn_problem problem;
  clattn_plan_options options;
  clattn_plan_info info;
  clattn_args args;
  clattn_plan *plan = NULL;
  clattn_error error;
  const size_t count = (size_t)(heads * length * dim);
  float *host[3];
  cl_mem buffer[3], workspace = NULL;
  unsigned seed = 1;
  double seconds[REPEATS], peaks[REPEATS], shares[REPEATS];

  clattn_error_init(&error);
  clattn_problem_init(&problem);
  problem.q_heads = problem.kv_heads = heads;
  problem.q_len = problem.k_len = length;
  problem.qk_dim = problem.v_dim = dim;
  problem.causal = (uint32_t)causal;
  clattn_plan_options_init(&options);
  options.variant = variant;
  if (clattn_plan_create(b->context, &problem, &options, &plan, &error) != CLATTN_SUCCESS) {
    fprintf(stderr, "%s: %s\n", clattn_status_name(error.status), error.message);
    exit(1);
  }
  clattn_plan_info_init(&info);
  must(clattn_plan_get_info(plan, &info), "clattn_plan_get_info");
  for (int i = 0; i < 3; ++i) {
    host[i] = memory(count * sizeof(float));
    fill(host[i], count, &seed);
    buffer[i] = buffer_of(b, count * sizeof(float), host[i]);
  }
  cl_mem out = buffer_of(b, count * sizeof(float), NULL);
  if (info.workspace_bytes > 0)
    workspace = buffer_of(b, (size_t)info.workspace_bytes, NULL);
  clattn_args_init(&args);
  args.q = clattn_buffer(buffer[0], 0);
  args.k = clattn_buffer(buffer[1], 0);
  args.v = clattn_buffer(buffer[2], 0);
  args.o = clattn_buffer(out, 0);
  args.workspace = clattn_buffer(workspace, 0);

  for (int r = -1; r < REPEATS; ++r) { /* the first run compiles and warms up */
    const double peak = probe_peak(b), start = now();
    must(clattn_enqueue(plan, b->queue, &args, 0, NULL, NULL), "clattn_enqueue");
    must(clFinish(b->queue), "clFinish");
    if (r >= 0) {
      seconds[r] = now() - start;
      peaks[r] = peak;
      shares[r] = (double)info.flops / seconds[r] / peak; /* of the probe just before: both met the same machine */
    }
  }
  const double worst = check(b, &problem, host, out, heads * length), took = median(seconds, REPEATS);
  const double peak = median(peaks, REPEATS), rate = (double)info.flops / took;
  printf("%-16s H %-2lld S %-5lld D %-3lld %s %9.2f ms %7.1f GFLOP/s = %4.1f %% of FMA peak %.1f; workspace %.1f MiB, "
         "%u rounds; max error %.1e\n",
         info.variant, (long long)heads, (long long)length, (long long)dim, causal ? "causal" : "full  ", took * 1e3,
         rate * 1e-9, 100 * median(shares, REPEATS), peak * 1e-9, (double)info.workspace_bytes / (1 << 20),
         info.row_blocks, worst);
  fflush(stdout);

  for (int i = 0; i < 3; ++i) {
    clReleaseMemObject(buffer[i]);
    free(host[i]);
  }
  clReleaseMemObject(out);
  if (workspace != NULL)
    clReleaseMemObject(workspace);
  clattn_plan_release(plan);
  return !(worst < 1e-5);
}

/* What an application would do without clattn: set as many arguments of as many kernels, and enqueue them behind an
 * event. */
static void raw_enqueue(const bench *b, uint32_t launches, cl_event gate) {
  const size_t global = 1, local = 1;
  const cl_long words[64] = {0};
  const cl_int round = 0;
  const cl_uint used = launches == 1 ? RAW_ARGUMENTS : 7; /* the fused kernel's; the mean of the three steps' */
  for (uint32_t i = 0; i < launches; ++i) {
    must(clSetKernelArg(b->raw[i], 0, sizeof(words), words), "clSetKernelArg");
    must(clSetKernelArg(b->raw[i], 1, sizeof(round), &round), "clSetKernelArg");
    for (cl_uint a = 2; a < used; ++a)
      must(clSetKernelArg(b->raw[i], a, sizeof(cl_mem), &b->scratch), "clSetKernelArg");
    must(clEnqueueNDRangeKernel(b->queue, b->raw[i], 1, NULL, &global, &local, i == 0 ? 1 : 0, i == 0 ? &gate : NULL,
                                NULL),
         "clEnqueueNDRangeKernel");
  }
}

/* Host seconds of one enqueue, raw or clattn's.  An event holds the queue back meanwhile, so that no device thread
 * takes the processor away. */
static double held_enqueue(const bench *b, const clattn_plan *plan, const clattn_args *args, uint32_t launches) {
  cl_int code = CL_SUCCESS;
  cl_event gate = clCreateUserEvent(b->cl, &code);
  must(code, "clCreateUserEvent");
  const double start = now();
  if (plan != NULL)
    must(clattn_enqueue(plan, b->queue, args, 1, &gate, NULL), "clattn_enqueue");
  else
    raw_enqueue(b, launches, gate);
  const double took = now() - start;
  must(clSetUserEventStatus(gate, CL_COMPLETE), "clSetUserEventStatus");
  must(clFinish(b->queue), "clFinish");
  clReleaseEvent(gate);
  return took;
}

static void overheads(const bench *b, const char *variant) {
  enum { COUNT = 2001 };
  static double plans[COUNT], ours[COUNT], raws[COUNT], differences[COUNT];
  clattn_problem problem;
  clattn_plan_options options;
  clattn_plan *plan = NULL;
  clattn_plan_info info;
  clattn_args args;
  cl_mem workspace = NULL;
  clattn_problem_init(&problem);
  problem.q_len = problem.k_len = 8;
  problem.qk_dim = 8;
  clattn_plan_options_init(&options);
  options.variant = variant;
  must(clattn_plan_create(b->context, &problem, &options, &plan, NULL), "clattn_plan_create");
  clattn_plan_info_init(&info);
  must(clattn_plan_get_info(plan, &info), "clattn_plan_get_info");
  const uint32_t launches = info.launches < 3 ? info.launches : 3;
  cl_mem in = buffer_of(b, 4096, NULL);
  if (info.workspace_bytes > 0)
    workspace = buffer_of(b, (size_t)info.workspace_bytes, NULL);
  clattn_args_init(&args);
  args.q = args.k = args.v = clattn_buffer(in, 0);
  args.o = clattn_buffer(b->scratch, 0);
  args.workspace = clattn_buffer(workspace, 0);
  for (int i = 0; i < COUNT; ++i) {
    clattn_plan *again = NULL;
    const double start = now();
    must(clattn_plan_create(b->context, &problem, &options, &again, NULL), "clattn_plan_create");
    plans[i] = now() - start;
    clattn_plan_release(again);
    ours[i] = held_enqueue(b, plan, &args, launches);
    raws[i] = held_enqueue(b, NULL, NULL, launches);
    differences[i] = ours[i] - raws[i];
  }
  printf("%s: plan creation, warm: %.2f us (bound 10)\n", info.variant, median(plans, COUNT) * 1e6);
  printf("%s: enqueue of %u launches: %.2f us; %u raw launches: %.2f us; difference %.2f us (bound 3)\n", info.variant,
         info.launches, median(ours, COUNT) * 1e6, launches, median(raws, COUNT) * 1e6,
         median(differences, COUNT) * 1e6);
  clReleaseMemObject(in);
  if (workspace != NULL)
    clReleaseMemObject(workspace);
  clattn_plan_release(plan);
}

int main(int count, char **words) {
  bench b;
  int bad = 0;
  const int all = count >= 2 && strcmp(words[count - 1], "--all") == 0;
  const int linear = count >= 2 && strcmp(words[1], "linear") == 0;
  const int help = count == 2 && strcmp(words[1], "--help") == 0;
  if (count >= 2 && strcmp(words[1], "minilm") == 0)
    return bench_minilm(count - 2, words + 2);
  if (count > 1 + all + linear) {
    fprintf(
        help ? stdout : stderr,
        "usage: %s [linear] [--all], or minilm --help\n"
        "Measures the default variant and the three-step pipeline on the default device, as a percent of the FMA peak\n"
        "measured beside them, and the host's cost of plan creation and enqueue; with `linear` the linear layers of "
        "known\n"
        "models instead. --all: more shapes, some minutes.\n",
        words[0]);
    return help ? 0 : 2;
  }
  open_bench(&b);
  printf("%s, driver %s, %u compute units, clattn %s; medians of %d interleaved runs, wall clock\n", b.info.name,
         b.info.driver, b.info.compute_units, clattn_version(), REPEATS);
  if (linear) {
    bad = bench_linear(&b, all);
    close_bench(&b);
    return bad;
  }
  const char *baseline = (b.info.type & CL_DEVICE_TYPE_CPU) != 0 ? "three-step-cpu" : "three-step";
  for (int64_t dim = 64; dim <= 128; dim *= 2) {
    bad |= run_shape(&b, NULL, 8, 1152, dim, 0);
    bad |= run_shape(&b, baseline, 8, 1152, dim, 0);
  }
  if (all) {
    bad |= run_shape(&b, NULL, 8, 1152, 64, 1);
    bad |= run_shape(&b, NULL, 8, 2048, 64, 0);
    bad |= run_shape(&b, NULL, 1, 16384, 64, 0);
    bad |= run_shape(&b, NULL, 12, 128, 32, 0);
    bad |= run_shape(&b, "three-step", 8, 1152, 64, 0);
  }
  overheads(&b, NULL);
  overheads(&b, baseline);
  close_bench(&b);
  return bad;
}
