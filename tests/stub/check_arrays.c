/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays per batch entry and scalars, from the host and from the device: what is refused, with check_contents too, and
 * what reaches the kernels. */
#include "trial.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- arrays of the right kind ---- */

enum { Q_LENGTHS, K_LENGTHS, Q_OFFSETS, PREFIX, CU_Q, CU_K };

/* A job that has all six arrays. */
enum { ALL_ARRAYS = JOB_LENGTHS | JOB_RULES | JOB_PACKED };

static int chosen; /* the array that the functions below spoil */

static clattn_ints *ints_of(trial *t) {
  return job_array(&t->job.args, chosen);
}

SPOIL(kind_unknown, ints_of(t)->kind = 3)
SPOIL(kind_none, ints_of(t)->kind = CLATTN_ARRAY_NONE)
SPOIL(kind_wrong, ints_of(t)->kind = 3 - ints_of(t)->kind) /* host for device, and the other way */
SPOIL(missing, *ints_of(t) = (clattn_ints){0})
SPOIL(count_less, --ints_of(t)->count)
SPOIL(count_more, ++ints_of(t)->count)
SPOIL(count_zero, ints_of(t)->count = 0)
SPOIL(host_null, ints_of(t)->host = NULL)
SPOIL(both_places, ints_of(t)->device = a->q)
SPOIL(both_places_device, ints_of(t)->host = t->job.page_table)
SPOIL(unused_count, ints_of(t)->count = 1)
SPOIL(unused_host, ints_of(t)->host = t->job.page_table)
SPOIL(unused_device, ints_of(t)->device = a->q)
SPOIL(unused_array, *ints_of(t) = ((clattn_ints){.kind = CLATTN_ARRAY_HOST, .count = 2, .host = t->job.page_table}))
SPOIL(unused_device_array, *ints_of(t) = ((clattn_ints){.kind = CLATTN_ARRAY_DEVICE, .count = 2, .device = a->q}))

typedef struct fault {
  const char *name; /* goes into the message behind the array's name */
  clattn_status want;
  unsigned flags;
  void (*spoil)(trial *);
} fault;

static void check_faults(const rig *r, const fault *faults, size_t count) {
  for (chosen = 0; chosen < JOB_ARRAYS; ++chosen)
    for (size_t i = 0; i < count; ++i) {
      char text[128];
      snprintf(text, sizeof text, "%s%s", job_array_name(chosen), faults[i].name);
      const refusal c = {text, faults[i].flags, faults[i].want, text, faults[i].spoil, NULL};
      check_refusal(r, &c);
    }
}

static void test_kinds(void **state) {
  enum { DEVICE = ALL_ARRAYS | JOB_DEVICE };
  static const fault faults[] = {
      {".kind is 3, no CLATTN_ARRAY_ value", CLATTN_ERROR_ENUM, ALL_ARRAYS, kind_unknown},
      {" is filled in, but its kind is CLATTN_ARRAY_NONE", CLATTN_ERROR_TENSOR_UNUSED, ALL_ARRAYS, kind_none},
      {" is filled in, but its kind is CLATTN_ARRAY_NONE", CLATTN_ERROR_TENSOR_UNUSED, DEVICE, kind_none},
      {".host is given, but its kind is CLATTN_ARRAY_DEVICE", CLATTN_ERROR_TENSOR_UNUSED, ALL_ARRAYS, kind_wrong},
      {".device is given, but its kind is CLATTN_ARRAY_HOST", CLATTN_ERROR_TENSOR_UNUSED, DEVICE, kind_wrong},
      {".device is given, but its kind is CLATTN_ARRAY_HOST", CLATTN_ERROR_TENSOR_UNUSED, ALL_ARRAYS, both_places},
      {".host is given, but its kind is CLATTN_ARRAY_DEVICE", CLATTN_ERROR_TENSOR_UNUSED, DEVICE, both_places_device},
      {".host is NULL", CLATTN_ERROR_NULL_POINTER, ALL_ARRAYS, host_null},
      {" has ", CLATTN_ERROR_LENGTH, ALL_ARRAYS, count_less},
      {" has ", CLATTN_ERROR_LENGTH, ALL_ARRAYS, count_more},
      {" has 0 entries", CLATTN_ERROR_LENGTH, ALL_ARRAYS, count_zero},
      {" has ", CLATTN_ERROR_LENGTH, DEVICE, count_less},
      {" has ", CLATTN_ERROR_LENGTH, DEVICE, count_more},
      {" is filled in, but its kind is CLATTN_ARRAY_NONE", CLATTN_ERROR_TENSOR_UNUSED, JOB_PLAIN, unused_count},
      {" is filled in, but its kind is CLATTN_ARRAY_NONE", CLATTN_ERROR_TENSOR_UNUSED, JOB_PLAIN, unused_host},
      {" is filled in, but its kind is CLATTN_ARRAY_NONE", CLATTN_ERROR_TENSOR_UNUSED, JOB_PLAIN, unused_device},
      {" is given, but the problem does not use it", CLATTN_ERROR_TENSOR_UNUSED, JOB_PLAIN, unused_array},
      {" is given, but the problem does not use it", CLATTN_ERROR_TENSOR_UNUSED, JOB_PLAIN, unused_device_array},
  };
  check_faults(*state, faults, sizeof faults / sizeof *faults);
  for (chosen = 0; chosen < JOB_ARRAYS; ++chosen) {
    char text[64];
    snprintf(text, sizeof text, "the problem needs %s", job_array_name(chosen));
    const refusal c = {text, ALL_ARRAYS, CLATTN_ERROR_TENSOR_MISSING, text, missing, NULL};
    check_refusal(*state, &c);
  }
  static const struct {
    int array;
    unsigned flags;
    const char *text;
  } counts[] = {{K_LENGTHS, ALL_ARRAYS, "args.k_lengths has 1 entries, not 2: the batch is 2"},
                {CU_Q, ALL_ARRAYS, "args.cu_seqlens_q has 2 entries, not 3: the batch is 2"},
                {Q_OFFSETS, DEVICE, "args.q_offsets has 1 entries, not 2: the batch is 2"}};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; ++i) {
    chosen = counts[i].array;
    const refusal c = {"count", counts[i].flags, CLATTN_ERROR_LENGTH, counts[i].text, count_less, NULL};
    check_refusal(*state, &c);
  }
}

/* ---- contents ---- */

static int32_t values[JOB_BATCH + 1]; /* what the chosen array is made to hold */

/* On the host, or, where the job has it there, in a buffer of its own. */
static void hold_values(trial *t) {
  clattn_ints *const ints = ints_of(t);
  if (ints->kind == CLATTN_ARRAY_HOST) {
    ints->host = values;
    return;
  }
  ints->device = clattn_buffer(make_filled_buffer(t->rig->cl, ints->count * sizeof *values, values), 0);
  t->extras[t->num_extras++] = ints->device.buffer;
}

static void smaller_sizes(trial *t) {
  t->job.args.sizes = CLATTN_SIZES_Q_LEN | CLATTN_SIZES_K_LEN;
  t->job.args.q_len = 34; /* the job's sequences have up to 35 rows and 70 keys */
  t->job.args.k_len = 69;
}

/* The same is refused on the host at once, and on the device where contents are checked; where they are not, kernels
 * clamp it. */
static void test_contents(void **state) {
  enum { LENGTHS = JOB_LENGTHS | JOB_RULES };
  static const struct {
    int array;
    unsigned flags;
    int32_t values[JOB_BATCH + 1];
    clattn_status want;
    const char *text;
  } rows[] = {
      {Q_LENGTHS, LENGTHS, {41, 0}, CLATTN_ERROR_LENGTH, "args.q_lengths[0] is 41: it must be from 0 to 40"},
      {Q_LENGTHS, LENGTHS, {0, -1}, CLATTN_ERROR_LENGTH, "args.q_lengths[1] is -1: it must be from 0 to 40"},
      {Q_LENGTHS, ALL_ARRAYS, {31, 0}, CLATTN_ERROR_LENGTH, "args.q_lengths[0] is 31: it must be from 0 to 30"},
      {K_LENGTHS, LENGTHS, {3, 71}, CLATTN_ERROR_LENGTH, "args.k_lengths[1] is 71: it must be from 0 to 70"},
      {K_LENGTHS, LENGTHS, {INT32_MIN, 0}, CLATTN_ERROR_LENGTH, "args.k_lengths[0] is -2147483648"},
      {K_LENGTHS, ALL_ARRAYS, {51, 0}, CLATTN_ERROR_LENGTH, "args.k_lengths[0] is 51: it must be from 0 to 50"},
      {K_LENGTHS, JOB_PAGED, {71, 0}, CLATTN_ERROR_LENGTH, "args.k_lengths[0] is 71: it must be from 0 to 70"},
      {PREFIX, LENGTHS, {0, -1}, CLATTN_ERROR_LENGTH, "args.prefix[1] is -1: it must be >= 0"},
      {CU_Q, JOB_PACKED, {1, 2, 3}, CLATTN_ERROR_LENGTH, "args.cu_seqlens_q[0] is 1: it must be 0"},
      {CU_Q, JOB_PACKED, {-1, 2, 3}, CLATTN_ERROR_LENGTH, "args.cu_seqlens_q[0] is -1: it must be 0"},
      {CU_Q,
       JOB_PACKED,
       {0, 20, 19},
       CLATTN_ERROR_LENGTH,
       "args.cu_seqlens_q[2] is 19 after 20: a sequence has from 0 to 40 rows"},
      {CU_Q,
       JOB_PACKED,
       {0, 41, 41},
       CLATTN_ERROR_LENGTH,
       "args.cu_seqlens_q[1] is 41 after 0: a sequence has from 0 to 40 rows"},
      {CU_Q, JOB_PACKED, {0, INT32_MIN, 0}, CLATTN_ERROR_LENGTH, "args.cu_seqlens_q[1] is -2147483648 after 0"},
      {CU_K,
       JOB_PACKED,
       {0, 70, 141},
       CLATTN_ERROR_LENGTH,
       "args.cu_seqlens_k[2] is 141 after 70: a sequence has from 0 to 70 rows"},
      {CU_K, JOB_PACKED, {2, 70, 72}, CLATTN_ERROR_LENGTH, "args.cu_seqlens_k[0] is 2: it must be 0"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    chosen = rows[i].array;
    memcpy(values, rows[i].values, sizeof values);
    refusal c = {rows[i].text, rows[i].flags, rows[i].want, rows[i].text, hold_values, NULL};
    check_refusal(*state, &c);
    c.flags |= JOB_DEVICE | JOB_CHECKED;
    check_refusal(*state, &c);
    trial t;
    trial_begin(&t, *state, rows[i].flags | JOB_DEVICE, NULL);
    const clattn_args original = t.job.args;
    hold_values(&t);
    check_accepted(&t, rows[i].text);
    trial_end(&t, &original);
  }
}

static void few_rows(clattn_problem *problem) {
  problem->total_q = 60;
}

static void few_keys(clattn_problem *problem) {
  problem->total_k = 100;
}

SPOIL(nothing_wrong, )

/* What depends on other sizes: the bound of all rows, and the sizes of the enqueue. */
static void test_bounds(void **state) {
  static const struct {
    refusal of;
    int on_device; /* 1: the same holds there */
  } cases[] = {
      {{"total_q", JOB_PACKED, CLATTN_ERROR_BOUND, "args.cu_seqlens_q[2] is 65, above the plan's bound 60",
        nothing_wrong, few_rows},
       0},
      {{"total_k", JOB_PACKED, CLATTN_ERROR_BOUND, "args.cu_seqlens_k[2] is 120, above the plan's bound 100",
        nothing_wrong, few_keys},
       0},
      {{"q_len of the enqueue", JOB_PACKED, CLATTN_ERROR_LENGTH,
        "args.cu_seqlens_q[2] is 65 after 30: a sequence has from 0 to 34 rows", smaller_sizes, NULL},
       1},
      {{"k_len of the enqueue", JOB_PAGED, CLATTN_ERROR_LENGTH, "args.k_lengths[0] is 70: it must be from 0 to 69",
        smaller_sizes, NULL},
       1},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    refusal c = cases[i].of;
    check_refusal(*state, &c);
    if (cases[i].on_device) {
      c.flags |= JOB_DEVICE | JOB_CHECKED;
      check_refusal(*state, &c);
    }
  }
  static const struct {
    void (*problem)(clattn_problem *);
    const char *text;
  } totals[] = {{few_rows, "args.cu_seqlens_q[2] is 65, above the plan's bound 60"},
                {few_keys, "args.cu_seqlens_k[2] is 120, above the plan's bound 100"}};
  for (size_t i = 0; i < 2; ++i) {
    const refusal c = {"total on the device", JOB_PACKED | JOB_DEVICE | JOB_CHECKED,
                       CLATTN_ERROR_BOUND,    totals[i].text,
                       nothing_wrong,         totals[i].problem};
    check_refusal(*state, &c);
  }
}

static int32_t pages[JOB_BATCH * JOB_MAX_PAGES];

SPOIL(hold_pages,
      (a->page_table = clattn_buffer(t->extras[t->num_extras++] = make_filled_buffer(t->rig->cl, sizeof pages, pages),
                                     0)))

/* Pages that the lengths reach are checked, those behind may hold anything. */
static void test_pages(void **state) {
  static const struct {
    int at;
    int32_t page;
    unsigned flags;
    const char *text; /* NULL: taken */
  } rows[] = {
      {0, -1, JOB_DEVICE, "args.page_table[0][0] is -1: it must be from 0 to 8"},
      {4, 9, JOB_DEVICE, "args.page_table[0][4] is 9: it must be from 0 to 8"}, /* key 69 */
      {9, INT32_MAX, 0, "args.page_table[1][4] is 2147483647"},                 /* key 66, of a length on the host */
      {9, INT32_MIN, JOB_DEVICE, "args.page_table[1][4] is -2147483648"},
      {0, 8, JOB_DEVICE, NULL},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    for (int n = 0; n < JOB_BATCH * JOB_MAX_PAGES; ++n)
      pages[n] = n % JOB_PAGES;
    pages[rows[i].at] = rows[i].page;
    for (int packed = 0; packed < 2; ++packed) {
      const unsigned flags = JOB_PAGED | JOB_CHECKED | rows[i].flags | (packed ? JOB_PACKED : 0);
      if (rows[i].text) {
        const refusal c = {rows[i].text, flags, CLATTN_ERROR_LENGTH, rows[i].text, hold_pages, NULL};
        check_refusal(*state, &c);
      }
      trial t; /* the kernels clamp it */
      trial_begin(&t, *state, rows[i].text ? flags & ~(unsigned)JOB_CHECKED : flags, NULL);
      const clattn_args original = t.job.args;
      hold_pages(&t);
      check_accepted(&t, "pages");
      trial_end(&t, &original);
    }
  }
  for (int n = 0; n < JOB_BATCH * JOB_MAX_PAGES; ++n)
    pages[n] = n % JOB_MAX_PAGES == 4 ? -7 : 1; /* behind 64 keys */
  trial t;
  trial_begin(&t, *state, JOB_PAGED | JOB_CHECKED | JOB_DEVICE, NULL);
  const clattn_args original = t.job.args;
  chosen = K_LENGTHS;
  values[0] = 64;
  values[1] = 0;
  hold_values(&t);
  hold_pages(&t);
  check_accepted(&t, "pages that no length reaches");
  values[0] = 65;
  hold_values(&t);
  cl_event event = NULL;
  assert_int_equal(clattn_enqueue(t.plan, t.queue, &t.job.args, 0, NULL, &event), CLATTN_ERROR_LENGTH);
  assert_null(event);
  assert_non_null(strstr(t.job.error.message, "args.page_table[0][4] is -7"));
  trial_end(&t, &original);
}

/* Reading back waits for the wait list, and so fails with it. */
static void test_contents_wait(void **state) {
  const rig *const r = *state;
  trial t;
  trial_begin(&t, r, ALL_ARRAYS | JOB_DEVICE | JOB_CHECKED, NULL);
  const clattn_args original = t.job.args;
  cl_event gate = make_user_event(r->cl), event = NULL;
  assert_int_equal(clSetUserEventStatus(gate, CL_COMPLETE), CL_SUCCESS);
  stub->reset();
  job_options(&t.job, &(clattn_plan_options){0}); /* blocking is allowed again */
  assert_int_equal(clattn_enqueue(t.plan, r->out_of_order, &t.job.args, 1, &gate, &event), CLATTN_SUCCESS);
  assert_int_equal(stub->calls("clEnqueueReadBuffer"), JOB_ARRAYS);
  history h;
  history_take(&h);
  for (uint64_t i = 0; i < h.count; ++i) {
    if (h.commands[i].type == CL_COMMAND_READ_BUFFER)
      assert_int_equal(h.commands[i].num_waits, 1);
    else
      assert_true(i >= JOB_ARRAYS); /* all is read before anything runs */
  }
  history_free(&h);
  clReleaseEvent(event);
  clReleaseEvent(gate);
  event = NULL;
  gate = make_user_event(r->cl);
  assert_int_equal(clSetUserEventStatus(gate, -7), CL_SUCCESS);
  const uint64_t launches = stub->calls("clEnqueueNDRangeKernel");
  assert_int_equal(clattn_enqueue(t.plan, r->in_order, &t.job.args, 1, &gate, &event),
                   CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
  assert_non_null(strstr(t.job.error.message, "reading args.q_lengths back failed"));
  assert_null(event);
  assert_int_equal(stub->calls("clEnqueueNDRangeKernel"), launches);
  clReleaseEvent(gate);
  trial_end(&t, &original);
}

/* ---- memory ---- */

/* Where the clattn_mem of something on the device lies, and bytes that it takes at least. */
static const struct place {
  const char *name;
  size_t offset, bytes;
} places[] = {
    {"args.q_lengths", offsetof(clattn_args, q_lengths.device), 8},
    {"args.k_lengths", offsetof(clattn_args, k_lengths.device), 8},
    {"args.q_offsets", offsetof(clattn_args, q_offsets.device), 8},
    {"args.prefix", offsetof(clattn_args, prefix.device), 8},
    {"args.cu_seqlens_q", offsetof(clattn_args, cu_seqlens_q.device), 12},
    {"args.cu_seqlens_k", offsetof(clattn_args, cu_seqlens_k.device), 12},
    {"args.scale", offsetof(clattn_args, scale.device), 4},
    {"args.softcap", offsetof(clattn_args, softcap.device), 4},
};
static const struct place *place;

static clattn_mem *mem_of(trial *t) {
  return (clattn_mem *)(void *)((char *)&t->job.args + place->offset);
}

SPOIL(mem_missing, *mem_of(t) = (clattn_mem){0})
SPOIL(mem_svm, mem_of(t)->kind = CLATTN_MEM_SVM)
SPOIL(mem_usm, mem_of(t)->kind = CLATTN_MEM_USM)
SPOIL(mem_kind, mem_of(t)->kind = 3)
SPOIL(mem_reserved, mem_of(t)->reserved = 1)
SPOIL(mem_foreign, *mem_of(t) = clattn_buffer(extra(t, t->rig->foreign, 64), 0))
SPOIL(mem_image, *mem_of(t) = clattn_buffer(image(t), 0))
SPOIL(mem_write_only, *mem_of(t) = clattn_buffer(limited(t, CL_MEM_WRITE_ONLY, 64), 0))
SPOIL(mem_short, *mem_of(t) = clattn_buffer(extra(t, t->rig->cl, place->bytes - 1), 0))
SPOIL(mem_few_bytes, mem_of(t)->bytes = place->bytes - 1)
SPOIL(mem_many_bytes, mem_of(t)->bytes = place->bytes + 1)
SPOIL(mem_behind, *mem_of(t) = clattn_buffer(extra(t, t->rig->cl, place->bytes + 60), 64))
SPOIL(mem_odd, *mem_of(t) = clattn_buffer(extra(t, t->rig->cl, 64), 2))
SPOIL(mem_huge, mem_of(t)->offset = UINT64_MAX - 3)
SPOIL(mem_of_o, (*mem_of(t) = clattn_buffer(a->o.buffer, 1024)))
SPOIL(mem_of_lse_end, (*mem_of(t) = clattn_buffer(a->lse.buffer, size_of(&a->lse) - place->bytes)))
SPOIL(mem_of_workspace, (*mem_of(t) = clattn_buffer(a->workspace.buffer, 64)))

/* An output that begins in the array's last element. */
static void reaches_into_o(trial *t) {
  clattn_args *const a = &t->job.args;
  const size_t bytes = size_of(&a->o);
  a->o = clattn_buffer(extra(t, t->rig->cl, bytes + 64), place->bytes - 4);
  *mem_of(t) = clattn_buffer(a->o.buffer, 0);
}

static void test_memory(void **state) {
  static const struct {
    clattn_status want;
    const char *text;
    void (*spoil)(trial *);
  } kinds[] = {
      {CLATTN_ERROR_TENSOR_MISSING, "", mem_missing},
      {CLATTN_ERROR_NOT_SUPPORTED, ": SVM and USM", mem_svm},
      {CLATTN_ERROR_NOT_SUPPORTED, ": SVM and USM", mem_usm},
      {CLATTN_ERROR_ENUM, "", mem_kind},
      {CLATTN_ERROR_RESERVED, "", mem_reserved},
      {CLATTN_ERROR_WRONG_CONTEXT, " is of another cl_context", mem_foreign},
      {CL_INVALID_MEM_OBJECT, " is an image", mem_image},
      {CL_INVALID_MEM_OBJECT, " is in a buffer that kernels may not read", mem_write_only},
      {CLATTN_ERROR_BUFFER_TOO_SMALL, " has ", mem_short},
      {CLATTN_ERROR_BUFFER_TOO_SMALL, " has ", mem_few_bytes},
      {CLATTN_ERROR_BUFFER_TOO_SMALL, ": offset 0 and bytes", mem_many_bytes},
      {CLATTN_ERROR_BUFFER_TOO_SMALL, " has ", mem_behind},
      {CLATTN_ERROR_BUFFER_TOO_SMALL, ": offset 18446744073709551612", mem_huge},
      {CLATTN_ERROR_ALIGNMENT, ".offset 2 is not a multiple of the element's 4 bytes", mem_odd},
      {CLATTN_ERROR_OVERLAP, " (bytes 1024", mem_of_o},
      {CLATTN_ERROR_OVERLAP, "", mem_of_lse_end},
      {CLATTN_ERROR_OVERLAP, " (bytes 64", mem_of_workspace},
      {CLATTN_ERROR_OVERLAP, " (bytes 0 to", reaches_into_o},
  };
  for (size_t p = 0; p < sizeof places / sizeof *places; ++p)
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; ++k) {
      char text[128];
      place = &places[p];
      snprintf(text, sizeof text, "%s%s", place->name, kinds[k].text);
      const refusal c = {text, ALL_ARRAYS | JOB_OUTPUTS | JOB_DEVICE, kinds[k].want, text, kinds[k].spoil, NULL};
      check_refusal(*state, &c);
    }
}

/* Inputs beside tensors may lie in any buffer, at any offset of whole elements, also together, if no output is there. */
static void test_accepted_memory(void **state) {
  trial t;
  trial_begin(&t, *state, ALL_ARRAYS | JOB_DEVICE, NULL);
  const clattn_args original = t.job.args;
  clattn_args *const a = &t.job.args;
  const cl_mem all = limited(&t, CL_MEM_READ_ONLY, 256);
  for (size_t p = 0; p < sizeof places / sizeof *places; ++p) {
    place = &places[p];
    *mem_of(&t) = clattn_buffer(all, 4 + 4 * p);
    mem_of(&t)->bytes = place->bytes;
    check_accepted(&t, place->name);
  }
  a->k_lengths.device = clattn_buffer(a->q.buffer, size_of(&a->q) - 8); /* shared with an input */
  a->scale.device = clattn_buffer(sub_buffer(&t, a->k.buffer, 128, 4), 0);
  check_accepted(&t, "inputs that share memory");
  const size_t end = size_of(&a->o);
  a->o = clattn_buffer(extra(&t, t.rig->cl, end + 12), 12); /* right behind the starts */
  a->cu_seqlens_q.device = clattn_buffer(a->o.buffer, 0);
  check_accepted(&t, "neighbours");
  trial_end(&t, &original);
}

/* ---- scalars ---- */

static void softcap(clattn_problem *problem) {
  problem->softcap = 20;
}

SPOIL(scale_bare, a->scale.kind = CLATTN_SCALAR_DEVICE)
SPOIL(scale_value_too, a->scale.value = 2)
SPOIL(scale_host_and_device, (a->scale.kind = CLATTN_SCALAR_HOST, a->scale.device = a->q))
SPOIL(scale_plan_and_device, a->scale.device = a->q)
SPOIL(softcap_bare, a->softcap.kind = CLATTN_SCALAR_DEVICE)
SPOIL(softcap_value_too, a->softcap.value = NAN)
SPOIL(softcap_of_none, (a->softcap.kind = CLATTN_SCALAR_DEVICE, a->softcap.device = a->q))
SPOIL(softcap_plan_and_device, a->softcap.device = a->q)

static void test_scalars(void **state) {
  static const refusal cases[] = {
      {"scale nowhere", JOB_PLAIN, CLATTN_ERROR_TENSOR_MISSING, "args.scale", scale_bare, NULL},
      {"scale twice", JOB_DEVICE, CLATTN_ERROR_VALUE, "args.scale.value is 2", scale_value_too, NULL},
      {"scale of two kinds", JOB_PLAIN, CLATTN_ERROR_TENSOR_UNUSED, "args.scale.device", scale_host_and_device, NULL},
      {"scale of no kind", JOB_PLAIN, CLATTN_ERROR_TENSOR_UNUSED, "args.scale.device", scale_plan_and_device, NULL},
      {"softcap nowhere", JOB_PLAIN, CLATTN_ERROR_TENSOR_MISSING, "args.softcap", softcap_bare, softcap},
      {"softcap twice", JOB_DEVICE, CLATTN_ERROR_VALUE, "args.softcap.value is", softcap_value_too, NULL},
      {"softcap without one", JOB_PLAIN, CLATTN_ERROR_VALUE, "args.softcap", softcap_of_none, NULL},
      {"softcap of no kind", JOB_PLAIN, CLATTN_ERROR_TENSOR_UNUSED, "args.softcap.device", softcap_plan_and_device,
       softcap},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i)
    check_refusal(*state, &cases[i]);
}

/* ---- what reaches the kernels ---- */

static int32_t word_at(const stub_arg *arg, size_t offset) {
  int32_t word = 0;
  assert_true(offset + sizeof word <= arg->size && offset + sizeof word <= STUB_VALUE_BYTES);
  memcpy(&word, arg->value + offset, sizeof word);
  return word;
}

static int64_t long_at(const stub_arg *arg, size_t offset) {
  int64_t value = 0;
  assert_true(offset + sizeof value <= arg->size && offset + sizeof value <= STUB_VALUE_BYTES);
  memcpy(&value, arg->value + offset, sizeof value);
  return value;
}

static void enqueue(trial *t) {
  const clattn_status status = clattn_enqueue(t->plan, t->queue, &t->job.args, 0, NULL, NULL);
  if (status != CLATTN_SUCCESS)
    fail_msg("enqueue: %s", t->job.error.message);
}

/* The staged entries: where they go, and all words of them (kernels/params.cl.h: clattn_entries). */
static void check_staged(trial *t, const int32_t want[JOB_BATCH][8]) {
  history h;
  stub->reset();
  const uint64_t offset = t->job.args.workspace.offset;
  enqueue(t);
  history_take(&h);
  const stub_command *const c = &h.commands[0];
  assert_string_equal(c->kernel, "stage_entries");
  assert_int_equal(c->global[0], 8 * JOB_BATCH);
  assert_int_equal(long_at(&c->args[0], 0), offset / 4);
  assert_int_equal(word_at(&c->args[0], 8), JOB_BATCH);
  for (size_t b = 0; b < JOB_BATCH; ++b)
    for (size_t w = 0; w < 8; ++w)
      if (word_at(&c->args[0], 16 + 4 * (8 * b + w)) != want[b][w])
        fail_msg("word %zu of entry %zu is %d, not %d", w, b, word_at(&c->args[0], 16 + 4 * (8 * b + w)), want[b][w]);
  assert_ptr_equal(c->args[1].mem, t->job.args.workspace.buffer);
  history_free(&h);
}

static void bottom_right(clattn_problem *problem) {
  problem->offset_mode = CLATTN_OFFSET_BOTTOM_RIGHT;
  problem->prefix_mode = CLATTN_PREFIX_VALUE;
  problem->prefix = 6;
}

static void offset_seven(clattn_problem *problem) {
  problem->offset_mode = CLATTN_OFFSET_VALUE;
  problem->offset = 7;
}

/* (q_len, k_len, offset, prefix, first row, first key, rows, unused) of each batch entry */
static void test_staged_entries(void **state) {
  static const struct {
    unsigned flags;
    void (*problem)(clattn_problem *);
    int32_t words[JOB_BATCH][8];
  } rows[] = {
      {JOB_LENGTHS, NULL, {{40, 70, 0, 0, 0, 0, 40, 0}, {39, 67, 10, 0, 0, 0, 40, 0}}},
      {JOB_RULES, NULL, {{40, 70, 0, 3, 0, 0, 40, 0}, {40, 70, 0, 4, 0, 0, 40, 0}}},
      {JOB_PACKED, NULL, {{30, 50, 0, 0, 0, 0, 30, 0}, {35, 70, 0, 0, 30, 50, 35, 0}}},
      {JOB_PACKED, bottom_right, {{30, 50, 20, 6, 0, 0, 30, 0}, {35, 70, 35, 6, 30, 50, 35, 0}}},
      {JOB_PACKED, offset_seven, {{30, 50, 7, 0, 0, 0, 30, 0}, {35, 70, 7, 0, 30, 50, 35, 0}}},
      {JOB_PACKED | JOB_LENGTHS | JOB_RULES, NULL, {{30, 50, 0, 3, 0, 0, 30, 0}, {34, 67, 10, 4, 30, 50, 35, 0}}},
      {JOB_PAGED, bottom_right, {{40, 70, 30, 6, 0, 0, 40, 0}, {40, 67, 27, 6, 0, 0, 40, 0}}},
      {JOB_PACKED | JOB_PAGED, bottom_right, {{30, 70, 40, 6, 0, 0, 30, 0}, {35, 67, 32, 6, 30, 0, 35, 0}}},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    trial t;
    trial_begin(&t, *state, rows[i].flags, rows[i].problem);
    const clattn_args original = t.job.args;
    check_staged(&t, rows[i].words);
    const size_t bytes = size_of(&t.job.args.workspace);
    t.job.args.workspace = clattn_buffer(extra(&t, t.rig->cl, bytes + 128), 128);
    check_staged(&t, rows[i].words);
    trial_end(&t, &original);
  }
}

/* Arrays on the device: the kernel that joins them gets each in its place, behind what the host knows
 * (kernels/params.cl.h: clattn_gather, whose bits say which are there). */
static void check_gathered(const rig *r, unsigned flags, int32_t bits, void (*problem)(clattn_problem *)) {
  trial t;
  history h;
  trial_begin(&t, r, flags | JOB_DEVICE, problem);
  const clattn_args original = t.job.args;
  clattn_args *const a = &t.job.args;
  size_t offset = 0;
  for (int array = 0; array < JOB_ARRAYS; ++array) { /* each at an offset of its own */
    clattn_ints *const ints = job_array(a, array);
    if (ints->kind == CLATTN_ARRAY_DEVICE)
      ints->device = clattn_buffer(extra(&t, r->cl, 64), offset += 4);
  }
  stub->reset();
  enqueue(&t);
  history_take(&h);
  assert_string_equal(h.commands[0].kernel, "stage_entries");
  const stub_command *const c = &h.commands[1];
  assert_string_equal(c->kernel, "gather_entries");
  assert_int_equal(c->global[0], JOB_BATCH);
  assert_int_equal(c->num_args, 8);
  for (int array = 0; array < JOB_ARRAYS; ++array) {
    const clattn_mem *const mem = &job_array(a, array)->device;
    assert_ptr_equal(c->args[1 + array].mem, mem->buffer); /* NULL, where it is not on the device */
    assert_int_equal(long_at(&c->args[0], 8 * (size_t)array), mem->offset / 4);
  }
  assert_ptr_equal(c->args[7].mem, a->workspace.buffer);
  assert_int_equal(long_at(&c->args[0], 48), 0); /* where the entries are */
  assert_int_equal(word_at(&c->args[0], 56), JOB_BATCH);
  assert_int_equal(word_at(&c->args[0], 60), bits);
  assert_int_equal(word_at(&c->args[0], 64), JOB_ROWS);
  assert_int_equal(word_at(&c->args[0], 68), JOB_KEYS);
  assert_int_equal(word_at(&c->args[0], 72), flags & JOB_PACKED ? JOB_TOTAL_ROWS : 0);
  assert_int_equal(word_at(&c->args[0], 76), (flags & JOB_PACKED) && !(flags & JOB_PAGED) ? JOB_TOTAL_KEYS : 0);
  for (uint64_t i = 2; i < h.count; ++i) {
    assert_string_not_equal(h.commands[i].kernel, "stage_entries");
    assert_string_not_equal(h.commands[i].kernel, "gather_entries");
  }
  assert_ordered(&h);
  history_free(&h);
  trial_end(&t, &original);
}

static void test_gathered_entries(void **state) {
  check_gathered(*state, JOB_LENGTHS, 1 + 2 + 4, NULL);
  check_gathered(*state, JOB_RULES, 8, NULL);
  check_gathered(*state, JOB_PACKED, 16 + 32, NULL);
  check_gathered(*state, JOB_PACKED, 16 + 32 + 64, bottom_right);
  check_gathered(*state, JOB_PACKED | JOB_PAGED, 2 + 16, NULL);
  check_gathered(*state, ALL_ARRAYS, 63, NULL);
}

/* Some arrays on the device, the others on the host: the kernel is told what was staged. */
static void test_mixed_entries(void **state) {
  static const struct {
    int array; /* stays on the host */
    int32_t bits;
  } rows[] = {{Q_LENGTHS, 62 + 256}, {K_LENGTHS, 61 + 512}, {Q_OFFSETS, 59}, {PREFIX, 55}, {CU_Q, 47},
              {CU_K, 31 + 1024}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    trial t;
    history h;
    job host;
    trial_begin(&t, *state, ALL_ARRAYS | JOB_DEVICE, NULL);
    const clattn_args original = t.job.args;
    job_init(&host, ALL_ARRAYS);
    *job_array(&t.job.args, rows[i].array) = *job_array(&host.args, rows[i].array);
    stub->reset();
    enqueue(&t);
    history_take(&h);
    assert_string_equal(h.commands[1].kernel, "gather_entries");
    assert_int_equal(word_at(&h.commands[1].args[0], 60), rows[i].bits);
    assert_null(h.commands[1].args[1 + rows[i].array].mem);
    if (rows[i].array == K_LENGTHS) /* staged as it is: the starts are not known yet */
      assert_int_equal(word_at(&h.commands[0].args[0], 16 + 4 * (8 + 1)), 67);
    history_free(&h);
    trial_end(&t, &original);
  }
}

/* One offset for all entries stays with the parameters when the host brings it, and is gathered when the device does. */
static void test_one_offset(void **state) {
  const rig *const r = *state;
  static const int32_t nine = 9, both[JOB_BATCH] = {5, 6};
  trial t;
  history h[2];
  trial_begin(&t, r, JOB_PLAIN, offset_seven);
  const clattn_args original = t.job.args;
  for (int n = 0; n < 2; ++n) { /* the plan's offset, and one of the enqueue */
    stub->reset();
    t.job.args.q_offsets = (clattn_ints){0};
    if (n == 1)
      t.job.args.q_offsets = (clattn_ints){.kind = CLATTN_ARRAY_HOST, .count = 1, .host = &nine};
    enqueue(&t);
    history_take(&h[n]);
    assert_string_not_equal(h[n].commands[0].kernel, "stage_entries");
  }
  const stub_arg *const plan = &h[0].commands[0].args[0], *const one = &h[1].commands[0].args[0];
  int differ = 0;
  for (size_t at = 0; at + 4 <= plan->size; at += 4)
    if (word_at(plan, at) != word_at(one, at)) {
      assert_int_equal(word_at(plan, at), 7);
      assert_int_equal(word_at(one, at), 9);
      ++differ;
    }
  assert_int_equal(differ, 1);
  history_free(&h[0]);
  history_free(&h[1]);
  /* as many as entries, or on the device: the kernels look it up */
  const cl_mem buffer = extra(&t, r->cl, 8);
  for (int n = 0; n < 3; ++n) {
    stub->reset();
    t.job.args.q_offsets = (clattn_ints){.kind = CLATTN_ARRAY_HOST, .count = JOB_BATCH, .host = both};
    if (n > 0)
      t.job.args.q_offsets =
          (clattn_ints){.kind = CLATTN_ARRAY_DEVICE, .count = (uint32_t)n, .device = clattn_buffer(buffer, 0)};
    enqueue(&t);
    history_take(&h[0]);
    assert_string_equal(h[0].commands[0].kernel, "stage_entries");
    assert_int_equal(word_at(&h[0].commands[0].args[0], 16 + 4 * (8 + 2)), n > 0 ? 7 : 6);
    assert_int_equal(strcmp(h[0].commands[1].kernel, "gather_entries") == 0, n > 0);
    if (n > 0)
      assert_int_equal(word_at(&h[0].commands[1].args[0], 60), 4 + (n == 1 ? 128 : 0));
    history_free(&h[0]);
  }
  trial_end(&t, &original);
}

/* What is the same for all entries is worked out on the host: here k_len - q_len, and the prefix that the problem
 * has. */
static void test_nothing_staged(void **state) {
  void (*const problems[2])(clattn_problem *) = {offset_seven, bottom_right};
  stub_arg params[2];
  for (int n = 0; n < 2; ++n) {
    trial t;
    history h;
    trial_begin(&t, *state, JOB_PLAIN, problems[n]);
    const clattn_args original = t.job.args;
    stub->reset();
    t.job.args.sizes = CLATTN_SIZES_K_LEN;
    t.job.args.k_len = JOB_KEYS - 9;
    enqueue(&t);
    history_take(&h);
    params[n] = h.commands[0].args[0];
    history_free(&h);
    trial_end(&t, &original);
  }
  int offsets = 0, prefixes = 0;
  for (size_t at = 0; at + 4 <= params[0].size; at += 4) {
    const int64_t seven = word_at(&params[0], at), right = word_at(&params[1], at);
    offsets += seven == 7 && right == JOB_KEYS - 9 - JOB_ROWS;
    prefixes += seven == 0 && right == 6;
  }
  assert_int_equal(offsets, 1);
  assert_int_equal(prefixes, 1);
}

/* Scalars on the device are arguments of every kernel that makes scores; otherwise those have none. */
static void test_scalar_arguments(void **state) {
  for (unsigned on_device = 0; on_device < 2; ++on_device) {
    trial t;
    history h;
    trial_begin(&t, *state, JOB_MASKS | (on_device ? JOB_DEVICE : 0), softcap);
    const clattn_args original = t.job.args;
    stub->reset();
    enqueue(&t);
    history_take(&h);
    uint64_t makers = 0;
    for (uint64_t i = 0; i < h.count; ++i) {
      const stub_command *const c = &h.commands[i];
      int scales = 0, caps = 0, keys = 0;
      for (cl_uint n = 0; n < c->num_args; ++n) {
        scales += c->args[n].mem && c->args[n].mem == t.job.args.scale.device.buffer;
        caps += c->args[n].mem && c->args[n].mem == t.job.args.softcap.device.buffer;
        keys += c->args[n].mem && c->args[n].mem == t.job.args.k.buffer;
      }
      assert_int_equal(scales, on_device && keys);
      assert_int_equal(caps, on_device && keys);
      makers += keys != 0;
    }
    assert_true(makers > 0);
    history_free(&h);
    trial_end(&t, &original);
  }
}

int run_array_tests(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_kinds, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_contents, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_bounds, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_pages, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_contents_wait, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_memory, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_accepted_memory, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_scalars, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_staged_entries, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_gathered_entries, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_mixed_entries, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_one_offset, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_nothing_staged, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_scalar_arguments, rig_setup, rig_teardown),
  };
  return cmocka_run_group_tests_name("arrays and scalars of enqueue", tests, NULL, NULL);
}
