/* SPDX-License-Identifier: Apache-2.0 */
/* What a context found out about kernels at their first use: a list that only grows, safe from any thread. */
#ifndef CLATTN_VERDICT_H
#define CLATTN_VERDICT_H

#include "clattn.h"
#include "memory.h"
#include "os.h"

enum { CLATTNI_VERDICT_KEY = 512, CLATTNI_VERDICT_REASON = 320 };

typedef struct clattni_verdict {
  struct clattni_verdict *next;
  clattn_status status; /* CLATTN_SUCCESS: they may be used */
  char key[CLATTNI_VERDICT_KEY];
  char reason[CLATTNI_VERDICT_REASON]; /* why they may not */
} clattni_verdict;

typedef struct clattni_verdicts {
  const clattni_allocator *allocator;
  clattni_mutex lock;
  clattni_verdict *first;
} clattni_verdicts;

int clattni_verdicts_init(clattni_verdicts *verdicts, const clattni_allocator *allocator); /* 1 on success */
void clattni_verdicts_destroy(clattni_verdicts *verdicts);

/* Lives as long as the list; NULL: there is none. */
const clattni_verdict *clattni_verdict_find(clattni_verdicts *verdicts, const char *key);
/* Adds one, unless another thread did; the one that counts.  *added: 1 if it is this one.  NULL: no memory. */
const clattni_verdict *clattni_verdict_add(clattni_verdicts *verdicts, const char *key, clattn_status status,
                                           const char *reason, int *added);

#endif
