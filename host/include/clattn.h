/* SPDX-License-Identifier: Apache-2.0
 *
 * clattn: attention for OpenCL.  This header is the library's manual; read it from top to bottom.
 *
 * For batch b, query head h (key head h / (q_heads / kv_heads)), query row i at position p = i + off[b], key row j:
 *
 *     s      = similarity(q_i, k_j) * scale * head_scale[h]
 *     s      = softcap * tanh(s / softcap)                 if softcap > 0
 *     s      = s + bias[b,h,i,j] + alibi                   slope * (j - p), or -slope * |j - p|
 *     s      = score_hook(s, ...)                          OpenCL C of the caller
 *     kept j = every rule keeps it and s != -inf
 *     m      = max(kept s, sink[h]);   l = sum over kept of exp(s - m) + exp(sink[h] - m)
 *     weight = exp(s - m) / l;   o_i = sum of weight * v_j;   lse_i = m + ln l
 *
 * Five things hold in every kernel:
 *   - An excluded key has weight exactly 0, whatever its score and its value (NaN and infinity included).
 *     Finite scores such as -1e30 or -FLT_MAX are ordinary scores; only a score of -inf excludes.
 *   - A row without any kept key gives o = 0 and lse = -inf (with a sink: lse = sink).  Every row is written.
 *     A sink of NaN or +inf makes o and lse of every row NaN, as such a score would.
 *   - NaN in q_i makes row i NaN, in k_j the rows that keep j, in v_j[d] the element o[d] of those rows.
 *     A kept score of +inf or NaN makes o_i and lse_i NaN.
 *   - Sums are fp32 for every storage type.  Logarithms are natural.  On a matrix unit weights are rounded to v's type
 *     before they meet v.
 *   - The same plan, device, driver and inputs give the same bits.
 *
 * Steps:  clattn_context_create, clattn_problem_init, clattn_plan_create, clattn_enqueue (many times), release.
 * Shorter: clattn_attention does plan, enqueue and release in one call.
 *
 * Reading rules for the structs below.  `struct_size` is set by the matching _init function, which also sets every
 * other byte to zero; zero means "the default".  Where zero is a value of its own, an enum beside the field says
 * whether the field counts.  Nested structs have reserved words that must stay zero.  Sizes are counts of elements,
 * strides are in elements, offsets and extents of memory are in bytes.  Fields that this release can't serve yet are
 * refused with CLATTN_ERROR_NOT_SUPPORTED and a message that names the field.  A value of the problem whose enum or bit
 * is off does not count, unless it is outside an enum of its own or has no enum beside it; what an enqueue gives and the
 * problem does not use is refused.
 *
 * Threads: a context, a plan and a hook may be used by any number of threads at once.  A clattn_error, clattn_args or
 * clattn_problem belongs to one thread during a call.  The library never prints, never exits and reads no environment
 * variable.  Calls that build kernels or keep them in a disk cache can take seconds: making plans, prebuild, self-test,
 * the first merge, and releasing the last plan or the context.  None waits for the device but prebuild, self-test, an
 * enqueue with check_contents, and making a plan where that tests kernels at their first use (config_text, trust).
 *
 * Every call that takes a clattn_error sets it: on success status is 0 and the message empty.  (A struct of arguments
 * with a wrong struct_size is of another release: where its error pointer lies is not known, so that one stays.)
 * Structs and arrays on the host may be changed or freed as soon as a call returns.
 *
 * The header needs C11 or C++98 (an unnamed union), and no more of OpenCL than 1.2: an application may define
 * CL_TARGET_OPENCL_VERSION as it likes before including it, from 120 on.
 */
#ifndef CLATTN_H
#define CLATTN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __APPLE__
#include <OpenCL/opencl.h>
#else
#include <CL/cl.h>
#endif

#if defined(CLATTN_STATIC)
#define CLATTN_API
#elif defined(_WIN32)
#if defined(CLATTN_BUILDING)
#define CLATTN_API __declspec(dllexport)
#else
#define CLATTN_API __declspec(dllimport)
#endif
#elif defined(__GNUC__)
#define CLATTN_API __attribute__((visibility("default")))
#else
#define CLATTN_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define CLATTN_VERSION_MAJOR 0
#define CLATTN_VERSION_MINOR 1
#define CLATTN_VERSION_PATCH 0

/* The linked library's version: "major.minor.patch" in static storage, and major * 10000 + minor * 100 + patch. */
CLATTN_API const char *clattn_version(void);
CLATTN_API uint32_t clattn_version_number(void);

/* ------------------------------------------------------------------------------------------------------------------
 * 1. Status and errors
 * ------------------------------------------------------------------------------------------------------------------ */

/* 0 is success.  OpenCL's own codes pass through unchanged (CL_OUT_OF_RESOURCES stays -5).  clattn's own are below
 * -20000.  New codes are only appended. */
typedef int32_t clattn_status;
enum {
  CLATTN_SUCCESS = 0,
  CLATTN_ERROR_NULL_POINTER = -20001,     /* a required pointer is NULL */
  CLATTN_ERROR_STRUCT_SIZE = -20002,      /* struct_size is not one that this library knows: call the _init function */
  CLATTN_ERROR_RESERVED = -20003,         /* a reserved word or an unknown flag bit is not zero */
  CLATTN_ERROR_ENUM = -20004,             /* an enum field holds no value of its enum */
  CLATTN_ERROR_SHAPE = -20005,            /* sizes are negative, or do not fit each other */
  CLATTN_ERROR_STRIDE = -20006,           /* a stride is negative or not usable */
  CLATTN_ERROR_OVERFLOW = -20007,         /* an extent does not fit in 63 bits */
  CLATTN_ERROR_VALUE = -20008,            /* a scalar is out of its range (scale, softcap, window, rate, ...) */
  CLATTN_ERROR_LENGTH = -20009,           /* an entry of a host length, offset or prefix array is out of range */
  CLATTN_ERROR_TENSOR_MISSING = -20010,   /* the problem uses a tensor that the arguments do not give */
  CLATTN_ERROR_TENSOR_UNUSED = -20011,    /* the arguments give a tensor that the problem does not use */
  CLATTN_ERROR_BUFFER_TOO_SMALL = -20012, /* a tensor reaches beyond its memory */
  CLATTN_ERROR_ALIGNMENT = -20013,        /* a base or stride breaks the promised (or the element's) alignment */
  CLATTN_ERROR_OVERLAP = -20014,          /* an output overlaps an input, another output or the workspace */
  CLATTN_ERROR_WRONG_CONTEXT = -20015,    /* a queue, buffer or event is of another cl_context */
  CLATTN_ERROR_WRONG_DEVICE = -20016,     /* the queue is on another device than the plan */
  CLATTN_ERROR_WORKSPACE_TOO_SMALL = -20017, /* the workspace given, or the cap, is below what the plan needs */
  CLATTN_ERROR_BOUND = -20018,               /* a size of this enqueue is above the plan's upper bound */
  CLATTN_ERROR_UNKNOWN_VARIANT = -20019,     /* no variant has this name */
  CLATTN_ERROR_VARIANT_UNFIT = -20020,       /* the named variant, or every one, can't take this problem or device */
  CLATTN_ERROR_NOT_SUPPORTED = -20021,       /* a legal request that this release does not serve yet */
  CLATTN_ERROR_NO_DEVICE = -20022,           /* no OpenCL platform or no usable device */
  CLATTN_ERROR_OUT_OF_MEMORY = -20023,       /* host memory */
  CLATTN_ERROR_TEXT = -20024,                /* a problem line or config text can't be read */
  CLATTN_ERROR_SELF_TEST = -20025,           /* kernels build and run on this device but compute wrong numbers */
  CLATTN_ERROR_INTERNAL = -20026             /* a fault of clattn itself; please report it */
};

/* The code's name ("CL_OUT_OF_RESOURCES", "CLATTN_ERROR_SHAPE") and one sentence.  Never NULL; static storage;
 * unknown codes give "UNKNOWN_STATUS". */
CLATTN_API const char *clattn_status_name(clattn_status status);
CLATTN_API const char *clattn_status_text(clattn_status status);

/* Filled by calls that can fail in interesting ways; optional everywhere (NULL).  The caller's; never allocates. */
typedef struct clattn_error {
  size_t struct_size;
  clattn_status status;
  uint32_t reserved;
  char message[504];         /* the values and the rule they broke: "kv_heads 3 does not divide q_heads 8" */
  char *build_log;           /* caller's memory for the compiler's log, or NULL */
  size_t build_log_capacity; /* bytes there */
  size_t build_log_length;   /* out: bytes of the whole log without the final 0, may exceed the capacity (cut then) */
} clattn_error;
CLATTN_API void clattn_error_init(clattn_error *error);

/* ------------------------------------------------------------------------------------------------------------------
 * 2. Context
 * ------------------------------------------------------------------------------------------------------------------ */

typedef struct clattn_context clattn_context;
/* INFO: a line for each plan made ("plan: VARIANT: PROBLEM LINE"), for each entry that the disk cache gave or took
 * ("cache: ..."), for tests at first use ("trial: ..."; failures are WARNING), and where prebuild could not launch. */
enum { CLATTN_LOG_ERROR = 0, CLATTN_LOG_WARNING = 1, CLATTN_LOG_INFO = 2 };

/* The functions, and what their user pointers lead to, must be there until the context and every plan of it are
 * released: the last of these releases still calls them. */
typedef struct clattn_context_options {
  size_t struct_size;
  /* Log lines (no newline).  NULL: silent.  Called from any thread that calls the library, never with a lock held. */
  void (*log_fn)(void *user, int level, const char *line);
  void *log_user;
  /* Host memory; both or none.  alloc_fn must behave as malloc and be safe to call from any thread. */
  void *(*alloc_fn)(void *user, size_t bytes);
  void (*free_fn)(void *user, void *memory);
  void *alloc_user;
  /* "key=value;key=value".  Keys: variant=NAME (force one), forbid=NAME|matrix|fused|three-step (repeatable),
   * width=4|8|16 (floats of the CPU families' vectors, for tests; other variants refuse then), matrix=emulate-UNIT (by
   * flash-gpu-matrix, for tests; nvidia-75, nvidia, wmma, wmma-12, mfma-90a, mfma, dpas-8, dpas-16), trust=tested|all.
   * Unknown keys are CLATTN_ERROR_TEXT here, unknown names when a plan is made.  NULL: none.  trust=tested tests
   * kernels at first use in the context: that they build, fit, launch, and give what the reference gives.  A failure leads
   * to the next variant (where one was named, or none is left, to an error), with the reason in the plan's why and the log:
   * README, Limits.  Without the key all but CPUs are tested; all: nothing is. */
  const char *config_text;
  /* Disk cache of built kernels and of what tests found of them: a folder, or both functions.  NULL: off.
   * An entry is found by all sources (the hook's, too), compiler options, platform, device, driver and clattn's release, and
   * holds a checksum: an entry that is damaged or another's, or a binary that the driver refuses, is a warning in the log
   * and a build from source, never an error.  Kernels are code that runs: the folder is made for this user alone (its
   * parent must be there), and a folder or file that others may write to, or that is neither this user's nor the
   * administrator's, is not used (a warning, and no cache or no entry).  Any number of processes may share it, in
   * several containers, too; it may be deleted at any time, and is never cleaned up.
   * Tests' verdicts are kept.  Passed over is what took a minute to build, or ended a process (until *.building is deleted).
   * Most drivers' kernels are kept as soon as they are built.  PoCL compiles a kernel at its first launch, and all of a
   * program once more (some seconds for each) when it is asked for them: there they are kept by clattn_prebuild, and when
   * the context and its plans are all released. */
  const char *cache_folder;
  /* get copies at most capacity bytes of an entry to data and returns the entry's whole size, 0 = none; put keeps one
   * in the place of an older one.  The key is 64 hexadecimal digits.  Called from any thread that makes plans, merges,
   * prebuilds, tests, or releases a context or a plan, from several at once, and with no lock held. */
  size_t (*cache_get)(void *user, const char *key, void *data, size_t capacity);
  void (*cache_put)(void *user, const char *key, const void *data, size_t bytes);
  void *cache_user;
  /* 1: clattn may ask the operating system for AMX tile registers, for CPU devices whose CPU has them.  That changes the
   * whole process for good: a thread that uses them has 8 KiB more to save, and signal stacks made later must have room
   * for it.  Whether they are then used: clattn_device_info.amx.  Other devices don't mind. */
  uint32_t allow_amx;
  uint32_t reserved[7];
  /* Tiles that were measured on this device: the contents of a file that 'clattn tune' wrote.  The text may go when the
   * call returns.  One of another device, driver or version of clattn is not used, which a warning of the log and the
   * reason of each plan (clattn_plan_info.why) say; so is one whose first line is "clattn tuning N" with another N.  A text
   * that is none is TEXT, with the line, and so are unknown names in one of this version, and more than 4096 tiles.
   * Tiles change results by rounding alone; batch-invariant problems keep the tile they have without.  NULL: none. */
  const char *tuning_text;
} clattn_context_options;
CLATTN_API void clattn_context_options_init(clattn_context_options *options);

/* A clattn context for one device (or sub-device) of a cl_context, both retained.  options and error may be NULL.
 * Errors: NULL_POINTER, STRUCT_SIZE, RESERVED, VALUE (allow_amx, or two caches), WRONG_DEVICE (device not in the
 * context), TEXT, OUT_OF_MEMORY, OpenCL's.  On failure *out is NULL. */
CLATTN_API clattn_status clattn_context_create(cl_context context, cl_device_id device,
                                               const clattn_context_options *options, clattn_context **out,
                                               clattn_error *error);
/* As above on a cl_context that clattn makes for the first usable device: GPUs before accelerators before CPUs, in
 * platform order.  Error: NO_DEVICE. */
CLATTN_API clattn_status clattn_context_create_default(const clattn_context_options *options, clattn_context **out,
                                                       clattn_error *error);
/* Plans keep their context alive, so the order of releases does not matter: the last one frees all.  With a disk cache
 * under PoCL it first compiles and keeps what was launched: seconds, calling cache_put and log_fn.  NULL is fine. */
CLATTN_API void clattn_context_release(clattn_context *context);
/* The OpenCL handles (not retained for the caller).  Either pointer may be NULL. */
CLATTN_API clattn_status clattn_context_handles(const clattn_context *context, cl_context *cl, cl_device_id *device);

/* Whether kernels may use AMX, the CPU's matrix unit. */
typedef int32_t clattn_amx;
enum {
  CLATTN_AMX_NONE = 0,        /* not a CPU device, or its CPU has no AMX for bf16, or the system isn't x86-64 Linux */
  CLATTN_AMX_NOT_ALLOWED = 1, /* there, but clattn_context_options.allow_amx is 0 */
  CLATTN_AMX_REFUSED = 2,     /* the operating system does not give its registers to this process */
  CLATTN_AMX_USABLE = 3
};

/* Facts that selection uses, asked of the device once. */
typedef struct clattn_device_info {
  size_t struct_size;
  char name[128], vendor[128], driver[128], version[128];
  uint64_t type; /* cl_device_type */
  uint64_t global_bytes, max_alloc_bytes, local_bytes;
  uint32_t compute_units, max_work_group, native_float_width, base_align_bytes;
  uint32_t local_is_real; /* 1: local memory is its own storage (CL_LOCAL) */
  uint32_t has_fp16, has_sub_groups, little_endian, out_of_order, address_bits;
  uint32_t max_parameter_bytes; /* arguments of one kernel */
  clattn_amx amx;
  uint32_t matrix, sub_group_sizes; /* GPU's matrix unit, nth of config_text's (0: none); sub-groups' sizes, summed */
} clattn_device_info;
CLATTN_API void clattn_device_info_init(clattn_device_info *info);
CLATTN_API clattn_status clattn_context_device_info(const clattn_context *context, clattn_device_info *info);

/* ------------------------------------------------------------------------------------------------------------------
 * 3. The problem: what to compute
 * ------------------------------------------------------------------------------------------------------------------ */

typedef int32_t clattn_dtype;
enum {
  CLATTN_F32 = 0,
  CLATTN_F16 = 1,
  CLATTN_BF16 = 2,
  CLATTN_I8 = 3, /* k and v only: x = scale * int8, one scale a key */
  CLATTN_I4 = 4  /* k and v only: x = scale * (nibble - 8), one scale for 32 elements of a key */
};
/* q, k, v and o may have any of these types, each its own; bias is f32, f16 or bf16, scores f32 or o's type, all other
 * numbers f32.  f16 and bf16 work on every device; what is stored is rounded to nearest even, and beyond the largest
 * f16 becomes inf.
 *
 * I8 and I4 need scales: k_scale (batch, kv_heads, k_len, groups), v_scale likewise, f32 or f16, packed or paged where
 * k or v is.  Groups: 1 for I8; for I4 one for each 32 elements along the head dimension, the last may be shorter.
 * Element 2n of a row of I4 is the low nibble of its byte n, element 2n + 1 the high one.  Strides of I4 count
 * elements, so half bytes: the element's must be 1, the others even, since every row starts on a byte.  Layouts without
 * strides leave one element unused behind rows of an odd length. */

/* How a tensor lies.  Shapes: q (batch, q_heads, q_len, qk_dim); k (batch, kv_heads, k_len, qk_dim);
 * v (batch, kv_heads, k_len, v_dim); o (batch, q_heads, q_len, v_dim); bias, keep mask, scores
 * (batch, q_heads, q_len, k_len); lse (batch, q_heads, q_len); max_logit, alibi slopes (batch, q_heads);
 * sink and head_scale (q_heads); add_w (q_heads, qk_dim).  "BHSD" is that order of axes, "BSHD" swaps head and row.
 *
 * PACKED, variable length: the sequences of a batch lie row after row, sequence b from row cu_seqlens[b] to row
 * cu_seqlens[b + 1] - 1.  q, o and lse are packed together (args.cu_seqlens_q), k and v together (args.cu_seqlens_k),
 * with their scales.  q_len and k_len are then upper bounds of one sequence, 0 = total_q or total_k.  Bias, masks and
 * scores keep their axes: row i and key j of sequence b.  Rows that belong to no sequence are not written;
 * what rows hold that two sequences claim (starts on the device that fall) is undefined.
 *
 * PAGED, for k, v and their scales together: key j of batch entry b is row j % page_size of page
 * args.page_table[b][j / page_size].  Needs k_length_mode PER_BATCH. */
/* A plan whose enqueues are smaller than its bounds usually wants an _EXACT layout for what is made anew each time
 * (q, o, lse, bias) and a bound layout for a cache (k, v).  Memory must reach as far as the strides lead at this
 * enqueue's sizes, no further. */
typedef int32_t clattn_layout;
enum {
  CLATTN_LAYOUT_BHSD = 0,       /* contiguous over the plan's upper bounds: right for caches that grow in place */
  CLATTN_LAYOUT_BSHD = 1,       /* likewise, (batch, row, head, element) */
  CLATTN_LAYOUT_STRIDED = 2,    /* stride[] counts */
  CLATTN_LAYOUT_BHSD_EXACT = 3, /* contiguous over the sizes of each enqueue */
  CLATTN_LAYOUT_BSHD_EXACT = 4, /* likewise, (batch, row, head, element) */
  CLATTN_LAYOUT_PACKED = 5,     /* q, k, v, o: (total rows, head, element); lse: (head, row), total_q rows to a head */
  CLATTN_LAYOUT_PAGED = 6       /* k, v: (page, row in page, head, element) */
};

/* stride[] is (batch, head, row, element), each >= 0, 0 = broadcast (inputs only); read for LAYOUT_STRIDED; all zero
 * otherwise, but PACKED may give (0, head, row, element) and PAGED (page, head, row in page, element), where not all
 * are zero.  For bias, mask and scores the element axis is the key j, for scales the group.  Tensors of lower rank use
 * the axes of their shape above: lse (batch, head, row), slopes and max_logit (batch, head), sink and head_scale (head
 * alone, stride[1]), add_w (head, element: stride[1] and [3]), rope_cos and rope_sin (batch, position, pair: stride[0],
 * [2] and [3]); for these the unused strides are zero.  Masks: strides in bytes (U8) or words (BITS), dtype stays 0.
 * Without strides of their own, slopes are one per head and rope's tables one for all, shared by the batch. */
typedef struct clattn_tensor {
  clattn_dtype dtype;
  clattn_layout layout;
  int64_t stride[4];
  uint32_t reserved[2];
} clattn_tensor;

typedef int32_t clattn_pass;
enum { CLATTN_FORWARD = 0, CLATTN_BACKWARD = 1 /* not supported yet */ };

typedef int32_t clattn_similarity;
enum {
  CLATTN_DOT = 0,     /* q . k */
  CLATTN_COSINE = 1,  /* q . k of vectors of length 1: x / max(|x|, 1e-12) on both sides, so zeros stay zeros */
  CLATTN_ADDITIVE = 2 /* w . tanh(q + k) (Bahdanau), q and k already projected, w the tensor add_w */
};

/* HALF and TF32 are permissions, for speed: a variant that gains nothing by them computes as with EXACT. */
typedef int32_t clattn_math;
enum {
  CLATTN_MATH_EXACT = 0, /* products of exactly widened operands */
  CLATTN_MATH_HALF = 1,  /* products may be rounded to half; their sums are fp32 all the same */
  CLATTN_MATH_TF32 = 2   /* operands may be rounded to TF32 */
};

typedef int32_t clattn_scale_mode;
enum {
  CLATTN_SCALE_DEFAULT = 0 /* 1/sqrt(qk_dim) for dot, else 1 */,
  CLATTN_SCALE_VALUE = 1 /* field scale, any finite */
};

/* off[b], the position of query row 0 on the key axis; used by causal, window, chunk and ALiBi.  It may be negative.
 * Lengths in it are the batch entry's, or this enqueue's where the length mode is FULL.  A decode step (q_len <
 * k_len) wants BOTTOM_RIGHT: with the default its one row would see key 0 alone. */
typedef int32_t clattn_offset_mode;
enum {
  CLATTN_OFFSET_TOP_LEFT = 0,     /* 0 */
  CLATTN_OFFSET_BOTTOM_RIGHT = 1, /* k_len[b] - q_len[b] */
  CLATTN_OFFSET_VALUE = 2,        /* field offset for every batch entry; args.q_offsets, if given, overrides it */
  CLATTN_OFFSET_PER_BATCH = 3     /* args.q_offsets */
};

typedef int32_t clattn_length_mode;
/* Keys j >= k_len[b] are excluded; rows i >= q_len[b] have no keys (o = 0, lse = -inf). */
enum { CLATTN_LENGTH_FULL = 0, CLATTN_LENGTH_PER_BATCH = 1 /* args.q_lengths, args.k_lengths */ };

/* Which sides of the window are limited: keys p - window_left <= j <= p + window_right. */
enum { CLATTN_WINDOW_NONE = 0, CLATTN_WINDOW_LEFT = 1, CLATTN_WINDOW_RIGHT = 2, CLATTN_WINDOW_BOTH = 3 };

/* prefix[b] >= 0 widens causal only: j < prefix[b] or j <= p.  Without causal it changes nothing. */
enum { CLATTN_PREFIX_NONE = 0, CLATTN_PREFIX_VALUE = 1, CLATTN_PREFIX_PER_BATCH = 2 /* args.prefix */ };

typedef int32_t clattn_mask_kind;
enum {
  CLATTN_MASK_NONE = 0,
  CLATTN_MASK_U8 = 1, /* a byte per pair, non-zero = attend */
  CLATTN_MASK_BITS =
      2 /* key j is bit j % 32 of 32-bit word j / 32; strides in words; element stride 1, or 0: one bit for all keys */
};

typedef int32_t clattn_alibi;
enum {
  CLATTN_ALIBI_NONE = 0,
  CLATTN_ALIBI_SIGNED = 1 /* slope*(j-p) */,
  CLATTN_ALIBI_SYMMETRIC = 2 /* -slope*|j-p| */
};

/* Rotary embedding (J. Su et al., 2021): q and k are rotated while they are loaded, before the similarity, so before
 * the norms of the cosine and the sum of the additive one; keys in a cache are stored as they are.  The first
 * rope_dim elements of a row make pairs (x, y), which become (x cos - y sin, x sin + y cos); the others stay.  cos and
 * sin stand in the caller's tables, pair number n of a row at position t in element [t][n], in any numbers: scaled
 * frequencies or lengths are a matter of the tables.
 *
 * A row's position in the tables is p, a key's is j.  With use_positions both are read from args.positions_q and
 * positions_k instead, and mean this alone: causal, windows, chunks and ALiBi keep p and j. */
typedef int32_t clattn_rope;
enum {
  CLATTN_ROPE_NONE = 0,
  CLATTN_ROPE_HALF = 1,       /* pairs (d, d + rope_dim/2): GPT-NeoX, Llama of Transformers */
  CLATTN_ROPE_INTERLEAVED = 2 /* (2d, 2d+1): GPT-J, the paper */
};

/* Results, a bit set; 0 means CLATTN_OUT_O alone.  MAX_LOGIT: the largest raw score (stage RAW) over the kept pairs
 * of each (batch, head), -inf without any; a sink does not count. */
enum { CLATTN_OUT_O = 1, CLATTN_OUT_LSE = 2, CLATTN_OUT_SCORES = 4, CLATTN_OUT_MAX_LOGIT = 8 };

/* What `scores` holds.  Keys j >= k_len[b] and rows i >= q_len[b] are -inf in the first three and 0 in WEIGHTS. */
typedef int32_t clattn_stage;
enum {
  CLATTN_STAGE_RAW = 0,     /* similarity * scale * head_scale, excluded keys too */
  CLATTN_STAGE_SOFTCAP = 1, /* after softcap, excluded keys too */
  CLATTN_STAGE_MASKED = 2,  /* the final s, after the hook; excluded = -inf */
  CLATTN_STAGE_WEIGHTS = 3  /* after softmax; excluded = 0 */
};

/* Gradients wanted; FROM_LSE: args.d_lse is an input too. */
enum {
  CLATTN_GRAD_Q = 1,
  CLATTN_GRAD_K = 2,
  CLATTN_GRAD_V = 4,
  CLATTN_GRAD_BIAS = 8,
  CLATTN_GRAD_SINK = 16,
  CLATTN_GRAD_FROM_LSE = 32
};

enum {
  CLATTN_BATCH_INVARIANT = 1 /* a row's bits do not depend on the batch, or the other rows, around it */
};

typedef struct clattn_hook clattn_hook;

/* Plain data: copy it freely.  Only q_len, k_len and qk_dim have no default. */
typedef struct clattn_problem {
  size_t struct_size;
  clattn_pass pass;
  clattn_similarity similarity;
  clattn_math math;
  uint32_t flags; /* CLATTN_BATCH_INVARIANT */

  /* Sizes.  batch, q_len and k_len are upper bounds: each enqueue may use less.  Up to 2^31 - 1; k_len 2^31 - 4097. */
  int64_t batch;    /* 0 = 1 */
  int64_t q_heads;  /* 0 = 1 */
  int64_t kv_heads; /* 0 = q_heads; must divide q_heads */
  int64_t q_len;    /* >= 0 */
  int64_t k_len;    /* >= 0 */
  int64_t qk_dim;   /* >= 1 */
  int64_t v_dim;    /* 0 = qk_dim */

  clattn_tensor q, k, v, o;
  /* Bytes that divide the offset and every stride but the element's of q, k, v and o, as the caller promises; 0 = the
   * element's size; else a power of two up to 4096.  A cl_mem itself counts as aligned, a sub-buffer by its origin.
   * Wide loads are used only by promise; promises are checked. */
  uint32_t alignment;

  clattn_scale_mode scale_mode;
  float scale;   /* 0 and negative values are legal */
  float softcap; /* 0 = none; > 0 */

  /* Scores are changed by these. */
  uint32_t use_bias;       /* 1: args.bias is added (f32, f16, bf16; -inf excludes) */
  uint32_t use_head_scale; /* 1: args.head_scale, a number per head, multiplies with scale, for every similarity */
  uint32_t use_sink;       /* 1: args.sink, a score per head that has no value; not scaled, capped or biased */
  clattn_alibi alibi;      /* args.alibi_slopes; clattn_alibi_slopes makes the standard ones */
  clattn_tensor bias, head_scale, sink, alibi_slopes;
  clattn_tensor add_w; /* CLATTN_ADDITIVE: args.add_w, w (q_heads, qk_dim), strides [1] and [3] */

  /* Rules.  A key is kept only if every rule keeps it. */
  uint32_t causal; /* 1: j <= p */
  clattn_offset_mode offset_mode;
  int64_t offset;  /* -(2^31 - 1) to 2^31 - 1 */
  uint32_t window; /* CLATTN_WINDOW_ bits */
  uint32_t prefix_mode;
  int64_t window_left, window_right; /* >= 0 */
  int64_t prefix;
  int64_t chunk; /* 0 = none; else floor(p / chunk) == floor(j / chunk) */
  clattn_length_mode q_length_mode, k_length_mode;
  clattn_mask_kind keep_mask_kind, block_mask_kind; /* the block mask: NONE or BITS */
  /* The block mask is (batch, q_heads, query block, key block): a bit per block (i / block_q, j / block_k), set =
   * attend.  Blocks that nothing lets through are neither read nor computed. */
  clattn_tensor keep_mask, block_mask; /* dtype stays 0; block mask strides in words */
  int64_t block_q, block_k;            /* sizes of the block mask's blocks, >= 1 where there is one */

  /* Keys and values elsewhere than in plain strides. */
  int64_t total_q, total_k; /* LAYOUT_PACKED: upper bounds of the rows in all */
  /* args.page_table: int32, (batch, max_pages) of this enqueue's batch, contiguous; entries are clamped to 0 to
   * num_pages - 1; those behind k_lengths[b] are never used.  max_pages * page_size >= k_len. */
  int64_t num_pages, max_pages;   /* LAYOUT_PAGED: pages in k and v; entries per row of the table */
  int64_t page_size;              /* keys of a page, >= 1 */
  clattn_tensor k_scale, v_scale; /* I8, I4: args.k_scale, v_scale: (batch, kv_head, key, group), f32 or f16 */

  /* Rotary embedding of q and k while loading.  Its tables args.rope_cos and rope_sin have the same strides; the batch
   * shares them but with LAYOUT_STRIDED and a batch stride.  They have rope_positions rows (a field, below).  Without
   * use_positions k_len must not reach beyond them, nor a row whose position the host knows: TOP_LEFT; VALUE, whose
   * offset must be >= 0; host entries of args.q_offsets.  Others, by lengths or device arrays, are clamped to them. */
  clattn_rope rope;
  uint32_t use_positions;           /* 1: args.positions_q and _k; 0: p for q, j for k */
  int64_t rope_dim;                 /* 0 = qk_dim; even, at most qk_dim */
  clattn_tensor rope_cos, rope_sin; /* (batch, -, position, rope_dim / 2); f32, other types are refused */

  /* The caller's own rules; see clattn_hook_create.  The hook must outlive the plans made with it. */
  const clattn_hook *hook;

  /* Dropout of weights, training: 0 = none, < 1.  Weights are multiplied by keep / (1 - rate) after the softmax; l,
   * lse and stage WEIGHTS stay without it.  keep depends on args.dropout_seed, args.dropout_offset and (b, h, i, j)
   * alone, so that forward and backward agree on every variant; add 1 to the offset per step.  Not supported yet. */
  float dropout;

  /* Results. */
  uint32_t outputs;   /* CLATTN_OUT_ bits; 0 = O */
  clattn_stage stage; /* of scores */
  uint32_t reserved0;
  clattn_tensor lse, scores, max_logit;

  /* Backward pass.  Not supported yet.  Reads q, k, v, o, lse, d_o (and d_lse), writes the gradients asked for;
   * `outputs` stays 0.  Shapes are those of the tensors they belong to.  Stride 0 in d_bias sums over that axis. */
  uint32_t gradients;  /* CLATTN_GRAD_ bits; 0 = Q, K and V */
  uint32_t accumulate; /* 1: gradients are added to what the outputs hold */
  clattn_tensor d_o, d_lse, d_q, d_k, d_v, d_bias, d_sink;

  int64_t rope_positions; /* rows of rope_cos and rope_sin; 0 = k_len, at least 1 */

  uint32_t reserved[14];
} clattn_problem;
CLATTN_API void clattn_problem_init(clattn_problem *problem);
/* Shorthand for a tensor with LAYOUT_STRIDED. */
CLATTN_API clattn_tensor clattn_strided(clattn_dtype dtype, int64_t batch, int64_t head, int64_t row, int64_t element);

/* Checks a problem with no device.  CLATTN_ERROR_NOT_SUPPORTED for what later releases bring. */
CLATTN_API clattn_status clattn_problem_check(const clattn_problem *problem, clattn_error *error);

/* One line of text, "b=1 hq=8 sq=128 sk=128 d=64 causal=1", with only what differs from the default; every plan is
 * logged with it.  Writes at most `capacity` bytes with the final 0; *length (may be NULL) gets the whole length
 * without it.  BUFFER_TOO_SMALL when cut.  A hook is named ("hook=yes") but not carried. */
CLATTN_API clattn_status clattn_problem_format(const clattn_problem *problem, char *text, size_t capacity,
                                               size_t *length);
/* The other way; *problem is overwritten.  TEXT with the offending word in the message.  parse(format(p)) == p; a
 * line that names a hook is refused (NOT_SUPPORTED). */
CLATTN_API clattn_status clattn_problem_parse(const char *text, clattn_problem *problem, clattn_error *error);

/* ------------------------------------------------------------------------------------------------------------------
 * 4. Variants and support
 * ------------------------------------------------------------------------------------------------------------------ */

/* The table of kernels that this library holds, whatever the device.  index runs from 0; NULL past the end. */
CLATTN_API const char *clattn_variant_name(uint32_t index);
CLATTN_API const char *clattn_variant_summary(uint32_t index);

typedef struct clattn_support {
  size_t struct_size;
  clattn_status status; /* CLATTN_SUCCESS: plan creation would pick `variant` */
  uint32_t reserved;
  const char *variant; /* static storage; NULL when refused */
  char reason[504];    /* why this variant, or why none */
} clattn_support;
CLATTN_API void clattn_support_init(clattn_support *support);
/* Whether and how a plan for this problem can be made: the same table and checks as plan creation, nothing is built.
 * variant NULL = the one that selection picks.  After a failed build or test here: no.  Returns support->status. */
CLATTN_API clattn_status clattn_supported(clattn_context *context, const clattn_problem *problem, const char *variant,
                                          clattn_support *support);

/* The same on a device that need not be there, by its facts as clattn_context_device_info gives them: what selection
 * would pick there.  No OpenCL call.  Returns support->status; NULL_POINTER, STRUCT_SIZE. */
CLATTN_API clattn_status clattn_supported_on(const clattn_device_info *device, const clattn_problem *problem,
                                             const char *variant, clattn_support *support);

/* For programs that measure tiles, as 'clattn tune' does.  A tuning text is a head, lines of tiles, and comments (#).
 * The head is the device's; clattn_tuning_candidate gives a line that tunes the problem and its like, for index 0, 1,
 * ... one tile each that is worth a try, and none (*length 0) past the last: a context whose tuning_text is the head and
 * that line has it.  variant as in plan options.  Lines end without a newline, the head with one.  Texts are written as
 * by clattn_problem_format.  Errors of the candidate: those of clattn_supported; NOT_SUPPORTED where tiles are not
 * tuned: batch-invariant problems, rotary embedding, similarities other than dot, the three-step pipeline on CPUs, and
 * flash-cpu-amx, which a context with allow_amx picks for bf16 where it can, and flash-gpu-matrix. */
CLATTN_API clattn_status clattn_tuning_head(const clattn_context *context, char *text, size_t capacity, size_t *length);
CLATTN_API clattn_status clattn_tuning_candidate(const clattn_context *context, const clattn_problem *problem,
                                                 const char *variant, uint32_t index, char *text, size_t capacity,
                                                 size_t *length, clattn_error *error);

/* ------------------------------------------------------------------------------------------------------------------
 * 5. Plans
 * ------------------------------------------------------------------------------------------------------------------ */

typedef struct clattn_plan clattn_plan;
typedef struct clattn_plan_options {
  size_t struct_size;
  const char *variant;    /* force one by name; NULL: selection */
  uint64_t workspace_cap; /* bytes that the plan may use at most; 0: a default that suits the device */
  /* 1: arrays on the device (lengths, offsets, prefix, cu_seqlens, page table, positions) are read back at enqueue and
   * checked as host arrays are.  Blocks until wait_list and the copies are done; for debugging. */
  uint32_t check_contents;
  uint32_t reserved[7];
} clattn_plan_options;
CLATTN_API void clattn_plan_options_init(clattn_plan_options *options);

/* Immutable, shared between threads: problem checked, variant selected, kernels built, and on GPUs tested at their first
 * use (config_text, trust).  options and error may be NULL. Some microseconds once the kernels are built (the first time
 * takes the driver's compile time).  On failure *out is NULL. Errors: those of clattn_problem_check, UNKNOWN_VARIANT,
 * VARIANT_UNFIT, WORKSPACE_TOO_SMALL, CL_BUILD_PROGRAM_FAILURE with the log, SELF_TEST, OUT_OF_MEMORY, OpenCL's. */
CLATTN_API clattn_status clattn_plan_create(clattn_context *context, const clattn_problem *problem,
                                            const clattn_plan_options *options, clattn_plan **out, clattn_error *error);
/* NULL is accepted.  Work already enqueued is not affected.  A plan holds its context: the last plan's release after
 * clattn_context_release does what that says. */
CLATTN_API void clattn_plan_release(clattn_plan *plan);

typedef struct clattn_plan_info {
  size_t struct_size;
  const char *variant;      /* static storage */
  const char *why;          /* lives as long as the plan */
  const char *line;         /* the problem line; lives as long as the plan */
  uint64_t workspace_bytes; /* what args.workspace must hold at the upper bounds; 0 = none */
  uint32_t launches;        /* kernel launches at the upper bounds: the most that launch_events can receive */
  uint32_t tile_q, tile_k;  /* rows and keys of a tile */
  uint32_t splits;          /* parts of the key axis */
  uint32_t row_blocks;      /* rounds that the workspace is reused for */
  uint32_t from_cache;      /* 1: the kernels came from the disk cache */
  uint64_t
      pairs; /* kept (query, key) pairs at the upper bounds, every rule but mask contents, bias and lengths counted */
  uint64_t flops;       /* 2 * pairs * (qk_dim + v_dim) */
  uint64_t bytes;       /* inputs read and outputs written once */
  double build_seconds; /* spent on building or loading kernels for this plan; 0 when they were there */
} clattn_plan_info;
CLATTN_API void clattn_plan_info_init(clattn_plan_info *info);
CLATTN_API clattn_status clattn_plan_get_info(const clattn_plan *plan, clattn_plan_info *info);

/* Builds the programs that plans for these problems need, for load time, and keeps them in the disk cache if there is
 * one.  On a driver that compiles kernels at their first launch (PoCL) it launches them once, on one row and one key, with
 * a queue and buffers of its own, and waits; if that can't be done (memory), your first launch compiles.  problems:
 * count of them, as for clattn_plan_create with no options; variants are selected as there.  progress (may be NULL) is
 * called after each problem, on this thread with no lock held, and returns 0 to stop: that is success, what was built
 * stays, and PoCL's programs are kept when the context goes.  With count 0 it only keeps what was launched before.  Safe
 * from any thread, also beside plans of the same problems, which wait for their program.  Errors: NULL_POINTER, and
 * clattn_plan_create's for the first problem that fails, which ends it. */
CLATTN_API clattn_status clattn_prebuild(clattn_context *context, const clattn_problem *problems, size_t count,
                                         int (*progress)(void *user, size_t done, size_t count), void *user,
                                         clattn_error *error);

/* ------------------------------------------------------------------------------------------------------------------
 * 6. Running
 * ------------------------------------------------------------------------------------------------------------------ */

enum { CLATTN_MEM_BUFFER = 0 /* cl_mem */, CLATTN_MEM_SVM = 1, CLATTN_MEM_USM = 2 /* these two: not supported yet */ };

/* A place in memory.  All zero = absent.  A cl_mem must be a buffer that kernels may use so: read inputs, write
 * outputs, both for the workspace (else CL_INVALID_MEM_OBJECT). */
typedef struct clattn_mem {
  uint32_t kind;
  uint32_t reserved;
  union {
    cl_mem buffer;
    void *pointer;
  };
  uint64_t offset; /* bytes from the start; a multiple of the element's size (I4: any byte) */
  uint64_t bytes;  /* bytes usable from there; 0 = to the end of the buffer */
} clattn_mem;

enum { CLATTN_ARRAY_NONE = 0, CLATTN_ARRAY_HOST = 1, CLATTN_ARRAY_DEVICE = 2 };

/* An int32 array.  A host array is read and checked before the call returns.  An array on the device is read by a
 * kernel of the enqueue, each entry clamped to its range: lengths to 0 to q_len or k_len, cu_seqlens to 0 to total_q or
 * total_k (a sequence ends where it starts if its end lies before, and after q_len or k_len rows at
 * the latest), prefix to >= 0. */
typedef struct clattn_ints {
  uint32_t kind;
  uint32_t
      count; /* entries: the batch of this enqueue (cu_seqlens: one more; q_offsets with OFFSET_VALUE: 1 or batch) */
  const int32_t *host;
  clattn_mem device;
} clattn_ints;

enum {
  CLATTN_SCALAR_PLAN = 0 /* the problem's value */,
  CLATTN_SCALAR_HOST = 1,
  CLATTN_SCALAR_DEVICE = 2 /* read by a kernel of the enqueue; a softcap that is not > 0 counts as none */
};

typedef struct clattn_scalar {
  uint32_t kind;
  float value;
  clattn_mem device; /* one float */
} clattn_scalar;

/* Which sizes of an enqueue count; the others are the plan's upper bounds. */
enum {
  CLATTN_SIZES_BOUNDS = 0,
  CLATTN_SIZES_BATCH = 1,
  CLATTN_SIZES_Q_LEN = 2,
  CLATTN_SIZES_K_LEN = 4,
  CLATTN_SIZES_GIVEN = 7 /* all three */
};

typedef struct clattn_args {
  size_t struct_size;
  clattn_error *error; /* optional */

  uint32_t sizes;
  uint32_t reserved0;
  int64_t batch, q_len, k_len; /* this enqueue's, each 0 <= size <= bound */

  clattn_mem q, k, v, o;             /* v and o with CLATTN_OUT_O; without it they must be absent */
  clattn_mem lse, scores, max_logit; /* with the matching CLATTN_OUT_ bit */

  clattn_mem bias, keep_mask;
  clattn_mem block_mask, alibi_slopes, sink, head_scale, add_w;
  clattn_mem k_scale, v_scale, page_table;
  /* rope; with use_positions also int32, contiguous over this enqueue's sizes: positions_q (batch, q_len), positions_k
   * (batch, k_len) by key, in pages too; of packed tensors one for each of all rows, where they lie.  Entries are clamped
   * to 0 to rope_positions - 1. */
  clattn_mem rope_cos, rope_sin, positions_q, positions_k;

  /* 0 <= entry <= this enqueue's q_len, k_len; for packed tensors they may shorten a sequence (rows behind q_lengths[b]
   * have no keys), but not lengthen it. */
  clattn_ints q_lengths, k_lengths;
  clattn_ints q_offsets, prefix;          /* prefix: >= 0 */
  clattn_ints cu_seqlens_q, cu_seqlens_k; /* LAYOUT_PACKED: start at 0, never fall; no sequence above q_len, k_len */

  clattn_scalar scale, softcap; /* scale: any finite value; softcap: > 0, and only where the problem has one */
  uint64_t dropout_seed, dropout_offset;

  clattn_mem hook_buffer[4];
  clattn_scalar hook_scalar[4];

  clattn_mem d_o, d_lse, d_q, d_k, d_v, d_bias, d_sink;

  /* At least plan_info.workspace_bytes, offset a multiple of 64; the first workspace_bytes are scratch, what lies
   * behind them is not touched.  Absent: made and released inside.  Enqueues that may run at once need one each. */
  clattn_mem workspace;

  /* Optional: one event per kernel launch, for profiling.  The capacity must cover this enqueue's launches
   * (plan_info.launches always do), else VALUE.  The caller
   * releases the *num_launch_events that were set, each a reference of its own; on failure none is set. */
  cl_event *launch_events;
  uint32_t launch_events_capacity;
  uint32_t reserved1;
  uint32_t *num_launch_events;

  uint32_t reserved[16];
} clattn_args;
CLATTN_API void clattn_args_init(clattn_args *args);
/* Shorthand: a whole cl_mem, from `offset` bytes on.  clattn_buffer(NULL, 0) is "absent". */
CLATTN_API clattn_mem clattn_buffer(cl_mem buffer, uint64_t offset);

/* Enqueues the plan.  The last three are as in clEnqueueNDRangeKernel: the work waits for the events of wait_list,
 * and *event (may be NULL) completes with it; the caller releases it.  Asynchronous: no finish, no flush.  Right on
 * in-order and out-of-order queues.  Everything is checked before anything runs; on failure nothing was enqueued, or
 * (an OpenCL error half way) outputs are undefined and the code is OpenCL's.  With a workspace given, no OpenCL
 * object is made but the events that chain launches on an out-of-order queue. Outputs must not share an element with
 * an input, another output or the workspace, also through sub-buffers of one buffer; interleaved views of one buffer
 * (packed QKV with o beside it) are fine where their strides prove it: elements lie in runs, the runs' starts have a
 * common divisor, such as a row pitch, and the runs of both are apart within it. With nothing to write (batch or
 * q_len 0) it succeeds and *event still completes after wait_list. */
CLATTN_API clattn_status clattn_enqueue(const clattn_plan *plan, cl_command_queue queue, const clattn_args *args,
                                        cl_uint num_events, const cl_event *wait_list, cl_event *event);

/* The checks of clattn_enqueue alone, for callers that enqueue other work before it; contents on the device are not
 * read back.  Nothing is enqueued. */
CLATTN_API clattn_status clattn_enqueue_check(const clattn_plan *plan, cl_command_queue queue, const clattn_args *args);

/* Plan, enqueue and release in one call, for the first five minutes.  The same errors, in args->error. */
CLATTN_API clattn_status clattn_attention(clattn_context *context, cl_command_queue queue,
                                          const clattn_problem *problem, const clattn_args *args, cl_uint num_events,
                                          const cl_event *wait_list, cl_event *event);

/* ------------------------------------------------------------------------------------------------------------------
 * 7. Merging, slopes, self-test; hooks
 * ------------------------------------------------------------------------------------------------------------------ */

/* Merges attention over disjoint key sets: m = max of lse; o = sum of exp(lse - m) * o / sum of exp(lse - m); lse = m
 * + ln of that sum.  The empty state (o = 0, lse = -inf) changes nothing, and its o is not looked at; a sink is the
 * part (o = 0, lse = sink).  Parts are added in their order.  part_o (f32) is (parts, rows, v_dim), part_lse (parts,
 * rows), rows and v_dim contiguous, a part to the next part_stride_o or part_stride_lse elements (0: contiguous); o
 * and lse likewise (rows, v_dim) and (rows).  rows is batch * q_heads * q_len or any other count.  o or lse may be
 * absent. Errors: NULL_POINTER, STRUCT_SIZE, RESERVED, SHAPE, STRIDE, OVERFLOW, TENSOR_MISSING, BUFFER_TOO_SMALL,
 * ALIGNMENT, OVERLAP, ENUM, NOT_SUPPORTED (SVM, USM), OUT_OF_MEMORY, WRONG_CONTEXT, WRONG_DEVICE,
 * CL_BUILD_PROGRAM_FAILURE, OpenCL's.  Asynchronous, as clattn_enqueue; a context's first call builds the kernel. */
typedef struct clattn_merge_args {
  size_t struct_size;
  clattn_error *error;        /* optional */
  int64_t parts, rows, v_dim; /* parts >= 1, rows >= 0, v_dim >= 1 where o is given */
  int64_t part_stride_o, part_stride_lse;
  clattn_mem part_o, part_lse, o, lse;
  uint32_t reserved[8];
} clattn_merge_args;
CLATTN_API void clattn_merge_args_init(clattn_merge_args *args);
CLATTN_API clattn_status clattn_merge(clattn_context *context, cl_command_queue queue, const clattn_merge_args *args,
                                      cl_uint num_events, const cl_event *wait_list, cl_event *event);

/* The standard ALiBi slopes (O. Press et al., 2021) of `heads` heads: for a power of two n, 2^(-8 (h + 1) / n); for
 * others those of the power of two below, then every second one of the power of two above.  Writes `heads` floats.
 * Errors: NULL_POINTER, SHAPE (heads < 1). */
CLATTN_API clattn_status clattn_alibi_slopes(int64_t heads, float *slopes);

/* Runs every variant that this device takes on small problems whose results the library holds (masked rows, -inf and
 * 1e30 among the scores), and compares.  For drivers that build kernels, run them and compute wrong numbers.  Blocks;
 * makes a queue and buffers of its own.  SELF_TEST with the variant, the case and the numbers in the message; what
 * building and running can return.  With a disk cache verdicts are kept there, and what has one for the same kernels,
 * device, driver and release does not run again.  The message of a failure says if it is a kept one; with the cache
 * deleted all runs again.  error may be NULL. */
CLATTN_API clattn_status clattn_self_test(clattn_context *context, clattn_error *error);

/* Hooks: the caller's OpenCL C, compiled into kernels, which sees
 *     typedef struct clattn_at {
 *       int b, h, kv_h;                                  // batch entry, query head, key head
 *       int i, j;                                        // query row, key row (of this batch entry)
 *       long p;                                          // position of the row: i + off[b]
 *       int q_len, k_len;                                // of this batch entry
 *       __global const void *buffer[4]; float scalar[4]; // args.hook_buffer, args.hook_scalar
 *     } clattn_at;
 * and defines one of these, or both:
 *     float clattn_score(float s, const clattn_at *at);   // changes a score, after bias and ALiBi; -inf excludes
 *     bool  clattn_keep(const clattn_at *at);             // only excludes
 * Pure functions; they may run for excluded pairs, but only for rows i < q_len and keys j < k_len.  Up to 4 buffers and
 * 4 scalars, each optional, come with each enqueue: args.hook_buffer, a buffer that kernels may read, its offset aligned
 * as the hook's own types need, and args.hook_scalar (CLATTN_SCALAR_PLAN is 0 here; any float).  Made once, shared by
 * threads; the source may be freed.  A context keeps the programs of a hook until it goes, so make one hook for many
 * plans.  It is compiled when a plan is: what is wrong in it is CL_BUILD_PROGRAM_FAILURE there, with lines "hook:LINE"
 * of the source in the log.  Errors here: NULL_POINTER, TEXT (neither function is defined), OUT_OF_MEMORY. */
CLATTN_API clattn_status clattn_hook_create(const char *source, clattn_hook **out, clattn_error *error);
CLATTN_API void clattn_hook_release(clattn_hook *hook); /* NULL is accepted */

#ifdef __cplusplus
}
#endif
#endif
