/* SPDX-License-Identifier: Apache-2.0 */
/* The formats of a picture: each makes the whole file in memory. */
#ifndef CLATTN_CLI_PICTURE_BACK_H
#define CLATTN_CLI_PICTURE_BACK_H

#include <stddef.h>

#include "picture.h"

/* Bytes that grow.  After `failed` nothing is added any more. */
typedef struct cli_bytes {
  char *data;
  size_t count, room;
  int failed;
} cli_bytes;

void cli_bytes_add(cli_bytes *bytes, const void *data, size_t count);
void cli_bytes_text(cli_bytes *bytes, const char *text);
void cli_bytes_format(cli_bytes *bytes, const char *format, ...); /* at most 511 characters */
/* Text as XML and HTML want it, between tags and in quotes.  What is no UTF-8 or no character is replaced. */
void cli_bytes_xml(cli_bytes *bytes, const char *text);
/* A string of JSON, with quotes, that no HTML parser takes for a tag. */
void cli_bytes_json(cli_bytes *bytes, const char *text);
void cli_bytes_base64(cli_bytes *bytes, const unsigned char *data, size_t count);
void cli_bytes_release(cli_bytes *bytes);

/* `file` is for messages.  Memory failures of `out` are the caller's to see. */
int cli_picture_svg(const cli_picture *picture, const cli_file *file, cli_bytes *out);
int cli_picture_html(const cli_picture *picture, const cli_file *file, cli_bytes *out);
int cli_picture_png(const cli_picture *picture, const cli_file *file, cli_bytes *out);
/* Whether this program can write .png. */
int cli_picture_has_png(void);

/* The page's parts between its data: picture_page.c. */
extern const char *const cli_page_style[], *const cli_page_body[], *const cli_page_script[]; /* NULL-ended */

#endif
