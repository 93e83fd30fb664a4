/* SPDX-License-Identifier: Apache-2.0 */
/* Reading OpenCL C text without a compiler: words, and macros without arguments with the integers that they stand for. */
#ifndef CLATTN_STUB_TEXT_H
#define CLATTN_STUB_TEXT_H

#include <stddef.h>

enum { STUB_WORD = 64 };

int stub_is_word(int c);
const char *stub_skip_space(const char *c);
/* The word at c, "" if there is none; returns what follows. */
const char *stub_read_word(const char *c, char word[STUB_WORD]);
/* Past the bracket that closes the one at c. */
const char *stub_skip_brackets(const char *c, char open, char close);

typedef struct stub_macro {
  char name[STUB_WORD];
  char *text;
  int is_kernel; /* stands for the word kernel, and what goes with it */
} stub_macro;

typedef struct stub_macros {
  size_t count;
  stub_macro *items;
} stub_macros;

/* Macros of compiler options: "-DNAME=VALUE" and "-DNAME". */
void stub_macros_read_options(stub_macros *macros, const char *options);
/* Reads the rest of a "#define" line and returns its end.  The first definition of a name counts, as behind #ifndef. */
const char *stub_macros_read_define(stub_macros *macros, const char *c);
const stub_macro *stub_macros_find(const stub_macros *macros, const char *name);
void stub_macros_free(stub_macros *macros);

/* The value of an integer expression that ends at `end` (NULL: wherever it stops); 1 if it could be worked out. */
int stub_evaluate(const stub_macros *macros, const char *text, const char *end, long long *value);

int stub_is_kernel_word(const char *word);

#endif
