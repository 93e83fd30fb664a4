/* SPDX-License-Identifier: Apache-2.0 */
/* Storage types: sizes, names, and exact widening to double for the reference. */
#ifndef CLATTN_DTYPE_H
#define CLATTN_DTYPE_H

#include "clattn.h"

enum { CLATTNI_I4_GROUP = 32 }; /* elements of I4 that share a scale */

/* Bytes per element; 0 for I4 (two elements a byte) and for values outside the enum. */
size_t clattni_dtype_bytes(clattn_dtype dtype);
/* "f32", "f16", "bf16", "i8", "i4"; NULL outside the enum. */
const char *clattni_dtype_name(clattn_dtype dtype);
/* 1 and *dtype on success. */
int clattni_dtype_parse(const char *name, size_t length, clattn_dtype *dtype);
/* Element `index` of an array, exactly; of i8 and i4 the stored integer (i4: -8 to 7) without its scale.  NaN outside
 * the enum. */
double clattni_dtype_load(clattn_dtype dtype, const void *base, int64_t index);

#endif
