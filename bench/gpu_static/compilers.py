# SPDX-License-Identifier: Apache-2.0
"""Compiles a program's text for a target; figures of its kernels: registers, spills, scratch, local memory, occupancy,
instruction mix."""

import glob
import os
import re
import shutil

from . import listing
from .tools import Missing, run


class Broken(Exception):
    """A program that a compiler refuses."""


def checked(command, environment=None):
    result = run(command, environment)
    if result.returncode != 0:
        raise Broken(f"{' '.join(command)}\n{result.stdout.strip()[-2000:]}")
    return result.stdout


def clang(tools, source, options, target, library, out):
    """clang's assembly for a target.  Half and double are types of the language on these, extension or not."""
    checked([tools.get("clang-19"), "-x", "cl", *options.split(), *target, "-Xclang", "-cl-ext=+cl_khr_fp16", "-Xclang",
             "-finclude-default-header", "-Xclang", "-mlink-builtin-bitcode", "-Xclang",
             os.path.join(tools.get("libclc"), library), "-O3", "-w", "-S", source, "-o", out])


# Registers, warps, local memory and work-groups of a multiprocessor.  CUDA C++ Programming Guide, technical
# specifications per compute capability.
NVIDIA = {"sm_75": (65536, 32, 64 << 10, 16), "sm_80": (65536, 64, 164 << 10, 32), "sm_86": (65536, 48, 100 << 10, 16),
          "sm_90": (65536, 64, 228 << 10, 32), "sm_120": (65536, 48, 100 << 10, 24)}


def nvidia_occupancy(target, registers, local, items):
    """Warps that are resident on a multiprocessor, of those that may be."""
    all_registers, warps, all_local, groups = NVIDIA[target]
    per_group = (items + 31) // 32
    of_warp = (registers * 32 + 255) // 256 * 256
    fitting = min(groups, warps // per_group, all_registers // of_warp // per_group, all_local // (local + 1024))
    return [fitting * per_group, warps]


def nvidia(tools, source, options, target, folder):
    assembly, object_ = os.path.join(folder, "k.ptx"), os.path.join(folder, "k.cubin")
    virtual = "sm_90" if target == "sm_120" else target
    clang(tools, source, options, ["-target", "nvptx64-nvidia-nvcl", "-march=" + virtual], "nvptx64--nvidiacl.bc", assembly)
    said = checked([tools.get("ptxas"), "-arch=" + target, "-v", assembly, "-o", object_])
    kernels = listing.nvidia(checked([tools.get("nvdisasm"), "-c", object_]))
    with open(assembly, encoding="utf-8") as file:
        groups = {n: (int(x), int(y)) for n, x, y in
                  re.findall(r"\.entry (\w+)\(.*?\.reqntid (\d+), (\d+)", file.read(), flags=re.S)}
    figures = {}
    for part in said.split("Compiling entry function ")[1:]:
        name = re.match(r"'(\w+)'", part).group(1)
        stores, loads = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", part).groups()
        local = int((re.search(r"(\d+) bytes smem", part) or [0, 0])[1])
        registers = int(re.search(r"Used (\d+) registers", part).group(1))
        kernel, items = kernels[name], groups.get(name, (32, 1))
        figures[name] = {
            "registers": registers, "spills": int(stores) + int(loads),
            "scratch": int(re.search(r"(\d+) bytes stack frame", part).group(1)), "local_bytes": local,
            "occupancy": nvidia_occupancy(target, registers, local, items[0] * items[1]), "kernel": kernel}
    return figures


def amd(tools, source, options, target, folder):
    assembly = os.path.join(folder, "k.s")
    clang(tools, source, options, ["-target", "amdgcn-amd-amdhsa", "-mcpu=" + target, "-nogpulib"], "amdgcn--amdhsa.bc",
          assembly)
    with open(assembly, encoding="utf-8") as file:
        text = file.read()
    kernels, figures = listing.amd(text), {}
    notes = {re.search(r"\.name:\s+(\w+)\n", part).group(1): part
             for part in re.findall(r"^  - \.ag?.*?\.wavefront_size: \d+", text, flags=re.M | re.S)}
    comments = {name: part for name, part in re.findall(r"^(\w+):\s*; @\1\n.*?(; Kernel info:.*?; COMPUTE_PGM_RSRC2:TIDIG)",
                                                        text, flags=re.M | re.S)}
    for name, kernel in kernels.items():
        if name not in comments or name not in notes:
            continue
        def number(word, where, default=0):
            found = re.search(word + r":\s*(\d+)", where)
            return int(found.group(1)) if found else default
        figures[name] = {
            "registers": number("TotalNumVgprs", comments[name], number("NumVgprs", comments[name])),
            "spills": number(r"\.vgpr_spill_count", notes[name]), "scratch": number("ScratchSize", comments[name]),
            "local_bytes": number(r"\.group_segment_fixed_size", notes[name]),
            "occupancy": [number("Occupancy", comments[name]), 8 if target.startswith("gfx9") and target != "gfx906" else
                          10 if target == "gfx906" else 16], "kernel": kernel}
    return figures


def intel(tools, source, options, target, folder):
    ocloc = tools.get("ocloc")
    root = os.path.dirname(os.path.dirname(os.path.dirname(ocloc)))
    libraries = os.path.join(root, "usr/lib/x86_64-linux-gnu")
    environment = dict(os.environ, LD_LIBRARY_PATH=":".join(
        [libraries, os.path.join(libraries, "intel-opencl"), os.path.join(root, "usr/lib/llvm-14/lib")]))
    out, dump = os.path.join(folder, "out"), os.path.join(folder, "dump")
    said = checked([ocloc, "compile", "-file", source, "-device", target, "-out_dir", out, "-options", options], environment)
    binary = glob.glob(os.path.join(out, "*.bin"))
    if not binary:
        raise Broken(f"ocloc wrote no binary for {target}: {said.strip()[-1000:]}")
    checked([ocloc, "disasm", "-file", binary[0], "-dump", dump, "-device", target], environment)
    figures = {}
    for path in glob.glob(os.path.join(dump, "*_KernelHeap.asm")) + glob.glob(os.path.join(dump, ".text.*.asm")):
        name = re.sub(r"_KernelHeap\.asm$|\.asm$|^\.text\.", "", os.path.basename(path))
        with open(path, encoding="utf-8", errors="replace") as file:
            kernel = listing.intel(file.read())
        used = {int(r) for i in kernel.instructions for r in re.findall(r"\br(\d+)\b", i.text)}
        spilt = re.search(rf"kernel {name}\b.*?spill\w* (?:size )?(\d+)|{name}.*allocated.*spill", said)
        figures[name] = {"registers": max(used or {0}) + 1, "spills": int(spilt.group(1) or 1) if spilt else 0,
                         "scratch": private_messages(name, kernel), "local_bytes": None, "occupancy": None,
                         "kernel": kernel}
    return figures


def private_messages(name, kernel):
    """Messages that write private arrays to memory, which ocloc does not report: all of the tile kernels' own writes to
    global memory come after their last barrier, those of `flash` after the last but one."""
    if name not in ("flash", "flash_scores", "scores", "weighted_sum"):
        return sum(i.kind == "scratch" for i in kernel.instructions)
    barriers = [n for n, i in enumerate(kernel.instructions) if i.kind == "barrier"]
    last = -2 if name == "flash" else -1
    end = barriers[last] if len(barriers) >= -last else 0
    return sum(i.kind in ("global_store", "scratch") for i in kernel.instructions[:end])


FAMILIES = {"nvidia": nvidia, "amd": amd, "intel": intel}
NEEDS = {"nvidia": ("clang-19", "libclc", "ptxas", "nvdisasm"), "amd": ("clang-19", "libclc"), "intel": ("ocloc",)}


def compile_for(tools, family, target, text, folder):
    """Figures of the kernels of a program's text: options on its first line, then the source."""
    for need in NEEDS[family]:
        tools.get(need)
    options, source = text.split("\n", 1)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    path = os.path.join(folder, "k.cl")
    with open(path, "w", encoding="utf-8") as file:
        file.write(source)
    try:
        return FAMILIES[family](tools, path, options, target, folder), options
    finally:
        shutil.rmtree(folder, ignore_errors=True)


__all__ = ["Broken", "Missing", "compile_for", "NEEDS"]
