/* SPDX-License-Identifier: Apache-2.0 */
/* Merging is declared for callers to plan with; this release does none. */
#ifndef CLATTN_MERGE_H
#define CLATTN_MERGE_H

#include "clattn.h"

#endif
