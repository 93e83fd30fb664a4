/* SPDX-License-Identifier: Apache-2.0 */
/* The disk cache with a real driver, one process per call, PoCL's own cache empty each time.
 *   test_cache_warm                  results are the same and right: cold, warm, damaged, cut, swapped
 *   test_cache_warm speed            a warm start takes at most 150 ms
 *   test_cache_warm prebuild FOLDER  fills the folder with the kernels of both problems
 *   test_cache_warm call FOLDER N    first call of problem N: prints milliseconds, where its kernels came from and a
 *                                    sum over the result's bits
 *   test_cache_warm self FOLDER      the self-test: prints how many plans it made */
#define _XOPEN_SOURCE 700
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "clattn.h"
#include "clattn_ref.h"

enum { HEADS = 8, ROWS = 128, DIM = 64, VALUES = HEADS * ROWS * DIM, STARTS = 5, MOST_MILLISECONDS = 150 };
static const char *const problems[] = {"hq=8 sq=128 sk=128 d=64", "hq=8 sq=128 sk=128 d=64 sim=cosine scale=4"};

/* ---- a process of its own ---- */

static int failed(const char *what, clattn_status status, const clattn_error *error) {
  fprintf(stderr, "%s: %s: %s\n", what, clattn_status_name(status), error->message);
  return 1;
}

static double seconds(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static float number(size_t i) {
  return (float)((i * 2654435761u >> 7) % 2001) / 1000 - 1;
}

static int wrong(const clattn_problem *problem, float *const input[3], const float *o) {
  static double want[VALUES];
  clattn_ref_args args;
  clattn_ref_args_init(&args);
  args.q = input[0];
  args.k = input[1];
  args.v = input[2];
  args.o = want;
  if (clattn_ref_attention(problem, &args) != CLATTN_SUCCESS)
    return 1;
  for (size_t i = 0; i < VALUES; ++i)
    if (!(fabs((double)o[i] - want[i]) <= 1e-5))
      return 1;
  return 0;
}

static int call(const char *folder, const char *line) {
  static float q[VALUES], k[VALUES], v[VALUES], o[VALUES];
  float *const input[3] = {q, k, v};
  clattn_context_options options;
  clattn_context *context = NULL;
  clattn_plan *plan = NULL;
  clattn_plan_info info;
  clattn_problem problem;
  clattn_args args;
  clattn_error error;
  cl_context cl = NULL;
  cl_device_id device = NULL;
  cl_mem buffer[4];
  cl_int code = CL_SUCCESS;
  uint64_t sum = 0;
  for (size_t i = 0; i < VALUES; ++i) {
    q[i] = number(3 * i);
    k[i] = number(3 * i + 1);
    v[i] = number(3 * i + 2);
  }
  clattn_error_init(&error);
  const double start = seconds();
  clattn_context_options_init(&options);
  options.cache_folder = folder;
  clattn_status status = clattn_context_create_default(&options, &context, &error);
  if (status == CLATTN_SUCCESS)
    status = clattn_problem_parse(line, &problem, &error);
  if (status == CLATTN_SUCCESS)
    status = clattn_plan_create(context, &problem, NULL, &plan, &error);
  if (status == CLATTN_SUCCESS)
    status = clattn_context_handles(context, &cl, &device);
  if (status != CLATTN_SUCCESS)
    return failed("plan", status, &error);
  const cl_command_queue queue = clCreateCommandQueue(cl, device, 0, &code);
  for (int i = 0; i < 4 && code == CL_SUCCESS; ++i)
    buffer[i] = clCreateBuffer(cl, CL_MEM_READ_WRITE | (cl_mem_flags)(i < 3 ? CL_MEM_COPY_HOST_PTR : 0),
                               sizeof(float) * VALUES, i < 3 ? input[i] : NULL, &code);
  if (code != CL_SUCCESS)
    return failed("buffers", code, &error);
  clattn_args_init(&args);
  args.error = &error;
  args.q = clattn_buffer(buffer[0], 0);
  args.k = clattn_buffer(buffer[1], 0);
  args.v = clattn_buffer(buffer[2], 0);
  args.o = clattn_buffer(buffer[3], 0);
  status = clattn_enqueue(plan, queue, &args, 0, NULL, NULL);
  if (status == CLATTN_SUCCESS)
    status = clFinish(queue);
  const double milliseconds = 1e3 * (seconds() - start);
  if (status == CLATTN_SUCCESS)
    status = clEnqueueReadBuffer(queue, buffer[3], CL_TRUE, 0, sizeof(o), o, 0, NULL, NULL);
  if (status != CLATTN_SUCCESS)
    return failed("run", status, &error);
  clattn_plan_info_init(&info);
  status = clattn_plan_get_info(plan, &info);
  if (status != CLATTN_SUCCESS || wrong(&problem, input, o))
    return failed("the result is not the reference's", status, &error);
  for (size_t i = 0; i < VALUES; ++i) {
    uint32_t bits;
    memcpy(&bits, &o[i], sizeof(bits));
    sum = sum * 1099511628211u + bits;
  }
  printf("%.1f %u %llx\n", milliseconds, info.from_cache, (unsigned long long)sum);
  for (int i = 0; i < 4; ++i)
    clReleaseMemObject(buffer[i]);
  clReleaseCommandQueue(queue);
  clattn_plan_release(plan);
  clattn_context_release(context);
  return 0;
}

static int prebuild(const char *folder) {
  clattn_context_options options;
  clattn_context *context = NULL;
  clattn_problem both[2];
  clattn_error error;
  clattn_error_init(&error);
  clattn_context_options_init(&options);
  options.cache_folder = folder;
  clattn_status status = clattn_context_create_default(&options, &context, &error);
  for (int i = 0; i < 2 && status == CLATTN_SUCCESS; ++i)
    status = clattn_problem_parse(problems[i], &both[i], &error);
  if (status == CLATTN_SUCCESS)
    status = clattn_prebuild(context, both, 2, NULL, NULL, &error);
  if (status != CLATTN_SUCCESS)
    return failed("prebuild", status, &error);
  clattn_context_release(context);
  return 0;
}

static void count_plans(void *user, int level, const char *line) {
  (void)level;
  *(int *)user += strncmp(line, "plan: ", 6) == 0;
}

static int self_test(const char *folder) {
  clattn_context_options options;
  clattn_context *context = NULL;
  clattn_error error;
  int plans = 0;
  clattn_error_init(&error);
  clattn_context_options_init(&options);
  options.cache_folder = folder;
  options.config_text =
      "forbid=matrix;forbid=three-step;forbid=flash-gpu-simt"; /* one variant will do: builds are dear */
  options.log_fn = count_plans;
  options.log_user = &plans;
  clattn_status status = clattn_context_create_default(&options, &context, &error);
  if (status == CLATTN_SUCCESS)
    status = clattn_self_test(context, &error);
  if (status != CLATTN_SUCCESS)
    return failed("self-test", status, &error);
  printf("%d\n", plans);
  clattn_context_release(context);
  return 0;
}

/* ---- the tests ---- */

static const char *program;
static char root[] = "/tmp/clattn-warm-XXXXXX";
static char folder[64];

typedef struct answer {
  double milliseconds;
  unsigned from_cache;
  unsigned long long sum;
} answer;

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *at) {
  (void)about;
  (void)kind;
  (void)at;
  return remove(path);
}

static void remove_all(const char *path) {
  (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Runs this program again with an empty cache of PoCL's, which keeps nothing between two calls then. */
static void run(const char *what, const char *argument, char *text, size_t capacity) {
  char command[512], pocl[64];
  snprintf(pocl, sizeof(pocl), "%s/pocl", root);
  remove_all(pocl);
  assert_int_equal(mkdir(pocl, 0700), 0);
  assert_int_equal(setenv("POCL_CACHE_DIR", pocl, 1), 0);
  snprintf(command, sizeof(command), "'%s' %s '%s' %s", program, what, folder, argument);
  FILE *const pipe = popen(command, "r");
  assert_non_null(pipe);
  const size_t bytes = fread(text, 1, capacity - 1, pipe);
  text[bytes] = 0;
  assert_int_equal(pclose(pipe), 0);
}

static answer ask(const char *which) {
  char text[256];
  answer a;
  run("call", which, text, sizeof(text));
  assert_int_equal(sscanf(text, "%lf %u %llx", &a.milliseconds, &a.from_cache, &a.sum), 3);
  return a;
}

/* The entries' files, in no order. */
static int entries(char file[2][512]) {
  DIR *const open = opendir(folder);
  const struct dirent *at;
  int count = 0;
  assert_non_null(open);
  while ((at = readdir(open)) != NULL)
    if (at->d_name[0] != '.') {
      assert_true(count < 2);
      snprintf(file[count++], 512, "%s/%.250s", folder, at->d_name);
    }
  closedir(open);
  return count;
}

static void flip_byte(const char *path, long from_end) {
  FILE *const file = fopen(path, "r+b");
  assert_non_null(file);
  assert_int_equal(fseek(file, -from_end, SEEK_END), 0);
  const int byte = fgetc(file);
  assert_int_equal(fseek(file, -from_end, SEEK_END), 0);
  assert_true(fputc(byte ^ 64, file) != EOF);
  assert_int_equal(fclose(file), 0);
}

static void same_results(void **state) {
  (void)state;
  char text[256], file[2][512], spare[600];
  const answer cold = ask("0"), other = ask("1");
  assert_int_equal(cold.from_cache + other.from_cache, 0);
  assert_int_equal(entries(file), 2); /* kept when the contexts went */
  assert_int_equal(ask("0").from_cache, 1);
  assert_int_equal(ask("0").sum, cold.sum);
  assert_int_equal(ask("1").sum, other.sum);
  run("prebuild", "", text, sizeof(text));
  assert_int_equal(entries(file), 2);

  for (int damage = 0; damage < 3; ++damage) {
    if (damage == 0) {
      flip_byte(file[0], 100000); /* in the binary */
      assert_int_equal(truncate(file[1], 100000), 0);
    } else if (damage == 1) {
      snprintf(spare, sizeof(spare), "%s/spare", root);
      assert_int_equal(rename(file[0], spare), 0);
      assert_int_equal(rename(file[1], file[0]), 0);
      assert_int_equal(rename(spare, file[1]), 0);
    } else {
      assert_int_equal(truncate(file[0], 0) + truncate(file[1], 1), 0);
    }
    const answer first = ask("0"), second = ask("1");
    assert_int_equal(first.from_cache + second.from_cache, 0);
    assert_int_equal(first.sum, cold.sum);
    assert_int_equal(second.sum, other.sum);
    assert_int_equal(ask("0").from_cache + ask("1").from_cache, 2);
  }
}

/* A device that passed once is not tested again. */
static void self_test_once(void **state) {
  (void)state;
  char text[256];
  int plans = 0;
  run("self", "", text, sizeof(text));
  assert_int_equal(sscanf(text, "%d", &plans), 1);
  assert_true(plans > 10);
  run("self", "", text, sizeof(text));
  assert_int_equal(sscanf(text, "%d", &plans), 1);
  assert_int_equal(plans, 0);
}

static int by_size(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void warm_start(void **state) {
  (void)state;
  char text[256];
  double times[STARTS];
  const answer cold = ask("0");
  run("prebuild", "", text, sizeof(text));
  for (int i = 0; i < STARTS; ++i) {
    const answer a = ask("0");
    assert_int_equal(a.from_cache, 1);
    assert_int_equal(a.sum, cold.sum);
    times[i] = a.milliseconds;
  }
  qsort(times, STARTS, sizeof(*times), by_size);
  print_message("first call: %.1f ms cold, %.1f ms warm (median of %d, %.1f to %.1f)\n", cold.milliseconds,
                times[STARTS / 2], STARTS, times[0], times[STARTS - 1]);
  assert_true(times[STARTS / 2] <= MOST_MILLISECONDS);
}

static int make_folder(void **state) {
  (void)state;
  snprintf(folder, sizeof(folder), "%s/kernels", root);
  return 0;
}

static int remove_folder(void **state) {
  (void)state;
  remove_all(folder);
  return 0;
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(same_results, make_folder, remove_folder),
                                     cmocka_unit_test_setup_teardown(self_test_once, make_folder, remove_folder)};
  const struct CMUnitTest speed[] = {cmocka_unit_test_setup_teardown(warm_start, make_folder, remove_folder)};
  if (argc == 4 && strcmp(argv[1], "call") == 0)
    return call(argv[2], problems[argv[3][0] == '1']);
  if (argc == 3 && strcmp(argv[1], "prebuild") == 0)
    return prebuild(argv[2]);
  if (argc == 3 && strcmp(argv[1], "self") == 0)
    return self_test(argv[2]);
  const int fast = argc == 2 && strcmp(argv[1], "speed") == 0;
  program = argv[0];
  if (argc != 1 + fast || mkdtemp(root) == NULL)
    return 2;
  const int bad = fast ? cmocka_run_group_tests_name("warm start", speed, NULL, NULL)
                       : cmocka_run_group_tests_name("disk cache on a device", tests, NULL, NULL);
  remove_all(root);
  return bad != 0;
}
