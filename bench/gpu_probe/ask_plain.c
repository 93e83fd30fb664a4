/* SPDX-License-Identifier: Apache-2.0 */
/* Questions that make sense on every device. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clattn.h"
#include "probe.h"

enum { HALVES = 65536, LANES = 64 };

/* ---- what the device says of itself ---- */

static void ask_device(probe *p) {
  static const struct {
    const char *name;
    cl_device_info what;
  } facts[] = {{"compute units", CL_DEVICE_MAX_COMPUTE_UNITS},
               {"MHz", CL_DEVICE_MAX_CLOCK_FREQUENCY},
               {"largest work-group", CL_DEVICE_MAX_WORK_GROUP_SIZE},
               {"local memory bytes", CL_DEVICE_LOCAL_MEM_SIZE},
               {"local memory type (1 local, 2 global)", CL_DEVICE_LOCAL_MEM_TYPE},
               {"global cache bytes", CL_DEVICE_GLOBAL_MEM_CACHE_SIZE},
               {"cache line bytes", CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE},
               {"float abilities (bits)", CL_DEVICE_SINGLE_FP_CONFIG},
               {"NVIDIA registers a work-group", 0x4002},
               {"NVIDIA warp", 0x4003},
               {"AMD wavefront", 0x4043},
               {"AMD SIMDs a compute unit", 0x4040},
               {"AMD GFX major", 0x404A},
               {"AMD GFX minor", 0x404B}};
  const uint32_t capability = probe_compute_capability(p);
  probe_answer(p, "%s, %s, driver %s", p->session.device.name, p->session.info.version, p->session.info.driver);
  if (capability > 0)
    probe_detail(p, "compute capability %u.%u", capability / 10, capability % 10);
  for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++) {
    const uint64_t number = probe_number(p, facts[i].what);
    if (number > 0)
      probe_detail(p, "%s %llu", facts[i].name, (unsigned long long)number);
  }
  probe_detail(p, "%s", p->extensions);
}

/* ---- f16 in memory ---- */

/* NaN is NaN; zeros have signs. */
static int same(float a, float b) {
  uint32_t x, y;
  memcpy(&x, &a, sizeof x);
  memcpy(&y, &b, sizeof y);
  return (isnan(a) && isnan(b)) || x == y;
}

/* All patterns are loaded; stored are their values, and what lies between two and beside the middle. */
static void ask_half_storage(probe *p) {
  enum { STORED = 4 * HALVES };
  uint16_t *bits = malloc(STORED * sizeof *bits);
  float *values = malloc(STORED * sizeof *values);
  int wrong_loads = 0, wrong_stores = 0, nans = 0;
  if (bits == NULL || values == NULL) {
    probe_fail(p, CL_OUT_OF_HOST_MEMORY, "patterns");
    goto done;
  }
  for (int i = 0; i < HALVES; i++)
    bits[i] = (uint16_t)i;
  cl_mem in = probe_buffer(p, HALVES * sizeof *bits, bits), out = probe_buffer(p, HALVES * sizeof *values, NULL);
  if (!probe_need(p, "half_storage", "", "load_halves") || !probe_arguments(p, (const cl_mem[]){in, out}, 2) ||
      !probe_run(p, HALVES, 1) || !probe_read(p, out, HALVES * sizeof *values, values))
    goto done;
  for (int i = 0; i < HALVES; i++)
    if (!same(values[i], probe_half_value((uint16_t)i)) && wrong_loads++ == 0)
      probe_detail(p, "pattern 0x%04x loads as %a", (unsigned)i, (double)values[i]);
  for (int i = 0; i < HALVES; i++) {
    const float from = probe_half_value((uint16_t)i);
    const float next = probe_half_value((uint16_t)(i + 1));
    const float middle =
        isfinite(from) && isfinite(next) && signbit(from) == signbit(next) ? from + (next - from) / 2 : from;
    values[4 * i] = from;
    values[4 * i + 1] = middle;
    values[4 * i + 2] = nextafterf(middle, -INFINITY);
    values[4 * i + 3] = nextafterf(middle, INFINITY);
  }
  in = probe_buffer(p, STORED * sizeof *values, values);
  out = probe_buffer(p, STORED * sizeof *bits, NULL);
  if (!probe_need(p, "half_storage", "", "store_halves") || !probe_arguments(p, (const cl_mem[]){in, out}, 2) ||
      !probe_run(p, STORED, 1) || !probe_read(p, out, STORED * sizeof *bits, bits))
    goto done;
  for (int i = 0; i < STORED; i++) {
    nans += isnan(values[i]) && isnan(probe_half_value(bits[i]));
    if (!isnan(values[i]) && bits[i] != probe_half_bits(values[i]) && wrong_stores++ == 0)
      probe_detail(p, "%a is stored as 0x%04x, not 0x%04x", (double)values[i], (unsigned)bits[i],
                   (unsigned)probe_half_bits(values[i]));
    wrong_stores += isnan(values[i]) && !isnan(probe_half_value(bits[i]));
  }
  probe_detail(p, "%d NaNs stay NaN", nans);
  probe_detail(p, "cl_khr_fp16 %s", probe_has(p, "cl_khr_fp16") ? "is there" : "is not there");
  if (wrong_loads == 0 && wrong_stores == 0)
    probe_answer(p, "exact: %d patterns loaded, %d numbers stored", HALVES, (int)STORED);
  else
    probe_answer(p, "wrong: %d of %d loads, %d of %d stores", wrong_loads, HALVES, wrong_stores, (int)STORED);
done:
  free(bits);
  free(values);
}

/* ---- sub-groups ---- */

/* The size that every work-item of a group of 64 reports, 0 if they differ or don't number their lanes so. */
static uint32_t sub_group_size(probe *p, int *consecutive) {
  uint32_t got[3 * LANES] = {0};
  const size_t lanes = probe_group_size(p, LANES);
  const cl_mem out = probe_buffer(p, sizeof got, NULL);
  *consecutive = 1;
  if (!probe_arguments(p, &out, 1) || !probe_run(p, lanes, lanes) || !probe_read(p, out, sizeof got, got))
    return 0;
  for (size_t i = 0; i < lanes; i++) {
    if (got[3 * i] != got[0])
      return 0;
    *consecutive &= got[3 * i + 2] == i % got[0] && got[3 * i + 1] == i / got[0];
  }
  return got[0];
}

static void ask_sub_groups(probe *p) {
  const int intel = probe_has(p, "cl_intel_subgroups"), required = probe_has(p, "cl_intel_required_subgroup_size");
  size_t sizes[8] = {0}, bytes = 0, multiple = 0;
  int consecutive = 1, honoured = 1;
  char text[128] = "", options[96];
  if (probe_need(p, "trivial", "", "number"))
    (void)clGetKernelWorkGroupInfo(p->kernel, p->device, CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, sizeof multiple,
                                   &multiple, NULL);
  probe_detail(p, "work-groups in multiples of %zu", multiple);
  if (!intel && !probe_has(p, "cl_khr_subgroups")) {
    probe_answer(p, "no sub-groups: neither cl_khr_subgroups nor cl_intel_subgroups");
    return;
  }
  (void)snprintf(options, sizeof options, "%s", intel ? "-DPROBE_INTEL" : "-cl-std=CL3.0");
  if (!probe_build(p, "sub_groups", options, "sub_groups") &&
      (intel || !probe_build(p, "sub_groups", "-cl-std=CL2.0", "sub_groups"))) {
    probe_answer(p, "no: the extension is listed, and its functions do not compile");
    return;
  }
  const uint32_t usual = sub_group_size(p, &consecutive);
  probe_detail(p, "work-items are numbered %s", consecutive ? "in order" : "in another order");
  if (required && clGetDeviceInfo(p->device, 0x4108 /* CL_DEVICE_SUB_GROUP_SIZES_INTEL */, sizeof sizes, sizes,
                                  &bytes) != CL_SUCCESS)
    bytes = 0;
  for (size_t i = 0; i < bytes / sizeof sizes[0] && !p->failed; i++) {
    (void)snprintf(options, sizeof options, "-DPROBE_INTEL -DPROBE_SIZE=%zu", sizes[i]);
    const uint32_t got = probe_build(p, "sub_groups", options, "sub_groups") ? sub_group_size(p, &consecutive) : 0;
    honoured &= got == sizes[i] && consecutive;
    (void)snprintf(text + strlen(text), sizeof text - strlen(text), " %zu", sizes[i]);
    if (got != sizes[i])
      probe_detail(p, "%zu was required and is %u", sizes[i], got);
  }
  if (bytes > 0)
    probe_answer(p, "%u by itself; offered and required:%s, %s", usual, text, honoured ? "honoured" : "NOT honoured");
  else
    probe_answer(p, "%u; no size can be required", usual);
}

/* ---- exponentials ---- */

enum { SAMPLES = 1 << 18, RANGES = 4, FUNCTIONS = 4 };

static double exact_of(int function, double x) {
  return function % 2 == 0 ? exp2(x) : exp(x);
}

/* The largest error in units of the last place, where the exact result is a normal number; 1e30 for a NaN. */
static double worst_ulp(int function, const float *in, const float *got, int from, int to) {
  double worst = 0;
  for (int i = from; i < to; i++) {
    const double want = exact_of(function, in[i]);
    if (!(want >= 0x1p-126 && want < 0x1p128))
      continue;
    int exponent = 0;
    (void)frexp(want, &exponent);
    const double ulp = fabs((double)got[i] - want) / ldexp(1, exponent - 24);
    worst = isnan(ulp) ? 1e30 : fmax(worst, fmin(ulp, 1e30));
  }
  return worst;
}

static void ask_exponentials(probe *p) {
  static const char *const names[FUNCTIONS] = {"exp2", "exp", "native_exp2", "native_exp"};
  static const float least[RANGES] = {-1, -24, -126, 0}, most[RANGES] = {0, -1, -24, 80};
  static const float edges[] = {-INFINITY, -3e38f, -1e30f, -1000, -0.0f, 0, INFINITY, NAN};
  enum { EDGES = sizeof edges / sizeof edges[0], ALL = SAMPLES + EDGES };
  float *in = malloc(ALL * sizeof *in), *got = malloc((size_t)FUNCTIONS * ALL * sizeof *got);
  const uint32_t count = ALL;
  int functions = FUNCTIONS, edges_wrong = 0;
  double plain = 0;
  if (in == NULL || got == NULL) {
    probe_fail(p, CL_OUT_OF_HOST_MEMORY, "samples");
    goto done;
  }
  for (int i = 0; i < SAMPLES; i++) {
    const int each = SAMPLES / RANGES, range = i / each, step = i % each;
    in[i] = least[range] + (most[range] - least[range]) * (float)step / (float)each;
  }
  memcpy(in + SAMPLES, edges, sizeof edges);
  const cl_mem from = probe_buffer(p, ALL * sizeof *in, in);
  const cl_mem to = probe_buffer(p, (size_t)FUNCTIONS * ALL * sizeof *got, NULL);
  if (!probe_build(p, "exponentials", "-DPROBE_NATIVE", "exponentials")) {
    functions = 2;
    if (!probe_need(p, "exponentials", "", "exponentials"))
      goto done;
  }
  if (clSetKernelArg(p->kernel, 2, sizeof count, &count) != CL_SUCCESS)
    probe_fail(p, CL_INVALID_ARG_VALUE, "an argument");
  if (!probe_arguments(p, (const cl_mem[]){from, to}, 2) || !probe_run(p, ALL, 1) ||
      !probe_read(p, to, (size_t)functions * ALL * sizeof *got, got))
    goto done;
  for (int f = 0; f < functions; f++) {
    const float *mine = got + (size_t)f * ALL;
    double worst[RANGES];
    for (int r = 0; r < RANGES; r++)
      worst[r] = worst_ulp(f, in, mine, r * (SAMPLES / RANGES), (r + 1) * (SAMPLES / RANGES));
    probe_detail(p, "%s: %.2f ulp in [-1, 0], %.2f in [-24, -1], %.2f to 2^-126, %.2f above 0", names[f], worst[0],
                 worst[1], worst[2], worst[3]);
    if (f < 2)
      plain = fmax(plain, fmax(worst[0], fmax(worst[1], worst[2])));
    for (int e = 0; e < EDGES; e++) {
      const float want = (float)exact_of(f, edges[e]), is = mine[SAMPLES + e];
      if ((isnan(want) && isnan(is)) || fabsf(is - want) <= 0 || (isinf(want) && isinf(is) && is > 0))
        continue;
      edges_wrong++;
      probe_detail(p, "%s(%g) is %g", names[f], (double)edges[e], (double)is);
    }
  }
  probe_answer(p, "exp, exp2 within %.2f ulp; %s; %s", plain,
               edges_wrong == 0 ? "of -inf and far below exactly 0" : "WRONG at edges",
               functions == FUNCTIONS ? "native ones compile" : "native ones do not compile");
done:
  free(in);
  free(got);
}

/* ---- subnormal numbers ---- */

static void ask_denormals(probe *p) {
  static const float in[4] = {0x1p-126f, 0.5f, 0x1p-127f, 2};
  static const float want[4] = {0x1p-127f, 0x1p-126f, 0x1p-125f, 0x1p-126f};
  static const char *const names[4] = {"product", "sum", "input", "fused"};
  static const char *const options[2] = {"", "-cl-denorms-are-zero"};
  char said[2][64] = {"", ""};
  const cl_mem from = probe_buffer(p, sizeof in, in), to = probe_buffer(p, sizeof in, NULL);
  for (int o = 0; o < 2; o++) {
    float got[4] = {0};
    int kept = 0;
    if (!probe_need(p, "denormals", options[o], "denormals") || !probe_arguments(p, (const cl_mem[]){from, to}, 2) ||
        !probe_run(p, 1, 1) || !probe_read(p, to, sizeof got, got))
      return;
    for (int i = 0; i < 4; i++) {
      const int is = fabsf(got[i] - want[i]) <= 0;
      kept += is;
      if (!is)
        probe_detail(p, "%s%s%s: %a, not %a", options[o], o > 0 ? ", " : "", names[i], (double)got[i], (double)want[i]);
    }
    (void)snprintf(said[o], sizeof said[o], "%s", kept == 4 ? "kept" : kept == 0 ? "flushed" : "partly flushed");
  }
  probe_answer(p, "%s; with -cl-denorms-are-zero %s", said[0], said[1]);
}

/* ---- limits ---- */

/* 1 when a group can use so many bytes of local memory, 0 when the driver refuses, -1 when it reads back wrong. */
static int local_bytes_work(probe *p, size_t bytes, size_t group, cl_mem wrong, cl_int *code) {
  enum { GROUPS = 4, MOST = 1024 };
  uint32_t bad[GROUPS * MOST] = {0};
  const cl_uint words = (cl_uint)(bytes / sizeof(cl_uint));
  const size_t global = GROUPS * group;
  int is = 1;
  *code = clSetKernelArg(p->kernel, 0, bytes, NULL);
  if (*code == CL_SUCCESS)
    *code = clSetKernelArg(p->kernel, 1, sizeof words, &words);
  if (*code == CL_SUCCESS)
    *code = clSetKernelArg(p->kernel, 2, sizeof wrong, &wrong);
  if (*code == CL_SUCCESS)
    *code = clEnqueueNDRangeKernel(p->session.queue, p->kernel, 1, NULL, &global, &group, 0, NULL, NULL);
  if (*code == CL_SUCCESS)
    *code = clFinish(p->session.queue);
  if (*code != CL_SUCCESS)
    return 0;
  if (!probe_read(p, wrong, global * sizeof bad[0], bad))
    return -1;
  for (size_t i = 0; i < global; i++)
    if (bad[i] != 0)
      is = -1;
  return is;
}

static void ask_local_memory(probe *p) {
  const size_t most = (size_t)probe_number(p, CL_DEVICE_LOCAL_MEM_SIZE);
  size_t works = 0, fails = most / 1024 + 1;
  cl_int code = CL_SUCCESS;
  if (!probe_need(p, "local_memory", "", "use_local"))
    return;
  const size_t group = probe_group_size(p, 256);
  const cl_mem wrong = probe_buffer(p, (size_t)4 * 1024 * sizeof(cl_uint), NULL);
  if (p->failed)
    return;
  int is = local_bytes_work(p, 16 * 1024, group, wrong, &code);
  probe_detail(p, "16 KiB: %s", is > 0 ? "yes" : is < 0 ? "reads back WRONG" : clattn_status_name(code));
  /* All of it, or else between what works and what does not, to a KiB. */
  for (size_t next = most / 1024; works + 1 < fails && next > 0 && !p->failed; next = (works + fails) / 2) {
    is = local_bytes_work(p, next * 1024, group, wrong, &code);
    if (is < 0)
      probe_detail(p, "%zu KiB read back WRONG", next);
    else if (is == 0 && fails == most / 1024 + 1)
      probe_detail(p, "%zu KiB: %s", next, clattn_status_name(code));
    if (is > 0)
      works = next;
    else
      fails = next;
  }
  probe_answer(p, "%zu KiB of %zu KiB, by work-groups of %zu", works, most / 1024, group);
}

static void ask_work_group(probe *p) {
  const size_t most = (size_t)probe_number(p, CL_DEVICE_MAX_WORK_GROUP_SIZE);
  if (!probe_need(p, "trivial", "", "number"))
    return;
  const size_t group = probe_group_size(p, most);
  uint32_t *got = calloc(2 * group, sizeof *got);
  size_t wrong = 0;
  if (got == NULL) {
    probe_fail(p, CL_OUT_OF_HOST_MEMORY, "numbers");
    return;
  }
  const cl_mem out = probe_buffer(p, 2 * group * sizeof *got, NULL);
  if (probe_arguments(p, &out, 1) && probe_run(p, 2 * group, group) &&
      probe_read(p, out, 2 * group * sizeof *got, got)) {
    for (size_t i = 0; i < 2 * group; i++)
      wrong += got[i] != i % group;
    probe_answer(p, "%zu for a trivial kernel, %zu by the device; %s", group, most, wrong == 0 ? "runs" : "runs WRONG");
  }
  free(got);
}

/* ---- launches ---- */

static int by_size(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void ask_launch(probe *p) {
  enum { ALONE = 201, ROW = 1000 };
  double alone[ALONE];
  const size_t one = 1;
  cl_int code = CL_SUCCESS;
  if (!probe_need(p, "trivial", "", "nothing") || !probe_run(p, 1, 1))
    return;
  for (int i = 0; i < ALONE; i++) {
    const double begin = probe_seconds();
    if (!probe_run(p, 1, 1))
      return;
    alone[i] = probe_seconds() - begin;
  }
  qsort(alone, ALONE, sizeof alone[0], by_size);
  const double begin = probe_seconds();
  for (int i = 0; i < ROW && code == CL_SUCCESS; i++)
    code = clEnqueueNDRangeKernel(p->session.queue, p->kernel, 1, NULL, &one, &one, 0, NULL, NULL);
  const double queued = probe_seconds() - begin;
  if (code == CL_SUCCESS)
    code = clFinish(p->session.queue);
  const double row = probe_seconds() - begin;
  if (code != CL_SUCCESS)
    probe_fail(p, code, "launches in a row");
  probe_answer(p, "%.1f us alone (enqueue and finish), %.1f us each in a row of %d", 1e6 * alone[ALONE / 2],
               1e6 * row / ROW, (int)ROW);
  probe_detail(p, "fastest alone %.1f us; the enqueue call %.1f us", 1e6 * alone[0], 1e6 * queued / ROW);
}

static void ask_out_of_resources(probe *p) {
  const size_t local = (size_t)probe_number(p, CL_DEVICE_LOCAL_MEM_SIZE);
  const size_t group = 2 * (size_t)probe_number(p, CL_DEVICE_MAX_WORK_GROUP_SIZE);
  const uint64_t largest = probe_number(p, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  uint32_t got[LANES] = {0};
  int refused = 0, asked = 3;
  cl_int code = CL_SUCCESS;
  if (!probe_need(p, "local_memory", "", "use_local"))
    return;
  const cl_mem wrong = probe_buffer(p, (size_t)4 * 1024 * sizeof(cl_uint), NULL);
  if (p->failed)
    return;
  if (probe_is(p, "Portable Computing Language")) {
    asked = 2;
    probe_detail(p, "twice the local memory: not asked of PoCL, where an assertion ends the process");
  } else {
    refused += local_bytes_work(p, 2 * local, 1, wrong, &code) == 0;
    probe_detail(p, "twice the local memory: %s", clattn_status_name(code));
  }
  if (!probe_need(p, "trivial", "", "nothing"))
    return;
  code = clEnqueueNDRangeKernel(p->session.queue, p->kernel, 1, NULL, &group, &group, 0, NULL, NULL);
  refused += code != CL_SUCCESS;
  probe_detail(p, "twice the largest work-group: %s", clattn_status_name(code));
  cl_mem huge = NULL;
  code = CL_INVALID_BUFFER_SIZE;
  if (largest > 0 && largest < SIZE_MAX / 4)
    huge = clCreateBuffer(p->session.cl, CL_MEM_READ_WRITE, (size_t)largest * 4, NULL, &code);
  refused += code != CL_SUCCESS;
  probe_detail(p, "four times the largest allocation: %s", clattn_status_name(code));
  if (huge != NULL)
    (void)clReleaseMemObject(huge);
  /* Whatever was refused, the queue must still work. */
  const cl_mem out = probe_buffer(p, sizeof got, NULL);
  if (!probe_need(p, "trivial", "", "number") || !probe_arguments(p, &out, 1) || !probe_run(p, LANES, 1) ||
      !probe_read(p, out, sizeof got, got))
    return;
  probe_answer(p, "%d of %d requests beyond the limits are refused by a code; the queue works on", refused, asked);
}

const probe_question probe_plain[] = {
    {"device", "What does the device say of itself?", ask_device},
    {"half_storage", "Are vload_half and vstore_half_rte exact without the extension fp16?", ask_half_storage},
    {"sub_groups", "Which sub-group sizes are offered, and is a required one honoured?", ask_sub_groups},
    {"exponentials", "How exact are exp2, exp and the native ones, and are they 0 at -inf?", ask_exponentials},
    {"denormals", "Are numbers below 2^-126 kept or flushed?", ask_denormals},
    {"local_memory", "How much local memory can be used?", ask_local_memory},
    {"work_group", "How large may a work-group of a trivial kernel be?", ask_work_group},
    {"launch", "How long does a launch take?", ask_launch},
    {"out_of_resources", "Are requests beyond the limits refused by a code?", ask_out_of_resources},
    {NULL, NULL, NULL}};
