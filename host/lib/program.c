/* SPDX-License-Identifier: Apache-2.0 */
#include "program.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "kernels_embedded.h"
#include "status.h"

enum { MAX_OPTIONS = sizeof(((clattni_program_text *)0)->options) };

struct clattni_program {
  clattni_program *next;
  char *key;               /* file, space, options */
  unsigned long long hook; /* its number; 0: none */
  const char *names[CLATTNI_MAX_KERNELS];
  uint32_t count;
  atomic_int refused;  /* set once, read without the lock: a question must not wait for a build */
  atomic_int ready;    /* likewise: it is built */
  atomic_int launched; /* its kernels were enqueued */
  clattni_mutex lock;  /* of everything below */
  cl_program built;
  int from_cache;
  char *cache_key; /* to be kept in the disk cache under it; NULL: it is there, or there is none */
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
  clattni_free(programs->allocator, program->cache_key);
  clattni_free(programs->allocator, program->key);
  clattni_mutex_destroy(&program->lock);
  clattni_free(programs->allocator, program);
}

void clattni_programs_destroy(clattni_programs *programs) {
  while (programs->first != NULL) {
    clattni_program *program = programs->first;
    programs->first = program->next;
    free_program(programs, program);
  }
  clattni_free(programs->allocator, programs->facts);
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

static int all_options_of(char *all, size_t capacity, const char *options, const clattn_hook *hook) {
  const int length = snprintf(all, capacity, "-cl-std=CL1.2 %s%s%s", options,
                              hook != NULL && hook->has_score ? " -DCLATTN_HOOK_SCORE" : "",
                              hook != NULL && hook->has_keep ? " -DCLATTN_HOOK_KEEP" : "");
  return length >= 0 && (size_t)length < capacity;
}

/* The kernel file alone, or behind what a hook sees and the hook. */
int clattni_program_text_of(const char *file, const char *options, const clattn_hook *hook, clattni_program_text *out) {
  out->count = 0;
  if (hook != NULL) {
    out->text[0] = source_of("hook_prologue", &out->size[0]);
    out->text[1] = hook->source;
    out->size[1] = hook->length;
    out->text[2] = hook_end;
    out->size[2] = sizeof(hook_end) - 1;
    out->count = 3;
  }
  out->text[out->count] = source_of(file, &out->size[out->count]);
  const int found = out->text[out->count++] != NULL;
  return all_options_of(out->options, sizeof(out->options), options, hook) && found;
}

/* Makes the first kernels of a built program, which is the program's from then on.  Under program->lock. */
static clattn_status take(clattni_programs *programs, clattni_program *program, cl_program built) {
  clattn_status status = CLATTN_SUCCESS;
  program->built = built;
  program->idle = make_set(programs, program, &status);
  if (program->idle == NULL)
    program->built = NULL;
  return status;
}

/* Under program->lock. */
static clattn_status build(clattni_programs *programs, clattni_program *program, const char *file, const char *options,
                           const clattn_hook *hook, clattn_error *error) {
  cl_int code = CL_SUCCESS;
  cl_program fresh = NULL;
  clattni_program_text text;
  clattn_status status = CLATTN_SUCCESS;
  if (!clattni_program_text_of(file, options, hook, &text))
    return clattni_fail(error, CLATTN_ERROR_INTERNAL, "kernel file '%s' with options '%s' can't be built", file,
                        options);

  fresh = clCreateProgramWithSource(programs->context, text.count, text.text, text.size, &code);
  if (code != CL_SUCCESS) {
    fresh = NULL;
    status = clattni_fail(error, code, "clCreateProgramWithSource for kernels/%s.cl failed: %s", file,
                          clattn_status_text(code));
    goto done;
  }
  code = clBuildProgram(fresh, 1, &programs->device, text.options, NULL, NULL);
  if (code == CL_BUILD_PROGRAM_FAILURE) {
    keep_log(programs, program, fresh);
    atomic_store(&program->refused, 1);
  }
  if (code != CL_SUCCESS) {
    status = clattni_fail(error, code, "building kernels/%s.cl with '%s'%s failed: %s", file, text.options,
                          hook != NULL ? " and the caller's hook" : "", clattn_status_text(code));
    goto done;
  }
  status = take(programs, program, fresh);
  if (status != CLATTN_SUCCESS) {
    clattni_fail(error, status, "making the kernels of kernels/%s.cl failed: %s", file, clattn_status_text(status));
    goto done;
  }
  fresh = NULL;

done:
  if (fresh != NULL)
    clReleaseProgram(fresh);
  return status;
}

/* ---- the disk cache ---- */

/* "name: text" on a line, behind what *facts holds; 0 and nothing more there if the driver or memory fails. */
static int add_fact(const clattni_programs *programs, cl_platform_id platform, cl_uint what, const char *name,
                    char **facts) {
  const size_t before = strlen(*facts), name_length = strlen(name);
  size_t bytes = 0;
  char *longer = NULL;
  cl_int code = platform != NULL ? clGetPlatformInfo(platform, what, 0, NULL, &bytes)
                                 : clGetDeviceInfo(programs->device, what, 0, NULL, &bytes);
  if (code == CL_SUCCESS)
    longer = clattni_alloc(programs->allocator, before + name_length + bytes + 4);
  if (longer == NULL)
    return 0;
  memcpy(longer, *facts, before);
  snprintf(longer + before, name_length + 3, "%s: ", name);
  char *text = longer + before + name_length + 2;
  if (bytes > 0)
    code = platform != NULL ? clGetPlatformInfo(platform, what, bytes, text, NULL)
                            : clGetDeviceInfo(programs->device, what, bytes, text, NULL);
  if (code != CL_SUCCESS) {
    clattni_free(programs->allocator, longer);
    return 0;
  }
  text[strlen(text)] = '\n';
  clattni_free(programs->allocator, *facts);
  *facts = longer;
  return 1;
}

static cl_platform_id platform_of(cl_device_id device) {
  cl_platform_id platform = NULL;
  return clGetDeviceInfo(device, CL_DEVICE_PLATFORM, sizeof(platform), &platform, NULL) == CL_SUCCESS ? platform : NULL;
}

/* Everything of driver and device that a binary may depend on. */
static char *facts_of(const clattni_programs *programs) {
  const cl_platform_id platform = platform_of(programs->device);
  const struct {
    cl_platform_id platform;
    cl_uint what;
    const char *name;
  } list[] = {{platform, CL_PLATFORM_NAME, "platform"},
              {platform, CL_PLATFORM_VERSION, "platform version"},
              {NULL, CL_DEVICE_NAME, "device"},
              {NULL, CL_DEVICE_VENDOR, "vendor"},
              {NULL, CL_DEVICE_VERSION, "device version"},
              {NULL, CL_DRIVER_VERSION, "driver"},
              {NULL, CL_DEVICE_EXTENSIONS, "extensions"}};
  char *facts = platform != NULL ? clattni_copy_text(programs->allocator, "", 0) : NULL;
  int fine = facts != NULL;
  for (size_t i = 0; fine && i < sizeof(list) / sizeof(list[0]); ++i)
    fine = add_fact(programs, list[i].platform, list[i].what, list[i].name, &facts);
  if (fine)
    return facts;
  clattni_free(programs->allocator, facts);
  return NULL;
}

clattn_status clattni_programs_init(clattni_programs *programs, cl_context context, cl_device_id device,
                                    const clattni_cache *cache, const clattni_allocator *allocator) {
  memset(programs, 0, sizeof(*programs));
  programs->context = context;
  programs->device = device;
  programs->cache = cache;
  programs->allocator = allocator;
  if (!clattni_mutex_init(&programs->lock))
    return CLATTN_ERROR_OUT_OF_MEMORY;
  if (clattni_cache_on(cache)) {
    programs->facts = facts_of(programs);
    if (programs->facts == NULL)
      clattni_cache_log(cache, CLATTN_LOG_WARNING, "cache: off: the driver does not say what it is, or no host memory");
  }
  return CLATTN_SUCCESS;
}

int clattni_programs_lazy(const clattni_programs *programs) {
  static const char pocl[] = "Portable Computing Language";
  const cl_platform_id platform = platform_of(programs->device);
  char name[256] = "";
  if (platform == NULL || clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof(name), name, NULL) != CL_SUCCESS)
    return 0;
  return strcmp(name, pocl) == 0;
}

static void hash_of(const char *text, size_t length, char out[CLATTNI_HASH_TEXT]) {
  clattni_hash hash;
  unsigned char digest[CLATTNI_HASH_BYTES];
  clattni_hash_begin(&hash);
  clattni_hash_add(&hash, text, length);
  clattni_hash_end(&hash, digest);
  clattni_hash_text(digest, out);
}

/* Of all that is compiled in front of the kernel file. */
static void hash_of_hook(const clattn_hook *hook, char out[CLATTNI_HASH_TEXT]) {
  clattni_hash hash;
  unsigned char digest[CLATTNI_HASH_BYTES];
  size_t size = 0;
  const char *prologue = source_of("hook_prologue", &size);
  clattni_hash_begin(&hash);
  clattni_hash_add(&hash, prologue, size);
  clattni_hash_add(&hash, hook->source, hook->length);
  clattni_hash_add(&hash, hook_end, sizeof(hook_end) - 1);
  clattni_hash_end(&hash, digest);
  clattni_hash_text(digest, out);
}

char *clattni_program_key(const clattni_programs *programs, const char *file, const char *options,
                          const clattn_hook *hook) {
  char all_options[MAX_OPTIONS], source_hash[CLATTNI_HASH_TEXT], hook_hash[CLATTNI_HASH_TEXT] = "none";
  size_t size = 0;
  const char *source = source_of(file, &size);
  if (programs->facts == NULL || source == NULL || !all_options_of(all_options, sizeof(all_options), options, hook))
    return NULL;
  hash_of(source, size, source_hash);
  if (hook != NULL)
    hash_of_hook(hook, hook_hash);
  static const char format[] = "clattn: %s\nfile: %s\noptions: %s\nsource: %s\nhook: %s\n%s";
  const size_t room = sizeof(format) + strlen(clattn_version()) + strlen(file) + sizeof(all_options) +
                      sizeof(source_hash) + sizeof(hook_hash) + strlen(programs->facts);
  char *key = clattni_alloc(programs->allocator, room);
  if (key != NULL)
    snprintf(key, room, format, clattn_version(), file, all_options, source_hash, hook_hash, programs->facts);
  return key;
}

/* Builds from a binary of the disk cache; 0 if the driver doesn't take it.  Under program->lock. */
static int build_from(clattni_programs *programs, clattni_program *program, const char *options,
                      const clattn_hook *hook, const unsigned char *binary, size_t bytes) {
  char all_options[MAX_OPTIONS];
  cl_int code = CL_SUCCESS, taken = CL_SUCCESS;
  if (!all_options_of(all_options, sizeof(all_options), options, hook))
    return 0;
  cl_program fresh = clCreateProgramWithBinary(programs->context, 1, &programs->device, &bytes, &binary, &taken, &code);
  if (code != CL_SUCCESS)
    return 0;
  program->from_cache = taken == CL_SUCCESS &&
                        clBuildProgram(fresh, 1, &programs->device, all_options, NULL, NULL) == CL_SUCCESS &&
                        take(programs, program, fresh) == CLATTN_SUCCESS;
  if (!program->from_cache)
    clReleaseProgram(fresh);
  return program->from_cache;
}

/* The binary of the context's device among those of a program, for clattni_free; NULL if there is none. */
static unsigned char *binary_of(const clattni_programs *programs, cl_program program, size_t *bytes) {
  cl_device_id *devices = NULL;
  size_t *sizes = NULL, all = 0;
  unsigned char **binaries = NULL, *binary = NULL;
  if (clGetProgramInfo(program, CL_PROGRAM_DEVICES, 0, NULL, &all) != CL_SUCCESS)
    return NULL;
  const size_t count = all / sizeof(*devices);
  devices = clattni_alloc(programs->allocator, all + sizeof(*devices));
  sizes = clattni_alloc(programs->allocator, (count + 1) * sizeof(*sizes));
  binaries = clattni_alloc(programs->allocator, (count + 1) * sizeof(*binaries));
  if (devices == NULL || sizes == NULL || binaries == NULL ||
      clGetProgramInfo(program, CL_PROGRAM_DEVICES, all, devices, NULL) != CL_SUCCESS ||
      clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, count * sizeof(*sizes), sizes, NULL) != CL_SUCCESS)
    goto done;
  for (size_t i = 0; i < count && binary == NULL; ++i)
    if (devices[i] == programs->device && sizes[i] > 0) {
      *bytes = sizes[i];
      binary = binaries[i] = clattni_alloc(programs->allocator, sizes[i]);
    }
  /* the driver passes over those that are NULL */
  if (binary != NULL &&
      clGetProgramInfo(program, CL_PROGRAM_BINARIES, count * sizeof(*binaries), binaries, NULL) != CL_SUCCESS) {
    clattni_free(programs->allocator, binary);
    binary = NULL;
  }

done:
  clattni_free(programs->allocator, devices);
  clattni_free(programs->allocator, sizes);
  clattni_free(programs->allocator, binaries);
  return binary;
}

/* Keeps a built program in the disk cache, once. */
static void store(clattni_programs *programs, clattni_program *program) {
  size_t bytes = 0;
  cl_program built = NULL;
  clattni_mutex_lock(&program->lock);
  char *key = program->cache_key;
  program->cache_key = NULL;
  if (key != NULL && program->built != NULL && clRetainProgram(program->built) == CL_SUCCESS)
    built = program->built;
  clattni_mutex_unlock(&program->lock);
  if (built != NULL) {
    unsigned char *binary = binary_of(programs, built, &bytes);
    if (binary != NULL)
      clattni_cache_store(programs->cache, key, binary, bytes);
    else
      clattni_cache_log(programs->cache, CLATTN_LOG_WARNING, "cache: the driver gives no binary of a program");
    clattni_free(programs->allocator, binary);
    clReleaseProgram(built);
  }
  clattni_free(programs->allocator, key);
}

void clattni_programs_store(clattni_programs *programs) {
  clattni_program *program;
  if (programs->facts == NULL)
    return;
  clattni_mutex_lock(&programs->lock);
  program = programs->first;
  clattni_mutex_unlock(&programs->lock);
  for (; program != NULL; program = program->next) /* the list only grows, at its start */
    if (atomic_load(&program->launched))
      store(programs, program);
}

cl_program clattni_program_built(clattni_program *program) {
  clattni_mutex_lock(&program->lock);
  cl_program built = program->built;
  clattni_mutex_unlock(&program->lock);
  return built;
}

int clattni_program_from_cache(clattni_program *program) {
  clattni_mutex_lock(&program->lock);
  const int from_cache = program->from_cache;
  clattni_mutex_unlock(&program->lock);
  return from_cache;
}

void clattni_program_launched(clattni_program *program) {
  atomic_store(&program->launched, 1);
}

/* ---- programs ---- */

clattn_status clattni_program_get(clattni_programs *programs, const char *file, const char *options,
                                  const clattn_hook *hook, const char *const *names, uint32_t count,
                                  clattni_program **out, double *seconds, clattn_error *error) {
  clattn_status status = CLATTN_SUCCESS;
  char *key = NULL;
  void *entry = NULL;
  const unsigned char *binary = NULL;
  size_t bytes = 0;
  int fresh = 0, loaded = 0, unfit = 0;
  const double start = clattni_seconds();
  *out = NULL;
  *seconds = 0;
  clattni_program *program = find_or_add(programs, file, options, hook);
  if (program == NULL)
    return clattni_fail(error, CLATTN_ERROR_OUT_OF_MEMORY, "no host memory for a program");
  /* Before the lock: the caller's functions are not called with one held.  Two threads may both read the entry. */
  if (programs->facts != NULL && !atomic_load(&program->ready) && !atomic_load(&program->refused)) {
    key = clattni_program_key(programs, file, options, hook);
    if (key != NULL)
      entry = clattni_cache_load(programs->cache, key, &binary, &bytes);
  }
  clattni_mutex_lock(&program->lock);
  if (program->built == NULL && !atomic_load(&program->refused)) {
    for (uint32_t i = 0; i < count; ++i)
      program->names[i] = names[i]; /* the names themselves are static */
    program->count = count;
    loaded = entry != NULL && build_from(programs, program, options, hook, binary, bytes);
    unfit = entry != NULL && !loaded;
    if (program->built == NULL) {
      status = build(programs, program, file, options, hook, error);
      if (status == CLATTN_SUCCESS) {
        fresh = 1;
        program->cache_key = key;
        key = NULL;
      }
    }
    atomic_store(&program->ready, program->built != NULL);
    *seconds = clattni_seconds() - start;
  } else if (atomic_load(&program->refused)) {
    status = clattni_fail(error, CL_BUILD_PROGRAM_FAILURE, "building kernels/%s.cl with '%s'%s failed before", file,
                          options, hook != NULL ? " and the caller's hook" : "");
  }
  if (atomic_load(&program->refused))
    clattni_set_log(error, program->log != NULL ? program->log : "", program->log_length);
  clattni_mutex_unlock(&program->lock);
  clattni_free(programs->allocator, entry);
  clattni_free(programs->allocator, key);
  if (loaded)
    clattni_cache_log(programs->cache, CLATTN_LOG_INFO, "cache: kernels/%s.cl was there", file);
  if (unfit)
    clattni_cache_log(programs->cache, CLATTN_LOG_WARNING,
                      "cache: the driver refuses its binary of kernels/%s.cl: built from source", file);
  if (fresh && programs->facts != NULL && !clattni_programs_lazy(programs))
    store(programs, program);
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
