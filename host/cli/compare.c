/* SPDX-License-Identifier: Apache-2.0 */
/* clattn compare: saved runs of the benchmark side by side, with no device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/compare.h"
#include "bench/record.h"
#include "bench/report.h"
#include "bench/table.h"
#include "cli.h"
#include "options.h"
#include "outputs.h"
#include "words.h"

static const char help[] =
    "usage: clattn compare A.json [B.json ...] [options]\n"
    "\n"
    "Saved runs of 'clattn bench --json' side by side, joined by shape, types and pass.  No device is needed.  Notes "
    "name\n"
    "what was not alike: device, driver, clattn, timing, inputs.  Of one file its table is printed.\n"
    "\n"
    "  --variants       every variant of a problem has a row of its own; without it a run's fastest stands for it\n"
    "  --report F.html  a page with plots and tables of all runs\n"
    "  --help           this text\n"
    "\n"
    "Exit codes: 0 done; 1 the work failed; 2 wrong usage or input, or nothing to compare; 130, 143 and 129 ended by\n"
    "SIGINT, SIGTERM and SIGHUP.\n"
    "\n"
    "examples:\n"
    "  clattn compare monday.json tuesday.json\n"
    "  clattn compare cpu.json gpu.json --variants --report both.html\n";

static const struct option longs[] = {{"variants", no_argument, NULL, 'v'},
                                      {"report", required_argument, NULL, 'r'},
                                      {"help", no_argument, NULL, 'h'},
                                      {NULL, 0, NULL, 0}};

/* Before the work: the place can be written, and is none of the inputs. */
static int check_report(const char *path, char *const *inputs, int count) {
  cli_files files;
  memset(&files, 0, sizeof files);
  files.file[0].option = "report";
  files.file[0].path = path;
  const int code = cli_files_begin(&files, (const char *const *)inputs, (size_t)count);
  cli_files_discard(&files);
  return code;
}

static int compare(char *const *paths, int count, int by_variant, const char *report) {
  bench_run run[BENCH_COMPARE_MOST];
  const bench_run *runs[BENCH_COMPARE_MOST];
  const char *const *names = (const char *const *)paths;
  int code = CLI_OK;
  if (count < 1 || count > BENCH_COMPARE_MOST)
    return cli_fail(CLI_USAGE, "compare takes 1 to %d saved runs, not %d; see 'clattn compare --help'",
                    BENCH_COMPARE_MOST, count);
  memset(run, 0, sizeof run);
  code = check_report(report, paths, count);
  for (int i = 0; i < count && code == CLI_OK; i++) {
    runs[i] = &run[i];
    code = bench_run_read_json(paths[i], &run[i]);
  }
  if (code == CLI_OK && count > 1)
    code = bench_compare_print(stdout, runs, count, names, by_variant);
  else if (code == CLI_OK)
    bench_table_print(stdout, runs[0]);
  if (code == CLI_OK && report != NULL)
    code = bench_report_write(runs, count, names, "report", report);
  for (int i = 0; i < count; i++)
    bench_run_release(&run[i]);
  return code;
}

int cli_compare(int argc, char **argv) {
  const char *report = NULL;
  char **words = NULL, **paths = NULL;
  int count = 0, by_variant = 0, option;
  int code = cli_take_words(argc, argv, longs, &words, &argc, &paths, &count);
  if (code != CLI_OK)
    return code;
  while ((option = cli_next_option(argc, words, longs)) != -1) {
    if (option == 'v') {
      by_variant = 1;
    } else if (option == 'r') {
      report = optarg;
    } else {
      code = option == 'h' ? cli_print_help(help) : CLI_USAGE;
      goto done;
    }
  }
  code = compare(paths, count, by_variant, report);
done:
  free(words);
  return code;
}
