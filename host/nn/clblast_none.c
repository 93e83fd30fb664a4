/* SPDX-License-Identifier: Apache-2.0 */
/* A library without CLBlast: clattn_nn_create refuses to ask for it, so none of this is reached. */
#include "linear.h"

int nn_has_clblast(void) {
  return 0;
}

void nn_measured_release(clattn_nn *nn) {
  (void)nn;
}

clattn_status nn_clblast_wanted(clattn_nn *nn, const clattn_nn_linear_args *args, int *wanted, clattn_error *error) {
  (void)nn, (void)args, (void)error;
  *wanted = 0;
  return CLATTN_SUCCESS;
}

int nn_clblast_chosen(clattn_nn *nn, const clattn_nn_linear_args *args) {
  (void)nn, (void)args;
  return 0;
}

clattn_status nn_clblast_run(nn_stream *stream, const clattn_nn_linear_args *args, clattn_error *error) {
  (void)stream, (void)args;
  return nn_fail(error, CLATTN_ERROR_NOT_SUPPORTED, "this library was built without CLBlast");
}
