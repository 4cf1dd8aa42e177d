"""The ops of a function's two runs, and the lines that called them, for an error to show."""

from __future__ import annotations

import traceback
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from ..autograd.mode import pop_observer, push_observer
from .regions import CheckpointError

__all__ = ["Traces"]

LIBRARY = str(Path(__file__).resolve().parent.parent)


class Log:
    """An observer that writes down every op, and the user's lines above it."""

    def __init__(self) -> None:
        self.ops: list[tuple[str, list[str]]] = []

    def op_begin(self, name: str, seq: int, args: tuple[Any, ...]) -> None:
        shapes = ", ".join(
            f"{a.dtype}{list(a.shape)}" if hasattr(a, "shape") else repr(a)[:40] for a in args
        )
        frames = [f for f in traceback.extract_stack() if not f.filename.startswith(LIBRARY)]
        lines = [f"{f.filename}:{f.lineno}:{f.name}" for f in reversed(frames)]
        self.ops.append((f"{name}({shapes})", [line for line in lines if "<cugrad" not in line]))

    def op_end(self, name: str, seq: int, result: Any) -> None: ...
    def node_begin(self, node: Any) -> None: ...
    def node_end(self, node: Any) -> None: ...


class Traces:
    """The logs of both runs."""

    def __init__(self) -> None:
        self.forward, self.again = Log(), Log()

    def contexts(self) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
        """What the function runs in, forward and again."""
        return _logged(self.forward), _logged(self.again)

    def explain(self, error: CheckpointError) -> CheckpointError:
        """The error with what ran before it."""
        return CheckpointError(
            "An error happened while unpacking tensors; these are the latest ops, because "
            "`debug=True` was passed to `torch.utils.checkpoint.checkpoint()`.\n\n"
            f"1. Stack traces of the operators that ran in the original forward\n\n"
            f"{_traces(self.forward, 'original')}"
            f"2. Stack traces of the operators that ran during recomputation\n\n"
            f"{_traces(self.again, 'recompute')}"
            "3. Log of operators in the original forward and recomputation\n\n"
            f"Operations executed during the original forward:\n\n{_names(self.forward)}\n\n"
            f"Operations executed during recomputation:\n\n{_names(self.again)}\n\n"
            f"ERROR: Detected non-determinism while running activation checkpointing\n\n{error}"
        )


class _logged:
    """Observes ops within it; may be entered again, and begins anew then."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def __enter__(self) -> None:
        self._log.ops.clear()
        push_observer(self._log)

    def __exit__(self, *exc: object) -> None:
        pop_observer(self._log)


def _names(log: Log) -> str:
    return "\n".join([name for name, _ in log.ops])


def _traces(log: Log, label: str) -> str:
    count = len(log.ops)
    return "".join(
        f"{name}   ({k} of {count} in {label})\n\n" + "\n".join(lines) + "\n\n\n"
        for k, (name, lines) in enumerate(log.ops, 1)
    )
