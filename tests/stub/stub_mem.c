/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers of the stub driver.  Their storage is made when data first moves, so that tests may own huge ones. */
#include "stub_state.h"
#include <stdlib.h>
#include <string.h>

stub_mem *stub_mem_root(stub_mem *mem) {
  return mem->parent ? mem->parent : mem;
}

unsigned char *stub_mem_data(stub_mem *mem) {
  stub_mem *const root = stub_mem_root(mem);
  if (root->flags & CL_MEM_USE_HOST_PTR)
    return (unsigned char *)root->host_pointer + mem->origin;
  if (!root->data)
    root->data = calloc(1, root->bytes);
  return root->data ? root->data + mem->origin : NULL;
}

void stub_destroy_mem(stub_mem *mem) {
  if (mem->on_destroy) {
    stub_callback *const callback = calloc(1, sizeof *callback);
    if (callback) {
      callback->mem_function = mem->on_destroy;
      callback->handle = mem;
      callback->user = mem->on_destroy_user;
      stub_call_later(callback);
    }
  }
  free(mem->data);
  mem->data = NULL;
  if (mem->parent)
    stub_drop(&mem->parent->base);
  else
    stub_sub_bytes(mem->bytes);
  stub_drop(&mem->context->base);
}

static cl_int make_buffer(cl_context handle, cl_mem_flags flags, size_t bytes, void *host, stub_mem **out) {
  stub_context *const context = stub_find(handle, STUB_CONTEXT, "clCreateBuffer");
  if (!context)
    return CL_INVALID_CONTEXT;
  const cl_mem_flags access = flags & (CL_MEM_READ_WRITE | CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY);
  if (access & (access - 1))
    return CL_INVALID_VALUE;
  const int needs_host = (flags & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR)) != 0;
  if (needs_host != (host != NULL))
    return CL_INVALID_HOST_PTR;
  if (bytes == 0) {
    stub_violation("clCreateBuffer: 0 bytes");
    return CL_INVALID_BUFFER_SIZE;
  }
  if (bytes > stub_set.max_alloc_bytes) {
    stub_violation("clCreateBuffer: %zu bytes, but the device allows %llu", bytes,
                   (unsigned long long)stub_set.max_alloc_bytes);
    return CL_INVALID_BUFFER_SIZE;
  }
  stub_mem *const mem = stub_new(STUB_MEM, sizeof *mem);
  if (!mem)
    return CL_OUT_OF_HOST_MEMORY;
  stub_hold(&context->base);
  stub_add_bytes(bytes);
  mem->context = context;
  mem->type = CL_MEM_OBJECT_BUFFER;
  mem->bytes = bytes;
  mem->flags = access ? flags : flags | CL_MEM_READ_WRITE;
  mem->host_pointer = (flags & CL_MEM_USE_HOST_PTR) ? host : NULL;
  *out = mem;
  if (host && (flags & CL_MEM_COPY_HOST_PTR)) {
    unsigned char *const data = stub_mem_data(mem);
    if (!data) {
      stub_release(mem, STUB_MEM, CL_INVALID_MEM_OBJECT);
      return CL_MEM_OBJECT_ALLOCATION_FAILURE;
    }
    memcpy(data, host, bytes);
  }
  return CL_SUCCESS;
}

cl_mem STUB_API stub_clCreateBuffer(cl_context context, cl_mem_flags flags, size_t bytes, void *host,
                                    cl_int *code_out) {
  stub_mem *mem = NULL;
  cl_int code = stub_enter("clCreateBuffer");
  if (code == CL_SUCCESS)
    code = make_buffer(context, flags, bytes, host, &mem);
  return stub_leave_object(mem, code, code_out);
}

static cl_int make_sub_buffer(cl_mem handle, cl_mem_flags flags, cl_buffer_create_type type, const void *info,
                              stub_mem **out) {
  stub_mem *const parent = stub_find(handle, STUB_MEM, "clCreateSubBuffer");
  if (!parent || parent->parent)
    return CL_INVALID_MEM_OBJECT;
  if (type != CL_BUFFER_CREATE_TYPE_REGION || !info)
    return CL_INVALID_VALUE;
  const cl_buffer_region *const region = info;
  if (region->size == 0)
    return CL_INVALID_BUFFER_SIZE;
  if (region->origin > parent->bytes || region->size > parent->bytes - region->origin)
    return CL_INVALID_VALUE;
  if (region->origin % (stub_set.base_align_bits / 8))
    return CL_MISALIGNED_SUB_BUFFER_OFFSET;
  stub_mem *const mem = stub_new(STUB_MEM, sizeof *mem);
  if (!mem)
    return CL_OUT_OF_HOST_MEMORY;
  stub_hold(&parent->base);
  stub_hold(&parent->context->base);
  mem->context = parent->context;
  mem->type = CL_MEM_OBJECT_BUFFER;
  mem->parent = parent;
  mem->origin = region->origin;
  mem->bytes = region->size;
  mem->flags = flags ? flags : parent->flags;
  *out = mem;
  return CL_SUCCESS;
}

cl_mem STUB_API stub_clCreateSubBuffer(cl_mem parent, cl_mem_flags flags, cl_buffer_create_type type, const void *info,
                                       cl_int *code_out) {
  stub_mem *mem = NULL;
  cl_int code = stub_enter("clCreateSubBuffer");
  if (code == CL_SUCCESS)
    code = make_sub_buffer(parent, flags, type, info, &mem);
  return stub_leave_object(mem, code, code_out);
}

/* As much of images as it takes to hand one where a buffer belongs: 2-D, four bytes a pixel, no contents. */
cl_mem STUB_API stub_clCreateImage(cl_context context, cl_mem_flags flags, const cl_image_format *format,
                                   const cl_image_desc *shape, void *host, cl_int *code_out) {
  stub_mem *mem = NULL;
  cl_int code = stub_enter("clCreateImage");
  if (code == CL_SUCCESS && (!format || !shape || shape->image_type != CL_MEM_OBJECT_IMAGE2D || host))
    code = CL_INVALID_VALUE;
  if (code == CL_SUCCESS)
    code = make_buffer(context, flags, shape->image_width * shape->image_height * 4, NULL, &mem);
  if (code == CL_SUCCESS)
    mem->type = shape->image_type;
  return stub_leave_object(mem, code, code_out);
}

cl_int STUB_API stub_clRetainMemObject(cl_mem mem) {
  cl_int code = stub_enter("clRetainMemObject");
  if (code == CL_SUCCESS)
    code = stub_retain(mem, STUB_MEM, CL_INVALID_MEM_OBJECT);
  return stub_leave(code);
}

cl_int STUB_API stub_clReleaseMemObject(cl_mem mem) {
  const cl_int code = stub_enter("clReleaseMemObject");
  const cl_int result = stub_release(mem, STUB_MEM, CL_INVALID_MEM_OBJECT);
  return stub_leave(code != CL_SUCCESS ? code : result);
}

static cl_int mem_info(cl_mem handle, cl_mem_info name, size_t capacity, void *out, size_t *bytes) {
  stub_mem *const mem = stub_find(handle, STUB_MEM, "clGetMemObjectInfo");
  if (!mem)
    return CL_INVALID_MEM_OBJECT;
  switch (name) {
  case CL_MEM_TYPE:
    return stub_answer(&mem->type, sizeof mem->type, capacity, out, bytes);
  case CL_MEM_FLAGS:
    return stub_answer(&mem->flags, sizeof mem->flags, capacity, out, bytes);
  case CL_MEM_SIZE:
    return stub_answer(&mem->bytes, sizeof mem->bytes, capacity, out, bytes);
  case CL_MEM_HOST_PTR:
    return stub_answer(&mem->host_pointer, sizeof mem->host_pointer, capacity, out, bytes);
  case CL_MEM_MAP_COUNT:
    return stub_answer(&mem->maps, sizeof mem->maps, capacity, out, bytes);
  case CL_MEM_REFERENCE_COUNT: {
    const cl_uint refs = (cl_uint)mem->base.refs;
    return stub_answer(&refs, sizeof refs, capacity, out, bytes);
  }
  case CL_MEM_CONTEXT: {
    const stub_context *const context = mem->context;
    return stub_answer(&context, sizeof context, capacity, out, bytes);
  }
  case CL_MEM_ASSOCIATED_MEMOBJECT: {
    const stub_mem *const parent = mem->parent;
    return stub_answer(&parent, sizeof parent, capacity, out, bytes);
  }
  case CL_MEM_OFFSET:
    return stub_answer(&mem->origin, sizeof mem->origin, capacity, out, bytes);
  default:
    return CL_INVALID_VALUE;
  }
}

cl_int STUB_API stub_clGetMemObjectInfo(cl_mem mem, cl_mem_info name, size_t capacity, void *out, size_t *bytes) {
  cl_int code = stub_enter("clGetMemObjectInfo");
  if (code == CL_SUCCESS)
    code = mem_info(mem, name, capacity, out, bytes);
  return stub_leave(code);
}

cl_int STUB_API stub_clSetMemObjectDestructorCallback(cl_mem handle, void(CL_CALLBACK *function)(cl_mem, void *),
                                                      void *user) {
  cl_int code = stub_enter("clSetMemObjectDestructorCallback");
  if (code == CL_SUCCESS) {
    stub_mem *const mem = stub_find(handle, STUB_MEM, "clSetMemObjectDestructorCallback");
    if (!mem)
      code = CL_INVALID_MEM_OBJECT;
    else if (!function || mem->on_destroy) /* one is enough here */
      code = CL_INVALID_VALUE;
    else
      mem->on_destroy = function, mem->on_destroy_user = user;
  }
  return stub_leave(code);
}
