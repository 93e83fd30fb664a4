/* SPDX-License-Identifier: Apache-2.0 */
/* The control interface of the stub OpenCL driver: a driver with no compiler and no arithmetic, that counts, fails,
 * lies and writes down what it was asked.  The OpenCL loader opens the driver's library; a test opens the same
 * absolute path with dlopen and asks dlsym for the object STUB_CONTROL_SYMBOL, a stub_control. */
#ifndef CLATTN_STUB_H
#define CLATTN_STUB_H

#include <stddef.h>
#include <stdint.h>
#include <CL/cl.h>

#define STUB_CONTROL_SYMBOL "clattn_stub_control"

enum { STUB_MAX_DEVICES = 2, STUB_MAX_ARGS = 32, STUB_MAX_WAITS = 32, STUB_VALUE_BYTES = 1024 };

typedef enum stub_kind {
  STUB_PLATFORM,
  STUB_DEVICE,
  STUB_CONTEXT,
  STUB_QUEUE,
  STUB_MEM,
  STUB_PROGRAM,
  STUB_KERNEL,
  STUB_EVENT,
  STUB_KINDS
} stub_kind;

/* What the driver claims, and how it behaves.  reset() brings the defaults back. */
typedef struct stub_settings {
  cl_uint num_devices; /* 0: clGetDeviceIDs finds none */
  cl_device_type type[STUB_MAX_DEVICES];
  cl_uint native_float_width, compute_units;
  cl_ulong global_bytes, max_alloc_bytes, local_bytes;
  cl_device_local_mem_type local_type;
  size_t max_work_group;
  size_t max_work_item[3];
  size_t max_parameter_bytes;
  size_t kernel_work_group;    /* CL_KERNEL_WORK_GROUP_SIZE; 0: max_work_group */
  cl_ulong kernel_local_bytes; /* local memory of each kernel besides what its source declares */
  cl_uint base_align_bits, address_bits;
  cl_bool out_of_order, available, compiler;
  char name[64], vendor[64], driver[64], version[64];
  char extensions[512];
  cl_int build_code; /* CL_SUCCESS, or what clBuildProgram returns */
  char build_log[4096];
  cl_ulong ndrange_ns; /* simulated time of one NDRange */
  int deferred;        /* 1: commands run only at clFlush, clFinish, waits and run_pending() */
  cl_uint rendezvous;  /* once, the first clEnqueueNDRangeKernel calls wait until this many threads are in one */
  int forbid_blocking; /* 1 (default): blocking calls and clFlush are violations */
} stub_settings;

typedef struct stub_arg {
  int set;
  size_t size;
  cl_mem mem, root;     /* a buffer (root: the buffer that a sub-buffer lies in), else NULL */
  size_t mem_bytes;     /* of mem */
  int is_local;         /* size without a value */
  int declared_pointer; /* 1: the source declares a global or constant pointer, 0: something else, -1: unknown */
  int declared_const;   /* 1: pointer to const (or constant memory): only read */
  unsigned char value[STUB_VALUE_BYTES];
} stub_arg;

/* One enqueued command. */
typedef struct stub_command {
  uint64_t id; /* counts commands and user events from 1; also the id of its event */
  cl_command_type type;
  cl_command_queue queue;
  int in_order;     /* the queue's kind */
  uint64_t barrier; /* id of the last barrier on this queue before it, 0: none */
  int after_all;    /* a marker or barrier without a wait list: waits for everything earlier on the queue */
  int has_event;    /* the caller asked for an event */
  cl_uint num_waits;
  uint64_t waits[STUB_MAX_WAITS];
  /* NDRange only */
  char kernel[64];
  cl_uint dims;
  int has_local, has_offset;
  size_t global[3], local[3];
  cl_uint num_args;
  stub_arg args[STUB_MAX_ARGS];
} stub_command;

typedef struct stub_control {
  /* Forgets logs, counts, failures, settings, and objects that are released for good.  Live objects stay. */
  void (*reset)(void);

  void (*settings)(stub_settings *out);
  void (*set_settings)(const stub_settings *in);

  /* The n-th API call from now on (n = 1: the next), of any name or of that name (NULL: any), returns `code` without
   * any effect; only releases still release.  n = 0: none.  failed() says how often that happened since set_fail,
   * failed_name() which call it was (static storage). */
  void (*set_fail)(const char *name, uint64_t n, cl_int code);
  uint64_t (*failed)(void);
  const char *(*failed_name)(void);

  /* Calls since reset: of that name, or NULL for all; the name of call i (from 0), NULL past the end. */
  uint64_t (*calls)(const char *name);
  const char *(*call_name)(uint64_t i);

  /* Objects that the application still holds, the references that it holds on them, and released objects that pending
   * commands or other objects still keep. */
  uint64_t (*live)(stub_kind kind);
  uint64_t (*references)(stub_kind kind);
  uint64_t (*kept)(void);
  uint64_t (*bytes)(void);      /* of all buffers now */
  uint64_t (*peak_bytes)(void); /* most since reset */

  /* Misuse of the API seen since reset; text of violation i, NULL past the end (copied; valid until reset). */
  uint64_t (*violations)(void);
  const char *(*violation)(uint64_t i);

  /* Commands since reset, in the order of enqueueing.  0 past the end. */
  uint64_t (*commands)(void);
  int (*command)(uint64_t i, stub_command *out);
  /* Id of an event (0: no live event). */
  uint64_t (*event_id)(cl_event event);

  /* Options of build i since reset; NULL past the end. */
  uint64_t (*builds)(void);
  const char *(*build_options)(uint64_t i);

  /* Runs what is ready (with settings.deferred). */
  void (*run_pending)(void);
} stub_control;

#endif
