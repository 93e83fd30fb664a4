/* SPDX-License-Identifier: Apache-2.0 */
/* JSON of files that nobody vouches for.  cJSON alone is lenient: it keeps both of two equal keys, accepts bytes that
 * are no UTF-8, numbers such as 01, and cuts names at an escaped 0. */
#ifndef CLATTN_MODEL_JSON_H
#define CLATTN_MODEL_JSON_H

#include <stddef.h>
#include <stdint.h>

#include <cjson/cJSON.h>

#include "model_error.h"

enum { MODEL_JSON_DEPTH = 32 };
#define MODEL_JSON_WHOLE_MOST INT64_C(9007199254740991) /* 2^53 - 1: above it doubles skip whole numbers */

/* The document, for cJSON_Delete; NULL on failure.  `path` is for messages.  Refused: what is not JSON (RFC 8259) in
 * UTF-8, more than MODEL_JSON_DEPTH levels, an escaped 0 in a string, a key that an object has twice. */
cJSON *model_json_parse(const char *path, const unsigned char *text, size_t count, model_error *error);

/* 1 when the item is a whole number from 0 to MODEL_JSON_WHOLE_MOST. */
int model_json_whole(const cJSON *item, int64_t *out);
/* The item as it stands in a message: a number, a short string or its kind. */
model_shown model_json_show(const cJSON *item);

#endif
