/* SPDX-License-Identifier: Apache-2.0 */
#include "conformance_memory.h"

#include <stdlib.h>
#include <string.h>

enum { GUARD_BYTE = 0xff };

int cf_failed(cf_reason *reason, const char *what, clattn_status status, const clattn_error *error) {
  const char *message = error != NULL && error->message[0] != 0 ? error->message : clattn_status_text(status);
  return cf_fail(reason, "%s: %s (%s)", what, message, clattn_status_name(status));
}

int cf_guarded_make(const cli_session *session, const void *data, size_t bytes, size_t before, cl_mem_flags flags,
                    cf_guarded *out, cf_reason *reason) {
  cl_int status = CL_SUCCESS;
  unsigned char *host = bytes <= SIZE_MAX - before - CF_GUARD ? malloc(before + bytes + CF_GUARD) : NULL;
  if (host == NULL)
    return cf_fail(reason, "out of memory");
  memset(host, GUARD_BYTE, before + bytes + CF_GUARD);
  if (data != NULL && bytes > 0)
    memcpy(host + before, data, bytes);
  out->before = before;
  out->bytes = bytes;
  out->buffer = clCreateBuffer(session->cl, flags | CL_MEM_COPY_HOST_PTR, before + bytes + CF_GUARD, host, &status);
  free(host);
  return status == CL_SUCCESS ? 1 : cf_failed(reason, "clCreateBuffer", status, NULL);
}

clattn_mem cf_guarded_mem(const cf_guarded *guarded) {
  clattn_mem mem = clattn_buffer(guarded->buffer, guarded->before);
  mem.bytes = guarded->bytes;
  return mem;
}

static int intact(const unsigned char *guard, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) {
    if (guard[i] != GUARD_BYTE)
      return 0;
  }
  return 1;
}

void *cf_guarded_read(const cli_session *session, const cf_guarded *guarded, const char *name, cf_reason *reason) {
  const size_t before = guarded->before, bytes = guarded->bytes;
  unsigned char *host = malloc(before + bytes + CF_GUARD);
  if (host == NULL) {
    cf_fail(reason, "out of memory");
    return NULL;
  }
  const cl_int status =
      clEnqueueReadBuffer(session->queue, guarded->buffer, CL_TRUE, 0, before + bytes + CF_GUARD, host, 0, NULL, NULL);
  if (status != CL_SUCCESS)
    cf_failed(reason, "clEnqueueReadBuffer", status, NULL);
  else if (!intact(host, before))
    cf_fail(reason, "bytes before %s were written", name);
  else if (!intact(host + before + bytes, CF_GUARD))
    cf_fail(reason, "bytes after %s were written", name);
  else
    return memmove(host, host + before, bytes);
  free(host);
  return NULL;
}

void cf_guarded_release(cf_guarded *guarded) {
  if (guarded->buffer != NULL)
    clReleaseMemObject(guarded->buffer);
  guarded->buffer = NULL;
}
