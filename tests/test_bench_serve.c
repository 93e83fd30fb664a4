/* SPDX-License-Identifier: Apache-2.0 */
/* clattn bench --serve from outside, through pipes.  The program is CLATTN_PROGRAM of the environment, else of the
 * build. */
#define _XOPEN_SOURCE 700 /* mkdtemp, realpath */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cJSON.h>

#include "affinity.h"
#include "cli_program.h"

enum { B = 2, H = 3, SQ = 4, SK = 11, D = 5, DV = 6 };
#define LINE "b=2 hq=3 sq=4 sk=11 d=5 dv=6 causal=1 off=bottom_right klen=per_batch"

/* ---- a session ---- */

static FILE *to, *from;
static pid_t server;
static char answer[1 << 16];

static void begin(void) {
  int commands[2], answers[2];
  posix_spawn_file_actions_t actions;
  char *const program = getenv("CLATTN_PROGRAM");
  char *const argv[] = {program, "bench", "--serve", NULL};
  if (program == NULL) {
    fail_msg("CLATTN_PROGRAM is not set");
    return; /* which the analyser does not see */
  }
  assert_int_equal(pipe(commands), 0);
  assert_int_equal(pipe(answers), 0);
  /* else the server holds its own input open */
  assert_int_equal(fcntl(commands[1], F_SETFD, FD_CLOEXEC), 0);
  assert_int_equal(fcntl(answers[0], F_SETFD, FD_CLOEXEC), 0);
  assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
  assert_int_equal(posix_spawn_file_actions_adddup2(&actions, commands[0], 0), 0);
  assert_int_equal(posix_spawn_file_actions_adddup2(&actions, answers[1], 1), 0);
  assert_int_equal(posix_spawn_file_actions_addclose(&actions, commands[0]), 0);
  assert_int_equal(posix_spawn_file_actions_addclose(&actions, answers[1]), 0);
  assert_int_equal(posix_spawn(&server, program, &actions, NULL, argv, environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  close(commands[0]);
  close(answers[1]);
  to = fdopen(commands[1], "w");
  from = fdopen(answers[0], "r");
  assert_non_null(to);
  assert_non_null(from);
}

static int exit_code(void) {
  int status = 0;
  while (waitpid(server, &status, 0) < 0)
    assert_int_equal(errno, EINTR);
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

/* Ends it by the end of its input. */
static void end(void) {
  fclose(to);
  assert_null(fgets(answer, sizeof answer, from)); /* nothing that nobody asked for */
  fclose(from);
  assert_int_equal(exit_code(), 0);
}

/* One command, one line: an object, which the caller deletes. */
static cJSON *ask(const char *command) {
  fprintf(to, "%s\n", command);
  fflush(to);
  if (fgets(answer, sizeof answer, from) == NULL)
    fail_msg("%s: no answer", command);
  cJSON *object = cJSON_Parse(answer);
  if (!cJSON_IsObject(object))
    fail_msg("%s: no JSON object: %s", command, answer);
  return object;
}

static void served(const char *command) {
  cJSON *object = ask(command);
  if (cJSON_GetObjectItem(object, "error") != NULL)
    fail_msg("%s: %s", command, answer);
  cJSON_Delete(object);
}

static void refused(const char *command, const char *part) {
  cJSON *object = ask(command);
  const char *error = cJSON_GetStringValue(cJSON_GetObjectItem(object, "error"));
  if (error == NULL || strstr(error, part) == NULL)
    fail_msg("%s: wanted an error with '%s': %s", command, part, answer);
  cJSON_Delete(object);
}

static double number(const char *command, const char *name) {
  cJSON *object = ask(command);
  const cJSON *item = cJSON_GetObjectItem(object, name);
  if (!cJSON_IsNumber(item))
    fail_msg("%s: no number %s: %s", command, name, answer);
  const double value = cJSON_GetNumberValue(item);
  cJSON_Delete(object);
  return value;
}

static void give_inputs(void) {
  served("input q q.npy");
  served("input k k.npy");
  served("input v v.npy");
  served("input k-lengths lengths.npy");
}

/* `run N` gives N times above 0, no shorter than their first part. */
static void check_run(const char *command, int count) {
  cJSON *object = ask(command);
  const cJSON *seconds = cJSON_GetObjectItem(object, "seconds"),
              *enqueue = cJSON_GetObjectItem(object, "enqueue_seconds");
  assert_int_equal(cJSON_GetArraySize(seconds), count);
  assert_int_equal(cJSON_GetArraySize(enqueue), count);
  for (int i = 0; i < count; i++) {
    const double part = cJSON_GetNumberValue(cJSON_GetArrayItem(enqueue, i));
    assert_true(part > 0 && part <= cJSON_GetNumberValue(cJSON_GetArrayItem(seconds, i)));
  }
  cJSON_Delete(object);
}

static void same_files(const char *a, const char *b) {
  static char first[4096], second[4096];
  const size_t bytes = read_text(a, first, sizeof first);
  assert_true(bytes > 128 && bytes < sizeof first - 1);
  assert_int_equal(read_text(b, second, sizeof second), bytes);
  assert_memory_equal(first, second, bytes);
}

static int start(void **state) {
  static float q[B * H * SQ * D], k[B * H * SK * D], v[B * H * SK * DV];
  (void)state;
  signal(SIGPIPE, SIG_IGN);
  setenv("POCL_AFFINITY", "0", 1);
  if (enter_folder() != 0)
    return -1;
  fill(q, sizeof q / sizeof q[0]);
  fill(k, sizeof k / sizeof k[0]);
  fill(v, sizeof v / sizeof v[0]);
  write_npy("q.npy", "f4", 4, (const int64_t[]){B, H, SQ, D}, q);
  write_npy("k.npy", "f4", 4, (const int64_t[]){B, H, SK, D}, k);
  write_npy("v.npy", "f4", 4, (const int64_t[]){B, H, SK, DV}, v);
  write_npy("lengths.npy", "i4", 1, (const int64_t[]){B}, (const int32_t[]){SK, 7});
  return 0;
}

/* ---- tests ---- */

/* What `run` computes from the same files, every time. */
static void calls(void **state) {
  (void)state;
  good("run --problem '" LINE "' --q q.npy --k k.npy --v v.npy --k-lengths lengths.npy --out want.npy");
  begin();
  served("problem " LINE);
  give_inputs();
  assert_true(number("open", "flops") > 0);
  served("save first.npy");
  same_files("first.npy", "want.npy");
  check_run("run 3", 3);
  served("save third.npy");
  same_files("third.npy", "want.npy");
  served("close");
  refused("run 1", "nothing is open");
  /* a variant by its name, and inputs that nobody gives are drawn */
  served("problem " LINE);
  cJSON *object = ask("open three-step-cpu");
  assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(object, "variant")), "three-step-cpu");
  cJSON_Delete(object);
  served("save drawn.npy");
  good("run --problem '" LINE "' --seed 1 --variant three-step-cpu --out want-drawn.npy");
  same_files("drawn.npy", "want-drawn.npy");
  /* a new problem closes what was open */
  served("problem b=1 hq=1 sq=4 sk=4 d=4");
  refused("run 1", "nothing is open");
  end();
}

/* Shapes of tables and sweeps, and what the device can do. */
static void lists(void **state) {
  (void)state;
  begin();
  cJSON *object = ask("shape b=1,hq=2,sq=16,32,sk=sq,d=8,causal=1");
  const cJSON *shapes = cJSON_GetObjectItem(object, "shapes");
  assert_int_equal(cJSON_GetArraySize(shapes), 2);
  const cJSON *second = cJSON_GetArrayItem(shapes, 1);
  assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(second, "name")), "sq=32");
  assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(second, "problem")),
                      "b=1 hq=2 sq=32 sk=32 d=8 causal=1");
  assert_true(cJSON_IsNull(cJSON_GetObjectItem(second, "predicted_seconds")));
  cJSON_Delete(object);
  object = ask("context");
  const cJSON *context = cJSON_GetObjectItem(object, "context");
  assert_true(cJSON_IsFalse(cJSON_GetObjectItem(context, "pocl_affinity"))); /* as `start` said */
  assert_true(cJSON_GetNumberValue(cJSON_GetObjectItem(cJSON_GetObjectItem(context, "peaks"), "fma_flops_per_second")) >
              0);
  assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(object, "rows")), 0);
  cJSON_Delete(object);
  object = ask("suite quick");
  shapes = cJSON_GetObjectItem(object, "shapes");
  assert_int_equal(cJSON_GetArraySize(shapes), 6);
  assert_true(cJSON_GetNumberValue(cJSON_GetObjectItem(cJSON_GetArrayItem(shapes, 0), "predicted_seconds")) > 0);
  cJSON_Delete(object);
  assert_true(number("probe", "fma_flops_per_second") > 0);
  end();
}

/* Errors are answers: the session goes on as it was. */
static void errors(void **state) {
  (void)state;
  static const struct {
    const char *command, *part;
  } before[] = {{"", "there is no command ''"},
                {"runn 1", "there is no command 'runn'"},
                {"run 1", "nothing is open"},
                {"save o.npy", "nothing is open"},
                {"open", "there is no problem yet"},
                {"input q q.npy", "there is no problem yet"},
                {"problem", "problem needs something"},
                {"problem b=1 hq=2 sq=x", "sq"},
                {"problem b=1 hq=3 hkv=2 sq=4 sk=4 d=4", "kv_heads"},
                {"open", "there is no problem yet"},
                {"shape sq", "KEY=VALUE is needed"},
                {"suite quik", "did you mean 'quick'?"},
                {"suite ./none.txt", "./none.txt"},
                {"probe now", "probe takes nothing, not 'now'"}},
    after[] = {{"open", "open already"},
               {"input q q.npy", "open already"},
               {"run 0", "'0' is no number of calls"},
               {"run -1", "'-1' is no number of calls"},
               {"run 1 2", "'1 2' is no number of calls"},
               {"run 100001", "'100001' is no number of calls"},
               {"save no/such/place.npy", "no/such/place.npy"},
               {"save ./q.npy", "would overwrite an input"},
               {"save ./lengths.npy", "would overwrite an input"}};
  begin();
  for (size_t i = 0; i < sizeof before / sizeof before[0]; i++)
    refused(before[i].command, before[i].part);
  served("problem " LINE);
  refused("input queries q.npy", "no input is called 'queries'");
  refused("input q", "'q' is no NAME PATH");
  refused("open flash-cpu-vektor", "flash-cpu-vektor");
  served("input q none.npy");
  refused("open", "none.npy");
  served("input q v.npy");
  refused("open", "--q");
  give_inputs();
  served("open");
  for (size_t i = 0; i < sizeof after / sizeof after[0]; i++)
    refused(after[i].command, after[i].part);
  check_run("run 2", 2);
  served("save last.npy");
  end();
  same_files("last.npy", "want.npy");
}

static void serve_text(const char *text, size_t bytes) {
  FILE *file = fopen("commands.txt", "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(text, 1, bytes, file), bytes);
  assert_int_equal(fclose(file), 0);
  good("bench --serve <commands.txt");
}

static int lines(const char *text) {
  int count = 0;
  for (; *text != 0; text++)
    count += *text == '\n';
  return count;
}

/* The ways in which a session ends, and lines as others write them. */
static void ends(void **state) {
  (void)state;
  static const char quits[] = "close\nquit\nclose\n", strange[] = "close\r\nclo\0se\nclose";
  serve_text("", 0);
  assert_string_equal(out, "");
  serve_text(quits, sizeof quits - 1);
  assert_int_equal(lines(out), 2);
  says("{\"quit\": true}");
  serve_text(strange, sizeof strange - 1);
  assert_int_equal(lines(out), 3);
  says("a line with a 0 byte");
  assert_non_null(strstr(strstr(out, "0 byte"), "{\"closed\": true}"));
  begin();
  fclose(from);
  fputs("close\n", to);
  fflush(to);
  assert_int_equal(exit_code(), 1); /* nobody reads */
  fclose(to);
  assert_int_equal(run_with("", "bench --serve --device no:7 <commands.txt"), 3);
  assert_string_equal(out, "");
}

/* With nothing in the environment the program decides as this process would. */
static void affinity(void **state) {
  (void)state;
  unsetenv("POCL_AFFINITY");
  cli_affinity_set();
  const int wanted = cli_affinity_is_set();
  unsetenv("POCL_AFFINITY");
  begin();
  cJSON *object = ask("context");
  const cJSON *flag = cJSON_GetObjectItem(cJSON_GetObjectItem(object, "context"), "pocl_affinity");
  assert_true(cJSON_IsBool(flag));
  assert_int_equal(cJSON_IsTrue(flag), wanted);
  cJSON_Delete(object);
  end();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(calls), cmocka_unit_test(lists),    cmocka_unit_test(errors),
      cmocka_unit_test(ends),  cmocka_unit_test(affinity),
  };
  return cmocka_run_group_tests(tests, start, leave_group);
}
