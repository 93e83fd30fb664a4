/* SPDX-License-Identifier: Apache-2.0 */
/* Cases as text, and what makes a failing one small: rules and layouts are left out, types become f32, sizes shrink,
 * as long as the case fails the same way.  What tensors hold depends on the seed and the place alone, so what is left
 * stays. */
#include "property.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- text ------------------------------------------------------------------------------------------------------ */

static const char *const array_keys[JOB_ARRAYS] = {"q_lengths", "k_lengths",    "q_offsets",
                                                   "prefix",    "cu_seqlens_q", "cu_seqlens_k"};

void property_write(const property_case *c, char *text, size_t capacity) {
  line_text t = {text, capacity};
  const device_job *job = &c->job;
  put_text(&t, "%s @seed=%" PRIu64 " @data=%u @variant=%s @outputs=%" PRIu32 " @stage=%d @relation=%s", job->line,
           job->seed, job->data, c->variant, c->outputs, (int)c->stage, relation_names[c->relation]);
  if (job->sizes_given)
    put_text(&t, " @sizes=%" PRId64 ",%" PRId64 ",%" PRId64, job->sizes.batch, job->sizes.q_len, job->sizes.k_len);
  if (job->on_device != 0)
    put_text(&t, " @on_device=%u", job->on_device);
  if (job->check_contents)
    put_text(&t, " @check_contents=1");
  if (c->plant)
    put_text(&t, " @plant=%d", c->plant);
  for (int n = 0; n < JOB_ARRAYS; ++n)
    if (job->array[n].given) {
      put_text(&t, " @%s=", array_keys[n]);
      for (size_t i = 0; i < job->array[n].count; ++i)
        put_text(&t, "%s%" PRId32, i > 0 ? "," : "", job->array[n].entry[i]);
    }
}

static int read_list(const char *value, job_ints *array) {
  char *end = NULL;
  array->given = 1;
  array->count = 0;
  for (const char *at = value; *at >= '-' && *at <= '9' && array->count <= JOB_MAX_BATCH;
       at = *end == ',' ? end + 1 : end) {
    array->entry[array->count++] = (int32_t)strtol(at, &end, 10);
    if (end == at)
      return 0;
  }
  return array->count > 0;
}

static int read_key(const char *word, property_case *c) {
  const char *value = strchr(word, '=');
  const size_t length = value != NULL ? (size_t)(value - word) : 0;
  device_job *job = &c->job;
  if (value++ == NULL)
    return 0;
#define IS(key) (length == strlen(key) && strncmp(word, key, length) == 0)
  if (IS("seed"))
    job->seed = strtoull(value, NULL, 10);
  else if (IS("data"))
    job->data = (unsigned)strtoul(value, NULL, 10);
  else if (IS("variant"))
    (void)snprintf(c->variant, sizeof c->variant, "%.*s", (int)strcspn(value, " "), value);
  else if (IS("outputs"))
    c->outputs = (uint32_t)strtoul(value, NULL, 10);
  else if (IS("stage"))
    c->stage = (clattn_stage)strtol(value, NULL, 10);
  else if (IS("on_device"))
    job->on_device = (unsigned)strtoul(value, NULL, 10);
  else if (IS("check_contents"))
    job->check_contents = 1;
  else if (IS("plant"))
    c->plant = (int)strtol(value, NULL, 10);
  else if (IS("sizes")) {
    job->sizes_given = 1;
    return sscanf(value, "%" SCNd64 ",%" SCNd64 ",%" SCNd64, &job->sizes.batch, &job->sizes.q_len, &job->sizes.k_len) ==
           3;
  } else if (IS("relation")) {
    for (int n = 0; n < RELATIONS; ++n)
      if (strncmp(value, relation_names[n], strlen(relation_names[n])) == 0)
        c->relation = (relation)n;
  } else {
    for (int n = 0; n < JOB_ARRAYS; ++n)
      if (IS(array_keys[n]))
        return read_list(value, &job->array[n]);
    return 0;
  }
#undef IS
  return 1;
}

int property_read(const char *text, property_case *c) {
  const char *at = strchr(text, '@');
  const size_t length = at != NULL ? (size_t)(at - text) : strlen(text);
  memset(c, 0, sizeof *c);
  if (length >= sizeof c->job.line)
    return 0;
  memcpy(c->job.line, text, length);
  for (size_t n = length; n > 0 && c->job.line[n - 1] == ' '; --n)
    c->job.line[n - 1] = '\0';
  c->outputs = CLATTN_OUT_O | CLATTN_OUT_LSE;
  if (!device_job_read_line("replay", &c->job))
    return 0;
  for (; at != NULL; at = strchr(at + 1, '@'))
    if (!read_key(at + 1, c)) {
      (void)fprintf(stderr, "what is \"%s\"?\n", at);
      return 0;
    }
  device_job_finish(&c->job);
  return 1;
}

/* ---- what can be left out -------------------------------------------------------------------------------------- */

static void to_default(clattn_tensor *tensor) {
  memset(tensor->stride, 0, sizeof tensor->stride);
  tensor->layout = CLATTN_LAYOUT_BHSD;
}

static void drop_tensor(clattn_tensor *tensor) {
  to_default(tensor);
  tensor->dtype = CLATTN_F32;
}

static void unpack_queries(clattn_problem *p) {
  to_default(&p->q);
  to_default(&p->o);
  to_default(&p->lse);
  p->total_q = 0;
}

static void unpack_keys(clattn_problem *p) {
  to_default(&p->k);
  to_default(&p->v);
  to_default(&p->k_scale);
  to_default(&p->v_scale);
  p->total_k = p->num_pages = p->max_pages = p->page_size = 0;
}

static void plain_type(clattn_tensor *tensor, clattn_tensor *scale) {
  if (clattni_quantised(tensor->dtype) && scale != NULL)
    drop_tensor(scale);
  tensor->dtype = CLATTN_F32;
}

enum { RULE_STEPS = 47 };

/* Changes one thing; what nothing can be left out of stays as it is. */
static void leave_out(property_case *c, int step) {
  clattn_problem *p = &c->job.problem;
  clattn_tensor *const plain[] = {
      &p->q,         &p->k,    &p->v,          &p->o,     &p->lse,          &p->scores,     &p->max_logit, &p->bias,
      &p->keep_mask, &p->sink, &p->head_scale, &p->add_w, &p->alibi_slopes, &p->block_mask, &p->k_scale,   &p->v_scale};
  switch (step) {
  case 0: /* sizes of the enqueue become those of the problem */
    if (c->job.sizes_given) {
      p->batch = c->job.sizes.batch;
      p->q_len = c->job.sizes.q_len;
      p->k_len = c->job.sizes.k_len;
      c->job.sizes_given = 0;
    }
    break;
  case 1:
    c->relation = RELATION_NONE;
    break;
  case 2:
    c->job.on_device = 0;
    break;
  case 3:
    c->job.check_contents = 0;
    break;
  case 4:
    c->outputs = CLATTN_OUT_O;
    break;
  case 5:
    c->outputs &= ~(uint32_t)(CLATTN_OUT_SCORES | CLATTN_OUT_MAX_LOGIT);
    break;
  case 6:
    if (clattni_packed_q(p))
      unpack_queries(p);
    break;
  case 7:
    if (clattni_packed_k(p) || clattni_paged(p))
      unpack_keys(p);
    break;
  case 8:
    p->use_bias = 0;
    drop_tensor(&p->bias);
    break;
  case 9:
    p->keep_mask_kind = CLATTN_MASK_NONE;
    to_default(&p->keep_mask);
    break;
  case 10:
    p->block_mask_kind = CLATTN_MASK_NONE;
    p->block_q = p->block_k = 0;
    to_default(&p->block_mask);
    break;
  case 11:
    p->alibi = CLATTN_ALIBI_NONE;
    to_default(&p->alibi_slopes);
    break;
  case 12:
    p->use_sink = 0;
    to_default(&p->sink);
    break;
  case 13:
    p->use_head_scale = 0;
    to_default(&p->head_scale);
    break;
  case 14:
    p->prefix_mode = CLATTN_PREFIX_NONE;
    p->prefix = 0;
    break;
  case 15:
    p->causal = 0;
    break;
  case 16:
    p->window = CLATTN_WINDOW_NONE;
    p->window_left = p->window_right = 0;
    break;
  case 17:
    p->chunk = 0;
    break;
  case 18:
    p->q_length_mode = CLATTN_LENGTH_FULL;
    break;
  case 19:
    if (!clattni_paged(p))
      p->k_length_mode = CLATTN_LENGTH_FULL;
    break;
  case 20:
    p->offset_mode = CLATTN_OFFSET_TOP_LEFT;
    p->offset = 0;
    break;
  case 21:
    p->softcap = 0.0f;
    break;
  case 22:
    p->scale_mode = CLATTN_SCALE_DEFAULT;
    p->scale = 0.0f;
    break;
  case 23:
    p->flags = 0;
    break;
  case 24:
    p->math = CLATTN_MATH_EXACT;
    break;
  case 25:
    p->similarity = CLATTN_DOT;
    drop_tensor(&p->add_w);
    break;
  case 42:
    p->rope = CLATTN_ROPE_NONE;
    p->use_positions = 0;
    p->rope_dim = p->rope_positions = 0;
    to_default(&p->rope_cos);
    to_default(&p->rope_sin);
    break;
  case 43:
    p->use_positions = 0;
    break;
  case 44:
    p->rope_dim = p->rope_dim > 2 ? 2 : p->rope_dim;
    break;
  case 45:
    p->rope_positions = 0;
    break;
  case 46:
    to_default(&p->rope_cos);
    to_default(&p->rope_sin);
    break;
  default:
    if (step < 26 + 16) {
      clattn_tensor *tensor = plain[step - 26];
      if (tensor->layout != CLATTN_LAYOUT_PACKED && tensor->layout != CLATTN_LAYOUT_PAGED)
        to_default(tensor);
    }
    break;
  }
}

enum { TYPE_STEPS = 7 };

static void leave_type(property_case *c, int step) {
  clattn_problem *p = &c->job.problem;
  clattn_tensor *const tensors[] = {&p->q, &p->k, &p->v, &p->o, &p->bias, &p->k_scale, &p->v_scale};
  plain_type(tensors[step], step == 1 ? &p->k_scale : step == 2 ? &p->v_scale : NULL);
}

enum { SIZE_STEPS = 7 };

/* how: 0 one, 1 half, 2 one less */
static void less(int64_t *size, int how) {
  if (*size > 1)
    *size = how == 0 ? 1 : how == 1 ? *size / 2 : *size - 1;
}

static void make_smaller(property_case *c, int step, int how) {
  clattn_problem *p = &c->job.problem;
  const clattn_problem *r = &c->job.resolved;
  switch (step) {
  case 0:
    p->batch = r->batch;
    less(&p->batch, how);
    break;
  case 1:
    p->kv_heads = r->kv_heads;
    less(&p->kv_heads, how);
    p->q_heads = p->kv_heads * (r->q_heads / r->kv_heads);
    break;
  case 2: {
    int64_t group = r->q_heads / r->kv_heads;
    less(&group, how);
    p->q_heads = group * r->kv_heads;
    p->kv_heads = r->kv_heads;
    break;
  }
  case 3:
    p->q_len = r->q_len;
    less(&p->q_len, how);
    break;
  case 4:
    p->k_len = r->k_len;
    less(&p->k_len, how);
    break;
  case 5:
    p->v_dim = r->v_dim;
    less(&p->qk_dim, how);
    break;
  default:
    p->v_dim = r->v_dim;
    less(&p->v_dim, how);
    break;
  }
}

/* ---- shrinking ------------------------------------------------------------------------------------------------- */

static void cut(job_ints *array, int given, size_t count) {
  array->given = given;
  array->count = given ? count : 0;
}

static void cut_starts(job_ints *array, int given, int64_t batch, int64_t most) {
  int32_t rows[JOB_MAX_BATCH] = {0};
  for (int64_t b = 0; given && b < batch; ++b) {
    rows[b] = array->entry[b + 1] - array->entry[b];
    rows[b] = rows[b] > most ? (int32_t)most : rows[b];
  }
  cut(array, given, (size_t)batch + 1);
  for (int64_t b = 0; given && b < batch; ++b)
    array->entry[b + 1] = array->entry[b] + rows[b];
}

/* Arrays as a changed problem needs them; 0 if it is none. */
static int fit(property_case *c) {
  device_job *job = &c->job;
  const clattni_sizes sizes = job->sizes;
  size_t length = 0;
  if (clattn_problem_check(&job->problem, NULL) != CLATTN_SUCCESS ||
      clattn_problem_format(&job->problem, job->line, sizeof job->line, &length) != CLATTN_SUCCESS ||
      !device_job_read_line("smaller", job))
    return 0;
  const clattn_problem *p = &job->problem;
  if (job->sizes_given) {
    job->sizes.batch = sizes.batch < job->sizes.batch ? sizes.batch : job->sizes.batch;
    job->sizes.q_len = sizes.q_len < job->sizes.q_len ? sizes.q_len : job->sizes.q_len;
    job->sizes.k_len = sizes.k_len < job->sizes.k_len ? sizes.k_len : job->sizes.k_len;
  }
  const int64_t batch = job->sizes.batch;
  cut_starts(&job->array[ARRAY_CU_Q], clattni_packed_q(p), batch, job->sizes.q_len);
  cut_starts(&job->array[ARRAY_CU_K], clattni_packed_k(p), batch, job->sizes.k_len);
  cut(&job->array[ARRAY_Q_LENGTHS], p->q_length_mode == CLATTN_LENGTH_PER_BATCH, (size_t)batch);
  cut(&job->array[ARRAY_K_LENGTHS], p->k_length_mode == CLATTN_LENGTH_PER_BATCH, (size_t)batch);
  cut(&job->array[ARRAY_Q_OFFSETS], p->offset_mode == CLATTN_OFFSET_PER_BATCH, (size_t)batch);
  cut(&job->array[ARRAY_PREFIX], p->prefix_mode == CLATTN_PREFIX_PER_BATCH, (size_t)batch);
  for (int64_t b = 0; b < batch; ++b) {
    int32_t *const q = &job->array[ARRAY_Q_LENGTHS].entry[b], *const k = &job->array[ARRAY_K_LENGTHS].entry[b];
    *q = *q > job_q_rows(job, b) ? (int32_t)job_q_rows(job, b) : *q;
    *k = *k > job_k_rows(job, b) ? (int32_t)job_k_rows(job, b) : *k;
  }
  device_job_finish(job);
  return 1;
}

/* Padding is copied with the rest, so that bytes tell. */
static int same_case(const property_case *a, const property_case *b) {
  const unsigned char *const x = (const unsigned char *)a, *const y = (const unsigned char *)b;
  return memcmp(x, y, sizeof *a) == 0;
}

/* Takes a changed case if it still fails the same way. */
static int take(const device_rig *rig, property_case *c, property_case *changed, verdict kind) {
  int related;
  uint64_t bits;
  if (same_case(changed, c) || !fit(changed) || same_case(changed, c) ||
      property_check(rig, changed, &related, &bits) != kind)
    return 0;
  *c = *changed;
  return 1;
}

size_t property_shrink(const device_rig *rig, property_case *c, verdict kind) {
  property_case *changed = malloc(sizeof *changed);
  size_t steps = 0, before;
  if (changed == NULL)
    return 0;
  do {
    before = steps;
    for (int step = 0; step < RULE_STEPS; ++step) {
      *changed = *c;
      leave_out(changed, step);
      steps += (size_t)take(rig, c, changed, kind);
    }
    for (unsigned bit = 0; bit < 32; ++bit) {
      *changed = *c;
      changed->job.data &= ~(1u << bit);
      steps += (size_t)take(rig, c, changed, kind);
    }
    for (int step = 0; step < SIZE_STEPS; ++step)
      for (int how = 0; how < 3;) {
        *changed = *c;
        make_smaller(changed, step, how);
        const int helped = take(rig, c, changed, kind);
        steps += (size_t)helped;
        how += !helped || how == 0;
      }
    for (int step = 0; step < TYPE_STEPS; ++step) {
      *changed = *c;
      leave_type(changed, step);
      steps += (size_t)take(rig, c, changed, kind);
    }
  } while (steps > before);
  free(changed);
  return steps;
}
