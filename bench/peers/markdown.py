# SPDX-License-Identifier: Apache-2.0
"""A saved comparison as a table in Markdown: what README.md shows."""

import json

PEER_NAMES = {"clattn": "clattn", "pytorch": "PyTorch", "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}


def number(value, digits=2):
    return "–" if value is None else f"{value:.{digits}f}"


def milliseconds(side):
    if side["median_ns"] is None:
        return "wrong" if side["status"] == "wrong" else "–"
    value = side["median_ns"] * 1e-6
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def cells(row, names):
    """Milliseconds of each; clattn's percent of the FMA peak beside its own."""
    sides = {side["name"]: side for side in row["implementations"]}
    for name in names:
        side = sides[name]
        percent = side["percent_of_fma_peak"]
        own = name == "clattn" and percent is not None
        yield milliseconds(side) + (f" ({percent:.0f} %)" if own else "")


def lines(record):
    context = record["context"]
    rows = [row for row in record["rows"] if row["implementations"]]
    names = [side["name"] for side in rows[0]["implementations"]] if rows else ["clattn"]
    titles = [PEER_NAMES.get(name, name) for name in names]
    versions = ", ".join(f"{PEER_NAMES[n]} {v}" for n, v in context["versions"].items() if n in PEER_NAMES)
    yield f"{context['date'][:10]}, {context['cpu']}, {context['threads']} threads, {context['device']}; {versions}."
    yield f"`{context['command']}`; milliseconds, medians of calls in turn, a peer's in its best backend and layout;"
    yield "in brackets percent of the FMA peak, which is not what bounds decoding."
    yield ""
    yield "| shape | " + " | ".join(titles) + " | fastest peer / clattn |"
    yield "| --- |" + " ---: |" * (len(names) + 1)
    for row in rows:
        yield f"| {row['shape']} | " + " | ".join(cells(row, names)) + f" | {number(row['ratio'])} |"
    means = [number(record["geometric_means"].get(name)) for name in names[1:]]
    yield "| **geometric mean of ratios** | | " + " | ".join(means) + f" | **{number(record['geometric_mean'])}** |"


def table(path):
    """The text; ValueError for what --json did not write."""
    with open(path, encoding="utf-8") as file:
        try:
            record = json.load(file)
            if record["peers_schema_version"] != 1:
                raise ValueError(f"version {record['peers_schema_version']} of the format, not 1")
            return "".join(line + "\n" for line in lines(record))
        except (AttributeError, KeyError, RecursionError, TypeError) as error:
            raise ValueError("not what --json writes") from error
