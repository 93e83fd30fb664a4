/* SPDX-License-Identifier: Apache-2.0 */
/* Questions about what one vendor's devices have, and about pointers, which decide how that is used. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probe.h"

/* ---- NVIDIA's assembler ---- */

/* Which spelling of the keyword compiles, as a build option; NULL: none. */
static const char *spelling(probe *p) {
  static const char *const options[] = {"-DPROBE_ASM=__asm__", "-DPROBE_ASM=asm"};
  for (int i = 0; i < 2; i++)
    if (probe_build(p, "ptx", options[i], "ptx"))
      return options[i];
  return NULL;
}

/* 1 on a device that takes the question; else the answer says why it is not asked. */
static int is_nvidia(probe *p, uint32_t capability) {
  if (!probe_is(p, "NVIDIA"))
    probe_answer(p, "not asked: no NVIDIA device");
  else if (probe_compute_capability(p) < capability)
    probe_answer(p, "not asked: needs compute capability %u.%u", capability / 10, capability % 10);
  else
    return 1;
  return 0;
}

static void ask_ptx(probe *p) {
  static const char *const options[] = {"-DPROBE_ASM=asm", "-DPROBE_ASM=__asm__"};
  int builds[2] = {0, 0}, right = 0;
  if (!is_nvidia(p, 0))
    return;
  for (int i = 0; i < 2; i++) {
    uint32_t got[64] = {0};
    int wrong = 0;
    builds[i] = probe_build(p, "ptx", options[i], "ptx");
    if (!builds[i])
      continue;
    const cl_mem out = probe_buffer(p, sizeof got, NULL);
    if (!probe_arguments(p, &out, 1) || !probe_run(p, 64, 64) || !probe_read(p, out, sizeof got, got))
      return;
    for (uint32_t n = 0; n < 64; n++)
      wrong += got[n] != n % 32;
    right += wrong == 0;
  }
  probe_detail(p, "asm volatile %s, __asm__ volatile %s", builds[0] ? "compiles" : "does not compile",
               builds[1] ? "compiles" : "does not compile");
  probe_answer(p, "%s",
               right == 0                       ? "no"
               : right == builds[0] + builds[1] ? "yes, and lanes are numbered in order"
                                                : "yes, but lanes are numbered otherwise");
}

/* ---- pointers ---- */

/* Asks for the number of a __local pointer; needs a program in plain OpenCL C. */
static int pointer_numbers(probe *p, const char *options, uint64_t numbers[6]) {
  const cl_mem out = probe_buffer(p, 6 * sizeof numbers[0], NULL);
  return probe_need(p, "local_pointer", options, "local_pointer") && probe_arguments(p, &out, 1) &&
         probe_run(p, 64, 64) && probe_read(p, out, 6 * sizeof numbers[0], numbers);
}

static int is_offset(const probe *p, const uint64_t numbers[6]) {
  return numbers[0] < probe_number(p, CL_DEVICE_LOCAL_MEM_SIZE);
}

static void ask_local_pointer(probe *p) {
  uint64_t n[6] = {0};
  char options[64];
  const char *keyword = probe_is(p, "NVIDIA") ? spelling(p) : NULL;
  (void)snprintf(options, sizeof options, "%s%s", keyword != NULL ? "-DPROBE_CVTA " : "",
                 keyword != NULL ? keyword : "");
  if (!pointer_numbers(p, options, n))
    return;
  probe_detail(
      p, "two arrays at 0x%" PRIx64 " and 0x%" PRIx64 ", a global buffer at 0x%" PRIx64 ", size_t of %" PRIu64 " bytes",
      n[0], n[1], n[2], n[3]);
  if (n[4] != 1063 + 2063)
    probe_detail(p, "the arrays read back WRONG");
  if (keyword != NULL)
    probe_detail(p, "cvta.to.shared of the first gives 0x%" PRIx64, n[5]);
  probe_answer(p, "%s", is_offset(p, n) ? "an offset into local memory" : "an address");
}

/* Build options of kernels that use the shared window: what the pointer's number asks for.  0: no assembler. */
static int shared_options(probe *p, char *options, size_t capacity) {
  uint64_t n[6] = {0};
  const char *keyword = spelling(p);
  if (keyword == NULL) {
    probe_answer(p, "no: the compiler does not take PTX");
    return 0;
  }
  if (!pointer_numbers(p, "", n))
    return 0;
  (void)snprintf(options, capacity, "%s%s", keyword, is_offset(p, n) ? "" : " -DPROBE_CVTA");
  probe_detail(p, "addresses %s", is_offset(p, n) ? "as the pointer is" : "by cvta");
  return 1;
}

static void ask_ld_shared(probe *p) {
  uint32_t got[64] = {0};
  char options[64];
  int wrong = 0;
  if (!is_nvidia(p, 0) || !shared_options(p, options, sizeof options))
    return;
  if (!probe_build(p, "ld_shared", options, "ld_shared")) {
    probe_answer(p, "no: ld.shared does not compile");
    return;
  }
  const cl_mem out = probe_buffer(p, sizeof got, NULL);
  if (!probe_arguments(p, &out, 1) || !probe_run(p, 64, 64) || !probe_read(p, out, sizeof got, got))
    return;
  for (uint32_t i = 0; i < 64; i++)
    wrong += got[i] != 3063 - i;
  probe_answer(p, wrong == 0 ? "right" : "WRONG: %d of 64 words", wrong);
}

/* ---- NVIDIA's asynchronous copies ---- */

enum { COPY_GROUPS = 1024, COPY_LANES = 128, COPY_STAGES = 4, COPY_WORDS = 4 };

static int wrong_copies(const uint32_t *got, uint32_t apart, int stage) {
  int wrong = 0;
  for (uint32_t at = 0; at < COPY_GROUPS * COPY_LANES; at++)
    for (uint32_t w = 0; w < COPY_WORDS; w++) {
      const uint32_t lane = at % COPY_LANES, from = stage == 3 ? at - lane + COPY_LANES - 1 - lane : at;
      uint32_t want = COPY_WORDS * ((uint32_t)stage * apart + from) + w;
      if (stage == 2 && lane % 2 == 1)
        want = 0;
      wrong += got[COPY_WORDS * (COPY_STAGES * at + (uint32_t)stage) + w] != want;
    }
  return wrong;
}

static void ask_cp_async(probe *p) {
  const uint32_t apart = 4 << 18; /* 16 MiB of elements of 16 bytes */
  const size_t elements = (size_t)apart * (COPY_STAGES - 1) + (size_t)COPY_GROUPS * COPY_LANES;
  const size_t results = (size_t)COPY_GROUPS * COPY_LANES * COPY_STAGES;
  uint32_t *in = NULL, *got = NULL;
  int wrong[COPY_STAGES], all = 0;
  char options[64];
  if (!is_nvidia(p, 80) || !shared_options(p, options, sizeof options))
    return;
  if (!probe_build(p, "cp_async", options, "cp_async")) {
    probe_answer(p, "no: cp.async does not compile");
    return;
  }
  in = malloc(elements * 16);
  got = malloc(results * 16);
  if (in == NULL || got == NULL) {
    probe_fail(p, CL_OUT_OF_HOST_MEMORY, "sources");
    goto done;
  }
  for (size_t i = 0; i < elements * COPY_WORDS; i++)
    in[i] = (uint32_t)i;
  const cl_mem from = probe_buffer(p, elements * 16, in), to = probe_buffer(p, results * 16, NULL);
  if (clSetKernelArg(p->kernel, 2, sizeof apart, &apart) != CL_SUCCESS)
    probe_fail(p, CL_INVALID_ARG_VALUE, "an argument");
  if (!probe_arguments(p, (const cl_mem[]){from, to}, 2) ||
      !probe_run(p, (size_t)COPY_GROUPS * COPY_LANES, COPY_LANES) || !probe_read(p, to, results * 16, got))
    goto done;
  for (int stage = 0; stage < COPY_STAGES; stage++) {
    wrong[stage] = wrong_copies(got, apart, stage);
    all += wrong[stage];
  }
  probe_detail(
      p, "words wrong after wait_group 3, 2, 1 (every second lane filled with zeros) and wait_all: %d, %d, %d, %d",
      wrong[0], wrong[1], wrong[2], wrong[3]);
  probe_answer(p, "%s", all == 0 ? "complete as waited for" : "NOT complete as waited for");
done:
  free(in);
  free(got);
}

/* ---- products of matrices ---- */

enum { MOST = 16 * 16 };

typedef struct product {
  int rows, columns;
  uint16_t a[MOST], b[MOST]; /* rows x 16, 16 x columns */
  float c[MOST];
  double d[MOST];
} product;

/* Eighths from -15/8 to 15/8: exact in f16 and bf16, their products and sums in f32. */
static void make_product(product *of, int rows, int columns, int bf16) {
  uint32_t state = 1;
  double a[MOST], b[MOST];
  of->rows = rows;
  of->columns = columns;
  for (int i = 0; i < MOST; i++) {
    float x[3];
    for (int n = 0; n < 3; n++) {
      state = state * 1664525u + 1013904223u;
      x[n] = (float)((int)(state >> 24) % 31 - 15) / 8;
    }
    uint32_t bits[2];
    memcpy(bits, x, sizeof bits);
    of->a[i] = bf16 ? (uint16_t)(bits[0] >> 16) : probe_half_bits(x[0]);
    of->b[i] = bf16 ? (uint16_t)(bits[1] >> 16) : probe_half_bits(x[1]);
    a[i] = x[0];
    b[i] = x[1];
    of->c[i] = x[2];
  }
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < columns; j++) {
      double sum = of->c[i * columns + j];
      for (int k = 0; k < 16; k++)
        sum += a[i * 16 + k] * b[k * columns + j];
      of->d[i * columns + j] = sum;
    }
}

/* Runs the built kernel with a, b, c, d and perhaps a number; how many elements are wrong, or -1. */
static int run_product(probe *p, const product *of, size_t lanes, const cl_int *number) {
  const size_t floats = (size_t)of->rows * (size_t)of->columns * sizeof(float);
  float got[MOST] = {0};
  int wrong = 0;
  const cl_mem list[4] = {probe_buffer(p, (size_t)of->rows * 32, of->a),
                          probe_buffer(p, (size_t)of->columns * 32, of->b), probe_buffer(p, floats, of->c),
                          probe_buffer(p, floats, NULL)};
  if (number != NULL && clSetKernelArg(p->kernel, 4, sizeof *number, number) != CL_SUCCESS)
    probe_fail(p, CL_INVALID_ARG_VALUE, "an argument");
  if (!probe_arguments(p, list, 4) || !probe_run(p, lanes, lanes) || !probe_read(p, list[3], floats, got))
    return -1;
  for (int i = 0; i < of->rows * of->columns; i++)
    if (!((double)got[i] - of->d[i] <= 0 && (double)got[i] - of->d[i] >= 0) && wrong++ == 0)
      probe_detail(p, "row %d, column %d is %g, not %g", i / of->columns, i % of->columns, (double)got[i], of->d[i]);
  return wrong;
}

static void say_product(probe *p, const product *of, int wrong) {
  if (wrong == 0)
    probe_answer(p, "yes, and the layout is right: equal to the double-precision product");
  else if (wrong > 0)
    probe_answer(p, "it compiles, and the layout is WRONG: %d of %d elements", wrong, of->rows * of->columns);
}

static void ask_mma(probe *p, int bf16) {
  char options[128];
  product of;
  int wrong[2] = {0, 0};
  if (!is_nvidia(p, 80) || !shared_options(p, options, sizeof options))
    return;
  (void)snprintf(options + strlen(options), sizeof options - strlen(options), " -DPROBE_TYPE=%s",
                 bf16 ? "bf16" : "f16");
  if (!probe_build(p, "mma", options, "mma")) {
    probe_answer(p, "no: ldmatrix or mma.sync does not compile");
    return;
  }
  make_product(&of, 16, 8, bf16);
  for (cl_int by_rows = 0; by_rows < 2; by_rows++) {
    wrong[by_rows] = run_product(p, &of, 32, &by_rows);
    if (wrong[by_rows] < 0)
      return;
  }
  probe_detail(p, "wrong with B by columns %d, by rows (ldmatrix.trans) %d", wrong[0], wrong[1]);
  say_product(p, &of, wrong[0] + wrong[1]);
}

static void ask_mma_f16(probe *p) {
  ask_mma(p, 0);
}

static void ask_mma_bf16(probe *p) {
  ask_mma(p, 1);
}

/* AMD's devices go by names like gfx90a:sramecc+:xnack-. */
static int is_gfx(const probe *p, const char *const *names) {
  for (; *names != NULL; names++)
    if (strstr(p->session.device.name, *names) != NULL)
      return 1;
  return 0;
}

static void ask_builtin(probe *p, const char *file, const char *options, size_t lanes) {
  product of;
  if (!probe_build(p, file, options, "matrix")) {
    probe_answer(p, "no: the built-in function does not compile");
    return;
  }
  make_product(&of, 16, 16, 0);
  say_product(p, &of, run_product(p, &of, lanes, NULL));
}

static void ask_wmma(probe *p) {
  static const char *const eleven[] = {"gfx11", NULL}, *const twelve[] = {"gfx12", NULL};
  if (is_gfx(p, eleven))
    ask_builtin(p, "wmma", "-DPROBE_GFX=11", 32);
  else if (is_gfx(p, twelve))
    ask_builtin(p, "wmma", "-DPROBE_GFX=12", 32);
  else
    probe_answer(p, "not asked: no AMD device of gfx11 or gfx12");
}

static void ask_mfma(probe *p) {
  static const char *const names[] = {"gfx908", "gfx90a", "gfx94", "gfx95", NULL};
  if (is_gfx(p, names))
    ask_builtin(p, "mfma", "", 64);
  else
    probe_answer(p, "not asked: no AMD device of gfx908, gfx90a, gfx94 or gfx95");
}

static void ask_dpas(probe *p) {
  size_t sizes[8] = {0}, bytes = 0, lanes = 16;
  product of;
  if (!probe_has(p, "cl_intel_subgroup_matrix_multiply_accumulate")) {
    probe_answer(p, "not asked: no cl_intel_subgroup_matrix_multiply_accumulate");
    return;
  }
  if (clGetDeviceInfo(p->device, 0x4108 /* CL_DEVICE_SUB_GROUP_SIZES_INTEL */, sizeof sizes, sizes, &bytes) !=
      CL_SUCCESS)
    bytes = 0;
  /* Its sub-group is the smallest that the device has: 8 or 16. */
  for (size_t i = 0; i < bytes / sizeof sizes[0]; i++)
    if (sizes[i] == 8)
      lanes = 8;
  probe_detail(p, "sub-groups of %zu", lanes);
  const char *plain = lanes == 8 ? "-DPROBE_SIZE=8" : "-DPROBE_SIZE=16";
  const char *declared = lanes == 8 ? "-DPROBE_SIZE=8 -DPROBE_DECLARE" : "-DPROBE_SIZE=16 -DPROBE_DECLARE";
  if (!probe_build(p, "dpas", plain, "dpas") && !probe_build(p, "dpas", declared, "dpas")) {
    probe_answer(p, "no: listed, and does not compile");
    return;
  }
  make_product(&of, 8, (int)lanes, 0);
  say_product(p, &of, run_product(p, &of, lanes, NULL));
}

const probe_question probe_vendor[] = {
    {"local_pointer", "What is a __local pointer as a number?", ask_local_pointer},
    {"ptx", "Does the compiler take inline PTX?", ask_ptx},
    {"ld_shared", "Does ld.shared read at the address made of a __local pointer?", ask_ld_shared},
    {"cp_async", "Do asynchronous copies complete as wait_group says?", ask_cp_async},
    {"mma_f16", "Are ldmatrix and mma.sync m16n8k16 of f16 laid out as expected?", ask_mma_f16},
    {"mma_bf16", "Are ldmatrix and mma.sync m16n8k16 of bf16 laid out as expected?", ask_mma_bf16},
    {"wmma", "Does the compiler take AMD's WMMA, laid out as expected?", ask_wmma},
    {"mfma", "Does the compiler take AMD's MFMA, laid out as expected?", ask_mfma},
    {"dpas", "Does the compiler take Intel's sub-group matrix product, laid out as expected?", ask_dpas},
    {NULL, NULL, NULL}};
