/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "heatmap.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "picture_unicode.h"
#include "text.h"

enum { LABEL_WIDTH = 12, LINE_WIDTH = 96 };

int cli_labels_add(cli_labels *labels, const char *text, size_t length) {
  char **grown = realloc(labels->text, ((size_t)labels->count + 1) * sizeof *grown);
  if (grown == NULL)
    return cli_fail_memory();
  labels->text = grown;
  char *label = malloc(length + 1);
  if (label == NULL)
    return cli_fail_memory();
  for (size_t i = 0; i < length; i++) {
    const unsigned char c = (unsigned char)text[i];
    label[i] = (char)(c < ' ' || c == 127 ? '?' : c);
  }
  /* C1 control characters are two bytes in UTF-8. */
  for (size_t i = 0; i + 1 < length; i++) {
    if ((unsigned char)label[i] == 0xc2 && (unsigned char)label[i + 1] < 0xa0)
      label[i] = label[i + 1] = '?';
  }
  label[length] = 0;
  labels->text[labels->count++] = label;
  return CLI_OK;
}

int cli_labels_load(const char *name, const char *source, int64_t count, cli_labels *out) {
  char *file = NULL;
  const char *text = source;
  size_t length = strlen(source);
  const int from_file = source[0] == '@';
  int code = CLI_OK;
  out->text = NULL;
  out->count = 0;
  if (from_file && source[1] == 0)
    return cli_fail(CLI_USAGE, "--%s: the name of a file is missing behind '@'", name);
  if (from_file) {
    code = cli_read_file(name, source + 1, &file, &length);
    if (code != CLI_OK)
      return code;
    text = file;
    if (length > 0 && text[length - 1] == '\n')
      length--;
  }
  for (size_t at = 0; at <= length && code == CLI_OK;) {
    size_t end = at;
    while (end < length && text[end] != (from_file ? '\n' : ','))
      end++;
    size_t stop = end;
    while (from_file && stop > at && text[stop - 1] == '\r')
      stop--;
    code = cli_labels_add(out, text + at, stop - at);
    at = end + 1;
  }
  if (code == CLI_OK && out->count != count)
    code = cli_fail(CLI_USAGE, "--%s has %" PRId64 " labels, there are %" PRId64 " %s", name, out->count, count,
                    name[0] == 'q' ? "queries" : "keys");
  free(file);
  if (code != CLI_OK)
    cli_labels_free(out);
  return code;
}

void cli_labels_free(cli_labels *labels) {
  for (int64_t i = 0; i < labels->count; i++)
    free(labels->text[i]);
  free(labels->text);
  labels->text = NULL;
  labels->count = 0;
}

const char *cli_label(const cli_labels *labels, int64_t i, char prefix, char scratch[32]) {
  if (labels != NULL && i < labels->count)
    return labels->text[i];
  snprintf(scratch, 32, "%c%" PRId64, prefix, i);
  return scratch;
}

int cli_width(const char *text) {
  int width = 0;
  for (; *text != 0; text = cli_character_end(text))
    width += cli_character_columns(text);
  return width;
}

/* At most `width` columns, the rest of them blank, on the left or right. */
static void print_padded(const char *text, int width, int right) {
  int shown = 0;
  const char *end = text;
  while (*end != 0 && shown + cli_character_columns(end) <= width) {
    shown += cli_character_columns(end);
    end = cli_character_end(end);
  }
  printf("%*s%.*s%*s", right ? width - shown : 0, "", (int)(end - text), text, right ? 0 : width - shown, "");
}

static const char *shade(double share) {
  static const char *const blocks[] = {" ", "\xe2\x96\x91", "\xe2\x96\x92", "\xe2\x96\x93", "\xe2\x96\x88"};
  if (!(share > 0.02))
    return blocks[0];
  return blocks[share > 0.75 ? 4 : share > 0.5 ? 3 : share > 0.25 ? 2 : 1];
}

/* `width` columns of the cell's shade; in colour, black through red to yellow of the 256-colour cube. */
static void print_cell(double share, int width, int colour) {
  static const int ramp[] = {16, 52, 88, 124, 160, 196, 202, 208, 214, 220, 226};
  if (colour) {
    const double clamped = !(share > 0) ? 0 : share > 1 ? 1 : share;
    printf("\033[48;5;%dm%*s\033[0m", ramp[(int)(clamped * 10 + 0.5)], width, "");
    return;
  }
  for (int i = 0; i < width; i++)
    fputs(shade(share), stdout);
}

/* One character of every column label per line, for cells too narrow for words. */
static void print_vertical(int64_t columns, const cli_labels *labels, int margin) {
  enum { MOST = 8, CELL = 2 };
  char scratch[32];
  for (int line = 0, more = 1; line < MOST && more; line++) {
    more = 0;
    printf("%*s", margin, "");
    for (int64_t j = 0; j < columns; j++) {
      const char *at = cli_label(labels, j, 'k', scratch);
      for (int skip = 0; skip < line && *at != 0; skip++)
        at = cli_character_end(at);
      const char *const end = cli_character_end(at);
      const int width = cli_character_columns(at);
      printf("%.*s%*s", (int)(end - at), at, CELL - width, "");
      more |= *end != 0;
    }
    putchar('\n');
  }
}

void cli_heatmap(const float *weights, int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride,
                 const cli_labels *row_labels, const cli_labels *column_labels) {
  char scratch[32];
  const char *no_colour = getenv("NO_COLOR");
  const int colour = isatty(STDOUT_FILENO) && (no_colour == NULL || no_colour[0] == 0);
  int margin = 1, cell = 8;
  double most = 0;
  for (int64_t i = 0; i < rows; i++) {
    const int width = cli_width(cli_label(row_labels, i, 'q', scratch));
    margin = width > margin ? width : margin;
    for (int64_t j = 0; j < columns; j++) {
      const double weight = (double)weights[i * row_stride + j * column_stride];
      most = weight > most ? weight : most;
    }
  }
  for (int64_t j = 0; j < columns; j++) {
    const int width = cli_width(cli_label(column_labels, j, 'k', scratch)) + 1;
    cell = width > cell ? width : cell;
  }
  margin = margin < LABEL_WIDTH ? margin : LABEL_WIDTH;
  cell = cell < LABEL_WIDTH ? cell : LABEL_WIDTH;
  const int wide = margin + 1 + (int)columns * cell <= LINE_WIDTH;
  if (wide) {
    printf("%*s", margin + 1, "");
    for (int64_t j = 0; j < columns; j++) {
      print_padded(cli_label(column_labels, j, 'k', scratch), cell - 1, 0);
      putchar(' ');
    }
    putchar('\n');
  } else {
    print_vertical(columns, column_labels, margin + 1);
  }
  for (int64_t i = 0; i < rows; i++) {
    print_padded(cli_label(row_labels, i, 'q', scratch), margin, 1);
    putchar(' ');
    for (int64_t j = 0; j < columns; j++) {
      const double weight = (double)weights[i * row_stride + j * column_stride];
      const double share = most > 0 ? weight / most : 0;
      if (wide) {
        print_cell(share, 2, colour);
        printf(" %-*.2f", cell - 3, cli_unsigned_nan(weight));
      } else {
        print_cell(share, 2, colour);
      }
    }
    putchar('\n');
  }
  printf("%*s full shade = %.3f\n", margin, "", most);
}
