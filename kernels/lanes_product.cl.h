/* SPDX-License-Identifier: Apache-2.0 */
/* The product of the lane kernels, a register block at a time: QK^T, and x W^T of linear layers. */
#ifndef CLATTN_LANES_PRODUCT_CL_H
#define CLATTN_LANES_PRODUCT_CL_H

#include "lanes.cl.h"

/* acc[a][m] += sum over d < dims of left[d][vector m] * row[a][d * step], for CLATTN_NK rows and CLATTN_MQ vectors.
 * A macro, since OpenCL C 1.2 has no pointer that takes global and private memory alike: left is (dims, CLATTN_MQ
 * vectors), row an array of pointers. */
#define CLATTN_LANES_PRODUCT(acc, left, row, step, dims)                                                               \
  for (int d = 0; d < (dims); ++d) {                                                                                   \
    clattn_v x[CLATTN_MQ];                                                                                             \
    _Pragma("unroll") for (int m = 0; m < CLATTN_MQ; ++m) x[m] =                                                       \
        CLATTN_VLOAD((left) + d * (CLATTN_MQ * CLATTN_LANES) + m * CLATTN_LANES);                                      \
    _Pragma("unroll") for (int a = 0; a < CLATTN_NK; ++a) {                                                            \
      const clattn_v y = (clattn_v)((row)[a][d * (step)]);                                                             \
      _Pragma("unroll") for (int m = 0; m < CLATTN_MQ; ++m)(acc)[a][m] = fma(x[m], y, (acc)[a][m]);                    \
    }                                                                                                                  \
  }

#endif
