/* SPDX-License-Identifier: Apache-2.0 */
/* Lays out a part of a weight for the kernels of linear layers.  Types: Q is what is given, O the weight's. */
#include "dtype.cl.h"
#include "nn/linear_params.cl.h"

/* Grid: (input in whole work-groups, output of the part and of the padding behind it). */
__kernel void pack(const nn_pack p, __global const CLATTN_TYPE(CLATTN_Q) *restrict from,
                   __global CLATTN_TYPE(CLATTN_O) *restrict to) {
  const long d = get_global_id(0), part = get_global_id(1), n = p.first + part;
  if (d >= p.in)
    return;
  const long at = p.tile == 0 ? n * p.in + d : (n / p.tile * p.in + d) * p.tile + n % p.tile;
  const long source = p.from.first + (p.transposed ? d * p.from.stride + part : part * p.from.stride + d);
#if CLATTN_NUMBER(CLATTN_Q) == CLATTN_NUMBER(CLATTN_O)
  to[at] = part < p.count ? from[source] : (CLATTN_TYPE(CLATTN_O))(0);
#else
  CLATTN_STORE(CLATTN_O)(to, at, part < p.count ? CLATTN_LOAD(CLATTN_Q)(from, source) : 0.0f);
#endif
}

/* Grid: (output of the part and of the padding behind it). */
__kernel void pack_bias(const nn_pack p, __global const float *restrict from, __global float *restrict to) {
  const long part = get_global_id(0);
  to[p.first + part] = part < p.count ? from[p.from.first + part] : 0.0f;
}
