/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers whose product x W^T another library computed: y = activation(product + b) * factor + residual, all
 * f32. */
#define CLATTN_LANES 1
#include "lanes.cl.h"
#include "nn/linear_params.cl.h"
#include "nn/activation.cl.h"

/* Grid: (output in whole work-groups, row).  x of p is where the product lies, which may be y; so may be the factor and
 * the residual, hence nothing is restrict. */
__kernel void epilogue(const nn_linear p, __global const float *product, __global const float *bias,
                       __global const float *factor, __global const float *residual, __global float *y) {
  const long n = get_global_id(0), r = get_global_id(1);
  if (n >= p.out)
    return;
  float s = product[p.x.first + r * p.x.stride + n];
  if (p.flags & NN_LINEAR_BIAS)
    s += bias[n];
  s = nn_activate(p.activation, s);
  if (p.flags & NN_LINEAR_FACTOR)
    s *= factor[p.factor.first + r * p.factor.stride + n];
  if (p.flags & NN_LINEAR_RESIDUAL)
    s += residual[p.residual.first + r * p.residual.stride + n];
  y[p.y.first + r * p.y.stride + n] = s;
}
