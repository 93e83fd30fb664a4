/* SPDX-License-Identifier: Apache-2.0 */
#include "hook.h"

#include "status.h"

clattn_status clattn_hook_create(const char *source, clattn_hook **out, clattn_error *error) {
  clattni_clear(error);
  if (out != NULL)
    *out = NULL;
  if (out == NULL || source == NULL)
    return clattni_fail(error, CLATTN_ERROR_NULL_POINTER, "%s is NULL", out == NULL ? "out" : "source");
  return clattni_fail(error, CLATTN_ERROR_NOT_SUPPORTED, "hooks are not supported yet");
}

void clattn_hook_release(clattn_hook *hook) {
  (void)hook; /* NULL: this release hands out no other */
}
