/* SPDX-License-Identifier: Apache-2.0 */
/* What clattn_enqueue refuses: the code, the message, and that nothing was enqueued, nor misused on the way. */
#include "trial.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

cl_mem extra(trial *t, cl_context cl, size_t bytes) {
  assert_true(t->num_extras < MOST_EXTRAS);
  return t->extras[t->num_extras++] = make_buffer(cl, bytes);
}

cl_mem limited(trial *t, cl_mem_flags access, size_t bytes) {
  cl_int code;
  assert_true(t->num_extras < MOST_EXTRAS);
  const cl_mem buffer = clCreateBuffer(t->rig->cl, access, bytes, NULL, &code);
  assert_int_equal(code, CL_SUCCESS);
  return t->extras[t->num_extras++] = buffer;
}

cl_mem image(trial *t) {
  const cl_image_format format = {CL_R, CL_FLOAT};
  const cl_image_desc shape = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 1024, .image_height = 1024};
  cl_int code;
  assert_true(t->num_extras < MOST_EXTRAS);
  const cl_mem made = clCreateImage(t->rig->cl, CL_MEM_READ_WRITE, &format, &shape, NULL, &code);
  assert_int_equal(code, CL_SUCCESS);
  return t->extras[t->num_extras++] = made;
}

cl_mem sub_buffer(trial *t, cl_mem parent, size_t origin, size_t bytes) {
  const cl_buffer_region region = {origin, bytes};
  cl_int code;
  assert_true(t->num_extras < MOST_EXTRAS);
  const cl_mem buffer = clCreateSubBuffer(parent, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
  assert_int_equal(code, CL_SUCCESS);
  return t->extras[t->num_extras++] = buffer;
}

size_t size_of(const clattn_mem *mem) {
  size_t bytes = 0;
  assert_int_equal(clGetMemObjectInfo(mem->buffer, CL_MEM_SIZE, sizeof bytes, &bytes, NULL), CL_SUCCESS);
  return bytes;
}

/* ---- a trial ---- */

void trial_begin(trial *t, const rig *r, unsigned flags, void (*problem)(clattn_problem *)) {
  memset(t, 0, sizeof *t);
  t->rig = r;
  t->queue = r->in_order;
  assert_int_equal(clattn_context_create(r->cl, r->device[0], trusting(), &t->context, NULL), CLATTN_SUCCESS);
  job_init(&t->job, flags);
  if (problem)
    problem(&t->job.problem);
  clattn_plan_options options;
  job_options(&t->job, &options);
  const clattn_status status = clattn_plan_create(t->context, &t->job.problem, &options, &t->plan, &t->job.error);
  if (status != CLATTN_SUCCESS)
    fail_msg("no plan: %s", t->job.error.message);
  job_buffers(&t->job, r->cl);
  job_workspace(&t->job, r->cl, t->plan);
}

void trial_end(trial *t, const clattn_args *original) {
  t->job.args = *original;
  if (t->own_events[0])
    run_user_event(t->own_events[0]);
  while (t->num_extras > 0)
    assert_int_equal(clReleaseMemObject(t->extras[--t->num_extras]), CL_SUCCESS);
  job_free(&t->job);
  clattn_plan_release(t->plan);
  clattn_context_release(t->context);
}

void check_refusal(const rig *r, const refusal *c) {
  trial t;
  trial_begin(&t, r, c->flags, c->problem);
  const clattn_args original = t.job.args;
  cl_event event = (cl_event)(void *)&t;
  t.job.num_launch_events = 99;
  t.job.args.num_launch_events = &t.job.num_launch_events;
  c->spoil(&t);
  /* checks of contents read; nothing else may be enqueued */
  const uint64_t commands = stub->commands() - stub->calls("clEnqueueReadBuffer");
  const clattn_status status = clattn_enqueue(t.plan, t.queue, &t.job.args, t.num_events, t.wait_list, &event);
  const clattn_error error = t.job.error;
  t.job.num_launch_events = t.job.num_launch_events == 99 ? 0 : t.job.num_launch_events;
  const uint64_t misused = stub->violations();
  if (status == CLATTN_SUCCESS && event)
    clReleaseEvent(event);
  const uint64_t enqueued = stub->commands() - stub->calls("clEnqueueReadBuffer") - commands;
  trial_end(&t, &original);
  if (status != c->want || error.status != c->want || !strstr(error.message, c->text))
    fail_msg("%s: wanted %s with '%s', got %s, %s '%s'", c->name, clattn_status_name(c->want), c->text,
             clattn_status_name(status), clattn_status_name(error.status), error.message);
  if (event || enqueued || misused) {
    print_violations();
    fail_msg("%s: refused, but %s, %llu commands and %llu violations", c->name, event ? "an event" : "no event",
             (unsigned long long)enqueued, (unsigned long long)misused);
  }
}

void check_accepted(trial *t, const char *name) {
  cl_event event = NULL;
  const clattn_status status = clattn_enqueue(t->plan, t->queue, &t->job.args, 0, NULL, &event);
  if (status != CLATTN_SUCCESS)
    fail_msg("%s: refused with %s '%s'", name, clattn_status_name(status), t->job.error.message);
  assert_non_null(event);
  clReleaseEvent(event);
}

/* ---- structs and sizes ---- */

SPOIL(no_queue, t->queue = NULL)
SPOIL(reserved0, a->reserved0 = 1)
SPOIL(reserved1, a->reserved1 = 1)
SPOIL(reserved_last, a->reserved[15] = 7)
SPOIL(reserved_mem, a->k.reserved = 1)
SPOIL(unknown_size_bit, a->sizes = 8)
SPOIL(batch_above, (a->sizes = CLATTN_SIZES_BATCH, a->batch = JOB_BATCH + 1))
SPOIL(q_len_above, (a->sizes = CLATTN_SIZES_Q_LEN, a->q_len = JOB_ROWS + 1))
SPOIL(k_len_above, (a->sizes = CLATTN_SIZES_K_LEN, a->k_len = JOB_KEYS + 1))
SPOIL(batch_negative, (a->sizes = CLATTN_SIZES_BATCH, a->batch = -1))
SPOIL(k_len_negative, (a->sizes = CLATTN_SIZES_K_LEN, a->k_len = INT64_MIN))

static void test_structs_and_sizes(void **state) {
  static const refusal cases[] = {
      {"queue NULL", JOB_PLAIN, CLATTN_ERROR_NULL_POINTER, "queue", no_queue, NULL},
      {"reserved0", JOB_PLAIN, CLATTN_ERROR_RESERVED, "reserved", reserved0, NULL},
      {"reserved1", JOB_PLAIN, CLATTN_ERROR_RESERVED, "reserved", reserved1, NULL},
      {"reserved[15]", JOB_PLAIN, CLATTN_ERROR_RESERVED, "reserved[15]", reserved_last, NULL},
      {"k.reserved", JOB_PLAIN, CLATTN_ERROR_RESERVED, "k.reserved", reserved_mem, NULL},
      {"unknown bit of sizes", JOB_PLAIN, CLATTN_ERROR_RESERVED, "sizes", unknown_size_bit, NULL},
      {"batch above its bound", JOB_PLAIN, CLATTN_ERROR_BOUND, "batch 3", batch_above, NULL},
      {"q_len above its bound", JOB_PLAIN, CLATTN_ERROR_BOUND, "q_len 41", q_len_above, NULL},
      {"k_len above its bound", JOB_PLAIN, CLATTN_ERROR_BOUND, "k_len 71", k_len_above, NULL},
      {"batch negative", JOB_PLAIN, CLATTN_ERROR_SHAPE, "batch", batch_negative, NULL},
      {"k_len negative", JOB_PLAIN, CLATTN_ERROR_SHAPE, "k_len", k_len_negative, NULL},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i)
    check_refusal(*state, &cases[i]);

  trial t; /* without a place for a message */
  trial_begin(&t, *state, JOB_PLAIN, NULL);
  const clattn_args original = t.job.args;
  const uint64_t commands = stub->commands();
  assert_int_equal(clattn_enqueue(NULL, t.queue, &t.job.args, 0, NULL, NULL), CLATTN_ERROR_NULL_POINTER);
  assert_int_equal(t.job.error.status, CLATTN_ERROR_NULL_POINTER);
  assert_int_equal(clattn_enqueue(t.plan, t.queue, NULL, 0, NULL, NULL), CLATTN_ERROR_NULL_POINTER);
  t.job.args.struct_size -= 8;
  assert_int_equal(clattn_enqueue(t.plan, t.queue, &t.job.args, 0, NULL, NULL), CLATTN_ERROR_STRUCT_SIZE);
  assert_int_equal(clattn_attention(t.context, t.queue, &t.job.problem, &t.job.args, 0, NULL, NULL),
                   CLATTN_ERROR_STRUCT_SIZE);
  t.job.args = original;
  t.job.args.error = NULL;
  t.job.args.q.buffer = NULL;
  assert_int_equal(clattn_enqueue(t.plan, t.queue, &t.job.args, 0, NULL, NULL), CLATTN_ERROR_TENSOR_MISSING);
  assert_int_equal(clattn_attention(NULL, t.queue, &t.job.problem, &original, 0, NULL, NULL),
                   CLATTN_ERROR_NULL_POINTER);
  assert_int_equal(clattn_attention(t.context, t.queue, NULL, &original, 0, NULL, NULL), CLATTN_ERROR_NULL_POINTER);
  assert_int_equal(stub->commands(), commands);
  trial_end(&t, &original);
}

/* ---- tensors ---- */

/* Offsets of the tensors that a job with all flags has; `name` as messages say it. */
static const struct slot {
  const char *name;
  size_t offset;
} slots[] = {
    {"args.q", offsetof(clattn_args, q)},
    {"args.k", offsetof(clattn_args, k)},
    {"args.v", offsetof(clattn_args, v)},
    {"args.o", offsetof(clattn_args, o)},
    {"args.lse", offsetof(clattn_args, lse)},
    {"args.scores", offsetof(clattn_args, scores)},
    {"args.max_logit", offsetof(clattn_args, max_logit)},
    {"args.bias", offsetof(clattn_args, bias)},
    {"args.block_mask", offsetof(clattn_args, block_mask)},
    {"args.alibi_slopes", offsetof(clattn_args, alibi_slopes)},
    {"args.sink", offsetof(clattn_args, sink)},
    {"args.page_table", offsetof(clattn_args, page_table)},
    {"args.keep_mask", offsetof(clattn_args, keep_mask)},
};
enum { NUM_SLOTS = sizeof slots / sizeof *slots };
static size_t chosen; /* the slot that the functions below spoil */

static clattn_mem *chosen_mem(trial *t) {
  return (clattn_mem *)(void *)((char *)&t->job.args + chosen);
}

SPOIL(mem_missing, *chosen_mem(t) = (clattn_mem){0})
SPOIL(mem_given, *chosen_mem(t) = clattn_buffer(extra(t, t->rig->cl, 1 << 16), 0))
SPOIL(mem_svm, chosen_mem(t)->kind = CLATTN_MEM_SVM)
SPOIL(mem_usm, chosen_mem(t)->kind = CLATTN_MEM_USM)
SPOIL(mem_kind, chosen_mem(t)->kind = 3)
SPOIL(mem_foreign, *chosen_mem(t) = clattn_buffer(extra(t, t->rig->foreign, size_of(chosen_mem(t))), 0))
SPOIL(mem_short, *chosen_mem(t) = clattn_buffer(extra(t, t->rig->cl, size_of(chosen_mem(t)) - 1), 0))
SPOIL(mem_few_bytes, chosen_mem(t)->bytes = size_of(chosen_mem(t)) - 1)
SPOIL(mem_many_bytes, chosen_mem(t)->bytes = size_of(chosen_mem(t)) + 1)
SPOIL(mem_offset, chosen_mem(t)->offset = 4)
SPOIL(mem_huge_offset, chosen_mem(t)->offset = UINT64_MAX - 3)
SPOIL(mem_odd, *chosen_mem(t) = clattn_buffer(extra(t, t->rig->cl, size_of(chosen_mem(t)) + 64), 2))

SPOIL(mem_image, *chosen_mem(t) = clattn_buffer(image(t), 0))
SPOIL(mem_read_only, *chosen_mem(t) = clattn_buffer(limited(t, CL_MEM_READ_ONLY, size_of(chosen_mem(t))), 0))
SPOIL(mem_write_only, *chosen_mem(t) = clattn_buffer(limited(t, CL_MEM_WRITE_ONLY, size_of(chosen_mem(t))), 0))

static void test_tensors(void **state) {
  static const struct {
    const char *name;
    clattn_status want;
    void (*spoil)(trial *);
  } kinds[] = {
      {"missing", CLATTN_ERROR_TENSOR_MISSING, mem_missing},
      {"SVM", CLATTN_ERROR_NOT_SUPPORTED, mem_svm},
      {"USM", CLATTN_ERROR_NOT_SUPPORTED, mem_usm},
      {"unknown kind", CLATTN_ERROR_ENUM, mem_kind},
      {"of another context", CLATTN_ERROR_WRONG_CONTEXT, mem_foreign},
      {"buffer too small", CLATTN_ERROR_BUFFER_TOO_SMALL, mem_short},
      {"too few bytes", CLATTN_ERROR_BUFFER_TOO_SMALL, mem_few_bytes},
      {"more bytes than there are", CLATTN_ERROR_BUFFER_TOO_SMALL, mem_many_bytes},
      {"offset that leaves too little", CLATTN_ERROR_BUFFER_TOO_SMALL, mem_offset},
      {"offset beyond everything", CLATTN_ERROR_BUFFER_TOO_SMALL, mem_huge_offset},
      {"misaligned", CLATTN_ERROR_ALIGNMENT, mem_odd},
      {"image", CL_INVALID_MEM_OBJECT, mem_image},
  };
  for (size_t s = 0; s < NUM_SLOTS; ++s)
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; ++k) {
      if (kinds[k].spoil == mem_odd && s + 1 == NUM_SLOTS)
        continue; /* bytes of a mask are aligned anywhere */
      char name[64];
      snprintf(name, sizeof name, "%s %s", slots[s].name, kinds[k].name);
      chosen = slots[s].offset;
      const refusal c = {name, JOB_ALL | JOB_PAGED, kinds[k].want, slots[s].name, kinds[k].spoil, NULL};
      check_refusal(*state, &c);
    }
}

static int is_output(size_t s) {
  return strstr("args.o args.lse args.scores args.max_logit", slots[s].name) != NULL;
}

/* Kernels write outputs and read inputs; what the buffer's flags forbid is refused, what they leave is enough. */
static void test_access(void **state) {
  for (size_t s = 0; s < NUM_SLOTS; ++s) {
    const refusal c = {slots[s].name,
                       JOB_ALL | JOB_PAGED,
                       CL_INVALID_MEM_OBJECT,
                       is_output(s) ? "may not write (CL_MEM_READ_ONLY)" : "may not read (CL_MEM_WRITE_ONLY)",
                       is_output(s) ? mem_read_only : mem_write_only,
                       NULL};
    chosen = slots[s].offset;
    check_refusal(*state, &c);
    trial t;
    trial_begin(&t, *state, JOB_ALL | JOB_PAGED, NULL);
    const clattn_args original = t.job.args;
    (is_output(s) ? mem_write_only : mem_read_only)(&t);
    check_accepted(&t, slots[s].name);
    trial_end(&t, &original);
  }
}

SPOIL(hook_scalar, a->hook_scalar[3].kind = CLATTN_SCALAR_HOST)
SPOIL(prefix, a->prefix = (clattn_ints){.kind = CLATTN_ARRAY_HOST, .count = JOB_BATCH, .host = t->job.q_offsets})
SPOIL(packed, a->cu_seqlens_k = (clattn_ints){.kind = CLATTN_ARRAY_HOST, .count = 3, .host = t->job.q_offsets})
SPOIL(lengths, a->k_lengths = (clattn_ints){.kind = CLATTN_ARRAY_HOST, .count = JOB_BATCH, .host = t->job.q_offsets})
SPOIL(offsets, a->q_offsets = (clattn_ints){.kind = CLATTN_ARRAY_HOST, .count = JOB_BATCH, .host = t->job.q_offsets})
SPOIL(seed, a->dropout_seed = 1)

static void test_unused(void **state) {
#define SLOT(field)                                                                                                    \
  { "args." #field, offsetof(clattn_args, field) }
  static const struct slot unused[] = {
      SLOT(lse),
      SLOT(scores),
      SLOT(max_logit),
      SLOT(bias),
      SLOT(keep_mask),
      SLOT(block_mask),
      SLOT(sink),
      SLOT(add_w),
      SLOT(k_scale),
      SLOT(head_scale),
      SLOT(v_scale),
      SLOT(page_table),
      SLOT(rope_cos),
      SLOT(rope_sin),
      SLOT(d_o),
      SLOT(positions_q),
      SLOT(positions_k),
      SLOT(alibi_slopes),
      SLOT(d_lse),
      SLOT(d_q),
      SLOT(d_k),
      SLOT(d_v),
      SLOT(d_bias),
      SLOT(d_sink),
      {"args.hook_buffer", offsetof(clattn_args, hook_buffer) + 2 * sizeof(clattn_mem)},
  };
#undef SLOT
  static const refusal cases[] = {
      {"hook_scalar", JOB_PLAIN, CLATTN_ERROR_TENSOR_UNUSED, "hook_scalar", hook_scalar, NULL},
      {"prefix", JOB_PLAIN, CLATTN_ERROR_TENSOR_UNUSED, "args.prefix", prefix, NULL},
      {"cu_seqlens_k", JOB_PLAIN, CLATTN_ERROR_TENSOR_UNUSED, "args.cu_seqlens_k", packed, NULL},
      {"k_lengths", JOB_PLAIN, CLATTN_ERROR_TENSOR_UNUSED, "args.k_lengths", lengths, NULL},
      {"q_offsets", JOB_PLAIN, CLATTN_ERROR_TENSOR_UNUSED, "args.q_offsets", offsets, NULL},
      {"dropout_seed", JOB_PLAIN, CLATTN_ERROR_TENSOR_UNUSED, "dropout_seed", seed, NULL},
  };
  for (size_t s = 0; s < sizeof unused / sizeof *unused; ++s) {
    chosen = unused[s].offset;
    const refusal c = {unused[s].name, JOB_PLAIN, CLATTN_ERROR_TENSOR_UNUSED, unused[s].name, mem_given, NULL};
    check_refusal(*state, &c);
  }
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i)
    check_refusal(*state, &cases[i]);
}

/* ---- strides and promises ---- */

static void strided_k(clattn_problem *problem) {
  problem->k.layout = CLATTN_LAYOUT_STRIDED;
  const int64_t stride[4] = {JOB_KV_HEADS * JOB_KEYS * 20, JOB_KEYS * 20, 20, 1};
  memcpy(problem->k.stride, stride, sizeof stride);
}

static void promise(clattn_problem *problem) {
  problem->alignment = 32;
}

SPOIL(strided_short, /* the last row ends at its last element, not at the pitch */
      a->k = clattn_buffer(extra(t, t->rig->cl, (JOB_BATCH * JOB_KV_HEADS * JOB_KEYS * 20 - 4) * 4 - 4), 0))
SPOIL(promise_broken, a->v = clattn_buffer(extra(t, t->rig->cl, size_of(&a->v) + 64), 16))
SPOIL(bits_short, a->keep_mask = clattn_buffer(extra(t, t->rig->cl, JOB_BATCH *JOB_HEADS *JOB_ROWS * 12 - 4), 0))

static void bits(clattn_problem *problem) {
  problem->keep_mask_kind = CLATTN_MASK_BITS;
}

static void test_strides(void **state) {
  static const refusal cases[] = {
      {"strided k", JOB_PLAIN, CLATTN_ERROR_BUFFER_TOO_SMALL, "args.k", strided_short, strided_k},
      {"broken promise", JOB_PLAIN, CLATTN_ERROR_ALIGNMENT, "args.v", promise_broken, promise},
      {"mask of bits", JOB_MASKS, CLATTN_ERROR_BUFFER_TOO_SMALL, "args.keep_mask", bits_short, bits},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i)
    check_refusal(*state, &cases[i]);

  trial t; /* exactly enough is enough */
  trial_begin(&t, *state, JOB_PLAIN, strided_k);
  const clattn_args original = t.job.args;
  t.job.args.k = clattn_buffer(extra(&t, t.rig->cl, (JOB_BATCH * JOB_KV_HEADS * JOB_KEYS * 20 - 4) * 4), 0);
  check_accepted(&t, "strided k");
  trial_end(&t, &original);
}

/* Strides that never lead anywhere may be as large as they like: nothing is computed with them. */
static void huge(clattn_tensor *tensor, int64_t row, int64_t element) {
  tensor->layout = CLATTN_LAYOUT_STRIDED;
  const int64_t stride[4] = {INT64_MAX, INT64_MAX, row, element};
  memcpy(tensor->stride, stride, sizeof stride);
}

static void huge_on_lone_axes(clattn_problem *problem) {
  problem->batch = problem->q_heads = problem->kv_heads = problem->q_len = 1;
  huge(&problem->q, INT64_MAX, 1);
  huge(&problem->k, JOB_DIM, 1);
  huge(&problem->v, JOB_V_DIM, 1);
  huge(&problem->o, INT64_MAX, 1);
  huge(&problem->lse, INT64_MAX, 0);
  huge(&problem->scores, INT64_MAX, 1);
  huge(&problem->max_logit, 0, 0);
  huge(&problem->bias, INT64_MAX, 1);
  huge(&problem->keep_mask, INT64_MAX, 1);
}

static void huge_without_keys(clattn_problem *problem) {
  problem->k_len = 0;
  huge(&problem->k, INT64_MAX, INT64_MAX);
  huge(&problem->v, INT64_MAX, INT64_MAX);
  huge(&problem->scores, INT64_MAX, INT64_MAX);
  huge(&problem->bias, INT64_MAX, INT64_MAX);
  huge(&problem->keep_mask, INT64_MAX, INT64_MAX);
}

static void test_huge_strides(void **state) {
  void (*const problems[])(clattn_problem *) = {huge_on_lone_axes, huge_without_keys};
  for (size_t i = 0; i < sizeof problems / sizeof *problems; ++i) {
    trial t;
    trial_begin(&t, *state, JOB_OUTPUTS | JOB_MASKS, problems[i]);
    const clattn_args original = t.job.args;
    check_accepted(&t, "huge strides");
    trial_end(&t, &original);
  }
}

/* ---- lengths and scalars ---- */

static void softcap(clattn_problem *problem) {
  problem->softcap = 20;
}

SPOIL(k_length_above, t->job.k_lengths[1] = JOB_KEYS + 1)
SPOIL(k_length_negative, t->job.k_lengths[1] = -1)
SPOIL(q_length_above, t->job.q_lengths[0] = JOB_ROWS + 1)
SPOIL(q_length_negative, t->job.q_lengths[1] = INT32_MIN)
SPOIL(k_length_of_enqueue, (a->sizes = CLATTN_SIZES_K_LEN, a->k_len = JOB_KEYS - 1))
SPOIL(length_count, a->k_lengths.count = 1)
SPOIL(length_null, a->q_lengths.host = NULL)
SPOIL(length_none, a->k_lengths = (clattn_ints){0})
SPOIL(offset_none, a->q_offsets = (clattn_ints){0})
SPOIL(length_kind, a->q_offsets.kind = 3)
SPOIL(scale_nan, (a->scale.kind = CLATTN_SCALAR_HOST, a->scale.value = NAN))
SPOIL(scale_infinite, (a->scale.kind = CLATTN_SCALAR_HOST, a->scale.value = -INFINITY))
SPOIL(scale_kind, a->scale.kind = 3)
SPOIL(softcap_zero, a->softcap.kind = CLATTN_SCALAR_HOST)
SPOIL(softcap_five, (a->softcap.kind = CLATTN_SCALAR_HOST, a->softcap.value = 5))
SPOIL(softcap_nan, (a->softcap.kind = CLATTN_SCALAR_HOST, a->softcap.value = NAN))
SPOIL(scale_without_kind, a->scale.value = 0.5f)
SPOIL(scale_nan_without_kind, a->scale.value = NAN)
SPOIL(softcap_without_kind, a->softcap.value = -1)
SPOIL(q_lengths_without_kind, a->q_lengths.kind = CLATTN_ARRAY_NONE)
SPOIL(k_lengths_count_alone, (a->k_lengths.kind = CLATTN_ARRAY_NONE, a->k_lengths.host = NULL))
SPOIL(q_offsets_host_alone, (a->q_offsets.kind = CLATTN_ARRAY_NONE, a->q_offsets.count = 0))
SPOIL(unused_count, a->q_lengths.count = JOB_BATCH)
SPOIL(unused_host, a->q_offsets.host = t->job.q_offsets)
SPOIL(unused_device, a->k_lengths.device = a->q)

static void test_lengths_and_scalars(void **state) {
  static const refusal cases[] = {
      {"k_lengths[1] too large", JOB_LENGTHS, CLATTN_ERROR_LENGTH, "k_lengths[1] is 71", k_length_above, NULL},
      {"k_lengths[1] negative", JOB_LENGTHS, CLATTN_ERROR_LENGTH, "k_lengths[1] is -1", k_length_negative, NULL},
      {"q_lengths[0] too large", JOB_LENGTHS, CLATTN_ERROR_LENGTH, "q_lengths[0] is 41", q_length_above, NULL},
      {"q_lengths[1] negative", JOB_LENGTHS, CLATTN_ERROR_LENGTH, "q_lengths[1]", q_length_negative, NULL},
      {"above this enqueue's", JOB_LENGTHS, CLATTN_ERROR_LENGTH, "k_lengths[0] is 70", k_length_of_enqueue, NULL},
      {"wrong count", JOB_LENGTHS, CLATTN_ERROR_LENGTH, "k_lengths", length_count, NULL},
      {"NULL", JOB_LENGTHS, CLATTN_ERROR_NULL_POINTER, "q_lengths", length_null, NULL},
      {"no lengths", JOB_LENGTHS, CLATTN_ERROR_TENSOR_MISSING, "k_lengths", length_none, NULL},
      {"no offsets", JOB_LENGTHS, CLATTN_ERROR_TENSOR_MISSING, "q_offsets", offset_none, NULL},
      {"unknown kind", JOB_LENGTHS, CLATTN_ERROR_ENUM, "q_offsets", length_kind, NULL},
      {"scale NaN", JOB_PLAIN, CLATTN_ERROR_VALUE, "scale", scale_nan, NULL},
      {"scale infinite", JOB_PLAIN, CLATTN_ERROR_VALUE, "scale", scale_infinite, NULL},
      {"scale of unknown kind", JOB_PLAIN, CLATTN_ERROR_ENUM, "scale", scale_kind, NULL},
      {"softcap without one", JOB_PLAIN, CLATTN_ERROR_VALUE, "softcap", softcap_five, NULL},
      {"softcap 0", JOB_PLAIN, CLATTN_ERROR_VALUE, "softcap", softcap_zero, softcap},
      {"softcap NaN", JOB_PLAIN, CLATTN_ERROR_VALUE, "softcap", softcap_nan, softcap},
      /* a value whose kind says that there is none is a slip, not a wish to be ignored */
      {"scale without a kind", JOB_PLAIN, CLATTN_ERROR_VALUE, "args.scale.value is 0.5", scale_without_kind, NULL},
      {"NaN without a kind", JOB_PLAIN, CLATTN_ERROR_VALUE, "args.scale.value", scale_nan_without_kind, NULL},
      {"softcap without a kind", JOB_PLAIN, CLATTN_ERROR_VALUE, "args.softcap.value", softcap_without_kind, softcap},
      {"no kind", JOB_LENGTHS, CLATTN_ERROR_TENSOR_UNUSED, "q_lengths is filled", q_lengths_without_kind, NULL},
      {"a count alone", JOB_LENGTHS, CLATTN_ERROR_TENSOR_UNUSED, "k_lengths is filled", k_lengths_count_alone, NULL},
      {"host alone", JOB_LENGTHS, CLATTN_ERROR_TENSOR_UNUSED, "q_offsets is filled", q_offsets_host_alone, NULL},
      {"unused, a count", JOB_PLAIN, CLATTN_ERROR_TENSOR_UNUSED, "q_lengths is filled", unused_count, NULL},
      {"unused, host", JOB_PLAIN, CLATTN_ERROR_TENSOR_UNUSED, "q_offsets is filled", unused_host, NULL},
      {"unused, device", JOB_PLAIN, CLATTN_ERROR_TENSOR_UNUSED, "k_lengths is filled", unused_device, NULL},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i)
    check_refusal(*state, &cases[i]);

  trial t; /* legal: scale 0 and below, softcap of a capped problem */
  trial_begin(&t, *state, JOB_PLAIN, softcap);
  const clattn_args original = t.job.args;
  t.job.args.scale = (clattn_scalar){.kind = CLATTN_SCALAR_HOST, .value = -2};
  t.job.args.softcap = (clattn_scalar){.kind = CLATTN_SCALAR_HOST, .value = 5};
  check_accepted(&t, "negative scale");
  trial_end(&t, &original);
}

/* ---- queues, events, the workspace ---- */

static void wait_for_foreign(trial *t) {
  t->own_events[0] = make_user_event(t->rig->foreign);
  t->num_events = 1;
  t->wait_list = t->own_events;
}

static void too_few_launch_events(trial *t) {
  static cl_event place[1];
  t->job.args.launch_events = place;
  t->job.args.launch_events_capacity = 1;
}

SPOIL(foreign_queue, t->queue = t->rig->other_context)
SPOIL(device_queue, t->queue = t->rig->other_device)
SPOIL(count_without_list, t->num_events = 1)
SPOIL(list_without_count, t->wait_list = t->own_events)
SPOIL(launch_events_alone,
      (a->launch_events = t->job.launch_events, a->launch_events_capacity = JOB_LAUNCHES, a->num_launch_events = NULL))
SPOIL(workspace_short, a->workspace.bytes = size_of(&a->workspace) - 4)
SPOIL(workspace_offset, a->workspace = clattn_buffer(extra(t, t->rig->cl, size_of(&a->workspace) + 64), 32))
SPOIL(workspace_foreign, a->workspace = clattn_buffer(extra(t, t->rig->foreign, size_of(&a->workspace)), 0))
SPOIL(workspace_image, a->workspace = clattn_buffer(image(t), 0))
SPOIL(workspace_read_only, a->workspace = clattn_buffer(limited(t, CL_MEM_READ_ONLY, size_of(&a->workspace)), 0))
SPOIL(workspace_write_only, a->workspace = clattn_buffer(limited(t, CL_MEM_WRITE_ONLY, size_of(&a->workspace)), 0))
SPOIL(workspace_svm, a->workspace.kind = CLATTN_MEM_SVM)

static void test_queues_and_workspaces(void **state) {
  static const refusal cases[] = {
      {"queue of another context", JOB_PLAIN, CLATTN_ERROR_WRONG_CONTEXT, "queue", foreign_queue, NULL},
      {"queue on another device", JOB_PLAIN, CLATTN_ERROR_WRONG_DEVICE, "queue", device_queue, NULL},
      {"event of another context", JOB_PLAIN, CLATTN_ERROR_WRONG_CONTEXT, "event", wait_for_foreign, NULL},
      {"events without a list", JOB_PLAIN, CL_INVALID_EVENT_WAIT_LIST, "wait_list", count_without_list, NULL},
      {"list without events", JOB_PLAIN, CL_INVALID_EVENT_WAIT_LIST, "wait_list", list_without_count, NULL},
      {"launch_events alone", JOB_PLAIN, CLATTN_ERROR_NULL_POINTER, "num_launch_events", launch_events_alone, NULL},
      {"few launch_events", JOB_PLAIN, CLATTN_ERROR_VALUE, "launch_events_capacity", too_few_launch_events, NULL},
      {"workspace too small", JOB_ALL, CLATTN_ERROR_WORKSPACE_TOO_SMALL, "workspace", workspace_short, NULL},
      {"workspace misaligned", JOB_ALL, CLATTN_ERROR_ALIGNMENT, "workspace", workspace_offset, NULL},
      {"workspace foreign", JOB_ALL, CLATTN_ERROR_WRONG_CONTEXT, "workspace", workspace_foreign, NULL},
      {"workspace is an image", JOB_ALL, CL_INVALID_MEM_OBJECT, "args.workspace is an image", workspace_image, NULL},
      {"workspace not writable", JOB_ALL, CL_INVALID_MEM_OBJECT, "args.workspace", workspace_read_only, NULL},
      {"workspace not readable", JOB_ALL, CL_INVALID_MEM_OBJECT, "args.workspace", workspace_write_only, NULL},
      {"workspace in SVM", JOB_ALL, CLATTN_ERROR_NOT_SUPPORTED, "workspace", workspace_svm, NULL},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i)
    check_refusal(*state, &cases[i]);
}

/* ---- overlap ---- */

SPOIL(o_is_q, a->o = clattn_buffer(a->q.buffer = extra(t, t->rig->cl, 1 << 20), 0))
SPOIL(o_ends_in_bias, (a->bias.buffer = extra(t, t->rig->cl, 1 << 20), a->o = clattn_buffer(a->bias.buffer, 89596)))
SPOIL(lse_in_o, a->lse = clattn_buffer(a->o.buffer, 4096))
SPOIL(scores_are_mask, (a->keep_mask.buffer = a->scores.buffer))
SPOIL(max_logit_in_lse, a->max_logit = clattn_buffer(a->lse.buffer, 0))
SPOIL(o_in_workspace, (a->o = clattn_buffer(a->workspace.buffer, 0)))
SPOIL(k_in_workspace, (a->k = clattn_buffer(a->workspace.buffer, 64)))

static void sub_buffers_overlap(trial *t) {
  const cl_mem parent = extra(t, t->rig->cl, 1 << 20);
  t->job.args.v = clattn_buffer(sub_buffer(t, parent, 0, 65536), 0);
  t->job.args.o = clattn_buffer(sub_buffer(t, parent, 26880 - 128, 65536), 0); /* v takes 26880 bytes */
}

static void parent_and_sub_buffer(trial *t) {
  const cl_mem parent = extra(t, t->rig->cl, 1 << 20);
  t->job.args.o = clattn_buffer(parent, 131072);
  t->job.args.q = clattn_buffer(sub_buffer(t, parent, 131072 - 128, 65536), 0);
}

static void test_overlaps(void **state) {
  static const refusal cases[] = {
      {"o is q", JOB_PLAIN, CLATTN_ERROR_OVERLAP, "args.o", o_is_q, NULL},
      {"o begins in bias", JOB_ALL, CLATTN_ERROR_OVERLAP, "args.bias", o_ends_in_bias, NULL},
      {"lse in o", JOB_ALL, CLATTN_ERROR_OVERLAP, "args.lse", lse_in_o, NULL},
      {"scores are the mask", JOB_ALL, CLATTN_ERROR_OVERLAP, "args.scores", scores_are_mask, NULL},
      {"max_logit in lse", JOB_ALL, CLATTN_ERROR_OVERLAP, "args.max_logit", max_logit_in_lse, NULL},
      {"o in the workspace", JOB_PLAIN, CLATTN_ERROR_OVERLAP, "workspace", o_in_workspace, NULL},
      {"k in the workspace", JOB_PLAIN, CLATTN_ERROR_OVERLAP, "workspace", k_in_workspace, NULL},
      {"sub-buffers", JOB_PLAIN, CLATTN_ERROR_OVERLAP, "args.o", sub_buffers_overlap, NULL},
      {"parent and sub-buffer", JOB_PLAIN, CLATTN_ERROR_OVERLAP, "args.q", parent_and_sub_buffer, NULL},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i)
    check_refusal(*state, &cases[i]);
}

static void test_neighbours(void **state) {
  trial t;
  trial_begin(&t, *state, JOB_ALL, NULL);
  const clattn_args original = t.job.args;
  clattn_args *const a = &t.job.args;
  const cl_mem all = extra(&t, t.rig->cl, 1 << 20);
  a->q = a->k = a->v = clattn_buffer(all, 0); /* inputs may share */
  check_accepted(&t, "inputs that share memory");
  a->o = clattn_buffer(all, 26880); /* right behind the longest of them, v */
  a->lse = clattn_buffer(all, 26880 + 30720);
  a->max_logit = clattn_buffer(all, 26880 + 30720 + 1280);
  check_accepted(&t, "neighbours in one buffer");
  a->o = clattn_buffer(sub_buffer(&t, all, 26880, 32768), 0);
  a->q = clattn_buffer(sub_buffer(&t, all, 0, 32768), 0);
  check_accepted(&t, "sub-buffers that overlap where no tensor is");
  trial_end(&t, &original);
}

/* Rows of q, k, v and o side by side in one buffer: (batch, row, [q heads | k heads | v heads | o heads], element). */
enum { PACKED = JOB_HEADS * JOB_DIM + 2 * JOB_KV_HEADS * JOB_DIM + JOB_HEADS * JOB_DIM };
static void packed_rows(clattn_problem *problem) {
  clattn_tensor *const all[] = {&problem->q, &problem->k, &problem->v, &problem->o};
  const int64_t stride[4] = {(int64_t)JOB_ROWS * PACKED, JOB_DIM, PACKED, 1};
  problem->k_len = JOB_ROWS;
  problem->v_dim = JOB_DIM;
  for (size_t i = 0; i < 4; ++i) {
    all[i]->layout = CLATTN_LAYOUT_STRIDED;
    memcpy(all[i]->stride, stride, sizeof stride);
  }
}

static void packed_rows_of_one_head(clattn_problem *problem) {
  problem->q_heads = problem->kv_heads = 1;
  packed_rows(problem);
}

static void place_packed(trial *t, int heads, int kv_heads, int overlap) {
  const cl_mem all = extra(t, t->rig->cl, (size_t)JOB_BATCH * JOB_ROWS * PACKED * 4);
  const uint64_t k = (uint64_t)(heads * JOB_DIM) * 4, v = k + (uint64_t)(kv_heads * JOB_DIM) * 4;
  const uint64_t o = v + (uint64_t)(kv_heads * JOB_DIM) * 4;
  t->job.args.q = clattn_buffer(all, 0);
  t->job.args.k = clattn_buffer(all, k);
  t->job.args.v = clattn_buffer(all, v);
  t->job.args.o = clattn_buffer(all, o - (overlap ? 4 : 0));
}

static void packed_one_element_too_close(trial *t) {
  place_packed(t, 1, 1, 1);
}

static void packed_heads_one_element_too_close(trial *t) {
  place_packed(t, JOB_HEADS, JOB_KV_HEADS, 1);
}

static void test_interleaved(void **state) {
  static const refusal cases[] = {
      {"rows that touch", JOB_PLAIN, CLATTN_ERROR_OVERLAP, "args.o", packed_one_element_too_close,
       packed_rows_of_one_head},
      {"rows of heads that touch", JOB_PLAIN, CLATTN_ERROR_OVERLAP, "args.o", packed_heads_one_element_too_close,
       packed_rows},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i)
    check_refusal(*state, &cases[i]);
  trial t;
  trial_begin(&t, *state, JOB_PLAIN, packed_rows_of_one_head);
  clattn_args original = t.job.args;
  place_packed(&t, 1, 1, 0);
  check_accepted(&t, "q, k, v and o side by side, one head");
  trial_end(&t, &original);
  trial_begin(&t, *state, JOB_PLAIN, packed_rows);
  original = t.job.args;
  place_packed(&t, JOB_HEADS, JOB_KV_HEADS, 0);
  check_accepted(&t, "q, k, v and o side by side, several heads");
  trial_end(&t, &original);
}

int run_refusal_tests(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_structs_and_sizes, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_tensors, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_access, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_unused, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_strides, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_huge_strides, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_lengths_and_scalars, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_queues_and_workspaces, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_overlaps, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_neighbours, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_interleaved, rig_setup, rig_teardown),
  };
  return cmocka_run_group_tests_name("refusals of enqueue", tests, NULL, NULL);
}
