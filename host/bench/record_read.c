/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "model_file.h"
#include "model_json.h"
#include "record.h"
#include "record_fields.h"

/* Where the reader is, for messages: "rows[3]." and the file. */
typedef struct place {
  const char *path;
  char at[64];
} place;

static int refuse(const place *p, const char *member, const char *format, ...) {
  char rule[320];
  va_list list;
  va_start(list, format);
  vsnprintf(rule, sizeof rule, format, list);
  va_end(list);
  const size_t length = strlen(p->at);
  const int at = (int)(member[0] == 0 && length > 0 ? length - 1 : length); /* without the dot before a member */
  return cli_fail(CLI_USAGE, "%s: %.*s%s: %s", model_show_path(p->path).text, at, p->at, member, rule);
}

/* ---- values ---- */

static int take_whole(const place *p, const bench_field *field, const cJSON *item, int64_t most, int64_t *out) {
  if (model_json_whole(item, out) && *out <= most)
    return CLI_OK;
  return refuse(p, field->name, "it must be a whole number from 0 to %" PRId64 ", and is %s", most,
                model_json_show(item).text);
}

/* A number, or digits for what a double does not hold. */
static int take_count(const place *p, const bench_field *field, const cJSON *item, void *to) {
  int64_t whole = 0;
  uint64_t count = 0;
  if (cJSON_IsString(item)) {
    const char *text = item->valuestring;
    char *end = NULL;
    errno = 0;
    count = strtoull(text, &end, 10);
    if (text[0] < '1' || text[0] > '9' || *end != 0 || errno != 0)
      return refuse(p, field->name, "it must be digits of a number below 2^64, and is %s", model_json_show(item).text);
  } else {
    const int code = take_whole(p, field, item, BENCH_WHOLE_MOST, &whole);
    if (code != CLI_OK)
      return code;
    count = (uint64_t)whole;
  }
  memcpy(to, &count, sizeof count);
  return CLI_OK;
}

static int take_text(const place *p, const bench_field *field, const cJSON *item, char *to) {
  if (!cJSON_IsString(item))
    return refuse(p, field->name, "it must be a text, and is %s", model_json_show(item).text);
  const size_t length = strlen(item->valuestring);
  if (length >= field->size)
    return refuse(p, field->name, "%zu bytes of text; up to %zu are read", length, field->size - 1);
  memcpy(to, item->valuestring, length + 1);
  return CLI_OK;
}

static int take_real(const place *p, const bench_field *field, const cJSON *item, void *to) {
  if (!cJSON_IsNumber(item) || !isfinite(item->valuedouble) || item->valuedouble < 0)
    return refuse(p, field->name, "it must be a number of 0 or more, and is %s", model_json_show(item).text);
  memcpy(to, &item->valuedouble, sizeof item->valuedouble);
  return CLI_OK;
}

static int take_word(const place *p, const bench_field *field, const cJSON *item, void *base) {
  const char *const *words = bench_kind_words(field->kind);
  char known[160] = "";
  for (int i = 0; words[i] != NULL; i++) {
    if (cJSON_IsString(item) && strcmp(item->valuestring, words[i]) == 0) {
      bench_word_set(field, base, i);
      return CLI_OK;
    }
    const size_t n = strlen(known);
    snprintf(known + n, sizeof known - n, "%s'%s'", i == 0 ? "" : words[i + 1] != NULL ? ", " : " or ", words[i]);
  }
  return refuse(p, field->name, "it must be %s, and is %s", known, model_json_show(item).text);
}

static int take_value(const place *p, const bench_field *field, const cJSON *item, void *base) {
  char *to = (char *)base + field->offset;
  int64_t whole = 0;
  int code;
  switch (field->kind) {
  case BENCH_TEXT:
    return take_text(p, field, item, to);
  case BENCH_REAL:
    return take_real(p, field, item, to);
  case BENCH_COUNT:
    return take_count(p, field, item, to);
  case BENCH_INT64:
    code = take_whole(p, field, item, BENCH_WHOLE_MOST, &whole);
    memcpy(to, &whole, sizeof whole);
    return code;
  case BENCH_INT32:
  case BENCH_UINT32:
    code = take_whole(p, field, item, field->kind == BENCH_INT32 ? INT32_MAX : UINT32_MAX, &whole);
    const uint32_t bits = (uint32_t)whole; /* the same for both where they hold the number */
    memcpy(to, &bits, sizeof bits);
    return code;
  case BENCH_FLAG:
    if (!cJSON_IsBool(item))
      return refuse(p, field->name, "it must be true or false, and is %s", model_json_show(item).text);
    bench_word_set(field, base, cJSON_IsTrue(item));
    return CLI_OK;
  default:
    return take_word(p, field, item, base);
  }
}

static int take_members(const place *p, const bench_field *fields, const cJSON *object, void *base) {
  int code = CLI_OK;
  if (!cJSON_IsObject(object))
    return refuse(p, "", "it must be an object, and is %s", model_json_show(object).text);
  for (; fields->name != NULL && code == CLI_OK; fields++) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, fields->name);
    if (item == NULL)
      return refuse(p, fields->name, "it is missing");
    if (!cJSON_IsNull(item))
      code = take_value(p, fields, item, base);
    else if (fields->when == BENCH_ALWAYS)
      code = refuse(p, fields->name, "it is null");
  }
  return code;
}

/* ---- rows ---- */

/* What belongs together is there together: a time has samples, a bound its percentage. */
static int check_nulls(const place *p, const cJSON *object, const bench_row *row) {
  for (const bench_field *field = bench_row_fields; field->name != NULL; field++) {
    const int has = !cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(object, field->name));
    if (field->when == BENCH_KNOWN || field->kind == BENCH_REAL || has == bench_field_has_value(field, row, row))
      continue;
    return refuse(p, field->name,
                  has ? "there is a value, but what it belongs to is missing in this row"
                      : "it is null, but the row has what belongs to it");
  }
  return CLI_OK;
}

static int take_problem(const place *p, bench_row *row) {
  clattn_error error;
  clattn_error_init(&error);
  bench_shape *shape = &row->shape;
  if (clattn_problem_parse(shape->line, &shape->problem, &error) != CLATTN_SUCCESS)
    return refuse(p, "problem", "%s", model_show(error.message).text);
  /* Rows are joined by this line: one problem has one text. */
  if (clattn_problem_format(&shape->problem, shape->line, sizeof shape->line, NULL) != CLATTN_SUCCESS)
    return refuse(p, "problem", "it is longer than %zu bytes", sizeof shape->line - 1);
  return CLI_OK;
}

static int take_row(place *p, const cJSON *object, bench_row *row) {
  int code = take_members(p, bench_row_fields, object, row);
  if (code == CLI_OK)
    code = check_nulls(p, object, row);
  if (code == CLI_OK)
    code = take_problem(p, row);
  /* A difference that is no number is null. */
  if (code == CLI_OK && row->verified_rows > 0 && cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(object, "error")))
    row->error = (double)NAN;
  return code;
}

static int take_run(place *p, const cJSON *root, bench_run *out) {
  const cJSON *version = cJSON_GetObjectItemCaseSensitive(root, "schema_version");
  const cJSON *context = cJSON_GetObjectItemCaseSensitive(root, "context");
  const cJSON *rows = cJSON_GetObjectItemCaseSensitive(root, "rows");
  int64_t number = 0;
  if (!cJSON_IsObject(root) || version == NULL)
    return refuse(p, "schema_version", "it is missing: this is no saved run of clattn bench");
  if (!model_json_whole(version, &number) || number != BENCH_SCHEMA_VERSION)
    return refuse(p, "schema_version", "it is %s; this clattn reads %d", model_json_show(version).text,
                  BENCH_SCHEMA_VERSION);
  snprintf(p->at, sizeof p->at, "context.");
  int code = take_members(p, bench_context_fields, context, &out->context);
  snprintf(p->at, sizeof p->at, "context.peaks.");
  if (code == CLI_OK)
    code = take_members(p, bench_peak_fields, cJSON_GetObjectItemCaseSensitive(context, "peaks"), &out->context.peaks);
  p->at[0] = 0;
  if (code == CLI_OK && !cJSON_IsArray(rows))
    code = refuse(p, "rows", "it must be an array, and is %s", model_json_show(rows).text);
  const cJSON *object = rows != NULL ? rows->child : NULL;
  for (; code == CLI_OK && object != NULL; object = object->next) {
    snprintf(p->at, sizeof p->at, "rows[%zu].", out->count);
    bench_row *row = bench_run_add(out);
    code = row != NULL ? take_row(p, object, row) : CLI_FAILED;
  }
  return code;
}

int bench_run_read_json(const char *path, bench_run *out) {
  model_error error;
  model_file file;
  place p = {path, ""};
  cJSON *root = NULL;
  int code = CLI_OK;
  memset(out, 0, sizeof *out);
  if (model_file_map(path, 0, &file, &error) != 0)
    return cli_fail(CLI_USAGE, "%s", error.message);
  root = model_json_parse(path, file.bytes, file.count, &error);
  if (root == NULL)
    code = cli_fail(CLI_USAGE, "%s", error.message);
  else
    code = take_run(&p, root, out);
  cJSON_Delete(root);
  model_file_unmap(&file);
  if (code != CLI_OK)
    bench_run_release(out);
  return code;
}
