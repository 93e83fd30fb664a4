/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "probe.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "clattn.h"
#include "probe_kernels_embedded.h"

/* ---- what a question says ---- */

void probe_answer(probe *p, const char *format, ...) {
  va_list list;
  if (p->failed)
    return;
  va_start(list, format);
  (void)vsnprintf(p->answer, sizeof p->answer, format, list);
  va_end(list);
}

void probe_detail(probe *p, const char *format, ...) {
  va_list list;
  size_t used = strlen(p->detail);
  if (used > 0 && used + 2 < sizeof p->detail) {
    (void)snprintf(p->detail + used, sizeof p->detail - used, "; ");
    used += 2;
  }
  va_start(list, format);
  (void)vsnprintf(p->detail + used, sizeof p->detail - used, format, list);
  va_end(list);
}

void probe_fail(probe *p, cl_int code, const char *what) {
  if (!p->failed)
    (void)snprintf(p->answer, sizeof p->answer, "failed: %s: %s (%s)", what, clattn_status_text(code),
                   clattn_status_name(code));
  p->failed = 1;
}

/* ---- the device ---- */

static int contains(const char *text, const char *word) {
  const size_t length = strlen(word);
  for (; *text != 0; text++)
    if (strncasecmp(text, word, length) == 0)
      return 1;
  return 0;
}

int probe_has(const probe *p, const char *extension) {
  const size_t length = strlen(extension);
  for (const char *at = p->extensions; (at = strstr(at, extension)) != NULL; at += length)
    if ((at == p->extensions || at[-1] == ' ') && (at[length] == ' ' || at[length] == 0))
      return 1;
  return 0;
}

int probe_is(const probe *p, const char *vendor) {
  return contains(p->session.device.vendor, vendor) || contains(p->session.device.platform_name, vendor);
}

uint64_t probe_number(const probe *p, cl_device_info what) {
  unsigned char bytes[8] = {0};
  uint32_t narrow = 0;
  uint64_t wide = 0;
  size_t size = 0;
  if (clGetDeviceInfo(p->device, what, sizeof bytes, bytes, &size) != CL_SUCCESS)
    return 0;
  memcpy(&narrow, bytes, sizeof narrow);
  memcpy(&wide, bytes, sizeof wide);
  return size == sizeof narrow ? narrow : wide;
}

uint32_t probe_compute_capability(const probe *p) {
  if (!probe_is(p, "NVIDIA"))
    return 0;
  /* CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV and _MINOR_NV */
  return (uint32_t)(10 * probe_number(p, 0x4000) + probe_number(p, 0x4001));
}

size_t probe_group_size(const probe *p, size_t wanted) {
  size_t most = 1;
  if (clGetKernelWorkGroupInfo(p->kernel, p->device, CL_KERNEL_WORK_GROUP_SIZE, sizeof most, &most, NULL) != CL_SUCCESS)
    return 1;
  return most < wanted ? most : wanted;
}

/* ---- work ---- */

static void keep_log(probe *p, const char *file, const char *options) {
  size_t size = 0, head = p->log != NULL ? strlen(p->log) : 0;
  if (clGetProgramBuildInfo(p->program, p->device, CL_PROGRAM_BUILD_LOG, 0, NULL, &size) != CL_SUCCESS)
    size = 0;
  const size_t room = head + strlen(file) + strlen(options) + size + 64;
  char *grown = realloc(p->log, room);
  if (grown == NULL)
    return;
  p->log = grown;
  head += (size_t)snprintf(grown + head, room - head, "---- %s.cl %s\n", file, options);
  if (size == 0 ||
      clGetProgramBuildInfo(p->program, p->device, CL_PROGRAM_BUILD_LOG, size, grown + head, NULL) != CL_SUCCESS)
    grown[head] = 0;
  else
    grown[head + size - 1] = 0;
  const size_t length = strlen(grown);
  (void)snprintf(grown + length, room - length, "\n");
}

static void drop_program(probe *p) {
  if (p->kernel != NULL)
    (void)clReleaseKernel(p->kernel);
  if (p->program != NULL)
    (void)clReleaseProgram(p->program);
  p->kernel = NULL;
  p->program = NULL;
}

int probe_build(probe *p, const char *file, const char *options, const char *kernel) {
  char name[64], all[256];
  cl_int code = CL_SUCCESS;
  drop_program(p);
  (void)snprintf(name, sizeof name, "probe/%s", file);
  (void)snprintf(all, sizeof all, "%s%s", strstr(options, "-cl-std") == NULL ? "-cl-std=CL1.2 " : "", options);
  for (size_t i = 0; i < clattni_kernel_file_count; i++) {
    const char *source = (const char *)clattni_kernel_files[i].source;
    const size_t size = clattni_kernel_files[i].size;
    if (strcmp(clattni_kernel_files[i].name, name) == 0)
      p->program = clCreateProgramWithSource(p->session.cl, 1, &source, &size, &code);
  }
  if (p->program == NULL) {
    probe_fail(p, code != CL_SUCCESS ? code : CL_INVALID_VALUE, name);
    return 0;
  }
  code = clBuildProgram(p->program, 1, &p->device, all, NULL, NULL);
  keep_log(p, file, options);
  if (code == CL_SUCCESS)
    p->kernel = clCreateKernel(p->program, kernel, &code);
  if (code != CL_SUCCESS)
    probe_detail(p, "%s.cl %s: %s", file, options, clattn_status_name(code));
  return code == CL_SUCCESS;
}

int probe_need(probe *p, const char *file, const char *options, const char *kernel) {
  const int there = probe_build(p, file, options, kernel);
  if (!there)
    probe_fail(p, CL_BUILD_PROGRAM_FAILURE, "a kernel in plain OpenCL C");
  return there;
}

cl_mem probe_buffer(probe *p, size_t bytes, const void *contents) {
  cl_int code = CL_SUCCESS;
  void *zeros = contents == NULL ? calloc(1, bytes) : NULL;
  cl_mem made = NULL;
  if (p->buffers == PROBE_BUFFERS || (contents == NULL && zeros == NULL)) {
    probe_fail(p, CL_OUT_OF_HOST_MEMORY, "a buffer");
    free(zeros);
    return NULL;
  }
  /* Not const: the driver copies from it. */
  union {
    const void *from;
    void *to;
  } pointer = {contents != NULL ? contents : zeros};
  made = clCreateBuffer(p->session.cl, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, bytes, pointer.to, &code);
  free(zeros);
  if (code != CL_SUCCESS) {
    probe_fail(p, code, "a buffer");
    return NULL;
  }
  p->buffer[p->buffers++] = made;
  return made;
}

int probe_arguments(probe *p, const cl_mem *list, int count) {
  for (int i = 0; i < count && !p->failed; i++) {
    const cl_int code = clSetKernelArg(p->kernel, (cl_uint)i, sizeof(cl_mem), &list[i]);
    if (code != CL_SUCCESS)
      probe_fail(p, code, "an argument");
  }
  return !p->failed;
}

int probe_run(probe *p, size_t global, size_t local) {
  cl_int code = p->failed
                    ? CL_INVALID_OPERATION
                    : clEnqueueNDRangeKernel(p->session.queue, p->kernel, 1, NULL, &global, &local, 0, NULL, NULL);
  if (code == CL_SUCCESS)
    code = clFinish(p->session.queue);
  if (code != CL_SUCCESS)
    probe_fail(p, code, "a launch");
  return code == CL_SUCCESS;
}

int probe_read(probe *p, cl_mem buffer, size_t bytes, void *out) {
  const cl_int code = p->failed ? CL_INVALID_OPERATION
                                : clEnqueueReadBuffer(p->session.queue, buffer, CL_TRUE, 0, bytes, out, 0, NULL, NULL);
  if (code != CL_SUCCESS)
    probe_fail(p, code, "reading back");
  return code == CL_SUCCESS;
}

/* ---- numbers ---- */

float probe_half_value(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float sign = (bits & 0x8000) != 0 ? -1.0f : 1.0f;
  if (exponent == 31)
    return fraction == 0 ? sign * INFINITY : NAN;
  return sign * (exponent == 0 ? ldexpf((float)fraction, -24) : ldexpf((float)(1024 + fraction), exponent - 25));
}

uint16_t probe_half_bits(float value) {
  const uint16_t sign = signbit(value) ? 0x8000 : 0;
  const double size = fabs((double)value);
  int exponent = 0;
  if (isnan(value))
    return 0x7e00;
  if (size <= 0)
    return sign;
  if (size >= 65520.0)
    return (uint16_t)(sign | 0x7c00);
  (void)frexp(size, &exponent);
  const int unit = exponent - 11 > -24 ? exponent - 11 : -24; /* the last place */
  /* Exact in double, so that nearbyint decides alone; what it carries over is the next exponent. */
  const double places = nearbyint(ldexp(size, -unit));
  if (unit == -24)
    return (uint16_t)(sign | (int)places);
  return (uint16_t)(sign | (((unit + 24) << 10) + (int)places));
}

double probe_seconds(void) {
  struct timespec now = {0};
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
