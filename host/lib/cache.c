/* SPDX-License-Identifier: Apache-2.0 */
#include "cache.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "os_file.h"

static const char magic[8] = {'c', 'l', 'a', 't', 't', 'n', 'C', '1'};
enum { HEAD = 24 /* magic and two lengths */, ENTRY_NAME = CLATTNI_HASH_TEXT + 8 };
/* More than any program takes; what claims to be larger is damaged. */
static const size_t most_bytes = (size_t)1 << 28;

void clattni_cache_log(const clattni_cache *cache, int level, const char *format, ...) {
  char line[1024];
  va_list list;
  if (cache->log == NULL)
    return;
  va_start(list, format);
  vsnprintf(line, sizeof(line), format, list);
  va_end(list);
  cache->log(cache->log_user, level, line);
}

void clattni_cache_init(clattni_cache *cache, const clattn_context_options *options,
                        const clattni_allocator *allocator) {
  const char *why = "";
  memset(cache, 0, sizeof(*cache));
  cache->allocator = allocator;
  if (options == NULL)
    return;
  cache->log = options->log_fn;
  cache->log_user = options->log_user;
  cache->get = options->cache_get;
  cache->put = options->cache_put;
  cache->user = options->cache_user;
  if (options->cache_folder == NULL)
    return;
  cache->folder = clattni_folder_open(options->cache_folder, &why);
  if (cache->folder == NULL)
    clattni_cache_log(cache, CLATTN_LOG_WARNING, "cache: off: folder '%.300s': %s", options->cache_folder, why);
}

void clattni_cache_destroy(clattni_cache *cache) {
  clattni_path_free(cache->folder);
  cache->folder = NULL;
}

int clattni_cache_on(const clattni_cache *cache) {
  return cache->folder != NULL || cache->get != NULL;
}

static void name_of(const char *key, char name[ENTRY_NAME]) {
  clattni_hash hash;
  unsigned char digest[CLATTNI_HASH_BYTES];
  clattni_hash_begin(&hash);
  clattni_hash_add(&hash, key, strlen(key));
  clattni_hash_end(&hash, digest);
  clattni_hash_text(digest, name);
}

static void sum_of(const unsigned char *entry, size_t bytes, unsigned char digest[CLATTNI_HASH_BYTES]) {
  clattni_hash hash;
  clattni_hash_begin(&hash);
  clattni_hash_add(&hash, entry, bytes);
  clattni_hash_end(&hash, digest);
}

static void put_length(unsigned char *to, size_t length) {
  for (int i = 0; i < 8; ++i)
    to[i] = (unsigned char)((uint64_t)length >> (8 * i));
}

static uint64_t get_length(const unsigned char *from) {
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i)
    length = length << 8 | from[i];
  return length;
}

/* At most capacity bytes of an entry; its size, 0 where there is none, or none that may be used: *why, else NULL. */
static size_t read_entry(const clattni_cache *cache, const char *name, void *data, size_t capacity, const char **why) {
  char file[ENTRY_NAME];
  *why = NULL;
  if (cache->get != NULL)
    return cache->get(cache->user, name, data, capacity);
  snprintf(file, sizeof(file), "%.*s.clattn", CLATTNI_HASH_TEXT - 1, name);
  return clattni_file_read(cache->folder, file, data, capacity, why);
}

/* Why an entry is not the key's, or NULL. */
static const char *fault_of(const unsigned char *entry, size_t bytes, const char *key) {
  unsigned char digest[CLATTNI_HASH_BYTES];
  const size_t length = strlen(key);
  if (bytes < HEAD + CLATTNI_HASH_BYTES)
    return "it is too short";
  if (memcmp(entry, magic, sizeof(magic)) != 0)
    return "it is no entry of this format";
  const uint64_t room = bytes - HEAD - CLATTNI_HASH_BYTES, keys = get_length(entry + 8);
  if (keys > room || get_length(entry + 16) != room - keys)
    return "its lengths don't fit";
  sum_of(entry, bytes - CLATTNI_HASH_BYTES, digest);
  if (memcmp(entry + bytes - CLATTNI_HASH_BYTES, digest, sizeof(digest)) != 0)
    return "its checksum is wrong";
  if (keys != length || memcmp(entry + HEAD, key, length) != 0)
    return "it is of another program, device or release";
  return NULL;
}

void *clattni_cache_load(const clattni_cache *cache, const char *key, const unsigned char **payload, size_t *bytes) {
  char name[ENTRY_NAME];
  unsigned char head[HEAD], *entry = NULL;
  const char *fault = NULL, *why = NULL;
  *payload = NULL;
  *bytes = 0;
  if (!clattni_cache_on(cache))
    return NULL;
  name_of(key, name);
  const size_t size = read_entry(cache, name, head, sizeof(head), &fault);
  if (size == 0 && fault == NULL)
    return NULL;
  if (size > most_bytes) {
    fault = "it is too large";
  } else if (fault == NULL) {
    entry = clattni_alloc(cache->allocator, size);
    if (entry == NULL)
      fault = "no host memory for it";
    else if (read_entry(cache, name, entry, size, &why) != size)
      fault = why != NULL ? why : "it changed, or can't be read";
    else
      fault = fault_of(entry, size, key);
  }
  if (fault != NULL) {
    clattni_cache_log(cache, CLATTN_LOG_WARNING, "cache: entry %.16s is not used: %s", name, fault);
    clattni_free(cache->allocator, entry);
    return NULL;
  }
  *bytes = (size_t)get_length(entry + 16);
  *payload = entry + size - CLATTNI_HASH_BYTES - *bytes;
  return entry;
}

void clattni_cache_store(const clattni_cache *cache, const char *key, const void *payload, size_t bytes) {
  char name[ENTRY_NAME], file[ENTRY_NAME];
  const size_t length = strlen(key);
  if (!clattni_cache_on(cache) || bytes > most_bytes - HEAD - CLATTNI_HASH_BYTES - length)
    return;
  const size_t size = HEAD + length + bytes + CLATTNI_HASH_BYTES;
  unsigned char *entry = clattni_alloc(cache->allocator, size);
  int kept = entry != NULL;
  name_of(key, name);
  if (entry != NULL) {
    memcpy(entry, magic, sizeof(magic));
    put_length(entry + 8, length);
    put_length(entry + 16, bytes);
    memcpy(entry + HEAD, key, length + 1); /* what follows takes the place of its 0 */
    memcpy(entry + HEAD + length, payload, bytes);
    sum_of(entry, size - CLATTNI_HASH_BYTES, entry + size - CLATTNI_HASH_BYTES);
    if (cache->put != NULL) {
      cache->put(cache->user, name, entry, size);
    } else {
      snprintf(file, sizeof(file), "%.*s.clattn", CLATTNI_HASH_TEXT - 1, name);
      kept = clattni_file_write(cache->folder, file, entry, size);
    }
    clattni_free(cache->allocator, entry);
  }
  if (kept)
    clattni_cache_log(cache, CLATTN_LOG_INFO, "cache: entry %.16s written, %zu bytes", name, size);
  else
    clattni_cache_log(cache, CLATTN_LOG_WARNING, "cache: entry %.16s can't be written", name);
}

int clattni_cache_begin(const clattni_cache *cache, const char *key, clattni_cache_mark *mark) {
  char hash[ENTRY_NAME];
  mark->name[0] = 0;
  mark->file = -1;
  if (cache->folder == NULL)
    return 0;
  name_of(key, hash);
  snprintf(mark->name, sizeof(mark->name), "%.*s.building", CLATTNI_HASH_TEXT - 1, hash);
  return clattni_mark_set(cache->folder, mark->name, &mark->file) == CLATTNI_MARK_LEFT;
}

void clattni_cache_end(const clattni_cache *cache, clattni_cache_mark *mark) {
  if (mark->file >= 0)
    clattni_mark_clear(cache->folder, mark->name, mark->file);
  mark->file = -1;
}
