# SPDX-License-Identifier: Apache-2.0
"""What comes of it: a table, JSON, and one run per implementation for `clattn compare --report`."""

import json
import math
import os
import shutil
import statistics
import subprocess
import tempfile

from .shapes import Problem

SCHEMA_VERSION = 1


def geometric_mean(values):
    values = [value for value in values if value is not None]
    return math.exp(statistics.fmean(math.log(value) for value in values)) if values else None


def geometric_means(rows, names):
    """Of each peer's ratios."""
    return {
        name: geometric_mean(row.ratio(row.sides[i]) for row in rows if row.sides)
        for i, name in enumerate(names)
        if i > 0
    }


def ratio(value):
    return f"{value:.2f}" if value else "-"


def share(row, side):
    """Percent of the FMA peak, which was measured between the calls."""
    return 100 * row.plan["flops"] / side.median / row.probe


def cell(row, side):
    if not side.seconds:
        return side.status.upper() if side.status == "wrong" else "-"
    return f"{side.median * 1e3:.3f} ({share(row, side):.0f} %)"


class Table:
    """Lines as rows come; columns are aligned for what is known beforehand."""

    def __init__(self, shapes, names, out):
        self.out, self.names = out, names
        self.first = max([len(shape["name"]) for shape in shapes] + [5])
        self.line("shape", [f"{name} ms" for name in names], "fastest peer", "ratio")

    def line(self, first, cells, fastest, speed):
        columns = "".join(f"  {text:>17}" for text in cells)
        self.out.write(f"{first:<{self.first}}{columns}  {speed:>6}  {fastest}\n".rstrip() + "\n")
        self.out.flush()

    def row(self, row):
        name = row.shape["name"]
        if not row.sides:
            self.out.write(f"{name:<{self.first}}  left out: {row.reason}\n")
            self.out.flush()
            return
        peer = row.fastest_peer()
        fastest = f"{peer.name} {peer.way}" if peer else "none"
        self.line(name, [cell(row, side) for side in row.sides], fastest, ratio(row.ratio()))
        for side in row.sides[1:]:
            if side.status != "ok":
                self.note(f"{side.name}: {side.reason}")
            for way in side.ways:
                if way.status == "wrong":
                    self.note(f"{side.name} {way.name}: WRONG: {way.reason}")

    def note(self, text):
        self.out.write(f"{'':<{self.first}}  {text}\n")

    def end(self, rows):
        means = geometric_means(rows, self.names)
        mean = geometric_mean(row.ratio() for row in rows)
        least = geometric_mean(row.ratio_of_minima() for row in rows)
        note = f"(of fastest calls: {least:.2f})" if mean else ""
        self.line("geometric mean", [""] + [ratio(value) for value in means.values()], note, ratio(mean))
        self.out.write(
            "ms: median of turns (percent of the FMA peak, measured between them), a peer's in its best way.\n"
            "ratio: the fastest peer's time over clattn's; above 1, clattn is faster.  WRONG: differs, is not ranked.\n"
        )


# ---- JSON ----


def nanoseconds(value):
    return None if value is None else round(value * 1e9)


def quartiles(seconds):
    if len(seconds) < 2:
        return seconds[0], seconds[0]
    cuts = statistics.quantiles(seconds, n=4, method="inclusive")
    return cuts[0], cuts[2]


def way_record(way):
    return {
        "way": way.name,
        "status": way.status,
        "reason": way.reason,
        "fastest_ns": nanoseconds(way.fastest),
        "row_error": way.error,
    }


def side_record(row, side):
    first, third = quartiles(side.seconds) if side.seconds else (None, None)
    return {
        "name": side.name,
        "way": side.way,
        "status": side.status,
        "reason": side.reason,
        "samples": len(side.seconds),
        "median_ns": nanoseconds(side.median),
        "minimum_ns": nanoseconds(min(side.seconds, default=None)),
        "first_quartile_ns": nanoseconds(first),
        "third_quartile_ns": nanoseconds(third),
        "percent_of_fma_peak": share(row, side) if side.seconds else None,
        "row_error": side.error,
        "ways": [way_record(way) for way in side.ways],
    }


def row_record(row):
    peer = row.fastest_peer()
    return {
        "shape": row.shape["name"],
        "suite": row.shape["suite"],
        "source": row.shape["source"],
        "problem": row.shape["problem"],
        "reason": row.reason,
        "flops": row.plan["flops"] if row.plan else None,
        "fma_flops_per_second": row.probe,
        "fastest_peer": peer.name if peer else None,
        "ratio": row.ratio(),
        "ratio_of_minima": row.ratio_of_minima(),
        "implementations": [side_record(row, side) for side in row.sides],
    }


def finite(value):
    """JSON has no NaN."""
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write(path, value):
    """The old file or the whole new one."""
    with tempfile.NamedTemporaryFile("w", dir=os.path.dirname(path) or ".", delete=False, encoding="utf-8") as file:
        json.dump(finite(value), file, indent=2, allow_nan=False)
        file.write("\n")
    os.chmod(file.name, 0o644)
    os.replace(file.name, path)


def write_json(path, context, versions, names, rows):
    record = {
        "peers_schema_version": SCHEMA_VERSION,
        "context": {**context, "versions": versions},
        "geometric_mean": geometric_mean(row.ratio() for row in rows),
        "geometric_mean_of_minima": geometric_mean(row.ratio_of_minima() for row in rows),
        "geometric_means": geometric_means(rows, names),
        "rows": [row_record(row) for row in rows],
    }
    write(path, record)


# ---- runs, as bench/schema.json describes them ----


def flash_flops(line):
    """As FlashAttention counts: all pairs, half of them when causal."""
    p = Problem(line)
    return 2 * p.batch * p.heads * p.rows * p.keys * (p.dim + p.v_dim) // (2 if p.causal else 1)


def timed_members(row, side, context):
    """Those that a row has if it was timed."""
    plan, peaks, own = row.plan, context["peaks"], side.name == "clattn"
    result, seconds = side_record(row, side), side.median
    first, third = result["first_quartile_ns"], result["third_quartile_ns"]
    work = plan["flops"] / row.probe
    memory = plan["bytes"] / peaks["memory_bytes_per_second"] if peaks["memory_bytes_per_second"] else 0
    return {
        **{key: result[key] for key in ("median_ns", "minimum_ns", "first_quartile_ns", "third_quartile_ns")},
        "spread": (third - first) / result["median_ns"],
        "timing": "wall clock",
        "inputs": "hot",
        "launches": plan["launches"] if own else 1,
        "enqueue_ns": nanoseconds(row.enqueue) if own else result["median_ns"],  # a peer's call is all the host's
        "flops_per_second": plan["flops"] / seconds,
        "bytes_per_second": plan["bytes"] / seconds,
        "bound": "memory" if memory > work else "fma",
        "percent_of_bound": 100 * max(memory, work) / seconds,
    }


TIMED = (
    "median_ns minimum_ns first_quartile_ns third_quartile_ns spread timing inputs launches enqueue_ns "
    "flops_per_second bytes_per_second bound percent_of_bound"
).split()


def run_row(row, side, context):
    plan, own = row.plan, side.name == "clattn"
    return {
        "shape": row.shape["name"][:60],
        **{key: row.shape[key] for key in ("suite", "source", "problem", "predicted_seconds")},
        "pass": "forward",
        "variant": side.way if own else f"{side.name} {side.way}".strip()[:60],
        "status": side.status,
        "reason": side.reason[:250],
        "samples": len(side.seconds),
        "throttled": False,
        "clock_suspect": False,
        "fma_beside_flops_per_second": row.probe,
        **dict.fromkeys(("build_ns", "first_call_ns", "plan_ns")),
        "workspace_bytes": plan["workspace_bytes"] if own else 0,
        **{key: plan[key] for key in ("pairs", "flops", "bytes")},
        "flash_attention_flops": flash_flops(row.shape["problem"]),
        "verified_rows": 0,
        "error": None,
        **(timed_members(row, side, context) if side.seconds else dict.fromkeys(TIMED)),
    }


def run_record(name, index, context, versions, rows):
    own = {key: value for key, value in context.items() if key not in ("threads", "load")}
    own["command"] = own["command"][:1000]
    if name != "clattn":
        own.update(platform=name, driver=f"{name} {versions[name]}"[:200])
    measured = [run_row(row, row.sides[index], context) for row in rows if row.sides]
    spreads = [row["spread"] for row in measured if row["spread"] is not None]
    own["noisy"] = 5 * sum(spread > 0.05 for spread in spreads) > len(spreads)
    return {"schema_version": 1, "context": own, "rows": measured}


def write_report(path, program, context, versions, names, rows):
    """Through `clattn compare`.  Where that fails the runs are put beside the page's place; returns what to say."""
    with tempfile.TemporaryDirectory() as folder:
        files = [f"{name}.json" for name in names]
        for i, name in enumerate(names):
            write(os.path.join(folder, files[i]), run_record(name, i, context, versions, rows))
        command = [program, "compare", *files, "--report", os.path.abspath(path)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return None
        kept = []
        for file in files:
            kept.append(f"{os.path.splitext(path)[0]}.{file}")
            shutil.copy(os.path.join(folder, file), kept[-1])
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[0]
        return f"no report: '{program} compare' says '{reason}'; its runs are {', '.join(kept)}"
