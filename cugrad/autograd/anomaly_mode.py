"""Anomaly detection: which forward call a failing backward belongs to, and where nan came from."""

from __future__ import annotations

import linecache
import sys
import warnings
from functools import lru_cache
from types import CodeType
from typing import TYPE_CHECKING, Any

from ..backends import backend_of
from ..backends.batched.arrays import plain
from ..backends.several import there
from ..dtypes import is_differentiable
from ..runtime.contexts import described
from ..runtime.frames import LAYERS, users_frames, warn_user
from ..runtime.kept import Switch
from ..tensor import Tensor
from .mode import State, anomaly, state

if TYPE_CHECKING:
    from .recording.node import Node

__all__ = [
    "detect_anomaly", "is_anomaly_check_nan_enabled", "is_anomaly_enabled", "set_anomaly_enabled",
    "set_detect_anomaly",
]  # fmt: skip


def is_anomaly_enabled() -> bool:
    """Whether anomaly detection is on."""
    return anomaly.enabled


def is_anomaly_check_nan_enabled() -> bool:
    """Whether anomaly detection, when on, looks for nan."""
    return anomaly.check_nan


def set_anomaly_enabled(enabled: bool, check_nan: bool = True) -> None:
    """Turns anomaly detection on or off, in all threads.

    A thread that runs already notices when it next changes its grad mode or runs backward.
    """
    for i, (name, value) in enumerate((("enabled", enabled), ("check_nan", check_nan))):
        if type(value) is not bool:
            raise TypeError(
                f"set_anomaly_enabled(): argument '{name}' (position {i + 1}) must be bool, not "
                f"{type(value).__name__}"
            )
    anomaly.enabled, anomaly.check_nan = enabled, check_nan
    State.fast = State.fast_cast = State.unobserved = State.fast_of_new_threads()
    state.switch()


class detect_anomaly(Switch):
    """Within it, backward says which forward call an error came from, and nan is an error.

    Forward must run within it too, for its traceback to be known. With `check_nan` backward raises
    a RuntimeError that names the function that returned nan. Slow; for debugging only, of which a
    UserWarning tells.

    >>> import cugrad as torch, warnings
    >>> warnings.simplefilter("ignore")
    >>> x = torch.tensor([-1.], requires_grad=True)
    >>> with torch.autograd.detect_anomaly():
    ...     x.sqrt().sum().backward()
    Traceback (most recent call last):
    RuntimeError: Function 'SqrtBackward0' returned nan values in its 0th output.
    """

    def __init__(self, check_nan: bool = True) -> None:
        self.previous, self.check_nan = (anomaly.enabled, anomaly.check_nan), check_nan
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should "
            "only be enabled for debugging.",
            stacklevel=2,
        )

    def as_is(self) -> tuple[bool, bool]:
        return self.previous

    def change(self, before: tuple[bool, bool]) -> None:
        set_anomaly_enabled(True, self.check_nan)

    def put_back(self, before: tuple[bool, bool]) -> None:
        set_anomaly_enabled(*before)

    __repr__ = described


class set_detect_anomaly(Switch):
    """Turns anomaly detection on or off at once; as a context manager it goes back at the end.

    >>> import cugrad as torch
    >>> with torch.autograd.set_detect_anomaly(True, check_nan=False):
    ...     torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    (True, False)
    >>> torch.is_anomaly_enabled()
    False
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self.previous = anomaly.enabled, anomaly.check_nan
        set_anomaly_enabled(mode, check_nan)

    def as_is(self) -> tuple[bool, bool]:
        return self.previous

    def change(self, before: tuple[bool, bool]) -> None:
        """Nothing: that was done at once."""

    def put_back(self, before: tuple[bool, bool]) -> None:
        set_anomaly_enabled(*before)

    __repr__ = described


# ---------------------------------------------------------------------- forward


def note(node: Node) -> None:
    """Notes for a new node the stack that made it, and the node whose backward made it."""
    node.metadata["traceback_"] = _users_lines()
    if state.evaluating is not None:
        node.metadata["parent_"] = state.evaluating


def _users_lines() -> list[str]:
    """The stack as text, outermost call first, without the library's own frames."""
    frames = list(users_frames(LAYERS))
    for frame in frames:  # modules of zip files have their source elsewhere
        linecache.lazycache(frame.f_code.co_filename, frame.f_globals)
    return [_line_of(frame.f_code, frame.f_lineno) for frame in reversed(frames)]


@lru_cache(4096)
def _line_of(code: CodeType, line: int) -> str:
    """A place as tracebacks show it: most of a stack is that of the op before."""
    from traceback import FrameSummary, StackSummary

    return StackSummary([FrameSummary(code.co_filename, line, code.co_name)]).format()[0]


# ---------------------------------------------------------------------- backward


def guarded(visit: Any, node: Any, *args: Any) -> Any:
    """What `visit(node, *args)` returns; an error, or nan in it, is reported with its origin."""
    is_leaf = isinstance(node, Tensor)
    was = state.evaluating
    try:
        state.evaluating = None if is_leaf else node
        results = visit(node, *args)
        if anomaly.check_nan and not is_leaf:
            check_nan(node, results)
    except Exception:
        report(None if is_leaf else node)
        raise
    finally:
        state.evaluating = was
    return results


def check_nan(node: Node, results: Any) -> None:
    """RuntimeError where a gradient that a node returned has nan in it."""
    for i, g in enumerate(results or ()):
        array = g._array if isinstance(g, Tensor) else g
        if array is None or not is_differentiable(array.dtype):
            continue
        array = plain(array)
        if there(lambda array: bool(backend_of(array).xp.isnan(array).any()), array):
            raise RuntimeError(f"Function '{node.name()}' returned nan values in its {i}th output.")


def report(node: Node | None) -> None:
    """Warns with the traceback of a node's forward call, and of those whose backward made it."""
    parent = False
    while True:
        name = "AccumulateGrad" if node is None else node.name()
        metadata = {} if node is None or node.rare is None else node.rare.metadata or {}
        lines = "".join(metadata.get("traceback_", ()))
        if not lines:
            warn_beside(
                f"Error detected in {name}. No forward pass information available. Enable detect "
                "anomaly during forward pass for more information."
            )
        elif parent:
            warn_beside(
                f"\n\nPrevious calculation was induced by {name}. Traceback of forward call that "
                f"induced the previous calculation:\n{lines}"
            )
        else:
            warn_beside(
                f"Error detected in {name}. Traceback of forward call that caused the error:\n"
                f"{lines}"
            )
        node, parent = metadata.get("parent_"), True
        if node is None:
            return


def warn_beside(text: str) -> None:
    """Warns while an error is raised, which a warning that is an error must not hide."""
    try:
        warn_user(text)
    except Warning as warning:
        print(f"{type(warning).__name__}: {warning}", file=sys.stderr)
