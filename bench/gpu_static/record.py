# SPDX-License-Identifier: Apache-2.0
"""The table of static figures: written, compared with what is recorded, shown."""

import json
import os
import sys

SAID = "compiled and modelled, not measured"
LABEL = ("variant", "type", "dim", "rules", "target", "kernel")


def rows_of(rows, tasks):
    out = []
    for variant, dtype, dim, rules, target, task in rows:
        for kernel, figures in sorted(tasks[task].items()):
            if isinstance(figures, dict):
                out.append(dict(zip(LABEL, (variant, dtype, dim, rules, target, kernel)), **figures))
    return out


def key_of(row):
    return tuple(row[name] for name in LABEL)


def complaints(rows, recorded):
    """Spills and scratch that nobody recorded, and figures that got worse."""
    before = {key_of(row): row for row in recorded}
    found = []
    for row in rows:
        name, old = " ".join(map(str, key_of(row))), before.get(key_of(row))
        for figure in ("spills", "scratch"):
            allowed = old[figure] if old else 0
            if row[figure] > allowed:
                found.append(f"{name}: {figure} {row[figure]}, recorded {allowed}")
        bound = (row.get("model") or {}).get("bound")
        if old and bound is not None:
            old_bound = (old.get("model") or {}).get("bound") or 0
            if bound < 0.97 * old_bound:
                found.append(f"{name}: bound {100 * bound:.0f} %, recorded {100 * old_bound:.0f} %")
    return found


def percent(row):
    model = row.get("model") or {}
    return f"{100 * model['bound']:.0f} % ({model['limit']})" if "bound" in model else ""


def occupancy(row):
    return f"{row['occupancy'][0]} of {row['occupancy'][1]}" if row.get("occupancy") else ""


def table(rows):
    lines = ["| kernel | type | D | rules | target | registers | spills | scratch | local bytes | waves | hot loops: fma / local reads | bound |",
             "| --- | --- | ---: | --- | --- | ---: | ---: | ---: | ---: | ---: | --- | ---: |"]
    for row in rows:
        hot = ", ".join(f"{loop['fma']}/{loop['local_load']}" for loop in row["hot_loops"])
        local = row["local_bytes"] if row["local_bytes"] is not None else ""
        lines.append(f"| {row['variant']} {row['kernel']} | {row['type']} | {row['dim']} | {row['rules']} | {row['target']} "
                     f"| {row['registers']} | {row['spills']} | {row['scratch']} | {local} | {occupancy(row)} | {hot} "
                     f"| {percent(row)} |")
    return "\n".join(lines) + "\n"


def short_table(rows):
    """README's: flash of flash-gpu-simt without rules."""
    lines = ["| target | type | D | registers | spills | scratch | local memory | bound, % of the FMA peak |",
             "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for row in rows:
        if row["variant"] == "flash-gpu-simt" and row["kernel"] == "flash" and row["rules"] == "plain" and \
                row["dim"] in (64, 128) and row["type"] in ("f32", "f16"):
            local = f"{row['local_bytes']} B" if row["local_bytes"] is not None else ""
            lines.append(f"| {row['target']} | {row['type']} | {row['dim']} | {row['registers']} | {row['spills']} "
                         f"| {row['scratch']} | {local} | {percent(row)} |")
    return "\n".join(lines) + "\n"


def read(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return json.load(file)["rows"]


def write(folder, rows):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "figures.json"), "w", encoding="utf-8") as file:
        head = json.dumps({"what": SAID})[:-1]
        file.write(head + ', "rows": [\n' + ",\n".join(json.dumps(row, sort_keys=True) for row in rows) + "\n]}\n")
    with open(os.path.join(folder, "figures.md"), "w", encoding="utf-8") as file:
        file.write(f"# Kernels for GPUs: {SAID}\n\nAs `scripts/check-gpu --record` writes it, of some of its kernels or all; bounds are of"
                   " `bench/gpu-static/model`, of a full tile of keys.\nScratch of Intel's targets counts messages to private memory"
                   " in the code, of AMD's and NVIDIA's bytes.\n\n" + table(rows))


def finish(rows, tasks, targets, options, root):
    folder = os.path.join(root, "bench", "gpu-static")
    status, said = 0, set()
    for (family, target, _, text), found in tasks.items():
        if "missing" in found:
            said.add(f"{target}: {found['missing']}")
        if "broken" in found:
            status = 1
            print(f"FAIL  {target}: {found['broken']}")
    in_ci = os.environ.get("CI") == "true"
    for sentence in sorted(said):
        print(("FAIL  " if in_ci else "skip  ") + sentence)
        status = 1 if in_ci else status
    mine = rows_of(rows, tasks)
    recorded = read(os.path.join(folder, "figures.json"))
    if options.record:
        if said or status:
            print("check-gpu: nothing recorded", file=sys.stderr)
            return 1
        write(folder, mine)
        return 0
    worse = complaints(mine, recorded)
    for sentence in worse:
        print("FAIL  " + sentence)
    missing = {row["target"] for row in recorded} - {row["target"] for row in mine}
    compared = len({key_of(row) for row in mine} & {key_of(row) for row in recorded})
    print(f"check-gpu: {len(mine)} kernels of {len(tasks)} programs for {len(targets)} targets, {compared} compared with the"
          f" record; {len(worse)} complaints")
    if not recorded:
        print("FAIL  no bench/gpu-static/figures.json to compare with")
        return 1
    return 1 if worse or status else 0 if mine or missing else 1
