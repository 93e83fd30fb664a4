/* SPDX-License-Identifier: Apache-2.0 */
/* The workspace's layout, and how rows are divided among tiles. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "asked.h"

static int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

/* ---- workspace ------------------------------------------------------------------------------------------------- */

static void the_smallest_workspace(void **state) {
  (void)state;
  static const char *const lines[] = {
      "b=3 hq=4 sq=333 sk=517 d=16",
      "b=70 hq=2 sq=100 sk=100 d=16 klen=per_batch out=o,lse",
      "hq=3 sq=100 sk=5000 d=16 out=o,max_logit",
      "b=2 hq=3 sq=1 sk=1 d=16 out=o,lse,scores,max_logit qlen=per_batch off=per_batch",
      "hq=3 sq=100 sk=0 d=4",
      "b=9 hq=3 sq=40 sk=50 d=4 q=packed o=packed lse=packed total_q=333 out=o,lse,max_logit prefix=per_batch",
  };
  for (size_t n = 0; n < sizeof lines / sizeof lines[0]; ++n)
    for (int cpu = 0; cpu < 2; ++cpu) {
      asked a;
      unsigned long long least = 0;
      begin(&a, lines[n], cpu ? CL_DEVICE_TYPE_CPU : CL_DEVICE_TYPE_GPU);
      a.request.variant = cpu ? "three-step-cpu" : "three-step";
      a.request.workspace_cap = 1;
      refuses(&a, CLATTN_ERROR_WORKSPACE_TOO_SMALL, "the workspace cap is 1");
      const char *number = strstr(a.error.message, "at least ");
      assert_non_null(number);
      assert_int_equal(sscanf(number, "at least %llu bytes", &least), 1);
      a.request.workspace_cap = least - 1;
      refuses(&a, CLATTN_ERROR_WORKSPACE_TOO_SMALL, "needs at least");
      a.request.workspace_cap = least; /* the message tells the truth */
      picks(&a, cpu ? "three-step-cpu" : "three-step", "");
      assert_int_equal(a.choice.workspace_bytes, least);
      uint64_t before = 0;
      for (uint64_t cap = least; cap < least + 400000; cap += 9973) {
        a.request.workspace_cap = cap;
        picks(&a, cpu ? "three-step-cpu" : "three-step", "");
        assert_true(a.choice.workspace_bytes >= before);
        before = a.choice.workspace_bytes;
      }
      /* the same where the device's largest buffer sets the limit, with any cap above it */
      a.device.max_alloc_bytes = least;
      for (int capped = 0; capped < 2; ++capped) {
        a.request.workspace_cap = capped ? least * 9 : 0;
        picks(&a, cpu ? "three-step-cpu" : "three-step", "");
        assert_int_equal(a.choice.workspace_bytes, least);
      }
      a.device.max_alloc_bytes = least - 1;
      refuses(&a, CLATTN_ERROR_WORKSPACE_TOO_SMALL, "the device's largest buffer");
      a.request.workspace_cap = 0;
      refuses(&a, CLATTN_ERROR_WORKSPACE_TOO_SMALL, "the device's largest buffer");
      a.request.workspace_cap = 1; /* the cap is the narrower one */
      refuses(&a, CLATTN_ERROR_WORKSPACE_TOO_SMALL, "the workspace cap is 1");
    }
}

static void long_sequences_are_bounded(void **state) {
  (void)state;
  static const char *const lines[] = {
      "sq=1000000 sk=1000000 d=64 causal=1",
      "b=4 hq=16 hkv=2 sq=1000000 sk=1000000 d=128 out=o,lse,scores",
      "b=4 hq=16 sq=1 sk=1000000 d=128 klen=per_batch",
      "b=1 hq=1 sq=16384 sk=16384 d=64 out=o,max_logit",
      "hq=64 sq=1000000 sk=1000000 d=64 out=o,max_logit",
  };
  for (size_t n = 0; n < sizeof lines / sizeof lines[0]; ++n)
    for (int cpu = 0; cpu < 2; ++cpu) {
      asked a;
      begin(&a, lines[n], cpu ? CL_DEVICE_TYPE_CPU : CL_DEVICE_TYPE_GPU);
      a.request.variant = cpu ? "three-step-cpu" : "three-step";
      picks(&a, cpu ? "three-step-cpu" : "three-step", "");
      const uint64_t tile = 4 * (uint64_t)a.choice.rows * (uint64_t)(a.problem.k_len + 64);
      /* one tile, or up to four per compute unit below a gibibyte, or the usual room; and a word per row for maxima */
      const uint64_t usual = (uint64_t)(cpu ? 16 : 256) << 20, most = (uint64_t)1 << 30;
      const uint64_t spread = 4 * a.device.compute_units * tile;
      const uint64_t wanted = spread < most ? spread : most,
                     rows = (uint64_t)(a.problem.batch * a.problem.q_heads * a.problem.q_len);
      const uint64_t bound = (tile > wanted ? tile : wanted) > usual ? (tile > wanted ? tile : wanted) : usual;
      assert_true(a.choice.workspace_bytes <= bound + 4 * rows + 64);
      assert_true(a.choice.workspace_bytes > (uint64_t)a.choice.rows * 4 * (uint64_t)a.problem.k_len);
    }
  asked a;
  begin(&a, "sq=10 sk=2147479551 d=1", CL_DEVICE_TYPE_GPU); /* one tile of rows is beyond the device */
  a.request.variant = "three-step";
  refuses(&a, CLATTN_ERROR_WORKSPACE_TOO_SMALL, "the device's largest buffer is 4294967296");
  begin(&a, "b=2147483647 hq=2 sq=1 sk=1 d=1", CL_DEVICE_TYPE_CPU);
  refuses(&a, CLATTN_ERROR_VARIANT_UNFIT, "more row tiles than a grid can count");
  begin(&a, "b=100000 hq=100 sq=2147483647 sk=1 d=1", CL_DEVICE_TYPE_GPU);
  refuses(&a, CLATTN_ERROR_VARIANT_UNFIT, "more row tiles than a grid can count");
}

/* Eight words per batch entry, four for a hook and one per row for maxima, each region padded to 64 bytes; whatever
 * else is asked for. */
static uint64_t fused_bytes(const asked *a) {
  const int64_t rows =
      a->problem.q_heads * (clattni_packed_q(&a->problem) ? a->problem.total_q : a->problem.batch * a->problem.q_len);
  const int64_t entries = clattni_uses_entries(&a->problem) ? (8 * a->problem.batch + 15) / 16 * 16 : 0;
  const int64_t hook = a->problem.hook != NULL ? 16 : 0;
  return 4 * (uint64_t)(entries + hook + (a->problem.outputs & CLATTN_OUT_MAX_LOGIT ? (rows + 15) / 16 * 16 : 0));
}

static void fused_rows_keep_no_scores(void **state) {
  (void)state;
  static const char *const shapes[] = {"hq=8 sq=16384 sk=16384 d=64",
                                       "hq=8 sq=16384 sk=16384 d=64 causal=1 off=3",
                                       "b=3 hq=8 sq=5 sk=2147479551 d=64 klen=per_batch",
                                       "b=3 hq=2 sq=0 sk=9 d=4",
                                       "b=70 hq=2 sq=100 sk=0 d=4 qlen=per_batch",
                                       "b=7 hq=4 hkv=2 sk=90 d=4 q=packed o=packed lse=packed total_q=1000",
                                       "b=7 hq=4 sq=50 sk=90 d=4 prefix=per_batch flags=batch_invariant"};
  static const uint32_t widths[] = {1, 4, 8, 16};
  static const char stages[4][16] = {"raw", "softcap", "masked", "weights"};
  static const char outs[4][16] = {"o", "lse", "scores", "max_logit"};
  size_t nothing = 0, something = 0;
  for (size_t n = 0; n < sizeof shapes / sizeof shapes[0]; ++n)
    for (size_t w = 0; w < sizeof widths / sizeof widths[0]; ++w)
      for (unsigned outputs = 1; outputs < 16; ++outputs)
        for (size_t stage = 0; stage < 4; ++stage) {
          char line[256];
          size_t at = (size_t)snprintf(line, sizeof line, "%s stage=%s out=", shapes[n], stages[stage]);
          for (size_t bit = 0, any = 0; bit < 4; ++bit)
            if (outputs >> bit & 1)
              at += (size_t)snprintf(line + at, sizeof line - at, "%s%s", any++ ? "," : "", outs[bit]);
          asked a;
          begin(&a, line, CL_DEVICE_TYPE_CPU);
          a.problem.hook = (outputs + n) % 3 == 0 ? &made_up_hook : NULL;
          a.device.native_float_width = widths[w];
          picks(&a, "flash-cpu-vector", "a CPU device");
          const uint64_t bytes = a.choice.workspace_bytes;
          assert_int_equal(bytes, fused_bytes(&a));
          assert_true(bytes < (uint64_t)16 << 20);
          ++*(bytes == 0 ? &nothing : &something);
          /* exactly so much is enough; a cap or a device below it is refused, in the words of the first row */
          a.request.workspace_cap = bytes > 0 ? bytes : 1;
          picks(&a, "flash-cpu-vector", "a CPU device");
          assert_int_equal(a.choice.workspace_bytes, bytes);
          if (bytes == 0)
            continue;
          char text[200];
          (void)snprintf(text, sizeof text,
                         "flash-cpu-vector needs at least %" PRIu64
                         " bytes of workspace, for what differs between batch entries and the maxima of rows, in tiles "
                         "of %d rows; the workspace cap is %" PRIu64,
                         bytes, (int)a.choice.rows, bytes - 1);
          a.request.workspace_cap = bytes - 1;
          a.request.variant = "flash-cpu-vector";
          refuses(&a, CLATTN_ERROR_WORKSPACE_TOO_SMALL, text);
          a.request.variant = NULL;
          refuses(&a, CLATTN_ERROR_WORKSPACE_TOO_SMALL, text); /* no other row makes do with less */
          a.request.workspace_cap = 0;
          a.device.max_alloc_bytes = bytes;
          picks(&a, "flash-cpu-vector", "a CPU device");
          a.request.variant = "flash-cpu-vector";
          a.device.max_alloc_bytes = bytes - 1;
          refuses(&a, CLATTN_ERROR_WORKSPACE_TOO_SMALL, "the device's largest buffer");
        }
  assert_true(nothing > 100 && something > 100);
}

/* Fewer tiles than two for each compute unit share their keys out; never so small parts that merging shows, never where
 * bits may not depend on it, and no workspace is refused for it. */
static void parts_where_tiles_are_few(void **state) {
  (void)state;
  static const struct {
    const char *line;
    uint32_t units;
    int32_t parts;
  } rows[] = {
      {"hq=1 sq=1 sk=32768 d=128", 2, 8},
      {"hq=8 hkv=2 sq=1 sk=32768 d=128", 2, 4}, /* two tiles */
      {"hq=8 hkv=2 sq=1 sk=32768 d=128", 16, 32},
      {"hq=8 hkv=2 sq=1 sk=4096 d=128", 16, 8}, /* 512 keys in each */
      {"hq=8 sq=1 sk=32768 d=128", 2, 1},       /* tiles enough */
      {"hq=8 sq=1 sk=32768 d=128", 8, 4},
      {"hq=1 sq=1 sk=1023 d=128", 64, 1},
      {"hq=1 sq=1 sk=1024 d=128", 64, 2},
      {"hq=1 sq=4000 sk=4000 d=64", 2, 1},
      {"hq=1 sq=1 sk=32768 d=128 flags=batch_invariant", 2, 1},
      {"hq=1 sq=1 sk=32768 d=128 out=o,scores", 2, 1},
      {"hq=1 sq=1 sk=32768 d=128 out=lse,max_logit", 2, 8},
      {"hq=1 sq=1 sk=32768 d=128 dv=1100", 2, 1}, /* values in parts already */
  };
  for (size_t n = 0; n < sizeof rows / sizeof rows[0]; ++n) {
    asked a;
    clattni_layout layout;
    begin(&a, rows[n].line, CL_DEVICE_TYPE_CPU);
    a.device.compute_units = rows[n].units;
    picks(&a, "flash-cpu-vector", "");
    if (a.choice.parts != rows[n].parts)
      fail_msg("%s, %u units: %d parts, not %d", rows[n].line, rows[n].units, a.choice.parts, rows[n].parts);
    const clattni_sizes bounds = clattni_bounds(&a.problem);
    assert_true(clattni_layout_make(&a.choice, &a.problem, &bounds, a.choice.workspace_bytes, &layout));
    assert_int_equal(layout.key_chunks, rows[n].parts);
    a.request.workspace_cap = 1024;
    picks(&a, "flash-cpu-vector", "");
    assert_int_equal(a.choice.parts, 1);
  }
}

/* Score tiles of long rows fill the usual workspace soon; compute units must not stand idle for that. */
static void every_compute_unit_has_tiles(void **state) {
  (void)state;
  static const uint32_t unit_counts[] = {2, 32, 128, 1000};
  static const int64_t key_counts[] = {16, 4096, 16384, 32768, 100000, 1000000};
  const uint64_t most = (uint64_t)1 << 30;
  size_t by_units = 0, by_bytes = 0;
  for (size_t u = 0; u < sizeof unit_counts / sizeof unit_counts[0]; ++u)
    for (size_t k = 0; k < sizeof key_counts / sizeof key_counts[0]; ++k)
      for (int n = 0; n < 4; ++n) {
        const int cpu = n & 1;
        char line[128];
        asked a;
        clattni_layout layout;
        (void)snprintf(line, sizeof line, "hq=16 sq=20000 sk=%" PRId64 " d=64%s", key_counts[k],
                       n & 2 ? " out=o,max_logit" : "");
        begin(&a, line, cpu ? CL_DEVICE_TYPE_CPU : CL_DEVICE_TYPE_GPU);
        a.device.compute_units = unit_counts[u];
        a.request.variant = cpu ? "three-step-cpu" : "three-step";
        picks(&a, cpu ? "three-step-cpu" : "three-step", "");
        const clattni_sizes bounds = clattni_bounds(&a.problem);
        assert_true(clattni_layout_make(&a.choice, &a.problem, &bounds, a.choice.workspace_bytes, &layout));
        const uint64_t tile = 4 * (uint64_t)a.choice.rows * (uint64_t)(layout.k_stored + 64);
        const int enough = layout.tiles_per_round >= (int64_t)unit_counts[u];
        const int reached = a.choice.workspace_bytes + tile > most;
        if (!enough && !reached)
          fail_msg("%s: %" PRIu32 " units share %" PRId64 " tiles in %" PRIu64 " bytes", line, unit_counts[u],
                   layout.tiles_per_round, a.choice.workspace_bytes);
        ++*(enough ? &by_units : &by_bytes);
        /* a device that has less in one buffer gets what there is */
        a.device.max_alloc_bytes = (uint64_t)300 << 20;
        picks(&a, cpu ? "three-step-cpu" : "three-step", "");
      }
  assert_true(by_units > 0 && by_bytes > 0);
}

static void entries_have_room(void **state) {
  (void)state;
  static const struct {
    const char *line;
    int uses;
  } rows[] = {
      {"sq=3 sk=3 d=3", 0},
      {"sq=3 sk=3 d=3 causal=1 off=bottom_right window=3,4", 0},
      {"sq=3 sk=3 d=3 qlen=per_batch", 1},
      {"sq=3 sk=3 d=3 klen=per_batch", 1},
      {"sq=3 sk=3 d=3 off=per_batch", 1},
      {"sq=3 sk=3 d=3 off=4", 1}, /* the enqueue may bring an offset per entry */
      {"sq=3 sk=3 d=3 causal=1 prefix=2", 0},
      {"sq=3 sk=3 d=3 causal=1 prefix=per_batch", 1},
      {"sq=3 sk=3 d=3 q=packed o=packed total_q=9", 1},
      {"sq=3 sk=3 d=3 k=packed v=packed total_k=9", 1},
      {"sq=3 sk=3 d=3 k=paged v=paged klen=per_batch pages=2 max_pages=2 page_size=2", 1},
      {"sq=3 sk=3 d=3 block_mask=bits block_q=2 block_k=2 alibi=signed sink=f32 softcap=3 chunk=2 bias=f32 mask=u8", 0},
  };
  for (size_t n = 0; n < sizeof rows / sizeof rows[0]; ++n) {
    const clattn_problem problem = problem_of(rows[n].line);
    assert_int_equal(clattni_uses_entries(&problem), rows[n].uses);
  }
}

/* ---- tiles ------------------------------------------------------------------------------------------------------ */

/* The batch entry of a tile and its first row, as kernels/tile.cl.h finds them. */
static int64_t first_tile_of(const clattni_choice *choice, const int64_t *starts, int64_t b) {
  return starts[b] * choice->pack / choice->rows + b;
}

static void find_rows(const clattni_choice *choice, const int64_t *starts, int64_t batch, int64_t tile, int64_t *entry,
                      int64_t *first) {
  int64_t lo = 0, hi = batch;
  while (hi - lo > 1) {
    const int64_t middle = (lo + hi) / 2;
    if (first_tile_of(choice, starts, middle) <= tile)
      lo = middle;
    else
      hi = middle;
  }
  *entry = lo;
  *first = (tile - first_tile_of(choice, starts, lo)) * choice->rows;
  assert_true(*first >= 0);
  assert_true(lo + 1 == batch || first_tile_of(choice, starts, lo + 1) > tile);
}

/* Every row of every head of every sequence is in exactly one tile; the tiles are as many as the layout says, and no
 * more than one too many for each sequence. */
static void check_search(const clattni_choice *choice, const clattn_problem *problem, const int64_t *starts,
                         int64_t batch, const clattni_layout *layout) {
  const int64_t total = starts[batch], units = problem->q_heads / choice->pack;
  unsigned char *visits = calloc((size_t)(total * problem->q_heads) + 1, 1);
  assert_non_null(visits);
  int64_t needed = 0;
  for (int64_t b = 0; b < batch; ++b)
    needed += ceil_div((starts[b + 1] - starts[b]) * choice->pack, choice->rows);
  assert_true(layout->tiles_per_unit >= needed);
  for (int64_t id = 0; id < layout->total_tiles; ++id) {
    const int64_t unit = id / layout->tiles_per_unit, tile = id % layout->tiles_per_unit;
    int64_t b, first;
    assert_true(unit < units);
    find_rows(choice, starts, batch, tile, &b, &first);
    for (int64_t r = first; r < first + choice->rows; ++r)
      if (r / choice->pack < starts[b + 1] - starts[b])
        ++visits[(starts[b] + r / choice->pack) * problem->q_heads + unit * choice->pack + r % choice->pack];
  }
  for (int64_t i = 0; i < total * problem->q_heads; ++i)
    if (visits[i] != 1)
      fail_msg("row %" PRId64 " of head %" PRId64 " is in %d tiles; %" PRId64 " sequences, %" PRId64
               " tiles of %" PRId32 " rows, %" PRId32 " heads",
               i / problem->q_heads, i % problem->q_heads, visits[i], batch, layout->total_tiles, choice->rows,
               choice->pack);
  free(visits);
}

static void packed_rows_are_found(void **state) {
  (void)state;
  size_t shared = 0, alone = 0, empty = 0;
  for (uint32_t n = 0; n < 3000; ++n) {
    int64_t starts[61];
    clattn_problem problem;
    clattni_choice choice;
    clattni_layout layout;
    const int64_t batch = made_up_size(1, 60), longest = made_up_size(1, 200);
    int64_t most = 0;
    starts[0] = 0;
    for (int64_t b = 0; b < batch; ++b) { /* sequences of no row at the start, in the middle and at the end */
      const int64_t rows = made_up_number(0, 3) == 0 ? 0 : made_up_number(0, longest);
      starts[b + 1] = starts[b] + rows;
      most = rows > most ? rows : most;
      empty += rows == 0;
    }
    if (starts[batch] == 0)
      continue;
    clattn_problem_init(&problem);
    problem.batch = batch;
    problem.kv_heads = made_up_number(1, 3);
    problem.q_heads = problem.kv_heads * made_up_number(1, 7);
    problem.qk_dim = 8;
    problem.k_len = 10;
    problem.q.layout = problem.o.layout = CLATTN_LAYOUT_PACKED;
    problem.q_len = most + made_up_number(0, 20);
    problem.total_q = starts[batch] + made_up_number(0, 50);
    problem.outputs = CLATTN_OUT_O | (uint32_t)(made_up_number(0, 1) ? CLATTN_OUT_MAX_LOGIT : 0);
    clattni_problem_resolve(&problem, &problem);
    assert_true(made_up_choice(&problem, made_up_variant(n), 0, &choice));
    /* as many rows as the host knows of, or as many as there can be, where the starts are on the device */
    for (int on_device = 0; on_device < 2; ++on_device) {
      const clattni_sizes sizes = {batch, problem.q_len, 10, on_device ? problem.total_q : starts[batch], 0};
      assert_true(clattni_layout_make(&choice, &problem, &sizes, choice.workspace_bytes, &layout));
      assert_int_equal(layout.search, 1);
      check_search(&choice, &problem, starts, batch, &layout);
    }
    ++*(choice.pack > 1 ? &shared : &alone);
  }
  assert_true(shared > 300 && alone > 300 && empty > 1000);
}

/* Tiles have numbers of an int: what has more is refused, what has not is taken, however large its other sizes are. */
static void tiles_that_can_be_counted(void **state) {
  (void)state;
  static const struct {
    const char *line;
    int countable;
  } rows[] = {
      {"b=4000 hq=64 sq=100000 sk=1 d=1", 1},
      {"b=100000 hq=64 sq=100000 sk=1 d=1", 0},
      {"b=2147483647 hq=1 sq=1 sk=1 d=1", 0}, /* one more is counted for the end */
      {"b=1000000000 hq=2 sq=1 sk=1 d=1", 1},
      {"b=2147483647 hq=2 sq=1 sk=1 d=1", 0},
      /* packed: as many tiles as rows fill, and one for each sequence; not as many sequences of all rows */
      {"b=10000 hq=64 sk=1 d=1 q=packed o=packed total_q=1000000", 1},
      {"b=10000 hq=64 sk=1 d=1 q=packed o=packed total_q=2000000000", 0},
      {"b=1000000000 hq=1 sq=1 sk=1 d=1 q=packed o=packed total_q=1000", 1},
      {"b=1000000000 hq=2 sq=1 sk=1 d=1 q=packed o=packed total_q=1000", 0},
      {"b=1 hq=1 sk=1 d=1 q=packed o=packed total_q=2147483600", 1},
      {"b=1 hq=1 sk=1 d=1 q=packed o=packed total_q=2147483640", 0}, /* the last tile's rows are counted too */
      {"b=1 hq=8 hkv=1 sq=5 sk=1 d=1 q=packed o=packed total_q=2147483647", 0}, /* rows of eight heads */
      {"b=1 hq=8 hkv=1 sq=5 sk=1 d=1 q=packed o=packed total_q=268435448", 1},
      /* scores have rows of every sequence to the longest */
      {"b=10000 hq=64 sk=1 d=1 q=packed o=packed total_q=1000000 out=o,scores", 0},
      {"b=10000 hq=64 sq=1000 sk=1 d=1 q=packed o=packed total_q=1000000 out=o,scores", 1},
  };
  for (size_t n = 0; n < sizeof rows / sizeof rows[0]; ++n) {
    asked a;
    clattni_layout layout;
    begin(&a, rows[n].line, CL_DEVICE_TYPE_CPU);
    a.device.max_alloc_bytes = UINT64_C(1) << 50;
    a.request.variant = "flash-cpu-vector"; /* tiles of 24 rows; others may be wider */
    if (!rows[n].countable) {
      refuses(&a, CLATTN_ERROR_VARIANT_UNFIT, "more row tiles than a grid can count");
      continue;
    }
    if (ask(&a) != CLATTN_SUCCESS)
      fail_msg("%s: %s", rows[n].line, a.error.message);
    const clattni_sizes bounds = clattni_bounds(&a.problem);
    assert_true(clattni_layout_make(&a.choice, &a.problem, &bounds, a.choice.workspace_bytes, &layout));
    assert_true(layout.total_tiles > 0 && layout.total_tiles <= INT32_MAX);
  }
}

/* Maxima of many rows fill the usual workspace too; score tiles get theirs besides. */
static void maxima_leave_room_for_tiles(void **state) {
  (void)state;
  for (int cpu = 0; cpu < 2; ++cpu) {
    asked a;
    clattni_layout layout;
    begin(&a, "hq=64 sq=2000000 sk=128 d=64 out=o,max_logit", cpu ? CL_DEVICE_TYPE_CPU : CL_DEVICE_TYPE_GPU);
    a.request.variant = cpu ? "three-step-cpu" : "three-step";
    picks(&a, a.request.variant, "");
    const clattni_sizes bounds = clattni_bounds(&a.problem);
    assert_true(clattni_layout_make(&a.choice, &a.problem, &bounds, a.choice.workspace_bytes, &layout));
    assert_true(layout.tiles_per_round >= 1000);
  }
}

/* ---- layouts of random sizes ----------------------------------------------------------------------------------- */

static void check_regions(const clattni_choice *choice, const clattn_problem *problem, const clattni_sizes *sizes,
                          const clattni_layout *l) {
  const int packed = clattni_packed_q(problem), search = packed && !(problem->outputs & CLATTN_OUT_SCORES);
  const int64_t units = problem->q_heads / choice->pack;
  assert_int_equal(l->search, search);
  if (search) {
    const int any = sizes->batch > 0 && sizes->q_len > 0 && sizes->total_q > 0;
    assert_true(!any || l->tiles_per_unit == sizes->total_q * choice->pack / choice->rows + sizes->batch);
    assert_int_equal(l->total_tiles, any ? units * l->tiles_per_unit : 0);
  } else {
    assert_int_equal(l->tiles_per_unit, ceil_div(sizes->q_len * choice->pack, choice->rows));
    assert_int_equal(l->total_tiles, sizes->batch * units * l->tiles_per_unit);
  }
  assert_true(l->k_stored >= sizes->k_len && l->k_stored < sizes->k_len + choice->key_multiple);
  assert_int_equal(l->k_stored % choice->key_multiple, 0);
  if (choice->variant->fused) {
    assert_int_equal(l->key_chunks, choice->parts);
  } else {
    assert_true(l->key_chunks >= 1 && l->key_chunks * choice->keys_per_chunk >= sizes->k_len);
    assert_true(l->key_chunks == 1 || (l->key_chunks - 1) * choice->keys_per_chunk < sizes->k_len);
  }
  /* the regions one behind the other, each long enough */
  const int64_t entries = clattni_uses_entries(problem) ? 8 * sizes->batch : 0;
  const int with_maxima = (problem->outputs & CLATTN_OUT_MAX_LOGIT) != 0;
  const int64_t maxima = with_maxima ? problem->q_heads * (packed ? sizes->total_q : sizes->batch * sizes->q_len) : 0;
  const int64_t round = choice->variant->fused ? 0 : l->tiles_per_round; /* tiles that leave rows and scores */
  const int64_t stats = round * choice->rows, scores = stats * l->k_stored;
  const int64_t partial = with_maxima ? stats * l->key_chunks : 0;
  /* maximum, sum, raw maximum and results of each row */
  const int64_t parts = choice->parts > 1
                            ? ceil_div(l->total_tiles * choice->parts * choice->rows * (3 + choice->dim_chunk), 16) * 16
                            : 0;
  const int64_t hook = problem->hook != NULL ? 4 : 0; /* a word for each of its scalars */
  assert_int_equal(l->entries, 0);
  assert_true(l->hook >= l->entries + entries && l->hook < l->entries + entries + 16);
  assert_true(l->maxima >= l->hook + hook && l->maxima < l->hook + hook + 16);
  assert_true(l->stats >= l->maxima + maxima && l->stats < l->maxima + maxima + 16);
  assert_true(l->partial >= l->stats + stats);
  assert_true(l->scores >= l->partial + partial);
  /* a fused variant with a kernel for scores keeps maximum and sum of every row for the weights */
  const int apart = (problem->outputs & CLATTN_OUT_SCORES) && choice->variant->kernels[CLATTNI_FLASH_SCORES].name;
  const int kept = apart && problem->stage == CLATTN_STAGE_WEIGHTS;
  if (kept)
    assert_true(l->scores >= l->stats + 2 * l->total_tiles * choice->rows);
  else if (choice->variant->fused)
    assert_int_equal(l->scores, l->stats);
  assert_int_equal(l->bytes, 4 * (uint64_t)(l->scores + scores + parts));
  assert_int_equal((l->hook | l->maxima | l->partial | l->stats | l->scores) % 16, 0);
  assert_int_equal(l->bytes % 64, 0);
  /* staging also serves the last step alone, which asks the entries how many rows there are */
  const int64_t staging = (l->total_tiles > 0 || with_maxima) && entries > 0 ? ceil_div(sizes->batch, 24) : 0;
  assert_int_equal(l->staging, staging);
  assert_int_equal(l->launches, staging + (staging > 0) + (hook > 0 && l->total_tiles > 0) +
                                    l->rounds * l->steps_per_round +
                                    ((problem->outputs & CLATTN_OUT_MAX_LOGIT) && sizes->batch > 0));
  if (l->total_tiles == 0) {
    assert_int_equal(l->rounds, 0);
    return;
  }
  assert_true(l->tiles_per_round >= 1 && l->tiles_per_round <= l->total_tiles);
  const int only_scores = apart && !kept && problem->outputs == CLATTN_OUT_SCORES;
  assert_int_equal(l->steps[0] == (only_scores ? CLATTNI_FLASH_SCORES : CLATTNI_FLASH), choice->variant->fused);
  assert_true(!choice->variant->fused || l->steps_per_round == 1 + (apart && !only_scores) + (choice->parts > 1));
  assert_true(!choice->variant->fused || l->rounds == 1);
  assert_true(l->rounds * l->tiles_per_round >= l->total_tiles &&
              (l->rounds - 1) * l->tiles_per_round < l->total_tiles);
}

static void layouts_of_any_size(void **state) {
  (void)state;
  size_t whole = 0, several = 0, refused = 0;
  for (uint32_t n = 0; n < 9000; ++n) {
    const clattn_problem problem = made_up_problem(3000);
    const clattni_sizes bounds = clattni_bounds(&problem);
    clattni_choice choice;
    clattni_layout at_bounds, layout;
    assert_true(made_up_choice(&problem, made_up_variant(n), 0, &choice));
    const uint64_t budget = (uint64_t)made_up_size(0, 40000000);
    const int fits = clattni_layout_make(&choice, &problem, &bounds, budget, &at_bounds);
    check_regions(&choice, &problem, &bounds, &at_bounds);
    assert_int_equal(fits, at_bounds.bytes <= budget);
    /* idempotent; one byte less holds fewer tiles, and no workspace that is refused could have served */
    assert_true(clattni_layout_make(&choice, &problem, &bounds, at_bounds.bytes, &layout));
    assert_memory_equal(&layout, &at_bounds, sizeof layout);
    if (at_bounds.bytes > 0) {
      const int less = clattni_layout_make(&choice, &problem, &bounds, at_bounds.bytes - 1, &layout);
      assert_true(!less || layout.tiles_per_round < at_bounds.tiles_per_round);
      assert_true(!less || fits);
    }
    if (fits && at_bounds.tiles_per_round < at_bounds.total_tiles) { /* another tile would not fit */
      const int64_t tiles = at_bounds.tiles_per_round + 1;
      int64_t stats = (tiles * choice.rows + 15) / 16 * 16;
      if (problem.outputs & CLATTN_OUT_MAX_LOGIT)
        stats += (tiles * at_bounds.key_chunks * choice.rows + 15) / 16 * 16;
      assert_true(4 * (uint64_t)(at_bounds.stats + stats + tiles * choice.rows * at_bounds.k_stored) > budget);
    }
    refused += !fits;
    whole += fits && at_bounds.rounds == 1;
    several += fits && at_bounds.rounds > 1;
    for (int m = 0; m < 5; ++m) {
      const clattni_sizes sizes = made_up_sizes(&problem);
      assert_true(clattni_layout_make(&choice, &problem, &sizes, at_bounds.bytes, &layout));
      check_regions(&choice, &problem, &sizes, &layout);
      assert_true(layout.bytes <= at_bounds.bytes && layout.launches <= at_bounds.launches);
    }
  }
  assert_true(whole > 100 && several > 100 && refused > 100); /* the draw met all kinds */
}

/* What select promises a plan: its own choice serves the bounds with exactly the bytes that it reports. */
static void choices_serve_their_bounds(void **state) {
  (void)state;
  size_t made = 0;
  for (uint32_t n = 0; n < 4500; ++n) {
    const clattn_problem problem = made_up_problem(5000);
    const clattni_sizes bounds = clattni_bounds(&problem);
    clattni_choice choice;
    clattni_layout layout;
    const uint64_t cap = made_up_number(0, 2) == 0 ? 0 : (uint64_t)made_up_size(1, 20000000);
    if (!made_up_choice(&problem, made_up_variant(n), cap, &choice))
      continue;
    assert_true(clattni_layout_make(&choice, &problem, &bounds, choice.workspace_bytes, &layout));
    assert_int_equal(layout.bytes, choice.workspace_bytes);
    ++made;
  }
  assert_true(made > 1000);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_smallest_workspace),    cmocka_unit_test(long_sequences_are_bounded),
      cmocka_unit_test(fused_rows_keep_no_scores), cmocka_unit_test(every_compute_unit_has_tiles),
      cmocka_unit_test(entries_have_room),         cmocka_unit_test(packed_rows_are_found),
      cmocka_unit_test(tiles_that_can_be_counted), cmocka_unit_test(maxima_leave_room_for_tiles),
      cmocka_unit_test(layouts_of_any_size),       cmocka_unit_test(choices_serve_their_bounds),
      cmocka_unit_test(parts_where_tiles_are_few),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
