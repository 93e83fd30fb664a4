/* SPDX-License-Identifier: Apache-2.0 */
/* ONNX node cases of the operator Attention, opset 23 to 25. */
#include "conformance_spec.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { ONNX_Q, ONNX_K, ONNX_V, ONNX_MASK, ONNX_PAST_KEY, ONNX_PAST_VALUE, ONNX_NONPAD, ONNX_INPUTS };
enum { ONNX_Y, ONNX_PRESENT_KEY, ONNX_PRESENT_VALUE, ONNX_SCORES, ONNX_OUTPUTS };

/* past (rank 4, may be NULL) and then the new rows, contiguous. */
static int join_cache(const cf_array *past, const cf_array *rows, const cf_view *view, const char *name, cf_array *out,
                      cf_reason *reason) {
  const size_t bytes = cf_type_bytes(rows->type);
  char text[128];
  const int64_t old = past != NULL && past->rank == 4 ? past->shape[2] : 0;
  if (past != NULL && (past->rank != 4 || past->shape[0] != view->shape[0] || past->shape[1] != view->shape[1] ||
                       past->shape[3] != view->shape[3]))
    return cf_fail(reason, "past_%s %s does not fit the new rows (batch, heads, head size)", name,
                   cf_shape_text(past, text));
  if (past != NULL && past->type != rows->type)
    return cf_fail(reason, "past_%s is %s, the new rows are %s", name, cf_type_name(past->type),
                   cf_type_name(rows->type));
  memset(out, 0, sizeof *out);
  out->type = rows->type;
  out->rank = 4;
  for (int axis = 0; axis < CF_MAX_RANK; axis++)
    out->shape[axis] = axis < 4 ? view->shape[axis] : 1;
  out->shape[2] += old;
  out->count = out->shape[0] * out->shape[1] * out->shape[2] * out->shape[3];
  out->data = cf_allocate(out->count, bytes);
  if (out->data == NULL)
    return cf_fail(reason, "out of memory");
  const size_t line = (size_t)view->shape[3] * bytes;
  char *to = out->data;
  for (int64_t b = 0; b < out->shape[0]; b++) {
    for (int64_t h = 0; h < out->shape[1]; h++) {
      for (int64_t i = 0; i < out->shape[2]; i++, to += line) {
        const int64_t row = i - old;
        const int64_t at = row < 0 ? ((b * out->shape[1] + h) * old + i) * view->shape[3]
                                   : b * view->stride[0] + h * view->stride[1] + row * view->stride[2];
        memcpy(to, (const char *)(row < 0 ? past->data : rows->data) + (size_t)at * bytes, line);
      }
    }
  }
  return 1;
}

/* The joined cache is an output of the operator, too. */
static int judge_present(const cf_tensor *want, const cf_array *joined, cf_reason *reason) {
  const int64_t *s = joined->shape;
  cf_view view;
  if (!cf_want_shape(want, 4, s[0], s[1], s[2], s[3], reason) || !cf_view_of(joined, want->name, 0, &view, reason))
    return 0;
  double *got = cf_allocate(joined->count, sizeof *got);
  if (got == NULL)
    return cf_fail(reason, "out of memory");
  for (int64_t i = 0; i < joined->count; i++)
    got[i] = cf_value(joined, i);
  const int result = cf_compare(want, &view, got, reason);
  free(got);
  return result;
}

static int onnx_attributes(const cf_case *c, cf_spec *spec, int64_t heads[2], cf_reason *reason) {
  static const char *const keys[] = {
      "is_causal",        "kv_num_heads",      "q_num_heads",           "scale", "softcap", "softmax_precision",
      "left_window_size", "right_window_size", "qk_matmul_output_mode", NULL};
  const cJSON *attributes = cJSON_GetObjectItemCaseSensitive(c->root, "attributes");
  const int64_t most = INT32_MAX;
  int64_t causal = 0, mode = 0, precision = 1;
  int absent, no_scale;
  spec->window_left = spec->window_right = -1;
  if (!cf_only_keys(c->root, "attributes", keys, reason) ||
      !cf_get_integer(attributes, "is_causal", 0, 1, &causal, &absent, reason) ||
      !cf_get_integer(attributes, "q_num_heads", 1, most, &heads[0], &absent, reason) ||
      !cf_get_integer(attributes, "kv_num_heads", 1, most, &heads[1], &absent, reason) ||
      !cf_get_integer(attributes, "qk_matmul_output_mode", 0, 3, &mode, &absent, reason) ||
      !cf_get_integer(attributes, "softmax_precision", 1, 16, &precision, &absent, reason) ||
      !cf_get_integer(attributes, "left_window_size", -1, most, &spec->window_left, &absent, reason) ||
      !cf_get_integer(attributes, "right_window_size", -1, most, &spec->window_right, &absent, reason) ||
      !cf_get_real(attributes, "softcap", &spec->softcap, &absent, reason) ||
      !cf_get_real(attributes, "scale", &spec->scale, &no_scale, reason))
    return 0;
  if (precision != 1 && precision != 10 && precision != 11 && precision != 16)
    return cf_fail(reason, "softmax_precision %" PRId64 " is no floating-point type", precision);
  spec->scale_mode = no_scale ? CLATTN_SCALE_DEFAULT : CLATTN_SCALE_VALUE;
  spec->causal = (int)causal;
  spec->stage = (clattn_stage)mode; /* the same four stages in the same order */
  if (spec->softcap < 0)
    spec->softcap = 0; /* the operator caps only with a positive value */
  return 1;
}

int cf_translate_onnx(const cf_case *c, cf_work *work, cf_reason *reason) {
  const cf_tensor *in[ONNX_INPUTS], *out[ONNX_OUTPUTS];
  cf_array key, value;
  cf_spec spec;
  int64_t heads[2] = {0, 0};
  int result = 0;
  memset(work, 0, sizeof *work);
  memset(&spec, 0, sizeof spec);
  memset(&key, 0, sizeof key);
  memset(&value, 0, sizeof value);
  for (int i = 0; i < ONNX_INPUTS; i++)
    in[i] = cf_find_slot(c->input, c->inputs, i);
  for (int i = 0; i < ONNX_OUTPUTS; i++)
    out[i] = cf_find_slot(c->output, c->outputs, i);
  for (int i = 0; i < c->inputs; i++) {
    if (c->input[i].slot < 0 || c->input[i].slot >= ONNX_INPUTS)
      return cf_fail(reason, "the input %s is in slot %" PRId64 ", which Attention does not have", c->input[i].name,
                     c->input[i].slot);
  }
  for (int i = 0; i < c->outputs; i++) {
    if (c->output[i].slot < 0 || c->output[i].slot >= ONNX_OUTPUTS)
      return cf_fail(reason, "the output %s is in slot %" PRId64 ", which Attention does not have", c->output[i].name,
                     c->output[i].slot);
  }
  if (in[ONNX_Q] == NULL || in[ONNX_K] == NULL || in[ONNX_V] == NULL)
    return cf_fail(reason, "Q, K or V is missing");
  if ((in[ONNX_PAST_KEY] == NULL) != (in[ONNX_PAST_VALUE] == NULL))
    return cf_fail(reason, "past_key and past_value go together");
  if (!onnx_attributes(c, &spec, heads, reason))
    return 0;
  spec.q = &in[ONNX_Q]->array;
  spec.k = &in[ONNX_K]->array;
  spec.v = &in[ONNX_V]->array;
  if (!cf_view_of(spec.q, "Q", heads[0], &spec.q_view, reason) ||
      !cf_view_of(spec.k, "K", heads[1], &spec.k_view, reason) ||
      !cf_view_of(spec.v, "V", heads[1], &spec.v_view, reason) || !cf_check_sizes(&spec, reason))
    return 0;
  if ((heads[0] > 0 && heads[0] != spec.q_view.shape[1]) || (heads[1] > 0 && heads[1] != spec.k_view.shape[1]))
    return cf_fail(reason, "q_num_heads or kv_num_heads is not what the rank-4 inputs have");
  int64_t past = 0;
  if (in[ONNX_PAST_KEY] != NULL || out[ONNX_PRESENT_KEY] != NULL || out[ONNX_PRESENT_VALUE] != NULL) {
    const cf_array *past_key = in[ONNX_PAST_KEY] != NULL ? &in[ONNX_PAST_KEY]->array : NULL;
    const cf_array *past_value = in[ONNX_PAST_VALUE] != NULL ? &in[ONNX_PAST_VALUE]->array : NULL;
    if (!join_cache(past_key, spec.k, &spec.k_view, "key", &key, reason) ||
        !join_cache(past_value, spec.v, &spec.v_view, "value", &value, reason) ||
        (out[ONNX_PRESENT_KEY] != NULL && !judge_present(out[ONNX_PRESENT_KEY], &key, reason)) ||
        (out[ONNX_PRESENT_VALUE] != NULL && !judge_present(out[ONNX_PRESENT_VALUE], &value, reason)))
      goto done;
    if (past_key != NULL) {
      past = past_key->shape[2];
      spec.k = &key;
      spec.v = &value;
      if (!cf_view_of(&key, "K", 0, &spec.k_view, reason) || !cf_view_of(&value, "V", 0, &spec.v_view, reason))
        goto done;
    }
  }
  spec.mask = in[ONNX_MASK] != NULL ? &in[ONNX_MASK]->array : NULL;
  spec.pad_mask = 1;
  spec.k_lengths = in[ONNX_NONPAD] != NULL ? &in[ONNX_NONPAD]->array : NULL;
  if (in[ONNX_PAST_KEY] != NULL) {
    spec.offset_mode = CLATTN_OFFSET_VALUE;
    spec.offset = past;
  } else if (spec.k_lengths != NULL) {
    spec.offset_mode = CLATTN_OFFSET_PER_BATCH;
  }
  spec.o = out[ONNX_Y];
  spec.o_heads = spec.q->rank == 3 ? (int)spec.q_view.shape[1] : 0;
  spec.scores = out[ONNX_SCORES];
  result = cf_build(&spec, work, reason);
done:
  free(key.data);
  free(value.data);
  return result;
}
