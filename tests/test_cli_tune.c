/* SPDX-License-Identifier: Apache-2.0 */
/* clattn tune from outside, and the file that it writes.  The program is CLATTN_PROGRAM of the environment, else of the
 * build. */
#define _XOPEN_SOURCE 700 /* mkdtemp, realpath */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli_program.h"

#define TUNE "tune --shape b=1,hq=2,sq=40,sk=70,d=16 --budget 300"     /* all tiles */
#define ONE_TILE "tune --shape b=1,hq=2,sq=40,sk=70,d=16 --budget 0.1" /* and the usual one */
#define ONE_CALL "tune --shape b=1,hq=2,sq=40,sk=70,d=16 --budget 0.001"
#define RUN "run --problem \"hq=2 sq=40 sk=70 d=16\" --seed 3 "

static char head[2048], first[512]; /* of the file, and the line of the first tile that was tried */

/* The file in `text`; it is whole lines. */
static void read_file(const char *path, char text[1 << 16]) {
  const size_t length = read_text(path, text, 1 << 16);
  assert_true(length > 0 && text[length - 1] == '\n');
}

static void is_in(const char *text, const char *part, int wanted) {
  if ((strstr(text, part) != NULL) != wanted)
    fail_msg("'%s' is %sin: %s", part, wanted ? "not " : "", text);
}

static void file_says(const char *path, const char *part, int wanted) {
  static char text[1 << 16];
  read_file(path, text);
  is_in(text, part, wanted);
}

/* A file of the head and some lines. */
static void write_file(const char *path, const char *lines) {
  static char text[4096];
  (void)snprintf(text, sizeof text, "%s%s", head, lines);
  write_text(path, text);
}

/* A short run writes a file that others read; its results are those without it but for rounding. */
static void tunes(void **state) {
  (void)state;
  static char text[1 << 16];
  good(TUNE " --out a.tuning");
  says("a.tuning: ");
  says("vectors=");
  read_file("a.tuning", text);
  const char *trying = strstr(text, "# trying tile ");
  assert_non_null(trying);
  (void)snprintf(head, sizeof head, "%.*s", (int)(trying - text), text);
  (void)snprintf(first, sizeof first, "%.*s", (int)strcspn(trying + 9, "\n"), trying + 9);
  is_in(head, "clattn tuning 1\nlibrary ", 1);
  is_in(text, "# verified tile ", 1);
  is_in(text, "# timing ", 1);
  is_in(text, "# wrong ", 0);
  is_in(text, "# failed ", 0);
  good(RUN "--out plain.npy --explain");
  is_in(out, "tuned", 0);
  good(RUN "--out tuned.npy --tuning a.tuning --verify --explain");
  says("tuned");
  assert_string_equal(err, "");
  clattn_npy plain;
  assert_int_equal(clattn_npy_open("plain.npy", &plain, message, sizeof message), 0);
  double want[2 * 40 * 16];
  for (int i = 0; i < 2 * 40 * 16; i++)
    want[i] = (double)((const float *)plain.data)[i];
  expect("tuned.npy", 4, plain.shape, want);
  clattn_npy_close(&plain);
  /* A second start has nothing left to do, and leaves the file as it is. */
  good(TUNE " --out a.tuning");
  says(" 1 known before");
  static char again[1 << 16];
  read_file("a.tuning", again);
  assert_string_equal(again, text);
}

/* A tile that is in the file is taken, by run and by bench. */
static void is_taken(void **state) {
  (void)state;
  char lines[1200];
  (void)snprintf(lines, sizeof lines, "# by hand\n%s\n", first);
  write_file("hand.tuning", lines);
  good(RUN "--tuning hand.tuning --verify --explain");
  says("; tuned: ");
  good("run --problem \"hq=2 sq=40 sk=70 d=16 flags=batch_invariant\" --tuning hand.tuning --verify --explain");
  says("; not tuned");
  good("bench --shape b=1,hq=2,sq=40,sk=70,d=16 --time-per-row 0 --tuning hand.tuning --json b.json");
  file_says("b.json", "; tuned: ", 1);
  write_text("problems.txt", "hq=2 sq=40 sk=70 d=16 out=o,lse\n");
  good("warm --problems problems.txt --cache kernels --tuning hand.tuning");
  says("built");
  good("warm --problems problems.txt --cache kernels --tuning hand.tuning");
  says("from cache");
  good("warm --problems problems.txt --cache kernels"); /* the usual tile is another program */
  says("built");
  good(TUNE " --out hand.tuning");
  says(" 1 known before");
}

/* What an earlier start left when it was ended in the middle of a tile, or of a line. */
static void goes_on(void **state) {
  (void)state;
  char lines[1200], part[600];
  (void)snprintf(lines, sizeof lines, "# trying %s\n# tryi", first);
  write_file("c.tuning", lines);
  good(ONE_TILE " --out c.tuning");
  says("ended the process when it was tried; not again");
  (void)snprintf(part, sizeof part, "# crashed %s\n", first);
  file_says("c.tuning", part, 1);
  (void)snprintf(part, sizeof part, "# verified %s\n", first);
  file_says("c.tuning", part, 0);
  (void)snprintf(part, sizeof part, "\n%s\n", first);
  file_says("c.tuning", part, 0);
  file_says("c.tuning", "# tryi#", 0);
  good(RUN "--tuning c.tuning --verify");
  /* it stays marked, and so does what was found wrong */
  static const char *const words[] = {"crashed", "wrong", "failed"};
  for (int n = 0; n < 3; n++) {
    (void)snprintf(lines, sizeof lines, "# trying %s\n# %s %s\n", first, words[n], first);
    write_file("d.tuning", lines);
    good(ONE_TILE " --out d.tuning");
    (void)snprintf(part, sizeof part, "%s in an earlier start", words[n]);
    says(part);
    (void)snprintf(part, sizeof part, "# verified %s\n", first);
    file_says("d.tuning", part, 0);
  }
  /* a signal ended it: it is tried again */
  (void)snprintf(lines, sizeof lines, "# trying %s\n# stopped %s\n", first, first);
  write_file("e.tuning", lines);
  good(ONE_TILE " --out e.tuning");
  (void)snprintf(part, sizeof part, "# verified %s\n", first);
  file_says("e.tuning", part, 1);
  /* ended while the class was timed */
  (void)snprintf(lines, sizeof lines, "# timing %.*s\n", (int)(strstr(first, " :") - first - 5), first + 5);
  write_file("f.tuning", lines);
  good(ONE_TILE " --out f.tuning");
  says("the process ended while it was timed; not again");
  is_in(out, "vectors=", 0);
}

/* Times that a part is in a text. */
static int times_in(const char *text, const char *part) {
  int times = 0;
  for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part))
    times++;
  return times;
}

/* Starts that are too short for all tiles of a class leave it open, and each goes on with another tile; at last they
 * decide. */
static void comes_to_an_end(void **state) {
  (void)state;
  static char text[1 << 16];
  int starts = 0, before = 0, ended = 0;
  for (; starts < 60 && !ended; starts++) {
    good(ONE_CALL " --out short.tuning");
    ended = strstr(out, ": 1 tuned") != NULL || strstr(out, " 1 left as they are") != NULL;
    read_file("short.tuning", text);
    const int tried = times_in(text, "# trying ");
    assert_true(tried <= before + 1);
    before = tried;
    if (ended)
      break;
    is_in(text, "# kept ", 0);
    is_in(text, "\ntile ", 0);
    is_in(text, "# timing ", 0);
    says("another start goes on here");
    is_in(strrchr(text, '#'), "# stopped ", 1);
  }
  assert_true(ended && starts >= 2 && before >= 2);
  for (const char *at = strstr(text, "# trying "); at != NULL; at = strstr(at + 1, "# trying ")) {
    char line[600];
    (void)snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n") + 1, at);
    assert_int_equal(times_in(text, line), 1); /* none is tried twice */
  }
  assert_int_equal(times_in(text, "# timing "), 1);
  good(ONE_CALL " --out short.tuning");
  says(" 1 known before");
}

/* The file is left as it is. */
static void stays(const char *path, const char *text, size_t bytes) {
  static char now[1 << 16];
  char command[256];
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(text, 1, bytes, file), bytes);
  assert_int_equal(fclose(file), 0);
  (void)snprintf(command, sizeof command, ONE_CALL " --out %s", path);
  bad(command, 2, "is no tuning of this device, with this driver and this version");
  assert_int_equal(read_text(path, now, sizeof now), bytes);
  assert_memory_equal(now, text, bytes);
}

/* Files of others keep every byte; a head that was cut while it was written is written again. */
static void files_of_others(void **state) {
  (void)state;
  static const char *const texts[] = {"a word", "x", "# a comment\nand the last line", "clattn tuning 2",
                                      "clattn tuning 1\n\n"};
  static char text[1 << 16];
  const size_t length = strlen(head);
  assert_true(length + 6 < sizeof text);
  for (size_t n = 0; n < sizeof texts / sizeof texts[0]; n++)
    stays("others.txt", texts[n], strlen(texts[n]));
  (void)snprintf(text, sizeof text, "%s# a.b\n", head);
  text[length + 3] = 0;
  stays("others.txt", text, length + 6);
  (void)snprintf(text, sizeof text, "%s", head);
  text[length - 1] = 'x'; /* the last one is another device's */
  stays("others.txt", text, length);
  const size_t cuts[] = {0, 3, length / 2, length - 1};
  for (size_t n = 0; n < sizeof cuts / sizeof cuts[0]; n++) {
    char part[2048];
    (void)snprintf(part, sizeof part, "%.*s", (int)cuts[n], head);
    write_text("cut.tuning", part);
    good(ONE_CALL " --out cut.tuning");
    read_file("cut.tuning", text);
    assert_memory_equal(text, head, length);
  }
}

/* What scripts see. */
static void exit_codes(void **state) {
  (void)state;
  bad(TUNE " --variant nosuch --out no.tuning", 2, "clattn: --variant: ");
  bad(TUNE " --config variant=nosuch --out no.tuning", 2, "clattn: --config: ");
  bad(TUNE " --config forbid=nosuch --out no.tuning", 2, "clattn: --config: config_text: forbid=nosuch");
  assert_int_not_equal(access("no.tuning", F_OK), 0);
  bad("tune --shape b=1,hq=1,sq=8,sk=8,d=8,flags=batch_invariant --budget 5 --out left.tuning", 2,
      "none of the shapes could be tuned");
  says("left out: variant");
  good("tune --shape b=1,hq=1,sq=8,sk=8,d=8,flags=batch_invariant --shape b=1,hq=2,sq=40,sk=70,d=16 --budget 0.001 "
       "--out some.tuning");
  says("left out: variant");
  /* with AMX, too */
  good("tune --shape b=1,hq=2,sq=40,sk=70,d=16,q=bf16,k=bf16,v=bf16,o=bf16 --budget 0.001 --out bf16.tuning");
  is_in(out, "left out", 0);
  says("vectors=");
  /* a driver whose kernels do nothing */
  bad_with("OCL_ICD_VENDORS=" CLATTN_STUB_VENDORS " OCL_ICD_FILENAMES= ", TUNE " --out stub.tuning", 1,
           "the usual tile was wrong or failed");
  file_says("stub.tuning", "\ntile ", 0);
}

static void refuses(void **state) {
  (void)state;
  char other[2048];
  write_file("kept.tuning", "");
  (void)snprintf(other, sizeof other, "%s", head);
  char *driver = strstr(other, "\ndriver ");
  assert_non_null(driver);
  driver[8] = '~';
  write_text("other.tuning", other);
  bad(TUNE " --out other.tuning", 2, "other.tuning is no tuning of this device, with this driver and this version");
  file_says("other.tuning", "# trying", 0);
  good(RUN "--tuning other.tuning --explain"); /* told, and not used */
  is_in(err, "clattn: tuning_text is not used: driver is '~", 1);
  says("; not tuned: of the tuning driver is '~");
  write_file("bad.tuning", "tile x\n");
  bad(RUN "--tuning bad.tuning --out kept.npy", 2,
      "clattn: --tuning bad.tuning: tuning_text, line 7: no class of problems");
  bad(RUN "--tuning bad.tuning --device 0", 2, "clattn: --tuning bad.tuning: tuning_text, line 7");
  bad("bench --serve --tuning hand.tuning", 2, "--serve goes with --device alone");
  bad("bench --serve --config width=8", 2, "--serve goes with --device alone");
  write_text("next.tuning", "clattn tuning 2\nwhat it has\n"); /* another format: as another version's */
  good(RUN "--tuning next.tuning --explain");
  is_in(err, "clattn: tuning_text is not used: format is '2', here it is '1'", 1);
  says("; not tuned: of the tuning format is '2'");
  bad("bench --quick --tuning bad.tuning", 2, "tuning_text, line 7");
  bad("warm --problems problems.txt --cache kernels --tuning bad.tuning", 2, "tuning_text, line 7");
  bad(RUN "--tuning none.tuning", 2, "none.tuning");
  bad(RUN "--tuning kept.npy", 2, "it must be text");
  bad(RUN "--tuning hand.tuning --out hand.tuning", 2, "hand.tuning");
  bad(TUNE " --out /nowhere/x.tuning", 1, "/nowhere/x.tuning can't be written");
  bad("tune --budget 0", 2, "--budget: 0 is not above 0");
  bad("tune --budget x", 2, "--budget");
  bad("tune --suite no-such-suite", 2, "there is no suite");
  bad("tune --tuning x", 2, "tuning");
  bad(TUNE " --config width=5 --out g.tuning", 2, "width=5 must be 4, 8 or 16");
  bad("bench --device-facts x.json --tuning hand.tuning", 2,
      "without --device, --baseline, --tuning, --config and --dump");
  good("tune --help");
  says("usage: clattn tune");
  says("exit codes: ");
  says("without AMX");
}

/* The library's config, by run. */
static void config(void **state) {
  (void)state;
  good("run --problem \"sq=1 sk=70 d=16\" --config width=4 --verify --explain");
  says("tile        4 queries");
  good("run --problem \"sq=1 sk=70 d=16\" --config width=16 --verify --explain");
  says("tile        16 queries");
  good(RUN "--config \"forbid=fused\" --explain");
  says("three-step");
  good(RUN "--config \"forbid=fused;trust=tested\" --explain");
  says("; tested here");
  bad(RUN "--config trust=nobody", 2, "clattn: --config: config_text: trust=nobody must be tested or all");
  bad(RUN "--config width=7", 2, "clattn: --config: config_text: width=7 must be 4, 8 or 16");
  bad(RUN "--config width=7 --tuning kept.tuning --device 0", 2, "clattn: --config: config_text: width=7");
  bad(RUN "--config width=4 --variant three-step", 2, "has no vector lanes");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(tunes),           cmocka_unit_test(is_taken),
                                     cmocka_unit_test(goes_on),         cmocka_unit_test(comes_to_an_end),
                                     cmocka_unit_test(files_of_others), cmocka_unit_test(exit_codes),
                                     cmocka_unit_test(refuses),         cmocka_unit_test(config)};
  return cmocka_run_group_tests(tests, enter_group, leave_group);
}
