# SPDX-License-Identifier: Apache-2.0
"""accuracy.py ATTEND FOLDER [--device ID] [--only PATTERN]

Errors of clattn's variants and of PyTorch's CPU kernels on the same inputs, both against double precision.  ATTEND is
the program of attend.c, FOLDER takes inputs and results.  Exit code: 0 all within the limits, else 1.

What is measured: |got - want| of every output element, got as it is stored (f16 and bf16 too), want attention in
double precision of the stored inputs widened exactly.  A row of the report is a case, its types and a variant, with
the largest and the root-mean-square error and their ratios to those of PyTorch's default kernel.

PyTorch has no kernel for mixed or quantised types: there its f32 kernels get the inputs widened (scale * integer is
exact in f32 here), and the outputs are f32 on both sides."""
import argparse
import fnmatch
import pathlib
import platform
import subprocess
import sys
import zlib

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from judge import measure, verdict

TORCH = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
# Types of q, k and v, o, and the type that PyTorch computes in.
TYPES = {
    "f32": ("f32", "f32", "f32", "f32"),
    "f16": ("f16", "f16", "f16", "f16"),
    "bf16": ("bf16", "bf16", "bf16", "bf16"),
    "f16 to f32": ("f16", "f16", "f32", "f32"),
    "bf16 to f32": ("bf16", "bf16", "f32", "f32"),
    "f32, kv i8": ("f32", "i8", "f32", "f32"),
    "f16 to f32, kv i4": ("f16", "i4", "f32", "f32"),
}


def normal(draw, shape):
    return draw.standard_normal(shape, dtype=np.float32)


def positive(draw, shape):
    return draw.uniform(1, 2, shape).astype(np.float32)


def case(text, hq, sq, d, hkv=None, sk=None, b=1, causal=False, q_by=1.0, k_plus=0.0, value=normal):
    return dict(text=text, b=b, hq=hq, hkv=hkv or hq, sq=sq, sk=sk or sq, d=d, causal=causal, q_by=q_by, k_plus=k_plus,
                value=value)


CASES = {
    "d64": case("", 4, 256, 64),
    "d128": case("", 2, 512, 128),
    "d40": case("lengths and dimension off the tiles", 2, 203, 40, b=2),
    "causal": case("", 4, 512, 64, causal=True),
    "gqa": case("grouped heads", 8, 256, 64, hkv=2),
    "decode": case("one query row", 8, 1, 128, hkv=2, sk=1024, b=4),
    "long": case("", 2, 1024, 64),
    "sharp": case("large scores, few keys count", 4, 256, 64, q_by=8),
    "shifted": case("scores of a row share a large part", 4, 256, 64, k_plus=4),
    "flat": case("weights nearly equal, values positive", 2, 64, 64, sk=4096, q_by=0.1, value=positive),
    "positive": case("values positive", 2, 128, 128, sk=1024, value=positive),
}


class Tensor:
    """What lies in a file, and its exact values as double."""

    def __init__(self, values, kind, scale_group=None):
        if kind in TORCH:
            self.torch = torch.from_numpy(values).to(TORCH[kind])
            self.stored = self.torch.view(torch.int16).numpy().view(np.uint16) if kind == "bf16" else self.torch.numpy()
            self.exact = self.torch.double()
            self.scale = None
            return
        top, group = (127, values.shape[-1]) if kind == "i8" else (7, 32)
        d = values.shape[-1]
        starts = np.arange(0, d, group)
        self.scale = (np.maximum.reduceat(np.abs(values), starts, axis=-1) / top).astype(np.float16)
        wide = np.repeat(self.scale.astype(np.float32), group, axis=-1)[..., :d]
        whole = np.clip(np.rint(values / wide), -top, top)
        if kind == "i8":
            self.stored = whole.astype(np.int8).view(np.uint8)
        else:
            nibbles = (whole + 8).astype(np.uint8)
            self.stored = nibbles[..., 0::2] | nibbles[..., 1::2] << 4
        self.exact = torch.from_numpy(whole.astype(np.float64) * wide)


def make(c, kinds, name):
    """q, k, v of a case: the same numbers for every type before they are rounded to it."""
    draw = np.random.default_rng(zlib.crc32(name.encode()))
    q = normal(draw, (c["b"], c["hq"], c["sq"], c["d"])) * np.float32(c["q_by"])
    k = normal(draw, (c["b"], c["hkv"], c["sk"], c["d"])) + np.float32(c["k_plus"])
    v = c["value"](draw, (c["b"], c["hkv"], c["sk"], c["d"]))
    return Tensor(q, kinds[0]), Tensor(k, kinds[1]), Tensor(v, kinds[1])


def scale(c):
    """A number that both sides take as it is: their own 1/sqrt(d) might be rounded in different places."""
    return float(np.float32(c["d"] ** -0.5))


def line(c, kinds):
    q, kv, o, _ = kinds
    scales = " k_scale=f16 v_scale=f16" if kv not in TORCH else ""
    return (f"b={c['b']} hq={c['hq']} hkv={c['hkv']} sq={c['sq']} sk={c['sk']} d={c['d']} dv={c['d']}"
            f" q={q} k={kv} v={kv} o={o}{scales} scale={scale(c):.9g} causal={int(c['causal'])}")


def write(folder, tensors, text):
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for name, tensor in zip("qkv", tensors):
        np.save(folder / f"{name}.npy", tensor.stored)
        if tensor.scale is not None:
            np.save(folder / f"{name}_scale.npy", tensor.scale)
    (folder / "problem.txt").write_text(text + "\n")


def read(path, kind):
    stored = np.load(path)
    if kind == "bf16":
        return torch.from_numpy(stored.view(np.int16)).view(torch.bfloat16).double()
    return torch.from_numpy(stored).double()


def peers(c, kinds, tensors):
    """PyTorch's results, of its default kernel and of its plain one, and which kernel is the default."""
    dtype = TORCH[kinds[3]]
    q, k, v = (t.exact.to(dtype) for t in tensors)
    for t, narrow in zip(tensors, (q, k, v)):
        if not torch.equal(t.exact, narrow.double()):
            sys.exit("accuracy: the inputs are not exact in PyTorch's type")

    def run():
        return scaled_dot_product_attention(q, k, v, is_causal=c["causal"], scale=scale(c),
                                            enable_gqa=c["hq"] != c["hkv"])

    default = run()
    with sdpa_kernel(SDPBackend.MATH):
        math = run()
    try:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            flash = run()
    except RuntimeError:
        flash = None
    name = "math" if torch.equal(default, math) else ""
    if flash is not None and torch.equal(default, flash):
        name = "flash"
    if not name:
        sys.exit("accuracy: PyTorch's default kernel is neither its flash nor its math kernel")
    return default.double(), math.double(), name


def double(c, tensors):
    """Attention in double precision, apart from clattn's own reference: the two must agree."""
    q, k, v = (t.exact for t in tensors)
    group = c["hq"] // c["hkv"]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    s = q @ k.transpose(-1, -2) * scale(c)
    if c["causal"]:
        s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool).triu(1), float("-inf"))
    return torch.softmax(s, -1) @ v


def attend(arguments, folders):
    """Runs ATTEND; its lines about the device, and {(folder, variant): None or why it was refused}."""
    device = ["--device", arguments.device] if arguments.device else []
    command = [arguments.attend, *device, *(str(folder) for folder in folders)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"accuracy: {arguments.attend} ended with {done.returncode}")
    facts, results = [], {}
    for text in done.stdout.splitlines():
        words = text.split(" ", 3)
        if text.startswith(str(arguments.folder)):
            results[words[0], words[1]] = words[3] if words[2] == "refused" else None
        else:
            facts.append(text)
    return facts, results


def processor():
    for text in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if text.startswith("model name"):
            return text.split(":", 1)[1].strip()
    return platform.processor()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("attend")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--device")
    parser.add_argument("--only", default="*")
    arguments = parser.parse_args()
    jobs = []
    for types, kinds in TYPES.items():
        for name, c in CASES.items():
            if not fnmatch.fnmatchcase(f"{types}/{name}", arguments.only):
                continue
            tensors = make(c, kinds, name)
            folder = arguments.folder / types.replace(", ", "-").replace(" ", "-") / name
            write(folder, tensors, line(c, kinds))
            jobs.append((types, kinds, name, c, tensors, folder))
    if not jobs:
        sys.exit(f"accuracy: no TYPES/CASE matches '{arguments.only}'")
    facts, results = attend(arguments, [job[-1] for job in jobs])
    variants = sorted({variant for _, variant in results})

    facts += [f"PyTorch {torch.__version__}, CPU kernels, {torch.backends.cpu.get_cpu_capability()}", processor()]
    print("\n".join(facts) + "\n")
    print(f"{'types':<18} {'case':<9} {'kernel':<17} {'max error':>10} {'rms error':>10}"
          f" {'max ratio':>10} {'rms ratio':>10}")
    worst, failures, refusals = {}, 0, 0
    for types, kinds, name, c, tensors, folder in jobs:
        want = double(c, tensors)
        reference = read(folder / "reference.npy", "f64")
        apart = ((reference - want).abs() / (1 + want.abs())).max().item()
        if not apart < 1e-12:
            sys.exit(f"accuracy: {types}/{name}: the two double-precision results differ by {apart:.1e}")
        default, math, kernel = peers(c, kinds, tensors)
        theirs = measure(default, reference)
        head = f"{types:<18} {name:<9}"
        print(f"{head} {'torch ' + kernel:<17} {theirs.largest:10.2e} {theirs.rms:10.2e}")
        if kernel != "math":
            other = measure(math, reference)
            print(f"{head} {'torch math':<17} {other.largest:10.2e} {other.rms:10.2e}"
                  f" {other.largest / theirs.largest:10.2f} {other.rms / theirs.rms:10.2f}")
        for variant in variants:
            if results[str(folder), variant] is not None:
                print(f"{head} {variant:<17} refused: {results[str(folder), variant]}")
                refusals += 1
                continue
            ours = measure(read(folder / f"{variant}.npy", kinds[2]), reference)
            bad = verdict(ours, theirs, reference.abs().max().item(), kinds[2])
            print(f"{head} {variant:<17} {ours.largest:10.2e} {ours.rms:10.2e}"
                  f" {ours.largest / theirs.largest:10.2f} {ours.rms / theirs.rms:10.2f}"
                  f"{'  WORSE: ' + bad if bad else ''}", flush=True)
            failures += bool(bad)
            have = worst.setdefault((types, variant), [0.0, "", 0.0, ""])
            if ours.largest / theirs.largest > have[0]:
                have[:2] = ours.largest / theirs.largest, name
            if ours.rms / theirs.rms > have[2]:
                have[2:] = ours.rms / theirs.rms, name
    print("\n| types | variant | largest max ratio | case | largest rms ratio | case |\n|---|---|---|---|---|---|")
    for (types, variant), (largest, in_largest, rms, in_rms) in worst.items():
        print(f"| {types} | {variant} | {largest:.2f} | {in_largest} | {rms:.2f} | {in_rms} |")
    rows = len(jobs) * len(variants)
    print(f"\n{rows - failures - refusals} passed, {failures} failed, {refusals} skipped")
    return 1 if failures or refusals == rows else 0


if __name__ == "__main__":
    sys.exit(main())
