/* SPDX-License-Identifier: Apache-2.0 */
/* ONNX node cases of the operators that stand round attention, run by libclattn_nn. */
#ifndef CLATTN_TESTS_CONFORMANCE_NN_H
#define CLATTN_TESTS_CONFORMANCE_NN_H

#include "clattn_nn.h"
#include "conformance_case.h"
#include "device.h"

/* Whether it is one of them: LayerNormalization, RotaryEmbedding. */
int cf_is_nn(const char *op);

/* Runs a loaded case; nn NULL: in double precision on the host.  1 when every output is right and nothing beside the
 * outputs was written. */
int cf_run_nn(const cli_session *session, clattn_nn *nn, const cf_case *c, cf_reason *reason);

#endif
