/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "use.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const stub_control *stub;
clattn_hook *job_hook;

int use_open(int with_driver) {
  static const char source[] = "float clattn_score(float s, const clattn_at *at) { return s * at->scalar[0]; }\n"
                               "bool clattn_keep(const clattn_at *at) { return at->buffer[0] != 0; }\n";
  /* Sanitizers do not work with RTLD_DEEPBIND, which the loader would use. */
  if (setenv("OCL_ICD_VENDORS", with_driver ? CLATTN_STUB_VENDORS : CLATTN_STUB_NO_VENDORS, 1) != 0 ||
      setenv("OCL_ICD_DEEPBIND", "0", 0) != 0)
    return 0;
  if (!with_driver)
    return 1;
  void *const library = dlopen(CLATTN_STUB_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    fprintf(stderr, "cannot open the stub driver: %s\n", dlerror());
    return 0;
  }
  stub = dlsym(library, STUB_CONTROL_SYMBOL);
  if (!stub)
    fprintf(stderr, "%s has no %s\n", CLATTN_STUB_LIBRARY, STUB_CONTROL_SYMBOL);
  return stub != NULL && clattn_hook_create(source, &job_hook, NULL) == CLATTN_SUCCESS;
}

/* ---- OpenCL objects ---- */

static cl_command_queue make_queue(cl_context cl, cl_device_id device, cl_command_queue_properties properties) {
  cl_int code;
  const cl_command_queue queue = clCreateCommandQueue(cl, device, properties | CL_QUEUE_PROFILING_ENABLE, &code);
  assert_int_equal(code, CL_SUCCESS);
  return queue;
}

int rig_setup(void **state) {
  rig *const r = calloc(1, sizeof *r);
  assert_non_null(r);
  cl_int code;
  assert_int_equal(clGetPlatformIDs(1, &r->platform, NULL), CL_SUCCESS);
  stub->reset();
  /* What a failed test left is not the next one's fault. */
  for (int kind = 0; kind < STUB_KINDS; ++kind)
    r->live_before[kind] = stub->live((stub_kind)kind);
  r->kept_before = stub->kept();
  assert_int_equal(clGetDeviceIDs(r->platform, CL_DEVICE_TYPE_ALL, 2, r->device, NULL), CL_SUCCESS);
  r->cl = clCreateContext(NULL, 2, r->device, NULL, NULL, &code);
  assert_int_equal(code, CL_SUCCESS);
  r->foreign = clCreateContext(NULL, 2, r->device, NULL, NULL, &code);
  assert_int_equal(code, CL_SUCCESS);
  r->in_order = make_queue(r->cl, r->device[0], 0);
  r->out_of_order = make_queue(r->cl, r->device[0], CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
  r->other_device = make_queue(r->cl, r->device[1], 0);
  r->other_context = make_queue(r->foreign, r->device[0], 0);
  *state = r;
  return 0;
}

int rig_teardown(void **state) {
  rig *const r = *state;
  stub->set_fail(NULL, 0, 0);
  stub->run_pending();
  clReleaseCommandQueue(r->in_order);
  clReleaseCommandQueue(r->out_of_order);
  clReleaseCommandQueue(r->other_device);
  clReleaseCommandQueue(r->other_context);
  clReleaseContext(r->cl);
  clReleaseContext(r->foreign);
  static const char *const kinds[STUB_KINDS] = {"platforms", "devices",  "contexts", "queues",
                                                "buffers",   "programs", "kernels",  "events"};
  int bad = print_violations() != 0;
  for (int kind = 0; kind < STUB_KINDS; ++kind) {
    const uint64_t live = stub->live((stub_kind)kind), before = r->live_before[kind];
    if (live != before) {
      print_error("%llu %s before, %llu after\n", (unsigned long long)before, kinds[kind], (unsigned long long)live);
      bad = 1;
    }
  }
  if (stub->kept() != r->kept_before) {
    print_error("%llu objects kept by the driver before, %llu after\n", (unsigned long long)r->kept_before,
                (unsigned long long)stub->kept());
    bad = 1;
  }
  free(r);
  return bad ? -1 : 0;
}

uint64_t live_objects(void) {
  uint64_t sum = stub->kept();
  for (int kind = 0; kind < STUB_KINDS; ++kind)
    sum += stub->live((stub_kind)kind);
  return sum;
}

uint64_t live_references(void) {
  uint64_t sum = 0;
  for (int kind = 0; kind < STUB_KINDS; ++kind)
    sum += stub->references((stub_kind)kind);
  return sum;
}

uint64_t print_violations(void) {
  const uint64_t count = stub->violations();
  for (uint64_t i = 0; i < count && stub->violation(i); ++i)
    print_error("violation: %s\n", stub->violation(i));
  return count;
}

/* ---- host memory ---- */

static void *heap_alloc(void *user, size_t bytes) {
  heap *const h = user;
  const long call = atomic_fetch_add(&h->calls, 1) + 1;
  if (call == atomic_load(&h->fail_at)) {
    atomic_fetch_add(&h->failed, 1);
    return NULL;
  }
  void *const memory = malloc(bytes);
  if (memory)
    atomic_fetch_add(&h->live, 1);
  return memory;
}

static void heap_free(void *user, void *memory) {
  heap *const h = user;
  if (memory)
    atomic_fetch_sub(&h->live, 1);
  free(memory);
}

void heap_options(heap *h, clattn_context_options *options) {
  atomic_init(&h->live, 0);
  atomic_init(&h->calls, 0);
  atomic_init(&h->fail_at, 0);
  atomic_init(&h->failed, 0);
  clattn_context_options_init(options);
  options->alloc_fn = heap_alloc;
  options->free_fn = heap_free;
  options->alloc_user = h;
  options->config_text = TRUSTED_JOBS;
}

const clattn_context_options *trusting(void) {
  static clattn_context_options options;
  clattn_context_options_init(&options);
  options.config_text = TRUSTED_JOBS;
  return &options;
}

/* ---- jobs ---- */

const unsigned job_kinds[] = {0,
                              1,
                              2,
                              3,
                              4,
                              5,
                              6,
                              7,
                              8,
                              9,
                              10,
                              11,
                              12,
                              13,
                              14,
                              JOB_ALL,
                              JOB_DEVICE,
                              JOB_DEVICE | JOB_LENGTHS,
                              JOB_DEVICE | JOB_RULES,
                              JOB_DEVICE | JOB_ALL,
                              JOB_PACKED,
                              JOB_PACKED | JOB_ALL,
                              JOB_PACKED | JOB_RULES,
                              JOB_PACKED | JOB_DEVICE,
                              JOB_PACKED | JOB_DEVICE | JOB_ALL,
                              JOB_PAGED,
                              JOB_PAGED | JOB_ALL,
                              JOB_PAGED | JOB_DEVICE | JOB_ALL,
                              JOB_PACKED | JOB_PAGED,
                              JOB_PACKED | JOB_PAGED | JOB_ALL,
                              JOB_PACKED | JOB_PAGED | JOB_DEVICE | JOB_ALL,
                              JOB_TYPES,
                              JOB_HOOK,
                              JOB_HOOK | JOB_DEVICE,
                              JOB_TYPES | JOB_HOOK | JOB_ALL,
                              JOB_TYPES | JOB_HOOK | JOB_PACKED | JOB_DEVICE | JOB_ALL,
                              JOB_TYPES | JOB_HOOK | JOB_PAGED | JOB_DEVICE | JOB_ALL};
const size_t num_job_kinds = sizeof job_kinds / sizeof *job_kinds;

clattn_ints *job_array(clattn_args *args, int array) {
  clattn_ints *const arrays[JOB_ARRAYS] = {&args->q_lengths, &args->k_lengths,    &args->q_offsets,
                                           &args->prefix,    &args->cu_seqlens_q, &args->cu_seqlens_k};
  return arrays[array];
}

const char *job_array_name(int array) {
  static const char *const names[JOB_ARRAYS] = {"args.q_lengths", "args.k_lengths",    "args.q_offsets",
                                                "args.prefix",    "args.cu_seqlens_q", "args.cu_seqlens_k"};
  return names[array];
}

static clattn_ints on_host(const int32_t *values, uint32_t count) {
  return (clattn_ints){.kind = CLATTN_ARRAY_HOST, .count = count, .host = values};
}

static void init_layouts(job *j) {
  static const int32_t rows[JOB_BATCH + 1] = {0, 30, 65}, keys[JOB_BATCH + 1] = {0, 50, 120};
  clattn_problem *const p = &j->problem;
  if (j->flags & JOB_PACKED) {
    p->q.layout = p->o.layout = p->lse.layout = CLATTN_LAYOUT_PACKED;
    p->total_q = JOB_TOTAL_ROWS;
    memcpy(j->cu_seqlens_q, rows, sizeof rows);
    j->args.cu_seqlens_q = on_host(j->cu_seqlens_q, JOB_BATCH + 1);
  }
  if (j->flags & JOB_PAGED) {
    p->k.layout = p->v.layout = CLATTN_LAYOUT_PAGED;
    if (j->flags & JOB_TYPES)
      p->k_scale.layout = p->v_scale.layout = CLATTN_LAYOUT_PAGED;
    p->page_size = JOB_PAGE;
    p->num_pages = JOB_PAGES;
    p->max_pages = JOB_MAX_PAGES;
    for (int32_t i = 0; i < JOB_BATCH * JOB_MAX_PAGES; ++i)
      j->page_table[i] = (5 * i + 2) % JOB_PAGES;
  } else if (j->flags & JOB_PACKED) {
    p->k.layout = p->v.layout = CLATTN_LAYOUT_PACKED;
    if (j->flags & JOB_TYPES)
      p->k_scale.layout = p->v_scale.layout = CLATTN_LAYOUT_PACKED;
    p->total_k = JOB_TOTAL_KEYS;
    memcpy(j->cu_seqlens_k, keys, sizeof keys);
    j->args.cu_seqlens_k = on_host(j->cu_seqlens_k, JOB_BATCH + 1);
  }
}

static void init_lengths(job *j) {
  clattn_problem *const p = &j->problem;
  for (int32_t b = 0; b < JOB_BATCH; ++b) {
    j->q_lengths[b] = (p->total_q ? j->cu_seqlens_q[b + 1] - j->cu_seqlens_q[b] : JOB_ROWS) - b;
    j->k_lengths[b] = (p->total_k ? j->cu_seqlens_k[b + 1] - j->cu_seqlens_k[b] : JOB_KEYS) - 3 * b;
    j->q_offsets[b] = 10 * b;
  }
  if (j->flags & JOB_LENGTHS) {
    p->causal = 1;
    p->offset_mode = CLATTN_OFFSET_PER_BATCH;
    p->q_length_mode = CLATTN_LENGTH_PER_BATCH;
    j->args.q_lengths = on_host(j->q_lengths, JOB_BATCH);
    j->args.q_offsets = on_host(j->q_offsets, JOB_BATCH);
  }
  if (j->flags & (JOB_LENGTHS | JOB_PAGED)) { /* pages need them */
    p->k_length_mode = CLATTN_LENGTH_PER_BATCH;
    j->args.k_lengths = on_host(j->k_lengths, JOB_BATCH);
  }
}

static void init_rules(job *j) {
  clattn_problem *const p = &j->problem;
  p->prefix_mode = CLATTN_PREFIX_PER_BATCH;
  for (int32_t b = 0; b < JOB_BATCH; ++b)
    j->prefix[b] = 3 + b;
  j->args.prefix = on_host(j->prefix, JOB_BATCH);
  p->window = CLATTN_WINDOW_LEFT;
  p->window_left = 50;
  p->chunk = 64;
  p->alibi = CLATTN_ALIBI_SYMMETRIC;
  p->use_sink = 1;
  p->block_mask_kind = CLATTN_MASK_BITS;
  p->block_q = 8;
  p->block_k = 2; /* 35 blocks: two words */
}

void job_init(job *j, unsigned flags) {
  memset(j, 0, sizeof *j);
  j->flags = flags;
  clattn_error_init(&j->error);
  clattn_problem_init(&j->problem);
  clattn_args_init(&j->args);
  j->args.error = &j->error;
  j->problem.batch = JOB_BATCH;
  j->problem.q_heads = JOB_HEADS;
  j->problem.kv_heads = JOB_KV_HEADS;
  j->problem.q_len = JOB_ROWS;
  j->problem.k_len = JOB_KEYS;
  j->problem.qk_dim = JOB_DIM;
  j->problem.v_dim = JOB_V_DIM;
  init_layouts(j);
  init_lengths(j);
  if (flags & JOB_RULES)
    init_rules(j);
  if (flags & JOB_OUTPUTS) {
    j->problem.outputs = CLATTN_OUT_O | CLATTN_OUT_LSE | CLATTN_OUT_SCORES | CLATTN_OUT_MAX_LOGIT;
    j->problem.stage = CLATTN_STAGE_WEIGHTS;
  }
  if (flags & JOB_MASKS) {
    j->problem.use_bias = 1;
    j->problem.keep_mask_kind = CLATTN_MASK_U8;
  }
  if (flags & JOB_DEVICE)
    j->problem.softcap = 20;
  if (flags & JOB_TYPES) {
    j->problem.q.dtype = j->problem.k_scale.dtype = CLATTN_F16;
    j->problem.k.dtype = CLATTN_I4;
    j->problem.v.dtype = CLATTN_I8;
    j->problem.o.dtype = CLATTN_BF16;
    j->problem.similarity = CLATTN_ADDITIVE;
    j->problem.use_head_scale = 1;
  }
  if (flags & JOB_HOOK)
    j->problem.hook = job_hook;
}

int job_has_entries(const job *j) {
  return (j->flags & (JOB_LENGTHS | JOB_RULES | JOB_PACKED | JOB_PAGED)) != 0;
}

const char *general_variant(uint32_t v) {
  const char *name = NULL;
  for (uint32_t n = 0; (name = clattn_variant_name(n)) != NULL; ++n)
    if (strcmp(name, "flash-cpu-amx") != 0 && strcmp(name, "flash-gpu-matrix") != 0 && v-- == 0)
      break;
  return name;
}

void job_options(const job *j, clattn_plan_options *options) {
  clattn_plan_options_init(options);
  if (!(j->flags & JOB_CHECKED))
    return;
  stub_settings settings;
  stub->settings(&settings);
  settings.forbid_blocking = 0;
  stub->set_settings(&settings);
  options->check_contents = 1;
}

cl_mem make_buffer(cl_context cl, size_t bytes) {
  cl_int code;
  const cl_mem buffer = clCreateBuffer(cl, CL_MEM_READ_WRITE, bytes, NULL, &code);
  assert_int_equal(code, CL_SUCCESS);
  return buffer;
}

cl_mem make_filled_buffer(cl_context cl, size_t bytes, const void *data) {
  void *const copy = malloc(bytes);
  assert_non_null(copy);
  memcpy(copy, data, bytes);
  cl_int code;
  const cl_mem filled = clCreateBuffer(cl, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, bytes, copy, &code);
  assert_int_equal(code, CL_SUCCESS);
  free(copy);
  return filled;
}

static void job_hook_args(job *j, cl_context cl) {
  static const float value = 0.75f;
  j->args.hook_buffer[0] = clattn_buffer(make_buffer(cl, JOB_HOOK_BYTES), 0);
  j->args.hook_buffer[2] = clattn_buffer(make_buffer(cl, JOB_HOOK_BYTES), 4);
  j->args.hook_scalar[0] = (clattn_scalar){.kind = CLATTN_SCALAR_HOST, .value = 2.5f};
  j->args.hook_scalar[3] = (clattn_scalar){.kind = CLATTN_SCALAR_HOST, .value = value};
  if (j->flags & JOB_DEVICE) {
    j->args.hook_scalar[3] = (clattn_scalar){.kind = CLATTN_SCALAR_DEVICE};
    j->args.hook_scalar[3].device = clattn_buffer(make_filled_buffer(cl, sizeof value, &value), 0);
  }
}

static void job_device(job *j, cl_context cl) {
  static const float scale = 0.125f, softcap = 15;
  for (int array = 0; array < JOB_ARRAYS; ++array) {
    clattn_ints *const ints = job_array(&j->args, array);
    if (ints->kind == CLATTN_ARRAY_NONE)
      continue;
    const cl_mem buffer = make_filled_buffer(cl, ints->count * sizeof *ints->host, ints->host);
    *ints = (clattn_ints){.kind = CLATTN_ARRAY_DEVICE, .count = ints->count, .device = clattn_buffer(buffer, 0)};
  }
  j->args.scale = (clattn_scalar){.kind = CLATTN_SCALAR_DEVICE};
  j->args.scale.device = clattn_buffer(make_filled_buffer(cl, sizeof scale, &scale), 0);
  j->args.softcap = (clattn_scalar){.kind = CLATTN_SCALAR_DEVICE};
  j->args.softcap.device = clattn_buffer(make_filled_buffer(cl, sizeof softcap, &softcap), 0);
}

void job_buffers(job *j, cl_context cl) {
  const size_t pairs = (size_t)JOB_BATCH * JOB_HEADS * JOB_ROWS * JOB_KEYS;
  const int packed_k = j->problem.total_k != 0, known = !(j->flags & JOB_DEVICE);
  /* starts on the host tell how many packed rows there are; else there may be as many as the bound */
  const size_t total_q = known ? (size_t)j->cu_seqlens_q[JOB_BATCH] : JOB_TOTAL_ROWS;
  const size_t total_k = known ? (size_t)j->cu_seqlens_k[JOB_BATCH] : JOB_TOTAL_KEYS;
  const size_t rows = JOB_HEADS * (j->flags & JOB_PACKED ? total_q : JOB_BATCH * JOB_ROWS);
  const size_t keys = JOB_KV_HEADS * (packed_k               ? total_k
                                      : j->flags & JOB_PAGED ? (size_t)JOB_PAGES * JOB_PAGE
                                                             : (size_t)JOB_BATCH * JOB_KEYS);
  const int types = (j->flags & JOB_TYPES) != 0;
  j->args.q = clattn_buffer(make_buffer(cl, rows * JOB_DIM * (types ? 2 : 4)), 0);
  j->args.k = clattn_buffer(make_buffer(cl, types ? keys * JOB_DIM / 2 : keys * JOB_DIM * 4), 0);
  j->args.v = clattn_buffer(make_buffer(cl, keys * JOB_V_DIM * (types ? 1 : 4)), 0);
  j->args.o = clattn_buffer(make_buffer(cl, rows * JOB_V_DIM * (types ? 2 : 4)), 0);
  if (types) {
    j->args.k_scale = clattn_buffer(make_buffer(cl, keys * 2), 0);
    j->args.v_scale = clattn_buffer(make_buffer(cl, keys * 4), 0);
    j->args.head_scale = clattn_buffer(make_buffer(cl, JOB_HEADS * 4), 0);
    j->args.add_w = clattn_buffer(make_buffer(cl, JOB_HEADS * JOB_DIM * 4), 0);
  }
  if (j->flags & JOB_HOOK)
    job_hook_args(j, cl);
  if (j->flags & JOB_OUTPUTS) {
    const size_t pitched = (JOB_HEADS - 1) * JOB_TOTAL_ROWS + total_q; /* lse: (head, total rows) */
    j->args.lse = clattn_buffer(make_buffer(cl, (j->flags & JOB_PACKED ? pitched : rows) * 4), 0);
    j->args.scores = clattn_buffer(make_buffer(cl, pairs * 4), 0);
    j->args.max_logit = clattn_buffer(make_buffer(cl, (size_t)JOB_BATCH * JOB_HEADS * 4), 0);
  }
  if (j->flags & JOB_MASKS) {
    j->args.bias = clattn_buffer(make_buffer(cl, pairs * 4), 0);
    j->args.keep_mask = clattn_buffer(make_buffer(cl, pairs), 0);
  }
  if (j->flags & JOB_RULES) {
    j->args.block_mask = clattn_buffer(make_buffer(cl, (size_t)JOB_BATCH * JOB_HEADS * (JOB_ROWS / 8) * 2 * 4), 0);
    j->args.alibi_slopes = clattn_buffer(make_buffer(cl, JOB_HEADS * 4), 0);
    j->args.sink = clattn_buffer(make_buffer(cl, JOB_HEADS * 4), 0);
  }
  if (j->flags & JOB_PAGED)
    j->args.page_table = clattn_buffer(make_filled_buffer(cl, sizeof j->page_table, j->page_table), 0);
  if (j->flags & JOB_DEVICE)
    job_device(j, cl);
}

void job_workspace(job *j, cl_context cl, const clattn_plan *plan) {
  clattn_plan_info info;
  clattn_plan_info_init(&info);
  assert_int_equal(clattn_plan_get_info(plan, &info), CLATTN_SUCCESS);
  assert_true(info.workspace_bytes > 0);
  j->args.workspace = clattn_buffer(make_buffer(cl, (size_t)info.workspace_bytes), 0);
}

void job_ask_launch_events(job *j) {
  j->args.launch_events = j->launch_events;
  j->args.launch_events_capacity = JOB_LAUNCHES;
  j->args.num_launch_events = &j->num_launch_events;
}

void job_release_launch_events(job *j) {
  for (uint32_t i = 0; i < j->num_launch_events; ++i)
    assert_int_equal(clReleaseEvent(j->launch_events[i]), CL_SUCCESS);
  j->num_launch_events = 0;
}

void job_free(job *j) {
  clattn_args *const a = &j->args;
  clattn_mem *const all[] = {&a->q,
                             &a->k,
                             &a->v,
                             &a->o,
                             &a->lse,
                             &a->scores,
                             &a->max_logit,
                             &a->bias,
                             &a->keep_mask,
                             &a->workspace,
                             &a->block_mask,
                             &a->alibi_slopes,
                             &a->sink,
                             &a->page_table,
                             &a->head_scale,
                             &a->add_w,
                             &a->k_scale,
                             &a->v_scale,
                             &a->hook_buffer[0],
                             &a->hook_buffer[1],
                             &a->hook_buffer[2],
                             &a->hook_buffer[3],
                             &a->hook_scalar[0].device,
                             &a->hook_scalar[1].device,
                             &a->hook_scalar[2].device,
                             &a->hook_scalar[3].device,
                             &a->scale.device,
                             &a->softcap.device,
                             &a->q_lengths.device,
                             &a->k_lengths.device,
                             &a->q_offsets.device,
                             &a->prefix.device,
                             &a->cu_seqlens_q.device,
                             &a->cu_seqlens_k.device};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i)
    if (all[i]->buffer) {
      assert_int_equal(clReleaseMemObject(all[i]->buffer), CL_SUCCESS);
      *all[i] = (clattn_mem){0};
    }
  job_release_launch_events(j);
}

cl_event make_user_event(cl_context cl) {
  cl_int code;
  const cl_event event = clCreateUserEvent(cl, &code);
  assert_int_equal(code, CL_SUCCESS);
  return event;
}

void run_user_event(cl_event event) {
  assert_int_equal(clSetUserEventStatus(event, CL_COMPLETE), CL_SUCCESS);
  assert_int_equal(clReleaseEvent(event), CL_SUCCESS);
}

/* ---- dependencies ---- */

void history_take(history *h) {
  h->count = stub->commands();
  h->commands = calloc((size_t)h->count + 1, sizeof *h->commands);
  assert_non_null(h->commands);
  for (uint64_t i = 0; i < h->count; ++i)
    assert_int_equal(stub->command(i, &h->commands[i]), 1);
}

void history_free(history *h) {
  free(h->commands);
  h->commands = NULL;
  h->count = 0;
}

uint64_t history_launches(const history *h) {
  uint64_t launches = 0;
  for (uint64_t i = 0; i < h->count; ++i)
    launches += h->commands[i].type == CL_COMMAND_NDRANGE_KERNEL;
  return launches;
}

/* 1: command i itself names `earlier`, or the queue orders it so. */
static int waits_directly(const history *h, uint64_t i, uint64_t earlier) {
  const stub_command *const command = &h->commands[i];
  for (cl_uint w = 0; w < command->num_waits; ++w)
    if (command->waits[w] == earlier)
      return 1;
  if (command->barrier && command->barrier == earlier)
    return 1;
  if (command->in_order || command->after_all)
    for (uint64_t k = 0; k < i; ++k)
      if (h->commands[k].id == earlier)
        return h->commands[k].queue == command->queue;
  return 0;
}

int history_waits(const history *h, uint64_t later, uint64_t earlier) {
  /* reached[i]: `later` waits for command i.  Commands only wait for earlier ones, so one pass downwards is enough. */
  unsigned char *const reached = calloc((size_t)h->count + 1, 1);
  assert_non_null(reached);
  int found = 0;
  for (uint64_t i = h->count; i-- > 0;) {
    if (h->commands[i].id == later)
      reached[i] = 1;
    if (!reached[i])
      continue;
    found |= waits_directly(h, i, earlier);
    for (uint64_t k = 0; k < i; ++k)
      reached[k] |= (unsigned char)waits_directly(h, i, h->commands[k].id);
  }
  free(reached);
  return found;
}

/* 1: the two commands use a buffer in common that one of them writes. */
static int conflict(const stub_command *a, const stub_command *b) {
  for (cl_uint i = 0; i < a->num_args; ++i)
    for (cl_uint k = 0; k < b->num_args; ++k)
      if (a->args[i].root && a->args[i].root == b->args[k].root &&
          !(a->args[i].declared_const && b->args[k].declared_const))
        return 1;
  return 0;
}

void assert_ordered(const history *h) {
  for (uint64_t i = 0; i < h->count; ++i)
    for (uint64_t k = 0; k < i; ++k) {
      const stub_command *const later = &h->commands[i], *const earlier = &h->commands[k];
      if (later->type != CL_COMMAND_NDRANGE_KERNEL || earlier->type != CL_COMMAND_NDRANGE_KERNEL)
        continue;
      if (conflict(later, earlier) && !history_waits(h, later->id, earlier->id))
        fail_msg("launch %llu (%s) does not wait for launch %llu (%s), and they share a buffer that one writes",
                 (unsigned long long)i, later->kernel, (unsigned long long)k, earlier->kernel);
    }
}
