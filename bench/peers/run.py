# SPDX-License-Identifier: Apache-2.0
"""The whole comparison, in a Python that has NumPy and those of the peers that are to be had."""

import datetime
import importlib
import os
import platform
import shlex
import sys
import tempfile

from . import PEERS, output
from .clattn import Clattn
from .program import find_program
from .row import Row, first_line, measure
from .shapes import Refused

SLOWEST, LARGEST = 1.0, 1e9  # seconds of a call and bytes of keys and values, as `clattn bench` leaves them out

INTERRUPTED = 130  # exit code, as a shell has it for SIGINT

BUSY = 0.5  # load average before the run, above which others take part of the machine

SELF_CHECK = ("b=1,hq=2,sq=16,sk=16,d=32", "b=1,hq=4,hkv=2,sq=24,sk=24,d=32,causal=1")


def open_peers(options, gpu):
    """Those that are there; what is not is said."""
    opened = []
    for name in options.only:
        try:
            opened.append(importlib.import_module(PEERS[name][0]).Peer(options.threads, gpu))
        except Exception as error:  # an import can fail in many ways
            print(f"peers: without {name}: {first_line(error)}", file=sys.stderr)
    return opened


def choose_shapes(clattn, options):
    asked = [f"suite {name}" for name in options.suite or ()] + [f"shape {text}" for text in options.shape or ()]
    if options.self_check:
        asked = [f"shape {text}" for text in SELF_CHECK]
    shapes = []
    for command in asked or ["suite default"]:
        some = clattn.ask(command)["shapes"]
        if len(some) == 1 and command.startswith("shape "):
            some[0]["name"] = command.split(" ", 1)[1][:60]  # its own name is a number
        shapes += some
    return shapes


def left_out(shape, slow):
    words = dict(word.split("=", 1) for word in shape["problem"].split())
    numbers = {key: int(value) for key, value in words.items() if value.isdigit()}
    heads = numbers.get("hkv", numbers.get("hq", 1))
    dims = numbers.get("d", 0) + numbers.get("dv", numbers.get("d", 0))
    size = 4.0 * numbers.get("b", 1) * heads * numbers.get("sk", 0) * dims
    if not slow and shape["predicted_seconds"] > SLOWEST:
        return f"predicted {shape['predicted_seconds']:.3g} s a call; --slow runs it"
    if not slow and size > LARGEST:
        return f"{size * 1e-9:.3g} GB of keys and values to make; --slow runs it"
    return ""


def describe(clattn, peers, options):
    """Completes the context; returns the versions of all."""
    context = clattn.context
    versions = {"clattn": context["clattn"], "python": platform.python_version()}
    versions.update({peer.name: peer.version for peer in peers})
    context["command"] = shlex.join(["bench/peers.py", *sys.argv[1:]])
    context["date"] = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    context["threads"], context["load"] = options.threads, os.getloadavg()[0]
    print(f"{context['date']}  {context['command']}")
    print(f"{context['cpu']}, {options.threads} threads; {context['device']}")
    print(", ".join(f"{name} {text}" for name, text in versions.items()))
    if context["load"] > BUSY:
        print(f"NOISY: a load average of {context['load']:.1f} before the first call: other programs are running")
    print()
    return versions


def run_rows(clattn, peers, shapes, options):
    """Returns the rows that were finished, and whether those are all."""
    names, whole = ["clattn"] + [peer.name for peer in peers], True
    table, rows = output.Table(shapes, names, sys.stdout), []
    try:
        for shape in shapes:
            row = Row(shape, left_out(shape, options.slow))
            if not row.reason:
                measure(clattn, peers, row, options.seconds_per_row)
            rows.append(row)
            table.row(row)
    except KeyboardInterrupt:
        print("peers: interrupted; what was finished is written", file=sys.stderr)
        whole = False
    table.end(rows)
    return names, rows, whole


def judge(names, rows):
    """Of --self-check: all ran, and nothing differs."""
    passed = all(row.clattn and row.clattn.seconds and not row.wrong() for row in rows)
    print(f"self-check: {'passed' if passed else 'FAILED'} with {', '.join(names)}")
    return 0 if passed else 1


def run(options, root):
    program = find_program(options.clattn, root) or "clattn"
    with tempfile.TemporaryDirectory() as folder:
        try:
            clattn = Clattn(program, options.device, options.threads, folder)
            shapes = choose_shapes(clattn, options)
        except OSError as error:
            raise SystemExit(f"peers: {program}: {error.strerror}; --clattn PATH names another") from error
        except Refused as error:
            raise SystemExit(f"peers: {error}") from error
        peers = open_peers(options, clattn.context["device_type"] == "gpu")
        versions = describe(clattn, peers, options)
        names, rows, whole = run_rows(clattn, peers, shapes, options)
        clattn.quit()
    failed = None
    if options.json:
        output.write_json(options.json, clattn.context, versions, names, rows)
    if options.report:
        failed = output.write_report(options.report, program, clattn.context, versions, names, rows)
        if failed:
            print(f"peers: {failed}", file=sys.stderr)
    if not whole:
        return INTERRUPTED
    if options.self_check:
        return judge(names, rows)
    return 1 if failed or any(row.wrong() for row in rows) else 0
