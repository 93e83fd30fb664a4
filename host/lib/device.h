/* SPDX-License-Identifier: Apache-2.0 */
/* Facts about a device, asked once. */
#ifndef CLATTN_DEVICE_H
#define CLATTN_DEVICE_H

#include "clattn.h"

/* Matrix units of GPUs, as flash-gpu-matrix uses them: clattn_device_info.matrix. */
typedef int32_t clattni_matrix;
enum {
  CLATTNI_MATRIX_NONE = 0,
  CLATTNI_MATRIX_NVIDIA_75 = 1, /* compute capability 7.5: f16 only */
  CLATTNI_MATRIX_NVIDIA = 2,    /* 8.0 and above */
  CLATTNI_MATRIX_WMMA = 3,      /* AMD's of gfx11 */
  CLATTNI_MATRIX_WMMA_12 = 4,   /* of gfx12 */
  CLATTNI_MATRIX_MFMA_90A = 5,  /* of gfx90a, which takes subnormal f16 for 0 */
  CLATTNI_MATRIX_MFMA = 6,      /* of gfx942 */
  CLATTNI_MATRIX_DPAS_8 = 7,    /* Intel's, with sub-groups of 8 */
  CLATTNI_MATRIX_DPAS_16 = 8    /* and of 16 */
};

clattn_status clattni_device_query(cl_device_id device, clattn_device_info *info, clattn_error *error);
/* The unit of "emulate-UNIT"; CLATTNI_MATRIX_NONE if there is none of that name. */
clattni_matrix clattni_matrix_named(const char *text);
/* Its name; NULL of no unit. */
const char *clattni_matrix_name(clattni_matrix unit);

/* Lanes of the CPU families' vectors: 4, 8 or 16, as many floats as the device's vectors have, or as `forced` says (0:
 * not). */
int clattni_lanes(const clattn_device_info *device, uint32_t forced);

#endif
