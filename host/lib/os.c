/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "os.h"

#include <pthread.h>
#include <time.h>

_Static_assert(sizeof(pthread_mutex_t) <= sizeof(clattni_mutex), "the mutex's storage is too small");
_Static_assert(_Alignof(pthread_mutex_t) <= _Alignof(clattni_mutex), "the mutex's storage is not aligned");

static pthread_mutex_t *native(clattni_mutex *mutex) {
  return (pthread_mutex_t *)(void *)&mutex->storage;
}

int clattni_mutex_init(clattni_mutex *mutex) {
  return pthread_mutex_init(native(mutex), NULL) == 0;
}

void clattni_mutex_destroy(clattni_mutex *mutex) {
  (void)pthread_mutex_destroy(native(mutex));
}

void clattni_mutex_lock(clattni_mutex *mutex) {
  (void)pthread_mutex_lock(native(mutex));
}

void clattni_mutex_unlock(clattni_mutex *mutex) {
  (void)pthread_mutex_unlock(native(mutex));
}

double clattni_seconds(void) {
  struct timespec now;
  if (clock_gettime(CLOCK_MONOTONIC, &now) != 0)
    return 0.0;
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
