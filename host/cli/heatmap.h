/* SPDX-License-Identifier: Apache-2.0 */
/* Labels of queries and keys, and the heat map of one head's weights in a terminal. */
#ifndef CLATTN_CLI_HEATMAP_H
#define CLATTN_CLI_HEATMAP_H

#include <stddef.h>
#include <stdint.h>

enum { CLI_HEAT_MOST = 32 }; /* rows and columns */

typedef struct cli_labels {
  char **text;
  int64_t count;
} cli_labels;

/* "A,B,C", or "@FILE" with a label per line.  Their number must be `count`; `name` is the option.  Control characters
 * become '?', since labels go to a terminal. */
int cli_labels_load(const char *name, const char *source, int64_t count, cli_labels *out);
/* One more; control characters become '?' here, too. */
int cli_labels_add(cli_labels *labels, const char *text, size_t length);
void cli_labels_free(cli_labels *labels);
/* Label i, or (without labels) prefix and number in scratch. */
const char *cli_label(const cli_labels *labels, int64_t i, char prefix, char scratch[32]);
/* Columns of a terminal that a UTF-8 text takes: East Asian characters take two, accents none. */
int cli_width(const char *text);

/* Rows are queries, columns are keys; the darkest cell is the largest weight. */
void cli_heatmap(const float *weights, int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride,
                 const cli_labels *row_labels, const cli_labels *column_labels);

#endif
