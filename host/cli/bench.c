/* SPDX-License-Identifier: Apache-2.0 */
/* clattn bench: attention's speed on a device, as a percent of what the device can do. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "affinity.h"
#include "cli.h"
#include "convert.h"
#include "options.h"
#include "outputs.h"
#include "setup.h"
#include "bench/record.h"
#include "bench/report.h"
#include "bench/serve.h"
#include "bench/sweep.h"

static const char help[] =
    "usage: clattn bench [options]\n"
    "\n"
    "Measures attention on a device.  First what the device can do at most: fused multiply-adds, read bandwidth from "
    "memory\n"
    "and cache, exponentials, launch latency; then every shape, verified against double precision before it is timed, "
    "as\n"
    "a percent of the bound that applies.  The default suite takes shapes of known models, predicted at most 1 s a "
    "call.\n"
    "\n"
    "what to run\n"
    "  --suite NAME|FILE[:NAME]   shapes of a table: a suite of the program's own, or a file like bench/suites.txt\n"
    "  --shape KEY=VALUE,...      a shape, in the words of a problem line; values may be lists (d=64,128) and ranges\n"
    "                             (sk=512..65536:x2, sq=16..64:+16); repeatable\n"
    "  --problem LINE             a problem line, as it is logged; repeatable\n"
    "  --list                     names the suites and the shapes of the chosen one, and runs nothing\n"
    "  --serve                    commands from stdin, one a line, answers as JSON: for scripts such as "
    "bench/peers.py, see\n"
    "                             host/bench/serve.h\n"
    "  --quick                    the suite quick: six shapes, below 30 s\n"
    "  --only prefill|decode      shapes of more than 8 query rows, or of at most 8\n"
    "  --slow                     also shapes predicted above 1 s a call, or of more than 1 GB of keys and values\n"
    "  --variant all|best|NAME,...   default best: what selection picks\n"
    "  --dtype T,...              f32, f16, bf16 for q, k, v and o, or i8, i4 for k and v; default: as the shapes say\n"
    "  --pass forward             the only one of this release\n"
    "\n"
    "how\n"
    "  --device ID|all            an id or number of 'clattn devices'; all: one after the other\n"
    "  --time-per-row S           seconds of timing, default 0.5; at least three calls, at most a thousand\n"
    "  --time-budget S            no new row after this time; default 0: no limit\n"
    "  --max-launch-ms MS         calls predicted above it are split by query rows, so that no watchdog resets a "
    "desktop,\n"
    "                             or not run where that can't be done (masks, biases); default 1000, 0 never splits\n"
    "  --inputs cold|hot          cold, the default: inputs rotate beyond the last cache\n"
    "  --tuning FILE              tiles of kernels that 'clattn tune' measured on the device\n"
    "  --config TEXT              config_text of the library's context, \"forbid=fused;width=4\": see clattn.h\n"
    "  --no-verify                don't compare with double precision before timing\n"
    "  --device-facts F.json      a device that is not there, by 'clattn devices --json': what selection would pick; "
    "with\n"
    "                             \"peaks\": {\"fma_flops\": F, \"memory_bytes\": B} a second in it, predicted times "
    "too\n"
    "\n"
    "what comes of it\n"
    "  --json F, --csv F          all of it, with the whole context; bench/schema.json describes the first\n"
    "  --report F.html            a page with roofline, bars and tables\n"
    "  --dump DIR                 every row's kernels as files, in a folder of its own in DIR, which must be new or "
    "empty;\n"
    "                             'clattn replay' runs one: see 'clattn run --help'\n"
    "  --baseline F.json          verdicts against a saved run; rows that look slower are measured again first\n"
    "  --fail-if-slower PERCENT   exit code 1 if a row is slower than the baseline by more\n"
    "  --help                     this text\n"
    "\n"
    "Where the program may use every CPU, and POCL_AFFINITY is not set, it is set to 1: PoCL then binds each of its\n"
    "threads to a core.\n"
    "\n"
    "With several devices the files' names get the device's id: out.json becomes out.pocl-0.json.\n"
    "Exit codes: 0 done; 1 the work failed, a variant computes wrong numbers, or a row is slower; 2 wrong usage or "
    "input;\n"
    "3 no device; 129, 130 and 143 ended by SIGHUP, SIGINT and SIGTERM: what was finished is written.\n"
    "\n"
    "examples:\n"
    "  clattn bench --quick\n"
    "  clattn bench --shape b=1,hq=32,hkv=8,sq=1,sk=512..65536:x2,d=128,off=bottom_right --variant all\n"
    "  clattn bench --suite decoders --json today.json --report today.html\n"
    "  clattn bench --suite cpu --baseline yesterday.json --fail-if-slower 5\n";

enum {
  OPTION_SHAPE = CLI_REPEATABLE,
  OPTION_PROBLEM,
  OPTION_SUITE,
  OPTION_VARIANT = 'v',
  FILE_JSON = 0,
  FILE_CSV,
  FILE_REPORT,
  LEAST_DECODE = 8,
  SUITE_FILES = 8
};

static const struct option longs[] = {{"suite", required_argument, NULL, OPTION_SUITE},
                                      {"shape", required_argument, NULL, OPTION_SHAPE},
                                      {"problem", required_argument, NULL, OPTION_PROBLEM},
                                      {"list", no_argument, NULL, 'l'},
                                      {"serve", no_argument, NULL, 'e'},
                                      {"quick", no_argument, NULL, 'q'},
                                      {"only", required_argument, NULL, 'o'},
                                      {"slow", no_argument, NULL, 's'},
                                      {"variant", required_argument, NULL, OPTION_VARIANT},
                                      {"dtype", required_argument, NULL, 't'},
                                      {"pass", required_argument, NULL, 'p'},
                                      {"device", required_argument, NULL, 'd'},
                                      {"time-per-row", required_argument, NULL, 'r'},
                                      {"time-budget", required_argument, NULL, 'b'},
                                      {"max-launch-ms", required_argument, NULL, 'm'},
                                      {"inputs", required_argument, NULL, 'i'},
                                      {"no-verify", no_argument, NULL, 'n'},
                                      {"device-facts", required_argument, NULL, 'f'},
                                      {"tuning", required_argument, NULL, 'u'},
                                      {"config", required_argument, NULL, 'g'},
                                      {"json", required_argument, NULL, 'j'},
                                      {"csv", required_argument, NULL, 'c'},
                                      {"report", required_argument, NULL, 'h' + 256},
                                      {"dump", required_argument, NULL, 'x'},
                                      {"baseline", required_argument, NULL, 'a'},
                                      {"fail-if-slower", required_argument, NULL, 'w'},
                                      {"help", no_argument, NULL, 'h'},
                                      {NULL, 0, NULL, 0}};

typedef struct bench_options {
  bench_request request;
  cli_setup setup;
  const char *device, *facts, *json, *csv, *report, *only, *dtype, *dump;
  char *variants;                  /* the text that request.variant points into */
  const char *suites[SUITE_FILES]; /* that may be files */
  int suite_count;
  int list, quick, slow, serve;
  bench_dump dumps;
} bench_options;

/* ---- options ---- */

static int take_seconds(const char *option, const char *text, double least, double *out) {
  float value = 0;
  const int code = cli_take_float(option, text, &value);
  if (code != CLI_OK)
    return code;
  if (!((double)value >= least && value <= 1e6f))
    return cli_fail(CLI_USAGE, "--%s: %s is not %g to 1000000", option, text, least);
  *out = (double)value;
  return CLI_OK;
}

static int known_variant(const char *name) {
  for (uint32_t i = 0; clattn_variant_name(i) != NULL; i++)
    if (strcmp(clattn_variant_name(i), name) == 0)
      return 1;
  return 0;
}

static int take_variants(bench_options *o, const char *text) {
  free(o->variants);
  o->variants = strdup(text);
  if (o->variants == NULL)
    return cli_fail_memory();
  o->request.variants = o->request.all_variants = 0;
  for (char *word = o->variants, *next = NULL; word != NULL; word = next) {
    next = strchr(word, ',');
    if (next != NULL)
      *next++ = 0;
    if (strcmp(word, "all") == 0 && o->request.variants == 0 && next == NULL) {
      o->request.all_variants = 1;
      return CLI_OK;
    }
    if (strcmp(word, "best") != 0 && !known_variant(word)) {
      const char *names[BENCH_VARIANTS_MOST];
      size_t count = 0;
      while (count < BENCH_VARIANTS_MOST && clattn_variant_name((uint32_t)count) != NULL) {
        names[count] = clattn_variant_name((uint32_t)count);
        count++;
      }
      const char *near = cli_nearest(word, names, count);
      return cli_fail(CLI_USAGE, "--variant: there is no variant '%s'%s%s%s; 'clattn devices' lists them", word,
                      near != NULL ? "; did you mean '" : "", near != NULL ? near : "", near != NULL ? "'?" : "");
    }
    if (o->request.variants == BENCH_VARIANTS_MOST)
      return cli_fail(CLI_USAGE, "--variant: more than %d names", BENCH_VARIANTS_MOST);
    o->request.variant[o->request.variants++] = word;
  }
  return CLI_OK;
}

static int take_word(const char *option, const char *text, const char *first, const char *second, int *which) {
  *which = strcmp(text, second) == 0;
  if (*which || strcmp(text, first) == 0)
    return CLI_OK;
  return cli_fail(CLI_USAGE, "--%s: '%s' is neither %s nor %s", option, text, first, second);
}

static int take_option(bench_options *o, int option) {
  bench_request *r = &o->request;
  double value = 0;
  int which = 0, code = CLI_OK;
  switch (option) {
  case OPTION_SUITE:
    if (o->suite_count == SUITE_FILES)
      return cli_fail(CLI_USAGE, "--suite: more than %d", SUITE_FILES);
    o->suites[o->suite_count++] = optarg;
    return bench_suite_add(optarg, &r->shapes);
  case OPTION_SHAPE:
    return bench_sweep_add(optarg, &r->shapes);
  case OPTION_PROBLEM:
    return bench_problem_add(optarg, &r->shapes);
  case OPTION_VARIANT:
    return take_variants(o, optarg);
  case 'r':
    return take_seconds("time-per-row", optarg, 0, &r->settings.row_seconds);
  case 'b':
    return take_seconds("time-budget", optarg, 0, &r->budget);
  case 'm':
    code = take_seconds("max-launch-ms", optarg, 0, &value);
    r->settings.launch_seconds = value * 1e-3;
    return code;
  case 'i':
    code = take_word("inputs", optarg, "cold", "hot", &which);
    r->settings.cold = !which;
    return code;
  case 'o':
    o->only = optarg;
    return take_word("only", optarg, "prefill", "decode", &which);
  case 'w':
    r->fail_if_slower = optarg;
    return take_seconds("fail-if-slower", optarg, 0, &r->threshold);
  case 'p':
    if (strcmp(optarg, "forward") == 0)
      return CLI_OK;
    return cli_fail(CLI_USAGE, "--pass: '%s'; this release has the forward pass alone", optarg);
  default:
    return CLI_USAGE;
  }
}

static int read_options(bench_options *o, int argc, char **argv, int *done) {
  int option, code = CLI_OK;
  *done = 0;
  while (code == CLI_OK && (option = cli_next_option(argc, argv, longs)) != -1) {
    const struct {
      int option;
      const char **text;
      int *flag, value;
    } list[] = {{'l', NULL, &o->list, 1},
                {'q', NULL, &o->quick, 1},
                {'s', NULL, &o->slow, 1},
                {'e', NULL, &o->serve, 1},
                {'t', &o->dtype, NULL, 0},
                {'d', &o->device, NULL, 0},
                {'n', NULL, &o->request.settings.verify, 0},
                {'f', &o->facts, NULL, 0},
                {'u', &o->setup.tuning, NULL, 0},
                {'g', &o->setup.config, NULL, 0},
                {'j', &o->json, NULL, 0},
                {'c', &o->csv, NULL, 0},
                {'h' + 256, &o->report, NULL, 0},
                {'x', &o->dump, NULL, 0},
                {'a', &o->request.baseline, NULL, 0}};
    int known = 0;
    if (option == 'h') {
      *done = 1;
      return cli_print_help(help);
    }
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
      if (list[i].option != option)
        continue;
      known = 1;
      if (list[i].text != NULL)
        *list[i].text = optarg;
      else
        *list[i].flag = list[i].value;
    }
    if (!known)
      code = take_option(o, option);
  }
  return code;
}

/* ---- shapes ---- */

/* Query rows of an entry, at most: of packed ones the line may give the sum alone. */
static int64_t rows_of(const clattn_problem *problem) {
  return problem->q_len > 0 ? problem->q_len : problem->total_q;
}

/* Only those of a kind. */
static void keep_kind(bench_shapes *shapes, const char *only) {
  const int decode = strcmp(only, "decode") == 0;
  size_t kept = 0;
  for (size_t i = 0; i < shapes->count; i++)
    if ((rows_of(&shapes->shape[i].problem) <= LEAST_DECODE) == decode)
      shapes->shape[kept++] = shapes->shape[i];
  shapes->count = kept;
}

static int dtype_of(const char *word, clattn_dtype *out) {
  static const char *const words[] = {"f32", "f16", "bf16", "i8", "i4"};
  for (int i = 0; i < 5; i++)
    if (strcmp(words[i], word) == 0) {
      *out = i;
      return CLI_OK;
    }
  return cli_fail(CLI_USAGE, "--dtype: '%s' is none of f32, f16, bf16, i8, i4", word);
}

/* Every shape in a type; i8 and i4 are for keys and values, beside f32. */
static int add_type(const bench_shapes *from, const char *word, int named, bench_shapes *out) {
  clattn_dtype dtype = CLATTN_F32;
  int code = dtype_of(word, &dtype);
  for (size_t i = 0; i < from->count && code == CLI_OK; i++) {
    clattn_problem problem = from->shape[i].problem;
    char line[BENCH_LINE_BYTES];
    clattn_tensor *const all[4] = {&problem.k, &problem.v, &problem.q, &problem.o};
    for (int n = 0; n < (dtype >= CLATTN_I8 ? 2 : 4); n++)
      all[n]->dtype = dtype;
    if (clattn_problem_format(&problem, line, sizeof line, NULL) != CLATTN_SUCCESS)
      return cli_fail(CLI_USAGE, "--dtype: the line of %s is too long", from->shape[i].name);
    code = bench_problem_add(line, out);
    if (code != CLI_OK)
      break;
    bench_shape *shape = &out->shape[out->count - 1];
    snprintf(shape->name, sizeof shape->name, named ? "%.48s %s" : "%.60s", from->shape[i].name, word);
    memcpy(shape->suite, from->shape[i].suite, sizeof shape->suite);
    memcpy(shape->source, from->shape[i].source, sizeof shape->source);
  }
  return code;
}

static int apply_types(bench_options *o) {
  bench_shapes typed = {NULL, 0, 0};
  int code = CLI_OK;
  char *words = strdup(o->dtype);
  if (words == NULL)
    return cli_fail_memory();
  for (char *word = words, *next = NULL; word != NULL && code == CLI_OK; word = next) {
    next = strchr(word, ',');
    if (next != NULL)
      *next++ = 0;
    code = add_type(&o->request.shapes, word, 1, &typed);
  }
  free(words);
  bench_shapes_free(&o->request.shapes);
  o->request.shapes = typed;
  return code;
}

static int choose_shapes(bench_options *o) {
  bench_request *r = &o->request;
  int code = CLI_OK;
  if (o->quick && r->shapes.count > 0)
    return cli_fail(CLI_USAGE, "--quick is a suite of its own: not beside --suite, --shape or --problem");
  if (r->shapes.count == 0)
    code = bench_suite_add(o->quick ? "quick" : NULL, &r->shapes);
  if (code == CLI_OK && o->only != NULL)
    keep_kind(&r->shapes, o->only);
  if (code == CLI_OK && o->dtype != NULL)
    code = apply_types(o);
  if (code == CLI_OK && r->shapes.count == 0)
    code = cli_fail(CLI_USAGE, "no shape is left to run");
  return code;
}

static int print_list(const bench_request *request) {
  printf("suites:");
  for (size_t i = 0; bench_suite_name(i) != NULL; i++)
    printf(" %s", bench_suite_name(i));
  printf("\n\n");
  for (size_t i = 0; i < request->shapes.count; i++) {
    const bench_shape *shape = &request->shapes.shape[i];
    printf("%-28s %-44s %s\n", shape->name, shape->line, shape->source);
  }
  return CLI_OK;
}

/* ---- files ---- */

/* The path with the device's id before its ending: "out.pocl-0.json". */
static char *path_for(const char *path, const char *id) {
  const char *dot = strrchr(path, '.'), *slash = strrchr(path, '/');
  const size_t head = dot != NULL && (slash == NULL || dot > slash) ? (size_t)(dot - path) : strlen(path);
  const size_t bytes = strlen(path) + strlen(id) + 2;
  char *out = malloc(bytes);
  if (out == NULL)
    return NULL;
  snprintf(out, bytes, "%.*s.%s%s", (int)head, path, id, path + head);
  for (char *c = out + head; *c != 0 && c < out + head + 1 + strlen(id); c++)
    *c = (char)(*c == ':' ? '-' : *c);
  return out;
}

/* What comes of a run, in places that were made sure before it. */
static int write_run(const bench_options *o, const bench_run *run, cli_files *files) {
  int code = CLI_OK;
  if (o->json != NULL)
    code = bench_run_write_json(run, &files->file[FILE_JSON]);
  if (code == CLI_OK && o->csv != NULL)
    code = bench_run_write_csv(run, &files->file[FILE_CSV]);
  if (code == CLI_OK && o->report != NULL) {
    const bench_run *const runs[1] = {run};
    const char *const names[1] = {run->context.device};
    cli_bytes page;
    memset(&page, 0, sizeof page);
    code = bench_report_text(runs, 1, names, "report", &page);
    if (code == CLI_OK)
      code = cli_files_put_bytes(&files->file[FILE_REPORT], "html", page.data, page.count);
    cli_bytes_release(&page);
  }
  return code == CLI_OK ? cli_files_commit(files) : code;
}

/* One device (NULL: the library's choice); `id` not NULL: its part of the files' names. */
static int run_device(const bench_options *o, const char *device, const char *id) {
  cli_files files;
  bench_run run;
  const char *const given[3] = {o->json, o->csv, o->report};
  char *path[3] = {NULL, NULL, NULL};
  int code = CLI_OK;
  memset(&files, 0, sizeof files);
  memset(&run, 0, sizeof run);
  for (int i = 0; i < 3 && code == CLI_OK; i++) {
    if (given[i] == NULL)
      continue;
    path[i] = id != NULL ? path_for(given[i], id) : strdup(given[i]);
    if (path[i] == NULL)
      code = cli_fail_memory();
  }
  files.file[FILE_JSON].option = "json";
  files.file[FILE_JSON].path = path[0];
  files.file[FILE_CSV].option = "csv";
  files.file[FILE_CSV].path = path[1];
  files.file[FILE_REPORT].option = "report";
  files.file[FILE_REPORT].path = path[2];
  const char *inputs[SUITE_FILES + 2] = {o->request.baseline, o->facts};
  char *suites[SUITE_FILES] = {NULL};
  for (int i = 0; i < o->suite_count && code == CLI_OK; i++) {
    suites[i] = strdup(o->suites[i]);
    if (suites[i] == NULL)
      code = cli_fail_memory();
    else if (access(suites[i], F_OK) != 0 && strrchr(suites[i], ':') != NULL) /* FILE:NAME */
      *strrchr(suites[i], ':') = 0;
    inputs[2 + i] = suites[i];
  }
  if (code == CLI_OK)
    code = cli_files_begin(&files, inputs, SUITE_FILES + 2);
  if (code == CLI_OK) {
    code = o->facts != NULL ? bench_simulate(&o->request, o->facts, &run) : bench_sweep(&o->request, device, &run);
    if (run.count > 0) { /* also after a failure or a signal: what is there is worth keeping */
      const int written = write_run(o, &run, &files);
      code = code != CLI_OK ? code : written;
    }
  }
  cli_files_discard(&files);
  bench_run_release(&run);
  for (int i = 0; i < 3; i++)
    free(path[i]);
  for (int i = 0; i < SUITE_FILES; i++)
    free(suites[i]);
  return code;
}

static int run_all(const bench_options *o) {
  cli_device *list = NULL;
  size_t count = 0;
  int code = cli_device_list(&list, &count);
  if (code == CLI_OK && count == 0)
    code = cli_fail(CLI_NO_DEVICE, "no OpenCL device");
  for (size_t i = 0; i < count && !bench_stop; i++) {
    const int one = run_device(o, list[i].id, list[i].id);
    code = code != CLI_OK ? code : one;
  }
  free(list);
  return code;
}

/* The command line in one text, for the record. */
static char *join_words(int argc, char **argv) {
  size_t bytes = sizeof "clattn";
  for (int i = 0; i < argc; i++)
    bytes += strlen(argv[i]) + 3;
  char *out = malloc(bytes);
  if (out == NULL)
    return NULL;
  size_t used = (size_t)snprintf(out, bytes, "clattn");
  for (int i = 0; i < argc; i++) {
    const int quoted = strchr(argv[i], ' ') != NULL;
    used += (size_t)snprintf(out + used, bytes - used, quoted ? " '%s'" : " %s", argv[i]);
  }
  return out;
}

int cli_bench(int argc, char **argv) {
  static bench_options o; /* large */
  int done = 0;
  memset(&o, 0, sizeof o);
  o.request.variant[0] = "best";
  o.request.variants = 1;
  o.request.threshold = 5;
  o.request.settings.row_seconds = 0.5;
  o.request.settings.launch_seconds = 1;
  o.request.settings.cold = o.request.settings.verify = o.request.settings.probe_beside = 1;
  char *command = join_words(argc, argv);
  int code = command != NULL ? read_options(&o, argc, argv, &done) : cli_fail_memory();
  o.request.command = command;
  o.request.slowest = o.slow ? 0 : 1;
  o.request.largest = o.slow ? 0 : 1e9;
  if (code != CLI_OK || done)
    goto end;
  if (o.request.fail_if_slower != NULL && o.request.baseline == NULL)
    code = cli_fail(CLI_USAGE, "--fail-if-slower needs --baseline");
  if (code == CLI_OK && o.facts != NULL &&
      (o.device != NULL || o.request.baseline != NULL || o.setup.tuning != NULL || o.setup.config != NULL ||
       o.dump != NULL))
    code = cli_fail(CLI_USAGE, "--device-facts stands for a device that is not there: without --device, --baseline, "
                               "--tuning, --config and --dump");
  if (code == CLI_OK && o.serve &&
      (o.json != NULL || o.csv != NULL || o.report != NULL || o.request.baseline != NULL || o.setup.tuning != NULL ||
       o.setup.config != NULL || o.request.shapes.count > 0 || o.quick || o.list || o.dtype != NULL || o.only != NULL ||
       o.facts != NULL || o.dump != NULL))
    code = cli_fail(CLI_USAGE, "--serve goes with --device alone");
  if (code == CLI_OK)
    code = cli_setup_begin(&o.setup);
  if (code == CLI_OK && o.facts == NULL)
    cli_affinity_set(); /* of a device that is not there nothing is measured */
  if (code == CLI_OK && o.serve) {
    code = bench_serve(o.device);
    goto end;
  }
  if (code == CLI_OK)
    code = choose_shapes(&o);
  if (code != CLI_OK)
    goto end;
  if (o.list) {
    code = print_list(&o.request);
    goto end;
  }
  if (o.dump != NULL) {
    code = cli_folder_make("dump", o.dump, &o.dumps.folder);
    cli_folder_keep(&o.dumps.folder); /* those of the rows are whole or not there */
    o.request.settings.dump = &o.dumps;
  }
  if (code != CLI_OK)
    goto end;
  bench_signals_install();
  code = o.device != NULL && strcmp(o.device, "all") == 0 ? run_all(&o) : run_device(&o, o.device, NULL);
  if (bench_signal() != 0)
    code = 128 + bench_signal();

end:
  cli_folder_close(&o.dumps.folder);
  cli_setup_end(&o.setup);
  bench_shapes_free(&o.request.shapes);
  free(o.variants);
  free(command);
  return code;
}
