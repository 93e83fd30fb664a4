/* SPDX-License-Identifier: Apache-2.0 */
#include "program.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "kernels_embedded.h"
#include "status.h"

struct clattni_program {
  clattni_program *next;
  char *key;               /* file, space, options */
  unsigned long long hook; /* its number; 0: none */
  const char *names[CLATTNI_MAX_KERNELS];
  uint32_t count;
  atomic_int refused; /* set once, read without the lock: a question must not wait for a build */
  clattni_mutex lock; /* of everything below */
  cl_program built;
  clattni_kernel_set *idle;
  char *log; /* of the refusal */
  size_t log_length;
};

static void free_set(clattni_programs *programs, clattni_kernel_set *set) {
  if (set == NULL)
    return;
  for (uint32_t i = 0; i < CLATTNI_MAX_KERNELS; ++i)
    if (set->kernel[i] != NULL)
      clReleaseKernel(set->kernel[i]);
  clattni_free(programs->allocator, set);
}

static void free_program(clattni_programs *programs, clattni_program *program) {
  if (program == NULL)
    return;
  while (program->idle != NULL) {
    clattni_kernel_set *set = program->idle;
    program->idle = set->next;
    free_set(programs, set);
  }
  if (program->built != NULL)
    clReleaseProgram(program->built);
  clattni_free(programs->allocator, program->log);
  clattni_free(programs->allocator, program->key);
  clattni_mutex_destroy(&program->lock);
  clattni_free(programs->allocator, program);
}

clattn_status clattni_programs_init(clattni_programs *programs, cl_context context, cl_device_id device,
                                    const clattni_allocator *allocator) {
  memset(programs, 0, sizeof(*programs));
  programs->context = context;
  programs->device = device;
  programs->allocator = allocator;
  return clattni_mutex_init(&programs->lock) ? CLATTN_SUCCESS : CLATTN_ERROR_OUT_OF_MEMORY;
}

void clattni_programs_destroy(clattni_programs *programs) {
  while (programs->first != NULL) {
    clattni_program *program = programs->first;
    programs->first = program->next;
    free_program(programs, program);
  }
  clattni_mutex_destroy(&programs->lock);
}

static const char *source_of(const char *file, size_t *size) {
  for (size_t i = 0; i < clattni_kernel_file_count; ++i)
    if (strcmp(clattni_kernel_files[i].name, file) == 0) {
      *size = clattni_kernel_files[i].size;
      return (const char *)clattni_kernel_files[i].source;
    }
  return NULL;
}

/* Keys are "file options". */
static int same_key(const char *key, const char *file, const char *options) {
  const size_t length = strlen(file);
  return strncmp(key, file, length) == 0 && key[length] == ' ' && strcmp(key + length + 1, options) == 0;
}

static clattni_program *find(const clattni_programs *programs, const char *file, const char *options,
                             const clattn_hook *hook) {
  const unsigned long long number = hook != NULL ? hook->id : 0;
  for (clattni_program *program = programs->first; program != NULL; program = program->next)
    if (program->hook == number && same_key(program->key, file, options))
      return program;
  return NULL;
}

static clattni_program *find_or_add(clattni_programs *programs, const char *file, const char *options,
                                    const clattn_hook *hook) {
  const size_t file_length = strlen(file), options_length = strlen(options);
  clattni_program *fresh = NULL;
  clattni_mutex_lock(&programs->lock);
  clattni_program *program = find(programs, file, options, hook);
  if (program == NULL) {
    fresh = clattni_alloc(programs->allocator, sizeof(*fresh));
    if (fresh != NULL && clattni_mutex_init(&fresh->lock)) {
      fresh->key = clattni_alloc(programs->allocator, file_length + options_length + 2);
      if (fresh->key != NULL) {
        memcpy(fresh->key, file, file_length);
        fresh->key[file_length] = ' ';
        memcpy(fresh->key + file_length + 1, options, options_length);
        fresh->hook = hook != NULL ? hook->id : 0;
        fresh->next = programs->first;
        programs->first = program = fresh;
      } else {
        free_program(programs, fresh);
      }
    } else {
      clattni_free(programs->allocator, fresh);
    }
  }
  clattni_mutex_unlock(&programs->lock);
  return program;
}

static clattni_kernel_set *make_set(clattni_programs *programs, const clattni_program *program, clattn_status *status) {
  clattni_kernel_set *set = clattni_alloc(programs->allocator, sizeof(*set));
  *status = set != NULL ? CLATTN_SUCCESS : CLATTN_ERROR_OUT_OF_MEMORY;
  for (uint32_t i = 0; *status == CLATTN_SUCCESS && i < program->count; ++i) {
    if (program->names[i] == NULL) /* the variant has no such step */
      continue;
    cl_int code = CL_SUCCESS;
    set->kernel[i] = clCreateKernel(program->built, program->names[i], &code);
    *status = code;
    if (code != CL_SUCCESS)
      set->kernel[i] = NULL;
  }
  if (*status != CLATTN_SUCCESS) {
    free_set(programs, set);
    set = NULL;
  }
  return set;
}

/* Keeps the compiler's log of a refusal.  If that fails there is a refusal without a log, no other error. */
static void keep_log(clattni_programs *programs, clattni_program *program, cl_program failed) {
  size_t length = 0;
  if (clGetProgramBuildInfo(failed, programs->device, CL_PROGRAM_BUILD_LOG, 0, NULL, &length) != CL_SUCCESS ||
      length == 0)
    return;
  program->log = clattni_alloc(programs->allocator, length + 1);
  if (program->log == NULL)
    return;
  if (clGetProgramBuildInfo(failed, programs->device, CL_PROGRAM_BUILD_LOG, length, program->log, NULL) != CL_SUCCESS)
    program->log[0] = 0;
  program->log_length = strlen(program->log);
}

/* Stands behind a hook.  It ends a comment that the text leaves open, and in a block left open the compiler stumbles
 * here, over a line that it counts as the hook's, instead of all over the kernel file. */
static const char hook_end[] = "\n\n/* the end of the hook */ static inline void clattn_hook_end(void) {}\n";

/* The kernel file alone, or behind what a hook sees and the hook. */
static cl_program create(const clattni_programs *programs, const char *file, const clattn_hook *hook, cl_int *code) {
  enum { PROLOGUE, HOOK, HOOK_END, FILE_ITSELF, PARTS };
  const char *text[PARTS] = {NULL, NULL, hook_end, NULL};
  size_t size[PARTS] = {0, 0, sizeof(hook_end) - 1, 0};
  const cl_uint first = hook != NULL ? PROLOGUE : FILE_ITSELF;
  text[FILE_ITSELF] = source_of(file, &size[FILE_ITSELF]);
  if (hook != NULL) {
    text[PROLOGUE] = source_of("hook_prologue", &size[PROLOGUE]);
    text[HOOK] = hook->source;
    size[HOOK] = hook->length;
  }
  return clCreateProgramWithSource(programs->context, PARTS - first, text + first, size + first, code);
}

/* Under program->lock. */
static clattn_status build(clattni_programs *programs, clattni_program *program, const char *file, const char *options,
                           const clattn_hook *hook, clattn_error *error) {
  size_t size = 0;
  cl_int code = CL_SUCCESS;
  cl_program fresh = NULL;
  clattni_kernel_set *set = NULL;
  char all_options[512];
  clattn_status status = CLATTN_SUCCESS;
  const int length = snprintf(all_options, sizeof(all_options), "-cl-std=CL1.2 %s%s%s", options,
                              hook != NULL && hook->has_score ? " -DCLATTN_HOOK_SCORE" : "",
                              hook != NULL && hook->has_keep ? " -DCLATTN_HOOK_KEEP" : "");
  if (source_of(file, &size) == NULL || length < 0 || (size_t)length >= sizeof(all_options))
    return clattni_fail(error, CLATTN_ERROR_INTERNAL, "kernel file '%s' with options '%s' can't be built", file,
                        options);

  fresh = create(programs, file, hook, &code);
  if (code != CL_SUCCESS) {
    fresh = NULL;
    status = clattni_fail(error, code, "clCreateProgramWithSource for kernels/%s.cl failed: %s", file,
                          clattn_status_text(code));
    goto done;
  }
  code = clBuildProgram(fresh, 1, &programs->device, all_options, NULL, NULL);
  if (code == CL_BUILD_PROGRAM_FAILURE) {
    keep_log(programs, program, fresh);
    atomic_store(&program->refused, 1);
  }
  if (code != CL_SUCCESS) {
    status = clattni_fail(error, code, "building kernels/%s.cl with '%s'%s failed: %s", file, all_options,
                          hook != NULL ? " and the caller's hook" : "", clattn_status_text(code));
    goto done;
  }
  program->built = fresh;
  set = make_set(programs, program, &status);
  if (set == NULL) {
    program->built = NULL;
    clattni_fail(error, status, "making the kernels of kernels/%s.cl failed: %s", file, clattn_status_text(status));
    goto done;
  }
  fresh = NULL;
  program->idle = set;

done:
  if (fresh != NULL)
    clReleaseProgram(fresh);
  return status;
}

clattn_status clattni_program_get(clattni_programs *programs, const char *file, const char *options,
                                  const clattn_hook *hook, const char *const *names, uint32_t count,
                                  clattni_program **out, double *seconds, clattn_error *error) {
  clattn_status status = CLATTN_SUCCESS;
  *out = NULL;
  *seconds = 0;
  clattni_program *program = find_or_add(programs, file, options, hook);
  if (program == NULL)
    return clattni_fail(error, CLATTN_ERROR_OUT_OF_MEMORY, "no host memory for a program");
  clattni_mutex_lock(&program->lock);
  if (program->built == NULL && !atomic_load(&program->refused)) {
    const double start = clattni_seconds();
    for (uint32_t i = 0; i < count; ++i)
      program->names[i] = names[i]; /* the names themselves are static */
    program->count = count;
    status = build(programs, program, file, options, hook, error);
    *seconds = clattni_seconds() - start;
  } else if (atomic_load(&program->refused)) {
    status = clattni_fail(error, CL_BUILD_PROGRAM_FAILURE, "building kernels/%s.cl with '%s'%s failed before", file,
                          options, hook != NULL ? " and the caller's hook" : "");
  }
  if (atomic_load(&program->refused))
    clattni_set_log(error, program->log != NULL ? program->log : "", program->log_length);
  clattni_mutex_unlock(&program->lock);
  if (status == CLATTN_SUCCESS)
    *out = program;
  return status;
}

int clattni_program_refused(clattni_programs *programs, const char *file, const char *options,
                            const clattn_hook *hook) {
  clattni_mutex_lock(&programs->lock);
  clattni_program *program = find(programs, file, options, hook);
  clattni_mutex_unlock(&programs->lock);
  return program != NULL && atomic_load(&program->refused);
}

clattni_kernel_set *clattni_program_lend(clattni_programs *programs, clattni_program *program, clattn_status *status) {
  *status = CLATTN_SUCCESS;
  clattni_mutex_lock(&program->lock);
  clattni_kernel_set *set = program->idle;
  if (set != NULL)
    program->idle = set->next;
  clattni_mutex_unlock(&program->lock);
  return set != NULL ? set : make_set(programs, program, status);
}

void clattni_program_return(clattni_program *program, clattni_kernel_set *set) {
  if (set == NULL)
    return;
  clattni_mutex_lock(&program->lock);
  set->next = program->idle;
  program->idle = set;
  clattni_mutex_unlock(&program->lock);
}
