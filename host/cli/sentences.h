/* SPDX-License-Identifier: Apache-2.0 */
/* Sentences of the command line through a model: what embed and view share. */
#ifndef CLATTN_CLI_SENTENCES_H
#define CLATTN_CLI_SENTENCES_H

#include "bert.h"
#include "device.h"
#include "outputs.h"

/* A model on a device. */
typedef struct cli_model {
  cli_session session;
  model_bert *bert;
} cli_model;

/* folder NULL: --model is missing.  Always to be closed. */
int cli_model_open(const char *folder, const char *device, cli_model *out);
void cli_model_close(cli_model *model);

/* cli_files_begin, for outputs that are none of the model's files. */
int cli_model_begin(const char *folder, cli_files *files);

/* Token ids, padded to the longest sentence. */
typedef struct cli_sentences {
  model_batch batch;
  int32_t *ids, *lengths;
} cli_sentences;

/* The tokens of one text or more.  Refused: an empty one (nothing but white space, too), one that is not UTF-8, one of more
 * tokens than the model takes unless `truncate` is set.  Always to be freed. */
int cli_sentences_read(const cli_model *model, char *const *texts, int count, int truncate, cli_sentences *out);
void cli_sentences_free(cli_sentences *sentences);

/* One pass. */
int cli_model_run(const cli_model *model, const cli_sentences *sentences, const model_results *results);

#endif
