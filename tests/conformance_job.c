/* SPDX-License-Identifier: Apache-2.0 */
#include "conformance_spec.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void *cf_allocate(int64_t count, size_t element) {
  if (count < 0 || (uint64_t)count > SIZE_MAX / 2 / element)
    return NULL;
  return calloc(count > 0 ? (size_t)count : 1, element);
}

/* ---- comparing ---- */

int64_t cf_view_count(const cf_view *view) {
  return view->shape[0] * view->shape[1] * view->shape[2] * view->shape[3];
}

/* NaN is never right, infinities must be equal. */
static int close_enough(double got, double want, double rtol, double atol) {
  if (isnan(got) || isnan(want))
    return 0;
  if (isinf(got) || isinf(want))
    return got == want;
  return fabs(got - want) <= atol + rtol * fabs(want);
}

int cf_compare(const cf_tensor *want, const cf_view *view, const double *got, cf_reason *reason) {
  const int64_t *shape = view->shape, *stride = view->stride;
  int64_t n = 0, wrong = 0, first[4] = {0};
  double first_got = 0, first_want = 0;
  for (int64_t b = 0; b < shape[0]; b++) {
    for (int64_t h = 0; h < shape[1]; h++) {
      for (int64_t i = 0; i < shape[2]; i++) {
        for (int64_t d = 0; d < shape[3]; d++, n++) {
          const double value = cf_value(&want->array, b * stride[0] + h * stride[1] + i * stride[2] + d * stride[3]);
          if (close_enough(got[n], value, want->rtol, want->atol))
            continue;
          if (wrong++ == 0) {
            const int64_t here[4] = {b, h, i, d};
            memcpy(first, here, sizeof first);
            first_got = got[n];
            first_want = value;
          }
        }
      }
    }
  }
  if (wrong > 0)
    return cf_fail(reason,
                   "%s: %" PRId64 " of %" PRId64 " elements differ, the first at (batch %" PRId64 ", head %" PRId64
                   ", row %" PRId64 ", element %" PRId64 "): got %.9g, want %.9g (atol %.3g, rtol %.3g)",
                   want->name, wrong, n, first[0], first[1], first[2], first[3], first_got, first_want, want->atol,
                   want->rtol);
  return 1;
}

/* ---- views ---- */

int cf_view_of(const cf_array *array, const char *name, int64_t heads, cf_view *view, cf_reason *reason) {
  char text[128];
  const int64_t *s = array->shape;
  if (array->rank == 4) {
    const int64_t shape[4] = {s[0], s[1], s[2], s[3]};
    memcpy(view->shape, shape, sizeof shape);
    view->stride[3] = 1;
    /* Axes of length 0 count as 1: a stride of 0 would mean broadcast. */
    for (int axis = 2; axis >= 0; axis--)
      view->stride[axis] = view->stride[axis + 1] * (shape[axis + 1] > 0 ? shape[axis + 1] : 1);
  } else if (array->rank == 3) {
    if (heads <= 0)
      return cf_fail(reason, "%s has rank 3 and its number of heads is not given", name);
    if (s[2] % heads != 0)
      return cf_fail(reason, "%s %s can't be split into %" PRId64 " heads", name, cf_shape_text(array, text), heads);
    const int64_t dim = s[2] / heads, width = s[2] > 0 ? s[2] : 1;
    const int64_t shape[4] = {s[0], heads, s[1], dim};
    const int64_t stride[4] = {width * (s[1] > 0 ? s[1] : 1), dim, width, 1};
    memcpy(view->shape, shape, sizeof shape);
    memcpy(view->stride, stride, sizeof stride);
  } else {
    return cf_fail(reason, "%s has rank %d, not 3 or 4", name, array->rank);
  }
  if (view->shape[1] == 0 || view->shape[3] == 0)
    return cf_fail(reason, "%s %s has no heads or no elements in a head", name, cf_shape_text(array, text));
  return 1;
}

int cf_want_shape(const cf_tensor *want, int rank, int64_t a, int64_t b, int64_t c, int64_t d, cf_reason *reason) {
  const int64_t shape[4] = {a, b, c, d};
  char text[128];
  if (want->array.rank != rank || memcmp(want->array.shape, shape, (size_t)rank * sizeof shape[0]) != 0)
    return cf_fail(reason, "the output %s %s does not have the shape that the inputs give", want->name,
                   cf_shape_text(&want->array, text));
  return 1;
}

static void set_strided(clattn_tensor *tensor, clattn_dtype dtype, const int64_t stride[4]) {
  tensor->dtype = dtype;
  tensor->layout = CLATTN_LAYOUT_STRIDED;
  memcpy(tensor->stride, stride, sizeof tensor->stride);
}

/* ---- inputs ---- */

static int dtype_of(cf_type type, clattn_dtype *dtype) {
  switch (type) {
  case CF_F32:
  case CF_F64:
    *dtype = CLATTN_F32;
    return 1;
  case CF_F16:
    *dtype = CLATTN_F16;
    return 1;
  case CF_BF16:
    *dtype = CLATTN_BF16;
    return 1;
  default:
    return 0;
  }
}

/* As float32.  A finite float64 must stay finite: an ordinary large score is not a mask. */
static float narrow(double value) {
  if (isfinite(value) && fabs(value) > (double)FLT_MAX)
    return value > 0 ? FLT_MAX : -FLT_MAX;
  return (float)value;
}

static int store_floats(const cf_array *array, cf_bytes *out, cf_reason *reason) {
  float *data = cf_allocate(array->count, sizeof *data);
  if (data == NULL)
    return cf_fail(reason, "out of memory");
  for (int64_t i = 0; i < array->count; i++)
    data[i] = narrow(cf_value(array, i));
  out->data = data;
  out->bytes = (size_t)array->count * sizeof *data;
  return 1;
}

/* Half types keep their bits, float64 becomes float32. */
static int store_tensor(const cf_array *array, const char *name, cf_bytes *out, clattn_dtype *dtype,
                        cf_reason *reason) {
  if (!dtype_of(array->type, dtype))
    return cf_fail(reason, "%s can't have the type %s", name, cf_type_name(array->type));
  if (*dtype == CLATTN_F32)
    return store_floats(array, out, reason);
  out->bytes = (size_t)array->count * cf_type_bytes(array->type);
  out->data = cf_allocate(array->count, cf_type_bytes(array->type));
  if (out->data == NULL)
    return cf_fail(reason, "out of memory");
  memcpy(out->data, array->data, out->bytes);
  return 1;
}

/* ---- masks ---- */

/* A mask right-aligned to four axes, with as many keys as the padding asks for. */
typedef struct cf_mask {
  cf_array array; /* rank 4; own memory */
  int64_t stride[4];
} cf_mask;

static int align_mask(const cf_spec *spec, cf_mask *mask, cf_reason *reason) {
  const cf_array *given = spec->mask;
  const int64_t target[4] = {spec->q_view.shape[0], spec->q_view.shape[1], spec->q_view.shape[2],
                             spec->k_view.shape[2]};
  const size_t bytes = cf_type_bytes(given->type);
  char text[128];
  cf_array *array = &mask->array;
  if (given->rank < 1 || given->rank > 4)
    return cf_fail(reason, "the mask has rank %d, not 1 to 4", given->rank);
  *array = *given;
  array->data = NULL;
  array->rank = 4;
  for (int axis = 0; axis < 4; axis++) {
    const int from = axis - (4 - given->rank);
    array->shape[axis] = from >= 0 ? given->shape[from] : 1;
  }
  const int64_t keys = array->shape[3];
  if (spec->pad_mask && keys < target[3])
    array->shape[3] = target[3];
  for (int axis = 0; axis < 4; axis++) {
    if (array->shape[axis] != target[axis] && array->shape[axis] != 1)
      return cf_fail(reason,
                     "the mask %s does not fit (%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
                     "): batch, heads, query rows, keys",
                     cf_shape_text(given, text), target[0], target[1], target[2], target[3]);
  }
  const int64_t rows = array->shape[0] * array->shape[1] * array->shape[2];
  array->count = rows * array->shape[3];
  array->data = cf_allocate(array->count, bytes);
  if (array->data == NULL)
    return cf_fail(reason, "out of memory");
  for (int64_t row = 0; row < rows; row++) {
    char *to = (char *)array->data + (size_t)(row * array->shape[3]) * bytes;
    if (keys > 0)
      memcpy(to, (const char *)given->data + (size_t)(row * keys) * bytes, (size_t)keys * bytes);
    for (int64_t key = keys; key < array->shape[3]; key++) {
      char *at = to + (size_t)key * bytes;
      const uint16_t half = 0xfc00, bfloat16 = 0xff80;
      const float single = -INFINITY;
      const double wide = -(double)INFINITY;
      switch (given->type) {
      case CF_F32:
        memcpy(at, &single, bytes);
        break;
      case CF_F64:
        memcpy(at, &wide, bytes);
        break;
      case CF_F16:
        memcpy(at, &half, bytes);
        break;
      case CF_BF16:
        memcpy(at, &bfloat16, bytes);
        break;
      case CF_BOOL:
        *at = 0;
        break;
      default:
        return cf_fail(reason, "a short mask of type %s can't be padded with -inf", cf_type_name(given->type));
      }
    }
  }
  int64_t step = 1;
  for (int axis = 3; axis >= 0; axis--) {
    mask->stride[axis] = array->shape[axis] == 1 && target[axis] != 1 ? 0 : step;
    step *= array->shape[axis] > 0 ? array->shape[axis] : 1;
  }
  return 1;
}

static int store_keep(const cf_mask *mask, cf_work *work, int64_t bits_stride[4], cf_reason *reason) {
  const cf_array *array = &mask->array;
  const int64_t keys = array->shape[3], words = (keys + 31) / 32;
  const int64_t rows = array->shape[0] * array->shape[1] * array->shape[2];
  uint8_t *keep = cf_allocate(array->count, 1);
  uint32_t *bits = cf_allocate(rows * words, sizeof *bits);
  work->input[CF_KEEP].data = keep;
  work->input[CF_KEEP].bytes = (size_t)array->count;
  work->input[CF_BITS].data = bits;
  work->input[CF_BITS].bytes = (size_t)(rows * words) * sizeof *bits;
  if (keep == NULL || bits == NULL)
    return cf_fail(reason, "out of memory");
  for (int64_t row = 0; row < rows; row++) {
    for (int64_t key = 0; key < keys; key++) {
      const int attend = cf_value(array, row * keys + key) != 0;
      keep[row * keys + key] = (uint8_t)(attend ? 1 + (row + key) % 255 : 0); /* any non-zero byte attends */
      if (attend)
        bits[row * words + key / 32] |= UINT32_C(1) << key % 32;
    }
  }
  int64_t step = 1;
  for (int axis = 3; axis >= 0; axis--) {
    const int64_t length = axis == 3 ? words : array->shape[axis];
    bits_stride[axis] = mask->stride[axis] == 0 ? 0 : step;
    step *= length > 0 ? length : 1;
  }
  return 1;
}

/* A bool mask keeps; any other is added to the scores.  Half types stay as they are only beside half inputs. */
static int store_mask(const cf_spec *spec, cf_work *work, clattn_problem *problem, int64_t bits_stride[4],
                      cf_reason *reason) {
  cf_mask mask;
  int result = 0;
  memset(&mask, 0, sizeof mask);
  if (!align_mask(spec, &mask, reason))
    goto done;
  if (mask.array.type == CF_BOOL) {
    problem->keep_mask_kind = CLATTN_MASK_U8;
    set_strided(&problem->keep_mask, 0, mask.stride);
    result = store_keep(&mask, work, bits_stride, reason);
  } else {
    clattn_dtype dtype;
    problem->use_bias = 1;
    if (problem->q.dtype != CLATTN_F32 && dtype_of(mask.array.type, &dtype)) {
      result = store_tensor(&mask.array, "the mask", &work->input[CF_BIAS], &dtype, reason);
    } else {
      dtype = CLATTN_F32;
      result = store_floats(&mask.array, &work->input[CF_BIAS], reason);
    }
    set_strided(&problem->bias, dtype, mask.stride);
  }
done:
  free(mask.array.data);
  return result;
}

/* ---- lengths ---- */

static int store_k_lengths(const cf_spec *spec, cf_work *work, cf_reason *reason) {
  const cf_array *given = spec->k_lengths;
  if (given->type != CF_I32 && given->type != CF_I64)
    return cf_fail(reason, "the key lengths have the type %s, not int32 or int64", cf_type_name(given->type));
  if (given->rank != 1 || given->count != work->batch)
    return cf_fail(reason, "there are %" PRId64 " key lengths for a batch of %" PRId64, given->count, work->batch);
  work->k_lengths = cf_allocate(given->count, sizeof *work->k_lengths);
  if (work->k_lengths == NULL)
    return cf_fail(reason, "out of memory");
  for (int64_t b = 0; b < given->count; b++) {
    const double length = cf_value(given, b);
    if (!(length >= (double)INT32_MIN && length <= (double)INT32_MAX))
      return cf_fail(reason, "key length %" PRId64 " does not fit in 32 bits", b);
    work->k_lengths[b] = (int32_t)length;
  }
  return 1;
}

/* ---- the problem ---- */

int cf_check_sizes(const cf_spec *spec, cf_reason *reason) {
  const int64_t *q = spec->q_view.shape, *k = spec->k_view.shape, *v = spec->v_view.shape;
  if (k[0] != q[0] || v[0] != q[0])
    return cf_fail(reason, "Q, K and V have the batch sizes %" PRId64 ", %" PRId64 " and %" PRId64, q[0], k[0], v[0]);
  if (k[1] != v[1])
    return cf_fail(reason, "K has %" PRId64 " heads, V has %" PRId64, k[1], v[1]);
  if (k[2] != v[2])
    return cf_fail(reason, "K has %" PRId64 " rows, V has %" PRId64, k[2], v[2]);
  if (k[3] != q[3])
    return cf_fail(reason, "the heads of Q have %" PRId64 " elements, those of K %" PRId64, q[3], k[3]);
  return 1;
}

static int set_results(const cf_spec *spec, cf_work *work, clattn_problem *problem, cf_reason *reason) {
  const int64_t *q = spec->q_view.shape;
  const int64_t keys = spec->k_view.shape[2], dim = spec->v_view.shape[3];
  if (spec->o == NULL && spec->lse == NULL && spec->scores == NULL) {
    /* Only what the host joins is wanted; the call must work all the same. */
    cf_view *view = &work->result[CF_O].view;
    const int64_t rows = q[2] > 0 ? q[2] : 1;
    const cf_view plain = {{q[0], q[1], q[2], dim}, {q[1] * rows * dim, rows * dim, dim, 1}};
    *view = plain;
    set_strided(&problem->o, CLATTN_F32, view->stride);
    problem->outputs = CLATTN_OUT_O;
  }
  if (spec->o != NULL) {
    cf_want *o = &work->result[CF_O];
    const int rank = spec->o_heads > 0 ? 3 : 4;
    clattn_dtype dtype;
    if (!(rank == 3 ? cf_want_shape(spec->o, 3, q[0], q[2], q[1] * dim, 0, reason)
                    : cf_want_shape(spec->o, 4, q[0], q[1], q[2], dim, reason)) ||
        !cf_view_of(&spec->o->array, spec->o->name, spec->o_heads, &o->view, reason))
      return 0;
    if (!dtype_of(spec->o->stored, &dtype))
      return cf_fail(reason, "the output %s can't have the type %s", spec->o->name, cf_type_name(spec->o->stored));
    o->want = spec->o;
    set_strided(&problem->o, dtype, o->view.stride);
    problem->outputs |= CLATTN_OUT_O;
  }
  if (spec->lse != NULL) {
    cf_want *lse = &work->result[CF_LSE];
    const int64_t rows = q[2] > 0 ? q[2] : 1;
    const cf_view view = {{q[0], q[1], q[2], 1}, {q[1] * rows, rows, 1, 0}};
    if (!cf_want_shape(spec->lse, 3, q[0], q[1], q[2], 0, reason))
      return 0;
    lse->want = spec->lse;
    lse->view = view;
    set_strided(&problem->lse, CLATTN_F32, view.stride);
    problem->outputs |= CLATTN_OUT_LSE;
  }
  if (spec->scores != NULL) {
    cf_want *scores = &work->result[CF_SCORES];
    const int64_t row = keys > 0 ? keys : 1, head = row * (q[2] > 0 ? q[2] : 1);
    const cf_view view = {{q[0], q[1], q[2], keys}, {head * q[1], head, row, 1}};
    if (!cf_want_shape(spec->scores, 4, q[0], q[1], q[2], keys, reason))
      return 0;
    scores->want = spec->scores;
    scores->view = view;
    set_strided(&problem->scores, CLATTN_F32, view.stride);
    problem->stage = spec->stage;
    problem->outputs |= CLATTN_OUT_SCORES;
  }
  return 1;
}

static void set_rules(const cf_spec *spec, const cf_work *work, clattn_problem *problem) {
  problem->scale_mode = spec->scale_mode;
  problem->scale = spec->scale;
  problem->softcap = spec->softcap;
  problem->causal = spec->causal ? 1 : 0;
  problem->offset_mode = spec->offset_mode;
  problem->offset = spec->offset;
  if (spec->window_left >= 0) {
    problem->window |= CLATTN_WINDOW_LEFT;
    problem->window_left = spec->window_left;
  }
  if (spec->window_right >= 0) {
    problem->window |= CLATTN_WINDOW_RIGHT;
    problem->window_right = spec->window_right;
  }
  if (work->k_lengths != NULL)
    problem->k_length_mode = CLATTN_LENGTH_PER_BATCH;
}

/* The jobs: the case itself; where raw scores are wanted beside key lengths, these without the lengths (the operator
 * has real products there, clattn -inf); and a keep mask once more as bits. */
static void set_jobs(const clattn_problem *problem, const int64_t bits_stride[4], cf_work *work) {
  cf_job *main_job = &work->job[work->jobs++];
  memset(main_job, 0, sizeof *main_job);
  main_job->what = "";
  main_job->keep = CF_KEEP;
  main_job->problem = *problem;
  main_job->use_k_lengths = work->k_lengths != NULL;
  main_job->use_q_offsets = problem->offset_mode == CLATTN_OFFSET_PER_BATCH;
  if ((problem->outputs & CLATTN_OUT_SCORES) != 0 && work->k_lengths != NULL &&
      (problem->stage == CLATTN_STAGE_RAW || problem->stage == CLATTN_STAGE_SOFTCAP)) {
    /* With nothing else to judge it takes the place of the plain job. */
    const int alone = problem->outputs == CLATTN_OUT_SCORES;
    cf_job *scores = alone ? main_job : &work->job[work->jobs++];
    *scores = *main_job;
    scores->what = "scores without key lengths";
    scores->problem.outputs = CLATTN_OUT_SCORES;
    scores->problem.k_length_mode = CLATTN_LENGTH_FULL;
    scores->use_k_lengths = 0;
    if (!alone) {
      main_job->problem.outputs &= ~(uint32_t)CLATTN_OUT_SCORES;
      main_job->problem.stage = CLATTN_STAGE_RAW;
      memset(&main_job->problem.scores, 0, sizeof main_job->problem.scores);
    }
  }
  if (problem->keep_mask_kind == CLATTN_MASK_U8) {
    cf_job *bits = &work->job[work->jobs++];
    *bits = *main_job;
    bits->what = "keep mask as bits";
    bits->keep = CF_BITS;
    bits->problem.keep_mask_kind = CLATTN_MASK_BITS;
    set_strided(&bits->problem.keep_mask, 0, bits_stride);
  }
}

int cf_build(const cf_spec *spec, cf_work *work, cf_reason *reason) {
  clattn_problem problem;
  int64_t bits_stride[4] = {0};
  const int64_t *q = spec->q_view.shape, *k = spec->k_view.shape, *v = spec->v_view.shape;
  clattn_dtype dtype = CLATTN_F32;
  clattn_problem_init(&problem);
  if (!cf_check_sizes(spec, reason))
    return 0;
  work->batch = q[0];
  problem.batch = q[0] > 0 ? q[0] : 1; /* a bound of 0 means 1; the size of the call says 0 */
  problem.q_heads = q[1];
  problem.kv_heads = k[1];
  problem.q_len = q[2];
  problem.k_len = k[2];
  problem.qk_dim = q[3];
  problem.v_dim = v[3];
  if (!store_tensor(spec->q, "Q", &work->input[CF_Q], &dtype, reason))
    return 0;
  set_strided(&problem.q, dtype, spec->q_view.stride);
  if (!store_tensor(spec->k, "K", &work->input[CF_K], &dtype, reason))
    return 0;
  set_strided(&problem.k, dtype, spec->k_view.stride);
  if (!store_tensor(spec->v, "V", &work->input[CF_V], &dtype, reason))
    return 0;
  set_strided(&problem.v, dtype, spec->v_view.stride);
  if (spec->mask != NULL && !store_mask(spec, work, &problem, bits_stride, reason))
    return 0;
  if (spec->k_lengths != NULL && !store_k_lengths(spec, work, reason))
    return 0;
  if (spec->slopes != NULL) {
    if (spec->slopes->rank != 1 || spec->slopes->count != q[1])
      return cf_fail(reason, "there are %" PRId64 " ALiBi slopes for %" PRId64 " heads", spec->slopes->count, q[1]);
    if (!store_floats(spec->slopes, &work->input[CF_SLOPES], reason))
      return 0;
    problem.alibi = spec->alibi;
  }
  if (spec->offset_mode == CLATTN_OFFSET_PER_BATCH) {
    work->q_offsets = cf_allocate(work->batch, sizeof *work->q_offsets);
    if (work->q_offsets == NULL)
      return cf_fail(reason, "out of memory");
    for (int64_t b = 0; b < work->batch; b++)
      work->q_offsets[b] = (int32_t)((int64_t)work->k_lengths[b] - q[2]);
  }
  set_rules(spec, work, &problem);
  if (!set_results(spec, work, &problem, reason))
    return 0;
  set_jobs(&problem, bits_stride, work);
  return 1;
}

void cf_work_free(cf_work *work) {
  for (int i = 0; i < CF_SLOTS; i++)
    free(work->input[i].data);
  free(work->k_lengths);
  free(work->q_offsets);
  memset(work, 0, sizeof *work);
}
