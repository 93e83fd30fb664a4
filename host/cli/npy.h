/* SPDX-License-Identifier: Apache-2.0 */
/* NumPy's .npy files: reading without a copy, writing without partial files.  POSIX, little-endian hosts; needs nothing
 * else of clattn.
 *
 * Every call returns 0 on success and -1 on failure.  On failure `message` (capacity bytes, always 0-terminated; NULL
 * with capacity 0 is fine) gets one sentence that begins with the path. */
#ifndef CLATTN_NPY_H
#define CLATTN_NPY_H

#include <stddef.h>
#include <stdint.h>

enum { CLATTN_NPY_MAX_RANK = 8 };

typedef struct clattn_npy {
  char type[3];                        /* "f4", "f8", "f2", "u1", "b1", "i1", "i4", "i8", "u2" */
  int rank;                            /* 0 to CLATTN_NPY_MAX_RANK */
  int64_t shape[CLATTN_NPY_MAX_RANK];  /* unused axes: 1 */
  int64_t stride[CLATTN_NPY_MAX_RANK]; /* in elements; C or Fortran order; unused axes: 0 */
  const void *data;                    /* first element, aligned to the element; read only */
  size_t bytes;                        /* of the array, without the header; 0 when an axis has length 0 */
  /* Private: what close gives back. */
  void *mapping;
  size_t mapping_bytes;
  void *copy;
} clattn_npy;

/* Maps the array read-only (format 1.0, 2.0 or 3.0, little endian, C or Fortran order).  Lengths in the file are not
 * trusted: whatever they claim is checked against the file's size.  Bytes after the array are ignored, as NumPy does.
 * An axis of length 0 is legal.  On failure *out is all zero and needs no close. */
int clattn_npy_open(const char *path, clattn_npy *out, char *message, size_t capacity);
/* Gives the mapping back and clears *npy.  NULL and an all-zero struct are accepted. */
void clattn_npy_close(clattn_npy *npy);

/* Writes a C-ordered array as npy 1.0.  The file is written beside `path` under a temporary name and renamed when it is
 * complete, so `path` is either the old file or the whole new one.  A symbolic link is followed; what exists must be a
 * regular, writable file. */
int clattn_npy_write(const char *path, const char *type, int rank, const int64_t *shape, const void *data,
                     char *message, size_t capacity);

/* The same in steps, for callers that write several files and want all or none: begin (fails if the place can't be
 * written), put once, keep_old (optional: what stands in the place gets a second name), commit (the rename).  undo
 * takes back a commit after keep_old: the old file stands there again, or none.  discard removes what was not
 * committed and the second name; it accepts NULL, an all-zero struct and a committed one, and must follow every
 * successful begin. */
typedef struct clattn_npy_writer {
  char *path;      /* where commit puts the file: `path` of begin with symbolic links resolved */
  char *temporary; /* beside it; NULL when there is nothing to remove */
  int fd;          /* open when temporary is not NULL, until put closes it (then -1) */
  char *old;       /* the second name, beside path; NULL when there is none */
  int moved;       /* old is the only name: there are file systems without links */
  int committed;
} clattn_npy_writer;
int clattn_npy_begin(const char *path, clattn_npy_writer *out, char *message, size_t capacity);
int clattn_npy_put(clattn_npy_writer *writer, const char *type, int rank, const int64_t *shape, const void *data,
                   char *message, size_t capacity);
/* Instead of put: contents that are no array. */
int clattn_npy_put_bytes(clattn_npy_writer *writer, const void *data, size_t bytes, char *message, size_t capacity);
int clattn_npy_keep_old(clattn_npy_writer *writer, char *message, size_t capacity);
int clattn_npy_commit(clattn_npy_writer *writer, char *message, size_t capacity);
int clattn_npy_undo(clattn_npy_writer *writer, char *message, size_t capacity);
void clattn_npy_discard(clattn_npy_writer *writer);

/* Bytes of an element of one of the types above; 0 for any other text. */
size_t clattn_npy_type_bytes(const char *type);

#endif
