/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs in their storage types: as the file has them, converted, or quantised. */
#ifndef CLATTN_CLI_TYPES_H
#define CLATTN_CLI_TYPES_H

#include "request.h"

/* One of f32, f16, bf16, and with `keys` i8 and i4; NULL leaves *out. */
int cli_take_dtype(const char *option, const char *text, int keys, clattn_dtype *out);
/* CLI_Q, CLI_K, CLI_V or CLI_BIAS, of the type that the request's storage says.  What is quantised here gets its scales
 * too.  Shape and strides of i4 count elements from then on. */
int cli_take_stored(cli_request *request, int input, const char *source, int low_rank, int high_rank);
/* CLI_K_SCALE or CLI_V_SCALE once all sizes are known; source NULL: those that cli_take_stored made. */
int cli_take_scale(cli_request *request, int input, const char *source);

#endif
