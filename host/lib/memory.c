/* SPDX-License-Identifier: Apache-2.0 */
#include "memory.h"

#include <stdlib.h>
#include <string.h>

void *clattni_alloc(const clattni_allocator *allocator, size_t bytes) {
  void *memory = allocator->alloc != NULL ? allocator->alloc(allocator->user, bytes) : malloc(bytes);
  if (memory != NULL)
    memset(memory, 0, bytes);
  return memory;
}

void clattni_free(const clattni_allocator *allocator, void *memory) {
  if (memory == NULL)
    return;
  if (allocator->alloc != NULL)
    allocator->free(allocator->user, memory);
  else
    free(memory);
}

char *clattni_copy_text(const clattni_allocator *allocator, const char *text, size_t length) {
  char *copy = clattni_alloc(allocator, length + 1);
  if (copy != NULL)
    memcpy(copy, text, length);
  return copy;
}
