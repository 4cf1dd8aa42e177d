"""A convolution, and the gradients of its operands, as graphs of cuDNN that are kept by form.

Operands are channels-first or channels-last; the result lies as they do. None is answered where
cuDNN is not installed or has no algorithm, and written kernels compute the convolution.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import cupy

from ...several import several
from ...wanted import wanted
from ..capture import capturing
from ..fused.launch import New
from ..launches.starting import call, not_noted
from ..written.launch import dense, name_of
from ..written.sliding.biases import add_bias
from ..written.sliding.windows import Windows, is_last, laid_last, new_last
from .frontend import frontend, not_supported
from .graphs import KINDS, GraphPlan, PlansByForm, built, new_graph

__all__ = ["convolve", "gradient_of_input", "gradient_of_weight"]

Array = Any  # cupy.ndarray
Sizes = tuple[int, ...]
TRIALS = 3  # of each algorithm, in benchmark mode: the first warms up


class Planes(NamedTuple):
    """The shape of an array, and whether its channels lie last."""

    shape: Sizes
    last: bool

    @property
    def planar(self) -> tuple[list[int], list[int]]:
        """Sizes and strides in elements, with a dim of one row where there are only columns."""
        shape = self.shape if len(self.shape) > 3 else (*self.shape[:2], 1, *self.shape[2:])
        order = range(len(shape))
        if self.last:
            order = [0, *range(2, len(shape)), 1]  # type: ignore[assignment]
        strides, step = [0] * len(shape), 1
        for axis in reversed(order):
            strides[axis] = step
            step *= shape[axis]
        return list(shape), strides


class GraphForm(NamedTuple):
    """What a graph depends on, with all settings."""

    what: str  # "fprop", "dgrad" or "wgrad"
    dtype: str
    first: Planes
    second: Planes
    result: Planes
    windows: Windows
    deterministic: bool
    tf32: bool
    benchmark: bool
    device: int


# Operands by the names that the frontend has for them, and in its order of arguments.
NAMES = {
    "fprop": ("image", "weight"), "dgrad": ("loss", "filter"), "wgrad": ("image", "loss"),
}  # fmt: skip
FIRST, SECOND, RESULT = 1, 2, 3  # the uids of tensors, in the order of a plan's addresses


class ConvolutionPlan(GraphPlan):
    """A graph of one convolution; in benchmark mode with the algorithm that was the fastest."""

    __slots__ = ()

    def __init__(self, module: Any, form: GraphForm) -> None:
        super().__init__(module, _graph(module, form), 0 if form.benchmark else None)

    def choose(self, operands: Sequence[Array]) -> None:
        """Times the algorithms on these operands, and keeps the fastest."""
        limit = wanted.cudnn.benchmark_limit
        count = self.graph.get_execution_plan_count()
        times: list[tuple[float, int, int]] = []
        refusals = not_supported(self.module)
        errors: tuple[type[Exception], ...] = RuntimeError, MemoryError, *refusals
        for index in range(min(count, limit) if limit else count):
            try:
                self.index = index
                self.size = self.graph.get_workspace_size_plan_at_index(index)
                times.append((self._time(operands), index, self.size))
            except errors:  # it was not built, or needs too much
                continue
        if not times:
            raise refusals[0]("no algorithm runs")
        _, self.index, self.size = min(times)

    def _time(self, operands: Sequence[Array]) -> float:
        """Milliseconds of the fastest run but the first."""
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        least, places = float("inf"), [x.data.ptr for x in operands]
        for trial in range(TRIALS):
            start.record()
            self.run(*places)
            end.record()
            end.synchronize()
            if trial:
                least = min(least, cupy.cuda.get_elapsed_time(start, end))
        return least


def _graph(module: Any, form: GraphForm) -> Any:
    """A graph with one node, whose algorithms are built."""
    kind, graph = new_graph(module, form.dtype)
    first, second = (
        graph.tensor(name=name, dim=dim, stride=stride, data_type=kind, uid=uid)
        for name, uid, (dim, stride) in zip(
            NAMES[form.what], (FIRST, SECOND), (form.first.planar, form.second.planar)
        )
    )
    names, windows = NAMES[form.what], form.windows
    missing = (1,) * (2 - len(windows.size))
    padding = [*[0] * len(missing), *windows.padding]
    result = getattr(graph, f"conv_{form.what}")(
        **{names[0]: first, names[1]: second}, pre_padding=padding, post_padding=padding,
        stride=[*missing, *windows.stride], dilation=[*missing, *windows.dilation],
    )  # fmt: skip
    dim, stride = form.result.planar
    result.set_output(True).set_data_type(kind).set_dim(dim).set_stride(stride).set_uid(RESULT)
    return built(module, graph, _refused(module.numerical_note, form), form.benchmark)


def _refused(notes: Any, form: GraphForm) -> list[Any]:
    """What an algorithm must not do, as PyTorch says: cudnn's Conv_v8.cpp."""
    refused = [notes.NONDETERMINISTIC] if form.deterministic else []
    if form.dtype == "float32":
        refused.append(notes.DOWN_CONVERT_INPUTS)
        if not form.tf32:
            refused.append(notes.TENSOR_CORE)
    return refused


plans = PlansByForm()


def _computed(
    what: str, first: Array, second: Array, shape: Sizes, windows: Windows, last: bool
) -> Array | None:
    """The result of a node, new; None where cuDNN does not compute it."""
    if name_of(first.dtype) not in KINDS or min(prod(shape), first.size, second.size) == 0:
        return None
    module, settings = frontend(), wanted.cudnn
    if module is None:
        return None
    first, second = _laid(first, last), _laid(second, last)
    is_captured = capturing.now is not None
    if several.devices or is_captured and settings.benchmark:
        not_noted()  # another device has another graph, and other runs choose an algorithm
    form = GraphForm(
        what, name_of(first.dtype), Planes(first.shape, last), Planes(second.shape, last),
        Planes(shape, last), windows, settings.deterministic or wanted.deterministic,
        settings.allow_tf32, settings.benchmark and not is_captured, cupy.cuda.runtime.getDevice(),
    )  # fmt: skip
    result = _empty(shape, first.dtype, last and not (what == "wgrad" and _is_narrow(shape)))
    plan = plans.of(module, form, lambda: _chosen(module, form, first, second, result))
    if plan is None:
        return None
    call(plan.run, first, second, result)
    return result


def _chosen(
    module: Any, form: GraphForm, first: Array, second: Array, result: Array
) -> ConvolutionPlan:  # fmt: skip
    """A new plan, with its algorithm."""
    plan = ConvolutionPlan(module, form)
    if form.benchmark:
        plan.choose((first, second, result))
    return plan


# How arrays lie -----------------------------------------------------------------------------------


def _is_narrow(shape: Sizes) -> bool:
    return max(shape[2:]) == 1


def _empty(shape: Sizes, dtype: Any, last: bool) -> Array:
    return new_last(shape, dtype) if last else New(shape, dtype, None).make()


def _laid(x: Array, last: bool) -> Array:
    """`x`, or a copy that lies so."""
    return laid_last(x) if last else dense(x)


# The three convolutions ---------------------------------------------------------------------------


def convolve(
    input: Array, weight: Array, bias: Array | None, windows: Windows
) -> Array | None:  # fmt: skip
    """The convolution; groups follow from the channels of both."""
    shape = (input.shape[0], weight.shape[0], *windows.outputs)
    last = is_last(input) or is_last(weight)
    result = _computed("fprop", input, weight, shape, windows, last)
    if result is not None and bias is not None:
        add_bias(result, bias)
    return result


def gradient_of_input(g: Array, weight: Array, shape: Sizes, windows: Windows) -> Array | None:
    """The gradient of an input of that shape."""
    return _computed("dgrad", g, weight, shape, windows, is_last(g) or is_last(weight))


def gradient_of_weight(g: Array, input: Array, shape: Sizes, windows: Windows) -> Array | None:
    """The gradient of a weight of that shape; one of 1x1 lies in the order of its dims, as new
    weights do: it becomes what is kept of it.
    """
    return _computed("wgrad", input, g, shape, windows, is_last(input) or is_last(g))
