/* SPDX-License-Identifier: Apache-2.0 */
/* clattn replay: the launches of a dump once more, on any device. */
#define _POSIX_C_SOURCE 200809L
#include "replay.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "options.h"
#include "words.h"

static const char help[] =
    "usage: clattn replay DIR [options]\n"
    "\n"
    "Builds the OpenCL C of a dump ('clattn run --dump DIR'), sets its arguments, runs its launches in order, and\n"
    "compares what comes out with what is expected.  Where they differ it prints the first and the worst difference.\n"
    "program.cl of the dump may be edited; every other file must be as it was.\n"
    "\n"
    "A dump is a program: replay runs its kernels with this user's rights, and on a CPU a kernel can read and write "
    "what\n"
    "the user can.  Replay those of people whose programs you would run.\n"
    "\n"
    "  --device ID            an id or number of 'clattn devices'; default: GPUs before accelerators before CPUs\n"
    "  --build-options TEXT   compiler options instead of the dump's\n"
    "  --binary               the driver's binary of the dump instead of its source, for the same device and driver\n"
    "  --help                 this text\n"
    "\n"
    "Exit codes: 0 all outputs agree; 1 one differs, or the work failed; 2 wrong usage or input; 3 no device; 130, "
    "143\n"
    "and 129 ended by SIGINT, SIGTERM and SIGHUP.\n"
    "\n"
    "examples:\n"
    "  clattn run --problem 'hq=8 sq=128 sk=128 d=64' --dump dumped && clattn replay dumped\n"
    "  clattn replay dumped --device intel:0\n"
    "  clattn replay dumped --build-options '-cl-std=CL1.2 -cl-opt-disable'\n";

enum { OPT_DEVICE = 256, OPT_BUILD_OPTIONS, OPT_BINARY, OPT_HELP };

static const struct option longs[] = {{"device", required_argument, NULL, OPT_DEVICE},
                                      {"build-options", required_argument, NULL, OPT_BUILD_OPTIONS},
                                      {"binary", no_argument, NULL, OPT_BINARY},
                                      {"help", no_argument, NULL, OPT_HELP},
                                      {NULL, 0, NULL, 0}};

typedef struct replay_options {
  const char *folder, *device, *build_options;
  int binary;
} replay_options;

/* What runs a dump. */
typedef struct player {
  const replay_options *options;
  replay_dump dump;
  cli_session session;
  cl_program program;
  cl_mem buffers[CLI_REPLAY_MOST_BUFFERS];
} player;

/* ---- the program ---- */

static int fail_build(const player *p, cl_int status) {
  clattn_error error;
  int code = cli_error_init(&error);
  if (code != CLI_OK)
    return code;
  snprintf(error.message, sizeof error.message, "building the dump's program failed: %s", clattn_status_text(status));
  if (error.build_log != NULL && error.build_log_capacity > 0) {
    error.build_log[0] = 0;
    if (clGetProgramBuildInfo(p->program, p->session.device.device, CL_PROGRAM_BUILD_LOG, error.build_log_capacity,
                              error.build_log, NULL) != CL_SUCCESS)
      error.build_log[0] = 0; /* longer than there is room for */
    error.build_log[error.build_log_capacity - 1] = 0;
  }
  code = cli_fail_status(status, &error, p->options->folder);
  cli_error_release(&error);
  return code;
}

static int make_program(player *p) {
  const replay_dump *d = &p->dump;
  const char *options = p->options->build_options != NULL ? p->options->build_options : d->options;
  cl_int status = CL_SUCCESS, taken = CL_SUCCESS;
  char *text = NULL;
  int changed = 0;
  if (p->options->binary && d->binary.name[0] == 0)
    return cli_fail(CLI_USAGE, "--binary: %s: the dump has none; its driver gave none", p->options->folder);
  int code = p->options->binary ? replay_file_read(d, &d->binary, &text, NULL)
                                : replay_file_read(d, &d->source, &text, &changed);
  if (code != CLI_OK)
    return code;
  if (p->options->binary) {
    const size_t bytes = (size_t)d->binary.bytes;
    const unsigned char *binary = (const unsigned char *)text;
    p->program =
        clCreateProgramWithBinary(p->session.cl, 1, &p->session.device.device, &bytes, &binary, &taken, &status);
  } else {
    const char *source = text;
    p->program = clCreateProgramWithSource(p->session.cl, 1, &source, NULL, &status);
  }
  free(text);
  if (status != CL_SUCCESS) {
    p->program = NULL;
    return cli_fail_status(status, NULL,
                           p->options->binary ? "--binary: this driver does not take the dump's binary"
                                              : "the program could not be made");
  }
  if (changed)
    printf("program     %s was changed since it was dumped\n", d->source.name);
  const double start = cli_seconds();
  cli_progress_begin("building kernels", NULL, 0);
  status = clBuildProgram(p->program, 1, &p->session.device.device, options, NULL, NULL);
  cli_progress_end();
  if (status != CL_SUCCESS)
    return fail_build(p, status);
  printf("program     built from %s in %.3g s with '%s'\n", p->options->binary ? d->binary.name : d->source.name,
         cli_seconds() - start, options);
  return CLI_OK;
}

/* ---- buffers ---- */

/* Known before anything is made: all of them fit. */
static int check_sizes(const player *p) {
  const uint64_t most = p->session.info.max_alloc_bytes, all = p->session.info.global_bytes;
  uint64_t sum = 0;
  for (int i = 0; i < p->dump.buffer_count; i++) {
    const replay_buffer *buffer = &p->dump.buffers[i];
    if (buffer->bytes > most)
      return cli_fail(CLI_FAILED, "%s: %s has %" PRIu64 " bytes, the device's largest allocation %" PRIu64,
                      p->options->folder, buffer->name, buffer->bytes, most);
    sum += buffer->bytes;
    if (sum > all)
      return cli_fail(CLI_FAILED, "%s: its buffers take more than the device's memory of %" PRIu64 " bytes",
                      p->options->folder, all);
  }
  return CLI_OK;
}

static int make_buffer(player *p, int number) {
  const replay_buffer *buffer = &p->dump.buffers[number];
  const int from_file = buffer->file.name[0] != 0;
  cl_int status = CL_SUCCESS;
  char *data = NULL;
  int code = from_file ? replay_file_read(&p->dump, &buffer->file, &data, NULL) : CLI_OK;
  if (code != CLI_OK)
    return code;
  p->buffers[number] = clCreateBuffer(p->session.cl, CL_MEM_READ_WRITE | (from_file ? CL_MEM_COPY_HOST_PTR : 0),
                                      (size_t)buffer->bytes, data, &status);
  free(data);
  if (status != CL_SUCCESS)
    p->buffers[number] = NULL;
  if (status == CL_SUCCESS && !from_file)
    status = clEnqueueFillBuffer(p->session.queue, p->buffers[number], &buffer->fill, 1, 0, (size_t)buffer->bytes, 0,
                                 NULL, NULL);
  return status == CL_SUCCESS ? CLI_OK
                              : cli_fail(CLI_FAILED, "a buffer of %" PRIu64 " bytes for %s could not be made: %s",
                                         buffer->bytes, buffer->name, clattn_status_name(status));
}

/* ---- launches ---- */

static int launch(const player *p, size_t index) {
  const replay_launch *l = &p->dump.launches[index];
  cl_int status = CL_SUCCESS;
  cl_uint count = 0;
  int code = CLI_OK;
  cl_kernel kernel = clCreateKernel(p->program, l->kernel, &status);
  if (status != CL_SUCCESS)
    return cli_fail(CLI_FAILED, "launch %zu: the program gives no kernel %s: %s", index, l->kernel,
                    clattn_status_name(status));
  /* Arguments that are not set, or too many, are not left to the driver. */
  status = clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof count, &count, NULL);
  if (status == CL_SUCCESS && count != (cl_uint)l->arg_count)
    code = cli_fail(CLI_USAGE, "launch %zu: kernel %s takes %u arguments, the dump has %d", index, l->kernel, count,
                    l->arg_count);
  for (int i = 0; i < l->arg_count && status == CL_SUCCESS && code == CLI_OK; i++) {
    const replay_arg *arg = &l->args[i];
    const cl_mem buffer = arg->buffer >= 0 ? p->buffers[arg->buffer] : NULL;
    status = arg->buffer == -2 ? clSetKernelArg(kernel, (cl_uint)i, arg->bytes, arg->value)
                               : clSetKernelArg(kernel, (cl_uint)i, sizeof buffer, &buffer);
    if (status != CL_SUCCESS)
      code = cli_fail(status == CL_INVALID_ARG_SIZE || status == CL_INVALID_ARG_VALUE ? CLI_USAGE : CLI_FAILED,
                      "launch %zu: kernel %s does not take argument %d, %s: %s", index, l->kernel, i, arg->name,
                      clattn_status_name(status));
  }
  if (status == CL_SUCCESS && code == CLI_OK)
    status = clEnqueueNDRangeKernel(p->session.queue, kernel, l->dims, l->offset, l->global, l->local, 0, NULL, NULL);
  clReleaseKernel(kernel);
  if (code == CLI_OK && status != CL_SUCCESS)
    code = cli_fail(CLI_FAILED, "launch %zu: kernel %s could not be enqueued: %s", index, l->kernel,
                    clattn_status_name(status));
  return code;
}

static int run_launches(const player *p) {
  int code = CLI_OK;
  cli_progress_begin("computing", NULL, 0);
  const double start = cli_seconds();
  for (size_t i = 0; i < p->dump.launch_count && code == CLI_OK; i++)
    code = launch(p, i);
  const cl_int status = clFinish(p->session.queue);
  cli_progress_end();
  if (code == CLI_OK && status != CL_SUCCESS)
    code = cli_fail_status(status, NULL, "the computation failed on the device");
  if (code == CLI_OK)
    printf("launches    %zu in %.3g s\n", p->dump.launch_count, cli_seconds() - start);
  return code;
}

static int compare_all(const player *p) {
  int code = CLI_OK, different = 0;
  for (int i = 0; i < p->dump.output_count && code == CLI_OK; i++) {
    const replay_output *output = &p->dump.outputs[i];
    const size_t bytes = (size_t)p->dump.buffers[output->buffer].bytes;
    int differs = 0;
    char *contents = malloc(bytes);
    if (contents == NULL)
      return cli_fail_memory();
    const cl_int status =
        clEnqueueReadBuffer(p->session.queue, p->buffers[output->buffer], CL_TRUE, 0, bytes, contents, 0, NULL, NULL);
    code = status == CL_SUCCESS ? replay_compare(&p->dump, output, contents, &differs)
                                : cli_fail_status(status, NULL, "an output could not be read back");
    free(contents);
    different += differs;
  }
  return code == CLI_OK && different > 0 ? CLI_FAILED : code;
}

static int replay(const replay_options *options) {
  player p;
  memset(&p, 0, sizeof p);
  p.options = options;
  int code = replay_read(options->folder, &p.dump);
  if (code == CLI_OK)
    code = cli_session_open(options->device, &p.session);
  if (code == CLI_OK)
    code = check_sizes(&p);
  if (code != CLI_OK)
    goto done;
  printf("dump        %s, by clattn %s on %s (%s, driver %s)\n", p.dump.variant, p.dump.version, p.dump.device,
         p.dump.platform, p.dump.driver);
  printf("problem     %s\n", p.dump.problem);
  printf("device      %s  %s\n", p.session.device.id, p.session.info.name);
  for (int i = 0; i < p.dump.buffer_count && code == CLI_OK; i++)
    code = make_buffer(&p, i);
  if (code == CLI_OK)
    code = make_program(&p);
  if (code == CLI_OK)
    code = run_launches(&p);
  if (code == CLI_OK)
    code = compare_all(&p);
done:
  for (int i = 0; i < p.dump.buffer_count; i++)
    if (p.buffers[i] != NULL)
      clReleaseMemObject(p.buffers[i]);
  if (p.program != NULL)
    clReleaseProgram(p.program);
  cli_session_close(&p.session);
  replay_release(&p.dump);
  return code;
}

int cli_replay(int argc, char **argv) {
  replay_options o;
  char **words = NULL, **folders = NULL;
  int option, count = 0;
  memset(&o, 0, sizeof o);
  int code = cli_take_words(argc, argv, longs, &words, &argc, &folders, &count);
  if (code != CLI_OK)
    return code;
  while ((option = cli_next_option(argc, words, longs)) != -1) {
    if (option == OPT_DEVICE) {
      o.device = optarg;
    } else if (option == OPT_BUILD_OPTIONS) {
      o.build_options = optarg;
    } else if (option == OPT_BINARY) {
      o.binary = 1;
    } else {
      code = option == OPT_HELP ? cli_print_help(help) : CLI_USAGE;
      goto done;
    }
  }
  if (count == 1) {
    o.folder = folders[0];
    code = replay(&o);
  } else {
    code = cli_fail(CLI_USAGE, "replay takes the folder of one dump, not %d; see 'clattn replay --help'", count);
  }
done:
  free(words);
  return code;
}
