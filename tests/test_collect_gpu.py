# SPDX-License-Identifier: Apache-2.0
"""scripts/collect-gpu: its rehearsal with programs in front of the real ones, which note their calls, answer what takes long,
and fail, crash or hang when asked to.  test_collect_gpu.py CLATTN GPU_PROBE"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SCRIPT = os.path.join(ROOT, "scripts", "collect-gpu")
SKIPPED = 77
CLATTN = """#!/bin/sh
here='%(here)s'
echo "clattn $*" >>"$here/calls.txt"
case $1,$* in
  *--serve*) exec '%(program)s' "$@" ;;
  bench,*) [ ! -e "$here/fail" ] || exit 7 ;;
  tune,*) if [ -e "$here/hang" ]; then touch "$here/hanging"; exec sleep 600; fi ;;
  replay,*) exit 2 ;;
  *"--variant none"* | *"--variant three-step "*) exec '%(program)s' "$@" ;;
  run,*) ;;
  *--self-test*) [ -z "$LD_PRELOAD" ] || exec '%(program)s' "$@" ;;
  *) exec '%(program)s' "$@" ;;
esac
"""
PROBE = """#!/bin/sh
here='%(here)s'
echo "gpu_probe $*" >>"$here/calls.txt"
case $* in
  *" dpas") [ ! -e "$here/crash" ] || kill -ABRT $$ ;;
  *" mfma") [ ! -e "$here/hang" ] || exec sleep 600 ;;
esac
exec '%(program)s' "$@"
"""


def check(condition, what):
    if not condition:
        sys.exit(what)


class Rehearsal:
    def __init__(self, folder, clattn, probe):
        self.here = folder
        self.out = os.path.join(folder, "out")
        self.command = ["bash", SCRIPT, "--rehearse", "--build", os.path.join(folder, "build"), "--out", self.out]
        tools = os.path.join(folder, "build", "bin")
        os.makedirs(tools)
        for name, text, program in (("clattn", CLATTN, clattn), ("gpu_probe", PROBE, probe)):
            path = os.path.join(tools, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text % {"here": folder, "program": program})
            os.chmod(path, 0o755)
        wrong = os.path.join(os.path.dirname(probe), "libwrong_kernel.so")
        self.plants = os.path.exists(wrong)
        if self.plants:
            shutil.copy(wrong, tools)

    def flag(self, name, on):
        path = os.path.join(self.here, name)
        if on:
            with open(path, "w", encoding="utf-8"):
                pass
        elif os.path.exists(path):
            os.remove(path)

    def run(self, *arguments):
        """Exit code, output, and the steps' calls of this run."""
        path = os.path.join(self.here, "calls.txt")
        if os.path.exists(path):
            os.remove(path)
        done = subprocess.run(self.command + list(arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)
        return done.returncode, done.stdout, self.calls()

    def calls(self):
        with open(os.path.join(self.here, "calls.txt"), encoding="utf-8") as file:
            lines = file.read().splitlines()
        # What looks around in every start is no step; with PyTorch here, the peers' step asks the program, too.
        return [line for line in lines if line not in ("clattn devices", "gpu_probe --list", "clattn replay --help") and
                "--variant none" not in line and not line.startswith("clattn bench --serve")]

    def index(self):
        with open(os.path.join(self.out, "index.json"), encoding="utf-8") as file:
            whole = json.load(file)
        for name in ("device", "platform", "driver", "commit"):
            check(isinstance(whole[name], str) and whole[name], f"index.json lacks {name}")
        check(whole["rehearsal"] is True, "index.json does not say that it is a rehearsal's")
        steps = {}
        for step in whole["steps"]:
            check(sorted(step) == ["command", "exit", "files", "result", "seconds", "step"], f"index.json: {step}")
            check(step["step"] not in steps, f"{step['step']} stands twice in index.json")
            for name in step["files"]:
                check(os.path.getsize(os.path.join(self.out, name)) > 0, f"{name} is empty")
            steps[step["step"]] = step
        with open(os.path.join(self.out, "index.md"), encoding="utf-8") as file:
            text = file.read()
        for name, step in steps.items():
            check(f"\n| {name} | {step['result']} |" in text, f"index.md lacks {name}")
        return steps

    def answer(self, question):
        with open(os.path.join(self.out, "probe", question + ".json"), encoding="utf-8") as file:
            found = json.load(file)
        for name in ("question", "text", "device", "answer", "detail", "build_log", "seconds"):
            check(name in found, f"the answer to {question} lacks {name}")
        check(found["question"] == question, f"{question}: {found}")
        return found["answer"]


def interrupted(rehearsal):
    """Two steps hang: the first is stopped after its time; at the second the rehearsal is ended.  What was done is in the index,
    the step that was interrupted is not."""
    for name in ("hang", "fail", "crash"):
        rehearsal.flag(name, True)
    with open(os.path.join(rehearsal.here, "first.txt"), "w", encoding="utf-8") as output:
        with subprocess.Popen(rehearsal.command, stdout=output, stderr=subprocess.STDOUT) as process:
            begin = time.monotonic()
            while not os.path.exists(os.path.join(rehearsal.here, "hanging")):
                check(process.poll() is None, "the rehearsal ended before its tuner: see first.txt")
                check(time.monotonic() - begin < 500, "the rehearsal does not come to its tuner")
                time.sleep(0.1)
            process.send_signal(signal.SIGTERM)
            check(process.wait(60) == 143, f"SIGTERM ends it with {process.returncode}, not 143")
    steps = rehearsal.index()
    check("tune" not in steps, "the interrupted step counts as done")
    check(steps["bench"]["result"] == "failed" and steps["bench"]["exit"] == 7, f"a failure is told as {steps['bench']}")
    crash = steps["probe/dpas"]
    check(crash["result"] == "crashed" and crash["exit"] == 134, f"a crash is told as {crash}")
    late = steps["probe/mfma"]
    check(late["result"] == "timed out" and late["exit"] == 124 and 29 <= late["seconds"] < 60, f"a hang is told as {late}")
    check(steps["self-test"]["result"] == "ok", f"{steps['self-test']}")
    if rehearsal.plants:
        wrong = steps["wrong-kernel"]
        check(wrong["result"] == "ok" and "wrong-kernel.txt" in wrong["files"], f"the planted kernel: {wrong}")
    check(steps["variants/three-step-1"]["exit"] == 0, f"{steps['variants/three-step-1']}")
    check(rehearsal.answer("half_storage").startswith("exact"), "half_storage: " + rehearsal.answer("half_storage"))
    check("exactly 0" in rehearsal.answer("exponentials"), "exponentials: " + rehearsal.answer("exponentials"))
    check(rehearsal.answer("local_pointer") == "an address", "local_pointer: " + rehearsal.answer("local_pointer"))
    check(rehearsal.answer("out_of_resources").endswith("the queue works on"), rehearsal.answer("out_of_resources"))
    for question in ("ptx", "ld_shared", "cp_async", "mma_f16", "mma_bf16", "wmma"):
        check(rehearsal.answer(question).startswith("not asked: "), f"{question}: {rehearsal.answer(question)}")
    check(len(rehearsal.calls()) > 20, "the calls are not noted")


def another_folder(rehearsal):
    """A folder with files of somebody else is refused and stays as it was; an empty one is taken."""
    mine = os.path.join(rehearsal.out, "bench.json")
    os.makedirs(rehearsal.out)
    with open(mine, "w", encoding="utf-8") as file:
        file.write("mine")
    done = subprocess.run(rehearsal.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    check(done.returncode == 1 and "give a new or empty folder" in done.stdout, f"a folder in use: {done}")
    check(os.listdir(rehearsal.out) == ["bench.json"], f"the folder in use has {os.listdir(rehearsal.out)}")
    with open(mine, encoding="utf-8") as file:
        check(file.read() == "mine", "a file in the folder in use was changed")
    os.remove(mine)


def usage(probe):
    """What gpu_probe says without a device."""
    def run(*arguments, **more):
        return subprocess.run([probe, *arguments], stderr=subprocess.PIPE, text=True, check=False, **more)
    wrong = run("mma_f61")
    check(wrong.returncode == 2 and "'mma_f61'" in wrong.stderr and "--list" in wrong.stderr, f"an unknown question: {wrong}")
    none = run()
    check(none.returncode == 2 and "--list" in none.stderr, f"no question: {none}")
    if os.path.exists("/dev/full"):
        for what in ("--list", "--help"):
            with open("/dev/full", "w", encoding="utf-8") as full:
                done = run(what, stdout=full)
            check(done.returncode == 1, f"{what} on a full disk: {done}")


def main():
    if len(sys.argv) != 3 or shutil.which("bash") is None or shutil.which("timeout") is None:
        print("skipped: no bash or timeout")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        rehearsal = Rehearsal(folder, *sys.argv[1:])
        usage(sys.argv[2])
        another_folder(rehearsal)
        interrupted(rehearsal)
        rehearsal.flag("hang", False)
        code, output, calls = rehearsal.run()
        check(code == 1, f"with three failed steps it ends with {code}:\n{output}")
        check(len(calls) == 1 and calls[0].startswith("clattn tune "), f"what was done is done again: {calls}")
        steps = rehearsal.index()
        check(steps["tune"]["result"] == "ok" and steps["bench"]["result"] == "failed", f"{steps}")
        rehearsal.flag("fail", False)
        rehearsal.flag("crash", False)
        code, output, calls = rehearsal.run("--retry")
        check(code == 0, f"it ends with {code}:\n{output}")
        again = ["mfma", "dpas", "clattn bench "]
        check(len(calls) == 3 and all(what in call for what, call in zip(again, calls)), f"tried again: {calls}")
        check(all(s["result"] in ("ok", "not asked", "not here") for s in rehearsal.index().values()), "index.json: failures")
        with open(os.path.join(rehearsal.out, "run.txt"), "a", encoding="utf-8") as file:
            file.write("another\n")
        code, output, _ = rehearsal.run()
        check(code == 1 and "another device, driver or commit" in output, f"another's folder: {code}\n{output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
