/* SPDX-License-Identifier: Apache-2.0 */
#include "safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_file.h"
#include "model_json.h"

/* The format's own limit of the header, and the bytes of the header's length before it. */
enum { HEADER_MOST = 100000000, PREFIX = 8 };

/* ---- types ---- */

/* Sizes are checked for every type of a whole number of bytes, whoever can use it. */
typedef struct known {
  const char *name;
  uint64_t bytes;
  int dtype; /* -1: not for model_tensor_find */
} known;
static const known knowns[] = {
    {"F32", 4, MODEL_F32}, {"F16", 2, MODEL_F16}, {"BF16", 2, MODEL_BF16}, {"F64", 8, -1},
    {"I64", 8, -1},        {"I32", 4, -1},        {"I16", 2, -1},          {"I8", 1, -1},
    {"U64", 8, -1},        {"U32", 4, -1},        {"U16", 2, -1},          {"U8", 1, -1},
    {"BOOL", 1, -1},       {"F8_E5M2", 1, -1},    {"F8_E4M3", 1, -1},      {"C64", 8, -1},
};

static const known *find_known(const char *name) {
  for (size_t i = 0; i < sizeof knowns / sizeof knowns[0]; i++) {
    if (strcmp(knowns[i].name, name) == 0)
      return &knowns[i];
  }
  return NULL;
}

const char *model_dtype_name(model_dtype dtype) {
  return dtype == MODEL_F32 ? "F32" : dtype == MODEL_F16 ? "F16" : "BF16";
}

size_t model_dtype_bytes(model_dtype dtype) {
  return dtype == MODEL_F32 ? 4 : 2;
}

/* ---- a tensor's entry in the header ---- */

typedef struct entry {
  const char *name, *dtype; /* of the JSON document, which lives as long as the file */
  int rank;                 /* may be above MODEL_MAX_RANK; then shape holds the first axes */
  int64_t shape[MODEL_MAX_RANK];
  int64_t count;
  uint64_t begin, end; /* in the data */
} entry;

struct model_tensors {
  char *path;
  model_file file; /* all zero for a file from memory */
  cJSON *header;
  const unsigned char *data;
  uint64_t bytes; /* of data */
  entry *entries; /* by name */
  size_t count;
};

static int fail_tensor(const model_tensors *file, const char *name, const char *rule, model_error *error) {
  return model_fail(error, "%s: tensor '%s': %s", model_show_path(file->path).text, model_show(name).text, rule);
}

/* "shape" or "data_offsets" and what is wrong with it. */
static int fail_item(const model_tensors *file, const char *name, const char *key, const cJSON *item, const char *rule,
                     model_error *error) {
  return model_fail(error, "%s: tensor '%s': %s holds %s; %s", model_show_path(file->path).text, model_show(name).text,
                    key, model_json_show(item).text, rule);
}

/* Axes of length 0 count as 1 here, so that an absurd shape is refused even when it is empty. */
static int read_shape(const model_tensors *file, const cJSON *shape, entry *e, model_error *error) {
  int64_t product = 1;
  int empty = 0;
  if (!cJSON_IsArray(shape))
    return fail_tensor(file, e->name, "no array 'shape'", error);
  for (int axis = 0; axis < MODEL_MAX_RANK; axis++)
    e->shape[axis] = 1;
  for (const cJSON *item = shape->child; item != NULL; item = item->next) {
    int64_t length = 0;
    if (!model_json_whole(item, &length))
      return fail_item(file, e->name, "shape", item, "lengths are whole numbers from 0 to 2^53 - 1", error);
    if (e->rank < MODEL_MAX_RANK)
      e->shape[e->rank] = length;
    e->rank++;
    empty |= length == 0;
    if (length > 0 && product > INT64_MAX / length)
      return fail_tensor(file, e->name, "the product of its shape overflows 64 bits", error);
    product *= length > 0 ? length : 1;
  }
  e->count = empty ? 0 : product;
  return 0;
}

static int read_offsets(const model_tensors *file, const cJSON *offsets, entry *e, model_error *error) {
  int64_t range[2] = {0, 0};
  int n = 0;
  if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2)
    return fail_tensor(file, e->name, "no array 'data_offsets' of two numbers", error);
  for (const cJSON *item = offsets->child; item != NULL; item = item->next) {
    if (!model_json_whole(item, &range[n++]))
      return fail_item(file, e->name, "data_offsets", item, "offsets are whole numbers from 0 to 2^53 - 1", error);
  }
  e->begin = (uint64_t)range[0];
  e->end = (uint64_t)range[1];
  if (e->begin > e->end)
    return model_fail(error, "%s: tensor '%s' begins at byte %" PRIu64 " of the data and ends before, at %" PRIu64,
                      model_show_path(file->path).text, model_show(e->name).text, e->begin, e->end);
  if (e->end > file->bytes)
    return model_fail(error,
                      "%s: tensor '%s' ends at byte %" PRIu64 " of the data, which has %" PRIu64
                      ": the file is cut or the offsets are wrong",
                      model_show_path(file->path).text, model_show(e->name).text, e->end, file->bytes);
  return 0;
}

static int check_size(const model_tensors *file, const entry *e, model_error *error) {
  const known *type = find_known(e->dtype);
  const uint64_t bytes = e->end - e->begin, count = (uint64_t)e->count;
  if (type == NULL)
    return 0;
  if (count > UINT64_MAX / type->bytes)
    return fail_tensor(file, e->name, "the size of its shape overflows 64 bits", error);
  if (count * type->bytes != bytes)
    return model_fail(
        error,
        "%s: tensor '%s': its shape needs %" PRIu64 " bytes (%" PRIu64 " of type %s), data_offsets give %" PRIu64,
        model_show_path(file->path).text, model_show(e->name).text, count * type->bytes, count, type->name, bytes);
  return 0;
}

static int read_entry(const model_tensors *file, const cJSON *item, entry *e, model_error *error) {
  memset(e, 0, sizeof *e);
  e->name = item->string;
  if (!cJSON_IsObject(item))
    return fail_item(file, e->name, "its entry", item, "an object with dtype, shape and data_offsets is needed", error);
  const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(item, "dtype");
  if (!cJSON_IsString(dtype))
    return fail_tensor(file, e->name, "no string 'dtype'", error);
  e->dtype = dtype->valuestring;
  if (read_shape(file, cJSON_GetObjectItemCaseSensitive(item, "shape"), e, error) != 0 ||
      read_offsets(file, cJSON_GetObjectItemCaseSensitive(item, "data_offsets"), e, error) != 0)
    return -1;
  return check_size(file, e, error);
}

/* ---- the whole file ---- */

static int compare_names(const void *a, const void *b) {
  const entry *left = a, *right = b;
  return strcmp(left->name, right->name);
}

static int compare_places(const void *a, const void *b) {
  const entry *left = *(const entry *const *)a, *right = *(const entry *const *)b;
  if (left->begin != right->begin)
    return left->begin < right->begin ? -1 : 1;
  return left->end < right->end ? -1 : left->end > right->end;
}

static int fail_hole(const model_tensors *file, uint64_t from, uint64_t to, model_error *error) {
  return model_fail(error, "%s: bytes %" PRIu64 " to %" PRIu64 " of the data belong to no tensor",
                    model_show_path(file->path).text, from, to - 1);
}

/* In the order of their places each tensor begins where the one before ends. */
static int check_cover(const model_tensors *file, model_error *error) {
  const entry *before = NULL;
  uint64_t end = 0;
  int result = 0;
  const entry **sorted = malloc((file->count + 1) * sizeof *sorted);
  if (sorted == NULL)
    return model_fail(error, "%s: no memory for %zu tensors", model_show_path(file->path).text, file->count);
  for (size_t n = 0; n < file->count; n++)
    sorted[n] = &file->entries[n];
  qsort(sorted, file->count, sizeof *sorted, compare_places);
  for (size_t n = 0; n < file->count && result == 0; n++) {
    const entry *e = sorted[n];
    if (e->begin > end)
      result = fail_hole(file, end, e->begin, error);
    else if (e->begin < end)
      result = model_fail(
          error, "%s: tensors '%s' (bytes %" PRIu64 " to %" PRIu64 ") and '%s' (%" PRIu64 " to %" PRIu64 ") overlap",
          model_show_path(file->path).text, model_show(before->name).text, before->begin, before->end,
          model_show(e->name).text, e->begin, e->end);
    before = e;
    end = e->end;
  }
  free((void *)sorted);
  if (result == 0 && end != file->bytes)
    result = fail_hole(file, end, file->bytes, error);
  return result;
}

static int read_entries(model_tensors *file, model_error *error) {
  size_t count = 0;
  for (const cJSON *item = file->header->child; item != NULL; item = item->next)
    count += strcmp(item->string, "__metadata__") != 0;
  file->entries = malloc((count + 1) * sizeof *file->entries);
  if (file->entries == NULL)
    return model_fail(error, "%s: no memory for %zu tensors", model_show_path(file->path).text, count);
  for (const cJSON *item = file->header->child; item != NULL; item = item->next) {
    if (strcmp(item->string, "__metadata__") == 0)
      continue;
    if (read_entry(file, item, &file->entries[file->count], error) != 0)
      return -1;
    file->count++;
  }
  qsort(file->entries, file->count, sizeof *file->entries, compare_names);
  return check_cover(file, error);
}

static int read_header(model_tensors *file, const unsigned char *bytes, size_t count, model_error *error) {
  uint64_t length = 0;
  if (count < PREFIX)
    return model_fail(error, "%s: %zu bytes are too few: the header's length alone takes %d",
                      model_show_path(file->path).text, count, PREFIX);
  for (int i = PREFIX - 1; i >= 0; i--)
    length = length << 8 | bytes[i];
  if (length > HEADER_MOST)
    return model_fail(error, "%s: the header claims %" PRIu64 " bytes; at most %d are accepted",
                      model_show_path(file->path).text, length, HEADER_MOST);
  if (length > count - PREFIX)
    return model_fail(error, "%s: the header claims %" PRIu64 " bytes, %zu follow", model_show_path(file->path).text,
                      length, count - PREFIX);
  const unsigned char *text = bytes + PREFIX;
  size_t end = (size_t)length;
  file->data = text + end;
  file->bytes = count - PREFIX - end;
  while (end > 0 && text[end - 1] == ' ')
    end--;
  if (end == 0 || text[0] != '{')
    return model_fail(error, "%s: the header does not begin with '{'", model_show_path(file->path).text);
  if (text[end - 1] != '}')
    return model_fail(error, "%s: the header does not end with '}' and spaces: byte %zu is 0x%02x",
                      model_show_path(file->path).text, end - 1, text[end - 1]);
  file->header = model_json_parse(file->path, text, end, error);
  return file->header != NULL ? read_entries(file, error) : -1;
}

static int open_bytes(const char *name, model_file *mapped, const void *bytes, size_t count, model_tensors **out,
                      model_error *error) {
  const size_t length = strlen(name) + 1;
  model_tensors *file = calloc(1, sizeof *file);
  *out = NULL;
  if (file == NULL) {
    model_file_unmap(mapped);
    return model_fail(error, "%s: no memory", model_show_path(name).text);
  }
  if (mapped != NULL)
    file->file = *mapped;
  file->path = malloc(length);
  if (file->path == NULL) {
    model_fail(error, "%s: no memory", model_show_path(name).text);
    goto failed;
  }
  memcpy(file->path, name, length);
  if (read_header(file, bytes, count, error) != 0)
    goto failed;
  *out = file;
  return 0;
failed:
  model_tensors_close(file);
  return -1;
}

int model_tensors_open(const char *path, model_tensors **out, model_error *error) {
  model_file mapped;
  *out = NULL;
  if (model_file_map(path, 0, &mapped, error) != 0)
    return -1;
  return open_bytes(path, &mapped, mapped.bytes, mapped.count, out, error);
}

int model_tensors_open_memory(const char *name, const void *bytes, size_t count, model_tensors **out,
                              model_error *error) {
  return open_bytes(name, NULL, bytes, count, out, error);
}

void model_tensors_close(model_tensors *file) {
  if (file == NULL)
    return;
  cJSON_Delete(file->header);
  free(file->entries);
  free(file->path);
  model_file_unmap(&file->file);
  free(file);
}

/* ---- one tensor ---- */

const char *model_tensors_name(const model_tensors *file, size_t n) {
  return n < file->count ? file->entries[n].name : NULL;
}

int model_tensor_find(const model_tensors *file, const char *name, model_tensor *view, model_error *error) {
  entry key;
  memset(view, 0, sizeof *view);
  memset(&key, 0, sizeof key);
  key.name = name;
  const entry *e = bsearch(&key, file->entries, file->count, sizeof key, compare_names);
  if (e == NULL)
    return model_fail(error, "%s: no tensor '%s' among %zu", model_show_path(file->path).text, model_show(name).text,
                      file->count);
  const known *type = find_known(e->dtype);
  if (type == NULL || type->dtype < 0)
    return model_fail(error, "%s: tensor '%s': unsupported dtype '%s' (F32, F16 and BF16 are supported)",
                      model_show_path(file->path).text, model_show(name).text, model_show(e->dtype).text);
  if (e->rank > MODEL_MAX_RANK)
    return model_fail(error, "%s: tensor '%s' has %d axes; at most %d are supported", model_show_path(file->path).text,
                      model_show(name).text, e->rank, MODEL_MAX_RANK);
  view->name = e->name;
  view->dtype = (model_dtype)type->dtype;
  view->rank = e->rank;
  memcpy(view->shape, e->shape, sizeof view->shape);
  view->count = e->count;
  view->data = file->data + e->begin;
  view->bytes = (size_t)(e->end - e->begin);
  return 0;
}

static model_shown show_shape(int rank, const int64_t *shape) {
  model_shown shown = {"["};
  size_t used = 1;
  for (int axis = 0; axis < rank && used < sizeof shown.text; axis++)
    used +=
        (size_t)snprintf(shown.text + used, sizeof shown.text - used, "%s%" PRId64, axis > 0 ? ", " : "", shape[axis]);
  if (used < sizeof shown.text)
    snprintf(shown.text + used, sizeof shown.text - used, "]");
  return shown;
}

int model_tensor_expect(const model_tensors *file, const char *name, int rank, const int64_t *shape, model_tensor *view,
                        model_error *error) {
  if (model_tensor_find(file, name, view, error) != 0)
    return -1;
  if (rank == view->rank && (rank == 0 || memcmp(shape, view->shape, (size_t)rank * sizeof *shape) == 0))
    return 0;
  model_fail(error, "%s: tensor '%s' has the shape %s, expected %s", model_show_path(file->path).text,
             model_show(name).text, show_shape(view->rank, view->shape).text, show_shape(rank, shape).text);
  memset(view, 0, sizeof *view);
  return -1;
}

/* ---- values ---- */

static float from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static float from_half(uint32_t half) {
  const uint32_t sign = (half & 0x8000u) << 16, exponent = half >> 10 & 0x1fu, fraction = half & 0x3ffu;
  if (exponent == 0) { /* fraction * 2^-24 */
    const float value = (float)fraction * 0x1p-24f;
    return sign != 0 ? -value : value;
  }
  if (exponent == 31)
    return from_bits(sign | 0x7f800000u | fraction << 13);
  return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

void model_tensor_read(const model_tensor *view, int64_t first, int64_t count, float *out) {
  const size_t step = model_dtype_bytes(view->dtype);
  const unsigned char *at = view->data + (size_t)first * step;
  for (int64_t n = 0; n < count; n++, at += step) {
    const uint32_t low = (uint32_t)at[0] | (uint32_t)at[1] << 8;
    if (view->dtype == MODEL_F32)
      out[n] = from_bits(low | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
    else
      out[n] = view->dtype == MODEL_F16 ? from_half(low) : from_bits(low << 16);
  }
}
