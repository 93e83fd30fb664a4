/* SPDX-License-Identifier: Apache-2.0 */
#include "device_rules.h"

static int uses_positions(const executed *x) {
  return x->p->causal || x->p->window != CLATTN_WINDOW_NONE || x->p->chunk > 0 || x->p->alibi != CLATTN_ALIBI_NONE;
}

static int has_causal(const executed *x) {
  return x->p->causal != 0;
}
static int has_top_left(const executed *x) {
  return uses_positions(x) && x->p->offset_mode == CLATTN_OFFSET_TOP_LEFT;
}
static int has_bottom_right(const executed *x) {
  return uses_positions(x) && x->p->offset_mode == CLATTN_OFFSET_BOTTOM_RIGHT;
}
static int has_offset_value(const executed *x) {
  return uses_positions(x) && x->p->offset_mode == CLATTN_OFFSET_VALUE;
}
static int has_offset_per_batch(const executed *x) {
  return uses_positions(x) && x->p->offset_mode == CLATTN_OFFSET_PER_BATCH;
}
static int has_window(const executed *x) {
  return x->p->window != CLATTN_WINDOW_NONE;
}
static int has_chunk(const executed *x) {
  return x->p->chunk > 0;
}
static int has_prefix(const executed *x) {
  return x->p->causal && x->p->prefix_mode == CLATTN_PREFIX_VALUE;
}
static int has_prefix_per_batch(const executed *x) {
  return x->p->causal && x->p->prefix_mode == CLATTN_PREFIX_PER_BATCH;
}
static int has_q_lengths(const executed *x) {
  return x->p->q_length_mode == CLATTN_LENGTH_PER_BATCH;
}
static int has_k_lengths(const executed *x) {
  return x->p->k_length_mode == CLATTN_LENGTH_PER_BATCH;
}
static int has_u8_mask(const executed *x) {
  return x->p->keep_mask_kind == CLATTN_MASK_U8;
}
static int has_bits_mask(const executed *x) {
  return x->p->keep_mask_kind == CLATTN_MASK_BITS;
}
static int has_block_mask(const executed *x) {
  return x->p->block_mask_kind == CLATTN_MASK_BITS;
}
static int has_bias(const executed *x) {
  return x->p->use_bias != 0;
}
static int has_softcap(const executed *x) {
  return x->job->softcap > 0.0f;
}
static int has_low_scale(const executed *x) {
  return x->job->scale <= 0.0f;
}
static int has_signed_alibi(const executed *x) {
  return x->p->alibi == CLATTN_ALIBI_SIGNED;
}
static int has_symmetric_alibi(const executed *x) {
  return x->p->alibi == CLATTN_ALIBI_SYMMETRIC;
}
static int has_slopes_per_batch(const executed *x) {
  return x->p->alibi != CLATTN_ALIBI_NONE && x->p->batch > 1 && x->p->alibi_slopes.stride[0] > 0;
}
static int has_sink(const executed *x) {
  return x->p->use_sink != 0;
}
static int has_groups(const executed *x) {
  return x->p->kv_heads > 1 && x->p->kv_heads < x->p->q_heads;
}
static int has_two_dims(const executed *x) {
  return x->p->qk_dim != x->p->v_dim;
}

/* Element steps in all of q, k, v and o, or a broadcast axis in one of the inputs. */
static int has_strides(const executed *x) {
  return x->p->q.stride[3] > 1 && x->p->k.stride[3] > 1 && x->p->v.stride[3] > 1 && x->p->o.stride[3] > 1;
}
static int is_broadcast(const clattn_tensor *tensor, int64_t heads) {
  return tensor->layout == CLATTN_LAYOUT_STRIDED &&
         ((heads > 1 && tensor->stride[1] == 0) || tensor->stride[2] == 0 || tensor->stride[3] == 0);
}
static int has_broadcast(const executed *x) {
  return is_broadcast(&x->p->q, x->p->q_heads) || is_broadcast(&x->p->k, x->p->kv_heads) ||
         is_broadcast(&x->p->v, x->p->kv_heads);
}
static int has_packed_q(const executed *x) {
  return clattni_packed_q(x->p);
}
static int has_packed_k(const executed *x) {
  return clattni_packed_k(x->p);
}
static int has_pages(const executed *x) {
  return clattni_paged(x->p);
}
static int has_packed_q_and_pages(const executed *x) {
  return clattni_packed_q(x->p) && clattni_paged(x->p);
}
static int has_device_arrays(const executed *x) {
  for (int n = 0; n < JOB_ARRAYS; ++n)
    if (x->job->array[n].given && (x->job->on_device >> n & 1))
      return 1;
  return 0;
}
static int has_device_scalars(const executed *x) {
  return (x->job->on_device & ON_DEVICE_SCALE) && (x->job->on_device & ON_DEVICE_SOFTCAP) && x->p->softcap > 0;
}
static int has_o(const executed *x) {
  return (x->outputs & CLATTN_OUT_O) != 0;
}
static int has_lse(const executed *x) {
  return (x->outputs & CLATTN_OUT_LSE) != 0;
}
static int has_max_logit(const executed *x) {
  return (x->outputs & CLATTN_OUT_MAX_LOGIT) != 0;
}
static int has_stage(const executed *x, clattn_stage stage) {
  return (x->outputs & CLATTN_OUT_SCORES) != 0 && x->stage == stage;
}
static int has_raw(const executed *x) {
  return has_stage(x, CLATTN_STAGE_RAW);
}
static int has_capped(const executed *x) {
  return has_stage(x, CLATTN_STAGE_SOFTCAP);
}
static int has_masked(const executed *x) {
  return has_stage(x, CLATTN_STAGE_MASKED);
}
static int has_weights(const executed *x) {
  return has_stage(x, CLATTN_STAGE_WEIGHTS);
}
static int is_batch_invariant(const executed *x) {
  return (x->p->flags & CLATTN_BATCH_INVARIANT) != 0;
}

static int is_q(const executed *x, clattn_dtype type) {
  return x->p->q.dtype == type;
}
static int is_k(const executed *x, clattn_dtype type) {
  return x->p->k.dtype == type;
}
static int is_v(const executed *x, clattn_dtype type) {
  return has_o(x) && x->p->v.dtype == type;
}
static int is_o(const executed *x, clattn_dtype type) {
  return has_o(x) && x->p->o.dtype == type;
}
#define TYPE_RULE(tensor, name, type)                                                                                  \
  static int has_##tensor##_##name(const executed *x) {                                                                \
    return is_##tensor(x, type);                                                                                       \
  }
TYPE_RULE(q, f16, CLATTN_F16)
TYPE_RULE(q, bf16, CLATTN_BF16)
TYPE_RULE(k, f16, CLATTN_F16)
TYPE_RULE(k, bf16, CLATTN_BF16)
TYPE_RULE(k, i8, CLATTN_I8)
TYPE_RULE(k, i4, CLATTN_I4)
TYPE_RULE(v, f16, CLATTN_F16)
TYPE_RULE(v, bf16, CLATTN_BF16)
TYPE_RULE(v, i8, CLATTN_I8)
TYPE_RULE(v, i4, CLATTN_I4)
TYPE_RULE(o, f16, CLATTN_F16)
TYPE_RULE(o, bf16, CLATTN_BF16)

static int has_half_bias(const executed *x) {
  return x->p->use_bias && x->p->bias.dtype == CLATTN_F16;
}
static int has_bfloat_bias(const executed *x) {
  return x->p->use_bias && x->p->bias.dtype == CLATTN_BF16;
}
static int has_half_k_scale(const executed *x) {
  return clattni_quantised(x->p->k.dtype) && x->p->k_scale.dtype == CLATTN_F16;
}
static int has_half_v_scale(const executed *x) {
  return has_o(x) && clattni_quantised(x->p->v.dtype) && x->p->v_scale.dtype == CLATTN_F16;
}
static int has_typed_scores(const executed *x) {
  return (x->outputs & CLATTN_OUT_SCORES) && x->p->scores.dtype != CLATTN_F32;
}
static int has_cosine(const executed *x) {
  return x->p->similarity == CLATTN_COSINE;
}
static int has_additive(const executed *x) {
  return x->p->similarity == CLATTN_ADDITIVE;
}
static int has_rope_of_halves(const executed *x) {
  return x->p->rope == CLATTN_ROPE_HALF;
}
static int has_rope_of_neighbours(const executed *x) {
  return x->p->rope == CLATTN_ROPE_INTERLEAVED;
}
static int has_part_rotated(const executed *x) {
  return x->p->rope != CLATTN_ROPE_NONE && x->p->rope_dim < x->p->qk_dim;
}
static int has_rope_positions(const executed *x) {
  return clattni_slot_used(x->p, CLATTNI_POSITIONS_Q);
}
static int has_half_math(const executed *x) {
  return x->p->math == CLATTN_MATH_HALF;
}
static int has_head_scale(const executed *x) {
  return x->p->use_head_scale != 0;
}
static int has_some_half(const executed *x) {
  return is_q(x, CLATTN_F16) || is_k(x, CLATTN_F16) || is_v(x, CLATTN_F16) || is_o(x, CLATTN_F16);
}
static int has_some_bfloat(const executed *x) {
  return is_q(x, CLATTN_BF16) || is_k(x, CLATTN_BF16) || is_v(x, CLATTN_BF16) || is_o(x, CLATTN_BF16);
}
static int has_some_i8(const executed *x) {
  return is_k(x, CLATTN_I8) || is_v(x, CLATTN_I8);
}
static int has_some_i4(const executed *x) {
  return is_k(x, CLATTN_I4) || is_v(x, CLATTN_I4);
}

const coverage_rule coverage_rules[] = {
    {"causal", has_causal, RULE_PAIRED, 0},
    {"offset top_left", has_top_left, RULE_ALONE, 1},
    {"offset bottom_right", has_bottom_right, RULE_PAIRED, 1},
    {"offset by value", has_offset_value, RULE_PAIRED, 1},
    {"offset per batch", has_offset_per_batch, RULE_PAIRED, 1},
    {"window", has_window, RULE_PAIRED, 0},
    {"chunk", has_chunk, RULE_PAIRED, 0},
    {"prefix by value", has_prefix, RULE_PAIRED, 2},
    {"prefix per batch", has_prefix_per_batch, RULE_PAIRED, 2},
    {"query lengths", has_q_lengths, RULE_PAIRED, 0},
    {"key lengths", has_k_lengths, RULE_PAIRED, 0},
    {"keep mask, bytes", has_u8_mask, RULE_PAIRED, 3},
    {"keep mask, bits", has_bits_mask, RULE_PAIRED, 3},
    {"block mask", has_block_mask, RULE_PAIRED, 0},
    {"bias", has_bias, RULE_PAIRED, 0},
    {"softcap", has_softcap, RULE_PAIRED, 0},
    {"scale 0 or below", has_low_scale, RULE_PAIRED, 0},
    {"alibi signed", has_signed_alibi, RULE_PAIRED, 4},
    {"alibi symmetric", has_symmetric_alibi, RULE_PAIRED, 4},
    {"slopes per batch", has_slopes_per_batch, RULE_ALONE, 0},
    {"sink", has_sink, RULE_PAIRED, 0},
    {"grouped heads", has_groups, RULE_PAIRED, 0},
    {"D_qk != D_v", has_two_dims, RULE_PAIRED, 0},
    {"strided", has_strides, RULE_ALONE, 0},
    {"broadcast", has_broadcast, RULE_ALONE, 0},
    {"packed queries", has_packed_q, RULE_PAIRED, 0},
    {"packed keys", has_packed_k, RULE_PAIRED, 5},
    {"paged", has_pages, RULE_PAIRED, 5},
    {"packed and paged", has_packed_q_and_pages, RULE_ALONE, 0},
    {"arrays on the device", has_device_arrays, RULE_PAIRED, 0},
    {"scalars on the device", has_device_scalars, RULE_ALONE, 0},
    {"o", has_o, RULE_ALONE, 0},
    {"lse", has_lse, RULE_ALONE, 0},
    {"max_logit", has_max_logit, RULE_ALONE, 0},
    {"scores raw", has_raw, RULE_ALONE, 0},
    {"scores softcap", has_capped, RULE_ALONE, 0},
    {"scores masked", has_masked, RULE_ALONE, 0},
    {"scores weights", has_weights, RULE_ALONE, 0},
    {"batch_invariant", is_batch_invariant, RULE_PAIRED, 0},
    {"head scale", has_head_scale, RULE_PAIRED, 0},
    {"q in f16", has_q_f16, RULE_TYPE, 0},
    {"q in bf16", has_q_bf16, RULE_TYPE, 0},
    {"k in f16", has_k_f16, RULE_TYPE, 0},
    {"k in bf16", has_k_bf16, RULE_TYPE, 0},
    {"k in i8", has_k_i8, RULE_TYPE, 0},
    {"k in i4", has_k_i4, RULE_TYPE, 0},
    {"v in f16", has_v_f16, RULE_TYPE, 0},
    {"v in bf16", has_v_bf16, RULE_TYPE, 0},
    {"v in i8", has_v_i8, RULE_TYPE, 0},
    {"v in i4", has_v_i4, RULE_TYPE, 0},
    {"o in f16", has_o_f16, RULE_TYPE, 0},
    {"o in bf16", has_o_bf16, RULE_TYPE, 0},
    {"bias in f16", has_half_bias, RULE_TYPE, 0},
    {"bias in bf16", has_bfloat_bias, RULE_TYPE, 0},
    {"k_scale in f16", has_half_k_scale, RULE_TYPE, 0},
    {"v_scale in f16", has_half_v_scale, RULE_TYPE, 0},
    {"scores in o's type", has_typed_scores, RULE_TYPE, 0},
    {"half products allowed", has_half_math, RULE_TYPE, 0},
    {"cosine", has_cosine, RULE_TYPE_PAIRED, 6},
    {"additive", has_additive, RULE_TYPE_PAIRED, 6},
    {"rope half", has_rope_of_halves, RULE_TYPE_PAIRED, 7},
    {"rope interleaved", has_rope_of_neighbours, RULE_TYPE_PAIRED, 7},
    {"rope of part of a head", has_part_rotated, RULE_TYPE_PAIRED, 0},
    {"rope by given positions", has_rope_positions, RULE_TYPE_PAIRED, 0},
    {"some f16", has_some_half, RULE_TYPE_PAIRED, 0},
    {"some bf16", has_some_bfloat, RULE_TYPE_PAIRED, 0},
    {"some i8", has_some_i8, RULE_TYPE_PAIRED, 0},
    {"some i4", has_some_i4, RULE_TYPE_PAIRED, 0},
};
const size_t coverage_rule_count = sizeof coverage_rules / sizeof coverage_rules[0];
