/* SPDX-License-Identifier: Apache-2.0 */
/* The one place with operating-system calls: a mutex and a clock. */
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

#endif
