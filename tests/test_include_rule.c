/* SPDX-License-Identifier: Apache-2.0 */
/* The include rule: which file may include which.  Every quoted or angled include of the tree is read and looked up. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* host/lib: a module and the modules just below it.  It may include those and whatever they may include. */
typedef struct rule {
  const char *module, *below;
} rule;
static const rule rules[] = {
    {"os", ""},
    {"memory", ""},
    {"hash", ""},
    {"cache", "os memory hash"},
    {"status", ""},
    {"dtype", ""},
    {"problem", "os status dtype"},
    {"ref", "problem"},
    {"device", "status"},
    {"tuning", "status dtype"},
    {"select", "problem device tuning"},
    {"launch", "select"},
    {"hook", "status memory"},
    {"program", "cache device hook"},
    {"verdict", "os memory"},
    {"context", "program tuning verdict"},
    {"plan", "select program context"},
    {"place", "context"},
    {"enqueue", "launch plan place"},
    {"merge", "place"},
    {"prebuild", "enqueue"},
    {"self", "enqueue"}, /* self_test.c */
    {"trial", "self ref"},
};
enum { NUM_RULES = sizeof rules / sizeof rules[0] };

static const char c_headers[] = "assert.h ctype.h errno.h float.h inttypes.h limits.h math.h stdarg.h stdatomic.h "
                                "stdbool.h stddef.h stdint.h stdio.h stdlib.h string.h CL/cl.h OpenCL/opencl.h";
static const char public_headers[] = "clattn.h clattn_ref.h clattn_launches.h clattn_nn.h";
/* Of host/lib what needs no device (the units' own tests); of host/cli npy.h, affinity.h, convert.h, device.h and pictures. */
static const char test_headers[] =
    "status.h dtype.h os.h hash.h problem_internal.h problem.h select.h tuning.h launch.h hook.h npy.h "
    "affinity.h convert.h device.h params.cl.h stub.h stub/stub.h self_test_cases.h trial.h picture.h "
    "picture_back.h picture_colour.h picture_layout.h picture_unicode.h heatmap.h";

/* Of host/model, for the program and the tests. */
static const char model_headers[] =
    "bert.h config.h model_error.h model_file.h model_json.h safetensors.h vocab.h wordpiece.h";

/* Whether `word` is one of the words of `list`. */
static int listed(const char *list, const char *word) {
  size_t length = strlen(word);
  for (const char *p = list; (p = strstr(p, word)) != NULL; p += length) {
    if ((p == list || p[-1] == ' ') && (p[length] == 0 || p[length] == ' ')) {
      return 1;
    }
  }
  return 0;
}

/* "problem_check.c" -> "problem": a module may be several files. */
static void module_of(const char *file, char module[64]) {
  size_t length = strcspn(file, "_.");
  assert_true(length < 64);
  memcpy(module, file, length);
  module[length] = 0;
}

static const rule *find_rule(const char *module) {
  for (int i = 0; i < NUM_RULES; i++) {
    if (strcmp(rules[i].module, module) == 0) {
      return &rules[i];
    }
  }
  return NULL;
}

static int may_include(const char *module, const char *other) {
  const rule *r = find_rule(module);
  if (r == NULL || find_rule(other) == NULL) {
    return 0;
  }
  if (strcmp(module, other) == 0 || listed(r->below, other)) {
    return 1;
  }
  for (int i = 0; i < NUM_RULES; i++) {
    if (listed(r->below, rules[i].module) && may_include(rules[i].module, other)) {
      return 1;
    }
  }
  return 0;
}

static int exists_in(const char *folder, const char *name) {
  char path[1024];
  snprintf(path, sizeof path, "%s/%s/%s", CLATTN_SOURCE_DIR, folder, name);
  FILE *file = fopen(path, "rb");
  if (file == NULL) {
    return 0;
  }
  fclose(file);
  return 1;
}

/* Whether `file` in `folder` may have this include. */
static int allowed(const char *folder, const char *file, const char *include, int quoted) {
  if (strncmp(folder, "kernels", 7) == 0) { /* paths begin in kernels/ */
    return quoted && strstr(include, ".cl.h") != NULL && exists_in("kernels", include) &&
           (strcmp(folder, "kernels") != 0 || strchr(include, '/') == NULL);
  }
  if (strcmp(folder, "host/nn") == 0) { /* of libclattn its public interface, and the one file with system calls */
    if (quoted) {
      return exists_in(folder, include) || listed("clattn.h clattn_nn.h os.h nn_kernels_embedded.h", include) ||
             (strncmp(include, "nn/", 3) == 0 && exists_in("kernels", include));
    }
    return listed(c_headers, include) || (strcmp(file, "clblast.c") == 0 && listed("clblast_c.h", include));
  }
  if (strcmp(folder, "host/include") == 0) {
    return listed(c_headers, include) || listed(public_headers, include);
  }
  if (strcmp(folder, "host/lib") == 0) {
    char module[64], other[64];
    module_of(file, module);
    if (!quoted) {
      return listed(c_headers, include) || strcmp(module, "os") == 0;
    }
    if (listed(public_headers, include)) {
      return 1;
    }
    if (strcmp(include, "kernels_embedded.h") == 0) {
      return strcmp(module, "program") == 0;
    }
    if (strcmp(include, "params.cl.h") == 0) {
      return may_include(module, "select");
    }
    module_of(include, other);
    return may_include(module, other);
  }
  if (strcmp(folder, "host/model") == 0) { /* no OpenCL but in bert.*; operating-system calls in model_file.c alone */
    if (quoted) {
      return exists_in(folder, include) || (strncmp(file, "bert", 4) == 0 && listed(public_headers, include));
    }
    return listed("cjson/cJSON.h utf8proc.h", include) || strcmp(file, "model_file.c") == 0 ||
           (listed(c_headers, include) && strchr(include, '/') == NULL);
  }
  if (!quoted || listed(public_headers, include) || exists_in(folder, include)) {
    return 1;
  }
  if (strcmp(folder, "host/bench") == 0) { /* a part of the program */
    return exists_in("host/cli", include) || listed(model_headers, include) ||
           listed("bench_kernels_embedded.h suites_embedded.h", include);
  }
  if (strcmp(folder, "bench") == 0 && strcmp(include, "affinity.h") == 0) {
    return 1;
  }
  if (strcmp(folder, "host/cli") == 0 && strncmp(include, "bench/", 6) == 0) {
    return exists_in("host", include);
  }
  if (strcmp(folder, "tests") == 0 && strncmp(file, "test_bench", 10) == 0) {
    return exists_in("host/bench", include) || exists_in("host/cli", include);
  }
  if ((strcmp(folder, "host/cli") == 0 || strcmp(folder, "bench") == 0 || strncmp(folder, "tests", 5) == 0) &&
      listed(model_headers, include)) {
    return 1;
  }
  return strncmp(folder, "tests", 5) == 0 && listed(test_headers, include);
}

static int check_file(const char *folder, const char *file) {
  char path[1024], line[2048], include[256];
  int bad = 0;
  snprintf(path, sizeof path, "%s/%s/%s", CLATTN_SOURCE_DIR, folder, file);
  FILE *in = fopen(path, "r");
  assert_non_null(in);
  while (fgets(line, sizeof line, in) != NULL) {
    char open = 0;
    if (sscanf(line, " # include %c%255[^>\"\n]", &open, include) != 2 || (open != '"' && open != '<')) {
      continue;
    }
    if (!allowed(folder, file, include, open == '"')) {
      print_error("%s/%s may not include %s\n", folder, file, include);
      bad++;
    }
  }
  fclose(in);
  return bad;
}

static int has_suffix(const char *name, const char *suffix) {
  size_t n = strlen(name), m = strlen(suffix);
  return n > m && strcmp(name + n - m, suffix) == 0;
}

static void check_folder(const char *folder, int at_least) {
  char path[1024];
  snprintf(path, sizeof path, "%s/%s", CLATTN_SOURCE_DIR, folder);
  DIR *dir = opendir(path);
  int files = 0, bad = 0;
  assert_non_null(dir);
  for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
    if (has_suffix(entry->d_name, ".c") || has_suffix(entry->d_name, ".h") || has_suffix(entry->d_name, ".cl")) {
      bad += check_file(folder, entry->d_name);
      files++;
    }
  }
  closedir(dir);
  assert_int_equal(bad, 0);
  assert_true(files >= at_least);
}

static void test_rule_itself(void **state) {
  (void)state;
  assert_true(may_include("select", "status"));
  assert_true(may_include("enqueue", "problem"));
  assert_false(may_include("problem", "select"));
  assert_false(may_include("launch", "plan"));
  assert_false(may_include("device", "problem"));
  assert_false(may_include("ref", "device"));
  assert_true(allowed("host/lib", "os.c", "pthread.h", 0));
  assert_false(allowed("host/lib", "plan.c", "pthread.h", 0));
  assert_false(allowed("host/lib", "problem_text.c", "plan.h", 1));
  assert_false(allowed("host/cli", "main.c", "plan.h", 1));
  assert_false(allowed("host/model", "config.c", "unistd.h", 0));
  assert_false(allowed("host/model", "config.c", "CL/cl.h", 0));
  assert_false(allowed("host/model", "config.c", "clattn.h", 1));
  assert_true(allowed("host/cli", "main.c", "safetensors.h", 1));
  assert_true(allowed("host/nn", "linear.c", "nn/linear_params.cl.h", 1));
  assert_false(allowed("host/nn", "linear.c", "status.h", 1));
  assert_false(allowed("host/nn", "linear.c", "params.cl.h", 1));
  assert_false(allowed("kernels", "softmax.cl.h", "nn/activation.cl.h", 1));
  assert_false(allowed("bench", "bench.c", "problem.h", 1));
  assert_false(allowed("tests", "test_device.c", "plan.h", 1));
  assert_true(allowed("tests", "test_device.c", "select.h", 1));
}

static void test_tree(void **state) {
  (void)state;
  check_folder("host/include", 2);
  check_folder("host/lib", 20);
  check_folder("host/cli", 2);
  check_folder("host/model", 7);
  check_folder("host/nn", 10);
  check_folder("host/bench", 10);
  check_folder("kernels", 2);
  check_folder("kernels/nn", 4);
  check_folder("kernels/bench", 1);
  check_folder("tests", 5);
  check_folder("tests/clients", 3);
  check_folder("tests/stub", 1);
  check_folder("tests/accuracy", 1);
  check_folder("tests/fuzz", 3);
  check_folder("bench", 1);
  check_folder("examples", 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_rule_itself), cmocka_unit_test(test_tree)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
