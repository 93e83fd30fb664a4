/* SPDX-License-Identifier: Apache-2.0 */
/* Programs and problems from a seed.  Building is dear, so few programs are drawn first, then many problems for each. */
#include "property.h"

#include <stdio.h>
#include <string.h>

#include "select.h"

/* Numbers of one program. */
typedef struct draw {
  uint64_t seed, place, count;
} draw;

static size_t below(draw *d, size_t count) {
  return (size_t)(device_random(d->seed, 500 + d->place, d->count++) * (double)count);
}

static const char *const floats[] = {"f32", "f16", "bf16"};

/* Eight kinds of types in turn, three similarities and the variants beside them, so that any 24 programs have all
 * pairs of a kind and a similarity, and of a similarity and a rotary embedding, which half of the programs have; the
 * rest by chance. */
static void draw_types(draw *d, size_t index, property_program *program) {
  static const char *const similarities[] = {"", " sim=cosine", " sim=additive"};
  static const char *const all[] = {"f32", "f16", "bf16", "i8", "i4"};
  static const char *const ropes[] = {"", " rope=half", " rope=interleaved", ""};
  draw_mix *mix = &program->mix;
  const size_t kind = index % 8, turn = index / 8;
  mix->q = mix->k = mix->v = mix->o = mix->bias = "f32";
  if (kind == 1 || kind == 2) { /* any of the three, each on its own */
    mix->q = floats[below(d, 3)];
    mix->k = floats[below(d, 3)];
    mix->v = floats[below(d, 3)];
    mix->o = floats[below(d, 3)];
    mix->bias = floats[below(d, 3)];
  } else if (kind == 3) {
    const char *type = floats[1 + turn % 2];
    mix->q = mix->k = mix->v = type;
    mix->o = floats[below(d, 3)];
  } else if (kind > 3) { /* quantised, q and o in turn of all three */
    const char *const type = all[3 + kind % 2];
    mix->q = floats[index % 3];
    mix->o = floats[(index + 1 + below(d, 2)) % 3];
    const char *const other = turn == 0 ? all[3 + (kind + 1) % 2] : all[below(d, 5)]; /* both kinds together, too */
    mix->k = kind < 6 ? type : other;
    mix->v = kind < 6 ? other : type;
  }
  if (mix->k[0] == 'i')
    mix->k_scale = floats[below(d, 2)];
  if (mix->v[0] == 'i')
    mix->v_scale = floats[below(d, 2)];
  mix->biased = strcmp(mix->bias, "f32") != 0;
  (void)snprintf(program->words, sizeof program->words, "%s%s%s", similarities[turn % 3],
                 kind == 3 && below(d, 2) == 0 ? " math=half" : "", ropes[(kind + turn) % 4]);
}

/* Rows and keys of a tile, from selection, which builds nothing. */
static int find_tile(const device_rig *rig, property_program *program) {
  clattn_problem problem;
  clattn_device_info device;
  clattni_request request;
  clattni_choice choice;
  clattn_error error;
  char line[256];
  clattn_device_info_init(&device);
  clattn_error_init(&error);
  memset(&request, 0, sizeof request);
  (void)snprintf(line, sizeof line, "sq=1024 sk=1024 rope_dim=%d d=%d q=%s k=%s v=%s o=%s%s",
                 (int)program->mix.most / 2 * 2, (int)program->mix.most, program->mix.q, program->mix.k, program->mix.v,
                 program->mix.o, program->words);
  if (clattn_problem_parse(line, &problem, &error) != CLATTN_SUCCESS ||
      clattn_context_device_info(rig->context, &device) != CLATTN_SUCCESS) {
    (void)fprintf(stderr, "%s: %s\n", line, error.message);
    return 0;
  }
  clattni_problem_resolve(&problem, &problem);
  request.problem = &problem;
  request.device = &device;
  request.variant = program->variant;
  if (clattni_select(&request, &choice, &error) != CLATTN_SUCCESS) {
    (void)fprintf(stderr, "%s, %s: %s\n", line, program->variant, error.message);
    return 0;
  }
  program->mix.rows = choice.rows;
  program->mix.keys = choice.keys_per_chunk;
  return 1;
}

/* The variants that the device takes, the fused ones twice: they are what people run. */
static size_t usable_variants(const device_rig *rig, const char *to[], size_t most) {
  clattn_problem problem;
  size_t count = 0;
  (void)clattn_problem_parse("sq=1 sk=1 d=1", &problem, NULL);
  for (uint32_t index = 0; clattn_variant_name(index) != NULL; ++index) {
    clattn_support support;
    clattn_support_init(&support);
    if (clattn_supported(rig->context, &problem, clattn_variant_name(index), &support) != CLATTN_SUCCESS)
      continue;
    for (int again = 0; again <= clattni_variant_at(index)->fused && count < most; ++again)
      to[count++] = clattn_variant_name(index);
  }
  return count;
}

int property_programs(const device_rig *rig, uint64_t seed, size_t count, property_program *programs) {
  /* classes of head dimensions, the small ones more often: programs of the others are the same for types */
  static const int64_t most[] = {32, 32, 32, 64, 64, 128, 256, 1100};
  const char *variants[16];
  const size_t variant_count = usable_variants(rig, variants, 16);
  for (size_t n = 0; variant_count > 0 && n < count; ++n) {
    draw d = {seed, n, 0};
    property_program *program = &programs[n];
    memset(program, 0, sizeof *program);
    draw_types(&d, n, program);
    program->mix.words = program->words;
    program->mix.most = most[below(&d, sizeof most / sizeof most[0])];
    program->mix.least = program->mix.most == 1100 ? 257 : program->mix.most == 32 ? 1 : program->mix.most / 2 + 1;
    program->variant = variants[(n + n / 8 + (size_t)(seed % variant_count)) % variant_count];
    if (!find_tile(rig, program))
      return 0;
  }
  return variant_count > 0;
}

int property_draw(const property_program *program, uint64_t seed, size_t index, property_case *c) {
  draw d = {seed, 1000 + index, 0};
  const int crossing = below(&d, 100) < 34;
  const uint64_t own = seed * UINT64_C(0x9e3779b97f4a7c15) + index;
  memset(c, 0, sizeof *c);
  if (!device_job_draw(own, &program->mix, crossing, &c->job))
    return 0;
  (void)snprintf(c->variant, sizeof c->variant, "%s", program->variant);
  /* o always: programs without it have other options */
  static const uint32_t outputs[] = {3, 3, 3, 1, 7, 15, 11};
  c->outputs = outputs[below(&d, sizeof outputs / sizeof outputs[0])];
  c->stage = (clattn_stage)below(&d, 4);
  /* one of those that apply: that few problems allow more often, that all allow less often */
  relation fit[8 + 2 * RELATIONS];
  size_t count = 0;
  for (int which = RELATION_PERMUTED; which < RELATIONS; ++which)
    for (int again = 0; again <= 7 * (which == RELATION_PERMUTED) && property_applies(&c->job, (relation)which);
         ++again)
      fit[count++] = (relation)which;
  if (count == 0 || below(&d, 4) == 0)
    fit[count++] = RELATION_REPEATED;
  c->relation = fit[below(&d, count)];
  return 1;
}

int property_crosses(const property_program *program, const device_job *job) {
  for (int64_t b = 0; b < job->sizes.batch; ++b)
    if (job_q_len(job, b) > program->mix.rows && job_k_len(job, b) > 2 * program->mix.keys)
      return 1;
  return 0;
}
