/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles that were measured on a device: the text that tells them, what a tile is for, and which ones are worth a try.
 * No memory, no OpenCL call. */
#ifndef CLATTN_TUNING_H
#define CLATTN_TUNING_H

#include "clattn.h"

#define CLATTNI_TUNING_FORMAT 1
#define CLATTNI_TUNED_MOST 4096 /* tiles of a text: a search goes through them all */

/* What a tile is made of; what its family has not is 0. */
typedef struct clattni_tile {
  int32_t vectors; /* of query rows: kernels/lanes_tile.cl.h */
  int32_t keys, dims;
  int32_t block;  /* keys of a block */
  int32_t gx, gy; /* items of a work-group: kernels/group_tile.cl.h */
} clattni_tile;

/* Rows of a problem, as tiles are chosen by them; above 0 a short problem whose rows fill so many vectors best. */
enum {
  CLATTNI_ROWS_MANY = 0,
  CLATTNI_ROWS_FEW = -1, /* decoding: kernels/few_rows.cl.h on CPU families, up to 8 rows on others */
  CLATTNI_ROWS_SOME = -2 /* less than two tiles of the largest work-group */
};

/* The problems that a tile is for. */
typedef struct clattni_shape_class {
  char variant[32];
  int32_t lanes; /* 0: the family has none */
  int32_t dim;   /* class of head dimensions: the largest of it */
  int32_t rows;
  int32_t causal;
  clattn_dtype k, v;
} clattni_shape_class;

typedef struct clattni_tuned {
  clattni_shape_class of;
  clattni_tile tile;
} clattni_tuned;

typedef struct clattni_tuning {
  const clattni_tuned *entries;
  uint32_t count;
  char foreign[160]; /* why the text is not for this device, empty if it is: then there are no entries */
} clattni_tuning;

/* Entries that a text may have: its lines, at most CLATTNI_TUNED_MOST. */
uint32_t clattni_tuning_lines(const char *text);
/* Reads a text into `entries`, which has room for clattni_tuning_lines, and lives as long as *out.  Mistakes are TEXT
 * with the line; a text of another format, device, driver or version of clattn is read no further than its head. */
clattn_status clattni_tuning_parse(const char *text, const clattn_device_info *device, clattni_tuned *entries,
                                   clattni_tuning *out, clattn_error *error);
/* The tile for a class, or NULL. */
const clattni_tile *clattni_tuning_find(const clattni_tuning *tuning, const clattni_shape_class *of);

/* What a text starts with on a device, and a line of it; the length without the 0, of which no more than the capacity is
 * written. */
size_t clattni_tuning_head(const clattn_device_info *device, char *text, size_t capacity);
size_t clattni_tuning_line(const clattni_tuned *tuned, char *text, size_t capacity);
/* "3 x 8 x 8, blocks of 64": for people. */
void clattni_tile_words(const clattni_tile *tile, char *text, size_t capacity);

/* The tiles that are worth a try, besides the usual one; 0 past the end. */
int clattni_tile_candidate(const clattni_shape_class *of, const clattni_tile *usual, uint32_t index, clattni_tile *out);

#endif
