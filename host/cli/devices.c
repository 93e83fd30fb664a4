/* SPDX-License-Identifier: Apache-2.0 */
/* clattn devices: what is there, what of it is usable, and which variants run on it. */
#define _POSIX_C_SOURCE 200809L
#include <cjson/cJSON.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli.h"
#include "device.h"
#include "options.h"

static const char help[] =
    "usage: clattn devices [--json] [--require TEXT] [--self-test [--cache FOLDER]]\n"
    "\n"
    "Lists the OpenCL devices with the ids that --device takes, the facts that the choice of kernels uses, and the\n"
    "variants that run there (on a small fp32 problem; the first is the one that would be picked).\n"
    "\n"
    "  --json          for programs\n"
    "  --require TEXT  only devices whose id, name or vendor contains TEXT, whatever the case\n"
    "  --self-test     run every variant on small problems with known results; takes as long as building the kernels\n"
    "  --cache FOLDER  keep the self-test's verdicts and the kernels there: what has a verdict does not run again\n"
    "  --help          this text\n"
    "\n"
    "Exit code: 0; 1 when a self-test fails; 3 when no usable device is there or none matches TEXT.\n"
    "\n"
    "examples:\n"
    "  clattn devices\n"
    "  clattn devices --require nvidia && run-the-gpu-tests\n"
    "  clattn devices --require pocl:0 --self-test\n"
    "  clattn devices --json\n";

static const char *type_name(uint64_t type) {
  if (type & CL_DEVICE_TYPE_GPU)
    return "GPU";
  if (type & CL_DEVICE_TYPE_ACCELERATOR)
    return "accelerator";
  if (type & CL_DEVICE_TYPE_CPU)
    return "CPU";
  return "other";
}

/* The small problem that the listed variants are asked about. */
static void small_problem(clattn_problem *problem) {
  clattn_problem_init(problem);
  problem->q_len = 64;
  problem->k_len = 64;
  problem->qk_dim = 64;
}

/* Calls visit for every variant that runs on the device, the picked one first; returns their number. */
static uint32_t each_variant(clattn_context *context, void (*visit)(void *user, const char *name, uint32_t index),
                             void *user) {
  clattn_problem problem;
  clattn_support picked, support;
  uint32_t found = 0;
  const char *name;
  small_problem(&problem);
  clattn_support_init(&picked);
  if (clattn_supported(context, &problem, NULL, &picked) == CLATTN_SUCCESS)
    visit(user, picked.variant, found++);
  for (uint32_t i = 0; (name = clattn_variant_name(i)) != NULL; i++) {
    clattn_support_init(&support);
    /* Names are static storage of the library: the same name is the same pointer. */
    if (name != picked.variant && clattn_supported(context, &problem, name, &support) == CLATTN_SUCCESS)
      visit(user, name, found++);
  }
  return found;
}

static void print_variant(void *user, const char *name, uint32_t index) {
  (void)user;
  printf("%s%s", index > 0 ? ", " : "", name);
}

static void add_variant(void *array, const char *name, uint32_t index) {
  (void)index;
  cJSON_AddItemToArray(array, cJSON_CreateString(name));
}

static void count_variant(void *user, const char *name, uint32_t index) {
  (void)user;
  (void)name;
  (void)index;
}

/* What the self-test says of a device: printed, and added to the device's JSON (NULL: none).  Returns the exit code. */
static int self_test(const cli_device *device, const cli_session *session, cJSON *json) {
  clattn_error error;
  int code = cli_error_init(&error);
  if (code != CLI_OK)
    return code;
  cli_progress_begin("self-test", NULL, 0);
  const clattn_status status = clattn_self_test(session->context, &error);
  cli_progress_end();
  if (json != NULL)
    cJSON_AddStringToObject(json, "self_test",
                            status == CLATTN_SUCCESS ? "passed"
                            : error.message[0] != 0  ? error.message
                                                     : clattn_status_name(status));
  else if (status == CLATTN_SUCCESS)
    printf("  self-test passed: %" PRIu32 " variants\n", each_variant(session->context, count_variant, NULL));
  else
    printf("  self-test failed\n");
  if (status != CLATTN_SUCCESS) {
    cli_fail_status(status, &error, device->id);
    code = CLI_FAILED;
  }
  cli_error_release(&error);
  return code;
}

static void print_device(const cli_device *device, const cli_session *session) {
  const clattn_device_info *info = &session->info;
  printf("%-10s %s\n", device->id, device->name);
  printf("  platform    %s\n  vendor      %s\n  driver      %s, %s\n", device->platform_name, info->vendor,
         info->driver, info->version);
  printf("  compute     %s, %" PRIu32 " units, float vectors of %" PRIu32 ", work-groups up to %" PRIu32 "\n",
         type_name(info->type), info->compute_units, info->native_float_width, info->max_work_group);
  printf("  memory      %.1f GiB, largest allocation %.1f GiB, local %" PRIu64 " KiB%s\n",
         (double)info->global_bytes / (1 << 30), (double)info->max_alloc_bytes / (1 << 30), info->local_bytes / 1024,
         info->local_is_real ? "" : " (emulated)");
  printf("  extras      fp16 %s, sub-groups %s, out-of-order queues %s%s\n", info->has_fp16 ? "yes" : "no",
         info->has_sub_groups ? "yes" : "no", info->out_of_order ? "yes" : "no",
         info->amx == CLATTN_AMX_USABLE    ? ", AMX (flash-cpu-amx for bf16)"
         : info->amx == CLATTN_AMX_REFUSED ? ", AMX refused by the operating system"
                                           : "");
  printf("  variants    ");
  if (each_variant(session->context, print_variant, NULL) == 0)
    printf("none");
  printf("\n");
}

static cJSON *add_device(cJSON *array, const cli_device *device, const cli_session *session, const char *why_not) {
  const clattn_device_info *info = &session->info;
  cJSON *o = cJSON_CreateObject();
  cJSON_AddItemToArray(array, o);
  cJSON_AddStringToObject(o, "id", device->id);
  cJSON_AddStringToObject(o, "name", device->name);
  cJSON_AddStringToObject(o, "vendor", device->vendor);
  cJSON_AddStringToObject(o, "platform", device->platform_name);
  cJSON_AddBoolToObject(o, "usable", why_not == NULL);
  if (why_not != NULL) {
    cJSON_AddStringToObject(o, "reason", why_not);
    return o;
  }
  cJSON_AddStringToObject(o, "driver", info->driver);
  cJSON_AddStringToObject(o, "version", info->version);
  cJSON_AddStringToObject(o, "type", type_name(info->type));
  cJSON_AddNumberToObject(o, "compute_units", info->compute_units);
  cJSON_AddNumberToObject(o, "native_float_width", info->native_float_width);
  cJSON_AddNumberToObject(o, "max_work_group", info->max_work_group);
  cJSON_AddNumberToObject(o, "global_bytes", (double)info->global_bytes);
  cJSON_AddNumberToObject(o, "max_alloc_bytes", (double)info->max_alloc_bytes);
  cJSON_AddNumberToObject(o, "local_bytes", (double)info->local_bytes);
  cJSON_AddBoolToObject(o, "local_is_real", (cJSON_bool)info->local_is_real);
  cJSON_AddNumberToObject(o, "base_align_bytes", info->base_align_bytes);
  cJSON_AddBoolToObject(o, "fp16", (cJSON_bool)info->has_fp16);
  cJSON_AddBoolToObject(o, "sub_groups", (cJSON_bool)info->has_sub_groups);
  cJSON_AddBoolToObject(o, "out_of_order", (cJSON_bool)info->out_of_order);
  cJSON_AddBoolToObject(o, "little_endian", (cJSON_bool)info->little_endian);
  cJSON_AddNumberToObject(o, "address_bits", info->address_bits);
  cJSON_AddNumberToObject(o, "max_parameter_bytes", info->max_parameter_bytes);
  cJSON_AddNumberToObject(o, "amx", info->amx);
  each_variant(session->context, add_variant, cJSON_AddArrayToObject(o, "variants"));
  return o;
}

int cli_devices(int argc, char **argv) {
  static const struct option longs[] = {
      {"json", no_argument, NULL, 'j'},      {"require", required_argument, NULL, 'r'},
      {"self-test", no_argument, NULL, 's'}, {"cache", required_argument, NULL, 'c'},
      {"help", no_argument, NULL, 'h'},      {NULL, 0, NULL, 0}};
  const char *require = NULL, *cache = NULL;
  int json = 0, tested = 0, failed = CLI_OK, option, code;
  size_t count = 0, usable = 0;
  cli_device *list = NULL;
  cJSON *root = NULL, *array = NULL;
  while ((option = cli_next_option(argc, argv, longs)) != -1) {
    if (option == 'j')
      json = 1;
    else if (option == 'r')
      require = optarg;
    else if (option == 's')
      tested = 1;
    else if (option == 'c')
      cache = optarg;
    else if (option == 'h')
      return cli_print_help(help);
    else
      return CLI_USAGE;
  }
  if (cache != NULL && !tested)
    return cli_fail(CLI_USAGE, "--cache goes with --self-test: nothing else builds kernels");
  cli_cache_use(cache);
  code = cli_device_list(&list, &count);
  if (code != CLI_OK)
    return code;
  if (json) {
    root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "clattn", clattn_version());
    array = cJSON_AddArrayToObject(root, "devices");
  }
  for (size_t i = 0; i < count; i++) {
    cli_session session;
    clattn_error error;
    cJSON *o = NULL;
    if (require != NULL && !cli_device_matches(&list[i], require))
      continue;
    clattn_error_init(&error);
    const clattn_status status = cli_session_try(&list[i], &session, &error);
    const char *why_not = NULL;
    if (status != CLATTN_SUCCESS)
      why_not = error.message[0] != 0 ? error.message : clattn_status_name(status);
    usable += why_not == NULL;
    if (json)
      o = add_device(array, &list[i], &session, why_not);
    else if (why_not == NULL)
      print_device(&list[i], &session);
    else
      printf("%-10s %s\n  not usable  %s\n", list[i].id, list[i].name, why_not);
    if (tested && why_not == NULL && self_test(&list[i], &session, o) != CLI_OK)
      failed = CLI_FAILED;
    cli_session_close(&session);
  }
  if (json)
    code = cli_print_json(root);
  if (usable == 0 && require != NULL && count > 0)
    code = cli_fail(CLI_NO_DEVICE, "no usable device matches '%s'", require);
  else if (usable == 0)
    code = cli_fail_status(CLATTN_ERROR_NO_DEVICE, NULL, "devices");
  else if (code == CLI_OK)
    code = failed;
  cJSON_Delete(root);
  free(list);
  return code;
}
