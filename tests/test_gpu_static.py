#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What scripts/check-gpu reads off disassemblies, and what it complains of; no compiler is needed."""

import os
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bench"))

from gpu_static import listing, record, tools  # noqa: E402

# An outer loop whose inner one comes first in memory, as compilers lay them out; one way out between.
AMD = """flash:                                  ; @flash
\tv_mov_b32_e32 v0, 0
\ts_branch .LBB0_2
.LBB0_1:
\tds_load_b128 v[4:7], v1
\tv_dual_fmac_f32 v2, v4, v5 :: v_dual_fmac_f32 v3, v6, v7
\tv_fmac_f32_e32 v8, v4, v6
\ts_cbranch_scc1 .LBB0_1
.LBB0_2:
\tglobal_load_b32 v1, v[9:10], off
\ts_cbranch_scc0 .LBB0_1
\tscratch_store_b32 off, v0, off
\ts_endpgm
.Lfunc_end0:
"""
NVIDIA = """	.section	.text.flash,"ax",@progbits
.L_x_0:
        /*0000*/                   LDS.128 R4, [R2] ;
        /*0010*/                   FFMA R0, R4, R5, R0 ;
        /*0020*/                   LDS.64 R4, [R2+0x10] ;
        /*0030*/              @P0  BRA `(.L_x_0) ;
        /*0040*/                   STL [R1], R0 ;
        /*0050*/                   EXIT ;
"""


def a_row(**figures):
    row = dict(zip(record.LABEL, ("flash-gpu-simt", "f32", 64, "plain", "sm_90", "flash")))
    return {**row, "spills": 0, "scratch": 0, "model": {"bound": 0.70}, **figures}


class Listings(unittest.TestCase):
    def test_amd(self):
        kernel = listing.amd(AMD)["flash"]
        self.assertEqual(sorted(sorted(loop.at) for loop in kernel.loops), [[2, 3, 4, 5], [2, 3, 4, 5, 6, 7]])
        mix = listing.mix_of(kernel.instructions)
        self.assertEqual((mix["fma"], mix["local_words"], mix["global_load"], mix["scratch"]), (3, 4, 1, 1))
        self.assertEqual(mix["issue"], 3)

    def test_nvidia(self):
        kernel = listing.nvidia(NVIDIA)["flash"]
        self.assertEqual(len(kernel.loops), 1)
        mix = listing.mix_of(kernel.body(kernel.loops[0]))
        self.assertEqual((mix["instructions"], mix["fma"], mix["local_words"], mix["scratch"]), (4, 1, 6, 0))
        self.assertEqual(listing.mix_of(kernel.instructions)["scratch"], 1)

    def test_loop_in_loop(self):
        # 0 head, 1 inner head, 2 back to 1, 3 back to 0, 4 end
        found = sorted(map(sorted, listing.natural_loops(5, {2: ([1], True), 3: ([0], True)})))
        self.assertEqual(found, [[0, 1, 2, 3], [1, 2]])


class Complaints(unittest.TestCase):
    def test_spills(self):
        self.assertEqual(len(record.complaints([a_row(spills=4)], [])), 1)
        self.assertEqual(len(record.complaints([a_row(scratch=4)], [a_row()])), 1)
        self.assertEqual(record.complaints([a_row()], [a_row()]), [])

    def test_bound(self):
        self.assertEqual(len(record.complaints([a_row(model={"bound": 0.6})], [a_row()])), 1)
        self.assertEqual(record.complaints([a_row(model={"bound": 0.8})], [a_row()]), [])

    def test_missing_compiler(self):
        nowhere = tools.Tools("/nonexistent", fetch=False)
        with self.assertRaises(tools.Missing):
            nowhere.debian("ocloc", ("intel-opencl-icd",), "usr/bin/ocloc")


if __name__ == "__main__":
    unittest.main()
