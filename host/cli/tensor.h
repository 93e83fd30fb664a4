/* SPDX-License-Identifier: Apache-2.0 */
/* One input array, from an .npy file (mapped), a .csv or .txt file, or inline text. */
#ifndef CLATTN_CLI_TENSOR_H
#define CLATTN_CLI_TENSOR_H

#include "npy.h"

#include "clattn.h"

typedef struct cli_tensor {
  const char *name;   /* the option without its dashes: "q", "keep-mask" */
  const char *path;   /* of the file; NULL for inline text and for drawn arrays */
  char type[3];       /* as in npy.h */
  clattn_dtype dtype; /* of q, k, v, bias and scales: what `data` holds; else F32 */
  int rank;
  int64_t shape[CLATTN_NPY_MAX_RANK], stride[CLATTN_NPY_MAX_RANK]; /* elements */
  const void *data;                                                /* NULL: there is no such input */
  size_t bytes;
  clattn_npy npy; /* private */
  void *owned;    /* private: what isn't mapped */
} cli_tensor;

/* `types` lists what is accepted, separated by spaces ("b1 u1"); `ranks` is the highest rank, `low_rank` the lowest.
 * Text gives rank 2 and the first of the types (numbers that it can't hold are refused); where only rank 1 is accepted
 * a single row or column is.  Prints and returns the exit code. */
int cli_tensor_load(cli_tensor *tensor, const char *name, const char *source, const char *types, int low_rank,
                    int high_rank);
void cli_tensor_close(cli_tensor *tensor);

/* Right-aligned to (batch, head, row, element): missing leading axes are 1.  With bshd, ranks 3 and 4 have head and row
 * swapped.  Axes of length 1 get stride 0. */
void cli_tensor_axes(const cli_tensor *tensor, int bshd, int64_t shape[4], int64_t stride[4]);

/* For bias and masks: stretches axes of length 1 to `target` (stride 0); any other mismatch is an error that names both
 * shapes and what the target is. */
int cli_tensor_broadcast(const cli_tensor *tensor, const char *what, const int64_t target[4], int64_t stride[4]);
/* The array becomes these bytes (malloc'ed, owned from now on); shape and strides stay what the file has. */
void cli_tensor_replace(cli_tensor *tensor, void *data, size_t bytes);

/* Strides of a descriptor over a shape (as cli_input_shape has it); returns 0 for a layout that is none.  Rows of i4
 * start on a byte, here and below. */
int cli_strides(const clattn_tensor *tensor, const int64_t shape[4], int64_t stride[4]);
/* Elements from the first to one past the last; -1 on overflow. */
int64_t cli_extent(const int64_t shape[4], const int64_t stride[4]);
/* A descriptor for these strides: BHSD or BSHD where they are contiguous so, else STRIDED. */
clattn_tensor cli_describe(clattn_dtype dtype, const int64_t shape[4], const int64_t stride[4]);
/* The same for LAYOUT_PACKED or LAYOUT_PAGED. */
clattn_tensor cli_describe_as(clattn_layout layout, clattn_dtype dtype, const int64_t shape[4],
                              const int64_t stride[4]);

#endif
