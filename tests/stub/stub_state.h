/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the stub driver.  One mutex guards everything; functions here expect it held unless they say otherwise. */
#ifndef CLATTN_STUB_STATE_H
#define CLATTN_STUB_STATE_H

#include "stub.h"
#include <CL/cl_icd.h>

typedef struct stub_object {
  const cl_icd_dispatch *dispatch; /* first: the loader reads it */
  stub_kind kind;
  uint64_t id;
  uint64_t refs;  /* the application's references */
  uint64_t holds; /* the driver's own: children and pending commands */
  struct stub_object *next;
} stub_object;

typedef struct stub_context {
  stub_object base;
  cl_uint num_devices;
  cl_device_id devices[STUB_MAX_DEVICES];
  size_t num_properties;
  cl_context_properties properties[16];
} stub_context;

typedef struct stub_queue {
  stub_object base;
  stub_context *context;
  cl_device_id device;
  cl_command_queue_properties properties;
  uint64_t barrier; /* id of the last barrier */
} stub_queue;

typedef struct stub_mem {
  stub_object base;
  stub_context *context;
  struct stub_mem *parent;
  size_t origin, bytes;
  cl_mem_object_type type;
  cl_mem_flags flags;
  void *host_pointer;
  unsigned char *data; /* made at first use; sub-buffers use their parent's */
  cl_uint maps;
  void(CL_CALLBACK *on_destroy)(cl_mem, void *);
  void *on_destroy_user;
} stub_mem;

typedef struct stub_param {
  char name[64];
  int pointer; /* 1: global or constant pointer, 2: local pointer, 0: a value */
  int constant;
  size_t value_bytes; /* of a value; 0: unknown */
} stub_param;

typedef struct stub_signature {
  char name[64];
  int known; /* the parameter list could be read */
  int has_group;
  size_t group[3];      /* reqd_work_group_size */
  cl_ulong local_bytes; /* of its local variables, as far as they can be worked out */
  cl_uint num_params;
  stub_param params[STUB_MAX_ARGS];
} stub_signature;

typedef struct stub_program {
  stub_object base;
  stub_context *context;
  char *source;
  size_t source_length;
  char *options, *log;
  cl_build_status status;
  cl_uint num_signatures;
  stub_signature *signatures;
} stub_program;

typedef struct stub_kernel {
  stub_object base;
  stub_program *program;
  stub_signature signature;
  stub_arg args[STUB_MAX_ARGS];
  cl_uint num_args;
  unsigned long setter; /* thread that set arguments since the last enqueue */
  int has_setter;
} stub_kernel;

typedef struct stub_callback {
  struct stub_callback *next;
  void(CL_CALLBACK *event_function)(cl_event, cl_int, void *);
  void(CL_CALLBACK *mem_function)(cl_mem, void *);
  void(CL_CALLBACK *program_function)(cl_program, void *);
  void *handle, *user;
  cl_int type, status;
} stub_callback;

typedef struct stub_event {
  stub_object base;
  stub_context *context;
  stub_queue *queue; /* NULL: a user event */
  cl_command_type type;
  cl_int status;
  int after_all;
  uint64_t barrier;
  size_t num_waits;
  struct stub_event **waits;
  size_t num_kept; /* objects that the command uses */
  stub_object **kept;
  cl_ulong queued, submitted, started, ended;
  stub_callback *callbacks;
  struct stub_event *next_pending;
  /* data movement */
  stub_mem *from_mem, *to_mem;
  size_t from_offset, to_offset, bytes;
  void *to_pointer;
  unsigned char *data; /* bytes to write or the pattern of a fill */
  size_t data_bytes;
} stub_event;

extern const cl_icd_dispatch stub_dispatch;
extern stub_object stub_the_platform;
extern stub_object stub_the_devices[STUB_MAX_DEVICES];
extern stub_settings stub_set;

/* Locks, counts the call, and gives the code of an injected failure (CL_SUCCESS: none).  Each API function ends with
 * stub_leave, which unlocks and then runs the callbacks that became due. */
cl_int stub_enter(const char *name);
cl_int stub_leave(cl_int code);
/* stub_leave for functions that return an object. */
void *stub_leave_object(void *object, cl_int code, cl_int *code_out);

/* Waits for the other threads of a rendezvous, if one is set. */
void stub_meet(void);

void stub_violation(const char *format, ...);

/* Zeroed and registered with one reference, or NULL. */
void *stub_new(stub_kind kind, size_t bytes);
/* The object behind a handle if the application may use it; else NULL, and a violation. */
void *stub_find(const void *handle, stub_kind kind, const char *what);
/* The same without a violation. */
void *stub_peek(const void *handle, stub_kind kind);
void stub_hold(stub_object *object);
void stub_drop(stub_object *object);
cl_int stub_retain(const void *handle, stub_kind kind, cl_int bad);
cl_int stub_release(const void *handle, stub_kind kind, cl_int bad);
/* Frees what an object owns when its last hold is gone: one per kind, in the file of that kind. */
void stub_destroy_mem(stub_mem *mem);
void stub_destroy_program(stub_program *program);
void stub_destroy_kernel(stub_kernel *kernel);
void stub_destroy_event(stub_event *event);

void stub_add_bytes(uint64_t bytes);
void stub_sub_bytes(uint64_t bytes);
uint64_t stub_next_id(void);
/* Room for one more record, zeroed; NULL when out of memory. */
stub_command *stub_new_command(void);
void stub_forget_command(void);
void stub_note_build(const char *options);
void stub_call_later(stub_callback *callback); /* takes it over */

/* Copies an answer of clGet...Info. */
cl_int stub_answer(const void *value, size_t bytes, size_t capacity, void *out, size_t *bytes_out);
cl_int stub_answer_text(const char *text, size_t capacity, void *out, size_t *bytes_out);
/* strdup of n bytes plus a final 0. */
char *stub_copy(const char *text, size_t length);

/* Kernel signatures of a source built with these options, as far as they can be read without a compiler. */
stub_signature *stub_scan(const char *source, const char *options, cl_uint *count);
/* 1: the identifier occurs in the source. */
int stub_has_word(const char *source, const char *word);

unsigned char *stub_mem_data(stub_mem *mem);
stub_mem *stub_mem_root(stub_mem *mem);

/* Checks a queue and a wait list. */
cl_int stub_check_queue(const char *what, cl_command_queue handle, cl_uint num, const cl_event *list,
                        stub_queue **queue);
/* A command with its record, for a checked queue and list.  Then either stub_submit, which takes the event over, or
 * stub_abandon. */
cl_int stub_make_command(stub_queue *queue, cl_command_type type, cl_uint num, const cl_event *list, int after_all,
                         stub_event **event, stub_command **record);
/* The command keeps the object until it has run.  0: out of memory. */
int stub_keep(stub_event *event, stub_object *object);
cl_int stub_submit(stub_event *event, stub_command *record, cl_bool blocking, const char *what, cl_event *out);
void stub_abandon(stub_event *event);

/* Runs every pending command that is ready. */
void stub_progress(void);
/* 1: no command is pending on the queue (NULL: anywhere). */
int stub_queue_idle(const stub_queue *queue);

/* Entries of the dispatch table. */
#define STUB_API CL_API_CALL
cl_int STUB_API stub_clGetPlatformIDs(cl_uint, cl_platform_id *, cl_uint *);
cl_int STUB_API stub_clGetPlatformInfo(cl_platform_id, cl_platform_info, size_t, void *, size_t *);
cl_int STUB_API stub_clGetDeviceIDs(cl_platform_id, cl_device_type, cl_uint, cl_device_id *, cl_uint *);
cl_int STUB_API stub_clGetDeviceInfo(cl_device_id, cl_device_info, size_t, void *, size_t *);
cl_int STUB_API stub_clCreateSubDevices(cl_device_id, const cl_device_partition_property *, cl_uint, cl_device_id *,
                                        cl_uint *);
cl_int STUB_API stub_clRetainDevice(cl_device_id);
cl_int STUB_API stub_clReleaseDevice(cl_device_id);
cl_context STUB_API stub_clCreateContext(const cl_context_properties *, cl_uint, const cl_device_id *,
                                         void(CL_CALLBACK *)(const char *, const void *, size_t, void *), void *,
                                         cl_int *);
cl_context STUB_API stub_clCreateContextFromType(const cl_context_properties *, cl_device_type,
                                                 void(CL_CALLBACK *)(const char *, const void *, size_t, void *),
                                                 void *, cl_int *);
cl_int STUB_API stub_clRetainContext(cl_context);
cl_int STUB_API stub_clReleaseContext(cl_context);
cl_int STUB_API stub_clGetContextInfo(cl_context, cl_context_info, size_t, void *, size_t *);

cl_command_queue STUB_API stub_clCreateCommandQueue(cl_context, cl_device_id, cl_command_queue_properties, cl_int *);
cl_int STUB_API stub_clRetainCommandQueue(cl_command_queue);
cl_int STUB_API stub_clReleaseCommandQueue(cl_command_queue);
cl_int STUB_API stub_clGetCommandQueueInfo(cl_command_queue, cl_command_queue_info, size_t, void *, size_t *);

cl_mem STUB_API stub_clCreateBuffer(cl_context, cl_mem_flags, size_t, void *, cl_int *);
cl_mem STUB_API stub_clCreateSubBuffer(cl_mem, cl_mem_flags, cl_buffer_create_type, const void *, cl_int *);
cl_mem STUB_API stub_clCreateImage(cl_context, cl_mem_flags, const cl_image_format *, const cl_image_desc *, void *,
                                   cl_int *);
cl_int STUB_API stub_clRetainMemObject(cl_mem);
cl_int STUB_API stub_clReleaseMemObject(cl_mem);
cl_int STUB_API stub_clGetMemObjectInfo(cl_mem, cl_mem_info, size_t, void *, size_t *);
cl_int STUB_API stub_clSetMemObjectDestructorCallback(cl_mem, void(CL_CALLBACK *)(cl_mem, void *), void *);

cl_program STUB_API stub_clCreateProgramWithSource(cl_context, cl_uint, const char **, const size_t *, cl_int *);
cl_program STUB_API stub_clCreateProgramWithBinary(cl_context, cl_uint, const cl_device_id *, const size_t *,
                                                   const unsigned char **, cl_int *, cl_int *);
cl_int STUB_API stub_clRetainProgram(cl_program);
cl_int STUB_API stub_clReleaseProgram(cl_program);
cl_int STUB_API stub_clBuildProgram(cl_program, cl_uint, const cl_device_id *, const char *,
                                    void(CL_CALLBACK *)(cl_program, void *), void *);
cl_int STUB_API stub_clUnloadPlatformCompiler(cl_platform_id);
cl_int STUB_API stub_clGetProgramInfo(cl_program, cl_program_info, size_t, void *, size_t *);
cl_int STUB_API stub_clGetProgramBuildInfo(cl_program, cl_device_id, cl_program_build_info, size_t, void *, size_t *);
cl_kernel STUB_API stub_clCreateKernel(cl_program, const char *, cl_int *);
cl_int STUB_API stub_clCreateKernelsInProgram(cl_program, cl_uint, cl_kernel *, cl_uint *);
cl_int STUB_API stub_clRetainKernel(cl_kernel);
cl_int STUB_API stub_clReleaseKernel(cl_kernel);
cl_int STUB_API stub_clSetKernelArg(cl_kernel, cl_uint, size_t, const void *);
cl_int STUB_API stub_clGetKernelInfo(cl_kernel, cl_kernel_info, size_t, void *, size_t *);
cl_int STUB_API stub_clGetKernelArgInfo(cl_kernel, cl_uint, cl_kernel_arg_info, size_t, void *, size_t *);
cl_int STUB_API stub_clGetKernelWorkGroupInfo(cl_kernel, cl_device_id, cl_kernel_work_group_info, size_t, void *,
                                              size_t *);

cl_int STUB_API stub_clWaitForEvents(cl_uint, const cl_event *);
cl_int STUB_API stub_clGetEventInfo(cl_event, cl_event_info, size_t, void *, size_t *);
cl_event STUB_API stub_clCreateUserEvent(cl_context, cl_int *);
cl_int STUB_API stub_clSetUserEventStatus(cl_event, cl_int);
cl_int STUB_API stub_clRetainEvent(cl_event);
cl_int STUB_API stub_clReleaseEvent(cl_event);
cl_int STUB_API stub_clSetEventCallback(cl_event, cl_int, void(CL_CALLBACK *)(cl_event, cl_int, void *), void *);
cl_int STUB_API stub_clGetEventProfilingInfo(cl_event, cl_profiling_info, size_t, void *, size_t *);
cl_int STUB_API stub_clFlush(cl_command_queue);
cl_int STUB_API stub_clFinish(cl_command_queue);

cl_int STUB_API stub_clEnqueueReadBuffer(cl_command_queue, cl_mem, cl_bool, size_t, size_t, void *, cl_uint,
                                         const cl_event *, cl_event *);
cl_int STUB_API stub_clEnqueueWriteBuffer(cl_command_queue, cl_mem, cl_bool, size_t, size_t, const void *, cl_uint,
                                          const cl_event *, cl_event *);
cl_int STUB_API stub_clEnqueueFillBuffer(cl_command_queue, cl_mem, const void *, size_t, size_t, size_t, cl_uint,
                                         const cl_event *, cl_event *);
cl_int STUB_API stub_clEnqueueCopyBuffer(cl_command_queue, cl_mem, cl_mem, size_t, size_t, size_t, cl_uint,
                                         const cl_event *, cl_event *);
void *STUB_API stub_clEnqueueMapBuffer(cl_command_queue, cl_mem, cl_bool, cl_map_flags, size_t, size_t, cl_uint,
                                       const cl_event *, cl_event *, cl_int *);
cl_int STUB_API stub_clEnqueueUnmapMemObject(cl_command_queue, cl_mem, void *, cl_uint, const cl_event *, cl_event *);
cl_int STUB_API stub_clEnqueueMigrateMemObjects(cl_command_queue, cl_uint, const cl_mem *, cl_mem_migration_flags,
                                                cl_uint, const cl_event *, cl_event *);
cl_int STUB_API stub_clEnqueueNDRangeKernel(cl_command_queue, cl_kernel, cl_uint, const size_t *, const size_t *,
                                            const size_t *, cl_uint, const cl_event *, cl_event *);
cl_int STUB_API stub_clEnqueueMarkerWithWaitList(cl_command_queue, cl_uint, const cl_event *, cl_event *);
cl_int STUB_API stub_clEnqueueBarrierWithWaitList(cl_command_queue, cl_uint, const cl_event *, cl_event *);

#endif
