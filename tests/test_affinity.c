/* SPDX-License-Identifier: Apache-2.0 */
/* When PoCL is told to bind its workers to cores: with CPUs that this process is given, and numbers of workers that
 * its environment says. */
#define _GNU_SOURCE /* sched_setaffinity */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#ifdef __linux__
#include <sched.h>
#include <unistd.h>
#endif

#include "affinity.h"

static int forget(void **state) {
  static const char *const names[] = {"POCL_AFFINITY", "POCL_MAX_PTHREAD_COUNT", "POCL_CPU_MAX_CU_COUNT",
                                      "POCL_PTHREAD_MIN_THREADS"};
  (void)state;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    unsetenv(names[i]);
  return 0;
}

static void what_is_there_stays(void **state) {
  static const char *const values[] = {"0", "", "1"};
  (void)state;
  for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
    setenv("POCL_AFFINITY", values[i], 1);
    cli_affinity_set();
    assert_string_equal(getenv("POCL_AFFINITY"), values[i]);
    assert_int_equal(cli_affinity_is_set(), values[i][0] == '1');
  }
}

#ifdef __linux__
static cpu_set_t all;

/* Only CPUs `first` to `last`; 0 if this process may not use all of these. */
static int give(size_t first, size_t last) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (size_t i = first; i <= last; i++) {
    if (!CPU_ISSET(i, &all))
      return 0;
    CPU_SET(i, &set);
  }
  return sched_setaffinity(0, sizeof set, &set) == 0;
}

static int give_back(void **state) {
  (void)state;
  return sched_setaffinity(0, sizeof all, &all);
}

static int becomes_set(void) {
  unsetenv("POCL_AFFINITY");
  cli_affinity_set();
  return cli_affinity_is_set();
}

static void every_cpu(void **state) {
  (void)state;
  const long count = sysconf(_SC_NPROCESSORS_CONF);
  const int others = CPU_COUNT(&all) == count && CPU_ISSET(0, &all) && CPU_ISSET((size_t)count - 1, &all);
  assert_int_equal(becomes_set(), others && count > 1);
}

static void workers(void **state) {
  static const struct {
    const char *name, *value;
    int set;
  } cases[] = {
      {"POCL_MAX_PTHREAD_COUNT", "2", 1},  {"POCL_MAX_PTHREAD_COUNT", "1", 0},   {"POCL_MAX_PTHREAD_COUNT", "3", 0},
      {"POCL_MAX_PTHREAD_COUNT", "2x", 0}, {"POCL_MAX_PTHREAD_COUNT", "", 0},    {"POCL_CPU_MAX_CU_COUNT", "2", 1},
      {"POCL_CPU_MAX_CU_COUNT", "4", 0},   {"POCL_PTHREAD_MIN_THREADS", "3", 0}, {"POCL_PTHREAD_MIN_THREADS", "2", 1},
  };
  (void)state;
  if (!give(0, 1))
    skip();
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    setenv(cases[i].name, cases[i].value, 1);
    if (becomes_set() != cases[i].set)
      fail_msg("%s=%s: wanted %d", cases[i].name, cases[i].value, cases[i].set);
    unsetenv(cases[i].name);
  }
  /* Names that contradict each other. */
  setenv("POCL_MAX_PTHREAD_COUNT", "3", 1);
  setenv("POCL_CPU_MAX_CU_COUNT", "2", 1);
  assert_int_equal(becomes_set(), 0);
}

/* Worker 0 would have no CPU 0, or there is one worker, which needs no core of its own. */
static void other_cpus(void **state) {
  (void)state;
  if (!give(1, 1))
    skip();
  setenv("POCL_MAX_PTHREAD_COUNT", "1", 1);
  assert_int_equal(becomes_set(), 0);
  assert_true(give(0, 0));
  assert_int_equal(becomes_set(), 0);
  unsetenv("POCL_MAX_PTHREAD_COUNT");
  assert_int_equal(becomes_set(), 0);
  if (!give(1, 2))
    return;
  setenv("POCL_MAX_PTHREAD_COUNT", "2", 1);
  assert_int_equal(becomes_set(), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(what_is_there_stays, forget),
      cmocka_unit_test_setup_teardown(every_cpu, forget, give_back),
      cmocka_unit_test_setup_teardown(workers, forget, give_back),
      cmocka_unit_test_setup_teardown(other_cpus, forget, give_back),
  };
  if (sched_getaffinity(0, sizeof all, &all) != 0)
    return 77; /* more CPUs than the set holds */
  return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
static void elsewhere(void **state) {
  (void)state;
  cli_affinity_set();
  assert_null(getenv("POCL_AFFINITY"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(what_is_there_stays, forget),
      cmocka_unit_test_setup(elsewhere, forget),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
