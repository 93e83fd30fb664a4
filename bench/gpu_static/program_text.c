/* SPDX-License-Identifier: Apache-2.0 */
/* clattn-program-text: what the library would give a device's compiler, for compilers that run elsewhere.
 *
 *   clattn-program-text VARIANT "PROBLEM LINE" [fp16=0|1] [local=BYTES] [group=ITEMS]
 *
 * prints the compiler options on a line, then the source with all its headers, for a GPU of such facts.  Exit codes: 0;
 * 1 the variant refuses the problem on such a device; 2 wrong usage. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clattn.h"
#include "program.h"
#include "problem.h"
#include "select.h"

enum { FINE, REFUSED, USAGE };

static const char usage[] =
    "usage: clattn-program-text VARIANT \"PROBLEM LINE\" [fp16=0|1] [local=BYTES] [group=ITEMS]\n";

/* A GPU with as much of everything as the ones that are compiled for. */
static void a_gpu(clattn_device_info *device) {
  clattn_device_info_init(device);
  device->type = CL_DEVICE_TYPE_GPU;
  device->global_bytes = (uint64_t)16 << 30;
  device->max_alloc_bytes = (uint64_t)4 << 30;
  device->local_bytes = (uint64_t)48 << 10;
  device->compute_units = 64;
  device->max_work_group = 1024;
  device->native_float_width = 1;
  device->base_align_bytes = 128;
  device->local_is_real = 1;
  device->little_endian = 1;
  device->address_bits = 64;
  device->max_parameter_bytes = 4096;
}

/* Takes NAME=NUMBER; 0: it is none. */
static int take_fact(const char *word, clattn_device_info *device) {
  const char *const at = strchr(word, '=');
  char *end = NULL;
  if (at == NULL || at[1] < '0' || at[1] > '9')
    return 0;
  const unsigned long number = strtoul(at + 1, &end, 10);
  if (*end != 0)
    return 0;
  if (strncmp(word, "fp16=", 5) == 0)
    device->has_fp16 = number != 0;
  else if (strncmp(word, "local=", 6) == 0)
    device->local_bytes = number;
  else if (strncmp(word, "group=", 6) == 0)
    device->max_work_group = (uint32_t)number;
  else
    return 0;
  return 1;
}

int main(int argc, char **argv) {
  clattn_device_info device;
  clattn_problem problem, resolved;
  clattn_error error;
  clattni_choice choice;
  clattni_program_text text;
  a_gpu(&device);
  for (int i = 3; i < argc; ++i)
    if (!take_fact(argv[i], &device))
      argc = 0;
  if (argc < 3) {
    fputs(usage, stderr);
    return USAGE;
  }
  clattn_error_init(&error);
  if (clattn_problem_parse(argv[2], &problem, &error) != CLATTN_SUCCESS ||
      clattn_problem_check(&problem, &error) != CLATTN_SUCCESS) {
    fprintf(stderr, "clattn-program-text: %s\n", error.message);
    return USAGE;
  }
  clattni_problem_resolve(&problem, &resolved);
  const clattni_request request = {.problem = &resolved, .device = &device, .variant = argv[1]};
  if (clattni_select(&request, &choice, &error) != CLATTN_SUCCESS) {
    fprintf(stderr, "clattn-program-text: %s\n", error.message);
    return REFUSED;
  }
  if (!clattni_program_text_of(choice.variant->file, choice.options, NULL, &text)) {
    fprintf(stderr, "clattn-program-text: no source of kernels/%s.cl, or too many options\n", choice.variant->file);
    return REFUSED;
  }
  printf("%s\n", text.options);
  for (cl_uint i = 0; i < text.count; ++i)
    printf("%.*s", (int)text.size[i], text.text[i]);
  return FINE;
}
