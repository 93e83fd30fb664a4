/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLATTN_CONTEXT_H
#define CLATTN_CONTEXT_H

#include <stdatomic.h>

#include "cache.h"
#include "clattn.h"
#include "device.h"
#include "memory.h"
#include "program.h"
#include "tuning.h"
#include "verdict.h"

#define CLATTNI_MAX_CONFIG_FORBIDDEN 8

enum { CLATTNI_TRUST_BY_DEVICE = 0, CLATTNI_TRUST_TESTED, CLATTNI_TRUST_ALL };

struct clattn_context {
  atomic_int references;
  clattni_allocator allocator;
  cl_context cl;
  cl_device_id device;
  clattn_device_info info;
  void (*log)(void *user, int level, const char *line);
  void *log_user;
  char *config; /* config_text, cut at its separators; the two below point into it */
  const char *variant;
  const char *forbidden[CLATTNI_MAX_CONFIG_FORBIDDEN];
  uint32_t forbidden_count;
  clattni_tuned *tuned; /* what tuning.entries is */
  clattni_tuning tuning;
  uint32_t width; /* lanes of the CPU families, forced; 0: as many as suit the device */
  int trust;      /* config_text: CLATTNI_TRUST_ */
  int tested;     /* 1: kernels are tested at their first use */
  clattni_verdicts verdicts;
  clattni_matrix emulated; /* matrix unit; CLATTNI_MATRIX_NONE: the device's own */
  clattni_cache cache;
  clattni_programs programs;
};

void clattni_context_retain(clattn_context *context);
/* A log line, if the caller wants them. */
void clattni_context_log(const clattn_context *context, int level, const char *format, ...);

#endif
