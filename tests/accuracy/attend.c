/* SPDX-License-Identifier: Apache-2.0 */
/* Attention by every variant and by the reference, for accuracy.py:
 *
 *     accuracy_attend [--device ID] FOLDER...
 *
 * Each folder holds problem.txt, a problem line with all sizes and types, and q.npy, k.npy, v.npy, for i8 and i4 also
 * k_scale.npy and v_scale.npy: contiguous, f32 as f4, f16 as f2, bf16 as u2 (its bits), i8 and i4 as u1 (bytes).
 * Written there are reference.npy (f8) and VARIANT.npy (o's type) for each variant that takes the problem.  One line a
 * folder and variant on stdout: "FOLDER VARIANT ok" or "FOLDER VARIANT refused REASON".
 * Exit codes are the clattn program's: 1 failed, 2 wrong usage or files, 3 no device. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <clattn.h>
#include <clattn_ref.h>

#include "device.h"
#include "npy.h"

enum { OK = 0, FAILED = 1, USAGE = 2 }; /* cli_session_open adds 3 */

static int fail(int code, const char *format, ...) {
  va_list list;
  va_start(list, format);
  fputs("accuracy_attend: ", stderr);
  vfprintf(stderr, format, list);
  fputc('\n', stderr);
  va_end(list);
  return code;
}

/* A call of clattn or OpenCL; error (may be NULL) adds its message and the compiler's log. */
static int fail_status(clattn_status status, const clattn_error *error, const char *what) {
  const char *const log = error != NULL && error->build_log_length > 0 ? error->build_log : NULL;
  return fail(FAILED, "%s: %s: %s%s%s", what, clattn_status_name(status),
              error != NULL && error->message[0] != 0 ? error->message : clattn_status_text(status),
              log != NULL ? "\n" : "", log != NULL ? log : "");
}

/* "f4 (1, 2, 3, 4)" */
static const char *describe(const char *type, int rank, const int64_t *shape, char text[256]) {
  int length = snprintf(text, 256, "%s (", type);
  for (int i = 0; i < rank; i++)
    length += snprintf(text + length, 256 - (size_t)length, "%s%lld", i > 0 ? ", " : "", (long long)shape[i]);
  snprintf(text + length, 256 - (size_t)length, ")");
  return text;
}

enum { IN_Q, IN_K, IN_V, IN_K_SCALE, IN_V_SCALE, INPUTS };
static const char *const input_names[INPUTS] = {"q", "k", "v", "k_scale", "v_scale"};

typedef struct task {
  const char *folder;
  clattn_problem problem;
  clattn_npy in[INPUTS];
  cl_mem buffer[INPUTS];
  cl_mem out;
  int64_t shape[4]; /* of o */
  int64_t count;
  void *o; /* for either type of result */
} task;

static const char *npy_type(clattn_dtype dtype) {
  switch (dtype) {
  case CLATTN_F32:
    return "f4";
  case CLATTN_F16:
    return "f2";
  case CLATTN_BF16:
    return "u2";
  default:
    return "u1";
  }
}

static int path_of(const task *t, const char *name, const char *suffix, char *path, size_t capacity) {
  const int length = snprintf(path, capacity, "%s/%s%s", t->folder, name, suffix);
  return length > 0 && (size_t)length < capacity ? OK : fail(USAGE, "%s: the path is too long", t->folder);
}

static int read_problem(task *t) {
  char path[1024], line[512];
  clattn_error error;
  clattn_error_init(&error);
  int code = path_of(t, "problem", ".txt", path, sizeof path);
  if (code != OK)
    return code;
  FILE *file = fopen(path, "r");
  if (file == NULL)
    return fail(USAGE, "%s: can't be opened", path);
  const int there = fgets(line, sizeof line, file) != NULL;
  fclose(file);
  if (!there)
    return fail(USAGE, "%s: empty", path);
  line[strcspn(line, "\n")] = 0;
  clattn_status status = clattn_problem_parse(line, &t->problem, &error);
  if (status == CLATTN_SUCCESS)
    status = clattn_problem_check(&t->problem, &error);
  if (status != CLATTN_SUCCESS)
    return fail_status(status, &error, path);
  const clattn_problem *p = &t->problem;
  if (p->batch < 1 || p->q_heads < 1 || p->kv_heads < 1 || p->v_dim < 1)
    return fail(USAGE, "%s: b, hq, hkv and dv must be given", path);
  const int64_t shape[4] = {p->batch, p->q_heads, p->q_len, p->v_dim};
  t->count = 1;
  for (int i = 0; i < 4; i++) {
    t->shape[i] = shape[i];
    t->count *= shape[i];
  }
  return OK;
}

/* The last axis of an input in stored elements: i4 has two a byte, scales have one a group. */
static int64_t last_axis(const task *t, int which) {
  const clattn_problem *p = &t->problem;
  const int is_key = which == IN_K || which == IN_K_SCALE;
  const int64_t dim = which == IN_V || which == IN_V_SCALE ? p->v_dim : p->qk_dim;
  const clattn_dtype stored = is_key ? p->k.dtype : p->v.dtype;
  if (which == IN_K_SCALE || which == IN_V_SCALE)
    return stored == CLATTN_I4 ? (dim + 31) / 32 : 1;
  return which != IN_Q && stored == CLATTN_I4 ? (dim + 1) / 2 : dim;
}

static int wanted(const task *t, int which) {
  const clattn_dtype stored = which == IN_K_SCALE ? t->problem.k.dtype : t->problem.v.dtype;
  return which <= IN_V || stored == CLATTN_I8 || stored == CLATTN_I4;
}

static int open_input(task *t, int which) {
  const clattn_problem *p = &t->problem;
  const clattn_tensor *const tensors[INPUTS] = {&p->q, &p->k, &p->v, &p->k_scale, &p->v_scale};
  const int64_t shape[4] = {p->batch, which == IN_Q ? p->q_heads : p->kv_heads, which == IN_Q ? p->q_len : p->k_len,
                            last_axis(t, which)};
  const char *const type = npy_type(tensors[which]->dtype);
  clattn_npy *in = &t->in[which];
  char path[1024], message[512], need[256], have[256];
  int code = path_of(t, input_names[which], ".npy", path, sizeof path);
  if (code != OK)
    return code;
  if (clattn_npy_open(path, in, message, sizeof message) != 0)
    return fail(USAGE, "%s", message);
  int64_t stride = 1;
  int fits = strcmp(in->type, type) == 0 && in->rank == 4;
  for (int i = 3; i >= 0; i--) {
    fits = fits && in->shape[i] == shape[i] && (shape[i] <= 1 || in->stride[i] == stride);
    stride *= shape[i];
  }
  if (!fits)
    return fail(USAGE, "%s: must be %s in C order by problem.txt, is %s", path, describe(type, 4, shape, need),
                describe(in->type, in->rank, in->shape, have));
  return OK;
}

static int write_result(const task *t, const char *name, const char *type, const void *data) {
  char path[1024], message[512];
  const int code = path_of(t, name, ".npy", path, sizeof path);
  if (code == OK && clattn_npy_write(path, type, 4, t->shape, data, message, sizeof message) != 0)
    return fail(FAILED, "%s", message);
  return code;
}

static int run_reference(const task *t) {
  clattn_ref_args args;
  clattn_error error;
  clattn_error_init(&error);
  clattn_ref_args_init(&args);
  args.error = &error;
  args.q = t->in[IN_Q].data;
  args.k = t->in[IN_K].data;
  args.v = t->in[IN_V].data;
  args.k_scale = t->in[IN_K_SCALE].data;
  args.v_scale = t->in[IN_V_SCALE].data;
  args.o = t->o;
  const clattn_status status = clattn_ref_attention(&t->problem, &args);
  if (status != CLATTN_SUCCESS)
    return fail_status(status, &error, t->folder);
  return write_result(t, "reference", "f8", t->o);
}

static int run_variant(const task *t, const cli_session *session, const char *variant) {
  const size_t bytes = (size_t)t->count * clattn_npy_type_bytes(npy_type(t->problem.o.dtype));
  clattn_support support;
  clattn_plan_options options;
  clattn_plan *plan = NULL;
  clattn_args args;
  clattn_error error;
  char log[16384] = "";
  int code = OK;
  clattn_support_init(&support);
  const clattn_status fits = clattn_supported(session->context, &t->problem, variant, &support);
  if (fits == CLATTN_ERROR_VARIANT_UNFIT || fits == CLATTN_ERROR_NOT_SUPPORTED) {
    printf("%s %s refused %s\n", t->folder, variant, support.reason);
    return OK;
  }
  clattn_error_init(&error);
  error.build_log = log;
  error.build_log_capacity = sizeof log;
  clattn_plan_options_init(&options);
  options.variant = variant;
  clattn_status status = clattn_plan_create(session->context, &t->problem, &options, &plan, &error);
  if (status != CLATTN_SUCCESS) {
    code = fail_status(status, &error, variant);
    goto done;
  }
  /* 0xff: no type has a number there, so what a variant leaves out shows as NaN. */
  memset(t->o, 0xff, bytes);
  status = clEnqueueWriteBuffer(session->queue, t->out, CL_TRUE, 0, bytes, t->o, 0, NULL, NULL);
  if (status != CLATTN_SUCCESS) {
    code = fail_status(status, NULL, "clEnqueueWriteBuffer");
    goto done;
  }
  clattn_args_init(&args);
  args.error = &error;
  args.q = clattn_buffer(t->buffer[IN_Q], 0);
  args.k = clattn_buffer(t->buffer[IN_K], 0);
  args.v = clattn_buffer(t->buffer[IN_V], 0);
  args.k_scale = clattn_buffer(t->buffer[IN_K_SCALE], 0);
  args.v_scale = clattn_buffer(t->buffer[IN_V_SCALE], 0);
  args.o = clattn_buffer(t->out, 0);
  status = clattn_enqueue(plan, session->queue, &args, 0, NULL, NULL);
  if (status == CLATTN_SUCCESS)
    status = clEnqueueReadBuffer(session->queue, t->out, CL_TRUE, 0, bytes, t->o, 0, NULL, NULL);
  if (status != CLATTN_SUCCESS) {
    code = fail_status(status, &error, variant);
    goto done;
  }
  code = write_result(t, variant, npy_type(t->problem.o.dtype), t->o);
  if (code == OK)
    printf("%s %s ok\n", t->folder, variant);
done:
  clattn_plan_release(plan);
  return code;
}

static int run_folder(const char *folder, const cli_session *session) {
  task t;
  cl_int status = CL_SUCCESS;
  memset(&t, 0, sizeof t);
  t.folder = folder;
  int code = read_problem(&t);
  for (int i = 0; i < INPUTS && code == OK; i++) {
    if (wanted(&t, i))
      code = open_input(&t, i);
  }
  if (code != OK)
    goto done;
  if (t.count < 1) {
    code = fail(USAGE, "%s: the problem has no output", folder);
    goto done;
  }
  t.o = malloc((size_t)t.count * sizeof(double));
  if (t.o == NULL) {
    code = fail(FAILED, "out of memory");
    goto done;
  }
  for (int i = 0; i < INPUTS; i++) {
    if (!wanted(&t, i))
      continue;
    /* const is cast away for OpenCL's signature only: COPY_HOST_PTR reads. */
    t.buffer[i] = clCreateBuffer(session->cl, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, t.in[i].bytes,
                                 (void *)(uintptr_t)t.in[i].data, &status);
    if (status != CL_SUCCESS) {
      code = fail_status(status, NULL, "clCreateBuffer");
      goto done;
    }
  }
  t.out = clCreateBuffer(session->cl, CL_MEM_WRITE_ONLY,
                         (size_t)t.count * clattn_npy_type_bytes(npy_type(t.problem.o.dtype)), NULL, &status);
  if (status != CL_SUCCESS) {
    code = fail_status(status, NULL, "clCreateBuffer");
    goto done;
  }
  code = run_reference(&t);
  for (uint32_t i = 0; code == OK && clattn_variant_name(i) != NULL; i++)
    code = run_variant(&t, session, clattn_variant_name(i));
done:
  for (int i = 0; i < INPUTS; i++) {
    if (t.buffer[i] != NULL)
      clReleaseMemObject(t.buffer[i]);
    clattn_npy_close(&t.in[i]);
  }
  if (t.out != NULL)
    clReleaseMemObject(t.out);
  free(t.o);
  return code;
}

int main(int argc, char **argv) {
  const char *wanted_device = NULL;
  int first = 1;
  if (argc > 2 && strcmp(argv[1], "--device") == 0) {
    wanted_device = argv[2];
    first = 3;
  }
  if (first >= argc || argv[first][0] == '-')
    return fail(USAGE, "usage: accuracy_attend [--device ID] FOLDER...");
  cli_session session;
  int code = cli_session_open(wanted_device, &session);
  if (code != OK)
    return code;
  printf("device %s, %s, %s\n", session.info.name, session.info.version, session.info.driver);
  printf("clattn %s\n", clattn_version());
  for (int i = first; i < argc && code == OK; i++)
    code = run_folder(argv[i], &session);
  cli_session_close(&session);
  return code;
}
