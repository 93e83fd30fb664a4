/* SPDX-License-Identifier: Apache-2.0 */
/* OpenCL calls of a program and of the shared libraries that it links, counted: the file beside this one defines them,
 * and hands them on to the loader. */
#ifndef CLATTN_TEST_COUNTED_CALLS_H
#define CLATTN_TEST_COUNTED_CALLS_H

#include <stddef.h>

typedef struct counted_calls {
  int waits; /* clFinish, clWaitForEvents, blocking reads, writes and maps */
  int buffers;
  int launches;
  size_t copied; /* bytes that went into buffers */
} counted_calls;

/* Of all threads together; for one thread at a time. */
extern counted_calls counted;

#endif
