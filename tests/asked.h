/* SPDX-License-Identifier: Apache-2.0 */
/* Questions to selection, and what must hold of every answer.  After cmocka.h. */
#ifndef CLATTN_TEST_ASKED_H
#define CLATTN_TEST_ASKED_H

#include <string.h>

#include "clattn.h"
#include "made_up.h"
#include "select.h"

static inline clattn_problem problem_of(const char *line) {
  clattn_problem problem;
  clattn_error error;
  clattn_error_init(&error);
  if (clattn_problem_parse(line, &problem, &error) != CLATTN_SUCCESS ||
      clattn_problem_check(&problem, &error) != CLATTN_SUCCESS)
    fail_msg("%s: %s", line, error.message);
  clattni_problem_resolve(&problem, &problem);
  return problem;
}

/* A request that lives as long as the test function's call of it. */
typedef struct asked {
  clattn_problem problem;
  clattn_device_info device;
  clattni_request request;
  clattni_choice choice;
  clattn_error error;
} asked;

static inline void begin(asked *a, const char *line, cl_device_type type) {
  memset(a, 0, sizeof *a);
  a->problem = problem_of(line);
  a->device = made_up_device(type);
  a->request.problem = &a->problem;
  a->request.device = &a->device;
}

static inline clattn_status ask(asked *a) {
  clattn_error_init(&a->error);
  memset(&a->choice, 0x55, sizeof a->choice);
  const clattn_status status = clattni_select(&a->request, &a->choice, &a->error);
  clattni_choice again;
  memset(&again, 0xaa, sizeof again);
  assert_int_equal(clattni_select(&a->request, &again, NULL), status); /* pure, and no error is asked for */
  if (status == CLATTN_SUCCESS) {
    assert_ptr_equal(again.variant, a->choice.variant);
    assert_int_equal(again.workspace_bytes, a->choice.workspace_bytes);
    assert_string_equal(again.why, a->choice.why);
    assert_string_equal(again.options, a->choice.options);
    assert_true(a->choice.workspace_bytes <= a->device.max_alloc_bytes);
    assert_true(a->request.workspace_cap == 0 || a->choice.workspace_bytes <= a->request.workspace_cap);
  } else {
    assert_int_equal(a->error.status, status);
  }
  return status;
}

static inline void picks(asked *a, const char *variant, const char *why) {
  const clattn_status status = ask(a);
  if (status != CLATTN_SUCCESS)
    fail_msg("%s: %s", clattn_status_name(status), a->error.message);
  assert_string_equal(a->choice.variant->name, variant);
  if (strstr(a->choice.why, why) == NULL || strstr(a->choice.why, variant) == NULL)
    fail_msg("why: %s", a->choice.why);
}

static inline void refuses(asked *a, clattn_status status, const char *text) {
  const clattn_status got = ask(a);
  if (got != status || strstr(a->error.message, text) == NULL)
    fail_msg("expected %s \"%s\", got %s \"%s\"", clattn_status_name(status), text, clattn_status_name(got),
             a->error.message);
}

#endif
