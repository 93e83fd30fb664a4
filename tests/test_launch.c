/* SPDX-License-Identifier: Apache-2.0 */
/* Launch lists and kernel parameters, with no device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "clattn.h"
#include "launch.h"
#include "made_up.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* A list and all that it points to. */
typedef struct made {
  clattn_problem problem;
  clattni_choice choice;
  clattni_sizes sizes;
  clattni_layout layout;
  clattni_launch_list list;
  int64_t starts[101]; /* of packed sequences, where packed rows are searched */
} made;

/* The table's row of this name. */
static const clattni_variant *row_of(const char *name) {
  for (uint32_t n = 0; clattni_variant_at(n) != NULL; ++n)
    if (strcmp(clattni_variant_at(n)->name, name) == 0)
      return clattni_variant_at(n);
  fail_msg("no variant is called %s", name);
  return NULL;
}

static void make_list(made *m, const clattni_variant *variant, uint64_t budget, int staged, int gathered) {
  assert_true(made_up_choice(&m->problem, variant, 0, &m->choice));
  if (!clattni_layout_make(&m->choice, &m->problem, &m->sizes, budget, &m->layout))
    assert_true(clattni_layout_make(&m->choice, &m->problem, &m->sizes, m->layout.bytes, &m->layout));
  clattni_launch_list_make(&m->choice, &m->problem, &m->sizes, &m->layout, staged, gathered, &m->list);
}

/* Sequences that have as many rows in all as the sizes say, none above the longest. */
static void draw_starts(made *m) {
  int64_t left = m->sizes.total_q;
  m->starts[0] = 0;
  for (int64_t b = 0; b < m->sizes.batch; ++b) {
    const int64_t others = (m->sizes.batch - b - 1) * m->sizes.q_len;
    const int64_t least = left > others ? left - others : 0, most = left < m->sizes.q_len ? left : m->sizes.q_len;
    const int64_t rows = made_up_number(0, 2) == 0 ? least : made_up_number(least, most);
    m->starts[b + 1] = m->starts[b] + rows;
    left -= rows;
  }
  assert_int_equal(left, 0);
}

static int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

/* ---- what a launch's grid reaches ------------------------------------------------------------------------------ */

static void check_groups(const clattni_launch *launch, int64_t x, int64_t y) {
  assert_int_equal(launch->dims, 2);
  assert_int_equal(launch->global[0] % launch->local[0], 0);
  assert_int_equal(launch->global[1] % launch->local[1], 0);
  assert_int_equal(launch->global[0] / launch->local[0], x);
  assert_int_equal(launch->global[1] / launch->local[1], y);
}

/* Work-groups are numbered as the kernels read them: keys (or dims) and tiles, each to the end and not beyond. */
static void check_grid(const made *m, const clattni_launch *launch) {
  const int64_t tiles = launch->round.tiles;
  const int64_t keys = m->sizes.k_len > 0 ? ceil_div(m->sizes.k_len, m->choice.keys_per_chunk) : 1;
  const int64_t dims = ceil_div(m->problem.v_dim, m->choice.dim_chunk);
  const int by_keys = launch->entry == CLATTNI_SCORE || launch->entry == CLATTNI_FLASH_SCORES;
  const int64_t parts = by_keys ? keys : (m->problem.outputs & CLATTN_OUT_O) != 0 ? dims : 1;
  if (launch->entry == CLATTNI_ROW_MAXIMUM) {
    assert_int_equal(launch->dims, 1);
    assert_int_equal(launch->local[0], 1);
    assert_int_equal(launch->global[0], (size_t)(tiles * m->choice.rows));
  } else if (m->choice.variant->shape == CLATTNI_SHAPE_LANES) {
    assert_int_equal(launch->local[0] * launch->local[1], 1);
    check_groups(launch, tiles, launch->entry == CLATTNI_SOFTMAX ? 1 : parts);
  } else if (launch->entry == CLATTNI_SOFTMAX) {
    assert_int_equal(launch->local[0], m->choice.gx * m->choice.gy);
    assert_int_equal(launch->local[1], 1);
    check_groups(launch, 1, tiles * m->choice.rows);
  } else {
    assert_int_equal(launch->local[0], m->choice.gx);
    assert_int_equal(launch->local[1], m->choice.gy);
    check_groups(launch, parts, tiles);
  }
}

/* ---- whole lists ----------------------------------------------------------------------------------------------- */

/* Which steps the outputs need, said once more. */
static int wants(const made *m, clattni_entry entry) {
  const clattn_problem *problem = &m->problem;
  const uint32_t outputs = problem->outputs;
  const int weights = (outputs & CLATTN_OUT_SCORES) != 0 && problem->stage == CLATTN_STAGE_WEIGHTS;
  const int apart = (outputs & CLATTN_OUT_SCORES) && m->choice.variant->kernels[CLATTNI_FLASH_SCORES].name != NULL;
  if (m->choice.variant->fused && entry == CLATTNI_FLASH_SCORES)
    return apart;
  if (m->choice.variant->fused && entry != CLATTNI_MAX_LOGIT_STEP) /* all in one, but perhaps scores for the caller */
    return entry == CLATTNI_FLASH && (!apart || weights || outputs != CLATTN_OUT_SCORES);
  switch (entry) {
  case CLATTNI_SCORE:
    return 1;
  case CLATTNI_ROW_MAXIMUM:
    return (outputs & CLATTN_OUT_MAX_LOGIT) != 0;
  case CLATTNI_SOFTMAX:
    return (outputs & CLATTN_OUT_O) != 0 || (outputs & CLATTN_OUT_LSE) != 0 || weights;
  case CLATTNI_WEIGHTED_SUM:
    return (outputs & CLATTN_OUT_O) != 0;
  case CLATTNI_MAX_LOGIT_STEP:
    return (outputs & CLATTN_OUT_MAX_LOGIT) != 0;
  default:
    return 0;
  }
}

/* Rows of all heads that some step must visit. */
static int64_t count_rows(const made *m) {
  return m->problem.q_heads * (m->layout.search ? m->sizes.total_q : m->sizes.batch * m->sizes.q_len);
}

/* The last sequence whose tiles start no later. */
static int64_t entry_of_tile(const made *m, int64_t tile, int64_t *first_tile) {
  int64_t b = m->sizes.batch - 1;
  while (b > 0 && m->starts[b] * m->choice.pack / m->choice.rows + b > tile)
    --b;
  *first_tile = m->starts[b] * m->choice.pack / m->choice.rows + b;
  return b;
}

/* Counts how often a step visits each row, the way the kernels go from a tile's number to batch, heads and rows. */
static void visit_rows(const made *m, const clattni_launch *launch, unsigned char *visits) {
  const int64_t pack = m->choice.pack, units = m->problem.q_heads / pack;
  for (int64_t n = 0; n < launch->round.tiles; ++n) {
    const int64_t id = launch->round.first_tile + n;
    const int64_t unit = id / m->layout.tiles_per_unit, tile = id % m->layout.tiles_per_unit;
    int64_t first_tile = 0, b = unit / units, q_rows = m->sizes.q_len, base = b * m->problem.q_heads * q_rows;
    int64_t pitch = m->sizes.q_len; /* from a head to the next */
    if (m->layout.search) {
      b = entry_of_tile(m, tile, &first_tile);
      q_rows = m->starts[b + 1] - m->starts[b];
      base = m->starts[b];
      pitch = m->sizes.total_q;
    }
    assert_true(b < m->sizes.batch && tile >= first_tile);
    for (int64_t r = 0; r < m->choice.rows; ++r) {
      const int64_t row = (tile - first_tile) * m->choice.rows + r, head = unit % units * pack + row % pack;
      if (row / pack < q_rows)
        ++visits[base + head * pitch + row / pack];
    }
  }
}

static void check_list(const made *m, int staged, int gathered) {
  const int64_t rows = count_rows(m);
  unsigned char *visits[CLATTNI_ENTRIES] = {NULL};
  int64_t maxima = 0, batch_staged = 0, batch_gathered = 0, at_round = -1;
  clattni_entry before = CLATTNI_STAGE_ENTRIES;
  for (int entry = 0; entry < CLATTNI_ENTRIES; ++entry) {
    visits[entry] = calloc((size_t)rows + 1, 1);
    assert_non_null(visits[entry]);
  }
  for (int64_t index = 0; index < m->list.count; ++index) {
    clattni_launch launch, again;
    clattni_launch_at(&m->list, index, &launch);
    clattni_launch_at(&m->list, index, &again);
    assert_memory_equal(&launch, &again, sizeof launch);
    assert_int_equal(launch.depends_on, index - 1);
    assert_true(launch.global[0] > 0);
    switch (launch.entry) {
    case CLATTNI_STAGE_ENTRIES: /* first of all, and each batch entry once */
      assert_int_equal(before, CLATTNI_STAGE_ENTRIES);
      assert_int_equal(launch.first_entry, batch_staged);
      assert_true(launch.count >= 1 && launch.count <= CLATTN_ENTRIES_PER_LAUNCH);
      assert_int_equal(launch.dims, 1);
      assert_int_equal(launch.local[0], 1);
      assert_int_equal(launch.global[0], CLATTN_ENTRY_WORDS * (size_t)launch.count);
      batch_staged += launch.count;
      break;
    case CLATTNI_GATHER_ENTRIES: /* right behind, when all are staged */
      assert_int_equal(before, CLATTNI_STAGE_ENTRIES);
      assert_int_equal(batch_staged, m->sizes.batch);
      assert_int_equal(launch.dims, 1);
      assert_int_equal(launch.local[0], 1);
      assert_int_equal(launch.global[0], (size_t)m->sizes.batch);
      batch_gathered += m->sizes.batch;
      before = launch.entry;
      break;
    case CLATTNI_MAX_LOGIT_STEP: /* last of all */
      assert_int_equal(index, m->list.count - 1);
      assert_int_equal(launch.dims, 1);
      assert_int_equal(launch.local[0], 1);
      assert_int_equal(launch.global[0], (size_t)(m->sizes.batch * m->problem.q_heads));
      ++maxima;
      break;
    default:
      assert_true(wants(m, launch.entry));
      /* a round's steps in their order, all on the tiles of the round */
      if (launch.entry == m->layout.steps[0])
        at_round = launch.round.first_tile;
      else
        assert_true(launch.entry > before);
      assert_int_equal(launch.round.first_tile, at_round);
      assert_true(launch.round.tiles >= 1 && launch.round.tiles <= m->layout.tiles_per_round);
      assert_true(launch.round.first_tile + launch.round.tiles <= m->layout.total_tiles);
      check_grid(m, &launch);
      visit_rows(m, &launch, visits[launch.entry]);
      before = launch.entry;
    }
  }
  /* the last step asks the entries too */
  const int asked = m->sizes.batch > 0 && (rows > 0 || wants(m, CLATTNI_MAX_LOGIT_STEP));
  assert_int_equal(batch_staged, staged && asked ? m->sizes.batch : 0);
  assert_int_equal(batch_gathered, staged && gathered && asked ? m->sizes.batch : 0);
  assert_int_equal(maxima, wants(m, CLATTNI_MAX_LOGIT_STEP) && m->sizes.batch > 0);
  for (int entry = 0; entry < CLATTNI_ENTRIES; ++entry) {
    const int wanted = entry != CLATTNI_MAX_LOGIT_STEP && wants(m, (clattni_entry)entry);
    for (int64_t row = 0; row < rows; ++row)
      assert_int_equal(visits[entry][row], wanted);
    free(visits[entry]);
  }
}

static int is_packed(const clattn_problem *problem) {
  return clattni_packed_q(problem) || clattni_packed_k(problem);
}

static void every_row_once_per_step(void **state) {
  (void)state;
  size_t rounds = 0, searched = 0, shared = 0, gathers = 0;
  for (uint32_t n = 0; n < 2250; ++n) {
    made m;
    m.problem = made_up_problem(400);
    m.sizes = made_up_sizes(&m.problem);
    const int uses = clattni_uses_entries(&m.problem);
    const int staged = uses && (is_packed(&m.problem) || made_up_number(0, 1)), gathered = (int)made_up_number(0, 1);
    make_list(&m, made_up_variant(n), (uint64_t)made_up_size(0, 3000000), staged, gathered);
    if (m.layout.search)
      draw_starts(&m);
    check_list(&m, staged, gathered);
    rounds += m.layout.rounds > 1;
    searched += m.layout.search && m.layout.total_tiles > 1;
    shared += m.choice.pack > 1 && m.layout.total_tiles > 1;
    gathers += (size_t)m.list.gathered;
    assert_int_equal(m.list.gathered, staged && gathered && m.layout.staging > 0);
    const int64_t fewer = staged ? (m.layout.staging > 0) - m.list.gathered : m.layout.staging + (m.layout.staging > 0);
    assert_int_equal(m.list.count, m.layout.launches - fewer);
  }
  assert_true(rounds > 100 && searched > 100 && shared > 30 && gathers > 100);
}

/* Every chunk of keys and of value elements, at the edges of chunks. */
static void grids_reach_the_last_key_and_dim(void **state) {
  (void)state;
  static const int64_t edges[] = {1,   31,  32,  33,  63,   64,   65,   127,  128,
                                  129, 255, 256, 257, 1023, 1024, 1025, 2048, 2049};
  for (size_t n = 0; n < LENGTH(edges); ++n)
    for (uint32_t v = 0; clattni_variant_at(v) != NULL; ++v) {
      const clattni_variant *variant = clattni_variant_at(v);
      made m;
      int64_t keys = 0, dims = 0;
      clattn_problem_init(&m.problem);
      m.problem.q_len = 30;
      m.problem.k_len = m.problem.v_dim = edges[n];
      m.problem.qk_dim = 4;
      m.problem.outputs = CLATTN_OUT_O | CLATTN_OUT_SCORES;
      clattni_problem_resolve(&m.problem, &m.problem);
      m.sizes = clattni_bounds(&m.problem);
      make_list(&m, variant, UINT64_C(1) << 30, 0, 0);
      for (int64_t index = 0; index < m.list.count; ++index) {
        clattni_launch launch;
        clattni_launch_at(&m.list, index, &launch);
        const size_t axis = variant->shape == CLATTNI_SHAPE_LANES ? 1 : 0;
        const int64_t parts = (int64_t)(launch.global[axis] / launch.local[axis]);
        if (launch.entry == CLATTNI_SCORE || launch.entry == CLATTNI_FLASH_SCORES)
          keys += parts * m.choice.keys_per_chunk;
        if (launch.entry == CLATTNI_WEIGHTED_SUM || launch.entry == CLATTNI_FLASH)
          dims += parts * m.choice.dim_chunk;
      }
      if (strcmp(variant->name, "flash-cpu-vector") == 0) /* goes through the keys within its one launch */
        assert_int_equal(keys, 0);
      else
        assert_true(keys >= edges[n] && keys - m.choice.keys_per_chunk < edges[n]);
      assert_true(dims >= edges[n] && dims - m.choice.dim_chunk < edges[n]);
    }
}

/* ---- outputs and empty sizes ----------------------------------------------------------------------------------- */

/* The list as letters: l entries, a arrays on the device, s scores, t maxima of rows, x softmax, w weighted sum, f all of
 * them in one, g scores by a kernel of their own, m maxima of heads.  The fused variants' lists follow from the other ones'. */
static void expect_list(const char *line, const clattni_sizes *sizes, const char *three_steps,
                        const clattni_variant *variant, int gathered) {
  static const char names[CLATTNI_ENTRIES + 1] = "lastxwfgm";
  made m;
  char got[64] = "", letters[64] = "";
  clattn_error error;
  clattn_error_init(&error);
  if (clattn_problem_parse(line, &m.problem, &error) != CLATTN_SUCCESS ||
      clattn_problem_check(&m.problem, &error) != CLATTN_SUCCESS)
    fail_msg("%s: %s", line, error.message);
  clattni_problem_resolve(&m.problem, &m.problem);
  m.sizes = *sizes;
  size_t length = 0;
  for (const char *c = three_steps; *c != '\0'; ++c) {
    const int apart = (m.problem.outputs & CLATTN_OUT_SCORES) && variant->kernels[CLATTNI_FLASH_SCORES].name != NULL;
    if (!variant->fused || strchr("lm", *c) != NULL)
      letters[length++] = *c;
    else if (*c == 's') {
      if (!apart || m.problem.outputs != CLATTN_OUT_SCORES || m.problem.stage == CLATTN_STAGE_WEIGHTS)
        letters[length++] = 'f';
      if (apart)
        letters[length++] = 'g';
    }
    if (gathered && *c == 'l' && c[1] != 'l')
      letters[length++] = 'a';
  }
  const int staged = clattni_uses_entries(&m.problem);
  make_list(&m, variant, UINT64_C(1) << 30, staged, gathered);
  if (m.layout.search)
    draw_starts(&m);
  assert_true(m.list.count < (int64_t)sizeof got);
  for (int64_t index = 0; index < m.list.count; ++index) {
    clattni_launch launch;
    clattni_launch_at(&m.list, index, &launch);
    got[index] = names[launch.entry];
  }
  if (strcmp(got, letters) != 0)
    fail_msg("%s, %s: \"%s\", not \"%s\"", variant->name, line, got, letters);
  check_list(&m, staged, gathered);
}

static void expect_steps(const char *line, int64_t batch, int64_t q_len, int64_t k_len, const char *three_steps) {
  const clattni_sizes sizes = {batch, q_len, k_len, 0, 0};
  for (uint32_t v = 0; clattni_variant_at(v) != NULL; ++v)
    for (int gathered = 0; gathered < 2; ++gathered)
      expect_list(line, &sizes, three_steps, clattni_variant_at(v), gathered);
}

static void expect_packed_steps(const char *line, int64_t batch, int64_t total_q, const char *three_steps) {
  const clattni_sizes sizes = {batch, 5, 7, total_q, 0};
  for (uint32_t v = 0; clattni_variant_at(v) != NULL; ++v)
    for (int gathered = 0; gathered < 2; ++gathered)
      expect_list(line, &sizes, three_steps, clattni_variant_at(v), gathered);
}

static void outputs_choose_the_steps(void **state) {
  (void)state;
  expect_steps("b=2 sq=5 sk=7 d=4", 2, 5, 7, "sxw");
  expect_steps("b=2 sq=5 sk=7 d=4 out=o", 2, 5, 7, "sxw");
  expect_steps("b=2 sq=5 sk=7 d=4 out=lse", 2, 5, 7, "sx");
  expect_steps("b=2 sq=5 sk=7 d=4 out=max_logit", 2, 5, 7, "stm");
  expect_steps("b=2 sq=5 sk=7 d=4 out=lse,max_logit", 2, 5, 7, "stxm");
  expect_steps("b=2 sq=5 sk=7 d=4 out=o,lse,scores,max_logit", 2, 5, 7, "stxwm");
  expect_steps("b=2 sq=5 sk=7 d=4 out=scores stage=raw", 2, 5, 7, "s");
  expect_steps("b=2 sq=5 sk=7 d=4 out=scores stage=softcap", 2, 5, 7, "s");
  expect_steps("b=2 sq=5 sk=7 d=4 out=scores stage=masked", 2, 5, 7, "s");
  expect_steps("b=2 sq=5 sk=7 d=4 out=scores stage=weights", 2, 5, 7, "sx");
  expect_steps("b=2 sq=5 sk=7 d=4 out=scores,max_logit stage=weights", 2, 5, 7, "stxm");
  expect_steps("b=2 sq=5 sk=7 d=4 out=lse stage=weights", 2, 5, 7, "sx");
  expect_steps("b=2 sq=5 sk=7 d=4 out=o klen=per_batch", 2, 5, 7, "lsxw");
  expect_steps("b=33 sq=5 sk=7 d=4 out=o qlen=per_batch", 33, 5, 7, "llsxw");
  expect_steps("b=64 sq=5 sk=7 d=4 out=lse off=per_batch", 64, 5, 7, "lllsx");
  expect_steps("b=70 sq=5 sk=7 d=4 out=max_logit off=3", 70, 5, 7, "lllstm");
  expect_steps("b=24 sq=5 sk=7 d=4 causal=1 prefix=per_batch", 24, 5, 7, "lsxw");
  expect_steps("b=25 sq=5 sk=7 d=4 causal=1 prefix=per_batch", 25, 5, 7, "llsxw");
  expect_steps("b=25 sq=5 sk=7 d=4 causal=1 prefix=4", 25, 5, 7, "sxw");
  expect_steps("b=4 sq=5 sk=7 d=4 k=paged v=paged pages=3 max_pages=4 page_size=2 klen=per_batch", 4, 5, 7, "lsxw");
  expect_steps("b=4 sq=5 sk=7 d=4 block_mask=bits block_q=2 block_k=3 alibi=signed sink=f32 chunk=3 out=lse", 4, 5, 7,
               "sx");
}

static void empty_sizes(void **state) {
  (void)state;
  static const char all[] = "b=3 sq=5 sk=7 d=4 out=o,lse,scores,max_logit stage=weights klen=per_batch";
  expect_steps(all, 3, 5, 7, "lstxwm");
  expect_steps(all, 0, 5, 7, "");   /* nothing to write at all */
  expect_steps(all, 3, 0, 7, "lm"); /* the maximum of no pair is still written, of so many rows as the entries say */
  expect_steps(all, 0, 0, 0, "");
  expect_steps(all, 3, 5, 0, "lstxwm"); /* rows without a key are written */
  expect_steps("b=3 sq=5 sk=7 d=4 out=o,lse", 3, 0, 7, "");
  expect_steps("b=3 sq=5 sk=7 d=4 out=o,max_logit", 3, 0, 7, "m");
  expect_steps("sq=5 sk=0 d=4 out=o", 1, 5, 0, "sxw");
  static const char packed[] = "b=30 sq=5 sk=7 d=4 q=packed o=packed total_q=90";
  expect_packed_steps(packed, 30, 90, "llsxw");
  expect_packed_steps(packed, 30, 1, "llsxw");
  expect_packed_steps(packed, 30, 0, ""); /* sequences without a row */
  expect_packed_steps(packed, 0, 0, "");
  expect_packed_steps("b=30 sq=5 sk=7 d=4 q=packed o=packed total_q=90 out=o,max_logit", 30, 0, "llm");
  /* scores have rows that the sequences lack */
  expect_packed_steps("b=30 sq=5 sk=7 d=4 q=packed o=packed total_q=90 out=o,scores", 30, 0, "llsxw");
}

/* ---- parameters ------------------------------------------------------------------------------------------------ */

typedef struct member {
  const char *name;
  size_t offset, size;
} member;
#define MEMBER(type, member)                                                                                           \
  { #member, offsetof(type, member), sizeof(((type *)NULL)->member) }

/* Members in the order of the struct: each starts where the one before ends, so no compiler can lay it out otherwise. */
static void check_members(const member *members, size_t count, size_t bytes) {
  size_t at = 0;
  for (size_t n = 0; n < count; ++n) {
    if (members[n].offset != at)
      fail_msg("%s is at %zu, not at %zu", members[n].name, members[n].offset, at);
    at += members[n].size;
  }
  assert_int_equal(bytes, at);
  assert_int_equal(bytes % 8, 0);
}

static void parameters_have_no_padding(void **state) {
  (void)state;
#define P(name) MEMBER(clattn_params, name)
  static const member params[] = {P(q),
                                  P(k),
                                  P(v),
                                  P(o),
                                  P(lse),
                                  P(scores),
                                  P(bias),
                                  P(mask),
                                  P(blocks),
                                  P(maxima),
                                  P(max_logit),
                                  P(slopes),
                                  P(sink),
                                  P(table_first),
                                  P(scale_first),
                                  P(softcap_first),
                                  P(offset),
                                  P(prefix),
                                  P(window_left),
                                  P(window_right),
                                  P(chunk),
                                  P(entries_first),
                                  P(stats_first),
                                  P(partial_first),
                                  P(scores_first),
                                  P(batch),
                                  P(q_heads),
                                  P(group),
                                  P(pack),
                                  P(q_len),
                                  P(k_len),
                                  P(qk_dim),
                                  P(v_dim),
                                  P(rules),
                                  P(stage),
                                  P(rows),
                                  P(tiles_per_unit),
                                  P(key_chunks),
                                  P(keys_per_chunk),
                                  P(k_stored),
                                  P(page_size),
                                  P(num_pages),
                                  P(max_pages),
                                  P(block_q),
                                  P(block_k),
                                  P(scale),
                                  P(softcap)};
#undef P
#define G(name) MEMBER(clattn_gather, name)
  static const member gather[] = {G(first), G(entries_first), G(batch),   G(arrays),
                                  G(q_len), G(k_len),         G(total_q), G(total_k)};
#undef G
#define E(name) MEMBER(clattn_entries, name)
  static const member entries[] = {E(to), E(count), E(reserved), E(word)};
#undef E
  check_members(params, LENGTH(params), sizeof(clattn_params));
  check_members(gather, LENGTH(gather), sizeof(clattn_gather));
  check_members(entries, LENGTH(entries), sizeof(clattn_entries));
  assert_int_equal(sizeof(clattn_view), 5 * 8);
  assert_int_equal(sizeof(clattn_head_view), 3 * 8);
  assert_int_equal(sizeof(clattn_round), 2 * 4);
  /* these and the handles go where a device has least room for arguments */
  assert_true(sizeof(clattn_params) + sizeof(clattn_round) + 8 * CLATTNI_MAX_KERNEL_ARGS <= 1024);
  assert_true(sizeof(clattn_entries) + 8 <= 1024);
  assert_true(sizeof(clattn_gather) + 7 * 8 <= 1024);
}

static clattn_params params_of(const char *line, const char *variant, int staged, clattni_bases *bases, made *m) {
  clattn_params params;
  clattn_error error;
  clattn_error_init(&error);
  if (clattn_problem_parse(line, &m->problem, &error) != CLATTN_SUCCESS ||
      clattn_problem_check(&m->problem, &error) != CLATTN_SUCCESS)
    fail_msg("%s: %s", line, error.message);
  clattni_problem_resolve(&m->problem, &m->problem);
  m->sizes = clattni_bounds(&m->problem);
  make_list(m, row_of(variant), UINT64_C(1) << 30, staged, staged);
  memset(bases, 0, sizeof *bases);
  for (int slot = 0; slot < CLATTNI_SLOTS; ++slot)
    bases->first[slot] = 1000 + slot;
  bases->workspace = 7000;
  bases->offset = -5;
  bases->prefix = 2;
  bases->scale = 0.25f;
  bases->softcap = 3.0f;
  memset(&params, 0x55, sizeof params);
  clattni_launch_params(&m->list, bases, &params);
  return params;
}

static void check_view(clattn_view view, int64_t batch, int64_t head, int64_t row, int64_t element, int64_t first) {
  assert_int_equal(view.batch, batch);
  assert_int_equal(view.head, head);
  assert_int_equal(view.row, row);
  assert_int_equal(view.element, element);
  assert_int_equal(view.first, first);
}

static void check_head_view(clattn_head_view view, int64_t batch, int64_t head, int64_t first) {
  assert_int_equal(view.batch, batch);
  assert_int_equal(view.head, head);
  assert_int_equal(view.first, first);
}

static void parameters_of_a_problem(void **state) {
  (void)state;
  made m;
  clattni_bases bases;
  clattn_params p = params_of(
      "b=2 hq=6 hkv=2 sq=5 sk=70 d=4 dv=3 q=bshd k=strided:1000,400,0,2 mask=bits bias=f32 out=o,lse,max_logit "
      "klen=per_batch alibi=signed sink=f32:strided:0,2,0,0 block_mask=bits block_q=2 block_k=30 chunk=16",
      "three-step", 1, &bases, &m);
  check_view(p.q, 120, 4, 24, 1, 1000 + CLATTNI_Q);
  check_view(p.k, 1000, 400, 0, 2, 1000 + CLATTNI_K);
  check_view(p.v, 420, 210, 3, 1, 1000 + CLATTNI_V);
  check_view(p.o, 90, 15, 3, 1, 1000 + CLATTNI_O);
  check_view(p.lse, 30, 5, 1, 0, 1000 + CLATTNI_LSE);
  check_view(p.bias, 2100, 350, 70, 1, 1000 + CLATTNI_BIAS);
  check_view(p.mask, 90, 15, 3, 1, 1000 + CLATTNI_KEEP_MASK);
  check_view(p.blocks, 18, 3, 1, 1, 1000 + CLATTNI_BLOCK_MASK); /* 3 rows of blocks, a word each */
  check_view(p.scores, 0, 0, 0, 0, 0);                          /* not used */
  check_view(p.maxima, 30, 5, 1, 0, 7000 + m.layout.maxima);
  check_head_view(p.max_logit, 6, 1, 1000 + CLATTNI_MAX_LOGIT);
  check_head_view(p.slopes, 0, 1, 1000 + CLATTNI_ALIBI_SLOPES); /* the batch shares them */
  check_head_view(p.sink, 0, 2, 1000 + CLATTNI_SINK);
  assert_int_equal(p.offset, -5);
  assert_int_equal(p.prefix, 2);
  assert_int_equal(p.chunk, 16);
  assert_int_equal(p.entries_first, 7000 + m.layout.entries);
  assert_int_equal(p.stats_first, 7000 + m.layout.stats);
  assert_int_equal(p.partial_first, 7000 + m.layout.partial);
  assert_int_equal(p.scores_first, 7000 + m.layout.scores);
  assert_int_equal(p.batch, 2);
  assert_int_equal(p.q_heads, 6);
  assert_int_equal(p.group, 3);
  assert_int_equal(p.pack, 1);
  assert_int_equal(p.q_len, 5);
  assert_int_equal(p.k_len, 70);
  assert_int_equal(p.qk_dim, 4);
  assert_int_equal(p.v_dim, 3);
  assert_int_equal(p.rows, m.choice.rows);
  assert_int_equal(p.tiles_per_unit, 1);
  assert_int_equal(p.key_chunks, m.layout.key_chunks);
  assert_int_equal(p.keys_per_chunk, m.choice.keys_per_chunk);
  assert_int_equal(p.k_stored, 80);
  assert_int_equal(p.page_size, 0);
  assert_int_equal(p.block_q, 2);
  assert_int_equal(p.block_k, 30);
  assert_int_equal(p.stage, CLATTN_SCORES_NONE);
  assert_true(p.scale >= 0.25f && p.scale <= 0.25f && p.softcap >= 3.0f && p.softcap <= 3.0f);
  assert_int_equal(p.rules, CLATTN_RULE_BIAS | CLATTN_RULE_MASK_BITS | CLATTN_RULE_BLOCK_MASK | CLATTN_RULE_ALIBI |
                                CLATTN_RULE_SINK | CLATTN_RULE_ENTRIES | CLATTN_RULE_LSE | CLATTN_RULE_MAX_LOGIT |
                                CLATTN_RULE_OUT);
}

/* Packed rows and pages: strides with no batch axis, and what the kernels look entries up with. */
static void parameters_of_packed_and_paged(void **state) {
  (void)state;
  for (uint32_t v = 0; clattni_variant_at(v) != NULL; ++v)
    for (int scores = 0; scores < 2; ++scores) {
      made m;
      clattni_bases bases;
      char line[256];
      (void)snprintf(
          line, sizeof line,
          "b=3 hq=6 hkv=2 sq=5 sk=70 d=4 dv=3 q=packed o=packed lse=packed total_q=11 k=paged v=paged pages=9 "
          "max_pages=8 page_size=10 klen=per_batch out=o,lse,max_logit%s",
          scores ? ",scores" : "");
      const clattn_params p = params_of(line, clattni_variant_at(v)->name, 1, &bases, &m);
      check_view(p.q, 0, 4, 24, 1, 1000 + CLATTNI_Q);
      check_view(p.o, 0, 3, 18, 1, 1000 + CLATTNI_O);
      check_view(p.lse, 0, 11, 1, 0, 1000 + CLATTNI_LSE);
      check_view(p.k, 80, 4, 8, 1, 1000 + CLATTNI_K);
      check_view(p.v, 60, 3, 6, 1, 1000 + CLATTNI_V);
      check_view(p.maxima, 0, 11, 1, 0, 7000 + m.layout.maxima);
      assert_int_equal(p.table_first, 1000 + CLATTNI_PAGE_TABLE);
      assert_int_equal(p.page_size, 10);
      assert_int_equal(p.num_pages, 9);
      assert_int_equal(p.max_pages, 8);
      assert_int_equal(p.pack, m.choice.variant->fused ? 3 : 1);
      assert_int_equal(p.tiles_per_unit, scores ? ceil_div(5 * p.pack, p.rows) : 11 * p.pack / p.rows + 3);
      assert_int_equal(p.rules, CLATTN_RULE_ENTRIES | CLATTN_RULE_LSE | CLATTN_RULE_MAX_LOGIT | CLATTN_RULE_OUT |
                                    (scores ? 0 : CLATTN_RULE_SEARCH));
    }
}

/* A scalar on the device is a rule, and where it stands; sizes beyond what kernels count in are cut, as unlimited. */
static void scalars_and_limits(void **state) {
  (void)state;
  made m;
  clattni_bases bases;
  clattn_params p;
  for (int which = 0; which < 4; ++which) {
    (void)params_of("sq=3 sk=3 d=3 softcap=9", "three-step", 0, &bases, &m);
    bases.scale_buffer = which & 1;
    bases.softcap_buffer = which >> 1;
    bases.scale_first = 77;
    bases.softcap_first = 78;
    clattni_launch_params(&m.list, &bases, &p);
    assert_int_equal(p.rules,
                     CLATTN_RULE_OUT | (which & 1 ? CLATTN_RULE_SCALE : 0) | (which & 2 ? CLATTN_RULE_SOFTCAP : 0));
    assert_int_equal(p.scale_first, 77);
    assert_int_equal(p.softcap_first, 78);
  }
  p = params_of("sq=3 sk=3 d=3 chunk=9223372036854775807 block_mask=bits block_q=9223372036854775807 "
                "block_k=2147483648",
                "three-step", 0, &bases, &m);
  assert_int_equal(p.chunk, CLATTN_UNLIMITED);
  assert_int_equal(p.block_q, INT32_MAX);
  assert_int_equal(p.block_k, INT32_MAX);
}

static void rules_and_windows(void **state) {
  (void)state;
  const int64_t none = CLATTN_UNLIMITED;
  const int out = CLATTN_RULE_OUT, entries = CLATTN_RULE_ENTRIES | CLATTN_RULE_OUT;
  const struct {
    const char *line; /* behind "sq=3 sk=3 d=3" */
    int staged, rules, stage;
    int64_t left, right;
  } rows[] = {
      {"", 0, out, -1, none, none},
      {"causal=1", 0, CLATTN_RULE_CAUSAL | out, -1, none, none},
      {"mask=u8", 0, CLATTN_RULE_MASK_U8 | out, -1, none, none},
      {"bias=f32", 0, CLATTN_RULE_BIAS | out, -1, none, none},
      {"klen=per_batch", 1, entries, -1, none, none},
      {"prefix=per_batch", 1, entries, -1, none, none},
      {"k=packed v=packed total_k=3", 1, entries, -1, none, none},
      {"q=packed o=packed total_q=3", 1, entries | CLATTN_RULE_SEARCH, -1, none, none},
      {"off=4", 0, out, -1, none, none},
      {"off=4", 1, entries, -1, none, none},
      {"prefix=2", 0, out, -1, none, none},
      {"alibi=signed", 0, CLATTN_RULE_ALIBI | out, -1, none, none},
      {"alibi=symmetric", 0, CLATTN_RULE_ALIBI | CLATTN_RULE_SYMMETRIC | out, -1, none, none},
      {"sink=f32", 0, CLATTN_RULE_SINK | out, -1, none, none},
      {"block_mask=bits block_q=1 block_k=1", 0, CLATTN_RULE_BLOCK_MASK | out, -1, none, none},
      {"flags=batch_invariant", 0, CLATTN_RULE_INVARIANT | out, -1, none, none},
      {"chunk=2", 0, out, -1, none, none},
      {"softcap=2", 0, out, -1, none, none},
      {"window=0,0", 0, out, -1, 0, 0},
      {"window=5,inf", 0, out, -1, 5, none},
      {"window=inf,6", 0, out, -1, none, 6},
      {"window=inf:5,inf:6", 0, out, -1, none, none}, /* values that do not count */
      {"window=9223372036854775807,9223372036854775807", 0, out, -1, none, none},
      {"out=scores stage=raw", 0, 0, CLATTN_SCORES_RAW, none, none},
      {"out=scores stage=softcap", 0, 0, CLATTN_SCORES_SOFTCAP, none, none},
      {"out=scores stage=masked", 0, 0, CLATTN_SCORES_MASKED, none, none},
      {"out=scores stage=weights", 0, 0, CLATTN_SCORES_WEIGHTS, none, none},
      {"out=o stage=weights", 0, out, -1, none, none},
      {"out=o,lse", 0, CLATTN_RULE_LSE | out, -1, none, none},
      {"out=lse", 0, CLATTN_RULE_LSE, -1, none, none},
      {"out=max_logit", 0, CLATTN_RULE_MAX_LOGIT, -1, none, none},
  };
  for (size_t n = 0; n < LENGTH(rows); ++n)
    for (uint32_t v = 0; clattni_variant_at(v) != NULL; ++v) {
      made m;
      clattni_bases bases;
      char line[160];
      (void)snprintf(line, sizeof line, "sq=3 sk=3 d=3 %s", rows[n].line);
      const clattn_params p = params_of(line, clattni_variant_at(v)->name, rows[n].staged, &bases, &m);
      if (p.rules != rows[n].rules || p.stage != rows[n].stage || p.window_left != rows[n].left ||
          p.window_right != rows[n].right)
        fail_msg("%s: rules %d, stage %d, window %lld, %lld", line, p.rules, p.stage, (long long)p.window_left,
                 (long long)p.window_right);
    }
}

/* Each rule has a bit of its own. */
static void rules_have_bits_of_their_own(void **state) {
  (void)state;
  static const int bits[] = {CLATTN_RULE_CAUSAL,     CLATTN_RULE_BIAS,    CLATTN_RULE_MASK_U8,   CLATTN_RULE_MASK_BITS,
                             CLATTN_RULE_ENTRIES,    CLATTN_RULE_LSE,     CLATTN_RULE_MAX_LOGIT, CLATTN_RULE_OUT,
                             CLATTN_RULE_BLOCK_MASK, CLATTN_RULE_ALIBI,   CLATTN_RULE_SYMMETRIC, CLATTN_RULE_SINK,
                             CLATTN_RULE_SCALE,      CLATTN_RULE_SOFTCAP, CLATTN_RULE_INVARIANT, CLATTN_RULE_SEARCH};
  int seen = 0;
  for (size_t n = 0; n < LENGTH(bits); ++n) {
    assert_true(bits[n] > 0 && (bits[n] & (bits[n] - 1)) == 0 && (seen & bits[n]) == 0);
    seen |= bits[n];
  }
}

/* The fused kernel looks at the same views and rules; of the workspace it has entries and a word per row. */
static void parameters_of_a_fused_launch(void **state) {
  (void)state;
  made m;
  clattni_bases bases;
  static const char line[] =
      "b=33 hq=6 hkv=2 sq=500 sk=70 d=4 dv=3 out=o,scores,max_logit stage=weights klen=per_batch";
  const clattn_params p = params_of(line, "flash-cpu-vector", 1, &bases, &m);
  const int64_t tiles_per_unit = ceil_div(500, m.choice.rows);
  check_view(p.q, 6 * 500 * 4, 500 * 4, 4, 1, 1000 + CLATTNI_Q);
  check_view(p.k, 2 * 70 * 4, 70 * 4, 4, 1, 1000 + CLATTNI_K);
  check_view(p.v, 2 * 70 * 3, 70 * 3, 3, 1, 1000 + CLATTNI_V);
  check_view(p.o, 6 * 500 * 3, 500 * 3, 3, 1, 1000 + CLATTNI_O);
  check_view(p.scores, 6 * 500 * 70, 500 * 70, 70, 1, 1000 + CLATTNI_SCORES);
  check_view(p.lse, 0, 0, 0, 0, 0); /* not used */
  assert_int_equal(p.entries_first, 7000);
  check_view(p.maxima, 6 * 500, 500, 1, 0, 7000 + 272); /* behind 33 * 8 words, padded */
  assert_int_equal(m.layout.bytes, 4 * (uint64_t)(272 + ceil_div(33 * 6 * 500, 16) * 16));
  assert_int_equal(p.tiles_per_unit, tiles_per_unit);
  assert_int_equal(p.group, 3);
  assert_int_equal(p.pack, 1);
  assert_int_equal(p.q_len, 500);
  assert_int_equal(p.k_len, 70);
  assert_int_equal(p.stage, CLATTN_SCORES_WEIGHTS);
  assert_int_equal(p.rules, CLATTN_RULE_ENTRIES | CLATTN_RULE_MAX_LOGIT | CLATTN_RULE_OUT);
  assert_int_equal(m.list.count, 2 + 1 + 1 + 1);
  clattni_launch launch;
  clattni_launch_at(&m.list, 2, &launch);
  assert_int_equal(launch.entry, CLATTNI_GATHER_ENTRIES);
  clattni_launch_at(&m.list, 3, &launch);
  assert_int_equal(launch.entry, CLATTNI_FLASH);
  assert_int_equal(launch.round.first_tile, 0);
  assert_int_equal(launch.round.tiles, 33 * 6 * tiles_per_unit);
  check_groups(&launch, 33 * 6 * tiles_per_unit, 1);
}

/* The kernels' stages are the interface's. */
static void stages_have_the_same_numbers(void **state) {
  (void)state;
  assert_int_equal(CLATTN_SCORES_RAW, CLATTN_STAGE_RAW);
  assert_int_equal(CLATTN_SCORES_SOFTCAP, CLATTN_STAGE_SOFTCAP);
  assert_int_equal(CLATTN_SCORES_MASKED, CLATTN_STAGE_MASKED);
  assert_int_equal(CLATTN_SCORES_WEIGHTS, CLATTN_STAGE_WEIGHTS);
}

/* Strides of the EXACT layouts follow the enqueue's sizes, the others the bounds; so do counts. */
static void parameters_at_smaller_sizes(void **state) {
  (void)state;
  made m;
  clattni_bases bases;
  (void)params_of("b=4 hq=2 sq=90 sk=130 d=4 q=bhsd_exact k=bhsd out=o,lse,max_logit", "three-step", 0, &bases, &m);
  const clattni_sizes sizes = {2, 33, 65, 0, 0};
  clattni_layout layout;
  clattni_launch_list list;
  clattn_params p;
  assert_true(clattni_layout_make(&m.choice, &m.problem, &sizes, m.layout.bytes, &layout));
  clattni_launch_list_make(&m.choice, &m.problem, &sizes, &layout, 0, 0, &list);
  clattni_launch_params(&list, &bases, &p);
  check_view(p.q, 2 * 33 * 4, 33 * 4, 4, 1, 1000 + CLATTNI_Q);
  check_view(p.k, 2 * 130 * 4, 130 * 4, 4, 1, 1000 + CLATTNI_K);
  check_view(p.o, 2 * 90 * 4, 90 * 4, 4, 1, 1000 + CLATTNI_O);
  check_view(p.maxima, 2 * 33, 33, 1, 0, 7000 + layout.maxima); /* the workspace is the enqueue's own */
  assert_int_equal(p.batch, 2);
  assert_int_equal(p.q_len, 33);
  assert_int_equal(p.k_len, 65);
  assert_int_equal(p.tiles_per_unit, (33 + m.choice.rows - 1) / m.choice.rows);
  assert_int_equal(p.k_stored, 80);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_row_once_per_step),
      cmocka_unit_test(grids_reach_the_last_key_and_dim),
      cmocka_unit_test(outputs_choose_the_steps),
      cmocka_unit_test(empty_sizes),
      cmocka_unit_test(parameters_have_no_padding),
      cmocka_unit_test(parameters_of_a_problem),
      cmocka_unit_test(parameters_of_packed_and_paged),
      cmocka_unit_test(scalars_and_limits),
      cmocka_unit_test(rules_and_windows),
      cmocka_unit_test(rules_have_bits_of_their_own),
      cmocka_unit_test(stages_have_the_same_numbers),
      cmocka_unit_test(parameters_at_smaller_sizes),
      cmocka_unit_test(parameters_of_a_fused_launch),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
