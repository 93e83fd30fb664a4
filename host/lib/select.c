/* SPDX-License-Identifier: Apache-2.0 */
#include "select.h"

#include <stdio.h>
#include <string.h>

#include "device.h"
#include "dtype.h"
#include "params.cl.h"
#include "status.h"

#define SLOT(slot) (CLATTNI_ARG_SLOT + (slot))

/* Kernels that every variant has. */
#define COMMON_KERNELS                                                                                                 \
  [CLATTNI_STAGE_ENTRIES] = {"stage_entries", {CLATTNI_ARG_CHUNK, CLATTNI_ARG_WORKSPACE}},                             \
  [CLATTNI_GATHER_ENTRIES] = {"gather_entries",                                                                        \
                              {CLATTNI_ARG_GATHER, CLATTNI_ARG_ARRAY, CLATTNI_ARG_ARRAY + 1, CLATTNI_ARG_ARRAY + 2,    \
                               CLATTNI_ARG_ARRAY + 3, CLATTNI_ARG_ARRAY + 4, CLATTNI_ARG_ARRAY + 5,                    \
                               CLATTNI_ARG_WORKSPACE}},                                                                \
  [CLATTNI_GATHER_HOOK] = {"gather_hook",                                                                              \
                           {CLATTNI_ARG_HOOK_GATHER, CLATTNI_ARG_HOOK_SCALAR, CLATTNI_ARG_HOOK_SCALAR + 1,             \
                            CLATTNI_ARG_HOOK_SCALAR + 2, CLATTNI_ARG_HOOK_SCALAR + 3, CLATTNI_ARG_WORKSPACE}},         \
  [CLATTNI_MAX_LOGIT_STEP] = {"max_logit",                                                                             \
                              {CLATTNI_ARG_PARAMS, CLATTNI_ARG_TO_LOGITS, CLATTNI_ARG_WORKSPACE,                       \
                               CLATTNI_ARG_WORKSPACE, SLOT(CLATTNI_MAX_LOGIT)}}

/* CLATTN_SCORE_ARGS of kernels/inputs.cl.h. */
#define SCORE_ARGS                                                                                                     \
  SLOT(CLATTNI_K), SLOT(CLATTNI_BIAS), SLOT(CLATTNI_KEEP_MASK), SLOT(CLATTNI_BLOCK_MASK), SLOT(CLATTNI_ALIBI_SLOPES),  \
      SLOT(CLATTNI_HEAD_SCALE), CLATTNI_ARG_SCALE, CLATTNI_ARG_SOFTCAP, SLOT(CLATTNI_K_SCALE), SLOT(CLATTNI_ADD_W),    \
      CLATTNI_ARG_ROPE, SLOT(CLATTNI_ROPE_COS), SLOT(CLATTNI_ROPE_SIN), SLOT(CLATTNI_POSITIONS_Q),                     \
      SLOT(CLATTNI_POSITIONS_K), CLATTNI_ARG_HOOK, CLATTNI_ARG_HOOK_BUFFER, CLATTNI_ARG_HOOK_BUFFER + 1,               \
      CLATTNI_ARG_HOOK_BUFFER + 2, CLATTNI_ARG_HOOK_BUFFER + 3
/* Where rows lie; the workspace holds the entries. */
#define PLACE_ARGS SLOT(CLATTNI_PAGE_TABLE), CLATTNI_ARG_WORKSPACE, CLATTNI_ARG_WORKSPACE

/* Both bodies of the pipeline take the same arguments. */
static const clattni_kernel three_step_kernels[CLATTNI_ENTRIES] = {
    COMMON_KERNELS,
    [CLATTNI_SCORE] = {"scores",
                       {CLATTNI_ARG_PARAMS, CLATTNI_ARG_ROUND, SLOT(CLATTNI_Q), PLACE_ARGS, SLOT(CLATTNI_SCORES),
                        SCORE_ARGS}},
    [CLATTNI_ROW_MAXIMUM] = {"row_maximum",
                             {CLATTNI_ARG_PARAMS, CLATTNI_ARG_ROUND, CLATTNI_ARG_WORKSPACE, SLOT(CLATTNI_PAGE_TABLE),
                              CLATTNI_ARG_WORKSPACE}},
    [CLATTNI_SOFTMAX] = {"softmax",
                         {CLATTNI_ARG_PARAMS, CLATTNI_ARG_ROUND, SLOT(CLATTNI_SINK), PLACE_ARGS, SLOT(CLATTNI_LSE),
                          SLOT(CLATTNI_SCORES)}},
    [CLATTNI_WEIGHTED_SUM] = {"weighted_sum",
                              {CLATTNI_ARG_PARAMS, CLATTNI_ARG_ROUND, SLOT(CLATTNI_V), PLACE_ARGS, SLOT(CLATTNI_O),
                               SLOT(CLATTNI_V_SCALE)}},
};

/* Fused kernels that write scores themselves, if at all. */
#define LANES_KERNELS                                                                                                  \
  COMMON_KERNELS, [CLATTNI_FLASH] = {"flash",                                                                          \
                                     {CLATTNI_ARG_PARAMS, CLATTNI_ARG_ROUND, SLOT(CLATTNI_Q), SLOT(CLATTNI_V),         \
                                      SLOT(CLATTNI_SINK), PLACE_ARGS, SLOT(CLATTNI_O), SLOT(CLATTNI_LSE),              \
                                      SLOT(CLATTNI_SCORES), SCORE_ARGS, SLOT(CLATTNI_V_SCALE)}}

static const clattni_kernel flash_lanes_kernels[CLATTNI_ENTRIES] = {
    LANES_KERNELS,
    [CLATTNI_FLASH_PARTS] = {"flash_parts",
                             {CLATTNI_ARG_PARAMS, CLATTNI_ARG_ROUND, SLOT(CLATTNI_SINK), PLACE_ARGS, SLOT(CLATTNI_O),
                              SLOT(CLATTNI_LSE)}},
};

/* On matrix units; of CPUs, and of GPUs. */
static const clattni_kernel flash_matrix_kernels[CLATTNI_ENTRIES] = {LANES_KERNELS};

static const clattni_kernel flash_tiles_kernels[CLATTNI_ENTRIES] = {
    COMMON_KERNELS,
    [CLATTNI_FLASH] = {"flash",
                       {CLATTNI_ARG_PARAMS, CLATTNI_ARG_ROUND, SLOT(CLATTNI_Q), SLOT(CLATTNI_V), SLOT(CLATTNI_SINK),
                        PLACE_ARGS, SLOT(CLATTNI_O), SLOT(CLATTNI_LSE), SCORE_ARGS, SLOT(CLATTNI_V_SCALE)}},
    [CLATTNI_FLASH_SCORES] = {"flash_scores",
                              {CLATTNI_ARG_PARAMS, CLATTNI_ARG_ROUND, SLOT(CLATTNI_Q), PLACE_ARGS, SLOT(CLATTNI_SCORES),
                               SCORE_ARGS}},
};

int clattni_arg_present(const clattn_problem *resolved, int kind) {
  const int of_hook = (kind >= CLATTNI_ARG_HOOK_BUFFER && kind < CLATTNI_ARG_SLOT) || kind == CLATTNI_ARG_HOOK;
  if (of_hook)
    return resolved->hook != NULL;
  if (kind == CLATTNI_ARG_ROPE)
    return resolved->rope != CLATTN_ROPE_NONE;
  switch (kind - CLATTNI_ARG_SLOT) {
  case CLATTNI_ROPE_COS:
  case CLATTNI_ROPE_SIN:
  case CLATTNI_POSITIONS_Q: /* there with and without positions, so that both are one program */
  case CLATTNI_POSITIONS_K:
    return resolved->rope != CLATTN_ROPE_NONE;
  case CLATTNI_K_SCALE:
  case CLATTNI_V_SCALE:
  case CLATTNI_ADD_W:
    return clattni_slot_used(resolved, (clattni_slot)(kind - CLATTNI_ARG_SLOT));
  default:
    return 1;
  }
}

/* Bytes of the arguments of a kernel. */
static uint32_t parameter_bytes(const clattn_problem *resolved, const clattni_kernel *kernel) {
  static const uint32_t by_value[] = {
      [CLATTNI_ARG_PARAMS] = sizeof(clattn_params),    [CLATTNI_ARG_ROUND] = sizeof(clattn_round),
      [CLATTNI_ARG_CHUNK] = sizeof(clattn_entries),    [CLATTNI_ARG_GATHER] = sizeof(clattn_gather),
      [CLATTNI_ARG_HOOK] = sizeof(clattn_hook_values), [CLATTNI_ARG_HOOK_GATHER] = sizeof(clattn_hook_gather),
      [CLATTNI_ARG_ROPE] = sizeof(clattn_rotation),    [CLATTNI_ARG_TO_LOGITS] = sizeof(clattn_head_view)};
  uint32_t bytes = 0;
  for (int i = 0; i < CLATTNI_MAX_KERNEL_ARGS && kernel->args[i] != CLATTNI_ARG_END; ++i) {
    const int kind = kernel->args[i];
    const int listed = kind < (int)(sizeof(by_value) / sizeof(by_value[0]));
    if (clattni_arg_present(resolved, kind))
      bytes += listed && by_value[kind] > 0 ? by_value[kind] : 8;
  }
  return bytes;
}

/* The table.  Selection takes the first row that fits and suits the device. */
static const clattni_variant variants[] = {
    {"flash-cpu-amx", "matrix",
     "one pass over the keys with online softmax, for bf16 on CPUs with AMX, their matrix unit", "flash_cpu_amx",
     CLATTNI_SHAPE_LANES, 1, 0, flash_matrix_kernels},
    {"flash-cpu-vector", "fused",
     "one pass over the keys with online softmax, for CPU devices: query rows in vector lanes", "flash_cpu_vector",
     CLATTNI_SHAPE_LANES, 1, 0, flash_lanes_kernels},
    {"three-step-cpu", "three-step", "scores, softmax, weighted sum for CPU devices: query rows in vector lanes",
     "three_step_cpu", CLATTNI_SHAPE_LANES, 0, 0, three_step_kernels},
    {"flash-gpu-simt", "fused",
     "one pass over the keys with online softmax through local-memory tiles, any OpenCL 1.2 device", "flash_gpu_simt",
     CLATTNI_SHAPE_TILES, 1, 0, flash_tiles_kernels},
    {"flash-gpu-matrix", "matrix",
     "one pass over the keys with online softmax on a GPU's matrix unit, for f16 and bf16: NVIDIA, AMD, Intel",
     "flash_gpu_matrix", CLATTNI_SHAPE_TILES, 1, 1, flash_matrix_kernels},
    {"three-step", "three-step", "scores, softmax, weighted sum through local-memory tiles, any OpenCL 1.2 device",
     "three_step", CLATTNI_SHAPE_TILES, 0, 0, three_step_kernels},
};
_Static_assert(sizeof(variants) / sizeof(variants[0]) <= CLATTNI_MAX_VARIANTS, "a request has too little room");

const clattni_variant *clattni_variant_at(uint32_t index) {
  return index < sizeof(variants) / sizeof(variants[0]) ? &variants[index] : NULL;
}

const char *clattn_variant_name(uint32_t index) {
  const clattni_variant *variant = clattni_variant_at(index);
  return variant != NULL ? variant->name : NULL;
}

const char *clattn_variant_summary(uint32_t index) {
  const clattni_variant *variant = clattni_variant_at(index);
  return variant != NULL ? variant->summary : NULL;
}

#define REGION CLATTN_REGION_WORDS /* regions of the workspace start on 64-byte boundaries */

static int64_t ceil_div(int64_t a, int64_t b) {
  return a / b + (a % b != 0);
}

static int64_t round_up(int64_t a, int64_t multiple) {
  return ceil_div(a, multiple) * multiple;
}

int clattni_uses_entries(const clattn_problem *resolved) {
  return clattni_packed_q(resolved) || clattni_packed_k(resolved) || resolved->prefix_mode == CLATTN_PREFIX_PER_BATCH ||
         resolved->q_length_mode == CLATTN_LENGTH_PER_BATCH || resolved->k_length_mode == CLATTN_LENGTH_PER_BATCH ||
         resolved->offset_mode == CLATTN_OFFSET_VALUE || resolved->offset_mode == CLATTN_OFFSET_PER_BATCH;
}

/* Words that a round of so many tiles takes; sets where its regions start, after the fixed ones. */
static int64_t place_round(const clattni_choice *choice, const clattn_problem *resolved, int64_t tiles,
                           clattni_layout *layout) {
  const int maxima = (resolved->outputs & CLATTN_OUT_MAX_LOGIT) != 0;
  layout->partial = layout->stats + round_up(tiles * choice->rows, REGION);
  layout->scores = layout->partial + (maxima ? round_up(tiles * layout->key_chunks * choice->rows, REGION) : 0);
  return layout->scores + tiles * choice->rows * layout->k_stored;
}

/* Whether scores for the caller come from a kernel of their own. */
static int scores_apart(const clattni_choice *choice, const clattn_problem *resolved) {
  return (resolved->outputs & CLATTN_OUT_SCORES) && choice->variant->kernels[CLATTNI_FLASH_SCORES].name != NULL;
}

static void choose_steps(const clattni_choice *choice, const clattn_problem *resolved, clattni_layout *layout) {
  const uint32_t outputs = resolved->outputs;
  const int weights = (outputs & CLATTN_OUT_SCORES) && resolved->stage == CLATTN_STAGE_WEIGHTS;
  if (choice->variant->fused) {
    const int apart = scores_apart(choice, resolved);
    if (!apart || weights || (outputs & ~(uint32_t)CLATTN_OUT_SCORES))
      layout->steps[layout->steps_per_round++] = CLATTNI_FLASH;
    if (apart)
      layout->steps[layout->steps_per_round++] = CLATTNI_FLASH_SCORES;
    if (choice->parts > 1)
      layout->steps[layout->steps_per_round++] = CLATTNI_FLASH_PARTS;
    return;
  }
  layout->steps[layout->steps_per_round++] = CLATTNI_SCORE;
  if (outputs & CLATTN_OUT_MAX_LOGIT)
    layout->steps[layout->steps_per_round++] = CLATTNI_ROW_MAXIMUM;
  if ((outputs & (CLATTN_OUT_O | CLATTN_OUT_LSE)) || weights)
    layout->steps[layout->steps_per_round++] = CLATTNI_SOFTMAX;
  if (outputs & CLATTN_OUT_O)
    layout->steps[layout->steps_per_round++] = CLATTNI_WEIGHTED_SUM;
}

/* Whether tiles of packed rows are found by search.  Scores for the caller have rows that packed batch entries lack;
 * tiles over all of them write those too. */
static int is_searched(const clattn_problem *resolved) {
  return clattni_packed_q(resolved) && !(resolved->outputs & CLATTN_OUT_SCORES);
}

/* How many tiles there are: kernels/tile.cl.h. */
static void place_tiles(const clattni_choice *choice, const clattn_problem *resolved, const clattni_sizes *sizes,
                        clattni_layout *layout) {
  const int64_t units = resolved->q_heads / choice->pack;
  layout->search = is_searched(resolved);
  if (layout->search) {
    layout->tiles_per_unit =
        sizes->total_q > 0 && sizes->q_len > 0 ? sizes->total_q * choice->pack / choice->rows + sizes->batch : 0;
    layout->total_tiles = units * layout->tiles_per_unit;
  } else {
    layout->tiles_per_unit = ceil_div(sizes->q_len * choice->pack, choice->rows);
    layout->total_tiles = sizes->batch * units * layout->tiles_per_unit;
  }
  if (sizes->batch == 0)
    layout->total_tiles = 0;
}

/* Rows of all heads: what has a number per row takes so many words. */
static int64_t all_rows(const clattn_problem *resolved, const clattni_sizes *sizes) {
  return resolved->q_heads * (clattni_packed_q(resolved) ? sizes->total_q : sizes->batch * sizes->q_len);
}

/* What parts of tiles leave in the workspace: CLATTN_PART_WORDS of kernels/flash_cpu_vector.cl each. */
static int64_t words_of_parts(const clattni_choice *choice, int64_t tiles) {
  return choice->parts > 1 ? round_up(tiles * choice->parts * (3 + choice->dim_chunk) * choice->rows, REGION) : 0;
}

int clattni_layout_make(const clattni_choice *choice, const clattn_problem *resolved, const clattni_sizes *sizes,
                        uint64_t budget, clattni_layout *layout) {
  const int maxima = (resolved->outputs & CLATTN_OUT_MAX_LOGIT) != 0;
  memset(layout, 0, sizeof(*layout));
  place_tiles(choice, resolved, sizes, layout);
  layout->k_stored = round_up(sizes->k_len, choice->key_multiple);
  layout->key_chunks = choice->variant->fused ? choice->parts
                       : sizes->k_len > 0     ? ceil_div(sizes->k_len, choice->keys_per_chunk)
                                              : 1;
  choose_steps(choice, resolved, layout);
  const int entries = clattni_uses_entries(resolved);
  if ((layout->total_tiles > 0 || maxima) && entries)
    layout->staging = ceil_div(sizes->batch, CLATTN_ENTRIES_PER_LAUNCH);
  const int hook = resolved->hook != NULL && layout->total_tiles > 0;
  layout->launches = layout->staging + (layout->staging > 0) + hook + (maxima && sizes->batch > 0);

  layout->hook = entries ? round_up(CLATTN_ENTRY_WORDS * sizes->batch, REGION) : 0;
  layout->maxima = layout->hook + (resolved->hook != NULL ? REGION : 0);
  layout->stats = layout->maxima + (maxima ? round_up(all_rows(resolved, sizes), REGION) : 0);
  if (layout->total_tiles == 0) {
    layout->partial = layout->scores = layout->stats;
    layout->bytes = (uint64_t)layout->stats * 4;
    return layout->bytes <= budget;
  }
  if (choice->variant->fused) { /* all tiles at once: they leave little in the workspace */
    layout->tiles_per_round = layout->total_tiles;
    layout->rounds = 1;
    layout->launches += layout->steps_per_round;
    layout->partial = layout->scores = layout->stats;
    if (scores_apart(choice, resolved) && resolved->stage == CLATTN_STAGE_WEIGHTS) /* maximum and sum of every row */
      layout->scores += round_up(2 * layout->total_tiles * choice->rows, REGION);
    layout->bytes = (uint64_t)(layout->scores + words_of_parts(choice, layout->total_tiles)) * 4;
    return layout->bytes <= budget;
  }
  const int64_t words = budget / 4 > INT64_MAX ? INT64_MAX : (int64_t)(budget / 4);
  const int64_t per_tile =
      choice->rows + (maxima ? choice->rows * layout->key_chunks : 0) + choice->rows * layout->k_stored;
  int64_t tiles = words > layout->stats ? (words - layout->stats) / per_tile : 0;
  if (tiles > layout->total_tiles)
    tiles = layout->total_tiles;
  /* regions are padded, which may cost the last tiles */
  while (tiles > 0 && place_round(choice, resolved, tiles, layout) > words)
    --tiles;
  const int fits = tiles > 0;
  if (!fits)
    tiles = 1;
  layout->tiles_per_round = tiles;
  layout->rounds = ceil_div(layout->total_tiles, tiles);
  layout->launches += layout->rounds * layout->steps_per_round;
  layout->bytes = (uint64_t)place_round(choice, resolved, tiles, layout) * 4;
  return fits;
}

/* Head-dimension classes of the lane kernels: how much of a tile of queries and of its results is in private memory
 * at a time.  Beyond the largest one both go through it in parts. */
static int dim_class(int64_t dim) {
  static const int classes[] = {32, 64, 128, 256};
  for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); ++i)
    if (dim <= classes[i])
      return classes[i];
  return 1024;
}

/* Heads of a group share tiles where the query rows of one head don't fill one: then k and v are read once for all.
 * That depends on the other rows of a call, so not where their number may not change a bit. */
static int32_t choose_pack(const clattn_problem *resolved, int fused, int32_t rows) {
  const int64_t group = resolved->q_heads / resolved->kv_heads;
  return fused && resolved->q_len < rows && !(resolved->flags & CLATTN_BATCH_INVARIANT) ? (int32_t)group : 1;
}

/* Vectors of query rows in a tile, 1 to 3: those that waste the least on `rows` rows.  Fewer vectors share what is loaded
 * of a key, and cost more each: in percent, measured with AVX-512 (one vector: 104 on Zen 4, 135 on Sapphire Rapids) and
 * with vectors of AVX2 at 1152 rows. */
static int choose_vectors(int64_t rows, int lanes) {
  static const int64_t wide[] = {0, 120, 2 * 102, 3 * 100}, narrow[] = {0, 125, 2 * 104, 3 * 100};
  const int64_t *cost = lanes == 16 ? wide : narrow;
  int best = 3;
  for (int vectors = 2; vectors >= 1; --vectors)
    if (ceil_div(rows, vectors * lanes) * cost[vectors] < ceil_div(rows, best * lanes) * cost[best])
      best = vectors;
  return best;
}

static int elements_side_by_side(const clattn_problem *resolved, clattni_slot slot) {
  const clattni_sizes bounds = clattni_bounds(resolved);
  int64_t stride[4];
  clattni_slot_strides(resolved, &bounds, slot, stride);
  return stride[3] == 1;
}

/* What kernels/few_rows.cl.h is for: decoding, which is as fast as keys and values are read.  Its products are summed in
 * another order, which the number of rows may not decide where it may not change a bit; below some dozens of keys there is
 * nothing to gain. */
static int suits_few_rows(const clattn_problem *resolved, int64_t rows) {
  return rows <= 8 && resolved->k_len >= 64 && !(resolved->flags & CLATTN_BATCH_INVARIANT) &&
         resolved->similarity != CLATTN_ADDITIVE && elements_side_by_side(resolved, CLATTNI_K) &&
         elements_side_by_side(resolved, CLATTNI_V);
}

/* Where a measured tile takes the place of the usual one.  Products that other kernels make, or prepare, were not
 * measured.  A batch-invariant problem keeps its tile: keys are summed block by block, and what was measured for few rows
 * may have other blocks than what was measured for many. */
static void take_tuned(const clattni_request *request, clattni_choice *choice, int lanes, int rows,
                       const clattni_tile *usual) {
  const clattn_problem *problem = request->problem;
  clattni_shape_class *of = &choice->tile.of;
  choice->tile.tile = *usual;
  if ((problem->flags & CLATTN_BATCH_INVARIANT) || problem->similarity != CLATTN_DOT ||
      problem->rope != CLATTN_ROPE_NONE || (lanes > 0 && !choice->variant->fused))
    return;
  snprintf(of->variant, sizeof(of->variant), "%s", choice->variant->name);
  of->lanes = lanes;
  of->dim = dim_class(problem->qk_dim > problem->v_dim ? problem->qk_dim : problem->v_dim);
  of->rows = rows;
  of->causal = problem->causal != 0;
  of->k = problem->k.dtype;
  of->v = problem->v.dtype;
  const clattni_tile *tuned = clattni_tuning_find(request->tuning, of);
  choice->tuned = tuned != NULL;
  if (tuned != NULL)
    choice->tile.tile = *tuned;
}

/* Parts of each tile's keys, where a call has fewer tiles than two for each compute unit: four parts for each unit, but
 * some blocks of keys in each.  Where parts end depends on their number, so not where that may not change a bit; scores
 * for the caller need the sum of a whole row. */
static int32_t choose_parts(const clattni_request *request, const clattni_choice *choice) {
  const clattn_problem *problem = request->problem;
  const clattni_sizes bounds = clattni_bounds(problem);
  const int64_t units = request->device->compute_units, least = (int64_t)4 * CLATTN_KEY_BLOCK;
  clattni_layout layout = {0};
  if (choice->variant->kernels[CLATTNI_FLASH_PARTS].name == NULL || (problem->flags & CLATTN_BATCH_INVARIANT) ||
      (problem->outputs & CLATTN_OUT_SCORES) || problem->v_dim > choice->dim_chunk || bounds.k_len < 2 * least)
    return 1;
  place_tiles(choice, problem, &bounds, &layout);
  if (layout.total_tiles == 0 || layout.total_tiles >= 2 * units)
    return 1;
  const int64_t wanted = ceil_div(4 * units, layout.total_tiles), most = bounds.k_len / least;
  return (int32_t)(wanted < most ? wanted : most);
}

/* Register blocks that fill the registers of a vector width: 32 registers with 512 bits, 16 below. */
static void choose_lanes(const clattni_request *request, clattni_choice *choice) {
  const int64_t qk_dim = request->problem->qk_dim, v_dim = request->problem->v_dim;
  const int fused = choice->variant->fused;
  const int dim = fused ? dim_class(qk_dim > v_dim ? qk_dim : v_dim) : qk_dim <= 256 ? 256 : 1024;
  const int lanes = clattni_lanes(request->device, request->width);
  choice->pack = choose_pack(request->problem, fused, 3 * lanes);
  /* of many rows the last tile's waste does not matter */
  const int64_t rows = request->problem->q_len < 64 * lanes ? request->problem->q_len * choice->pack : INT32_MAX;
  const int vectors = fused ? choose_vectors(rows, lanes) : 3;
  const int few = fused && vectors == 1 && suits_few_rows(request->problem, rows);
  const int keys = lanes == 16 || vectors == 1 ? 8 : 4;
  const int short_rows = few ? CLATTNI_ROWS_FEW : vectors;
  take_tuned(request, choice, lanes, rows == INT32_MAX ? CLATTNI_ROWS_MANY : short_rows,
             &(clattni_tile){.vectors = vectors, .keys = keys, .dims = keys, .block = CLATTN_KEY_BLOCK});
  const clattni_tile *tile = &choice->tile.tile;
  choice->rows = lanes * tile->vectors;
  choice->key_multiple = tile->keys;
  choice->keys_per_chunk = fused ? tile->block : CLATTN_CHUNK_KEYS;
  choice->dim_chunk = fused ? dim : 256;
  choice->gx = choice->gy = 1;
  const int length = snprintf(choice->options, sizeof(choice->options),
                              "-DCLATTN_LANES=%d -DCLATTN_MQ=%d -DCLATTN_NK=%d -DCLATTN_ND=%d -DCLATTN_DIM=%d%s", lanes,
                              tile->vectors, tile->keys, tile->dims, dim, few ? " -DCLATTN_FEW=1" : "");
  if (tile->block != CLATTN_KEY_BLOCK)
    snprintf(choice->options + length, sizeof(choice->options) - (size_t)length, " -DCLATTN_KEY_BLOCK=%d", tile->block);
}

/* Whether the row is the one on matrix units of GPUs. */
static int is_matrix(const clattni_variant *variant) {
  return strcmp(variant->file, "flash_gpu_matrix") == 0;
}

/* Whether the row is the one on the CPU's matrix unit. */
static int is_amx(const clattni_variant *variant) {
  return strcmp(variant->file, "flash_cpu_amx") == 0;
}

/* Tiles of 32 rows that a work-item of kernels/flash_cpu_amx.cl has. */
#define AMX_ROWS 32
#define AMX_TILES 8
#define AMX_DIM 256

/* Tiles that share what is prepared of keys and values: as many as rows fill, and at least four work-items for every
 * compute unit where that leaves them two tiles. */
static int choose_amx(const clattni_request *request, clattni_choice *choice, clattn_error *error) {
  static const char *const reasons[] = {
      [CLATTN_AMX_NONE] = "the device is no CPU with AMX for bf16 under x86-64 Linux",
      [CLATTN_AMX_NOT_ALLOWED] = "clattn_context_options.allow_amx is 0, so that clattn must not ask for AMX",
      [CLATTN_AMX_REFUSED] = "the operating system refuses AMX registers to this process"};
  const clattn_problem *problem = request->problem;
  const clattn_device_info *device = request->device;
  const char *reason = NULL;
  if (device->amx < CLATTN_AMX_NONE || device->amx > CLATTN_AMX_USABLE)
    reason = "clattn_device_info.amx holds no value of its enum";
  else if (device->amx != CLATTN_AMX_USABLE)
    reason = reasons[device->amx];
  else if (problem->q.dtype != CLATTN_BF16 || problem->k.dtype != CLATTN_BF16 || problem->v.dtype != CLATTN_BF16)
    reason = "q, k and v must be bf16";
  else if (problem->similarity != CLATTN_DOT)
    reason = "the similarity must be the dot product";
  else if (problem->rope != CLATTN_ROPE_NONE)
    reason = "rotary embedding gives numbers that are no bf16";
  else if (problem->qk_dim > AMX_DIM || problem->v_dim > AMX_DIM)
    reason = "head dimensions are at most 256";
  else if (request->width != 0 && request->width != 16)
    reason = "its vectors have 16 floats, and the context's config_text forces another width";
  else if (problem->outputs & CLATTN_OUT_SCORES)
    reason = "it does not write scores";
  else if (problem->flags & CLATTN_BATCH_INVARIANT)
    reason = "when a row's maximum is renewed depends on the rows beside it, so that it is not batch invariant";
  if (reason != NULL) {
    clattni_fail(error, CLATTN_ERROR_VARIANT_UNFIT, "variant %s: %s", choice->variant->name, reason);
    return 0;
  }
  const int64_t dim = problem->qk_dim > problem->v_dim ? problem->qk_dim : problem->v_dim;
  choice->pack = choose_pack(problem, 1, AMX_ROWS * AMX_TILES);
  const int64_t rows = problem->q_len * choice->pack;
  const int64_t wanted = 4 * (int64_t)(device->compute_units < 65536 ? device->compute_units : 65536);
  const int few = problem->batch < wanted && problem->q_heads < wanted; /* else there are enough, and no overflow */
  const int64_t units = few ? problem->batch * (problem->q_heads / choice->pack) : wanted;
  /* private memory: beside long heads there is room for half as many tiles, and for half a block of keys */
  const int most = dim > 128 ? AMX_TILES / 2 : AMX_TILES, keys = dim > 128 ? 64 : 128;
  int64_t tiles = 1; /* 1, 2, 4 or 8: each is a program of its own */
  while (tiles < most && tiles * AMX_ROWS < rows)
    tiles *= 2;
  while (tiles > 2 && units < ceil_div(wanted, ceil_div(rows, tiles * AMX_ROWS)))
    tiles /= 2;
  choice->rows = AMX_ROWS * (int32_t)tiles;
  choice->key_multiple = keys;
  choice->keys_per_chunk = keys;
  choice->dim_chunk = AMX_DIM;
  choice->gx = choice->gy = 1;
  snprintf(choice->options, sizeof(choice->options),
           "-DCLATTN_AMX=1 -DCLATTN_LANES=16 -DCLATTN_TILES=%d -DCLATTN_AMX_KEYS=%d -DCLATTN_DIM=%d", (int)tiles, keys,
           dim_class(dim));
  return 1;
}

/* Keys and value elements of a row that one item of kernels/flash_gpu_simt.cl has in registers. */
static int item_keys(const clattni_tile *tile) {
  return tile->gx == 8 && tile->gy == 8 ? 8 : 4;
}

static int item_values(const clattni_tile *tile, const clattn_problem *problem) {
  return problem->v_dim > 4 * tile->gx ? 8 : 4;
}

/* Bytes of local memory that a work-group of three_step.cl declares: kernels/group_tile.cl.h. */
static uint64_t tile_local_bytes(const clattni_tile *tile, const clattn_problem *problem) {
  const unsigned rows = 8u * (unsigned)tile->gy, columns = 4u * (unsigned)tile->gx, step = 16;
  uint64_t words = step * (rows + 1) + step * (columns + 1); /* queries, keys; values take the keys' place */
  if (problem->similarity == CLATTN_COSINE)
    words += 2 * (rows + columns);
  if (problem->rope != CLATTN_ROPE_NONE)
    words += 2 * (rows + columns);
  if (problem->similarity == CLATTN_ADDITIVE)
    words += step * (rows + 1);
  return 4 * (words + (unsigned)tile->gx * rows);
}

static int is_quantised(const clattn_tensor *tensor) {
  return tensor->dtype == CLATTN_I8 || tensor->dtype == CLATTN_I4;
}

/* The same of flash_gpu_simt.cl: kernels/register_tile.cl.h, with pointers of 64 bits. */
static uint64_t fused_local_bytes(const clattni_tile *tile, const clattn_problem *problem) {
  const unsigned rows = 8u * (unsigned)tile->gy, keys = (unsigned)(tile->gx * item_keys(tile)), step = 16;
  const unsigned values = (unsigned)(tile->gx * item_values(tile, problem)), line = step + 4, unit = 88;
  const unsigned key_words = keys * line, value_words = step * values;
  uint64_t bytes = 4 * (rows * line + (key_words > value_words ? key_words : value_words) + rows * (keys + 4));
  bytes += 8 * (rows + keys); /* where rows start */
  if (is_quantised(&problem->k) || is_quantised(&problem->v))
    bytes += 8 * keys;
  if (problem->similarity == CLATTN_COSINE)
    bytes += 8 * (rows + keys);
  if (problem->rope != CLATTN_ROPE_NONE)
    bytes += 8 * (rows + keys);
  if (problem->similarity == CLATTN_ADDITIVE)
    bytes += 4 * step * (rows + 1) + 8 * rows;
  bytes = (bytes + 4 + 15) / 16 * 16;
  return bytes + 4 * ((unsigned)(tile->gx * tile->gy) + rows) + unit + 4;
}

/* Whether rules leave each row an interval of keys, and scores are products times a scale: CLATTN_PLAIN of
 * kernels/flash_gpu_simt.cl. */
static int is_plain(const clattn_problem *problem) {
  static const clattni_slot others[] = {CLATTNI_BIAS, CLATTNI_KEEP_MASK, CLATTNI_BLOCK_MASK, CLATTNI_HEAD_SCALE};
  for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); ++i)
    if (clattni_slot_used(problem, others[i]))
      return 0;
  return problem->alibi == CLATTN_ALIBI_NONE && problem->softcap == 0.0f && problem->hook == NULL &&
         !(problem->outputs & CLATTN_OUT_MAX_LOGIT);
}

static int choose_tiles(const clattni_request *request, clattni_choice *choice, clattn_error *error) {
  static const clattni_tile wide[2] = {{.gx = 16, .gy = 8}, {.gx = 8, .gy = 4}};
  static const clattni_tile narrow[2] = {{.gx = 8, .gy = 8}, {.gx = 8, .gy = 4}}; /* more of a row in each item */
  const clattn_device_info *device = request->device;
  const int fused = choice->variant->fused;
  const clattni_tile *usual = fused && request->problem->v_dim <= 64 ? narrow : wide;
  const int64_t rows = request->problem->q_len;
  uint64_t local = 0;
  take_tuned(request, choice, 0,
             rows <= 8    ? CLATTNI_ROWS_FEW
             : rows < 128 ? CLATTNI_ROWS_SOME
                          : CLATTNI_ROWS_MANY,
             &usual[0]);
  for (int i = choice->tuned ? -1 : 0; i < 2; ++i) { /* the device may not take what another program measured */
    const clattni_tile *tile = i < 0 ? &choice->tile.tile : &usual[i];
    const int gx = tile->gx, gy = tile->gy;
    local = fused ? fused_local_bytes(tile, request->problem) : tile_local_bytes(tile, request->problem);
    if (device->max_work_group < (uint32_t)(gx * gy) || device->local_bytes < local) {
      choice->tuned = 0;
      continue;
    }
    choice->tile.tile = *tile;
    choice->rows = 8 * gy;
    choice->pack = choose_pack(request->problem, fused, choice->rows);
    choice->key_multiple = 16;
    choice->keys_per_chunk = 4 * gx;
    choice->dim_chunk = gx * (fused ? item_values(tile, request->problem) : 4);
    choice->gx = gx;
    choice->gy = gy;
    const int length = snprintf(choice->options, sizeof(choice->options), "-DCLATTN_GX=%d -DCLATTN_GY=%d", gx, gy);
    if (fused)
      snprintf(choice->options + length, sizeof(choice->options) - (size_t)length, " -DCLATTN_VC=%d -DCLATTN_KC=%d%s",
               item_values(tile, request->problem), item_keys(tile),
               is_plain(request->problem) ? " -DCLATTN_PLAIN=1" : "");
    return 1;
  }
  clattni_fail(error, CLATTN_ERROR_VARIANT_UNFIT,
               "variant %s needs work-groups of %d items and %llu bytes of local memory; the device has %u and %llu",
               choice->variant->name, usual[1].gx * usual[1].gy, (unsigned long long)local, device->max_work_group,
               (unsigned long long)device->local_bytes);
  return 0;
}

/* A buffer at most, and no more regions than kernels count. */
static uint64_t largest_workspace(const clattn_device_info *device) {
  const uint64_t counted = (uint64_t)UINT32_MAX * REGION * 4;
  return device->max_alloc_bytes < counted ? device->max_alloc_bytes : counted;
}

/* Workspace that a plan takes without a cap: a CPU's score tiles stay in its caches, other devices get room for many
 * work-groups; and every compute unit gets some tiles, where memory is no object.  What is there once comes on top. */
static uint64_t usual_budget(const clattni_request *request, const clattni_choice *choice,
                             const clattni_sizes *bounds) {
  const uint64_t most = (uint64_t)1 << 30, limit = largest_workspace(request->device);
  const uint64_t tile = (uint64_t)choice->rows * 4 * ((uint64_t)bounds->k_len + 64);
  const uint64_t tiles = 4 * (uint64_t)request->device->compute_units;
  const uint64_t wanted = tile > most / tiles ? most : tile * tiles;
  const uint64_t usual = choice->variant->shape == CLATTNI_SHAPE_LANES ? (uint64_t)16 << 20 : (uint64_t)256 << 20;
  clattni_layout layout;
  (void)clattni_layout_make(choice, request->problem, bounds, 0, &layout);
  const uint64_t budget = (usual > wanted ? usual : wanted) + (uint64_t)layout.stats * 4;
  return budget < limit ? budget : limit;
}

/* Tiles, row maxima and grids are counted in int.  The numbers are those of place_tiles, which may not overflow then. */
static int tiles_countable(const clattni_choice *choice, const clattn_problem *resolved, const clattni_sizes *bounds) {
  const int64_t units = resolved->q_heads / choice->pack;
  const int64_t rows = bounds->total_q > bounds->q_len ? bounds->total_q : bounds->q_len;
  if (bounds->batch * resolved->q_heads > INT32_MAX || rows * choice->pack > INT32_MAX - choice->rows)
    return 0;
  if (is_searched(resolved))
    return bounds->total_q * choice->pack / choice->rows + bounds->batch <= INT32_MAX / (units + 1);
  return ceil_div(bounds->q_len * choice->pack, choice->rows) <= INT32_MAX / (bounds->batch * units + 1);
}

/* Compiler options for what is fixed when a program is built beside its tile: types, similarity and rotary embedding,
 * where they are not the kernels' defaults. */
static void add_types(const clattni_request *request, clattni_choice *choice) {
  static const struct {
    const char *word;
    clattni_slot slot;
  } types[] = {
      {"Q", CLATTNI_Q},
      {"K", CLATTNI_K},
      {"V", CLATTNI_V},
      {"O", CLATTNI_O},
      {"BIAS", CLATTNI_BIAS},
      {"SCORES", CLATTNI_SCORES},
      {"K_SCALE", CLATTNI_K_SCALE},
      {"V_SCALE", CLATTNI_V_SCALE},
  };
  const clattn_problem *problem = request->problem;
  char *const text = choice->options;
  size_t length = strlen(text);
  for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); ++i) {
    const clattn_dtype type = clattni_slot_tensor(problem, types[i].slot)->dtype;
    if (clattni_slot_used(problem, types[i].slot) && type != CLATTN_F32)
      length += (size_t)snprintf(text + length, sizeof(choice->options) - length, " -DCLATTN_%s=%s", types[i].word,
                                 clattni_dtype_name(type));
  }
  if (problem->similarity != CLATTN_DOT)
    length += (size_t)snprintf(text + length, sizeof(choice->options) - length, " -DCLATTN_%s=1",
                               problem->similarity == CLATTN_COSINE ? "COSINE" : "ADDITIVE");
  if (problem->rope != CLATTN_ROPE_NONE)
    length += (size_t)snprintf(text + length, sizeof(choice->options) - length, " -DCLATTN_ROPE=%d", problem->rope);
  /* The CPU families gain nothing from halves: their products stay exact, which the permission covers too. */
  if (problem->math == CLATTN_MATH_HALF && problem->similarity == CLATTN_DOT && problem->rope == CLATTN_ROPE_NONE &&
      request->device->has_fp16 && choice->variant->shape == CLATTNI_SHAPE_TILES && problem->q.dtype == CLATTN_F16 &&
      problem->k.dtype == CLATTN_F16 && problem->v.dtype == CLATTN_F16)
    (void)snprintf(text + length, sizeof(choice->options) - length, " -DCLATTN_HALF_PRODUCTS");
}

/* Whether the row can take the problem on the device at all; fills the tile on success. */
static clattn_status try_variant(const clattni_request *request, const clattni_variant *variant, clattni_choice *choice,
                                 clattn_error *error) {
  const clattn_device_info *device = request->device;
  const clattni_sizes bounds = clattni_bounds(request->problem);
  memset(choice, 0, sizeof(*choice));
  choice->variant = variant;
  choice->parts = 1;
  for (uint32_t i = 0; i < request->forbidden_count; ++i)
    if (strcmp(request->forbidden[i], variant->name) == 0 || strcmp(request->forbidden[i], variant->family) == 0)
      return clattni_fail(error, CLATTN_ERROR_VARIANT_UNFIT,
                          "variant %s is forbidden by the context's config_text (%s)", variant->name,
                          request->forbidden[i]);
  if (request->width != 0 && variant->shape != CLATTNI_SHAPE_LANES)
    return clattni_fail(error, CLATTN_ERROR_VARIANT_UNFIT,
                        "variant %s has no vector lanes: width=%u of the context's config_text is not for it",
                        variant->name, request->width);
  uint32_t parameters = 0;
  for (int i = 0; i < CLATTNI_ENTRIES; ++i)
    if (variant->kernels[i].name != NULL && parameter_bytes(request->problem, &variant->kernels[i]) > parameters)
      parameters = parameter_bytes(request->problem, &variant->kernels[i]);
  if (device->max_parameter_bytes < parameters)
    return clattni_fail(error, CLATTN_ERROR_VARIANT_UNFIT,
                        "variant %s needs %u bytes of kernel arguments; the device allows %u", variant->name,
                        parameters, device->max_parameter_bytes);
  if (is_amx(variant)) {
    if (!choose_amx(request, choice, error))
      return CLATTN_ERROR_VARIANT_UNFIT;
  } else if (is_matrix(variant)) {
    if (!clattni_choose_matrix(request, choice, error))
      return CLATTN_ERROR_VARIANT_UNFIT;
    choice->pack = choose_pack(request->problem, 1, choice->rows);
  } else if (variant->shape == CLATTNI_SHAPE_LANES)
    choose_lanes(request, choice);
  else if (!choose_tiles(request, choice, error))
    return CLATTN_ERROR_VARIANT_UNFIT;
  add_types(request, choice);
  if (!tiles_countable(choice, request->problem, &bounds))
    return clattni_fail(error, CLATTN_ERROR_VARIANT_UNFIT,
                        "variant %s: batch %lld * q_heads %lld * q_len %lld is more row tiles than a grid can count",
                        variant->name, (long long)bounds.batch, (long long)request->problem->q_heads,
                        (long long)(clattni_packed_q(request->problem) ? bounds.total_q : bounds.q_len));
  const uint64_t limit = largest_workspace(device);
  const int capped = request->workspace_cap != 0 && request->workspace_cap <= limit;
  const uint64_t budget = request->workspace_cap == 0 ? usual_budget(request, choice, &bounds)
                          : capped                    ? request->workspace_cap
                                                      : limit;
  clattni_layout layout;
  choice->parts = choose_parts(request, choice);
  int fits = clattni_layout_make(choice, request->problem, &bounds, budget, &layout);
  if (!fits && choice->parts > 1 && (capped || layout.bytes > limit)) { /* they are not worth a refusal */
    choice->parts = 1;
    fits = clattni_layout_make(choice, request->problem, &bounds, budget, &layout);
  }
  if (!fits && !capped && layout.bytes <= limit)
    fits = clattni_layout_make(choice, request->problem, &bounds, layout.bytes, &layout);
  if (!fits)
    return clattni_fail(error, CLATTN_ERROR_WORKSPACE_TOO_SMALL,
                        "variant %s needs at least %llu bytes of workspace, for %s of %d rows; %s is %llu",
                        variant->name, (unsigned long long)layout.bytes,
                        variant->fused ? "what differs between batch entries and the maxima of rows, in tiles"
                                       : "one tile",
                        choice->rows, capped ? "the workspace cap" : "the device's largest buffer",
                        (unsigned long long)(capped ? request->workspace_cap : limit));
  choice->workspace_bytes = layout.bytes;
  return CLATTN_SUCCESS;
}

/* Which rows selection takes of its own accord. */
static int suits(const clattni_variant *variant, const clattni_request *request) {
  const clattn_device_info *device = request->device;
  const int cpu = (device->type & CL_DEVICE_TYPE_CPU) != 0;
  if (variant->by_name)
    return 0;
  if (is_amx(variant)) /* a few rows wait for memory, and waste a tile of many */
    return device->amx == CLATTN_AMX_USABLE && request->problem->q.dtype == CLATTN_BF16 &&
           request->problem->q_len * choose_pack(request->problem, 1, AMX_ROWS * AMX_TILES) > 8;
  if (variant->shape == CLATTNI_SHAPE_LANES)
    return cpu || device->max_work_group < 32;
  return !variant->fused || !cpu;
}

/* A kill switch with a slip of the pen would forbid nothing: names are checked. */
static int is_forbiddable(const char *name) {
  for (uint32_t i = 0; clattni_variant_at(i) != NULL; ++i)
    if (strcmp(name, variants[i].name) == 0 || strcmp(name, variants[i].family) == 0)
      return 1;
  return 0;
}

/* All names with commas between them, as many as fit. */
static void name_variants(char *names, size_t capacity) {
  size_t length = 0;
  names[0] = 0;
  for (uint32_t i = 0; clattni_variant_at(i) != NULL; ++i) {
    const int more = snprintf(names + length, capacity - length, "%s%s", i > 0 ? ", " : "", variants[i].name);
    if (more < 0 || (size_t)more >= capacity - length)
      return;
    length += (size_t)more;
  }
}

/* The reason says where the tile is from, if there is a tuning at all. */
static void add_tile(const clattni_request *request, clattni_choice *choice) {
  const size_t length = strlen(choice->why), room = sizeof(choice->why) - length;
  char words[96];
  if (request->tuning == NULL)
    return;
  clattni_tile_words(&choice->tile.tile, words, sizeof(words));
  if (choice->tuned)
    snprintf(choice->why + length, room, "; tuned: %s", words);
  else if (request->tuning->foreign[0] != 0)
    snprintf(choice->why + length, room, "; not tuned: of the tuning %.100s", request->tuning->foreign);
  else
    snprintf(choice->why + length, room, "; not tuned");
}

/* Adds to the reasons why rows were not taken. */
static clattn_status pass_over(const clattni_request *request, uint32_t index, clattn_error *skipped) {
  const size_t length = strlen(skipped->message);
  snprintf(skipped->message + length, sizeof(skipped->message) - length, "%svariant %s is passed over: %s",
           length > 0 ? "; " : "", variants[index].name, request->passed_over[index]);
  return request->passed_status[index];
}

clattn_status clattni_select(const clattni_request *request, clattni_choice *choice, clattn_error *error) {
  const uint32_t count = (uint32_t)(sizeof(variants) / sizeof(variants[0]));
  clattn_status first = CLATTN_SUCCESS;
  clattn_error skipped; /* why the first row that suits was not taken */
  if (!request->device->little_endian)
    return clattni_fail(error, CLATTN_ERROR_NOT_SUPPORTED, "big-endian devices are not supported yet");
  for (uint32_t i = 0; i < request->forbidden_count; ++i)
    if (!is_forbiddable(request->forbidden[i]))
      return clattni_fail(error, CLATTN_ERROR_TEXT, "config_text: forbid=%.60s names no variant and no family",
                          request->forbidden[i]);
  if (request->variant != NULL) {
    for (uint32_t i = 0; i < count; ++i) {
      if (strcmp(variants[i].name, request->variant) != 0)
        continue;
      const clattn_status status = try_variant(request, &variants[i], choice, error);
      if (status == CLATTN_SUCCESS) {
        snprintf(choice->why, sizeof(choice->why), "%s: asked for by name", variants[i].name);
        add_tile(request, choice);
      }
      return status;
    }
    char names[256];
    name_variants(names, sizeof(names));
    return clattni_fail(error, CLATTN_ERROR_UNKNOWN_VARIANT, "no variant is called '%.60s'; there are %s",
                        request->variant, names);
  }
  clattn_error_init(&skipped);
  for (uint32_t i = 0; i < count; ++i) {
    if (!suits(&variants[i], request))
      continue;
    const int passed_over = request->passed_over[i] != NULL;
    const clattn_status status =
        passed_over ? pass_over(request, i, &skipped)
                    : try_variant(request, &variants[i], choice, first == CLATTN_SUCCESS ? &skipped : NULL);
    if (status == CLATTN_SUCCESS) {
      snprintf(choice->why, sizeof(choice->why), "%s: the first variant of the table that suits %s%s%.340s",
               variants[i].name, (request->device->type & CL_DEVICE_TYPE_CPU) != 0 ? "a CPU device" : "this device",
               first != CLATTN_SUCCESS ? " and takes the problem; " : "", skipped.message);
      add_tile(request, choice);
      return status;
    }
    if (first == CLATTN_SUCCESS)
      first = status;
  }
  return clattni_fail(error, first, "%s", skipped.message);
}
