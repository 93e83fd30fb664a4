/* SPDX-License-Identifier: Apache-2.0 */
/* Build tool: writes kernel files as C byte arrays.
 *
 *     embed FOLDER OUT.c OUT.h FILE.cl...
 *
 * FILE.cl is a path in FOLDER, and so is every include.
 *
 * Each file is flattened first: an OpenCL compiler at run time has no folder to find headers in.  `#include "x"` is
 * replaced by the text of x the first time and by nothing later, and `#line` marks keep compiler logs pointing at the
 * real places.  Expanding once is only the same as the preprocessor's own inclusion where no condition decides about it,
 * so an include inside `#if` is refused, except inside the guard of the file itself. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILES = 64, MAX_DEPTH = 16, MAX_NAME = 256, MAX_PATH = 4096 };

typedef struct text {
  char *data;
  size_t length, capacity;
} text;

/* One flattened kernel: its text and the headers that are in it already. */
typedef struct flat {
  const char *folder;
  text out;
  char seen[MAX_FILES][MAX_NAME];
  int num_seen;
} flat;

_Noreturn static void die(const char *format, ...) {
  va_list list;
  va_start(list, format);
  fprintf(stderr, "embed: ");
  vfprintf(stderr, format, list);
  fprintf(stderr, "\n");
  va_end(list);
  exit(1);
}

static void append(text *t, const char *data, size_t length) {
  if (t->length + length + 1 > t->capacity) {
    size_t capacity = (t->length + length + 1) * 2;
    char *grown = realloc(t->data, capacity);
    if (grown == NULL) {
      die("out of memory");
    }
    t->data = grown;
    t->capacity = capacity;
  }
  memcpy(t->data + t->length, data, length);
  t->length += length;
  t->data[t->length] = 0;
}

static void append_line_mark(text *t, long line, const char *name) {
  char mark[MAX_NAME + 64];
  int length = snprintf(mark, sizeof mark, "#line %ld \"kernels/%s\"\n", line, name);
  append(t, mark, (size_t)length);
}

static text read_file(const char *folder, const char *name, const char *from, long line) {
  char path[MAX_PATH];
  if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) >= sizeof path) {
    die("path too long: %s/%s", folder, name);
  }
  FILE *file = fopen(path, "rb");
  if (file == NULL) {
    if (from != NULL) {
      die("kernels/%s:%ld: \"%s\" can't be opened", from, line, name);
    }
    die("%s can't be opened", path);
  }
  text t = {NULL, 0, 0};
  char block[4096];
  size_t got;
  append(&t, "", 0);
  while ((got = fread(block, 1, sizeof block, file)) > 0) {
    append(&t, block, got);
  }
  if (ferror(file)) {
    die("%s can't be read", path);
  }
  fclose(file);
  return t;
}

/* The word after '#' on a directive line, and what follows it; NULL if the line is none. */
static const char *directive(const char *line, const char *end, char word[16]) {
  const char *p = line;
  while (p < end && isspace((unsigned char)*p)) {
    p++;
  }
  if (p == end || *p != '#') {
    return NULL;
  }
  p++;
  while (p < end && isspace((unsigned char)*p)) {
    p++;
  }
  int n = 0;
  while (p < end && isalpha((unsigned char)*p) && n < 15) {
    word[n++] = *p++;
  }
  word[n] = 0;
  while (p < end && isspace((unsigned char)*p)) {
    p++;
  }
  return p;
}

/* First call for this name: 0 and it is noted. */
static int already_seen(flat *f, const char *name) {
  for (int i = 0; i < f->num_seen; i++) {
    if (strcmp(f->seen[i], name) == 0) {
      return 1;
    }
  }
  if (f->num_seen == MAX_FILES) {
    die("more than %d headers in one kernel", MAX_FILES);
  }
  memcpy(f->seen[f->num_seen++], name, strlen(name) + 1);
  return 0;
}

static void flatten(flat *f, const char *name, const char *from, long from_line, int level) {
  if (level > MAX_DEPTH) {
    die("kernels/%s:%ld: includes are nested more than %d deep", from, from_line, MAX_DEPTH);
  }
  text in = read_file(f->folder, name, from, from_line);
  append_line_mark(&f->out, 1, name);
  long line = 0;
  int depth = 0, guarded = 0, directives = 0, in_comment = 0;
  const char *p = in.data, *end = in.data + in.length;
  while (p < end) {
    const char *stop = memchr(p, '\n', (size_t)(end - p));
    stop = stop == NULL ? end : stop;
    line++;
    char word[16];
    const char *rest = in_comment ? NULL : directive(p, stop, word);
    int replaced = 0;
    if (rest != NULL) {
      directives++;
      if (strncmp(word, "if", 2) == 0) {
        depth++;
        guarded |= directives == 1 && strcmp(word, "ifndef") == 0;
      } else if (strcmp(word, "endif") == 0) {
        depth--;
      } else if (strcmp(word, "include") == 0 && *rest == '"') {
        const char *close = memchr(rest + 1, '"', (size_t)(stop - rest - 1));
        size_t length = close == NULL ? 0 : (size_t)(close - rest - 1);
        if (length == 0 || length >= MAX_NAME) {
          die("kernels/%s:%ld: an include without a usable name", name, line);
        }
        if (depth > guarded) {
          die("kernels/%s:%ld: an include inside #if can't be embedded; move it out of the condition", name, line);
        }
        char header[MAX_NAME];
        memcpy(header, rest + 1, length);
        header[length] = 0;
        if (!already_seen(f, header)) {
          flatten(f, header, name, line, level + 1);
        }
        append_line_mark(&f->out, line + 1, name);
        replaced = 1;
      }
    }
    /* A block comment hides directives; strings do not matter, since no directive line begins inside one. */
    for (const char *c = p; c + 1 < stop; c++) {
      if (in_comment) {
        if (c[0] == '*' && c[1] == '/') {
          in_comment = 0;
          c++;
        }
      } else if (c[0] == '/' && c[1] == '/') {
        break;
      } else if (c[0] == '/' && c[1] == '*') {
        in_comment = 1;
        c++;
      }
    }
    if (!replaced) {
      append(&f->out, p, (size_t)(stop - p));
      append(&f->out, "\n", 1);
    }
    p = stop == end ? end : stop + 1;
  }
  if (depth != 0) {
    die("kernels/%s: #if and #endif do not match", name);
  }
  free(in.data);
}

/* "three-step.cl" -> "three_step", an identifier; the base (without .cl) is `length` long. */
static size_t identifier(const char *file, char out[MAX_NAME]) {
  size_t length = strlen(file);
  if (length < 4 || length >= MAX_NAME || strcmp(file + length - 3, ".cl") != 0) {
    die("%s: not the name of a .cl file", file);
  }
  length -= 3;
  for (size_t i = 0; i < length; i++) {
    out[i] = isalnum((unsigned char)file[i]) ? file[i] : '_';
  }
  out[length] = 0;
  return length;
}

static void write_array(FILE *out, const char *name, const text *t) {
  /* One byte more than the size: a 0, so that the array can also be read as a string. */
  fprintf(out, "const unsigned char clattni_kernel_%s[] = {", name);
  for (size_t i = 0; i <= t->length; i++) {
    fprintf(out, "%s%u,", i % 24 == 0 ? "\n" : "", (unsigned)(unsigned char)t->data[i]);
  }
  fprintf(out, "\n};\nconst size_t clattni_kernel_%s_size = %lu;\n\n", name, (unsigned long)t->length);
}

static FILE *create(const char *path) {
  FILE *file = fopen(path, "wb");
  if (file == NULL) {
    die("%s can't be written", path);
  }
  return file;
}

static void finish(FILE *file, const char *path) {
  int bad = ferror(file);
  bad |= fclose(file);
  if (bad) {
    remove(path);
    die("%s can't be written", path);
  }
}

int main(int argc, char **argv) {
  if (argc < 5) {
    die("usage: embed FOLDER OUT.c OUT.h FILE.cl...");
  }
  const char *source_path = argv[2], *header_path = argv[3];
  FILE *source = create(source_path);
  FILE *header = create(header_path);
  fprintf(header, "/* Generated from kernels/ by cmake/embed.c. */\n#ifndef CLATTN_KERNELS_EMBEDDED_H\n"
                  "#define CLATTN_KERNELS_EMBEDDED_H\n\n#include <stddef.h>\n\n");
  const char *slash = strrchr(header_path, '/');
  fprintf(source, "/* Generated from kernels/ by cmake/embed.c. */\n#include \"%s\"\n\n",
          slash != NULL ? slash + 1 : header_path);
  for (int i = 4; i < argc; i++) {
    char name[MAX_NAME];
    identifier(argv[i], name);
    flat f;
    memset(&f, 0, sizeof f);
    f.folder = argv[1];
    flatten(&f, argv[i], NULL, 0, 0);
    write_array(source, name, &f.out);
    fprintf(header, "extern const unsigned char clattni_kernel_%s[];\nextern const size_t clattni_kernel_%s_size;\n",
            name, name);
    free(f.out.data);
  }
  fprintf(header,
          "\n/* Every kernel file: name without .cl; source ends with a 0 that size does not count. */\n"
          "typedef struct clattni_kernel_file {\n  const char *name;\n  const unsigned char *source;\n  size_t size;\n"
          "} clattni_kernel_file;\nextern const clattni_kernel_file clattni_kernel_files[];\n"
          "extern const size_t clattni_kernel_file_count;\n\n#endif\n");
  fprintf(source, "const clattni_kernel_file clattni_kernel_files[] = {\n");
  for (int i = 4; i < argc; i++) {
    char name[MAX_NAME];
    size_t length = identifier(argv[i], name);
    /* The size again from the array: a constant variable is no constant expression in C. */
    fprintf(source, "    {\"%.*s\", clattni_kernel_%s, sizeof clattni_kernel_%s - 1},\n", (int)length, argv[i], name,
            name);
  }
  fprintf(source, "};\nconst size_t clattni_kernel_file_count = %d;\n", argc - 4);
  finish(source, source_path);
  finish(header, header_path);
  return 0;
}
