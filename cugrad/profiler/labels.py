"""Ranges that the user names, in profiles and in the traces of tools."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from ..autograd.ranges import ranged
from ..runtime.contexts import described

__all__ = ["record_function"]

Called = TypeVar("Called", bound=Callable[..., Any])


class record_function:
    """Context manager and decorator that names a part of the program.

    A profile shows it as an event, emit_nvtx and emit_itt as a range. Where none is on it costs
    next to nothing.

    Args:
        name: what it is called.
        args: a text that goes with it: `event.concrete_inputs` of a profile with `record_shapes`.

    >>> import cugrad as torch
    >>> x = torch.randn((1, 1), requires_grad=True)
    >>> with torch.autograd.profiler.profile() as prof:
    ...     y = x ** 2
    ...     with torch.autograd.profiler.record_function("label-z"):  # label the block
    ...         z = y ** 3
    ...     y.backward()
    >>> [average.key for average in prof.key_averages()]
    ['pow', 'label-z', 'PowBackward0', 'torch::autograd::AccumulateGrad']
    """

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name, self.args = name, args
        self._ranges: list[Any] = []

    def __enter__(self) -> record_function:
        entered = ranged(self.name, "user", owner=self.args)
        entered.__enter__()
        self._ranges.append(entered)
        return self

    __repr__ = described

    def __exit__(self, *exc: object) -> None:
        self._ranges.pop().__exit__(*exc)

    def __call__(self, function: Called) -> Called:
        """The function, with each call named."""

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            with record_function(self.name, self.args):
                return function(*args, **kwargs)

        return called  # type: ignore[return-value]
