/* SPDX-License-Identifier: Apache-2.0 */
/* What the fused variants promise beside right numbers: other outputs change no bit of o, and no score matrix is
 * kept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device_judge.h"

/* o of every set of outputs and every stage has the bits that o has alone. */
void outputs_leave_o_alone(void **state) {
  (void)state;
  static const struct {
    const char *line;
    unsigned data;
  } shapes[] = {
      {"b=2 hq=4 hkv=2 sq=70 sk=190 d=20 dv=9 causal=1 off=bottom_right mask=u8 bias=f32", 0},
      {"b=3 hq=2 sq=130 sk=133 d=5 qlen=per_batch klen=per_batch window=9,4 softcap=3", 0},
      {"hq=3 sq=50 sk=600 d=33 dv=300", 0},
      {"hq=2 sq=50 sk=200 d=4 dv=7 mask=u8 scale=1", DATA_NAN_V | DATA_INF_K | DATA_MASK_FIRST | DATA_FAR},
  };
  size_t passed = 0;
  for (size_t n = 0; n < sizeof shapes / sizeof shapes[0]; ++n)
    for (uint32_t v = 0; v < variant_count; ++v) {
      device_job job;
      job_memory memory;
      snapshot alone;
      int claimed = 1;
      if (!variants[v].fused || !variants[v].usable)
        continue;
      parse_job(shapes[n].line, shapes[n].data, &job);
      assert_true(job_memory_open(&rig, &job, &memory));
      run_options options = {.variant = variants[v].name, .outputs = CLATTN_OUT_O};
      assert_true(device_run(&rig, &job, &memory, &options, &claimed));
      assert_true(claimed);
      take(&memory, &alone);
      for (uint32_t others = 0; others < 8; ++others)
        for (int stage = 0; stage < 4; ++stage) {
          const image *o = &memory.slot[CLATTNI_O];
          options.outputs = CLATTN_OUT_O | others << 1;
          options.stage = (clattn_stage)stage;
          assert_true(device_run(&rig, &job, &memory, &options, &claimed));
          if (memcmp(alone.bytes[CLATTNI_O], o->memory, o->bytes) != 0)
            fail_msg("%s, %s: o has other bits with outputs %" PRIu32 ", stage %d", job.line, variants[v].name,
                     options.outputs, stage);
          ++passed;
        }
      drop(&alone);
      job_memory_close(&memory);
    }
  assert_true(passed > 0);
}

static void plan_info_of(const char *line, const char *variant, clattn_plan_info *info) {
  clattn_problem problem;
  clattn_plan_options options;
  clattn_plan *plan = NULL;
  clattn_error error;
  clattn_error_init(&error);
  clattn_plan_options_init(&options);
  options.variant = variant;
  clattn_plan_info_init(info);
  assert_int_equal(clattn_problem_parse(line, &problem, NULL), CLATTN_SUCCESS);
  if (clattn_plan_create(rig.context, &problem, &options, &plan, &error) != CLATTN_SUCCESS)
    fail_msg("%s: %s", line, error.message);
  assert_int_equal(clattn_plan_get_info(plan, info), CLATTN_SUCCESS);
  clattn_plan_release(plan);
}

void fused_plans_keep_no_scores(void **state) {
  (void)state;
  static const char *const outputs[] = {"o", "o,lse,scores", "o,lse,max_logit", "o,lse,scores,max_logit", "scores"};
  size_t passed = 0;
  for (uint32_t v = 0; v < variant_count; ++v)
    for (size_t n = 0; variants[v].fused && variants[v].usable && n < sizeof outputs / sizeof outputs[0]; ++n)
      for (int lengths = 0; lengths < 2; ++lengths) {
        clattn_plan_info info;
        char line[128];
        const int maxima = strstr(outputs[n], "max_logit") != NULL;
        (void)snprintf(line, sizeof line, "hq=8 sq=16384 sk=16384 d=64 out=%s%s", outputs[n],
                       lengths ? " klen=per_batch" : "");
        plan_info_of(line, variants[v].name, &info);
        assert_int_equal(info.workspace_bytes > 0, lengths || maxima);
        assert_true(info.workspace_bytes < 16u << 20);
        assert_int_equal(info.row_blocks, 1);
        /* beside other outputs, scores may have a kernel of their own */
        const int apart =
            clattni_variant_at(v)->kernels[CLATTNI_FLASH_SCORES].name != NULL && strstr(outputs[n], ",scores") != NULL;
        /* lengths of the host are staged, those of the device gathered */
        assert_int_equal(info.launches, 1 + 2 * lengths + maxima + apart);
        ++passed;
      }
  assert_true(passed > 0);
}
