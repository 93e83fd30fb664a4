/* SPDX-License-Identifier: Apache-2.0 */
/* Defaults, shapes, strides, extents, key intervals, counts and slopes. */
#include "problem_internal.h"

#include "dtype.h"

#include <math.h>
#include <string.h>

enum { AXIS_BATCH = 1, AXIS_HEAD = 2, AXIS_ROW = 4, AXIS_ELEMENT = 8, AXES_ALL = 15 };

typedef struct slot_row {
  const char *name;
  size_t offset; /* of the tensor in clattn_problem */
  unsigned axes; /* AXIS_ bits */
  int is_output;
} slot_row;

static const slot_row slots[CLATTNI_SLOTS] = {
    [CLATTNI_Q] = {"q", offsetof(clattn_problem, q), AXES_ALL, 0},
    [CLATTNI_K] = {"k", offsetof(clattn_problem, k), AXES_ALL, 0},
    [CLATTNI_V] = {"v", offsetof(clattn_problem, v), AXES_ALL, 0},
    [CLATTNI_O] = {"o", offsetof(clattn_problem, o), AXES_ALL, 1},
    [CLATTNI_LSE] = {"lse", offsetof(clattn_problem, lse), AXIS_BATCH | AXIS_HEAD | AXIS_ROW, 1},
    [CLATTNI_SCORES] = {"scores", offsetof(clattn_problem, scores), AXES_ALL, 1},
    [CLATTNI_MAX_LOGIT] = {"max_logit", offsetof(clattn_problem, max_logit), AXIS_BATCH | AXIS_HEAD, 1},
    [CLATTNI_BIAS] = {"bias", offsetof(clattn_problem, bias), AXES_ALL, 0},
    [CLATTNI_KEEP_MASK] = {"keep_mask", offsetof(clattn_problem, keep_mask), AXES_ALL, 0},
    [CLATTNI_BLOCK_MASK] = {"block_mask", offsetof(clattn_problem, block_mask), AXES_ALL, 0},
    [CLATTNI_ALIBI_SLOPES] = {"alibi_slopes", offsetof(clattn_problem, alibi_slopes), AXIS_BATCH | AXIS_HEAD, 0},
    [CLATTNI_SINK] = {"sink", offsetof(clattn_problem, sink), AXIS_HEAD, 0},
    [CLATTNI_PAGE_TABLE] = {"page_table", 0, AXIS_BATCH | AXIS_ELEMENT, 0},
    [CLATTNI_HEAD_SCALE] = {"head_scale", offsetof(clattn_problem, head_scale), AXIS_HEAD, 0},
    [CLATTNI_ADD_W] = {"add_w", offsetof(clattn_problem, add_w), AXIS_HEAD | AXIS_ELEMENT, 0},
    [CLATTNI_K_SCALE] = {"k_scale", offsetof(clattn_problem, k_scale), AXES_ALL, 0},
    [CLATTNI_V_SCALE] = {"v_scale", offsetof(clattn_problem, v_scale), AXES_ALL, 0},
    [CLATTNI_ROPE_COS] = {"rope_cos", offsetof(clattn_problem, rope_cos), AXIS_BATCH | AXIS_ROW | AXIS_ELEMENT, 0},
    [CLATTNI_ROPE_SIN] = {"rope_sin", offsetof(clattn_problem, rope_sin), AXIS_BATCH | AXIS_ROW | AXIS_ELEMENT, 0},
    [CLATTNI_POSITIONS_Q] = {"positions_q", 0, AXIS_BATCH | AXIS_ROW, 0},
    [CLATTNI_POSITIONS_K] = {"positions_k", 0, AXIS_BATCH | AXIS_ROW, 0},
};

/* As wide as int32, which is no type of a tensor. */
static const clattn_tensor page_table = {CLATTN_F32, CLATTN_LAYOUT_BHSD, {0, 0, 0, 0}, {0, 0}};
static const clattn_tensor positions = {CLATTN_F32, CLATTN_LAYOUT_BHSD_EXACT, {0, 0, 0, 0}, {0, 0}};

void clattn_problem_init(clattn_problem *problem) {
  if (problem == NULL)
    return;
  memset(problem, 0, sizeof *problem);
  problem->struct_size = sizeof *problem;
}

clattn_tensor clattn_strided(clattn_dtype dtype, int64_t batch, int64_t head, int64_t row, int64_t element) {
  const clattn_tensor tensor = {dtype, CLATTN_LAYOUT_STRIDED, {batch, head, row, element}, {0, 0}};
  return tensor;
}

const char *clattni_slot_name(clattni_slot slot) {
  return slots[slot].name;
}

int clattni_slot_is_output(clattni_slot slot) {
  return slots[slot].is_output;
}

int clattni_slot_has_axis(clattni_slot slot, int axis) {
  return (slots[slot].axes >> axis & 1u) != 0;
}

const clattn_tensor *clattni_slot_tensor(const clattn_problem *problem, clattni_slot slot) {
  if (slot == CLATTNI_PAGE_TABLE)
    return &page_table;
  if (slot == CLATTNI_POSITIONS_Q || slot == CLATTNI_POSITIONS_K)
    return &positions;
  return (const clattn_tensor *)(const void *)((const char *)problem + slots[slot].offset);
}

int clattni_packed_q(const clattn_problem *problem) {
  return problem->q.layout == CLATTN_LAYOUT_PACKED;
}

int clattni_packed_k(const clattn_problem *problem) {
  return problem->k.layout == CLATTN_LAYOUT_PACKED;
}

int clattni_paged(const clattn_problem *problem) {
  return problem->k.layout == CLATTN_LAYOUT_PAGED;
}

int clattni_quantised(clattn_dtype dtype) {
  return dtype == CLATTN_I8 || dtype == CLATTN_I4;
}

int clattni_slot_used(const clattn_problem *problem, clattni_slot slot) {
  const uint32_t outputs = problem->outputs != 0 ? problem->outputs : (uint32_t)CLATTN_OUT_O;
  switch (slot) {
  case CLATTNI_Q:
  case CLATTNI_K:
    return 1;
  case CLATTNI_V: /* only o depends on the values */
  case CLATTNI_O:
    return (outputs & CLATTN_OUT_O) != 0;
  case CLATTNI_LSE:
    return (outputs & CLATTN_OUT_LSE) != 0;
  case CLATTNI_SCORES:
    return (outputs & CLATTN_OUT_SCORES) != 0;
  case CLATTNI_MAX_LOGIT:
    return (outputs & CLATTN_OUT_MAX_LOGIT) != 0;
  case CLATTNI_BIAS:
    return problem->use_bias != 0;
  case CLATTNI_KEEP_MASK:
    return problem->keep_mask_kind != CLATTN_MASK_NONE;
  case CLATTNI_BLOCK_MASK:
    return problem->block_mask_kind != CLATTN_MASK_NONE;
  case CLATTNI_ALIBI_SLOPES:
    return problem->alibi != CLATTN_ALIBI_NONE;
  case CLATTNI_SINK:
    return problem->use_sink != 0;
  case CLATTNI_PAGE_TABLE:
    return clattni_paged(problem);
  case CLATTNI_HEAD_SCALE:
    return problem->use_head_scale != 0;
  case CLATTNI_ADD_W:
    return problem->similarity == CLATTN_ADDITIVE;
  case CLATTNI_K_SCALE:
    return clattni_quantised(problem->k.dtype);
  case CLATTNI_V_SCALE:
    return (outputs & CLATTN_OUT_O) != 0 && clattni_quantised(problem->v.dtype);
  case CLATTNI_ROPE_COS:
  case CLATTNI_ROPE_SIN:
    return problem->rope != CLATTN_ROPE_NONE;
  case CLATTNI_POSITIONS_Q:
  case CLATTNI_POSITIONS_K:
    return problem->rope != CLATTN_ROPE_NONE && problem->use_positions != 0;
  case CLATTNI_SLOTS:
    break;
  }
  return 0;
}

static int is_i4(const clattn_problem *problem, clattni_slot slot) {
  return clattni_slot_tensor(problem, slot)->dtype == CLATTN_I4;
}

size_t clattni_slot_element_bytes(const clattn_problem *problem, clattni_slot slot) {
  if (slot == CLATTNI_KEEP_MASK)
    return problem->keep_mask_kind == CLATTN_MASK_BITS ? 4 : 1;
  if (slot == CLATTNI_BLOCK_MASK)
    return 4;
  return is_i4(problem, slot) ? 1 : clattni_dtype_bytes(clattni_slot_tensor(problem, slot)->dtype);
}

int64_t clattni_slot_bytes(const clattn_problem *problem, clattni_slot slot, int64_t elements) {
  int64_t bytes;
  if (is_i4(problem, slot))
    return elements / 2 + elements % 2;
  return clattni_multiply(elements, (int64_t)clattni_slot_element_bytes(problem, slot), &bytes) ? bytes : -1;
}

int64_t clattni_slot_index(const clattn_problem *problem, clattni_slot slot, uint64_t bytes) {
  return (int64_t)(bytes / clattni_slot_element_bytes(problem, slot)) * (is_i4(problem, slot) ? 2 : 1);
}

void clattni_problem_resolve(const clattn_problem *problem, clattn_problem *resolved) {
  if (resolved != problem)
    *resolved = *problem;
  if (resolved->batch == 0)
    resolved->batch = 1;
  if (resolved->q_heads == 0)
    resolved->q_heads = 1;
  if (resolved->kv_heads == 0)
    resolved->kv_heads = resolved->q_heads;
  if (resolved->q_len == 0 && clattni_packed_q(resolved))
    resolved->q_len = resolved->total_q;
  if (resolved->k_len == 0 && clattni_packed_k(resolved))
    resolved->k_len = resolved->total_k;
  if (resolved->v_dim == 0)
    resolved->v_dim = resolved->qk_dim;
  if (resolved->outputs == 0)
    resolved->outputs = CLATTN_OUT_O;
  if (resolved->rope != CLATTN_ROPE_NONE && resolved->rope_dim == 0)
    resolved->rope_dim = resolved->qk_dim;
  if (resolved->rope != CLATTN_ROPE_NONE && resolved->rope_positions == 0)
    resolved->rope_positions = resolved->k_len > 0 ? resolved->k_len : 1;
  if (resolved->scale_mode == CLATTN_SCALE_DEFAULT) {
    resolved->scale_mode = CLATTN_SCALE_VALUE;
    resolved->scale = resolved->similarity == CLATTN_DOT ? (float)(1.0 / sqrt((double)resolved->qk_dim)) : 1.0f;
  }
}

clattni_sizes clattni_bounds(const clattn_problem *resolved) {
  const clattni_sizes bounds = {resolved->batch, resolved->q_len, resolved->k_len,
                                clattni_packed_q(resolved) ? resolved->total_q : 0,
                                clattni_packed_k(resolved) ? resolved->total_k : 0};
  return bounds;
}

/* ---- shapes, strides, extents ---------------------------------------------------------------------------------- */

int clattni_multiply(int64_t a, int64_t b, int64_t *product) {
  if (a != 0 && b > INT64_MAX / a) {
    *product = INT64_MAX;
    return 0;
  }
  *product = a * b;
  return 1;
}

/* How many blocks hold so many; 0 where there are no blocks, as in a problem without a block mask. */
static int64_t blocks_of(int64_t count, int64_t block) {
  return block < 1 ? 0 : count / block + (count % block != 0);
}

/* Scales of a row. */
static int64_t groups_of(clattn_dtype dtype, int64_t dim) {
  return dtype == CLATTN_I4 ? blocks_of(dim, CLATTNI_I4_GROUP) : 1;
}

void clattni_slot_shape(const clattn_problem *resolved, const clattni_sizes *sizes, clattni_slot slot,
                        int64_t shape[4]) {
  const int of_keys = slot == CLATTNI_K || slot == CLATTNI_V || slot == CLATTNI_K_SCALE || slot == CLATTNI_V_SCALE ||
                      slot == CLATTNI_POSITIONS_K;
  const int of_rows = slot == CLATTNI_POSITIONS_Q || slot == CLATTNI_POSITIONS_K;
  shape[0] = sizes->batch;
  shape[1] = of_keys ? resolved->kv_heads : resolved->q_heads;
  shape[2] = of_keys ? sizes->k_len : sizes->q_len;
  shape[3] = 1;
  switch (slot) {
  case CLATTNI_Q:
  case CLATTNI_K:
    shape[3] = resolved->qk_dim;
    break;
  case CLATTNI_V:
  case CLATTNI_O:
    shape[3] = resolved->v_dim;
    break;
  case CLATTNI_KEEP_MASK:
    shape[3] = resolved->keep_mask_kind == CLATTN_MASK_BITS ? blocks_of(sizes->k_len, 32) : sizes->k_len;
    break;
  case CLATTNI_BLOCK_MASK:
    shape[2] = blocks_of(sizes->q_len, resolved->block_q);
    shape[3] = blocks_of(blocks_of(sizes->k_len, resolved->block_k), 32);
    break;
  case CLATTNI_BIAS:
  case CLATTNI_SCORES:
    shape[3] = sizes->k_len;
    break;
  case CLATTNI_SINK:
  case CLATTNI_HEAD_SCALE:
    shape[0] = 1;
    shape[2] = 1;
    break;
  case CLATTNI_ADD_W:
    shape[0] = 1;
    shape[2] = 1;
    shape[3] = resolved->qk_dim;
    break;
  case CLATTNI_K_SCALE:
    shape[3] = groups_of(resolved->k.dtype, resolved->qk_dim);
    break;
  case CLATTNI_V_SCALE:
    shape[3] = groups_of(resolved->v.dtype, resolved->v_dim);
    break;
  case CLATTNI_MAX_LOGIT:
  case CLATTNI_ALIBI_SLOPES:
    shape[2] = 1;
    break;
  case CLATTNI_PAGE_TABLE:
    shape[1] = 1;
    shape[2] = 1;
    shape[3] = resolved->max_pages;
    break;
  case CLATTNI_ROPE_COS:
  case CLATTNI_ROPE_SIN:
    shape[1] = 1;
    shape[2] = resolved->rope_positions;
    shape[3] = resolved->rope_dim / 2;
    break;
  case CLATTNI_POSITIONS_Q:
  case CLATTNI_POSITIONS_K:
    shape[1] = 1;
    break;
  case CLATTNI_LSE:
  case CLATTNI_SLOTS:
    break;
  }
  const clattn_layout layout = clattni_slot_tensor(resolved, slot)->layout;
  const int packed = of_rows && (of_keys ? clattni_packed_k(resolved) : clattni_packed_q(resolved));
  if (packed || layout == CLATTN_LAYOUT_PACKED) {
    shape[0] = 1;
    shape[2] = of_keys ? sizes->total_k : sizes->total_q;
  } else if (layout == CLATTN_LAYOUT_PAGED) {
    shape[0] = resolved->num_pages;
    shape[2] = resolved->page_size;
  }
}

static int any_stride(const clattn_tensor *tensor) {
  return (tensor->stride[0] | tensor->stride[1] | tensor->stride[2] | tensor->stride[3]) != 0;
}

int clattni_strides_given(const clattn_tensor *tensor) {
  return tensor->layout == CLATTN_LAYOUT_STRIDED ||
         ((tensor->layout == CLATTN_LAYOUT_PACKED || tensor->layout == CLATTN_LAYOUT_PAGED) && any_stride(tensor));
}

int clattni_slot_strides_checked(const clattn_problem *resolved, const clattni_sizes *sizes, clattni_slot slot,
                                 int64_t stride[4]) {
  static const int bhsd[4] = {3, 2, 1, 0}, bshd[4] = {3, 1, 2, 0}; /* axes from the innermost one */
  const clattni_sizes bounds = clattni_bounds(resolved);
  const clattn_tensor *tensor = clattni_slot_tensor(resolved, slot);
  const int *order = bhsd;
  unsigned axes = slots[slot].axes;
  int64_t shape[4];
  if (clattni_strides_given(tensor)) {
    memcpy(stride, tensor->stride, 4 * sizeof stride[0]);
    return 1;
  }
  if (tensor->layout != CLATTN_LAYOUT_BHSD_EXACT && tensor->layout != CLATTN_LAYOUT_BSHD_EXACT)
    sizes = &bounds;
  if (tensor->layout != CLATTN_LAYOUT_BHSD && tensor->layout != CLATTN_LAYOUT_BHSD_EXACT)
    order = bshd;
  if (tensor->layout == CLATTN_LAYOUT_PACKED) {
    axes &= ~(unsigned)AXIS_BATCH;
    order = slot == CLATTNI_LSE ? bhsd : bshd; /* lse is (head, row), as other libraries have it */
  }
  if (slot == CLATTNI_ALIBI_SLOPES || slot == CLATTNI_ROPE_COS || slot == CLATTNI_ROPE_SIN)
    axes &= ~(unsigned)AXIS_BATCH; /* the batch shares them */
  memset(stride, 0, 4 * sizeof stride[0]);
  clattni_slot_shape(resolved, sizes, slot, shape);
  int64_t next = 1;
  int fits = 1;
  for (int i = 0; i < 4; i++) {
    const int axis = order[i];
    if ((axes >> axis & 1u) == 0)
      continue;
    stride[axis] = next;
    if (axis != 0 && !clattni_multiply(next, shape[axis], &next))
      fits = 0;
    if (axis == 3 && is_i4(resolved, slot))
      next += next % 2; /* no row starts inside a byte; sizes are far from overflow here */
  }
  return fits;
}

void clattni_slot_strides(const clattn_problem *resolved, const clattni_sizes *sizes, clattni_slot slot,
                          int64_t stride[4]) {
  (void)clattni_slot_strides_checked(resolved, sizes, slot, stride);
}

int clattni_extent(const int64_t shape[4], const int64_t stride[4], int64_t *elements) {
  *elements = 0;
  for (int axis = 0; axis < 4; axis++) {
    if (shape[axis] == 0)
      return 1;
  }
  int64_t last = 0;
  for (int axis = 0; axis < 4; axis++) {
    int64_t reach;
    if (!clattni_multiply(shape[axis] - 1, stride[axis], &reach) || reach > INT64_MAX - 1 - last)
      return 0;
    last += reach;
  }
  *elements = last + 1;
  return 1;
}

/* ---- which keys a row sees ------------------------------------------------------------------------------------- */

static int64_t saturating_add(int64_t a, int64_t b) {
  if (b > 0 && a > INT64_MAX - b)
    return INT64_MAX;
  if (b < 0 && a < INT64_MIN - b)
    return INT64_MIN;
  return a + b;
}

static int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static int64_t clamp(int64_t x, int64_t low, int64_t high) {
  return x < low ? low : x > high ? high : x;
}

/* Row i sees the keys i + first <= j < i + end of its window, and causal j < i + causal or j < prefix; a side without
 * a limit is INT64_MIN or INT64_MAX.  The offset meets the window before the row does: then whatever saturates lies
 * beyond every key. */
typedef struct band {
  int64_t first, end, causal;
} band;

static band rule_band(const clattn_problem *problem, int64_t offset) {
  band keys = {INT64_MIN, INT64_MAX, INT64_MAX};
  if (problem->window & CLATTN_WINDOW_LEFT)
    keys.first = saturating_add(offset, -problem->window_left);
  if (problem->window & CLATTN_WINDOW_RIGHT)
    keys.end = saturating_add(saturating_add(offset, problem->window_right), 1);
  if (problem->causal)
    keys.causal = saturating_add(offset, 1);
  return keys;
}

void clattni_row_interval(const clattn_problem *resolved, const clattni_row_rules *rules, int64_t row, int64_t *lo,
                          int64_t *hi) {
  const band keys = rule_band(resolved, rules->offset);
  const int64_t at = saturating_add(rules->offset, row), chunk = resolved->chunk;
  *lo = 0;
  *hi = 0;
  if (row >= rules->q_len || (chunk > 0 && at < 0)) /* no key has a position below 0, so none is in such a chunk */
    return;
  int64_t first = saturating_add(keys.first, row);
  int64_t end = larger(saturating_add(keys.causal, row), rules->prefix);
  end = smaller(end, saturating_add(keys.end, row));
  if (chunk > 0) {
    const int64_t start = at - at % chunk;
    first = larger(first, start);
    end = smaller(end, saturating_add(start, chunk));
  }
  first = clamp(first, 0, rules->k_len);
  end = clamp(end, 0, rules->k_len);
  if (first < end) {
    *lo = first;
    *hi = end;
  }
}

int64_t clattni_offset(const clattn_problem *resolved, int64_t q_len, int64_t k_len, int has_explicit,
                       int64_t explicit_offset) {
  switch (resolved->offset_mode) {
  case CLATTN_OFFSET_BOTTOM_RIGHT:
    return k_len - q_len;
  case CLATTN_OFFSET_VALUE:
    return has_explicit ? explicit_offset : resolved->offset;
  case CLATTN_OFFSET_PER_BATCH:
    return has_explicit ? explicit_offset : 0;
  default:
    return 0;
  }
}

/* Sum over the rows 0 <= i < rows of clamp(i + shift, 0, keys), in closed form: plans are made in microseconds. */
static uint64_t sum_of_clamped(int64_t rows, int64_t keys, int64_t shift) {
  shift = clamp(shift, -rows, keys); /* beyond these every row is 0, or keys */
  const int64_t rising = clamp(-shift, 0, rows);
  const int64_t full = clamp(keys - shift, 0, rows); /* rows from here on see all keys */
  uint64_t sum = (uint64_t)(rows - full) * (uint64_t)keys;
  if (full > rising) {
    const uint64_t count = (uint64_t)(full - rising);
    const uint64_t ends = (uint64_t)(rising + shift) + (uint64_t)(full - 1 + shift);
    sum += (count % 2 == 0) ? count / 2 * ends : ends / 2 * count; /* an odd count has even ends */
  }
  return sum;
}

/* Some rows of a batch entry: row <= i < end. */
typedef struct row_range {
  int64_t row, end;
} row_range;

/* Pairs of these rows with the keys low <= j < high that lie in i + first <= j < i + end. */
static uint64_t count_band(row_range rows, int64_t low, int64_t high, int64_t first, int64_t end) {
  if (rows.row >= rows.end || low >= high)
    return 0;
  const int64_t count = rows.end - rows.row, keys = high - low, shift = rows.row - low;
  uint64_t pairs = (uint64_t)count * (uint64_t)keys;
  if (end != INT64_MAX)
    pairs = sum_of_clamped(count, keys, saturating_add(end, shift));
  if (first != INT64_MIN)
    pairs -= sum_of_clamped(count, keys, saturating_add(first, shift)); /* first < end: no row counts below zero */
  return pairs;
}

/* The same for 0 <= j < keys and chunk by chunk.  Chunks that lie wholly among the rows and the keys have the same
 * count, so that one of them stands for all: four steps at most, however many chunks there are. */
static uint64_t count_chunks(row_range rows, int64_t keys, int64_t first, int64_t end, int64_t offset, int64_t chunk) {
  uint64_t pairs = 0;
  if (offset < 0) /* rows at positions below 0 share a chunk with no key */
    rows.row = offset <= -rows.end ? rows.end : clamp(-offset, rows.row, rows.end);
  while (rows.row < rows.end) {
    const int64_t at = saturating_add(rows.row, offset), low = at - at % chunk, high = saturating_add(low, chunk);
    const int64_t left = saturating_add(rows.row, chunk - at % chunk);
    const row_range here = {rows.row, smaller(left, rows.end)};
    if (low >= keys)
      break;
    const uint64_t one = count_band(here, low, smaller(high, keys), first, end);
    int64_t alike = 1;
    if (at == low && rows.end - rows.row >= chunk && keys - low >= chunk) {
      alike = smaller(rows.end - rows.row, keys - low) / chunk;
      rows.row += alike * chunk;
    } else {
      rows.row = here.end;
    }
    pairs += one * (uint64_t)alike;
  }
  return pairs;
}

static uint64_t count_range(const clattn_problem *problem, row_range rows, int64_t keys, int64_t first, int64_t end,
                            int64_t offset) {
  if (problem->chunk > 0)
    return count_chunks(rows, keys, first, end, offset, problem->chunk);
  return count_band(rows, 0, keys, first, end);
}

/* Of one head and one sequence. */
static uint64_t count_sequence(const clattn_problem *problem, int64_t q_len, int64_t k_len) {
  const int64_t offset = clattni_offset(problem, q_len, k_len, 0, 0);
  const int64_t prefix = problem->prefix_mode == CLATTN_PREFIX_VALUE ? problem->prefix : 0;
  const band seen = rule_band(problem, offset);
  if (!problem->causal) {
    const row_range all = {0, q_len};
    return count_range(problem, all, k_len, seen.first, seen.end, offset);
  }
  /* Up to this row the prefix decides, from it on the row's own position. */
  const int64_t turn = offset == INT64_MIN ? q_len : clamp(saturating_add(prefix - 1, -offset), 0, q_len);
  const row_range before = {0, turn}, after = {turn, q_len};
  const int64_t end = smaller(seen.end, seen.causal);
  return count_range(problem, before, smaller(prefix, k_len), seen.first, seen.end, offset) +
         count_range(problem, after, k_len, seen.first, end, offset);
}

static uint64_t saturating_multiply(uint64_t a, uint64_t b) {
  return a != 0 && b > UINT64_MAX / a ? UINT64_MAX : a * b;
}

static uint64_t saturating_sum(uint64_t a, uint64_t b) {
  return b > UINT64_MAX - a ? UINT64_MAX : a + b;
}

uint64_t clattni_count_pairs(const clattn_problem *resolved, const clattni_sizes *sizes) {
  int64_t sequences = sizes->batch, rest = 0;
  if (clattni_packed_q(resolved)) {
    int64_t rows; /* more than all sequences hold there can't be */
    (void)clattni_multiply(sizes->batch, sizes->q_len, &rows);
    rows = smaller(rows, sizes->total_q);
    sequences = rows > 0 ? rows / sizes->q_len : 0;
    rest = rows > 0 ? rows % sizes->q_len : 0;
  }
  const uint64_t pairs =
      saturating_sum(saturating_multiply(count_sequence(resolved, sizes->q_len, sizes->k_len), (uint64_t)sequences),
                     count_sequence(resolved, rest, sizes->k_len));
  return saturating_multiply(pairs, (uint64_t)resolved->q_heads);
}

/* ---- slopes ---------------------------------------------------------------------------------------------------- */

clattn_status clattn_alibi_slopes(int64_t heads, float *slopes) {
  if (slopes == NULL)
    return CLATTN_ERROR_NULL_POINTER;
  if (heads < 1)
    return CLATTN_ERROR_SHAPE;
  int64_t power = 1; /* the largest power of two up to heads */
  while (power <= heads / 2)
    power *= 2;
  for (int64_t h = 0; h < heads; h++) {
    const double step = h < power ? (double)(h + 1) : (double)(h - power) + 0.5;
    slopes[h] = (float)exp2(-8.0 * step / (double)power);
  }
  return CLATTN_SUCCESS;
}
