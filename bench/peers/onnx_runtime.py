# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime on the CPU: MultiHeadAttention and GroupQueryAttention of com.microsoft, and ONNX's own Attention."""

import time

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

from .shapes import Refused, bf16_bits, refuse_large_scores

TYPES = {"f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}
OPSET, IR = 23, 11  # the first with Attention


def folded(array):
    """(batch, head, row, element) as (batch, row, head * element)."""
    batch, heads, rows, dim = array.shape
    return np.ascontiguousarray(array.transpose(0, 2, 1, 3)).reshape(batch, rows, heads * dim)


def model_of(node, element, values, outputs):
    """One node as a file; outputs: their shapes, None where the node says it."""
    infos = [
        helper.make_tensor_value_info(name, kind or element, array.shape)
        for name, array, kind in values
        if array is not None
    ]
    results = [helper.make_tensor_value_info(name, element, shape) for name, shape in outputs.items()]
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], node.op_type, infos, results)
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR).SerializeToString()


class Candidate:
    """A model of one node, its inputs and its first output bound to memory of their own."""

    def __init__(self, threads, problem, domain, operator, values, attributes, out_shape, caches=None):
        self.problem = problem
        caches = caches or {}  # further outputs, and the inputs whose memory they share, if those are given
        given = {name for name, array, _ in values if array is not None}
        kept = {out: cache for out, cache in caches.items() if cache in given}
        node = helper.make_node(
            operator,
            [name if name in given else "" for name, _, _ in values],
            ["o", *caches],
            domain=domain,
            **attributes,
        )
        model = model_of(node, TYPES[problem.type], values, {"o": out_shape, **dict.fromkeys(kept)})
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 4
        # its threads wait busily for work inside of a call, and not between calls, where others run
        options.add_session_config_entry("session.force_spinning_stop", "1")
        self.session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.binding = self.session.io_binding()
        self.values = {name: self._value(array, kind) for name, array, kind in values if array is not None}
        for name, value in self.values.items():
            self.binding.bind_ortvalue_input(name, value)
        self.out = self._value(np.zeros(out_shape, np.float32), None)
        self.binding.bind_ortvalue_output("o", self.out)
        for out, cache in kept.items():
            self.binding.bind_ortvalue_output(out, self.values[cache])

    def _value(self, array, kind):
        if kind is not None:
            return ort.OrtValue.ortvalue_from_numpy(array)
        if self.problem.type == "bf16":
            return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bf16_bits(array), TensorProto.BFLOAT16)
        return ort.OrtValue.ortvalue_from_numpy(array.astype(np.float16 if self.problem.type == "f16" else np.float32))

    def call(self):
        start = time.perf_counter()
        self.session.run_with_iobinding(self.binding)
        return time.perf_counter() - start

    def output(self):
        p = self.problem
        if p.type == "bf16":
            raise Refused("results in bf16 can't be read back")
        array = self.out.numpy().astype(np.float32)
        if array.ndim == 3:
            array = array.reshape(p.batch, p.rows, p.heads, p.v_dim).transpose(0, 2, 1, 3)
        return array

    def close(self):
        self.session = self.binding = self.values = self.out = None


class Peer:
    name = "onnxruntime"

    def __init__(self, threads, gpu):
        if gpu:
            raise Refused("clattn runs on a GPU, and ONNX Runtime is compared on CPUs alone")
        self.threads, self.version = threads, ort.__version__

    def _multi_head(self, p, inputs, keys):
        if p.groups > 1:
            raise Refused("MultiHeadAttention has no grouped heads")
        causal = inputs.is_triangle(p.keys - p.rows)  # its switch is for a cache: the last row sees all
        added = inputs.bias if causal else inputs.added()
        if added is not None:
            refuse_large_scores(p)
        k, v = (folded(inputs.k), folded(inputs.v)) if keys == "bshd" else (inputs.k, inputs.v)
        values = [("q", folded(inputs.q), None), ("k", k, None), ("v", v, None)]
        if added is not None:
            values += [("no_bias", None, None), ("no_padding", None, None), ("bias", added, None)]
        attributes = {"num_heads": p.heads, "scale": p.scale, "unidirectional": int(causal)}
        out = (p.batch, p.rows, p.heads * p.v_dim)
        return Candidate(self.threads, p, "com.microsoft", "MultiHeadAttention", values, attributes, out)

    def _grouped(self, p, inputs):
        past = p.keys - p.rows
        causal = inputs.is_triangle(past) or (inputs.keep is None and p.rows == 1)
        if not causal or p.bias or p.dim != p.v_dim:
            raise Refused("GroupQueryAttention is causal, without a bias, and its last row sees all keys")
        values = [("q", folded(inputs.q), None)]
        values += [(name, folded(array[:, :, past:]), None) for name, array in (("k", inputs.k), ("v", inputs.v))]
        if past > 0:  # a cache with room for the new rows, which the call writes
            values += [("past_k", inputs.k, None), ("past_v", inputs.v, None)]
        else:
            values += [("past_k", None, None), ("past_v", None, None)]
        values += [
            ("last", np.full(p.batch, p.keys - 1, np.int32), TensorProto.INT32),
            ("total", np.array([p.keys], np.int32), TensorProto.INT32),
        ]
        attributes = {"num_heads": p.heads, "kv_num_heads": p.kv_heads, "scale": p.scale}
        out = (p.batch, p.rows, p.heads * p.v_dim)
        present = {"present_k": "past_k", "present_v": "past_v"}
        return Candidate(self.threads, p, "com.microsoft", "GroupQueryAttention", values, attributes, out, present)

    def _attention(self, p, inputs, layout):
        refuse_large_scores(p)
        causal = inputs.is_triangle(0)
        added = inputs.bias if causal else inputs.added()
        arrays = [inputs.q, inputs.k, inputs.v]
        attributes = {"is_causal": int(causal), "scale": p.scale}
        out = (p.batch, p.heads, p.rows, p.v_dim)
        if layout == "bshd":
            arrays = [folded(array) for array in arrays]
            attributes.update(q_num_heads=p.heads, kv_num_heads=p.kv_heads)
            out = (p.batch, p.rows, p.heads * p.v_dim)
        values = [(name, array, None) for name, array in zip("qkv", arrays)]
        if added is not None:
            values.append(("bias", added, None))
        return Candidate(self.threads, p, "", "Attention", values, attributes, out)

    def candidates(self, problem, inputs):
        for layout in ("bshd", "bhsd"):
            yield f"MultiHeadAttention {layout}", lambda k=layout: self._multi_head(problem, inputs, k)
        yield "GroupQueryAttention bshd", lambda: self._grouped(problem, inputs)
        for layout in ("bhsd", "bshd"):
            yield f"Attention {layout}", lambda k=layout: self._attention(problem, inputs, k)
