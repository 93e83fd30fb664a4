/* SPDX-License-Identifier: Apache-2.0 */
/* The clattn program: attention from the command line, through the library's public interface. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "options.h"

static const char help[] =
    "usage: clattn COMMAND [options]\n"
    "\n"
    "Attention through OpenCL, on any vendor's GPU or on the CPU.\n"
    "\n"
    "  clattn devices    list OpenCL devices, what the choice of kernels knows of them, and what runs there\n"
    "  clattn run        compute attention on arrays from files, text or a seed\n"
    "  clattn explain    show every step on matrices up to 8 x 8\n"
    "  clattn merge      put together attention that was computed over parts of the keys\n"
    "  clattn bench      measure attention on a device, as a percent of what the device can do\n"
    "  clattn tune       measure which tiles of the kernels are fastest on a device\n"
    "  clattn compare    saved runs of the benchmark side by side\n"
    "  clattn warm       build the kernels of a list of problems ahead, into a disk cache\n"
    "  clattn replay     run the kernels of a dump once more, and compare\n"
    "  clattn embed      sentences as vectors, by a model of the BERT family\n"
    "  clattn view       what a model's heads look at in a sentence\n"
    "\n"
    "  clattn COMMAND --help   options and examples of a command\n"
    "  clattn --version        the version\n"
    "\n"
    "Exit codes: 0 done; 1 the work failed; 2 wrong usage or input; 3 no device; 130, 143 and 129 ended by SIGINT,\n"
    "SIGTERM and SIGHUP.\n"
    "\n"
    "examples:\n"
    "  clattn explain --q '1 0; 0 1' --k '1 0; 0 1' --v '1 2; 3 4'\n"
    "  clattn run --q q.npy --k k.npy --v v.npy --causal --out o.npy\n";

static const struct {
  const char *name;
  int (*run)(int argc, char **argv);
} commands[] = {{"devices", cli_devices}, {"run", cli_run},   {"explain", cli_explain}, {"merge", cli_merge},
                {"embed", cli_embed},     {"view", cli_view}, {"bench", cli_bench},     {"compare", cli_compare},
                {"tune", cli_tune},       {"warm", cli_warm}, {"replay", cli_replay}};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

static int unknown(const char *word) {
  const char *names[COMMANDS];
  for (size_t i = 0; i < COMMANDS; i++)
    names[i] = commands[i].name;
  const char *near = cli_nearest(word, names, COMMANDS);
  if (near != NULL)
    return cli_fail(CLI_USAGE, "unknown command '%s'; did you mean '%s'? See 'clattn --help'", word, near);
  return cli_fail(CLI_USAGE, "unknown %s '%s'; see 'clattn --help'", word[0] == '-' ? "option" : "command", word);
}

int main(int argc, char **argv) {
  cli_signals_install();
  if (argc < 2) {
    fputs(help, stderr);
    return CLI_USAGE;
  }
  const char *word = argv[1];
  if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0)
    return cli_flush(cli_print_help(help));
  if (strcmp(word, "--version") == 0) {
    printf("clattn %s\n", clattn_version());
    return cli_flush(CLI_OK);
  }
  for (size_t i = 0; i < COMMANDS; i++) {
    if (strcmp(word, commands[i].name) == 0)
      return cli_flush(commands[i].run(argc - 1, argv + 1));
  }
  return unknown(word);
}
