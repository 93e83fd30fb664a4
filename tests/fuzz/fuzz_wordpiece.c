/* SPDX-License-Identifier: Apache-2.0 */
/* An input is a byte of settings, a vocabulary, a byte 0xff, and a text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "vocab.h"
#include "wordpiece.h"

#define BASE "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"
enum { SPLIT = 0xff };

const char *const fuzz_words[] = {"[SEP]",
                                  "[MASK]",
                                  "[UNK]",
                                  "##",
                                  "\n",
                                  "\r\n",
                                  "\xff",
                                  BASE,
                                  " ",
                                  "\xc2\xa0",
                                  "\xc2\xad",
                                  "\xcc\x81",
                                  "\xcd\x8f",
                                  "e\xcc\x81\xcc\xa3",
                                  "\xc4\xb0",
                                  "\xc3\x9f",
                                  "\xe4\xb8\xad",
                                  "\xea\xb0\x81",
                                  "\xef\xbf\xbd",
                                  "\xef\xbb\xbf",
                                  "\xed\xa0\x80",
                                  "\xc0\x80",
                                  "\xf0\x9d\x85\xad\xf0\x9d\x85\xa5",
                                  "\xf0\x9f\x91\x8b\xf0\x9f\x8f\xbd",
                                  "\xf4\x8f\xbf\xbf",
                                  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                                  NULL};

static const char *const seeds[] = {
    "\x07" BASE "un\n##bel\n##ie\nhello\n,\nworld\n!\nx\xff"
    "Hello, WORLD! unbelie unx",
    "\x3f" BASE "caf\xc3\xa9\ncafe\n##s\n\xe4\xb8\xad\n\xff"
    "Caf\xc3\xa9s cafe\xcc\x81s \xe4\xb8\xad\xe5\x9b\xbd [SEP]a[MASK]",
    "\x50" BASE "a\n##a\nb\r\n##b\n\n\xce\xb1\na\xff"
    "aaab\xce\x91 \xce\xac\xcc\x81\tb [CLS]\xe2\x80\x8d",
    "\x0f" BASE "\xea\xb0\x80\n\xe1\x84\x80\n##\xe1\x85\xa1\ni\n##\xcc\x87\n\xff"
    "\xea\xb0\x80\xea\xb0\x81 \xc4\xb0 \xf0\x9f\x91\x8b\xf0\x9f\x8f\xbd \xef\xbc\xa8",
};

size_t fuzz_seed(size_t n, uint8_t *out, size_t capacity) {
  if (n >= sizeof seeds / sizeof seeds[0])
    return 0;
  const size_t size = strlen(seeds[n]);
  if (size > capacity)
    abort();
  memcpy(out, seeds[n], size);
  return size;
}

static void need(int holds, const char *rule) {
  if (!holds) {
    fprintf(stderr, "broken rule: %s\n", rule);
    abort();
  }
}

/* The table of well-formed sequences in the Unicode standard, chapter 3. */
static int is_utf8(const uint8_t *bytes, size_t count) {
  static const uint8_t rows[][4] = {{0x00, 0x7f, 0, 0},       {0xc2, 0xdf, 0x80, 0xbf}, {0xe0, 0xe0, 0xa0, 0xbf},
                                    {0xe1, 0xec, 0x80, 0xbf}, {0xed, 0xed, 0x80, 0x9f}, {0xee, 0xef, 0x80, 0xbf},
                                    {0xf0, 0xf0, 0x90, 0xbf}, {0xf1, 0xf3, 0x80, 0xbf}, {0xf4, 0xf4, 0x80, 0x8f}};
  for (size_t at = 0; at < count;) {
    const uint8_t first = bytes[at];
    const size_t length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    size_t row = 0;
    while (row < 9 && (first < rows[row][0] || first > rows[row][1]))
      row++;
    if (row == 9 || length > count - at)
      return 0;
    for (size_t i = 1; i < length; i++) {
      if (bytes[at + i] < (i == 1 ? rows[row][2] : 0x80) || bytes[at + i] > (i == 1 ? rows[row][3] : 0xbf))
        return 0;
    }
    at += length;
  }
  return 1;
}

static int begins_character(const char *text, size_t length, size_t at) {
  return at == length || ((unsigned char)text[at] & 0xc0) != 0x80;
}

static void check_tokens(const model_vocab *vocab, const char *text, size_t length, const model_tokens *tokens) {
  const size_t last = tokens->count - 1;
  need(tokens->count >= 2 && tokens->untruncated >= tokens->count, "there are two tokens or more");
  need(tokens->ids[0] == model_vocab_special(vocab, MODEL_CLS), "[CLS] is the first");
  need(tokens->ids[last] == model_vocab_special(vocab, MODEL_SEP), "[SEP] is the last");
  for (size_t i = 0; i < tokens->count; i++) {
    const model_span from = tokens->spans[i];
    need(tokens->ids[i] >= 0 && tokens->ids[i] < model_vocab_count(vocab), "ids are below the count");
    need(from.begin <= from.end && from.end <= length, "spans lie in the text");
    need(begins_character(text, length, from.begin) && begins_character(text, length, from.end),
         "spans begin and end between characters");
    need((i == 0 || i == last) == (from.begin == from.end), "all but the first and the last come from some bytes");
  }
}

static void same_begin(const model_tokens *whole, const model_tokens *cut) {
  for (size_t i = 0; i + 1 < cut->count; i++)
    need(whole->ids[i] == cut->ids[i], "a limit changes nothing before it");
}

static void try_text(const model_vocab *vocab, uint8_t choice, const char *text, size_t length) {
  model_wordpiece how = {choice & 1, choice >> 1 & 1, choice >> 2 & 1, 0, 0};
  model_tokens whole, cut;
  model_error error = {""};
  const int good = model_tokenize(&how, vocab, text, length, &whole, &error) == 0;
  need(good == is_utf8((const uint8_t *)text, length), "a text is refused when it is not UTF-8, and only then");
  if (!good) {
    need(whole.ids == NULL && whole.count == 0 && error.message[0] != 0, "a refusal has a reason and gives nothing");
    return;
  }
  check_tokens(vocab, text, length, &whole);
  need(whole.untruncated == whole.count, "nothing is lost without a limit");
  how.max_tokens = 2 + (choice >> 4);
  how.truncate = choice >> 3 & 1;
  const int fits = whole.count <= (size_t)how.max_tokens;
  const int kept = model_tokenize(&how, vocab, text, length, &cut, &error) == 0;
  need(kept == (fits || how.truncate), "what is too long is cut or refused");
  if (kept) {
    check_tokens(vocab, text, length, &cut);
    need(cut.untruncated == whole.count, "the length without a limit is told");
    need(cut.count == (fits ? whole.count : (size_t)how.max_tokens), "a limit is used up");
    same_begin(&whole, &cut);
  }
  model_tokens_free(&cut);
  model_tokens_free(&whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  model_vocab *vocab = NULL;
  model_error error = {""};
  if (size < 1)
    return 0;
  const char *lines = (const char *)data + 1;
  const char *split = memchr(lines, SPLIT, size - 1);
  const size_t count = split == NULL ? size - 1 : (size_t)(split - lines);
  if (model_vocab_read_memory("input", lines, count, NULL, 64, &vocab, &error) != 0) {
    need(vocab == NULL && strncmp(error.message, "input: ", 7) == 0, "a refusal names the file and gives no handle");
    return 0;
  }
  for (int32_t id = 0; id < model_vocab_count(vocab); id++)
    need(strlen(model_vocab_text(vocab, id)) <= MODEL_VOCAB_LINE_MOST, "a token is a line");
  if (split != NULL)
    try_text(vocab, data[0], split + 1, size - 1 - count - 1);
  model_vocab_free(vocab);
  return 0;
}
