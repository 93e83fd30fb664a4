/* SPDX-License-Identifier: Apache-2.0 */
/* The problem line: "b=1 hq=8 sq=128 sk=128 d=64 causal=1".  One table says how every field is written; formatting,
 * parsing and the checks of enums and reserved words all walk it, so a new field is a new row. */
#include "problem_internal.h"

#include "dtype.h"
#include "status.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How a field's value is written.
 *   tensor:  TYPE:LAYOUT, and :B,H,R,E (strides) where there are any; each part may be left out when it is read.
 *   mode:    a word and, after a colon, the field that the mode goes with.  One mode has no word of its own (NULL in the
 *            list): there the field stands alone ("off=5", "bias=f32:bhsd"). */
typedef enum kind {
  KIND_INT64,
  KIND_UINT32,
  KIND_FLOAT,
  KIND_WORD, /* an enum or a switch */
  KIND_BITS, /* words joined by commas */
  KIND_TENSOR,
  KIND_MODE_INT64,
  KIND_MODE_FLOAT,
  KIND_MODE_TENSOR, /* a tensor with a mode */
  KIND_WINDOW,      /* LEFT,RIGHT; inf = no limit */
  KIND_HOOK         /* "yes": named, not carried */
} kind;

typedef struct word_list {
  const char *const *words;
  uint32_t count;
} word_list;

#define WORDS(name, ...)                                                                                               \
  static const char *const name##_words[] = {__VA_ARGS__};                                                             \
  static const word_list name = {name##_words, sizeof name##_words / sizeof name##_words[0]}

/* In the order of their values, or bits. */
WORDS(w_switch, "0", "1");
WORDS(w_on, "off", NULL);
WORDS(w_pass, "forward", "backward");
WORDS(w_similarity, "dot", "cosine", "additive");
WORDS(w_math, "exact", "half", "tf32");
WORDS(w_flags, "batch_invariant");
WORDS(w_scale, "default", NULL);
WORDS(w_offset, "top_left", "bottom_right", NULL, "per_batch");
WORDS(w_prefix, "none", NULL, "per_batch");
WORDS(w_length, "full", "per_batch");
WORDS(w_mask, "none", "u8", "bits");
WORDS(w_alibi, "none", "signed", "symmetric");
WORDS(w_rope, "none", "half", "interleaved");
WORDS(w_outputs, "o", "lse", "scores", "max_logit");
WORDS(w_stage, "raw", "softcap", "masked", "weights");
WORDS(w_gradients, "dq", "dk", "dv", "dbias", "dsink", "from_lse");
WORDS(w_window, "left", "right");
WORDS(w_layout, "bhsd", "bshd", "strided", "bhsd_exact", "bshd_exact", "packed", "paged");

typedef struct field {
  const char *key, *alias;      /* in the line */
  const char *name, *mode_name; /* in the struct, for messages */
  kind kind;
  size_t offset, mode_offset;
  const word_list *words;
} field;

#define AT(member) offsetof(clattn_problem, member)
#define PLAIN(key, kind, member)                                                                                       \
  { key, NULL, #member, NULL, kind, AT(member), 0, NULL }
#define WORDED(key, kind, member, words)                                                                               \
  { key, NULL, #member, NULL, kind, AT(member), 0, &words }
#define MODE(key, kind, mode, member, words)                                                                           \
  { key, NULL, #member, #mode, kind, AT(member), AT(mode), &words }

static const field fields[] = {
    /* sizes */
    PLAIN("b", KIND_INT64, batch),
    PLAIN("hq", KIND_INT64, q_heads),
    PLAIN("hkv", KIND_INT64, kv_heads),
    PLAIN("sq", KIND_INT64, q_len),
    PLAIN("sk", KIND_INT64, k_len),
    {"d", "dqk", "qk_dim", NULL, KIND_INT64, AT(qk_dim), 0, NULL}, /* the values' too, unless dv says otherwise */
    PLAIN("dv", KIND_INT64, v_dim),
    /* kind of work */
    WORDED("pass", KIND_WORD, pass, w_pass),
    WORDED("sim", KIND_WORD, similarity, w_similarity),
    WORDED("math", KIND_WORD, math, w_math),
    WORDED("flags", KIND_BITS, flags, w_flags),
    /* main tensors */
    PLAIN("q", KIND_TENSOR, q),
    PLAIN("k", KIND_TENSOR, k),
    PLAIN("v", KIND_TENSOR, v),
    PLAIN("o", KIND_TENSOR, o),
    PLAIN("align", KIND_UINT32, alignment),
    /* scores */
    MODE("scale", KIND_MODE_FLOAT, scale_mode, scale, w_scale),
    PLAIN("softcap", KIND_FLOAT, softcap),
    MODE("bias", KIND_MODE_TENSOR, use_bias, bias, w_on),
    MODE("head_scale", KIND_MODE_TENSOR, use_head_scale, head_scale, w_on),
    MODE("sink", KIND_MODE_TENSOR, use_sink, sink, w_on),
    MODE("alibi", KIND_MODE_TENSOR, alibi, alibi_slopes, w_alibi),
    PLAIN("add_w", KIND_TENSOR, add_w),
    /* rules */
    WORDED("causal", KIND_WORD, causal, w_switch),
    MODE("off", KIND_MODE_INT64, offset_mode, offset, w_offset),
    WORDED("window", KIND_WINDOW, window, w_window),
    MODE("prefix", KIND_MODE_INT64, prefix_mode, prefix, w_prefix),
    PLAIN("chunk", KIND_INT64, chunk),
    WORDED("qlen", KIND_WORD, q_length_mode, w_length),
    WORDED("klen", KIND_WORD, k_length_mode, w_length),
    MODE("mask", KIND_MODE_TENSOR, keep_mask_kind, keep_mask, w_mask),
    MODE("block_mask", KIND_MODE_TENSOR, block_mask_kind, block_mask, w_mask),
    PLAIN("block_q", KIND_INT64, block_q),
    PLAIN("block_k", KIND_INT64, block_k),
    /* packed, paged, quantised */
    PLAIN("total_q", KIND_INT64, total_q),
    PLAIN("total_k", KIND_INT64, total_k),
    PLAIN("pages", KIND_INT64, num_pages),
    PLAIN("max_pages", KIND_INT64, max_pages),
    PLAIN("page_size", KIND_INT64, page_size),
    PLAIN("k_scale", KIND_TENSOR, k_scale),
    PLAIN("v_scale", KIND_TENSOR, v_scale),
    /* rotary embedding, hooks, dropout */
    WORDED("rope", KIND_WORD, rope, w_rope),
    WORDED("positions", KIND_WORD, use_positions, w_switch),
    PLAIN("rope_dim", KIND_INT64, rope_dim),
    PLAIN("rope_positions", KIND_INT64, rope_positions),
    PLAIN("rope_cos", KIND_TENSOR, rope_cos),
    PLAIN("rope_sin", KIND_TENSOR, rope_sin),
    PLAIN("hook", KIND_HOOK, hook),
    PLAIN("dropout", KIND_FLOAT, dropout),
    /* results */
    WORDED("out", KIND_BITS, outputs, w_outputs),
    WORDED("stage", KIND_WORD, stage, w_stage),
    PLAIN("lse", KIND_TENSOR, lse),
    PLAIN("scores", KIND_TENSOR, scores),
    PLAIN("max_logit", KIND_TENSOR, max_logit),
    /* backward */
    WORDED("grad", KIND_BITS, gradients, w_gradients),
    WORDED("accumulate", KIND_WORD, accumulate, w_switch),
    PLAIN("grad_o", KIND_TENSOR, d_o),
    PLAIN("grad_lse", KIND_TENSOR, d_lse),
    PLAIN("grad_q", KIND_TENSOR, d_q),
    PLAIN("grad_k", KIND_TENSOR, d_k),
    PLAIN("grad_v", KIND_TENSOR, d_v),
    PLAIN("grad_bias", KIND_TENSOR, d_bias),
    PLAIN("grad_sink", KIND_TENSOR, d_sink),
};
enum { FIELD_COUNT = sizeof fields / sizeof fields[0] };

/* ---- fields of a problem --------------------------------------------------------------------------------------- */

static void *member(clattn_problem *problem, size_t offset) {
  return (char *)problem + offset;
}

static int64_t get_int64(const clattn_problem *problem, size_t offset) {
  int64_t value;
  memcpy(&value, (const char *)problem + offset, sizeof value);
  return value;
}

static uint32_t get_uint32(const clattn_problem *problem, size_t offset) {
  uint32_t value;
  memcpy(&value, (const char *)problem + offset, sizeof value);
  return value;
}

static float get_float(const clattn_problem *problem, size_t offset) {
  float value;
  memcpy(&value, (const char *)problem + offset, sizeof value);
  return value;
}

static const clattn_tensor *get_tensor(const clattn_problem *problem, size_t offset) {
  return (const clattn_tensor *)(const void *)((const char *)problem + offset);
}

static int has_mode(const field *f) {
  return f->kind == KIND_MODE_INT64 || f->kind == KIND_MODE_FLOAT || f->kind == KIND_MODE_TENSOR;
}

static int has_tensor(const field *f) {
  return f->kind == KIND_TENSOR || f->kind == KIND_MODE_TENSOR;
}

static int is_zero(const void *memory, size_t size) {
  const unsigned char *bytes = memory;
  for (size_t i = 0; i < size; i++) {
    if (bytes[i] != 0)
      return 0;
  }
  return 1;
}

static size_t value_size(kind of) {
  switch (of) {
  case KIND_INT64:
  case KIND_MODE_INT64:
    return sizeof(int64_t);
  case KIND_TENSOR:
  case KIND_MODE_TENSOR:
    return sizeof(clattn_tensor);
  case KIND_HOOK:
    return sizeof(const clattn_hook *);
  case KIND_WINDOW:
  case KIND_UINT32:
  case KIND_FLOAT:
  case KIND_WORD:
  case KIND_BITS:
  case KIND_MODE_FLOAT:
    break;
  }
  return sizeof(uint32_t);
}

/* Every default is zero, so by bytes; -0.0 counts as a value of its own. */
static int is_default(const clattn_problem *problem, const field *f) {
  if (has_mode(f) && get_uint32(problem, f->mode_offset) != 0)
    return 0;
  if (f->kind == KIND_WINDOW && (problem->window_left != 0 || problem->window_right != 0))
    return 0;
  return is_zero((const char *)problem + f->offset, value_size(f->kind));
}

/* ---- reserved words and enums ---------------------------------------------------------------------------------- */

static clattn_status check_reserved(const clattn_problem *problem, clattn_error *error) {
  for (const field *f = fields; f < fields + FIELD_COUNT; f++) {
    if (has_tensor(f)) {
      const uint32_t *reserved = get_tensor(problem, f->offset)->reserved;
      for (int i = 0; i < 2; i++) {
        if (reserved[i] != 0)
          return clattni_fail(error, CLATTN_ERROR_RESERVED, "%s reserved[%d] is %" PRIu32 ": must be 0", f->name, i,
                              reserved[i]);
      }
    }
    if (f->kind == KIND_BITS || f->kind == KIND_WINDOW) {
      const uint32_t bits = get_uint32(problem, f->offset);
      const uint32_t known = (1u << f->words->count) - 1;
      if ((bits & ~known) != 0)
        return clattni_fail(error, CLATTN_ERROR_RESERVED,
                            "%s is 0x%" PRIx32 ": the bits 0x%" PRIx32 " are not known and must be 0", f->name, bits,
                            bits & ~known);
    }
  }
  if (problem->reserved0 != 0)
    return clattni_fail(error, CLATTN_ERROR_RESERVED, "reserved0 is %" PRIu32 ": must be 0", problem->reserved0);
  for (size_t i = 0; i < sizeof problem->reserved / sizeof problem->reserved[0]; i++) {
    if (problem->reserved[i] != 0)
      return clattni_fail(error, CLATTN_ERROR_RESERVED, "reserved[%zu] is %" PRIu32 ": must be 0", i,
                          problem->reserved[i]);
  }
  return CLATTN_SUCCESS;
}

/* Through uint32_t, so that negative values are far above every count. */
static int enum_ok(uint32_t value, uint32_t count, const char *name, const char *part, clattn_error *error) {
  if (value < count)
    return 1;
  (void)clattni_fail(error, CLATTN_ERROR_ENUM, "%s%s is %" PRId32 ": must be 0 to %" PRIu32, name, part, (int32_t)value,
                     count - 1);
  return 0;
}

clattn_status clattni_check_fields(const clattn_problem *problem, clattn_error *error) {
  const clattn_status status = check_reserved(problem, error);
  if (status != CLATTN_SUCCESS)
    return status;
  for (const field *f = fields; f < fields + FIELD_COUNT; f++) {
    if (f->kind == KIND_WORD && !enum_ok(get_uint32(problem, f->offset), f->words->count, f->name, "", error))
      return CLATTN_ERROR_ENUM;
    if (has_mode(f) && !enum_ok(get_uint32(problem, f->mode_offset), f->words->count, f->mode_name, "", error))
      return CLATTN_ERROR_ENUM;
    if (has_tensor(f)) {
      const clattn_tensor *tensor = get_tensor(problem, f->offset);
      if (!enum_ok((uint32_t)tensor->dtype, CLATTN_I4 + 1, f->name, " dtype", error) ||
          !enum_ok((uint32_t)tensor->layout, w_layout.count, f->name, " layout", error))
        return CLATTN_ERROR_ENUM;
    }
  }
  return CLATTN_SUCCESS;
}

const char *clattni_layout_name(clattn_layout layout) {
  return layout >= 0 && (uint32_t)layout < w_layout.count ? w_layout.words[layout] : NULL;
}

/* ---- floats ---------------------------------------------------------------------------------------------------- */

void clattni_point(char *number) {
  char *out = number;
  int in_point = 0; /* a locale's point may take several bytes */
  for (const char *in = number; *in != '\0'; in++) {
    const int plain = (*in >= '0' && *in <= '9') || *in == '-' || *in == '+' || *in == 'e';
    if (plain || !in_point)
      *out++ = plain ? *in : '.';
    in_point = !plain;
  }
  *out = '\0';
}

void clattni_float_format(float value, char text[CLATTNI_FLOAT_TEXT]) {
  if (isnan(value)) {
    memcpy(text, "nan", 4);
  } else if (isinf(value)) {
    memcpy(text, value > 0 ? "inf" : "-inf", value > 0 ? 4 : 5);
  } else {
    int same = 0;
    for (int digits = 6; digits <= 9 && !same; digits++) { /* 9 always do; "0.1" reads better than "0.100000001" */
      float back = 0.0f;
      (void)snprintf(text, CLATTNI_FLOAT_TEXT, "%.*g", digits, (double)value);
      clattni_point(text);
      same = clattni_float_parse(text, strlen(text), &back) && back == value;
    }
  }
}

static int is_digit(char c) {
  return c >= '0' && c <= '9';
}

/* [-]digits[.digits][e[+-]digits], rewritten without a point ("1.25e3" as "125e1") so that strtof's locale is mute. */
int clattni_float_parse(const char *text, size_t length, float *value) {
  enum { MAX_DIGITS = 64 };
  char plain[MAX_DIGITS + 32];
  const char *at = text, *const end = text + length;
  size_t used = 0, digits = 0;
  int after_point = 0, exponent = 0, exponent_sign = 1;
  if (length == 3 && memcmp(text, "nan", 3) == 0) {
    *value = NAN;
    return 1;
  }
  if (at < end && *at == '-')
    plain[used++] = *at++;
  if ((size_t)(end - at) == 3 && memcmp(at, "inf", 3) == 0) {
    *value = used > 0 ? -INFINITY : INFINITY;
    return 1;
  }
  int seen_point = 0;
  for (; at < end && (is_digit(*at) || (*at == '.' && !seen_point)); at++) {
    if (*at == '.') {
      seen_point = 1;
      continue;
    }
    if (digits++ == MAX_DIGITS)
      return 0;
    plain[used++] = *at;
    after_point += seen_point;
  }
  if (digits == 0 || at[-1] == '.')
    return 0;
  if (at < end) {
    if (*at++ != 'e')
      return 0;
    if (at < end && (*at == '+' || *at == '-'))
      exponent_sign = *at++ == '-' ? -1 : 1;
    if (at == end || end - at > 4)
      return 0;
    for (; at < end; at++) {
      if (!is_digit(*at))
        return 0;
      exponent = 10 * exponent + (*at - '0');
    }
  }
  (void)snprintf(plain + used, sizeof plain - used, "e%d", exponent_sign * exponent - after_point);
  *value = strtof(plain, NULL);
  return isfinite(*value);
}

/* ---- writing --------------------------------------------------------------------------------------------------- */

typedef struct writer {
  char *text;
  size_t capacity, length;
} writer;

static void put(writer *w, const char *format, ...) {
  char piece[256]; /* the longest one, a tensor's strides, takes less than half */
  va_list values;
  va_start(values, format);
  (void)vsnprintf(piece, sizeof piece, format, values);
  va_end(values);
  for (const char *c = piece; *c != '\0'; c++, w->length++) {
    if (w->length + 1 < w->capacity)
      w->text[w->length] = *c;
  }
}

static void put_float(writer *w, float value) {
  char text[CLATTNI_FLOAT_TEXT];
  clattni_float_format(value, text);
  put(w, "%s", text);
}

static void put_bits(writer *w, uint32_t bits, const word_list *words) {
  const char *comma = "";
  for (uint32_t i = 0; i < words->count; i++) {
    if (bits & (1u << i)) {
      put(w, "%s%s", comma, words->words[i]);
      comma = ",";
    }
  }
}

/* Masks have no type, so none is written for them unless someone set it. */
static void put_tensor(writer *w, const clattn_tensor *tensor, int typed) {
  const int64_t *s = tensor->stride;
  if (typed || tensor->dtype != 0)
    put(w, "%s:", clattni_dtype_name(tensor->dtype));
  put(w, "%s", clattni_layout_name(tensor->layout));
  if (tensor->layout == CLATTN_LAYOUT_STRIDED || !is_zero(s, sizeof tensor->stride))
    put(w, ":%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64, s[0], s[1], s[2], s[3]);
}

/* A side may hold a value although it has no limit: "inf:5". */
static void put_side(writer *w, int limited, int64_t value) {
  if (limited)
    put(w, "%" PRId64, value);
  else if (value != 0)
    put(w, "inf:%" PRId64, value);
  else
    put(w, "inf");
}

static void put_mode(writer *w, const clattn_problem *problem, const field *f) {
  const char *word = f->words->words[get_uint32(problem, f->mode_offset)];
  if (word != NULL)
    put(w, "%s", word);
  if (word != NULL && is_zero((const char *)problem + f->offset, value_size(f->kind)))
    return;
  if (word != NULL)
    put(w, ":");
  if (f->kind == KIND_MODE_INT64)
    put(w, "%" PRId64, get_int64(problem, f->offset));
  else if (f->kind == KIND_MODE_FLOAT)
    put_float(w, get_float(problem, f->offset));
  else
    put_tensor(w, get_tensor(problem, f->offset), f->words != &w_mask);
}

static void put_field(writer *w, const clattn_problem *problem, const field *f) {
  put(w, "%s%s=", w->length > 0 ? " " : "", f->key);
  switch (f->kind) {
  case KIND_INT64:
    put(w, "%" PRId64, get_int64(problem, f->offset));
    break;
  case KIND_UINT32:
    put(w, "%" PRIu32, get_uint32(problem, f->offset));
    break;
  case KIND_FLOAT:
    put_float(w, get_float(problem, f->offset));
    break;
  case KIND_WORD:
    put(w, "%s", f->words->words[get_uint32(problem, f->offset)]);
    break;
  case KIND_BITS:
    put_bits(w, get_uint32(problem, f->offset), f->words);
    break;
  case KIND_TENSOR:
    put_tensor(w, get_tensor(problem, f->offset), 1);
    break;
  case KIND_MODE_INT64:
  case KIND_MODE_FLOAT:
  case KIND_MODE_TENSOR:
    put_mode(w, problem, f);
    break;
  case KIND_WINDOW:
    put_side(w, (problem->window & CLATTN_WINDOW_LEFT) != 0, problem->window_left);
    put(w, ",");
    put_side(w, (problem->window & CLATTN_WINDOW_RIGHT) != 0, problem->window_right);
    break;
  case KIND_HOOK:
    put(w, "yes");
    break;
  }
}

/* What a line can't carry (unknown enum values, reserved words) is refused, so that no line tells half of a problem. */
clattn_status clattn_problem_format(const clattn_problem *problem, char *text, size_t capacity, size_t *length) {
  writer w = {text, capacity, 0};
  if (length != NULL)
    *length = 0;
  if (text != NULL && capacity > 0)
    text[0] = '\0';
  if (problem == NULL || (text == NULL && capacity > 0))
    return CLATTN_ERROR_NULL_POINTER;
  if (problem->struct_size != sizeof *problem)
    return CLATTN_ERROR_STRUCT_SIZE;
  const clattn_status status = clattni_check_fields(problem, NULL);
  if (status != CLATTN_SUCCESS)
    return status;
  for (const field *f = fields; f < fields + FIELD_COUNT; f++) {
    if (!is_default(problem, f))
      put_field(&w, problem, f);
  }
  if (capacity > 0)
    text[w.length < capacity ? w.length : capacity - 1] = '\0';
  if (length != NULL)
    *length = w.length;
  return w.length < capacity ? CLATTN_SUCCESS : CLATTN_ERROR_BUFFER_TOO_SMALL;
}

/* ---- reading --------------------------------------------------------------------------------------------------- */

typedef struct span {
  const char *at; /* NULL: nothing left */
  size_t length;
} span;

/* Cuts off the part before the separator.  0 when nothing is left; a part may be empty ("a::b"). */
static int take(span *rest, char separator, span *part) {
  if (rest->at == NULL)
    return 0;
  *part = *rest;
  const char *found = rest->length > 0 ? memchr(rest->at, separator, rest->length) : NULL;
  if (found == NULL) {
    rest->at = NULL;
  } else {
    part->length = (size_t)(found - rest->at);
    rest->length -= part->length + 1;
    rest->at = found + 1;
  }
  return 1;
}

static int equals(span text, const char *word) {
  return word != NULL && strlen(word) == text.length && memcmp(text.at, word, text.length) == 0;
}

static int read_word(span text, const word_list *words, uint32_t *value) {
  for (uint32_t i = 0; i < words->count; i++) {
    if (equals(text, words->words[i])) {
      *value = i;
      return 1;
    }
  }
  return 0;
}

static int read_int64(span text, int64_t *value) {
  const int negative = text.length > 0 && text.at[0] == '-';
  const char *at = text.at + negative, *const end = text.at + text.length;
  int64_t sum = 0; /* kept negative: that side reaches one further */
  if (at == end)
    return 0;
  for (; at < end; at++) {
    if (!is_digit(*at))
      return 0;
    const int digit = *at - '0';
    if (sum < (INT64_MIN + digit) / 10)
      return 0;
    sum = 10 * sum - digit;
  }
  if (!negative && sum == INT64_MIN)
    return 0;
  *value = negative ? sum : -sum;
  return 1;
}

static int read_bits(span text, const word_list *words, uint32_t *bits) {
  span part;
  *bits = 0;
  while (take(&text, ',', &part)) {
    uint32_t index;
    if (!read_word(part, words, &index) || (*bits & (1u << index)) != 0)
      return 0;
    *bits |= 1u << index;
  }
  return 1;
}

static int read_tensor(span text, clattn_tensor *tensor) {
  span part;
  uint32_t layout;
  if (!take(&text, ':', &part))
    return 0;
  if (clattni_dtype_parse(part.at, part.length, &tensor->dtype) && !take(&text, ':', &part))
    return 1;
  if (read_word(part, &w_layout, &layout)) {
    tensor->layout = (clattn_layout)layout;
    if (!take(&text, ':', &part))
      return 1;
  }
  for (int axis = 0; axis < 4; axis++) {
    span number;
    if (!take(&part, ',', &number) || !read_int64(number, &tensor->stride[axis]))
      return 0;
  }
  return part.at == NULL && text.at == NULL;
}

static int read_side(span text, uint32_t bit, uint32_t *bits, int64_t *value) {
  span word;
  span rest = text;
  if (!take(&rest, ':', &word))
    return 0;
  if (equals(word, "inf"))
    return rest.at == NULL || read_int64(rest, value);
  *bits |= bit;
  return read_int64(text, value);
}

static int read_window(span text, clattn_problem *problem) {
  span left, right;
  return take(&text, ',', &left) && take(&text, ',', &right) && text.at == NULL &&
         read_side(left, CLATTN_WINDOW_LEFT, &problem->window, &problem->window_left) &&
         read_side(right, CLATTN_WINDOW_RIGHT, &problem->window, &problem->window_right);
}

static int read_mode(span text, const field *f, clattn_problem *problem) {
  span rest = text, word;
  uint32_t mode;
  if (!take(&rest, ':', &word))
    return 0;
  if (!read_word(word, f->words, &mode)) {
    for (mode = 0; mode < f->words->count && f->words->words[mode] != NULL; mode++)
      continue;
    if (mode == f->words->count)
      return 0;
    rest = text;
  }
  memcpy(member(problem, f->mode_offset), &mode, sizeof mode);
  if (rest.at == NULL)
    return 1;
  if (f->kind == KIND_MODE_INT64)
    return read_int64(rest, member(problem, f->offset));
  if (f->kind == KIND_MODE_FLOAT)
    return clattni_float_parse(rest.at, rest.length, member(problem, f->offset));
  return read_tensor(rest, member(problem, f->offset));
}

static int read_field(span text, const field *f, clattn_problem *problem) {
  void *to = member(problem, f->offset);
  switch (f->kind) {
  case KIND_INT64:
    return read_int64(text, to);
  case KIND_UINT32: {
    int64_t value;
    if (!read_int64(text, &value) || value < 0 || value > (int64_t)UINT32_MAX)
      return 0;
    *(uint32_t *)to = (uint32_t)value;
    return 1;
  }
  case KIND_FLOAT:
    return clattni_float_parse(text.at, text.length, to);
  case KIND_WORD:
    return read_word(text, f->words, to);
  case KIND_BITS:
    return read_bits(text, f->words, to);
  case KIND_TENSOR:
    return read_tensor(text, to);
  case KIND_MODE_INT64:
  case KIND_MODE_FLOAT:
  case KIND_MODE_TENSOR:
    return read_mode(text, f, problem);
  case KIND_WINDOW:
    return read_window(text, problem);
  case KIND_HOOK:
    return 0; /* never carried */
  }
  return 0;
}

static int is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

clattn_status clattn_problem_parse(const char *text, clattn_problem *problem, clattn_error *error) {
  enum { SHOWN = 80 }; /* of a word in a message */
  clattn_problem read;
  unsigned char seen[FIELD_COUNT] = {0};
  clattni_clear(error);
  if (problem == NULL)
    return clattni_fail(error, CLATTN_ERROR_NULL_POINTER, "problem is NULL");
  clattn_problem_init(problem);
  if (text == NULL)
    return clattni_fail(error, CLATTN_ERROR_NULL_POINTER, "text is NULL");
  clattn_problem_init(&read);
  for (;;) {
    while (is_blank(*text))
      text++;
    if (*text == '\0')
      break;
    span word = {text, 0}, key;
    while (text[word.length] != '\0' && !is_blank(text[word.length]))
      word.length++;
    text += word.length;
    const int shown = word.length < SHOWN ? (int)word.length : SHOWN;
    span value = word;
    (void)take(&value, '=', &key);
    if (value.at == NULL)
      return clattni_fail(error, CLATTN_ERROR_TEXT, "problem line: \"%.*s\" is not key=value", shown, word.at);
    size_t i = 0;
    while (i < FIELD_COUNT && !equals(key, fields[i].key) && !equals(key, fields[i].alias))
      i++;
    if (i == FIELD_COUNT)
      return clattni_fail(error, CLATTN_ERROR_TEXT, "problem line: \"%.*s\" has an unknown key", shown, word.at);
    if (seen[i]++)
      return clattni_fail(error, CLATTN_ERROR_TEXT, "problem line: \"%.*s\" gives %s a second time", shown, word.at,
                          fields[i].key);
    if (fields[i].kind == KIND_HOOK && equals(value, "yes"))
      return clattni_fail(error, CLATTN_ERROR_NOT_SUPPORTED,
                          "problem line: it names a hook, and a line can't carry one; set the field hook instead");
    if (!read_field(value, &fields[i], &read))
      return clattni_fail(error, CLATTN_ERROR_TEXT, "problem line: the value of \"%.*s\" can't be read", shown,
                          word.at);
  }
  *problem = read;
  return CLATTN_SUCCESS;
}
