/* SPDX-License-Identifier: Apache-2.0 */
/* host/model/vocab.c and wordpiece.c: the ids of the reference for every string of data/wordpiece, refusals by name,
 * limits, and texts long enough to show a quadratic step. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "vocab.h"
#include "wordpiece.h"

static model_vocab *minilm;
static model_error error;
static const model_wordpiece uncased = {1, 1, 1, 0, 0};

static int start(void **state) {
  (void)state;
  return model_vocab_read(CLATTN_TEST_DATA "/minilm/vocab.txt", NULL, 30522, &minilm, &error);
}

static int finish(void **state) {
  (void)state;
  model_vocab_free(minilm);
  model_vocab_free(NULL);
  return 0;
}

static model_tokens cut(const model_wordpiece *settings, const model_vocab *vocab, const char *text, size_t length) {
  model_tokens tokens;
  error.message[0] = 0;
  if (model_tokenize(settings, vocab, text, length, &tokens, &error) != 0)
    fail_msg("refused: %s", error.message);
  return tokens;
}

static void same_ids(const char *what, const model_tokens *tokens, const int32_t *want, size_t count) {
  for (size_t i = 0; i < tokens->count && i < count; i++) {
    if (tokens->ids[i] != want[i])
      fail_msg("%s: id %zu is %d, not %d", what, i, (int)tokens->ids[i], (int)want[i]);
  }
  if (tokens->count != count)
    fail_msg("%s: %zu ids, not %zu", what, tokens->count, count);
}

/* ---- the reference's ids ---- */

static const struct {
  const char *name;
  model_wordpiece settings;
} settings[] = {{"uncased", {1, 1, 1, 0, 0}},
                {"cased", {0, 0, 1, 0, 0}},
                {"lower", {1, 0, 1, 0, 0}},
                {"strip", {0, 1, 1, 0, 0}},
                {"whole", {1, 1, 0, 0, 0}}};
enum { SETTINGS = sizeof settings / sizeof settings[0], IDS_MOST = 2048, TEXT_MOST = 4096 };

static cJSON *read_json(const char *path) {
  static char text[1 << 20];
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  const size_t length = fread(text, 1, sizeof text, file);
  assert_true(length < sizeof text);
  fclose(file);
  cJSON *json = cJSON_ParseWithLength(text, length);
  assert_non_null(json);
  return json;
}

static const cJSON *item(const cJSON *object, const char *name) {
  const cJSON *found = cJSON_GetObjectItemCaseSensitive(object, name);
  if (found == NULL)
    fail_msg("golden.json: no '%s'", name);
  return found;
}

static size_t read_hex(const char *hex, char *out) {
  size_t length = 0;
  for (; hex[0] != 0; hex += 2) {
    const char pair[3] = {hex[0], hex[1], 0};
    assert_true(length < TEXT_MOST);
    out[length++] = (char)strtoul(pair, NULL, 16);
  }
  return length;
}

static size_t read_ids(const cJSON *array, int32_t *out) {
  const cJSON *id = NULL;
  size_t count = 0;
  cJSON_ArrayForEach(id, array) {
    assert_true(count < IDS_MOST);
    out[count++] = id->valueint;
  }
  return count;
}

static void same_spans(const char *name, const model_tokens *tokens, const cJSON *spans, size_t length) {
  size_t i = 1;
  const cJSON *pair = NULL;
  assert_int_equal(cJSON_GetArraySize(spans), tokens->count - 2);
  cJSON_ArrayForEach(pair, spans) {
    const size_t begin = (size_t)cJSON_GetArrayItem(pair, 0)->valueint;
    const size_t end = (size_t)cJSON_GetArrayItem(pair, 1)->valueint;
    if (tokens->spans[i].begin != begin || tokens->spans[i].end != end)
      fail_msg("%s: token %zu comes from %zu to %zu, not %zu to %zu", name, i, tokens->spans[i].begin,
               tokens->spans[i].end, begin, end);
    i++;
  }
  assert_true(tokens->spans[0].begin == 0 && tokens->spans[0].end == 0);
  assert_true(tokens->spans[i].begin == length && tokens->spans[i].end == length);
}

static void golden_case(const cJSON *one) {
  static char text[TEXT_MOST];
  static int32_t want[IDS_MOST], reference[IDS_MOST];
  const char *name = item(one, "name")->valuestring;
  const size_t length = read_hex(item(one, "utf8")->valuestring, text);
  const cJSON *newer = cJSON_GetObjectItemCaseSensitive(one, "reference");
  int differ = 0;
  for (size_t i = 0; i < SETTINGS; i++) {
    char what[128];
    const size_t count = read_ids(item(item(one, "ids"), settings[i].name), want);
    model_tokens tokens = cut(&settings[i].settings, minilm, text, length);
    snprintf(what, sizeof what, "%s, %s", name, settings[i].name);
    same_ids(what, &tokens, want, count);
    assert_int_equal(tokens.untruncated, tokens.count);
    if (newer != NULL) {
      const size_t others = read_ids(item(newer, settings[i].name), reference);
      differ |= others != count || memcmp(reference, want, count * sizeof *want) != 0;
    } else if (i == 0) {
      same_spans(name, &tokens, item(one, "spans"), length);
    }
    model_tokens_free(&tokens);
  }
  if (newer != NULL && !differ)
    fail_msg("%s: is said to differ from the reference, and doesn't", name);
}

/* Where a case has "reference", the ids are not the reference's: its Unicode tables are older, as "why" says. */
static void golden(void **state) {
  (void)state;
  cJSON *json = read_json(CLATTN_TEST_DATA "/wordpiece/golden.json");
  const cJSON *one = NULL;
  size_t cases = 0, newer = 0;
  cJSON_ArrayForEach(one, item(json, "cases")) {
    golden_case(one);
    cases++;
    newer += cJSON_HasObjectItem(one, "reference") != 0;
  }
  print_message("%zu strings under %d settings; %zu have characters that are newer than the reference's tables\n",
                cases, SETTINGS, newer);
  assert_true(cases - newer >= 250);
  cJSON_Delete(json);
}

static void texts_of_tokens(void **state) {
  (void)state;
  static const char *const want[] = {"[CLS]", "em", "##bed", "##ding", "##s", "[UNK]", "!", "[SEP]"};
  const char text[] = "Embeddings \xe0\xba\x81!";
  model_tokens tokens = cut(&uncased, minilm, text, sizeof text - 1);
  assert_int_equal(tokens.count, 8);
  for (size_t i = 0; i < 8; i++)
    assert_string_equal(model_vocab_text(minilm, tokens.ids[i]), want[i]);
  assert_int_equal(tokens.spans[1].end, 2);
  assert_int_equal(tokens.spans[2].begin, 2);
  assert_int_equal(tokens.spans[5].begin, 11);
  assert_int_equal(tokens.spans[5].end, 14);
  model_tokens_free(&tokens);
  assert_null(tokens.ids);
  model_tokens_free(&tokens);
  model_tokens_free(NULL);
}

/* ---- vocabularies ---- */

#define BASE "[PAD]\n[UNK]\n[CLS]\n[SEP]\n"

static model_vocab *make(const char *text, const model_specials *specials) {
  model_vocab *vocab = NULL;
  if (model_vocab_read_memory("v.txt", text, strlen(text), specials, 1000, &vocab, &error) != 0)
    fail_msg("refused: %s", error.message);
  return vocab;
}

static void refuse_vocab(const char *bytes, size_t count, int64_t vocab_size, const char *message) {
  model_vocab *vocab = minilm;
  error.message[0] = 0;
  if (model_vocab_read_memory("v.txt", bytes, count, NULL, vocab_size, &vocab, &error) == 0)
    fail_msg("read; expected: %s", message);
  assert_string_equal(error.message, message);
  assert_null(vocab);
  assert_int_equal(model_vocab_read_memory("v.txt", bytes, count, NULL, vocab_size, &vocab, NULL), -1);
}

static void broken_vocabularies(void **state) {
  (void)state;
  static const struct {
    const char *text, *message;
  } cases[] = {
      {"[PAD]\n[CLS]\n[SEP]\n[MASK]\n", "v.txt: has no token '[UNK]'"},
      {"[PAD]\n[UNK]\n[SEP]\n[MASK]\n", "v.txt: has no token '[CLS]'"},
      {"[PAD]\n[UNK]\n[CLS]\n[MASK]\n", "v.txt: has no token '[SEP]'"},
      {"[UNK]\n[CLS]\n[SEP]\n[MASK]\n", "v.txt: has no token '[PAD]'"},
      {"[PAD] \n[UNK]\n[CLS]\n[SEP]\n", "v.txt: has no token '[PAD]'"},
      {"\n", "v.txt: has no token '[UNK]'"},
      {"{\"[UNK]\": 0}", "v.txt: has no token '[UNK]'"},
      {BASE "a\nb\xff\n", "v.txt: line 6, byte 2 (0xff) is not UTF-8"},
      {BASE "a\xc3\n\xa9\n", "v.txt: line 5, byte 2 (0xc3) is not UTF-8"},
      {BASE "\xc0\x80", "v.txt: line 5, byte 1 (0xc0) is not UTF-8"},
      {BASE "\xed\xa0\x80", "v.txt: line 5, byte 1 (0xed) is not UTF-8"},
      {"\xef\xbb\xbf" BASE, "v.txt: begins with a byte order mark"},
      {BASE "a\nb\nc\nd\ne\nf\ng", "v.txt: has 11 tokens, the model's vocab_size is 10"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    refuse_vocab(cases[i].text, strlen(cases[i].text), 10, cases[i].message);
  refuse_vocab("", 0, 10, "v.txt: is empty (0 bytes)");
  refuse_vocab(BASE "a\0b\n", sizeof BASE - 1 + 4, 10, "v.txt: line 5, byte 2 is 0");
}

/* A line of 1024 bytes is a token, one of 1025 is not; CR and LF don't count. */
static void long_lines(void **state) {
  (void)state;
  char text[2000] = BASE;
  for (size_t ends = 0; ends < 3; ends++) {
    model_vocab *vocab = NULL;
    char *line = text + sizeof BASE - 1;
    memset(line, 'x', MODEL_VOCAB_LINE_MOST);
    snprintf(line + MODEL_VOCAB_LINE_MOST, 3, "%s", ends == 0 ? "" : ends == 1 ? "\n" : "\r\n");
    vocab = make(text, NULL);
    assert_int_equal(model_vocab_count(vocab), 5);
    assert_int_equal(strlen(model_vocab_text(vocab, 4)), MODEL_VOCAB_LINE_MOST);
    model_vocab_free(vocab);
    memmove(line + 1, line, strlen(line) + 1);
    refuse_vocab(text, strlen(text), 10, "v.txt: line 5 has 1025 bytes; a token has 1024 at most");
  }
}

static void lines_and_ids(void **state) {
  (void)state;
  static const char *const texts[] = {"[PAD]\n[UNK]\n[CLS]\n[SEP]\nab\n\n##ab\na",
                                      "[PAD]\n[UNK]\n[CLS]\n[SEP]\nab\n\n##ab\na\n",
                                      "[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\nab\r\n\r\n##ab\r\na\r\n",
                                      "[PAD]\r\n[UNK]\n[CLS]\r\n[SEP]\nab\n\r\n##ab\na\r"};
  static const int32_t want[] = {2, 4, 7, 4, 6, 1, 3};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    model_vocab *vocab = make(texts[i], NULL);
    assert_int_equal(model_vocab_count(vocab), 8);
    assert_string_equal(model_vocab_text(vocab, 0), "[PAD]");
    assert_string_equal(model_vocab_text(vocab, 5), "");
    assert_string_equal(model_vocab_text(vocab, 6), "##ab");
    assert_null(model_vocab_text(vocab, 8));
    assert_null(model_vocab_text(vocab, -1));
    assert_int_equal(model_vocab_special(vocab, MODEL_UNK), 1);
    assert_int_equal(model_vocab_special(vocab, MODEL_PAD), 0);
    assert_int_equal(model_vocab_special(vocab, MODEL_MASK), -1);
    model_tokens tokens = cut(&uncased, vocab, "ab a abab aba", 13);
    same_ids(texts[i], &tokens, want, 7);
    model_tokens_free(&tokens);
    model_vocab_free(vocab);
  }
}

/* The last of several equal lines gives the id. */
static void equal_lines(void **state) {
  (void)state;
  static const int32_t want[] = {2, 6, 3};
  model_vocab *vocab = make(BASE "a\nb\na\n", NULL);
  model_tokens tokens = cut(&uncased, vocab, "a", 1);
  assert_int_equal(model_vocab_count(vocab), 7);
  same_ids("twice", &tokens, want, 3);
  model_tokens_free(&tokens);
  model_vocab_free(vocab);
}

static void other_specials(void **state) {
  (void)state;
  const model_specials names = {"<unk>", "<s>", "</s>", "<pad>", "<mask>"},
                       none = {"<unk>", "<s>", "</s>", "<pad>", ""};
  const model_specials missing = {"<unk>", NULL, "</s>", "<pad>", NULL};
  static const char text[] = "<pad>\n<s>\n</s>\n<unk>\n<mask>\n<s\n<\ns\n>\n";
  static const int32_t want[] = {1, 4, 6, 7, 2, 0, 2}, without[] = {1, 6, 3, 8, 6, 7, 2, 0, 2};
  model_vocab *vocab = make(text, &names);
  model_tokens tokens = cut(&uncased, vocab, "<mask><s</s><pad>", 17);
  same_ids("names", &tokens, want, 7);
  model_tokens_free(&tokens);
  model_vocab_free(vocab);
  vocab = make(text, &none);
  tokens = cut(&uncased, vocab, "<mask><s</s><pad>", 17);
  same_ids("no mask", &tokens, without, 9);
  model_tokens_free(&tokens);
  model_vocab_free(vocab);
  assert_int_equal(model_vocab_read_memory("v.txt", text, strlen(text), &missing, 99, &vocab, &error), -1);
  assert_string_equal(error.message, "v.txt: has no token ''");
}

/* Of special tokens that begin alike the longest is taken. */
static void longest_special(void **state) {
  (void)state;
  const model_specials names = {"<u", "<u>", "<u>x", "<p", "<u>xyz"};
  model_vocab *vocab = make("<p\n<u\n<u>\n<u>x\n<u>xyz\ny\n", &names);
  static const int32_t want[] = {2, 4, 3, 5, 2, 1, 3};
  model_tokens tokens = cut(&uncased, vocab, "<u>xyz<u>xy<u><u", 16);
  same_ids("longest", &tokens, want, 7);
  model_tokens_free(&tokens);
  model_vocab_free(vocab);
}

static void files(void **state) {
  (void)state;
  char folder[] = "/tmp/clattn-vocab-XXXXXX", path[64];
  model_vocab *vocab = NULL;
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/vocab.txt", folder);
  assert_int_equal(model_vocab_read(path, NULL, 10, &vocab, &error), -1);
  assert_non_null(strstr(error.message, "vocab.txt: can't be opened"));
  assert_int_equal(model_vocab_read(folder, NULL, 10, &vocab, &error), -1);
  assert_non_null(strstr(error.message, "is not a regular file"));
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fclose(file), 0);
  assert_int_equal(model_vocab_read(path, NULL, 10, &vocab, &error), -1);
  assert_non_null(strstr(error.message, "vocab.txt: is empty (0 bytes)"));
  assert_null(vocab);
  file = fopen(path, "wb");
  assert_non_null(file);
  assert_true(fputs(BASE "a", file) >= 0);
  assert_int_equal(fclose(file), 0);
  assert_int_equal(model_vocab_read(path, NULL, 5, &vocab, &error), 0);
  assert_string_equal(model_vocab_text(vocab, 4), "a");
  model_vocab_free(vocab);
  assert_int_equal(model_vocab_read(path, NULL, 4, &vocab, &error), -1);
  assert_non_null(strstr(error.message, "has 5 tokens, the model's vocab_size is 4"));
  unlink(path);
  rmdir(folder);
}

/* ---- texts ---- */

static void refuse_text(const model_wordpiece *how, const char *text, size_t length, const char *message) {
  model_tokens tokens = {1, 1, NULL, NULL, 1};
  error.message[0] = 0;
  if (model_tokenize(how, minilm, text, length, &tokens, &error) == 0)
    fail_msg("cut; expected: %s", message);
  assert_string_equal(error.message, message);
  assert_null(tokens.ids);
  assert_null(tokens.spans);
  assert_int_equal(tokens.count, 0);
  assert_int_equal(model_tokenize(how, minilm, text, length, &tokens, NULL), -1);
}

static void not_utf8(void **state) {
  (void)state;
  static const struct {
    const char *text, *message;
  } cases[] = {
      {"\xff", "the text's byte 1 (0xff) is not UTF-8"},
      {"abc\x80", "the text's byte 4 (0x80) is not UTF-8"},
      {"caf\xe9 au lait", "the text's byte 4 (0xe9) is not UTF-8"}, /* Latin-1 */
      {"a \xc3", "the text's byte 3 (0xc3) is not UTF-8"},
      {"\xe4\xb8", "the text's byte 1 (0xe4) is not UTF-8"},
      {"ab\xf0\x9f\x98", "the text's byte 3 (0xf0) is not UTF-8"},
      {"\xc0\xaf", "the text's byte 1 (0xc0) is not UTF-8"},                 /* a long form of '/' */
      {"\xe0\x80\xaf", "the text's byte 1 (0xe0) is not UTF-8"},             /* a longer one */
      {"\xf0\x80\x80\xaf", "the text's byte 1 (0xf0) is not UTF-8"},         /* and longer */
      {"\xed\xa0\xbd\xed\xb8\x80", "the text's byte 1 (0xed) is not UTF-8"}, /* surrogates */
      {"\xf4\x90\x80\x80", "the text's byte 1 (0xf4) is not UTF-8"},         /* above U+10FFFF */
      {"\xf8\x88\x80\x80\x80", "the text's byte 1 (0xf8) is not UTF-8"},
      {"\xc3\xa9\xc3(", "the text's byte 3 (0xc3) is not UTF-8"},
      {"[SEP]\xbf", "the text's byte 6 (0xbf) is not UTF-8"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    refuse_text(&uncased, cases[i].text, strlen(cases[i].text), cases[i].message);
  /* The bytes behind the text are none of its business. */
  refuse_text(&uncased, "\xe4\xb8\xad", 2, "the text's byte 1 (0xe4) is not UTF-8");
  /* What is cut off must be text, too. */
  const model_wordpiece short_one = {1, 1, 1, 3, 1};
  refuse_text(&short_one, "one two three\xff", 14, "the text's byte 14 (0xff) is not UTF-8");
}

static void limits(void **state) {
  (void)state;
  static const int32_t want[] = {101, 2028, 2048, 2093, 102};
  static const char text[] = "one two three";
  for (int64_t most = 2; most <= 6; most++) {
    model_wordpiece how = {1, 1, 1, most, 1};
    int32_t kept[5];
    const size_t count = most < 5 ? (size_t)most : 5;
    memcpy(kept, want, sizeof kept);
    kept[count - 1] = 102;
    model_tokens tokens = cut(&how, minilm, text, sizeof text - 1);
    same_ids("cut", &tokens, kept, count);
    assert_int_equal(tokens.untruncated, 5);
    assert_int_equal(tokens.spans[count - 1].begin, sizeof text - 1);
    model_tokens_free(&tokens);
    how.truncate = 0;
    if (most < 5) {
      char message[100];
      snprintf(message, sizeof message, "the text has 5 tokens, the model takes %d; --truncate cuts it", (int)most);
      refuse_text(&how, text, sizeof text - 1, message);
    } else {
      tokens = cut(&how, minilm, text, sizeof text - 1);
      same_ids("whole", &tokens, want, 5);
      model_tokens_free(&tokens);
    }
  }
  for (int64_t most = -1; most <= 1; most += 2) {
    const model_wordpiece how = {1, 1, 1, most, 1};
    refuse_text(&how, text, sizeof text - 1,
                most < 0 ? "a limit of -1 tokens leaves no room for [CLS] and [SEP]"
                         : "a limit of 1 tokens leaves no room for [CLS] and [SEP]");
  }
}

/* A limit in the middle of a word keeps the word's first pieces. */
static void limit_within_a_word(void **state) {
  (void)state;
  static const int32_t want[] = {101, 4895, 8671, 102};
  const model_wordpiece how = {1, 1, 1, 4, 1};
  model_tokens tokens = cut(&how, minilm, "unbelievably", 12);
  same_ids("pieces", &tokens, want, 4);
  assert_int_equal(tokens.untruncated, 7);
  model_tokens_free(&tokens);
}

/* Marks that stay stand in canonical order, U+1D165 (class 216) before U+1D16D (226), equal classes as they come; a
 * mark of class 0 that goes, such as U+034F, still separates. */
static void order_of_marks(void **state) {
  (void)state;
#define STEM "\xf0\x9d\x85\xa5"
#define LATER "\xf0\x9d\x85\xa6" /* U+1D166, 216 */
#define DOT "\xf0\x9d\x85\xad"
  static const char lines[] = BASE "a" STEM DOT "\na" DOT STEM "\na" LATER STEM "\n";
  static const struct {
    const char *text;
    int32_t id;
  } cases[] = {{"a" STEM DOT, 4},
               {"a" DOT STEM, 4},
               {"A\xcc\x81" DOT "\xcc\xa3" STEM, 4},
               {"a" DOT "\xcd\x8f" STEM, 5},
               {"a" LATER STEM, 6},
               {"\xc3\xa1" DOT "\xc2\xad" STEM, 4}};
  model_vocab *vocab = make(lines, NULL);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const int32_t want[] = {2, cases[i].id, 3};
    const size_t length = strlen(cases[i].text);
    model_tokens tokens = cut(&uncased, vocab, cases[i].text, length);
    same_ids(cases[i].text, &tokens, want, 3);
    assert_int_equal(tokens.spans[1].begin, 0);
    assert_int_equal(tokens.spans[1].end, length);
    model_tokens_free(&tokens);
  }
  /* What separates in one word has no say in the next. */
  const int32_t two[] = {2, 1, 4, 3};
  model_tokens words = cut(&uncased, vocab, "bbb\xcd\x8f a" DOT STEM, 15);
  same_ids("two words", &words, two, 4);
  model_tokens_free(&words);
  /* Without decomposition they stay as they are. */
  const model_wordpiece cased = {0, 0, 1, 0, 0};
  const int32_t want[] = {2, 5, 3};
  model_tokens tokens = cut(&cased, vocab, "a" DOT STEM, 9);
  same_ids("as it is", &tokens, want, 3);
  model_tokens_free(&tokens);
  model_vocab_free(vocab);
}

/* `unit` so often that the text has a megabyte, and more tokens than any limit of ours: quadratic steps would take
 * hours here. */
static void repeat(const char *prefix, const char *unit, size_t per_unit, int32_t id) {
  const size_t length = strlen(unit), before = strlen(prefix), times = 1000000 / length;
  char *text = malloc(before + times * length);
  assert_non_null(text);
  for (size_t i = 0; i < before; i++)
    text[i] = prefix[i];
  for (size_t i = 0; i < times * length; i++)
    text[before + i] = unit[i % length];
  model_tokens tokens = cut(&uncased, minilm, text, before + times * length);
  assert_int_equal(tokens.count, 2 + (per_unit > 0 ? per_unit * times : id >= 0));
  for (size_t i = 1; i + 1 < tokens.count; i++)
    assert_int_equal(tokens.ids[i], id);
  model_tokens_free(&tokens);
  free(text);
}

static void long_texts(void **state) {
  (void)state;
  repeat("", "a", 0, 100);
  repeat("", "a ", 1, 1037);
  repeat("", "!", 1, 999);
  repeat("", "[", 1, 1031);
  repeat("", "[SEP]", 1, 102);
  repeat("", " ", 0, -1);
  repeat("", "\xe4\xb8\xad", 1, 1746);
  repeat("e", "\xcc\x81", 0, 1041);
  repeat("e", "\xcc\x81\xcc\xa3", 0, 1041);
  repeat("e", "\xc2\xad", 0, 1041);
  repeat("", DOT STEM, 0, 100);
  repeat("", "\xea\xb0\x81", 0, 100);
}

/* Every character alone and within a word: known ids, and spans that lie in the text. */
static void every_character(void **state) {
  (void)state;
  for (uint32_t code = 0; code < 0x110000; code++) {
    char text[8] = "a";
    size_t length = 1;
    if (code >= 0xd800 && code < 0xe000)
      continue;
    if (code < 0x80) {
      text[length++] = (char)code;
    } else {
      const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
      text[length++] = (char)((0xff00u >> (more + 1) & 0xff) | code >> 6 * more);
      for (int i = more - 1; i >= 0; i--)
        text[length++] = (char)(0x80 | (code >> 6 * i & 0x3f));
    }
    text[length++] = 'b';
    for (size_t i = 0; i < 2; i++) { /* uncased, cased */
      model_tokens tokens = cut(&settings[i].settings, minilm, text, length);
      assert_in_range(tokens.count, 3, 8);
      for (size_t at = 1; at + 1 < tokens.count; at++) {
        assert_true(tokens.spans[at].begin < tokens.spans[at].end && tokens.spans[at].end <= length);
        assert_non_null(model_vocab_text(minilm, tokens.ids[at]));
      }
      model_tokens_free(&tokens);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(golden),         cmocka_unit_test(texts_of_tokens), cmocka_unit_test(broken_vocabularies),
      cmocka_unit_test(long_lines),     cmocka_unit_test(lines_and_ids),   cmocka_unit_test(equal_lines),
      cmocka_unit_test(other_specials), cmocka_unit_test(longest_special), cmocka_unit_test(files),
      cmocka_unit_test(not_utf8),       cmocka_unit_test(limits),          cmocka_unit_test(limit_within_a_word),
      cmocka_unit_test(order_of_marks), cmocka_unit_test(long_texts),      cmocka_unit_test(every_character),
  };
  return cmocka_run_group_tests(tests, start, finish);
}
