/* SPDX-License-Identifier: Apache-2.0 */
/* The pieces of a stable softmax: running maximum, guarded exponential, softcap.
 *
 * Excluded keys are marked, in scores by -inf and in numerators by -0.0f.  A kept key whose weight underflows is +0.0f:
 * so the weighted sum can tell the two apart when a value is NaN or infinite. */
#ifndef CLATTN_SOFTMAX_CL_H
#define CLATTN_SOFTMAX_CL_H

#include "lanes.cl.h"

#define CLATTN_EXCLUDED_BITS ((int)0x80000000)

/* Added to 1.5 * 2^23 a number of less than 2^22 is rounded to an integer, which then stands in the sum's lowest bits,
 * where it needs no conversion: built-in rounding and conversion are emulated on CPUs, by 40 instructions. */
#define CLATTN_ROUNDER ((clattn_v)(0x1.8p23f))

/* 2^(n + f): n by `rounded`, n + CLATTN_ROUNDER, with the result above 2^-126; f within [-0.5, 0.5].  Cephes' polynomial
 * (S. Moshier, exp2f). */
static inline clattn_v clattn_exp2(clattn_v rounded, clattn_v f) {
  clattn_v p = (clattn_v)(1.535336188319500e-4f);
  p = fma(p, f, (clattn_v)(1.339887440266574e-3f));
  p = fma(p, f, (clattn_v)(9.618437357674640e-3f));
  p = fma(p, f, (clattn_v)(5.550332471162809e-2f));
  p = fma(p, f, (clattn_v)(2.402264791363012e-1f));
  p = fma(p, f, (clattn_v)(6.931472028550421e-1f));
  p = fma(p, f, (clattn_v)(1.0f));
  return CLATTN_AS_V(CLATTN_AS_VI(p) + (CLATTN_AS_VI(rounded) << 23));
}

/* e^x for x <= 0 or NaN, with range reduction by log2(e) in two parts; error below 2 units in the last place.  Results
 * below 2^-126 become 0: a key that far off has no weight, and a clamp would give it one. */
static inline clattn_v clattn_exp(clattn_v x) {
  const clattn_v rounded = fma(x, (clattn_v)(1.44269504f), CLATTN_ROUNDER);
  clattn_v f = fma(x, (clattn_v)(1.44269504f), CLATTN_ROUNDER - rounded);
  f = fma(x, (clattn_v)(1.92596299e-8f), f); /* log2(e) - (float)log2(e) */
  const clattn_v e = clattn_exp2(rounded, f);
  const clattn_v scaled = x < (clattn_v)(-87.33654f) ? (clattn_v)(0.0f) : e; /* -126 ln 2 */
  return x != x ? x : scaled;
}

/* The same in fewer steps, for the numerators of a softmax: half of what the fused CPU kernel does beside products.  A
 * polynomial of degree 5 that gives 1 at 0, and log2(e) in one part: error below 3 units in the last place near 0, and
 * more where a weight is less.  Instructions of AVX-512 give x - floor(x), and 2^floor(x) times a number: 1.3 units more
 * for each unit of x, since their argument is rounded.  Else the exponent's bias is in what rounds, so that a shift alone
 * makes 2^n: 0.23 units more.  Products keep every NaN. */
static inline clattn_v clattn_exp_numerator(clattn_v x) {
#if CLATTN_LANES == 16 && defined(__clang__) && defined(__AVX512DQ__)
  const clattn_v t = x * (clattn_v)(1.44269504f);
  const clattn_v f = __builtin_ia32_reduceps512_mask(t, 9, t, (ushort)0xffff, 4);
  clattn_v p = (clattn_v)(1.867130515165627e-3f);
  p = fma(p, f, (clattn_v)(9.017029777169228e-3f));
  p = fma(p, f, (clattn_v)(5.579991266131401e-2f));
  p = fma(p, f, (clattn_v)(2.401644438505173e-1f));
  p = fma(p, f, (clattn_v)(6.931512951850891e-1f));
  p = fma(p, f, (clattn_v)(1.0f));
  const clattn_v e = __builtin_ia32_scalefps512_mask(p, t, p, (ushort)0xffff, 4);
#else
  const clattn_v rounder = CLATTN_ROUNDER + (clattn_v)(127.0f);
  const clattn_v rounded = fma(x, (clattn_v)(1.44269504f), rounder);
  const clattn_v f = fma(x, (clattn_v)(1.44269504f), rounder - rounded);
  clattn_v p = (clattn_v)(1.326471334323287e-3f);
  p = fma(p, f, (clattn_v)(9.671523235738277e-3f));
  p = fma(p, f, (clattn_v)(5.550733953714371e-2f));
  p = fma(p, f, (clattn_v)(2.402224242687225e-1f));
  p = fma(p, f, (clattn_v)(6.931470036506653e-1f));
  p = fma(p, f, (clattn_v)(1.0f));
  const clattn_v e = p * CLATTN_AS_V(CLATTN_AS_VI(rounded) << 23);
#endif
  return x < (clattn_v)(-87.33654f) ? (clattn_v)(0.0f) : e;
}

/* exp(s - m), the mark for s = -inf.  s = +inf gives NaN (inf - inf), as it must. */
static inline clattn_v clattn_numerator(clattn_v s, clattn_v m) {
  const clattn_v e = clattn_exp(s - m);
  return s == (clattn_v)(-INFINITY) ? CLATTN_AS_V((clattn_vi)(CLATTN_EXCLUDED_BITS)) : e;
}

/* Not the built-in max: a NaN score must not decide the maximum (it shows in the sum instead). */
static inline clattn_v clattn_maximum(clattn_v m, clattn_v s) {
  return s > m ? s : m;
}

/* The largest of m and s, but NaN once there stays. */
static inline clattn_v clattn_maximum_nan(clattn_v m, clattn_v s) {
  const clattn_v larger = s > m ? s : m;
  const clattn_v with_s = s != s ? s : larger;
  return m != m ? m : with_s;
}

/* The same for two numbers. */
static inline float clattn_larger_nan(float m, float s) {
  return m != m || s != s ? NAN : fmax(m, s);
}

/* The end of a row: its sink joins as a score without a value.  Numerators relative to *top are multiplied by the
 * result and divided by *sum to be weights; *top + log(*sum) is lse.  A sink of -inf changes no bit. */
static inline clattn_v clattn_join_sink(clattn_v *top, clattn_v *sum, clattn_v sink) {
  const clattn_v larger = sink > *top ? sink : *top;
  /* equal maxima, -inf and +inf among them, scale by 1: a difference of infinities would be NaN */
  const clattn_v by = *top == larger ? (clattn_v)(1.0f) : clattn_exp(*top - larger);
  const clattn_v more = sink == (clattn_v)(-INFINITY) ? (clattn_v)(0.0f) : clattn_exp(sink - larger);
  *top = larger;
  *sum = fma(*sum, by, more);
  return by;
}

/* A sum of numerators times values over the sum of numerators.  -0 becomes +0: whether a block of keys that a row
 * does not see was added must not show. */
static inline float clattn_result(float sum, float values) {
  return sum == 0.0f ? 0.0f : values / sum + 0.0f;
}

/* slope * (j - p), or -slope * |j - p|, added to a score. */
static inline clattn_v clattn_alibi(clattn_v s, clattn_v slope, clattn_v distance, int symmetric) {
  return fma(slope, symmetric ? -fabs(distance) : distance, s);
}

/* Cephes' tanhf (S. Moshier): a polynomial near zero, else by e^-2|x|.  Short and free of branches, unlike the
 * built-in one. */
static inline clattn_v clattn_tanh(clattn_v x) {
  const clattn_v z = x * x, size = fabs(x);
  clattn_v p = (clattn_v)(-5.70498872745e-3f);
  p = fma(p, z, (clattn_v)(2.06390887954e-2f));
  p = fma(p, z, (clattn_v)(-5.37397155531e-2f));
  p = fma(p, z, (clattn_v)(1.33314422036e-1f));
  p = fma(p, z, (clattn_v)(-3.33332819422e-1f));
  const clattn_v near = fma(p * z, x, x);
  const clattn_v e = clattn_exp((clattn_v)(-2.0f) * size);
  const clattn_v far = copysign(((clattn_v)(1.0f) - e) / ((clattn_v)(1.0f) + e), x);
  return size < (clattn_v)(0.625f) ? near : far;
}

static inline clattn_v clattn_softcap(clattn_v s, float softcap) {
  return softcap > 0.0f ? (clattn_v)(softcap)*clattn_tanh(s / (clattn_v)(softcap)) : s;
}

#endif
