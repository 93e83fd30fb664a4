/* SPDX-License-Identifier: Apache-2.0 */
/* The cache of built programs of a context, and for each a pool of kernel objects (setting arguments is not
 * thread-safe, so an enqueue borrows a set of its own). */
#ifndef CLATTN_PROGRAM_H
#define CLATTN_PROGRAM_H

#include "clattn.h"
#include "hook.h"
#include "memory.h"
#include "os.h"

#define CLATTNI_MAX_KERNELS 10

typedef struct clattni_kernel_set {
  cl_kernel kernel[CLATTNI_MAX_KERNELS];
  struct clattni_kernel_set *next;
} clattni_kernel_set;

typedef struct clattni_program clattni_program;

typedef struct clattni_programs {
  cl_context context;
  cl_device_id device;
  const clattni_allocator *allocator;
  clattni_mutex lock; /* of the list */
  clattni_program *first;
} clattni_programs;

clattn_status clattni_programs_init(clattni_programs *programs, cl_context context, cl_device_id device,
                                    const clattni_allocator *allocator);
void clattni_programs_destroy(clattni_programs *programs);

/* The built program of an embedded file with these compiler options, the hook's functions (NULL: none) and at least one
 * set of its kernels; built on first use (another thread that wants the same one waits).  A program that the compiler
 * refused is not tried again; other failures are.  The cache knows a hook by its number and keeps no pointer to it:
 * its programs stay until the context goes, also when the hook is released before.  *seconds: spent building, 0 if it
 * was there. */
clattn_status clattni_program_get(clattni_programs *programs, const char *file, const char *options,
                                  const clattn_hook *hook, const char *const *names, uint32_t count,
                                  clattni_program **out, double *seconds, clattn_error *error);
/* 1 if the compiler refused it before. */
int clattni_program_refused(clattni_programs *programs, const char *file, const char *options, const clattn_hook *hook);

/* Borrows a set; makes one only when all are lent.  NULL and *status on failure. */
clattni_kernel_set *clattni_program_lend(clattni_programs *programs, clattni_program *program, clattn_status *status);
void clattni_program_return(clattni_program *program, clattni_kernel_set *set);

#endif
