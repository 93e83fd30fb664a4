/* SPDX-License-Identifier: Apache-2.0 */
/* What heat maps are made of: characters and their widths, colours, bins, and a layout in which nothing overlaps.
 * test_picture_files.c has the files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "picture_colour.h"
#include "picture_layout.h"
#include "picture_unicode.h"

/* ---- characters ---- */

static void decodes(void **state) {
  (void)state;
  const struct {
    const char *text;
    uint32_t code;
    size_t length;
  } cases[] = {{"a", 'a', 1},
               {"\xc3\xa9", 0xe9, 2},
               {"\xe6\xb3\xa8", 0x6ce8, 3},
               {"\xf0\x9f\x98\x80", 0x1f600, 4},
               {"\xf4\x8f\xbf\xbf", 0x10ffff, 4},
               {"\xf4\x90\x80\x80", CLI_NO_CHARACTER, 1}, /* above the last code point */
               {"\xc0\xaf", CLI_NO_CHARACTER, 1},         /* '/' in two bytes */
               {"\xed\xa0\x80", CLI_NO_CHARACTER, 1},     /* half of a pair of UTF-16 */
               {"\xe6\xb3", CLI_NO_CHARACTER, 1},         /* cut */
               {"\x80", CLI_NO_CHARACTER, 1},
               {"\xff", CLI_NO_CHARACTER, 1},
               {"", 0, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const char *at = cases[i].text;
    assert_int_equal(cli_utf8_next(&at), cases[i].code);
    assert_int_equal(at - cases[i].text, cases[i].length);
  }
}

static void keeps_characters_whole(void **state) {
  (void)state;
  const struct {
    const char *first, *rest;
    int columns;
  } cases[] = {{"e\xcc\x81", "x", 1},                                                       /* e and an accent */
               {"\xe4\xb8\xad", "\xe6\x96\x87", 2},                                         /* Chinese */
               {"\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x9a\x80", "a", 2},                    /* joined emoji */
               {"\xf0\x9f\x91\x8d\xf0\x9f\x8f\xbd", "a", 2},                                /* skin tone */
               {"\xf0\x9f\x87\xab\xf0\x9f\x87\xb7", "\xf0\x9f\x87\xa9\xf0\x9f\x87\xaa", 2}, /* flags */
               {"\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab", "a", 2}, /* a Korean syllable in three parts */
               {"\xe0\xa4\x95\xe0\xa4\xbf", "x", 1},             /* Devanagari with its vowel */
               {"a", "\xff", 1}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char text[64];
    snprintf(text, sizeof text, "%s%s", cases[i].first, cases[i].rest);
    assert_int_equal(cli_character_end(text) - text, strlen(cases[i].first));
    assert_int_equal(cli_character_columns(text), cases[i].columns);
  }
  assert_int_equal(cli_width("caf\xc3\xa9"), 4);
  assert_int_equal(cli_width("cafe\xcc\x81"), 4);
  assert_int_equal(cli_width("\xe6\xb3\xa8\xe6\x84\x8f"), 4);
  assert_int_equal(cli_width(""), 0);
}

static void shortens(void **state) {
  (void)state;
  /* Whatever the room: what is kept are whole characters of the text, and they fit. */
  static const char text[] = "e\xcc\x81t\xc3\xa9\xe6\xb3\xa8\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x9a\x80 end";
  for (int tenths = 12; tenths < 90; tenths++) {
    const double room = tenths / 10.0;
    char *short_text = cli_text_shorten(text, room);
    assert_non_null(short_text);
    assert_true(cli_text_width(short_text) <= room + 1e-9);
    char *ellipsis = strstr(short_text, "\xe2\x80\xa6");
    if (ellipsis == NULL) {
      assert_string_equal(short_text, text);
    } else {
      const char *at = text;
      assert_int_equal(ellipsis[3], 0);
      while (at - text < ellipsis - short_text)
        at = cli_character_end(at);
      assert_int_equal(at - text, ellipsis - short_text);
      assert_memory_equal(short_text, text, (size_t)(at - text));
    }
    free(short_text);
  }
  char *clean = cli_text_shorten("a\x01\xff\nb\xc2\x85", 99);
  assert_string_equal(clean, "a\xef\xbf\xbd\xef\xbf\xbd"
                             " b\xef\xbf\xbd");
  /* Widths are those of what is shown. */
  assert_true(cli_text_width("a\x01\xff\nb\xc2\x85") == cli_text_width(clean));
  free(clean);
}

/* ---- colours ---- */

static double linear(uint8_t value) {
  return value <= 10 ? value / 3294.6 : pow((value / 255.0 + 0.055) / 1.055, 2.4);
}

static double luminance(const uint8_t rgb[3]) {
  return 0.2126 * linear(rgb[0]) + 0.7152 * linear(rgb[1]) + 0.0722 * linear(rgb[2]);
}

static double contrast(const uint8_t a[3], const uint8_t b[3]) {
  const double x = luminance(a) + 0.05, y = luminance(b) + 0.05;
  return x > y ? x / y : y / x;
}

/* CIE lightness: what grey print and every kind of colour blindness leave. */
static double lightness(const uint8_t rgb[3]) {
  return 116 * cbrt(luminance(rgb)) - 16;
}

static void colours(void **state) {
  (void)state;
  enum { STEP = 15 };
  for (int dark = 0; dark < 2; dark++) {
    uint8_t rgb[3];
    double before = 0, least = 99, most = 0;
    for (int level = 0; level < CLI_LEVELS; level += STEP) {
      cli_colour(level, dark, rgb);
      const double now = lightness(rgb), change = dark ? now - before : before - now;
      if (level > 0) {
        least = change < least ? change : least;
        most = change > most ? change : most;
      }
      before = now;
    }
    assert_true(least > 2);
    assert_true(most < 1.6 * least);
    const cli_theme *theme = &cli_themes[dark];
    assert_true(contrast(theme->text, theme->ground) > 12);
    assert_true(contrast(theme->muted, theme->ground) > 4.5);
    /* Hardly any weight is another thing than none. */
    cli_colour(0, dark, rgb);
    assert_true(fabs(lightness(rgb) - lightness(theme->ground)) > 3);
    assert_true(rgb[2] < 235 || dark);
  }
}

/* ---- bins ---- */

static float weights[600 * 600];

static cli_picture make_picture(int64_t layers, int64_t heads, int64_t rows, int64_t columns) {
  cli_picture picture;
  cli_picture_init(&picture);
  const int64_t shape[4] = {layers, heads, rows, columns};
  memcpy(picture.shape, shape, sizeof shape);
  picture.stride[3] = 1;
  picture.stride[2] = columns;
  picture.stride[1] = picture.stride[0] = 0; /* every head is the same: the layout does not look at them */
  picture.weights = weights;
  return picture;
}

static void bins(void **state) {
  (void)state;
  cli_cells cells;
  cli_picture picture = make_picture(1, 1, 5, 6);
  for (int i = 0; i < 30; i++)
    weights[i] = (float)i;
  assert_int_equal(cli_cells_make(&picture, 3, 100, &cells), 0);
  assert_int_equal(cells.rows, 3);
  assert_int_equal(cells.columns, 3);
  assert_int_equal(cells.row_bin, 2);
  assert_int_equal(cells.column_bin, 2);
  /* Means of 2 x 2, in the last row of 1 x 2. */
  static const float want[9] = {3.5f, 5.5f, 7.5f, 15.5f, 17.5f, 19.5f, 24.5f, 26.5f, 28.5f};
  assert_memory_equal(cells.data, want, sizeof want);
  assert_true(cells.low == 0 && cells.high == 28.5);
  assert_false(cells.blank);
  assert_int_equal(cli_cell_level(&cells, 0), CLI_CELL_BLANK);
  assert_int_equal(cli_cell_level(&cells, 1e-30f), 0);
  assert_int_equal(cli_cell_level(&cells, 28.5f), CLI_LEVELS - 1);
  assert_int_equal(cli_cell_level(&cells, INFINITY), CLI_CELL_HATCHED);
  cli_cells_release(&cells);

  /* Strides: the columns of every second row of the second head, from right to left. */
  picture = make_picture(1, 1, 2, 6);
  picture.weights = weights + 5;
  picture.stride[2] = 12;
  picture.stride[3] = -1;
  weights[0] = NAN;
  weights[13] = -3;
  assert_int_equal(cli_cells_make(&picture, 8, 100, &cells), 0);
  assert_int_equal(cells.columns, 6);
  assert_true(cells.data[0] == 5 && isnan(cells.data[5]) && cells.data[10] == -3);
  assert_true(cells.hatched && cells.low == -3);
  assert_int_equal(cli_cell_level(&cells, -3), 0);
  assert_true(cli_cell_level(&cells, 0) > 0); /* not blank where numbers below it have colours */
  cli_cells_release(&cells);

  /* The bound on all cells holds for every head's share. */
  picture = make_picture(4, 8, 600, 300);
  assert_int_equal(cli_cells_make(&picture, 256, 32 * 1000, &cells), 0);
  assert_true(cells.rows * cells.columns <= 1000 && cells.rows * cells.columns > 700);
  assert_true(cells.rows * cells.row_bin >= 600 && (cells.rows - 1) * cells.row_bin < 600);
  assert_true(cells.columns * cells.column_bin >= 300 && (cells.columns - 1) * cells.column_bin < 300);
  cli_cells_release(&cells);
}

/* ---- layout ---- */

static int overlap(const cli_box *a, const cli_box *b) {
  return a->x < b->x + b->width && b->x < a->x + a->width && a->y < b->y + b->height && b->y < a->y + a->height;
}

static int inside(const cli_box *a, double width, double height) {
  return a->x >= 0 && a->y >= 0 && a->x + a->width <= width && a->y + a->height <= height;
}

/* Nothing lies on anything, and nothing outside. */
static void check_layout(const cli_layout *l, const char *what) {
  for (size_t i = 0; i < l->word_count; i++) {
    const cli_words *words = &l->words[i];
    const double width = cli_text_width(words->text) * words->size;
    assert_true((words->turned ? words->box.height : words->box.width) >= width - 1e-9);
    if (!inside(&words->box, l->width, l->height))
      fail_msg("%s: '%s' is not in the picture", what, words->text);
    for (size_t j = i + 1; j < l->word_count; j++) {
      if (overlap(&words->box, &l->words[j].box))
        fail_msg("%s: '%s' overlaps '%s'", what, words->text, l->words[j].text);
    }
    for (int64_t j = 0; j < l->cells.heads && words->ink < CLI_INK_ON_LOW; j++) {
      if (overlap(&words->box, &l->panels[j]))
        fail_msg("%s: '%s' lies on head %d", what, words->text, (int)j);
    }
    for (size_t j = 0; j < l->swatch_count; j++)
      assert_false(overlap(&words->box, &l->swatches[j].box));
  }
  for (int64_t i = 0; i < l->cells.heads; i++) {
    assert_true(inside(&l->panels[i], l->width, l->height));
    for (int64_t j = i + 1; j < l->cells.heads; j++)
      assert_false(overlap(&l->panels[i], &l->panels[j]));
  }
}

static const char *const words[] = {"[CLS]",
                                    "the",
                                    "\xe6\xb3\xa8\xe6\x84\x8f\xe5\x8a\x9b",
                                    "na\xc3\xafve",
                                    "WWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWW",
                                    "\xf0\x9f\x98\x80\xf0\x9f\x9a\x80",
                                    "",
                                    "donaudampfschifffahrtsgesellschaft",
                                    "\x02\xff\x1f\x80\x0e\x0f\xc2\x9f\t"};
enum { WORDS = sizeof words / sizeof words[0] };

static void make_labels(cli_labels *labels, int64_t count, int kind) {
  static char long_label[301], same[WORDS][64];
  memset(long_label, 'm', 300);
  labels->count = kind == 0 ? 0 : count;
  labels->text = calloc((size_t)count, sizeof(char *));
  assert_non_null(labels->text);
  for (int64_t i = 0; i < labels->count; i++) {
    snprintf(same[i % WORDS], sizeof same[0], "%s", words[i % WORDS]);
    labels->text[i] = kind == 3 ? long_label : kind == 2 && i % 3 == 1 ? NULL : same[i % WORDS];
  }
}

static void nothing_overlaps(void **state) {
  (void)state;
  static const int64_t shapes[][4] = {{1, 1, 1, 1},    {1, 1, 5, 5},     {1, 1, 12, 12},   {1, 1, 1, 40},
                                      {1, 1, 40, 1},   {1, 1, 100, 100}, {1, 1, 512, 512}, {1, 1, 7, 600},
                                      {1, 1, 300, 20}, {1, 2, 5, 5},     {1, 12, 20, 20},  {6, 1, 9, 30},
                                      {6, 12, 20, 20}, {3, 2, 200, 200}, {2, 9, 1, 300},   {5, 33, 4, 4}};
  for (int i = 0; i < 600 * 600; i++)
    weights[i] = i % 11 == 0 ? 0 : i % 17 == 0 ? NAN : (float)(i % 7) * 0.137f;
  for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
    for (int kind = 0; kind < 4; kind++) {
      cli_labels rows, columns;
      cli_layout layout;
      char what[96];
      cli_picture picture = make_picture(shapes[s][0], shapes[s][1], shapes[s][2], shapes[s][3]);
      make_labels(&rows, shapes[s][2], kind);
      make_labels(&columns, shapes[s][3], kind);
      picture.rows = &rows;
      picture.columns = &columns;
      picture.title = kind == 3 ? rows.text[0] : kind == 1 ? "A title of a few words" : NULL;
      picture.layer_name = kind == 2 ? "batch entry" : "layer";
      picture.first_head = kind == 2 ? 1000000 : 0;
      snprintf(what, sizeof what, "%d x %d heads of %d x %d, labels %d", (int)shapes[s][0], (int)shapes[s][1],
               (int)shapes[s][2], (int)shapes[s][3], kind);
      assert_int_equal(cli_layout_make(&picture, &layout), 0);
      assert_true(layout.word_count >= 4);
      assert_true(layout.cells.rows <= 256 && layout.cells.columns <= 256);
      check_layout(&layout, what);
      cli_layout_release(&layout);
      free(rows.text);
      free(columns.text);
    }
  }
}

/* How often a text is in the picture, which may have broken it into lines. */
static int count_words(const cli_layout *layout, const char *part) {
  static char all[1 << 16];
  size_t used = 0;
  int count = 0;
  for (size_t i = 0; i < layout->word_count; i++)
    used += (size_t)snprintf(all + used, sizeof all - used, " %s", layout->words[i].text);
  assert_true(used < sizeof all);
  for (const char *at = all; (at = strstr(at, part)) != NULL; at++)
    count++;
  return count;
}

static void says_what_is_there(void **state) {
  (void)state;
  cli_layout layout;
  cli_picture picture = make_picture(1, 1, 512, 300);
  for (int i = 0; i < 512 * 300; i++)
    weights[i] = 0.25f;
  assert_int_equal(cli_layout_make(&picture, &layout), 0);
  assert_int_equal(count_words(&layout, "512 x 300 weights, binned 2 x 2: each cell is the mean of 4"), 1);
  assert_int_equal(count_words(&layout, "0.25"), 1);
  assert_int_equal(count_words(&layout, "exactly 0"), 0);
  cli_layout_release(&layout);
  picture = make_picture(2, 3, 4, 4);
  picture.first_layer = 7;
  weights[1] = NAN;
  weights[2] = 0;
  assert_int_equal(cli_layout_make(&picture, &layout), 0);
  assert_int_equal(count_words(&layout, "binned"), 0);
  assert_int_equal(count_words(&layout, "layer 8"), 1);
  assert_int_equal(count_words(&layout, "head 2"), 2);
  assert_int_equal(count_words(&layout, "exactly 0"), 1);
  assert_int_equal(count_words(&layout, "not a finite number"), 1);
  cli_layout_release(&layout);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(decodes),
                                     cmocka_unit_test(keeps_characters_whole),
                                     cmocka_unit_test(shortens),
                                     cmocka_unit_test(colours),
                                     cmocka_unit_test(bins),
                                     cmocka_unit_test(nothing_overlaps),
                                     cmocka_unit_test(says_what_is_there)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
