/* SPDX-License-Identifier: Apache-2.0 */
/* How the demo and the tests judge .npy files:
 *
 *     npy_tool compare GOT WANT TOLERANCE       largest |got - want|; exit 1 above the tolerance or at a NaN
 *     npy_tool compare-lse GOT Q K TOLERANCE    the same for log-sum-exp, computed here in double from q and k (dot
 *                                               products, scale 1/sqrt(dim), no rules)
 *
 * f4 arrays in C order; exit 2 for wrong usage or files. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npy.h"

static int usage(void) {
  fprintf(stderr, "usage: npy_tool compare GOT WANT TOLERANCE\n"
                  "       npy_tool compare-lse GOT Q K TOLERANCE\n");
  return 2;
}

static int64_t count(const clattn_npy *a) {
  int64_t n = 1;
  for (int i = 0; i < a->rank; i++) {
    n *= a->shape[i];
  }
  return n;
}

static int open_f4(const char *path, clattn_npy *out) {
  char message[512];
  if (clattn_npy_open(path, out, message, sizeof message) != 0) {
    fprintf(stderr, "npy_tool: %s\n", message);
    return -1;
  }
  int64_t stride = 1;
  int fits = strcmp(out->type, "f4") == 0;
  for (int i = out->rank - 1; i >= 0; i--) {
    fits &= out->stride[i] == stride || out->shape[i] <= 1;
    stride *= out->shape[i];
  }
  if (!fits) {
    fprintf(stderr, "npy_tool: %s: not an f4 array in C order\n", path);
    clattn_npy_close(out);
    return -1;
  }
  return 0;
}

static int parse_tolerance(const char *text, double *tolerance) {
  char *end;
  *tolerance = strtod(text, &end);
  return end != text && *end == 0 && *tolerance >= 0;
}

/* Equal infinities differ by 0; a NaN or an infinity on one side only is beyond any tolerance. */
static double difference(double got, double want) {
  if (got == want) {
    return 0;
  }
  double d = fabs(got - want);
  return isnan(d) ? INFINITY : d;
}

static int report(const char *what, double worst, int64_t values, double tolerance) {
  int bad = !(worst <= tolerance);
  printf("%s: largest difference %.1e in %lld values, allowed %.0e%s\n", what, worst, (long long)values, tolerance,
         bad ? "  FAILED" : "");
  return bad;
}

static int compare(const char *got_path, const char *want_path, const char *tolerance_text) {
  clattn_npy got = {0}, want = {0};
  double tolerance, worst = 0;
  int result = 2;
  if (!parse_tolerance(tolerance_text, &tolerance)) {
    return usage();
  }
  if (open_f4(got_path, &got) != 0 || open_f4(want_path, &want) != 0) {
    goto done;
  }
  int same = got.rank == want.rank;
  for (int i = 0; same && i < got.rank; i++) {
    same = got.shape[i] == want.shape[i];
  }
  if (!same || count(&got) == 0) {
    fprintf(stderr, "npy_tool: %s and %s have different shapes, or no elements\n", got_path, want_path);
    goto done;
  }
  const float *a = got.data, *b = want.data;
  for (int64_t i = 0; i < count(&got); i++) {
    worst = fmax(worst, difference((double)a[i], (double)b[i]));
  }
  result = report(got_path, worst, count(&got), tolerance);
done:
  clattn_npy_close(&got);
  clattn_npy_close(&want);
  return result;
}

static double lse_of_row(const float *q, const float *k, int64_t keys, int64_t dim) {
  double largest = -INFINITY, sum = 0, scale = 1 / sqrt((double)dim);
  for (int pass = 0; pass < 2; pass++) {
    for (int64_t j = 0; j < keys; j++) {
      double score = 0;
      for (int64_t d = 0; d < dim; d++) {
        score += (double)q[d] * (double)k[j * dim + d];
      }
      score *= scale;
      if (pass == 0) {
        largest = fmax(largest, score);
      } else {
        sum += exp(score - largest);
      }
    }
  }
  return largest + log(sum);
}

static int compare_lse(const char *got_path, const char *q_path, const char *k_path, const char *tolerance_text) {
  clattn_npy got = {0}, q = {0}, k = {0};
  double tolerance, worst = 0;
  int result = 2;
  if (!parse_tolerance(tolerance_text, &tolerance)) {
    return usage();
  }
  if (open_f4(got_path, &got) != 0 || open_f4(q_path, &q) != 0 || open_f4(k_path, &k) != 0) {
    goto done;
  }
  int fits = q.rank == 4 && k.rank == 4 && q.shape[0] == k.shape[0] && q.shape[1] == k.shape[1] &&
             q.shape[3] == k.shape[3] && count(&q) > 0 && count(&k) > 0 && count(&got) == count(&q) / q.shape[3];
  if (!fits) {
    fprintf(stderr, "npy_tool: %s, %s and %s do not fit each other\n", got_path, q_path, k_path);
    goto done;
  }
  const float *lse = got.data, *queries = q.data, *keys = k.data;
  int64_t dim = q.shape[3];
  for (int64_t row = 0; row < count(&got); row++) {
    const float *head = keys + row / q.shape[2] * k.shape[2] * dim;
    worst = fmax(worst, difference((double)lse[row], lse_of_row(queries + row * dim, head, k.shape[2], dim)));
  }
  result = report(got_path, worst, count(&got), tolerance);
done:
  clattn_npy_close(&got);
  clattn_npy_close(&q);
  clattn_npy_close(&k);
  return result;
}

int main(int argc, char **argv) {
  if (argc == 5 && strcmp(argv[1], "compare") == 0) {
    return compare(argv[2], argv[3], argv[4]);
  }
  if (argc == 6 && strcmp(argv[1], "compare-lse") == 0) {
    return compare_lse(argv[2], argv[3], argv[4], argv[5]);
  }
  return usage();
}
