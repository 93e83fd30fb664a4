/* SPDX-License-Identifier: Apache-2.0 */
/* The members of saved runs: one list for writing, reading and CSV.  bench/schema.json says the same for others. */
#ifndef CLATTN_BENCH_RECORD_FIELDS_H
#define CLATTN_BENCH_RECORD_FIELDS_H

#include "row.h"

/* 2^53 - 1: readers that hold numbers as doubles skip whole numbers above it. */
#define BENCH_WHOLE_MOST INT64_C(9007199254740991)

typedef enum bench_kind {
  BENCH_TEXT,
  BENCH_INT32,
  BENCH_UINT32,
  BENCH_INT64,
  BENCH_COUNT, /* uint64_t; a string of digits above BENCH_WHOLE_MOST */
  BENCH_REAL,
  BENCH_FLAG,
  BENCH_WORD_STATUS,
  BENCH_WORD_BOUND,
  BENCH_WORD_TIMING,
  BENCH_WORD_INPUTS,
  BENCH_WORD_DEVICE
} bench_kind;

/* When there is a value; else it is null. */
typedef enum bench_when {
  BENCH_ALWAYS,
  BENCH_KNOWN,    /* it is not 0 */
  BENCH_TIMED,    /* samples > 0 */
  BENCH_CALLED,   /* there was a first call */
  BENCH_COUNTED,  /* the plan's work is known: bytes > 0 */
  BENCH_RATED,    /* a bound is known */
  BENCH_VERIFIED, /* rows were compared */
} bench_when;

typedef struct bench_field {
  const char *name;
  bench_kind kind;
  bench_when when;
  size_t offset, size; /* in bench_row, bench_context or bench_peaks */
} bench_field;

/* Ended by an entry without a name. */
extern const bench_field bench_row_fields[], bench_context_fields[], bench_peak_fields[];

/* row: NULL for fields of context and peaks. */
int bench_field_has_value(const bench_field *field, const void *base, const bench_row *row);

/* The words of a kind, NULL past the end; NULL for a kind that has none.  A word's place is the value. */
const char *const *bench_kind_words(bench_kind kind);
int bench_word_get(const bench_field *field, const void *base);
void bench_word_set(const bench_field *field, void *base, int value);

#endif
