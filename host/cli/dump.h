/* SPDX-License-Identifier: Apache-2.0 */
/* --dump: the launches of a pass as files, for somebody who has nothing of clattn but the folder; dump.c writes
 * README.txt and manifest.json, whose format is:
 *
 * format "clattn-dump", format_version 1 (raised with every change that an older reader would misread), byte_order,
 * clattn (its version), problem (its line), variant, file (of kernels/)
 * device    id, name, vendor, version, driver, platform, platform_version
 * program   source, binary (null where the driver gives none), options
 * buffers   name, bytes, and file, or fill (a byte) where every byte is the same before the first launch
 * launches  kernel, global, local, offset, local_bytes and private_bytes (as the driver says; null: it does not), args:
 *           name and bytes (hexadecimal digits), or name and buffer (its number in buffers, null: none).  In order, each
 *           behind the one before.
 * outputs   name, buffer, dtype, packed, shape, stride (in elements): element (b, h, i, d) stands at b * stride[0] +
 *           h * stride[1] + i * stride[2] + d * stride[3].  tolerance, relative, limit (null: infinite): a number may
 *           differ from what is expected by tolerance + relative * |expected|, and limit is where the type rounds to
 *           infinity.  reference: float64, rows of (b, h, i) one after the other; rows: int64, which rows these are,
 *           null: all.  device: the buffer as the device left it.  reference and device may be null.
 * A file has a name, bytes and fnv1a64, its hash as hexadecimal digits. */
#ifndef CLATTN_CLI_DUMP_H
#define CLATTN_CLI_DUMP_H

#include "folder.h"
#include "pass.h"

#define CLI_DUMP_FORMAT "clattn-dump"
enum { CLI_DUMP_VERSION = 1 };

/* The launches of a planned pass, with its inputs in place, into a folder that is empty.  The pass is not run: its
 * launches run once here, after all but their results is written, so that what crashes a driver is in the folder.  On
 * failure the folder is removed.  *launches: how many. */
int cli_dump(const cli_session *session, const cli_request *request, const cli_buffers *buffers, const cli_pass *pass,
             cli_folder *folder, uint32_t *launches);

#endif
