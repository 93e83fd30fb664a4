/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#define _DEFAULT_SOURCE /* syscall */
#include "os.h"

#include <pthread.h>
#include <time.h>

#if defined(__linux__) && defined(__x86_64__)
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#define HAS_TILES 1
#endif

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

#if defined(HAS_TILES)
/* The kernel lists what it, too, can handle.  A word is followed by a space or the line's end. */
static int has_flag(const char *flags, const char *word) {
  const size_t length = strlen(word);
  for (const char *at = strstr(flags, word); at != NULL; at = strstr(at + length, word))
    if (at[-1] == ' ' && (at[length] == ' ' || at[length] == '\n' || at[length] == 0))
      return 1;
  return 0;
}

int clattni_amx_present(void) {
  static const char *const needed[] = {"amx_tile", "amx_bf16", "avx512f", "avx512dq", "avx512bw", "avx512vl"};
  char line[8192]; /* of the first CPU; one system's are alike */
  size_t found = 0;
  FILE *file = fopen("/proc/cpuinfo", "r");
  if (file == NULL)
    return 0;
  while (fgets(line, sizeof(line), file) != NULL)
    if (strncmp(line, "flags", 5) == 0) {
      for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); ++i)
        found += (size_t)has_flag(line, needed[i]);
      break;
    }
  (void)fclose(file);
  return found == sizeof(needed) / sizeof(needed[0]);
}

int clattni_amx_permit(void) {
  enum { GET_PERMITTED = 0x1022, REQUEST = 0x1023, TILE_DATA = 18 }; /* asm/prctl.h, of newer systems than some have */
  unsigned long long permitted = 0;
  if (syscall(SYS_arch_prctl, REQUEST, TILE_DATA) != 0 || syscall(SYS_arch_prctl, GET_PERMITTED, &permitted) != 0)
    return 0;
  return (int)(permitted >> TILE_DATA & 1);
}
#else
int clattni_amx_present(void) {
  return 0;
}

int clattni_amx_permit(void) {
  return 0;
}
#endif
