/* SPDX-License-Identifier: Apache-2.0 */
/* --dump and clattn replay from outside: every variant, and dumps that were damaged or made to deceive.  The program is
 * CLATTN_PROGRAM of the environment, else of the build. */
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

#include "clattn.h"
#include "cli_program.h"

/* Two launches and more in every variant: lengths are staged in the workspace, and max_logit is a step of its own. */
#define LINE "b=2 hq=2 sq=9 sk=21 d=16 causal=1 klen=per_batch out=o,lse,max_logit"
#define BF16 "hq=2 sq=9 sk=21 d=32 causal=1 out=o,lse q=bf16 k=bf16 v=bf16 o=bf16"

static int start(void **state) {
  (void)state;
  return enter_folder();
}

static int finish(void **state) {
  (void)state;
  return leave_folder();
}

static void shell(const char *command) {
  if (wait_for(start_program(command)) != 0)
    fail_msg("%s: %s", command, err);
}

/* The first `from` of a file becomes `to`. */
static void edit(const char *path, const char *from, const char *to) {
  static char text[1 << 20];
  const size_t bytes = read_text(path, text, sizeof text);
  assert_true(bytes + 1 < sizeof text);
  char *at = strstr(text, from);
  if (at == NULL)
    fail_msg("%s has no '%s'", path, from);
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  fwrite(text, 1, (size_t)(at - text), file);
  fputs(to, file);
  fwrite(at + strlen(from), 1, bytes - (size_t)(at - text) - strlen(from), file);
  assert_int_equal(fclose(file), 0);
}

static int is_there(const char *path) {
  return access(path, F_OK) == 0;
}

static void help(void **state) {
  (void)state;
  good("replay --help");
  says("usage: clattn replay DIR");
  good("--help");
  says("clattn replay");
  good("run --help");
  says("--dump DIR");
  good("bench --help");
  says("--dump DIR");
}

/* ---- dumps that agree ---- */

/* A dump of this line, replayed from source and from the binary; 0 where the variant does not take it. */
static int dump_and_replay(const char *line, const char *variant) {
  char command[512];
  shell("rm -rf one");
  snprintf(command, sizeof command, "run --problem '%s' --variant %s --verify --dump one", line, variant);
  const int code = run_with("", command);
  if (code == 2) {
    assert_false(is_there("one/manifest.json"));
    return 0;
  }
  if (code != 0)
    fail_msg("clattn %s: exit %d: %s", command, code, err);
  says("dumped      one");
  assert_true(is_there("one/README.txt"));
  assert_true(is_there("one/program.cl"));
  assert_true(is_there("one/o.reference.bin"));
  assert_true(is_there("one/o.device.bin"));
  assert_false(is_there("one/manifest.json.new"));
  for (int binary = 0; binary < 2; binary++) {
    if (binary && !is_there("one/program.bin")) /* the driver gave none */
      continue;
    good(binary ? "replay --binary one" : "replay one");
    says(variant);
    says("o           agrees with the double-precision reference");
    says("lse         agrees with the double-precision reference");
    says("the same numbers as the dump's device computed");
    assert_null(strstr(out, "DIFFERS"));
    assert_null(strstr(out, "was changed"));
  }
  return 1;
}

static void every_variant(void **state) {
  (void)state;
  int count = 0;
  for (uint32_t i = 0; clattn_variant_name(i) != NULL; i++) {
    const char *name = clattn_variant_name(i);
    const int ran = dump_and_replay(LINE, name) + dump_and_replay(BF16, name);
    good("devices");
    if (ran == 0 && strstr(out, name) != NULL)
      fail_msg("no dump of %s, which the devices have", name);
    count += ran > 0;
  }
  assert_true(count >= 2);
}

/* Rows of packed sequences, scores, types, tables, arrays on the side, empty sequences. */
static void other_problems(void **state) {
  (void)state;
  static const char *const lines[] = {
      "b=3 hq=4 hkv=2 d=4 dv=6 q=packed k=packed v=packed o=packed lse=packed total_q=5 total_k=7 out=o,lse",
      "hq=2 sq=3 sk=5 d=8 out=o,scores causal=1",
      "hq=2 sq=4 sk=40 d=64 k=i8 v=i4 bias=f16 mask=u8 sink=f32 alibi=signed rope=half",
      "b=2 hq=2 sq=0 sk=5 d=8",
  };
  for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
    char command[512];
    shell("rm -rf other");
    snprintf(command, sizeof command, "run --problem '%s' --dump other --json", lines[i]);
    if (i + 1 == sizeof lines / sizeof lines[0]) { /* nothing to launch, and nothing is left */
      bad(command, 2, "--dump: this problem has no launch");
      assert_false(is_there("other"));
      continue;
    }
    good(command);
    says("\"dump\":");
    good("replay other");
    says("o           agrees");
    assert_int_equal(is_there("other/o.rows.bin"), i == 0);
    assert_true(i != 1 || strstr(out, "scores      agrees") != NULL);
  }
}

static void with_hook(void **state) {
  (void)state;
  write_text("hook.cl", "float clattn_score(float s, const clattn_at *at) { return s + ((__global const float "
                        "*)at->buffer[0])[at->j % 2]; }\n");
  good("run --q '1 0; 0 1' --k '1 0; 0 1; 1 1' --v '1; 2; 3' --hook hook.cl --hook-arg 'buffer=0.5 2' --dump hooked");
  good("replay hooked");
  says("o           agrees with the dump's device");
  assert_false(is_there("hooked/o.reference.bin"));
  /* Without the device's results there would be nothing to compare with. */
  edit("hooked/manifest.json", "\"device\":\t{\n\t\t\t\t\"name\":\t\"o.d", "\"gone\":\t{\n\t\t\t\t\"name\":\t\"o.d");
  bad("replay hooked", 2, "nothing that is expected");
}

static void bench_rows(void **state) {
  (void)state;
  good("bench --shape hq=2,sq=16,sk=16,32,d=16 --variant three-step,flash-gpu-simt --time-per-row 0.01 --dump rows");
  shell("ls rows | wc -l | grep -qx 4");
  shell("for d in rows/00[1-4]-*-sk-16-three-step rows/00[1-4]-*-sk-32-flash-gpu-simt; do "
        "\"$CLATTN_PROGRAM\" replay $d || exit 1; done");
  bad("replay rows", 2, "'clattn bench --dump' makes one in a folder of its own for each row");
  bad("bench --quick --dump rows", 2, "the folder is not empty");
  bad("bench --serve --dump new", 2, "--serve goes with --device alone");
  bad("bench --list --quick --device-facts none.json --dump new", 2, "--config and --dump");
  assert_false(is_there("new"));
}

/* ---- wrong kernels ---- */

static void wrong_kernel(void **state) {
  (void)state;
  good("run --problem '" LINE "' --variant three-step --dump good");
  shell("rm -rf bad && cp -r good bad");
  edit("bad/program.cl", "to[at] = x;", "to[at] = at == 39 || at == 42 ? x + (float)at : x;");
  assert_int_equal(run_with("", "replay bad"), 1);
  says("program.cl was changed since it was dumped");
  says("o           DIFFERS from the double-precision reference in 2 of 576 elements\n");
  says("first     (b,h,i,d) = (0,0,2,7): expected ");
  says("error 39, tolerance ");
  says("worst     (b,h,i,d) = (0,0,2,10): expected ");
  says("2 of 576 elements are not what the dump's device computed, by at most 42\n");
  assert_string_equal(err, "");
  /* NaN is a difference, and the worst. */
  shell("cp good/program.cl bad/program.cl");
  edit("bad/program.cl", "to[at] = x;", "to[at] = at == 4 ? NAN : at == 3 ? x + 1.0f : x;");
  assert_int_equal(run_with("", "replay bad"), 1);
  says("first     (b,h,i,d) = (0,0,0,3)");
  says("worst     (b,h,i,d) = (0,0,0,4): expected ");
  says("got nan, error nan");
  /* An element that is never written. */
  shell("cp good/program.cl bad/program.cl");
  edit("bad/program.cl", "to[at] = x;", "if (at != 5) to[at] = x;");
  assert_int_equal(run_with("", "replay bad"), 1);
  says("first     (b,h,i,d) = (0,0,0,5)");
  says("got nan");
  /* What does not compile, from the source or by the options. */
  edit("bad/program.cl", "if (at != 5)", "if (at !=");
  bad("replay bad", 1, "building the dump's program failed");
  bad("replay good --build-options '-cl-std=CL1.2 -Dfloat=0'", 1, "building the dump's program failed");
  shell("o=$(sed -n 's/.*\"options\":\\t\"\\(.*\\)\",/\\1/p' good/manifest.json) && "
        "\"$CLATTN_PROGRAM\" replay good --build-options \"$o -DUNUSED=1\"");
  says("-DUNUSED=1'");
  /* A kernel with another list of arguments is not run. */
  shell("cp good/program.cl bad/program.cl");
  edit("bad/program.cl", "void weighted_sum(", "void weighted_sum(__global int *one_more, ");
  bad("replay bad", 2, "kernel weighted_sum takes ");
}

/* ---- what is refused ---- */

typedef struct fault {
  const char *command;   /* in a copy of the dump; or NULL: */
  const char *from, *to; /* an edit of its manifest */
  int code;
  const char *part;
} fault;

static void faults(void **state) {
  (void)state;
  static const fault list[] = {
      {"printf x | dd of=q.bin conv=notrunc bs=1 seek=9", NULL, NULL, 2, "q.bin is not what was dumped"},
      {"printf x >>q.bin", NULL, NULL, 2, "q.bin has 2305 bytes, the manifest says 2304"},
      {"truncate -s 100 q.bin", NULL, NULL, 2, "q.bin has 100 bytes, the manifest says 2304"},
      {"truncate -s 0 o.reference.bin", NULL, NULL, 2, "o.reference.bin has 0 bytes"},
      {"printf x | dd of=o.reference.bin conv=notrunc", NULL, NULL, 2, "o.reference.bin is not what was dumped"},
      {"printf x | dd of=o.device.bin conv=notrunc", NULL, NULL, 2, "o.device.bin is not what was dumped"},
      {"mv k.bin x && mv v.bin k.bin && mv x v.bin", NULL, NULL, 2, "k.bin is not what was dumped"},
      {"rm v.bin", NULL, NULL, 2, "v.bin can't be opened: "},
      {"mv q.bin x && ln -s x q.bin", NULL, NULL, 2, "links are not followed"},
      {"rm q.bin && ln x q.bin 2>/dev/null; mkfifo q.bin", NULL, NULL, 2, "q.bin is no regular file"},
      {"rm q.bin && mkdir q.bin", NULL, NULL, 2, "q.bin is no regular file"},
      {"rm program.cl && ln -s /dev/zero program.cl", NULL, NULL, 2, "links are not followed"},
      {"rm manifest.json", NULL, NULL, 2, "there is no manifest.json"},
      {"mv manifest.json x && ln -s x manifest.json", NULL, NULL, 2, "links are not followed"},
      {"truncate -s 3000 manifest.json", NULL, NULL, 2, "manifest.json is no JSON object"},
      {"truncate -s 0 manifest.json", NULL, NULL, 2, "manifest.json has 0 bytes"},
      {"truncate -s 1G manifest.json", NULL, NULL, 2, "manifest.json has 1073741824 bytes"},
      {"echo '[]' >manifest.json", NULL, NULL, 2, "manifest.json is no JSON object"},
      {NULL, "clattn-dump", "other-dump", 2, "format: it is not"},
      {NULL, "\"format_version\":\t1", "\"format_version\":\t2", 2, "this program reads version 1, not 2"},
      {NULL, "\"byte_order\":\t\"", "\"byte_order\":\t\"x", 2, "byte_order: it is not that of this machine"},
      {NULL, "\"q.bin\"", "\"../one/q.bin\"", 2, "must be a plain file name"},
      {NULL, "\"q.bin\"", "\"/etc/passwd\"", 2, "must be a plain file name"},
      {NULL, "\"q.bin\"", "\"..\"", 2, "must be a plain file name"},
      {NULL, "\"q.bin\"", "\"\"", 2, "must be a plain file name"},
      {NULL, "\"program.cl\"", "\"sub/program.cl\"", 2, "must be a plain file name"},
      {NULL, "\"q.bin\"", "\"k.bin\"", 2, "k.bin "},
      {NULL, "\"fnv1a64\":\t\"", "\"fnv1a64\":\t\"x", 2, "16 hexadecimal digits"},
      {NULL, "\"name\":\t\"workspace\",\n\t\t\t\"bytes\":\t", "\"name\":\t\"workspace\",\n\t\t\t\"bytes\":\t9999999", 1,
       "the device's largest allocation"},
      {NULL, "\"name\":\t\"workspace\",\n\t\t\t\"bytes\":\t", "\"name\":\t\"workspace\",\n\t\t\t\"bytes\":\t-", 2,
       "a whole number from 1 to"},
      {NULL, "\"name\":\t\"workspace\",\n\t\t\t\"bytes\":\t",
       "\"name\":\t\"workspace\",\n\t\t\t\"bytes\":\t1e300,\"x\":", 2, "a whole number from 1 to"},
      {NULL, "\"name\":\t\"workspace\",\n\t\t\t\"bytes\":\t",
       "\"name\":\t\"workspace\",\n\t\t\t\"bytes\":\t0.5,\"x\":", 2, "a whole number from 1 to"},
      {NULL, "\"buffer\":\t", "\"buffer\":\t99", 2, "buffer: a whole number from 0 to"},
      {NULL, "\"buffer\":\t", "\"buffer\":\t-1", 2, "buffer: a whole number from 0 to"},
      {NULL, "\"bytes\":\t\"", "\"bytes\":\t\"g0", 2, "no hexadecimal digit"},
      {NULL, "\"bytes\":\t\"", "\"bytes\":\t\"0", 2, "two hexadecimal digits each"},
      {NULL, "\"bytes\":\t\"", "\"buffer\":\t0,\"bytes\":\t\"", 2, "either bytes or a buffer"},
      {NULL, "\"global\":\t[", "\"global\":\t[0, ", 2, "a whole number from 1"},
      {NULL, "\"global\":\t[", "\"global\":\t[4, 4, 4, ", 2, "an array of 1 to 3 entries"},
      {NULL, "\"local\":\t[", "\"local\":\t[7", 2, "does not divide the global size"},
      {NULL, "\"kernel\":\t\"", "\"kernel\":\t\"no_", 1, "the program gives no kernel no_"},
      {NULL, "\"kernel\":\t\"", "\"kernel\":\t\"../", 2, "a name of letters, digits and '_'"},
      {NULL, "\"launches\":\t[", "\"launches\":\t[],\"x\":\t[", 2, "launches: an array of 1 to"},
      {NULL, "\"shape\":\t[2, ", "\"shape\":\t[3, ", 2, "reaches beyond the buffer"},
      {NULL, "\"shape\":\t[2, ", "\"shape\":\t[1099511627776, ", 2, "reaches beyond the buffer"},
      {NULL, "\"shape\":\t[2, ", "\"shape\":\t[1, ", 2, "bytes are not "},
      {NULL, "\"stride\":\t[", "\"stride\":\t[0, 0, 0, 0],\"x\":\t[", 2, "it is 0 on an axis"},
      {NULL, "\"dtype\":\t\"f32\"", "\"dtype\":\t\"i4\"", 2, "f32, f16 or bf16 is needed"},
      {NULL, "\"tolerance\":\t", "\"tolerance\":\t-", 2, "a number from 0 on"},
      {NULL, "\"rows\":\tnull", "\"rows\":\t{\"name\":\"q.bin\",\"bytes\":7,\"fnv1a64\":\"0123456789abcdef\"}", 2,
       "are no list of rows"},
      {NULL, "\"problem\":\t\"", "\"problem\":\t\"\\u001b[2J", 2, "a control character"},
  };
  good("run --problem '" LINE "' --variant three-step --dump whole");
  for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
    char command[512];
    shell("rm -rf one && cp -r whole one");
    if (list[i].command != NULL) {
      snprintf(command, sizeof command, "cd one && { %s; } 2>/dev/null; cd ..", list[i].command);
      shell(command);
    } else {
      edit("one/manifest.json", list[i].from, list[i].to);
    }
    bad("replay one", list[i].code, list[i].part);
    assert_null(strstr(out, "agrees with the double-precision reference in 8 elements"));
  }
  good("replay whole");
}

static void wrong_usage(void **state) {
  (void)state;
  static const char line[] = "run --problem '" LINE "' --variant three-step ";
  char command[256];
  shell("rm -rf full && mkdir full && touch full/file");
  snprintf(command, sizeof command, "%s --dump full", line);
  bad(command, 2, "full: the folder is not empty; it must be new, or empty");
  shell("ls full | grep -qx file");
  snprintf(command, sizeof command, "%s --dump kept.npy", line);
  bad(command, 2, "kept.npy: it is no folder");
  snprintf(command, sizeof command, "%s --dump no/such/parent", line);
  bad(command, 2, "the folder can't be made: ");
  snprintf(command, sizeof command, "%s --dump two --weights w.npy --scores s.npy", line);
  bad(command, 2, "scores and weights are two runs");
  assert_false(is_there("two"));
  /* What fails before the dump leaves no folder that was not there. */
  snprintf(command, sizeof command, "%s --dump late --device no:7", line);
  bad(command, 3, "there is no such device");
  assert_false(is_there("late"));
  /* An empty folder is taken, and stays where the disk is full, empty. */
  shell("mkdir empty");
  /* Above what drivers write for themselves; shells count in 512 or 1024 bytes. */
#define LARGE "run --problem 'hq=8 sq=2048 sk=32 d=64' --variant three-step"
  good(LARGE);
  shell("{ ulimit -f 3000; \"$CLATTN_PROGRAM\" " LARGE " --dump empty; test $? = 1; }");
  assert_non_null(strstr(err, "can't be written: "));
  shell("test -z \"$(ls -A empty)\"");
  shell("{ ulimit -f 3000; \"$CLATTN_PROGRAM\" " LARGE " --dump fresh; test $? = 1; }");
  assert_false(is_there("fresh"));
  snprintf(command, sizeof command, "%s --dump empty", line);
  good(command);
  bad("replay", 2, "replay takes the folder of one dump");
  bad("replay empty empty", 2, "replay takes the folder of one dump");
  bad("replay nowhere", 2, "nowhere: the folder can't be opened");
  bad("replay kept.npy", 2, "kept.npy: the folder can't be opened");
  bad("replay empty --bild-options x", 2, "did you mean --build-options?");
  bad("replay empty --device no:7", 3, "there is no such device");
  bad_with("OCL_ICD_VENDORS=/nowhere OCL_ICD_FILENAMES= ", "replay empty", 3, "no usable device");
  edit("empty/manifest.json", "\"binary\":\t{", "\"binary\":\tnull,\"x\":\t{");
  bad("replay empty --binary", 2, "the dump has none");
  good("replay --device 0 empty");
}

/* Ended while its reference is computed, which takes seconds. */
static void interrupted(void **state) {
  (void)state;
  static const char *const folders[] = {"cut", "cut-empty"};
  shell("mkdir cut-empty");
  for (size_t i = 0; i < 2; i++) {
    char command[512];
    snprintf(command, sizeof command,
             "{ \"$CLATTN_PROGRAM\" run --problem 'hq=16 sq=2048 sk=2048 d=64' --variant three-step --dump %s "
             ">/dev/null & p=$!; while [ ! -e %s/q.bin ] && kill -0 $p; do sleep 0.01; done; "
             "kill -TERM $p; wait $p; test $? = 143; }",
             folders[i], folders[i]);
    shell(command);
  }
  assert_false(is_there("cut"));
  shell("test -d cut-empty && test -z \"$(ls -A cut-empty)\"");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(help),      cmocka_unit_test(every_variant), cmocka_unit_test(other_problems),
      cmocka_unit_test(with_hook), cmocka_unit_test(bench_rows),    cmocka_unit_test(wrong_kernel),
      cmocka_unit_test(faults),    cmocka_unit_test(wrong_usage),   cmocka_unit_test(interrupted),
  };
  return cmocka_run_group_tests(tests, start, finish);
}
