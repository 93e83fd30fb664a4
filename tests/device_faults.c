/* SPDX-License-Identifier: Apache-2.0 */
/* Known faults of other libraries, a test for each, named for what went wrong there.  Every one runs on every
 * variant. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "clattn_ref.h"
#include "device_flat.h"
#include "device_judge.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* ---- faults that rows of cases show ---------------------------------------------------------------------------- */

static const device_case masked_first_block[] = {
    {.name = "by a keep mask",
     .line = "hq=2 sq=26 sk=150 d=4",
     .vary = {"mask=u8|bits", "causal=0|1 off=bottom_right"},
     .data = DATA_MASK_FIRST,
     .stages = 1},
    {.name = "by a block mask",
     .line = "hq=2 sq=26 sk=300 d=4 block_mask=bits block_q=64",
     .vary = {"block_k=64|128"},
     .data = DATA_BLOCKS_FIRST,
     .stages = 1},
    {.name = "by a bias of -inf", .line = "hq=2 sq=26 sk=300 d=4 bias=f32", .data = DATA_BIAS_INF, .stages = 1},
    {.name = "up to the last key",
     .line = "hq=2 sq=26 d=4",
     .vary = {"sk=65|257|300", "mask=u8|bits"},
     .data = DATA_MASK_LAST,
     .stages = 1},
};

static const device_case low_scores[] = {
    {.name = "near -60000", .line = "hq=2 sq=26 sk=70 d=4 bias=f32", .vary = {"mask=none|u8"}, .data = DATA_BIAS_LOW},
    {.name = "near -60000, lengths",
     .line = "b=3 hq=2 sq=26 sk=70 d=4 bias=f32 klen=per_batch causal=1",
     .k_lengths = "70,9,0",
     .data = DATA_BIAS_LOW},
};

static const device_case lower_scores[] = {
    {.name = "-1e30", .line = "hq=2 sq=26 sk=70 d=4 bias=f32", .vary = {"mask=none|u8"}, .data = DATA_BIAS_DEEP},
    {.name = "-1e30 and 1e30",
     .line = "hq=2 sq=26 sk=70 d=4 bias=f32",
     .vary = {"mask=none|u8"},
     .data = DATA_BIAS_HUGE},
};

static const device_case lowest_scores[] = {
    {.name = "-FLT_MAX",
     .line = "hq=2 sq=26 sk=70 d=4 bias=f32",
     .vary = {"mask=none|u8", "causal=0|1"},
     .data = DATA_BIAS_LOWEST},
};

static const device_case softcap_and_masks[] = {
    {.name = "a cap and a mask", .line = "hq=2 sq=26 sk=70 d=4 softcap=2", .vary = {"mask=u8|bits"}},
    {.name = "a cap and -inf", .line = "hq=2 sq=26 sk=70 d=4 softcap=2 bias=f32", .data = DATA_BIAS_INF},
    {.name = "a cap, and rows without keys", .line = "hq=2 sq=26 sk=70 d=4 softcap=2 mask=u8", .data = DATA_MASK_ROWS},
};

static const device_case masked_nan[] = {
    {.name = "in v",
     .line = "hq=4 hkv=2 sq=50 sk=70 d=4 dv=7",
     .vary = {"mask=u8|bits", "causal=0|1"},
     .data = DATA_NAN_V | DATA_INF_V},
    {.name = "in v, by a block mask",
     .line = "hq=4 hkv=2 sq=50 sk=70 d=4 dv=7 block_mask=bits",
     .vary = {"block_q=3 block_k=5|16 block_k=16"},
     .data = DATA_NAN_V},
    {.name = "in v, by chunks and windows",
     .line = "hq=2 sq=50 sk=70 d=4 dv=7 causal=1",
     .vary = {"chunk=0|7", "window=inf,inf|5,0"},
     .data = DATA_NAN_V},
    {.name = "in k", .line = "hq=2 sq=50 sk=70 d=4 mask=u8", .data = DATA_NAN_K | DATA_INF_K},
};

static const device_case far_off_keys[] = {
    {.name = "hundreds below",
     .line = "hq=2 sq=26 sk=70 d=4 scale=1",
     .vary = {"mask=none|u8", "causal=0|1"},
     .data = DATA_FAR},
    {.name = "1e30 below", .line = "hq=2 sq=26 sk=70 d=4 bias=f32", .data = DATA_BIAS_HUGE},
};

/* Keys that are made up score 0; beside scores near -60000 they would have all the weight. */
static const device_case padding_keys[] = {
    {.name = "behind the last key",
     .line = "hq=2 sq=5 d=4 bias=f32",
     .vary = {"sk=1|3|5|31|33|63|65|127|129|257"},
     .data = DATA_BIAS_LOW,
     .stages = 1},
    {.name = "behind a length",
     .line = "b=5 hq=2 sq=5 sk=130 d=4 bias=f32 klen=per_batch",
     .k_lengths = "1,65,0,127,130",
     .data = DATA_BIAS_LOW},
    {.name = "behind a packed sequence",
     .line = "b=4 hq=2 sq=5 sk=130 d=4 bias=f32 total_k=300 k=packed v=packed",
     .rows_k = "1,65,0,-1",
     .data = DATA_BIAS_LOW},
    {.name = "behind the last key of a page",
     .line = "b=3 hq=2 sq=5 sk=130 d=4 bias=f32 klen=per_batch k=paged v=paged page_size=16 pages=20 max_pages=9",
     .k_lengths = "1,65,129",
     .data = DATA_BIAS_LOW},
};

static const device_case window_edges[] = {
    {.name = "at both sides",
     .line = "sq=65 sk=70 d=4",
     .vary = {"window=0,0|1,0|0,1|3,inf|inf,3|7,5|63,0|64,0|0,64", "off=top_left|bottom_right|-3"},
     .stages = 1},
    {.name = "at block edges",
     .line = "sq=3 sk=300 d=4",
     .vary = {"off=63|64|65|127|128|129|191|192", "window=0,0|63,0|64,0|127,0|128,0|0,63|0,64"},
     .stages = 1},
};

static const device_case long_windows[] = {
    {.name = "of many keys",
     .line = "d=2 off=bottom_right",
     .vary = {"sq=3 sk=70000|2 sk=140000", "window=127,0|4095,0"},
     .stages = 1},
};

static const device_case unequal_lengths[] = {
    {.name = "fewer rows than keys",
     .line = "hq=2 sk=70 d=4 causal=1",
     .vary = {"sq=1|3|26|69", "off=top_left|bottom_right"},
     .stages = 1},
    {.name = "more rows than keys",
     .line = "hq=2 sk=9 d=4 causal=1",
     .vary = {"sq=10|26|70", "off=top_left|bottom_right"},
     .stages = 1},
};

static const device_case leading_empty_rows[] = {
    {.name = "before the first key",
     .line = "hq=2 d=4 causal=1 off=bottom_right",
     .vary = {"sq=66|70|130", "sk=1|9|65"},
     .stages = 1},
    {.name = "before the first key, with a sink", .line = "hq=2 sq=70 sk=9 d=4 causal=1 off=bottom_right sink=f32"},
};

static const device_case lengths_at_the_bottom[] = {
    {.name = "lengths of both",
     .line = "b=7 hq=4 hkv=2 sq=50 sk=70 d=4 causal=1 off=bottom_right qlen=per_batch klen=per_batch",
     .vary = {"window=inf,inf|9,3"},
     .q_lengths = "50,1,24,25,50,0,9",
     .k_lengths = "70,70,0,25,12,3,8"},
    {.name = "lengths of both, on the device",
     .line = "b=7 hq=4 hkv=2 sq=50 sk=70 d=4 causal=1 off=bottom_right qlen=per_batch klen=per_batch",
     .q_lengths = "50,1,24,25,50,0,9",
     .k_lengths = "70,70,0,25,12,3,8",
     .on_device = ON_DEVICE_ALL},
    {.name = "lengths of keys",
     .line = "b=4 hq=2 sq=50 sk=70 d=4 causal=1 off=bottom_right klen=per_batch",
     .k_lengths = "70,50,9,0"},
    {.name = "packed",
     .line = "b=4 hq=2 sq=60 sk=80 d=4 total_q=110 total_k=150 q=packed o=packed lse=packed k=packed v=packed causal=1 "
             "off=bottom_right",
     .rows_q = "26,60,1,-1",
     .rows_k = "70,9,60,-1"},
};

static const device_case head_maps[] = {
    {.name = "ratios",
     .line = "b=2 sq=6 sk=9 d=4",
     .vary = {"hkv=2 hq=6|2 hq=14|2 hq=48|3 hq=9|3 hq=21|3 hq=72"},
     .stages = 1},
    {.name = "ratios, many rows", .line = "sq=60 sk=30 d=4", .vary = {"hkv=2 hq=6|2 hq=14|3 hq=21"}, .stages = 1},
};

static const device_case bias_broadcast[] = {
    {.name = "one axis alone",
     .line = "b=2 hq=2 sq=26 sk=70 d=4",
     .vary = {"bias=f32:strided:0,1820,70,1|f32:strided:1820,0,70,1|f32:strided:140,70,0,1|f32:strided:52,26,1,0"}},
};

static const device_case mask_broadcast[] = {
    {.name = "one axis alone, bytes",
     .line = "b=2 hq=2 sq=26 sk=70 d=4",
     .vary = {"mask=u8:strided:0,1820,70,1|u8:strided:1820,0,70,1|u8:strided:140,70,0,1|u8:strided:52,26,1,0"}},
    {.name = "one axis alone, bits",
     .line = "b=2 hq=2 sq=26 sk=70 d=4",
     .vary = {"mask=bits:strided:0,78,3,1|bits:strided:78,0,3,1|bits:strided:6,3,0,1|bits:strided:52,26,1,0"}},
    {.name = "one axis alone, blocks",
     .line = "b=2 hq=2 sq=26 sk=70 d=4 block_q=3 block_k=2",
     .vary = {"block_mask=bits:strided:0,18,2,1|bits:strided:18,0,2,1|bits:strided:4,2,0,1|bits:strided:18,9,1,0"}},
};

#define PACKED "b=3 hq=2 sq=60 sk=80 d=4 total_q=60 total_k=100 q=packed o=packed lse=packed k=packed v=packed"
static const device_case empty_sequences[] = {
    {.name = "at the start", .line = PACKED, .vary = {"causal=0|1"}, .rows_q = "0,9,50", .rows_k = "0,70,30"},
    {.name = "in the middle", .line = PACKED, .vary = {"causal=0|1"}, .rows_q = "9,0,50", .rows_k = "70,0,30"},
    {.name = "at the end", .line = PACKED, .vary = {"causal=0|1"}, .rows_q = "9,50,0", .rows_k = "70,30,0"},
    {.name = "of queries alone", .line = PACKED, .vary = {"causal=0|1"}, .rows_q = "9,0,50", .rows_k = "0,70,30"},
    {.name = "all of them", .line = PACKED, .vary = {"sink=off|f32"}, .rows_q = "0,0,0", .rows_k = "0,0,0"},
    {.name = "on the device",
     .line = PACKED " causal=1",
     .vary = {"off=top_left|bottom_right"},
     .rows_q = "0,50,0",
     .rows_k = "70,30,0",
     .on_device = ON_DEVICE_ALL | ON_DEVICE_WILD},
};

#define PAGED "b=3 hq=2 sq=26 sk=133 d=4 dv=5 k=paged v=paged klen=per_batch"
static const device_case page_tables[] = {
    {.name = "repeated",
     .line = PAGED,
     .vary = {"page_size=16 pages=7 max_pages=9|64 pages=5 max_pages=3"},
     .k_lengths = "133,40,0",
     .data = DATA_PAGES_SAME},
    {.name = "last",
     .line = PAGED,
     .vary = {"page_size=16 pages=7 max_pages=9|64 pages=5 max_pages=3"},
     .k_lengths = "133,40,0",
     .data = DATA_PAGES_LAST},
    {.name = "out of range",
     .line = PAGED,
     .vary = {"page_size=16 pages=7 max_pages=9|64 pages=5 max_pages=3|3 pages=1 max_pages=45"},
     .k_lengths = "133,40,0",
     .data = DATA_PAGES_BEYOND},
    {.name = "of all sizes",
     .line = PAGED " causal=1 off=bottom_right",
     .vary = {"page_size=1 pages=200 max_pages=133|3 pages=60 max_pages=45|16 pages=11 max_pages=9|256 pages=2 "
              "max_pages=1"},
     .k_lengths = "133,40,64",
     .stages = 1},
};

/* Results are filled with a pattern that no row gives. */
static const device_case unwritten_rows[] = {
    {.name = "behind a length",
     .line = "b=3 hq=2 sq=70 sk=9 d=4 qlen=per_batch",
     .vary = {"sink=off|f32"},
     .q_lengths = "0,25,70"},
    {.name = "without keys",
     .line = "b=2 hq=2 sq=70 sk=9 d=4",
     .vary = {"klen=per_batch|full mask=u8|full block_mask=bits block_q=64 block_k=64"},
     .k_lengths = "0",
     .data = DATA_MASK_NONE | DATA_BLOCKS_FEW},
    {.name = "of a packed sequence",
     .line = "b=3 hq=2 sq=60 sk=9 d=4 total_q=100 q=packed o=packed lse=packed qlen=per_batch",
     .rows_q = "60,9,-1",
     .q_lengths = "25,0,-1"},
    {.name = "that no chunk holds", .line = "hq=2 sq=70 sk=9 d=4 chunk=5", .vary = {"off=-30|100"}},
    {.name = "without keys at all", .line = "b=2 hq=2 sq=70 sk=0 d=4", .vary = {"sink=off|f32"}},
};

static const device_case zero_scale[] = {
    {.name = "scale 0", .line = "hq=2 sq=26 sk=70 d=4 scale=0", .vary = {"mask=none|u8|bits", "bias=off|f32"}},
    {.name = "scale 0, causal", .line = "hq=2 sq=26 sk=70 d=4 scale=0 causal=1", .vary = {"off=top_left|-9"}},
    {.name = "scale 0, given", .line = "b=2 hq=2 sq=26 sk=70 d=4 scale=-0 mask=u8 klen=per_batch", .k_lengths = "70,9"},
};

static const device_case negative_scale[] = {
    {.name = "scale -3", .line = "hq=2 sq=26 sk=70 d=4 scale=-3", .vary = {"mask=none|u8|bits", "bias=off|f32"}},
    {.name = "scale -3, causal",
     .line = "hq=2 sq=26 sk=70 d=4 scale=-3 causal=1",
     .vary = {"softcap=0|2", "off=top_left|-9"}},
    {.name = "scale -30, masked rows",
     .line = "hq=2 sq=26 sk=70 d=4 scale=-30 mask=u8",
     .data = DATA_MASK_ROWS | DATA_MASK_FIRST},
};

static const device_case sinks_of_empty_rows[] = {
    {.name = "by a mask",
     .line = "hq=7 sq=26 sk=70 d=4 sink=f32",
     .vary = {"mask=u8|bits"},
     .data = DATA_SINK_MIXED | DATA_MASK_ROWS},
    {.name = "by lengths",
     .line = "b=3 hq=7 sq=26 sk=70 d=4 sink=f32 qlen=per_batch klen=per_batch",
     .vary = {"causal=0|1 off=bottom_right"},
     .q_lengths = "26,0,9",
     .k_lengths = "0,70,3",
     .data = DATA_SINK_MIXED},
    {.name = "with NaN in masked values",
     .line = "hq=7 sq=26 sk=70 d=4 sink=f32 mask=u8",
     .data = DATA_SINK_MIXED | DATA_MASK_NONE | DATA_NAN_V},
};

/* All of one program. */
#define ROPE "d=20 dv=7 rope=half"
static const device_case positions_of_rope[] = {
    {.name = "beyond the tables, given",
     .line = "b=2 hq=4 hkv=2 sq=26 sk=70 " ROPE " positions=1",
     .vary = {"rope_positions=1|9|100"},
     .stages = 1},
    {.name = "below 0 and beyond the tables, by offsets on the device",
     .line = "b=3 hq=2 sq=26 sk=70 " ROPE " off=per_batch rope_positions=80",
     .vary = {"causal=0|1"},
     .q_offsets = "-9,0,500",
     .on_device = ON_DEVICE_ALL,
     .stages = 1},
    {.name = "below 0, of more rows than keys",
     .line = "hq=2 sq=70 sk=9 " ROPE " off=bottom_right",
     .vary = {"causal=0|1"},
     .stages = 1},
    {.name = "of lengths",
     .line = "b=3 hq=2 sq=26 sk=70 " ROPE " off=bottom_right causal=1 qlen=per_batch klen=per_batch",
     .vary = {"positions=0|1"},
     .q_lengths = "26,3,0",
     .k_lengths = "70,9,33",
     .stages = 1},
};

static const device_case parts_of_rope[] = {
    {.name = "part of a head", .line = "hq=2 sq=26 sk=70 " ROPE, .vary = {"rope_dim=2|8|14|18|20"}, .stages = 1},
    {.name = "grouped heads",
     .line = "b=2 sk=70 " ROPE " positions=1",
     .vary = {"hkv=2 hq=6|2 hq=14|1 hq=8", "sq=1|3|26"},
     .stages = 1},
    {.name = "tables per batch entry",
     .line = "b=3 hq=2 sq=26 sk=70 " ROPE,
     .vary = {"rope_cos=f32:strided:700,0,10,1 rope_sin=f32:strided:700,0,10,1|f32:strided:1,0,3,220 "
              "rope_sin=f32:strided:1,0,3,220|f32:strided:9,0,0,1 rope_sin=f32:strided:9,0,0,1"},
     .stages = 1},
};

/* ---- faults that need a closer look ---------------------------------------------------------------------------- */

/* Equal scores s of n keys: lse is s + ln n, o the mean of the values. */
static void lse_of_equal_scores(void **state) {
  (void)state;
  static const float scores[] = {0.0f, 3.0f, -60000.0f, 1e30f, -1e30f, -FLT_MAX};
  enum { KEYS = 70, DIM = 4 };
  float q[DIM] = {0}, k[KEYS * DIM] = {0}, v[KEYS * DIM], bias[KEYS], o[DIM], lse;
  size_t passed = 0;
  for (size_t n = 0; n < KEYS * DIM; ++n)
    v[n] = (float)(n % DIM == 0 ? 2 * (n / DIM % 2) : n % DIM); /* means: 1, 1, 2, 3 */
  for (uint32_t n = 0; n < variant_count; ++n)
    for (size_t s = 0; variants[n].usable && s < LENGTH(scores); ++s) {
      flat_run run = {.line = "sq=1 sk=70 d=4 bias=f32 out=o,lse",
                      .variant = variants[n].name,
                      .o_count = DIM,
                      .lse_count = 1,
                      .slot = {[CLATTNI_Q] = {q, sizeof q},
                               [CLATTNI_K] = {k, sizeof k},
                               [CLATTNI_V] = {v, sizeof v},
                               [CLATTNI_BIAS] = {bias, sizeof bias}}};
      for (size_t j = 0; j < KEYS; ++j)
        bias[j] = scores[s];
      flat_compute(&run, o, &lse);
      const double want = (double)scores[s] + log((double)KEYS);
      if (!(fabs((double)lse - want) <= 1e-6 * (1.0 + fabs(want))))
        fail_msg("%s: lse of %d scores of %g is %.9g, not %.9g", variants[n].name, KEYS, (double)scores[s], (double)lse,
                 want);
      for (size_t d = 0; d < DIM; ++d)
        if (!(fabs((double)o[d] - (d == 0 ? 1.0 : (double)d)) <= 1e-5))
          fail_msg("%s: o[%zu] with scores of %g is %.9g", variants[n].name, d, (double)scores[s], (double)o[d]);
      ++passed;
    }
  assert_true(passed > 0);
}

/* Three ranges of keys, one of them empty, computed apart without the sink, and merged with it. */
enum { SPLIT_HEADS = 3, SPLIT_ROWS = 50, SPLIT_KEYS = 90, SPLIT_DIM = 8, SPLIT_PARTS = 4 };
enum { SPLIT_LINES = SPLIT_HEADS * SPLIT_ROWS, SPLIT_RESULTS = SPLIT_LINES * SPLIT_DIM };

static void merge_parts(const float *part_o, const float *part_lse, float *o, float *lse) {
  const size_t bytes[4] = {SPLIT_PARTS * SPLIT_RESULTS * sizeof(float), SPLIT_PARTS * SPLIT_LINES * sizeof(float),
                           SPLIT_RESULTS * sizeof(float), SPLIT_LINES * sizeof(float)};
  const float *const from[2] = {part_o, part_lse};
  float *const to[2] = {o, lse};
  cl_mem buffer[4];
  clattn_merge_args args;
  clattn_error error;
  clattn_error_init(&error);
  clattn_merge_args_init(&args);
  for (size_t n = 0; n < 4; ++n) {
    cl_int code;
    buffer[n] = clCreateBuffer(rig.cl, CL_MEM_READ_WRITE, bytes[n], NULL, &code);
    assert_int_equal(code, CL_SUCCESS);
    if (n < 2)
      assert_int_equal(clEnqueueWriteBuffer(rig.queue, buffer[n], CL_TRUE, 0, bytes[n], from[n], 0, NULL, NULL),
                       CL_SUCCESS);
  }
  args.error = &error;
  args.parts = SPLIT_PARTS;
  args.rows = SPLIT_LINES;
  args.v_dim = SPLIT_DIM;
  args.part_o = clattn_buffer(buffer[0], 0);
  args.part_lse = clattn_buffer(buffer[1], 0);
  args.o = clattn_buffer(buffer[2], 0);
  args.lse = clattn_buffer(buffer[3], 0);
  if (clattn_merge(rig.context, rig.queue, &args, 0, NULL, NULL) != CLATTN_SUCCESS)
    fail_msg("clattn_merge: %s", error.message);
  for (size_t n = 0; n < 4; ++n) {
    if (n >= 2)
      assert_int_equal(clEnqueueReadBuffer(rig.queue, buffer[n], CL_TRUE, 0, bytes[n], to[n - 2], 0, NULL, NULL),
                       CL_SUCCESS);
    assert_int_equal(clReleaseMemObject(buffer[n]), CL_SUCCESS);
  }
}

static void sinks_of_split_keys(void **state) {
  (void)state;
  static const int first[SPLIT_PARTS] = {0, 31, 31, SPLIT_KEYS}; /* of the parts; the sink is the last one */
  static const float sink[SPLIT_HEADS] = {1.5f, -INFINITY, 30.0f};
  static float q[SPLIT_RESULTS], k[SPLIT_HEADS * SPLIT_KEYS * SPLIT_DIM], v[SPLIT_HEADS * SPLIT_KEYS * SPLIT_DIM];
  static float part_o[SPLIT_PARTS * SPLIT_RESULTS], part_lse[SPLIT_PARTS * SPLIT_LINES], o[SPLIT_RESULTS],
      lse[SPLIT_LINES];
  static double want_o[SPLIT_RESULTS], want_lse[SPLIT_LINES];
  clattn_problem problem;
  clattn_ref_args ref;
  size_t passed = 0;
  flat_fill(q, LENGTH(q), 11);
  flat_fill(k, LENGTH(k), 12);
  flat_fill(v, LENGTH(v), 13);
  /* rows 0 to 6 see no key at all */
  assert_int_equal(clattn_problem_parse("hq=3 sq=50 sk=90 d=8 causal=1 off=-7 k=bshd v=bshd sink=f32", &problem, NULL),
                   CLATTN_SUCCESS);
  clattn_ref_args_init(&ref);
  ref.q = q;
  ref.k = k;
  ref.v = v;
  ref.sink = sink;
  ref.o = want_o;
  ref.lse = want_lse;
  assert_int_equal(clattn_ref_attention(&problem, &ref), CLATTN_SUCCESS);
  for (uint32_t n = 0; n < variant_count; ++n) {
    if (!variants[n].usable)
      continue;
    for (int part = 0; part < SPLIT_PARTS - 1; ++part) {
      const int keys = first[part + 1] - first[part];
      const size_t skip = (size_t)first[part] * SPLIT_HEADS * SPLIT_DIM,
                   bytes = (size_t)keys * SPLIT_HEADS * SPLIT_DIM * sizeof(float);
      char line[128];
      (void)snprintf(line, sizeof line, "hq=3 sq=50 sk=%d d=8 causal=1 off=%d k=bshd v=bshd out=o,lse", keys,
                     -7 - first[part]);
      flat_run run = {.line = line,
                      .variant = variants[n].name,
                      .o_count = SPLIT_RESULTS,
                      .lse_count = SPLIT_LINES,
                      .slot = {[CLATTNI_Q] = {q, sizeof q}}};
      if (keys > 0) {
        run.slot[CLATTNI_K] = (flat_input){k + skip, bytes};
        run.slot[CLATTNI_V] = (flat_input){v + skip, bytes};
      }
      flat_compute(&run, part_o + part * SPLIT_RESULTS, part_lse + part * SPLIT_LINES);
    }
    for (size_t row = 0; row < SPLIT_LINES; ++row) {
      part_lse[(SPLIT_PARTS - 1) * SPLIT_LINES + row] = sink[row / SPLIT_ROWS];
      for (size_t d = 0; d < SPLIT_DIM; ++d)
        part_o[(SPLIT_PARTS - 1) * SPLIT_RESULTS + row * SPLIT_DIM + d] = 0.0f;
    }
    merge_parts(part_o, part_lse, o, lse);
    for (size_t row = 0; row < SPLIT_LINES; ++row) {
      const double wanted = want_lse[row];
      const int good = isinf(wanted) ? isinf(lse[row]) && lse[row] < 0.0f
                                     : fabs((double)lse[row] - wanted) <= 4e-6 * (1.0 + fabs(wanted));
      if (!good)
        fail_msg("%s: lse[%zu] is %.9g, not %.9g", variants[n].name, row, (double)lse[row], wanted);
      for (size_t d = 0; d < SPLIT_DIM; ++d, ++passed)
        if (!(fabs((double)o[row * SPLIT_DIM + d] - want_o[row * SPLIT_DIM + d]) <= 8e-6))
          fail_msg("%s: o[%zu,%zu] is %.9g, not %.9g", variants[n].name, row, d, (double)o[row * SPLIT_DIM + d],
                   want_o[row * SPLIT_DIM + d]);
    }
  }
  assert_true(passed > 0);
}

/* Keys in a cache are rotated where they are read, whatever was read before: a row of its own with the keys up to it is
 * that row of all.  And with true angles only differences of positions count. */
enum { ROPE_ROWS = 20, ROPE_DIM = 20, ROPE_VALUES = 7, ROPE_PAIRS = ROPE_DIM / 2, ROPE_LINES = 64 };

static void near_rows(const char *what, const char *variant, const float *got, const float *want, size_t count) {
  for (size_t n = 0; n < count; ++n)
    if (!(fabs((double)got[n] - (double)want[n]) <= 2e-5))
      fail_msg("%s: %s: o[%zu] is %.9g, not %.9g", variant, what, n, (double)got[n], (double)want[n]);
}

static void rope_of_cached_keys(void **state) {
  (void)state;
  static float q[ROPE_ROWS * ROPE_DIM], k[ROPE_ROWS * ROPE_DIM], v[ROPE_ROWS * ROPE_VALUES];
  static float all[ROPE_ROWS * ROPE_VALUES], o[ROPE_ROWS * ROPE_VALUES];
  static float cosines[ROPE_LINES * ROPE_PAIRS], sines[ROPE_LINES * ROPE_PAIRS];
  static int32_t later[ROPE_ROWS];
  static const size_t rows[] = {0, 6, 19};
  size_t passed = 0;
  flat_fill(q, LENGTH(q), 21);
  flat_fill(k, LENGTH(k), 22);
  flat_fill(v, LENGTH(v), 23);
  for (size_t t = 0; t < ROPE_LINES; ++t)
    for (size_t n = 0; n < ROPE_PAIRS; ++n) {
      const double angle = (double)t * pow(10000.0, -(double)n / ROPE_PAIRS);
      cosines[t * ROPE_PAIRS + n] = (float)cos(angle);
      sines[t * ROPE_PAIRS + n] = (float)sin(angle);
    }
  for (int i = 0; i < ROPE_ROWS; ++i)
    later[i] = i + 31;
  for (uint32_t n = 0; n < variant_count; ++n) {
    if (!variants[n].usable)
      continue;
    flat_run run = {.line = "sq=20 sk=20 " ROPE " rope_positions=64 causal=1",
                    .variant = variants[n].name,
                    .o_count = LENGTH(all),
                    .slot = {[CLATTNI_Q] = {q, sizeof q},
                             [CLATTNI_K] = {k, sizeof k},
                             [CLATTNI_V] = {v, sizeof v},
                             [CLATTNI_ROPE_COS] = {cosines, sizeof cosines},
                             [CLATTNI_ROPE_SIN] = {sines, sizeof sines}}};
    flat_compute(&run, all, NULL);
    run.line = "sq=20 sk=20 " ROPE " rope_positions=64 causal=1 positions=1";
    run.slot[CLATTNI_POSITIONS_Q] = run.slot[CLATTNI_POSITIONS_K] = (flat_input){later, sizeof later};
    flat_compute(&run, o, NULL);
    near_rows("all positions later", variants[n].name, o, all, LENGTH(all));
    run.slot[CLATTNI_POSITIONS_Q] = run.slot[CLATTNI_POSITIONS_K] = (flat_input){NULL, 0};
    run.o_count = ROPE_VALUES;
    for (size_t r = 0; r < LENGTH(rows); ++r, ++passed) {
      char line[128];
      (void)snprintf(line, sizeof line, "sq=1 sk=%zu " ROPE " rope_positions=64 causal=1 off=bottom_right",
                     rows[r] + 1);
      run.line = line;
      run.slot[CLATTNI_Q] = (flat_input){q + rows[r] * ROPE_DIM, ROPE_DIM * sizeof(float)};
      flat_compute(&run, o, NULL);
      near_rows("a row with its cache", variants[n].name, o, all + rows[r] * ROPE_VALUES, ROPE_VALUES);
    }
  }
  assert_true(passed > 0);
}

/* What an enqueue with rope must give, and must not. */
static void rope_arguments(void **state) {
  (void)state;
  enum { FINE, NO_TABLE, NO_POSITIONS, POSITIONS, HALF_AN_ELEMENT, TOO_SMALL, OVERLAP, BEFORE, BEHIND, CASES };
  static const clattn_status wanted[CASES] = {
      [FINE] = CLATTN_SUCCESS,
      [NO_TABLE] = CLATTN_ERROR_TENSOR_MISSING,
      [NO_POSITIONS] = CLATTN_ERROR_TENSOR_MISSING,
      [POSITIONS] = CLATTN_ERROR_TENSOR_UNUSED,
      [HALF_AN_ELEMENT] = CLATTN_ERROR_ALIGNMENT,
      [TOO_SMALL] = CLATTN_ERROR_BUFFER_TOO_SMALL,
      [OVERLAP] = CLATTN_ERROR_OVERLAP,
      [BEFORE] = CLATTN_ERROR_LENGTH,
      [BEHIND] = CLATTN_ERROR_LENGTH,
  };
  for (int n = 0; n < CASES; ++n) {
    device_job job;
    job_memory memory;
    clattn_plan *plan = NULL;
    clattn_error error;
    clattn_args args;
    int32_t offsets[2] = {0, 74};
    const run_options options = {.outputs = CLATTN_OUT_O};
    clattn_error_init(&error);
    parse_job(n == NO_POSITIONS ? "b=2 hq=2 sq=26 sk=70 " ROPE " positions=1"
                                : "b=2 hq=2 sq=26 sk=70 " ROPE " off=0 rope_positions=100",
              0, &job);
    assert_true(job_memory_open(&rig, &job, &memory));
    assert_int_equal(device_plan(&rig, &job, &options, &plan, &error), CLATTN_SUCCESS);
    device_args(&job, &memory, CLATTN_OUT_O, &args);
    args.error = &error;
    offsets[1] += n == BEHIND;
    offsets[0] -= n == BEFORE;
    if (n != NO_POSITIONS)
      args.q_offsets = (clattn_ints){.kind = CLATTN_ARRAY_HOST, .count = 2, .host = offsets};
    if (n == NO_TABLE)
      args.rope_sin = clattn_buffer(NULL, 0);
    if (n == NO_POSITIONS)
      args.positions_k = clattn_buffer(NULL, 0);
    if (n == POSITIONS)
      args.positions_q = args.q;
    if (n == HALF_AN_ELEMENT)
      args.rope_cos.offset -= 2;
    if (n == TOO_SMALL)
      args.rope_cos.bytes = 100 * 10 * sizeof(float) - 1;
    if (n == OVERLAP)
      args.o = args.rope_cos;
    const clattn_status status = clattn_enqueue(plan, rig.queue, &args, 0, NULL, NULL);
    if (status != wanted[n])
      fail_msg("case %d: %s: %s", n, clattn_status_name(status), error.message);
    assert_int_equal(clFinish(rig.queue), CL_SUCCESS);
    clattn_plan_release(plan);
    job_memory_close(&memory);
  }
}

/* ---- the list -------------------------------------------------------------------------------------------------- */

typedef struct fault {
  const char *name;
  const device_case *rows; /* or NULL: run */
  size_t count;
  void (*run)(void **state);
} fault;

#define ROWS_OF(rows) rows, LENGTH(rows), NULL
static const fault faults[] = {
    {"fault: a masked first block makes NaN", ROWS_OF(masked_first_block)},
    {"fault: scores below -5e4 count as masked", ROWS_OF(low_scores)},
    {"fault: scores below -1e30 count as masked", ROWS_OF(lower_scores)},
    {"fault: rows of -FLT_MAX give 0", ROWS_OF(lowest_scores)},
    {"fault: softcap after the mask", ROWS_OF(softcap_and_masks)},
    {"fault: NaN of a masked key", ROWS_OF(masked_nan)},
    {"fault: far-off keys have weight", ROWS_OF(far_off_keys)},
    {"fault: weights near 2^-126", NULL, 0, weights_that_vanish},
    {"fault: padding keys in the denominator", ROWS_OF(padding_keys)},
    {"fault: windows off by one", ROWS_OF(window_edges)},
    {"fault: windows of long input", ROWS_OF(long_windows)},
    {"fault: alignment when Sq != Sk", ROWS_OF(unequal_lengths)},
    {"fault: leading rows without keys", ROWS_OF(leading_empty_rows)},
    {"fault: lengths at the bottom right", ROWS_OF(lengths_at_the_bottom)},
    {"fault: heads by modulo or tile", ROWS_OF(head_maps)},
    {"fault: bias broadcast on one axis", ROWS_OF(bias_broadcast)},
    {"fault: mask broadcast on one axis", ROWS_OF(mask_broadcast)},
    {"fault: empty packed sequences", ROWS_OF(empty_sequences)},
    {"fault: page tables", ROWS_OF(page_tables)},
    {"fault: rows left unwritten", ROWS_OF(unwritten_rows)},
    {"fault: int32 products in offsets", NULL, 0, offsets_are_64_bits_wide},
    {"fault: int32 products in offsets, rows", NULL, 0, rows_far_apart},
    {"fault: scale 0 with masks", ROWS_OF(zero_scale)},
    {"fault: negative scale with masks", ROWS_OF(negative_scale)},
    {"fault: base of lse", NULL, 0, lse_of_equal_scores},
    {"fault: sinks of empty rows", ROWS_OF(sinks_of_empty_rows)},
    {"fault: sinks of split keys", NULL, 0, sinks_of_split_keys},
    {"fault: positions beyond the tables of rope", ROWS_OF(positions_of_rope)},
    {"fault: rope of more than its part of a head", ROWS_OF(parts_of_rope)},
    {"fault: cached keys rotated twice", NULL, 0, rope_of_cached_keys},
    {"fault: tables and positions that are not checked", NULL, 0, rope_arguments},
    {"fault: two runs differ in a bit", NULL, 0, repeated_runs_give_the_same_bits},
};

_Static_assert(LENGTH(faults) <= FAULT_TESTS_MOST, "room for all faults");

static void run_fault(void **state) {
  const fault *it = *state;
  for (size_t n = 0; n < it->count; ++n)
    judge_row(&it->rows[n]);
}

size_t fault_tests(struct CMUnitTest *tests) {
  for (size_t n = 0; n < LENGTH(faults); ++n) {
    memset(&tests[n], 0, sizeof tests[n]);
    tests[n].name = faults[n].name;
    tests[n].test_func = faults[n].run != NULL ? faults[n].run : run_fault;
    tests[n].initial_state = (void *)(uintptr_t)&faults[n];
  }
  return LENGTH(faults);
}
