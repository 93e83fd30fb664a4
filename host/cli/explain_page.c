/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "explain_page.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "picture_unicode.h"

enum { CELL = 10, FORMULA_WIDTH = 40, PLAIN_WIDTH = 140, GAP = 3 };

/* ---- building ---- */

static cli_page_item *add(cli_page *page, const char *title) {
  cli_page_item *grown = realloc(page->item, ((size_t)page->count + 1) * sizeof *grown);
  cli_page_item *item = &page->spare;
  if (grown != NULL) {
    page->item = grown;
    item = &grown[page->count++];
  } else {
    page->failed = 1;
  }
  memset(item, 0, sizeof *item);
  snprintf(item->title, sizeof item->title, "%s", title);
  return item;
}

cli_page_item *cli_page_sentence(cli_page *page, const char *text) {
  return add(page, text);
}

cli_page_item *cli_page_heading(cli_page *page, const char *text) {
  cli_page_item *item = add(page, text);
  item->is_heading = 1;
  return item;
}

cli_page_item *cli_page_table(cli_page *page, const char *title, cli_page_axis rows, cli_page_axis columns,
                              const cli_small *numbers) {
  cli_page_item *item = add(page, title);
  item->is_table = 1;
  item->rows = rows;
  item->columns = columns;
  item->numbers = *numbers;
  return item;
}

void cli_page_formula(cli_page_item *item, const char *format, ...) {
  int line = 0;
  while (line < CLI_PAGE_LINES && item->formula[line][0] != 0)
    line++;
  if (line == CLI_PAGE_LINES)
    return;
  va_list list;
  va_start(list, format);
  vsnprintf(item->formula[line], sizeof item->formula[line], format, list);
  va_end(list);
}

void cli_page_free(cli_page *page) {
  free(page->item);
  page->item = NULL;
  page->count = 0;
}

static int formulas(const cli_page_item *item) {
  int lines = 0;
  while (lines < CLI_PAGE_LINES && item->formula[lines][0] != 0)
    lines++;
  return lines;
}

/* Tables from `at` on that stand beside each other. */
static int group(const cli_page *page, int at) {
  int count = 1;
  while (at + count < page->count && page->item[at + count].beside)
    count++;
  return count;
}

static const char *number_text(double value, char text[32]) {
  const double size = fabs(value);
  snprintf(text, 32, size != 0 && isfinite(value) && (size >= 1e3 || size < 1e-3) ? "%.2e" : "%.4f",
           cli_unsigned_nan(value));
  return text;
}

static double row_sum(const cli_page_item *item, int64_t row) {
  double sum = 0;
  for (int64_t j = 0; j < item->numbers.columns; j++)
    sum += (double)item->numbers.at[row][j];
  return sum;
}

static const char *row_label(const cli_page_item *item, int64_t i, char scratch[32]) {
  return cli_label(item->rows.labels, i, item->rows.prefix, scratch);
}

static const char *column_label(const cli_page_item *item, int64_t j, char scratch[32]) {
  return cli_label(item->columns.labels, j, item->columns.prefix, scratch);
}

/* ---- text ---- */

/* On the right of a column of this width; longer texts are cut. */
static void print_cell(const char *text, int width) {
  int shown = 0;
  const char *end = text;
  while (*end != 0 && shown + cli_character_columns(end) <= width) {
    shown += cli_character_columns(end);
    end = cli_character_end(end);
  }
  printf("%*s%.*s", width - shown, "", (int)(end - text), text);
}

static void print_spaced(const char *text) {
  printf(" ");
  print_cell(text, CELL - 1);
}

static int row_width(const cli_page_item *item) {
  return CELL * ((int)item->numbers.columns + item->row_sums);
}

static void print_head(const cli_page_item *item) {
  char scratch[32];
  for (int64_t j = 0; j < item->numbers.columns; j++)
    print_spaced(column_label(item, j, scratch));
  if (item->row_sums)
    print_spaced("sum");
}

static void print_row(const cli_page_item *item, int64_t i) {
  char text[32];
  for (int64_t j = 0; j < item->numbers.columns; j++)
    print_spaced(number_text((double)item->numbers.at[i][j], text));
  if (item->row_sums)
    print_spaced(number_text(row_sum(item, i), text));
}

static void print_formula(const cli_page_item *item, int64_t line) {
  const char *text = line < CLI_PAGE_LINES ? item->formula[line] : "";
  const int width = cli_width(text);
  printf("  %s%*s", text, width < FORMULA_WIDTH ? FORMULA_WIDTH - width : 1, "");
}

/* One table: the formula stands on its left. */
static void plain_table(const cli_page_item *item) {
  char scratch[32];
  printf("\n%s\n", item->title);
  print_formula(item, 0);
  print_cell("", CELL);
  print_head(item);
  printf("\n");
  for (int64_t i = 0; i < item->numbers.rows; i++) {
    print_formula(item, i + 1);
    print_cell(row_label(item, i, scratch), CELL);
    print_row(item, i);
    printf("\n");
  }
  for (int64_t line = item->numbers.rows + 1; line < formulas(item); line++)
    printf("  %s\n", item->formula[line]);
}

/* Tables with the same rows; under each other where the line would be too long. */
static void plain_group(const cli_page_item *items, int count) {
  char scratch[32];
  int width = CELL;
  for (int n = 0; n < count; n++)
    width += row_width(&items[n]) + (n > 0 ? GAP : 0);
  if (width > PLAIN_WIDTH) {
    for (int n = 0; n < count; n++)
      plain_table(&items[n]);
    return;
  }
  printf("\n");
  print_cell("", CELL);
  for (int n = 0; n < count; n++) {
    printf("%*s", n > 0 ? GAP : 0, "");
    print_cell(items[n].title, row_width(&items[n]));
  }
  printf("\n");
  print_cell("", CELL);
  for (int n = 0; n < count; n++) {
    printf("%*s", n > 0 ? GAP : 0, "");
    print_head(&items[n]);
  }
  printf("\n");
  for (int64_t i = 0; i < items[0].numbers.rows; i++) {
    print_cell(row_label(&items[0], i, scratch), CELL);
    for (int n = 0; n < count; n++) {
      printf("%*s", n > 0 ? GAP : 0, "");
      print_row(&items[n], i);
    }
    printf("\n");
  }
}

static void print_plain(const cli_page *page) {
  for (int at = 0; at < page->count;) {
    const cli_page_item *item = &page->item[at];
    const int count = group(page, at);
    if (count > 1)
      plain_group(item, count);
    else if (item->is_table)
      plain_table(item);
    else if (item->is_heading)
      printf("\n---- %s ----\n", item->title);
    else
      printf("%s%s\n", at > 0 ? "\n" : "", item->title);
    for (int line = 0; line < formulas(item) && !item->is_table; line++)
      printf("  %s\n", item->formula[line]);
    at += count;
  }
}

/* ---- Markdown ---- */

/* The character at *text, which moves behind it; what is no UTF-8 becomes U+FFFD. */
static void print_character(const char **text) {
  const char *const at = *text;
  if (cli_utf8_next(text) == CLI_NO_CHARACTER)
    fputs("\xef\xbf\xbd", stdout);
  else
    fwrite(at, 1, (size_t)(*text - at), stdout);
}

/* Labels and names may hold anything; what Markdown or HTML would read as its own is made a plain character. */
static void print_markdown(const char *text) {
  while (*text != 0) {
    if (strchr("\\`*_[]<>#|~&", *text) != NULL)
      putchar('\\');
    print_character(&text);
  }
}

static void markdown_table(const cli_page_item *item) {
  char scratch[32];
  printf("\n| |");
  for (int64_t j = 0; j < item->numbers.columns; j++) {
    printf(" ");
    print_markdown(column_label(item, j, scratch));
    printf(" |");
  }
  printf("%s\n| ---: |", item->row_sums ? " sum |" : "");
  for (int64_t j = 0; j < item->numbers.columns + item->row_sums; j++)
    printf(" ---: |");
  printf("\n");
  for (int64_t i = 0; i < item->numbers.rows; i++) {
    printf("| ");
    print_markdown(row_label(item, i, scratch));
    printf(" |");
    for (int64_t j = 0; j < item->numbers.columns; j++)
      printf(" %s |", number_text((double)item->numbers.at[i][j], scratch));
    if (item->row_sums)
      printf(" %s |", number_text(row_sum(item, i), scratch));
    printf("\n");
  }
}

static void print_as_markdown(const cli_page *page) {
  printf("# Attention, step by step\n");
  for (int at = 0; at < page->count; at++) {
    const cli_page_item *item = &page->item[at];
    printf("\n%s", item->is_heading ? "## " : item->is_table ? "### " : "");
    print_markdown(item->title);
    printf("\n");
    for (int line = 0; line < formulas(item); line++)
      printf("%s    %s\n", line == 0 ? "\n" : "", item->formula[line]);
    if (item->is_table)
      markdown_table(item);
  }
}

/* ---- HTML ---- */

static void print_html(const char *text) {
  static const char special[] = "&<>\"";
  static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&quot;"};
  while (*text != 0) {
    const char *found = strchr(special, *text);
    if (found != NULL) {
      fputs(names[found - special], stdout);
      text++;
    } else {
      print_character(&text);
    }
  }
}

static void html_element(const char *open, const char *text, const char *close) {
  fputs(open, stdout);
  print_html(text);
  fputs(close, stdout);
}

/* A cell of weights is shaded by its number. */
static void html_number(double value, int shaded) {
  char text[32];
  if (shaded && value >= 0 && value <= 1)
    printf("<td style=\"--w:%.3f\">%s</td>", value, number_text(value, text));
  else
    printf("<td>%s</td>", number_text(value, text));
}

static void html_table(const cli_page_item *item) {
  char scratch[32];
  html_element("<section>\n<h3>", item->title, "</h3>\n");
  for (int line = 0; line < formulas(item); line++)
    html_element("<p class=\"formula\">", item->formula[line], "</p>\n");
  printf("<table%s>\n<thead><tr><td></td>", item->weights ? " class=\"weights\"" : "");
  for (int64_t j = 0; j < item->numbers.columns; j++)
    html_element("<th scope=\"col\">", column_label(item, j, scratch), "</th>");
  printf("%s</tr></thead>\n<tbody>\n", item->row_sums ? "<th scope=\"col\" class=\"sum\">sum</th>" : "");
  for (int64_t i = 0; i < item->numbers.rows; i++) {
    html_element("<tr><th scope=\"row\">", row_label(item, i, scratch), "</th>");
    for (int64_t j = 0; j < item->numbers.columns; j++)
      html_number((double)item->numbers.at[i][j], item->weights);
    if (item->row_sums)
      printf("<td class=\"sum\">%s</td>", number_text(row_sum(item, i), scratch));
    printf("</tr>\n");
  }
  printf("</tbody>\n</table>\n</section>\n");
}

static const char html_start[] =
    "<!DOCTYPE html>\n"
    "<html lang=\"en\">\n"
    "<head>\n"
    "<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<title>Attention, step by step</title>\n"
    "<style>\n"
    ":root { color-scheme: light dark; --back: #ffffff; --text: #1b1f24; --quiet: #5b6470; --line: #d4d9df;"
    " --shade: 37, 99, 235; }\n"
    "@media (prefers-color-scheme: dark) { :root { --back: #14171b; --text: #e6e9ed; --quiet: #9aa4b0; --line: #39414a;"
    " --shade: 96, 150, 250; } }\n"
    "body { margin: 2rem auto; max-width: 72rem; padding: 0 1rem; background: var(--back); color: var(--text);"
    " font: 16px/1.5 system-ui, sans-serif; }\n"
    "h2 { border-bottom: 1px solid var(--line); }\n"
    "h3 { margin: 1.5rem 0 0.25rem; font-size: 1rem; }\n"
    ".formula { margin: 0; color: var(--quiet); font-family: ui-monospace, monospace; font-size: 0.9rem; }\n"
    ".group { display: flex; flex-wrap: wrap; gap: 0 2.5rem; }\n"
    "section { overflow-x: auto; }\n"
    "table { border-collapse: collapse; margin-top: 0.5rem; font-variant-numeric: tabular-nums; }\n"
    "th { color: var(--quiet); font-weight: normal; }\n"
    "th, td { padding: 0.2rem 0.6rem; text-align: right; }\n"
    "td { border: 1px solid var(--line); }\n"
    "thead td { border: none; }\n"
    ".weights td { background: rgba(var(--shade), calc(var(--w, 0) * 0.6)); }\n"
    ".weights td.sum { border: none; background: none; color: var(--quiet); }\n"
    "</style>\n"
    "</head>\n"
    "<body>\n"
    "<h1>Attention, step by step</h1>\n";

static void print_as_html(const cli_page *page) {
  fputs(html_start, stdout);
  for (int at = 0; at < page->count;) {
    const cli_page_item *item = &page->item[at];
    const int count = group(page, at);
    if (count > 1)
      printf("<div class=\"group\">\n");
    for (int n = 0; n < count && item->is_table; n++)
      html_table(&item[n]);
    if (count > 1)
      printf("</div>\n");
    if (!item->is_table) {
      html_element(item->is_heading ? "<h2>" : "<p>", item->title, item->is_heading ? "</h2>\n" : "</p>\n");
      for (int line = 0; line < formulas(item); line++)
        html_element("<p class=\"formula\">", item->formula[line], "</p>\n");
    }
    at += count;
  }
  fputs("</body>\n</html>\n", stdout);
}

int cli_page_print(const cli_page *page, cli_page_format format) {
  if (page->failed)
    return cli_fail_memory();
  if (format == CLI_PAGE_HTML)
    print_as_html(page);
  else if (format == CLI_PAGE_MARKDOWN)
    print_as_markdown(page);
  else
    print_plain(page);
  return CLI_OK;
}
