#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""clattn beside PyTorch, ONNX Runtime and OpenVINO: same machine, shapes, threads and numbers, taking turns.

The first run makes build/venv-peers with the peers in it and needs a package index for that; they are several GB.
Where there is no clattn, it builds it in build/release. Later runs need no network.
"""

import argparse
import json
import os
import subprocess
import sys
import time

sys.dont_write_bytecode = True  # not beside the sources

from peers import ALWAYS, PEERS  # noqa: E402
from peers.markdown import table  # noqa: E402
from peers.program import build_program, find_program  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, "build", "venv-peers")
SKIPPED = 77  # exit code of --self-check without NumPy


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--suite", action="append", metavar="NAME|FILE", help="shapes of a table, as of 'clattn bench'; repeatable")
    add("--shape", action="append", metavar="K=V,...", help="a shape or a sweep, as of 'clattn bench'; repeatable")
    add("--slow", action="store_true", help="also shapes predicted above 1 s a call, or of more than 1 GB of keys")
    add("--threads", type=int, default=len(os.sched_getaffinity(0)), metavar="N", help="default: all cores")
    add("--seconds-per-row", type=float, default=5, metavar="S", help="turns of a row, default 5; at least five rounds")
    add("--only", metavar="P,...", help="some of " + ", ".join(PEERS))
    add("--json", metavar="F", help="all of it")
    add("--report", metavar="F.html", help="a page, by 'clattn compare'")
    add("--table", metavar="F.json", help="a saved comparison as a table in Markdown; runs nothing")
    add("--clattn", metavar="PATH", help="the program; default: bin/clattn of a build folder, else the one in PATH, else built")
    add("--device", metavar="ID", help="of 'clattn devices'")
    add("--torch-index", metavar="URL", help="package index for torch alone; PyTorch's own for CPUs has a small one")
    add("--self-check", action="store_true", help="two tiny shapes with what this Python has; installs nothing")
    options = parser.parse_args(arguments)
    options.only = options.only.split(",") if options.only else list(PEERS)
    unknown = [name for name in options.only if name not in PEERS]
    if unknown:
        parser.error(f"--only: there is no peer '{unknown[0]}', but " + ", ".join(PEERS))
    if options.threads < 1 or not options.seconds_per_row > 0:
        parser.error("--threads and --seconds-per-row must be above 0")
    for path in filter(None, (options.json, options.report)):
        if not os.access(os.path.dirname(path) or ".", os.W_OK):
            parser.error(f"{path} can't be written: its folder is not there, or not writable")
    if options.self_check and (options.suite or options.shape):
        parser.error("--self-check has its own shapes")
    return options


# ---- the virtual environment ----


def version(text):
    return [int(part) if part.isdigit() else 0 for part in text.split("+")[0].split(".")]


def missing(python, packages):
    code = (
        "import json, sys, importlib.metadata as m\n"
        "def v(n):\n"
        "  try: return m.version(n)\n"
        "  except m.PackageNotFoundError: return None\n"
        "print(json.dumps({n: v(n) for n in sys.argv[1:]}))"
    )
    answer = subprocess.run([python, "-c", code, *packages], stdout=subprocess.PIPE, check=True)
    there = json.loads(answer.stdout)
    return {n: least for n, least in packages.items() if there[n] is None or version(there[n]) < version(least)}


def install(python, packages, index):
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--index-url", index] if index else []
    return subprocess.run(command + [f"{name}>={least}" for name, least in packages.items()], check=False).returncode


def settle(most=180):
    """Installing and building leave a load behind, by which the run would call itself noisy."""
    begin = time.monotonic()
    while os.getloadavg()[0] > 0.5 and time.monotonic() - begin < most:
        time.sleep(5)


def prepare(options):
    """The environment with all that is asked for; returns its Python, and whether something was installed."""
    changed = False
    python = os.path.join(VENV, "bin", "python")
    if not os.path.exists(python):
        print(f"making {VENV}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
    wanted = {"": ALWAYS, **{name: PEERS[name][1] for name in options.only}}
    for name, packages in wanted.items():
        lacking = missing(python, packages)
        if not lacking:
            continue
        print(f"installing {', '.join(lacking)}; all peers are several GB", file=sys.stderr)
        changed = True
        if install(python, lacking, options.torch_index if name == "torch" else None) == 0:
            continue
        if name == "":
            raise SystemExit("peers: NumPy could not be installed")
        print(f"peers: {', '.join(lacking)} could not be installed", file=sys.stderr)
    return python, changed


def show(path):
    try:
        text = table(path)
    except (OSError, ValueError) as error:
        print(f"peers: {path}: {getattr(error, 'strerror', None) or error}", file=sys.stderr)
        return 2
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        print(f"peers: standard output: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python complains once more at its end
        return 1
    return 0


def main():
    options = parse(sys.argv[1:])
    if options.table:
        return show(options.table)
    if options.self_check:
        options.seconds_per_row = 0.1
    elif os.path.realpath(sys.prefix) != os.path.realpath(VENV):
        built = not find_program(options.clattn, ROOT)
        if built:
            build_program(ROOT)
        python, changed = prepare(options)
        if built or changed:
            settle()
        os.execv(python, [python, os.path.abspath(__file__), *sys.argv[1:]])
    try:
        from peers.run import run
    except ModuleNotFoundError as error:
        print(f"peers: {error}", file=sys.stderr)
        return SKIPPED if options.self_check else 1
    return run(options, ROOT)


if __name__ == "__main__":
    sys.exit(main())
