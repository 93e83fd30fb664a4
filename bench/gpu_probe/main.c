/* SPDX-License-Identifier: Apache-2.0 */
/* What a driver does where documents and other drivers don't tell.  One question a process, so that a driver that crashes
 * or hangs takes one answer with it: scripts/collect-gpu asks them all, with a time limit each. */
#define _POSIX_C_SOURCE 200809L
#include <cjson/cJSON.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "probe.h"

static const char help[] =
    "usage: gpu_probe [--device ID] QUESTION\n"
    "       gpu_probe --list\n"
    "\n"
    "Answers a question about an OpenCL device, as JSON on stdout: question, text, device, answer, detail, build_log,\n"
    "seconds.  What makes no sense there is answered with \"not asked: why\".\n"
    "\n"
    "  --device ID   an id or number of 'clattn devices'; default: GPUs before accelerators before CPUs\n"
    "  --list        the questions' names, one a line\n"
    "  --help        this text\n"
    "\n"
    "Exit code: 0 answered, whatever the answer; 1 OpenCL failed, and the answer says where; 2 wrong usage; 3 no "
    "device.\n";

static const probe_question *const lists[] = {probe_plain, probe_vendor};
enum { LISTS = sizeof lists / sizeof lists[0] };

static const probe_question *find(const char *name) {
  for (int i = 0; i < LISTS; i++)
    for (const probe_question *q = lists[i]; q->name != NULL; q++)
      if (strcmp(q->name, name) == 0)
        return q;
  return NULL;
}

/* Code, or a failure where the disk is full. */
static int flush(int code) {
  return fflush(stdout) == 0 && ferror(stdout) == 0 ? code : cli_fail(CLI_FAILED, "standard output can't be written");
}

static int print_list(void) {
  for (int i = 0; i < LISTS; i++)
    for (const probe_question *q = lists[i]; q->name != NULL; q++)
      puts(q->name);
  return flush(CLI_OK);
}

static int print(const probe *p, const probe_question *question, double seconds) {
  int code = CLI_FAILED;
  cJSON *root = cJSON_CreateObject();
  char *text = NULL;
  cJSON_AddStringToObject(root, "question", question->name);
  cJSON_AddStringToObject(root, "text", question->text);
  cJSON_AddStringToObject(root, "device", p->session.device.name);
  cJSON_AddStringToObject(root, "answer", p->answer);
  cJSON_AddStringToObject(root, "detail", p->detail);
  cJSON_AddStringToObject(root, "build_log", p->log != NULL ? p->log : "");
  cJSON_AddNumberToObject(root, "seconds", seconds);
  text = cJSON_Print(root);
  if (text != NULL) {
    puts(text);
    code = flush(p->failed ? CLI_FAILED : CLI_OK);
  } else {
    cli_fail_memory();
  }
  cJSON_free(text);
  cJSON_Delete(root);
  return code;
}

static void close_probe(probe *p) {
  for (int i = 0; i < p->buffers; i++)
    (void)clReleaseMemObject(p->buffer[i]);
  if (p->kernel != NULL)
    (void)clReleaseKernel(p->kernel);
  if (p->program != NULL)
    (void)clReleaseProgram(p->program);
  free(p->log);
  cli_session_close(&p->session);
}

int main(int argc, char **argv) {
  static const struct option longs[] = {{"device", required_argument, NULL, 'd'},
                                        {"list", no_argument, NULL, 'l'},
                                        {"help", no_argument, NULL, 'h'},
                                        {NULL, 0, NULL, 0}};
  static probe p;
  const char *device = NULL;
  int option;
  while ((option = getopt_long(argc, argv, "", longs, NULL)) != -1) {
    if (option == 'd') {
      device = optarg;
    } else if (option == 'h') {
      fputs(help, stdout);
      return flush(CLI_OK);
    } else if (option == 'l') {
      return print_list();
    } else {
      return CLI_USAGE;
    }
  }
  if (argc != optind + 1)
    return cli_fail(CLI_USAGE, "gpu_probe takes one question, not %d; 'gpu_probe --list' has them", argc - optind);
  const probe_question *question = find(argv[optind]);
  if (question == NULL)
    return cli_fail(CLI_USAGE, "unknown question '%.100s'; 'gpu_probe --list' has them", argv[optind]);
  int code = cli_session_open(device, &p.session);
  if (code != CLI_OK)
    return code;
  p.device = p.session.device.device;
  if (clGetDeviceInfo(p.device, CL_DEVICE_EXTENSIONS, sizeof p.extensions, p.extensions, NULL) != CL_SUCCESS)
    p.extensions[0] = 0;
  const double begin = probe_seconds();
  question->ask(&p);
  code = print(&p, question, probe_seconds() - begin);
  close_probe(&p);
  return code;
}
