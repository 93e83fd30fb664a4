/* SPDX-License-Identifier: Apache-2.0 */
/* A device that is not there, by facts from a file. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <cjson/cJSON.h>

#include "cli.h"
#include "record.h"
#include "sweep.h"
#include "table.h"
#include "text.h"

static const char option[] = "device-facts";

/* A number of the object, from least to most. */
static int take_number(const char *path, const cJSON *object, const char *key, double least, double most, int needed,
                       double *out) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
  if (item == NULL && !needed)
    return CLI_OK;
  if (item == NULL || !cJSON_IsNumber(item) || !(item->valuedouble >= least && item->valuedouble <= most))
    return cli_fail(CLI_USAGE, "--%s: %s: \"%s\" must be a number from %g to %g", option, path, key, least, most);
  *out = item->valuedouble;
  return CLI_OK;
}

static int take_flag(const char *path, const cJSON *object, const char *key, uint32_t *out) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
  if (item == NULL || !cJSON_IsBool(item))
    return cli_fail(CLI_USAGE, "--%s: %s: \"%s\" must be true or false", option, path, key);
  *out = cJSON_IsTrue(item) != 0;
  return CLI_OK;
}

static int take_text(const char *path, const cJSON *object, const char *key, char *out, size_t capacity) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
  if (item == NULL || !cJSON_IsString(item))
    return cli_fail(CLI_USAGE, "--%s: %s: \"%s\" must be a text", option, path, key);
  snprintf(out, capacity, "%s", item->valuestring);
  return CLI_OK;
}

static int take_type(const char *path, const cJSON *object, uint64_t *out) {
  static const struct {
    const char *word;
    cl_device_type type;
  } types[] = {{"cpu", CL_DEVICE_TYPE_CPU}, {"gpu", CL_DEVICE_TYPE_GPU}, {"accelerator", CL_DEVICE_TYPE_ACCELERATOR}};
  char word[32];
  const int code = take_text(path, object, "type", word, sizeof word);
  if (code != CLI_OK)
    return code;
  for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
    if (strcasecmp(types[i].word, word) == 0) {
      *out = types[i].type;
      return CLI_OK;
    }
  return cli_fail(CLI_USAGE, "--%s: %s: \"type\" is '%s', not cpu, gpu or accelerator", option, path, word);
}

static int take_peaks(const char *path, const cJSON *object, bench_peaks *peaks) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, "peaks");
  double launch = 0;
  if (item == NULL)
    return CLI_OK;
  if (!cJSON_IsObject(item))
    return cli_fail(CLI_USAGE, "--%s: %s: \"peaks\" must be an object", option, path);
  int code = take_number(path, item, "fma_flops", 1, 1e18, 1, &peaks->fma_flops);
  if (code == CLI_OK)
    code = take_number(path, item, "memory_bytes", 1, 1e15, 1, &peaks->memory_bytes);
  if (code == CLI_OK)
    code = take_number(path, item, "launch_ns", 0, 1e9, 0, &launch);
  peaks->launch_ns = (int64_t)launch;
  return code;
}

static int take_facts(const char *path, const cJSON *object, clattn_device_info *info, bench_context *context) {
  const double most32 = 4294967295.0, most53 = 9007199254740991.0;
  double units = 0, width = 0, group = 0, global = 0, largest = 0, local = 0, align = 0, bits = 0, parameters = 1024;
  double amx = CLATTN_AMX_NONE;
  const struct {
    const char *key;
    double least, most;
    int needed;
    double *to;
  } numbers[] = {{"compute_units", 1, most32, 1, &units},
                 {"native_float_width", 0, 64, 1, &width},
                 {"max_work_group", 1, most32, 1, &group},
                 {"global_bytes", 1, most53, 1, &global},
                 {"max_alloc_bytes", 1, most53, 1, &largest},
                 {"local_bytes", 0, most53, 1, &local},
                 {"base_align_bytes", 1, most32, 1, &align},
                 {"address_bits", 32, 64, 1, &bits},
                 {"max_parameter_bytes", 256, most32, 0, &parameters},
                 {"amx", CLATTN_AMX_NONE, CLATTN_AMX_USABLE, 0, &amx}};
  const struct {
    const char *key;
    uint32_t *to;
  } flags[] = {{"local_is_real", &info->local_is_real},
               {"fp16", &info->has_fp16},
               {"sub_groups", &info->has_sub_groups},
               {"out_of_order", &info->out_of_order},
               {"little_endian", &info->little_endian}};
  const struct {
    const char *key;
    char *to;
    size_t capacity;
  } texts[] = {{"name", info->name, sizeof info->name},
               {"vendor", info->vendor, sizeof info->vendor},
               {"driver", info->driver, sizeof info->driver},
               {"version", info->version, sizeof info->version},
               {"id", context->device_id, sizeof context->device_id},
               {"platform", context->platform, sizeof context->platform}};
  int code = take_type(path, object, &info->type);
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0] && code == CLI_OK; i++)
    code =
        take_number(path, object, numbers[i].key, numbers[i].least, numbers[i].most, numbers[i].needed, numbers[i].to);
  for (size_t i = 0; i < sizeof flags / sizeof flags[0] && code == CLI_OK; i++)
    code = take_flag(path, object, flags[i].key, flags[i].to);
  for (size_t i = 0; i < sizeof texts / sizeof texts[0] && code == CLI_OK; i++)
    code = take_text(path, object, texts[i].key, texts[i].to, texts[i].capacity);
  if (code != CLI_OK)
    return code;
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
    if (*numbers[i].to != floor(*numbers[i].to))
      return cli_fail(CLI_USAGE, "--%s: %s: \"%s\" is %g, no whole number", option, path, numbers[i].key,
                      *numbers[i].to);
  info->compute_units = (uint32_t)units;
  info->native_float_width = (uint32_t)width;
  info->max_work_group = (uint32_t)group;
  info->global_bytes = (uint64_t)global;
  info->max_alloc_bytes = (uint64_t)largest;
  info->local_bytes = (uint64_t)local;
  info->base_align_bytes = (uint32_t)align;
  info->address_bits = (uint32_t)bits;
  info->max_parameter_bytes = (uint32_t)parameters;
  info->amx = (clattn_amx)amx;
  return take_peaks(path, object, &context->peaks);
}

/* The file's one device, alone or as 'clattn devices --json' prints it. */
static int read_facts(const char *path, clattn_device_info *info, bench_context *context) {
  char *text = NULL;
  size_t length = 0;
  int code = cli_read_file(option, path, &text, &length);
  if (code != CLI_OK)
    return code;
  cJSON *root = cJSON_ParseWithLength(text, length);
  const cJSON *list = cJSON_IsArray(root) ? root : cJSON_GetObjectItemCaseSensitive(root, "devices");
  const int count = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 1;
  const cJSON *device = cJSON_IsArray(list) ? cJSON_GetArrayItem(list, 0) : root;
  if (count > 1)
    code = cli_fail(CLI_USAGE, "--%s: %s: %d devices; leave one in it", option, path, count);
  else
    code = cJSON_IsObject(device) ? take_facts(path, device, info, context)
                                  : cli_fail(CLI_USAGE, "--%s: %s: no object with a device's facts", option, path);
  cJSON_Delete(root);
  free(text);
  return code;
}

static int simulate_row(bench_run *run, bench_table *table, const clattn_device_info *info, const bench_shape *shape,
                        const char *variant) {
  clattn_support support;
  bench_row *row = bench_run_add(run);
  if (row == NULL)
    return CLI_FAILED;
  clattn_support_init(&support);
  row->shape = *shape;
  row->status = BENCH_SKIPPED;
  snprintf(row->pass, sizeof row->pass, "forward");
  const clattn_status status = clattn_supported_on(info, &shape->problem, variant, &support);
  snprintf(row->variant, sizeof row->variant, "%s",
           status == CLATTN_SUCCESS ? support.variant
           : variant != NULL        ? variant
                                    : "");
  if (run->context.peaks.fma_flops > 0)
    row->predicted_seconds = bench_predict(shape, &run->context.peaks);
  if (status == CLATTN_SUCCESS && row->predicted_seconds > 0)
    snprintf(row->reason, sizeof row->reason, "simulated: predicted %.3g ms; %.180s", row->predicted_seconds * 1e3,
             support.reason);
  else
    snprintf(row->reason, sizeof row->reason, "simulated: %.220s", support.reason);
  bench_table_row(table, row);
  return CLI_OK;
}

int bench_simulate(const bench_request *request, const char *facts, bench_run *run) {
  clattn_device_info info;
  bench_table table;
  memset(run, 0, sizeof *run);
  clattn_device_info_init(&info);
  int code = read_facts(facts, &info, &run->context);
  if (code != CLI_OK)
    return code;
  bench_context *c = &run->context;
  c->simulated = 1;
  bench_describe_host(request, c);
  bench_describe_device(&info, c);
  fprintf(stderr, "clattn %s, simulated: %s, driver %s, %u compute units\n", c->clattn, c->device, c->driver,
          c->compute_units);
  bench_table_begin(&table, stdout, request->shapes.shape, request->shapes.count);
  for (size_t i = 0; i < request->shapes.count && code == CLI_OK; i++) {
    if (!request->all_variants)
      for (int v = 0; v < request->variants && code == CLI_OK; v++)
        code = simulate_row(run, &table, &info, &request->shapes.shape[i],
                            strcmp(request->variant[v], "best") == 0 ? NULL : request->variant[v]);
    for (uint32_t v = 0; request->all_variants && clattn_variant_name(v) != NULL && code == CLI_OK; v++)
      code = simulate_row(run, &table, &info, &request->shapes.shape[i], clattn_variant_name(v));
  }
  bench_table_end(&table, run);
  return code;
}
