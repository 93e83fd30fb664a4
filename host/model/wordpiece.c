/* SPDX-License-Identifier: Apache-2.0 */
#include "wordpiece.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

enum {
  WORD_MOST = 100,    /* characters of a word; max_input_chars_per_word of the reference */
  UTF8_MOST = 4,      /* bytes of a character */
  DECOMPOSED_MOST = 4 /* characters; no canonical decomposition has more */
};

/* A character of the word that is being collected, and the bytes of the text it comes from. */
typedef struct letter {
  utf8proc_int32_t code;
  utf8proc_propval_t order; /* canonical combining class */
  model_span from;
} letter;

typedef struct tokenizer {
  const model_wordpiece *settings;
  const model_vocab *vocab;
  const char *text;
  size_t length;
  model_error *error;
  model_tokens *out;
  letter word[WORD_MOST];
  size_t letters; /* of the word so far; those beyond WORD_MOST are counted alone */
  size_t run;     /* marks to come stay behind the letters before this one */
  model_span from;
} tokenizer;

void model_tokens_free(model_tokens *tokens) {
  if (tokens == NULL)
    return;
  free(tokens->ids);
  free(tokens->spans);
  memset(tokens, 0, sizeof *tokens);
}

static int grow(tokenizer *t) {
  model_tokens *out = t->out;
  const size_t capacity = out->capacity == 0 ? 32 : out->capacity * 2;
  if (capacity > SIZE_MAX / sizeof *out->spans)
    return model_fail(t->error, "the text has too many tokens: no memory for %zu", capacity);
  int32_t *ids = realloc(out->ids, capacity * sizeof *ids);
  if (ids != NULL)
    out->ids = ids;
  model_span *spans = realloc(out->spans, capacity * sizeof *spans);
  if (spans != NULL)
    out->spans = spans;
  if (ids == NULL || spans == NULL)
    return model_fail(t->error, "the text has too many tokens: no memory for %zu", capacity);
  out->capacity = capacity;
  return 0;
}

static int store(tokenizer *t, int32_t id, model_span from) {
  model_tokens *out = t->out;
  if (out->count == out->capacity && grow(t) != 0)
    return -1;
  out->ids[out->count] = id;
  out->spans[out->count++] = from;
  return 0;
}

/* Tokens that find no room are counted alone; the last place is for [SEP]. */
static int add(tokenizer *t, int32_t id, model_span from) {
  const int64_t most = t->settings->max_tokens;
  t->out->untruncated++;
  if (most > 0 && t->out->count >= (uint64_t)most - 1)
    return 0;
  return store(t, id, from);
}

/* ---- words to tokens ---- */

/* The bytes of the text that letters first to last - 1 come from. */
static model_span origin(const tokenizer *t, size_t first, size_t last) {
  model_span all = t->word[first].from;
  for (size_t i = first + 1; i < last; i++) {
    const model_span one = t->word[i].from;
    all.begin = one.begin < all.begin ? one.begin : all.begin;
    all.end = one.end > all.end ? one.end : all.end;
  }
  return all;
}

/* The longest tokens from the left.  Returns their number, 0 when there is a rest that no token begins. */
static size_t cut_word(const tokenizer *t, int32_t ids[WORD_MOST], model_span spans[WORD_MOST]) {
  char bytes[WORD_MOST * UTF8_MOST];
  size_t length = 0, at = 0, first = 0, count = 0;
  size_t ends[WORD_MOST]; /* of each letter in bytes */
  for (size_t i = 0; i < t->letters; i++) {
    length += (size_t)utf8proc_encode_char(t->word[i].code, (utf8proc_uint8_t *)bytes + length);
    ends[i] = length;
  }
  while (at < length) {
    const size_t matched = model_vocab_match(t->vocab, bytes + at, length - at, at > 0, &ids[count]);
    if (matched == 0)
      return 0;
    at += matched;
    size_t last = first;
    while (last < t->letters && ends[last] <= at)
      last++;
    spans[count++] = origin(t, first, last);
    first = last;
  }
  return count;
}

static int end_word(tokenizer *t) {
  int32_t ids[WORD_MOST];
  model_span spans[WORD_MOST];
  const size_t letters = t->letters;
  const size_t count = letters <= WORD_MOST ? cut_word(t, ids, spans) : 0;
  t->letters = t->run = 0;
  if (letters > 0 && count == 0)
    return add(t, model_vocab_special(t->vocab, MODEL_UNK), t->from);
  for (size_t i = 0; i < count; i++) {
    if (add(t, ids[i], spans[i]) != 0)
      return -1;
  }
  return 0;
}

/* ---- characters to words ---- */

/* As BERT has it: in ASCII all that is neither letter nor digit, beyond it Unicode's punctuation. */
static int is_punctuation(utf8proc_int32_t code) {
  if (code < 0x80)
    return (code > 0x20 && code < '0') || (code > '9' && code < 'A') || (code > 'Z' && code < 'a') ||
           (code > 'z' && code < 0x7F);
  const utf8proc_category_t category = utf8proc_category(code);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

static int is_space(utf8proc_int32_t code) {
  const utf8proc_category_t category = utf8proc_category(code);
  return code == '\t' || code == '\n' || code == '\r' ||
         (category >= UTF8PROC_CATEGORY_ZS && category <= UTF8PROC_CATEGORY_ZP);
}

static int is_dropped(utf8proc_int32_t code) {
  const utf8proc_category_t category = utf8proc_category(code);
  return code == 0xFFFD || category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
         category == UTF8PROC_CATEGORY_CO;
}

/* The blocks that the reference lists, which are not all that Unicode has: kana and Hangul stand in words, and of
 * extension E it leaves out the first 256, which stays so, since models were trained with it. */
static int is_chinese(utf8proc_int32_t code) {
  static const utf8proc_int32_t blocks[][2] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
                                               {0x20000, 0x2A6DF}, {0x2A700, 0x2B81F}, {0x2B920, 0x2CEAF},
                                               {0x2F800, 0x2FA1F}};
  for (size_t i = 0; code >= blocks[0][0] && i < sizeof blocks / sizeof blocks[0]; i++) {
    if (code >= blocks[i][0] && code <= blocks[i][1])
      return 1;
  }
  return 0;
}

/* Puts the letter behind those before it, marks in their canonical order. */
static void collect(tokenizer *t, letter next) {
  size_t at = t->letters;
  if (t->letters == 0)
    t->from = next.from;
  t->from.end = next.from.end;
  if (at < WORD_MOST) {
    for (; at > t->run && next.order != 0 && t->word[at - 1].order > next.order; at--)
      t->word[at] = t->word[at - 1];
    t->word[at] = next;
  }
  t->letters++;
}

static int put_letter(tokenizer *t, letter next) {
  const int alone = is_punctuation(next.code);
  if (alone && end_word(t) != 0)
    return -1;
  collect(t, next);
  return alone ? end_word(t) : 0;
}

/* Characters one by one, without the context that a final sigma would need.  U+0130 is the one that becomes two. */
static int put_lower(tokenizer *t, letter next) {
  const utf8proc_int32_t code = next.code;
  if (t->settings->lowercase)
    next.code = utf8proc_tolower(code);
  if (put_letter(t, next) != 0)
    return -1;
  if (!t->settings->lowercase || code != 0x130)
    return 0;
  next.code = 0x307;
  return put_letter(t, next);
}

static int put_decomposed(tokenizer *t, letter next) {
  utf8proc_int32_t parts[DECOMPOSED_MOST];
  int boundary = 0;
  if (!t->settings->strip_accents)
    return put_lower(t, next);
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(next.code, parts, DECOMPOSED_MOST, UTF8PROC_DECOMPOSE, &boundary);
  if (count < 0 || count > DECOMPOSED_MOST)
    return model_fail(t->error, "the text's byte %zu: U+%04X can't be decomposed", next.from.begin + 1,
                      (unsigned)next.code);
  for (utf8proc_ssize_t i = 0; i < count; i++) {
    next.code = parts[i];
    next.order = utf8proc_get_property(next.code)->combining_class;
    if (utf8proc_category(next.code) != UTF8PROC_CATEGORY_MN) {
      if (put_lower(t, next) != 0)
        return -1;
    } else if (next.order == 0) {
      t->run = t->letters;
    }
  }
  return 0;
}

static int put_character(tokenizer *t, utf8proc_int32_t code, model_span from) {
  const letter next = {code, 0, from};
  if (is_space(code))
    return end_word(t);
  if (is_dropped(code))
    return 0;
  const int alone = t->settings->split_chinese && is_chinese(code);
  if (alone && end_word(t) != 0)
    return -1;
  if (put_decomposed(t, next) != 0)
    return -1;
  return alone ? end_word(t) : 0;
}

static int read_text(tokenizer *t) {
  for (size_t at = 0; at < t->length;) {
    int32_t id = 0;
    utf8proc_int32_t code = 0;
    const char *rest = t->text + at;
    const size_t left = t->length - at, special = model_vocab_match_special(t->vocab, rest, left, &id);
    if (special > 0) {
      const model_span from = {at, at + special};
      if (end_word(t) != 0 || add(t, id, from) != 0)
        return -1;
      at += special;
      continue;
    }
    const utf8proc_ssize_t taken =
        utf8proc_iterate((const utf8proc_uint8_t *)rest, left < UTF8_MOST ? (utf8proc_ssize_t)left : UTF8_MOST, &code);
    if (taken <= 0)
      return model_fail(t->error, "the text's byte %zu (0x%02x) is not UTF-8", at + 1, (unsigned)(unsigned char)*rest);
    const model_span from = {at, at + (size_t)taken};
    if (put_character(t, code, from) != 0)
      return -1;
    at += (size_t)taken;
  }
  return end_word(t);
}

int model_tokenize(const model_wordpiece *settings, const model_vocab *vocab, const char *text, size_t length,
                   model_tokens *out, model_error *error) {
  tokenizer t = {.settings = settings, .vocab = vocab, .text = text, .length = length, .error = error, .out = out};
  const model_span begin = {0, 0}, end = {length, length};
  const int64_t most = settings->max_tokens;
  int result = -1;
  memset(out, 0, sizeof *out);
  if (most < 0 || most == 1) {
    model_fail(error, "a limit of %" PRId64 " tokens leaves no room for %s and %s", most,
               model_vocab_text(vocab, model_vocab_special(vocab, MODEL_CLS)),
               model_vocab_text(vocab, model_vocab_special(vocab, MODEL_SEP)));
    goto done;
  }
  if (add(&t, model_vocab_special(vocab, MODEL_CLS), begin) != 0 || read_text(&t) != 0 ||
      store(&t, model_vocab_special(vocab, MODEL_SEP), end) != 0)
    goto done;
  out->untruncated++;
  if (!settings->truncate && out->untruncated > out->count) {
    model_fail(error, "the text has %zu tokens, the model takes %" PRId64 "; --truncate cuts it", out->untruncated,
               most);
    goto done;
  }
  result = 0;
done:
  if (result != 0)
    model_tokens_free(out);
  return result;
}
