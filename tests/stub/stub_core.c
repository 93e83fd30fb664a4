/* SPDX-License-Identifier: Apache-2.0 */
/* The stub driver's books: objects and their references, calls, injected failures, violations, the control interface. */
#define _POSIX_C_SOURCE 200809L
#include "stub_state.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STUB_BUCKETS = 4096, STUB_VIOLATIONS = 256, STUB_TEXT = 240, STUB_BUILDS = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
  stub_object *buckets[STUB_BUCKETS];
  uint64_t live[STUB_KINDS], references[STUB_KINDS], kept;
  uint64_t bytes, peak_bytes;
  uint64_t next_id;
  const char **names;
  uint64_t num_names, capacity_names;
  stub_command *commands;
  uint64_t num_commands, capacity_commands;
  char violations[STUB_VIOLATIONS][STUB_TEXT];
  uint64_t num_violations;
  char *builds[STUB_BUILDS];
  uint64_t num_builds;
  const char *fail_name; /* points into fail_text, NULL: any */
  char fail_text[64];
  uint64_t fail_in; /* matching calls until the failure, 0: none */
  cl_int fail_code;
  uint64_t failed;
  const char *failed_name;
  stub_callback *later;
} book;

static const stub_settings defaults = {
    .num_devices = 2,
    .type = {CL_DEVICE_TYPE_GPU, CL_DEVICE_TYPE_GPU},
    .native_float_width = 1,
    .compute_units = 16,
    .global_bytes = (cl_ulong)8 << 30,
    .max_alloc_bytes = (cl_ulong)2 << 30,
    .local_bytes = 48 << 10,
    .local_type = CL_LOCAL,
    .max_work_group = 1024,
    .max_work_item = {1024, 1024, 64},
    .max_parameter_bytes = 1024,
    .kernel_work_group = 0,
    .kernel_local_bytes = 0,
    .base_align_bits = 1024,
    .address_bits = 64,
    .out_of_order = CL_TRUE,
    .available = CL_TRUE,
    .compiler = CL_TRUE,
    .name = "Stub device",
    .vendor = "clattn tests",
    .driver = "1",
    .version = "OpenCL 1.2 stub",
    .extensions = "cl_khr_global_int32_base_atomics cl_khr_byte_addressable_store",
    .build_code = CL_SUCCESS,
    .build_log = "",
    .ndrange_ns = 1000,
    .deferred = 0,
    .forbid_blocking = 1,
};

stub_settings stub_set;

static void use_defaults(void) {
  static int done;
  if (!done) {
    stub_set = defaults;
    done = 1;
  }
}

/* ---- calls ---- */

static void note_name(const char *name) {
  if (book.num_names == book.capacity_names) {
    const uint64_t capacity = book.capacity_names ? book.capacity_names * 2 : 1024;
    const char **names = realloc(book.names, (size_t)capacity * sizeof *names);
    if (!names) {
      stub_violation("the stub itself is out of memory");
      return;
    }
    book.names = names;
    book.capacity_names = capacity;
  }
  book.names[book.num_names++] = name;
}

cl_int stub_enter(const char *name) {
  pthread_mutex_lock(&lock);
  use_defaults();
  note_name(name);
  if (book.fail_in && (!book.fail_name || strcmp(book.fail_name, name) == 0) && --book.fail_in == 0) {
    ++book.failed;
    book.failed_name = name;
    return book.fail_code;
  }
  return CL_SUCCESS;
}

void stub_meet(void) {
  static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
  static cl_uint inside;
  if (stub_set.rendezvous == 0)
    return;
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 10;
  ++inside;
  int waiting = 0;
  while (inside < stub_set.rendezvous && waiting == 0)
    waiting = pthread_cond_timedwait(&more, &lock, &until);
  if (waiting != 0)
    stub_violation("clEnqueueNDRangeKernel: the other threads did not come");
  stub_set.rendezvous = 0;
  inside = 0;
  pthread_cond_broadcast(&more);
}

static void run_callbacks(void) {
  for (;;) {
    pthread_mutex_lock(&lock);
    stub_callback *const callback = book.later;
    if (callback)
      book.later = callback->next;
    pthread_mutex_unlock(&lock);
    if (!callback)
      return;
    if (callback->event_function)
      callback->event_function((cl_event)callback->handle, callback->status, callback->user);
    if (callback->mem_function)
      callback->mem_function((cl_mem)callback->handle, callback->user);
    if (callback->program_function)
      callback->program_function((cl_program)callback->handle, callback->user);
    free(callback);
  }
}

void stub_call_later(stub_callback *callback) {
  callback->next = NULL;
  stub_callback **end = &book.later;
  while (*end)
    end = &(*end)->next;
  *end = callback;
}

cl_int stub_leave(cl_int code) {
  const int due = book.later != NULL;
  pthread_mutex_unlock(&lock);
  if (due)
    run_callbacks();
  return code;
}

void *stub_leave_object(void *object, cl_int code, cl_int *code_out) {
  if (code_out)
    *code_out = code;
  stub_leave(code);
  return code == CL_SUCCESS ? object : NULL;
}

void stub_violation(const char *format, ...) {
  if (book.num_violations < STUB_VIOLATIONS) {
    va_list list;
    va_start(list, format);
    vsnprintf(book.violations[book.num_violations], STUB_TEXT, format, list);
    va_end(list);
  }
  ++book.num_violations;
}

/* ---- objects ---- */

static const char *const kind_names[STUB_KINDS] = {"platform", "device",  "context", "queue",
                                                   "mem",      "program", "kernel",  "event"};

static size_t bucket_of(const void *handle) {
  return (size_t)(((uintptr_t)handle >> 4) ^ ((uintptr_t)handle >> 16)) % STUB_BUCKETS;
}

uint64_t stub_next_id(void) {
  return ++book.next_id;
}

void *stub_new(stub_kind kind, size_t bytes) {
  stub_object *const object = calloc(1, bytes);
  if (!object)
    return NULL;
  object->dispatch = &stub_dispatch;
  object->kind = kind;
  object->refs = 1;
  object->next = book.buckets[bucket_of(object)];
  book.buckets[bucket_of(object)] = object;
  ++book.live[kind];
  ++book.references[kind];
  return object;
}

static int is_static(const stub_object *object) {
  return object->kind == STUB_PLATFORM || object->kind == STUB_DEVICE;
}

static stub_object *known(const void *handle) {
  if (handle == &stub_the_platform)
    return &stub_the_platform;
  for (int i = 0; i < STUB_MAX_DEVICES; ++i)
    if (handle == &stub_the_devices[i])
      return &stub_the_devices[i];
  for (stub_object *o = book.buckets[bucket_of(handle)]; o; o = o->next)
    if (o == handle)
      return o;
  return NULL;
}

void *stub_find(const void *handle, stub_kind kind, const char *what) {
  stub_object *const object = handle ? known(handle) : NULL;
  if (!handle)
    stub_violation("%s: the %s is NULL", what, kind_names[kind]);
  else if (!object)
    stub_violation("%s: %p is no object of this driver", what, handle);
  else if (object->kind != kind)
    stub_violation("%s: a %s where a %s belongs", what, kind_names[object->kind], kind_names[kind]);
  else if (!is_static(object) && object->refs == 0)
    stub_violation("%s: the %s %p was released", what, kind_names[kind], handle);
  else
    return object;
  return NULL;
}

void *stub_peek(const void *handle, stub_kind kind) {
  stub_object *const object = handle ? known(handle) : NULL;
  return object && object->kind == kind && (is_static(object) || object->refs) ? object : NULL;
}

static void destroy(stub_object *object) {
  switch (object->kind) {
  case STUB_MEM:
    stub_destroy_mem((stub_mem *)object);
    break;
  case STUB_PROGRAM:
    stub_destroy_program((stub_program *)object);
    break;
  case STUB_KERNEL:
    stub_destroy_kernel((stub_kernel *)object);
    break;
  case STUB_EVENT:
    stub_destroy_event((stub_event *)object);
    break;
  case STUB_QUEUE:
    stub_drop(&((stub_queue *)object)->context->base);
    break;
  default:
    break;
  }
}

void stub_hold(stub_object *object) {
  if (object->refs == 0 && object->holds == 0)
    stub_violation("the stub itself: a %s comes back from the dead", kind_names[object->kind]);
  if (object->holds++ == 0 && object->refs == 0)
    ++book.kept;
}

void stub_drop(stub_object *object) {
  if (object->holds == 0) {
    stub_violation("the stub itself: a %s has no hold to drop", kind_names[object->kind]);
    return;
  }
  if (--object->holds == 0 && object->refs == 0) {
    --book.kept;
    destroy(object);
  }
}

cl_int stub_retain(const void *handle, stub_kind kind, cl_int bad) {
  stub_object *const object = stub_find(handle, kind, "retain");
  if (!object)
    return bad;
  if (is_static(object))
    return CL_SUCCESS;
  ++object->refs;
  ++book.references[kind];
  return CL_SUCCESS;
}

cl_int stub_release(const void *handle, stub_kind kind, cl_int bad) {
  stub_object *const object = stub_find(handle, kind, "release");
  if (!object)
    return bad;
  if (is_static(object))
    return CL_SUCCESS;
  --book.references[kind];
  if (--object->refs == 0) {
    --book.live[kind];
    if (object->holds)
      ++book.kept;
    else
      destroy(object);
  }
  return CL_SUCCESS;
}

void stub_add_bytes(uint64_t bytes) {
  book.bytes += bytes;
  if (book.bytes > book.peak_bytes)
    book.peak_bytes = book.bytes;
}

void stub_sub_bytes(uint64_t bytes) {
  book.bytes -= bytes;
}

/* ---- records ---- */

stub_command *stub_new_command(void) {
  if (book.num_commands == book.capacity_commands) {
    const uint64_t capacity = book.capacity_commands ? book.capacity_commands * 2 : 64;
    stub_command *const commands = realloc(book.commands, (size_t)capacity * sizeof *commands);
    if (!commands)
      return NULL;
    book.commands = commands;
    book.capacity_commands = capacity;
  }
  stub_command *const command = &book.commands[book.num_commands++];
  memset(command, 0, sizeof *command);
  return command;
}

void stub_forget_command(void) {
  --book.num_commands;
}

void stub_note_build(const char *options) {
  if (book.num_builds < STUB_BUILDS)
    book.builds[book.num_builds] = stub_copy(options, strlen(options));
  ++book.num_builds;
}

char *stub_copy(const char *text, size_t length) {
  char *const copy = malloc(length + 1);
  if (copy) {
    memcpy(copy, text, length);
    copy[length] = 0;
  }
  return copy;
}

cl_int stub_answer(const void *value, size_t bytes, size_t capacity, void *out, size_t *bytes_out) {
  if (out) {
    if (capacity < bytes) {
      stub_violation("info: %zu bytes do not hold an answer of %zu", capacity, bytes);
      return CL_INVALID_VALUE;
    }
    if (bytes)
      memcpy(out, value, bytes);
  }
  if (bytes_out)
    *bytes_out = bytes;
  return CL_SUCCESS;
}

cl_int stub_answer_text(const char *text, size_t capacity, void *out, size_t *bytes_out) {
  return stub_answer(text, strlen(text) + 1, capacity, out, bytes_out);
}

/* ---- control ---- */

static void control_reset(void) {
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < STUB_BUCKETS; ++i)
    for (stub_object **at = &book.buckets[i]; *at;) {
      stub_object *const object = *at;
      if (object->refs == 0 && object->holds == 0) {
        *at = object->next;
        free(object);
      } else {
        at = &object->next;
      }
    }
  book.num_names = 0;
  book.num_commands = 0;
  book.num_violations = 0;
  for (uint64_t i = 0; i < book.num_builds && i < STUB_BUILDS; ++i) {
    free(book.builds[i]);
    book.builds[i] = NULL;
  }
  book.num_builds = 0;
  book.fail_in = 0;
  book.failed = 0;
  book.failed_name = NULL;
  book.peak_bytes = book.bytes;
  use_defaults();
  stub_set = defaults;
  pthread_mutex_unlock(&lock);
}

static void control_settings(stub_settings *out) {
  pthread_mutex_lock(&lock);
  use_defaults();
  *out = stub_set;
  pthread_mutex_unlock(&lock);
}

static void control_set_settings(const stub_settings *in) {
  pthread_mutex_lock(&lock);
  use_defaults();
  stub_set = *in;
  pthread_mutex_unlock(&lock);
}

static void control_set_fail(const char *name, uint64_t n, cl_int code) {
  pthread_mutex_lock(&lock);
  book.fail_name = NULL;
  if (name) {
    snprintf(book.fail_text, sizeof book.fail_text, "%s", name);
    book.fail_name = book.fail_text;
  }
  book.fail_in = n;
  book.fail_code = code;
  book.failed = 0;
  book.failed_name = NULL;
  pthread_mutex_unlock(&lock);
}

static uint64_t read_count(const uint64_t *count) {
  pthread_mutex_lock(&lock);
  const uint64_t value = *count;
  pthread_mutex_unlock(&lock);
  return value;
}

static uint64_t control_failed(void) {
  return read_count(&book.failed);
}

static const char *control_failed_name(void) {
  pthread_mutex_lock(&lock);
  const char *const name = book.failed_name;
  pthread_mutex_unlock(&lock);
  return name;
}

static uint64_t control_calls(const char *name) {
  pthread_mutex_lock(&lock);
  uint64_t count = name ? 0 : book.num_names;
  for (uint64_t i = 0; name && i < book.num_names; ++i)
    count += strcmp(book.names[i], name) == 0;
  pthread_mutex_unlock(&lock);
  return count;
}

static const char *control_call_name(uint64_t i) {
  pthread_mutex_lock(&lock);
  const char *const name = i < book.num_names ? book.names[i] : NULL;
  pthread_mutex_unlock(&lock);
  return name;
}

static uint64_t control_live(stub_kind kind) {
  return read_count(&book.live[kind]);
}

static uint64_t control_references(stub_kind kind) {
  return read_count(&book.references[kind]);
}

static uint64_t control_kept(void) {
  return read_count(&book.kept);
}

static uint64_t control_bytes(void) {
  return read_count(&book.bytes);
}

static uint64_t control_peak_bytes(void) {
  return read_count(&book.peak_bytes);
}

static uint64_t control_violations(void) {
  return read_count(&book.num_violations);
}

static const char *control_violation(uint64_t i) {
  pthread_mutex_lock(&lock);
  const char *const text = i < book.num_violations && i < STUB_VIOLATIONS ? book.violations[i] : NULL;
  pthread_mutex_unlock(&lock);
  return text;
}

static uint64_t control_commands(void) {
  return read_count(&book.num_commands);
}

static int control_command(uint64_t i, stub_command *out) {
  pthread_mutex_lock(&lock);
  const int found = i < book.num_commands;
  if (found)
    *out = book.commands[i];
  pthread_mutex_unlock(&lock);
  return found;
}

static uint64_t control_event_id(cl_event event) {
  pthread_mutex_lock(&lock);
  const stub_object *const object = event ? known(event) : NULL;
  const uint64_t id = object && object->kind == STUB_EVENT && object->refs ? object->id : 0;
  pthread_mutex_unlock(&lock);
  return id;
}

static uint64_t control_builds(void) {
  return read_count(&book.num_builds);
}

static const char *control_build_options(uint64_t i) {
  pthread_mutex_lock(&lock);
  const char *const options = i < book.num_builds && i < STUB_BUILDS ? book.builds[i] : NULL;
  pthread_mutex_unlock(&lock);
  return options;
}

static void control_run_pending(void) {
  pthread_mutex_lock(&lock);
  stub_progress();
  stub_leave(CL_SUCCESS);
}

extern const stub_control clattn_stub_control;
__attribute__((visibility("default"))) const stub_control clattn_stub_control = {
    .reset = control_reset,
    .settings = control_settings,
    .set_settings = control_set_settings,
    .set_fail = control_set_fail,
    .failed = control_failed,
    .failed_name = control_failed_name,
    .calls = control_calls,
    .call_name = control_call_name,
    .live = control_live,
    .references = control_references,
    .kept = control_kept,
    .bytes = control_bytes,
    .peak_bytes = control_peak_bytes,
    .violations = control_violations,
    .violation = control_violation,
    .commands = control_commands,
    .command = control_command,
    .event_id = control_event_id,
    .builds = control_builds,
    .build_options = control_build_options,
    .run_pending = control_run_pending,
};
