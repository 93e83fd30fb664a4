/* SPDX-License-Identifier: Apache-2.0 */
/* A BERT vocabulary: vocab.txt, a token a line; a token's id is the number of its line, from 0. */
#ifndef CLATTN_MODEL_VOCAB_H
#define CLATTN_MODEL_VOCAB_H

#include <stddef.h>
#include <stdint.h>

#include "model_error.h"

enum { MODEL_VOCAB_LINE_MOST = 1024 };

typedef struct model_vocab model_vocab;

/* How the tokens with a meaning of their own are written.  The mask may be missing from the vocabulary. */
typedef struct model_specials {
  const char *unk, *cls, *sep, *pad, *mask;
} model_specials;

typedef enum model_special { MODEL_UNK, MODEL_CLS, MODEL_SEP, MODEL_PAD, MODEL_MASK } model_special;
enum { MODEL_SPECIALS = 5 };

/* Lines end with LF or CRLF.  A token that is there twice has its last id, as in the reference; the earlier line still
 * counts, and so does an empty one.  Refused: what is not UTF-8 or has a 0 byte or a byte order mark, a line of more
 * than MODEL_VOCAB_LINE_MOST bytes, more than `vocab_size` tokens (the rows of the model's table), a special token other than the mask
 * that is not there.  `specials` NULL: "[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]".
 * Returns 0, or -1 and a sentence in *error that begins with the path. */
int model_vocab_read(const char *path, const model_specials *specials, int64_t vocab_size, model_vocab **out,
                     model_error *error);
/* The same from memory, which is copied; `name` stands for the path in messages. */
int model_vocab_read_memory(const char *name, const void *bytes, size_t count, const model_specials *specials,
                            int64_t vocab_size, model_vocab **out, model_error *error);
void model_vocab_free(model_vocab *vocab); /* NULL is fine */

int32_t model_vocab_count(const model_vocab *vocab);
/* The token's text, 0-terminated, with its "##"; NULL for an id that there is not. */
const char *model_vocab_text(const model_vocab *vocab, int32_t id);
/* -1: there is none; only the mask may be missing. */
int32_t model_vocab_special(const model_vocab *vocab, model_special special);
/* The special token that the text begins with, the longest of several; its length in bytes, 0 for none. */
size_t model_vocab_match_special(const model_vocab *vocab, const char *text, size_t length, int32_t *id);
/* The longest token that the text begins with; `continued`: of those that begin with "##", which the text then hasn't.
 * Its length in bytes (without the "##"), 0 for none. */
size_t model_vocab_match(const model_vocab *vocab, const char *text, size_t length, int continued, int32_t *id);

#endif
