/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "convert.h"

#include <math.h>
#include <string.h>

static const struct {
  const char *name, *npy;
  size_t bits;
} dtypes[] = {
    [CLATTN_F32] = {"f32", "f4", 32}, [CLATTN_F16] = {"f16", "f2", 16}, [CLATTN_BF16] = {"bf16", "u2", 16},
    [CLATTN_I8] = {"i8", "i1", 8},    [CLATTN_I4] = {"i4", "u1", 4},
};
enum { DTYPES = sizeof dtypes / sizeof dtypes[0] };

const char *cli_dtype_name(clattn_dtype dtype) {
  return dtypes[dtype].name;
}

int cli_dtype_parse(const char *text, clattn_dtype *dtype) {
  for (clattn_dtype i = 0; i < DTYPES; i++) {
    if (strcmp(text, dtypes[i].name) == 0) {
      *dtype = i;
      return 1;
    }
  }
  return 0;
}

const char *cli_dtype_npy(clattn_dtype dtype) {
  return dtypes[dtype].npy;
}

size_t cli_dtype_bytes(clattn_dtype dtype, size_t count) {
  return dtypes[dtype].bits >= 8 ? count * (dtypes[dtype].bits / 8) : count / 2 + count % 2;
}

int cli_dtype_is_quantised(clattn_dtype dtype) {
  return dtype == CLATTN_I8 || dtype == CLATTN_I4;
}

int64_t cli_dtype_groups(clattn_dtype dtype, int64_t dim) {
  return dtype == CLATTN_I4 ? dim / CLI_I4_GROUP + (dim % CLI_I4_GROUP != 0) : 1;
}

static float from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static uint32_t to_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

float cli_from_f16(uint16_t bits) {
  const uint32_t sign = (uint32_t)(bits & 0x8000u) << 16, exponent = bits >> 10 & 31u, fraction = bits & 1023u;
  if (exponent == 31)
    return from_bits(sign | 0x7f800000u | fraction << 13);
  if (exponent == 0) {
    const float value = (float)fraction * 0x1p-24f;
    return sign != 0 ? -value : value;
  }
  return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

float cli_from_bf16(uint16_t bits) {
  return from_bits((uint32_t)bits << 16);
}

/* bits / 2^shift to nearest even. */
static uint32_t round_off(uint32_t bits, unsigned shift) {
  const uint32_t odd = bits >> shift & 1u;
  return (bits + (UINT32_C(1) << (shift - 1)) - 1 + odd) >> shift;
}

uint16_t cli_to_f16(float value) {
  const uint32_t bits = to_bits(value), sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
  uint32_t half;
  if (size > 0x7f800000u) {
    half = 0x7c00u | (size >> 13 & 1023u);
    half |= half == 0x7c00u;        /* a payload below the bits there are must not make it infinity */
  } else if (size >= 0x47800000u) { /* 2^16, or infinite */
    half = 0x7c00u;
  } else if (size >= 0x38800000u) { /* 2^-14: normal; a carry runs into the exponent, up to infinity */
    half = round_off(size - (UINT32_C(112) << 23), 13);
  } else if (size >= 0x33000000u) { /* 2^-25: denormal, or a tie with 0 */
    half = round_off((size & 0x7fffffu) | 0x800000u, 126 - (size >> 23));
  } else {
    half = 0;
  }
  return (uint16_t)(sign | half);
}

uint16_t cli_to_bf16(float value) {
  const uint32_t bits = to_bits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    const uint32_t top = bits >> 16;
    return (uint16_t)(top | ((top & 0x7fu) == 0));
  }
  return (uint16_t)((bits >> 16) + ((bits & 0xffffu) + 0x7fffu + (bits >> 16 & 1u) > 0xffffu));
}

static float load_float(clattn_dtype dtype, const void *base, size_t index) {
  if (dtype == CLATTN_F32)
    return ((const float *)base)[index];
  const uint16_t bits = ((const uint16_t *)base)[index];
  return dtype == CLATTN_F16 ? cli_from_f16(bits) : cli_from_bf16(bits);
}

double cli_dtype_load(clattn_dtype dtype, const void *base, int64_t index) {
  if (dtype == CLATTN_I8)
    return ((const int8_t *)base)[index];
  if (dtype == CLATTN_I4)
    return (((const uint8_t *)base)[index / 2] >> (index % 2 != 0 ? 4 : 0) & 15) - 8;
  return (double)load_float(dtype, base, (size_t)index);
}

void cli_dtype_convert(clattn_dtype from, const void *source, clattn_dtype to, void *target, size_t count) {
  if (from == to) {
    memcpy(target, source, cli_dtype_bytes(to, count));
    return;
  }
  for (size_t i = 0; i < count; i++) {
    const float value = load_float(from, source, i);
    if (to == CLATTN_F32)
      ((float *)target)[i] = value;
    else
      ((uint16_t *)target)[i] = to == CLATTN_F16 ? cli_to_f16(value) : cli_to_bf16(value);
  }
}

int cli_quantise_row(clattn_dtype from, const void *source, int64_t first, int64_t step, int64_t dim, clattn_dtype to,
                     void *codes, float *scales) {
  const int64_t group = to == CLATTN_I4 ? CLI_I4_GROUP : dim;
  const float most = to == CLATTN_I4 ? 7 : 127;
  if (to == CLATTN_I4)
    memset(codes, 0, cli_dtype_bytes(to, (size_t)dim));
  for (int64_t start = 0; start < dim; start += group) {
    const int64_t end = dim - start < group ? dim : start + group;
    float largest = 0;
    for (int64_t e = start; e < end; e++) {
      const float size = fabsf(load_float(from, source, (size_t)(first + e * step)));
      if (!isfinite(size))
        return 0;
      largest = size > largest ? size : largest;
    }
    const float scale = largest / most;
    *scales++ = scale;
    for (int64_t e = start; e < end; e++) {
      const float value = load_float(from, source, (size_t)(first + e * step));
      /* A scale so small that it was rounded itself can give more than `most`. */
      const float code = scale > 0 ? fminf(fmaxf(rintf(value / scale), -most), most) : 0;
      if (to == CLATTN_I8)
        ((int8_t *)codes)[e] = (int8_t)code;
      else
        ((uint8_t *)codes)[e / 2] |= (uint8_t)((unsigned)((int)code + 8) << (e % 2 != 0 ? 4 : 0));
    }
  }
  return 1;
}
