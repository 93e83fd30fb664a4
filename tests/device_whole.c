/* SPDX-License-Identifier: Apache-2.0 */
/* Runs as a whole: the same bits again, workspaces of any size, one plan for many sizes. */
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

static const char *const whole_lines[] = {
    "b=2 hq=4 hkv=2 sq=70 sk=90 d=20 dv=9 causal=1 off=bottom_right mask=u8 bias=f32",
    "b=3 hq=2 sq=130 sk=33 d=5 qlen=per_batch klen=per_batch window=9,4 softcap=3",
    "hq=3 sq=50 sk=600 d=33 dv=300",
};
#define WHOLE_LINES (sizeof whole_lines / sizeof whole_lines[0])

static const char *const repeated_lines[] = {
    "b=2 hq=4 hkv=2 sq=70 sk=90 d=20 dv=9 causal=1 off=bottom_right mask=u8 bias=f32",
    "b=3 hq=2 sq=130 sk=33 d=5 qlen=per_batch klen=per_batch window=9,4 softcap=3",
    "hq=3 sq=50 sk=600 d=33 dv=300",
    "b=4 hq=4 hkv=2 sq=60 sk=80 d=8 total_q=110 total_k=200 q=packed o=packed lse=packed k=packed v=packed sink=f32",
    "b=3 hq=4 hkv=2 sq=9 sk=133 d=8 k=paged v=paged klen=per_batch page_size=16 pages=20 max_pages=9 alibi=signed",
    "b=2 hq=2 sq=70 sk=300 d=8 block_mask=bits block_q=16 block_k=24 flags=batch_invariant chunk=100",
};

void repeated_runs_give_the_same_bits(void **state) {
  (void)state;
  size_t passed = 0;
  for (size_t n = 0; n < sizeof repeated_lines / sizeof repeated_lines[0]; ++n) {
    device_job job;
    job_memory memory;
    parse_job(repeated_lines[n], 0, &job);
    assert_true(job_memory_open(&rig, &job, &memory));
    for (uint32_t v = 0; v < variant_count; ++v) {
      run_options options = {.variant = variants[v].name, .outputs = ALL_OUTPUTS, .stage = CLATTN_STAGE_WEIGHTS};
      snapshot first;
      int claimed;
      assert_true(device_run(&rig, &job, &memory, &options, &claimed));
      if (!claimed)
        continue;
      take(&memory, &first);
      for (int again = 0; again < 3; ++again) {
        options.inner_workspace = again % 2;
        assert_true(device_run(&rig, &job, &memory, &options, &claimed));
        assert_true(same_bits(&memory, &first));
        ++passed;
      }
      drop(&first);
    }
    job_memory_close(&memory);
  }
  assert_true(passed > 0);
}

/* Whatever the cap, the same bits; and the plan keeps to it. */
void workspace_caps(void **state) {
  (void)state;
  size_t passed = 0;
  for (size_t n = 0; n < WHOLE_LINES; ++n) {
    device_job job;
    job_memory memory;
    expectation expect;
    parse_job(whole_lines[n], 0, &job);
    assert_true(job_memory_open(&rig, &job, &memory));
    assert_true(expectation_make(&job, &memory, 4, &expect));
    for (uint32_t v = 0; v < variant_count; ++v) {
      run_options options = {.variant = variants[v].name, .outputs = ALL_OUTPUTS, .stage = CLATTN_STAGE_MASKED};
      snapshot first;
      const int result = judge(&job, &memory, &expect, &options);
      assert_true(result >= 0);
      if (result == 0)
        continue;
      take(&memory, &first);
      clattn_plan *plan = NULL;
      clattn_plan_info info;
      clattn_plan_info_init(&info);
      assert_int_equal(device_plan(&rig, &job, &options, &plan, NULL), CLATTN_SUCCESS);
      assert_int_equal(clattn_plan_get_info(plan, &info), CLATTN_SUCCESS);
      clattn_plan_release(plan);
      assert_int_equal(info.row_blocks, 1);
      const uint64_t least = smallest_cap(&job, &options), most = info.workspace_bytes;
      assert_true(variants[v].fused ? least == most : least < most); /* fused: nothing to make rounds of */
      const uint64_t room = most - least;
      const uint64_t caps[] = {least, least + 1, least + room / 3, least + room / 2, room > 0 ? most - 1 : most,
                               most,  most + 1};
      for (size_t c = 0; c < sizeof caps / sizeof caps[0]; ++c) {
        options.workspace_cap = caps[c];
        assert_int_equal(device_plan(&rig, &job, &options, &plan, NULL), CLATTN_SUCCESS);
        assert_int_equal(clattn_plan_get_info(plan, &info), CLATTN_SUCCESS);
        clattn_plan_release(plan);
        assert_true(info.workspace_bytes <= caps[c]);
        assert_true((info.row_blocks > 1) == (caps[c] < most));
        assert_int_equal(judge(&job, &memory, &expect, &options), 1);
        assert_true(same_bits(&memory, &first));
        ++passed;
      }
      drop(&first);
    }
    expectation_free(&expect);
    job_memory_close(&memory);
  }
  assert_true(passed > 0);
}

/* Partial maxima live for one round, a word per row stays: with room for one tile at a time everything still adds up,
 * NaN and infinity among the scores too, and long rows ask for no more room than one tile of them. */
void max_logit_in_the_smallest_workspace(void **state) {
  (void)state;
  static const unsigned data[] = {0, DATA_NAN_K, DATA_NAN_Q | DATA_INF_K};
  static const uint32_t outputs[] = {CLATTN_OUT_MAX_LOGIT, CLATTN_OUT_O | CLATTN_OUT_MAX_LOGIT};
  static const struct {
    const char *line, *sizes;
  } shapes[] = {
      {"b=3 hq=2 sq=100 sk=1100 d=3 causal=1 off=bottom_right qlen=per_batch klen=per_batch", NULL},
      {"b=4 hq=2 sq=300 sk=130 d=3 window=90,20 qlen=per_batch klen=per_batch", "3,110,70"},
  };
  size_t passed = 0;
  for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; ++s)
    for (size_t n = 0; n < sizeof data / sizeof data[0]; ++n) {
      const device_case row = {.name = "max_logit",
                               .line = shapes[s].line,
                               .data = data[n],
                               .q_lengths = "-1,30,90",
                               .k_lengths = "-1,1090,-1,0",
                               .sizes = shapes[s].sizes};
      device_job job;
      job_memory memory;
      expectation expect;
      assert_true(device_case_job(&row, 0, &job));
      assert_true(job_memory_open(&rig, &job, &memory));
      assert_true(expectation_make(&job, &memory, 0, &expect));
      for (size_t v = 0; v < variant_count; ++v)
        for (size_t w = 0; w < sizeof outputs / sizeof outputs[0]; ++w) {
          run_options options = {.variant = variants[v].name, .outputs = outputs[w]};
          clattn_plan *plan = NULL;
          clattn_plan_info info;
          clattn_plan_info_init(&info);
          if (device_plan(&rig, &job, &options, &plan, NULL) == CLATTN_ERROR_VARIANT_UNFIT)
            continue;
          clattn_plan_release(plan);
          options.workspace_cap = smallest_cap(&job, &options);
          assert_int_equal(device_plan(&rig, &job, &options, &plan, NULL), CLATTN_SUCCESS);
          assert_int_equal(clattn_plan_get_info(plan, &info), CLATTN_SUCCESS);
          const int64_t keys = job.resolved.k_len, rows = info.tile_q;
          const int64_t tiles = job.resolved.batch * job.resolved.q_heads * ((job.resolved.q_len + rows - 1) / rows);
          const int64_t all_rows = job.resolved.batch * job.resolved.q_heads * job.resolved.q_len;
          const int64_t fixed = 8 * job.resolved.batch + all_rows + 2 * 15;
          const int64_t regions = fixed + rows * (2 + keys / info.tile_k) + 2 * 15;
          const int64_t words = regions + rows * ((keys + 15) / 16 * 16);
          const int64_t most = variants[v].fused ? fixed : words;
          assert_true(variants[v].fused ? info.row_blocks == 1 : info.row_blocks >= tiles / 2);
          assert_true(info.workspace_bytes <= 4 * (uint64_t)most);
          options.plan = plan;
          assert_int_equal(judge(&job, &memory, &expect, &options), 1);
          clattn_plan_release(plan);
          ++passed;
        }
      expectation_free(&expect);
      job_memory_close(&memory);
    }
  assert_true(passed > 0);
}

/* One plan, its workspace cap small, at many sizes below its bounds. */
void one_plan_for_many_sizes(void **state) {
  (void)state;
  static const struct {
    const char *line, *sizes;
  } steps[] = {
      {NULL, "4,90,130"}, {NULL, "1,1,1"}, {NULL, "4,1,130"}, {NULL, "3,90,1"},  {NULL, "2,25,64"},
      {NULL, "4,0,130"},  {NULL, "0,9,9"}, {NULL, "2,33,0"},  {NULL, "1,64,65"}, {NULL, "4,90,130"},
  };
  static const char line[] =
      "b=4 hq=4 hkv=2 sq=90 sk=130 d=12 dv=7 q=bshd_exact k=bshd v=bhsd o=bhsd_exact lse=bhsd_exact "
      "scores=bhsd_exact max_logit=bhsd_exact bias=f32:bhsd_exact mask=bits causal=1 "
      "off=bottom_right klen=per_batch";
  size_t passed = 0;
  for (uint32_t v = 0; v < variant_count; ++v) {
    run_options options = {.variant = variants[v].name, .outputs = ALL_OUTPUTS, .stage = CLATTN_STAGE_WEIGHTS};
    clattn_plan *plan = NULL;
    device_job whole;
    parse_job(line, 0, &whole);
    for (int small = 0; small < 2; ++small) {
      if (small)
        options.workspace_cap = smallest_cap(&whole, &options) + 20000;
      const clattn_status status = device_plan(&rig, &whole, &options, &plan, NULL);
      if (status == CLATTN_ERROR_VARIANT_UNFIT)
        break;
      assert_int_equal(status, CLATTN_SUCCESS);
      options.plan = plan;
      for (size_t n = 0; n < sizeof steps / sizeof steps[0]; ++n) {
        const device_case row = {.name = "one plan", .line = line, .sizes = steps[n].sizes, .k_lengths = "-1,0,50,3"};
        device_job job;
        job_memory memory;
        expectation expect;
        assert_true(device_case_job(&row, 0, &job));
        assert_true(job_memory_open(&rig, &job, &memory));
        assert_true(expectation_make(&job, &memory, 8, &expect));
        assert_int_equal(judge(&job, &memory, &expect, &options), 1);
        ++passed;
        expectation_free(&expect);
        job_memory_close(&memory);
      }
      options.plan = NULL;
      clattn_plan_release(plan);
    }
  }
  assert_true(passed > 0);
}
