/* SPDX-License-Identifier: Apache-2.0 */
#include "launch.h"

#include <string.h>

void clattni_launch_list_make(const clattni_choice *choice, const clattn_problem *resolved, const clattni_sizes *sizes,
                              const clattni_layout *layout, int staged, clattni_launch_list *list) {
  memset(list, 0, sizeof(*list));
  list->choice = choice;
  list->problem = resolved;
  list->sizes = *sizes;
  list->layout = *layout;

  list->staged = staged;
  list->staging = staged ? layout->staging : 0;
  list->count = layout->launches - layout->staging + list->staging;
}

static size_t groups(int64_t items, int64_t per_group) {
  return (size_t)((items + per_group - 1) / per_group);
}

/* Grid of one step over the tiles of a round. */
static void place(const clattni_launch_list *list, clattni_launch *launch) {
  if (launch->entry == CLATTNI_TILE_MAXIMUM) {
    launch->global[0] = (size_t)launch->round.tiles;
    return;
  }
  const clattni_choice *choice = list->choice;
  const size_t tiles = (size_t)launch->round.tiles;
  const size_t gx = (size_t)choice->gx, gy = (size_t)choice->gy;
  const int values = (list->problem->outputs & CLATTN_OUT_O) != 0;
  const int64_t k_len = list->sizes.k_len > 0 ? list->sizes.k_len : 1; /* no grid is empty */
  const size_t chunks = launch->entry == CLATTNI_SCORE          ? (size_t)list->layout.key_chunks
                        : launch->entry == CLATTNI_FLASH_SCORES ? groups(k_len, choice->keys_per_chunk)
                        : values                                ? groups(list->problem->v_dim, choice->dim_chunk)
                                                                : 1;
  launch->dims = 2;
  if (choice->variant->shape == CLATTNI_SHAPE_LANES) {
    launch->global[0] = tiles;
    launch->global[1] = launch->entry == CLATTNI_SOFTMAX || launch->entry == CLATTNI_FLASH ? 1 : chunks;
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
  if (index < list->staging) {
    launch->entry = CLATTNI_STAGE_LENGTHS;
    launch->first_entry = index * CLATTN_LENGTHS_PER_LAUNCH;
    const int64_t left = list->sizes.batch - launch->first_entry;
    launch->count = (int32_t)(left < CLATTN_LENGTHS_PER_LAUNCH ? left : CLATTN_LENGTHS_PER_LAUNCH);
    launch->global[0] = (size_t)launch->count * 3;
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

void clattni_launch_params(const clattni_launch_list *list, const clattni_bases *bases, clattn_params *params) {
  const clattn_problem *problem = list->problem;
  memset(params, 0, sizeof(*params));
  view(list, bases, CLATTNI_Q, &params->q);
  view(list, bases, CLATTNI_K, &params->k);
  view(list, bases, CLATTNI_V, &params->v);
  view(list, bases, CLATTNI_O, &params->o);
  view(list, bases, CLATTNI_LSE, &params->lse);
  view(list, bases, CLATTNI_SCORES, &params->scores);
  view(list, bases, CLATTNI_MAX_LOGIT, &params->max_logit);
  view(list, bases, CLATTNI_BIAS, &params->bias);
  view(list, bases, CLATTNI_KEEP_MASK, &params->mask);

  params->offset = bases->offset;
  params->window_left = params->window_right = CLATTN_UNLIMITED;
  if ((problem->window & CLATTN_WINDOW_LEFT) && problem->window_left < CLATTN_UNLIMITED)
    params->window_left = problem->window_left;
  if ((problem->window & CLATTN_WINDOW_RIGHT) && problem->window_right < CLATTN_UNLIMITED)
    params->window_right = problem->window_right;

  params->lengths_first = bases->workspace + list->layout.lengths;
  params->maxima_first = bases->workspace + list->layout.maxima;
  params->stats_first = bases->workspace + list->layout.stats;
  params->partial_first = bases->workspace + list->layout.partial;
  params->scores_first = bases->workspace + list->layout.scores;

  params->batch = (cl_int)list->sizes.batch;
  params->q_heads = (cl_int)problem->q_heads;
  params->group = (cl_int)(problem->q_heads / problem->kv_heads);
  params->q_len = (cl_int)list->sizes.q_len;
  params->k_len = (cl_int)list->sizes.k_len;
  params->qk_dim = (cl_int)problem->qk_dim;
  params->v_dim = (cl_int)problem->v_dim;
  params->tiles_per_head = (cl_int)list->layout.tiles_per_head;
  params->key_chunks = (cl_int)list->layout.key_chunks;
  params->keys_per_chunk = (cl_int)list->choice->keys_per_chunk;
  params->k_stored = (cl_int)list->layout.k_stored;
  params->scale = bases->scale;
  params->softcap = bases->softcap;
  params->stage = (problem->outputs & CLATTN_OUT_SCORES) ? problem->stage : CLATTN_SCORES_NONE;
  params->rules = (problem->causal ? CLATTN_RULE_CAUSAL : 0) | (problem->use_bias ? CLATTN_RULE_BIAS : 0) |
                  (problem->keep_mask_kind == CLATTN_MASK_U8 ? CLATTN_RULE_MASK_U8 : 0) |
                  (problem->keep_mask_kind == CLATTN_MASK_BITS ? CLATTN_RULE_MASK_BITS : 0) |
                  (list->staged ? CLATTN_RULE_LENGTHS : 0) | ((problem->outputs & CLATTN_OUT_O) ? CLATTN_RULE_OUT : 0) |
                  ((problem->outputs & CLATTN_OUT_LSE) ? CLATTN_RULE_LSE : 0) |
                  ((problem->outputs & CLATTN_OUT_MAX_LOGIT) ? CLATTN_RULE_MAX_LOGIT : 0);
}
