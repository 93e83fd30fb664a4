/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of the devices and the runs, side by side, and what a reader must know first. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "report_page.h"

enum { VALUE_BYTES = 1100 };

/* ---- values ---- */

static void put_text(char *text, const char *value) {
  snprintf(text, VALUE_BYTES, "%s", value);
}

static const char *type_name(uint64_t type) {
  if (type & CL_DEVICE_TYPE_CPU)
    return "CPU";
  if (type & CL_DEVICE_TYPE_GPU)
    return "GPU";
  return type & CL_DEVICE_TYPE_ACCELERATOR ? "accelerator" : "other";
}

static void fact_device(const bench_run *run, char *text) {
  put_text(text, run->context.device);
}
static void fact_id(const bench_run *run, char *text) {
  put_text(text, run->context.device_id);
}
static void fact_vendor(const bench_run *run, char *text) {
  put_text(text, run->context.vendor);
}
static void fact_driver(const bench_run *run, char *text) {
  put_text(text, run->context.driver);
}
static void fact_platform(const bench_run *run, char *text) {
  put_text(text, run->context.platform);
}
static void fact_version(const bench_run *run, char *text) {
  put_text(text, run->context.version);
}
static void fact_os(const bench_run *run, char *text) {
  put_text(text, run->context.os);
}
static void fact_cpu(const bench_run *run, char *text) {
  put_text(text, run->context.cpu);
}
static void fact_clattn(const bench_run *run, char *text) {
  put_text(text, run->context.clattn);
}
static void fact_date(const bench_run *run, char *text) {
  put_text(text, run->context.date);
}
static void fact_command(const bench_run *run, char *text) {
  put_text(text, run->context.command);
}

static void fact_units(const bench_run *run, char *text) {
  const bench_context *c = &run->context;
  snprintf(text, VALUE_BYTES, "%s, %" PRIu32 " compute units, native float width %" PRIu32, type_name(c->device_type),
           c->compute_units, c->native_float_width);
}

static void fact_memory(const bench_run *run, char *text) {
  char global[REPORT_NUMBER_BYTES], local[REPORT_NUMBER_BYTES];
  snprintf(text, VALUE_BYTES, "%s global, %s local", report_size((double)run->context.global_bytes, global),
           report_size((double)run->context.local_bytes, local));
}

static void put_peak(const bench_run *run, report_roof_kind kind, const char *unit, int64_t footprint, char *text) {
  char number[REPORT_NUMBER_BYTES], bytes[REPORT_NUMBER_BYTES];
  const double peak = report_peak(&run->context.peaks, kind) / 1e9;
  if (run->context.simulated && peak > 0)
    snprintf(text, VALUE_BYTES, "%s %s, given", report_number(peak, number), unit);
  else if (peak <= 0)
    put_text(text, "not measured");
  else if (footprint > 0)
    snprintf(text, VALUE_BYTES, "%s %s, reading %s", report_number(peak, number), unit,
             report_size((double)footprint, bytes));
  else
    snprintf(text, VALUE_BYTES, "%s %s", report_number(peak, number), unit);
}

static void fact_fma(const bench_run *run, char *text) {
  put_peak(run, REPORT_ROOF_FMA, "GFLOP/s", 0, text);
}
static void fact_half(const bench_run *run, char *text) {
  put_peak(run, REPORT_ROOF_HALF, "GFLOP/s", 0, text);
}
static void fact_matrix(const bench_run *run, char *text) {
  put_peak(run, REPORT_ROOF_MATRIX, "GFLOP/s", 0, text);
}
static void fact_read(const bench_run *run, char *text) {
  put_peak(run, REPORT_ROOF_MEMORY, "GB/s", run->context.peaks.memory_footprint, text);
}
static void fact_cache(const bench_run *run, char *text) {
  put_peak(run, REPORT_ROOF_CACHE, "GB/s", run->context.peaks.cache_footprint, text);
}

static void fact_exponentials(const bench_run *run, char *text) {
  char number[REPORT_NUMBER_BYTES];
  const double rate = run->context.peaks.exp2_per_second / 1e9;
  if (rate > 0)
    snprintf(text, VALUE_BYTES, "%s \xc3\x97 10\xe2\x81\xb9 exponentials/s", report_number(rate, number));
  else
    put_text(text, "not measured");
}

static void fact_launch(const bench_run *run, char *text) {
  char number[REPORT_NUMBER_BYTES];
  if (run->context.peaks.launch_ns > 0)
    snprintf(text, VALUE_BYTES, "%s \xc2\xb5s", report_number((double)run->context.peaks.launch_ns / 1000, number));
  else
    put_text(text, "not measured");
}

static void fact_rows(const bench_run *run, char *text) {
  size_t used = 0;
  put_text(text, "none");
  for (int status = BENCH_OK; status <= BENCH_FAILED; status++) {
    size_t count = 0;
    for (size_t i = 0; i < run->count; i++)
      count += run->rows[i].status == (bench_status)status;
    if (count > 0)
      used += (size_t)snprintf(text + used, VALUE_BYTES - used, "%s%zu %s", used > 0 ? ", " : "", count,
                               report_status_name((bench_status)status));
  }
}

/* One word when all timed rows agree. */
static const char *one_of(const bench_run *run, int cold, const char *no, const char *yes) {
  size_t count[2] = {0};
  for (size_t i = 0; i < run->count; i++) {
    if (report_timed(&run->rows[i]))
      count[(cold ? run->rows[i].cold : run->rows[i].by_events) != 0]++;
  }
  if (count[0] > 0 && count[1] > 0)
    return "mixed";
  return count[1] > 0 ? yes : count[0] > 0 ? no : "nothing timed";
}

static void fact_timing(const bench_run *run, char *text) {
  put_text(text, one_of(run, 0, "wall clock", "device events"));
}
static void fact_inputs(const bench_run *run, char *text) {
  put_text(text, one_of(run, 1, "hot: the same buffers each time", "cold: copies beyond the last cache in turn"));
}

static const struct fact {
  const char *name;
  void (*put)(const bench_run *run, char *text);
  int matters; /* runs that differ here are hard to compare */
} facts[] = {
    {"device", fact_device, 1},
    {"device number", fact_id, 0},
    {"vendor", fact_vendor, 0},
    {"driver", fact_driver, 1},
    {"platform", fact_platform, 1},
    {"OpenCL", fact_version, 0},
    {"kind", fact_units, 0},
    {"memory", fact_memory, 0},
    {"host CPU", fact_cpu, 0},
    {"OS", fact_os, 0},
    {"clattn version", fact_clattn, 1},
    {"date", fact_date, 0},
    {"command", fact_command, 0},
    {"rows", fact_rows, 0},
    {"timing method", fact_timing, 1},
    {"inputs", fact_inputs, 1},
    {"FMA peak, fp32", fact_fma, 0},
    {"fp16 peak", fact_half, 0},
    {"matrix unit's peak", fact_matrix, 0},
    {"memory read", fact_read, 0},
    {"cache read", fact_cache, 0},
    {"exponentials", fact_exponentials, 0},
    {"launch latency", fact_launch, 0},
};
enum { FACTS = sizeof facts / sizeof facts[0], FIRST_PEAK = 16 };

static int differs(const report_runs *runs, const struct fact *fact, int run) {
  char first[VALUE_BYTES], this_one[VALUE_BYTES];
  fact->put(runs->run[0], first);
  fact->put(runs->run[run], this_one);
  return strcmp(first, this_one) != 0;
}

/* ---- sections ---- */

void report_facts_write(const report_runs *runs, cli_bytes *out) {
  char text[VALUE_BYTES];
  cli_bytes_text(out, "<section>\n<h2>Device and run</h2>\n<div class=\"scroll\">\n<table class=\"facts\">\n");
  if (runs->count > 1) {
    cli_bytes_text(out, "<thead><tr><th></th>");
    for (int run = 0; run < runs->count; run++) {
      cli_bytes_format(out, "<th scope=\"col\"><i class=\"swatch b%d\"></i>%c ", run, report_letter(run));
      cli_bytes_xml(out, runs->name[run]);
      cli_bytes_text(out, "</th>");
    }
    cli_bytes_text(out, "</tr></thead>\n");
  }
  cli_bytes_text(out, "<tbody>\n");
  for (size_t i = 0; i < FACTS; i++) {
    if (i == FIRST_PEAK)
      cli_bytes_format(out, "</tbody>\n<tbody>\n<tr><th class=\"part\" colspan=\"%d\">measured peaks</th></tr>\n",
                       runs->count + 1);
    cli_bytes_format(out, "<tr><th scope=\"row\">%s</th>", facts[i].name);
    for (int run = 0; run < runs->count; run++) {
      const int marked = facts[i].matters && differs(runs, &facts[i], run);
      facts[i].put(runs->run[run], text);
      cli_bytes_text(out, marked ? "<td class=\"differs\">\xe2\x89\xa0 " : "<td>");
      cli_bytes_xml(out, text[0] != 0 ? text : "\xe2\x80\x93");
      cli_bytes_text(out, "</td>");
    }
    cli_bytes_text(out, "</tr>\n");
  }
  cli_bytes_text(out, "</tbody>\n</table>\n</div>\n</section>\n");
}

static void add_differences(const report_runs *runs, cli_bytes *out) {
  int said = 0;
  for (size_t i = 0; i < FACTS; i++) {
    int any = 0;
    for (int run = 1; run < runs->count && facts[i].matters; run++)
      any |= differs(runs, &facts[i], run);
    if (!any)
      continue;
    cli_bytes_text(out, said ? ", " : "<p class=\"banner\"><b>\xe2\x89\xa0</b> These runs differ in: ");
    cli_bytes_text(out, facts[i].name);
    said = 1;
  }
  cli_bytes_text(out, said ? ". A ratio between them has more than one possible cause.</p>\n" : "");
}

void report_banners_write(const report_runs *runs, cli_bytes *out) {
  for (int run = 0; run < runs->count; run++) {
    const bench_context *context = &runs->run[run]->context;
    char who[4] = "";
    if (runs->count > 1)
      snprintf(who, sizeof who, "%c: ", report_letter(run));
    if (context->simulated)
      cli_bytes_format(
          out,
          "<p class=\"banner\">%s<b>SIMULATED</b>: no device was there. Its facts and peaks come from a file; "
          "nothing was measured.</p>\n",
          who);
    if (context->noisy)
      cli_bytes_format(out,
                       "<p class=\"banner\">%s<b>NOISY</b>: more than a fifth of the rows spread over 5 %%. Other "
                       "work, or a clock that changes, was in the way; small differences say nothing.</p>\n",
                       who);
  }
  if (runs->count > 1)
    add_differences(runs, out);
}
