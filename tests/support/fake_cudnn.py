"""nvidia-cudnn-frontend for `fake_cuda`: the functions that we call, with the package's arguments.

Graphs demand the order in which the package wants to be called, geometry that fits, and pointers
for every tensor; convolutions are then computed by rows on the memory behind the pointers, and
attention by tensor functions of the host.
`tests/backends/test_cudnn.py` compares `SIGNATURES` with the package where it is installed.
"""

from __future__ import annotations

import ctypes
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from tests.support import fake_cuda

# Of nvidia-cudnn-frontend 1.32.0, by `inspect.signature`; convolutions by the table of their names.
SIGNATURES = {
    "pygraph": ["name", "io_data_type", "intermediate_data_type", "compute_data_type", "handle"],
    "pygraph.tensor": ["dim", "stride", "data_type", "name", "uid"],
    "pygraph.create_execution_plans": ["heuristics"],
    "pygraph.deselect_numeric_notes": ["notes"],
    "pygraph.execute": ["tensor_dict", "workspace", "handle"],
    "pygraph.execute_plan_at_index": ["tensor_dict", "workspace", "index", "handle"],
    "pygraph.get_workspace_size_plan_at_index": ["index"],
    "set_stream": ["handle", "stream"],
}
CONVOLUTIONS = {
    "conv_fprop": ("image", "weight"), "conv_dgrad": ("loss", "filter"),
    "conv_wgrad": ("image", "loss"),
}  # fmt: skip
# Attention: what is read, and what is computed; arguments by `cudnn._pybind_module.backend_graph`.
ATTENTIONS = {
    "sdpa": (("q", "k", "v"), 2),
    "sdpa_backward": (("q", "k", "v", "o", "dO", "stats"), 3),
}
CAUSAL = ("use_causal_mask", "use_causal_mask_bottom_right")
SAID = {
    "sdpa": ("attn_scale", "generate_stats", *CAUSAL),
    "sdpa_backward": ("attn_scale", "use_deterministic_algorithm", *CAUSAL),
}
ATTRIBUTES = ("padding", "pre_padding", "post_padding", "stride", "dilation", "convolution_mode")

DataType = Enum("data_type", "FLOAT DOUBLE HALF BFLOAT16")
HeurMode = Enum("heur_mode", "A B FALLBACK")
BuildPlanPolicy = Enum("build_plan_policy", "HEURISTICS_CHOICE ALL")
NumericalNote = Enum(
    "numerical_note", "TENSOR_CORE DOWN_CONVERT_INPUTS REDUCED_PRECISION_REDUCTION FFT "
    "NONDETERMINISTIC WINOGRAD",
)  # fmt: skip


class GraphNotSupported(Exception):
    """cudnn.cudnnGraphNotSupportedError."""


class FakeTensor:
    def __init__(self, dim: Any, stride: Any, data_type: Any, uid: int | None) -> None:
        self.dim, self.stride, self.data_type, self.uid = dim, stride, data_type, uid
        self.output = False

    @property
    def lying(self) -> tuple[Any, Any]:
        return self.dim, self.stride

    def set_output(self, value: bool) -> FakeTensor:
        self.output = value
        return self

    def set_data_type(self, dtype: Any) -> FakeTensor:
        self.data_type = dtype
        return self

    def set_dim(self, dim: list[int]) -> FakeTensor:
        self.dim = dim
        return self

    def set_stride(self, stride: list[int]) -> FakeTensor:
        self.stride = stride
        return self

    def set_uid(self, uid: int) -> FakeTensor:
        self.uid = uid
        return self


STEPS = ["validate", "build_operation_graph", "create_execution_plans", "check_support",
         "build_plans"]  # fmt: skip


class FakeGraph:
    """One node, and plans that are only numbers."""

    module: Any
    PLANS = 3

    def __init__(self, *, io_data_type: Any, intermediate_data_type: Any, compute_data_type: Any,
                 handle: Any) -> None:  # fmt: skip
        wide = io_data_type is DataType.DOUBLE
        assert compute_data_type is (DataType.DOUBLE if wide else DataType.FLOAT)
        assert handle.stream == fake_cuda.fake_streams.current().ptr
        self.kind, self.tensors, self.done = io_data_type, {}, []  # type: Any, dict[int, Any], list[str]
        self.node: Any = None
        self.refused: list[Any] = []
        self.module.graphs.append(self)

    def tensor(self, *, name: str, dim: Any, stride: Any, data_type: Any, uid: int) -> FakeTensor:
        assert len(dim) == len(stride) in (4, 5)
        assert data_type is (DataType.FLOAT if name == "stats" else self.kind)
        assert uid not in self.tensors and not self.done
        self.tensors[uid] = tensor = FakeTensor(dim, stride, data_type, uid)
        return tensor

    def __getattr__(self, name: str) -> Any:
        if name in STEPS:
            return lambda *args: self.step(name, *args)
        if name in CONVOLUTIONS:
            return lambda **kwargs: self.add(name, CONVOLUTIONS[name], 1, ATTRIBUTES, kwargs)[0]
        if name in ATTENTIONS:
            return lambda **kwargs: self.add(name, *ATTENTIONS[name], SAID[name], kwargs)
        raise AttributeError(name)

    def add(
        self, name: str, names: Any, count: int, attributes: Any, kwargs: dict[str, Any]
    ) -> list[FakeTensor]:
        """The one node of the graph."""
        read = [kwargs.pop(n) for n in names]
        assert set(kwargs) <= set(attributes) and self.node is None
        results = [FakeTensor(None, None, None, None) for _ in range(count)]
        self.node = SimpleNamespace(name=name, read=read, results=results, how=kwargs)
        return results

    def step(self, name: str, *args: Any) -> None:
        assert name == STEPS[len(self.done)], f"{name} after {self.done}"
        if name == "validate":
            self.checked()
        if name == "create_execution_plans":
            assert args == ([HeurMode.A, HeurMode.FALLBACK],)
        if name == "check_support" and not self.module.supported:
            raise GraphNotSupported("no engine")
        self.policy = args[0] if name == "build_plans" else None
        self.done.append(name)

    def checked(self) -> None:
        """Sizes fit."""
        node = self.node
        uids = [t.uid for t in (*node.read, *node.results)]
        assert sorted(uids) == list(range(1, len(uids) + 1)) and all(t.output for t in node.results)
        if node.name in CONVOLUTIONS:
            self.checked_convolution()
        else:
            self.checked_attention()

    def checked_convolution(self) -> None:
        """As cuDNN's formula has it."""
        how = SimpleNamespace(**self.node.how)
        image, weight, out = self.roles()
        assert self.node.results[0].data_type is self.kind
        groups, rest = divmod(image.dim[1], weight.dim[1])
        assert not rest and weight.dim[0] % groups == 0
        assert out.dim[:2] == [image.dim[0], weight.dim[0]]
        for k, n in enumerate(image.dim[2:]):
            reach = (weight.dim[k + 2] - 1) * how.dilation[k] + 1
            count = (n + how.pre_padding[k] + how.post_padding[k] - reach) // how.stride[k] + 1
            assert out.dim[k + 2] == count
        layouts = [sorted(range(len(t.dim)), key=lambda i, t=t: -t.stride[i]) for t in
                   (image, weight, out)]  # fmt: skip
        assert all(min(t.stride) == 1 for t in (image, weight, out)), layouts

    def checked_attention(self) -> None:
        """As the support surface of the package has it, and what its kernels are known to demand:
        the last dim dense, steps and addresses of 16 bytes.
        """
        node, kinds = self.node, (DataType.HALF, DataType.BFLOAT16)
        (q, k, v), (batch, heads, rows, width) = node.read[:3], node.read[0].dim
        stats = ([batch, heads, rows, 1], [heads * rows, rows, 1, 1])
        assert self.kind in kinds and not width % 8 and not v.dim[3] % 8 and k.dim[3] == width
        assert k.dim[:3] == v.dim[:3] and k.dim[0] == batch and not heads % k.dim[1]
        if node.how.get("use_causal_mask_bottom_right"):
            assert rows <= k.dim[2] and "use_causal_mask" not in node.how
        like_result = [batch, heads, rows, v.dim[3]]
        if node.name == "sdpa":
            o, logs = node.results
            assert o.dim == like_result and node.how["generate_stats"] is True
            lying, large = logs, [q, k, v, o]
        else:
            o, g, lying = node.read[3:]
            assert o.dim == g.dim == like_result
            assert [t.dim for t in node.results] == [t.dim for t in (q, k, v)]
            large = [q, k, v, o, g, *node.results]
        assert lying.lying == stats and lying.data_type is DataType.FLOAT
        for t in large:
            assert t.data_type is self.kind and t.stride[3] == 1
            assert all(s > 0 and not s % 8 for s in t.stride[:3])

    def roles(self) -> tuple[Any, Any, Any]:
        """Image, weight and output of the convolution."""
        node = self.node
        (a, b), (c,) = node.read, node.results
        return {"conv_fprop": (a, b, c), "conv_dgrad": (c, b, a), "conv_wgrad": (a, c, b)}[
            node.name
        ]

    def deselect_numeric_notes(self, notes: list[Any]) -> FakeGraph:
        assert self.done == STEPS[:3]
        self.refused += notes
        return self

    def get_workspace_size(self) -> int:
        assert self.done == STEPS
        return int(self.module.workspace)

    def get_execution_plan_count(self) -> int:
        return self.PLANS

    def get_workspace_size_plan_at_index(self, index: int) -> int:
        assert self.done == STEPS and self.policy is BuildPlanPolicy.ALL
        if index == 1:
            raise RuntimeError("this plan was not built")
        return int(self.module.workspace)

    def execute_plan_at_index(self, tensor_dict: Any, workspace: Any, index: int,
                              handle: Any) -> None:  # fmt: skip
        self.module.indices.append(index)
        self.execute(tensor_dict, workspace, handle)

    def execute(self, tensor_dict: dict[int, int], workspace: Any, handle: Any) -> None:
        assert self.done == STEPS and handle.stream == fake_cuda.fake_streams.current().ptr
        assert bool(workspace) == bool(self.module.workspace)
        node = self.node
        every = {**self.tensors, **{t.uid: t for t in node.results}}
        assert set(tensor_dict) == set(every) and all(type(p) is int for p in tensor_dict.values())
        views = {uid: self.view(every[uid], pointer) for uid, pointer in tensor_dict.items()}
        self.module.calls.append(node.name)
        arrays = [views[t.uid] for t in (*node.read, *node.results)]
        compute = self.convolve if node.name in CONVOLUTIONS else self.attend
        fake_cuda.captured(compute, changes=True)(*arrays)

    def view(self, tensor: Any, pointer: int) -> Any:
        names = {DataType.HALF: "float16", DataType.FLOAT: "float32", DataType.DOUBLE: "float64"}
        if tensor.data_type is DataType.BFLOAT16:
            import ml_dtypes

            dtype = np.dtype(ml_dtypes.bfloat16)
        else:
            dtype = np.dtype(names[tensor.data_type])
        reach = 1 + sum((n - 1) * s for n, s in zip(tensor.dim, tensor.stride))
        memory = (ctypes.c_char * (reach * dtype.itemsize)).from_address(pointer)
        strides = [s * dtype.itemsize for s in tensor.stride]
        return np.ndarray(tensor.dim, dtype, memory, 0, strides)

    def convolve(self, first: Any, second: Any, result: Any) -> None:
        from cugrad.backends import get
        from cugrad.ops.table import TABLE

        node, xp, said = self.node, get("cpu").xp, SimpleNamespace(**self.node.how)
        assert said.pre_padding == said.post_padding
        image, weight, _ = self.roles()
        how = (*map(tuple, (said.stride, said.pre_padding, said.dilation)),
               image.dim[1] // weight.dim[1])  # fmt: skip
        a, b = (np.ascontiguousarray(x).astype(np.float64) for x in (first, second))
        if node.name == "conv_fprop":
            value = TABLE["convolution"].forward(xp, a, b, None, *how)
        elif node.name == "conv_dgrad":
            value = TABLE["convolution_input"].forward(xp, a, b, tuple(image.dim[2:]), *how)
        else:
            value = TABLE["convolution_weight"].forward(xp, b, a, tuple(weight.dim[2:]), *how)
        result[...] = value

    def attend(self, *arrays: Any) -> None:
        """Attention in float64, and its gradients from the logarithms that are given."""
        q, k, v = (x.astype(np.float64) for x in arrays[:3])
        groups, said = q.shape[1] // k.shape[1], self.node.how
        k, v = (np.repeat(x, groups, 1) for x in (k, v))
        scores = np.einsum("bhid,bhjd->bhij", q, k) * said["attn_scale"]
        rows, keys = scores.shape[2:]
        if said.get("use_causal_mask") or said.get("use_causal_mask_bottom_right"):
            first = 0 if said.get("use_causal_mask") else keys - rows
            scores[..., ~np.tri(rows, keys, first, dtype=bool)] = -np.inf
        if self.node.name == "sdpa":
            top = scores.max(-1, keepdims=True)
            logs = top + np.log(np.exp(scores - top).sum(-1, keepdims=True))
            arrays[3][...] = np.einsum("bhij,bhjd->bhid", np.exp(scores - logs), v)
            arrays[4][...] = logs
            return
        o, g, logs = (x.astype(np.float64) for x in arrays[3:6])
        weights = np.exp(scores - logs)
        slopes = np.einsum("bhid,bhjd->bhij", g, v) - (g * o).sum(-1, keepdims=True)
        slopes = weights * slopes * said["attn_scale"]
        gradients = (
            np.einsum("bhij,bhjd->bhid", slopes, k), np.einsum("bhij,bhid->bhjd", slopes, q),
            np.einsum("bhij,bhid->bhjd", weights, g),
        )  # fmt: skip
        for made, gradient in zip(arrays[6:], gradients, strict=True):
            batch, heads, *rest = gradient.shape
            each = heads // made.shape[1]
            made[...] = gradient.reshape(batch, made.shape[1], each, *rest).sum(2)


class FakeHandle:
    stream = 0


def fake(supported: bool = True, workspace: int = 256) -> Any:
    """The module `cudnn`, which notes its graphs and what they have computed."""
    module: Any = ModuleType("cudnn")

    def set_stream(handle: Any, stream: int) -> None:
        handle.stream = stream

    members = {
        "data_type": DataType, "heur_mode": HeurMode, "build_plan_policy": BuildPlanPolicy,
        "numerical_note": NumericalNote, "cudnnGraphNotSupportedError": GraphNotSupported,
        "create_handle": FakeHandle, "set_stream": set_stream, "backend_version": lambda: 92800,
        "supported": supported, "workspace": workspace, "graphs": [], "calls": [], "indices": [],
    }  # fmt: skip
    vars(module).update(members)
    module.pygraph = type("pygraph", (FakeGraph,), {"module": module})
    return module
