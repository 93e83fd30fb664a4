/* SPDX-License-Identifier: Apache-2.0 */
/* The built programs of a context, and for each a pool of kernel objects (setting arguments is not thread-safe, so an
 * enqueue borrows a set of its own).  Programs come from the disk cache where that has them.
 *
 * Most drivers' binaries are complete once a program is built, and are kept then.  PoCL compiles a kernel at its first
 * launch, for the launch's work-group, and when it is asked for a binary it compiles all kernels once more: there
 * programs are kept after they were launched, by clattni_programs_store. */
#ifndef CLATTN_PROGRAM_H
#define CLATTN_PROGRAM_H

#include "cache.h"
#include "clattn.h"
#include "hook.h"
#include "memory.h"
#include "os.h"

#define CLATTNI_MAX_KERNELS 11

typedef struct clattni_kernel_set {
  cl_kernel kernel[CLATTNI_MAX_KERNELS];
  struct clattni_kernel_set *next;
} clattni_kernel_set;

typedef struct clattni_program clattni_program;

typedef struct clattni_programs {
  cl_context context;
  cl_device_id device;
  const clattni_allocator *allocator;
  const clattni_cache *cache;
  char *facts;        /* of driver and device, for keys; NULL: no disk cache */
  clattni_mutex lock; /* of the list */
  clattni_program *first;
} clattni_programs;

clattn_status clattni_programs_init(clattni_programs *programs, cl_context context, cl_device_id device,
                                    const clattni_cache *cache, const clattni_allocator *allocator);
void clattni_programs_destroy(clattni_programs *programs);
/* 1 if the driver compiles kernels at their first launch. */
int clattni_programs_lazy(const clattni_programs *programs);
/* Keeps in the disk cache what was launched and is not there yet. */
void clattni_programs_store(clattni_programs *programs);

/* The built program of an embedded file with these compiler options, the hook's functions (NULL: none) and at least one
 * set of its kernels; built on first use (another thread that wants the same one waits).  A program that the compiler
 * refused is not tried again; other failures are.  The cache knows a hook by its number and keeps no pointer to it:
 * its programs stay until the context goes, also when the hook is released before.  *seconds: spent building or
 * loading, 0 if it was there. */
clattn_status clattni_program_get(clattni_programs *programs, const char *file, const char *options,
                                  const clattn_hook *hook, const char *const *names, uint32_t count,
                                  clattni_program **out, double *seconds, clattn_error *error);
/* What the compiler is given. */
typedef struct clattni_program_text {
  cl_uint count; /* of pieces */
  const char *text[4];
  size_t size[4];
  char options[512];
} clattni_program_text;
/* 0: there is no such file, or the options are too long. */
int clattni_program_text_of(const char *file, const char *options, const clattn_hook *hook, clattni_program_text *out);
/* The program's, as long as its context's; built. */
cl_program clattni_program_built(clattni_program *program);
/* 1 if it came from the disk cache. */
int clattni_program_from_cache(clattni_program *program);
/* Says that its kernels were enqueued. */
void clattni_program_launched(clattni_program *program);
/* What identifies the program in the disk cache, for clattni_free; NULL if there is no cache (or no memory). */
char *clattni_program_key(const clattni_programs *programs, const char *file, const char *options,
                          const clattn_hook *hook);
/* 1 if the compiler refused it before. */
int clattni_program_refused(clattni_programs *programs, const char *file, const char *options, const clattn_hook *hook);

/* Borrows a set; makes one only when all are lent.  NULL and *status on failure. */
clattni_kernel_set *clattni_program_lend(clattni_programs *programs, clattni_program *program, clattn_status *status);
void clattni_program_return(clattni_program *program, clattni_kernel_set *set);

#endif
