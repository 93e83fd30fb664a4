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
} made;

/* The table's row of this name. */
static const clattni_variant *row_of(const char *name) {
  for (uint32_t n = 0; clattni_variant_at(n) != NULL; ++n)
    if (strcmp(clattni_variant_at(n)->name, name) == 0)
      return clattni_variant_at(n);
  fail_msg("no variant is called %s", name);
  return NULL;
}

static void make_list(made *m, const clattni_variant *variant, uint64_t budget, int staged) {
  assert_true(made_up_choice(&m->problem, variant, 0, &m->choice));
  if (!clattni_layout_make(&m->choice, &m->problem, &m->sizes, budget, &m->layout))
    assert_true(clattni_layout_make(&m->choice, &m->problem, &m->sizes, m->layout.bytes, &m->layout));
  clattni_launch_list_make(&m->choice, &m->problem, &m->sizes, &m->layout, staged, &m->list);
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
  if (launch->entry == CLATTNI_TILE_MAXIMUM) {
    assert_int_equal(launch->dims, 1);
    assert_int_equal(launch->local[0], 1);
    assert_int_equal(launch->global[0], (size_t)tiles);
  } else if (m->choice.variant->shape == CLATTNI_SHAPE_LANES) {
    assert_int_equal(launch->local[0] * launch->local[1], 1);
    check_groups(launch, tiles, launch->entry == CLATTNI_SOFTMAX || launch->entry == CLATTNI_FLASH ? 1 : parts);
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
  case CLATTNI_TILE_MAXIMUM:
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

/* Counts how often a step visits each row, the way the kernels go from a tile's number to batch, head and rows. */
static void visit_rows(const made *m, const clattni_launch *launch, unsigned char *visits) {
  for (int64_t n = 0; n < launch->round.tiles; ++n) {
    const int64_t id = launch->round.first_tile + n;
    const int64_t bh = id / m->layout.tiles_per_head, first = id % m->layout.tiles_per_head * m->choice.rows;
    assert_true(bh < m->sizes.batch * m->problem.q_heads);
    for (int64_t i = first; i < first + m->choice.rows && i < m->sizes.q_len; ++i)
      ++visits[bh * m->sizes.q_len + i];
  }
}

static void check_list(const made *m, int staged) {
  const int64_t rows = m->sizes.batch * m->problem.q_heads * m->sizes.q_len;
  unsigned char *visits[CLATTNI_ENTRIES] = {NULL};
  int64_t maxima = 0, entries = 0, batch_staged = 0, at_round = -1;
  clattni_entry before = CLATTNI_STAGE_LENGTHS;
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
    ++entries;
    switch (launch.entry) {
    case CLATTNI_STAGE_LENGTHS: /* first of all, and each batch entry once */
      assert_int_equal(before, CLATTNI_STAGE_LENGTHS);
      assert_int_equal(launch.first_entry, batch_staged);
      assert_true(launch.count >= 1 && launch.count <= CLATTN_LENGTHS_PER_LAUNCH);
      assert_int_equal(launch.dims, 1);
      assert_int_equal(launch.local[0], 1);
      assert_int_equal(launch.global[0], 3 * (size_t)launch.count);
      batch_staged += launch.count;
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
  assert_int_equal(entries, m->list.count);
  assert_int_equal(batch_staged, staged && rows > 0 ? m->sizes.batch : 0);
  assert_int_equal(maxima, wants(m, CLATTNI_MAX_LOGIT_STEP) && m->sizes.batch > 0);
  for (int entry = 0; entry < CLATTNI_ENTRIES; ++entry) {
    const int wanted = entry != CLATTNI_MAX_LOGIT_STEP && wants(m, (clattni_entry)entry);
    for (int64_t row = 0; row < rows; ++row)
      assert_int_equal(visits[entry][row], wanted);
    free(visits[entry]);
  }
}

static void every_row_once_per_step(void **state) {
  (void)state;
  size_t rounds = 0;
  for (uint32_t n = 0; n < 2250; ++n) {
    made m;
    m.problem = made_up_problem(400);
    m.sizes.batch = made_up_number(0, m.problem.batch);
    m.sizes.q_len = made_up_number(0, m.problem.q_len);
    m.sizes.k_len = made_up_number(0, m.problem.k_len);
    const int staged = clattni_uses_lengths(&m.problem) && made_up_number(0, 1);
    make_list(&m, made_up_variant(n), (uint64_t)made_up_size(0, 3000000), staged);
    check_list(&m, staged);
    rounds += m.layout.rounds > 1;
    assert_true(m.list.count <= m.layout.launches);
    if (staged || !clattni_uses_lengths(&m.problem))
      assert_int_equal(m.list.count, m.layout.launches);
  }
  assert_true(rounds > 100);
}

/* Every chunk of keys and of value elements, at the edges of chunks. */
static void grids_reach_the_last_key_and_dim(void **state) {
  (void)state;
  static const int64_t edges[] = {1, 31, 32, 33, 63, 64, 65, 255, 256, 257, 1023, 1024, 1025, 2049};
  for (size_t n = 0; n < LENGTH(edges); ++n)
    for (int lanes = 0; lanes < 2; ++lanes) {
      made m;
      int64_t keys = 0, dims = 0;
      clattn_problem_init(&m.problem);
      m.problem.q_len = 30;
      m.problem.k_len = m.problem.v_dim = edges[n];
      m.problem.qk_dim = 4;
      clattni_problem_resolve(&m.problem, &m.problem);
      m.sizes.batch = 1;
      m.sizes.q_len = 30;
      m.sizes.k_len = edges[n];
      make_list(&m, row_of(lanes ? "three-step-cpu" : "three-step"), UINT64_C(1) << 30, 0);
      for (int64_t index = 0; index < m.list.count; ++index) {
        clattni_launch launch;
        clattni_launch_at(&m.list, index, &launch);
        const size_t axis = lanes ? 1 : 0;
        const int64_t parts = (int64_t)(launch.global[axis] / launch.local[axis]);
        keys += launch.entry == CLATTNI_SCORE ? parts * m.choice.keys_per_chunk : 0;
        dims += launch.entry == CLATTNI_WEIGHTED_SUM ? parts * m.choice.dim_chunk : 0;
      }
      assert_true(keys >= edges[n] && keys - m.choice.keys_per_chunk < edges[n]);
      assert_true(dims >= edges[n] && dims - m.choice.dim_chunk < edges[n]);
    }
}

/* ---- outputs and empty sizes ----------------------------------------------------------------------------------- */

/* The list as letters: l lengths, s scores, t maxima of tiles, x softmax, w weighted sum, f all of them in one, m maxima of
 * heads.  The fused variant's list follows from the other ones'. */
static void expect_steps(const char *line, int64_t batch, int64_t q_len, int64_t k_len, const char *three_steps) {
  static const char names[CLATTNI_ENTRIES + 1] = "lstxwfgm";
  for (uint32_t v = 0; clattni_variant_at(v) != NULL; ++v) {
    made m;
    char got[64] = "", fused[64] = "";
    for (const char *c = three_steps; *c != '\0'; ++c)
      if (strchr("lsm", *c) != NULL)
        fused[strlen(fused)] = *c == 's' ? 'f' : *c;
    const char *letters = clattni_variant_at(v)->fused ? fused : three_steps;
    assert_int_equal(clattn_problem_parse(line, &m.problem, NULL), CLATTN_SUCCESS);
    clattni_problem_resolve(&m.problem, &m.problem);
    char *f = strchr(fused, 'f');
    if (f != NULL && (m.problem.outputs & CLATTN_OUT_SCORES) &&
        clattni_variant_at(v)->kernels[CLATTNI_FLASH_SCORES].name != NULL) { /* g: scores by a kernel of their own */
      if (m.problem.outputs == CLATTN_OUT_SCORES && m.problem.stage != CLATTN_STAGE_WEIGHTS) {
        *f = 'g';
      } else {
        memmove(f + 2, f + 1, strlen(f));
        f[1] = 'g';
      }
    }
    m.sizes.batch = batch;
    m.sizes.q_len = q_len;
    m.sizes.k_len = k_len;
    make_list(&m, clattni_variant_at(v), UINT64_C(1) << 30, clattni_uses_lengths(&m.problem));
    assert_true(m.list.count < (int64_t)sizeof got);
    for (int64_t index = 0; index < m.list.count; ++index) {
      clattni_launch launch;
      clattni_launch_at(&m.list, index, &launch);
      got[index] = names[launch.entry];
    }
    if (strcmp(got, letters) != 0)
      fail_msg("%s, %s: \"%s\", not \"%s\"", clattni_variant_at(v)->name, line, got, letters);
    check_list(&m, clattni_uses_lengths(&m.problem));
  }
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
  expect_steps("b=64 sq=5 sk=7 d=4 out=lse off=per_batch", 64, 5, 7, "llsx");
  expect_steps("b=70 sq=5 sk=7 d=4 out=max_logit off=3", 70, 5, 7, "lllstm");
}

static void empty_sizes(void **state) {
  (void)state;
  static const char all[] = "b=3 sq=5 sk=7 d=4 out=o,lse,scores,max_logit stage=weights klen=per_batch";
  expect_steps(all, 3, 5, 7, "lstxwm");
  expect_steps(all, 0, 5, 7, "");  /* nothing to write at all */
  expect_steps(all, 3, 0, 7, "m"); /* the maximum of no pair is still written */
  expect_steps(all, 0, 0, 0, "");
  expect_steps(all, 3, 5, 0, "lstxwm"); /* rows without a key are written */
  expect_steps("b=3 sq=5 sk=7 d=4 out=o,lse", 3, 0, 7, "");
  expect_steps("sq=5 sk=0 d=4 out=o", 1, 5, 0, "sxw");
}

/* ---- parameters ------------------------------------------------------------------------------------------------ */

/* Members in the order of the struct: each starts where the one before ends, so no compiler can lay it out otherwise. */
static void parameters_have_no_padding(void **state) {
  (void)state;
#define MEMBER(type, member)                                                                                           \
  { #member, offsetof(type, member), sizeof(((type *)NULL)->member) }
  static const struct {
    const char *name;
    size_t offset, size;
  } members[] = {
      MEMBER(clattn_params, q),
      MEMBER(clattn_params, k),
      MEMBER(clattn_params, v),
      MEMBER(clattn_params, o),
      MEMBER(clattn_params, lse),
      MEMBER(clattn_params, scores),
      MEMBER(clattn_params, max_logit),
      MEMBER(clattn_params, bias),
      MEMBER(clattn_params, mask),
      MEMBER(clattn_params, offset),
      MEMBER(clattn_params, window_left),
      MEMBER(clattn_params, window_right),
      MEMBER(clattn_params, lengths_first),
      MEMBER(clattn_params, maxima_first),
      MEMBER(clattn_params, stats_first),
      MEMBER(clattn_params, partial_first),
      MEMBER(clattn_params, scores_first),
      MEMBER(clattn_params, batch),
      MEMBER(clattn_params, q_heads),
      MEMBER(clattn_params, group),
      MEMBER(clattn_params, q_len),
      MEMBER(clattn_params, k_len),
      MEMBER(clattn_params, qk_dim),
      MEMBER(clattn_params, v_dim),
      MEMBER(clattn_params, rules),
      MEMBER(clattn_params, stage),
      MEMBER(clattn_params, tiles_per_head),
      MEMBER(clattn_params, key_chunks),
      MEMBER(clattn_params, keys_per_chunk),
      MEMBER(clattn_params, k_stored),
      MEMBER(clattn_params, scale),
      MEMBER(clattn_params, softcap),
      MEMBER(clattn_params, reserved),
  };
#undef MEMBER
  size_t at = 0;
  for (size_t n = 0; n < LENGTH(members); ++n) {
    if (members[n].offset != at)
      fail_msg("%s is at %zu, not at %zu", members[n].name, members[n].offset, at);
    at += members[n].size;
  }
  assert_int_equal(sizeof(clattn_params), at);
  assert_int_equal(sizeof(clattn_params) % 8, 0);
  assert_int_equal(sizeof(clattn_view), 5 * 8);
  assert_int_equal(sizeof(clattn_round), 2 * 4);
  assert_int_equal(offsetof(clattn_lengths, count), 8);
  assert_int_equal(offsetof(clattn_lengths, entry), 16);
  assert_int_equal(sizeof(clattn_lengths), 16 + 4 * 3 * CLATTN_LENGTHS_PER_LAUNCH);
  /* both and the handles go where a device has least room for arguments */
  assert_true(sizeof(clattn_params) + sizeof(clattn_round) + 8 * CLATTNI_MAX_KERNEL_ARGS <= 1024);
  assert_true(sizeof(clattn_lengths) + 8 <= 1024);
}

static clattn_params params_of(const char *line, const char *variant, int staged, clattni_bases *bases, made *m) {
  clattn_params params;
  assert_int_equal(clattn_problem_parse(line, &m->problem, NULL), CLATTN_SUCCESS);
  assert_int_equal(clattn_problem_check(&m->problem, NULL), CLATTN_SUCCESS);
  clattni_problem_resolve(&m->problem, &m->problem);
  m->sizes.batch = m->problem.batch;
  m->sizes.q_len = m->problem.q_len;
  m->sizes.k_len = m->problem.k_len;
  make_list(m, row_of(variant), UINT64_C(1) << 30, staged);
  memset(bases, 0, sizeof *bases);
  for (int slot = 0; slot < CLATTNI_SLOTS; ++slot)
    bases->first[slot] = 1000 + slot;
  bases->workspace = 7000;
  bases->offset = -5;
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

static void parameters_of_a_problem(void **state) {
  (void)state;
  made m;
  clattni_bases bases;
  clattn_params p = params_of(
      "b=2 hq=6 hkv=2 sq=5 sk=70 d=4 dv=3 q=bshd k=strided:1000,400,0,2 mask=bits bias=f32 out=o,lse,max_logit "
      "klen=per_batch",
      "three-step", 1, &bases, &m);
  check_view(p.q, 120, 4, 24, 1, 1000 + CLATTNI_Q);
  check_view(p.k, 1000, 400, 0, 2, 1000 + CLATTNI_K);
  check_view(p.v, 420, 210, 3, 1, 1000 + CLATTNI_V);
  check_view(p.o, 90, 15, 3, 1, 1000 + CLATTNI_O);
  check_view(p.lse, 30, 5, 1, 0, 1000 + CLATTNI_LSE);
  check_view(p.max_logit, 6, 1, 0, 0, 1000 + CLATTNI_MAX_LOGIT);
  check_view(p.bias, 2100, 350, 70, 1, 1000 + CLATTNI_BIAS);
  check_view(p.mask, 90, 15, 3, 1, 1000 + CLATTNI_KEEP_MASK);
  check_view(p.scores, 0, 0, 0, 0, 0); /* not used */
  assert_int_equal(p.offset, -5);
  assert_int_equal(p.lengths_first, 7000 + m.layout.lengths);
  assert_int_equal(p.stats_first, 7000 + m.layout.stats);
  assert_int_equal(p.partial_first, 7000 + m.layout.partial);
  assert_int_equal(p.scores_first, 7000 + m.layout.scores);
  assert_int_equal(p.batch, 2);
  assert_int_equal(p.q_heads, 6);
  assert_int_equal(p.group, 3);
  assert_int_equal(p.q_len, 5);
  assert_int_equal(p.k_len, 70);
  assert_int_equal(p.qk_dim, 4);
  assert_int_equal(p.v_dim, 3);
  assert_int_equal(p.tiles_per_head, 1);
  assert_int_equal(p.key_chunks, m.layout.key_chunks);
  assert_int_equal(p.keys_per_chunk, m.choice.keys_per_chunk);
  assert_int_equal(p.k_stored, 80);
  assert_int_equal(p.stage, CLATTN_SCORES_NONE);
  assert_int_equal(p.reserved, 0);
  assert_true(p.scale >= 0.25f && p.scale <= 0.25f && p.softcap >= 3.0f && p.softcap <= 3.0f);
  assert_int_equal(p.rules, CLATTN_RULE_BIAS | CLATTN_RULE_MASK_BITS | CLATTN_RULE_LENGTHS | CLATTN_RULE_LSE |
                                CLATTN_RULE_MAX_LOGIT | CLATTN_RULE_OUT);
}

static void rules_and_windows(void **state) {
  (void)state;
  static const struct {
    const char *line;
    int staged, rules, stage;
    int64_t left, right;
  } rows[] = {
      {"sq=3 sk=3 d=3", 0, CLATTN_RULE_OUT, -1, CLATTN_UNLIMITED, CLATTN_UNLIMITED},
      {"sq=3 sk=3 d=3 causal=1", 0, CLATTN_RULE_CAUSAL | CLATTN_RULE_OUT, -1, CLATTN_UNLIMITED, CLATTN_UNLIMITED},
      {"sq=3 sk=3 d=3 mask=u8", 0, CLATTN_RULE_MASK_U8 | CLATTN_RULE_OUT, -1, CLATTN_UNLIMITED, CLATTN_UNLIMITED},
      {"sq=3 sk=3 d=3 klen=per_batch", 1, CLATTN_RULE_LENGTHS | CLATTN_RULE_OUT, -1, CLATTN_UNLIMITED,
       CLATTN_UNLIMITED},
      {"sq=3 sk=3 d=3 off=4", 0, CLATTN_RULE_OUT, -1, CLATTN_UNLIMITED, CLATTN_UNLIMITED},
      {"sq=3 sk=3 d=3 window=0,0", 0, CLATTN_RULE_OUT, -1, 0, 0},
      {"sq=3 sk=3 d=3 window=5,inf", 0, CLATTN_RULE_OUT, -1, 5, CLATTN_UNLIMITED},
      {"sq=3 sk=3 d=3 window=inf,6", 0, CLATTN_RULE_OUT, -1, CLATTN_UNLIMITED, 6},
      {"sq=3 sk=3 d=3 window=inf:5,inf:6", 0, CLATTN_RULE_OUT, -1, CLATTN_UNLIMITED,
       CLATTN_UNLIMITED}, /* values that do not count */
      {"sq=3 sk=3 d=3 window=9223372036854775807,9223372036854775807", 0, CLATTN_RULE_OUT, -1, CLATTN_UNLIMITED,
       CLATTN_UNLIMITED},
      {"sq=3 sk=3 d=3 out=scores stage=raw", 0, 0, CLATTN_SCORES_RAW, CLATTN_UNLIMITED, CLATTN_UNLIMITED},
      {"sq=3 sk=3 d=3 out=scores stage=softcap", 0, 0, CLATTN_SCORES_SOFTCAP, CLATTN_UNLIMITED, CLATTN_UNLIMITED},
      {"sq=3 sk=3 d=3 out=scores stage=masked", 0, 0, CLATTN_SCORES_MASKED, CLATTN_UNLIMITED, CLATTN_UNLIMITED},
      {"sq=3 sk=3 d=3 out=scores stage=weights", 0, 0, CLATTN_SCORES_WEIGHTS, CLATTN_UNLIMITED, CLATTN_UNLIMITED},
      {"sq=3 sk=3 d=3 out=o stage=weights", 0, CLATTN_RULE_OUT, -1, CLATTN_UNLIMITED, CLATTN_UNLIMITED},
      {"sq=3 sk=3 d=3 out=o,lse", 0, CLATTN_RULE_LSE | CLATTN_RULE_OUT, -1, CLATTN_UNLIMITED, CLATTN_UNLIMITED},
      {"sq=3 sk=3 d=3 out=lse", 0, CLATTN_RULE_LSE, -1, CLATTN_UNLIMITED, CLATTN_UNLIMITED},
      {"sq=3 sk=3 d=3 out=max_logit", 0, CLATTN_RULE_MAX_LOGIT, -1, CLATTN_UNLIMITED, CLATTN_UNLIMITED},
  };
  for (size_t n = 0; n < LENGTH(rows); ++n)
    for (uint32_t v = 0; clattni_variant_at(v) != NULL; ++v) {
      made m;
      clattni_bases bases;
      const clattn_params p = params_of(rows[n].line, clattni_variant_at(v)->name, rows[n].staged, &bases, &m);
      if (p.rules != rows[n].rules || p.stage != rows[n].stage || p.window_left != rows[n].left ||
          p.window_right != rows[n].right)
        fail_msg("%s: rules %d, stage %d, window %lld, %lld", rows[n].line, p.rules, p.stage, (long long)p.window_left,
                 (long long)p.window_right);
    }
}

/* The fused kernel looks at the same views and rules; of the workspace it has lengths and a word per tile. */
static void parameters_of_a_fused_launch(void **state) {
  (void)state;
  made m;
  clattni_bases bases;
  static const char line[] =
      "b=33 hq=6 hkv=2 sq=500 sk=70 d=4 dv=3 out=o,scores,max_logit stage=weights klen=per_batch";
  const clattn_params p = params_of(line, "flash-cpu-vector", 1, &bases, &m);
  const int64_t tiles_per_head = ceil_div(500, m.choice.rows);
  check_view(p.q, 6 * 500 * 4, 500 * 4, 4, 1, 1000 + CLATTNI_Q);
  check_view(p.k, 2 * 70 * 4, 70 * 4, 4, 1, 1000 + CLATTNI_K);
  check_view(p.v, 2 * 70 * 3, 70 * 3, 3, 1, 1000 + CLATTNI_V);
  check_view(p.o, 6 * 500 * 3, 500 * 3, 3, 1, 1000 + CLATTNI_O);
  check_view(p.scores, 6 * 500 * 70, 500 * 70, 70, 1, 1000 + CLATTNI_SCORES);
  check_view(p.lse, 0, 0, 0, 0, 0); /* not used */
  assert_int_equal(p.lengths_first, 7000);
  assert_int_equal(p.maxima_first, 7000 + 112); /* 99 words, padded */
  assert_int_equal(m.layout.bytes, 4 * (uint64_t)(112 + ceil_div(33 * 6 * tiles_per_head, 16) * 16));
  assert_int_equal(p.tiles_per_head, tiles_per_head);
  assert_int_equal(p.group, 3);
  assert_int_equal(p.q_len, 500);
  assert_int_equal(p.k_len, 70);
  assert_int_equal(p.stage, CLATTN_SCORES_WEIGHTS);
  assert_int_equal(CLATTN_RULE_OUT, 128);
  assert_int_equal(p.rules, CLATTN_RULE_LENGTHS | CLATTN_RULE_MAX_LOGIT | CLATTN_RULE_OUT);
  assert_int_equal(m.list.count, 2 + 1 + 1);
  clattni_launch launch;
  clattni_launch_at(&m.list, 2, &launch);
  assert_int_equal(launch.entry, CLATTNI_FLASH);
  assert_int_equal(launch.round.first_tile, 0);
  assert_int_equal(launch.round.tiles, 33 * 6 * tiles_per_head);
  check_groups(&launch, 33 * 6 * tiles_per_head, 1);
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
  (void)params_of("b=4 hq=2 sq=90 sk=130 d=4 q=bhsd_exact k=bhsd out=o,lse", "three-step", 0, &bases, &m);
  const clattni_sizes sizes = {2, 33, 65};
  clattni_layout layout;
  clattni_launch_list list;
  clattn_params p;
  assert_true(clattni_layout_make(&m.choice, &m.problem, &sizes, m.layout.bytes, &layout));
  clattni_launch_list_make(&m.choice, &m.problem, &sizes, &layout, 0, &list);
  clattni_launch_params(&list, &bases, &p);
  check_view(p.q, 2 * 33 * 4, 33 * 4, 4, 1, 1000 + CLATTNI_Q);
  check_view(p.k, 2 * 130 * 4, 130 * 4, 4, 1, 1000 + CLATTNI_K);
  check_view(p.o, 2 * 90 * 4, 90 * 4, 4, 1, 1000 + CLATTNI_O);
  assert_int_equal(p.batch, 2);
  assert_int_equal(p.q_len, 33);
  assert_int_equal(p.k_len, 65);
  assert_int_equal(p.tiles_per_head, (33 + m.choice.rows - 1) / m.choice.rows);
  assert_int_equal(p.k_stored, 80);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_row_once_per_step),     cmocka_unit_test(grids_reach_the_last_key_and_dim),
      cmocka_unit_test(outputs_choose_the_steps),    cmocka_unit_test(empty_sizes),
      cmocka_unit_test(parameters_have_no_padding),  cmocka_unit_test(parameters_of_a_problem),
      cmocka_unit_test(rules_and_windows),           cmocka_unit_test(stages_have_the_same_numbers),
      cmocka_unit_test(parameters_at_smaller_sizes), cmocka_unit_test(parameters_of_a_fused_launch),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
