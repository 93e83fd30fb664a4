/* SPDX-License-Identifier: Apache-2.0 */
#include "vocab.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "model_file.h"

typedef struct token {
  size_t start, length; /* in the vocabulary's text */
} token;

typedef struct slot {
  uint32_t hash;
  int32_t id; /* -1: free */
} slot;

struct model_vocab {
  char *text; /* the file, with 0 behind each token */
  token *tokens;
  int32_t count;
  slot *slots; /* by hash, then the next free one; never more than half full */
  size_t mask; /* number of slots - 1; a power of two - 1 */
  size_t longest;
  int32_t specials[MODEL_SPECIALS];
};

static const char prefix[] = "##";
enum { PREFIX = sizeof prefix - 1 };

/* FNV-1a: byte by byte, so that one walk over a text gives the hashes of all its prefixes. */
static uint64_t hash_begin(void) {
  return UINT64_C(14695981039346656037);
}

static uint64_t hash_step(uint64_t hash, char byte) {
  return (hash ^ (unsigned char)byte) * UINT64_C(1099511628211);
}

static uint64_t hash_bytes(uint64_t hash, const char *text, size_t length) {
  for (size_t i = 0; i < length; i++)
    hash = hash_step(hash, text[i]);
  return hash;
}

static uint32_t hash_end(uint64_t hash) {
  return (uint32_t)(hash ^ hash >> 32);
}

/* The slot of the token `before` + text, or the free one where it belongs. */
static slot *find_slot(const model_vocab *vocab, uint32_t hash, size_t before, const char *text, size_t length) {
  for (size_t at = hash & vocab->mask;; at = (at + 1) & vocab->mask) {
    slot *found = &vocab->slots[at];
    if (found->id < 0)
      return found;
    const token *other = &vocab->tokens[found->id];
    const char *other_text = vocab->text + other->start;
    if (found->hash == hash && other->length == before + length && memcmp(other_text, prefix, before) == 0 &&
        memcmp(other_text + before, text, length) == 0)
      return found;
  }
}

size_t model_vocab_match(const model_vocab *vocab, const char *text, size_t length, int continued, int32_t *id) {
  const size_t before = continued ? PREFIX : 0;
  uint64_t hash = hash_bytes(hash_begin(), prefix, before);
  size_t matched = 0;
  for (size_t n = 1; n <= length && before + n <= vocab->longest; n++) {
    hash = hash_step(hash, text[n - 1]);
    const uint32_t whole = hash_end(hash);
    const slot *found = find_slot(vocab, whole, before, text, n);
    if (found->id >= 0) {
      *id = found->id;
      matched = n;
    }
  }
  return matched;
}

static int32_t find_token(const model_vocab *vocab, const char *text) {
  const size_t length = strlen(text);
  return find_slot(vocab, hash_end(hash_bytes(hash_begin(), text, length)), 0, text, length)->id;
}

size_t model_vocab_match_special(const model_vocab *vocab, const char *text, size_t length, int32_t *id) {
  size_t matched = 0;
  for (int i = 0; i < MODEL_SPECIALS; i++) {
    if (vocab->specials[i] < 0)
      continue;
    const token *special = &vocab->tokens[vocab->specials[i]];
    if (special->length > matched && special->length <= length &&
        memcmp(vocab->text + special->start, text, special->length) == 0) {
      *id = vocab->specials[i];
      matched = special->length;
    }
  }
  return matched;
}

int32_t model_vocab_count(const model_vocab *vocab) {
  return vocab->count;
}

const char *model_vocab_text(const model_vocab *vocab, int32_t id) {
  return id < 0 || id >= vocab->count ? NULL : vocab->text + vocab->tokens[id].start;
}

int32_t model_vocab_special(const model_vocab *vocab, model_special special) {
  return vocab->specials[special];
}

void model_vocab_free(model_vocab *vocab) {
  if (vocab == NULL)
    return;
  free(vocab->slots);
  free(vocab->tokens);
  free(vocab->text);
  free(vocab);
}

/* ---- reading ---- */

/* What messages name, and the bytes. */
typedef struct source {
  const char *name;
  const char *text;
  size_t count;
  model_error *error;
} source;

/* The line's length without LF or CRLF; *next is behind them. */
static size_t line_length(const source *from, size_t start, size_t *next) {
  const char *line = from->text + start;
  const size_t left = from->count - start;
  const char *end = memchr(line, '\n', left);
  const size_t length = end == NULL ? left : (size_t)(end - line);
  *next = start + length + (end != NULL);
  return length > 0 && line[length - 1] == '\r' ? length - 1 : length;
}

static int check_line(const source *from, int64_t number, size_t start, size_t length) {
  const model_shown name = model_show_path(from->name);
  const char *line = from->text + start;
  if (length > MODEL_VOCAB_LINE_MOST)
    return model_fail(from->error, "%s: line %" PRId64 " has %zu bytes; a token has %d at most", name.text, number,
                      length, MODEL_VOCAB_LINE_MOST);
  for (size_t at = 0; at < length;) {
    utf8proc_int32_t character = 0;
    const utf8proc_ssize_t taken =
        utf8proc_iterate((const utf8proc_uint8_t *)line + at, (utf8proc_ssize_t)(length - at), &character);
    if (taken <= 0)
      return model_fail(from->error, "%s: line %" PRId64 ", byte %zu (0x%02x) is not UTF-8", name.text, number, at + 1,
                        (unsigned)(unsigned char)line[at]);
    if (character == 0)
      return model_fail(from->error, "%s: line %" PRId64 ", byte %zu is 0", name.text, number, at + 1);
    if (character == 0xFEFF && number == 1 && at == 0)
      return model_fail(from->error, "%s: begins with a byte order mark", name.text);
    at += (size_t)taken;
  }
  return 0;
}

/* All lines are sound and no more than the model has rows for. */
static int check_text(const source *from, int64_t most, int64_t *lines) {
  int64_t count = 0;
  if (from->count == 0) {
    model_fail(from->error, "%s: is empty (0 bytes)", model_show_path(from->name).text);
    return -1;
  }
  for (size_t at = 0; at < from->count;) {
    size_t next = 0;
    const size_t length = line_length(from, at, &next);
    if (check_line(from, ++count, at, length) != 0)
      return -1;
    at = next;
  }
  if (count > most) {
    model_fail(from->error, "%s: has %" PRId64 " tokens, the model's vocab_size is %" PRId64,
               model_show_path(from->name).text, count, most);
    return -1;
  }
  *lines = count;
  return 0;
}

static int allocate(const source *from, int64_t lines, model_vocab *vocab) {
  size_t slots = 1;
  while (slots < 2 * (size_t)lines)
    slots *= 2;
  vocab->mask = slots - 1;
  vocab->text = malloc(from->count + 1);
  vocab->tokens = calloc((size_t)lines, sizeof *vocab->tokens);
  vocab->slots = calloc(slots, sizeof *vocab->slots);
  if (vocab->text == NULL || vocab->tokens == NULL || vocab->slots == NULL) {
    model_fail(from->error, "%s: no memory for %" PRId64 " tokens", model_show_path(from->name).text, lines);
    return -1;
  }
  memcpy(vocab->text, from->text, from->count);
  vocab->text[from->count] = 0;
  for (size_t i = 0; i < slots; i++)
    vocab->slots[i].id = -1;
  return 0;
}

static void index_lines(const source *from, model_vocab *vocab) {
  for (size_t at = 0; at < from->count;) {
    size_t next = 0;
    const size_t length = line_length(from, at, &next);
    vocab->text[at + length] = 0;
    const token read = {at, length};
    vocab->tokens[vocab->count] = read;
    const uint32_t hash = hash_end(hash_bytes(hash_begin(), vocab->text + at, length));
    slot *place = find_slot(vocab, hash, 0, vocab->text + at, length);
    place->hash = hash;
    place->id = vocab->count++;
    if (length > vocab->longest)
      vocab->longest = length;
    at = next;
  }
}

static int find_specials(const source *from, const model_specials *specials, model_vocab *vocab) {
  const char *names[MODEL_SPECIALS] = {"[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"};
  if (specials != NULL) {
    names[MODEL_UNK] = specials->unk;
    names[MODEL_CLS] = specials->cls;
    names[MODEL_SEP] = specials->sep;
    names[MODEL_PAD] = specials->pad;
    names[MODEL_MASK] = specials->mask;
  }
  for (int i = 0; i < MODEL_SPECIALS; i++) {
    /* A blank line is a token that nothing may find. */
    vocab->specials[i] = names[i] == NULL || names[i][0] == 0 ? -1 : find_token(vocab, names[i]);
    if (vocab->specials[i] < 0 && i != MODEL_MASK)
      return model_fail(from->error, "%s: has no token '%s'", model_show_path(from->name).text,
                        names[i] == NULL ? "" : model_show(names[i]).text);
  }
  return 0;
}

int model_vocab_read_memory(const char *name, const void *bytes, size_t count, const model_specials *specials,
                            int64_t vocab_size, model_vocab **out, model_error *error) {
  const source from = {name, bytes, count, error};
  int64_t lines = 0;
  int result = -1;
  *out = NULL;
  model_vocab *vocab = calloc(1, sizeof *vocab);
  if (vocab == NULL) {
    model_fail(error, "%s: no memory for a vocabulary", model_show_path(name).text);
    goto done;
  }
  if (check_text(&from, vocab_size < INT32_MAX ? vocab_size : INT32_MAX, &lines) != 0 ||
      allocate(&from, lines, vocab) != 0)
    goto done;
  index_lines(&from, vocab);
  if (find_specials(&from, specials, vocab) != 0)
    goto done;
  *out = vocab;
  vocab = NULL;
  result = 0;
done:
  model_vocab_free(vocab);
  return result;
}

int model_vocab_read(const char *path, const model_specials *specials, int64_t vocab_size, model_vocab **out,
                     model_error *error) {
  model_file file;
  *out = NULL;
  if (model_file_map(path, 0, &file, error) != 0)
    return -1;
  const int result = model_vocab_read_memory(path, file.bytes, file.count, specials, vocab_size, out, error);
  model_file_unmap(&file);
  return result;
}
