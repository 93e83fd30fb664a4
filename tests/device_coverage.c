/* SPDX-License-Identifier: Apache-2.0 */
/* Which rules ran, in which head-dimension classes, on each fused variant: every cell must have a case. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "device_judge.h"
#include "device_rules.h"

enum { CLASSES = 6 };
static const int64_t class_most[CLASSES - 1] = {32, 64, 128, 256, 1024};
static const char *const class_names[CLASSES] = {"to 32", "to 64", "to 128", "to 256", "to 1024", "above"};

static size_t cells[VARIANTS_MOST][COVERAGE_RULES_MOST][CLASSES];

static int class_of(int64_t dim) {
  int n = 0;
  while (n < CLASSES - 1 && dim > class_most[n])
    ++n;
  return n;
}

void coverage_add(uint32_t variant, const device_job *job, uint32_t outputs, clattn_stage stage) {
  const executed x = {job, &job->resolved, outputs, stage};
  const int column = class_of(x.p->qk_dim > x.p->v_dim ? x.p->qk_dim : x.p->v_dim);
  if (job->sizes.batch == 0 || job->sizes.q_len == 0 || job->sizes.k_len == 0)
    return; /* nothing was computed */
  assert_true(coverage_rule_count <= COVERAGE_RULES_MOST);
  for (size_t n = 0; n < coverage_rule_count; ++n)
    cells[variant][n][column] += coverage_rules[n].has(&x) != 0;
}

/* Prints the runs of the fused variant that ran least, cell by cell: of rules, or of types and similarities. */
static void look_at_cells(int types) {
  size_t empty = 0, fused = 0;
  for (uint32_t v = 0; v < variant_count; ++v)
    fused += variants[v].fused && variants[v].usable;
  assert_true(fused > 0);
  print_message("%-24s", "runs by head dimension");
  for (int column = 0; column < CLASSES; ++column)
    print_message("%9s", class_names[column]);
  print_message("\n");
  for (size_t n = 0; n < coverage_rule_count; ++n) {
    if ((coverage_rules[n].kind == RULE_TYPE || coverage_rules[n].kind == RULE_TYPE_PAIRED) != types)
      continue;
    print_message("%-24s", coverage_rules[n].name);
    for (int column = 0; column < CLASSES; ++column) {
      size_t least = SIZE_MAX;
      for (uint32_t v = 0; v < variant_count; ++v)
        if (variants[v].fused && variants[v].usable && cells[v][n][column] < least)
          least = cells[v][n][column];
      print_message("%9zu", least);
      empty += least == 0;
    }
    print_message("\n");
  }
  if (empty > 0)
    fail_msg("%zu cells without a case", empty);
}

void every_cell_has_a_case(void **state) {
  (void)state;
  look_at_cells(0);
}

void every_type_has_a_case(void **state) {
  (void)state;
  look_at_cells(1);
}
