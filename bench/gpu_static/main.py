# SPDX-License-Identifier: Apache-2.0
"""scripts/check-gpu's work: compile, record, compare."""

import argparse
import concurrent.futures
import hashlib
import json
import os
import sys

from . import cases, compilers, listing, model, record, tools

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def text_of(program, variant, line, family):
    result = tools.run([program, variant, line, "fp16=1"])
    if result.returncode != 0:
        raise SystemExit(f"check-gpu: {variant}, {line}: {result.stdout.strip()}")
    return result.stdout


def figures_of(found, options, target, dim):
    """What is kept of a compiled program: no listing, but what was read off it."""
    kept = {}
    for name, figures in sorted(found.items()):
        if name not in cases.MAIN:
            continue
        kernel = figures.pop("kernel")
        figures["mix"] = listing.mix_of(kernel.instructions)
        figures["hot_loops"] = [listing.mix_of(kernel.body(loop)) for loop in listing.hot_loops(kernel)]
        if name == "flash":
            figures["model"] = model.of_flash(kernel, options, target, dim)
        kept[name] = figures
    return kept


def source_key(*parts):
    """Of what is compiled and of the modules that read it."""
    digest = hashlib.sha256()
    here = os.path.dirname(os.path.abspath(__file__))
    for name in sorted(os.listdir(here)):
        if name.endswith((".py", ".json")):
            with open(os.path.join(here, name), "rb") as file:
                digest.update(file.read())
    for part in parts:
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:32]


def one(task, compiler_tools, folder):
    """Figures of one program on one target, out of the folder if it was compiled before."""
    family, target, dim, text = task
    try:
        names = [tools.identity(compiler_tools.get(need)) for need in compilers.NEEDS[family] if need != "libclc"]
    except tools.Missing as missing:
        return {"missing": str(missing)}
    key = source_key(family, target, str(dim), text, *names)
    path = os.path.join(folder, key + ".json")
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    try:
        found, options = compilers.compile_for(compiler_tools, family, target, text, os.path.join(folder, key))
    except tools.Missing as missing:
        return {"missing": str(missing)}
    except compilers.Broken as broken:
        return {"broken": str(broken)}
    kept = figures_of(found, options, target, dim)
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(kept, file)
    os.replace(path + ".new", path)
    return kept


def main(arguments):
    parser = argparse.ArgumentParser(prog="scripts/check-gpu", description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--no-install", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--target", action="append")
    options = parser.parse_args(arguments)
    compiler_tools = tools.Tools(os.path.join(options.work, "tools"), not options.no_install)
    results = os.path.join(options.work, "results")
    os.makedirs(results, exist_ok=True)
    os.makedirs(compiler_tools.folder, exist_ok=True)
    targets = dict(cases.TARGETS, **(cases.MORE_TARGETS if options.all else {}))
    if options.target:
        targets = {name: family for name, family in dict(cases.TARGETS, **cases.MORE_TARGETS).items()
                   if name in options.target}
    for family in sorted(set(targets.values())):  # before threads ask for them
        for need in compilers.NEEDS[family]:
            try:
                compiler_tools.get(need)
            except tools.Missing:
                pass
    rows, tasks = [], {}
    for variant, dtype, dim, rules, line in cases.cases(options.all):
        for target, family in targets.items():
            text = text_of(options.program, variant, line, family)
            tasks[(family, target, dim, text)] = None
            rows.append((variant, dtype, dim, rules, target, (family, target, dim, text)))
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for task, found in zip(tasks, pool.map(lambda t: one(t, compiler_tools, results), list(tasks))):
            tasks[task] = found
    return record.finish(rows, tasks, targets, options, ROOT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
