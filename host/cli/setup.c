/* SPDX-License-Identifier: Apache-2.0 */
#include "setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "device.h"
#include "text.h"

static void print_warning(void *user, int level, const char *line) {
  (void)user;
  if (level == CLATTN_LOG_WARNING) /* failures come back, and are told then */
    fprintf(stderr, "clattn: %s\n", line);
}

int cli_setup_begin(cli_setup *setup) {
  size_t length = 0;
  clattn_context_options_init(&setup->options);
  setup->options.allow_amx = !setup->without_amx;
  setup->options.config_text = setup->config;
  if (setup->tuning != NULL) {
    const int code = cli_read_file("tuning", setup->tuning, &setup->text, &length);
    if (code != CLI_OK)
      return code;
    if (strlen(setup->text) != length)
      return cli_fail(CLI_USAGE, "--tuning: %s: byte %zu is 0; it must be text", setup->tuning, strlen(setup->text));
    setup->options.tuning_text = setup->text;
    setup->options.log_fn = print_warning;
  }
  cli_session_use(&setup->options, setup->tuning);
  return CLI_OK;
}

void cli_setup_end(cli_setup *setup) {
  cli_session_use(NULL, NULL);
  free(setup->text);
  setup->text = NULL;
}
