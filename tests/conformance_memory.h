/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers between guards. */
#ifndef CLATTN_TESTS_CONFORMANCE_MEMORY_H
#define CLATTN_TESTS_CONFORMANCE_MEMORY_H

#include "clattn.h"
#include "conformance_case.h"
#include "device.h"

/* Every buffer is the data between two guards of all-ones bytes: NaN as a float of any width, "attend" as a mask.
 * Inputs are guarded so that what reads too far is seen, outputs so that what writes too far is. */
typedef struct cf_guarded {
  cl_mem buffer;
  size_t before, bytes; /* of the first guard and the data */
} cf_guarded;

enum { CF_GUARD = 4096, CF_SHIFT = 36 };

/* data NULL: all poison.  before: bytes of the first guard, CF_GUARD + CF_SHIFT where nothing promises alignment. */
int cf_guarded_make(const cli_session *session, const void *data, size_t bytes, size_t before, cl_mem_flags flags,
                    cf_guarded *out, cf_reason *reason);
/* The data's exact extent: whoever reaches beyond it must say so. */
clattn_mem cf_guarded_mem(const cf_guarded *guarded);
/* The data on the host, aligned; NULL with the reason, also when a guard was written.  Freed by the caller. */
void *cf_guarded_read(const cli_session *session, const cf_guarded *guarded, const char *name, cf_reason *reason);
void cf_guarded_release(cf_guarded *guarded);

/* The reason for a status of the library or of OpenCL; error may be NULL.  0. */
int cf_failed(cf_reason *reason, const char *what, clattn_status status, const clattn_error *error);

#endif
