/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays per batch entry: lengths, offsets, prefixes, starts of packed sequences; from the host or the device. */
#include "enqueue.h"

#include <stdlib.h>
#include <string.h>

#include "status.h"

static const char *const names[CLATTNI_ARRAYS] = {"q_lengths", "k_lengths",    "q_offsets",
                                                  "prefix",    "cu_seqlens_q", "cu_seqlens_k"};

const char *clattni_array_name(int array) {
  return names[array];
}

const clattn_ints *clattni_array_of(const clattn_args *args, int array) {
  const clattn_ints *const arrays[CLATTNI_ARRAYS] = {&args->q_lengths, &args->k_lengths,    &args->q_offsets,
                                                     &args->prefix,    &args->cu_seqlens_q, &args->cu_seqlens_k};
  return arrays[array];
}

typedef enum wish { WISH_NONE, WISH_NEEDED, WISH_OPTIONAL } wish;

static wish wish_for(const clattn_problem *problem, int array) {
  const int packed = array == CLATTNI_CU_Q ? clattni_packed_q(problem) : clattni_packed_k(problem);
  switch (array) {
  case CLATTNI_Q_LENGTHS:
    return problem->q_length_mode == CLATTN_LENGTH_PER_BATCH ? WISH_NEEDED : WISH_NONE;
  case CLATTNI_K_LENGTHS:
    return problem->k_length_mode == CLATTN_LENGTH_PER_BATCH ? WISH_NEEDED : WISH_NONE;
  case CLATTNI_Q_OFFSETS:
    return problem->offset_mode == CLATTN_OFFSET_PER_BATCH ? WISH_NEEDED
           : problem->offset_mode == CLATTN_OFFSET_VALUE   ? WISH_OPTIONAL
                                                           : WISH_NONE;
  case CLATTNI_PREFIX:
    return problem->prefix_mode == CLATTN_PREFIX_PER_BATCH ? WISH_NEEDED : WISH_NONE;
  default:
    return packed ? WISH_NEEDED : WISH_NONE;
  }
}

/* Nothing but perhaps a kind is filled in. */
static int is_blank(const clattn_ints *ints) {
  return ints->count == 0 && ints->host == NULL && clattni_is_absent(&ints->device);
}

static clattn_status check_array(const clattn_problem *problem, const clattn_args *args, int array, int64_t batch) {
  clattn_error *error = args->error;
  const char *name = names[array];
  const clattn_ints *ints = clattni_array_of(args, array);
  const wish wanted = wish_for(problem, array);
  const int64_t count = array >= CLATTNI_CU_Q ? batch + 1 : batch;
  if (ints->kind > CLATTN_ARRAY_DEVICE)
    return clattni_fail(error, CLATTN_ERROR_ENUM, "args.%s.kind is %u, no CLATTN_ARRAY_ value", name, ints->kind);
  if (ints->kind == CLATTN_ARRAY_NONE && !is_blank(ints))
    return clattni_fail(error, CLATTN_ERROR_TENSOR_UNUSED, "args.%s is filled in, but its kind is CLATTN_ARRAY_NONE",
                        name);
  if (ints->kind == CLATTN_ARRAY_NONE)
    return wanted == WISH_NEEDED ? clattni_fail(error, CLATTN_ERROR_TENSOR_MISSING, "the problem needs args.%s", name)
                                 : CLATTN_SUCCESS;
  if (wanted == WISH_NONE)
    return clattni_fail(error, CLATTN_ERROR_TENSOR_UNUSED, "args.%s is given, but the problem does not use it", name);
  if (ints->count != count && !(array == CLATTNI_Q_OFFSETS && wanted == WISH_OPTIONAL && ints->count == 1))
    return clattni_fail(error, CLATTN_ERROR_LENGTH, "args.%s has %u entries, not %lld: the batch is %lld", name,
                        ints->count, (long long)count, (long long)batch);
  if (ints->kind == CLATTN_ARRAY_HOST && !clattni_is_absent(&ints->device))
    return clattni_fail(error, CLATTN_ERROR_TENSOR_UNUSED, "args.%s.device is given, but its kind is CLATTN_ARRAY_HOST",
                        name);
  if (ints->kind == CLATTN_ARRAY_DEVICE && ints->host != NULL)
    return clattni_fail(error, CLATTN_ERROR_TENSOR_UNUSED, "args.%s.host is given, but its kind is CLATTN_ARRAY_DEVICE",
                        name);
  if (ints->kind == CLATTN_ARRAY_HOST && ints->host == NULL && ints->count > 0)
    return clattni_fail(error, CLATTN_ERROR_NULL_POINTER, "args.%s.host is NULL", name);
  return CLATTN_SUCCESS;
}

/* Rows of sequence b, or all where the starts are not known. */
static int64_t rows_of(const int32_t *starts, int64_t b, int64_t all) {
  return starts != NULL ? (int64_t)starts[b + 1] - starts[b] : all;
}

static clattn_status check_starts(int array, const int32_t *starts, int64_t batch, int64_t longest, int64_t total,
                                  clattn_error *error) {
  for (int64_t b = 0; starts != NULL && b <= batch; ++b) {
    if (b == 0 && starts[0] != 0)
      return clattni_fail(error, CLATTN_ERROR_LENGTH, "args.%s[0] is %d: it must be 0", names[array], starts[0]);
    if (b > 0 && (starts[b] < starts[b - 1] || rows_of(starts, b - 1, 0) > longest))
      return clattni_fail(error, CLATTN_ERROR_LENGTH,
                          "args.%s[%lld] is %d after %d: a sequence has from 0 to %lld rows", names[array],
                          (long long)b, starts[b], starts[b - 1], (long long)longest);
    if (starts[b] > total)
      return clattni_fail(error, CLATTN_ERROR_BOUND, "args.%s[%lld] is %d, above the plan's bound %lld", names[array],
                          (long long)b, starts[b], (long long)total);
  }
  return CLATTN_SUCCESS;
}

static clattn_status check_lengths(int array, const int32_t *lengths, const int32_t *starts, int64_t batch,
                                   int64_t longest, clattn_error *error) {
  for (int64_t b = 0; lengths != NULL && b < batch; ++b)
    if (lengths[b] < 0 || lengths[b] > rows_of(starts, b, longest))
      return clattni_fail(error, CLATTN_ERROR_LENGTH, "args.%s[%lld] is %d: it must be from 0 to %lld", names[array],
                          (long long)b, lengths[b], (long long)rows_of(starts, b, longest));
  return CLATTN_SUCCESS;
}

clattn_status clattni_check_values(const clattn_problem *problem, const clattni_sizes *sizes,
                                   const int32_t *const values[CLATTNI_ARRAYS], clattn_error *error) {
  clattn_status status =
      check_starts(CLATTNI_CU_Q, values[CLATTNI_CU_Q], sizes->batch, sizes->q_len, problem->total_q, error);
  if (status == CLATTN_SUCCESS)
    status = check_starts(CLATTNI_CU_K, values[CLATTNI_CU_K], sizes->batch, sizes->k_len, problem->total_k, error);
  if (status == CLATTN_SUCCESS)
    status = check_lengths(CLATTNI_Q_LENGTHS, values[CLATTNI_Q_LENGTHS], values[CLATTNI_CU_Q], sizes->batch,
                           sizes->q_len, error);
  if (status == CLATTN_SUCCESS)
    status = check_lengths(CLATTNI_K_LENGTHS, values[CLATTNI_K_LENGTHS], values[CLATTNI_CU_K], sizes->batch,
                           sizes->k_len, error);
  const int32_t *prefix = values[CLATTNI_PREFIX];
  for (int64_t b = 0; status == CLATTN_SUCCESS && prefix != NULL && b < sizes->batch; ++b)
    if (prefix[b] < 0)
      status =
          clattni_fail(error, CLATTN_ERROR_LENGTH, "args.prefix[%lld] is %d: it must be >= 0", (long long)b, prefix[b]);
  return status;
}

/* Rows of tables that rotate queries, where offsets are known: `offsets` has one for all, or one for each. */
static clattn_status check_table_rows(const clattn_problem *problem, const clattni_sizes *sizes,
                                      const int32_t *const values[CLATTNI_ARRAYS], uint32_t count,
                                      clattn_error *error) {
  const int32_t *offsets = values[CLATTNI_Q_OFFSETS], *lengths = values[CLATTNI_Q_LENGTHS];
  const int known = (lengths != NULL || problem->q_length_mode != CLATTN_LENGTH_PER_BATCH) &&
                    (values[CLATTNI_CU_Q] != NULL || !clattni_packed_q(problem));
  if (offsets == NULL || problem->rope == CLATTN_ROPE_NONE || problem->use_positions)
    return CLATTN_SUCCESS;
  for (int64_t b = 0; b < sizes->batch; ++b) {
    const int64_t i = count == 1 ? 0 : b, rows = !known            ? 1
                                                 : lengths != NULL ? lengths[b]
                                                                   : rows_of(values[CLATTNI_CU_Q], b, sizes->q_len);
    if (rows > 0 && (offsets[i] < 0 || offsets[i] + rows > problem->rope_positions))
      return clattni_fail(error, CLATTN_ERROR_LENGTH,
                          "args.q_offsets[%lld] is %d: rows that rope turns must stand at positions 0 to %lld",
                          (long long)i, offsets[i], (long long)problem->rope_positions - 1);
  }
  return CLATTN_SUCCESS;
}

clattn_status clattni_check_arrays(const clattn_problem *problem, const clattn_args *args, clattni_sizes *sizes) {
  const int32_t *values[CLATTNI_ARRAYS];
  for (int array = 0; array < CLATTNI_ARRAYS; ++array) {
    const clattn_ints *ints = clattni_array_of(args, array);
    const clattn_status status = check_array(problem, args, array, sizes->batch);
    if (status != CLATTN_SUCCESS)
      return status;
    values[array] = ints->kind == CLATTN_ARRAY_HOST ? ints->host : NULL;
  }
  sizes->total_q = values[CLATTNI_CU_Q] != NULL ? values[CLATTNI_CU_Q][sizes->batch] : problem->total_q;
  sizes->total_k = values[CLATTNI_CU_K] != NULL ? values[CLATTNI_CU_K][sizes->batch] : problem->total_k;
  const clattn_status status = clattni_check_values(problem, sizes, values, args->error);
  return status == CLATTN_SUCCESS ? check_table_rows(problem, sizes, values, args->q_offsets.count, args->error)
                                  : status;
}

int clattni_needs_entries(const clattn_problem *problem, const clattn_args *args) {
  return problem->q_length_mode == CLATTN_LENGTH_PER_BATCH || problem->k_length_mode == CLATTN_LENGTH_PER_BATCH ||
         problem->prefix_mode == CLATTN_PREFIX_PER_BATCH || clattni_packed_q(problem) || clattni_packed_k(problem) ||
         args->q_offsets.kind == CLATTN_ARRAY_DEVICE ||
         (args->q_offsets.kind == CLATTN_ARRAY_HOST && args->q_offsets.count > 1);
}

/* An entry of a host array, or what stands for it. */
static int64_t value_of(const clattn_ints *ints, int64_t b, int64_t otherwise) {
  if (ints->kind != CLATTN_ARRAY_HOST || ints->count == 0)
    return otherwise;
  return ints->host[ints->count == 1 ? 0 : b];
}

void clattni_entry_of(const clattn_plan *plan, const clattni_checked *checked, int64_t b,
                      cl_int word[CLATTN_ENTRY_WORDS]) {
  const clattn_args *args = checked->args;
  const clattn_problem *problem = &plan->problem;
  const int32_t *starts_q = args->cu_seqlens_q.kind == CLATTN_ARRAY_HOST ? args->cu_seqlens_q.host : NULL;
  const int32_t *starts_k = args->cu_seqlens_k.kind == CLATTN_ARRAY_HOST ? args->cu_seqlens_k.host : NULL;
  const int64_t q_rows = rows_of(starts_q, b, checked->sizes.q_len);
  const int64_t q_len = value_of(&args->q_lengths, b, q_rows);
  const int64_t k_len = value_of(&args->k_lengths, b, rows_of(starts_k, b, checked->sizes.k_len));
  const int given = args->q_offsets.kind == CLATTN_ARRAY_HOST && args->q_offsets.count > 0;
  memset(word, 0, CLATTN_ENTRY_WORDS * sizeof(word[0]));
  word[CLATTN_ENTRY_Q_ROWS] = (cl_int)q_rows;
  word[CLATTN_ENTRY_Q_LEN] = (cl_int)q_len;
  word[CLATTN_ENTRY_K_LEN] = (cl_int)k_len;
  word[CLATTN_ENTRY_Q_START] = starts_q != NULL ? starts_q[b] : 0;
  word[CLATTN_ENTRY_K_START] = starts_k != NULL ? starts_k[b] : 0;
  word[CLATTN_ENTRY_OFFSET] = (cl_int)clattni_offset(problem, q_len, k_len, given, value_of(&args->q_offsets, b, 0));
  word[CLATTN_ENTRY_PREFIX] =
      (cl_int)value_of(&args->prefix, b, problem->prefix_mode == CLATTN_PREFIX_VALUE ? problem->prefix : 0);
}

void clattni_gather_of(const clattn_plan *plan, const clattni_checked *checked, clattn_gather *gather) {
  const clattn_args *args = checked->args;
  const struct {
    int holds;
    cl_int bit;
  } facts[] = {
      {plan->problem.offset_mode == CLATTN_OFFSET_BOTTOM_RIGHT, CLATTN_GATHER_BOTTOM_RIGHT},
      {args->q_offsets.count == 1, CLATTN_GATHER_ONE_OFFSET},
      {args->q_lengths.kind == CLATTN_ARRAY_HOST, CLATTN_GATHER_STAGED_Q},
      {args->k_lengths.kind == CLATTN_ARRAY_HOST, CLATTN_GATHER_STAGED_K},
      {args->cu_seqlens_k.kind == CLATTN_ARRAY_HOST, CLATTN_GATHER_STAGED_K_ROWS},
  };
  memset(gather, 0, sizeof(*gather));
  for (int array = 0; array < CLATTNI_ARRAYS; ++array) {
    gather->first[array] = checked->array_first[array];
    gather->arrays |= clattni_array_of(args, array)->kind == CLATTN_ARRAY_DEVICE ? 1 << array : 0;
  }
  for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); ++i)
    gather->arrays |= facts[i].holds ? facts[i].bit : 0;
  gather->entries_first = checked->bases.workspace + checked->layout.entries;
  gather->batch = (cl_int)checked->sizes.batch;
  gather->q_len = (cl_int)checked->sizes.q_len;
  gather->k_len = (cl_int)checked->sizes.k_len;
  gather->total_q = (cl_int)checked->sizes.total_q;
  gather->total_k = (cl_int)checked->sizes.total_k;
}

/* ---- check_contents -------------------------------------------------------------------------------------------- */

typedef struct reader {
  const clattn_plan *plan;
  cl_command_queue queue;
  clattn_error *error;
  cl_uint num_events;
  const cl_event *wait_list;
} reader;

/* *copy is the caller's to free.  first: in elements. */
static clattn_status read_back(const reader *r, const char *name, cl_mem buffer, int64_t first, int64_t count,
                               int32_t **copy) {
  const size_t bytes = (size_t)count * sizeof(int32_t);
  *copy = NULL;
  if (count == 0)
    return CLATTN_SUCCESS;
  *copy = clattni_alloc(&r->plan->context->allocator, bytes);
  if (*copy == NULL)
    return clattni_fail(r->error, CLATTN_ERROR_OUT_OF_MEMORY, "no host memory to read args.%s back", name);
  const cl_int code = clEnqueueReadBuffer(r->queue, buffer, CL_TRUE, (size_t)first * sizeof(int32_t), bytes, *copy,
                                          r->num_events, r->wait_list, NULL);
  return code == CL_SUCCESS
             ? CLATTN_SUCCESS
             : clattni_fail(r->error, code, "reading args.%s back failed: %s", name, clattn_status_text(code));
}

/* The entries of the page table that the lengths reach. */
static clattn_status check_pages(const clattn_problem *problem, const clattni_checked *checked, const int32_t *table,
                                 const int32_t *k_lengths) {
  for (int64_t b = 0; table != NULL && b < checked->sizes.batch; ++b) {
    const int64_t pages = (k_lengths[b] + problem->page_size - 1) / problem->page_size;
    for (int64_t i = 0; i < pages; ++i) {
      const int32_t page = table[b * problem->max_pages + i];
      if (page < 0 || page >= problem->num_pages)
        return clattni_fail(checked->args->error, CLATTN_ERROR_LENGTH,
                            "args.page_table[%lld][%lld] is %d: it must be from 0 to %lld", (long long)b, (long long)i,
                            page, (long long)problem->num_pages - 1);
    }
  }
  return CLATTN_SUCCESS;
}

/* Positions of rope's rows, or keys, as far as lengths reach. */
static clattn_status check_positions(const reader *r, const clattni_checked *checked, clattni_slot slot,
                                     const int32_t *const values[CLATTNI_ARRAYS]) {
  const clattn_problem *problem = &r->plan->problem;
  const int of_q = slot == CLATTNI_POSITIONS_Q;
  const int32_t *lengths = values[of_q ? CLATTNI_Q_LENGTHS : CLATTNI_K_LENGTHS];
  const int32_t *starts = values[of_q ? CLATTNI_CU_Q : CLATTNI_CU_K];
  int64_t shape[4];
  int32_t *positions = NULL;
  if (!clattni_slot_used(problem, slot))
    return CLATTN_SUCCESS;
  clattni_slot_shape(problem, &checked->sizes, slot, shape);
  clattn_status status = read_back(r, clattni_slot_name(slot), checked->buffer[slot], checked->bases.first[slot],
                                   shape[0] * shape[2], &positions);
  for (int64_t b = 0; positions != NULL && b < checked->sizes.batch && status == CLATTN_SUCCESS; ++b) {
    const int64_t first = starts != NULL ? starts[b] : b * shape[2];
    const int64_t end = first + (lengths != NULL ? lengths[b] : rows_of(starts, b, shape[2]));
    for (int64_t n = first; n < end && status == CLATTN_SUCCESS; ++n)
      if (positions[n] < 0 || positions[n] >= problem->rope_positions)
        status =
            clattni_fail(r->error, CLATTN_ERROR_LENGTH, "args.%s[%lld] is %d: it must be from 0 to %lld",
                         clattni_slot_name(slot), (long long)n, positions[n], (long long)problem->rope_positions - 1);
  }
  clattni_free(&r->plan->context->allocator, positions);
  return status;
}

clattn_status clattni_check_contents(const clattn_plan *plan, cl_command_queue queue, const clattni_checked *checked,
                                     cl_uint num_events, const cl_event *wait_list) {
  const clattn_args *args = checked->args;
  const clattn_problem *problem = &plan->problem;
  const reader r = {plan, queue, args->error, num_events, wait_list};
  const int32_t *values[CLATTNI_ARRAYS] = {NULL};
  int32_t *copies[CLATTNI_ARRAYS + 1] = {NULL};
  clattn_status status = CLATTN_SUCCESS;
  for (int array = 0; array < CLATTNI_ARRAYS && status == CLATTN_SUCCESS; ++array) {
    const clattn_ints *ints = clattni_array_of(args, array);
    values[array] = ints->kind == CLATTN_ARRAY_HOST ? ints->host : NULL;
    if (ints->kind == CLATTN_ARRAY_DEVICE) {
      status =
          read_back(&r, names[array], checked->array[array], checked->array_first[array], ints->count, &copies[array]);
      values[array] = copies[array];
    }
  }
  if (status == CLATTN_SUCCESS)
    status = clattni_check_values(problem, &checked->sizes, values, args->error);
  if (status == CLATTN_SUCCESS)
    status = check_table_rows(problem, &checked->sizes, values, args->q_offsets.count, args->error);
  if (status == CLATTN_SUCCESS)
    status = check_positions(&r, checked, CLATTNI_POSITIONS_Q, values);
  if (status == CLATTN_SUCCESS)
    status = check_positions(&r, checked, CLATTNI_POSITIONS_K, values);
  if (status == CLATTN_SUCCESS && clattni_paged(problem) && checked->sizes.batch > 0) {
    status = read_back(&r, "page_table", checked->buffer[CLATTNI_PAGE_TABLE], checked->bases.first[CLATTNI_PAGE_TABLE],
                       checked->sizes.batch * problem->max_pages, &copies[CLATTNI_ARRAYS]);
    if (status == CLATTN_SUCCESS)
      status = check_pages(problem, checked, copies[CLATTNI_ARRAYS], values[CLATTNI_K_LENGTHS]);
  }
  for (int i = 0; i <= CLATTNI_ARRAYS; ++i)
    clattni_free(&plan->context->allocator, copies[i]);
  return status;
}
