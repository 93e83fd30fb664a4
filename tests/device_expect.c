/* SPDX-License-Identifier: Apache-2.0 */
#include "device_expect.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clattn_ref.h"

static const double eps = 1.1920929e-7;

/* ---- the plain evaluation: float, one loop per sum, nothing clever --------------------------------------------- */

/* Noise is what rounding the inputs of a step by a unit or so in the last place does to its result. */
typedef struct plain_row {
  float *raw, *capped, *score, *weight, *o;
  double *raw_noise, *capped_noise, *score_noise, *weight_noise, *o_noise, *weighed;
  int *kept;
  float lse, top;
  double lse_noise;
  int empty; /* 1: no key is kept */
  void *memory;
} plain_row;

static int plain_open(plain_row *row, int64_t keys, int64_t v_dim) {
  const size_t k = (size_t)keys + 1, d = (size_t)v_dim;
  memset(row, 0, sizeof *row);
  double *at = calloc(7 * k + 3 * d, sizeof *at);
  if (at == NULL)
    return 0;
  row->memory = at;
  row->raw_noise = at;
  row->capped_noise = at + k;
  row->score_noise = at + 2 * k;
  row->weight_noise = at + 3 * k;
  row->o_noise = at + 4 * k;
  row->weighed = at + 4 * k + d;
  float *floats = (float *)(void *)(at + 4 * k + 2 * d);
  row->raw = floats;
  row->capped = floats + k;
  row->score = floats + 2 * k;
  row->weight = floats + 3 * k;
  row->o = floats + 4 * k;
  row->kept = (int *)(void *)(floats + 4 * k + d);
  return 1;
}

/* What drowns in what is added to it leaves no error behind. */
static void add_to_score(plain_row *row, int64_t j, float more, double noise) {
  const float before = row->score[j];
  row->score[j] += more;
  const double last_place = eps * fabs((double)row->score[j]);
  const int drowned = fabs((double)before) + row->score_noise[j] < last_place / 8.0;
  row->score_noise[j] = drowned ? noise : row->score_noise[j] + noise + last_place;
}

/* Whether products may be rounded to half. */
static int may_round(const device_job *job) {
  const clattn_problem *p = &job->problem;
  return p->math == CLATTN_MATH_HALF && p->rope == CLATTN_ROPE_NONE && p->q.dtype == CLATTN_F16 &&
         p->k.dtype == CLATTN_F16 && p->v.dtype == CLATTN_F16;
}

static const double half_eps = 9.765625e-4; /* of 11 bits */

typedef struct similarity {
  float value;
  double noise;
} similarity;

/* Element d of a row of q, or k, as it meets the other one: turned. */
static similarity plain_element(const device_job *job, const job_memory *memory, int of_key, int64_t b, int64_t h,
                                int64_t r, int64_t d) {
  const image *x = &memory->slot[of_key ? CLATTNI_K : CLATTNI_Q];
  const int half = job->problem.rope == CLATTN_ROPE_HALF;
  const int64_t dim = job->resolved.rope_dim, middle = dim / 2;
  const float own = image_float(x, b, h, r, d);
  similarity s = {own, 0.0};
  if (job->problem.rope == CLATTN_ROPE_NONE || d >= dim)
    return s;
  const int second = half ? d >= middle : d % 2 == 1;
  const int64_t other_d = half ? (second ? d - middle : d + middle) : (second ? d - 1 : d + 1);
  const int64_t line = job_table_line(job, memory, of_key, b, r), pair = half ? d % middle : d / 2;
  const float c = image_float(&memory->slot[CLATTNI_ROPE_COS], b, 0, line, pair);
  const float sine = image_float(&memory->slot[CLATTNI_ROPE_SIN], b, 0, line, pair);
  const float other = image_float(x, b, h, r, other_d);
  s.value = second ? other * sine + own * c : own * c - other * sine;
  const double noise = eps * (fabs((double)own * (double)c) + fabs((double)other * (double)sine));
  s.noise = isfinite(noise) ? noise : 0.0; /* what is infinite has no digits to lose */
  return s;
}

/* The dot product, or the cosine. */
static similarity plain_product(const device_job *job, const job_memory *memory, int64_t b, int64_t h, int64_t i,
                                int64_t j) {
  const int64_t h_kv = h / (job->resolved.q_heads / job->resolved.kv_heads);
  float sum = 0.0f, q_squares = 0.0f, k_squares = 0.0f;
  double size = 0.0, turning = 0.0;
  for (int64_t d = 0; d < job->resolved.qk_dim; ++d) {
    const similarity left = plain_element(job, memory, 0, b, h, i, d);
    const similarity right = plain_element(job, memory, 1, b, h_kv, j, d);
    const float x = left.value, y = right.value;
    sum += x * y;
    q_squares += x * x;
    k_squares += y * y;
    size += fabs((double)x * (double)y);
    turning += left.noise * fabs((double)y) + right.noise * fabs((double)x);
  }
  similarity s = {sum, eps * size + turning};
  if (may_round(job))
    s.noise += half_eps * size + ldexp((double)job->resolved.qk_dim, -24);
  if (job->problem.similarity == CLATTN_COSINE) {
    const float q_norm = sqrtf(q_squares), k_norm = sqrtf(k_squares);
    /* one after the other, so that huge norms don't overflow; NaN stays */
    const float by_q = q_norm < 1e-12f ? 1e-12f : q_norm, by_k = k_norm < 1e-12f ? 1e-12f : k_norm;
    s.value = sum / by_q / by_k;
    s.noise = (s.noise + 4.0 * eps * fabs((double)sum)) / (double)by_q / (double)by_k;
  }
  return s;
}

static similarity plain_additive(const device_job *job, const job_memory *memory, int64_t b, int64_t h, int64_t i,
                                 int64_t j) {
  const image *w = &memory->slot[CLATTNI_ADD_W];
  const int64_t h_kv = h / (job->resolved.q_heads / job->resolved.kv_heads);
  similarity s = {0.0f, 0.0};
  for (int64_t d = 0; d < job->resolved.qk_dim; ++d) {
    const similarity left = plain_element(job, memory, 0, b, h, i, d);
    const similarity right = plain_element(job, memory, 1, b, h_kv, j, d);
    const float x = tanhf(left.value + right.value);
    const float factor = image_float(w, 0, h, 0, d);
    s.value += factor * x;
    s.noise += fabs((double)factor) * (eps * (0.5 + 3.0 * fabs((double)x)) + left.noise + right.noise);
  }
  return s;
}

static void plain_score(const device_job *job, const job_memory *memory, plain_row *row, int64_t b, int64_t h,
                        int64_t i, int64_t j) {
  const image *const bias = &memory->slot[CLATTNI_BIAS];
  float scale = job->scale;
  similarity s = {0.0f, 0.0};
  if (job->problem.similarity == CLATTN_ADDITIVE)
    s = plain_additive(job, memory, b, h, i, j);
  else
    s = plain_product(job, memory, b, h, i, j);
  if (job->problem.use_head_scale)
    scale *= image_float(&memory->slot[CLATTNI_HEAD_SCALE], 0, h, 0, 0);
  row->raw[j] = s.value * scale;
  row->raw_noise[j] = s.noise * fabs((double)scale) + (double)FLT_MIN;
  if (job->problem.use_head_scale)
    row->raw_noise[j] += 2.0 * eps * fabs((double)row->raw[j]);
  row->capped[j] = job->softcap > 0.0f ? job->softcap * tanhf(row->raw[j] / job->softcap) : row->raw[j];
  row->capped_noise[j] = isfinite(row->raw[j]) ? row->raw_noise[j] : 0.0;
  if (job->softcap > 0.0f)
    row->capped_noise[j] += 4.0 * eps * fabs((double)row->capped[j]);
  row->score[j] = row->capped[j];
  row->score_noise[j] = row->capped_noise[j];
  if (bias->memory != NULL)
    add_to_score(row, j, image_float(bias, b, h, i, j), 0.0);
  if (job->problem.alibi != CLATTN_ALIBI_NONE) {
    const float distance = (float)(j - i - job_offset(job, b));
    const float slope = image_float(&memory->slot[CLATTNI_ALIBI_SLOPES], b, h, 0, 0);
    const float alibi = slope * (job->problem.alibi == CLATTN_ALIBI_SIGNED ? distance : -fabsf(distance));
    add_to_score(row, j, alibi, 2.0 * eps * fabs((double)alibi));
  }
}

static void plain_compute(const device_job *job, const job_memory *memory, plain_row *row, int64_t b, int64_t h,
                          int64_t i) {
  const image *const v = &memory->slot[CLATTNI_V];
  const int64_t h_kv = h / (job->resolved.q_heads / job->resolved.kv_heads);
  const int64_t keys = i < job_q_len(job, b) ? job_k_len(job, b) : 0;
  const float sink = job->problem.use_sink ? image_float(&memory->slot[CLATTNI_SINK], 0, h, 0, 0) : -INFINITY;
  float top = sink, sum = 0.0f;
  double score_noise = 0.0;
  row->empty = 1;
  for (int64_t j = 0; j < job->sizes.k_len; ++j) {
    row->kept[j] = 0;
    row->raw[j] = row->capped[j] = row->score[j] = -INFINITY;
    row->weight[j] = 0.0f;
    row->raw_noise[j] = row->capped_noise[j] = row->score_noise[j] = row->weight_noise[j] = 0.0;
    if (j >= keys)
      continue;
    plain_score(job, memory, row, b, h, i, j);
    row->kept[j] = job_sees(job, b, i, j) && job_masks_keep(job, memory, b, h, i, j) && row->score[j] != -INFINITY;
    if (!row->kept[j])
      row->score[j] = -INFINITY;
    else
      row->empty = 0;
    if (row->kept[j] && !isnan(top) && !(row->score[j] <= top))
      top = row->score[j];
  }
  for (int64_t j = 0; j < keys; ++j)
    if (row->kept[j])
      sum += row->weight[j] = expf(row->score[j] - top);
  if (sink != -INFINITY)
    sum += expf(sink - top);
  row->top = top;
  for (int64_t j = 0; j < keys; ++j)
    if (row->kept[j]) {
      row->weight[j] /= sum;
      score_noise += (double)row->weight[j] * row->score_noise[j];
    }
  row->lse = sum == 0.0f ? -INFINITY : top + logf(sum);
  row->lse_noise = score_noise + eps * (4.0 + fabs((double)top) + fabs((double)row->lse));
  for (int64_t d = 0; d < job->resolved.v_dim; ++d) {
    row->o[d] = sink == -INFINITY ? 0.0f : 0.0f * sum; /* a sink of +inf or NaN reaches rows without keys, too */
    row->o_noise[d] = row->weighed[d] = 0.0;
  }
  for (int64_t j = 0; j < keys; ++j) {
    if (!row->kept[j])
      continue;
    const double relative = row->score_noise[j] + score_noise +
                            eps * (8.0 + fabs((double)row->score[j] - (double)top)) + (may_round(job) ? half_eps : 0.0);
    row->weight_noise[j] = (double)row->weight[j] * relative + (double)FLT_MIN;
    for (int64_t d = 0; d < job->resolved.v_dim; ++d) {
      const float x = image_float(v, b, h_kv, j, d);
      row->o[d] += row->weight[j] * x;
      row->o_noise[d] += row->weight_noise[j] * fabs((double)x);
      row->weighed[d] += (double)row->weight[j] * fabs((double)x);
    }
  }
}

/* ---- expectations ---------------------------------------------------------------------------------------------- */

static int expected_open(expected *e, size_t count) {
  e->count = count;
  e->value = calloc(count + 1, sizeof *e->value);
  e->tolerance = calloc(count + 1, sizeof *e->tolerance);
  return e->value != NULL && e->tolerance != NULL;
}

static void expected_close(expected *e) {
  free(e->value);
  free(e->tolerance);
  memset(e, 0, sizeof *e);
}

void expectation_free(expectation *expect) {
  free(expect->empty);
  free(expect->weighed);
  expect->empty = NULL;
  expect->weighed = NULL;
  expected_close(&expect->o);
  expected_close(&expect->lse);
  expected_close(&expect->max_logit);
  for (int stage = 0; stage < 4; ++stage)
    expected_close(&expect->scores[stage]);
}

static int same_kind(double a, double b) {
  return isnan(a) ? isnan(b) != 0 : isinf(a) ? a >= b && a <= b : isfinite(b) != 0;
}

/* Tolerances of one row of one result.  A plain evaluation that is far off, or of another kind, says that the case is
 * not fit to judge anybody. */
static int tolerate(const device_job *job, const char *what, size_t row_index, expected *e, size_t first, size_t count,
                    const float *plain, const double *noise) {
  double error = 0.0, largest = 0.0;
  for (size_t n = 0; n < count; ++n) {
    const double want = e->value[first + n], got = (double)plain[n];
    e->tolerance[first + n] = 0.0;
    if (isinf(want) && isnan(got)) { /* an infinite value under a weight that is 0 in fp32: either will do */
      e->tolerance[first + n] = (double)INFINITY;
      continue;
    }
    if (!same_kind(want, got)) {
      (void)fprintf(stderr, "%s\n  %s, row %zu, element %zu: the reference says %g, the plain evaluation %g\n",
                    job->line, what, row_index, n, want, got);
      return 0;
    }
    if (isfinite(want)) {
      error = fmax(error, fabs(want - got));
      largest = noise[n] <= largest ? largest : noise[n]; /* NaN stays */
    }
  }
  if (!(error <= 64.0 * largest) || !isfinite(largest)) {
    (void)fprintf(stderr, "%s\n  %s, row %zu: the plain evaluation is off by %g with a noise of %g\n", job->line, what,
                  row_index, error, largest);
    return 0;
  }
  for (size_t n = 0; n < count; ++n)
    if (isfinite(e->value[first + n]))
      e->tolerance[first + n] = 2.0 * error + 2.0 * noise[n];
  return 1;
}

/* Integers of an input, aligned as the reference wants them; to be freed. */
static int32_t *aligned_ints(const image *from) {
  const size_t bytes = from->memory != NULL ? from->bytes - from->offset : 0;
  int32_t *to = malloc(bytes + 1);
  if (to != NULL && bytes > 0)
    memcpy(to, from->memory + from->offset, bytes);
  return to;
}

/* ints: page table, positions of rows and of keys. */
static int reference(const device_job *job, const job_memory *memory, int32_t *const ints[3], expectation *expect) {
  const image *const slot = memory->slot;
  const int32_t *entries[JOB_ARRAYS];
  int32_t offsets[JOB_MAX_BATCH];
  int first = 1;
  for (int n = 0; n < JOB_ARRAYS; ++n)
    entries[n] = job->array[n].entry;
  for (int64_t b = 0; job->array[ARRAY_Q_OFFSETS].given && b < job->sizes.batch; ++b)
    offsets[b] = (int32_t)job_offset(job, b);
  entries[ARRAY_Q_OFFSETS] = offsets; /* one for all is none of the reference's forms */
  for (int stage = 0; stage < 4; ++stage) {
    clattn_problem problem = job->problem;
    clattn_error error;
    clattn_ref_args args;
    if (!first && !(expect->stages >> stage & 1))
      continue;
    problem.stage = (clattn_stage)stage;
    if (job->scale_given) {
      problem.scale_mode = CLATTN_SCALE_VALUE;
      problem.scale = job->scale;
    }
    if (job->softcap_given)
      problem.softcap = job->softcap;
    clattn_error_init(&error);
    clattn_ref_args_init(&args);
    args.error = &error;
    args.sizes = job->sizes_given ? CLATTN_SIZES_GIVEN : CLATTN_SIZES_BOUNDS;
    args.batch = job->sizes.batch;
    args.q_len = job->sizes.q_len;
    args.k_len = job->sizes.k_len;
    const struct {
      const void **to;
      clattni_slot slot;
    } inputs[] = {{&args.q, CLATTNI_Q},
                  {&args.k, CLATTNI_K},
                  {&args.v, CLATTNI_V},
                  {&args.bias, CLATTNI_BIAS},
                  {&args.keep_mask, CLATTNI_KEEP_MASK},
                  {&args.block_mask, CLATTNI_BLOCK_MASK},
                  {&args.alibi_slopes, CLATTNI_ALIBI_SLOPES},
                  {&args.sink, CLATTNI_SINK},
                  {&args.head_scale, CLATTNI_HEAD_SCALE},
                  {&args.add_w, CLATTNI_ADD_W},
                  {&args.k_scale, CLATTNI_K_SCALE},
                  {&args.v_scale, CLATTNI_V_SCALE},
                  {&args.rope_cos, CLATTNI_ROPE_COS},
                  {&args.rope_sin, CLATTNI_ROPE_SIN}};
    for (size_t n = 0; n < sizeof inputs / sizeof inputs[0]; ++n)
      if (slot[inputs[n].slot].memory != NULL)
        *inputs[n].to = slot[inputs[n].slot].memory + slot[inputs[n].slot].offset;
    if (slot[CLATTNI_PAGE_TABLE].memory != NULL)
      args.page_table = ints[0];
    if (slot[CLATTNI_POSITIONS_Q].memory != NULL)
      args.positions_q = ints[1];
    if (slot[CLATTNI_POSITIONS_K].memory != NULL)
      args.positions_k = ints[2];
    const int32_t **const arrays[JOB_ARRAYS] = {&args.q_lengths, &args.k_lengths,    &args.q_offsets,
                                                &args.prefix,    &args.cu_seqlens_q, &args.cu_seqlens_k};
    for (int n = 0; n < JOB_ARRAYS; ++n)
      if (job->array[n].given)
        *arrays[n] = entries[n];
    if (first) {
      args.o = expect->o.value;
      args.lse = expect->lse.value;
      args.max_logit = expect->max_logit.value;
    }
    if (expect->stages >> stage & 1)
      args.scores = expect->scores[stage].value;
    first = 0;
    if (clattn_ref_attention(&problem, &args) != CLATTN_SUCCESS) {
      (void)fprintf(stderr, "%s\n  the reference refuses it: %s\n", job->line, error.message);
      return 0;
    }
  }
  return 1;
}

/* The plain maximum of a head, and what its rounding may have hidden. */
typedef struct head_maximum {
  float best;
  double best_noise, highest;
} head_maximum;

static void follow_maximum(const device_job *job, const plain_row *row, head_maximum *head) {
  for (int64_t j = 0; j < job->sizes.k_len; ++j) {
    if (!row->kept[j])
      continue;
    if (!isnan(head->best) && !(row->raw[j] <= head->best)) {
      head->best = row->raw[j];
      head->best_noise = row->raw_noise[j];
    }
    head->highest = fmax(head->highest, (double)row->raw[j] + row->raw_noise[j]);
  }
}

static int tolerances(const device_job *job, const job_memory *memory, expectation *expect) {
  static const char *const names[4] = {"raw scores", "capped scores", "masked scores", "weights"};
  const size_t keys = (size_t)job->sizes.k_len, v_dim = (size_t)job->resolved.v_dim;
  plain_row row;
  int good = plain_open(&row, job->sizes.k_len, job->resolved.v_dim);
  size_t index = 0, head_index = 0;
  for (int64_t b = 0; b < job->sizes.batch; ++b)
    for (int64_t h = 0; h < job->resolved.q_heads; ++h, ++head_index) {
      head_maximum head = {-INFINITY, 0.0, -(double)INFINITY};
      for (int64_t i = 0; good && i < job->sizes.q_len; ++i, ++index) {
        plain_compute(job, memory, &row, b, h, i);
        expect->empty[index] = (unsigned char)row.empty;
        memcpy(expect->weighed + index * v_dim, row.weighed, v_dim * sizeof *row.weighed);
        const float *const shown[4] = {row.raw, row.capped, row.score, row.weight};
        const double *const noise[4] = {row.raw_noise, row.capped_noise, row.score_noise, row.weight_noise};
        for (int stage = 0; good && stage < 4; ++stage)
          if (expect->stages >> stage & 1)
            good = tolerate(job, names[stage], index, &expect->scores[stage], index * keys, keys, shown[stage],
                            noise[stage]);
        good = good && tolerate(job, "o", index, &expect->o, index * v_dim, v_dim, row.o, row.o_noise) &&
               tolerate(job, "lse", index, &expect->lse, index, 1, &row.lse, &row.lse_noise);
        follow_maximum(job, &row, &head);
      }
      const double noise = fmax(head.best_noise, head.highest - (double)head.best);
      good = good && tolerate(job, "max_logit", head_index, &expect->max_logit, head_index, 1, &head.best, &noise);
    }
  free(row.memory);
  return good;
}

int expectation_make(const device_job *job, const job_memory *memory, unsigned stages, expectation *expect) {
  const size_t heads = (size_t)(job->sizes.batch * job->resolved.q_heads), rows = heads * (size_t)job->sizes.q_len;
  memset(expect, 0, sizeof *expect);
  expect->stages = stages;
  int good = expected_open(&expect->o, rows * (size_t)job->resolved.v_dim) && expected_open(&expect->lse, rows) &&
             expected_open(&expect->max_logit, heads);
  for (int stage = 0; stage < 4; ++stage)
    if (stages >> stage & 1)
      good = good && expected_open(&expect->scores[stage], rows * (size_t)job->sizes.k_len);
  expect->empty = calloc(rows + 1, 1);
  expect->weighed = calloc(rows * (size_t)job->resolved.v_dim + 1, sizeof *expect->weighed);
  good = good && expect->empty != NULL && expect->weighed != NULL;
  int32_t *const ints[3] = {aligned_ints(&memory->slot[CLATTNI_PAGE_TABLE]),
                            aligned_ints(&memory->slot[CLATTNI_POSITIONS_Q]),
                            aligned_ints(&memory->slot[CLATTNI_POSITIONS_K])};
  good = good && ints[0] != NULL && ints[1] != NULL && ints[2] != NULL && reference(job, memory, ints, expect) &&
         tolerances(job, memory, expect);
  for (int n = 0; n < 3; ++n)
    free(ints[n]);
  if (!good)
    expectation_free(expect);
  return good;
}

/* ---- comparing ------------------------------------------------------------------------------------------------- */

typedef struct comparison {
  const char *name;
  const expected *expect;
  const image *tensor;
  const double *weighed; /* NULL, or what rounded weights may change beside: this times a unit in their last place */
  int zeros_are_exact;   /* weights of excluded keys, rows without a key */
} comparison;

static int is_plain_zero(float x) {
  uint32_t bits; /* the widened one's, which keep the sign */
  memcpy(&bits, &x, sizeof bits);
  return bits == 0;
}

static int agrees(const comparison *c, float got, double want, double tolerance) {
  const clattn_dtype dtype = c->tensor->dtype;
  if (isnan(want))
    return isnan(got) != 0;
  if (isinf(want))
    return (isinf(got) && (got > 0.0f) == (want > 0.0)) || (isinf(tolerance) && isnan(got));
  if (isnan(got) || (dtype == CLATTN_F32 && isinf(got)))
    return 0;
  if (c->zeros_are_exact && !(want > 0.0) && !(want < 0.0))
    return is_plain_zero(got); /* not the negative zero that marks excluded keys inside */
  if (c->zeros_are_exact && fabs(want) < 1e-46)
    return fabsf(got) <= 0.0f; /* far below every float: the weight is gone, not small */
  if (dtype == CLATTN_F32)
    return fabs((double)got - want) <= tolerance;
  /* rounding keeps the order: what lies within the tolerance is rounded to something between its rounded ends */
  return (double)got >= round_to_type(dtype, want - tolerance) && (double)got <= round_to_type(dtype, want + tolerance);
}

static size_t compare(const comparison *c) {
  const image *t = c->tensor;
  size_t differ = 0, n = 0;
  if (c->expect->count == 0)
    return 0;
  for (int64_t b = 0; b < t->shape[0]; ++b)
    for (int64_t h = 0; h < t->shape[1]; ++h)
      for (int64_t r = 0; r < t->shape[2]; ++r)
        for (int64_t e = 0; e < t->shape[3]; ++e, ++n) {
          if (!image_has_row(t, b, r))
            continue;
          const float got = image_float(t, b, h, r, e);
          const double tolerance = c->expect->tolerance[n] + (c->weighed != NULL ? ldexp(c->weighed[n], -8) : 0.0);
          if (agrees(c, got, c->expect->value[n], tolerance))
            continue;
          if (differ++ < 3)
            (void)fprintf(stderr, "  %s[%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "] is %.9g, not %.9g +- %.2g\n",
                          c->name, b, h, r, e, (double)got, c->expect->value[n], tolerance);
        }
  if (n != c->expect->count) {
    (void)fprintf(stderr, "  %s: %zu elements, not %zu\n", c->name, n, c->expect->count);
    ++differ;
  }
  return differ;
}

/* o of a row without a kept key is zero to the last bit. */
static size_t empty_rows(const expectation *expect, const image *o) {
  size_t differ = 0, row = 0;
  for (int64_t b = 0; b < o->shape[0]; ++b)
    for (int64_t h = 0; h < o->shape[1]; ++h)
      for (int64_t i = 0; i < o->shape[2]; ++i, ++row)
        for (int64_t d = 0; expect->empty[row] && image_has_row(o, b, i) && d < o->shape[3]; ++d)
          if (!isnan(expect->o.value[row * (size_t)o->shape[3] + (size_t)d]) &&
              !is_plain_zero(image_float(o, b, h, i, d)) && differ++ < 3)
            (void)fprintf(stderr, "  o[%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "] of an empty row is %.9g\n", b,
                          h, i, d, (double)image_float(o, b, h, i, d));
  return differ;
}

size_t expectation_compare(const expectation *expect, const job_memory *memory, uint32_t outputs, clattn_stage stage) {
  const image *slot = memory->slot;
  size_t differ = 0;
  const comparison all[] = {
      {"o", &expect->o, &slot[CLATTNI_O], expect->rounded_weights ? expect->weighed : NULL, 0},
      {"lse", &expect->lse, &slot[CLATTNI_LSE], NULL, 0},
      {"scores", &expect->scores[stage], &slot[CLATTNI_SCORES], NULL, stage == CLATTN_STAGE_WEIGHTS},
      {"max_logit", &expect->max_logit, &slot[CLATTNI_MAX_LOGIT], NULL, 0},
  };
  for (unsigned bit = 0; bit < 4; ++bit)
    if (outputs >> bit & 1)
      differ += compare(&all[bit]);
  if ((outputs & CLATTN_OUT_O) && slot[CLATTNI_O].memory != NULL)
    differ += empty_rows(expect, &slot[CLATTNI_O]);
  return differ;
}
