/* SPDX-License-Identifier: Apache-2.0 */
/* Status codes and the one way to fail with a message. */
#ifndef CLATTN_STATUS_H
#define CLATTN_STATUS_H

#include "clattn.h"

/* Sets *error (NULL and wrong struct_size are tolerated: then only the code is returned) and returns status.
 * The format is printf's; the message is cut to fit. */
clattn_status clattni_fail(clattn_error *error, clattn_status status, const char *format, ...);

/* Marks success: status 0, empty message, log length 0. */
void clattni_clear(clattn_error *error);

/* Copies a compiler's log into the caller's memory (cut to fit, always 0-terminated) and sets its whole length. */
void clattni_set_log(clattn_error *error, const char *log, size_t length);

#endif
