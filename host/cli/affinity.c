/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* sched_getaffinity */
#include "affinity.h"

#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sched.h>
#include <unistd.h>
#endif

#define AFFINITY "POCL_AFFINITY"

#ifdef __linux__
/* How many CPUs this process may use if they are those from 0 on, else 0. */
static long first_cpus(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0)
    return 0;
  const size_t count = (size_t)CPU_COUNT(&set);
  for (size_t i = 0; i < count; i++)
    if (!CPU_ISSET(i, &set))
      return 0;
  return (long)count;
}

/* PoCL starts a worker for each CPU of the machine, or as many as these variables say, by the names of its releases. */
static int has_workers(long count) {
  static const char *const names[] = {"POCL_MAX_PTHREAD_COUNT", "POCL_CPU_MAX_CU_COUNT", "POCL_PTHREAD_MIN_THREADS"};
  long workers = sysconf(_SC_NPROCESSORS_CONF);
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    const char *value = getenv(names[i]);
    char *end = NULL;
    if (value == NULL)
      continue;
    workers = strtol(value, &end, 10);
    if (*end != 0 || workers != count)
      return 0;
  }
  return workers == count;
}

void cli_affinity_set(void) {
  const long count = first_cpus();
  if (count > 1 && has_workers(count))
    setenv(AFFINITY, "1", 0);
}
#else
void cli_affinity_set(void) {}
#endif

int cli_affinity_is_set(void) {
  const char *value = getenv(AFFINITY);
  return value != NULL && strcmp(value, "1") == 0;
}
