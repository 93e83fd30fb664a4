/* SPDX-License-Identifier: Apache-2.0 */
/* Attention does not see the order of words: a permuted sentence gives the permuted output, until every word carries its
 * position. */
#define CL_TARGET_OPENCL_VERSION 120
#include <clattn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { WORDS = 3, DIM = 4 };
typedef float matrix[WORDS][DIM];

static const char *const word[WORDS] = {"dog", "bites", "man"};
static const matrix embedding = {{2, 0, 1, 0}, {0, 2, 0, 1}, {1, 1, -1, 0}};
static const int sentence[2][WORDS] = {{0, 1, 2}, {2, 1, 0}};

static clattn_context *attention;
static cl_context cl;
static cl_command_queue queue;
static clattn_error error;

static void check(int32_t status, const char *what) {
  if (status != CLATTN_SUCCESS)
    fprintf(stderr, "%s: %s: %s\n", what, clattn_status_name(status), error.message), exit(1);
}

/* Self-attention: the words are queries, keys and values. */
static void attend(matrix x, matrix o) {
  clattn_problem problem;
  clattn_args args;
  cl_int status;
  check(clattn_problem_parse("sq=3 sk=3 d=4", &problem, &error), "problem");
  clattn_args_init(&args);
  args.error = &error;
  cl_mem words = clCreateBuffer(cl, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, sizeof(matrix), x, &status);
  check(status, "buffer");
  cl_mem result = clCreateBuffer(cl, CL_MEM_WRITE_ONLY, sizeof(matrix), NULL, &status);
  check(status, "buffer");
  args.q = args.k = args.v = clattn_buffer(words, 0);
  args.o = clattn_buffer(result, 0);
  check(clattn_attention(attention, queue, &problem, &args, 0, NULL, NULL), "attention");
  check(clEnqueueReadBuffer(queue, result, CL_TRUE, 0, sizeof(matrix), o, 0, NULL, NULL), "read");
  clReleaseMemObject(result);
  clReleaseMemObject(words);
}

/* The sine and cosine of the first Transformer: pair i turns by 10000^(-2i / DIM) from a position to the next. */
static float position(int at, int d) {
  const double angle = at / pow(10000, (double)(d - d % 2) / DIM);
  return (float)(d % 2 == 0 ? sin(angle) : cos(angle));
}

static void print_row(const char *name, const float *row, const char *end) {
  printf("%8s", name);
  for (int d = 0; d < DIM; d++)
    printf(" %7.4f", (double)row[d]);
  printf("%s", end);
}

/* Both sentences beside each other; returns the largest difference between the two outputs of a word. */
static double compare(int with_positions) {
  matrix x, o[2], of_word[2];
  double most = 0;
  for (int s = 0; s < 2; s++) {
    for (int i = 0; i < WORDS; i++) {
      for (int d = 0; d < DIM; d++)
        x[i][d] = embedding[sentence[s][i]][d] + (with_positions ? position(i, d) : 0);
    }
    attend(x, o[s]);
  }
  for (int i = 0; i < WORDS; i++) {
    for (int s = 0; s < 2; s++) {
      print_row(word[sentence[s][i]], o[s][i], s == 0 ? "    " : "\n");
      for (int d = 0; d < DIM; d++)
        of_word[s][sentence[s][i]][d] = o[s][i][d];
    }
  }
  for (int i = 0; i < WORDS; i++) {
    for (int d = 0; d < DIM; d++)
      most = fmax(most, fabs((double)of_word[0][i][d] - (double)of_word[1][i][d]));
  }
  printf("largest difference between the two outputs of a word: %.4f\n", most);
  return most;
}

int main(void) {
  static const char *const place[WORDS] = {"0", "1", "2"};
  cl_device_id device;
  cl_int status;
  clattn_error_init(&error);
  check(clattn_context_create_default(NULL, &attention, &error), "device");
  check(clattn_context_handles(attention, &cl, &device), "handles");
  queue = clCreateCommandQueue(cl, device, 0, &status);
  check(status, "queue");
  printf("outputs without positions\n\n");
  const double without = compare(0);
  printf("\npositions\n\n");
  for (int i = 0; i < WORDS; i++) {
    float row[DIM];
    for (int d = 0; d < DIM; d++)
      row[d] = position(i, d);
    print_row(place[i], row, "\n");
  }
  printf("\noutputs with positions added to the words\n\n");
  const double with = compare(1);
  clReleaseCommandQueue(queue);
  clattn_context_release(attention);
  return without < 1e-5 && with > 0.1 ? 0 : 1;
}
