/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks are declared for callers to plan with; this release makes none. */
#ifndef CLATTN_HOOK_H
#define CLATTN_HOOK_H

#include "clattn.h"

#endif
