/* SPDX-License-Identifier: Apache-2.0 */
/* The disk cache: entries under a key, in a folder or with the caller's functions.  Nothing that is wrong with it is an
 * error: what can't be read is not there, and what can't be written is not kept.
 *
 * An entry: "clattnC1", the bytes of the key and of the payload (8 each, low byte first), key, payload, and SHA-256 of all
 * of these.  Its name is SHA-256 of the key.  The key is compared whole, so an entry is never taken for another's. */
#ifndef CLATTN_CACHE_H
#define CLATTN_CACHE_H

#include "clattn.h"
#include "hash.h"
#include "memory.h"

typedef struct clattni_cache {
  const clattni_allocator *allocator;
  char *folder; /* absolute; NULL: none */
  size_t (*get)(void *user, const char *key, void *data, size_t capacity);
  void (*put)(void *user, const char *key, const void *data, size_t bytes);
  void *user;
  void (*log)(void *user, int level, const char *line);
  void *log_user;
} clattni_cache;

/* Off where the options have no cache, or a folder that can't be used (a warning in the log). */
void clattni_cache_init(clattni_cache *cache, const clattn_context_options *options,
                        const clattni_allocator *allocator);
void clattni_cache_destroy(clattni_cache *cache);
int clattni_cache_on(const clattni_cache *cache);

/* A line in the log, if the caller wants them. */
void clattni_cache_log(const clattni_cache *cache, int level, const char *format, ...);

/* The entry of this key, for clattni_free; its payload lies in it.  NULL: there is none that is whole. */
void *clattni_cache_load(const clattni_cache *cache, const char *key, const unsigned char **payload, size_t *bytes);
void clattni_cache_store(const clattni_cache *cache, const char *key, const void *payload, size_t bytes);

/* Says, until the end, that what has this key is being built or tested.  Returns 1 if a process ended while it was: then
 * there is no end to call.  Only in a folder: the caller's functions can't tell whether a process still runs. */
typedef struct clattni_cache_mark {
  char name[CLATTNI_HASH_TEXT + 16];
  int file; /* below 0: no mark was made */
} clattni_cache_mark;
int clattni_cache_begin(const clattni_cache *cache, const char *key, clattni_cache_mark *mark);
void clattni_cache_end(const clattni_cache *cache, clattni_cache_mark *mark);

#endif
