/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "convert.h"
#include "replay.h"
#include "verify.h"

/* A number of an output beside what is expected. */
typedef struct spot {
  int64_t row, element; /* row -1: none */
  double got, want, error, allowed;
} spot;

typedef struct findings {
  spot first, worst; /* the first that differs, and the largest error of all */
  int64_t differing, compared;
} findings;

static int64_t place(const replay_output *o, int64_t row, int64_t element) {
  const int64_t i = row % o->shape[2], h = row / o->shape[2] % o->shape[1], b = row / o->shape[2] / o->shape[1];
  return b * o->stride[0] + h * o->stride[1] + i * o->stride[2] + element * o->stride[3];
}

/* "(b,h,i,d) = (0,3,17,5)", as far as the output has these axes. */
static void print_index(const replay_output *o, const spot *s) {
  const int64_t i = s->row % o->shape[2], h = s->row / o->shape[2] % o->shape[1];
  const int64_t b = s->row / o->shape[2] / o->shape[1];
  const char last = strcmp(o->name, "o") == 0 ? 'd' : 'j';
  if (o->packed && o->shape[3] > 1)
    printf("(h,row,%c) = (%" PRId64 ",%" PRId64 ",%" PRId64 ")", last, h, i, s->element);
  else if (o->packed)
    printf("(h,row) = (%" PRId64 ",%" PRId64 ")", h, i);
  else if (strcmp(o->name, "max_logit") == 0)
    printf("(b,h) = (%" PRId64 ",%" PRId64 ")", b, h);
  else if (strcmp(o->name, "lse") == 0)
    printf("(b,h,i) = (%" PRId64 ",%" PRId64 ",%" PRId64 ")", b, h, i);
  else
    printf("(b,h,i,%c) = (%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ")", last, b, h, i, s->element);
}

/* `times`: of the tolerances, 2 where both sides are rounded. */
static void judge(const replay_output *o, int64_t row, int64_t element, double got, double want, double times,
                  findings *f) {
  spot here = {row, element, got, want, 0, 0};
  const int differs = cli_verify_differs(got, want, times * o->tolerance, times * o->relative, o->limit, &here.error);
  here.allowed = times * (o->tolerance + (isfinite(want) ? o->relative * fabs(want) : 0));
  f->compared++;
  f->differing += differs;
  if (differs && f->first.row < 0)
    f->first = here;
  /* NaN counts as the largest. */
  if (f->worst.row < 0 || (!(here.error <= f->worst.error) && !isnan(f->worst.error)))
    f->worst = here;
}

static void print_findings(const replay_output *o, const findings *f, const char *against) {
  if (f->compared == 0) {
    printf("%-11s agrees: it has no elements\n", o->name);
    return;
  }
  if (f->differing == 0) {
    printf("%-11s agrees with %s in %" PRId64 " elements, worst error %.3g of %.3g allowed at ", o->name, against,
           f->compared, f->worst.error, f->worst.allowed);
    print_index(o, &f->worst);
    printf("\n");
    return;
  }
  printf("%-11s DIFFERS from %s in %" PRId64 " of %" PRId64 " elements\n", o->name, against, f->differing, f->compared);
  const spot *const both[2] = {&f->first, &f->worst};
  for (int n = 0; n < 2; n++) {
    printf("  %-9s ", n == 0 ? "first" : "worst");
    print_index(o, both[n]);
    printf(": expected %.9g, got %.9g, error %.3g, tolerance %.3g\n", cli_unsigned_nan(both[n]->want),
           cli_unsigned_nan(both[n]->got), cli_unsigned_nan(both[n]->error), both[n]->allowed);
  }
}

/* How the numbers differ from those of the dump's device, which is no verdict. */
static void print_device(const replay_output *o, const void *contents, const void *device) {
  int64_t different = 0, all = 0;
  double most = 0;
  for (int64_t row = 0; row < o->shape[0] * o->shape[1] * o->shape[2]; row++)
    for (int64_t e = 0; e < o->shape[3]; e++, all++) {
      const double here = cli_dtype_load(o->dtype, contents, place(o, row, e));
      const double there = cli_dtype_load(o->dtype, device, place(o, row, e));
      if (here == there || (isnan(here) && isnan(there)))
        continue;
      different++;
      const double by = fabs(here - there);
      if (!(by <= most) && !isnan(most))
        most = by;
    }
  if (different == 0)
    printf("  the same numbers as the dump's device computed\n");
  else
    printf("  %" PRId64 " of %" PRId64 " elements are not what the dump's device computed, by at most %.3g\n",
           different, all, cli_unsigned_nan(most));
}

/* The row numbers of a file: in order, and of this output. */
static int check_rows(const replay_dump *dump, const replay_output *o, const int64_t *rows) {
  const int64_t all = o->shape[0] * o->shape[1] * o->shape[2];
  char *seen = calloc((size_t)all + 1, 1);
  int code = CLI_OK;
  if (seen == NULL)
    return cli_fail_memory();
  for (int64_t i = 0; i < o->row_count && code == CLI_OK; i++) {
    if (rows[i] < 0 || rows[i] >= all || seen[rows[i]])
      code = cli_fail(CLI_USAGE, "%s/%s: number %" PRId64 " is no row of %s, or there twice", dump->folder.path,
                      o->rows.name, i, o->name);
    else
      seen[rows[i]] = 1;
  }
  free(seen);
  return code;
}

int replay_compare(const replay_dump *dump, const replay_output *o, const void *contents, int *differs) {
  char *want = NULL, *rows = NULL, *device = NULL;
  findings f;
  int code = CLI_OK;
  memset(&f, 0, sizeof f);
  f.first.row = f.worst.row = -1;
  *differs = 0;
  if (o->reference.name[0] != 0)
    code = replay_file_read(dump, &o->reference, &want, NULL);
  if (code == CLI_OK && want != NULL && o->rows.name[0] != 0)
    code = replay_file_read(dump, &o->rows, &rows, NULL);
  if (code == CLI_OK && rows != NULL)
    code = check_rows(dump, o, (const int64_t *)(const void *)rows);
  if (code == CLI_OK && o->device.name[0] != 0)
    code = replay_file_read(dump, &o->device, &device, NULL);
  for (int64_t i = 0; code == CLI_OK && want != NULL && i < o->row_count; i++) {
    const int64_t row = rows != NULL ? ((const int64_t *)(const void *)rows)[i] : i;
    for (int64_t e = 0; e < o->shape[3]; e++)
      judge(o, row, e, cli_dtype_load(o->dtype, contents, place(o, row, e)),
            ((const double *)(const void *)want)[i * o->shape[3] + e], 1, &f);
  }
  for (int64_t row = 0; code == CLI_OK && want == NULL && row < o->row_count; row++)
    for (int64_t e = 0; e < o->shape[3]; e++)
      judge(o, row, e, cli_dtype_load(o->dtype, contents, place(o, row, e)),
            cli_dtype_load(o->dtype, device, place(o, row, e)), 2, &f);
  if (code == CLI_OK) {
    print_findings(o, &f, want != NULL ? "the double-precision reference" : "the dump's device");
    if (device != NULL && f.compared > 0)
      print_device(o, contents, device);
    *differs = f.differing > 0;
  }
  free(want);
  free(rows);
  free(device);
  return code;
}
