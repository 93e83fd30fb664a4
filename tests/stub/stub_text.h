/* SPDX-License-Identifier: Apache-2.0 */
/* Reading OpenCL C text without a compiler: words, integer expressions, and a preprocessor that knows no include. */
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

/* The value of an integer expression that ends at `end` (NULL: wherever it stops); 1 if it could be worked out.  Words
 * are 0, as in a condition of the preprocessor, or can't be worked out. */
int stub_evaluate(const char *text, const char *end, int words_are_zero, long long *value);

/* The text with macros (also those of compiler options, "-DNAME=VALUE" and "-DNAME") replaced, comments and directives
 * gone, and what conditions leave out; to be freed.  NULL: out of memory. */
char *stub_preprocess(const char *source, const char *options);

#endif
