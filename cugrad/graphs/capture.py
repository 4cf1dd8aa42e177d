"""A CUDA graph, and the context in which one is captured."""

from __future__ import annotations

import gc
import itertools
import linecache
import sys
import weakref
from types import CodeType, TracebackType
from typing import Any

from ..cuda.devices import cuda_backend, synchronize
from ..cuda.memory import empty_cache
from ..cuda.streams import Stream, StreamContext
from ..runtime.frames import is_ours, name_in
from ..tensor import Tensor

__all__ = ["CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing"]

Handle = tuple[int, int]
MODES = ("global", "thread_local", "relaxed")

_pools: weakref.WeakValueDictionary[Handle, Any] = weakref.WeakValueDictionary()
_numbers = itertools.count(1)


def is_current_stream_capturing() -> bool:
    """Whether a CUDA graph is being captured from the current stream; False without CUDA.

    >>> import cugrad
    >>> cugrad.cuda.is_current_stream_capturing()
    False
    """
    from ..cuda.devices import is_available, is_initialized

    if not is_available() or not is_initialized():
        return False
    return bool(cuda_backend().current_stream().is_capturing())


def graph_pool_handle() -> Handle:
    """What graphs are given that shall share memory: see `CUDAGraph.capture_begin`.

    >>> import cugrad
    >>> cugrad.cuda.graph_pool_handle() != cugrad.cuda.graph_pool_handle()
    True
    """
    return (0, next(_numbers))


class CUDAGraph:
    """What a stream was told between `capture_begin` and `capture_end`; `replay` does it again.

    Kernels read and write the memory that they did when they were captured: copy new data into the
    tensors that were the input, and read the tensors that were the result. Between the captures
    that share a pool and their replays the order must be the same.
    """

    def __init__(self, keep_graph: bool = False) -> None:
        if keep_graph:
            raise NotImplementedError(
                "CUDAGraph(keep_graph=True): the graph before its instantiation cannot be had; "
                "debug_dump() writes down what is in it"
            )
        self._capture: Any = None
        self._handle: Handle | None = None

    def capture_begin(
        self, pool: Handle | None = None, capture_error_mode: str = "global",
        check_input_liveness: bool = False,
    ) -> None:  # fmt: skip
        """Begins to write down what the current stream is told, which must not be the default one.

        `pool` is a `graph_pool_handle()` or another graph's `pool()`, whose memory is shared.
        RuntimeError on the default stream, or where the stream is captured already;
        NotImplementedError for `check_input_liveness`, a debugging aid of PyTorch's.
        """
        _refuse("check_input_liveness", check_input_liveness)
        if capture_error_mode not in MODES:
            raise RuntimeError(
                f"Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got "
                f"{capture_error_mode}"
            )
        if self._capture is not None:
            raise RuntimeError(
                "This CUDAGraph instance already owns a captured graph. To capture a new graph, "
                "create a new instance, or call reset() first"
            )
        self._handle = pool or graph_pool_handle()
        capture = cuda_backend().capture(_pools.get(self._handle), self._handle)
        capture.begin()
        _pools[self._handle] = capture.pool
        self._capture = capture

    def capture_end(self) -> None:
        """Ends the capture."""
        if self._capture is None:
            raise RuntimeError("CUDAGraph.capture_end: there is no capture_begin before it")
        capture, self._capture = self._capture, None
        capture.end()
        self._capture = capture

    def replay(self) -> None:
        """Does on the current stream what was captured; the host does not wait."""
        if self._capture is None or not self._capture.ended:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        self._capture.replay()

    def reset(self) -> None:
        """Forgets what was captured, and its memory where no tensor is left in it."""
        self._capture = None

    def pool(self) -> Handle:
        """The handle of the memory of this graph, for others to share."""
        if self._handle is None:
            raise RuntimeError(
                "Called CUDAGraph::pool() without a preceding successful capture_begin."
            )
        return self._handle

    def enable_debug_mode(self) -> None:
        """`debug_dump` works without it; PyTorch's wants to be told."""

    def debug_dump(self, debug_path: str) -> None:
        """Writes the graph to a file in DOT, Graphviz's language."""
        if self._capture is None or not self._capture.ended:
            raise RuntimeError("CUDAGraph.debug_dump: nothing has been captured")
        with open(debug_path, "w") as file:
            file.write(self._capture.text())


def _refuse(name: str, value: bool) -> None:
    if value:
        raise NotImplementedError(
            f"a CUDA graph with {name}=True: kernels are neither annotated nor are inputs watched; "
            "debug_dump() writes down what is in a graph"
        )


class graph:
    """Captures in a `CUDAGraph` what is computed inside, on a stream of its own.

    Nothing is computed: what comes out has values after `cuda_graph.replay()`. RuntimeError, with
    the name of the function, for what a graph cannot do: wait for the device, copy from pageable
    memory of the host, or call cuSOLVER, which functions of `linalg` do.

        g = torch.cuda.CUDAGraph()
        with torch.cuda.graph(g):
            y = model(x)
        x.copy_(batch)
        g.replay()
    """

    default_capture_stream: Stream | None = None

    def __init__(
        self, cuda_graph: CUDAGraph, pool: Handle | None = None, stream: Stream | None = None,
        capture_error_mode: str = "global", enable_annotations: bool = False,
        check_input_liveness: bool = False,
    ) -> None:  # fmt: skip
        _refuse("enable_annotations", enable_annotations)
        _refuse("check_input_liveness", check_input_liveness)
        if stream is None:
            if graph.default_capture_stream is None:
                graph.default_capture_stream = Stream()
            stream = graph.default_capture_stream
        self.cuda_graph, self.pool, self.capture_stream = cuda_graph, pool, stream
        self.capture_error_mode = capture_error_mode
        self._on_stream = StreamContext(stream)

    def __enter__(self) -> None:
        synchronize()
        gc.collect()
        empty_cache()
        self._on_stream.__enter__()
        try:
            self.cuda_graph.capture_begin(self.pool, self.capture_error_mode)
        except BaseException:
            self._on_stream.__exit__(*sys.exc_info())
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        try:
            self.cuda_graph.capture_end()
        except RuntimeError:
            if error is None:
                raise
        finally:
            self._on_stream.__exit__(kind, error, trace)
        if error is None:
            return
        self.cuda_graph.reset()
        if isinstance(error, RuntimeError) and _is_of_capture(error):
            why = "it waits for the device, or copies to or from memory of the host that is not "
            why += "page-locked"
            if isinstance(error, NotImplementedError):
                why = "it calls a library of CUDA's that CuPy does not call then"
            raise RuntimeError(
                f"cuda graph: {_called(trace)} cannot be captured: {why}. Leave it out of the "
                f"capture. ({error})"
            ) from error


def _is_of_capture(error: RuntimeError) -> bool:
    """Whether CUDA or CuPy refused it because a stream is being captured."""
    status = getattr(error, "status", None)
    return "captur" in str(error).lower() if status is None else 900 <= status <= 908


def _called(trace: TracebackType | None) -> str:
    """What the user's code called last, and where: the last step from it into the library."""
    answer = "what was called"
    while trace is not None and trace.tb_next is not None:
        frame, inner = trace.tb_frame, trace.tb_next.tb_frame
        if not is_ours(frame) and is_ours(inner):
            code = frame.f_code
            line = linecache.getline(code.co_filename, trace.tb_lineno).strip()
            answer = f"{_name_at(trace.tb_next)} (line {trace.tb_lineno} of {code.co_filename}"
            answer += f": {line})" if line else ")"
        trace = trace.tb_next
    return answer


def _name_at(trace: TracebackType | None) -> str:
    """The name of the first function of the library here that has one; a module's is its class."""
    while trace is not None and is_ours(trace.tb_frame):
        frame, name = trace.tb_frame, name_in(trace.tb_frame)
        if name == "__call__" and "self" in frame.f_locals:
            return type(frame.f_locals["self"]).__name__
        if name:
            return _method_of(frame.f_code) if name == frame.f_code.co_name else name
        trace = trace.tb_next
    return "what was called"


def _method_of(code: CodeType) -> str:
    """The name of the tensors' method that has this code, such as `__getitem__`, or its own."""
    own = [name for name, f in vars(Tensor).items() if getattr(f, "__code__", None) is code]
    return code.co_name if code.co_name in own or not own else own[0]
