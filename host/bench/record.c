/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "record.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "picture_unicode.h"
#include "record_fields.h"

enum { CELL_BYTES = 1200 }; /* of the longest text with its 0, and to spare */

bench_row *bench_run_add(bench_run *run) {
  if (run->count == run->capacity) {
    const size_t capacity = run->capacity > 0 ? 2 * run->capacity : 32;
    bench_row *grown = realloc(run->rows, capacity * sizeof *grown);
    if (grown == NULL) {
      cli_fail_memory();
      return NULL;
    }
    run->rows = grown;
    run->capacity = capacity;
  }
  bench_row *row = &run->rows[run->count++];
  memset(row, 0, sizeof *row);
  return row;
}

void bench_run_release(bench_run *run) {
  free(run->rows);
  memset(run, 0, sizeof *run);
}

int bench_run_is_noisy(const bench_run *run) {
  size_t timed = 0, noisy = 0;
  for (size_t i = 0; i < run->count; i++) {
    const bench_row *row = &run->rows[i];
    timed += row->status == BENCH_OK && row->samples > 0;
    noisy += row->status == BENCH_OK && row->samples > 0 && row->spread > 0.05;
  }
  return 5 * noisy > timed;
}

/* ---- values as text ---- */

/* Never longer than `text`, so that what is written fits when it is read back. */
static void clean(const char *text, char *out, size_t capacity) {
  size_t n = 0;
  while (*text != 0) {
    const char *const at = text;
    const uint32_t code = cli_utf8_next(&text);
    const size_t length = (size_t)(text - at);
    if (n + length >= capacity)
      break;
    if (code < ' ' || (code >= 127 && code < 160) || (code == CLI_NO_CHARACTER && length < 3)) {
      out[n++] = code == '\n' || code == '\t' || code == '\r' ? ' ' : '?';
    } else {
      memcpy(out + n, at, length);
      n += length;
    }
  }
  out[n] = 0;
}

/* The shortest text that reads as the same number. */
static void real_text(double value, char *text, size_t capacity) {
  for (int digits = 15; digits <= 17; digits++) {
    snprintf(text, capacity, "%.*g", digits, value);
    if (strtod(text, NULL) == value)
      return;
  }
}

typedef enum form { FORM_NULL, FORM_PLAIN, FORM_TEXT } form;

static int out_of_range(const char *name, int64_t value) {
  return cli_fail(CLI_FAILED, "%s is %" PRId64 ": a saved run has counts from 0 to %" PRId64, name, value,
                  BENCH_WHOLE_MOST);
}

/* Text of a number, word or flag, and whether JSON quotes it. */
static int value_text(const bench_field *field, const void *base, char text[CELL_BYTES], form *out) {
  const char *at = (const char *)base + field->offset;
  const char *const *words = bench_kind_words(field->kind);
  double real = 0;
  int64_t whole = 0;
  uint64_t count = 0;
  int32_t small = 0;
  uint32_t small_count = 0;
  *out = FORM_PLAIN;
  switch (field->kind) {
  case BENCH_TEXT:
    clean(at, text, field->size);
    *out = FORM_TEXT;
    return CLI_OK;
  case BENCH_REAL:
    memcpy(&real, at, sizeof real);
    if (isfinite(real) && real >= 0)
      real_text(real, text, CELL_BYTES);
    else
      *out = FORM_NULL;
    return CLI_OK;
  case BENCH_COUNT:
    memcpy(&count, at, sizeof count);
    snprintf(text, CELL_BYTES, "%" PRIu64, count);
    *out = count > (uint64_t)BENCH_WHOLE_MOST ? FORM_TEXT : FORM_PLAIN;
    return CLI_OK;
  case BENCH_INT64:
    memcpy(&whole, at, sizeof whole);
    break;
  case BENCH_INT32:
    memcpy(&small, at, sizeof small);
    whole = small;
    break;
  case BENCH_UINT32:
    memcpy(&small_count, at, sizeof small_count);
    whole = small_count;
    break;
  case BENCH_FLAG:
    snprintf(text, CELL_BYTES, "%s", bench_word_get(field, base) ? "true" : "false");
    return CLI_OK;
  default:
    snprintf(text, CELL_BYTES, "%s", words[bench_word_get(field, base)]);
    *out = FORM_TEXT;
    return CLI_OK;
  }
  if (whole < 0 || whole > BENCH_WHOLE_MOST)
    return out_of_range(field->name, whole);
  snprintf(text, CELL_BYTES, "%" PRId64, whole);
  return CLI_OK;
}

static int field_text(const bench_field *field, const void *base, const bench_row *row, char text[CELL_BYTES],
                      form *out) {
  text[0] = 0;
  *out = FORM_NULL;
  return bench_field_has_value(field, base, row) ? value_text(field, base, text, out) : CLI_OK;
}

/* ---- JSON ---- */

static int add_members(cli_bytes *out, const bench_field *fields, const void *base, const bench_row *row,
                       const char *indent) {
  char text[CELL_BYTES];
  form as;
  int code = CLI_OK;
  for (const bench_field *field = fields; field->name != NULL && code == CLI_OK; field++) {
    code = field_text(field, base, row, text, &as);
    cli_bytes_format(out, "%s%s\"%s\": ", field == fields ? "" : ",\n", indent, field->name);
    if (as == FORM_TEXT)
      cli_bytes_json(out, text);
    else
      cli_bytes_text(out, as == FORM_NULL ? "null" : text);
  }
  return code;
}

int bench_run_json(const bench_run *run, cli_bytes *out) {
  cli_bytes_format(out, "{\n  \"schema_version\": %d,\n  \"context\": {\n", BENCH_SCHEMA_VERSION);
  int code = add_members(out, bench_context_fields, &run->context, NULL, "    ");
  cli_bytes_text(out, ",\n    \"peaks\": {\n");
  if (code == CLI_OK)
    code = add_members(out, bench_peak_fields, &run->context.peaks, NULL, "      ");
  cli_bytes_text(out, "\n    }\n  },\n  \"rows\": [");
  for (size_t i = 0; i < run->count && code == CLI_OK; i++) {
    cli_bytes_text(out, i == 0 ? "\n    {\n" : ",\n    {\n");
    code = add_members(out, bench_row_fields, &run->rows[i], &run->rows[i], "      ");
    cli_bytes_text(out, "\n    }");
  }
  cli_bytes_text(out, run->count > 0 ? "\n  ]\n}\n" : "]\n}\n");
  return code == CLI_OK && out->failed ? cli_fail_memory() : code;
}

/* ---- CSV ---- */

static void add_cell(cli_bytes *out, const char *text) {
  if (strpbrk(text, ",\"\r\n") == NULL) {
    cli_bytes_text(out, text);
    return;
  }
  cli_bytes_text(out, "\"");
  for (; *text != 0; text++)
    cli_bytes_add(out, *text == '"' ? "\"\"" : text, *text == '"' ? 2 : 1);
  cli_bytes_text(out, "\"");
}

static void add_names(cli_bytes *out, const bench_field *fields, const char *before) {
  for (; fields->name != NULL; fields++)
    cli_bytes_format(out, ",%s%s", before, fields->name);
}

static int add_cells(cli_bytes *out, const bench_field *fields, const void *base, const bench_row *row) {
  char text[CELL_BYTES];
  form as;
  int code = CLI_OK;
  for (; fields->name != NULL && code == CLI_OK; fields++) {
    code = field_text(fields, base, row, text, &as);
    cli_bytes_text(out, ",");
    if (as != FORM_NULL)
      add_cell(out, text);
  }
  return code;
}

int bench_run_csv(const bench_run *run, cli_bytes *out) {
  int code = CLI_OK;
  cli_bytes_text(out, "schema_version");
  add_names(out, bench_row_fields, "");
  add_names(out, bench_context_fields, "");
  add_names(out, bench_peak_fields, "peak_");
  cli_bytes_text(out, "\n");
  for (size_t i = 0; i < run->count && code == CLI_OK; i++) {
    cli_bytes_format(out, "%d", BENCH_SCHEMA_VERSION);
    code = add_cells(out, bench_row_fields, &run->rows[i], &run->rows[i]);
    if (code == CLI_OK)
      code = add_cells(out, bench_context_fields, &run->context, NULL);
    if (code == CLI_OK)
      code = add_cells(out, bench_peak_fields, &run->context.peaks, NULL);
    cli_bytes_text(out, "\n");
  }
  return code == CLI_OK && out->failed ? cli_fail_memory() : code;
}

/* ---- files ---- */

static int write_run(const bench_run *run, int (*make)(const bench_run *, cli_bytes *), const char *type,
                     cli_file *file) {
  cli_bytes bytes;
  memset(&bytes, 0, sizeof bytes);
  int code = make(run, &bytes);
  if (code == CLI_OK)
    code = cli_files_put_bytes(file, type, bytes.data, bytes.count);
  cli_bytes_release(&bytes);
  return code;
}

int bench_run_write_json(const bench_run *run, cli_file *file) {
  return write_run(run, bench_run_json, "json", file);
}

int bench_run_write_csv(const bench_run *run, cli_file *file) {
  return write_run(run, bench_run_csv, "csv", file);
}
