# SPDX-License-Identifier: Apache-2.0
"""bench/inspect_kernel.  toy: counts what stands in data/inspect_toy.s, and refuses what it should.
device: the product loops of the default kernels keep to registers, in the device's vector width."""
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TOOL = os.path.join(os.path.dirname(HERE), "bench", "inspect_kernel")
SKIPPED = 77
LINES = ("hq=8 sq=1152 sk=1152 d=64",
         "hq=32 hkv=8 sq=1 sk=4096 d=128 q=bf16 k=bf16 v=bf16 o=bf16 off=bottom_right")
# What is compared of each loop, in order.
COUNTED = ("function", "instructions", "always_run", "fma", "dot", "tile", "sums", "vector_loads", "broadcasts",
           "vector_stores", "spill_loads", "spill_stores", "gathers", "inserts", "scalar_float", "bits", "hot")
START = "_pocl_kernel_toy_workgroup"
INNERMOST = [["helper", 5, 5, 2, 0, 0, 2, 1, 1, 0, 0, 0, 0, 0, 0, [512], True],
             [START, 14, 14, 4, 0, 0, 4, 2, 2, 1, 2, 1, 0, 0, 0, [512], True],
             [START, 7, 7, 2, 0, 0, 0, 2, 0, 1, 0, 0, 0, 0, 0, [256], False],
             [START, 13, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, [256], False],
             [START, 6, 6, 0, 2, 1, 3, 0, 0, 0, 0, 0, 0, 0, 0, [512], True]]
AROUND = [START, 6, 5, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, [256], False]


def skip(why):
    print("skipped:", why)
    sys.exit(SKIPPED)


def use(*arguments, path=None):
    environment = dict(os.environ)
    if path is not None:
        environment["PATH"] = path
    return subprocess.run([sys.executable, TOOL, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=environment, check=False)


def expect(result, code, *words):
    text = result.stdout + result.stderr
    if result.returncode != code or any(word not in text for word in words):
        sys.exit(f"{' '.join(result.args)}\nended with {result.returncode}, not {code}, or lacks one of {words}:\n{text}")


def counted(*arguments):
    result = use(*arguments, "--json")
    expect(result, 0)
    return [[loop[name] for name in COUNTED] for loop in json.loads(result.stdout)["kernels"][0]["loops"]]


def same(have, want):
    if have != want:
        sys.exit("counted\n" + "\n".join(map(str, have)) + "\nnot\n" + "\n".join(map(str, want)))


def toy(compiler):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "toy.so")
        if subprocess.run([compiler, "-shared", "-nostdlib", "-o", path, os.path.join(HERE, "data", "inspect_toy.s")],
                          check=False).returncode != 0:
            sys.exit("the assembler takes no AMX: data/inspect_toy.s needs binutils 2.34 or LLVM 12")
        same(counted("--object", path), INNERMOST)
        same(counted("--object", path, "--outer"), INNERMOST[:2] + [AROUND] + INNERMOST[2:])
        same([loop[3] for loop in counted("--object", path, "--function", "_pocl_kernel_toy")], [3])

        expect(use("--object", path), 0, "kernel toy: 5 innermost loops", " *2 ", "helper jumps to where")
        expect(use("--object", path, "--loop", "2"), 0, "vmovups %zmm5,-0x40(%rbp)", "store SPILL", "fma broadcast")
        expect(use("--object", path, "--loop", "6"), 2, "counted from 1")
        perf = os.path.join(folder, "perf")  # stands in for Linux's: three samples in loop 1, one outside, one elsewhere
        with open(perf, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\necho ' 7f1 helper+0x5 (/x/toy.so)'\necho ' 7f2 helper+0x5 (/x/toy.so)'\n"
                       "echo ' 7f3 helper+0xc (/x/toy.so)'\necho ' 7f4 helper (/x/toy.so)'\necho ' 7f5 main+0x2 (/x/main)'\n")
        os.chmod(perf, 0o755)
        with_perf = folder + os.pathsep + os.environ["PATH"]
        expect(use("--object", path, "--perf", "perf.data", path=with_perf), 0, " 75.0 %", "25.0 % of the time is outside")
        expect(use("--object", path, "--perf", "perf.data", "--loop", "1", path=with_perf), 0, " 50.0 % ", " 25.0 % ")
        expect(use("--perf", "perf.data", "hq=1 sq=1"), 2, "--perf tells of the object that ran")
        good = ("--min-hot", "3", "--max-spills", "3", "--no-gather", "--width", "512")
        expect(use("--object", path, *good), 0)
        expect(use("--object", path, *good, "--json"), 0)
        expect(use("--object", path, *good[2:], "--min-hot", "4"), 1, "toy has 3 hot loops, not 4")
        expect(use("--object", path, "--max-spills", "2"), 1, "loop 2 at", "3 spills, more than 2")
        expect(use("--object", path, "--width", "256"), 1, "arithmetic of 512 bits, not 256")
        expect(use("--object", path, "--function", "_pocl_kernel_toy", "--max-spills", "0"), 0)
        expect(use("--object", path, "--function", "lost"), 2, "no function 'lost'; there are: ", "helper")
        expect(use("--object", path, "--width", "native"), 2, "--object has none")
        expect(use("--object", path, "hq=1 sq=1"), 2, "give a problem line, or --object")
        expect(use("--object", os.path.join(folder, "none.so")), 2, "No such file")
        expect(use("--object", TOOL), 2, "is not an object file")
        with open(path, "rb") as file:
            code = bytearray(file.read())
        code[18:20] = b"\xb7\x00"  # AArch64
        other = os.path.join(folder, "other.so")
        with open(other, "wb") as file:
            file.write(code)
        expect(use("--object", other), SKIPPED, "is not code for x86-64")
        expect(use("--object", path, path=folder), 2, "objdump is not installed")
        expect(use("hq=1 sq=1", "--clattn", other), 2, "is not a program")


def device(clattn):
    """Nothing of a machine is assumed but fused multiply-adds."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            flags = next((line.split() for line in file if line.startswith("flags")), [])
    except OSError:
        flags = []
    if "fma" not in flags:
        skip("the processor has no fused multiply-add, or does not say so")
    for line in LINES:
        result = use(line, "--clattn", clattn, "--min-hot", "2", "--max-spills", "0", "--no-gather", "--width", "native")
        print(result.stdout + result.stderr)
        if result.returncode == SKIPPED:
            skip("the device's driver is not PoCL")
        expect(result, 0, "flash-cpu-vector", " fma ")
    # Checks that can't fail would hold nothing.
    expect(use(LINES[0], "--clattn", clattn, "--min-hot", "99"), 1, "hot loops, not 99")


def main():
    if shutil.which("objdump") is None:
        skip("no objdump (Debian's package binutils)")
    if platform.machine() not in ("x86_64", "AMD64"):
        skip("only code for x86-64 can be read")
    {"toy": toy, "device": device}[sys.argv[1]](sys.argv[2])


if __name__ == "__main__":
    main()
