/* SPDX-License-Identifier: Apache-2.0 */
/* property [run COUNT [SEED]]: so many random problems (2000), of 32 programs that the seed chooses.
 * property soak COUNT|SECONDSs [SEED]: many of them, 2000 for each set of programs.
 * property replay "CASE": one case as a failure prints it.
 * property plant [SEED]: plants a fault into what the device computes; it must be found and made small.
 * --programs N before all: other than 32; pairs of types need 24.
 *
 * A failure is made small and printed as a problem line for the clattn program and as a case for `replay`. */
#define _POSIX_C_SOURCE 200809L
#include "property.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "device_rules.h"

enum { PER_ROUND = 2000, FAILURES_MOST = 5, PAIR_LEAST = 10, PROGRAMS = 32, TYPE_PROGRAMS = 24, TEXT_MOST = 8192 };

/* ---- what was met ---------------------------------------------------------------------------------------------- */

typedef struct tally {
  size_t problems, crossing, failures;
  size_t pairs[COVERAGE_RULES_MOST][COVERAGE_RULES_MOST];
  size_t related[RELATIONS];
} tally;

static int is_paired(size_t n) {
  return coverage_rules[n].kind == RULE_PAIRED || coverage_rules[n].kind == RULE_TYPE_PAIRED;
}

static void count_pairs(tally *t, const property_case *c) {
  const executed x = {&c->job, &c->job.resolved, c->outputs, c->stage};
  int has[COVERAGE_RULES_MOST];
  for (size_t n = 0; n < coverage_rule_count; ++n)
    has[n] = is_paired(n) && coverage_rules[n].has(&x);
  for (size_t n = 0; n < coverage_rule_count; ++n)
    for (size_t m = 0; has[n] && m <= n; ++m)
      t->pairs[n][m] += has[m] != 0;
}

static int exclude_each_other(size_t n, size_t m) {
  return n != m && coverage_rules[n].group != 0 && coverage_rules[n].group == coverage_rules[m].group;
}

/* A triangle: how often rules came together, on the diagonal how often alone or not.  The number of pairs below the
 * least. */
static size_t print_pairs(const tally *t, int types_too) {
  size_t numbers[COVERAGE_RULES_MOST], count = 0, missing = 0;
  for (size_t n = 0; n < coverage_rule_count; ++n)
    if (is_paired(n))
      numbers[count++] = n;
  printf("pairs of rules; column n is the rule of row n, - excluded by definition\n");
  for (size_t i = 0; i < count; ++i) {
    printf("%2zu %-22s", i + 1, coverage_rules[numbers[i]].name);
    for (size_t j = 0; j <= i; ++j) {
      const size_t n = numbers[i], m = numbers[j], met = t->pairs[n][m];
      const int of_types = coverage_rules[n].kind == RULE_TYPE_PAIRED || coverage_rules[m].kind == RULE_TYPE_PAIRED;
      if (exclude_each_other(n, m))
        printf("%5s", "-");
      else
        printf("%5zu", met);
      if (!exclude_each_other(n, m) && met < PAIR_LEAST && (types_too || !of_types))
        ++missing;
    }
    printf("\n");
  }
  printf("%25s", "");
  for (size_t i = 0; i < count; ++i)
    printf("%5zu", i + 1);
  printf("\n");
  return missing;
}

static int conclude(const tally *t, size_t programs) {
  const size_t missing = t->problems >= PER_ROUND ? print_pairs(t, programs >= TYPE_PROGRAMS) : 0;
  int good = t->failures == 0;
  printf("%zu problems, %zu failed; %zu cross three key tiles and two query tiles\n", t->problems, t->failures,
         t->crossing);
  for (int n = 1; n < RELATIONS; ++n)
    printf("  %-10s %zu\n", relation_names[n], t->related[n]);
  if (missing > 0)
    printf("FAILED: %zu pairs of rules met less than %d times\n", missing, (int)PAIR_LEAST);
  if (t->problems >= 100 && 4 * t->crossing < t->problems)
    printf("FAILED: less than a quarter crosses tiles\n");
  for (int n = 1; t->problems >= 500 && n < RELATIONS; ++n)
    if (t->related[n] < 10) {
      printf("FAILED: the relation \"%s\" was looked at %zu times\n", relation_names[n], t->related[n]);
      good = 0;
    }
  return good && t->problems > 0 && missing == 0 && (t->problems < 100 || 4 * t->crossing >= t->problems);
}

/* ---- failures -------------------------------------------------------------------------------------------------- */

/* Messages of the many runs that shrinking takes are of no use. */
static size_t shrink_quietly(const device_rig *rig, property_case *c, verdict kind) {
  (void)fflush(stderr);
  const int kept = dup(STDERR_FILENO), nowhere = open("/dev/null", O_WRONLY);
  if (kept >= 0 && nowhere >= 0)
    (void)dup2(nowhere, STDERR_FILENO);
  const size_t steps = property_shrink(rig, c, kind);
  (void)fflush(stderr);
  if (kept >= 0 && nowhere >= 0)
    (void)dup2(kept, STDERR_FILENO);
  if (kept >= 0)
    (void)close(kept);
  if (nowhere >= 0)
    (void)close(nowhere);
  return steps;
}

static void report(const device_rig *rig, const char *program, property_case *c, verdict kind) {
  static char text[TEXT_MOST];
  int related;
  uint64_t bits;
  property_write(c, text, sizeof text);
  printf("FAILED (%s, relation %s): %s\n", verdict_names[kind], relation_names[c->relation], text);
  (void)fflush(stdout);
  const size_t steps = shrink_quietly(rig, c, kind);
  property_write(c, text, sizeof text);
  printf("smaller by %zu steps:\n", steps);
  (void)fflush(stdout);
  (void)property_check(rig, c, &related, &bits);
  /* the clattn program draws in its own way, from seeds of 63 bits */
  printf("  clattn run --problem \"%s\" --seed %" PRIu64 " --variant %s --verify\n", c->job.line,
         c->job.seed & INT64_MAX, c->variant);
  printf("  %s replay \"%s\"\n  bits %016" PRIx64 "\n", program, text, bits);
  (void)fflush(stdout);
}

/* ---- modes ----------------------------------------------------------------------------------------------------- */

typedef struct request {
  const char *program;
  size_t count, programs;
  double seconds; /* 0: as many as count */
  uint64_t seed;
} request;

static double now(void) {
  struct timespec time;
  (void)clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void print_program(size_t n, const property_program *p) {
  printf("  %2zu %-17s q=%s k=%s v=%s o=%s bias=%s%s d %d to %d, tile %d x %d\n", n, p->variant, p->mix.q, p->mix.k,
         p->mix.v, p->mix.o, p->mix.bias, p->words, (int)p->mix.least, (int)p->mix.most, (int)p->mix.rows,
         (int)p->mix.keys);
}

/* Draws and checks one problem; 0 when the run is to end. */
static int one_problem(const device_rig *rig, const request *r, const property_program *program, uint64_t seed,
                       size_t index, tally *t) {
  static property_case c;
  int related;
  uint64_t bits;
  if (!property_draw(program, seed, index, &c)) {
    ++t->failures;
    return 0;
  }
  const verdict kind = property_check(rig, &c, &related, &bits);
  ++t->problems;
  t->crossing += property_crosses(program, &c.job) != 0;
  t->related[c.relation] += related != 0;
  count_pairs(t, &c);
  if (kind == VERDICT_PASSED)
    return 1;
  printf("problem %zu of seed %" PRIu64 "\n", index, seed);
  report(rig, r->program, &c, kind);
  return ++t->failures < FAILURES_MOST;
}

static int run(const request *r) {
  static tally t;
  static property_program programs[PROPERTY_PROGRAMS_MOST];
  const double start = now();
  int more = 1;
  for (uint64_t round = 0; more && t.problems < r->count; ++round) {
    device_rig rig; /* anew, so that no programs pile up */
    const uint64_t seed = r->seed + round;
    more = device_rig_open(&rig) && property_programs(&rig, seed, r->programs, programs);
    printf("seed %" PRIu64 ", %zu programs\n", seed, r->programs);
    for (size_t n = 0; more && n < r->programs; ++n)
      print_program(n, &programs[n]);
    if (!more)
      ++t.failures;
    for (size_t n = 0; more && n < PER_ROUND && t.problems < r->count; ++n) {
      more = one_problem(&rig, r, &programs[n % r->programs], seed, n, &t);
      if (r->seconds > 0.0 && now() - start > r->seconds)
        more = 0;
      if (t.problems % 500 == 0)
        printf("%zu problems, %zu failed, %.0f s\n", t.problems, t.failures, now() - start);
      (void)fflush(stdout);
    }
    device_rig_close(&rig);
  }
  return conclude(&t, r->programs) ? 0 : 1;
}

static int replay(const char *text) {
  static property_case c;
  device_rig rig;
  int related;
  uint64_t bits;
  if (!property_read(text, &c) || !device_rig_open(&rig))
    return 2;
  const verdict kind = property_check(&rig, &c, &related, &bits);
  printf("%s%s, bits %016" PRIx64 "\n", verdict_names[kind], related ? " (and the relation)" : "", bits);
  device_rig_close(&rig);
  return kind != VERDICT_PASSED;
}

/* The first problem that the fault can be planted in and the relation be asked of, and that fails as it has to. */
static verdict find_planted(const device_rig *rig, const request *r, const property_program *program, relation which,
                            property_case *c) {
  int related;
  uint64_t bits;
  for (size_t n = 0; n < 1000; ++n) {
    if (!property_draw(program, r->seed, n, c))
      return VERDICT_RUN;
    if (!property_may_plant(&c->job) || (which != RELATION_NONE && !property_applies(&c->job, which)))
      continue;
    c->relation = which;
    c->plant = which == RELATION_NONE ? 1 : 2;
    const verdict kind = property_check(rig, c, &related, &bits);
    if (kind != VERDICT_PASSED)
      return kind;
  }
  return VERDICT_PASSED;
}

/* Nothing but what the fault needs may be left, and the case's text must give the same bits again. */
static int is_small(const device_rig *rig, const property_case *c, verdict kind) {
  static property_case again;
  static char text[TEXT_MOST];
  const clattn_problem *p = &c->job.resolved;
  int related;
  uint64_t bits, same;
  property_write(c, text, sizeof text);
  return p->batch == 1 && p->q_heads == 1 && p->q_len == 1 && p->k_len == 6 && p->qk_dim == 1 && p->v_dim == 3 &&
         p->softcap > 0.0f && !p->use_bias && !p->causal && !p->use_sink && p->keep_mask_kind == CLATTN_MASK_NONE &&
         !clattni_packed_q(p) && !clattni_packed_k(p) && !clattni_paged(p) &&
         property_check(rig, c, &related, &bits) == kind && property_read(text, &again) &&
         property_check(rig, &again, &related, &same) == kind && bits == same;
}

/* The reference and every relation have to notice. */
static int plant(const request *r) {
  static property_program program;
  static property_case c;
  device_rig rig;
  int good = device_rig_open(&rig) && property_programs(&rig, r->seed, 1, &program);
  for (int which = RELATION_NONE; good && which < RELATIONS; ++which) {
    const verdict want = which == RELATION_NONE ? VERDICT_REFERENCE : VERDICT_RELATION;
    good = find_planted(&rig, r, &program, (relation)which, &c) == want;
    if (good && which <= RELATION_REPEATED) { /* the others can't be asked of all that is smaller */
      report(&rig, r->program, &c, want);
      good = is_small(&rig, &c, want);
    }
    printf("%s: the planted fault was %s\n", relation_names[which], good ? "found" : "not found, or is not small");
  }
  device_rig_close(&rig);
  return !good;
}

static int usage(void) {
  (void)fprintf(stderr,
                "usage: property [--programs N] [run COUNT [SEED] | soak COUNT|SECONDSs [SEED] | plant [SEED] | "
                "replay \"CASE\"]\n");
  return 2;
}

int main(int argc, char **argv) {
  request r = {argv[0], PER_ROUND, PROGRAMS, 0.0, 1};
  int at = 1;
  if (argc > 2 && strcmp(argv[1], "--programs") == 0) {
    r.programs = strtoul(argv[2], NULL, 10);
    at = 3;
  }
  const char *mode = at < argc ? argv[at] : "run", *value = at + 1 < argc ? argv[at + 1] : NULL;
  const char *seed = at + 2 < argc ? argv[at + 2] : NULL;
  if (r.programs < 1 || r.programs > PROPERTY_PROGRAMS_MOST || argc > at + 3)
    return usage();
  if (strcmp(mode, "replay") == 0 && value != NULL)
    return replay(value);
  if (strcmp(mode, "plant") == 0) {
    r.seed = value != NULL ? strtoull(value, NULL, 10) : 1;
    return plant(&r);
  }
  if (strcmp(mode, "soak") == 0 && value != NULL) {
    char *end;
    const unsigned long long amount = strtoull(value, &end, 10);
    r.seed = (uint64_t)time(NULL);
    r.seconds = *end == 's' ? (double)amount : 0.0;
    r.count = *end == 's' ? SIZE_MAX : (size_t)amount;
  } else if (strcmp(mode, "run") != 0) {
    return usage();
  } else if (value != NULL) {
    r.count = strtoul(value, NULL, 10);
  }
  if (seed != NULL)
    r.seed = strtoull(seed, NULL, 10);
  return r.count > 0 ? run(&r) : usage();
}
