/* SPDX-License-Identifier: Apache-2.0 */
/* The table of variants, and the pure function that picks a row: (problem, device facts, options) -> row, tile,
 * workspace, reason.  No OpenCL call, no memory, no state. */
#ifndef CLATTN_SELECT_H
#define CLATTN_SELECT_H

#include "clattn.h"
#include "device.h"
#include "problem.h"
#include "tuning.h"

/* Kernels of a variant, in launch order. */
typedef enum clattni_entry {
  CLATTNI_STAGE_ENTRIES,
  CLATTNI_GATHER_ENTRIES,
  CLATTNI_GATHER_HOOK,
  CLATTNI_SCORE,
  CLATTNI_ROW_MAXIMUM,
  CLATTNI_SOFTMAX,
  CLATTNI_WEIGHTED_SUM,
  CLATTNI_FLASH,
  CLATTNI_FLASH_SCORES, /* of variants whose CLATTNI_FLASH doesn't write scores itself */
  CLATTNI_FLASH_PARTS,  /* puts together what CLATTNI_FLASH left of parts of the keys */
  CLATTNI_MAX_LOGIT_STEP,
  CLATTNI_ENTRIES
} clattni_entry;

/* What a kernel's arguments are; values from ARG_SLOT on are the tensor of that slot. */
enum {
  CLATTNI_ARG_END = 0,
  CLATTNI_ARG_PARAMS,    /* clattn_params by value */
  CLATTNI_ARG_ROUND,     /* clattn_round by value */
  CLATTNI_ARG_CHUNK,     /* clattn_entries by value */
  CLATTNI_ARG_GATHER,    /* clattn_gather by value */
  CLATTNI_ARG_WORKSPACE, /* its buffer */
  CLATTNI_ARG_SCALE,     /* the caller's buffer, if the scalar stands on the device */
  CLATTNI_ARG_SOFTCAP,
  CLATTNI_ARG_HOOK,        /* clattn_hook_values by value */
  CLATTNI_ARG_HOOK_GATHER, /* clattn_hook_gather by value */
  CLATTNI_ARG_ROPE,        /* clattn_rotation by value */
  CLATTNI_ARG_TO_LOGITS,   /* clattn_head_view by value: where max_logit lies */
  CLATTNI_ARG_ARRAY,       /* the caller's arrays on the device, in the order of the bits of clattn_gather.arrays */
  CLATTNI_ARG_HOOK_BUFFER = CLATTNI_ARG_ARRAY + 6,
  CLATTNI_ARG_HOOK_SCALAR = CLATTNI_ARG_HOOK_BUFFER + 4,
  CLATTNI_ARG_SLOT = CLATTNI_ARG_HOOK_SCALAR + 4
};
#define CLATTNI_MAX_KERNEL_ARGS 34

typedef struct clattni_kernel {
  const char *name;
  int args[CLATTNI_MAX_KERNEL_ARGS];
} clattni_kernel;

/* How a variant's grids are laid out. */
typedef enum clattni_shape {
  CLATTNI_SHAPE_LANES, /* work-group size 1, rows in vector lanes */
  CLATTNI_SHAPE_TILES  /* work-groups of gx * gy items, 8 rows x 4 columns each */
} clattni_shape;

typedef struct clattni_variant {
  const char *name;
  const char *family; /* for forbid= */
  const char *summary;
  const char *file; /* of kernels/, without .cl */
  clattni_shape shape;
  int fused;                     /* 1: one pass over the keys, no scores in the workspace */
  int by_name;                   /* 1: selection does not take it of its own accord */
  const clattni_kernel *kernels; /* CLATTNI_ENTRIES; those without a name are not there */
} clattni_variant;

const clattni_variant *clattni_variant_at(uint32_t index); /* NULL past the end */

/* Whether the kernels of a problem have an argument at all: some are compiled in only where they are needed. */
int clattni_arg_present(const clattn_problem *resolved, int kind);

#define CLATTNI_MAX_FORBIDDEN 8
#define CLATTNI_MAX_VARIANTS 16
typedef struct clattni_request {
  const clattn_problem *problem; /* resolved */
  const clattn_device_info *device;
  const char *variant;                          /* forced, or NULL */
  const char *forbidden[CLATTNI_MAX_FORBIDDEN]; /* names or families */
  uint32_t forbidden_count;
  uint32_t width;               /* lanes of the CPU families: 4, 8 or 16; 0: as many as suit the device */
  clattni_matrix emulated;      /* matrix unit that flash-gpu-matrix emulates; CLATTNI_MATRIX_NONE: the device's own */
  const clattni_tuning *tuning; /* tiles that were measured on the device; NULL: none */
  uint64_t workspace_cap;       /* 0: a default that suits the device */
  /* By the table's index: why a row that would do is not to be taken, and how that shows; NULL: it may be. */
  const char *passed_over[CLATTNI_MAX_VARIANTS];
  clattn_status passed_status[CLATTNI_MAX_VARIANTS];
} clattni_request;

typedef struct clattni_choice {
  const clattni_variant *variant;
  int32_t rows;           /* query rows of a tile */
  int32_t pack;           /* query heads that share tiles */
  int32_t key_multiple;   /* stored keys are rounded up to it */
  int32_t keys_per_chunk; /* keys that one work-group of `scores` does */
  int32_t dim_chunk;      /* value elements that one work-group of `weighted_sum` does */
  int32_t gx, gy;         /* work-group of the tile shape */
  int32_t parts;          /* of each tile's keys, in work-groups of their own; 1: undivided */
  uint64_t workspace_bytes;
  clattni_tuned
      tile;  /* the tile, and the class of problems that it is for; without a variant's name: it can't be tuned */
  int tuned; /* 1: the tile is from the request's tuning */
  char options[400]; /* compiler options */
  char why[504];
} clattni_choice;

/* The part of selection that is about flash-gpu-matrix: fills the tile; 0 if the device or the problem is not for it. */
int clattni_choose_matrix(const clattni_request *request, clattni_choice *choice, clattn_error *error);

clattn_status clattni_select(const clattni_request *request, clattni_choice *choice, clattn_error *error);

/* How a choice uses a workspace of `budget` bytes at given sizes: regions in 4-byte words from its start, each on a
 * 64-byte boundary, and how many row tiles fit into a round.  Returns 0 if not even one tile fits; `bytes` is then
 * what one takes. Smaller sizes never need more than larger ones. */
typedef struct clattni_layout {
  int64_t tiles_per_unit, total_tiles, tiles_per_round, rounds; /* a unit: kernels/tile.cl.h */
  int32_t search;                                               /* 1: tiles of packed rows are found by search */
  int64_t key_chunks, k_stored;                                 /* key_chunks of a fused variant: choice->parts */
  int64_t entries, hook, maxima, stats, partial, scores;        /* first words */
  uint64_t bytes;
  int64_t staging;        /* launches that stage entries, if the enqueue brings any; then one each for arrays on the
                             device and for a hook's scalars there */
  clattni_entry steps[4]; /* of each round */
  int32_t steps_per_round;
  int64_t launches; /* at most: staging and gathering, rounds and the final maximum */
} clattni_layout;
int clattni_layout_make(const clattni_choice *choice, const clattn_problem *resolved, const clattni_sizes *sizes,
                        uint64_t budget, clattni_layout *layout);

/* 1 if an enqueue may bring lengths, offsets, prefixes or starts per batch entry: then the workspace has room for
 * them. */
int clattni_uses_entries(const clattn_problem *resolved);

#endif
