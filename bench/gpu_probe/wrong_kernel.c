/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into the clattn program: a compiler that gets kernels wrong.  Every CLATTN_PLANT_FROM in a program's source is
 * CLATTN_PLANT_TO before the driver sees it.  How many were found stands on stderr at the end. */
#define _POSIX_C_SOURCE 200809L
#include <CL/cl.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef cl_program(CL_API_CALL *create_fn)(cl_context, cl_uint, const char **, const size_t *, cl_int *);

static int planted;

static void report(void) {
  (void)fprintf(stderr, "wrong kernel: planted %d times\n", planted);
}

static create_fn next_create(void) {
  static void *library;
  create_fn next = NULL;
  if (library == NULL) {
    library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    (void)atexit(report);
  }
  void *const found = library != NULL ? dlsym(library, "clCreateProgramWithSource") : NULL;
  if (found == NULL) {
    (void)fprintf(stderr, "wrong kernel: no clCreateProgramWithSource\n");
    abort();
  }
  memcpy(&next, &found, sizeof next);
  return next;
}

/* The parts as one text; malloc'ed. */
static char *joined(cl_uint count, const char **parts, const size_t *lengths) {
  size_t all = 0;
  for (cl_uint i = 0; i < count; i++)
    all += lengths != NULL && lengths[i] != 0 ? lengths[i] : strlen(parts[i]);
  char *text = malloc(all + 1);
  char *end = text;
  for (cl_uint i = 0; i < count && text != NULL; i++) {
    const size_t length = lengths != NULL && lengths[i] != 0 ? lengths[i] : strlen(parts[i]);
    memcpy(end, parts[i], length);
    end += length;
  }
  if (text != NULL)
    *end = 0;
  return text;
}

CL_API_ENTRY cl_program CL_API_CALL clCreateProgramWithSource(cl_context context, cl_uint count, const char **strings,
                                                              const size_t *lengths, cl_int *errcode_ret) {
  const char *from = getenv("CLATTN_PLANT_FROM"), *to = getenv("CLATTN_PLANT_TO");
  const create_fn next = next_create();
  char *text = joined(count, strings, lengths);
  if (text == NULL || from == NULL || to == NULL || strlen(from) != strlen(to) || from[0] == 0) {
    (void)fprintf(stderr, "wrong kernel: CLATTN_PLANT_FROM and CLATTN_PLANT_TO must be texts of one length\n");
    abort();
  }
  for (char *at = text; (at = strstr(at, from)) != NULL; planted++)
    for (size_t i = 0; to[i] != 0; i++)
      at[i] = to[i];
  const char *whole = text;
  const cl_program made = next(context, 1, &whole, NULL, errcode_ret);
  free(text);
  return made;
}
