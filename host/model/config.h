/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of a sentence-embedding model of the BERT family, from the JSON files of its folder:
 *
 *   config.json                 the transformer; required
 *   tokenizer_config.json       the tokenizer; optional
 *   sentence_bert_config.json   the longest text; optional
 *   modules.json                what follows the transformer; optional
 *   1_Pooling/config.json       how tokens become one vector; optional unless modules.json names it
 *
 * Fields that have no meaning here are skipped; values that would change the result and are not supported are refused
 * by name. */
#ifndef CLATTN_MODEL_CONFIG_H
#define CLATTN_MODEL_CONFIG_H

#include <stdint.h>

#include "model_error.h"

typedef enum model_activation {
  MODEL_GELU,      /* "gelu": x/2 (1 + erf(x / sqrt 2)) */
  MODEL_GELU_TANH, /* "gelu_new", "gelu_pytorch_tanh": the approximation with tanh */
  MODEL_RELU,      /* "relu" */
  MODEL_SILU       /* "silu", "swish" */
} model_activation;

typedef enum model_pooling { MODEL_POOLING_MEAN, MODEL_POOLING_CLS } model_pooling;

enum { MODEL_TOKEN_MOST = 63 };

/* A setting whose default is given may be absent from its file or null. */
typedef struct model_config {
  /* config.json */
  int64_t hidden_size;
  int64_t num_hidden_layers;
  int64_t num_attention_heads; /* divides hidden_size */
  int64_t head_dim;            /* hidden_size / num_attention_heads */
  int64_t intermediate_size;
  int64_t max_position_embeddings;
  int64_t vocab_size;
  int64_t type_vocab_size;     /* default 2 */
  int64_t pad_token_id;        /* default 0; below vocab_size */
  double layer_norm_eps;       /* default 1e-12 */
  model_activation hidden_act; /* default MODEL_GELU */

  /* tokenizer_config.json */
  int do_lower_case;                    /* default 1; also 1 when sentence_bert_config.json asks for it */
  int strip_accents;                    /* default: as do_lower_case in tokenizer_config.json */
  int tokenize_chinese_chars;           /* default 1 */
  char unk_token[MODEL_TOKEN_MOST + 1]; /* defaults: "[UNK]" and so on */
  char sep_token[MODEL_TOKEN_MOST + 1];
  char pad_token[MODEL_TOKEN_MOST + 1];
  char cls_token[MODEL_TOKEN_MOST + 1];
  char mask_token[MODEL_TOKEN_MOST + 1];

  /* The longest sequence with its special tokens: max_seq_length of sentence_bert_config.json, else model_max_length
   * of tokenizer_config.json, else max_position_embeddings.  At most max_position_embeddings: a larger max_seq_length
   * is refused, while a larger model_max_length only says that the tokenizer has no limit of its own.  At least 2. */
  int64_t max_tokens;

  /* modules.json and the pooling's config.json; without them MODEL_POOLING_MEAN and 1. */
  model_pooling pooling;
  int normalize; /* the embedding is divided by its length */
} model_config;

/* Returns 0, or -1 and a sentence in *error; then *out holds nothing of use. */
int model_config_read(const char *folder, model_config *out, model_error *error);

#endif
