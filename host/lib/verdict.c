/* SPDX-License-Identifier: Apache-2.0 */
#include "verdict.h"

#include <stdio.h>
#include <string.h>

int clattni_verdicts_init(clattni_verdicts *verdicts, const clattni_allocator *allocator) {
  verdicts->allocator = allocator;
  verdicts->first = NULL;
  return clattni_mutex_init(&verdicts->lock);
}

void clattni_verdicts_destroy(clattni_verdicts *verdicts) {
  while (verdicts->first != NULL) {
    clattni_verdict *verdict = verdicts->first;
    verdicts->first = verdict->next;
    clattni_free(verdicts->allocator, verdict);
  }
  clattni_mutex_destroy(&verdicts->lock);
}

static clattni_verdict *find(const clattni_verdicts *verdicts, const char *key) {
  for (clattni_verdict *verdict = verdicts->first; verdict != NULL; verdict = verdict->next)
    if (strcmp(verdict->key, key) == 0)
      return verdict;
  return NULL;
}

const clattni_verdict *clattni_verdict_find(clattni_verdicts *verdicts, const char *key) {
  clattni_mutex_lock(&verdicts->lock);
  const clattni_verdict *verdict = find(verdicts, key);
  clattni_mutex_unlock(&verdicts->lock);
  return verdict;
}

const clattni_verdict *clattni_verdict_add(clattni_verdicts *verdicts, const char *key, clattn_status status,
                                           const char *reason, int *added) {
  clattni_verdict *fresh = clattni_alloc(verdicts->allocator, sizeof(*fresh));
  *added = 0;
  if (fresh == NULL)
    return NULL;
  fresh->status = status;
  snprintf(fresh->key, sizeof(fresh->key), "%s", key);
  snprintf(fresh->reason, sizeof(fresh->reason), "%s", reason);
  clattni_mutex_lock(&verdicts->lock);
  const clattni_verdict *verdict = find(verdicts, key);
  if (verdict == NULL) {
    fresh->next = verdicts->first;
    verdicts->first = fresh;
    verdict = fresh;
    *added = 1;
  }
  clattni_mutex_unlock(&verdicts->lock);
  if (!*added)
    clattni_free(verdicts->allocator, fresh);
  return verdict;
}
