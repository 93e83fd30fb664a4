# SPDX-License-Identifier: Apache-2.0
"""clattn at the other end of a pipe: `clattn bench --serve`."""

import json
import os
import subprocess

import numpy as np

from .shapes import Refused, from_bf16_bits


class Clattn:
    name = "clattn"

    def __init__(self, program, device, threads, folder):
        self.folder = folder
        environment = dict(os.environ)
        if threads != len(os.sched_getaffinity(0)):
            # PoCL's, by its older and its newer name; what came of it is checked below
            environment["POCL_MAX_PTHREAD_COUNT"] = environment["POCL_CPU_MAX_CU_COUNT"] = str(threads)
        command = [program, "bench", "--serve"] + (["--device", device] if device else [])
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # Ctrl-C is for the script, whose end is the end of clattn's input
        )
        self.context = self.ask("context")["context"]
        units = self.context["compute_units"]
        if self.context["device_type"] == "cpu" and units != threads:
            raise SystemExit(f"peers: clattn's device has {units} compute units, and --threads says {threads}")

    def ask(self, command):
        try:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise SystemExit(f"peers: clattn ended at '{command}' with exit code {self.process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer

    def open(self, line, inputs):
        """Gives it the arrays and makes a first call; returns what it says of the plan, and the output."""
        self.enqueues = []
        self.ask(f"problem {line}")
        for name in ("q", "k", "v", "bias"):
            array = getattr(inputs, name)
            if array is None:
                continue
            path = os.path.join(self.folder, f"{name}.npy")
            np.save(path, array)
            self.ask(f"input {name} {path}")
        plan = self.ask("open")
        path = os.path.join(self.folder, "o.npy")
        self.ask(f"save {path}")
        output = np.load(path)
        if output.dtype == np.uint16:
            output = from_bf16_bits(output)
        return plan, output.astype(np.float32)

    def call(self):
        answer = self.ask("run 1")
        self.enqueues.append(answer["enqueue_seconds"][0])
        return answer["seconds"][0]

    def probe(self):
        return self.ask("probe")["fma_flops_per_second"]

    def close(self):
        self.ask("close")

    def quit(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            self.process.wait()
