/* SPDX-License-Identifier: Apache-2.0 */
/* Saved runs of the benchmark: what is written is read back and fits bench/schema.json; whatever else is refused by
 * name.  CSV has the same values. */
#define _XOPEN_SOURCE 700 /* mkdtemp, realpath */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench_schema.h"
#include "cli.h"
#include "cli_program.h"
#include "record.h"
#include "record_fields.h"

enum { MOST_BYTES = 1 << 16 };

static char monday[MOST_BYTES]; /* text of a saved run */
static cJSON *schema;

static void read_data(const char *name, char *text) {
  char path[1024];
  snprintf(path, sizeof path, "%s/bench/%s", CLATTN_TEST_DATA, name);
  assert_true(read_text(path, text, MOST_BYTES) < MOST_BYTES - 1);
}

static int start(void **state) {
  static char text[MOST_BYTES];
  (void)state;
  if (enter_folder() != 0)
    return -1;
  read_data("monday.json", monday);
  read_text(CLATTN_SOURCE_DIR "/bench/schema.json", text, sizeof text);
  schema = cJSON_Parse(text);
  return schema != NULL ? 0 : -1;
}

static int finish(void **state) {
  (void)state;
  cJSON_Delete(schema);
  return leave_folder();
}

static void read_good(const char *text, bench_run *run) {
  char said[512];
  write_text("run.json", text);
  cli_fail_catch(said, sizeof said);
  const int code = bench_run_read_json("run.json", run);
  cli_fail_catch(NULL, 0);
  if (code != CLI_OK)
    fail_msg("%s", said);
}

/* The text is refused with a sentence that has `part` and begins with the file. */
static void read_bad(const char *text, const char *part) {
  char said[512];
  bench_run run;
  write_text("bad.json", text);
  cli_fail_catch(said, sizeof said);
  const int code = bench_run_read_json("bad.json", &run);
  cli_fail_catch(NULL, 0);
  if (code != CLI_USAGE || strstr(said, part) == NULL || strncmp(said, "bad.json: ", 10) != 0)
    fail_msg("exit %d: '%s' lacks '%s'", code, said, part);
  assert_null(run.rows);
  assert_int_equal(run.count, 0);
}

/* The run's text, 0-terminated. */
static void text_of(const bench_run *run, int (*make)(const bench_run *, cli_bytes *), cli_bytes *bytes) {
  memset(bytes, 0, sizeof *bytes);
  assert_int_equal(make(run, bytes), CLI_OK);
  cli_bytes_add(bytes, "", 1);
  assert_false(bytes->failed);
}

/* ---- JSON ---- */

static void round_trip(void **state) {
  (void)state;
  static const char *const names[] = {"monday.json", "tuesday.json", "gpu.json"};
  static char text[MOST_BYTES];
  for (size_t i = 0; i < 3; i++) {
    bench_run run;
    cli_bytes bytes;
    read_data(names[i], text);
    read_good(text, &run);
    text_of(&run, bench_run_json, &bytes);
    assert_string_equal(bytes.data, text);
    cli_bytes_release(&bytes);
    bench_run_release(&run);
  }
}

static void values(void **state) {
  (void)state;
  bench_run run;
  read_good(monday, &run);
  assert_int_equal(run.count, 6);
  assert_string_equal(run.context.version, "OpenCL 3.0 PoCL HSTR: example");
  assert_true(run.context.device_type == CL_DEVICE_TYPE_CPU);
  assert_true(run.context.peaks.cache_bytes == 90500000000.25);
  assert_true(run.context.peaks.half_flops == 0);
  assert_int_equal(run.context.peaks.launch_ns, 12000);
  const bench_row *row = &run.rows[0];
  assert_string_equal(row->shape.name, "bert-base sq=128");
  assert_int_equal(row->shape.problem.q_heads, 12);
  assert_int_equal(row->status, BENCH_OK);
  assert_int_equal(row->bound, BENCH_BOUND_FMA);
  assert_true(row->by_events && row->cold && !row->throttled);
  assert_int_equal(row->median_ns, 4000000);
  assert_true(row->spread == 0.02);
  assert_true(row->error == 1.5e-7);
  row = &run.rows[2];
  assert_int_equal(row->status, BENCH_WRONG);
  assert_true(isnan(row->error));
  row = &run.rows[3];
  assert_true(!row->by_events && !row->cold && row->throttled && row->clock_suspect);
  assert_int_equal(row->bound, BENCH_BOUND_MEMORY);
  row = &run.rows[5];
  assert_string_equal(row->shape.name, "\xe5\xb9\x85 \xc3\xa9, \"wide\"");
  assert_true(row->flops == UINT64_MAX);
  assert_true(row->flash_flops == (uint64_t)BENCH_WHOLE_MOST);
  assert_true(row->median_ns == 0 && row->samples == 0);
  bench_run_release(&run);
}

/* Numbers that JSON has no word for, and text that is none. */
static void awkward(void **state) {
  (void)state;
  bench_run run, again;
  cli_bytes bytes;
  read_good(monday, &run);
  bench_row *row = &run.rows[0];
  row->error = (double)INFINITY;
  row->fma_beside = (double)NAN;
  row->predicted_seconds = 0.1;
  row->pairs = (uint64_t)BENCH_WHOLE_MOST + 1;
  memset(row->reason, '\xff', sizeof row->reason - 1);
  snprintf(row->shape.source, sizeof row->shape.source, "a\x1b[31m\nb\xc3");
  snprintf(run.context.clattn, sizeof run.context.clattn, "\xc2\x9b");
  run.context.device_type = CL_DEVICE_TYPE_GPU | CL_DEVICE_TYPE_DEFAULT;
  text_of(&run, bench_run_json, &bytes);
  assert_non_null(strstr(bytes.data, "\"error\": null"));
  assert_non_null(strstr(bytes.data, "\"fma_beside_flops_per_second\": null"));
  assert_non_null(strstr(bytes.data, "\"predicted_seconds\": 0.1,"));
  assert_non_null(strstr(bytes.data, "\"pairs\": \"9007199254740992\""));
  assert_non_null(strstr(bytes.data, "\"source\": \"a?[31m b?\""));
  assert_non_null(strstr(bytes.data, "\"clattn\": \"?\""));
  assert_non_null(strstr(bytes.data, "\"device_type\": \"gpu\""));
  read_good(bytes.data, &again);
  assert_int_equal(strlen(again.rows[0].reason), sizeof row->reason - 1);
  assert_true(again.rows[0].pairs == row->pairs);
  cli_bytes_release(&bytes);
  bench_run_release(&again);
  row->median_ns = -1;
  memset(&bytes, 0, sizeof bytes);
  cli_fail_catch(message, sizeof message);
  assert_int_equal(bench_run_json(&run, &bytes), CLI_FAILED);
  cli_fail_catch(NULL, 0);
  assert_string_equal(message, "median_ns is -1: a saved run has counts from 0 to 9007199254740991");
  cli_bytes_release(&bytes);
  bench_run_release(&run);
}

static void no_rows(void **state) {
  (void)state;
  bench_run run, again;
  cli_bytes bytes;
  memset(&run, 0, sizeof run);
  text_of(&run, bench_run_json, &bytes);
  read_good(bytes.data, &again);
  assert_int_equal(again.count, 0);
  cli_bytes_release(&bytes);
  bench_run_release(&again);
  bench_run_release(&run);
}

static void file(void **state) {
  (void)state;
  static char text[MOST_BYTES];
  bench_run run;
  cli_files files;
  memset(&files, 0, sizeof files);
  files.file[0].option = "json";
  files.file[0].path = "saved.json";
  files.file[1].option = "csv";
  files.file[1].path = "saved.csv";
  read_good(monday, &run);
  assert_int_equal(cli_files_begin(&files, NULL, 0), CLI_OK);
  assert_int_equal(bench_run_write_json(&run, &files.file[0]), CLI_OK);
  assert_int_equal(bench_run_write_csv(&run, &files.file[1]), CLI_OK);
  assert_int_equal(access("saved.json", F_OK), -1); /* nothing before all of it */
  assert_int_equal(cli_files_commit(&files), CLI_OK);
  read_text("saved.json", text, sizeof text);
  assert_string_equal(text, monday);
  assert_int_equal(access("saved.csv", F_OK), 0);
  assert_int_equal(count_files(".partial-"), 0);
  bench_run_release(&run);
}

static void noisy(void **state) {
  (void)state;
  bench_run run;
  memset(&run, 0, sizeof run);
  assert_false(bench_run_is_noisy(&run));
  for (int i = 0; i < 5; i++) {
    bench_row *row = bench_run_add(&run);
    assert_non_null(row);
    row->samples = 3;
    row->spread = i == 0 ? 0.06 : 0.05;
  }
  assert_false(bench_run_is_noisy(&run)); /* a fifth */
  run.rows[1].spread = 0.051;
  assert_true(bench_run_is_noisy(&run));
  run.rows[1].status = BENCH_WRONG;
  run.rows[0].samples = 0;
  assert_false(bench_run_is_noisy(&run));
  bench_run_release(&run);
}

/* ---- what is refused ---- */

/* monday.json with one text in the place of another, which is there; the first of several. */
static const char *changed(const char *from, const char *to) {
  static char text[MOST_BYTES];
  const char *at = strstr(monday, from);
  assert_non_null(at);
  snprintf(text, sizeof text, "%.*s%s%s", (int)(at - monday), monday, to, at + strlen(from));
  return text;
}

static void refused(void **state) {
  (void)state;
  static const struct {
    const char *from, *to, *part;
  } cases[] = {
      {"\"schema_version\": 1", "\"schema_version\": 2", "schema_version: it is 2; this clattn reads 1"},
      {"\"schema_version\": 1", "\"schema_version\": \"1\"", "schema_version: it is '1'; this clattn reads 1"},
      {"\"schema_version\": 1,", "", "schema_version: it is missing: this is no saved run of clattn bench"},
      {"\"context\": {", "\"Context\": {", "context: it must be an object, and is nothing"},
      {"\"peaks\": {", "\"peaks\": [1], \"other\": {", "context.peaks: it must be an object, and is an array"},
      {"\"rows\": [", "\"rows\": 3, \"x\": [", "rows: it must be an array, and is 3"},
      {"\"rows\": [", "\"rows\": [null, ", "rows[0]: it must be an object, and is null"},
      {"\"status\": \"ok\"", "\"status\": \"fine\"",
       "rows[0].status: it must be 'ok', 'wrong', 'skipped' or 'failed', and is 'fine'"},
      {"\"timing\": \"device events\"", "\"timing\": \"events\"",
       "rows[0].timing: it must be 'wall clock' or 'device events', and is 'events'"},
      {"\"device_type\": \"cpu\"", "\"device_type\": 4", "context.device_type: it must be 'unknown', 'cpu'"},
      {"4000000,", "4000000.5,",
       "rows[0].median_ns: it must be a whole number from 0 to 9007199254740991, and is 4000000.5"},
      {"4000000,", "-4,", "rows[0].median_ns: it must be a whole number"},
      {"4000000,", "9007199254740992,", "rows[0].median_ns: it must be a whole number"},
      {"4000000,", "null,", "rows[0].median_ns: it is null, but the row has what belongs to it"},
      {"\"samples\": 100", "\"samples\": 0", "rows[0].launches: there is a value, but"},
      {"\"samples\": 100", "\"samples\": 2147483648",
       "rows[0].samples: it must be a whole number from 0 to 2147483647"},
      {"\"spread\": 0.02", "\"spread\": -0.02", "rows[0].spread: it must be a number of 0 or more, and is -0.02"},
      {"\"spread\": 0.02", "\"spread\": 1e999", "rows[0].spread: it must be a number"},
      {"\"spread\": 0.02", "\"spread\": \"0.02\"", "rows[0].spread: it must be a number of 0 or more, and is '0.02'"},
      {"\"throttled\": false", "\"throttled\": 0", "rows[0].throttled: it must be true or false, and is 0"},
      {"\"throttled\": false", "\"throttled\": null", "rows[0].throttled: it is null"},
      {"\"18446744073709551615\"", "\"18446744073709551616\"",
       "rows[5].flops: it must be digits of a number below 2^64"},
      {"\"18446744073709551615\"", "\"-1\"", "rows[5].flops: it must be digits"},
      {"\"18446744073709551615\"", "\"7x\"", "rows[5].flops: it must be digits"},
      {"\"pass\": \"forward\"", "\"pass\": \"forward and more\"", "rows[0].pass: 16 bytes of text; up to 15 are read"},
      {"\"pass\": \"forward\"", "\"pass\": 1", "rows[0].pass: it must be a text, and is 1"},
      {"d=64\"", "d=64 colour=red\"", "rows[0].problem: "},
      {"\"device\": ", "\"device\": \"twice\", \"device\": ", "the key 'device' stands twice"},
      {"\"rows\": [", "\"rows\": [,", "not valid JSON at byte"},
      {"0.02", "0.02,]", "not valid JSON"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    read_bad(changed(cases[i].from, cases[i].to), cases[i].part);
  read_bad("", "");
  read_bad("[]", "schema_version: it is missing");
  read_bad("{\"rows\": []}", "schema_version: it is missing");
  read_bad("shape,suite\n1,2\n", "not valid JSON at byte 0");
  char said[512];
  bench_run run;
  cli_fail_catch(said, sizeof said);
  assert_int_equal(bench_run_read_json("no/such.json", &run), CLI_USAGE);
  cli_fail_catch(NULL, 0);
  assert_non_null(strstr(said, "no/such.json: "));
}

/* Later minor versions may add members. */
static void more_members(void **state) {
  (void)state;
  bench_run run;
  read_good(changed("\"shape\":", "\"watts\": 3, \"shape\":"), &run);
  bench_run_release(&run);
  read_good(changed("\"clattn\":", "\"weather\": {\"rain\": [true]}, \"clattn\":"), &run);
  bench_run_release(&run);
}

/* ---- the schema ---- */

static void check_fits(const cJSON *value, int named_only) {
  if (schema_check(schema, value, named_only, message, sizeof message) != 0)
    fail_msg("%s", message);
}

/* Without the member, and with a value of another type, both reader and schema refuse. */
static void break_members(cJSON *root, cJSON *object, const char *place) {
  char part[128];
  const int count = cJSON_GetArraySize(object);
  for (int i = 0; i < count; i++) {
    cJSON *member = cJSON_DetachItemFromArray(object, 0);
    char *name = strdup(member->string);
    assert_non_null(name);
    snprintf(part, sizeof part, "%s%s: ", place, name);
    for (int kind = 0; kind < 2; kind++) {
      cJSON *other = kind == 1 ? cJSON_AddArrayToObject(object, name) : NULL;
      if (schema_check(schema, root, 1, message, sizeof message) == 0)
        fail_msg("the schema accepts a broken %s", part);
      assert_non_null(strstr(message, name));
      char *text = cJSON_Print(root);
      assert_non_null(text);
      read_bad(text, part);
      cJSON_free(text);
      if (other != NULL)
        cJSON_Delete(cJSON_DetachItemViaPointer(object, other));
    }
    cJSON_AddItemToObject(object, name, member); /* to the end: after `count` turns all are in order again */
    free(name);
  }
}

static void schema_and_reader(void **state) {
  (void)state;
  cJSON *root = cJSON_Parse(monday);
  assert_non_null(root);
  check_fits(root, 1);
  cJSON *context = cJSON_GetObjectItem(root, "context");
  break_members(root, cJSON_GetArrayItem(cJSON_GetObjectItem(root, "rows"), 0), "rows[0].");
  break_members(root, context, "context.");
  break_members(root, cJSON_GetObjectItem(context, "peaks"), "context.peaks.");
  check_fits(root, 1); /* all is back in its place */
  cJSON_Delete(root);
}

/* What any run writes, also an empty one, has the members that the schema names, and no other. */
static void schema_and_writer(void **state) {
  (void)state;
  static const char *const names[] = {"monday.json", "tuesday.json", "gpu.json"};
  static char text[MOST_BYTES];
  bench_run run;
  cli_bytes bytes;
  for (size_t i = 0; i < 4; i++) {
    if (i < 3) {
      read_data(names[i], text);
      read_good(text, &run);
    } else {
      memset(&run, 0, sizeof run);
      assert_non_null(bench_run_add(&run));
    }
    text_of(&run, bench_run_json, &bytes);
    cJSON *root = cJSON_Parse(bytes.data);
    assert_non_null(root);
    check_fits(root, 1);
    cJSON_Delete(root);
    cli_bytes_release(&bytes);
    bench_run_release(&run);
  }
}

/* The checker itself says no, and what the schema names is required. */
static void schema_itself(void **state) {
  (void)state;
  static const char *const parts[] = {"context", "peaks", "row"};
  const cJSON *defs = cJSON_GetObjectItem(schema, "$defs");
  for (size_t i = 0; i < 3; i++) {
    const cJSON *part = cJSON_GetObjectItem(defs, parts[i]);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(part, "required")),
                     cJSON_GetArraySize(cJSON_GetObjectItem(part, "properties")));
  }
  cJSON *root = cJSON_Parse(changed("\"samples\": 100", "\"samples\": -1"));
  assert_int_equal(schema_check(schema, root, 0, message, sizeof message), -1);
  assert_string_equal(message, "/rows/0/samples: beyond the minimum of 0");
  cJSON_Delete(root);
  root = cJSON_Parse(changed("\"status\": \"ok\"", "\"status\": \"fine\""));
  assert_int_equal(schema_check(schema, root, 0, message, sizeof message), -1);
  assert_string_equal(message, "/rows/0/status: none of the words");
  cJSON_Delete(root);
  root = cJSON_Parse(changed("\"18446744073709551615\"", "\"12\""));
  assert_int_equal(schema_check(schema, root, 0, message, sizeof message), -1);
  cJSON_Delete(root);
  root = cJSON_Parse(changed("\"shape\":", "\"watts\": 3, \"shape\":"));
  check_fits(root, 0);
  assert_int_equal(schema_check(schema, root, 1, message, sizeof message), -1);
  assert_string_equal(message, "/rows/0/watts: the schema does not name it");
  cJSON_Delete(root);
}

/* ---- CSV ---- */

/* The next cell without its quotes; *line moves behind it.  Returns what ended it: ',' or '\n'. */
static char next_cell(const char **line, char *cell, size_t capacity) {
  const char *at = *line;
  size_t n = 0;
  const int quoted = *at == '"';
  at += quoted;
  while (quoted ? *at != '"' || at[1] == '"' : *at != ',' && *at != '\n') {
    assert_true(*at != 0 && n + 1 < capacity);
    at += quoted && *at == '"';
    cell[n++] = *at++;
  }
  at += quoted;
  assert_true(*at == ',' || *at == '\n');
  cell[n] = 0;
  *line = at + 1;
  return *at;
}

enum { CELLS = 128, CELL_BYTES = 1100 };
typedef char cells[CELLS][CELL_BYTES];

static int next_line(const char **at, cells line) {
  int count = 0;
  char end = ',';
  while (end == ',') {
    assert_true(count < CELLS);
    end = next_cell(at, line[count++], CELL_BYTES);
  }
  return count;
}

static const char *cell_of(cells names, cells line, int count, const char *name) {
  for (int i = 0; i < count; i++)
    if (strcmp(names[i], name) == 0)
      return line[i];
  fail_msg("no column %s", name);
  return NULL;
}

static void csv(void **state) {
  (void)state;
  static cells names, line;
  static const char *const places[] = {"shape", "samples", "median_ns",
                                       "error", "command", "peak_half_flops_per_second"};
  static const char *const values[][6] = {
      {"bert-base sq=128", "100", "4000000", "1.5e-07", "clattn bench \"a\" b, c", ""},
      {"bert-base sq=128", "100", "9000000", "1.5e-07", "clattn bench \"a\" b, c", ""},
      {"gpt2 <causal> & \"co\"", "0", "", "", "clattn bench \"a\" b, c", ""},
      {"decode-gqa", "31", "4200000", "1.5e-07", "clattn bench \"a\" b, c", ""},
      {"long-causal sq=32768", "0", "", "", "clattn bench \"a\" b, c", ""},
      {"\xe5\xb9\x85 \xc3\xa9, \"wide\"", "0", "", "", "clattn bench \"a\" b, c", ""}};
  bench_run run;
  cli_bytes bytes;
  read_good(monday, &run);
  snprintf(run.context.command, sizeof run.context.command,
           "clattn bench \"a\"\nb, c"); /* the line end becomes a space */
  text_of(&run, bench_run_csv, &bytes);
  const char *at = bytes.data;
  const int count = next_line(&at, names);
  assert_string_equal(names[0], "schema_version");
  for (int i = 0; i < 6; i++) {
    assert_int_equal(next_line(&at, line), count);
    for (int j = 0; j < 6; j++)
      assert_string_equal(cell_of(names, line, count, places[j]), values[i][j]);
    if (i == 5)
      assert_string_equal(cell_of(names, line, count, "flops"), "18446744073709551615");
  }
  assert_int_equal(*at, 0);
  /* One column for each member. */
  int members = 1;
  const bench_field *const lists[] = {bench_row_fields, bench_context_fields, bench_peak_fields};
  for (size_t i = 0; i < 3; i++)
    for (const bench_field *field = lists[i]; field->name != NULL; field++)
      members++;
  assert_int_equal(count, members);
  cli_bytes_release(&bytes);
  bench_run_release(&run);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(round_trip),        cmocka_unit_test(values),        cmocka_unit_test(awkward),
      cmocka_unit_test(no_rows),           cmocka_unit_test(file),          cmocka_unit_test(noisy),
      cmocka_unit_test(refused),           cmocka_unit_test(more_members),  cmocka_unit_test(schema_and_reader),
      cmocka_unit_test(schema_and_writer), cmocka_unit_test(schema_itself), cmocka_unit_test(csv),
  };
  return cmocka_run_group_tests(tests, start, finish);
}
