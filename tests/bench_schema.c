/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "bench_schema.h"

#include <math.h>
#include <regex.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct check {
  const cJSON *root;
  int named_only;
  char *message;
  size_t capacity;
} check;

static int fits(const check *c, const cJSON *schema, const cJSON *value, const char *path);

static int no(const check *c, const char *path, const char *format, ...) {
  char rule[256];
  va_list list;
  va_start(list, format);
  vsnprintf(rule, sizeof rule, format, list);
  va_end(list);
  snprintf(c->message, c->capacity, "%s: %s", path, rule);
  return -1;
}

static int is_type(const cJSON *value, const char *type) {
  if (strcmp(type, "integer") == 0)
    return cJSON_IsNumber(value) && floor(value->valuedouble) == value->valuedouble;
  return (strcmp(type, "object") == 0 && cJSON_IsObject(value)) ||
         (strcmp(type, "array") == 0 && cJSON_IsArray(value)) ||
         (strcmp(type, "string") == 0 && cJSON_IsString(value)) ||
         (strcmp(type, "number") == 0 && cJSON_IsNumber(value)) ||
         (strcmp(type, "boolean") == 0 && cJSON_IsBool(value)) || (strcmp(type, "null") == 0 && cJSON_IsNull(value));
}

static int check_type(const check *c, const cJSON *rule, const cJSON *value, const char *path) {
  const cJSON *type = NULL;
  if (cJSON_IsString(rule))
    return is_type(value, rule->valuestring) ? 0 : no(c, path, "no %s", rule->valuestring);
  cJSON_ArrayForEach(type, rule) {
    if (is_type(value, type->valuestring))
      return 0;
  }
  return no(c, path, "of none of the types");
}

static int check_enum(const check *c, const cJSON *rule, const cJSON *value, const char *path) {
  const cJSON *one = NULL;
  cJSON_ArrayForEach(one, rule) {
    if (cJSON_Compare(one, value, 1))
      return 0;
  }
  return no(c, path, "none of the words");
}

static int check_pattern(const check *c, const cJSON *rule, const cJSON *value, const char *path) {
  regex_t compiled;
  if (!cJSON_IsString(value))
    return 0;
  if (regcomp(&compiled, rule->valuestring, REG_EXTENDED | REG_NOSUB) != 0)
    return no(c, path, "the pattern %s can't be read", rule->valuestring);
  const int found = regexec(&compiled, value->valuestring, 0, NULL, 0);
  regfree(&compiled);
  return found == 0 ? 0 : no(c, path, "does not match %s", rule->valuestring);
}

static int check_required(const check *c, const cJSON *rule, const cJSON *value, const char *path) {
  const cJSON *name = NULL;
  cJSON_ArrayForEach(name, rule) {
    if (cJSON_IsObject(value) && cJSON_GetObjectItemCaseSensitive(value, name->valuestring) == NULL)
      return no(c, path, "%s is missing", name->valuestring);
  }
  return 0;
}

static int check_properties(const check *c, const cJSON *rule, const cJSON *value, const char *path) {
  const cJSON *member = NULL;
  char below[512];
  if (!cJSON_IsObject(value))
    return 0;
  cJSON_ArrayForEach(member, value) {
    const cJSON *schema = cJSON_GetObjectItemCaseSensitive(rule, member->string);
    snprintf(below, sizeof below, "%s/%s", path, member->string);
    if (schema == NULL && c->named_only)
      return no(c, below, "the schema does not name it");
    if (schema != NULL && fits(c, schema, member, below) != 0)
      return -1;
  }
  return 0;
}

static int check_items(const check *c, const cJSON *rule, const cJSON *value, const char *path) {
  const cJSON *item = NULL;
  char below[512];
  int at = 0;
  if (!cJSON_IsArray(value))
    return 0;
  cJSON_ArrayForEach(item, value) {
    snprintf(below, sizeof below, "%s/%d", path, at++);
    if (fits(c, rule, item, below) != 0)
      return -1;
  }
  return 0;
}

static int check_reference(const check *c, const cJSON *rule, const cJSON *value, const char *path) {
  static const char start[] = "#/$defs/";
  const cJSON *defs = cJSON_GetObjectItemCaseSensitive(c->root, "$defs");
  const cJSON *schema = strncmp(rule->valuestring, start, sizeof start - 1) == 0
                            ? cJSON_GetObjectItemCaseSensitive(defs, rule->valuestring + sizeof start - 1)
                            : NULL;
  return schema != NULL ? fits(c, schema, value, path) : no(c, path, "%s leads nowhere", rule->valuestring);
}

static int check_range(const check *c, const cJSON *rule, const cJSON *value, const char *path) {
  if (!cJSON_IsNumber(value))
    return 0;
  const int below = strcmp(rule->string, "minimum") == 0;
  const int right = below ? value->valuedouble >= rule->valuedouble : value->valuedouble <= rule->valuedouble;
  return right ? 0 : no(c, path, "beyond the %s of %.17g", rule->string, rule->valuedouble);
}

static int check_const(const check *c, const cJSON *rule, const cJSON *value, const char *path) {
  return cJSON_Compare(rule, value, 1) ? 0 : no(c, path, "not the one value");
}

static int fits(const check *c, const cJSON *schema, const cJSON *value, const char *path) {
  static const struct {
    const char *keyword;
    int (*check)(const check *c, const cJSON *rule, const cJSON *value, const char *path);
  } keywords[] = {{"type", check_type},
                  {"enum", check_enum},
                  {"const", check_const},
                  {"minimum", check_range},
                  {"maximum", check_range},
                  {"pattern", check_pattern},
                  {"required", check_required},
                  {"properties", check_properties},
                  {"items", check_items},
                  {"$ref", check_reference},
                  {"$schema", NULL},
                  {"title", NULL},
                  {"description", NULL},
                  {"$defs", NULL}};
  const cJSON *rule = NULL;
  cJSON_ArrayForEach(rule, schema) {
    size_t i = 0;
    while (i < sizeof keywords / sizeof keywords[0] && strcmp(keywords[i].keyword, rule->string) != 0)
      i++;
    if (i == sizeof keywords / sizeof keywords[0])
      return no(c, path, "the keyword %s of the schema is not known here", rule->string);
    if (keywords[i].check != NULL && keywords[i].check(c, rule, value, path) != 0)
      return -1;
  }
  return 0;
}

int schema_check(const cJSON *schema, const cJSON *value, int named_only, char *message, size_t capacity) {
  const check c = {schema, named_only, message, capacity};
  message[0] = 0;
  return fits(&c, schema, value, "");
}
