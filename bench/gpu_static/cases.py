# SPDX-License-Identifier: Apache-2.0
"""What is compiled: variants, problems, targets."""

VARIANTS = ("flash-gpu-simt", "three-step")
TYPES = ("f32", "f16", "bf16")
TARGETS = {  # name: family
    "sm_80": "nvidia", "sm_90": "nvidia", "gfx90a": "amd", "gfx1100": "amd",
}
MORE_TARGETS = {
    "sm_75": "nvidia", "sm_86": "nvidia", "sm_120": "nvidia", "gfx906": "amd", "gfx942": "amd", "gfx1030": "amd",
    "gfx1201": "amd", "dg2": "intel", "pvc": "intel",
}
# Kernels that do the work; what else is in a program stages arguments.
MAIN = ("flash", "flash_scores", "scores", "softmax", "weighted_sum")
PLAIN = ""
ALL_RULES = (" causal=1 window=900,0 chunk=2048 mask=u8 block_mask=bits block_q=64 block_k=64 bias=f32 alibi=signed sink=f32"
             " head_scale=f32 softcap=30 out=o,lse,max_logit")
RULES = {"plain": PLAIN, "all rules": ALL_RULES}
MORE_RULES = {"rope": " rope=half", "cosine": " sim=cosine", "additive": " sim=additive", "int8": " k=i8 v=i8",
              "int4": " k=i4 v=i4", "paged": " k=paged v=paged klen=per_batch page_size=16 max_pages=256 pages=4096"}


def line_of(dim, dtype, rules):
    types = "" if dtype == "f32" else "".join(f" {t}={dtype}" for t in "qkvo")
    for tensor in ("k", "v"):
        if f" {tensor}=i" in rules or f" {tensor}=paged" in rules and dtype == "f32":
            types = types.replace(f" {tensor}={dtype}", "")
    return f"hq=32 sq=4096 sk=4096 d={dim}{types}{rules}"


def cases(everything):
    """(variant, type, dim, name of rules, problem line)"""
    found = [(v, t, d, name, line_of(d, t, rules)) for name, rules in RULES.items() for v in VARIANTS
             for t in TYPES for d in (64, 128)]
    if everything:
        found += [(v, "f32", d, "plain", line_of(d, "f32", "")) for v in VARIANTS for d in (32, 96, 256, 1024)]
        found += [(v, "f32", 128, name, line_of(128, "f32", rules)) for v in VARIANTS
                  for name, rules in MORE_RULES.items()]
    return found
