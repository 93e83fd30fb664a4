/* SPDX-License-Identifier: Apache-2.0 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "device_run.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dtype.h"

static int complain(const char *what, clattn_status status) {
  (void)fprintf(stderr, "%s: %s\n", what, clattn_status_name(status));
  return 0;
}

/* ---- memory ---------------------------------------------------------------------------------------------------- */

/* `bytes` of memory whose end is the end of a page that can be touched. */
static int map_memory(size_t bytes, image *out) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), usable = (bytes + page - 1) / page * page;
  void *base = mmap(NULL, usable + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED)
    return 0;
  out->bytes = bytes;
  out->mapped = usable + page;
  out->memory = (unsigned char *)base + usable - bytes;
  return mprotect((unsigned char *)base + usable, page, PROT_NONE) == 0;
}

static int make_buffer(const device_rig *rig, image *tensor) {
  cl_int code = CL_SUCCESS;
  tensor->buffer =
      clCreateBuffer(rig->cl, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, tensor->bytes, tensor->memory, &code);
  if (code == CL_SUCCESS)
    return 1;
  tensor->buffer = NULL;
  return complain("clCreateBuffer", code);
}

int image_open(const device_rig *rig, size_t bytes, int pattern, image *out) {
  memset(out, 0, sizeof *out);
  out->pattern = pattern;
  if (map_memory(bytes, out) && make_buffer(rig, out))
    return 1;
  image_close(out);
  return 0;
}

void image_close(image *closing) {
  if (closing->buffer != NULL)
    (void)clReleaseMemObject(closing->buffer);
  if (closing->memory != NULL) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    (void)munmap(closing->memory + closing->bytes + page - closing->mapped, closing->mapped);
  }
  memset(closing, 0, sizeof *closing);
}

/* Maps all, waits once, fills those that are to be written, and unmaps. */
static int visit(cl_command_queue queue, image *const *list, size_t count, cl_map_flags flags) {
  void *mapped[IMAGES_MOST];
  cl_int code = count <= IMAGES_MOST ? CL_SUCCESS : CL_INVALID_VALUE;
  size_t done = 0;
  for (; done < count && code == CL_SUCCESS; ++done)
    mapped[done] =
        clEnqueueMapBuffer(queue, list[done]->buffer, CL_FALSE, flags, 0, list[done]->bytes, 0, NULL, NULL, &code);
  if (code == CL_SUCCESS)
    code = clFinish(queue);
  for (size_t n = 0; n < done && code == CL_SUCCESS; ++n) {
    if (flags == CL_MAP_WRITE)
      memset(mapped[n], list[n]->pattern, list[n]->bytes);
    code = clEnqueueUnmapMemObject(queue, list[n]->buffer, mapped[n], 0, NULL, NULL);
  }
  if (code == CL_SUCCESS)
    code = clFinish(queue);
  return code == CL_SUCCESS ? 1 : complain("mapping buffers", code);
}

int images_fill(cl_command_queue queue, image *const *list, size_t count) {
  return visit(queue, list, count, CL_MAP_WRITE);
}

int images_sync(cl_command_queue queue, image *const *list, size_t count) {
  return visit(queue, list, count, CL_MAP_READ);
}

int image_push(cl_command_queue queue, const image *changed) {
  const cl_int code =
      clEnqueueWriteBuffer(queue, changed->buffer, CL_TRUE, 0, changed->bytes, changed->memory, 0, NULL, NULL);
  return code == CL_SUCCESS ? 1 : complain("clEnqueueWriteBuffer", code);
}

size_t job_outputs(job_memory *memory, image *list[IMAGES_MOST]) {
  size_t count = 0;
  for (int slot = 0; slot < CLATTNI_SLOTS; ++slot)
    if (clattni_slot_is_output((clattni_slot)slot) && memory->slot[slot].buffer != NULL)
      list[count++] = &memory->slot[slot];
  return count;
}

int image_has_row(const image *tensor, int64_t b, int64_t r) {
  return tensor->starts == NULL || r < (int64_t)tensor->starts[b + 1] - tensor->starts[b];
}

static int32_t int_at(const image *tensor, size_t byte) {
  int32_t value;
  memcpy(&value, tensor->memory + byte, sizeof value);
  return value;
}

/* Elements from the first one on. */
static int64_t index_of(const image *tensor, int64_t b, int64_t h, int64_t r, int64_t e) {
  const int64_t *s = tensor->stride;
  if (tensor->starts != NULL) {
    r += tensor->starts[b];
    b = 0;
  } else if (tensor->table != NULL) {
    const int64_t page = int_at(tensor->table, image_at(tensor->table, b, 0, 0, r / tensor->page_size));
    b = page < 0 ? 0 : page < tensor->pages ? page : tensor->pages - 1;
    r %= tensor->page_size;
  }
  return b * s[0] + h * s[1] + r * s[2] + e * s[3];
}

size_t image_at(const image *tensor, int64_t b, int64_t h, int64_t r, int64_t e) {
  const size_t index = (size_t)index_of(tensor, b, h, r, e);
  return tensor->offset + (tensor->dtype == CLATTN_I4 ? index / 2 : index * tensor->element);
}

/* ---- numbers --------------------------------------------------------------------------------------------------- */

float image_float(const image *tensor, int64_t b, int64_t h, int64_t r, int64_t e) {
  if (tensor->dtype == CLATTN_F32) {
    float number;
    memcpy(&number, tensor->memory + image_at(tensor, b, h, r, e), sizeof number);
    return number;
  }
  double value = clattni_dtype_load(tensor->dtype, tensor->memory + tensor->offset, index_of(tensor, b, h, r, e));
  if (tensor->scale != NULL)
    value *= (double)image_float(tensor->scale, b, h, r, tensor->dtype == CLATTN_I4 ? e / CLATTNI_I4_GROUP : 0);
  return (float)value;
}

uint32_t image_raw(const image *tensor, int64_t b, int64_t h, int64_t r, int64_t e) {
  uint32_t raw = 0;
  memcpy(&raw, tensor->memory + image_at(tensor, b, h, r, e), tensor->element);
  if (tensor->dtype == CLATTN_I4)
    raw = raw >> (index_of(tensor, b, h, r, e) % 2 != 0 ? 4 : 0) & 15;
  return raw;
}

void image_set_raw(const image *tensor, int64_t b, int64_t h, int64_t r, int64_t e, uint32_t raw) {
  unsigned char *at = tensor->memory + image_at(tensor, b, h, r, e);
  if (tensor->dtype == CLATTN_I4) {
    const unsigned shift = index_of(tensor, b, h, r, e) % 2 != 0 ? 4 : 0;
    raw = (*at & ~(15u << shift)) | raw << shift;
  }
  memcpy(at, &raw, tensor->element);
}

double round_to_type(clattn_dtype dtype, double value) {
  const int f16 = dtype == CLATTN_F16, bits = f16 ? 11 : 8, lowest = f16 ? -14 : -126;
  int exponent;
  if (dtype == CLATTN_F32)
    return (double)(float)value;
  if (!isfinite(value) || !(fabs(value) > 0.0))
    return value;
  (void)frexp(value, &exponent);
  const int place = (exponent - 1 > lowest ? exponent - 1 : lowest) - (bits - 1); /* of the last bit */
  const double rounded = ldexp(rint(ldexp(value, -place)), place);
  return fabs(rounded) > (f16 ? 65504.0 : ldexp(255.0, 120)) ? copysign((double)INFINITY, value) : rounded;
}

uint16_t encode_half(clattn_dtype dtype, double value) {
  const int f16 = dtype == CLATTN_F16, kept = f16 ? 10 : 7, lowest = f16 ? -14 : -126;
  const unsigned sign = signbit(value) ? 0x8000u : 0u, infinite = f16 ? 0x7c00u : 0x7f80u;
  const double rounded = fabs(round_to_type(dtype, value));
  int exponent;
  if (isnan(value))
    return (uint16_t)(sign | infinite | 1u << (kept - 1));
  if (isinf(rounded))
    return (uint16_t)(sign | infinite);
  (void)frexp(rounded, &exponent);
  const int biased = exponent - lowest; /* 1 for the least normal number */
  if (!(rounded > 0.0) || biased < 1)
    return (uint16_t)(sign | (unsigned)ldexp(rounded, kept - lowest));
  return (uint16_t)(sign | (((unsigned)(biased - 1) << kept) + (unsigned)ldexp(rounded, kept + 1 - exponent)));
}

void image_set(const image *tensor, int64_t b, int64_t h, int64_t r, int64_t e, float value) {
  uint32_t raw;
  if (tensor->dtype == CLATTN_F32)
    memcpy(&raw, &value, sizeof raw);
  else if (tensor->dtype == CLATTN_F16 || tensor->dtype == CLATTN_BF16)
    raw = encode_half(tensor->dtype, (double)value);
  else
    raw = tensor->dtype == CLATTN_I8 ? (uint32_t)(int32_t)value & 0xff : (uint32_t)((int32_t)value + 8);
  image_set_raw(tensor, b, h, r, e, raw);
}

/* ---- what tensors hold ----------------------------------------------------------------------------------------- */

/* Which pairs keep an input's element from being NaN. */
typedef enum level {
  LEVEL_EXISTING, /* within the lengths */
  LEVEL_SEEN,     /* by every structural rule */
  LEVEL_KEPT      /* by the masks too */
} level;

/* Approximately normal, mean 0 and variance 1; depends on the place alone, so the last of several writers of a
 * broadcast element decides. */
static float normal(const device_job *job, clattni_slot slot, int64_t b, int64_t h, int64_t r, int64_t e) {
  const uint64_t place = ((uint64_t)b << 48) ^ ((uint64_t)h << 40) ^ ((uint64_t)r << 20) ^ (uint64_t)e;
  double sum = -2.0;
  for (uint64_t i = 0; i < 4; ++i)
    sum += device_random(job->seed, (uint64_t)slot * 4 + i, place);
  if (job->data & DATA_POSITIVE)
    return 0.1f + (float)fabs(sum);
  return (float)(sum * 1.7320508);
}

static int pattern_keeps(const device_job *job, int64_t b, int64_t h, int64_t i, int64_t j) {
  const int64_t keys = job_k_len(job, b);
  const int64_t hidden = keys > 64 ? 64 : keys - 1;
  const uint64_t row = ((uint64_t)b << 40) ^ ((uint64_t)h << 32) ^ (uint64_t)i;
  if (job->data & DATA_MASK_NONE)
    return 0;
  if (job->data & DATA_MASK_ALL)
    return 1;
  if (job->data & DATA_MASK_LAST)
    return j == keys - 1;
  if ((job->data & DATA_MASK_FIRST) && j < hidden)
    return 0;
  if ((job->data & DATA_MASK_ROWS) && device_random(job->seed, 101, row) < 0.5)
    return 0;
  return device_random(job->seed, 102, (row << 16) ^ (uint64_t)j) < 0.6;
}

/* Sets bit n of a line of bits that starts at an element. */
void image_set_bit(const image *mask, int64_t b, int64_t h, int64_t r, int64_t n, int on) {
  uint32_t word;
  const uint32_t bit = mask->stride[3] != 0 ? (uint32_t)(n % 32) : 0;
  unsigned char *at = mask->memory + image_at(mask, b, h, r, n / 32);
  memcpy(&word, at, sizeof word);
  word = (word & ~(UINT32_C(1) << bit)) | ((uint32_t)on << bit);
  memcpy(at, &word, sizeof word);
}

int image_bit(const image *mask, int64_t b, int64_t h, int64_t r, int64_t n) {
  uint32_t word;
  memcpy(&word, mask->memory + image_at(mask, b, h, r, n / 32), sizeof word);
  return (word >> (mask->stride[3] != 0 ? n % 32 : 0)) & 1;
}

/* Bytes of any non-zero value attend.  What no pair uses stays 0xff and would attend. */
static void fill_mask(const device_job *job, image *mask) {
  static const unsigned char attend[4] = {1, 2, 0x80, 0xff};
  const int bits = job->problem.keep_mask_kind == CLATTN_MASK_BITS;
  for (int64_t b = 0; b < job->sizes.batch; ++b)
    for (int64_t h = 0; h < job->resolved.q_heads; ++h)
      for (int64_t i = 0; i < job_q_len(job, b); ++i)
        for (int64_t j = 0; j < job_k_len(job, b); ++j) {
          const int keeps = pattern_keeps(job, b, h, i, j);
          if (bits)
            image_set_bit(mask, b, h, i, j, keeps);
          else
            mask->memory[image_at(mask, b, h, i, j)] = keeps ? attend[(i + j) % 4] : 0;
        }
}

static int64_t blocks_of(int64_t count, int64_t block) {
  return count / block + (count % block != 0);
}

static void fill_blocks(const device_job *job, const image *mask) {
  const double kept = job->data & DATA_BLOCKS_FEW ? 0.1 : 0.6;
  for (int64_t b = 0; b < job->sizes.batch; ++b)
    for (int64_t h = 0; h < job->resolved.q_heads; ++h)
      for (int64_t i = 0; i < blocks_of(job_q_len(job, b), job->problem.block_q); ++i) {
        const int64_t count = blocks_of(job_k_len(job, b), job->problem.block_k);
        const uint64_t line = ((uint64_t)(b * 131 + h) << 40) ^ ((uint64_t)i << 20);
        for (int64_t j = 0; j < count; ++j) {
          const int first = (job->data & DATA_BLOCKS_FIRST) && j == 0 && count > 1;
          image_set_bit(mask, b, h, i, j, !first && device_random(job->seed, 105, line ^ (uint64_t)j) < kept);
        }
      }
}

int job_masks_keep(const device_job *job, const job_memory *memory, int64_t b, int64_t h, int64_t i, int64_t j) {
  const image *mask = &memory->slot[CLATTNI_KEEP_MASK];
  if (job->problem.block_mask_kind == CLATTN_MASK_BITS &&
      !image_bit(&memory->slot[CLATTNI_BLOCK_MASK], b, h, i / job->problem.block_q, j / job->problem.block_k))
    return 0;
  if (job->problem.keep_mask_kind == CLATTN_MASK_U8)
    return mask->memory[image_at(mask, b, h, i, j)] != 0;
  return job->problem.keep_mask_kind == CLATTN_MASK_NONE || image_bit(mask, b, h, i, j);
}

/* Pages repeat, and some entries have to be clamped.  What lies behind the keys is never used. */
static void fill_table(const device_job *job, const image *table) {
  static const int32_t unused[4] = {INT32_MIN, INT32_MAX, -1, 1000000};
  const int64_t pages = job->problem.num_pages;
  for (int64_t b = 0; b < job->sizes.batch; ++b)
    for (int64_t n = 0; n < job->problem.max_pages; ++n) {
      const uint64_t place = ((uint64_t)b << 32) ^ (uint64_t)n;
      const int kind = (int)(8 * device_random(job->seed, 106, place));
      int32_t page = (int32_t)((double)pages * device_random(job->seed, 107, place));
      if (n >= blocks_of(job_k_len(job, b), job->problem.page_size))
        page = unused[place % 4];
      else if (job->data & DATA_PAGES_SAME)
        page = (int32_t)(pages / 2);
      else if (job->data & DATA_PAGES_LAST)
        page = (int32_t)pages - 1;
      else if ((job->data & DATA_PAGES_BEYOND) || (kind == 0 && !job->check_contents))
        page = n % 4 == 0 ? (int32_t)pages : n % 4 == 1 ? -1 : n % 4 == 2 ? INT32_MAX : INT32_MIN;
      memcpy(table->memory + image_at(table, b, 0, 0, n), &page, sizeof page);
    }
}

static float slope_value(const device_job *job, int64_t b, int64_t h) {
  const double u = device_random(job->seed, 108, ((uint64_t)b << 32) ^ (uint64_t)h);
  return h % 5 == 4 ? 0.0f : (float)(ldexp(1.0, -1 - (int)(h % 7)) * (u < 0.2 ? -u - 0.5 : u + 0.5));
}

static void fill_slopes(const device_job *job, const image *slopes) {
  for (int64_t b = 0; b < job->sizes.batch; ++b)
    for (int64_t h = 0; h < job->resolved.q_heads; ++h)
      image_set(slopes, b, h, 0, 0, slope_value(job, b, h));
}

static void fill_sinks(const device_job *job, const image *sinks) {
  static const float mixed[] = {-INFINITY, 1e30f, -1e30f, -FLT_MAX, 0.0f};
  for (int64_t h = 0; h < job->resolved.q_heads; ++h) {
    float sink = 2.0f * normal(job, CLATTNI_SINK, 0, h, 0, 0);
    if ((job->data & DATA_SINK_MIXED) && h % 7 < 5)
      sink = mixed[h % 7];
    if ((job->data & DATA_SINK_BAD) && (h == 0 || h == job->resolved.q_heads - 1))
      sink = h == 0 ? INFINITY : NAN;
    if (job->data & DATA_SINK_NONE)
      sink = -INFINITY;
    image_set(sinks, 0, h, 0, 0, sink);
  }
}

/* Both signs, and a zero. */
static void fill_head_scales(const device_job *job, const image *scales) {
  for (int64_t h = 0; h < job->resolved.q_heads; ++h) {
    const float size = 0.5f + 0.5f * fabsf(normal(job, CLATTNI_HEAD_SCALE, 0, h, 0, 0));
    image_set(scales, 0, h, 0, 0, h % 5 == 3 ? 0.0f : h % 3 == 1 ? -size : size);
  }
}

/* w of the additive similarity: scores of size 1. */
static void fill_w(const device_job *job, const image *w) {
  const float size = 2.0f / sqrtf((float)w->shape[3]);
  for (int64_t h = 0; h < w->shape[1]; ++h)
    for (int64_t e = 0; e < w->shape[3]; ++e)
      image_set(w, 0, h, 0, e, size * normal(job, CLATTNI_ADD_W, 0, h, 0, e));
}

/* Positions of rows that count, now and then beyond the tables, which clamps them; of the others anything. */
static void fill_positions(const device_job *job, const image *positions, int of_key) {
  static const int32_t unused[4] = {INT32_MIN, INT32_MAX, -1, 1000000};
  const int64_t lines = job->resolved.rope_positions;
  for (int64_t b = 0; b < job->sizes.batch; ++b)
    for (int64_t r = 0; r < (of_key ? job_k_rows(job, b) : job_q_rows(job, b)); ++r) {
      const uint64_t place = ((uint64_t)b << 32) ^ (uint64_t)r;
      const double u = device_random(job->seed, 113 + (uint64_t)of_key, place);
      int32_t position = (int32_t)((double)lines * device_random(job->seed, 115 + (uint64_t)of_key, place));
      if (r >= (of_key ? job_k_len(job, b) : job_q_len(job, b)))
        position = unused[place % 4];
      else if (u < 0.1 && !job->check_contents)
        position = u < 0.025 ? INT32_MIN : u < 0.05 ? -1 : u < 0.075 ? (int32_t)lines : INT32_MAX;
      memcpy(positions->memory + image_at(positions, b, 0, r, 0), &position, sizeof position);
    }
}

int64_t job_table_line(const device_job *job, const job_memory *memory, int of_key, int64_t b, int64_t r) {
  const image *positions = &memory->slot[of_key ? CLATTNI_POSITIONS_K : CLATTNI_POSITIONS_Q];
  int64_t line = of_key ? r : r + job_offset(job, b);
  if (job->problem.use_positions)
    line = int_at(positions, image_at(positions, b, 0, r, 0));
  return line < 0 ? 0 : line < job->resolved.rope_positions ? line : job->resolved.rope_positions - 1;
}

/* Angles, and lengths beside 1, in the lines that some row needs. */
static void fill_line(const device_job *job, const job_memory *memory, int64_t b, int64_t line) {
  const image *cosines = &memory->slot[CLATTNI_ROPE_COS], *sines = &memory->slot[CLATTNI_ROPE_SIN];
  for (int64_t e = 0; e < cosines->shape[3]; ++e) {
    const uint64_t place = ((uint64_t)line << 20) ^ (uint64_t)e ^ ((uint64_t)b << 50);
    const double angle = 6.2831853 * device_random(job->seed, 117, place);
    const double length = 0.8 + 0.4 * device_random(job->seed, 118, place);
    image_set(cosines, b, 0, line, e, (float)(length * cos(angle)));
    image_set(sines, b, 0, line, e, (float)(length * sin(angle)));
  }
}

static void fill_tables(const device_job *job, const job_memory *memory) {
  for (int64_t b = 0; b < job->sizes.batch; ++b) {
    for (int64_t i = 0; i < job_q_len(job, b); ++i)
      fill_line(job, memory, b, job_table_line(job, memory, 0, b, i));
    for (int64_t j = 0; j < job_k_len(job, b); ++j)
      fill_line(job, memory, b, job_table_line(job, memory, 1, b, j));
  }
}

static int pair_has(const device_job *job, const job_memory *memory, level wanted, int64_t b, int64_t h, int64_t i,
                    int64_t j) {
  return wanted == LEVEL_EXISTING ||
         (job_sees(job, b, i, j) && (wanted == LEVEL_SEEN || job_masks_keep(job, memory, b, h, i, j)));
}

static float bias_value(const device_job *job, int64_t b, int64_t h, int64_t i, int64_t j) {
  const double u = device_random(job->seed, 103, ((uint64_t)(b * 131 + h) << 40) ^ ((uint64_t)i << 20) ^ (uint64_t)j);
  const int64_t keys = job_k_len(job, b);
  if (job->data & DATA_BIAS_LOWEST)
    return -FLT_MAX;
  if (job->data & DATA_BIAS_DEEP)
    return -1e30f;
  if (job->data & DATA_BIAS_LOW)
    return -60000.0f + 2.0f * normal(job, CLATTNI_BIAS, b, h, i, j);
  if ((job->data & DATA_BIAS_PLUS_INF) && b == 0 && h == 0 && i == job_q_len(job, b) / 2 && j == keys / 2)
    return INFINITY;
  if ((job->data & DATA_BIAS_HUGE) && j == (i * 7 + h) % keys)
    return 1e30f;
  if ((job->data & DATA_BIAS_HUGE) && u < 0.2)
    return -1e30f;
  if ((job->data & DATA_BIAS_INF) && u < 0.25)
    return -INFINITY;
  return 2.0f * normal(job, CLATTNI_BIAS, b, h, i, j);
}

static void fill_bias(const device_job *job, const job_memory *memory, level least) {
  for (int64_t b = 0; b < job->sizes.batch; ++b)
    for (int64_t h = 0; h < job->resolved.q_heads; ++h)
      for (int64_t i = 0; i < job_q_len(job, b); ++i)
        for (int64_t j = 0; j < job_k_len(job, b); ++j)
          if (pair_has(job, memory, least, b, h, i, j))
            image_set(&memory->slot[CLATTNI_BIAS], b, h, i, j, bias_value(job, b, h, i, j));
}

/* Codes are all finite; their scale may be NaN.  With one that is infinite, sums depend on their order. */
static void special(const device_job *job, const image *tensor, unsigned bit, int64_t b, int64_t h, int64_t r,
                    int64_t e, float value) {
  if (!(job->data & bit) || !image_has_row(tensor, b, r))
    return;
  if (tensor->scale == NULL)
    image_set(tensor, b, h, r, e, value);
  else if (isnan(value))
    image_set(tensor->scale, b, h, r, tensor->dtype == CLATTN_I4 ? e / CLATTNI_I4_GROUP : 0, value);
}

/* Codes of a deviation that uses most of them, and scales that make them numbers of size 1. */
static void fill_codes(const device_job *job, const image *tensor, clattni_slot slot, int64_t b, int64_t h, int64_t r,
                       float far) {
  const clattni_slot scales = slot == CLATTNI_K ? CLATTNI_K_SCALE : CLATTNI_V_SCALE;
  const float most = tensor->dtype == CLATTN_I8 ? 127.0f : 7.0f, deviation = most / 2.5f;
  for (int64_t g = 0; g < tensor->scale->shape[3]; ++g) {
    const float size = 0.75f + 0.25f * fabsf(normal(job, scales, b, h, r, g));
    image_set(tensor->scale, b, h, r, g, size * far / deviation);
  }
  for (int64_t e = 0; e < tensor->shape[3]; ++e) {
    const float code = rintf(deviation * normal(job, slot, b, h, r, e));
    image_set(tensor, b, h, r, e, code < -most - 1.0f ? -most - 1.0f : code > most ? most : code);
  }
}

static void fill_row(const device_job *job, const image *tensor, clattni_slot slot, int64_t b, int64_t h, int64_t r) {
  const uint64_t row = ((uint64_t)b << 40) ^ ((uint64_t)h << 32) ^ (uint64_t)r;
  const int far = slot == CLATTNI_K && (job->data & DATA_FAR) && device_random(job->seed, 104, row) < 0.2;
  const int zero = (job->data & DATA_ZERO_ROWS) && device_random(job->seed, 109 + (uint64_t)slot, row) < 0.3;
  if (tensor->scale != NULL)
    fill_codes(job, tensor, slot, b, h, r, zero ? 0.0f : far ? 120.0f : 1.0f);
  else
    for (int64_t e = 0; e < tensor->shape[3]; ++e)
      image_set(tensor, b, h, r, e, zero ? 0.0f : normal(job, slot, b, h, r, e) * (far ? 120.0f : 1.0f));
}

/* q, k and v: only rows that some pair of their level needs are numbers. */
static int fill_rows(const device_job *job, const job_memory *memory, const level least[3]) {
  const image *const q = &memory->slot[CLATTNI_Q], *const k = &memory->slot[CLATTNI_K],
                     *const v = &memory->slot[CLATTNI_V];
  const image *const bias = &memory->slot[CLATTNI_BIAS];
  const int64_t group = job->resolved.q_heads / job->resolved.kv_heads;
  unsigned char *needed = calloc((size_t)(2 * job->sizes.k_len + 1), 1);
  if (needed == NULL)
    return 0;
  for (int64_t b = 0; b < job->sizes.batch; ++b) {
    for (int64_t h = 0; h < job->resolved.q_heads; ++h) {
      if (h % group == 0)
        memset(needed, 0, (size_t)(2 * job->sizes.k_len + 1));
      for (int64_t i = 0; i < job_q_len(job, b); ++i) {
        int row = 0;
        for (int64_t j = 0; j < job_k_len(job, b); ++j) {
          row |= pair_has(job, memory, least[0], b, h, i, j);
          needed[2 * j] |= (unsigned char)pair_has(job, memory, least[1], b, h, i, j);
          if (pair_has(job, memory, least[2], b, h, i, j) &&
              !(least[2] == LEVEL_KEPT && bias->memory != NULL && image_float(bias, b, h, i, j) == -INFINITY))
            needed[2 * j + 1] = 1;
        }
        if (row)
          fill_row(job, q, CLATTNI_Q, b, h, i);
      }
      for (int64_t j = 0; h % group == group - 1 && j < job_k_len(job, b); ++j) {
        if (needed[2 * j])
          fill_row(job, k, CLATTNI_K, b, h / group, j);
        if (needed[2 * j + 1])
          fill_row(job, v, CLATTNI_V, b, h / group, j);
      }
    }
  }
  free(needed);
  const int64_t last_b = job->sizes.batch - 1, last_h = job->resolved.q_heads - 1, last_kv = job->resolved.kv_heads - 1;
  if (last_b < 0 || job->sizes.q_len == 0 || job->sizes.k_len == 0)
    return 1;
  special(job, q, DATA_NAN_Q, last_b, 0, job->sizes.q_len / 2, q->shape[3] / 2, NAN);
  special(job, q, DATA_INF_Q, 0, last_h, job->sizes.q_len / 3, 0, INFINITY);
  special(job, k, DATA_NAN_K, 0, 0, job->sizes.k_len / 3, k->shape[3] / 2, NAN);
  special(job, k, DATA_INF_K, last_b, last_kv, job->sizes.k_len / 2, 0, INFINITY);
  special(job, v, DATA_NAN_V, 0, 0, job->sizes.k_len / 3, v->shape[3] / 2, NAN);
  special(job, v, DATA_INF_V, last_b, last_kv, job->sizes.k_len / 2, 0, -INFINITY);
  return 1;
}

/* ---- a job's tensors ------------------------------------------------------------------------------------------- */

static int of_keys(clattni_slot slot) {
  return slot == CLATTNI_K || slot == CLATTNI_V || slot == CLATTNI_K_SCALE || slot == CLATTNI_V_SCALE ||
         slot == CLATTNI_POSITIONS_K;
}

/* Positions have no descriptor: they are packed where their rows are. */
static int is_packed(const device_job *job, clattni_slot slot, const clattn_tensor *tensor) {
  return tensor->layout == CLATTN_LAYOUT_PACKED || (slot == CLATTNI_POSITIONS_Q && clattni_packed_q(&job->problem)) ||
         (slot == CLATTNI_POSITIONS_K && clattni_packed_k(&job->problem));
}

/* Shapes and strides as the interface defines them, not as the library works them out. */
static void shape_of(const device_job *job, clattni_slot slot, const clattni_sizes *sizes, int64_t shape[4]) {
  const clattn_problem *p = &job->resolved;
  shape[0] = sizes->batch;
  shape[1] = of_keys(slot) ? p->kv_heads : p->q_heads;
  shape[2] = of_keys(slot) ? sizes->k_len : sizes->q_len;
  shape[3] = 1;
  switch (slot) {
  case CLATTNI_Q:
  case CLATTNI_K:
    shape[3] = p->qk_dim;
    break;
  case CLATTNI_V:
  case CLATTNI_O:
    shape[3] = p->v_dim;
    break;
  case CLATTNI_SCORES:
  case CLATTNI_BIAS:
    shape[3] = sizes->k_len;
    break;
  case CLATTNI_KEEP_MASK:
    shape[3] = p->keep_mask_kind == CLATTN_MASK_BITS ? blocks_of(sizes->k_len, 32) : sizes->k_len;
    break;
  case CLATTNI_BLOCK_MASK:
    shape[2] = blocks_of(sizes->q_len, p->block_q);
    shape[3] = blocks_of(blocks_of(sizes->k_len, p->block_k), 32);
    break;
  case CLATTNI_SINK:
  case CLATTNI_HEAD_SCALE:
    shape[0] = 1;
    shape[2] = 1;
    break;
  case CLATTNI_ADD_W:
    shape[0] = 1;
    shape[2] = 1;
    shape[3] = p->qk_dim;
    break;
  case CLATTNI_K_SCALE:
    shape[3] = p->k.dtype == CLATTN_I4 ? blocks_of(p->qk_dim, CLATTNI_I4_GROUP) : 1;
    break;
  case CLATTNI_V_SCALE:
    shape[3] = p->v.dtype == CLATTN_I4 ? blocks_of(p->v_dim, CLATTNI_I4_GROUP) : 1;
    break;
  case CLATTNI_MAX_LOGIT:
  case CLATTNI_ALIBI_SLOPES:
    shape[2] = 1;
    break;
  case CLATTNI_PAGE_TABLE:
    shape[1] = shape[2] = 1;
    shape[3] = p->max_pages;
    break;
  case CLATTNI_ROPE_COS:
  case CLATTNI_ROPE_SIN:
    shape[1] = 1;
    shape[2] = p->rope_positions;
    shape[3] = p->rope_dim / 2;
    break;
  case CLATTNI_POSITIONS_Q:
  case CLATTNI_POSITIONS_K:
    shape[1] = 1;
    break;
  case CLATTNI_LSE:
  case CLATTNI_SLOTS:
    break;
  }
}

/* The axes that lie in memory. */
static void stored_shape_of(const device_job *job, clattni_slot slot, const clattn_tensor *tensor,
                            const clattni_sizes *sizes, int64_t shape[4]) {
  shape_of(job, slot, sizes, shape);
  if (is_packed(job, slot, tensor)) {
    shape[0] = 1;
    shape[2] = of_keys(slot) ? sizes->total_k : sizes->total_q;
  } else if (tensor->layout == CLATTN_LAYOUT_PAGED) {
    shape[0] = job->resolved.num_pages;
    shape[2] = job->resolved.page_size;
  }
}

static void strides_of(const device_job *job, clattni_slot slot, const clattn_tensor *tensor, int64_t stride[4]) {
  const clattn_problem *p = &job->resolved;
  const clattni_sizes bounds = {p->batch, p->q_len, p->k_len, job->sizes.total_q, job->sizes.total_k};
  const clattn_layout layout = tensor->layout;
  const int exact = layout == CLATTN_LAYOUT_BHSD_EXACT || layout == CLATTN_LAYOUT_BSHD_EXACT;
  const int far = layout == CLATTN_LAYOUT_PACKED || layout == CLATTN_LAYOUT_PAGED;
  const int heads_first =
      far ? slot == CLATTNI_LSE : layout == CLATTN_LAYOUT_BHSD || layout == CLATTN_LAYOUT_BHSD_EXACT;
  const int given = (tensor->stride[0] | tensor->stride[1] | tensor->stride[2] | tensor->stride[3]) != 0;
  int64_t n[4];
  if (layout == CLATTN_LAYOUT_STRIDED || (far && given)) {
    memcpy(stride, tensor->stride, 4 * sizeof stride[0]);
    return;
  }
  stored_shape_of(job, slot, tensor, exact ? &job->sizes : &bounds, n);
  if (tensor->dtype == CLATTN_I4)
    n[3] += n[3] % 2; /* rows start on a byte */
  const int shared = slot == CLATTNI_ALIBI_SLOPES || slot == CLATTNI_ROPE_COS || slot == CLATTNI_ROPE_SIN;
  stride[0] = shared ? 0 : n[1] * n[2] * n[3];
  stride[1] = heads_first ? n[2] * n[3] : n[3];
  stride[2] = heads_first ? n[3] : n[1] * n[3];
  stride[3] = 1;
}

static void place(const device_job *job, const clattn_tensor *tensor, clattni_slot slot, job_memory *memory,
                  image *out) {
  if (is_packed(job, slot, tensor))
    out->starts = job->array[of_keys(slot) ? ARRAY_CU_K : ARRAY_CU_Q].entry;
  if (tensor->layout == CLATTN_LAYOUT_PAGED) {
    out->table = &memory->slot[CLATTNI_PAGE_TABLE];
    out->page_size = job->resolved.page_size;
    out->pages = job->resolved.num_pages;
  }
}

/* Maps a slot's memory; a tensor without elements gets none. */
static int open_slot(const device_job *job, const clattn_problem *problem, clattni_slot slot, job_memory *memory) {
  image *tensor = &memory->slot[slot];
  const clattn_tensor *described = clattni_slot_tensor(problem, slot);
  int64_t elements, stored[4];
  shape_of(job, slot, &job->sizes, tensor->shape);
  stored_shape_of(job, slot, described, &job->sizes, stored);
  strides_of(job, slot, described, tensor->stride);
  place(job, described, slot, memory, tensor);
  tensor->element = clattni_slot_element_bytes(problem, slot);
  tensor->dtype = described->dtype;
  if (!clattni_extent(stored, tensor->stride, &elements))
    return complain("a case that does not fit in memory", CLATTN_ERROR_OVERFLOW);
  if (elements == 0)
    return 1;
  tensor->pattern = clattni_slot_is_output(slot) ? OUTPUT_PATTERN : 0xff;
  tensor->offset = tensor->element * (3 + 5 * (size_t)slot);
  /* what one address of i4 holds is two elements */
  const size_t bytes = tensor->dtype == CLATTN_I4 ? (size_t)(elements + 1) / 2 : (size_t)elements * tensor->element;
  const size_t behind = clattni_slot_is_output(slot) ? 52 : 0; /* inputs end with the page */
  if (!map_memory(tensor->offset + bytes + behind, tensor))
    return complain("no memory", CLATTN_ERROR_OUT_OF_MEMORY);
  memset(tensor->memory, tensor->pattern, tensor->bytes);
  return 1;
}

/* An array or a scalar on the device, at some offset. */
static int open_array(const device_rig *rig, const void *from, size_t bytes, size_t front, image *out) {
  if (!image_open(rig, front + bytes, 0xff, out))
    return 0;
  memset(out->memory, 0xff, out->bytes);
  memcpy(out->memory + front, from, bytes);
  out->offset = front;
  return 1;
}

static int open_arrays(const device_rig *rig, const device_job *job, job_memory *memory) {
  int good = 1;
  for (size_t n = 0; good && n < JOB_ARRAYS; ++n)
    if (job->array[n].given && (job->on_device >> n & 1))
      good =
          open_array(rig, job->array[n].brought, job->array[n].count * sizeof(int32_t), 4 * (n + 1), &memory->array[n]);
  if (good && (job->on_device & ON_DEVICE_SCALE))
    good = open_array(rig, &job->scale, sizeof job->scale, 12, &memory->scale);
  if (good && (job->on_device & ON_DEVICE_SOFTCAP) && job->problem.softcap > 0) {
    const float brought = job->softcap_given ? job->softcap_brought : job->softcap;
    good = open_array(rig, &brought, sizeof brought, 28, &memory->softcap);
  }
  return good;
}

/* 1 if a tensor has elements: those without have no memory to fill. */
static int is_there(const job_memory *memory, clattni_slot slot) {
  return memory->slot[slot].memory != NULL;
}

int job_memory_open(const device_rig *rig, const device_job *job, job_memory *memory) {
  clattn_problem all = job->problem, resolved;
  int good = 1;
  memset(memory, 0, sizeof *memory);
  all.outputs = CLATTN_OUT_O | CLATTN_OUT_LSE | CLATTN_OUT_SCORES | CLATTN_OUT_MAX_LOGIT;
  clattni_problem_resolve(&all, &resolved);
  for (clattni_slot slot = 0; good && slot < CLATTNI_SLOTS; ++slot)
    if (clattni_slot_used(&resolved, slot))
      good = open_slot(job, &resolved, slot, memory);
  if (!good) {
    job_memory_close(memory);
    return 0;
  }
  for (int n = 0; n < 2; ++n)
    if (is_there(memory, (clattni_slot)(CLATTNI_K_SCALE + n)))
      memory->slot[CLATTNI_K + n].scale = &memory->slot[CLATTNI_K_SCALE + n];
  const level least[3] = {(level)(job->seed / 5 % 3), (level)(job->seed % 3), (level)(1 + job->seed / 3 % 2)};
  if (is_there(memory, CLATTNI_KEEP_MASK))
    fill_mask(job, &memory->slot[CLATTNI_KEEP_MASK]);
  if (is_there(memory, CLATTNI_BLOCK_MASK))
    fill_blocks(job, &memory->slot[CLATTNI_BLOCK_MASK]);
  if (is_there(memory, CLATTNI_PAGE_TABLE))
    fill_table(job, &memory->slot[CLATTNI_PAGE_TABLE]);
  if (is_there(memory, CLATTNI_ALIBI_SLOPES))
    fill_slopes(job, &memory->slot[CLATTNI_ALIBI_SLOPES]);
  if (is_there(memory, CLATTNI_SINK))
    fill_sinks(job, &memory->slot[CLATTNI_SINK]);
  if (is_there(memory, CLATTNI_HEAD_SCALE))
    fill_head_scales(job, &memory->slot[CLATTNI_HEAD_SCALE]);
  if (is_there(memory, CLATTNI_ADD_W))
    fill_w(job, &memory->slot[CLATTNI_ADD_W]);
  for (int of_key = 0; of_key < 2; ++of_key)
    if (is_there(memory, (clattni_slot)(CLATTNI_POSITIONS_Q + of_key)))
      fill_positions(job, &memory->slot[CLATTNI_POSITIONS_Q + of_key], of_key);
  if (is_there(memory, CLATTNI_ROPE_COS))
    fill_tables(job, memory);
  if (is_there(memory, CLATTNI_BIAS))
    fill_bias(job, memory, (level)(job->seed / 7 % 3));
  good = fill_rows(job, memory, least);
  for (int slot = 0; good && slot < CLATTNI_SLOTS; ++slot)
    if (memory->slot[slot].memory != NULL)
      good = make_buffer(rig, &memory->slot[slot]);
  good = good && open_arrays(rig, job, memory);
  if (!good)
    job_memory_close(memory);
  return good;
}

void job_memory_close(job_memory *memory) {
  for (int slot = 0; slot < CLATTNI_SLOTS; ++slot)
    image_close(&memory->slot[slot]);
  for (int n = 0; n < JOB_ARRAYS; ++n)
    image_close(&memory->array[n]);
  image_close(&memory->scale);
  image_close(&memory->softcap);
}
