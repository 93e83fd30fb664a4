/* SPDX-License-Identifier: Apache-2.0 */
/* A dump that was read, checked and is to be run again; dump.h has its format.  Its files come from strangers: nothing
 * in them is believed before it was checked. */
#ifndef CLATTN_CLI_REPLAY_H
#define CLATTN_CLI_REPLAY_H

#include "device.h"
#include "dump.h"

enum {
  CLI_REPLAY_MOST_BUFFERS = 64,
  CLI_REPLAY_MOST_ARGS = 128,
  CLI_REPLAY_MOST_OUTPUTS = 8,
  CLI_REPLAY_MOST_ARG_BYTES = 65536,
  CLI_REPLAY_NAME_BYTES = 64
};

/* A file of the folder. */
typedef struct replay_file {
  char name[CLI_FOLDER_NAME_BYTES]; /* "": there is none */
  uint64_t bytes;
  char hash[CLI_FOLDER_HASH_TEXT];
} replay_file;

typedef struct replay_buffer {
  char name[CLI_REPLAY_NAME_BYTES];
  uint64_t bytes;
  replay_file file;
  unsigned char fill; /* without a file */
} replay_buffer;

typedef struct replay_arg {
  char name[CLI_REPLAY_NAME_BYTES];
  int buffer;           /* its number; -1: none is passed; -2: bytes */
  unsigned char *value; /* of bytes */
  size_t bytes;
} replay_arg;

typedef struct replay_launch {
  char kernel[CLI_REPLAY_NAME_BYTES];
  cl_uint dims;
  size_t global[3], local[3], offset[3];
  int arg_count;
  replay_arg *args;
} replay_launch;

typedef struct replay_output {
  char name[CLI_REPLAY_NAME_BYTES];
  int buffer, packed;
  clattn_dtype dtype;
  int64_t shape[4], stride[4]; /* within the buffer */
  int64_t row_count;           /* of the reference */
  double tolerance, relative, limit;
  replay_file reference, rows, device;
} replay_output;

typedef struct replay_dump {
  cli_folder folder;
  char *problem, *variant, *options, *device, *driver, *platform, *version; /* to be shown */
  replay_file source, binary;
  int buffer_count, output_count;
  size_t launch_count;
  replay_buffer buffers[CLI_REPLAY_MOST_BUFFERS];
  replay_launch *launches;
  replay_output outputs[CLI_REPLAY_MOST_OUTPUTS];
} replay_dump;

/* Reads the manifest.  To be released in any case. */
int replay_read(const char *path, replay_dump *out);
void replay_release(replay_dump *dump);
/* A file's contents, malloc'ed; refused unless they are what the manifest says.  changed not NULL: another size or hash
 * is not refused, but told by it. */
int replay_file_read(const replay_dump *dump, const replay_file *file, char **data, int *changed);

/* Compares an output with what is expected, and prints it; *differs is 1 if it differs.  contents: of its buffer. */
int replay_compare(const replay_dump *dump, const replay_output *output, const void *contents, int *differs);

#endif
