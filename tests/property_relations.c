/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold of two runs, whatever the reference says. */
#include "property.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double eps = 1.1920929e-7;

/* A second problem beside the first one. */
typedef struct second {
  device_job job;
  job_memory memory;
  int open;
} second;

static int second_open(const device_rig *rig, second *s) {
  s->open = job_memory_open(rig, &s->job, &s->memory);
  return s->open;
}

static void second_close(second *s) {
  if (s->open)
    job_memory_close(&s->memory);
  s->open = 0;
}

/* Sets what follows from a changed problem; arrays are the caller's. */
static int second_problem(second *s) {
  size_t length = 0;
  const clattni_sizes sizes = s->job.sizes;
  const int given = s->job.sizes_given;
  if (clattn_problem_format(&s->job.problem, s->job.line, sizeof s->job.line, &length) != CLATTN_SUCCESS ||
      !device_job_read_line("related", &s->job))
    return 0;
  if (given) {
    s->job.sizes.batch = sizes.batch;
    s->job.sizes.q_len = sizes.q_len;
    s->job.sizes.k_len = sizes.k_len;
  }
  return 1;
}

static int second_run(const device_rig *rig, second *s, const property_case *c, uint32_t outputs) {
  int claimed;
  const run_options options = {.variant = c->variant, .outputs = outputs, .stage = c->stage};
  for (int slot = 0; slot < CLATTNI_SLOTS; ++slot)
    if (!clattni_slot_is_output((clattni_slot)slot) && s->memory.slot[slot].memory != NULL &&
        !image_push(rig->queue, &s->memory.slot[slot]))
      return 0;
  if (!device_run(rig, &s->job, &s->memory, &options, &claimed) || !claimed)
    return 0;
  if (c->plant == 2)
    property_plant(&s->job, &s->memory);
  return 1;
}

/* Inputs that lie the same way in both. */
static void copy_bytes(const job_memory *from, const job_memory *to, clattni_slot slot) {
  const image *a = &from->slot[slot], *b = &to->slot[slot];
  if (a->memory != NULL && b->memory != NULL)
    memcpy(b->memory, a->memory, a->bytes < b->bytes ? a->bytes : b->bytes);
}

/* Elements of a tensor that lies another way; rows as the first has them. */
static void copy_rows(const image *from, const image *to, int64_t b, int64_t rows) {
  for (int64_t h = 0; from->memory != NULL && to->memory != NULL && h < from->shape[1]; ++h)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t e = 0; e < from->shape[3]; ++e)
        image_set_raw(to, b, h, r, e, image_raw(from, b, h, r, e));
}

static const clattni_slot key_slots[] = {CLATTNI_K, CLATTNI_V, CLATTNI_K_SCALE, CLATTNI_V_SCALE};
static const clattni_slot pair_slots[] = {CLATTNI_BIAS, CLATTNI_KEEP_MASK, CLATTNI_BLOCK_MASK};
static const clattni_slot same_slots[] = {CLATTNI_ALIBI_SLOPES, CLATTNI_SINK,     CLATTNI_HEAD_SCALE,
                                          CLATTNI_ADD_W,        CLATTNI_ROPE_COS, CLATTNI_ROPE_SIN};
#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static int differ(const char *what, const char *name, int64_t b, int64_t h, int64_t r, int64_t e, double got,
                  double want) {
  (void)fprintf(stderr, "  %s: %s[%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "] is %.9g, not %.9g\n", what, name, b,
                h, r, e, got, want);
  return 0;
}

/* Rows of the outputs of batch entries `first` to `end - 1`, bit by bit. */
static int same_rows(const char *what, const device_job *job, const job_memory *a, const job_memory *b,
                     uint32_t outputs, int64_t first, int64_t end) {
  static const struct {
    uint32_t bit;
    clattni_slot slot;
  } all[] = {{CLATTN_OUT_O, CLATTNI_O},
             {CLATTN_OUT_LSE, CLATTNI_LSE},
             {CLATTN_OUT_SCORES, CLATTNI_SCORES},
             {CLATTN_OUT_MAX_LOGIT, CLATTNI_MAX_LOGIT}};
  for (size_t n = 0; n < LENGTH(all); ++n) {
    const image *x = &a->slot[all[n].slot], *y = &b->slot[all[n].slot];
    if (!(outputs & all[n].bit) || x->memory == NULL || y->memory == NULL)
      continue;
    for (int64_t batch = first; batch < end; ++batch)
      for (int64_t h = 0; h < x->shape[1]; ++h)
        for (int64_t r = 0; r < x->shape[2]; ++r)
          for (int64_t e = 0; e < x->shape[3]; ++e)
            if ((all[n].slot == CLATTNI_MAX_LOGIT || r < job_q_len(job, batch)) && image_has_row(x, batch, r) &&
                image_raw(x, batch, h, r, e) != image_raw(y, batch, h, r, e))
              return differ(what, clattni_slot_name(all[n].slot), batch, h, r, e,
                            (double)image_float(y, batch, h, r, e), (double)image_float(x, batch, h, r, e));
  }
  return 1;
}

static verdict related_if(int good) {
  return good ? VERDICT_PASSED : VERDICT_RELATION;
}

static verdict repeated(const device_rig *rig, const property_case *c, job_memory *memory, second *s) {
  if (!second_open(rig, s) || !second_run(rig, s, c, c->outputs))
    return VERDICT_RUN;
  return related_if(same_rows("run again", &c->job, memory, &s->memory, c->outputs, 0, c->job.sizes.batch));
}

/* ---- the order of keys ----------------------------------------------------------------------------------------- */

static int has_positions(const clattn_problem *p) {
  return p->causal || p->window != CLATTN_WINDOW_NONE || p->chunk > 0 || p->alibi != CLATTN_ALIBI_NONE ||
         (p->rope != CLATTN_ROPE_NONE && !p->use_positions);
}

static int may_permute(const device_job *job) {
  const clattn_problem *p = &job->problem;
  return !has_positions(p) && p->block_mask_kind == CLATTN_MASK_NONE && p->k_length_mode == CLATTN_LENGTH_FULL &&
         !clattni_packed_k(p) && !clattni_paged(p) && job->sizes.k_len > 1;
}

static void permute_mask(const image *from, const image *to, int bits, const int64_t *place) {
  const int64_t keys = bits ? 32 * from->shape[3] : from->shape[3];
  for (int64_t b = 0; b < from->shape[0]; ++b)
    for (int64_t h = 0; h < from->shape[1]; ++h)
      for (int64_t i = 0; i < from->shape[2]; ++i)
        for (int64_t j = 0; j < keys; ++j) {
          if (place[j] < 0)
            continue;
          if (bits)
            image_set_bit(to, b, h, i, place[j], image_bit(from, b, h, i, j));
          else
            image_set_raw(to, b, h, i, place[j], image_raw(from, b, h, i, j));
        }
}

static void permute(const property_case *c, const job_memory *from, const job_memory *to, const int64_t *place) {
  for (size_t n = 0; n < LENGTH(key_slots); ++n) {
    const image *a = &from->slot[key_slots[n]], *z = &to->slot[key_slots[n]];
    for (int64_t b = 0; a->memory != NULL && b < a->shape[0]; ++b)
      for (int64_t h = 0; h < a->shape[1]; ++h)
        for (int64_t j = 0; j < a->shape[2]; ++j)
          for (int64_t e = 0; e < a->shape[3]; ++e)
            image_set_raw(z, b, h, place[j], e, image_raw(a, b, h, j, e));
  }
  const image *a = &from->slot[CLATTNI_POSITIONS_K], *z = &to->slot[CLATTNI_POSITIONS_K];
  for (int64_t b = 0; a->memory != NULL && b < a->shape[0]; ++b)
    for (int64_t j = 0; j < a->shape[2]; ++j)
      image_set_raw(z, b, 0, place[j], 0, image_raw(a, b, 0, j, 0));
  if (from->slot[CLATTNI_BIAS].memory != NULL)
    permute_mask(&from->slot[CLATTNI_BIAS], &to->slot[CLATTNI_BIAS], 0, place);
  if (from->slot[CLATTNI_KEEP_MASK].memory != NULL)
    permute_mask(&from->slot[CLATTNI_KEEP_MASK], &to->slot[CLATTNI_KEEP_MASK],
                 c->job.problem.keep_mask_kind == CLATTN_MASK_BITS, place);
}

static verdict permuted(const device_rig *rig, const property_case *c, const expectation *expect, job_memory *memory,
                        second *s) {
  const uint32_t outputs = c->outputs & ~(uint32_t)CLATTN_OUT_SCORES;
  const size_t keys = (size_t)c->job.sizes.k_len;
  int64_t *place = malloc((keys + 32) * sizeof *place);
  if (place == NULL || !second_open(rig, s)) {
    free(place);
    return VERDICT_RUN;
  }
  for (size_t j = 0; j < keys + 32; ++j)
    place[j] = j < keys ? (int64_t)j : -1;
  for (size_t j = keys - 1; j > 0; --j) {
    const size_t other = (size_t)(device_random(c->job.seed, 401, j) * (double)(j + 1));
    const int64_t kept = place[j];
    place[j] = place[other];
    place[other] = kept;
  }
  permute(c, memory, &s->memory, place);
  free(place);
  if (!second_run(rig, s, c, outputs))
    return VERDICT_RUN;
  return related_if(expectation_compare(expect, &s->memory, outputs, c->stage) == 0);
}

/* ---- parts of the keys ----------------------------------------------------------------------------------------- */

enum { PARTS_MOST = 3 };

/* Which part a key is in: two parts, one behind the other, or up to three mixed ones. */
static int part_of(const property_case *c, int parts, int64_t j) {
  if (parts == 2)
    return (double)j >= device_random(c->job.seed, 402, 1) * (double)(c->job.sizes.k_len + 1);
  return (int)(device_random(c->job.seed, 403, (uint64_t)j) * (double)parts);
}

static void mask_part(const property_case *c, const job_memory *memory, const image *mask, int parts, int part) {
  for (int64_t b = 0; b < mask->shape[0]; ++b)
    for (int64_t h = 0; h < mask->shape[1]; ++h)
      for (int64_t i = 0; i < job_q_len(&c->job, b); ++i)
        for (int64_t j = 0; j < job_k_len(&c->job, b); ++j)
          image_set_raw(mask, b, h, i, j, part_of(c, parts, j) == part && job_masks_keep(&c->job, memory, b, h, i, j));
}

/* Merged o or lse against the expectation.  Rounding of the parts' lse changes their weights: by so much the more of
 * what values are at most. */
static int merged_agrees(const expectation *expect, const expected *e, const image *merged, const char *name) {
  static const double largest_value = 5.0;
  const size_t dim = e == &expect->o ? e->count / (expect->lse.count > 0 ? expect->lse.count : 1) : 0;
  for (size_t n = 0; n < e->count; ++n) {
    float got;
    const double want = e->value[n];
    memcpy(&got, merged->memory + n * sizeof got, sizeof got);
    const double of_lse = dim > 0 ? largest_value * expect->lse.tolerance[n / dim] : 0.0;
    const double tolerance = 2.0 * e->tolerance[n] + 4.0 * eps * (1.0 + fabs(want)) + of_lse;
    const int same = isnan(want) ? isnan(got) != 0
                     : isinf(want)
                         ? (isnan(got) && isinf(e->tolerance[n])) || (isinf(got) && (got > 0.0f) == (want > 0.0))
                         : fabs((double)got - want) <= tolerance;
    if (!same) {
      (void)fprintf(stderr, "  keys in parts: %s %zu is %.9g, not %.9g +- %.2g\n", name, n, (double)got, want,
                    tolerance);
      return 0;
    }
  }
  return 1;
}

/* rows of o and of lse, parts one behind the other. */
typedef struct parts_memory {
  image part_o, part_lse, o, lse;
} parts_memory;

static int merge_parts(const device_rig *rig, const property_case *c, const job_memory *memory, int parts, size_t rows,
                       size_t dim, parts_memory *m) {
  clattn_merge_args args;
  clattn_error error;
  const size_t heads = (size_t)c->job.resolved.q_heads, per_head = (size_t)c->job.sizes.q_len;
  if (c->job.problem.use_sink) { /* the last part: rows of head h have lse = sink[h] */
    memset(m->part_o.memory + (size_t)parts * rows * dim * sizeof(float), 0, rows * dim * sizeof(float));
    for (size_t r = 0; r < rows; ++r) {
      const float sink = image_float(&memory->slot[CLATTNI_SINK], 0, (int64_t)(r / per_head % heads), 0, 0);
      memcpy(m->part_lse.memory + ((size_t)parts * rows + r) * sizeof sink, &sink, sizeof sink);
    }
  }
  clattn_error_init(&error);
  clattn_merge_args_init(&args);
  args.error = &error;
  args.parts = parts + (c->job.problem.use_sink != 0);
  args.rows = (int64_t)rows;
  args.v_dim = (int64_t)dim;
  args.part_o = clattn_buffer(m->part_o.buffer, 0);
  args.part_lse = clattn_buffer(m->part_lse.buffer, 0);
  args.o = clattn_buffer(m->o.buffer, 0);
  args.lse = clattn_buffer(m->lse.buffer, 0);
  image *const results[2] = {&m->o, &m->lse};
  if (!image_push(rig->queue, &m->part_o) || !image_push(rig->queue, &m->part_lse))
    return 0;
  if (clattn_merge(rig->context, rig->queue, &args, 0, NULL, NULL) != CLATTN_SUCCESS) {
    (void)fprintf(stderr, "clattn_merge: %s\n", error.message);
    return 0;
  }
  return images_sync(rig->queue, results, 2);
}

/* Beside a huge score the number of keys that have it drowns in their lse, and with it the weight of their part. */
static int may_split(const device_job *job) {
  return job->problem.o.dtype == CLATTN_F32 && !clattni_packed_q(&job->problem) && job->sizes.batch > 0 &&
         job->sizes.q_len > 0 && job->sizes.k_len > 0 &&
         (job->data & (DATA_BIAS_HUGE | DATA_BIAS_LOWEST | DATA_BIAS_DEEP | DATA_BIAS_LOW)) == 0;
}

static verdict split(const device_rig *rig, const property_case *c, const expectation *expect, job_memory *memory,
                     second *s) {
  const int parts = device_random(c->job.seed, 404, 0) < 0.6 ? 2 : PARTS_MOST;
  const size_t rows = expect->lse.count, dim = (size_t)c->job.resolved.v_dim;
  clattn_problem *p = &s->job.problem;
  parts_memory m;
  verdict result = VERDICT_RUN;
  memset(&m, 0, sizeof m);
  p->o = p->lse = p->keep_mask = clattn_strided(CLATTN_F32, 0, 0, 0, 0);
  p->o.layout = p->lse.layout = p->keep_mask.layout = CLATTN_LAYOUT_BHSD_EXACT;
  p->keep_mask_kind = CLATTN_MASK_U8;
  p->use_sink = 0;
  p->sink = clattn_strided(CLATTN_F32, 0, 0, 0, 0);
  p->sink.layout = CLATTN_LAYOUT_BHSD;
  if (!second_problem(s) || !second_open(rig, s) ||
      !image_open(rig, (PARTS_MOST + 1) * rows * dim * sizeof(float), 0xff, &m.part_o) ||
      !image_open(rig, (PARTS_MOST + 1) * rows * sizeof(float), 0xff, &m.part_lse) ||
      !image_open(rig, rows * dim * sizeof(float), 0xff, &m.o) || !image_open(rig, rows * sizeof(float), 0xff, &m.lse))
    goto done;
  for (clattni_slot slot = 0; slot < CLATTNI_SLOTS; ++slot)
    if (!clattni_slot_is_output(slot) && slot != CLATTNI_KEEP_MASK)
      copy_bytes(memory, &s->memory, slot);
  for (int part = 0; part < parts; ++part) {
    mask_part(c, memory, &s->memory.slot[CLATTNI_KEEP_MASK], parts, part);
    if (!second_run(rig, s, c, CLATTN_OUT_O | CLATTN_OUT_LSE))
      goto done;
    const image *o = &s->memory.slot[CLATTNI_O], *lse = &s->memory.slot[CLATTNI_LSE];
    memcpy(m.part_o.memory + (size_t)part * rows * dim * sizeof(float), o->memory + o->offset,
           rows * dim * sizeof(float));
    memcpy(m.part_lse.memory + (size_t)part * rows * sizeof(float), lse->memory + lse->offset, rows * sizeof(float));
  }
  if (merge_parts(rig, c, memory, parts, rows, dim, &m))
    result =
        related_if(merged_agrees(expect, &expect->o, &m.o, "o") && merged_agrees(expect, &expect->lse, &m.lse, "lse"));

done:
  image_close(&m.part_o);
  image_close(&m.part_lse);
  image_close(&m.o);
  image_close(&m.lse);
  return result;
}

/* ---- a constant in all scores ---------------------------------------------------------------------------------- */

static const unsigned far_from_zero = DATA_BIAS_HUGE | DATA_BIAS_LOWEST | DATA_BIAS_DEEP | DATA_BIAS_LOW |
                                      DATA_BIAS_PLUS_INF | DATA_SINK_MIXED | DATA_SINK_BAD;

static int may_shift(const device_job *job) {
  return job->problem.use_bias && job->problem.bias.dtype == CLATTN_F32 && (job->data & far_from_zero) == 0;
}

static void add_to_all(const image *tensor, float more) {
  for (size_t at = tensor->offset; tensor->memory != NULL && at + sizeof(float) <= tensor->bytes; at += sizeof(float)) {
    float x;
    memcpy(&x, tensor->memory + at, sizeof x);
    x += more; /* what is poisoned stays NaN */
    memcpy(tensor->memory + at, &x, sizeof x);
  }
}

static int shifted_agrees(const expected *first, const expected *moved, const image *x, const image *y, double by,
                          const char *name) {
  size_t n = 0;
  for (int64_t b = 0; first->count > 0 && b < x->shape[0]; ++b)
    for (int64_t h = 0; h < x->shape[1]; ++h)
      for (int64_t r = 0; r < x->shape[2]; ++r)
        for (int64_t e = 0; e < x->shape[3]; ++e, ++n) {
          if (!image_has_row(x, b, r))
            continue;
          const double want = (double)image_float(x, b, h, r, e) + by, got = (double)image_float(y, b, h, r, e);
          const double tolerance = first->tolerance[n] + moved->tolerance[n];
          const int same = isinf(tolerance) ? !isfinite(want) && !isfinite(got)
                           : isnan(want)    ? isnan(got) != 0
                           : isinf(want)    ? got >= want && got <= want
                                            : fabs(got - want) <= tolerance;
          if (!same)
            return differ("a constant in all scores", name, b, h, r, e, got, want);
        }
  return 1;
}

static verdict shifted(const device_rig *rig, const property_case *c, const expectation *expect, job_memory *memory,
                       second *s) {
  const float by = device_random(c->job.seed, 405, 0) < 0.5 ? 4.0f : -3.0f;
  const uint32_t outputs = CLATTN_OUT_O | CLATTN_OUT_LSE;
  expectation moved;
  if (!second_open(rig, s))
    return VERDICT_RUN;
  add_to_all(&s->memory.slot[CLATTNI_BIAS], by);
  add_to_all(&s->memory.slot[CLATTNI_SINK], by);
  if (!expectation_make(&s->job, &s->memory, 0, &moved))
    return VERDICT_UNFIT;
  verdict result = second_run(rig, s, c, outputs) ? VERDICT_PASSED : VERDICT_RUN;
  if (result == VERDICT_PASSED)
    result = related_if(
        expectation_compare(&moved, &s->memory, outputs, c->stage) == 0 &&
        (c->job.problem.o.dtype != CLATTN_F32 ||
         shifted_agrees(&expect->o, &moved.o, &memory->slot[CLATTNI_O], &s->memory.slot[CLATTNI_O], 0.0, "o")) &&
        (!(c->outputs & CLATTN_OUT_LSE) || shifted_agrees(&expect->lse, &moved.lse, &memory->slot[CLATTNI_LSE],
                                                          &s->memory.slot[CLATTNI_LSE], (double)by, "lse")));
  expectation_free(&moved);
  return result;
}

/* ---- other batch entries --------------------------------------------------------------------------------------- */

static void change_entry(const image *tensor, int64_t b) {
  for (int64_t h = 0; h < tensor->shape[1]; ++h)
    for (int64_t r = 0; r < tensor->shape[2]; ++r)
      for (int64_t e = 0; image_has_row(tensor, b, r) && e < tensor->shape[3]; ++e) {
        if (tensor->scale != NULL)
          image_set_raw(tensor, b, h, r, e, image_raw(tensor, b, h, r, e) ^ 5u);
        else
          image_set(tensor, b, h, r, e, (h + r + e) % 7 == 0 ? NAN : 1e4f);
      }
}

static verdict others(const device_rig *rig, const property_case *c, job_memory *memory, second *s) {
  static const clattni_slot changed[] = {CLATTNI_Q,    CLATTNI_K,       CLATTNI_V,
                                         CLATTNI_BIAS, CLATTNI_K_SCALE, CLATTNI_V_SCALE};
  const int64_t batch = c->job.sizes.batch, kept = (int64_t)(device_random(c->job.seed, 406, 0) * (double)batch);
  if (!second_open(rig, s))
    return VERDICT_RUN;
  for (size_t n = 0; n < LENGTH(changed); ++n) {
    const image *tensor = &s->memory.slot[changed[n]];
    const int apart = tensor->starts != NULL ? tensor->stride[2] != 0 : tensor->table == NULL && tensor->stride[0] != 0;
    for (int64_t b = 0; tensor->memory != NULL && apart && b < batch; ++b)
      if (b != kept)
        change_entry(tensor, b);
  }
  if (!second_run(rig, s, c, c->outputs))
    return VERDICT_RUN;
  return related_if(same_rows("other batch entries changed", &c->job, memory, &s->memory, c->outputs, kept, kept + 1));
}

/* ---- packed, paged --------------------------------------------------------------------------------------------- */

static int is_plain(const device_job *job) {
  return !clattni_packed_q(&job->problem) && !clattni_packed_k(&job->problem) && !clattni_paged(&job->problem) &&
         job->sizes.batch > 0 && job->sizes.q_len > 0 && job->sizes.k_len > 0;
}

static void lie_as(clattn_tensor *tensor, clattn_layout layout) {
  tensor->layout = layout;
  memset(tensor->stride, 0, sizeof tensor->stride);
}

static void keys_lie_as(clattn_problem *p, clattn_layout layout) {
  lie_as(&p->k, layout);
  lie_as(&p->v, layout);
  if (clattni_quantised(p->k.dtype))
    lie_as(&p->k_scale, layout);
  if (clattni_quantised(p->v.dtype))
    lie_as(&p->v_scale, layout);
}

static void pack(job_ints *starts, const device_job *job, int64_t (*length)(const device_job *, int64_t)) {
  starts->given = 1;
  starts->count = (size_t)job->sizes.batch + 1;
  starts->entry[0] = 0;
  for (int64_t b = 0; b < job->sizes.batch; ++b)
    starts->entry[b + 1] = starts->entry[b] + (int32_t)length(job, b);
}

static int64_t at_least_one(int64_t x) {
  return x > 0 ? x : 1;
}

/* What both layouts have alike, then rows. */
static int fill_second(const device_rig *rig, const property_case *c, const job_memory *memory, second *s) {
  if (!second_open(rig, s))
    return 0;
  if (s->memory.slot[CLATTNI_PAGE_TABLE].memory != NULL) {
    const image *table = &s->memory.slot[CLATTNI_PAGE_TABLE];
    const int64_t pages = s->job.problem.num_pages, size = s->job.problem.page_size;
    for (int64_t b = 0; b < c->job.sizes.batch; ++b)
      for (int64_t n = 0; n * size < job_k_len(&c->job, b); ++n) { /* the last page first */
        const int32_t page = (int32_t)(pages - 1 - (b * s->job.problem.max_pages + n));
        memcpy(table->memory + image_at(table, b, 0, 0, n), &page, sizeof page);
      }
  }
  for (size_t n = 0; n < LENGTH(pair_slots); ++n)
    copy_bytes(memory, &s->memory, pair_slots[n]);
  for (size_t n = 0; n < LENGTH(same_slots); ++n)
    copy_bytes(memory, &s->memory, same_slots[n]);
  for (int64_t b = 0; b < c->job.sizes.batch; ++b) {
    copy_rows(&memory->slot[CLATTNI_Q], &s->memory.slot[CLATTNI_Q], b, job_q_len(&c->job, b));
    copy_rows(&memory->slot[CLATTNI_POSITIONS_Q], &s->memory.slot[CLATTNI_POSITIONS_Q], b, job_q_len(&c->job, b));
    copy_rows(&memory->slot[CLATTNI_POSITIONS_K], &s->memory.slot[CLATTNI_POSITIONS_K], b, job_k_len(&c->job, b));
    for (size_t n = 0; n < LENGTH(key_slots); ++n)
      copy_rows(&memory->slot[key_slots[n]], &s->memory.slot[key_slots[n]], b, job_k_len(&c->job, b));
  }
  return 1;
}

/* Bits are the same only where the plan promises that nothing around a row counts; else the reference judges. */
static verdict compare_second(const device_rig *rig, const property_case *c, const expectation *expect,
                              const job_memory *memory, second *s, const char *what) {
  const uint32_t outputs = c->outputs & ~(uint32_t)CLATTN_OUT_SCORES;
  if (!second_run(rig, s, c, outputs))
    return VERDICT_RUN;
  if (c->job.problem.flags & CLATTN_BATCH_INVARIANT)
    return related_if(same_rows(what, &c->job, memory, &s->memory, outputs, 0, c->job.sizes.batch));
  return related_if(expectation_compare(expect, &s->memory, outputs, c->stage) == 0);
}

static verdict packed(const device_rig *rig, const property_case *c, const expectation *expect, job_memory *memory,
                      second *s) {
  clattn_problem *p = &s->job.problem;
  job_ints *array = s->job.array;
  pack(&array[ARRAY_CU_Q], &c->job, job_q_len);
  pack(&array[ARRAY_CU_K], &c->job, job_k_len);
  p->total_q = at_least_one(array[ARRAY_CU_Q].entry[c->job.sizes.batch]);
  p->total_k = at_least_one(array[ARRAY_CU_K].entry[c->job.sizes.batch]);
  p->q_len = c->job.resolved.q_len;
  p->k_len = c->job.resolved.k_len;
  lie_as(&p->q, CLATTN_LAYOUT_PACKED);
  lie_as(&p->o, CLATTN_LAYOUT_PACKED);
  lie_as(&p->lse, CLATTN_LAYOUT_PACKED);
  keys_lie_as(p, CLATTN_LAYOUT_PACKED);
  p->q_length_mode = p->k_length_mode = CLATTN_LENGTH_FULL;
  array[ARRAY_Q_LENGTHS].given = array[ARRAY_K_LENGTHS].given = 0;
  s->job.on_device &= ~(unsigned)ON_DEVICE_WILD;
  if (!second_problem(s))
    return VERDICT_RUN;
  device_job_finish(&s->job);
  return fill_second(rig, c, memory, s) ? compare_second(rig, c, expect, memory, s, "packed") : VERDICT_RUN;
}

static verdict paged(const device_rig *rig, const property_case *c, const expectation *expect, job_memory *memory,
                     second *s) {
  static const int64_t page_sizes[] = {1, 7, 16, 64};
  clattn_problem *p = &s->job.problem;
  job_ints *lengths = &s->job.array[ARRAY_K_LENGTHS];
  p->page_size = page_sizes[(size_t)(device_random(c->job.seed, 407, 0) * 4.0)];
  p->max_pages = (c->job.resolved.k_len + p->page_size - 1) / p->page_size;
  p->num_pages = c->job.sizes.batch * p->max_pages;
  keys_lie_as(p, CLATTN_LAYOUT_PAGED);
  p->k_length_mode = CLATTN_LENGTH_PER_BATCH;
  lengths->given = 1;
  lengths->count = (size_t)c->job.sizes.batch;
  for (int64_t b = 0; b < c->job.sizes.batch; ++b)
    lengths->entry[b] = (int32_t)job_k_len(&c->job, b);
  s->job.on_device &= ~(unsigned)ON_DEVICE_WILD;
  s->job.check_contents = 0; /* entries behind the keys are wild */
  if (!second_problem(s))
    return VERDICT_RUN;
  device_job_finish(&s->job);
  return fill_second(rig, c, memory, s) ? compare_second(rig, c, expect, memory, s, "paged") : VERDICT_RUN;
}

int property_applies(const device_job *job, relation which) {
  switch (which) {
  case RELATION_NONE:
    return 0;
  case RELATION_REPEATED:
    return 1;
  case RELATION_PERMUTED:
    return may_permute(job);
  case RELATION_SPLIT:
    return may_split(job);
  case RELATION_SHIFTED:
    return may_shift(job);
  case RELATION_OTHERS:
    return job->sizes.batch > 1;
  case RELATION_PACKED:
  case RELATION_PAGED:
    return is_plain(job);
  case RELATIONS:
    break;
  }
  return 0;
}

verdict property_relate(const device_rig *rig, const property_case *c, const expectation *expect, job_memory *memory,
                        int *related) {
  verdict result = VERDICT_PASSED;
  if (!property_applies(&c->job, c->relation))
    return VERDICT_PASSED;
  second *s = calloc(1, sizeof *s);
  if (s == NULL)
    return VERDICT_RUN;
  s->job = c->job;
  *related = 1;
  switch (c->relation) {
  case RELATION_REPEATED:
    result = repeated(rig, c, memory, s);
    break;
  case RELATION_PERMUTED:
    result = permuted(rig, c, expect, memory, s);
    break;
  case RELATION_SPLIT:
    result = split(rig, c, expect, memory, s);
    break;
  case RELATION_SHIFTED:
    result = shifted(rig, c, expect, memory, s);
    break;
  case RELATION_OTHERS:
    result = others(rig, c, memory, s);
    break;
  case RELATION_PACKED:
    result = packed(rig, c, expect, memory, s);
    break;
  case RELATION_PAGED:
    result = paged(rig, c, expect, memory, s);
    break;
  case RELATION_NONE:
  case RELATIONS:
    break;
  }
  second_close(s);
  free(s);
  return result;
}
