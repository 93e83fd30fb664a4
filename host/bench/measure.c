/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "measure.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "convert.h"
#include "dump.h"
#include "pass.h"
#include "request.h"
#include "verify.h"

enum {
  SAMPLES_LEAST = 3,
  SAMPLES_MOST = 1000,
  COPIES_MOST = 128,
  PARTS_MOST = 4096,
  EVENTS_MOST = 64,
  PROBES_MOST = 3
};

static const double STEADY = 0.95; /* of the run's FMA peak: below it the device is slower than it was */

volatile int bench_stop;

/* ---- prediction ---- */

double bench_predict(const bench_shape *shape, const bench_peaks *peaks) {
  clattn_problem p = shape->problem;
  const double batch = (double)(p.batch > 0 ? p.batch : 1), heads = (double)(p.q_heads > 0 ? p.q_heads : 1);
  const double kv = (double)(p.kv_heads > 0 ? p.kv_heads : p.q_heads > 0 ? p.q_heads : 1);
  const double dims = (double)p.qk_dim + (double)(p.v_dim > 0 ? p.v_dim : p.qk_dim);
  double pairs = (double)p.q_len * (double)p.k_len;
  if (p.causal && p.offset_mode == CLATTN_OFFSET_TOP_LEFT && p.k_len >= p.q_len)
    pairs = (double)p.q_len * (double)(p.q_len + 1) / 2;
  else if (p.causal && p.k_len >= p.q_len)
    pairs -= (double)p.q_len * (double)(p.q_len - 1) / 2;
  const double flops = 2 * batch * heads * pairs * dims;
  const double bytes = batch * kv * (double)p.k_len * dims * 4;
  const double compute = peaks->fma_flops > 0 ? flops / (0.5 * peaks->fma_flops) : 0;
  const double memory = peaks->memory_bytes > 0 ? bytes / (0.5 * peaks->memory_bytes) : 0;
  return (compute > memory ? compute : memory) + (double)peaks->launch_ns * 1e-9;
}

/* ---- what a row needs ---- */

/* A part of the query rows, with a plan of its own; the whole call where it needn't be split. */
typedef struct part {
  clattn_plan *plan;
  int64_t first, rows;
  uint32_t launches;
} part;

typedef struct job {
  const bench_device *device;
  const bench_settings *settings;
  const char *variant;
  cli_request request;
  cli_pass pass; /* of the whole problem: verified */
  cli_buffers copies[COPIES_MOST];
  cl_mem outputs[COPIES_MOST][CLI_OUTPUTS]; /* not the pass's own, which are mapped */
  int copy_count;
  part *parts;
  int64_t part_count;
  cl_mem workspace;
  uint64_t workspace_bytes;
  char caught[BENCH_TEXT_BYTES];
} job;

static void close_job(job *j) {
  for (int64_t i = 0; i < j->part_count; i++)
    clattn_plan_release(j->parts[i].plan);
  free(j->parts);
  for (int i = 0; i < j->copy_count; i++) {
    cli_buffers_release(&j->copies[i]);
    for (int n = 0; n < CLI_OUTPUTS; n++)
      if (j->outputs[i][n] != NULL)
        clReleaseMemObject(j->outputs[i][n]);
  }
  if (j->workspace != NULL)
    clReleaseMemObject(j->workspace);
  cli_pass_close(&j->device->session, &j->pass);
  cli_request_close(&j->request);
}

static void row_says(bench_row *row, bench_status status, const char *reason) {
  row->status = status;
  snprintf(row->reason, sizeof row->reason, "%.255s", reason);
}

/* Bytes of every tensor of the problem, and of the largest one. */
static void footprint(const clattn_problem *problem, double *all, double *largest) {
  clattn_problem p = *problem;
  *all = *largest = 0;
  for (int i = 0; i < CLI_INPUTS; i++) {
    int64_t shape[4], stride[4];
    if (!cli_input_used(&p, i) || cli_input_tensor(&p, i) == NULL)
      continue;
    cli_input_shape(&p, i, shape);
    if (!cli_input_strides(&p, i, shape, stride))
      continue;
    const int mask = i == CLI_KEEP_MASK || i == CLI_BLOCK_MASK;
    const double element = mask ? (i == CLI_KEEP_MASK && p.keep_mask_kind == CLATTN_MASK_U8 ? 1 : 4)
                                : (double)cli_dtype_bytes(cli_input_tensor(&p, i)->dtype, 8) / 8;
    const double bytes = (double)cli_extent(shape, stride) * element;
    *all += bytes;
    *largest = bytes > *largest ? bytes : *largest;
  }
  const double rows = (double)p.batch * (double)p.q_heads * (double)p.q_len;
  const double results[3] = {
      rows * (double)p.v_dim * (double)cli_dtype_bytes(p.o.dtype, 1),
      p.outputs & CLATTN_OUT_SCORES ? rows * (double)p.k_len * (double)cli_dtype_bytes(p.scores.dtype, 1) : 0,
      p.outputs & CLATTN_OUT_LSE ? rows * 4 : 0};
  for (int i = 0; i < 3; i++) {
    *all += results[i];
    *largest = results[i] > *largest ? results[i] : *largest;
  }
}

/* ---- opening ---- */

static int64_t nanoseconds(double seconds) {
  return (int64_t)(seconds * 1e9 + 0.5);
}

/* The request of a problem line with drawn inputs, the pass that is verified, and what it says of the plan. */
static int open_whole(job *j, const bench_shape *shape, bench_row *row) {
  cli_request_options options;
  clattn_support support;
  double all = 0, largest = 0;
  memset(&options, 0, sizeof options);
  options.line = shape->line;
  options.seed = "1";
  int code = cli_request_make(&options, &j->request);
  if (code != CLI_OK) {
    row_says(row, BENCH_FAILED, j->caught);
    return code;
  }
  if (j->request.problem.outputs == 0)
    j->request.problem.outputs = CLATTN_OUT_O;
  clattn_support_init(&support);
  if (clattn_supported(j->device->session.context, &j->request.problem, j->variant, &support) != CLATTN_SUCCESS) {
    row_says(row, BENCH_SKIPPED, support.reason);
    return CLI_FAILED;
  }
  footprint(&j->request.problem, &all, &largest);
  if (largest > (double)j->device->session.info.max_alloc_bytes ||
      all > 0.8 * (double)j->device->session.info.global_bytes) {
    char text[BENCH_TEXT_BYTES];
    snprintf(text, sizeof text, "does not fit: %.0f MB in all, %.0f MB in one buffer; the device has %.0f and %.0f",
             all * 1e-6, largest * 1e-6, (double)j->device->session.info.global_bytes * 1e-6,
             (double)j->device->session.info.max_alloc_bytes * 1e-6);
    row_says(row, BENCH_SKIPPED, text);
    return CLI_FAILED;
  }
  code = cli_request_draw(&j->request, j->device->session.info.max_alloc_bytes);
  if (code == CLI_OK)
    code = cli_buffers_make(&j->device->session, &j->request, &j->copies[0]);
  if (code == CLI_OK) {
    j->copy_count = 1;
    code = cli_pass_plan(&j->device->session, &j->request.problem, j->request.problem.outputs, j->request.problem.stage,
                         j->variant, 0, &j->pass);
  }
  if (code != CLI_OK)
    row_says(row, BENCH_FAILED, j->caught);
  return code;
}

/* Rows that a launch takes at most; all of them where the prediction allows it. */
static int64_t rows_of_a_launch(const job *j, double predicted) {
  const int64_t rows = j->request.problem.q_len;
  if (j->settings->launch_seconds <= 0 || predicted <= j->settings->launch_seconds)
    return rows;
  const int64_t most = (int64_t)((double)rows * j->settings->launch_seconds / predicted);
  return most < 1 ? 1 : most;
}

/* Splitting needs strides and positions that a part can be given. */
static int can_split(const clattn_problem *p) {
  return p->outputs == CLATTN_OUT_O && p->q.layout != CLATTN_LAYOUT_PACKED &&
         p->offset_mode != CLATTN_OFFSET_PER_BATCH && !p->use_bias && p->keep_mask_kind == CLATTN_MASK_NONE &&
         p->block_mask_kind == CLATTN_MASK_NONE && p->q_length_mode == CLATTN_LENGTH_FULL && p->hook == NULL &&
         p->rope == CLATTN_ROPE_NONE &&
         (p->offset_mode != CLATTN_OFFSET_BOTTOM_RIGHT || p->k_length_mode == CLATTN_LENGTH_FULL);
}

/* The problem of the rows from `first` on: tensors as they lie, positions moved. */
static void problem_of_part(const clattn_problem *whole, int64_t first, int64_t rows, clattn_problem *out) {
  int64_t shape[4] = {whole->batch, whole->q_heads, whole->q_len, whole->qk_dim}, stride[4];
  *out = *whole;
  clattn_problem in = *whole;
  if (cli_input_strides(&in, CLI_Q, shape, stride))
    out->q = clattn_strided(whole->q.dtype, stride[0], stride[1], stride[2], stride[3]);
  shape[3] = whole->v_dim;
  if (cli_strides(&whole->o, shape, stride))
    out->o = clattn_strided(whole->o.dtype, stride[0], stride[1], stride[2], stride[3]);
  out->q_len = rows;
  const int64_t offset = whole->offset_mode == CLATTN_OFFSET_BOTTOM_RIGHT ? whole->k_len - whole->q_len
                         : whole->offset_mode == CLATTN_OFFSET_VALUE      ? whole->offset
                                                                          : 0;
  out->offset_mode = CLATTN_OFFSET_VALUE;
  out->offset = offset + first;
}

static int open_parts(job *j, bench_row *row) {
  const clattn_problem *whole = &j->pass.problem;
  const int64_t rows = rows_of_a_launch(j, row->predicted_seconds);
  const int64_t count = whole->q_len > 0 ? (whole->q_len + rows - 1) / rows : 1;
  if (count > 1 && (!can_split(whole) || count > PARTS_MOST)) {
    row_says(row, BENCH_SKIPPED, "one launch would take too long, and this problem can't be split: --max-launch-ms 0");
    return CLI_FAILED;
  }
  j->parts = calloc((size_t)count, sizeof *j->parts);
  if (j->parts == NULL) {
    row_says(row, BENCH_FAILED, "not enough memory on the host");
    return CLI_FAILED;
  }
  for (int64_t i = 0; i < count; i++) {
    clattn_problem problem = *whole;
    clattn_plan_options options;
    clattn_plan_info info;
    clattn_error error;
    part *p = &j->parts[i];
    p->first = i * rows;
    p->rows = count > 1 && p->first + rows > whole->q_len ? whole->q_len - p->first : rows;
    if (count > 1)
      problem_of_part(whole, p->first, p->rows, &problem);
    clattn_error_init(&error);
    clattn_plan_options_init(&options);
    options.variant = j->pass.info.variant;
    const double start = cli_seconds();
    if (clattn_plan_create(j->device->session.context, &problem, &options, &p->plan, &error) != CLATTN_SUCCESS) {
      row_says(row, BENCH_FAILED, error.message);
      return CLI_FAILED;
    }
    row->plan_ns = nanoseconds(cli_seconds() - start); /* warm: the whole plan was made before */
    j->part_count++;
    clattn_plan_info_init(&info);
    if (clattn_plan_get_info(p->plan, &info) != CLATTN_SUCCESS) {
      row_says(row, BENCH_FAILED, "the plan of a part does not tell about itself");
      return CLI_FAILED;
    }
    p->launches = info.launches;
    if (info.workspace_bytes > j->workspace_bytes)
      j->workspace_bytes = info.workspace_bytes;
  }
  if (j->workspace_bytes > 0) {
    cl_int code = CL_SUCCESS;
    j->workspace = clCreateBuffer(j->device->session.cl, CL_MEM_READ_WRITE, (size_t)j->workspace_bytes, NULL, &code);
    if (code != CL_SUCCESS) {
      j->workspace = NULL;
      row_says(row, BENCH_FAILED, "out of memory for the workspace");
      return CLI_FAILED;
    }
  }
  row->workspace_bytes = j->workspace_bytes;
  return CLI_OK;
}

static int add_outputs(job *j, int copy, bench_row *row) {
  for (int n = 0; n < CLI_OUTPUTS; n++) {
    size_t bytes = 0;
    if (j->pass.result[n].buffer == NULL)
      continue;
    cl_int status = clGetMemObjectInfo(j->pass.result[n].buffer, CL_MEM_SIZE, sizeof bytes, &bytes, NULL);
    if (status == CL_SUCCESS)
      j->outputs[copy][n] = clCreateBuffer(j->device->session.cl, CL_MEM_READ_WRITE, bytes, NULL, &status);
    if (status != CL_SUCCESS) {
      j->outputs[copy][n] = NULL;
      row_says(row, BENCH_FAILED, "out of memory for the output");
      return CLI_FAILED;
    }
  }
  return CLI_OK;
}

/* Copies of inputs and output, so that no call finds its own in a cache: twice the last cache in all. */
static int open_copies(job *j, bench_row *row) {
  double all = 0, largest = 0;
  int wanted = 1;
  footprint(&j->request.problem, &all, &largest);
  if (j->settings->cold)
    wanted = (int)ceil(2 * j->device->cache_bytes_most / (all > 1 ? all : 1)) + 1;
  wanted = wanted > COPIES_MOST ? COPIES_MOST : wanted;
  while (wanted > 1 && all * wanted > 0.5 * (double)j->device->session.info.global_bytes)
    wanted--;
  if (add_outputs(j, 0, row) != CLI_OK)
    return CLI_FAILED;
  while (j->copy_count < wanted) {
    if (cli_buffers_make(&j->device->session, &j->request, &j->copies[j->copy_count]) != CLI_OK) {
      row_says(row, BENCH_FAILED, j->caught);
      return CLI_FAILED;
    }
    j->copy_count++;
    if (add_outputs(j, j->copy_count - 1, row) != CLI_OK)
      return CLI_FAILED;
  }
  /* small shapes would need more copies than there are: then the row says that it is hot */
  row->cold = all * j->copy_count >= 1.9 * j->device->cache_bytes_most;
  return CLI_OK;
}

/* ---- timing ---- */

typedef struct call {
  double wall, events, enqueue; /* seconds; events < 0: none */
  uint32_t launches;
} call;

static int one_call(job *j, int copy, call *out, bench_row *row) {
  cl_event events[EVENTS_MOST];
  uint32_t recorded = 0;
  int told = j->device->events; /* every launch so far has its event */
  clattn_error error;
  clattn_status status = CLATTN_SUCCESS;
  clattn_error_init(&error);
  memset(out, 0, sizeof *out);
  const double start = cli_seconds();
  for (int64_t i = 0; i < j->part_count && status == CLATTN_SUCCESS; i++) {
    const part *p = &j->parts[i];
    clattn_args args;
    uint32_t launches = 0;
    cli_pass whole = j->pass;
    for (int n = 0; n < CLI_OUTPUTS; n++)
      whole.result[n].buffer = j->outputs[copy][n];
    cli_pass_args(&j->request, &j->copies[copy], &whole, &args);
    args.error = &error;
    args.workspace = clattn_buffer(j->workspace, 0);
    if (j->part_count > 1) {
      int64_t shape[4] = {whole.problem.batch, whole.problem.q_heads, whole.problem.q_len, whole.problem.qk_dim};
      int64_t stride[4] = {0, 0, 0, 0};
      if (cli_input_strides(&whole.problem, CLI_Q, shape, stride))
        args.q.offset += (uint64_t)(p->first * stride[2]) * cli_dtype_bytes(whole.problem.q.dtype, 1);
      args.o.offset += (uint64_t)(p->first * whole.result[CLI_O].stride[2]) * cli_dtype_bytes(whole.problem.o.dtype, 1);
    }
    if (told && recorded + p->launches <= EVENTS_MOST) {
      args.launch_events = events + recorded;
      args.launch_events_capacity = EVENTS_MOST - recorded;
      args.num_launch_events = &launches;
    } else {
      told = 0;
    }
    status = clattn_enqueue(p->plan, j->device->queue, &args, 0, NULL, NULL);
    recorded += status == CLATTN_SUCCESS ? launches : 0;
    out->launches += told ? launches : p->launches;
  }
  out->enqueue = cli_seconds() - start;
  cl_int finished = clFinish(j->device->queue);
  out->wall = cli_seconds() - start;
  out->events = told && recorded > 0 ? bench_event_seconds(events, recorded) : -1;
  for (uint32_t i = 0; i < recorded; i++)
    clReleaseEvent(events[i]);
  if (status == CLATTN_SUCCESS && finished != CL_SUCCESS) {
    status = finished;
    snprintf(error.message, sizeof error.message, "the computation failed on the device: %s",
             clattn_status_text(finished));
  }
  if (status == CLATTN_SUCCESS)
    return CLI_OK;
  row_says(row, BENCH_FAILED, error.message[0] != 0 ? error.message : clattn_status_text(status));
  return CLI_FAILED;
}

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Sorted values at a quarter, between neighbours. */
static double quantile(const double *sorted, int count, double at) {
  const double place = at * (count - 1);
  const int below = (int)place;
  return below + 1 < count ? sorted[below] + (place - below) * (sorted[below + 1] - sorted[below]) : sorted[below];
}

static void summarise(double *seconds, int count, bench_row *row) {
  qsort(seconds, (size_t)count, sizeof *seconds, by_value);
  row->samples = count;
  row->median_ns = nanoseconds(quantile(seconds, count, 0.5));
  row->minimum_ns = nanoseconds(seconds[0]);
  row->first_quartile_ns = nanoseconds(quantile(seconds, count, 0.25));
  row->third_quartile_ns = nanoseconds(quantile(seconds, count, 0.75));
  row->spread =
      row->median_ns > 0 ? (double)(row->third_quartile_ns - row->first_quartile_ns) / (double)row->median_ns : 0;
}

static int judge(const cli_pass *pass, const cli_verification *report, job *j, bench_row *row) {
  row->verified_rows = report->rows;
  row->error = report->difference[CLI_O];
  if (cli_verified(report))
    return CLI_OK;
  (void)cli_verify_fail(pass, report);
  row_says(row, BENCH_WRONG, j->caught);
  return CLI_FAILED;
}

/* The whole call, made once and verified.  One that must be split is never made whole. */
static int run_whole(job *j, bench_row *row) {
  cli_verification report;
  if (j->part_count > 1)
    return CLI_OK;
  if (cli_pass_run(&j->device->session, &j->request, &j->copies[0], &j->pass) != CLI_OK) {
    row_says(row, BENCH_FAILED, j->caught);
    return CLI_FAILED;
  }
  row->first_call_ns = nanoseconds(j->pass.seconds);
  if (!j->settings->verify)
    return CLI_OK;
  if (cli_verify(&j->request, &j->pass, &report) != CLI_OK) {
    row_says(row, BENCH_FAILED, j->caught);
    return CLI_FAILED;
  }
  return judge(&j->pass, &report, j, row);
}

/* Calls that were split compute by other plans than the whole one: their output is verified, too. */
static int verify_parts(job *j, bench_row *row) {
  const cli_result *whole = &j->pass.result[CLI_O];
  cli_verification report;
  int code = CLI_FAILED;
  if (!j->settings->verify || j->part_count == 1 || j->outputs[0][CLI_O] == NULL)
    return CLI_OK;
  const size_t count = (size_t)cli_extent(whole->shape, whole->stride);
  const size_t bytes = cli_dtype_bytes(whole->dtype, count);
  void *stored = malloc(bytes > 0 ? bytes : 1);
  float *numbers = malloc((count > 0 ? count : 1) * sizeof *numbers);
  if (stored == NULL || numbers == NULL ||
      clEnqueueReadBuffer(j->device->queue, j->outputs[0][CLI_O], CL_TRUE, 0, bytes, stored, 0, NULL, NULL) !=
          CL_SUCCESS) {
    row_says(row, BENCH_FAILED, "the output of the split call could not be read back");
    goto done;
  }
  cli_dtype_convert(whole->dtype, stored, CLATTN_F32, numbers, count);
  cli_pass split = j->pass;
  split.result[CLI_O].stored = stored;
  split.result[CLI_O].data = numbers;
  if (cli_verify(&j->request, &split, &report) != CLI_OK) {
    row_says(row, BENCH_FAILED, j->caught);
  } else {
    code = judge(&split, &report, j, row);
  }

done:
  free(stored);
  free(numbers);
  return code;
}

/* Seconds in the order of the calls: the second half's median is more than a tenth above the first's. */
static int slowed_down(const double *seconds, int count) {
  static double sorted[SAMPLES_MOST];
  double median[2];
  const int half = count / 2;
  for (int i = 0; i < 2; i++) {
    memcpy(sorted, seconds + (i == 0 ? 0 : count - half), (size_t)half * sizeof *sorted);
    qsort(sorted, (size_t)half, sizeof *sorted, by_value);
    median[i] = half > 0 ? quantile(sorted, half, 0.5) : 0;
  }
  return half >= SAMPLES_LEAST && median[1] > 1.1 * median[0];
}

static int time_calls(job *j, const bench_peaks *peaks, bench_row *row) {
  static double wall[SAMPLES_MOST], events[SAMPLES_MOST], enqueue[SAMPLES_MOST];
  int count = 0, doubted = 0, every = 1;
  call c;
  /* a second call may still compile, and caches and clocks settle */
  if (one_call(j, 0, &c, row) != CLI_OK || verify_parts(j, row) != CLI_OK)
    return CLI_FAILED;
  row->launches = (int32_t)c.launches;
  if (j->part_count > 1)
    row->first_call_ns = nanoseconds(c.wall);
  const double begin = cli_seconds();
  while (count < SAMPLES_MOST && !bench_stop &&
         (count < SAMPLES_LEAST || cli_seconds() - begin < j->settings->row_seconds)) {
    if (one_call(j, (count + 1) % j->copy_count, &c, row) != CLI_OK)
      return CLI_FAILED;
    wall[count] = c.wall;
    events[count] = c.events;
    enqueue[count] = c.enqueue;
    every &= c.events >= 0;
    doubted += !bench_events_believable(c.events, c.wall, c.launches * (double)peaks->launch_ns * 1e-9);
    count++;
  }
  if (count < SAMPLES_LEAST)
    return CLI_FAILED;
  /* a call or two were disturbed where something else ran; of short calls the probes know better */
  row->clock_suspect = every && (5 * doubted > count || j->device->clock_suspect);
  row->by_events = every && !row->clock_suspect;
  row->throttled |= slowed_down(row->by_events ? events : wall, count);
  summarise(row->by_events ? events : wall, count, row);
  qsort(enqueue, (size_t)count, sizeof *enqueue, by_value);
  row->enqueue_ns = nanoseconds(quantile(enqueue, count, 0.5));
  return CLI_OK;
}

/* ---- the row ---- */

/* "003-pocl-0-bert-base-512-flash-cpu-vector": what is no plain name becomes '-'. */
static void dump_name(const job *j, const bench_shape *shape, int number, char *name, size_t capacity) {
  snprintf(name, capacity, "%03d-%.20s-%.48s-%.40s", number, j->device->session.device.id, shape->name,
           j->pass.info.variant);
  for (char *c = name; *c != 0; c++)
    *c = (char)(cli_folder_plain_name((const char[]){*c, 0}) || *c == '.' ? *c : '-');
}

/* The whole call as files, before it runs.  A call that must be split is never made whole, so it can't be dumped. */
static int dump_whole(job *j, const bench_shape *shape, bench_row *row) {
  bench_dump *dump = j->settings->dump;
  char name[CLI_FOLDER_NAME_BYTES];
  cli_folder folder;
  uint32_t launches = 0;
  if (dump == NULL)
    return CLI_OK;
  if (j->part_count > 1) {
    row_says(row, BENCH_FAILED, "--dump: the call is split for --max-launch-ms; --max-launch-ms 0 never splits");
    return CLI_FAILED;
  }
  dump_name(j, shape, ++dump->rows, name, sizeof name);
  int code = cli_folder_make_in(&dump->folder, name, &folder);
  if (code == CLI_OK)
    code = cli_dump(&j->device->session, &j->request, &j->copies[0], &j->pass, &folder, &launches);
  cli_folder_close(&folder);
  if (code != CLI_OK)
    row_says(row, BENCH_FAILED, j->caught);
  return code;
}

/* FlashAttention's papers count 4 b h s_q s_k d, half of it when causal. */
static uint64_t flash_flops(const clattn_problem *p) {
  const uint64_t all = 2 * (uint64_t)p->batch * (uint64_t)p->q_heads * (uint64_t)p->q_len * (uint64_t)p->k_len *
                       (uint64_t)(p->qk_dim + p->v_dim);
  return p->causal ? all / 2 : all;
}

static void fill_rates(const bench_peaks *peaks, bench_row *row) {
  const double seconds = (double)row->median_ns * 1e-9;
  if (!(seconds > 0))
    return;
  const double fma = row->fma_beside > 0 ? row->fma_beside : peaks->fma_flops;
  row->flops_per_second = (double)row->flops / seconds;
  row->bytes_per_second = (double)row->bytes / seconds;
  const double by_work = fma > 0 ? (double)row->flops / fma : 0;
  const double by_memory = peaks->memory_bytes > 0 ? (double)row->bytes / peaks->memory_bytes : 0;
  row->bound = by_memory > by_work ? BENCH_BOUND_MEMORY : BENCH_BOUND_FMA;
  row->percent_of_bound = 100 * (by_memory > by_work ? by_memory : by_work) / seconds;
}

/* The FMA probe before or behind a row.  Again where it is slow: something else may have run for a moment, while a clock
 * that fell stays where it is. */
static double fma_beside(const bench_device *device, const bench_peaks *peaks) {
  double best = 0;
  for (int i = 0; i < PROBES_MOST && best < STEADY * peaks->fma_flops; i++) {
    const double now = bench_probe_fma(device);
    best = now > best ? now : best;
  }
  return best;
}

int bench_measure(const bench_device *device, const bench_shape *shape, const char *variant, const bench_peaks *peaks,
                  const bench_settings *settings, bench_row *row) {
  static job j; /* large */
  memset(&j, 0, sizeof j);
  memset(row, 0, sizeof *row);
  row->shape = *shape;
  snprintf(row->pass, sizeof row->pass, "forward");
  snprintf(row->variant, sizeof row->variant, "%s", variant != NULL ? variant : "");
  row->predicted_seconds = bench_predict(shape, peaks);
  j.device = device;
  j.settings = settings;
  j.variant = variant;
  cli_fail_catch(j.caught, sizeof j.caught);
  if (open_whole(&j, shape, row) != CLI_OK)
    goto done;
  snprintf(row->variant, sizeof row->variant, "%s", j.pass.info.variant);
  snprintf(row->reason, sizeof row->reason, "%.255s", j.pass.info.why);
  row->build_ns = nanoseconds(j.pass.info.build_seconds);
  row->pairs = j.pass.info.pairs;
  row->flops = j.pass.info.flops;
  row->bytes = j.pass.info.bytes;
  row->flash_flops = flash_flops(&j.pass.problem);
  if (open_parts(&j, row) != CLI_OK || dump_whole(&j, shape, row) != CLI_OK || run_whole(&j, row) != CLI_OK ||
      open_copies(&j, row) != CLI_OK)
    goto done;
  const double before = settings->probe_beside ? fma_beside(device, peaks) : 0;
  const int timed = time_calls(&j, peaks, row);
  if (settings->probe_beside) {
    const double behind = fma_beside(device, peaks), worse = behind < before ? behind : before;
    row->fma_beside = behind > before ? behind : before;
    row->throttled |= worse > 0 && worse < STEADY * peaks->fma_flops;
  }
  if (timed == CLI_OK)
    fill_rates(peaks, row);
  else if (row->status == BENCH_OK)
    row_says(row, BENCH_SKIPPED, "interrupted");

done:
  cli_fail_catch(NULL, 0);
  close_job(&j);
  return CLI_OK;
}
