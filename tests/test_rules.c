/* SPDX-License-Identifier: Apache-2.0 */
/* The rules that README.md lists, and which of the library's variants take each: its column "clattn" is what the problem
 * module and selection say.  With no device.
 *
 * After a change of the table below, of the variants or of a column about other libraries, this prints README's table:
 *     test_rules table
 * (in the build folder's tests/); it replaces what stands between the two marks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "clattn.h"
#include "made_up.h"
#include "problem.h"
#include "readme_text.h"
#include "select.h"

/* Every line is complete: `clattn run --problem LINE` runs it, with --hook FILE where it says hook=yes. */
static const struct {
  const char *what, *line;
} rules[] = {
    /* tensors */
    {"head dimensions up to 1024, values of another one", "sq=7 sk=9 d=1000 dv=3"},
    {"longer heads", "sq=7 sk=9 d=2000"},
    {"grouped query heads, multi-query", "hq=8 hkv=2 sq=8 sk=8 d=64"},
    {"layouts (batch, head, row) and (batch, row, head)", "hq=8 sq=8 sk=8 d=64 q=bshd o=bshd"},
    {"any strides, 0 for broadcast", "b=2 hq=8 sq=8 sk=8 d=64 k=strided:0,512,64,1"},
    {"packed variable length", "b=3 d=64 total_q=20 total_k=30 q=packed k=packed v=packed o=packed"},
    {"paged keys and values", "b=2 sq=1 sk=64 d=64 klen=per_batch k=paged v=paged pages=8 max_pages=4 page_size=16"},
    {"packed queries on paged keys", "b=2 sk=64 d=64 total_q=20 q=packed o=packed klen=per_batch k=paged "
                                     "v=paged pages=8 max_pages=4 page_size=16"},
    /* scores */
    {"any scale, 0 and negative too", "sq=8 sk=8 d=64 scale=-0.5"},
    {"softcap, before bias and masks", "sq=8 sk=8 d=64 softcap=30"},
    {"bias added to scores, any broadcast", "hq=8 sq=8 sk=8 d=64 bias=strided:0,64,8,1"},
    {"ALiBi, slope * (j - p)", "hq=8 sq=8 sk=8 d=64 alibi=signed"},
    {"ALiBi, -slope * abs(j - p)", "hq=8 sq=8 sk=8 d=64 alibi=symmetric"},
    {"ALiBi slopes per batch entry and head", "b=2 hq=8 sq=8 sk=8 d=64 alibi=symmetric:strided:8,1,0,0"},
    {"attention sinks", "hq=8 sq=8 sk=8 d=64 sink=bhsd"},
    /* which keys a query sees */
    {"causal, aligned top left", "sq=8 sk=64 d=64 causal=1"},
    {"causal, aligned bottom right", "sq=8 sk=64 d=64 causal=1 off=bottom_right"},
    {"position of the first query", "sq=8 sk=64 d=64 causal=1 off=5"},
    {"position of the first query, per batch entry", "b=2 sq=8 sk=64 d=64 causal=1 off=per_batch"},
    {"causal with a prefix that all see", "b=2 sq=8 sk=8 d=64 causal=1 prefix=per_batch"},
    {"sliding window, left and right", "sq=64 sk=64 d=64 window=16,4"},
    {"chunks", "sq=64 sk=64 d=64 causal=1 chunk=16"},
    {"lengths per batch entry", "b=4 sq=8 sk=64 d=64 qlen=per_batch klen=per_batch"},
    {"keep mask of bytes, any broadcast", "hq=8 sq=8 sk=8 d=64 mask=u8:strided:0,0,8,1"},
    {"keep mask of bits", "sq=8 sk=64 d=64 mask=bits"},
    {"block mask", "sq=64 sk=64 d=64 block_mask=bits block_q=16 block_k=16"},
    {"rows without any key are 0, log-sum-exp -inf", "sq=64 sk=8 d=64 causal=1 off=bottom_right out=o,lse"},
    /* results */
    {"log-sum-exp", "sq=8 sk=8 d=64 out=o,lse"},
    {"merging of parts by their log-sum-exp", "sq=8 sk=8 d=64 out=o,lse"},
    {"scores: raw, after softcap, after masks", "sq=8 sk=8 d=64 out=o,scores stage=masked"},
    {"attention weights", "sq=8 sk=8 d=64 out=o,scores stage=weights"},
    {"largest logit", "sq=8 sk=8 d=64 out=o,max_logit"},
    {"the same bits whatever the batch", "sq=8 sk=8 d=64 flags=batch_invariant"},
    /* types and devices */
    {"32-bit floats", "sq=8 sk=8 d=64"},
    {"runs on a CPU", "sq=8 sk=8 d=64"},
    {"16-bit floats", "sq=8 sk=8 d=64 q=f16 k=f16 v=f16 o=f16"},
    {"bfloat16", "sq=8 sk=8 d=64 q=bf16 k=bf16 v=bf16 o=bf16"},
    {"q, k, v and o of different types", "sq=8 sk=8 d=64 q=f16 k=bf16 v=f32 o=bf16"},
    {"bias in f32, f16 or bf16, whatever the others are", "hq=8 sq=8 sk=8 d=64 bias=bf16"},
    {"scores in f32 or in the output's type", "sq=8 sk=8 d=64 q=f16 k=f16 v=f16 o=f16 out=o,scores scores=f16"},
    {"8-bit keys and values with scales", "sq=8 sk=8 d=64 k=i8 v=i8"},
    {"4-bit keys and values, a scale for 32", "sq=8 sk=8 d=64 k=i4 v=i4 k_scale=f16 v_scale=f16"},
    {"products in half, sums in fp32, by permission", "sq=8 sk=8 d=64 q=f16 k=f16 v=f16 o=f16 math=half"},
    /* similarities and hooks */
    {"a factor per head", "hq=8 sq=8 sk=8 d=64 head_scale=bhsd"},
    {"cosine similarity", "sq=8 sk=8 d=64 sim=cosine"},
    {"additive (Bahdanau) similarity", "sq=8 sk=8 d=64 sim=additive"},
    {"the caller's own code for scores and masks", "sq=8 sk=8 d=64 hook=yes"},
    {"rotary embedding while loading", "sq=8 sk=8 d=64 rope=half"},
    /* later */
    {"dropout", "sq=8 sk=8 d=64 dropout=0.1"},
    {"gradients", "sq=8 sk=8 d=64 pass=backward"},
};
enum { RULES = sizeof rules / sizeof rules[0], PEERS = 5, CELLS = 3 + PEERS };

static const char head[] =
    "| rule | problem line | clattn | PyTorch | FlashAttention | oneDNN | llama.cpp OpenCL | ONNX |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- |\n";

static clattn_problem parsed(const char *line) {
  clattn_problem problem;
  clattn_error error;
  clattn_error_init(&error);
  if (read_line(line, &made_up_hook, &problem, &error) != CLATTN_SUCCESS)
    fail_msg("%s: %s", line, error.message);
  /* the library names a hook as the table does */
  char text[1024];
  assert_int_equal(clattn_problem_format(&problem, text, sizeof text, NULL), CLATTN_SUCCESS);
  assert_int_equal(strstr(text, " hook=yes") != NULL, strstr(line, " hook=yes") != NULL);
  return problem;
}

/* Whether a variant, or with NULL selection's own choice, takes a checked problem on a made-up device. */
static int taken(const clattn_problem *problem, const char *variant, cl_device_type type, clattn_error *error) {
  clattn_problem resolved;
  clattn_device_info device = made_up_device(type);
  clattni_request request;
  clattni_choice choice;
  clattni_problem_resolve(problem, &resolved);
  memset(&request, 0, sizeof request);
  request.problem = &resolved;
  request.device = &device;
  request.variant = variant;
  return clattni_select(&request, &choice, error) == CLATTN_SUCCESS;
}

static cl_device_type type_for(const clattni_variant *variant) {
  return variant->shape == CLATTNI_SHAPE_LANES ? CL_DEVICE_TYPE_CPU : CL_DEVICE_TYPE_GPU;
}

/* What README says of a rule: "yes" where every variant but those on matrix units takes it, else the names of those that do, or "not yet". */
static void answer(const char *line, char *text, size_t capacity) {
  const clattn_problem problem = parsed(line);
  clattn_error error;
  uint32_t variants = 0, takers = 0;
  size_t length = 0;
  clattn_error_init(&error);
  const clattn_status status = clattn_problem_check(&problem, &error);
  if (status == CLATTN_ERROR_NOT_SUPPORTED) {
    snprintf(text, capacity, "not yet");
    return;
  }
  if (status != CLATTN_SUCCESS)
    fail_msg("%s: %s", line, error.message);
  for (; made_up_general(variants) != NULL; variants++) {
    const clattni_variant *variant = made_up_general(variants);
    if (!taken(&problem, variant->name, type_for(variant), NULL))
      continue;
    length += (size_t)snprintf(text + length, capacity - length, "%s%s", takers > 0 ? ", " : "", variant->name);
    assert_true(length < capacity);
    takers++;
  }
  /* the problem is legal, so something has to take it, on any kind of device */
  if (!taken(&problem, NULL, CL_DEVICE_TYPE_CPU, &error) || !taken(&problem, NULL, CL_DEVICE_TYPE_GPU, &error))
    fail_msg("%s: %s", line, error.message);
  if (takers == variants)
    snprintf(text, capacity, "yes");
}

/* The cells about other libraries in README's row of a rule; "?" for a rule that has no row. */
static void find_peers(const char *table, const char *what, const char *peers[PEERS], char *storage, size_t capacity) {
  char *cells[CELLS + 1], *row, *next = storage;
  snprintf(storage, capacity, "%s", table);
  for (int i = 0; i < PEERS; i++)
    peers[i] = "?";
  while ((row = next_line(&next)) != NULL) {
    if (split_row(row, cells, CELLS + 1) != CELLS || strcmp(cells[0], what) != 0)
      continue;
    for (int i = 0; i < PEERS; i++)
      peers[i] = cells[3 + i];
    return;
  }
}

#define TABLE_BYTES ((size_t)1 << 16)

/* The whole table, with what README says of other libraries; the caller frees it. */
static char *expected(const char *table) {
  char *text = calloc(1, TABLE_BYTES), *storage = malloc(TABLE_BYTES);
  assert_non_null(text);
  assert_non_null(storage);
  size_t length = (size_t)snprintf(text, TABLE_BYTES, "%s", head);
  for (int i = 0; i < RULES; i++) {
    const char *peers[PEERS];
    char ours[256];
    answer(rules[i].line, ours, sizeof ours);
    find_peers(table, rules[i].what, peers, storage, TABLE_BYTES);
    length += (size_t)snprintf(text + length, TABLE_BYTES - length, "| %s | `%s` | %s | %s | %s | %s | %s | %s |\n",
                               rules[i].what, rules[i].line, ours, peers[0], peers[1], peers[2], peers[3], peers[4]);
    assert_true(length < TABLE_BYTES);
  }
  free(storage);
  return text;
}

static const char begin_mark[] = "<!-- rules -->\n", end_mark[] = "<!-- end of rules -->";

static void the_table(void **state) {
  (void)state;
  char *readme = read_text("README.md");
  const char *shown = between(readme, begin_mark, end_mark);
  char *wanted = expected(shown);
  const int same = strcmp(shown, wanted) == 0;
  if (!same) /* longer than what cmocka prints at once */
    fputs(wanted, stderr);
  free(readme);
  free(wanted);
  if (!same)
    fail_msg("README's table of rules must be the one above");
}

/* Cells about other libraries are "yes", "no" or "partly", and may bear the number of a note. */
static void the_notes(void **state) {
  (void)state;
  enum { MOST = 64 };
  int used[MOST + 1] = {0}, notes = 0, rows = 0;
  char *readme = read_text("README.md"), *rest = read_text("docs/rules.md");
  char *table = between(readme, begin_mark, end_mark), *row;
  char *list = between(rest, "<!-- notes -->\n", "<!-- end of notes -->"), *line;
  while ((line = next_line(&list)) != NULL) {
    int number = 0;
    if (sscanf(line, "%d.", &number) == 1)
      assert_int_equal(number, ++notes);
  }
  assert_in_range(notes, 1, MOST);
  while ((row = next_line(&table)) != NULL) {
    char *cells[CELLS + 1];
    if (rows++ < 2) /* the head and its rule */
      continue;
    if (split_row(row, cells, CELLS + 1) != CELLS) {
      fail_msg("a row with another number of cells than %d", CELLS);
      return; /* which the analyser does not see */
    }
    for (int i = 3; i < CELLS; i++) {
      char word[8] = "", more = 0;
      int number = 0;
      const int fields = sscanf(cells[i], "%7s %d%c", word, &number, &more);
      if ((strcmp(word, "yes") != 0 && strcmp(word, "no") != 0 && strcmp(word, "partly") != 0) ||
          fields != (strchr(cells[i], ' ') != NULL ? 2 : 1) || (fields == 2 && (number < 1 || number > notes)))
        fail_msg("%s: the cell is \"%s\"", cells[0], cells[i]);
      if (fields == 1 && strcmp(word, "partly") == 0)
        fail_msg("%s: \"partly\" needs a note", cells[0]);
      used[number] += fields == 2;
    }
  }
  for (int i = 1; i <= notes; i++)
    if (used[i] == 0)
      fail_msg("docs/rules.md: note %d is not referred to", i);
  assert_int_equal(rows, RULES + 2);
  free(readme);
  free(rest);
}

/* The rules combine: one call may have them all, in every layout, with any types and similarity, and a hook. */
static void all_together(void **state) {
  (void)state;
  static const char all[] = "b=3 hq=4 hkv=2 sq=40 sk=64 d=24 dv=20 scale=0.3 softcap=30 "
                            "sink=bhsd alibi=signed causal=1 off=per_batch window=30,9 prefix=per_batch chunk=32 "
                            "qlen=per_batch klen=per_batch mask=bits block_mask=bits block_q=16 block_k=8 "
                            "flags=batch_invariant out=o,lse,scores,max_logit stage=masked head_scale=f32 hook=yes "
                            "rope=interleaved rope_dim=16 positions=1";
  static const struct {
    const char *q, *k, *sizes;
  } layouts[] = {
      {"bhsd", "bhsd", ""},
      {"packed", "bhsd", " lse=packed total_q=100"},
      {"bhsd", "packed", " total_k=150"},
      {"packed", "packed", " lse=packed total_q=100 total_k=150"},
      {"bhsd", "paged", " pages=20 max_pages=8 page_size=8"},
      {"packed", "paged", " lse=packed total_q=100 pages=20 max_pages=8 page_size=8"},
  };
  static const struct {
    const char *q, *k, *v, *o, *bias, *more;
    int k_scale, v_scale;
  } types[] = {
      {"f32", "f32", "f32", "f32", "f32", "", 0, 0},
      {"f16", "f16", "f16", "f16", "f16", " scores=f16 math=half", 0, 0},
      {"f16", "bf16", "f32", "bf16", "bf16", " scores=bf16 sim=cosine", 0, 0},
      {"bf16", "i8", "i4", "f16", "f16", " sim=additive", 1, 1},
      {"f32", "i4", "f16", "f32", "bf16", " sim=cosine", 1, 0},
  };
  for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
      const char *const k = layouts[i].k;
      char line[1024], text[256], scales[64] = "";
      if (types[t].k_scale)
        snprintf(scales, sizeof scales, " k_scale=f16:%s", k);
      if (types[t].v_scale)
        snprintf(scales + strlen(scales), sizeof scales - strlen(scales), " v_scale=f32:%s", k);
      snprintf(line, sizeof line, "%s q=%s:%s k=%s:%s v=%s:%s o=%s:%s bias=%s:strided:0,0,64,1%s%s%s", all, types[t].q,
               layouts[i].q, types[t].k, k, types[t].v, k, types[t].o, layouts[i].q, types[t].bias, layouts[i].sizes,
               types[t].more, scales);
      answer(line, text, sizeof text);
      if (strcmp(text, "yes") != 0)
        fail_msg("%s: taken by: %s", line, text);
    }
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_table),
      cmocka_unit_test(the_notes),
      cmocka_unit_test(all_together),
  };
  if (argc == 2 && strcmp(argv[1], "table") == 0) {
    char *readme = read_text("README.md");
    char *table = expected(between(readme, begin_mark, end_mark));
    fputs(table, stdout);
    free(readme);
    free(table);
    return 0;
  }
  return cmocka_run_group_tests(tests, NULL, NULL);
}
