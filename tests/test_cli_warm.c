/* SPDX-License-Identifier: Apache-2.0 */
/* clattn warm, and --cache of the other commands, from outside.  The program is CLATTN_PROGRAM of the environment, else
 * of the build. */
#define _XOPEN_SOURCE 700 /* mkdtemp, realpath */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli_program.h"

#define SHAPE "hq=2 sq=12 sk=12 d=8"

static void help(void **state) {
  (void)state;
  good("warm --help");
  says("usage: clattn warm");
  good("--help");
  says("clattn warm");
}

static void warm_and_run(void **state) {
  (void)state;
  static const char run[] = "run --problem '" SHAPE " causal=1' --verify --cache kernels";
  write_text("shapes.txt", "# two lines, one program\n\n  " SHAPE " # plain\r\n" SHAPE " causal=1\n");
  good("warm --problems shapes.txt --cache kernels");
  assert_non_null(strstr(out, "built"));
  assert_null(strstr(out, "from cache"));
  says(SHAPE " causal=1\n");
  says("kept");
  good("warm --problems - --cache kernels <shapes.txt");
  assert_null(strstr(out, "built"));
  assert_null(strstr(out, "kept"));
  says("from cache");
  write_text("logged.txt", "plan: some-variant: " SHAPE "\n");
  good("warm --problems logged.txt --cache kernels");
  assert_null(strstr(out, "plan: "));
  says("from cache");
  good(run);
  assert_string_equal(err, "");
  /* A damaged entry is told, and costs a build. */
  assert_int_equal(wait_for(start_program("for f in kernels/*; do echo x >>$f; done")), 0);
  good(run);
  assert_non_null(strstr(err, "is not used: "));
  good(run);
  assert_string_equal(err, "");
}

static int json_from_cache(void) {
  const char *at = strstr(out, "\"from_cache\":");
  assert_non_null(at);
  at += strlen("\"from_cache\":");
  at += strspn(at, " \t");
  return strncmp(at, "true", 4) == 0;
}

/* Programs may use AMX only if they allow it, which 'clattn run' does: other kernels, where there is AMX. */
static void amx(void **state) {
  (void)state;
  static const char line[] = "hq=2 sq=16 sk=16 d=32 q=bf16 k=bf16 v=bf16 o=bf16";
  static const char name[] = "\"flash-cpu-amx\"";
  char run[256];
  snprintf(run, sizeof run, "run --problem '%s' --cache with --json", line);
  write_text("bf16.txt", line);
  good("warm --problems bf16.txt --cache without");
  assert_null(strstr(out, "flash-cpu-amx"));
  good("warm --problems bf16.txt --cache with --allow-amx");
  const int used = strstr(out, "flash-cpu-amx") != NULL;
  good(run);
  assert_int_equal(strstr(out, name) != NULL, used);
  assert_true(json_from_cache());
  snprintf(run, sizeof run, "run --problem '%s' --cache without --json", line);
  good(run);
  assert_int_equal(json_from_cache(), !used);
}

static void wrong_usage(void **state) {
  (void)state;
  static const struct {
    const char *arguments, *part;
    int code;
  } cases[] = {
      {"warm", "--problems is missing", 2},
      {"warm --problems shapes.txt", "--cache is missing", 2},
      {"warm --problems no/file --cache kernels", "no/file: can't be opened", 2},
      {"warm --problems empty.txt --cache kernels", "empty.txt: no problem in it", 2},
      {"warm --problems bad.txt --cache kernels", "bad.txt: line 3: ", 2},
      {"warm --problems wide.txt --cache kernels", "wide.txt: line 1: ", 2},
      {"warm --problems nul.txt --cache kernels", "nul.txt: line 2: byte 5 is 0", 2},
      {"warm --problems cut.txt --cache kernels", "cut.txt: line 1: ", 2},
      {"warm --problems one.txt --cache no/such/folder", "no/such/folder: it can't be used", 1},
      {"warm --problems one.txt --cache open", "others than its owner may write to it", 1},
      {"warm --problems one.txt --cache kernels --device no:7", "there is no such device", 3},
      {"warm --problems one.txt --cash kernels", "cash", 2},
      {"devices --cache kernels", "--cache goes with --self-test", 2},
  };
  static const char nul[] = SHAPE "\nhq=2 \0 sq=4\n";
  write_text("empty.txt", "\n# nothing\n");
  write_text("bad.txt", SHAPE "\n# fine so far\nhq=two\n");
  write_text("wide.txt", "hq=3 hkv=2 sq=4 sk=4 d=8\n");
  write_text("one.txt", SHAPE "\n");
  write_text("cut.txt", "plan: some-variant\n");
  FILE *file = fopen("nul.txt", "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(nul, 1, sizeof nul - 1, file), sizeof nul - 1);
  assert_int_equal(fclose(file), 0);
  assert_int_equal(mkdir("open", 0700), 0);
  assert_int_equal(chmod("open", 0777), 0);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    bad(cases[i].arguments, cases[i].code, cases[i].part);
    assert_null(strstr(out, "built")); /* what can't work does no work */
  }
  bad_with("OCL_ICD_VENDORS=/nowhere OCL_ICD_FILENAMES= ", "warm --problems one.txt --cache kernels", 3,
           "no usable device");
  assert_int_equal(
      wait_for(start_program("{ \"$CLATTN_PROGRAM\" warm --problems one.txt --cache kernels >/dev/full; }")), 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(help),
      cmocka_unit_test(warm_and_run),
      cmocka_unit_test(amx),
      cmocka_unit_test(wrong_usage),
  };
  return cmocka_run_group_tests(tests, enter_group, leave_group);
}
