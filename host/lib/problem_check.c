/* SPDX-License-Identifier: Apache-2.0 */
/* What a problem must keep, in the order in which it is asked: struct, reserved words, enums, sizes, heads, packed and
 * paged layouts, rotary embedding, strides, extents, alignment, scalars; last, what this release does not support yet.
 */
#include "problem_internal.h"

#include "dtype.h"
#include "status.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define MAX_SIZE INT64_C(2147483647)
#define MAX_KEYS (MAX_SIZE - 4096) /* kernels count whole blocks of keys in int */
#define MAX_ALIGNMENT 4096u

/* ---- types and layouts that a tensor may have ------------------------------------------------------------------ */

#define BIT(value) (1u << (value))
#define FLOATS (BIT(CLATTN_F32) | BIT(CLATTN_F16) | BIT(CLATTN_BF16))

static unsigned legal_dtypes(const clattn_problem *p, clattni_slot slot) {
  switch (slot) {
  case CLATTNI_Q:
  case CLATTNI_O:
  case CLATTNI_BIAS:
    return FLOATS;
  case CLATTNI_K:
  case CLATTNI_V:
    return FLOATS | BIT(CLATTN_I8) | BIT(CLATTN_I4);
  case CLATTNI_K_SCALE:
  case CLATTNI_V_SCALE:
    return BIT(CLATTN_F32) | BIT(CLATTN_F16);
  case CLATTNI_SCORES:
    return (BIT(CLATTN_F32) | BIT(p->o.dtype)) & FLOATS;
  case CLATTNI_LSE:
  case CLATTNI_MAX_LOGIT:
  case CLATTNI_KEEP_MASK: /* a mask's dtype stays 0 */
  case CLATTNI_BLOCK_MASK:
  case CLATTNI_ALIBI_SLOPES:
  case CLATTNI_SINK:
  case CLATTNI_PAGE_TABLE:
  case CLATTNI_HEAD_SCALE:
  case CLATTNI_ADD_W:
  case CLATTNI_ROPE_COS:
  case CLATTNI_ROPE_SIN:
  case CLATTNI_POSITIONS_Q:
  case CLATTNI_POSITIONS_K:
  case CLATTNI_SLOTS:
    break;
  }
  return BIT(CLATTN_F32);
}

static int can_be_paged(clattni_slot slot) {
  return slot == CLATTNI_K || slot == CLATTNI_V || slot == CLATTNI_K_SCALE || slot == CLATTNI_V_SCALE;
}

static int can_be_packed(clattni_slot slot) {
  return slot <= CLATTNI_LSE || can_be_paged(slot); /* q, k, v, o, lse */
}

static clattn_status check_types(const clattn_problem *p, clattn_error *error) {
  for (clattni_slot slot = 0; slot < CLATTNI_SLOTS; slot++) {
    const clattn_tensor *tensor = clattni_slot_tensor(p, slot);
    const char *name = clattni_slot_name(slot);
    if (!clattni_slot_used(p, slot))
      continue;
    if ((legal_dtypes(p, slot) & BIT(tensor->dtype)) == 0)
      return clattni_fail(error, CLATTN_ERROR_ENUM, "%s dtype is %s: not a type that %s can have", name,
                          clattni_dtype_name(tensor->dtype), name);
    if (tensor->layout == CLATTN_LAYOUT_PAGED && !can_be_paged(slot))
      return clattni_fail(error, CLATTN_ERROR_ENUM, "%s layout is paged: only k, v and their scales can be paged",
                          name);
    if (tensor->layout == CLATTN_LAYOUT_PACKED && !can_be_packed(slot))
      return clattni_fail(error, CLATTN_ERROR_ENUM,
                          "%s layout is packed: only q, k, v, o, lse and the scales of k and v can be packed", name);
  }
  if (p->block_mask_kind == CLATTN_MASK_U8)
    return clattni_fail(error, CLATTN_ERROR_ENUM, "block_mask_kind is %d (u8): must be none or bits", CLATTN_MASK_U8);
  return CLATTN_SUCCESS;
}

/* ---- sizes ----------------------------------------------------------------------------------------------------- */

static clattn_status check_sizes(const clattn_problem *p, clattn_error *error) {
  const struct {
    const char *name;
    int64_t value, least;
  } sizes[] = {
      {"batch", p->batch, 0},         {"q_heads", p->q_heads, 0},     {"kv_heads", p->kv_heads, 0},
      {"q_len", p->q_len, 0},         {"k_len", p->k_len, 0},         {"qk_dim", p->qk_dim, 1},
      {"v_dim", p->v_dim, 0},         {"total_q", p->total_q, 0},     {"total_k", p->total_k, 0},
      {"num_pages", p->num_pages, 0}, {"max_pages", p->max_pages, 0}, {"page_size", p->page_size, 0},
  };
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    if (sizes[i].value < sizes[i].least || sizes[i].value > MAX_SIZE)
      return clattni_fail(error, CLATTN_ERROR_SHAPE, "%s is %" PRId64 ": must be %" PRId64 " to %" PRId64,
                          sizes[i].name, sizes[i].value, sizes[i].least, MAX_SIZE);
  }
  if (p->k_len > MAX_KEYS)
    return clattni_fail(error, CLATTN_ERROR_SHAPE, "k_len is %" PRId64 ": must be 0 to %" PRId64, p->k_len, MAX_KEYS);
  const int64_t q_heads = p->q_heads != 0 ? p->q_heads : 1;
  if (p->kv_heads != 0 && q_heads % p->kv_heads != 0)
    return clattni_fail(error, CLATTN_ERROR_SHAPE, "kv_heads %" PRId64 " does not divide q_heads %" PRId64, p->kv_heads,
                        q_heads);
  if (p->block_mask_kind != CLATTN_MASK_NONE && (p->block_q < 1 || p->block_k < 1))
    return clattni_fail(error, CLATTN_ERROR_SHAPE, "block_q is %" PRId64 ", block_k is %" PRId64 ": must be >= 1",
                        p->block_q, p->block_k);
  return CLATTN_SUCCESS;
}

/* ---- packed and paged ------------------------------------------------------------------------------------------ */

/* Sizes that only a packed or paged layout reads.  No enum beside them says whether they count, so that one that does
 * not is likelier a layout forgotten than a value left over. */
static clattn_status check_unread_sizes(const clattn_problem *p, clattn_error *error) {
  const struct {
    const char *name;
    int64_t value;
    int read;
    const char *layout;
  } sizes[] = {
      {"total_q", p->total_q, clattni_packed_q(p), "q is not packed"},
      {"total_k", p->total_k, clattni_packed_k(p), "k is not packed"},
      {"num_pages", p->num_pages, clattni_paged(p), "k is not paged"},
      {"max_pages", p->max_pages, clattni_paged(p), "k is not paged"},
      {"page_size", p->page_size, clattni_paged(p), "k is not paged"},
  };
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    if (sizes[i].value != 0 && !sizes[i].read)
      return clattni_fail(error, CLATTN_ERROR_VALUE, "%s is %" PRId64 ": must be 0, %s", sizes[i].name, sizes[i].value,
                          sizes[i].layout);
  }
  /* Forgotten, it would make an enqueue whose sequences are known to the device alone do nothing. */
  if (clattni_packed_q(p) && p->total_q == 0 && p->q_len > 0)
    return clattni_fail(error, CLATTN_ERROR_SHAPE, "total_q is 0: a packed q of q_len %" PRId64 " needs its bound",
                        p->q_len);
  if (clattni_packed_k(p) && p->k_len == 0 && p->total_k > MAX_KEYS)
    return clattni_fail(error, CLATTN_ERROR_SHAPE, "k_len is 0, for total_k %" PRId64 ": must be given above %" PRId64,
                        p->total_k, MAX_KEYS);
  if (clattni_packed_k(p) && p->total_k == 0 && p->k_len > 0)
    return clattni_fail(error, CLATTN_ERROR_SHAPE, "total_k is 0: a packed k of k_len %" PRId64 " needs its bound",
                        p->k_len);
  return CLATTN_SUCCESS;
}

static clattn_status check_layouts_agree(const clattn_problem *p, clattn_error *error) {
  static const clattni_slot of_queries[] = {CLATTNI_O, CLATTNI_LSE};
  for (size_t i = 0; i < sizeof of_queries / sizeof of_queries[0]; i++) {
    const clattn_tensor *tensor = clattni_slot_tensor(p, of_queries[i]);
    if (clattni_slot_used(p, of_queries[i]) && (tensor->layout == CLATTN_LAYOUT_PACKED) != clattni_packed_q(p))
      return clattni_fail(
          error, CLATTN_ERROR_SHAPE, "%s layout is %s, q layout is %s: q, o and lse are packed together or not at all",
          clattni_slot_name(of_queries[i]), clattni_layout_name(tensor->layout), clattni_layout_name(p->q.layout));
  }
  if (clattni_slot_used(p, CLATTNI_V) && ((p->v.layout == CLATTN_LAYOUT_PACKED) != clattni_packed_k(p) ||
                                          (p->v.layout == CLATTN_LAYOUT_PAGED) != clattni_paged(p)))
    return clattni_fail(error, CLATTN_ERROR_SHAPE,
                        "v layout is %s, k layout is %s: k and v are packed or paged together or not at all",
                        clattni_layout_name(p->v.layout), clattni_layout_name(p->k.layout));
  static const clattni_slot scales[][2] = {{CLATTNI_K_SCALE, CLATTNI_K}, {CLATTNI_V_SCALE, CLATTNI_V}};
  for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++) {
    const clattn_layout layout = clattni_slot_tensor(p, scales[i][0])->layout;
    const clattn_layout rows = clattni_slot_tensor(p, scales[i][1])->layout;
    if (clattni_slot_used(p, scales[i][0]) && ((layout == CLATTN_LAYOUT_PACKED) != (rows == CLATTN_LAYOUT_PACKED) ||
                                               (layout == CLATTN_LAYOUT_PAGED) != (rows == CLATTN_LAYOUT_PAGED)))
      return clattni_fail(error, CLATTN_ERROR_SHAPE,
                          "%s layout is %s, %s layout is %s: scales are packed or paged where their rows are",
                          clattni_slot_name(scales[i][0]), clattni_layout_name(layout), clattni_slot_name(scales[i][1]),
                          clattni_layout_name(rows));
  }
  return CLATTN_SUCCESS;
}

static clattn_status check_pages(const clattn_problem *p, clattn_error *error) {
  if (p->k_length_mode != CLATTN_LENGTH_PER_BATCH)
    return clattni_fail(error, CLATTN_ERROR_VALUE, "k_length_mode is %d (full): paged k and v need per_batch",
                        CLATTN_LENGTH_FULL);
  if (p->page_size < 1)
    return clattni_fail(error, CLATTN_ERROR_SHAPE, "page_size is %" PRId64 ": must be >= 1 where k and v are paged",
                        p->page_size);
  if (p->num_pages < 1 && p->k_len > 0)
    return clattni_fail(error, CLATTN_ERROR_SHAPE, "num_pages is %" PRId64 ": must be >= 1 for k_len %" PRId64,
                        p->num_pages, p->k_len);
  if (p->max_pages * p->page_size < p->k_len) /* both are sizes: the product fits */
    return clattni_fail(error, CLATTN_ERROR_SHAPE,
                        "max_pages %" PRId64 " of page_size %" PRId64 " hold %" PRId64
                        " keys: must be at least k_len %" PRId64,
                        p->max_pages, p->page_size, p->max_pages * p->page_size, p->k_len);
  return CLATTN_SUCCESS;
}

static clattn_status check_packed_and_paged(const clattn_problem *p, clattn_error *error) {
  clattn_status status = check_layouts_agree(p, error);
  if (status == CLATTN_SUCCESS)
    status = check_unread_sizes(p, error);
  if (status == CLATTN_SUCCESS && clattni_paged(p))
    status = check_pages(p, error);
  return status;
}

/* ---- rotary embedding ------------------------------------------------------------------------------------------ */

/* Without positions of their own, rows and keys must find their lines in the tables.  Where they stand follows from
 * lengths with BOTTOM_RIGHT, and from an array with PER_BATCH: those are clamped, or the enqueue's to check. */
static clattn_status check_rows_of_tables(const clattn_problem *r, clattn_error *error) {
  const int known = r->offset_mode == CLATTN_OFFSET_TOP_LEFT || r->offset_mode == CLATTN_OFFSET_VALUE;
  const int64_t offset = r->offset_mode == CLATTN_OFFSET_VALUE ? r->offset : 0;
  if (r->k_len > r->rope_positions)
    return clattni_fail(error, CLATTN_ERROR_SHAPE,
                        "rope_positions is %" PRId64 ": must be at least k_len %" PRId64
                        ", as keys stand at 0 to k_len - 1 without use_positions",
                        r->rope_positions, r->k_len);
  if (known && offset < 0)
    return clattni_fail(error, CLATTN_ERROR_VALUE,
                        "offset is %" PRId64 ": must be >= 0 with rope, whose tables start at position 0", offset);
  if (known && (offset > MAX_SIZE || offset + r->q_len > r->rope_positions))
    return clattni_fail(error, CLATTN_ERROR_SHAPE,
                        "rope_positions is %" PRId64 ": must be at least offset %" PRId64 " + q_len %" PRId64
                        ", as rows stand there without use_positions",
                        r->rope_positions, offset, r->q_len);
  return CLATTN_SUCCESS;
}

static clattn_status check_rope(const clattn_problem *r, clattn_error *error) {
  if (r->rope == CLATTN_ROPE_NONE)
    return CLATTN_SUCCESS;
  if (r->rope_dim < 2 || r->rope_dim % 2 != 0 || r->rope_dim > r->qk_dim)
    return clattni_fail(error, CLATTN_ERROR_SHAPE, "rope_dim is %" PRId64 ": must be even, from 2 to qk_dim %" PRId64,
                        r->rope_dim, r->qk_dim);
  if (r->rope_positions < 1 || r->rope_positions > MAX_SIZE)
    return clattni_fail(error, CLATTN_ERROR_SHAPE,
                        "rope_positions is %" PRId64 ": must be 1 to %" PRId64 ", or 0 for k_len", r->rope_positions,
                        MAX_SIZE);
  return r->use_positions ? CLATTN_SUCCESS : check_rows_of_tables(r, error);
}

/* One set of strides serves both tables. */
static clattn_status check_tables_alike(const clattn_problem *r, const clattni_sizes *sizes, clattn_error *error) {
  int64_t of_cos[4], of_sin[4];
  if (r->rope == CLATTN_ROPE_NONE)
    return CLATTN_SUCCESS;
  clattni_slot_strides(r, sizes, CLATTNI_ROPE_COS, of_cos);
  clattni_slot_strides(r, sizes, CLATTNI_ROPE_SIN, of_sin);
  for (int axis = 0; axis < 4; axis++) {
    if (of_cos[axis] != of_sin[axis])
      return clattni_fail(error, CLATTN_ERROR_STRIDE,
                          "rope_cos has stride[%d] %" PRId64 ", rope_sin %" PRId64 ": both tables must lie alike", axis,
                          of_cos[axis], of_sin[axis]);
  }
  return CLATTN_SUCCESS;
}

/* ---- strides --------------------------------------------------------------------------------------------------- */

static int is_empty(const int64_t shape[4]) {
  return shape[0] == 0 || shape[1] == 0 || shape[2] == 0 || shape[3] == 0;
}

static clattn_status check_stride(const clattn_problem *r, const clattni_sizes *sizes, clattni_slot slot, int axis,
                                  clattn_error *error) {
  static const char *const axes[4] = {"batch", "head", "row", "element"};
  const clattn_tensor *tensor = clattni_slot_tensor(r, slot);
  const char *name = clattni_slot_name(slot);
  const int64_t stride = tensor->stride[axis];
  int64_t shape[4];
  if (!clattni_strides_given(tensor)) {
    if (stride == 0)
      return CLATTN_SUCCESS;
    return clattni_fail(error, CLATTN_ERROR_STRIDE,
                        "%s stride[%d] is %" PRId64 ": must be 0 in layout %s, which does not read strides", name, axis,
                        stride, clattni_layout_name(tensor->layout));
  }
  if (stride < 0)
    return clattni_fail(error, CLATTN_ERROR_STRIDE, "%s stride[%d] is %" PRId64 ": strides must be >= 0", name, axis,
                        stride);
  if (!clattni_slot_has_axis(slot, axis) && stride != 0)
    return clattni_fail(error, CLATTN_ERROR_STRIDE, "%s stride[%d] is %" PRId64 ": must be 0, %s has no %s axis", name,
                        axis, stride, name, axes[axis]);
  if (tensor->layout == CLATTN_LAYOUT_PACKED && axis == 0 && stride != 0)
    return clattni_fail(error, CLATTN_ERROR_STRIDE,
                        "%s stride[0] is %" PRId64 ": must be 0, a packed tensor has no batch axis", name, stride);
  if ((slot == CLATTNI_BLOCK_MASK || (slot == CLATTNI_KEEP_MASK && r->keep_mask_kind == CLATTN_MASK_BITS)) &&
      axis == 3 && stride > 1)
    return clattni_fail(error, CLATTN_ERROR_STRIDE, "%s stride[3] is %" PRId64 ": must be 0 or 1 for a mask of bits",
                        name, stride);
  if (tensor->dtype == CLATTN_I4 && axis == 3 && stride != 1)
    return clattni_fail(error, CLATTN_ERROR_STRIDE, "%s stride[3] is %" PRId64 ": must be 1 for i4", name, stride);
  if (tensor->dtype == CLATTN_I4 && stride % 2 != 0 && axis != 3)
    return clattni_fail(error, CLATTN_ERROR_STRIDE,
                        "%s stride[%d] is %" PRId64 ": must be even for i4, so that rows start on a byte", name, axis,
                        stride);
  clattni_slot_shape(r, sizes, slot, shape);
  if (clattni_slot_is_output(slot) && stride == 0 && shape[axis] > 1 && !is_empty(shape))
    return clattni_fail(error, CLATTN_ERROR_STRIDE,
                        "%s stride[%d] is 0 on an axis of size %" PRId64 ": an output can not be broadcast", name, axis,
                        shape[axis]);
  return CLATTN_SUCCESS;
}

static clattn_status check_strides(const clattn_problem *r, const clattni_sizes *sizes, clattn_error *error) {
  for (clattni_slot slot = 0; slot < CLATTNI_SLOTS; slot++) {
    for (int axis = 0; axis < 4 && clattni_slot_used(r, slot); axis++) {
      const clattn_status status = check_stride(r, sizes, slot, axis, error);
      if (status != CLATTN_SUCCESS)
        return status;
    }
  }
  return CLATTN_SUCCESS;
}

/* In bytes, because kernels and buffers count them. */
static clattn_status check_extents(const clattn_problem *r, const clattni_sizes *sizes, clattn_error *error) {
  for (clattni_slot slot = 0; slot < CLATTNI_SLOTS; slot++) {
    int64_t shape[4], stride[4], elements;
    if (!clattni_slot_used(r, slot))
      continue;
    clattni_slot_shape(r, sizes, slot, shape);
    if (!clattni_slot_strides_checked(r, sizes, slot, stride) || !clattni_extent(shape, stride, &elements) ||
        clattni_slot_bytes(r, slot, elements) < 0)
      return clattni_fail(error, CLATTN_ERROR_OVERFLOW,
                          "%s of shape (%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
                          ") reaches beyond 2^63 - 1 bytes",
                          clattni_slot_name(slot), shape[0], shape[1], shape[2], shape[3]);
  }
  return CLATTN_SUCCESS;
}

/* No two elements share a place if every axis steps beyond all that the axes of smaller strides can reach. */
static clattn_status check_rows_apart(const clattn_problem *r, const clattni_sizes *sizes, clattni_slot slot,
                                      clattn_error *error) {
  int64_t shape[4], stride[4], reach = 0;
  int done[4] = {0, 0, 0, 0};
  clattni_slot_shape(r, sizes, slot, shape);
  clattni_slot_strides(r, sizes, slot, stride);
  if (is_empty(shape))
    return CLATTN_SUCCESS;
  for (;;) {
    int next = -1;
    for (int axis = 0; axis < 4; axis++) {
      if (!done[axis] && shape[axis] > 1 && (next < 0 || stride[axis] < stride[next]))
        next = axis;
    }
    if (next < 0)
      return CLATTN_SUCCESS;
    if (stride[next] <= reach)
      return clattni_fail(error, CLATTN_ERROR_STRIDE,
                          "%s stride[%d] is %" PRId64 ": must be above %" PRId64
                          ", the reach of the axes with smaller strides, or elements of the output overlap",
                          clattni_slot_name(slot), next, stride[next], reach);
    reach += (shape[next] - 1) * stride[next]; /* the extent was checked to fit */
    done[next] = 1;
  }
}

static clattn_status check_outputs_apart(const clattn_problem *r, const clattni_sizes *sizes, clattn_error *error) {
  for (clattni_slot slot = 0; slot < CLATTNI_SLOTS; slot++) {
    if (!clattni_slot_used(r, slot) || !clattni_slot_is_output(slot) ||
        !clattni_strides_given(clattni_slot_tensor(r, slot)))
      continue;
    const clattn_status status = check_rows_apart(r, sizes, slot, error);
    if (status != CLATTN_SUCCESS)
      return status;
  }
  return CLATTN_SUCCESS;
}

/* Of q, k, v or o, for messages. */
static const char *element_size(const clattn_problem *r, clattni_slot slot) {
  static const char *const sizes[] = {[CLATTN_F32] = "4 bytes",
                                      [CLATTN_F16] = "2 bytes",
                                      [CLATTN_BF16] = "2 bytes",
                                      [CLATTN_I8] = "1 byte",
                                      [CLATTN_I4] = "half a byte"};
  return sizes[clattni_slot_tensor(r, slot)->dtype];
}

/* Only at the bounds: strides of the EXACT layouts at smaller sizes are multiples of the same rows. */
static clattn_status check_alignment(const clattn_problem *r, const clattni_sizes *sizes, clattn_error *error) {
  const uint32_t promised = r->alignment;
  if ((promised & (promised - 1)) != 0 || promised > MAX_ALIGNMENT)
    return clattni_fail(error, CLATTN_ERROR_ALIGNMENT, "alignment is %" PRIu32 ": must be 0 or a power of two up to %u",
                        promised, MAX_ALIGNMENT);
  for (clattni_slot slot = CLATTNI_Q; slot <= CLATTNI_O && promised != 0; slot++) { /* q, k, v, o */
    int64_t shape[4], stride[4];
    if (!clattni_slot_used(r, slot))
      continue;
    clattni_slot_shape(r, sizes, slot, shape);
    clattni_slot_strides(r, sizes, slot, stride);
    for (int axis = 0; axis < 3; axis++) { /* the last one is the element's */
      /* the remainder first: strides of empty tensors may not fit in bytes; twice, for elements of half a byte */
      if (shape[axis] > 1 && clattni_slot_bytes(r, slot, stride[axis] % (2 * (int64_t)promised)) % promised != 0)
        return clattni_fail(error, CLATTN_ERROR_ALIGNMENT,
                            "%s stride[%d] is %" PRId64
                            " elements of %s: not a multiple of the promised alignment %" PRIu32,
                            clattni_slot_name(slot), axis, stride[axis], element_size(r, slot), promised);
    }
  }
  return CLATTN_SUCCESS;
}

/* ---- scalars --------------------------------------------------------------------------------------------------- */

static clattn_status check_scalars(const clattn_problem *p, clattn_error *error) {
  if (p->scale_mode == CLATTN_SCALE_VALUE && !isfinite(p->scale))
    return clattni_fail(error, CLATTN_ERROR_VALUE, "scale is %g: must be finite", (double)p->scale);
  if (!isfinite(p->softcap) || p->softcap < 0.0f)
    return clattni_fail(error, CLATTN_ERROR_VALUE, "softcap is %g: must be finite and > 0, or 0 for none",
                        (double)p->softcap);
  if ((p->window & CLATTN_WINDOW_LEFT) && p->window_left < 0)
    return clattni_fail(error, CLATTN_ERROR_VALUE, "window_left is %" PRId64 ": must be >= 0", p->window_left);
  if ((p->window & CLATTN_WINDOW_RIGHT) && p->window_right < 0)
    return clattni_fail(error, CLATTN_ERROR_VALUE, "window_right is %" PRId64 ": must be >= 0", p->window_right);
  if (p->offset_mode == CLATTN_OFFSET_VALUE && (p->offset > MAX_SIZE || p->offset < -MAX_SIZE))
    return clattni_fail(error, CLATTN_ERROR_VALUE, "offset is %" PRId64 ": must be within +-%" PRId64, p->offset,
                        MAX_SIZE);
  if (p->prefix_mode == CLATTN_PREFIX_VALUE && (p->prefix < 0 || p->prefix > MAX_SIZE))
    return clattni_fail(error, CLATTN_ERROR_VALUE, "prefix is %" PRId64 ": must be 0 to %" PRId64, p->prefix, MAX_SIZE);
  if (p->chunk < 0)
    return clattni_fail(error, CLATTN_ERROR_VALUE, "chunk is %" PRId64 ": must be >= 0", p->chunk);
  if (!(p->dropout >= 0.0f && p->dropout < 1.0f))
    return clattni_fail(error, CLATTN_ERROR_VALUE, "dropout is %g: must be >= 0 and < 1", (double)p->dropout);
  return CLATTN_SUCCESS;
}

/* ---- what comes later ------------------------------------------------------------------------------------------ */

static clattn_status check_supported(const clattn_problem *p, clattn_error *error) {
  const struct {
    int wanted;
    const char *what;
  } later[] = {
      {p->pass != CLATTN_FORWARD, "pass backward"},
      {p->gradients != 0, "gradients"},
      {p->accumulate != 0, "accumulate"},
      {p->dropout > 0.0f, "dropout"},
  };
  for (size_t i = 0; i < sizeof later / sizeof later[0]; i++) {
    if (later[i].wanted)
      return clattni_fail(error, CLATTN_ERROR_NOT_SUPPORTED, "%s is not supported yet", later[i].what);
  }
  const struct {
    const clattn_tensor *tensor;
    const char *name;
  } tensors[] = {
      {&p->d_o, "d_o"}, {&p->d_lse, "d_lse"},   {&p->d_q, "d_q"},       {&p->d_k, "d_k"},
      {&p->d_v, "d_v"}, {&p->d_bias, "d_bias"}, {&p->d_sink, "d_sink"},
  };
  static const clattn_tensor absent;
  for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
    if (memcmp(tensors[i].tensor, &absent, sizeof absent) != 0)
      return clattni_fail(error, CLATTN_ERROR_NOT_SUPPORTED, "tensor %s is not supported yet", tensors[i].name);
  }
  return CLATTN_SUCCESS;
}

clattn_status clattn_problem_check(const clattn_problem *problem, clattn_error *error) {
  clattn_problem resolved;
  clattn_status status;
  clattni_clear(error);
  if (problem == NULL)
    return clattni_fail(error, CLATTN_ERROR_NULL_POINTER, "problem is NULL");
  if (problem->struct_size != sizeof *problem)
    return clattni_fail(error, CLATTN_ERROR_STRUCT_SIZE,
                        "problem struct_size is %zu: must be %zu, as clattn_problem_init sets it", problem->struct_size,
                        sizeof *problem);
  if ((status = clattni_check_fields(problem, error)) != CLATTN_SUCCESS ||
      (status = check_types(problem, error)) != CLATTN_SUCCESS ||
      (status = check_sizes(problem, error)) != CLATTN_SUCCESS ||
      (status = check_packed_and_paged(problem, error)) != CLATTN_SUCCESS)
    return status;
  clattni_problem_resolve(problem, &resolved);
  const clattni_sizes bounds = clattni_bounds(&resolved);
  if ((status = check_rope(&resolved, error)) != CLATTN_SUCCESS ||
      (status = check_strides(&resolved, &bounds, error)) != CLATTN_SUCCESS ||
      (status = check_extents(&resolved, &bounds, error)) != CLATTN_SUCCESS ||
      (status = check_tables_alike(&resolved, &bounds, error)) != CLATTN_SUCCESS ||
      (status = check_outputs_apart(&resolved, &bounds, error)) != CLATTN_SUCCESS ||
      (status = check_alignment(&resolved, &bounds, error)) != CLATTN_SUCCESS ||
      (status = check_scalars(problem, error)) != CLATTN_SUCCESS)
    return status;
  return check_supported(problem, error);
}
