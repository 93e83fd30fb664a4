/* SPDX-License-Identifier: Apache-2.0 */
/* The one table of cases that every variant runs, and its expansion into jobs: concrete problems with sizes, lengths
 * and a seed.  A row is a problem line, what varies in it, and how its tensors are filled. */
#ifndef CLATTN_TEST_DEVICE_CASES_H
#define CLATTN_TEST_DEVICE_CASES_H

#include <stddef.h>
#include <stdint.h>

#include "clattn.h"
#include "problem.h"

/* How tensors are filled.  Without a bit: scores of order one, a keep mask that keeps three pairs of five at random. */
enum {
  DATA_FAR = 1 << 0,   /* some keys score hundreds: the others' weights underflow */
  DATA_NAN_Q = 1 << 1, /* one element each */
  DATA_INF_Q = 1 << 2,
  DATA_NAN_K = 1 << 3,
  DATA_INF_K = 1 << 4,
  DATA_NAN_V = 1 << 5,
  DATA_INF_V = 1 << 6,
  DATA_MASK_NONE = 1 << 7, /* the keep mask keeps nothing */
  DATA_MASK_ALL = 1 << 8,
  DATA_MASK_ROWS = 1 << 9,      /* whole rows are hidden */
  DATA_MASK_FIRST = 1 << 10,    /* the first 64 keys, at most all but one, are hidden */
  DATA_MASK_LAST = 1 << 11,     /* all but the last key are hidden */
  DATA_BIAS_INF = 1 << 12,      /* a quarter of the bias is -inf */
  DATA_BIAS_PLUS_INF = 1 << 13, /* one entry is +inf */
  DATA_BIAS_LOWEST = 1 << 14,   /* everything is -FLT_MAX: rows are the mean of v */
  DATA_BIAS_HUGE = 1 << 15,     /* one 1e30 in every row, some -1e30 */
  DATA_BIAS_DEEP = 1 << 16,     /* everything is -1e30 */
  DATA_POSITIVE = 1 << 17,      /* q, k and v above zero: sums that only grow */
  DATA_BIAS_LOW = 1 << 18,      /* everything is near -60000: what is made up beside it would weigh more */
  DATA_SINK_NONE = 1 << 19,     /* every sink is -inf */
  DATA_SINK_MIXED = 1 << 20,    /* -inf, 1e30, -1e30, -FLT_MAX, 0 and common ones, head by head */
  DATA_SINK_BAD = 1 << 21,      /* head 0 has +inf, the last one NaN */
  DATA_PAGES_SAME = 1 << 22,    /* every entry of the page table is the same */
  DATA_PAGES_LAST = 1 << 23,    /* every one is the last page */
  DATA_PAGES_BEYOND = 1 << 24,  /* none is a page that exists */
  DATA_BLOCKS_FEW = 1 << 25,    /* the block mask keeps one block of ten */
  DATA_BLOCKS_FIRST = 1 << 26,  /* it hides the first key block, wherever there are others */
  DATA_ZERO_ROWS = 1 << 27      /* three rows of ten of q, k and v are zero */
};

/* The arrays that an enqueue may bring. */
typedef enum job_array {
  ARRAY_Q_LENGTHS,
  ARRAY_K_LENGTHS,
  ARRAY_Q_OFFSETS,
  ARRAY_PREFIX,
  ARRAY_CU_Q,
  ARRAY_CU_K,
  JOB_ARRAYS
} job_array;

/* What is on the device: a bit per array, two more for scalars. */
enum {
  ON_DEVICE_ARRAYS = (1 << JOB_ARRAYS) - 1,
  ON_DEVICE_SCALE = 1 << JOB_ARRAYS,
  ON_DEVICE_SOFTCAP = 2 << JOB_ARRAYS,
  ON_DEVICE_ALL = (4 << JOB_ARRAYS) - 1,
  ON_DEVICE_WILD = 4 << JOB_ARRAYS /* entries at the edge of their range are brought as numbers far beyond it */
};

typedef struct device_case {
  const char *name;
  const char *line;    /* problem text; outputs and stage are chosen by the runs */
  const char *vary[2]; /* "key=value|value|...": the row stands for every combination */
  unsigned data;
  const char *q_lengths, *k_lengths, *q_offsets; /* entries, repeated over the batch; -1 is "full"; NULL: not given */
  const char *prefix;                            /* entries, repeated over the batch */
  const char *rows_q, *rows_k;                   /* rows of the packed sequences, repeated; -1 is all that is left */
  unsigned on_device;                            /* ON_DEVICE_ bits */
  int check_contents;                            /* 1: the plan checks them */
  const char *sizes;                             /* "batch,q_len,k_len" of the enqueue; NULL: the bounds */
  float scale, softcap;                          /* not 0: given with the enqueue; a softcap below 0 counts as none */
  int random;                                    /* > 0: so many problems are drawn; then only name and this count */
  int full;                                      /* 1: belongs to the long part */
  int types;                                     /* 1: o is always asked for, since programs without it are others */
  int stages; /* stages of scores compared per job; 0: all four, or two where jobs are many */
} device_case;

extern const device_case device_cases[];
extern const size_t device_case_count;
extern const device_case device_type_cases[]; /* types and similarities have programs of their own */
extern const size_t device_type_case_count;
/* A value of .vary for every class of head dimensions. */
#define EVERY_DIM "d=20 dv=7|50 dv=64|128 dv=100|256 dv=200|300 dv=1000|1100 dv=40"

#define JOB_MAX_BATCH 128

typedef struct job_ints {
  int given;
  size_t count;
  int32_t entry[JOB_MAX_BATCH + 1];   /* those that count */
  int32_t brought[JOB_MAX_BATCH + 1]; /* those that the enqueue brings; other ones where the device has to clamp them */
} job_ints;

/* One concrete problem. */
typedef struct device_job {
  char line[2048];
  clattn_problem problem; /* as parsed; outputs and stage are not set yet */
  clattn_problem resolved;
  clattni_sizes sizes;
  unsigned data;
  uint64_t seed;
  int sizes_given;
  job_ints array[JOB_ARRAYS];
  unsigned on_device;
  int check_contents;
  float scale, softcap; /* those that count */
  int scale_given, softcap_given;
  float softcap_brought;
  int stages;
  int with_o; /* 1: every run asks for o */
} device_job;

size_t device_case_jobs(const device_case *row);
/* Fills job number index of a row; 0 (with a message printed) if the row's text is wrong. */
int device_case_job(const device_case *row, size_t index, device_job *job);

/* What drawn problems of one program share, by the words of problem lines, and how large they are to be. */
typedef struct draw_mix {
  const char *q, *k, *v, *o, *bias, *k_scale, *v_scale; /* types; of scales NULL where there are none */
  const char *words;                                    /* more of the line */
  int biased;                                           /* 1: each has a bias, whose type the program knows */
  int64_t least, most;                                  /* of the larger head dimension */
  int64_t rows, keys;                                   /* of a tile */
} draw_mix;

/* Of drawn problems: the line and how tensors are filled; and, once the line is parsed, sizes and arrays.  mix: NULL
 * for f32 of any size.  crossing: 1 for two tiles of rows and three of keys at least, in batch entry 0. */
void draw_line(uint64_t seed, int size, const draw_mix *mix, int crossing, device_job *job);
void draw_arrays(uint64_t seed, int crossing, device_job *job);
int device_job_draw(uint64_t seed, const draw_mix *mix, int crossing, device_job *job);
/* Sets everything that follows from the line, then from the arrays and scalars too; 0, with a message, if the line is
 * wrong. */
int device_job_read_line(const char *name, device_job *job);
void device_job_finish(device_job *job);

/* Rows of a packed tensor's sequence, or all rows there are. */
int64_t job_q_rows(const device_job *job, int64_t b);
int64_t job_k_rows(const device_job *job, int64_t b);
/* Lengths of a batch entry; the position of its query row 0; and whether lengths, causal, prefix, window and chunk
 * let its row i see key j: the definition, pair by pair. */
int64_t job_q_len(const device_job *job, int64_t b);
int64_t job_k_len(const device_job *job, int64_t b);
int64_t job_offset(const device_job *job, int64_t b);
int job_sees(const device_job *job, int64_t b, int64_t i, int64_t j);

/* Text that grows; what does not fit is left out. */
typedef struct line_text {
  char *at;
  size_t left;
} line_text;
void put_text(line_text *text, const char *format, ...);

/* A number in [0, 1) that depends on its arguments alone. */
double device_random(uint64_t seed, uint64_t a, uint64_t b);

#endif
