/* SPDX-License-Identifier: Apache-2.0 */
/* Scales of quantised keys, add_w, head_scale, and a hook's buffers and scalars: what is refused, and what reaches the
 * kernels. */
#include "trial.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { KEYS = JOB_BATCH * JOB_KV_HEADS * JOB_KEYS, ALL_TYPES = JOB_TYPES | JOB_HOOK | JOB_OUTPUTS };

static size_t chosen; /* the tensor that the functions below spoil */

static clattn_mem *chosen_mem(trial *t) {
  return (clattn_mem *)(void *)((char *)&t->job.args + chosen);
}

SPOIL(mem_missing, *chosen_mem(t) = (clattn_mem){0})
SPOIL(mem_svm, chosen_mem(t)->kind = CLATTN_MEM_SVM)
SPOIL(mem_kind, chosen_mem(t)->kind = 3)
SPOIL(mem_reserved, chosen_mem(t)->reserved = 1)
SPOIL(mem_foreign, *chosen_mem(t) = clattn_buffer(extra(t, t->rig->foreign, size_of(chosen_mem(t))), 0))
SPOIL(mem_short, *chosen_mem(t) = clattn_buffer(extra(t, t->rig->cl, size_of(chosen_mem(t)) - 1), 0))
SPOIL(mem_beyond, chosen_mem(t)->offset = size_of(chosen_mem(t)) + 1)
SPOIL(mem_many_bytes, chosen_mem(t)->bytes = size_of(chosen_mem(t)) + 1)
SPOIL(mem_odd, *chosen_mem(t) = clattn_buffer(extra(t, t->rig->cl, size_of(chosen_mem(t)) + 64), 1))
SPOIL(mem_image, *chosen_mem(t) = clattn_buffer(image(t), 0))
SPOIL(mem_write_only, *chosen_mem(t) = clattn_buffer(limited(t, CL_MEM_WRITE_ONLY, size_of(chosen_mem(t))), 0))
SPOIL(mem_is_o, *chosen_mem(t) = a->o)
SPOIL(mem_in_workspace, *chosen_mem(t) = clattn_buffer(a->workspace.buffer, 0))

typedef struct kind {
  const char *name;
  clattn_status want;
  void (*spoil)(trial *);
} kind;

static void check_kinds(const rig *r, const char *tensor, size_t offset, const kind *kinds, size_t count) {
  for (size_t k = 0; k < count; ++k) {
    char name[160];
    snprintf(name, sizeof name, "%s %s", tensor, kinds[k].name);
    chosen = offset;
    const refusal c = {name, ALL_TYPES, kinds[k].want, tensor, kinds[k].spoil, NULL};
    check_refusal(r, &c);
  }
}

static void test_tensors(void **state) {
  static const kind kinds[] = {
      {"missing", CLATTN_ERROR_TENSOR_MISSING, mem_missing},
      {"SVM", CLATTN_ERROR_NOT_SUPPORTED, mem_svm},
      {"unknown kind", CLATTN_ERROR_ENUM, mem_kind},
      {"reserved", CLATTN_ERROR_RESERVED, mem_reserved},
      {"of another context", CLATTN_ERROR_WRONG_CONTEXT, mem_foreign},
      {"buffer too small", CLATTN_ERROR_BUFFER_TOO_SMALL, mem_short},
      {"beyond", CLATTN_ERROR_BUFFER_TOO_SMALL, mem_beyond},
      {"more bytes than there are", CLATTN_ERROR_BUFFER_TOO_SMALL, mem_many_bytes},
      {"misaligned", CLATTN_ERROR_ALIGNMENT, mem_odd},
      {"image", CL_INVALID_MEM_OBJECT, mem_image},
      {"not readable", CL_INVALID_MEM_OBJECT, mem_write_only},
      {"is o", CLATTN_ERROR_OVERLAP, mem_is_o},
      {"in the workspace", CLATTN_ERROR_OVERLAP, mem_in_workspace},
  };
  static const struct {
    const char *name;
    size_t offset;
  } tensors[] = {{"args.k_scale", offsetof(clattn_args, k_scale)},
                 {"args.v_scale", offsetof(clattn_args, v_scale)},
                 {"args.head_scale", offsetof(clattn_args, head_scale)},
                 {"args.add_w", offsetof(clattn_args, add_w)}};
  for (size_t n = 0; n < sizeof tensors / sizeof *tensors; ++n)
    check_kinds(*state, tensors[n].name, tensors[n].offset, kinds, sizeof kinds / sizeof *kinds);
}

/* How far a hook reads only the caller knows: any range of the buffer will do, at any byte. */
static void test_hook_buffers(void **state) {
  static const kind kinds[] = {
      {"SVM", CLATTN_ERROR_NOT_SUPPORTED, mem_svm},
      {"unknown kind", CLATTN_ERROR_ENUM, mem_kind},
      {"reserved", CLATTN_ERROR_RESERVED, mem_reserved},
      {"of another context", CLATTN_ERROR_WRONG_CONTEXT, mem_foreign},
      {"beyond", CLATTN_ERROR_BUFFER_TOO_SMALL, mem_beyond},
      {"more bytes than there are", CLATTN_ERROR_BUFFER_TOO_SMALL, mem_many_bytes},
      {"image", CL_INVALID_MEM_OBJECT, mem_image},
      {"not readable", CL_INVALID_MEM_OBJECT, mem_write_only},
      {"is o", CLATTN_ERROR_OVERLAP, mem_is_o},
      {"in the workspace", CLATTN_ERROR_OVERLAP, mem_in_workspace},
  };
  static const int there[] = {0, 2};
  for (size_t n = 0; n < sizeof there / sizeof *there; ++n) {
    char name[64];
    snprintf(name, sizeof name, "args.hook_buffer[%d]", there[n]);
    const size_t offset = offsetof(clattn_args, hook_buffer) + (size_t)there[n] * sizeof(clattn_mem);
    check_kinds(*state, name, offset, kinds, sizeof kinds / sizeof *kinds);
  }
  void (*const fine[])(trial *) = {mem_missing, mem_short, mem_odd};
  for (size_t n = 0; n < sizeof fine / sizeof *fine; ++n) {
    trial t;
    trial_begin(&t, *state, ALL_TYPES, NULL);
    const clattn_args original = t.job.args;
    chosen = offsetof(clattn_args, hook_buffer);
    fine[n](&t);
    check_accepted(&t, "a hook's buffer");
    trial_end(&t, &original);
  }
}

SPOIL(scalar_kind, a->hook_scalar[1].kind = 3)
SPOIL(scalar_alone, a->hook_scalar[1].value = 1)
SPOIL(scalar_two_kinds, a->hook_scalar[0].device = a->q)
SPOIL(scalar_nowhere, a->hook_scalar[2].kind = CLATTN_SCALAR_DEVICE)
SPOIL(scalar_odd, a->hook_scalar[3].device = clattn_buffer(extra(t, t->rig->cl, 64), 2))
SPOIL(scalar_short, a->hook_scalar[3].device = clattn_buffer(extra(t, t->rig->cl, 3), 0))
SPOIL(scalar_value_too, a->hook_scalar[3].value = 1)
SPOIL(scalar_in_o, a->hook_scalar[3].device = clattn_buffer(a->o.buffer, 8))
SPOIL(scalar_foreign, a->hook_scalar[3].device = clattn_buffer(extra(t, t->rig->foreign, 64), 0))
SPOIL(buffer_without_hook, a->hook_buffer[1] = a->q)
SPOIL(scalar_without_hook, a->hook_scalar[1].value = 1)

static void test_hook_scalars(void **state) {
  enum { HOST = JOB_HOOK, DEVICE = JOB_HOOK | JOB_DEVICE };
  static const refusal cases[] = {
      {"unknown kind", HOST, CLATTN_ERROR_ENUM, "args.hook_scalar[1].kind is 3", scalar_kind, NULL},
      {"of no kind", HOST, CLATTN_ERROR_VALUE, "args.hook_scalar[1].value is 1", scalar_alone, NULL},
      {"of two kinds", HOST, CLATTN_ERROR_TENSOR_UNUSED, "args.hook_scalar[0].device", scalar_two_kinds, NULL},
      {"nowhere", HOST, CLATTN_ERROR_TENSOR_MISSING, "args.hook_scalar[2]", scalar_nowhere, NULL},
      {"misaligned", DEVICE, CLATTN_ERROR_ALIGNMENT, "args.hook_scalar[3].offset 2", scalar_odd, NULL},
      {"too short", DEVICE, CLATTN_ERROR_BUFFER_TOO_SMALL, "args.hook_scalar[3]", scalar_short, NULL},
      {"twice", DEVICE, CLATTN_ERROR_VALUE, "args.hook_scalar[3].value is 1", scalar_value_too, NULL},
      {"in o", DEVICE, CLATTN_ERROR_OVERLAP, "args.hook_scalar[3]", scalar_in_o, NULL},
      {"foreign", DEVICE, CLATTN_ERROR_WRONG_CONTEXT, "args.hook_scalar[3]", scalar_foreign, NULL},
      {"no hook", JOB_TYPES, CLATTN_ERROR_TENSOR_UNUSED, "the problem has no hook", buffer_without_hook, NULL},
      {"no hook", JOB_TYPES, CLATTN_ERROR_TENSOR_UNUSED, "the problem has no hook", scalar_without_hook, NULL},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i)
    check_refusal(*state, &cases[i]);
}

/* ---- half bytes ---- */

/* Rows of 15 elements with 16 from one to the next: the last one ends with the eighth byte all the same. */
static void odd_rows(clattn_problem *problem) {
  problem->qk_dim = 15;
}

/* k and an output in one buffer, row beside row: k's 16 elements take 8 bytes of a pitch of 40, then come o's 32.  In
 * strides of i4 a pitch of 40 bytes is 80 elements. */
static void side_by_side(clattn_problem *problem) {
  const int64_t of_k[4] = {0, 0, 80, 1}, of_o[4] = {0, 0, 20, 1};
  problem->batch = problem->q_heads = problem->kv_heads = 1;
  problem->k_len = JOB_ROWS;
  problem->v_dim = 16;
  problem->k.layout = problem->o.layout = CLATTN_LAYOUT_STRIDED;
  memcpy(problem->k.stride, of_k, sizeof of_k);
  memcpy(problem->o.stride, of_o, sizeof of_o);
}

static void place_rows(trial *t, uint64_t k, uint64_t o) {
  const cl_mem all = extra(t, t->rig->cl, (size_t)JOB_ROWS * 40 + 64);
  t->job.args.k = clattn_buffer(all, k);
  t->job.args.o = clattn_buffer(all, o);
}

SPOIL(k_too_close, place_rows(t, 33, 0)) /* its last byte is the next row's first */
SPOIL(k_too_early, place_rows(t, 31, 0))
SPOIL(k_short, a->k = clattn_buffer(extra(t, t->rig->cl, KEYS * 8 - 1), 0))

static void test_half_bytes(void **state) {
  static const refusal cases[] = {
      {"a byte too few", JOB_TYPES, CLATTN_ERROR_BUFFER_TOO_SMALL, "args.k", k_short, NULL},
      {"a byte too few, odd rows", JOB_TYPES, CLATTN_ERROR_BUFFER_TOO_SMALL, "args.k", k_short, odd_rows},
      {"rows that touch", JOB_TYPES, CLATTN_ERROR_OVERLAP, "args.k", k_too_close, side_by_side},
      {"rows that touch before", JOB_TYPES, CLATTN_ERROR_OVERLAP, "args.k", k_too_early, side_by_side},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i)
    check_refusal(*state, &cases[i]);
  trial t;
  trial_begin(&t, *state, JOB_TYPES, side_by_side);
  clattn_args original = t.job.args;
  place_rows(&t, 32, 0);
  check_accepted(&t, "rows of i4 beside rows of o");
  trial_end(&t, &original);

  for (int odd = 0; odd < 2; ++odd) { /* any byte will do, and so many, just behind o in one buffer too */
    trial_begin(&t, *state, JOB_TYPES, odd ? odd_rows : NULL);
    original = t.job.args;
    const cl_mem all = extra(&t, t.rig->cl, KEYS * 8 + 1);
    t.job.args.k = clattn_buffer(all, 1);
    check_accepted(&t, "k from an odd byte on");
    const size_t o = (size_t)JOB_BATCH * JOB_HEADS * JOB_ROWS * JOB_V_DIM * 2;
    const cl_mem both = extra(&t, t.rig->cl, o + KEYS * 8);
    t.job.args.o = clattn_buffer(both, 0);
    t.job.args.k = clattn_buffer(both, o);
    check_accepted(&t, "k behind o");
    t.job.args.o = clattn_buffer(both, KEYS * 8);
    t.job.args.k = clattn_buffer(both, 0);
    check_accepted(&t, "o behind k");
    trial_end(&t, &original);
  }
}

/* ---- what reaches the kernels ---- */

static const stub_command *command_of(const history *h, const char *kernel) {
  for (uint64_t i = 0; i < h->count; ++i)
    if (strcmp(h->commands[i].kernel, kernel) == 0)
      return &h->commands[i];
  return NULL;
}

/* The argument that holds this buffer; NULL if there is none. */
static const stub_arg *arg_of(const stub_command *c, cl_mem buffer) {
  for (cl_uint i = 0; i < c->num_args; ++i)
    if (c->args[i].mem == buffer)
      return &c->args[i];
  return NULL;
}

static void get(const stub_arg *arg, size_t offset, size_t bytes, void *to) {
  assert_true(offset + bytes <= arg->size && offset + bytes <= STUB_VALUE_BYTES);
  memcpy(to, arg->value + offset, bytes);
}

/* Every buffer is an argument of the kernel that makes scores, and only to be read; a hook's offsets in bytes and its
 * scalars come by value, those on the device through gather_hook. */
static void check_arguments(const rig *r, const char *variant, int on_device) {
  trial t;
  clattn_plan_options options;
  clattn_plan *plan = NULL;
  clattn_plan_options_init(&options);
  options.variant = variant;
  trial_begin(&t, r, JOB_TYPES | JOB_HOOK | (on_device ? JOB_DEVICE : 0), NULL);
  const clattn_args *const a = &t.job.args;
  const clattn_args original = *a;
  assert_int_equal(clattn_plan_create(t.context, &t.job.problem, &options, &plan, NULL), CLATTN_SUCCESS);
  t.job.args.workspace = (clattn_mem){0};
  stub->reset();
  assert_int_equal(clattn_enqueue(plan, r->in_order, a, 0, NULL, NULL), CLATTN_SUCCESS);
  history h;
  history_take(&h);
  const stub_command *const flash = command_of(&h, "flash");
  const stub_command *const scores = flash ? flash : command_of(&h, "scores");
  const stub_command *const sum = flash ? flash : command_of(&h, "weighted_sum");
  const stub_command *const gather = command_of(&h, "gather_hook");
  const cl_mem read[] = {a->q.buffer,
                         a->k.buffer,
                         a->k_scale.buffer,
                         a->add_w.buffer,
                         a->head_scale.buffer,
                         a->hook_buffer[0].buffer,
                         a->hook_buffer[2].buffer};
  assert_non_null(scores);
  assert_non_null(sum);
  for (size_t i = 0; i < sizeof read / sizeof *read; ++i) {
    assert_non_null(arg_of(scores, read[i]));
    assert_int_equal(arg_of(scores, read[i])->declared_const, 1);
  }
  assert_non_null(arg_of(sum, a->v_scale.buffer));
  assert_int_equal(arg_of(sum, a->v_scale.buffer)->declared_const, 1);
  assert_int_equal(gather != NULL, on_device);
  /* the struct before the first of the hook's buffers: first[4], then scalar[4] */
  const stub_arg *const values = arg_of(scores, a->hook_buffer[0].buffer) - 1;
  int64_t first[4];
  float scalar[4];
  get(values, 0, sizeof first, first);
  get(values, sizeof first, sizeof scalar, scalar);
  assert_int_equal(first[0], 0);
  assert_int_equal(first[2], 4); /* bytes */
  assert_true(scalar[0] >= 2.5f && scalar[0] <= 2.5f);
  if (on_device) { /* first[4], then to, then scalar[4] */
    get(&gather->args[0], 0, sizeof first, first);
    get(&gather->args[0], sizeof first + 8, sizeof scalar, scalar);
    assert_true(first[0] == -1 && first[1] == -1 && first[2] == -1 && first[3] == 0);
    assert_ptr_equal(gather->args[4].mem, a->hook_scalar[3].device.buffer);
    assert_true(scalar[0] >= 2.5f && scalar[0] <= 2.5f);
  } else {
    assert_true(scalar[3] >= 0.75f && scalar[3] <= 0.75f);
  }
  assert_no_violation();
  history_free(&h);
  clattn_plan_release(plan);
  trial_end(&t, &original);
}

static void test_arguments(void **state) {
  for (uint32_t v = 0; general_variant(v); ++v)
    for (int on_device = 0; on_device < 2; ++on_device)
      check_arguments(*state, general_variant(v), on_device);
}

/* Programs are shared by problems of the same types and the same hook. */
static void test_programs(void **state) {
  const rig *const r = *state;
  clattn_context *context = NULL;
  clattn_hook *other = NULL;
  assert_int_equal(clattn_context_create(r->cl, r->device[0], trusting(), &context, NULL), CLATTN_SUCCESS);
  assert_int_equal(clattn_hook_create("float clattn_score(float s, const clattn_at *at) { return s; }", &other, NULL),
                   CLATTN_SUCCESS);
  const struct {
    unsigned flags;
    const clattn_hook *hook;
    const char *has, *has_not;
  } rows[] = {{JOB_PLAIN, NULL, "-cl-std=CL1.2", "HOOK"},
              {JOB_TYPES, NULL, "-DCLATTN_Q=f16", "HOOK"},
              {JOB_HOOK, job_hook, "-DCLATTN_HOOK_SCORE -DCLATTN_HOOK_KEEP", "DTYPE"},
              {JOB_HOOK, other, "-DCLATTN_HOOK_SCORE", "KEEP"},
              {JOB_TYPES | JOB_HOOK, other, "-DCLATTN_K=i4", "KEEP"}};
  stub->reset();
  for (size_t again = 0; again < 2; ++again)
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
      clattn_plan *plan = NULL;
      job j;
      job_init(&j, rows[i].flags);
      j.problem.hook = rows[i].hook;
      assert_int_equal(clattn_plan_create(context, &j.problem, NULL, &plan, &j.error), CLATTN_SUCCESS);
      assert_int_equal(stub->builds(), again ? sizeof rows / sizeof *rows : i + 1);
      assert_non_null(strstr(stub->build_options(i), rows[i].has));
      assert_null(strstr(stub->build_options(i), rows[i].has_not));
      clattn_plan_release(plan);
    }
  clattn_hook_release(other);
  clattn_context_release(context);
}

int run_type_tests(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_tensors, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_hook_buffers, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_hook_scalars, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_half_bytes, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_arguments, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_programs, rig_setup, rig_teardown),
  };
  return cmocka_run_group_tests_name("types and hooks", tests, NULL, NULL);
}
