/* SPDX-License-Identifier: Apache-2.0 */
/* clattn merge: attention over parts of the keys put together. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "device.h"
#include "options.h"
#include "outputs.h"

static const char help[] =
    "usage: clattn merge --part O.npy,LSE.npy [--part O.npy,LSE.npy ...] [--out F] [--lse F] [options]\n"
    "\n"
    "Merges attention that was computed over disjoint sets of keys, as 'clattn run --out O.npy --lse LSE.npy' writes "
    "it,\n"
    "into attention over all of them: outputs are weighted by exp(lse).\n"
    "\n"
    "  --part O.npy,LSE.npy  f4 arrays of a part: outputs (..., dim) of rank 1 to 4, and the log-sum-exp (...) of "
    "their\n"
    "                        rows.  All parts have the same shapes, and are added in the order given.  A row without\n"
    "                        keys has lse -inf, and its output does not count; a sink is output 0, lse = sink\n"
    "  --out F               the merged output (.npy)\n"
    "  --lse F               its log-sum-exp (.npy); one of the two must be given, and all are written, or none\n"
    "  --device ID           an id or number of 'clattn devices'; default: GPUs before accelerators before CPUs\n"
    "  --help                this text\n"
    "\n"
    "Exit codes: 0 done; 1 the work failed; 2 wrong usage or input; 3 no device; 130, 143 and 129 ended by SIGINT,\n"
    "SIGTERM and SIGHUP.\n"
    "\n"
    "examples:\n"
    "  clattn run --q q.npy --k k0.npy --v v0.npy --out o0.npy --lse lse0.npy\n"
    "  clattn run --q q.npy --k k1.npy --v v1.npy --out o1.npy --lse lse1.npy\n"
    "  clattn merge --part o0.npy,lse0.npy --part o1.npy,lse1.npy --out o.npy --lse lse.npy\n";

enum { MOST_AXES = 4, FILE_OUT = 0, FILE_LSE, LEAST_BYTES = 64 /* buffers can't be empty */ };

typedef struct part {
  char *paths[2]; /* of o and lse; one piece of memory */
  clattn_npy npy[2];
} part;

typedef struct merge_options {
  part *parts;
  size_t count;
  cli_files files;
  const char *device;
} merge_options;

/* The merged arrays' place on the device. */
typedef struct memory {
  cl_mem in[2], out[2];
  float *result[2];
} memory;

static int take_part(merge_options *o, const char *text) {
  const char *comma = strchr(text, ',');
  if (comma == NULL || comma == text || comma[1] == 0 || strchr(comma + 1, ',') != NULL)
    return cli_fail(CLI_USAGE, "--part takes two files, as in o.npy,lse.npy; not '%s'", text);
  part *p = &o->parts[o->count];
  p->paths[0] = strdup(text);
  if (p->paths[0] == NULL)
    return cli_fail_memory();
  o->count++;
  p->paths[0][comma - text] = 0;
  p->paths[1] = p->paths[0] + (comma - text) + 1;
  return CLI_OK;
}

static const struct option longs[] = {{"part", required_argument, NULL, 'p'}, {"out", required_argument, NULL, 'o'},
                                      {"lse", required_argument, NULL, 'l'},  {"device", required_argument, NULL, 'd'},
                                      {"help", no_argument, NULL, 'h'},       {NULL, 0, NULL, 0}};

/* Takes every --part out of argv, since other options may be given once only; `rest` (argc + 1 pointers) gets the
 * others, with the values that belong to them. */
static int take_parts(merge_options *o, int argc, char **argv, char **rest, int *rest_count) {
  static const char name[] = "--part";
  int count = 0, code = CLI_OK;
  for (int i = 0; i < argc && code == CLI_OK; i++) {
    const char *word = argv[i];
    int with_value = 0;
    if (strcmp(word, name) == 0 && i + 1 < argc) {
      code = take_part(o, argv[++i]);
      continue;
    }
    if (strncmp(word, "--part=", sizeof name) == 0) {
      code = take_part(o, word + sizeof name);
      continue;
    }
    for (const struct option *known = longs; known->name != NULL; known++)
      with_value |=
          known->has_arg == required_argument && strncmp(word, "--", 2) == 0 && strcmp(word + 2, known->name) == 0;
    rest[count++] = argv[i];
    if (with_value && i + 1 < argc)
      rest[count++] = argv[++i];
  }
  rest[count] = NULL;
  *rest_count = count;
  return code;
}

/* ---- files
 * --------------------------------------------------------------------------------------------------------- */

static int open_array(const char *path, clattn_npy *npy) {
  char message[512];
  if (clattn_npy_open(path, npy, message, sizeof message) != 0)
    return cli_fail(CLI_USAGE, "--part: %s", message);
  if (strcmp(npy->type, "f4") != 0)
    return cli_fail(CLI_USAGE, "--part: %s: type %s is not accepted here; it must be f4", path, npy->type);
  return CLI_OK;
}

static int same_shape(const clattn_npy *a, const clattn_npy *b, int rank) {
  for (int axis = 0; axis < rank; axis++) {
    if (a->shape[axis] != b->shape[axis])
      return 0;
  }
  return 1;
}

static int open_parts(merge_options *o) {
  int code = CLI_OK;
  char text[2][128];
  if (o->count == 0)
    return cli_fail(CLI_USAGE, "merge: there is no --part; see 'clattn merge --help'");
  if (o->files.file[FILE_OUT].path == NULL && o->files.file[FILE_LSE].path == NULL)
    return cli_fail(CLI_USAGE, "merge: neither --out nor --lse is given; see 'clattn merge --help'");
  for (size_t i = 0; i < o->count && code == CLI_OK; i++) {
    part *p = &o->parts[i];
    const clattn_npy *values = &p->npy[0], *lse = &p->npy[1], *first = &o->parts[0].npy[0];
    code = open_array(p->paths[0], &p->npy[0]);
    if (code == CLI_OK)
      code = open_array(p->paths[1], &p->npy[1]);
    if (code != CLI_OK)
      break;
    if (values->rank < 1 || values->rank > MOST_AXES)
      return cli_fail(CLI_USAGE, "--part: %s: %d axes; it must have 1 to %d", p->paths[0], values->rank, MOST_AXES);
    if (values->shape[values->rank - 1] < 1)
      return cli_fail(CLI_USAGE, "--part: %s: shape %s; the last axis must be at least 1", p->paths[0],
                      cli_shape_text(values->rank, values->shape, text[0], sizeof text[0]));
    if (lse->rank != values->rank - 1 || !same_shape(lse, values, lse->rank))
      return cli_fail(CLI_USAGE,
                      "--part: %s of shape %s does not fit %s of shape %s: it must be the same but for the "
                      "last axis",
                      p->paths[1], cli_shape_text(lse->rank, lse->shape, text[0], sizeof text[0]), p->paths[0],
                      cli_shape_text(values->rank, values->shape, text[1], sizeof text[1]));
    if (values->rank != first->rank || !same_shape(values, first, first->rank))
      return cli_fail(CLI_USAGE, "--part: %s of shape %s and %s of shape %s are not of one shape", o->parts[0].paths[0],
                      cli_shape_text(first->rank, first->shape, text[0], sizeof text[0]), p->paths[0],
                      cli_shape_text(values->rank, values->shape, text[1], sizeof text[1]));
  }
  return code;
}

static int begin_files(merge_options *o) {
  const char **inputs = calloc(2 * o->count + 1, sizeof *inputs);
  if (inputs == NULL)
    return cli_fail_memory();
  for (size_t i = 0; i < 2 * o->count; i++)
    inputs[i] = o->parts[i / 2].paths[i % 2];
  const int code = cli_files_begin(&o->files, inputs, 2 * o->count);
  free(inputs);
  return code;
}

/* Strides of the array in C order; returns whether it lies so. */
static int c_order(const clattn_npy *npy, int64_t stride[MOST_AXES]) {
  int64_t compact = 1;
  int lies_so = 1;
  for (int axis = npy->rank - 1; axis >= 0; axis--) {
    stride[axis] = compact;
    lies_so &= npy->shape[axis] == 1 || npy->stride[axis] == compact;
    compact *= npy->shape[axis];
  }
  return lies_so;
}

/* What an array of Fortran order is in C order. */
static void reorder(const clattn_npy *npy, float *to) {
  const float *from = npy->data;
  const size_t count = npy->bytes / sizeof *to;
  int64_t at[MOST_AXES] = {0};
  for (size_t i = 0; i < count; i++) {
    int64_t offset = 0;
    for (int axis = 0; axis < npy->rank; axis++)
      offset += at[axis] * npy->stride[axis];
    to[i] = from[offset];
    for (int axis = npy->rank - 1; axis >= 0 && ++at[axis] == npy->shape[axis]; axis--)
      at[axis] = 0;
  }
}

/* ---- the device
 * ---------------------------------------------------------------------------------------------------- */

static int make_buffer(const cli_session *session, cl_mem_flags flags, size_t count, size_t bytes, const char *name,
                       cl_mem *out) {
  const uint64_t most = session->info.max_alloc_bytes;
  cl_int status = CL_SUCCESS;
  if (bytes > 0 && count > most / bytes)
    return cli_fail(CLI_FAILED,
                    "%s: %zu times %zu bytes are larger than the device's largest allocation of %" PRIu64 " bytes",
                    name, count, bytes, most);
  bytes *= count;
  *out = clCreateBuffer(session->cl, flags, bytes > LEAST_BYTES ? bytes : LEAST_BYTES, NULL, &status);
  if (status != CL_SUCCESS) {
    *out = NULL;
    return cli_fail(CLI_FAILED, "a buffer of %zu bytes for %s could not be made: %s", bytes, name,
                    clattn_status_name(status));
  }
  return CLI_OK;
}

/* One array of every part, one after the other. */
static int upload(const cli_session *session, const merge_options *o, int which, cl_mem to) {
  const size_t bytes = o->parts[0].npy[which].bytes;
  cl_int status = CL_SUCCESS;
  if (bytes == 0)
    return CLI_OK;
  char *mapped =
      clEnqueueMapBuffer(session->queue, to, CL_TRUE, CL_MAP_WRITE, 0, o->count * bytes, 0, NULL, NULL, &status);
  for (size_t i = 0; i < o->count && status == CL_SUCCESS; i++) {
    const clattn_npy *npy = &o->parts[i].npy[which];
    int64_t stride[MOST_AXES];
    void *place = mapped + i * bytes;
    if (c_order(npy, stride))
      memcpy(place, npy->data, bytes);
    else
      reorder(npy, place);
  }
  if (status == CL_SUCCESS)
    status = clEnqueueUnmapMemObject(session->queue, to, mapped, 0, NULL, NULL);
  return status == CL_SUCCESS
             ? CLI_OK
             : cli_fail(CLI_FAILED, "the parts could not be copied to the device: %s", clattn_status_name(status));
}

/* Merges and waits. */
static int compute(const cli_session *session, const merge_options *o, const memory *m) {
  const clattn_npy *first = &o->parts[0].npy[0];
  clattn_merge_args args;
  clattn_error error;
  int code = cli_error_init(&error);
  if (code != CLI_OK)
    return code;
  clattn_merge_args_init(&args);
  args.error = &error;
  args.parts = (int64_t)o->count;
  args.v_dim = first->shape[first->rank - 1];
  args.rows = 1;
  for (int axis = 0; axis + 1 < first->rank; axis++)
    args.rows *= first->shape[axis];
  args.part_o = clattn_buffer(m->in[0], 0);
  args.part_lse = clattn_buffer(m->in[1], 0);
  args.o = clattn_buffer(m->out[0], 0);
  args.lse = clattn_buffer(m->out[1], 0);
  cli_progress_begin("merging", NULL, 0);
  clattn_status status = clattn_merge(session->context, session->queue, &args, 0, NULL, NULL);
  const int merged = status == CLATTN_SUCCESS;
  if (merged)
    status = clFinish(session->queue);
  cli_progress_end();
  if (status != CLATTN_SUCCESS)
    code = cli_fail_status(status, &error, merged ? "the computation failed on the device" : "merge");
  cli_error_release(&error);
  return code;
}

static int fetch(const cli_session *session, merge_options *o, int which, memory *m) {
  const clattn_npy *npy = &o->parts[0].npy[which];
  int64_t stride[MOST_AXES];
  m->result[which] = malloc(npy->bytes > 0 ? npy->bytes : 1);
  if (m->result[which] == NULL)
    return cli_fail_memory();
  if (npy->bytes > 0) {
    const cl_int status =
        clEnqueueReadBuffer(session->queue, m->out[which], CL_TRUE, 0, npy->bytes, m->result[which], 0, NULL, NULL);
    if (status != CL_SUCCESS)
      return cli_fail(CLI_FAILED, "the result could not be read back: %s", clattn_status_name(status));
  }
  c_order(npy, stride);
  return cli_files_put(&o->files.file[which], "f4", npy->rank, npy->shape, stride, m->result[which]);
}

static int work(merge_options *o, cli_session *session, memory *m) {
  static const char *const names[2] = {"the outputs", "the log-sum-exps"};
  char text[128];
  int code = open_parts(o);
  if (code == CLI_OK)
    code = begin_files(o);
  if (code == CLI_OK)
    code = cli_session_open(o->device, session);
  for (int which = 0; which < 2 && code == CLI_OK; which++) {
    const size_t bytes = o->parts[0].npy[which].bytes;
    const int wanted = o->files.file[which].path != NULL;
    if (wanted || which == FILE_LSE)
      code = make_buffer(session, CL_MEM_READ_ONLY, o->count, bytes, names[which], &m->in[which]);
    if (code == CLI_OK && m->in[which] != NULL)
      code = upload(session, o, which, m->in[which]);
    if (code == CLI_OK && wanted)
      code = make_buffer(session, CL_MEM_WRITE_ONLY, 1, bytes, names[which], &m->out[which]);
  }
  if (code == CLI_OK)
    code = compute(session, o, m);
  for (int which = 0; which < 2 && code == CLI_OK; which++) {
    if (m->out[which] != NULL)
      code = fetch(session, o, which, m);
  }
  if (code != CLI_OK)
    return code;
  printf("merged      %zu parts\n", o->count);
  printf("device      %s  %s\n", session->device.id, session->info.name);
  for (int which = 0; which < 2; which++) {
    const cli_file *file = &o->files.file[which];
    if (file->path != NULL)
      printf("wrote       %s  f4 %s\n", file->path, cli_shape_text(file->rank, file->shape, text, sizeof text));
  }
  /* A report that nobody gets is a failure too, and then the old files stay. */
  code = cli_flush(code);
  return code == CLI_OK ? cli_files_commit(&o->files) : code;
}

int cli_merge(int argc, char **argv) {
  merge_options o;
  cli_session session;
  memory m;
  int option, rest_count = 0, code = CLI_OK;
  memset(&o, 0, sizeof o);
  memset(&session, 0, sizeof session);
  memset(&m, 0, sizeof m);
  o.files.file[FILE_OUT].option = "out";
  o.files.file[FILE_LSE].option = "lse";
  o.parts = calloc((size_t)argc, sizeof *o.parts);
  char **rest = calloc((size_t)argc + 1, sizeof *rest);
  if (o.parts == NULL || rest == NULL) {
    code = cli_fail_memory();
    goto done;
  }
  code = take_parts(&o, argc, argv, rest, &rest_count);
  if (code != CLI_OK)
    goto done;
  while ((option = cli_next_option(rest_count, rest, longs)) != -1) {
    if (option == 'o' || option == 'l')
      o.files.file[option == 'o' ? FILE_OUT : FILE_LSE].path = optarg;
    else if (option == 'd')
      o.device = optarg;
    else
      code = option == 'h'   ? cli_print_help(help)
             : option == 'p' ? cli_fail(CLI_USAGE, "merge: --part must be written in full")
                             : CLI_USAGE;
    if (option != 'o' && option != 'l' && option != 'd')
      goto done;
  }
  code = work(&o, &session, &m);
done:
  for (int which = 0; which < 2; which++) {
    if (m.in[which] != NULL)
      clReleaseMemObject(m.in[which]);
    if (m.out[which] != NULL)
      clReleaseMemObject(m.out[which]);
    free(m.result[which]);
  }
  cli_session_close(&session);
  cli_files_discard(&o.files);
  for (size_t i = 0; i < o.count; i++) {
    clattn_npy_close(&o.parts[i].npy[0]);
    clattn_npy_close(&o.parts[i].npy[1]);
    free(o.parts[i].paths[0]);
  }
  free(o.parts);
  free(rest);
  return code;
}
