/* SPDX-License-Identifier: Apache-2.0 */
/* JSON against a JSON Schema (draft 2020-12), for the keywords that bench/schema.json uses; any other is an error, so
 * that the schema says nothing that is not checked. */
#ifndef CLATTN_BENCH_SCHEMA_H
#define CLATTN_BENCH_SCHEMA_H

#include <stddef.h>

#include <cjson/cJSON.h>

/* 0 when the value fits; else message says what does not, with its path.  named_only: members that the schema does not
 * name are errors too, for what this release writes. */
int schema_check(const cJSON *schema, const cJSON *value, int named_only, char *message, size_t capacity);

#endif
