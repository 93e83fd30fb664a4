/* SPDX-License-Identifier: Apache-2.0 */
/* A BERT of 2 layers and 8 hidden numbers, made up, as a model folder and in double precision. */
#ifndef CLATTN_TEST_TINY_BERT_H
#define CLATTN_TEST_TINY_BERT_H

#include "clattn_nn.h"

enum { TINY_LAYERS = 2, TINY_HIDDEN = 8, TINY_HEADS = 2, TINY_INNER = 20, TINY_VOCAB = 30, TINY_POSITIONS = 12 };

/* How the model is written and what is wrong with it; all zero: nothing. */
typedef struct tiny_form {
  clattn_dtype dtype;              /* of matrices and tables; vectors are f32 */
  const char *prefix;              /* before every tensor's name, or NULL */
  int old_names;                   /* norms have gamma and beta */
  clattn_nn_activation activation; /* 0: GELU */
  int first_pooling;               /* of [CLS], not normalised */
  const char *config;              /* in the place of config.json */
  const char *left_out, *turned;   /* tensors that are missing, and that have their axes the other way round */
  long cut;                        /* bytes missing at the end of the file */
  const char *line, *other_line;   /* a line of vocab.txt, and what stands there instead */
} tiny_form;

/* Writes config.json, modules.json, 1_Pooling/config.json, vocab.txt and model.safetensors into the folder, which is
 * made if need be. */
void tiny_write(const char *folder, const tiny_form *form);

/* What the model as last written gives for a sentence of `count` ids: the embedding (TINY_HIDDEN), and weights
 * (TINY_LAYERS, TINY_HEADS, count, count) unless NULL. */
void tiny_run(int64_t count, const int32_t *ids, double *embedding, double *weights);

#endif
