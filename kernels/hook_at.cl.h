/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLATTN_HOOK_AT_CL_H
#define CLATTN_HOOK_AT_CL_H

/* What a hook sees of a pair: host/include/clattn.h has the words. */
typedef struct clattn_at {
  int b, h, kv_h;
  int i, j;
  long p;
  int q_len, k_len;
  __global const void *buffer[4];
  float scalar[4];
} clattn_at;

#endif
