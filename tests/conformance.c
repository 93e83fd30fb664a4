/* SPDX-License-Identifier: Apache-2.0 */
/* conformance DIR: runs a folder of attention cases that others computed through the public interface. */
#define _POSIX_C_SOURCE 200809L
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "clattn_ref.h"
#include "conformance_nn.h"
#include "conformance_run.h"

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

static const char usage[] =
    "usage: conformance DIR [options]\n"
    "\n"
    "Runs every case of DIR (a folder of case folders, or one case folder) on every variant and compares with what\n"
    "the case wants.  A case passes when all those variants pass.  A float32 case that one of the device's variants\n"
    "does not take has failed.\n"
    "\n"
    "  --device ID      the device, as `clattn devices` names it; otherwise the library chooses\n"
    "  --variant NAME   only this variant\n"
    "  --filter TEXT    only cases whose name contains TEXT\n"
    "  --allow-empty    passing no case is no failure\n"
    "  --reference      judge the double-precision reference instead of a device\n"
    "\n"
    "Exit code: 0 all passed or skipped; 1 a case failed, or none passed; 2 wrong usage; 3 no device.\n";

typedef struct options {
  const char *folder, *device, *variant, *filter;
  int allow_empty, reference;
} options;

typedef enum verdict { PASSED, FAILED, SKIPPED, VERDICTS } verdict;

enum { MAX_VARIANTS = 32 };

/* The kernels of libclattn_nn that its operators are run with. */
static const struct {
  const char *name;
  clattn_nn_kernels kernels;
} nn_sets[] = {{"nn lanes", CLATTN_NN_KERNELS_LANES}, {"nn tiles", CLATTN_NN_KERNELS_TILES}};
enum { NN_SETS = sizeof nn_sets / sizeof nn_sets[0] };

typedef struct runner {
  options o;
  cli_session session;    /* not open with --reference */
  clattn_nn *nn[NN_SETS]; /* likewise */
  size_t nn_passed;
  size_t count[VERDICTS];
  int variants;                       /* 0 with --reference; with --variant that one alone */
  const char *name[MAX_VARIANTS];     /* of the variants that are run */
  int serves[MAX_VARIANTS];           /* 1: takes a plain problem on this device */
  size_t passed[MAX_VARIANTS];        /* cases that passed, by variant */
  size_t passed_on[MAX_VARIANTS + 1]; /* likewise, by the number of variants that a case ran on */
} runner;

/* Names and reasons come from files: no control characters reach the terminal. */
static void print_clean(const char *text) {
  for (; *text != 0; text++)
    putchar((unsigned char)*text < ' ' || *text == 127 ? '?' : *text);
}

static void report(runner *r, verdict v, const char *name, const char *text) {
  static const char *const words[VERDICTS] = {"pass", "FAIL", "skip"};
  r->count[v]++;
  printf("%s  ", words[v]);
  print_clean(name);
  fputs(v == PASSED ? "  " : ": ", stdout);
  print_clean(text);
  putchar('\n');
  fflush(stdout);
}

/* Text appended to a list of what a case ran on. */
static void append(cf_reason *list, const char *format, const char *text) {
  const size_t used = strlen(list->text);
  snprintf(list->text + used, sizeof list->text - used, format, text);
}

/* ---- who claims a case ---- */

/* Whether the library takes every job, before any device is asked. */
static verdict check_problems(const cf_work *work, cf_reason *reason) {
  for (int i = 0; i < work->jobs; i++) {
    clattn_error error;
    clattn_error_init(&error);
    const clattn_status status = clattn_problem_check(&work->job[i].problem, &error);
    if (status == CLATTN_SUCCESS)
      continue;
    cf_fail(reason, "%s (%s)", error.message, clattn_status_name(status));
    return status == CLATTN_ERROR_NOT_SUPPORTED ? SKIPPED : FAILED;
  }
  return PASSED;
}

/* PASSED: the variant claims the job; SKIPPED: it does not; FAILED: it refuses for a reason that is no limit of it. */
static verdict ask_support(const runner *r, const clattn_problem *problem, const char *variant, cf_reason *reason) {
  clattn_support support;
  clattn_support_init(&support);
  const clattn_status status = clattn_supported(r->session.context, problem, variant, &support);
  if (status == CLATTN_SUCCESS)
    return PASSED;
  cf_fail(reason, "%s (%s)", support.reason, clattn_status_name(status));
  return status == CLATTN_ERROR_NOT_SUPPORTED || status == CLATTN_ERROR_VARIANT_UNFIT ? SKIPPED : FAILED;
}

/* The variants to run, and which of them this device can run at all. */
static int list_variants(runner *r) {
  clattn_problem plain;
  clattn_problem_init(&plain);
  plain.q_len = plain.k_len = plain.qk_dim = 64;
  for (uint32_t i = 0; clattn_variant_name(i) != NULL; i++) {
    cf_reason why;
    if (r->o.variant != NULL && strcmp(clattn_variant_name(i), r->o.variant) != 0)
      continue;
    if (r->variants == MAX_VARIANTS)
      return 0;
    r->name[r->variants] = clattn_variant_name(i);
    r->serves[r->variants] = ask_support(r, &plain, clattn_variant_name(i), &why) == PASSED;
    r->variants++;
  }
  return 1;
}

/* All rules combine in every variant, so none that serves the device may leave a case of this type. */
static int is_float32(const cf_work *work) {
  const clattn_problem *p = &work->job[0].problem;
  return p->q.dtype == CLATTN_F32 && p->k.dtype == CLATTN_F32 && p->v.dtype == CLATTN_F32 && p->o.dtype == CLATTN_F32 &&
         p->bias.dtype == CLATTN_F32;
}

/* ---- one case ---- */

/* Every job of the case on one variant (NULL: the reference). */
static verdict run_variant(const runner *r, const cf_work *work, const char *variant, cf_reason *ran,
                           cf_reason *reason) {
  cf_reason why;
  const char *name = variant != NULL ? variant : "reference";
  for (int i = 0; i < work->jobs && variant != NULL; i++) {
    const verdict v = ask_support(r, &work->job[i].problem, variant, &why);
    if (v != PASSED) {
      cf_fail(reason, "%s: %s", name, why.text);
      return v;
    }
  }
  append(ran, ran->text[0] == 0 ? "%s" : ", %s", name);
  for (int i = 0; i < work->jobs; i++) {
    const cf_job *job = &work->job[i];
    if (!(variant != NULL ? cf_run_device(&r->session, variant, work, job, &why) : cf_run_reference(work, job, &why))) {
      cf_fail(reason, "%s%s%s: %s", name, job->what[0] != 0 ? ", " : "", job->what, why.text);
      return FAILED;
    }
  }
  return PASSED;
}

static verdict run_work(runner *r, const cf_work *work, cf_reason *text) {
  cf_reason ran = {""}, why = {""};
  int passed[MAX_VARIANTS] = {0}, claimed = 0;
  const verdict checked = check_problems(work, text);
  if (checked != PASSED)
    return checked;
  if (r->o.reference) {
    const verdict v = run_variant(r, work, NULL, &ran, text);
    if (v == PASSED)
      *text = ran;
    return v;
  }
  for (int i = 0; i < r->variants; i++) {
    const verdict v = run_variant(r, work, r->name[i], &ran, &why);
    if (v == FAILED || (v == SKIPPED && r->serves[i] && is_float32(work))) {
      *text = why;
      return FAILED;
    }
    passed[i] = v == PASSED;
    claimed += passed[i];
  }
  if (claimed == 0) {
    /* The library took the problem above.  That no variant computes it is a fault, unless only one was asked. */
    *text = why;
    return r->o.variant != NULL ? SKIPPED : FAILED;
  }
  for (int i = 0; i < r->variants; i++)
    r->passed[i] += (size_t)passed[i];
  r->passed_on[claimed]++;
  *text = ran;
  return PASSED;
}

/* An operator beside attention, on every set of kernels. */
static verdict run_nn(runner *r, const cf_case *c, cf_reason *text) {
  cf_reason why;
  if (r->o.reference) {
    append(text, "%s", "reference");
    return cf_run_nn(NULL, NULL, c, &why) ? PASSED : (*text = why, FAILED);
  }
  for (int i = 0; i < NN_SETS; i++) {
    append(text, i == 0 ? "%s" : ", %s", nn_sets[i].name);
    if (!cf_run_nn(&r->session, r->nn[i], c, &why)) {
      cf_fail(text, "%s: %s", nn_sets[i].name, why.text);
      return FAILED;
    }
  }
  r->nn_passed++;
  return PASSED;
}

static verdict run_case(runner *r, const char *folder, cf_reason *text) {
  cf_case c;
  cf_work work;
  verdict v = FAILED;
  memset(&work, 0, sizeof work);
  if (!cf_case_open(folder, &c, text))
    goto done;
  const int standard = c.domain[0] == 0 || strcmp(c.domain, "ai.onnx") == 0;
  const int onnx = standard && strcmp(c.op, "Attention") == 0;
  if (strcmp(c.op, "sdpa_backward") == 0) {
    cf_fail(text, "gradients are not supported yet");
    v = SKIPPED;
  } else if (standard && cf_is_nn(c.op)) {
    v = cf_case_load(folder, &c, text) ? run_nn(r, &c, text) : FAILED;
  } else if (!onnx && strcmp(c.op, "sdpa") != 0) {
    cf_fail(text, "operator %.64s%s%.64s is none of this library's", c.domain, c.domain[0] != 0 ? "." : "", c.op);
    v = SKIPPED;
  } else if (cf_case_load(folder, &c, text) &&
             (onnx ? cf_translate_onnx(&c, &work, text) : cf_translate_torch(&c, &work, text))) {
    v = run_work(r, &work, text);
  }
done:
  cf_work_free(&work);
  cf_case_close(&c);
  return v;
}

/* ---- the folder ---- */

static int by_name(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

static char *join(const char *folder, const char *name) {
  const size_t bytes = strlen(folder) + strlen(name) + 2;
  char *path = malloc(bytes);
  if (path != NULL)
    snprintf(path, bytes, "%s/%s", folder, name);
  return path;
}

static void free_names(char **names, size_t count) {
  for (size_t i = 0; i < count; i++)
    free(names[i]);
  free(names);
}

/* Names of the folders in `folder`, sorted; hidden ones are not looked at.  0 on success, else errno. */
static int list_folders(const char *folder, char ***out, size_t *count) {
  char **names = NULL;
  size_t used = 0;
  int result = 0;
  DIR *dir = opendir(folder);
  if (dir == NULL)
    return errno;
  for (;;) {
    struct stat info;
    errno = 0;
    const struct dirent *entry = readdir(dir);
    if (entry == NULL) {
      result = errno;
      break;
    }
    if (entry->d_name[0] == '.')
      continue;
    char *path = join(folder, entry->d_name);
    char **grown = realloc(names, (used + 1) * sizeof *names);
    if (grown != NULL)
      names = grown;
    if (path == NULL || grown == NULL) {
      free(path);
      result = ENOMEM;
      break;
    }
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
      /* The path without the folder before it. */
      memmove(path, entry->d_name, strlen(entry->d_name) + 1);
      names[used++] = path;
    } else {
      free(path);
    }
  }
  closedir(dir);
  if (result != 0) {
    free_names(names, used);
    return result;
  }
  if (used > 0)
    qsort(names, used, sizeof *names, by_name);
  *out = names;
  *count = used;
  return 0;
}

static void run_named(runner *r, const char *folder, const char *name) {
  cf_reason text = {""};
  if (r->o.filter != NULL && strstr(name, r->o.filter) == NULL)
    return;
  report(r, run_case(r, folder, &text), name, text.text);
}

/* DIR is itself a case when case.json lies in it; it is then called by its last part. */
static int run_folder(runner *r) {
  char **names = NULL;
  size_t count = 0;
  struct stat info;
  int result = ENOMEM;
  char *single = join(r->o.folder, "case.json");
  if (single == NULL)
    goto done;
  if (stat(single, &info) == 0) {
    char *name = join("", r->o.folder);
    if (name == NULL)
      goto done;
    size_t length = strlen(name);
    while (length > 1 && name[length - 1] == '/')
      name[--length] = 0;
    run_named(r, r->o.folder, strrchr(name, '/') + 1);
    free(name);
    result = 0;
    goto done;
  }
  result = list_folders(r->o.folder, &names, &count);
  for (size_t i = 0; i < count && result == 0; i++) {
    char *path = join(r->o.folder, names[i]);
    if (path == NULL)
      result = ENOMEM;
    else
      run_named(r, path, names[i]);
    free(path);
  }
done:
  free(single);
  free_names(names, count);
  return result;
}

/* ---- main ---- */

static int wrong(const char *message, const char *what) {
  fprintf(stderr, "conformance: %s%s\nTry `conformance --help`.\n", message, what);
  return EXIT_USAGE;
}

/* --name VALUE or --name=VALUE: 1 and *value, *at past it; 0 when argv[*at] is another option; -1 without a value. */
static int take_value(int argc, char **argv, int *at, const char *name, const char **value) {
  const size_t n = strlen(name);
  if (strncmp(argv[*at], name, n) != 0 || (argv[*at][n] != 0 && argv[*at][n] != '='))
    return 0;
  if (argv[*at][n] == '=')
    *value = argv[*at] + n + 1;
  else if (*at + 1 < argc)
    *value = argv[++*at];
  else
    return -1;
  return 1;
}

static int parse_options(int argc, char **argv, options *o) {
  const struct {
    const char *name;
    const char **value;
  } values[] = {{"--device", &o->device}, {"--variant", &o->variant}, {"--filter", &o->filter}};
  int only_names = 0;
  memset(o, 0, sizeof *o);
  for (int i = 1; i < argc; i++) {
    int taken = 0;
    for (size_t n = 0; n < sizeof values / sizeof values[0] && taken == 0 && !only_names; n++) {
      taken = take_value(argc, argv, &i, values[n].name, values[n].value);
      if (taken < 0)
        return wrong("a value must follow ", values[n].name);
    }
    if (taken)
      continue;
    if (!only_names && strcmp(argv[i], "--") == 0)
      only_names = 1;
    else if (!only_names && strcmp(argv[i], "--allow-empty") == 0)
      o->allow_empty = 1;
    else if (!only_names && strcmp(argv[i], "--reference") == 0)
      o->reference = 1;
    else if (!only_names && argv[i][0] == '-')
      return wrong("there is no option ", argv[i]);
    else if (o->folder != NULL)
      return wrong("one folder only, not also ", argv[i]);
    else
      o->folder = argv[i];
  }
  if (o->folder == NULL || o->folder[0] == 0)
    return wrong("a folder of cases is needed", "");
  if (o->reference && (o->device != NULL || o->variant != NULL))
    return wrong("--reference goes with neither --device nor --variant", "");
  if (o->variant == NULL)
    return EXIT_DONE;
  for (uint32_t i = 0; clattn_variant_name(i) != NULL; i++) {
    if (strcmp(clattn_variant_name(i), o->variant) == 0)
      return EXIT_DONE;
  }
  return wrong("there is no variant ", o->variant);
}

static void print_head(const runner *r) {
  if (r->o.reference) {
    printf("clattn %s, double-precision reference\n", clattn_version());
    return;
  }
  printf("clattn %s on %s: %s, %s\nvariants:", clattn_version(), r->session.device.id, r->session.info.name,
         r->session.info.version);
  for (int i = 0; i < r->variants; i++)
    printf(" %s", r->name[i]);
  putchar('\n');
}

/* How many variants the cases ran on: no reader should have to count words in a hundred lines. */
static void print_totals(const runner *r) {
  for (int i = 0; i < r->variants; i++)
    printf("%s: %zu cases passed%s\n", r->name[i], r->passed[i], r->serves[i] ? "" : " (not for this device)");
  for (int n = r->variants; n > 0; n--) {
    if (r->passed_on[n] > 0)
      printf("%zu cases passed on %d of %d variants\n", r->passed_on[n], n, r->variants);
  }
  if (r->nn_passed > 0)
    printf("%zu cases of operators beside attention passed on %d of %d sets of kernels\n", r->nn_passed, NN_SETS,
           NN_SETS);
  printf("%zu passed, %zu failed, %zu skipped\n", r->count[PASSED], r->count[FAILED], r->count[SKIPPED]);
}

int main(int argc, char **argv) {
  runner r;
  memset(&r, 0, sizeof r);
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
      fputs(usage, stdout);
      return EXIT_DONE;
    }
  }
  int code = parse_options(argc, argv, &r.o);
  if (code != EXIT_DONE)
    return code;
  if (!r.o.reference) {
    code = cli_session_open(r.o.device, &r.session);
    if (code != EXIT_DONE)
      return code;
    if (!list_variants(&r)) {
      fprintf(stderr, "conformance: more than %d variants\n", MAX_VARIANTS);
      cli_session_close(&r.session);
      return EXIT_FAILED;
    }
  }
  for (int i = 0; i < NN_SETS && !r.o.reference; i++) {
    clattn_nn_options chosen;
    clattn_error error;
    clattn_error_init(&error);
    clattn_nn_options_init(&chosen);
    chosen.kernels = nn_sets[i].kernels;
    if (clattn_nn_create(r.session.context, &chosen, &r.nn[i], &error) != CLATTN_SUCCESS) {
      fprintf(stderr, "conformance: %s: %s\n", nn_sets[i].name, error.message);
      code = EXIT_FAILED;
    }
  }
  if (code != EXIT_DONE)
    goto done;
  print_head(&r);
  const int trouble = run_folder(&r);
  if (trouble == 0)
    print_totals(&r);
  if (trouble != 0) {
    fprintf(stderr, "conformance: %s can't be read: %s\n", r.o.folder, strerror(trouble));
    code = EXIT_USAGE;
  } else if (r.count[FAILED] > 0 || (r.count[PASSED] == 0 && !r.o.allow_empty)) {
    code = EXIT_FAILED;
  }
done:
  for (int i = 0; i < NN_SETS; i++)
    clattn_nn_release(r.nn[i]);
  if (!r.o.reference)
    cli_session_close(&r.session);
  return code;
}
