# SPDX-License-Identifier: Apache-2.0
"""Instructions and loops of one kernel, out of a disassembly."""

import re


class Instruction:
    """kind: fma, arithmetic, local_load, local_store, global_load, global_store, scratch, special, barrier or other.
    fmas: multiply-adds of each lane; words: 4-byte words of local memory of each lane; issued: 1 if it takes a slot of
    the vector units' schedulers."""

    __slots__ = ("text", "kind", "fmas", "words", "issued")

    def __init__(self, text, kind, fmas=0, words=0, issued=1):
        self.text, self.kind, self.fmas, self.words, self.issued = text, kind, fmas, words, issued


class Loop:
    def __init__(self, at):
        self.at, self.inner = frozenset(at), []

    def holds(self, other):
        return other.at < self.at


class Kernel:
    def __init__(self, instructions, jumps):
        """jumps: instruction -> (where it may go, whether it may also go on); [] and False where a kernel ends."""
        self.instructions = instructions
        self.loops = [Loop(at) for at in natural_loops(len(instructions), jumps)]
        for loop in self.loops:
            loop.inner = [other for other in self.loops if loop.holds(other)]

    def body(self, loop, own=False):
        """The loop's instructions; own: without those of loops within it."""
        inside = frozenset().union(*(other.at for other in loop.inner)) if own else frozenset()
        return [self.instructions[i] for i in sorted(loop.at - inside)]


def natural_loops(count, jumps):
    """Sets of instructions that can reach a jump back without passing where it goes, for jumps to what dominates
    them; loops with one head are one."""
    starts = sorted({0} | {to for targets, _ in jumps.values() for to in targets} | {at + 1 for at in jumps if at + 1 < count})
    blocks = list(zip(starts, starts[1:] + [count]))
    number = {first: n for n, (first, _) in enumerate(blocks)}
    after, before = [], [[] for _ in blocks]
    for n, (_, end) in enumerate(blocks):
        targets, on = jumps.get(end - 1, ([], True))
        after.append([number[to] for to in targets] + ([n + 1] if on and n + 1 < len(blocks) else []))
        for to in after[n]:
            before[to].append(n)
    order, seen, stack = [], {0}, [(0, iter(after[0]))]
    while stack:  # depth first, in reverse of the order of leaving
        n, rest = stack[-1]
        to = next(rest, None)
        if to is None:
            order.append(n)
            stack.pop()
        elif to not in seen:
            seen.add(to)
            stack.append((to, iter(after[to])))
    order.reverse()
    over, changed = {0: {0}}, True
    while changed:
        changed = False
        for n in order[1:]:
            known = [over[m] for m in before[n] if m in over]
            now = set.intersection(*known) | {n} if known else {n}
            if over.get(n) != now:
                over[n], changed = now, True
    heads = {}
    for n in order:
        for head in after[n]:
            if head in over[n]:
                inside, todo = heads.setdefault(head, {head}), [n]
                while todo:
                    m = todo.pop()
                    if m not in inside:
                        inside.add(m)
                        todo += [k for k in before[m] if k in over]
    return [[i for n in inside for i in range(*blocks[n])] for inside in heads.values()]


def mix_of(instructions):
    mix = {"instructions": len(instructions), "fma": sum(i.fmas for i in instructions)}
    for kind in ("local_load", "local_store", "global_load", "global_store", "special", "scratch"):
        mix[kind] = sum(i.kind == kind for i in instructions)
    mix["issue"] = sum(i.issued for i in instructions)
    mix["local_words"] = sum(i.words for i in instructions)
    return mix


def hot_loops(kernel):
    """Innermost loops whose instructions are multiply-adds for the most part, and only read local memory: products."""
    hot = []
    for loop in kernel.loops:
        if loop.inner:
            continue
        mix = mix_of(kernel.body(loop))
        if mix["fma"] >= 32 and 2 * mix["fma"] > mix["instructions"] and mix["local_load"] and not mix["global_load"] and \
                not mix["local_store"]:
            hot.append(loop)
    return hot


def kernel_of(instructions, jumps, labels):
    """Jumps by label become jumps by number; what jumps out of the kernel ends it."""
    count = len(instructions)
    return Kernel(instructions, {at: ([labels[to] for to in targets if labels.get(to, count) < count], on)
                                 for at, (targets, on) in jumps.items()})


# ---- NVIDIA ----

def words_in(name):
    return 4 if ".128" in name else 2 if ".64" in name else 1


def nvidia_instruction(text):
    name = re.sub(r"^@!?U?P\w+\s+", "", text).split()[0].rstrip(";")
    base = name.split(".")[0]
    if base in ("FFMA", "DFMA"):
        return Instruction(text, "fma", 1)
    if base == "FFMA2":
        return Instruction(text, "fma", 2)
    if base in ("LDS", "LDSM"):
        return Instruction(text, "local_load", words=words_in(name))
    if base in ("STS", "ATOMS"):
        return Instruction(text, "local_store", words=words_in(name))
    if base in ("LDG", "LD"):
        return Instruction(text, "global_load")
    if base in ("STG", "ST"):
        return Instruction(text, "global_store")
    if base in ("LDL", "STL"):
        return Instruction(text, "scratch")
    if base in ("MUFU", "I2F", "F2I", "F2F", "I2FP"):
        return Instruction(text, "special")
    if base == "BAR":
        return Instruction(text, "barrier")
    return Instruction(text, "arithmetic" if base in ("FADD", "FMUL", "FSETP", "FSEL", "FMNMX", "HADD2", "HFMA2") else "other")


def nvidia(text):
    """Kernels of what 'nvdisasm -c' printed."""
    kernels = {}
    for part in re.split(r"^\s*\.section\s+\.text\.", text, flags=re.M)[1:]:
        name = re.match(r"[\w$]+", part).group()
        labels, instructions, jumps = {}, [], {}
        for line in part.split("\n"):
            label = re.match(r"\s*(\.L_?x?_?\w+):", line)
            if label:
                labels[label.group(1)] = len(instructions)
            found = re.search(r"/\*[0-9a-f]{4,}\*/\s+([^;]*);", line)
            if not found:
                continue
            jump = re.search(r"\bBRA\b.*?`?\((\.L\w+)\)", found.group(1))
            if jump or re.search(r"\b(EXIT|RET)\b", found.group(1)):
                jumps[len(instructions)] = ([jump.group(1)] if jump else [],
                                            bool(re.match(r"@|BRA\S*\s+!?U?P\d", found.group(1))))
            instructions.append(nvidia_instruction(found.group(1).strip()))
        kernels[name] = kernel_of(instructions, jumps, labels)
    return kernels


# ---- AMD ----

AMD_WORDS = {"b32": 1, "b64": 2, "b96": 3, "b128": 4, "u8": 1, "i8": 1, "u16": 1, "i16": 1, "b8": 1, "b16": 1}


def amd_instruction(text):
    instruction = amd_kind(text)
    instruction.issued = int(text.startswith("v_"))  # scalar and memory instructions of other waves go beside it
    return instruction


def amd_kind(text):
    name = text.split()[0]
    fmas = len(re.findall(r"\bv_(?:dual_)?(?:fma|fmac|fmaak|fmamk|mad|mac)_f32", text)) + \
        2 * len(re.findall(r"\bv_pk_fma_f32", text))
    if fmas:
        return Instruction(text, "fma", fmas)
    if name.startswith(("ds_load", "ds_read", "ds_store", "ds_write", "ds_or", "ds_and")):
        words = AMD_WORDS.get(name.split("_")[-1], 1) * (2 if "2" in name.split("_")[1] else 1)
        return Instruction(text, "local_load" if "load" in name or "read" in name else "local_store", words=words)
    if name.startswith(("scratch_", "buffer_")) and re.search(r"load|store", name):
        return Instruction(text, "scratch")
    if name.startswith(("global_load", "flat_load")):
        return Instruction(text, "global_load")
    if name.startswith(("global_store", "flat_store")):
        return Instruction(text, "global_store")
    if re.match(r"v_(exp|log|rcp|rsq|sqrt)", name):
        return Instruction(text, "special")
    if name == "s_barrier":
        return Instruction(text, "barrier")
    return Instruction(text, "arithmetic" if name.startswith("v_") else "other")


def amd(text):
    """Kernels of clang's assembly."""
    kernels = {}
    for name, part in re.findall(r"^(\w+):\s*; @\1\n(.*?)^\.Lfunc_end", text, flags=re.M | re.S):
        labels, instructions, jumps = {}, [], {}
        for line in part.split("\n"):
            label = re.match(r"(\.LBB\w+):", line)
            if label:
                labels[label.group(1)] = len(instructions)
            found = re.match(r"\t([a-z]\w+[^;]*)", line)
            if not found or found.group(1).startswith("."):
                continue
            jump = re.match(r"s_c?branch\w*\s+(\.LBB\w+)", found.group(1))
            if jump or found.group(1).startswith("s_endpgm"):
                jumps[len(instructions)] = ([jump.group(1)] if jump else [], found.group(1).startswith("s_cbranch"))
            instructions.append(amd_instruction(found.group(1).strip()))
        kernels[name] = kernel_of(instructions, jumps, labels)
    return kernels


# ---- Intel ----

def intel_instruction(text):
    name = re.sub(r"^(\(\S+\)\s+)+", "", text).split()[0]
    lanes = re.search(r"\((\d+)\|", text)
    if name == "mad" and ":f" in text:
        return Instruction(text, "fma", 1 if lanes else 0)
    if name.startswith("math"):
        return Instruction(text, "special")
    if name.startswith("send"):
        write = "write" in text or "store" in text
        if "a64" in text or ".ugm" in name:
            if "end of thread" in text or "fence" in text:
                return Instruction(text, "other")
            return Instruction(text, "global_store" if write else "global_load")
        if "barrier" in text:
            return Instruction(text, "barrier")
        if "scratch" in text:
            return Instruction(text, "scratch")
        if "surface" in text or ".slm" in name or "byte" in text:
            return Instruction(text, "local_store" if write else "local_load",
                               words={"x": 1, "xy": 2, "xyz": 3, "xyzw": 4}.get(text.split(" with ")[-1].strip(), 1))
    return Instruction(text, "arithmetic" if ":f" in text else "other")


def intel(text):
    """The one kernel of an ocloc disassembly."""
    labels, instructions, jumps = {}, [], {}
    for line in text.split("\n"):
        label = re.match(r"(L\d+):", line)
        if label:
            labels[label.group(1)] = len(instructions)
            continue
        if not line.strip() or line.startswith("//"):
            continue
        jump = re.search(r"\b(?:jmpi|goto|while|brd)\b.*?\b(L\d+)\s*(?:\{|$|//)", line)
        if jump:
            jumps[len(instructions)] = ([jump.group(1)], True)
        instructions.append(intel_instruction(line.strip()))
    return kernel_of(instructions, jumps, labels)
