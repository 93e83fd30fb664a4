/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "sweep.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "affinity.h"
#include "baseline.h"
#include "cli.h"
#include "record.h"
#include "table.h"

/* ---- signals ---- */

static volatile sig_atomic_t came;

static void on_signal(int number) {
  came = number;
  bench_stop = 1;
}

void bench_signals_install(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  sigfillset(&action.sa_mask);
  action.sa_handler = on_signal;
  action.sa_flags = (int)SA_RESETHAND; /* a second one ends the program at once */
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGHUP, &action, NULL);
}

int bench_signal(void) {
  return (int)came;
}

/* ---- context ---- */

static void first_line_with(const char *path, const char *key, char *out, size_t capacity) {
  char line[512];
  FILE *file = fopen(path, "r");
  if (file == NULL)
    return;
  while (fgets(line, sizeof line, file) != NULL) {
    char *colon = strchr(line, ':');
    if (strncmp(line, key, strlen(key)) != 0 || colon == NULL)
      continue;
    line[strcspn(line, "\n")] = 0;
    snprintf(out, capacity, "%s", colon + 1 + (colon[1] == ' '));
    break;
  }
  fclose(file);
}

void bench_describe_host(const bench_request *request, bench_context *c) {
  struct utsname names;
  struct tm parts;
  const time_t now = time(NULL);
  snprintf(c->clattn, sizeof c->clattn, "%s", clattn_version());
  snprintf(c->command, sizeof c->command, "%s", request->command);
  if (gmtime_r(&now, &parts) != NULL)
    strftime(c->date, sizeof c->date, "%Y-%m-%dT%H:%M:%SZ", &parts);
  if (uname(&names) == 0)
    snprintf(c->os, sizeof c->os, "%s %s %s", names.sysname, names.release, names.machine);
  snprintf(c->cpu, sizeof c->cpu, "unknown");
  first_line_with("/proc/cpuinfo", "model name", c->cpu, sizeof c->cpu);
  c->pocl_affinity = cli_affinity_is_set();
}

void bench_describe_device(const clattn_device_info *info, bench_context *c) {
  snprintf(c->device, sizeof c->device, "%s", info->name);
  snprintf(c->vendor, sizeof c->vendor, "%s", info->vendor);
  snprintf(c->driver, sizeof c->driver, "%s", info->driver);
  snprintf(c->version, sizeof c->version, "%s", info->version);
  c->device_type = info->type;
  c->global_bytes = info->global_bytes;
  c->local_bytes = info->local_bytes;
  c->compute_units = info->compute_units;
  c->native_float_width = info->native_float_width;
}

static void print_context(const bench_context *c) {
  const bench_peaks *p = &c->peaks;
  fprintf(stderr, "clattn %s, %s: %s, driver %s, %u compute units\n%s; %s\n", c->clattn, c->device_id, c->device,
          c->driver, c->compute_units, c->os, c->cpu);
  fprintf(stderr, "measured: FMA %.1f GFLOP/s", p->fma_flops * 1e-9);
  if (p->half_flops > 0)
    fprintf(stderr, ", half %.1f GFLOP/s", p->half_flops * 1e-9);
  fprintf(stderr,
          ", read %.1f GB/s from memory (%" PRId64 " MiB) and %.1f GB/s from cache (%" PRId64 " KiB), %.2f G exp/s, "
          "launch %.1f us\n",
          p->memory_bytes * 1e-9, p->memory_footprint >> 20, p->cache_bytes * 1e-9, p->cache_footprint >> 10,
          p->exp2_per_second * 1e-9, (double)p->launch_ns * 1e-3);
}

/* ---- rows ---- */

/* A row that is not run. */
static int skip_row(bench_run *run, bench_table *table, const bench_shape *shape, const char *variant, double predicted,
                    const char *reason) {
  bench_row *row = bench_run_add(run);
  if (row == NULL)
    return CLI_FAILED;
  row->shape = *shape;
  row->status = BENCH_SKIPPED;
  row->predicted_seconds = predicted;
  snprintf(row->pass, sizeof row->pass, "forward");
  snprintf(row->variant, sizeof row->variant, "%s", variant != NULL ? variant : "");
  snprintf(row->reason, sizeof row->reason, "%s", reason);
  bench_table_row(table, row);
  return CLI_OK;
}

/* Why a shape is left out before it is tried; 0: it isn't. */
static int left_out(const bench_request *request, const bench_shape *shape, double predicted, double elapsed,
                    char *reason, size_t capacity) {
  const clattn_problem *p = &shape->problem;
  const double kv = (double)(p->kv_heads > 0 ? p->kv_heads : p->q_heads > 0 ? p->q_heads : 1);
  const double dims = (double)p->qk_dim + (double)(p->v_dim > 0 ? p->v_dim : p->qk_dim);
  const double bytes = 4 * (double)(p->batch > 0 ? p->batch : 1) * kv * (double)p->k_len * dims;
  if (request->slowest > 0 && predicted > request->slowest)
    snprintf(reason, capacity, "predicted %.3g s a call; --slow runs it", predicted);
  else if (request->largest > 0 && bytes > request->largest)
    snprintf(reason, capacity, "%.3g GB of keys and values to make; --slow runs it", bytes * 1e-9);
  else if (request->budget > 0 && elapsed > request->budget)
    snprintf(reason, capacity, "the time budget of %g s is used up", request->budget);
  else
    return 0;
  return 1;
}

static void progress(const bench_shape *shape, size_t at, size_t count) {
  if (isatty(STDERR_FILENO))
    fprintf(stderr, "\r\033[K%zu of %zu: %.60s\r", at + 1, count, shape->name);
}

static int run_row(const bench_request *request, const bench_device *device, bench_run *run, bench_table *table,
                   const bench_shape *shape, const char *variant, double begin) {
  char reason[BENCH_TEXT_BYTES];
  const double predicted = bench_predict(shape, &run->context.peaks);
  if (left_out(request, shape, predicted, cli_seconds() - begin, reason, sizeof reason))
    return skip_row(run, table, shape, variant, predicted, reason);
  bench_row *row = bench_run_add(run);
  if (row == NULL)
    return CLI_FAILED;
  const int code = bench_measure(device, shape, variant, &run->context.peaks, &request->settings, row);
  if (row->fma_beside > run->context.peaks.fma_flops) /* the run's peak is the best that it saw */
    run->context.peaks.fma_flops = row->fma_beside;
  if (bench_stop) { /* the call at work is not finished */
    run->count--;
    return code;
  }
  if (isatty(STDERR_FILENO))
    fprintf(stderr, "\r\033[K");
  bench_table_row(table, row);
  fflush(stdout);
  return code;
}

static int run_shape(const bench_request *request, const bench_device *device, bench_run *run, bench_table *table,
                     const bench_shape *shape, double begin) {
  int code = CLI_OK;
  if (!request->all_variants) {
    for (int i = 0; i < request->variants && code == CLI_OK && !bench_stop; i++)
      code = run_row(request, device, run, table, shape,
                     strcmp(request->variant[i], "best") == 0 ? NULL : request->variant[i], begin);
    return code;
  }
  for (uint32_t i = 0; clattn_variant_name(i) != NULL && code == CLI_OK && !bench_stop; i++)
    code = run_row(request, device, run, table, shape, clattn_variant_name(i), begin);
  return code;
}

/* ---- baseline ---- */

/* Rows that look slower, or too noisy to tell, are measured again before anything is said of them. */
static int judge(const bench_request *request, const bench_device *device, const bench_run *baseline, bench_run *run) {
  int code = CLI_OK, known = 0;
  for (size_t i = 0; i < run->count && !bench_stop; i++) {
    bench_judgement verdict;
    bench_settings settings = request->settings;
    bench_row again;
    settings.dump = NULL; /* it is there already */
    bench_baseline_judge(baseline, run, i, request->threshold, &verdict);
    known |= run->rows[i].status != BENCH_SKIPPED && verdict.verdict != BENCH_MISSING;
    if (!bench_baseline_suspect(&verdict))
      continue;
    fprintf(stderr, "again: %s, %s\n", run->rows[i].shape.name, run->rows[i].variant);
    (void)bench_measure(device, &run->rows[i].shape, run->rows[i].variant, &run->context.peaks, &settings, &again);
    if (!bench_stop)
      bench_baseline_keep(&run->rows[i], &again);
  }
  const size_t slower = bench_baseline_print(stdout, baseline, request->baseline, run, request->threshold);
  if (slower > 0 && request->fail_if_slower != NULL)
    code = cli_fail(CLI_FAILED, "%zu %s slower than the baseline by more than %g %%", slower,
                    slower == 1 ? "row is" : "rows are", request->threshold);
  else if (!known && !bench_stop && request->fail_if_slower != NULL) /* a gate that nothing goes through stands open */
    code = cli_fail(CLI_FAILED, "no row of this run is in the baseline: nothing was compared");
  return code;
}

/* ---- the whole ---- */

int bench_sweep(const bench_request *request, const char *device_name, bench_run *run) {
  bench_device device;
  bench_table table;
  bench_run baseline;
  int code = CLI_OK;
  memset(run, 0, sizeof *run);
  memset(&device, 0, sizeof device);
  memset(&baseline, 0, sizeof baseline);
  if (request->baseline != NULL) /* a bad file is known before the work */
    code = bench_run_read_json(request->baseline, &baseline);
  if (code == CLI_OK)
    code = bench_device_open(device_name, &device);
  if (code != CLI_OK)
    goto done;
  bench_describe_host(request, &run->context);
  bench_describe_device(&device.session.info, &run->context);
  snprintf(run->context.device_id, sizeof run->context.device_id, "%s", device.session.device.id);
  snprintf(run->context.platform, sizeof run->context.platform, "%s", device.session.device.platform_name);
  code = bench_probe_all(&device, &run->context.peaks);
  if (code != CLI_OK)
    goto done;
  print_context(&run->context);
  bench_table_begin(&table, stdout, request->shapes.shape, request->shapes.count);
  const double begin = cli_seconds();
  for (size_t i = 0; i < request->shapes.count && code == CLI_OK && !bench_stop; i++) {
    const bench_shape *shape = &request->shapes.shape[i];
    progress(shape, i, request->shapes.count);
    code = run_shape(request, &device, run, &table, shape, begin);
  }
  run->context.noisy = bench_run_is_noisy(run);
  bench_table_end(&table, run);
  if (code == CLI_OK && request->baseline != NULL && !bench_stop)
    code = judge(request, &device, &baseline, run);
  for (size_t i = 0; i < run->count && code == CLI_OK; i++)
    if (run->rows[i].status == BENCH_WRONG || run->rows[i].status == BENCH_FAILED)
      code = cli_fail(CLI_FAILED, "%s%s%s: %s: %s", run->rows[i].shape.name, run->rows[i].variant[0] != 0 ? ", " : "",
                      run->rows[i].variant, run->rows[i].status == BENCH_WRONG ? "wrong numbers" : "failed",
                      run->rows[i].reason);

done:
  bench_run_release(&baseline);
  bench_device_close(&device);
  return code;
}
