# SPDX-License-Identifier: Apache-2.0
"""Errors, and when ours are worse than PyTorch's."""
import math
from typing import NamedTuple

LIMIT = 1.5
# Bits of the significand.
DIGITS = {"f32": 24, "f16": 11, "bf16": 8}


class Errors(NamedTuple):
    largest: float
    rms: float


def measure(got, want):
    """Errors of a tensor; infinite where a number is missing (NaN) or infinite."""
    apart = (got - want).abs()
    if not bool(apart.isfinite().all()):
        return Errors(math.inf, math.inf)
    return Errors(apart.max().item(), apart.square().mean().sqrt().item())


def ulp(value, kind):
    return 2.0 ** (math.frexp(value)[1] - DIGITS[kind])


def verdict(ours, theirs, top, kind):
    """What is worse, or "".  Root mean squares compare as they are.  The largest of some thousand errors is a matter of
    luck where both are about the last place, so one ulp of the output's type at the largest output is never too much:
    no kernel that rounds to the type can promise less (half an ulp is the rounding itself)."""
    if not ours.rms <= LIMIT * theirs.rms:
        return "rms"
    if not ours.largest <= max(LIMIT * theirs.largest, ulp(top, kind)):
        return "max"
    return ""
