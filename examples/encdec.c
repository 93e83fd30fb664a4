/* SPDX-License-Identifier: Apache-2.0 */
/* Attention as it was first taught: a decoder that translates "Tom chase Jerry" looks, for each word that it writes, at
 * all states of the encoder, and takes their weighted sum as its context. */
#define CL_TARGET_OPENCL_VERSION 120
#include <clattn_nn.h>
#include <math.h>
#include <stdio.h>

enum { WORDS = 3, STEPS = 3, DIM = 5 };

int main(void) {
  static const char *const source[WORDS] = {"Tom", "chase", "Jerry"}, *const target[STEPS] = {"Tom", "jagt", "Jerry"};
  /* The encoder's states.  Here the first three numbers say which word it is, the others stand for what it means. */
  float states[WORDS][DIM] = {{1, 0, 0, 10, 1}, {0, 1, 0, 20, -1}, {0, 0, 1, 30, 2}};
  /* The decoder's states.  A softmax undoes logarithms, so with scores ln w the weights are w: state . state of word j
   * is number j of the decoder's state. */
  float queries[STEPS][DIM] = {
      {logf(0.6f), logf(0.2f), logf(0.2f)}, {logf(0.2f), logf(0.7f), logf(0.1f)}, {logf(0.3f), logf(0.2f), logf(0.5f)}};
  float weights[STEPS][WORDS], contexts[STEPS][DIM];
  clattn_context *attention = NULL;
  clattn_nn *nn = NULL;
  clattn_error error;
  cl_context cl;
  cl_device_id device;
  clattn_error_init(&error);
  if (clattn_context_create_default(NULL, &attention, &error) != CLATTN_SUCCESS ||
      clattn_nn_create(attention, NULL, &nn, &error) != CLATTN_SUCCESS)
    return puts(error.message), 1;
  clattn_context_handles(attention, &cl, &device);
  cl_command_queue queue = clCreateCommandQueue(cl, device, 0, NULL);
  cl_mem state = clCreateBuffer(cl, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, sizeof states, states, NULL);
  cl_mem query = clCreateBuffer(cl, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, sizeof queries, queries, NULL);
  cl_mem weight = clCreateBuffer(cl, CL_MEM_WRITE_ONLY, sizeof weights, NULL, NULL);
  cl_mem context = clCreateBuffer(cl, CL_MEM_WRITE_ONLY, sizeof contexts, NULL, NULL);

  clattn_nn_encdec_args args;
  clattn_nn_encdec_args_init(&args);
  args.error = &error;
  args.similarity = CLATTN_DOT; /* or CLATTN_COSINE, CLATTN_ADDITIVE */
  args.target_len = STEPS;
  args.source_len = WORDS;
  args.target_dim = DIM;
  args.target = clattn_nn_matrix_f32(query, 0, 0);
  args.source = clattn_nn_matrix_f32(state, 0, 0);
  args.contexts = clattn_nn_matrix_f32(context, 0, 0);
  args.weights = clattn_buffer(weight, 0);
  if (clattn_nn_encdec_attention(nn, queue, &args, 0, NULL, NULL) != CLATTN_SUCCESS)
    return puts(error.message), 1;
  clEnqueueReadBuffer(queue, weight, CL_TRUE, 0, sizeof weights, weights, 0, NULL, NULL);
  clEnqueueReadBuffer(queue, context, CL_TRUE, 0, sizeof contexts, contexts, 0, NULL, NULL);

  printf("%-8s", "");
  for (int word = 0; word < WORDS; word++)
    printf("%8s", source[word]);
  printf("   context\n");
  for (int step = 0; step < STEPS; step++) {
    printf("%-8s", target[step]);
    for (int word = 0; word < WORDS; word++)
      printf("%8.3f", (double)weights[step][word]);
    printf("  ");
    for (int d = 0; d < DIM; d++)
      printf(" %.2f", (double)contexts[step][d]);
    printf("\n");
  }
  clReleaseMemObject(state);
  clReleaseMemObject(query);
  clReleaseMemObject(weight);
  clReleaseMemObject(context);
  clReleaseCommandQueue(queue);
  clattn_nn_release(nn);
  clattn_context_release(attention);
  return 0;
}
