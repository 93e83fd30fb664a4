/* SPDX-License-Identifier: Apache-2.0 */
#define _XOPEN_SOURCE 700 /* realpath, mkstemp */
#include "npy.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A dictionary of three entries needs about 100 bytes; NumPy itself refuses more than 10000. */
enum { MAX_HEADER = 65536 };

static int fail(const char *path, char *message, size_t capacity, const char *format, ...) {
  if (message != NULL && capacity > 0) {
    int used = snprintf(message, capacity, "%s: ", path);
    if (used >= 0 && (size_t)used < capacity) {
      va_list list;
      va_start(list, format);
      vsnprintf(message + used, capacity - (size_t)used, format, list);
      va_end(list);
    }
  }
  return -1;
}

size_t clattn_npy_type_bytes(const char *type) {
  static const char *const names[] = {"f4", "f8", "f2", "u1", "b1", "i1", "i4", "i8", "u2"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    if (strcmp(type, names[i]) == 0)
      return (size_t)(type[1] - '0');
  }
  return 0;
}

/* ---- the header: a Python dictionary of literals, read within [at, end) ---- */

typedef struct reader {
  const char *at, *end;
  const char *path;
  char *message;
  size_t capacity;
} reader;

static int malformed(const reader *r, const char *what) {
  return fail(r->path, r->message, r->capacity, "malformed npy header: %s", what);
}

static void skip_space(reader *r) {
  while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r'))
    r->at++;
}

static int take(reader *r, char c) {
  skip_space(r);
  if (r->at < r->end && *r->at == c) {
    r->at++;
    return 1;
  }
  return 0;
}

/* A quoted text without escapes (no legal key or type needs one). */
static int take_text(reader *r, char *text, size_t capacity) {
  skip_space(r);
  if (r->at >= r->end || (*r->at != '\'' && *r->at != '"'))
    return 0;
  const char quote = *r->at++;
  size_t n = 0;
  while (r->at < r->end && *r->at != quote) {
    if (*r->at == '\\' || *r->at < ' ' || *r->at > '~' || n + 1 >= capacity)
      return 0;
    text[n++] = *r->at++;
  }
  if (r->at >= r->end)
    return 0;
  r->at++;
  text[n] = 0;
  return 1;
}

static int take_word(reader *r, const char *word) {
  const size_t n = strlen(word);
  skip_space(r);
  if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0)
    return 0;
  r->at += n;
  return 1;
}

static int read_descr(reader *r, clattn_npy *out) {
  char text[32];
  skip_space(r);
  if (r->at < r->end && *r->at == '[')
    return fail(r->path, r->message, r->capacity, "structured arrays are not supported");
  if (!take_text(r, text, sizeof text))
    return malformed(r, "'descr' is not a type name");
  const char *type = text;
  const char order = strchr("<>=|", text[0]) != NULL && text[0] != 0 ? text[0] : '=';
  if (text[0] == order)
    type++;
  if (type[0] == 'O')
    return fail(r->path, r->message, r->capacity, "object arrays (pickled Python data) are not supported");
  if (type[0] == 'V')
    return fail(r->path, r->message, r->capacity, "structured arrays are not supported");
  const size_t bytes = clattn_npy_type_bytes(type);
  if (order == '>' && bytes != 1)
    return fail(r->path, r->message, r->capacity, "big-endian data ('%s') is not supported", text);
  if (bytes == 0)
    return fail(r->path, r->message, r->capacity, "type '%s' is not supported", text);
  memcpy(out->type, type, sizeof out->type);
  return 0;
}

static int read_shape(reader *r, clattn_npy *out) {
  int comma = 1; /* a comma, or nothing yet, stands before the next number */
  if (!take(r, '('))
    return malformed(r, "'shape' is not a tuple");
  out->rank = 0;
  while (!take(r, ')')) {
    if (!comma || r->at >= r->end || *r->at < '0' || *r->at > '9')
      return malformed(r, "'shape' holds something that is not a length");
    if (out->rank == CLATTN_NPY_MAX_RANK)
      return fail(r->path, r->message, r->capacity, "more than %d axes are not supported", CLATTN_NPY_MAX_RANK);
    int64_t length = 0;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++) {
      const int digit = *r->at - '0';
      if (length > (INT64_MAX - digit) / 10)
        return fail(r->path, r->message, r->capacity, "the shape in the npy header overflows 64 bits");
      length = length * 10 + digit;
    }
    if (r->at < r->end && *r->at == 'L') /* Python 2 wrote long integers so */
      r->at++;
    out->shape[out->rank++] = length;
    comma = take(r, ',');
  }
  if (out->rank == 1 && !comma)
    return malformed(r, "'shape' is not a tuple");
  return 0;
}

static int read_header(reader *r, clattn_npy *out, int *fortran) {
  static const char *const keys[3] = {"descr", "fortran_order", "shape"};
  int seen[3] = {0, 0, 0};
  int comma = 1;
  if (!take(r, '{'))
    return malformed(r, "no dictionary");
  while (!take(r, '}')) {
    char key[32];
    int which = 0;
    if (!comma || !take_text(r, key, sizeof key) || !take(r, ':'))
      return malformed(r, "expected 'key': value");
    while (which < 3 && strcmp(key, keys[which]) != 0)
      which++;
    if (which == 3)
      return malformed(r, "a key that is none of descr, fortran_order, shape");
    if (seen[which]++)
      return malformed(r, "a key stands there twice");
    if (which == 0 && read_descr(r, out) != 0)
      return -1;
    if (which == 1) {
      if (take_word(r, "True"))
        *fortran = 1;
      else if (take_word(r, "False"))
        *fortran = 0;
      else
        return malformed(r, "'fortran_order' is neither True nor False");
    }
    if (which == 2 && read_shape(r, out) != 0)
      return -1;
    comma = take(r, ',');
  }
  if (!seen[0] || !seen[1] || !seen[2])
    return malformed(r, "descr, fortran_order or shape is missing");
  skip_space(r);
  if (r->at != r->end)
    return malformed(r, "text after the dictionary");
  return 0;
}

/* Strides and the size in bytes.  Axes of length 0 count as 1 in strides, so that an absurd shape is refused even when
 * it is empty. */
static int measure(const char *path, clattn_npy *out, int fortran, char *message, size_t capacity) {
  int64_t step = 1;
  int empty = 0;
  for (int n = 0; n < out->rank; n++) {
    const int axis = fortran ? n : out->rank - 1 - n;
    const int64_t length = out->shape[axis] == 0 ? 1 : out->shape[axis];
    empty |= out->shape[axis] == 0;
    out->stride[axis] = step;
    if (step > INT64_MAX / 8 / length)
      return fail(path, message, capacity, "the shape in the npy header overflows 64 bits");
    step *= length;
  }
  for (int axis = out->rank; axis < CLATTN_NPY_MAX_RANK; axis++)
    out->shape[axis] = 1;
  out->bytes = empty ? 0 : (size_t)step * clattn_npy_type_bytes(out->type);
  return 0;
}

static int parse(const char *path, const unsigned char *file, size_t size, clattn_npy *out, char *message,
                 size_t capacity) {
  static const unsigned char magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};
  int fortran = 0;
  if (memcmp(file, magic, size < sizeof magic ? size : sizeof magic) != 0) {
    if (size >= 2 && file[0] == 'P' && file[1] == 'K')
      return fail(path, message, capacity, "is an .npz archive, not an .npy file: save one array with numpy.save");
    return fail(path, message, capacity, "is not an .npy file");
  }
  if (size < 10)
    return fail(path, message, capacity, "truncated: %zu bytes are no npy header", size);
  const unsigned major = file[6], minor = file[7];
  if (major < 1 || major > 3 || minor != 0)
    return fail(path, message, capacity, "npy version %u.%u is not supported", major, minor);
  const size_t fixed = major == 1 ? 10 : 12;
  if (size < fixed)
    return fail(path, message, capacity, "truncated: %zu bytes are no npy header", size);
  size_t length = (size_t)file[8] | (size_t)file[9] << 8;
  if (major > 1)
    length |= (size_t)file[10] << 16 | (size_t)file[11] << 24;
  if (length > MAX_HEADER)
    return fail(path, message, capacity, "the npy header claims %zu bytes; at most %d are accepted", length,
                MAX_HEADER);
  if (length > size - fixed)
    return fail(path, message, capacity, "truncated: the npy header claims %zu bytes, %zu follow", length,
                size - fixed);
  reader r = {(const char *)file + fixed, (const char *)file + fixed + length, path, message, capacity};
  if (read_header(&r, out, &fortran) != 0 || measure(path, out, fortran, message, capacity) != 0)
    return -1;
  if (out->bytes > size - fixed - length)
    return fail(path, message, capacity, "truncated: the shape needs %zu bytes of data, the file has %zu", out->bytes,
                size - fixed - length);
  out->data = file + fixed + length;
  return 0;
}

int clattn_npy_open(const char *path, clattn_npy *out, char *message, size_t capacity) {
  int result = -1;
  struct stat info;
  memset(out, 0, sizeof *out);
  /* O_NONBLOCK: a FIFO is refused below and must not block here. */
  const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0)
    return fail(path, message, capacity, "can't be opened: %s", strerror(errno));
  if (fstat(fd, &info) != 0) {
    fail(path, message, capacity, "can't be read: %s", strerror(errno));
    goto done;
  }
  if (!S_ISREG(info.st_mode)) {
    fail(path, message, capacity, "is not a regular file");
    goto done;
  }
  if (info.st_size <= 0) {
    fail(path, message, capacity, "is empty (0 bytes)");
    goto done;
  }
  if ((uintmax_t)info.st_size > SIZE_MAX / 2) {
    fail(path, message, capacity, "is too large to be mapped");
    goto done;
  }
  const size_t size = (size_t)info.st_size;
  void *mapping = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (mapping == MAP_FAILED) {
    fail(path, message, capacity, "can't be mapped: %s", strerror(errno));
    goto done;
  }
  out->mapping = mapping;
  out->mapping_bytes = size;
  if (parse(path, mapping, size, out, message, capacity) != 0)
    goto done;
  /* NumPy pads the header so that data is aligned; other writers may not. */
  if (out->bytes > 0 && (uintptr_t)out->data % clattn_npy_type_bytes(out->type) != 0) {
    out->copy = malloc(out->bytes);
    if (out->copy == NULL) {
      fail(path, message, capacity, "no memory for %zu bytes", out->bytes);
      goto done;
    }
    memcpy(out->copy, out->data, out->bytes);
    out->data = out->copy;
  }
  result = 0;
done:
  close(fd);
  if (result != 0)
    clattn_npy_close(out);
  return result;
}

void clattn_npy_close(clattn_npy *npy) {
  if (npy == NULL)
    return;
  if (npy->mapping != NULL)
    munmap(npy->mapping, npy->mapping_bytes);
  free(npy->copy);
  memset(npy, 0, sizeof *npy);
}

/* ---- writing ---- */

static char *copy_text(const char *text) {
  const size_t bytes = strlen(text) + 1;
  char *copy = malloc(bytes);
  if (copy != NULL)
    memcpy(copy, text, bytes);
  return copy;
}

int clattn_npy_begin(const char *path, clattn_npy_writer *out, char *message, size_t capacity) {
  static const char suffix[] = ".partial-XXXXXX";
  struct stat info;
  mode_t mode;
  memset(out, 0, sizeof *out);
  out->fd = -1;
  if (path[0] == 0)
    return fail("output", message, capacity, "the path is empty");
  if (stat(path, &info) == 0) {
    /* Renaming over a device or a pipe would destroy it. */
    if (!S_ISREG(info.st_mode))
      return fail(path, message, capacity, "is not a regular file and can't be written");
    if (access(path, W_OK) != 0)
      return fail(path, message, capacity, "can't be written: %s", strerror(errno));
    mode = info.st_mode & 0777;
    out->path = realpath(path, NULL);
  } else {
    const mode_t mask = umask(0);
    umask(mask);
    mode = 0666 & ~mask;
    if (lstat(path, &info) == 0)
      return fail(path, message, capacity, "is a symbolic link to nowhere and can't be written");
    if (path[strlen(path) - 1] == '/')
      return fail(path, message, capacity, "names a folder and can't be written");
    out->path = copy_text(path);
  }
  if (out->path == NULL)
    return fail(path, message, capacity, "no memory");
  const size_t length = strlen(out->path);
  out->temporary = malloc(length + sizeof suffix);
  if (out->temporary == NULL) {
    fail(path, message, capacity, "no memory");
    goto failed;
  }
  memcpy(out->temporary, out->path, length);
  memcpy(out->temporary + length, suffix, sizeof suffix);
  out->fd = mkstemp(out->temporary);
  if (out->fd < 0) {
    fail(path, message, capacity, "can't be written: %s", strerror(errno));
    free(out->temporary);
    out->temporary = NULL;
    goto failed;
  }
  if (fchmod(out->fd, mode) != 0) {
    fail(path, message, capacity, "can't be written: %s", strerror(errno));
    goto failed;
  }
  return 0;
failed:
  clattn_npy_discard(out);
  return -1;
}

static int write_all(int fd, const void *data, size_t bytes) {
  const char *at = data;
  while (bytes > 0) {
    const ssize_t written = write(fd, at, bytes < (size_t)1 << 30 ? bytes : (size_t)1 << 30);
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      return -1;
    at += written;
    bytes -= (size_t)written;
  }
  return 0;
}

int clattn_npy_put(clattn_npy_writer *writer, const char *type, int rank, const int64_t *shape, const void *data,
                   char *message, size_t capacity) {
  char header[512] = {0};
  size_t bytes = clattn_npy_type_bytes(type);
  if (writer->fd < 0 || bytes == 0 || rank < 0 || rank > CLATTN_NPY_MAX_RANK)
    return fail(writer->path, message, capacity, "can't be written: wrong type or rank");
  size_t used = 10;
  used += (size_t)snprintf(header + used, sizeof header - used, "{'descr': '%c%s', 'fortran_order': False, 'shape': (",
                           bytes == 1 ? '|' : '<', type);
  for (int axis = 0; axis < rank; axis++) {
    if (shape[axis] < 0 || (shape[axis] > 0 && bytes > SIZE_MAX / 2 / (size_t)shape[axis]))
      return fail(writer->path, message, capacity, "can't be written: the shape is out of range");
    bytes *= (size_t)shape[axis];
    used += (size_t)snprintf(header + used, sizeof header - used, "%s%" PRId64 "%s", axis > 0 ? " " : "", shape[axis],
                             axis + 1 < rank || rank == 1 ? "," : "");
  }
  used += (size_t)snprintf(header + used, sizeof header - used, "), }");
  const size_t whole = (used + 1 + 63) / 64 * 64;
  memset(header + used, ' ', whole - used);
  header[whole - 1] = '\n';
  memcpy(header, "\x93NUMPY\x01\x00", 8);
  header[8] = (char)((whole - 10) & 0xff);
  header[9] = (char)((whole - 10) >> 8);
  if (write_all(writer->fd, header, whole) != 0)
    return fail(writer->path, message, capacity, "can't be written: %s", strerror(errno));
  return clattn_npy_put_bytes(writer, data, bytes, message, capacity);
}

int clattn_npy_put_bytes(clattn_npy_writer *writer, const void *data, size_t bytes, char *message, size_t capacity) {
  if (writer->fd < 0)
    return fail(writer->path, message, capacity, "can't be written twice");
  if (write_all(writer->fd, data, bytes) != 0)
    return fail(writer->path, message, capacity, "can't be written: %s", strerror(errno));
  const int fd = writer->fd;
  writer->fd = -1;
  if (close(fd) != 0)
    return fail(writer->path, message, capacity, "can't be written: %s", strerror(errno));
  return 0;
}

int clattn_npy_keep_old(clattn_npy_writer *writer, char *message, size_t capacity) {
  enum { TRIES = 1000 };
  static unsigned counter;
  struct stat info;
  if (writer->path == NULL || writer->committed || writer->old != NULL)
    return fail(writer->path != NULL ? writer->path : "output", message, capacity, "keep_old at the wrong time");
  if (lstat(writer->path, &info) != 0) {
    if (errno == ENOENT)
      return 0;
    return fail(writer->path, message, capacity, "can't be written: %s", strerror(errno));
  }
  /* It was one, or nothing, at begin. */
  if (!S_ISREG(info.st_mode))
    return fail(writer->path, message, capacity, "is not a regular file any more and can't be written");
  const size_t bytes = strlen(writer->path) + 64;
  char *name = malloc(bytes);
  if (name == NULL)
    return fail(writer->path, message, capacity, "no memory");
  int error = EEXIST;
  for (int i = 0; i < TRIES && error == EEXIST; i++) {
    snprintf(name, bytes, "%s.partial-old-%ld-%u", writer->path, (long)getpid(), counter++);
    error = link(writer->path, name) == 0 ? 0 : errno;
  }
  if (error != 0 && error != EEXIST && lstat(name, &info) != 0 && errno == ENOENT) {
    error = rename(writer->path, name) == 0 ? 0 : errno;
    writer->moved = error == 0;
  }
  if (error != 0) {
    free(name);
    return fail(writer->path, message, capacity, "can't be written: %s", strerror(error));
  }
  writer->old = name;
  return 0;
}

int clattn_npy_commit(clattn_npy_writer *writer, char *message, size_t capacity) {
  if (writer->temporary == NULL || writer->fd >= 0)
    return fail(writer->path != NULL ? writer->path : "output", message, capacity, "nothing was written");
  if (rename(writer->temporary, writer->path) != 0)
    return fail(writer->path, message, capacity, "can't be written: %s", strerror(errno));
  free(writer->temporary);
  writer->temporary = NULL;
  writer->committed = 1;
  return 0;
}

int clattn_npy_undo(clattn_npy_writer *writer, char *message, size_t capacity) {
  if (!writer->committed)
    return fail(writer->path != NULL ? writer->path : "output", message, capacity, "undo without a commit");
  int result = 0;
  if (writer->old == NULL && unlink(writer->path) != 0)
    result = fail(writer->path, message, capacity, "can't be removed: %s", strerror(errno));
  else if (writer->old != NULL && rename(writer->old, writer->path) != 0)
    result =
        fail(writer->path, message, capacity, "can't be put back: %s; it is kept as %s", strerror(errno), writer->old);
  /* Forgotten either way: discard must not remove the only copy. */
  free(writer->old);
  writer->old = NULL;
  writer->committed = 0;
  return result;
}

void clattn_npy_discard(clattn_npy_writer *writer) {
  if (writer == NULL)
    return;
  if (writer->temporary != NULL) {
    if (writer->fd >= 0)
      close(writer->fd);
    unlink(writer->temporary);
  }
  if (writer->old != NULL && !writer->committed && writer->moved) {
    /* If this fails, the file still has its second name. */
    (void)rename(writer->old, writer->path);
  } else if (writer->old != NULL) {
    unlink(writer->old);
  }
  free(writer->temporary);
  free(writer->old);
  free(writer->path);
  memset(writer, 0, sizeof *writer);
  writer->fd = -1;
}

int clattn_npy_write(const char *path, const char *type, int rank, const int64_t *shape, const void *data,
                     char *message, size_t capacity) {
  clattn_npy_writer writer;
  if (clattn_npy_begin(path, &writer, message, capacity) != 0)
    return -1;
  int result = clattn_npy_put(&writer, type, rank, shape, data, message, capacity);
  if (result == 0)
    result = clattn_npy_commit(&writer, message, capacity);
  clattn_npy_discard(&writer);
  return result;
}
