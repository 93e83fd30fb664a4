/* SPDX-License-Identifier: Apache-2.0 */
#include "report.h"

#include <string.h>

#include "cli.h"
#include "record.h"
#include "report_page.h"

static const char *without_dashes(const char *option) {
  return option + strspn(option, "-");
}

static void add_title(const report_runs *runs, cli_bytes *out) {
  if (runs->count > 1) {
    cli_bytes_format(out, "clattn compare: %d runs", runs->count);
    return;
  }
  cli_bytes_text(out, "clattn bench: ");
  cli_bytes_xml(out, runs->run[0]->context.device[0] != 0 ? runs->run[0]->context.device : runs->name[0]);
}

static void add_begin(const report_runs *runs, cli_bytes *out) {
  cli_bytes_text(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                      "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n<title>");
  add_title(runs, out);
  cli_bytes_text(out, "</title>\n<style>\n");
  report_style_write(out);
  cli_bytes_text(out, "</style>\n</head>\n<body>\n"
                      "<svg class=\"hidden\" width=\"0\" height=\"0\" aria-hidden=\"true\"><defs><pattern id=\"wrong\" "
                      "width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">"
                      "<path class=\"hatch\" d=\"M1 0V6\"/></pattern></defs></svg>\n<header>\n<h1>");
  add_title(runs, out);
  cli_bytes_text(out, "</h1>\n");
  if (runs->count == 1) {
    cli_bytes_text(out, "<p>");
    cli_bytes_xml(out, runs->run[0]->context.date);
    if (strcmp(runs->name[0], runs->run[0]->context.device) != 0) {
      cli_bytes_text(out, ", ");
      cli_bytes_xml(out, runs->name[0]);
    }
    cli_bytes_text(out, "</p>\n");
  }
  cli_bytes_text(out, "</header>\n");
}

static int add_sections(const report_runs *runs, cli_bytes *out) {
  enum { BESIDE_MOST = 3 }; /* runs whose facts fit beside the plot */
  report_roofline roofline;
  int code = report_roofline_make(runs, &roofline);
  if (code != CLI_OK)
    return code;
  report_banners_write(runs, out);
  cli_bytes_text(out, runs->count <= BESIDE_MOST ? "<div class=\"beside\">\n" : "<div>\n");
  report_roofline_write(runs, &roofline, out);
  report_roofline_release(&roofline);
  report_facts_write(runs, out);
  cli_bytes_text(out, "</div>\n");
  if (runs->count > 1)
    code = report_compare_write(runs, out);
  if (code == CLI_OK)
    code = report_bars_write(runs, out);
  report_table_write(runs, out);
  report_problems_write(runs, out);
  return code;
}

int bench_report_text(const bench_run *const *runs, int count, const char *const *names, const char *option,
                      cli_bytes *out) {
  report_runs all;
  memset(out, 0, sizeof *out);
  if (count < 1 || count > BENCH_REPORT_MOST_RUNS)
    return cli_fail(CLI_USAGE, "--%s: a report shows 1 to %d runs, not %d", without_dashes(option),
                    BENCH_REPORT_MOST_RUNS, count);
  int code = report_runs_make(runs, count, names, &all);
  if (code != CLI_OK)
    return code;
  add_begin(&all, out);
  code = add_sections(&all, out);
  cli_bytes_text(out, "<div id=\"tip\" hidden></div>\n<script>\n");
  report_script_write(out);
  cli_bytes_text(out, "</script>\n</body>\n</html>\n");
  report_runs_release(&all);
  return code == CLI_OK && out->failed ? cli_fail_memory() : code;
}

int bench_report_write(const bench_run *const *runs, int count, const char *const *names, const char *option,
                       const char *path) {
  cli_files files;
  cli_bytes bytes;
  memset(&files, 0, sizeof files);
  files.file[0].option = without_dashes(option);
  files.file[0].path = path;
  int code = bench_report_text(runs, count, names, option, &bytes);
  if (code == CLI_OK)
    code = cli_files_begin(&files, NULL, 0);
  if (code == CLI_OK)
    code = cli_files_put_bytes(&files.file[0], "html", bytes.data, bytes.count);
  if (code == CLI_OK)
    code = cli_files_commit(&files);
  cli_files_discard(&files);
  cli_bytes_release(&bytes);
  return code;
}
