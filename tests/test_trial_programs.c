/* SPDX-License-Identifier: Apache-2.0 */
/* The test at first use lets right kernels through, whatever was compiled into them or left out of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "clattn.h"

static void right_kernels_pass(void **state) {
  (void)state;
  static const char *const lines[] = {"hq=4 hkv=2 sq=9 sk=70 d=8",
                                      "hq=4 hkv=2 sq=40 sk=70 d=72 causal=1 window=16,0",
                                      "hq=4 hkv=2 sq=9 sk=70 d=8 softcap=2 bias=f16",
                                      "sq=9 sk=70 d=8 q=bf16 k=bf16 v=bf16 o=bf16",
                                      "sq=9 sk=70 d=32 q=f16 k=i8 v=i4 o=f16",
                                      "sq=9 sk=70 d=8 rope=half sim=cosine",
                                      "sq=9 sk=70 d=8 sim=additive out=o,scores"};
  static const char *const names[] = {"flash-gpu-simt", "three-step"};
  clattn_context_options options;
  clattn_context *context = NULL;
  clattn_context_options_init(&options);
  options.config_text = "trust=tested";
  assert_int_equal(clattn_context_create_default(&options, &context, NULL), CLATTN_SUCCESS);
  for (size_t n = 0; n < sizeof lines / sizeof *lines; ++n)
    for (size_t v = 0; v < sizeof names / sizeof *names; ++v) {
      clattn_problem problem;
      clattn_plan_options asked;
      clattn_plan *plan = NULL;
      clattn_plan_info info;
      clattn_error error;
      clattn_error_init(&error);
      clattn_plan_info_init(&info);
      clattn_plan_options_init(&asked);
      asked.variant = names[v];
      assert_int_equal(clattn_problem_parse(lines[n], &problem, NULL), CLATTN_SUCCESS);
      if (clattn_plan_create(context, &problem, &asked, &plan, &error) != CLATTN_SUCCESS)
        fail_msg("%s: %s: no plan: %s", lines[n], names[v], error.message);
      assert_int_equal(clattn_plan_get_info(plan, &info), CLATTN_SUCCESS);
      assert_non_null(strstr(info.why, "; tested here"));
      clattn_plan_release(plan);
    }
  clattn_context_release(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(right_kernels_pass)};
  return cmocka_run_group_tests_name("trials of right programs", tests, NULL, NULL);
}
