/* SPDX-License-Identifier: Apache-2.0 */
/* Heat maps as files: SVG and HTML are read by a strict little parser, PNG by cairo, and what can't be drawn is refused
 * and touches nothing; then the option of the program.  test_picture.c has the layout. */
#define _XOPEN_SOURCE 700 /* mkdtemp, realpath */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli_program.h"
#include "picture_back.h"
#include "picture_colour.h"
#include "picture_layout.h"
#include "picture_unicode.h"

static char file_text[1 << 23];

/* ---- pictures ---- */

static float weights[512 * 512];
static const char *label_texts[] = {"</script><script>alert(1)</script>", "<b>&amp;\"'", "\x01\xff\xe2\x80\xa8z",
                                    "\xe6\xb3\xa8\xe6\x84\x8f", "e\xcc\x81t\xc3\xa9"};
static char *label_pointers[5];
static const cli_labels labels = {label_pointers, 5};

static cli_picture make_picture(int64_t layers, int64_t heads, int64_t rows, int64_t columns) {
  cli_picture picture;
  cli_picture_init(&picture);
  const int64_t shape[4] = {layers, heads, rows, columns};
  const int64_t stride[4] = {heads * rows * columns, rows * columns, columns, 1};
  memcpy(picture.shape, shape, sizeof shape);
  memcpy(picture.stride, stride, sizeof stride);
  picture.weights = weights;
  for (int64_t i = 0; i < layers * heads * rows * columns; i++)
    weights[i] = (float)((i * 37) % 101) / 101.0f;
  return picture;
}

/* Five tokens, all labels dangerous, one weight exactly 0 and one NaN. */
static cli_picture make_dangerous(void) {
  cli_picture picture = make_picture(1, 1, 5, 5);
  for (int i = 0; i < 5; i++) {
    static char copies[5][64];
    snprintf(copies[i], sizeof copies[i], "%s", label_texts[i]);
    label_pointers[i] = copies[i];
  }
  picture.title = "</title><script>alert(2)</script> & more";
  picture.rows = picture.columns = &labels;
  weights[7] = NAN;
  return picture;
}

/* Writes it and reads it back. */
static size_t write_picture(const char *path, const cli_picture *picture) {
  assert_int_equal(cli_picture_write("heatmap", path, picture), 0);
  const size_t bytes = read_text(path, file_text, sizeof file_text);
  assert_true(bytes + 1 < sizeof file_text);
  assert_int_equal(count_files(".partial-"), 0);
  return bytes;
}

static int count_of(const char *text, const char *part) {
  int count = 0;
  for (; (text = strstr(text, part)) != NULL; text += strlen(part))
    count++;
  return count;
}

/* ---- XML ---- */

static void check_utf8(const char *text) {
  while (*text != 0) {
    const char *const at = text;
    const uint32_t code = cli_utf8_next(&text);
    assert_true(code >= ' ' || code == '\n');
    assert_false(code == CLI_NO_CHARACTER && text - at == 1);
  }
}

/* `at` is behind '<': checks names and quotes up to '>', which it returns. */
static const char *check_tag(const char *at) {
  at += strcspn(at, " />");
  while (*at == ' ') {
    at++;
    const size_t name = strspn(at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-:");
    assert_true(name > 0);
    at += name;
    assert_memory_equal(at, "=\"", 2);
    at += 2 + strcspn(at + 2, "\"<");
    assert_int_equal(*at, '"');
    at++;
  }
  at += *at == '/';
  assert_int_equal(*at, '>');
  return at;
}

/* Well-formed: elements nest, references are numbers, one root. */
static void check_xml(const char *text) {
  char open[64][32];
  int depth = 0, roots = 0;
  check_utf8(text);
  for (const char *at = text; *at != 0; at++) {
    if (*at == '&') {
      assert_int_equal(at[1], '#');
      at += 2 + strspn(at + 2, "0123456789");
      assert_int_equal(*at, ';');
    }
    if (*at != '<')
      continue;
    const int closing = at[1] == '/';
    const char *name = at + 1 + closing;
    const size_t length = strcspn(name, " />");
    const char *end = closing ? name + length : check_tag(name);
    assert_int_equal(*end, '>');
    assert_true(length > 0 && length < sizeof open[0]);
    if (closing) {
      assert_true(depth > 0);
      depth--;
      assert_int_equal(strlen(open[depth]), length);
      assert_memory_equal(open[depth], name, length);
    } else if (end[-1] != '/') {
      roots += depth == 0;
      assert_true(depth < 64);
      memcpy(open[depth], name, length);
      open[depth++][length] = 0;
    }
    at = end;
  }
  assert_int_equal(depth, 0);
  assert_int_equal(roots, 1);
}

static void svg_of_one_head(void **state) {
  (void)state;
  const cli_picture picture = make_dangerous();
  write_picture("one.svg", &picture);
  check_xml(file_text);
  assert_int_equal(count_of(file_text, "</title></rect>"), 25);
  assert_int_equal(count_of(file_text, "<title>"), 26);
  assert_int_equal(count_of(file_text, "<script"), 0);
  assert_int_equal(count_of(file_text, "alert(2)&#60;/script&#62; &#38; more"), 1 + 1);
  /* What is only in the tips is whole there, also where the label is shortened. */
  assert_int_equal(count_of(file_text, "&#60;b&#62;&#38;amp;&#34;&#39; \xe2\x86\x92 \xe6\xb3\xa8\xe6\x84\x8f: "), 1);
  assert_int_equal(count_of(file_text, ": nan</title>"), 1);
  assert_int_equal(count_of(file_text, ">e\xcc\x81t\xc3\xa9</text>"), 2);
  assert_int_equal(count_of(file_text, "prefers-color-scheme:dark"), 1);
  assert_int_equal(count_of(file_text, "http"), 1); /* the name space */
  assert_non_null(strstr(file_text, "exactly 0"));
  assert_non_null(strstr(file_text, "not a finite number"));
}

/* Every cell that has a colour is in one run. */
static void svg_of_many_heads(void **state) {
  (void)state;
  cli_picture picture = make_picture(3, 4, 20, 30);
  int coloured = 0, found = 0;
  for (int i = 0; i < 12 * 600; i++) {
    weights[i] = i % 3 == 0 ? 0 : weights[i];
    coloured += weights[i] != 0;
  }
  weights[600] = NAN;
  write_picture("many.SVG", &picture);
  check_xml(file_text);
  for (const char *at = file_text; (at = strstr(at, "v1h-")) != NULL; at++)
    found += atoi(at + 4);
  assert_int_equal(found, coloured);
  assert_int_equal(count_of(file_text, "<g transform=\""), 12);
  assert_int_equal(count_of(file_text, "url(#not-finite)"), 2); /* the cell and the legend */
  assert_int_equal(count_of(file_text, ">head 3</text>"), 3);
  assert_int_equal(count_of(file_text, ">layer 2</text>"), 1);

  picture = make_picture(1, 1, 512, 512);
  for (int i = 0; i < 512 * 512; i++)
    weights[i] = 1;
  write_picture("long.svg", &picture);
  check_xml(file_text);
  found = 0;
  for (const char *at = file_text; (at = strstr(at, "v1h-")) != NULL; at++)
    found += atoi(at + 4);
  assert_int_equal(found, 256 * 256);
  assert_non_null(strstr(file_text, "binned 2 x 2"));
}

/* ---- HTML ---- */

static unsigned sextet(char c) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const char *at = strchr(digits, c);
  assert_true(c != 0 && at != NULL);
  return (unsigned)(at - digits);
}

/* The text behind "name":" of the page's data; returns the number of bytes. */
static size_t decode(const char *name, unsigned char *bytes, size_t room) {
  char mark[64];
  size_t used = 0;
  snprintf(mark, sizeof mark, "\"%s\":\"", name);
  const char *at = strstr(file_text, mark);
  assert_non_null(at);
  for (at += strlen(mark); *at != '"'; at += 4) {
    const int left = at[2] == '=' ? 1 : at[3] == '=' ? 2 : 3;
    const unsigned group = sextet(at[0]) << 18 | sextet(at[1]) << 12 | (left > 1 ? sextet(at[2]) << 6 : 0) |
                           (left > 2 ? sextet(at[3]) : 0);
    for (int i = 0; i < left; i++) {
      assert_true(used < room);
      bytes[used++] = (unsigned char)(group >> (16 - 8 * i));
    }
  }
  return used;
}

static void html_page(void **state) {
  (void)state;
  static unsigned char bytes[1 << 20];
  const cli_picture picture = make_dangerous();
  const size_t length = write_picture("page.html", &picture);
  check_utf8(file_text);
  assert_memory_equal(file_text, "<!DOCTYPE html>", 15);
  assert_string_equal(file_text + length - 8, "</html>\n");
  /* The data's and the page's own. */
  assert_int_equal(count_of(file_text, "<script"), 2);
  assert_int_equal(count_of(file_text, "</script"), 2);
  assert_int_equal(count_of(file_text, "<title>"), 1);
  assert_int_equal(count_of(file_text, "alert(1)"), 2);
  assert_int_equal(count_of(file_text, "\\u003c/script\\u003e"), 4);
  assert_non_null(strstr(file_text, "\"\\u003cb\\u003e\\u0026amp;\\u0022'\""));
  /* Nothing from elsewhere. */
  static const char *const elsewhere[] = {"http:", "https:", "src=", "href=", "url(", "@import", "import(", "fetch("};
  for (size_t i = 0; i < sizeof elsewhere / sizeof elsewhere[0]; i++) {
    if (strstr(file_text, elsewhere[i]) != NULL)
      fail_msg("the page has %s", elsewhere[i]);
  }
  assert_non_null(strstr(file_text, "default-src 'none'"));
  /* Weights to within half a step; 0 and NaN have codes of their own. */
  assert_int_equal(decode("weights", bytes, sizeof bytes), 50);
  double most = 0;
  for (int i = 0; i < 25; i++)
    most = (double)weights[i] > most ? (double)weights[i] : most;
  for (int i = 0; i < 25; i++) {
    const int code = bytes[2 * i] | bytes[2 * i + 1] << 8;
    if (isnan(weights[i]))
      assert_int_equal(code, 65535);
    else if (weights[i] == 0)
      assert_int_equal(code, 0);
    else
      assert_true(fabs((code - 1) * most / 65533 - (double)weights[i]) <= 0.5001 * most / 65533);
  }
  assert_int_equal(decode("dark", bytes, sizeof bytes), 768);
  for (int level = 0; level < CLI_LEVELS; level++) {
    uint8_t rgb[3];
    cli_colour(level, 1, rgb);
    assert_memory_equal(rgb, bytes + 3 * level, 3);
  }
}

static void html_of_long_ones(void **state) {
  (void)state;
  static unsigned char bytes[1 << 20];
  cli_picture picture = make_picture(1, 2, 1000, 90);
  picture.stride[1] = 0;
  write_picture("long.html", &picture);
  assert_non_null(strstr(file_text, "\"cellRows\":500,\"cellColumns\":90,\"rowBin\":2,\"columnBin\":1"));
  assert_non_null(strstr(file_text, "\"rowEnds\":[\"q1\",\"q3\","));
  assert_non_null(strstr(file_text, "\"columnEnds\":[]"));
  assert_int_equal(decode("weights", bytes, sizeof bytes), 2 * 2 * 500 * 90);
  assert_memory_equal(bytes, bytes + 2 * 500 * 90, 2 * 500 * 90);
}

/* ---- refusals ---- */

/* Fails with this code and message, and kept.npy, or a file with the right ending, stays what it was. */
static void refused(const char *path, const cli_picture *picture, int code, const char *part) {
  const int saved = dup(2), to = open("err.txt", O_WRONLY | O_CREAT | O_TRUNC, 0600);
  write_text("old.svg", "old");
  write_text("old.png", "old");
  assert_true(saved >= 0 && to >= 0 && dup2(to, 2) == 2);
  const int got = cli_picture_write("heatmap", path, picture);
  assert_true(dup2(saved, 2) == 2);
  close(saved);
  close(to);
  read_text("err.txt", err, sizeof err);
  if (got != code || strstr(err, part) == NULL)
    fail_msg("%s: exit %d, wanted %d with '%s': %s", path, got, code, part, err);
  assert_int_equal(count_files(".partial-"), 0);
  read_text("old.svg", file_text, sizeof file_text);
  assert_string_equal(file_text, "old");
  read_text("old.png", file_text, sizeof file_text);
  assert_string_equal(file_text, "old");
}

static void refuses(void **state) {
  (void)state;
  cli_picture picture = make_picture(1, 1, 4, 4);
  refused("heat.gif", &picture, 2, "heat.gif: a heat map is written as .svg, .png or .html");
  refused("heat", &picture, 2, ".svg, .png or .html");
  refused("folder.svg/heat", &picture, 2, ".svg, .png or .html");
  refused("svg", &picture, 2, ".svg, .png or .html");
  assert_int_equal(count_files("heat"), 0);
  refused("nowhere/heat.svg", &picture, 1, "can't be written");
  picture.shape[2] = 0;
  refused("old.svg", &picture, 2, "no weight to draw: 0 queries and 4 keys");
  picture = make_picture(33, 32, 4, 4);
  refused("old.svg", &picture, 2, "up to 1024 heads, here are 33 times 32");
}

/* ---- PNG ---- */

#ifdef CLATTN_WITH_PNG
#include <cairo.h>

static const unsigned char *pixel(cairo_surface_t *surface, double x, double y) {
  return cairo_image_surface_get_data(surface) + (int)(2 * y) * cairo_image_surface_get_stride(surface) +
         (int)(2 * x) * 4;
}

/* Every cell's corner has the colour of its weight, and the ground is white. */
static void png_pixels(void **state) {
  (void)state;
  cli_layout layout;
  cli_picture picture = make_picture(2, 2, 9, 6);
  weights[3] = 0;
  picture.title = "caf\xc3\xa9, cafe\xcc\x81";
  const size_t bytes = write_picture("map.png", &picture);
  assert_true(bytes > 8);
  assert_memory_equal(file_text, "\x89PNG\r\n\x1a\n", 8);
  assert_int_equal(cli_layout_make(&picture, &layout), 0);
  cairo_surface_t *surface = cairo_image_surface_create_from_png("map.png");
  assert_int_equal(cairo_surface_status(surface), CAIRO_STATUS_SUCCESS);
  assert_int_equal(cairo_image_surface_get_width(surface), 2 * (int)layout.width);
  assert_int_equal(cairo_image_surface_get_height(surface), 2 * (int)layout.height);
  for (int64_t i = 0; i < 4 * 54; i++) {
    const int level = cli_cell_level(&layout.cells, layout.cells.data[i]);
    const cli_box box = cli_cell_box(&layout, i / 54, i % 54);
    uint8_t rgb[3] = {255, 255, 255};
    const unsigned char *at = pixel(surface, box.x + box.width / 2, box.y + box.height / 2);
    if (level >= 0)
      cli_colour(level, 0, rgb);
    if (at[2] != rgb[0] || at[1] != rgb[1] || at[0] != rgb[2])
      fail_msg("cell %d is %d %d %d, not %d %d %d", (int)i, at[2], at[1], at[0], rgb[0], rgb[1], rgb[2]);
  }
  assert_int_equal(pixel(surface, 1, 1)[0], 255);
  /* The title is there. */
  int dark = 0;
  for (int x = 16; x < 120; x++)
    dark += pixel(surface, x, layout.words[0].y - 4)[0] < 128;
  assert_true(dark > 10);
  cairo_surface_destroy(surface);
  cli_layout_release(&layout);
}

static void png_refusals(void **state) {
  (void)state;
  static char text[64];
  static char *one[1] = {text};
  const cli_labels row = {one, 1};
  cli_picture picture = make_picture(1, 1, 1, 1);
  weights[0] = 1;
  picture.rows = &row;
  snprintf(text, sizeof text, "odd\xf4\x8f\xbf\xbd"); /* for private use: no font has it */
  refused("old.png", &picture, 1, "'odd\xf4\x8f\xbf\xbd' has U+10FFFD, which no installed font has");
  assert_non_null(strstr(err, "fonts-noto-cjk"));
  assert_non_null(strstr(err, ".svg or .html"));
  snprintf(text, sizeof text, "\xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d");
  refused("old.png", &picture, 2, "U+05E9, of a script that .png can't set");
  write_picture("rtl.svg", &picture);
  snprintf(text, sizeof text, "plain");
  assert_int_equal(setenv("FONTCONFIG_FILE", CLATTN_PICTURE_DATA "/no-fonts.conf", 1), 0);
  refused("old.png", &picture, 1, "install one");
  assert_int_equal(unsetenv("FONTCONFIG_FILE"), 0);
  write_picture("plain.png", &picture);
  /* 1024 heads of 16 cells a side are too high for cairo at any scale that can be read. */
  picture = make_picture(1, 1, 1, 1);
  picture.shape[1] = 1024;
  picture.shape[2] = 17;
  picture.shape[3] = 17;
  picture.stride[1] = 0;
  write_picture("high.png", &picture);
}
#else
static void png_pixels(void **state) {
  (void)state;
  const cli_picture picture = make_picture(1, 1, 4, 4);
  refused("old.png", &picture, 2, "this clattn was built without cairo and can't write .png; .svg and .html it can");
}

static void png_refusals(void **state) {
  (void)state;
  assert_false(cli_picture_has_png());
}
#endif

/* ---- the program ---- */

#define SMALL "run --problem 'b=2 hq=3 sq=4 sk=5 d=4' "

static void program(void **state) {
  (void)state;
  good(SMALL "--heatmap all.svg --k-labels a,b,c,d,e --q-labels w,x,y,z --out o.npy");
  says("wrote       all.svg  svg (2, 3, 4, 5)");
  assert_null(strstr(out, "full shade"));
  read_text("all.svg", file_text, sizeof file_text);
  check_xml(file_text);
  assert_int_equal(count_of(file_text, ">batch entry 1</text>"), 1);
  assert_int_equal(count_of(file_text, ">head 2</text>"), 2);
  good(SMALL "--heatmap=one.html --heat 1,2 --json");
  says("\"type\":\t\"html\"");
  read_text("one.html", file_text, sizeof file_text);
  assert_non_null(strstr(file_text, "<title>batch entry 1, head 2</title>"));
  good(SMALL "--heatmap --out o.npy");
  says("weights of batch entry 0, head 0");
  good("run --problem 'sq=40 sk=300 d=4 causal=1' --heatmap long.svg");
  read_text("long.svg", file_text, sizeof file_text);
  assert_non_null(strstr(file_text, "binned 1 x 2"));
  /* In the terminal Chinese characters are two columns wide, accents none. */
  good("run --q '1 0;0 1' --k '9 0;0 9' --v '1 2;3 4' --heatmap --q-labels "
       "\xe6\xb3\xa8\xe6\x84\x8f,ab --k-labels e\xcc\x81,\xe4\xb8\xad\xe6\x96\x87\xe5\xad\x97");
  says("\n     e\xcc\x81       \xe4\xb8\xad\xe6\x96\x87\xe5\xad\x97  \n");
  says("\n\xe6\xb3\xa8\xe6\x84\x8f \xe2\x96\x88\xe2\x96\x88 1.00");
  says("\n  ab    0.00");
  static const struct {
    const char *command, *part;
  } cases[] = {{SMALL "--heatmap heat.pdf --out kept.npy", "--heatmap: heat.pdf: a heat map is written as"},
               {SMALL "--heatmap heat.svg --out ./heat.svg", "name the same file"},
               {SMALL "--heatmap heat.svg --heat 2,0 --out kept.npy", "there are 2 batch entries of 3 heads"},
               {SMALL "--heatmap --json --out kept.npy", "--heatmap and --json exclude each other"},
               {SMALL "--heatmap --heatmap --out kept.npy", "--heatmap is given twice"},
               {"run --problem 'sq=40 sk=2 d=4' --heatmap --out kept.npy", "1 to 32 queries and keys"},
               {"run --problem 'b=64 hq=32 sq=2 sk=2 d=4' --heatmap heat.svg --out kept.npy", "64 times 32"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    bad(cases[i].command, 2, cases[i].part);
  write_text("old.svg", "old");
  bad("run --q 1e30 --k 1e30 --v 1 --verify --heatmap old.svg --out kept.npy", 1, "--verify");
  read_text("old.svg", file_text, sizeof file_text);
  assert_string_equal(file_text, "old");
  assert_int_equal(count_files("heat"), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(svg_of_one_head), cmocka_unit_test(svg_of_many_heads),
                                     cmocka_unit_test(html_page),       cmocka_unit_test(html_of_long_ones),
                                     cmocka_unit_test(refuses),         cmocka_unit_test(png_pixels),
                                     cmocka_unit_test(png_refusals),    cmocka_unit_test(program)};
  return cmocka_run_group_tests(tests, enter_group, leave_group);
}
