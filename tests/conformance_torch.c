/* SPDX-License-Identifier: Apache-2.0 */
/* Cases computed by PyTorch: "semantics" says what. */
#include "conformance_spec.h"

#include <inttypes.h>
#include <string.h>

static int text_field(const cJSON *object, const char *key, const char **value, cf_reason *reason) {
  *value = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
  return *value != NULL ? 1 : cf_fail(reason, "case.json: \"%s\" is missing or not a text", key);
}

/* The sizes that the semantics state must be those of the inputs. */
static int torch_sizes(const cJSON *semantics, const cf_spec *spec, cf_reason *reason) {
  const struct {
    const char *key;
    int64_t have;
  } sizes[] = {{"batch", spec->q_view.shape[0]},    {"q_heads", spec->q_view.shape[1]},
               {"kv_heads", spec->k_view.shape[1]}, {"q_len", spec->q_view.shape[2]},
               {"k_len", spec->k_view.shape[2]},    {"qk_dim", spec->q_view.shape[3]},
               {"v_dim", spec->v_view.shape[3]}};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    int64_t said = sizes[i].have;
    int absent;
    if (!cf_get_integer(semantics, sizes[i].key, 0, INT32_MAX, &said, &absent, reason))
      return 0;
    if (said != sizes[i].have)
      return cf_fail(reason, "case.json says %s %" PRId64 ", the inputs have %" PRId64, sizes[i].key, said,
                     sizes[i].have);
  }
  return 1;
}

/* causal and query_offset: the offset given counts; without one the named alignment does. */
static int torch_offset(const cJSON *semantics, cf_spec *spec, cf_reason *reason) {
  const int64_t far = INT32_MAX;
  const int64_t aligned = spec->k_view.shape[2] - spec->q_view.shape[2];
  const char *causal;
  int absent = 0;
  if (!text_field(semantics, "causal", &causal, reason))
    return 0;
  const int bottom_right = strcmp(causal, "bottom_right") == 0;
  spec->causal = bottom_right || strcmp(causal, "top_left") == 0;
  if (!spec->causal && strcmp(causal, "none") != 0)
    return cf_fail(reason, "causal \"%.32s\" is not known", causal);
  const cJSON *given = cJSON_GetObjectItemCaseSensitive(semantics, "query_offset");
  if (cJSON_IsString(given)) {
    if (strcmp(given->valuestring, "kv_len - q_len") != 0)
      return cf_fail(reason, "query_offset \"%.64s\" is not known", given->valuestring);
    if (spec->k_lengths == NULL)
      return cf_fail(reason, "query_offset \"kv_len - q_len\" without the input kv_len");
    spec->offset_mode = CLATTN_OFFSET_BOTTOM_RIGHT;
    return 1;
  }
  spec->offset = bottom_right ? aligned : 0;
  if (!cf_get_integer(semantics, "query_offset", -far, far, &spec->offset, &absent, reason))
    return 0;
  /* With key lengths the library's own bottom-right means k_len[b] - q_len; a number is the same for every batch. */
  if (bottom_right && spec->offset == aligned && spec->k_lengths == NULL) {
    spec->offset_mode = CLATTN_OFFSET_BOTTOM_RIGHT;
    spec->offset = 0;
  } else if (spec->offset != 0) {
    spec->offset_mode = CLATTN_OFFSET_VALUE;
  }
  return 1;
}

static int torch_semantics(const cf_case *c, cf_spec *spec, cf_reason *reason) {
  static const char *const keys[] = {"batch",
                                     "q_heads",
                                     "kv_heads",
                                     "q_len",
                                     "k_len",
                                     "qk_dim",
                                     "v_dim",
                                     "scale",
                                     "scale_is_default",
                                     "softcap",
                                     "causal",
                                     "window_left",
                                     "window_right",
                                     "query_offset",
                                     "mask",
                                     "alibi",
                                     NULL};
  const cJSON *semantics = cJSON_GetObjectItemCaseSensitive(c->root, "semantics");
  const char *mask, *alibi;
  int absent;
  spec->window_left = spec->window_right = -1;
  if (!cf_only_keys(c->root, "semantics", keys, reason) || !torch_sizes(semantics, spec, reason) ||
      !cf_get_real(semantics, "scale", &spec->scale, NULL, reason) ||
      !cf_get_real(semantics, "softcap", &spec->softcap, &absent, reason) ||
      !cf_get_integer(semantics, "window_left", -1, INT32_MAX, &spec->window_left, &absent, reason) ||
      !cf_get_integer(semantics, "window_right", -1, INT32_MAX, &spec->window_right, &absent, reason) ||
      !torch_offset(semantics, spec, reason) || !text_field(semantics, "mask", &mask, reason) ||
      !text_field(semantics, "alibi", &alibi, reason))
    return 0;
  spec->scale_mode = CLATTN_SCALE_VALUE;
  if (spec->softcap < 0)
    spec->softcap = 0;
  const char *have = spec->mask == NULL ? "none" : spec->mask->type == CF_BOOL ? "bool" : "float";
  if (strcmp(mask, have) != 0)
    return cf_fail(reason, "case.json says mask \"%.32s\", the inputs have \"%s\"", mask, have);
  if (strcmp(alibi, "signed") == 0)
    spec->alibi = CLATTN_ALIBI_SIGNED;
  else if (strcmp(alibi, "symmetric") == 0)
    spec->alibi = CLATTN_ALIBI_SYMMETRIC;
  else if (strcmp(alibi, "none") != 0)
    return cf_fail(reason, "alibi \"%.32s\" is not known", alibi);
  if ((spec->alibi != CLATTN_ALIBI_NONE) != (spec->slopes != NULL))
    return cf_fail(reason, "alibi and the input alibi_slopes go together");
  return 1;
}

int cf_translate_torch(const cf_case *c, cf_work *work, cf_reason *reason) {
  cf_spec spec;
  memset(work, 0, sizeof *work);
  memset(&spec, 0, sizeof spec);
  for (int i = 0; i < c->inputs; i++) {
    const char *name = c->input[i].name;
    const cf_array **place = strcmp(name, "Q") == 0              ? &spec.q
                             : strcmp(name, "K") == 0            ? &spec.k
                             : strcmp(name, "V") == 0            ? &spec.v
                             : strcmp(name, "mask") == 0         ? &spec.mask
                             : strcmp(name, "alibi_slopes") == 0 ? &spec.slopes
                             : strcmp(name, "kv_len") == 0       ? &spec.k_lengths
                                                                 : NULL;
    if (place == NULL)
      return cf_fail(reason, "the input %s is not known to this runner", name);
    *place = &c->input[i].array;
  }
  for (int i = 0; i < c->outputs; i++) {
    if (strcmp(c->output[i].name, "O") == 0)
      spec.o = &c->output[i];
    else if (strcmp(c->output[i].name, "LSE") == 0)
      spec.lse = &c->output[i];
    else
      return cf_fail(reason, "the output %s can't be judged by this runner", c->output[i].name);
  }
  if (spec.q == NULL || spec.k == NULL || spec.v == NULL)
    return cf_fail(reason, "Q, K or V is missing");
  if (spec.q->rank != 4 || spec.k->rank != 4 || spec.v->rank != 4)
    return cf_fail(reason, "Q, K and V must have rank 4");
  return cf_view_of(spec.q, "Q", 0, &spec.q_view, reason) && cf_view_of(spec.k, "K", 0, &spec.k_view, reason) &&
         cf_view_of(spec.v, "V", 0, &spec.v_view, reason) && torch_semantics(c, &spec, reason) &&
         cf_build(&spec, work, reason);
}
