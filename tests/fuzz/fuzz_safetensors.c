/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "safetensors.h"

const char *const fuzz_words[] = {"\"dtype\":",
                                  "\"shape\":",
                                  "\"data_offsets\":",
                                  "\"__metadata__\":{},",
                                  "\"F32\"",
                                  "\"F16\"",
                                  "\"BF16\"",
                                  "\"I64\"",
                                  "\"F4\"",
                                  "[]",
                                  "[0,0]",
                                  "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
                                  "{\"a\":",
                                  "null",
                                  "true",
                                  "\\u0000",
                                  "\\ud800",
                                  "\\u0061",
                                  "\xe2\x82\xac",
                                  "\xc0\x80",
                                  "\xed\xa0\x80",
                                  "  ",
                                  ",",
                                  "\"a\":{",
                                  "}",
                                  "\x01\0\0\0\0\0\0",
                                  NULL};

static const char *const headers[] = {
    "{}",
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}   ",
    "{\"__metadata__\":{\"format\":\"pt\"},\"b\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[8,16]},"
    "\"a\":{\"dtype\":\"F16\",\"shape\":[2,2],\"data_offsets\":[0,8]}}",
    "{\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},\"empty\":{\"dtype\":\"F32\",\"shape\":[0,7],"
    "\"data_offsets\":[4,4]},\"q\":{\"dtype\":\"F4\",\"shape\":[8],\"data_offsets\":[4,8]},\"i\":{\"dtype\":\"F32\","
    "\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[8,16]}}",
    "{\"\xc3\xa9\\u00e9\\\\\\\"\":{\"dtype\":\"F16\",\"shape\":[1,1,1,1,1,1,1,12],\"data_offsets\":[0,24]}}",
};
static const size_t data_sizes[] = {0, 24, 16, 16, 24};

static size_t write_prefix(uint8_t *out, size_t length) {
  for (size_t i = 0; i < 8; i++)
    out[i] = (uint8_t)((uint64_t)length >> 8 * i);
  return 8;
}

size_t fuzz_seed(size_t n, uint8_t *out, size_t capacity) {
  if (n >= sizeof headers / sizeof headers[0])
    return 0;
  const size_t length = strlen(headers[n]), size = 8 + length + data_sizes[n];
  if (size > capacity)
    abort();
  write_prefix(out, length);
  memcpy(out + 8, headers[n], length);
  for (size_t i = 0; i < data_sizes[n]; i++)
    out[8 + length + i] = (uint8_t)(37 * i);
  return size;
}

static void need(int holds, const char *rule) {
  if (!holds) {
    fprintf(stderr, "broken rule: %s\n", rule);
    abort();
  }
}

/* Reads all of it; what is in the file lies in the file. */
static void check_tensor(const model_tensors *file, const char *name, const uint8_t *data, size_t size) {
  model_tensor view;
  model_error error = {""};
  if (model_tensor_find(file, name, &view, &error) != 0) {
    need(error.message[0] != 0, "a refusal has a reason");
    return;
  }
  need(strcmp(view.name, name) == 0, "the tensor found has the name asked for");
  need(view.bytes == (size_t)view.count * model_dtype_bytes(view.dtype), "the size is count x type");
  need(view.data >= data && view.bytes <= size && (size_t)(view.data - data) <= size - view.bytes,
       "the data lies in the file");
  need(model_tensor_expect(file, name, view.rank, view.shape, &view, &error) == 0, "a tensor has its own shape");
  if (view.rank > 0) {
    int64_t other[MODEL_MAX_RANK];
    memcpy(other, view.shape, sizeof other);
    other[0]++;
    need(model_tensor_expect(file, name, view.rank, other, &view, &error) != 0, "and no other");
    need(model_tensor_find(file, name, &view, NULL) == 0, "a tensor is found again");
  }
  volatile unsigned char sum = 0;
  for (size_t i = 0; i < view.bytes; i++)
    sum = (unsigned char)(sum + view.data[i]);
  for (int64_t i = 0; i < view.count; i++) {
    float value = 0;
    unsigned char bytes[4];
    model_tensor_read(&view, i, 1, &value);
    memcpy(bytes, &value, 4);
    need(view.dtype != MODEL_F32 || memcmp(bytes, view.data + 4 * i, 4) == 0, "F32 is read as it is");
  }
}

static void try_file(const uint8_t *data, size_t size) {
  model_tensors *file = NULL;
  model_error error = {""};
  if (model_tensors_open_memory("input", data, size, &file, &error) != 0) {
    need(file == NULL && strncmp(error.message, "input: ", 7) == 0, "a refusal names the file and gives no handle");
    return;
  }
  const char *name = NULL, *before = NULL;
  for (size_t n = 0; (name = model_tensors_name(file, n)) != NULL; n++, before = name) {
    need(before == NULL || strcmp(before, name) < 0, "names are sorted and differ");
    check_tensor(file, name, data, size);
  }
  check_tensor(file, "none", data, size);
  model_tensors_close(file);
}

/* As it is, and with the header's length made right: few changes would reach the header otherwise. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  try_file(data, size);
  if (size < 8)
    return 0;
  size_t end = size;
  while (end > 8 && data[end - 1] != '}')
    end--;
  uint8_t *repaired = malloc(size);
  if (repaired == NULL)
    return 0;
  memcpy(repaired, data, size);
  write_prefix(repaired, end - 8);
  try_file(repaired, size);
  free(repaired);
  return 0;
}
