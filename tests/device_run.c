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

#define WORKSPACE_FRONT 128u
#define WORKSPACE_GUARD 64u

static int complain(const char *what, clattn_status status) {
  (void)fprintf(stderr, "%s: %s\n", what, clattn_status_name(status));
  return 0;
}

/* ---- device ---------------------------------------------------------------------------------------------------- */

int device_rig_open(device_rig *rig) {
  clattn_error error;
  cl_command_queue_properties properties = 0;
  cl_int code;
  memset(rig, 0, sizeof *rig);
  clattn_error_init(&error);
  clattn_status status = clattn_context_create_default(NULL, &rig->context, &error);
  if (status != CLATTN_SUCCESS)
    return complain(error.message, status);
  status = clattn_context_handles(rig->context, &rig->cl, &rig->device);
  if (status != CLATTN_SUCCESS)
    return complain("clattn_context_handles", status);
  rig->queue = clCreateCommandQueue(rig->cl, rig->device, CL_QUEUE_PROFILING_ENABLE, &code);
  if (code != CL_SUCCESS)
    return complain("clCreateCommandQueue", code);
  code = clGetDeviceInfo(rig->device, CL_DEVICE_QUEUE_PROPERTIES, sizeof properties, &properties, NULL);
  if (code == CL_SUCCESS && (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) != 0)
    rig->out_of_order = clCreateCommandQueue(rig->cl, rig->device, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &code);
  return code == CL_SUCCESS ? 1 : complain("clCreateCommandQueue", code);
}

void device_rig_close(device_rig *rig) {
  if (rig->queue != NULL)
    (void)clReleaseCommandQueue(rig->queue);
  if (rig->out_of_order != NULL)
    (void)clReleaseCommandQueue(rig->out_of_order);
  clattn_context_release(rig->context);
  memset(rig, 0, sizeof *rig);
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

size_t job_outputs(job_memory *memory, image *list[IMAGES_MOST]) {
  size_t count = 0;
  for (int slot = 0; slot < CLATTNI_SLOTS; ++slot)
    if (clattni_slot_is_output((clattni_slot)slot) && memory->slot[slot].buffer != NULL)
      list[count++] = &memory->slot[slot];
  return count;
}

size_t image_at(const image *tensor, int64_t b, int64_t h, int64_t r, int64_t e) {
  const int64_t *s = tensor->stride;
  return tensor->offset + (size_t)(b * s[0] + h * s[1] + r * s[2] + e * s[3]) * tensor->element;
}

float image_float(const image *tensor, int64_t b, int64_t h, int64_t r, int64_t e) {
  float value;
  memcpy(&value, tensor->memory + image_at(tensor, b, h, r, e), sizeof value);
  return value;
}

static void set_float(const image *tensor, int64_t b, int64_t h, int64_t r, int64_t e, float value) {
  memcpy(tensor->memory + image_at(tensor, b, h, r, e), &value, sizeof value);
}

/* ---- what tensors hold ----------------------------------------------------------------------------------------- */

/* Which pairs keep an input's element from being NaN. */
typedef enum level {
  LEVEL_EXISTING, /* within the lengths */
  LEVEL_SEEN,     /* by every structural rule */
  LEVEL_KEPT      /* by the mask too */
} level;

/* Approximately normal, mean 0 and variance 1; depends on the place alone, so the last of several writers of a broadcast
 * element decides. */
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

/* Bytes of any non-zero value attend.  What no pair uses stays 0xff and would attend. */
static void fill_mask(const device_job *job, image *mask) {
  static const unsigned char attend[4] = {1, 2, 0x80, 0xff};
  const int bits = job->problem.keep_mask_kind == CLATTN_MASK_BITS;
  for (int64_t b = 0; b < job->sizes.batch; ++b)
    for (int64_t h = 0; h < job->resolved.q_heads; ++h)
      for (int64_t i = 0; i < job_q_len(job, b); ++i)
        for (int64_t j = 0; j < job_k_len(job, b); ++j) {
          const int keeps = pattern_keeps(job, b, h, i, j);
          if (!bits) {
            mask->memory[image_at(mask, b, h, i, j)] = keeps ? attend[(i + j) % 4] : 0;
            continue;
          }
          uint32_t word, bit = mask->stride[3] != 0 ? (uint32_t)(j % 32) : 0;
          unsigned char *at = mask->memory + image_at(mask, b, h, i, j / 32);
          memcpy(&word, at, sizeof word);
          word = (word & ~(UINT32_C(1) << bit)) | ((uint32_t)keeps << bit);
          memcpy(at, &word, sizeof word);
        }
}

int job_mask_keeps(const device_job *job, const job_memory *memory, int64_t b, int64_t h, int64_t i, int64_t j) {
  const image *mask = &memory->slot[CLATTNI_KEEP_MASK];
  uint32_t word;
  if (job->problem.keep_mask_kind == CLATTN_MASK_NONE)
    return 1;
  if (job->problem.keep_mask_kind == CLATTN_MASK_U8)
    return mask->memory[image_at(mask, b, h, i, j)] != 0;
  memcpy(&word, mask->memory + image_at(mask, b, h, i, j / 32), sizeof word);
  return (word >> (mask->stride[3] != 0 ? j % 32 : 0)) & 1;
}

static int pair_has(const device_job *job, const job_memory *memory, level wanted, int64_t b, int64_t h, int64_t i,
                    int64_t j) {
  return wanted == LEVEL_EXISTING ||
         (job_sees(job, b, i, j) && (wanted == LEVEL_SEEN || job_mask_keeps(job, memory, b, h, i, j)));
}

static float bias_value(const device_job *job, int64_t b, int64_t h, int64_t i, int64_t j) {
  const double u = device_random(job->seed, 103, ((uint64_t)(b * 131 + h) << 40) ^ ((uint64_t)i << 20) ^ (uint64_t)j);
  const int64_t keys = job_k_len(job, b);
  if (job->data & DATA_BIAS_LOWEST)
    return -FLT_MAX;
  if (job->data & DATA_BIAS_DEEP)
    return -1e30f;
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
            set_float(&memory->slot[CLATTNI_BIAS], b, h, i, j, bias_value(job, b, h, i, j));
}

static void special(const device_job *job, const image *tensor, unsigned bit, int64_t b, int64_t h, int64_t r,
                    int64_t e, float value) {
  if (job->data & bit)
    set_float(tensor, b, h, r, e, value);
}

static void fill_row(const device_job *job, const image *tensor, clattni_slot slot, int64_t b, int64_t h, int64_t r) {
  const uint64_t row = ((uint64_t)b << 40) ^ ((uint64_t)h << 32) ^ (uint64_t)r;
  const int far = slot == CLATTNI_K && (job->data & DATA_FAR) && device_random(job->seed, 104, row) < 0.2;
  for (int64_t e = 0; e < tensor->shape[3]; ++e)
    set_float(tensor, b, h, r, e, normal(job, slot, b, h, r, e) * (far ? 120.0f : 1.0f));
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

static clattn_problem with_outputs(const device_job *job, uint32_t outputs, clattn_stage stage) {
  clattn_problem problem = job->problem;
  problem.outputs = outputs;
  problem.stage = stage;
  return problem;
}

/* Shapes and strides as the interface defines them, not as the library works them out. */
static void shape_of(const device_job *job, clattni_slot slot, const clattni_sizes *sizes, int64_t shape[4]) {
  const clattn_problem *p = &job->resolved;
  const int64_t words = p->keep_mask_kind == CLATTN_MASK_BITS ? (sizes->k_len + 31) / 32 : sizes->k_len;
  const int64_t last[CLATTNI_SLOTS] = {p->qk_dim,    p->qk_dim, p->v_dim,     p->v_dim, 1,
                                       sizes->k_len, 1,         sizes->k_len, words};
  const int of_keys = slot == CLATTNI_K || slot == CLATTNI_V;
  shape[0] = sizes->batch;
  shape[1] = of_keys ? p->kv_heads : p->q_heads;
  shape[2] = of_keys ? sizes->k_len : slot == CLATTNI_MAX_LOGIT ? 1 : sizes->q_len;
  shape[3] = last[slot];
}

static void strides_of(const device_job *job, clattni_slot slot, const clattn_tensor *tensor, int64_t stride[4]) {
  const clattni_sizes bounds = {job->resolved.batch, job->resolved.q_len, job->resolved.k_len};
  const int exact = tensor->layout == CLATTN_LAYOUT_BHSD_EXACT || tensor->layout == CLATTN_LAYOUT_BSHD_EXACT;
  const int heads_first = tensor->layout == CLATTN_LAYOUT_BHSD || tensor->layout == CLATTN_LAYOUT_BHSD_EXACT;
  int64_t n[4];
  if (tensor->layout == CLATTN_LAYOUT_STRIDED) {
    memcpy(stride, tensor->stride, 4 * sizeof stride[0]);
    return;
  }
  shape_of(job, slot, exact ? &job->sizes : &bounds, n);
  stride[0] = n[1] * n[2] * n[3];
  stride[1] = heads_first ? n[2] * n[3] : n[3];
  stride[2] = heads_first ? n[3] : n[1] * n[3];
  stride[3] = 1;
}

int job_memory_open(const device_rig *rig, const device_job *job, job_memory *memory) {
  clattn_problem resolved;
  memset(memory, 0, sizeof *memory);
  const clattn_problem all = with_outputs(job, 15, CLATTN_STAGE_RAW);
  clattni_problem_resolve(&all, &resolved);
  for (clattni_slot slot = 0; slot < CLATTNI_SLOTS; ++slot) {
    image *tensor = &memory->slot[slot];
    int64_t elements;
    if (!clattni_slot_used(&resolved, slot))
      continue;
    shape_of(job, slot, &job->sizes, tensor->shape);
    strides_of(job, slot, clattni_slot_tensor(&resolved, slot), tensor->stride);
    tensor->element = clattni_slot_element_bytes(&resolved, slot);
    if (!clattni_extent(tensor->shape, tensor->stride, &elements))
      return complain("a case that does not fit in memory", CLATTN_ERROR_OVERFLOW);
    if (elements == 0)
      continue;
    tensor->pattern = clattni_slot_is_output(slot) ? OUTPUT_PATTERN : 0xff;
    tensor->offset = tensor->element * (3 + 5 * (size_t)slot);
    const size_t behind = clattni_slot_is_output(slot) ? 52 : 0; /* inputs end with the page */
    if (!map_memory(tensor->offset + (size_t)elements * tensor->element + behind, tensor)) {
      job_memory_close(memory);
      return complain("no memory", CLATTN_ERROR_OUT_OF_MEMORY);
    }
    memset(tensor->memory, tensor->pattern, tensor->bytes);
  }
  const level least[3] = {(level)(job->seed / 5 % 3), (level)(job->seed % 3), (level)(1 + job->seed / 3 % 2)};
  int good = 1;
  if (memory->slot[CLATTNI_KEEP_MASK].memory != NULL)
    fill_mask(job, &memory->slot[CLATTNI_KEEP_MASK]);
  if (memory->slot[CLATTNI_BIAS].memory != NULL)
    fill_bias(job, memory, (level)(job->seed / 7 % 3));
  good = fill_rows(job, memory, least);
  for (int slot = 0; good && slot < CLATTNI_SLOTS; ++slot)
    if (memory->slot[slot].memory != NULL)
      good = make_buffer(rig, &memory->slot[slot]);
  if (!good)
    job_memory_close(memory);
  return good;
}

void job_memory_close(job_memory *memory) {
  for (int slot = 0; slot < CLATTNI_SLOTS; ++slot)
    image_close(&memory->slot[slot]);
}

/* 1 if nothing but the elements of an output (when it was written at all) differs from the pattern. */
static int untouched(const image *tensor, int written, const char *name) {
  int same = 1;
  unsigned char *copy = malloc(tensor->bytes);
  if (copy == NULL)
    return complain("no memory", CLATTN_ERROR_OUT_OF_MEMORY);
  memcpy(copy, tensor->memory, tensor->bytes);
  for (int64_t b = 0; written && b < tensor->shape[0]; ++b)
    for (int64_t h = 0; h < tensor->shape[1]; ++h)
      for (int64_t r = 0; r < tensor->shape[2]; ++r)
        for (int64_t e = 0; e < tensor->shape[3]; ++e)
          memset(copy + image_at(tensor, b, h, r, e), OUTPUT_PATTERN, tensor->element);
  for (size_t i = 0; same && i < tensor->bytes; ++i) {
    same = copy[i] == OUTPUT_PATTERN;
    if (!same)
      (void)fprintf(stderr, "%s: byte %zu of the buffer (%zu from the first element) is no element and was written\n",
                    name, i, i - tensor->offset);
  }
  free(copy);
  return same;
}

/* ---- runs ------------------------------------------------------------------------------------------------------ */

clattn_status device_plan(const device_rig *rig, const device_job *job, const run_options *options, clattn_plan **plan,
                          clattn_error *error) {
  clattn_plan_options plan_options;
  const clattn_problem problem = with_outputs(job, options->outputs, options->stage);
  clattn_plan_options_init(&plan_options);
  plan_options.variant = options->variant;
  plan_options.workspace_cap = options->workspace_cap;
  return clattn_plan_create(rig->context, &problem, &plan_options, plan, error);
}

static void set_mem(clattn_mem *mem, const image *tensor, int used) {
  if (used && tensor->buffer != NULL)
    *mem = clattn_buffer(tensor->buffer, tensor->offset);
}

static void set_ints(clattn_ints *ints, int given, const int32_t *entries, int64_t batch) {
  if (!given)
    return;
  ints->kind = CLATTN_ARRAY_HOST;
  ints->count = (uint32_t)batch;
  ints->host = entries;
}

void device_args(const device_job *job, const job_memory *memory, uint32_t outputs, clattn_args *args) {
  const image *slot = memory->slot;
  clattn_args_init(args);
  if (job->sizes_given) {
    args->sizes = CLATTN_SIZES_GIVEN;
    args->batch = job->sizes.batch;
    args->q_len = job->sizes.q_len;
    args->k_len = job->sizes.k_len;
  }
  set_mem(&args->q, &slot[CLATTNI_Q], 1);
  set_mem(&args->k, &slot[CLATTNI_K], 1);
  set_mem(&args->v, &slot[CLATTNI_V], (outputs & CLATTN_OUT_O) != 0);
  set_mem(&args->o, &slot[CLATTNI_O], (outputs & CLATTN_OUT_O) != 0);
  set_mem(&args->lse, &slot[CLATTNI_LSE], (outputs & CLATTN_OUT_LSE) != 0);
  set_mem(&args->scores, &slot[CLATTNI_SCORES], (outputs & CLATTN_OUT_SCORES) != 0);
  set_mem(&args->max_logit, &slot[CLATTNI_MAX_LOGIT], (outputs & CLATTN_OUT_MAX_LOGIT) != 0);
  set_mem(&args->bias, &slot[CLATTNI_BIAS], 1);
  set_mem(&args->keep_mask, &slot[CLATTNI_KEEP_MASK], 1);
  set_ints(&args->q_lengths, job->has_q_lengths, job->q_lengths, job->sizes.batch);
  set_ints(&args->k_lengths, job->has_k_lengths, job->k_lengths, job->sizes.batch);
  set_ints(&args->q_offsets, job->has_q_offsets, job->q_offsets, job->sizes.batch);
  if (job->scale_given) {
    args->scale.kind = CLATTN_SCALAR_HOST;
    args->scale.value = job->scale;
  }
  if (job->softcap_given) {
    args->softcap.kind = CLATTN_SCALAR_HOST;
    args->softcap.value = job->softcap;
  }
}

/* A workspace full of NaN, its end guarded. */
static int open_workspace(const device_rig *rig, const clattn_plan *plan, image *workspace, uint64_t *needed) {
  clattn_plan_info info;
  clattn_plan_info_init(&info);
  const clattn_status status = clattn_plan_get_info(plan, &info);
  if (status != CLATTN_SUCCESS)
    return complain("clattn_plan_get_info", status);
  *needed = info.workspace_bytes;
  return image_open(rig, (size_t)*needed + WORKSPACE_FRONT + WORKSPACE_GUARD, 0xff, workspace);
}

static int workspace_guarded(const image *workspace, uint64_t needed) {
  for (size_t i = 0; i < workspace->bytes; ++i) {
    if (i == WORKSPACE_FRONT)
      i += (size_t)needed;
    if (workspace->memory[i] != 0xff) {
      (void)fprintf(stderr, "byte %zu was written outside the workspace of %llu bytes at %u\n", i,
                    (unsigned long long)needed, WORKSPACE_FRONT);
      return 0;
    }
  }
  return 1;
}

static int all_untouched(const device_job *job, const job_memory *memory, uint32_t outputs) {
  int good = 1;
  const clattn_problem asked = with_outputs(job, outputs, CLATTN_STAGE_RAW);
  for (clattni_slot slot = 0; slot < CLATTNI_SLOTS; ++slot)
    if (clattni_slot_is_output(slot) && memory->slot[slot].memory != NULL)
      good &= untouched(&memory->slot[slot], clattni_slot_used(&asked, slot), clattni_slot_name(slot));
  return good;
}

int device_run(const device_rig *rig, const device_job *job, job_memory *memory, const run_options *options,
               int *claimed) {
  const clattn_plan *plan = options->plan;
  clattn_plan *own = NULL;
  clattn_args args;
  clattn_error error;
  image workspace, *touched[IMAGES_MOST];
  uint64_t needed = 0;
  int good = 0;
  memset(&workspace, 0, sizeof workspace);
  clattn_error_init(&error);
  *claimed = 1;
  if (plan == NULL) {
    clattn_support support;
    const clattn_problem problem = with_outputs(job, options->outputs, options->stage);
    clattn_support_init(&support);
    const clattn_status supported = clattn_supported(rig->context, &problem, options->variant, &support);
    if (supported == CLATTN_ERROR_VARIANT_UNFIT) {
      *claimed = 0;
      return 1;
    }
    if (supported != CLATTN_SUCCESS || device_plan(rig, job, options, &own, &error) != CLATTN_SUCCESS) {
      (void)fprintf(stderr, "no plan: %s%s\n", supported != CLATTN_SUCCESS ? support.reason : "", error.message);
      return 0;
    }
    plan = own;
  }
  size_t count = job_outputs(memory, touched);
  device_args(job, memory, options->outputs, &args);
  args.error = &error;
  if (!options->inner_workspace) {
    if (!open_workspace(rig, plan, &workspace, &needed))
      goto done;
    touched[count++] = &workspace;
    if (needed > 0) {
      args.workspace = clattn_buffer(workspace.buffer, WORKSPACE_FRONT);
      args.workspace.bytes = needed;
    }
  }
  if (!images_fill(rig->queue, touched, count))
    goto done;
  cl_event event = NULL;
  clattn_status status = clattn_enqueue(plan, rig->queue, &args, 0, NULL, &event);
  if (status != CLATTN_SUCCESS) {
    (void)fprintf(stderr, "clattn_enqueue: %s: %s\n", clattn_status_name(status), error.message);
    goto done;
  }
  status = clWaitForEvents(1, &event);
  (void)clReleaseEvent(event);
  if (status != CL_SUCCESS) {
    complain("clWaitForEvents", status);
    goto done;
  }
  good = images_sync(rig->queue, touched, count) && all_untouched(job, memory, options->outputs) &&
         (workspace.memory == NULL || workspace_guarded(&workspace, needed));

done:
  image_close(&workspace);
  clattn_plan_release(own);
  return good;
}
