/* SPDX-License-Identifier: Apache-2.0 */
/* Measured tiles: the text, selection by it, and what tiles do to results.
 *
 * test_tune: with devices that do not exist.  test_tune device [all]: every tile that is worth a try on a few problems
 * against the reference, on the device; all: more problems, types and variants. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "asked.h"
#include "clattn_ref.h"
#include "params.cl.h"
#include "tuning.h"

enum { TEXT_BYTES = 8192, ENTRIES = 64 };

static clattn_device_info cpu(uint32_t width) {
  clattn_device_info device = made_up_device(CL_DEVICE_TYPE_CPU);
  device.native_float_width = width;
  (void)snprintf(device.vendor, sizeof device.vendor, "Vendor & Co.");
  (void)snprintf(device.name, sizeof device.name, "a device  with spaces ");
  (void)snprintf(device.driver, sizeof device.driver, "1.2\n3");
  (void)snprintf(device.version, sizeof device.version, "OpenCL 1.2 made up");
  return device;
}

/* ---- the text -------------------------------------------------------------------------------------------------- */

static const char head[] = "clattn tuning 1\n"
                           "library %s\n"
                           "vendor Vendor & Co.\n"
                           "device a device  with spaces \n"
                           "driver 1.2 3\n"
                           "opencl OpenCL 1.2 made up\n";
static const char many[] = "tile flash-cpu-vector width=16 dim=64 rows=many causal=0 k=f32 v=f32 : vectors=4 keys=6 "
                           "dims=4 block=96";
static const char few[] = "tile flash-cpu-vector width=16 dim=128 rows=few causal=1 k=i8 v=bf16 : vectors=1 keys=8 "
                          "dims=8 block=128";
static const char two[] = "tile flash-cpu-vector width=8 dim=1024 rows=2 causal=0 k=f16 v=i4 : vectors=2 keys=12 "
                          "dims=8 block=96";
static const char groups[] = "tile three-step dim=32 rows=some causal=0 k=f32 v=f32 : gx=8 gy=16";

static const char *with_head(const char *lines) {
  static char text[TEXT_BYTES];
  const int length = snprintf(text, sizeof text, head, clattn_version());
  (void)snprintf(text + length, sizeof text - (size_t)length, "%s", lines);
  return text;
}

static clattn_status parse(const char *text, clattni_tuning *tuning, clattn_error *error) {
  static clattni_tuned entries[ENTRIES];
  const clattn_device_info device = cpu(16);
  clattn_error_init(error);
  assert_true(clattni_tuning_lines(text) <= ENTRIES);
  memset(entries, 0x5a, sizeof entries);
  return clattni_tuning_parse(text, &device, entries, tuning, error);
}

static void what_is_written_is_read(void **state) {
  (void)state;
  const char *const lines[] = {many, few, two, groups};
  clattni_tuning tuning;
  clattn_error error;
  char text[TEXT_BYTES], line[512];
  const clattn_device_info device = cpu(16);
  const size_t length = clattni_tuning_head(&device, text, sizeof text);
  assert_int_equal(length, strlen(text));
  assert_string_equal(text, with_head(""));
  assert_int_equal(clattni_tuning_head(&device, line, 20), length); /* cut, and its whole length */
  assert_int_equal(strlen(line), 19);
  assert_int_equal(parse(text, &tuning, &error), CLATTN_SUCCESS);
  assert_int_equal(tuning.count, 0);
  (void)snprintf(line, sizeof line, "# a comment\n\n%s\r\n%s\n#\n%s\n\n%s", many, few, two, groups); /* no last end */
  assert_int_equal(parse(with_head(line), &tuning, &error), CLATTN_SUCCESS);
  assert_string_equal(tuning.foreign, "");
  assert_int_equal(tuning.count, 4);
  for (uint32_t n = 0; n < tuning.count; ++n) {
    char again[512];
    assert_int_equal(clattni_tuning_line(&tuning.entries[n], again, sizeof again), strlen(lines[n]));
    assert_string_equal(again, lines[n]);
    assert_ptr_equal(clattni_tuning_find(&tuning, &tuning.entries[n].of), &tuning.entries[n].tile);
    assert_int_equal(clattni_tuning_line(&tuning.entries[n], again, 10), strlen(lines[n]));
    assert_int_equal(strlen(again), 9);
  }
  assert_null(clattni_tuning_find(NULL, &tuning.entries[0].of));
}

static void texts_of_others(void **state) {
  (void)state;
  static const char *const names[] = {"library", "vendor", "device", "driver", "opencl"};
  clattni_tuning tuning;
  clattn_error error;
  for (size_t n = 0; n < sizeof names / sizeof names[0]; ++n) {
    char text[TEXT_BYTES], other[2 * TEXT_BYTES + 64], want[64];
    (void)snprintf(text, sizeof text, "%s", with_head("tile of another release, which has other words\n"));
    char *at = strstr(text, names[n]);
    assert_non_null(at);
    *strchr(at, '\n') = 0;
    (void)snprintf(other, sizeof other, "%s+%s", text, with_head("") + strlen(text));
    (void)snprintf(other + strlen(other), sizeof other - strlen(other), "tile of another release\n");
    assert_int_equal(parse(other, &tuning, &error), CLATTN_SUCCESS);
    assert_int_equal(tuning.count, 0);
    (void)snprintf(want, sizeof want, "%s is '", names[n]);
    if (strncmp(tuning.foreign, want, strlen(want)) != 0 || strstr(tuning.foreign, "+', here it is '") == NULL)
      fail_msg("%s: '%s'", names[n], tuning.foreign);
  }
}

/* Another format is another version's. */
static void other_formats(void **state) {
  (void)state;
  static const char *const texts[] = {"clattn tuning 2", "clattn tuning 2\n", "clattn tuning 2\r\nwhat it has\n"};
  clattni_tuning tuning;
  clattn_error error;
  for (size_t n = 0; n < sizeof texts / sizeof texts[0]; ++n) {
    assert_int_equal(parse(texts[n], &tuning, &error), CLATTN_SUCCESS);
    assert_int_equal(tuning.count, 0);
    assert_string_equal(tuning.foreign, "format is '2', here it is '1'");
  }
}

/* However long the texts are, what is told of them differs, and fits into the reason of a plan. */
static void foreign_texts_differ(void **state) {
  (void)state;
  static clattni_tuned entries[ENTRIES];
  clattn_device_info device = cpu(16);
  clattni_tuning tuning;
  clattn_error error;
  clattn_error_init(&error);
  memset(device.driver, 'd', sizeof device.driver);
  memcpy(device.driver, "1.0-", 4);
  device.driver[sizeof device.driver - 1] = 0;
  const size_t length = strlen(device.driver);
  for (size_t place = 0; place <= length; ++place) {
    char text[TEXT_BYTES], theirs[128], here[128], name[16];
    (void)clattni_tuning_head(&device, text, sizeof text);
    char *driver = strstr(text, "\ndriver ");
    assert_non_null(driver);
    if (place < length)
      driver[8 + place] = 'x';
    else
      memmove(driver + 8 + length - 1, driver + 8 + length, strlen(driver + 8 + length) + 1); /* shorter */
    assert_int_equal(clattni_tuning_parse(text, &device, entries, &tuning, &error), CLATTN_SUCCESS);
    assert_int_equal(sscanf(tuning.foreign, "%15s is '%127[^']', here it is '%127[^']'", name, theirs, here), 3);
    assert_string_equal(name, "driver");
    assert_string_not_equal(theirs, here);
    assert_int_equal(place < length, strchr(theirs, 'x') != NULL);
    assert_true(strlen(tuning.foreign) <= 100);
  }
}

/* As many tiles as a text may have, and one more; comments do not count. */
static void many_tiles(void **state) {
  (void)state;
  static const int dims[] = {32, 64, 128, 256, 1024};
  static const char *const types[] = {"f32", "f16", "bf16", "i8", "i4"};
  static const char *const families[] = {"flash-cpu-vector width=4", "flash-cpu-vector width=8",
                                         "flash-cpu-vector width=16"};
  enum { TYPES = sizeof types / sizeof types[0], ROWS = 6, BYTES = 1 << 20 };
  clattni_tuned *entries = calloc(CLATTNI_TUNED_MOST, sizeof *entries);
  char *text = malloc(BYTES);
  clattni_tuning tuning;
  clattn_error error;
  const clattn_device_info device = cpu(16);
  size_t length;
  clattn_error_init(&error);
  assert_non_null(entries);
  assert_non_null(text);
  for (int most = CLATTNI_TUNED_MOST; most <= CLATTNI_TUNED_MOST + 1; ++most) {
    length = (size_t)snprintf(text, BYTES, "%s", with_head(""));
    for (int n = 0; n < most; ++n) {
      const int rows = n % ROWS, dim = n / ROWS % 5, causal = n / ROWS / 5 % 2, k = n / ROWS / 10 % TYPES,
                v = n / ROWS / 10 / TYPES % TYPES, family = n / ROWS / 10 / TYPES / TYPES;
      static const char *const names[ROWS] = {"many", "few", "1", "2", "3", "4"};
      static const char *const tiles[ROWS] = {"2 keys=8 dims=8 block=64", "1 keys=8 dims=8 block=64",
                                              "1 keys=8 dims=8 block=64", "2 keys=8 dims=8 block=64",
                                              "3 keys=8 dims=8 block=64", "4 keys=4 dims=4 block=64"};
      assert_true(family < 3);
      length += (size_t)snprintf(text + length, BYTES - length,
                                 "tile %s dim=%d rows=%s causal=%d k=%s v=%s : vectors=%s\n#\n", families[family],
                                 dims[dim], names[rows], causal, types[k], types[v], tiles[rows]);
      assert_true(length < BYTES);
    }
    assert_int_equal(clattni_tuning_lines(text), CLATTNI_TUNED_MOST);
    const clattn_status status = clattni_tuning_parse(text, &device, entries, &tuning, &error);
    assert_int_equal(tuning.count, CLATTNI_TUNED_MOST);
    if (most == CLATTNI_TUNED_MOST && status != CLATTN_SUCCESS)
      fail_msg("%s", error.message);
    if (most > CLATTNI_TUNED_MOST) {
      assert_int_equal(status, CLATTN_ERROR_TEXT);
      assert_non_null(strstr(error.message, "more than 4096 tiles"));
    }
  }
  free(entries);
  free(text);
}

static void garbled_texts(void **state) {
  (void)state;
#define CLASS "tile flash-cpu-vector width=16 dim=64 rows=many causal=0 k=f32 v=f32"
#define TILE " : vectors=2 keys=8 dims=8 block=64"
  static const struct {
    const char *lines, *message;
  } rows[] = {
      {"tile", "line 7: \"tile\" is neither"},
      {"Tile x", "line 7: \"Tile x\" is neither 'tile ...' nor a comment"},
      {"\n\n# x\nnonsense", "line 10: \"nonsense\" is neither"},
      {" " CLASS TILE, "is neither"},
      {"tile ", "line 7: no class of problems"},
      {"tile a-name-that-is-longer-than-all-names-of-variants width=16", "no class of problems"},
      {"tile flash-cpu-vector", "no class of problems"},
      {"tile flash-cpu-vecto width=16 dim=64 rows=many causal=0 k=f32 v=f32" TILE,
       "line 7: no variant is called \"flash-cpu-vecto\""},
      {"tile flash-cpu-vector width=5 dim=64 rows=many causal=0 k=f32 v=f32" TILE, "no class of problems at \" dim=64"},
      {"tile flash-cpu-vector width=16 dim=65 rows=many causal=0 k=f32 v=f32" TILE, "no class of problems at \" rows"},
      {"tile flash-cpu-vector width=16 dim=064 rows=many causal=0 k=f32 v=f32" TILE, "no class of problems"},
      {"tile flash-cpu-vector width=16 dim=99999999999 rows=many causal=0 k=f32 v=f32" TILE, "no class of problems"},
      {"tile flash-cpu-vector width=16 dim=64 rows=lots causal=0 k=f32 v=f32" TILE, "no class of problems at \"lots"},
      {"tile flash-cpu-vector width=16 dim=64 rows=0 causal=0 k=f32 v=f32" TILE, "no class of problems"},
      {"tile flash-cpu-vector width=16 dim=64 rows=5 causal=0 k=f32 v=f32" TILE, "no class of problems"},
      {"tile flash-cpu-vector width=16 dim=64 rows=some causal=0 k=f32 v=f32" TILE, "no class of problems"},
      {"tile flash-gpu-simt dim=64 rows=1 causal=0 k=f32 v=f32 : gx=16 gy=8", "no class of problems"},
      {"tile flash-cpu-vector width=16 dim=64 rows=many causal=2 k=f32 v=f32" TILE, "no class of problems"},
      {"tile flash-cpu-vector width=16 dim=64 rows=many causal=0 k=f64 v=f32" TILE, "no class of problems"},
      {"tile flash-cpu-vector width=16 dim=64 rows=many causal=0 k=f32 v=" TILE, "no class of problems"},
      {"tile flash-cpu-vector width=16 dim=64 causal=0 rows=many k=f32 v=f32" TILE, "no class of problems"},
      {CLASS, "\"\" stands where ' :'"},
      {CLASS " vectors=2", "\" vectors=2\" stands where ' :'"},
      {CLASS " :", "\"\" is no tile"},
      {CLASS " : vectors=2 keys=8", "\" vectors=2 keys=8\" is no tile"},
      {CLASS " : vectors=2 keys=7 dims=8 block=64", "is no tile"},
      {CLASS " : vectors=1 keys=8 dims=8 block=64", "is no tile"}, /* of few rows */
      {CLASS " : vectors=9 keys=8 dims=8 block=64", "is no tile"},
      {CLASS " : keys=8 vectors=2 dims=8 block=64", "is no tile"},
      {CLASS " : gx=16 gy=8", "is no tile"},
      {"tile three-step dim=64 rows=many causal=0 k=f32 v=f32" TILE, "is no tile"},
      {"tile three-step dim=64 rows=many causal=0 k=f32 v=f32 : gx=7 gy=8", "is no tile"},
      {CLASS TILE " ", "\" \" is left over"},
      {CLASS TILE "0", "is no tile"},
      {CLASS TILE "\n" CLASS " : vectors=3 keys=8 dims=8 block=128\n", "line 8: a second tile for the same problems"},
  };
  static const char *const heads[][2] = {{"", "line 1: no tuning text: the first line must be 'clattn tuning 1'"},
                                         {"clattn\n", "line 1: no tuning text"},
                                         {"\nclattn tuning 1\n", "line 1: no tuning text"},
                                         {"clattn tuning \n", "line 1: no tuning text"},
                                         {"clattn tuning 01\n", "line 1: no tuning text"},
                                         {"clattn tuning 2 \n", "line 1: no tuning text"},
                                         {"clattn tuning 1 \n", "line 1: no tuning text"},
                                         {"clattn tuning one\n", "line 1: no tuning text"},
                                         {"clattn tuning 1\nvendor x\n", "line 2: \"vendor x\" stands where 'library"},
                                         {"clattn tuning 1\nlibraryx\n", "stands where 'library ...' should"},
                                         {"clattn tuning 1\n# x\n", "line 3: the text ends where 'library"}};
  clattni_tuning tuning;
  clattn_error error;
  for (size_t n = 0; n < sizeof rows / sizeof rows[0]; ++n) {
    assert_int_equal(parse(with_head(rows[n].lines), &tuning, &error), CLATTN_ERROR_TEXT);
    if (strstr(error.message, rows[n].message) == NULL || strncmp(error.message, "tuning_text, line ", 18) != 0)
      fail_msg("%s: '%s', not '%s'", rows[n].lines, error.message, rows[n].message);
  }
  for (size_t n = 0; n < sizeof heads / sizeof heads[0]; ++n) {
    assert_int_equal(parse(heads[n][0], &tuning, &error), CLATTN_ERROR_TEXT);
    if (strstr(error.message, heads[n][1]) == NULL)
      fail_msg("%s: '%s'", heads[n][0], error.message);
  }
  /* cut anywhere: nothing but ends of lines are good ends */
  char whole[TEXT_BYTES], part[TEXT_BYTES];
  (void)snprintf(whole, sizeof whole, "%s", with_head(many));
  for (size_t length = 0; length < strlen(whole); ++length) {
    (void)snprintf(part, sizeof part, "%.*s", (int)length, whole);
    const clattn_status status = parse(part, &tuning, &error);
    const int good = status == CLATTN_SUCCESS && tuning.foreign[0] == 0;
    assert_int_equal(good, length >= strlen(with_head("")) - 1 && length <= strlen(with_head("")));
  }
  char longest[700];
  memset(longest, 'x', sizeof longest);
  longest[sizeof longest - 1] = 0;
  assert_int_equal(parse(with_head(longest), &tuning, &error), CLATTN_ERROR_TEXT);
  assert_non_null(strstr(error.message, "line 7: longer than 511 bytes"));
  longest[0] = '#'; /* a comment may be */
  assert_int_equal(parse(with_head(longest), &tuning, &error), CLATTN_SUCCESS);
#undef CLASS
#undef TILE
}

/* ---- selection ------------------------------------------------------------------------------------------------- */

/* Selection with one tile for each class that the problem could be in. */
static void begin_tuned(asked *a, const char *line, uint32_t width, const char *variant, clattni_tuned *tuned,
                        clattni_tuning *tuning) {
  begin(a, line, CL_DEVICE_TYPE_CPU);
  a->device.native_float_width = width;
  a->request.variant = variant;
  picks(a, variant, "by name");
  assert_null(strstr(a->choice.why, "tuned"));
  memset(tuning, 0, sizeof *tuning);
  *tuned = a->choice.tile;
  tuning->entries = tuned;
  tuning->count = 1;
}

static int option(const char *options, const char *name) {
  int value = 0;
  const char *at = strstr(options, name);
  return at != NULL && sscanf(at + strlen(name), "=%d", &value) == 1 ? value : 0;
}

static void lanes_by_tuning(void **state) {
  (void)state;
  static const char *const lines[] = {"sq=1 sk=4096 d=128", "hq=8 hkv=2 sq=1 sk=300 d=64 k=i8 v=i8", "sq=20 sk=77 d=40",
                                      "sq=49 sk=49 d=300 causal=1", "sq=5000 sk=5000 d=64 causal=1 k=f16 v=bf16"};
  static const uint32_t widths[] = {4, 8, 16};
  for (size_t n = 0; n < sizeof lines / sizeof lines[0]; ++n)
    for (size_t w = 0; w < 3; ++w) {
      asked a;
      clattni_tuned tuned;
      clattni_tuning tuning;
      uint32_t count = 0;
      begin_tuned(&a, lines[n], widths[w], "flash-cpu-vector", &tuned, &tuning);
      const clattni_choice usual = a.choice;
      a.request.tuning = &tuning;
      for (; clattni_tile_candidate(&tuned.of, &usual.tile.tile, count, &tuned.tile); ++count) {
        picks(&a, "flash-cpu-vector", "; tuned: ");
        assert_int_equal(a.choice.tuned, 1);
        assert_int_equal(option(a.choice.options, "LANES"), (int)widths[w]);
        assert_int_equal(option(a.choice.options, "MQ"), tuned.tile.vectors);
        assert_int_equal(option(a.choice.options, "NK"), tuned.tile.keys);
        assert_int_equal(option(a.choice.options, "ND"), tuned.tile.dims);
        assert_int_equal(option(a.choice.options, "DIM"), option(usual.options, "DIM"));
        assert_int_equal(option(a.choice.options, "FEW"), option(usual.options, "FEW"));
        assert_int_equal(option(a.choice.options, "KEY_BLOCK"),
                         tuned.tile.block == CLATTN_KEY_BLOCK ? 0 : tuned.tile.block);
        /* what the kernel takes for granted */
        assert_int_equal(a.choice.rows, (int)widths[w] * tuned.tile.vectors);
        assert_int_equal(a.choice.key_multiple, tuned.tile.keys);
        assert_int_equal(a.choice.keys_per_chunk, tuned.tile.block);
        assert_int_equal(tuned.tile.block % tuned.tile.keys, 0);
        assert_true(tuned.tile.dims == 4 || tuned.tile.dims == 8);
        assert_int_equal(a.choice.pack, usual.pack);
        assert_true(tuned.of.rows == CLATTNI_ROWS_MANY || tuned.tile.vectors == usual.tile.tile.vectors);
        assert_string_equal(clattni_tuning_find(&tuning, &tuned.of) != NULL ? a.choice.variant->name : "",
                            tuned.of.variant);
      }
      assert_true(count >= 3);
      /* another class is not tuned, and the reason says so */
      clattni_shape_class *of = &tuned.of;
      const clattni_shape_class right = *of;
      for (int part = 0; part < 7; ++part) {
        *of = right;
        of->lanes += part == 0 ? 4 : 0;
        of->dim += part == 1 ? 1 : 0;
        of->rows += part == 2 ? 1 : 0;
        of->causal ^= part == 3;
        of->k ^= part == 4;
        of->v ^= part == 5;
        of->variant[0] = part == 6 ? 'x' : of->variant[0];
        picks(&a, "flash-cpu-vector", "; not tuned");
        assert_string_equal(a.choice.options, usual.options);
        assert_int_equal(a.choice.rows, usual.rows);
      }
    }
}

/* Whatever the text says, such problems have the tile that they have without it: a row's bits may not depend on which
 * class the rows around it make. */
static void not_tuned(void **state) {
  (void)state;
  static const char *const lines[] = {"sq=%d sk=500 d=64 flags=batch_invariant", "sq=%d sk=500 d=64 sim=cosine",
                                      "sq=%d sk=500 d=64 sim=additive",
                                      "sq=%d sk=500 d=64 rope=half rope_positions=5000"};
  static const int rows[] = {1, 8, 9, 17, 40, 100, 1000, 5000};
  static clattni_tuned all[ENTRIES];
  for (size_t n = 0; n < sizeof lines / sizeof lines[0]; ++n)
    for (uint32_t v = 0; clattni_variant_at(v) != NULL; ++v)
      for (size_t r = 0; r < sizeof rows / sizeof rows[0]; ++r) {
        const char *variant = clattni_variant_at(v)->name;
        char line[128];
        asked a;
        clattni_tuned tuned;
        clattni_tuning tuning;
        if (strcmp(clattni_variant_at(v)->family, "matrix") == 0)
          continue; /* has one tile, and takes none of these problems */
        (void)snprintf(line, sizeof line, lines[n], rows[r]);
        begin_tuned(&a, line, 16, variant, &tuned, &tuning);
        assert_string_equal(tuned.of.variant, "");
        const clattni_choice usual = a.choice;
        /* all classes of rows, each with its last tile */
        tuning.entries = all;
        tuning.count = 0;
        for (int32_t class = CLATTNI_ROWS_SOME; class <= 3; ++class) {
          clattni_tuned *entry = &all[tuning.count++];
          memset(entry, 0, sizeof *entry);
          (void)snprintf(entry->of.variant, sizeof entry->of.variant, "%s", variant);
          entry->of.lanes = clattni_variant_at(v)->shape == CLATTNI_SHAPE_LANES ? 16 : 0;
          entry->of.dim = 64;
          entry->of.rows = class;
          for (uint32_t i = 0; clattni_tile_candidate(&entry->of, &usual.tile.tile, i, &entry->tile); ++i)
            continue;
        }
        a.request.tuning = &tuning;
        picks(&a, variant, "; not tuned");
        assert_int_equal(a.choice.tuned, 0);
        assert_string_equal(a.choice.options, usual.options);
        assert_int_equal(a.choice.rows, usual.rows);
        assert_int_equal(a.choice.keys_per_chunk, usual.keys_per_chunk);
        assert_int_equal(a.choice.workspace_bytes, usual.workspace_bytes);
        /* the text does count for others */
        begin_tuned(&a, "sq=20 sk=500 d=64", 16, variant, &tuned, &tuning);
        tuning.entries = all;
        tuning.count = 6;
        a.request.tuning = &tuning;
        a.device.local_bytes = 65536; /* enough for all */
        picks(&a, variant, strcmp(variant, "three-step-cpu") == 0 ? "; not tuned" : "; tuned: ");
      }
}

static void groups_by_tuning(void **state) {
  (void)state;
  static const char *const variants[] = {"three-step", "flash-gpu-simt"};
  for (size_t v = 0; v < 2; ++v)
    for (int sq = 4; sq < 1000; sq *= 8) {
      asked a;
      char line[64];
      clattni_tuned tuned;
      clattni_tuning tuning;
      uint32_t count = 0;
      (void)snprintf(line, sizeof line, "hq=8 hkv=2 sq=%d sk=100 d=40 dv=100", sq);
      begin_tuned(&a, line, 16, variants[v], &tuned, &tuning);
      assert_int_equal(tuned.of.rows, sq <= 8 ? CLATTNI_ROWS_FEW : sq < 128 ? CLATTNI_ROWS_SOME : CLATTNI_ROWS_MANY);
      assert_int_equal(tuned.of.dim, 128);
      a.request.tuning = &tuning;
      const clattni_tile usual = tuned.tile;
      for (; clattni_tile_candidate(&tuned.of, &usual, count, &tuned.tile); ++count) {
        const int gx = tuned.tile.gx, gy = tuned.tile.gy;
        a.device.max_work_group = 256;
        a.device.local_bytes = 65536;
        picks(&a, variants[v], "; tuned: work-groups of ");
        assert_int_equal(option(a.choice.options, "GX"), gx);
        assert_int_equal(option(a.choice.options, "GY"), gy);
        assert_int_equal(option(a.choice.options, "VC"), v == 0 ? 0 : 100 > 4 * gx ? 8 : 4);
        assert_int_equal(a.choice.gx, gx);
        assert_int_equal(a.choice.rows, 8 * gy);
        assert_int_equal(a.choice.keys_per_chunk, 4 * gx);
        assert_true(gx % 8 == 0 && gx * gy >= 32 && gx * gy <= 256);
        /* a smaller device takes the usual ones */
        a.device.max_work_group = 32;
        picks(&a, variants[v], gx * gy == 32 ? "; tuned: " : "; not tuned");
        assert_int_equal(a.choice.gx * a.choice.gy, 32);
        a.device.max_work_group = 31;
        refuses(&a, CLATTN_ERROR_VARIANT_UNFIT, "needs work-groups of 32 items");
      }
      assert_true(count >= 4);
    }
}

static void foreign_is_told(void **state) {
  (void)state;
  asked a;
  clattni_tuned tuned;
  clattni_tuning tuning;
  begin_tuned(&a, "sq=20 sk=77 d=40", 16, "flash-cpu-vector", &tuned, &tuning);
  tuning.count = 0;
  (void)snprintf(tuning.foreign, sizeof tuning.foreign, "driver is 'a', here it is 'b'");
  a.request.tuning = &tuning;
  picks(&a, "flash-cpu-vector", "; not tuned: of the tuning driver is 'a', here it is 'b'");
  a.request.variant = NULL;
  picks(&a, "flash-cpu-vector", "; not tuned: of the tuning driver is 'a', here it is 'b'");
}

/* ---- on the device --------------------------------------------------------------------------------------------- */

typedef struct bench {
  clattn_problem problem;
  cl_context cl;
  cl_command_queue queue;
  cl_mem buffer[4]; /* q, k, v, o */
  size_t elements[4];
  size_t bytes; /* of an element of o */
  float *host[3];
  double *want;
  float *got;
} bench;

static float drawn(void) {
  return (float)made_up_number(-2048, 2047) / 1024.0f;
}

/* f32 tensors alone: what is stored in other types goes through the program's tests. */
static void open_bench(bench *b, clattn_context *context, const char *line) {
  cl_device_id device = NULL;
  cl_int code = CL_SUCCESS;
  clattn_ref_args ref;
  memset(b, 0, sizeof *b);
  b->problem = problem_of(line);
  assert_int_equal(clattn_context_handles(context, &b->cl, &device), CLATTN_SUCCESS);
  b->queue = clCreateCommandQueue(b->cl, device, 0, &code);
  assert_int_equal(code, CL_SUCCESS);
  const clattn_problem *p = &b->problem;
  const int64_t counts[4] = {p->q_heads * p->q_len * p->qk_dim, p->kv_heads * p->k_len * p->qk_dim,
                             p->kv_heads * p->k_len * p->v_dim, p->q_heads * p->q_len * p->v_dim};
  for (int i = 0; i < 4; ++i) {
    b->elements[i] = (size_t)counts[i];
    if (i < 3) {
      b->host[i] = malloc(b->elements[i] * sizeof(float));
      assert_non_null(b->host[i]);
      for (size_t e = 0; e < b->elements[i]; ++e)
        b->host[i][e] = drawn();
    }
    b->buffer[i] =
        clCreateBuffer(b->cl, i < 3 ? (cl_mem_flags)(CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR) : CL_MEM_WRITE_ONLY,
                       b->elements[i] * sizeof(float), i < 3 ? b->host[i] : NULL, &code);
    assert_int_equal(code, CL_SUCCESS);
  }
  b->want = malloc(b->elements[3] * sizeof *b->want);
  b->got = malloc(b->elements[3] * sizeof *b->got);
  assert_true(b->want != NULL && b->got != NULL);
  clattn_ref_args_init(&ref);
  ref.q = b->host[0];
  ref.k = b->host[1];
  ref.v = b->host[2];
  ref.o = b->want;
  assert_int_equal(clattn_ref_attention(&b->problem, &ref), CLATTN_SUCCESS);
}

static void close_bench(bench *b) {
  for (int i = 0; i < 4; ++i)
    (void)clReleaseMemObject(b->buffer[i]);
  for (int i = 0; i < 3; ++i)
    free(b->host[i]);
  free(b->want);
  free(b->got);
  (void)clReleaseCommandQueue(b->queue);
}

/* Another context on the same OpenCL context; its plan's reason has `why` in it.  Fills got. */
static void compute(bench *b, clattn_context *like, const char *text, const char *variant, const char *why) {
  cl_device_id device = NULL;
  clattn_context *context = NULL;
  clattn_context_options options;
  clattn_plan *plan = NULL;
  clattn_plan_options plan_options;
  clattn_plan_info info;
  clattn_args args;
  clattn_error error;
  clattn_error_init(&error);
  clattn_context_options_init(&options);
  options.tuning_text = text;
  assert_int_equal(clattn_context_handles(like, NULL, &device), CLATTN_SUCCESS);
  if (clattn_context_create(b->cl, device, &options, &context, &error) != CLATTN_SUCCESS)
    fail_msg("%s", error.message);
  clattn_plan_options_init(&plan_options);
  plan_options.variant = variant;
  if (clattn_plan_create(context, &b->problem, &plan_options, &plan, &error) != CLATTN_SUCCESS)
    fail_msg("%s: %s", text, error.message);
  clattn_plan_info_init(&info);
  assert_int_equal(clattn_plan_get_info(plan, &info), CLATTN_SUCCESS);
  if (strstr(info.why, why) == NULL)
    fail_msg("%s: %s", why, info.why);
  clattn_args_init(&args);
  args.q = clattn_buffer(b->buffer[0], 0);
  args.k = clattn_buffer(b->buffer[1], 0);
  args.v = clattn_buffer(b->buffer[2], 0);
  args.o = clattn_buffer(b->buffer[3], 0);
  args.error = &error;
  if (clattn_enqueue(plan, b->queue, &args, 0, NULL, NULL) != CLATTN_SUCCESS)
    fail_msg("%s: %s", text, error.message);
  assert_int_equal(
      clEnqueueReadBuffer(b->queue, b->buffer[3], CL_TRUE, 0, b->elements[3] * sizeof(float), b->got, 0, NULL, NULL),
      CL_SUCCESS);
  clattn_plan_release(plan);
  clattn_context_release(context);
}

static clattn_context *plain_context(char *text) {
  clattn_context *context = NULL;
  clattn_error error;
  size_t length = 0;
  clattn_error_init(&error);
  if (clattn_context_create_default(NULL, &context, &error) != CLATTN_SUCCESS)
    fail_msg("%s", error.message);
  assert_int_equal(clattn_tuning_head(context, text, TEXT_BYTES, &length), CLATTN_SUCCESS);
  assert_int_equal(length, strlen(text));
  return context;
}

/* Every tile of a problem's class gives what the reference gives. */
static void every_tile(const char *line, const char *variant) {
  char text[TEXT_BYTES];
  clattn_context *context = plain_context(text);
  clattn_error error;
  bench b;
  const size_t start = strlen(text);
  uint32_t count = 0;
  clattn_error_init(&error);
  open_bench(&b, context, line);
  for (;; ++count) {
    size_t length = 0;
    if (clattn_tuning_candidate(context, &b.problem, variant, count, text + start, TEXT_BYTES - start - 1, &length,
                                &error) != CLATTN_SUCCESS)
      fail_msg("%s", error.message);
    if (length == 0)
      break;
    compute(&b, context, text, variant, "; tuned: ");
    for (size_t e = 0; e < b.elements[3]; ++e)
      if (!(fabs((double)b.got[e] - b.want[e]) <= 4e-6))
        fail_msg("%s, %s: element %zu is %.9g, not %.9g", line, text + start, e, (double)b.got[e], b.want[e]);
  }
  print_message("%s: %u tiles\n", line, (unsigned)count);
  assert_true(count >= 3);
  close_bench(&b);
  clattn_context_release(context);
}

static void tiles_of_few_rows(void **state) {
  (void)state;
  every_tile("hq=4 hkv=2 sq=1 sk=203 d=16 dv=19", NULL);
  every_tile("hq=4 hkv=2 sq=1 sk=5203 d=16 dv=19", NULL); /* keys in parts */
}

static void tiles_of_short_problems(void **state) {
  (void)state;
  every_tile("hq=2 sq=30 sk=150 d=20 causal=1 off=bottom_right", NULL);
}

static void tiles_of_many_rows(void **state) {
  (void)state;
  every_tile("sq=1100 sk=141 d=40 dv=30", NULL);
}

static void tiles_of_work_groups(void **state) {
  (void)state;
  every_tile("hq=2 sq=30 sk=150 d=20 dv=70 causal=1", "three-step");
  every_tile("hq=2 sq=30 sk=150 d=20 dv=70 causal=1", "flash-gpu-simt");
  every_tile("hq=4 hkv=2 sq=3 sk=150 d=20", "flash-gpu-simt");
}

/* The same bits for a row alone and among many, with and without a tuning that has other blocks of keys for the two. */
static void invariant_rows(void **state) {
  (void)state;
  static const char *const rows[] = {"few", "1", "2", "3", "many"};
  char text[TEXT_BYTES];
  float alone[2][16];
  clattn_context *context = plain_context(text);
  clattn_device_info info;
  const size_t start = strlen(text);
  size_t length = start;
  clattn_device_info_init(&info);
  assert_int_equal(clattn_context_device_info(context, &info), CLATTN_SUCCESS);
  for (size_t r = 0; r < sizeof rows / sizeof rows[0]; ++r)
    for (int width = 4; width <= 16; width *= 2)
      length +=
          (size_t)snprintf(text + length, sizeof text - length,
                           "tile flash-cpu-vector width=%d dim=32 rows=%s causal=0 k=f32 v=f32 : vectors=%d keys=8 "
                           "dims=8 block=%d\n",
                           width, rows[r],
                           r == 0   ? 1
                           : r == 4 ? 2
                                    : (int)r,
                           r < 3 ? 64 : 256);
  assert_true(length < sizeof text);
  made_up_state = 88172645463325252u; /* the same first row, keys and values */
  for (int many_rows = 0; many_rows < 2; ++many_rows)
    for (int with = 0; with < 2; ++with) {
      bench b;
      open_bench(&b, context,
                 many_rows ? "sq=1100 sk=300 d=16 flags=batch_invariant" : "sq=1 sk=300 d=16 flags=batch_invariant");
      /* inputs that do not depend on how many rows there are */
      for (int i = 0; i < 3; ++i) {
        for (size_t e = 0; e < b.elements[i]; ++e)
          b.host[i][e] = sinf((float)(e % 977) * (float)(i + 1));
        assert_int_equal(clEnqueueWriteBuffer(b.queue, b.buffer[i], CL_TRUE, 0, b.elements[i] * sizeof(float),
                                              b.host[i], 0, NULL, NULL),
                         CL_SUCCESS);
      }
      compute(&b, context, with ? text : NULL, "flash-cpu-vector", with ? "; not tuned" : "by name");
      if (!many_rows)
        memcpy(alone[with], b.got, sizeof alone[with]);
      else
        assert_memory_equal(b.got, alone[0], sizeof alone[0]);
      close_bench(&b);
    }
  assert_memory_equal(alone[0], alone[1], sizeof alone[0]);
  clattn_context_release(context);
}

static char logged[512];

static void keep_line(void *user, int level, const char *line) {
  (void)user;
  (void)snprintf(logged, sizeof logged, "%d: %s", level, line);
}

/* What contexts make of a text. */
static void contexts(void **state) {
  (void)state;
  char text[TEXT_BYTES], line[512];
  clattn_context *context = plain_context(text), *other = NULL;
  clattn_context_options options;
  clattn_error error;
  clattn_problem problem = problem_of("sq=20 sk=77 d=40"),
                 invariant = problem_of("sq=20 sk=77 d=40 flags=batch_invariant");
  cl_context cl = NULL;
  cl_device_id device = NULL;
  size_t length = 7;
  clattn_error_init(&error);
  assert_int_equal(clattn_context_handles(context, &cl, &device), CLATTN_SUCCESS);
  clattn_context_options_init(&options);
  options.log_fn = keep_line;
  options.tuning_text = text;
  assert_int_equal(clattn_context_create(cl, device, &options, &other, &error), CLATTN_SUCCESS);
  assert_string_equal(logged, "");
  clattn_context_release(other);
  (void)snprintf(text + strlen(text), sizeof text - strlen(text), "tile\n");
  assert_int_equal(clattn_context_create(cl, device, &options, &other, &error), CLATTN_ERROR_TEXT);
  assert_null(other);
  assert_non_null(strstr(error.message, "tuning_text, line 7: \"tile\""));
  char *driver = strstr(text, "\ndriver ");
  assert_non_null(driver);
  driver[8] = '~';
  assert_int_equal(clattn_context_create(cl, device, &options, &other, &error), CLATTN_SUCCESS);
  assert_non_null(strstr(logged, "1: tuning_text is not used: driver is '~"));
  clattn_context_release(other);
  /* the candidates' and the head's arguments */
  assert_int_equal(clattn_tuning_head(NULL, line, sizeof line, NULL), CLATTN_ERROR_NULL_POINTER);
  assert_int_equal(clattn_tuning_head(context, NULL, 9, NULL), CLATTN_ERROR_NULL_POINTER);
  assert_int_equal(clattn_tuning_head(context, line, 9, &length), CLATTN_ERROR_BUFFER_TOO_SMALL);
  assert_int_equal(strlen(line), 8);
  assert_true(length > 60);
  assert_int_equal(clattn_tuning_head(context, NULL, 0, &length), CLATTN_ERROR_BUFFER_TOO_SMALL);
  assert_int_equal(clattn_tuning_candidate(NULL, &problem, NULL, 0, line, sizeof line, NULL, &error),
                   CLATTN_ERROR_NULL_POINTER);
  assert_int_equal(clattn_tuning_candidate(context, NULL, NULL, 0, line, sizeof line, NULL, NULL),
                   CLATTN_ERROR_NULL_POINTER);
  assert_int_equal(clattn_tuning_candidate(context, &problem, "no", 0, line, sizeof line, NULL, &error),
                   CLATTN_ERROR_UNKNOWN_VARIANT);
  assert_int_equal(clattn_tuning_candidate(context, &problem, "flash-cpu-vector", 0, line, 9, &length, &error),
                   CLATTN_ERROR_BUFFER_TOO_SMALL);
  assert_int_equal(clattn_tuning_candidate(context, &problem, "three-step-cpu", 0, line, sizeof line, &length, &error),
                   CLATTN_ERROR_NOT_SUPPORTED);
  assert_int_equal(length, 0);
  assert_int_equal(clattn_tuning_candidate(context, &invariant, NULL, 0, line, sizeof line, &length, &error),
                   CLATTN_ERROR_NOT_SUPPORTED);
  assert_non_null(strstr(error.message, "has no tiles to tune for this problem"));
  assert_int_equal(clattn_tuning_candidate(context, &problem, NULL, 1000, line, sizeof line, &length, &error),
                   CLATTN_SUCCESS);
  assert_int_equal(length, 0);
  assert_string_equal(line, "");
  clattn_context_release(context);
}

int main(int argc, char **argv) {
  static const struct CMUnitTest made_up[] = {
      cmocka_unit_test(what_is_written_is_read), cmocka_unit_test(texts_of_others),
      cmocka_unit_test(garbled_texts),           cmocka_unit_test(other_formats),
      cmocka_unit_test(foreign_texts_differ),    cmocka_unit_test(many_tiles),
      cmocka_unit_test(lanes_by_tuning),         cmocka_unit_test(not_tuned),
      cmocka_unit_test(groups_by_tuning),        cmocka_unit_test(foreign_is_told),
  };
  static const struct CMUnitTest on_device[] = {
      cmocka_unit_test(contexts),
      cmocka_unit_test(invariant_rows),
      cmocka_unit_test(tiles_of_few_rows),
      cmocka_unit_test(tiles_of_short_problems),
  };
  static const struct CMUnitTest all[] = {
      cmocka_unit_test(tiles_of_many_rows),
      cmocka_unit_test(tiles_of_work_groups),
  };
  if (argc == 1)
    return cmocka_run_group_tests(made_up, NULL, NULL);
  if (strcmp(argv[1], "device") == 0)
    return cmocka_run_group_tests(on_device, NULL, NULL);
  return strcmp(argv[1], "all") == 0 ? cmocka_run_group_tests(all, NULL, NULL) : 2;
}
