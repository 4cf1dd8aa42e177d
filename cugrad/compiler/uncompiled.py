"""torch.compiler: functions come back as they are, and questions are answered with no."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from ..runtime.contexts import Context

__all__ = [
    "allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin", "disable",
    "is_compiling", "is_dynamo_compiling", "is_exporting", "list_backends", "reset", "set_stance",
    "substitute_in_graph",
]  # fmt: skip

TEXT = (
    "torch.compile: there is no compiler here, so this function, and any other that is compiled, "
    "runs as it is (docs/torch-compatibility.md)"
)
STANCES = ("default", "force_eager", "eager_on_recompile", "fail_on_recompile",
           "eager_then_compile", "aot_eager_then_compile")  # fmt: skip


class Told:
    """Whether the user was told that nothing is compiled: once in a process."""

    already = False


def compile(
    model: Callable[..., Any] | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = "inductor",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: Any = None,
) -> Any:
    """`model` itself, or a decorator that returns what it decorates: nothing is compiled.

    It warns of that once in a process, unless `disable`. The other arguments say how PyTorch would
    compile. RuntimeError for both `mode` and `options`, TypeError for something that is not called.

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     compile(abs) is abs
    True
    """
    if mode is not None and options is not None:
        raise RuntimeError(
            "Either mode or options can be specified, but both can't be specified at the same time."
        )
    if model is None:
        return lambda function: compile(function, disable=disable)
    if not callable(model):
        raise TypeError(f"torch.compile(): want a function or a module, got {type(model).__name__}")
    if not disable and not Told.already:
        Told.already = True
        warnings.warn(TEXT, stacklevel=2)
    return model


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """`fn` itself, or a decorator that returns what it decorates."""
    return _itself if fn is None else fn


def _itself(fn: Any) -> Any:
    return fn


def allow_in_graph(fn: Any) -> Any:
    """`fn` itself."""
    return fn


def assume_constant_result(fn: Any) -> Any:
    """`fn` itself."""
    return fn


def substitute_in_graph(original_fn: Any, **how: Any) -> Any:
    """A decorator that returns what it decorates."""
    return _itself


def is_compiling() -> bool:
    """False."""
    return False


def is_dynamo_compiling() -> bool:
    """False."""
    return False


def is_exporting() -> bool:
    """False."""
    return False


def reset() -> None:
    """There is nothing to forget."""


def cudagraph_mark_step_begin() -> None:
    """There are no graphs that PyTorch's compiler has captured."""


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """No compiler: an empty list."""
    return []


class set_stance(Context):
    """Accepts PyTorch's stances on compilation, and changes nothing; RuntimeError for another."""

    def __init__(
        self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False,
        force_backend: Any = None,
    ) -> None:  # fmt: skip
        if stance not in STANCES:
            raise RuntimeError(f"invalid torch.compile stance {stance!r}; want one of {STANCES}")
        self.stance = stance

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        pass

    def clone(self) -> set_stance:
        """Another context with the same stance."""
        return type(self)(self.stance)
