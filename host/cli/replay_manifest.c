/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "convert.h"
#include "replay.h"

enum { MANIFEST_MOST = 64 << 20, TEXT_MOST = 65536, SOURCE_MOST = 64 << 20 };

static const double NUMBER_MOST = 4503599627370496.0; /* 2^52: all integers below are doubles */

/* ---- the pieces of JSON ---- */

typedef struct reader {
  replay_dump *dump;
  char where[96]; /* "launches[3].args[1]" */
} reader;

static int wrong(const reader *r, const char *key, const char *format, ...) {
  char text[256];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  return cli_fail(CLI_USAGE, "%s/manifest.json: %s%s%s: %s", r->dump->folder.path, r->where,
                  r->where[0] != 0 ? "." : "", key, text);
}

static void at(reader *r, const char *list, size_t index) {
  snprintf(r->where, sizeof r->where, "%s[%zu]", list, index);
}

/* A missing value is a null one. */
static const cJSON *value_of(const cJSON *object, const char *key) {
  const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);
  return value == NULL || cJSON_IsNull(value) ? NULL : value;
}

static int take_integer(const reader *r, const cJSON *value, const char *key, int64_t least, int64_t most,
                        int64_t *out) {
  *out = least;
  if (!cJSON_IsNumber(value) || !(value->valuedouble >= (double)least) || !(value->valuedouble <= (double)most) ||
      floor(value->valuedouble) != value->valuedouble)
    return wrong(r, key, "a whole number from %" PRId64 " to %" PRId64 " is needed", least, most);
  *out = (int64_t)value->valuedouble;
  return CLI_OK;
}

/* Null is infinity. */
static int take_tolerance(const reader *r, const cJSON *object, const char *key, double *out) {
  const cJSON *value = value_of(object, key);
  *out = (double)INFINITY;
  if (value == NULL)
    return CLI_OK;
  if (!cJSON_IsNumber(value) || !(value->valuedouble >= 0))
    return wrong(r, key, "a number from 0 on, or null, is needed");
  *out = value->valuedouble;
  return CLI_OK;
}

/* A text of printable characters, malloc'ed. */
static int take_text(const reader *r, const cJSON *object, const char *key, char **out) {
  const char *text = cJSON_GetStringValue(value_of(object, key));
  if (text == NULL || strlen(text) > TEXT_MOST)
    return wrong(r, key, "a text of at most %d characters is needed", TEXT_MOST);
  for (const char *c = text; *c != 0; c++)
    if ((unsigned char)*c < ' ' || *c == 0x7f)
      return wrong(r, key, "there is a control character in it");
  *out = strdup(text);
  return *out != NULL ? CLI_OK : cli_fail_memory();
}

/* What a C identifier may be. */
static int take_name(const reader *r, const cJSON *object, const char *key, char name[CLI_REPLAY_NAME_BYTES]) {
  const char *text = cJSON_GetStringValue(value_of(object, key));
  const size_t length = text != NULL ? strlen(text) : 0;
  if (length == 0 || length >= CLI_REPLAY_NAME_BYTES ||
      strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != length)
    return wrong(r, key, "a name of letters, digits and '_' is needed, of at most %d", CLI_REPLAY_NAME_BYTES - 1);
  memcpy(name, text, length + 1);
  return CLI_OK;
}

static int take_file(const reader *r, const cJSON *object, const char *key, replay_file *out) {
  const cJSON *file = value_of(object, key);
  int64_t bytes = 0;
  memset(out, 0, sizeof *out);
  if (file == NULL)
    return CLI_OK;
  const char *name = cJSON_GetStringValue(value_of(file, "name"));
  const char *hash = cJSON_GetStringValue(value_of(file, "fnv1a64"));
  if (name == NULL || !cli_folder_plain_name(name))
    return wrong(r, key,
                 "its name must be a plain file name of this folder: letters, digits, '-', '_' and '.', at most "
                 "%d",
                 CLI_FOLDER_NAME_BYTES - 1);
  if (hash == NULL || strlen(hash) != CLI_FOLDER_HASH_TEXT - 1 || strspn(hash, "0123456789abcdef") != strlen(hash))
    return wrong(r, key, "fnv1a64 must be 16 hexadecimal digits");
  const int code = take_integer(r, value_of(file, "bytes"), key, 0, (int64_t)NUMBER_MOST, &bytes);
  if (code != CLI_OK)
    return code;
  memcpy(out->name, name, strlen(name) + 1);
  memcpy(out->hash, hash, CLI_FOLDER_HASH_TEXT);
  out->bytes = (uint64_t)bytes;
  return CLI_OK;
}

/* An array of at most `most` entries; NULL and *code set unless it is one. */
static const cJSON *take_array(const reader *r, const cJSON *object, const char *key, int least, int most, int *count,
                               int *code) {
  const cJSON *array = value_of(object, key);
  *count = cJSON_IsArray(array) ? cJSON_GetArraySize(array) : -1;
  if (*count >= least && *count <= most)
    return array;
  *code = wrong(r, key, "an array of %d to %d entries is needed", least, most);
  return NULL;
}

static int take_range(const reader *r, const cJSON *object, const char *key, int64_t least, cl_uint *dims,
                      size_t out[3]) {
  int count, code = CLI_OK;
  const cJSON *array = take_array(r, object, key, 1, 3, &count, &code);
  if (array == NULL)
    return code;
  if (*dims != 0 && *dims != (cl_uint)count)
    return wrong(r, key, "global, local and offset need as many entries");
  *dims = (cl_uint)count;
  const cJSON *value = array->child;
  for (int i = 0; i < count && code == CLI_OK; i++, value = value->next) {
    int64_t number = 0;
    code = take_integer(r, value, key, least, (int64_t)1 << 40, &number);
    out[i] = (size_t)number;
  }
  return code;
}

/* ---- the parts ---- */

static int read_head(reader *r, const cJSON *root) {
  replay_dump *d = r->dump;
  const uint16_t probe = 1;
  const char *format = cJSON_GetStringValue(value_of(root, "format"));
  const char *order = cJSON_GetStringValue(value_of(root, "byte_order"));
  int64_t version = 0;
  if (format == NULL || strcmp(format, CLI_DUMP_FORMAT) != 0)
    return wrong(r, "format", "it is not \"" CLI_DUMP_FORMAT "\"");
  int code = take_integer(r, value_of(root, "format_version"), "format_version", 1, 1000000, &version);
  if (code == CLI_OK && version != CLI_DUMP_VERSION)
    return wrong(r, "format_version", "this program reads version %d, not %" PRId64, CLI_DUMP_VERSION, version);
  if (code == CLI_OK && (order == NULL || strcmp(order, *(const unsigned char *)&probe == 1 ? "little" : "big") != 0))
    return wrong(r, "byte_order", "it is not that of this machine");
  if (code == CLI_OK)
    code = take_text(r, root, "problem", &d->problem);
  if (code == CLI_OK)
    code = take_text(r, root, "variant", &d->variant);
  if (code == CLI_OK)
    code = take_text(r, root, "clattn", &d->version);
  const cJSON *device = value_of(root, "device"), *program = value_of(root, "program");
  snprintf(r->where, sizeof r->where, "device");
  if (code == CLI_OK)
    code = take_text(r, device, "name", &d->device);
  if (code == CLI_OK)
    code = take_text(r, device, "driver", &d->driver);
  if (code == CLI_OK)
    code = take_text(r, device, "platform", &d->platform);
  snprintf(r->where, sizeof r->where, "program");
  if (code == CLI_OK)
    code = take_text(r, program, "options", &d->options);
  if (code == CLI_OK)
    code = take_file(r, program, "source", &d->source);
  if (code == CLI_OK && d->source.name[0] == 0)
    return wrong(r, "source", "it is missing");
  return code == CLI_OK ? take_file(r, program, "binary", &d->binary) : code;
}

static int read_buffers(reader *r, const cJSON *root) {
  replay_dump *d = r->dump;
  int code = CLI_OK, count = 0;
  r->where[0] = 0;
  const cJSON *array = take_array(r, root, "buffers", 1, CLI_REPLAY_MOST_BUFFERS, &count, &code);
  const cJSON *object = array != NULL ? array->child : NULL;
  for (; object != NULL && code == CLI_OK; object = object->next) {
    replay_buffer *buffer = &d->buffers[d->buffer_count];
    int64_t bytes = 0, fill = 0;
    at(r, "buffers", (size_t)d->buffer_count++);
    code = take_name(r, object, "name", buffer->name);
    if (code == CLI_OK)
      code = take_integer(r, value_of(object, "bytes"), "bytes", 1, (int64_t)NUMBER_MOST, &bytes);
    if (code == CLI_OK)
      code = take_file(r, object, "file", &buffer->file);
    buffer->bytes = (uint64_t)bytes;
    if (code == CLI_OK && buffer->file.name[0] == 0)
      code = take_integer(r, value_of(object, "fill"), "fill", 0, 255, &fill);
    else if (code == CLI_OK && buffer->file.bytes != buffer->bytes)
      code = wrong(r, "file", "it has %" PRIu64 " bytes, the buffer %" PRIu64, buffer->file.bytes, buffer->bytes);
    buffer->fill = (unsigned char)fill;
  }
  return code;
}

static int digit_of(char c) {
  const char *const digits = "0123456789abcdef", *found = c != 0 ? strchr(digits, c) : NULL;
  return found != NULL ? (int)(found - digits) : -1;
}

static int read_arg(const reader *r, const cJSON *object, replay_arg *arg) {
  const char *digits = cJSON_GetStringValue(value_of(object, "bytes"));
  const cJSON *buffer = cJSON_GetObjectItemCaseSensitive(object, "buffer");
  int64_t number = -1;
  int code = take_name(r, object, "name", arg->name);
  if (code != CLI_OK)
    return code;
  if ((digits == NULL) == (buffer == NULL))
    return wrong(r, "args", "%s: either bytes or a buffer is needed", arg->name);
  if (buffer != NULL) {
    if (!cJSON_IsNull(buffer))
      code = take_integer(r, buffer, "buffer", 0, r->dump->buffer_count - 1, &number);
    arg->buffer = (int)number;
    return code;
  }
  const size_t length = strlen(digits);
  if (length == 0 || length % 2 != 0 || length / 2 > CLI_REPLAY_MOST_ARG_BYTES)
    return wrong(r, "args", "%s: bytes are two hexadecimal digits each, 1 to %d of them", arg->name,
                 CLI_REPLAY_MOST_ARG_BYTES);
  arg->buffer = -2;
  arg->value = malloc(length / 2);
  if (arg->value == NULL)
    return cli_fail_memory();
  arg->bytes = length / 2;
  for (size_t i = 0; i < arg->bytes; i++) {
    const int high = digit_of(digits[2 * i]), low = digit_of(digits[2 * i + 1]);
    if (high < 0 || low < 0)
      return wrong(r, "args", "%s: bytes has what is no hexadecimal digit", arg->name);
    arg->value[i] = (unsigned char)(16 * high + low);
  }
  return CLI_OK;
}

static int read_launch(reader *r, const cJSON *object, replay_launch *launch) {
  int code = take_name(r, object, "kernel", launch->kernel), count = 0;
  if (code == CLI_OK)
    code = take_range(r, object, "global", 1, &launch->dims, launch->global);
  if (code == CLI_OK)
    code = take_range(r, object, "local", 1, &launch->dims, launch->local);
  if (code == CLI_OK)
    code = take_range(r, object, "offset", 0, &launch->dims, launch->offset);
  for (cl_uint i = 0; i < launch->dims && code == CLI_OK; i++)
    if (launch->global[i] % launch->local[i] != 0)
      code = wrong(r, "local", "%zu does not divide the global size %zu", launch->local[i], launch->global[i]);
  if (code != CLI_OK)
    return code;
  const cJSON *array = take_array(r, object, "args", 0, CLI_REPLAY_MOST_ARGS, &count, &code);
  if (array == NULL)
    return code;
  launch->args = calloc((size_t)count + 1, sizeof *launch->args);
  if (launch->args == NULL)
    return cli_fail_memory();
  const cJSON *arg = array->child;
  for (; arg != NULL && code == CLI_OK; arg = arg->next)
    code = read_arg(r, arg, &launch->args[launch->arg_count++]);
  return code;
}

static int read_launches(reader *r, const cJSON *root) {
  replay_dump *d = r->dump;
  int code = CLI_OK, count = 0;
  r->where[0] = 0;
  const cJSON *array = take_array(r, root, "launches", 1, 1 << 20, &count, &code);
  if (array == NULL)
    return code;
  d->launches = calloc((size_t)count, sizeof *d->launches);
  if (d->launches == NULL)
    return cli_fail_memory();
  const cJSON *object = array->child;
  for (; object != NULL && code == CLI_OK; object = object->next) {
    at(r, "launches", d->launch_count);
    code = read_launch(r, object, &d->launches[d->launch_count++]);
  }
  return code;
}

/* Elements from the first to one past the last; -1 where that is more than `most`. */
static int64_t extent(const int64_t shape[4], const int64_t stride[4], int64_t most) {
  int64_t last = 0;
  for (int axis = 0; axis < 4; axis++) {
    if (shape[axis] == 0)
      return 0;
    if (stride[axis] > 0 && shape[axis] - 1 > (most - last) / stride[axis])
      return -1;
    last += (shape[axis] - 1) * stride[axis];
  }
  return last + 1 <= most ? last + 1 : -1;
}

static int take_four(const reader *r, const cJSON *object, const char *key, int64_t out[4]) {
  int count = 0, code = CLI_OK;
  const cJSON *array = take_array(r, object, key, 4, 4, &count, &code);
  const cJSON *value = array != NULL ? array->child : NULL;
  for (int i = 0; i < 4 && code == CLI_OK && value != NULL; i++, value = value->next)
    code = take_integer(r, value, key, 0, (int64_t)1 << 40, &out[i]);
  return code;
}

/* Shape, strides and files fit the buffer and each other. */
static int check_output(const reader *r, replay_output *output) {
  const uint64_t bytes = r->dump->buffers[output->buffer].bytes;
  const int64_t most = (int64_t)(bytes / cli_dtype_bytes(output->dtype, 1));
  int64_t rows = 1, all = 1;
  if (extent(output->shape, output->stride, most) < 0)
    return wrong(r, "shape", "with these strides it reaches beyond the buffer's %" PRIu64 " bytes", bytes);
  /* Elements that lie on each other are no output; so there are no more of them than the buffer holds. */
  for (int axis = 0; axis < 4; axis++) {
    if (output->shape[axis] > 1 && output->stride[axis] == 0)
      return wrong(r, "stride", "it is 0 on an axis of %" PRId64, output->shape[axis]);
    if (output->shape[axis] > 0 && all > most / output->shape[axis])
      return wrong(r, "shape", "it has more elements than the buffer");
    all *= output->shape[axis];
    rows *= axis < 3 ? output->shape[axis] : 1;
  }
  output->row_count = rows;
  if (output->device.name[0] != 0 && output->device.bytes != bytes)
    return wrong(r, "device", "it has %" PRIu64 " bytes, the buffer %" PRIu64, output->device.bytes, bytes);
  if (output->reference.name[0] == 0)
    return output->device.name[0] != 0 ? CLI_OK
                                       : wrong(r, "reference",
                                               "the dump has nothing that is expected: there is no "
                                               "reference with a hook, and its device did not finish");
  if (output->rows.name[0] != 0) {
    output->row_count = (int64_t)(output->rows.bytes / sizeof(int64_t));
    if (output->rows.bytes % sizeof(int64_t) != 0 || output->row_count > rows)
      return wrong(r, "rows", "%" PRIu64 " bytes are no list of rows", output->rows.bytes);
  }
  if (output->reference.bytes != (uint64_t)output->row_count * (uint64_t)output->shape[3] * sizeof(double))
    return wrong(r, "reference", "%" PRIu64 " bytes are not %" PRId64 " rows of %" PRId64 " float64",
                 output->reference.bytes, output->row_count, output->shape[3]);
  return CLI_OK;
}

static int read_outputs(reader *r, const cJSON *root) {
  replay_dump *d = r->dump;
  int code = CLI_OK, count = 0;
  r->where[0] = 0;
  const cJSON *array = take_array(r, root, "outputs", 1, CLI_REPLAY_MOST_OUTPUTS, &count, &code);
  const cJSON *object = array != NULL ? array->child : NULL;
  for (; object != NULL && code == CLI_OK; object = object->next) {
    replay_output *output = &d->outputs[d->output_count];
    int64_t buffer = 0;
    const char *dtype = cJSON_GetStringValue(value_of(object, "dtype"));
    at(r, "outputs", (size_t)d->output_count++);
    output->packed = cJSON_IsTrue(value_of(object, "packed"));
    code = take_name(r, object, "name", output->name);
    if (code == CLI_OK)
      code = take_integer(r, value_of(object, "buffer"), "buffer", 0, d->buffer_count - 1, &buffer);
    output->buffer = (int)buffer;
    if (code == CLI_OK &&
        (dtype == NULL || !cli_dtype_parse(dtype, &output->dtype) || cli_dtype_is_quantised(output->dtype)))
      code = wrong(r, "dtype", "f32, f16 or bf16 is needed");
    if (code == CLI_OK)
      code = take_four(r, object, "shape", output->shape);
    if (code == CLI_OK)
      code = take_four(r, object, "stride", output->stride);
    if (code == CLI_OK)
      code = take_tolerance(r, object, "tolerance", &output->tolerance);
    if (code == CLI_OK)
      code = take_tolerance(r, object, "relative", &output->relative);
    if (code == CLI_OK)
      code = take_tolerance(r, object, "limit", &output->limit);
    if (code == CLI_OK)
      code = take_file(r, object, "reference", &output->reference);
    if (code == CLI_OK)
      code = take_file(r, object, "rows", &output->rows);
    if (code == CLI_OK)
      code = take_file(r, object, "device", &output->device);
    if (code == CLI_OK)
      code = check_output(r, output);
  }
  return code;
}

/* ---- the whole ---- */

/* The folders in it, for who names the folder of many dumps. */
static int no_manifest(const replay_dump *dump) {
  return cli_fail(
      CLI_USAGE,
      "%s: there is no manifest.json: it is no dump.  'clattn bench --dump' makes one in a folder of its own "
      "for each row",
      dump->folder.path);
}

int replay_read(const char *path, replay_dump *out) {
  reader r;
  char *text = NULL;
  size_t bytes = 0;
  cJSON *root = NULL;
  memset(out, 0, sizeof *out);
  memset(&r, 0, sizeof r);
  r.dump = out;
  int code = cli_folder_open(path, &out->folder);
  if (code != CLI_OK)
    return code;
  if (!cli_folder_has(&out->folder, "manifest.json"))
    return no_manifest(out);
  code = cli_folder_read(&out->folder, "manifest.json", 1, MANIFEST_MOST, &text, &bytes);
  if (code == CLI_OK) {
    root = cJSON_ParseWithLength(text, bytes);
    if (!cJSON_IsObject(root))
      code = cli_fail(CLI_USAGE, "%s/manifest.json is no JSON object", path);
  }
  if (code == CLI_OK)
    code = read_head(&r, root);
  if (code == CLI_OK)
    code = read_buffers(&r, root);
  if (code == CLI_OK)
    code = read_launches(&r, root);
  if (code == CLI_OK)
    code = read_outputs(&r, root);
  cJSON_Delete(root);
  free(text);
  return code;
}

void replay_release(replay_dump *dump) {
  for (size_t i = 0; i < dump->launch_count; i++) {
    for (int n = 0; n < dump->launches[i].arg_count; n++)
      free(dump->launches[i].args[n].value);
    free(dump->launches[i].args);
  }
  free(dump->launches);
  free(dump->problem);
  free(dump->variant);
  free(dump->options);
  free(dump->device);
  free(dump->driver);
  free(dump->platform);
  free(dump->version);
  cli_folder_close(&dump->folder);
  memset(dump, 0, sizeof *dump);
}

int replay_file_read(const replay_dump *dump, const replay_file *file, char **data, int *changed) {
  char hash[CLI_FOLDER_HASH_TEXT];
  size_t bytes = 0;
  int code = cli_folder_read(&dump->folder, file->name, changed != NULL ? 1 : file->bytes,
                             changed != NULL ? SOURCE_MOST : file->bytes, data, &bytes);
  if (code != CLI_OK)
    return code;
  cli_folder_hash(*data, bytes, hash);
  const int same = strcmp(hash, file->hash) == 0;
  if (changed != NULL)
    *changed = !same;
  if (same || changed != NULL)
    return CLI_OK;
  free(*data);
  *data = NULL;
  return cli_fail(CLI_USAGE, "%s/%s is not what was dumped: its FNV-1a hash is %s, the manifest says %s",
                  dump->folder.path, file->name, hash, file->hash);
}
