/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "dump.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clattn_launches.h"
#include "cli.h"
#include "convert.h"
#include "verify.h"

enum { BUFFERS_MOST = 64, UNWRITTEN = 0xff /* of floats a NaN */ };

static const char readme[] =
    "The kernel launches of one attention problem, dumped by clattn %s: everything that the driver was given, and "
    "what\n"
    "it should have computed.  Nothing of clattn is needed to read it.\n"
    "\n"
    "problem   %s\n"
    "variant   %s, %" PRIu32 " launches\n"
    "device    %s, driver %s\n"
    "platform  %s\n"
    "\n"
    "manifest.json         all of the below: launches in order with kernel, range and every argument, and the outputs\n"
    "                      with shape, strides (in elements) and tolerances; \"format_version\" is %d\n"
    "program.cl            OpenCL C, one file; its build options are in the manifest\n"
    "program.bin           the driver's binary of it, where the driver gives one\n"
    "NAME.bin              a buffer before the first launch, byte by byte.  Buffers without a file are filled with "
    "one\n"
    "                      byte, the manifest's \"fill\"\n"
    "NAME.reference.bin    what is expected: float64, rows of (batch, head, query) one after the other\n"
    "NAME.rows.bin         int64, the numbers of these rows, where they are not all; row ((b * heads) + h) * queries + "
    "i\n"
    "NAME.device.bin       the buffer behind the last launch, as the device above left it.  Not there: the device did "
    "not\n"
    "                      get so far\n"
    "\n"
    "To run it again and see the first difference, on this device, another one, or with other options or source:\n"
    "  clattn replay THIS-FOLDER\n"
    "  clattn replay THIS-FOLDER --device ID          (clattn devices lists them)\n"
    "  clattn replay THIS-FOLDER --build-options '-cl-opt-disable OPTIONS-OF-THE-MANIFEST'\n"
    "program.cl may be edited.  Without clattn: build program.cl with the manifest's options, make the buffers, set "
    "the\n"
    "arguments in order (\"bytes\" as they are, little end first where byte_order says so), and enqueue the launches "
    "one\n"
    "behind the other.\n";

typedef struct dump {
  const cli_session *session;
  const cli_pass *pass;
  cli_folder *folder;
  cJSON *root, *buffers, *launches, *outputs;
  cl_mem seen[BUFFERS_MOST];
  int seen_output[BUFFERS_MOST]; /* which result lies there; -1: none */
  int count;
  cl_mem workspace;
  int code;
} dump;

/* ---- pieces of the manifest ---- */

static void add_or_null(cJSON *object, const char *name, double value) {
  if (isfinite(value))
    cJSON_AddNumberToObject(object, name, value);
  else
    cJSON_AddNullToObject(object, name);
}

static void add_numbers(cJSON *object, const char *name, int count, const int64_t *values) {
  cJSON *array = cJSON_AddArrayToObject(object, name);
  for (int i = 0; i < count; i++)
    cJSON_AddItemToArray(array, cJSON_CreateNumber((double)values[i]));
}

/* Writes a file, and says so in the manifest. */
static int put_file(dump *d, cJSON *object, const char *key, const char *name, const void *data, size_t bytes) {
  char hash[CLI_FOLDER_HASH_TEXT];
  const int code = cli_folder_write(d->folder, name, data, bytes, hash);
  cJSON *file = cJSON_AddObjectToObject(object, key);
  cJSON_AddStringToObject(file, "name", name);
  cJSON_AddNumberToObject(file, "bytes", (double)bytes);
  cJSON_AddStringToObject(file, "fnv1a64", hash);
  return code;
}

/* Under a temporary name first: a folder with a manifest is a whole dump. */
static int put_manifest(dump *d) {
  char *text = cJSON_Print(d->root);
  if (text == NULL)
    return cli_fail_memory();
  int code = cli_folder_write(d->folder, "manifest.json.new", text, strlen(text), NULL);
  if (code == CLI_OK)
    code = cli_folder_replace(d->folder, "manifest.json", "manifest.json.new");
  cJSON_free(text);
  return code;
}

static int read_back(const dump *d, cl_mem buffer, const char *name, char **data, size_t *bytes) {
  cl_int status = clGetMemObjectInfo(buffer, CL_MEM_SIZE, sizeof *bytes, bytes, NULL);
  *data = NULL;
  if (status == CL_SUCCESS) {
    *data = malloc(*bytes);
    if (*data == NULL)
      return cli_fail_memory();
    status = clEnqueueReadBuffer(d->session->queue, buffer, CL_TRUE, 0, *bytes, *data, 0, NULL, NULL);
  }
  if (status == CL_SUCCESS)
    return CLI_OK;
  free(*data);
  *data = NULL;
  return cli_fail(CLI_FAILED, "--dump: %s could not be read back: %s", name, clattn_status_name(status));
}

/* ---- the program ---- */

static void put_program_binary(dump *d, cl_program program, cJSON *object) {
  cl_uint devices = 0;
  size_t bytes = 0;
  unsigned char *binary = NULL;
  /* The program is of a context with one device, or its first one has none: then there is no binary to keep. */
  if (clGetProgramInfo(program, CL_PROGRAM_NUM_DEVICES, sizeof devices, &devices, NULL) == CL_SUCCESS && devices == 1 &&
      clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, NULL) == CL_SUCCESS && bytes > 0)
    binary = malloc(bytes);
  if (binary != NULL && clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL) == CL_SUCCESS)
    d->code = put_file(d, object, "binary", "program.bin", binary, bytes);
  else
    cJSON_AddNullToObject(object, "binary");
  free(binary);
}

static void put_program(dump *d, const clattn_launch *launch) {
  cJSON *object = cJSON_AddObjectToObject(d->root, "program");
  size_t bytes = 0, at = 0;
  for (uint32_t i = 0; i < launch->source_count; i++)
    bytes += launch->source_bytes[i];
  char *text = malloc(bytes > 0 ? bytes : 1);
  if (text == NULL) {
    d->code = cli_fail_memory();
    return;
  }
  for (uint32_t i = 0; i < launch->source_count; i++) {
    memcpy(text + at, launch->sources[i], launch->source_bytes[i]);
    at += launch->source_bytes[i];
  }
  cJSON_AddStringToObject(object, "options", launch->options);
  d->code = put_file(d, object, "source", "program.cl", text, bytes);
  free(text);
  if (d->code == CLI_OK)
    put_program_binary(d, launch->program, object);
}

/* ---- launches ---- */

static int result_of(const dump *d, cl_mem buffer) {
  for (int i = 0; i < CLI_OUTPUTS; i++)
    if (d->pass->result[i].buffer == buffer)
      return i;
  return -1;
}

/* Rows of packed outputs behind the last sequence are nobody's, and 0. */
static int fill_of(const dump *d, int output) {
  return output < 0 || (cli_packed_q(&d->pass->problem) && (output == CLI_O || output == CLI_LSE)) ? 0 : UNWRITTEN;
}

/* The number of a buffer; what is new is put into the manifest.  -1 after a failure. */
static int buffer_number(dump *d, const clattn_launch_arg *arg) {
  for (int i = 0; i < d->count; i++)
    if (d->seen[i] == arg->buffer)
      return i;
  if (d->count == BUFFERS_MOST) {
    d->code = cli_fail(CLI_FAILED, "--dump: the launches have more than %d buffers", BUFFERS_MOST);
    return -1;
  }
  const int output = result_of(d, arg->buffer);
  cJSON *object = cJSON_CreateObject();
  cJSON_AddItemToArray(d->buffers, object);
  cJSON_AddStringToObject(object, "name", arg->name);
  size_t bytes = 0;
  if (output >= 0 || arg->buffer == d->workspace) {
    const cl_uchar fill = (cl_uchar)fill_of(d, output);
    cl_int status = clGetMemObjectInfo(arg->buffer, CL_MEM_SIZE, sizeof bytes, &bytes, NULL);
    if (status == CL_SUCCESS)
      status = clEnqueueFillBuffer(d->session->queue, arg->buffer, &fill, sizeof fill, 0, bytes, 0, NULL, NULL);
    if (status != CL_SUCCESS)
      d->code = cli_fail(CLI_FAILED, "--dump: %s could not be filled: %s", arg->name, clattn_status_name(status));
    cJSON_AddNumberToObject(object, "bytes", (double)bytes);
    cJSON_AddNumberToObject(object, "fill", fill);
  } else {
    char name[CLI_FOLDER_NAME_BYTES], *data = NULL;
    snprintf(name, sizeof name, "%.100s.bin", arg->name);
    d->code = read_back(d, arg->buffer, arg->name, &data, &bytes);
    if (d->code == CLI_OK) {
      cJSON_AddNumberToObject(object, "bytes", (double)bytes);
      d->code = put_file(d, object, "file", name, data, bytes);
    }
    free(data);
  }
  if (d->code != CLI_OK)
    return -1;
  d->seen[d->count] = arg->buffer;
  d->seen_output[d->count] = output;
  return d->count++;
}

static void put_argument(dump *d, const clattn_launch_arg *arg, cJSON *args) {
  cJSON *object = cJSON_CreateObject();
  cJSON_AddItemToArray(args, object);
  cJSON_AddStringToObject(object, "name", arg->name);
  if (arg->kind == CLATTN_LAUNCH_BUFFER) {
    const int number = arg->buffer != NULL ? buffer_number(d, arg) : 0;
    if (arg->buffer == NULL)
      cJSON_AddNullToObject(object, "buffer");
    else
      cJSON_AddNumberToObject(object, "buffer", number);
    return;
  }
  char *digits = malloc(2 * arg->bytes + 1);
  if (digits == NULL) {
    d->code = cli_fail_memory();
    return;
  }
  for (size_t i = 0; i < arg->bytes; i++)
    snprintf(digits + 2 * i, 3, "%02x", ((const unsigned char *)arg->value)[i]);
  cJSON_AddStringToObject(object, "bytes", digits);
  free(digits);
}

/* What the driver says of a built kernel. */
static void put_kernel_facts(const dump *d, const clattn_launch *launch, cJSON *object) {
  const cl_device_id device = d->session->device.device;
  cl_ulong local = 0, private = 0;
  cl_int status = CL_SUCCESS;
  cl_kernel kernel = clCreateKernel(launch->program, launch->kernel_name, &status);
  const int told = status == CL_SUCCESS;
  if (told &&
      clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_LOCAL_MEM_SIZE, sizeof local, &local, NULL) == CL_SUCCESS)
    cJSON_AddNumberToObject(object, "local_bytes", (double)local);
  else
    cJSON_AddNullToObject(object, "local_bytes");
  if (told && clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_PRIVATE_MEM_SIZE, sizeof private, &private, NULL) ==
                  CL_SUCCESS)
    cJSON_AddNumberToObject(object, "private_bytes", (double)private);
  else
    cJSON_AddNullToObject(object, "private_bytes");
  if (told)
    clReleaseKernel(kernel);
}

static clattn_status put_launch(void *user, const clattn_launch *launch) {
  dump *d = user;
  if (launch->index == 0) {
    cJSON_AddStringToObject(d->root, "file", launch->file);
    put_program(d, launch);
  }
  cJSON *object = cJSON_CreateObject();
  cJSON_AddItemToArray(d->launches, object);
  cJSON_AddStringToObject(object, "kernel", launch->kernel_name);
  int64_t range[3][3] = {{0}};
  for (uint32_t i = 0; i < launch->dims; i++) {
    range[0][i] = (int64_t)launch->global[i];
    range[1][i] = (int64_t)launch->local[i];
  }
  add_numbers(object, "global", (int)launch->dims, range[0]);
  add_numbers(object, "local", (int)launch->dims, range[1]);
  add_numbers(object, "offset", (int)launch->dims, range[2]);
  put_kernel_facts(d, launch, object);
  cJSON *args = cJSON_AddArrayToObject(object, "args");
  for (uint32_t i = 0; i < launch->arg_count && d->code == CLI_OK; i++)
    put_argument(d, &launch->args[i], args);
  return d->code == CLI_OK ? CLATTN_SUCCESS : CLATTN_ERROR_OUT_OF_MEMORY; /* told already */
}

/* ---- outputs ---- */

/* The rows of the reference one after the other, and their numbers where they are not all. */
static int put_reference(dump *d, const cli_request *request, const cli_reference *reference, int output,
                         cJSON *object) {
  const cli_result *result = &d->pass->result[output];
  const char *of = cli_result_name(d->pass, output);
  char name[64];
  int64_t elements, count = 0;
  const int64_t rows = cli_reference_rows(d->pass, output, &elements);
  const int64_t all = result->shape[0] * result->shape[1] * result->shape[2];
  const size_t most = (size_t)(rows / reference->step + 1);
  int64_t *number = calloc(most, sizeof *number);
  double *want = malloc((most * (size_t)elements + 1) * sizeof *want);
  int code = CLI_OK, ordered = 1;
  const double *from = reference->want[output];
  if (number == NULL || want == NULL || from == NULL) {
    code = cli_fail_memory();
    goto done;
  }
  for (int64_t row = 0; row < rows; row += reference->step) {
    const int64_t at = cli_reference_place(request, d->pass, output, row);
    if (at < 0)
      continue;
    /* Packed rows are counted over all sequences: (head, row of all). */
    const int packed = cli_packed_q(&d->pass->problem) && (output == CLI_O || output == CLI_LSE);
    const int64_t length = d->pass->problem.q_len, h = row / length % result->shape[1];
    const int64_t b = row / length / result->shape[1];
    number[count] = packed ? h * result->shape[2] + request->ints[CLI_CU_SEQLENS_Q][b] + row % length : row;
    memcpy(want + count * elements, from + row * elements, (size_t)elements * sizeof *want);
    count++;
  }
  snprintf(name, sizeof name, "%s.reference.bin", of);
  code = put_file(d, object, "reference", name, want, (size_t)(count * elements) * sizeof *want);
  snprintf(name, sizeof name, "%s.rows.bin", of);
  for (int64_t i = 0; i < count; i++)
    ordered &= number[i] == i;
  if (code == CLI_OK && (!ordered || count != all))
    code = put_file(d, object, "rows", name, number, (size_t)count * sizeof *number);
  else
    cJSON_AddNullToObject(object, "rows");
done:
  free(number);
  free(want);
  return code;
}

/* What is expected; no contents of the device yet. */
static int put_outputs(dump *d, const cli_request *request) {
  cli_reference reference;
  cli_verification limits;
  int code = CLI_OK;
  memset(&reference, 0, sizeof reference);
  reference.step = 1;
  memset(&limits, 0, sizeof limits);
  cli_verify_tolerances(request, d->pass, &limits);
  if (request->hook.handle == NULL)
    code = cli_reference_make(request, d->pass, &reference);
  for (int number = 0; number < d->count && code == CLI_OK; number++) {
    const int output = d->seen_output[number];
    if (output < 0)
      continue;
    const cli_result *result = &d->pass->result[output];
    cJSON *object = cJSON_CreateObject();
    cJSON_AddItemToArray(d->outputs, object);
    cJSON_AddStringToObject(object, "name", cli_result_name(d->pass, output));
    cJSON_AddNumberToObject(object, "buffer", number);
    cJSON_AddStringToObject(object, "dtype", cli_dtype_name(result->dtype));
    cJSON_AddBoolToObject(object, "packed", cli_packed_q(&d->pass->problem) && (output == CLI_O || output == CLI_LSE));
    add_numbers(object, "shape", 4, result->shape);
    add_numbers(object, "stride", 4, result->stride);
    add_or_null(object, "tolerance", limits.tolerance[output]);
    add_or_null(object, "relative", limits.relative[output]);
    add_or_null(object, "limit", limits.limit[output]);
    if (reference.want[output] != NULL) {
      code = put_reference(d, request, &reference, output, object);
    } else {
      cJSON_AddNullToObject(object, "reference");
      cJSON_AddNullToObject(object, "rows");
    }
    cJSON_AddNullToObject(object, "device");
  }
  cli_reference_release(&reference);
  return code;
}

/* What the device made of it.  Outputs are in the order of their buffers. */
static int put_results(dump *d) {
  int code = CLI_OK, at = 0;
  for (int number = 0; number < d->count && code == CLI_OK; number++) {
    const int output = d->seen_output[number];
    char name[64], *data = NULL;
    size_t bytes = 0;
    if (output < 0)
      continue;
    cJSON *object = cJSON_GetArrayItem(d->outputs, at++);
    snprintf(name, sizeof name, "%s.device.bin", cli_result_name(d->pass, output));
    code = read_back(d, d->seen[number], cli_result_name(d->pass, output), &data, &bytes);
    cJSON_DeleteItemFromObject(object, "device");
    if (code == CLI_OK)
      code = put_file(d, object, "device", name, data, bytes);
    free(data);
  }
  return code;
}

/* ---- the whole ---- */

static void add_platform_text(const dump *d, cJSON *object, const char *name, cl_platform_info what, char text[256]) {
  text[0] = 0;
  if (clGetPlatformInfo(d->session->device.platform, what, 256, text, NULL) != CL_SUCCESS)
    text[0] = 0;
  cJSON_AddStringToObject(object, name, text);
}

/* What does not depend on launches; the device's platform for README.txt. */
static void put_facts(dump *d, char platform[256]) {
  const uint16_t probe = 1;
  const clattn_device_info *info = &d->session->info;
  char text[256];
  cJSON_AddStringToObject(d->root, "format", CLI_DUMP_FORMAT);
  cJSON_AddNumberToObject(d->root, "format_version", CLI_DUMP_VERSION);
  cJSON_AddStringToObject(d->root, "byte_order", *(const unsigned char *)&probe == 1 ? "little" : "big");
  cJSON_AddStringToObject(d->root, "clattn", clattn_version());
  cJSON_AddStringToObject(d->root, "problem", d->pass->info.line);
  cJSON_AddStringToObject(d->root, "variant", d->pass->info.variant);
  cJSON *device = cJSON_AddObjectToObject(d->root, "device");
  cJSON_AddStringToObject(device, "id", d->session->device.id);
  cJSON_AddStringToObject(device, "name", info->name);
  cJSON_AddStringToObject(device, "vendor", info->vendor);
  cJSON_AddStringToObject(device, "version", info->version);
  cJSON_AddStringToObject(device, "driver", info->driver);
  add_platform_text(d, device, "platform", CL_PLATFORM_NAME, platform);
  add_platform_text(d, device, "platform_version", CL_PLATFORM_VERSION, text);
}

static int put_readme(dump *d, const char *platform, uint32_t launches) {
  const clattn_plan_info *info = &d->pass->info;
  const size_t room = sizeof readme + strlen(info->line) + 2048;
  char *text = malloc(room);
  if (text == NULL)
    return cli_fail_memory();
  snprintf(text, room, readme, clattn_version(), info->line, info->variant, launches, d->session->info.name,
           d->session->info.driver, platform, CLI_DUMP_VERSION);
  const int code = cli_folder_write(d->folder, "README.txt", text, strlen(text), NULL);
  free(text);
  return code;
}

static int run_launches(const dump *d, clattn_args *args) {
  clattn_status status = clattn_enqueue(d->pass->plan, d->session->queue, args, 0, NULL, NULL);
  if (status != CLATTN_SUCCESS)
    return cli_fail_status(status, args->error, "--dump");
  status = clFinish(d->session->queue);
  return status == CL_SUCCESS ? CLI_OK : cli_fail_status(status, NULL, "--dump: the computation failed on the device");
}

int cli_dump(const cli_session *session, const cli_request *request, const cli_buffers *buffers, const cli_pass *pass,
             cli_folder *folder, uint32_t *launches) {
  dump d;
  clattn_args args;
  clattn_error error;
  char platform[256] = "";
  cl_int status = CL_SUCCESS;
  int ran = 0;
  memset(&d, 0, sizeof d);
  *launches = 0;
  d.session = session;
  d.pass = pass;
  d.folder = folder;
  d.root = cJSON_CreateObject();
  int code = cli_error_init(&error);
  if (code != CLI_OK)
    goto done;
  put_facts(&d, platform);
  d.buffers = cJSON_AddArrayToObject(d.root, "buffers");
  d.launches = cJSON_AddArrayToObject(d.root, "launches");
  d.outputs = cJSON_AddArrayToObject(d.root, "outputs");
  if (d.outputs == NULL) {
    code = cli_fail_memory();
    goto done;
  }
  cli_pass_args(request, buffers, pass, &args);
  args.error = &error;
  if (pass->info.workspace_bytes > 0) {
    d.workspace = clCreateBuffer(session->cl, CL_MEM_READ_WRITE, (size_t)pass->info.workspace_bytes, NULL, &status);
    if (status != CL_SUCCESS) {
      d.workspace = NULL;
      code = cli_fail_status(status, NULL, "--dump: a workspace could not be made");
      goto done;
    }
    args.workspace = clattn_buffer(d.workspace, 0);
  }
  status = clattn_launches(pass->plan, session->queue, &args, put_launch, &d);
  code = d.code;
  if (code == CLI_OK && status != CLATTN_SUCCESS)
    code = cli_fail_status(status, &error, "--dump");
  *launches = (uint32_t)cJSON_GetArraySize(d.launches);
  if (code == CLI_OK && *launches == 0)
    code = cli_fail(CLI_USAGE, "--dump: this problem has no launch");
  if (code == CLI_OK)
    code = put_outputs(&d, request);
  if (code == CLI_OK)
    code = put_readme(&d, platform, *launches);
  if (code == CLI_OK)
    code = put_manifest(&d);
  if (code != CLI_OK)
    goto done;
  /* From here on the folder is a dump, whatever the device does. */
  cli_folder_keep(folder);
  ran = 1;
  code = run_launches(&d, &args);
  if (code == CLI_OK) {
    code = put_results(&d);
    if (code == CLI_OK)
      code = put_manifest(&d);
    ran = code == CLI_OK; /* a full disk leaves nothing */
  }
done:
  if (code != CLI_OK && !ran)
    cli_folder_remove(folder);
  if (d.workspace != NULL)
    clReleaseMemObject(d.workspace);
  cJSON_Delete(d.root);
  cli_error_release(&error);
  return code;
}
