/* SPDX-License-Identifier: Apache-2.0 */
/* --config, --tuning and AMX: what the contexts of a command are made with. */
#ifndef CLATTN_CLI_SETUP_H
#define CLATTN_CLI_SETUP_H

#include "clattn.h"

typedef struct cli_setup {
  const char *config, *tuning; /* the options' values; NULL: not given */
  int without_amx;
  clattn_context_options options;
  char *text; /* of the tuning file */
} cli_setup;

/* Reads the tuning file and makes every session from now on have both; what is wrong with them, opening a session says.
 * A tuning that is not for the device is told on stderr, and not used. */
int cli_setup_begin(cli_setup *setup);
void cli_setup_end(cli_setup *setup);

#endif
