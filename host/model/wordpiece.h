/* SPDX-License-Identifier: Apache-2.0 */
/* BERT's tokenizer: text to ids, equal to Hugging Face's BertTokenizer (the library `tokenizers`):
 *
 *   special tokens that the text spells out, such as "[SEP]", are taken as they are;
 *   control, format and private-use characters and U+FFFD go, white space separates;
 *   Chinese characters are words of their own (split_chinese);
 *   canonical decomposition, then combining marks go (strip_accents);
 *   lower case, character by character (lowercase);
 *   punctuation characters are words of their own;
 *   each word is cut into the longest tokens of the vocabulary, from the left; a word for which that fails, or of more
 *   than 100 characters, is the unknown token.
 *
 * What a character is comes from utf8proc's Unicode tables; the reference's categories are those of Unicode 8, so
 * punctuation, marks and format characters that are newer may be treated differently. */
#ifndef CLATTN_MODEL_WORDPIECE_H
#define CLATTN_MODEL_WORDPIECE_H

#include <stddef.h>
#include <stdint.h>

#include "model_error.h"
#include "vocab.h"

/* As in tokenizer_config.json: do_lower_case, strip_accents (null there: as do_lower_case), tokenize_chinese_chars. */
typedef struct model_wordpiece {
  int lowercase;
  int strip_accents;
  int split_chinese;
  int64_t max_tokens; /* with both special tokens, at least 2; 0: no limit */
  int truncate;       /* a longer text loses its end; otherwise it is an error */
} model_wordpiece;

/* Bytes begin to end - 1 of the text. */
typedef struct model_span {
  size_t begin, end;
} model_span;

typedef struct model_tokens {
  size_t count;       /* at least 2: [CLS] is the first and [SEP] the last */
  size_t untruncated; /* what count would be without a limit */
  int32_t *ids;
  model_span *spans; /* where each id comes from; [CLS] and [SEP] are empty spans at the text's ends */
  size_t capacity;   /* private */
} model_tokens;

/* Text of no bytes gives the two special tokens alone.  0 bytes are control characters like others.  Refused: what is
 * not UTF-8, with the place of the first bad byte; without truncate, too many tokens.  Returns 0, or -1 and a sentence
 * in *error; then *out is all zero. */
int model_tokenize(const model_wordpiece *settings, const model_vocab *vocab, const char *text, size_t length,
                   model_tokens *out, model_error *error);
/* Clears *tokens; NULL and an all-zero struct are accepted. */
void model_tokens_free(model_tokens *tokens);

#endif
