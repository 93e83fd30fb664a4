/* SPDX-License-Identifier: Apache-2.0 */
/* Host code of the library on the stub driver: no compiler and no arithmetic, but every call counted, failed and checked.
 *   test_stub               all groups
 *   test_stub GROUP         driver, failure, refusal, array, type, order, limit or thread
 *   test_stub no-platform   a loader that finds no driver at all */
#include "stub/use.h"
#include <stdio.h>
#include <string.h>

static void test_no_platform(void **state) {
  (void)state;
  clattn_error error;
  clattn_error_init(&error);
  clattn_context *context = (clattn_context *)(void *)&error;
  assert_int_equal(clattn_context_create_default(NULL, &context, &error), CLATTN_ERROR_NO_DEVICE);
  assert_null(context);
  assert_int_equal(error.status, CLATTN_ERROR_NO_DEVICE);
  assert_true(strlen(error.message) > 0);
}

static int run_no_platform_test(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_platform)};
  return cmocka_run_group_tests_name("no platform", tests, NULL, NULL);
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    int (*run)(void);
  } groups[] = {{"driver", run_driver_tests}, {"failure", run_failure_tests}, {"refusal", run_refusal_tests},
                {"array", run_array_tests},   {"type", run_type_tests},       {"order", run_order_tests},
                {"limit", run_limit_tests},   {"thread", run_thread_tests}};
  const char *const wanted = argc > 1 ? argv[1] : NULL;
  const int no_platform = wanted && strcmp(wanted, "no-platform") == 0;
  int failed = 0, ran = 0;
  if (argc > 2 || !use_open(!no_platform))
    return 2;
  if (no_platform)
    return run_no_platform_test() != 0;
  for (size_t i = 0; i < sizeof groups / sizeof *groups; ++i)
    if (!wanted || strcmp(wanted, groups[i].name) == 0) {
      failed += groups[i].run() != 0;
      ++ran;
    }
  if (!ran) {
    fprintf(stderr, "no group is called %s\n", wanted);
    return 2;
  }
  print_failure_table();
  return failed != 0;
}
