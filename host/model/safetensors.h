/* SPDX-License-Identifier: Apache-2.0 */
/* Weights in a .safetensors file, read without a copy.  A file is checked whole when it is opened, and nothing that it
 * claims is trusted: sizes, offsets, overlaps and holes are refused as the format's specification asks.  Every call
 * that returns int gives 0, or -1 and a sentence in *error (NULL is fine). */
#ifndef CLATTN_MODEL_SAFETENSORS_H
#define CLATTN_MODEL_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "model_error.h"

enum { MODEL_MAX_RANK = 8 };
typedef enum model_dtype { MODEL_F32, MODEL_F16, MODEL_BF16 } model_dtype;

/* A tensor in the file; valid until the file is closed. */
typedef struct model_tensor {
  const char *name;
  model_dtype dtype;
  int rank;                      /* 0 to MODEL_MAX_RANK; 0 is one number */
  int64_t shape[MODEL_MAX_RANK]; /* unused axes: 1 */
  int64_t count;                 /* elements; 0 when an axis has length 0 */
  const unsigned char *data;     /* row-major, little endian, of any alignment */
  size_t bytes;
} model_tensor;

typedef struct model_tensors model_tensors;

int model_tensors_open(const char *path, model_tensors **out, model_error *error);
/* The same from memory, which must stay as it is until the close; `name` stands for the path in messages. */
int model_tensors_open_memory(const char *name, const void *bytes, size_t count, model_tensors **out,
                              model_error *error);
void model_tensors_close(model_tensors *file); /* NULL is fine */

/* Names in ascending order of their bytes; NULL when there are no more. */
const char *model_tensors_name(const model_tensors *file, size_t n);

/* Refused: a name that is not there, a type other than F32, F16 and BF16, more than MODEL_MAX_RANK axes.  Such tensors
 * may be in the file as long as nobody asks for them. */
int model_tensor_find(const model_tensors *file, const char *name, model_tensor *view, model_error *error);
/* The same, and the shape must be this one. */
int model_tensor_expect(const model_tensors *file, const char *name, int rank, const int64_t *shape, model_tensor *view,
                        model_error *error);

/* Elements first to first + count - 1 as floats, exactly.  The range must lie in the tensor. */
void model_tensor_read(const model_tensor *view, int64_t first, int64_t count, float *out);

/* "F32", "F16", "BF16" and their sizes in bytes. */
const char *model_dtype_name(model_dtype dtype);
size_t model_dtype_bytes(model_dtype dtype);

#endif
