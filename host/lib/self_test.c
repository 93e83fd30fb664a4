/* SPDX-License-Identifier: Apache-2.0 */
/* clattn_self_test: small problems with known results on every variant that the device takes. */
#include "self_test_cases.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "dtype.h"
#include "enqueue.h"
#include "self_test_data.h"
#include "status.h"

/* Of a result, or of 1 for smaller ones: room for a driver's exp and tanh, and for rounding once to f16 or bf16.  A
 * wrong rule moves a result by far more. */
static const double tolerance[] = {[CLATTN_F32] = 2e-5, [CLATTN_F16] = 2e-5 + 0x1p-11, [CLATTN_BF16] = 2e-5 + 0x1p-8};
enum { DROPPED_KEY = 5 /* no keep mask lets it through */ };

/* More than one block of 64 keys, and the last block not full, wherever that matters. */
static const clattni_self_test_row rows[] = {
    {.name = "plain", .problem = "hq=2 sq=3 sk=68 d=8", .step = 1},
    {.name = "causal and window, shared key heads",
     .problem = "hq=6 hkv=2 sq=7 sk=72 d=8 dv=5 causal=1 off=bottom_right window=3,inf out=o,lse",
     .step = 1},
    {.name = "bias of -inf, 1e30, -1e30 and -FLT_MAX",
     .problem = "hq=2 hkv=1 sq=9 sk=70 d=8 dv=7 bias=f32 out=o,lse,max_logit",
     .step = 1},
    {.name = "softcap, sink and ALiBi",
     .problem = "hq=6 hkv=2 sq=4 sk=12 d=40 dv=24 softcap=1.5 sink=f32 alibi=symmetric off=4 out=o,lse",
     .step = 5},
    {.name = "lengths and a mask of bits",
     .problem = "b=4 hq=2 hkv=1 sq=5 sk=66 d=5 dv=3 mask=bits qlen=per_batch klen=per_batch causal=1 "
                "off=bottom_right out=o,lse",
     .step = 1,
     .q_lengths = {5, 3, 0, 4},
     .k_lengths = {66, 0, 21, 37}},
    {.name = "masks of bytes and blocks, chunks, weights",
     .problem = "hq=2 sq=6 sk=70 d=8 dv=4 mask=u8:strided:0,0,70,1 block_mask=bits block_q=4 block_k=16 chunk=48 "
                "off=44 sink=f32 out=o,lse,scores stage=weights",
     .step = 3},
    {.name = "packed sequences with a prefix",
     .problem = "b=4 hq=6 hkv=2 sq=5 sk=70 d=8 dv=4 q=packed k=packed v=packed o=packed lse=packed total_q=12 "
                "total_k=90 causal=1 prefix=per_batch out=o,lse",
     .step = 1,
     .prefix = {68, 0, 4, 2},
     .cu_seqlens_q = {0, 4, 4, 9, 12},
     .cu_seqlens_k = {0, 70, 81, 81, 90}},
    {.name = "pages and signed ALiBi",
     .problem = "b=2 hq=2 hkv=1 sq=3 sk=72 d=8 k=paged v=paged pages=13 max_pages=9 page_size=8 klen=per_batch "
                "off=bottom_right window=60,1 alibi=signed out=o,lse",
     .step = 1,
     .k_lengths = {67, 21},
     /* Out of order; page 7 twice; what lies behind a length is no page. */
     .page_table = {7, 2, 11, 0, 5, 9, 3, 12, 8, 7, 4, 10, -5, 99, -1, 13, 6, 1}},
    {.name = "wide heads, negative scale",
     .problem = "hq=2 hkv=1 sq=6 sk=10 d=80 dv=40 scale=-0.125 causal=1 prefix=3 out=o,lse",
     .step = 7},
    {.name = "a factor per head",
     .problem = "hq=6 hkv=2 sq=3 sk=71 d=8 dv=5 head_scale=f32 causal=1 off=bottom_right out=o,lse,max_logit",
     .step = 2},
    /* Each of these has a program of its own to be built. */
    {.name = "f16", .problem = "hq=2 hkv=1 sq=3 sk=68 d=8 q=f16 k=f16 v=f16 o=f16 out=o,lse", .step = 1},
    {.name = "bf16, cosine",
     .problem = "hq=2 hkv=1 sq=3 sk=68 d=9 dv=8 q=bf16 k=bf16 v=bf16 o=bf16 sim=cosine scale=4 out=o,lse",
     .step = 1},
    {.name = "i4 in groups",
     .problem = "b=2 hq=2 hkv=1 sq=3 sk=71 d=37 dv=34 k=i4 v=i4 v_scale=f16 klen=per_batch out=o,lse",
     .step = 5,
     .k_lengths = {69, 21}},
    {.name = "i8, additive",
     .problem = "hq=4 hkv=2 sq=3 sk=20 d=8 dv=5 q=f16 k=i8 v=i8 k_scale=f16 sim=additive out=o,lse",
     .step = 1},
};

uint32_t clattni_self_test_count(void) {
  return sizeof(rows) / sizeof(rows[0]);
}

/* ---- inputs ---- */

/* An odd multiple of 1/64 within -1 and 1: never 0, whose products would be exact by chance. */
static float number(uint32_t seed, int64_t index) {
  uint32_t x = (uint32_t)index * UINT32_C(2654435761) + seed * UINT32_C(40503);
  x = (x ^ x >> 15) * UINT32_C(2246822519);
  x = (x ^ x >> 13) * UINT32_C(3266489917);
  return (float)(2 * (int32_t)((x ^ x >> 16) % 64) - 63) / 64.0f;
}

/* Writes element `at` of an input that holds such numbers, cut to what the type holds: most of them fit. */
static void put(const clattni_self_test_case *of, clattni_slot slot, int64_t at, float value) {
  const clattn_dtype dtype = clattni_slot_tensor(&of->problem, slot)->dtype;
  unsigned char *bytes = of->input[slot];
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  if (dtype == CLATTN_F32) {
    memcpy(bytes + 4 * at, &bits, 4);
  } else if (dtype == CLATTN_F16 || dtype == CLATTN_BF16) {
    /* f16's exponent counts from 15, not 127; no number here is below 2^-14 */
    const uint16_t half = (uint16_t)((bits >> 16 & 0x8000) | ((bits & 0x7fffffff) - ((127 - 15) << 23)) >> 13);
    const uint16_t kept = dtype == CLATTN_F16 ? half : (uint16_t)(bits >> 16);
    memcpy(bytes + 2 * at, &kept, 2);
  } else if (dtype == CLATTN_I8) {
    bytes[at] = (unsigned char)((int)(64 * value) & 255); /* odd, within -63 and 63 */
  } else {
    const unsigned nibble = (unsigned)((int)(64 * value) + 63) / 2 % 16;
    bytes[at / 2] =
        (unsigned char)(at % 2 != 0 ? (bytes[at / 2] & 15u) | nibble << 4 : (bytes[at / 2] & 240u) | nibble);
  }
}

static int64_t address(const int64_t stride[4], int64_t batch, int64_t head, int64_t row, int64_t element) {
  return batch * stride[0] + head * stride[1] + row * stride[2] + element * stride[3];
}

static int64_t q_length(const clattni_self_test_case *of, int64_t b) {
  if (clattni_packed_q(&of->problem))
    return of->row->cu_seqlens_q[b + 1] - of->row->cu_seqlens_q[b];
  return of->problem.q_length_mode == CLATTN_LENGTH_PER_BATCH ? of->row->q_lengths[b] : of->sizes.q_len;
}

static int64_t k_length(const clattni_self_test_case *of, int64_t b) {
  if (clattni_packed_k(&of->problem))
    return of->row->cu_seqlens_k[b + 1] - of->row->cu_seqlens_k[b];
  return of->problem.k_length_mode == CLATTN_LENGTH_PER_BATCH ? of->row->k_lengths[b] : of->sizes.k_len;
}

static void fill_queries(const clattni_self_test_case *of, uint32_t seed) {
  const int64_t *stride = of->stride[CLATTNI_Q];
  for (int64_t b = 0; b < of->sizes.batch; ++b)
    for (int64_t h = 0; h < of->problem.q_heads; ++h)
      for (int64_t i = 0; i < q_length(of, b); ++i)
        for (int64_t e = 0; e < of->problem.qk_dim; ++e) {
          const int packed = clattni_packed_q(&of->problem);
          const int64_t at =
              packed ? address(stride, 0, h, of->row->cu_seqlens_q[b] + i, e) : address(stride, b, h, i, e);
          put(of, CLATTNI_Q, at, 4 * number(seed, at));
        }
}

/* k or v, or the scales of either: small, and far from each other. */
static void fill_keys(const clattni_self_test_case *of, clattni_slot slot, uint32_t seed) {
  const clattn_problem *problem = &of->problem;
  const int64_t *stride = of->stride[slot];
  const int scales = slot == CLATTNI_K_SCALE || slot == CLATTNI_V_SCALE;
  const clattn_dtype scaled = slot == CLATTNI_K_SCALE ? problem->k.dtype : problem->v.dtype;
  const float largest = scaled == CLATTN_I8 ? 64 : 8;
  for (int64_t b = 0; b < of->sizes.batch; ++b)
    for (int64_t j = 0; j < k_length(of, b); ++j) {
      int64_t outer = b, row = j;
      if (problem->keep_mask_kind != CLATTN_MASK_NONE && j == DROPPED_KEY)
        continue;
      if (clattni_packed_k(problem)) {
        outer = 0;
        row = of->row->cu_seqlens_k[b] + j;
      } else if (clattni_paged(problem)) {
        outer = of->row->page_table[b * problem->max_pages + j / problem->page_size];
        row = j % problem->page_size;
      }
      for (int64_t h = 0; h < problem->kv_heads; ++h)
        for (int64_t e = 0; e < of->shape[slot][3]; ++e) {
          const int64_t at = address(stride, outer, h, row, e);
          put(of, slot, at, scales ? (1.5f + number(seed, at)) / largest : number(seed, at));
        }
    }
}

/* A kind of row for each way in which a row's scores may be far from plain. */
static float bias_of(int64_t row, int64_t j, float plain) {
  switch (row % 9) {
  case 1:
    return -INFINITY;
  case 2: /* the first block of keys has none */
    return j < 66 ? -INFINITY : plain;
  case 3:
    return -FLT_MAX;
  case 4:
    return -1e30f;
  case 5:
    return j == 40 ? 1e30f : plain;
  case 6:
    return j < 64 ? -FLT_MAX : -1e30f;
  case 7:
    return j % 2 ? -INFINITY : j % 10 == 4 ? 1e30f : plain;
  case 8:
    return j % 5 == 0 ? -FLT_MAX : j % 5 == 1 ? -1e30f : plain;
  default:
    return plain;
  }
}

/* f16 has no number as large.  Its stand-in is not larger, since scores beside it keep their last bits. */
static void put_bias(const clattni_self_test_case *of, int64_t at, float value) {
  static const uint16_t half_minus_infinity = 0xfc00;
  const int half = of->problem.bias.dtype == CLATTN_F16;
  if (half && value == -INFINITY)
    memcpy((unsigned char *)of->input[CLATTNI_BIAS] + 2 * at, &half_minus_infinity, 2);
  else if (half && fabsf(value) > 1024.0f)
    put(of, CLATTNI_BIAS, at, value < 0 ? -1024.0f : 1024.0f);
  else
    put(of, CLATTNI_BIAS, at, value);
}

static void fill_bias(const clattni_self_test_case *of, uint32_t seed) {
  for (int64_t n = 0; n < clattni_self_test_elements(of, CLATTNI_BIAS); ++n) {
    int64_t at[4];
    clattni_self_test_place(of, CLATTNI_BIAS, n, at);
    put_bias(of, address(of->stride[CLATTNI_BIAS], at[0], at[1], at[2], at[3]),
             bias_of(at[0] + at[1] + at[2], at[3], number(seed, n)));
  }
}

static int keeps(int64_t row, int64_t j, float random) {
  if (j == DROPPED_KEY)
    return 0;
  switch (row % 5) {
  case 1:
    return 0;
  case 2: /* the first block of keys has none */
    return j >= 64;
  case 3:
    return j >= 16 && j < 48;
  default:
    return random < 0;
  }
}

/* Bytes and bits.  Axes of stride 0 hold the same for all. */
static void fill_keep_mask(const clattni_self_test_case *of, uint32_t seed) {
  const int64_t *shape = of->shape[CLATTNI_KEEP_MASK], *stride = of->stride[CLATTNI_KEEP_MASK];
  const int bits = of->problem.keep_mask_kind == CLATTN_MASK_BITS;
  for (int64_t b = 0; b < (stride[0] != 0 ? shape[0] : 1); ++b)
    for (int64_t h = 0; h < (stride[1] != 0 ? shape[1] : 1); ++h)
      for (int64_t i = 0; i < shape[2]; ++i)
        for (int64_t j = 0; j < of->sizes.k_len; ++j) {
          const int64_t at = address(stride, b, h, i, bits ? j / 32 : j);
          if (!keeps(b + h + i, j, number(seed, 128 * at + j)))
            continue;
          if (bits)
            ((uint32_t *)of->input[CLATTNI_KEEP_MASK])[at] |= (uint32_t)1 << j % 32;
          else
            ((unsigned char *)of->input[CLATTNI_KEEP_MASK])[at] = j % 2 ? 1 : 128; /* any but 0 keeps */
        }
}

static void fill_block_mask(const clattni_self_test_case *of) {
  const clattn_problem *problem = &of->problem;
  const int64_t key_blocks = (of->sizes.k_len + problem->block_k - 1) / problem->block_k;
  const int64_t *shape = of->shape[CLATTNI_BLOCK_MASK];
  uint32_t *mask = of->input[CLATTNI_BLOCK_MASK];
  for (int64_t b = 0; b < shape[0]; ++b)
    for (int64_t h = 0; h < shape[1]; ++h)
      for (int64_t i = 0; i < shape[2]; ++i)
        for (int64_t j = 0; j < key_blocks; ++j)
          if ((b + h + i + j) % 3 != 0)
            mask[address(of->stride[CLATTNI_BLOCK_MASK], b, h, i, j / 32)] |= (uint32_t)1 << j % 32;
}

static void fill_per_head(const clattni_self_test_case *of, uint32_t seed) {
  float *slopes = of->input[CLATTNI_ALIBI_SLOPES], *sink = of->input[CLATTNI_SINK];
  float *head_scale = of->input[CLATTNI_HEAD_SCALE], *add_w = of->input[CLATTNI_ADD_W];
  for (int64_t h = 0; h < of->problem.q_heads; ++h) {
    if (slopes != NULL)
      slopes[h * of->stride[CLATTNI_ALIBI_SLOPES][1]] = 1.0f / (float)(16 << h);
    if (sink != NULL)
      sink[h * of->stride[CLATTNI_SINK][1]] = h % 3 == 1 ? -INFINITY : 2 * number(seed, h);
    if (head_scale != NULL)
      head_scale[h * of->stride[CLATTNI_HEAD_SCALE][1]] = 2 * number(seed + 1, h);
    for (int64_t e = 0; add_w != NULL && e < of->problem.qk_dim; ++e) {
      const int64_t at = address(of->stride[CLATTNI_ADD_W], 0, h, 0, e);
      add_w[at] = number(seed + 2, at);
    }
  }
}

/* Any numbers will do: a rotation by them is as linear as one by cosines and sines. */
static void fill_tables(const clattni_self_test_case *of, uint32_t seed) {
  for (clattni_slot slot = CLATTNI_ROPE_COS; slot <= CLATTNI_ROPE_SIN; ++slot)
    for (int64_t n = 0; of->input[slot] != NULL && n < clattni_self_test_elements(of, slot); ++n) {
      int64_t at[4];
      clattni_self_test_place(of, slot, n, at);
      const int64_t place = address(of->stride[slot], at[0], at[1], at[2], at[3]); /* the batch shares them */
      put(of, slot, place, number(seed + (uint32_t)slot, place));
    }
}

static void fill(const clattni_self_test_case *of, uint32_t seed) {
  static const struct {
    clattni_slot slot;
    uint32_t seed;
  } of_keys[] = {{CLATTNI_K, 100}, {CLATTNI_V, 200}, {CLATTNI_K_SCALE, 600}, {CLATTNI_V_SCALE, 700}};
  if (of->input[CLATTNI_Q] != NULL) {
    memset(of->input[CLATTNI_Q], 0xff, of->bytes[CLATTNI_Q]); /* NaN; of i8 and i4 the scales are */
    fill_queries(of, seed);
  }
  for (size_t i = 0; i < sizeof(of_keys) / sizeof(of_keys[0]); ++i)
    if (of->input[of_keys[i].slot] != NULL) {
      memset(of->input[of_keys[i].slot], 0xff, of->bytes[of_keys[i].slot]);
      fill_keys(of, of_keys[i].slot, seed + of_keys[i].seed);
    }
  if (of->input[CLATTNI_BIAS] != NULL)
    fill_bias(of, seed + 300);
  if (of->input[CLATTNI_KEEP_MASK] != NULL)
    fill_keep_mask(of, seed + 400);
  if (of->input[CLATTNI_BLOCK_MASK] != NULL)
    fill_block_mask(of);
  if (of->input[CLATTNI_PAGE_TABLE] != NULL)
    memcpy(of->input[CLATTNI_PAGE_TABLE], of->row->page_table, of->bytes[CLATTNI_PAGE_TABLE]);
  fill_per_head(of, seed + 500);
  fill_tables(of, seed + 800);
}

clattn_status clattni_self_test_make(uint32_t index, const clattni_allocator *allocator, clattni_self_test_case *made,
                                     clattn_error *error) {
  clattn_problem problem;
  clattn_error why;
  clattn_error_init(&why);
  memset(made, 0, sizeof(*made));
  made->row = &rows[index];
  const clattn_status status = clattn_problem_parse(rows[index].problem, &problem, &why);
  if (status != CLATTN_SUCCESS)
    return clattni_fail(error, status, "self-test: case \"%s\": %.300s", rows[index].name, why.message);
  return clattni_self_test_fill(&rows[index], &problem, 1000 * (index + 1), allocator, made, error);
}

clattn_status clattni_self_test_fill(const clattni_self_test_row *row, const clattn_problem *problem, uint32_t seed,
                                     const clattni_allocator *allocator, clattni_self_test_case *made,
                                     clattn_error *error) {
  size_t total = 0, start[CLATTNI_SLOTS];
  clattn_error why;
  clattn_error_init(&why);
  memset(made, 0, sizeof(*made));
  made->row = row;
  const clattn_status status = clattn_problem_check(problem, &why);
  if (status != CLATTN_SUCCESS)
    return clattni_fail(error, status, "self-test: case \"%s\": %.300s", row->name, why.message);
  clattni_problem_resolve(problem, &made->problem);
  made->sizes = clattni_bounds(&made->problem);
  for (clattni_slot slot = 0; slot < CLATTNI_SLOTS; ++slot) {
    int64_t elements = 0;
    if (!clattni_slot_used(&made->problem, slot))
      continue;
    clattni_slot_shape(&made->problem, &made->sizes, slot, made->shape[slot]);
    clattni_slot_strides(&made->problem, &made->sizes, slot, made->stride[slot]);
    (void)clattni_extent(made->shape[slot], made->stride[slot], &elements); /* fits: the check said so */
    made->bytes[slot] = (size_t)clattni_slot_bytes(&made->problem, slot, elements);
    start[slot] = total;
    if (!clattni_slot_is_output(slot))
      total += (made->bytes[slot] + 7) & ~(size_t)7;
  }
  if (made->sizes.batch > CLATTNI_SELF_TEST_BATCH || made->bytes[CLATTNI_PAGE_TABLE] > sizeof(made->row->page_table))
    return clattni_fail(error, CLATTN_ERROR_INTERNAL, "self-test: case \"%s\" is larger than its arrays",
                        made->row->name);
  made->memory = clattni_alloc(allocator, total);
  if (made->memory == NULL)
    return clattni_fail(error, CLATTN_ERROR_OUT_OF_MEMORY, "no host memory for %zu bytes of the self-test", total);
  for (clattni_slot slot = 0; slot < CLATTNI_SLOTS; ++slot)
    if (made->bytes[slot] != 0 && !clattni_slot_is_output(slot))
      made->input[slot] = (char *)made->memory + start[slot];
  fill(made, seed);
  return CLATTN_SUCCESS;
}

void clattni_self_test_free(const clattni_allocator *allocator, clattni_self_test_case *made) {
  clattni_free(allocator, made->memory);
  made->memory = NULL;
}

/* ---- results ---- */

int64_t clattni_self_test_elements(const clattni_self_test_case *of, clattni_slot slot) {
  const int64_t *shape = of->shape[slot]; /* all 0 where the tensor is not used */
  return shape[0] * shape[1] * shape[2] * shape[3];
}

void clattni_self_test_place(const clattni_self_test_case *of, clattni_slot slot, int64_t n, int64_t at[4]) {
  for (int axis = 3; axis >= 0; --axis) {
    at[axis] = n % of->shape[slot][axis];
    n /= of->shape[slot][axis];
  }
}

int clattni_self_test_held(const clattni_self_test_case *of, clattni_slot slot, int64_t n) {
  return (slot != CLATTNI_O && slot != CLATTNI_SCORES) || n % of->row->step == 0;
}

int clattni_self_test_wrong(clattn_dtype dtype, float got, float want) {
  const double size = fabs((double)want);
  if (isinf(want) || want == 0)
    return !(got == want);
  return !(fabs((double)got - (double)want) <= tolerance[dtype] * (size > 1 ? size : 1));
}

/* printf writes "-nan" for some NaNs. */
static void put_number(char text[32], float value) {
  if (isnan(value))
    memcpy(text, "nan", sizeof("nan"));
  else
    (void)snprintf(text, 32, "%.9g", (double)value);
}

/* Compares one output; *held moves on over its values. */
static clattn_status compare(const clattni_self_test_case *of, clattni_slot slot, const void *got, const char *variant,
                             const float **held, clattn_error *error) {
  const clattn_dtype dtype = clattni_slot_tensor(&of->problem, slot)->dtype;
  for (int64_t n = 0; n < clattni_self_test_elements(of, slot); ++n) {
    const int has_value = clattni_self_test_held(of, slot, n);
    char found[32], wanted[32] = "a number";
    int64_t at[4];
    clattni_self_test_place(of, slot, n, at);
    const float value = (float)clattni_dtype_load(dtype, got, address(of->stride[slot], at[0], at[1], at[2], at[3]));
    const float want = has_value ? *(*held)++ : value;
    if (has_value ? !clattni_self_test_wrong(dtype, value, want) : !isnan(value))
      continue;
    put_number(found, value);
    if (has_value)
      put_number(wanted, want);
    return clattni_fail(error, CLATTN_ERROR_SELF_TEST,
                        "self-test: variant %s, case \"%s\": %s[%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64
                        "] is %s, not %s",
                        variant, of->row->name, clattni_slot_name(slot), at[0], at[1], at[2], at[3], found, wanted);
  }
  return CLATTN_SUCCESS;
}

/* ---- the device ---- */

typedef struct bench {
  clattn_context *context;
  cl_command_queue queue;
  cl_mem buffer[CLATTNI_SLOTS];
  float results[1024]; /* of one output */
  int buffers;         /* 1: they are made for this case */
  uint32_t runs;
  clattn_support refusal; /* the last variant that did not take a case */
} bench;

static clattn_ints host_ints(int used, int64_t count, const int32_t *host) {
  clattn_ints ints;
  memset(&ints, 0, sizeof(ints));
  if (used) {
    ints.kind = CLATTN_ARRAY_HOST;
    ints.count = (uint32_t)count;
    ints.host = host;
  }
  return ints;
}

void clattni_self_test_args(const clattni_self_test_case *of, const cl_mem buffer[CLATTNI_SLOTS], clattn_args *args,
                            clattn_error *error) {
  const clattn_problem *problem = &of->problem;
  const int64_t batch = of->sizes.batch;
  clattn_args_init(args);
  args->error = error;
  for (clattni_slot slot = 0; slot < CLATTNI_SLOTS; ++slot)
    *(clattn_mem *)clattni_slot_mem(args, slot) = clattn_buffer(buffer[slot], 0);
  args->q_lengths = host_ints(problem->q_length_mode == CLATTN_LENGTH_PER_BATCH, batch, of->row->q_lengths);
  args->k_lengths = host_ints(problem->k_length_mode == CLATTN_LENGTH_PER_BATCH, batch, of->row->k_lengths);
  args->prefix = host_ints(problem->prefix_mode == CLATTN_PREFIX_PER_BATCH, batch, of->row->prefix);
  args->cu_seqlens_q = host_ints(clattni_packed_q(problem), batch + 1, of->row->cu_seqlens_q);
  args->cu_seqlens_k = host_ints(clattni_packed_k(problem), batch + 1, of->row->cu_seqlens_k);
}

/* Moves on->results to or from the buffer of an output. */
static clattn_status copy(bench *on, const clattni_self_test_case *of, clattni_slot slot, int to_device,
                          clattn_error *error) {
  const cl_int code =
      to_device
          ? clEnqueueWriteBuffer(on->queue, on->buffer[slot], CL_TRUE, 0, of->bytes[slot], on->results, 0, NULL, NULL)
          : clEnqueueReadBuffer(on->queue, on->buffer[slot], CL_TRUE, 0, of->bytes[slot], on->results, 0, NULL, NULL);
  if (code == CL_SUCCESS)
    return CLATTN_SUCCESS;
  return clattni_fail(error, code, "self-test: case \"%s\": %s %s failed: %s", of->row->name,
                      to_device ? "writing" : "reading", clattni_slot_name(slot), clattn_status_text(code));
}

/* Outputs start as NaN, so that what a kernel leaves unwritten is found. */
static clattn_status run_variant(bench *on, const clattni_self_test_case *of, const char *variant, const float *held,
                                 clattn_error *error) {
  clattn_plan *plan = NULL;
  clattn_problem resolved;
  clattni_choice choice;
  clattn_args args;
  clattn_status status = CLATTN_SUCCESS;
  for (clattni_slot slot = 0; slot < CLATTNI_SLOTS && status == CLATTN_SUCCESS; ++slot)
    if (of->bytes[slot] != 0 && clattni_slot_is_output(slot)) {
      memset(on->results, 0xff, of->bytes[slot]);
      status = copy(on, of, slot, 1, error);
    }
  /* whatever its first use may have shown: that is what is asked here */
  if (status == CLATTN_SUCCESS)
    status = clattni_plan_choose(on->context, &of->problem, variant, 0, &resolved, &choice, error);
  if (status == CLATTN_SUCCESS)
    status = clattni_plan_make(on->context, &of->problem, NULL, &resolved, &choice, 0, &plan, error);
  if (status == CLATTN_SUCCESS) {
    clattni_self_test_args(of, on->buffer, &args, error);
    status = clattn_enqueue(plan, on->queue, &args, 0, NULL, NULL);
  }
  for (clattni_slot slot = 0; slot < CLATTNI_SLOTS && status == CLATTN_SUCCESS; ++slot)
    if (of->bytes[slot] != 0 && clattni_slot_is_output(slot)) {
      status = copy(on, of, slot, 0, error);
      if (status == CLATTN_SUCCESS)
        status = compare(of, slot, on->results, variant, &held, error);
    }
  clattn_plan_release(plan);
  return status;
}

static clattn_status make_buffers(bench *on, const clattni_self_test_case *of, cl_context cl, clattn_error *error) {
  for (clattni_slot slot = 0; slot < CLATTNI_SLOTS; ++slot) {
    const int output = clattni_slot_is_output(slot);
    cl_int code = CL_SUCCESS;
    if (of->bytes[slot] == 0)
      continue;
    if (output && of->bytes[slot] > sizeof(on->results))
      return clattni_fail(error, CLATTN_ERROR_INTERNAL, "self-test: case \"%s\": %s takes %zu bytes, room is for %zu",
                          of->row->name, clattni_slot_name(slot), of->bytes[slot], sizeof(on->results));
    on->buffer[slot] =
        clCreateBuffer(cl, output ? CL_MEM_READ_WRITE : (cl_mem_flags)(CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR),
                       of->bytes[slot], of->input[slot], &code);
    if (code != CL_SUCCESS) {
      on->buffer[slot] = NULL;
      return clattni_fail(error, code, "self-test: case \"%s\": making a buffer of %zu bytes for %s failed: %s",
                          of->row->name, of->bytes[slot], clattni_slot_name(slot), clattn_status_text(code));
    }
  }
  return CLATTN_SUCCESS;
}

/* The values that the library holds for a case; NULL if they are another one's. */
static const float *held_values(const clattni_self_test_case *of, uint32_t index) {
  size_t count = 0;
  for (clattni_slot slot = 0; slot < CLATTNI_SLOTS; ++slot)
    for (int64_t n = 0; clattni_slot_is_output(slot) && n < clattni_self_test_elements(of, slot); ++n)
      count += (size_t)clattni_self_test_held(of, slot, n);
  if (index >= sizeof(golden) / sizeof(golden[0]) || golden[index].count != count ||
      strcmp(golden[index].name, of->row->name) != 0)
    return NULL;
  return golden[index].values;
}

/* What a verdict is kept under in the disk cache, for clattni_free; NULL if there is none.  Beside the program the case
 * counts, with the values that it is held against, and the host code. */
static char *verdict_key(const bench *on, const clattni_self_test_case *of, const char *variant, const float *held,
                         size_t values) {
  const clattni_allocator *allocator = &on->context->allocator;
  static const char format[] = "self-test %u of %s: %s\nvalues: %s\n%s";
  static const unsigned revision = CLATTNI_SELF_TEST_REVISION;
  clattn_problem resolved;
  clattni_choice choice;
  clattn_error error;
  clattni_hash hash;
  unsigned char digest[CLATTNI_HASH_BYTES];
  char text[CLATTNI_HASH_TEXT], *key = NULL;
  clattn_error_init(&error);
  if (clattni_plan_choose(on->context, &of->problem, variant, 0, &resolved, &choice, &error) != CLATTN_SUCCESS)
    return NULL;
  char *program = clattni_program_key(&on->context->programs, choice.variant->file, choice.options, NULL);
  if (program == NULL)
    return NULL;
  clattni_hash_begin(&hash);
  clattni_hash_add(&hash, held, values * sizeof(*held));
  clattni_hash_end(&hash, digest);
  clattni_hash_text(digest, text);
  const size_t room = sizeof(format) + 10 + strlen(variant) + strlen(of->row->problem) + sizeof(text) + strlen(program);
  key = clattni_alloc(allocator, room);
  if (key != NULL)
    snprintf(key, room, format, revision, variant, of->row->problem, text, program);
  clattni_free(allocator, program);
  return key;
}

/* The verdict kept under a key: 1 if there is one.  It is a message, empty for a pass. */
static int known_verdict(const bench *on, const char *key, clattn_status *status, clattn_error *error) {
  const unsigned char *message = NULL;
  size_t length = 0;
  void *entry = key != NULL ? clattni_cache_load(&on->context->cache, key, &message, &length) : NULL;
  if (entry == NULL)
    return 0;
  *status = length == 0 ? CLATTN_SUCCESS
                        : clattni_fail(error, CLATTN_ERROR_SELF_TEST,
                                       "a kept verdict, delete the disk cache to test again: %.*s", (int)length,
                                       (const char *)message);
  clattni_free(&on->context->allocator, entry);
  return 1;
}

/* Runs a variant, unless its verdict is known.  Only numbers make a verdict: memory may be there the next time. */
static clattn_status judge_variant(bench *on, const clattni_self_test_case *of, const char *variant, const float *held,
                                   size_t values, cl_context cl, clattn_error *error) {
  const clattni_cache *cache = &on->context->cache;
  clattn_status status = CLATTN_SUCCESS;
  char *key = verdict_key(on, of, variant, held, values);
  if (!known_verdict(on, key, &status, error)) {
    if (!on->buffers)
      status = make_buffers(on, of, cl, error);
    on->buffers = 1;
    if (status == CLATTN_SUCCESS)
      status = run_variant(on, of, variant, held, error);
    if (key != NULL && status == CLATTN_SUCCESS)
      clattni_cache_store(cache, key, "", 0);
    else if (key != NULL && status == CLATTN_ERROR_SELF_TEST)
      clattni_cache_store(cache, key, error->message, strlen(error->message));
  }
  clattni_free(&on->context->allocator, key);
  return status;
}

static clattn_status run_variants(bench *on, const clattni_self_test_case *of, const float *held, size_t values,
                                  cl_context cl, clattn_error *error) {
  const char *variant;
  clattn_status status = CLATTN_SUCCESS;
  for (uint32_t i = 0; status == CLATTN_SUCCESS && (variant = clattn_variant_name(i)) != NULL; ++i) {
    clattn_support support;
    clattn_support_init(&support);
    if (clattn_supported(on->context, &of->problem, variant, &support) == CLATTN_ERROR_VARIANT_UNFIT) {
      on->refusal = support;
      continue;
    }
    status = judge_variant(on, of, variant, held, values, cl, error);
    on->runs++;
  }
  return status;
}

static clattn_status run_case(bench *on, uint32_t index, cl_context cl, clattn_error *error) {
  const clattni_allocator *allocator = &on->context->allocator;
  clattni_self_test_case of;
  clattn_status status = clattni_self_test_make(index, allocator, &of, error);
  const float *held = status == CLATTN_SUCCESS ? held_values(&of, index) : NULL;
  if (held != NULL)
    status = run_variants(on, &of, held, golden[index].count, cl, error);
  else if (status == CLATTN_SUCCESS)
    status = clattni_fail(error, CLATTN_ERROR_INTERNAL, "self-test: the values held for case \"%s\" are another one's",
                          of.row->name);
  for (int slot = 0; slot < CLATTNI_SLOTS; ++slot) {
    if (on->buffer[slot] != NULL)
      clReleaseMemObject(on->buffer[slot]);
    on->buffer[slot] = NULL;
  }
  on->buffers = 0;
  clattni_self_test_free(allocator, &of);
  return status;
}

clattn_status clattn_self_test(clattn_context *context, clattn_error *error) {
  clattn_status status = CLATTN_SUCCESS;
  cl_int code = CL_SUCCESS;
  bench on;
  clattn_error own;
  clattn_error_init(&own);
  if (error == NULL || error->struct_size != sizeof(*error))
    error = &own; /* the cache wants the message too */
  clattni_clear(error);
  if (context == NULL)
    return clattni_fail(error, CLATTN_ERROR_NULL_POINTER, "context is NULL");
  memset(&on, 0, sizeof(on));
  on.context = context;
  on.queue = clCreateCommandQueue(context->cl, context->device, 0, &code);
  if (code != CL_SUCCESS)
    return clattni_fail(error, code, "self-test: making a queue failed: %s", clattn_status_text(code));
  for (uint32_t i = 0; i < clattni_self_test_count() && status == CLATTN_SUCCESS; ++i)
    status = run_case(&on, i, context->cl, error);
  clReleaseCommandQueue(on.queue);
  if (status == CLATTN_SUCCESS && on.runs == 0)
    status = clattni_fail(error, CLATTN_ERROR_SELF_TEST, "self-test: no variant ran; the last one: %.300s",
                          on.refusal.reason);
  if (status == CLATTN_SUCCESS)
    clattni_clear(error);
  return status;
}
