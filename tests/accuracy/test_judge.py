# SPDX-License-Identifier: Apache-2.0
"""The judge itself: what it must let through and what not."""
import unittest

import torch

from judge import Errors, measure, ulp, verdict


class Judge(unittest.TestCase):
    def test_measure(self):
        errors = measure(torch.tensor([1.0, 2.0, 3.0, 8.0]).double(), torch.tensor([1.0, 2.0, 3.0, 4.0]).double())
        self.assertEqual(errors, Errors(4.0, 2.0))

    def test_missing_numbers_are_worse_than_anything(self):
        for bad in (float("nan"), float("inf")):
            ours = measure(torch.tensor([1.0, bad]).double(), torch.tensor([1.0, 2.0]).double())
            self.assertTrue(verdict(ours, Errors(1e30, 1e30), 1.0, "f32"))

    def test_limits(self):
        theirs = Errors(1e-3, 1e-4)
        self.assertEqual(verdict(Errors(1.4e-3, 1.4e-4), theirs, 1.0, "f32"), "")
        self.assertEqual(verdict(Errors(1.4e-3, 1.6e-4), theirs, 1.0, "f32"), "rms")
        self.assertEqual(verdict(Errors(1.6e-3, 1.4e-4), theirs, 1.0, "f32"), "max")

    def test_a_unit_in_the_last_place_is_no_fault(self):
        self.assertEqual([ulp(1.0, "f32"), ulp(1.5, "f16"), ulp(3.0, "bf16")], [2**-23, 2**-10, 2**-6])
        self.assertEqual(verdict(Errors(2**-10, 1e-5), Errors(2**-12, 1e-5), 1.0, "f16"), "")
        self.assertEqual(verdict(Errors(1.1 * 2**-10, 1e-5), Errors(2**-12, 1e-5), 1.0, "f16"), "max")


if __name__ == "__main__":
    unittest.main()
