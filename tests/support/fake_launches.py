"""Counts what the fake CUDA device would launch: kernels, and the elements that they read or write.

A function of CuPy's that makes an array is a kernel; a view is none. Some are several:
`take_along_axis` makes its indices first, `mean` divides by a kernel of its own. Kernels that are
launched by name count, and do not run: what they would have written stays whatever memory holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tests.support import fake_cublas, fake_cuda

__all__ = ["Launches", "counted", "install"]

VIEW_NAMES = """
    reshape transpose swapaxes broadcast_to moveaxis squeeze flip empty empty_like expand_dims
    may_share_memory dtype real imag asarray iinfo ravel diagonal float16 float32 float64 int32
    int64 bool_ ndim shape
"""
VIEWS = frozenset(VIEW_NAMES.split())
FILLS = ("zeros_like", "ones_like", "full_like")  # which read nothing
METHODS = ("astype", "copy", "sum", "max", "min", "all", "any", "fill", "conj", "round", "clip")


def kernels_of(name: str, args: Any) -> int:
    """How many kernels a function of CuPy's launches."""
    if name == "take_along_axis":
        return 2 * args[0].ndim  # a range for each other dim, a mask of the index, the read
    if name in ("stack", "concatenate"):
        return len(args[0])
    return 2 if name in ("mean", "tril", "triu") else 1


class Launches:
    """What was launched: kernels by name, and elements that passed through memory."""

    def __init__(self) -> None:
        self.kernels: Counter[str] = Counter()
        self.elements = 0

    @property
    def count(self) -> int:
        return sum(self.kernels.values())

    def note(self, name: str, arrays: Any, kernels: int = 1) -> None:
        self.kernels[name] += kernels
        self.elements += sum(x.size for x in arrays if isinstance(x, fake_cuda.ndarray))


_now: Launches | None = None


@contextmanager
def counted() -> Iterator[Launches]:
    """Counts what is launched inside."""
    global _now
    _now = Launches()
    try:
        yield _now
    finally:
        _now = None


def note(name: str, arrays: Any, kernels: int = 1) -> None:
    if _now is not None:
        _now.note(name, arrays, kernels)


def install() -> None:
    """Puts the fake in the place of CuPy, counting, for this process."""
    fake_cuda.function = _counting(fake_cuda.function)
    for short in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor"):
        for prefix in ("", "r", "i"):
            _count_method(f"__{prefix}{short}__", short)
    for short in ("lt", "le", "gt", "ge", "eq", "ne", "neg", "abs", "invert"):
        _count_method(f"__{short}__", short)
    _count_indexing()
    _count_attributes()
    _count_special()
    _count_named()
    fake_cuda.install()


def _counting(function_of: Callable[[str], Any]) -> Callable[[str], Any]:
    def function(name: str) -> Any:
        call = function_of(name)
        if name in VIEWS:
            return call

        def counting(*args: Any, **kwargs: Any) -> Any:
            result = call(*args, **kwargs)
            if name == "ascontiguousarray" and result is args[0]:
                return result
            read = () if name in FILLS else args
            several = [x for a in read for x in (a if isinstance(a, (tuple, list)) else (a,))]
            note(name, (*several, result), kernels_of(name, args))
            return result

        return counting

    return function


def _count_method(method: str, name: str) -> None:
    before = getattr(fake_cuda.ndarray, method)

    def counting(self: Any, *others: Any) -> Any:
        result = before(self, *others)
        if result is not NotImplemented:
            note(name, (self, *others, result))
        return result

    setattr(fake_cuda.ndarray, method, counting)


def _arrays_in(index: Any) -> int:
    items = index if isinstance(index, tuple) else (index,)
    return sum(isinstance(i, fake_cuda.ndarray) for i in items)


def _count_indexing() -> None:
    read, write = fake_cuda.ndarray.__getitem__, fake_cuda.ndarray.__setitem__

    def getitem(self: Any, index: Any) -> Any:
        result, arrays = read(self, index), _arrays_in(index)
        if arrays:
            note("take", (result, result), arrays + 2 if arrays > 1 else 1)
        return result

    def setitem(self: Any, index: Any, value: Any) -> None:
        arrays = _arrays_in(index)
        note("put", (value, value), arrays + 2 if arrays > 1 else 1)
        write(self, index, value)

    fake_cuda.ndarray.__getitem__ = getitem  # type: ignore[method-assign]
    fake_cuda.ndarray.__setitem__ = setitem  # type: ignore[method-assign]


def _count_attributes() -> None:
    before = fake_cuda.ndarray.__getattr__

    def getattribute(self: Any, name: str) -> Any:
        found = before(self, name)
        if name not in METHODS or not callable(found):
            return found

        def method(*args: Any, **kwargs: Any) -> Any:
            same = name == "astype" and kwargs.get("copy") is False
            result = found(*args, **kwargs)
            if not (same and np.dtype(args[0]) == self._host.dtype):
                note(name, (self, result))
            return result

        return method

    fake_cuda.ndarray.__getattr__ = getattribute  # type: ignore[method-assign]


def _count_special() -> None:
    function_of = fake_cuda.Special.__getattr__

    def function(self: Any, name: str) -> Any:
        call = function_of(self, name)

        def counting(*args: Any) -> Any:
            result = call(*args)
            note(f"special.{name}", (*args, result))
            return result

        return counting

    fake_cuda.Special.__getattr__ = function  # type: ignore[method-assign]


def _count_named() -> None:
    """Kernels that are launched by name, products, and sums by atomics."""

    class Module:
        def __init__(self, code: str, options: Any = (), **rest: Any) -> None: ...

        def get_function(self, name: str) -> Any:
            return lambda grid, block, args, **kwargs: note(name, args)

    class Kernel(fake_cuda.Handled):
        def __init__(self, code: str, name: str, options: Any = (), **rest: Any) -> None:
            self.name, self._code = name, code

        def compile(self, log_stream: Any = None) -> None: ...

        def __call__(self, grid: Any, block: Any, args: Any, **kwargs: Any) -> None:
            note(self.name, ())

    product, adds = fake_cublas._gemm, fake_cuda.add_at

    def gemm(ta: int, tb: int, m: int, n: int, k: int, *args: Any) -> None:
        note("GEMM", ())
        if _now is not None:
            _now.elements += args[-2] * (m * k + k * n + m * n)
        product(ta, tb, m, n, k, *args)

    def add_at(a: Any, indices: Any, b: Any) -> None:
        arrays = _arrays_in(indices)
        note("scatter_add", (a, b, b), arrays + 2 if arrays > 1 else 1)
        adds(a, indices, b)

    fake_cublas._gemm, fake_cuda.add_at = gemm, add_at
    fake_cuda.RawModule, fake_cuda.RawKernel = Module, Kernel  # type: ignore[misc, assignment]


def count_plans() -> None:
    """Elements that kernels read and write whose one argument does not tell."""
    from cugrad.backends.cupy.fused import launch, lists, reductions
    from cugrad.backends.cupy.launches import starting as launching
    from cugrad.backends.cupy.written import launch as written
    from cugrad.backends.cupy.written import plans

    start, run_lists = launching.start, lists.ListKernels._launch

    def counting(kernel: Any, grid: Any, block: Any, arrays: Any, *told: Any) -> None:
        if _now is not None:
            sizes = [x.size for x in arrays if x is not None and x.dtype.num != plans.COUNTERS]
            _now.elements += sum(sizes)
        start(kernel, grid, block, arrays, *told)

    def counting_lists(self: Any, graph: Any, dtypes: Any, whole: Any, entries: Any,
                       *rest: Any, **more: Any) -> int:  # fmt: skip
        if _now is not None:
            passes = len(graph.lists_read()) + len(graph.results)
            _now.elements += passes * sum(entry.size for entry in entries)
        return run_lists(self, graph, dtypes, whole, entries, *rest, **more)

    lists.ListKernels._launch = counting_lists  # type: ignore[method-assign]
    for starting in (launch, reductions, written):
        starting.start = counting  # type: ignore[attr-defined]
    for keeping in (launch, plans, reductions):  # what starts them in a straight line does nothing
        keeping.launches_of = lambda *args, **names: lambda *values: None  # type: ignore[attr-defined]
