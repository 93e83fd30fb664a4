/* SPDX-License-Identifier: Apache-2.0 */
/* clattn warm: builds the kernels of a list of problems and keeps them in a disk cache. */
#define _POSIX_C_SOURCE 200809L
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "cli.h"
#include "device.h"
#include "options.h"
#include "setup.h"

static const char help[] =
    "usage: clattn warm --problems FILE --cache FOLDER [options]\n"
    "\n"
    "Builds the kernels that a list of problems needs and keeps them in a disk cache, so that the first call of a "
    "program\n"
    "that uses the same folder (clattn_context_options.cache_folder; --cache of run and devices) finds them "
    "there.\n"
    "\n"
    "  --problems FILE  a problem line per line: \"hq=8 sq=128 sk=128 d=64 causal=1\", or as the library logs them, "
    "with\n"
    "                   \"plan: VARIANT: \" in front, which does not count; nor do empty lines and what follows a #;\n"
    "                   - is stdin\n"
    "  --cache FOLDER   where built kernels are kept; made if it is not there, for this user alone\n"
    "  --device ID      an id of 'clattn devices', or a number counting them from 0; the library's own choice without "
    "it\n"
    "  --tuning FILE    tiles of kernels that 'clattn tune' measured on the device: those that run with it builds\n"
    "  --config TEXT    config_text of the library's context: see clattn.h\n"
    "  --allow-amx      for programs that set allow_amx in their context's options, as 'clattn run' does: where the "
    "CPU "
    "has\n"
    "                   AMX, bf16 problems may have other kernels with it than without\n"
    "  --help           this text\n"
    "\n"
    "A line of the report for each problem: built or from cache, seconds (next to none where a problem above needed "
    "the same\n"
    "kernels), and the variant; then, if anything was kept, what that took.\n"
    "\n"
    "Exit codes: 0; 1 when kernels can't be built or the cache can't be used; 2 for a line that can't be read or is "
    "no\n"
    "problem that the device takes; 3 no device.\n"
    "\n"
    "examples:\n"
    "  clattn warm --problems shapes.txt --cache ~/.cache/clattn\n"
    "  echo 'hq=8 sq=128 sk=128 d=64' | clattn warm --problems - --cache /tmp/kernels\n";

typedef struct problem_list {
  clattn_problem *problem;
  char **line;
  size_t count, capacity;
} problem_list;

static void free_list(problem_list *list) {
  for (size_t i = 0; i < list->count; i++)
    free(list->line[i]);
  free(list->line);
  free(list->problem);
}

static int grow(problem_list *list) {
  if (list->count < list->capacity)
    return CLI_OK;
  const size_t capacity = list->capacity > 0 ? 2 * list->capacity : 16;
  clattn_problem *problem = realloc(list->problem, capacity * sizeof *problem);
  if (problem != NULL)
    list->problem = problem;
  char **line = realloc(list->line, capacity * sizeof *line);
  if (line != NULL)
    list->line = line;
  if (problem == NULL || line == NULL) {
    (void)cli_fail_memory();
    return CLI_FAILED;
  }
  list->capacity = capacity;
  return CLI_OK;
}

/* A line without its comment, and without blanks at its ends. */
static char *trim(char *line) {
  line[strcspn(line, "#\r\n")] = 0;
  line += strspn(line, " \t");
  size_t length = strlen(line);
  while (length > 0 && (line[length - 1] == ' ' || line[length - 1] == '\t'))
    line[--length] = 0;
  return line;
}

/* In the log a problem line has words in front: "plan: VARIANT: ". */
static const char *problem_of(const char *text) {
  static const char start[] = "plan: ";
  if (strncmp(text, start, sizeof start - 1) != 0)
    return text;
  const char *end = strstr(text + sizeof start - 1, ": ");
  return end != NULL ? end + 2 : text;
}

static int add_line(const char *path, size_t number, char *line, problem_list *list) {
  clattn_error error;
  const char *text = problem_of(trim(line));
  if (*text == 0)
    return CLI_OK;
  int code = grow(list);
  if (code != CLI_OK)
    return code;
  clattn_error_init(&error);
  clattn_problem *problem = &list->problem[list->count];
  clattn_status status = clattn_problem_parse(text, problem, &error);
  if (status == CLATTN_SUCCESS)
    status = clattn_problem_check(problem, &error);
  if (status != CLATTN_SUCCESS)
    return cli_fail(CLI_USAGE, "--problems %s: line %zu: %s", path, number, error.message);
  list->line[list->count] = strdup(text);
  if (list->line[list->count] == NULL)
    return cli_fail_memory();
  list->count++;
  return CLI_OK;
}

static int read_list(const char *path, problem_list *list) {
  char *line = NULL;
  size_t room = 0, number = 0;
  ssize_t length;
  int code = CLI_OK;
  FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
  if (file == NULL)
    return cli_fail(CLI_USAGE, "--problems %s: can't be opened", path);
  while (code == CLI_OK && (length = getline(&line, &room, file)) >= 0) {
    number++;
    code = strlen(line) == (size_t)length
               ? add_line(path, number, line, list)
               : cli_fail(CLI_USAGE, "--problems %s: line %zu: byte %zu is 0; it must be text", path, number,
                          strlen(line));
  }
  if (code == CLI_OK && ferror(file))
    code = cli_fail(CLI_USAGE, "--problems %s: can't be read", path);
  if (code == CLI_OK && list->count == 0)
    code = cli_fail(CLI_USAGE, "--problems %s: no problem in it", path);
  free(line);
  if (file != stdin)
    fclose(file);
  return code;
}

typedef struct report {
  clattn_context *context;
  const problem_list *list;
  double last;
  size_t done;
  int failed; /* 1: memory for the report itself */
} report;

/* After each problem: its programs are there now, so that a plan of it tells where they came from. */
static int tell(void *user, size_t done, size_t count) {
  report *r = user;
  clattn_plan *plan = NULL;
  clattn_plan_info info;
  const double now = cli_seconds();
  (void)count;
  clattn_plan_info_init(&info);
  if (clattn_plan_create(r->context, &r->list->problem[done - 1], NULL, &plan, NULL) != CLATTN_SUCCESS ||
      clattn_plan_get_info(plan, &info) != CLATTN_SUCCESS)
    r->failed = 1;
  else
    printf("%-10s  %8.3f s  %-16s  %s\n", info.from_cache ? "from cache" : "built", now - r->last, info.variant,
           r->list->line[done - 1]);
  (void)fflush(stdout);
  clattn_plan_release(plan);
  r->done = done;
  r->last = cli_seconds();
  return !r->failed;
}

static int warm(cli_session *session, const problem_list *list) {
  clattn_error error;
  int code = cli_error_init(&error);
  if (code != CLI_OK)
    return code;
  report r = {.context = session->context, .list = list, .last = cli_seconds()};
  const clattn_status status = clattn_prebuild(session->context, list->problem, list->count, tell, &r, &error);
  if (status != CLATTN_SUCCESS)
    code = cli_fail_status(status, &error, r.done < list->count ? list->line[r.done] : "prebuild");
  else if (r.failed)
    code = cli_fail_memory();
  else if (cli_cache_written() > 0)
    printf("%-10s  %8.3f s\n", "kept", cli_seconds() - r.last);
  cli_error_release(&error);
  return code;
}

/* Whether the next process will find it all. */
static int check_kept(const cli_session *session, const problem_list *list) {
  for (size_t i = 0; i < list->count; i++) {
    clattn_plan *plan = NULL;
    clattn_plan_info info;
    clattn_plan_info_init(&info);
    const clattn_status status = clattn_plan_create(session->context, &list->problem[i], NULL, &plan, NULL);
    if (status == CLATTN_SUCCESS)
      (void)clattn_plan_get_info(plan, &info);
    clattn_plan_release(plan);
    if (status != CLATTN_SUCCESS)
      return cli_fail_status(status, NULL, list->line[i]);
    if (!info.from_cache)
      return cli_fail(CLI_FAILED, "%s: built, but not to be had from the cache", list->line[i]);
  }
  return CLI_OK;
}

int cli_warm(int argc, char **argv) {
  static const struct option longs[] = {
      {"problems", required_argument, NULL, 'p'}, {"cache", required_argument, NULL, 'c'},
      {"device", required_argument, NULL, 'd'},   {"tuning", required_argument, NULL, 't'},
      {"config", required_argument, NULL, 'g'},   {"allow-amx", no_argument, NULL, 'a'},
      {"help", no_argument, NULL, 'h'},           {NULL, 0, NULL, 0}};
  const char *path = NULL, *cache = NULL, *device = NULL;
  problem_list list = {NULL, NULL, 0, 0};
  cli_session session;
  cli_setup setup;
  int option;
  memset(&setup, 0, sizeof setup);
  setup.without_amx = 1; /* the kernels are for another program, which the library lets use AMX only if it says so */
  while ((option = cli_next_option(argc, argv, longs)) != -1) {
    if (option == 'p')
      path = optarg;
    else if (option == 'c')
      cache = optarg;
    else if (option == 'd')
      device = optarg;
    else if (option == 't')
      setup.tuning = optarg;
    else if (option == 'g')
      setup.config = optarg;
    else if (option == 'a')
      setup.without_amx = 0;
    else if (option == 'h')
      return cli_print_help(help);
    else
      return CLI_USAGE;
  }
  if (path == NULL || cache == NULL)
    return cli_fail(CLI_USAGE, "%s is missing; see 'clattn warm --help'", path == NULL ? "--problems" : "--cache");
  cli_cache_use(cache);
  int code = read_list(path, &list);
  if (code == CLI_OK)
    code = cli_setup_begin(&setup);
  for (int again = 0; again < 2 && code == CLI_OK; again++) {
    code = cli_session_open(device, &session);
    if (code != CLI_OK)
      break;
    if (cli_cache_refused())
      code = cli_fail(CLI_FAILED, "--cache %s: it can't be used, so nothing is built", cache);
    else
      code = again ? check_kept(&session, &list) : warm(&session, &list);
    cli_session_close(&session);
  }
  cli_setup_end(&setup);
  free_list(&list);
  return code;
}
