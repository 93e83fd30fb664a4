/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "serve.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "convert.h"
#include "measure.h"
#include "outputs.h"
#include "pass.h"
#include "record.h"
#include "suite.h"
#include "sweep.h"

enum { CALLS_MOST = 100000, CAUGHT_BYTES = 2048 };

typedef struct server {
  bench_device device;
  bench_run empty; /* context alone */
  int measured;    /* its peaks are there */
  char *problem, *input[CLI_INPUTS], *ints[CLI_INTS];
  int opened;
  cli_request request;
  cli_buffers buffers;
  cli_pass pass;
  cl_mem workspace;
  int done;
} server;

/* ---- what is open ---- */

static void close_pass(server *s) {
  if (s->workspace != NULL)
    clReleaseMemObject(s->workspace);
  cli_pass_close(&s->device.session, &s->pass);
  cli_buffers_release(&s->buffers);
  cli_request_close(&s->request);
  memset(&s->pass, 0, sizeof s->pass);
  memset(&s->request, 0, sizeof s->request);
  s->workspace = NULL;
  s->opened = 0;
}

static void forget_problem(server *s) {
  close_pass(s);
  free(s->problem);
  s->problem = NULL;
  for (int i = 0; i < CLI_INPUTS; i++) {
    free(s->input[i]);
    s->input[i] = NULL;
  }
  for (int i = 0; i < CLI_INTS; i++) {
    free(s->ints[i]);
    s->ints[i] = NULL;
  }
}

/* One call, waited for: until it was enqueued, and in all. */
static int call(server *s, double *enqueue, double *seconds) {
  clattn_args args;
  clattn_error error;
  int code = cli_error_init(&error);
  if (code != CLI_OK)
    return code;
  cli_pass_args(&s->request, &s->buffers, &s->pass, &args);
  args.error = &error;
  if (s->workspace != NULL)
    args.workspace = clattn_buffer(s->workspace, 0);
  const double start = cli_seconds();
  clattn_status status = clattn_enqueue(s->pass.plan, s->device.queue, &args, 0, NULL, NULL);
  *enqueue = cli_seconds() - start;
  const cl_int finished = clFinish(s->device.queue);
  *seconds = cli_seconds() - start;
  if (status != CLATTN_SUCCESS)
    code = cli_fail_status(status, &error, "run");
  else if (finished != CL_SUCCESS)
    code = cli_fail_status(finished, NULL, "the computation failed on the device");
  cli_error_release(&error);
  return code;
}

static int open_request(server *s) {
  cli_request_options options;
  memset(&options, 0, sizeof options);
  options.line = s->problem;
  options.seed = "1";
  for (int i = 0; i < CLI_INPUTS; i++)
    options.input[i] = s->input[i];
  for (int i = 0; i < CLI_INTS; i++)
    options.ints[i] = s->ints[i];
  int code = cli_request_make(&options, &s->request);
  if (code == CLI_OK && s->request.problem.outputs == 0)
    s->request.problem.outputs = CLATTN_OUT_O;
  if (code == CLI_OK)
    code = cli_request_draw(&s->request, s->device.session.info.max_alloc_bytes);
  return code;
}

static int open_pass(server *s, const char *variant) {
  const clattn_problem *problem = &s->request.problem;
  int code = cli_pass_plan(&s->device.session, problem, problem->outputs, problem->stage, variant, 0, &s->pass);
  if (code == CLI_OK)
    code = cli_buffers_make(&s->device.session, &s->request, &s->buffers);
  if (code == CLI_OK && s->pass.info.workspace_bytes > 0) {
    const size_t bytes = (size_t)s->pass.info.workspace_bytes;
    cl_int status = CL_SUCCESS;
    s->workspace = clCreateBuffer(s->device.session.cl, CL_MEM_READ_WRITE, bytes, NULL, &status);
    if (status != CL_SUCCESS) {
      s->workspace = NULL;
      code = cli_fail_status(status, NULL, "making the workspace");
    }
  }
  return code;
}

static int need_open(const server *s) {
  return s->opened ? CLI_OK : cli_fail(CLI_USAGE, "nothing is open: 'problem LINE' and 'open' come first");
}

/* ---- commands: `rest` is what stands behind the word, "" where there is nothing ---- */

static int do_context(server *s, char *rest, cli_bytes *out) {
  bench_context *c = &s->empty.context;
  bench_request request;
  (void)rest;
  memset(&request, 0, sizeof request);
  request.command = "clattn bench --serve";
  bench_describe_host(&request, c);
  bench_describe_device(&s->device.session.info, c);
  snprintf(c->device_id, sizeof c->device_id, "%s", s->device.session.device.id);
  snprintf(c->platform, sizeof c->platform, "%s", s->device.session.device.platform_name);
  int code = bench_probe_all(&s->device, &c->peaks);
  s->measured = code == CLI_OK;
  if (code == CLI_OK)
    code = bench_run_json(&s->empty, out);
  for (size_t i = 0; i < out->count; i++) /* line ends of JSON are blanks: those of texts are escaped */
    out->data[i] = (char)(out->data[i] == '\n' ? ' ' : out->data[i]);
  return code;
}

static void put_shapes(const server *s, const bench_shapes *shapes, cli_bytes *out) {
  cli_bytes_text(out, "{\"shapes\": [");
  for (size_t i = 0; i < shapes->count; i++) {
    const bench_shape *shape = &shapes->shape[i];
    const struct {
      const char *name, *text;
    } texts[] = {{"name", shape->name}, {"suite", shape->suite}, {"source", shape->source}, {"problem", shape->line}};
    cli_bytes_text(out, i > 0 ? ", {" : "{");
    for (size_t t = 0; t < sizeof texts / sizeof texts[0]; t++) {
      cli_bytes_format(out, "\"%s\": ", texts[t].name);
      cli_bytes_json(out, texts[t].text);
      cli_bytes_text(out, ", ");
    }
    if (s->measured)
      cli_bytes_format(out, "\"predicted_seconds\": %.9g}", bench_predict(shape, &s->empty.context.peaks));
    else
      cli_bytes_text(out, "\"predicted_seconds\": null}");
  }
  cli_bytes_text(out, "]}");
}

static int do_suite(server *s, char *rest, cli_bytes *out) {
  bench_shapes shapes = {NULL, 0, 0};
  const int code = bench_suite_add(rest, &shapes);
  if (code == CLI_OK)
    put_shapes(s, &shapes, out);
  bench_shapes_free(&shapes);
  return code;
}

static int do_shape(server *s, char *rest, cli_bytes *out) {
  bench_shapes shapes = {NULL, 0, 0};
  const int code = bench_sweep_add(rest, &shapes);
  if (code == CLI_OK)
    put_shapes(s, &shapes, out);
  bench_shapes_free(&shapes);
  return code;
}

/* A line that is wrong is told here, not at "open". */
static int do_problem(server *s, char *rest, cli_bytes *out) {
  clattn_problem problem;
  clattn_error error;
  forget_problem(s);
  clattn_error_init(&error);
  clattn_status status = clattn_problem_parse(rest, &problem, &error);
  if (status == CLATTN_SUCCESS)
    status = clattn_problem_check(&problem, &error);
  if (status != CLATTN_SUCCESS)
    return cli_fail_status(status, &error, "problem");
  s->problem = strdup(rest);
  if (s->problem == NULL)
    return cli_fail_memory();
  cli_bytes_text(out, "{\"problem\": ");
  cli_bytes_json(out, rest);
  cli_bytes_text(out, "}");
  return CLI_OK;
}

/* Where the path of an input is kept; NULL: no input has this name. */
static char **place_of(server *s, const char *name) {
  for (int i = 0; i < CLI_INPUTS; i++)
    if (strcmp(cli_input_name(i), name) == 0)
      return &s->input[i];
  for (int i = 0; i < CLI_INTS; i++)
    if (i != CLI_Q_OFFSETS && strcmp(cli_ints_name(i), name) == 0)
      return &s->ints[i];
  return NULL;
}

static int do_input(server *s, char *rest, cli_bytes *out) {
  char *blank = strchr(rest, ' ');
  if (s->problem == NULL)
    return cli_fail(CLI_USAGE, "input: there is no problem yet: 'problem LINE' comes first");
  if (s->opened)
    return cli_fail(CLI_USAGE, "input: the problem is open already; 'close' comes first");
  if (blank == NULL || blank[1] == 0)
    return cli_fail(CLI_USAGE, "input: '%s' is no NAME PATH", rest);
  *blank = 0;
  char **place = place_of(s, rest);
  if (place == NULL)
    return cli_fail(CLI_USAGE, "input: no input is called '%s'", rest);
  char *path = strdup(blank + 1);
  if (path == NULL)
    return cli_fail_memory();
  free(*place);
  *place = path;
  cli_bytes_text(out, "{\"input\": ");
  cli_bytes_json(out, rest);
  cli_bytes_text(out, "}");
  return CLI_OK;
}

static int do_open(server *s, char *rest, cli_bytes *out) {
  double enqueue = 0, seconds = 0;
  if (s->problem == NULL)
    return cli_fail(CLI_USAGE, "open: there is no problem yet: 'problem LINE' comes first");
  if (s->opened)
    return cli_fail(CLI_USAGE, "open: the problem is open already; 'close' comes first");
  int code = open_request(s);
  if (code == CLI_OK)
    code = open_pass(s, *rest != 0 ? rest : NULL);
  if (code == CLI_OK)
    code = call(s, &enqueue, &seconds);
  if (code != CLI_OK) {
    close_pass(s);
    return code;
  }
  s->opened = 1;
  const clattn_plan_info *info = &s->pass.info;
  cli_bytes_text(out, "{\"variant\": ");
  cli_bytes_json(out, info->variant);
  cli_bytes_text(out, ", \"why\": ");
  cli_bytes_json(out, info->why);
  cli_bytes_format(out, ", \"launches\": %" PRIu32 ", \"workspace_bytes\": %" PRIu64 ", \"pairs\": %" PRIu64,
                   info->launches, info->workspace_bytes, info->pairs);
  cli_bytes_format(out, ", \"flops\": %" PRIu64 ", \"bytes\": %" PRIu64, info->flops, info->bytes);
  cli_bytes_format(out, ", \"build_seconds\": %.9g, \"first_call_seconds\": %.9g}", info->build_seconds, seconds);
  return CLI_OK;
}

static int do_run(server *s, char *rest, cli_bytes *out) {
  int64_t count = 0;
  double enqueue = 0, seconds = 0;
  cli_bytes enqueues;
  int code = need_open(s);
  if (code != CLI_OK)
    return code;
  if (!cli_parse_int64(rest, &count) || count < 1 || count > CALLS_MOST)
    return cli_fail(CLI_USAGE, "run: '%s' is no number of calls from 1 to %d", rest, CALLS_MOST);
  memset(&enqueues, 0, sizeof enqueues);
  cli_bytes_text(out, "{\"seconds\": [");
  for (int64_t i = 0; i < count && code == CLI_OK; i++) {
    code = call(s, &enqueue, &seconds);
    cli_bytes_format(out, i > 0 ? ", %.9g" : "%.9g", seconds);
    cli_bytes_format(&enqueues, i > 0 ? ", %.9g" : "%.9g", enqueue);
  }
  cli_bytes_text(out, "], \"enqueue_seconds\": [");
  cli_bytes_add(out, enqueues.data, enqueues.count);
  cli_bytes_text(out, "]}");
  out->failed |= enqueues.failed;
  cli_bytes_release(&enqueues);
  return code;
}

/* Read, not mapped: the next call writes into the same buffer. */
static int read_output(server *s, void **out) {
  const cli_result *result = &s->pass.result[CLI_O];
  size_t bytes = 0;
  *out = NULL;
  if (result->buffer == NULL)
    return cli_fail(CLI_USAGE, "save: the problem has no output o");
  cl_int status = clGetMemObjectInfo(result->buffer, CL_MEM_SIZE, sizeof bytes, &bytes, NULL);
  if (status == CL_SUCCESS && (*out = malloc(bytes)) == NULL)
    return cli_fail_memory();
  if (status == CL_SUCCESS)
    status = clEnqueueReadBuffer(s->device.queue, result->buffer, CL_TRUE, 0, bytes, *out, 0, NULL, NULL);
  return status == CL_SUCCESS ? CLI_OK : cli_fail_status(status, NULL, "reading the output");
}

static int do_save(server *s, char *rest, cli_bytes *out) {
  const cli_result *result = &s->pass.result[CLI_O];
  const char *inputs[CLI_INPUTS + CLI_INTS];
  int64_t shape[4], stride[4];
  void *data = NULL;
  cli_files files;
  int code = need_open(s);
  if (code != CLI_OK)
    return code;
  for (int i = 0; i < CLI_INPUTS; i++)
    inputs[i] = s->input[i];
  for (int i = 0; i < CLI_INTS; i++)
    inputs[CLI_INPUTS + i] = s->ints[i];
  memset(&files, 0, sizeof files);
  files.file[0].option = "save";
  files.file[0].path = rest;
  code = cli_files_begin(&files, inputs, CLI_INPUTS + CLI_INTS);
  if (code == CLI_OK)
    code = read_output(s, &data);
  if (code == CLI_OK) {
    const int rank = cli_result_shape(&s->pass, CLI_O, shape);
    memcpy(stride, result->stride, sizeof stride);
    if (rank == 3) { /* packed: (row, head, element) */
      stride[0] = result->stride[2];
      stride[1] = result->stride[1];
      stride[2] = result->stride[3];
    }
    code = cli_files_put(&files.file[0], cli_dtype_npy(result->dtype), rank, shape, stride, data);
  }
  if (code == CLI_OK)
    code = cli_files_commit(&files);
  cli_files_discard(&files);
  free(data);
  cli_bytes_text(out, "{\"saved\": ");
  cli_bytes_json(out, rest);
  cli_bytes_text(out, "}");
  return code;
}

static int do_probe(server *s, char *rest, cli_bytes *out) {
  (void)rest;
  const double rate = bench_probe_fma(&s->device);
  cli_bytes_format(out, "{\"fma_flops_per_second\": %.9g}", rate);
  return rate > 0 ? CLI_OK : CLI_FAILED;
}

static int do_close(server *s, char *rest, cli_bytes *out) {
  (void)rest;
  forget_problem(s);
  cli_bytes_text(out, "{\"closed\": true}");
  return CLI_OK;
}

static int do_quit(server *s, char *rest, cli_bytes *out) {
  (void)rest;
  s->done = 1;
  cli_bytes_text(out, "{\"quit\": true}");
  return CLI_OK;
}

/* ---- the loop ---- */

typedef enum takes { NOTHING, SOMETHING, EITHER } takes;

static const struct {
  const char *word;
  takes takes;
  int (*run)(server *s, char *rest, cli_bytes *out);
} commands[] = {{"context", NOTHING, do_context},   {"suite", SOMETHING, do_suite}, {"shape", SOMETHING, do_shape},
                {"problem", SOMETHING, do_problem}, {"input", SOMETHING, do_input}, {"open", EITHER, do_open},
                {"run", SOMETHING, do_run},         {"save", SOMETHING, do_save},   {"probe", NOTHING, do_probe},
                {"close", NOTHING, do_close},       {"quit", NOTHING, do_quit}};

static int answer(server *s, char *line, cli_bytes *out) {
  char *rest = strchr(line, ' ');
  if (rest != NULL)
    *rest++ = 0;
  else
    rest = line + strlen(line);
  for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
    if (strcmp(commands[i].word, line) != 0)
      continue;
    if (commands[i].takes == NOTHING && *rest != 0)
      return cli_fail(CLI_USAGE, "%s takes nothing, not '%s'", line, rest);
    if (commands[i].takes == SOMETHING && *rest == 0)
      return cli_fail(CLI_USAGE, "%s needs something behind it", line);
    return commands[i].run(s, rest, out);
  }
  return cli_fail(CLI_USAGE, "there is no command '%s'", line);
}

/* Commands are text: a line with a 0 in it would be cut in silence. */
static int take_line(server *s, char *line, size_t length, cli_bytes *out) {
  if (strlen(line) != length)
    return cli_fail(CLI_USAGE, "a line with a 0 byte in it");
  while (length > 0 && (line[length - 1] == '\n' || line[length - 1] == '\r'))
    line[--length] = 0;
  return answer(s, line, out);
}

/* Returns whether the answer went out. */
static int serve_line(server *s, char *line, size_t length) {
  static char caught[CAUGHT_BYTES];
  cli_bytes out;
  memset(&out, 0, sizeof out);
  caught[0] = 0;
  cli_fail_catch(caught, sizeof caught);
  const int code = take_line(s, line, length, &out);
  cli_fail_catch(NULL, 0);
  if (code != CLI_OK) {
    cli_bytes_release(&out);
    memset(&out, 0, sizeof out);
    cli_bytes_text(&out, "{\"error\": ");
    cli_bytes_json(&out, caught);
    cli_bytes_text(&out, "}");
  }
  cli_bytes_text(&out, "\n");
  if (out.failed)
    fputs("{\"error\": \"not enough memory on the host\"}\n", stdout);
  else
    fwrite(out.data, 1, out.count, stdout);
  cli_bytes_release(&out);
  return fflush(stdout) == 0;
}

int bench_serve(const char *device) {
  static server s; /* large */
  char *line = NULL;
  size_t capacity = 0;
  ssize_t length;
  memset(&s, 0, sizeof s);
  int code = bench_device_open(device, &s.device);
  if (code != CLI_OK)
    return code;
  while (!s.done && (length = getline(&line, &capacity, stdin)) >= 0) {
    if (!serve_line(&s, line, (size_t)length)) {
      code = CLI_FAILED; /* nobody reads any more */
      break;
    }
  }
  free(line);
  forget_problem(&s);
  bench_device_close(&s.device);
  return code;
}
