/* SPDX-License-Identifier: Apache-2.0 */
/* What stands in front of a caller's hook (host/lib/program.c).  The last line makes a compiler's log count the lines
 * of the caller's text, which follows. */
#include "hook_at.cl.h"
#line 1 "hook"
