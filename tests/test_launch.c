/* SPDX-License-Identifier: Apache-2.0 */
/* Launch lists and, in test_launch_params.c, kernel parameters, with no device. */
#include "test_launch.h"

const clattni_variant *row_of(const char *name) {
  for (uint32_t n = 0; clattni_variant_at(n) != NULL; ++n)
    if (strcmp(clattni_variant_at(n)->name, name) == 0)
      return clattni_variant_at(n);
  fail_msg("no variant is called %s", name);
  return NULL;
}

void make_list(made *m, const clattni_variant *variant, uint64_t budget, int staged, int gathered, int hooked) {
  assert_true(made_up_choice(&m->problem, variant, 0, &m->choice));
  if (!clattni_layout_make(&m->choice, &m->problem, &m->sizes, budget, &m->layout))
    assert_true(clattni_layout_make(&m->choice, &m->problem, &m->sizes, m->layout.bytes, &m->layout));
  clattni_launch_list_make(&m->choice, &m->problem, &m->sizes, &m->layout, staged, gathered, hooked, &m->list);
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

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

/* ---- what a launch's grid reaches ------------------------------------------------------------------------------ */

void check_groups(const clattni_launch *launch, int64_t x, int64_t y) {
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

static void check_list(const made *m, int staged, int gathered, int hooked) {
  const int64_t rows = count_rows(m);
  unsigned char *visits[CLATTNI_ENTRIES] = {NULL};
  int64_t maxima = 0, batch_staged = 0, batch_gathered = 0, hooks = 0, at_round = -1;
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
    case CLATTNI_GATHER_HOOK: /* a scalar each, before the rounds */
      assert_true(before < CLATTNI_GATHER_HOOK);
      assert_int_equal(launch.dims, 1);
      assert_int_equal(launch.local[0], 1);
      assert_int_equal(launch.global[0], 4);
      ++hooks;
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
  /* what a hook is given no step but those of tiles asks for */
  assert_int_equal(hooks, hooked && m->problem.hook != NULL && m->layout.total_tiles > 0);
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
  size_t rounds = 0, searched = 0, shared = 0, gathers = 0, hooks = 0;
  for (uint32_t n = 0; n < 2250; ++n) {
    made m;
    m.problem = made_up_problem(400);
    m.sizes = made_up_sizes(&m.problem);
    const int uses = clattni_uses_entries(&m.problem);
    const int staged = uses && (is_packed(&m.problem) || made_up_number(0, 1)), gathered = (int)made_up_number(0, 1);
    const int hooked = (int)made_up_number(0, 1);
    make_list(&m, made_up_variant(n), (uint64_t)made_up_size(0, 3000000), staged, gathered, hooked);
    if (m.layout.search)
      draw_starts(&m);
    check_list(&m, staged, gathered, hooked);
    rounds += m.layout.rounds > 1;
    searched += m.layout.search && m.layout.total_tiles > 1;
    shared += m.choice.pack > 1 && m.layout.total_tiles > 1;
    gathers += (size_t)m.list.gathered;
    assert_int_equal(m.list.gathered, staged && gathered && m.layout.staging > 0);
    hooks += (size_t)m.list.hooked;
    const int hook = m.problem.hook != NULL && m.layout.total_tiles > 0;
    assert_int_equal(m.list.hooked, hooked && hook);
    const int64_t fewer = staged ? (m.layout.staging > 0) - m.list.gathered : m.layout.staging + (m.layout.staging > 0);
    assert_int_equal(m.list.count, m.layout.launches - fewer - hook + m.list.hooked);
  }
  assert_true(rounds > 100 && searched > 100 && shared > 30 && gathers > 100 && hooks > 100);
}

/* Every chunk of keys and of value elements, at the edges of chunks. */
static void grids_reach_the_last_key_and_dim(void **state) {
  (void)state;
  static const int64_t edges[] = {1,   31,  32,  33,  63,   64,   65,   127,  128,
                                  129, 255, 256, 257, 1023, 1024, 1025, 2048, 2049};
  for (size_t n = 0; n < LENGTH(edges); ++n)
    for (uint32_t v = 0; made_up_general(v) != NULL; ++v) {
      const clattni_variant *variant = made_up_general(v);
      made m;
      int64_t keys = 0, dims = 0;
      clattn_problem_init(&m.problem);
      m.problem.q_len = 30;
      m.problem.k_len = m.problem.v_dim = edges[n];
      m.problem.qk_dim = 4;
      m.problem.outputs = CLATTN_OUT_O | CLATTN_OUT_SCORES;
      clattni_problem_resolve(&m.problem, &m.problem);
      m.sizes = clattni_bounds(&m.problem);
      make_list(&m, variant, UINT64_C(1) << 30, 0, 0, 0);
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

/* The list as letters: l entries, a arrays on the device, h a hook's scalars there, s scores, t maxima of rows, x
 * softmax, w weighted sum, f all of them in one, g scores by a kernel of their own, p parts of keys put together, m maxima of heads.  The fused
 * variants' lists follow from the other ones'. */
static void expect_list(const char *line, const clattni_sizes *sizes, const char *three_steps,
                        const clattni_variant *variant, int gathered, int hooked) {
  static const char names[CLATTNI_ENTRIES + 1] = "lahstxwfgpm";
  made m;
  char got[64] = "", letters[64] = "";
  clattn_error error;
  clattn_error_init(&error);
  if (clattn_problem_parse(line, &m.problem, &error) != CLATTN_SUCCESS ||
      clattn_problem_check(&m.problem, &error) != CLATTN_SUCCESS)
    fail_msg("%s: %s", line, error.message);
  m.problem.hook = hooked ? &made_up_hook : NULL;
  clattni_problem_resolve(&m.problem, &m.problem);
  m.sizes = *sizes;
  size_t length = 0;
  for (const char *c = three_steps; *c != '\0'; ++c) {
    const int apart = (m.problem.outputs & CLATTN_OUT_SCORES) && variant->kernels[CLATTNI_FLASH_SCORES].name != NULL;
    if (hooked && *c == 's')
      letters[length++] = 'h';
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
  make_list(&m, variant, UINT64_C(1) << 30, staged, gathered, hooked);
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
  check_list(&m, staged, gathered, hooked);
}

static void expect_steps(const char *line, int64_t batch, int64_t q_len, int64_t k_len, const char *three_steps) {
  const clattni_sizes sizes = {batch, q_len, k_len, 0, 0};
  for (uint32_t v = 0; made_up_general(v) != NULL; ++v)
    for (int which = 0; which < 4; ++which)
      expect_list(line, &sizes, three_steps, made_up_general(v), which & 1, which >> 1);
}

static void expect_packed_steps(const char *line, int64_t batch, int64_t total_q, const char *three_steps) {
  const clattni_sizes sizes = {batch, 5, 7, total_q, 0};
  for (uint32_t v = 0; made_up_general(v) != NULL; ++v)
    for (int which = 0; which < 4; ++which)
      expect_list(line, &sizes, three_steps, made_up_general(v), which & 1, which >> 1);
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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_row_once_per_step),
      cmocka_unit_test(grids_reach_the_last_key_and_dim),
      cmocka_unit_test(outputs_choose_the_steps),
      cmocka_unit_test(empty_sizes),
  };
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  return failed + test_launch_params();
}
