#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/minilm.py [--model DIR] [--rounds N] [--clattn-bench PROGRAM]

Times the sentence encoder all-MiniLM-L6-v2 in ONNX Runtime and in clattn, token ids in and normalised embeddings out,
in turns on the same cores, and prints medians and ratios; of short passes the fastest of a turn counts.  Without
--model scripts/model fetches the model; without --clattn-bench the program is built in build/release.  The first run
makes a virtual environment in build/venv-minilm (200 MB).  Both sides get one thread for each core.  ONNX Runtime gets
its own kernels for transformers, and a plain graph with all of its optimisations, without a mask; the fastest counts.
Exit codes: 0 done; 1 something failed, or the embeddings differ by more than 1e-4."""

import argparse
import os
import statistics
import subprocess
import sys
import time
import venv

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ENVIRONMENT = os.path.join(ROOT, "build", "venv-minilm")
PACKAGES = ("numpy==2.4.6", "onnx==1.23.2", "onnxruntime==1.32.0", "safetensors==0.8.0")
SHAPES = ((32, 128), (1, 16), (1, 128))
EPSILON = 1e-12
ALLOWED = 1e-4
CORES = len(os.sched_getaffinity(0))


def fail(text):
    sys.exit(f"minilm.py: {text}")


# ---- what is needed -----------------------------------------------------------------------------------------------


def enter_environment():
    """Goes on in the virtual environment, which is made again when the packages change."""
    python = os.path.join(ENVIRONMENT, "bin", "python")
    made = os.path.join(ENVIRONMENT, "packages.txt")
    try:
        with open(made, encoding="utf-8") as file:
            whole = file.read().split() == list(PACKAGES)
    except OSError:
        whole = False
    if not whole:
        print("Making a virtual environment with ONNX Runtime (once)", file=sys.stderr)
        venv.create(ENVIRONMENT, clear=True, with_pip=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES]
        if subprocess.run(pip, check=False).returncode != 0:
            fail("ONNX Runtime could not be installed, so there is nothing to compare with")
        with open(made, "w", encoding="utf-8") as file:
            file.write("\n".join(PACKAGES))
    if os.path.realpath(sys.prefix) != os.path.realpath(ENVIRONMENT):
        os.execv(python, [python, os.path.abspath(__file__), *sys.argv[1:]])


def fetch_model():
    done = subprocess.run([os.path.join(ROOT, "scripts", "model")], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        fail("no model")
    return done.stdout.strip()


def build_program():
    folder = os.path.join(ROOT, "build", "release")
    commands = (["cmake", "-S", ROOT, "-B", folder, "-DCMAKE_BUILD_TYPE=Release"],
                ["cmake", "--build", folder, "--parallel", str(CORES), "--target", "clattn-bench"])
    for command in commands:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            print(done.stdout, file=sys.stderr)
            fail("clattn-bench could not be built")
    return os.path.join(folder, "bin", "clattn-bench")


# ---- graphs -------------------------------------------------------------------------------------------------------


class Graph:
    """Nodes and constants of a graph for one batch size and length."""

    def __init__(self, weights, batch, tokens):
        self.weights, self.batch, self.tokens = weights, batch, tokens
        self.hidden = weights["embeddings.LayerNorm.weight"].shape[0]
        self.layers = 1 + max(int(name.split(".")[2]) for name in weights if name.startswith("encoder.layer."))
        self.heads = 12
        self.nodes, self.constants, self.count = [], {}, 0

    def constant(self, value):
        name = f"c{len(self.constants)}"
        self.constants[name] = onnx.numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def node(self, op, inputs, outputs=1, domain="", **attributes):
        names = [f"{op}{self.count}_{n}" for n in range(outputs)]
        self.count += 1
        self.nodes.append(onnx.helper.make_node(op, inputs, names, domain=domain, **attributes))
        return names[0]

    def own(self, op, inputs, outputs=1, **attributes):
        return self.node(op, inputs, outputs, "com.microsoft", **attributes)

    def matrix(self, name):
        return self.constant(self.weights[name + ".weight"].T)

    def vector(self, name, part="bias"):
        return self.constant(self.weights[f"{name}.{part}"])

    def norm_of(self, name):
        return self.vector(name, "weight"), self.vector(name)

    def model(self, y):
        """The whole model, with mean pooling and normalisation of y (batch, tokens, hidden)."""
        mean = self.node("ReduceMean", [y, self.constant(np.array([1], np.int64))], keepdims=0)
        length = self.node("ReduceL2", [mean, self.constant(np.array([1], np.int64))], keepdims=1)
        out = self.node("Div", [mean, length])
        info = onnx.helper.make_tensor_value_info
        graph = onnx.helper.make_graph(
            self.nodes, "minilm", [info("ids", onnx.TensorProto.INT32, [self.batch, self.tokens])],
            [info(out, onnx.TensorProto.FLOAT, [self.batch, self.hidden])], list(self.constants.values()))
        opsets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("com.microsoft", 1)]
        return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9)


def own_kernels(graph, attention):
    """ONNX Runtime's kernels for transformers; attention: what follows from (input, name of the layer)."""
    w = graph.weights
    tables = [graph.constant(w[f"embeddings.{name}_embeddings.weight"]) for name in ("word", "position", "token_type")]
    zeros = graph.constant(np.zeros((graph.batch, graph.tokens), np.int32))
    x = graph.own("EmbedLayerNormalization", ["ids", zeros, *tables, *graph.norm_of("embeddings.LayerNorm")], 2,
                  epsilon=EPSILON)
    for i in range(graph.layers):
        at = f"encoder.layer.{i}."
        y = graph.node("MatMul", [attention(graph, x, at), graph.matrix(at + "attention.output.dense")])
        x = graph.own("SkipLayerNormalization",
                      [y, x, *graph.norm_of(at + "attention.output.LayerNorm"),
                       graph.vector(at + "attention.output.dense")], epsilon=EPSILON)
        y = graph.node("MatMul", [x, graph.matrix(at + "intermediate.dense")])
        y = graph.own("BiasGelu", [y, graph.vector(at + "intermediate.dense")])
        y = graph.node("MatMul", [y, graph.matrix(at + "output.dense")])
        x = graph.own("SkipLayerNormalization",
                      [y, x, *graph.norm_of(at + "output.LayerNorm"), graph.vector(at + "output.dense")],
                      epsilon=EPSILON)
    return graph.model(x)


SELF = ("query", "key", "value")


def one_attention(graph, x, at):
    """Projections and attention in one kernel."""
    matrix = np.concatenate([graph.weights[f"{at}attention.self.{name}.weight"].T for name in SELF], axis=1)
    bias = np.concatenate([graph.weights[f"{at}attention.self.{name}.bias"] for name in SELF])
    return graph.own("Attention", [x, graph.constant(matrix), graph.constant(bias)], num_heads=graph.heads)


def apart_attention(graph, x, at):
    """Projections by MatMul, then attention."""
    inputs = [graph.node("MatMul", [x, graph.matrix(f"{at}attention.self.{name}")]) for name in SELF]
    bias = np.concatenate([graph.weights[f"{at}attention.self.{name}.bias"] for name in SELF])
    return graph.own("MultiHeadAttention", [*inputs, graph.constant(bias)], num_heads=graph.heads)


def plain_linear(graph, x, name):
    return graph.node("Add", [graph.node("MatMul", [x, graph.matrix(name)]), graph.vector(name)])


def plain_norm(graph, x, name):
    return graph.node("LayerNormalization", [x, *graph.norm_of(name)], epsilon=EPSILON, axis=-1)


def plain_attention(graph, x, at):
    dim = graph.hidden // graph.heads
    split = graph.constant(np.array([graph.batch, graph.tokens, graph.heads, dim], np.int64))
    heads = []
    for name, order in zip(SELF, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])):
        y = graph.node("Reshape", [plain_linear(graph, x, f"{at}attention.self.{name}"), split])
        heads.append(graph.node("Transpose", [y], perm=order))
    scores = graph.node("MatMul", heads[:2])
    scores = graph.node("Div", [scores, graph.constant(np.array(dim ** 0.5, np.float32))])
    y = graph.node("MatMul", [graph.node("Softmax", [scores], axis=-1), heads[2]])
    y = graph.node("Transpose", [y], perm=[0, 2, 1, 3])
    return graph.node("Reshape", [y, graph.constant(np.array([graph.batch, graph.tokens, graph.hidden], np.int64))])


def plain(graph):
    """The operators of the standard alone, as an exporter writes them."""
    w = graph.weights
    x = graph.node("Gather", [graph.constant(w["embeddings.word_embeddings.weight"]), "ids"])
    x = graph.node("Add", [x, graph.constant(w["embeddings.position_embeddings.weight"][:graph.tokens])])
    x = graph.node("Add", [x, graph.constant(w["embeddings.token_type_embeddings.weight"][0])])
    x = plain_norm(graph, x, "embeddings.LayerNorm")
    half, one, root = (graph.constant(np.array(value, np.float32)) for value in (0.5, 1, 2 ** 0.5))
    for i in range(graph.layers):
        at = f"encoder.layer.{i}."
        y = plain_linear(graph, plain_attention(graph, x, at), at + "attention.output.dense")
        x = plain_norm(graph, graph.node("Add", [y, x]), at + "attention.output.LayerNorm")
        y = plain_linear(graph, x, at + "intermediate.dense")
        erf = graph.node("Add", [graph.node("Erf", [graph.node("Div", [y, root])]), one])
        y = graph.node("Mul", [graph.node("Mul", [y, erf]), half])
        y = plain_linear(graph, y, at + "output.dense")
        x = plain_norm(graph, graph.node("Add", [y, x]), at + "output.LayerNorm")
    return graph.model(x)


FORMS = {
    "Attention": lambda graph: own_kernels(graph, one_attention),
    "MultiHeadAttention": lambda graph: own_kernels(graph, apart_attention),
    "plain, optimised": plain,
}


# ---- both sides ---------------------------------------------------------------------------------------------------


def make_ids(batch, tokens, words, first, last):
    """The ids of clattn-bench."""
    ids = (1 + np.arange(batch * tokens, dtype=np.int64) * 7919 % (words - 1)).reshape(batch, tokens)
    ids[:, 0] = first
    ids[:, -1] = last
    return ids.astype(np.int32)


class OnnxRuntime:
    """The fastest form."""

    def __init__(self, weights, ids):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = CORES
        options.inter_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        self.feed, self.times = {"ids": ids}, {}
        sessions = {}
        for name, make in FORMS.items():
            model = make(Graph(weights, *ids.shape)).SerializeToString()
            sessions[name] = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
        for _ in range(4):
            for name, session in sessions.items():
                self.session = session
                self.times[name] = min(self.run(), self.times.get(name, float("inf")))
        self.form = min(self.times, key=self.times.get)
        self.session = sessions[self.form]

    def run(self):
        start = time.perf_counter()
        self.embeddings = self.session.run(None, self.feed)[0]
        return time.perf_counter() - start


class Clattn:
    """A process that runs a pass when it is told to."""

    def __init__(self, program, model, batch, tokens):
        command = [program, "minilm", "--model", model, "--batch", str(batch), "--tokens", str(tokens), "--serve"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        sizes = self.line().split()
        self.embeddings = np.array([self.line().split() for _ in range(int(sizes[0]))], np.float32)

    def line(self):
        line = self.process.stdout.readline()
        if not line:
            fail("clattn-bench ended")
        return line

    def run(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.line())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def compare(weights, program, model, batch, tokens, rounds):
    with open(os.path.join(model, "vocab.txt"), encoding="utf-8") as file:
        vocabulary = file.read().split("\n")
    ids = make_ids(batch, tokens, len(weights["embeddings.word_embeddings.weight"]), vocabulary.index("[CLS]"),
                   vocabulary.index("[SEP]"))
    other = OnnxRuntime(weights, ids)
    ours = Clattn(program, model, batch, tokens)
    difference = float(np.abs(ours.embeddings - other.embeddings).max())
    if not difference <= ALLOWED:
        fail(f"the embeddings of batch {batch}, {tokens} tokens differ by {difference:.1e}")
    pairs = []
    for _ in range(rounds):
        # A pause, since ONNX Runtime's threads wait in a loop for a while.
        pair = []
        for side in (ours, other):
            time.sleep(0.1)
            first = side.run()
            pair.append(min(side.run() for _ in range(max(1, min(20, int(0.2 / first))))))
        pairs.append(pair)
    ours.close()
    mine, theirs = (1e3 * statistics.median(pair[side] for pair in pairs) for side in (0, 1))
    ratio = statistics.median(pair[0] / pair[1] for pair in pairs)
    print(f"batch {batch:2}, {tokens:3} tokens: clattn {mine:8.2f} ms, ONNX Runtime {theirs:8.2f} ms ({other.form}), "
          f"ratio {ratio:.2f}; embeddings within {difference:.1e}", flush=True)


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", metavar="DIR")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--clattn-bench", metavar="PROGRAM")
    options = parser.parse_args()
    if options.rounds < 1:
        fail("--rounds must be 1 or more")
    return options


def main():
    options = read_options()
    model = options.model or fetch_model()
    program = options.clattn_bench or build_program()
    weights = safetensors.numpy.load_file(os.path.join(model, "model.safetensors"))
    print(f"ONNX Runtime {onnxruntime.__version__}, {CORES} threads each; medians of {options.rounds} turns")
    for batch, tokens in SHAPES:
        compare(weights, program, model, batch, tokens, options.rounds)


if __name__ == "__main__":
    read_options()  # a request for help, or a mistake, installs nothing
    enter_environment()
    import numpy as np
    import onnx
    import onnxruntime
    import safetensors.numpy
    main()
