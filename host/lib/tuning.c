/* SPDX-License-Identifier: Apache-2.0 */
#include "tuning.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "dtype.h"
#include "status.h"

/* ---- tiles ---- */

/* Tiles of lanes: up to 32 registers of accumulators, and blocks of keys whose scores stay in the first cache. */
static const clattni_tile lane_tiles[] = {
    {1, 8, 8, 64, 0, 0},  {1, 8, 8, 128, 0, 0}, {1, 8, 8, 256, 0, 0}, {1, 16, 8, 128, 0, 0}, {1, 4, 4, 128, 0, 0},
    {2, 8, 8, 128, 0, 0}, {2, 4, 4, 128, 0, 0}, {2, 8, 8, 64, 0, 0},  {2, 12, 8, 96, 0, 0},  {2, 6, 4, 96, 0, 0},
    {2, 8, 8, 256, 0, 0}, {3, 8, 8, 128, 0, 0}, {3, 4, 4, 128, 0, 0}, {3, 8, 4, 128, 0, 0},  {3, 8, 8, 64, 0, 0},
    {3, 4, 4, 64, 0, 0},  {3, 8, 8, 256, 0, 0}, {4, 4, 4, 128, 0, 0}, {4, 4, 4, 64, 0, 0},   {4, 6, 4, 96, 0, 0},
    {4, 6, 4, 192, 0, 0},
};

/* Work-groups: 32 to 256 items, columns a multiple of 32 (kernels/flash_gpu_simt.cl has a part of them per item). */
static const clattni_tile group_tiles[] = {{0, 0, 0, 0, 16, 8}, {0, 0, 0, 0, 8, 8},  {0, 0, 0, 0, 8, 4},
                                           {0, 0, 0, 0, 16, 4}, {0, 0, 0, 0, 8, 16}, {0, 0, 0, 0, 32, 4},
                                           {0, 0, 0, 0, 16, 16}};

static int same_tile(const clattni_tile *a, const clattni_tile *b) {
  return a->vectors == b->vectors && a->keys == b->keys && a->dims == b->dims && a->block == b->block &&
         a->gx == b->gx && a->gy == b->gy;
}

/* Short problems keep the number of vectors that wastes the fewest rows; one vector of many rows wastes what they
 * share. */
static int suits(const clattni_shape_class *of, const clattni_tile *tile) {
  if (of->lanes == 0)
    return 1;
  if (of->rows == CLATTNI_ROWS_MANY)
    return tile->vectors > 1;
  return tile->vectors == (of->rows == CLATTNI_ROWS_FEW ? 1 : of->rows);
}

static const clattni_tile *tile_at(const clattni_shape_class *of, uint32_t index) {
  if (of->lanes > 0)
    return index < sizeof(lane_tiles) / sizeof(lane_tiles[0]) ? &lane_tiles[index] : NULL;
  return index < sizeof(group_tiles) / sizeof(group_tiles[0]) ? &group_tiles[index] : NULL;
}

int clattni_tile_candidate(const clattni_shape_class *of, const clattni_tile *usual, uint32_t index,
                           clattni_tile *out) {
  uint32_t number = 0;
  for (uint32_t i = 0; tile_at(of, i) != NULL; ++i) {
    const clattni_tile *tile = tile_at(of, i);
    if (!suits(of, tile) || same_tile(tile, usual) || number++ != index)
      continue;
    *out = *tile;
    return 1;
  }
  return 0;
}

static int same_class(const clattni_shape_class *a, const clattni_shape_class *b) {
  return strcmp(a->variant, b->variant) == 0 && a->lanes == b->lanes && a->dim == b->dim && a->rows == b->rows &&
         a->causal == b->causal && a->k == b->k && a->v == b->v;
}

const clattni_tile *clattni_tuning_find(const clattni_tuning *tuning, const clattni_shape_class *of) {
  for (uint32_t i = 0; tuning != NULL && i < tuning->count; ++i)
    if (same_class(&tuning->entries[i].of, of))
      return &tuning->entries[i].tile;
  return NULL;
}

/* ---- writing ---- */

/* What a text says of a device, in this order. */
enum { LIBRARY, VENDOR, DEVICE, DRIVER, OPENCL, FACTS };
static const char *const fact_names[FACTS] = {"library", "vendor", "device", "driver", "opencl"};

/* On one line, whatever the driver says. */
static void fact_of(const clattn_device_info *device, int fact, char text[128]) {
  const char *const facts[FACTS] = {clattn_version(), device->vendor, device->name, device->driver, device->version};
  snprintf(text, 128, "%s", facts[fact]);
  for (char *c = text; *c != 0; ++c)
    if ((unsigned char)*c < ' ')
      *c = ' ';
}

/* Appends, as snprintf would at its end. */
static void append(char *text, size_t capacity, size_t *length, const char *format, ...) {
  va_list list;
  va_start(list, format);
  const int more =
      vsnprintf(*length < capacity ? text + *length : NULL, *length < capacity ? capacity - *length : 0, format, list);
  va_end(list);
  *length += more > 0 ? (size_t)more : 0;
}

size_t clattni_tuning_head(const clattn_device_info *device, char *text, size_t capacity) {
  size_t length = 0;
  char value[128];
  append(text, capacity, &length, "clattn tuning %d\n", CLATTNI_TUNING_FORMAT);
  for (int fact = 0; fact < FACTS; ++fact) {
    fact_of(device, fact, value);
    append(text, capacity, &length, "%s %s\n", fact_names[fact], value);
  }
  return length;
}

size_t clattni_tuning_line(const clattni_tuned *tuned, char *text, size_t capacity) {
  const clattni_shape_class *of = &tuned->of;
  const clattni_tile *tile = &tuned->tile;
  size_t length = 0;
  append(text, capacity, &length, "tile %s", of->variant);
  if (of->lanes > 0)
    append(text, capacity, &length, " width=%d", of->lanes);
  append(text, capacity, &length, " dim=%d", of->dim);
  if (of->rows > 0)
    append(text, capacity, &length, " rows=%d", of->rows);
  else
    append(text, capacity, &length, " rows=%s",
           of->rows == CLATTNI_ROWS_MANY  ? "many"
           : of->rows == CLATTNI_ROWS_FEW ? "few"
                                          : "some");
  append(text, capacity, &length, " causal=%d k=%s v=%s :", of->causal, clattni_dtype_name(of->k),
         clattni_dtype_name(of->v));
  if (of->lanes > 0)
    append(text, capacity, &length, " vectors=%d keys=%d dims=%d block=%d", tile->vectors, tile->keys, tile->dims,
           tile->block);
  else
    append(text, capacity, &length, " gx=%d gy=%d", tile->gx, tile->gy);
  return length;
}

void clattni_tile_words(const clattni_tile *tile, char *text, size_t capacity) {
  if (tile->gx > 0)
    snprintf(text, capacity, "work-groups of %d x %d", tile->gx, tile->gy);
  else
    snprintf(text, capacity, "%d vectors x %d keys, %d value elements, blocks of %d keys", tile->vectors, tile->keys,
             tile->dims, tile->block);
}

/* ---- reading ---- */

#define LONGEST_LINE 512

/* One line of the text, without its end. */
typedef struct scanner {
  char line[LONGEST_LINE];
  const char *at; /* in `line` */
  uint32_t number;
  clattn_error *error;
} scanner;

static clattn_status garbled(const scanner *s, const char *format, ...) {
  char message[256];
  va_list list;
  va_start(list, format);
  vsnprintf(message, sizeof(message), format, list);
  va_end(list);
  return clattni_fail(s->error, CLATTN_ERROR_TEXT, "tuning_text, line %u: %s", s->number, message);
}

/* The next line of *text into the scanner; 0 behind the last one. */
static int next_line(scanner *s, const char **text, int *too_long) {
  const char *begin = *text;
  if (*begin == 0)
    return 0;
  const size_t length = strcspn(begin, "\n");
  *text = begin + length + (begin[length] == '\n');
  ++s->number;
  *too_long = length >= LONGEST_LINE;
  const size_t kept = *too_long ? LONGEST_LINE - 1 : length;
  memcpy(s->line, begin, kept);
  s->line[kept] = 0;
  if (kept > 0 && s->line[kept - 1] == '\r')
    s->line[kept - 1] = 0;
  s->at = s->line;
  return 1;
}

/* Skips this text if it is what comes next. */
static int skip(scanner *s, const char *text) {
  const size_t length = strlen(text);
  if (strncmp(s->at, text, length) != 0)
    return 0;
  s->at += length;
  return 1;
}

/* A number of up to five digits without leading zeros. */
static int take_number(scanner *s, int32_t *out) {
  const size_t digits = strspn(s->at, "0123456789");
  int32_t value = 0;
  if (digits == 0 || digits > 5 || (digits > 1 && s->at[0] == '0'))
    return 0;
  for (size_t i = 0; i < digits; ++i)
    value = 10 * value + (s->at[i] - '0');
  s->at += digits;
  *out = value;
  return 1;
}

/* A name up to the next space. */
static size_t take_name(scanner *s, const char **name) {
  const size_t length = strcspn(s->at, " ");
  *name = s->at;
  s->at += length;
  return length;
}

static int take_type(scanner *s, clattn_dtype *out) {
  const char *name;
  const size_t length = take_name(s, &name);
  return clattni_dtype_parse(name, length, out);
}

static int take_rows(scanner *s, int32_t *out) {
  if (skip(s, "many"))
    *out = CLATTNI_ROWS_MANY;
  else if (skip(s, "few"))
    *out = CLATTNI_ROWS_FEW;
  else if (skip(s, "some"))
    *out = CLATTNI_ROWS_SOME;
  else
    return take_number(s, out) && *out >= 1 && *out <= 4;
  return 1;
}

/* As selection has them. */
static int is_class_of_dims(int32_t dim) {
  return dim == 32 || dim == 64 || dim == 128 || dim == 256 || dim == 1024;
}

/* "variant width=16 dim=64 rows=many causal=0 k=f32 v=f32": 1 if it is one. */
static int take_class(scanner *s, clattni_shape_class *out) {
  const char *name;
  const size_t length = take_name(s, &name);
  if (length == 0 || length >= sizeof(out->variant))
    return 0;
  memcpy(out->variant, name, length);
  out->variant[length] = 0;
  if (skip(s, " width=") && !(take_number(s, &out->lanes) && (out->lanes == 4 || out->lanes == 8 || out->lanes == 16)))
    return 0;
  if (!(skip(s, " dim=") && take_number(s, &out->dim) && is_class_of_dims(out->dim)))
    return 0;
  if (!(skip(s, " rows=") && take_rows(s, &out->rows)) ||
      (out->lanes > 0 ? out->rows == CLATTNI_ROWS_SOME : out->rows > 0))
    return 0;
  if (!(skip(s, " causal=") && take_number(s, &out->causal) && out->causal <= 1))
    return 0;
  return skip(s, " k=") && take_type(s, &out->k) && skip(s, " v=") && take_type(s, &out->v);
}

/* The tile of a class: one of those that are tried, which the kernels are known to take. */
static int take_tile(scanner *s, const clattni_shape_class *of, clattni_tile *out) {
  static const clattni_tile none;
  clattni_tile known;
  const int read = of->lanes > 0
                       ? skip(s, " vectors=") && take_number(s, &out->vectors) && skip(s, " keys=") &&
                             take_number(s, &out->keys) && skip(s, " dims=") && take_number(s, &out->dims) &&
                             skip(s, " block=") && take_number(s, &out->block)
                       : skip(s, " gx=") && take_number(s, &out->gx) && skip(s, " gy=") && take_number(s, &out->gy);
  for (uint32_t i = 0; read && clattni_tile_candidate(of, &none, i, &known); ++i)
    if (same_tile(&known, out))
      return 1;
  return 0;
}

static int is_variant(const char *name) {
  for (uint32_t i = 0; clattn_variant_name(i) != NULL; ++i)
    if (strcmp(clattn_variant_name(i), name) == 0)
      return 1;
  return 0;
}

static clattn_status read_tile(scanner *s, clattni_tuned *entries, clattni_tuning *out) {
  if (out->count == CLATTNI_TUNED_MOST)
    return garbled(s, "more than %d tiles", CLATTNI_TUNED_MOST);
  clattni_tuned *tuned = &entries[out->count];
  memset(tuned, 0, sizeof(*tuned));
  if (!take_class(s, &tuned->of))
    return garbled(s, "no class of problems at \"%.60s\": VARIANT [width=N] dim=N rows=many|few|N causal=0|1 k=T v=T",
                   s->at);
  /* The head says that this very version wrote it: other versions' names don't come here. */
  if (!is_variant(tuned->of.variant))
    return garbled(s, "no variant is called \"%s\"", tuned->of.variant);
  if (!skip(s, " :"))
    return garbled(s, "\"%.60s\" stands where ' :' and a tile should", s->at);
  const char *from = s->at;
  if (!take_tile(s, &tuned->of, &tuned->tile))
    return garbled(s, "\"%.80s\" is no tile that this variant has for these problems", from);
  if (*s->at != 0)
    return garbled(s, "\"%.60s\" is left over", s->at);
  if (clattni_tuning_find(out, &tuned->of) != NULL)
    return garbled(s, "a second tile for the same problems");
  ++out->count;
  return CLATTN_SUCCESS;
}

/* The end of a text from a little before `from`, without parts of a UTF-8 character at its start. */
static const char *end_from(const char *text, size_t from) {
  size_t at = from > 12 ? from - 12 : 0;
  while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80)
    --at;
  return text + at;
}

/* Two texts that differ, short enough for the reason of a plan: long ones from a little before they do. */
static void tell_foreign(const char *name, const char *theirs, const char *here, clattni_tuning *out) {
  size_t same = 0;
  while (theirs[same] != 0 && theirs[same] == here[same])
    ++same;
  const int whole = strlen(theirs) <= 30 && strlen(here) <= 30;
  const char *from = end_from(theirs, whole ? 0 : same), *to = end_from(here, whole ? 0 : same);
  const char *dots = from > theirs ? "..." : "";
  snprintf(out->foreign, sizeof(out->foreign), "%s is '%s%.30s', here it is '%s%.30s'", name, dots, from, dots, to);
}

/* A line of the head, which come in their order. */
static clattn_status read_fact(scanner *s, const clattn_device_info *device, int fact, clattni_tuning *out) {
  char value[128];
  if (!skip(s, fact_names[fact]) || *s->at != ' ')
    return garbled(s, "\"%.60s\" stands where '%s ...' should", s->line, fact_names[fact]);
  fact_of(device, fact, value);
  if (strcmp(s->at + 1, value) != 0 && out->foreign[0] == 0)
    tell_foreign(fact_names[fact], s->at + 1, value, out);
  return CLATTN_SUCCESS;
}

uint32_t clattni_tuning_lines(const char *text) {
  uint32_t lines = 1;
  for (const char *c = text; *c != 0 && lines < CLATTNI_TUNED_MOST; ++c)
    lines += *c == '\n';
  return lines;
}

clattn_status clattni_tuning_parse(const char *text, const clattn_device_info *device, clattni_tuned *entries,
                                   clattni_tuning *out, clattn_error *error) {
  scanner s = {.error = error};
  int fact = 0, too_long = 0;
  clattn_status status = CLATTN_SUCCESS;
  memset(out, 0, sizeof(*out));
  out->entries = entries;
  int32_t format = 0;
  if (!next_line(&s, &text, &too_long) || !skip(&s, "clattn tuning ") || !take_number(&s, &format) || *s.at != 0) {
    s.number = 1;
    return garbled(&s, "no tuning text: the first line must be 'clattn tuning %d'", CLATTNI_TUNING_FORMAT);
  }
  if (format != CLATTNI_TUNING_FORMAT) /* another version's */
    snprintf(out->foreign, sizeof(out->foreign), "format is '%d', here it is '%d'", format, CLATTNI_TUNING_FORMAT);
  while (status == CLATTN_SUCCESS && out->foreign[0] == 0 && next_line(&s, &text, &too_long)) {
    if (s.line[0] == '#' || s.line[0] == 0)
      continue;
    if (too_long)
      return garbled(&s, "longer than %d bytes", LONGEST_LINE - 1);
    if (fact < FACTS)
      status = read_fact(&s, device, fact++, out);
    else if (skip(&s, "tile "))
      status = read_tile(&s, entries, out);
    else
      status = garbled(&s, "\"%.60s\" is neither 'tile ...' nor a comment", s.line);
  }
  if (status == CLATTN_SUCCESS && out->foreign[0] == 0 && fact < FACTS) {
    ++s.number;
    return garbled(&s, "the text ends where '%s ...' should stand", fact_names[fact]);
  }
  return status;
}
