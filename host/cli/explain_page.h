/* SPDX-License-Identifier: Apache-2.0 */
/* What explain shows: headings, sentences and tables in their order, printed as text, Markdown or HTML. */
#ifndef CLATTN_CLI_EXPLAIN_PAGE_H
#define CLATTN_CLI_EXPLAIN_PAGE_H

#include "explain_small.h"
#include "heatmap.h"

enum { CLI_PAGE_LINES = 4, CLI_PAGE_TEXT = 256 };

typedef enum cli_page_format { CLI_PAGE_PLAIN, CLI_PAGE_MARKDOWN, CLI_PAGE_HTML } cli_page_format;

/* Names of rows or columns: the labels (which must live as long as the page), else prefix and number. */
typedef struct cli_page_axis {
  const cli_labels *labels;
  char prefix;
} cli_page_axis;

typedef struct cli_page_item {
  int is_table, is_heading;                        /* else a sentence: `title` alone */
  char title[CLI_PAGE_TEXT];                       /* UTF-8 */
  char formula[CLI_PAGE_LINES][CLI_PAGE_TEXT / 2]; /* up to the first empty one */
  cli_page_axis rows, columns;
  int weights;  /* shaded in HTML */
  int row_sums; /* a column more */
  int beside;   /* stands on the right of the table before it */
  cli_small numbers;
} cli_page_item;

typedef struct cli_page {
  cli_page_item *item;
  int count, failed; /* failed: memory was short, which printing tells */
  cli_page_item spare;
} cli_page;

/* Items to fill in, never NULL; each is valid until the next is made. */
cli_page_item *cli_page_sentence(cli_page *page, const char *text);
cli_page_item *cli_page_heading(cli_page *page, const char *text);
cli_page_item *cli_page_table(cli_page *page, const char *title, cli_page_axis rows, cli_page_axis columns,
                              const cli_small *numbers);
/* A line of the item's formula; lines that are too many or too long are cut. */
void cli_page_formula(cli_page_item *item, const char *format, ...);

int cli_page_print(const cli_page *page, cli_page_format format);
void cli_page_free(cli_page *page);

#endif
