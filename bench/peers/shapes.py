# SPDX-License-Identifier: Apache-2.0
"""A problem line as numbers, its inputs as arrays, and how results are compared."""

import math
import os

import numpy as np

TYPES = ("f32", "f16", "bf16")

# Largest difference of a row of the output, by its norm: types with fewer bits also have their weights rounded to them.
TOLERANCE = {"f32": 1e-4, "f16": 5e-3, "bf16": 3e-2}

KNOWN = {"b", "hq", "hkv", "sq", "sk", "d", "dv", "q", "k", "v", "o", "causal", "off", "window", "bias", "scale"}


class Refused(Exception):
    """A shape that an implementation does not take."""


def storage(words, key):
    """A tensor's type; only the usual layout is given to peers."""
    kind, _, layout = words.get(key, "f32").partition(":")
    if kind not in TYPES or layout not in ("", "bhsd"):
        raise Refused(f"no peer is given {key}={words[key]}")
    return kind


class Problem:
    """What the peers can be given of a problem line; raises Refused for the rest."""

    def __init__(self, line):
        words = dict(word.split("=", 1) for word in line.split())
        others = sorted(set(words) - KNOWN)
        if others:
            raise Refused("no peer is given " + ", ".join(f"{key}={words[key]}" for key in others))
        self.batch = int(words.get("b", 1))
        self.heads = int(words.get("hq", 1))
        self.kv_heads = int(words.get("hkv", self.heads))
        self.rows, self.keys = int(words["sq"]), int(words["sk"])
        self.dim = int(words["d"])
        self.v_dim = int(words.get("dv", self.dim))
        types = {storage(words, key) for key in ("q", "k", "v", "o")}
        if len(types) > 1:
            raise Refused("peers are given one type for q, k, v and o, not " + ", ".join(sorted(types)))
        self.type = types.pop()
        self.bias = words.get("bias", "off") != "off"
        if self.bias and storage(words, "bias") != "f32":
            raise Refused(f"no peer is given bias={words['bias']}")
        self.scale_given = words.get("scale", "default") != "default"
        self.scale = float(words["scale"]) if self.scale_given else 1 / math.sqrt(self.dim)
        self.offset = self._offset(words.get("off", "top_left"))
        self.causal, self.left, self.right = words.get("causal") == "1", None, None
        if "window" in words:
            self.left, self.right = (None if side == "inf" else int(side) for side in words["window"].split(","))

    def _offset(self, word):
        if word == "per_batch":
            raise Refused("no peer is given off=per_batch")
        if word == "bottom_right":
            return self.keys - self.rows
        return 0 if word == "top_left" else int(word)

    @property
    def groups(self):
        return self.heads // self.kv_heads

    def keep(self):
        """Which keys each row sees, (rows, keys); None: all of them."""
        last = self.offset + np.arange(self.rows)[:, None]
        keys = np.arange(self.keys)[None, :]
        keep = np.ones((self.rows, self.keys), dtype=bool)
        if self.causal:
            keep &= keys <= last
        if self.left is not None:
            keep &= keys >= last - self.left
        if self.right is not None:
            keep &= keys <= last + self.right
        return None if keep.all() else keep


class Inputs:
    """The arrays that all implementations are given, as floats that their type holds exactly."""

    def __init__(self, problem):
        p = problem
        draw = np.random.default_rng(1).standard_normal
        self.q = rounded(draw((p.batch, p.heads, p.rows, p.dim), dtype=np.float32), p.type)
        self.k = rounded(draw((p.batch, p.kv_heads, p.keys, p.dim), dtype=np.float32), p.type)
        self.v = rounded(draw((p.batch, p.kv_heads, p.keys, p.v_dim), dtype=np.float32), p.type)
        self.bias = draw((p.batch, p.heads, p.rows, p.keys), dtype=np.float32) if p.bias else None
        self.keep = p.keep()

    def is_triangle(self, offset):
        """Whether the mask is that of a causal switch which lets row i see the keys up to i + offset."""
        rows_keys = (self.q.shape[2], self.k.shape[2])
        return self.keep is not None and bool((np.tri(*rows_keys, k=offset, dtype=bool) == self.keep).all())

    def added(self):
        """Bias and mask as one array to add to the scores; None: neither is there."""
        if self.keep is None:
            return self.bias
        mask = np.where(self.keep, np.float32(0), np.float32(-np.inf))[None, None]
        return mask if self.bias is None else self.bias + mask


def refuse_large_scores(problem):
    """For what keeps the scores of all heads in memory, and a copy: half of the machine's memory is too much."""
    size = 2 * 4 * problem.batch * problem.heads * problem.rows * problem.keys
    if size > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2:
        raise Refused(f"its scores would take {size * 1e-9:.0f} GB")


def bf16_bits(values):
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16_bits(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def rounded(values, dtype):
    if dtype == "f16":
        return values.astype(np.float16).astype(np.float32)
    return from_bf16_bits(bf16_bits(values)) if dtype == "bf16" else values


def row_error(got, want):
    """The largest difference of a row, over the row's norm; NaN if anything is no number."""
    if got.shape != want.shape:
        raise Refused(f"the output has shape {got.shape}, not {want.shape}")
    difference = np.linalg.norm(got.astype(np.float64) - want, axis=-1)
    size = np.linalg.norm(want.astype(np.float64), axis=-1)
    return float(np.max(difference / (size + 1e-6)))
