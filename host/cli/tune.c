/* SPDX-License-Identifier: Apache-2.0 */
/* clattn tune: tiles of kernels that are faster on a device than the ones that selection takes by rule. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <string.h>

#include "affinity.h"
#include "bench/sweep.h"
#include "bench/tune.h"
#include "cli.h"
#include "options.h"
#include "setup.h"

static const char help[] =
    "usage: clattn tune [options]\n"
    "\n"
    "Measures which tiles of the kernels are fastest on a device, and writes the ones that beat the usual tile by "
    "more\n"
    "than 3 % into a file for --tuning of 'clattn run', 'warm' and 'bench', and for tuning_text in clattn.h.  A tile "
    "is\n"
    "verified against double precision before it is timed, and timed in turns with the usual one.  The file is good\n"
    "for this device, driver and version of clattn, and grows line by line: started again, the command goes on where "
    "it\n"
    "ended, and does not try again what ended the process.  It works without AMX: flash-cpu-amx has no tiles to\n"
    "tune, and for bf16 the kernels are tuned that run where it doesn't.\n"
    "\n"
    "  --device ID                an id or number of 'clattn devices'\n"
    "  --suite NAME|FILE[:NAME]   shapes, as for 'clattn bench'; the first of each class of problems is measured\n"
    "  --shape KEY=VALUE,...      a shape, as for 'clattn bench'; repeatable\n"
    "  --variant NAME             kernels to tune; default: what selection picks\n"
    "  --budget SECONDS           no new tile after this time, but one in each start; default 600.  A class of\n"
    "                             problems whose tiles are not all tried is left to the next start\n"
    "  --out FILE                 default clattn-DEVICE.tuning\n"
    "  --config TEXT              config_text of the library's context: see clattn.h\n"
    "  --help                     this text\n"
    "\n"
    "exit codes: 0 done, or the budget is used up; 1 a usual tile was wrong or failed, or OpenCL, memory or the file\n"
    "did; 2 options, names, a file that is not this device's, or no shape that could be tuned; 3 no device\n"
    "\n"
    "examples:\n"
    "  clattn tune --suite cpu --budget 300 --out cpu.tuning\n"
    "  clattn bench --suite cpu --tuning cpu.tuning\n";

enum { OPTION_SUITE = CLI_REPEATABLE, OPTION_SHAPE };

static const struct option longs[] = {{"device", required_argument, NULL, 'd'},
                                      {"suite", required_argument, NULL, OPTION_SUITE},
                                      {"shape", required_argument, NULL, OPTION_SHAPE},
                                      {"variant", required_argument, NULL, 'v'},
                                      {"budget", required_argument, NULL, 'b'},
                                      {"out", required_argument, NULL, 'o'},
                                      {"config", required_argument, NULL, 'c'},
                                      {"help", no_argument, NULL, 'h'},
                                      {NULL, 0, NULL, 0}};

static int take_budget(const char *text, double *out) {
  float value = 0;
  const int code = cli_take_float("budget", text, &value);
  if (code == CLI_OK && !(value > 0.0f && value <= 1e6f))
    return cli_fail(CLI_USAGE, "--budget: %s is not above 0 and up to 1000000", text);
  *out = (double)value;
  return code;
}

static int take_option(int option, tune_request *request, cli_setup *setup) {
  switch (option) {
  case OPTION_SUITE:
    return bench_suite_add(optarg, &request->shapes);
  case OPTION_SHAPE:
    return bench_sweep_add(optarg, &request->shapes);
  case 'd':
    request->device = optarg;
    return CLI_OK;
  case 'v':
    request->variant = optarg;
    return CLI_OK;
  case 'b':
    return take_budget(optarg, &request->budget);
  case 'o':
    request->path = optarg;
    return CLI_OK;
  case 'c':
    request->config = setup->config = optarg;
    return CLI_OK;
  default:
    return CLI_USAGE;
  }
}

int cli_tune(int argc, char **argv) {
  tune_request request;
  cli_setup setup;
  int option, code = CLI_OK;
  memset(&request, 0, sizeof request);
  memset(&setup, 0, sizeof setup);
  request.budget = 600;
  setup.without_amx = 1;
  while (code == CLI_OK && (option = cli_next_option(argc, argv, longs)) != -1) {
    if (option == 'h') {
      code = cli_print_help(help);
      goto done;
    }
    code = take_option(option, &request, &setup);
  }
  if (code == CLI_OK && request.shapes.count == 0)
    code = bench_suite_add(NULL, &request.shapes);
  if (code == CLI_OK)
    code = cli_setup_begin(&setup);
  if (code != CLI_OK)
    goto done;
  cli_affinity_set();
  bench_signals_install();
  code = bench_tune(&request);
  if (bench_signal() != 0)
    code = 128 + bench_signal();

done:
  cli_setup_end(&setup);
  bench_shapes_free(&request.shapes);
  return code;
}
