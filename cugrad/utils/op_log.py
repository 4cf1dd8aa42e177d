"""The ops of the two runs of a function, and the lines that called them, for error messages."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from ..autograd.mode import pop_observer, push_observer
from ..runtime.frames import users_frames
from ..runtime.kept import Switch
from .comparison import CheckpointError

__all__ = ["OpLogs"]

FORWARD = "Stack traces of the operators that ran in the original forward"
AGAIN = "Stack traces of the operators that ran during recomputation"
BOTH = "Log of operators in the original forward and recomputation"


class Log:
    """An observer that writes down every op, and the user's lines above it."""

    def __init__(self) -> None:
        self.ops: list[tuple[str, list[str]]] = []

    def op_begin(self, name: str, seq: int, args: tuple[Any, ...]) -> None:
        shapes = ", ".join(
            f"{a.dtype}{list(a.shape)}" if hasattr(a, "dtype") else repr(a)[:40] for a in args
        )
        places = [(frame.f_code, frame.f_lineno) for frame in users_frames()]
        lines = [f"{code.co_filename}:{line}:{code.co_name}" for code, line in places]
        self.ops.append((f"{name}({shapes})", lines))

    def op_end(self, name: str, seq: int, result: Any) -> None: ...
    def node_begin(self, node: Any) -> None: ...
    def node_end(self, node: Any) -> None: ...


class OpLogs:
    """The logs of both runs."""

    def __init__(self) -> None:
        self.forward, self.again = Log(), Log()

    def contexts(self) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
        """What the function runs in, forward and again."""
        return _logged(self.forward), _logged(self.again)

    def explain(self, error: CheckpointError) -> CheckpointError:
        """The error with what ran before it."""
        forward, again = _traces(self.forward, "original"), _traces(self.again, "recompute")
        return CheckpointError(
            "An error happened while unpacking tensors; dumping logs of latest computation because "
            "you passed `debug=True` to `torch.utils.checkpoint.checkpoint()`. Scroll all the way "
            f"down for what went wrong.\n\n{_heading(1, FORWARD)}\n\n{forward}"
            f"{_heading(2, AGAIN)}\n\n{again}{_heading(3, BOTH)}\n\n"
            f"Operations executed during the original forward:\n\n{_names(self.forward)}\n\n"
            f"Operations executed during recomputation:\n\n{_names(self.again)}\n\n"
            f"{self._where()}"
            "ERROR: Detected non-determinism while running activation checkpointing\n\n"
            "You are seeing this error because you passed `debug=True` to checkpoint and tensors "
            "saved during the original forward differ from those saved during recomputation. Other "
            f"operators ran, or the same on other tensors.\n\n{error}"
        )

    def _where(self) -> str:
        """The first op that differs, with the lines that called it."""
        first, second = self.forward.ops, self.again.ops
        for k, (was, now) in enumerate(zip(first, second), 1):
            if was[0] != now[0]:
                return (
                    f"The first difference is operator {k}: {was[0]} in the original forward, "
                    f"{now[0]} during recomputation.\n" + "\n".join(now[1][:3]) + "\n\n"
                )
        return ""


class _logged(Switch):
    """Observes ops within it; may be entered again, and begins anew then."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def as_is(self) -> None:
        self._log.ops.clear()

    def change(self, before: None) -> None:
        push_observer(self._log)

    def put_back(self, before: None) -> None:
        pop_observer(self._log)


def _heading(number: int, title: str) -> str:
    line = f"{'-' * 78}"
    return f"+{line}+\n|{number:>8}. {title:<68}|\n+{line}+"


def _names(log: Log) -> str:
    return "\n".join([name for name, _ in log.ops])


def _traces(log: Log, label: str) -> str:
    count = len(log.ops)
    return "".join(
        f"{name}   ({k} of {count} in {label})\n\n" + "\n".join(lines) + "\n\n\n"
        for k, (name, lines) in enumerate(log.ops, 1)
    )
