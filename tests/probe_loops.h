/* SPDX-License-Identifier: Apache-2.0 */
/* What the benchmark's probes measure, as loops in C: compiled once for each vector width of x86 that they may meet. */
#ifndef CLATTN_TESTS_PROBE_LOOPS_H
#define CLATTN_TESTS_PROBE_LOOPS_H

#include <stddef.h>

/* steps times a row of independent fused multiply-adds; returns a number that depends on all of them.  *flops: floating-point
 * operations done. */
typedef float probe_fma_loop(long steps, double *flops);
probe_fma_loop probe_fma_avx2, probe_fma_avx512;

/* The sum of `count` floats, a multiple of 64. */
typedef float probe_read_loop(const float *from, size_t count);
probe_read_loop probe_read_avx2, probe_read_avx512;

#endif
