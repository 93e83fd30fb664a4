/* SPDX-License-Identifier: Apache-2.0 */
/* Why scores are divided by sqrt(d), in numbers: how far q.k spreads, what softmax makes of large scores, and what is left
 * of its gradient.  All scores and weights come from the library.
 *     why_scale             tables
 *     why_scale --svg FILE  the same as a picture */
#define CL_TARGET_OPENCL_VERSION 120
#include <clattn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 16, ROWS = 64, LARGEST = 256, STEPS = 101 };
static const int dims[] = {4, 16, 64, 256};
enum { DIMS = sizeof dims / sizeof dims[0] };

static clattn_context *attention;
static cl_context cl;
static cl_command_queue queue;
static clattn_error error;

static void check(int32_t status, const char *what) {
  if (status != CLATTN_SUCCESS)
    fprintf(stderr, "%s: %s: %s\n", what, clattn_status_name(status), error.message), exit(1);
}

static clattn_mem input(const float *data, size_t count) {
  cl_int status;
  cl_mem buffer =
      clCreateBuffer(cl, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, count * sizeof *data, (void *)data, &status);
  check(status, "buffer");
  return clattn_buffer(buffer, 0);
}

/* The output (v given) or the scores (v NULL) of a problem line: `count` numbers of each row. */
static void attend(const char *line, const float *q, const float *k, const float *v, float *out, size_t count) {
  clattn_problem p;
  clattn_args args;
  cl_int status;
  check(clattn_problem_parse(line, &p, &error), line);
  clattn_args_init(&args);
  args.error = &error;
  const int64_t batch = p.batch > 0 ? p.batch : 1;
  args.q = input(q, (size_t)(batch * p.q_len * p.qk_dim));
  args.k = input(k, (size_t)(batch * p.k_len * p.qk_dim));
  if (v != NULL)
    args.v = input(v, (size_t)(batch * p.k_len * p.v_dim));
  const size_t bytes = (size_t)(batch * p.q_len) * count * sizeof *out;
  cl_mem result = clCreateBuffer(cl, CL_MEM_READ_WRITE, bytes, NULL, &status);
  check(status, "buffer");
  *(v != NULL ? &args.o : &args.scores) = clattn_buffer(result, 0);
  check(clattn_attention(attention, queue, &p, &args, 0, NULL, NULL), line);
  check(clEnqueueReadBuffer(queue, result, CL_TRUE, 0, bytes, out, 0, NULL, NULL), "read");
  clReleaseMemObject(result);
  clReleaseMemObject(args.q.buffer);
  clReleaseMemObject(args.k.buffer);
  if (v != NULL)
    clReleaseMemObject(args.v.buffer);
}

/* Numbers of mean 0 and variance 1, the same in every run: a sum of twelve uniform ones, less its mean. */
static float normal(void) {
  static uint64_t state = 1;
  double sum = -6;
  for (int i = 0; i < 12; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    sum += (double)(state >> 40) / (double)(1 << 24);
  }
  return (float)sum;
}

/* ---- variance, weights and gradients against d ---- */

typedef struct spread {
  double variance, largest, gradient; /* of the scores; of the weights, means over the queries */
} spread;

static spread measure(int d, int scaled, const float *q, const float *k) {
  enum { QUERIES = BATCH * ROWS, SCORES = QUERIES * ROWS };
  static float scores[SCORES], weights[SCORES];
  const char *scale = scaled ? "" : "scale=1";
  char line[128];
  snprintf(line, sizeof line, "b=%d sq=%d sk=%d d=%d %s out=scores stage=raw", BATCH, ROWS, ROWS, d, scale);
  attend(line, q, k, NULL, scores, ROWS);
  snprintf(line, sizeof line, "b=%d sq=%d sk=%d d=%d %s out=scores stage=weights", BATCH, ROWS, ROWS, d, scale);
  attend(line, q, k, NULL, weights, ROWS);
  double mean = 0;
  spread s = {0, 0, 0};
  for (int i = 0; i < SCORES; i++)
    mean += (double)scores[i] / SCORES;
  for (int i = 0; i < SCORES; i++) {
    s.variance += ((double)scores[i] - mean) * ((double)scores[i] - mean) / SCORES;
    s.gradient += (double)weights[i] * (1 - (double)weights[i]) / QUERIES; /* of weight j by its own score */
  }
  for (int i = 0; i < QUERIES; i++) {
    float largest = 0;
    for (int j = 0; j < ROWS; j++)
      largest = fmaxf(largest, weights[i * ROWS + j]);
    s.largest += (double)largest / QUERIES;
  }
  return s;
}

/* ---- softmax([a, a, 2a]) ---- */

/* Attention of the query a on the keys 1, 1 and 2; with the unit vectors as values, the output is the weights. */
static void softmax_of(const float *a, int count, float (*weights)[3]) {
  static const float keys[3] = {1, 1, 2}, unit[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1};
  char line[64];
  snprintf(line, sizeof line, "sq=%d sk=3 d=1 dv=3 scale=1", count);
  attend(line, a, keys, unit, weights[0], 3);
}

static void print_tables(spread (*of)[2], const float *a, float (*w)[3]) {
  static const int shown[] = {10, 20, 30, 40, 50, 60, 70, 80, 90, 100};
  printf("%d sets of %d queries and %d keys: independent numbers with mean 0 and variance 1\n\n", BATCH, ROWS, ROWS);
  printf("            variance of           largest weight      gradient: sum over\n"
         "            the scores            of a row            keys of w (1 - w)\n"
         "    d       q.k   /sqrt(d)        q.k   /sqrt(d)        q.k   /sqrt(d)\n");
  for (int n = 0; n < DIMS; n++)
    printf("%5d  %8.2f   %8.2f   %8.3f   %8.3f   %8.3f   %8.3f\n", dims[n], of[n][0].variance, of[n][1].variance,
           of[n][0].largest, of[n][1].largest, of[n][0].gradient, of[n][1].gradient);
  printf("\nw = softmax([a, a, 2a])\n\n"
         "    a     w[0]     w[1]     w[2]   w[2] (1 - w[2])\n");
  for (size_t n = 0; n < sizeof shown / sizeof shown[0]; n++) {
    const float *row = w[shown[n]];
    printf("%5.1f  %7.5f  %7.5f  %7.5f           %7.5f\n", a[shown[n]], row[0], row[1], row[2],
           (double)row[2] * (1 - (double)row[2]));
  }
  int first = 0;
  while (first < STEPS - 1 && w[first][0] + w[first][1] > 0.001f) /* what the others have is known more exactly */
    first++;
  printf("\nThe largest weight reaches 0.999 at a = %.1f.\n"
         "Some texts print 0.999 for a = 2, where it is %.3f: many list a = 1, 10 and 100, and the second number of\n"
         "that list, %.5f, belongs to a = 10.\n",
         a[first], w[20][2], w[100][2]);
}

/* ---- the picture ---- */

typedef struct panel {
  double left, top, width, height, x_most, y_most;
} panel;

static double at_x(const panel *p, double x) {
  return p->left + p->width * x / p->x_most;
}

static double at_y(const panel *p, double y) {
  return p->top + p->height * (1 - y / p->y_most);
}

static void draw_axes(FILE *f, const panel *p, const char *title, const char *x_label, const char *y_label) {
  fprintf(f, "<text class=\"title\" x=\"%.0f\" y=\"%.0f\">%s</text>\n", p->left, p->top - 18, title);
  for (int i = 0; i <= 4; i++) {
    const double y = p->y_most * i / 4;
    fprintf(f, "<line class=\"grid\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", p->left, at_y(p, y),
            p->left + p->width, at_y(p, y));
    fprintf(f, "<text class=\"end\" x=\"%.1f\" y=\"%.1f\">%.2f</text>\n", p->left - 8, at_y(p, y) + 4, y);
  }
  fprintf(f, "<text class=\"middle\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", p->left + p->width / 2,
          p->top + p->height + 44, x_label);
  fprintf(f, "<text class=\"middle\" transform=\"translate(%.1f %.1f) rotate(-90)\">%s</text>\n", p->left - 46,
          p->top + p->height / 2, y_label);
}

static void draw_tick(FILE *f, const panel *p, double x, const char *label) {
  fprintf(f, "<text class=\"middle\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", at_x(p, x), p->top + p->height + 20, label);
}

static void draw_label(FILE *f, const panel *p, double x, double y, const char *class, const char *text) {
  fprintf(f, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", class, at_x(p, x), at_y(p, y), text);
}

static void draw_softmax(FILE *f, const float *a, float (*w)[3]) {
  const panel p = {70, 60, 330, 260, 10, 1};
  char text[32];
  draw_axes(f, &p, "softmax([a, a, 2a])", "a", "weight, gradient");
  for (int i = 0; i <= 10; i += 2)
    snprintf(text, sizeof text, "%d", i), draw_tick(f, &p, i, text);
  for (int curve = 0; curve < 2; curve++) {
    fprintf(f, "<polyline class=\"%s\" points=\"", curve == 0 ? "a" : "b");
    for (int i = 0; i < STEPS; i++)
      fprintf(f, "%.1f,%.1f ", at_x(&p, (double)a[i]),
              at_y(&p, curve == 0 ? (double)w[i][2] : (double)w[i][2] * (1 - (double)w[i][2])));
    fprintf(f, "\"/>\n");
  }
  draw_label(f, &p, 4, 0.88, "a-text", "largest weight w");
  draw_label(f, &p, 3.6, 0.1, "b-text", "gradient w (1 - w)");
}

static void draw_gradient(FILE *f, spread (*of)[2]) {
  const panel p = {500, 60, 330, 260, DIMS + 1, 1};
  char text[32];
  draw_axes(f, &p, "what is left of the gradient", "d", "sum over keys of w (1 - w)");
  for (int n = 0; n < DIMS; n++)
    snprintf(text, sizeof text, "%d", dims[n]), draw_tick(f, &p, n + 1, text);
  for (int scaled = 0; scaled < 2; scaled++) {
    const char *class = scaled ? "a" : "b";
    fprintf(f, "<polyline class=\"%s\" points=\"", class);
    for (int n = 0; n < DIMS; n++)
      fprintf(f, "%.1f,%.1f ", at_x(&p, n + 1), at_y(&p, of[n][scaled].gradient));
    fprintf(f, "\"/>\n");
    for (int n = 0; n < DIMS; n++)
      fprintf(f, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>\n", class, at_x(&p, n + 1),
              at_y(&p, of[n][scaled].gradient));
  }
  draw_label(f, &p, 2.2, of[1][1].gradient - 0.09, "a-text", "q.k / sqrt(d)");
  draw_label(f, &p, 2.2, of[1][0].gradient + 0.05, "b-text", "q.k");
}

static int write_svg(const char *path, spread (*of)[2], const float *a, float (*w)[3]) {
  FILE *f = fopen(path, "w");
  if (f == NULL)
    return perror(path), 1;
  fprintf(f, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 860 390\" role=\"img\" aria-labelledby=\"t\">\n"
             "<title id=\"t\">Why scores are divided by sqrt(d)</title>\n"
             "<style>\n"
             "svg { --back: #ffffff; --text: #1b1f24; --grid: #d4d9df; --a: #1d5fd1; --b: #b4431c; }\n"
             "@media (prefers-color-scheme: dark) {\n"
             "  svg { --back: #14171b; --text: #e6e9ed; --grid: #39414a; --a: #7fb0ff; --b: #ff9b73; }\n"
             "}\n"
             "text { font: 13px system-ui, sans-serif; fill: var(--text); }\n"
             ".title { font-size: 15px; font-weight: 600; }\n"
             ".middle { text-anchor: middle; }\n"
             ".end { text-anchor: end; }\n"
             ".grid { stroke: var(--grid); }\n"
             "polyline { fill: none; stroke-width: 2; }\n"
             "polyline.a { stroke: var(--a); }\n"
             "polyline.b { stroke: var(--b); }\n"
             "circle.a, .a-text { fill: var(--a); }\n"
             "circle.b, .b-text { fill: var(--b); }\n"
             "</style>\n"
             "<rect width=\"860\" height=\"390\" style=\"fill: var(--back)\"/>\n");
  draw_softmax(f, a, w);
  draw_gradient(f, of);
  fprintf(f, "</svg>\n");
  if (ferror(f) | fclose(f))
    return fprintf(stderr, "%s: could not be written\n", path), 1;
  return 0;
}

int main(int argc, char **argv) {
  static float q[BATCH * ROWS * LARGEST], k[BATCH * ROWS * LARGEST], a[STEPS], w[STEPS][3];
  spread of[DIMS][2]; /* without and with the scale */
  cl_device_id device;
  cl_int status;
  const int svg = argc == 3 && strcmp(argv[1], "--svg") == 0;
  if (argc != 1 && !svg)
    return fprintf(stderr, "usage: %s [--svg FILE]\n", argv[0]), 2;
  clattn_error_init(&error);
  check(clattn_context_create_default(NULL, &attention, &error), "device");
  check(clattn_context_handles(attention, &cl, &device), "handles");
  queue = clCreateCommandQueue(cl, device, 0, &status);
  check(status, "queue");
  for (int n = 0; n < DIMS; n++) {
    for (int i = 0; i < BATCH * ROWS * dims[n]; i++)
      q[i] = normal(), k[i] = normal();
    for (int scaled = 0; scaled < 2; scaled++)
      of[n][scaled] = measure(dims[n], scaled, q, k);
  }
  for (int i = 0; i < STEPS; i++)
    a[i] = (float)i / 10;
  softmax_of(a, STEPS, w);
  const int code = svg ? write_svg(argv[2], of, a, w) : (print_tables(of, a, w), 0);
  clReleaseCommandQueue(queue);
  clattn_context_release(attention);
  return code;
}
