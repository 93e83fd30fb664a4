# SPDX-License-Identifier: Apache-2.0
"""A bound for a kernel's speed from its instructions and a device's rates: compiled and modelled, not measured.

A tile of keys takes as long as the busiest of: issue slots, multiply-adds, special functions, local memory.  All of them
overlap, no access waits, no banks collide, caches hold what is read again: so a bound, not a forecast.  No constant is
fitted: instructions are counted in the disassembly, how often a loop runs follows from what it has to compute, and the
rates with their sources are in rates.json."""

import json
import os
import re

from . import listing

STEP = 16  # CLATTN_STEP of kernels/group_tile.cl.h


def rates_of(target):
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "rates.json"), encoding="utf-8") as file:
        return json.load(file).get(target)


def option(options, name, default):
    found = re.search(rf"-DCLATTN_{name}=(\d+)", options)
    return int(found.group(1)) if found else default


def enclosing(kernel, loop):
    around = [other for other in kernel.loops if other.holds(loop)]
    return min(around, key=lambda other: len(other.at)) if around else None


def add(total, instructions, trips):
    mix = listing.mix_of(instructions)
    for name, count in mix.items():
        total[name] = total.get(name, 0) + trips * count


def exponent_loop(kernel, body, fours):
    """Loops of the softmax in the tile of keys: (loop, how often it runs)."""
    found = []
    for loop in body.inner:
        if loop.inner:
            continue
        mix = listing.mix_of(kernel.body(loop))
        words = max(mix["local_words"], 1)
        stores = sum(i.words for i in kernel.body(loop) if i.kind == "local_store")
        loads = words - stores
        if mix["global_load"] or loads % 4 or not loads:
            continue
        if stores == loads and mix["fma"] >= 4 * loads and mix["fma"] <= 12 * loads:  # numerators take scores' place, six multiply-adds each
            found.append((loop, 4 * fours / loads))
        elif stores == 0 and loads >= 16 and mix["fma"] == 0:  # the maximum
            found.append((loop, 4 * fours / loads))
    return found


def of_flash(kernel, options, target, dim):
    """Of a full tile of keys without rules, per item; None where it is not known."""
    rates = rates_of(target)
    if rates is None or "-DCLATTN_PLAIN=1" not in options or dim % STEP:
        return None
    gx, gy = option(options, "GX", 16), option(options, "GY", 8)
    of_keys, of_values = option(options, "KC", 4), option(options, "VC", 4)
    if dim > gx * of_values:
        return None
    keys, rows, items = gx * of_keys, 8 * gy, gx * gy
    hot = listing.hot_loops(kernel)
    hot = [loop for loop in hot if enclosing(kernel, loop) and enclosing(kernel, enclosing(kernel, loop))]
    if len(hot) != 2:
        return {"unknown": f"{len(hot)} loops of products, not 2"}
    tile = enclosing(kernel, enclosing(kernel, hot[0]))
    total = {}
    for loop, fmas, steps in ((hot[0], 8 * of_keys * dim, dim // STEP), (hot[1], 8 * of_values * keys, keys // STEP)):
        inner = kernel.body(loop)
        add(total, inner, fmas / listing.mix_of(inner)["fma"])
        add(total, kernel.body(enclosing(kernel, loop), own=True), steps)
    softmax = exponent_loop(kernel, tile, keys // (items // rows) // 4)
    for loop, trips in softmax:
        add(total, kernel.body(loop), trips)
    add(total, kernel.body(tile, own=True), 1)
    useful = 2 * keys * rows * dim / items
    lanes = rates["lanes"]
    clocks = {"issue": total["issue"] / rates["issue"][0], "fma": total["fma"] * lanes / rates["fma"][0],
              "special": total["special"] * lanes / rates["special"][0],
              "local": total["local_words"] * lanes / rates["local_words"][0]}
    ideal = useful * lanes / rates["fma"][0]
    return {"bound": ideal / max(clocks.values()), "limit": max(clocks, key=clocks.get),
            "clocks": {name: round(value, 1) for name, value in clocks.items()}, "useful_fma": useful,
            "softmax_loops": len(softmax), "instructions": round(total["instructions"], 1)}
