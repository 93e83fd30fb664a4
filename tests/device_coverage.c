/* SPDX-License-Identifier: Apache-2.0 */
/* Which rules ran, in which head-dimension classes, on each fused variant: every cell must have a case. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "device_judge.h"

enum { CLASSES = 6 };
static const int64_t class_most[CLASSES - 1] = {32, 64, 128, 256, 1024};
static const char *const class_names[CLASSES] = {"to 32", "to 64", "to 128", "to 256", "to 1024", "above"};

/* What a run is asked about. */
typedef struct executed {
  const device_job *job;
  const clattn_problem *p; /* resolved */
  uint32_t outputs;
  clattn_stage stage;
} executed;

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

static const struct {
  const char *name;
  int (*has)(const executed *x);
} rules[] = {
    {"causal", has_causal},
    {"offset top_left", has_top_left},
    {"offset bottom_right", has_bottom_right},
    {"offset by value", has_offset_value},
    {"offset per batch", has_offset_per_batch},
    {"window", has_window},
    {"chunk", has_chunk},
    {"prefix by value", has_prefix},
    {"prefix per batch", has_prefix_per_batch},
    {"query lengths", has_q_lengths},
    {"key lengths", has_k_lengths},
    {"keep mask, bytes", has_u8_mask},
    {"keep mask, bits", has_bits_mask},
    {"block mask", has_block_mask},
    {"bias", has_bias},
    {"softcap", has_softcap},
    {"scale 0 or below", has_low_scale},
    {"alibi signed", has_signed_alibi},
    {"alibi symmetric", has_symmetric_alibi},
    {"slopes per batch", has_slopes_per_batch},
    {"sink", has_sink},
    {"grouped heads", has_groups},
    {"D_qk != D_v", has_two_dims},
    {"strided", has_strides},
    {"broadcast", has_broadcast},
    {"packed queries", has_packed_q},
    {"packed keys", has_packed_k},
    {"paged", has_pages},
    {"packed and paged", has_packed_q_and_pages},
    {"arrays on the device", has_device_arrays},
    {"scalars on the device", has_device_scalars},
    {"o", has_o},
    {"lse", has_lse},
    {"max_logit", has_max_logit},
    {"scores raw", has_raw},
    {"scores softcap", has_capped},
    {"scores masked", has_masked},
    {"scores weights", has_weights},
    {"batch_invariant", is_batch_invariant},
};
enum { RULES = sizeof rules / sizeof rules[0] };

static size_t cells[VARIANTS_MOST][RULES][CLASSES];

static int class_of(int64_t dim) {
  int n = 0;
  while (n < CLASSES - 1 && dim > class_most[n])
    ++n;
  return n;
}

void coverage_add(uint32_t variant, const device_job *job, uint32_t outputs, clattn_stage stage) {
  const executed x = {job, &job->resolved, outputs, stage};
  const int column = class_of(x.p->qk_dim > x.p->v_dim ? x.p->qk_dim : x.p->v_dim);
  if (job->sizes.batch == 0 || job->sizes.q_len == 0 || job->sizes.k_len == 0)
    return; /* nothing was computed */
  for (size_t n = 0; n < RULES; ++n)
    cells[variant][n][column] += rules[n].has(&x) != 0;
}

/* Prints the runs of the fused variant that ran least, cell by cell. */
void every_cell_has_a_case(void **state) {
  (void)state;
  size_t empty = 0, fused = 0;
  for (uint32_t v = 0; v < variant_count; ++v)
    fused += variants[v].fused && variants[v].usable;
  assert_true(fused > 0);
  print_message("%-24s", "runs by head dimension");
  for (int column = 0; column < CLASSES; ++column)
    print_message("%9s", class_names[column]);
  print_message("\n");
  for (size_t n = 0; n < RULES; ++n) {
    print_message("%-24s", rules[n].name);
    for (int column = 0; column < CLASSES; ++column) {
      size_t least = SIZE_MAX;
      for (uint32_t v = 0; v < variant_count; ++v)
        if (variants[v].fused && variants[v].usable && cells[v][n][column] < least)
          least = cells[v][n][column];
      print_message("%9zu", least);
      empty += least == 0;
    }
    print_message("\n");
  }
  if (empty > 0)
    fail_msg("%zu cells without a case", empty);
}
