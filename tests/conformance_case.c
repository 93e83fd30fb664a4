/* SPDX-License-Identifier: Apache-2.0 */
#include "conformance_case.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npy.h"

/* A case.json of the largest kind has a few kilobytes. */
enum { MAX_JSON_BYTES = 16 << 20, MAX_PATH_BYTES = 4096 };

int cf_fail(cf_reason *reason, const char *format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(reason->text, sizeof reason->text, format, list);
  va_end(list);
  return 0;
}

static const struct {
  const char *name, *npy;
} types[] = {[CF_F32] = {"float32", "f4"},   [CF_F64] = {"float64", "f8"}, [CF_F16] = {"float16", "f2"},
             [CF_BF16] = {"bfloat16", "u2"}, [CF_BOOL] = {"bool", "b1"},   [CF_U8] = {"uint8", "u1"},
             [CF_I32] = {"int32", "i4"},     [CF_I64] = {"int64", "i8"}};

size_t cf_type_bytes(cf_type type) {
  return clattn_npy_type_bytes(types[type].npy);
}

const char *cf_type_name(cf_type type) {
  return types[type].name;
}

static double half_value(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  double value;
  if (exponent == 31)
    value = mantissa != 0 ? (double)NAN : (double)INFINITY;
  else if (exponent == 0)
    value = ldexp(mantissa, -24);
  else
    value = ldexp(1024 + mantissa, exponent - 25);
  return bits & 0x8000 ? -value : value;
}

static double bfloat16_value(uint16_t bits) {
  const uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return (double)value;
}

double cf_value(const cf_array *array, int64_t index) {
  switch (array->type) {
  case CF_F32:
    return (double)((const float *)array->data)[index];
  case CF_F64:
    return ((const double *)array->data)[index];
  case CF_F16:
    return half_value(((const uint16_t *)array->data)[index]);
  case CF_BF16:
    return bfloat16_value(((const uint16_t *)array->data)[index]);
  case CF_BOOL:
    return ((const uint8_t *)array->data)[index] != 0 ? 1.0 : 0.0;
  case CF_U8:
    return ((const uint8_t *)array->data)[index];
  case CF_I32:
    return ((const int32_t *)array->data)[index];
  case CF_I64:
    return (double)((const int64_t *)array->data)[index];
  }
  return (double)NAN;
}

const char *cf_shape_text(const cf_array *array, char text[128]) {
  size_t used = 1;
  text[0] = '(';
  for (int axis = 0; axis < array->rank && used < 100; axis++)
    used += (size_t)snprintf(text + used, 128 - used, "%s%" PRId64, axis > 0 ? ", " : "", array->shape[axis]);
  snprintf(text + used, 128 - used, ")");
  return text;
}

const cf_tensor *cf_find_slot(const cf_tensor *tensors, int count, int64_t slot) {
  for (int i = 0; i < count; i++) {
    if (tensors[i].slot == slot)
      return &tensors[i];
  }
  return NULL;
}

const cf_tensor *cf_find_name(const cf_tensor *tensors, int count, const char *name) {
  for (int i = 0; i < count; i++) {
    if (strcmp(tensors[i].name, name) == 0)
      return &tensors[i];
  }
  return NULL;
}

/* ---- JSON ---- */

static int integer_of(const cJSON *item, int64_t low, int64_t high, int64_t *value) {
  if (!cJSON_IsNumber(item) || !(item->valuedouble >= (double)low && item->valuedouble <= (double)high) ||
      item->valuedouble != floor(item->valuedouble))
    return 0;
  *value = (int64_t)item->valuedouble;
  return 1;
}

static int is_absent(const cJSON *object, const char *key, const cJSON **item, int *absent) {
  *item = cJSON_GetObjectItemCaseSensitive(object, key);
  const int missing = *item == NULL || cJSON_IsNull(*item);
  if (absent != NULL)
    *absent = missing;
  return missing && absent != NULL;
}

int cf_get_integer(const cJSON *object, const char *key, int64_t low, int64_t high, int64_t *value, int *absent,
                   cf_reason *reason) {
  const cJSON *item;
  if (is_absent(object, key, &item, absent))
    return 1;
  if (!integer_of(item, low, high, value))
    return cf_fail(reason, "case.json: \"%s\" is not a whole number from %" PRId64 " to %" PRId64, key, low, high);
  return 1;
}

int cf_get_real(const cJSON *object, const char *key, float *value, int *absent, cf_reason *reason) {
  const cJSON *item;
  if (is_absent(object, key, &item, absent))
    return 1;
  if (!cJSON_IsNumber(item) || !(fabs(item->valuedouble) <= (double)FLT_MAX))
    return cf_fail(reason, "case.json: \"%s\" is not a finite number of float32's range", key);
  *value = (float)item->valuedouble;
  return 1;
}

int cf_only_keys(const cJSON *root, const char *list, const char *const *keys, cf_reason *reason) {
  const cJSON *object = cJSON_GetObjectItemCaseSensitive(root, list), *item;
  if (!cJSON_IsObject(object))
    return cf_fail(reason, "case.json: \"%s\" is missing or not an object", list);
  cJSON_ArrayForEach(item, object) {
    int known = 0;
    for (int i = 0; keys[i] != NULL && !known; i++)
      known = strcmp(item->string, keys[i]) == 0;
    if (!known)
      return cf_fail(reason, "case.json: \"%.64s\" in \"%s\" is not known to this runner", item->string, list);
  }
  return 1;
}

static int join_path(char path[MAX_PATH_BYTES], const char *folder, const char *file, cf_reason *reason) {
  const int used = snprintf(path, MAX_PATH_BYTES, "%s/%s", folder, file);
  if (used < 0 || used >= MAX_PATH_BYTES)
    return cf_fail(reason, "the path of %.64s is too long", file);
  return 1;
}

/* The whole file with a 0 after it; freed by the caller. */
static char *read_text(const char *path, size_t *bytes, cf_reason *reason) {
  size_t capacity = 1 << 16, used = 0;
  char *text = NULL;
  FILE *file = fopen(path, "rb");
  if (file == NULL) {
    cf_fail(reason, "case.json can't be opened: %s", strerror(errno));
    return NULL;
  }
  for (;;) {
    char *grown = realloc(text, capacity + 1);
    if (grown == NULL) {
      cf_fail(reason, "case.json: out of memory");
      break;
    }
    text = grown;
    errno = 0;
    used += fread(text + used, 1, capacity - used, file);
    if (ferror(file)) {
      cf_fail(reason, "case.json can't be read: %s", strerror(errno));
      break;
    }
    if (used < capacity) {
      fclose(file);
      text[used] = 0;
      *bytes = used;
      return text;
    }
    capacity *= 2;
    if (capacity > MAX_JSON_BYTES) {
      cf_fail(reason, "case.json has more than %d bytes", MAX_JSON_BYTES / 2);
      break;
    }
  }
  fclose(file);
  free(text);
  return NULL;
}

int cf_case_open(const char *folder, cf_case *out, cf_reason *reason) {
  char path[MAX_PATH_BYTES];
  size_t bytes = 0;
  memset(out, 0, sizeof *out);
  if (!join_path(path, folder, "case.json", reason))
    return 0;
  char *text = read_text(path, &bytes, reason);
  if (text == NULL)
    return 0;
  const char *end = NULL;
  out->root = cJSON_ParseWithLengthOpts(text, bytes + 1, &end, 1);
  /* Without a tree, `end` is where the parser gave up. */
  const size_t at = end != NULL && end >= text && end <= text + bytes ? (size_t)(end - text) : 0;
  free(text);
  if (out->root == NULL)
    return cf_fail(reason, "case.json is not valid JSON (byte %zu of %zu)", at, bytes);
  if (!cJSON_IsObject(out->root))
    return cf_fail(reason, "case.json does not hold an object");
  out->op = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(out->root, "op"));
  if (out->op == NULL || out->op[0] == 0)
    return cf_fail(reason, "case.json: \"op\" is missing or not a text");
  const cJSON *domain = cJSON_GetObjectItemCaseSensitive(out->root, "domain");
  if (domain != NULL && !cJSON_IsString(domain))
    return cf_fail(reason, "case.json: \"domain\" is not a text");
  out->domain = domain != NULL ? domain->valuestring : "";
  return 1;
}

/* ---- tensors ---- */

static void free_array(cf_array *array) {
  free(array->data);
  memset(array, 0, sizeof *array);
}

/* Copies into C order, whatever the order of the file. */
static int copy_array(const clattn_npy *npy, cf_array *out) {
  const size_t bytes = cf_type_bytes(out->type);
  out->data = malloc(npy->bytes > 0 ? npy->bytes : 1);
  if (out->data == NULL)
    return 0;
  int64_t index[CF_MAX_RANK] = {0};
  for (int64_t n = 0; n < out->count; n++) {
    int64_t from = 0;
    for (int axis = 0; axis < out->rank; axis++)
      from += index[axis] * npy->stride[axis];
    memcpy((char *)out->data + (size_t)n * bytes, (const char *)npy->data + (size_t)from * bytes, bytes);
    for (int axis = out->rank - 1; axis >= 0 && ++index[axis] == out->shape[axis]; axis--)
      index[axis] = 0;
  }
  return 1;
}

static int same_shape(const cf_array *array, const cJSON *shape) {
  if (!cJSON_IsArray(shape) || cJSON_GetArraySize(shape) != array->rank)
    return 0;
  int axis = 0;
  const cJSON *item;
  cJSON_ArrayForEach(item, shape) {
    int64_t length;
    if (!integer_of(item, 0, INT64_C(1) << 52, &length) || length != array->shape[axis++])
      return 0;
  }
  return 1;
}

static const char *text_of(const cJSON *entry, const char *key) {
  return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(entry, key));
}

/* One entry of inputs, outputs or reference64: the file must be what the entry says. */
static int load_tensor(const char *folder, const cJSON *entry, const char *list, cf_tensor *out, cf_reason *reason) {
  char path[MAX_PATH_BYTES], have[128], message[640];
  size_t type = 0;
  const size_t type_count = sizeof types / sizeof types[0];
  const char *name = text_of(entry, "name");
  const char *file = text_of(entry, "file");
  const char *dtype = text_of(entry, "dtype");
  if (name == NULL || file == NULL || dtype == NULL)
    return cf_fail(reason, "case.json: an entry of \"%s\" lacks its name, file or dtype", list);
  if (strlen(name) >= sizeof out->name)
    return cf_fail(reason, "case.json: a name in \"%s\" is longer than %d bytes", list, CF_MAX_NAME - 1);
  if (file[0] == 0 || strchr(file, '/') != NULL)
    return cf_fail(reason, "case.json: the file of %s is not in the case's folder: \"%.64s\"", name, file);
  memcpy(out->name, name, strlen(name) + 1);
  out->slot = -1;
  int absent;
  if (!cf_get_integer(entry, "slot", 0, 1000, &out->slot, &absent, reason))
    return 0;
  while (type < type_count && strcmp(dtype, types[type].name) != 0)
    type++;
  if (type == type_count)
    return cf_fail(reason, "%s has the type %.32s, which this runner does not know", name, dtype);
  out->array.type = out->stored = (cf_type)type;
  const char *stored = text_of(entry, "stored_as");
  if (stored != NULL && (out->array.type != CF_BF16 || strcmp(stored, "uint16") != 0))
    return cf_fail(reason, "%s: %s stored as %.32s is not known", name, dtype, stored);

  clattn_npy npy;
  if (!join_path(path, folder, file, reason))
    return 0;
  if (clattn_npy_open(path, &npy, message, sizeof message) != 0)
    return cf_fail(reason, "%s: %s", name, message);
  out->array.rank = npy.rank;
  out->array.count = (int64_t)(npy.bytes / clattn_npy_type_bytes(npy.type));
  memcpy(out->array.shape, npy.shape, sizeof out->array.shape);
  int result = 0;
  if (strcmp(npy.type, types[type].npy) != 0)
    cf_fail(reason, "%s: case.json says %s, the file holds \"%s\"", name, dtype, npy.type);
  else if (!same_shape(&out->array, cJSON_GetObjectItemCaseSensitive(entry, "shape")))
    cf_fail(reason, "%s: the file's shape %s is not the one in case.json", name, cf_shape_text(&out->array, have));
  else if (!copy_array(&npy, &out->array))
    cf_fail(reason, "%s: out of memory", name);
  else
    result = 1;
  clattn_npy_close(&npy);
  return result;
}

static int load_list(const char *folder, const cf_case *c, const char *list, cf_tensor *tensors, int *count,
                     cf_reason *reason) {
  const cJSON *entries = cJSON_GetObjectItemCaseSensitive(c->root, list);
  const cJSON *entry;
  if (!cJSON_IsArray(entries))
    return cf_fail(reason, "case.json: \"%s\" is missing or not a list", list);
  cJSON_ArrayForEach(entry, entries) {
    if (*count == CF_MAX_TENSORS)
      return cf_fail(reason, "case.json: more than %d %s", CF_MAX_TENSORS, list);
    cf_tensor *tensor = &tensors[(*count)++];
    if (!load_tensor(folder, entry, list, tensor, reason))
      return 0;
    if (cf_find_name(tensors, *count - 1, tensor->name) != NULL ||
        (tensor->slot >= 0 && cf_find_slot(tensors, *count - 1, tensor->slot) != NULL))
      return cf_fail(reason, "case.json: %s stands twice in \"%s\", by name or by slot", tensor->name, list);
  }
  return 1;
}

/* The float64 results of the same inputs replace the stored ones of low precision. */
static int load_reference(const char *folder, cf_case *c, cf_reason *reason) {
  const cJSON *entries = cJSON_GetObjectItemCaseSensitive(c->root, "reference64");
  const cJSON *entry;
  if (entries == NULL)
    return 1;
  if (!cJSON_IsArray(entries))
    return cf_fail(reason, "case.json: \"reference64\" is not a list");
  cJSON_ArrayForEach(entry, entries) {
    cf_tensor tensor;
    memset(&tensor, 0, sizeof tensor);
    int good = load_tensor(folder, entry, "reference64", &tensor, reason);
    cf_tensor *output = NULL;
    for (int i = 0; i < c->outputs && good && output == NULL; i++) {
      if (strcmp(c->output[i].name, tensor.name) == 0)
        output = &c->output[i];
    }
    if (output != NULL && output->array.rank == tensor.array.rank &&
        memcmp(output->array.shape, tensor.array.shape, sizeof tensor.array.shape) == 0) {
      const cf_array stored = output->array;
      output->array = tensor.array;
      tensor.array = stored;
    } else if (good) {
      good = cf_fail(reason, "reference64 %s fits no output", tensor.name);
    }
    free_array(&tensor.array);
    if (!good)
      return 0;
  }
  return 1;
}

static int load_tolerance(cf_case *c, cf_reason *reason) {
  const cJSON *tolerance = cJSON_GetObjectItemCaseSensitive(c->root, "tolerance");
  for (int i = 0; i < c->outputs; i++) {
    cf_tensor *output = &c->output[i];
    const cJSON *entry = cJSON_GetObjectItemCaseSensitive(tolerance, output->name);
    if (entry == NULL)
      entry = cJSON_GetObjectItemCaseSensitive(tolerance, "*");
    const cJSON *rtol = cJSON_GetObjectItemCaseSensitive(entry, "rtol");
    const cJSON *atol = cJSON_GetObjectItemCaseSensitive(entry, "atol");
    if (!cJSON_IsNumber(rtol) || !cJSON_IsNumber(atol))
      return cf_fail(reason, "case.json has no tolerance (rtol and atol) for the output %s", output->name);
    if (!(rtol->valuedouble >= 0 && rtol->valuedouble < 1) || !(atol->valuedouble >= 0 && isfinite(atol->valuedouble)))
      return cf_fail(reason, "case.json: the tolerance of %s is out of range", output->name);
    output->rtol = rtol->valuedouble;
    output->atol = atol->valuedouble;
  }
  return 1;
}

int cf_case_load(const char *folder, cf_case *c, cf_reason *reason) {
  if (!load_list(folder, c, "inputs", c->input, &c->inputs, reason) ||
      !load_list(folder, c, "outputs", c->output, &c->outputs, reason))
    return 0;
  if (c->outputs == 0)
    return cf_fail(reason, "case.json lists no output, so there is nothing to judge");
  return load_reference(folder, c, reason) && load_tolerance(c, reason);
}

void cf_case_close(cf_case *c) {
  for (int i = 0; i < c->inputs; i++)
    free_array(&c->input[i].array);
  for (int i = 0; i < c->outputs; i++)
    free_array(&c->output[i].array);
  cJSON_Delete(c->root);
  memset(c, 0, sizeof *c);
}
