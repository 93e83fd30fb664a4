/* SPDX-License-Identifier: Apache-2.0 */
#include "device_cases.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* Sizes next to the edges of every tile there is. */
#define EDGE_ROWS "sq=1|3|23|24|25|31|32|33|47|48|49|63|64|65|127|128|129"
#define EDGE_KEYS "sk=1|3|4|5|8|15|16|17|31|32|33|63|64|65|127|128|129|255|256|257"
#define LONG_KEYS "sk=1023|1024|1025|1100"
#define EDGE_DIMS "d=1|2|3|8|16|17|31|40|64|80|96|128|255|256|257"
#define EDGE_VALUE_DIMS "dv=1|3|4|5|31|63|64|65|128|255|256|257|513"
#define LONG_DIMS "d=512|513|1024|1100"
/* Strides as large as they come. */
#define ENDLESS "9223372036854775807"
#define ENDLESS_2 "f32:strided:" ENDLESS "," ENDLESS
#define ENDLESS_3 ENDLESS_2 "," ENDLESS
#define ENDLESS_4 ENDLESS_3 "," ENDLESS

const device_case device_cases[] = {
    /* ---- shapes ---- */
    {.name = "rows at tile edges", .line = "sk=37 d=5", .vary = {EDGE_ROWS}},
    {.name = "keys at tile edges", .line = "sq=25 d=5", .vary = {EDGE_KEYS}},
    {.name = "rows x keys", .line = "hq=2 d=3 causal=1", .vary = {"sq=1|24|25|49|65", "sk=1|5|64|65|130"}},
    {.name = "many keys", .line = "sq=3 d=4", .vary = {LONG_KEYS}},
    {.name = "key dims at edges", .line = "sq=5 sk=19 dv=3", .vary = {EDGE_DIMS}},
    {.name = "value dims at edges", .line = "sq=5 sk=19 d=3", .vary = {EDGE_VALUE_DIMS}},
    {.name = "long key dims", .line = "sq=3 sk=9 dv=5", .vary = {LONG_DIMS}},
    {.name = "long key dims, many rules",
     .line = "hq=2 sq=27 sk=70 dv=5 softcap=5 causal=1 off=bottom_right mask=u8 bias=f32",
     .vary = {"d=257|600"},
     .data = DATA_BIAS_INF,
     .stages = 2},
    {.name = "sums that only grow",
     .line = "sq=9 sk=300 dv=7",
     .vary = {"d=64|300"},
     .data = DATA_POSITIVE,
     .stages = 2},
    {.name = "one element of everything", .line = "sq=1 sk=1 d=1"},
    {.name = "no keys", .line = "b=2 hq=2 sq=5 sk=0 d=4 dv=3"},
    {.name = "no keys at this enqueue", .line = "b=2 hq=2 sq=30 sk=9 d=4", .sizes = "2,30,0"},
    {.name = "empty batch or rows", .line = "b=3 sq=5 sk=4 d=4", .sizes = "0,5,4"},
    {.name = "no rows", .line = "b=3 sq=0 sk=4 d=4"},
    {.name = "no rows at this enqueue", .line = "b=3 hq=2 sq=6 sk=4 d=4", .sizes = "3,0,4"},

    /* ---- heads and batch ---- */
    {.name = "query heads per key head", .line = "hkv=1 sq=6 sk=9 d=4", .vary = {"hq=1|3|7|8|24", "b=1|2|3"}},
    {.name = "several key heads", .line = "b=2 hkv=3 sq=26 sk=35 d=8 dv=5", .vary = {"hq=3|6|9|24"}},
    {.name = "large batch",
     .line = "hq=2 sq=3 sk=5 d=4 klen=per_batch",
     .vary = {"b=31|32|33|64|65|70"},
     .k_lengths = "5,0,3,1,2,4,5",
     .stages = 2},
    {.name = "large batch, all arrays",
     .line = "sq=4 sk=9 d=3 causal=1 qlen=per_batch klen=per_batch off=per_batch",
     .vary = {"b=33|70|97"},
     .q_lengths = "4,0,3,1,2",
     .k_lengths = "9,0,3,1,2,4,5",
     .q_offsets = "0,1,-1,5,-9,20,3,2"},

    /* ---- positions ---- */
    {.name = "causal, aligned at the top", .line = "hq=2 d=4 causal=1", .vary = {"sq=1|7|26|70", "sk=1|7|26|70|133"}},
    {.name = "causal, aligned at the bottom",
     .line = "hq=2 d=4 causal=1 off=bottom_right",
     .vary = {"sq=1|7|26|70", "sk=1|7|26|70|133"}},
    {.name = "causal with an offset",
     .line = "sq=26 sk=70 d=4 causal=1",
     .vary = {"off=-100|-27|-26|-25|-5|0|5|44|69|70|71|1000|2147483647|-2147483647"}},
    {.name = "windows far from zero",
     .line = "sq=3 sk=5 d=4 off=2147483647",
     .vary = {"window=2147483647,inf|2147483645,inf|inf,0|2147483648,1|99999999999,3", "klen=full|per_batch"},
     .k_lengths = "4"},
    {.name = "windows far below zero",
     .line = "sq=3 sk=5 d=4 off=-2147483647",
     .vary = {"window=inf,2147483647|inf,2147483645|0,inf|1,2147483648|3,99999999999", "klen=full|per_batch"},
     .k_lengths = "4"},
    {.name = "the most extreme offsets per batch entry",
     .line = "b=4 sq=3 sk=5 d=4 off=per_batch",
     .vary = {"causal=0|1", "window=inf,inf|2147483647,inf|inf,2147483648"},
     .q_offsets = "-2147483648,2147483647,0,1"},
    {.name = "an offset per batch entry",
     .line = "b=5 hq=2 sq=26 sk=70 d=4 causal=1 off=per_batch",
     .q_offsets = "0,44,-7,300,-30"},
    {.name = "an offset given with the enqueue",
     .line = "b=3 sq=26 sk=70 d=4 causal=1 off=9",
     .vary = {"window=inf,inf|8,0"},
     .q_offsets = "3,-4,50"},
    {.name = "windows",
     .line = "sq=26 sk=70 d=4",
     .vary = {"window=0,0|3,inf|inf,2|inf,0|0,inf|5,2|30,30|1000,1000|inf,inf|9223372036854775807,9223372036854775807",
              "off=0|44|-10|200"}},
    {.name = "windows and causal",
     .line = "sq=65 sk=70 d=4 causal=1",
     .vary = {"window=0,0|3,inf|inf,2|5,7", "off=bottom_right|top_left|-3"}},
    {.name = "a narrow window over many keys",
     .line = "sq=150 sk=1100 d=3 off=bottom_right",
     .vary = {"window=9,0|0,9"},
     .stages = 2},

    /* ---- lengths ---- */
    {.name = "key lengths", .line = "b=6 hq=2 sq=5 sk=70 d=4 klen=per_batch", .k_lengths = "0,1,64,65,70,33"},
    {.name = "query lengths", .line = "b=6 hq=2 sq=50 sk=7 d=4 qlen=per_batch", .q_lengths = "0,1,24,25,50,49"},
    {.name = "both lengths, causal",
     .line = "b=7 hq=4 hkv=2 sq=50 sk=70 d=4 causal=1 qlen=per_batch klen=per_batch",
     .vary = {"off=top_left|bottom_right|3", "window=inf,inf|20,3"},
     .q_lengths = "0,1,24,25,50,49,50",
     .k_lengths = "70,1,0,25,70,12,3"},
    {.name = "lengths below smaller sizes",
     .line = "b=7 sq=50 sk=70 d=4 causal=1 off=bottom_right qlen=per_batch klen=per_batch",
     .q_lengths = "0,1,20,7",
     .k_lengths = "60,1,0,25,33",
     .sizes = "5,20,60"},
    {.name = "all lengths zero",
     .line = "b=3 hq=2 sq=5 sk=6 d=4 qlen=per_batch klen=per_batch",
     .q_lengths = "0,0,5",
     .k_lengths = "0,6,0"},

    /* ---- keep masks: every axis broadcast alone, then all ---- */
    {.name = "keep mask, bytes",
     .line = "b=2 hq=2 sq=26 sk=70 d=4",
     .vary =
         {"mask=u8|u8:bshd|u8:bhsd_exact|u8:strided:0,1820,70,1|u8:strided:1820,0,70,1|u8:strided:140,70,0,1|"
          "u8:strided:52,26,1,0|u8:strided:0,0,0,1|u8:strided:0,0,1,0|u8:strided:0,0,0,0|u8:strided:7000,3500,130,1|"
          "u8:strided:1,2,4,104"}},
    {.name = "keep mask, bits",
     .line = "b=2 hq=2 sq=26",
     .vary = {"mask=bits|bits:bshd|bits:bshd_exact|bits:strided:0,78,3,1|bits:strided:78,0,3,1|bits:strided:6,3,0,1|"
              "bits:strided:52,26,1,0|bits:strided:0,0,0,1|bits:strided:0,0,1,0|bits:strided:0,0,0,0|"
              "bits:strided:700,350,13,1",
              "sk=1 d=4|31 d=4|32 d=4|33 d=4|70 d=4"}},
    {.name = "keep mask hides all",
     .line = "hq=2 sq=26 sk=70 d=4",
     .vary = {"mask=u8|bits", "causal=0|1"},
     .data = DATA_MASK_NONE},
    {.name = "keep mask hides nothing",
     .line = "hq=2 sq=26 sk=70 d=4",
     .vary = {"mask=u8|bits"},
     .data = DATA_MASK_ALL},
    {.name = "keep mask hides rows", .line = "hq=2 sq=50 sk=70 d=4", .vary = {"mask=u8|bits"}, .data = DATA_MASK_ROWS},
    {.name = "keep mask hides the first keys",
     .line = "hq=2 sq=26 sk=150 d=4",
     .vary = {"mask=u8|bits"},
     .data = DATA_MASK_FIRST},
    {.name = "keep mask leaves the last key",
     .line = "hq=2 sq=26 d=4",
     .vary = {"sk=1|64|65|257", "mask=u8|bits"},
     .data = DATA_MASK_LAST},
    {.name = "keep mask leaves the last key of many",
     .line = "sq=3 sk=1100 d=4",
     .vary = {"mask=u8|bits"},
     .data = DATA_MASK_LAST | DATA_INF_V},

    /* ---- bias ---- */
    {.name = "bias",
     .line = "b=2 hq=2 sq=26 sk=70 d=4",
     .vary = {"bias=f32|f32:bshd|f32:bhsd_exact|f32:strided:0,1820,70,1|f32:strided:1820,0,70,1|f32:strided:140,70,0,1|"
              "f32:strided:52,26,1,0|f32:strided:0,0,0,1|f32:strided:0,0,1,0|f32:strided:0,0,0,0|"
              "f32:strided:7000,3500,130,1|f32:strided:1,2,4,104"}},
    {.name = "bias of -inf",
     .line = "hq=2 sq=26 sk=70 d=4 bias=f32",
     .vary = {"causal=0|1", "softcap=2|0"},
     .data = DATA_BIAS_INF},
    {.name = "bias of +inf",
     .line = "hq=2 sq=26 sk=70 d=4 bias=f32",
     .vary = {"mask=none|u8"},
     .data = DATA_BIAS_PLUS_INF},
    {.name = "bias of -FLT_MAX everywhere",
     .line = "hq=2 sq=26 sk=70 d=4 bias=f32",
     .vary = {"causal=0|1", "scale=0|default|-9"},
     .data = DATA_BIAS_LOWEST},
    {.name = "bias of -1e30 everywhere",
     .line = "hq=2 sq=26 sk=70 d=4 bias=f32",
     .vary = {"causal=0|1", "scale=0|default|-9"},
     .data = DATA_BIAS_DEEP},
    {.name = "bias of 1e30 and -1e30",
     .line = "hq=2 sq=26 sk=70 d=4 bias=f32",
     .vary = {"causal=0|1"},
     .data = DATA_BIAS_HUGE},

    /* ---- scale and softcap ---- */
    {.name = "scales",
     .line = "hq=2 sq=26 sk=37 d=4",
     .vary = {"scale=0|-0|1|-1|-0.3|0.001|7|1e-30|3e4|-3e4", "softcap=0|3"}},
    {.name = "softcaps",
     .line = "hq=2 sq=26 sk=37 d=4 bias=f32",
     .vary = {"softcap=0.01|1|30|1000|1e30", "scale=default|4|-4"}},
    {.name = "scalars given with the enqueue",
     .line = "sq=26 sk=37 d=4 softcap=9 scale=2",
     .scale = -0.7f,
     .softcap = 2.5f},
    {.name = "far-off keys",
     .line = "hq=2 sq=26 sk=70 d=4 scale=1",
     .vary = {"causal=0|1", "scores=f32|f32:bshd"},
     .data = DATA_FAR},
    {.name = "far-off keys, masked",
     .line = "hq=2 sq=26 sk=70 d=4 scale=1",
     .vary = {"mask=u8|bits"},
     .data = DATA_FAR},

    /* ---- NaN and infinity ---- */
    {.name = "NaN in q",
     .line = "b=2 hq=2 sq=26 sk=70 d=4",
     .vary = {"mask=none|u8", "causal=0|1"},
     .data = DATA_NAN_Q},
    {.name = "infinity in q",
     .line = "b=2 hq=2 sq=26 sk=70 d=4",
     .vary = {"mask=none|u8", "softcap=0|2"},
     .data = DATA_INF_Q},
    {.name = "NaN in k",
     .line = "hq=4 hkv=2 sq=50 sk=70 d=4",
     .vary = {"mask=none|u8|bits", "causal=0|1"},
     .data = DATA_NAN_K},
    {.name = "infinity in k",
     .line = "hq=4 hkv=2 sq=50 sk=70 d=4",
     .vary = {"mask=none|u8", "softcap=0|2"},
     .data = DATA_INF_K},
    {.name = "NaN in v",
     .line = "hq=4 hkv=2 sq=50 sk=70 d=4 dv=7",
     .vary = {"mask=none|u8|bits", "causal=0|1"},
     .data = DATA_NAN_V},
    {.name = "infinity in v",
     .line = "hq=4 hkv=2 sq=50 sk=70 d=4 dv=7",
     .vary = {"mask=none|u8", "causal=0|1"},
     .data = DATA_INF_V},
    {.name = "NaN and infinity in v, wide",
     .line = "sq=50 sk=70 d=4",
     .vary = {"dv=64|257", "mask=u8|none"},
     .data = DATA_INF_V | DATA_NAN_V,
     .stages = 1},
    {.name = "NaN in v excluded by bias",
     .line = "hq=2 sq=26 sk=70 d=4 dv=7 bias=f32",
     .data = DATA_NAN_V | DATA_BIAS_INF},
    {.name = "NaN in v of a key that is far off",
     .line = "hq=2 sq=26 sk=70 d=4 dv=7 scale=1",
     .vary = {"mask=none|u8"},
     .data = DATA_NAN_V | DATA_FAR},
    {.name = "all of them",
     .line = "b=2 hq=4 hkv=2 sq=50 sk=70 d=4 dv=7 mask=u8 bias=f32 causal=1 off=bottom_right",
     .data = DATA_NAN_Q | DATA_INF_Q | DATA_NAN_K | DATA_INF_K | DATA_NAN_V | DATA_INF_V | DATA_BIAS_INF},

    /* ---- strides ---- */
    {.name = "layouts",
     .line = "b=2 hq=4 hkv=2 sq=26 sk=35 d=6 dv=5",
     .vary = {"q=bhsd|bshd|bhsd_exact|bshd_exact|f32:strided:1000,7,31,1", "o=bhsd|bshd|bhsd_exact|bshd_exact"}},
    {.name = "layouts of k and v",
     .line = "b=2 hq=4 hkv=2 sq=26 sk=35 d=6 dv=5",
     .vary = {"k=bhsd|bshd|bhsd_exact|bshd_exact", "v=bhsd|bshd|bhsd_exact|bshd_exact"}},
    {.name = "layouts of small results",
     .line = "b=2 hq=4 hkv=2 sq=26 sk=35 d=6",
     .vary = {"lse=bhsd|bshd|bshd_exact|f32:strided:400,3,12,0|f32:strided:1,2,8,0",
              "max_logit=bhsd|f32:strided:1,2,0,0|f32:strided:50,7,0,0"}},
    {.name = "layouts of scores",
     .line = "b=2 hq=4 hkv=2 sq=26 sk=35 d=6",
     .vary = {"scores=bhsd|bshd|bshd_exact|f32:strided:9000,2100,77,2|f32:strided:1,2,8,208"}},
    {.name = "layouts at smaller sizes",
     .line = "b=3 hq=4 hkv=2 sq=40 sk=50 d=6 dv=5 mask=u8 bias=f32 causal=1",
     .vary = {"q=bhsd|bshd_exact", "k=bhsd|bshd_exact"},
     .sizes = "2,26,35"},
    {.name = "exact layouts at smaller sizes",
     .line = "b=3 hq=2 sq=40 sk=50 d=6 q=bshd_exact v=bhsd_exact o=bshd_exact lse=bshd_exact scores=bshd_exact "
             "max_logit=bhsd_exact "
             "mask=bits:bhsd_exact bias=f32:bshd_exact klen=per_batch",
     .k_lengths = "35,7",
     .sizes = "2,26,35"},
    {.name = "q and o with gaps",
     .line = "b=2 hq=3 sq=26 sk=35 d=6 dv=5",
     .vary = {"q=f32:strided:2000,600,13,2|f32:strided:1,2,6,156",
              "o=f32:strided:2000,600,13,2|f32:strided:1,2,6,156|f32:strided:3400,7,130,1"}},
    {.name = "k with other strides",
     .line = "b=2 hq=4 hkv=2 sq=26 sk=35 d=6",
     .vary = {"k=f32:strided:1000,400,11,1|f32:strided:420,210,1,35|f32:strided:420,210,1,0|f32:strided:420,210,0,1|"
              "f32:strided:0,210,6,1|"
              "f32:strided:210,0,6,1|f32:strided:0,0,0,0|f32:strided:4000,2000,50,8"}},
    {.name = "v with other strides",
     .line = "b=2 hq=4 hkv=2 sq=26 sk=70 d=3 dv=6",
     .vary = {"v=f32:strided:2000,800,11,1|f32:strided:840,420,1,70|f32:strided:840,420,1,0|f32:strided:840,420,0,1|"
              "f32:strided:0,420,6,1|"
              "f32:strided:420,0,6,1|f32:strided:0,0,0,0|f32:strided:9000,4500,50,8"}},
    {.name = "q broadcast",
     .line = "b=2 hq=4 hkv=2 sq=26 sk=35 d=6",
     .vary = {"q=f32:strided:0,156,6,1|f32:strided:156,0,6,1|f32:strided:24,6,0,1|f32:strided:104,26,1,0|f32:strided:0,"
              "0,0,0"}},
    {.name = "long dims with strides",
     .line = "sq=25 sk=9 d=300 dv=270",
     .stages = 1,
     .vary = {"k=f32:strided:0,0,1,9|f32:strided:0,0,620,2", "v=f32:strided:0,0,1,9|f32:strided:0,0,560,2"}},
    {.name = "endless strides on axes of one element",
     .line = "sq=1 sk=35 d=6 dv=5 q=" ENDLESS_3 ",1 k=" ENDLESS_2 ",6,1 v=" ENDLESS_2 ",5,1 o=" ENDLESS_3 ",1 "
             "lse=" ENDLESS_3 ",0 scores=" ENDLESS_3 ",1 max_logit=" ENDLESS_2 ",0,0 bias=" ENDLESS_3 ",1",
     .vary = {"mask=none|u8:strided:" ENDLESS "," ENDLESS "," ENDLESS ",1|bits:strided:" ENDLESS "," ENDLESS "," ENDLESS
              ",1"}},
    {.name = "endless strides everywhere",
     .line = "sq=1 sk=1 d=1 q=" ENDLESS_4 " k=" ENDLESS_4 " v=" ENDLESS_4 " o=" ENDLESS_4 " lse=" ENDLESS_3 ",0 "
             "scores=" ENDLESS_4 " max_logit=" ENDLESS_2 ",0,0 bias=" ENDLESS_4},
    {.name = "endless strides of empty tensors",
     .line = "b=2 hq=4 hkv=2 d=6 dv=5",
     .vary = {"sq=26 sk=0 k=" ENDLESS_4 " v=" ENDLESS_4 " scores=" ENDLESS_4 " bias=" ENDLESS_4 "|0 sk=35 q=" ENDLESS_4
              " o=" ENDLESS_4 " lse=" ENDLESS_3 ",0 scores=" ENDLESS_4 " bias=" ENDLESS_4}},
    {.name = "packed q, k and v",
     .line =
         "b=2 hq=2 sq=26 sk=26 d=4 q=f32:strided:624,4,24,1 k=f32:strided:624,4,24,1 v=f32:strided:624,4,24,1 o=bshd"},

    /* ---- everything at once ---- */
    {.name = "drawn problems", .random = 150},
    {.name = "more drawn problems", .random = 700, .full = 1},
    {.name = "large drawn problems", .random = 40, .full = 2},

    /* ---- the long part ---- */
    {.name = "rows at tile edges x keys",
     .line = "hq=2 d=8 causal=1 off=bottom_right mask=bits",
     .vary = {EDGE_ROWS, EDGE_KEYS},
     .full = 1,
     .stages = 2},
    {.name = "rows x many keys", .line = "d=8", .vary = {"sq=1|25|65", LONG_KEYS}, .full = 1, .stages = 2},
    {.name = "dims x value dims",
     .line = "sq=25 sk=66",
     .vary = {"d=1|2|31|64|96|255|257", EDGE_VALUE_DIMS},
     .full = 1,
     .stages = 1},
    {.name = "long dims", .line = "sq=25 sk=66 dv=9", .vary = {LONG_DIMS, "causal=0|1"}, .full = 1, .stages = 2},
    {.name = "heads",
     .line = "hkv=2 sq=25 sk=66 d=40 causal=1",
     .vary = {"hq=2|6|14|16|48", "b=1|2|3"},
     .full = 1,
     .stages = 1},
    {.name = "a model's layer",
     .line = "b=2 hq=8 hkv=2 sq=130 sk=260 d=64 causal=1 off=bottom_right q=bshd k=bshd v=bshd o=bshd",
     .full = 1,
     .stages = 1},
    {.name = "long context, few rows",
     .line = "hq=4 hkv=1 sq=2 sk=5000 d=64 causal=1 off=bottom_right",
     .full = 1,
     .stages = 1},
    {.name = "many numbers of one sign",
     .line = "sq=4 sk=4000 d=300 dv=5",
     .data = DATA_POSITIVE,
     .full = 1,
     .stages = 1},
};
const size_t device_case_count = LENGTH(device_cases);

/* ---- random numbers -------------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x) {
  x ^= x >> 31;
  x *= UINT64_C(0x7fb5d329728ea185);
  x ^= x >> 27;
  x *= UINT64_C(0x81dadef4bc2dd44d);
  return x ^ (x >> 33);
}

double device_random(uint64_t seed, uint64_t a, uint64_t b) {
  const uint64_t x = mix(mix(mix(seed + UINT64_C(0x9e3779b97f4a7c15)) ^ a) + b * UINT64_C(0xd1342543de82ef95));
  return (double)(x >> 11) / 9007199254740992.0;
}

typedef struct draw {
  uint64_t seed, count;
} draw;

static int64_t below(draw *d, int64_t count) {
  return (int64_t)(device_random(d->seed, 77, d->count++) * (double)count);
}

static int64_t one_of(draw *d, const int64_t *list, size_t count) {
  return list[below(d, (int64_t)count)];
}

/* ---- drawn problems -------------------------------------------------------------------------------------------- */

typedef struct text {
  char *at;
  size_t left;
} text;

static void put(text *t, const char *format, ...) {
  va_list values;
  va_start(values, format);
  const int length = vsnprintf(t->at, t->left, format, values);
  va_end(values);
  if (length > 0 && (size_t)length < t->left) {
    t->at += length;
    t->left -= (size_t)length;
  }
}

/* Strides of a tensor in any order of axes, with gaps, and broadcast on some where that is allowed. */
static void put_strides(text *t, draw *d, const int64_t shape[4], int axes, int may_broadcast) {
  int order[4] = {0, 1, 2, 3};
  int64_t stride[4] = {0, 0, 0, 0}, next = 1;
  for (int i = axes - 1; i > 0; --i) {
    const int other = (int)below(d, i + 1), kept = order[i];
    order[i] = order[other];
    order[other] = kept;
  }
  for (int i = 0; i < axes; ++i) {
    const int axis = order[i];
    if (may_broadcast && below(d, 6) == 0)
      continue;
    next += below(d, 3) == 0 ? below(d, 5) : 0;
    stride[axis] = next;
    next *= shape[axis] > 0 ? shape[axis] : 1;
  }
  put(t, ":strided:%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64, stride[0], stride[1], stride[2], stride[3]);
}

static void put_layout(text *t, draw *d, const char *key, const char *type, const int64_t shape[4], int axes,
                       int may_broadcast) {
  static const char *const names[] = {"bhsd", "bshd", "bhsd_exact", "bshd_exact"};
  const int64_t kind = below(d, 7);
  if (kind == 0 && strcmp(key, "mask") != 0 && strcmp(key, "bias") != 0)
    return;
  put(t, " %s=%s", key, type);
  if (kind < 5)
    put(t, ":%s", names[kind > 0 ? kind - 1 : 0]);
  else
    put_strides(t, d, shape, axes, may_broadcast);
}

static void put_mask(text *t, draw *d, int64_t b, int64_t hq, int64_t sq, int64_t sk) {
  if (below(d, 2) == 0) {
    const int64_t shape[4] = {b, hq, sq, sk};
    put_layout(t, d, "mask", "u8", shape, 4, 1);
  } else if (below(d, 2) == 0) {
    put(t, " mask=bits");
  } else { /* key j needs an element stride of 1, or 0 */
    const int64_t words = (sk + 31) / 32 + below(d, 2);
    const int64_t row = below(d, 4) == 0 ? 0 : words, head = below(d, 4) == 0 ? 0 : words * sq + below(d, 3);
    const int64_t batch = below(d, 4) == 0 ? 0 : (words * sq + 3) * hq;
    put(t, " mask=bits:strided:%" PRId64 ",%" PRId64 ",%" PRId64 ",%d", batch, head, row, below(d, 6) != 0);
  }
}

static int32_t draw_length(draw *d, int64_t most) {
  const int64_t kind = below(d, 5);
  return (int32_t)(kind == 0 ? 0 : kind == 1 ? most : below(d, most + 1));
}

static unsigned draw_data(draw *d, int masked, int biased) {
  static const unsigned masks[] = {
      0, 0, DATA_MASK_ROWS, DATA_MASK_FIRST, DATA_MASK_LAST, DATA_MASK_ALL, DATA_MASK_NONE};
  static const unsigned biases[] = {0, 0, DATA_BIAS_INF, DATA_BIAS_INF, DATA_BIAS_HUGE, DATA_BIAS_PLUS_INF};
  static const unsigned specials[] = {DATA_NAN_Q, DATA_INF_Q, DATA_NAN_K, DATA_INF_K, DATA_NAN_V, DATA_INF_V};
  unsigned data = 0;
  if (masked)
    data |= masks[below(d, LENGTH(masks))];
  if (biased)
    data |= biases[below(d, LENGTH(biases))];
  while (below(d, 4) == 0)
    data |= specials[below(d, LENGTH(specials))];
  return data;
}

/* size: 0 small, 1 some larger, 2 large. */
static void draw_problem(uint64_t seed, int size, device_job *job) {
  static const int64_t rows[] = {1, 2, 3, 5, 8, 23, 24, 25, 26, 33, 48, 49, 64, 65, 66};
  static const int64_t keys[] = {1, 2, 3, 4, 5, 7, 16, 31, 32, 33, 63, 64, 65, 70, 100, 129};
  static const int64_t dims[] = {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 40, 64};
  static const int64_t more[] = {96, 127, 128, 130, 200, 255, 257, 300};
  static const int64_t ratios[] = {1, 1, 2, 3, 5, 8};
  draw d = {seed, 0};
  text t = {job->line, sizeof job->line};
  const int64_t most = size == 0 ? 30000 : size == 1 ? 250000 : 12000000;
  int64_t b, hkv, hq, sq, sk, dqk, dv;
  do {
    b = 1 + below(&d, 4);
    hkv = 1 + below(&d, 3);
    hq = hkv * one_of(&d, ratios, LENGTH(ratios));
    sq = size == 2 ? 1 + below(&d, 200) : one_of(&d, rows, LENGTH(rows));
    sk = size == 2 ? 1 + below(&d, 1500) : one_of(&d, keys, LENGTH(keys));
    dqk = size > 0 && below(&d, 3) == 0 ? one_of(&d, more, LENGTH(more)) : one_of(&d, dims, LENGTH(dims));
    dv = below(&d, 2) == 0               ? dqk
         : size > 0 && below(&d, 3) == 0 ? one_of(&d, more, LENGTH(more))
                                         : one_of(&d, dims, LENGTH(dims));
  } while (b * hq * sq * sk * (dqk + dv) > most * 8 || b * hq * sq * sk > most);
  const int64_t q[4] = {b, hq, sq, dqk}, k[4] = {b, hkv, sk, dqk}, v[4] = {b, hkv, sk, dv}, o[4] = {b, hq, sq, dv};
  const int64_t pairs[4] = {b, hq, sq, sk};
  put(&t, "b=%" PRId64 " hq=%" PRId64 " hkv=%" PRId64 " sq=%" PRId64 " sk=%" PRId64 " d=%" PRId64 " dv=%" PRId64, b, hq,
      hkv, sq, sk, dqk, dv);
  put_layout(&t, &d, "q", "f32", q, 4, 1);
  put_layout(&t, &d, "k", "f32", k, 4, 1);
  put_layout(&t, &d, "v", "f32", v, 4, 1);
  put_layout(&t, &d, "o", "f32", o, 4, 0);
  put_layout(&t, &d, "lse", "f32", q, 3, 0);
  put_layout(&t, &d, "scores", "f32", pairs, 4, 0);
  if (below(&d, 3) == 0)
    put(&t, " causal=1");
  if (below(&d, 3) == 0)
    put(&t, " scale=%g", (4.0 * device_random(seed, 1, 2) - 2.0) / sqrt((double)dqk));
  if (below(&d, 4) == 0)
    put(&t, " softcap=%g", 0.5 + 9.0 * device_random(seed, 1, 3));
  const int64_t left = below(&d, sk + 3), right = below(&d, sk + 3);
  switch (below(&d, 8)) {
  case 0:
    put(&t, " window=%" PRId64 ",%" PRId64, left, right);
    break;
  case 1:
    put(&t, " window=%" PRId64 ",inf", left);
    break;
  case 2:
    put(&t, " window=inf,%" PRId64, right);
    break;
  default:
    break;
  }
  switch (below(&d, 5)) {
  case 0:
    put(&t, " off=bottom_right");
    break;
  case 1:
    put(&t, " off=%" PRId64, below(&d, 2 * sk + 2) - sk - 1);
    break;
  case 2:
    put(&t, " off=per_batch");
    job->has_q_offsets = 1;
    break;
  default:
    break;
  }
  job->has_q_lengths = below(&d, 4) == 0;
  job->has_k_lengths = below(&d, 3) == 0;
  if (job->has_q_lengths)
    put(&t, " qlen=per_batch");
  if (job->has_k_lengths)
    put(&t, " klen=per_batch");
  const int masked = below(&d, 2) == 0, biased = below(&d, 2) == 0;
  if (masked)
    put_mask(&t, &d, b, hq, sq, sk);
  if (biased)
    put_layout(&t, &d, "bias", "f32", pairs, 4, 1);
  job->data = draw_data(&d, masked, biased);
  const clattni_sizes bounds = {b, sq, sk};
  job->sizes = bounds;
  job->sizes_given = below(&d, 3) == 0;
  if (job->sizes_given) {
    job->sizes.batch = 1 + below(&d, b);
    job->sizes.q_len = 1 + below(&d, sq);
    job->sizes.k_len = below(&d, sk + 1);
  }
  for (int64_t n = 0; n < job->sizes.batch; ++n) {
    job->q_lengths[n] = draw_length(&d, job->sizes.q_len);
    job->k_lengths[n] = draw_length(&d, job->sizes.k_len);
    job->q_offsets[n] = (int32_t)(below(&d, 2 * sk + 2) - sk - 1);
  }
  job->stages = size == 0 ? 2 : 1;
}

/* ---- expansion ------------------------------------------------------------------------------------------------- */

static size_t count_values(const char *vary) {
  size_t count = 1;
  for (; vary != NULL && *vary != '\0'; ++vary)
    count += *vary == '|';
  return count;
}

size_t device_case_jobs(const device_case *row) {
  return row->random > 0 ? (size_t)row->random : count_values(row->vary[0]) * count_values(row->vary[1]);
}

/* " key=value" of value number index. */
static void put_value(text *t, const char *vary, size_t index) {
  if (vary == NULL)
    return;
  const char *value = strchr(vary, '=') + 1;
  put(t, " %.*s", (int)(value - vary), vary);
  for (; index > 0; --index)
    value = strchr(value, '|') + 1;
  put(t, "%.*s", (int)strcspn(value, "|"), value);
}

static void read_entries(const char *list, int64_t most, int64_t batch, int32_t *entries) {
  const char *at = list;
  for (int64_t b = 0; b < batch; ++b) {
    char *end;
    const long value = strtol(at, &end, 10);
    entries[b] = (int32_t)(most < 0 ? value : value < 0 || value > most ? most : value);
    at = *end == ',' ? end + 1 : list;
  }
}

static void read_row(const device_case *row, size_t index, device_job *job) {
  text t = {job->line, sizeof job->line};
  const size_t inner = count_values(row->vary[1]);
  put(&t, "%s", row->line);
  put_value(&t, row->vary[0], index / inner);
  put_value(&t, row->vary[1], index % inner);
  job->data = row->data;
  /* stages go round with the index, so rows of many jobs meet all of them anyway */
  job->stages = row->stages > 0 || device_case_jobs(row) < 8 ? row->stages : 2;
  job->has_q_offsets = row->q_offsets != NULL;
  job->scale_given = row->scale > 0 || row->scale < 0;
  job->softcap_given = row->softcap > 0;
}

int device_case_job(const device_case *row, size_t index, device_job *job) {
  clattn_error error;
  clattn_error_init(&error);
  memset(job, 0, sizeof *job);
  for (const char *c = row->name; *c != '\0'; ++c)
    job->seed = job->seed * 131 + (unsigned char)*c;
  job->seed += 1000003u * index;
  if (row->random > 0)
    draw_problem(job->seed, row->full, job);
  else
    read_row(row, index, job);
  if (clattn_problem_parse(job->line, &job->problem, &error) != CLATTN_SUCCESS ||
      clattn_problem_check(&job->problem, &error) != CLATTN_SUCCESS) {
    (void)fprintf(stderr, "case \"%s\": %s: %s\n", row->name, job->line, error.message);
    return 0;
  }
  clattni_problem_resolve(&job->problem, &job->resolved);
  if (job->resolved.batch > JOB_MAX_BATCH) {
    (void)fprintf(stderr, "case \"%s\": more than %d batch entries\n", row->name, JOB_MAX_BATCH);
    return 0;
  }
  if (row->random == 0) {
    job->sizes.batch = job->resolved.batch;
    job->sizes.q_len = job->resolved.q_len;
    job->sizes.k_len = job->resolved.k_len;
    job->sizes_given = row->sizes != NULL;
    if (row->sizes != NULL && sscanf(row->sizes, "%" SCNd64 ",%" SCNd64 ",%" SCNd64, &job->sizes.batch,
                                     &job->sizes.q_len, &job->sizes.k_len) != 3)
      return 0;
    job->has_q_lengths = job->problem.q_length_mode == CLATTN_LENGTH_PER_BATCH;
    job->has_k_lengths = job->problem.k_length_mode == CLATTN_LENGTH_PER_BATCH;
    if ((job->has_q_lengths && row->q_lengths == NULL) || (job->has_k_lengths && row->k_lengths == NULL)) {
      (void)fprintf(stderr, "case \"%s\" lacks lengths\n", row->name);
      return 0;
    }
    if (job->has_q_lengths)
      read_entries(row->q_lengths, job->sizes.q_len, job->sizes.batch, job->q_lengths);
    if (job->has_k_lengths)
      read_entries(row->k_lengths, job->sizes.k_len, job->sizes.batch, job->k_lengths);
    if (job->has_q_offsets)
      read_entries(row->q_offsets, -1, job->sizes.batch, job->q_offsets);
  }
  job->scale = job->scale_given ? row->scale : job->resolved.scale;
  job->softcap = job->softcap_given ? row->softcap : job->resolved.softcap;
  return 1;
}

/* ---- the rules, pair by pair ----------------------------------------------------------------------------------- */

int64_t job_q_len(const device_job *job, int64_t b) {
  return job->has_q_lengths ? job->q_lengths[b] : job->sizes.q_len;
}

int64_t job_k_len(const device_job *job, int64_t b) {
  return job->has_k_lengths ? job->k_lengths[b] : job->sizes.k_len;
}

static int64_t position_offset(const device_job *job, int64_t b) {
  if (job->has_q_offsets)
    return job->q_offsets[b];
  if (job->problem.offset_mode == CLATTN_OFFSET_BOTTOM_RIGHT)
    return job_k_len(job, b) - job_q_len(job, b);
  return job->problem.offset_mode == CLATTN_OFFSET_VALUE ? job->problem.offset : 0;
}

int job_sees(const device_job *job, int64_t b, int64_t i, int64_t j) {
  const clattn_problem *p = &job->problem;
  if (i >= job_q_len(job, b) || j >= job_k_len(job, b))
    return 0;
  /* distance = j - position, cut to where no size or count reaches, so that nothing overflows */
  const int64_t far = INT64_MAX / 2;
  const int64_t offset = position_offset(job, b);
  const int64_t distance = j - i - (offset > far ? far : offset < -far ? -far : offset);
  if (p->causal && distance > 0)
    return 0;
  if ((p->window & CLATTN_WINDOW_LEFT) && distance < -p->window_left)
    return 0;
  return !((p->window & CLATTN_WINDOW_RIGHT) && distance > p->window_right);
}
