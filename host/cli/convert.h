/* SPDX-License-Identifier: Apache-2.0 */
/* Storage types: names, sizes, exact widening, rounding to nearest even, quantising.  Needs no device. */
#ifndef CLATTN_CLI_CONVERT_H
#define CLATTN_CLI_CONVERT_H

#include <stddef.h>
#include <stdint.h>

#include "clattn.h"

enum { CLI_I4_GROUP = 32 }; /* elements of i4 that share a scale */

/* "f32", "f16", "bf16", "i8", "i4". */
const char *cli_dtype_name(clattn_dtype dtype);
/* 1 and *dtype when the text is such a name. */
int cli_dtype_parse(const char *text, clattn_dtype *dtype);
/* The type of .npy files that hold it: f4, f2, u2 (the bits of bf16), i1, u1 (two elements of i4 a byte). */
const char *cli_dtype_npy(clattn_dtype dtype);
/* Bytes of so many elements from a byte on. */
size_t cli_dtype_bytes(clattn_dtype dtype, size_t count);
/* i8 and i4, which need scales. */
int cli_dtype_is_quantised(clattn_dtype dtype);
/* Scales of a row of `dim` elements: 1, for i4 one per group. */
int64_t cli_dtype_groups(clattn_dtype dtype, int64_t dim);

/* Exact, NaN's payload included. */
float cli_from_f16(uint16_t bits);
float cli_from_bf16(uint16_t bits);
/* To nearest even; what is too large becomes infinite; NaN stays NaN with the part of its payload that there is room
 * for. */
uint16_t cli_to_f16(float value);
uint16_t cli_to_bf16(float value);

/* Element `index`, exactly; of i8 and i4 the stored integer without its scale. */
double cli_dtype_load(clattn_dtype dtype, const void *base, int64_t index);
/* From one of f32, f16, bf16 to another. */
void cli_dtype_convert(clattn_dtype from, const void *source, clattn_dtype to, void *target, size_t count);

/* One row of finite numbers, the element `step` apart, as i8 or i4 and its scales (their number as above): the largest
 * magnitude of the row, or group, over 127 or 7.  Returns 0 where a number is NaN or infinite. */
int cli_quantise_row(clattn_dtype from, const void *source, int64_t first, int64_t step, int64_t dim, clattn_dtype to,
                     void *codes, float *scales);

#endif
