/* SPDX-License-Identifier: Apache-2.0 */
/* clattn merge from outside.  The program is CLATTN_PROGRAM of the environment, else of the build. */
#define _XOPEN_SOURCE 700 /* mkdtemp, realpath */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli_program.h"

enum { H = 3, SQ = 4, SK = 11, D = 5, DV = 6 };

static float q[H][SQ][D], k[H][SK][D], v[H][SK][DV];

static void draw(float *numbers, size_t count) {
  static uint32_t drawn = 1;
  for (size_t i = 0; i < count; i++) {
    drawn = drawn * 1664525u + 1013904223u;
    numbers[i] = (float)(drawn >> 8) / 8388608.0f - 1.0f;
  }
}

/* Keys from .. to - 1 as files of their own. */
static void write_keys(const char *k_path, const char *v_path, int from, int to) {
  static float some_k[H * SK * D], some_v[H * SK * DV];
  const size_t keys = (size_t)(to - from);
  for (size_t h = 0; h < H; h++) {
    memcpy(some_k + h * keys * D, k[h][from], keys * sizeof k[0][0]);
    memcpy(some_v + h * keys * DV, v[h][from], keys * sizeof v[0][0]);
  }
  write_npy(k_path, "f4", 3, (const int64_t[]){H, to - from, D}, some_k);
  write_npy(v_path, "f4", 3, (const int64_t[]){H, to - from, DV}, some_v);
}

static int start(void **state) {
  (void)state;
  if (enter_folder() != 0)
    return -1;
  draw(&q[0][0][0], H * SQ * D);
  draw(&k[0][0][0], H * SK * D);
  draw(&v[0][0][0], H * SK * DV);
  write_npy("q.npy", "f4", 3, (const int64_t[]){H, SQ, D}, q);
  write_keys("k.npy", "v.npy", 0, SK);
  write_keys("k0.npy", "v0.npy", 0, 4);
  write_keys("k1.npy", "v1.npy", 4, 4);
  write_keys("k2.npy", "v2.npy", 4, SK);
  return 0;
}

/* Two files of the same shape, with numbers at most `allowed` apart (0: the same bits). */
static void same(const char *path, const char *want_path, double allowed) {
  clattn_npy got, want;
  if (clattn_npy_open(path, &got, message, sizeof message) != 0 ||
      clattn_npy_open(want_path, &want, message, sizeof message) != 0) {
    fail_msg("%s", message);
    return;
  }
  assert_string_equal(got.type, "f4");
  assert_int_equal(got.rank, want.rank);
  assert_memory_equal(got.shape, want.shape, sizeof got.shape);
  assert_true(got.bytes > 0);
  if (allowed == 0)
    assert_memory_equal(got.data, want.data, want.bytes);
  for (size_t i = 0; i < got.bytes / sizeof(float); i++) {
    const double a = (double)((const float *)got.data)[i], b = (double)((const float *)want.data)[i];
    if (!(fabs(a - b) <= allowed))
      fail_msg("%s: number %zu is %g, in %s %g", path, i, a, want_path, b);
  }
  clattn_npy_close(&got);
  clattn_npy_close(&want);
}

static void run_parts(void) {
  good("run --q q.npy --k k.npy --v v.npy --out o.npy --lse lse.npy");
  good("run --q q.npy --k k0.npy --v v0.npy --out o0.npy --lse lse0.npy");
  good("run --q q.npy --k k1.npy --v v1.npy --out o1.npy --lse lse1.npy");
  good("run --q q.npy --k k2.npy --v v2.npy --out o2.npy --lse lse2.npy");
}

#define PARTS "--part o0.npy,lse0.npy --part o1.npy,lse1.npy --part=o2.npy,lse2.npy "

/* Attention over the keys in three parts, one of them empty, is attention over all. */
static void parts_of_keys(void **state) {
  (void)state;
  run_parts();
  good("merge " PARTS "--out merged.npy --lse merged_lse.npy");
  says("merged      3 parts");
  says("wrote       merged.npy  f4 (3, 4, 6)");
  says("wrote       merged_lse.npy  f4 (3, 4)");
  same("merged.npy", "o.npy", 1e-6);
  same("merged_lse.npy", "lse.npy", 2e-6);
  /* Either output alone, and options between the parts. */
  good("merge --part o0.npy,lse0.npy --out alone.npy --part o1.npy,lse1.npy --device 0 --part o2.npy,lse2.npy");
  same("alone.npy", "merged.npy", 0);
  assert_null(strstr(out, "_lse"));
  good("merge " PARTS "--lse=alone_lse.npy");
  same("alone_lse.npy", "merged_lse.npy", 0);
  /* One part is itself. */
  good("merge --part o.npy,lse.npy --out one.npy --lse one_lse.npy");
  same("one.npy", "o.npy", 0);
  same("one_lse.npy", "lse.npy", 0);
}

/* Fortran order, one axis, no rows, sinks, and rows that are not numbers. */
static void other_arrays(void **state) {
  (void)state;
  static const char header[] =
      "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }                           \n";
  const float a[6] = {1, 2, 3, 4, 5, 6}, turned[6] = {1, 4, 2, 5, 3, 6}, zero[6] = {0};
  write_npy("a.npy", "f4", 2, (const int64_t[]){2, 3}, a);
  write_npy("zero.npy", "f4", 2, (const int64_t[]){2, 3}, zero);
  write_npy("a_lse.npy", "f4", 1, (const int64_t[]){2}, (const float[]){0, -INFINITY});
  write_npy("sink.npy", "f4", 1, (const int64_t[]){2}, (const float[]){0, 2});
  write_npy("half.npy", "f4", 2, (const int64_t[]){2, 3}, (const float[]){0.5f, 1, 1.5f, 0, 0, 0});
  write_npy("half_lse.npy", "f4", 1, (const int64_t[]){2}, (const float[]){0.69314718f, 2});
  write_raw_npy("turned.npy", header, turned, sizeof turned);
  good("merge --part turned.npy,a_lse.npy --part zero.npy,sink.npy --out got.npy --lse got_lse.npy");
  same("got.npy", "half.npy", 0);
  same("got_lse.npy", "half_lse.npy", 1e-7);

  write_npy("row.npy", "f4", 1, (const int64_t[]){3}, a);
  write_npy("row_lse.npy", "f4", 0, NULL, a);
  good("merge --part row.npy,row_lse.npy --part row.npy,row_lse.npy --out got.npy");
  same("got.npy", "row.npy", 0);
  good("merge --part row.npy,row_lse.npy --lse got_lse.npy");
  same("got_lse.npy", "row_lse.npy", 0);

  clattn_npy npy;
  write_npy("none.npy", "f4", 2, (const int64_t[]){0, 3}, a);
  write_npy("none_lse.npy", "f4", 1, (const int64_t[]){0}, a);
  good("merge --part none.npy,none_lse.npy --part none.npy,none_lse.npy --out got.npy --lse got_lse.npy");
  assert_int_equal(clattn_npy_open("got.npy", &npy, message, sizeof message), 0);
  assert_true(npy.rank == 2 && npy.shape[0] == 0 && npy.shape[1] == 3);
  clattn_npy_close(&npy);

  write_npy("not.npy", "f4", 1, (const int64_t[]){2}, (const float[]){NAN, INFINITY});
  good("merge --part a.npy,not.npy --out got.npy");
  assert_int_equal(clattn_npy_open("got.npy", &npy, message, sizeof message), 0);
  for (int i = 0; i < 6; i++)
    assert_true(isnan(((const float *)npy.data)[i]));
  clattn_npy_close(&npy);
}

static void help(void **state) {
  (void)state;
  good("merge --help");
  says("usage: clattn merge --part O.npy,LSE.npy");
  says("examples:");
  assert_string_equal(err, "");
  good("--help");
  says("clattn merge ");
}

#define KEPT " --out kept.npy"

static void wrong_usage(void **state) {
  (void)state;
  run_parts();
  write_text("text.npy", "no array");
  write_npy("double.npy", "f8", 1, (const int64_t[]){1}, (const double[]){0});
  write_npy("five.npy", "f4", 5, (const int64_t[]){1, 1, 1, 1, 1}, (const float[]){0});
  write_npy("flat.npy", "f4", 2, (const int64_t[]){1, 0}, (const float[]){0});
  write_npy("two.npy", "f4", 1, (const int64_t[]){2}, (const float[]){0, 0});
  static const struct {
    const char *arguments, *part;
    int code;
  } cases[] = {
      {"merge" KEPT, "there is no --part", 2},
      {"merge --part o0.npy,lse0.npy", "neither --out nor --lse is given", 2},
      {"merge --part" KEPT, "--part takes two files, as in o.npy,lse.npy; not '--out'", 2},
      {"merge --out kept.npy --part", "--part needs a value", 2},
      {"merge --part o0.npy" KEPT, "--part takes two files, as in o.npy,lse.npy; not 'o0.npy'", 2},
      {"merge --part o0.npy," KEPT, "--part takes two files", 2},
      {"merge --part ,lse0.npy" KEPT, "--part takes two files", 2},
      {"merge --part= " KEPT, "--part takes two files", 2},
      {"merge --part o0.npy,lse0.npy,lse0.npy" KEPT, "--part takes two files", 2},
      {"merge --par o0.npy,lse0.npy" KEPT, "--part must be written in full", 2},
      {"merge --part o0.npy,lse0.npy --outt kept.npy", "did you mean --out?", 2},
      {"merge --part o0.npy,lse0.npy --out x.npy" KEPT, "--out is given twice", 2},
      {"merge o0.npy" KEPT, "'o0.npy' is not an option", 2},
      {"merge --part no.npy,lse0.npy" KEPT, "--part: no.npy", 2},
      {"merge --part o0.npy,text.npy" KEPT, "--part: text.npy", 2},
      {"merge --part o0.npy,double.npy" KEPT, "double.npy: type f8 is not accepted here; it must be f4", 2},
      {"merge --part five.npy,lse0.npy" KEPT, "five.npy: 5 axes; it must have 1 to 4", 2},
      {"merge --part flat.npy,lse0.npy" KEPT, "flat.npy: shape (1, 0); the last axis must be at least 1", 2},
      {"merge --part o0.npy,o0.npy" KEPT, "o0.npy of shape (3, 4, 6) does not fit o0.npy of shape (3, 4, 6)", 2},
      {"merge --part o0.npy,two.npy" KEPT, "two.npy of shape (2,) does not fit o0.npy of shape (3, 4, 6)", 2},
      {"merge --part o0.npy,lse0.npy --part lse0.npy,two.npy" KEPT, "two.npy of shape (2,) does not fit", 2},
      {"merge --part o0.npy,lse0.npy --part q.npy,lse0.npy" KEPT,
       "o0.npy of shape (3, 4, 6) and q.npy of shape (3, 4, 5) are not of one shape", 2},
      {"merge --part o0.npy,lse0.npy --part kept.npy,row.npy" KEPT, "row.npy", 2},
      {"merge --part o0.npy,lse0.npy --lse ./kept.npy" KEPT, "name the same file", 2},
      {"merge --part o0.npy,lse0.npy --out ./lse0.npy", "--out ./lse0.npy would overwrite an input", 2},
      {"merge --part o0.npy,lse0.npy --out no/such/place.npy", "no/such/place.npy", 1},
      {"merge --part o0.npy,lse0.npy --device no:7" KEPT, "there is no such device", 3},
  };
  remove("row.npy");
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    bad(cases[i].arguments, cases[i].code, cases[i].part);
  bad_with("OCL_ICD_VENDORS=/nowhere OCL_ICD_FILENAMES= ", "merge --part o0.npy,lse0.npy" KEPT, 3, "no usable device");
  bad("marge", 2, "did you mean 'merge'?");
  /* A report that nobody gets: the old file stays. */
  const int code = wait_for(start_program("{ \"$CLATTN_PROGRAM\" merge --part o0.npy,lse0.npy" KEPT " >/dev/full; }"));
  assert_int_equal(code, 1);
  check_kept("merge to a full standard output");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(help),
      cmocka_unit_test(parts_of_keys),
      cmocka_unit_test(other_arrays),
      cmocka_unit_test(wrong_usage),
  };
  return cmocka_run_group_tests(tests, start, leave_group);
}
