/* SPDX-License-Identifier: Apache-2.0 */
/* Offsets are products and sums of 64 bits: what the kernels' headers compute, and strides as large as buffers can
 * be. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, MAP_NORESERVE */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "clattn_ref.h"
#include "device_flat.h"
#include "device_judge.h"
#include "params.cl.h"

/* ---- the headers' own functions --------------------------------------------------------------------------------- */

/* Rows of k (strided, packed, paged), of other tensors, and numbers of heads, at indices that only 64 bits hold. */
static const char offsets_source[] =
    "#include \"kv.cl.h\"\n"
    "__kernel void offsets(const clattn_params p, __global const int *table, __global long *out) {\n"
    "  clattn_params paged = p;\n"
    "  const clattn_kv kv = {p.batch, p.q_heads, 7, table};\n"
    "  paged.page_size = 16;\n"
    "  out[0] = clattn_kv_row(&p, &p.k, kv, p.k_len);\n"
    "  out[1] = clattn_kv_row(&paged, &p.k, kv, 5 * 16 + 9);\n"
    "  out[2] = clattn_row(&p.q, p.batch, p.q_heads, p.q_len);\n"
    "  out[3] = clattn_of_head(&p.slopes, p.batch, p.q_heads);\n"
    "}\n";

void offsets_are_64_bits_wide(void **state) {
  (void)state;
  enum { BATCH = 70000, HEADS = 50000, ROWS = 2000000000, KEYS = 2100000000, PAGE_OF_5 = 1000000 };
  const clattn_view view = {INT64_C(0x100000001), 70001, 65537, 3, 11};
  const clattn_head_view slopes = {INT64_C(0x100000003), 99991, 13};
  const cl_int table[6] = {0, 0, 0, 0, 0, PAGE_OF_5};
  const char *source = offsets_source;
  const int64_t front = view.first + HEADS * view.head;
  const int64_t want[4] = {front + BATCH * view.batch + (KEYS + INT64_C(7)) * view.row,
                           front + PAGE_OF_5 * view.batch + 9 * view.row, front + BATCH * view.batch + ROWS * view.row,
                           slopes.first + BATCH * slopes.batch + HEADS * slopes.head};
  clattn_params params;
  cl_long got[4] = {0, 0, 0, 0};
  cl_int code;
  memset(&params, 0, sizeof params);
  params.q = params.k = view;
  params.slopes = slopes;
  params.batch = BATCH;
  params.q_heads = HEADS;
  params.q_len = ROWS;
  params.k_len = KEYS;
  params.num_pages = PAGE_OF_5 + 1;
  cl_program program = clCreateProgramWithSource(rig.cl, 1, &source, NULL, &code);
  assert_int_equal(code, CL_SUCCESS);
  assert_int_equal(clBuildProgram(program, 1, &rig.device, "-I " CLATTN_SOURCE_DIR "/kernels", NULL, NULL), CL_SUCCESS);
  cl_kernel kernel = clCreateKernel(program, "offsets", &code);
  assert_int_equal(code, CL_SUCCESS);
  cl_mem pages = clCreateBuffer(rig.cl, CL_MEM_READ_ONLY, sizeof table, NULL, &code);
  assert_int_equal(code, CL_SUCCESS);
  cl_mem out = clCreateBuffer(rig.cl, CL_MEM_WRITE_ONLY, sizeof got, NULL, &code);
  assert_int_equal(code, CL_SUCCESS);
  const size_t one = 1;
  assert_int_equal(clEnqueueWriteBuffer(rig.queue, pages, CL_TRUE, 0, sizeof table, table, 0, NULL, NULL), CL_SUCCESS);
  assert_int_equal(clSetKernelArg(kernel, 0, sizeof params, &params), CL_SUCCESS);
  assert_int_equal(clSetKernelArg(kernel, 1, sizeof pages, &pages), CL_SUCCESS);
  assert_int_equal(clSetKernelArg(kernel, 2, sizeof out, &out), CL_SUCCESS);
  assert_int_equal(clEnqueueNDRangeKernel(rig.queue, kernel, 1, NULL, &one, &one, 0, NULL, NULL), CL_SUCCESS);
  assert_int_equal(clEnqueueReadBuffer(rig.queue, out, CL_TRUE, 0, sizeof got, got, 0, NULL, NULL), CL_SUCCESS);
  for (size_t n = 0; n < 4; ++n)
    if (got[n] != want[n])
      fail_msg("offset %zu is %" PRId64 ", not %" PRId64, n, (int64_t)got[n], want[n]);
  assert_int_equal(clReleaseMemObject(pages) | clReleaseMemObject(out) | clReleaseKernel(kernel) |
                       clReleaseProgram(program),
                   CL_SUCCESS);
}

/* ---- strides as large as the device's buffers ------------------------------------------------------------------- */

/* A buffer of which a few pages are ever touched. */
typedef struct sparse {
  unsigned char *memory;
  size_t bytes;
  cl_mem buffer;
} sparse;

static int sparse_map(size_t bytes, sparse *out) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return 0;
  out->memory = memory;
  out->bytes = bytes;
  return 1;
}

static int sparse_buffer(sparse *out) {
  cl_int code;
  out->buffer = clCreateBuffer(rig.cl, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, out->bytes, out->memory, &code);
  return code == CL_SUCCESS;
}

static void sparse_close(sparse *closing) {
  if (closing->buffer != NULL)
    (void)clReleaseMemObject(closing->buffer);
  (void)munmap(closing->memory, closing->bytes);
}

/* Elements that the largest buffer to be had holds beyond one of row 0: more than 2^31 where the device allows it. */
static int64_t widest_step(size_t element, int64_t steps) {
  clattn_device_info info;
  clattn_device_info_init(&info);
  assert_int_equal(clattn_context_device_info(rig.context, &info), CLATTN_SUCCESS);
  const int64_t most = (int64_t)(info.max_alloc_bytes / element) - 64, wanted = INT64_C(0x80000000) / steps + 9;
  return most / steps < wanted ? most / steps : wanted;
}

/* One of q, k, v, o, the bias and the mask after the other has its rows that far apart. */
void rows_far_apart(void **state) {
  (void)state;
  enum { ROWS = 3, DIM = 4, WIDE = 6 };
  static const char *const names[WIDE] = {"q", "k", "v", "o", "bias", "mask"};
  size_t passed = 0;
  for (int wide = 0; wide < WIDE; ++wide) {
    const size_t element = wide == 5 ? 1 : sizeof(float);
    const int64_t step = widest_step(element, ROWS - 1), columns = wide < 4 ? DIM : ROWS;
    char line[256];
    sparse far = {NULL, 0, NULL};
    float values[5][ROWS * DIM];
    double want[ROWS * DIM];
    unsigned char mask[ROWS * ROWS] = {1, 0, 1, 1, 1, 0, 0, 1, 1};
    clattn_problem problem;
    clattn_ref_args ref;
    assert_true(sparse_map((size_t)(step * (ROWS - 1) + columns) * element, &far));
    if (step * (ROWS - 1) <= INT32_MAX)
      print_message("%s: the device's largest buffer ends at element %" PRId64 ", within 32 bits\n", names[wide],
                    step * (ROWS - 1));
    for (size_t n = 0; n < 5; ++n)
      flat_fill(values[n], ROWS * DIM, 20 + n);
    assert_int_equal(clattn_problem_parse("sq=3 sk=3 d=4 bias=f32 mask=u8", &problem, NULL), CLATTN_SUCCESS);
    clattn_ref_args_init(&ref);
    ref.q = values[0];
    ref.k = values[1];
    ref.v = values[2];
    ref.bias = values[4];
    ref.keep_mask = mask;
    ref.o = want;
    assert_int_equal(clattn_ref_attention(&problem, &ref), CLATTN_SUCCESS);
    (void)snprintf(line, sizeof line, "sq=3 sk=3 d=4%s%s %s=%s:strided:0,0,%" PRId64 ",1", wide == 4 ? "" : " bias=f32",
                   wide == 5 ? "" : " mask=u8", names[wide], wide == 5 ? "u8" : "f32", step);
    assert_int_equal(clattn_problem_parse(line, &problem, NULL), CLATTN_SUCCESS);
    for (size_t r = 0; wide != 3 && r < ROWS; ++r)
      memcpy(far.memory + r * (size_t)step * element,
             wide == 5 ? (const void *)(mask + r * ROWS) : values[wide] + r * (size_t)columns,
             (size_t)columns * element);
    assert_true(sparse_buffer(&far));
    for (uint32_t n = 0; n < variant_count; ++n) {
      clattn_args args;
      clattn_plan *plan = NULL;
      clattn_plan_options options;
      clattn_error error;
      cl_mem near[WIDE] = {NULL};
      if (!variants[n].usable)
        continue;
      clattn_args_init(&args);
      clattn_error_init(&error);
      clattn_plan_options_init(&options);
      args.error = &error;
      options.variant = variants[n].name;
      clattn_mem *const mem[WIDE] = {&args.q, &args.k, &args.v, &args.o, &args.bias, &args.keep_mask};
      for (int t = 0; t < WIDE; ++t) {
        cl_int code = CL_SUCCESS;
        if (t != wide)
          near[t] =
              clCreateBuffer(rig.cl, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, t == 5 ? sizeof mask : sizeof values[t],
                             t == 5 ? (void *)mask : (void *)values[t], &code);
        assert_int_equal(code, CL_SUCCESS);
        *mem[t] = clattn_buffer(t == wide ? far.buffer : near[t], 0);
      }
      if (clattn_plan_create(rig.context, &problem, &options, &plan, &error) != CLATTN_SUCCESS ||
          clattn_enqueue(plan, rig.queue, &args, 0, NULL, NULL) != CLATTN_SUCCESS)
        fail_msg("%s, %s: %s", line, variants[n].name, error.message);
      for (size_t r = 0; r < ROWS; ++r) {
        float o[DIM];
        const size_t at = r * (wide == 3 ? (size_t)step : DIM) * sizeof(float);
        assert_int_equal(clEnqueueReadBuffer(rig.queue, args.o.buffer, CL_TRUE, at, sizeof o, o, 0, NULL, NULL),
                         CL_SUCCESS);
        for (size_t d = 0; d < DIM; ++d, ++passed)
          if (!(fabs((double)o[d] - want[r * DIM + d]) <= 1e-5))
            fail_msg("%s, %s: o[%zu,%zu] is %.9g, not %.9g", line, variants[n].name, r, d, (double)o[d],
                     want[r * DIM + d]);
      }
      for (int t = 0; t < WIDE; ++t)
        if (near[t] != NULL)
          assert_int_equal(clReleaseMemObject(near[t]), CL_SUCCESS);
      clattn_plan_release(plan);
    }
    sparse_close(&far);
  }
  assert_true(passed > 0);
}
