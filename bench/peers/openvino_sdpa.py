# SPDX-License-Identifier: Apache-2.0
"""OpenVINO's ScaledDotProductAttention on the CPU."""

import time

import numpy as np
import openvino as ov
from openvino import opset13 as op

from .shapes import Refused, bf16_bits, from_bf16_bits, refuse_large_scores

TYPES = {"f32": ov.Type.f32, "f16": ov.Type.f16, "bf16": ov.Type.bf16}


class Candidate:
    """A graph of that one operation; in layout bshd with the transpositions around it that a model has."""

    def __init__(self, core, threads, problem, inputs, layout):
        p = self.problem = problem
        refuse_large_scores(p)
        self.layout, kind = layout, TYPES[p.type]
        # the switch rules an array beside it out
        causal = inputs.is_triangle(0) and inputs.bias is None
        added = None if causal else inputs.added()
        arrays = [inputs.q, inputs.k, inputs.v]
        if layout == "bshd":
            arrays = [np.ascontiguousarray(array.transpose(0, 2, 1, 3)) for array in arrays]
        arrays += [added] if added is not None else []
        parameters = [op.parameter(list(array.shape), kind) for array in arrays]
        nodes = list(parameters)
        if layout == "bshd":
            nodes[:3] = [op.transpose(node, op.constant([0, 2, 1, 3])) for node in nodes[:3]]
        if p.groups > 1:
            nodes[1:3] = [self._repeat(node, dim) for node, dim in zip(nodes[1:3], (p.dim, p.v_dim))]
        more = [nodes[3]] if added is not None else []
        if p.scale_given:
            # the scale stands behind the mask; a mask that is one 0 is none
            more = (more or [self._scalar(0, kind)]) + [self._scalar(p.scale, kind)]
        out = op.scaled_dot_product_attention(*nodes[:3], *more, causal=causal)
        if layout == "bshd":
            out = op.transpose(out, op.constant([0, 2, 1, 3]))
        model = ov.Model([out], parameters, "attention")
        properties = {
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": p.type,
        }
        self.compiled = core.compile_model(model, "CPU", properties)
        self.request = self.compiled.create_infer_request()
        self.tensors = [self._tensor(array, kind) for array in arrays]
        for i, tensor in enumerate(self.tensors):
            self.request.set_input_tensor(i, tensor)

    def _repeat(self, node, dim):
        """Each head of keys for every head of queries, as models write it."""
        p = self.problem
        wide = op.broadcast(
            op.unsqueeze(node, op.constant(2)), op.constant([p.batch, p.kv_heads, p.groups, p.keys, dim])
        )
        return op.reshape(wide, op.constant([p.batch, p.heads, p.keys, dim]), False)

    @staticmethod
    def _scalar(value, kind):
        return op.convert(op.constant(np.float32(value)), kind.get_type_name())

    @staticmethod
    def _tensor(array, kind):
        if kind == ov.Type.bf16:
            return ov.Tensor(bf16_bits(array), ov.Shape(array.shape), kind)
        return ov.Tensor(np.ascontiguousarray(array, np.float16 if kind == ov.Type.f16 else np.float32), True)

    def call(self):
        start = time.perf_counter()
        self.request.infer()
        return time.perf_counter() - start

    def output(self):
        tensor = self.request.get_output_tensor(0)
        array = tensor.data
        if self.problem.type == "bf16":
            array = from_bf16_bits(array.view(np.uint16))
        array = array.astype(np.float32)
        return array.transpose(0, 2, 1, 3) if self.layout == "bshd" else array

    def close(self):
        self.request = self.compiled = self.tensors = None


class Peer:
    name = "openvino"

    def __init__(self, threads, gpu):
        if gpu:
            raise Refused("clattn runs on a GPU, and OpenVINO is compared on CPUs alone")
        self.core, self.threads = ov.Core(), threads
        self.version = ov.__version__.split("-")[0]

    def candidates(self, problem, inputs):
        for layout in ("bhsd", "bshd"):
            yield layout, lambda k=layout: Candidate(self.core, self.threads, problem, inputs, k)
