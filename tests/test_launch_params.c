/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel parameters and the bytes of kernel arguments. */
#include "test_launch.h"

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
                                  P(scores),
                                  P(bias),
                                  P(mask),
                                  P(blocks),
                                  P(k_scale),
                                  P(v_scale),
                                  P(lse),
                                  P(slopes),
                                  P(sink_head),
                                  P(sink_first),
                                  P(head_scale_head),
                                  P(head_scale_first),
                                  P(add_w_head),
                                  P(add_w_element),
                                  P(add_w_first),
                                  P(table_first),
                                  P(scale_first),
                                  P(softcap_first),
                                  P(window_left),
                                  P(window_right),
                                  P(chunk),
                                  P(work_first),
                                  P(hook_at),
                                  P(maxima_at),
                                  P(stats_at),
                                  P(partial_at),
                                  P(scores_at),
                                  P(offset),
                                  P(prefix),
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
#define V(name) MEMBER(clattn_hook_values, name)
  static const member values[] = {V(first), V(scalar)};
#undef V
#define H(name) MEMBER(clattn_hook_gather, name)
  static const member hook[] = {H(first), H(to), H(scalar)};
#undef H
#define R(name) MEMBER(clattn_rotation, name)
  static const member rotation[] = {
      R(batch), R(row), R(element), R(cos_first), R(sin_first), R(positions_q_first), R(positions_k_first),
      R(dim),   R(rows)};
#undef R
  check_members(params, LENGTH(params), sizeof(clattn_params));
  check_members(rotation, LENGTH(rotation), sizeof(clattn_rotation));
  check_members(gather, LENGTH(gather), sizeof(clattn_gather));
  check_members(entries, LENGTH(entries), sizeof(clattn_entries));
  check_members(values, LENGTH(values), sizeof(clattn_hook_values));
  check_members(hook, LENGTH(hook), sizeof(clattn_hook_gather));
  assert_int_equal(sizeof(clattn_view), 5 * 8);
  assert_int_equal(sizeof(clattn_row_view), 4 * 8);
  assert_int_equal(sizeof(clattn_head_view), 3 * 8);
  assert_int_equal(sizeof(clattn_round), 2 * 4);
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
  make_list(m, row_of(variant), UINT64_C(1) << 30, staged, staged, 0);
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

static void check_row_view(clattn_row_view view, int64_t batch, int64_t head, int64_t row, int64_t first) {
  assert_int_equal(view.batch, batch);
  assert_int_equal(view.head, head);
  assert_int_equal(view.row, row);
  assert_int_equal(view.first, first);
}

static clattn_head_view logits_of(const made *m, const clattni_bases *bases) {
  clattn_head_view view;
  clattni_launch_max_logit(&m->list, bases, &view);
  return view;
}

static void check_head_view(clattn_head_view view, int64_t batch, int64_t head, int64_t first) {
  assert_int_equal(view.batch, batch);
  assert_int_equal(view.head, head);
  assert_int_equal(view.first, first);
}

static void check_regions(const clattn_params *p, const clattni_layout *layout) {
  assert_int_equal(p->work_first, 7000);
  assert_int_equal(layout->entries, 0); /* what differs between batch entries comes first */
  assert_int_equal(CLATTN_REGION(p, p->hook_at), 7000 + layout->hook);
  assert_int_equal(CLATTN_REGION(p, p->maxima_at), 7000 + layout->maxima);
  assert_int_equal(CLATTN_REGION(p, p->stats_at), 7000 + layout->stats);
  assert_int_equal(CLATTN_REGION(p, p->partial_at), 7000 + layout->partial);
  assert_int_equal(CLATTN_REGION(p, p->scores_at), 7000 + layout->scores);
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
  check_row_view(p.lse, 30, 5, 1, 1000 + CLATTNI_LSE);
  check_view(p.bias, 2100, 350, 70, 1, 1000 + CLATTNI_BIAS);
  check_view(p.mask, 90, 15, 3, 1, 1000 + CLATTNI_KEEP_MASK);
  check_view(p.blocks, 18, 3, 1, 1, 1000 + CLATTNI_BLOCK_MASK); /* 3 rows of blocks, a word each */
  check_view(p.scores, 0, 0, 0, 0, 0);                          /* not used */
  check_head_view(logits_of(&m, &bases), 6, 1, 1000 + CLATTNI_MAX_LOGIT);
  check_head_view(p.slopes, 0, 1, 1000 + CLATTNI_ALIBI_SLOPES); /* the batch shares them */
  assert_int_equal(p.sink_head, 2);
  assert_int_equal(p.sink_first, 1000 + CLATTNI_SINK);
  assert_int_equal(p.offset, -5);
  assert_int_equal(p.prefix, 2);
  assert_int_equal(p.chunk, 16);
  check_regions(&p, &m.layout);
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
  for (uint32_t v = 0; made_up_general(v) != NULL; ++v)
    for (int scores = 0; scores < 2; ++scores) {
      made m;
      clattni_bases bases;
      char line[256];
      (void)snprintf(
          line, sizeof line,
          "b=3 hq=6 hkv=2 sq=5 sk=70 d=4 dv=3 q=packed o=packed lse=packed total_q=11 k=paged v=paged pages=9 "
          "max_pages=8 page_size=10 klen=per_batch out=o,lse,max_logit%s",
          scores ? ",scores" : "");
      const clattn_params p = params_of(line, made_up_general(v)->name, 1, &bases, &m);
      check_view(p.q, 0, 4, 24, 1, 1000 + CLATTNI_Q);
      check_view(p.o, 0, 3, 18, 1, 1000 + CLATTNI_O);
      check_row_view(p.lse, 0, 11, 1, 1000 + CLATTNI_LSE);
      check_view(p.k, 80, 4, 8, 1, 1000 + CLATTNI_K);
      check_view(p.v, 60, 3, 6, 1, 1000 + CLATTNI_V);
      check_regions(&p, &m.layout);
      assert_int_equal(p.table_first, 1000 + CLATTNI_PAGE_TABLE);
      assert_int_equal(p.page_size, 10);
      assert_int_equal(p.num_pages, 9);
      assert_int_equal(p.max_pages, 8);
      assert_int_equal(p.pack, m.choice.variant->fused ? 3 : 1);
      assert_int_equal(p.tiles_per_unit, scores ? ceil_div(5 * p.pack, p.rows) : 11 * p.pack / p.rows + 3);
      assert_int_equal(p.rules, CLATTN_RULE_ENTRIES | CLATTN_RULE_LSE | CLATTN_RULE_MAX_LOGIT | CLATTN_RULE_OUT |
                                    CLATTN_RULE_PACKED_Q | (scores ? 0 : CLATTN_RULE_SEARCH));
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
      {"k=packed v=packed total_k=3", 1, entries | CLATTN_RULE_PACKED_K, -1, none, none},
      {"q=packed o=packed total_q=3", 1, entries | CLATTN_RULE_SEARCH | CLATTN_RULE_PACKED_Q, -1, none, none},
      {"rope=half rope_dim=2", 0, out, -1, none, none},
      {"rope=interleaved rope_dim=2 positions=1", 0, out | CLATTN_RULE_POSITIONS, -1, none, none},
      {"positions=1", 0, out, -1, none, none}, /* does not count */
      {"off=4", 0, out, -1, none, none},
      {"off=4", 1, entries, -1, none, none},
      {"prefix=2", 0, out, -1, none, none},
      {"head_scale=f32", 0, CLATTN_RULE_HEAD_SCALE | out, -1, none, none},
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
    for (uint32_t v = 0; made_up_general(v) != NULL; ++v) {
      made m;
      clattni_bases bases;
      char line[160];
      (void)snprintf(line, sizeof line, "sq=3 sk=3 d=3 %s", rows[n].line);
      const clattn_params p = params_of(line, made_up_general(v)->name, rows[n].staged, &bases, &m);
      if (p.rules != rows[n].rules || p.stage != rows[n].stage || p.window_left != rows[n].left ||
          p.window_right != rows[n].right)
        fail_msg("%s: rules %d, stage %d, window %lld, %lld", line, p.rules, p.stage, (long long)p.window_left,
                 (long long)p.window_right);
    }
}

/* Each rule has a bit of its own. */
static void rules_have_bits_of_their_own(void **state) {
  (void)state;
  static const int bits[] = {CLATTN_RULE_CAUSAL,    CLATTN_RULE_BIAS,       CLATTN_RULE_MASK_U8,
                             CLATTN_RULE_MASK_BITS, CLATTN_RULE_ENTRIES,    CLATTN_RULE_LSE,
                             CLATTN_RULE_MAX_LOGIT, CLATTN_RULE_OUT,        CLATTN_RULE_BLOCK_MASK,
                             CLATTN_RULE_ALIBI,     CLATTN_RULE_SYMMETRIC,  CLATTN_RULE_SINK,
                             CLATTN_RULE_SCALE,     CLATTN_RULE_SOFTCAP,    CLATTN_RULE_INVARIANT,
                             CLATTN_RULE_SEARCH,    CLATTN_RULE_HEAD_SCALE, CLATTN_RULE_HOOK_SCALARS,
                             CLATTN_RULE_PACKED_Q,  CLATTN_RULE_PACKED_K,   CLATTN_RULE_POSITIONS};
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
  check_row_view(p.lse, 0, 0, 0, 0); /* not used */
  check_regions(&p, &m.layout);
  assert_int_equal(m.layout.maxima, 272); /* behind 33 * 8 words, padded */
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
  clattni_launch_list_make(&m.choice, &m.problem, &sizes, &layout, 0, 0, 0, &list);
  clattni_launch_params(&list, &bases, &p);
  check_view(p.q, 2 * 33 * 4, 33 * 4, 4, 1, 1000 + CLATTNI_Q);
  check_view(p.k, 2 * 130 * 4, 130 * 4, 4, 1, 1000 + CLATTNI_K);
  check_view(p.o, 2 * 90 * 4, 90 * 4, 4, 1, 1000 + CLATTNI_O);
  check_regions(&p, &layout); /* the workspace is the enqueue's own */
  assert_int_equal(p.batch, 2);
  assert_int_equal(p.q_len, 33);
  assert_int_equal(p.k_len, 65);
  assert_int_equal(p.tiles_per_unit, (33 + m.choice.rows - 1) / m.choice.rows);
  assert_int_equal(p.k_stored, 80);
}

/* Scales of quantised keys, w of the additive similarity, a factor per head, and where a hook's scalars stand. */
static void parameters_of_types_and_hooks(void **state) {
  (void)state;
  for (uint32_t v = 0; made_up_general(v) != NULL; ++v) {
    made m;
    clattni_bases bases;
    clattn_params p = params_of("b=2 hq=6 hkv=2 sq=5 sk=70 d=40 dv=70 q=f16 k=i4 v=i8:bshd o=bf16 sim=additive "
                                "head_scale=f32:strided:0,3,0,0 add_w=f32:strided:0,99,0,2 k_scale=f16 klen=per_batch",
                                made_up_general(v)->name, 1, &bases, &m);
    check_view(p.q, 1200, 200, 40, 1, 1000 + CLATTNI_Q);
    check_view(p.k, 5600, 2800, 40, 1, 1000 + CLATTNI_K); /* in elements, as everywhere */
    check_view(p.v, 9800, 70, 140, 1, 1000 + CLATTNI_V);
    check_view(p.k_scale, 280, 140, 2, 1, 1000 + CLATTNI_K_SCALE); /* one for 32 elements, and one for 8 */
    check_view(p.v_scale, 140, 70, 1, 1, 1000 + CLATTNI_V_SCALE);
    assert_int_equal(p.head_scale_head, 3);
    assert_int_equal(p.head_scale_first, 1000 + CLATTNI_HEAD_SCALE);
    assert_int_equal(p.add_w_head, 99);
    assert_int_equal(p.add_w_element, 2);
    assert_int_equal(p.add_w_first, 1000 + CLATTNI_ADD_W);
    assert_int_equal(p.rules, CLATTN_RULE_HEAD_SCALE | CLATTN_RULE_ENTRIES | CLATTN_RULE_OUT);

    m.problem.hook = &made_up_hook;
    for (int hooked = 0; hooked < 2; ++hooked) {
      make_list(&m, made_up_general(v), UINT64_C(1) << 30, 1, 1, hooked);
      clattni_launch_params(&m.list, &bases, &p);
      check_regions(&p, &m.layout);
      assert_int_equal(p.rules & CLATTN_RULE_HOOK_SCALARS, hooked ? CLATTN_RULE_HOOK_SCALARS : 0);
      /* behind the entries, of 2 * 8 words, and before all else */
      assert_int_equal(m.layout.hook, 16);
      assert_true(m.layout.maxima >= m.layout.hook + 4);
    }
  }
}

/* Scales are paged where their rows are, and an odd row of i4 ends on a byte. */
static void parameters_of_paged_quantised_keys(void **state) {
  (void)state;
  made m;
  clattni_bases bases;
  const clattn_params p = params_of("b=3 hq=6 hkv=2 sq=5 sk=70 d=33 dv=7 k=i4:paged v=i4:paged k_scale=f32:paged "
                                    "v_scale=f32:paged pages=9 max_pages=8 page_size=10 klen=per_batch",
                                    "three-step", 1, &bases, &m);
  check_view(p.k, 10 * 2 * 34, 34, 2 * 34, 1, 1000 + CLATTNI_K);
  check_view(p.v, 10 * 2 * 8, 8, 2 * 8, 1, 1000 + CLATTNI_V);
  check_view(p.k_scale, 10 * 2 * 2, 2, 2 * 2, 1, 1000 + CLATTNI_K_SCALE);
  check_view(p.v_scale, 10 * 2, 1, 2, 1, 1000 + CLATTNI_V_SCALE);
}

/* Tables and positions of rotary embedding; those of packed rows are looked up by row. */
static void parameters_of_rotation(void **state) {
  (void)state;
  static const struct {
    const char *line; /* behind "b=3 hq=6 hkv=2 sq=5 sk=70 d=40" */
    int64_t batch, row, element;
    int dim, rows, positions;
  } cases[] = {
      {"rope=half", 0, 20, 1, 40, 70, 0},
      {"rope=interleaved rope_dim=32 rope_positions=100 positions=1", 0, 16, 1, 32, 100, 1},
      {"rope=half rope_dim=2 rope_cos=strided:900,0,7,3 rope_sin=strided:900,0,7,3", 900, 7, 3, 2, 70, 0},
      {"rope=half rope_cos=bshd rope_sin=bhsd_exact", 0, 20, 1, 40, 70, 0},
      {"", 0, 0, 0, 0, 0, 0},
  };
  for (size_t n = 0; n < LENGTH(cases); ++n)
    for (uint32_t v = 0; made_up_general(v) != NULL; ++v) {
      made m;
      clattni_bases bases;
      clattn_rotation r;
      char line[192], option[32];
      (void)snprintf(line, sizeof line, "b=3 hq=6 hkv=2 sq=5 sk=70 d=40 %s", cases[n].line);
      const clattn_params p = params_of(line, made_up_general(v)->name, 0, &bases, &m);
      clattni_launch_rope(&m.list, &bases, &r);
      assert_int_equal(r.batch, cases[n].batch);
      assert_int_equal(r.row, cases[n].row);
      assert_int_equal(r.element, cases[n].element);
      assert_int_equal(r.dim, cases[n].dim);
      assert_int_equal(r.rows, cases[n].rows);
      assert_int_equal(r.cos_first, cases[n].dim > 0 ? 1000 + CLATTNI_ROPE_COS : 0);
      assert_int_equal(r.sin_first, cases[n].dim > 0 ? 1000 + CLATTNI_ROPE_SIN : 0);
      assert_int_equal((p.rules & CLATTN_RULE_POSITIONS) != 0, cases[n].positions);
      if (cases[n].positions) {
        assert_int_equal(r.positions_q_first, 1000 + CLATTNI_POSITIONS_Q);
        assert_int_equal(r.positions_k_first, 1000 + CLATTNI_POSITIONS_K);
      }
      (void)snprintf(option, sizeof option, "-DCLATTN_ROPE=%d", m.problem.rope);
      assert_int_equal(strstr(m.choice.options, option) != NULL, cases[n].dim > 0);
      assert_int_equal(strstr(m.choice.options, "ROPE") != NULL, cases[n].dim > 0);
    }
}

/* Bytes of a kernel's arguments, as OpenCL counts them: values and handles of 8 bytes. */
static size_t argument_bytes(const clattn_problem *problem, const clattni_kernel *kernel) {
  size_t bytes = 0;
  for (int i = 0; i < CLATTNI_MAX_KERNEL_ARGS && kernel->args[i] != CLATTNI_ARG_END; ++i) {
    const int kind = kernel->args[i];
    if (clattni_arg_present(problem, kind))
      bytes += kind == CLATTNI_ARG_PARAMS        ? sizeof(clattn_params)
               : kind == CLATTNI_ARG_ROUND       ? sizeof(clattn_round)
               : kind == CLATTNI_ARG_CHUNK       ? sizeof(clattn_entries)
               : kind == CLATTNI_ARG_GATHER      ? sizeof(clattn_gather)
               : kind == CLATTNI_ARG_HOOK        ? sizeof(clattn_hook_values)
               : kind == CLATTNI_ARG_HOOK_GATHER ? sizeof(clattn_hook_gather)
               : kind == CLATTNI_ARG_ROPE        ? sizeof(clattn_rotation)
               : kind == CLATTNI_ARG_TO_LOGITS   ? sizeof(clattn_head_view)
                                                 : 8;
  }
  return bytes;
}

/* Every full profile takes 1024 bytes of arguments: no problem may need more.  Which arguments there are follows from
 * k, v, the similarity, rope, the outputs and the hook alone; selection asks for exactly so many. */
static void arguments_fit_everywhere(void **state) {
  (void)state;
  static const char *const types[] = {"f32", "bf16", "i8", "i4"}, *const similarities[] = {"dot", "cosine", "additive"};
  size_t largest = 0;
  for (size_t n = 0; n < 4 * 4 * 3 * 2 * 2 * 2; ++n)
    for (uint32_t v = 0; made_up_general(v) != NULL; ++v) {
      const clattni_variant *variant = made_up_general(v);
      clattn_device_info device = made_up_device(CL_DEVICE_TYPE_GPU);
      clattni_request request;
      clattni_choice choice;
      clattn_problem problem;
      char line[256];
      size_t bytes = 0;
      (void)snprintf(line, sizeof line, "b=2 hq=6 hkv=2 sq=5 sk=70 d=40 k=%s v=%s sim=%s klen=per_batch%s%s",
                     types[n % 4], types[n / 4 % 4], similarities[n / 16 % 3], n / 192 ? " rope=half positions=1" : "",
                     n / 48 % 2 ? " out=o,lse,scores,max_logit bias=f32 mask=u8 sink=f32 head_scale=f32" : "");
      if (clattn_problem_parse(line, &problem, NULL) != CLATTN_SUCCESS)
        fail_msg("%s", line);
      problem.hook = n / 96 % 2 ? &made_up_hook : NULL;
      assert_int_equal(clattn_problem_check(&problem, NULL), CLATTN_SUCCESS);
      clattni_problem_resolve(&problem, &problem);
      for (int entry = 0; entry < CLATTNI_ENTRIES; ++entry) {
        const size_t of_kernel = argument_bytes(&problem, &variant->kernels[entry]);
        bytes = of_kernel > bytes ? of_kernel : bytes;
      }
      if (bytes > 1024)
        fail_msg("%s takes %zu bytes of arguments: %s%s", variant->name, bytes, line, problem.hook ? ", a hook" : "");
      largest = bytes > largest ? bytes : largest;
      memset(&request, 0, sizeof request);
      request.problem = &problem;
      request.device = &device;
      request.variant = variant->name;
      for (size_t less = 0; less < 2; ++less) {
        device.max_parameter_bytes = (uint32_t)(bytes - less);
        assert_int_equal(clattni_select(&request, &choice, NULL), less ? CLATTN_ERROR_VARIANT_UNFIT : CLATTN_SUCCESS);
      }
    }
  assert_true(largest > 1000); /* the draw met the worst, which leaves next to nothing */
}

/* Arguments that a program may lack, and no others. */
static void arguments_are_there_when_needed(void **state) {
  (void)state;
  clattn_problem problem;
  static const struct {
    const char *line;
    int hook, k_scale, v_scale, add_w, rope;
  } rows[] = {
      {"sq=3 sk=3 d=3", 0, 0, 0, 0, 0},
      {"sq=3 sk=3 d=3", 1, 0, 0, 0, 0},
      {"sq=3 sk=3 d=3 q=f16 k=bf16 v=f16 sim=cosine", 0, 0, 0, 0, 0},
      {"sq=3 sk=3 d=3 k=i8", 0, 1, 0, 0, 0},
      {"sq=3 sk=3 d=3 v=i4", 1, 0, 1, 0, 0},
      {"sq=3 sk=3 d=3 k=i4 v=i8 sim=additive", 1, 1, 1, 1, 0},
      {"sq=3 sk=3 d=3 k=i4 v=i8 sim=additive out=lse", 0, 1, 0, 1, 0}, /* without o nothing of v counts */
      {"sq=3 sk=3 d=4 rope=half", 0, 0, 0, 0, 1},
      {"sq=3 sk=3 d=4 rope=interleaved positions=1", 1, 0, 0, 0, 1},
      {"sq=3 sk=3 d=4 k=i8 sim=additive rope=half", 0, 1, 0, 1, 1},
  };
  for (size_t n = 0; n < LENGTH(rows); ++n) {
    assert_int_equal(clattn_problem_parse(rows[n].line, &problem, NULL), CLATTN_SUCCESS);
    problem.hook = rows[n].hook ? &made_up_hook : NULL;
    clattni_problem_resolve(&problem, &problem);
    for (int kind = CLATTNI_ARG_PARAMS; kind < CLATTNI_ARG_SLOT + CLATTNI_SLOTS; ++kind) {
      const int of_hook =
          kind == CLATTNI_ARG_HOOK || (kind >= CLATTNI_ARG_HOOK_BUFFER && kind < CLATTNI_ARG_HOOK_BUFFER + 4);
      const int of_rope = kind == CLATTNI_ARG_ROPE || (kind >= CLATTNI_ARG_SLOT + CLATTNI_ROPE_COS &&
                                                       kind <= CLATTNI_ARG_SLOT + CLATTNI_POSITIONS_K);
      const int want = kind == CLATTNI_ARG_SLOT + CLATTNI_K_SCALE   ? rows[n].k_scale
                       : kind == CLATTNI_ARG_SLOT + CLATTNI_V_SCALE ? rows[n].v_scale
                       : kind == CLATTNI_ARG_SLOT + CLATTNI_ADD_W   ? rows[n].add_w
                       : of_hook                                    ? rows[n].hook
                       : of_rope                                    ? rows[n].rope
                                                                    : 1;
      /* gather_hook is in every program, though only those with a hook launch it */
      if ((kind < CLATTNI_ARG_HOOK_SCALAR || kind >= CLATTNI_ARG_SLOT) && clattni_arg_present(&problem, kind) != want)
        fail_msg("%s, hook %d: argument %d is %sthere", rows[n].line, rows[n].hook, kind, want ? "not " : "");
    }
  }
}

int test_launch_params(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(parameters_have_no_padding),
      cmocka_unit_test(parameters_of_a_problem),
      cmocka_unit_test(parameters_of_packed_and_paged),
      cmocka_unit_test(scalars_and_limits),
      cmocka_unit_test(rules_and_windows),
      cmocka_unit_test(rules_have_bits_of_their_own),
      cmocka_unit_test(parameters_of_a_fused_launch),
      cmocka_unit_test(stages_have_the_same_numbers),
      cmocka_unit_test(parameters_at_smaller_sizes),
      cmocka_unit_test(parameters_of_types_and_hooks),
      cmocka_unit_test(parameters_of_paged_quantised_keys),
      cmocka_unit_test(parameters_of_rotation),
      cmocka_unit_test(arguments_fit_everywhere),
      cmocka_unit_test(arguments_are_there_when_needed),
  };
  return cmocka_run_group_tests_name("kernel parameters", tests, NULL, NULL);
}
