/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a caller's queue and buffers may be used for what they are given for: of the right context and device, large
 * enough, writable, apart from each other.  Asks OpenCL, changes nothing. */
#ifndef CLATTN_PLACE_H
#define CLATTN_PLACE_H

#include "clattn.h"
#include "context.h"

/* A tensor, or the workspace, as bytes of the buffer that owns them. */
typedef struct clattni_placed {
  const char *name;
  cl_mem root; /* the parent of a sub-buffer, else the buffer */
  uint64_t begin, end;
  int64_t shape[4], stride[4]; /* strides in bytes */
  uint64_t element;
  int output;
} clattni_placed;

int clattni_is_absent(const clattn_mem *mem);

/* *out_of_order: a property of the queue. */
clattn_status clattni_check_queue(const clattn_context *owner, cl_command_queue queue, int *out_of_order,
                                  clattn_error *error);

/* The wait list of an enqueue: as OpenCL wants it, and all events of the context. */
clattn_status clattni_check_wait_list(const clattn_context *owner, cl_uint num_events, const cl_event *wait_list,
                                      clattn_error *error);

/* Finds a clattn_mem's buffer and its owner: name, root and begin of *at are set; `usable` becomes the bytes from its
 * offset on.  forbidden: the access flag that would keep kernels from using it. */
clattn_status clattni_check_mem(const clattn_context *owner, const clattn_mem *mem, const char *name,
                                cl_mem_flags forbidden, clattni_placed *at, uint64_t *usable, clattn_error *error);

/* Fails unless every output provably shares no byte with any other of the list. */
clattn_status clattni_check_overlap(const clattni_placed *list, int count, clattn_error *error);

#endif
