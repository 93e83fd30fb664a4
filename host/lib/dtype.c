/* SPDX-License-Identifier: Apache-2.0 */
#include "dtype.h"

#include <math.h>
#include <string.h>

static const struct {
  const char *name;
  size_t bytes;
} dtypes[] = {
    [CLATTN_F32] = {"f32", 4}, [CLATTN_F16] = {"f16", 2}, [CLATTN_BF16] = {"bf16", 2},
    [CLATTN_I8] = {"i8", 1},   [CLATTN_I4] = {"i4", 0},
};
enum { DTYPE_COUNT = sizeof dtypes / sizeof dtypes[0] };

static int in_enum(clattn_dtype dtype) {
  return dtype >= 0 && dtype < DTYPE_COUNT;
}

size_t clattni_dtype_bytes(clattn_dtype dtype) {
  return in_enum(dtype) ? dtypes[dtype].bytes : 0;
}

const char *clattni_dtype_name(clattn_dtype dtype) {
  return in_enum(dtype) ? dtypes[dtype].name : NULL;
}

int clattni_dtype_parse(const char *name, size_t length, clattn_dtype *dtype) {
  for (clattn_dtype i = 0; i < DTYPE_COUNT; i++) {
    if (strlen(dtypes[i].name) == length && memcmp(dtypes[i].name, name, length) == 0) {
      *dtype = i;
      return 1;
    }
  }
  return 0;
}

static double from_half(uint16_t bits) {
  const double sign = (bits & 0x8000u) ? -1.0 : 1.0;
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  if (exponent == 31)
    return fraction ? (double)NAN : sign * (double)INFINITY;
  if (exponent == 0)
    return sign * ldexp(fraction, -24);
  return sign * ldexp(fraction + 1024, exponent - 25);
}

static double from_bfloat(uint16_t bits) {
  const uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return (double)value;
}

/* memcpy, because the caller's base pointer may come from a file with no alignment. */
double clattni_dtype_load(clattn_dtype dtype, const void *base, int64_t index) {
  const unsigned char *bytes = base;
  if (dtype == CLATTN_F32) {
    float value;
    memcpy(&value, bytes + (size_t)index * sizeof value, sizeof value);
    return (double)value;
  }
  if (dtype == CLATTN_F16 || dtype == CLATTN_BF16) {
    uint16_t bits;
    memcpy(&bits, bytes + (size_t)index * sizeof bits, sizeof bits);
    return dtype == CLATTN_F16 ? from_half(bits) : from_bfloat(bits);
  }
  if (dtype == CLATTN_I8)
    return bytes[index] < 128 ? (double)bytes[index] : (double)bytes[index] - 256.0;
  if (dtype == CLATTN_I4)
    return (double)(bytes[index / 2] >> (index % 2 != 0 ? 4 : 0) & 15) - 8.0; /* the low nibble first */
  return (double)NAN;
}
