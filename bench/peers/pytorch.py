# SPDX-License-Identifier: Apache-2.0
"""PyTorch's scaled_dot_product_attention: each backend, layout and way to say what is grouped or masked."""

import time
import warnings

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from .shapes import Refused, refuse_large_scores

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}


class Candidate:
    def __init__(self, peer, problem, inputs, backend, layout, grouping):
        self.device, self.backend = peer.device, BACKENDS[backend]
        if backend == "math":
            refuse_large_scores(problem)
        dtype = DTYPES[problem.type]
        self.q, self.k, self.v = (self._tensor(x, dtype, layout) for x in (inputs.q, inputs.k, inputs.v))
        self.options = {"scale": problem.scale}
        if grouping == "gqa":
            self.options["enable_gqa"] = True
        self.repeats = problem.groups if grouping == "repeated" else 1
        if inputs.is_triangle(0) and inputs.bias is None:
            self.options["is_causal"] = True
        elif inputs.bias is not None:
            self.options["attn_mask"] = torch.from_numpy(inputs.added()).to(self.device, dtype)
        elif inputs.keep is not None:
            self.options["attn_mask"] = torch.from_numpy(inputs.keep).to(self.device)
        self.out = None

    def _tensor(self, array, dtype, layout):
        if layout == "bshd":  # as a projection leaves it: heads are an inner axis
            tensor = torch.from_numpy(np.ascontiguousarray(array.transpose(0, 2, 1, 3)))
            return tensor.to(self.device, dtype).transpose(1, 2)
        return torch.from_numpy(array).to(self.device, dtype)

    def _repeat(self, tensor):
        """Each head of keys for every head of queries, as models write it: a view of one head, else a copy."""
        batch, heads, keys, dim = tensor.shape
        return tensor[:, :, None].expand(batch, heads, self.repeats, keys, dim).flatten(1, 2)

    def call(self):
        with sdpa_kernel(self.backend), torch.inference_mode():
            start = time.perf_counter()
            k, v = (self.k, self.v) if self.repeats == 1 else (self._repeat(self.k), self._repeat(self.v))
            self.out = scaled_dot_product_attention(self.q, k, v, **self.options)
            if self.device != "cpu":
                torch.cuda.synchronize()
            return time.perf_counter() - start

    def output(self):
        return self.out.float().cpu().numpy()

    def close(self):
        self.q = self.k = self.v = self.out = self.options = None


class Peer:
    name = "pytorch"

    def __init__(self, threads, gpu):
        torch.set_num_threads(threads)
        if gpu and not torch.cuda.is_available():
            raise Refused("clattn runs on a GPU, and this PyTorch sees none")
        self.device = "cuda" if gpu else "cpu"
        self.version = torch.__version__
        warnings.filterwarnings("ignore", category=UserWarning)  # why a backend refuses: the error says so too

    def candidates(self, problem, inputs):
        backends = list(BACKENDS) if self.device != "cpu" else ["flash", "efficient", "math"]
        for backend in backends:
            for layout in ("bhsd", "bshd"):
                for grouping in ("gqa", "repeated") if problem.groups > 1 else ("",):
                    name = " ".join(filter(None, (backend, layout, grouping)))
                    yield name, lambda b=backend, l=layout, g=grouping: Candidate(self, problem, inputs, b, l, g)
