/* SPDX-License-Identifier: Apache-2.0 */
/* clattn bench from outside: its shapes, what it writes, and what it refuses.  Times are not judged. */
#define _XOPEN_SOURCE 700 /* mkdtemp, realpath */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli_program.h"

#define QUICKLY " --time-per-row 0 --inputs hot"
#define KEPT " --json kept.npy"

static size_t count_of(const char *text, const char *word) {
  size_t count = 0;
  for (const char *at = text; (at = strstr(at, word)) != NULL; at += strlen(word))
    count++;
  return count;
}

/* Shapes that a sweep lists: lines behind the suites' names and the empty line. */
static size_t listed(const char *arguments) {
  char command[1024];
  snprintf(command, sizeof command, "bench --list %s", arguments);
  good(command);
  const char *rows = strstr(out, "\n\n");
  assert_non_null(rows);
  return count_of(rows + 2, "\n");
}

static void sweeps(void **state) {
  (void)state;
  assert_int_equal(listed("--shape sq=8,sk=512..4096:x2,d=64"), 4);
  says("sk=512 ");
  says("sk=4096 ");
  assert_int_equal(listed("--shape sq=16..64:+16,sk=sq,d=64,128"), 8);
  says("sq=48 sk=48 d=128");
  assert_int_equal(listed("--shape b=2,4,sq=64/b,sk=sq,d=8"), 2);
  says("b=4 sq=16 sk=16 d=8");
  assert_int_equal(listed("--shape sq=64,sk=64,d=8,window=5,0,causal=1"), 1);
  says("window=5,0");
  assert_int_equal(listed("--shape sq=4,sk=4,d=8 --shape sq=5,sk=5,d=8 --problem 'sq=6 sk=6 d=8'"), 3);
  assert_int_equal(listed("--shape sq=4,sk=4,d=8 --dtype f32,f16,i8"), 3);
  says("q=f16:bhsd k=f16:bhsd v=f16:bhsd o=f16:bhsd");
  says("k=i8:bhsd v=i8:bhsd");
  assert_int_equal(listed("--shape sq=1,64,sk=64,d=8 --only decode"), 1);
  assert_int_equal(listed("--quick"), 6);
}

static void tables(void **state) {
  (void)state;
  assert_true(listed("") > 60); /* the default suite */
  assert_int_equal(listed("--suite encoders"), 8);
  assert_int_equal(listed("--suite square"), 4); /* a shape's name */
  write_text("own.txt",
             "# a table\n[a]\none | sq=4,8,sk=4,d=8 | here\n[b]\ntwo | sq=5,sk=5,d=8 | there # and a comment\n"
             "@a sq=8\n@one sq=4\n");
  assert_int_equal(listed("--suite own.txt"), 3);
  assert_int_equal(listed("--suite own.txt:a"), 2);
  assert_int_equal(listed("--suite own.txt:b"), 3);
  says("there\n");
  says("one sq=8");
}

static void a_run(void **state) {
  (void)state;
  static char text[1 << 16];
  good("bench --shape sq=8,sk=16,d=8 --variant flash-cpu-vector,three-step-cpu" QUICKLY
       " --json r.json --csv r.csv --report r.html");
  says("flash-cpu-vector");
  says("three-step-cpu");
  says("2 rows: 2 ok");
  assert_non_null(strstr(err, "measured: FMA"));
  read_text("r.json", text, sizeof text);
  assert_non_null(strstr(text, "\"median_ns\""));
  assert_non_null(strstr(text, "sq=8 sk=16 d=8"));
  read_text("r.csv", text, sizeof text);
  assert_int_equal(count_of(text, "\n"), 3);
  read_text("r.html", text, sizeof text);
  assert_non_null(strstr(text, "<svg"));
  good("compare r.json");
  says("flash-cpu-vector");
  /* a machine that is compared with itself, a thousand percent apart */
  good("bench --shape sq=8,sk=16,d=8 --baseline r.json --fail-if-slower 1000" QUICKLY);
  bad("bench --shape sq=8,sk=17,d=8 --baseline r.json --fail-if-slower 1000" QUICKLY, 1, "nothing was compared");
}

static void calls_are_split(void **state) {
  (void)state;
  /* what a call of this is predicted to take is far above a microsecond, so each of its row blocks is a launch */
  good("bench --shape hq=2,sq=64,sk=64,d=16,causal=1 --variant flash-cpu-vector --max-launch-ms 0.001" QUICKLY
       " --json split.json");
  static char text[1 << 16];
  read_text("split.json", text, sizeof text);
  const char *launches = strstr(text, "\"launches\":");
  assert_non_null(launches);
  assert_true(atoi(launches + strlen("\"launches\":")) > 1);
  says("1 row: 1 ok");
}

static void what_does_not_fit(void **state) {
  (void)state;
  good("bench --shape b=1000,hq=1000,sq=1000,1,sk=100,1000000,d=1024 --only prefill" QUICKLY);
  says("--slow runs it");
  good("bench --slow --shape b=1000,hq=1000,sq=1000,sk=1000000,d=1024" QUICKLY);
  says("does not fit");
}

static void without_a_device(void **state) {
  (void)state;
  write_text("gpu.json",
             "{\"id\": \"gpu:0\", \"name\": \"A GPU\", \"vendor\": \"V\", \"platform\": \"P\", \"driver\": \"1\", "
             "\"version\": \"OpenCL 1.2\", \"type\": \"gpu\", \"compute_units\": 40, \"native_float_width\": 1, "
             "\"max_work_group\": 256, \"global_bytes\": 8000000000, \"max_alloc_bytes\": 2000000000, \"local_bytes\": "
             "32768, \"local_is_real\": true, \"base_align_bytes\": 128, \"fp16\": true, \"sub_groups\": true, "
             "\"out_of_order\": true, \"little_endian\": true, \"address_bits\": 64, \"peaks\": {\"fma_flops\": 1e13, "
             "\"memory_bytes\": 4e11}}");
  good("bench --device-facts gpu.json --shape sq=64,sk=64,d=64 --json sim.json");
  says("simulated: predicted");
  says("flash-gpu-simt");
  static char text[1 << 16];
  read_text("sim.json", text, sizeof text);
  assert_non_null(strstr(text, "\"simulated\": true"));
  good("devices --json");
  write_text("own.json", out);
  good("bench --device-facts own.json --shape sq=64,sk=64,d=64");
  says("flash-cpu-vector");
  write_text("odd.json", "{\"type\": \"toaster\"}");
  bad("bench --device-facts odd.json --quick" KEPT, 2, "\"type\" is 'toaster'");
  write_text("odd.json", "[{}, {}]");
  bad("bench --device-facts odd.json --quick" KEPT, 2, "2 devices; leave one in it");
  static char half[1 << 16];
  read_text("own.json", text, sizeof text);
  const char *const units = strstr(text, "\"compute_units\":");
  assert_non_null(units);
  snprintf(half, sizeof half, "%.*s\"compute_units\": 1.5%s", (int)(units - text), text, strchr(units, ','));
  write_text("odd.json", half);
  bad("bench --device-facts odd.json --quick" KEPT, 2, "\"compute_units\" is 1.5, no whole number");
  write_text("odd.json", "[");
  bad("bench --device-facts odd.json --quick" KEPT, 2, "no object with a device's facts");
}

/* Ctrl-C: what is finished is written. */
static void an_end_in_between(void **state) {
  (void)state;
  remove("cut.json");
  const pid_t pid = start_program("exec \"$CLATTN_PROGRAM\" bench --shape sk=16..2000:+32,sq=8,d=8 --variant "
                                  "flash-cpu-vector --time-per-row 0 --json cut.json");
  char text[1 << 12];
  for (int i = 0; i < 600; i++) { /* until the first row is out */
    const struct timespec tenth = {0, 100000000};
    nanosleep(&tenth, NULL);
    read_text("out.txt", text, sizeof text);
    if (strstr(text, "sk=16 ") != NULL)
      break;
  }
  assert_int_equal(kill(pid, SIGINT), 0);
  assert_int_equal(wait_for(pid), 130);
  static char json[1 << 16];
  assert_true(read_text("cut.json", json, sizeof json) > 0);
  assert_non_null(strstr(json, "sk=16"));
}

static void wrong_usage(void **state) {
  (void)state;
  static const struct {
    const char *arguments, *part;
    int code;
  } cases[] = {
      {"bench --suite quik" KEPT, "there is no suite 'quik'; did you mean 'quick'?", 2},
      {"bench --suite no.txt" KEPT, "no.txt", 2},
      {"bench --shape sq=8,sk=8" KEPT, "--shape: column 1:", 2},
      {"bench --shape sq=8,sk=8,d=8,dd=4" KEPT, "dd", 2},
      {"bench --shape sq=8,sq=9,sk=8,d=8" KEPT, "a key is given twice", 2},
      {"bench --shape sk=8..4:x2,sq=8,d=8" KEPT, "no range", 2},
      {"bench --shape sk=8..64,sq=8,d=8" KEPT, "a range needs its step", 2},
      {"bench --shape sk=,sq=8,d=8" KEPT, "a value is missing", 2},
      {"bench --shape 8" KEPT, "KEY=VALUE is needed", 2},
      {"bench --shape sq=sk,sk=sq,d=64" KEPT, "--shape: column 1:", 2},
      {"bench --shape d=8,sk=1..9223372036854775807:+1,sq=8" KEPT, "column 8: more than 64 values of one key", 2},
      {"bench --suite bad5.txt" KEPT, "bad5.txt: line 2, column 5: a sweep of more than 65536 shapes", 2},
      {"bench --problem 'sq=8 sk=8'" KEPT, "--problem:", 2},
      {"bench --variant flash-cpu-vectr --quick" KEPT, "did you mean 'flash-cpu-vector'?", 2},
      {"bench --dtype f64 --quick" KEPT, "'f64' is none of", 2},
      {"bench --pass backward --quick" KEPT, "the forward pass alone", 2},
      {"bench --only both --quick" KEPT, "'both' is neither prefill nor decode", 2},
      {"bench --inputs warm --quick" KEPT, "'warm' is neither cold nor hot", 2},
      {"bench --time-per-row -1 --quick" KEPT, "--time-per-row", 2},
      {"bench --max-launch-ms x --quick" KEPT, "--max-launch-ms", 2},
      {"bench --quick --suite cpu" KEPT, "--quick is a suite of its own", 2},
      {"bench --fail-if-slower 5 --quick" KEPT, "--fail-if-slower needs --baseline", 2},
      {"bench --quick --baseline no.json" KEPT, "no.json", 2},
      {"bench --quick --baseline kept.npy", "kept.npy", 2},
      {"bench --quick --json no/such/place.json", "no/such/place.json", 1},
      {"bench --quick --device no:7" KEPT, "there is no such device", 3},
      {"bench --frobnicate" KEPT, "frobnicate", 2},
      {"bench --suite bad.txt" KEPT, "bad.txt: line 2, column 1: no 'name | keys | source'", 2},
      {"bench --suite bad2.txt" KEPT, "bad2.txt: line 3, column 7", 2},
      {"bench --suite bad3.txt" KEPT, "line 2, column 1: no suite or shape of this name", 2},
      {"bench --suite bad6.txt" KEPT, "bad6.txt: line 2, column 1: no suite or shape of this name", 2},
      {"bench --suite bad4.txt" KEPT, "name each other more than four deep", 2},
      {"compare kept.npy", "kept.npy", 2},
  };
  write_text("bad.txt", "[default]\nsq=8,sk=8,d=8\n");
  write_text("bad2.txt", "[default]\none | sq=8,sk=8,d=8 | here\ntwo | sq=8,sk=8,d=8,causal=maybe | there\n");
  write_text("bad3.txt", "[default]\n@nobody\n");
  write_text("bad6.txt", "[a]\n@nobody\nx | sq=8,sk=8,d=8 | here\n");
  write_text("bad4.txt", "[default]\n@default\n");
  write_text("bad5.txt", "[a]\nx | b=1..60:+1,hq=1..60:+1,sq=1..60:+1,sk=8,d=8 | here\n[default]\n@x b=999\n");
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    bad(cases[i].arguments, cases[i].code, cases[i].part);
}

static void help(void **state) {
  (void)state;
  good("bench --help");
  says("usage: clattn bench");
  assert_int_equal(err[0], 0);
  good("compare --help");
  says("usage: clattn compare");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(help),
      cmocka_unit_test(sweeps),
      cmocka_unit_test(tables),
      cmocka_unit_test(a_run),
      cmocka_unit_test(calls_are_split),
      cmocka_unit_test(what_does_not_fit),
      cmocka_unit_test(without_a_device),
      cmocka_unit_test(an_end_in_between),
      cmocka_unit_test(wrong_usage),
  };
  return cmocka_run_group_tests(tests, enter_group, leave_group);
}
