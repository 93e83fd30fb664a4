/* SPDX-License-Identifier: Apache-2.0 */
/* Activations of linear layers, on vectors of lanes. */
#ifndef CLATTN_NN_ACTIVATION_CL_H
#define CLATTN_NN_ACTIVATION_CL_H

#include "lanes.cl.h"
#include "softmax.cl.h"
#include "nn/linear_params.cl.h"

/* GELU by the error function: max(x, 0) - |x| Phi(-|x|), where the polynomial is log2 of the normal distribution's tail
 * Phi(-t), t up to 8: a fit of this project's own, weighted for the error of the result, which with rounding stays below
 * 1e-7 max(1, |x|).  No branch and no cancellation, unlike x/2 (1 + erf(x / sqrt 2)) as it is written. */
static inline clattn_v nn_gelu(clattn_v x) {
  const clattn_v size = fabs(x), t = size < (clattn_v)(8.0f) ? size : (clattn_v)(8.0f); /* NaN too */
  clattn_v l = (clattn_v)(2.8777847660e-7f);
  l = fma(l, t, (clattn_v)(-6.2348426582e-6f));
  l = fma(l, t, (clattn_v)(5.4775375428e-5f));
  l = fma(l, t, (clattn_v)(-2.1887922776e-4f));
  l = fma(l, t, (clattn_v)(-1.0798389850e-4f));
  l = fma(l, t, (clattn_v)(7.0671779104e-3f));
  l = fma(l, t, (clattn_v)(-5.2520871162e-2f));
  l = fma(l, t, (clattn_v)(-4.5919275284e-1f));
  l = fma(l, t, (clattn_v)(-1.1511085033f));
  l = fma(l, t, (clattn_v)(-9.9999982119e-1f));
  /* 2^l: a number from -51 to -1, so nothing is to be guarded */
  const clattn_v rounded = l + CLATTN_ROUNDER;
  const clattn_v tail = clattn_exp2(rounded, l - (rounded - CLATTN_ROUNDER));
  const clattn_v above = x < (clattn_v)(0.0f) ? (clattn_v)(0.0f) : x; /* NaN stays */
  return fma(-t, tail, above);
}

/* 1 / (1 + exp(-x)); the exponential never sees a positive argument, so it can't overflow. */
static inline clattn_v nn_sigmoid(clattn_v x) {
  const clattn_v e = clattn_exp(-fabs(x));
  const clattn_v above = (clattn_v)(1.0f) / ((clattn_v)(1.0f) + e);
  return x < (clattn_v)(0.0f) ? e * above : above;
}

static inline clattn_v nn_activate(int kind, clattn_v x) {
  switch (kind) {
  case NN_RELU:
    return x < (clattn_v)(0.0f) ? (clattn_v)(0.0f) : x; /* NaN stays */
  case NN_GELU:
    return nn_gelu(x);
  case NN_GELU_TANH: {
    const clattn_v part = (clattn_v)(0.5f) * x;
    const clattn_v cube = (clattn_v)(0.044715f) * x * x;
    const clattn_v y = fma(part, clattn_tanh((clattn_v)(0.79788456080f) * fma(cube, x, x)), part);
    return x == (clattn_v)(-INFINITY) ? (clattn_v)(0.0f) : y;
  }
  case NN_SILU:
    return x == (clattn_v)(-INFINITY) ? (clattn_v)(0.0f) : x * nn_sigmoid(x);
  default:
    return x;
  }
}

#endif
