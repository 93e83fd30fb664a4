/* SPDX-License-Identifier: Apache-2.0 */
#include "baseline.h"

#include <string.h>

#include "record.h"
#include "table.h"

const char *bench_verdict_word(bench_verdict verdict) {
  static const char *const words[] = {"same", "faster", "slower", "too noisy to judge", "not comparable", "missing"};
  return words[verdict];
}

static int has_time(const bench_row *row) {
  return row->status == BENCH_OK && row->samples > 0 && row->median_ns > 0;
}

static int same_problem(const bench_row *row, const char *line, const char *pass) {
  return strcmp(row->shape.line, line) == 0 && strcmp(row->pass, pass) == 0;
}

const bench_row *bench_fastest(const bench_run *run, const char *line, const char *pass) {
  const bench_row *best = NULL;
  for (size_t i = 0; i < run->count; i++) {
    const bench_row *row = &run->rows[i];
    if (has_time(row) && same_problem(row, line, pass) && (best == NULL || row->median_ns < best->median_ns))
      best = row;
  }
  return best;
}

const bench_row *bench_find(const bench_run *run, const char *line, const char *pass, const char *variant) {
  const bench_row *best = NULL;
  for (size_t i = 0; i < run->count; i++) {
    const bench_row *row = &run->rows[i];
    if (has_time(row) && same_problem(row, line, pass) && strcmp(row->variant, variant) == 0 &&
        (best == NULL || row->median_ns < best->median_ns))
      best = row;
  }
  return best;
}

/* ---- a row ---- */

static const bench_row *find_before(const bench_run *baseline, const bench_run *run, const bench_row *row) {
  const bench_row *same = bench_find(baseline, row->shape.line, row->pass, row->variant);
  if (same != NULL || bench_fastest(run, row->shape.line, row->pass) != row)
    return same;
  return bench_fastest(baseline, row->shape.line, row->pass);
}

/* Why two rows say nothing of each other; NULL: they do.  Another clattn is what a baseline is for. */
static const char *differs(const bench_run *baseline, const bench_row *before, const bench_run *run,
                           const bench_row *row) {
  const bench_context *a = &baseline->context, *b = &run->context;
  if (strcmp(a->device, b->device) != 0 || a->device_type != b->device_type)
    return "another device";
  if (strcmp(a->platform, b->platform) != 0)
    return "another platform";
  if (strcmp(a->driver, b->driver) != 0 || strcmp(a->version, b->version) != 0)
    return "another driver";
  if (before->by_events != row->by_events)
    return "timed in another way";
  if (before->cold != row->cold)
    return "cold inputs against hot ones";
  if (!(before->percent_of_bound > 0) || !(row->percent_of_bound > 0))
    return "no peak was measured";
  return NULL;
}

/* Speeds at the quartiles, of the speed at the median. */
static void speed_range(const bench_row *row, double *least, double *most) {
  const double median = (double)row->median_ns;
  *least = row->third_quartile_ns > row->median_ns ? median / (double)row->third_quartile_ns : 1;
  *most = row->first_quartile_ns > 0 && row->first_quartile_ns < row->median_ns
              ? median / (double)row->first_quartile_ns
              : 1;
}

/* The FMA bound is measured again beside each row, which cancels a lower clock; other bounds are not. */
static int is_throttled(const bench_row *row) {
  return row->throttled && row->bound != BENCH_BOUND_FMA;
}

static void judge_speeds(const bench_row *before, const bench_row *row, double threshold, bench_judgement *out) {
  double least_before, most_before, least, most;
  speed_range(before, &least_before, &most_before);
  speed_range(row, &least, &most);
  out->speed = row->percent_of_bound / before->percent_of_bound;
  out->least = out->speed * least / most_before;
  out->most = out->speed * most / least_before;
  out->verdict = BENCH_TOO_NOISY;
  if (is_throttled(row) || is_throttled(before))
    return;
  if (out->most < 1 - threshold)
    out->verdict = BENCH_SLOWER;
  else if (out->least > 1 + threshold)
    out->verdict = BENCH_FASTER;
  else if (out->least >= 1 - threshold && out->most <= 1 + threshold)
    out->verdict = BENCH_SAME;
}

static void explain(const bench_row *before, const bench_row *row, bench_judgement *out) {
  const size_t capacity = sizeof out->why;
  if (out->verdict == BENCH_TOO_NOISY && (is_throttled(row) || is_throttled(before)))
    snprintf(out->why, capacity, "throttled %s", is_throttled(row) ? "now" : "then");
  else if (out->verdict == BENCH_TOO_NOISY)
    snprintf(out->why, capacity, "between %.2f and %.2f of the speed", out->least, out->most);
  else if (strcmp(before->variant, row->variant) != 0)
    snprintf(out->why, capacity, "then by %s", before->variant);
}

void bench_baseline_judge(const bench_run *baseline, const bench_run *run, size_t at, double percent,
                          bench_judgement *out) {
  const bench_row *row = &run->rows[at];
  memset(out, 0, sizeof *out);
  out->verdict = BENCH_MISSING;
  out->before = find_before(baseline, run, row);
  if (!has_time(row))
    snprintf(out->why, sizeof out->why, "now %s", bench_status_word(row->status));
  else if (out->before == NULL)
    snprintf(out->why, sizeof out->why, "no time in the baseline");
  if (out->why[0] != 0)
    return;
  const char *difference = differs(baseline, out->before, run, row);
  if (difference != NULL) {
    out->verdict = BENCH_NOT_COMPARABLE;
    snprintf(out->why, sizeof out->why, "%s", difference);
    return;
  }
  judge_speeds(out->before, row, percent / 100, out);
  explain(out->before, row, out);
}

/* ---- a run ---- */

int bench_baseline_suspect(const bench_judgement *judgement) {
  return judgement->verdict == BENCH_SLOWER || judgement->verdict == BENCH_TOO_NOISY;
}

void bench_baseline_keep(bench_row *row, const bench_row *again) {
  if (again->status == BENCH_SKIPPED) /* interrupted */
    return;
  const int worse = has_time(again) &&
                    (is_throttled(again) > is_throttled(row) ||
                     (is_throttled(again) == is_throttled(row) && again->percent_of_bound <= row->percent_of_bound));
  if (!worse)
    *row = *again;
}

static void print_row(FILE *out, const bench_row *row, const bench_judgement *judgement, const int columns[2]) {
  bench_pad(out, row->shape.name, columns[0] + 2);
  bench_pad(out, row->variant, columns[1]);
  if (judgement->speed > 0)
    fprintf(out, "  %5.1f %%  %5.1f %%  %+6.1f %%", judgement->before->percent_of_bound, row->percent_of_bound,
            100 * (judgement->speed - 1));
  else
    fprintf(out, "  %7s  %7s  %8s", "-", "-", "-");
  fprintf(out, "  %s%s", bench_verdict_word(judgement->verdict), judgement->why[0] != 0 ? ": " : "");
  bench_pad(out, judgement->why, 0);
  fputc('\n', out);
}

size_t bench_baseline_print(FILE *out, const bench_run *baseline, const char *name, const bench_run *run,
                            double percent) {
  size_t count[BENCH_MISSING + 1] = {0};
  bench_judgement judgement;
  char head[1024];
  int columns[2] = {5, 7};
  for (size_t i = 0; i < run->count; i++) {
    const int shape = bench_columns(run->rows[i].shape.name), variant = bench_columns(run->rows[i].variant);
    columns[0] = shape > columns[0] ? shape : columns[0];
    columns[1] = variant > columns[1] ? variant : columns[1];
  }
  snprintf(head, sizeof head, "against %s (clattn %s, %s), threshold %g %%", name, baseline->context.clattn,
           baseline->context.date, percent);
  fputc('\n', out);
  bench_pad(out, head, 0);
  fputc('\n', out);
  bench_pad(out, "shape", columns[0] + 2);
  bench_pad(out, "variant", columns[1]);
  fprintf(out, "  %7s  %7s  %8s  (%% of bound, speed)\n", "then", "now", "change");
  for (size_t i = 0; i < run->count; i++) {
    if (run->rows[i].status == BENCH_SKIPPED)
      continue;
    bench_baseline_judge(baseline, run, i, percent, &judgement);
    print_row(out, &run->rows[i], &judgement, columns);
    count[judgement.verdict]++;
  }
  for (int verdict = BENCH_SAME; verdict <= BENCH_MISSING; verdict++)
    fprintf(out, "%s%zu %s", verdict == BENCH_SAME ? "" : ", ", count[verdict],
            bench_verdict_word((bench_verdict)verdict));
  fputc('\n', out);
  return count[BENCH_SLOWER];
}
