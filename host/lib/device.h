/* SPDX-License-Identifier: Apache-2.0 */
/* Facts about a device, asked once. */
#ifndef CLATTN_DEVICE_H
#define CLATTN_DEVICE_H

#include "clattn.h"

clattn_status clattni_device_query(cl_device_id device, clattn_device_info *info, clattn_error *error);
/* Lanes of the CPU families' vectors: 4, 8 or 16, as many floats as the device's vectors have, or as `forced` says (0:
 * not). */
int clattni_lanes(const clattn_device_info *device, uint32_t forced);

#endif
