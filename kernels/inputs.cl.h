/* SPDX-License-Identifier: Apache-2.0 */
/* What scores are made of beside q: the kernel arguments for it, in one place, and the struct that carries them.
 * Arguments that only some programs have (scales of quantised keys, w of the additive similarity, those of rotary
 * embedding, a hook's) come last, in this order; the host's table in select.c says the same. */
#ifndef CLATTN_INPUTS_CL_H
#define CLATTN_INPUTS_CL_H

#include "dtype.cl.h"
#include "params.cl.h"

/* Similarity of q and k: the dot product, or one of these. */
#ifndef CLATTN_COSINE
#define CLATTN_COSINE 0
#endif
#ifndef CLATTN_ADDITIVE
#define CLATTN_ADDITIVE 0
#endif

/* Rotary embedding of q and k: none, or one of its kinds (rope.cl.h). */
#ifndef CLATTN_ROPE
#define CLATTN_ROPE 0
#endif

#if CLATTN_IS_QUANTISED(CLATTN_K)
#define CLATTN_K_SCALE_ARG , __global const CLATTN_TYPE(CLATTN_K_SCALE) *restrict k_scale
#else
#define CLATTN_K_SCALE_ARG
#endif
#if CLATTN_IS_QUANTISED(CLATTN_V)
#define CLATTN_V_SCALE_ARG , __global const CLATTN_TYPE(CLATTN_V_SCALE) *restrict v_scale
#define CLATTN_GIVE_V_SCALE , v_scale
#else
#define CLATTN_V_SCALE_ARG
#define CLATTN_GIVE_V_SCALE
#endif
#if CLATTN_ADDITIVE
#define CLATTN_ADD_W_ARG , __global const float *restrict add_w
#else
#define CLATTN_ADD_W_ARG
#endif
#if CLATTN_ROPE
#define CLATTN_ROPE_ARGS                                                                                               \
  , const clattn_rotation rope, __global const float *restrict rope_cos, __global const float *restrict rope_sin,      \
      __global const int *restrict positions_q, __global const int *restrict positions_k
#else
#define CLATTN_ROPE_ARGS
#endif
#if defined(CLATTN_HOOK_SCORE) || defined(CLATTN_HOOK_KEEP)
#define CLATTN_HOOKED 1
#define CLATTN_HOOK_ARGS                                                                                               \
  , const clattn_hook_values hook, __global const void *hook_buffer0, __global const void *hook_buffer1,               \
      __global const void *hook_buffer2, __global const void *hook_buffer3
#else
#define CLATTN_HOOKED 0
#define CLATTN_HOOK_ARGS
#endif

#define CLATTN_SCORE_ARGS                                                                                              \
  __global const CLATTN_TYPE(CLATTN_K) *restrict k, __global const CLATTN_TYPE(CLATTN_BIAS) *restrict bias,            \
      __global const uchar *restrict mask, __global const uint *restrict blocks,                                       \
      __global const float *restrict slopes, __global const float *restrict head_scale,                                \
      __global const float *restrict scale,                                                                            \
      __global const float *restrict softcap CLATTN_K_SCALE_ARG CLATTN_ADD_W_ARG CLATTN_ROPE_ARGS CLATTN_HOOK_ARGS

typedef struct clattn_inputs {
  __global const CLATTN_TYPE(CLATTN_K) * k;
  __global const CLATTN_TYPE(CLATTN_BIAS) * bias;
  __global const uchar *mask;
  __global const uint *blocks;
  __global const float *slopes, *head_scale;
  float scale, softcap; /* of this enqueue */
#if CLATTN_IS_QUANTISED(CLATTN_K)
  __global const CLATTN_TYPE(CLATTN_K_SCALE) * k_scale;
#endif
#if CLATTN_ADDITIVE
  __global const float *add_w;
#endif
#if CLATTN_ROPE
  clattn_rotation rope;
  __global const float *rope_cos, *rope_sin;
  __global const int *positions_q, *positions_k;
#endif
#if CLATTN_HOOKED
  __global const void *hook_buffer[4];
  float hook_scalar[4];
#endif
} clattn_inputs;

static inline float clattn_sound_softcap(float softcap) { /* one from the caller's buffer may hold anything */
  return softcap > 0.0f && softcap < INFINITY ? softcap : 0.0f;
}

#if CLATTN_IS_QUANTISED(CLATTN_K)
#define CLATTN_PUT_K_SCALE(in) (in).k_scale = k_scale;
#else
#define CLATTN_PUT_K_SCALE(in)
#endif
#if CLATTN_ADDITIVE
#define CLATTN_PUT_ADD_W(in) (in).add_w = add_w;
#else
#define CLATTN_PUT_ADD_W(in)
#endif
#if CLATTN_ROPE
#define CLATTN_PUT_ROPE(in)                                                                                            \
  (in).rope = rope;                                                                                                    \
  (in).rope_cos = rope_cos;                                                                                            \
  (in).rope_sin = rope_sin;                                                                                            \
  (in).positions_q = positions_q;                                                                                      \
  (in).positions_k = positions_k;
#else
#define CLATTN_PUT_ROPE(in)
#endif
#if CLATTN_HOOKED
#define CLATTN_PUT_HOOK(in, p, work)                                                                                   \
  (in).hook_buffer[0] = (__global const char *)hook_buffer0 + hook.first[0];                                           \
  (in).hook_buffer[1] = (__global const char *)hook_buffer1 + hook.first[1];                                           \
  (in).hook_buffer[2] = (__global const char *)hook_buffer2 + hook.first[2];                                           \
  (in).hook_buffer[3] = (__global const char *)hook_buffer3 + hook.first[3];                                           \
  for (int x = 0; x < 4; ++x)                                                                                          \
    (in).hook_scalar[x] =                                                                                              \
        (p).rules & CLATTN_RULE_HOOK_SCALARS ? (work)[CLATTN_REGION(&(p), (p).hook_at) + x] : hook.scalar[x];
#else
#define CLATTN_PUT_HOOK(in, p, work)
#endif

/* Defines `in` from a kernel's arguments: CLATTN_SCORE_ARGS, its parameters p, its workspace. */
#define CLATTN_COLLECT(in, p, work)                                                                                    \
  clattn_inputs in;                                                                                                    \
  (in).k = k;                                                                                                          \
  (in).bias = bias;                                                                                                    \
  (in).mask = mask;                                                                                                    \
  (in).blocks = blocks;                                                                                                \
  (in).slopes = slopes;                                                                                                \
  (in).head_scale = head_scale;                                                                                        \
  (in).scale = (p).rules & CLATTN_RULE_SCALE ? scale[(p).scale_first] : (p).scale;                                     \
  (in).softcap = clattn_sound_softcap((p).rules & CLATTN_RULE_SOFTCAP ? softcap[(p).softcap_first] : (p).softcap);     \
  CLATTN_PUT_K_SCALE(in)                                                                                               \
  CLATTN_PUT_ADD_W(in)                                                                                                 \
  CLATTN_PUT_ROPE(in)                                                                                                  \
  CLATTN_PUT_HOOK(in, p, work)                                                                                         \
  (void)0

#endif
