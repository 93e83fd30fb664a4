/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "picture.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "cli.h"
#include "picture_back.h"

typedef struct writer {
  const char *name; /* and extension */
  int (*make)(const cli_picture *picture, const cli_file *file, cli_bytes *out);
} writer;

static const writer *find_writer(const char *path) {
  static const writer writers[] = {{"svg", cli_picture_svg}, {"png", cli_picture_png}, {"html", cli_picture_html}};
  const char *slash = strrchr(path, '/');
  const char *dot = strrchr(slash != NULL ? slash + 1 : path, '.');
  for (size_t i = 0; dot != NULL && i < sizeof writers / sizeof writers[0]; i++) {
    if (strcasecmp(dot + 1, writers[i].name) == 0)
      return &writers[i];
  }
  return NULL;
}

void cli_picture_init(cli_picture *picture) {
  memset(picture, 0, sizeof *picture);
  picture->layer_name = "layer";
  picture->head_name = "head";
}

int cli_picture_check(const char *option, const char *path, const int64_t shape[4]) {
  const writer *found = find_writer(path);
  if (found == NULL)
    return cli_fail(CLI_USAGE, "--%s: %s: a heat map is written as .svg, .png or .html, and the name says which",
                    option, path);
  if (found->make == cli_picture_png && !cli_picture_has_png())
    return cli_fail(CLI_USAGE,
                    "--%s: %s: this clattn was built without cairo and can't write .png; .svg and .html it can (to "
                    "build it with: apt-get install libcairo2-dev)",
                    option, path);
  for (int axis = 0; axis < 4; axis++) {
    if (shape[axis] < 1)
      return cli_fail(CLI_USAGE, "--%s: there is no weight to draw: %" PRId64 " queries and %" PRId64 " keys", option,
                      shape[2], shape[3]);
  }
  if (shape[0] > CLI_PICTURE_MOST_HEADS / shape[1])
    return cli_fail(CLI_USAGE, "--%s: a heat map shows up to %d heads, here are %" PRId64 " times %" PRId64, option,
                    CLI_PICTURE_MOST_HEADS, shape[0], shape[1]);
  return CLI_OK;
}

int cli_picture_put(const cli_picture *picture, cli_file *file) {
  cli_bytes bytes;
  memset(&bytes, 0, sizeof bytes);
  int code = cli_picture_check(file->option, file->path, picture->shape);
  if (code != CLI_OK)
    return code;
  const writer *found = find_writer(file->path);
  code = found->make(picture, file, &bytes);
  if (code == CLI_OK && bytes.failed)
    code = cli_fail_memory();
  if (code == CLI_OK) {
    code = cli_files_put_bytes(file, found->name, bytes.data, bytes.count);
    file->rank = 4;
    memcpy(file->shape, picture->shape, sizeof file->shape);
  }
  cli_bytes_release(&bytes);
  return code;
}

int cli_picture_write(const char *option, const char *path, const cli_picture *picture) {
  cli_files files;
  memset(&files, 0, sizeof files);
  int code = cli_picture_check(option, path, picture->shape);
  if (code != CLI_OK)
    return code;
  files.file[0].option = option;
  files.file[0].path = path;
  code = cli_files_begin(&files, NULL, 0);
  if (code == CLI_OK)
    code = cli_picture_put(picture, &files.file[0]);
  if (code == CLI_OK)
    code = cli_files_commit(&files);
  cli_files_discard(&files);
  return code;
}
