/* SPDX-License-Identifier: Apache-2.0 */
/* What the caller's hooks see of a pair, and how they are asked.  The caller's text is put in front of a kernel file,
 * after the struct below (host/lib/program.c), with CLATTN_HOOK_SCORE or CLATTN_HOOK_KEEP defined for the functions
 * that it has. */
#ifndef CLATTN_HOOK_CL_H
#define CLATTN_HOOK_CL_H

#include "hook_at.cl.h"
#include "inputs.cl.h"
#include "tile.cl.h"

#if CLATTN_HOOKED

static inline clattn_at clattn_at_of(const clattn_inputs *in, const clattn_unit *u, int h, int i, int j) {
  clattn_at at;
  at.b = u->b;
  at.h = h;
  at.kv_h = u->kv.h;
  at.i = i;
  at.j = j;
  at.p = i + u->entry.offset;
  at.q_len = u->entry.q_len;
  at.k_len = u->entry.k_len;
  for (int x = 0; x < 4; ++x) {
    at.buffer[x] = in->hook_buffer[x];
    at.scalar[x] = in->hook_scalar[x];
  }
  return at;
}

/* A score after bias and ALiBi, as the hooks leave it; -inf: excluded.  For pairs of real rows and keys. */
static inline float clattn_hooked_score(const clattn_inputs *in, const clattn_unit *u, int h, int i, int j, float s) {
  const clattn_at at = clattn_at_of(in, u, h, i, j);
#ifdef CLATTN_HOOK_SCORE
  s = clattn_score(s, &at);
#endif
#ifdef CLATTN_HOOK_KEEP
  s = clattn_keep(&at) ? s : -INFINITY;
#endif
  return s;
}

#endif
#endif
