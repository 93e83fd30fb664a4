/* SPDX-License-Identifier: Apache-2.0 */
/* A fuzz target is one file with the three symbols below.  Linked with fuzz_driver.c it is a program that needs nothing
 * else; with clang's -fsanitize=fuzzer and without the driver libFuzzer runs it, which finds the first by its name and
 * needs no more. */
#ifndef CLATTN_TEST_FUZZ_H
#define CLATTN_TEST_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Tries one input, which may be anything; returns 0.  A result that breaks a rule ends the process with abort(). */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The n-th good input, of at most `capacity` bytes, to begin from; its size, or 0 when there are no more. */
enum { FUZZ_SEED_MOST = 4096 };
size_t fuzz_seed(size_t n, uint8_t *out, size_t capacity);

/* Pieces that good inputs are made of, to put in anywhere; the last is NULL. */
extern const char *const fuzz_words[];

#endif
