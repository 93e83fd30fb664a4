/* SPDX-License-Identifier: Apache-2.0 */
#include "merge.h"

#include <string.h>

#include "status.h"

void clattn_merge_args_init(clattn_merge_args *args) {
  if (args == NULL)
    return;
  memset(args, 0, sizeof(*args));
  args->struct_size = sizeof(*args);
}

clattn_status clattn_merge(clattn_context *context, cl_command_queue queue, const clattn_merge_args *args,
                           cl_uint num_events, const cl_event *wait_list, cl_event *event) {
  (void)num_events;
  (void)wait_list;
  if (event != NULL)
    *event = NULL;
  if (context == NULL || queue == NULL || args == NULL)
    return CLATTN_ERROR_NULL_POINTER;
  if (args->struct_size != sizeof(*args))
    return CLATTN_ERROR_STRUCT_SIZE;
  return clattni_fail(args->error, CLATTN_ERROR_NOT_SUPPORTED, "merging is not supported yet");
}
