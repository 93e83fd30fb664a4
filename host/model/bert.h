/* SPDX-License-Identifier: Apache-2.0 */
/* A BERT-family encoder on a device, from a model's folder: config.json, vocab.txt, model.safetensors.  Everything
 * between the token ids and the results happens on the device, with one wait for it a pass. */
#ifndef CLATTN_MODEL_BERT_H
#define CLATTN_MODEL_BERT_H

#include "clattn_nn.h"
#include "config.h"
#include "model_error.h"
#include "vocab.h"

typedef struct model_bert model_bert;

/* Reads the folder and uploads every weight, once.  context and queue must outlive the model; options may be NULL.
 * Returns 0, or -1 and a sentence in *error; *status (may be NULL) tells a failure of the device, its code, from a bad
 * file: 0. */
int model_bert_open(clattn_context *context, cl_command_queue queue, const char *folder,
                    const clattn_nn_options *options, model_bert **out, clattn_status *status, model_error *error);
void model_bert_close(model_bert *model); /* NULL is fine */

const model_config *model_bert_config(const model_bert *model);
const model_vocab *model_bert_vocab(const model_bert *model);

/* Sentences of token ids, padded to one length: ids (batch, length), lengths (batch), 1 <= lengths[b] <= length.  What
 * stands in the padding does not matter, but must be an id. */
typedef struct model_batch {
  int64_t batch, length;
  const int32_t *ids, *lengths;
} model_batch;

/* What a pass gives, each NULL when it is not wanted; rows of padding hold numbers without meaning. */
typedef struct model_results {
  float *embeddings;  /* (batch, hidden): pooled, and normalised if the model's own settings say so */
  float *pooled;      /* (batch, hidden): not normalised */
  float *last_hidden; /* (batch, length, hidden) */
  float *hidden;      /* (layers + 1, batch, length, hidden): what goes into the layers, and what comes out of each */
  float *weights;     /* (layers, batch, heads, length, length) */
} model_results;

/* One thread at a time. */
int model_bert_run(model_bert *model, const model_batch *batch, const model_results *results, clattn_status *status,
                   model_error *error);

#endif
