/* SPDX-License-Identifier: Apache-2.0 */
/* host/model/safetensors.c: what a file holds is found with the right values; every broken file is refused with its
 * name, the tensor's and the numbers. */
#define _XOPEN_SOURCE 700 /* mkdtemp, mkfifo */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "safetensors.h"

static char folder[] = "/tmp/clattn-safetensors-XXXXXX";
static const char path[] = "w.safetensors";

static int start(void **state) {
  (void)state;
  return mkdtemp(folder) != NULL ? chdir(folder) : -1;
}

static int finish(void **state) {
  (void)state;
  unlink(path);
  return chdir("/") != 0 ? -1 : rmdir(folder);
}

/* ---- made-up files ---- */

typedef struct made_up {
  unsigned char *bytes;
  size_t count;
} made_up;

/* The header's length as claimed, the header, and bytes 0, 1, 2, ... of data. */
static made_up make_claim(uint64_t claim, const char *header, size_t length, size_t data_bytes) {
  made_up file = {malloc(8 + length + data_bytes), 8 + length + data_bytes};
  assert_non_null(file.bytes);
  for (size_t i = 0; i < 8; i++)
    file.bytes[i] = (unsigned char)(claim >> 8 * i);
  memcpy(file.bytes + 8, header, length);
  for (size_t i = 0; i < data_bytes; i++)
    file.bytes[8 + length + i] = (unsigned char)i;
  return file;
}

static made_up make(const char *header, size_t data_bytes) {
  return make_claim(strlen(header), header, strlen(header), data_bytes);
}

static void write_file(const made_up *file) {
  FILE *out = fopen(path, "wb");
  assert_non_null(out);
  assert_int_equal(fwrite(file->bytes, 1, file->count, out), file->count);
  assert_int_equal(fclose(out), 0);
}

/* All parts stand in the message, which begins with the path. */
static void check_message(const model_error *error, const char *first, const char *second, const char *third) {
  const char *parts[] = {first, second, third};
  if (strncmp(error->message, "w.safetensors: ", strlen("w.safetensors: ")) != 0)
    fail_msg("'%s' does not begin with the path", error->message);
  for (size_t i = 0; i < 3; i++) {
    if (parts[i] != NULL && strstr(error->message, parts[i]) == NULL)
      fail_msg("'%s' does not hold '%s'", error->message, parts[i]);
  }
}

/* Refused from memory and from disk, for the same reason, also when nobody wants to know the reason. */
static void refuse_bytes(made_up file, const char *first, const char *second, const char *third) {
  model_tensors *tensors = NULL;
  model_error error, again;
  if (model_tensors_open_memory(path, file.bytes, file.count, &tensors, &error) == 0)
    fail_msg("accepted; '%s' was expected", first);
  assert_null(tensors);
  check_message(&error, first, second, third);
  write_file(&file);
  assert_int_equal(model_tensors_open(path, &tensors, &again), -1);
  assert_null(tensors);
  assert_string_equal(error.message, again.message);
  assert_int_equal(model_tensors_open(path, &tensors, NULL), -1);
  free(file.bytes);
}

static void refuse(const char *header, size_t data_bytes, const char *first, const char *second, const char *third) {
  refuse_bytes(make(header, data_bytes), first, second, third);
}

static model_tensors *open_made_up(const made_up *file) {
  model_tensors *tensors = NULL;
  model_error error = {""};
  if (model_tensors_open_memory(path, file->bytes, file->count, &tensors, &error) != 0)
    fail_msg("%s", error.message);
  return tensors;
}

static void accept(const char *header, size_t data_bytes) {
  made_up file = make(header, data_bytes);
  model_tensors_close(open_made_up(&file));
  free(file.bytes);
}

/* One tensor "t" with this entry. */
#define T(entry) "{\"t\":{" entry "}}"
#define F32(shape, offsets) "\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":" offsets

/* ---- what is read ---- */

static const char three_types[] =
    "{\"__metadata__\":{\"format\":\"pt\"},"
    "\"whole\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
    "\"half\":{\"dtype\":\"F16\",\"shape\":[9],\"data_offsets\":[24,42]},"
    "\"brain\":{\"dtype\":\"BF16\",\"shape\":[2,1,2],\"data_offsets\":[42,50]},"
    "\"one\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[50,54]},"
    "\"none\":{\"dtype\":\"F16\",\"shape\":[4,0],\"data_offsets\":[54,54]},"
    "\"ids\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[54,62]},"
    "\"odd\":{\"dtype\":\"MX7\",\"shape\":[3],\"data_offsets\":[62,65]},"
    "\"deep\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[65,69]}}    ";
enum { THREE_TYPES_BYTES = 69 };

static void put(made_up *file, size_t at, const void *bytes, size_t count) {
  memcpy(file->bytes + file->count - THREE_TYPES_BYTES + at, bytes, count);
}

static void check_view(const model_tensors *file, const char *name, model_dtype dtype, int rank, const int64_t *shape,
                       const float *values, int64_t count) {
  model_tensor view;
  model_error error = {""};
  float got[16];
  if (model_tensor_expect(file, name, rank, shape, &view, &error) != 0)
    fail_msg("%s", error.message);
  assert_string_equal(view.name, name);
  assert_int_equal(view.dtype, dtype);
  assert_int_equal(view.rank, rank);
  assert_int_equal(view.count, count);
  assert_int_equal(view.bytes, (size_t)count * model_dtype_bytes(dtype));
  for (int axis = rank; axis < MODEL_MAX_RANK; axis++)
    assert_int_equal(view.shape[axis], 1);
  model_tensor_read(&view, 0, count, got);
  assert_memory_equal(got, values, (size_t)count * sizeof *got);
  if (count > 1) {
    model_tensor_read(&view, count - 1, 1, got);
    assert_memory_equal(got, values + count - 1, sizeof *got);
  }
}

static void check_three_types(const model_tensors *file) {
  static const float whole[6] = {1.0f, -2.5f, 3e38f, 1e-45f, -0.0f, 0.1f};
  static const float half[9] = {1.0f, -2.0f, 65504.0f, 0x1p-24f, 0x1.ff8p-15f, 0x1p-14f, -0.0f, INFINITY, -INFINITY};
  static const float brain[4] = {1.0f, -3.0f, 0x1.fep127f, 0x1p-133f};
  static const float one[1] = {42.0f};
  static const int64_t whole_shape[] = {2, 3}, half_shape[] = {9}, brain_shape[] = {2, 1, 2}, none_shape[] = {4, 0};
  check_view(file, "whole", MODEL_F32, 2, whole_shape, whole, 6);
  check_view(file, "half", MODEL_F16, 1, half_shape, half, 9);
  check_view(file, "brain", MODEL_BF16, 3, brain_shape, brain, 4);
  check_view(file, "one", MODEL_F32, 0, NULL, one, 1);
  check_view(file, "none", MODEL_F16, 2, none_shape, one, 0);
}

static made_up make_three_types(void) {
  static const float whole[6] = {1.0f, -2.5f, 3e38f, 1e-45f, -0.0f, 0.1f}, one = 42.0f;
  static const uint16_t half[9] = {0x3c00, 0xc000, 0x7bff, 0x0001, 0x03ff, 0x0400, 0x8000, 0x7c00, 0xfc00};
  static const uint16_t brain[4] = {0x3f80, 0xc040, 0x7f7f, 0x0001};
  made_up file = make(three_types, THREE_TYPES_BYTES);
  put(&file, 0, whole, sizeof whole);
  put(&file, 24, half, sizeof half);
  put(&file, 42, brain, sizeof brain);
  put(&file, 50, &one, sizeof one);
  return file;
}

static void values_of_three_types(void **state) {
  (void)state;
  static const char *const names[] = {"brain", "deep", "half", "ids", "none", "odd", "one", "whole"};
  made_up file = make_three_types();
  model_error error = {""};
  write_file(&file);
  for (int from_disk = 0; from_disk < 2; from_disk++) {
    model_tensors *tensors = NULL;
    if (from_disk)
      assert_int_equal(model_tensors_open(path, &tensors, &error), 0);
    else
      tensors = open_made_up(&file);
    check_three_types(tensors);
    for (size_t n = 0; n < 8; n++)
      assert_string_equal(model_tensors_name(tensors, n), names[n]);
    assert_null(model_tensors_name(tensors, 8));
    model_tensors_close(tensors);
  }
  model_tensors_close(NULL);
  assert_string_equal(model_dtype_name(MODEL_F32), "F32");
  assert_string_equal(model_dtype_name(MODEL_F16), "F16");
  assert_string_equal(model_dtype_name(MODEL_BF16), "BF16");
  free(file.bytes);
}

/* Data need not be aligned: the same file at every offset of an aligned buffer. */
static void any_alignment(void **state) {
  (void)state;
  made_up file = make_three_types();
  unsigned char *buffer = malloc(file.count + 8);
  assert_non_null(buffer);
  for (size_t shift = 0; shift < 8; shift++) {
    model_tensors *tensors = NULL;
    model_error error = {""};
    memcpy(buffer + shift, file.bytes, file.count);
    assert_int_equal(model_tensors_open_memory(path, buffer + shift, file.count, &tensors, &error), 0);
    check_three_types(tensors);
    model_tensors_close(tensors);
  }
  free(buffer);
  free(file.bytes);
}

static void nan_stays_nan(void **state) {
  (void)state;
  made_up file = make("{\"h\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4]},"
                      "\"b\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[4,8]}}",
                      8);
  static const uint16_t values[4] = {0x7e00, 0xfc01, 0x7fc0, 0xff81};
  memcpy(file.bytes + file.count - 8, values, sizeof values);
  model_tensors *tensors = open_made_up(&file);
  model_tensor view;
  float got[4];
  assert_int_equal(model_tensor_find(tensors, "h", &view, NULL), 0);
  model_tensor_read(&view, 0, 2, got);
  assert_int_equal(model_tensor_find(tensors, "b", &view, NULL), 0);
  model_tensor_read(&view, 0, 2, got + 2);
  for (int i = 0; i < 4; i++)
    assert_true(isnan(got[i]));
  assert_true(!signbit(got[0]) && signbit(got[1]) && !signbit(got[2]) && signbit(got[3]));
  model_tensors_close(tensors);
  free(file.bytes);
}

/* ---- what is asked for and can't be had ---- */

static void refuse_find(const model_tensors *file, const char *name, const char *first, const char *second) {
  model_tensor view;
  model_error error = {""};
  assert_int_equal(model_tensor_find(file, name, &view, &error), -1);
  check_message(&error, name, first, second);
  assert_null(view.data);
  assert_int_equal(model_tensor_find(file, name, &view, NULL), -1);
}

static void refuse_expect(const model_tensors *file, int rank, const int64_t *shape, const char *first) {
  model_tensor view;
  model_error error = {""};
  assert_int_equal(model_tensor_expect(file, "whole", rank, shape, &view, &error), -1);
  check_message(&error, "tensor 'whole' has the shape [2, 3], expected ", first, NULL);
  assert_null(view.data);
}

static void unsupported_only_when_asked_for(void **state) {
  (void)state;
  static const int64_t shapes[][3] = {{3, 2}, {2, 4}, {2, 3, 1}, {6}};
  made_up file = make_three_types();
  model_tensors *tensors = open_made_up(&file);
  refuse_find(tensors, "ids", "unsupported dtype 'I64'", "F32, F16 and BF16");
  refuse_find(tensors, "odd", "unsupported dtype 'MX7'", NULL);
  refuse_find(tensors, "deep", "has 9 axes; at most 8", NULL);
  refuse_find(tensors, "hal", "no tensor 'hal' among 8", NULL);
  refuse_find(tensors, "half2", "no tensor 'half2'", NULL);
  refuse_find(tensors, "", "no tensor ''", NULL);
  refuse_find(tensors, "__metadata__", "no tensor '__metadata__'", NULL);
  refuse_expect(tensors, 2, shapes[0], "expected [3, 2]");
  refuse_expect(tensors, 2, shapes[1], "expected [2, 4]");
  refuse_expect(tensors, 3, shapes[2], "expected [2, 3, 1]");
  refuse_expect(tensors, 1, shapes[3], "expected [6]");
  refuse_expect(tensors, 1, shapes[0] + 1, "expected [2]");
  refuse_expect(tensors, 0, NULL, "expected []");
  model_tensors_close(tensors);
  free(file.bytes);
}

/* ---- broken files ---- */

static void broken_lengths(void **state) {
  (void)state;
  static const char header[] = "{}";
  made_up file = make("{}", 0);
  for (size_t count = 0; count < 8; count++) {
    char text[32];
    made_up cut = {malloc(8), count};
    assert_non_null(cut.bytes);
    memcpy(cut.bytes, file.bytes, 8);
    snprintf(text, sizeof text, "%zu bytes are too few", count);
    refuse_bytes(cut, text, NULL, NULL);
  }
  free(file.bytes);
  refuse_bytes(make_claim(3, header, 2, 0), "claims 3 bytes, 2 follow", NULL, NULL);
  refuse_bytes(make_claim(100000000, header, 2, 0), "claims 100000000 bytes, 2 follow", NULL, NULL);
  refuse_bytes(make_claim(100000001, header, 2, 0), "claims 100000001 bytes; at most 100000000", NULL, NULL);
  refuse_bytes(make_claim(UINT64_MAX, header, 2, 0), "claims 18446744073709551615 bytes", NULL, NULL);
  refuse_bytes(make_claim(0, header, 0, 0), "does not begin with '{'", NULL, NULL);
  refuse_bytes(make_claim(1, header, 1, 0), "does not end with '}'", NULL, NULL);
}

static void broken_headers(void **state) {
  (void)state;
  refuse("    ", 0, "does not begin with '{'", NULL, NULL);
  refuse(" {}", 0, "does not begin with '{'", NULL, NULL);
  refuse("\xef\xbb\xbf{}", 0, "does not begin with '{'", NULL, NULL);
  refuse("[]", 0, "does not begin with '{'", NULL, NULL);
  refuse("7", 0, "does not begin with '{'", NULL, NULL);
  refuse("{}\n", 0, "does not end with '}' and spaces: byte 2 is 0x0a", NULL, NULL);
  refuse("{} x", 0, "does not end with '}' and spaces: byte 3 is 0x78", NULL, NULL);
  refuse("{}  {}", 0, "not valid JSON", NULL, NULL);
  refuse("{}}", 0, "byte 2: a bracket that closes nothing", NULL, NULL);
  refuse("{\"a\"}", 0, "not valid JSON", NULL, NULL);
  refuse("{\"a\":}", 0, "not valid JSON", NULL, NULL);
  refuse("{\"a\":{},}", 0, "not valid JSON", NULL, NULL);
  refuse("{a:{}}", 0, "byte 1: neither a value nor punctuation", NULL, NULL);
  refuse("{\"a\":Infinity}", 0, "byte 5: neither", NULL, NULL);
  refuse("{\"a\":[1 2]}", 0, "not valid JSON", NULL, NULL);
  refuse("{\"a\":\"}", 0, "byte 7: a string that does not end", NULL, NULL);
  refuse("{\"a\\x\":0}", 0, "an escape that JSON does not know", NULL, NULL);
  refuse("{\"a\\u12g4\":0}", 0, "four hexadecimal digits", NULL, NULL);
  refuse("{\"a\\ud800\":0}", 0, "not valid JSON", NULL, NULL);
  refuse("{\"a\tb\":0}", 0, "byte 3: a control character in a string", NULL, NULL);
  refuse_bytes(make_claim(9, "{\"a\0b\":0}", 9, 0), "byte 3: a control character in a string", NULL, NULL);
  refuse_bytes(make_claim(3, "{\0}", 3, 0), "byte 1: neither", NULL, NULL);
  refuse("{\"a\\u0000\":0}", 0, "\\u0000", NULL, NULL);
}

static void broken_numbers(void **state) {
  (void)state;
  static const char *const numbers[] = {"01", "-", "+1", ".5", "1.", "1e", "1e+", "-01", "0x10", "1.e3"};
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
    char header[64];
    snprintf(header, sizeof header, "{\"a\":[%s]}", numbers[i]);
    refuse(header, 0, "not valid JSON at byte ", NULL, NULL);
  }
}

static void broken_names(void **state) {
  (void)state;
  /* A lone continuation, a cut character, overlong ones, a surrogate, above U+10FFFF, bytes that never occur. */
  static const char *const names[] = {"\x80",         "\xc3",
                                      "\xc3(",        "\xc0\x80",
                                      "\xc1\xbf",     "\xe2\x82",
                                      "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf",
                                      "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                      "\xf5",         "\xff",
                                      "\xf0\x9f\x98", "\xed\xbf\xbf"};
  static const char *const good[] = {"\x7f",         "\xc2\x80",         "\xdf\xbf",
                                     "\xe0\xa0\x80", "\xed\x9f\xbf",     "\xee\x80\x80",
                                     "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"};
  char header[128];
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    snprintf(header, sizeof header, "{\"a%s\":{" F32("[1]", "[0,4]") "}}", names[i]);
    refuse(header, 4, "byte 3: not UTF-8", NULL, NULL);
  }
  for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
    snprintf(header, sizeof header, "{\"a%s\":{" F32("[1]", "[0,4]") "}}", good[i]);
    accept(header, 4);
  }
}

static void repeated_keys(void **state) {
  (void)state;
  refuse("{\"a\":{" F32("[1]", "[0,4]") "},\"a\":{" F32("[1]", "[0,4]") "}}", 4, "the key 'a' stands twice", NULL,
         NULL);
  refuse("{\"a\":{" F32("[1]", "[0,4]") "},\"b\":{" F32("[1]", "[4,8]") "},\"\\u0061\":{" F32("[1]", "[8,12]") "}}", 12,
         "the key 'a' stands twice", NULL, NULL);
  refuse(T("\"dtype\":\"F16\"," F32("[1]", "[0,4]")), 4, "the key 'dtype' stands twice", NULL, NULL);
  refuse("{\"__metadata__\":{\"x\":\"1\",\"x\":\"2\"}}", 0, "the key 'x' stands twice", NULL, NULL);
  refuse("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "the key '__metadata__' stands twice", NULL, NULL);
  accept("{\"a\":{" F32("[1]", "[0,4]") "},\"A\":{" F32("[1]", "[4,8]") "}}", 8);
}

static void broken_entries(void **state) {
  (void)state;
  refuse("{\"t\":7}", 0, "tensor 't'", "holds 7", NULL);
  refuse("{\"t\":null}", 0, "tensor 't'", "holds null", NULL);
  refuse(T(""), 0, "tensor 't': no string 'dtype'", NULL, NULL);
  refuse(T("\"dtype\":4,\"shape\":[1],\"data_offsets\":[0,4]"), 4, "tensor 't': no string 'dtype'", NULL, NULL);
  refuse(T("\"Dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]"), 4, "tensor 't': no string 'dtype'", NULL, NULL);
  refuse(T("\"dtype\":\"F32\",\"data_offsets\":[0,4]"), 4, "tensor 't': no array 'shape'", NULL, NULL);
  refuse(T(F32("1", "[0,4]")), 4, "tensor 't': no array 'shape'", NULL, NULL);
  refuse(T("\"dtype\":\"F32\",\"shape\":[1]"), 4, "tensor 't': no array 'data_offsets'", NULL, NULL);
  refuse(T(F32("[1]", "[4]")), 4, "tensor 't': no array 'data_offsets' of two", NULL, NULL);
  refuse(T(F32("[1]", "[0,4,8]")), 4, "tensor 't': no array 'data_offsets' of two", NULL, NULL);
  refuse(T(F32("[1]", "{\"a\":0,\"b\":4}")), 4, "tensor 't': no array 'data_offsets' of two", NULL, NULL);
}

static void broken_shapes(void **state) {
  (void)state;
  refuse(T(F32("[-1]", "[0,4]")), 4, "tensor 't': shape holds -1", "whole numbers", NULL);
  refuse(T(F32("[1.5]", "[0,4]")), 4, "tensor 't': shape holds 1.5", NULL, NULL);
  refuse(T(F32("[\"1\"]", "[0,4]")), 4, "tensor 't': shape holds '1'", NULL, NULL);
  refuse(T(F32("[null]", "[0,4]")), 4, "tensor 't': shape holds null", NULL, NULL);
  refuse(T(F32("[[1]]", "[0,4]")), 4, "tensor 't': shape holds an array", NULL, NULL);
  refuse(T(F32("[{}]", "[0,4]")), 4, "tensor 't': shape holds an object", NULL, NULL);
  refuse(T(F32("[true]", "[0,4]")), 4, "tensor 't': shape holds true", NULL, NULL);
  refuse(T(F32("[9007199254740992]", "[0,4]")), 4, "tensor 't': shape holds 9007199254740992", NULL, NULL);
  refuse(T(F32("[1e999]", "[0,4]")), 4, "tensor 't': shape holds inf", NULL, NULL);
  refuse(T(F32("[9007199254740991,9007199254740991]", "[0,4]")), 4, "tensor 't': the product of its shape overflows",
         NULL, NULL);
  refuse(T(F32("[9007199254740991,0,9007199254740991]", "[0,0]")), 0, "tensor 't': the product of its shape overflows",
         NULL, NULL);
  /* 2^62 elements of 4 bytes are 0 bytes in 64 bits. */
  refuse(T(F32("[4503599627370496,1024]", "[0,0]")), 0, "tensor 't': the size of its shape overflows", NULL, NULL);
  refuse(T(F32("[2,3]", "[0,20]")), 20, "tensor 't'", "needs 24 bytes (6 of type F32)", "give 20");
  refuse(T(F32("[2,3]", "[0,28]")), 28, "tensor 't'", "needs 24 bytes", "give 28");
  refuse(T(F32("[]", "[0,0]")), 0, "tensor 't'", "needs 4 bytes (1 of", "give 0");
  refuse(T(F32("[0]", "[0,4]")), 4, "tensor 't'", "needs 0 bytes", "give 4");
  refuse(T("\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,8]"), 8, "tensor 't'",
         "needs 4 bytes (2 of type BF16)", "give 8");
  refuse(T("\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[0,8]"), 8, "tensor 't'", "needs 16 bytes", "give 8");
}

static void broken_offsets(void **state) {
  (void)state;
  refuse(T(F32("[1]", "[-4,0]")), 4, "tensor 't': data_offsets holds -4", NULL, NULL);
  refuse(T(F32("[1]", "[0,4.5]")), 4, "tensor 't': data_offsets holds 4.5", NULL, NULL);
  refuse(T(F32("[1]", "[0,\"4\"]")), 4, "tensor 't': data_offsets holds '4'", NULL, NULL);
  refuse(T(F32("[1]", "[0,18446744073709551620]")), 4, "tensor 't': data_offsets holds 1.8446744073709552e+19", NULL,
         NULL);
  refuse(T(F32("[1]", "[4,0]")), 4, "tensor 't' begins at byte 4", "ends before, at 0", NULL);
  refuse(T(F32("[2]", "[0,8]")), 7, "tensor 't' ends at byte 8", "which has 7", "cut");
  refuse(T(F32("[1]", "[4,8]")), 4, "tensor 't' ends at byte 8", "which has 4", NULL);
  refuse(T(F32("[0]", "[4,4]")), 0, "tensor 't' ends at byte 4", "which has 0", NULL);
}

#define PAIR(first, second) "{\"a\":{" F32("[2]", first) "},\"b\":{" F32("[2]", second) "}}"

static void overlaps_and_holes(void **state) {
  (void)state;
  accept(PAIR("[0,8]", "[8,16]"), 16);
  accept(PAIR("[8,16]", "[0,8]"), 16);
  refuse(PAIR("[0,8]", "[0,8]"), 8, "tensors '", "(bytes 0 to 8) and '", "overlap");
  refuse(PAIR("[0,8]", "[4,12]"), 12, "tensors 'a' (bytes 0 to 8) and 'b' (4 to 12) overlap", NULL, NULL);
  refuse(PAIR("[4,12]", "[0,8]"), 12, "tensors 'b' (bytes 0 to 8) and 'a' (4 to 12) overlap", NULL, NULL);
  refuse(PAIR("[0,8]", "[12,20]"), 20, "bytes 8 to 11 of the data belong to no tensor", NULL, NULL);
  refuse(PAIR("[1,9]", "[9,17]"), 17, "bytes 0 to 0 of the data belong to no tensor", NULL, NULL);
  refuse(PAIR("[0,8]", "[8,16]"), 17, "bytes 16 to 16 of the data belong to no tensor", NULL, NULL);
  refuse("{}", 1, "bytes 0 to 0 of the data belong to no tensor", NULL, NULL);
  /* A tensor without a byte may lie between two others, and not inside one. */
  refuse("{\"a\":{" F32("[2]", "[0,8]") "},\"e\":{" F32("[0]", "[4,4]") "}}", 8, "overlap", "'e' (4 to 4)", NULL);
  accept("{\"a\":{" F32("[2]", "[0,8]") "},\"e\":{" F32("[0]", "[8,8]") "},\"b\":{" F32("[1]", "[8,12]") "}}", 12);
  accept("{\"f\":{" F32("[0,5]", "[0,0]") "},\"e\":{" F32("[0]", "[0,0]") "}}", 0);
  /* Of types of unknown size the place is checked all the same. */
  refuse(T("\"dtype\":\"X\",\"shape\":[9],\"data_offsets\":[0,3]"), 4, "bytes 3 to 3", NULL, NULL);
  accept(T("\"dtype\":\"X\",\"shape\":[9],\"data_offsets\":[0,3]"), 3);
}

/* Every cut of a good file is refused: the last tensor misses its end. */
static void every_prefix(void **state) {
  (void)state;
  made_up file = make_three_types();
  for (size_t count = 0; count < file.count; count++) {
    made_up cut = {malloc(count + 1), count};
    assert_non_null(cut.bytes);
    memcpy(cut.bytes, file.bytes, count);
    refuse_bytes(cut, "", NULL, NULL);
  }
  free(file.bytes);
}

/* Arrays in arrays; the header's own object is a level too. */
static void deep_nesting(void **state) {
  (void)state;
  enum { DEEP = 100000 };
  static const char before[] = "{\"__metadata__\":";
  static const size_t depths[] = {31, 32, DEEP};
  char *header = malloc(sizeof before + 2 * DEEP + 1);
  assert_non_null(header);
  for (size_t i = 0; i < 3; i++) {
    const size_t depth = depths[i];
    char *at = header + sizeof before - 1;
    memcpy(header, before, sizeof before - 1);
    memset(at, '[', depth);
    memset(at + depth, ']', depth);
    memcpy(at + 2 * depth, "}", 2);
    if (i == 0)
      accept(header, 0);
    else
      refuse(header, 0, "nested deeper than 32 levels at byte 47", NULL, NULL);
  }
  free(header);
}

/* What is accepted although few writers do it. */
static void legal_files(void **state) {
  (void)state;
  accept("{}", 0);
  accept("{}                ", 0);
  accept("{\"__metadata__\":{\"a\":\"b\"}}", 0);
  accept("{ \"t\" :\n{" F32("[ 2 ,\t3 ]", "[ 0\r, 24 ]") " } }", 24);
  accept(T("\"extra\":[{\"x\":null}]," F32("[1]", "[0,4]")), 4);
  accept(T(F32("[1e0]", "[0,4.0]")), 4);
  accept(T(F32("[1,1,1,1,1,1,1,1,1,1,1,1]", "[0,4]")), 4);
  accept("{\"\":{" F32("[1]", "[0,4]") "}}", 4);
}

/* A long name is cut in the message, without cutting a character, and nothing in a name reaches the terminal raw. */
static void names_in_messages(void **state) {
  (void)state;
  char header[1024], name[601];
  model_tensors *tensors = NULL;
  model_error error = {""};
  for (size_t i = 0; i < 600; i += 2)
    memcpy(name + i, "\xc3\xa9", 2);
  name[600] = 0;
  for (size_t odd = 0; odd < 2; odd++) {
    snprintf(header, sizeof header, "{\"%s%s\":7}", odd ? "o" : "", name);
    refuse(header, 0, odd ? "tensor 'o\xc3\xa9" : "tensor '\xc3\xa9", "\xc3\xa9...'", "holds 7");
  }
  refuse("{\"a\\u001b[31m\\n\\u007f\":7}", 0,
         "tensor 'a?[31m?"
         "?'",
         NULL, NULL);

  /* Of a path the end stays. */
  made_up file = make("{}", 1);
  for (size_t odd = 0; odd < 2; odd++) {
    memcpy(name + 600 - 6 - odd, "/w.st", 6);
    assert_int_equal(model_tensors_open_memory(name, file.bytes, file.count, &tensors, &error), -1);
    assert_memory_equal(error.message, "...\xc3\xa9", 5);
    assert_non_null(strstr(error.message, odd ? "\xc3/w.st: bytes 0 to 0" : "\xa9/w.st: bytes 0 to 0"));
  }
  free(file.bytes);
}

/* A sentence that is too long ends with dots, and with whole characters before them. */
static void long_sentences(void **state) {
  (void)state;
  model_error error = {""};
  char text[MODEL_ERROR_MOST + 101];
  for (size_t i = 0; i < sizeof text - 1; i += 2)
    memcpy(text + i, "\xc3\xa9", 2);
  text[sizeof text - 1] = 0;
  assert_int_equal(model_fail(&error, "%s", text), -1);
  assert_int_equal(strlen(error.message), MODEL_ERROR_MOST - 1);
  assert_string_equal(error.message + MODEL_ERROR_MOST - 6, "\xc3\xa9...");
  assert_int_equal(model_fail(&error, "x%s", text), -1);
  assert_int_equal(strlen(error.message), MODEL_ERROR_MOST);
  assert_string_equal(error.message + MODEL_ERROR_MOST - 5, "\xc3\xa9...");
  assert_int_equal(model_fail(&error, "%.*s", MODEL_ERROR_MOST, text), -1);
  assert_int_equal(strlen(error.message), MODEL_ERROR_MOST);
  assert_string_equal(error.message + MODEL_ERROR_MOST - 2, "\xc3\xa9");
  assert_int_equal(model_fail(NULL, "%s", text), -1);
}

static int allocations_left;

static void *bounded_malloc(size_t bytes) {
  return allocations_left-- > 0 ? malloc(bytes) : NULL;
}

/* Each allocation of the JSON document fails once. */
static void no_memory_for_json(void **state) {
  (void)state;
  cJSON_Hooks hooks = {bounded_malloc, free};
  made_up file = make_three_types();
  int refused = 0, accepted = 0;
  for (; !accepted; refused += !accepted) {
    model_tensors *tensors = NULL;
    model_error error = {""};
    allocations_left = refused;
    cJSON_InitHooks(&hooks);
    accepted = model_tensors_open_memory(path, file.bytes, file.count, &tensors, &error) == 0;
    cJSON_InitHooks(NULL);
    if (!accepted)
      check_message(&error, "no memory", NULL, NULL);
    model_tensors_close(tensors);
  }
  assert_in_range(refused, 50, 1000);
  free(file.bytes);
}

static void refuse_path(const char *name, const char *reason) {
  model_tensors *tensors = NULL;
  model_error error = {""};
  assert_int_equal(model_tensors_open(name, &tensors, &error), -1);
  assert_null(tensors);
  assert_memory_equal(error.message, name, strlen(name));
  if (strstr(error.message, reason) == NULL)
    fail_msg("'%s' does not hold '%s'", error.message, reason);
}

static void paths_that_are_no_files(void **state) {
  (void)state;
  refuse_path("nothing.safetensors", "can't be opened: No such file");
  refuse_path("nothing/x", "can't be opened");
  refuse_path(".", "is not a regular file");
  assert_int_equal(mkfifo("pipe", 0666), 0);
  refuse_path("pipe", "is not a regular file"); /* and does not wait for a writer */
  assert_int_equal(unlink("pipe"), 0);
}

/* Many tensors, in the worst order for a reader that compares all with all: 40000 would take minutes then. */
static void many_tensors(void **state) {
  (void)state;
  enum { MANY = 40000, ENTRY = 80 };
  char *header = malloc((size_t)MANY * ENTRY + 2);
  model_tensor view;
  size_t used = 0;
  assert_non_null(header);
  for (int n = MANY - 1; n >= 0; n--)
    used += (size_t)snprintf(header + used, ENTRY, "%c\"t%05d\":{" F32("[1]", "[%d,%d]") "}", n == MANY - 1 ? '{' : ',',
                             n, 4 * n, 4 * n + 4);
  header[used++] = '}';
  header[used] = 0;
  made_up file = make(header, 4 * MANY);
  model_tensors *tensors = open_made_up(&file);
  for (int n = 0; n < MANY; n++) {
    char name[8];
    snprintf(name, sizeof name, "t%05d", n % 100000);
    assert_int_equal(model_tensor_find(tensors, name, &view, NULL), 0);
    assert_ptr_equal(view.data, file.bytes + file.count - 4 * MANY + 4 * (size_t)n);
  }
  model_tensors_close(tensors);
  free(file.bytes);
  free(header);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(values_of_three_types), cmocka_unit_test(any_alignment),
      cmocka_unit_test(nan_stays_nan),         cmocka_unit_test(unsupported_only_when_asked_for),
      cmocka_unit_test(broken_lengths),        cmocka_unit_test(broken_headers),
      cmocka_unit_test(broken_numbers),        cmocka_unit_test(broken_names),
      cmocka_unit_test(repeated_keys),         cmocka_unit_test(broken_entries),
      cmocka_unit_test(broken_shapes),         cmocka_unit_test(broken_offsets),
      cmocka_unit_test(overlaps_and_holes),    cmocka_unit_test(every_prefix),
      cmocka_unit_test(deep_nesting),          cmocka_unit_test(legal_files),
      cmocka_unit_test(names_in_messages),     cmocka_unit_test(long_sentences),
      cmocka_unit_test(no_memory_for_json),    cmocka_unit_test(paths_that_are_no_files),
      cmocka_unit_test(many_tensors),
  };
  return cmocka_run_group_tests(tests, start, finish);
}
