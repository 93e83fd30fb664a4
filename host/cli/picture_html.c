/* SPDX-License-Identifier: Apache-2.0 */
/* HTML: one page with the weights of all heads in it, and a script that draws them. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "cli.h"
#include "picture_back.h"
#include "picture_colour.h"
#include "picture_layout.h"

/* A weight in 16 bits: 0 is exactly 0, the last code is what is not finite, the others lie evenly from low to high. */
enum { CODE_NOT_FINITE = 65535, CODE_MOST = 65534 };

static unsigned encode(const cli_cells *cells, float value) {
  const double number = (double)value, span = cells->high - cells->low;
  if (!isfinite(number))
    return CODE_NOT_FINITE;
  if (number == 0 && cells->low >= 0)
    return 0;
  return span > 0 ? (unsigned)((number - cells->low) / span * (CODE_MOST - 1) + 1.5) : 1;
}

static void add_lines(cli_bytes *out, const char *const *lines) {
  for (; *lines != NULL; lines++) {
    cli_bytes_text(out, *lines);
    cli_bytes_text(out, "\n");
  }
}

static void add_weights(const cli_cells *cells, cli_bytes *out) {
  enum { CHUNK = 3 * 256 }; /* whole groups of base64 */
  unsigned char chunk[2 * CHUNK];
  const int64_t count = cells->heads * cells->rows * cells->columns;
  cli_bytes_text(out, ",\n\"weights\":\"");
  for (int64_t i = 0; i < count; i += CHUNK) {
    size_t used = 0;
    for (int64_t j = i; j < count && j < i + CHUNK; j++) {
      const unsigned code = encode(cells, cells->data[j]);
      chunk[used++] = (unsigned char)(code & 255);
      chunk[used++] = (unsigned char)(code >> 8);
    }
    cli_bytes_base64(out, chunk, used);
  }
  cli_bytes_text(out, "\"");
}

static void add_ramp(const char *name, int dark, cli_bytes *out) {
  unsigned char colours[CLI_LEVELS][3];
  for (int level = 0; level < CLI_LEVELS; level++)
    cli_colour(level, dark, colours[level]);
  cli_bytes_format(out, ",\n\"%s\":\"", name);
  cli_bytes_base64(out, colours[0], sizeof colours);
  cli_bytes_text(out, "\"");
}

/* Labels of a cell's first and, where there is more than one in it, last row or column. */
static void add_labels(const char *name, const cli_labels *labels, int64_t cells, int64_t bin, int64_t count,
                       char prefix, cli_bytes *out) {
  char scratch[32];
  cli_bytes_format(out, ",\n\"%ssNamed\":%s,\n\"%sLabels\":[", name,
                   labels != NULL && labels->count > 0 ? "true" : "false", name);
  for (int64_t i = 0; i < cells; i++) {
    cli_bytes_text(out, i > 0 ? "," : "");
    cli_bytes_json(out, cli_picture_label(labels, i, bin, prefix, scratch));
  }
  cli_bytes_format(out, "],\n\"%sEnds\":[", name);
  for (int64_t i = 0; i < cells && bin > 1; i++) {
    const int64_t end = (i + 1) * bin < count ? (i + 1) * bin : count;
    cli_bytes_text(out, i > 0 ? "," : "");
    cli_bytes_json(out, cli_picture_label(labels, end - 1, 1, prefix, scratch));
  }
  cli_bytes_text(out, "]");
}

static void add_data(const cli_picture *picture, const cli_cells *cells, cli_bytes *out) {
  const struct {
    const char *name;
    int64_t value;
  } numbers[] = {
      {"heads", picture->shape[1]},     {"rows", picture->shape[2]},          {"columns", picture->shape[3]},
      {"cellRows", cells->rows},        {"cellColumns", cells->columns},      {"rowBin", cells->row_bin},
      {"columnBin", cells->column_bin}, {"firstLayer", picture->first_layer}, {"firstHead", picture->first_head}};
  cli_bytes_format(out, "{\"layers\":%" PRId64, picture->shape[0]);
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
    cli_bytes_format(out, ",\"%s\":%" PRId64, numbers[i].name, numbers[i].value);
  cli_bytes_format(out, ",\n\"low\":%.17g,\"high\":%.17g,\"blank\":%s,\"hatched\":%s,\n\"layerName\":", cells->low,
                   cells->high, cells->blank ? "true" : "false", cells->hatched ? "true" : "false");
  cli_bytes_json(out, picture->layer_name);
  cli_bytes_text(out, ",\"headName\":");
  cli_bytes_json(out, picture->head_name);
  add_labels("row", picture->rows, cells->rows, cells->row_bin, picture->shape[2], 'q', out);
  add_labels("column", picture->columns, cells->columns, cells->column_bin, picture->shape[3], 'k', out);
  add_ramp("light", 0, out);
  add_ramp("dark", 1, out);
  add_weights(cells, out);
  cli_bytes_text(out, "}\n");
}

int cli_picture_html(const cli_picture *picture, const cli_file *file, cli_bytes *out) {
  enum { MOST_SIDE = 512, MOST_CELLS = 4000000 };
  cli_cells cells;
  (void)file;
  const int code = cli_cells_make(picture, MOST_SIDE, MOST_CELLS, &cells);
  if (code != CLI_OK)
    return code;
  cli_bytes_text(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                      "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n<title>");
  cli_bytes_xml(out, picture->title != NULL && picture->title[0] != 0 ? picture->title : "attention weights");
  cli_bytes_text(out, "</title>\n<style>\n");
  add_lines(out, cli_page_style);
  cli_bytes_text(out, "</style>\n</head>\n<body>\n");
  add_lines(out, cli_page_body);
  cli_bytes_text(out, "<script type=\"application/json\" id=\"data\">\n");
  add_data(picture, &cells, out);
  cli_bytes_text(out, "</script>\n<script>\n");
  add_lines(out, cli_page_script);
  cli_bytes_text(out, "</script>\n</body>\n</html>\n");
  cli_cells_release(&cells);
  return CLI_OK;
}
