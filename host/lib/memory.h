/* SPDX-License-Identifier: Apache-2.0 */
/* The caller's allocator, or malloc. */
#ifndef CLATTN_MEMORY_H
#define CLATTN_MEMORY_H

#include <stddef.h>

typedef struct clattni_allocator {
  void *(*alloc)(void *user, size_t bytes); /* NULL: malloc and free */
  void (*free)(void *user, void *memory);
  void *user;
} clattni_allocator;

/* Zeroed memory, or NULL. */
void *clattni_alloc(const clattni_allocator *allocator, size_t bytes);
/* NULL is accepted. */
void clattni_free(const clattni_allocator *allocator, void *memory);
/* A copy of a string (length bytes and a 0), or NULL. */
char *clattni_copy_text(const clattni_allocator *allocator, const char *text, size_t length);

#endif
