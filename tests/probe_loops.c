/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled with -mavx2 -mfma, and with -mavx512f. */
#include "probe_loops.h"

#include <immintrin.h>

enum { CHAINS = 12 };

#ifdef __AVX512F__
typedef __m512 vector;
enum { LANES = 16 };
#define FMA_LOOP probe_fma_avx512
#define READ_LOOP probe_read_avx512
#define SET _mm512_set1_ps
#define FMA _mm512_fmadd_ps
#define ADD _mm512_add_ps
#define LOAD _mm512_loadu_ps
#define STORE _mm512_storeu_ps
#else
typedef __m256 vector;
enum { LANES = 8 };
#define FMA_LOOP probe_fma_avx2
#define READ_LOOP probe_read_avx2
#define SET _mm256_set1_ps
#define FMA _mm256_fmadd_ps
#define ADD _mm256_add_ps
#define LOAD _mm256_loadu_ps
#define STORE _mm256_storeu_ps
#endif

static float total(vector x) {
  float t[LANES], sum = 0;
  STORE(t, x);
  for (int i = 0; i < LANES; ++i)
    sum += t[i];
  return sum;
}

float FMA_LOOP(long steps, double *flops) {
  const vector by = SET(0.999f), more = SET(1e-3f);
  vector a0 = SET(0.0f), a1 = SET(0.1f), a2 = SET(0.2f), a3 = SET(0.3f), a4 = SET(0.4f), a5 = SET(0.5f);
  vector a6 = SET(0.6f), a7 = SET(0.7f), a8 = SET(0.8f), a9 = SET(0.9f), a10 = SET(1.0f), a11 = SET(1.1f);
  for (long i = 0; i < steps; ++i) {
    a0 = FMA(a0, by, more);
    a1 = FMA(a1, by, more);
    a2 = FMA(a2, by, more);
    a3 = FMA(a3, by, more);
    a4 = FMA(a4, by, more);
    a5 = FMA(a5, by, more);
    a6 = FMA(a6, by, more);
    a7 = FMA(a7, by, more);
    a8 = FMA(a8, by, more);
    a9 = FMA(a9, by, more);
    a10 = FMA(a10, by, more);
    a11 = FMA(a11, by, more);
  }
  *flops = 2.0 * CHAINS * LANES * (double)steps;
  const vector low = ADD(ADD(ADD(a0, a1), ADD(a2, a3)), ADD(a4, a5));
  const vector high = ADD(ADD(ADD(a6, a7), ADD(a8, a9)), ADD(a10, a11));
  return total(ADD(low, high));
}

/* Four streams, each with a prefetcher's attention of its own: one stream alone leaves a quarter of the bandwidth. */
float READ_LOOP(const float *from, size_t count) {
  vector a = SET(0.0f), b = a, c = a, d = a;
  const size_t part = count / 4;
  const float *const second = from + part, *const third = second + part, *const fourth = third + part;
  for (size_t i = 0; i < part; i += LANES) {
    a = ADD(a, LOAD(from + i));
    b = ADD(b, LOAD(second + i));
    c = ADD(c, LOAD(third + i));
    d = ADD(d, LOAD(fourth + i));
  }
  return total(ADD(ADD(a, b), ADD(c, d)));
}
