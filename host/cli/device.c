/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "device.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli.h"

/* Words of platform or vendor names and the short names that go into ids.  The first match counts. */
static const struct {
  const char *word, *prefix;
} prefixes[] = {
    {"Portable Computing Language", "pocl"},
    {"rusticl", "rusticl"},
    {"Clover", "clover"},
    {"Oclgrind", "oclgrind"},
    {"NVIDIA", "nvidia"},
    {"Intel", "intel"},
    {"AMD", "amd"},
    {"Advanced Micro Devices", "amd"},
    {"Apple", "apple"},
    {"ARM", "arm"},
    {"QUALCOMM", "qualcomm"},
};

static int contains(const char *text, const char *word) {
  const size_t n = strlen(word);
  for (; *text != 0; text++) {
    if (strncasecmp(text, word, n) == 0)
      return 1;
  }
  return n == 0;
}

int cli_device_matches(const cli_device *device, const char *text) {
  return contains(device->id, text) || contains(device->name, text) || contains(device->vendor, text);
}

/* The short name; for unknown platforms the first word of the name in lower case. */
static void short_name(const char *platform, const char *vendor, char *out, size_t capacity) {
  for (int pass = 0; pass < 2; pass++) {
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
      if (contains(pass == 0 ? platform : vendor, prefixes[i].word)) {
        snprintf(out, capacity, "%s", prefixes[i].prefix);
        return;
      }
    }
  }
  size_t n = 0;
  for (const char *c = platform; *c != 0 && n + 1 < capacity; c++) {
    if (isalnum((unsigned char)*c))
      out[n++] = (char)tolower((unsigned char)*c);
    else if (n > 0)
      break;
  }
  out[n] = 0;
  if (n == 0)
    snprintf(out, capacity, "opencl");
}

static void platform_text(cl_platform_id platform, cl_platform_info what, char *text, size_t capacity) {
  memset(text, 0, capacity);
  if (clGetPlatformInfo(platform, what, capacity - 1, text, NULL) != CL_SUCCESS)
    snprintf(text, capacity, "?");
}

static void device_text(cl_device_id device, cl_device_info what, char *text, size_t capacity) {
  memset(text, 0, capacity);
  if (clGetDeviceInfo(device, what, capacity - 1, text, NULL) != CL_SUCCESS)
    snprintf(text, capacity, "?");
}

/* Ids count within a prefix, also over several platforms with the same one. */
static int prefix_index(const cli_device *list, size_t count, const char *prefix) {
  const size_t n = strlen(prefix);
  int index = 0;
  for (size_t i = 0; i < count; i++)
    index += strncmp(list[i].id, prefix, n) == 0 && list[i].id[n] == ':';
  return index;
}

static int add_platform(cl_platform_id platform, cli_device **list, size_t *count) {
  char name[128], vendor[128], prefix[32];
  cl_uint devices = 0;
  if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, NULL, &devices) != CL_SUCCESS || devices == 0)
    return CLI_OK;
  cl_device_id *ids = calloc(devices, sizeof *ids);
  cli_device *grown = realloc(*list, (*count + devices) * sizeof **list);
  if (grown != NULL)
    *list = grown;
  if (ids == NULL || grown == NULL) {
    free(ids);
    return cli_fail_memory();
  }
  platform_text(platform, CL_PLATFORM_NAME, name, sizeof name);
  platform_text(platform, CL_PLATFORM_VENDOR, vendor, sizeof vendor);
  short_name(name, vendor, prefix, sizeof prefix);
  if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, devices, ids, &devices) != CL_SUCCESS)
    devices = 0;
  for (cl_uint i = 0; i < devices; i++) {
    cli_device *device = &(*list)[*count];
    memset(device, 0, sizeof *device);
    device->platform = platform;
    device->device = ids[i];
    snprintf(device->id, sizeof device->id, "%s:%d", prefix, prefix_index(*list, *count, prefix));
    snprintf(device->platform_name, sizeof device->platform_name, "%s", name);
    device_text(ids[i], CL_DEVICE_NAME, device->name, sizeof device->name);
    device_text(ids[i], CL_DEVICE_VENDOR, device->vendor, sizeof device->vendor);
    (*count)++;
  }
  free(ids);
  return CLI_OK;
}

int cli_device_list(cli_device **out, size_t *count) {
  cl_uint platforms = 0;
  int code = CLI_OK;
  *out = NULL;
  *count = 0;
  /* The ICD loader has its own code for "no platform"; a loader without drivers is no failure here. */
  if (clGetPlatformIDs(0, NULL, &platforms) != CL_SUCCESS || platforms == 0)
    return CLI_OK;
  cl_platform_id *ids = calloc(platforms, sizeof *ids);
  if (ids == NULL)
    return cli_fail_memory();
  if (clGetPlatformIDs(platforms, ids, NULL) == CL_SUCCESS) {
    for (cl_uint i = 0; i < platforms && code == CLI_OK; i++)
      code = add_platform(ids[i], out, count);
  }
  free(ids);
  if (code != CLI_OK || *count == 0) {
    free(*out);
    *out = NULL;
    *count = 0;
  }
  return code;
}

static const clattn_context_options *in_use;
static const char *tuning_file;

void cli_session_use(const clattn_context_options *options, const char *tuning) {
  in_use = options;
  tuning_file = tuning;
}

static const char *cache_folder;
static int cache_refused;
static size_t cache_written;

void cli_cache_use(const char *folder) {
  cache_folder = folder;
  cache_refused = 0;
  cache_written = 0;
}

int cli_cache_refused(void) {
  return cache_refused;
}

size_t cli_cache_written(void) {
  return cache_written;
}

static int begins(const char *line, const char *words) {
  return strncmp(line, words, strlen(words)) == 0;
}

/* The log is where the library says what became of its cache. */
static void watch_cache(void *user, int level, const char *line) {
  (void)user;
  if (level == CLATTN_LOG_WARNING) {
    fprintf(stderr, "clattn: %s\n", line);
    cache_refused |= begins(line, "cache: off: ");
  } else if (level == CLATTN_LOG_INFO && begins(line, "cache: entry ") && strstr(line, " written, ") != NULL) {
    cache_written++;
  }
}

static void session_options(clattn_context_options *options) {
  clattn_context_options_init(options);
  options->allow_amx = 1; /* the program is its own process */
  if (in_use != NULL)
    *options = *in_use;
  options->cache_folder = cache_folder;
  if (cache_folder != NULL)
    options->log_fn = watch_cache;
}

static clattn_status finish_session(cli_session *session) {
  cl_int status = CL_SUCCESS;
  session->info.struct_size = sizeof session->info;
  clattn_status result = clattn_context_device_info(session->context, &session->info);
  if (result != CLATTN_SUCCESS)
    return result;
  session->queue = clCreateCommandQueue(session->cl, session->device.device, 0, &status);
  return status;
}

clattn_status cli_session_try(const cli_device *device, cli_session *out, clattn_error *error) {
  const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)device->platform, 0};
  clattn_context_options options;
  cl_int status = CL_SUCCESS;
  memset(out, 0, sizeof *out);
  session_options(&options);
  out->device = *device;
  out->cl = clCreateContext(properties, 1, &device->device, NULL, NULL, &status);
  if (status == CL_SUCCESS)
    status = clattn_context_create(out->cl, device->device, &options, &out->context, error);
  if (status == CL_SUCCESS)
    status = finish_session(out);
  if (status != CL_SUCCESS)
    cli_session_close(out);
  return status;
}

/* Mistakes in texts are the option's, not the device's. */
static int fail_open(clattn_status status, const clattn_error *error, const char *what) {
  char option[320];
  const int config = strncmp(error->message, "config_text", strlen("config_text")) == 0;
  if (status != CLATTN_ERROR_TEXT || (!config && tuning_file == NULL))
    return cli_fail_status(status, error, what);
  if (!config)
    snprintf(option, sizeof option, "--tuning %.300s", tuning_file);
  return cli_fail_status(status, error, config ? "--config" : option);
}

int cli_session_open(const char *wanted, cli_session *out) {
  cli_device *list = NULL;
  size_t count = 0, found;
  clattn_context_options options;
  clattn_error error;
  clattn_status status;
  memset(out, 0, sizeof *out);
  session_options(&options);
  int code = cli_error_init(&error);
  if (code == CLI_OK)
    code = cli_device_list(&list, &count);
  if (code != CLI_OK)
    goto done;
  if (wanted != NULL && count > 0) {
    char *end = NULL;
    const unsigned long number = strtoul(wanted, &end, 10);
    const int is_number = isdigit((unsigned char)wanted[0]) && *end == 0;
    for (found = 0; found < count; found++) {
      if (is_number ? found == number : strcmp(list[found].id, wanted) == 0)
        break;
    }
    if (found == count) {
      code = cli_fail(CLI_NO_DEVICE, "--device %s: there is no such device; there are:", wanted);
      for (size_t i = 0; i < count; i++)
        fprintf(stderr, "  %zu  %s  %s\n", i, list[i].id, list[i].name);
      goto done;
    }
    status = cli_session_try(&list[found], out, &error);
    if (status != CLATTN_SUCCESS)
      code = fail_open(status, &error, list[found].id);
    goto done;
  }
  /* The library's own choice; the list only gives it its id. */
  status = clattn_context_create_default(&options, &out->context, &error);
  if (status == CLATTN_SUCCESS) {
    cl_context cl = NULL;
    status = clattn_context_handles(out->context, &cl, &out->device.device);
    if (status == CLATTN_SUCCESS)
      status = clRetainContext(cl);
    if (status == CLATTN_SUCCESS)
      out->cl = cl;
  }
  for (found = 0; found < count && status == CLATTN_SUCCESS; found++) {
    if (list[found].device == out->device.device)
      out->device = list[found];
  }
  if (status == CLATTN_SUCCESS)
    status = finish_session(out);
  if (status != CLATTN_SUCCESS) {
    code = fail_open(status, &error, "no usable device");
    cli_session_close(out);
  }
done:
  free(list);
  cli_error_release(&error);
  return code;
}

void cli_session_close(cli_session *session) {
  if (session->queue != NULL)
    clReleaseCommandQueue(session->queue);
  clattn_context_release(session->context);
  if (session->cl != NULL)
    clReleaseContext(session->cl);
  session->queue = NULL;
  session->context = NULL;
  session->cl = NULL;
}
