/* SPDX-License-Identifier: Apache-2.0 */
/* The one place with operating-system calls: a mutex, a clock, permission for AMX. */
#ifndef CLATTN_OS_H
#define CLATTN_OS_H

typedef struct clattni_mutex clattni_mutex; /* opaque storage inside */
struct clattni_mutex {
  union {
    void *align;
    unsigned char bytes[64];
  } storage;
};

int clattni_mutex_init(clattni_mutex *mutex); /* 1 on success */
void clattni_mutex_destroy(clattni_mutex *mutex);
void clattni_mutex_lock(clattni_mutex *mutex);
void clattni_mutex_unlock(clattni_mutex *mutex);

/* Monotonic seconds. */
double clattni_seconds(void);

/* 1 if this process's CPU has AMX for bf16, and the AVX-512 that the kernels use beside it. */
int clattni_amx_present(void);
/* Asks for its tile registers, for all threads of the process and for good; 1 if they may be used. */
int clattni_amx_permit(void);

#endif
