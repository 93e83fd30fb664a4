/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_probe: a question about a device, answered by a kernel or a query, one a process. */
#ifndef GPU_PROBE_H
#define GPU_PROBE_H

#include <CL/cl.h>
#include <stddef.h>
#include <stdint.h>

#include "device.h"

enum { PROBE_BUFFERS = 16, PROBE_TEXT_BYTES = 4096 };

/* Everything that a question makes is the probe's, and goes with it. */
typedef struct probe {
  cli_session session;
  cl_device_id device;
  char extensions[16384];
  cl_program program;
  cl_kernel kernel;
  cl_mem buffer[PROBE_BUFFERS];
  int buffers;
  int failed; /* the answer is why the question has none */
  char answer[512];
  char detail[PROBE_TEXT_BYTES];
  char *log; /* of all builds so far; malloc'ed */
} probe;

typedef struct probe_question {
  const char *name, *text;
  void (*ask)(probe *p);
} probe_question;

/* Lists of questions; the last has no name. */
extern const probe_question probe_plain[], probe_vendor[];

/* ---- what a question says ---- */

void probe_answer(probe *p, const char *format, ...);
void probe_detail(probe *p, const char *format, ...); /* a further sentence */
void probe_fail(probe *p, cl_int code, const char *what);

/* ---- the device ---- */

int probe_has(const probe *p, const char *extension);
int probe_is(const probe *p, const char *vendor);           /* in the vendor's or the platform's name */
uint64_t probe_number(const probe *p, cl_device_info what); /* 0 when the device does not say */
uint32_t probe_compute_capability(const probe *p);          /* NVIDIA's, 80 for 8.0; 0 for others */
size_t probe_group_size(const probe *p, size_t wanted);     /* at most what the built kernel allows */

/* ---- work ---- */

/* Builds kernels/probe/FILE.cl in place of what was built before and makes that kernel.  1 when it is there; else the
 * log says why, and nothing has failed. */
int probe_build(probe *p, const char *file, const char *options, const char *kernel);
/* The same where the question has no answer without it. */
int probe_need(probe *p, const char *file, const char *options, const char *kernel);
/* A buffer with these bytes, or of zeros; NULL after a failure. */
cl_mem probe_buffer(probe *p, size_t bytes, const void *contents);
/* 1 when the kernel ran and all that it wrote can be read. */
int probe_arguments(probe *p, const cl_mem *list, int count);
int probe_run(probe *p, size_t global, size_t local);
int probe_read(probe *p, cl_mem buffer, size_t bytes, void *out);

/* ---- numbers ---- */

float probe_half_value(uint16_t bits);
uint16_t probe_half_bits(float value); /* to nearest, ties to even */
double probe_seconds(void);

#endif
