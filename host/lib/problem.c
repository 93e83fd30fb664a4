/* SPDX-License-Identifier: Apache-2.0 */
/* Defaults, shapes, strides, extents, key intervals and counts. */
#include "problem_internal.h"

#include "dtype.h"

#include <math.h>
#include <string.h>

typedef struct slot_row {
  const char *name;
  size_t offset; /* of the tensor in clattn_problem */
  int axes;
  int is_output;
} slot_row;

static const slot_row slots[CLATTNI_SLOTS] = {
    [CLATTNI_Q] = {"q", offsetof(clattn_problem, q), 4, 0},
    [CLATTNI_K] = {"k", offsetof(clattn_problem, k), 4, 0},
    [CLATTNI_V] = {"v", offsetof(clattn_problem, v), 4, 0},
    [CLATTNI_O] = {"o", offsetof(clattn_problem, o), 4, 1},
    [CLATTNI_LSE] = {"lse", offsetof(clattn_problem, lse), 3, 1},
    [CLATTNI_SCORES] = {"scores", offsetof(clattn_problem, scores), 4, 1},
    [CLATTNI_MAX_LOGIT] = {"max_logit", offsetof(clattn_problem, max_logit), 2, 1},
    [CLATTNI_BIAS] = {"bias", offsetof(clattn_problem, bias), 4, 0},
    [CLATTNI_KEEP_MASK] = {"keep_mask", offsetof(clattn_problem, keep_mask), 4, 0},
};

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

int clattni_slot_axes(clattni_slot slot) {
  return slots[slot].axes;
}

const clattn_tensor *clattni_slot_tensor(const clattn_problem *problem, clattni_slot slot) {
  return (const clattn_tensor *)(const void *)((const char *)problem + slots[slot].offset);
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
  case CLATTNI_SLOTS:
    break;
  }
  return 0;
}

size_t clattni_slot_element_bytes(const clattn_problem *problem, clattni_slot slot) {
  if (slot == CLATTNI_KEEP_MASK)
    return problem->keep_mask_kind == CLATTN_MASK_BITS ? 4 : 1;
  return clattni_dtype_bytes(clattni_slot_tensor(problem, slot)->dtype);
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
  if (resolved->v_dim == 0)
    resolved->v_dim = resolved->qk_dim;
  if (resolved->outputs == 0)
    resolved->outputs = CLATTN_OUT_O;
  if (resolved->scale_mode == CLATTN_SCALE_DEFAULT) {
    resolved->scale_mode = CLATTN_SCALE_VALUE;
    resolved->scale = resolved->similarity == CLATTN_DOT ? (float)(1.0 / sqrt((double)resolved->qk_dim)) : 1.0f;
  }
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

void clattni_slot_shape(const clattn_problem *resolved, const clattni_sizes *sizes, clattni_slot slot,
                        int64_t shape[4]) {
  const int of_keys = slot == CLATTNI_K || slot == CLATTNI_V;
  shape[0] = sizes->batch;
  shape[1] = of_keys ? resolved->kv_heads : resolved->q_heads;
  shape[2] = of_keys ? sizes->k_len : sizes->q_len;
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
    shape[3] = resolved->keep_mask_kind == CLATTN_MASK_BITS ? (sizes->k_len + 31) / 32 : sizes->k_len;
    break;
  case CLATTNI_BIAS:
  case CLATTNI_SCORES:
    shape[3] = sizes->k_len;
    break;
  case CLATTNI_MAX_LOGIT:
    shape[2] = 1;
    shape[3] = 1;
    break;
  case CLATTNI_LSE:
  case CLATTNI_SLOTS:
    shape[3] = 1;
    break;
  }
}

int clattni_slot_strides_checked(const clattn_problem *resolved, const clattni_sizes *sizes, clattni_slot slot,
                                 int64_t stride[4]) {
  static const int bhsd[4] = {3, 2, 1, 0}, bshd[4] = {3, 1, 2, 0}; /* axes from the innermost one */
  const clattni_sizes bounds = {resolved->batch, resolved->q_len, resolved->k_len};
  const clattn_tensor *tensor = clattni_slot_tensor(resolved, slot);
  const int *order = bhsd;
  int64_t shape[4];
  memset(stride, 0, 4 * sizeof stride[0]);
  switch (tensor->layout) {
  case CLATTN_LAYOUT_BHSD:
  case CLATTN_LAYOUT_BSHD:
    sizes = &bounds;
    break;
  case CLATTN_LAYOUT_BHSD_EXACT:
  case CLATTN_LAYOUT_BSHD_EXACT:
    break;
  case CLATTN_LAYOUT_STRIDED:
    memcpy(stride, tensor->stride, 4 * sizeof stride[0]);
    return 1;
  default: /* packed and paged rows do not lie on four strides */
    return 1;
  }
  if (tensor->layout == CLATTN_LAYOUT_BSHD || tensor->layout == CLATTN_LAYOUT_BSHD_EXACT)
    order = bshd;
  clattni_slot_shape(resolved, sizes, slot, shape);
  int64_t next = 1;
  int fits = 1;
  for (int i = 0; i < 4; i++) {
    const int axis = order[i];
    if (axis >= slots[slot].axes)
      continue;
    stride[axis] = next;
    if (axis != 0 && !clattni_multiply(next, shape[axis], &next))
      fits = 0;
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

static int64_t clamp(int64_t x, int64_t low, int64_t high) {
  return x < low ? low : x > high ? high : x;
}

/* Row i sees the keys i + first <= j < i + end, cut to those that exist.  A side without a limit is INT64_MIN or
 * INT64_MAX.  The offset meets the window before the row does: then whatever saturates lies beyond every key. */
typedef struct band {
  int64_t first, end;
} band;

static band rule_band(const clattn_problem *problem, int64_t offset) {
  band keys = {INT64_MIN, INT64_MAX};
  if (problem->window & CLATTN_WINDOW_LEFT)
    keys.first = saturating_add(offset, -problem->window_left);
  if (problem->window & CLATTN_WINDOW_RIGHT)
    keys.end = saturating_add(saturating_add(offset, problem->window_right), 1);
  if (problem->causal && saturating_add(offset, 1) < keys.end)
    keys.end = saturating_add(offset, 1);
  return keys;
}

void clattni_row_interval(const clattn_problem *resolved, const clattni_row_rules *rules, int64_t row, int64_t *lo,
                          int64_t *hi) {
  const band keys = rule_band(resolved, rules->offset);
  *lo = 0;
  *hi = 0;
  if (row >= rules->q_len)
    return;
  const int64_t first = keys.first == INT64_MIN ? 0 : clamp(saturating_add(keys.first, row), 0, rules->k_len);
  const int64_t end = keys.end == INT64_MAX ? rules->k_len : clamp(saturating_add(keys.end, row), 0, rules->k_len);
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

static uint64_t saturating_multiply(uint64_t a, uint64_t b) {
  return a != 0 && b > UINT64_MAX / a ? UINT64_MAX : a * b;
}

uint64_t clattni_count_pairs(const clattn_problem *resolved, const clattni_sizes *sizes) {
  const int64_t rows = sizes->q_len, keys = sizes->k_len;
  const band seen = rule_band(resolved, clattni_offset(resolved, rows, keys, 0, 0));
  uint64_t pairs = (uint64_t)rows * (uint64_t)keys;
  if (seen.end != INT64_MAX)
    pairs = sum_of_clamped(rows, keys, seen.end);
  if (seen.first != INT64_MIN)
    pairs -= sum_of_clamped(rows, keys, seen.first); /* first < end, so no row counts below zero */
  return saturating_multiply(saturating_multiply(pairs, (uint64_t)sizes->batch), (uint64_t)resolved->q_heads);
}
