/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "tune.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "measure.h"
#include "text.h"

enum { LINE_BYTES = 512, HEAD_BYTES = 1024, TILES_MOST = 32, FINALISTS = 4, ROUNDS = 5, ROUNDS_LEAST = 3 };

static const double GAIN = 0.97;         /* of the usual tile's time: less is more than noise */
static const double FAR = 1.15;          /* of the best one's first time: not worth another look */
static const double SHORT = 0.05;        /* seconds of timing in a round */
static const double SLOWEST = 1;         /* seconds of a call, predicted */
static const double LARGEST = 1e9;       /* bytes of keys and values */
static const char TUNED[] = "; tuned: "; /* in the reason of a plan that has the tile */

/* ---- the file ---- */

typedef struct tune_file {
  FILE *out;
  char path[300];
  char *before; /* what stood there, whole lines */
} tune_file;

/* A line, at once: the process may end in the next step. */
static int put(tune_file *file, const char *format, ...) {
  va_list list;
  va_start(list, format);
  const int written = vfprintf(file->out, format, list);
  va_end(list);
  if (written < 0 || fputc('\n', file->out) == EOF || fflush(file->out) != 0)
    return cli_fail(CLI_FAILED, "%s can't be written: %s", file->path, strerror(errno));
  return CLI_OK;
}

/* The last comment "# WORD TEXT" with this text, from earlier starts: its word is copied; 0 if there is none. */
static int last_word(const tune_file *file, const char *text, char word[16]) {
  int found = 0;
  for (const char *line = file->before; line != NULL && *line != 0; line = strchr(line, '\n'), line += line != NULL) {
    const char *name = line + 2, *space = strncmp(line, "# ", 2) == 0 ? strchr(name, ' ') : NULL;
    const size_t length = strlen(text);
    if (space == NULL || space - name >= 16 || strncmp(space + 1, text, length) != 0 || space[1 + length] != '\n')
      continue;
    memcpy(word, name, (size_t)(space - name));
    word[space - name] = 0;
    found = 1;
  }
  return found;
}

/* Whether the class has its tile already. */
static int has_tile(const tune_file *file, const char *of) {
  for (const char *line = file->before; line != NULL && *line != 0; line = strchr(line, '\n'), line += line != NULL)
    if (strncmp(line, "tile ", 5) == 0 && strncmp(line + 5, of, strlen(of)) == 0 &&
        strncmp(line + 5 + strlen(of), " :", 2) == 0)
      return 1;
  return 0;
}

/* Whether `path` has something in it: an empty file is as none. */
static int has_bytes(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && (!S_ISREG(info.st_mode) || info.st_size > 0);
}

/* Whether the file is one of this head, or was cut while its head was written. */
static int is_ours(const tune_file *file, size_t length, const char *head) {
  const size_t whole = strlen(head);
  return memchr(file->before, 0, length) == NULL && memcmp(file->before, head, length < whole ? length : whole) == 0;
}

/* A line that a crash cut is dropped, so that the next one does not go on in it; all of a cut head is. */
static int drop_cut_line(tune_file *file, size_t length, const char *head) {
  char *end = file->before + (length < strlen(head) ? 0 : length);
  while (end > file->before && end[-1] != '\n')
    --end;
  *end = 0;
  if (truncate(file->path, end - file->before) != 0)
    return cli_fail(CLI_FAILED, "%s can't be written: %s", file->path, strerror(errno));
  return CLI_OK;
}

/* The device's file: "clattn-pocl-0.tuning" where no path is given. */
static int open_file(const tune_request *request, const bench_device *device, const char *head, tune_file *file) {
  size_t length = 0;
  int code = CLI_OK;
  const int written = request->path != NULL
                          ? snprintf(file->path, sizeof file->path, "%s", request->path)
                          : snprintf(file->path, sizeof file->path, "clattn-%s.tuning", device->session.device.id);
  if (written >= (int)sizeof file->path)
    return cli_fail(CLI_USAGE, "--out: the path is too long");
  for (char *c = file->path; request->path == NULL && *c != 0; c++)
    *c = (char)(*c == ':' ? '-' : *c);
  const int there = has_bytes(file->path);
  if (there)
    code = cli_read_file("out", file->path, &file->before, &length);
  if (code == CLI_OK && there && !is_ours(file, length, head))
    return cli_fail(CLI_USAGE,
                    "--out: %s is no tuning of this device, with this driver and this version of clattn: remove it, or "
                    "name another file",
                    file->path);
  if (code == CLI_OK && there)
    code = drop_cut_line(file, length, head);
  if (code != CLI_OK)
    return code;
  const int empty = !there || file->before[0] == 0;
  file->out = fopen(file->path, "a");
  if (file->out == NULL)
    return cli_fail(CLI_FAILED, "--out: %s can't be written: %s", file->path, strerror(errno));
  return empty ? put(file, "%.*s", (int)strlen(head) - 1, head) : CLI_OK;
}

static void close_file(tune_file *file) {
  if (file->out != NULL)
    fclose(file->out);
  free(file->before);
}

/* ---- tiles ---- */

typedef struct candidate {
  char line[LINE_BYTES]; /* of the file; empty: the usual tile */
  clattn_context *context;
  double median[ROUNDS]; /* seconds of a call, by round */
  double first;          /* the fastest one of the first looks; infinite: not looked at in this start */
} candidate;

typedef struct tuner {
  const tune_request *request;
  bench_device device;
  bench_peaks peaks;
  tune_file file;
  char head[HEAD_BYTES];
  double begin;
  int tuned, kept, known, stopped; /* classes of problems */
  int tried;                       /* tiles besides the usual ones, in this start */
  int bad;                         /* usual tiles that are wrong or fail */
  size_t left_out;                 /* shapes */
} tuner;

static int is_over(const tuner *t) {
  return bench_stop || cli_seconds() - t->begin > t->request->budget;
}

static const char *tile_of(const candidate *c) {
  const char *colon = strstr(c->line, " : ");
  return colon != NULL ? colon + 3 : "as without tuning";
}

static int open_context(const tuner *t, candidate *c) {
  clattn_context_options options;
  clattn_error error;
  char text[HEAD_BYTES + LINE_BYTES];
  clattn_error_init(&error);
  clattn_context_options_init(&options);
  options.config_text = t->request->config;
  if (c->line[0] != 0) {
    snprintf(text, sizeof text, "%s%s\n", t->head, c->line);
    options.tuning_text = text;
  }
  const clattn_status status =
      clattn_context_create(t->device.session.cl, t->device.session.device.device, &options, &c->context, &error);
  return status == CLATTN_SUCCESS ? CLI_OK : cli_fail_status(status, &error, "a context for a tile");
}

/* Some calls: wall clock for all, so that all are measured by the same one. */
static bench_status measure(const tuner *t, const bench_shape *shape, const candidate *c, int verify, bench_row *row) {
  const bench_settings settings = {.row_seconds = SHORT, .verify = verify};
  bench_device device = t->device;
  device.session.context = c->context;
  device.events = 0;
  (void)bench_measure(&device, shape, t->request->variant, &t->peaks, &settings, row);
  if (row->status == BENCH_OK && c->line[0] != 0 && strstr(row->reason, TUNED) == NULL) {
    row->status = BENCH_FAILED;
    snprintf(row->reason, sizeof row->reason, "the plan has another tile");
  }
  return row->status;
}

/* Whether an earlier start says how the tile is: then *good as verify_tile has it. */
static int settle_tile(tuner *t, candidate *c, int *good, int *code) {
  char word[16];
  *good = 0;
  if (c->line[0] == 0 || !last_word(&t->file, c->line, word))
    return 0;
  if (strcmp(word, "trying") == 0) {
    printf("  %-40s ended the process when it was tried; not again\n", tile_of(c));
    *code = put(&t->file, "# crashed %s", c->line);
    return 1;
  }
  *good = strcmp(word, "verified") == 0;
  if (!*good && strcmp(word, "crashed") != 0 && strcmp(word, "wrong") != 0 && strcmp(word, "failed") != 0)
    return 0;
  printf("  %-40s %s in an earlier start\n", tile_of(c), word);
  if (*good)
    *code = open_context(t, c);
  c->first = HUGE_VAL;
  return 1;
}

/* Verifies a tile; *good: it may be timed. */
static int verify_tile(tuner *t, const bench_shape *shape, candidate *c, int *good) {
  bench_row row;
  int code = open_context(t, c);
  if (code == CLI_OK && c->line[0] != 0)
    code = put(&t->file, "# trying %s", c->line);
  if (code != CLI_OK)
    return code;
  const bench_status status = measure(t, shape, c, 1, &row);
  const char *said = bench_stop              ? "stopped"
                     : status == BENCH_OK    ? "verified"
                     : status == BENCH_WRONG ? "wrong"
                                             : "failed";
  *good = !bench_stop && status == BENCH_OK;
  t->tried += c->line[0] != 0;
  t->bad += c->line[0] == 0 && !bench_stop && (status == BENCH_WRONG || status == BENCH_FAILED);
  t->left_out += c->line[0] == 0 && !bench_stop && status == BENCH_SKIPPED;
  c->first = (double)row.minimum_ns * 1e-9;
  if (*good)
    printf("  %-40s %9.4g ms\n", tile_of(c), c->first * 1e3);
  else
    printf("  %-40s %s: %s\n", tile_of(c), said, row.reason);
  return c->line[0] != 0 ? put(&t->file, "# %s %s", said, c->line) : CLI_OK;
}

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median_of(const double *values, int count) {
  double sorted[ROUNDS];
  memcpy(sorted, values, (size_t)count * sizeof *sorted);
  qsort(sorted, (size_t)count, sizeof *sorted, by_value);
  return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
}

/* Times the tiles in turns; their median ratio to the first one, the usual tile, into `ratio`.  Returns the rounds. */
static int time_in_turns(const tuner *t, const bench_shape *shape, candidate *const *list, int count, double *ratio) {
  int rounds = 0;
  bench_row row;
  for (; rounds < ROUNDS && !bench_stop && (rounds < ROUNDS_LEAST || !is_over(t)); rounds++)
    for (int i = 0; i < count; i++) {
      if (measure(t, shape, list[i], 0, &row) != BENCH_OK)
        return 0;
      list[i]->median[rounds] = (double)row.median_ns * 1e-9;
    }
  for (int i = 0; i < count && rounds > 0; i++) {
    double part[ROUNDS];
    for (int r = 0; r < rounds; r++)
      part[r] = list[i]->median[r] / list[0]->median[r];
    ratio[i] = median_of(part, rounds);
  }
  return bench_stop ? 0 : rounds;
}

static int by_first(const void *a, const void *b) {
  const double x = (*(candidate *const *)a)->first, y = (*(candidate *const *)b)->first;
  return (x > y) - (x < y);
}

/* Looks at tiles that earlier starts verified, twice, and once more at those of this one while there is time, since a
 * look may be disturbed. */
static void look_again(const tuner *t, const bench_shape *shape, candidate *const *list, int count) {
  bench_row row;
  for (int look = 0; look < 2; look++)
    for (int i = 1; i < count && !bench_stop; i++) {
      if (look == 0 ? list[i]->first < HUGE_VAL : is_over(t))
        continue;
      const int looked = measure(t, shape, list[i], 0, &row) == BENCH_OK;
      const double seconds = (double)row.minimum_ns * 1e-9;
      list[i]->first = looked && seconds < list[i]->first ? seconds : list[i]->first;
    }
}

/* list[0] is the usual tile, the others were verified.  The best of many noisy numbers is too good: the winner is timed
 * again, against the usual tile alone. */
static int decide(tuner *t, const bench_shape *shape, const char *of, candidate **list, int count) {
  double ratio[TILES_MOST];
  int best = 0, code = put(&t->file, "# timing %s", of);
  if (code != CLI_OK)
    return code;
  look_again(t, shape, list, count);
  if (count > 1)
    qsort(list + 1, (size_t)(count - 1), sizeof *list, by_first);
  int left = 1;
  while (left < count && left <= FINALISTS && list[left]->first < HUGE_VAL && list[left]->first <= FAR * list[1]->first)
    left++;
  int rounds = left > 1 ? time_in_turns(t, shape, list, left, ratio) : !bench_stop;
  for (int i = 1; i < left && rounds > 0; i++)
    best = ratio[i] < (best > 0 ? ratio[best] : GAIN) ? i : best;
  if (best > 0) {
    candidate *const two[2] = {list[0], list[best]};
    double again[2];
    rounds = time_in_turns(t, shape, two, 2, again);
    ratio[best] = rounds > 0 ? again[1] : 1;
  }
  if (rounds == 0) {
    t->stopped++;
    return put(&t->file, "# stopped %s", of);
  }
  if (best == 0 || !(ratio[best] < GAIN)) {
    t->kept++;
    printf("  nothing is faster than the usual tile by more than %.0f %%\n", 100 * (1 - GAIN));
    return put(&t->file, "# kept %s", of);
  }
  t->tuned++;
  printf("  -> %s: %.1f %% less time, %.4g ms instead of %.4g\n", tile_of(list[best]), 100 * (1 - ratio[best]),
         median_of(list[best]->median, rounds) * 1e3, median_of(list[0]->median, rounds) * 1e3);
  code = put(&t->file, "# %s: %.1f %% less time", shape->name, 100 * (1 - ratio[best]));
  return code == CLI_OK ? put(&t->file, "%s", list[best]->line) : code;
}

/* ---- shapes ---- */

static void left_out(tuner *t, const bench_shape *shape, const char *reason) {
  t->left_out++;
  printf("%s: left out: %s\n", shape->name, reason);
}

/* 1 if the shape is too much for a tuner. */
static int is_large(const tuner *t, const bench_shape *shape) {
  const clattn_problem *p = &shape->problem;
  const double kv = (double)(p->kv_heads > 0 ? p->kv_heads : p->q_heads > 0 ? p->q_heads : 1);
  const double bytes = 4 * (double)(p->batch > 0 ? p->batch : 1) * kv * (double)p->k_len *
                       ((double)p->qk_dim + (double)(p->v_dim > 0 ? p->v_dim : p->qk_dim));
  return bench_predict(shape, &t->peaks) > SLOWEST || bytes > LARGEST;
}

/* Whether the class of problems is settled: in the file, or earlier in this run, which wrote it there. */
static int is_known(tuner *t, const char *of, char seen[][LINE_BYTES], size_t *count) {
  char word[16];
  for (size_t i = 0; i < *count; i++)
    if (strcmp(seen[i], of) == 0)
      return 1;
  snprintf(seen[(*count)++], LINE_BYTES, "%s", of);
  if (has_tile(&t->file, of)) {
    t->known++;
    return 1;
  }
  if (!last_word(&t->file, of, word))
    return 0;
  if (strcmp(word, "timing") == 0)
    printf("%s: the process ended while it was timed; not again\n", of);
  t->known += strcmp(word, "stopped") != 0;
  return strcmp(word, "stopped") != 0;
}

static int tune_shape(tuner *t, const bench_shape *shape, char seen[][LINE_BYTES], size_t *seen_count) {
  candidate *tiles = NULL, *list[TILES_MOST];
  clattn_error error;
  char of[LINE_BYTES];
  int count = 0, good = 0, cut = 0, code = CLI_OK;
  size_t length = 0;
  clattn_error_init(&error);
  if (is_large(t, shape)) {
    left_out(t, shape, "predicted above 1 s a call, or more than 1 GB of keys and values");
    return CLI_OK;
  }
  if (clattn_tuning_candidate(t->device.session.context, &shape->problem, t->request->variant, 0, of, sizeof of,
                              &length, &error) != CLATTN_SUCCESS ||
      length == 0) {
    left_out(t, shape, length == 0 && error.message[0] == 0 ? "no other tile" : error.message);
    return CLI_OK;
  }
  memmove(of, of + 5, strlen(of + 5) + 1); /* "tile " */
  *strstr(of, " :") = 0;
  if (is_known(t, of, seen, seen_count))
    return CLI_OK;
  tiles = calloc(TILES_MOST, sizeof *tiles);
  if (tiles == NULL)
    return cli_fail_memory();
  printf("%s: %s\n", shape->name, of);
  for (int i = 0; i < TILES_MOST && code == CLI_OK && !bench_stop; i++) {
    candidate *c = &tiles[i];
    if (i > 0 &&
        (clattn_tuning_candidate(t->device.session.context, &shape->problem, t->request->variant, (uint32_t)(i - 1),
                                 c->line, sizeof c->line, &length, &error) != CLATTN_SUCCESS ||
         length == 0))
      break;
    if (!settle_tile(t, c, &good, &code)) {
      /* a start that is too short for anything tries one tile all the same, so that enough of them come to an end */
      cut = i > 0 && is_over(t) && t->tuned + t->kept + t->tried > 0;
      if (cut)
        break;
      code = verify_tile(t, shape, c, &good);
    }
    if (good && code == CLI_OK)
      list[count++] = c;
    else if (i == 0)
      break; /* the usual tile does not run: nothing to compare with */
    fflush(stdout);
  }
  if (code == CLI_OK && cut) {
    t->stopped++;
    printf("  the budget is used up: another start goes on here\n");
    code = put(&t->file, "# stopped %s", of);
  } else if (code == CLI_OK && count > 0 && !bench_stop) {
    code = decide(t, shape, of, list, count);
  }
  for (int i = 0; i < TILES_MOST; i++)
    clattn_context_release(tiles[i].context);
  free(tiles);
  return code;
}

/* Names that nobody has are told before the file is touched. */
static int check_names(const tuner *t) {
  for (size_t i = 0; i < t->request->shapes.count; i++) {
    clattn_support support;
    clattn_support_init(&support);
    const clattn_status status = clattn_supported(t->device.session.context, &t->request->shapes.shape[i].problem,
                                                  t->request->variant, &support);
    const char *option = status == CLATTN_ERROR_TEXT || t->request->variant == NULL ? "--config" : "--variant";
    if (status == CLATTN_ERROR_TEXT || status == CLATTN_ERROR_UNKNOWN_VARIANT)
      return cli_fail(CLI_USAGE, "%s: %s", option, support.reason);
  }
  return CLI_OK;
}

/* What came of it all, and the exit code. */
static int sum_up(const tuner *t) {
  printf("%s: %d tuned, %d left as they are, %d known before%s\n", t->file.path, t->tuned, t->kept, t->known,
         is_over(t) && !bench_stop ? "; the budget is used up" : "");
  if (t->bad > 0)
    return cli_fail(CLI_FAILED, "%d times the usual tile was wrong or failed: see above", t->bad);
  if (t->left_out == t->request->shapes.count && !bench_stop)
    return cli_fail(CLI_USAGE, "none of the shapes could be tuned");
  return CLI_OK;
}

int bench_tune(const tune_request *request) {
  static tuner t; /* large */
  char(*seen)[LINE_BYTES] = NULL;
  size_t seen_count = 0;
  memset(&t, 0, sizeof t);
  t.request = request;
  int code = bench_device_open(request->device, &t.device);
  if (code != CLI_OK)
    goto done;
  const clattn_status status = clattn_tuning_head(t.device.session.context, t.head, sizeof t.head, NULL);
  if (status != CLATTN_SUCCESS)
    code = cli_fail_status(status, NULL, "the head of a tuning");
  if (code == CLI_OK)
    code = check_names(&t);
  if (code == CLI_OK)
    code = open_file(request, &t.device, t.head, &t.file);
  seen = calloc(request->shapes.count + 1, sizeof *seen);
  if (code == CLI_OK && seen == NULL)
    code = cli_fail_memory();
  if (code != CLI_OK)
    goto done;
  t.peaks.fma_flops = bench_probe_fma(&t.device);
  t.begin = cli_seconds();
  for (size_t i = 0; i < request->shapes.count && code == CLI_OK && !is_over(&t); i++) {
    code = tune_shape(&t, &request->shapes.shape[i], seen, &seen_count);
    fflush(stdout);
  }
  if (code == CLI_OK)
    code = sum_up(&t);

done:
  free(seen);
  close_file(&t.file);
  bench_device_close(&t.device);
  return code;
}
