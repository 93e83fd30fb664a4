/* SPDX-License-Identifier: Apache-2.0 */
/* A hook: the caller's text and what it defines.  How it is put into a kernel file is told in program.c. */
#ifndef CLATTN_HOOK_H
#define CLATTN_HOOK_H

#include "clattn.h"

struct clattn_hook {
  unsigned long long id; /* of no other hook in this process, released ones included; never 0 */
  char *source;
  size_t length;
  int has_score, has_keep; /* 1: the text defines clattn_score, clattn_keep */
};

#endif
