/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of the memory that operations are given, and their scratch. */
#include <limits.h>
#include <string.h>

#include "nn.h"

enum { SCRATCH_ALIGNMENT = 64 };

clattn_nn_matrix clattn_nn_matrix_f32(cl_mem buffer, uint64_t offset, int64_t stride) {
  clattn_nn_matrix matrix;
  memset(&matrix, 0, sizeof(matrix));
  matrix.mem = clattn_buffer(buffer, offset);
  matrix.stride = stride;
  return matrix;
}

size_t nn_dtype_bytes(clattn_dtype dtype) {
  return dtype == CLATTN_F32 ? 4 : dtype == CLATTN_F16 || dtype == CLATTN_BF16 ? 2 : 0;
}

const char *nn_dtype_word(clattn_dtype dtype) {
  return dtype == CLATTN_F16 ? "f16" : dtype == CLATTN_BF16 ? "bf16" : "f32";
}

int nn_present(const clattn_mem *mem) {
  static const clattn_mem absent;
  return mem->kind != absent.kind || mem->buffer != NULL || mem->offset != 0 || mem->bytes != 0 || mem->reserved != 0;
}

/* Size, root and start of a buffer that kernels may use as asked. */
static clattn_status look_up(const clattn_nn *nn, const char *name, const clattn_mem *mem, int written, size_t *size,
                             nn_range *range, clattn_error *error) {
  cl_context context = NULL;
  cl_mem parent = NULL;
  cl_mem_object_type type = 0;
  cl_mem_flags flags = 0;
  size_t origin = 0;
  const struct {
    cl_mem_info what;
    size_t size;
    void *value;
  } facts[] = {{CL_MEM_TYPE, sizeof(type), &type},
               {CL_MEM_SIZE, sizeof(*size), size},
               {CL_MEM_CONTEXT, sizeof(context), &context},
               {CL_MEM_FLAGS, sizeof(flags), &flags},
               {CL_MEM_ASSOCIATED_MEMOBJECT, sizeof(parent), &parent}};
  for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); ++i) {
    const cl_int code = clGetMemObjectInfo(mem->buffer, facts[i].what, facts[i].size, facts[i].value, NULL);
    if (code != CL_SUCCESS)
      return nn_fail(error, code, "asking the buffer of %s about itself failed: %s", name, clattn_status_text(code));
    if (type != CL_MEM_OBJECT_BUFFER)
      return nn_fail(error, CL_INVALID_MEM_OBJECT, "%s is an image or a pipe, not a buffer", name);
  }
  if (parent != NULL) {
    const cl_int code = clGetMemObjectInfo(mem->buffer, CL_MEM_OFFSET, sizeof(origin), &origin, NULL);
    if (code != CL_SUCCESS)
      return nn_fail(error, code, "asking the buffer of %s for its offset failed: %s", name, clattn_status_text(code));
  }
  if (context != nn->cl)
    return nn_fail(error, CLATTN_ERROR_WRONG_CONTEXT, "%s is of another cl_context than clattn's", name);
  if (flags & (written ? CL_MEM_READ_ONLY : CL_MEM_WRITE_ONLY))
    return nn_fail(error, CL_INVALID_MEM_OBJECT, "%s is in a buffer that kernels may not %s", name,
                   written ? "write (CL_MEM_READ_ONLY)" : "read (CL_MEM_WRITE_ONLY)");
  range->root = parent != NULL ? parent : mem->buffer;
  range->begin = origin + mem->offset;
  return CLATTN_SUCCESS;
}

/* What every piece of memory must fulfil, whatever lies in it.  *usable: bytes from its offset on. */
static clattn_status check_place(const clattn_nn *nn, const char *name, const clattn_mem *mem, size_t element,
                                 int written, uint64_t *usable, nn_range *range, clattn_error *error) {
  size_t size = 0;
  memset(range, 0, sizeof(*range));
  if (mem->kind == CLATTN_MEM_SVM || mem->kind == CLATTN_MEM_USM)
    return nn_fail(error, CLATTN_ERROR_NOT_SUPPORTED, "%s: SVM and USM memory are not supported yet", name);
  if (mem->kind != CLATTN_MEM_BUFFER)
    return nn_fail(error, CLATTN_ERROR_ENUM, "%s.kind is %u, no CLATTN_MEM_ value", name, mem->kind);
  if (mem->reserved != 0)
    return nn_fail(error, CLATTN_ERROR_RESERVED, "%s.reserved is %u, not 0", name, mem->reserved);
  if (mem->buffer == NULL)
    return nn_fail(error, CLATTN_ERROR_TENSOR_MISSING, "%s is needed and absent", name);
  const clattn_status status = look_up(nn, name, mem, written, &size, range, error);
  if (status != CLATTN_SUCCESS)
    return status;
  if (mem->offset % element != 0)
    return nn_fail(error, CLATTN_ERROR_ALIGNMENT, "%s: offset %llu is not a multiple of the element's %zu bytes", name,
                   (unsigned long long)mem->offset, element);
  if (mem->offset > size || mem->bytes > size - mem->offset)
    return nn_fail(error, CLATTN_ERROR_BUFFER_TOO_SMALL,
                   "%s: offset %llu and bytes %llu reach beyond the buffer's %zu bytes", name,
                   (unsigned long long)mem->offset, (unsigned long long)mem->bytes, size);
  *usable = mem->bytes != 0 ? mem->bytes : size - mem->offset;
  range->name = name;
  range->written = written;
  return CLATTN_SUCCESS;
}

static clattn_status note(nn_ranges *ranges, const nn_range *range, clattn_error *error) {
  if (ranges == NULL)
    return CLATTN_SUCCESS;
  if (ranges->count == NN_MAX_RANGES)
    return nn_fail(error, CLATTN_ERROR_INTERNAL, "more than %d pieces of memory in one operation", NN_MAX_RANGES);
  ranges->at[ranges->count++] = *range;
  return CLATTN_SUCCESS;
}

clattn_status nn_check_mem(const clattn_nn *nn, const char *name, const clattn_mem *mem, uint64_t bytes, size_t element,
                           int flags, nn_ranges *ranges, clattn_error *error) {
  uint64_t usable = 0;
  nn_range range;
  if ((flags & NN_OPTIONAL) && !nn_present(mem))
    return CLATTN_SUCCESS;
  const clattn_status status = check_place(nn, name, mem, element, (flags & NN_WRITTEN) != 0, &usable, &range, error);
  if (status != CLATTN_SUCCESS)
    return status;
  if (usable < bytes)
    return nn_fail(error, CLATTN_ERROR_BUFFER_TOO_SMALL, "%s needs %llu bytes, its memory has %llu", name,
                   (unsigned long long)bytes, (unsigned long long)usable);
  range.end = range.begin + bytes;
  return bytes > 0 ? note(ranges, &range, error) : CLATTN_SUCCESS;
}

clattn_status nn_check_matrix(const clattn_nn *nn, const char *name, const clattn_nn_matrix *matrix, int64_t rows,
                              int64_t columns, int flags, int64_t *stride, nn_ranges *ranges, clattn_error *error) {
  const size_t element = nn_dtype_bytes(matrix->dtype);
  uint64_t usable = 0;
  nn_range range;
  *stride = matrix->stride != 0 ? matrix->stride : columns;
  if ((flags & NN_OPTIONAL) && !nn_present(&matrix->mem)) {
    if (matrix->dtype != 0 || matrix->stride != 0 || matrix->reserved != 0)
      return nn_fail(error, CLATTN_ERROR_TENSOR_MISSING, "%s has a type or stride, but no memory", name);
    return CLATTN_SUCCESS;
  }
  if (element == 0)
    return nn_fail(error, CLATTN_ERROR_ENUM, "%s.dtype is %d; f32, f16 and bf16 are possible", name, matrix->dtype);
  if (matrix->reserved != 0)
    return nn_fail(error, CLATTN_ERROR_RESERVED, "%s.reserved is %u, not 0", name, matrix->reserved);
  if (*stride < columns)
    return nn_fail(error, CLATTN_ERROR_STRIDE, "%s.stride %lld is below its %lld columns", name, (long long)*stride,
                   (long long)columns);
  const clattn_status status =
      check_place(nn, name, &matrix->mem, element, (flags & NN_WRITTEN) != 0, &usable, &range, error);
  if (status != CLATTN_SUCCESS)
    return status;
  if (rows == 0)
    return CLATTN_SUCCESS;
  if (rows > 1 && *stride > (INT64_MAX / (int64_t)element - columns) / (rows - 1))
    return nn_fail(error, CLATTN_ERROR_OVERFLOW, "%s: %lld rows of stride %lld do not fit in 63 bits", name,
                   (long long)rows, (long long)*stride);
  const uint64_t bytes = (uint64_t)((rows - 1) * *stride + columns) * element;
  if (usable < bytes)
    return nn_fail(error, CLATTN_ERROR_BUFFER_TOO_SMALL,
                   "%s: %lld rows of %lld columns, stride %lld, need %llu bytes, its memory has %llu", name,
                   (long long)rows, (long long)columns, (long long)*stride, (unsigned long long)bytes,
                   (unsigned long long)usable);
  range.end = range.begin + bytes;
  range.pitch = (uint64_t)*stride * element;
  range.run = (uint64_t)columns * element;
  return note(ranges, &range, error);
}

/* Columns side by side in rows of one pitch share no byte. */
static int apart(const nn_range *a, const nn_range *b) {
  if (a->root != b->root || a->end <= b->begin || b->end <= a->begin)
    return 1;
  if (a->pitch == 0 || a->pitch != b->pitch)
    return 0;
  const uint64_t from =
      a->begin < b->begin ? (b->begin - a->begin) % a->pitch : (a->pitch - (a->begin - b->begin) % a->pitch) % a->pitch;
  return from >= a->run && from + b->run <= a->pitch;
}

static int is_word_of(const char *list, const char *word) {
  const size_t length = strlen(word);
  for (const char *at = list; (at = strstr(at, word)) != NULL; at += length)
    if ((at == list || at[-1] == ' ') && (at[length] == ' ' || at[length] == 0))
      return 1;
  return 0;
}

clattn_status nn_check_overlaps(const nn_ranges *ranges, const char *same, clattn_error *error) {
  for (int i = 0; i < ranges->count; ++i)
    for (int j = 0; j < ranges->count; ++j) {
      const nn_range *a = &ranges->at[i], *b = &ranges->at[j];
      if (i == j || !a->written || (b->written && j < i) || apart(a, b))
        continue;
      const int identical = a->begin == b->begin && a->end == b->end && a->pitch == b->pitch && a->run == b->run;
      if (identical && !b->written && strcmp(a->name, "y") == 0 && is_word_of(same, b->name))
        continue;
      return nn_fail(error, CLATTN_ERROR_OVERLAP, "output %s overlaps %s", a->name, b->name);
    }
  return CLATTN_SUCCESS;
}

clattn_mem nn_scratch_take(nn_scratch *scratch, uint64_t bytes) {
  clattn_mem mem = scratch->mem;
  mem.offset += scratch->used;
  mem.bytes = bytes;
  scratch->used += (bytes + SCRATCH_ALIGNMENT - 1) / SCRATCH_ALIGNMENT * SCRATCH_ALIGNMENT;
  return mem;
}

clattn_status nn_scratch_open(const clattn_nn *nn, const clattn_mem *given, uint64_t bytes, nn_scratch *scratch,
                              cl_mem *made, clattn_error *error) {
  cl_int code = CL_SUCCESS;
  memset(scratch, 0, sizeof(*scratch));
  *made = NULL;
  if (bytes == 0)
    return CLATTN_SUCCESS;
  if (nn_present(given)) {
    uint64_t usable = 0;
    nn_range range;
    const clattn_status status = check_place(nn, "workspace", given, SCRATCH_ALIGNMENT, 1, &usable, &range, error);
    if (status != CLATTN_SUCCESS)
      return status;
    if (usable < bytes)
      return nn_fail(error, CLATTN_ERROR_WORKSPACE_TOO_SMALL, "workspace needs %llu bytes, its memory has %llu",
                     (unsigned long long)bytes, (unsigned long long)usable);
    scratch->mem = *given;
    return CLATTN_SUCCESS;
  }
  *made = clCreateBuffer(nn->cl, CL_MEM_READ_WRITE, (size_t)bytes, NULL, &code);
  if (code != CL_SUCCESS) {
    *made = NULL;
    return nn_fail(error, code, "a workspace of %llu bytes can't be made: %s", (unsigned long long)bytes,
                   clattn_status_text(code));
  }
  scratch->mem = clattn_buffer(*made, 0);
  return CLATTN_SUCCESS;
}
