/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "report.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "convert.h"
#include "options.h"

static void print_explanation(const cli_pass *pass) {
  const clattn_plan_info *info = &pass->info;
  const char *summary = "";
  for (uint32_t i = 0; clattn_variant_name(i) != NULL; i++) {
    if (clattn_variant_name(i) == info->variant)
      summary = clattn_variant_summary(i);
  }
  printf("problem     %s\n", info->line);
  printf("variant     %s: %s\n", info->variant, summary);
  printf("why         %s\n", info->why);
  printf("tile        %" PRIu32 " queries x %" PRIu32 " keys, %" PRIu32 " row blocks, %" PRIu32 " launches\n",
         info->tile_q, info->tile_k, info->row_blocks, info->launches);
  printf("workspace   %" PRIu64 " bytes\n", info->workspace_bytes);
  printf("work        %" PRIu64 " pairs, %.4g flops, %.4g bytes\n", info->pairs, (double)info->flops,
         (double)info->bytes);
  printf("peak memory %.1f MB (this process)\n", cli_peak_megabytes());
}

static void print_check(const cli_pass *pass, const cli_verification *check) {
  printf("verify      %" PRId64 " of %" PRId64 " rows against %s: max |difference|", check->rows, check->of,
         check->against != NULL ? check->against : "the double-precision reference");
  for (int i = 0; i < CLI_OUTPUTS; i++) {
    if (check->compared[i])
      printf("  %s %.3g%s", cli_result_name(pass, i), check->difference[i], check->beyond[i] > 0 ? " (TOO LARGE)" : "");
  }
  printf("\n");
}

/* Shape of q, k or v as its file has it; returns the rank. */
static int main_shape(const clattn_problem *problem, int input, int64_t shape[4]) {
  const int packed = input == CLI_Q ? cli_packed_q(problem) : cli_packed_k(problem);
  cli_input_shape(problem, input, shape);
  if (packed || (input != CLI_Q && cli_paged(problem))) {
    const int64_t rows = shape[2];
    shape[2] = shape[1];
    shape[1] = rows;
  }
  if (packed)
    memmove(shape, shape + 1, 3 * sizeof shape[0]);
  return packed ? 3 : 4;
}

void cli_report_text(const cli_report *report, int explain) {
  static const char *const names[] = {"q", "k", "v"};
  const clattn_problem *problem = &report->request->problem;
  char text[128];
  for (int i = CLI_Q; i <= CLI_V; i++) {
    int64_t shape[4];
    const int rank = main_shape(problem, i, shape);
    printf("%s%s %s", i > 0 ? "   " : "shapes      ", names[i], cli_shape_text(rank, shape, text, sizeof text));
  }
  printf("   (batch, heads, rows, dim)%s%s\n",
         cli_packed_q(problem) || cli_packed_k(problem) ? ", packed (rows, heads, dim)" : "",
         cli_paged(problem) ? ", pages (pages, page size, heads, dim)" : "");
  const clattn_dtype dtypes[4] = {problem->q.dtype, problem->k.dtype, problem->v.dtype, problem->o.dtype};
  if (dtypes[0] != CLATTN_F32 || dtypes[1] != CLATTN_F32 || dtypes[2] != CLATTN_F32 || dtypes[3] != CLATTN_F32)
    printf("types       q %s   k %s   v %s   o %s\n", cli_dtype_name(dtypes[0]), cli_dtype_name(dtypes[1]),
           cli_dtype_name(dtypes[2]), cli_dtype_name(dtypes[3]));
  printf("device      %s  %s\n", report->session->device.id, report->session->info.name);
  for (int p = 0; p < report->count; p++) {
    const cli_pass *pass = &report->passes[p];
    if (explain)
      print_explanation(pass);
    else
      printf("variant     %s\n", pass->info.variant);
    printf("time        %.3g s (first run)", pass->seconds);
    if (pass->info.build_seconds > 0)
      printf(", %.3g s to build the kernels", pass->info.build_seconds);
    printf("\n");
    for (int i = 0; i < CLI_OUTPUTS; i++) {
      const cli_result *result = &pass->result[i];
      cli_statistics s;
      int64_t shape[4];
      /* Scores and weights are in files or in the heat map. */
      if (result->data == NULL || i == CLI_SCORES)
        continue;
      cli_result_statistics(result, &s);
      const int rank = cli_result_shape(pass, i, shape);
      printf("%-11s %s  min %.6g  max %.6g  mean %.6g", cli_result_name(pass, i),
             cli_shape_text(rank, shape, text, sizeof text), cli_unsigned_nan(s.least), cli_unsigned_nan(s.most),
             cli_unsigned_nan(s.mean));
      if (s.not_finite > 0)
        printf("  (%" PRIu64 " of %" PRIu64 " NaN or infinite)", s.not_finite, s.count);
      printf("\n");
    }
    if (report->checks != NULL)
      print_check(pass, &report->checks[p]);
  }
  for (int i = 0; report->files != NULL && i < CLI_MAX_FILES; i++) {
    const cli_file *file = &report->files->file[i];
    if (file->path != NULL)
      printf("wrote       %s  %s %s\n", file->path, file->type,
             cli_shape_text(file->rank, file->shape, text, sizeof text));
  }
  if (report->dump != NULL)
    printf("dumped      %s  %" PRIu32 " %s\n", report->dump, report->dump_launches,
           report->dump_launches == 1 ? "launch" : "launches");
}

static void add_shape(cJSON *object, const char *name, int rank, const int64_t *shape) {
  cJSON *array = cJSON_AddArrayToObject(object, name);
  for (int i = 0; i < rank; i++)
    cJSON_AddItemToArray(array, cJSON_CreateNumber((double)shape[i]));
}

/* JSON has neither NaN nor infinity: null. */
static void add_number(cJSON *object, const char *name, double value) {
  if (isfinite(value))
    cJSON_AddNumberToObject(object, name, value);
  else
    cJSON_AddNullToObject(object, name);
}

static void add_check(cJSON *object, const cli_pass *pass, const cli_verification *check) {
  cJSON *o = cJSON_AddObjectToObject(object, "verify");
  cJSON_AddBoolToObject(o, "ok", cli_verified(check));
  cJSON_AddStringToObject(o, "against", check->against != NULL ? check->against : "reference");
  cJSON_AddNumberToObject(o, "rows", (double)check->rows);
  cJSON_AddNumberToObject(o, "of", (double)check->of);
  cJSON *difference = cJSON_AddObjectToObject(o, "max_abs_difference");
  for (int i = 0; i < CLI_OUTPUTS; i++) {
    if (check->compared[i])
      add_number(difference, cli_result_name(pass, i), check->difference[i]);
  }
  cJSON *overflown = cJSON_AddObjectToObject(o, "not_finite_but_in_reference");
  for (int i = 0; i < CLI_OUTPUTS; i++) {
    if (check->compared[i])
      cJSON_AddNumberToObject(overflown, cli_result_name(pass, i), (double)check->overflown[i]);
  }
}

static void add_pass(cJSON *array, const cli_pass *pass, const cli_verification *check) {
  const clattn_plan_info *info = &pass->info;
  cJSON *o = cJSON_CreateObject();
  cJSON_AddItemToArray(array, o);
  cJSON_AddStringToObject(o, "problem", info->line);
  cJSON_AddStringToObject(o, "variant", info->variant);
  cJSON_AddStringToObject(o, "why", info->why);
  const int64_t tile[2] = {info->tile_q, info->tile_k};
  add_shape(o, "tile", 2, tile);
  cJSON_AddNumberToObject(o, "row_blocks", info->row_blocks);
  cJSON_AddNumberToObject(o, "launches", info->launches);
  cJSON_AddNumberToObject(o, "workspace_bytes", (double)info->workspace_bytes);
  cJSON_AddNumberToObject(o, "pairs", (double)info->pairs);
  cJSON_AddNumberToObject(o, "flops", (double)info->flops);
  cJSON_AddNumberToObject(o, "bytes", (double)info->bytes);
  cJSON_AddNumberToObject(o, "seconds", pass->seconds);
  cJSON_AddNumberToObject(o, "build_seconds", info->build_seconds);
  cJSON_AddBoolToObject(o, "from_cache", info->from_cache != 0);
  cJSON *results = cJSON_AddObjectToObject(o, "results");
  for (int i = 0; i < CLI_OUTPUTS; i++) {
    const cli_result *result = &pass->result[i];
    cli_statistics s;
    if (result->data == NULL)
      continue;
    cli_result_statistics(result, &s);
    cJSON *r = cJSON_AddObjectToObject(results, cli_result_name(pass, i));
    int64_t shape[4];
    const int rank = cli_result_shape(pass, i, shape);
    add_shape(r, "shape", rank, shape);
    add_number(r, "min", s.least);
    add_number(r, "max", s.most);
    add_number(r, "mean", s.mean);
    cJSON_AddNumberToObject(r, "not_finite", (double)s.not_finite);
  }
  if (check != NULL)
    add_check(o, pass, check);
}

int cli_report_json(const cli_report *report) {
  static const char *const names[] = {"q", "k", "v"};
  cJSON *root = cJSON_CreateObject();
  cJSON_AddStringToObject(root, "clattn", clattn_version());
  cJSON *device = cJSON_AddObjectToObject(root, "device");
  cJSON_AddStringToObject(device, "id", report->session->device.id);
  cJSON_AddStringToObject(device, "name", report->session->info.name);
  cJSON *shapes = cJSON_AddObjectToObject(root, "shapes");
  for (int i = CLI_Q; i <= CLI_V; i++) {
    int64_t shape[4];
    const int rank = main_shape(&report->request->problem, i, shape);
    add_shape(shapes, names[i], rank, shape);
  }
  const clattn_problem *problem = &report->request->problem;
  cJSON *types = cJSON_AddObjectToObject(root, "types");
  cJSON_AddStringToObject(types, "q", cli_dtype_name(problem->q.dtype));
  cJSON_AddStringToObject(types, "k", cli_dtype_name(problem->k.dtype));
  cJSON_AddStringToObject(types, "v", cli_dtype_name(problem->v.dtype));
  cJSON_AddStringToObject(types, "o", cli_dtype_name(problem->o.dtype));
  cJSON *runs = cJSON_AddArrayToObject(root, "runs");
  for (int p = 0; p < report->count; p++)
    add_pass(runs, &report->passes[p], report->checks != NULL ? &report->checks[p] : NULL);
  cJSON *files = cJSON_AddArrayToObject(root, "files");
  for (int i = 0; report->files != NULL && i < CLI_MAX_FILES; i++) {
    const cli_file *file = &report->files->file[i];
    if (file->path == NULL)
      continue;
    cJSON *f = cJSON_CreateObject();
    cJSON_AddItemToArray(files, f);
    cJSON_AddStringToObject(f, "option", file->option);
    cJSON_AddStringToObject(f, "path", file->path);
    cJSON_AddStringToObject(f, "type", file->type);
    add_shape(f, "shape", file->rank, file->shape);
  }
  if (report->dump != NULL) {
    cJSON *dump = cJSON_AddObjectToObject(root, "dump");
    cJSON_AddStringToObject(dump, "path", report->dump);
    cJSON_AddNumberToObject(dump, "launches", report->dump_launches);
  }
  cJSON_AddNumberToObject(root, "peak_memory_mb", cli_peak_megabytes());
  const int code = cli_print_json(root);
  cJSON_Delete(root);
  return code;
}
