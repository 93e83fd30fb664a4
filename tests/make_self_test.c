/* SPDX-License-Identifier: Apache-2.0 */
/* Writes host/lib/self_test_data.h: what the double-precision reference gives for the cases of clattn_self_test.
 *   make_self_test FILE             writes FILE
 *   make_self_test FILE COMMITTED   writes FILE and fails unless COMMITTED holds the same */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clattn_ref.h"
#include "self_test_cases.h"

static const clattni_allocator plain_malloc;

typedef struct results {
  double *of[CLATTNI_SLOTS]; /* NULL: not an output of the case */
} results;

static int complain(const clattni_self_test_case *of, const char *what) {
  fprintf(stderr, "case \"%s\": %s\n", of->row->name, what);
  return 0;
}

/* Elements of a result of the reference, which knows no packed layout. */
static size_t reference_size(const clattni_self_test_case *of, clattni_slot slot) {
  const size_t heads = (size_t)(of->sizes.batch * of->problem.q_heads);
  return slot == CLATTNI_MAX_LOGIT ? heads : heads * (size_t)(of->sizes.q_len * of->shape[slot][3]);
}

static size_t reference_index(const clattni_self_test_case *of, clattni_slot slot, const int64_t at[4]) {
  int64_t b = at[0], row = at[2];
  if (slot == CLATTNI_MAX_LOGIT)
    return (size_t)(b * of->problem.q_heads + at[1]);
  if (clattni_packed_q(&of->problem)) {
    while (row >= of->row->cu_seqlens_q[b + 1])
      b++;
    row -= of->row->cu_seqlens_q[b];
  }
  return (size_t)(((b * of->problem.q_heads + at[1]) * of->sizes.q_len + row) * of->shape[slot][3] + at[3]);
}

static int compute(const clattni_self_test_case *of, results *out) {
  const clattn_problem *problem = &of->problem;
  const int packed_q = clattni_packed_q(problem), packed_k = clattni_packed_k(problem);
  clattn_ref_args args;
  clattn_error error;
  clattn_error_init(&error);
  clattn_ref_args_init(&args);
  args.error = &error;
  args.q = of->input[CLATTNI_Q];
  args.k = of->input[CLATTNI_K];
  args.v = of->input[CLATTNI_V];
  args.bias = of->input[CLATTNI_BIAS];
  args.keep_mask = of->input[CLATTNI_KEEP_MASK];
  args.block_mask = of->input[CLATTNI_BLOCK_MASK];
  args.alibi_slopes = of->input[CLATTNI_ALIBI_SLOPES];
  args.sink = of->input[CLATTNI_SINK];
  args.head_scale = of->input[CLATTNI_HEAD_SCALE];
  args.add_w = of->input[CLATTNI_ADD_W];
  args.k_scale = of->input[CLATTNI_K_SCALE];
  args.v_scale = of->input[CLATTNI_V_SCALE];
  args.page_table = of->input[CLATTNI_PAGE_TABLE];
  args.q_lengths = problem->q_length_mode == CLATTN_LENGTH_PER_BATCH ? of->row->q_lengths : NULL;
  args.k_lengths = problem->k_length_mode == CLATTN_LENGTH_PER_BATCH ? of->row->k_lengths : NULL;
  args.prefix = problem->prefix_mode == CLATTN_PREFIX_PER_BATCH ? of->row->prefix : NULL;
  args.cu_seqlens_q = packed_q ? of->row->cu_seqlens_q : NULL;
  args.cu_seqlens_k = packed_k ? of->row->cu_seqlens_k : NULL;
  for (clattni_slot slot = 0; slot < CLATTNI_SLOTS; slot++) {
    if (!clattni_slot_is_output(slot) || !clattni_slot_used(problem, slot))
      continue;
    out->of[slot] = malloc(reference_size(of, slot) * sizeof(double));
    if (out->of[slot] == NULL)
      return complain(of, "no memory");
  }
  args.o = out->of[CLATTNI_O];
  args.lse = out->of[CLATTNI_LSE];
  args.scores = out->of[CLATTNI_SCORES];
  args.max_logit = out->of[CLATTNI_MAX_LOGIT];
  if (clattn_ref_attention(problem, &args) != CLATTN_SUCCESS)
    return complain(of, error.message);
  return 1;
}

/* What the self-test compares exactly must be exact by the rules, not by chance: NaN and +inf never occur, and o is 0
 * in whole rows only. */
static int check(const clattni_self_test_case *of, const results *found) {
  const int64_t width = of->problem.v_dim;
  int64_t zeros = 0;
  for (clattni_slot slot = 0; slot < CLATTNI_SLOTS; slot++)
    for (int64_t n = 0; found->of[slot] != NULL && n < clattni_self_test_elements(of, slot); n++) {
      int64_t at[4];
      clattni_self_test_place(of, slot, n, at);
      const float value = (float)found->of[slot][reference_index(of, slot, at)];
      if (isnan(value) || value == INFINITY)
        return complain(of, "NaN or +inf among the results");
      if (slot != CLATTNI_O)
        continue;
      zeros = at[3] == 0 ? value == 0 : zeros + (value == 0);
      if (at[3] == width - 1 && zeros != 0 && zeros != width)
        return complain(of, "an element of o is 0 in a row that is not empty");
    }
  return 1;
}

static void put_value(FILE *file, double value, size_t n) {
  fputs(n % 6 == 0 ? "\n    " : " ", file);
  if (value == -INFINITY)
    fputs("-INFINITY,", file);
  else
    fprintf(file, "%af,", (double)(float)value);
}

static size_t put_values(FILE *file, const clattni_self_test_case *of, uint32_t index, const results *found) {
  size_t count = 0;
  fprintf(file, "\n/* %s */\nstatic const float values_%" PRIu32 "[] = {", of->row->name, index);
  for (clattni_slot slot = 0; slot < CLATTNI_SLOTS; slot++)
    for (int64_t n = 0; found->of[slot] != NULL && n < clattni_self_test_elements(of, slot); n++) {
      int64_t at[4];
      if (!clattni_self_test_held(of, slot, n))
        continue;
      clattni_self_test_place(of, slot, n, at);
      put_value(file, found->of[slot][reference_index(of, slot, at)], count++);
    }
  fputs("\n};\n", file);
  return count;
}

static int write_case(FILE *file, uint32_t index, size_t *count, const char **name) {
  clattni_self_test_case of;
  results found = {{NULL}};
  clattn_error error;
  clattn_error_init(&error);
  int fine = clattni_self_test_make(index, &plain_malloc, &of, &error) == CLATTN_SUCCESS;
  if (!fine)
    fprintf(stderr, "%s\n", error.message);
  fine = fine && compute(&of, &found) && check(&of, &found);
  if (fine) {
    *count = put_values(file, &of, index, &found);
    *name = of.row->name;
  }
  for (int slot = 0; slot < CLATTNI_SLOTS; slot++)
    free(found.of[slot]);
  clattni_self_test_free(&plain_malloc, &of);
  return fine;
}

static int write_all(FILE *file) {
  enum { MOST = 64 };
  const uint32_t cases = clattni_self_test_count();
  const char *name[MOST];
  size_t count[MOST];
  if (cases > MOST) {
    fprintf(stderr, "%" PRIu32 " cases, room for %d\n", cases, MOST);
    return 0;
  }
  fputs(
      "/* SPDX-License-Identifier: Apache-2.0 */\n"
      "/* Written by tests/make_self_test.c, not by hand: what the double-precision reference gives for the cases of\n"
      " * self_test.c.  In the order of the outputs' slots and of their elements, those that are held. */\n"
      "#ifndef CLATTN_SELF_TEST_DATA_H\n"
      "#define CLATTN_SELF_TEST_DATA_H\n"
      "\n"
      "#include <math.h>\n"
      "#include <stddef.h>\n"
      "\n"
      "/* clang-format off */\n",
      file);
  for (uint32_t i = 0; i < cases; i++)
    if (!write_case(file, i, &count[i], &name[i]))
      return 0;
  fputs("\n"
        "static const struct {\n"
        "  const char *name;\n"
        "  size_t count;\n"
        "  const float *values;\n"
        "} golden[] = {\n",
        file);
  for (uint32_t i = 0; i < cases; i++)
    fprintf(file, "    {\"%s\", %zu, values_%" PRIu32 "},\n", name[i], count[i], i);
  fputs("};\n/* clang-format on */\n\n#endif\n", file);
  return !ferror(file);
}

/* 0 if the files are the same, else the number of the first line that differs; -1 if one can't be read. */
static long first_difference(const char *one, const char *other) {
  FILE *a = fopen(one, "r"), *b = fopen(other, "r");
  long line = 1;
  int x = EOF, y = EOF;
  if (a == NULL || b == NULL) {
    line = -1;
  } else {
    do {
      line += x == '\n';
      x = getc(a);
      y = getc(b);
    } while (x == y && x != EOF);
    line = x == y ? 0 : line;
  }
  if (a != NULL)
    fclose(a);
  if (b != NULL)
    fclose(b);
  return line;
}

int main(int argc, char **argv) {
  if (argc != 2 && argc != 3) {
    fprintf(stderr, "usage: make_self_test FILE [COMMITTED]\n");
    return 2;
  }
  FILE *file = fopen(argv[1], "w");
  if (file == NULL) {
    perror(argv[1]);
    return 1;
  }
  int fine = write_all(file);
  fine = fclose(file) == 0 && fine;
  if (!fine) {
    fprintf(stderr, "%s could not be written\n", argv[1]);
    return 1;
  }
  if (argc == 2)
    return 0;
  const long line = first_difference(argv[1], argv[2]);
  if (line != 0)
    fprintf(stderr, "%s is stale from line %ld on: copy %s over it\n", argv[2], line, argv[1]);
  return line != 0;
}
