/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as a reader wants them. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report_page.h"

static const char none[] = "\xe2\x80\x93";

/* 1234567 as 1,234,567. */
static void group(double value, char text[REPORT_NUMBER_BYTES]) {
  char digits[REPORT_NUMBER_BYTES];
  const int count = snprintf(digits, sizeof digits, "%.0f", value);
  size_t used = 0;
  for (int i = 0; i < count; i++) {
    if (i > 0 && (count - i) % 3 == 0)
      text[used++] = ',';
    text[used++] = digits[i];
  }
  text[used] = 0;
}

const char *report_number(double value, char text[REPORT_NUMBER_BYTES]) {
  const double size = fabs(value);
  if (!isfinite(value))
    snprintf(text, REPORT_NUMBER_BYTES, "%s", none);
  else if (value == 0)
    snprintf(text, REPORT_NUMBER_BYTES, "0");
  else if (size >= 1e15 || size < 0.0001 || (value < 0 && size >= 99.95))
    snprintf(text, REPORT_NUMBER_BYTES, "%.3g", value);
  else if (size >= 99.95)
    group(value, text);
  else
    snprintf(text, REPORT_NUMBER_BYTES, "%.*f",
             size >= 9.995    ? 1
             : size >= 0.9995 ? 2
                              : 3 - (int)floor(log10(size) + 1),
             value);
  return text;
}

/* The largest unit that leaves a number of at least 1. */
static const char *scaled(double value, double step, const char *const *units, int count, char *text) {
  int unit = 0;
  while (unit + 1 < count && value >= 0.9995 * step) {
    value /= step;
    unit++;
  }
  report_number(value, text);
  const size_t used = strlen(text);
  snprintf(text + used, REPORT_NUMBER_BYTES - used, " %s", units[unit]);
  return text;
}

const char *report_time(int64_t nanoseconds, char text[REPORT_NUMBER_BYTES]) {
  static const char *const units[] = {"ns", "\xc2\xb5s", "ms", "s"};
  if (nanoseconds > 0)
    return scaled((double)nanoseconds, 1000, units, 4, text);
  snprintf(text, REPORT_NUMBER_BYTES, "%s", none);
  return text;
}

const char *report_size(double bytes, char text[REPORT_NUMBER_BYTES]) {
  static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
  return scaled(bytes, 1000, units, 5, text);
}

const char *report_tick(double value, char text[REPORT_NUMBER_BYTES]) {
  static const char *const units[] = {"", "k", "M", "G", "T"};
  size_t unit = 0;
  if (value == 0 || (value >= 0.0009995 && value < 0.9995e15)) {
    while (unit + 1 < sizeof units / sizeof units[0] && value >= 999.5) {
      value /= 1000;
      unit++;
    }
    snprintf(text, REPORT_NUMBER_BYTES, "%.3g%s", value, units[unit]);
  } else {
    snprintf(text, REPORT_NUMBER_BYTES, "%.0e", value);
  }
  return text;
}

const char *report_bound_name(bench_bound bound) {
  static const char *const names[] = {"FMA", "fp16", "matrix", "memory"};
  return (size_t)bound < sizeof names / sizeof names[0] ? names[bound] : none;
}

const char *report_status_name(bench_status status) {
  static const char *const names[] = {"ok", "WRONG", "skipped", "failed"};
  return (size_t)status < sizeof names / sizeof names[0] ? names[status] : none;
}
