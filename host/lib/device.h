/* SPDX-License-Identifier: Apache-2.0 */
/* Facts about a device, asked once. */
#ifndef CLATTN_DEVICE_H
#define CLATTN_DEVICE_H

#include "clattn.h"

clattn_status clattni_device_query(cl_device_id device, clattn_device_info *info, clattn_error *error);

#endif
