/* SPDX-License-Identifier: Apache-2.0 */
/* host/cli/npy.c: what is written is read back; every broken file is refused by name, and nothing of it is trusted. */
#define _XOPEN_SOURCE 700 /* mkdtemp, realpath */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "npy.h"

static char folder[] = "/tmp/clattn-npy-XXXXXX";
static char message[512];

static int start(void **state) {
  (void)state;
  return mkdtemp(folder) != NULL ? chdir(folder) : -1;
}

static int finish(void **state) {
  (void)state;
  DIR *all = opendir(folder);
  struct dirent *entry;
  int left = 0;
  while (all != NULL && (entry = readdir(all)) != NULL) {
    if (entry->d_name[0] != '.') {
      left += strstr(entry->d_name, ".partial-") != NULL;
      unlink(entry->d_name);
    }
  }
  if (all != NULL)
    closedir(all);
  if (chdir("/") != 0 || rmdir(folder) != 0)
    return -1;
  return left;
}

static void write_bytes(const char *path, const void *data, size_t bytes) {
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(data, 1, bytes, file), bytes);
  assert_int_equal(fclose(file), 0);
}

static size_t read_bytes(const char *path, unsigned char *data, size_t capacity) {
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  const size_t bytes = fread(data, 1, capacity, file);
  fclose(file);
  return bytes;
}

/* A file with this header text (its newline is added) and `data_bytes` bytes 0, 1, 2, ... behind it. */
static void write_header(const char *path, int major, const char *header, size_t data_bytes) {
  unsigned char file[1024] = {0x93, 'N', 'U', 'M', 'P', 'Y'};
  size_t used = major == 1 ? 10 : 12;
  const size_t length = strlen(header) + 1;
  assert_true(used + length + data_bytes <= sizeof file);
  file[6] = (unsigned char)major;
  file[8] = (unsigned char)(length & 0xff);
  file[9] = (unsigned char)(length >> 8);
  memcpy(file + used, header, length - 1);
  file[used + length - 1] = '\n';
  used += length;
  for (size_t i = 0; i < data_bytes; i++)
    file[used++] = (unsigned char)i;
  write_bytes(path, file, used);
}

static void refuse(const char *path, const char *part) {
  clattn_npy npy;
  message[0] = 0;
  if (clattn_npy_open(path, &npy, message, sizeof message) == 0)
    fail_msg("%s was read; expected: %s", path, part);
  if (strstr(message, part) == NULL || strncmp(message, path, strlen(path)) != 0)
    fail_msg("message '%s' lacks '%s' or the path", message, part);
  assert_null(npy.data);
  assert_null(npy.mapping);
  clattn_npy_close(&npy);
  /* Messages are optional. */
  assert_int_not_equal(clattn_npy_open(path, &npy, NULL, 0), 0);
}

static void round_trip(void **state) {
  (void)state;
  static const struct {
    const char *type;
    size_t bytes;
  } types[] = {{"f4", 4}, {"f8", 8}, {"f2", 2}, {"u1", 1}, {"b1", 1}, {"i4", 4}, {"i8", 8}, {"u2", 2}};
  static const int64_t shape[8] = {2, 3, 1, 2, 1, 1, 2, 1};
  unsigned char data[24 * 8];
  for (size_t i = 0; i < sizeof data; i++)
    data[i] = (unsigned char)(i * 7);
  for (size_t t = 0; t < 8; t++) {
    assert_int_equal(clattn_npy_type_bytes(types[t].type), types[t].bytes);
    for (int rank = 0; rank <= 8; rank++) {
      clattn_npy npy;
      size_t count = 1;
      for (int axis = 0; axis < rank; axis++)
        count *= (size_t)shape[axis];
      assert_int_equal(clattn_npy_write("r.npy", types[t].type, rank, shape, data, message, sizeof message), 0);
      assert_int_equal(clattn_npy_open("r.npy", &npy, message, sizeof message), 0);
      assert_string_equal(npy.type, types[t].type);
      assert_int_equal(npy.rank, rank);
      assert_int_equal(npy.bytes, count * types[t].bytes);
      assert_memory_equal(npy.data, data, npy.bytes);
      int64_t step = 1;
      for (int axis = rank - 1; axis >= 0; axis--) {
        assert_int_equal(npy.shape[axis], shape[axis]);
        assert_int_equal(npy.stride[axis], step);
        step *= shape[axis];
      }
      clattn_npy_close(&npy);
      assert_null(npy.data);
    }
  }
  assert_int_equal(clattn_npy_type_bytes("c8"), 0);
}

/* The exact bytes that NumPy writes for the same array. */
static void written_bytes(void **state) {
  (void)state;
  static const char header[] = "\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }";
  const float data[3] = {1, 2, 3};
  const int64_t shape[1] = {3};
  unsigned char file[256];
  assert_int_equal(clattn_npy_write("w.npy", "f4", 1, shape, data, message, sizeof message), 0);
  assert_int_equal(read_bytes("w.npy", file, sizeof file), 128 + 12);
  assert_memory_equal(file, header, sizeof header - 1);
  assert_int_equal(file[127], '\n');
  assert_int_equal(file[126], ' ');
  assert_memory_equal(file + 128, data, sizeof data);
}

static void empty_axes(void **state) {
  (void)state;
  const int64_t shape[3] = {2, 0, 4};
  clattn_npy npy;
  assert_int_equal(clattn_npy_write("e.npy", "f4", 3, shape, NULL, message, sizeof message), 0);
  assert_int_equal(clattn_npy_open("e.npy", &npy, message, sizeof message), 0);
  assert_int_equal(npy.bytes, 0);
  assert_int_equal(npy.shape[1], 0);
  clattn_npy_close(&npy);
}

static void legal_headers(void **state) {
  (void)state;
  static const char *const headers[] = {
      "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }",
      "{'shape': (2, 3), 'fortran_order': False, 'descr': '<f4'}",
      "{\"descr\":\"<f4\",\"fortran_order\":False,\"shape\":(2,3)}",
      "{ 'fortran_order' : False , 'shape' : ( 2 , 3 , ) , 'descr' : '<f4' , }      ",
      "{'descr': 'f4', 'fortran_order': False, 'shape': (2L, 3L)}",
      "{'descr': '=f4', 'fortran_order': False,\n 'shape': (2, 3)}",
  };
  for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
    for (int major = 1; major <= 3; major++) {
      clattn_npy npy;
      write_header("l.npy", major, headers[i], 24);
      if (clattn_npy_open("l.npy", &npy, message, sizeof message) != 0)
        fail_msg("%s: %s", headers[i], message);
      assert_int_equal(npy.rank, 2);
      assert_int_equal(npy.shape[0], 2);
      assert_int_equal(npy.shape[1], 3);
      assert_int_equal(npy.stride[0], 3);
      /* Whatever the header's length, data is aligned and whole. */
      assert_int_equal((uintptr_t)npy.data % 4, 0);
      assert_int_equal(((const unsigned char *)npy.data)[23], 23);
      clattn_npy_close(&npy);
    }
  }
}

static void fortran_order(void **state) {
  (void)state;
  clattn_npy npy;
  write_header("f.npy", 1, "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3, 4)}", 24);
  assert_int_equal(clattn_npy_open("f.npy", &npy, message, sizeof message), 0);
  assert_int_equal(npy.stride[0], 1);
  assert_int_equal(npy.stride[1], 2);
  assert_int_equal(npy.stride[2], 6);
  clattn_npy_close(&npy);
}

static void broken_headers(void **state) {
  (void)state;
  static const struct {
    const char *header, *part;
  } cases[] = {
      {"{'descr': '>f4', 'fortran_order': False, 'shape': (2, 3)}", "big-endian"},
      {"{'descr': '>i8', 'fortran_order': False, 'shape': (2, 3)}", "big-endian"},
      {"{'descr': '|O', 'fortran_order': False, 'shape': (2, 3)}", "object"},
      {"{'descr': [('a', '<f4'), ('b', '<i4')], 'fortran_order': False, 'shape': (3,)}", "structured"},
      {"{'descr': '|V8', 'fortran_order': False, 'shape': (3,)}", "structured"},
      {"{'descr': '<c8', 'fortran_order': False, 'shape': (3,)}", "type '<c8'"},
      {"{'descr': '<U4', 'fortran_order': False, 'shape': (3,)}", "type '<U4'"},
      {"{'descr': '', 'fortran_order': False, 'shape': (3,)}", "type ''"},
      {"{'descr': 4, 'fortran_order': False, 'shape': (3,)}", "type name"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4)}", "truncated"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776, 3)}", "truncated"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 4294967296)}", "overflows"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4294967296, 4294967296)}", "overflows"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", "overflows"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (-2, 3)}", "not a length"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2.5, 3)}", "not a length"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2 3)}", "not a length"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (,)}", "not a length"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (6)}", "tuple"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': [2, 3]}", "tuple"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3", "not a length"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", "more than 8 axes"},
      {"{'descr': '<f4', 'fortran_order': 0, 'shape': (2, 3)}", "fortran_order"},
      {"{'descr': '<f4', 'shape': (2, 3)}", "missing"},
      {"{}", "missing"},
      {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}", "twice"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'x': 1}", "a key that is none"},
      {"{'descr': '<f4' 'fortran_order': False, 'shape': (2, 3)}", "expected"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)} + 1", "after the dictionary"},
      {"{'descr: '<f4', 'fortran_order': False, 'shape': (2, 3)}", "malformed"},
      {"['descr']", "dictionary"},
      {"", "dictionary"},
      {"__import__('os').system('true')", "dictionary"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    for (int major = 1; major <= 3; major++) {
      write_header("b.npy", major, cases[i].header, 24);
      refuse("b.npy", cases[i].part);
    }
  }
  write_header("b.npy", 4, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}", 24);
  refuse("b.npy", "version 4.0");
}

static void broken_files(void **state) {
  (void)state;
  static const unsigned char bomb[] = {0x93, 'N', 'U', 'M', 'P', 'Y', 2, 0, 0xff, 0xff, 0xff, 0xff, '{', '}'};
  static const unsigned char cut[] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, 0xff, 0x7f, '{', '}'};
  refuse("nowhere.npy", "can't be opened");
  write_bytes("zero.npy", "", 0);
  refuse("zero.npy", "empty (0 bytes)");
  write_bytes("text.npy", "1 2 3\n", 6);
  refuse("text.npy", "not an .npy file");
  write_bytes("zip.npy", "PK\003\004 and more", 13);
  refuse("zip.npy", ".npz");
  write_bytes("bomb.npy", bomb, sizeof bomb);
  refuse("bomb.npy", "claims 4294967295 bytes");
  write_bytes("cut.npy", cut, sizeof cut);
  refuse("cut.npy", "truncated");
  assert_int_equal(mkdir("sub.npy", 0777), 0);
  refuse("sub.npy", "not a regular file");
  assert_int_equal(rmdir("sub.npy"), 0);
  assert_int_equal(mkfifo("pipe.npy", 0666), 0);
  refuse("pipe.npy", "not a regular file"); /* and does not wait for a writer */
}

/* Every prefix of a valid file is refused, and every file with one byte of its header changed is read or refused
 * without reading outside it (sanitizers watch). */
static void every_prefix_and_byte(void **state) {
  (void)state;
  static const unsigned char others[] = {0, 1, ' ', '(', ')', '\'', '9', ',', '{', '}', 0x7f, 0xff};
  const int64_t shape[2] = {3, 2};
  const float data[6] = {1, 2, 3, 4, 5, 6};
  unsigned char file[256], changed[256];
  assert_int_equal(clattn_npy_write("p.npy", "f4", 2, shape, data, message, sizeof message), 0);
  const size_t bytes = read_bytes("p.npy", file, sizeof file);
  assert_int_equal(bytes, 128 + 24);
  for (size_t n = 0; n < bytes; n++) {
    clattn_npy npy;
    write_bytes("q.npy", file, n);
    if (clattn_npy_open("q.npy", &npy, message, sizeof message) == 0)
      fail_msg("a prefix of %zu bytes was read", n);
  }
  for (size_t at = 0; at < 128; at++) {
    for (size_t i = 0; i < sizeof others; i++) {
      clattn_npy npy;
      memcpy(changed, file, bytes);
      changed[at] = others[i];
      write_bytes("q.npy", changed, bytes);
      if (clattn_npy_open("q.npy", &npy, message, sizeof message) == 0) {
        volatile unsigned char sum = 0; /* reads all of it */
        for (size_t n = 0; n < npy.bytes; n++)
          sum = (unsigned char)(sum + ((const unsigned char *)npy.data)[n]);
        assert_true(npy.bytes <= bytes);
        clattn_npy_close(&npy);
      }
    }
  }
}

static int partial_files(void) {
  DIR *all = opendir(".");
  struct dirent *entry;
  int count = 0;
  assert_non_null(all);
  while ((entry = readdir(all)) != NULL)
    count += strstr(entry->d_name, ".partial-") != NULL;
  closedir(all);
  return count;
}

static void writing_is_whole_or_nothing(void **state) {
  (void)state;
  const int64_t shape[1] = {4}, bad[1] = {-1};
  const float data[4] = {1, 2, 3, 4};
  unsigned char before[256], after[256];
  clattn_npy_writer writer;
  struct stat info;
  assert_int_equal(clattn_npy_write("o.npy", "f4", 1, shape, data, message, sizeof message), 0);
  const size_t bytes = read_bytes("o.npy", before, sizeof before);
  assert_int_equal(chmod("o.npy", 0640), 0);

  /* Begun and put, then given up: the old file stands. */
  assert_int_equal(clattn_npy_begin("o.npy", &writer, message, sizeof message), 0);
  assert_int_equal(partial_files(), 1);
  assert_int_equal(clattn_npy_put(&writer, "f4", 1, shape, data + 0, message, sizeof message), 0);
  clattn_npy_discard(&writer);
  clattn_npy_discard(&writer);
  assert_int_equal(partial_files(), 0);
  /* Nothing was put: no commit. */
  assert_int_equal(clattn_npy_begin("o.npy", &writer, message, sizeof message), 0);
  assert_int_not_equal(clattn_npy_commit(&writer, message, sizeof message), 0);
  clattn_npy_discard(&writer);
  assert_int_not_equal(clattn_npy_write("o.npy", "f4", 1, bad, data, message, sizeof message), 0);
  assert_int_not_equal(clattn_npy_write("o.npy", "f9", 1, shape, data, message, sizeof message), 0);
  assert_int_equal(read_bytes("o.npy", after, sizeof after), bytes);
  assert_memory_equal(before, after, bytes);

  /* Places that can't be written. */
  assert_int_not_equal(clattn_npy_write("nowhere/o.npy", "f4", 1, shape, data, message, sizeof message), 0);
  assert_non_null(strstr(message, "nowhere/o.npy: can't be written"));
  assert_int_not_equal(clattn_npy_write(".", "f4", 1, shape, data, message, sizeof message), 0);
  assert_int_not_equal(clattn_npy_write("new/", "f4", 1, shape, data, message, sizeof message), 0);
  assert_int_not_equal(clattn_npy_write("", "f4", 1, shape, data, message, sizeof message), 0);
  assert_int_not_equal(clattn_npy_write("/dev/null", "f4", 1, shape, data, message, sizeof message), 0);
  assert_int_equal(stat("/dev/null", &info), 0);
  assert_true(S_ISCHR(info.st_mode));
  assert_int_equal(partial_files(), 0);

  /* A link is followed, and the file's mode stays. */
  assert_int_equal(symlink("o.npy", "link.npy"), 0);
  assert_int_equal(clattn_npy_write("link.npy", "f4", 1, shape, data, message, sizeof message), 0);
  assert_int_equal(lstat("link.npy", &info), 0);
  assert_true(S_ISLNK(info.st_mode));
  assert_int_equal(stat("o.npy", &info), 0);
  assert_int_equal(info.st_mode & 0777, 0640);
}

static int holds(const char *path, float want) {
  clattn_npy npy;
  if (clattn_npy_open(path, &npy, message, sizeof message) != 0)
    return 0;
  const int same = *(const float *)npy.data == want;
  clattn_npy_close(&npy);
  return same;
}

static void begin_and_put(const char *path, const float *value, clattn_npy_writer *writer) {
  const int64_t shape[1] = {1};
  assert_int_equal(clattn_npy_begin(path, writer, message, sizeof message), 0);
  assert_int_equal(clattn_npy_put(writer, "f4", 1, shape, value, message, sizeof message), 0);
}

/* One file that was there and one that wasn't: both come, or neither. */
static void commits_can_be_undone(void **state) {
  (void)state;
  const int64_t shape[1] = {1};
  const float first[1] = {1}, second[1] = {2};
  for (int undone = 0; undone < 2; undone++) {
    clattn_npy_writer a, b;
    assert_int_equal(clattn_npy_write("there.npy", "f4", 1, shape, first, message, sizeof message), 0);
    begin_and_put("there.npy", second, &a);
    begin_and_put("new.npy", second, &b);
    assert_int_not_equal(clattn_npy_undo(&a, message, sizeof message), 0);
    assert_int_equal(clattn_npy_keep_old(&a, message, sizeof message), 0);
    assert_int_not_equal(clattn_npy_keep_old(&a, message, sizeof message), 0);
    assert_int_equal(clattn_npy_keep_old(&b, message, sizeof message), 0);
    assert_true(holds("there.npy", 1));
    assert_int_equal(clattn_npy_commit(&a, message, sizeof message), 0);
    assert_int_equal(clattn_npy_commit(&b, message, sizeof message), 0);
    assert_true(holds("there.npy", 2) && holds("new.npy", 2));
    if (undone) {
      assert_int_equal(clattn_npy_undo(&a, message, sizeof message), 0);
      assert_int_equal(clattn_npy_undo(&b, message, sizeof message), 0);
      assert_int_not_equal(clattn_npy_undo(&b, message, sizeof message), 0);
    }
    clattn_npy_discard(&a);
    clattn_npy_discard(&b);
    assert_int_equal(partial_files(), 0);
    assert_true(holds("there.npy", undone ? 1 : 2));
    assert_int_equal(access("new.npy", F_OK) == 0, !undone);
    unlink("new.npy");
  }

  /* Given up before the commit, and a place that became a folder after keep_old. */
  clattn_npy_writer a, b;
  begin_and_put("there.npy", second, &a);
  begin_and_put("new.npy", second, &b);
  assert_int_equal(clattn_npy_keep_old(&a, message, sizeof message), 0);
  assert_int_equal(clattn_npy_keep_old(&b, message, sizeof message), 0);
  clattn_npy_discard(&a);
  assert_true(holds("there.npy", 1));
  assert_int_equal(mkdir("new.npy", 0777), 0);
  assert_int_not_equal(clattn_npy_commit(&b, message, sizeof message), 0);
  assert_int_not_equal(clattn_npy_undo(&b, message, sizeof message), 0);
  assert_int_not_equal(clattn_npy_keep_old(&b, message, sizeof message), 0);
  assert_non_null(strstr(message, "not a regular file any more"));
  clattn_npy_discard(&b);
  assert_int_equal(rmdir("new.npy"), 0);
  assert_int_equal(partial_files(), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(round_trip),
      cmocka_unit_test(written_bytes),
      cmocka_unit_test(empty_axes),
      cmocka_unit_test(legal_headers),
      cmocka_unit_test(fortran_order),
      cmocka_unit_test(broken_headers),
      cmocka_unit_test(broken_files),
      cmocka_unit_test(every_prefix_and_byte),
      cmocka_unit_test(writing_is_whole_or_nothing),
      cmocka_unit_test(commits_can_be_undone),
  };
  return cmocka_run_group_tests(tests, start, finish);
}
