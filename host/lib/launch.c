/* SPDX-License-Identifier: Apache-2.0 */
#include "launch.h"

#include <string.h>

void clattni_launch_list_make(const clattni_choice *choice, const clattn_problem *resolved, const clattni_sizes *sizes,
                              const clattni_layout *layout, int staged, int gathered, int hooked,
                              clattni_launch_list *list) {
  memset(list, 0, sizeof(*list));
  list->choice = choice;
  list->problem = resolved;
  list->sizes = *sizes;
  list->layout = *layout;

  list->staged = staged;
  const int64_t hook = list->problem->hook != NULL && layout->total_tiles > 0;
  list->gathered = staged && gathered && layout->staging > 0;
  list->hooked = hooked && hook;
  list->staging = (staged ? layout->staging + list->gathered : 0) + list->hooked;
  list->count = layout->launches - layout->staging - (layout->staging > 0) - hook + list->staging;
}

static size_t groups(int64_t items, int64_t per_group) {
  return (size_t)((items + per_group - 1) / per_group);
}

/* Grid of one step over the tiles of a round. */
static void place(const clattni_launch_list *list, clattni_launch *launch) {
  if (launch->entry == CLATTNI_ROW_MAXIMUM) {
    launch->global[0] = (size_t)launch->round.tiles * (size_t)list->choice->rows;
    return;
  }
  const clattni_choice *choice = list->choice;
  const size_t tiles = (size_t)launch->round.tiles;
  const size_t gx = (size_t)choice->gx, gy = (size_t)choice->gy;
  const int values = (list->problem->outputs & CLATTN_OUT_O) != 0;
  const int64_t k_len = list->sizes.k_len > 0 ? list->sizes.k_len : 1; /* no grid is empty */
  const size_t chunks = launch->entry == CLATTNI_SCORE          ? (size_t)list->layout.key_chunks
                        : launch->entry == CLATTNI_FLASH_PARTS  ? 1
                        : choice->parts > 1                     ? (size_t)choice->parts
                        : launch->entry == CLATTNI_FLASH_SCORES ? groups(k_len, choice->keys_per_chunk)
                        : values                                ? groups(list->problem->v_dim, choice->dim_chunk)
                                                                : 1;
  launch->dims = 2;
  if (choice->variant->shape == CLATTNI_SHAPE_LANES) {
    launch->global[0] = tiles;
    launch->global[1] = launch->entry == CLATTNI_SOFTMAX ? 1 : chunks;
    launch->local[0] = launch->local[1] = 1;
  } else if (launch->entry == CLATTNI_SOFTMAX) { /* a work-group per row */
    launch->global[0] = launch->local[0] = gx * gy;
    launch->global[1] = tiles * (size_t)choice->rows;
    launch->local[1] = 1;
  } else {
    launch->global[0] = chunks * gx;
    launch->global[1] = tiles * gy;
    launch->local[0] = gx;
    launch->local[1] = gy;
  }
}

void clattni_launch_at(const clattni_launch_list *list, int64_t index, clattni_launch *launch) {
  const int64_t rounds = list->layout.rounds * list->layout.steps_per_round;
  memset(launch, 0, sizeof(*launch));
  /* Every step reads what the one before wrote, and rounds share one workspace: the list is a chain. */
  launch->depends_on = index - 1;
  launch->dims = 1;
  launch->local[0] = 1;
  if (list->hooked && index == list->staging - 1) {
    launch->entry = CLATTNI_GATHER_HOOK;
    launch->global[0] = 4;
  } else if (list->gathered && index == list->staging - 1 - list->hooked) {
    launch->entry = CLATTNI_GATHER_ENTRIES;
    launch->global[0] = (size_t)list->sizes.batch;
  } else if (index < list->staging) {
    launch->entry = CLATTNI_STAGE_ENTRIES;
    launch->first_entry = index * CLATTN_ENTRIES_PER_LAUNCH;
    const int64_t left = list->sizes.batch - launch->first_entry;
    launch->count = (int32_t)(left < CLATTN_ENTRIES_PER_LAUNCH ? left : CLATTN_ENTRIES_PER_LAUNCH);
    launch->global[0] = (size_t)launch->count * CLATTN_ENTRY_WORDS;
  } else if (index < list->staging + rounds) {
    const int64_t round = (index - list->staging) / list->layout.steps_per_round;
    const int64_t first = round * list->layout.tiles_per_round, left = list->layout.total_tiles - first;
    launch->entry = list->layout.steps[(index - list->staging) % list->layout.steps_per_round];
    launch->round.first_tile = (cl_int)first;
    launch->round.tiles = (cl_int)(left < list->layout.tiles_per_round ? left : list->layout.tiles_per_round);
    place(list, launch);
  } else {
    launch->entry = CLATTNI_MAX_LOGIT_STEP;
    launch->global[0] = (size_t)(list->sizes.batch * list->problem->q_heads);
  }
}

static void view(const clattni_launch_list *list, const clattni_bases *bases, clattni_slot slot, clattn_view *out) {
  int64_t stride[4];
  memset(out, 0, sizeof(*out));
  if (!clattni_slot_used(list->problem, slot))
    return;
  clattni_slot_strides(list->problem, &list->sizes, slot, stride);
  out->batch = stride[0];
  out->head = stride[1];
  out->row = stride[2];
  out->element = stride[3];
  out->first = bases->first[slot];
}

static clattn_head_view head_view(const clattni_launch_list *list, const clattni_bases *bases, clattni_slot slot) {
  clattn_view whole;
  view(list, bases, slot, &whole);
  const clattn_head_view heads = {whole.batch, whole.head, whole.first};
  return heads;
}

/* Where kernels find a region of the workspace; selection leaves none that is too far. */
static cl_uint region(int64_t words) {
  return (cl_uint)(words / CLATTN_REGION_WORDS);
}

static cl_int cut_to_int(int64_t value) {
  return value < INT32_MAX ? (cl_int)value : INT32_MAX;
}

/* The bits that follow from the problem; how an enqueue brings its arrays and scalars adds others. */
static cl_int rules_of(const clattn_problem *problem) {
  const struct {
    int holds;
    cl_int bit;
  } rules[] = {
      {problem->causal != 0, CLATTN_RULE_CAUSAL},
      {problem->use_bias != 0, CLATTN_RULE_BIAS},
      {problem->keep_mask_kind == CLATTN_MASK_U8, CLATTN_RULE_MASK_U8},
      {problem->keep_mask_kind == CLATTN_MASK_BITS, CLATTN_RULE_MASK_BITS},
      {problem->block_mask_kind != CLATTN_MASK_NONE, CLATTN_RULE_BLOCK_MASK},
      {problem->alibi != CLATTN_ALIBI_NONE, CLATTN_RULE_ALIBI},
      {problem->alibi == CLATTN_ALIBI_SYMMETRIC, CLATTN_RULE_SYMMETRIC},
      {problem->use_sink != 0, CLATTN_RULE_SINK},
      {problem->use_head_scale != 0, CLATTN_RULE_HEAD_SCALE},
      {(problem->flags & CLATTN_BATCH_INVARIANT) != 0, CLATTN_RULE_INVARIANT},
      {clattni_packed_q(problem), CLATTN_RULE_PACKED_Q},
      {clattni_packed_k(problem), CLATTN_RULE_PACKED_K},
      {clattni_slot_used(problem, CLATTNI_POSITIONS_Q), CLATTN_RULE_POSITIONS},
      {(problem->outputs & CLATTN_OUT_O) != 0, CLATTN_RULE_OUT},
      {(problem->outputs & CLATTN_OUT_LSE) != 0, CLATTN_RULE_LSE},
      {(problem->outputs & CLATTN_OUT_MAX_LOGIT) != 0, CLATTN_RULE_MAX_LOGIT},
  };
  cl_int bits = 0;
  for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); ++i)
    bits |= rules[i].holds ? rules[i].bit : 0;
  return bits;
}

void clattni_launch_params(const clattni_launch_list *list, const clattni_bases *bases, clattn_params *params) {
  const clattn_problem *problem = list->problem;
  const clattni_sizes *sizes = &list->sizes;
  memset(params, 0, sizeof(*params));
  view(list, bases, CLATTNI_Q, &params->q);
  view(list, bases, CLATTNI_K, &params->k);
  view(list, bases, CLATTNI_V, &params->v);
  view(list, bases, CLATTNI_O, &params->o);
  view(list, bases, CLATTNI_SCORES, &params->scores);
  view(list, bases, CLATTNI_BIAS, &params->bias);
  view(list, bases, CLATTNI_KEEP_MASK, &params->mask);
  view(list, bases, CLATTNI_BLOCK_MASK, &params->blocks);
  view(list, bases, CLATTNI_K_SCALE, &params->k_scale);
  view(list, bases, CLATTNI_V_SCALE, &params->v_scale);
  clattn_view whole;
  view(list, bases, CLATTNI_LSE, &whole);
  params->lse = (clattn_row_view){whole.batch, whole.head, whole.row, whole.first};
  view(list, bases, CLATTNI_ADD_W, &whole);
  params->add_w_head = whole.head;
  params->add_w_element = whole.element;
  params->add_w_first = whole.first;
  view(list, bases, CLATTNI_HEAD_SCALE, &whole);
  params->head_scale_head = whole.head;
  params->head_scale_first = whole.first;
  view(list, bases, CLATTNI_SINK, &whole);
  params->sink_head = whole.head;
  params->sink_first = whole.first;
  params->slopes = head_view(list, bases, CLATTNI_ALIBI_SLOPES);
  params->table_first = bases->first[CLATTNI_PAGE_TABLE];
  params->scale_first = bases->scale_first;
  params->softcap_first = bases->softcap_first;

  params->offset = (cl_int)bases->offset;
  params->prefix = (cl_int)bases->prefix;
  params->window_left = params->window_right = CLATTN_UNLIMITED;
  if ((problem->window & CLATTN_WINDOW_LEFT) && problem->window_left < CLATTN_UNLIMITED)
    params->window_left = problem->window_left;
  if ((problem->window & CLATTN_WINDOW_RIGHT) && problem->window_right < CLATTN_UNLIMITED)
    params->window_right = problem->window_right;
  /* a chunk wider than all positions that there are, from -2^32 to 2^32, parts them at 0 alone */
  params->chunk = problem->chunk < CLATTN_UNLIMITED ? problem->chunk : CLATTN_UNLIMITED;

  params->work_first = bases->workspace;
  params->hook_at = region(list->layout.hook);
  params->maxima_at = region(list->layout.maxima);
  params->stats_at = region(list->layout.stats);
  params->partial_at = region(list->layout.partial);
  params->scores_at = region(list->layout.scores);

  params->batch = (cl_int)sizes->batch;
  params->q_heads = (cl_int)problem->q_heads;
  params->group = (cl_int)(problem->q_heads / problem->kv_heads);
  params->pack = list->choice->pack;
  params->q_len = (cl_int)sizes->q_len;
  params->k_len = (cl_int)sizes->k_len;
  params->qk_dim = (cl_int)problem->qk_dim;
  params->v_dim = (cl_int)problem->v_dim;
  params->rows = list->choice->rows;
  params->tiles_per_unit = (cl_int)list->layout.tiles_per_unit;
  params->key_chunks = (cl_int)list->layout.key_chunks;
  params->k_stored = (cl_int)list->layout.k_stored;
  params->page_size = clattni_paged(problem) ? (cl_int)problem->page_size : 0;
  params->num_pages = (cl_int)problem->num_pages;
  params->max_pages = (cl_int)problem->max_pages;
  params->block_q = cut_to_int(problem->block_q);
  params->block_k = cut_to_int(problem->block_k);
  params->scale = bases->scale;
  params->softcap = bases->softcap;
  params->stage = (problem->outputs & CLATTN_OUT_SCORES) ? problem->stage : CLATTN_SCORES_NONE;
  params->rules = rules_of(problem) | (list->staged ? CLATTN_RULE_ENTRIES : 0) |
                  (list->layout.search ? CLATTN_RULE_SEARCH : 0) | (bases->scale_buffer ? CLATTN_RULE_SCALE : 0) |
                  (bases->softcap_buffer ? CLATTN_RULE_SOFTCAP : 0) | (list->hooked ? CLATTN_RULE_HOOK_SCALARS : 0);
}

void clattni_launch_rope(const clattni_launch_list *list, const clattni_bases *bases, clattn_rotation *rope) {
  const clattn_problem *problem = list->problem;
  clattn_view whole;
  memset(rope, 0, sizeof(*rope));
  if (problem->rope == CLATTN_ROPE_NONE)
    return;
  view(list, bases, CLATTNI_ROPE_COS, &whole); /* the other table lies alike */
  rope->batch = whole.batch;
  rope->row = whole.row;
  rope->element = whole.element;
  rope->cos_first = whole.first;
  rope->sin_first = bases->first[CLATTNI_ROPE_SIN];
  rope->positions_q_first = bases->first[CLATTNI_POSITIONS_Q];
  rope->positions_k_first = bases->first[CLATTNI_POSITIONS_K];
  rope->dim = (cl_int)problem->rope_dim;
  rope->rows = (cl_int)problem->rope_positions;
}

void clattni_launch_max_logit(const clattni_launch_list *list, const clattni_bases *bases, clattn_head_view *out) {
  *out = head_view(list, bases, CLATTNI_MAX_LOGIT);
}
