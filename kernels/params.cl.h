/* SPDX-License-Identifier: Apache-2.0 */
/* What a kernel needs to know of one enqueue: a struct passed by value, so that no buffer has to be made for it.
 * Included by the host's C and by OpenCL C; 64-bit members first, so that both lay it out alike without padding. */
#ifndef CLATTN_PARAMS_CL_H
#define CLATTN_PARAMS_CL_H

#if defined(__OPENCL_C_VERSION__) || defined(__OPENCL_VERSION__)
typedef long clattn_long;
typedef int clattn_int;
typedef uint clattn_uint;
#else
typedef cl_long clattn_long;
typedef cl_int clattn_int;
typedef cl_uint clattn_uint;
#endif

/* Bits of clattn_params.rules */
#define CLATTN_RULE_CAUSAL 1
#define CLATTN_RULE_BIAS 2
#define CLATTN_RULE_MASK_U8 4
#define CLATTN_RULE_MASK_BITS 8
#define CLATTN_RULE_ENTRIES 16 /* what differs between batch entries stands in the workspace */
#define CLATTN_RULE_LSE 32
#define CLATTN_RULE_MAX_LOGIT 64
#define CLATTN_RULE_OUT 128
#define CLATTN_RULE_BLOCK_MASK 256
#define CLATTN_RULE_ALIBI 512
#define CLATTN_RULE_SYMMETRIC 1024 /* of ALiBi: by distance */
#define CLATTN_RULE_SINK 2048
#define CLATTN_RULE_SCALE 4096     /* stands in a buffer of the caller's */
#define CLATTN_RULE_SOFTCAP 32768  /* likewise */
#define CLATTN_RULE_INVARIANT 8192 /* keys are taken in blocks that do not depend on the tile */
#define CLATTN_RULE_SEARCH 16384   /* tiles of packed rows are found by search */
#define CLATTN_RULE_HEAD_SCALE 65536
#define CLATTN_RULE_HOOK_SCALARS 131072 /* a hook's scalars stand in the workspace */
#define CLATTN_RULE_PACKED_Q 262144
#define CLATTN_RULE_PACKED_K 524288
#define CLATTN_RULE_POSITIONS 1048576 /* of rotary embedding, in buffers of the caller's */

/* clattn_params.stage: as clattn_stage, or none */
#define CLATTN_SCORES_NONE (-1)
#define CLATTN_SCORES_RAW 0
#define CLATTN_SCORES_SOFTCAP 1
#define CLATTN_SCORES_MASKED 2
#define CLATTN_SCORES_WEIGHTS 3

/* Where a tensor lies: element strides (batch or page, head, row, element) and the first element's index in its
 * buffer. */
typedef struct clattn_view {
  clattn_long batch, head, row, element, first;
} clattn_view;

/* The same of a number per head. */
typedef struct clattn_head_view {
  clattn_long batch, head, first;
} clattn_head_view;

/* The same of a number per row. */
typedef struct clattn_row_view {
  clattn_long batch, head, row, first;
} clattn_row_view;

/* With the arguments that a kernel has beside, the largest must stay within 1024 bytes: what a full profile promises.
 */
typedef struct clattn_params {
  clattn_view q, k, v, o, scores, bias, mask, blocks;
  clattn_view k_scale, v_scale; /* of quantised keys and values; the element axis counts groups */
  clattn_row_view lse;
  clattn_head_view slopes;
  clattn_long sink_head, sink_first, head_scale_head, head_scale_first; /* (head) */
  clattn_long add_w_head, add_w_element, add_w_first; /* w of the additive similarity: (head, element) */
  clattn_long table_first;                            /* of the page table */
  clattn_long scale_first, softcap_first;             /* in the caller's buffers */
  clattn_long window_left, window_right;              /* unlimited: CLATTN_UNLIMITED */
  clattn_long chunk;                                  /* 0: none */
  clattn_long work_first; /* where the workspace starts in its buffer, in 4-byte words; what differs between batch
                             entries stands there */
  clattn_uint hook_at, maxima_at, stats_at, partial_at, scores_at; /* its other regions: CLATTN_REGION */
  clattn_int offset, prefix;        /* position of query row 0, prefix; without CLATTN_RULE_ENTRIES */
  clattn_int batch, q_heads, group; /* group: query heads per key head */
  clattn_int pack;                  /* heads of a group that share tiles, rows of all of them interleaved */
  clattn_int q_len, k_len, qk_dim, v_dim;
  clattn_int rules, stage;
  clattn_int rows;           /* of a tile */
  clattn_int tiles_per_unit; /* row tiles of one batch entry's (or, by search, the batch's) `pack` heads */
  clattn_int key_chunks;     /* parts of the key axis in the grid of `scores` */
  clattn_int k_stored;       /* rows (three-step-cpu) or columns (three-step) of a score tile in the workspace */
  clattn_int page_size;      /* 0: keys and values are not paged */
  clattn_int num_pages, max_pages;
  clattn_int block_q, block_k; /* of the block mask */
  float scale, softcap;        /* softcap 0: none */
} clattn_params;
#define CLATTN_UNLIMITED ((clattn_long)1 << 40) /* beyond every position, and far from overflow when added */

/* Regions of the workspace start at multiples of so many words. */
#define CLATTN_REGION_WORDS 16
#define CLATTN_REGION(p, at) ((p)->work_first + CLATTN_REGION_WORDS * (clattn_long)(at))

/* Keys of a block of the lane kernels: its scores stay in first-level cache.  A multiple of CLATTN_NK. */
#ifndef CLATTN_KEY_BLOCK
#define CLATTN_KEY_BLOCK 128
#endif

/* Keys that one work-item of their `scores` does. */
#define CLATTN_CHUNK_KEYS 1024

/* With CLATTN_RULE_INVARIANT blocks of keys start at multiples of this, which the usual block divides; tuned ones are
 * not taken then. */
#define CLATTN_INVARIANT_KEYS 128

/* Rotary embedding: tables of cosines and sines, (batch, position, pair), which lie alike, and where the caller's
 * positions start. */
typedef struct clattn_rotation {
  clattn_long batch, row, element, cos_first, sin_first;
  clattn_long positions_q_first, positions_k_first;
  clattn_int dim;  /* elements that are rotated, the first ones */
  clattn_int rows; /* positions that the tables have */
} clattn_rotation;

/* The tiles that one round of launches works on, numbered over batch, heads, row tile. */
typedef struct clattn_round {
  clattn_int first_tile, tiles;
} clattn_round;

/* What stands in the workspace for a batch entry. */
#define CLATTN_ENTRY_Q_LEN 0
#define CLATTN_ENTRY_K_LEN 1
#define CLATTN_ENTRY_OFFSET 2
#define CLATTN_ENTRY_PREFIX 3
#define CLATTN_ENTRY_Q_START 4 /* first row of a packed sequence */
#define CLATTN_ENTRY_K_START 5
#define CLATTN_ENTRY_Q_ROWS 6 /* rows that exist; those from q_len on see no key */
#define CLATTN_ENTRY_WORDS 8

/* Entries from host arrays on their way to the workspace. */
#define CLATTN_ENTRIES_PER_LAUNCH 24
typedef struct clattn_entries {
  clattn_long to; /* index of the first entry's first word in the workspace's buffer */
  clattn_int count, reserved;
  clattn_int word[CLATTN_ENTRIES_PER_LAUNCH * CLATTN_ENTRY_WORDS];
} clattn_entries;

/* Bits of clattn_gather.arrays: which arrays stand on the device. */
#define CLATTN_GATHER_Q_LENGTHS 1
#define CLATTN_GATHER_K_LENGTHS 2
#define CLATTN_GATHER_Q_OFFSETS 4
#define CLATTN_GATHER_PREFIX 8
#define CLATTN_GATHER_CU_Q 16
#define CLATTN_GATHER_CU_K 32
#define CLATTN_GATHER_BOTTOM_RIGHT 64 /* offsets follow from the lengths */
#define CLATTN_GATHER_ONE_OFFSET 128  /* one for all entries */
#define CLATTN_GATHER_STAGED_Q 256    /* q_lengths came from the host */
#define CLATTN_GATHER_STAGED_K 512
#define CLATTN_GATHER_STAGED_K_ROWS 1024 /* cu_seqlens_k did: the staged k_len is what k_lengths are clamped to */

/* Arrays on the device on their way into entries that were staged with what the host knows. */
typedef struct clattn_gather {
  clattn_long first[6]; /* element index of each array's start, in the order of the bits */
  clattn_long entries_first;
  clattn_int batch, arrays;
  clattn_int q_len, k_len, total_q, total_k; /* what lengths and starts are clamped to */
} clattn_gather;

/* What a hook is given beside its buffers: where in them to start, in bytes, and its scalars from the host. */
typedef struct clattn_hook_values {
  clattn_long first[4];
  float scalar[4];
} clattn_hook_values;

/* Scalars of a hook on the device, on their way to the workspace: element index of each in its buffer, -1: from the
 * host. */
typedef struct clattn_hook_gather {
  clattn_long first[4];
  clattn_long to;
  float scalar[4];
} clattn_hook_gather;

#endif
